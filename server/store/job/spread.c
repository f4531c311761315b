/* spread.c - makes the map of a job on a cluster, parameter by parameter: statistics of the whole model, plans, cuts
 * and costs, then the placement. */
#include "spread.h"

#include "factor_rules.h"
#include "plan_make.h"

#include <stdlib.h>
#include <string.h>

/* Estimates of how long the work takes, in nanoseconds of one core. */
#define SURVEY_NS 500.0 /* time to add a parameter to its optimizer's model statistics */
#define STEP_NS 20.0    /* time of one matching step of a search for names (pd_name_maps_left) */
/* time to plan the optimizer of a portion, without PLAN_SLOT_NS for each slot and PLAN_TASK_NS for each task */
#define PLAN_NS 1500.0
#define PLAN_SLOT_NS 600.0
#define PLAN_TASK_NS 400.0
#define INTERVAL_NS 100000.0 /* time to find the interval of a rule's preconditioner tasks */
#define PORTION_NS 50.0      /* time to list a portion */
#define HASH_NS 100.0        /* time to hash one portion */

enum { UNKNOWN = -1 };

typedef enum stage { SURVEYING, CUTTING, PLACING, DONE } stage;

struct pd_spread {
    pd_spread_job job;
    stage stage;
    size_t at; /* index of the parameter that the stage handles next */
    pd_model_facts facts;
    pd_name_maps *maps;
    int64_t *interval; /* interval of each rule's preconditioner tasks; UNKNOWN */
    pd_map map;
    pd_portion_cost *costs; /* of each portion */
    size_t room;            /* number of portions for which there is memory */
    pd_placed *placed;
    pd_placement *placement;
    uint64_t uncut_bytes; /* size of the parameter notes.uncut */
    pd_spread_notes notes;
};

int pd_model_facts_make(pd_model_facts *facts, const pd_rule *rules, size_t n_rules)
{
    facts->alike = calloc(n_rules, sizeof *facts->alike);
    facts->stats = calloc(n_rules, sizeof *facts->stats);
    facts->surveyed = calloc(n_rules, sizeof *facts->surveyed);
    if (facts->alike == NULL || facts->stats == NULL || facts->surveyed == NULL) return PD_NO_MEMORY;
    for (size_t r = 0; r < n_rules; r++)
        while (rules[facts->alike[r]].hypers.row != rules[r].hypers.row) facts->alike[r]++;
    return PD_OK;
}

void pd_model_facts_free(pd_model_facts *facts)
{
    free(facts->alike);
    free(facts->stats);
    free(facts->surveyed);
    *facts = (pd_model_facts){ 0 };
}

void pd_model_facts_add(pd_model_facts *facts, const pd_declaration *declaration)
{
    const pd_optimizer_ops *row = declaration->hypers.row;
    size_t first = facts->alike[declaration->group];

    if (row->stats != NULL) pd_model_stats_add(row, declaration, &facts->surveyed[first], facts->stats[first]);
}

pd_declaration pd_spread_declaration(const pd_spread_job *job, const pd_param_decl *decl, const pd_shape *shape,
                                     struct pd_name_maps *maps)
{
    return (pd_declaration){ .name = decl->name,
                             .shape = *shape,
                             .world = (int)job->sizing->world,
                             .hypers = job->rules[decl->rule - 1].hypers,
                             .group = decl->rule - 1,
                             .axes = decl->axes,
                             .seed = job->sizing->values.at[PD_JOB_KEY_SEED],
                             .start_step = (int64_t)job->sizing->values.at[PD_JOB_KEY_START_STEP],
                             .maps = maps };
}

pd_spread *pd_spread_new(const pd_spread_job *job)
{
    pd_spread *s = calloc(1, sizeof *s);

    if (s == NULL) return NULL;
    s->job = *job;
    s->notes.uncut = (uint32_t)job->n;
    s->maps = pd_name_maps_new(2 * job->n);
    s->interval = malloc(job->n_rules * sizeof *s->interval);
    if (s->maps == NULL || s->interval == NULL || pd_model_facts_make(&s->facts, job->rules, job->n_rules) != PD_OK) {
        pd_spread_free(s);
        return NULL;
    }
    for (size_t r = 0; r < job->n_rules; r++) s->interval[r] = UNKNOWN;
    return s;
}

void pd_spread_free(pd_spread *s)
{
    if (s == NULL) return;
    pd_model_facts_free(&s->facts);
    pd_name_maps_free(s->maps);
    pd_placement_free(s->placement);
    free(s->interval);
    free(s->map.portions);
    free(s->costs);
    free(s->placed);
    free(s);
}

void pd_spread_take(pd_spread *s, pd_map *map, pd_model_facts *facts)
{
    *map = s->map;
    *facts = s->facts;
    s->map = (pd_map){ 0 };
    s->facts = (pd_model_facts){ 0 };
}

pd_spread_notes pd_spread_notes_of(const pd_spread *s)
{
    return s->notes;
}

const pd_placement *pd_spread_placement(const pd_spread *s)
{
    return s->placement;
}

/* ---- cuts and costs ---- */

static int make_room(pd_spread *s, size_t more, pd_error *err)
{
    size_t want = s->map.n + more, room = s->room > 0 ? s->room : 64;
    pd_portion *portions;
    pd_portion_cost *costs;

    if (want > s->job.most)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "the parameters are cut into more than the %zu portions allowed (limits.max_params): raise the "
                       "job's split_bytes",
                       s->job.most);
    if (want <= s->room) return PD_OK;
    while (room < want) room *= 2;
    if ((portions = realloc(s->map.portions, room * sizeof *portions)) != NULL) s->map.portions = portions;
    if ((costs = realloc(s->costs, room * sizeof *costs)) != NULL) s->costs = costs;
    if (portions == NULL || costs == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for portions");
    s->room = room;
    return PD_OK;
}

static int plan_shape(pd_spread *s, const pd_param_decl *decl, const pd_shape *shape, pd_plan *plan, double *budget_ns,
                      pd_error *err)
{
    pd_declaration declaration = pd_spread_declaration(&s->job, decl, shape, s->maps);
    int64_t steps = pd_name_maps_left(s->maps);
    int rc = pd_plan_make(plan, &declaration, s->facts.stats[s->facts.alike[declaration.group]], err);

    *budget_ns -= STEP_NS * (double)(steps - pd_name_maps_left(s->maps)) + PLAN_NS;
    if (rc == PD_OK) *budget_ns -= PLAN_SLOT_NS * (double)plan->n_slots + PLAN_TASK_NS * (double)plan->n_tasks;
    return rc;
}

static pd_aggregation aggregation_of(const pd_spread *s, const pd_param_decl *decl)
{
    return pd_aggregation_of(&s->job.sizing->values, s->job.rules[decl->rule - 1].hypers.row);
}

static int64_t interval_of(pd_spread *s, const pd_param_decl *decl, const pd_plan *plan, double *budget_ns)
{
    int64_t *interval = &s->interval[decl->rule - 1];

    if (plan->n_tasks == 0) return 0;
    if (*interval == UNKNOWN) {
        *interval = pd_portion_root_interval(&s->job.rules[decl->rule - 1].hypers, plan);
        *budget_ns -= INTERVAL_NS;
    }
    return *interval;
}

static int find_cost(pd_spread *s, const pd_param_decl *decl, const pd_plan *plan, pd_portion_cost *cost,
                     double *budget_ns, pd_error *err)
{
    static const bool pulled[4] = { [PD_F32] = true };
    pd_footprint need;

    if (pd_footprint_of(&need, s->job.sizing, aggregation_of(s, decl), plan, decl->push_dtype, decl->ranged, pulled) !=
        PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "parameter %.160s: out of memory for its plan", decl->name);
    *cost = pd_portion_cost_of(plan, &need, interval_of(s, decl, plan, budget_ns));
    return PD_OK;
}

/* The costs of a cut parameter's portions: of each, and of the last, which may have another number of rows. */
typedef struct cut_costs {
    pd_portion_cost each, last;
} cut_costs;

/* Computes the cost of portion `i`. PD_FAILED_PRECONDITION: the optimizer would not do with it what it does with these
 * rows of the parameter. */
static int cost_portion(pd_spread *s, const pd_param_decl *decl, const pd_plan *whole, int64_t rows, int64_t i,
                        pd_portion_cost *cost, double *budget_ns, pd_error *err)
{
    pd_portion portion = pd_portion_at(&decl->shape, rows, i);
    pd_shape shape = pd_portion_shape(&decl->shape, &portion);
    pd_plan plan;
    int rc = plan_shape(s, decl, &shape, &plan, budget_ns, err);

    if (rc == PD_INVALID_ARGUMENT) return PD_FAILED_PRECONDITION;
    if (rc != PD_OK) return rc;
    rc = pd_cut_fits(whole, &plan) ? find_cost(s, decl, &plan, cost, budget_ns, err) : PD_FAILED_PRECONDITION;
    pd_plan_free(&plan);
    return rc;
}

static bool has_room_for_number(const pd_param_decl *decl)
{
    enum { NUMBER = 5 }; /* '#' and four digits */
    size_t n = strlen(decl->name);

    for (const char *at = decl->name; *at != '\0'; at++) n += *at == '#';
    return n + NUMBER <= PD_NAME_MAX;
}

static pd_uncut cut_rows(const pd_spread *s, const pd_param_decl *decl, const pd_plan *plan, int64_t *rows)
{
    const pd_cut_rule rule = { .split_bytes = s->job.sizing->values.at[PD_JOB_KEY_SPLIT_BYTES],
                               .whole = s->job.whole,
                               .open = s->job.sizing->sets.open,
                               .how = aggregation_of(s, decl) };
    pd_uncut why = pd_cut_rows(rows, &rule, s->job.rules[decl->rule - 1].hypers.row, &decl->shape, plan);

    return why == PD_IS_CUT && !has_room_for_number(decl) ? PD_UNCUT_NAME : why;
}

/* Lists a parameter that is not cut. */
static int add_whole(pd_spread *s, size_t param, const pd_plan *plan, pd_uncut why, double *budget_ns, pd_error *err)
{
    const pd_param_decl *decl = &s->job.decls[param];
    uint64_t bytes = (uint64_t)plan->elements * sizeof(float);
    int rc = make_room(s, 1, err);

    if (rc != PD_OK || (rc = find_cost(s, decl, plan, &s->costs[s->map.n], budget_ns, err)) != PD_OK) return rc;
    s->map.portions[s->map.n++] = (pd_portion){ .param = (uint32_t)param, .count = plan->elements };
    if (why == PD_UNCUT_SMALL || bytes <= s->uncut_bytes) return PD_OK;
    s->uncut_bytes = bytes;
    s->notes.uncut = (uint32_t)param;
    s->notes.why = why;
    return PD_OK;
}

static int add_portions(pd_spread *s, size_t param, int64_t rows, const cut_costs *costs, double *budget_ns,
                        pd_error *err)
{
    const pd_shape *shape = &s->job.decls[param].shape;
    int64_t n = pd_portions_count(shape, rows);
    int rc = make_room(s, (size_t)n, err);

    for (int64_t i = 0; rc == PD_OK && i < n; i++) {
        s->costs[s->map.n] = i + 1 < n ? costs->each : costs->last;
        s->map.portions[s->map.n] = pd_portion_at(shape, rows, i);
        s->map.portions[s->map.n++].param = (uint32_t)param;
    }
    *budget_ns -= PORTION_NS * (double)n;
    return rc;
}

/* Cuts a parameter, if that is possible, and lists its portions with their costs. */
static int cut_param(pd_spread *s, size_t param, double *budget_ns, pd_error *err)
{
    const pd_param_decl *decl = &s->job.decls[param];
    cut_costs costs;
    pd_uncut why;
    pd_plan plan;
    int64_t rows, n;
    int rc = plan_shape(s, decl, &decl->shape, &plan, budget_ns, err);

    if (rc != PD_OK) return rc;
    why = cut_rows(s, decl, &plan, &rows);
    if (why == PD_IS_CUT) {
        n = pd_portions_count(&decl->shape, rows);
        rc = cost_portion(s, decl, &plan, rows, 0, &costs.each, budget_ns, err);
        if (rc == PD_OK) rc = cost_portion(s, decl, &plan, rows, n - 1, &costs.last, budget_ns, err);
        if (rc == PD_FAILED_PRECONDITION) why = PD_UNCUT_ROWS;
    }
    if (why == PD_IS_CUT)
        rc = rc == PD_OK ? add_portions(s, param, rows, &costs, budget_ns, err) : rc;
    else
        rc = add_whole(s, param, &plan, why, budget_ns, err);
    pd_plan_free(&plan);
    return rc;
}

/* ---- placement ---- */

static int begin_placing(pd_spread *s, double *budget_ns, pd_error *err)
{
    bool by_fragment = s->job.sizing->sets.open;

    *budget_ns -= PORTION_NS * (double)s->map.n;
    if ((s->placed = calloc(s->map.n, sizeof *s->placed)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the map");
    for (size_t i = 0; i < s->map.n; i++) {
        const pd_param_decl *decl = &s->job.decls[s->map.portions[i].param];
        s->placed[i] = (pd_placed){ .portion = &s->map.portions[i],
                                    .name = decl->name,
                                    .cost = s->costs[i],
                                    .together = by_fragment ? decl->fragment : UINT32_MAX };
    }
    if ((s->placement = pd_placement_new(s->placed, s->map.n, s->job.shards)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the map");
    return PD_OK;
}

static int end_placing(pd_spread *s, double *budget_ns, pd_error *err)
{
    uint32_t empty = pd_placement_empty(s->placement);

    *budget_ns -= HASH_NS * (double)s->map.n;
    if (empty < s->job.shards)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "nothing of this model would lie on shard %u of %u: its parameters make %zu %s%s. Use fewer "
                       "shards%s",
                       empty, s->job.shards, s->map.n, s->job.sizing->sets.open ? "parameters" : "portions",
                       s->job.sizing->sets.open ? ", of which those of one fragment lie on one shard" : "",
                       s->job.sizing->sets.open ? "" : ", or a smaller split_bytes");
    if (pd_placement_fingerprint(s->placement, s->job.sizing->values.at[PD_JOB_KEY_SPLIT_BYTES], &s->map.fingerprint) !=
        PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the map");
    s->notes.skew = pd_placement_skew(s->placement);
    return PD_OK;
}

/* Takes the map that was read from the disk. */
static int copy_map(pd_spread *s, pd_error *err)
{
    s->map = *s->job.map;
    s->map.portions = malloc(s->map.n * sizeof *s->map.portions);
    if (s->map.portions == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the map");
    memcpy(s->map.portions, s->job.map->portions, s->map.n * sizeof *s->map.portions);
    return PD_OK;
}

/* Ends a stage, all of whose parameters are handled. */
static int next_stage(pd_spread *s, double *budget_ns, pd_error *err)
{
    bool read = s->job.map != NULL;
    int rc = read ? copy_map(s, err) : s->stage == CUTTING ? begin_placing(s, budget_ns, err) : PD_OK;

    s->stage = read ? DONE : s->stage + 1;
    s->at = 0;
    return rc;
}

/* Handles the next parameter in the present stage. */
static int advance(pd_spread *s, double *budget_ns, pd_error *err)
{
    size_t param = s->at++;
    const pd_param_decl *decl = &s->job.decls[param];
    pd_declaration declaration;

    if (s->stage == CUTTING) return cut_param(s, param, budget_ns, err);
    declaration = pd_spread_declaration(&s->job, decl, &decl->shape, s->maps);
    pd_model_facts_add(&s->facts, &declaration);
    *budget_ns -= SURVEY_NS;
    return PD_OK;
}

bool pd_spread_some(pd_spread *s, double *budget_ns, int *rc, pd_error *err)
{
    *rc = PD_OK;
    while (*rc == PD_OK && s->stage < PLACING) {
        if (!(*budget_ns > 0)) return false;
        *rc = s->at < s->job.n ? advance(s, budget_ns, err) : next_stage(s, budget_ns, err);
    }
    if (*rc != PD_OK || s->stage == DONE) return true;
    if (!pd_placement_some(s->placement, budget_ns) || !(*budget_ns > 0)) return false;
    *rc = end_placing(s, budget_ns, err);
    s->stage = DONE;
    return true;
}
