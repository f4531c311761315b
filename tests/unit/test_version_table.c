/* Tests the version table, in which the loop thread keeps each parameter's newest weights and the outcome of its last
 * round: what the version table records, and when it answers a request. */
#include "test.h"
#include "version_table.h"

/* A version table whose callbacks record their calls. The tests make the published versions, and the callbacks free
 * them. */
typedef struct notes {
    pd_version_table *versions;
    pd_wait *resolved[8];
    int n_resolved;
    pd_wait *failed[40];
    int n_failed;
    pd_wait *ends; /* a request that is forgotten when another one fails, as when its connection closes; or NULL */
    pd_error error;
    int out;      /* number of published versions not released yet */
    int asked;    /* number of requests for weights to evaluate with */
    bool starves; /* there is no memory for them */
} notes;

static void on_resolved(void *arg, pd_wait *wait)
{
    notes *n = arg;
    n->resolved[n->n_resolved++] = wait;
}

static void on_failed(void *arg, pd_wait *wait, const pd_error *err)
{
    notes *n = arg;
    n->failed[n->n_failed++] = wait;
    n->error = *err;
    if (n->ends != NULL) pd_version_table_forget(n->versions, n->ends);
    n->ends = NULL;
}

static void on_released(void *arg, pd_published *published)
{
    notes *n = arg;
    n->out--;
    free(published);
}

static int on_asks(void *arg, const pd_wait *wait, uint32_t number, uint32_t param)
{
    notes *n = arg;

    assert_true(wait->evaluates && number == 1 && param < 4);
    n->asked++;
    return n->starves ? PD_NO_MEMORY : PD_OK;
}

static void set_up(notes *n)
{
    pd_version_table_user user = { n, on_resolved, on_failed, on_released, on_asks, NULL };

    n->versions = pd_version_table_new(&user);
    assert_int_equal(pd_version_table_reserve(n->versions, 1, 4), PD_OK);
}

static void tear_down(notes *n)
{
    pd_version_table_free(n->versions);
    assert_int_equal(n->out, 0); /* every published version was released */
}

static void close_round(notes *n, uint32_t param, uint64_t step, pd_outcome outcome, bool publishes)
{
    pd_closed closed = { .param = param, .step = step, .outcome = outcome };

    if (publishes) {
        closed.published = calloc(1, sizeof *closed.published);
        closed.published->version = step;
        n->out++;
    }
    pd_version_table_close(n->versions, 1, &closed);
}

static pd_wait *wait_for(uint64_t step, bool pushes, bool pulls, uint32_t first, size_t count)
{
    pd_wait *wait = calloc(1, sizeof *wait + count * sizeof wait->at[0]);

    wait->step = wait->pushed = step;
    wait->pushes = pushes;
    wait->n = count;
    for (size_t i = 0; i < count; i++) {
        wait->at[i].param = first + (uint32_t)i;
        wait->at[i].pulls = pulls;
        wait->at[i].dtype = PD_F32;
    }
    return wait;
}

static void drop(notes *n, pd_wait *wait)
{
    pd_version_table_forget(n->versions, wait);
    free(wait);
}

FIXTURE(notes, set_up, tear_down);

/* A job may begin at a later step than 0. All earlier rounds then count as closed. */
TEST(initial_weights_say_how_many_rounds_count_as_closed, notes *n)
{
    pd_wait *pull = wait_for(7, false, true, 0, 1), *push = wait_for(8, true, false, 0, 1),
            *rest = wait_for(7, false, false, 0, 0);

    pd_version_table_settle(n->versions, 1, 2);
    rest->all = true;
    assert_false(pd_version_table_wait(n->versions, 1, rest));
    assert_false(pd_version_table_wait(n->versions, 1, pull));
    assert_false(pd_version_table_wait(n->versions, 1, push));
    close_round(n, 0, 7, 0, true);
    assert_int_equal(n->n_resolved, 1);
    assert_ptr_equal(n->resolved[0], pull);
    assert_int_equal(pull->at[0].step, 7);
    close_round(n, 1, 7, 0, true);
    assert_int_equal(n->n_resolved, 2);
    assert_ptr_equal(n->resolved[1], rest);
    close_round(n, 0, 8, PD_STEPPED, true);
    assert_ptr_equal(n->resolved[2], push);
    assert_int_equal(push->at[0].outcome, PD_STEPPED);
    drop(n, pull);
    drop(n, push);
    drop(n, rest);
}

/* A rank that owns no elements of a parameter takes no part in the parameter's rounds. So its push waits only until
 * the parameter has initial weights. Rounds may close before this rank's first push, and the rank need not push
 * again afterwards. */
TEST(a_push_without_elements_waits_for_weights_and_no_round, notes *n)
{
    pd_wait *push = wait_for(7, true, true, 0, 1), *pull = wait_for(9, false, true, 0, 1);

    push->at[0].idle = pull->at[0].idle = true;
    assert_false(pd_version_table_wait(n->versions, 1, push));
    close_round(n, 0, 0, 0, true);
    assert_int_equal(n->n_resolved, 1);
    close_round(n, 0, 1, PD_STEPPED, true);
    assert_true(pd_version_table_would_answer(n->versions, 1, pull));
    assert_true(pd_version_table_wait(n->versions, 1, pull));
    assert_int_equal(push->at[0].outcome, 0);
    assert_int_equal(push->at[0].step, 0);
    assert_int_equal(pull->at[0].step, 1);
    drop(n, push);
    drop(n, pull);
    push = wait_for(2, true, false, 0, 1); /* the reply of a rank without elements does not carry the outcome of the
                                            * last closed round */
    push->at[0].idle = true;
    assert_true(pd_version_table_wait(n->versions, 1, push));
    assert_int_equal(push->at[0].outcome, 0);
    drop(n, push);
}

TEST(answers_a_push_when_its_round_has_closed, notes *n)
{
    pd_wait *wait = wait_for(1, true, true, 0, 1);

    assert_false(pd_version_table_wait(n->versions, 1, wait));
    close_round(n, 0, 0, 0, true); /* initial weights arrive, which does not count as a round */
    assert_int_equal(n->n_resolved, 0);
    close_round(n, 0, 1, PD_STEPPED, true);
    assert_int_equal(n->n_resolved, 1);
    assert_int_equal(wait->at[0].outcome, PD_STEPPED);
    assert_int_equal(wait->at[0].step, 1);
    assert_int_equal(wait->at[0].published->version, 1);
    drop(n, wait);
}

TEST(a_push_of_a_rank_that_the_round_left_out_is_late, notes *n)
{
    pd_counted *counted = pd_counted_new(2);
    pd_wait *first = wait_for(1, true, false, 0, 1), *second = wait_for(1, true, false, 0, 1);
    pd_closed closed = { .param = 0, .outcome = PD_STEPPED, .step = 1, .counted = counted };

    pd_counted_add(counted, 1, 0);
    pd_version_table_close(n->versions, 1, &closed);
    second->rank = 1;
    assert_true(pd_version_table_wait(n->versions, 1, first));
    assert_true(pd_version_table_wait(n->versions, 1, second));
    assert_int_equal(first->at[0].outcome, PD_LATE);
    assert_int_equal(second->at[0].outcome, PD_STEPPED);
    drop(n, first);
    drop(n, second);
}

TEST(answers_a_request_when_its_last_piece_is_there, notes *n)
{
    pd_wait *wait = wait_for(1, true, false, 0, 3);

    assert_false(pd_version_table_wait(n->versions, 1, wait));
    close_round(n, 2, 1, PD_STEPPED, true);
    close_round(n, 0, 1, PD_SKIPPED, false);
    assert_int_equal(n->n_resolved, 0);
    close_round(n, 1, 1, PD_NO_GRADIENT, false);
    assert_int_equal(n->n_resolved, 1);
    assert_int_equal(wait->at[0].outcome, PD_SKIPPED);
    assert_int_equal(wait->at[1].outcome, PD_NO_GRADIENT);
    assert_int_equal(wait->at[2].outcome, PD_STEPPED);
    assert_int_equal(wait->at[2].version, 1);
    drop(n, wait);
}

TEST(a_push_for_a_closed_round_has_its_answer_at_once, notes *n)
{
    pd_wait *wait = wait_for(1, true, true, 0, 1), *next = wait_for(2, true, true, 0, 1);

    close_round(n, 0, 1, PD_STEPPED, true);
    assert_true(pd_version_table_would_answer(n->versions, 1, wait));
    assert_true(pd_version_table_wait(n->versions, 1, wait));
    assert_int_equal(n->n_resolved, 0);
    assert_false(pd_version_table_would_answer(n->versions, 1, next));
    drop(n, wait);
    drop(n, next);
}

TEST(a_pull_waits_for_weights, notes *n)
{
    pd_wait *wait = wait_for(0, false, true, 3, 1);

    assert_false(pd_version_table_wait(n->versions, 1, wait));
    close_round(n, 3, 0, 0, true);
    assert_int_equal(n->n_resolved, 1);
    assert_int_equal(wait->at[0].outcome, 0);
    assert_int_equal(wait->at[0].step, 0);
    drop(n, wait);
}

TEST(a_skipped_round_serves_the_weights_before, notes *n)
{
    pd_wait *wait = wait_for(2, true, true, 0, 1);

    close_round(n, 0, 1, PD_STEPPED, true);
    assert_false(pd_version_table_wait(n->versions, 1, wait));
    close_round(n, 0, 2, PD_SKIPPED, false);
    assert_int_equal(wait->at[0].outcome, PD_SKIPPED);
    assert_int_equal(wait->at[0].step, 2);
    assert_int_equal(wait->at[0].version, 1);
    drop(n, wait);
}

static void refuse_round(notes *n, uint32_t param, uint64_t step, const char *why)
{
    pd_closed closed = { .param = param, .step = step, .outcome = PD_REFUSED, .why = pd_reason_new(why) };

    pd_version_table_close(n->versions, 1, &closed);
    assert_null(closed.why);
}

TEST(a_refused_step_is_answered_with_its_reason, notes *n)
{
    pd_wait *early = wait_for(1, true, true, 0, 1), *late = wait_for(1, true, false, 0, 1),
            *pull = wait_for(1, false, true, 0, 1);

    close_round(n, 0, 0, 0, true);
    assert_false(pd_version_table_wait(n->versions, 1, early));
    refuse_round(n, 0, 1, "too large");
    assert_int_equal(early->at[0].outcome, PD_REFUSED);
    assert_int_equal(early->at[0].version, 0);
    assert_string_equal(early->at[0].why->text, "too large");
    assert_true(pd_version_table_wait(n->versions, 1, late));
    assert_true(pd_version_table_wait(n->versions, 1, pull));
    close_round(n, 0, 2, PD_STEPPED, true);
    assert_string_equal(late->at[0].why->text, "too large"); /* the reply to the late push says why its own round was
                                                              * refused, although a later round has closed */
    assert_null(pull->at[0].why);
    drop(n, early);
    drop(n, late);
    drop(n, pull);
}

TEST(the_reason_of_a_refused_step_is_not_reported_for_the_next_step, notes *n)
{
    pd_wait *wait = wait_for(2, true, false, 0, 1);

    refuse_round(n, 0, 1, "too large");
    assert_false(pd_version_table_wait(n->versions, 1, wait));
    close_round(n, 0, 2, PD_STEPPED, true);
    assert_null(wait->at[0].why);
    drop(n, wait);
}

static void close_with(notes *n, uint64_t step, double loss)
{
    pd_closed closed = {
        .param = 0, .step = step, .outcome = PD_STEPPED, .scalars = calloc(1, sizeof(pd_scalar_means))
    };

    closed.scalars->refs = closed.scalars->n = 1;
    strcpy(closed.scalars->at[0].name, "loss");
    closed.scalars->at[0].mean = loss;
    pd_version_table_close(n->versions, 1, &closed);
    assert_null(closed.scalars);
}

TEST(a_push_is_answered_with_its_rounds_scalars_also_when_it_comes_again, notes *n)
{
    pd_wait *early = wait_for(1, true, false, 0, 1), *again = wait_for(1, true, false, 0, 1);

    assert_false(pd_version_table_wait(n->versions, 1, early));
    close_with(n, 1, 0.5);
    assert_true(early->at[0].scalars->at[0].mean == 0.5);
    drop(n, early);
    assert_true(pd_version_table_wait(n->versions, 1, again));
    assert_true(again->at[0].scalars->at[0].mean == 0.5);
    close_with(n, 2, 0.25);
    assert_true(again->at[0].scalars->at[0].mean == 0.5); /* the reply still has the scalars of its own round */
    drop(n, again);
}

TEST(a_pull_returns_the_scalars_of_the_last_round, notes *n)
{
    pd_wait *pull = wait_for(2, false, true, 0, 1);

    close_round(n, 0, 0, 0, true);
    close_with(n, 1, 0.5);
    assert_false(pd_version_table_wait(n->versions, 1, pull));
    close_with(n, 2, 0.25);
    assert_true(pull->at[0].scalars->at[0].mean == 0.25);
    drop(n, pull);
}

TEST(scalars_are_not_the_next_rounds_but_outlive_a_publication_without_a_round, notes *n)
{
    pd_wait *again = wait_for(1, true, false, 0, 1), *next = wait_for(2, true, false, 0, 1);

    close_with(n, 1, 0.5);
    close_round(n, 0, 1, 0, true);
    assert_true(pd_version_table_wait(n->versions, 1, again));
    assert_non_null(again->at[0].scalars);
    assert_false(pd_version_table_wait(n->versions, 1, next));
    close_round(n, 0, 2, PD_STEPPED, true);
    assert_null(next->at[0].scalars);
    drop(n, again);
    drop(n, next);
}

TEST(a_snapshot_lives_while_an_answer_needs_it, notes *n)
{
    pd_wait *wait = wait_for(1, true, true, 0, 1);

    pd_version_table_wait(n->versions, 1, wait);
    close_round(n, 0, 1, PD_STEPPED, true);
    close_round(n, 0, 2, PD_STEPPED, true);
    assert_int_equal(n->out, 2);
    pd_version_table_unref(n->versions, &wait->at[0]);
    assert_int_equal(n->out, 1);
    drop(n, wait);
}

TEST(an_overdue_round_fails_those_who_wait_for_it_and_no_others, notes *n)
{
    pd_wait *overdue = wait_for(3, true, true, 0, 2), *later = wait_for(4, true, true, 0, 1);
    pd_error err = { PD_DEADLINE_EXCEEDED, "rank 2 has not contributed" };

    pd_version_table_wait(n->versions, 1, overdue);
    pd_version_table_wait(n->versions, 1, later);
    pd_version_table_time_out(n->versions, 1, PD_ALL_FRAGMENTS, 3, &err);
    assert_int_equal(n->n_failed, 1);
    assert_ptr_equal(n->failed[0], overdue);
    assert_string_equal(n->error.text, "rank 2 has not contributed");
    close_round(n, 0, 3, PD_STEPPED, true); /* the request has failed before, so it is not answered when its round
                                             * closes */
    assert_int_equal(n->n_resolved, 0);
    close_round(n, 0, 4, PD_STEPPED, true);
    assert_int_equal(n->n_resolved, 1);
    drop(n, overdue);
    drop(n, later);
}

/* Many pulls for a far step may wait in front of the pushes whose deadline passes: they are visited once, not once for
 * each push. */
TEST(an_overdue_round_visits_each_waiter_once, notes *n)
{
    enum { PUSHES = 40, PULLS = 200 };
    pd_wait *pushes[PUSHES], *pulls[PULLS];
    pd_error err = { PD_DEADLINE_EXCEEDED, "late" };

    for (int i = 0; i < PUSHES; i++) pd_version_table_wait(n->versions, 1, pushes[i] = wait_for(3, true, false, 0, 1));
    for (int i = 0; i < PULLS; i++) pd_version_table_wait(n->versions, 1, pulls[i] = wait_for(9, false, true, 0, 1));
    assert_int_equal(pd_version_table_time_out(n->versions, 1, PD_ALL_FRAGMENTS, 3, &err), PUSHES + PULLS);
    assert_int_equal(n->n_failed, PUSHES);
    for (int i = 0; i < PUSHES; i++) assert_ptr_equal(n->failed[i], pushes[PUSHES - 1 - i]);
    assert_int_equal(pd_version_table_time_out(n->versions, 1, PD_ALL_FRAGMENTS, 3, &err), PULLS);
    assert_int_equal(n->n_failed, PUSHES);
    for (int i = 0; i < PUSHES; i++) free(pushes[i]);
    for (int i = 0; i < PULLS; i++) drop(n, pulls[i]);
}

/* A request that fails may close its connection, which ends the connection's other requests. */
TEST(a_failure_may_end_other_overdue_requests, notes *n)
{
    enum { PUSHES = 4 };

    for (int ended = 0; ended < PUSHES; ended++) {
        pd_wait *pushes[PUSHES];
        pd_error err = { PD_DEADLINE_EXCEEDED, "late" };

        for (int i = 0; i < PUSHES; i++)
            pd_version_table_wait(n->versions, 1, pushes[i] = wait_for(3, true, false, 0, 2));
        n->n_failed = 0;
        n->ends = pushes[ended];
        pd_version_table_time_out(n->versions, 1, PD_ALL_FRAGMENTS, 3, &err);
        assert_int_equal(n->n_failed, ended == PUSHES - 1 ? PUSHES : PUSHES - 1); /* the newest fails first */
        for (int i = 0; i < n->n_failed; i++)
            if (ended < PUSHES - 1) assert_ptr_not_equal(n->failed[i], pushes[ended]);
        for (int i = 0; i < PUSHES; i++) free(pushes[i]);
    }
}

TEST(a_job_that_ends_fails_all_requests_and_frees_its_weights, notes *n)
{
    pd_wait *wait = wait_for(9, true, true, 0, 4);
    pd_error err = { PD_NOT_FOUND, "dropped" };

    close_round(n, 1, 1, PD_STEPPED, true);
    pd_version_table_wait(n->versions, 1, wait);
    pd_version_table_drop(n->versions, 1, &err);
    assert_int_equal(n->n_failed, 1);
    assert_int_equal(n->out, 0);
    free(wait);
}

TEST(a_forgotten_request_waits_for_nothing, notes *n)
{
    pd_wait *wait = wait_for(1, true, true, 0, 4);

    close_round(n, 2, 1, PD_STEPPED, true);
    pd_version_table_wait(n->versions, 1, wait);
    drop(n, wait); /* the request is freed here, so the sanitizer reports any later access */
    for (uint32_t i = 0; i < 4; i++) close_round(n, i, 1, PD_STEPPED, true);
    assert_int_equal(n->n_resolved, 0);
}

TEST(adding_parameters_disturbs_nobody_who_waits, notes *n)
{
    pd_wait *wait = wait_for(1, true, false, 3, 1);

    pd_version_table_wait(n->versions, 1, wait);
    assert_int_equal(pd_version_table_reserve(n->versions, 1, 5000), PD_OK);
    close_round(n, 3, 1, PD_STEPPED, false);
    assert_int_equal(n->n_resolved, 1);
    drop(n, wait);
}

static pd_wait *wait_for_all(uint64_t step, uint32_t first, size_t count)
{
    pd_wait *wait = wait_for(step, true, false, first, count);

    wait->all = true;
    return wait;
}

TEST(the_end_of_a_step_is_answered_when_its_round_is_closed_for_all, notes *n)
{
    pd_wait *alone = wait_for_all(1, 0, 0), *with = wait_for_all(1, 1, 1);

    pd_version_table_settle(n->versions, 1,
                            3); /* the version table has room for four entries, but the job has only three parameters */
    assert_false(pd_version_table_would_answer(n->versions, 1, alone));
    assert_false(pd_version_table_wait(n->versions, 1, alone));
    assert_false(pd_version_table_wait(n->versions, 1, with));
    close_round(n, 1, 1, PD_STEPPED, false);
    close_round(n, 2, 1, PD_NO_GRADIENT, false);
    close_round(n, 2, 2, PD_STEPPED, false);
    assert_int_equal(n->n_resolved, 0);
    close_round(n, 0, 1, PD_SKIPPED, false);
    assert_int_equal(n->n_resolved, 2);
    assert_int_equal(with->at[0].outcome, PD_STEPPED);
    assert_true(pd_version_table_would_answer(n->versions, 1, alone));
    drop(n, alone);
    drop(n, with);
}

TEST(nobody_waits_for_a_parameter_that_is_ahead, notes *n)
{
    pd_wait *wait = wait_for_all(2, 0, 0);

    pd_version_table_settle(n->versions, 1, 2);
    for (uint64_t step = 1; step <= 2; step++) close_round(n, 1, step, PD_STEPPED, false);
    assert_false(pd_version_table_wait(n->versions, 1, wait));
    for (uint64_t step = 1; step <= 2; step++) close_round(n, 0, step, PD_STEPPED, false);
    assert_int_equal(n->n_resolved, 1);
    drop(n, wait);
}

TEST(an_ended_step_sent_again_is_answered_at_once, notes *n)
{
    pd_wait *wait = wait_for_all(1, 0, 0);

    pd_version_table_settle(n->versions, 1, 2);
    for (uint32_t p = 0; p < 2; p++) close_round(n, p, 1, PD_STEPPED, false);
    assert_true(pd_version_table_wait(n->versions, 1, wait));
    drop(n, wait);
}

TEST(the_end_of_a_step_waits_for_that_step_and_no_earlier_one, notes *n)
{
    pd_wait *wait = wait_for_all(2, 0, 0);

    pd_version_table_settle(n->versions, 1, 2);
    assert_false(pd_version_table_wait(n->versions, 1, wait));
    for (uint64_t step = 1; step <= 2; step++) {
        assert_int_equal(n->n_resolved, 0);
        for (uint32_t p = 0; p < 2; p++) close_round(n, p, step, PD_STEPPED, false);
    }
    assert_int_equal(n->n_resolved, 1);
    drop(n, wait);
}

TEST(the_end_of_a_step_times_out_like_a_push, notes *n)
{
    pd_wait *wait = wait_for_all(1, 0, 0);
    pd_error err = { PD_DEADLINE_EXCEEDED, "late" };

    pd_version_table_settle(n->versions, 1, 2);
    assert_false(pd_version_table_wait(n->versions, 1, wait));
    pd_version_table_time_out(n->versions, 1, PD_ALL_FRAGMENTS, 1, &err);
    assert_int_equal(n->n_failed, 1);
    for (uint32_t p = 0; p < 2; p++) close_round(n, p, 1, PD_STEPPED, false);
    assert_int_equal(n->n_resolved, 0);
    drop(n, wait);
}

/* Otherwise its worker might push a parameter for a step that the parameter cannot take yet. */
TEST(a_late_push_is_answered_with_the_last_step_of_all_parameters, notes *n)
{
    pd_wait *push = wait_for(1, true, true, 0, 2);

    pd_version_table_settle(n->versions, 1, 2);
    push->unfiled = true;
    for (uint32_t param = 0; param < 2; param++) close_round(n, param, 1, PD_STEPPED, true);
    close_round(n, 0, 2, PD_STEPPED, true);
    assert_false(pd_version_table_wait(n->versions, 1, push));
    pd_version_table_filed(n->versions, 1, push, PD_FILED_LATE, 1);
    assert_int_equal(n->n_resolved, 0);
    close_round(n, 1, 2, PD_STEPPED, true);
    assert_int_equal(n->n_resolved, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(push->at[i].outcome, PD_LATE);
        assert_int_equal(push->at[i].step, 2);
        assert_int_equal(push->at[i].published->version, 2);
    }
    drop(n, push);
}

TEST(a_push_that_has_counted_before_is_answered_with_the_age_that_it_had, notes *n)
{
    pd_wait *push = wait_for(2, true, false, 0, 1);

    pd_version_table_settle(n->versions, 1, 1);
    for (uint64_t step = 1; step <= 5; step++) close_round(n, 0, step, PD_STEPPED, false);
    push->unfiled = true;
    assert_false(pd_version_table_wait(n->versions, 1, push));
    pd_version_table_filed(n->versions, 1, push, PD_FILED_COUNTED, 4);
    assert_int_equal(n->n_resolved, 1);
    assert_int_equal(push->at[0].outcome, PD_STEPPED);
    assert_int_equal(push->at[0].step, 5);
    assert_int_equal(push->age, 2);
    drop(n, push);
}

/* Rank 0 ends its step with contributions that do not count in it, but are kept for the next one. */
TEST(the_end_of_a_step_waits_until_its_pushes_count, notes *n)
{
    pd_wait *ends = wait_for(1, true, false, 0, 0);
    pd_counted *set = pd_counted_new(2);
    pd_closed closed = { .param = 0, .step = 1, .outcome = PD_STEPPED, .counted = set };

    pd_counted_add(set, 1, 0);
    pd_counted_keep(set, 0);
    pd_version_table_settle(n->versions, 1, 1);
    ends->unfiled = ends->all = true;
    assert_false(pd_version_table_wait(n->versions, 1, ends));
    pd_version_table_filed(n->versions, 1, ends, PD_FILED_FOR, 1);
    pd_version_table_close(n->versions, 1, &closed);
    assert_int_equal(n->n_resolved, 0);
    close_round(n, 0, 2, PD_STEPPED, false);
    assert_int_equal(n->n_resolved, 1);
    drop(n, ends);
}

/* Rank 0 has pushed for step 2 before its push for step 1 counted. The set of step 2 has the later push. */
TEST(a_push_whose_place_another_one_of_its_rank_has_taken_is_late, notes *n)
{
    pd_wait *before = wait_for(1, true, false, 0, 1), *after = wait_for(2, true, false, 0, 1);
    pd_counted *set = pd_counted_new(2);
    pd_closed closed = { .param = 0, .step = 2, .outcome = PD_STEPPED, .counted = set };

    pd_counted_add(set, 0, 0);
    pd_version_table_settle(n->versions, 1, 1);
    close_round(n, 0, 1, PD_STEPPED, false);
    before->unfiled = after->unfiled = true;
    assert_false(pd_version_table_wait(n->versions, 1, before));
    pd_version_table_filed(n->versions, 1, before, PD_FILED_FOR, 2);
    assert_false(pd_version_table_wait(n->versions, 1, after));
    pd_version_table_filed(n->versions, 1, after, PD_FILED_FOR, 2);
    pd_version_table_close(n->versions, 1, &closed);
    assert_int_equal(n->n_resolved, 2);
    assert_int_equal(before->at[0].outcome, PD_LATE);
    assert_int_equal(after->at[0].outcome, PD_STEPPED);
    drop(n, before);
    drop(n, after);
}

/* Returns a pull of the weights to evaluate with of parameters `first` and so on. */
static pd_wait *evaluate(uint64_t step, uint32_t first, size_t count)
{
    pd_wait *wait = wait_for(step, false, true, first, count);

    wait->evaluates = true;
    return wait;
}

static void read_out(notes *n, uint32_t param, uint64_t version, bool own, bool starved)
{
    pd_closed closed = { .param = param, .step = version, .read_out = true, .starved = starved };

    if (own) {
        closed.published = calloc(1, sizeof *closed.published);
        closed.published->version = version;
        n->out++;
    }
    pd_version_table_close(n->versions, 1, &closed);
}

TEST(weights_to_evaluate_with_are_asked_for_when_the_step_is_there, notes *n)
{
    pd_wait *first = evaluate(2, 0, 1), *second = evaluate(1, 0, 1);

    close_round(n, 0, 1, PD_STEPPED, true);
    assert_false(pd_version_table_wait(n->versions, 1, first));
    assert_int_equal(n->asked, 0);
    close_round(n, 0, 2, PD_STEPPED, true);
    assert_int_equal(n->asked, 1);
    assert_false(pd_version_table_wait(n->versions, 1, second)); /* the answer to the first is for both */
    assert_int_equal(n->asked, 1);
    assert_int_equal(n->n_resolved, 0);
    read_out(n, 0, 2, true, false);
    assert_int_equal(n->n_resolved, 2);
    assert_ptr_equal(first->at[0].published, second->at[0].published);
    assert_int_equal(first->at[0].version, 2);
    drop(n, first);
    assert_int_equal(n->out, 2); /* the published weights, and those that the second pull has */
    drop(n, second);
    assert_int_equal(n->out, 1);
}

TEST(weights_without_an_average_are_those_that_were_published, notes *n)
{
    pd_wait *pull = evaluate(1, 0, 2);

    close_round(n, 0, 1, PD_STEPPED, true);
    close_round(n, 1, 1, PD_STEPPED, true);
    assert_false(pd_version_table_wait(n->versions, 1, pull));
    assert_int_equal(n->asked, 2);
    read_out(n, 1, 1, true, false);
    assert_int_equal(n->n_resolved, 0);
    read_out(n, 0, 1, false, false);
    assert_int_equal(n->n_resolved, 1);
    assert_int_equal(n->out, 3);
    assert_non_null(pull->at[0].published);
    drop(n, pull);
}

TEST(readers_that_have_gone_leave_nothing_behind, notes *n)
{
    pd_wait *pull = evaluate(1, 0, 1), *next = evaluate(1, 0, 1);

    close_round(n, 0, 1, PD_STEPPED, true);
    assert_false(pd_version_table_wait(n->versions, 1, pull));
    drop(n, pull);
    read_out(n, 0, 1, true, false);
    assert_int_equal(n->out, 1);
    assert_false(pd_version_table_wait(n->versions, 1, next)); /* nothing is kept: it asks again */
    assert_int_equal(n->asked, 2);
    drop(n, next);
}

TEST(readers_fail_without_memory_and_with_their_job, notes *n)
{
    pd_wait *pull = evaluate(1, 0, 2), *last = evaluate(1, 0, 1);
    pd_error gone;

    close_round(n, 0, 1, PD_STEPPED, true);
    close_round(n, 1, 1, PD_STEPPED, true);
    assert_false(pd_version_table_wait(n->versions, 1, pull));
    read_out(n, 1, 1, false, true);
    assert_int_equal(n->n_failed, 1);
    assert_int_equal(n->error.code, PD_RESOURCE_EXHAUSTED);
    assert_false(pd_version_table_wait(n->versions, 1, last));
    pd_fail(&gone, PD_ABORTED, "gone");
    pd_version_table_drop(n->versions, 1, &gone);
    assert_int_equal(n->n_failed, 2);
    assert_int_equal(n->error.code, PD_ABORTED);
    drop(n, pull);
    drop(n, last);
}

TEST(without_memory_the_store_is_asked_again_later, notes *n)
{
    pd_wait *pull = evaluate(1, 0, 1), *gone = evaluate(1, 1, 1);

    close_round(n, 0, 1, PD_STEPPED, true);
    close_round(n, 1, 1, PD_STEPPED, true);
    n->starves = true;
    assert_false(pd_version_table_wait(n->versions, 1, pull));
    assert_false(pd_version_table_wait(n->versions, 1, gone));
    drop(n, gone);
    pd_version_table_ask_again(n->versions);
    assert_int_equal(n->asked, 3);
    n->starves = false;
    pd_version_table_ask_again(n->versions);
    pd_version_table_ask_again(n->versions);
    assert_int_equal(n->asked, 4);
    read_out(n, 0, 1, true, false);
    assert_int_equal(n->n_resolved, 1);
    drop(n, pull);
}
