/* pump.h - carries bytes between the core and a transport.
 *
 * The pump has no sockets, threads or clock: the time is an argument. Its owner calls it like this:
 *
 *     pd_pump pump = { .core = core, .enter = lock, .leave = unlock, .arg = io };
 *     pd_pump_open(&pump, transport, now);             when the core asks for a connection (PD_LINK_CONNECT)
 *     while (pd_pump_send(&pump, now)) continue;       after every call of the core, every event, and at pd_core_next
 *     pd_pump_ready(&pump, PD_ON_READ, now);           on an event of the transport that the pump watches
 *     pd_pump_lose(&pump, now, "dropped");             on PD_LINK_DROP, or if no connection can be made
 *
 * The pump locks the core with `enter` before it calls the core, and unlocks it with `leave` afterwards. While the pump
 * calls the transport, the core is not locked. So other threads may use the core while bytes are being sent. Only one
 * thread at a time may call the pump. */
#ifndef PD_PUMP_H
#define PD_PUMP_H

#include "core.h"
#include "transport.h"

typedef struct pd_pump {
    /* Fields that the owner of the pump sets before it calls pd_pump_open. enter and leave lock and unlock the core. */
    pd_core *core; /* borrowed */
    void (*enter)(void *arg), (*leave)(void *arg);
    void *arg;
    /* Fields that the pump sets. They are zero at first. The owner of the pump may read them. */
    pd_transport *transport; /* the present connection; NULL: not connected */
    pd_framer *framer;
    bool blocked;     /* the transport takes no more bytes at present */
    size_t received;  /* number of received bytes that are not reported to the core yet */
    uint64_t read_ns; /* when bytes were last received */
} pd_pump;

/* Begins to work on a new connection: takes ownership of the transport, watches it for reading, and tells the core that
 * it is connected. If out of memory, closes the transport and reports the connection as lost. */
void pd_pump_open(pd_pump *pump, pd_transport *transport, uint64_t now_ns);
/* Tells the core the time, then sends one batch of its bytes (about 1 MiB). Returns true if the caller may send another
 * batch at once. Returns false if there is nothing to send, if the transport is full (an event PD_ON_WRITE will
 * follow), or if the connection is lost (pump->transport is NULL). */
bool pd_pump_send(pd_pump *pump, uint64_t now_ns);
/* Handles events of the transport: receives at most about 512 KiB (PD_ON_READ, PD_ON_GONE), allows sending again
 * (PD_ON_WRITE). Returns true if it stopped before the transport was empty. If the transport is edge-triggered, the
 * caller must then call it again without waiting for an event. */
bool pd_pump_ready(pd_pump *pump, unsigned events, uint64_t now_ns);
/* Returns when pd_pump_send must be called at the latest, although nothing happens: while the bytes of a payload gather
 * in the transport. UINT64_MAX: never. */
uint64_t pd_pump_next(const pd_pump *pump);
/* Closes the transport, if there is one, and tells the core that the connection is lost. */
void pd_pump_lose(pd_pump *pump, uint64_t now_ns, const char *reason);

#endif
