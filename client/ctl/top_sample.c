/* top_sample.c - measures what a daemon and its jobs did between two answers to Status requests, and describes it. */
#include "top_sample.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "text.h"

const char *const pd_top_orders[PD_TOP_ORDERS] = {
    [PD_TOP_NAME] = "name", [PD_TOP_SPEED] = "speed", [PD_TOP_MEMORY] = "memory", [PD_TOP_TRAFFIC] = "traffic"
};

/* Returns a rate in bytes per second from two readings of a job's byte counter. If the counter is lower than
 * before, it belongs to a new job of the same name, and the rate is 0. */
static double rate(uint64_t now, uint64_t before, double seconds)
{
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

/* Computes the mean time of a step in each phase since the earlier reading `before`. If no step was closed since then,
 * job->phase stays as it is. */
static void fill_phases(pd_top_job *job, const pd_top_times *before)
{
    if (job->total.steps <= before->steps) return;
    for (int i = 0; i < PD_TOP_PHASES; i++) {
        double spent = job->total.seconds[i] - before->seconds[i];
        job->phase[i] = spent > 0 ? spent / (double)(job->total.steps - before->steps) : 0;
    }
}

static void fill_job(pd_top_job *to, const Paramd__JobInfo *from)
{
    uint64_t over = from->roots_adopted + from->roots_failed + from->roots_unused;

    *to = (pd_top_job){ .connected = from->connected,
                        .world_size = from->world_size,
                        .step = from->step_least,
                        .waits_ms = from->waits_ms,
                        .memory = from->committed_bytes,
                        .roots_behind = from->roots_due > over ? from->roots_due - over : 0,
                        .roots_failing = from->roots_failing,
                        .bytes_in = from->bytes_in,
                        .bytes_out = from->bytes_out,
                        .has_loss = from->loss_step > 0,
                        .has_roots = from->roots_due > 0,
                        .speed = from->steps_per_second,
                        .loss = from->loss,
                        .durable_step = from->durable_step,
                        .checkpoint_age_ms = from->checkpoint_age_ms,
                        .checkpoint_bytes = from->checkpoint_bytes,
                        .norm = from->gradient_norm,
                        .clipped = from->clipped_steps,
                        .roots_due = from->roots_due,
                        .roots_failed = from->roots_failed,
                        .root_age = from->root_age,
                        .root_waits = from->root_waits,
                        .weights = from->weight_bytes,
                        .state_bytes = from->state_bytes,
                        .held = from->held_bytes,
                        .total = { from->timed_steps,
                                   { from->waiting_seconds, from->summing_seconds, from->stepping_seconds,
                                     from->publishing_seconds } } };
    fill_phases(to, &(pd_top_times){ 0 });
    snprintf(to->name, sizeof to->name, "%s", from->name);
    snprintf(to->optimizer, sizeof to->optimizer, "%s", from->optimizer);
    snprintf(to->state, sizeof to->state, "%s", from->state);
    snprintf(to->waits_for, sizeof to->waits_for, "%s", from->waits_for);
    snprintf(to->checkpoint_error, sizeof to->checkpoint_error, "%s", from->checkpoint_error);
    to->checkpoint_failing = pd_durable_text(to->durable, from);
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    pd_top_sample *out = arg;
    pd_top_job *more = realloc(out->jobs, (out->n + page->n_jobs + 1) * sizeof *more);

    if (more == NULL) return; /* out of memory: the jobs of this page are missing in the sample */
    out->jobs = more;
    for (size_t i = 0; i < page->n_jobs; i++) fill_job(&out->jobs[out->n++], page->jobs[i]);
}

static void add_rates(pd_top_sample *out, const pd_top_sample *before)
{
    double seconds = out->at_s - before->at_s;

    out->in_per_s = rate(out->bytes_in, before->bytes_in, seconds);
    out->out_per_s = rate(out->bytes_out, before->bytes_out, seconds);
    for (size_t i = 0; i < out->n; i++)
        for (size_t k = 0; k < before->n; k++) {
            if (strcmp(out->jobs[i].name, before->jobs[k].name) != 0) continue;
            out->jobs[i].in_per_s = rate(out->jobs[i].bytes_in, before->jobs[k].bytes_in, seconds);
            out->jobs[i].out_per_s = rate(out->jobs[i].bytes_out, before->jobs[k].bytes_out, seconds);
            fill_phases(&out->jobs[i], &before->jobs[k].total);
            break;
        }
}

static void add_daemon(pd_top_sample *out, const Paramd__StatusReply *status)
{
    if (out->n_daemons++ == 0) {
        snprintf(out->server, sizeof out->server, "%s", status->server);
        out->uptime_ms = status->uptime_ms;
    }
    if (status->uptime_ms < out->uptime_ms) out->uptime_ms = status->uptime_ms;
    out->draining = out->draining || status->draining;
    out->connections += status->connections;
    out->resident_bytes += status->resident_bytes;
    out->ingest_used += status->ingest_used;
    out->ingest_bytes += status->ingest_bytes;
    out->bytes_in += status->bytes_in;
    out->bytes_out += status->bytes_out;
}

static int add_daemons(pd_top_sample *out, pd_cluster *cluster, pd_error *err)
{
    void **replies = calloc(cluster->n, sizeof *replies);
    int rc;

    if (replies == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = pd_cluster_ask(cluster, PD_STATUS, NULL, replies, err);
    out->at_s = pd_now_s();
    for (size_t i = 0; rc == PD_OK && i < cluster->n; i++)
        if (replies[i] != NULL) add_daemon(out, replies[i]);
    free(replies);
    return rc;
}

int pd_top_take(pd_top_sample *out, pd_cluster *cluster, const pd_top_sample *before, pd_error *err)
{
    static const double reopen_s = 0.5;
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    int rc;

    *out = (pd_top_sample){ .n_shards = cluster->n };
    pd_cluster_reopen(cluster, reopen_s);
    if ((rc = add_daemons(out, cluster, err)) != PD_OK) return rc;
    request.what = PARAMD__LIST_KIND__LIST_JOBS;
    rc = pd_cluster_list(cluster, &request, add_page, out, err);
    if (rc == PD_OK && before != NULL) add_rates(out, before);
    return rc;
}

/* Inserts a rank into the list of those that were last most often. */
static void rank_late(pd_top_late late[PD_TOP_LATE], size_t *n, const Paramd__WorkerInfo *worker)
{
    double share = worker->timed_steps > 0 ? (double)worker->times_last / (double)worker->timed_steps : 0;
    size_t at = *n;

    if (share == 0) return;
    while (at > 0 && late[at - 1].share < share) at--;
    if (at == PD_TOP_LATE) return;
    if (*n < PD_TOP_LATE) ++*n;
    memmove(late + at + 1, late + at, (*n - at - 1) * sizeof *late);
    late[at] = (pd_top_late){ worker->rank, share, worker->late_seconds / (double)worker->times_last };
}

typedef struct late_list {
    pd_top_late *at;
    size_t n;
} late_list;

static void add_late_page(void *arg, const Paramd__ListReply *page)
{
    late_list *list = arg;

    for (size_t i = 0; i < page->n_workers; i++) rank_late(list->at, &list->n, page->workers[i]);
}

size_t pd_top_take_late(pd_top_late out[PD_TOP_LATE], pd_cluster *cluster, const char *job)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    late_list list = { out, 0 };
    pd_error ignored;

    request.what = PARAMD__LIST_KIND__LIST_WORKERS;
    request.job = (char *)job;
    return pd_cluster_list(cluster, &request, add_late_page, &list, &ignored) == PD_OK ? list.n : 0;
}

void pd_top_free(pd_top_sample *sample)
{
    free(sample->jobs);
    *sample = (pd_top_sample){ 0 };
}

static double weight_of(const pd_top_job *job, pd_top_order order)
{
    switch (order) {
    case PD_TOP_SPEED: return job->speed;
    case PD_TOP_MEMORY: return (double)job->memory;
    case PD_TOP_TRAFFIC: return job->in_per_s + job->out_per_s;
    default: return 0;
    }
}

static int compare(const void *left, const void *right, void *order)
{
    const pd_top_job *a = left, *b = right;
    double x = weight_of(a, *(const pd_top_order *)order), y = weight_of(b, *(const pd_top_order *)order);

    return x != y ? (x < y) - (x > y) : strcmp(a->name, b->name);
}

void pd_top_sort(pd_top_sample *sample, pd_top_order order)
{
    if (sample->n > 0) qsort_r(sample->jobs, sample->n, sizeof *sample->jobs, compare, &order);
}

/* Adds a cell that says which ranks a job waits for and for how long, such as "2,3 for 4 s". */
static void waits_cell(pd_table *table, const pd_top_job *job)
{
    if (job->waits_for[0] == '\0')
        pd_table_cell(table, "-");
    else if (job->waits_ms < 1000)
        pd_table_cell(table, "%s", job->waits_for);
    else
        pd_table_cell(table, "%s for %" PRIu64 " s", job->waits_for, job->waits_ms / 1000);
}

static void roots_cell(pd_table *table, const pd_top_job *job)
{
    if (!job->has_roots) {
        pd_table_cell(table, "-");
        return;
    }
    pd_table_cell(table, "%" PRIu64 "/%" PRIu64, job->roots_behind, job->roots_failing);
    if (job->roots_failing > 0) pd_table_alarm(table);
}

static void row(pd_table *table, const pd_top_job *job)
{
    char text[PD_CELL];

    pd_table_cell(table, "%s", job->name);
    pd_table_cell(table, "%u/%u", job->connected, job->world_size);
    pd_table_cell(table, "%" PRIu64, job->step);
    pd_table_cell(table, "%s", pd_speed_text(text, job->speed));
    if (job->has_loss)
        pd_table_cell(table, "%.4g", job->loss);
    else
        pd_table_cell(table, "-");
    roots_cell(table, job);
    pd_table_cell(table, "%s", pd_bytes_text(text, job->memory));
    pd_table_cell(table, "%s", pd_bytes_text(text, (uint64_t)job->in_per_s));
    pd_table_cell(table, "%s", pd_bytes_text(text, (uint64_t)job->out_per_s));
    pd_table_cell(table, "%s", job->durable);
    if (job->checkpoint_failing) pd_table_alarm(table);
    waits_cell(table, job);
}

pd_table *pd_top_table(const pd_top_sample *sample, int limit)
{
    pd_table *table = pd_table_new("~JOB|>WORKERS|>STEP|>STEPS/S|>LOSS|>ROOTS|>MEMORY|>IN/S|>OUT/S|DURABLE|~WAITS FOR");

    pd_table_limit(table, limit);
    for (size_t i = 0; table != NULL && i < sample->n; i++) row(table, &sample->jobs[i]);
    return table;
}

void pd_top_headline(const pd_top_sample *sample, char *text, size_t size)
{
    char up[PD_CELL], resident[PD_CELL], in[PD_CELL], out[PD_CELL], daemons[64] = "";

    if (sample->n_shards > 1)
        snprintf(daemons, sizeof daemons, "%zu of %zu daemons, ", sample->n_daemons, sample->n_shards);
    snprintf(text, size, "%s%s%s, up %s, %zu job%s, %u connection%s, %s resident, %s/s in, %s/s out", daemons,
             sample->server, sample->draining ? " (draining)" : "", pd_duration_text(up, sample->uptime_ms), sample->n,
             sample->n == 1 ? "" : "s", sample->connections, sample->connections == 1 ? "" : "s",
             pd_bytes_text(resident, sample->resident_bytes), pd_bytes_text(in, (uint64_t)sample->in_per_s),
             pd_bytes_text(out, (uint64_t)sample->out_per_s));
}

static __attribute__((format(printf, 3, 4))) void add(pd_top_detail *out, bool alarm, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(out->line[out->n], PD_TOP_LINE, format, args);
    va_end(args);
    pd_text_mend(out->line[out->n]);
    out->alarm[out->n++] = alarm;
}

static void add_head(pd_top_detail *out, const pd_top_job *job)
{
    add(out, false, "job %.60s: %.40s, %s, %u of %u workers, step %" PRIu64, job->name,
        job->optimizer[0] != '\0' ? job->optimizer : "no optimizer yet", job->state, job->connected, job->world_size,
        job->step);
}

static void add_progress(pd_top_detail *out, const pd_top_job *job)
{
    char loss[PD_CELL] = "none", norm[PD_CELL] = "unknown", speed[PD_CELL];

    if (job->has_loss) snprintf(loss, sizeof loss, "%.5g", job->loss);
    if (job->norm > 0) snprintf(norm, sizeof norm, "%.4g", job->norm);
    add(out, job->has_loss && !isfinite(job->loss),
        "progress    %s steps/s, loss %s, gradient norm %s, %" PRIu64 " steps clipped",
        pd_speed_text(speed, job->speed), loss, norm, job->clipped);
}

static void add_times(pd_top_detail *out, const pd_top_job *job)
{
    static const char *const names[PD_TOP_PHASES] = { "wait", "sum", "step", "publish" };
    char line[PD_TOP_LINE], text[PD_CELL];
    size_t used = 0;

    if (job->total.steps == 0) return;
    line[0] = '\0';
    for (int i = 0; i < PD_TOP_PHASES; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s %s", i > 0 ? ", " : "", names[i],
                                 pd_seconds_text(text, job->phase[i]));
    add(out, false, "a step      %s", line);
}

static void add_waits(pd_top_detail *out, const pd_top_job *job)
{
    char since[PD_CELL];

    if (job->waits_for[0] == '\0')
        add(out, false, "waits for   nobody");
    else if (job->waits_ms == 0)
        add(out, false, "waits for   %.60s", job->waits_for);
    else
        add(out, false, "waits for   %.60s, %s after the first contribution", job->waits_for,
            pd_duration_text(since, job->waits_ms));
}

static void add_late(pd_top_detail *out, const pd_top_late *late, size_t n)
{
    char line[PD_TOP_LINE], text[PD_CELL];
    size_t used = 0;

    if (n == 0) return;
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%srank %u %.0f %% by %s", i > 0 ? ", " : "",
                                 late[i].rank, 100 * late[i].share, pd_seconds_text(text, late[i].by_s));
    add(out, false, "last        %s", line);
}

static void add_roots(pd_top_detail *out, const pd_top_job *job)
{
    if (!job->has_roots) return;
    add(out, job->roots_failing > 0,
        "roots       %" PRIu64 " at work, oldest %" PRIu64 " steps, %" PRIu64 " failing, %" PRIu64 " of %" PRIu64
        " failed, %" PRIu64 " waits",
        job->roots_behind, job->root_age, job->roots_failing, job->roots_failed, job->roots_due, job->root_waits);
}

static void add_memory(pd_top_detail *out, const pd_top_job *job)
{
    char all[PD_CELL], weights[PD_CELL], state[PD_CELL], held[PD_CELL];

    add(out, false, "memory      %s: weights %s, state %s, in flight %s", pd_bytes_text(all, job->memory),
        pd_bytes_text(weights, job->weights), pd_bytes_text(state, job->state_bytes), pd_bytes_text(held, job->held));
}

static void add_traffic(pd_top_detail *out, const pd_top_job *job)
{
    char in[PD_CELL], sent[PD_CELL];

    add(out, false, "traffic     %s/s in, %s/s out", pd_bytes_text(in, (uint64_t)job->in_per_s),
        pd_bytes_text(sent, (uint64_t)job->out_per_s));
}

static void add_checkpoint(pd_top_detail *out, const pd_top_job *job)
{
    char age[PD_CELL], bytes[PD_CELL];

    if (job->checkpoint_failing)
        add(out, true, "checkpoint  failing: %.160s", job->checkpoint_error);
    else if (job->durable_step == 0)
        add(out, false, "checkpoint  none");
    else
        add(out, false, "checkpoint  step %" PRIu64 ", %s ago, %s", job->durable_step,
            pd_duration_text(age, job->checkpoint_age_ms), pd_bytes_text(bytes, job->checkpoint_bytes));
}

void pd_top_describe(pd_top_detail *out, const pd_top_job *job, const pd_top_late *late, size_t n_late)
{
    out->n = 0;
    add_head(out, job);
    add_progress(out, job);
    add_times(out, job);
    add_waits(out, job);
    add_late(out, late, n_late);
    add_roots(out, job);
    add_memory(out, job);
    add_traffic(out, job);
    add_checkpoint(out, job);
}
