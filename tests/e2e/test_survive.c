/* Tests checkpoints of a real daemon: jobs survive kill -9 and SIGTERM, damaged checkpoints are passed over, and a
 * directory belongs to one daemon. */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>

#include "test.h"
#include "cpu.h"
#include "daemon_process.h"
#include "team.h"

static const char *const momentum[] = { "* sgd lr=0.1 momentum=0.9", NULL };
static const int64_t sizes[] = { 2500, 10, 600 };
enum { WORLD = 2, MORE = 3, TENSORS = 3 };

/* A daemon with a state directory, and the workers of a job: WORLD of them, or MORE after a restart. */
typedef struct fixture {
    char root[64], state[80]; /* a scratch folder, and the state directory in it */
    test_daemon *daemon;
    model *m;
    team team;
    worker workers[MORE];
} fixture;

/* Starts a daemon at the port of the last one (0: any) with the state directory and one more flag (NULL: none). */
static void start(fixture *f, int port, const char *flag)
{
    char listen[64], keep[100];
    const char *const flags[] = { listen, keep, "--chunk-bytes=4KiB", flag, NULL };

    snprintf(listen, sizeof listen, "--listen=127.0.0.1:%d", port);
    snprintf(keep, sizeof keep, "--state-dir=%s", f->state);
    f->daemon = daemon_start(flags);
    paramctl_ask(f->daemon->url);
    f->team.url = f->daemon->url;
}

static void kill_and_start(fixture *f, const char *flag)
{
    int port = f->daemon->port;

    daemon_kill(f->daemon);
    start(f, port, flag);
}

static void stop_and_start(fixture *f)
{
    int port = f->daemon->port;

    assert_int_equal(daemon_stop(f->daemon, patient(20)), 0);
    start(f, port, NULL);
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);

    strcpy(f->root, "/tmp/paramd-checkpoint.XXXXXX");
    assert_non_null(mkdtemp(f->root));
    snprintf(f->state, sizeof f->state, "%s/state", f->root);
    f->m = model_new(sizes, TENSORS);
    f->team = (team){ .job = "j", .world = WORLD, .rules = momentum, .model = f->m };
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;
    char command[120];

    if (f->daemon != NULL) daemon_stop(f->daemon, patient(20));
    model_free(f->m);
    snprintf(command, sizeof command, "rm -rf %s", f->root);
    assert_int_equal(system(command), 0);
    free(f);
    return 0;
}

/* Opens the workers of a job, which is new or has survived a restart. */
static void join(fixture *f, const char *job, const char *const *options)
{
    f->team.job = job;
    f->team.options = options;
    for (int r = 0; r < f->team.world; r++)
        if (!worker_open(&f->workers[r], &f->team, r) || !worker_declare(&f->workers[r]))
            fail_msg("%s", f->workers[r].failure);
}

static void step(fixture *f)
{
    pd_ticket_id tickets[MORE];
    pd_error err = { 0 };

    for (int r = 0; r < f->team.world; r++) {
        worker *w = &f->workers[r];
        for (size_t p = 0; p < TENSORS; p++)
            fill_gradient(w->gradients[p], sizes[p], r, pd_client_step(w->client, p) + 1, p);
        if (pd_client_push_pull(w->client, w->items, TENSORS, NULL, &tickets[r], &err) != PD_OK)
            fail_msg("%s", err.text);
    }
    for (int r = 0; r < f->team.world; r++)
        if (pd_client_wait(f->workers[r].client, tickets[r], patient(20), &err) != PD_OK) fail_msg("%s", err.text);
}

static void train(fixture *f, int steps)
{
    for (int i = 0; i < steps; i++) step(f);
}

/* Closes the workers without leaving: their job waits for them. */
static void lose(fixture *f)
{
    for (int r = 0; r < f->team.world; r++) worker_free(&f->workers[r]);
}

static void leave(fixture *f)
{
    for (int r = 0; r < f->team.world; r++)
        if (!worker_leave(&f->workers[r])) fail_msg("%s", f->workers[r].failure);
    lose(f);
}

/* Copies the weights of rank 0, which the caller frees. */
static float **copy_weights(const fixture *f)
{
    float **copy = model_buffers(f->m);

    for (size_t p = 0; p < TENSORS; p++) memcpy(copy[p], f->workers[0].weights[p], (size_t)sizes[p] * sizeof(float));
    return copy;
}

static json_t *job_info(const char *name)
{
    json_t *answer, *job = NULL, *each;
    size_t i;

    assert_int_equal(paramctl("jobs --json"), 0);
    answer = parsed();
    json_array_foreach(json_object_get(answer, "jobs"), i, each)
    {
        if (strcmp(json_string_value(json_object_get(each, "name")), name) == 0) job = json_incref(each);
    }
    json_decref(answer);
    return job;
}

static bool has_job(const char *name)
{
    json_t *job = job_info(name);

    json_decref(job);
    return job != NULL;
}

static void assert_job(const char *name, int at_step, int durable_step)
{
    json_t *job = job_info(name);

    assert_non_null(job);
    assert_int_equal(json_integer_value(json_object_get(job, "step_least")), at_step);
    assert_int_equal(json_integer_value(json_object_get(job, "durable_step")), durable_step);
    json_decref(job);
}

/* Returns whether job "j" has a durable step beyond *arg. */
static bool is_durable_beyond(void *arg)
{
    json_t *job = job_info("j");
    bool is = json_integer_value(json_object_get(job, "durable_step")) > *(const int *)arg;

    json_decref(job);
    return is;
}

EACH_TEST(set_up, tear_down);

TEST(a_job_survives_kill_9_as_of_its_last_checkpoint, fixture *f)
{
    json_t *answer;

    start(f, 0, NULL);
    join(f, "j", NULL);
    train(f, 4);
    assert_int_equal(paramctl("checkpoint j --json"), 0);
    answer = parsed();
    assert_int_equal(json_integer_value(json_object_get(answer, "step")), 4);
    assert_true(json_integer_value(json_object_get(answer, "bytes")) > (2500 + 10 + 600) * 8);
    json_decref(answer);
    assert_job("j", 4, 4);
    train(f, 3);
    assert_job("j", 7, 4);
    kill_and_start(f, NULL);
    lose(f);
    assert_job("j", 4, 4);
    assert_true(daemon_says(f->daemon, "job j: is back at step 4: a checkpoint of ", patient(5)));
}

TEST(sigterm_loses_no_step_and_no_bit, fixture *f)
{
    float **interrupted;

    start(f, 0, NULL);
    join(f, "j", NULL);
    train(f, 7);
    stop_and_start(f);
    lose(f);
    assert_job("j", 7, 7);
    join(f, "j", NULL);
    train(f, 5);
    interrupted = copy_weights(f);
    leave(f);
    join(f, "whole", NULL);
    train(f, 12);
    assert_true(model_same(f->m, interrupted, f->workers[0].weights));
    leave(f);
    model_free_buffers(f->m, interrupted);
}

/* An operator sets a value after the last checkpoint, and the daemon is killed as soon as paramctl has returned. The
 * steps that are taken again get the value from the step on from which it held, and end with the weights of a job that
 * was not killed. */
TEST(a_value_that_was_set_survives_kill_9_at_once, fixture *f)
{
    float **interrupted;

    start(f, 0, NULL);
    join(f, "j", NULL);
    train(f, 4);
    assert_int_equal(paramctl("checkpoint j"), 0);
    train(f, 2);
    assert_int_equal(paramctl("set j '*' lr=0.01"), 0);
    kill_and_start(f, NULL);
    lose(f);
    assert_job("j", 4, 4);
    join(f, "j", NULL);
    train(f, 1);
    assert_true(paramctl("set j '*' lr=0.5") != 0);
    assert_says("repeats steps after a restart");
    train(f, 4);
    interrupted = copy_weights(f);
    leave(f);
    join(f, "whole", NULL);
    train(f, 6);
    assert_int_equal(paramctl("set whole '*' lr=0.01"), 0);
    train(f, 3);
    assert_true(model_same(f->m, interrupted, f->workers[0].weights));
    leave(f);
    model_free_buffers(f->m, interrupted);
}

/* Two workers train 4 steps, then kill -9 and a restart, after which three workers take 5 steps. They come to the same
 * weights as three others whom the same daemon lost in the same way, from the same checkpoint. */
TEST(three_workers_go_on_after_kill_9_of_a_daemon_with_two, fixture *f)
{
    float **before, **after;
    int four = 4;

    start(f, 0, NULL);
    join(f, "j", NULL);
    train(f, 4);
    assert_int_equal(paramctl("checkpoint j"), 0);
    before = copy_weights(f);
    train(f, 2);
    lose(f); /* before the restart: a worker that joined again would keep the number of workers */
    kill_and_start(f, NULL);
    f->team.world = MORE;
    join(f, "j", NULL);
    assert_true(daemon_says(f->daemon, "job j: continues with 3 workers instead of 2", patient(5)));
    assert_int_equal(pd_client_step(f->workers[2].client, 0), 4);
    assert_true(model_same(f->m, before, f->workers[2].weights));
    train(f, 5);
    after = copy_weights(f);
    assert_true(await(is_durable_beyond, &four, patient(10))); /* the change has begun a checkpoint */
    lose(f);
    kill_and_start(f, NULL);
    join(f, "j", NULL);
    train(f, 9 - (int)pd_client_step(f->workers[0].client, 0));
    assert_true(model_same(f->m, after, f->workers[1].weights));
    stop_and_start(f); /* the last checkpoint is of three workers */
    lose(f);
    join(f, "j", NULL);
    assert_job("j", 9, 9);
    train(f, 1);
    leave(f);
    model_free_buffers(f->m, before);
    model_free_buffers(f->m, after);
}

static bool the_beginning_is_kept(void *arg)
{
    json_t *job = job_info("j");
    bool kept = json_integer_value(json_object_get(job, "checkpoint_bytes")) > 0;

    (void)arg;
    json_decref(job);
    return kept;
}

TEST(checkpoints_come_by_themselves, fixture *f)
{
    static const char *const every_two[] = { "checkpoint_every=2", NULL };
    int one = 1;

    start(f, 0, NULL);
    join(f, "j", every_two);
    assert_true(await(the_beginning_is_kept, NULL, patient(10)));
    train(f, 3);
    assert_true(await(is_durable_beyond, &one, patient(10)));
    kill_and_start(f, NULL);
    lose(f);
    assert_job("j", 2, 2);
}

TEST(a_job_that_has_ended_does_not_come_back, fixture *f)
{
    start(f, 0, NULL);
    join(f, "j", NULL);
    train(f, 2);
    assert_int_equal(paramctl("checkpoint j"), 0);
    assert_int_equal(paramctl("drop j"), 0);
    lose(f);
    stop_and_start(f);
    assert_false(has_job("j"));
}

TEST(a_second_daemon_on_the_same_directory_is_refused, fixture *f)
{
    char keep[100], said[2000], pid[32];
    const char *const flags[] = { "--listen=127.0.0.1:0", keep, NULL };

    start(f, 0, NULL);
    snprintf(keep, sizeof keep, "--state-dir=%s", f->state);
    snprintf(pid, sizeof pid, "another process (%d)", (int)f->daemon->pid);
    assert_int_equal(daemon_refuses(flags, said, sizeof said), 1);
    if (strstr(said, pid) == NULL || strstr(said, f->state) == NULL) fail_msg("the daemon says: %s", said);
}

TEST(without_a_directory_there_are_no_checkpoints, fixture *f)
{
    f->daemon = daemon_start((const char *const[]){ "--chunk-bytes=4KiB", NULL });
    paramctl_ask(f->daemon->url);
    f->team.url = f->daemon->url;
    join(f, "j", NULL);
    train(f, 2);
    assert_int_equal(paramctl("checkpoint j"), 1);
    assert_says("state_dir");
    assert_job("j", 2, 0);
    leave(f);
}

TEST(a_checkpoint_of_a_job_that_is_not_there_is_refused, fixture *f)
{
    start(f, 0, NULL);
    assert_int_equal(paramctl("checkpoint nobody"), 1);
    assert_says("nobody");
}

/* Writes the path of a file in the checkpoint of a step of job "j". */
static void path_of(const fixture *f, int at_step, const char *name, char *path, size_t size)
{
    DIR *dir = opendir(f->state);
    struct dirent *entry;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL && strncmp(entry->d_name, "j-", 2) != 0) continue;
    assert_non_null(entry);
    snprintf(path, size, "%s/%s/step-%020d/%s", f->state, entry->d_name, at_step, name);
    closedir(dir);
}

static void flip_a_byte(const char *path)
{
    int fd = open(path, O_RDWR);
    uint8_t byte;

    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, 9000), 1);
    byte ^= 0x10;
    assert_int_equal(pwrite(fd, &byte, 1, 9000), 1);
    close(fd);
}

TEST(a_damaged_checkpoint_is_passed_over_for_the_one_before, fixture *f)
{
    char path[400];

    start(f, 0, NULL);
    join(f, "j", NULL);
    train(f, 2);
    assert_int_equal(paramctl("checkpoint j"), 0);
    train(f, 3);
    assert_int_equal(paramctl("checkpoint j"), 0);
    assert_job("j", 5, 5);
    path_of(f, 5, "weights.safetensors", path, sizeof path);
    flip_a_byte(path);
    kill_and_start(f, NULL);
    lose(f);
    assert_job("j", 2, 2);
    assert_true(daemon_says(f->daemon, "warning: skipped a checkpoint: ", patient(5)));
    assert_true(daemon_says(f->daemon, "weights.safetensors", patient(5)));
}

TEST(other_instructions_are_warned_of_and_refused_to_a_job_that_must_be_exact, fixture *f)
{
    static const char *const exact[] = { "exact=yes", NULL };

    if (pd_cpu_newest() < PD_CPU_AVX2) skip();
    start(f, 0, "--cpu=avx2");
    join(f, "j", NULL);
    train(f, 2);
    lose(f);
    join(f, "strict", exact);
    train(f, 2);
    assert_int_equal(paramctl("checkpoint j"), 0);
    assert_int_equal(paramctl("checkpoint strict"), 0);
    kill_and_start(f, "--cpu=generic");
    lose(f);
    assert_job("j", 2, 2);
    assert_false(has_job("strict"));
    assert_true(daemon_says(f->daemon, "warning: job j: BLAS kernels ", patient(5)));
    assert_true(daemon_says(f->daemon, "error: job strict: not restored, because it says exact = yes: ", patient(5)));
    kill_and_start(f, "--cpu=avx2"); /* the checkpoint has stayed on the disk */
    assert_job("strict", 2, 2);
}

/* Opens the socket of a service manager, in the scratch folder. */
static int open_manager(const fixture *f)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    struct timeval limit = { .tv_sec = (time_t)patient(10) };
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", f->root);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setenv("NOTIFY_SOCKET", address.sun_path, 1);
    return fd;
}

/* Receives the next message. Skips those by which a slow start asks for time as long as it lasts. */
static void expect_notice(int fd, const char *text)
{
    char notice[1024];
    ssize_t n;

    do {
        n = recv(fd, notice, sizeof notice - 1, 0);
        notice[n > 0 ? n : 0] = '\0';
    } while (strncmp(notice, "STATUS=loading jobs", 19) == 0);
    if (strstr(notice, text) == NULL) fail_msg("expected %s, got %s", text, notice);
}

TEST(systemd_names_the_directory_and_is_asked_for_time, fixture *f)
{
    char loading[160];
    int fd;

    start(f, 0, NULL);
    join(f, "j", NULL);
    train(f, 2);
    assert_int_equal(daemon_stop(f->daemon, patient(20)), 0);
    lose(f);
    setenv("STATE_DIRECTORY", f->state, 1);
    fd = open_manager(f);
    f->daemon = daemon_start(NULL);
    unsetenv("STATE_DIRECTORY");
    unsetenv("NOTIFY_SOCKET");
    snprintf(loading, sizeof loading, "STATUS=loading %s/j-", f->state);
    expect_notice(fd, loading);
    expect_notice(fd, "STATUS=");
    expect_notice(fd, "READY=1");
    paramctl_ask(f->daemon->url);
    assert_job("j", 2, 2);
    kill(f->daemon->pid, SIGTERM);
    expect_notice(fd, "STOPPING=1");
    expect_notice(fd, "EXTEND_TIMEOUT_USEC=340000000"); /* drain_timeout, checkpoint_timeout and 10 s */
    close(fd);
}
