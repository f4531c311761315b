/* Replays every recorded run of Meta's PyTorch Distributed Shampoo (folder meta_shampoo), and compares its weights
 * and, if recorded, its state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("meta_shampoo", REPLAYED_STATE_IF_ANY);
}
