/* Tests hyperparameters that paramctl sets while a job runs, through the real daemon: from the stated step on the
 * weights are those of a job with the same values in a schedule, bit for bit. */
#include "test.h"
#include "daemon_process.h"
#include "team.h"

static const int64_t elements[] = { 300, 2000, 7 }; /* sizes of the parameters p0, p1 and p2; p1 has several chunks */
enum { PARAMS = sizeof elements / sizeof elements[0], STEPS = 8, WORLD = 2, CHANGE = 4 };
static const char *const flags[] = { "--chunk-bytes=4KiB", "--max-payload=16KiB", NULL };

static test_daemon *server;

static void expect(int status, const char *command, const char *says)
{
    if (paramctl("%s", command) != status || strstr(paramctl_output, says) == NULL)
        fail_msg("paramctl %s: expected status %d and \"%s\", got:\n%s", command, status, says, paramctl_output);
}

typedef struct course {
    const char *rule;
    const char *at[STEPS + 1]; /* at[i]: paramctl command that the operator runs before step i is pushed */
    bool pushes;               /* the workers send lr = 0.25 with every push */
} course;

typedef struct run {
    const course *plan;
    float **weights[STEPS + 1];
} run;

static bool work(worker *w)
{
    static const char *const hypers[] = { "lr=0.25", NULL };
    run *r = w->team->arg;
    pd_push_options options = { .hypers = hypers };
    pd_error err = { 0 };

    for (int step = 1; step <= STEPS; step++) {
        if (pd_client_barrier(w->client, &err) != PD_OK) return worker_fail(w, "barrier", &err);
        if (w->rank == 0 && r->plan->at[step] != NULL && paramctl("%s", r->plan->at[step]) != 0) {
            snprintf(err.text, sizeof err.text, "%.400s", paramctl_output);
            return worker_fail(w, "paramctl", &err);
        }
        if (pd_client_barrier(w->client, &err) != PD_OK) return worker_fail(w, "barrier", &err);
        if (!worker_step(w, NULL, r->plan->pushes ? &options : NULL)) return false;
        if (w->rank == 0)
            for (size_t p = 0; p < PARAMS; p++)
                memcpy(r->weights[step][p], w->weights[p], (size_t)elements[p] * sizeof(float));
    }
    return true;
}

static void train(const model *m, const course *plan, run *r)
{
    const char *const rules[] = { plan->rule, NULL };
    team t = { .url = server->url,
               .job = "job",
               .world = WORLD,
               .rules = rules,
               .model = m,
               .work = work,
               .arg = r,
               .deadline = patient(20) };
    worker workers[TEAM_MOST];

    r->plan = plan;
    for (int step = 0; step <= STEPS; step++) r->weights[step] = model_buffers(m);
    team_run(&t, workers);
    team_free(&t, workers);
    assert_int_equal(paramctl("drop job"), 0);
}

static void end_run(const model *m, run *r)
{
    for (int step = 0; step <= STEPS; step++) model_free_buffers(m, r->weights[step]);
}

/* Trains the same model in two ways. Returns the first step after which the weights differ; STEPS + 1: none differ. */
static int first_difference(const model *m, const course *a, const course *b)
{
    run one, other;
    int step = 1;

    train(m, a, &one);
    train(m, b, &other);
    while (step <= STEPS && model_same(m, one.weights[step], other.weights[step])) step++;
    end_run(m, &one);
    end_run(m, &other);
    return step;
}

TEST(weights_are_those_of_a_job_with_that_schedule)
{
    static const course scheduled = { .rule = "* sgd momentum=0.9 lr=piecewise(0.1,3:0.05,6:0.2)" };
    static const course untouched = { .rule = "* sgd momentum=0.9 lr=0.1" };
    static const course ahead = { .rule = "* sgd momentum=0.9 lr=0.1",
                                  .at = { [1] = "set job '*' lr=0.05 --from 4", [2] = "set job '*' lr=0.2 --from 7" } };
    static const course at_once = { .rule = "* sgd momentum=0.9 lr=0.1",
                                    .at = { [4] = "set job '*' lr=0.05", [7] = "set job '*' lr=0.2" } };
    static const course as_schedule = { .rule = "* sgd momentum=0.9 lr=1",
                                        .at = { [1] = "set job '*' 'lr=piecewise(0.1,3:0.05,6:0.2)'" } };
    static const course over_pushed = {
        .rule = "* sgd momentum=0.9 lr=0.1",
        .pushes = true,
        .at = { [1] = "set job '*' lr=0.1", [2] = "set job '*' lr=0.05 --from 4", [7] = "set job '*' lr=0.2" }
    };
    model *m = model_new(elements, PARAMS);

    assert_int_equal(first_difference(m, &scheduled, &untouched), CHANGE);
    assert_int_equal(first_difference(m, &scheduled, &ahead), STEPS + 1);
    assert_int_equal(first_difference(m, &scheduled, &at_once), STEPS + 1);
    assert_int_equal(first_difference(m, &scheduled, &as_schedule), STEPS + 1);
    assert_int_equal(first_difference(m, &scheduled, &over_pushed), STEPS + 1);
    model_free(m);
}

TEST(a_withdrawn_setting_gives_the_schedule_back_its_place)
{
    static const course scheduled = { .rule = "* sgd momentum=0.9 lr=linear_warmup(peak=0.1,warmup_steps=8)" };
    static const course withdrawn = { .rule = "* sgd momentum=0.9 lr=linear_warmup(peak=0.1,warmup_steps=8)",
                                      .at = { [2] = "set job '*' lr=0.3 --from 5", [4] = "set job '*' lr= --from 5" } };
    model *m = model_new(elements, PARAMS);

    assert_int_equal(first_difference(m, &scheduled, &withdrawn), STEPS + 1);
    model_free(m);
}

static bool ask(worker *w)
{
    pd_error err = { 0 };

    if (!worker_step(w, NULL, NULL)) return false;
    if (pd_client_barrier(w->client, &err) != PD_OK) return worker_fail(w, "barrier", &err);
    if (w->rank == 0) {
        expect(0, "settings job", "nothing is set: the configuration and its schedules apply");
        expect(0, "set job 'p[01]' lr=0.05 momentum=0.5",
               "lr of 2 parameters (sgd): 0.1 -> 0.05, from step 2 on\nmomentum of 2 parameters (sgd): 0.9 -> 0.5, "
               "from step 2 on\n");
        expect(0, "set job '*' lr=0.2 --from 9", "lr of 3 parameters (sgd): 0.05 and others -> 0.2, from step 9 on");
        expect(0, "settings job", "PARAMETERS  HYPERPARAMETER  VALUE  FROM STEP  STATE     SET BY");
        expect(0, "settings job", "2 of p[01]  lr              0.05           2  in force  ");
        expect(0, "settings job", "3 of *      lr              0.2            9  planned   ");
        expect(0, "settings job --verbose", "\np1          momentum        0.5            2  in force  ");
        expect(0, "settings job p2", "\np2          lr              0.2            9  planned  ");
        expect(0, "set job p2 lr= --from 20", "lr of 1 parameter (sgd): 0.2 -> 0.1 again, from step 20 on");
        expect(0, "settings job p2", "(withdrawn)");
        expect(1, "set job p lr=1", "no parameter of job job matches \"p\"; it has 3, the nearest is p0");
        expect(1, "set job '*' lr=1 --from 1", "p0: step 1 has begun or is closed; the earliest possible is step 2");
        expect(1, "set job '*' momentum=0", "p0: sgd: momentum cannot change from 0.9 to 0 while the job runs");
        expect(1, "set nosuch '*' lr=1", "there is no job nosuch");
        expect(2, "set job '*' lr", "lr: expected NAME=VALUE");
        expect(2, "set job '*' lr=1 --from 0", "expected a whole number from 1");
        expect(2, "set job '*'", "is missing");
        if (!daemon_says(server, "sets lr of 2 parameters (p[01]): 0.1 -> 0.05, from step 2 on", 5))
            fail_msg("the log does not say it");
    }
    return true;
}

TEST(the_operator_is_told_what_changed_and_what_is_set)
{
    static const char *const rules[] = { "* sgd momentum=0.9 lr=0.1", NULL };
    model *m = model_new(elements, PARAMS);
    team t = { .url = server->url,
               .job = "job",
               .world = WORLD,
               .rules = rules,
               .model = m,
               .work = ask,
               .deadline = patient(20) };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    team_free(&t, workers);
    assert_int_equal(paramctl("drop job"), 0);
    expect(1, "set job '*' lr=1", "there is no job job");
    expect(1, "settings job", "there is no job job");
    model_free(m);
}

static bool ask_in_json(worker *w)
{
    json_t *value, *first;

    (void)w;
    assert_int_equal(paramctl("set job p1 lr=0.05 --json"), 0);
    value = parsed();
    assert_int_equal(json_integer_value(json_object_get(value, "params")), 1);
    first = json_array_get(json_object_get(value, "changes"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "name")), "lr");
    assert_string_equal(json_string_value(json_object_get(first, "before")), "0.1");
    assert_string_equal(json_string_value(json_object_get(first, "value")), "0.05");
    assert_int_equal(json_integer_value(json_object_get(first, "from_least")), 1);
    json_decref(value);
    assert_int_equal(paramctl("settings job --json"), 0);
    value = parsed();
    assert_int_equal(json_array_size(json_object_get(value, "settings")), 1);
    first = json_array_get(json_object_get(value, "settings"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "param")), "p1");
    assert_string_equal(json_string_value(json_object_get(first, "pattern")), "p1");
    assert_true(json_is_true(json_object_get(first, "in_force")));
    json_decref(value);
    return true;
}

TEST(machines_are_told_the_same)
{
    static const char *const rules[] = { "* sgd lr=0.1", NULL };
    model *m = model_new(elements, PARAMS);
    team t = { .url = server->url,
               .job = "job",
               .world = 1,
               .rules = rules,
               .model = m,
               .work = ask_in_json,
               .deadline = patient(20) };
    worker workers[TEAM_MOST];

    team_run(&t, workers);
    team_free(&t, workers);
    assert_int_equal(paramctl("drop job"), 0);
    model_free(m);
}

static int begin(void **state)
{
    (void)state;
    server = daemon_start(flags);
    paramctl_ask(server->url);
    return 0;
}

static int end(void **state)
{
    (void)state;
    return daemon_stop(server, patient(10));
}

GROUP(begin, end);
