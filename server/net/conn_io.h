/* conn_io.h - the bytes of a connection: reads frames, writes answers, and checks deadlines. Loop thread. */
#ifndef PD_CONN_IO_H
#define PD_CONN_IO_H

#include "conn.h"

/* Gives the connection its transport, which it owns from then on. */
void pd_conn_attach(pd_conn *conn, pd_transport *transport);
/* Offers the frame that was held back to the framer's user again. Not inside a framer callback. */
void pd_conn_resume(pd_conn *conn);
/* Writes as much as the transport takes now. */
void pd_conn_write(pd_conn *conn);
/* Checks the deadlines of the connection, and sends heartbeats where they are due. */
void pd_conn_tick(pd_conn *conn, uint64_t now_ms);

#endif
