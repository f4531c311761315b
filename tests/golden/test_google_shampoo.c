/* Replays every recorded run of Google's Distributed Shampoo (folder google_shampoo), and compares its weights and
 * state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("google_shampoo", REPLAYED_STATE);
}
