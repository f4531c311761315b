/* recreate.c - creates a lost job again, from the weights that the workers have. */
#include "recoveries.h"

#include "core.h"
#include "join.h"
#include "leased.h"
#include "window.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool pd_core_has_begun(const pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++)
        if (core->params[i].initialised || core->params[i].given || core->params[i].landed) return true;
    return false;
}

bool pd_core_recreates(const pd_core *core)
{
    return core->recovery.recreating || (core->recovery.recreated && !pd_core_has_begun(core));
}

void pd_core_lose_job(pd_core *core)
{
    pd_error error;

    if (core->end.error.code != PD_OK) return;
    pd_fail(&error, PD_DATA_LOSS,
            "the server no longer has job %.160s: it was restarted, or the job ended while this "
            "worker was away. Its weights and optimizer state are gone there; " PD_RESTART_CALL " continues from the "
            "weights of the workers (this one: after step %" PRIu64 ")",
            core->setup.job, pd_core_lowest_step(core));
    pd_core_end(core, &error);
    core->end.lost = true;
}

/* Sets the option `name` with which the job is created to `value`; adds it if the user gave no such option. */
static int set_option(pd_core *core, const char *name, uint64_t value)
{
    size_t n = 0, length = strlen(name);
    char text[64], *copy, **more;

    snprintf(text, sizeof text, "%s=%" PRIu64, name, value);
    while (core->setup.options[n] != NULL &&
           (strncmp(core->setup.options[n], name, length) != 0 || core->setup.options[n][length] != '='))
        n++;
    if ((copy = strdup(text)) == NULL) return PD_NO_MEMORY;
    if (core->setup.options[n] == NULL) {
        if ((more = realloc(core->setup.options, (n + 2) * sizeof *more)) == NULL) {
            free(copy);
            return PD_NO_MEMORY;
        }
        core->setup.options = more;
        more[n + 1] = NULL;
    } else {
        free(core->setup.options[n]);
    }
    core->setup.options[n] = copy;
    return PD_OK;
}

/* Forgets how far this process got in the lost job. It learns the present step numbers from the new server's answer to
 * Declare. */
static void forget_progress(pd_core *core)
{
    for (size_t i = 0; i < core->n_params; i++) {
        pd_param_record *record = &core->params[i];

        pd_core_forget_versions(record);
        record->pushed = record->answered = record->refused = record->server_step = record->replaces = 0;
        record->initialised = record->given = record->landed = false;
    }
    core->progress.barriers = core->progress.passed = core->progress.ended = 0;
    for (uint32_t f = 0; f < core->n_fragments; f++) core->progress.pushing[f] = 0;
    core->must_init = core->recovery.resending = core->recovery.went_back = false;
    pd_leased_forget(&core->shares);
    pd_window_clear(core);
}

/* Reopens a client handle that had ended because its job was lost. The handle gets a new nonce. So the server takes it
 * for a new process, and counts its barriers from 1. */
static void begin_again(pd_core *core)
{
    core->setup.nonce = core->setup.nonce * 0xd1342543de82ef95u + 1;
    core->end.error = (pd_error){ .code = PD_OK };
    core->end.lost = false;
    core->recovery.recreating = core->recovery.recreated = core->declared = true;
    core->link.alone_ns = 0;
    core->link.retry_ns = 0;
}

int pd_core_recreate(pd_core *core, uint64_t least, pd_ticket_id *ticket, pd_error *err)
{
    uint64_t lowest = pd_core_lowest_step(core), step = lowest > least ? lowest : least;
    pd_op *op;

    if (!core->end.lost)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "job %.160s is not lost: only a job that the server has lost "
                       "is started anew",
                       core->setup.job);
    if ((op = pd_op_new(core, PD_DECLARE)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (core->setup.rank == 0 && set_option(core, "start_step", step) != PD_OK) {
        pd_op_free(core, op);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    core->declare_ticket = *ticket = op->id;
    forget_progress(core);
    begin_again(core);
    return PD_OK;
}
