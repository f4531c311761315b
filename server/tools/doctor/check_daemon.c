/* check_daemon.c - asks a running daemon whether it is well. */
#include <stdlib.h>
#include <string.h>

#include "address.h"
#include "checks.h"
#include "connection.h"
#include "format.h"

#define BUSY_MS 20 /* a turn of the loop thread that takes longer delays every worker */

/* Compares a daemon's answer with this program, and with what a daemon that is well says. */
static void judge(const Paramd__StatusReply *status, pd_finding *out)
{
    char up[PD_CELL];

    pd_found(out, "%s, up %s, %u connections, BLAS core %s", status->server, pd_duration_text(up, status->uptime_ms),
             status->connections, status->blas_core);
    if (strstr(status->server, PD_VERSION) == NULL)
        pd_advise(out, PD_HEALTH_WARN, "paramctl is version %s: install both from one version.", PD_VERSION);
    if (status->draining) pd_advise(out, PD_HEALTH_WARN, "It drains: it finishes open steps and takes no new work.");
    if (status->n_loop_busy_ms == 4 && status->loop_busy_ms[1] > BUSY_MS)
        pd_advise(out, PD_HEALTH_WARN,
                  "Its loop thread is busy for %.0f ms at a time (99 %%): the machine has too few "
                  "processors for it, or other programs take them.",
                  status->loop_busy_ms[1]);
    if (status->ingest_bytes > 0 && status->ingest_used > status->ingest_bytes / 10 * 9)
        pd_advise(out, PD_HEALTH_WARN,
                  "Its memory for gradients in flight is nearly used: raise limits.ingest_bytes, "
                  "or see `paramctl params JOB' for a rank that is missing.");
}

bool pd_leads_here(const char *addresses)
{
    pd_address *at = NULL;
    bool here = true;
    size_t n = 0;

    if (pd_addresses_parse(&at, &n, addresses, PD_TO_CONNECT, NULL) != PD_OK) return false;
    for (size_t i = 0; i < n; i++)
        here = here && (at[i].local || at[i].host[0] == '\0' || strncmp(at[i].host, "127.", 4) == 0 ||
                        strcmp(at[i].host, "::1") == 0 || strcmp(at[i].host, "localhost") == 0);
    free(at);
    return here;
}

void pd_ask_settings(pd_machine *machine)
{
    const Paramd__StatusReply *status;
    pd_operator op = { 0 };
    void *reply = NULL;

    if (machine->server == NULL) return;
    machine->here = pd_leads_here(machine->server);
    if (pd_operator_open(&op, machine->server, machine->timeout, NULL) == PD_OK &&
        pd_client_call(op.client, PD_STATUS, NULL, op.arena, &reply, NULL) == PD_OK) {
        status = reply;
        if (status->settings[0] != '\0') machine->asked = strdup(status->settings);
    }
    pd_operator_close(&op);
}

void pd_check_daemon(const pd_machine *machine, pd_finding *out)
{
    pd_operator op = { 0 };
    pd_error err = { 0 };
    void *reply = NULL;
    int rc;

    if (machine->server == NULL) {
        pd_found(out, "not asked: --server or PARAMD_URL names none");
        return;
    }
    rc = pd_operator_open(&op, machine->server, machine->timeout, &err);
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_STATUS, NULL, op.arena, &reply, &err);
    if (rc == PD_OK)
        judge(reply, out);
    else {
        pd_found(out, "%.300s", err.text);
        pd_advise(out, PD_HEALTH_FAIL, "Start it, or correct the address; its log says more.");
    }
    pd_operator_close(&op);
}
