/* probe.h - asks whether a daemon still answers at an address, before another one takes its shard. */
#ifndef PD_PROBE_H
#define PD_PROBE_H

#include <stdbool.h>

/* Connects to each of the addresses in `url` and says Hello as an operator. Returns true as soon as a peer has sent any
 * bytes: an answer, a refusal, or the alert of one that expects TLS. A process that is stopped, and a connection that
 * is closed without a word, do not count. Waits at most `timeout_ms` for each address, besides the lookup of its name.
 * Not for the loop thread. */
bool pd_probe(const char *url, int timeout_ms);

#endif
