/* placement.c - cuts parameters into portions, and places portions on shards by their costs: the costliest first, each
 * on the shard whose largest load stays least (LPT over four loads). */
#include "placement.h"

#include "name_order.h"
#include "request.h"
#include "paramd/optim.h"

#include <assert.h>
#include <endian.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* ---- cutting ---- */

static int64_t gcd(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static int64_t rows_of(const pd_shape *shape)
{
    return shape->rank > 0 ? shape->dim[0] : 1;
}

/* Returns whether a tensor of state with the parameter's shape is stored with scales for its columns. A portion has
 * fewer rows, so its columns would have other scales. */
static bool has_scaled_columns(const pd_plan *plan, const pd_shape *shape)
{
    for (size_t i = 0; i < plan->n_slots; i++) {
        const pd_slot_spec *slot = &plan->slots[i];
        if (slot->of_block || slot->temporary || !pd_shape_equal(&slot->shape, shape)) continue;
        if (slot->storage == PD_STORE_INT8 || slot->storage == PD_STORE_INT16) return true;
    }
    return false;
}

/* Returns of how many rows a cut must be a multiple; 0: there is no such number below the number of rows. The optimizer
 * demands its grain. Cuts at multiples of PD_RANGE_ELEMENTS elements leave the ranges by which squares are summed, and
 * by which element-wise phases run, as they are in the whole parameter. */
static int64_t grain_of(const pd_optimizer_ops *optimizer, const pd_shape *shape, const pd_plan *plan)
{
    int64_t rows = rows_of(shape), each = plan->elements / rows, own = optimizer->grain(plan),
            ranges = PD_RANGE_ELEMENTS / gcd(PD_RANGE_ELEMENTS, each);

    if (own <= 0 || own >= rows || ranges >= rows) return 0;
    if (__builtin_mul_overflow(own / gcd(own, ranges), ranges, &own)) return 0;
    return own < rows ? own : 0;
}

pd_uncut pd_cut_rows(int64_t *rows, const pd_cut_rule *rule, const pd_optimizer_ops *optimizer, const pd_shape *shape,
                     const pd_plan *plan)
{
    uint64_t bytes = (uint64_t)plan->elements * sizeof(float), of_grain;
    int64_t all = *rows = rows_of(shape), grain, many, least;

    if (rule->split_bytes == 0 || bytes <= rule->split_bytes) return PD_UNCUT_SMALL;
    if (rule->open) return PD_UNCUT_SETS;
    if (!rule->whole) return PD_UNCUT_APART;
    if (optimizer->grain == NULL || plan->hyperball) return PD_UNCUT_OPTIMIZER;
    if (pd_is_merged(rule->how)) return PD_UNCUT_AGGREGATE;
    if (has_scaled_columns(plan, shape)) return PD_UNCUT_STORAGE;
    /* An optimizer that merges the first dimension with others cuts its blocks across rows. */
    if (plan->shape.rank == 0 || plan->shape.dim[0] != all) return PD_UNCUT_ROWS;
    if ((grain = grain_of(optimizer, shape, plan)) == 0) return PD_UNCUT_ROWS;
    of_grain = bytes / (uint64_t)all * (uint64_t)grain;
    many = (int64_t)((rule->split_bytes + of_grain / 2) / of_grain);
    least = (all / grain + PD_MOST_PORTIONS - 1) / PD_MOST_PORTIONS;
    if (many < least) many = least;
    if (many > all / grain) return PD_UNCUT_ROWS;
    *rows = grain * (many > 0 ? many : 1);
    if (pd_portions_count(shape, *rows) > 1) return PD_IS_CUT;
    *rows = all;
    return PD_UNCUT_ROWS;
}

bool pd_cut_fits(const pd_plan *whole, const pd_plan *portion)
{
    if (whole->shape.rank != portion->shape.rank) return false;
    for (int d = 1; d < whole->shape.rank; d++)
        if (whole->shape.dim[d] != portion->shape.dim[d]) return false;
    return true;
}

const char *pd_uncut_text(pd_uncut why)
{
    static const char *const texts[] = {
        [PD_IS_CUT] = "it is cut",
        [PD_UNCUT_SMALL] = "it is not larger than split_bytes",
        [PD_UNCUT_APART] = "parameters of this job take their steps apart (nonfinite_scope = job, or a clip, lets all "
                           "take them together)",
        [PD_UNCUT_SETS] = "not every rank counts in each step of this job, so one server has a whole fragment (declare "
                          "smaller fragments)",
        [PD_UNCUT_OPTIMIZER] =
            "its optimizer looks at the whole parameter (give it an element-wise rule such as adamw, "
            "as is usual for an embedding)",
        [PD_UNCUT_AGGREGATE] = "the job's aggregate merges whole parameters",
        [PD_UNCUT_STORAGE] = "its state is stored as int8 or int16 with scales for columns",
        [PD_UNCUT_ROWS] = "its rows cannot be divided: they are too few, or blocks of the optimizer cross them",
        [PD_UNCUT_NAME] = "its name is too long to number its portions",
    };

    return texts[why];
}

int64_t pd_portions_count(const pd_shape *shape, int64_t rows)
{
    int64_t all = rows_of(shape), n = all / rows + (all % rows != 0), last = all - (n - 1) * rows;

    /* A last portion of less than half the rows joins the one before. */
    return n > 1 && last < rows - last ? n - 1 : n;
}

pd_portion pd_portion_at(const pd_shape *shape, int64_t rows, int64_t i)
{
    int64_t all = rows_of(shape), each = 1, end = i + 1 < pd_portions_count(shape, rows) ? (i + 1) * rows : all;

    for (int d = 1; d < shape->rank; d++) each *= shape->dim[d];
    return (pd_portion){ .first = i * rows * each, .count = (end - i * rows) * each };
}

pd_shape pd_portion_shape(const pd_shape *shape, const pd_portion *portion)
{
    pd_shape cut = *shape;
    int64_t each = 1;

    for (int d = 1; d < shape->rank; d++) each *= shape->dim[d];
    if (cut.rank > 0) cut.dim[0] = portion->count / each;
    return cut;
}

/* ---- costs ---- */

enum { LAST_COUNT = 1024 }; /* preconditioner tasks are looked for in the steps up to this one */

int64_t pd_portion_root_interval(const pd_hypers *hypers, const pd_plan *plan)
{
    double value[PD_MAX_HYPERS];
    int64_t due[2] = { 0, 0 };

    if (plan->n_tasks == 0) return 0;
    for (int64_t count = 1; count <= LAST_COUNT; count++) {
        pd_hypers_at(hypers, count - 1, value);
        if (!hypers->row->due(plan, value, count, NULL)) continue;
        due[0] = due[1];
        due[1] = count;
    }
    return due[0] > 0 ? due[1] - due[0] : 0;
}

/* Rounds a number of operations to a multiple of 2^20. */
static uint64_t rounded(double flops)
{
    double many = rint(flops / 0x1p20);

    return many >= 0x1p43 ? UINT64_C(1) << 63 : (uint64_t)many << 20;
}

pd_portion_cost pd_portion_cost_of(const pd_plan *plan, const pd_footprint *need, int64_t interval)
{
    pd_portion_cost cost = {
        { [PD_LOAD_BYTES] = (uint64_t)plan->elements * sizeof(float), [PD_LOAD_STEP] = rounded(plan->flops) }
    };
    /* Left out are structs and images, whose sizes change from version to version, and what depends on the number of
     * workers, which may change: a shard that has lost everything must make the map again that the others have. */
    const uint64_t memory[] = { need->weights, need->sums, need->state, need->roots, need->step };
    double roots = 0;

    for (size_t t = 0; t < plan->n_tasks; t++) roots += plan->tasks[t].cost;
    cost.of[PD_LOAD_ROOTS] = interval > 0 ? rounded(roots / (double)interval) : 0;
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++)
        cost.of[PD_LOAD_MEMORY] = pd_footprint_plus(cost.of[PD_LOAD_MEMORY], memory[i]);
    return cost;
}

uint64_t pd_placement_bytes(size_t params, size_t portions, size_t own, uint64_t world)
{
    uint64_t param = sizeof(pd_param_decl) + sizeof(size_t) + sizeof(uint32_t),
             portion = sizeof(pd_portion) + sizeof(pd_declared_place) + 2 * sizeof(uint32_t);

    return PD_PLACEMENT_OWN + params * param + portions * portion +
           world * (params + portions - own) * PD_LOOP_DECL_BYTES;
}

const char *pd_load_name(pd_load_kind load)
{
    static const char *const names[] = { "bytes on the network", "operations of steps", "operations of matrix roots",
                                         "memory" };

    return names[load];
}

/* ---- placing ---- */

#define PLACE_NS 4.0                     /* time to compare one portion with one shard */
#define ARRANGE_NS 100.0                 /* time to move one portion to its place */
#define UNIT_NS 100.0                    /* time to sort one unit */
#define ONE ((unsigned __int128)1 << 30) /* the share of a load that all shards together have */

typedef struct shard {
    uint64_t load[PD_LOADS];  /* sums of costs */
    uint64_t share[PD_LOADS]; /* sums of shares of all costs, in units of 2^-30 */
    size_t portions;
} shard;

/* Portions that are placed together: one, or all of a group. */
typedef struct unit {
    size_t first, n; /* in the list of portions, which is sorted so that they follow each other */
    bool foremost;   /* it is group 0, which is placed first of all */
    uint64_t cost[PD_LOADS], share[PD_LOADS], largest;
} unit;

/* The place of a portion in the order of names, and its group. */
typedef struct member {
    uint32_t group, place;
} member;

/* What it takes to sort the portions. Names are compared only once: groups keep the order of names. */
typedef struct sorting {
    pd_named *names;
    pd_name_order *order;
    member *members;
    pd_placed *copy;
} sorting;

struct pd_placement {
    pd_placed *list; /* sorted by group, then by name, then by element */
    size_t n;
    const pd_placed **by_name; /* the same, sorted by name, then by element */
    sorting *sorting;          /* NULL: the list is sorted */
    unit *units;
    bool ready;         /* the units are sorted, too */
    size_t n_units, at; /* number of units; index of the next one to place */
    shard *shards;
    uint32_t n_shards;
    uint64_t total[PD_LOADS];
};

static uint64_t plus(uint64_t a, uint64_t b)
{
    return __builtin_add_overflow(a, b, &a) ? UINT64_MAX : a;
}

/* Compares by the largest share, the larger first; then by the order of the list. Group 0 comes first of all. */
static int by_share(const void *left, const void *right)
{
    const unit *a = left, *b = right;

    if (a->foremost != b->foremost) return a->foremost ? -1 : 1;
    if (a->largest != b->largest) return a->largest > b->largest ? -1 : 1;
    return (a->first > b->first) - (a->first < b->first);
}

static void add_costs(uint64_t *sum, const uint64_t *cost)
{
    for (int r = 0; r < PD_LOADS; r++) sum[r] = plus(sum[r], cost[r]);
}

static void find_units(pd_placement *p)
{
    for (size_t i = 0; i < p->n; i++) {
        bool joins = i > 0 && p->list[i].together != UINT32_MAX && p->list[i].together == p->list[i - 1].together;
        if (!joins) p->units[p->n_units++] = (unit){ .first = i, .foremost = p->list[i].together == 0 };
        p->units[p->n_units - 1].n++;
        add_costs(p->units[p->n_units - 1].cost, p->list[i].cost.of);
        add_costs(p->total, p->list[i].cost.of);
    }
}

static void find_shares(const pd_placement *p, unit *u)
{
    for (int r = 0; r < PD_LOADS; r++) {
        if (p->total[r] > 0) u->share[r] = (uint64_t)(u->cost[r] * ONE / p->total[r]);
        if (u->share[r] > u->largest) u->largest = u->share[r];
    }
}

static void free_sorting(sorting *s)
{
    if (s == NULL) return;
    pd_name_order_free(s->order);
    free(s->names);
    free(s->members);
    free(s->copy);
    free(s);
}

static sorting *begin_sorting(const pd_placed *list, size_t n)
{
    sorting *s = calloc(1, sizeof *s);

    if (s == NULL) return NULL;
    s->names = malloc((n + 1) * sizeof *s->names);
    s->members = malloc((n + 1) * sizeof *s->members);
    s->copy = malloc((n + 1) * sizeof *s->copy);
    for (size_t i = 0; s->names != NULL && i < n; i++) s->names[i] = (pd_named){ list[i].name, list[i].portion->first };
    if (s->names != NULL) s->order = pd_name_order_new(s->names, n);
    if (s->order != NULL && s->members != NULL && s->copy != NULL) return s;
    free_sorting(s);
    return NULL;
}

pd_placement *pd_placement_new(pd_placed *list, size_t n, uint32_t shards)
{
    pd_placement *p = calloc(1, sizeof *p);

    if (p == NULL) return NULL;
    *p = (pd_placement){ .list = list, .n = n, .n_shards = shards };
    p->units = calloc(n + 1, sizeof *p->units);
    p->shards = calloc(shards, sizeof *p->shards);
    p->by_name = malloc((n + 1) * sizeof *p->by_name);
    p->sorting = begin_sorting(list, n);
    if (p->units != NULL && p->shards != NULL && p->by_name != NULL && p->sorting != NULL) return p;
    pd_placement_free(p);
    return NULL;
}

/* Compares by group, then by place. Portions without a group come last. */
static int by_group(const void *left, const void *right)
{
    const member *a = left, *b = right;

    if (a->group != b->group) return a->group < b->group ? -1 : 1;
    return (a->place > b->place) - (a->place < b->place);
}

/* Moves the portions to their places in the list, once the names are sorted. */
static void arrange(pd_placement *p)
{
    const sorting *s = p->sorting;

    memcpy(s->copy, p->list, p->n * sizeof *s->copy);
    for (size_t i = 0; i < p->n; i++)
        s->members[i] = (member){ p->list[pd_name_order_at(s->order, i)].together, (uint32_t)i };
    qsort(s->members, p->n, sizeof *s->members, by_group);
    for (size_t i = 0; i < p->n; i++) {
        p->list[i] = s->copy[pd_name_order_at(s->order, s->members[i].place)];
        p->by_name[s->members[i].place] = &p->list[i];
    }
}

/* Sorts the portions, then the units. Returns false if there is more to do. */
static bool sort_some(pd_placement *p, double *budget_ns)
{
    if (p->sorting != NULL) {
        if (!pd_name_order_some(p->sorting->order, budget_ns) || !(*budget_ns > 0)) return false;
        arrange(p);
        find_units(p);
        free_sorting(p->sorting);
        p->sorting = NULL;
        *budget_ns -= ARRANGE_NS * (double)p->n;
    }
    if (p->ready) return true;
    if (!(*budget_ns > 0)) return false;
    for (size_t i = 0; i < p->n_units; i++) find_shares(p, &p->units[i]);
    qsort(p->units, p->n_units, sizeof *p->units, by_share);
    *budget_ns -= UNIT_NS * (double)p->n_units;
    return p->ready = true;
}

/* What a shard's loads would be with one more unit: the largest of its shares, and their sum. */
typedef struct outlook {
    uint64_t largest, sum;
} outlook;

static outlook outlook_of(const shard *s, const unit *u)
{
    outlook seen = { 0, 0 };

    for (int r = 0; r < PD_LOADS; r++) {
        uint64_t share = s->share[r] + u->share[r];
        if (share > seen.largest) seen.largest = share;
        seen.sum += share;
    }
    return seen;
}

static uint32_t choose(const pd_placement *p, const unit *u)
{
    outlook best = { UINT64_MAX, UINT64_MAX };
    uint32_t found = 0;

    if (u->foremost) return 0;
    for (uint32_t i = 0; i < p->n_shards; i++) {
        outlook seen = outlook_of(&p->shards[i], u);
        if (seen.largest > best.largest || (seen.largest == best.largest && seen.sum >= best.sum)) continue;
        best = seen;
        found = i;
    }
    return found;
}

static void place(pd_placement *p, const unit *u)
{
    uint32_t number = choose(p, u);
    shard *s = &p->shards[number];

    add_costs(s->load, u->cost);
    add_costs(s->share, u->share);
    s->portions += u->n;
    for (size_t i = 0; i < u->n; i++) p->list[u->first + i].portion->shard = number;
}

bool pd_placement_some(pd_placement *p, double *budget_ns)
{
    if (!sort_some(p, budget_ns)) return false;
    while (p->at < p->n_units) {
        if (!(*budget_ns > 0)) return false;
        *budget_ns -= PLACE_NS * p->n_shards + PLACE_NS * (double)p->units[p->at].n;
        place(p, &p->units[p->at++]);
    }
    return true;
}

void pd_placement_free(pd_placement *p)
{
    if (p == NULL) return;
    free_sorting(p->sorting);
    free(p->by_name);
    free(p->units);
    free(p->shards);
    free(p);
}

static const pd_placed *costliest_on(const pd_placement *p, uint32_t number, pd_load_kind load)
{
    const pd_placed *most = NULL;

    for (size_t i = 0; i < p->n; i++)
        if (p->list[i].portion->shard == number && (most == NULL || p->list[i].cost.of[load] > most->cost.of[load]))
            most = &p->list[i];
    return most;
}

pd_skew pd_placement_skew(const pd_placement *p)
{
    pd_skew skew = { .over_mean = 1 };

    for (int r = 0; r < PD_LOADS; r++)
        for (uint32_t i = 0; i < p->n_shards && p->total[r] > 0; i++) {
            double over = (double)p->shards[i].load[r] * p->n_shards / (double)p->total[r];
            if (over <= skew.over_mean) continue;
            skew = (pd_skew){ .over_mean = over, .load = (pd_load_kind)r, .shard = i };
        }
    skew.most = costliest_on(p, skew.shard, skew.load);
    return skew;
}

uint64_t pd_placement_load(const pd_placement *p, uint32_t number, pd_load_kind load)
{
    return p->shards[number].load[load];
}

uint32_t pd_placement_empty(const pd_placement *p)
{
    uint32_t i = 0;

    while (i < p->n_shards && p->shards[i].portions > 0) i++;
    return i;
}

/* ---- the map ---- */

static void hash_number(XXH3_state_t *state, uint64_t number)
{
    uint64_t little = htole64(number);

    XXH3_64bits_update(state, &little, sizeof little);
}

static void hash_portion(XXH3_state_t *state, const pd_placed *placed)
{
    XXH3_64bits_update(state, placed->name, strlen(placed->name) + 1);
    hash_number(state, (uint64_t)placed->portion->first);
    hash_number(state, (uint64_t)placed->portion->count);
    hash_number(state, placed->portion->shard);
}

int pd_placement_fingerprint(const pd_placement *p, uint64_t split_bytes, uint64_t *fingerprint)
{
    XXH3_state_t *state = XXH3_createState();

    if (state == NULL) return PD_NO_MEMORY;
    XXH3_64bits_reset(state);
    hash_number(state, PD_PLACEMENT_VERSION);
    hash_number(state, p->n_shards);
    hash_number(state, split_bytes);
    for (size_t i = 0; i < p->n; i++) hash_portion(state, p->by_name[i]);
    *fingerprint = XXH3_64bits_digest(state);
    if (*fingerprint == 0) *fingerprint = 1;
    XXH3_freeState(state);
    return PD_OK;
}
