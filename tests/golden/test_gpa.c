/* Replays every recorded run of GPA-AdamW (folder gpa), and compares weights, the weights to
 * evaluate with, and state. */
#include "test.h"
#include "replayed.h"

TEST_PROGRAM(runs_agree_with_upstream)
{
    return replayed_folder("gpa", REPLAYED_STATE);
}
