/* Tests the engine etcd against members that the test plays: they answer late, not at all, with errors, with too much
 * or with nonsense. Each failure is bounded in time, has its reason, and leads to the next member. */
#define _GNU_SOURCE /* accept4 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <time.h>

#include "test.h"
#include "daemon_process.h"
#include "engine.h"
#include "etcd_json.h"

/* LONG_MS: no test waits for it, however slow the machine is. */
enum { MEMBERS = 2, CONNS = 8, TRY_MS = 1000, SILENT_MS = 700, LONG_MS = 60000 };

#define HEADER "\"header\":{\"revision\":\"7\"}"
#define OK "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n"
#define LISTED OK "{" HEADER ",\"kvs\":[]}"
#define CREATED OK "{\"result\":{" HEADER ",\"created\":true}}\n"

/* A member: what it answers to each request, in turn; the last answer is repeated. NULL: it is silent. */
typedef struct fake_member {
    int listener, port;
    int conn[CONNS];
    const char *answers[4];
    int n_requests;
    bool holds; /* it keeps connections open after an answer */
    char request[16384];
} fake_member;

typedef struct fixture {
    fake_member at[MEMBERS];
    char urls[128];
    pd_engine *engine;
    pd_engine_call call;
    int n_answers;
    pd_engine_result result;
    uint64_t lease, tenure, ttl_ms, n_entries;
    char why[PD_ERROR_TEXT];
} fixture;

static uint64_t now_ms(void)
{
    return (uint64_t)(seconds_now() * 1000);
}

static void listen_member(fake_member *m)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;

    m->listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(m->listener, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(m->listener, CONNS), 0);
    assert_int_equal(getsockname(m->listener, (struct sockaddr *)&address, &length), 0);
    m->port = ntohs(address.sin_port);
    for (int i = 0; i < CONNS; i++) m->conn[i] = -1;
}

static void on_answer(pd_engine_call *call, const pd_engine_answer *answer)
{
    fixture *f = call->arg;

    f->n_answers++;
    f->result = answer->result;
    f->lease = answer->lease;
    f->tenure = answer->tenure;
    f->ttl_ms = answer->ttl_ms;
    f->n_entries += answer->n;
    snprintf(f->why, sizeof f->why, "%s", answer->why != NULL ? answer->why : "");
}

static void open_engine(fixture *f, uint32_t try_ms, uint32_t silent_ms, const char *user)
{
    pd_etcd_config config = {
        .urls = f->urls, .try_ms = try_ms, .silent_ms = silent_ms, .user = user, .password = "secret"
    };

    if (f->engine != NULL) f->engine->free(f->engine);
    assert_int_equal(pd_etcd_open(&f->engine, &config, NULL), PD_OK);
}

static void set_up(fixture *f)
{
    for (int i = 0; i < MEMBERS; i++) listen_member(&f->at[i]);
    snprintf(f->urls, sizeof f->urls, "etcd://127.0.0.1:%d, etcd://127.0.0.1:%d", f->at[0].port, f->at[1].port);
    open_engine(f, LONG_MS, LONG_MS, NULL);
    f->call = (pd_engine_call){ .verb = PD_ENGINE_READ, .key = "/paramd/c/", .answered = on_answer, .arg = f };
}

static void close_conns(fake_member *m)
{
    for (int i = 0; i < CONNS; i++) {
        if (m->conn[i] >= 0) close(m->conn[i]);
        m->conn[i] = -1;
    }
}

static void tear_down(fixture *f)
{
    f->engine->free(f->engine);
    for (int i = 0; i < MEMBERS; i++) {
        close_conns(&f->at[i]);
        if (f->at[i].listener >= 0) close(f->at[i].listener);
    }
}

FIXTURE(fixture, set_up, tear_down);

/* Answers a request that has come on a connection. Requests are small, and come at once. */
static void serve_conn(fake_member *m, int i)
{
    int k = m->n_requests < 3 ? m->n_requests : 3;
    const char *answer;
    ssize_t n = recv(m->conn[i], m->request, sizeof m->request - 1, 0);

    if (n <= 0) return;
    m->request[n] = '\0';
    while (k > 0 && m->answers[k] == NULL) k--;
    answer = m->answers[k];
    m->n_requests++;
    if (answer == NULL) return;
    assert_true(send(m->conn[i], answer, strlen(answer), MSG_NOSIGNAL) >= 0 || errno == EPIPE || errno == ECONNRESET ||
                errno == EAGAIN);
    if (m->holds) return;
    close(m->conn[i]);
    m->conn[i] = -1;
}

static void serve(fake_member *m)
{
    int fd = m->listener >= 0 ? accept4(m->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC) : -1, i = 0;

    while (fd >= 0 && i < CONNS - 1 && m->conn[i] >= 0) i++;
    if (fd >= 0) m->conn[i] = fd;
    for (i = 0; i < CONNS; i++)
        if (m->conn[i] >= 0) serve_conn(m, i);
}

/* Runs the engine and the members until there are n answers, or the time is over. */
static void run(fixture *f, int n, uint64_t ms)
{
    uint64_t until = now_ms() + ms;

    while (f->n_answers < n && now_ms() < until) {
        struct pollfd polled = { .fd = f->engine->fd, .events = POLLIN };
        f->engine->turn(f->engine, now_ms());
        for (int i = 0; i < MEMBERS; i++) serve(&f->at[i]);
        poll(&polled, 1, 2);
    }
}

static void ask(fixture *f, pd_engine_verb verb)
{
    f->call.verb = verb;
    f->engine->ask(f->engine, &f->call);
}

TEST(an_answer_of_the_first_member_is_taken, fixture *f)
{
    f->at[0].answers[0] = LISTED;
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_int_equal(f->at[1].n_requests, 0);
    assert_false(f->call.open);
    assert_non_null(strstr(f->at[0].request, "POST /v3/kv/range HTTP/1.1"));
    assert_non_null(strstr(f->at[0].request, "Grpc-Metadata-hasleader: true"));
}

TEST(a_registration_is_a_grant_and_a_transaction, fixture *f)
{
    f->at[0].answers[0] = OK "{" HEADER ",\"ID\":\"9\",\"TTL\":\"10\"}";
    f->at[0].answers[1] = OK "{" HEADER ",\"succeeded\":true}";
    f->call.value = "{}";
    f->call.ttl_ms = 10000;
    ask(f, PD_ENGINE_REGISTER);
    run(f, 1, LONG_MS);
    assert_int_equal(f->at[0].n_requests, 2);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_int_equal(f->lease, 9);
    assert_int_equal(f->tenure, 7);
    assert_int_equal(f->ttl_ms, 10000);
}

/* Expects that a first member with this answer is passed over, and the second one asked. */
static void passes_over(fixture *f, const char *answer)
{
    f->at[0].answers[0] = answer;
    f->at[1].answers[0] = LISTED;
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_int_equal(f->at[1].n_requests, 1);
}

TEST(a_member_that_is_silent_is_passed_over, fixture *f)
{
    open_engine(f, TRY_MS, SILENT_MS, NULL);
    passes_over(f, NULL);
}

HOLDS_FOR(fixture *f, a_member_that_is_busy_is_passed_over, passes_over(f, "HTTP/1.1 429 Too Many Requests\r\n\r\n"));
HOLDS_FOR(fixture *f, a_member_that_fails_is_passed_over,
          passes_over(f, "HTTP/1.1 503 Service Unavailable\r\n\r\n{\"error\":\"etcdserver: no leader\"}"));
HOLDS_FOR(fixture *f, a_member_that_speaks_something_else_is_passed_over, passes_over(f, "SSH-2.0-OpenSSH_9.2\r\n"));
HOLDS_FOR(fixture *f, an_answer_that_is_no_json_is_passed_over, passes_over(f, OK "<html>"));
HOLDS_FOR(fixture *f, an_answer_that_lacks_a_member_is_passed_over, passes_over(f, OK "{\"kvs\":[]}"));

TEST(a_member_that_is_down_is_passed_over_and_asked_last_from_then_on, fixture *f)
{
    close(f->at[0].listener);
    f->at[0].listener = -1;
    passes_over(f, NULL);
    ask(f, PD_ENGINE_READ);
    run(f, 2, LONG_MS);
    assert_int_equal(f->n_answers, 2);
    assert_int_equal(f->at[1].n_requests, 2);
}

TEST(when_no_member_answers_the_call_fails_in_bounded_time_with_a_reason, fixture *f)
{
    open_engine(f, TRY_MS, SILENT_MS, NULL);
    ask(f, PD_ENGINE_RENEW);
    run(f, 1, LONG_MS);
    assert_int_equal(f->n_answers, 1);
    assert_int_equal(f->result, PD_ENGINE_FAILED);
    assert_non_null(strstr(f->why, "http://127.0.0.1:"));
    assert_non_null(strstr(f->why, "Timeout was reached"));
    assert_false(f->call.open);
}

TEST(the_words_of_an_error_reach_the_log, fixture *f)
{
    f->at[0].answers[0] = f->at[1].answers[0] =
        "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n{\"error\":\"etcdserver: invalid auth "
        "token\",\"code\":16}";
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_FAILED);
    assert_non_null(
        strstr(f->why, "etcdserver: invalid auth token: cluster.user and cluster.password_file are not set"));
}

TEST(an_answer_without_end_is_cut_off, fixture *f)
{
    char *huge = malloc(PD_ETCD_ANSWER + 65536);

    assert_non_null(huge);
    memset(huge, 'x', PD_ETCD_ANSWER + 65535);
    huge[PD_ETCD_ANSWER + 65535] = '\0';
    memcpy(huge, OK, strlen(OK));
    for (int i = 0; i < MEMBERS; i++) {
        f->at[i].answers[0] = huge;
        f->at[i].holds = true;
    }
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_FAILED);
    free(huge);
}

TEST(an_answer_that_comes_after_its_time_is_not_heard, fixture *f)
{
    open_engine(f, TRY_MS, SILENT_MS, NULL);
    f->at[0].holds = true;
    f->at[1].answers[0] = LISTED;
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->n_answers, 1);
    for (int i = 0; i < CONNS; i++)
        if (f->at[0].conn[i] >= 0) (void)!write(f->at[0].conn[i], LISTED, strlen(LISTED));
    run(f, 2, 500);
    assert_int_equal(f->n_answers, 1);
}

TEST(a_watch_reports_changes_as_they_come, fixture *f)
{
    static const char change[] = "{\"result\":{" HEADER ",\"events\":[{\"kv\":{\"key\":\"YQ==\",\"create_revision\":"
                                 "\"8\",\"mod_revision\":\"8\",\"value\":\"Yg==\"}}]}}\n";

    f->at[0].answers[0] = CREATED;
    f->at[0].holds = true;
    ask(f, PD_ENGINE_WATCH);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_true(f->call.open);
    assert_true(send(f->at[0].conn[0], change, 20, MSG_NOSIGNAL) == 20);
    run(f, 2, 100);
    assert_int_equal(f->n_answers, 1);
    assert_true(send(f->at[0].conn[0], change + 20, sizeof change - 21, MSG_NOSIGNAL) > 0);
    run(f, 2, LONG_MS);
    assert_int_equal(f->n_entries, 1);
    assert_true(f->call.open);
}

TEST(a_watch_that_is_silent_ends, fixture *f)
{
    open_engine(f, LONG_MS, SILENT_MS, NULL);
    f->at[0].answers[0] = CREATED;
    f->at[0].holds = true;
    ask(f, PD_ENGINE_WATCH);
    run(f, 1, LONG_MS);
    run(f, 2, LONG_MS);
    assert_int_equal(f->n_answers, 2);
    assert_int_equal(f->result, PD_ENGINE_ENDED);
    assert_false(f->call.open);
}

TEST(a_watch_whose_member_dies_ends, fixture *f)
{
    f->at[0].answers[0] = CREATED;
    f->at[0].holds = true;
    ask(f, PD_ENGINE_WATCH);
    run(f, 1, LONG_MS);
    close_conns(&f->at[0]);
    run(f, 2, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_ENDED);
}

TEST(a_watch_that_no_member_confirms_fails, fixture *f)
{
    open_engine(f, TRY_MS, SILENT_MS, NULL);
    f->at[0].holds = f->at[1].holds = true;
    ask(f, PD_ENGINE_WATCH);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_FAILED);
    assert_non_null(strstr(f->why, "no answer to a watch"));
}

TEST(a_watch_that_is_told_nonsense_goes_to_the_next_member, fixture *f)
{
    f->at[0].answers[0] = OK "nonsense\n";
    f->at[1].answers[0] = CREATED;
    f->at[1].holds = true;
    ask(f, PD_ENGINE_WATCH);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_int_equal(f->at[1].n_requests, 1);
}

TEST(a_call_that_is_dropped_has_no_answer, fixture *f)
{
    f->at[0].answers[0] = LISTED;
    ask(f, PD_ENGINE_READ);
    f->engine->turn(f->engine, now_ms());
    f->engine->drop(f->engine, &f->call);
    run(f, 1, 300);
    assert_int_equal(f->n_answers, 0);
    assert_false(f->call.open);
}

#define TOKEN OK "{" HEADER ",\"token\":\"abc.7\"}"
#define REFUSED                                                                                                        \
    "HTTP/1.1 401 Unauthorized\r\nConnection: close\r\n\r\n{\"error\":\"etcdserver: invalid auth token\",\"code\":16}"
#define NOT_ENABLED                                                                                                    \
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"                                                            \
    "{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}"
#define WRONG_PASSWORD                                                                                                 \
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n"                                                            \
    "{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}"

static void log_in(fixture *f)
{
    open_engine(f, LONG_MS, LONG_MS, "u");
}

TEST(a_user_gets_a_token_first_and_all_requests_carry_it, fixture *f)
{
    f->at[0].answers[0] = TOKEN;
    f->at[0].answers[1] = LISTED;
    log_in(f);
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_int_equal(f->at[0].n_requests, 2);
    assert_non_null(strstr(f->at[0].request, "POST /v3/kv/range HTTP/1.1"));
    assert_non_null(strstr(f->at[0].request, "\r\nAuthorization: abc.7\r\n"));
    ask(f, PD_ENGINE_READ);
    run(f, 2, LONG_MS);
    assert_int_equal(f->at[0].n_requests, 3);
}

TEST(a_token_that_has_ended_is_replaced_and_the_request_is_made_again, fixture *f)
{
    f->at[0].answers[0] = TOKEN;
    f->at[0].answers[1] = REFUSED;
    f->at[0].answers[2] = TOKEN;
    f->at[0].answers[3] = LISTED;
    log_in(f);
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_int_equal(f->at[0].n_requests, 4);
    assert_int_equal(f->at[1].n_requests, 0);
}

TEST(a_watch_that_begins_with_an_old_token_gets_another_one, fixture *f)
{
    f->at[0].answers[0] = TOKEN;
    f->at[0].answers[1] = OK "{\"result\":{" HEADER ",\"created\":true,\"canceled\":true,"
                             "\"cancel_reason\":\"etcdserver: permission denied\"}}\n";
    f->at[0].answers[2] = TOKEN;
    f->at[0].answers[3] = CREATED;
    log_in(f);
    ask(f, PD_ENGINE_WATCH);
    run(f, 1, LONG_MS);
    assert_int_not_equal(f->result, PD_ENGINE_FAILED); /* it may have ended since */
    assert_int_equal(f->at[0].n_requests, 4);
}

TEST(a_member_that_refuses_new_tokens_too_is_passed_over, fixture *f)
{
    f->at[0].answers[0] = TOKEN;
    f->at[0].answers[1] = REFUSED;
    f->at[0].answers[2] = TOKEN;
    f->at[0].answers[3] = REFUSED;
    f->at[1].answers[0] = LISTED;
    log_in(f);
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_int_equal(f->at[0].n_requests, 4);
    assert_int_equal(f->at[1].n_requests, 1);
}

TEST(a_wrong_password_is_told_with_the_name_of_the_user, fixture *f)
{
    f->at[0].answers[0] = f->at[1].answers[0] = WRONG_PASSWORD;
    log_in(f);
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_FAILED);
    assert_non_null(strstr(f->why, "cluster.user = u: etcdserver: authentication failed, invalid user ID or password"));
    assert_null(strstr(f->why, "secret"));
}

TEST(a_user_of_an_etcd_without_users_is_no_error, fixture *f)
{
    f->at[0].answers[0] = NOT_ENABLED;
    f->at[0].answers[1] = LISTED;
    log_in(f);
    ask(f, PD_ENGINE_READ);
    run(f, 1, LONG_MS);
    assert_int_equal(f->result, PD_ENGINE_DONE);
    assert_null(strstr(f->at[0].request, "Authorization"));
}

static void refuses(const char *urls, const char *why)
{
    pd_etcd_config config = { .urls = urls, .try_ms = TRY_MS, .silent_ms = SILENT_MS };
    pd_engine *engine;
    pd_error err;

    assert_int_equal(pd_etcd_open(&engine, &config, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

TEST(addresses_that_are_wrong_are_refused)
{
    refuses("http://a:2379", "expected etcd://host:port");
    refuses("etcd://", "expected etcd://host:port");
    refuses("etcd://a:2379,,etcd://b:2379", "expected etcd://host:port");
    refuses("etcd://a:0", "port 0 is for servers only");
    refuses("etcd://a b:2379", "blanks");
    refuses("etcds://a:2379", "cluster.ca");
}
