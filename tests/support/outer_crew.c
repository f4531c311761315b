/* outer_crew.c - workers that train with pd_diloco against a real daemon. */
#include "outer_crew.h"

#include <pthread.h>
#include <stdlib.h>

#include "test.h"

static pd_error err;

static void must(int rc)
{
    if (rc != PD_OK) fail_msg("%s", err.text);
}

static void fill_param(const outer_job *job, int rank, int p, pd_client_param *param)
{
    static const char *const names[OUTER_PARAMS] = { "a", "b", "c", "d" };
    bool last = p == job->params - 1;

    *param = (pd_client_param){ .name = names[p],
                                .shape = { 1, { OUTER_N } },
                                .push_dtype = job->push,
                                .pull_dtype = job->pull,
                                .model_state = job->state && last,
                                .fragment = job->fragments > 0 ? (uint32_t)(p % job->fragments) : 0 };
    if (!job->split) return;
    param->ranged = true;
    param->end = (rank == 0) != last ? OUTER_N : 0;
}

void outer_open(outer_crew *crew, int rank)
{
    outer_worker *w = &crew->workers[rank];
    const outer_job *job = &crew->job;
    pd_client_param params[OUTER_PARAMS];
    uint16_t half[OUTER_PARAMS][OUTER_N] = { 0 };
    void *weights[OUTER_PARAMS];
    const pd_client_options how = { .urls = crew->urls,
                                    .job = "o",
                                    .rank = rank < job->world ? rank : PD_ANY_RANK,
                                    .world_size = job->world,
                                    .options = job->options,
                                    .rules = (const char *[]){ job->rule != NULL ? job->rule : "* sgd lr=1", NULL },
                                    .deadline = patient(20),
                                    .slice = job->slice,
                                    .resume = PD_RESUME_YES,
                                    .notice = job->notice,
                                    .notice_arg = job->notice_arg,
                                    .quiet = job->notice == NULL };

    *w = (outer_worker){ 0 };
    for (int p = 0; p < job->params; p++) {
        fill_param(job, rank, p, &params[p]);
        w->weights[p] = w->all[p];
        weights[p] = job->pull == PD_F32 || job->pull == 0 ? (void *)w->all[p] : half[p];
    }
    must(pd_client_open(&w->client, &how, &err));
    must(pd_client_declare(w->client, params, (size_t)job->params, &err));
    must(pd_client_init(w->client, weights, &err));
}

void outer_make(outer_crew *crew, int rank)
{
    outer_worker *w = &crew->workers[rank];

    must(pd_diloco_make(&w->outer, w->client, w->weights, &crew->job.how, &err));
}

static test_daemon *start(const outer_crew *crew, test_daemon *before, const char *folder)
{
    char listen[64], state[100];
    const char *const flags[] = { listen, crew->root[0] != '\0' ? state : NULL, NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", before != NULL ? before->port : 0);
    snprintf(state, sizeof state, "--state-dir=%s/%s", crew->root, folder);
    if (before != NULL) daemon_kill(before);
    return daemon_start(flags);
}

void outer_restart_daemon(outer_crew *crew)
{
    crew->daemon = start(crew, crew->daemon, "state");
}

void outer_restart_second(outer_crew *crew)
{
    crew->second = start(crew, crew->second, "second");
}

/* A rank that sends no weights waits in pd_client_init for those that do, so ranks of a split job begin together. */
typedef struct opening {
    outer_crew *crew;
    int rank;
} opening;

static void *open_one(void *arg)
{
    const opening *o = arg;

    outer_open(o->crew, o->rank);
    return NULL;
}

void outer_begin(outer_crew *crew, const outer_job *job, bool durable)
{
    opening all[OUTER_MOST];
    pthread_t threads[OUTER_MOST];

    memset(crew, 0, sizeof *crew);
    crew->job = *job;
    if (durable) {
        strcpy(crew->root, "/tmp/paramd-outer.XXXXXX");
        assert_non_null(mkdtemp(crew->root));
    }
    outer_restart_daemon(crew);
    if (job->shards) outer_restart_second(crew);
    snprintf(crew->urls, sizeof crew->urls, "%s%s%s", crew->daemon->url, job->shards ? " " : "",
             job->shards ? crew->second->url : "");
    for (int r = 0; r < job->world; r++) {
        all[r] = (opening){ crew, r };
        assert_int_equal(pthread_create(&threads[r], NULL, open_one, &all[r]), 0);
    }
    for (int r = 0; r < job->world; r++) pthread_join(threads[r], NULL);
    for (int r = 0; r < job->world; r++) outer_make(crew, r);
}

void outer_end(outer_crew *crew)
{
    char command[120];

    for (int r = 0; r < OUTER_MOST; r++) {
        pd_diloco_free(crew->workers[r].outer);
        pd_client_close(crew->workers[r].client);
    }
    if (crew->root[0] == '\0') {
        daemon_end(crew->daemon);
        if (crew->second != NULL) daemon_end(crew->second);
        return;
    }
    daemon_kill(crew->daemon); /* it would complain of steps that are in no checkpoint */
    if (crew->second != NULL) daemon_kill(crew->second);
    snprintf(command, sizeof command, "rm -rf %s", crew->root);
    assert_int_equal(system(command), 0);
}

pd_diloco_due outer_train(outer_worker *w, float by)
{
    for (int p = 0; p < OUTER_PARAMS; p++)
        for (int i = 0; i < OUTER_N; i++) w->all[p][i] += by;
    return pd_diloco_inner_step(w->outer, 1);
}

void outer_send(outer_worker *w, int64_t fragment)
{
    must(pd_diloco_send(w->outer, fragment, w->weights, &err));
}

void outer_take(outer_worker *w, int64_t fragment)
{
    must(pd_diloco_take(w->outer, fragment, w->weights, &err));
}

void outer_expect(const outer_worker *w, size_t param, float local, float global)
{
    for (int i = 0; i < OUTER_N; i++) {
        assert_float_equal(w->all[param][i], local, 0);
        assert_float_equal(pd_diloco_global(w->outer, param)[i], global, 0);
    }
}
