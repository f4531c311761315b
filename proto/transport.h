/* transport.h - sends and receives the bytes of one connection. A socket implements it, and so does the simulator; TLS
 * and shared memory can be added without a change to their callers.
 *
 * The daemon and the client use the same interface. The daemon's loop thread is called back: it sets `ready` and calls
 * `watch`. The client's I/O thread polls its own descriptor, so it needs neither. */
#ifndef PD_TRANSPORT_H
#define PD_TRANSPORT_H

#include <sys/types.h>
#include <sys/uio.h>

#include "paramd/error.h"

/* Events: what a connection waits for, and what has happened. PD_ON_GONE: the peer has ended its side, or the
 * connection is broken. A broken connection is reported even if no event is watched. */
enum { PD_ON_READ = 1, PD_ON_WRITE = 2, PD_ON_GONE = 4 };

typedef struct pd_transport pd_transport;

typedef struct pd_transport_ops {
    /* Copies received bytes into the spans, in order. Returns their number; 0: there are none now. PD_CANCELLED: the
     * peer has ended its side, and everything before was received. PD_UNAVAILABLE: the connection is broken; *err says
     * why. */
    ssize_t (*receive)(pd_transport *transport, const struct iovec *iov, int n, pd_error *err);
    /* Sends bytes of the spans, in order. Returns their number; 0: none can be sent now. PD_UNAVAILABLE: the connection
     * is broken; *err says why. */
    ssize_t (*send)(pd_transport *transport, const struct iovec *iov, int n, pd_error *err);
    /* Watches for events: from now on `ready` is called when one of them happens, but never from within `watch`. */
    void    (*watch)(pd_transport *transport, unsigned events);
    /* Ends our side of the stream. The peer sees the end behind all sent bytes; receiving goes on. */
    void    (*shut)(pd_transport *transport);
    /* Ends both sides and frees the transport. `ready` is not called any more. */
    void    (*close)(pd_transport *transport);
} pd_transport_ops;

/* First member of every implementation. */
struct pd_transport {
    const pd_transport_ops *ops;
    void (*ready)(void *arg, unsigned events);      /* set by the connection that owns it, before the first `watch` */
    void  *arg;
};

#endif
