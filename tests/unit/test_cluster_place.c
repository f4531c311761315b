/* Tests which daemon of a cluster owns which shard, what it knows of the others, and what it does when the engine,
 * other daemons or links fail. The engine is a model in memory, and the test sets the time. */
#include <syslog.h>

#include "test.h"
#include "cluster_value.h"
#include "engine_model.h"
#include "pd_cluster.h"
#include "rig.h"

enum { TTL = 8000, MOST = 5 };

/* A daemon: it takes any shard that is chosen for it, unless `declines`, and not while it gets the state. */
typedef struct member {
    model_client client;
    pd_cluster *cluster;
    pd_cluster_config config;
    char name[16], url[32];
    bool declines, gets_state, sleeps, lost;
    unsigned n_lines, n_changes;
    char said[2048];
    int level;
} member;

typedef struct fixture {
    engine_model model;
    member at[MOST];
    int n;
    uint64_t processes;
} fixture;

static void on_log(void *arg, int level, const char *text)
{
    member *m = arg;

    m->n_lines++;
    m->level = level;
    snprintf(m->said + strlen(m->said), sizeof m->said - strlen(m->said), "%s\n", text);
}

static void on_lost(void *arg)
{
    ((member *)arg)->lost = true;
}

static void on_change(void *arg)
{
    ((member *)arg)->n_changes++;
}

static void set_up(fixture *f)
{
    model_init(&f->model);
}

static void stop(member *m)
{
    pd_cluster_free(m->cluster);
    m->cluster = NULL;
}

static void tear_down(fixture *f)
{
    for (int i = 0; i < f->n; i++) stop(&f->at[i]);
}

FIXTURE(fixture, set_up, tear_down);

/* Starts the process of a member (again). */
static void start(fixture *f, member *m)
{
    model_client_init(&m->client, &f->model);
    m->config.process_number = ++f->processes;
    m->lost = false;
    m->said[0] = '\0';
    assert_int_equal(pd_cluster_new(&m->cluster, &m->client.base, &m->config, NULL), PD_OK);
    pd_cluster_on_change(m->cluster, on_change, m);
}

/* Adds a member that is to own a shard; -1: a spare. */
static member *add(fixture *f, int shard, uint32_t shards)
{
    member *m = &f->at[f->n];

    snprintf(m->name, sizeof m->name, "m%d", f->n);
    snprintf(m->url, sizeof m->url, "tcp://host%d:7070", f->n++);
    m->config = (pd_cluster_config){ .name = "c",
                                     .shard = shard,
                                     .shards = shards,
                                     .process = m->name,
                                     .url = m->url,
                                     .http = "",
                                     .ttl_ms = TTL,
                                     .log = on_log,
                                     .lost = on_lost,
                                     .arg = m };
    start(f, m);
    return m;
}

static void turn(member *m, uint64_t now_ms)
{
    if (m->cluster == NULL || m->sleeps || m->lost) return;
    pd_cluster_turn(m->cluster, now_ms);
    if (pd_cluster_place(m->cluster) != PD_PLACE_CHOSEN || m->gets_state) return;
    if (m->declines)
        pd_cluster_decline(m->cluster);
    else
        assert_int_equal(pd_cluster_claim(m->cluster, m->url, 7, NULL), PD_OK);
}

static void pass(fixture *f, uint64_t ms)
{
    for (uint64_t until = f->model.now_ms + ms; f->model.now_ms < until;) {
        model_time(&f->model, f->model.now_ms + 100);
        for (int i = 0; i < f->n; i++) turn(&f->at[i], f->model.now_ms);
    }
}

static bool owns(const member *m, int shard)
{
    return m->cluster != NULL && !m->lost && pd_cluster_place(m->cluster) == PD_PLACE_OWNER &&
           pd_cluster_chosen(m->cluster) == shard;
}

static const pd_cluster_table *table_of(const member *m)
{
    return pd_cluster_table_now(m->cluster);
}

TEST(each_daemon_owns_its_shard_and_knows_all_others, fixture *f)
{
    member *m[3];

    for (int i = 0; i < 3; i++) m[i] = add(f, i, 3);
    pass(f, 1000);
    for (int i = 0; i < 3; i++) {
        assert_true(owns(m[i], i));
        assert_int_equal(table_of(m[i])->own, i);
        assert_int_equal(table_of(m[i])->n_shards, 3);
        for (int k = 0; k < 3; k++) {
            const pd_cluster_shard *shard = &table_of(m[i])->shards[k];
            assert_true(shard->alive);
            assert_string_equal(shard->url, m[k]->url);
            assert_int_equal(shard->tenure, table_of(m[k])->tenure);
            assert_int_equal(shard->lease_ms > 0, i == k);
        }
    }
}

TEST(a_daemon_whose_shard_has_an_owner_is_a_spare_that_others_see, fixture *f)
{
    member *owner = add(f, 0, 1), *other;

    pass(f, 500);
    other = add(f, 0, 1);
    pass(f, 500);
    assert_int_equal(pd_cluster_place(other->cluster), PD_PLACE_SPARE);
    assert_non_null(strstr(other->said, "shard 0 is owned by tcp://host0:7070: this daemon is a spare"));
    assert_int_equal(table_of(owner)->n_spares, 1);
    assert_string_equal(table_of(owner)->spares[0].name, "m1");
}

TEST(a_spare_takes_the_lowest_shard_whose_lease_has_ended, fixture *f)
{
    member *m[4];

    for (int i = 0; i < 4; i++) m[i] = add(f, i < 3 ? i : -1, 3);
    pass(f, 1000);
    stop(m[1]);
    stop(m[2]);
    pass(f, TTL - 1000);
    assert_int_equal(pd_cluster_place(m[3]->cluster), PD_PLACE_SPARE);
    pass(f, 1500);
    assert_true(owns(m[3], 1));
    assert_int_equal(table_of(m[0])->n_spares, 0);
    assert_string_equal(table_of(m[0])->shards[1].url, m[3]->url);
    assert_false(table_of(m[0])->shards[2].alive);
    assert_string_equal(table_of(m[0])->shards[2].url, m[2]->url);
}

TEST(a_spare_that_starts_when_a_shard_has_no_owner_waits_for_the_time_of_a_lease, fixture *f)
{
    member *owner = add(f, 0, 1), *spare;

    pass(f, 500);
    stop(owner);
    pass(f, 3 * TTL);
    spare = add(f, -1, 1);
    pass(f, TTL - 500);
    assert_int_equal(pd_cluster_place(spare->cluster), PD_PLACE_SPARE);
    pass(f, 1000);
    assert_true(owns(spare, 0));
}

TEST(the_tenure_of_the_last_owner_is_known_when_its_key_is_gone, fixture *f)
{
    member *owner = add(f, 0, 1), *watcher = add(f, -1, 1), *newcomer;
    uint64_t tenure;

    watcher->declines = true;
    pass(f, 500);
    tenure = table_of(owner)->tenure;
    stop(owner);
    pass(f, 2 * TTL);
    newcomer = add(f, -1, 1);
    pass(f, 200);
    for (const member *m = watcher; m != NULL; m = m == watcher ? newcomer : NULL) {
        assert_int_equal(table_of(m)->shards[0].tenure, 0);
        /* in the model the key last/0 is a change of its own, before that of shard/0 */
        assert_in_range(table_of(m)->shards[0].last_tenure, tenure - 1, tenure);
    }
}

TEST(a_shard_that_never_had_an_owner_is_not_for_spares, fixture *f)
{
    member *spare = add(f, -1, 2);

    add(f, 0, 2);
    pass(f, 4 * TTL);
    assert_int_equal(pd_cluster_place(spare->cluster), PD_PLACE_SPARE);
}

TEST(a_daemon_that_starts_again_in_place_needs_not_wait_and_has_a_higher_tenure, fixture *f)
{
    member *m = add(f, 0, 1);
    uint64_t before;

    pass(f, 500);
    before = table_of(m)->tenure;
    stop(m);
    start(f, m);
    pass(f, 500);
    assert_true(owns(m, 0));
    assert_true(table_of(m)->tenure > before);
    pass(f, 2 * TTL);
    assert_int_equal(model_get(&f->model, "/paramd/c/shard/0")->tenure, table_of(m)->tenure);
}

TEST(a_spare_learns_the_number_of_shards_from_the_owners, fixture *f)
{
    member *a = add(f, 0, 3), *spare = add(f, -1, 1);

    pass(f, 1000);
    stop(a);
    pass(f, 2 * TTL);
    assert_true(owns(spare, 0));
    assert_int_equal(table_of(spare)->n_shards, 3);
}

TEST(an_owner_that_says_another_number_of_shards_is_warned, fixture *f)
{
    member *b;

    add(f, 0, 3);
    pass(f, 500);
    b = add(f, 1, 2);
    pass(f, 500);
    assert_non_null(strstr(b->said, "tcp://host0:7070 has another cluster.shards, 3, than this daemon, 2"));
}

TEST(of_two_spares_one_takes_the_shard_and_the_other_waits_on, fixture *f)
{
    member *owner = add(f, 0, 1), *a = add(f, -1, 1), *b = add(f, -1, 1);

    pass(f, 500);
    stop(owner);
    pass(f, 2 * TTL);
    assert_int_equal(owns(a, 0) + owns(b, 0), 1);
    assert_int_equal(
        (pd_cluster_place(a->cluster) == PD_PLACE_SPARE) + (pd_cluster_place(b->cluster) == PD_PLACE_SPARE), 1);
}

TEST(a_spare_that_declines_tries_again_a_moment_later_and_other_shards_first, fixture *f)
{
    member *a = add(f, 0, 2), *b = add(f, 1, 2), *spare = add(f, -1, 2);

    pass(f, 500);
    spare->declines = true;
    stop(a);
    pass(f, TTL + 200);
    stop(b);
    pass(f, TTL);
    assert_int_equal(pd_cluster_place(spare->cluster), PD_PLACE_SPARE);
    spare->declines = false;
    pass(f, 3000);
    assert_true(owns(spare, 0) || owns(spare, 1));
}

TEST(an_owner_that_slept_while_a_spare_took_its_shard_stops_at_once, fixture *f)
{
    member *owner = add(f, 0, 1), *spare = add(f, -1, 1);

    pass(f, 500);
    owner->sleeps = true;
    pass(f, TTL + 500);
    assert_true(owns(spare, 0));
    owner->sleeps = false;
    pass(f, 200);
    assert_true(owner->lost);
    assert_non_null(strstr(owner->said, "shard 0 has a newer owner: this daemon stops at once"));
    assert_true(owns(spare, 0));
}

TEST(an_owner_that_slept_stops_also_when_the_spare_that_took_its_shard_is_gone, fixture *f)
{
    member *owner = add(f, 0, 1), *spare = add(f, -1, 1);

    pass(f, 500);
    owner->sleeps = true;
    pass(f, TTL + 500);
    assert_true(owns(spare, 0));
    stop(spare);
    pass(f, TTL + 500);
    owner->sleeps = false;
    pass(f, 500);
    assert_true(owner->lost);
}

TEST(a_daemon_that_sleeps_while_it_claims_a_shard_makes_sure_of_it_when_it_wakes, fixture *f)
{
    member *owner = add(f, 0, 1), *spare = add(f, -1, 1);

    while (model_get(&f->model, "/paramd/c/shard/0") == NULL) pass(f, 100);
    assert_int_equal(pd_cluster_place(owner->cluster), PD_PLACE_CLAIMS);
    owner->sleeps = true;
    pass(f, 2 * TTL);
    assert_true(owns(spare, 0));
    owner->sleeps = false;
    pass(f, 500);
    assert_int_equal(pd_cluster_place(owner->cluster), PD_PLACE_SPARE);
}

TEST(a_spare_does_not_take_a_shard_that_its_owner_has_had_again_while_the_spare_got_the_state, fixture *f)
{
    member *owner = add(f, 0, 1), *spare = add(f, -1, 1);
    uint64_t tenure;

    pass(f, 500);
    owner->sleeps = spare->gets_state = true;
    pass(f, TTL + 500);
    assert_int_equal(pd_cluster_place(spare->cluster), PD_PLACE_CHOSEN);
    owner->sleeps = false; /* the owner registers again; from now on the spare's copy is too old */
    pass(f, 500);
    assert_true(owns(owner, 0));
    tenure = table_of(owner)->tenure;
    owner->sleeps = true;
    pass(f, TTL + 500);
    assert_null(model_get(&f->model, "/paramd/c/shard/0"));
    spare->gets_state = false;
    pass(f, 300);
    assert_int_equal(pd_cluster_place(spare->cluster), PD_PLACE_SPARE);
    assert_non_null(strstr(spare->said, "another daemon was faster: shard 0 is taken"));
    pass(f, TTL + 500); /* it gets the state that the owner had at last */
    assert_true(owns(spare, 0));
    assert_true(table_of(spare)->tenure > tenure);
}

TEST(an_address_at_which_another_shard_is_served_now_says_nothing_about_an_earlier_one, fixture *f)
{
    member *a = add(f, 0, 2), *b = add(f, 1, 2), *spare = add(f, -1, 2), *second;

    pass(f, 500);
    stop(a);
    pass(f, TTL + 500);
    assert_true(owns(spare, 0));
    stop(b);
    stop(spare); /* and starts again: it takes the other shard */
    start(f, spare);
    while (!owns(spare, 0) && !owns(spare, 1)) pass(f, 100);
    second = add(f, -1, 2);
    second->declines = true;
    while (pd_cluster_place(second->cluster) != PD_PLACE_CHOSEN) {
        model_time(&f->model, f->model.now_ms + 100);
        turn(spare, f->model.now_ms);
        pd_cluster_turn(second->cluster, f->model.now_ms);
    }
    assert_string_equal(table_of(second)->shards[0].url, table_of(second)->shards[1].url);
    assert_false(pd_cluster_must_probe(second->cluster, second->url));
}

TEST(while_the_engine_is_away_owners_serve_on_and_say_so_once, fixture *f)
{
    member *owner = add(f, 0, 1);
    unsigned lines;

    pass(f, 500);
    lines = owner->n_lines;
    owner->client.cut = true;
    pass(f, 5 * TTL);
    assert_true(owns(owner, 0));
    assert_int_equal(owner->n_lines, lines + 2);
    assert_non_null(strstr(owner->said, "the engine does not answer (no answer): this daemon serves on"));
    assert_non_null(strstr(owner->said, "the lease of shard 0 has ended: this daemon takes steps, but tells"));
    assert_false(table_of(owner)->engine_up);
    assert_int_equal(table_of(owner)->lease_ms, 0);
    assert_true(table_of(owner)->owned_until_ms < f->model.now_ms);
    owner->client.cut = false;
    pass(f, 3000);
    assert_true(owns(owner, 0));
    assert_true(table_of(owner)->engine_up);
    assert_non_null(strstr(owner->said, "the engine answers again, after"));
    assert_non_null(strstr(owner->said, "the lease of shard 0 had ended, and nobody has taken it"));
    assert_true(table_of(owner)->owned_until_ms > f->model.now_ms);
    assert_true(table_of(owner)->shards[0].alive);
}

TEST(a_spare_that_does_not_reach_the_engine_takes_no_shard, fixture *f)
{
    member *owner = add(f, 0, 1), *spare = add(f, -1, 1);

    pass(f, 500);
    spare->client.cut = true;
    pass(f, 500);
    stop(owner);
    pass(f, 5 * TTL);
    assert_int_equal(pd_cluster_place(spare->cluster), PD_PLACE_SPARE);
    spare->client.cut = false;
    pass(f, 2000);
    assert_true(owns(spare, 0));
}

TEST(after_a_compaction_the_keys_are_listed_again, fixture *f)
{
    member *a = add(f, 0, 2), *b = add(f, 1, 2);

    pass(f, 500);
    a->client.cut = true;
    pass(f, 500);
    stop(b);
    pass(f, TTL + 500);
    model_compact(&f->model);
    a->client.cut = false;
    pass(f, 2500);
    assert_true(owns(a, 0));
    assert_false(table_of(a)->shards[1].alive);
}

TEST(a_key_that_cannot_be_read_still_keeps_others_from_its_shard, fixture *f)
{
    member *spare, *other;

    model_put(&f->model, "/paramd/c/shard/0", "{\"url\": 5}");
    model_put(&f->model, "/paramd/c/last/0", "nonsense");
    model_put(&f->model, "/paramd/c/shard/99", "nonsense");
    model_put(&f->model, "/paramd/c/shard/0x", "nonsense");
    model_put(&f->model, "/paramd/c/spare/", "nonsense");
    spare = add(f, -1, 1);
    other = add(f, 0, 1);
    pass(f, 3 * TTL);
    assert_int_equal(pd_cluster_place(spare->cluster), PD_PLACE_SPARE);
    assert_int_equal(pd_cluster_place(other->cluster), PD_PLACE_SPARE);
    assert_non_null(strstr(spare->said, "is ignored"));
}

TEST(the_key_of_a_spare_that_ends_is_removed_and_that_of_an_owner_stays, fixture *f)
{
    member *owner = add(f, 0, 1), *spare = add(f, -1, 1);

    pass(f, 500);
    pd_cluster_leave(owner->cluster);
    pd_cluster_leave(spare->cluster);
    pass(f, 100);
    assert_true(pd_cluster_has_left(owner->cluster));
    assert_true(pd_cluster_has_left(spare->cluster));
    assert_null(model_get(&f->model, "/paramd/c/spare/m1"));
    assert_non_null(model_get(&f->model, "/paramd/c/shard/0"));
}

TEST(the_table_tells_of_each_change_and_of_nothing_else, fixture *f)
{
    member *a = add(f, 0, 2), *b;
    unsigned before;

    pass(f, 1000);
    before = a->n_changes;
    pass(f, 3 * TTL);
    assert_int_equal(a->n_changes, before);
    b = add(f, 1, 2);
    pass(f, 500);
    assert_true(a->n_changes > before);
    before = a->n_changes;
    stop(b);
    pass(f, TTL + 500);
    assert_true(a->n_changes > before);
}

/* Returns the number of members that own a shard, asleep or not. */
static unsigned count_owners(const fixture *f, int shard)
{
    unsigned n = 0;

    for (int i = 0; i < f->n; i++) n += owns(&f->at[i], shard);
    return n;
}

/* Checks that no two members have the same tenure, and that none has a tenure that the engine has not given. */
static void check_tenures(const fixture *f)
{
    for (int i = 0; i < f->n; i++)
        for (int k = 0; k < i; k++)
            if (f->at[i].cluster != NULL && f->at[k].cluster != NULL && table_of(&f->at[i])->tenure > 0)
                assert_int_not_equal(table_of(&f->at[i])->tenure, table_of(&f->at[k])->tenure);
}

/* Lets something fail, or heal. */
static void disturb(fixture *f, uint64_t *seed)
{
    member *m = &f->at[rig_random(seed) % (uint64_t)f->n];

    switch (rig_random(seed) % 8) {
    case 0: m->client.cut = true; break;
    case 1: m->client.cut = false; break;
    case 2: m->sleeps = true; break;
    case 3: m->sleeps = false; break;
    case 4: m->client.fault = MODEL_LOSES_ANSWER; break;
    case 5: m->client.fault = MODEL_LOSES_CALL; break;
    case 6:
        stop(m);
        start(f, m);
        break;
    default: model_compact(&f->model); break;
    }
}

/* Ends all faults, and starts daemons again that have stopped. */
static void heal(fixture *f)
{
    for (int i = 0; i < f->n; i++) {
        member *m = &f->at[i];
        m->client.cut = m->sleeps = false;
        m->client.fault = MODEL_FINE;
    }
    pass(f, 2000);
    for (int i = 0; i < f->n; i++) {
        if (!f->at[i].lost) continue;
        stop(&f->at[i]);
        start(f, &f->at[i]);
    }
}

TEST(whatever_fails_each_shard_has_one_owner_once_all_is_well_again)
{
    for (uint64_t run = 1; run <= 60; run++) {
        fixture *f = calloc(1, sizeof *f);
        uint64_t seed = run;

        assert_non_null(f);
        set_up(f);
        for (int i = 0; i < 5; i++) add(f, i < 3 ? i : -1, 3);
        pass(f, 1000);
        for (int i = 0; i < 40; i++) {
            disturb(f, &seed);
            pass(f, rig_random(&seed) % (2 * TTL));
            check_tenures(f);
        }
        heal(f);
        pass(f, 4 * TTL);
        for (int shard = 0; shard < 3; shard++) assert_int_equal(count_owners(f, shard), 1);
        for (int i = 0; i < f->n; i++) {
            assert_false(f->at[i].lost);
            for (int shard = 0; shard < 3; shard++) {
                assert_true(table_of(&f->at[i])->shards[shard].alive);
                assert_int_equal(table_of(&f->at[i])->shards[shard].tenure, table_of(&f->at[0])->shards[shard].tenure);
            }
        }
        tear_down(f);
        free(f);
    }
}

TEST(the_value_of_a_key_reads_as_it_was_written)
{
    pd_cluster_value value = { .url = "tls://a.example:7070", .life = 0x1234, .process = UINT64_MAX, .shards = 3 },
                     back;
    char text[PD_ENGINE_VALUE];

    assert_int_equal(pd_cluster_value_write(text, &value, NULL), PD_OK);
    assert_int_equal(pd_cluster_value_read(&back, text, NULL), PD_OK);
    assert_memory_equal(&value, &back, sizeof value);
}

TEST(a_value_that_is_wrong_is_refused_with_the_name_of_the_member)
{
    static const char *const wrong[][2] = {
        { "", "not JSON" },
        { "[]", "\"url\"" },
        { "{\"url\":\"a\\u202e\"}", "\"url\"" },
        { "{\"url\":\"a\",\"http\":\"\",\"life\":\"12\"}", "\"life\"" },
        { "{\"url\":\"a\",\"http\":\"\",\"life\":\"0000000000000001\",\"process\":\"0000000000000001\",\"shards\":65}",
          "\"shards\"" },
    };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        pd_cluster_value value;
        pd_error err;
        assert_int_equal(pd_cluster_value_read(&value, wrong[i][0], &err), PD_DATA_LOSS);
        assert_non_null(strstr(err.text, wrong[i][1]));
    }
}
