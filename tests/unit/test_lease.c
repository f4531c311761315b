/* Tests how a daemon keeps a key registered with the engine, which is a model in memory here. */
#include "test.h"
#include "engine_model.h"
#include "lease.h"

enum { TTL = 8000 };
#define KEY "/paramd/c/shard/0"
#define LAST "/paramd/c/last/0"

typedef struct fixture {
    engine_model model;
    model_client client;
    pd_lease lease;
} fixture;

static void set_up(fixture *f)
{
    model_init(&f->model);
    model_client_init(&f->client, &f->model);
    pd_lease_init(&f->lease, &f->client.base, TTL);
}

FIXTURE(fixture, set_up, NULL);

/* Lets time pass, with a turn every 50 ms. */
static void pass(fixture *f, uint64_t ms)
{
    for (uint64_t until = f->model.now_ms + ms; f->model.now_ms < until;) {
        model_time(&f->model, f->model.now_ms + 50);
        f->lease.now_ms = f->model.now_ms;
        f->client.base.turn(&f->client.base, f->model.now_ms);
        pd_lease_turn(&f->lease, f->model.now_ms);
    }
}

static void keep(fixture *f)
{
    pd_lease_keep(&f->lease, KEY, LAST, "mine", 0);
    pass(f, 200);
}

TEST(a_key_that_is_free_is_registered_under_a_lease, fixture *f)
{
    keep(f);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
    assert_string_equal(model_get(&f->model, KEY)->value, "mine");
    assert_string_equal(model_get(&f->model, LAST)->value, "mine");
    assert_int_equal(model_get(&f->model, KEY)->tenure, f->lease.tenure);
    assert_int_equal(model_get(&f->model, LAST)->lease, 0);
}

TEST(a_lease_is_renewed_every_quarter_of_its_time, fixture *f)
{
    unsigned before;

    keep(f);
    before = f->client.n_calls;
    pass(f, 4 * TTL);
    assert_in_range(f->client.n_calls - before, 15, 16);
    assert_int_equal(f->client.last_verb, PD_ENGINE_RENEW);
    assert_true(pd_lease_left(&f->lease, f->model.now_ms) >= TTL * 3 / 4 - 100);
    assert_non_null(model_get(&f->model, KEY));
}

TEST(a_key_of_another_is_left_alone, fixture *f)
{
    model_put(&f->model, KEY, "other");
    keep(f);
    assert_int_equal(f->lease.state, PD_LEASE_TAKEN);
    assert_string_equal(model_get(&f->model, KEY)->value, "other");
    assert_int_equal(pd_lease_turn(&f->lease, f->model.now_ms), UINT64_MAX);
}

TEST(a_lease_that_has_ended_is_registered_again_with_the_same_value_and_a_higher_tenure, fixture *f)
{
    uint64_t before;

    keep(f);
    before = f->lease.tenure;
    model_expire(&f->model, KEY);
    pass(f, TTL / 4 + 200);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
    assert_true(f->lease.tenure > before);
    assert_string_equal(model_get(&f->model, KEY)->value, "mine");
}

TEST(a_lease_that_has_ended_is_lost_if_another_has_the_key, fixture *f)
{
    keep(f);
    model_expire(&f->model, KEY);
    model_put(&f->model, KEY, "other");
    pass(f, TTL / 4 + 200);
    assert_int_equal(f->lease.state, PD_LEASE_TAKEN);
}

TEST(a_lease_that_has_ended_is_lost_if_another_has_had_the_key_meanwhile, fixture *f)
{
    keep(f);
    model_expire(&f->model, KEY);
    model_put(&f->model, LAST, "other"); /* its key has ended, too */
    pass(f, TTL / 4 + 200);
    assert_int_equal(f->lease.state, PD_LEASE_TAKEN);
    assert_null(model_get(&f->model, KEY));
}

TEST(a_key_that_another_has_had_since_the_caller_looked_is_not_registered, fixture *f)
{
    uint64_t since;

    model_put(&f->model, LAST, "other");
    since = model_get(&f->model, LAST)->revision;
    model_put(&f->model, LAST, "other"); /* it has registered again, and its lease has ended once more */
    pd_lease_keep(&f->lease, KEY, LAST, "mine", since);
    pass(f, 200);
    assert_int_equal(f->lease.state, PD_LEASE_TAKEN);
    assert_null(model_get(&f->model, KEY));
}

TEST(a_key_that_nobody_has_had_since_the_caller_looked_is_registered, fixture *f)
{
    model_put(&f->model, LAST, "other");
    pd_lease_keep(&f->lease, KEY, LAST, "mine", model_get(&f->model, LAST)->revision);
    pass(f, 200);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
}

TEST(a_lease_that_has_ended_is_registered_again_in_an_engine_that_has_lost_all_keys, fixture *f)
{
    keep(f);
    model_put(&f->model, KEY, NULL);
    model_put(&f->model, LAST, NULL);
    pass(f, TTL / 4 + 200);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
    assert_string_equal(model_get(&f->model, LAST)->value, "mine");
}

/* Lets the next registration fail after the engine has made it. */
static void lose_registration(fixture *f)
{
    model_expire(&f->model, KEY);
    f->client.cut = true;
    pass(f, TTL / 2);
    f->client.cut = false;
    while (f->lease.state != PD_LEASE_ASKED) pass(f, 50);
    f->client.fault = MODEL_LOSES_ANSWER;
    while (model_get(&f->model, KEY) == NULL) pass(f, 50);
}

TEST(a_second_registration_whose_answer_was_lost_is_its_own_also_when_its_lease_has_ended, fixture *f)
{
    keep(f);
    lose_registration(f);
    model_expire(&f->model, KEY);
    pass(f, 2 * TTL);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
    assert_int_equal(model_get(&f->model, KEY)->tenure, f->lease.tenure);
}

TEST(a_registration_whose_answer_was_lost_is_recognised_as_its_own, fixture *f)
{
    uint64_t tenure;

    f->client.fault = MODEL_LOSES_ANSWER;
    pd_lease_keep(&f->lease, KEY, LAST, "mine", 0);
    pass(f, 100);
    assert_int_equal(f->lease.state, PD_LEASE_ASKED);
    tenure = model_get(&f->model, KEY)->tenure;
    pass(f, 2000);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
    assert_int_equal(f->lease.tenure, tenure);
    pass(f, 3 * TTL);
    assert_int_equal(model_get(&f->model, KEY)->tenure, tenure);
}

TEST(a_renewal_whose_answer_was_lost_is_made_again_a_second_later, fixture *f)
{
    keep(f);
    pass(f, TTL / 4 - 300);
    f->client.fault = MODEL_LOSES_ANSWER;
    pass(f, 400);
    assert_true(f->lease.down);
    pass(f, 1200);
    assert_false(f->lease.down);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
}

TEST(without_answers_the_key_counts_as_held_however_long_it_takes, fixture *f)
{
    keep(f);
    f->client.cut = true;
    pass(f, 5 * TTL);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
    assert_true(f->lease.down);
    assert_int_equal(pd_lease_left(&f->lease, f->model.now_ms), 0);
    assert_null(model_get(&f->model, KEY));
    f->client.cut = false;
    pass(f, 2500);
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
    assert_non_null(model_get(&f->model, KEY));
}

TEST(a_daemon_that_slept_longer_than_its_lease_finds_the_new_owner_when_it_wakes, fixture *f)
{
    keep(f);
    model_time(&f->model, f->model.now_ms + 2 * TTL);
    model_put(&f->model, KEY, "other");
    pass(f, 200);
    assert_int_equal(f->lease.state, PD_LEASE_TAKEN);
}

TEST(a_watch_that_sees_the_key_go_makes_it_register_at_once, fixture *f)
{
    keep(f);
    model_put(&f->model, KEY, NULL);
    pd_lease_seen(&f->lease, 0, f->model.revision, NULL);
    pass(f, 100);
    assert_non_null(model_get(&f->model, KEY));
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
}

TEST(a_watch_that_sees_another_owner_ends_the_tenure_at_once, fixture *f)
{
    keep(f);
    pd_lease_seen(&f->lease, f->lease.tenure + 2, f->lease.tenure + 2, "other");
    assert_int_equal(f->lease.state, PD_LEASE_TAKEN);
}

TEST(a_watch_that_is_behind_the_registration_changes_nothing, fixture *f)
{
    keep(f);
    pd_lease_seen(&f->lease, 0, f->lease.tenure - 1, NULL);
    pd_lease_seen(&f->lease, 1, 1, "other");
    pd_lease_seen(&f->lease, f->lease.tenure, f->lease.tenure, "mine");
    assert_int_equal(f->lease.state, PD_LEASE_HELD);
}

TEST(a_released_lease_makes_no_calls, fixture *f)
{
    unsigned before;

    keep(f);
    pd_lease_release(&f->lease);
    before = f->client.n_calls;
    pass(f, 2 * TTL);
    assert_int_equal(f->client.n_calls, before);
    assert_null(model_get(&f->model, KEY));
}
