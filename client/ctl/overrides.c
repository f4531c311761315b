/* overrides.c - sets hyperparameters of a running job, and lists those that operators have set. */
#include "overrides.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inquiry.h"
#include "list_table.h"
#include "reflect.h"
#include "result.h"

/* ---- set JOB PATTERN NAME=VALUE... ---- */

/* Cuts the arguments at their first '='. False: one of them has none, which is reported. */
static bool read_settings(const pd_line *line, Paramd__Option *settings, Paramd__Option **list)
{
    for (int i = 2; i < line->n_args; i++, settings++) {
        char *text = line->args[i], *equals = strchr(text, '=');
        if (equals == NULL || equals == text) {
            pd_print_line(stderr, "paramctl: %s: expected NAME=VALUE, like lr=0.05 (NAME= withdraws what was set)", text);
            return false;
        }
        *equals = '\0';
        paramd__option__init(settings);
        settings->name = text;
        settings->value = equals + 1;
        *list++ = settings;
    }
    return true;
}

/* "lr of 12 parameters: 0.1 -> 0.05 from step 1201 on" */
static void print_change(const Paramd__SetChange *change)
{
    char last[PD_CELL] = "";

    if (change->from_most > change->from_least) snprintf(last, sizeof last, " to %" PRIu64, change->from_most);
    pd_print_line(stdout, "%s of %" PRIu64 " parameter%s (%s): %s%s -> %s%s, from step %" PRIu64 "%s on", change->name, change->params,
                  change->params == 1 ? "" : "s", change->optimizer, change->before, change->mixed ? " and others" : "", change->value,
                  change->withdrawn ? " again" : "", change->from_least, last);
}

static int print_reply(const Paramd__SetReply *reply)
{
    for (size_t i = 0; i < reply->n_changes; i++) print_change(reply->changes[i]);
    if (reply->left_off > 0) printf("and %" PRIu64 " more\n", reply->left_off);
    return PD_EXIT_OK;
}

int pd_run_set(pd_line *line)
{
    int64_t from = 0;
    const pd_line_option options[] = {
        { "from", 0, "STEP", "Step from which it holds (default: each parameter's next step that has not begun)",
          pd_take_number, &from, 1, INT64_MAX },
        { NULL, 0, NULL, "Parameters whose name matches PATTERN (* is all) take what their optimizer has of it, or nothing changes. "
          "VALUE is a number, flag or schedule, as in a job's rules, and goes before values sent with a push; "
          "NAME= withdraws what was set before.", NULL, NULL, 0, 0 },
        { 0 }
    };
    Paramd__SetRequest request = PARAMD__SET_REQUEST__INIT;
    Paramd__Option settings[PD_MOST_SETTINGS], *list[PD_MOST_SETTINGS];
    pd_operator op;
    pd_error err = { 0 };
    void *reply = NULL;
    int status;

    pd_line_parse(line, options);
    if (!read_settings(line, settings, list)) return PD_EXIT_USAGE;
    request.job = line->args[0];
    request.pattern = line->args[1];
    request.options = list;
    request.n_options = (size_t)line->n_args - 2;
    request.from_step = (uint64_t)from;
    if (pd_inquire(line, &op, PD_SET, &request.base, &reply, &err) != PD_OK) status = pd_result_fail(line->json, &err);
    else status = line->json ? pd_result_json(pd_message_json(reply)) : print_reply(reply);
    pd_operator_close(&op);
    return status;
}

/* ---- settings JOB [PARAM-GLOB] ---- */

/* Parameters that hold the same share a line. */
typedef struct group {
    char    *param, *pattern, *name, *value, *by;
    uint64_t from, params;
    bool     in_force;
} group;

typedef struct listing {
    group  *at;
    size_t  n, room;
    json_t *list;                   /* instead, for machines */
    bool    apart;                  /* every parameter has a line of its own */
    bool    starved;
} listing;

static bool is_alike(const group *g, const Paramd__SettingInfo *setting)
{
    return g->from == setting->from && g->in_force == setting->in_force && strcmp(g->name, setting->name) == 0 && strcmp(g->value, setting->value) == 0
        && strcmp(g->pattern, setting->pattern) == 0 && strcmp(g->by, setting->by) == 0;
}

static void free_group(group *g)
{
    free(g->param);
    free(g->pattern);
    free(g->name);
    free(g->value);
    free(g->by);
}

static void add_group(listing *out, const Paramd__SettingInfo *setting)
{
    group *g;

    if (out->n == out->room) {
        size_t room = 2 * out->room + 16;
        group *more = realloc(out->at, room * sizeof *more);
        if (more == NULL) {
            out->starved = true;
            return;
        }
        out->at = more;
        out->room = room;
    }
    g = &out->at[out->n];
    *g = (group){ strdup(setting->param), strdup(setting->pattern), strdup(setting->name), strdup(setting->value), strdup(setting->by), setting->from, 1,
                  setting->in_force };
    out->n++;
    if (g->param == NULL || g->pattern == NULL || g->name == NULL || g->value == NULL || g->by == NULL) {
        out->starved = true;
        free_group(&out->at[--out->n]);
    }
}

static void add_setting(listing *out, const Paramd__SettingInfo *setting)
{
    if (out->list != NULL) {
        json_array_append_new(out->list, pd_message_json(&setting->base));
        return;
    }
    for (size_t i = out->n; !out->apart && i-- > 0;) {
        if (!is_alike(&out->at[i], setting)) continue;
        out->at[i].params++;
        return;
    }
    add_group(out, setting);
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    for (size_t i = 0; i < page->n_settings; i++) add_setting(arg, page->settings[i]);
}

static void settings_row(pd_table *table, const group *g)
{
    if (g->params == 1) pd_table_cell(table, "%s", g->param);
    else pd_table_cell(table, "%" PRIu64 " of %s", g->params, g->pattern);
    pd_table_cell(table, "%s", g->name);
    pd_table_cell(table, "%s", g->value[0] != '\0' ? g->value : "(withdrawn)");
    pd_table_cell(table, "%" PRIu64, g->from);
    pd_table_cell(table, "%s", g->in_force ? "in force" : "planned");
    pd_table_cell(table, "%s", g->by);
}

static int print_groups(listing *out)
{
    pd_table *table = pd_table_new("PARAMETERS|HYPERPARAMETER|VALUE|>FROM STEP|STATE|SET BY");

    for (size_t i = 0; table != NULL && i < out->n; i++) settings_row(table, &out->at[i]);
    return pd_table_print(table, stdout, "nothing is set: the configuration and its schedules hold");
}

int pd_run_settings(pd_line *line)
{
    bool verbose = false;
    const pd_line_option options[] = {
        { "verbose", 'v', NULL, "List every parameter; without it those that are alike share a line", pd_take_flag, &verbose, 0, 0 }, { 0 }
    };
    listing out = { 0 };
    pd_error err = { 0 };
    int status, rc;

    pd_line_parse(line, options);
    out.list = line->json ? json_array() : NULL;
    out.apart = verbose;
    rc = pd_list_fetch(line, PARAMD__LIST_KIND__LIST_SETTINGS, add_page, &out, &err);
    if (rc == PD_OK && out.starved) rc = pd_fail(&err, PD_NO_MEMORY, "out of memory");
    if (rc != PD_OK) status = pd_result_fail(line->json, &err);
    else if (line->json) status = pd_result_json(json_pack("{s:O}", "settings", out.list));
    else status = print_groups(&out) == PD_OK ? PD_EXIT_OK : PD_EXIT_REFUSED;
    json_decref(out.list);
    for (size_t i = 0; i < out.n; i++) free_group(&out.at[i]);
    free(out.at);
    return status;
}
