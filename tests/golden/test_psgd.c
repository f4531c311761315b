/* Replays every recorded run of psgd_torch's Kron (folder psgd) with the recorded random numbers, and compares weights
 * and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("psgd", REPLAYED_STATE_IF_ANY);
}
