/* units.h - reads sizes and durations as people write them: one syntax for the configuration, job options and
 * paramctl. */
#ifndef PD_UNITS_H
#define PD_UNITS_H

#include <stdbool.h>
#include <stdint.h>

/* Reads a size such as "4096", "64k", "256M", "1 GiB" or "2Ti" as bytes. Units are powers of 1024, in upper or lower
 * case, and may end in "iB", "i" or "B". Returns false if the text is not a size, or the size does not fit into 64
 * bits. */
bool pd_bytes_read(const char *text, uint64_t *bytes);
/* Reads a duration such as "500ms", "30s", "1.5 min", "5m", "1h" or "1d" as seconds. If `bare` is true, a number
 * without a unit is accepted as seconds. Returns false if the text is not a duration. */
bool pd_duration_read(const char *text, bool bare, double *seconds);

#endif
