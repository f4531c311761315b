/* race.h - connects to the address that answers first, of the several that a host may have. */
#ifndef PD_RACE_H
#define PD_RACE_H

struct addrinfo;

/* Tries to connect to the first eight of the addresses, in their order: the next one begins when all before have
 * failed, or have been silent for a quarter of a second. So an address that swallows packets costs no more than that.
 *
 * Sets *fd to a connected socket that does not block and sends without delay (TCP_NODELAY), and returns 0. Returns an
 * errno value: of the last failure, or ETIMEDOUT once the last address has been silent for `timeout_ms`. Returns -1:
 * `stop_fd` became readable. */
int pd_race_connect(int *fd, const struct addrinfo *addresses, int stop_fd, int timeout_ms);

#endif
