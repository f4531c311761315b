/* Plays every recorded run of T5X's adafactor, with its state, in t5x_adafactor. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("t5x_adafactor", REPLAYED_STATE_IF_ANY);
}
