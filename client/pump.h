/* pump.h - carries bytes between a core and a transport. No sockets, no threads, no clock: the time is an argument.
 *
 *     pd_pump pump = { .core = core, .enter = lock, .leave = unlock, .arg = io };
 *     pd_pump_open(&pump, transport, now);             when the core asks for a connection (PD_LINK_CONNECT)
 *     while (pd_pump_send(&pump, now)) continue;       after every call of the core, every event, and at pd_core_next
 *     pd_pump_ready(&pump, PD_ON_READ, now);           on an event of the transport that the pump watches
 *     pd_pump_lose(&pump, now, "dropped");             on PD_LINK_DROP, or if no connection can be made
 *
 * The pump calls `enter` before it calls the core and `leave` after. It calls the transport outside of the two. Between
 * pd_core_output and pd_core_sent another thread may be inside the core. One thread at a time calls the pump. */
#ifndef PD_PUMP_H
#define PD_PUMP_H

#include "core.h"
#include "transport.h"

typedef struct pd_pump {
    /* Set by the owner. */
    pd_core *core;                      /* borrowed */
    void   (*enter)(void *arg), (*leave)(void *arg);
    void    *arg;
    /* Set by the pump; zero at first. The owner may read them. */
    pd_transport *transport;            /* NULL: there is no connection */
    pd_framer    *framer;
    bool          blocked;              /* the transport takes no more bytes at present */
    size_t        received;             /* received bytes that were not reported to the core yet */
} pd_pump;

/* Takes the transport, watches it for reading, and reports the connection to the core. Without memory the transport is
 * closed, and the connection is reported as lost. */
void pd_pump_open(pd_pump *pump, pd_transport *transport, uint64_t now_ns);
/* Reports the time to the core, then sends one batch of its bytes (about 1 MiB). Returns whether there may be more to
 * send at once. False: there is no output, the transport is full (PD_ON_WRITE is watched), or the connection is lost
 * (pump->transport is NULL). */
bool pd_pump_send(pd_pump *pump, uint64_t now_ns);
/* Handles events of the transport: receives at most about 512 KiB (PD_ON_READ, PD_ON_GONE), allows sending again
 * (PD_ON_WRITE). True: it stopped before the transport was empty. A transport that only reports changes must be asked
 * again. */
bool pd_pump_ready(pd_pump *pump, unsigned events, uint64_t now_ns);
/* Closes the transport, if there is one, and reports it to the core. */
void pd_pump_lose(pd_pump *pump, uint64_t now_ns, const char *reason);

#endif
