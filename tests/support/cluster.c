/* cluster.c - plays the workers of a job on several shards, and of the same job in one store. */
#include "cluster.h"

#include "settle.h"
#include "test.h"

static const cluster_model small_model = {
    .n = 7,
    .names = { "wte", "b#1", "proj", "scale", "mean", "wide", "tail" },
    .shapes = { { 2, { 640, 512 } },
                { 1, { 70 } },
                { 2, { 300, 130 } },
                { 0, { 0 } },
                { 2, { 512, 256 } },
                { 2, { 5, 900 } },
                { 1, { 3 } } },
    .states = { [4] = true },
};

const cluster_model *cluster_small_model(void)
{
    return &small_model;
}

pd_store_config cluster_config(void)
{
    pd_store_config config = rig_config();

    config.chunk_elements = 16384;
    return config;
}

static int64_t elements_of(const cluster *c, size_t param)
{
    int64_t elements;

    pd_shape_elements(&c->model->shapes[param], &elements);
    return elements;
}

/* Returns the elements of a parameter that a rank has. */
static rig_range range_of(const cluster *c, uint32_t rank, size_t param)
{
    int64_t n = elements_of(c, param);

    if (!c->model->ranged || c->model->states[param]) return (rig_range){ 0, n };
    return (rig_range){ n * rank / c->world, n * (rank + 1) / c->world };
}

int cluster_hello(const cluster *c, rig *r, uint32_t rank)
{
    uint64_t conn = CLUSTER_CONN + rank;

    return rig_hello(r, "job", rank, c->world, conn + c->processes, conn, c->options, c->rules);
}

int cluster_declare(const cluster *c, rig *r, uint32_t rank)
{
    rig_range ranges[CLUSTER_PARAMS];
    int rc;

    for (size_t p = 0; p < c->model->n; p++)
        ranges[p] = c->model->ranged && !c->model->states[p] ? range_of(c, rank, p) : (rig_range){ -1, -1 };
    r->ranges = ranges;
    r->states = c->model->states;
    r->fragments = c->model->fragments;
    rc =
        rig_declare(r, r->job, rank, CLUSTER_CONN + rank, c->model->names, c->model->shapes, NULL, c->model->n, PD_F32);
    r->ranges = NULL;
    r->states = NULL;
    r->fragments = NULL;
    return rc;
}

int cluster_join(const cluster *c, rig *r, uint32_t rank)
{
    int rc = cluster_hello(c, r, rank);

    return rc == PD_OK ? cluster_declare(c, r, rank) : rc;
}

/* Returns which elements of a parameter lie in parameter `own` of the last answer to Declare, and of which
 * parameter. */
static pd_declared_place place_of(const rig *r, const cluster *c, uint32_t own)
{
    for (size_t k = 0; k < r->n_places; k++)
        if (r->places[k].own == own) return r->places[k];
    return (pd_declared_place){ .param = own, .count = elements_of(c, own), .own = own };
}

static uint32_t count_own(const rig *r, const cluster *c)
{
    uint32_t n = 0;

    for (size_t k = 0; k < r->n_places; k++) n += r->places[k].own < UINT32_MAX;
    return r->places != NULL ? n : (uint32_t)c->model->n;
}

/* Sends what a rank has of elements [first, first + count) of a parameter to the store's parameter `own`, whose
 * elements these are. */
static void send(rig *r, pd_request_kind kind, uint32_t rank, uint64_t step, const pd_declared_place *place,
                 rig_range range, const float *values)
{
    int64_t start = range.start > place->first ? range.start - place->first : 0,
            end = range.end < place->first + place->count ? range.end - place->first : place->count;

    for (int64_t at = start, n; at < end; at += n) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, CLUSTER_CONN + rank, step);
        n = pd_range_piece(start, end, (uint64_t)r->chunk, (uint64_t)at);
        rig_piece(frame, r->handles[place->own], PD_F32, at, n, values + place->first + at);
        if (rig_send(r, frame) != PD_OK) fail_msg("%s", r->error.text);
    }
}

static void send_all(const cluster *c, rig *r, pd_request_kind kind, uint32_t rank, uint64_t step, size_t param,
                     const float *values)
{
    for (uint32_t own = 0; own < count_own(r, c); own++) {
        pd_declared_place place = place_of(r, c, own);
        if (place.param == param) send(r, kind, rank, step, &place, range_of(c, rank, param), values);
    }
}

static void initialise(const cluster *c, rig *r)
{
    for (size_t p = 0; p < c->model->n; p++) {
        float *values = malloc((size_t)elements_of(c, p) * sizeof *values);
        uint64_t state = 40 + p;
        for (int64_t i = 0; i < elements_of(c, p); i++)
            values[i] = (float)((double)(rig_random(&state) % 20001) / 1e4 - 1);
        for (uint32_t rank = 0; rank < c->world; rank++)
            if (rank == 0 || (c->model->ranged && !c->model->states[p]))
                send_all(c, r, PD_REQ_INIT, rank, 0, p, values);
        free(values);
    }
    rig_work(r);
}

void cluster_start(cluster *c, uint32_t n, uint32_t world, const pd_store_config *config, const cluster_model *model,
                   const char *options, const char *rules)
{
    *c = (cluster){ .n = n, .world = world, .model = model, .options = options, .rules = rules, .config = *config };
    for (uint32_t i = 0; i <= n; i++) {
        rig *r = calloc(1, sizeof *r);
        rig_new(r, config);
        if (i < n) {
            c->shard[i] = r;
            r->shard = i;
            r->shards = n;
            r->cluster = c->number;
            c->ask_step[i] = 1;
        } else {
            c->whole = r;
        }
        for (uint32_t rank = 0; rank < world; rank++)
            if (cluster_join(c, r, rank) != PD_OK) fail_msg("shard %u: %s", i, r->error.text);
        if (i == 0) c->number = r->in_cluster;
        initialise(c, r);
    }
}

void cluster_free(cluster *c)
{
    for (uint32_t i = 0; i < c->n; i++) {
        rig_free(c->shard[i]);
        free(c->shard[i]);
    }
    rig_free(c->whole);
    free(c->whole);
}

static void push_absent(const cluster *c, rig *r, uint32_t rank, uint64_t step, size_t param)
{
    for (uint32_t own = 0; own < count_own(r, c); own++) {
        rig_frame *frame;
        if (place_of(r, c, own).param != param) continue;
        frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CLUSTER_CONN + rank, step);
        rig_absent(frame, r->handles[own]);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
}

static void push(const cluster *c, uint32_t rank, uint64_t step, size_t param, bool absent, bool spoilt)
{
    int64_t n = elements_of(c, param);
    float *g = malloc((size_t)n * sizeof *g);
    uint64_t state = step * 1000 + param * 10 + rank;

    for (int64_t i = 0; i < n; i++) g[i] = (float)((double)(rig_random(&state) % 20001) / 1e4 - 1);
    if (spoilt) g[n - 1] = NAN;
    for (uint32_t i = 0; i <= c->n; i++) {
        rig *r = i < c->n ? c->shard[i] : c->whole;
        if (absent)
            push_absent(c, r, rank, step, param);
        else
            send_all(c, r, PD_REQ_PUSH, rank, step, param, g);
    }
    free(g);
}

void cluster_step(cluster *c, uint64_t step, unsigned absent, int spoilt)
{
    for (uint32_t rank = 0; rank < c->world; rank++)
        for (size_t p = 0; p < c->model->n; p++)
            push(c, rank, step, p, rank == 0 && (absent >> p & 1) != 0, rank == c->world - 1 && (int)p == spoilt);
    cluster_settle(c);
}

/* Asks a shard for its next tally, unless it was asked, and takes the tally if it has come. Returns whether it has. */
static bool ask(cluster *c, uint32_t i)
{
    rig *r = c->shard[i];

    if (!r->settles || c->tally[i].at != NULL) return false;
    if (!c->asks[i]) assert_int_equal(rig_settle(r, 0, CLUSTER_CONN, c->ask_step[i], c->ask_phase[i], NULL, 0), PD_OK);
    c->asks[i] = r->tallies == c->seen[i];
    if (c->asks[i]) return false;
    c->seen[i] = r->tallies;
    assert_in_range(r->tally_bytes, 1, sizeof c->bytes[i]);
    memcpy(c->bytes[i], r->tally, r->tally_bytes);
    c->tally[i] = (pd_tally_view){ c->bytes[i], r->tally_bytes };
    return true;
}

/* Gives all shards the verdict, if all tallies are there. */
static bool give(cluster *c)
{
    uint64_t step = c->shard[0]->tally_step;
    uint32_t phase = c->shard[0]->tally_phase;

    for (uint32_t i = 0; i < c->n; i++)
        if (c->tally[i].at == NULL) return false;
    for (uint32_t i = 0; i < c->n; i++) {
        if (rig_settle(c->shard[i], 0, CLUSTER_CONN, step, phase, c->tally, c->n) != PD_OK)
            fail_msg("%s", c->shard[i]->error.text);
        c->ask_step[i] = step;
        c->ask_phase[i] = phase + 1;
    }
    for (uint32_t i = 0; i < c->n; i++) c->tally[i].at = NULL;
    return true;
}

void cluster_settle(cluster *c)
{
    bool more = true;

    rig_work(c->whole);
    while (more) {
        more = false;
        for (uint32_t i = 0; i < c->n; i++) {
            rig_work(c->shard[i]);
            more = ask(c, i) || more;
        }
        more = give(c) || more;
    }
}

void cluster_forget(cluster *c, uint32_t i, uint64_t step)
{
    c->ask_step[i] = step;
    c->ask_phase[i] = 0;
    c->asks[i] = false;
    c->seen[i] = c->shard[i]->tallies;
    c->tally[i].at = NULL;
}

void cluster_assert_same(const cluster *c, uint64_t step)
{
    uint32_t portions = 0;

    for (uint32_t i = 0; i < c->n; i++) {
        rig *r = c->shard[i];
        for (uint32_t own = 0; own < count_own(r, c); own++) {
            pd_declared_place place = place_of(r, c, own);
            uint32_t there = c->whole->handles[place.param];
            const rig_entry *here = rig_versions(r, r->job, r->handles[own]),
                            *of_whole = rig_versions(c->whole, c->whole->job, there);
            assert_int_equal(here->step, step);
            assert_int_equal(of_whole->step, step);
            assert_int_equal(here->outcome, of_whole->outcome);
            assert_memory_equal(rig_weights(r, r->job, r->handles[own]),
                                rig_weights(c->whole, c->whole->job, there) + place.first,
                                (size_t)place.count * sizeof(float));
            portions++;
        }
    }
    assert_int_equal(portions, c->n > 1 ? c->shard[0]->n_places : c->model->n);
}

uint32_t cluster_spread_of(const cluster *c, size_t param)
{
    bool has[CLUSTER_MOST] = { false };
    uint32_t n = 0;

    for (size_t k = 0; k < c->shard[0]->n_places; k++)
        if (c->shard[0]->places[k].param == param) has[c->shard[0]->places[k].shard] = true;
    for (uint32_t i = 0; i < c->n; i++) n += has[i];
    return n;
}
