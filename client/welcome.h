/* welcome.h - the answers to Hello and Declare: a connection becomes usable, or the handle ends. */
#ifndef PD_WELCOME_H
#define PD_WELCOME_H

#include "core_state.h"

/* Take the answer to Hello. The error of the second is the server's. */
int pd_welcome_taken(pd_core *core, const pd_prefix *prefix, const uint8_t *header);
int pd_welcome_refused(pd_core *core, const pd_error *error);
/* Take the answer to a Declare of `count` parameters from `first` on. */
int pd_declare_taken(pd_core *core, size_t first, size_t count, const pd_prefix *prefix, const uint8_t *header);
int pd_declare_refused(pd_core *core, const pd_error *error);

#endif
