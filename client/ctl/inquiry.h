/* inquiry.h - one request to a daemon, and its answer. */
#ifndef PD_INQUIRY_H
#define PD_INQUIRY_H

#include "command_line.h"
#include "connection.h"

/* Opens a connection as the line says, asks one thing and leaves the answer in op's arena. The caller closes op, after an error too. */
int pd_inquire(const pd_line *line, pd_operator *op, unsigned method, const ProtobufCMessage *request, void **reply, pd_error *err);

#endif
