/* Tests the settings of a daemon in a cluster with an engine, and the addresses that it gives to others. */
#include "test.h"
#include "cluster_urls.h"
#include "config.h"

static void gives(const char *advertise, const char *listen, const char *http, const char *url, const char *http_url)
{
    const pd_cluster_urls_from from = { advertise, listen, http, 7171, 7272 };
    pd_cluster_urls urls;
    pd_error err = { 0 };

    if (pd_cluster_urls_make(&urls, &from, &err) != PD_OK) fail_msg("%s", err.text);
    assert_string_equal(urls.url, url);
    assert_string_equal(urls.http, http_url);
}

HOLDS(the_first_address_to_listen_on_is_the_one_for_workers,
      gives("", "tls://a.example:7070,unix:///run/p", "", "tls://a.example:7070", ""));
HOLDS(a_free_port_becomes_the_one_that_was_taken,
      gives("", "127.0.0.1:0", "127.0.0.1:0", "tcp://127.0.0.1:7171", "http://127.0.0.1:7272"));
HOLDS(an_advertised_address_wins,
      gives("tls://a.example:443", "*:7070", "*:7072", "tls://a.example:443", "http://a.example:7072"));
HOLDS(an_address_of_ipv6_stands_in_brackets,
      gives("", "[::1]:7070", "[::1]:7072", "tcp://[::1]:7070", "http://[::1]:7072"));
HOLDS(a_unix_socket_is_an_address_too, gives("", "unix:///run/p", "", "unix:///run/p", ""));

TEST(a_port_that_is_not_known_yet_gives_no_address)
{
    const pd_cluster_urls_from from = { "", "127.0.0.1:0", "127.0.0.1:0", 0, 0 };
    pd_cluster_urls urls;

    assert_int_equal(pd_cluster_urls_make(&urls, &from, NULL), PD_OK);
    assert_string_equal(urls.url, "");
    assert_string_equal(urls.http, "");
}

/* Sets the keys, given as pairs of "section" "name=value" texts, and checks the configuration. */
static int check(const char *const *keys, pd_error *err)
{
    pd_config *config = pd_config_new();
    char name[64];
    int rc = PD_OK;

    assert_non_null(config);
    for (; *keys != NULL && rc == PD_OK; keys += 2) {
        const char *value = strchr(keys[1], '=') + 1;
        snprintf(name, sizeof name, "%.*s", (int)(value - keys[1] - 1), keys[1]);
        rc = pd_config_set(config, keys[0], name, value, err);
    }
    if (rc == PD_OK) rc = pd_config_check(config, err);
    pd_config_free(config);
    return rc;
}

#define CHECK(err, ...) check((const char *const[]){ "cluster", "engine=etcd://a:2379", __VA_ARGS__, NULL }, err)

static void refuses(int rc, const pd_error *err, const char *why)
{
    assert_int_not_equal(rc, PD_OK);
    if (strstr(err->text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err->text, why);
}

TEST(settings_of_a_cluster_that_do_not_fit_are_refused_in_words)
{
    pd_error err = { 0 };

    assert_int_equal(CHECK(&err, "cluster", "shards=3", "cluster", "shard=2"), PD_OK);
    refuses(CHECK(&err, "cluster", "shards=3", "cluster", "shard=3"), &err, "must be less than cluster.shards, 3");
    refuses(CHECK(&err, "cluster", "name=a/b"), &err, "letters, digits");
    refuses(CHECK(&err, "cluster", "name="), &err, "letters, digits");
    refuses(CHECK(&err, "cluster", "ttl=500ms"), &err, "expected 1000 to");
    refuses(CHECK(&err, "cluster", "cert=/c"), &err, "expected both or none");
    refuses(CHECK(&err, "cluster", "user=u"), &err, "cluster.user and cluster.password_file: expected both or none");
    refuses(CHECK(&err, "server", "insecure=yes", "server", "listen=*:7070"), &err, "cluster.advertise");
    refuses(CHECK(&err, "cluster", "advertise=ftp://a"), &err, "address");
}

TEST(without_an_engine_no_path_has_the_number_of_a_shard)
{
    pd_error err = { 0 };

    refuses(check((const char *const[]){ "server", "state_dir=/s/{shard}", NULL }, &err), &err, "needs cluster.engine");
    assert_int_equal(CHECK(&err, "server", "state_dir=/s/{shard}", "server", "mirror=/m/{shard}"), PD_OK);
    refuses(CHECK(&err, "server", "state_dir=/s", "server", "mirror=/m/{shard}"), &err, "expected in server.state_dir");
    assert_int_equal(CHECK(&err, "server", "state_dir=/s", "server", "mirror=/m"), PD_OK);
    refuses(CHECK(&err, "server", "state_dir=/s", "server", "mirror=/m", "cluster", "shards=2"), &err,
            "the cluster has 2");
}

TEST(sockets_of_the_service_manager_need_an_advertised_address)
{
    pd_error err = { 0 };
    char pid[32];

    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    setenv("LISTEN_PID", pid, 1);
    setenv("LISTEN_FDS", "1", 1);
    refuses(CHECK(&err, "cluster", "shards=1"), &err, "the service manager has opened its sockets");
    assert_int_equal(CHECK(&err, "cluster", "advertise=tcp://a.example:7070"), PD_OK);
    unsetenv("LISTEN_PID");
    unsetenv("LISTEN_FDS");
}
