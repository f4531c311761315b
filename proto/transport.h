/* transport.h - sends and receives the bytes of one connection, tells who the peer is, and passes descriptors. Sockets
 * implement this interface, with and without TLS, and so does the simulator.
 *
 * The daemon and the client use the same interface. In the daemon the connection sets the callback `ready` and calls
 * `watch`; the loop thread then calls `ready`. The client's I/O thread polls the socket's descriptor itself, and so
 * needs neither. */
#ifndef PD_TRANSPORT_H
#define PD_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "paramd/error.h"

/* What proves the identity of a peer. The daemon's file of roles names an identity by its text, and says what it may
 * do. */
typedef enum pd_identity_kind {
    PD_IDENTITY_NONE,        /* plain TCP, or TLS without a client's credentials: "anyone" */
    PD_IDENTITY_USER,        /* user id of a process on this machine: "user:1000" */
    PD_IDENTITY_TOKEN,       /* id of a token: "token:alice" */
    PD_IDENTITY_CERTIFICATE, /* name in the client's certificate: "certificate:worker-3.example.org" */
} pd_identity_kind;

typedef struct pd_identity {
    pd_identity_kind kind;
    char text[256]; /* the identity in one of the forms above; printable */
} pd_identity;

/* Fills in the identity of this kind and name, such as "token:alice" for PD_IDENTITY_TOKEN and "alice". For
 * PD_IDENTITY_NONE `name` is ignored.
 *
 * If the name is empty, too long or not printable, no role could name it, so the identity becomes "anyone". */
void pd_identity_set(pd_identity *identity, pd_identity_kind kind, const char *name);

/* Receives bytes as readv does. If descriptors come with the bytes, the first one replaces *taken, which is -1 if there
 * is none. The replaced descriptor and all others are closed. */
ssize_t pd_descriptor_receive(int fd, const struct iovec *iov, int n, int *taken);
/* Sends bytes as sendmsg does with MSG_NOSIGNAL and MSG_DONTWAIT. If *attached is not -1, this descriptor goes with the
 * first byte. It is closed once it is sent, and *attached becomes -1. */
ssize_t pd_descriptor_send(int fd, const struct iovec *iov, int n, int *attached);
/* Makes the kernel report a TCP socket as readable only when this many received bytes wait, or its buffer is full, or
 * the connection has ended. Unix sockets ignore it. */
void pd_descriptor_gather(int fd, size_t bytes);
/* Returns true unless the peer has closed its end or the connection is broken. A peer that has only ended its sending
 * side has not closed its end. */
bool pd_descriptor_is_open(int fd);
/* Returns whether the socket can pass descriptors, as Unix sockets can. */
bool pd_descriptor_can_pass(int fd);
/* Sets *identity to the user as which the peer's process ran when it connected; to "anyone" if the kernel does not
 * say. */
void pd_descriptor_identify(int fd, pd_identity *identity);

/* Closes the descriptor at *kept, unless it is -1, and stores another one, or -1, there. */
void pd_descriptor_replace(int *kept, int fd);
/* Returns the descriptor at *kept to the caller, who closes it, and stores -1 there. */
int pd_descriptor_take(int *kept);

/* Events of a transport. A set of these bits says which events a connection waits for, or which have happened.
 * PD_ON_GONE: the peer has ended its side, or the connection is broken. A broken connection is reported even if no
 * event is watched. */
enum { PD_ON_READ = 1, PD_ON_WRITE = 2, PD_ON_GONE = 4 };

typedef struct pd_transport pd_transport;

/* The functions of one kind of transport. Members that may be NULL say so. */
typedef struct pd_transport_ops {
    /* Receives bytes from the peer into the spans of memory iov[0..n), in order. Returns the number of bytes; 0: there
     * are none now. PD_CANCELLED: the peer has ended its side, and all bytes that it sent were received.
     * PD_UNAVAILABLE: the connection is broken; *err says why. */
    ssize_t (*receive)(pd_transport *transport, const struct iovec *iov, int n, pd_error *err);
    /* Sends bytes to the peer from the spans of memory iov[0..n), in order. Returns the number of bytes; 0: none can be
     * sent now. PD_UNAVAILABLE: the connection is broken; *err says why. */
    ssize_t (*send)(pd_transport *transport, const struct iovec *iov, int n, pd_error *err);
    /* Watches for events of the connection: from now on `ready` is called whenever one of `events` happens, but never
     * from within `watch`. */
    void (*watch)(pd_transport *transport, unsigned events);
    /* Makes the transport report PD_ON_READ only when `bytes` >= 1 received bytes wait. The end of the peer's side and
     * a broken connection are always reported at once. Called by pd_transport_gather only. NULL: every byte is
     * reported. */
    void (*gather)(pd_transport *transport, size_t bytes);
    /* Ends our side of the connection. The peer sees the end after all bytes that were sent; receiving continues. */
    void (*shut)(pd_transport *transport);
    /* Ends both sides of the connection and frees the transport. From then on `ready` is not called. For a direction
     * that is lent, `moved` is still called. */
    void (*close)(pd_transport *transport);
    /* Returns true if bytes that were sent still wait in this process, because the peer takes none now. `close` would
     * lose them; they go on when PD_ON_WRITE happens, so watch for it. NULL: the kernel has all bytes that were sent,
     * and delivers them even after `close`. */
    bool (*owes)(const pd_transport *transport);
    /* Returns how many bytes of memory the transport uses for received bytes and for bytes to send. They count against
     * no budget of the daemon; each connection has a limit. NULL: the transport uses none. */
    size_t (*held)(const pd_transport *transport);
    /* Sends a descriptor with the next byte that is sent, so that the peer has it when it has read that byte. Takes
     * ownership of the descriptor. A descriptor that is not sent yet is replaced. `attach`, `take` and `is_open` are
     * for shared memory (segment.h). NULL: the transport passes no descriptors. */
    void (*attach)(pd_transport *transport, int fd);
    /* Returns the last descriptor that came with the received bytes, or -1 if none has come since the last call. The
     * caller closes it. Only the last descriptor is kept: older ones that were not taken are closed. */
    int (*take)(pd_transport *transport);
    /* Returns true if the peer had not closed the connection at the time of the call. A peer lends memory until it
     * closes the connection, so true also means that the lent memory was unchanged until then. */
    bool (*is_open)(pd_transport *transport);
    /* Sets *identity to the identity of the peer. It does not change while the connection lives. NULL: the connection
     * proves nothing about its peer. */
    void (*identity)(const pd_transport *transport, pd_identity *identity);
    /* Lends one direction of the transport to another thread, which moves bytes between the peer and the spans of
     * memory iov[0..n), as many as are possible without waiting for the peer. `moved` then gives the direction back.
     * `direction`: PD_ON_READ to receive, PD_ON_WRITE to send. The array `iov` is copied. Returns the set of directions
     * that are lent now: both, if only one thread at a time may use the transport. 0: nothing is lent, and the caller
     * moves the bytes itself.
     *
     * Until `moved` is called, the caller uses the transport in none of these directions, and leaves the memory of the
     * spans alone. `ready` reports no event of them. `watch` and `close` may be called: `watch` takes effect when the
     * direction is back. NULL: the transport lends nothing. */
    unsigned (*lend)(pd_transport *transport, unsigned direction, const struct iovec *iov, int n);
} pd_transport_ops;

/* What another thread has moved in a direction that was lent to it. */
typedef struct pd_moved {
    unsigned direction; /* as for `lend` */
    size_t bytes;       /* number of bytes that were received into the spans, or sent from them */
    ssize_t end;        /* after these bytes, the error that `receive` or `send` returned; 0: none */
    pd_error err;       /* text of this error */
} pd_moved;

/* The common part of every transport (socket, simulated connection): the first member of each implementation's
 * struct. */
struct pd_transport {
    const pd_transport_ops *ops;
    void (*ready)(void *arg, unsigned events); /* reports events to the connection that owns the transport, which sets
                                                * `ready` before its first call of `watch` */
    void (*moved)(void *arg, const pd_moved *moved); /* gives a direction back that was lent; set before the first call
                                                      * of `lend` */
    void *arg;
    size_t gathers; /* bytes that must wait before PD_ON_READ is reported (pd_transport_gather); 0 and 1: any */
    bool eased;     /* pd_transport_ease has ended the gathering, and nothing was received since */
};

/* Lets bytes of a payload that comes fast gather in the kernel, so that the reader is woken once for many of them.
 * Called after each turn of the reader. got: bytes that the turn has received. left: bytes of the present payload that
 * have not come yet. The peer sends these in any case, so waiting for them never blocks it. */
void pd_transport_gather(pd_transport *transport, size_t got, uint64_t left);
/* Ends the gathering. The reader must call this when it has received nothing for PD_GATHER_MS, so that a payload that
 * comes slowly counts as progress. */
void pd_transport_ease(pd_transport *transport);
enum { PD_GATHER_MS = 50 };

/* Returns whether `close` would lose bytes that were sent. */
static inline bool pd_transport_owes(const pd_transport *transport)
{
    return transport->ops->owes != NULL && transport->ops->owes(transport);
}

/* Returns how many bytes of memory a transport uses for received bytes and for bytes to send. */
static inline size_t pd_transport_held(const pd_transport *transport)
{
    return transport->ops->held != NULL ? transport->ops->held(transport) : 0;
}

/* Sets *identity to the identity of the peer; to "anyone" if the transport proves nothing. */
static inline void pd_transport_identify(const pd_transport *transport, pd_identity *identity)
{
    if (transport->ops->identity != NULL)
        transport->ops->identity(transport, identity);
    else
        pd_identity_set(identity, PD_IDENTITY_NONE, "");
}

#endif
