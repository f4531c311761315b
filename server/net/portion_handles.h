/* portion_handles.h - the portions of a job on several shards, as a connection sees them: their handles, and what the
 * answer to Declare says of them. Loop thread. */
#ifndef PD_PORTION_HANDLES_H
#define PD_PORTION_HANDLES_H

#include "conn.h"
#include "paramd.pb-c.h"

/* What the answer to a Declare says of the parameters that the connection has declared. */
typedef struct pd_declared_list {
    Paramd__Declared *of, **list;              /* one entry for each parameter; `list` points to them */
    const char **notes;                        /* the optimizer's note about each; NULL: none */
    Paramd__Portion *portions, **portion_list; /* of all cut parameters */
} pd_declared_list;

/* Makes the list for a connection that has declared n parameters. Borrows the effect. PD_NO_MEMORY: it is empty. */
int pd_declared_list_make(pd_declared_list *declared, size_t n, const pd_effect *effect);
void pd_declared_list_free(pd_declared_list *declared);

/* Gives the declared parameters their indices in the job. In a job on several shards, also gives the portions of cut
 * parameters handles, which follow those of the parameters, and marks the handles of which nothing is here.
 * PD_NO_MEMORY. */
int pd_handles_settle(pd_handles *handles, const pd_effect *effect);
/* Returns whether the handle is of a parameter or portion that lies on this server. */
static inline bool pd_handle_is_here(const pd_handle_facts *facts)
{
    return facts->end >= 0;
}
/* Checks that a handle is of a parameter or portion that lies on this server, or is none at all, which others find.
 * `what` and `i` name the entry of the request that has it: "piece", 3. PD_INVALID_ARGUMENT. */
int pd_handle_check(const pd_conn *conn, uint32_t handle, const char *what, size_t i, pd_error *err);

#endif
