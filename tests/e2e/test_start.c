/* Tests job options for the start and the size of steps, through the client library: start_step, initial_weights,
 * and clip_global_norm. */
#include "test.h"
#include "daemon_process.h"
#include "team.h"

enum { START = 1000 };
static const int64_t sizes[] = { 700, 3 };

static bool is_at(worker *w, uint64_t step)
{
    for (size_t p = 0; p < 2; p++)
        if (pd_client_step(w->client, p) != step) return worker_fail(w, "a parameter is at another step", NULL);
    return true;
}

static bool pull(worker *w, uint64_t step)
{
    pd_ticket_id ticket;
    pd_error err;

    if (pd_client_pull(w->client, w->items, 2, step, &ticket, &err) != PD_OK ||
        pd_client_wait(w->client, ticket, 0, &err) != PD_OK)
        return worker_fail(w, "pull", &err);
    for (size_t p = 0; p < 2; p++)
        if (w->items[p].version != step) return worker_fail(w, "the weights are of another step", NULL);
    return true;
}

/* Pushes only the first of the two parameters, and ends the step with close_step. */
static bool close_step(worker *w, uint64_t step)
{
    pd_ticket_id push, closing;
    pd_error err;

    if (pd_client_push(w->client, w->items, 1, NULL, &push, &err) != PD_OK ||
        pd_client_close_step(w->client, step, &closing, &err) != PD_OK ||
        pd_client_wait(w->client, push, 0, &err) != PD_OK || pd_client_wait(w->client, closing, 0, &err) != PD_OK)
        return worker_fail(w, "a step that is closed", &err);
    return true;
}

static bool three_steps(worker *w)
{
    if (!is_at(w, START) || !pull(w, START)) return false;
    if (!worker_count(w) || !is_at(w, START + 1) || w->items[0].step != START + 1)
        return worker_fail(w, "the first step is another", NULL);
    if (!worker_count(w) || !worker_counted(w, 2)) return worker_fail(w, "two steps were not counted", NULL);
    return close_step(w, START + 3) && is_at(w, START + 3);
}

typedef struct played {
    model *m;
    team t;
    worker workers[TEAM_MOST];
} played;

/* Runs a team at the daemon with one job option and the rule "* sgd lr=1". The team has left when this returns. */
static void play(played *f, const test_daemon *daemon, team t, const char *option)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    const char *const options[] = { option, NULL };

    f->m = model_new(sizes, 2);
    f->t = t;
    f->t.url = daemon->url;
    f->t.options = options;
    f->t.rules = rules;
    f->t.model = f->m;
    team_run(&f->t, f->workers);
}

static void end(played *f)
{
    team_free(&f->t, f->workers);
    model_free(f->m);
}

TEST(workers_of_a_job_that_starts_later_take_its_steps_from_there, void *given)
{
    played f;

    play(&f, given, (team){ .job = "start", .world = 2, .zero = true, .work = three_steps }, "start_step=1000");
    end(&f);
}

static bool has_the_mean(worker *w)
{
    for (size_t p = 0; p < 2; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            if (w->weights[p][i] != 1.5f) return worker_fail(w, "the first weights are not the mean", NULL);
    return worker_count(w);
}

TEST(every_worker_gets_the_mean_of_all_workers_weights, void *given)
{
    played f;

    play(&f, given, (team){ .job = "mean", .world = 4, .ranks = true, .work = has_the_mean }, "initial_weights=mean");
    for (int r = 0; r < 4; r++) assert_true(f.workers[r].weights[0][699] == 0.5f);
    end(&f);
}

static bool two_steps(worker *w)
{
    return worker_step(w, NULL, NULL) && worker_step(w, NULL, NULL);
}

/* The norm of the gradients is far above clip_global_norm = 0.5, so two steps with lr = 1 move the weights by at
 * most 1. */
TEST(a_job_that_clips_moves_no_further_than_its_limit, void *given)
{
    double squares = 0;
    played f;

    play(&f, given, (team){ .job = "clip", .world = 2, .zero = true, .work = two_steps }, "clip_global_norm=0.5");
    for (size_t p = 0; p < 2; p++)
        for (int64_t i = 0; i < sizes[p]; i++)
            squares += (double)f.workers[0].weights[p][i] * f.workers[0].weights[p][i];
    assert_true(squares > 0.01 && squares <= 1.000001);
    assert_true(model_same(f.m, f.workers[0].weights, f.workers[1].weights));
    end(&f);
}

GROUP_OBJECT(daemon_start(NULL), daemon_end);
