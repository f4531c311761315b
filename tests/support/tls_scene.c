/* tls_scene.c - a daemon that listens on TLS as well, and a folder with the keys of both sides. */
#include "tls_scene.h"

#include <signal.h>

#include "test.h"

static void name(char to[96], const tls_scene *scene, const char *file)
{
    snprintf(to, 96, "%s/%s", scene->folder, file);
}

tls_scene *tls_scene_new(void)
{
    tls_scene *scene = calloc(1, sizeof *scene);

    assert_non_null(scene);
    strcpy(scene->folder, "/tmp/paramd-tls-XXXXXX");
    assert_non_null(mkdtemp(scene->folder));
    name(scene->ca, scene, "ca.pem");
    name(scene->server_pem, scene, "server.pem");
    name(scene->server_key, scene, "server.key");
    name(scene->tokens, scene, "tokens");
    name(scene->token, scene, "token");
    name(scene->client_pem, scene, "client.pem");
    name(scene->client_key, scene, "client.key");
    scene->authority = pki_new("authority of a test", scene->ca);
    pki_issue(scene->authority, "IP:127.0.0.1", 2, scene->server_pem, scene->server_key);
    pki_issue(scene->authority, "DNS:worker-1", 2, scene->client_pem, scene->client_key);
    assert_int_equal(pd_token_new(scene->line, "alice", NULL), PD_OK);
    pki_write_tokens(scene->tokens, scene->line, NULL);
    pki_write_tokens(scene->token, scene->line, NULL);
    return scene;
}

void tls_scene_start(tls_scene *scene, const char *const *flags)
{
    const char *all[20] = { "--listen=127.0.0.1:0,tls://127.0.0.1:0",
                            "--tls-certificate",
                            scene->server_pem,
                            "--tls-key",
                            scene->server_key,
                            "--tls-client-ca",
                            scene->ca,
                            "--tls-tokens",
                            scene->tokens };
    int n = 9;

    for (; flags != NULL && *flags != NULL && n < 19; flags++) all[n++] = *flags;
    scene->daemon = daemon_start(all);
    assert_true(daemon_says(scene->daemon, "listening on tls://", patient(10)));
    scene->port = daemon_port_of(scene->daemon, "listening on tls://127.0.0.1:");
    snprintf(scene->url, sizeof scene->url, "tls://127.0.0.1:%d", scene->port);
}

int tls_scene_end(tls_scene *scene)
{
    int status = scene->daemon != NULL ? daemon_stop(scene->daemon, patient(10)) : 0;
    char command[96];

    snprintf(command, sizeof command, "rm -rf %s", scene->folder);
    if (system(command) != 0) status = -1;
    pki_free(scene->authority);
    free(scene);
    return status;
}

typedef struct readings {
    const tls_scene *scene;
    int n;
} readings;

/* Returns whether the daemon has logged n reloads, each in one line. */
static bool have_been_read(void *arg)
{
    const readings *wanted = arg;
    FILE *file = fopen(wanted->scene->daemon->log, "r");
    char line[1024];
    int n = 0;

    if (file == NULL) return false;
    while (fgets(line, sizeof line, file) != NULL) n += strstr(line, "reload: done") != NULL;
    fclose(file);
    return n >= wanted->n;
}

/* Sends SIGHUP, and returns whether the daemon has read its files soon. */
static bool are_read(void *arg)
{
    const readings *wanted = arg;

    kill(wanted->scene->daemon->pid, SIGHUP);
    return await(have_been_read, arg, 5);
}

void tls_scene_reload(const tls_scene *scene, int n)
{
    assert_true(await(are_read, &(readings){ scene, n }, patient(20)));
}
