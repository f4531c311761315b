/* replay_server.c - plays a trace through a daemon, with one thread and one connection for each replica.
 *
 * A trace of weights is played step by step. In a trace of averages each parameter is independent of the others: it
 * records gradients and their average. Such a trace is played in a single round, with weights of 0 and `sgd lr=1`,
 * which leaves exactly minus the average as weights. If the weights are sharded, the declared parameter has all shards,
 * and a replica pushes and pulls only the range of its own shard. */
#include "replay_run.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "connection.h"

typedef struct common { /* Data that all workers of a replay share. While they run, only *first_failed changes. */
    const pd_trace *trace;
    const pd_trace_param *params;
    const char *url;
    double timeout;
    const pd_recipe *recipe;
    const char *rate; /* name of the hyperparameter that each step sets to the recorded learning rate; NULL: there is
                       * none */
    char job[300];
    char **rules;          /* text of a rule for each group of parameters, with that of group 0 last; NULL at the end */
    pd_replay_parts parts; /* the declared parts */
    size_t n;              /* number of parameters in the trace */
    int64_t rounds;
    int world_size;
    atomic_int *first_failed; /* rank of the first worker that failed; -1: none */
} common;

/* A worker of the replay: plays one replica on a thread of its own. */
typedef struct worker {
    const common *common;
    pthread_t thread;
    bool started, refused; /* started: the thread was started. refused: the daemon refused the job or its parameters, as
                            * the recorded run lets it (pd_replay_is_refusal) */
    int rank, rc;
    pd_error err;
    uint64_t sent; /* number of chunks of gradients that this worker has pushed; the daemon counts each as a
                    * contribution */
    pd_client *client;
    pd_replay_tensors t;
    pd_item *io;          /* for each declared part what to push and where to pull */
    pd_verdict *verdicts; /* worst error of each parameter, and then that of the losses */
} worker;

static int allocate(worker *w)
{
    const common *s = w->common;
    int rc;

    w->io = calloc(s->parts.n + 1, sizeof *w->io);
    w->verdicts = calloc(s->n + 1, sizeof *w->verdicts);
    if (!w->io || !w->verdicts) return pd_fail(&w->err, PD_NO_MEMORY, "out of memory");
    rc = pd_replay_tensors_new(&w->t, s->trace, &w->err);
    w->t.zeros = s->recipe->zeros;
    return rc;
}

static void release(worker *w)
{
    pd_client_close(w->client);
    pd_replay_tensors_free(&w->t);
    free(w->io);
    free(w->verdicts);
}

/* Returns how a worker declares a part: a whole parameter, or a block of a shard of FSDP. In a trace of averages
 * with sharded weights, the declared parameter has one row for each shard, and the worker's range is the row of its
 * shard. */
static pd_client_param declaration_of(const worker *w, const pd_replay_part *part)
{
    int64_t shards = w->common->recipe->shards, elements;

    if (w->common->recipe->aggregate == NULL || shards == 1)
        return (pd_client_param){ .name = part->name, .shape = part->shape, .axes = part->axes };
    pd_shape_elements(&part->shape, &elements);
    return (pd_client_param){ .name = part->name,
                              .shape = { 2, { shards, elements } },
                              .ranged = true,
                              .start = w->rank % shards * elements,
                              .end = (w->rank % shards + 1) * elements };
}

static int declare(worker *w, pd_error *err)
{
    const pd_replay_parts *parts = &w->common->parts;
    pd_client_param *params = calloc(parts->n + 1, sizeof *params);
    int rc;

    if (params == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < parts->n; i++) params[i] = declaration_of(w, &parts->at[i]);
    rc = pd_client_declare(w->client, params, parts->n, err);
    free(params);
    return rc;
}

static int init(worker *w, pd_error *err)
{
    const pd_replay_parts *parts = &w->common->parts;
    void **weights = calloc(parts->n + 1, sizeof *weights);
    int rc;

    if (weights == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < parts->n; i++) weights[i] = w->t.weights[parts->at[i].param] + parts->at[i].offset;
    rc = pd_client_init(w->client, weights, err);
    free(weights);
    return rc;
}

static int join_job(worker *w)
{
    const common *s = w->common;
    const char *aggregate = s->recipe->aggregate != NULL ? s->recipe->aggregate : "mean";
    /* true: steps of the recorded run may fail. Then the job gets two options about gradients that are not finite or
     * too large for the optimizer: with nonfinite=apply the daemon takes steps with them, and with nonfinite_scope=job
     * a step fails for all parameters or for none. */
    bool hard = s->trace->averages || s->trace->extreme || json_array_size(s->trace->errors) > 0;
    char how[64], start[64];
    /* The list of options ends at its first NULL. So if `hard` is false, nonfinite_scope is not given either. */
    const char *options[] = { how, start, hard ? "nonfinite=apply" : NULL, "nonfinite_scope=job", NULL };
    pd_client_options open = { .urls = s->url,
                               .job = s->job,
                               .rank = w->rank,
                               .world_size = s->world_size,
                               .options = options,
                               .rules = (const char *const *)s->rules,
                               .label = "paramctl replay",
                               .deadline = fmax(s->timeout, 60) };
    pd_error why = { 0 };
    int rc;

    snprintf(how, sizeof how, "aggregate=%s", aggregate);
    snprintf(start, sizeof start, "start_step=%lld", (long long)s->recipe->start_step);
    rc = pd_client_open(&w->client, &open, &why);
    if (rc == PD_OK) rc = declare(w, &why);
    if (rc != PD_OK && pd_replay_is_refusal(s->trace, rc)) {
        pd_replay_refused(s->trace, w->t.weights);
        w->refused = true;
        return PD_OK;
    }
    if (rc == PD_OK) rc = init(w, &why);
    if (rc != PD_OK) w->err = why;
    return rc;
}

/* Returns in how many chunks a worker pushes the gradient of a declared part: the number of the daemon's chunks with
 * elements of the worker's range. */
static uint64_t chunks_of(const worker *w, const pd_replay_part *part)
{
    const pd_client_param decl = declaration_of(w, part);
    int64_t chunk = (int64_t)pd_client_welcome(w->client)->chunk_elements, end = decl.end;

    if (!decl.ranged) pd_shape_elements(&decl.shape, &end);
    return end > decl.start ? (uint64_t)((end - 1) / chunk - decl.start / chunk + 1) : 0;
}

static void fill_items(worker *w, int64_t round)
{
    const common *s = w->common;

    pd_replay_tensors_fill(&w->t, round, w->rank);
    for (size_t i = 0; i < s->parts.n; i++) {
        const pd_replay_part *part = &s->parts.at[i];
        bool present = w->t.present[part->param];
        w->io[i] = (pd_item){ .param = i,
                              .gradient = present ? w->t.gradient[part->param] + part->offset : NULL,
                              .weights = w->t.weights[part->param] + part->offset };
        if (present) w->sent += chunks_of(w, part);
    }
}

static int push_pull(worker *w, int64_t round, pd_error *err)
{
    const common *s = w->common;
    char value[64] = "";
    const char *hypers[] = { value, NULL };
    double rate;
    pd_push_options options = { 0 };
    pd_ticket_id ticket;
    int rc;

    if (s->rate != NULL && pd_replay_rate(s->trace, s->recipe, round, &rate)) {
        snprintf(value, sizeof value, "%s=%.17g", s->rate, rate);
        options.hypers = hypers;
    }
    fill_items(w, round);
    rc = pd_client_push_pull(w->client, w->io, s->parts.n, &options, &ticket, err);
    return rc == PD_OK ? pd_client_wait(w->client, ticket, 0, err) : rc;
}

/* Pulls the weights after a step that failed. They are compared with the recorded ones as after any other step. */
static int pull(worker *w)
{
    pd_ticket_id ticket;
    int rc = pd_client_pull(w->client, w->io, w->common->parts.n, 0, &ticket, &w->err);

    return rc == PD_OK ? pd_client_wait(w->client, ticket, 0, &w->err) : rc;
}

/* Pulls the weights to evaluate with after a step, if the trace has them, and compares them. Overwrites the gradients,
 * which the next step fills anew. */
static int judge_readouts(worker *w, int64_t round, pd_error *err)
{
    const common *s = w->common;
    char prefix[16];
    pd_ticket_id ticket;
    int rc;

    snprintf(prefix, sizeof prefix, "eval/%04d/", (int)round);
    if (s->trace->averages || pd_replay_is_sharded(s->trace) || !pd_trace_has(s->trace, prefix)) return PD_OK;
    for (size_t i = 0; i < s->parts.n; i++) {
        const pd_replay_part *part = &s->parts.at[i];
        w->io[i].weights = w->t.gradient[part->param] + part->offset;
    }
    rc = pd_client_pull_form(w->client, w->io, s->parts.n, 0, PD_FORM_EVAL, &ticket, err);
    if (rc == PD_OK) rc = pd_client_wait(w->client, ticket, 0, err);
    for (size_t i = 0; rc == PD_OK && i < w->t.n; i++) {
        const pd_trace_param *param = &w->t.params[i];
        char name[400];
        pd_shape shape;
        snprintf(name, sizeof name, "%s%s", prefix, param->name);
        if (!pd_trace_tensor(s->trace, name, &shape) || !pd_shape_equal(&shape, &param->shape)) continue;
        pd_trace_values(s->trace, name, w->t.recorded);
        pd_verdict_add(&w->verdicts[i], i, round,
                       pd_relative_error(w->t.gradient[i], w->t.recorded, param->elements, 0));
    }
    return rc;
}

static int take_round(worker *w, int64_t round)
{
    const pd_trace *trace = w->common->trace;
    pd_error why = { 0 };
    int rc, judged;

    if (w->refused) return PD_OK;
    rc = push_pull(w, round, &why);
    if (trace->averages) {
        w->err = why;
        return rc;
    }
    judged = pd_replay_judge_step(trace, round, rc, &why, &w->err);
    return judged == PD_OK && rc != PD_OK ? pull(w) : judged;
}

/* Returns the largest norm among the gradients of parameter i that are averaged, the worker's own and those of the
 * replicas with the same shard. Overwrites the gradient in w->t. */
static double largest_input(worker *w, size_t i)
{
    const pd_trace_param *param = &w->common->params[i];
    int shards = w->common->recipe->shards;
    double norm = 0;

    for (int rank = w->rank % shards; rank < w->common->world_size; rank += shards) {
        pd_trace_gradient(w->common->trace, param->step, rank, i, w->t.gradient[i]);
        norm = fmax(norm, pd_finite_norm(w->t.gradient[i], param->elements));
    }
    return norm;
}

static void compare_averages(worker *w)
{
    const common *s = w->common;

    for (size_t i = 0; i < s->n; i++) {
        const pd_trace_param *param = &s->params[i];
        for (int64_t k = 0; k < param->elements; k++) w->t.weights[i][k] = -w->t.weights[i][k];
        pd_trace_average(s->trace, param->step, w->rank, i, w->t.recorded);
        pd_verdict_add(&w->verdicts[i], i, param->step,
                       pd_relative_error(w->t.weights[i], w->t.recorded, param->elements, largest_input(w, i)));
    }
}

/* Called by a worker that failed. If it is the first, stores its rank and drops the job on the daemon, so that the
 * other workers do not wait for it. */
static void give_up(worker *w)
{
    int nobody = -1;

    if (atomic_compare_exchange_strong(w->common->first_failed, &nobody, w->rank))
        pd_operator_drop(w->common->url, w->common->timeout, w->common->job);
}

static void *run_worker(void *arg)
{
    worker *w = arg;
    const common *s = w->common;

    w->rc = allocate(w);
    if (w->rc == PD_OK) w->rc = join_job(w);
    for (int64_t round = 1; w->rc == PD_OK && round <= s->rounds; round++) {
        w->rc = take_round(w, round);
        if (w->rc == PD_OK && !s->trace->averages) pd_replay_tensors_judge(&w->t, round, w->verdicts);
        if (w->rc == PD_OK && !w->refused) w->rc = judge_readouts(w, round, &w->err);
    }
    if (w->rc == PD_OK && s->trace->averages) compare_averages(w);
    if (w->rc != PD_OK) give_up(w);
    return NULL;
}

/* Makes the job's rules, one for each group of parameters. The name of a declared parameter begins with the number of
 * its group ("2/NAME"), and the group's rule matches that number. The rule of group 0 comes last and matches all other
 * names. */
static int set_rules(common *s, pd_error *err)
{
    size_t n = s->recipe->n_groups;

    if ((s->rules = calloc(n + 1, sizeof *s->rules)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        size_t group = (i + 1) % n;
        char glob[32];
        if (group == 0)
            snprintf(glob, sizeof glob, "*");
        else
            snprintf(glob, sizeof glob, "%zu/*", group);
        if ((s->rules[i] = pd_recipe_rule(s->recipe, group, glob)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return PD_OK;
}

static int make_common(common *s, pd_error *err)
{
    bool averages = s->trace->averages;
    uint64_t nonce = 0;
    int rc = averages ? pd_replay_check_replicas(s->trace, s->recipe, err) : PD_OK;

    if (rc == PD_OK) rc = pd_replay_parts_find(&s->parts, s->trace, s->recipe, err);
    if (rc != PD_OK) return rc;
    s->params = s->trace->params;
    s->n = s->trace->n;
    s->world_size = s->trace->replicas;
    s->rounds = averages ? 1 : s->trace->steps;
    s->rate = averages ? NULL : s->recipe->rate;
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce) return pd_fail(err, PD_INTERNAL, "no random numbers");
    snprintf(s->job, sizeof s->job, "replay/%.128s/%016llx", s->trace->name, (unsigned long long)nonce);
    return set_rules(s, err);
}

static void free_common(common *s)
{
    pd_replay_parts_free(&s->parts);
    for (size_t i = 0; s->rules != NULL && s->rules[i] != NULL; i++) free(s->rules[i]);
    free(s->rules);
}

static int run_workers(worker *workers, const common *s, pd_error *err)
{
    int rc = PD_OK;

    for (int i = 0; i < s->world_size; i++) {
        workers[i] = (worker){ .common = s, .rank = i };
        workers[i].started = pthread_create(&workers[i].thread, NULL, run_worker, &workers[i]) == 0;
        if (!workers[i].started) {
            rc = pd_fail(err, PD_NO_MEMORY, "cannot start a thread");
            pd_operator_drop(s->url, s->timeout, s->job);
            break;
        }
    }
    for (int i = 0; i < s->world_size; i++)
        if (workers[i].started) pthread_join(workers[i].thread, NULL);
    return rc;
}

static void add_counts(void *arg, const Paramd__ListReply *page)
{
    for (size_t i = 0; i < page->n_params; i++) *(uint64_t *)arg += page->params[i]->contributions;
}

/* Asks the daemon for the number of contributions that it counted in the job. */
static int counted(const common *s, uint64_t *count, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    pd_operator op;
    int rc = pd_operator_open(&op, s->url, s->timeout, err);

    request.what = PARAMD__LIST_KIND__LIST_PARAMS;
    request.job = (char *)s->job;
    *count = 0;
    if (rc == PD_OK) rc = pd_operator_list(&op, &request, add_counts, count, err);
    pd_operator_close(&op);
    return rc;
}

static int check_count(const worker *workers, const common *s, pd_error *err)
{
    uint64_t sent = 0, count;
    int rc;

    if (workers[0].refused) return PD_OK;
    rc = counted(s, &count, err);
    for (int i = 0; i < s->world_size; i++) sent += workers[i].sent;
    if (rc == PD_OK && sent != count)
        return pd_fail(err, PD_DATA_LOSS, "the daemon counted %llu contributions of %llu that were sent",
                       (unsigned long long)count, (unsigned long long)sent);
    return rc;
}

static int perform(worker *workers, const common *s, pd_verdict *verdicts, pd_error *err)
{
    int rc = run_workers(workers, s, err), first = atomic_load(s->first_failed);

    /* The error of the worker that failed first is reported: later workers fail because the job is dropped. */
    if (rc == PD_OK && first >= 0) {
        rc = workers[first].rc;
        if (err != NULL) *err = workers[first].err;
    }
    if (rc == PD_OK) rc = check_count(workers, s, err);
    for (int i = 0; i < s->world_size; i++)
        for (size_t p = 0; rc == PD_OK && p < s->n + (workers[i].t.net != NULL); p++)
            pd_verdict_fold(&verdicts[p], &workers[i].verdicts[p]);
    pd_operator_drop(s->url, s->timeout, s->job);
    for (int i = 0; i < s->world_size; i++)
        if (workers[i].started) release(&workers[i]);
    return rc;
}

int pd_replay_server(const pd_trace *trace, const pd_recipe *recipe, const char *url, double timeout,
                     pd_verdict *verdicts, pd_error *err)
{
    atomic_int first_failed = -1;
    common s = { .trace = trace, .recipe = recipe, .url = url, .timeout = timeout, .first_failed = &first_failed };
    int rc = make_common(&s, err);
    worker *workers = calloc((size_t)s.world_size + 1, sizeof *workers);

    if (rc == PD_OK && workers == NULL) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc == PD_OK) rc = perform(workers, &s, verdicts, err);
    free(workers);
    free_common(&s);
    return rc;
}
