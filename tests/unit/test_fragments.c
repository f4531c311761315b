/* Tests jobs whose parameters are in several fragments: what is declared, and that each fragment takes its own
 * steps. */
#include "test.h"
#include "fragment.h"
#include "rig.h"
#include "shares.h"
#include "store_inside.h"

enum { WORLD = 3, CONN = 10, N = 100, PARAMS = 4 };

static const char *const names[PARAMS] = { "a", "b", "c", "d" };
static const pd_shape shapes[PARAMS] = { { 1, { N } }, { 1, { N } }, { 1, { N } }, { 1, { N } } };

/* Creates the job "job", and lets its ranks say Hello. No parameter is declared. */
static void begin(rig *r, const char *options, const char *rules)
{
    rig_make(r);
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(rig_hello(r, "job", rank, WORLD, rank + 1, CONN + rank, options, rules), PD_OK);
}

static int declare(rig *r, uint32_t rank, const uint32_t *fragments)
{
    r->fragments = fragments;
    return rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, PARAMS, PD_F32);
}

/* Checks that the first Declare is refused with a text that has `part`. */
static void check_refused(const char *options, const char *rules, const uint32_t *fragments, const char *part)
{
    rig r;

    begin(&r, options, rules);
    assert_int_equal(declare(&r, 0, fragments), PD_INVALID_ARGUMENT);
    if (strstr(r.error.text, part) == NULL) fail_msg("\"%s\" lacks \"%s\"", r.error.text, part);
    assert_int_equal(declare(&r, 0, NULL), PD_OK); /* nothing has changed */
    rig_free(&r);
}

TEST(parameters_are_put_into_their_fragments)
{
    static const uint32_t fragments[PARAMS] = { 1, 0, 1, 2 };
    const pd_steps *steps;
    rig r;

    begin(&r, NULL, "* sgd lr=1");
    assert_int_equal(declare(&r, 0, fragments), PD_OK);
    steps = &inside_job(r.store, r.job)->steps;
    assert_int_equal(steps->n_fragments, 3);
    for (uint32_t i = 0; i < PARAMS; i++) assert_int_equal(steps->params[i].fragment->number, fragments[i]);
    rig_free(&r);
}

TEST(fragments_are_numbered_without_gaps)
{
    check_refused(NULL, "* sgd lr=1", (const uint32_t[]){ 0, 2, 2, 0 }, "fragment 1 has no parameter");
    check_refused(NULL, "* sgd lr=1", (const uint32_t[]){ 1, 1, 1, 1 }, "fragment 0 has no parameter");
}

TEST(a_job_has_at_most_256_fragments)
{
    check_refused(NULL, "* sgd lr=1", (const uint32_t[]){ 0, 1, 2, 256 }, "at most 256 fragments");
}

TEST(fragments_cannot_be_tied_together)
{
    static const uint32_t two[PARAMS] = { 0, 0, 1, 1 };

    check_refused("clip_global_norm=1", "* sgd lr=1", two, "clip_global_norm ties");
    check_refused("skip_outlier=3", "* sgd lr=1", two, "skip_outlier ties");
    check_refused("nonfinite_scope=job", "* sgd lr=1", two, "nonfinite_scope = job ties");
}

TEST(all_ranks_declare_the_same_fragments)
{
    rig r;

    begin(&r, NULL, "* sgd lr=1");
    assert_int_equal(declare(&r, 0, (const uint32_t[]){ 0, 0, 1, 1 }), PD_OK);
    assert_int_equal(declare(&r, 1, (const uint32_t[]){ 0, 1, 1, 1 }), PD_FAILED_PRECONDITION);
    assert_string_equal(r.error.text, "parameter b: job job has it in fragment 0, this rank declares it in fragment 1");
    assert_int_equal(declare(&r, 1, (const uint32_t[]){ 0, 0, 1, 1 }), PD_OK);
    rig_free(&r);
}

/* ---- jobs whose sets of ranks are open ---- */

static const uint32_t two[PARAMS] = { 0, 0, 1, 1 };
static const char *const start_names[PARAMS] = { "p0", "p1", "p2", "p3" }; /* as rig_start names them */

/* Starts a job whose parameters a and b are fragment 0, and c and d fragment 1. */
static void start(rig *r, const char *options)
{
    static const int64_t sizes[PARAMS] = { N, N, N, N };

    rig_make(r);
    r->fragments = two;
    r->job = rig_start(r, "job", WORLD, CONN, sizes, PARAMS, options, "* sgd lr=1");
    rig_work(r);
}

static int push_param(rig *r, uint32_t rank, uint32_t param, uint64_t step)
{
    float g[N];

    for (int i = 0; i < N; i++) g[i] = (float)(rank + 1);
    return rig_push(r, r->job, rank, CONN + rank, step, param, g, N);
}

/* Pushes all parameters of a fragment. */
static void push(rig *r, uint32_t rank, uint32_t fragment, uint64_t step)
{
    for (uint32_t p = 0; p < PARAMS; p++)
        if (two[p] == fragment) assert_int_equal(push_param(r, rank, p, step), PD_OK);
    rig_work(r);
}

static uint64_t step_of(rig *r, uint32_t param)
{
    return rig_versions(r, r->job, param)->step;
}

static const pd_fragment *fragment(const rig *r, uint32_t number)
{
    return &inside_job(r->store, r->job)->steps.fragments[number];
}

TEST(each_fragment_has_steps_and_sets_of_its_own)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push(&r, 0, 0, 1);
    push(&r, 1, 0, 1);
    assert_int_equal(step_of(&r, 0), 1);
    assert_int_equal(step_of(&r, 1), 1);
    assert_int_equal(step_of(&r, 2), 0);
    push(&r, 1, 1, 1);
    push(&r, 2, 1, 1);
    assert_int_equal(step_of(&r, 3), 1);
    assert_int_equal(fragment(&r, 0)->ranks[2].saved.counted, 0);
    assert_int_equal(fragment(&r, 1)->ranks[2].saved.counted, 1);
    assert_int_equal(fragment(&r, 1)->ranks[0].saved.counted, 0);
    rig_free(&r);
}

TEST(a_fragment_may_be_several_steps_ahead)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    for (uint64_t step = 1; step <= 6; step++) {
        push(&r, 0, 0, step);
        push(&r, 1, 0, step);
    }
    assert_int_equal(step_of(&r, 0), 6);
    push(&r, 0, 1, 1);
    push(&r, 2, 1, 1);
    assert_int_equal(step_of(&r, 2), 1);
    rig_free(&r);
}

TEST(a_push_is_late_in_its_own_fragment_alone)
{
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push(&r, 0, 0, 1);
    push(&r, 1, 0, 1);
    push(&r, 2, 0, 1);
    assert_int_equal(r.filed, PD_FILED_LATE);
    push(&r, 2, 1, 1);
    assert_int_equal(r.filed, PD_FILED_FOR);
    rig_free(&r);
}

TEST(a_push_has_parameters_of_one_fragment)
{
    float g[N] = { 1 };
    rig_frame *frame;
    rig r;

    start(&r, "rounds=quorum quorum=2");
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, CONN, 1);
    rig_piece(frame, 1, PD_F32, 0, 64, g);
    rig_piece(frame, 2, PD_F32, 0, 64, g);
    assert_int_equal(rig_send(&r, frame), PD_INVALID_ARGUMENT);
    assert_string_equal(r.error.text, "a push has p1 of fragment 0 and p2 of fragment 1: push the parameters of each "
                                      "fragment in frames of their own, since it has a step of its own");
    push(&r, 0, 0, 1);
    push(&r, 1, 0, 1);
    assert_int_equal(step_of(&r, 0), 1);
    rig_free(&r);
}

TEST(a_push_may_have_parameters_of_several_fragments_if_all_ranks_always_count)
{
    float g[N] = { 1 };
    rig_frame *frame;
    rig r;

    start(&r, NULL);
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, CONN, 1);
    rig_piece(frame, 1, PD_F32, 0, 64, g);
    rig_piece(frame, 2, PD_F32, 0, 64, g);
    assert_int_equal(rig_send(&r, frame), PD_OK);
    rig_work(&r);
    rig_free(&r);
}

TEST(an_overdue_step_is_reported_to_its_fragment_and_one_that_nobody_has_begun_is_not)
{
    rig r;

    start(&r, "rounds=quorum quorum=2 step_timeout=1s");
    push(&r, 0, 0, 1);
    push(&r, 1, 0, 1);
    push(&r, 0, 1, 1);
    rig_sleep(&r, 2);
    assert_int_equal(r.timed_out, 1);
    assert_non_null(strstr(r.timeout.text, "step 1 of fragment 1 has waited"));
    rig_free(&r);
}

TEST(each_overdue_fragment_is_reported)
{
    rig r;

    start(&r, "rounds=quorum quorum=2 step_timeout=1s");
    push(&r, 0, 0, 1);
    push(&r, 0, 1, 1);
    rig_sleep(&r, 2);
    assert_int_equal(r.timed_out, 2);
    rig_free(&r);
}

TEST(a_staleness_that_lets_workers_wait_for_each_other_is_refused)
{
    check_refused("rounds=quorum quorum=2 staleness=1", "* sgd lr=1", two, "2 fragments with a staleness");
    check_refused("rounds=async staleness=3 on_stale=wait", "* sgd lr=1", two, "2 fragments with a staleness");
    check_refused("rounds=sync staleness=1", "* sgd lr=1", two, "2 fragments with a staleness");
}

TEST(a_staleness_that_lets_ranks_of_a_group_wait_for_each_other_is_refused)
{
    static const char *const options = "rounds=async staleness=2", *const rules = "* sgd lr=1";
    rig r;

    rig_make(&r);
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        r.group = rank > 0 ? 1 : 0;
        assert_int_equal(rig_hello(&r, "job", rank, WORLD, rank + 1, CONN + rank, options, rules), PD_OK);
    }
    assert_int_equal(declare(&r, 1, two), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "ranks of a group could wait for each other"));
    assert_int_equal(declare(&r, 0, two), PD_OK); /* it belongs to no group */
    assert_int_equal(declare(&r, 2, two), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.error.text, "ranks of a group could wait for each other"));
    rig_free(&r);
}

TEST(old_pushes_may_count_in_fragments_if_each_step_can_be_taken_with_one_push)
{
    rig r;

    start(&r, "rounds=async staleness=2 damping=none");
    push(&r, 0, 0, 1);
    push(&r, 0, 0, 2);
    push(&r, 1, 0, 1);
    assert_int_equal(step_of(&r, 0), 3);
    assert_int_equal(fragment(&r, 0)->ranks[1].counts.ages, 2);
    rig_free(&r);
}

TEST(a_push_takes_the_place_of_an_uncounted_one_of_its_own_fragment_alone)
{
    rig r;

    start(&r, "rounds=async staleness=2 damping=none");
    assert_int_equal(push_param(&r, 0, 0, 1), PD_OK);
    assert_int_equal(push_param(&r, 0, 2, 1), PD_OK);
    push(&r, 1, 0, 1);
    assert_int_equal(push_param(&r, 0, 0, 2), PD_OK);
    assert_int_equal(fragment(&r, 0)->ranks[0].step, 2);
    assert_int_equal(fragment(&r, 1)->ranks[0].step, 1);
    rig_free(&r);
}

TEST(the_end_of_a_step_ends_it_in_every_fragment)
{
    rig_frame *frame;
    rig r;

    start(&r, "rounds=quorum quorum=2");
    push(&r, 0, 0, 1); /* nothing is left of step 1 of fragment 0 */
    push(&r, 1, 1, 1);
    frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 0, CONN, 1);
    rig_last(frame);
    assert_int_equal(rig_send(&r, frame), PD_OK);
    rig_work(&r);
    assert_int_equal(step_of(&r, 2), 1);
    rig_free(&r);
}

/* ---- shares ---- */

/* Starts such a job, each step of which uses one share of each rank. */
static void start_shares(rig *r, const char *options)
{
    static const int64_t sizes[PARAMS] = { N, N, N, N };

    rig_make(r);
    r->fragments = two;
    r->wants = 1;
    r->job = rig_start(r, "job", WORLD, CONN, sizes, PARAMS, options, "* sgd lr=1");
    rig_work(r);
}

/* Returns the first share that is leased to the rank. */
static uint64_t leased(const rig *r, uint32_t rank)
{
    uint32_t n = 0;
    const pd_lease *leases = pd_shares_of(inside_job(r->store, r->job)->steps.shares, rank, &n);

    assert_true(n > 0);
    return leases[0].ranges[0].first;
}

/* Pushes parameters a and b, or c and d, and says that the push is made of a share. */
static void push_of_share(rig *r, uint32_t rank, uint32_t first, uint64_t share)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, 1);
    float g[N] = { 1 };

    for (uint32_t p = first; p < first + 2; p++) {
        rig_piece(frame, p, PD_F32, 0, 64, g);
        rig_piece(frame, p, PD_F32, 64, N - 64, g);
    }
    rig_share(frame, share);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

TEST(steps_of_fragment_0_alone_use_shares)
{
    rig r;

    start_shares(&r, "rounds=quorum quorum=2");
    for (uint32_t rank = 0; rank < 2; rank++) push_of_share(&r, rank, 2, rank);
    assert_int_equal(step_of(&r, 2), 1);
    assert_int_equal(leased(&r, 0), 0);
    for (uint32_t rank = 0; rank < 2; rank++) push_of_share(&r, rank, 0, rank);
    assert_int_equal(step_of(&r, 0), 1);
    assert_int_equal(leased(&r, 0), 3);
    rig_free(&r);
}

TEST(a_push_of_a_share_that_is_not_leased_is_late_in_fragment_0_alone)
{
    rig r;

    start_shares(&r, "rounds=quorum quorum=2");
    push_of_share(&r, 0, 0, 7);
    assert_int_equal(r.filed, PD_FILED_LATE);
    push_of_share(&r, 0, 2, 7);
    assert_int_equal(r.filed, PD_FILED_FOR);
    rig_free(&r);
}

TEST(the_answer_to_a_declare_names_the_step_of_each_fragment)
{
    rig r;

    start_shares(&r, "rounds=quorum quorum=2");
    for (uint64_t step = 1; step <= 2; step++)
        for (uint32_t rank = 0; rank < 2; rank++) push(&r, rank, 0, step);
    for (uint32_t rank = 0; rank < 2; rank++) push(&r, rank, 1, 1);
    (void)rig_ask_as(&r, PD_REQ_LOST, 2, CONN + 2, 0);
    if (rig_hello(&r, "job", 2, WORLD, 99, 99, "rounds=quorum quorum=2", "* sgd lr=1") != PD_OK)
        fail_msg("%s", r.error.text);
    assert_int_equal(rig_declare(&r, r.job, 2, 99, start_names, shapes, NULL, PARAMS, PD_F32), PD_OK);
    rig_work(&r);
    assert_int_equal(r.steps[0], 2);
    assert_int_equal(r.steps[1], 2);
    assert_int_equal(r.steps[2], 1);
    assert_int_equal(r.steps[3], 1);
    rig_free(&r);
}

/* ---- checkpoints and logs ---- */

/* Starts a job with checkpoints, and takes fragment 0 two steps, fragment 1 one step. */
static void start_durable(rig *r, const char *options)
{
    static const int64_t sizes[PARAMS] = { N, N, N, N };
    pd_store_config config = rig_config();

    config.keeps = true;
    rig_new(r, &config);
    r->fragments = two;
    r->job = rig_start(r, "job", WORLD, CONN, sizes, PARAMS, options, "* sgd lr=1");
    rig_work(r);
    for (uint64_t step = 1; step <= 2; step++)
        for (uint32_t rank = 0; rank < WORLD; rank++) push(r, rank, 0, step);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(r, rank, 1, 1);
}

/* Makes a rig that restores the disk of the rig `from`, and repeats its log. */
static void restore(rig *r, const rig *from)
{
    pd_store_config config = rig_config();

    config.keeps = true;
    rig_new(r, &config);
    assert_int_equal(rig_restore(r, from), PD_OK);
    assert_int_equal(rig_replay(r, from), PD_OK);
    assert_int_equal(rig_read_decisions(r, from), PD_OK);
    r->job = inside_find(r->store, "job")->steps.number;
}

static void check_step(const rig *r, uint32_t param, uint64_t step)
{
    assert_int_equal(inside_job(r->store, r->job)->steps.params[param].saved.step, step);
}

TEST(a_checkpoint_has_each_fragment_at_its_own_step)
{
    rig r, again;

    start_durable(&r, "durability=checkpoint checkpoint_every=0");
    assert_int_equal(rig_checkpoint(&r, "job", CONN + 50, 0, 60), PD_OK);
    rig_work(&r);
    assert_int_equal(r.kept, 1); /* without waiting for fragment 1 */
    assert_int_equal(r.disk->step, 1);
    restore(&again, &r);
    check_step(&again, 0, 2);
    check_step(&again, 1, 2);
    check_step(&again, 2, 1);
    assert_int_equal(inside_job(again.store, again.job)->steps.n_fragments, 2);
    rig_free(&again);
    rig_free(&r);
}

static void check_log(const char *options)
{
    rig r, again;

    start_durable(&r, options);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, 0, 3);
    assert_int_equal(step_of(&r, 0), 3); /* fragment 1 is far behind, and stops nobody */
    restore(&again, &r);
    check_step(&again, 0, 3);
    check_step(&again, 1, 3);
    check_step(&again, 3, 1);
    for (uint32_t p = 0; p < PARAMS; p++)
        assert_memory_equal(inside_job(again.store, again.job)->steps.params[p].current->at[PD_F32],
                            inside_job(r.store, r.job)->steps.params[p].current->at[PD_F32], N * sizeof(float));
    rig_free(&again);
    rig_free(&r);
}

TEST(the_log_has_a_record_for_each_step_of_a_fragment)
{
    check_log("durability=log");
    check_log("durability=log rounds=quorum quorum=3");
}

TEST(steps_up_to_the_lowest_of_a_fragment_are_durable)
{
    rig r;

    start_durable(&r, "durability=log");
    assert_int_equal(r.durable, 1);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, 1, 2);
    assert_int_equal(r.durable, 2);
    rig_free(&r);
}

TEST(with_a_log_the_parameters_of_a_fragment_begin_their_step_together)
{
    rig r;

    start_durable(&r, "durability=log");
    for (uint32_t rank = 0; rank < WORLD; rank++) assert_int_equal(push_param(&r, rank, 0, 3), PD_OK);
    rig_work(&r);
    check_step(&r, 0, 2);
    for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, 1, 2); /* the other fragment goes on */
    check_step(&r, 2, 2);
    for (uint32_t rank = 0; rank < WORLD; rank++) assert_int_equal(push_param(&r, rank, 1, 3), PD_OK);
    rig_work(&r);
    check_step(&r, 0, 3);
    check_step(&r, 1, 3);
    rig_free(&r);
}

TEST(after_a_restart_each_fragment_repeats_its_own_sets)
{
    rig r, again;

    start_durable(&r, "rounds=quorum quorum=2 checkpoint_every=0");
    assert_int_equal(rig_checkpoint(&r, "job", CONN + 50, 0, 60), PD_OK);
    push(&r, 0, 0, 3);
    push(&r, 2, 0, 3);
    push(&r, 1, 1, 2);
    push(&r, 2, 1, 2);
    assert_int_equal(step_of(&r, 2), 2);
    restore(&again, &r);
    again.fragments = two;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        static const char *const own[PARAMS] = { "p0", "p1", "p2", "p3" };
        assert_int_equal(rig_hello(&again, "job", rank, WORLD, CONN + rank, CONN + rank,
                                   "rounds=quorum quorum=2 checkpoint_every=0", "* sgd lr=1"),
                         PD_OK);
        assert_int_equal(rig_declare(&again, again.job, rank, CONN + rank, own, shapes, NULL, PARAMS, PD_F32), PD_OK);
    }
    push(&again, 0, 1, 2);
    push(&again, 1, 1, 2);
    check_step(&again, 2, 1); /* ranks 0 and 1 are a quorum, but ranks 1 and 2 have counted before */
    push(&again, 2, 1, 2);
    check_step(&again, 2, 2);
    assert_int_equal(fragment(&again, 1)->ranks[0].saved.counted, 1);
    rig_free(&again);
    rig_free(&r);
}

/* ---- weights that are changed by hand ---- */

enum { NUMBER = 77 };

/* Sends new weights of a parameter for `step`, as rank 0. `whole`: of how many parameters they come. Returns the code
 * of the answer. */
static int send_weights(rig *r, uint32_t param, uint64_t step, uint32_t whole, float value)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, CONN, step);
    float weights[N];

    for (int i = 0; i < N; i++) weights[i] = value;
    rig_replaces(frame, NUMBER, whole);
    for (int64_t at = 0; at < N; at += r->chunk)
        rig_piece(frame, param, PD_F32, at, N - at < r->chunk ? N - at : r->chunk, weights + at);
    r->error.code = PD_OK;
    (void)rig_send(r, frame);
    rig_work(r);
    return r->error.code;
}

static int push_changed(rig *r, uint32_t rank, uint32_t param, uint64_t step, uint64_t number)
{
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
    static const float g[N];

    rig_replaces(frame, number, 0);
    for (int64_t at = 0; at < N; at += r->chunk)
        rig_piece(frame, param, PD_F32, at, N - at < r->chunk ? N - at : r->chunk, g + at);
    r->error.code = PD_OK;
    (void)rig_send(r, frame);
    rig_work(r);
    return r->error.code;
}

/* Starts a job whose fragment 0 has taken two steps, and fragment 1 one. */
static void start_apart(rig *r, const char *options)
{
    start(r, options);
    for (uint64_t step = 1; step <= 2; step++)
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            push(r, rank, 0, step);
            if (step == 1) push(r, rank, 1, step);
        }
    assert_int_equal(step_of(r, 0), 2);
    assert_int_equal(step_of(r, 2), 1);
}

static void expect_replaced_together(const char *options)
{
    rig r;

    start_apart(&r, options);
    assert_int_equal(send_weights(&r, 0, 2, 3, 5), PD_OK);
    assert_int_equal(send_weights(&r, 2, 1, 3, 6), PD_OK);
    assert_true(rig_weights(&r, r.job, 0)[N - 1] != 5);
    assert_int_equal(send_weights(&r, 3, 1, 3, 7), PD_OK);
    assert_true(rig_weights(&r, r.job, 0)[N - 1] == 5);
    assert_true(rig_weights(&r, r.job, 2)[N - 1] == 6);
    assert_true(rig_weights(&r, r.job, 3)[N - 1] == 7);
    /* p1 keeps its weights, and its next push has the number, too */
    for (uint32_t p = 0; p < PARAMS; p++) {
        uint64_t step = two[p] == 0 ? 3 : 2;
        assert_int_equal(push_changed(&r, 0, p, step, 0), PD_FAILED_PRECONDITION);
        for (uint32_t rank = 0; rank < WORLD; rank++) assert_int_equal(push_changed(&r, rank, p, step, NUMBER), PD_OK);
    }
    assert_int_equal(step_of(&r, 0), 3);
    assert_int_equal(step_of(&r, 3), 2);
    rig_free(&r);
}

HOLDS(weights_of_fragments_at_different_steps_are_replaced_together, expect_replaced_together(NULL));
HOLDS(weights_of_fragments_with_sets_of_their_own_are_replaced_together,
      expect_replaced_together("rounds=quorum quorum=3"));

TEST(a_fragment_whose_weights_stay_needs_no_number)
{
    rig r;

    start_apart(&r, NULL);
    assert_int_equal(send_weights(&r, 2, 1, 1, 6), PD_OK);
    assert_int_equal(push_changed(&r, 0, 0, 3, NUMBER), PD_FAILED_PRECONDITION);
    assert_int_equal(push_changed(&r, 0, 0, 3, 0), PD_OK);
    assert_int_equal(push_changed(&r, 0, 2, 2, NUMBER), PD_OK);
    rig_free(&r);
}

TEST(weights_of_a_fragment_that_has_begun_its_step_are_not_replaced)
{
    rig r;

    start_apart(&r, NULL);
    assert_int_equal(push_param(&r, 0, 2, 2), PD_OK);
    assert_int_equal(send_weights(&r, 0, 2, 2, 5), PD_OK);
    assert_int_equal(send_weights(&r, 3, 1, 2, 6), PD_FAILED_PRECONDITION);
    assert_true(rig_weights(&r, r.job, 0)[N - 1] != 5);
    assert_int_equal(send_weights(&r, 0, 2, 1, 5), PD_OK);
    assert_true(rig_weights(&r, r.job, 0)[N - 1] == 5);
    rig_free(&r);
}

TEST(weights_for_a_fragment_that_has_taken_another_step_meanwhile_do_not_count)
{
    rig r;

    start_apart(&r, "rounds=quorum quorum=2");
    assert_int_equal(send_weights(&r, 2, 1, 2, 6), PD_OK);
    push(&r, 1, 1, 2);
    push(&r, 2, 1, 2);
    assert_int_equal(step_of(&r, 2), 2);
    assert_int_equal(send_weights(&r, 0, 2, 2, 5), PD_FAILED_PRECONDITION); /* those for the step before are gone */
    assert_true(rig_weights(&r, r.job, 0)[N - 1] != 5);
    assert_int_equal(send_weights(&r, 2, 2, 2, 6), PD_OK);
    push(&r, 1, 1, 3);
    push(&r, 2, 1, 3);
    assert_int_equal(send_weights(&r, 2, 3, 2, 6), PD_OK);
    assert_int_equal(send_weights(&r, 0, 2, 2, 5), PD_OK);
    assert_true(rig_weights(&r, r.job, 0)[N - 1] == 5 && rig_weights(&r, r.job, 2)[N - 1] == 6);
    rig_free(&r);
}
