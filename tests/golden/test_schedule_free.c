/* Replays every recorded run of Schedule-Free AdamW and SGD (folder schedule_free), and compares weights, the weights
 * to evaluate with, and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("schedule_free", REPLAYED_STATE);
}
