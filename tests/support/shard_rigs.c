/* shard_rigs.c - plays a worker of a job on several shards, and of the same job in one store. */
#include "shard_rigs.h"

#include "clipped.h"
#include "global_clip.h"
#include "settle.h"
#include "step_group.h"
#include "store_inside.h"
#include "test.h"

enum { CUT_AT = 65536, CONN = 10 };

const int64_t shard_sizes[SHARD_PARAMS] = { 70, CUT_AT + 900, 300, 1, 5, 64 };

/* The names that all vectors are declared with. */
static const char *const all_names[SHARD_PARAMS] = { "p0", "p1", "p2", "p3", "p4", "p5" };

static void place(shard_rigs *s)
{
    uint32_t k = 0;

    s->n_portions = SHARD_PORTIONS;

    for (uint32_t p = 0; p < SHARD_PARAMS; p++) {
        int64_t first = p == SHARD_CUT ? CUT_AT : shard_sizes[p];
        s->portion[k++] = (shard_portion){ .declared = p, .shard = p % s->n, .first = 0, .count = first };
        if (p == SHARD_CUT)
            s->portion[k++] = (shard_portion){
                .declared = p, .shard = (p + 1) % s->n, .first = first, .count = shard_sizes[p] - first
            };
    }
}

/* Tells the store, whose job is one of its own so far, which portions of a model its parameters are. These portions are
 * smaller than those that a Declare of the whole model makes. */
static void describe(shard_rigs *s, uint32_t shard)
{
    pd_job *job = inside_job(s->shard[shard]->store, s->shard[shard]->job);

    for (uint32_t k = 0; k < s->n_portions; k++) {
        const shard_portion *portion = &s->portion[k];
        if (portion->shard != shard) continue;
        job->steps.params[portion->index].declared = portion->declared;
        job->steps.params[portion->index].cut = portion->declared == SHARD_CUT;
        job->steps.params[portion->index].portions = portion->declared == SHARD_CUT ? 2 : 1;
        job->steps.params[portion->index].origin = portion->first;
    }
    job->steps.n_cut = 1;
    job->steps.shard = shard;
    job->steps.shards = s->n;
    pd_settle_free(job->steps.together.settle);
    job->steps.together.settle = NULL;
    assert_true(pd_steps_settle(&job->steps));
    assert_int_equal(
        pd_settle_make(&job->steps, pd_global_clip_scopes(&job->steps.values, job->steps.rules, job->steps.n_rules)),
        PD_OK);
}

static void initialise(rig *r, uint32_t param, const float *values, int64_t n)
{
    assert_int_equal(rig_init(r, r->job, CONN, param, values, n), PD_OK);
}

static void start_shard(shard_rigs *s, uint32_t shard, const char *options, const char *rules)
{
    rig *r = s->shard[shard];
    char text[SHARD_PORTIONS][16];
    const char *names[SHARD_PORTIONS];
    pd_shape shapes[SHARD_PORTIONS];
    size_t n = 0;

    for (uint32_t k = 0; k < s->n_portions; k++) {
        shard_portion *portion = &s->portion[k];
        if (portion->shard != shard) continue;
        snprintf(text[n], sizeof text[n], "p%u%s", portion->declared, portion->first > 0 ? "_end" : "");
        names[n] = text[n];
        shapes[n] = (pd_shape){ .rank = 1, .dim = { portion->count } };
        portion->index = (uint32_t)n++;
    }
    for (uint32_t rank = 0; rank < s->world; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, s->world, CONN + rank, CONN + rank, options, rules), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, n, PD_F32), PD_OK);
    }
    describe(s, shard);
}

static void initialise_all(shard_rigs *s)
{
    for (uint32_t k = 0; k < s->n_portions; k++) {
        const shard_portion *portion = &s->portion[k];
        float *values = malloc((size_t)shard_sizes[portion->declared] * sizeof *values);
        rig_noise(7 + portion->declared, values, shard_sizes[portion->declared]);
        initialise(s->shard[portion->shard], portion->index, values + portion->first, portion->count);
        free(values);
    }
}

void shard_rigs_start(shard_rigs *s, uint32_t n, uint32_t world, const pd_store_config *config, const char *options,
                      const char *rules)
{
    *s = (shard_rigs){ .n = n, .world = world, .whole = calloc(1, sizeof(rig)) };
    s->log = calloc(64, sizeof *s->log);
    place(s);
    rig_new(s->whole, config);
    rig_start(s->whole, "job", world, CONN, shard_sizes, SHARD_PARAMS, options, rules);
    for (uint32_t i = 0; i < n; i++) {
        s->shard[i] = calloc(1, sizeof(rig));
        rig_new(s->shard[i], config);
        start_shard(s, i, options, rules);
        s->ask_step[i] = 1;
    }
    initialise_all(s);
}

void shard_rigs_join(shard_rigs *s, uint32_t shard, const char *options, const char *rules)
{
    rig *r = s->shard[shard];
    pd_shape shapes[SHARD_PARAMS];

    for (uint32_t p = 0; p < SHARD_PARAMS; p++) shapes[p] = (pd_shape){ .rank = 1, .dim = { shard_sizes[p] } };
    r->shard = shard;
    r->shards = s->n;
    r->cluster = 77;
    for (uint32_t rank = 0; rank < s->world; rank++) {
        assert_int_equal(rig_hello(r, "job", rank, s->world, CONN + rank, CONN + rank, options, rules), PD_OK);
        assert_int_equal(rig_declare(r, r->job, rank, CONN + rank, all_names, shapes, NULL, SHARD_PARAMS, PD_F32),
                         PD_OK);
    }
}

/* Notes which vectors the Declares have placed on a shard. */
static void look_at(shard_rigs *s, uint32_t shard)
{
    const pd_job *job = inside_job(s->shard[shard]->store, s->shard[shard]->job);

    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        assert_false(param->cut);
        s->portion[param->declared] =
            (shard_portion){ .declared = param->declared, .shard = shard, .count = param->elements, .index = i };
        s->n_portions++;
    }
}

void shard_rigs_declare(shard_rigs *s, uint32_t n, uint32_t world, const pd_store_config *config, const char *options,
                        const char *rules)
{
    *s = (shard_rigs){ .n = n, .world = world, .whole = calloc(1, sizeof(rig)) };
    s->log = calloc(64, sizeof *s->log);
    rig_new(s->whole, config);
    rig_start(s->whole, "job", world, CONN, shard_sizes, SHARD_PARAMS, options, rules);
    for (uint32_t i = 0; i < n; i++) {
        s->shard[i] = calloc(1, sizeof(rig));
        rig_new(s->shard[i], config);
        shard_rigs_join(s, i, options, rules);
        look_at(s, i);
        s->ask_step[i] = 1;
    }
    assert_int_equal(s->n_portions, SHARD_PARAMS);
    initialise_all(s);
}

void shard_rigs_free(shard_rigs *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        rig_free(s->shard[i]);
        free(s->shard[i]);
    }
    rig_free(s->whole);
    free(s->whole);
    free(s->log);
}

static void push(rig *r, uint32_t rank, uint64_t step, uint32_t param, const float *g, int64_t n)
{
    assert_int_equal(rig_push(r, r->job, rank, CONN + rank, step, param, g, n), PD_OK);
}

static void push_absent(rig *r, uint32_t rank, uint64_t step, uint32_t param)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);

    rig_absent(frame, param);
    assert_int_equal(rig_send(r, frame), PD_OK);
}

void shard_rigs_push_one(shard_rigs *s, uint32_t rank, uint64_t step, uint32_t param, float scale, int64_t at,
                         float value)
{
    float *g = malloc((size_t)shard_sizes[param] * sizeof *g);

    clipped_gradient(rank, step, param, g, shard_sizes[param]);
    for (int64_t i = 0; i < shard_sizes[param]; i++) g[i] *= scale;
    if (at >= 0) g[at] = value;
    push(s->whole, rank, step, param, g, shard_sizes[param]);
    for (uint32_t k = 0; k < s->n_portions; k++) {
        const shard_portion *portion = &s->portion[k];
        if (portion->declared == param)
            push(s->shard[portion->shard], rank, step, portion->index, g + portion->first, portion->count);
    }
    free(g);
}

static void absent_one(shard_rigs *s, uint32_t rank, uint64_t step, uint32_t param)
{
    push_absent(s->whole, rank, step, param);
    for (uint32_t k = 0; k < s->n_portions; k++)
        if (s->portion[k].declared == param)
            push_absent(s->shard[s->portion[k].shard], rank, step, s->portion[k].index);
}

void shard_rigs_push(shard_rigs *s, uint32_t rank, uint64_t step, float scale, unsigned absent)
{
    for (uint32_t p = 0; p < SHARD_PARAMS; p++) {
        if ((absent >> p & 1) != 0)
            absent_one(s, rank, step, p);
        else
            shard_rigs_push_one(s, rank, step, p, scale, -1, 0);
    }
}

void shard_rigs_push_again(shard_rigs *s, uint32_t shard, uint32_t rank, uint64_t step, float scale, unsigned absent)
{
    for (uint32_t k = 0; k < s->n_portions; k++) {
        const shard_portion *portion = &s->portion[k];
        float *g = malloc((size_t)shard_sizes[portion->declared] * sizeof *g);
        clipped_gradient(rank, step, portion->declared, g, shard_sizes[portion->declared]);
        for (int64_t i = 0; i < shard_sizes[portion->declared]; i++) g[i] *= scale;
        if (portion->shard == shard && (absent >> portion->declared & 1) != 0)
            push_absent(s->shard[shard], rank, step, portion->index);
        else if (portion->shard == shard)
            push(s->shard[shard], rank, step, portion->index, g + portion->first, portion->count);
        free(g);
    }
}

void shard_rigs_push_cut_half(shard_rigs *s, uint32_t rank, uint64_t step, uint32_t half)
{
    const shard_portion *has = &s->portion[SHARD_CUT + 1 - half], *lacks = &s->portion[SHARD_CUT + half];
    float *g = malloc((size_t)shard_sizes[SHARD_CUT] * sizeof *g);

    clipped_gradient(rank, step, SHARD_CUT, g, shard_sizes[SHARD_CUT]);
    push_absent(s->whole, rank, step, SHARD_CUT);
    push_absent(s->shard[lacks->shard], rank, step, lacks->index);
    push(s->shard[has->shard], rank, step, has->index, g + has->first, has->count);
    free(g);
}

/* Asks a shard for its next tally, unless it was asked, and takes the tally if it has come. Returns whether it has. */
static bool ask(shard_rigs *s, uint32_t i)
{
    rig *r = s->shard[i];

    if (s->tally[i].at != NULL) return false;
    if (!s->asks[i]) assert_int_equal(rig_settle(r, 0, CONN, s->ask_step[i], s->ask_phase[i], NULL, 0), PD_OK);
    s->asks[i] = r->tallies == s->seen[i];
    if (s->asks[i]) return false;
    s->seen[i] = r->tallies;
    memcpy(s->bytes[i], r->tally, r->tally_bytes);
    s->tally[i] = (pd_tally_view){ s->bytes[i], r->tally_bytes };
    return true;
}

static void note(shard_rigs *s, uint64_t step, uint32_t phase)
{
    shard_verdict *verdict = &s->log[s->verdicts++];

    assert_true(s->verdicts <= 64);
    verdict->step = step;
    verdict->phase = phase;
    for (uint32_t i = 0; i < s->n; i++) {
        assert_true(s->tally[i].n <= sizeof verdict->bytes[i]);
        memcpy(verdict->bytes[i], s->tally[i].at, s->tally[i].n);
        verdict->tally[i] = (pd_tally_view){ verdict->bytes[i], s->tally[i].n };
    }
}

/* Gives all shards the verdict, if all tallies are there. */
static bool give(shard_rigs *s)
{
    uint64_t step = s->shard[0]->tally_step;
    uint32_t phase = s->shard[0]->tally_phase;

    for (uint32_t i = 0; i < s->n; i++)
        if (s->tally[i].at == NULL) return false;
    for (uint32_t i = 0; i < s->n; i++) {
        assert_int_equal(s->shard[i]->tally_step, step);
        assert_int_equal(s->shard[i]->tally_phase, phase);
    }
    for (uint32_t i = 0; i < s->n; i++) {
        assert_int_equal(rig_settle(s->shard[i], 0, CONN, step, phase, s->tally, s->n), PD_OK);
        s->ask_step[i] = step;
        s->ask_phase[i] = phase + 1;
    }
    note(s, step, phase);
    for (uint32_t i = 0; i < s->n; i++) s->tally[i].at = NULL;
    s->last_phase = phase;
    return true;
}

void shard_rigs_settle(shard_rigs *s)
{
    bool more = true;

    rig_work(s->whole);
    while (more) {
        more = false;
        for (uint32_t i = 0; i < s->n; i++) {
            rig_work(s->shard[i]);
            more = ask(s, i) || more;
        }
        more = give(s) || more;
    }
}

const pd_param *shard_rigs_param(const shard_rigs *s, uint32_t portion)
{
    const rig *r = s->shard[s->portion[portion].shard];

    return &inside_job(r->store, r->job)->steps.params[s->portion[portion].index];
}

/* Asserts that the optimizers have counted the same, and have taken, refused and dropped the same roots. */
static void assert_same_roots(const pd_param *here, const pd_param *there)
{
    pd_root_stats ours = pd_optim_root_stats(here->optim), theirs = pd_optim_root_stats(there->optim);

    assert_int_equal(pd_optim_count(here->optim), pd_optim_count(there->optim));
    assert_int_equal(ours.adopted, theirs.adopted);
    assert_int_equal(ours.failed, theirs.failed);
    assert_int_equal(ours.dropped, theirs.dropped);
}

void shard_rigs_assert_same(shard_rigs *s, uint64_t step)
{
    for (uint32_t k = 0; k < s->n_portions; k++) {
        const shard_portion *portion = &s->portion[k];
        rig *r = s->shard[portion->shard];
        const rig_entry *here = rig_versions(r, r->job, portion->index),
                        *there = rig_versions(s->whole, s->whole->job, portion->declared);
        assert_int_equal(here->step, step);
        assert_int_equal(there->step, step);
        assert_int_equal(here->outcome, there->outcome);
        assert_memory_equal(rig_weights(r, r->job, portion->index),
                            rig_weights(s->whole, s->whole->job, portion->declared) + portion->first,
                            (size_t)portion->count * sizeof(float));
        assert_same_roots(shard_rigs_param(s, k),
                          &inside_job(s->whole->store, s->whole->job)->steps.params[portion->declared]);
    }
}
