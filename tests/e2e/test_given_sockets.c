/* Tests sockets that the service manager opens for the daemon: their names say what is spoken there, and other machines
 * reach them under the same conditions as addresses of the configuration. */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "test.h"
#include "http_ask.h"
#include "paramd/client.h"
#include "tls_scene.h"

enum { MOST = 3, FIRST_FREE = 50 };

/* Sockets as a service manager has opened them, and a script that stands in the daemon's place and passes them on. */
typedef struct manager {
    tls_scene *scene; /* its files are the daemon's keys; its daemon is not started */
    char script[96];
    char *bin; /* the folder of the real programs */
    int fds[MOST], ports[MOST], n;
} manager;

static void set_up(manager *m)
{
    m->scene = tls_scene_new();
    m->bin = strdup(getenv("PARAMD_BIN"));
    snprintf(m->script, sizeof m->script, "%s/paramd", m->scene->folder);
}

static void tear_down(manager *m)
{
    for (int i = 0; i < m->n; i++) close(m->fds[i]);
    setenv("PARAMD_BIN", m->bin, 1);
    assert_int_equal(tls_scene_end(m->scene), 0);
    free(m->bin);
}

/* Adds a socket. Its descriptor is out of the way of those that the script passes on, which begin with 3. */
static void add(manager *m, int fd)
{
    m->fds[m->n] = fcntl(fd, F_DUPFD, FIRST_FREE);
    assert_true(m->fds[m->n] >= FIRST_FREE);
    close(fd);
    m->n++;
}

static void add_tcp(manager *m, in_addr_t host)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(host) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    m->ports[m->n] = ntohs(address.sin_port);
    add(m, fd);
}

/* Writes the script. Like systemd, it tells the daemon with LISTEN_PID, LISTEN_FDS and LISTEN_FDNAMES which sockets are
 * open for it; `names` NULL: they have no names. */
static void pass_on(const manager *m, const char *names)
{
    FILE *script = fopen(m->script, "w");

    assert_non_null(script);
    fprintf(script, "#!/bin/bash\nexec");
    for (int i = 0; i < m->n; i++) fprintf(script, " %d<&%d", 3 + i, m->fds[i]);
    fprintf(script, "\nexport LISTEN_PID=$$ LISTEN_FDS=%d%s%s\n", m->n, names != NULL ? " LISTEN_FDNAMES=" : "",
            names != NULL ? names : "");
    fprintf(script, "exec %s/paramd \"$@\"\n", m->bin);
    fclose(script);
    assert_int_equal(chmod(m->script, 0700), 0);
    setenv("PARAMD_BIN", m->scene->folder, 1);
}

/* Connects an operator. Returns PD_OK if it is welcomed. `token` NULL: it has none. */
static int greet(const char *scheme, int port, const char *token)
{
    char url[64];
    pd_client *client;
    pd_client_options options = { .urls = url, .job = "", .impatient = true, .token_file = token };
    int rc;

    snprintf(url, sizeof url, "%s://127.0.0.1:%d", scheme, port);
    options.deadline = patient(10);
    rc = pd_client_open(&client, &options, NULL);
    if (rc == PD_OK) pd_client_close(client);
    return rc;
}

/* Expects that the daemon does not start, and says why. */
static void expect_refused(const manager *m, const char *names, const char *const *flags, const char *why)
{
    char text[4096];

    pass_on(m, names);
    assert_true(daemon_refuses(flags, text, sizeof text) > 0);
    if (strstr(text, why) == NULL) fail_msg("expected \"%s\" in:\n%s", why, text);
}

FIXTURE(manager, set_up, tear_down);

TEST(a_socket_without_a_name_takes_frames, manager *m)
{
    test_daemon *daemon;

    add_tcp(m, INADDR_LOOPBACK);
    pass_on(m, NULL);
    daemon = daemon_start(NULL);
    assert_int_equal(daemon->port, m->ports[0]); /* the address of the flag --listen does not count */
    assert_int_equal(greet("tcp", m->ports[0], NULL), PD_OK);
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(the_name_of_each_socket_says_what_is_spoken_there, manager *m)
{
    const char *token = m->scene->token;
    test_daemon *daemon;

    for (int i = 0; i < 3; i++) add_tcp(m, INADDR_LOOPBACK);
    pass_on(m, "tls:paramd.socket:http");
    daemon = daemon_start((const char *const[]){ "--tls-tokens", m->scene->tokens, NULL });
    assert_int_equal(greet("tls", m->ports[0], token), PD_OK);
    assert_int_not_equal(greet("tcp", m->ports[0], NULL), PD_OK);
    assert_int_equal(greet("tcp", m->ports[1], NULL), PD_OK);
    assert_int_not_equal(greet("tls", m->ports[1], token), PD_OK);
    assert_true(http_answers(m->ports[2], "GET /readyz HTTP/1.0\r\n\r\n", "\r\n\r\nready\n"));
    assert_true(http_answers(m->ports[2], "GET /metrics HTTP/1.0\r\n\r\n", "200 OK"));
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

/* A socket for HTTP takes the place of http.listen alone: the addresses of server.listen stay. */
TEST(a_socket_for_http_leaves_the_addresses_for_workers, manager *m)
{
    test_daemon *daemon;

    add_tcp(m, INADDR_LOOPBACK);
    pass_on(m, "http");
    daemon = daemon_start((const char *const[]){ "--http-listen=127.0.0.1:0", NULL });
    assert_true(daemon_says(daemon, "listening on 127.0.0.1:", patient(10)));
    assert_int_equal(greet("tcp", daemon_port_of(daemon, "listening on 127.0.0.1:"), NULL), PD_OK);
    assert_int_equal(daemon_port_of(daemon, "listening for HTTP on 127.0.0.1:"), m->ports[0]);
    assert_true(http_answers(m->ports[0], "GET /healthz HTTP/1.0\r\n\r\n", "\r\n\r\nok\n"));
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}

TEST(a_socket_for_tls_needs_keys, manager *m)
{
    add_tcp(m, INADDR_LOOPBACK);
    expect_refused(m, "tls", NULL, "a socket named tls (LISTEN_FDNAMES), which needs tls.tokens, or tls.certificate");
}

TEST(there_is_no_tls_on_a_unix_socket, manager *m)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);

    snprintf(address.sun_path, sizeof address.sun_path, "%s/socket", m->scene->folder);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(fd, 8), 0);
    add(m, fd);
    expect_refused(m, "tls", (const char *const[]){ "--tls-tokens", m->scene->tokens, NULL },
                   "a Unix socket named tls: there is no TLS on Unix sockets");
}

TEST(sockets_that_other_machines_reach_need_credentials, manager *m)
{
    const tls_scene *scene = m->scene;
    const char *const alone[] = { "--tls-certificate", scene->server_pem, "--tls-key", scene->server_key, NULL };

    add_tcp(m, INADDR_ANY);
    expect_refused(m, "paramd.socket", NULL, "refusing to listen on 0.0.0.0:");
    expect_refused(m, "tls", alone, "refusing to listen on 0.0.0.0:"); /* a certificate alone lets everybody in */
    expect_refused(m, "http", NULL, "http.listen: refusing to listen on 0.0.0.0:");
}

TEST(with_credentials_other_machines_may_reach_them, manager *m)
{
    test_daemon *daemon;
    char file[96];

    snprintf(file, sizeof file, "%s/http-token", m->scene->folder);
    pki_write(file, "0123456789abcdef\n", 0600);
    add_tcp(m, INADDR_ANY);
    add_tcp(m, INADDR_ANY);
    pass_on(m, "tls:http");
    daemon = daemon_start(
        (const char *const[]){ "--tls-tokens", m->scene->tokens, "--http-token", file, "--listen=127.0.0.1:0", NULL });
    assert_int_equal(greet("tls", m->ports[0], m->scene->token), PD_OK);
    assert_true(http_answers(m->ports[1], "GET /metrics HTTP/1.0\r\n\r\n", "401 Unauthorized"));
    assert_int_equal(daemon_stop(daemon, patient(10)), 0);
}
