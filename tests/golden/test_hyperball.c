/* Replays every recorded run of Emerging-Optimizers' Hyperball (folder hyperball), and compares weights. The runs
 * record no state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("hyperball", REPLAYED_NO_STATE);
}
