/* Replays every recorded run of T5X's adafactor (folder t5x_adafactor), and compares its weights and state. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("t5x_adafactor", REPLAYED_STATE_IF_ANY);
}
