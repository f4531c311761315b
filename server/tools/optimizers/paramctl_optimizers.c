/* paramctl_optimizers.c - the program of `paramctl optimizers`: prints the optimizers of this release or of a
 * daemon, or the hyperparameters of one. Hyperparameters that form a list ("betas[0]", "betas[1]") share a row. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "connection.h"
#include "format.h"
#include "list_table.h"
#include "optimizers.h"
#include "programs.h"
#include "result.h"

/* Returns how many hyperparameters from index `first` on form one list NAME[0], NAME[1] ...; 1: the hyperparameter
 * is not part of a list. */
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

/* Adds a table cell with the names of all hyperparameters of an optimizer. */
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

static const pd_column columns[] = { { "OPTIMIZER", "name", pd_cell_text },
                                     { "&ABOUT", "about", pd_cell_text },
                                     { "+HYPERPARAMETERS", NULL, names_cell },
                                     { 0 } };

static const pd_list optimizers_list = { 0, "optimizers", "no optimizers", columns, .placed = false };

/* Adds a cell with the default values of a list of hyperparameters, such as "0.9,0.999". If all values are equal,
 * the cell shows the value once. */
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

/* Writes the range of numbers that a hyperparameter accepts: "0 to 1", "at least 1", "at most 1", "any number". A
 * bound at the limit of int32 counts as no bound. */
static void span_text(const Paramd__Hyper *hyper, char *text, size_t size)
{
    bool no_least = hyper->least <= INT32_MIN, no_most = hyper->most >= INT32_MAX;

    if (no_least && no_most)
        snprintf(text, size, "any number");
    else if (no_most)
        snprintf(text, size, "at least %.10g", hyper->least);
    else if (no_least)
        snprintf(text, size, "at most %.10g", hyper->most);
    else
        snprintf(text, size, "%.10g to %.10g", hyper->least, hyper->most);
}

/* Writes which values a hyperparameter accepts. Returns `text`. */
static char *range_text(const Paramd__Hyper *hyper, char *text, size_t size)
{
    bool ranged = strcmp(hyper->type, "real") == 0 || strcmp(hyper->type, "int") == 0;
    char span[96];

    span_text(hyper, span, sizeof span);
    if (ranged && isinf(hyper->least) && hyper->choices[0] != '\0')
        snprintf(text, size, "%s, or a number", hyper->choices);
    else if (ranged && hyper->choices[0] != '\0')
        snprintf(text, size, "%s; %g is %s", span, hyper->least, hyper->choices);
    else if (ranged)
        snprintf(text, size, "%s", span);
    else if (strcmp(hyper->type, "text") == 0)
        snprintf(text, size, "at most %.10g bytes", hyper->most);
    else
        snprintf(text, size, "%s", hyper->choices[0] != '\0' ? hyper->choices : "yes, no");
    return text;
}

/* Writes the help texts of hyperparameters that form a list: all of them if there are at most 3, otherwise only the
 * first. Returns `text`. */
static char *help_text(const Paramd__Optimizer *row, size_t first, size_t n, char text[512])
{
    size_t used = 0;

    text[0] = '\0';
    for (size_t k = 0; k < (n <= 3 ? n : 1); k++) {
        used += (size_t)snprintf(text + used, 512 - used, "%s%s", k > 0 ? "; " : "", row->hypers[first + k]->help);
        if (used >= 512) used = 511;
    }
    return text;
}

/* Adds a table row for n hyperparameters that form one list, or for a single one (n = 1). If `wide` is set, type and
 * range get cells of their own. */
static void hyper_row(pd_table *table, const Paramd__Optimizer *row, size_t first, size_t n, bool wide)
{
    const Paramd__Hyper *hyper = row->hypers[first];
    char range[192], help[512];

    range_text(hyper, range, sizeof range);
    pd_table_cell(table, "%.*s%s", n > 1 ? stem_of(hyper->name) : 64, hyper->name, n > 1 ? " (list)" : "");
    if (wide) pd_table_cell(table, "%s", hyper->type);
    presets_cell(table, row, first, n);
    if (wide) pd_table_cell(table, "%s", range);
    pd_table_cell(table, "%s", hyper->per_step ? "yes" : "no");
    if (wide)
        pd_table_cell(table, "%s", help_text(row, first, n, help));
    else
        pd_table_cell(table, "%s (%s)", help_text(row, first, n, help), range);
}

static int print_optimizer(const pd_line *line, const Paramd__Optimizer *row)
{
    pd_table *table = pd_table_new(line->wide ? "HYPERPARAMETER|TYPE|DEFAULT|RANGE|PER STEP|HELP"
                                              : "HYPERPARAMETER|DEFAULT|PER STEP|&HELP (VALUES)");
    size_t n;

    pd_print_line(stdout, "%s: %s", row->name, row->about);
    printf("\n");
    for (size_t k = 0; table != NULL && k < row->n_hypers; k += n) {
        n = length_of_list(row, k);
        hyper_row(table, row, k, n, line->wide);
    }
    return pd_result_table(line, table, "no hyperparameters");
}

/* Where the list of optimizers comes from: from the table in this program, or from a daemon. */
typedef struct source {
    /* The connection to the daemon; op.client NULL: there is none, and the list comes from the table in this program.
     * */
    pd_operator op;
    Paramd__OptimizersReply *page;
} source;

/* Fetches the next page of the list of optimizers into from->page. */
static int fetch_page(source *from, const Paramd__OptimizersRequest *request, pd_error *err)
{
    if (from->op.client != NULL)
        return pd_client_call(from->op.client, PD_OPTIMIZERS, &request->base, from->op.arena, (void **)&from->page,
                              err);
    pd_optimizers_free(from->page);
    from->page = NULL;
    return pd_optimizers_page(&from->page, pd_optim_at, request->start, request->name, err);
}

static void close_source(source *from)
{
    if (from->op.client == NULL) pd_optimizers_free(from->page);
    pd_operator_close(&from->op);
}

static int list_all(const pd_line *line, source *from)
{
    Paramd__OptimizersRequest request = PARAMD__OPTIMIZERS_REQUEST__INIT;
    pd_list_output out = pd_list_begin(&optimizers_list, line);
    pd_error err = { 0 };
    int rc;

    while ((rc = fetch_page(from, &request, &err)) == PD_OK) {
        for (size_t i = 0; i < from->page->n_optimizers; i++) pd_list_add(&out, &from->page->optimizers[i]->base);
        if (from->page->next <= request.start) break; /* the daemon sends next = 0 with the last page of optimizers */
        request.start = from->page->next;
    }
    return pd_list_end(&out, rc, &err);
}

/* Prints one optimizer with all its hyperparameters. */
static int show_one(const pd_line *line, source *from)
{
    Paramd__OptimizersRequest request = PARAMD__OPTIMIZERS_REQUEST__INIT;
    pd_error err = { 0 };
    int rc;

    request.name = line->args[0];
    rc = fetch_page(from, &request, &err);
    if (rc == PD_OK && from->page->n_optimizers != 1)
        rc = pd_fail(&err, PD_INTERNAL, "the daemon sent %zu optimizers, expected 1", from->page->n_optimizers);
    if (rc != PD_OK) return pd_result_fail(line->json, &err);
    if (line->json) return pd_result_json(pd_message_json(&from->page->optimizers[0]->base));
    return print_optimizer(line, from->page->optimizers[0]);
}

static int run(const pd_line *line)
{
    const char *first = line->asked->n_shards > 1 ? line->asked->shards[0] : line->server;
    source from = { 0 };
    pd_error err = { 0 };
    int status;

    if (line->server != NULL && pd_operator_open(&from.op, first, line->timeout, &err) != PD_OK)
        return pd_result_fail(line->json, &err);
    status = line->n_args > 0 ? show_one(line, &from) : list_all(line, &from);
    close_source(&from);
    return status;
}

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_OPTIMIZERS], argc, argv);

    pd_line_parse(&line);
    return run(&line);
}
