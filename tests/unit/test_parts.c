/* Tests what happens to a request that is worked in parts when something else happens between two parts: steps, pushes,
 * other commands, the end of its job. */
#include "test.h"
#include "override_command.h"
#include "rig.h"
#include "store_inside.h"
#include "roles.h"

enum { N = 60, CONN = 10 };

static int64_t sizes[N];

/* A rig whose job `job` has N parameters of one element and two ranks, and with batches so short that a part of a
 * setting handles a few parameters. */
static void set_up(rig *r)
{
    pd_store_config config = rig_config();

    config.batch_ns = 2000;
    for (int i = 0; i < N; i++) sizes[i] = 1;
    rig_new(r, &config);
    r->job = rig_start(r, "job", 2, CONN, sizes, N, NULL, "* sgd lr=1 momentum=0.9");
    rig_work(r);
}

static pd_job *job_of(const rig *r)
{
    return inside_find(r->store, "job");
}

/* Does a batch of work, of which there must be some. */
static void work(rig *r)
{
    assert_true(pd_store_has_work(r->store));
    (void)pd_store_work(r->store, r->now);
}

static void push(rig *r, uint32_t rank, uint32_t param, const char *name, const char *value)
{
    float one = 1;
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, 1);

    rig_piece(frame, param, PD_F32, 0, 1, &one);
    if (name != NULL) rig_hyper(frame, name, value);
    assert_int_equal(rig_send(r, frame), PD_OK);
}

/* Begins a setting and works until it has checked some parameters, but not all. */
static void begin_set(rig *r, const char *options)
{
    uint64_t answered = r->answered;

    rig_apply(r, rig_set_request(r, "job", "*", options, 0));
    while (!pd_job_set_holds(job_of(r))) work(r);
    rig_absorb(r);
    assert_int_equal(r->error.code, PD_OK);
    assert_int_equal(r->answered, answered);
}

FIXTURE(rig, set_up, rig_free);

TEST(settings_of_a_job_come_into_force_one_after_the_other, rig *r)
{
    uint64_t answered;

    begin_set(r, "lr=2");
    answered = r->answered;
    rig_apply(r, rig_set_request(r, "job", "*", "lr=3", 0));
    rig_apply(r, rig_set_request(r, "job", "*", "lr=", 0));
    while (r->answered < answered + 3) {
        uint64_t before = r->answered;
        work(r);
        rig_absorb(r);
        if (r->answered == before) continue;
        assert_int_equal(r->error.code, PD_OK);
        assert_int_equal(r->set->params, N);
        assert_false(r->set->at[0].mixed);
        assert_string_equal(r->set->at[0].before, r->answered == answered + 1   ? "1"
                                                  : r->answered == answered + 2 ? "2"
                                                                                : "3");
    }
    assert_int_equal(rig_ask(r, PD_INFO_SETTINGS, "job")->n_settings, 0);
}

TEST(no_step_of_the_job_ends_while_a_setting_is_checked, rig *r)
{
    uint32_t job = r->job, other = rig_start(r, "other", 1, 50, sizes, 1, NULL, NULL);
    float one = 1;

    r->job = job;
    begin_set(r, "lr=2 dampening=0.25");
    push(r, 0, 7, NULL, NULL);
    push(r, 1, 7, NULL, NULL);
    rig_push(r, other, 0, 50, 1, 0, &one, 1);
    while (job_of(r)->waiting.sets.first != NULL) {
        assert_int_equal(job_of(r)->steps.params[7].saved.step, 0);
        work(r);
    }
    rig_work(r);
    rig_absorb(r);
    assert_int_equal(rig_versions(r, other, 0)->step, 1);
    assert_int_equal(job_of(r)->steps.params[7].saved.step, 1);
    assert_int_equal(r->set->params, N);
    assert_int_equal(r->set->at[0].from_most, 1); /* the step that the pushes are for has the new values */
}

TEST(what_pushes_bring_during_the_checks_is_checked_too, rig *r)
{
    begin_set(r, "dampening=0.5");
    push(r, 0, 0, "nesterov", "yes"); /* does not go with dampening */
    while (job_of(r)->waiting.sets.first != NULL) work(r);
    rig_absorb(r);
    assert_int_equal(r->error.code, PD_INVALID_ARGUMENT);
    assert_int_equal(job_of(r)->counts.overrides, 0);
    assert_int_equal(rig_ask(r, PD_INFO_SETTINGS, "job")->n_settings, 0);
    push(r, 1, 0, "nesterov", "yes");
    rig_work(r);
    assert_int_equal(job_of(r)->steps.params[0].saved.step, 1);
}

static void drop(rig *r, const char *name)
{
    pd_request *request = pd_request_new(PD_REQ_DROP, rig_ticket(r, 99));

    request->u.info.job_name = strdup(name);
    assert_int_equal(rig_apply(r, request), PD_OK);
}

TEST(settings_of_a_job_that_ends_are_refused, rig *r)
{
    uint64_t answered;

    begin_set(r, "lr=2");
    rig_apply(r, rig_set_request(r, "job", "*", "lr=3", 0));
    answered = r->answered;
    drop(r, "job"); /* rig_free finds overrides that are left, and requests without an answer */
    assert_int_equal(r->answered, answered + 3);
}

TEST(without_memory_a_setting_changes_nothing_in_any_part, rig *r)
{
    for (int64_t n = 0;; n++) {
        pd_request *request = rig_set_request(r, "job", "*", "lr=2 momentum=0.5", 0);
        bool failed;
        oom_arm(n);
        pd_store_apply(r->store, request, r->now);
        while (pd_store_work(r->store, r->now)) continue;
        failed = oom_disarm();
        rig_absorb(r);
        if (r->error.code == PD_OK) {
            assert_int_equal(rig_ask(r, PD_INFO_SETTINGS, "job")->total, 2 * N);
            assert_int_equal(rig_set(r, "job", "*", "lr= momentum=", 0), PD_OK);
            rig_work(r);
        } else {
            assert_true(failed && r->error.code == PD_NO_MEMORY);
            assert_int_equal(job_of(r)->counts.overrides, 0);
            r->error.code = PD_OK;
        }
        assert_int_equal(rig_ask(r, PD_INFO_SETTINGS, "job")->total, 0);
        if (!failed) return;
    }
}

static pd_request *list(rig *r, pd_info_what what, const char *name)
{
    pd_request *request = pd_request_new(PD_REQ_INFO, rig_ticket(r, 1));

    request->u.info.what = what;
    request->u.info.job_name = name != NULL ? strdup(name) : NULL;
    request->u.info.pattern = strdup("p*");
    request->u.info.identity = strdup("token:a");
    return request;
}

/* Works at a list until some of it is done, but not all. */
static void begin_list(rig *r, pd_request *request)
{
    for (int i = 0; i < 10; i++) assert_false(pd_store_apply_some(r->store, request, 100, r->now));
}

static void finish_list(rig *r, pd_request *request)
{
    while (!pd_store_apply_some(r->store, request, 100, r->now)) continue;
    rig_absorb(r);
}

TEST(a_list_whose_job_ends_is_refused, rig *r)
{
    static const pd_info_what lists[] = { PD_INFO_PARAMS, PD_INFO_WORKERS, PD_INFO_ROOTS, PD_INFO_SETTINGS,
                                          PD_INFO_STATE };
    pd_request *requests[5];

    for (size_t i = 0; i < 5; i++) {
        requests[i] = list(r, lists[i], "job");
        (void)(i == 1 || (begin_list(r, requests[i]), true)); /* two workers are listed in fewer parts */
    }
    drop(r, "job");
    for (size_t i = 0; i < 5; i++) {
        r->error.code = PD_OK;
        finish_list(r, requests[i]);
        assert_int_equal(r->error.code, PD_NOT_FOUND);
    }
}

TEST(a_list_whose_job_begins_anew_is_of_the_new_one, rig *r)
{
    pd_request *state_list = list(r, PD_INFO_STATE, "job"), *params = list(r, PD_INFO_PARAMS, "job");

    begin_list(r, state_list);
    begin_list(r, params);
    drop(r, "job");
    r->job = rig_start(r, "job", 1, CONN + 5, sizes, 3, NULL, "* adam");
    rig_work(r);
    finish_list(r, state_list);
    assert_int_equal(r->info->total, 3 * 2);
    assert_int_equal(r->info->n_state, 3 * 2);
    finish_list(r, params);
    assert_int_equal(r->info->total, 3);
    assert_string_equal(r->info->params[2].optimizer, "adam");
}

TEST(a_list_of_jobs_leaves_out_those_that_end_meanwhile, rig *r)
{
    pd_request *request;

    rig_start(r, "b", 1, 50, sizes, 1, NULL, NULL);
    rig_start(r, "c", 1, 51, sizes, 1, NULL, NULL);
    request = list(r, PD_INFO_JOBS, NULL);
    begin_list(r, request);
    drop(r, "b");
    finish_list(r, request);
    assert_int_equal(r->info->total, 2);
    assert_int_equal(r->info->n_jobs, 2);
    assert_string_equal(r->info->jobs[0].name, "job");
    assert_int_equal(r->info->jobs[0].elements, N);
    assert_string_equal(r->info->jobs[1].name, "c");
}

static void give_roles(rig *r, const char *text)
{
    pd_request *request = pd_request_new(PD_REQ_ROLES, (pd_ticket){ 0, 0 });

    assert_int_equal(pd_roles_parse(&request->u.roles, text, strlen(text), "roles", NULL), PD_OK);
    rig_apply(r, request);
}

TEST(a_list_of_jobs_keeps_the_roles_with_which_it_began, rig *r)
{
    pd_request *request;

    give_roles(r, "token:a read job\ntoken:a none *\n");
    rig_start(r, "b", 1, 50, sizes, 1, NULL, NULL);
    request = list(r, PD_INFO_JOBS, NULL);
    assert_false(pd_store_apply_some(r->store, request, 1, r->now));
    give_roles(r, "token:b read *\n");
    finish_list(r, request);
    assert_int_equal(r->info->total, 1);
    assert_string_equal(r->info->jobs[0].name, "job");
}

/* Values are set between two parts, so parameters that are counted later have more entries. */
TEST(a_list_is_made_although_its_job_changes, rig *r)
{
    pd_request *request;

    assert_int_equal(rig_set(r, "job", "*", "lr=2", 0), PD_OK);
    rig_work(r);
    request = list(r, PD_INFO_SETTINGS, "job");
    begin_list(r, request);
    rig_apply(r, rig_set_request(r, "job", "*", "momentum=0.5", 0));
    rig_work(r);
    finish_list(r, request);
    assert_in_range(r->info->total, N, 2 * N);
    assert_in_range(r->info->n_settings, r->info->total, 2 * N);
    assert_int_equal(rig_ask(r, PD_INFO_SETTINGS, "job")->total, 2 * N);
}

TEST(a_list_that_nobody_waits_for_any_more_is_freed, rig *r)
{
    pd_request *lists[2] = { list(r, PD_INFO_STATE, "job"), list(r, PD_INFO_JOBS, NULL) };

    give_roles(r, "token:a read *\n");
    for (size_t i = 0; i < 2; i++) {
        assert_false(pd_store_apply_some(r->store, lists[i], 1, r->now));
        pd_request_free(lists[i]); /* the sanitizer finds what is left */
    }
    r->last_id -= 2;
}
