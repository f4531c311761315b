/* import_request.h - Import: an operator loads optimizer state into a job. Loop thread. */
#ifndef PD_IMPORT_REQUEST_H
#define PD_IMPORT_REQUEST_H

#include "conn.h"

int pd_prepare_import(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void pd_finish_import(pd_conn *conn);

#endif
