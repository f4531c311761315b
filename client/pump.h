/* pump.h - carries bytes between a core and a transport. No sockets, no threads, no clock: the time is an
 * argument.
 *
 *     pd_pump pump = { .core = core, .enter = lock, .leave = unlock, .arg = io };
 *     pd_pump_open(&pump, transport, now);                         when the core asks for a connection (PD_LINK_CONNECT) and there is one
 *     while (pd_pump_send(&pump, now)) continue;                   after every call into the core, every event, and at pd_core_next
 *     pd_pump_ready(&pump, PD_ON_READ, now);                       when the transport has one of the events that the pump watches
 *     pd_pump_lose(&pump, now, "dropped");                         when the core says so (PD_LINK_DROP), or there is no connection to be had
 *
 * The pump calls `enter` before it calls the core and `leave` after. It calls the transport outside of the two.
 * Between the gathering of bytes and pd_core_sent another thread may be inside the core. One thread at a time
 * calls the pump. */
#ifndef PD_PUMP_H
#define PD_PUMP_H

#include "core.h"
#include "transport.h"

typedef struct pd_pump {
    /* Set by the owner. */
    pd_core *core;                      /* borrowed */
    void   (*enter)(void *arg), (*leave)(void *arg);
    void    *arg;
    /* The pump's own; zero at first. The owner may read them. */
    pd_transport *transport;            /* NULL: there is no connection */
    pd_framer    *framer;
    bool          blocked;              /* the transport takes no more bytes at present */
    size_t        heard;                /* received bytes that the core has not been told of yet */
} pd_pump;

/* Takes the transport, watches it for reading and tells the core that it is connected. Without memory the
 * transport is closed and the core told that the connection is lost. */
void pd_pump_open(pd_pump *pump, pd_transport *transport, uint64_t now_ns);
/* Tells the core of the time, then sends one batch of its bytes (about 1 MiB). Returns true if there may be more
 * to send at once. False: nothing to send, the transport is full (PD_ON_WRITE is watched), or the connection is
 * lost (pump->transport is NULL). */
bool pd_pump_send(pd_pump *pump, uint64_t now_ns);
/* Handles events of the transport: receives (PD_ON_READ, PD_ON_GONE) at most about 512 KiB, allows sending again
 * (PD_ON_WRITE). A transport that only tells of changes must be asked again while this returns true: it stopped
 * before the transport was empty. */
bool pd_pump_ready(pd_pump *pump, unsigned events, uint64_t now_ns);
/* Closes the transport, if there is one, and tells the core. */
void pd_pump_lose(pd_pump *pump, uint64_t now_ns, const char *reason);

#endif
