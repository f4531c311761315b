/* Tests the client handle over real sockets, against a small server in this file. */
#include <stdatomic.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#include "test.h"
#include "daemon_process.h"
#include "message.h"
#include "options.h"
#include "paramd/client.h"

WITH_THREADS();

/* How the server behaves after the greeting. */
typedef enum manner { POLITE, SILENT, BABBLES, HANGS_UP } manner;

typedef struct server {
    pthread_t thread;
    int listener, port, greetings;
    manner manner;
    int greets;       /* number of connections after which the server ends */
    atomic_int beats; /* number of frames that the server answered after the greeting */
    double late;      /* delay in seconds before the server listens */
} server;

static bool read_all(int fd, void *at, size_t n)
{
    for (size_t got = 0; got < n;) {
        ssize_t part = recv(fd, (uint8_t *)at + got, n - got, 0);
        if (part <= 0) return false;
        got += (size_t)part;
    }
    return true;
}

static void answer(int fd, const pd_prefix *to, const ProtobufCMessage *message)
{
    uint8_t *frame;
    size_t bytes;

    if (pd_frame_pack(&frame, &bytes, to->method, PD_FLAG_REPLY, to->request, message, NULL, 0, 0) != PD_OK) abort();
    send(fd, frame, bytes, MSG_NOSIGNAL);
    free(frame);
}

static void greet(int fd, const pd_prefix *to)
{
    Paramd__HelloReply hello = PARAMD__HELLO_REPLY__INIT;

    hello.protocol = PD_PROTOCOL_VERSION;
    hello.chunk_elements = 1024;
    hello.max_payload = 1 << 20;
    hello.max_pieces = 64;
    hello.heartbeat_ms = 20;
    hello.timeout_ms = 20000;
    hello.server = (char *)"few lines";
    answer(fd, to, &hello.base);
}

/* Reads a frame without payload. */
static bool next(int fd, pd_prefix *prefix)
{
    uint8_t head[PD_PREFIX_BYTES], header[PD_MAX_HEADER_BYTES];

    return read_all(fd, head, sizeof head) && pd_prefix_read(prefix, head, 0, NULL) == PD_OK &&
           read_all(fd, header, prefix->header_bytes);
}

static void serve_one(server *s, int fd)
{
    static const char babble[] =
        "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n with more than forty bytes in all";
    Paramd__Ok ok = PARAMD__OK__INIT;
    pd_prefix prefix;

    if (!next(fd, &prefix)) return;
    s->greetings++;
    if (s->manner == BABBLES) send(fd, babble, sizeof babble, MSG_NOSIGNAL);
    if (s->manner == POLITE) greet(fd, &prefix);
    while (s->manner != HANGS_UP && next(fd, &prefix))
        if (s->manner == POLITE) {
            answer(fd, &prefix, &ok.base);
            s->beats++;
        }
}

static void *serve(void *arg)
{
    server *s = arg;

    if (s->late > 0) {
        sleep_for(s->late);
        listen(s->listener, 8);
    }
    for (int i = 0; i < s->greets; i++) {
        int fd = accept(s->listener, NULL, NULL);
        if (fd < 0) break;
        serve_one(s, fd);
        close(fd);
    }
    close(s->listener);
    return NULL;
}

static void bind_server(server *s)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;

    s->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&address, sizeof address), 0);
    getsockname(s->listener, (struct sockaddr *)&address, &size);
    s->port = ntohs(address.sin_port);
}

static void start_server(server *s)
{
    if (s->late == 0) assert_int_equal(listen(s->listener, 8), 0);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static int open_client(pd_client **client, int port, double deadline, pd_error *err)
{
    char url[64];

    snprintf(url, sizeof url, "tcp://127.0.0.1:%d", port);
    return pd_client_open(
        client, &(pd_client_options){ .urls = url, .job = "j", .rank = 0, .world_size = 1, .deadline = deadline }, err);
}

TEST(is_welcomed_by_a_server)
{
    server s = { .manner = POLITE, .greets = 1 };
    pd_client *client;
    pd_error err;

    bind_server(&s);
    start_server(&s);
    assert_int_equal(open_client(&client, s.port, patient(5), &err), PD_OK);
    assert_string_equal(pd_client_welcome(client)->server, "few lines");
    assert_int_equal(pd_client_barrier(client, &err), PD_OK);
    pd_client_close(client);
    pthread_join(s.thread, NULL);
}

TEST(says_that_there_is_no_server_within_the_deadline)
{
    server s = { 0 };
    pd_client *client;
    pd_error err;
    double begun = seconds_now();

    bind_server(&s); /* the socket is bound, but does not listen */
    assert_int_equal(open_client(&client, s.port, 0.3, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "refused"));
    assert_true(seconds_now() - begun < patient(2));
    close(s.listener);
}

TEST(waits_for_a_server_that_is_not_up_yet)
{
    server s = { .manner = POLITE, .greets = 1, .late = 0.3 };
    pd_client *client;
    pd_error err;

    bind_server(&s);
    start_server(&s);
    assert_int_equal(open_client(&client, s.port, patient(5), &err), PD_OK);
    pd_client_close(client);
    pthread_join(s.thread, NULL);
}

TEST(gives_up_in_time_on_a_server_that_is_silent_talks_nonsense_or_hangs_up)
{
    static const manner manners[] = { SILENT, BABBLES, HANGS_UP };

    for (int i = 0; i < 3; i++) {
        server s = { .manner = manners[i], .greets = 1000 };
        pd_client *client;
        pd_error err;
        double begun = seconds_now();

        bind_server(&s);
        start_server(&s);
        assert_int_not_equal(open_client(&client, s.port, 0.3, &err), PD_OK);
        assert_true(manners[i] != SILENT || strstr(err.text, ": no answer yet") != NULL);
        assert_true(seconds_now() - begun < patient(2));
        shutdown(s.listener, SHUT_RDWR);
        pthread_join(s.thread, NULL);
        assert_true(s.greetings >= 1 && s.greetings < 20); /* the server saw only a few greetings, since the client
                                                            * waits longer before each retry */
    }
}

static bool has_beaten(void *arg)
{
    server *s = arg;
    return s->beats >= 3;
}

TEST(closing_does_not_wait_for_what_is_under_way)
{
    server s = { .manner = POLITE, .greets = 1 };
    pd_client *client;
    pd_error err;
    double begun;

    bind_server(&s);
    start_server(&s);
    assert_int_equal(open_client(&client, s.port, patient(5), &err), PD_OK);
    assert_true(await(has_beaten, &s, patient(5))); /* the idle client sends heartbeats, which the server answers */
    begun = seconds_now();
    pd_client_close(client);
    assert_true(seconds_now() - begun < patient(1));
    pthread_join(s.thread, NULL);
}

static void set_environment(const char *const *pairs)
{
    static const char *const names[] = { "PARAMD_URL", "PARAMD_JOB", "PARAMD_RUN",   "PARAMD_RESUME",
                                         "RANK",       "WORLD_SIZE", "SLURM_JOB_ID", "TORCHELASTIC_RUN_ID" };

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) unsetenv(names[i]);
    for (; pairs != NULL && pairs[0] != NULL; pairs += 2) setenv(pairs[0], pairs[1], 1);
}

TEST(defaults_stand_without_options_and_environment)
{
    pd_settings settings;

    set_environment(NULL);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, NULL), PD_OK);
    assert_string_equal(settings.urls, "tcp://127.0.0.1:7070");
    assert_null(settings.core.run);
    assert_int_equal(settings.core.resume, PD_RESUME_AUTO);
    assert_int_equal(settings.core.rank, 0);
    assert_int_equal(settings.core.world_size, 1);
    assert_true(settings.deadline == 120);
    assert_true(settings.core.nonce != 0);
    assert_non_null(strchr(settings.core.label, ':'));
}

TEST(the_environment_fills_what_options_leave_open)
{
    pd_settings settings;

    set_environment((const char *[]){ "PARAMD_URL", "tcp://x:1", "RANK", "3", "WORLD_SIZE", "8", "TORCHELASTIC_RUN_ID",
                                      "run7", NULL });
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, NULL), PD_OK);
    assert_string_equal(settings.urls, "tcp://x:1");
    assert_string_equal(settings.core.job, "run7");
    assert_int_equal(settings.core.rank, 3);
    assert_int_equal(settings.core.world_size, 8);
    setenv("PARAMD_JOB", "mine", 1);
    assert_int_equal(
        pd_settings_resolve(&settings, &(pd_client_options){ .rank = 1, .world_size = 2, .urls = "tcp://y:2" }, NULL),
        PD_OK);
    assert_string_equal(settings.urls, "tcp://y:2");
    assert_string_equal(settings.core.job, "mine");
    assert_int_equal(settings.core.rank, 1);
    assert_int_equal(settings.core.world_size, 2);
}

TEST(torchruns_none_is_neither_a_job_name_nor_a_run)
{
    pd_settings settings;

    set_environment((const char *[]){ "TORCHELASTIC_RUN_ID", "none", NULL });
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, NULL), PD_OK);
    assert_string_not_equal(settings.core.job, "none");
    assert_null(settings.core.run);
}

TEST(a_single_worker_without_a_job_name_gets_one_of_its_own)
{
    pd_settings one, two;
    char pid[32];

    set_environment(NULL);
    snprintf(pid, sizeof pid, "-%ld-", (long)getpid());
    do { /* two of 65,536 names are equal */
        assert_int_equal(pd_settings_resolve(&one, &(pd_client_options){ 0 }, NULL), PD_OK);
        assert_int_equal(pd_settings_resolve(&two, &(pd_client_options){ 0 }, NULL), PD_OK);
    } while (strcmp(one.core.job, two.core.job) == 0);
    assert_non_null(strstr(one.core.job, pid));
}

TEST(several_workers_without_a_name_that_they_share_are_refused)
{
    pd_settings settings;
    pd_error err;

    set_environment((const char *[]){ "RANK", "1", "WORLD_SIZE", "2", NULL });
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "PARAMD_JOB"));
    setenv("SLURM_JOB_ID", "77", 1);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, &err), PD_OK);
    assert_string_equal(settings.core.job, "slurm-77");
}

TEST(the_run_comes_from_the_options_then_from_the_launcher)
{
    pd_settings settings;

    set_environment((const char *[]){ "SLURM_JOB_ID", "77", NULL });
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, NULL), PD_OK);
    assert_string_equal(settings.core.run, "slurm-77");
    setenv("TORCHELASTIC_RUN_ID", "torch5", 1);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, NULL), PD_OK);
    assert_string_equal(settings.core.run, "torch5");
    setenv("PARAMD_RUN", "mine", 1);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, NULL), PD_OK);
    assert_string_equal(settings.core.run, "mine");
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ .run = "given" }, NULL), PD_OK);
    assert_string_equal(settings.core.run, "given");
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ .run = "" }, NULL), PD_OK);
    assert_null(settings.core.run);
}

TEST(whether_to_resume_comes_from_the_options_then_from_the_environment)
{
    pd_settings settings;
    pd_error err;

    set_environment((const char *[]){ "PARAMD_RESUME", "1", NULL });
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, NULL), PD_OK);
    assert_int_equal(settings.core.resume, PD_RESUME_YES);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ .resume = PD_RESUME_NO }, NULL), PD_OK);
    assert_int_equal(settings.core.resume, PD_RESUME_NO);
    setenv("PARAMD_RESUME", "yes", 1);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "PARAMD_RESUME=\"yes\""));
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ .resume = 3 }, &err), PD_INVALID_ARGUMENT);
}

TEST(refuses_ranks_that_cannot_be_and_names_the_variable)
{
    pd_settings settings;
    pd_error err;

    set_environment((const char *[]){ "RANK", "four", "WORLD_SIZE", "8", NULL });
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ 0 }, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "RANK=\"four\""));
    set_environment(NULL);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ .rank = 2, .world_size = 2 }, &err),
                     PD_INVALID_ARGUMENT);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ .rank = -1, .world_size = 2 }, &err),
                     PD_INVALID_ARGUMENT);
    assert_int_equal(pd_settings_resolve(&settings, &(pd_client_options){ .rank = 2 }, &err),
                     PD_OK); /* world_size 0 in the options: the environment decides */
    assert_int_equal(settings.core.rank, 0);
}
