/* Plays every recorded run of torch.optim in torch_optim; they record no state. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("torch_optim", REPLAYED_NO_STATE);
}
