/* Tests who trusts whom in a handshake of TLS: by tokens, by certificates, and which files are refused. */
#include <sys/socket.h>

#include "test.h"
#include "pki.h"

EACH_TEST(tls_ends_set_up, tls_ends_tear_down);

TEST(both_sides_of_a_token_know_the_other)
{
    tls_ends_with_token();
    tls_ends_expect_identity(TLS_SERVER, "token:alice");
    tls_ends_expect_identity(TLS_CLIENT, "token:alice");
}

TEST(both_keys_of_an_id_are_taken)
{
    char second[PD_TOKEN_LINE];
    pd_tls_files server = { .tokens = tls_ends_path("both") }, client = { .tokens = tls_ends_path("second") };

    assert_int_equal(pd_token_new(second, "alice", NULL), PD_OK);
    pki_write_tokens(server.tokens, tls_ends.token, second);
    pki_write_tokens(client.tokens, second, NULL);
    tls_ends_make(&server, &client, "localhost");
    tls_ends_shake_hands();
    assert_int_equal(tls_ends.step[TLS_SERVER], PD_TLS_DONE);
    tls_ends_expect_identity(TLS_SERVER, "token:alice");
}

/* Lets a client with this token shake hands with the server, which knows the tokens of tls_ends. */
static void shake_with(const char *line)
{
    pd_tls_files server = { .tokens = tls_ends.tokens }, client = { .tokens = tls_ends_path("other") };

    pki_write_tokens(client.tokens, line, NULL);
    tls_ends_make(&server, &client, "localhost");
    tls_ends_shake_hands();
}

TEST(a_wrong_key_and_an_unknown_name_are_refused_alike)
{
    char line[PD_TOKEN_LINE], first[PD_ERROR_TEXT];

    strcpy(line, tls_ends.token);
    line[strlen(line) - 1] = line[strlen(line) - 1] == '0' ? '1' : '0';
    shake_with(line);
    tls_ends_expect_failure(TLS_SERVER, "the client's token is not in tls.tokens, or its key differs");
    tls_ends_expect_failure(TLS_CLIENT, "the peer refused the token");
    strcpy(first, tls_ends.err[TLS_CLIENT].text);
    tls_ends_drop();
    close(tls_ends.fd[0]);
    close(tls_ends.fd[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, tls_ends.fd), 0);
    assert_int_equal(pd_token_new(line, "nobody", NULL), PD_OK);
    shake_with(line);
    tls_ends_expect_failure(TLS_SERVER, "the client's token is not in tls.tokens, or its key differs");
    assert_string_equal(tls_ends.err[TLS_CLIENT].text, first);
}

TEST(a_client_without_token_is_refused)
{
    pd_tls_files server = { .tokens = tls_ends.tokens }, client = { .ca = NULL };

    tls_ends_make(&server, &client, "localhost");
    tls_ends_shake_hands();
    tls_ends_expect_failure(TLS_SERVER, "the client has no token");
    tls_ends_expect_failure(TLS_CLIENT, "it expects a token");
}

typedef struct papers {
    pki_authority *authority;
    pd_tls_files server, client;
} papers;

/* Writes certificates of one authority for both sides. */
static papers issue(const char *server_names, int server_days, const char *client_names, int client_days)
{
    papers p = { .authority = pki_new("authority", tls_ends_path("ca")) };

    p.server = (pd_tls_files){ .certificate = tls_ends_path("server.pem"),
                               .key = tls_ends_path("server.key"),
                               .ca = tls_ends_path("ca") };
    p.client = (pd_tls_files){ .certificate = tls_ends_path("client.pem"),
                               .key = tls_ends_path("client.key"),
                               .ca = tls_ends_path("ca") };
    pki_issue(p.authority, server_names, server_days, p.server.certificate, p.server.key);
    pki_issue(p.authority, client_names, client_days, p.client.certificate, p.client.key);
    return p;
}

static void shake_papers(papers *p, const char *host)
{
    tls_ends_make(&p->server, &p->client, host);
    tls_ends_shake_hands();
    pki_free(p->authority);
}

TEST(certificates_name_both_sides)
{
    papers p = issue("DNS:localhost,IP:127.0.0.1", 2, "email:a@b.org,URI:spiffe://x/worker,DNS:worker-1,DNS:other", 2);

    shake_papers(&p, "localhost");
    assert_int_equal(tls_ends.step[TLS_CLIENT], PD_TLS_DONE);
    assert_int_equal(tls_ends.step[TLS_SERVER], PD_TLS_DONE);
    tls_ends_expect_identity(TLS_SERVER, "certificate:worker-1");
    tls_ends_expect_identity(TLS_CLIENT, "certificate:localhost");
}

TEST(a_number_is_a_name_too_and_a_uri_names_a_client)
{
    papers p = issue("IP:127.0.0.1", 2, "email:a@b.org,URI:spiffe://x/worker", 2);

    shake_papers(&p, "127.0.0.1");
    assert_int_equal(tls_ends.step[TLS_SERVER], PD_TLS_DONE);
    tls_ends_expect_identity(TLS_SERVER, "certificate:spiffe://x/worker");
}

TEST(a_server_of_another_name_is_refused)
{
    papers p = issue("DNS:other.example", 2, "DNS:worker", 2);

    shake_papers(&p, "localhost");
    tls_ends_expect_failure(TLS_CLIENT, "not trusted: hostname mismatch");
    tls_ends_expect_failure(TLS_SERVER, "refused our certificate");
}

/* Lets a client that expects `host` shake hands with a server whose certificate has these names and that common name.
 * Returns whether the client trusts it. */
static bool trusts(const char *common, const char *names, const char *host)
{
    papers p = issue(names, 2, "DNS:worker", 2);
    bool done;

    pki_issue_common(p.authority, common, names, 2, p.server.certificate, p.server.key);
    shake_papers(&p, host);
    done = tls_ends.step[TLS_CLIENT] == PD_TLS_DONE;
    if (!done) tls_ends_expect_failure(TLS_CLIENT, "its subjectAltName must contain the host of the address");
    tls_ends_drop();
    close(tls_ends.fd[0]);
    close(tls_ends.fd[1]);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, tls_ends.fd), 0);
    return done;
}

TEST(a_common_name_alone_is_no_name_of_a_server)
{
    assert_true(trusts("another", "DNS:ps.example", "ps.example"));
    assert_false(trusts("ps.example", NULL, "ps.example"));
    assert_false(trusts("ps.example", "email:a@ps.example", "ps.example"));
    assert_false(trusts("ps.example", "IP:10.0.0.1", "ps.example"));
}

TEST(an_address_must_be_in_the_certificate_as_an_address)
{
    assert_true(trusts("another", "IP:10.0.0.1", "10.0.0.1"));
    assert_true(trusts("another", "IP:fd00::1", "fd00::1"));
    assert_false(trusts("10.0.0.1", NULL, "10.0.0.1"));
    assert_false(trusts("10.0.0.1", "DNS:10.0.0.1", "10.0.0.1"));
    assert_false(trusts("another", "IP:10.0.0.2", "10.0.0.1"));
}

TEST(a_wildcard_stands_for_one_label)
{
    assert_true(trusts("another", "DNS:*.example.org", "ps.example.org"));
    assert_false(trusts("another", "DNS:*.example.org", "a.ps.example.org"));
    assert_false(trusts("another", "DNS:*.example.org", "example.org"));
}

TEST(an_expired_server_is_refused)
{
    papers p = issue("DNS:localhost", -1, "DNS:worker", 2);

    shake_papers(&p, "localhost");
    tls_ends_expect_failure(TLS_CLIENT, "certificate has expired");
    tls_ends_expect_failure(TLS_SERVER, "it has expired");
}

TEST(an_expired_client_is_refused)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", -1);

    shake_papers(&p, "localhost");
    tls_ends_expect_failure(TLS_SERVER, "certificate has expired");
    assert_int_equal(tls_ends.step[TLS_CLIENT], PD_TLS_DONE); /* in TLS 1.3 the error comes with the first answer */
    tls_ends_expect_receive_failure(TLS_CLIENT, "it has expired");
}

TEST(a_client_without_a_name_is_refused)
{
    papers p = issue("DNS:localhost", 2, NULL, 2);

    shake_papers(&p, "localhost");
    tls_ends_expect_failure(TLS_SERVER, "has no name");
}

TEST(a_client_of_a_foreign_authority_is_refused)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    pki_authority *foreign = pki_new("foreign", NULL);

    pki_issue(foreign, "DNS:worker", 2, p.client.certificate, p.client.key);
    pki_free(foreign);
    shake_papers(&p, "localhost");
    tls_ends_expect_failure(TLS_SERVER, "not trusted: unable to get local issuer certificate");
    tls_ends_expect_receive_failure(TLS_CLIENT, "unknown authority");
}

/* Makes a server whose list of revoked certificates is that of `authority`, and lets it refuse the client. */
static void shake_with_list(papers *p, const pki_authority *authority, const char *revoked, int days)
{
    p->server.crl = tls_ends_path("crl");
    pki_revoke(authority != NULL ? authority : p->authority, revoked, days, p->server.crl);
    shake_papers(p, "localhost");
}

TEST(a_revoked_client_is_refused)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);

    shake_with_list(&p, NULL, p.client.certificate, 2);
    tls_ends_expect_failure(TLS_SERVER, "certificate revoked");
    tls_ends_expect_receive_failure(TLS_CLIENT, "its authority has revoked it");
}

TEST(a_client_is_told_that_the_list_of_revoked_certificates_has_expired)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);

    shake_with_list(&p, NULL, NULL, -1);
    tls_ends_expect_failure(TLS_SERVER, "CRL has expired");
    tls_ends_expect_receive_failure(TLS_CLIENT, "or the peer's list of revoked certificates (tls.crl) has");
}

TEST(a_client_is_told_that_its_authority_has_no_list_of_revoked_certificates)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    pki_authority *other = pki_new("other", NULL);

    shake_with_list(&p, other, NULL, 2);
    pki_free(other);
    tls_ends_expect_failure(TLS_SERVER, "unable to get certificate CRL");
    tls_ends_expect_receive_failure(TLS_CLIENT, "or no list of revoked certificates");
}

TEST(a_client_without_certificate_is_refused)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);

    p.client.certificate = p.client.key = NULL;
    shake_papers(&p, "localhost");
    tls_ends_expect_failure(TLS_SERVER, "neither token nor certificate");
    tls_ends_expect_receive_failure(TLS_CLIENT, "the server requires authentication");
}

TEST(a_client_needs_no_certificate_where_none_is_asked_for)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);

    p.client.certificate = p.client.key = p.server.ca = NULL;
    shake_papers(&p, "localhost");
    assert_int_equal(tls_ends.step[TLS_SERVER], PD_TLS_DONE);
    assert_false(pd_tls_identifies(tls_ends.context[TLS_SERVER]));
    tls_ends_expect_identity(TLS_SERVER, "anyone");
}

TEST(a_token_is_not_given_up_for_a_certificate)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);

    p.client = (pd_tls_files){ .tokens = tls_ends.tokens };
    p.server.ca = NULL;
    shake_papers(&p, "localhost");
    tls_ends_expect_failure(TLS_CLIENT, "the server accepts no tokens");
}

TEST(a_server_with_both_takes_both)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);

    p.server.tokens = tls_ends.tokens;
    p.client = (pd_tls_files){ .tokens = tls_ends.tokens };
    shake_papers(&p, "localhost");
    assert_int_equal(tls_ends.step[TLS_SERVER], PD_TLS_DONE);
    tls_ends_expect_identity(TLS_SERVER, "token:alice");
}

static void expect_server_refusal(const pd_tls_files *files, int code, const char *why)
{
    pd_tls_context *context = NULL;
    pd_error err;

    assert_int_equal(pd_tls_server(&context, files, &err), code);
    if (strstr(err.text, why) == NULL) fail_msg("expected \"%s\", got \"%s\"", why, err.text);
}

TEST(files_that_are_of_no_use_are_refused_by_name)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    pd_tls_files files = p.server;

    expect_server_refusal(&(pd_tls_files){ .ca = tls_ends_path("ca") }, PD_INVALID_ARGUMENT, "needs tls.tokens, or");
    expect_server_refusal(&(pd_tls_files){ .certificate = p.server.certificate }, PD_INVALID_ARGUMENT,
                          "tls.certificate is set without tls.key");
    expect_server_refusal(&(pd_tls_files){ .tokens = tls_ends_path("none") }, PD_NOT_FOUND, "tls.tokens: ");
    files.key = p.client.key;
    expect_server_refusal(&files, PD_INVALID_ARGUMENT, "tls.key: ");
    files = p.server;
    files.ca = tls_ends.tokens;
    expect_server_refusal(&files, PD_INVALID_ARGUMENT, "tls.client_ca: ");
    files = p.server;
    files.certificate = tls_ends.tokens;
    expect_server_refusal(&files, PD_INVALID_ARGUMENT, "tls.certificate: ");
    pki_free(p.authority);
}

TEST(secrets_that_others_can_read_are_refused)
{
    papers p = issue("DNS:localhost", 2, "DNS:worker", 2);
    const pd_tls_files files = { .tokens = tls_ends.tokens };
    char command[160];
    pd_tls_context *context;

    pki_write(tls_ends.tokens, tls_ends.token, 0604);
    snprintf(command, sizeof command, "chmod 600 %s", tls_ends.tokens);
    expect_server_refusal(&files, PD_PERMISSION_DENIED, command);
    pki_write(tls_ends.tokens, tls_ends.token, 0620);
    expect_server_refusal(&files, PD_PERMISSION_DENIED, command);
    pki_write(tls_ends.tokens, tls_ends.token, 0440); /* as systemd makes credentials */
    assert_int_equal(pd_tls_server(&context, &files, NULL), PD_OK);
    pd_tls_unref(context);
    snprintf(command, sizeof command, "chmod 644 %s", p.server.key);
    assert_int_equal(system(command), 0);
    expect_server_refusal(&p.server, PD_PERMISSION_DENIED, "tls.key: others can read or change");
    pki_free(p.authority);
}
