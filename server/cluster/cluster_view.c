/* cluster_view.c - lists and watches the keys of a cluster, and enters them into its table. */
#include "cluster_view.h"

#include "text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <syslog.h>

enum { RETRY_MS = 1000 };

/* The kinds of keys of a cluster. */
typedef enum key_kind { OWNER_KEY, LAST_KEY, SPARE_KEY, OTHER_KEY } key_kind;

/* Finds out what a key is about. Sets *shard, or *name to the name of a spare. */
static key_kind kind_of(const pd_cluster_view *view, const char *key, uint32_t *shard, const char **name)
{
    static const char *const words[] = { [OWNER_KEY] = "shard/", [LAST_KEY] = "last/", [SPARE_KEY] = "spare/" };
    size_t n = strlen(view->prefix);
    int kind = OWNER_KEY;
    char *end;

    if (strncmp(key, view->prefix, n) != 0) return OTHER_KEY;
    key += n;
    while (kind < OTHER_KEY && strncmp(key, words[kind], strlen(words[kind])) != 0) kind++;
    if (kind == OTHER_KEY) return OTHER_KEY;
    *name = key + strlen(words[kind]);
    if (kind == SPARE_KEY) return **name != '\0' && strlen(*name) < PD_CLUSTER_NAME ? SPARE_KEY : OTHER_KEY;
    if (**name < '0' || **name > '9') return OTHER_KEY;
    *shard = (uint32_t)strtoul(*name, &end, 10);
    return *end == '\0' && strlen(*name) <= 2 && *shard < PD_MAX_SHARDS ? (key_kind)kind : OTHER_KEY;
}

static void warn(pd_cluster_view *view, const char *key, const char *why)
{
    char line[PD_ERROR_TEXT + 2 * PD_ENGINE_KEY], plain[PD_ENGINE_KEY];

    if (view->warned) return;
    view->warned = true;
    snprintf(line, sizeof line, "key %s of the engine is ignored: %s", pd_text_print(plain, sizeof plain, key), why);
    view->user.log(view->user.arg, LOG_WARNING, line);
}

/* Enters the value of an owner or a last owner. */
static void enter_shard(pd_cluster_view *view, uint32_t i, bool owner, const pd_engine_entry *entry)
{
    pd_cluster_shard *shard = &view->table->shards[i];
    uint64_t tenure = owner ? entry->tenure : entry->revision; /* both keys of an owner are put at once */
    pd_cluster_value value;
    pd_error err;

    if (!entry->removed && tenure > shard->last_tenure) shard->last_tenure = tenure;
    if (owner && entry->removed) {
        if (shard->alive) view->missing_ms[i] = 0;
        shard->alive = false;
        shard->tenure = 0;
    }
    if (!entry->removed && pd_cluster_value_read(&value, entry->value, &err) != PD_OK) {
        warn(view, entry->key, err.text);
        memset(&value, 0, sizeof value); /* there is an owner all the same: nobody may take the shard */
        value.shards = view->shards;
    }
    if (owner)
        view->user.owner(view->user.arg, i, entry->tenure, entry->revision, entry->removed ? NULL : entry->value);
    if (entry->removed || (!owner && shard->alive)) return;
    snprintf(shard->url, sizeof shard->url, "%s", value.url);
    snprintf(shard->http, sizeof shard->http, "%s", value.http);
    shard->life = value.life;
    if (view->table->n_shards < value.shards || owner) view->table->n_shards = value.shards;
    if (!owner) return;
    shard->alive = true;
    shard->tenure = entry->tenure;
}

static void enter_spare(pd_cluster_view *view, const char *name, const pd_engine_entry *entry)
{
    pd_cluster_table *table = view->table;
    pd_cluster_value value;
    pd_error err;
    uint32_t i = 0;

    while (i < table->n_spares && strcmp(table->spares[i].name, name) != 0) i++;
    if (entry->removed) {
        if (i < table->n_spares) table->spares[i] = table->spares[--table->n_spares];
        return;
    }
    if (i == PD_CLUSTER_SPARES) return;
    if (pd_cluster_value_read(&value, entry->value, &err) != PD_OK) {
        warn(view, entry->key, err.text);
        return;
    }
    if (i == table->n_spares) table->n_spares++;
    pd_text_print(table->spares[i].name, sizeof table->spares[i].name, name);
    snprintf(table->spares[i].http, sizeof table->spares[i].http, "%s", value.http);
    snprintf(table->spares[i].url, sizeof table->spares[i].url, "%s", value.url);
}

static void enter(pd_cluster_view *view, const pd_engine_entry *entry)
{
    const char *name;
    uint32_t shard;

    switch (kind_of(view, entry->key, &shard, &name)) {
    case OWNER_KEY: enter_shard(view, shard, true, entry); break;
    case LAST_KEY: enter_shard(view, shard, false, entry); break;
    case SPARE_KEY: enter_spare(view, name, entry); break;
    case OTHER_KEY: break;
    }
}

/* Returns whether a list has the key of the owner of shard i. */
static bool has_owner(const pd_cluster_view *view, const pd_engine_answer *answer, uint32_t i)
{
    const char *name;
    uint32_t shard;

    for (size_t k = 0; k < answer->n; k++)
        if (kind_of(view, answer->entries[k].key, &shard, &name) == OWNER_KEY && shard == i) return true;
    return false;
}

/* Replaces the table by a list of all keys. Owners that are not in it count as removed by the list's revision. */
static void take_list(pd_cluster_view *view, const pd_engine_answer *answer)
{
    bool first = view->revision == 0;

    if (first) view->table->n_shards = view->shards;
    view->table->n_spares = 0;
    for (uint32_t i = 0; i < PD_MAX_SHARDS; i++) {
        pd_engine_entry gone = { .removed = true, .revision = answer->revision };
        if (first) view->missing_ms[i] = view->now_ms;
        view->table->shards[i].last_tenure = 0;
        if (!has_owner(view, answer, i)) enter_shard(view, i, true, &gone);
    }
    for (size_t k = 0; k < answer->n; k++) enter(view, &answer->entries[k]);
    view->revision = answer->revision;
    view->lists = false;
    view->table->version++;
}

/* Enters changes. A watch that begins anew may repeat some that the table has. */
static void take_changes(pd_cluster_view *view, const pd_engine_answer *answer)
{
    uint64_t newest = view->revision;

    for (size_t k = 0; k < answer->n; k++) {
        if (answer->entries[k].revision <= view->revision) continue;
        enter(view, &answer->entries[k]);
        if (answer->entries[k].revision > newest) newest = answer->entries[k].revision;
        view->table->version++;
    }
    view->revision = newest;
}

static void on_answer(pd_engine_call *call, const pd_engine_answer *answer)
{
    pd_cluster_view *view = call->arg;

    view->down = answer->result == PD_ENGINE_FAILED;
    if (view->down) {
        snprintf(view->why, sizeof view->why, "%s", answer->why);
        view->due_ms = view->now_ms + RETRY_MS;
        return;
    }
    if (answer->left_out > 0) warn(view, view->prefix, "keys or values that are too long, or too many");
    if (answer->result == PD_ENGINE_COMPACTED)
        view->lists = true;
    else if (call->verb == PD_ENGINE_READ)
        take_list(view, answer);
    else
        take_changes(view, answer);
    /* A watch that ends at once must not make a busy loop. */
    view->due_ms = view->now_ms + (answer->result == PD_ENGINE_ENDED ? RETRY_MS / 10 : 0);
}

void pd_cluster_view_init(pd_cluster_view *view, pd_engine *engine, pd_cluster_table *table, const char *name,
                          uint32_t shards, const pd_cluster_view_user *user)
{
    *view = (pd_cluster_view){ .engine = engine, .user = *user, .table = table, .shards = shards, .lists = true };
    snprintf(view->prefix, sizeof view->prefix, "/paramd/%s/", name);
    view->call.answered = on_answer;
    view->call.arg = view;
    table->n_shards = shards;
}

uint64_t pd_cluster_view_turn(pd_cluster_view *view, uint64_t now_ms)
{
    view->now_ms = now_ms;
    if (view->call.open) return UINT64_MAX;
    if (now_ms < view->due_ms) return view->due_ms;
    view->call.verb = view->lists ? PD_ENGINE_READ : PD_ENGINE_WATCH;
    view->call.key = view->prefix;
    view->call.revision = view->revision;
    view->engine->ask(view->engine, &view->call);
    return UINT64_MAX;
}
