/* Replays every recorded run of Google's Distributed Shampoo (folder google_shampoo), and compares its weights and
 * state. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("google_shampoo", REPLAYED_STATE);
}
