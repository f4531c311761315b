/* etcd_process.c - starts real etcd members and ends them. */
#define _GNU_SOURCE /* mkdtemp */
#include "etcd_process.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <jansson.h>

#include "test.h"
#include "base64.h"
#include "daemon_process.h"
#include "pki.h"

/* Returns the program: a path, or a name that is looked up. */
static const char *program(void)
{
    const char *path = getenv("PARAMD_TEST_ETCD");

    return path != NULL && path[0] != '\0' ? path : "etcd";
}

bool etcd_is_there(void)
{
    char command[512];

    snprintf(command, sizeof command, "command -v '%.400s' > /dev/null", program());
    return system(command) == 0;
}

/* Returns the flag that says which tokens a member makes: the key of those that end is in a file. */
static const char *tokens_flag(const test_etcd *etcd, char *out, size_t size)
{
    if (etcd->ends_tokens)
        snprintf(out, size, "--auth-token=jwt,sign-method=HS256,priv-key=%s/tokens.key,ttl=%ds", etcd->folder,
                 ETCD_TOKEN);
    else
        snprintf(out, size, "--auth-token=simple");
    return out;
}

/* Starts a member. A short election makes tests with a killed leader short. */
void etcd_restart(test_etcd *etcd, int i)
{
    char name[16], data[96], client[64], peer[64], cluster[300] = "", log[96], cert[96], key[96], ca[96], tokens[200];

    snprintf(name, sizeof name, "m%d", i);
    snprintf(data, sizeof data, "%s/%d", etcd->folder, i);
    snprintf(log, sizeof log, "%s/%d.log", etcd->folder, i);
    snprintf(client, sizeof client, "%s://127.0.0.1:%d", etcd->secure ? "https" : "http", etcd->port[i]);
    snprintf(cert, sizeof cert, "--cert-file=%s/etcd.pem", etcd->folder);
    snprintf(key, sizeof key, "--key-file=%s/etcd.key", etcd->folder);
    snprintf(ca, sizeof ca, "--trusted-ca-file=%s/ca.pem", etcd->folder);
    snprintf(peer, sizeof peer, "http://127.0.0.1:%d", etcd->peer_port[i]);
    for (int k = 0; k < etcd->n; k++)
        snprintf(cluster + strlen(cluster), sizeof cluster - strlen(cluster), "%sm%d=http://127.0.0.1:%d",
                 k > 0 ? "," : "", k, etcd->peer_port[k]);
    fflush(NULL);
    if ((etcd->pid[i] = fork()) != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (freopen(log, "a", stderr) == NULL || dup2(fileno(stderr), STDOUT_FILENO) < 0) _exit(126);
    execlp(program(), "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", client,
           "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
           "--initial-cluster", cluster, "--logger", "zap", "--bcrypt-cost", "4",
           tokens_flag(etcd, tokens, sizeof tokens), etcd->secure ? cert : (char *)NULL, key, ca, "--client-cert-auth",
           (char *)NULL);
    _exit(127);
}

/* Posts JSON to a path of a member. Returns its answer, which the caller frees; NULL: it does not answer in time. */
static json_t *post(int port, const char *path, const char *json, time_t seconds)
{
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct timeval limit = { .tv_sec = seconds };
    char request[1024], answer[4096];
    const char *body;
    size_t n = 0;
    ssize_t got = 0;
    int bytes = snprintf(request, sizeof request, "POST %s HTTP/1.0\r\nContent-Length: %zu\r\n\r\n%s", path,
                         strlen(json), json);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, request, (size_t)bytes, MSG_NOSIGNAL) > 0)
        while (n < sizeof answer - 1 && (got = recv(fd, answer + n, sizeof answer - 1 - n, 0)) > 0) n += (size_t)got;
    close(fd);
    answer[n] = '\0';
    body = strstr(answer, "\r\n\r\n");
    return body != NULL ? json_loads(body + 4, 0, NULL) : NULL;
}

int etcd_leader(const test_etcd *etcd)
{
    int leader = -1;

    for (int i = 0; i < etcd->n && leader < 0; i++) {
        json_t *status = etcd->pid[i] != 0 ? post(etcd->port[i], "/v3/maintenance/status", "{}", 1) : NULL;
        const char *id = json_string_value(json_object_get(json_object_get(status, "header"), "member_id"));
        const char *leads = json_string_value(json_object_get(status, "leader"));
        if (id != NULL && leads != NULL && strcmp(id, leads) == 0) leader = i;
        json_decref(status);
    }
    return leader;
}

static bool has_leader(void *arg)
{
    const test_etcd *etcd = arg;

    return etcd_leader(etcd) >= 0;
}

/* Makes the folder, and chooses ports. */
static test_etcd *make(int n, const char *scheme)
{
    test_etcd *etcd = calloc(1, sizeof *etcd);

    assert_non_null(etcd);
    etcd->n = n;
    strcpy(etcd->folder, "/tmp/paramd-etcd-XXXXXX");
    assert_non_null(mkdtemp(etcd->folder));
    for (int i = 0; i < n; i++) {
        etcd->port[i] = reserve_port();
        etcd->peer_port[i] = reserve_port();
        snprintf(etcd->engine + strlen(etcd->engine), sizeof etcd->engine - strlen(etcd->engine), "%s%s://127.0.0.1:%d",
                 i > 0 ? "," : "", scheme, etcd->port[i]);
    }
    return etcd;
}

test_etcd *etcd_start_secure(void)
{
    test_etcd *etcd = make(1, "etcds");
    char ca[96], cert[96], key[96];
    pki_authority *authority;

    etcd->secure = true;
    snprintf(ca, sizeof ca, "%s/ca.pem", etcd->folder);
    authority = pki_new("etcd", ca);
    for (int i = 0; i < 2; i++) {
        snprintf(cert, sizeof cert, "%s/%s.pem", etcd->folder, i == 0 ? "etcd" : "client");
        snprintf(key, sizeof key, "%s/%s.key", etcd->folder, i == 0 ? "etcd" : "client");
        pki_issue(authority, i == 0 ? "IP:127.0.0.1" : NULL, 1, cert, key);
    }
    pki_free(authority);
    etcd_restart(etcd, 0);
    return etcd;
}

test_etcd *etcd_start(int n)
{
    test_etcd *etcd = make(n, "etcd");

    for (int i = 0; i < n; i++) etcd_restart(etcd, i);
    if (!await(has_leader, etcd, patient(30))) fail_msg("etcd has no leader");
    return etcd;
}

static void write_secret(const test_etcd *etcd, const char *name, const char *text)
{
    char path[96];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", etcd->folder, name);
    file = fopen(path, "we");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fchmod(fileno(file), 0600), 0);
    fclose(file);
}

/* Posts JSON to a member, which must not answer with an error. */
static void set_up_users(int port, const char *path, const char *json)
{
    json_t *answer = post(port, path, json, 30);

    if (answer == NULL || json_object_get(answer, "error") != NULL)
        fail_msg("etcd: %s: %s", path, json_string_value(json_object_get(answer, "error")));
    json_decref(answer);
}

test_etcd *etcd_start_with_users(void)
{
    test_etcd *etcd = make(1, "etcd");
    int port = etcd->port[0];
    char from[32], to[32], role[200];

    etcd->ends_tokens = true;
    write_secret(etcd, "tokens.key", "a key that signs the tokens of this test");
    write_secret(etcd, "password", "open sesame\n");
    etcd_restart(etcd, 0);
    if (!await(has_leader, etcd, patient(30))) fail_msg("etcd has no leader");
    pd_base64_encode(from, "/paramd/", strlen("/paramd/"));
    pd_base64_encode(to, "/paramd0", strlen("/paramd0"));
    snprintf(role, sizeof role,
             "{\"name\":\"paramd\",\"perm\":{\"permType\":\"READWRITE\",\"key\":\"%s\",\"range_end\":\"%s\"}}", from,
             to);
    set_up_users(port, "/v3/auth/role/add", "{\"name\":\"root\"}");
    set_up_users(port, "/v3/auth/user/add", "{\"name\":\"root\",\"password\":\"of all\"}");
    set_up_users(port, "/v3/auth/user/grant", "{\"user\":\"root\",\"role\":\"root\"}");
    set_up_users(port, "/v3/auth/role/add", "{\"name\":\"paramd\"}");
    set_up_users(port, "/v3/auth/role/grant", role);
    set_up_users(port, "/v3/auth/user/add", "{\"name\":\"paramd\",\"password\":\"open sesame\"}");
    set_up_users(port, "/v3/auth/user/grant", "{\"user\":\"paramd\",\"role\":\"paramd\"}");
    set_up_users(port, "/v3/auth/enable", "{}");
    return etcd;
}

void etcd_freeze(const test_etcd *etcd, int i)
{
    assert_int_equal(kill(etcd->pid[i], SIGSTOP), 0);
}

void etcd_thaw(const test_etcd *etcd, int i)
{
    assert_int_equal(kill(etcd->pid[i], SIGCONT), 0);
}

void etcd_kill(test_etcd *etcd, int i)
{
    if (etcd->pid[i] == 0) return;
    kill(etcd->pid[i], SIGKILL);
    waitpid(etcd->pid[i], NULL, 0);
    etcd->pid[i] = 0;
}

void etcd_end(test_etcd *etcd)
{
    char command[128];

    if (etcd == NULL) return;
    for (int i = 0; i < etcd->n; i++) etcd_kill(etcd, i);
    snprintf(command, sizeof command, "rm -rf %s", etcd->folder);
    assert_int_equal(system(command), 0);
    free(etcd);
}
