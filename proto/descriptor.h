/* descriptor.h - sends and receives bytes over a Unix socket, and file descriptors beside them. */
#ifndef PD_DESCRIPTOR_H
#define PD_DESCRIPTOR_H

#include <stdbool.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "identity.h"

/* Receives bytes as readv does. If descriptors come with the bytes, the first one replaces *taken, which is -1 if there
 * is none. The replaced descriptor and all others are closed. */
ssize_t pd_descriptor_receive(int fd, const struct iovec *iov, int n, int *taken);
/* Sends bytes as sendmsg does with MSG_NOSIGNAL and MSG_DONTWAIT. If *attached is not -1, this descriptor goes with the
 * first byte. It is closed once it is sent, and *attached becomes -1. */
ssize_t pd_descriptor_send(int fd, const struct iovec *iov, int n, int *attached);
/* Returns whether the peer has not closed its end, and the connection is not broken. A peer that has only ended its
 * sending side has not closed it. */
bool pd_descriptor_is_open(int fd);
/* Returns whether the socket can pass descriptors: it is a Unix socket. */
bool pd_descriptor_can_pass(int fd);
/* Tells as which user the peer's process ran when it connected, or "anyone" if the kernel does not say. */
void pd_descriptor_identify(int fd, pd_identity *identity);

/* Closes the descriptor at *kept, unless it is -1, and stores another one, or -1, there. */
void pd_descriptor_replace(int *kept, int fd);
/* Returns the descriptor at *kept to the caller, who closes it, and stores -1 there. */
int pd_descriptor_take(int *kept);

#endif
