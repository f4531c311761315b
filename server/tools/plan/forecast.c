/* forecast.c - makes the plans of a model's parameters, and adds up the memory and computing that they need. */
#include "forecast.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "factor_rules.h"
#include "plan_bytes.h"
#include "plan_make.h"

static int64_t plus(int64_t a, int64_t b)
{
    int64_t sum;

    return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t times(int64_t a, int64_t b)
{
    int64_t product;

    return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

int64_t pd_kind_interval(const pd_kind *kind)
{
    int64_t interval = kind->due[1] - kind->due[0];

    return kind->n_due == 3 && kind->due[2] - kind->due[1] == interval ? interval : 0;
}

static bool is_due(const pd_kind *kind, int64_t count)
{
    const pd_hypers *hypers = &kind->rule->hypers;
    double value[PD_MAX_HYPERS];

    pd_hypers_at(hypers, count - 1, value);
    return hypers->row->due(&kind->plan, value, count, NULL);
}

/* Returns whether tasks still begin every pd_kind_interval steps in later steps. Tests only some steps: those after
 * ever larger multiples of the interval, in which tasks should begin, and steps near them, in which none should
 * begin. */
static bool goes_on(const pd_kind *kind)
{
    int64_t interval = pd_kind_interval(kind);
    const int64_t beside[] = { 0, 1, -1, interval / 2, interval / 3, interval / 5 };

    for (int64_t k = 4; interval > 0 && k <= 1 << 20; k *= 2)
        for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
            if (is_due(kind, kind->due[0] + k * interval + beside[i]) != (beside[i] % interval == 0)) return false;
    return interval > 0;
}

static void find_due(pd_kind *kind)
{
    if (kind->plan.n_tasks == 0) return;
    for (int64_t count = 1; kind->n_due < 3 && count <= PD_FORECAST_STEPS; count++)
        if (is_due(kind, count)) kind->due[kind->n_due++] = count;
    kind->goes_on = goes_on(kind);
}

/* Tables that are read while parameters are sorted by kind. */
typedef struct sorting {
    const pd_shapes *shapes;
    pd_rule *const *rule;   /* rule of each parameter */
    const uint64_t *digest; /* for each parameter a hash of its plan, if its name may change the plan; otherwise 0 */
} sorting;

static int compare_axes(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "");
}

static bool alike(const sorting *s, size_t a, size_t b)
{
    const pd_shape_entry *x = &s->shapes->entries[a], *y = &s->shapes->entries[b];

    return s->rule[a] == s->rule[b] && s->digest[a] == s->digest[b] && pd_shape_equal(&x->shape, &y->shape) &&
           compare_axes(x->axes, y->axes) == 0;
}

static int by_kind(const void *left, const void *right, void *sorting_)
{
    const sorting *s = sorting_;
    size_t a = *(const size_t *)left, b = *(const size_t *)right;
    const pd_shape *x = &s->shapes->entries[a].shape, *y = &s->shapes->entries[b].shape;
    int order;

    if (s->rule[a] != s->rule[b]) return s->rule[a] < s->rule[b] ? -1 : 1;
    if (x->rank != y->rank) return x->rank < y->rank ? -1 : 1;
    for (int d = 0; d < x->rank; d++)
        if (x->dim[d] != y->dim[d]) return x->dim[d] < y->dim[d] ? -1 : 1;
    if ((order = compare_axes(s->shapes->entries[a].axes, s->shapes->entries[b].axes)) != 0) return order;
    if (s->digest[a] != s->digest[b]) return s->digest[a] < s->digest[b] ? -1 : 1;
    return (a > b) - (a < b);
}

static int out_of_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory for plans");
}

/* Groups the parameters into kinds. The plans of the kinds, and the figures that follow from plans, are left empty. */
static int find_kinds(pd_forecast *f, pd_rule *const *rule, const uint64_t *digest, pd_error *err)
{
    const pd_shapes *shapes = f->shapes;
    sorting s = { shapes, rule, digest };
    size_t *order = malloc((shapes->n + 1) * sizeof *order);

    f->kinds = calloc(shapes->n + 1, sizeof *f->kinds);
    f->kind = calloc(shapes->n + 1, sizeof *f->kind);
    if (order == NULL || f->kinds == NULL || f->kind == NULL) {
        free(order);
        return out_of_memory(err);
    }
    for (size_t i = 0; i < shapes->n; i++) order[i] = i;
    qsort_r(order, shapes->n, sizeof *order, by_kind, &s);
    for (size_t k = 0; k < shapes->n; k++) {
        const pd_shape_entry *entry = &shapes->entries[order[k]];
        if (k == 0 || !alike(&s, order[k - 1], order[k]))
            f->kinds[f->n_kinds++] = (pd_kind){
                .rule = rule[order[k]], .shape = entry->shape, .axes = entry->axes, .elements = entry->elements
            };
        f->kind[order[k]] = &f->kinds[f->n_kinds - 1];
        f->kinds[f->n_kinds - 1].params++;
    }
    free(order);
    return PD_OK;
}

static int match_rules(pd_forecast *f, pd_rule **rule, pd_error *err)
{
    for (size_t i = 0; i < f->shapes->n; i++) {
        rule[i] = pd_rules_match(f->rules, f->n_rules, f->shapes->entries[i].name, NULL);
        if (rule[i] == NULL)
            return pd_fail(err, PD_INVALID_ARGUMENT, "parameter %.256s: no rule matches: add a catch-all \"* sgd\"",
                           f->shapes->entries[i].name);
    }
    return PD_OK;
}

/* Returns the declaration of a parameter, in the form from which the daemon makes its plan. */
static pd_declaration declaration_of(const pd_forecast *f, const pd_rule *rule, const pd_shape_entry *entry)
{
    return (pd_declaration){ .name = entry->name,
                             .shape = entry->shape,
                             .axes = entry->axes,
                             .hypers = rule->hypers,
                             .group = (int)(rule - f->rules),
                             .world = (int)f->job.world,
                             .seed = f->job.values.at[PD_JOB_KEY_SEED],
                             .start_step = (int64_t)f->job.values.at[PD_JOB_KEY_START_STEP],
                             .maps = f->maps };
}

static int survey(pd_forecast *f, pd_rule *const *rule, pd_error *err)
{
    pd_declaration *declarations = malloc((f->shapes->n + 1) * sizeof *declarations);

    f->stats = calloc(f->n_rules, sizeof *f->stats);
    if (declarations == NULL || f->stats == NULL) {
        free(declarations);
        return out_of_memory(err);
    }
    for (size_t i = 0; i < f->shapes->n; i++) declarations[i] = declaration_of(f, rule[i], &f->shapes->entries[i]);
    for (size_t r = 0; r < f->n_rules; r++)
        pd_model_stats_of(f->rules[r].hypers.row, declarations, f->shapes->n, f->stats[r]);
    free(declarations);
    return PD_OK;
}

static int make_plan(const pd_forecast *f, pd_kind *kind, const pd_shape_entry *entry, pd_error *err)
{
    pd_declaration declaration = declaration_of(f, kind->rule, entry);
    pd_error why;
    int rc = pd_plan_make(&kind->plan, &declaration, f->stats[kind->rule - f->rules], &why);

    if (rc == PD_OK) return PD_OK;
    return entry->line > 0 ? pd_fail(err, rc, "line %" PRId64 ", %.460s", entry->line, why.text)
                           : pd_fail(err, rc, "%s", why.text);
}

static bool has_text(const pd_rule *rule)
{
    size_t n;
    const pd_hyper *hypers = pd_optimizer_hypers(rule->hypers.row, &n);

    for (size_t i = 0; i < n; i++)
        if (hypers[i].type == PD_TEXT && rule->hypers.value[i] != 0) return true;
    return false;
}

/* Extends a digest (FNV-1a hash) by n bytes. Plans with equal digests count as equal. */
static uint64_t digested(uint64_t digest, const void *at, size_t n)
{
    for (size_t i = 0; i < n; i++) digest = (digest ^ ((const unsigned char *)at)[i]) * 0x100000001b3u;
    return digest;
}

static uint64_t digest_of(const pd_plan *plan)
{
    uint64_t digest = digested(0xcbf29ce484222325u, plan->note, strlen(plan->note) + 1);

    digest = digested(digest, plan->own, plan->own_bytes);
    digest = digested(digest, (const size_t[]){ plan->n_blocks, plan->n_tasks }, 2 * sizeof(size_t));
    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *spec = &plan->slots[i];
        digest = digested(digest, spec->name, strlen(spec->name) + 1);
        digest = digested(
            digest, (const int[]){ spec->number, spec->block, (int)spec->storage, spec->temporary, spec->shape.rank },
            5 * sizeof(int));
        digest = digested(digest, spec->shape.dim, sizeof spec->shape.dim);
        digest = digested(digest, spec->follows, sizeof spec->follows);
    }
    return digest | 1;
}

static int find_digests(const pd_forecast *f, pd_rule *const *rule, uint64_t *digest, pd_error *err)
{
    for (size_t i = 0; i < f->shapes->n; i++) {
        pd_kind alone = { .rule = rule[i] };
        int rc;
        digest[i] = 0;
        if (!has_text(rule[i])) continue;
        if ((rc = make_plan(f, &alone, &f->shapes->entries[i], err)) != PD_OK) return rc;
        digest[i] = digest_of(&alone.plan);
        pd_plan_free(&alone.plan);
    }
    return PD_OK;
}

/* Returns the element type in which workers push a parameter, if that is known. Model state is not quantized. */
static pd_dtype pushed_of(const pd_forecast *f, const pd_kind *kind)
{
    return kind->rule->hypers.row->takes_values && pd_dtype_is_quantized(f->job.pushed) ? (pd_dtype)0 : f->job.pushed;
}

static int measure(const pd_forecast *f, pd_kind *kind)
{
    static const bool pulled[4] = { [PD_F32] = true };

    if (pd_plan_thread_bytes(&kind->plan, &kind->thread_bytes) != PD_OK ||
        pd_footprint_of(&kind->need, &f->job, kind->how, &kind->plan, pushed_of(f, kind), false, pulled) != PD_OK)
        return PD_NO_MEMORY;
    kind->state_bytes = pd_plan_state_bytes(&kind->plan);
    kind->step_bytes = pd_plan_step_bytes(&kind->plan);
    kind->task_bytes = pd_plan_task_bytes(&kind->plan);
    for (size_t t = 0; t < kind->plan.n_tasks; t++) kind->task_flops += kind->plan.tasks[t].cost;
    find_due(kind);
    return PD_OK;
}

static void add_kind(pd_forecast_sum *sum, const pd_kind *kind)
{
    int64_t n = kind->params, interval = pd_kind_interval(kind);

    sum->params += n;
    sum->elements = plus(sum->elements, times(n, kind->elements));
    sum->weight_bytes = plus(sum->weight_bytes, times(n, kind->elements * (int64_t)sizeof(float)));
    sum->state_bytes = plus(sum->state_bytes, times(n, kind->state_bytes));
    sum->step_bytes = plus(sum->step_bytes, times(n, kind->step_bytes));
    sum->task_bytes = plus(sum->task_bytes, times(n, kind->task_bytes));
    sum->blocks = plus(sum->blocks, times(n, (int64_t)kind->plan.n_blocks));
    sum->tasks = plus(sum->tasks, times(n, (int64_t)kind->plan.n_tasks));
    if (kind->thread_bytes > sum->thread_bytes) sum->thread_bytes = kind->thread_bytes;
    pd_footprint_add(&sum->need, &kind->need, (uint64_t)n);
    sum->flops += (double)n * kind->plan.flops;
    sum->task_flops += (double)n * kind->task_flops;
    if (interval > 0) sum->task_flops_per_step += (double)n * kind->task_flops / (double)interval;
}

/* Adds the memory for one parameter's name to the sums. All other figures are equal within a kind. */
static void add_name(pd_forecast *f, const pd_kind *kind, const pd_shape_entry *entry)
{
    const pd_footprint name = { .records = pd_footprint_name(&f->job, entry->name, entry->axes) };

    pd_footprint_add(&f->of_rule[kind->rule - f->rules].need, &name, 1);
    pd_footprint_add(&f->all.need, &name, 1);
}

static int64_t bytes_of(const pd_kind *kind)
{
    return plus(kind->elements * (int64_t)sizeof(float), kind->state_bytes);
}

static int make_plans(pd_forecast *f, pd_error *err)
{
    if ((f->of_rule = calloc(f->n_rules, sizeof *f->of_rule)) == NULL) return out_of_memory(err);
    for (size_t i = 0; i < f->shapes->n; i++) {
        pd_kind *kind = f->kind[i];
        add_name(f, kind, &f->shapes->entries[i]);
        if (bytes_of(kind) > bytes_of(f->kind[f->largest])) f->largest = i;
        if (kind->plan.elements > 0) continue; /* an earlier parameter has made the kind's plan */
        kind->how = pd_aggregation_of(&f->job.values, kind->rule->hypers.row);
        int rc = pd_sizing_check_param(&f->job, kind->how, f->shapes->entries[i].name, err);
        if (rc == PD_OK) rc = make_plan(f, kind, &f->shapes->entries[i], err);
        if (rc != PD_OK) return rc;
        if (measure(f, kind) != PD_OK) return out_of_memory(err);
        add_kind(&f->of_rule[kind->rule - f->rules], kind);
        add_kind(&f->all, kind);
        if (bytes_of(kind) > bytes_of(f->kind[f->largest])) f->largest = i;
    }
    return PD_OK;
}

/* Sets if_durable, for a job that makes checkpoints only if its daemon can: the bytes that the daemon counts for
 * checkpoints. */
static int count_checkpoints(pd_forecast *f)
{
    static const bool pulled[4] = { [PD_F32] = true };
    pd_sizing job = f->job;
    pd_footprint all = { 0 }, one;

    if (job.values.at[PD_JOB_KEY_DURABILITY] != PD_DURABLE_IF_POSSIBLE) return PD_OK;
    job.durable = true;
    for (size_t i = 0; i < f->n_kinds; i++) {
        const pd_kind *kind = &f->kinds[i];
        if (pd_footprint_of(&one, &job, kind->how, &kind->plan, pushed_of(f, kind), false, pulled) != PD_OK)
            return PD_NO_MEMORY;
        pd_footprint_add(&all, &one, (uint64_t)kind->params);
    }
    pd_footprint_complete(&all, &job, f->rules, f->n_rules);
    f->if_durable = all.kept;
    return PD_OK;
}

pd_sizing pd_forecast_job(void)
{
    pd_sizing job = { .world = 1,
                      .chunk_elements = PD_CHUNK_MIB * 1048576 / sizeof(float),
                      .threads = 1,
                      .pool_threads = 1,
                      .fragments = 1 };

    pd_job_values_init(&job.values);
    return job;
}

int pd_forecast_make(pd_forecast *out, const pd_sizing *job, const pd_shapes *shapes, char *const *rules,
                     size_t n_rules, const pd_optimizer_ops *const *rows, pd_error *err)
{
    pd_rule **rule = malloc((shapes->n + 1) * sizeof *rule);
    uint64_t *digest = malloc((shapes->n + 1) * sizeof *digest);
    int rc = rule == NULL || digest == NULL ? out_of_memory(err) : PD_OK;

    *out = (pd_forecast){ .shapes = shapes, .job = *job };
    if (rc == PD_OK) rc = pd_sizing_check(&out->job, err);
    if (rc == PD_OK) rc = pd_rules_parse(&out->rules, &out->n_rules, rules, n_rules, rows, err);
    if (rc == PD_OK) rc = match_rules(out, rule, err);
    if (rc == PD_OK) rc = survey(out, rule, err);
    if (rc == PD_OK && (out->maps = pd_name_maps_new(2 * shapes->n)) == NULL) rc = out_of_memory(err);
    if (rc == PD_OK) rc = find_digests(out, rule, digest, err);
    if (rc == PD_OK) rc = find_kinds(out, rule, digest, err);
    if (rc == PD_OK) rc = make_plans(out, err);
    if (rc == PD_OK) pd_footprint_complete(&out->all.need, &out->job, out->rules, out->n_rules);
    if (rc == PD_OK && count_checkpoints(out) != PD_OK) rc = out_of_memory(err);
    pd_name_maps_free(out->maps);
    out->maps = NULL;
    free(rule);
    free(digest);
    if (rc != PD_OK) pd_forecast_free(out);
    return rc;
}

int pd_forecast_portion(pd_plan *plan, pd_footprint *need, const pd_forecast *f, size_t param, const pd_shape *shape,
                        pd_error *err)
{
    static const bool pulled[4] = { [PD_F32] = true };
    const pd_kind *kind = f->kind[param];
    pd_declaration declaration = declaration_of(f, kind->rule, &f->shapes->entries[param]);
    int rc;

    declaration.shape = *shape;
    if ((declaration.maps = pd_name_maps_new(2)) == NULL) return out_of_memory(err);
    rc = pd_plan_make(plan, &declaration, f->stats[kind->rule - f->rules], err);
    pd_name_maps_free(declaration.maps);
    if (rc != PD_OK) return rc;
    if (pd_footprint_of(need, &f->job, kind->how, plan, pushed_of(f, kind), false, pulled) == PD_OK) return PD_OK;
    pd_plan_free(plan);
    return out_of_memory(err);
}

void pd_forecast_free(pd_forecast *forecast)
{
    for (size_t k = 0; k < forecast->n_kinds; k++) pd_plan_free(&forecast->kinds[k].plan);
    free(forecast->kinds);
    free(forecast->kind);
    free(forecast->stats);
    free(forecast->of_rule);
    pd_rules_free(forecast->rules, forecast->n_rules);
    *forecast = (pd_forecast){ 0 };
}

static bool slots_alike(const pd_plan *plan, int a, int b)
{
    const pd_slot_spec *x = &plan->slots[a], *y = &plan->slots[b];

    return strcmp(x->name, y->name) == 0 && (x->number < 0) == (y->number < 0) && x->of_block == y->of_block &&
           pd_shape_equal(&x->shape, &y->shape) && x->storage == y->storage && x->diagonal_apart == y->diagonal_apart &&
           x->temporary == y->temporary && x->in_after == y->in_after;
}

static bool tasks_alike(const pd_plan *plan, int a, int b)
{
    const pd_task_spec *x = &plan->tasks[a], *y = &plan->tasks[b];

    if (x->n_inputs != y->n_inputs || x->n_outputs != y->n_outputs || x->exponent != y->exponent || x->cost != y->cost)
        return false;
    for (int k = 0; k < x->n_inputs; k++)
        if (!slots_alike(plan, x->input[k], y->input[k])) return false;
    for (int k = 0; k < x->n_outputs; k++)
        if (!slots_alike(plan, x->output[k], y->output[k])) return false;
    return true;
}

/* Sorts the indices of n slots or tasks by their group, and keeps their order within a group. group[i] is the group of
 * slot or task i. */
static void sort_into(pd_groups *g, const size_t *group, size_t n)
{
    for (size_t i = 0; i < n; i++) g->first[group[i] + 1]++;
    for (size_t k = 0; k < g->n; k++) g->first[k + 1] += g->first[k];
    for (size_t i = n; i-- > 0;) g->item[--g->first[group[i] + 1]] = (int)i;
    memmove(g->first, g->first + 1, g->n * sizeof *g->first);
    g->first[g->n] = n;
}

static int group(pd_groups *out, const pd_plan *plan, size_t n, bool (*are_alike)(const pd_plan *plan, int a, int b))
{
    size_t *of = malloc((n + 1) * sizeof *of);
    int *leader = malloc((n + 1) * sizeof *leader);

    *out = (pd_groups){ .item = malloc((n + 1) * sizeof *out->item), .first = calloc(n + 2, sizeof *out->first) };
    if (of == NULL || leader == NULL || out->item == NULL || out->first == NULL) {
        free(of);
        free(leader);
        pd_groups_free(out);
        return PD_NO_MEMORY;
    }
    for (size_t i = 0; i < n; i++) {
        size_t g = are_alike == NULL ? out->n : 0;
        while (g < out->n && !are_alike(plan, leader[g], (int)i)) g++;
        if (g == out->n) leader[out->n++] = (int)i;
        of[i] = g;
    }
    sort_into(out, of, n);
    free(of);
    free(leader);
    return PD_OK;
}

int pd_group_slots(pd_groups *out, const pd_plan *plan, bool apart)
{
    return group(out, plan, plan->n_slots, apart ? NULL : slots_alike);
}

int pd_group_tasks(pd_groups *out, const pd_plan *plan, bool apart)
{
    return group(out, plan, plan->n_tasks, apart ? NULL : tasks_alike);
}

void pd_groups_free(pd_groups *groups)
{
    free(groups->item);
    free(groups->first);
    *groups = (pd_groups){ 0 };
}
