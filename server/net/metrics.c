/* metrics.c - writes the figures of the daemon and its jobs in the format of Prometheus: the table of metrics, and the
 * samples of each row. */
#include "document.h"

#include "cpu.h"
#include "info.h"
#include "mutant.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum type { GAUGE, COUNTER, HISTOGRAM } type;

/* Type of the struct member that has the value of a row. */
typedef enum number_kind { NO_NUMBER, COUNT32, COUNT64, REAL, FLAG, TIMES } number_kind;

struct row;

/* What the function `write` of a row reads, and the document to which it writes. */
typedef struct scene {
    pd_document *out;
    const pd_daemon *daemon;
    const pd_server_figures *server;
    const pd_figure *figure; /* figures of the job; NULL: the metric is the daemon's */
    const struct row *row;
    uint64_t now_ns;
    bool open; /* the format is OpenMetrics */
} scene;

/* A metric: a row of the table. */
typedef struct row {
    const char *name; /* without "_total" */
    type type;
    bool of_job;
    const char *help;
    void (*write)(const scene *s); /* writes the samples; NULL: there is one sample, whose value is the number at
                                    * `at` */
    number_kind kind;
    size_t at; /* offset of the number in pd_job_stats (of_job), or in pd_server_figures */
    double scale;
} row;

/* Begins a sample: writes the metric's name, and the label of its job. The caller may add more labels with label(),
 * then calls end(). */
static void begin(const scene *s, const char *suffix)
{
    pd_document_put(s->out, "paramd_%s%s", s->row->name, suffix);
    if (s->figure == NULL) return;
    pd_document_put(s->out, "{job=");
    pd_document_label(s->out, s->figure->stats->info.name);
}

static void label(const scene *s, bool first, const char *name, const char *value)
{
    pd_document_put(s->out, "%s%s=", first && s->figure == NULL ? "{" : ",", name);
    pd_document_label(s->out, value);
}

/* Ends a sample with its value. `labelled`: label() was called for it. */
static void end(const scene *s, bool labelled, double value)
{
    pd_document_put(s->out, labelled || s->figure != NULL ? "} " : " ");
    pd_document_value(s->out, value);
    pd_document_put(s->out, "\n");
}

static const char *suffix_of(const row *of)
{
    return of->type == COUNTER ? "_total" : "";
}

static void sample(const scene *s, const char *name, const char *value, double number)
{
    begin(s, suffix_of(s->row));
    if (name != NULL) label(s, true, name, value);
    end(s, name != NULL, number);
}

static double read_number(const row *of, const void *from)
{
    const char *at = (const char *)from + of->at;

    switch (of->kind) {
    case COUNT32: return (double)*(const uint32_t *)(const void *)at * of->scale;
    case COUNT64: return ((double)*(const uint64_t *)(const void *)at + PD_MUTANT(metric_one_more)) * of->scale;
    case REAL: return *(const double *)(const void *)at * of->scale;
    case FLAG: return *(const bool *)(const void *)at;
    case NO_NUMBER:
    case TIMES: break;
    }
    return NAN;
}

/* Writes a bound of a bucket to `text` as OpenMetrics requires: "1.0", not "1". */
static void write_bound(char text[32], double bound)
{
    snprintf(text, 32, "%g", bound);
    if (isinf(bound)) strcpy(text, "+Inf");
    if (strpbrk(text, ".eI") == NULL) strcat(text, ".0");
}

/* Writes a bucket of a histogram. It gets the label `name` with the value `value`, besides that of the job; NULL: there
 * is no such label. */
static void bucket(const scene *s, const char *name, const char *value, double bound, double count)
{
    char text[32];

    begin(s, "_bucket");
    if (name != NULL) label(s, true, name, value);
    write_bound(text, bound);
    label(s, name == NULL, "le", text);
    end(s, true, count);
}

static void sum_and_count(const scene *s, const char *name, const char *value, double sum, double count)
{
    begin(s, "_sum");
    if (name != NULL) label(s, true, name, value);
    end(s, name != NULL, sum);
    begin(s, "_count");
    if (name != NULL) label(s, true, name, value);
    end(s, name != NULL, count);
}

static void histogram(const scene *s, const char *name, const char *value, const pd_histogram *from)
{
    uint64_t sum = 0;

    for (int i = 0; i < PD_BUCKETS; i++) bucket(s, name, value, pd_bucket_bound(i), (double)(sum += from->count[i]));
    sum_and_count(s, name, value, (double)from->sum_ns / 1e9, (double)sum);
}

/* Writes a figure of a cluster's member: only daemons with an engine have it. */
static void write_of_cluster(const scene *s, double value)
{
    if (s->daemon->cluster != NULL) sample(s, NULL, NULL, value);
}

static void write_lease(const scene *s)
{
    write_of_cluster(s, (double)s->server->lease_ms / 1e3);
}

static void write_tenure(const scene *s)
{
    write_of_cluster(s, (double)s->server->tenure);
}

static void write_engine(const scene *s)
{
    write_of_cluster(s, s->server->engine_up);
}

static void write_build(const scene *s)
{
    begin(s, "");
    label(s, true, "version", PD_VERSION);
    label(s, false, "cpu", pd_cpu_names[pd_cpu_in_use]);
    label(s, false, "blas_core", s->daemon->config.blas_core);
    end(s, true, 1);
}

/* Writes a sample for each error code with which frames were refused. One common code is written even if its count is
 * 0, so that there is always a sample. */
static void write_refused(const scene *s)
{
    for (int code = 0; code < PD_LOOP_CODES; code++)
        if (s->daemon->counters.refused_by[code] > 0 || -code == PD_INVALID_ARGUMENT)
            sample(s, "code", pd_code_name(-code), (double)s->daemon->counters.refused_by[code]);
}

/* Writes every 16th bucket of the histogram of the loop's busy times. Each written bound is four times the previous
 * one. */
static void write_loop_busy(const scene *s)
{
    const pd_lag *lag = &s->daemon->counters.lag;
    uint64_t sum = 0;

    for (int i = 0; i < PD_LAG_BUCKETS; i++) {
        sum += lag->count[i];
        if (i % 16 == 0) bucket(s, NULL, NULL, 1e-6 * exp2(i / 8.0), (double)sum);
    }
    bucket(s, NULL, NULL, INFINITY, (double)lag->polls);
    sum_and_count(s, NULL, NULL, (double)lag->sum_ns / 1e9, (double)lag->polls);
}

static void write_workers(const scene *s)
{
    static const char *const states[PD_WORKER_COUNTS] = { "absent", "connected", "lost", "left" };

    for (int i = 0; i < PD_WORKER_COUNTS; i++) sample(s, "state", states[i], s->figure->stats->workers_in[i]);
}

static void write_rounds(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    sample(s, "outcome", "stepped", (double)stats->info.steps);
    sample(s, "outcome", "skipped", (double)stats->info.skipped);
    sample(s, "outcome", "refused", (double)stats->info.refused_steps);
    sample(s, "outcome", "no_gradient", (double)stats->no_gradient);
}

/* Writes which shard of a cluster the daemon is. A job that is on one daemon has no sample. */
static void write_shard(const scene *s)
{
    const pd_job_info *info = &s->figure->stats->info;
    char text[32];

    if (info->shards <= 1) return;
    begin(s, "");
    snprintf(text, sizeof text, "%" PRIu32, info->shard);
    label(s, true, "shard", text);
    snprintf(text, sizeof text, "%" PRIu32, info->shards);
    label(s, false, "shards", text);
    snprintf(text, sizeof text, "%016" PRIx64, info->cluster);
    label(s, false, "cluster", text);
    snprintf(text, sizeof text, "%016" PRIx64, info->map);
    label(s, false, "map", text);
    end(s, true, 1);
}

static void write_phases(const scene *s)
{
    for (pd_step_phase phase = PD_PHASE_SUM; phase < PD_PHASES; phase++)
        histogram(s, "phase", pd_step_phase_name(phase), &s->figure->stats->times.phase[phase]);
}

static void write_waiting(const scene *s)
{
    sample(s, NULL, NULL, (double)pd_figure_wait(s->figure->stats, s->now_ns) / 1e9);
}

static void write_speed(const scene *s)
{
    sample(s, NULL, NULL, pd_figure_speed(s->figure->stats, s->now_ns));
}

static void rank_sample(const scene *s, size_t i, double value)
{
    char text[16];

    snprintf(text, sizeof text, "%" PRIu32, s->figure->stats->ranks[i].info.rank);
    sample(s, "rank", text, value);
}

static void write_last(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    for (size_t i = 0; i < stats->n_ranks; i++) rank_sample(s, i, (double)stats->ranks[i].late.last);
}

static void write_late(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    for (size_t i = 0; i < stats->n_ranks; i++) rank_sample(s, i, (double)stats->ranks[i].late.late_ns / 1e9);
}

static void write_staleness(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;
    uint64_t newest = 0;

    for (size_t i = 0; i < stats->n_ranks; i++)
        if (stats->ranks[i].info.step > newest) newest = stats->ranks[i].info.step;
    for (size_t i = 0; i < stats->n_ranks; i++) rank_sample(s, i, (double)(newest - stats->ranks[i].info.step));
}

static void write_counted(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    for (size_t i = 0; i < stats->n_ranks; i++) rank_sample(s, i, (double)stats->ranks[i].member.counted);
}

static void write_late_pushes(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    for (size_t i = 0; i < stats->n_ranks; i++) rank_sample(s, i, (double)stats->ranks[i].member.late);
}

static void write_ages(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    for (size_t i = 0; i < stats->n_ranks; i++) rank_sample(s, i, (double)stats->ranks[i].member.ages);
}

static void write_roots(const scene *s)
{
    const pd_job_info *info = &s->figure->stats->info;

    sample(s, "result", "adopted", (double)info->roots_adopted);
    sample(s, "result", "failed", (double)info->roots_failed);
    sample(s, "result", "unused", (double)info->roots_unused);
}

/* Writes the last mean of each scalar. Workers choose the names of scalars. */
static void write_scalars(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    for (size_t i = 0; i < stats->n_scalars; i++) sample(s, "name", stats->scalars[i].name, stats->scalars[i].mean);
}

static void write_memory(const scene *s)
{
    const pd_job_info *info = &s->figure->stats->info;

    sample(s, "purpose", "weights", (double)info->weight_bytes);
    sample(s, "purpose", "state", (double)info->state_bytes);
    sample(s, "purpose", "ingest", (double)info->held_bytes);
}

static void write_traffic_in(const scene *s)
{
    uint64_t in, out;

    pd_traffic_read(s->daemon->traffic, s->figure->job, &in, &out);
    sample(s, NULL, NULL, (double)in);
}

static void write_traffic_out(const scene *s)
{
    uint64_t in, out;

    pd_traffic_read(s->daemon->traffic, s->figure->job, &in, &out);
    sample(s, NULL, NULL, (double)out);
}

/* Writes whether the mirror is up. A daemon without a mirror has no sample, and neither have its jobs below. */
static void write_mirror_up(const scene *s)
{
    const pd_daemon_hooks *hooks = &s->daemon->config.hooks;

    if (hooks->mirror_is_up != NULL) sample(s, NULL, NULL, hooks->mirror_is_up(hooks->arg));
}

static void write_mirrored(const scene *s)
{
    if (s->daemon->config.hooks.mirror_is_up != NULL)
        sample(s, NULL, NULL, (double)s->figure->stats->info.mirrored_step);
}

static void write_mirror_lag(const scene *s)
{
    const pd_job_info *info = &s->figure->stats->info;
    uint64_t lag = info->durable_step > info->mirrored_step ? info->durable_step - info->mirrored_step : 0;

    if (s->daemon->config.hooks.mirror_is_up != NULL) sample(s, NULL, NULL, (double)lag);
}

/* Writes the time at which the newest checkpoint became durable, in seconds since 1970. A job without a checkpoint has
 * no sample. */
static void write_checkpoint_time(const scene *s)
{
    const pd_platform *platform = &s->daemon->platform;
    uint64_t durable_ns = s->figure->stats->durable_ns;

    if (durable_ns == 0 || platform->unix_ms == NULL) return;
    sample(s, NULL, NULL,
           (double)platform->unix_ms(platform->arg) / 1e3 - (double)pd_figure_since(durable_ns, s->now_ns) / 1e9);
}

static void write_checkpoints(const scene *s)
{
    const pd_job_stats *stats = s->figure->stats;

    sample(s, "result", "written", (double)stats->checkpoints);
    sample(s, "result", "failed", (double)stats->checkpoints_failed);
    sample(s, "result", "skipped", (double)stats->checkpoints_skipped);
}

#define KIND_OF(member)                                                                                                \
    _Generic((member), uint32_t : COUNT32, uint64_t : COUNT64, double : REAL, bool : FLAG, pd_histogram : TIMES)
#define SERVER(name, type, member, help)                                                                               \
    {                                                                                                                  \
        name, type, false, help, NULL, KIND_OF(((pd_server_figures *)0)->member), offsetof(pd_server_figures, member), \
            1                                                                                                          \
    }
#define JOB_SCALED(name, type, member, scale, help)                                                                    \
    {                                                                                                                  \
        name, type, true, help, NULL, KIND_OF(((pd_job_stats *)0)->member), offsetof(pd_job_stats, member), scale      \
    }
#define JOB(name, type, member, help) JOB_SCALED(name, type, member, 1, help)
#define SERVER_BY(name, type, write, help)                                                                             \
    {                                                                                                                  \
        name, type, false, help, write, NO_NUMBER, 0, 1                                                                \
    }
#define JOB_BY(name, type, write, help)                                                                                \
    {                                                                                                                  \
        name, type, true, help, write, NO_NUMBER, 0, 1                                                                 \
    }

static const row rows[] = {
    SERVER_BY("build_info", GAUGE, write_build, "Version, instruction set and BLAS kernels in use; always 1."),
    SERVER("ready", GAUGE, ready, "1: workers are served; 0: the daemon is recovering jobs or draining."),
    SERVER("healthy", GAUGE, healthy, "1: the step thread makes progress; 0: it is stuck."),
    SERVER("uptime_seconds", GAUGE, uptime_seconds, "Time since the daemon began to serve workers."),
    SERVER("connections", GAUGE, connections, "Open connections of workers and operators."),
    SERVER("jobs", GAUGE, jobs, "Number of jobs."),
    SERVER("bytes_received", COUNTER, bytes_in, "Bytes received on all connections."),
    SERVER("bytes_sent", COUNTER, bytes_out, "Bytes sent on all connections."),
    SERVER("frames_received", COUNTER, frames_in, "Frames received on all connections."),
    SERVER_BY("frames_refused", COUNTER, write_refused, "Frames that were refused, by error code."),
    SERVER("mover_jobs", COUNTER, moves,
           "Times that a mover has received or sent for the loop thread (threads.movers)."),
    SERVER("mover_bytes_received", COUNTER, moved_in, "Bytes that movers have received; bytes_received has them, too."),
    SERVER("mover_bytes_sent", COUNTER, moved_out, "Bytes that movers have sent; bytes_sent has them, too."),
    SERVER("connections_lent", GAUGE, lent, "Connections of which movers have a direction now."),
    SERVER("ingest_bytes", GAUGE, ingest_used, "Bytes of gradients in flight: received and not summed yet."),
    SERVER("ingest_limit_bytes", GAUGE, ingest_limit, "Most bytes of gradients in flight (limits.ingest_bytes)."),
    SERVER("ranks_left_out", GAUGE, ranks_left_out, "Ranks that have joined, but have no metrics with the label rank."),
    SERVER("memory_resident_bytes", GAUGE, resident_bytes, "Memory of the process."),
    SERVER("memory_peak_bytes", GAUGE, peak_resident_bytes, "Most memory that the process has had."),
    SERVER("memory_tls_bytes", GAUGE, tls_bytes, "Memory in which bytes of TLS connections wait."),
    SERVER("memory_committed_bytes", GAUGE, committed_bytes, "Memory that all jobs together have claimed."),
    SERVER_BY("cluster_lease_remaining_seconds", GAUGE, write_lease,
              "Time until the lease of this daemon's shard ends, or of its place as a spare; 0: it has ended."),
    SERVER_BY("cluster_tenure", GAUGE, write_tenure, "Number of this owner of its shard; 0: it owns none."),
    SERVER_BY("cluster_engine_up", GAUGE, write_engine, "1: the engine answers; 0: it does not."),
    SERVER_BY("mirror_up", GAUGE, write_mirror_up,
              "1: the mirror gets what is durable; 0: it fails, or does not answer."),
    SERVER_BY("loop_busy_seconds", HISTOGRAM, write_loop_busy, "CPU time of the loop thread between two waits."),

    JOB("job_step", GAUGE, info.step_least, "Steps that all parameters of the job have closed."),
    JOB("job_furthest_step", GAUGE, info.step_most, "Steps that some parameter of the job has closed."),
    JOB_BY("job_steps_per_second", GAUGE, write_speed, "Steps per second over the last seconds."),
    JOB("rewinds", COUNTER, rewinds, "How often the job continued at an older step after a restart."),
    JOB("job_world_size", GAUGE, info.world_size, "Number of ranks."),
    JOB_BY("job_workers", GAUGE, write_workers, "Number of ranks by state."),
    JOB("job_parameters", GAUGE, info.params, "Number of parameters."),
    JOB("contributions", COUNTER, info.contributions, "Contributions, one for each chunk, rank and step."),
    JOB("duplicates", COUNTER, info.duplicates, "Chunks that were received twice."),
    JOB("went_back", COUNTER, info.went_back, "Times that the job went back to an earlier step (GoBack)."),
    JOB("replayed_contributions", COUNTER, info.replayed, "Contributions again to steps that a restart has lost."),
    JOB("job_frames_refused", COUNTER, info.refused, "Data frames of the job that were refused."),
    JOB_BY("rounds_closed", COUNTER, write_rounds, "Rounds that have closed, by how they ended."),
    JOB("round_wait_seconds", HISTOGRAM, times.phase[PD_PHASE_WAIT],
        "Time from the first contribution to a step to the last one."),
    JOB_BY("waiting_seconds", GAUGE, write_waiting, "How long the oldest open round has waited; 0: none is open."),
    JOB_BY("step_seconds", HISTOGRAM, write_phases, "Time that a step takes, by phase."),
    JOB_BY("straggler", COUNTER, write_last, "Steps in which the rank was the last one to contribute."),
    JOB_BY("straggler_late_seconds", COUNTER, write_late, "Time by which the rank was later than the previous one."),
    JOB_BY("worker_staleness", GAUGE, write_staleness, "Steps between the rank and the newest one."),
    JOB("job_members", GAUGE, round.members, "Ranks, or groups of ranks, that are members now."),
    JOB("job_members_least", GAUGE, round.least, "Fewest members with which the job takes steps (min_workers)."),
    JOB("job_members_whole", GAUGE, round.whole, "Members that have contributed all to the step that is collected."),
    JOB("job_quorum", GAUGE, round.quorum, "How many members must contribute before a step is taken."),
    JOB("job_epoch", GAUGE, round.epoch, "How often the members have changed."),
    JOB("grace_waits", COUNTER, grace_waits, "Steps that waited for others after their quorum had come."),
    JOB("late_pushes", COUNTER, late_pushes, "Pushes that came too late to count."),
    JOB_BY("worker_counted_steps", COUNTER, write_counted, "Steps in which the rank counted."),
    JOB_BY("worker_late_pushes", COUNTER, write_late_pushes, "Pushes of the rank that came too late to count."),
    JOB_BY("worker_age_steps", COUNTER, write_ages, "Sum of the ages of the rank's contributions that counted."),
    JOB("roots_due", COUNTER, info.roots_due, "Preconditioner tasks that became due."),
    JOB_BY("roots", COUNTER, write_roots,
           "Preconditioner tasks that have ended, by result (unused: a newer one was first, or four were under way)."),
    JOB("roots_out", GAUGE, roots_out, "Preconditioner tasks at the preconditioner pool."),
    JOB("roots_failing", GAUGE, info.roots_failing, "Roots whose last task failed, so that an older root is in use."),
    JOB("root_age_steps", GAUGE, root_age, "Most steps since the statistics from which a root in use was computed."),
    JOB("root_waits", COUNTER, info.root_waits, "How often a step of some parameter waited for a root."),
    JOB("root_seconds", HISTOGRAM, root_times, "Time that a preconditioner task takes."),
    JOB("gradient_norm", GAUGE, info.gradient_norm, "Norm of the last step's gradients; 0: none is computed."),
    JOB("clipped_steps", COUNTER, info.clipped_steps, "Steps whose gradients were clipped by their norm."),
    JOB("outlier_steps", COUNTER, info.outlier_steps, "Steps that were skipped because their norm was an outlier."),
    JOB("settle_seconds", HISTOGRAM, settle_times, "Time from a shard's tally to the verdict of all shards."),
    JOB_BY("job_shard_info", GAUGE, write_shard, "1; the labels say which shard of a cluster this daemon is."),
    JOB_BY("scalar", GAUGE, write_scalars, "Last mean of each scalar that workers push, such as loss."),
    JOB_BY("job_memory_bytes", GAUGE, write_memory, "Memory of the job in use, by purpose."),
    JOB("job_memory_committed_bytes", GAUGE, info.committed_bytes, "Memory that the job has claimed."),
    JOB_BY("job_bytes_received", COUNTER, write_traffic_in, "Bytes received on the job's connections."),
    JOB_BY("job_bytes_sent", COUNTER, write_traffic_out, "Bytes sent on the job's connections."),
    JOB("durable_step", GAUGE, info.durable_step, "Steps up to this one survive a restart; 0: none does."),
    JOB_BY("mirrored_step", GAUGE, write_mirrored, "Steps up to this one are in the mirror; 0: none is."),
    JOB_BY("mirror_lag_steps", GAUGE, write_mirror_lag, "Durable steps that the mirror does not have yet."),
    JOB_BY("checkpoint_last_success_timestamp_seconds", GAUGE, write_checkpoint_time,
           "When the newest checkpoint became durable, in seconds since 1970."),
    JOB("checkpoint_bytes", GAUGE, info.checkpoint_bytes, "Bytes of the newest checkpoint."),
    JOB_SCALED("checkpoint_seconds", GAUGE, checkpoint_ns, 1e-9, "Time that writing the newest checkpoint took."),
    JOB_BY("checkpoints", COUNTER, write_checkpoints, "Checkpoints, by result."),
    JOB("log_sync_seconds", HISTOGRAM, log_times, "Time until a record of the job's WAL is durable."),
    JOB("log_bytes", COUNTER, log_bytes, "Bytes of records of the job's WAL that became durable."),
    JOB("log_breaks", COUNTER, log_breaks, "How often the WAL stopped until the next checkpoint."),
    JOB("repeated_steps", COUNTER, repeated_steps, "Steps that were repeated from the log at the start."),
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

const char *pd_metrics_name(size_t i)
{
    return i < N_ROWS ? rows[i].name : NULL;
}

static void write_head(const scene *s)
{
    static const char *const types[] = { [GAUGE] = "gauge", [COUNTER] = "counter", [HISTOGRAM] = "histogram" };
    const char *suffix = s->open ? "" : suffix_of(s->row);

    pd_document_put(s->out, "# HELP paramd_%s%s %s\n", s->row->name, suffix, s->row->help);
    pd_document_put(s->out, "# TYPE paramd_%s%s %s\n", s->row->name, suffix, types[s->row->type]);
}

static void write_samples(const scene *s)
{
    const void *from = s->figure != NULL ? (const void *)s->figure->stats : (const void *)s->server;

    if (s->row->write != NULL)
        s->row->write(s);
    else if (s->row->kind == TIMES)
        histogram(s, NULL, NULL, (const pd_histogram *)(const void *)((const char *)from + s->row->at));
    else
        sample(s, NULL, NULL, read_number(s->row, from));
}

/* Writes the samples of the next job; if there is none, moves the cursor to the next row. */
static void write_job(scene *s, pd_metrics_cursor *cursor)
{
    bool first = cursor->place.serial == 0;

    s->figure = pd_figures_next(&s->daemon->figures, &cursor->place);
    if (s->figure == NULL) {
        cursor->row++;
        cursor->place = (pd_figures_place){ 0 };
        return;
    }
    if (first) write_head(s);
    write_samples(s);
}

bool pd_metrics_next(pd_metrics_cursor *cursor, const pd_daemon *daemon, pd_document *out)
{
    scene s = { .out = out, .daemon = daemon, .open = cursor->open, .now_ns = pd_loop_clock_ns(daemon) };

    if (cursor->row > N_ROWS) return false;
    if (cursor->row == N_ROWS) {
        if (cursor->open) pd_document_put(out, "# EOF\n");
        cursor->row++;
        return true;
    }
    s.row = &rows[cursor->row];
    if (s.row->of_job) {
        write_job(&s, cursor);
    } else {
        if (cursor->row == 0)
            pd_server_figures_read(&cursor->server, daemon); /* read once, so that all samples are of the same time */
        s.server = &cursor->server;
        write_head(&s);
        write_samples(&s);
        cursor->row++;
    }
    return true;
}
