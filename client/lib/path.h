/* path.h - finds out that the network no longer carries the packets of a connection, and then makes another connection
 * to the same address.
 *
 * After a cut, TCP sends unacknowledged bytes again at growing intervals. So bytes may flow only after twice the length
 * of the cut. A new connection is made within a second. So once a second the I/O thread asks the kernel about the
 * connection. If the peer's kernel has acknowledged nothing for a while, although this kernel has tried several times,
 * the path is cut. Then the I/O thread tries to connect to the same address until it succeeds. If the old connection
 * still carries nothing, the new connection replaces it, and requests without an answer are sent again.
 *
 * A slow, busy or stopped server is no cut: its kernel acknowledges. A slow link is no cut either: its bytes are
 * acknowledged one after the other. */
#ifndef PD_PATH_H
#define PD_PATH_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum pd_path_state {
    PD_PATH_WELL,   /* the network carries packets, as far as is known */
    PD_PATH_CUT,    /* the peer's kernel acknowledges nothing */
    PD_PATH_ASKING, /* it acknowledges again; the server's answer is awaited */
} pd_path_state;

/* What the kernel knows of a connection. */
typedef struct pd_path_facts {
    uint32_t attempts;  /* retransmissions, or probes of an idle connection, since the peer's kernel was last heard */
    uint64_t silent_ns; /* time since the peer's kernel was last heard */
    uint64_t rtt_ns;    /* smoothed round-trip time */
    bool unsent;        /* some bytes are not sent yet, or not acknowledged */
    bool unacked;       /* bytes were sent and are not acknowledged */
    uint64_t received;  /* number of bytes that the server has sent on this connection */
} pd_path_facts;

/* The state of watching one connection. The I/O thread owns it. Times are those of the monotonic clock. */
typedef struct pd_path {
    pd_path_state state;
    int fd;            /* the connection's socket, borrowed; -1: no connection, or not one of TCP */
    uint64_t next_ns;  /* when to look at the connection again; UINT64_MAX: never */
    uint64_t received; /* pd_path_facts.received when the cut was found */
    uint64_t asked_ns; /* in PD_PATH_ASKING: time from which the server has to answer */
    /* The spare connection. probe: its socket; -1: none. made: it is connected. */
    int probe;
    bool made;
    uint64_t probe_ns; /* when the spare connection was begun */
    /* Time for which the peer's kernel must be silent before the path counts as cut. Doubles each time that a
     * connection is replaced soon after another replacement. */
    uint64_t patience_ns;
    uint64_t replaced_ns; /* when a connection was last replaced; 0: never */
} pd_path;

typedef enum pd_path_advice {
    PD_PATH_GO_ON,
    PD_PATH_ASK,     /* send something that the server answers at once */
    PD_PATH_REPLACE, /* give the connection up, and continue with the one that pd_path_take returns */
} pd_path_advice;

void pd_path_init(pd_path *path);
/* Begins to watch a connected socket. Does nothing for a socket that is not one of TCP. */
void pd_path_begin(pd_path *path, int fd, uint64_t now_ns);
/* Ends the watch, and closes the spare connection. */
void pd_path_end(pd_path *path);
/* Returns the socket of the spare connection and the events that poll() must wait for. */
struct pollfd pd_path_poll(const pd_path *path);
/* Looks at the connection if it is time, or if poll() found an event of the spare connection (`polled`). Returns what
 * the caller must do. */
pd_path_advice pd_path_look(pd_path *path, const struct pollfd *polled, uint64_t now_ns);
/* Returns the connected socket of the spare connection. The caller then owns it and closes it. */
int pd_path_take(pd_path *path);

/* Returns what the caller must do, from what the kernel knows. Uses no socket: for pd_path_look, and for tests. */
pd_path_advice pd_path_judge(pd_path *path, const pd_path_facts *facts, uint64_t now_ns);

#endif
