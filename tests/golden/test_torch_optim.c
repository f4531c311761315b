/* Replays every recorded run of torch.optim (folder torch_optim), and compares its weights. The runs record no
 * state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("torch_optim", REPLAYED_NO_STATE);
}
