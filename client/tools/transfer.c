/* transfer.c - shows the progress of a long transfer on a terminal. */
#include "transfer.h"

#include <stdio.h>
#include <unistd.h>

#include "format.h"

void pd_transfer_show(uint64_t done, uint64_t all, const char *verb, bool last)
{
    char some[PD_CELL], whole[PD_CELL];

    if (!isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r%s of %s %s   %s", pd_bytes_text(some, done), pd_bytes_text(whole, all), verb, last ? "\n" : "");
}
