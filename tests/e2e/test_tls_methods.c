/* Tries every method of the protocol over TLS with every kind of bad credential: the daemon answers none of them. It is
 * the other half of the figure auth_matrix (unit.auth_matrix has the roles). */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>

#include "test.h"
#include "http_ask.h"
#include "message.h"
#include "handlers.h"
#include "paramd/client.h"
#include "tls_scene.h"
#include "tls_stream.h"

enum { MOST_MS = 10000 };

static int start(void **state)
{
    signal(SIGPIPE, SIG_IGN);
    *state = tls_scene_new();
    tls_scene_start(*state, NULL);
    return 0;
}

static int end(void **state)
{
    return tls_scene_end(*state);
}

static int connect_to(int port)
{
    int fd = loopback_connect(port);

    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void wait_for(int fd, short events)
{
    struct pollfd one = { .fd = fd, .events = events };

    if (poll(&one, 1, MOST_MS) != 1) fail_msg("the daemon neither answers nor ends the connection");
}

static bool shake_hands(pd_tls_stream *stream, int fd)
{
    pd_error err;
    pd_tls_step step;

    while ((step = pd_tls_handshake(stream, &err)) == PD_TLS_READ || step == PD_TLS_WRITE)
        wait_for(fd, step == PD_TLS_READ ? POLLIN : POLLOUT);
    return step == PD_TLS_DONE;
}

/* Sends a request without fields. A client may do so before the server has looked at its certificate. */
static bool send_request(pd_tls_stream *stream, unsigned method)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    struct iovec span;
    uint8_t *frame;
    size_t bytes;
    ssize_t sent;

    assert_int_equal(pd_frame_pack(&frame, &bytes, method, 0, 1, &empty.base, NULL, 0, 0), PD_OK);
    span = (struct iovec){ frame, bytes };
    sent = pd_tls_send(stream, &span, 1, NULL);
    free(frame);
    return sent > 0;
}

/* Returns whether bytes come from the daemon before it ends the connection. */
static bool is_answered(pd_tls_stream *stream, int fd)
{
    uint8_t bin[4096];
    struct iovec span = { bin, sizeof bin };
    ssize_t got;

    while ((got = pd_tls_receive(stream, &span, 1, NULL)) == 0) wait_for(fd, POLLIN);
    return got > 0;
}

/* Tries a method, and tells how it fared: + the daemon answered, - it did not. */
static char try_method(const tls_scene *scene, pd_tls_context *context, unsigned method)
{
    int fd = connect_to(scene->port);
    pd_tls_stream *stream;
    bool answered;

    assert_int_equal(pd_tls_stream_new(&stream, context, fd, "127.0.0.1", NULL), PD_OK);
    answered = shake_hands(stream, fd) && send_request(stream, method) && is_answered(stream, fd);
    pd_tls_stream_free(stream);
    close(fd);
    return answered ? '+' : '-';
}

typedef struct column {
    const char *name;
    pd_tls_files files;
    char expected;
} column;

static int try_methods(const tls_scene *scene, const column *c)
{
    pd_tls_context *context;
    pd_error err;
    int wrong = 0;

    if (pd_tls_client(&context, &c->files, &err) != PD_OK) fail_msg("%s", err.text);
    printf("%-20s ", c->name);
    for (unsigned method = 0; method < PD_METHODS; method++) {
        char verdict = try_method(scene, context, method);
        printf(" %c", verdict);
        wrong += verdict != c->expected;
    }
    printf("\n");
    pd_tls_unref(context);
    return wrong;
}

static void print_head(void)
{
    printf("auth_matrix, over TLS:");
    for (unsigned method = 0; method < PD_METHODS; method++) printf(" %s", pd_methods[method].name);
    printf("\n");
}

static void make_bad_credentials(const tls_scene *scene, char foreign[2][120], char expired[2][120], char *token)
{
    pki_authority *authority = pki_new("foreign", NULL);
    char line[PD_TOKEN_LINE];

    for (int i = 0; i < 2; i++) {
        snprintf(foreign[i], 120, "%s/foreign-%d", scene->folder, i);
        snprintf(expired[i], 120, "%s/expired-%d", scene->folder, i);
    }
    snprintf(token, 120, "%s/wrong-token", scene->folder);
    pki_issue(authority, "DNS:worker-1", 1, foreign[0], foreign[1]);
    pki_issue(scene->authority, "DNS:worker-1", -1, expired[0], expired[1]);
    assert_int_equal(pd_token_new(line, "alice", NULL), PD_OK);
    pki_write_tokens(token, line, NULL);
    pki_free(authority);
}

FIXTURE(start, end);

TEST(no_method_is_answered_without_good_credentials, const tls_scene *scene)
{
    char foreign[2][120], expired[2][120], token[120];
    int wrong = 0;

    make_bad_credentials(scene, foreign, expired, token);
    const column columns[] = {
        { "no credentials", { .ca = scene->ca }, '-' },
        { "wrong token", { .tokens = token }, '-' },
        { "expired certificate", { .ca = scene->ca, .certificate = expired[0], .key = expired[1] }, '-' },
        { "foreign certificate", { .ca = scene->ca, .certificate = foreign[0], .key = foreign[1] }, '-' },
        { "token", { .tokens = scene->token }, '+' },
        { "certificate", { .ca = scene->ca, .certificate = scene->client_pem, .key = scene->client_key }, '+' },
    };
    print_head();
    for (size_t c = 0; c < sizeof columns / sizeof *columns; c++) wrong += try_methods(scene, &columns[c]);
    assert_int_equal(wrong, 0);
}

static int start_with_roles(void **state)
{
    tls_scene *scene = *state = tls_scene_new();
    char path[120], flag[140];
    const char *flags[] = { flag, NULL };

    snprintf(path, sizeof path, "%s/roles", scene->folder);
    snprintf(flag, sizeof flag, "--roles=%s", path);
    pki_write(path, "token:alice push a-*\ncertificate:worker-1 read *\nanyone admin a-*\n", 0600);
    tls_scene_start(scene, flags);
    return 0;
}

static int join(pd_client_options options, const char *job, pd_error *err)
{
    static const char *const rules[] = { "* sgd lr=1", NULL };
    pd_client *client = NULL;
    int rc;

    options.job = job;
    options.world_size = 1;
    options.rules = rules;
    options.deadline = patient(10);
    rc = pd_client_open(&client, &options, err);
    pd_client_close(client);
    return rc;
}

TEST_WITH(start_with_roles, end, tokens_and_certificates_have_the_roles_of_their_names, const tls_scene *scene)
{
    const pd_client_options token = { .urls = scene->url, .token_file = scene->token };
    const pd_client_options certificate = {
        .urls = scene->url, .ca_file = scene->ca, .cert_file = scene->client_pem, .key_file = scene->client_key
    };
    pd_error err;

    assert_int_equal(join(token, "a-1", &err), PD_OK);
    assert_int_equal(join(token, "b-1", &err), PD_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "token:alice may neither join nor create job b-1"));
    assert_int_equal(join(certificate, "a-2", &err), PD_PERMISSION_DENIED);
    assert_non_null(strstr(err.text, "certificate:worker-1 may neither join nor create job a-2"));
    assert_int_equal(join((pd_client_options){ .urls = scene->daemon->url }, "a-3", &err), PD_OK);
}
