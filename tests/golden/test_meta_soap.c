/* Replays every recorded run of Meta's SOAP (folder meta_soap), and compares its weights and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("meta_soap", REPLAYED_STATE_IF_ANY);
}
