/* core_remarks.h - warnings of the server about the job, which come in heartbeats: keeps them until the user gets
 * them. */
#ifndef PD_CORE_REMARKS_H
#define PD_CORE_REMARKS_H

#include "core_state.h"

/* Keeps the remarks of a heartbeat. A text that has come before, for instance on an earlier connection, is dropped, and
 * so is one for which there is no room or memory. */
void pd_core_note_remarks(pd_core *core, const pd_prefix *prefix, const uint8_t *header);
/* Returns the oldest remark that the user does not have yet; the caller frees it. NULL: there is none. */
char *pd_core_take_remark(pd_core *core);
void pd_core_remarks_free(pd_core_remarks *remarks);

#endif
