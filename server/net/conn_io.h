/* conn_io.h - the bytes of a connection: reads frames, writes answers, and checks deadlines. Loop thread. */
#ifndef PD_CONN_IO_H
#define PD_CONN_IO_H

#include "conn.h"

/* Gives a new connection its transport, which the connection then owns. */
void pd_conn_attach(pd_conn *conn, pd_transport *transport);
/* Processes the frame that the connection holds back (because it waits for memory or for answers), if that is possible
 * now. Must not be called inside a callback of the framer, the parser of frames. */
void pd_conn_resume(pd_conn *conn);
/* Writes as many queued bytes of a connection as the transport takes now, at most the connection's part of this turn of
 * the loop. */
void pd_conn_write(pd_conn *conn);
/* Sends a warning about its job to a worker that reads such, in a heartbeat that it did not ask for. Does nothing for
 * any other connection, or before the worker has joined its job. */
void pd_conn_remark(pd_conn *conn, const pd_remark *remark);
/* Ends the connection if a timeout has passed, and sends a heartbeat if one is due. Called several times a second. */
void pd_conn_tick(pd_conn *conn, uint64_t now_ms);

#endif
