/* Tests the details that workers declare beside names and shapes, through the real daemon: two workers with batch-norm
 * statistics, and what an operator sees. */
#include "test.h"
#include "daemon_process.h"
#include "team.h"

enum { KERNEL, MEAN, TRACKED, PARAMS };
static const int64_t elements[PARAMS] = { 6, 3, 1 };

static model *statistics_model(void)
{
    model *m = model_new(elements, PARAMS);

    m->params[KERNEL].shape = (pd_shape){ 2, { 2, 3 } };
    m->params[KERNEL].axes = "embed,mlp";
    m->params[MEAN].model_state = m->params[TRACKED].model_state = true;
    return m;
}

/* Takes three steps. The statistics differ by rank, the counter is the same on both ranks. */
static bool train(worker *w)
{
    for (int step = 1; step <= 3; step++) {
        pd_ticket_id ticket;
        pd_error err;
        for (int i = 0; i < 6; i++) w->gradients[KERNEL][i] = 1;
        for (int i = 0; i < 3; i++) w->gradients[MEAN][i] = (float)(10 * step + i + 4 * w->rank);
        w->gradients[TRACKED][0] = (float)(16777210 + step);
        if (pd_client_push_pull(w->client, w->items, PARAMS, &(pd_push_options){ .weight = 1 + 2 * w->rank }, &ticket,
                                &err) != PD_OK)
            return worker_fail(w, "push_pull", &err);
        if (pd_client_wait(w->client, ticket, 0, &err) != PD_OK) return worker_fail(w, "wait", &err);
        for (int i = 0; i < 6; i++)
            if (w->weights[KERNEL][i] != -0.5f * (float)step) return worker_fail(w, "the kernel is trained", NULL);
        for (int i = 0; i < 3; i++)
            if (w->weights[MEAN][i] != (float)(10 * step + i + 3))
                return worker_fail(w, "the mean is the weighted mean of both", NULL);
        if (w->weights[TRACKED][0] != (float)(16777210 + step)) return worker_fail(w, "a counter is exact", NULL);
    }
    if (strcmp(pd_client_note(w->client, KERNEL), "") != 0) return worker_fail(w, "there is nothing to say", NULL);
    return true;
}

TEST(statistics_of_two_workers_are_averaged_beside_what_is_trained)
{
    static const char *const rules[] = { "* sgd lr=0.5", NULL }, *const options[] = { "aggregate=weighted_mean", NULL };
    test_daemon *daemon = daemon_start(NULL);
    worker workers[TEAM_MOST];
    model *m = statistics_model();
    team t = { .url = daemon->url,
               .job = "norm",
               .world = 2,
               .rules = rules,
               .options = options,
               .model = m,
               .zero = true,
               .work = train };
    team_run(&t, workers);
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

static bool look(worker *w)
{
    paramctl_ask(w->team->url);
    assert_int_equal(paramctl("params --verbose norm"), 0);
    assert_says("p0: axes embed,mlp\n");
    assert_says("model_state");
    assert_int_equal(paramctl("params --json norm"), 0);
    assert_says("\"axes\": \"embed,mlp\"");
    assert_int_equal(paramctl("state norm"), 0);
    assert_says("FOLLOWS");
    assert_says("0,1");
    assert_int_equal(paramctl("state --json norm"), 0);
    assert_says("\"follows\": [\n        0,\n        1\n      ]");
    return true;
}

TEST(an_operator_sees_axes_and_what_slots_follow)
{
    static const char *const rules[] = { "* adam", NULL };
    test_daemon *daemon = daemon_start(NULL);
    worker workers[TEAM_MOST];
    model *m = statistics_model();
    team t = { .url = daemon->url, .job = "norm", .world = 1, .rules = rules, .model = m, .work = look };
    team_run(&t, workers);
    team_free(&t, workers);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
