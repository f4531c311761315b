/* Replays every recorded run of MARS' authors' program (folder mars), and compares weights and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("mars", REPLAYED_STATE);
}
