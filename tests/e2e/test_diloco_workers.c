/* Tests pd_diloco with a real daemon: late answers, errors, lost steps and jobs, workers that come back, and workers of
 * unlike speeds. golden.diloco compares whole trainings with recorded ones. */
#include "test.h"
#include "outer.h"
#include "oom.h"
#include "outer_crew.h"

static pd_error err;
static outer_crew crew;

static const char *const alone_at_once[] = { "rounds=quorum", "quorum=1", NULL };

/* A sync of one worker alone, in a job where one is a quorum. */
static void sync_one(outer_worker *w, float work)
{
    outer_train(w, work);
    outer_send(w, 0);
    outer_take(w, 0);
}

static pd_diloco_status status_of(const outer_worker *w)
{
    return pd_diloco_status_now(w->outer);
}

TEST(a_late_worker_keeps_its_work_and_its_next_contribution_has_it)
{
    const outer_job job = { .world = 2, .params = 2, .options = alone_at_once, .how.sync_every = 1 };
    outer_worker *fast = &crew.workers[0], *slow = &crew.workers[1];

    outer_begin(&crew, &job, false);
    sync_one(fast, 3);
    sync_one(fast, 4);
    sync_one(slow, 10);
    for (size_t p = 0; p < 2; p++) outer_expect(slow, p, 17, 7);
    assert_int_equal(status_of(slow).late, 1);
    assert_int_equal(status_of(slow).step, 2);
    sync_one(slow, 20);
    for (size_t p = 0; p < 2; p++) outer_expect(slow, p, 37, 37);
    assert_int_equal(status_of(slow).counted, 1);
    assert_int_equal(status_of(slow).late, 1);
    outer_end(&crew);
}

TEST(a_late_worker_that_drops_its_work_goes_on_from_the_global_weights)
{
    const outer_job job = {
        .world = 2, .params = 1, .options = alone_at_once, .how = { .sync_every = 1, .drop_late = true }
    };

    outer_begin(&crew, &job, false);
    sync_one(&crew.workers[0], 3);
    sync_one(&crew.workers[1], 10);
    outer_expect(&crew.workers[1], 0, 3, 3);
    sync_one(&crew.workers[1], 1);
    outer_expect(&crew.workers[1], 0, 4, 4);
    outer_end(&crew);
}

TEST(whoever_is_late_no_work_is_lost_and_none_counts_twice)
{
    const outer_job job = { .world = 3, .params = 1, .options = alone_at_once, .how.sync_every = 1 };
    unsigned seed = 5;
    float sum = 0;
    uint64_t late = 0;

    outer_begin(&crew, &job, false);
    for (int i = 0; i < 60; i++) {
        float work = (float)(rand_r(&seed) % 9);
        sync_one(&crew.workers[rand_r(&seed) % 3], work);
        sum += work;
    }
    for (int r = 0; r < 3; r++) { /* the second time it is not late */
        sync_one(&crew.workers[r], 0);
        sync_one(&crew.workers[r], 0);
    }
    outer_expect(&crew.workers[2], 0, sum, sum);
    for (int r = 0; r < 3; r++) {
        pd_diloco_status now = status_of(&crew.workers[r]);
        assert_int_equal(now.pushes, now.counted + now.late);
        late += now.late;
    }
    assert_true(late > 10);
    outer_end(&crew);
}

TEST(model_state_of_a_late_worker_is_sent_again_as_it_is)
{
    const outer_job job = { .world = 2, .params = 2, .options = alone_at_once, .state = true, .how.sync_every = 1 };
    outer_worker *slow = &crew.workers[1];

    outer_begin(&crew, &job, false);
    sync_one(&crew.workers[0], 3);
    outer_expect(&crew.workers[0], 1, 3, 3);
    sync_one(slow, 10);
    outer_expect(slow, 0, 13, 3);
    outer_expect(slow, 1, 10, 3);
    sync_one(slow, 1);
    outer_expect(slow, 1, 11, 11);
    outer_end(&crew);
}

/* Sends and takes a fragment of one worker alone, in a job where one is a quorum. */
static void sync_fragment(outer_worker *w, int64_t fragment)
{
    outer_send(w, fragment);
    outer_take(w, fragment);
}

TEST(fragments_of_late_workers_keep_their_work_one_by_one)
{
    const outer_job job = { .world = 3, .params = 4, .fragments = 4, .options = alone_at_once, .how.sync_every = 4 };
    unsigned seed = 9;
    float sum = 0;
    uint64_t late = 0;

    outer_begin(&crew, &job, false);
    for (int i = 0; i < 80; i++) {
        outer_worker *w = &crew.workers[rand_r(&seed) % 3];
        float work = (float)(rand_r(&seed) % 9);
        sync_fragment(w, outer_train(w, work).send);
        sum += work;
    }
    for (int i = 0; i < 3 * 4 * 2; i++)
        sync_fragment(&crew.workers[i / 8], i / 2 % 4); /* the second time none is late */
    for (size_t p = 0; p < 4; p++) outer_expect(&crew.workers[2], p, sum, sum);
    for (int r = 0; r < 3; r++) late += status_of(&crew.workers[r]).late;
    assert_true(late > 10);
    outer_end(&crew);
}

typedef struct notices {
    int n;
    char last[600];
} notices;

static void note(void *arg, const char *text)
{
    notices *all = arg;

    if (strstr(text, "too late to count") == NULL) return;
    all->n++;
    snprintf(all->last, sizeof all->last, "%s", text);
}

TEST(three_late_answers_in_a_row_give_one_notice_with_the_share_that_counts)
{
    notices heard = { 0 };
    const outer_job job = {
        .world = 2, .params = 1, .options = alone_at_once, .how.sync_every = 1, .notice = note, .notice_arg = &heard
    };

    outer_begin(&crew, &job, false);
    sync_one(&crew.workers[1], 1);
    for (int i = 0; i < 4; i++) {
        sync_one(&crew.workers[0], 1);
        if (i == 0) sync_one(&crew.workers[0], 1); /* its first one was late */
        sync_one(&crew.workers[1], 1);
        assert_int_equal(heard.n, i >= 2);
    }
    assert_non_null(strstr(heard.last, "3 contributions of this worker in a row"));
    assert_non_null(strstr(heard.last, "of 4 in all, 1 have counted (25 %)"));
    outer_end(&crew);
}

/* Makes another pd_diloco of the first worker, which must be refused. */
static void refused(pd_diloco_options how, const char *part)
{
    pd_diloco *none = NULL;

    assert_int_equal(pd_diloco_make(&none, crew.workers[0].client, crew.workers[0].weights, &how, &err),
                     PD_INVALID_ARGUMENT);
    if (strstr(err.text, part) == NULL) fail_msg("%s", err.text);
    assert_null(none);
}

TEST(options_that_cannot_be_are_refused_in_words)
{
    const outer_job job = { .world = 1, .params = 4, .fragments = 4, .how.sync_every = 8 };

    outer_begin(&crew, &job, false);
    refused((pd_diloco_options){ .sync_every = 0 }, "multiple of the number of fragments, 4, got 0");
    refused((pd_diloco_options){ .sync_every = 10 }, "multiple of the number of fragments, 4, got 10");
    refused((pd_diloco_options){ .sync_every = 8, .fragment_sync_delay = 2 }, "expected less than");
    refused((pd_diloco_options){ .sync_every = 8, .fragment_update_alpha = 1.5 }, "expected 0 to 1, got 1.5");
    refused((pd_diloco_options){ .sync_every = 8, .fragment_update_alpha = NAN }, "expected 0 to 1");
    crew.workers[0].weights[2] = NULL;
    refused((pd_diloco_options){ .sync_every = 8 }, "parameter c: no weights");
    crew.workers[0].weights[2] = crew.workers[0].all[2];
    assert_int_equal(pd_diloco_make_sized(&(pd_diloco *){ NULL }, crew.workers[0].client, crew.workers[0].weights,
                                          &job.how, 8, &err),
                     PD_INVALID_ARGUMENT);
    outer_end(&crew);
}

static int make_another(const void *what)
{
    const pd_diloco_options how = { .sync_every = 8 };
    const outer_worker *w = what;
    pd_diloco *other = NULL;
    int rc = pd_diloco_make(&other, w->client, w->weights, &how, NULL);

    pd_diloco_free(other);
    return rc;
}

TEST(without_memory_none_is_made)
{
    const outer_job job = { .world = 1, .params = 4, .fragments = 4, .how.sync_every = 8 };

    outer_begin(&crew, &job, false);
    assert_true(oom_each(make_another, &crew.workers[0]) >= 5);
    outer_end(&crew);
}

TEST(a_pd_diloco_needs_declared_parameters)
{
    const pd_diloco_options how = { .sync_every = 1 };
    pd_diloco *none = NULL;
    pd_client *client;
    pd_client_options options = { .urls = NULL, .job = "none", .world_size = 1, .quiet = true };
    test_daemon *daemon = daemon_start(NULL);

    options.urls = daemon->url;
    assert_int_equal(pd_client_open(&client, &options, &err), PD_OK);
    assert_int_equal(pd_diloco_make(&none, client, NULL, &how, &err), PD_FAILED_PRECONDITION);
    pd_client_close(client);
    daemon_end(daemon);
}

TEST(fragments_are_sent_one_after_the_other_and_taken_when_they_were_sent)
{
    const outer_job job = { .world = 1, .params = 4, .fragments = 2, .how.sync_every = 2 };
    outer_worker *w = &crew.workers[0];

    outer_begin(&crew, &job, false);
    assert_int_equal(pd_diloco_send(w->outer, 2, w->weights, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_diloco_send(w->outer, -1, w->weights, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_diloco_take(w->outer, 0, w->weights, &err), PD_FAILED_PRECONDITION);
    outer_train(w, 5);
    outer_send(w, 1);
    assert_int_equal(pd_diloco_send(w->outer, 0, w->weights, &err), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(err.text, "fragment 1 is under way"));
    assert_int_equal(pd_diloco_take(w->outer, 0, w->weights, &err), PD_FAILED_PRECONDITION);
    outer_take(w, 1);
    for (size_t p = 0; p < 4; p++) outer_expect(w, p, 5, p % 2 == 1 ? 5 : 0);
    assert_int_equal(status_of(w).step, 0);
    outer_end(&crew);
}

static void send_nothing(outer_worker *w, int64_t fragment)
{
    assert_int_equal(pd_diloco_send(w->outer, fragment, NULL, &err), PD_OK);
}

TEST(a_worker_that_sends_no_weights_leaves_the_round_to_the_others)
{
    const outer_job job = { .world = 2, .params = 1, .how.sync_every = 2 };

    outer_begin(&crew, &job, false);
    outer_train(&crew.workers[0], 4);
    outer_send(&crew.workers[0], 0);
    send_nothing(&crew.workers[1], 0);
    for (int r = 0; r < 2; r++) outer_take(&crew.workers[r], 0);
    for (int r = 0; r < 2; r++) outer_expect(&crew.workers[r], 0, 4, 4);
    outer_end(&crew);
}

TEST(a_round_to_which_nobody_contributes_does_not_move_the_outer_optimizer)
{
    const outer_job job = { .world = 1, .params = 1, .rule = "* sgd lr=1 momentum=0.5", .how.sync_every = 2 };
    outer_worker *w = &crew.workers[0];

    outer_begin(&crew, &job, false);
    outer_train(w, 4);
    outer_send(w, 0);
    outer_take(w, 0);
    send_nothing(w, 0);
    outer_take(w, 0);
    outer_expect(w, 0, 4, 4);
    assert_int_equal(status_of(w).step, 2);
    outer_end(&crew);
}

TEST(weights_may_change_while_their_fragment_is_under_way)
{
    const outer_job job = { .world = 1,
                            .params = 1,
                            .how = { .sync_every = 4, .fragment_sync_delay = 2, .fragment_update_alpha = 0.5 } };
    outer_worker *w = &crew.workers[0];

    outer_begin(&crew, &job, false);
    outer_train(w, 4);
    outer_send(w, 0);
    outer_train(w, 6);
    outer_take(w, 0);
    outer_expect(w, 0, 7, 4); /* half of 10, and half of 4 */
    outer_end(&crew);
}

TEST(a_wait_that_is_over_keeps_the_fragment_under_way_until_the_others_have_come)
{
    const outer_job job = { .world = 2, .params = 1, .slice = 0.3, .how.sync_every = 1 };
    outer_worker *first = &crew.workers[0], *second = &crew.workers[1];
    int rc;

    outer_begin(&crew, &job, false);
    for (int r = 0; r < 2; r++) outer_train(&crew.workers[r], r == 0 ? 2 : 4);
    outer_send(first, 0);
    assert_int_equal(pd_diloco_take(first->outer, 0, first->weights, &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "waited"));
    outer_expect(first, 0, 2, 0);
    outer_send(second, 0);
    do rc = pd_diloco_finish(first->outer, first->weights, &err);
    while (rc == PD_DEADLINE_EXCEEDED);
    assert_int_equal(rc, PD_OK);
    outer_expect(first, 0, 3, 3);
    outer_end(&crew);
}

TEST(after_the_deadline_of_a_step_the_same_contribution_is_sent_again_and_counts_once)
{
    static const char *const options[] = { "step_timeout=200ms", NULL };
    const outer_job job = { .world = 2, .params = 2, .options = options, .how.sync_every = 1 };
    outer_worker *first = &crew.workers[0], *second = &crew.workers[1];

    outer_begin(&crew, &job, false);
    for (int r = 0; r < 2; r++) outer_train(&crew.workers[r], r == 0 ? 2 : 4);
    outer_send(first, 0);
    assert_int_equal(pd_diloco_take(first->outer, 0, first->weights, &err), PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(err.text, "has not contributed"));
    outer_send(second, 0);
    outer_take(first, 0);
    outer_take(second, 0);
    for (int r = 0; r < 2; r++) outer_expect(&crew.workers[r], 1, 3, 3);
    outer_end(&crew);
}

TEST(a_pd_diloco_may_be_freed_while_its_fragment_is_under_way)
{
    const outer_job job = { .world = 2, .params = 1, .how.sync_every = 1 };
    outer_worker *first = &crew.workers[0], *second = &crew.workers[1];

    outer_begin(&crew, &job, false);
    outer_train(first, 2);
    outer_send(first, 0);
    pd_diloco_free(first->outer);
    first->outer = NULL;
    outer_train(second, 4);
    outer_send(second, 0);
    outer_take(second, 0);
    outer_expect(second, 0, 3, 3);
    outer_end(&crew);
}

TEST(a_worker_without_tokens_does_not_count_where_contributions_weigh_tokens)
{
    static const char *const options[] = { "aggregate=weighted_mean", NULL };
    const outer_job job = {
        .world = 2, .params = 1, .options = options, .how = { .sync_every = 1, .weigh_tokens = true }
    };

    outer_begin(&crew, &job, false);
    for (int r = 0; r < 2; r++) outer_train(&crew.workers[r], r == 0 ? 2 : 4); /* on one token */
    crew.workers[0].outer->fragments[0].tokens = 0;
    for (int r = 0; r < 2; r++) outer_send(&crew.workers[r], 0);
    for (int r = 0; r < 2; r++) outer_take(&crew.workers[r], 0);
    for (int r = 0; r < 2; r++) outer_expect(&crew.workers[r], 0, 4, 4);
    outer_end(&crew);
}

TEST(weights_that_are_not_finite_leave_the_global_ones_as_they_were)
{
    const outer_job job = { .world = 1, .params = 1, .how.sync_every = 1 };

    outer_begin(&crew, &job, false);
    sync_one(&crew.workers[0], 2);
    sync_one(&crew.workers[0], NAN);
    outer_expect(&crew.workers[0], 0, 2, 2);
    outer_end(&crew);
}

TEST(differences_are_taken_from_the_global_weights_as_they_were_received)
{
    const outer_job job = { .world = 1, .params = 1, .push = PD_F16, .pull = PD_BF16, .how.sync_every = 1 };
    outer_worker *w = &crew.workers[0];

    outer_begin(&crew, &job, false);
    sync_one(w, 257);
    outer_expect(w, 0, 256, 256); /* the server has 257, which bfloat16 does not */
    sync_one(w, 3);
    outer_expect(w, 0, 260, 260); /* 257 + 3; with the rounding error in the difference it would be 259 */
    outer_end(&crew);
}

TEST(a_rank_without_elements_of_a_fragment_takes_part_in_the_others)
{
    const outer_job job = { .world = 2, .params = 2, .fragments = 2, .split = true, .how.sync_every = 2 };

    outer_begin(&crew, &job, false);
    for (int round = 1; round <= 2; round++)
        for (int64_t f = 0; f < 2; f++) {
            for (int r = 0; r < 2; r++) outer_train(&crew.workers[r], 1);
            for (int r = 0; r < 2; r++) outer_send(&crew.workers[r], f);
            for (int r = 0; r < 2; r++) outer_take(&crew.workers[r], f);
        }
    for (int r = 0; r < 2; r++) {
        assert_int_equal(status_of(&crew.workers[r]).step, 2);
        assert_null(pd_diloco_global(crew.workers[r].outer, r == 0 ? 1 : 0));
    }
    outer_expect(&crew.workers[0], 0, 4, 3);
    outer_expect(&crew.workers[1], 1, 4, 4);
    outer_end(&crew);
}

TEST(a_process_that_comes_back_goes_on_with_the_fragment_whose_turn_it_is)
{
    const outer_job job = { .world = 1, .params = 4, .fragments = 2, .how.sync_every = 6 };
    outer_worker *w = &crew.workers[0];
    pd_diloco_due due = { -1, -1 };

    outer_begin(&crew, &job, false);
    for (int t = 0; t < 9; t++) {
        outer_train(w, 1);
        if ((t + 1) % 3 == 0) outer_send(w, t / 3 % 2), outer_take(w, t / 3 % 2);
    }
    pd_diloco_free(w->outer);
    pd_client_close(w->client);
    outer_open(&crew, 0);
    outer_make(&crew, 0);
    assert_int_equal(status_of(w).inner_steps, 9);
    assert_int_equal(status_of(w).step, 1);
    for (int t = 0; t < 3; t++) due = outer_train(w, 1);
    assert_int_equal(due.send, 1);
    outer_expect(w, 0, 9 + 3, 9);
    outer_expect(w, 1, 6 + 3, 6);
    outer_end(&crew);
}

/* Lets rank 1 push parameter 0 alone, as a process does that is killed in the middle of a push. */
static void push_half(outer_worker *w)
{
    static const float difference[OUTER_N] = { -4, -4, -4, -4, -4, -4 };
    pd_item item = { .param = 0, .gradient = difference, .weights = w->all[0] };
    pd_ticket_id ticket;

    assert_int_equal(pd_client_push_pull(w->client, &item, 1, NULL, &ticket, &err), PD_OK);
    assert_int_equal(pd_client_wait(w->client, ticket, patient(10), &err), PD_OK);
}

TEST(a_process_that_takes_a_rank_over_in_the_middle_of_a_push_sends_what_was_missing)
{
    const outer_job job = { .world = 2, .params = 2, .how.sync_every = 1 };
    outer_worker *first = &crew.workers[0], *second = &crew.workers[1];

    outer_begin(&crew, &job, false);
    outer_train(first, 2);
    outer_send(first, 0);
    push_half(second);
    pd_diloco_free(second->outer);
    pd_client_close(second->client);
    outer_open(&crew, 1);
    outer_make(&crew, 1);
    assert_int_equal(status_of(second).step, 0);
    outer_train(second, 6);
    outer_send(second, 0);
    outer_take(second, 0);
    outer_take(first, 0);
    outer_expect(first, 0, 3, 3);  /* the mean of 2 and 4 */
    outer_expect(first, 1, 4, 4);  /* the mean of 2 and 6 */
    outer_expect(second, 0, 9, 3); /* this step was taken before: its work goes into the next contribution */
    outer_expect(second, 1, 4, 4);
    assert_int_equal(status_of(second).step, 1);
    outer_end(&crew);
}

TEST(after_a_rewind_weights_and_place_are_those_of_the_checkpoint)
{
    static const char *const options[] = { "durability=checkpoint", "checkpoint_every=1000", NULL };
    const outer_job job = { .world = 1, .params = 2, .fragments = 2, .options = options, .how.sync_every = 2 };
    outer_worker *w = &crew.workers[0];
    int rc;

    outer_begin(&crew, &job, true);
    for (int t = 0; t < 2; t++) assert_int_equal(pd_diloco_step(w->outer, w->weights, 0, &err), PD_OK);
    for (int i = 0; i < OUTER_N; i++) w->all[0][i] = 3;
    for (int t = 0; t < 2; t++) assert_int_equal(pd_diloco_step(w->outer, w->weights, 0, &err), PD_OK);
    assert_int_equal(pd_client_sync(w->client, 2, &err), PD_OK);
    outer_train(w, 5);
    outer_send(w, 0);
    outer_take(w, 0);
    outer_restart_daemon(&crew);
    outer_train(w, 5);
    rc = pd_diloco_send(w->outer, 1, w->weights, &err);
    if (rc == PD_OK) rc = pd_diloco_take(w->outer, 1, w->weights, &err);
    assert_int_equal(rc, PD_REWIND);
    assert_int_equal(pd_diloco_resume(w->outer, w->weights, &err), PD_OK);
    outer_expect(w, 0, 3, 3);
    outer_expect(w, 1, 0, 0);
    assert_int_equal(status_of(w).step, 2);
    assert_int_equal(status_of(w).inner_steps, 4);
    assert_int_equal(outer_train(w, 1).send, 0);
    outer_send(w, 0);
    outer_take(w, 0);
    outer_expect(w, 0, 4, 4);
    outer_end(&crew);
}

/* Lets a worker whose server has lost the job begin it anew. Its weights are then the global ones that it had. */
static void lose_the_job(pd_dtype pull)
{
    const outer_job job = { .world = 1, .params = 2, .fragments = 2, .pull = pull, .how.sync_every = 2 };
    outer_worker *w = &crew.workers[0];
    int rc;

    outer_begin(&crew, &job, false);
    for (int64_t f = 0; f < 2; f++) {
        outer_train(w, 3);
        outer_send(w, f);
        outer_take(w, f);
    }
    outer_train(w, 5);
    outer_restart_daemon(&crew);
    rc = pd_diloco_send(w->outer, 0, w->weights, &err);
    if (rc == PD_OK) rc = pd_diloco_take(w->outer, 0, w->weights, &err);
    assert_int_equal(rc, PD_DATA_LOSS);
    assert_int_equal(pd_diloco_resume(w->outer, w->weights, &err), PD_OK);
    outer_expect(w, 0, 3, 3);
    outer_expect(w, 1, 6, 6);
    assert_int_equal(status_of(w).step, 1);
    outer_train(w, 1);
    outer_send(w, 0);
    outer_take(w, 0);
    outer_expect(w, 0, 4, 4);
    outer_end(&crew);
}

TEST(after_the_loss_of_the_job_it_begins_anew_from_the_global_weights)
{
    lose_the_job(PD_F32);
}

TEST(after_the_loss_of_the_job_rounded_global_weights_are_sent_as_they_were_received)
{
    lose_the_job(PD_BF16);
}

/* Lets a worker's cycle end, of which the program itself has used so many seconds. */
static void end_cycle(outer_worker *w, uint64_t steps, double seconds)
{
    for (uint64_t t = 0; t < steps; t++) outer_train(w, 0);
    w->outer->busy = seconds;
    w->outer->mark = 0;
}

TEST(a_slow_worker_takes_fewer_inner_steps_as_soon_as_it_knows_the_fastest)
{
    const outer_job job = { .world = 2, .params = 4, .fragments = 2, .how = { .sync_every = 20, .dylu = true } };
    outer_worker *fast = &crew.workers[0], *slow = &crew.workers[1];

    outer_begin(&crew, &job, false);
    end_cycle(fast, 20, 2);
    end_cycle(slow, 20, 4.4);
    for (int r = 0; r < 2; r++) outer_send(&crew.workers[r], 1);
    for (int r = 0; r < 2; r++) outer_take(&crew.workers[r], 1);
    outer_train(fast, 0);
    slow->outer->busy = 4.4; /* without the time of the sync above */
    slow->outer->mark = 0;
    outer_train(slow, 0);
    assert_int_equal(status_of(fast).sync_every, 20);
    assert_int_equal(status_of(slow).sync_every, 8); /* 20 / 2.2 = 9.09, rounded down to a multiple of 2 */
    outer_end(&crew);
}

TEST(a_worker_whose_place_was_saved_goes_on_in_the_middle_of_a_cycle)
{
    const outer_job job = { .world = 1, .params = 2, .fragments = 2, .how.sync_every = 8 };
    outer_worker *w = &crew.workers[0];
    uint8_t place[256];
    size_t bytes;

    outer_begin(&crew, &job, false);
    for (int t = 0; t < 6; t++) {
        outer_train(w, 1);
        if (t == 3) outer_send(w, 0), outer_take(w, 0);
    }
    assert_int_equal(pd_diloco_save(w->outer, place, sizeof place, &bytes), PD_OK);
    pd_diloco_free(w->outer);
    pd_client_close(w->client);
    outer_open(&crew, 0);
    outer_make(&crew, 0);
    assert_int_equal(status_of(w).inner_steps, 4);
    assert_int_equal(pd_diloco_load(w->outer, place, bytes, &err), PD_OK);
    assert_int_equal(status_of(w).inner_steps, 6);
    assert_int_equal(outer_train(w, 0).send, -1);
    assert_int_equal(outer_train(w, 0).send, 1);
    outer_end(&crew);
}

/* ---- on two shards ---- */

/* Lets the first n workers train until a fragment is due, which must be this one, and send and take it. */
static void sync_all(int n, int64_t fragment)
{
    for (int r = 0; r < n; r++) {
        pd_diloco_due due = { -1, -1 };
        while (due.send < 0) due = outer_train(&crew.workers[r], 1);
        assert_int_equal(due.send, fragment);
        outer_send(&crew.workers[r], fragment);
    }
    for (int r = 0; r < n; r++) outer_take(&crew.workers[r], fragment);
}

/* Lets a worker train until it is told that a shard has gone back, and go on from there. */
static void go_back(outer_worker *w)
{
    pd_diloco_due due = { -1, -1 };
    int rc;

    while (due.send < 0) due = outer_train(w, 1);
    rc = pd_diloco_send(w->outer, due.send, w->weights, &err);
    if (rc == PD_OK) rc = pd_diloco_take(w->outer, due.send, w->weights, &err);
    if (rc != PD_REWIND) fail_msg("%d, %s", rc, err.text);
    if (pd_diloco_resume(w->outer, w->weights, &err) != PD_OK) fail_msg("%s", err.text);
}

TEST(fragments_of_a_shard_that_goes_back_alone_catch_up_in_an_order_that_all_workers_know)
{
    static const char *const options[] = { "min_workers=1", "max_workers=3", "checkpoint_every=1000", NULL };
    const outer_job job = {
        .world = 2, .params = 4, .fragments = 4, .shards = true, .options = options, .how.sync_every = 8
    };

    outer_begin(&crew, &job, true);
    for (int64_t f = 0; f < 4; f++) sync_all(2, f);
    assert_int_equal(pd_client_sync(crew.workers[0].client, 0, &err), PD_OK);
    for (int64_t k = 0; k < 8; k++) sync_all(2, k % 4);
    outer_restart_second(&crew);
    for (int r = 0; r < 2; r++) go_back(&crew.workers[r]);
    assert_int_equal(status_of(&crew.workers[1]).step, 1);
    sync_all(2, 1);
    outer_open(&crew, 2); /* it begins where the others are */
    outer_make(&crew, 2);
    sync_all(3, 3);
    sync_all(3, 1);
    sync_all(3, 3);
    for (int64_t f = 0; f < 5; f++) sync_all(3, f % 4);
    for (int r = 0; r < 3; r++) {
        assert_int_equal(status_of(&crew.workers[r]).step, 4);
        for (size_t p = 0; p < 4; p++)
            assert_memory_equal(pd_diloco_global(crew.workers[r].outer, p), pd_diloco_global(crew.workers[0].outer, p),
                                OUTER_N * sizeof(float));
    }
    outer_end(&crew);
}
