/* path.h - finds out that the network has stopped to carry the packets of a connection, and tries another connection
 * beside it.
 *
 * After a cut, TCP's backed-off retransmissions decide when bytes flow again: up to twice as late as the network does.
 * A new connection is there within a second. So once a second the I/O thread looks at what the kernel knows of the
 * connection. If the peer's kernel has acknowledged nothing for a while, although this kernel has tried several times,
 * the path is cut. Then connections to the same address are tried until one is made. If the old connection still
 * carries nothing then, the new one takes its place; the requests without an answer are sent again over it.
 *
 * A server that is slow, busy or stopped is no cut: its kernel acknowledges. Nor is a slow link, whose bytes are
 * acknowledged one after the other. */
#ifndef PD_PATH_H
#define PD_PATH_H

#include <poll.h>
#include <stdbool.h>
#include <stdint.h>

typedef enum pd_path_state {
    PD_PATH_WELL,
    PD_PATH_CUT,    /* the peer's kernel acknowledges nothing */
    PD_PATH_ASKING, /* it does again: the server must show that the other direction carries bytes, too */
} pd_path_state;

/* What the kernel knows of a connection. */
typedef struct pd_path_facts {
    uint32_t attempts;  /* retransmissions, or probes of an idle connection, since the peer's kernel was last heard */
    uint64_t silent_ns; /* time since the peer's kernel was last heard */
    uint64_t rtt_ns;    /* smoothed round-trip time */
    bool unsent;        /* bytes are not sent, or not acknowledged */
    bool unacked;       /* bytes were sent and are not acknowledged */
    uint64_t received;  /* bytes of the server, as of the connection's begin */
} pd_path_facts;

typedef struct pd_path {
    pd_path_state state;
    int fd;            /* borrowed: the connection's socket; -1: none, or none of TCP */
    uint64_t next_ns;  /* when to look again; UINT64_MAX: there is nothing to look at */
    uint64_t received; /* bytes of the server when the cut was found */
    uint64_t asked_ns; /* while asking: since when the server could have answered */
    /* The spare connection. probe: its socket; -1: none. made: it is connected. */
    int probe;
    bool made;
    uint64_t probe_ns; /* when it was begun */
    /* How long the peer's kernel must be silent. Doubles with every connection that was replaced soon after another. */
    uint64_t patience_ns;
    uint64_t replaced_ns; /* when a connection was last replaced */
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
/* Returns the socket of the spare connection, with the events to wait for. */
struct pollfd pd_path_poll(const pd_path *path);
/* Looks at the connection if it is time to, or if the spare connection has got an event. */
pd_path_advice pd_path_look(pd_path *path, const struct pollfd *polled, uint64_t now_ns);
/* Returns the connected socket of the spare connection, which the caller closes. */
int pd_path_take(pd_path *path);

/* Decides by the kernel's facts what to do, without any socket: for pd_path_look, and for tests. */
pd_path_advice pd_path_judge(pd_path *path, const pd_path_facts *facts, uint64_t now_ns);

#endif
