/* Replays every recorded run of the authors' KL-Shampoo and KL-SOAP (folder kl_methods), and compares its weights and,
 * if recorded, its state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("kl_methods", REPLAYED_STATE_IF_ANY);
}
