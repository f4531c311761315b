/* Tests jobs whose workers are replaced in the middle of steps: they end with the same bits as jobs whose workers stay,
 * with all optimizers, aggregates and ways to give initial weights. */
#include "test.h"
#include "daemon_process.h"
#include "team.h"

enum { WORLD = 4, STEPS = 30, PARAMS = 4, MOST_TAKEN = 3 };
static const int64_t sizes[PARAMS] = { 48 * 40, 33, 3 * 10 * 16, 9 };
static const pd_shape shapes[PARAMS] = { { 2, { 48, 40 } }, { 1, { 33 } }, { 3, { 3, 10, 16 } }, { 1, { 9 } } };
static const char *const axes[PARAMS] = { "embed,mlp", "embed", "layers,embed,mlp", "" };

typedef struct course {
    bool replaced; /* in each step a worker is replaced, the ranks one after the other */
    uint64_t start;
    /* mean and weight of the scalar that came back to each rank in each step; weight 0: the answer went to a worker
     * that was replaced */
    double loss[WORLD][STEPS], weight[WORLD][STEPS];
} course;

static model *model_of_all_kinds(void)
{
    model *m = model_new(sizes, PARAMS);

    for (size_t p = 0; p < PARAMS; p++) {
        m->params[p].shape = shapes[p];
        m->params[p].axes = axes[p];
    }
    m->params[3].model_state = true;
    return m;
}

/* Pushes the first `n` parameters of a step, except those whose round this rank has seen closed. */
static int push(worker *w, uint64_t step, size_t n, pd_scalar *loss, pd_item items[PARAMS], size_t *taken,
                pd_ticket_id *ticket, pd_error *err)
{
    pd_push_options options = { .weight = 1 + 0.5 * w->rank, .scalars = loss, .n_scalars = 1 };

    *taken = 0;
    for (size_t p = 0; p < n; p++) {
        if (pd_client_step(w->client, p) >= step) continue;
        fill_gradient(w->gradients[p], sizes[p], w->rank, step, p);
        items[(*taken)++] = w->items[p];
    }
    if (*taken == 0 || items[0].param != 0) options.n_scalars = 0; /* the scalars travel with the first parameter */
    return *taken > 0 ? pd_client_push_pull(w->client, items, *taken, &options, ticket, err) : PD_OK;
}

/* Pushes some of the step's gradients and ends the worker at once, so that they may or may not reach the server. Then
 * another worker takes its rank. */
static bool replace(worker *w, uint64_t step)
{
    const team *t = w->team;
    pd_scalar loss = { .name = "loss", .value = w->rank + 1.0 / (double)step };
    pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err;
    size_t taken;
    int rank = w->rank;

    if (push(w, step, step % MOST_TAKEN, &loss, items, &taken, &ticket, &err) != PD_OK)
        return worker_fail(w, "part of a step", &err);
    if (taken > 0 && step % 2 == 0) (void)pd_client_wait(w->client, ticket, 0.01, NULL);
    worker_free(w);
    return worker_open(w, t, rank) && worker_declare(w);
}

static bool take_step(worker *w, uint64_t step)
{
    course *c = w->team->arg;
    pd_scalar loss = { .name = "loss", .value = w->rank + 1.0 / (double)step };
    pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err;
    size_t taken;
    int rc = push(w, step, PARAMS, &loss, items, &taken, &ticket, &err);

    if (rc == PD_OK && taken > 0) rc = pd_client_wait(w->client, ticket, 0, &err);
    if (rc != PD_OK) return worker_fail(w, "step", &err);
    if (taken == 0 || items[0].param != 0) return true;
    c->loss[w->rank][step - c->start - 1] = loss.mean;
    c->weight[w->rank][step - c->start - 1] = loss.weight;
    return true;
}

static bool train(worker *w)
{
    const course *c = w->team->arg;

    for (uint64_t step = c->start + 1; step <= c->start + STEPS; step++) {
        if (c->replaced && step % WORLD == (uint64_t)w->rank && !replace(w, step)) return false;
        if (!take_step(w, step)) return false;
    }
    return true;
}

static void assert_same_losses(const course *stays, const course *replaced)
{
    for (int rank = 0; rank < WORLD; rank++)
        for (int step = 0; step < STEPS; step++)
            if (replaced->weight[rank][step] != 0) {
                assert_true(replaced->weight[rank][step] == stays->weight[rank][step]);
                assert_true(replaced->loss[rank][step] == stays->loss[rank][step]);
            }
}

static void expect_the_same(const char *const *rules, const char *const *options, uint64_t start)
{
    test_daemon *daemon = daemon_start(NULL);
    model *m = model_of_all_kinds();
    course *stays = calloc(1, sizeof *stays), *replaced = calloc(1, sizeof *replaced);
    team t = { .url = daemon->url,
               .job = "stays",
               .world = WORLD,
               .rules = rules,
               .options = options,
               .model = m,
               .ranks = true,
               .work = train,
               .arg = stays };
    worker before[TEAM_MOST], after[TEAM_MOST];

    stays->start = replaced->start = start;
    replaced->replaced = true;
    team_run(&t, before);
    t.job = "replaced";
    t.arg = replaced;
    team_run(&t, after);
    for (int rank = 0; rank < WORLD; rank++) assert_true(model_same(m, before[0].weights, after[rank].weights));
    assert_same_losses(stays, replaced);
    team_free(&t, before);
    team_free(&t, after);
    free(stays);
    free(replaced);
    model_free(m);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(kron_steps_alike)
{
    static const char *const rules[] = { "* kron learning_rate=0.01 merge_small_dims=no block_size=16 root_delay=1",
                                         NULL },
                             *const options[] = { "aggregate=weighted_mean", NULL };
    expect_the_same(rules, options, 0);
}

TEST(adafactor_steps_alike_from_a_later_step_on)
{
    static const char *const rules[] = { "* adafactor learning_rate=0.01 beta1=0.9 step_offset=100 "
                                         "logical_factor_rules=standard global_norm_clip_threshold=5",
                                         NULL };
    static const char *const options[] = { "start_step=100", "aggregate=median", NULL };
    expect_the_same(rules, options, 100);
}

TEST(several_optimizers_step_alike_on_one_norm_from_the_mean_of_first_weights)
{
    static const char *const rules[] = { "p0 kron learning_rate=0.01 merge_small_dims=no block_size=16",
                                         "p2 adafactor learning_rate=0.01 logical_factor_rules=standard",
                                         "* sgd lr=linear_warmup(peak=0.1,warmup_steps=20) momentum=0.9", NULL };
    static const char *const options[] = { "clip_global_norm=3", "initial_weights=mean", "aggregate=adasum", NULL };
    expect_the_same(rules, options, 0);
}
