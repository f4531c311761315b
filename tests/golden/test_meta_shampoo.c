/* Plays every recorded run of Meta's PyTorch Distributed Shampoo: replayed.h. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("meta_shampoo", REPLAYED_STATE_IF_ANY);
}
