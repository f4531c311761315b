/* Replays every recorded run of delayed_nesterov (folder delayed_nesterov), which a NumPy program wrote
 * (delayed_nesterov.py), with the optimizer library and through a daemon. Weights and state must equal the recorded
 * ones. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_have_the_bits_of_the_numpy_program)
{
    return replayed_folder_exactly("delayed_nesterov");
}
