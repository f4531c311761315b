/* replace.h - sends weights that the program has changed by hand between two steps (pd_client_replace), and keeps the
 * program's number of the change, which the pushes of the next step must repeat. */
#ifndef PD_REPLACE_H
#define PD_REPLACE_H

#include "core.h"

/* Sends weights that replace those of the server. The ticket is done when the server has them in force. */
int pd_core_replace(pd_core *core, const pd_item *items, size_t n, uint64_t number, pd_ticket_id *ticket,
                    pd_error *err);
/* Tells a shard, all of whose weights stay, the number of a change on other shards. The ticket is done when the shard
 * knows it; without parameters the shard need not, and *ticket is not set. */
int pd_core_replace_none(pd_core *core, uint64_t number, pd_ticket_id *ticket, pd_error *err);
/* On a new connection, sends all weights of a pd_client_replace that is under way again, since the server has forgotten
 * those of the earlier connection. They stay the weights of the step for which the program made them: the server
 * refuses them if it has closed another one meanwhile. PD_NO_MEMORY: the caller drops the connection. */
int pd_replace_again(pd_core *core);

/* Notes in the parameters that the weights of pd_core_replace are in force. */
void pd_replace_done(pd_core *core, pd_op *op);
/* Returns the number of the change for the next push of a parameter: `given` (by the program), or if that is 0, the
 * number of the weights that this process last sent or received. */
uint64_t pd_replace_number(const pd_param_record *record, uint64_t given);
/* Takes over the number of the change that the server reported for a parameter whose weights this process receives
 * next. */
void pd_replace_begin(pd_param_record *record);
/* Returns whether the server has gone back to a state without the weights that this process has sent by
 * pd_core_replace. Only the program can send them again. */
bool pd_replace_is_lost(const pd_core *core, const pd_param_record *record);

#endif
