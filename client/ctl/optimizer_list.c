/* optimizer_list.c - optimizers and their hyperparameters as text. Lists ("betas[0]", "betas[1]") show as one. */
#include "optimizer_list.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "list_table.h"
#include "reflect.h"
#include "result.h"

/* Returns the number of hyperparameters from `first` on that form one list, NAME[0], NAME[1] ...; 1: no list. */
static size_t length_of_list(const Paramd__Optimizer *row, size_t first)
{
    const char *name = row->hypers[first]->name, *bracket = strchr(name, '[');
    size_t n = 1, stem = bracket != NULL ? (size_t)(bracket - name) + 1 : 0;

    if (bracket == NULL) return 1;
    while (first + n < row->n_hypers && strncmp(row->hypers[first + n]->name, name, stem) == 0) n++;
    return n;
}

static int stem_of(const char *name)
{
    return (int)strcspn(name, "[");
}

/* Lists the names of all hyperparameters. */
static void names_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__Optimizer *row = entry;
    char *names = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&names, &size);

    (void)column;
    for (size_t k = 0; out != NULL && k < row->n_hypers; k += length_of_list(row, k))
        fprintf(out, "%s%.*s", k == 0 ? "" : " ", stem_of(row->hypers[k]->name), row->hypers[k]->name);
    if (out != NULL) fclose(out);
    pd_table_cell(table, "%s", names != NULL ? names : "");
    free(names);
}

static const pd_column columns[] = {
    { "OPTIMIZER", "name", pd_cell_text },
    { "ABOUT", "about", pd_cell_text },
    { "HYPERPARAMETERS", NULL, names_cell },
    { 0 }
};

static const pd_list optimizers_list = { 0, "optimizers", "no optimizers", columns };

/* ---- one optimizer ---- */

/* "0.9,0.999"; a single value if all are equal. */
static void presets_cell(pd_table *table, const Paramd__Optimizer *row, size_t first, size_t n)
{
    char text[256] = "";
    size_t used = 0;
    bool alike = true;

    for (size_t k = 0; k < n; k++) {
        const char *preset = row->hypers[first + k]->preset;
        alike = alike && strcmp(preset, row->hypers[first]->preset) == 0;
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", k > 0 ? "," : "", preset);
        if (used >= sizeof text) used = sizeof text - 1;
    }
    pd_table_cell(table, "%s", alike ? row->hypers[first]->preset : text);
}

static void range_cell(pd_table *table, const Paramd__Hyper *hyper)
{
    bool ranged = strcmp(hyper->type, "real") == 0 || strcmp(hyper->type, "int") == 0;

    if (ranged && isinf(hyper->least) && hyper->choices[0] != '\0')
        pd_table_cell(table, "%s, or a number", hyper->choices);
    else if (ranged && hyper->choices[0] != '\0')
        pd_table_cell(table, "%g to %g; %g is %s", hyper->least, hyper->most, hyper->least, hyper->choices);
    else if (ranged) pd_table_cell(table, "%g to %g", hyper->least, hyper->most);
    else if (strcmp(hyper->type, "text") == 0) pd_table_cell(table, "at most %g bytes", hyper->most);
    else pd_table_cell(table, "%s", hyper->choices[0] != '\0' ? hyper->choices : "yes, no");
}

/* Explains each entry of a short list, and only the first of a long one. */
static void help_cell(pd_table *table, const Paramd__Optimizer *row, size_t first, size_t n)
{
    char text[512] = "";
    size_t used = 0;

    for (size_t k = 0; k < n && n <= 3; k++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%s", k > 0 ? "; " : "",
                                 row->hypers[first + k]->help);
        if (used >= sizeof text) used = sizeof text - 1;
    }
    pd_table_cell(table, "%s", n <= 3 ? text : row->hypers[first]->help);
}

static int print_optimizer(const Paramd__Optimizer *row)
{
    pd_table *table = pd_table_new("HYPERPARAMETER|TYPE|DEFAULT|RANGE|PER STEP|HELP");
    size_t n;

    pd_print_line(stdout, "%s: %s", row->name, row->about);
    printf("\n");
    for (size_t k = 0; table != NULL && k < row->n_hypers; k += n) {
        const Paramd__Hyper *hyper = row->hypers[k];
        n = length_of_list(row, k);
        if (n > 1) pd_table_cell(table, "%.*s (list)", stem_of(hyper->name), hyper->name);
        else pd_table_cell(table, "%s", hyper->name);
        pd_table_cell(table, "%s", hyper->type);
        presets_cell(table, row, k, n);
        range_cell(table, hyper);
        pd_table_cell(table, "%s", hyper->per_step ? "yes" : "no");
        help_cell(table, row, k, n);
    }
    pd_table_print(table, stdout, "no hyperparameters");
    return PD_EXIT_OK;
}

/* ---- the command ---- */

static int list_optimizers(const pd_line *line, pd_list_output *out, pd_error *err)
{
    Paramd__OptimizersRequest request = PARAMD__OPTIMIZERS_REQUEST__INIT;
    Paramd__OptimizersReply *page = NULL;
    pd_operator op;
    int rc = pd_operator_open(&op, line->server, line->timeout, err);

    while (rc == PD_OK) {
        rc = pd_client_call(op.client, PD_OPTIMIZERS, &request.base, op.arena, (void **)&page, err);
        for (size_t i = 0; rc == PD_OK && i < page->n_optimizers; i++) pd_list_add(out, &page->optimizers[i]->base);
        if (rc != PD_OK || page->next <= request.start) break;          /* 0: that was the last */
        request.start = page->next;
    }
    pd_operator_close(&op);
    return rc;
}

/* Shows one optimizer with all its hyperparameters. */
static int show_optimizer(const pd_line *line)
{
    Paramd__OptimizersRequest request = PARAMD__OPTIMIZERS_REQUEST__INIT;
    const pd_error others = { PD_INTERNAL, "the server answers with other optimizers" };
    pd_operator op;
    pd_error err = { 0 };
    Paramd__OptimizersReply *page = NULL;
    int status;

    request.name = line->args[0];
    if (pd_operator_ask(line, &op, PD_OPTIMIZERS, &request.base, (void **)&page, &err) != PD_OK)
        status = pd_result_fail(line->json, &err);
    else if (page->n_optimizers != 1) status = pd_result_fail(line->json, &others);
    else if (line->json) status = pd_result_json(pd_message_json(&page->optimizers[0]->base));
    else status = print_optimizer(page->optimizers[0]);
    pd_operator_close(&op);
    return status;
}

int pd_run_optimizers(pd_line *line)
{
    pd_list_output out;
    pd_error err = { 0 };

    pd_line_parse(line, NULL);
    if (line->n_args > 0) return show_optimizer(line);
    out = pd_list_begin(&optimizers_list, line->json);
    return pd_list_end(&out, list_optimizers(line, &out, &err), &err);
}
