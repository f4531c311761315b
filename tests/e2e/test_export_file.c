/* Tests paramctl export with a real daemon: the file that it writes, and that training goes on in the job and from the
 * file. */
#define _GNU_SOURCE /* for O_TMPFILE */
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>

#include "test.h"
#include "daemon_process.h"
#include "operator.h"
#include "safetensors.h"
#include "team.h"

enum { PARAMS = 3, BEFORE = 7, AFTER = 6 };
static const int64_t elements[PARAMS] = { 20 * 12, 12, 4 * 3 * 5 };
static const pd_shape shapes[PARAMS] = { { 2, { 20, 12 } }, { 1, { 12 } }, { 3, { 4, 3, 5 } } };
static const char *const names[PARAMS] = { "layers.0.weight", "layers.0.bias", "conv.weight" };

typedef struct fixture {
    test_daemon *daemon;
    char folder[64], file[128];
} fixture;

static void must(int status)
{
    if (status != 0) fail_msg("exit %d: %s", status, paramctl_output);
}

static void set_up(fixture *f)
{
    snprintf(f->folder, sizeof f->folder, "/tmp/paramd_export_XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    snprintf(f->file, sizeof f->file, "%s/job.safetensors", f->folder);
    f->daemon = daemon_start(NULL);
    paramctl_ask(f->daemon->url);
}

/* Removes the exported file, if there is one. Checks that the folder is then empty: no temporary file is left. */
static void tear_down(fixture *f)
{
    int rc;

    unlink(f->file);
    rc = rmdir(f->folder);
    assert_int_equal(rc, 0);
    if (f->daemon != NULL) assert_int_equal(daemon_stop(f->daemon, patient(10)), 0);
}

typedef struct job {
    pd_client *client;
    float *weights[PARAMS];
} job;

static void job_new(job *j, const fixture *f, const char *name, const char *rule, const char *start_step)
{
    const char *const rules[] = { rule, "* sgd lr=0.05", NULL }, *const options[] = { start_step, NULL };
    pd_client_param params[PARAMS] = { 0 };
    void *buffers[PARAMS];
    pd_error err = { 0 };

    if (pd_client_open(&j->client,
                       &(pd_client_options){
                           .urls = f->daemon->url, .job = name, .world_size = 1, .rules = rules, .options = options },
                       &err) != PD_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < PARAMS; i++) {
        params[i] = (pd_client_param){ .name = names[i], .shape = shapes[i] };
        buffers[i] = j->weights[i];
    }
    if (pd_client_declare(j->client, params, PARAMS, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_client_init(j->client, buffers, &err) != PD_OK) fail_msg("%s", err.text);
}

static void make_weights(job *j)
{
    for (size_t i = 0; i < PARAMS; i++) {
        j->weights[i] = malloc((size_t)elements[i] * sizeof(float));
        fill_gradient(j->weights[i], elements[i], 9, 1, i);
    }
}

/* Pushes the gradients of a step. The caller waits for the ticket, and frees the returned gradients. */
static float **push_step(job *j, uint64_t step, pd_item *items, pd_ticket_id *ticket)
{
    float **gradient = calloc(PARAMS, sizeof *gradient);
    pd_error err = { 0 };

    for (size_t i = 0; i < PARAMS; i++) {
        gradient[i] = malloc((size_t)elements[i] * sizeof(float));
        fill_gradient(gradient[i], elements[i], 0, step, i);
        items[i] = (pd_item){ .param = i, .gradient = gradient[i], .weights = j->weights[i] };
    }
    if (pd_client_push_pull(j->client, items, PARAMS, NULL, ticket, &err) != PD_OK) fail_msg("%s", err.text);
    return gradient;
}

static void free_gradients(float **gradient)
{
    for (size_t i = 0; i < PARAMS; i++) free(gradient[i]);
    free(gradient);
}

static void job_step(job *j, uint64_t step)
{
    pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err = { 0 };
    float **gradient = push_step(j, step, items, &ticket);

    if (pd_client_wait(j->client, ticket, patient(10), &err) != PD_OK) fail_msg("%s", err.text);
    free_gradients(gradient);
}

static void job_free(job *j)
{
    pd_client_close(j->client);
    for (size_t i = 0; i < PARAMS; i++) free(j->weights[i]);
}

static void train(job *j, const fixture *f, const char *rule)
{
    make_weights(j);
    job_new(j, f, "j", rule, NULL);
    for (uint64_t step = 1; step <= BEFORE; step++) job_step(j, step);
}

typedef struct contents {
    void *at;
    pd_safetensors *file;
} contents;

static void read_file(contents *c, const char *path)
{
    FILE *from = fopen(path, "rb");
    struct stat st;
    pd_error err = { 0 };

    assert_non_null(from);
    assert_int_equal(fstat(fileno(from), &st), 0);
    c->at = malloc((size_t)st.st_size);
    assert_int_equal(fread(c->at, 1, (size_t)st.st_size, from), st.st_size);
    fclose(from);
    if (pd_safetensors_read(&c->file, c->at, (size_t)st.st_size, &err) != PD_OK) fail_msg("%s", err.text);
}

static void free_file(contents *c)
{
    pd_safetensors_free(c->file);
    free(c->at);
}

static void take_weights(job *j, const contents *c)
{
    for (size_t i = 0; i < PARAMS; i++) {
        const pd_st_tensor *tensor = pd_safetensors_find(c->file, names[i]);
        assert_non_null(tensor);
        assert_true(tensor->dtype == PD_ST_F32 && pd_shape_equal(&tensor->shape, &shapes[i]));
        j->weights[i] = malloc(tensor->bytes);
        memcpy(j->weights[i], pd_safetensors_data(c->file, tensor), tensor->bytes);
    }
}

static void goes_on_from_a_file(fixture *f, const char *rule)
{
    job j, again;
    contents c;

    train(&j, f, rule);
    must(paramctl("export j %s --state --force", f->file));
    read_file(&c, f->file);
    assert_string_equal(pd_safetensors_meta(c.file, "step"), "7");
    take_weights(&again, &c);
    job_new(&again, f, "again", rule, "start_step=7");
    must(paramctl("import-state again %s", f->file));
    assert_says("skipped the weights of 3 parameters");
    for (uint64_t step = BEFORE + 1; step <= BEFORE + AFTER; step++) {
        job_step(&j, step);
        job_step(&again, step);
    }
    for (size_t i = 0; i < PARAMS; i++)
        if (memcmp(j.weights[i], again.weights[i], (size_t)elements[i] * sizeof(float)) != 0)
            fail_msg("%s: %s differs", rule, names[i]);
    free_file(&c);
    job_free(&j);
    job_free(&again);
    must(paramctl("drop j"));
    must(paramctl("drop again"));
}

FIXTURE(fixture, set_up, tear_down);

TEST(training_goes_on_bit_for_bit_from_a_file, fixture *f)
{
    goes_on_from_a_file(f, "* sgd lr=0.05");
    goes_on_from_a_file(f, "* sgd lr=0.05 momentum=0.9");
    goes_on_from_a_file(f, "* adamw lr=0.01 amsgrad=yes");
    goes_on_from_a_file(f, "layers* adafactor learning_rate=0.01 beta1=0.9");
    goes_on_from_a_file(f, "* kron learning_rate=0.01 block_size=8");
    goes_on_from_a_file(
        f, "* scalable_shampoo learning_rate=0.05 block_size=8 root_delay=0 best_effort_memory_usage_reduction=yes");
    goes_on_from_a_file(
        f, "* shampoo lr=0.01 max_preconditioner_dim=8 grafting_config=SGD root_delay=0 preconditioner_dtype=float64");
    goes_on_from_a_file(
        f, "* shampoo lr=0.01 max_preconditioner_dim=4 grafting_config=SGD precondition_frequency=3 root_delay=3");
    goes_on_from_a_file(
        f, "* scalable_shampoo learning_rate=0.05 block_size=4 preconditioning_compute_steps=4 root_delay=4");
}

/* Reads the file with another program, numpy. */
TEST(numpy_reads_the_weights, fixture *f)
{
    static const char script[] =
        "import json, struct, sys, numpy as np\n"
        "b = open(sys.argv[1], 'rb').read()\n"
        "n = struct.unpack('<Q', b[:8])[0]\n"
        "h = json.loads(b[8:8 + n])\n"
        "print(h['__metadata__']['job'], h['__metadata__']['step'], h['__metadata__']['optimizer_state'])\n"
        "for k in sorted(k for k in h if k != '__metadata__'):\n"
        "    s, e = h[k]['data_offsets']\n"
        "    a = np.frombuffer(b[8 + n + s:8 + n + e], {'F32': '<f4'}[h[k]['dtype']]).reshape(h[k]['shape'])\n"
        "    print(k, a.shape, (8 + n + s) % 4, a.astype('<f4').tobytes().hex())\n";
    char path[160], command[512], expected[64];
    FILE *to, *from;
    job j;
    char *text = calloc(1, 16384);

    train(&j, f, "* sgd lr=0.05 momentum=0.9");
    must(paramctl("export j %s", f->file));
    assert_says("exported step 7 of job j: 3 tensors");
    snprintf(path, sizeof path, "%s/read.py", f->folder);
    assert_non_null(to = fopen(path, "w"));
    fputs(script, to);
    fclose(to);
    snprintf(command, sizeof command, "/usr/bin/python3 %s %s 2>&1", path, f->file);
    assert_non_null(from = popen(command, "r"));
    text[fread(text, 1, 16383, from)] = '\0';
    if (pclose(from) != 0) fail_msg("%s", text);
    assert_non_null(strstr(text, "j 7 no\n"));
    assert_non_null(strstr(text, "conv.weight (4, 3, 5) 0 "));
    for (size_t i = 0; i < PARAMS; i++) {
        const uint8_t *at = (const void *)j.weights[i];
        for (size_t k = 0; k < 16; k++) snprintf(expected + 2 * k, 3, "%02x", at[k]);
        if (strstr(text, expected) == NULL) fail_msg("%s is not in %s", names[i], text);
    }
    unlink(path);
    free(text);
    job_free(&j);
}

enum { COUNTED = 400 };

static bool count_steps(worker *w)
{
    for (int step = 0; step < COUNTED; step++)
        if (!worker_count(w)) return false;
    return true;
}

static void *run_team(void *arg)
{
    static worker workers[TEAM_MOST];

    team_run(arg, workers);
    team_free(arg, workers);
    return NULL;
}

static bool has_weights(void *arg)
{
    fixture *f = arg;

    return paramctl("export team %s --force", f->file) == 0;
}

/* Checks that the file is a published version of one step: all weights equal minus the number of steps. Returns that
 * number. */
static double assert_of_one_step(const fixture *f)
{
    contents c;
    size_t n;
    double step;

    read_file(&c, f->file);
    step = atof(pd_safetensors_meta(c.file, "step"));
    for (size_t t = 0; t < (pd_safetensors_tensors(c.file, &n), n); t++) {
        const pd_st_tensor *tensor = &pd_safetensors_tensors(c.file, &n)[t];
        const float *at = pd_safetensors_data(c.file, tensor);
        for (size_t k = 0; tensor->dtype == PD_ST_F32 && k < tensor->bytes / sizeof *at; k++)
            if ((double)at[k] != -step) fail_msg("%s: %g in step %g", tensor->name, (double)at[k], step);
    }
    free_file(&c);
    return step;
}

TEST(every_weight_is_of_the_same_step_while_workers_train, fixture *f)
{
    static const int64_t sizes[] = { 5, 3000, 70000, 1 };
    const char *const rules[] = { "* sgd lr=1", NULL };
    model *m = model_new(sizes, 4);
    team t = { .url = f->daemon->url,
               .job = "team",
               .world = 2,
               .rules = rules,
               .model = m,
               .zero = true,
               .deadline = patient(30),
               .work = count_steps };
    pthread_t thread;
    double last = 0;

    assert_int_equal(pthread_create(&thread, NULL, run_team, &t), 0);
    assert_true(await(has_weights, f, patient(10)));
    for (int i = 0; i < 8; i++) {
        int status = paramctl("export team %s --force%s", f->file, i % 2 == 0 ? "" : " --state");
        double step;
        if (status != 0 && strstr(paramctl_output, "no job") != NULL) break; /* all workers have left the job */
        must(status);
        step = assert_of_one_step(f);
        assert_true(step >= last);
        last = step;
    }
    pthread_join(thread, NULL);
    model_free(m);
}

TEST(a_file_that_exists_is_replaced_by_force_alone, fixture *f)
{
    job j;

    train(&j, f, "* sgd lr=0.05");
    close(open(f->file, O_WRONLY | O_CREAT, 0600));
    assert_int_equal(paramctl("export j %s", f->file), 1);
    assert_says("file exists");
    must(paramctl("export j %s --force", f->file));
    assert_int_equal(paramctl("export j %s/no/such/folder", f->folder), 1);
    assert_int_equal(paramctl("export none %s --force", f->file), 1);
    assert_says("there is no job none");
    job_free(&j);
}

TEST(a_pipe_gets_the_same_bytes_as_a_file, fixture *f)
{
    job j;

    train(&j, f, "* adam lr=0.05");
    must(paramctl("export j %s --state", f->file));
    must(paramctl("export j - --state 2>/dev/null | cmp - %s", f->file));
    job_free(&j);
}

TEST(a_full_disk_leaves_no_file_and_the_job_goes_on, fixture *f)
{
    job j;

    train(&j, f, "* adam lr=0.05");
    assert_int_not_equal(paramctl("export j - --state > /dev/full"), 0);
    job_step(&j, BEFORE + 1);
    assert_int_equal(access(f->file, F_OK), -1);
    job_free(&j);
}

/* Runs only if the file system supports files without a name (O_TMPFILE). */
TEST(a_program_that_is_killed_leaves_no_file, fixture *f)
{
    int fd = open(f->folder, O_TMPFILE | O_WRONLY, 0600);
    char command[512];

    if (fd < 0) skip();
    close(fd);
    daemon_freeze(f->daemon);
    snprintf(command, sizeof command, "PARAMD_URL=%s timeout -s KILL 0.5 %s/paramctl export j %s 2> /dev/null",
             f->daemon->url, getenv("PARAMD_BIN"), f->file);
    assert_int_equal(WEXITSTATUS(system(command)), 137);
    daemon_thaw(f->daemon);
}

static void open_operator(const fixture *f, pd_client **client)
{
    pd_error err = { 0 };

    if (pd_client_open(client, &(pd_client_options){ .urls = f->daemon->url, .job = "", .impatient = true }, &err) !=
        PD_OK)
        fail_msg("%s", err.text);
}

static int begin_export(pd_client *client, bool with_state, pd_error *err)
{
    Paramd__ExportRequest request = PARAMD__EXPORT_REQUEST__INIT;
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    int rc;

    request.job = "j";
    request.act = 1;
    request.state = with_state;
    rc = pd_client_call(client, PD_EXPORT, &request.base, arena, NULL, err);
    pd_arena_free(arena);
    return rc;
}

TEST(an_operator_who_is_gone_holds_nobody_up, fixture *f)
{
    pd_client *operator;
    pd_item items[PARAMS];
    pd_ticket_id ticket;
    pd_error err = { 0 };
    float **gradient;
    job j;

    train(&j, f, "* adam lr=0.05");
    open_operator(f, &operator);
    assert_int_equal(begin_export(operator, true, &err), PD_OK);
    assert_int_equal(paramctl("export j %s --wait 0.5", f->file), 1);
    assert_says("it is being exported by");
    gradient = push_step(&j, BEFORE + 1, items, &ticket);
    pd_client_close(operator);
    if (pd_client_wait(j.client, ticket, patient(10), &err) != PD_OK) fail_msg("%s", err.text);
    assert_true(daemon_says(f->daemon, "its connection was lost", patient(5)));
    must(paramctl("export j %s", f->file));
    free_gradients(gradient);
    job_free(&j);
}

TEST(an_admin_ends_the_export_of_another, fixture *f)
{
    pd_client *operator;
    pd_error err = { 0 };
    job j;

    train(&j, f, "* adam lr=0.05");
    open_operator(f, &operator);
    assert_int_equal(begin_export(operator, true, &err), PD_OK);
    must(paramctl("export j %s --end-other", f->file));
    assert_true(daemon_says(f->daemon, "has ended it to export", patient(5)));
    pd_client_close(operator);
    job_free(&j);
}

TEST(a_daemon_that_stops_does_not_wait_for_an_operator, fixture *f)
{
    pd_client *operator;
    pd_error err = { 0 };
    job j;

    train(&j, f, "* adam lr=0.05");
    open_operator(f, &operator);
    assert_int_equal(begin_export(operator, true, &err), PD_OK);
    assert_int_equal(daemon_stop(f->daemon, patient(10)), 0);
    f->daemon = NULL;
    assert_int_not_equal(begin_export(operator, true, &err), PD_OK);
    pd_client_close(operator);
    job_free(&j);
}
