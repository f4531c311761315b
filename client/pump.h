/* pump.h - carries bytes between a core and a transport. It has no sockets, threads or clock: the time is an
 * argument.
 *
 *     pd_pump pump = { .core = core, .enter = lock, .leave = unlock, .arg = io };
 *     pd_pump_open(&pump, transport, now);             when the core asks for a connection (PD_LINK_CONNECT)
 *     while (pd_pump_send(&pump, now)) continue;       after every call of the core, every event, and at pd_core_next
 *     pd_pump_ready(&pump, PD_ON_READ, now);           on an event of the transport that the pump watches
 *     pd_pump_lose(&pump, now, "dropped");             on PD_LINK_DROP, or if no connection can be made
 *
 * The pump calls `enter` before each call of the core and `leave` after it. It calls the transport while the core is
 * not entered. Between pd_core_output and pd_core_sent another thread may enter the core. Only one thread at a time
 * may call the pump. */
#ifndef PD_PUMP_H
#define PD_PUMP_H

#include "core.h"
#include "transport.h"

typedef struct pd_pump {
    /* Fields that the owner sets before pd_pump_open. */
    pd_core *core; /* borrowed */
    void (*enter)(void *arg), (*leave)(void *arg);
    void *arg;
    /* Fields that the pump sets; zero at first. The owner may read them. */
    pd_transport *transport; /* transport of the present connection; NULL: not connected */
    pd_framer *framer;
    bool blocked;    /* the transport takes no more bytes at present */
    size_t received; /* bytes received since the last report to the core */
} pd_pump;

/* Takes ownership of the transport, watches it for reading, and tells the core that it is connected. If memory is
 * missing, the transport is closed and the connection is reported as lost. */
void pd_pump_open(pd_pump *pump, pd_transport *transport, uint64_t now_ns);
/* Tells the core the time, then sends one batch of its bytes (about 1 MiB). Returns true if another batch may be
 * sent at once. Returns false if there is nothing to send, if the transport is full (PD_ON_WRITE is watched), or if
 * the connection is lost (pump->transport is NULL). */
bool pd_pump_send(pd_pump *pump, uint64_t now_ns);
/* Handles events of the transport: receives at most about 512 KiB (PD_ON_READ, PD_ON_GONE), allows sending again
 * (PD_ON_WRITE). Returns true if it stopped before the transport was empty. Then call it again without waiting for
 * an event if the transport is edge-triggered: such a transport reports only new bytes. */
bool pd_pump_ready(pd_pump *pump, unsigned events, uint64_t now_ns);
/* Closes the transport, if there is one, and tells the core that the connection is lost. */
void pd_pump_lose(pd_pump *pump, uint64_t now_ns, const char *reason);

#endif
