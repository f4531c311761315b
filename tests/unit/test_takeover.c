/* Tests whether a daemon of a cluster takes its shard, depending on what its state directory and its mirror have. The
 * engine is a model in memory; daemon, threads and directories are real. */
#include <sys/eventfd.h>

#include "test.h"
#include "checkpoint_sample.h"
#include "cluster_value.h"
#include "engine_model.h"
#include "small_daemon.h"
#include "takeover.h"

WITH_THREADS();

/* NUMBER: of the copy in the state directory. LAST_NUMBER: of the copy that the last owner had. */
enum { TTL_MS = 1000, NUMBER = 5, LAST_NUMBER = 9 };

/* A daemon that is to own shard 0 of 1, or a spare. */
typedef struct fixture {
    model_client client; /* must be the first member: the cluster gets its engine */
    uint64_t (*turn)(pd_engine *engine, uint64_t now_ms);
    engine_model model;
    char dir[64], state_dir[80], mirror[80];
    pd_config *config;
    pd_daemon *daemon;
    atomic_bool stops;
    pd_takeover takeover;
    pd_error err;
} fixture;

/* Lets the model's time be that of the loop. Stops a daemon that has declined the shard. */
static uint64_t turn(pd_engine *engine, uint64_t now_ms)
{
    fixture *f = (fixture *)(void *)engine;

    if (f->takeover.told[0] != '\0') atomic_store(&f->stops, true);
    model_time(&f->model, now_ms);
    return f->turn(engine, now_ms);
}

static void set(fixture *f, const char *section, const char *name, const char *value)
{
    assert_int_equal(pd_config_set(f->config, section, name, value, NULL), PD_OK);
}

static void make_engine(fixture *f)
{
    model_init(&f->model);
    model_client_init(&f->client, &f->model);
    f->turn = f->client.base.turn;
    f->client.base.turn = turn;
    f->client.base.fd = eventfd(0, EFD_CLOEXEC); /* never readable: the loop's timer leads to turns */
    assert_true(f->client.base.fd >= 0);
}

static void set_up(fixture *f)
{
    pd_daemon_config daemon = small_daemon();

    strcpy(f->dir, "/tmp/paramd-takeover.XXXXXX");
    assert_non_null(mkdtemp(f->dir));
    snprintf(f->state_dir, sizeof f->state_dir, "%s/state", f->dir);
    snprintf(f->mirror, sizeof f->mirror, "%s/mirror", f->dir);
    assert_int_equal(pd_disk_posix.make_dir(NULL, f->state_dir), 0);
    f->config = pd_config_new();
    assert_non_null(f->config);
    set(f, "server", "listen", "127.0.0.1:0");
    set(f, "server", "state_dir", f->state_dir);
    make_engine(f);
    daemon.listen = f->config->listen;
    assert_int_equal(pd_daemon_new(&f->daemon, &daemon, NULL), PD_OK);
}

static void tear_down(fixture *f)
{
    char command[80];

    pd_takeover_end(&f->takeover);
    pd_daemon_free(f->daemon);
    pd_config_free(f->config);
    close(f->client.base.fd);
    snprintf(command, sizeof command, "rm -r %s", f->dir);
    assert_int_equal(system(command), 0);
}

FIXTURE(fixture, set_up, tear_down);

static void drop_line(void *arg, int level, const char *text)
{
    (void)arg, (void)level, (void)text;
}

static void on_lost(void *arg)
{
    (void)arg;
    fail_msg("the shard has another owner");
}

/* Gives the daemon a mirror, which has no job. */
static void have_mirror(fixture *f)
{
    assert_int_equal(pd_disk_posix.make_dir(NULL, f->mirror), 0);
    set(f, "server", "mirror", f->mirror);
}

/* Lets the engine know a last owner of the shard, whose process has ended, and the number of its copy. */
static void have_last_owner(fixture *f)
{
    const pd_cluster_value value = {
        .url = "tcp://127.0.0.1:1", .life = LAST_NUMBER, .process = 3, .shards = 1 /* nobody listens at port 1 */
    };
    char text[PD_ENGINE_VALUE];

    assert_int_equal(pd_cluster_value_write(text, &value, NULL), PD_OK);
    model_put(&f->model, "/paramd/paramd/last/0", text);
}

/* Gives the state directory a number, as a daemon does that begins without any state. */
static void have_number(fixture *f)
{
    assert_int_equal(pd_state_dir_set_life(&pd_disk_posix, f->state_dir, NUMBER, NULL), PD_OK);
}

static void have_job(fixture *f, bool ended)
{
    pd_checkpoint_image *image = sample_checkpoint(1, 1);

    image->ended = ended;
    assert_int_equal(pd_checkpoint_write(&pd_disk_posix, f->state_dir, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
}

/* Starts the daemon with the engine of the test, as pd_takeover_begin does with etcd. Returns what pd_takeover_wait
 * does. */
static int take(fixture *f)
{
    const pd_cluster_config cluster = { .name = "paramd",
                                        .shard = f->config->cluster.spare ? -1 : 0,
                                        .shards = 1,
                                        .process = "test",
                                        .url = "",
                                        .http = "",
                                        .ttl_ms = TTL_MS,
                                        .process_number = 7,
                                        .log = drop_line,
                                        .lost = on_lost };
    pd_takeover *t = &f->takeover;

    *t = (pd_takeover){ .config = f->config, .daemon = f->daemon, .stops = &f->stops, .lock.lock = -1 };
    assert_int_equal(pd_cluster_new(&t->cluster, &f->client.base, &cluster, NULL), PD_OK);
    pd_daemon_join(f->daemon, t->cluster);
    return pd_takeover_wait(t, &f->err);
}

static uint64_t number_of(const fixture *f)
{
    uint64_t number;

    assert_int_equal(pd_state_dir_life(&pd_disk_posix, f->state_dir, &number, NULL), PD_OK);
    return number;
}

static const pd_engine_entry *owner_of(const fixture *f)
{
    return model_get(&f->model, "/paramd/paramd/shard/0");
}

/* Checks that the daemon gets its shard. Returns the number of its copy, which the engine and the state directory
 * have. */
static uint64_t own(fixture *f)
{
    pd_cluster_value value;

    assert_int_equal(take(f), PD_OK);
    assert_non_null(owner_of(f));
    assert_int_equal(pd_cluster_value_read(&value, owner_of(f)->value, NULL), PD_OK);
    assert_int_equal(value.life, number_of(f));
    return value.life;
}

/* Checks that the daemon begins without any state: its copy gets a new number. */
static void begin_anew(fixture *f)
{
    uint64_t number = own(f);

    assert_true(number != 0 && number != NUMBER && number != LAST_NUMBER);
}

/* Checks that the daemon does not get its shard, and that its state directory keeps its number. */
static void refuse(fixture *f, int code, const char *text)
{
    assert_int_equal(take(f), code);
    assert_non_null(strstr(f->err.text, text));
    assert_null(owner_of(f));
    assert_int_equal(number_of(f), NUMBER);
}

TEST(an_empty_directory_begins_without_state, fixture *f)
{
    have_last_owner(f);
    begin_anew(f);
}

/* A daemon was killed between the moment at which its directory got a number and its registration as the owner. */
TEST(a_daemon_that_was_killed_while_it_began_begins_again, fixture *f)
{
    have_last_owner(f);
    have_number(f);
    begin_anew(f);
}

TEST(a_daemon_that_was_killed_while_it_began_begins_again_where_the_mirror_has_no_job, fixture *f)
{
    have_mirror(f);
    have_last_owner(f);
    have_number(f);
    begin_anew(f);
}

TEST(a_job_that_has_ended_does_not_keep_a_daemon_from_beginning, fixture *f)
{
    have_last_owner(f);
    have_number(f);
    have_job(f, true);
    begin_anew(f);
}

TEST(another_state_of_a_job_than_that_of_the_last_owner_is_refused, fixture *f)
{
    have_last_owner(f);
    have_number(f);
    have_job(f, false);
    refuse(f, PD_FAILED_PRECONDITION, "has not the state that its last owner");
}

TEST(another_state_of_a_job_is_refused_where_the_mirror_has_no_job, fixture *f)
{
    have_mirror(f);
    have_last_owner(f);
    have_number(f);
    have_job(f, false);
    refuse(f, PD_NOT_FOUND, "there is no job that has not ended");
}

TEST(a_shard_that_nobody_has_owned_is_begun_with_the_number_of_its_directory, fixture *f)
{
    have_number(f);
    assert_int_equal(own(f), NUMBER);
}

TEST(a_spare_begins_no_shard_whose_last_owner_had_state, fixture *f)
{
    set(f, "cluster", "spare", "yes");
    have_last_owner(f);
    have_number(f);
    refuse(f, PD_CANCELLED, "before it had a shard");
    assert_non_null(strstr(f->takeover.told, "has not the state that its last owner"));
}
