/* Replays every recorded run of T5X's adafactor (folder t5x_adafactor), and compares its weights and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("t5x_adafactor", REPLAYED_STATE_IF_ANY);
}
