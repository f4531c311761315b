/* shard_plan.c - forecasts how a model is spread over the daemons of a cluster. */
#include "shard_plan.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How the parameters of one kind are cut. All portions have equal costs, but for the last one. */
typedef struct cutting {
    bool known;
    pd_uncut why;
    int64_t rows;            /* of each portion */
    pd_portion_cost cost[2]; /* of a portion; of the last one */
    pd_footprint need[2];
} cutting;

/* The portions of a model while they are placed. */
typedef struct spreading {
    const pd_forecast *f;
    uint32_t shards;
    pd_cut_rule rule;    /* without `how`, which depends on the parameter */
    cutting *kinds;      /* of each kind */
    uint32_t *fragments; /* of each parameter, if not every rank counts in each step: then each lies on one shard */
    pd_portion *portions;
    pd_placed *list;
    size_t n;
} spreading;

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory for portions");
}

static int64_t rows_of(const pd_shape *shape)
{
    return shape->rank > 0 ? shape->dim[0] : 1;
}

/* Computes the costs of one portion of a parameter of this kind. *fits: its blocks are cut as the parameter's are. */
static int measure(const spreading *s, size_t param, const pd_portion *portion, pd_portion_cost *cost,
                   pd_footprint *need, bool *fits, pd_error *err)
{
    const pd_kind *kind = s->f->kind[param];
    pd_shape shape = pd_portion_shape(&kind->shape, portion);
    pd_plan plan;
    int rc = pd_forecast_portion(&plan, need, s->f, param, &shape, err);

    if (rc != PD_OK) return rc;
    *fits = pd_cut_fits(&kind->plan, &plan);
    *cost = pd_portion_cost_of(&plan, need, pd_portion_root_interval(&kind->rule->hypers, &kind->plan));
    pd_plan_free(&plan);
    return PD_OK;
}

/* Computes the costs of a parameter that is not cut. */
static void measure_whole(const pd_kind *kind, cutting *c)
{
    c->need[0] = c->need[1] = kind->need;
    c->cost[0] =
        pd_portion_cost_of(&kind->plan, &kind->need, pd_portion_root_interval(&kind->rule->hypers, &kind->plan));
    c->cost[1] = c->cost[0];
}

/* Decides how the parameters of a kind are cut. `param` is one of them. */
static int cut_kind(const spreading *s, size_t param, cutting *c, pd_error *err)
{
    const pd_kind *kind = s->f->kind[param];
    pd_cut_rule rule = s->rule;
    int64_t last;
    bool fits = true;
    int rc = PD_OK;

    *c = (cutting){ .known = true, .rows = rows_of(&kind->shape), .why = PD_UNCUT_SMALL };
    rule.how = kind->how;
    if (s->shards > 1) c->why = pd_cut_rows(&c->rows, &rule, kind->rule->hypers.row, &kind->shape, &kind->plan);
    last = pd_portions_count(&kind->shape, c->rows) - 1;
    for (int i = 0; c->why == PD_IS_CUT && i < 2 && fits && rc == PD_OK; i++) {
        pd_portion portion = pd_portion_at(&kind->shape, c->rows, i == 0 ? 0 : last);
        rc = measure(s, param, &portion, &c->cost[i], &c->need[i], &fits, err);
    }
    if (!fits) {
        c->why = PD_UNCUT_ROWS;
        c->rows = rows_of(&kind->shape);
    }
    if (c->why != PD_IS_CUT) measure_whole(kind, c);
    return rc;
}

static cutting *cutting_of(const spreading *s, size_t param)
{
    return &s->kinds[s->f->kind[param] - s->f->kinds];
}

static int64_t portions_of(const spreading *s, size_t param)
{
    const cutting *c = cutting_of(s, param);

    return c->why == PD_IS_CUT ? pd_portions_count(&s->f->kind[param]->shape, c->rows) : 1;
}

/* Cuts the model into runs of parameters of about equal size, as many as the job has fragments: nobody has said yet
 * which parameters are in which. */
static int cut_fragments(spreading *s, pd_error *err)
{
    const pd_forecast *f = s->f;
    double before = 0;

    if (!f->job.sets.open) return PD_OK;
    if ((s->fragments = calloc(f->shapes->n, sizeof *s->fragments)) == NULL) return no_memory(err);
    for (size_t i = 0; i < f->shapes->n; i++) {
        double own = (double)f->kind[i]->elements, middle = before + own / 2;
        s->fragments[i] = (uint32_t)(middle * f->job.fragments / (double)f->all.elements);
        before += own;
    }
    return PD_OK;
}

/* Lists the portions of all parameters with their costs. */
static int list_portions(spreading *s, pd_error *err)
{
    size_t n = 0;

    for (size_t i = 0; i < s->f->shapes->n; i++) {
        cutting *c = cutting_of(s, i);
        int rc = c->known ? PD_OK : cut_kind(s, i, c, err);
        if (rc != PD_OK) return rc;
        n += (size_t)portions_of(s, i);
    }
    s->portions = calloc(n + 1, sizeof *s->portions);
    s->list = calloc(n + 1, sizeof *s->list);
    if (s->portions == NULL || s->list == NULL) return no_memory(err);
    for (size_t i = 0; i < s->f->shapes->n; i++) {
        const cutting *c = cutting_of(s, i);
        int64_t many = portions_of(s, i);
        for (int64_t k = 0; k < many; k++, s->n++) {
            s->portions[s->n] = pd_portion_at(&s->f->kind[i]->shape, c->rows, k);
            s->portions[s->n].param = (uint32_t)i;
            s->list[s->n] = (pd_placed){ .portion = &s->portions[s->n],
                                         .name = s->f->shapes->entries[i].name,
                                         .cost = c->cost[k == many - 1],
                                         .together = s->fragments != NULL ? s->fragments[i] : UINT32_MAX };
        }
    }
    return PD_OK;
}

/* Writes the name of a portion, such as "wte, rows 0 to 12287 of 50257". */
static void name_portion(char *text, size_t size, const pd_forecast *f, const pd_portion *portion)
{
    const pd_kind *kind = f->kind[portion->param];
    int64_t row = kind->elements / rows_of(&kind->shape);

    if (portion->count == kind->elements)
        snprintf(text, size, "%.200s", f->shapes->entries[portion->param].name);
    else
        snprintf(text, size, "%.200s, rows %" PRId64 " to %" PRId64 " of %" PRId64,
                 f->shapes->entries[portion->param].name, portion->first / row,
                 (portion->first + portion->count) / row - 1, rows_of(&kind->shape));
}

/* What one shard holds. */
typedef struct holding {
    pd_footprint need;
    size_t portions;
} holding;

/* Adds the portions of all shards. */
static void add_portions(holding *shards, const spreading *s)
{
    for (size_t i = 0; i < s->n; i++) {
        const pd_portion *portion = &s->portions[i];
        const pd_shape_entry *entry = &s->f->shapes->entries[portion->param];
        const pd_footprint name = { .records = pd_footprint_name(&s->f->job, entry->name, entry->axes) };
        bool is_last = portion->first + portion->count == entry->elements;
        pd_footprint_add(&shards[portion->shard].need, &cutting_of(s, portion->param)->need[is_last], 1);
        pd_footprint_add(&shards[portion->shard].need, &name, 1);
        shards[portion->shard].portions++;
    }
}

/* Returns the bytes of the whole declaration on a shard that has this number of portions. */
static uint64_t whole_bytes(const spreading *s, size_t own)
{
    const pd_shapes *shapes = s->f->shapes;
    uint64_t bytes = pd_placement_bytes(shapes->n, s->n, own, s->f->job.world);

    for (size_t i = 0; i < shapes->n; i++)
        bytes += pd_footprint_name(&s->f->job, shapes->entries[i].name, shapes->entries[i].axes);
    return bytes;
}

/* Computes the memory of the shard that takes most. */
static int find_memory(pd_shard_plan *out, const spreading *s, pd_error *err)
{
    holding *all = calloc(s->shards, sizeof *all);
    pd_sizing job = s->f->job;

    if (all == NULL) return no_memory(err);
    add_portions(all, s);
    job.shards = s->shards;
    for (size_t i = 0; i < s->f->shapes->n; i++) job.n_cut += portions_of(s, i) > 1;
    for (uint32_t i = 0; i < s->shards; i++) {
        if (s->shards > 1)
            all[i].need.records = pd_footprint_plus(all[i].need.records, whole_bytes(s, all[i].portions));
        pd_footprint_complete(&all[i].need, &job, s->f->rules, s->f->n_rules);
        if (pd_footprint_sum(&all[i].need) > out->memory) out->memory = pd_footprint_sum(&all[i].need);
    }
    free(all);
    return PD_OK;
}

static double largest_load(const pd_placement *placement, uint32_t shards, pd_load_kind load)
{
    uint64_t most = 0;

    for (uint32_t i = 0; i < shards; i++) {
        uint64_t one = pd_placement_load(placement, i, load);
        most = one > most ? one : most;
    }
    return (double)most;
}

/* Computes what the most loaded shard carries and computes. A gradient that workers push takes the bytes of its element
 * type; weights are pulled as float32. */
static void find_work(pd_shard_plan *out, const spreading *s, const pd_placement *placement, const pd_speeds *speeds)
{
    const pd_sizing *job = &s->f->job;
    double elements = largest_load(placement, s->shards, PD_LOAD_BYTES) / sizeof(float);
    double pushed =
        job->pushed == 0 || pd_dtype_is_quantized(job->pushed) ? sizeof(float) : (double)pd_dtype_size(job->pushed);

    out->traffic = elements * (pushed + sizeof(float)) * job->world;
    out->step_flops = largest_load(placement, s->shards, PD_LOAD_STEP);
    out->root_flops = largest_load(placement, s->shards, PD_LOAD_ROOTS);
    out->step_s = out->traffic / speeds->payload + out->step_flops / (speeds->flops * job->threads) +
                  out->root_flops / (speeds->flops * job->pool_threads);
}

static int place(pd_shard_plan *out, const spreading *s, const pd_speeds *speeds, pd_error *err)
{
    double budget_ns = INFINITY;
    pd_placement *placement = pd_placement_new(s->list, s->n, s->shards);
    int rc = placement != NULL ? PD_OK : no_memory(err);

    if (rc == PD_OK) (void)pd_placement_some(placement, &budget_ns);
    if (rc == PD_OK) rc = find_memory(out, s, err);
    if (rc == PD_OK && s->shards > 1 && pd_placement_fingerprint(placement, s->rule.split_bytes, &out->map) != PD_OK)
        rc = no_memory(err);
    if (rc == PD_OK) {
        find_work(out, s, placement, speeds);
        out->empty = pd_placement_empty(placement);
        out->skew = pd_placement_skew(placement);
        if (out->skew.most != NULL) name_portion(out->cause, sizeof out->cause, s->f, out->skew.most->portion);
        out->skew.most = NULL; /* the list is freed */
    }
    pd_placement_free(placement);
    return rc;
}

static void find_uncut(pd_shard_plan_uncut *out, const spreading *s)
{
    *out = (pd_shard_plan_uncut){ 0 };
    for (size_t i = 0; i < s->f->shapes->n; i++) {
        const cutting *c = cutting_of(s, i);
        if (c->why == PD_IS_CUT || c->why == PD_UNCUT_SMALL || s->f->kind[i]->elements <= out->elements) continue;
        *out = (pd_shard_plan_uncut){ s->f->shapes->entries[i].name, c->why, s->f->kind[i]->elements };
    }
}

int pd_shard_plan_make(pd_shard_plan *out, pd_shard_plan_uncut *uncut, const pd_forecast *f, uint32_t shards,
                       const pd_speeds *speeds, pd_error *err)
{
    spreading s = { .f = f,
                    .shards = shards,
                    .rule = { .split_bytes = f->job.values.at[PD_JOB_KEY_SPLIT_BYTES],
                              .whole = pd_sizing_is_whole(&f->job, f->rules, f->n_rules),
                              .open = f->job.sets.open },
                    .kinds = calloc(f->n_kinds + 1, sizeof *s.kinds) };
    int rc = s.kinds != NULL ? cut_fragments(&s, err) : no_memory(err);

    if (rc == PD_OK) rc = list_portions(&s, err);
    *out = (pd_shard_plan){ .shards = shards, .portions = s.n, .fragments = s.fragments != NULL };
    if (rc == PD_OK) rc = place(out, &s, speeds, err);
    if (rc == PD_OK && uncut != NULL) find_uncut(uncut, &s);
    free(s.kinds);
    free(s.fragments);
    free(s.portions);
    free(s.list);
    return rc;
}
