/* Tests what pushes bring besides gradients where not every rank counts in every step: hyperparameters, weights, and
 * changes of weights by hand. They belong to the ranks that count. */
#include "test.h"
#include "rig.h"
#include "store_inside.h"

#include <string.h>

enum { WORLD = 3, CONN = 10, CHUNK = 64, CHUNKS = 2, N = CHUNK * CHUNKS };

static void start(rig *r, const char *options, const char *rule)
{
    static const int64_t sizes[] = { N };
    pd_store_config config = rig_config();

    config.chunk_elements = CHUNK;
    rig_new(r, &config);
    r->job = rig_start(r, "job", WORLD, CONN, sizes, 1, options, rule);
    rig_work(r);
}

/* Makes a push of chunks [first, first + n) of a gradient of ones. */
static rig_frame *frame_of(rig *r, uint32_t rank, uint64_t step, int first, int n)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    float ones[CHUNK];

    for (int i = 0; i < CHUNK; i++) ones[i] = 1;
    for (int c = first; c < first + n; c++) rig_piece(frame, 0, PD_F32, c * CHUNK, CHUNK, ones);
    return frame;
}

static int send(rig *r, rig_frame *frame)
{
    int rc = rig_send(r, frame);

    rig_work(r);
    return rc;
}

/* Pushes a whole gradient of ones, with a learning rate. */
static int push_lr(rig *r, uint32_t rank, uint64_t step, const char *lr)
{
    rig_frame *frame = frame_of(r, rank, step, 0, CHUNKS);

    rig_hyper(frame, "lr", lr);
    return send(r, frame);
}

static int push(rig *r, uint32_t rank, uint64_t step)
{
    return send(r, frame_of(r, rank, step, 0, CHUNKS));
}

static double weight(rig *r)
{
    return (double)rig_weights(r, r->job, 0)[0];
}

/* Checks by how much the weights have moved: by the learning rate, since all gradients are ones. */
static void check_moved(rig *r, double before, double by)
{
    double moved = before - weight(r);

    if (moved < by - 1e-4 || moved > by + 1e-4) fail_msg("the weights move by %g, not %g", moved, by);
}

TEST(a_hyperparameter_is_that_of_the_lowest_rank_that_counts)
{
    double before;
    rig r;

    start(&r, "quorum=2", NULL);
    before = weight(&r);
    assert_int_equal(push_lr(&r, 2, 1, "0.5"), PD_OK);
    assert_int_equal(push_lr(&r, 1, 1, "0.25"), PD_OK);
    check_moved(&r, before, 0.25);
    rig_free(&r);
}

TEST(a_rank_that_has_sent_no_hyperparameter_leaves_it_to_the_others)
{
    double before;
    rig r;

    start(&r, "quorum=2", NULL);
    before = weight(&r);
    assert_int_equal(push(&r, 0, 1), PD_OK);
    assert_int_equal(push_lr(&r, 2, 1, "0.5"), PD_OK);
    check_moved(&r, before, 0.5);
    rig_free(&r);
}

TEST(a_hyperparameter_of_a_rank_that_is_left_out_holds_for_the_step_in_which_it_counts)
{
    rig_frame *part;
    double before;
    rig r;

    start(&r, "quorum=1 staleness=1", NULL);
    before = weight(&r);
    part = frame_of(&r, 0, 1, 0, 1);
    rig_hyper(part, "lr", "0.5");
    assert_int_equal(send(&r, part), PD_OK);
    assert_int_equal(push(&r, 1, 1), PD_OK);
    check_moved(&r, before, 1);
    before = weight(&r);
    assert_int_equal(send(&r, frame_of(&r, 0, 1, 1, 1)), PD_OK);
    check_moved(&r, before, 0.5);
    before = weight(&r);
    assert_int_equal(push(&r, 0, 3), PD_OK);
    check_moved(&r, before, 1);
    rig_free(&r);
}

TEST(a_hyperparameter_of_a_push_that_was_too_late_is_forgotten)
{
    rig_frame *part;
    double before;
    rig r;

    start(&r, "quorum=1", NULL);
    part = frame_of(&r, 0, 1, 0, 1);
    rig_hyper(part, "lr", "0.5");
    assert_int_equal(send(&r, part), PD_OK);
    assert_int_equal(push(&r, 1, 1), PD_OK);
    before = weight(&r);
    assert_int_equal(push(&r, 0, 2), PD_OK);
    check_moved(&r, before, 1);
    rig_free(&r);
}

/* Pushes two parameters in frames of their own, each with a hyperparameter. Returns the code of the first error. */
static int push_both(const char *options, const char *name)
{
    static const int64_t sizes[] = { CHUNK, CHUNK };
    float ones[CHUNK] = { 1 };
    int rc = PD_OK;
    pd_store_config config = rig_config();
    rig r;

    config.chunk_elements = CHUNK;
    rig_new(&r, &config);
    r.job = rig_start(&r, "job", 1, CONN, sizes, 2, options, "p0 model_state;* sgd lr=1");
    rig_work(&r);
    for (uint32_t p = 0; rc == PD_OK && p < 2; p++) {
        rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, CONN, 1);
        rig_piece(frame, p, PD_F32, 0, CHUNK, ones);
        rig_hyper(frame, name, "0.5");
        rc = send(&r, frame);
    }
    if (rc == PD_OK) assert_int_equal(rig_versions(&r, r.job, 0)->step, 1);
    rig_free(&r);
    return rc;
}

TEST(a_frame_without_parameters_of_an_optimizer_may_bring_its_hyperparameters)
{
    assert_int_equal(push_both("", "lr"), PD_OK);
    assert_int_equal(push_both("min_workers=1 max_workers=2", "lr"), PD_OK);
}

TEST(a_hyperparameter_that_no_optimizer_of_the_job_has_is_refused)
{
    assert_int_equal(push_both("", "rate"), PD_INVALID_ARGUMENT);
}

TEST(a_rank_does_not_change_a_hyperparameter_within_a_push)
{
    rig_frame *part;
    rig r;

    start(&r, "quorum=1", NULL);
    part = frame_of(&r, 0, 1, 0, 1);
    rig_hyper(part, "lr", "0.5");
    assert_int_equal(send(&r, part), PD_OK);
    part = frame_of(&r, 0, 1, 1, 1);
    rig_hyper(part, "lr", "0.25");
    assert_int_equal(send(&r, part), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "rank 0 sent lr = 0.5 for step 1, rank 0 sends 0.25"));
    rig_free(&r);
}

TEST(hyperparameters_that_do_not_suit_those_of_lower_ranks_are_left_out_with_a_warning)
{
    rig_frame *frame;
    rig r;

    start(&r, "quorum=2", "* sgd lr=1 momentum=0.9");
    frame = frame_of(&r, 2, 1, 0, CHUNKS);
    rig_hyper(frame, "nesterov", "yes");
    assert_int_equal(send(&r, frame), PD_OK);
    frame = frame_of(&r, 1, 1, 0, CHUNKS);
    rig_hyper(frame, "dampening", "0.5");
    assert_int_equal(send(&r, frame), PD_OK);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 1);
    if (strstr(r.warning, "hyperparameters that rank 2 has pushed are not used in step 1") == NULL)
        fail_msg("%s", r.warning);
    rig_free(&r);
}

TEST(memory_for_hyperparameters_of_ranks_is_charged_when_the_first_one_comes)
{
    uint64_t before;
    rig r;

    start(&r, "quorum=2", NULL);
    before = inside_job(r.store, r.job)->steps.account.used;
    assert_int_equal(push(&r, 1, 1), PD_OK);
    assert_true(inside_job(r.store, r.job)->steps.account.used == before);
    assert_int_equal(push_lr(&r, 2, 1, "0.5"), PD_OK);
    assert_true(inside_job(r.store, r.job)->steps.account.used > before + WORLD * sizeof(double));
    rig_free(&r);
}

static int push_weighted(rig *r, uint32_t rank, uint64_t step, int chunk, double weight)
{
    rig_frame *frame = frame_of(r, rank, step, chunk, 1);

    rig_weight(frame, weight, false);
    return send(r, frame);
}

TEST(the_weight_of_a_push_stays_while_its_contributions_are_kept)
{
    rig r;

    start(&r, "quorum=1 staleness=1 aggregate=weighted_mean", NULL);
    assert_int_equal(push_weighted(&r, 1, 1, 1, 3), PD_OK);
    assert_int_equal(push(&r, 0, 1), PD_OK);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 1);
    assert_int_equal(push_weighted(&r, 1, 1, 0, 5), PD_INVALID_ARGUMENT);
    assert_int_equal(push_weighted(&r, 1, 1, 0, 3), PD_OK);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 2);
    rig_free(&r);
}

TEST(the_weight_of_a_push_that_was_too_late_is_forgotten)
{
    rig r;

    start(&r, "quorum=1 aggregate=weighted_mean", NULL);
    assert_int_equal(push_weighted(&r, 1, 1, 1, 3), PD_OK); /* its first chunk is missing */
    assert_int_equal(push(&r, 0, 1), PD_OK);
    assert_int_equal(push_weighted(&r, 1, 2, 0, 5), PD_OK);
    rig_free(&r);
}

TEST(a_weight_above_the_cap_is_refused)
{
    rig r;

    start(&r, "weight_cap=100 aggregate=weighted_mean", NULL);
    assert_int_equal(push_weighted(&r, 1, 1, 0, 100), PD_OK);
    assert_int_equal(push_weighted(&r, 2, 1, 0, 101), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "weight 101 is more than weight_cap = 100"));
    rig_free(&r);
}

/* Rank 0 changes the weights by hand after step 1, while a push of rank 1 for step 1 is kept. */
TEST(a_change_by_hand_does_not_wait_for_a_rank_that_was_left_out)
{
    rig_frame *frame;
    float values[CHUNK] = { 0 };
    rig r;

    start(&r, "quorum=1 staleness=2", NULL);
    assert_int_equal(send(&r, frame_of(&r, 1, 1, 0, 1)), PD_OK);
    assert_int_equal(push(&r, 0, 1), PD_OK);
    frame = rig_frame_new(&r, PD_REQ_INIT, r.job, 0, CONN, 1);
    for (int c = 0; c < CHUNKS; c++) rig_piece(frame, 0, PD_F32, c * CHUNK, CHUNK, values);
    rig_replaces(frame, 7, 1);
    assert_int_equal(send(&r, frame), PD_OK);
    assert_int_equal(send(&r, frame_of(&r, 1, 1, 1, 1)), PD_OK);
    assert_int_equal(rig_versions(&r, r.job, 0)->step, 2);
    check_moved(&r, 0, 1);
    rig_free(&r);
}
