/* Tests paramctl reshard: a job that moves from one daemon to four, to two, to three, ends with the bits of a run on
 * one daemon that never did; a reshard that is killed leaves nothing or everything; and what cannot be moved is
 * refused. Each gradient depends on the weights of all parameters, so that weights of different steps would be seen. */
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test.h"
#include "daemon_process.h"
#include "rank_check.h"
#include "team.h"

/* Sanitizers make a step several times slower. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { EVERY = 6, MOVES = 2, KILLS = 2, BRIEF = 1 };
#else
enum { EVERY = 30, MOVES = 4, KILLS = 12, BRIEF = 0 };
#endif
enum { WORLD = 2, PARAMS = 7, FRAGMENTS = 3, MOST_DAEMONS = 4, MOST_MOVES = 4 };

/* A model and how it is trained. */
typedef struct recipe {
    const char *rules[6], *options[8];
    const char *setting; /* what an operator sets for step EVERY + 5, before the first move */
    int64_t side;        /* rows and columns of the two matrices that are cut */
    bool ranged;         /* each rank has half of every parameter */
    bool averaged;       /* one parameter is model state */
    bool syncs;          /* ranks wait until the last step is durable */
    bool fragments;      /* the model has FRAGMENTS fragments */
    bool shares;         /* each rank takes a share of the data in each step */
} recipe;

static const char *const names[PARAMS] = { "embed", "proj", "con#v", "scale", "mean", "long", "dense.bias" };
enum { MEAN = 4 };

static pd_shape shape_of(const recipe *how, size_t p)
{
    const pd_shape shapes[PARAMS] = { { 2, { how->side, how->side } },
                                      { 2, { how->side, how->side } },
                                      { 3, { 3, 7, 11 } },
                                      { 0, { 0 } },
                                      { 1, { 40 } },
                                      { 1, { 2000 } },
                                      { 1, { 50 } } };
    return shapes[p];
}

/* Daemons that train the job one after the other, and the directories with their state. */
typedef struct scene {
    const recipe *how;
    char root[64], urls[512];
    size_t n;
    test_daemon *daemon[MOST_DAEMONS];
    const float *initial; /* weights that a new job begins with at step EVERY; NULL: the test's own */
    const char *import;   /* file whose state is imported then */
} scene;

typedef struct rank {
    const scene *scene;
    int number;
    uint64_t from, to; /* the steps before and after the stretch that is trained */
    bool leaves;
    pthread_t thread;
    pd_client *client;
    pd_client_param params[PARAMS];
    int64_t elements[PARAMS];
    float *weights[PARAMS], *gradients[PARAMS], *whole;
    char failure[700];
} rank;

static bool check(rank *r, const char *what, int rc, const pd_error *err)
{
    return rank_check(r->failure, sizeof r->failure, r->number, what, rc, err);
}

static void make_params(rank *r)
{
    const recipe *how = r->scene->how;

    for (size_t p = 0; p < PARAMS; p++) {
        int64_t n;
        r->params[p] = (pd_client_param){ .name = names[p], .shape = shape_of(how, p) };
        r->params[p].model_state = how->averaged && p == MEAN;
        r->params[p].fragment = how->fragments ? (uint32_t)(p % FRAGMENTS) : 0;
        pd_shape_elements(&r->params[p].shape, &n);
        r->elements[p] = n;
        if (how->ranged) {
            r->params[p].ranged = true;
            r->params[p].start = n * r->number / WORLD;
            r->params[p].end = n * (r->number + 1) / WORLD;
            r->elements[p] = r->params[p].end - r->params[p].start;
        }
        r->weights[p] = calloc((size_t)r->elements[p] + 1, sizeof(float));
        r->gradients[p] = calloc((size_t)r->elements[p] + 1, sizeof(float));
    }
    r->whole = calloc((size_t)(how->side * how->side) + 2000, sizeof *r->whole);
}

/* Fills a rank's gradient, or its initial weights (step 0). `mixed`: a number made of all weights that the rank has. */
static void fill(rank *r, size_t p, uint64_t step, float mixed, float *to)
{
    int64_t n;

    pd_shape_elements(&r->params[p].shape, &n);
    fill_gradient(r->whole, n, step > 0 ? r->number : 0, step, p);
    for (int64_t i = 0; i < r->elements[p]; i++) to[i] = r->whole[r->params[p].start + i] + mixed / 64;
}

/* Takes the rank's share of the data. A job that has moved leases shares from 0 on. */
static void take_share(rank *r, uint64_t step)
{
    uint64_t share, expected = (step - r->from - 1) * WORLD + (uint64_t)r->number;
    pd_error err = { 0 };

    if (!check(r, "share", pd_client_share(r->client, &share, &err), &err)) return;
    if (r->scene->import != NULL && share != expected)
        snprintf(r->failure, sizeof r->failure, "rank %d: share %d in step %d, expected %d", r->number, (int)share,
                 (int)step, (int)expected);
}

static void fill_gradients(rank *r, uint64_t step)
{
    float mixed = 0;

    for (size_t p = 0; p < PARAMS; p++)
        if (r->elements[p] > 0) mixed += r->weights[p][step % (uint64_t)r->elements[p]] * (float)(p + 1);
    for (size_t p = 0; p < PARAMS; p++) fill(r, p, step, mixed, r->gradients[p]);
}

static void take_step(rank *r, uint64_t step)
{
    size_t fragments = r->scene->how->fragments ? FRAGMENTS : 1;
    pd_push_options options = { .note = &step, .note_bytes = sizeof step };
    pd_item items[FRAGMENTS][PARAMS];
    pd_ticket_id tickets[FRAGMENTS];
    pd_error err = { 0 };

    if (r->scene->how->shares) take_share(r, step);
    fill_gradients(r, step);
    for (size_t f = 0; r->failure[0] == '\0' && f < fragments; f++) {
        size_t n = 0;
        for (size_t p = 0; p < PARAMS; p++)
            if (r->params[p].fragment == f)
                items[f][n++] = (pd_item){ .param = p, .gradient = r->gradients[p], .weights = r->weights[p] };
        check(r, "push", pd_client_push_pull(r->client, items[f], n, &options, &tickets[f], &err), &err);
        options = (pd_push_options){ 0 };
    }
    for (size_t f = 0; r->failure[0] == '\0' && f < fragments; f++)
        check(r, "wait", pd_client_wait(r->client, tickets[f], 0, &err), &err);
}

/* Fills the weights that a rank begins with. */
static void fill_initial(rank *r)
{
    const float *at = r->scene->initial;

    for (size_t p = 0; p < PARAMS; p++) {
        int64_t n;
        fill(r, p, 0, 0, r->weights[p]);
        if (at == NULL) continue;
        pd_shape_elements(&r->params[p].shape, &n);
        memcpy(r->weights[p], at + r->params[p].start, (size_t)r->elements[p] * sizeof *at);
        at += n;
    }
}

/* Checks that the job is at step r->from, with the worker state of that step, unless it is a new one. */
static void check_begin(rank *r)
{
    uint64_t note = 0, of = 0, wanted = r->scene->import != NULL ? 0 : r->from;
    size_t bytes = 0;
    pd_error err = { 0 };

    if (!check(r, "note", pd_client_recall(r->client, &note, sizeof note, &bytes, &of, &err), &err)) return;
    if (pd_client_step(r->client, 0) != r->from || note != wanted || of != wanted)
        snprintf(r->failure, sizeof r->failure, "rank %d: begins at step %d with the note %d of step %d, expected %d",
                 r->number, (int)pd_client_step(r->client, 0), (int)note, (int)of, (int)r->from);
}

/* Opens a rank as a new process. */
static void begin(rank *r)
{
    const recipe *how = r->scene->how;
    const char *options[10] = { NULL };
    const pd_client_options open = { .urls = r->scene->urls,
                                     .job = "j",
                                     .rank = r->number,
                                     .world_size = WORLD,
                                     .options = options,
                                     .rules = how->rules,
                                     .shares = how->shares ? 1 : 0,
                                     .deadline = patient(40) };
    char start_step[32];
    size_t n = 0;
    pd_error err = { 0 };

    snprintf(start_step, sizeof start_step, "start_step=%d", EVERY);
    for (; how->options[n] != NULL; n++) options[n] = how->options[n];
    if (r->scene->import != NULL) options[n] = start_step;
    fill_initial(r);
    r->client = rank_begin(r->failure, sizeof r->failure, &open, r->params, PARAMS, r->weights, &err);
    if (r->client != NULL) check_begin(r);
}

/* Lets an operator do what belongs to the first step after r->from. */
static void operate(rank *r)
{
    const scene *s = r->scene;
    int status = 0;

    if (s->import != NULL)
        status = paramctl("-s '%s' import-state j %s/%s", s->urls, s->root, s->import);
    else if (r->from == 0 && s->how->setting != NULL)
        status = paramctl("-s '%s' set j %s --from %d", s->urls, s->how->setting, EVERY + 5);
    if (status != 0) snprintf(r->failure, sizeof r->failure, "%.600s", paramctl_output);
}

static void *run_rank(void *arg)
{
    rank *r = arg;
    pd_error err = { 0 };

    begin(r);
    if (r->number == 0 && r->failure[0] == '\0') operate(r);
    for (uint64_t step = r->from + 1; r->failure[0] == '\0' && step <= r->to; step++) take_step(r, step);
    if (r->failure[0] == '\0' && r->scene->how->syncs) check(r, "sync", pd_client_sync(r->client, r->to, &err), &err);
    if (r->failure[0] == '\0' && r->leaves) check(r, "leave", pd_client_leave(r->client, &err), &err);
    return NULL;
}

static void start_daemon(scene *s, const char *folder, size_t i)
{
    char state[160];
    const char *const flags[] = { state, "--chunk-bytes=64KiB", "--split-bytes=64KiB", "--step-timeout=30s", NULL };

    snprintf(state, sizeof state, "--state-dir=%s/%s/%zu", s->root, folder, i);
    s->daemon[i] = daemon_start(flags);
}

/* Starts n daemons with the state directories in a folder. */
static void start_daemons(scene *s, const char *folder, size_t n)
{
    size_t at = 0;

    s->n = n;
    for (size_t i = 0; i < n; i++) {
        start_daemon(s, folder, i);
        at += (size_t)snprintf(s->urls + at, sizeof s->urls - at, "%s%s", i > 0 ? " " : "", s->daemon[i]->url);
    }
}

/* Stops the daemons as an operator does, which makes a checkpoint of one step on all. */
static void stop_daemons(scene *s)
{
    if (paramctl("-s '%s' shutdown", s->urls) != 0) fail_msg("%s", paramctl_output);
    for (size_t i = 0; i < s->n; i++) daemon_stop(s->daemon[i], patient(20));
}

/* Trains from one step to another on the daemons that run. The weights of the whole model become `all`. */
static void train(scene *s, uint64_t from, uint64_t to, bool leaves, float *all)
{
    rank ranks[WORLD];
    bool well = true;

    for (int i = 0; i < WORLD; i++) {
        ranks[i] = (rank){ .scene = s, .number = i, .from = from, .to = to, .leaves = leaves };
        make_params(&ranks[i]);
    }
    for (int i = 0; i < WORLD; i++) pthread_create(&ranks[i].thread, NULL, run_rank, &ranks[i]);
    for (int i = 0; i < WORLD; i++) pthread_join(ranks[i].thread, NULL);
    for (int i = 0; i < WORLD; i++) {
        float *at = all;
        if (ranks[i].failure[0] != '\0') print_message("%s\n", ranks[i].failure);
        well = well && ranks[i].failure[0] == '\0';
        pd_client_close(ranks[i].client);
        for (size_t p = 0; p < PARAMS; p++) {
            int64_t n;
            pd_shape_elements(&ranks[i].params[p].shape, &n);
            memcpy(at + ranks[i].params[p].start, ranks[i].weights[p], (size_t)ranks[i].elements[p] * sizeof(float));
            at += n;
            free(ranks[i].weights[p]);
            free(ranks[i].gradients[p]);
        }
        free(ranks[i].whole);
    }
    assert_true(well);
}

static void begin_scene(scene *s, const recipe *how)
{
    *s = (scene){ .how = how };
    strcpy(s->root, "/tmp/paramd-reshard.XXXXXX");
    assert_non_null(mkdtemp(s->root));
}

static void end_scene(const scene *s)
{
    char command[120];

    snprintf(command, sizeof command, "rm -rf %s", s->root);
    assert_int_equal(system(command), 0);
}

static void make_folder(const scene *s, const char *name)
{
    char path[160];

    snprintf(path, sizeof path, "%s/%s", s->root, name);
    assert_int_equal(mkdir(path, 0700), 0);
}

/* Lists the state directories of n daemons in a folder. */
static const char *list_dirs(const scene *s, const char *folder, size_t n)
{
    static char text[1024];
    size_t at = 0;

    for (size_t i = 0; i < n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, " %s/%s/%zu", s->root, folder, i);
    return text;
}

static size_t model_elements(const recipe *how)
{
    size_t all = 0;

    for (size_t p = 0; p < PARAMS; p++) {
        pd_shape shape = shape_of(how, p);
        int64_t n;
        pd_shape_elements(&shape, &n);
        all += (size_t)n;
    }
    return all;
}

/* Trains a job that moves to `counts` daemons after each EVERY steps, and expects the bits of a run on one daemon. */
static void expect_same_bits(const recipe *how, const size_t counts[MOST_MOVES])
{
    size_t n = model_elements(how);
    float *moved = calloc(n, sizeof *moved), *quiet = calloc(n, sizeof *quiet);
    scene s;

    begin_scene(&s, how);
    make_folder(&s, "0");
    for (size_t move = 0; move < MOVES; move++) {
        char folder[24], next[24];
        snprintf(folder, sizeof folder, "%zu", move);
        snprintf(next, sizeof next, "%zu", move + 1);
        start_daemons(&s, folder, counts[move]);
        train(&s, move * EVERY, (move + 1) * EVERY, false, moved);
        stop_daemons(&s);
        if (move + 1 == MOVES) break;
        if (paramctl("reshard --shards %zu %s/%s %s", counts[move + 1], s.root, next,
                     list_dirs(&s, folder, counts[move])) != 0)
            fail_msg("%s", paramctl_output);
    }
    make_folder(&s, "quiet");
    start_daemons(&s, "quiet", 1);
    train(&s, 0, MOVES * EVERY, true, quiet);
    for (size_t i = 0; i < s.n; i++) daemon_stop(s.daemon[i], patient(20));
    for (size_t i = 0; i < n; i++)
        if (memcmp(&moved[i], &quiet[i], sizeof *moved) != 0)
            fail_msg("weight %zu of %zu is %a, %a in a run that has not moved", i, n, (double)moved[i],
                     (double)quiet[i]);
    end_scene(&s);
    free(moved);
    free(quiet);
}

/* Of adamw and shampoo, matrices are cut. Shampoo's roots of steps 30, 60 and 90 are pending when the job moves. */
static const recipe many = {
    .rules = { "embed adamw lr=0.01",
               "proj shampoo lr=0.01 max_preconditioner_dim=64 precondition_frequency=10 "
               "root_delay=5 start_preconditioning_step=10",
               "con* kron learning_rate=0.01 preconditioner_update_probability=0.5", "* sgd lr=0.01 momentum=0.9" },
    .options = { "split_bytes=64KiB", "durability=checkpoint", "clip_global_norm=0.5", "checkpoint_every=1000" },
    .setting = "embed lr=0.02",
    .side = 512,
    .averaged = true
};

TEST(a_job_on_one_four_two_and_three_daemons_has_the_bits_of_one)
{
    expect_same_bits(&many, (const size_t[MOST_MOVES]){ 1, 4, 2, 3 });
}

/* Trains a job on some daemons, exports it, and goes on with the file on other ones. Expects the bits of a run that has
 * not moved. */
static void expect_same_bits_after_import(const recipe *kind, size_t from, size_t to)
{
    recipe how = *kind;
    size_t n = model_elements(&how);
    float *moved, *quiet;
    scene s;

    if (BRIEF && from != 2) skip();
    moved = calloc(n, sizeof *moved);
    quiet = calloc(n, sizeof *quiet);
    how.setting = NULL;
    begin_scene(&s, &how);
    make_folder(&s, "0");
    make_folder(&s, "1");
    start_daemons(&s, "0", from);
    train(&s, 0, EVERY, false, moved);
    if (paramctl("-s '%s' export --state j %s/file", s.urls, s.root) != 0) fail_msg("%s", paramctl_output);
    train(&s, EVERY, EVERY + 8, false, quiet);
    stop_daemons(&s);
    start_daemons(&s, "1", to);
    s.initial = moved;
    s.import = "file";
    train(&s, EVERY, EVERY + 8, false, moved);
    stop_daemons(&s);
    for (size_t i = 0; i < n; i++)
        if (memcmp(&moved[i], &quiet[i], sizeof *moved) != 0)
            fail_msg("weight %zu of %zu is %a, %a in a run that has not moved", i, n, (double)moved[i],
                     (double)quiet[i]);
    end_scene(&s);
    free(moved);
    free(quiet);
}

HOLDS(an_export_of_two_daemons_goes_on_on_three, expect_same_bits_after_import(&many, 2, 3));
HOLDS(an_export_of_one_daemon_goes_on_on_two, expect_same_bits_after_import(&many, 1, 2));
HOLDS(an_export_of_three_daemons_goes_on_on_one, expect_same_bits_after_import(&many, 3, 1));

/* Jobs whose sets of ranks are open, which paramctl reshard refuses. */
static const recipe quorum = { .rules = { "embed adamw lr=0.01",
                                          "proj scalable_shampoo learning_rate=0.01 block_size=64 "
                                          "preconditioning_compute_steps=10 root_delay=5",
                                          "con* kron learning_rate=0.01 preconditioner_update_probability=0.5",
                                          "* sgd lr=0.01 momentum=0.9" },
                               .options = { "quorum=2", "durability=checkpoint", "checkpoint_every=1000" },
                               .side = 200,
                               .averaged = true,
                               .fragments = true };
static const recipe leased = { .rules = { "* adamw lr=0.01" },
                               .options = { "on_lost_worker=shrink", "durability=log", "checkpoint_every=1000" },
                               .side = 40,
                               .fragments = true,
                               .shares = true };

HOLDS(an_export_of_a_job_with_a_quorum_goes_on_on_three_daemons, expect_same_bits_after_import(&quorum, 1, 3);
      expect_same_bits_after_import(&quorum, 3, 1));
HOLDS(an_export_of_a_job_that_shrinks_and_leases_shares_goes_on_on_three_daemons,
      expect_same_bits_after_import(&leased, 1, 3));

/* Half-precision state, and ranges of ranks; a log, which ends at each shutdown. */
static const recipe halves = { .rules = { "proj shampoo lr=0.01 max_preconditioner_dim=128 precondition_frequency=5 "
                                          "momentum=0.9 precision_config.momentum_dtype=bfloat16 "
                                          "precision_config.factor_matrix_dtype=bfloat16 use_merge_dims=no",
                                          "embed nadam lr=0.01", "con* lamb lr=0.01", "* asgd lr=0.01" },
                               .options = { "split_bytes=64KiB", "durability=log", "nonfinite_scope=job" },
                               .side = 512,
                               .ranged = true };

TEST(halves_of_state_move_to_two_three_and_one_daemons)
{
    expect_same_bits(&halves, (const size_t[MOST_MOVES]){ 2, 3, 1, 2 });
}

/* ---- interrupted, refused ---- */

/* A small job on one daemon, which has taken two steps and has stopped. */
static const recipe small = { .rules = { "* adamw lr=0.01" },
                              .options = { "split_bytes=64KiB", "durability=log", "nonfinite_scope=job",
                                           "checkpoint_every=1000" },
                              .side = 512,
                              .syncs = true };

static void make_small(scene *s)
{
    float *weights = calloc(model_elements(&small), sizeof *weights);

    begin_scene(s, &small);
    make_folder(s, "0");
    start_daemons(s, "0", 1);
    train(s, 0, 2, false, weights);
    free(weights);
}

/* Runs paramctl reshard to 3 daemons, and kills it after some time. Returns whether it was killed. */
static bool reshard_for(const scene *s, double seconds)
{
    char program[256], out[160], from[160];
    int status;
    pid_t child;

    snprintf(program, sizeof program, "%s/paramctl-reshard", getenv("PARAMD_BIN"));
    snprintf(out, sizeof out, "%s/out", s->root);
    snprintf(from, sizeof from, "%s/0/0", s->root);
    if ((child = fork()) == 0) {
        freopen("/dev/null", "w", stdout);
        execl(program, program, "--shards=3", out, from, (char *)NULL);
        _exit(126);
    }
    sleep_for(seconds);
    kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    if (WIFEXITED(status)) assert_int_equal(WEXITSTATUS(status), 0);
    return WIFSIGNALED(status);
}

TEST(a_reshard_that_is_killed_leaves_everything_or_nothing)
{
    int killed = 0, parts = 0;
    double begun, whole;
    struct stat about;
    char path[160];
    scene s;

    make_small(&s);
    stop_daemons(&s);
    begun = seconds_now();
    assert_int_equal(paramctl("reshard --shards 3 %s/first %s", s.root, list_dirs(&s, "0", 1)), 0);
    whole = seconds_now() - begun;
    for (int i = 0; i < KILLS; i++) {
        killed += reshard_for(&s, whole * i / 10 + (BRIEF ? whole / 4 : 0));
        snprintf(path, sizeof path, "%s/out.part", s.root);
        parts += stat(path, &about) == 0;
        snprintf(path, sizeof path, "%s/out", s.root);
        if (stat(path, &about) == 0)
            for (int k = 0; k < 3; k++) {
                assert_int_equal(paramctl("verify %s/out/%d", s.root, k), 0);
                assert_says("1 checkpoints, 0 damaged");
            }
        assert_int_equal(paramctl_shell("rm -rf %s/out %s/out.part", s.root, s.root), 0);
    }
    assert_int_not_equal(killed, 0);
    assert_int_not_equal(parts, 0);
    end_scene(&s);
}

static void expect_refused(const char *says, const char *arguments, const scene *s)
{
    assert_int_equal(paramctl_shell("cd %s && $paramctl reshard %s", s->root, arguments), 1);
    assert_says(says);
    assert_int_equal(paramctl_shell("test -e %s/out", s->root), 1);
}

TEST(what_cannot_be_moved_is_refused_in_words)
{
    json_t *json, *job;
    scene s;

    make_small(&s);
    expect_refused("in use by another process", "--shards 2 out 0/0", &s);
    daemon_kill(s.daemon[0]);
    expect_refused("the log of job j goes to step 2, its checkpoint to 0", "--shards 2 out 0/0", &s);
    assert_int_equal(paramctl("reshard --shards 2 --drop-log --json %s/two %s", s.root, list_dirs(&s, "0", 1)), 0);
    json = parsed();
    job = json_array_get(json_object_get(json, "jobs"), 0);
    assert_int_equal(json_integer_value(json_object_get(job, "dropped")), 2);
    assert_int_equal(json_integer_value(json_object_get(job, "step")), 0);
    json_decref(json);
    start_daemons(&s, "0", 1);
    stop_daemons(&s);
    expect_refused("0/0 has no checkpoint of step 99 of job j; its newest are of 2", "--shards 2 --step 99 out 0/0",
                   &s);
    expect_refused("0/0 has no checkpoint of job k", "--shards 2 --job k out 0/0", &s);
    expect_refused("0/0 and 0/../0/0 are the same directory", "--shards 3 out 0/0 0/../0/0", &s);
    expect_refused("two exists: choose another name", "--shards 2 two/ 0/0", &s);
    expect_refused("two/1 has shard 1 of 2 of job j: give the directories of all 2", "--shards 4 out two/1", &s);
    expect_refused("0/0 has shard 0 of 1 of job j", "--shards 4 --drop-log out two/1 0/0", &s);
    assert_int_equal(paramctl_shell("rm -r %s/0/0/j-*/step-*00", s.root), 0);
    expect_refused("no checkpoint of the same step (two/1: 0; 0/0: 2)", "--shards 4 out two/1 0/0", &s);
    assert_int_equal(paramctl_shell("cd %s && $paramctl reshard --shards 1 out 0/0", s.root), 2);
    assert_int_equal(paramctl_shell("cd %s && mkdir out.part && chmod 0700 out.part", s.root), 0);
    expect_refused("out.part exists: another reshard writes it", "--shards 2 out 0/0", &s);
    assert_int_equal(paramctl_shell("cd %s && rmdir out.part && cd 0/0/j-*/step-*2 && "
                                    "printf x | dd of=weights.safetensors bs=1 seek=9000 conv=notrunc",
                                    s.root),
                     0);
    expect_refused("weights.safetensors: its XXH3 is", "--shards 2 out 0/0", &s);
    assert_int_equal(paramctl_shell("test -e %s/out.part", s.root), 1);
    end_scene(&s);
}
