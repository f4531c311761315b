/* Plays every recorded run of Distributed PSGD Kron in distributed_kron with the probes that were recorded, and
 * compares updates and state, too; and the cases of its routines. */
#include "replayed.h"

int main(void)
{
    return replayed_folder("distributed_kron", REPLAYED_STATE_IF_ANY);
}
