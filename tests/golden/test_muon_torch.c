/* Replays every recorded run of Muon, that of torch.optim (folder muon_torch), and compares weights and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("muon_torch", REPLAYED_STATE);
}
