/* Plays every recorded run of Google's Distributed Shampoo in google_shampoo, with its state. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("google_shampoo", REPLAYED_STATE);
}
