/* transfer.h - shows the progress of a long transfer on a terminal. */
#ifndef PD_TRANSFER_H
#define PD_TRANSFER_H

#include <stdbool.h>
#include <stdint.h>

/* Shows how much is transferred, in a line such as "1.2 MiB of 3 GiB sent" that replaces the line before. Does
 * nothing if standard error is no terminal. `last`: the transfer is over, so the line is ended. */
void pd_transfer_show(uint64_t done, uint64_t all, const char *verb, bool last);

#endif
