/* etcd_process.c - starts real etcd members and ends them. */
#define _GNU_SOURCE /* mkdtemp */
#include "etcd_process.h"

#include <arpa/inet.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <jansson.h>

#include "test.h"
#include "daemon_process.h"
#include "pki.h"

int free_port(void)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &length), 0);
    close(fd);
    return ntohs(address.sin_port);
}

bool etcd_is_there(void)
{
    return system("command -v etcd > /dev/null") == 0;
}

/* Starts a member. A short election makes tests with a killed leader short. */
void etcd_restart(test_etcd *etcd, int i)
{
    char name[16], data[96], client[64], peer[64], cluster[300] = "", log[96], cert[96], key[96], ca[96];

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
    execlp("etcd", "etcd", "--name", name, "--data-dir", data, "--listen-client-urls", client,
           "--advertise-client-urls", client, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
           "--initial-cluster", cluster, "--logger", "zap", etcd->secure ? cert : (char *)NULL, key, ca,
           "--client-cert-auth", (char *)NULL);
    _exit(127);
}

/* Asks a member for its status. Returns NULL if it does not answer. */
static json_t *status_of(int port)
{
    static const char request[] = "POST /v3/maintenance/status HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}";
    struct sockaddr_in address = { .sin_family = AF_INET,
                                   .sin_port = htons((uint16_t)port),
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const struct timeval limit = { .tv_sec = 1 };
    char answer[4096];
    const char *body;
    size_t n = 0;
    ssize_t got = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (connect(fd, (struct sockaddr *)&address, sizeof address) == 0 &&
        send(fd, request, sizeof request - 1, MSG_NOSIGNAL) > 0)
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
        json_t *status = etcd->pid[i] != 0 ? status_of(etcd->port[i]) : NULL;
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
        etcd->port[i] = free_port();
        etcd->peer_port[i] = free_port();
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
