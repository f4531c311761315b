/* Tests what a handle knows of the places of its shards: which owners it believes, and when it asks for newer ones. */
#include "test.h"
#include "shard_table.h"

#include <sys/eventfd.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)

static pd_shard_table *table_of(uint64_t random)
{
    pd_shard_table *table = pd_shard_table_new(random);

    assert_non_null(table);
    return table;
}

/* Gives the table one owner of an answer. */
static void learn(pd_shard_table *table, uint32_t shard, const char *url, uint64_t tenure)
{
    Paramd__ShardsReply reply = PARAMD__SHARDS_REPLY__INIT;
    Paramd__ShardInfo one = PARAMD__SHARD_INFO__INIT, *list = &one;

    one.shard = shard;
    one.url = (char *)url;
    one.tenure = tenure;
    reply.n_shards = 1;
    reply.shards = &list;
    pd_shard_table_learn(table, &reply);
}

static void expect_owner(pd_shard_table *table, uint32_t shard, const char *url, uint64_t tenure)
{
    char *found;

    assert_int_equal(pd_shard_table_find(table, shard, &found), tenure);
    assert_string_equal(found, url);
    free(found);
}

TEST(an_owner_is_replaced_by_a_later_one_alone)
{
    pd_shard_table *table = table_of(1);

    learn(table, 2, "tcp://a:1", 5);
    expect_owner(table, 2, "tcp://a:1", 5);
    learn(table, 2, "tcp://b:1", 9);
    expect_owner(table, 2, "tcp://b:1", 9);
    assert_int_equal(pd_shard_table_changes(table), 2);
    learn(table, 2, "tcp://a:1", 5); /* a server whose own table is behind */
    learn(table, 2, "tcp://a:1", 9);
    learn(table, 2, "tcp://a:1", 0);
    learn(table, 2, "", 11);
    expect_owner(table, 2, "tcp://b:1", 9);
    assert_int_equal(pd_shard_table_changes(table), 2);
    pd_shard_table_free(table);
}

TEST(whatever_the_order_of_answers_the_highest_tenure_is_known)
{
    uint64_t random = 7;

    for (int round = 0; round < 200; round++) {
        pd_shard_table *table = table_of(1);
        uint64_t most = 0;
        char url[32], *found;
        for (int i = 0; i < 20; i++) {
            uint64_t tenure = 1 + (random = random * 6364136223846793005u + 1442695040888963407u) % 50;
            snprintf(url, sizeof url, "tcp://host%d:1", (int)tenure);
            learn(table, 0, url, tenure);
            most = tenure > most ? tenure : most;
        }
        snprintf(url, sizeof url, "tcp://host%d:1", (int)most);
        assert_int_equal(pd_shard_table_find(table, 0, &found), most);
        assert_string_equal(found, url);
        free(found);
        pd_shard_table_free(table);
    }
}

TEST(a_last_owner_that_is_gone_is_known_until_there_is_one)
{
    pd_shard_table *table = table_of(1);

    learn(table, 0, "tcp://a:1", 0); /* nobody keeps its lease */
    expect_owner(table, 0, "tcp://a:1", 0);
    learn(table, 0, "tcp://b:1", 3);
    expect_owner(table, 0, "tcp://b:1", 3);
    pd_shard_table_free(table);
}

/* Gives the table an answer with these spares. */
static void learn_spares(pd_shard_table *table, const char *const *urls, size_t n)
{
    Paramd__ShardsReply reply = PARAMD__SHARDS_REPLY__INIT;
    Paramd__SpareInfo one[3], *list[3];

    for (size_t i = 0; i < n; i++) {
        paramd__spare_info__init(list[i] = &one[i]);
        one[i].url = (char *)urls[i];
    }
    reply.n_spares = n;
    reply.spares = list;
    pd_shard_table_learn(table, &reply);
}

TEST(spares_are_those_of_the_last_answer)
{
    pd_shard_table *table = table_of(1);
    char *spares;

    assert_null(pd_shard_table_spares(table));
    learn_spares(table, (const char *const[]){ "", "tcp://a:1", "tcp://b:1" },
                 3); /* the first one has no address yet */
    assert_string_equal(spares = pd_shard_table_spares(table), "tcp://a:1,tcp://b:1");
    free(spares);
    assert_int_equal(pd_shard_table_changes(table), 1);
    learn_spares(table, (const char *const[]){ "tcp://a:1", "tcp://b:1" }, 2);
    assert_int_equal(pd_shard_table_changes(table), 1);
    learn_spares(table, (const char *const[]){ "" }, 1);
    assert_null(pd_shard_table_spares(table));
    assert_int_equal(pd_shard_table_changes(table), 2);
    pd_shard_table_free(table);
}

TEST(numbers_beyond_the_most_shards_are_left_out)
{
    pd_shard_table *table = table_of(1);

    learn(table, PD_MAX_SHARDS, "tcp://a:1", 3);
    learn(table, UINT32_MAX, "tcp://a:1", 3);
    assert_int_equal(pd_shard_table_changes(table), 0);
    pd_shard_table_free(table);
}

TEST(a_list_has_all_shards_or_names_the_one_that_is_missing)
{
    pd_shard_table *table = table_of(1);
    pd_shard_list list;
    pd_error err;

    assert_int_equal(pd_shard_table_list(table, &list, &err), PD_UNAVAILABLE);
    learn(table, 2, "tcp://c:1", 4);
    learn(table, 0, "tcp://a:1,tcp://a:2", 2);
    assert_int_equal(pd_shard_table_list(table, &list, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "shard 1 of the cluster has had no owner yet"));
    learn(table, 1, "tcp://b:1", 3);
    assert_int_equal(pd_shard_table_list(table, &list, &err), PD_OK);
    assert_int_equal(list.n, 3);
    assert_int_equal(pd_shard_list_count(&list, 0), 2);
    assert_string_equal(list.addresses[list.first[2]].host, "c");
    pd_shard_list_free(&list);
    pd_shard_table_free(table);
}

TEST(an_address_that_stands_for_several_shards_is_refused)
{
    pd_shard_table *table = table_of(1);
    pd_shard_list list;
    pd_error err;

    learn(table, 0, "tcp://a:{1..2}", 2);
    learn(table, 1, "tcp://b:1", 3);
    assert_int_equal(pd_shard_table_list(table, &list, &err), PD_INTERNAL);
    pd_shard_table_free(table);
}

TEST(nobody_asks_before_somebody_needs_a_newer_table)
{
    pd_shard_table *table = table_of(1);

    assert_true(pd_shard_table_due(table, 0) == UINT64_MAX);
    assert_false(pd_shard_table_take_turn(table, 0, 1000 * SECOND));
    pd_shard_table_free(table);
}

TEST(processes_ask_at_different_times_within_half_a_second)
{
    uint64_t first = 0, least = UINT64_MAX, most = 0;

    for (uint64_t process = 0; process < 100; process++) {
        pd_shard_table *table = table_of(process * 0x9e3779b97f4a7c15u);
        uint64_t due;
        pd_shard_table_want(table, PD_NO_SHARD, 10 * SECOND, true);
        due = pd_shard_table_due(table, 0);
        assert_in_range(due, 10 * SECOND, 10 * SECOND + 500 * MS);
        if (process == 0) first = due;
        least = due < least ? due : least;
        most = due > most ? due : most;
        pd_shard_table_free(table);
    }
    assert_in_range(first, least, most);
    assert_true(most - least > 300 * MS);
}

TEST(a_process_that_is_alone_asks_at_once_but_not_twice_in_a_second)
{
    pd_shard_table *table = table_of(7);

    pd_shard_table_want(table, PD_NO_SHARD, SECOND, false);
    assert_int_equal(pd_shard_table_due(table, 0), SECOND);
    assert_true(pd_shard_table_take_turn(table, 0, SECOND));
    pd_shard_table_want(table, PD_NO_SHARD, SECOND + MS, false);
    assert_int_equal(pd_shard_table_due(table, 0), 2 * SECOND);
    pd_shard_table_free(table);
}

TEST(however_often_it_is_needed_the_table_is_asked_for_once_a_second)
{
    pd_shard_table *table = table_of(5);
    uint64_t last = 0;
    int turns = 0;

    for (uint64_t now = SECOND; now < 61 * SECOND; now += MS) {
        pd_shard_table_want(table, PD_NO_SHARD, now, true); /* 64 cores, each of which has just failed to connect */
        if (pd_shard_table_due(table, 0) > now || !pd_shard_table_take_turn(table, 0, now)) continue;
        assert_true(turns == 0 || now - last >= SECOND);
        assert_false(pd_shard_table_take_turn(table, 1, now)); /* another core */
        last = now;
        turns++;
    }
    assert_in_range(turns, 35, 60);
    pd_shard_table_free(table);
}

TEST(the_core_of_a_server_that_has_told_of_a_change_asks_first)
{
    pd_shard_table *table = table_of(5);

    pd_shard_table_want(table, PD_NO_SHARD, SECOND, false); /* another core cannot connect */
    pd_shard_table_want(table, 2, SECOND + MS, true);
    assert_false(pd_shard_table_take_turn(table, 0, SECOND + 100 * MS));
    assert_true(pd_shard_table_take_turn(table, 2, SECOND + 100 * MS));
    pd_shard_table_free(table);
}

TEST(another_core_asks_a_moment_later_and_then_the_core_that_was_told_does_all_the_same)
{
    pd_shard_table *table = table_of(5);

    pd_shard_table_want(table, 2, SECOND, false);
    assert_int_equal(pd_shard_table_due(table, 0), SECOND + 250 * MS);
    assert_true(pd_shard_table_take_turn(table, 0, SECOND + 250 * MS));
    assert_false(pd_shard_table_take_turn(table, 2, SECOND + 260 * MS));
    assert_true(pd_shard_table_take_turn(table, 2, 2 * SECOND + 250 * MS));
    assert_true(pd_shard_table_due(table, 0) == UINT64_MAX);
    pd_shard_table_free(table);
}

TEST(cores_that_are_connected_ask_in_turn_as_the_answer_of_one_may_be_old)
{
    pd_shard_table *table = table_of(5);

    learn(table, 3, "tcp://a:1", 5);
    pd_shard_table_want(table, PD_NO_SHARD, SECOND, false);
    assert_true(pd_shard_table_take_turn(table, 0, SECOND));
    pd_shard_table_want(table, PD_NO_SHARD, SECOND + MS, false);
    assert_false(pd_shard_table_take_turn(table, 0, 2 * SECOND));
    assert_true(pd_shard_table_take_turn(table, 1, 2 * SECOND));
    pd_shard_table_free(table);
}

TEST(the_only_core_of_a_handle_does_not_wait_for_others)
{
    pd_shard_table *table = table_of(5);

    learn(table, 0, "tcp://a:1", 5);
    pd_shard_table_want(table, PD_NO_SHARD, SECOND, false);
    assert_true(pd_shard_table_take_turn(table, 0, SECOND));
    pd_shard_table_want(table, PD_NO_SHARD, SECOND + MS, false);
    assert_true(pd_shard_table_take_turn(table, 0, 2 * SECOND));
    pd_shard_table_free(table);
}

TEST(all_cores_are_woken_when_somebody_must_ask_and_when_an_owner_is_new)
{
    pd_shard_table *table = table_of(5);
    int one = eventfd(0, EFD_NONBLOCK), other = eventfd(0, EFD_NONBLOCK);
    eventfd_t count;

    pd_shard_table_wake(table, 0, one, -1);
    pd_shard_table_wake(table, 7, other, -1);
    pd_shard_table_want(table, PD_NO_SHARD, SECOND, true);
    assert_int_equal(eventfd_read(one, &count), 0);
    assert_int_equal(eventfd_read(other, &count), 0);
    learn(table, 3, "tcp://a:1", 5);
    assert_int_equal(eventfd_read(one, &count), 0);
    assert_int_equal(eventfd_read(other, &count), 0);
    learn(table, 3, "tcp://a:1", 5);
    assert_int_not_equal(eventfd_read(one, &count), 0);
    pd_shard_table_wake(table, 7, -1, -1);
    learn(table, 3, "tcp://b:1", 6);
    assert_int_equal(eventfd_read(one, &count), 0);
    assert_int_not_equal(eventfd_read(other, &count), 0);
    close(one);
    close(other);
    pd_shard_table_free(table);
}

TEST(a_core_is_told_to_leave_the_address_of_an_owner_only_when_its_own_shard_has_another_one)
{
    pd_shard_table *table = table_of(5);
    int move = eventfd(0, EFD_NONBLOCK);
    eventfd_t count;

    learn(table, 3, "tcp://a:1", 5);
    pd_shard_table_wake(table, 3, -1, move);
    pd_shard_table_want(table, PD_NO_SHARD, SECOND, true);
    learn(table, 2, "tcp://c:1", 6);
    learn(table, 3, "tcp://a:1", 7); /* it has registered again */
    assert_int_not_equal(eventfd_read(move, &count), 0);
    learn(table, 3, "tcp://b:1", 8);
    assert_int_equal(eventfd_read(move, &count), 0);
    close(move);
    pd_shard_table_free(table);
}
