/* jobs_json.c - writes the figures of the daemon and its jobs as JSON. */
#include "document.h"

#include "cpu.h"
#include "info.h"
#include "message.h"
#include "figures.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void put_text(pd_document *out, const char *name, const char *text)
{
    pd_document_put(out, ",\"%s\":", name);
    pd_document_json_text(out, text);
}

static void put_count(pd_document *out, const char *name, uint64_t value)
{
    pd_document_put(out, ",\"%s\":%" PRIu64, name, value);
}

static void put_number(pd_document *out, const char *name, double value)
{
    pd_document_put(out, ",\"%s\":", name);
    pd_document_json_number(out, value);
}

static void put_flag(pd_document *out, const char *name, bool value)
{
    pd_document_put(out, ",\"%s\":%s", name, value ? "true" : "false");
}

static void put_bounds(pd_document *out)
{
    pd_document_put(out, ",\"bucket_seconds\":[");
    for (int i = 0; i < PD_BUCKETS; i++) {
        if (i > 0) pd_document_put(out, ",");
        pd_document_json_number(out, pd_bucket_bound(i));
    }
    pd_document_put(out, "]");
}

/* Writes a histogram as the member `name` of an object; `first`: the object has no member before it. */
static void put_histogram(pd_document *out, bool first, const char *name, const pd_histogram *from)
{
    pd_document_put(out, "%s\"%s\":{\"count\":%" PRIu64, first ? "" : ",", name, pd_histogram_count(from));
    put_number(out, "sum_seconds", (double)from->sum_ns / 1e9);
    pd_document_put(out, ",\"buckets\":[");
    for (int i = 0; i < PD_BUCKETS; i++) pd_document_put(out, "%s%" PRIu64, i > 0 ? "," : "", from->count[i]);
    pd_document_put(out, "]}");
}

static void put_field_number(pd_document *out, const ProtobufCFieldDescriptor *type, const pd_info_field *field,
                             const char *at)
{
    if (type->type == PROTOBUF_C_TYPE_DOUBLE)
        put_number(out, field->name, *(const double *)(const void *)at);
    else if (field->bytes == 4)
        put_count(out, field->name, *(const uint32_t *)(const void *)at);
    else
        put_count(out, field->name, *(const uint64_t *)(const void *)at);
}

/* Returns whether a field of a list is left out: the nonce of a worker's process, and the worker's identity. The HTTP
 * listener does not know who reads the document, and a reader who knows a nonce could take the worker's rank. */
static bool is_private(const char *field)
{
    return strcmp(field, "nonce") == 0 || strcmp(field, "identity") == 0;
}

/* Writes the fields of an entry of a list, in the order of the list's table of fields. Skips shapes and nested lists,
 * which jobs and workers do not have. */
static void put_entry(pd_document *out, uint32_t what, const void *entry)
{
    const pd_info_list *list = pd_info_list_of(what);
    const ProtobufCMessageDescriptor *type =
        protobuf_c_message_descriptor_get_field_by_name(&paramd__list_reply__descriptor, list->name)->descriptor;

    for (const pd_info_field *field = list->fields; field->name != NULL; field++) {
        const char *at = (const char *)entry + field->at;
        if (is_private(field->name)) continue;
        if (field->kind == PD_INFO_NUMBER)
            put_field_number(out, protobuf_c_message_descriptor_get_field_by_name(type, field->name), field, at);
        else if (field->kind == PD_INFO_FLAG)
            put_flag(out, field->name, *(const bool *)at);
        else if (field->kind == PD_INFO_TEXT)
            put_text(out, field->name, at);
        else if (field->kind == PD_INFO_WORD)
            put_text(out, field->name, *(const char *const *)(const void *)at);
    }
}

static void put_cluster_shard(pd_document *out, uint32_t i, const pd_cluster_shard *shard)
{
    pd_document_put(out, "%s{\"shard\":%u", i > 0 ? "," : "", (unsigned)i);
    put_text(out, "url", shard->url);
    put_text(out, "http", shard->http);
    pd_document_put(out, ",\"life\":\"%016" PRIx64 "\"", shard->life);
    put_count(out, "tenure", shard->tenure);
    put_flag(out, "alive", shard->alive);
    pd_document_put(out, "}");
}

static void put_cluster(pd_document *out, const pd_cluster_table *table)
{
    pd_document_put(out, ",\"cluster\":{\"name\":");
    pd_document_json_text(out, table->name);
    if (table->own >= 0) put_count(out, "shard", (uint64_t)table->own);
    put_count(out, "tenure", table->tenure);
    put_number(out, "lease_seconds", (double)table->lease_ms / 1e3);
    put_flag(out, "engine_up", table->engine_up);
    pd_document_put(out, ",\"shards\":[");
    for (uint32_t i = 0; i < table->n_shards; i++) put_cluster_shard(out, i, &table->shards[i]);
    pd_document_put(out, "],\"spares\":[");
    for (uint32_t i = 0; i < table->n_spares; i++) {
        if (i > 0) pd_document_put(out, ",");
        pd_document_json_text(out, table->spares[i].name);
    }
    pd_document_put(out, "]}");
}

static void put_server(pd_document *out, const pd_daemon *daemon)
{
    pd_server_figures server;

    pd_server_figures_read(&server, daemon);
    pd_document_put(out, "{\"server\":{\"server\":\"paramd " PD_VERSION "\"");
    put_text(out, "state", server.state);
    put_flag(out, "healthy", server.healthy);
    put_text(out, "cpu", pd_cpu_names[pd_cpu_in_use]);
    put_text(out, "blas_core", daemon->config.blas_core);
    put_number(out, "time", server.time);
    put_number(out, "uptime_seconds", server.uptime_seconds);
    put_count(out, "connections", server.connections);
    put_count(out, "ingest_bytes", server.ingest_limit);
    put_count(out, "ingest_used", server.ingest_used);
    put_count(out, "resident_bytes", server.resident_bytes);
    put_count(out, "peak_resident_bytes", server.peak_resident_bytes);
    put_count(out, "bytes_in", server.bytes_in);
    put_count(out, "bytes_out", server.bytes_out);
    put_count(out, "frames_in", server.frames_in);
    put_count(out, "frames_refused", server.frames_refused);
    pd_document_put(out, ",\"loop_busy_ms\":[");
    for (int i = 0; i < 4; i++) {
        if (i > 0) pd_document_put(out, ",");
        pd_document_json_number(out, server.loop_busy_ms[i]);
    }
    pd_document_put(out, "]");
    put_bounds(out);
    if (daemon->cluster != NULL) put_cluster(out, pd_cluster_table_now(daemon->cluster));
    pd_document_put(out, "},\"jobs\":[");
}

static void put_scalars(pd_document *out, const pd_job_stats *stats)
{
    pd_document_put(out, ",\"scalars\":[");
    for (size_t i = 0; i < stats->n_scalars; i++) {
        pd_document_put(out, "%s{\"name\":", i > 0 ? "," : "");
        pd_document_json_text(out, stats->scalars[i].name);
        put_number(out, "mean", stats->scalars[i].mean);
        put_count(out, "step", stats->scalars[i].step);
        pd_document_put(out, "}");
    }
    pd_document_put(out, "]");
}

static void put_times(pd_document *out, const pd_job_stats *stats)
{
    pd_document_put(out, ",\"phases\":{");
    for (pd_step_phase phase = PD_PHASE_WAIT; phase < PD_PHASES; phase++)
        put_histogram(out, phase == PD_PHASE_WAIT, pd_step_phase_name(phase), &stats->times.phase[phase]);
    pd_document_put(out, "}");
    put_histogram(out, false, "root_times", &stats->root_times);
    put_histogram(out, false, "log_times", &stats->log_times);
    put_histogram(out, false, "settle_times", &stats->settle_times);
}

/* Writes how often a rank counts, in a job in which that is decided for each step. */
static void put_member(pd_document *out, const pd_member_info *member)
{
    put_text(out, "member", member->state);
    put_count(out, "next", member->next);
    put_count(out, "counted", member->counted);
    put_count(out, "counted_of", member->steps);
    put_count(out, "late", member->late);
    put_number(out, "mean_age", member->mean_age);
}

static void put_round(pd_document *out, const pd_job_stats *stats)
{
    if (!stats->sets_open) return;
    pd_document_put(out, ",\"round\":{\"late_pushes\":%" PRIu64, stats->late_pushes);
    put_entry(out, PD_INFO_ROUNDS, &stats->round);
    pd_document_put(out, "}");
}

static void put_workers(pd_document *out, const pd_job_stats *stats)
{
    pd_document_put(out, ",\"workers\":[");
    for (size_t i = 0; i < stats->n_ranks; i++) {
        const pd_rank_stats *rank = &stats->ranks[i];
        pd_document_put(out, "%s{\"number\":%zu", i > 0 ? "," : "", i);
        put_entry(out, PD_INFO_WORKERS, &rank->info);
        if (stats->sets_open) put_member(out, &rank->member);
        pd_document_put(out, "}");
    }
    pd_document_put(out, "]");
}

static void put_counters(pd_document *out, const pd_job_stats *stats)
{
    put_count(out, "no_gradient", stats->no_gradient);
    put_count(out, "rewinds", stats->rewinds);
    put_count(out, "roots_out", stats->roots_out);
    put_count(out, "checkpoints", stats->checkpoints);
    put_count(out, "checkpoints_failed", stats->checkpoints_failed);
    put_count(out, "checkpoints_skipped", stats->checkpoints_skipped);
    put_number(out, "checkpoint_seconds", (double)stats->checkpoint_ns / 1e9);
    put_count(out, "log_bytes", stats->log_bytes);
    put_count(out, "log_breaks", stats->log_breaks);
    put_count(out, "repeated_steps", stats->repeated_steps);
}

static double loss_of(const pd_history_point *point)
{
    return point->loss;
}
static double norm_of(const pd_history_point *point)
{
    return point->gradient_norm;
}
static double ms_of(const pd_history_point *point)
{
    return point->ms_per_step;
}

static void put_curve(pd_document *out, const char *name, const pd_history *history,
                      double (*number)(const pd_history_point *point))
{
    pd_document_put(out, ",\"%s\":[", name);
    for (size_t i = 0; i < history->n; i++) {
        if (i > 0) pd_document_put(out, ",");
        pd_document_json_number(out, number(&history->at[i]));
    }
    pd_document_put(out, "]");
}

static void put_history(pd_document *out, const pd_history *history)
{
    pd_document_put(out, ",\"history\":{\"step\":[");
    for (size_t i = 0; i < history->n; i++) pd_document_put(out, "%s%" PRIu64, i > 0 ? "," : "", history->at[i].step);
    pd_document_put(out, "]");
    put_curve(out, "loss", history, loss_of);
    put_curve(out, "gradient_norm", history, norm_of);
    put_curve(out, "ms_per_step", history, ms_of);
    pd_document_put(out, "}");
}

/* Returns the last copy of a job's figures, with speed, waiting time, age of the checkpoint and bytes as they are
 * now. */
static pd_job_info present(const pd_daemon *daemon, const pd_figure *figure, uint64_t now_ns)
{
    pd_job_info info = figure->stats->info;

    info.steps_per_second = pd_figure_speed(figure->stats, now_ns);
    info.waits_ms = pd_figure_wait(figure->stats, now_ns) / 1000000;
    info.checkpoint_age_ms = pd_figure_since(figure->stats->durable_ns, now_ns) / 1000000;
    pd_traffic_read(daemon->traffic, figure->job, &info.bytes_in, &info.bytes_out);
    return info;
}

static void put_job(pd_document *out, const pd_daemon *daemon, const pd_figure *figure, bool first)
{
    static const char *const states[PD_WORKER_COUNTS] = { [PD_COUNT_ABSENT] = "workers_absent",
                                                          [PD_COUNT_CONNECTED] = "workers_connected",
                                                          [PD_COUNT_LOST] = "workers_lost",
                                                          [PD_COUNT_LEFT] = "workers_left" };
    uint64_t now_ns = pd_loop_clock_ns(daemon);
    pd_job_info info = present(daemon, figure, now_ns);

    pd_document_put(out, "%s{\"age_seconds\":", first ? "" : ",");
    pd_document_json_number(out, (double)pd_figure_since(figure->stats->at_ns, now_ns) / 1e9);
    put_entry(out, PD_INFO_JOBS, &info);
    for (int i = 0; i < PD_WORKER_COUNTS; i++) put_count(out, states[i], figure->stats->workers_in[i]);
    put_counters(out, figure->stats);
    put_scalars(out, figure->stats);
    put_times(out, figure->stats);
    put_round(out, figure->stats);
    put_workers(out, figure->stats);
    put_history(out, &figure->history);
    pd_document_put(out, "}");
}

bool pd_jobs_json_next(pd_jobs_json_cursor *cursor, const pd_daemon *daemon, pd_document *out)
{
    const pd_figure *figure;
    bool first = cursor->place.serial == 0;

    if (cursor->ended) return false;
    if (!cursor->begun) {
        put_server(out, daemon);
        cursor->begun = true;
        return true;
    }
    figure = pd_figures_next(&daemon->figures, &cursor->place);
    if (figure == NULL) {
        pd_document_put(out, "]}\n");
        cursor->ended = true;
        return true;
    }
    put_job(out, daemon, figure, first);
    return true;
}
