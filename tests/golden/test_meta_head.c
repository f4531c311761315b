/* Replays every recorded run of Meta's Shampoo of 2026 (folder meta_head), and compares its weights and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("meta_head", REPLAYED_STATE_IF_ANY);
}
