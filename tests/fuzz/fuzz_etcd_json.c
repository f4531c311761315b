/* Reads any bytes as an answer of etcd's JSON gateway, and as the value of a key. Each is refused with a reason, or
 * what was read is within its limits. */
#include "cluster_value.h"
#include "etcd_json.h"
#include "seed.h"

#define HEADER "\"header\":{\"revision\":\"7\"}"
#define KV "{\"key\":\"YQ==\",\"create_revision\":\"2\",\"mod_revision\":\"3\",\"value\":\"e30=\",\"lease\":\"9\"}"

static void make_seeds(const char *folder)
{
    /* The first byte chooses the kind of the answer (below). */
    static const char *const seeds[] = {
        "0{" HEADER ",\"ID\":\"9\",\"TTL\":\"5\"}",
        "1{" HEADER ",\"succeeded\":true}",
        "1{" HEADER ",\"responses\":[{\"response_range\":{\"kvs\":[" KV "]}}]}",
        "2{\"result\":{" HEADER ",\"ID\":\"9\",\"TTL\":\"5\"}}",
        "2{\"result\":{" HEADER ",\"ID\":\"9\"}}",
        "3{" HEADER ",\"kvs\":[" KV "," KV "],\"count\":\"2\"}",
        "4{\"result\":{" HEADER ",\"events\":[{\"kv\":" KV "},{\"type\":\"DELETE\",\"kv\":{\"key\":\"YQ==\","
        "\"mod_revision\":\"4\"}}]}}",
        "4{\"result\":{\"canceled\":true,\"compact_revision\":\"3\"}}",
        "5{" HEADER "}",
        "5{\"error\":\"etcdserver: no leader\",\"code\":14}",
        "6{" HEADER ",\"token\":\"jGqWZtQfQnXFmVdq.15\"}",
        "6{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}",
        "7{\"url\":\"tcp://a:7070\",\"http\":\"\",\"life\":\"0000000000000001\",\"process\":\"0000000000000002\","
        "\"shards\":3}",
    };

    write_texts(folder, "answer", seeds, sizeof seeds / sizeof *seeds);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

static void look_at_answer(const pd_etcd_answer *answer)
{
    MUST(answer->answer.n < PD_ETCD_ENTRIES);
    for (size_t i = 0; i < answer->answer.n; i++) {
        const pd_engine_entry *entry = &answer->entries[i];
        MUST(strlen(entry->key) < sizeof entry->key && strlen(entry->value) < sizeof entry->value);
        MUST(!entry->removed || (entry->value[0] == '\0' && entry->tenure == 0));
    }
    MUST(answer->answer.result != PD_ENGINE_HELD || answer->answer.n == 1);
    MUST(answer->answer.ttl_ms <= 86400000);
}

static void read_value(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size), again[PD_ENGINE_VALUE];
    pd_cluster_value value, back;
    pd_error err = { 0 };

    MUST(text != NULL);
    if (pd_cluster_value_read(&value, text, &err) != PD_OK)
        MUST(err.text[0] != '\0');
    else if (pd_cluster_value_write(again, &value, NULL) == PD_OK)
        MUST(pd_cluster_value_read(&back, again, NULL) == PD_OK && memcmp(&value, &back, sizeof value) == 0);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static pd_etcd_answer answer;
    pd_error err = { 0 };
    int kind = size > 0 ? data[0] - '0' : -1;

    if (kind == PD_ETCD_LOGGED_IN + 1) read_value(data + 1, size - 1);
    if (kind < PD_ETCD_GRANTED || kind > PD_ETCD_LOGGED_IN) return 0;
    if (answer.entries == NULL) MUST(pd_etcd_answer_init(&answer) == PD_OK);
    if (pd_etcd_parse(&answer, (pd_etcd_kind)kind, (const char *)data + 1, size - 1, &err) == PD_OK)
        look_at_answer(&answer);
    else
        MUST(err.text[0] != '\0');
    return 0;
}
