/* tls_ends.c - both sides of a TLS connection over a pair of sockets, on one thread. */
#include "tls_ends.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "pki.h"
#include "test.h"

pd_tls_ends tls_ends;

const char *tls_ends_path(const char *name)
{
    static char text[8][128];
    static int at;

    at = (at + 1) % 8;
    snprintf(text[at], sizeof text[at], "%s/%s", tls_ends.folder, name);
    return text[at];
}

int tls_ends_set_up(void **state)
{
    memset(&tls_ends, 0, sizeof tls_ends);
    strcpy(tls_ends.folder, "/tmp/paramd-tls-XXXXXX");
    assert_non_null(mkdtemp(tls_ends.folder));
    signal(SIGPIPE, SIG_IGN);
    assert_int_equal(pd_token_new(tls_ends.token, "alice", NULL), PD_OK);
    snprintf(tls_ends.tokens, sizeof tls_ends.tokens, "%s", tls_ends_path("tokens"));
    pki_write_tokens(tls_ends.tokens, tls_ends.token, NULL);
    for (size_t i = 0; i < TLS_BYTES; i++) tls_ends.sent[i] = (uint8_t)(i * 7 + i / 251);
    *state = &tls_ends;
    return socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, tls_ends.fd);
}

void tls_ends_drop(void)
{
    for (int i = 0; i < 2; i++) {
        pd_tls_stream_free(tls_ends.stream[i]);
        pd_tls_unref(tls_ends.context[i]);
        tls_ends.stream[i] = NULL;
        tls_ends.context[i] = NULL;
    }
}

int tls_ends_tear_down(void **state)
{
    char command[160];
    (void)state;

    tls_ends_drop();
    close(tls_ends.fd[0]);
    close(tls_ends.fd[1]);
    snprintf(command, sizeof command, "rm -rf %s", tls_ends.folder);
    return system(command);
}

/* Makes both sides; `host` is the name that the client expects. */
void tls_ends_make(const pd_tls_files *server, const pd_tls_files *client, const char *host)
{
    pd_error err;

    if (pd_tls_server(&tls_ends.context[TLS_SERVER], server, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_tls_client(&tls_ends.context[TLS_CLIENT], client, &err) != PD_OK) fail_msg("%s", err.text);
    for (int i = 0; i < 2; i++) {
        const char *expected = i == TLS_CLIENT ? host : NULL;
        assert_int_equal(pd_tls_stream_new(&tls_ends.stream[i], tls_ends.context[i], tls_ends.fd[i], expected, &err),
                         PD_OK);
        tls_ends.step[i] = PD_TLS_READ;
    }
}

/* Lets both sides take their steps of the handshake until each is through or has failed. */
void tls_ends_shake_hands(void)
{
    for (int turn = 0; turn < 20; turn++) {
        int i = turn % 2 == 0 ? TLS_CLIENT : TLS_SERVER;
        if (tls_ends.step[i] == PD_TLS_READ || tls_ends.step[i] == PD_TLS_WRITE)
            tls_ends.step[i] = pd_tls_handshake(tls_ends.stream[i], &tls_ends.err[i]);
    }
}

void tls_ends_expect_identity(int side, const char *text)
{
    pd_identity identity;

    pd_tls_identify(tls_ends.stream[side], &identity);
    assert_string_equal(identity.text, text);
}

void tls_ends_with_token(void)
{
    pd_tls_files files = { .tokens = tls_ends.tokens };

    tls_ends_make(&files, &files, "localhost");
    tls_ends_shake_hands();
    assert_int_equal(tls_ends.step[TLS_CLIENT], PD_TLS_DONE);
    assert_int_equal(tls_ends.step[TLS_SERVER], PD_TLS_DONE);
}

void tls_ends_expect_failure(int side, const char *why)
{
    assert_int_equal(tls_ends.step[side], PD_TLS_FAILED);
    if (strstr(tls_ends.err[side].text, why) == NULL)
        fail_msg("expected \"%s\", got \"%s\"", why, tls_ends.err[side].text);
}

/* Receives once into a buffer. Fails the test unless this gives an error with this text. */
void tls_ends_expect_receive_failure(int side, const char *why)
{
    struct iovec span = { tls_ends.got, sizeof tls_ends.got };
    pd_error err = { 0 };

    assert_int_equal(pd_tls_receive(tls_ends.stream[side], &span, 1, &err), PD_UNAVAILABLE);
    if (strstr(err.text, why) == NULL) fail_msg("expected \"%s\", got \"%s\"", why, err.text);
}
