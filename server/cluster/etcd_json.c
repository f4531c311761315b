/* etcd_json.c - writes requests to etcd's JSON gateway, and reads its answers. Keys and values are base64 there, and
 * numbers of 64 bits are texts. */
#include "etcd_json.h"

#include "base64.h"
#include "text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef char key_text[PD_BASE64_TEXT(PD_ENGINE_KEY)];
typedef char value_text[PD_BASE64_TEXT(PD_ENGINE_VALUE)];

static const char *encoded(key_text out, const char *key)
{
    pd_base64_encode(out, key, strlen(key));
    return out;
}

/* Writes the first text after all texts that begin with `prefix`. Prefixes end with '/'. */
static const char *encoded_end(key_text out, const char *prefix)
{
    char end[PD_ENGINE_KEY];

    snprintf(end, sizeof end, "%s", prefix);
    end[strlen(end) - 1]++;
    return encoded(out, end);
}

const char *pd_etcd_grant(char *out, uint64_t ttl_ms)
{
    snprintf(out, PD_ETCD_BODY, "{\"TTL\":\"%" PRIu64 "\"}", (ttl_ms + 999) / 1000);
    return "/v3/lease/grant";
}

const char *pd_etcd_create(char *out, const pd_engine_call *call, uint64_t lease)
{
    key_text key, last;
    value_text value;
    int n;

    pd_base64_encode(value, call->value, strlen(call->value));
    encoded(key, call->key);
    encoded(last, call->last != NULL ? call->last : "");
    n = snprintf(out, PD_ETCD_BODY, "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"create_revision\":\"0\"}",
                 key);
    /* A key that does not exist has the mod_revision 0. */
    if (call->last != NULL && call->tenure != 0)
        n += snprintf(out + n, PD_ETCD_BODY - (size_t)n,
                      ",{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"LESS\",\"mod_revision\":\"%" PRIu64 "\"}", last,
                      call->tenure + 1);
    n += snprintf(out + n, PD_ETCD_BODY - (size_t)n, "],\"failure\":[{\"request_range\":{\"key\":\"%s\"}}", key);
    if (call->last != NULL)
        n += snprintf(out + n, PD_ETCD_BODY - (size_t)n, ",{\"request_range\":{\"key\":\"%s\"}}", last);
    n += snprintf(out + n, PD_ETCD_BODY - (size_t)n,
                  "],\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRIu64 "\"}}", key,
                  value, lease);
    if (call->last != NULL)
        n += snprintf(out + n, PD_ETCD_BODY - (size_t)n, ",{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\"}}", last,
                      value);
    snprintf(out + n, PD_ETCD_BODY - (size_t)n, "]}");
    return "/v3/kv/txn";
}

const char *pd_etcd_renew(char *out, uint64_t lease)
{
    snprintf(out, PD_ETCD_BODY, "{\"ID\":\"%" PRIu64 "\"}", lease);
    return "/v3/lease/keepalive";
}

const char *pd_etcd_read(char *out, const char *prefix)
{
    key_text key, end;

    snprintf(out, PD_ETCD_BODY, "{\"key\":\"%s\",\"range_end\":\"%s\",\"limit\":\"%d\"}", encoded(key, prefix),
             encoded_end(end, prefix), PD_ETCD_ENTRIES);
    return "/v3/kv/range";
}

const char *pd_etcd_watch(char *out, const char *prefix, uint64_t revision)
{
    key_text key, end;

    snprintf(out, PD_ETCD_BODY,
             "{\"create_request\":{\"key\":\"%s\",\"range_end\":\"%s\",\"start_revision\":\"%" PRIu64 "\"}}",
             encoded(key, prefix), encoded_end(end, prefix), revision + 1);
    return "/v3/watch";
}

const char *pd_etcd_remove(char *out, const char *key, uint64_t tenure)
{
    key_text text;

    encoded(text, key);
    snprintf(out, PD_ETCD_BODY,
             "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"create_revision\":\"%" PRIu64 "\"}],"
             "\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}}]}",
             text, tenure, text);
    return "/v3/kv/txn";
}

int pd_etcd_answer_init(pd_etcd_answer *answer)
{
    *answer = (pd_etcd_answer){ .entries = calloc(PD_ETCD_ENTRIES, sizeof *answer->entries) };
    return answer->entries != NULL ? PD_OK : PD_NO_MEMORY;
}

void pd_etcd_answer_free(pd_etcd_answer *answer)
{
    free(answer->entries);
    answer->entries = NULL;
}

/* Reads a number that is written as a text, or as a number. Returns false if the member is absent or no such number. */
static bool read_number(uint64_t *out, const json_t *object, const char *name)
{
    const json_t *member = json_object_get(object, name);
    const char *text = json_string_value(member);
    size_t digits;

    if (json_is_integer(member) && json_integer_value(member) >= 0) {
        *out = (uint64_t)json_integer_value(member);
        return true;
    }
    digits = text != NULL ? strspn(text, "0123456789") : 0;
    if (digits == 0 || digits > 19 || text[digits] != '\0') return false;
    *out = strtoull(text, NULL, 10);
    return true;
}

/* Decodes a text that was sent as base64. Returns false if it is longer than `size` allows, or contains a zero. */
static bool read_text(char *out, size_t size, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));
    size_t bytes;

    out[0] = '\0';
    return text != NULL && pd_base64_decode(out, size, &bytes, text, strlen(text)) && strlen(out) == bytes;
}

/* Adds a key and its value to the answer. Counts it if it is too long. */
static void add_entry(pd_etcd_answer *out, const json_t *kv, bool removed)
{
    pd_engine_entry *entry = &out->entries[out->answer.n];

    *entry = (pd_engine_entry){ .removed = removed };
    if (out->answer.n < PD_ETCD_ENTRIES - 1 && read_text(entry->key, sizeof entry->key, kv, "key") &&
        read_number(&entry->revision, kv, "mod_revision") &&
        (removed || (read_text(entry->value, sizeof entry->value, kv, "value") &&
                     read_number(&entry->tenure, kv, "create_revision")))) {
        (void)read_number(&entry->lease, kv, "lease");
        out->answer.n++;
    } else {
        out->answer.left_out++;
    }
}

static void add_entries(pd_etcd_answer *out, const json_t *list)
{
    size_t i;
    json_t *kv;

    json_array_foreach(list, i, kv) add_entry(out, kv, false);
}

static int lacks(pd_error *err, const char *member)
{
    return pd_fail(err, PD_DATA_LOSS, "its answer has no %s", member);
}

static int read_granted(pd_etcd_answer *out, const json_t *root, pd_error *err)
{
    uint64_t seconds;

    if (!read_number(&out->answer.lease, root, "ID")) return lacks(err, "ID");
    if (!read_number(&seconds, root, "TTL")) return lacks(err, "TTL");
    out->answer.ttl_ms = seconds < 86400 ? seconds * 1000 : 86400000;
    return PD_OK;
}

/* Reads the revision at which the answer was made: that of a key which it has created. */
static int read_revision(pd_etcd_answer *out, const json_t *root, pd_error *err)
{
    return read_number(&out->answer.revision, json_object_get(root, "header"), "revision") ? PD_OK
                                                                                           : lacks(err, "revision");
}

/* Returns the keys that range number i of a transaction has found. NULL: none. */
static const json_t *found(const json_t *root, size_t i)
{
    const json_t *response = json_array_get(json_object_get(root, "responses"), i);

    return json_object_get(json_object_get(response, "response_range"), "kvs");
}

static int read_created(pd_etcd_answer *out, const json_t *root, pd_error *err)
{
    int rc = read_revision(out, root, err);

    if (rc != PD_OK) return rc;
    out->answer.tenure = out->answer.revision;
    if (json_is_true(json_object_get(root, "succeeded"))) return PD_OK;
    out->answer.result = PD_ENGINE_HELD;
    /* The key, or else the one that says who had it last. */
    for (size_t i = 0; i < 2 && out->answer.n == 0; i++) add_entries(out, found(root, i));
    return out->answer.n == 1 ? PD_OK : lacks(err, "key that exists");
}

/* Reads the answer to a renewal. A lease that has ended is an answer of status 200 without the member TTL. */
static int read_renewed(pd_etcd_answer *out, const json_t *root, pd_error *err)
{
    const json_t *result = json_object_get(root, "result");
    uint64_t lease, seconds = 0;

    if (!read_number(&lease, result, "ID")) return lacks(err, "ID");
    if (json_object_get(result, "TTL") != NULL && !read_number(&seconds, result, "TTL")) return lacks(err, "TTL");
    out->answer.ttl_ms = seconds < 86400 ? seconds * 1000 : 86400000;
    if (seconds == 0) out->answer.result = PD_ENGINE_GONE;
    return PD_OK;
}

static int read_listed(pd_etcd_answer *out, const json_t *root, pd_error *err)
{
    int rc = read_revision(out, root, err);

    if (rc == PD_OK) add_entries(out, json_object_get(root, "kvs"));
    return rc;
}

/* Returns whether etcd's words say that a request needs a token, or another one. */
static bool is_about_token(const char *words)
{
    return strstr(words, "invalid auth token") != NULL || strstr(words, "user name is empty") != NULL ||
           strstr(words, "revision of auth store is old") != NULL || strstr(words, "revision in header is old") != NULL;
}

/* Looks why etcd has cancelled a watch. etcd 3.4 says "permission denied" also if the token has ended. */
static int read_cancel(pd_etcd_answer *out, const json_t *result, pd_error *err)
{
    const char *why = json_string_value(json_object_get(result, "cancel_reason"));
    char text[200];

    out->answer.result = PD_ENGINE_ENDED;
    if (why == NULL || (!is_about_token(why) && strstr(why, "permission denied") == NULL)) return PD_OK;
    return pd_fail(err, PD_UNAUTHENTICATED, "%s", pd_text_print(text, sizeof text, why));
}

static int read_changes(pd_etcd_answer *out, const json_t *root, pd_error *err)
{
    const json_t *result = json_object_get(root, "result"), *events = json_object_get(result, "events");
    uint64_t compacted = 0;
    size_t i;
    json_t *event;
    int rc = PD_OK;

    if (!json_is_object(result)) return lacks(err, "result");
    (void)read_number(&compacted, result, "compact_revision");
    (void)read_number(&out->answer.revision, json_object_get(result, "header"), "revision");
    if (json_is_true(json_object_get(result, "canceled"))) rc = read_cancel(out, result, err);
    if (compacted > 0) out->answer.result = PD_ENGINE_COMPACTED;
    json_array_foreach(events, i, event)
    {
        const char *type = json_string_value(json_object_get(event, "type"));
        add_entry(out, json_object_get(event, "kv"), type != NULL && strcmp(type, "DELETE") == 0);
    }
    return rc;
}

static int read_token(pd_etcd_answer *out, const json_t *root, pd_error *err)
{
    const char *token = json_string_value(json_object_get(root, "token"));

    if (token == NULL) return lacks(err, "token");
    if (strlen(token) >= sizeof out->token)
        return pd_fail(err, PD_DATA_LOSS, "its token has more than %zu bytes", sizeof out->token - 1);
    strcpy(out->token, token);
    return PD_OK;
}

/* Returns the text of the error in an answer; NULL: it has none. An etcd with version 2 of its gateway, such as that of
 * Debian 13, has the text in `message`, earlier ones have it in `error`. Errors of streams are objects. */
static const char *error_in(const json_t *root)
{
    const json_t *error = json_object_get(root, "error");
    const char *text;

    if (error == NULL) error = json_object_get(root, "message");
    if (error == NULL) return NULL;
    if (json_is_object(error)) error = json_object_get(error, "message");
    text = json_string_value(error);
    return text != NULL && text[0] != '\0' ? text : "an error without words";
}

static int code_of(pd_etcd_kind kind, const char *words)
{
    if (kind == PD_ETCD_LOGGED_IN && strstr(words, "authentication is not enabled") != NULL)
        return PD_FAILED_PRECONDITION;
    return is_about_token(words) ? PD_UNAUTHENTICATED : PD_UNAVAILABLE;
}

static int read_root(pd_etcd_answer *out, pd_etcd_kind kind, const json_t *root, pd_error *err)
{
    const char *words;
    char text[200];

    if (!json_is_object(root)) return pd_fail(err, PD_DATA_LOSS, "its answer is not a JSON object");
    if ((words = error_in(root)) != NULL)
        return pd_fail(err, code_of(kind, words), "%s", pd_text_print(text, sizeof text, words));
    switch (kind) {
    case PD_ETCD_GRANTED: return read_granted(out, root, err);
    case PD_ETCD_CREATED: return read_created(out, root, err);
    case PD_ETCD_RENEWED: return read_renewed(out, root, err);
    case PD_ETCD_LISTED: return read_listed(out, root, err);
    case PD_ETCD_CHANGES: return read_changes(out, root, err);
    case PD_ETCD_LOGGED_IN: return read_token(out, root, err);
    case PD_ETCD_REMOVED: break;
    }
    return read_revision(out, root, err);
}

int pd_etcd_parse(pd_etcd_answer *out, pd_etcd_kind kind, const char *at, size_t n, pd_error *err)
{
    json_error_t where;
    json_t *root;
    int rc;

    out->answer = (pd_engine_answer){ .result = PD_ENGINE_DONE, .entries = out->entries };
    if (n > PD_ETCD_ANSWER) return pd_fail(err, PD_DATA_LOSS, "its answer has more than %d bytes", (int)PD_ETCD_ANSWER);
    if ((root = json_loadb(at, n, 0, &where)) == NULL)
        return pd_fail(err, PD_DATA_LOSS, "its answer is not JSON (byte %d)", where.position);
    rc = read_root(out, kind, root, err);
    json_decref(root);
    return rc;
}
