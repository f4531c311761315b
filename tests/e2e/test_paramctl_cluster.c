/* Tests paramctl with a list of daemons: what it merges, what it writes to one file, and what it says of a daemon that
 * does not answer. The workers here share a model between two daemons by hand: each has some of the parameters, and the
 * rows of the largest one. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"
#include "safetensors.h"

enum { ROWS = 8, COLUMNS = 6, HALF = ROWS / 2 * COLUMNS, MOST = ROWS * COLUMNS, SHARDS = 2, STEPS = 7 };

/* A parameter that a daemon has: rows of the whole one from `first` on. */
typedef struct piece {
    const char *name;
    pd_shape shape;
    size_t first;
    int kind; /* makes gradients of different parameters differ */
} piece;

static const piece first_half[] = { { "body#0", { 2, { ROWS / 2, COLUMNS } }, 0, 0 },
                                    { "bias", { 1, { COLUMNS } }, 0, 1 } };
static const piece second_half[] = { { "body#1", { 2, { ROWS / 2, COLUMNS } }, HALF, 0 },
                                     { "head", { 2, { 2, COLUMNS } }, 0, 2 } };

/* A daemon, and a job that it has. */
typedef struct part {
    test_daemon *daemon;
    pd_client *client;
    const piece *pieces;
    size_t n;
} part;

typedef struct fixture {
    part one, shard[SHARDS]; /* one: the daemon that has the whole job */
    char list[200];          /* addresses of the shards */
    char folder[64];
} fixture;

static size_t elements_of(const piece *p)
{
    size_t n = 1;

    for (int d = 0; d < p->shape.rank; d++) n *= (size_t)p->shape.dim[d];
    return n;
}

static void fill(float *out, const piece *p, int step)
{
    for (size_t i = 0; i < elements_of(p); i++)
        out[i] = (float)((int)((p->first + i) * 7 + (size_t)p->kind * 5 + (size_t)step * 11) % 23 - 11) / 16;
}

static void join(part *p, const char *job, const char *rule, uint32_t rank, uint32_t world)
{
    float weights[3][MOST];
    void *at[3] = { weights[0], weights[1], weights[2] };
    pd_client_param params[3] = { 0 };
    pd_client_options options = { .urls = p->daemon->url,
                                  .job = job,
                                  .rank = rank,
                                  .world_size = world,
                                  .rules = (const char *const[]){ rule, NULL },
                                  .deadline = patient(20) };
    pd_error err = { 0 };

    for (size_t i = 0; i < p->n; i++) {
        params[i] = (pd_client_param){ .name = p->pieces[i].name, .shape = p->pieces[i].shape };
        fill(weights[i], &p->pieces[i], 0);
    }
    if (pd_client_open(&p->client, &options, &err) != PD_OK ||
        pd_client_declare(p->client, params, p->n, &err) != PD_OK ||
        (rank == 0 && pd_client_init(p->client, at, &err) != PD_OK))
        fail_msg("%s", err.text);
}

static void step(part *p, int number)
{
    float gradients[3][MOST];
    pd_item items[3];
    pd_push_options options = { 0 };
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (uint32_t i = 0; i < p->n; i++) {
        fill(gradients[i], &p->pieces[i], number);
        items[i] = (pd_item){ .param = i, .gradient = gradients[i] };
    }
    if (pd_client_push(p->client, items, p->n, &options, &ticket, &err) != PD_OK ||
        pd_client_wait(p->client, ticket, patient(20), &err) != PD_OK)
        fail_msg("%s", err.text);
}

static void leave(part *p)
{
    if (p->client == NULL) return;
    pd_client_leave(p->client, NULL);
    pd_client_close(p->client);
    p->client = NULL;
}

static void set_up(fixture *f)
{
    f->one = (part){ daemon_start(NULL), NULL, NULL, 0 };
    f->shard[0] = (part){ daemon_start(NULL), NULL, first_half, 2 };
    f->shard[1] = (part){ daemon_start(NULL), NULL, second_half, 2 };
    snprintf(f->list, sizeof f->list, "%s %s", f->shard[0].daemon->url, f->shard[1].daemon->url);
    snprintf(f->folder, sizeof f->folder, "/tmp/paramd-cluster-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    paramctl_ask(f->list);
}

static void tear_down(fixture *f)
{
    char command[128];

    leave(&f->one);
    daemon_end(f->one.daemon);
    for (int i = 0; i < SHARDS; i++) {
        if (f->shard[i].daemon == NULL || !daemon_lives(f->shard[i].daemon)) continue;
        leave(&f->shard[i]);
        daemon_end(f->shard[i].daemon);
    }
    snprintf(command, sizeof command, "rm -rf %s", f->folder);
    assert_int_equal(system(command), 0);
}

FIXTURE(fixture, set_up, tear_down);

/* Joins the job on all shards, and takes steps. */
static void train(fixture *f, const char *job, const char *rule, int steps)
{
    for (int i = 0; i < SHARDS; i++) {
        join(&f->shard[i], job, rule, 0, 1);
        for (int s = 1; s <= steps; s++) step(&f->shard[i], s);
    }
}

static json_t *entry_of(json_t *answer, const char *list, const char *key, const char *value)
{
    json_t *entry;
    size_t i;

    json_array_foreach(json_object_get(answer, list), i,
                       entry) if (strcmp(json_string_value(json_object_get(entry, key)), value) == 0) return entry;
    fail_msg("%s has no %s", list, value);
    return NULL;
}

static void expect_number(const json_t *entry, const char *key, json_int_t value)
{
    assert_int_equal(json_integer_value(json_object_get(entry, key)), value);
}

TEST(the_bytes_of_a_job_add_up_and_its_steps_span_all_daemons, fixture *f)
{
    json_t *answer, *job;

    train(f, "j", "* adam lr=0.01", 3);
    step(&f->shard[1], 4);
    assert_int_equal(paramctl("jobs --json"), 0);
    answer = parsed();
    assert_int_equal(json_array_size(json_object_get(answer, "jobs")), 1);
    job = entry_of(answer, "jobs", "name", "j");
    expect_number(job, "params", 4);
    expect_number(job, "elements", ROWS * COLUMNS + COLUMNS + 2 * COLUMNS);
    expect_number(job, "step_least", 3);
    expect_number(job, "step_most", 4);
    expect_number(job, "world_size", 1);
    expect_number(job, "connected", 1);
    json_decref(answer);
    assert_int_equal(paramctl("jobs"), 0);
    assert_says(" 3-4 ");
}

TEST(parameters_are_sorted_by_name_and_have_their_shard, fixture *f)
{
    json_t *answer;

    train(f, "j", "* adam lr=0.01", 1);
    assert_int_equal(paramctl("params j --json"), 0);
    answer = parsed();
    expect_number(entry_of(answer, "params", "name", "body#0"), "shard", 0);
    expect_number(entry_of(answer, "params", "name", "body#1"), "shard", 1);
    expect_number(entry_of(answer, "params", "name", "head"), "shard", 1);
    assert_string_equal(
        json_string_value(json_object_get(json_array_get(json_object_get(answer, "params"), 0), "name")), "bias");
    json_decref(answer);
    assert_int_equal(paramctl("params j"), 0);
    assert_says("SHARD\n");
    assert_int_equal(paramctl("state j --json"), 0);
    answer = parsed();
    expect_number(entry_of(answer, "state", "param", "body#1"), "shard", 1);
    json_decref(answer);
    assert_int_equal(paramctl("params j nothing"), 1);
    assert_says("no parameter matches 'nothing'");
}

TEST(a_worker_has_its_worst_state, fixture *f)
{
    json_t *answer, *worker;

    for (int i = 0; i < SHARDS; i++) join(&f->shard[i], "j", "* sgd lr=0.1", 0, 2);
    leave(&f->shard[1]);
    assert_int_equal(paramctl("workers j --json"), 0);
    answer = parsed();
    assert_int_equal(json_array_size(json_object_get(answer, "workers")), 2);
    worker = json_array_get(json_object_get(answer, "workers"), 0);
    expect_number(worker, "rank", 0);
    assert_string_equal(json_string_value(json_object_get(worker, "state")), "left");
    json_decref(answer);
    assert_int_equal(paramctl("rounds j"), 0);
    assert_int_equal(paramctl("members j"), 0);
    assert_int_equal(paramctl("top"), 0);
    assert_says("2 of 2 daemons, ");
    assert_int_equal(paramctl("status"), 0);
    assert_says("shard 1");
    assert_int_equal(paramctl("ping"), 0);
    assert_says(f->shard[1].daemon->url);
}

/* Compares two files of the fixture's folder. */
static void expect_same(const fixture *f, const char *a, const char *b)
{
    assert_int_equal(paramctl_shell("cmp %s/%s %s/%s", f->folder, a, f->folder, b), 0);
}

/* Exports the job "j" of one daemon, or of the list, to a file of the fixture's folder. */
static void export_of(const fixture *f, const char *urls, const char *flags, const char *file)
{
    paramctl_ask(urls);
    if (paramctl("export j %s/%s %s", f->folder, file, flags) != 0) fail_msg("%s", paramctl_output);
    paramctl_ask(f->list);
}

/* A file of the fixture's folder in memory. */
typedef struct content {
    uint8_t bytes[32 * 1024 * 1024];
    size_t n;
    pd_safetensors *tensors;
} content;

static void read_content(content *out, const fixture *f, const char *name)
{
    char path[160];
    FILE *file;
    pd_error err = { 0 };

    snprintf(path, sizeof path, "%s/%s", f->folder, name);
    assert_non_null(file = fopen(path, "r"));
    out->n = fread(out->bytes, 1, sizeof out->bytes, file);
    fclose(file);
    if (pd_safetensors_read(&out->tensors, out->bytes, out->n, &err) != PD_OK) fail_msg("%s: %s", path, err.text);
}

/* Compares two files of optimizer state with pending roots. Of each root, the milliseconds that it took may differ. */
static void expect_same_roots(const fixture *f, const char *a, const char *b)
{
    enum { MS = 6 };
    static content one, two;
    const pd_st_tensor *at;
    size_t n;

    read_content(&one, f, a);
    read_content(&two, f, b);
    assert_int_equal(one.n, two.n);
    at = pd_safetensors_tensors(one.tensors, &n);
    for (size_t i = 0; i < n; i++) {
        const pd_st_tensor *same = pd_safetensors_find(two.tensors, at[i].name);
        uint8_t *x = (uint8_t *)pd_safetensors_data(one.tensors, &at[i]), *y;
        if (same == NULL || same->bytes != at[i].bytes) fail_msg("%s is in one file only, or differs", at[i].name);
        y = (uint8_t *)pd_safetensors_data(two.tensors, same);
        if (strstr(at[i].name, "pending_root") != NULL)
            memcpy(x + MS * sizeof(double), y + MS * sizeof(double), sizeof(double));
        if (memcmp(x, y, at[i].bytes) != 0) fail_msg("%s differs", at[i].name);
    }
    pd_safetensors_free(one.tensors);
    pd_safetensors_free(two.tensors);
}

TEST(a_daemon_that_does_not_answer_is_a_line_and_a_status, fixture *f)
{
    char says[100];

    train(f, "j", "* adam lr=0.01", 2);
    snprintf(says, sizeof says, "paramctl: shard 1 (%s): ", f->shard[1].daemon->url);
    pd_client_close(f->shard[1].client);
    f->shard[1].client = NULL;
    daemon_kill(f->shard[1].daemon);
    f->shard[1].daemon = NULL;
    assert_int_equal(paramctl("jobs"), 3);
    assert_says(says);
    assert_says("j    adam");
    assert_int_equal(paramctl("params j"), 3);
    assert_says("body#0");
    assert_int_equal(paramctl("export j %s/none", f->folder), 3); /* half a model is no export */
    assert_says("shard 1 (");
    assert_int_equal(paramctl("set j '*' lr=0.5"), 3);
    assert_int_equal(paramctl("settings j"), 3);
    assert_says("nothing is set");
    assert_int_equal(paramctl("ping -q"), 3);
    assert_string_equal(paramctl_output, "");
}

TEST(a_daemon_that_is_stopped_is_passed_over_for_the_next_address, fixture *f)
{
    int status;

    daemon_freeze(f->shard[0].daemon);
    status = paramctl("ping --server %s,%s --timeout %g", f->shard[0].daemon->url, f->shard[1].daemon->url, patient(6));
    daemon_thaw(f->shard[0].daemon);
    assert_int_equal(status, 0);
    assert_says("paramd");
}

TEST(values_hold_from_one_step_on_all_daemons, fixture *f)
{
    json_t *answer, *setting;
    json_int_t from = 0;
    size_t i;

    train(f, "j", "* adam lr=0.01", 2);
    step(&f->shard[1], 3);
    assert_int_equal(paramctl("set j '*' lr=0.5"), 0);
    assert_int_equal(paramctl("settings j --json"), 0);
    answer = parsed();
    assert_int_equal(json_array_size(json_object_get(answer, "settings")), 4);
    json_array_foreach(json_object_get(answer, "settings"), i, setting)
    {
        if (i == 0) from = json_integer_value(json_object_get(setting, "from"));
        expect_number(setting, "from", from);
    }
    assert_true(from >= 5);
    json_decref(answer);
    assert_int_equal(paramctl("set j head lr=0.25"), 0); /* one daemon has the parameter */
    assert_int_equal(paramctl("set j nothing lr=0.25"), 1);
    assert_int_equal(paramctl("reset-state j 'body*'"), 0);
}

enum { TALL = 4096, WIDE = 64, ELEMENTS = TALL * WIDE };

/* A worker of a job that daemons of a list share: its client library spreads the model. */
static pd_client *join_list(const char *urls, const char *rule)
{
    static float weights[ELEMENTS + WIDE];
    pd_client_param params[] = { { .name = "wte#w", .shape = { 2, { TALL, WIDE } } },
                                 { .name = "bias", .shape = { 1, { WIDE } } } };
    void *at[] = { weights, weights + ELEMENTS };
    pd_client_options options = { .urls = urls,
                                  .job = "j",
                                  .world_size = 1,
                                  .rules = (const char *const[]){ rule, NULL },
                                  .options = (const char *const[]){ "nonfinite_scope=job", "split_bytes=256KiB", NULL },
                                  .deadline = patient(20) };
    pd_client *client;
    pd_error err = { 0 };

    for (size_t i = 0; i < ELEMENTS + WIDE; i++) weights[i] = (float)(i % 37) / 37;
    if (pd_client_open(&client, &options, &err) != PD_OK || pd_client_declare(client, params, 2, &err) != PD_OK ||
        pd_client_init(client, at, &err) != PD_OK)
        fail_msg("%s: %s", urls, err.text);
    return client;
}

static void step_list(pd_client *client, int number)
{
    static float gradient[ELEMENTS + WIDE];
    pd_item items[] = { { .param = 0, .gradient = gradient }, { .param = 1, .gradient = gradient + ELEMENTS } };
    pd_push_options options = { 0 };
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (size_t i = 0; i < ELEMENTS + WIDE; i++)
        gradient[i] = (float)((int)(i * 7 + (size_t)number * 11) % 23 - 11) / 16;
    if (pd_client_push(client, items, 2, &options, &ticket, &err) != PD_OK ||
        pd_client_wait(client, ticket, patient(20), &err) != PD_OK)
        fail_msg("%s", err.text);
}

/* Trains a job on one daemon or on a list. */
static pd_client *train_list(const char *urls, const char *rule)
{
    pd_client *client = join_list(urls, rule);

    for (int s = 1; s <= STEPS; s++) step_list(client, s);
    return client;
}

TEST(a_job_that_the_client_library_spreads_is_one_job, fixture *f)
{
    pd_client *many = train_list(f->list, "* adamw lr=0.01"), *one;
    json_t *answer, *job;

    assert_int_equal(paramctl("params j --json"), 0);
    answer = parsed();
    assert_int_equal(json_array_size(json_object_get(answer, "params")),
                     5); /* four portions, and one whole parameter */
    assert_int_not_equal(json_integer_value(json_object_get(entry_of(answer, "params", "name", "wte##w#0"), "shard")),
                         json_integer_value(json_object_get(entry_of(answer, "params", "name", "wte##w#1"), "shard")));
    json_decref(answer);
    assert_int_equal(paramctl("jobs --json"), 0);
    answer = parsed();
    job = entry_of(answer, "jobs", "name", "j");
    expect_number(job, "step_least", STEPS);
    expect_number(job, "step_most", STEPS);
    expect_number(job, "elements", ELEMENTS + WIDE);
    json_decref(answer);
    assert_int_equal(paramctl("shards j"), 0); /* they agree */
    one = train_list(f->one.daemon->url, "* adamw lr=0.01");
    export_of(f, f->one.daemon->url, "--state", "one.state");
    export_of(f, f->list, "--state", "two.state");
    expect_same(f, "one.state", "two.state");
    assert_int_equal(paramctl("reset-state j '*'"), 0);
    assert_int_equal(paramctl("import-state j %s/one.state", f->folder), 0);
    export_of(f, f->list, "--state --force", "two.state");
    expect_same(f, "one.state", "two.state");
    pd_client_close(one);
    pd_client_close(many);
}

TEST(an_export_joins_the_roots_of_real_portions, fixture *f)
{
    static const char rule[] = "* shampoo lr=0.01 max_preconditioner_dim=64 precondition_frequency=3 "
                               "start_preconditioning_step=3 root_delay=3";
    pd_client *many = train_list(f->list, rule), *one = train_list(f->one.daemon->url, rule);

    export_of(f, f->one.daemon->url, "", "one");
    export_of(f, f->list, "", "two");
    expect_same(f, "one", "two");
    export_of(f, f->one.daemon->url, "--state", "one.state");
    export_of(f, f->list, "--state", "two.state");
    assert_int_equal(paramctl_shell("grep -q wte#w.pending_root.0 %s/two.state", f->folder), 0);
    expect_same_roots(f, "one.state", "two.state");
    assert_int_equal(paramctl("reset-state j '*'"), 0);
    assert_int_equal(paramctl("import-state j %s/two.state", f->folder), 0);
    export_of(f, f->list, "--state", "after.state");
    expect_same(f, "two.state", "after.state");
    pd_client_close(one);
    pd_client_close(many);
}

TEST(the_shards_of_a_list_are_compared, fixture *f)
{
    json_t *answer;

    train(f, "j", "* adam lr=0.01", 2);
    for (int s = 3; s <= 6; s++) step(&f->shard[0], s);
    assert_int_equal(paramctl("shards j"), 1);
    assert_says("OF MEAN");
    assert_says(f->shard[1].daemon->url);
    assert_says("job j: shard 1 has the job alone: it is no part of a cluster");
    assert_says("job j: shard 1 is 4 steps behind: it waits for nobody");
    assert_int_equal(paramctl("shards --json"), 1);
    answer = parsed();
    assert_int_equal(json_array_size(json_object_get(answer, "shards")), SHARDS);
    assert_int_equal(json_array_size(json_object_get(answer, "problems")), SHARDS + 1);
    json_decref(answer);
    paramctl_ask(f->shard[0].daemon->url);
    assert_int_equal(paramctl("shards j"), 0); /* one daemon has nothing to agree about */
    assert_int_equal(paramctl("shards none"), 1);
    paramctl_ask(f->list);
}

TEST(a_job_that_no_daemon_has_is_one_error, fixture *f)
{
    (void)f;
    assert_int_equal(paramctl("params none"), 1);
    assert_string_equal(paramctl_output, "paramctl: there is no job none\n");
    assert_int_equal(paramctl("drop none"), 1);
    assert_int_equal(paramctl("jobs"), 0);
    assert_string_equal(paramctl_output, "no jobs\n");
}

TEST(all_daemons_drain_and_shut_down, fixture *f)
{
    train(f, "j", "* adam lr=0.01", 2);
    assert_int_equal(paramctl("drain --within 5s"), 0);
    assert_int_equal(paramctl("shutdown"), 0);
    assert_says("the daemons have stopped");
    for (int i = 0; i < SHARDS; i++) {
        pd_client_close(f->shard[i].client);
        assert_int_equal(daemon_stop(f->shard[i].daemon, 5), 0);
        f->shard[i].daemon = NULL;
    }
}

TEST(a_list_of_daemons_is_checked, fixture *f)
{
    paramctl_ask("tcp://a:7070 tcp://a:7070");
    assert_int_equal(paramctl("jobs"), 2);
    paramctl_ask("tcp://a:{3..1}");
    assert_int_equal(paramctl("jobs"), 2);
    paramctl_ask(f->list);
}
