/* takeover.c - gets a daemon of a cluster its shard, and the shard's state. */
#define _GNU_SOURCE /* gethostname */
#include "takeover.h"

#include "engine.h"
#include "log.h"
#include "mirror.h"
#include "probe.h"
#include "thread.h"
#include "token.h"
#include "trusted_files.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

/* PROBE_MS: how long the last owner has to answer. TRY_MS: how long one member of the engine has. LEAVE_MS: how long
 * the engine has to remove the key of a daemon that ends. */
enum { PROBE_MS = 2000, TRY_MS = 1000, LEAVE_MS = 1000 };

static bool is_given(const char *path)
{
    return path[0] != '\0';
}

static uint64_t random_number(void)
{
    uint64_t number = 0;

    if (getrandom(&number, sizeof number, 0) != sizeof number) number = (uint64_t)getpid();
    return number != 0 ? number : 1;
}

/* Reads the files of the connection to the engine. */
static int read_files(pd_takeover *t, pd_error *err)
{
    const pd_config *config = t->config;
    int rc = PD_OK;

    if (is_given(config->cluster.ca)) rc = pd_pem_read(&t->ca, config->cluster.ca, "cluster.ca", false, err);
    if (rc == PD_OK && is_given(config->cluster.cert))
        rc = pd_pem_read(&t->cert, config->cluster.cert, "cluster.cert", false, err);
    if (rc == PD_OK && is_given(config->cluster.key))
        rc = pd_pem_read(&t->key, config->cluster.key, "cluster.key", true, err);
    if (rc == PD_OK && is_given(config->cluster.password_file))
        rc = pd_password_read(&t->password, config->cluster.password_file, "cluster.password_file", err);
    return rc;
}

static void free_files(pd_takeover *t)
{
    pd_secret_free(t->ca);
    pd_secret_free(t->cert);
    pd_secret_free(t->key);
    pd_secret_free(t->password);
    t->ca = t->cert = t->key = t->password = NULL;
}

static int open_engine(const pd_takeover *t, pd_engine **engine, pd_error *err)
{
    uint64_t ttl_ms = t->config->cluster.ttl;
    const pd_etcd_config config = { .urls = t->config->cluster.engine,
                                    .ca = t->ca,
                                    .cert = t->cert,
                                    .key = t->key,
                                    .user = t->password != NULL ? t->config->cluster.user : NULL,
                                    .password = t->password,
                                    .try_ms = ttl_ms / 3 < TRY_MS ? ttl_ms / 3 : TRY_MS,
                                    .silent_ms = 2 * ttl_ms };

    return pd_etcd_open(engine, &config, err);
}

int pd_takeover_check(const pd_config *config, pd_error *err)
{
    pd_takeover t = { .config = config };
    pd_engine *engine;
    int rc;

    if (!is_given(config->cluster.engine)) return PD_OK;
    rc = read_files(&t, err);
    if (rc == PD_OK && (rc = open_engine(&t, &engine, err)) == PD_OK) engine->free(engine);
    free_files(&t);
    return rc;
}

static void log_line(void *arg, int level, const char *text)
{
    (void)arg;
    pd_log(level, "%s", text);
}

static int make_urls(pd_takeover *t, pd_error *err)
{
    const pd_cluster_urls_from from = { t->config->cluster.advertise, t->config->listen, t->config->http_listen,
                                        pd_daemon_port(t->daemon), pd_daemon_http_port(t->daemon) };

    return pd_cluster_urls_make(&t->urls, &from, err);
}

int pd_takeover_begin(pd_takeover *t, const pd_config *config, pd_daemon *daemon, const atomic_bool *stops,
                      void (*lost)(void *arg), void *arg, pd_error *err)
{
    pd_cluster_config cluster = { .name = config->cluster.name,
                                  .shard = config->cluster.spare ? -1 : (int)config->cluster.shard,
                                  .shards = (uint32_t)config->cluster.shards,
                                  .ttl_ms = config->cluster.ttl,
                                  .process_number = random_number(),
                                  .log = log_line,
                                  .lost = lost,
                                  .arg = arg };
    char host[40] = "?";
    pd_engine *engine;
    int rc;

    *t = (pd_takeover){ .config = config, .daemon = daemon, .stops = stops, .lock.lock = -1 };
    if (!is_given(config->cluster.engine)) return PD_OK;
    (void)gethostname(host, sizeof host - 1);
    snprintf(t->process, sizeof t->process, "%s-%08x", host, (unsigned)cluster.process_number);
    cluster.process = t->process;
    if ((rc = make_urls(t, err)) != PD_OK || (rc = read_files(t, err)) != PD_OK) return rc;
    cluster.url = t->urls.url;
    cluster.http = t->urls.http;
    if ((rc = open_engine(t, &engine, err)) != PD_OK) return rc;
    if ((rc = pd_cluster_new(&t->cluster, engine, &cluster, err)) == PD_OK) pd_daemon_join(daemon, t->cluster);
    return rc;
}

/* Returns whether main has something to do: a shard may be taken, or is owned. A spare holds no state directory. */
static bool is_decided(void *arg)
{
    pd_takeover *t = arg;
    pd_place place = pd_cluster_place(t->cluster);

    if (place == PD_PLACE_SPARE) pd_state_dir_close(&t->lock);
    return atomic_load(t->stops) || place == PD_PLACE_CHOSEN || place == PD_PLACE_OWNER;
}

/* Writes a path of the settings with the number of the shard. PD_INVALID_ARGUMENT: it is too long. */
static int find_path(pd_takeover *t, char out[PD_KEEP_PATH], const char *path)
{
    const char *mark = strstr(path, PD_SHARD_MARK);
    int n;

    if (mark == NULL)
        n = snprintf(out, PD_KEEP_PATH, "%s", path);
    else
        n = snprintf(out, PD_KEEP_PATH, "%.*s%d%s", (int)(mark - path), path, t->shard, mark + strlen(PD_SHARD_MARK));
    if (n >= 0 && n <= PD_KEEP_ROOT) return PD_OK;
    return pd_fail(&t->why, PD_INVALID_ARGUMENT, "%.100s...: path longer than %d bytes", path, PD_KEEP_ROOT);
}

/* Returns whether the shard is the one that the settings give to this daemon. */
static bool is_own(const pd_takeover *t)
{
    return !t->config->cluster.spare && t->shard == (int)t->config->cluster.shard;
}

/* Locks the state directory, and reads the number of its copy of the state; 0: it has none. */
static int lock_state_dir(pd_takeover *t, uint64_t *life)
{
    int rc = pd_state_dir_open(&t->lock, t->state_dir, true, &t->why);

    if (rc == PD_OK) rc = pd_state_dir_life(&pd_disk_posix, t->state_dir, life, &t->why);
    if (rc != PD_OK) pd_state_dir_close(&t->lock);
    return rc;
}

static void log_fetched(void *arg, const pd_mirror_fetched *job)
{
    const pd_takeover *t = arg;

    pd_log(LOG_NOTICE, "cluster %s: shard %d: job %.100s at step %llu was fetched from %.200s", t->config->cluster.name,
           t->shard, job->job, (unsigned long long)job->last, t->mirror);
}

/* Keeps the last owner from changing the mirror, should it wake. The state is fetched also if that cannot be written:
 * the mirror thread of the new owner tries it again. */
static void fence(const pd_takeover *t)
{
    pd_error err;
    int rc = PD_OK;

    if (t->last.last_tenure > 0) rc = pd_mirror_fence(&pd_disk_posix, t->mirror, t->last.last_tenure, &err);
    if (rc != PD_OK && rc != PD_NOT_FOUND)
        pd_log(LOG_WARNING, "mirror %.200s: %s: the last owner is not kept from writing there yet", t->mirror,
               err.text);
}

/* Gets a new copy of the state from the mirror. */
static int fetch(pd_takeover *t)
{
    const pd_mirror_reader user = { t, log_fetched };
    uint64_t life;
    int rc;

    pd_state_dir_close(&t->lock); /* pd_mirror_fetch locks the directory itself */
    fence(t);
    rc = pd_mirror_fetch(t->mirror, t->state_dir, &user, &t->why);
    if (rc == PD_OK) rc = lock_state_dir(t, &life);
    t->life = random_number();
    return rc == PD_OK ? pd_state_dir_set_life(&pd_disk_posix, t->state_dir, t->life, &t->why) : rc;
}

/* Begins the daemon's own shard with the state directory as it is, which had no owner's state before. */
static int begin_anew(pd_takeover *t)
{
    if (t->last.life != 0)
        pd_log(LOG_WARNING, "cluster %s: %s has no state of shard %d, which %s had: this daemon begins without any",
               t->config->cluster.name, t->state_dir, t->shard, t->last.url);
    t->life = random_number();
    return pd_state_dir_set_life(&pd_disk_posix, t->state_dir, t->life, &t->why);
}

/* Returns whether the state directory has no job that has not ended. It may have a number: of a daemon that was killed
 * when it began without any state, before it was the owner. */
static bool has_no_job(const pd_takeover *t)
{
    size_t n;

    return pd_mirror_count(&pd_disk_posix, t->state_dir, &n, NULL) == PD_OK && n == 0;
}

/* Gets the state of the shard into the state directory, which stays locked: it is there already, or the mirror has it,
 * or there was none before. */
static int take_state_dir(pd_takeover *t)
{
    uint64_t life;
    int rc = lock_state_dir(t, &life);

    t->life = life;
    if (rc != PD_OK || (life != 0 && (life == t->last.life || t->last.life == 0))) return rc;
    if (t->last.life != 0 && t->mirror[0] != '\0') {
        if ((rc = fetch(t)) != PD_NOT_FOUND || !has_no_job(t) || !is_own(t)) return rc;
        rc = lock_state_dir(t, &life); /* the mirror has no job: there was no state to lose */
    }
    if (rc == PD_OK && has_no_job(t) && (is_own(t) || t->last.life == 0)) return begin_anew(t);
    return rc != PD_OK ? rc
                       : pd_fail(&t->why, PD_FAILED_PRECONDITION,
                                 "shard %d: %.200s has not the state that its last owner, %.100s, had: use that one's "
                                 "state directory, or an empty one to begin anew",
                                 t->shard, t->state_dir, t->last.url);
}

/* Makes sure that the last owner is gone, and gets the state of the shard. Runs on a thread of its own. */
static void get_state(void *arg)
{
    pd_takeover *t = arg;

    t->why = (pd_error){ 0 };
    pd_state_dir_close(&t->lock);
    if ((t->got = find_path(t, t->state_dir, t->config->state_dir)) != PD_OK ||
        (t->got = find_path(t, t->mirror, t->config->mirror)) != PD_OK)
        return;
    if (t->probes && pd_probe(t->last.url, PROBE_MS))
        t->got = pd_fail(&t->why, PD_UNAVAILABLE, "shard %d: its last owner, %.200s, has lost its lease, but answers",
                         t->shard, t->last.url);
    else if (t->state_dir[0] != '\0')
        t->got = take_state_dir(t);
    else if (is_own(t))
        t->life = random_number();
    else
        t->got =
            pd_fail(&t->why, PD_FAILED_PRECONDITION, "shard %d: a spare needs server.state_dir to take it", t->shard);
}

/* Returns whether only this machine can reach an address. */
static bool is_local(const char *url)
{
    static const char *const local[] = { "unix:", "tcp://127.", "tls://127.", "tcp://[::1]", "tls://[::1]" };
    bool found = false;

    for (size_t i = 0; i < sizeof local / sizeof local[0]; i++)
        found = found || strncmp(url, local[i], strlen(local[i])) == 0;
    return found;
}

/* Registers as the owner of the shard, whose state is ready. Listens first: then the URL is known, and no earlier
 * process of this daemon lives. The sockets stay open if another daemon is faster. */
static int claim(pd_takeover *t, pd_error *err)
{
    int rc = PD_OK;

    if (!t->listens) rc = pd_daemon_listen(t->daemon, err);
    if (rc != PD_OK) return rc;
    t->listens = true;
    if ((rc = make_urls(t, err)) != PD_OK) return rc;
    if (is_local(t->urls.url))
        pd_log(LOG_NOTICE,
               "cluster %s: only this machine can reach %s: set cluster.advertise or server.listen if workers "
               "run elsewhere",
               t->config->cluster.name, t->urls.url);
    return pd_cluster_claim(t->cluster, t->urls.url, t->life, err);
}

/* Does not take the shard now. Logs why, unless the log says so already. */
static void decline(pd_takeover *t)
{
    if (strcmp(t->told, t->why.text) != 0)
        pd_log(LOG_WARNING, "cluster %s: %s: this daemon does not take it now", t->config->cluster.name, t->why.text);
    snprintf(t->told, sizeof t->told, "%s", t->why.text);
    pd_cluster_decline(t->cluster);
}

/* Handles a shard that may be taken. */
static int take(pd_takeover *t, pd_error *err)
{
    t->shard = pd_cluster_chosen(t->cluster);
    t->last = pd_cluster_table_now(t->cluster)->shards[t->shard];
    t->probes = pd_cluster_must_probe(t->cluster, t->urls.url);
    pd_daemon_load(t->daemon, get_state, t);
    if (atomic_load(t->stops)) return PD_OK;
    if (t->got == PD_OK) return claim(t, err);
    if (is_own(t) && t->got != PD_UNAVAILABLE) return pd_fail(err, t->got, "%s", t->why.text);
    decline(t);
    return PD_OK;
}

int pd_takeover_wait(pd_takeover *t, pd_error *err)
{
    int rc = PD_OK;

    while (rc == PD_OK) {
        pd_daemon_wait(t->daemon, is_decided, t);
        if (atomic_load(t->stops)) return pd_fail(err, PD_CANCELLED, "daemon stopped before it had a shard");
        if (pd_cluster_place(t->cluster) == PD_PLACE_OWNER) return PD_OK;
        rc = take(t, err);
    }
    return rc;
}

typedef struct leaving {
    const pd_cluster *cluster;
    uint64_t until_ns;
} leaving;

static bool has_left(void *arg)
{
    const leaving *l = arg;

    return pd_cluster_has_left(l->cluster) || pd_clock_ns() > l->until_ns;
}

void pd_takeover_end(pd_takeover *t)
{
    leaving l = { t->cluster, pd_clock_ns() + LEAVE_MS * UINT64_C(1000000) };

    if (t->daemon == NULL) return; /* pd_takeover_begin was not called */
    if (t->cluster != NULL) {
        pd_cluster_leave(t->cluster);
        pd_daemon_wait(t->daemon, has_left, &l);
        pd_daemon_part(t->daemon);
        pd_cluster_free(t->cluster);
    }
    pd_state_dir_close(&t->lock);
    free_files(t);
    t->cluster = NULL;
}
