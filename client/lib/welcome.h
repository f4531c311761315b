/* welcome.h - handles the answers to Hello and Declare. They make the
 * connection usable, or end the client handle. */
#ifndef PD_WELCOME_H
#define PD_WELCOME_H

#include "core_state.h"

/* Take the server's answer to Hello: a welcome, or an error with which the server refuses it. */
int pd_welcome_taken(pd_core *core, const pd_prefix *prefix, const uint8_t *header);
int pd_welcome_refused(pd_core *core, const pd_error *error);
/* Take the server's answer to a Declare frame that has `count` parameters from index `first` on. */
int pd_declare_taken(pd_core *core, size_t first, size_t count, const pd_prefix *prefix, const uint8_t *header);
int pd_declare_refused(pd_core *core, const pd_error *error);

#endif
