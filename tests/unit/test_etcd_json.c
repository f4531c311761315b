/* Tests the requests to etcd's JSON gateway, and how its answers are read: those of etcd 3.4.23, and wrong ones. */
#include <jansson.h>

#include "test.h"
#include "base64.h"
#include "etcd_json.h"

#define HEADER "\"header\":{\"cluster_id\":\"324\",\"revision\":\"7\",\"raft_term\":\"2\"}"

static int set_up(void **state)
{
    pd_etcd_answer *answer = calloc(1, sizeof *answer);

    assert_non_null(answer);
    assert_int_equal(pd_etcd_answer_init(answer), PD_OK);
    *state = answer;
    return 0;
}

static int tear_down(void **state)
{
    pd_etcd_answer_free(*state);
    free(*state);
    return 0;
}

EACH_TEST(set_up, tear_down);

static int parse(pd_etcd_answer *answer, pd_etcd_kind kind, const char *text, pd_error *err)
{
    return pd_etcd_parse(answer, kind, text, strlen(text), err);
}

static void refuses(pd_etcd_answer *answer, pd_etcd_kind kind, const char *text, const char *why)
{
    pd_error err = { 0 };

    assert_int_not_equal(parse(answer, kind, text, &err), PD_OK);
    if (strstr(err.text, why) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, why);
}

TEST(a_grant_has_the_lease_and_its_time, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_GRANTED, "{" HEADER ",\"ID\":\"2324035707352389381\",\"TTL\":\"5\"}", NULL),
                     PD_OK);
    assert_int_equal(answer->answer.lease, UINT64_C(2324035707352389381));
    assert_int_equal(answer->answer.ttl_ms, 5000);
}

TEST(a_key_that_was_created_has_the_revision_as_its_tenure, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_CREATED, "{" HEADER ",\"succeeded\":true,\"responses\":[]}", NULL), PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_DONE);
    assert_int_equal(answer->answer.tenure, 7);
}

#define KV                                                                                                             \
    "{\"key\":\"L3BhcmFtZC94L3NoYXJkLzA=\",\"create_revision\":\"2\",\"mod_revision\":\"3\",\"value\":\"aGVsbG8=\","   \
    "\"lease\":\"9\"}"

TEST(a_transaction_that_has_failed_tells_who_has_the_key, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_CREATED,
                           "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[" KV "],\"count\":\"1\"}}]}",
                           NULL),
                     PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_HELD);
    assert_string_equal(answer->entries[0].key, "/paramd/x/shard/0");
    assert_string_equal(answer->entries[0].value, "hello");
    assert_int_equal(answer->entries[0].tenure, 2);
    assert_int_equal(answer->entries[0].revision, 3);
    assert_int_equal(answer->entries[0].lease, 9);
}

TEST(a_renewal_without_a_time_says_that_the_lease_has_ended, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_RENEWED, "{\"result\":{" HEADER ",\"ID\":\"9\",\"TTL\":\"5\"}}", NULL),
                     PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_DONE);
    assert_int_equal(answer->answer.ttl_ms, 5000);
    assert_int_equal(parse(answer, PD_ETCD_RENEWED, "{\"result\":{" HEADER ",\"ID\":\"9\"}}", NULL), PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_GONE);
}

TEST(a_renewal_that_cannot_be_read_does_not_count_as_the_end_of_the_lease, pd_etcd_answer *answer)
{
    refuses(answer, PD_ETCD_RENEWED, "{}", "ID");
    refuses(answer, PD_ETCD_RENEWED, "{\"result\":{\"ID\":\"9\",\"TTL\":\"soon\"}}", "TTL");
    refuses(answer, PD_ETCD_RENEWED, "", "not JSON");
    refuses(answer, PD_ETCD_RENEWED, "<html>", "not JSON");
    refuses(answer, PD_ETCD_RENEWED, "[]", "not a JSON object");
    refuses(answer, PD_ETCD_RENEWED, "{\"error\":\"etcdserver: no leader\",\"code\":14}", "etcdserver: no leader");
    refuses(answer, PD_ETCD_RENEWED, "{\"code\":14, \"message\":\"etcdserver: no leader\"}", "etcdserver: no leader");
}

TEST(a_list_has_all_keys_and_the_revision, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_LISTED, "{" HEADER ",\"kvs\":[" KV "," KV "],\"count\":\"2\"}", NULL),
                     PD_OK);
    assert_int_equal(answer->answer.n, 2);
    assert_int_equal(answer->answer.revision, 7);
    assert_int_equal(parse(answer, PD_ETCD_LISTED, "{" HEADER "}", NULL), PD_OK);
    assert_int_equal(answer->answer.n, 0);
    refuses(answer, PD_ETCD_LISTED, "{\"kvs\":[]}", "revision");
}

TEST(a_watch_tells_changes_removals_and_its_end, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_CHANGES, "{\"result\":{" HEADER ",\"created\":true}}", NULL), PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_DONE);
    assert_int_equal(answer->answer.n, 0);
    assert_int_equal(parse(answer, PD_ETCD_CHANGES,
                           "{\"result\":{" HEADER ",\"events\":[{\"kv\":" KV "},{\"type\":\"DELETE\",\"kv\":{\"key\":"
                           "\"L3BhcmFtZC94L3NoYXJkLzA=\",\"mod_revision\":\"4\"}}]}}",
                           NULL),
                     PD_OK);
    assert_int_equal(answer->answer.n, 2);
    assert_false(answer->entries[0].removed);
    assert_true(answer->entries[1].removed);
    assert_int_equal(answer->entries[1].revision, 4);
    assert_int_equal(
        parse(answer, PD_ETCD_CHANGES, "{\"result\":{\"canceled\":true,\"compact_revision\":\"3\"}}", NULL), PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_COMPACTED);
    assert_int_equal(parse(answer, PD_ETCD_CHANGES, "{\"result\":{\"canceled\":true}}", NULL), PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_ENDED);
    refuses(answer, PD_ETCD_CHANGES, "{\"error\":{\"grpc_code\":14,\"message\":\"no leader\"}}", "no leader");
}

TEST(a_watch_that_etcd_refuses_needs_another_token, pd_etcd_answer *answer)
{
    pd_error err;

    assert_int_equal(parse(answer, PD_ETCD_CHANGES,
                           "{\"result\":{" HEADER ",\"created\":true,\"canceled\":true,\"cancel_reason\":"
                           "\"rpc error: code = PermissionDenied desc = etcdserver: permission denied\"}}",
                           &err),
                     PD_UNAUTHENTICATED);
    assert_non_null(strstr(err.text, "permission denied"));
}

static void answers_with(pd_etcd_answer *answer, pd_etcd_kind kind, const char *words, int code)
{
    char text[200];

    snprintf(text, sizeof text, "{\"error\":\"etcdserver: %s\",\"code\":3}", words);
    assert_int_equal(parse(answer, kind, text, NULL), code);
    /* version 2 of etcd's gateway */
    snprintf(text, sizeof text, "{\"code\":3, \"message\":\"etcdserver: %s\"}", words);
    assert_int_equal(parse(answer, kind, text, NULL), code);
}

TEST(an_error_says_whether_another_token_is_needed, pd_etcd_answer *answer)
{
    answers_with(answer, PD_ETCD_LISTED, "invalid auth token", PD_UNAUTHENTICATED);
    answers_with(answer, PD_ETCD_LISTED, "user name is empty", PD_UNAUTHENTICATED);
    answers_with(answer, PD_ETCD_CREATED, "revision of auth store is old", PD_UNAUTHENTICATED);
    answers_with(answer, PD_ETCD_CREATED, "permission denied", PD_UNAVAILABLE);
    answers_with(answer, PD_ETCD_LOGGED_IN, "authentication failed, invalid user ID or password", PD_UNAVAILABLE);
    answers_with(answer, PD_ETCD_LOGGED_IN, "authentication is not enabled", PD_FAILED_PRECONDITION);
}

TEST(an_answer_to_a_password_has_a_token, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_LOGGED_IN, "{" HEADER ",\"token\":\"jGqWZtQfQnXFmVdq.15\"}", NULL), PD_OK);
    assert_string_equal(answer->token, "jGqWZtQfQnXFmVdq.15");
    refuses(answer, PD_ETCD_LOGGED_IN, "{" HEADER "}", "token");
}

TEST(entries_that_are_too_long_or_not_base64_are_counted_and_left_out, pd_etcd_answer *answer)
{
    char *text = calloc(1, 64 * 1024);

    assert_non_null(text);
    strcpy(text,
           "{" HEADER ",\"kvs\":[{\"key\":\"!!\",\"create_revision\":\"2\",\"mod_revision\":\"3\",\"value\":\"\"},"
           "{\"key\":\"YQ==\",\"mod_revision\":\"3\",\"value\":\"\"}," KV ",{\"key\":\"");
    memset(text + strlen(text), 'a', 8000);
    strcat(text, "\",\"create_revision\":\"2\",\"mod_revision\":\"3\",\"value\":\"\"}]}");
    assert_int_equal(parse(answer, PD_ETCD_LISTED, text, NULL), PD_OK);
    assert_int_equal(answer->answer.n, 1);
    assert_int_equal(answer->answer.left_out, 3);
    free(text);
}

TEST(more_entries_than_fit_are_counted, pd_etcd_answer *answer)
{
    size_t room = 512 * 1024;
    char *text = calloc(1, room);

    assert_non_null(text);
    strcpy(text, "{" HEADER ",\"kvs\":[" KV);
    for (int i = 1; i < 2 * PD_ETCD_ENTRIES; i++) strcat(text, "," KV);
    strcat(text, "]}");
    assert_true(strlen(text) < room);
    assert_int_equal(parse(answer, PD_ETCD_LISTED, text, NULL), PD_OK);
    assert_int_equal(answer->answer.n + answer->answer.left_out, 2 * PD_ETCD_ENTRIES);
    assert_true(answer->answer.n < PD_ETCD_ENTRIES);
    free(text);
}

TEST(an_answer_that_is_too_long_is_refused, pd_etcd_answer *answer)
{
    char *text = calloc(1, PD_ETCD_ANSWER + 2);
    pd_error err;

    assert_non_null(text);
    memset(text, ' ', PD_ETCD_ANSWER + 1);
    assert_int_equal(pd_etcd_parse(answer, PD_ETCD_LISTED, text, PD_ETCD_ANSWER + 1, &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "more than"));
    free(text);
}

#define LAST                                                                                                           \
    "{\"key\":\"L3BhcmFtZC94L2xhc3QvMA==\",\"create_revision\":\"1\",\"mod_revision\":\"5\",\"value\":\"aGVsbG8=\"}"

TEST(a_transaction_that_has_failed_though_the_key_is_free_tells_who_had_it_last, pd_etcd_answer *answer)
{
    assert_int_equal(
        parse(answer, PD_ETCD_CREATED,
              "{" HEADER ",\"responses\":[{\"response_range\":{}},{\"response_range\":{\"kvs\":[" LAST "]}}]}", NULL),
        PD_OK);
    assert_int_equal(answer->answer.result, PD_ENGINE_HELD);
    assert_string_equal(answer->entries[0].key, "/paramd/x/last/0");
    assert_int_equal(answer->entries[0].revision, 5);
}

TEST(a_transaction_that_has_failed_tells_who_has_the_key_and_not_who_had_it_before, pd_etcd_answer *answer)
{
    assert_int_equal(parse(answer, PD_ETCD_CREATED,
                           "{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[" KV
                           "]}},{\"response_range\":{\"kvs\":[" LAST "]}}]}",
                           NULL),
                     PD_OK);
    assert_int_equal(answer->answer.n, 1);
    assert_string_equal(answer->entries[0].key, "/paramd/x/shard/0");
}

/* Checks that a request is JSON. */
static json_t *request(const char *body)
{
    json_t *root = json_loads(body, 0, NULL);

    if (root == NULL) fail_msg("not JSON: %s", body);
    return root;
}

TEST(requests_are_json_also_with_the_longest_keys_and_values)
{
    static char key[PD_ENGINE_KEY], value[PD_ENGINE_VALUE];
    pd_engine_call call = { .key = key, .value = value, .last = key, .tenure = UINT64_MAX - 1 };
    char body[PD_ETCD_BODY];

    memset(key, '/', sizeof key - 1);
    memset(value, '\x7f', sizeof value - 1);
    assert_string_equal(pd_etcd_create(body, &call, UINT64_MAX), "/v3/kv/txn");
    json_decref(request(body));
    assert_string_equal(pd_etcd_remove(body, key, UINT64_MAX), "/v3/kv/txn");
    json_decref(request(body));
    assert_string_equal(pd_etcd_watch(body, key, 9), "/v3/watch");
    json_decref(request(body));
    assert_string_equal(pd_etcd_read(body, key), "/v3/kv/range");
    json_decref(request(body));
    assert_string_equal(pd_etcd_grant(body, 1001), "/v3/lease/grant");
    assert_string_equal(body, "{\"TTL\":\"2\"}");
    assert_string_equal(pd_etcd_renew(body, 9), "/v3/lease/keepalive");
    assert_string_equal(body, "{\"ID\":\"9\"}");
}

TEST(a_prefix_ends_before_the_next_key_that_does_not_begin_with_it)
{
    char body[PD_ETCD_BODY], end[64];
    const char *text;
    json_t *root;

    pd_etcd_read(body, "/paramd/a/");
    root = request(body);
    text = json_string_value(json_object_get(root, "range_end"));
    assert_true(pd_base64_decode(end, sizeof end, NULL, text, strlen(text)));
    assert_string_equal(end, "/paramd/a0");
    json_decref(root);
}

TEST(base64_gives_back_what_it_was_given)
{
    uint8_t bytes[100];
    char text[PD_BASE64_TEXT(sizeof bytes)], back[sizeof bytes + 1];
    size_t n;

    for (size_t i = 0; i < sizeof bytes; i++) bytes[i] = (uint8_t)(i * 37 + 5);
    for (size_t size = 0; size <= sizeof bytes; size++) {
        pd_base64_encode(text, bytes, size);
        assert_int_equal(strlen(text), PD_BASE64_TEXT(size) - 1);
        assert_true(pd_base64_decode(back, sizeof back, &n, text, strlen(text)));
        assert_int_equal(n, size);
        assert_memory_equal(back, bytes, size);
        if (size > 0) assert_false(pd_base64_decode(back, size, NULL, text, strlen(text)));
    }
    assert_false(pd_base64_decode(back, sizeof back, NULL, "a-b_", 4));
}
