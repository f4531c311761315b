/* fsdp_exact: the largest difference between weights that are trained whole and weights that are trained in slices.
 * One worker pushes whole gradients through a daemon. Four other workers push the same gradients as flattened
 * slices: either four shards as FSDP cuts them (ceil(n / 4) elements each, so the last are shorter or empty), or two
 * shards on two replicas each, as in HSDP. The runs cover first-order optimizers and both Shampoos with their roots. */
#include "figure.h"
#include "paramd/client.h"

#include <pthread.h>

enum { STEPS = 8, MOST_RANKS = 4 };
#define DEADLINE_S 120

typedef struct bench_model {
    const pd_shape *shapes;
    size_t n;
} bench_model;

static const pd_shape small[] = { { 2, { 96, 50 } }, { 1, { 130 } }, { 2, { 33, 17 } }, { 4, { 3, 5, 7, 4 } },
                                  { 1, { 5 } },      { 1, { 1 } },   { 0, { 0 } },      { 2, { 7, 1 } } };
static const pd_shape large[] = {
    { 2, { 1500, 1100 } }, { 1, { 1049 } }, { 3, { 9, 31, 2 } }, { 1, { 2 } }
}; /* the first parameter and its slices have several chunks */
enum { N_SMALL = sizeof small / sizeof *small, N_LARGE = sizeof large / sizeof *large, MOST_PARAMS = N_SMALL };

static const struct {
    const char *rule;
    bench_model model;
} runs[] = {
    { "* sgd lr=0.1 momentum=0.9 nesterov=true weight_decay=0.01", { large, N_LARGE } },
    { "* adam lr=0.01", { large, N_LARGE } },
    { "* lamb lr=0.01", { small, N_SMALL } },
    { "* scalable_shampoo block_size=32 preconditioning_compute_steps=2 start_preconditioning_step=3",
      { small, N_SMALL } },
    { "* shampoo max_preconditioner_dim=32 precondition_frequency=2 epsilon=1e-8 momentum=0.9 grafting_config=Adam",
      { small, N_SMALL } },
};
enum { N_RUNS = sizeof runs / sizeof *runs };

/* A way to divide the model among ranks: into `shards` ranges, each of which `replicas` ranks have. */
typedef struct spreading {
    const char *name;
    int shards, replicas;
    bool ranged;
} spreading;
static const spreading layouts[] = { { "whole", 1, 1, false }, { "fsdp", 4, 1, true }, { "hsdp", 2, 2, true } };
enum { N_LAYOUTS = sizeof layouts / sizeof *layouts };

typedef struct member {
    const char *url, *job, *rule;
    const bench_model *model;
    const spreading *layout;
    int rank;
    pthread_t thread;
    int64_t start[MOST_PARAMS], end[MOST_PARAMS];
    float *weights[MOST_PARAMS], *gradients[MOST_PARAMS]; /* buffers for the rank's range of each parameter */
} member;

static void check(int rc, const member *m, const pd_error *err)
{
    if (rc != PD_OK) figure_stop("%s, rank %d: %s", m->job, m->rank, err->text);
}

/* Returns a pseudo-random number between -2^s and 2^s, where s is itself random from -4 to 3. The number depends
 * only on step, parameter and element. */
static float number(uint64_t step, size_t param, int64_t element)
{
    uint64_t z = (step * 1000003u + param) * 0x9e3779b97f4a7c15u + (uint64_t)element * 0xd1342543de82ef95u;

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    return ldexpf((float)((int64_t)(z >> 40) - (1 << 23)) / (1 << 23), (int)(z & 7) - 4);
}

static int64_t elements_of(const bench_model *model, size_t p)
{
    int64_t n;

    if (pd_shape_elements(&model->shapes[p], &n) != PD_OK) figure_stop("a shape has no size");
    return n;
}

static void spread(member *m)
{
    for (size_t p = 0; p < m->model->n; p++) {
        int64_t n = elements_of(m->model, p), part = (n + m->layout->shards - 1) / m->layout->shards,
                shard = m->rank / m->layout->replicas;
        m->start[p] = part * shard < n ? part * shard : n;
        m->end[p] = part * (shard + 1) < n ? part * (shard + 1) : n;
        m->weights[p] = figure_alloc((size_t)(m->end[p] - m->start[p] + 1) * sizeof(float));
        m->gradients[p] = figure_alloc((size_t)(m->end[p] - m->start[p] + 1) * sizeof(float));
    }
}

static void fill(const member *m, float *const *out, uint64_t step)
{
    for (size_t p = 0; p < m->model->n; p++)
        for (int64_t i = m->start[p]; i < m->end[p]; i++) out[p][i - m->start[p]] = number(step, p, i);
}

static void join(member *m, pd_client **client)
{
    const char *rules[] = { m->rule, NULL };
    pd_client_options open = { .urls = m->url,
                               .job = m->job,
                               .rank = m->rank,
                               .world_size = m->layout->shards * m->layout->replicas,
                               .rules = rules,
                               .deadline = DEADLINE_S };
    pd_client_param params[MOST_PARAMS];
    char names[MOST_PARAMS][24];
    pd_error err = { 0 };

    for (size_t p = 0; p < m->model->n; p++) {
        snprintf(names[p], sizeof names[p], "p%zu", p);
        params[p] = (pd_client_param){ .name = names[p], .shape = m->model->shapes[p], .ranged = m->layout->ranged };
        if (m->layout->ranged) params[p].start = m->start[p], params[p].end = m->end[p];
    }
    check(pd_client_open(client, &open, &err), m, &err);
    check(pd_client_declare(*client, params, m->model->n, &err), m, &err);
    fill(m, m->weights, 0);
    check(pd_client_init(*client, (void *const *)m->weights, &err), m, &err);
}

static void take_step(member *m, pd_client *client, uint64_t step)
{
    pd_item items[MOST_PARAMS];
    pd_ticket_id ticket;
    pd_error err = { 0 };

    fill(m, m->gradients, step);
    for (size_t p = 0; p < m->model->n; p++)
        items[p] = (pd_item){ .param = p, .gradient = m->gradients[p], .weights = m->weights[p] };
    check(pd_client_push_pull(client, items, m->model->n, NULL, &ticket, &err), m, &err);
    check(pd_client_wait(client, ticket, DEADLINE_S, &err), m, &err);
    for (size_t p = 0; p < m->model->n; p++)
        if (m->start[p] < m->end[p] && (items[p].outcome != 1 || items[p].version != step))
            figure_stop("%s, rank %d: step %d of p%zu was not taken (outcome %d, version %d)", m->job, m->rank,
                        (int)step, p, items[p].outcome, (int)items[p].version);
}

static void *live(void *arg)
{
    member *m = arg;
    pd_client *client;

    join(m, &client);
    for (uint64_t step = 1; step <= STEPS; step++) take_step(m, client, step);
    pd_client_leave(client, NULL);
    pd_client_close(client);
    return NULL;
}

/* Trains a job whose ranks share the model by this layout. Fills `members`, which then hold the trained weights. */
static void train(const char *url, const char *job, size_t run, const spreading *layout, member *members)
{
    int world = layout->shards * layout->replicas;

    for (int rank = 0; rank < world; rank++) {
        members[rank] = (member){
            .url = url, .job = job, .rule = runs[run].rule, .model = &runs[run].model, .layout = layout, .rank = rank
        };
        spread(&members[rank]);
        if (pthread_create(&members[rank].thread, NULL, live, &members[rank]) != 0)
            figure_stop("cannot start a thread");
    }
    for (int rank = 0; rank < world; rank++) pthread_join(members[rank].thread, NULL);
}

static void release(member *members, int n)
{
    for (int rank = 0; rank < n; rank++)
        for (size_t p = 0; p < members[rank].model->n; p++) {
            free(members[rank].weights[p]);
            free(members[rank].gradients[p]);
        }
}

/* Returns the largest difference of the two ranks' weights of the same element. Ends the program if a weight is not
 * finite, or if no weight has changed in training. */
static double difference(const member *whole, const member *part)
{
    double most = 0;
    bool moved = false;

    for (size_t p = 0; p < part->model->n; p++)
        for (int64_t i = part->start[p]; i < part->end[p]; i++) {
            double a = whole->weights[p][i], b = part->weights[p][i - part->start[p]];
            if (!isfinite(a) || !isfinite(b)) figure_stop("%s: weights are not finite", part->job);
            most = fmax(most, fabs(a - b));
            moved = moved || (float)a != number(0, p, i);
        }
    if (!moved) figure_stop("%s: nothing was trained", part->job);
    return most;
}

static double measure(const char *url, size_t run)
{
    member whole[MOST_RANKS], parts[MOST_RANKS];
    double most = 0;
    char job[32];

    snprintf(job, sizeof job, "%s-%zu", layouts[0].name, run);
    train(url, job, run, &layouts[0], whole);
    for (size_t l = 1; l < N_LAYOUTS; l++) {
        int world = layouts[l].shards * layouts[l].replicas;
        snprintf(job, sizeof job, "%s-%zu", layouts[l].name, run);
        train(url, job, run, &layouts[l], parts);
        for (int rank = 0; rank < world; rank++) most = fmax(most, difference(&whole[0], &parts[rank]));
        release(parts, world);
    }
    release(whole, 1);
    return most;
}

int main(void)
{
    pd_child daemon;
    double most = 0;

    figure_daemon(&daemon);
    for (size_t run = 0; run < N_RUNS; run++) most = fmax(most, measure(daemon.url, run));
    pd_child_stop(&daemon);
    if (most == 0)
        printf("0");
    else
        printf("%.50f", most);
    printf("\t%d steps of sgd, adam, lamb, scalable_shampoo and shampoo: 4 shards, and 2 shards on 2 replicas each, "
           "beside one worker\n",
           STEPS);
    return 0;
}
