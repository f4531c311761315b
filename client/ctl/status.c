/* status.c - the command status: prints a daemon's memory, traffic and jobs. */
#include "status.h"

#include "connection.h"
#include "format.h"
#include "lists.h"
#include "reflect.h"
#include "result.h"

/* Prints who is connected, which only an admin of the server is told. */
static void print_identities(const Paramd__StatusReply *s)
{
    for (size_t i = 0; i < s->n_identities; i++)
        pd_print_line(stdout, "%s  %s, connections %u, requests under way %u", i == 0 ? "identities " : "           ",
                      s->identities[i]->identity, s->identities[i]->connections, s->identities[i]->requests);
    if (s->identities_left_off > 0) printf("             and %llu more\n", (unsigned long long)s->identities_left_off);
}

static void print_daemon(const Paramd__StatusReply *s)
{
    char a[PD_CELL], b[PD_CELL];

    pd_print_line(stdout, "server       %s, protocol %u, CPU %s, BLAS core %s%s", s->server, s->protocol, s->cpu,
                  s->blas_core, s->draining ? ", draining" : "");
    printf("up           %s\n", pd_duration_text(a, s->uptime_ms));
    printf("connections  %u\n", s->connections);
    printf("memory       %s resident, %s at most\n", pd_bytes_text(a, s->resident_bytes),
           pd_bytes_text(b, s->peak_resident_bytes));
    printf("ingest       %s of %s\n", pd_bytes_text(a, s->ingest_used), pd_bytes_text(b, s->ingest_bytes));
    printf("traffic      %s in, %s out\n", pd_bytes_text(a, s->bytes_in), pd_bytes_text(b, s->bytes_out));
    printf("frames       %s in, %s refused\n", pd_count_text(a, s->frames_in), pd_count_text(b, s->frames_refused));
    if (s->n_loop_busy_ms == 4) {
        printf("loop         busy %.2f ms median, %.2f 99 %%, %.2f 99.9 %%, %.2f at most\n", s->loop_busy_ms[0],
               s->loop_busy_ms[1], s->loop_busy_ms[2], s->loop_busy_ms[3]);
    }
    print_identities(s);
    printf("\n");
}

static int print_status(const pd_line *line, const Paramd__StatusReply *status)
{
    pd_list_output jobs = pd_list_begin(pd_list_named("jobs"), line);

    print_daemon(status);
    for (size_t i = 0; i < status->n_jobs; i++) pd_list_add(&jobs, &status->jobs[i]->base);
    return pd_list_end(&jobs, PD_OK, NULL);
}

int pd_run_status(pd_line *line)
{
    pd_operator op;
    pd_error err = { 0 };
    void *reply = NULL;
    int status;

    if (pd_operator_ask(line, &op, PD_STATUS, NULL, &reply, &err) != PD_OK)
        status = pd_result_fail(line->json, &err);
    else
        status = line->json ? pd_result_json(pd_message_json(reply)) : print_status(line, reply);
    pd_operator_close(&op);
    return status;
}
