/* acceptor.h - a process that accepts connections and does nothing for them: what a flood costs a machine by itself.
 * Any error ends the program with a message. */
#ifndef PD_ACCEPTOR_H
#define PD_ACCEPTOR_H

#include <stddef.h>
#include <sys/types.h>

/* Starts the process, which listens on a free port of the loopback interface. Connections that have sent `whole` bytes
 * are kept until 512 others have come behind them, as paramd keeps handshakes, and then closed. Connections that have
 * sent less are kept. The process ends with its parent at the latest. Forks, so it must be called before any thread is
 * started. */
pid_t acceptor_start(int *port, size_t whole);
void acceptor_stop(pid_t pid);

#endif
