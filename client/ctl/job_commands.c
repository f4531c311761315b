/* job_commands.c - runs the commands that change a job (kick, drop, go-back, reset-state, checkpoint, set), and
 * settings, which lists a job's overrides. */
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ask_all.h"
#include "common_checkpoint.h"
#include "format.h"
#include "job_steps.h"
#include "list_table.h"
#include "result.h"

/* Sends a request without an answer to all daemons, with the command's timeout plus `more_s` seconds as the deadline.
 * Of several daemons, some may not have the job, or no parameter that a pattern matches (`some`). */
static int ask_all(const pd_line *line, unsigned method, const ProtobufCMessage *request, double more_s, bool some,
                   pd_error *err)
{
    pd_cluster cluster;
    int rc = pd_cluster_open(&cluster, line, more_s, err);

    if (some) cluster.tolerated[0] = PD_NOT_FOUND;
    if (rc == PD_OK) rc = pd_cluster_ask(&cluster, method, request, NULL, err);
    pd_cluster_close(&cluster);
    return rc;
}

int pd_run_drop(pd_line *line)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    pd_error err = { 0 };

    request.job = line->args[0];
    return ask_all(line, PD_DROP, &request.base, 0, true, &err) == PD_OK
               ? pd_result_done(line->json, "dropped %s", line->args[0])
               : pd_result_fail(line->json, &err);
}

/* Reads a rank from a command's argument. Ends the program if it is none. */
static uint32_t read_rank(const pd_line *line, const char *text)
{
    char *end;
    unsigned long rank = strtoul(text, &end, 10);

    if (*end != '\0' || text[0] < '0' || text[0] > '9' || rank > UINT32_MAX)
        pd_line_refuse(line, "%s: expected a rank, a number from 0 on", text);
    return (uint32_t)rank;
}

int pd_run_kick(pd_line *line)
{
    Paramd__KickRequest request = PARAMD__KICK_REQUEST__INIT;
    pd_error err = { 0 };

    request.job = line->args[0];
    request.rank = read_rank(line, line->args[1]);
    return ask_all(line, PD_KICK, &request.base, 0, false, &err) == PD_OK
               ? pd_result_done(line->json, "removed rank %u from %s", request.rank, line->args[0])
               : pd_result_fail(line->json, &err);
}

int pd_run_reset_state(pd_line *line)
{
    Paramd__ImportRequest request = PARAMD__IMPORT_REQUEST__INIT;
    pd_error err = { 0 };

    request.job = line->args[0];
    request.act = 5;
    request.param = line->args[1];
    request.partial = pd_line_has(line, "keep-counts");
    return ask_all(line, PD_IMPORT, &request.base, PD_IMPORT_SECONDS, true, &err) == PD_OK
               ? pd_result_done(line->json, "the optimizer state of %s in job %s has its initial values", line->args[1],
                                line->args[0])
               : pd_result_fail(line->json, &err);
}

#define MOST_WAIT 600.0 /* most seconds that the daemon waits for its disk */

/* Prints the steps by which the directories of the checkpoints are named. */
static int print_checkpoint(const pd_line *line, const pd_checkpoints_made *made)
{
    char bytes[PD_CELL], ms[PD_CELL], steps[64];

    if (line->json)
        return pd_result_json(json_pack("{s:s, s:I, s:I, s:I, s:I}", "job", line->args[0], "step",
                                        (json_int_t)made->most, "least_step", (json_int_t)made->least, "bytes",
                                        (json_int_t)made->bytes, "ms", (json_int_t)made->ms));
    if (made->least == made->most)
        snprintf(steps, sizeof steps, "step %" PRIu64, made->most);
    else
        snprintf(steps, sizeof steps, "steps %" PRIu64 " to %" PRIu64, made->least, made->most);
    if (made->bytes == 0)
        pd_print_line(stdout, "%s: the checkpoint of %s was on the disk already", line->args[0], steps);
    else
        pd_print_line(stdout, "%s: checkpoint of %s, %s written in %s", line->args[0], steps,
                      pd_bytes_text(bytes, made->bytes), pd_duration_text(ms, made->ms));
    return PD_CTL_OK;
}

int pd_run_checkpoint_command(pd_line *line)
{
    Paramd__CheckpointRequest request = PARAMD__CHECKPOINT_REQUEST__INIT;
    pd_checkpoints_made made;
    double wait = pd_line_seconds(line, "wait") < MOST_WAIT ? pd_line_seconds(line, "wait") : MOST_WAIT;
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_probe(line, &err), status;

    request.job = line->args[0];
    request.step = pd_line_has(line, "step") ? (uint64_t)pd_line_number(line, "step") : 0;
    request.wait_ms = wait < 0.001 ? 1 : (uint32_t)(wait * 1000);
    if (rc != PD_OK) return pd_result_fail(line->json, &err);
    rc = pd_cluster_open_complete(&cluster, line, wait, &err);
    if (rc == PD_OK) rc = pd_common_checkpoint(&cluster, &request, &made, &err);
    status = rc == PD_OK ? print_checkpoint(line, &made) : pd_result_fail_reached(line->json, &err);
    pd_cluster_close(&cluster);
    return status;
}

static int print_gone_back(const pd_line *line, uint64_t step)
{
    if (step == UINT64_MAX)
        return pd_result_done(line->json, "%s has gone back to its newest checkpoint", line->args[0]);
    return pd_result_done(line->json, "%s has gone back to the checkpoint of step %" PRIu64, line->args[0], step);
}

int pd_run_go_back(pd_line *line)
{
    Paramd__GoBackRequest request = PARAMD__GO_BACK_REQUEST__INIT;
    pd_operator op = { 0 };
    pd_error err = { 0 };
    int rc = pd_operator_probe(line->server, line->timeout, &err), status;

    request.job = line->args[0];
    request.step = pd_line_has(line, "step") ? (uint64_t)pd_line_number(line, "step") : UINT64_MAX;
    if (rc != PD_OK) return pd_result_fail(line->json, &err);
    rc = pd_operator_open(&op, line->server, line->timeout + MOST_WAIT, &err);
    if (rc == PD_OK) rc = pd_client_call(op.client, PD_GO_BACK, &request.base, op.arena, NULL, &err);
    status = rc == PD_OK ? print_gone_back(line, request.step) : pd_result_fail_reached(line->json, &err);
    pd_operator_close(&op);
    return status;
}

/* Splits each NAME=VALUE argument at its first '='. Ends the program if an argument has none. */
static void read_settings(const pd_line *line, Paramd__Option *settings, Paramd__Option **list)
{
    for (int i = 2; i < line->n_args; i++, settings++) {
        char *text = line->args[i], *equals = strchr(text, '=');
        if (equals == NULL || equals == text)
            pd_line_refuse(line, "%s: expected NAME=VALUE, such as lr=0.05 (NAME= withdraws the value)", text);
        *equals = '\0';
        paramd__option__init(settings);
        settings->name = text;
        settings->value = equals + 1;
        *list++ = settings;
    }
}

/* Prints one change of a hyperparameter, for example "lr of 12 parameters (adam): 0.1 -> 0.05, from step 1201 on". */
static void print_change(const Paramd__SetChange *change)
{
    char last[PD_CELL] = "";

    if (change->from_most > change->from_least) snprintf(last, sizeof last, " to %" PRIu64, change->from_most);
    pd_print_line(stdout, "%s of %" PRIu64 " parameter%s (%s): %s%s -> %s%s, from step %" PRIu64 "%s on", change->name,
                  change->params, change->params == 1 ? "" : "s", change->optimizer, change->before,
                  change->mixed ? " and others" : "", change->value, change->withdrawn ? " again" : "",
                  change->from_least, last);
}

static int print_reply(const Paramd__SetReply *reply)
{
    for (size_t i = 0; i < reply->n_changes; i++) print_change(reply->changes[i]);
    if (reply->left_off > 0) printf("and %" PRIu64 " more\n", reply->left_off);
    return PD_CTL_OK;
}

/* Prints the answers of the daemons to a Set, or makes a list of them in JSON. */
static int print_replies(const pd_line *line, const pd_cluster *cluster, void *const *replies)
{
    json_t *all;

    if (cluster->n == 1 && line->json) return pd_result_json(pd_message_json(replies[0]));
    all = json_array();
    for (size_t i = 0; i < cluster->n; i++) {
        if (replies[i] == NULL) continue;
        if (!line->json) {
            if (cluster->n > 1) pd_print_line(stdout, "shard %zu:", i);
            (void)print_reply(replies[i]);
        } else {
            json_t *one = pd_message_json(replies[i]);
            json_object_set_new(one, "shard", json_integer((json_int_t)i));
            json_array_append_new(all, one);
        }
    }
    if (line->json) return pd_result_json(json_pack("{s:o}", "shards", all));
    json_decref(all);
    return PD_CTL_OK;
}

/* Returns whether a daemon has refused a Set because it has begun the step meanwhile. */
static bool some_has_begun(const pd_cluster *cluster)
{
    for (size_t i = 0; i < cluster->n; i++)
        if (cluster->at[i].rc == PD_FAILED_PRECONDITION) return true;
    return false;
}

/* Sends a Set to several daemons, for a step that none of them has begun. If one has begun it when the request comes,
 * the request goes to all of them once more, for a later step: from then on all have the values. If the daemons need
 * not come to the same steps, each takes the values from its next one on. */
static int set_from_one_step(pd_cluster *cluster, Paramd__SetRequest *request, void **replies, pd_error *err)
{
    bool given = request->from_step > 0;
    pd_job_steps steps;
    int rc = PD_OK;

    cluster->tolerated[0] = PD_NOT_FOUND; /* a pattern may match parameters of some daemons only */
    for (int attempt = 0; attempt < 2; attempt++) {
        if (!given && (rc = pd_job_steps_ask(&steps, cluster, request->job, err)) != PD_OK) return rc;
        if (!given && !steps.apart) request->from_step = pd_job_steps_ahead(&steps) + (uint64_t)(attempt * 8);
        cluster->tolerated[1] = given || attempt > 0 ? PD_OK : PD_FAILED_PRECONDITION;
        rc = pd_cluster_ask(cluster, PD_SET, &request->base, replies, err);
        if (given || !some_has_begun(cluster)) break;
    }
    return rc;
}

static int set(pd_cluster *cluster, Paramd__SetRequest *request, void **replies, pd_error *err)
{
    if (replies == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return cluster->n > 1 ? set_from_one_step(cluster, request, replies, err)
                          : pd_cluster_ask(cluster, PD_SET, &request->base, replies, err);
}

int pd_run_set(pd_line *line)
{
    Paramd__SetRequest request = PARAMD__SET_REQUEST__INIT;
    Paramd__Option settings[PD_MOST_SETTINGS], *list[PD_MOST_SETTINGS];
    void **replies;
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc, status;

    read_settings(line, settings, list);
    request.job = line->args[0];
    request.pattern = line->args[1];
    request.options = list;
    request.n_options = (size_t)line->n_args - 2;
    request.from_step = (uint64_t)pd_line_number(line, "from");
    rc = pd_cluster_open_complete(&cluster, line, 0, &err);
    replies = calloc(line->asked->n_shards, sizeof *replies);
    if (rc == PD_OK) rc = set(&cluster, &request, replies, &err);
    status = rc == PD_OK ? print_replies(line, &cluster, replies) : pd_result_fail(line->json, &err);
    pd_cluster_close(&cluster);
    free(replies);
    return status;
}

/* The list of a job's overrides, as JSON. Parameters with equal overrides share one entry, which names the first one.
 * Its field "others" is the number of the other parameters. */
typedef struct listing {
    json_t *entries;
    bool apart; /* each parameter gets an entry of its own, even if its overrides equal those of another one */
} listing;

static bool are_alike(const json_t *a, const json_t *b)
{
    static const char *const keys[] = { "pattern", "name", "value", "by", "from", "in_force" };

    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (!json_equal(json_object_get(a, keys[i]), json_object_get(b, keys[i]))) return false;
    return true;
}

static json_int_t others_of(const json_t *entry)
{
    return json_integer_value(json_object_get(entry, "others"));
}

/* Adds an entry to the list of overrides. If the list has an equal entry, adds 1 to "others" in that entry instead.
 * Takes ownership of `entry`. */
static void add_setting(listing *out, json_t *entry)
{
    for (size_t i = json_array_size(out->entries); !out->apart && i-- > 0;) {
        json_t *like = json_array_get(out->entries, i);
        if (!are_alike(like, entry)) continue;
        json_object_set_new(like, "others", json_integer(others_of(like) + 1));
        json_decref(entry);
        return;
    }
    json_array_append_new(out->entries, entry);
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    for (size_t i = 0; i < page->n_settings; i++) add_setting(arg, pd_message_json(&page->settings[i]->base));
}

static const char *text_of(const json_t *entry, const char *key)
{
    const char *text = json_string_value(json_object_get(entry, key));

    return text != NULL ? text : "";
}

static void settings_row(pd_table *table, const json_t *entry)
{
    const char *value = text_of(entry, "value");

    if (others_of(entry) == 0)
        pd_table_cell(table, "%s", text_of(entry, "param"));
    else
        pd_table_cell(table, "%lld of %s", (long long)others_of(entry) + 1, text_of(entry, "pattern"));
    pd_table_cell(table, "%s", text_of(entry, "name"));
    pd_table_cell(table, "%s", value[0] != '\0' ? value : "(withdrawn)");
    pd_table_cell(table, "%lld", (long long)json_integer_value(json_object_get(entry, "from")));
    pd_table_cell(table, "%s", json_is_true(json_object_get(entry, "in_force")) ? "in force" : "planned");
    pd_table_cell(table, "%s", text_of(entry, "by"));
}

static int print_settings(const pd_line *line, const json_t *entries)
{
    pd_table *table = pd_table_new("~PARAMETERS|HYPERPARAMETER|~VALUE|>FROM STEP|STATE|~SET BY");
    json_t *entry;
    size_t i;

    json_array_foreach(entries, i, entry) settings_row(table, entry);
    return pd_result_table(line, table, "nothing is set: the configuration and its schedules apply");
}

int pd_run_settings(pd_line *line)
{
    listing out = { .apart = line->json || pd_line_has(line, "verbose") };
    pd_error err = { 0 };
    int status;

    out.entries = json_array();
    if (pd_list_fetch(line, PARAMD__LIST_KIND__LIST_SETTINGS, add_page, &out, &err) != PD_OK)
        status = pd_result_fail(line->json, &err);
    else
        status = line->json ? pd_result_json(json_pack("{s:O}", "settings", out.entries))
                            : print_settings(line, out.entries);
    json_decref(out.entries);
    return status;
}
