/* forecast_text.c - prints a forecast as text: the parameters, their optimizer state and preconditioner tasks, and the
 * sums of their costs. */
#include "forecast.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "plan_bytes.h"
#include "optimizer_ops.h"
#include "text_table.h"

enum { NAME_LINES = 8 }; /* most lines with parameter names in one entry; further names are only counted */

/* A line with the name of one or more parameters that have the same plan. */
typedef struct line {
    const pd_kind *kind;
    /* Name of the line's parameters with * in place of each number; with --verbose the whole name. */
    char *pattern;
    size_t param, n; /* index of the first parameter that this line names, and number of its parameters */
    size_t head;     /* index of the first parameter of the line's entry: lines are sorted by entry */
} line;

typedef struct lines {
    line *at;
    size_t n;
} lines;

/* Returns a parameter's name with * in place of each number. The caller frees it. NULL: out of memory. */
static char *pattern_of(const char *name, bool verbose)
{
    char *pattern = strdup(name), *to = pattern;

    if (pattern == NULL || verbose) return pattern;
    for (const char *at = name; *at != '\0'; at++) {
        if (*at < '0' || *at > '9')
            *to++ = *at;
        else if (at == name || at[-1] < '0' || at[-1] > '9')
            *to++ = '*';
    }
    *to = '\0';
    return pattern;
}

static int by_likeness(const void *left, const void *right)
{
    const line *a = left, *b = right;
    int order = (a->kind > b->kind) - (a->kind < b->kind);

    if (order == 0) order = strcmp(a->pattern, b->pattern);
    return order != 0 ? order : (a->param > b->param) - (a->param < b->param);
}

static int by_place(const void *left, const void *right)
{
    const line *a = left, *b = right;

    return a->head != b->head ? (a->head > b->head) - (a->head < b->head)
                              : (a->param > b->param) - (a->param < b->param);
}

static void free_lines(lines *l)
{
    for (size_t i = 0; i < l->n; i++) free(l->at[i].pattern);
    free(l->at);
}

/* Makes a line for each parameter of the model, with its name. */
static int name_all(lines *l, const pd_forecast *f, bool verbose)
{
    if ((l->at = calloc(f->shapes->n, sizeof *l->at)) == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < f->shapes->n; i++) {
        char *pattern = pattern_of(f->shapes->entries[i].name, verbose);
        if (pattern == NULL) return PD_NO_MEMORY;
        l->at[l->n++] = (line){ f->kind[i], pattern, i, 1, i };
    }
    return PD_OK;
}

/* Merges lines of parameters that have the same plan and whose names differ only in numbers. The lines are sorted, so
 * such lines are neighbours. */
static void fold(lines *l)
{
    size_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        if (n > 0 && l->at[n - 1].kind == l->at[i].kind && strcmp(l->at[n - 1].pattern, l->at[i].pattern) == 0) {
            l->at[n - 1].n++;
            free(l->at[i].pattern);
        } else {
            l->at[n++] = l->at[i];
        }
    }
    l->n = n;
}

static void find_heads(lines *l)
{
    for (size_t first = 0, end; first < l->n; first = end) {
        size_t head = l->at[first].param;
        for (end = first; end < l->n && l->at[end].kind == l->at[first].kind; end++)
            if (l->at[end].param < head) head = l->at[end].param;
        for (size_t i = first; i < end; i++) l->at[i].head = head;
    }
}

/* Makes the lines with the parameters' names, in the order in which they are printed. PD_NO_MEMORY: out of memory. */
static int make_lines(lines *l, const pd_forecast *f, bool verbose)
{
    int rc = name_all(l, f, verbose);

    if (rc != PD_OK || verbose) return rc;
    qsort(l->at, l->n, sizeof *l->at, by_likeness);
    fold(l);
    find_heads(l);
    qsort(l->at, l->n, sizeof *l->at, by_place);
    return PD_OK;
}

enum { NAMES = 192 };

static int ascending(const void *left, const void *right)
{
    return (*(const int *)left > *(const int *)right) - (*(const int *)left < *(const int *)right);
}

/* Sorts n numbers and removes duplicates. Returns how many are left. */
static size_t distinct(int *number, size_t n)
{
    size_t kept = 0;

    qsort(number, n, sizeof *number, ascending);
    for (size_t i = 0; i < n; i++)
        if (kept == 0 || number[i] != number[kept - 1]) number[kept++] = number[i];
    return kept;
}

static bool evenly_spaced(const int *number, size_t n)
{
    for (size_t i = 2; i < n; i++)
        if (number[i] - number[i - 1] != number[1] - number[0]) return false;
    return true;
}

/* Appends a short form of a list of numbers after the first `used` bytes of `text`, such as "0 … 215", "0, 2 … 214"
 * or "1, 3, 5". Sorts the numbers and removes duplicates. Returns the new length. */
static size_t listed(char text[NAMES], size_t used, int *number, size_t n)
{
    size_t many = distinct(number, n), told;
    bool even = evenly_spaced(number, many);

    told = many > 2 && even && number[1] == number[0] + 1 ? 1 : many <= 4 ? many : even ? 2 : 3;
    for (size_t i = 0; i < told; i++)
        used += (size_t)snprintf(text + used, NAMES - used, "%s%d", i == 0 ? "" : ", ", number[i]);
    if (told < many) used += (size_t)snprintf(text + used, NAMES - used, " … %d", number[many - 1]);
    return used;
}

/* Writes the names of n slots that differ only in their numbers, such as "statistics.0 … 215", "momentum" or "block_0 …
 * 11.factor_matrices.0, 1". `number` is scratch memory for n numbers. */
static void numbered(char text[NAMES], const pd_plan *plan, const int *slot, size_t n, int *number)
{
    const pd_slot_spec *spec = &plan->slots[slot[0]];
    size_t used = 0;

    if (spec->of_block) {
        for (size_t i = 0; i < n; i++) number[i] = plan->slots[slot[i]].block;
        used = listed(text, (size_t)snprintf(text, NAMES, "block_"), number, n);
    }
    used += (size_t)snprintf(text + used, NAMES - used, "%s%.40s%s", spec->of_block ? "." : "", spec->name,
                             spec->number < 0 ? "" : ".");
    for (size_t i = 0; i < n; i++) number[i] = plan->slots[slot[i]].number;
    if (spec->number >= 0) listed(text, used, number, n);
}

static const char *stored_as(const pd_slot_spec *spec, char text[PD_CELL])
{
    if (spec->temporary) return "temporary";
    snprintf(text, PD_CELL, "%s%s", pd_storage_name(spec->storage), spec->diagonal_apart ? "+diagonal" : "");
    return text;
}

static int64_t memory_of(const pd_slot_spec *spec)
{
    return spec->temporary ? pd_slot_seen_bytes(spec) : pd_slot_bytes(spec);
}

/* Adds one row to the table for n slots that differ only in their numbers. */
static void slot_row(pd_table *table, const pd_slot_spec *spec, const char *names, int64_t n)
{
    char text[PD_CELL], shape[192];
    int64_t bytes;

    if (__builtin_mul_overflow(n, memory_of(spec), &bytes)) bytes = INT64_MAX;
    pd_table_cell(table, "  %s", names);
    pd_table_cell(table, "%s", pd_shape_text(&spec->shape, shape, sizeof shape));
    pd_table_cell(table, "%s", stored_as(spec, text));
    if (n > 1)
        pd_table_cell(table, "x%" PRId64, n);
    else
        pd_table_cell(table, "%s", "");
    /* A slot in the memory of the new weights takes no bytes of its own. */
    pd_table_cell(table, "%s", spec->in_after ? "-" : pd_bytes_text(text, (uint64_t)bytes));
}

static void slot_rows(pd_table *table, const pd_plan *plan, const pd_groups *slots, int *number)
{
    char names[NAMES];

    for (size_t g = 0; g < slots->n; g++) {
        size_t first = slots->first[g], n = slots->first[g + 1] - first;
        const pd_slot_spec *spec = &plan->slots[slots->item[first]];
        numbered(names, plan, slots->item + first, n, number);
        slot_row(table, spec, names, (int64_t)n);
    }
}

static const int *slots_of(const pd_task_spec *spec, bool outputs, int *n)
{
    *n = outputs ? spec->n_outputs : spec->n_inputs;
    return outputs ? spec->output : spec->input;
}

/* Finds the slots with this name among the inputs or the outputs of n tasks. Returns their number. */
static size_t slots_named(int *found, const pd_plan *plan, const int *task, size_t n, bool outputs, const char *name)
{
    size_t many = 0;

    for (size_t i = 0; i < n; i++) {
        int n_slots;
        const int *slot = slots_of(&plan->tasks[task[i]], outputs, &n_slots);
        for (int k = 0; k < n_slots; k++)
            if (strcmp(plan->slots[slot[k]].name, name) == 0) found[many++] = slot[k];
    }
    return many;
}

/* Lists the inputs or the outputs of n tasks by the names of their slots, such as "statistics.0 … 215; tally". `room`
 * is scratch memory, as in task_lines. */
static void task_slots(char text[2 * NAMES], const pd_plan *plan, const int *task, size_t n, bool outputs, int *room)
{
    int n_slots;
    const int *slot = slots_of(&plan->tasks[task[0]], outputs, &n_slots);
    size_t used = 0, many;

    *text = '\0';
    for (int k = 0; k < n_slots && used < 2 * NAMES; k++) {
        const char *name = plan->slots[slot[k]].name;
        char names[NAMES];
        bool seen = false;
        for (int j = 0; j < k; j++) seen = seen || strcmp(plan->slots[slot[j]].name, name) == 0;
        if (seen) continue;
        many = slots_named(room, plan, task, n, outputs, name);
        numbered(names, plan, room, many, room + many);
        used += (size_t)snprintf(text + used, 2 * NAMES - used, "%s%s", k > 0 ? "; " : "", names);
    }
}

static void task_line(pd_table *table, const pd_plan *plan, const int *task, size_t n, int *room)
{
    const pd_task_spec *spec = &plan->tasks[task[0]];
    char what[PD_CELL] = "", from[2 * NAMES], to[2 * NAMES], flops[PD_CELL], count[PD_CELL];

    if (spec->exponent != 0) snprintf(what, sizeof what, ", exponent -1/%g", spec->exponent);
    task_slots(from, plan, task, n, false, room);
    task_slots(to, plan, task, n, true, room);
    pd_table_line(table, "  %s task%s%s, %s%s", pd_count_text(count, n), n > 1 ? "s" : "", what,
                  pd_flops_text(flops, spec->cost), n > 1 ? " each" : "");
    if (strlen(from) + strlen(to) < 64) {
        pd_table_line(table, "    from %s to %s", from, to);
    } else {
        pd_table_line(table, "    from %s", from);
        pd_table_line(table, "    to   %s", to);
    }
}

/* Adds lines about all tasks of a plan to the table. `room` is scratch memory for numbers: twice as many as all tasks
 * have inputs, or twice as many as they have outputs, whichever is more. */
static void task_lines(pd_table *table, const pd_plan *plan, const pd_groups *tasks, int *room)
{
    for (size_t g = 0; g < tasks->n; g++)
        task_line(table, plan, tasks->item + tasks->first[g], tasks->first[g + 1] - tasks->first[g], room);
}

/* Writes when a step uses the results of tasks, such as "in the same step" or "from 20 steps later on". */
static void when_used(char text[64], const pd_plan *plan)
{
    if (plan->root_delay == PD_ROOT_READY)
        snprintf(text, 64, "as soon as they are ready: not the same bits in every run");
    else if (plan->root_delay == 0)
        snprintf(text, 64, "in the same step");
    else
        snprintf(text, 64, "from %d step%s later on", plan->root_delay, plan->root_delay > 1 ? "s" : "");
}

static void due_line(pd_table *table, const pd_kind *kind)
{
    const char *at_first = kind->goes_on ? "" : " at first";
    char steps[128] = "", used[64];
    int64_t interval = pd_kind_interval(kind);
    size_t at = 0;

    for (int i = 0; i < kind->n_due; i++)
        at += (size_t)snprintf(steps + at, sizeof steps - at, "%s%" PRId64, i > 0 ? ", " : "", kind->due[i]);
    when_used(used, &kind->plan);
    if (kind->n_due == 0)
        pd_table_line(table, "  due in none of the first %d steps", PD_FORECAST_STEPS);
    else if (kind->n_due < 3)
        pd_table_line(table, "  due in steps %s and no other of the first %d, used %s", steps, PD_FORECAST_STEPS, used);
    else if (interval == 1 && kind->due[0] == 1)
        pd_table_line(table, "  due in every step%s, used %s", at_first, used);
    else if (interval == 1)
        pd_table_line(table, "  due in every step from %" PRId64 " on%s, used %s", kind->due[0], at_first, used);
    else if (interval > 1)
        pd_table_line(table, "  due every %" PRId64 " steps%s (%s …), used %s", interval, at_first, steps, used);
    else
        pd_table_line(table, "  due in steps %s …, used %s", steps, used);
}

/* Adds a line about the blocks into which the optimizer cuts a parameter, such as "6 blocks of at most (3, 3), 1.2
 * kflop a step". If the optimizer merges dimensions before it cuts, the line begins with the merged shape. */
static void blocks_line(pd_table *table, const pd_kind *kind)
{
    const pd_plan *plan = &kind->plan;
    bool alike = true, merged = !pd_shape_equal(&plan->shape, &kind->shape);
    pd_shape most = { .rank = plan->shape.rank };
    char size[192], shape[192], count[PD_CELL], flops[PD_CELL];

    for (size_t b = 0; b < plan->n_blocks; b++)
        for (int d = 0; d < most.rank; d++) {
            alike = alike && plan->blocks[b].size[d] == plan->blocks[0].size[d];
            if (plan->blocks[b].size[d] > most.dim[d]) most.dim[d] = plan->blocks[b].size[d];
        }
    pd_table_line(table, "  %s%s%s block%s of %s%s, %s a step",
                  merged ? pd_shape_text(&plan->shape, shape, sizeof shape) : "", merged ? " in " : "",
                  pd_count_text(count, plan->n_blocks), plan->n_blocks > 1 ? "s" : "", alike ? "" : "at most ",
                  pd_shape_text(&most, size, sizeof size), pd_flops_text(flops, plan->flops));
}

static void state_line(pd_table *table, const pd_kind *kind, size_t n)
{
    char each[PD_CELL], all[PD_CELL];
    const char *optimizer = pd_optimizer_name(kind->rule->hypers.row);
    int64_t bytes;

    if (__builtin_mul_overflow(kind->state_bytes, (int64_t)n, &bytes)) bytes = INT64_MAX;
    pd_bytes_text(each, (uint64_t)kind->state_bytes);
    if (n > 1)
        pd_table_line(table, "  %s: state %s each, %s of all %zu", optimizer, each, pd_bytes_text(all, (uint64_t)bytes),
                      n);
    else
        pd_table_line(table, "  %s: state %s", optimizer, each);
}

/* Adds a line about memory for gradients, if the aggregate needs those of all workers until the round closes. */
static void gather_line(pd_table *table, const pd_kind *kind, size_t n)
{
    char each[PD_CELL], all[PD_CELL], how[32];
    uint64_t bytes;

    if (kind->need.collected == 0) return;
    if (__builtin_mul_overflow(kind->need.collected, n, &bytes)) bytes = UINT64_MAX;
    pd_aggregation_text(kind->how, how, sizeof how);
    pd_bytes_text(each, kind->need.collected);
    if (n > 1)
        pd_table_line(table, "  %s: holds %s each, %s of all %zu", how, each, pd_bytes_text(all, bytes), n);
    else
        pd_table_line(table, "  %s: holds %s", how, each);
}

/* Adds the first lines of an entry: the names of its parameters. Returns the number of parameters. */
static size_t heading(pd_table *table, const pd_forecast *f, const line *at, size_t n)
{
    size_t params = 0, shown = n > NAME_LINES ? NAME_LINES - 1 : n, others = 0;

    for (size_t i = 0; i < n; i++) {
        params += at[i].n;
        if (i >= shown)
            others += at[i].n;
        else if (at[i].n > 1)
            pd_table_line(table, "%s  x%zu", at[i].pattern, at[i].n);
        else
            pd_table_line(table, "%s", f->shapes->entries[at[i].param].name);
    }
    if (others > 0) pd_table_line(table, "and %zu others", others);
    return params;
}

/* Adds lines about the slots and tasks of one parameter. `room` is scratch memory for numbers: at least one for each
 * slot, and as many as task_lines needs. */
static void body(pd_table *table, const pd_kind *kind, const pd_groups *slots, const pd_groups *tasks, int *room)
{
    const pd_slot_spec weights = { .name = "weights", .number = -1, .shape = kind->shape };

    if (kind->axes != NULL) pd_table_line(table, "  axes %s", kind->axes);
    slot_row(table, &weights, "weights", 1);
    slot_rows(table, &kind->plan, slots, room);
    if (kind->plan.n_blocks > 0) blocks_line(table, kind);
    task_lines(table, &kind->plan, tasks, room);
    if (kind->plan.n_tasks > 0) due_line(table, kind);
    if (kind->plan.note[0] != '\0') pd_table_line(table, "  note: %s", kind->plan.note);
}

/* Adds the entry of a kind. The n lines from `at` on have the names of its parameters. */
static int add_entry(pd_table *table, const pd_forecast *f, const line *at, size_t n, bool verbose)
{
    const pd_plan *plan = &at->kind->plan;
    pd_groups slots = { 0 }, tasks = { 0 };
    int *room = malloc((plan->n_slots + 2 * plan->n_tasks * PD_MAX_TASK_TENSORS + 1) * sizeof *room), rc = PD_NO_MEMORY;

    if (room != NULL && pd_group_slots(&slots, plan, verbose) == PD_OK &&
        pd_group_tasks(&tasks, plan, verbose) == PD_OK) {
        size_t params = heading(table, f, at, n);
        state_line(table, at->kind, params);
        gather_line(table, at->kind, params);
        body(table, at->kind, &slots, &tasks, room);
        rc = PD_OK;
    }
    pd_groups_free(&slots);
    pd_groups_free(&tasks);
    free(room);
    return rc;
}

static int add_entries(pd_table *table, const pd_forecast *f, const lines *l, bool verbose)
{
    for (size_t first = 0, end; first < l->n; first = end) {
        for (end = first; end < l->n && l->at[end].head == l->at[first].head; end++) {}
        if (add_entry(table, f, &l->at[first], end - first, verbose) != PD_OK) return PD_NO_MEMORY;
    }
    return PD_OK;
}

static int print_rules(const pd_forecast *f, FILE *out)
{
    pd_table *table = pd_table_new(">PARAMS|>ELEMENTS|>WEIGHTS|>STATE|RULE");
    char text[PD_CELL];

    for (size_t r = 0; r < f->n_rules; r++) {
        pd_table_cell(table, "%s", pd_count_text(text, (uint64_t)f->of_rule[r].params));
        pd_table_cell(table, "%s", pd_count_text(text, (uint64_t)f->of_rule[r].elements));
        pd_table_cell(table, "%s", pd_bytes_text(text, (uint64_t)f->of_rule[r].weight_bytes));
        pd_table_cell(table, "%s", pd_bytes_text(text, (uint64_t)f->of_rule[r].state_bytes));
        pd_table_cell(table, "%s", f->rules[r].text);
    }
    return pd_table_print(table, out, "no rules");
}

static void print_stats(const pd_forecast *f, FILE *out)
{
    for (size_t r = 0; r < f->n_rules; r++) {
        const pd_optimizer_ops *row = f->rules[r].hypers.row;
        bool told = f->of_rule[r].params == 0 || row->stats == NULL;
        for (size_t before = 0; before < r; before++)
            told = told || (f->rules[before].hypers.row == row && f->of_rule[before].params > 0);
        for (size_t k = 0; !told && row->stats[k].name != NULL; k++)
            fprintf(out, "fact         %s: %s %g\n", row->name, row->stats[k].name, f->stats[r][k]);
    }
}

static void print_step(const pd_forecast_sum *sum, FILE *out)
{
    char a[PD_CELL], b[PD_CELL];

    if (sum->flops > 0) fprintf(out, "step         %s in products of matrices\n", pd_flops_text(a, sum->flops));
    if (sum->step_bytes > 0 || sum->thread_bytes > 0)
        fprintf(out, "temporary    %s if all parameters step at once, %s for each thread\n",
                pd_bytes_text(a, (uint64_t)sum->step_bytes), pd_bytes_text(b, (uint64_t)sum->thread_bytes));
}

static void print_tasks(const pd_forecast_sum *sum, FILE *out)
{
    char a[PD_CELL], b[PD_CELL], c[PD_CELL];

    if (sum->tasks == 0) return;
    fprintf(out, "tasks        %s, %s when all are due", pd_count_text(a, (uint64_t)sum->tasks),
            pd_flops_text(b, sum->task_flops));
    if (sum->task_flops_per_step > 0)
        fprintf(out, ", %s a step on average", pd_flops_text(c, sum->task_flops_per_step));
    fprintf(out, "\n             %s of copies and results while they are under way\n",
            pd_bytes_text(a, (uint64_t)sum->task_bytes));
}

/* Prints how many bytes the daemon will count against its memory limit, by purpose. */
static void print_memory(const pd_forecast *f, FILE *out)
{
    const pd_footprint *need = &f->all.need;
    const struct {
        uint64_t bytes;
        const char *purpose;
    } parts[] = {
        { need->weights, "weights, published and to come" },          { need->sums, "sums of gradients" },
        { need->collected, "contributions of all workers at once" },  { need->state, "optimizer state" },
        { need->roots, "roots under way, copies and results" },       { need->step, "temporaries of steps" },
        { need->job, "scratch of steps, roots and clipping" },        { need->records, "records of rounds and plans" },
        { need->kept, "a checkpoint: copies of state, old weights" },
    };
    char text[PD_CELL], all[PD_CELL];

    fprintf(out, "memory       %s in the daemon: ", pd_bytes_text(text, pd_footprint_sum(need)));
    fprintf(out, "%u worker%s, aggregate = %s, threads %d + %d\n", f->job.world, f->job.world > 1 ? "s" : "",
            pd_job_values_text(&f->job.values, PD_JOB_KEY_AGGREGATE, text, sizeof text), f->job.threads,
            f->job.pool_threads);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        if (parts[i].bytes > 0)
            fprintf(out, "             %9s  %s\n", pd_bytes_text(text, parts[i].bytes), parts[i].purpose);
    if (f->if_durable > 0)
        fprintf(out, "             %9s  more for a checkpoint, if the daemon makes some (server.state_dir): %s\n",
                pd_bytes_text(text, f->if_durable),
                pd_bytes_text(all, pd_footprint_plus(pd_footprint_sum(need), f->if_durable)));
}

static void print_sums(const pd_forecast *f, FILE *out)
{
    const pd_forecast_sum *sum = &f->all;
    const pd_kind *largest = f->kind[f->largest];
    char a[PD_CELL], b[PD_CELL];

    fprintf(out, "parameters   %s of %s elements", pd_count_text(a, (uint64_t)sum->params),
            pd_count_text(b, (uint64_t)sum->elements));
    if (sum->blocks > 0) fprintf(out, ", %s blocks", pd_count_text(a, (uint64_t)sum->blocks));
    if (f->shapes->left_out > 0)
        fprintf(out, "; %zu tensors that are not floating point are left out", f->shapes->left_out);
    fprintf(out, "\nweights      %s\n", pd_bytes_text(a, (uint64_t)sum->weight_bytes));
    fprintf(out, "state        %s, %.2f of the weights\n", pd_bytes_text(a, (uint64_t)sum->state_bytes),
            (double)sum->state_bytes / (double)sum->weight_bytes);
    print_step(sum, out);
    print_tasks(sum, out);
    fprintf(out, "largest      %s: %s of weights, %s of state\n", f->shapes->entries[f->largest].name,
            pd_bytes_text(a, (uint64_t)largest->elements * sizeof(float)),
            pd_bytes_text(b, (uint64_t)largest->state_bytes));
    print_stats(f, out);
    print_memory(f, out);
}

int pd_forecast_print(const pd_forecast *f, bool verbose, FILE *out, pd_error *err)
{
    lines l = { 0 };
    pd_table *table = pd_table_new("PARAMETER|SHAPE|STORED|>COUNT|>BYTES");
    int rc = table == NULL ? PD_NO_MEMORY : make_lines(&l, f, verbose);

    if (rc == PD_OK) rc = add_entries(table, f, &l, verbose);
    free_lines(&l);
    if (rc == PD_OK)
        rc = pd_table_print(table, out, "no parameters");
    else
        pd_table_free(table);
    fputc('\n', out);
    if (rc == PD_OK) rc = print_rules(f, out);
    fputc('\n', out);
    if (rc != PD_OK) return pd_fail(err, rc, "out of memory");
    print_sums(f, out);
    return PD_OK;
}
