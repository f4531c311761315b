/* Replays every recorded run of Meta's PyTorch Distributed Shampoo (folder meta_shampoo), and compares its weights
 * and, if recorded, its state. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("meta_shampoo", REPLAYED_STATE_IF_ANY);
}
