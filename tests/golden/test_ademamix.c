/* Replays every recorded run of AdEMAMix's authors' program (folder ademamix), and compares weights and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("ademamix", REPLAYED_STATE);
}
