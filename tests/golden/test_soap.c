/* Replays every recorded run of the authors' SOAP (folder soap), and compares its weights and,
 * if recorded, its state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("soap", REPLAYED_STATE_IF_ANY);
}
