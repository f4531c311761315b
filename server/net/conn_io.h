/* conn_io.h - the bytes of a connection: reads frames, writes answers, and checks deadlines. Loop thread. */
#ifndef PD_CONN_IO_H
#define PD_CONN_IO_H

#include "conn.h"

/* Gives the connection its transport, which the connection then owns. */
void pd_conn_attach(pd_conn *conn, pd_transport *transport);
/* Tries again to process the frame that the connection holds back. Must not be called inside a callback of the
 * framer. */
void pd_conn_resume(pd_conn *conn);
/* Writes as many queued bytes as the transport takes now, at most the connection's part of this turn. */
void pd_conn_write(pd_conn *conn);
/* Checks the timeouts of the connection, and sends heartbeats that are due. */
void pd_conn_tick(pd_conn *conn, uint64_t now_ms);

#endif
