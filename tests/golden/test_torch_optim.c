/* Replays every recorded run of torch.optim (folder torch_optim), and compares its weights. The runs record no
 * state. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("torch_optim", REPLAYED_NO_STATE);
}
