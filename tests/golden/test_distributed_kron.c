/* Replays every recorded run of Distributed PSGD Kron (folder distributed_kron) with the recorded random probes, and
 * compares weights, updates and state. Also replays the recorded cases of its routines. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("distributed_kron", REPLAYED_STATE_IF_ANY);
}
