/* check_cluster.c - compares the daemons of a cluster: jobs that are spread over them give the bits of one daemon only
 * if all run the same program with the same kernels. */
#include "doctor.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>

#include "ask_all.h"

#define SKEW_S 1.0 /* seconds that clocks may differ: times of log lines and checkpoints are compared by people */

/* Reports that a fact of some daemon differs from that of the first one. */
static void differ(pd_finding *out, pd_health health, const char *what, const pd_shard_facts *first, const char *a,
                   const pd_shard_facts *other, const char *b, const char *advice)
{
    pd_found(out, "%s%s: %s on shard %u, %s on shard %u", out->found[0] != '\0' ? "; " : "", what, a, first->number, b,
             other->number);
    pd_advise(out, health, "%s", advice);
}

/* Compares one text of all daemons. Reports the first daemon that differs. */
static bool compare(pd_finding *out, pd_health health, const char *what, const pd_shard_facts *at, size_t n,
                    size_t offset, const char *advice)
{
    const char *first = (const char *)at + offset;

    for (size_t i = 1; i < n; i++) {
        const char *other = (const char *)&at[i] + offset;
        if (strcmp(first, other) == 0) continue;
        differ(out, health, what, &at[0], first, &at[i], other, advice);
        return false;
    }
    return true;
}

static void compare_clocks(pd_finding *out, const pd_shard_facts *at, size_t n)
{
    const pd_shard_facts *least = NULL, *most = NULL;

    for (size_t i = 0; i < n; i++) {
        if (isnan(at[i].clock_s)) continue;
        if (least == NULL || at[i].clock_s < least->clock_s) least = &at[i];
        if (most == NULL || at[i].clock_s > most->clock_s) most = &at[i];
    }
    if (least == NULL || most->clock_s - least->clock_s < SKEW_S) return;
    pd_found(out, "%sthe clock of shard %u is %.1f s ahead of that of shard %u", out->found[0] != '\0' ? "; " : "",
             most->number, most->clock_s - least->clock_s, least->number);
    pd_advise(out, PD_HEALTH_WARN, "Let the machines take their time from one source (chrony, systemd-timesyncd).");
}

void pd_compare_shards(const pd_shard_facts *at, size_t n, pd_finding *out)
{
    bool same = true;

    same &= compare(out, PD_HEALTH_WARN, "version", at, n, offsetof(pd_shard_facts, server),
                    "Install one version on all: another version may place parameters differently, and is then "
                    "refused.");
    same &= compare(out, PD_HEALTH_FAIL, "chunk_bytes", at, n, offsetof(pd_shard_facts, chunk),
                    "Set limits.chunk_bytes to one value on all.");
    same &= compare(out, PD_HEALTH_WARN, "BLAS core", at, n, offsetof(pd_shard_facts, blas_core),
                    "Results may differ in their last bits from those of one daemon: use machines of one kind, or set "
                    "threads.cpu and OPENBLAS_CORETYPE to one value on all.");
    same &= compare(out, PD_HEALTH_WARN, "CPU", at, n, offsetof(pd_shard_facts, cpu),
                    "Set threads.cpu to the older one on all, for the bits of one daemon.");
    if (same && n > 0)
        pd_found(out, "%zu daemons of %s, CPU %s, BLAS core %s, chunks of %s", n, at[0].server, at[0].cpu,
                 at[0].blas_core, at[0].chunk);
    compare_clocks(out, at, n);
}

static double wall_clock_s(void)
{
    struct timeval now;

    gettimeofday(&now, NULL);
    return (double)now.tv_sec + (double)now.tv_usec / 1e6;
}

/* Asks one shard for its facts; arg: those of all shards. Its clock is compared with this machine's in the middle of
 * the request. */
static int ask_facts(pd_shard *shard, void *arg, pd_error *err)
{
    pd_shard_facts *facts = (pd_shard_facts *)arg + shard->number;
    const pd_welcome *welcome = pd_client_welcome(shard->op.client);
    Paramd__StatusReply *status;
    double begun = wall_clock_s();
    int rc = pd_client_call(shard->op.client, PD_STATUS, NULL, shard->op.arena, (void **)&status, err);

    if (rc != PD_OK) return rc;
    *facts = (pd_shard_facts){ .number = shard->number };
    snprintf(facts->server, sizeof facts->server, "%s", status->server);
    snprintf(facts->cpu, sizeof facts->cpu, "%s", status->cpu);
    snprintf(facts->blas_core, sizeof facts->blas_core, "%s", status->blas_core);
    snprintf(facts->chunk, sizeof facts->chunk, "%llu KiB", (unsigned long long)welcome->chunk_elements / 256);
    facts->clock_s = status->time_ms == 0 ? NAN : (double)status->time_ms / 1e3 - (begun + wall_clock_s()) / 2;
    return PD_OK;
}

/* Moves the facts of the shards that have answered to the front of the list. Returns their number. */
static size_t keep_answers(pd_shard_facts *facts, const pd_cluster *cluster, pd_finding *out)
{
    size_t n = 0;

    for (size_t i = 0; i < cluster->n; i++) {
        const pd_shard *shard = &cluster->at[i];
        if (shard->rc == PD_OK) {
            facts[n++] = facts[i];
            continue;
        }
        pd_found(out, "%sshard %u (%s) does not answer: %.150s", out->found[0] != '\0' ? "; " : "", shard->number,
                 shard->url, shard->err.text);
        pd_advise(out, PD_HEALTH_FAIL, "Start it, or correct the list of addresses.");
    }
    return n;
}

void pd_check_owners(const Paramd__ShardsReply *table, pd_finding *out)
{
    for (size_t i = 0; i < table->n_shards; i++) {
        const Paramd__ShardInfo *shard = table->shards[i];
        if (shard->alive) continue;
        pd_found(out, "%sshard %u of cluster %.60s has no owner (the last one: %.150s)",
                 out->found[0] != '\0' ? "; " : "", shard->shard, table->cluster,
                 shard->url[0] != '\0' ? shard->url : "none");
        pd_advise(out, PD_HEALTH_WARN,
                  table->n_spares > 0 ? "A spare takes it in about 12 s, if it gets the shard's state."
                                      : "Start its daemon, or a spare (paramd --spare): nobody else takes it.");
    }
}

/* Looks at the table of shards of the first daemon that has one. */
static void check_table(const pd_cluster *cluster, pd_finding *out)
{
    for (size_t i = 0; i < cluster->n; i++) {
        const pd_operator *op = &cluster->at[i].op;
        Paramd__ShardsReply *table;
        if (cluster->at[i].rc != PD_OK || pd_client_shards_known(op->client) == 0) continue;
        if (pd_client_call(op->client, PD_SHARDS, NULL, op->arena, (void **)&table, NULL) != PD_OK) continue;
        pd_check_owners(table, out);
        return;
    }
}

/* Compares the daemons, which are connected. */
static int check_all(pd_cluster *cluster, pd_finding *out, pd_error *err)
{
    pd_shard_facts *facts = calloc(cluster->n, sizeof *facts);
    int rc =
        facts != NULL ? pd_cluster_each(cluster, ask_facts, facts, err) : pd_fail(err, PD_NO_MEMORY, "out of memory");

    if (rc == PD_OK) pd_compare_shards(facts, keep_answers(facts, cluster, out), out);
    if (rc == PD_OK) check_table(cluster, out);
    free(facts);
    return rc;
}

void pd_check_cluster(const pd_machine *machine, pd_finding *out)
{
    bool several = machine->line != NULL && machine->line->asked->n_shards > 1;
    pd_cluster cluster = { 0 };
    pd_error err = { 0 };
    int rc = PD_OK;

    if (several || (machine->server != NULL && machine->line != NULL))
        rc = pd_cluster_open(&cluster, machine->line, 0, &err);
    several = several || cluster.n > 1;
    if (!several)
        pd_found(out, "not asked: --server and PARAMD_URL name no list of daemons");
    else if (rc == PD_OK)
        rc = check_all(&cluster, out, &err);
    if (several && rc != PD_OK) {
        pd_found(out, "%.300s", err.text);
        pd_advise(out, PD_HEALTH_FAIL, "Start the daemons, or correct the list of addresses.");
    }
    pd_cluster_close(&cluster);
}
