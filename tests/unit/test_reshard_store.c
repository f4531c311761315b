/* Tests that a job whose shards are made from checkpoints of another number of shards goes on with the bits of one
 * store, and that checkpoints which do not fit together are refused. */
#include "test.h"
#include "cluster.h"
#include "header_image.h"
#include "oom.h"
#include "reshard.h"
#include "round_scalars.h"
#include "store_inside.h"
#include "whole.h"

#define CUT " split_bytes=512KiB"
#define KEPT " durability=checkpoint checkpoint_every=0"

static pd_store_config durable(void)
{
    pd_store_config config = cluster_config();

    config.keeps = true;
    return config;
}

/* ---- checkpoints in memory ---- */

static int read_state(void *arg, uint32_t i, pd_error *err)
{
    (void)arg, (void)i, (void)err;
    return PD_OK;
}

static int read_range(void *arg, uint32_t i, int64_t first, int64_t n, float *to, pd_error *err)
{
    const pd_checkpoint_image *image = arg;

    (void)err;
    assert_in_range(first + n, 0, image->params[i].elements);
    memcpy(to, image->params[i].weights + first, (size_t)n * sizeof *to);
    return PD_OK;
}

/* Stores whose records of decisions belong to the checkpoints; NULL: there are none. */
static rig *decided[CLUSTER_MOST];

static int read_decisions(void *arg, pd_reshard_take *take, void *to, pd_error *err)
{
    const rig *r = arg;
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < r->n_decisions; i++) rc = take(to, r->decisions[i], err);
    return rc;
}

static pd_reshard_source source_of(pd_checkpoint_image *image, const char *name)
{
    image->read_state = read_state;
    image->read_arg = image;
    return (pd_reshard_source){ .name = name, .image = image, .read_range = read_range };
}

/* Makes all states and weights of a new checkpoint, as who writes it does. Returns a copy that has them in memory. */
static pd_checkpoint_image *collect(pd_checkpoint_image *image, pd_error *err)
{
    float **weights = calloc(image->n_params, sizeof *weights);
    uint8_t **states = calloc(image->n_params, sizeof *states);
    pd_checkpoint_image *copy = NULL;
    int rc = PD_OK;

    for (uint32_t i = 0; rc == PD_OK && i < image->n_params; i++) {
        size_t bytes = (size_t)image->params[i].elements * sizeof(float);
        if ((rc = image->lend_weights(image->read_arg, i, err)) == PD_OK)
            memcpy(weights[i] = malloc(bytes + 1), image->params[i].weights, bytes);
    }
    for (uint32_t i = 0; rc == PD_OK && i < image->n_params; i++) {
        if ((rc = image->read_state(image->read_arg, i, err)) == PD_OK)
            memcpy(states[i] = malloc(image->params[i].state_bytes), image->params[i].state,
                   image->params[i].state_bytes);
    }
    for (uint32_t i = 0; i < image->n_params; i++) {
        free(image->params[i].state);
        image->params[i].state = states[i];
        image->params[i].weights = weights[i];
    }
    if (rc == PD_OK) {
        copy = checkpoint_copy(image);
        copy->read_state = NULL;
        copy->lend_weights = NULL;
    }
    for (uint32_t i = 0; i < image->n_params; i++) free(weights[i]);
    free(weights);
    free(states);
    return copy;
}

/* Makes all states and weights of a new checkpoint, and keeps none. Returns the code of the error. */
static int make_all(pd_checkpoint_image *image, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; rc == PD_OK && i < image->n_params; i++) rc = image->lend_weights(image->read_arg, i, err);
    for (uint32_t i = 0; rc == PD_OK && i < image->n_params; i++) rc = image->read_state(image->read_arg, i, err);
    return rc;
}

/* Makes the checkpoints of `shards` shards from those of n. Returns the code of the error. Without `out` keeps none. */
static int reshard(pd_checkpoint_image **out, uint32_t shards, pd_checkpoint_image *const *from, uint32_t n,
                   pd_error *err)
{
    static const char *const names[] = { "a", "b", "c", "d" };
    pd_store_config config = durable();
    pd_reshard_source sources[CLUSTER_MOST];
    pd_reshard *r;
    pd_store *store;
    int rc;

    if (out != NULL) memset(out, 0, shards * sizeof *out);
    for (uint32_t s = 0; s < n; s++) {
        sources[s] = source_of(from[s], names[s]);
        if (decided[s] == NULL) continue;
        sources[s].read_decisions = read_decisions;
        sources[s].decisions_arg = decided[s];
    }
    config.chunk_elements = 1 << 20;
    config.ingest_bytes = config.max_total_bytes = UINT64_MAX / 4;
    if ((rc = pd_store_new(&store, &config, err)) != PD_OK) return rc;
    rc = pd_store_reshard(&r, store, sources, n, shards, err);
    for (uint32_t s = 0; rc == PD_OK && s < shards; s++) {
        pd_checkpoint_image *image;
        if ((rc = pd_reshard_shard(r, s, &image, err)) != PD_OK) break;
        if (out == NULL)
            rc = make_all(image, err);
        else if ((out[s] = collect(image, err)) == NULL)
            rc = err->code;
        pd_checkpoint_image_free(image);
    }
    pd_reshard_free(r);
    pd_store_free(store);
    return rc;
}

/* ---- moving a cluster ---- */

static void checkpoint(rig *r)
{
    assert_int_equal(rig_checkpoint(r, "job", 1, 0, 30), PD_OK);
    rig_work(r);
    assert_non_null(r->disk);
}

/* Makes the store of a new shard from its checkpoint, and lets all ranks join. */
static void restore(cluster *c, uint32_t s, pd_checkpoint_image *image)
{
    rig *r = c->shard[s] = calloc(1, sizeof *r), disk = { .disk = image };

    rig_new(r, &c->config);
    r->shard = s;
    r->shards = c->n;
    if (rig_restore(r, &disk) != PD_OK) fail_msg("shard %u: %s", s, r->error.text);
    r->cluster = s > 0 ? c->number : 0;
    for (uint32_t rank = 0; rank < c->world; rank++)
        if (cluster_join(c, r, rank) != PD_OK) fail_msg("shard %u: %s", s, r->error.text);
    if (s == 0) c->number = r->in_cluster;
    assert_false(r->created);
    assert_false(r->must_init);
}

/* Moves the job to another number of shards. */
static void move(cluster *c, uint32_t shards, uint64_t step)
{
    pd_checkpoint_image *old[CLUSTER_MOST], *made[CLUSTER_MOST];
    pd_error err = { 0 };

    for (uint32_t s = 0; s < c->n; s++) {
        checkpoint(c->shard[s]);
        old[s] = c->shard[s]->disk;
    }
    if (reshard(made, shards, old, c->n, &err) != PD_OK) fail_msg("%s", err.text);
    for (uint32_t s = 0; s < c->n; s++) {
        rig_free(c->shard[s]);
        free(c->shard[s]);
    }
    c->n = shards;
    c->number = 0;
    c->processes += 100;
    for (uint32_t s = 0; s < shards; s++) {
        restore(c, s, made[s]);
        cluster_forget(c, s, step + 1);
        pd_checkpoint_image_free(made[s]);
    }
}

/* Trains on one store, and on shards whose number changes after every six steps. */
static void train(const cluster_model *model, const char *options, const char *rules, const uint32_t *shards, size_t n)
{
    pd_store_config config = durable();
    cluster c;
    uint64_t step = 0;

    cluster_start(&c, shards[0], 2, &config, model, options, rules);
    for (size_t k = 0; k < n; k++) {
        if (k > 0) move(&c, shards[k], step);
        if (k == 1) assert_int_equal(rig_set(c.whole, "job", "wte", "lr=0.002", step + 9), PD_OK);
        for (uint32_t i = 0; k == 1 && i < c.n; i++) { /* the setting is planned for after the next move */
            int rc = rig_set(c.shard[i], "job", "wte", "lr=0.002", step + 9);
            assert_true(rc == PD_OK || rc == PD_NOT_FOUND);
        }
        for (uint64_t end = step + 6; step < end;) {
            step++;
            cluster_step(&c, step, step % 5 == 0 ? 1 << 1 : 0, step == 8 ? 0 : -1);
        }
        cluster_assert_same(&c, step);
    }
    cluster_free(&c);
}

/* The numbers of shards, one after the other. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
static const uint32_t there_and_back[] = { 2, 1, 3 }; /* since sanitizers are slow */
#else
static const uint32_t there_and_back[] = { 1, 3, 2, 1, 4 };
#endif
enum { MOVES = sizeof there_and_back / sizeof *there_and_back };

TEST(an_element_wise_rule_goes_on_with_its_bits)
{
    train(cluster_small_model(), "nonfinite_scope=job nonfinite=skip clip_global_norm=3" KEPT CUT, "* adamw lr=0.01",
          there_and_back, MOVES);
}

TEST(blocks_and_whole_parameters_go_on_with_their_bits)
{
    train(cluster_small_model(), "nonfinite_scope=job nonfinite=skip" KEPT CUT,
          "proj kron learning_rate=0.01;* shampoo lr=0.01 max_preconditioner_dim=64 precondition_frequency=3 "
          "start_preconditioning_step=3 root_delay=2",
          there_and_back, MOVES);
}

TEST(ranks_declare_their_ranges_again)
{
    cluster_model model = *cluster_small_model();

    model.ranged = true;
    train(&model, "nonfinite_scope=job nonfinite=skip skip_outlier=100" KEPT CUT, "* nadam lr=0.01", there_and_back,
          MOVES);
}

/* ---- what does not belong to a portion ---- */

static const cluster_model tiny = { .n = 3,
                                    .names = { "w#", "b", "m" },
                                    .shapes = { { 2, { 12, 4 } }, { 1, { 5 } }, { 1, { 3 } } },
                                    .states = { [2] = true } };

/* Starts a small job on n shards, takes steps, and makes checkpoints. */
static void start_tiny(cluster *c, uint32_t n, const char *options, uint64_t steps)
{
    static uint64_t starts;
    pd_store_config config = durable();

    config.start = ++starts;
    cluster_start(c, n, 2, &config, &tiny, options, "* adamw lr=0.01");
    for (uint64_t step = 1; step <= steps; step++) cluster_step(c, step, 0, -1);
    for (uint32_t s = 0; s < n; s++) checkpoint(c->shard[s]);
}

#define TINY "nonfinite_scope=job" KEPT

static const pd_job *only_job(const rig *r)
{
    return inside_find(r->store, "job");
}

TEST(counters_add_up_and_settings_stay_one)
{
    uint64_t contributions = 0, steps = 0, of_params = 0;
    pd_checkpoint_image *old[2], *made[1];
    pd_error err = { 0 };
    cluster c;

    start_tiny(&c, 2, TINY, 2);
    for (uint32_t s = 0; s < 2; s++) {
        assert_int_equal(rig_set(c.shard[s], "job", "*", "lr=0.5", 9), PD_OK);
        assert_int_equal(rig_note(c.shard[0], s, CLUSTER_CONN + s, 3, s == 0 ? "note" : "other"), PD_OK);
    }
    cluster_step(&c, 3, 0, -1);
    for (uint32_t s = 0; s < 2; s++) {
        const pd_job *job = only_job(c.shard[s]);
        checkpoint(c.shard[s]);
        old[s] = c.shard[s]->disk;
        contributions += job->steps.saved.contributions;
        steps += job->steps.saved.steps;
        for (uint32_t i = 0; i < job->steps.n_params; i++) of_params += job->steps.params[i].saved.contributions;
    }
    if (reshard(made, 1, old, 2, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(made[0]->n_worker_states, 2);
    assert_memory_equal(made[0]->worker_states[1].at, "other", 5);
    for (uint32_t s = 0; s < 2; s++) {
        rig_free(c.shard[s]);
        free(c.shard[s]);
    }
    c.n = 1;
    c.processes = 100;
    restore(&c, 0, made[0]);
    pd_checkpoint_image_free(made[0]);
    assert_int_equal(only_job(c.shard[0])->steps.saved.contributions, contributions);
    assert_int_equal(only_job(c.shard[0])->steps.saved.steps, steps);
    assert_int_equal(only_job(c.shard[0])->counts.overrides, 1);
    for (uint32_t i = 0; i < tiny.n; i++) of_params -= only_job(c.shard[0])->steps.params[i].saved.contributions;
    assert_int_equal(of_params, 0);
    cluster_free(&c);
}

TEST(settings_after_the_checkpoint_are_in_the_records)
{
    for (int with = 0; with < 2; with++) {
        pd_checkpoint_image *old[2], *made[1];
        pd_error err = { 0 };
        cluster c;

        start_tiny(&c, 2, TINY, 3);
        for (uint32_t s = 0; s < 2; s++) {
            assert_int_equal(rig_set(c.shard[s], "job", "*", "lr=0.25", 4), PD_OK);
            rig_work(c.shard[s]);
            assert_int_not_equal(c.shard[s]->n_decisions, 0);
            old[s] = c.shard[s]->disk;
            decided[s] = with ? c.shard[s] : NULL;
        }
        assert_int_equal(rig_set(c.whole, "job", "*", "lr=0.25", 4), PD_OK);
        if (reshard(made, 1, old, 2, &err) != PD_OK) fail_msg("%s", err.text);
        for (uint32_t s = 0; s < 2; s++) {
            decided[s] = NULL;
            rig_free(c.shard[s]);
            free(c.shard[s]);
        }
        c.n = 1;
        c.processes = 100;
        restore(&c, 0, made[0]);
        pd_checkpoint_image_free(made[0]);
        assert_int_equal(only_job(c.shard[0])->counts.overrides, with);
        cluster_step(&c, 4, 0, -1);
        if (with) cluster_assert_same(&c, 4);
        cluster_free(&c);
    }
}

TEST(the_same_checkpoints_give_the_same_bytes)
{
    pd_checkpoint_image *old[1], *made[2][2];
    pd_error err = { 0 };
    cluster c;

    start_tiny(&c, 1, TINY, 3);
    old[0] = c.shard[0]->disk;
    for (int k = 0; k < 2; k++) assert_int_equal(reshard(made[k], 2, old, 1, &err), PD_OK);
    for (uint32_t s = 0; s < 2; s++) {
        const pd_checkpoint_image *a = made[0][s], *b = made[1][s];
        assert_int_equal(a->head_bytes, b->head_bytes);
        assert_memory_equal(a->head, b->head, a->head_bytes);
        assert_int_equal(a->creator, b->creator);
        for (uint32_t i = 0; i < a->n_params; i++)
            assert_memory_equal(a->params[i].state, b->params[i].state, a->params[i].state_bytes);
    }
    assert_true(made[0][0]->creator != made[0][1]->creator && made[0][0]->creator != old[0]->creator);
    for (int k = 0; k < 2; k++)
        for (int s = 0; s < 2; s++) pd_checkpoint_image_free(made[k][s]);
    cluster_free(&c);
}

/* ---- errors ---- */

static void expect_refused(uint32_t shards, pd_checkpoint_image *const *from, uint32_t n, int code, const char *says)
{
    pd_checkpoint_image *made[CLUSTER_MOST];
    pd_error err = { 0 };

    int rc = reshard(made, shards, from, n, &err);

    if (rc != code || strstr(err.text, says) == NULL) fail_msg("%d: %s", rc, err.text);
    for (uint32_t s = 0; s < shards; s++) pd_checkpoint_image_free(made[s]);
}

TEST(checkpoints_that_are_not_all_shards_of_a_job_are_refused)
{
    pd_checkpoint_image *old[2];
    cluster c, other;

    start_tiny(&c, 2, TINY, 3);
    start_tiny(&other, 2, TINY, 3);
    old[0] = c.shard[1]->disk;
    old[1] = c.shard[1]->disk;
    expect_refused(3, old, 1, PD_FAILED_PRECONDITION, "a has shard 1 of 2 of job job: give the directories of all 2");
    expect_refused(3, old, 2, PD_FAILED_PRECONDITION, "a and b both have shard 1 of 2");
    old[1] = other.shard[0]->disk;
    expect_refused(1, old, 2, PD_FAILED_PRECONDITION, "different clusters");
    old[1] = c.shard[0]->disk;
    old[1]->step++;
    expect_refused(1, old, 2, PD_DATA_LOSS, "the checkpoint is of step");
    old[1]->step--;
    old[1]->params[0].step--;
    expect_refused(1, old, 2, PD_FAILED_PRECONDITION, "others are at 3");
    old[1]->params[0].step++;
    expect_refused(4, old, 2, PD_FAILED_PRECONDITION, "Use fewer shards");
    old[1]->params[0].state[old[1]->params[0].state_bytes / 2] ^= 1;
    old[1]->head[old[1]->head_bytes / 2] ^= 0x40;
    assert_int_not_equal(old[1]->head_bytes, 0);
    cluster_free(&c);
    cluster_free(&other);
}

TEST(a_job_that_goes_on_without_some_ranks_is_refused)
{
    pd_checkpoint_image *old[1];
    cluster c;

    start_tiny(&c, 1, "quorum=2" KEPT, 1);
    old[0] = c.shard[0]->disk;
    expect_refused(2, old, 1, PD_FAILED_PRECONDITION, "not every rank counts in each of its steps");
    cluster_free(&c);
}

TEST(every_byte_of_a_header_is_checked)
{
    pd_checkpoint_image *old[2], *made[1];
    pd_error err = { 0 };
    int refused = 0;
    cluster c;

    start_tiny(&c, 2, TINY, 1);
    for (uint32_t s = 0; s < 2; s++) old[s] = c.shard[s]->disk;
    for (size_t at = 0; at < old[1]->head_bytes; at += 13) {
        old[1]->head[at] ^= 0xa5;
        refused += reshard(made, 1, old, 2, &err) != PD_OK;
        pd_checkpoint_image_free(made[0]);
        old[1]->head[at] ^= 0xa5;
    }
    assert_true(refused > 10);
    cluster_free(&c);
}

TEST(without_memory_nothing_is_made)
{
    pd_checkpoint_image *old[2];
    pd_error err = { 0 };
    bool failed = true;
    int refused = 0;
    cluster c;

    start_tiny(&c, 2, TINY, 2);
    for (uint32_t s = 0; s < 2; s++) old[s] = c.shard[s]->disk;
    for (int64_t n = 0; failed; n++) {
        int rc;
        oom_arm(n);
        rc = reshard(NULL, 1, old, 2, &err);
        failed = oom_disarm();
        if (rc != PD_OK) assert_int_equal(rc, PD_NO_MEMORY);
        refused += rc != PD_OK;
    }
    assert_true(refused > 100);
    cluster_free(&c);
}
