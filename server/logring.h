/* logring.h - lines that wait for the thread that writes them to the standard error. Any thread. */
#ifndef PD_LOGRING_H
#define PD_LOGRING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PD_LOG_RING_BYTES (128 * 1024)

/* Copies a line, which ends with a newline, behind those that wait; a line that finds no room is counted as lost. Never waits for the
 * writer. False: there is no writer thread, the line is the caller's to write. */
bool   pd_log_ring_put(const char *line, size_t n);
/* Writes a line to the standard error, and waits as long as that takes. */
void   pd_log_write(const char *line, size_t n);
/* log.c: makes the line that reports so many lost lines. Returns its length. */
size_t pd_log_lost_line(char *out, size_t size, uint64_t lost);

#endif
