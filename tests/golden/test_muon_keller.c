/* Replays every recorded run of Muon, Keller Jordan's program (folder muon_keller), and compares weights and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("muon_keller", REPLAYED_STATE);
}
