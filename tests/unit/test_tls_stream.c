/* Tests TLS over a pair of sockets: both sides run on one thread, turn by turn. */
#define _GNU_SOURCE /* memmem */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "oom.h"
#include "pki.h"
#include "tls_stream.h"
#include "token.h"

enum { SERVER, CLIENT, BYTES = 200000 };

typedef struct ends {
    char folder[64];
    char token[PD_TOKEN_LINE], tokens[96];
    int fd[2];
    pd_tls_context *context[2];
    pd_tls_stream *stream[2];
    pd_tls_step step[2];
    pd_error err[2];
    uint8_t sent[BYTES], got[BYTES];
} ends;

static ends all;

static const char *path(const char *name)
{
    static char text[8][128];
    static int at;

    at = (at + 1) % 8;
    snprintf(text[at], sizeof text[at], "%s/%s", all.folder, name);
    return text[at];
}

static int set_up(void **state)
{
    memset(&all, 0, sizeof all);
    strcpy(all.folder, "/tmp/paramd-tls-XXXXXX");
    assert_non_null(mkdtemp(all.folder));
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pd_token_new(all.token, "alice", NULL), PD_OK);
    snprintf(all.tokens, sizeof all.tokens, "%s", path("tokens"));
    pki_write_tokens(all.tokens, all.token, NULL);
    for (size_t i = 0; i < BYTES; i++) all.sent[i] = (uint8_t)(i * 7 + i / 251);
    *state = &all;
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, all.fd);
}

static void drop_ends(void)
{
    for (int i = 0; i < 2; i++) {
        pd_tls_stream_free(all.stream[i]);
        pd_tls_unref(all.context[i]);
        all.stream[i] = NULL;
        all.context[i] = NULL;
    }
}

static int tear_down(void **state)
{
    char command[160];
    (void)state;

    drop_ends();
    close(all.fd[0]);
    close(all.fd[1]);
    snprintf(command, sizeof command, "rm -rf %s", all.folder);
    return system(command);
}

/* Makes both sides; `host` is the name that the client expects. */
static void make(const pd_tls_files *server, const pd_tls_files *client, const char *host)
{
    pd_error err;

    if (pd_tls_server(&all.context[SERVER], server, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_tls_client(&all.context[CLIENT], client, &err) != PD_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        const char *expected = i == CLIENT ? host : NULL;
        assert_int_equal(pd_tls_stream_new(&all.stream[i], all.context[i], all.fd[i], expected, &err), PD_OK);
        all.step[i] = PD_TLS_READ;
    }
}

/* Lets both sides take their steps of the handshake until each is through or has failed. */
static void shake_hands(void)
{
    for (int turn = 0; turn < 20; turn++) {
        int i = turn % 2 == 0 ? CLIENT : SERVER;
        if (all.step[i] == PD_TLS_READ || all.step[i] == PD_TLS_WRITE)
            all.step[i] = pd_tls_handshake(all.stream[i], &all.err[i]);
    }
}

static void expect_identity(int side, const char *text)
{
    pd_identity identity;

    pd_tls_identify(all.stream[side], &identity);
    assert_string_equal(identity.text, text);
}

static void with_token(void)
{
    pd_tls_files files = { .tokens = all.tokens };

    make(&files, &files, "localhost");
    shake_hands();
    assert_int_equal(all.step[CLIENT], PD_TLS_DONE);
    assert_int_equal(all.step[SERVER], PD_TLS_DONE);
}

static void expect_failure(int side, const char *why)
{
    assert_int_equal(all.step[side], PD_TLS_FAILED);
    if (strstr(all.err[side].text, why) == NULL) fail_msg("expected \"%s\", got \"%s\"", why, all.err[side].text);
}

/* Receives once into a buffer. Fails the test unless this gives an error with this text. */
static void expect_receive_failure(int side, const char *why)
{
    struct iovec span = { all.got, sizeof all.got };
    pd_error err = { 0 };

    assert_int_equal(pd_tls_receive(all.stream[side], &span, 1, &err), PD_UNAVAILABLE);
    if (strstr(err.text, why) == NULL) fail_msg("expected \"%s\", got \"%s\"", why, err.text);
}

/* ---- bytes ---- */

/* Cuts `n` bytes into spans of `slice` bytes. Returns the number of spans. */
static int cut(struct iovec *iov, int most, uint8_t *at, size_t n, size_t slice)
{
    int spans = 0;

    for (size_t done = 0; done < n && spans < most; done += slice, spans++)
        iov[spans] = (struct iovec){ at + done, n - done < slice ? n - done : slice };
    return spans;
}

/* Sends `bytes` bytes in spans of `out` bytes, and receives them in spans of `in` bytes. */
static void pass(size_t bytes, size_t out, size_t in)
{
    size_t sent = 0, got = 0;
    struct iovec iov[64];
    pd_error err;

    memset(all.got, 0, sizeof all.got);
    for (int turn = 0; got < bytes && turn < 100000; turn++) {
        ssize_t n = pd_tls_send(all.stream[CLIENT], iov, cut(iov, 64, all.sent + sent, bytes - sent, out), &err);
        assert_true(n >= 0);
        sent += (size_t)n;
        if (pd_tls_owes(all.stream[CLIENT])) pd_tls_flush(all.stream[CLIENT]);
        n = pd_tls_receive(all.stream[SERVER], iov, cut(iov, 64, all.got + got, bytes - got, in), &err);
        assert_true(n >= 0);
        got += (size_t)n;
    }
    assert_int_equal(got, bytes);
    assert_memory_equal(all.got, all.sent, bytes);
}

static void bytes_come_as_they_were_in_slices_of_every_size(void **state)
{
    static const size_t sizes[] = { 1,     2,     3,     7,     40,    64,    1000,  4096, 16383,
                                    16384, 16385, 20000, 32768, 49153, 65536, 99999, BYTES };
    (void)state;

    with_token();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++)
            pass(sizes[i] < 40 || sizes[j] < 40 ? 3000 : BYTES, sizes[i], sizes[j]);
}

static void small_slices_of_any_length_are_whole(void **state)
{
    (void)state;
    with_token();
    for (size_t i = 1; i <= 300; i++) pass(3 * i + 1, i, 301 - i);
}

static void spans_without_bytes_do_no_harm(void **state)
{
    struct iovec iov[3] = { { all.sent, 0 }, { all.sent, 5 }, { all.sent, 0 } };
    pd_error err;
    (void)state;

    with_token();
    assert_int_equal(pd_tls_send(all.stream[CLIENT], iov, 3, &err), 5);
    assert_int_equal(pd_tls_send(all.stream[CLIENT], iov, 1, &err), 0);
    iov[1] = (struct iovec){ all.got, 10 };
    assert_int_equal(pd_tls_receive(all.stream[SERVER], iov, 3, &err), 5);
    assert_int_equal(pd_tls_receive(all.stream[SERVER], iov, 3, &err), 0);
}

static void bytes_of_a_record_that_were_not_received_are_announced(void **state)
{
    struct iovec out = { all.sent, 100 }, in = { all.got, 60 };
    pd_error err;
    (void)state;

    with_token();
    assert_false(pd_tls_has_more(all.stream[SERVER]));
    assert_int_equal(pd_tls_send(all.stream[CLIENT], &out, 1, &err), 100);
    assert_int_equal(pd_tls_receive(all.stream[SERVER], &in, 1, &err), 60);
    assert_true(pd_tls_has_more(all.stream[SERVER]));
    assert_int_equal(pd_tls_receive(all.stream[SERVER], &in, 1, &err), 40);
    assert_false(pd_tls_has_more(all.stream[SERVER]));
}

static void a_part_of_a_record_is_not_announced(void **state)
{
    struct iovec in = { all.got, BYTES };
    uint8_t record[300];
    pd_error err;
    ssize_t n;
    (void)state;

    with_token();
    assert_int_equal(pd_tls_send(all.stream[CLIENT], &(struct iovec){ all.sent, 200 }, 1, &err), 200);
    n = recv(all.fd[SERVER], record, sizeof record, 0);
    assert_true(n > 200);
    for (ssize_t i = 0; i < n; i++) {
        assert_int_equal(pd_tls_receive(all.stream[SERVER], &in, 1, &err), 0);
        assert_false(pd_tls_has_more(all.stream[SERVER]));
        assert_int_equal(send(all.fd[CLIENT], record + i, 1, 0), 1);
    }
    assert_int_equal(pd_tls_receive(all.stream[SERVER], &in, 1, &err), 200);
}

/* Fills the socket from the client's side. Returns the number of bytes that were taken. */
static size_t fill_socket(void)
{
    size_t taken = 0;
    pd_error err;

    while (!pd_tls_owes(all.stream[CLIENT])) {
        struct iovec out = { all.sent, BYTES };
        ssize_t n = pd_tls_send(all.stream[CLIENT], &out, 1, &err);
        assert_true(n > 0);
        taken += (size_t)n;
    }
    return taken;
}

static size_t receive_all(void)
{
    struct iovec in = { all.got, BYTES };
    size_t got = 0;
    pd_error err;
    ssize_t n;

    do {
        pd_tls_flush(all.stream[CLIENT]);
        if ((n = pd_tls_receive(all.stream[SERVER], &in, 1, &err)) > 0) got += (size_t)n;
    } while (n > 0);
    return got;
}

static void a_full_socket_takes_nothing_more_and_loses_nothing(void **state)
{
    struct iovec out = { all.sent, BYTES };
    size_t taken;
    pd_error err;
    (void)state;

    with_token();
    taken = fill_socket();
    assert_int_equal(pd_tls_send(all.stream[CLIENT], &out, 1, &err), 0);
    memset(all.sent, 0xee,
           sizeof all.sent); /* the bytes still to be sent are a copy, so the caller may change its own */
    assert_int_equal(receive_all(), taken);
    assert_false(pd_tls_owes(all.stream[CLIENT]));
}

static void the_end_comes_behind_all_bytes_that_were_sent(void **state)
{
    struct iovec in = { all.got, BYTES };
    size_t taken;
    pd_error err;
    (void)state;

    with_token();
    taken = fill_socket();
    pd_tls_shut(all.stream[CLIENT]);
    assert_int_equal(receive_all(), taken);
    assert_int_equal(pd_tls_receive(all.stream[SERVER], &in, 1, &err), PD_CANCELLED);
    assert_int_equal(pd_tls_send(all.stream[SERVER], &(struct iovec){ all.sent, 9 }, 1, &err), 9);
    assert_int_equal(pd_tls_receive(all.stream[CLIENT], &in, 1, &err), 9); /* the other side goes on */
}

static void an_end_without_farewell_is_an_end(void **state)
{
    struct iovec in = { all.got, BYTES };
    pd_error err;
    (void)state;

    with_token();
    shutdown(all.fd[CLIENT], SHUT_WR);
    assert_int_equal(pd_tls_receive(all.stream[SERVER], &in, 1, &err), PD_CANCELLED);
}

static void a_changed_byte_breaks_the_connection(void **state)
{
    uint8_t record[200];
    ssize_t n;
    pd_error err;
    (void)state;

    with_token();
    assert_int_equal(pd_tls_send(all.stream[CLIENT], &(struct iovec){ all.sent, 50 }, 1, &err), 50);
    n = recv(all.fd[SERVER], record, sizeof record, 0);
    assert_true(n > 50);
    record[n - 20] ^= 1;
    assert_int_equal(send(all.fd[CLIENT], record, (size_t)n, 0), n);
    expect_receive_failure(SERVER, "TLS failed");
    expect_receive_failure(SERVER, "TLS failed"); /* and stays broken */
    assert_int_equal(pd_tls_send(all.stream[SERVER], &(struct iovec){ all.sent, 9 }, 1, &err), PD_UNAVAILABLE);
}

static void nothing_of_the_bytes_can_be_read_on_the_way(void **state)
{
    static const char secret[] = "layers.0.attention.weight";
    uint8_t seen[400];
    ssize_t n;
    pd_error err;
    (void)state;

    with_token();
    pd_tls_send(all.stream[CLIENT], &(struct iovec){ (void *)secret, sizeof secret }, 1, &err);
    n = recv(all.fd[SERVER], seen, sizeof seen, 0);
    assert_true(n > (ssize_t)sizeof secret);
    assert_null(memmem(seen, (size_t)n, secret, 8));
}

/* ---- tokens ---- */

static void both_sides_of_a_token_know_the_other(void **state)
{
    (void)state;
    with_token();
    expect_identity(SERVER, "token:alice");
    expect_identity(CLIENT, "token:alice");
}

static void both_keys_of_an_id_are_taken(void **state)
{
    char second[PD_TOKEN_LINE];
    pd_tls_files server = { .tokens = path("both") }, client = { .tokens = path("second") };
    (void)state;

    assert_int_equal(pd_token_new(second, "alice", NULL), PD_OK);
    pki_write_tokens(server.tokens, all.token, second);
    pki_write_tokens(client.tokens, second, NULL);
    make(&server, &client, "localhost");
    shake_hands();
    assert_int_equal(all.step[SERVER], PD_TLS_DONE);
    expect_identity(SERVER, "token:alice");
}

/* Returns how a server of tokens ends the handshake of a client with this token. */
static void shake_with(const char *line)
{
    pd_tls_files server = { .tokens = all.tokens }, client = { .tokens = path("other") };

    pki_write_tokens(client.tokens, line, NULL);
    make(&server, &client, "localhost");
    shake_hands();
}

static void a_wrong_key_and_an_unknown_name_are_refused_alike(void **state)
{
    char line[PD_TOKEN_LINE], first[PD_ERROR_TEXT];
    (void)state;

    strcpy(line, all.token);
    line[strlen(line) - 1] = line[strlen(line) - 1] == '0' ? '1' : '0';
    shake_with(line);
    expect_failure(SERVER, "the client's token is not one of those in tls.tokens, or its key differs");
    expect_failure(CLIENT, "the peer refused the token");
    strcpy(first, all.err[CLIENT].text);
    drop_ends();
    close(all.fd[0]);
    close(all.fd[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, all.fd), 0);
    assert_int_equal(pd_token_new(line, "nobody", NULL), PD_OK);
    shake_with(line);
    expect_failure(SERVER, "the client's token is not one of those in tls.tokens, or its key differs");
    assert_string_equal(all.err[CLIENT].text, first);
}

static void a_client_without_token_is_refused(void **state)
{
    pd_tls_files server = { .tokens = all.tokens }, client = { .ca = NULL };
    (void)state;

    make(&server, &client, "localhost");
    shake_hands();
    expect_failure(SERVER, "the client has no token");
    expect_failure(CLIENT, "it knows its clients by tokens");
}

/* ---- certificates ---- */

typedef struct papers {
    pki_authority *authority;
    pd_tls_files server, client;
} papers;

/* Writes certificates of one authority for both sides. */
static papers issue(const char *server_names, int server_days, const char *client_names, int client_days)
{
    papers p = { .authority = pki_new("authority", path("ca")) };

    p.server = (pd_tls_files){ path("server.pem"), path("server.key"), path("ca"), NULL };
    p.client = (pd_tls_files){ path("client.pem"), path("client.key"), path("ca"), NULL };
    pki_issue(p.authority, server_names, server_days, p.server.certificate, p.server.key);
    pki_issue(p.authority, client_names, client_days, p.client.certificate, p.client.key);
    return p;
}

static void shake_papers(papers *p, const char *host)
{
    make(&p->server, &p->client, host);
    shake_hands();
    pki_free(p->authority);
}

static void certificates_name_both_sides(void **state)
{
    papers p = issue("DNS:localhost,IP:127.0.0.1", 2, "email:a@b.org,URI:spiffe://x/worker,DNS:worker-1,DNS:other", 2);
    (void)state;

    shake_papers(&p, "localhost");
    assert_int_equal(all.step[CLIENT], PD_TLS_DONE);
    assert_int_equal(all.step[SERVER], PD_TLS_DONE);
    expect_identity(SERVER, "certificate:worker-1");
    expect_identity(CLIENT, "certificate:localhost");
}

static void a_number_is_a_name_too_and_a_uri_names_a_client(void **state)
{
    papers p = issue("IP:127.0.0.1", 2, "email:a@b.org,URI:spiffe://x/worker", 2);
    (void)state;

    shake_papers(&p, "127.0.0.1");
    assert_int_equal(all.step[SERVER], PD_TLS_DONE);
    expect_identity(SERVER, "certificate:spiffe://x/worker");
}

static void a_server_of_another_name_is_refused(void **state)
{
    papers p = issue("DNS:other.example", 2, "DNS:worker", 2);
    (void)state;

    shake_papers(&p, "localhost");
    expect_failure(CLIENT, "not trusted: hostname mismatch");
    expect_failure(SERVER, "refused our certificate");
}

static void an_expired_server_is_refused(void **state)
{
    papers p = issue("DNS:localhost", -1, "DNS:worker", 2);
    (void)state;

    shake_papers(&p, "localhost");
    expect_failure(CLIENT, "certificate has expired");
    expect_failure(SERVER, "it has expired");
}

static void an_expired_client_is_refused(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", -1);
    (void)state;

    shake_papers(&p, "localhost");
    expect_failure(SERVER, "certificate has expired");
    assert_int_equal(all.step[CLIENT], PD_TLS_DONE); /* in TLS 1.3 a client hears it with its first answer */
    expect_receive_failure(CLIENT, "it has expired");
}

static void a_client_without_a_name_is_refused(void **state)
{
    papers p = issue("DNS:localhost", 2, NULL, 2);
    (void)state;

    shake_papers(&p, "localhost");
    expect_failure(SERVER, "has no name");
}

static void a_client_of_a_foreign_authority_is_refused(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    pki_authority *foreign = pki_new("foreign", NULL);
    (void)state;

    pki_issue(foreign, "DNS:worker", 2, p.client.certificate, p.client.key);
    pki_free(foreign);
    shake_papers(&p, "localhost");
    expect_failure(SERVER, "not trusted: unable to get local issuer certificate");
    expect_receive_failure(CLIENT, "does not know the authority");
}

static void a_client_without_certificate_is_refused(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    (void)state;

    p.client.certificate = p.client.key = NULL;
    shake_papers(&p, "localhost");
    expect_failure(SERVER, "neither token nor certificate");
    expect_receive_failure(CLIENT, "the server wants to know its clients");
}

static void a_client_needs_no_certificate_where_none_is_asked_for(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    (void)state;

    p.client.certificate = p.client.key = p.server.ca = NULL;
    shake_papers(&p, "localhost");
    assert_int_equal(all.step[SERVER], PD_TLS_DONE);
    assert_false(pd_tls_identifies(all.context[SERVER]));
    expect_identity(SERVER, "anyone");
}

static void a_token_is_not_given_up_for_a_certificate(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    (void)state;

    p.client = (pd_tls_files){ .tokens = all.tokens };
    p.server.ca = NULL;
    shake_papers(&p, "localhost");
    expect_failure(CLIENT, "the server takes no tokens");
}

static void a_server_with_both_takes_both(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    (void)state;

    p.server.tokens = all.tokens;
    p.client = (pd_tls_files){ .tokens = all.tokens };
    shake_papers(&p, "localhost");
    assert_int_equal(all.step[SERVER], PD_TLS_DONE);
    expect_identity(SERVER, "token:alice");
}

/* ---- files ---- */

static void expect_server_refusal(const pd_tls_files *files, int code, const char *why)
{
    pd_tls_context *context = NULL;
    pd_error err;

    assert_int_equal(pd_tls_server(&context, files, &err), code);
    if (strstr(err.text, why) == NULL) fail_msg("expected \"%s\", got \"%s\"", why, err.text);
}

static void files_that_are_of_no_use_are_refused_by_name(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    pd_tls_files files = p.server;
    (void)state;

    expect_server_refusal(&(pd_tls_files){ .ca = path("ca") }, PD_INVALID_ARGUMENT, "needs tls.tokens, or");
    expect_server_refusal(&(pd_tls_files){ .certificate = p.server.certificate }, PD_INVALID_ARGUMENT,
                          "tls.certificate is set without tls.key");
    expect_server_refusal(&(pd_tls_files){ .tokens = path("none") }, PD_NOT_FOUND, "tls.tokens: ");
    files.key = p.client.key;
    expect_server_refusal(&files, PD_INVALID_ARGUMENT, "tls.key: ");
    files = p.server;
    files.ca = all.tokens;
    expect_server_refusal(&files, PD_INVALID_ARGUMENT, "tls.client_ca: ");
    files = p.server;
    files.certificate = all.tokens;
    expect_server_refusal(&files, PD_INVALID_ARGUMENT, "tls.certificate: ");
    pki_free(p.authority);
}

static void secrets_that_others_can_read_are_refused(void **state)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    const pd_tls_files files = { .tokens = all.tokens };
    char command[160];
    pd_tls_context *context;
    (void)state;

    pki_write(all.tokens, all.token, 0604);
    snprintf(command, sizeof command, "chmod 600 %s", all.tokens);
    expect_server_refusal(&files, PD_PERMISSION_DENIED, command);
    pki_write(all.tokens, all.token, 0620);
    expect_server_refusal(&files, PD_PERMISSION_DENIED, command);
    pki_write(all.tokens, all.token, 0440); /* as systemd makes credentials */
    assert_int_equal(pd_tls_server(&context, &files, NULL), PD_OK);
    pd_tls_unref(context);
    snprintf(command, sizeof command, "chmod 644 %s", p.server.key);
    assert_int_equal(system(command), 0);
    expect_server_refusal(&p.server, PD_PERMISSION_DENIED, "tls.key: others can read or change");
    pki_free(p.authority);
}

/* ---- memory ---- */

static int try_connection(const void *unused)
{
    pd_tls_files files = { .tokens = all.tokens };
    pd_tls_context *context;
    pd_tls_stream *stream;
    int rc = pd_tls_server(&context, &files, NULL);
    (void)unused;

    if (rc != PD_OK) return rc;
    if ((rc = pd_tls_stream_new(&stream, context, all.fd[SERVER], NULL, NULL)) == PD_OK) pd_tls_stream_free(stream);
    pd_tls_unref(context);
    return rc;
}

static void says_that_memory_is_out(void **state)
{
    (void)state;
    assert_true(oom_each(try_connection, NULL) >= 3);
}

static void bytes_that_cannot_be_kept_break_the_connection(void **state)
{
    struct iovec out = { all.sent, BYTES };
    ssize_t n = 1;
    pd_error err;
    (void)state;

    with_token();
    oom_arm(0);
    while (n > 0) n = pd_tls_send(all.stream[CLIENT], &out, 1, &err);
    assert_true(oom_disarm());
    assert_int_equal(n, PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "out of memory"));
}

#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(bytes_come_as_they_were_in_slices_of_every_size),
        CASE(small_slices_of_any_length_are_whole),
        CASE(spans_without_bytes_do_no_harm),
        CASE(bytes_of_a_record_that_were_not_received_are_announced),
        CASE(a_part_of_a_record_is_not_announced),
        CASE(a_full_socket_takes_nothing_more_and_loses_nothing),
        CASE(the_end_comes_behind_all_bytes_that_were_sent),
        CASE(an_end_without_farewell_is_an_end),
        CASE(a_changed_byte_breaks_the_connection),
        CASE(nothing_of_the_bytes_can_be_read_on_the_way),
        CASE(both_sides_of_a_token_know_the_other),
        CASE(both_keys_of_an_id_are_taken),
        CASE(a_wrong_key_and_an_unknown_name_are_refused_alike),
        CASE(a_client_without_token_is_refused),
        CASE(certificates_name_both_sides),
        CASE(a_number_is_a_name_too_and_a_uri_names_a_client),
        CASE(a_server_of_another_name_is_refused),
        CASE(an_expired_server_is_refused),
        CASE(an_expired_client_is_refused),
        CASE(a_client_without_a_name_is_refused),
        CASE(a_client_of_a_foreign_authority_is_refused),
        CASE(a_client_without_certificate_is_refused),
        CASE(a_client_needs_no_certificate_where_none_is_asked_for),
        CASE(a_token_is_not_given_up_for_a_certificate),
        CASE(a_server_with_both_takes_both),
        CASE(files_that_are_of_no_use_are_refused_by_name),
        CASE(secrets_that_others_can_read_are_refused),
        CASE(says_that_memory_is_out),
        CASE(bytes_that_cannot_be_kept_break_the_connection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
