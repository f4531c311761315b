/* params.c - the command params: lists parameters. With --verbose or --json it also shows how large the errors of
 * their matrix roots are. */
#include "params.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdlib.h>

#include "format.h"
#include "list_table.h"

/* ---- columns ---- */

static void roots_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__ParamInfo *param = entry;
    char text[PD_CELL];

    (void)column;
    if (param->roots_failing == 0) {
        pd_table_cell(table, "%s", param->roots > 0 ? pd_count_text(text, param->roots) : "-");
        return;
    }
    pd_table_cell(table, "%" PRIu64 " (%" PRIu64 " failing)", param->roots, param->roots_failing);
    pd_table_alarm(table);
}

static void aggregate_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__ParamInfo *param = entry;
    char text[PD_CELL];

    (void)column;
    if (param->collect_bytes > 0)
        pd_table_cell(table, "%s (holds %s)", param->aggregate, pd_bytes_text(text, param->collect_bytes));
    else
        pd_table_cell(table, "%s", param->aggregate);
}

static void waits_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__ParamInfo *param = entry;

    (void)column;
    if (param->initialised)
        pd_table_cell(table, "%s", param->missing[0] != '\0' ? param->missing : "-");
    else
        pd_table_cell(table, "initial weights%s%s", param->missing[0] != '\0' ? " of " : "", param->missing);
}

static const pd_column columns[] = { { "~PARAMETER", "name", pd_cell_text },
                                     { "OPTIMIZER", "optimizer", pd_cell_text },
                                     { "SHAPE", "shape", pd_cell_shape },
                                     { ">STEP", "step", pd_cell_number },
                                     { "+>VERSION", "version", pd_cell_number },
                                     { "+>SKIPPED", "skipped", pd_cell_count },
                                     { "+>REFUSED", "refused_steps", pd_cell_count },
                                     { "+>CONTRIBUTIONS", "contributions", pd_cell_count },
                                     { ">STATE", "state_bytes", pd_cell_bytes },
                                     { ">ROOTS", NULL, roots_cell },
                                     { "+>ROOT ERROR", "root_error", pd_cell_power },
                                     { "+AGGREGATE", NULL, aggregate_cell },
                                     { "WAITS FOR", NULL, waits_cell },
                                     { 0 } };

static const pd_list params_list = { PARAMD__LIST_KIND__LIST_PARAMS, "params", "no parameters", columns };

/* ---- remarks and errors ---- */

typedef struct output {
    pd_list_output list;
    /* Pattern of parameter names; NULL: all. It is compared with names here, since the daemon always lists all
     * parameters. */
    const char *pattern;
    bool any_roots;  /* at least one parameter of the list has matrix roots */
    json_t *remarks; /* text lines about parameters, for --verbose; NULL: the user does not want them */
    /* For each parameter's name the list of errors of its matrix roots; NULL: the user does not want them. */
    json_t *errors;
} output;

/* Adds a text line with the names of a parameter's dimensions and the optimizer's note on it. Adds none if the
 * parameter has neither. */
static void add_remark(json_t *remarks, const Paramd__ParamInfo *param)
{
    bool both = param->axes[0] != '\0' && param->note[0] != '\0';

    if (param->axes[0] == '\0' && param->note[0] == '\0') return;
    json_array_append_new(remarks, json_sprintf("%s: %s%s%s%s", param->name, param->axes[0] != '\0' ? "axes " : "",
                                                param->axes, both ? "; " : "", param->note));
}

/* Adds a text line for each scalar that was averaged in the parameter's last round. */
static void add_scalars(json_t *remarks, const Paramd__ParamInfo *param)
{
    for (size_t i = 0; i < param->n_scalars; i++)
        json_array_append_new(remarks, json_sprintf("%s: %s %.6g in step %llu, of weight %.6g", param->name,
                                                    param->scalars[i]->name, param->scalars[i]->value,
                                                    (unsigned long long)param->step, param->scalars[i]->weight));
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    output *out = arg;

    for (size_t i = 0; i < page->n_params; i++) {
        const Paramd__ParamInfo *param = page->params[i];
        if (out->pattern != NULL && fnmatch(out->pattern, param->name, 0) != 0) continue;
        pd_list_add(&out->list, &param->base);
        out->any_roots = out->any_roots || param->roots > 0;
        if (out->remarks == NULL) continue;
        add_remark(out->remarks, param);
        add_scalars(out->remarks, param);
    }
}

/* Adds the error of one matrix root to the list of its parameter. An error that is NaN becomes null, as JSON has no
 * NaN. */
static void add_error(json_t *errors, const Paramd__RootInfo *root)
{
    json_t *list = json_object_get(errors, root->param), *value;

    if (root->kept_error < 0) return;
    if (list == NULL) {
        list = json_array();
        json_object_set_new_nocheck(errors, root->param, list);
    }
    value = json_real(root->kept_error);
    json_array_append_new(list, value != NULL ? value : json_null());
}

static void add_errors(void *arg, const Paramd__ListReply *page)
{
    for (size_t i = 0; i < page->n_roots; i++) add_error(arg, page->roots[i]);
}

/* Fetches the errors of all matrix roots of a job. The daemon sends them with its list of roots, since a parameter
 * in the list of parameters may have many roots. */
static int fetch_errors(const pd_line *line, output *out, pd_error *err)
{
    if ((out->errors = json_object()) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_list_fetch(line, PARAMD__LIST_KIND__LIST_ROOTS, add_errors, out->errors, err);
}

static void merge_errors(const output *out)
{
    size_t i;
    json_t *param;

    json_array_foreach(out->list.json, i, param)
    {
        json_t *list = json_object_get(out->errors, json_string_value(json_object_get(param, "name")));
        if (list != NULL) json_object_set(param, "inverse_pth_root_errors", list);
    }
}

static void print_remarks(const json_t *remarks)
{
    size_t i;
    json_t *remark;

    json_array_foreach(remarks, i, remark) pd_print_line(stdout, "%s", json_string_value(remark));
}

static void print_errors(json_t *errors)
{
    const char *name;
    json_t *list, *value;
    size_t i, n;
    char *text;

    json_object_foreach(errors, name, list)
    {
        FILE *line = open_memstream(&text, &n);
        if (line == NULL) return;
        json_array_foreach(list, i, value) fprintf(line, " %.3g", json_number_value(value));
        fclose(line);
        pd_print_line(stdout, "%s: inverse_pth_root_errors%s", name, text);
        free(text);
    }
}

/* Checks that at least one parameter of the job matches the pattern on the command line. */
static int check_match(const output *out, int rc, pd_error *err)
{
    if (rc != PD_OK || out->pattern == NULL || out->list.n > 0) return rc;
    return pd_fail(err, PD_NOT_FOUND, "no parameter matches '%.200s'", out->pattern);
}

int pd_run_params(pd_line *line)
{
    bool verbose = pd_line_has(line, "verbose");
    output out = { .list = pd_list_begin(&params_list, line), .pattern = line->n_args > 1 ? line->args[1] : NULL };
    pd_error err = { 0 };
    int rc, status;

    out.remarks = verbose && !line->json ? json_array() : NULL;
    rc = pd_list_fetch(line, PARAMD__LIST_KIND__LIST_PARAMS, add_page, &out, &err);
    rc = check_match(&out, rc, &err);
    if (rc == PD_OK && out.any_roots && (line->json || verbose)) rc = fetch_errors(line, &out, &err);
    if (rc == PD_OK && line->json) merge_errors(&out);
    status = pd_list_end(&out.list, rc, &err);
    if (rc == PD_OK && !line->json) {
        print_remarks(out.remarks);
        print_errors(out.errors);
    }
    json_decref(out.remarks);
    json_decref(out.errors);
    return status;
}
