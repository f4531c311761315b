/* engine_model.c - an engine in memory. */
#include "engine_model.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

void model_init(engine_model *model)
{
    memset(model, 0, sizeof *model);
    model->revision = 1;
    model->now_ms = 1;
}

static int find(const engine_model *model, const char *key)
{
    for (int i = 0; i < MODEL_KEYS; i++)
        if (model->at[i].entry.key[0] != '\0' && strcmp(model->at[i].entry.key, key) == 0) return i;
    return -1;
}

static void note(engine_model *model, const pd_engine_entry *entry)
{
    assert(model->revision < MODEL_HISTORY);
    model->history[model->revision - 1] = *entry;
}

static void remove_at(engine_model *model, int i)
{
    pd_engine_entry gone = { .removed = true, .revision = ++model->revision };

    strcpy(gone.key, model->at[i].entry.key);
    memset(&model->at[i], 0, sizeof model->at[i]);
    note(model, &gone);
}

/* Writes a key, as one of the changes of `revision`, which the caller has begun. */
static void put_at(engine_model *model, const char *key, const char *value, uint64_t lease, uint64_t until_ms)
{
    int i = find(model, key);
    pd_engine_entry *entry;

    for (int k = 0; i < 0 && k < MODEL_KEYS; k++)
        if (model->at[k].entry.key[0] == '\0') i = k;
    assert(i >= 0);
    entry = &model->at[i].entry;
    if (entry->key[0] == '\0') entry->tenure = model->revision;
    strcpy(entry->key, key);
    strcpy(entry->value, value);
    entry->revision = model->revision;
    entry->lease = lease;
    model->at[i].until_ms = until_ms;
    note(model, entry);
}

void model_put(engine_model *model, const char *key, const char *value)
{
    int i = find(model, key);

    if (value == NULL) {
        if (i >= 0) remove_at(model, i);
        return;
    }
    model->revision++;
    put_at(model, key, value, 0, 0);
}

const pd_engine_entry *model_get(const engine_model *model, const char *key)
{
    int i = find(model, key);

    return i >= 0 ? &model->at[i].entry : NULL;
}

void model_time(engine_model *model, uint64_t now_ms)
{
    model->now_ms = now_ms;
    for (int i = 0; i < MODEL_KEYS; i++)
        if (model->at[i].until_ms > 0 && model->at[i].until_ms <= now_ms) remove_at(model, i);
}

void model_expire(engine_model *model, const char *key)
{
    int i = find(model, key);

    if (i >= 0) remove_at(model, i);
}

void model_compact(engine_model *model)
{
    model->compacted = model->revision;
}

static void do_register(engine_model *model, const pd_engine_call *call, pd_engine_answer *answer)
{
    int i = find(model, call->key), last = call->last != NULL ? find(model, call->last) : -1;

    if (i < 0 && last >= 0 && call->tenure > 0 && model->at[last].entry.revision > call->tenure) i = last;
    if (i >= 0) {
        answer->result = PD_ENGINE_HELD;
        answer->entries = &model->at[i].entry;
        answer->n = 1;
        return;
    }
    answer->lease = ++model->leases;
    answer->ttl_ms = call->ttl_ms;
    if (call->last != NULL) {
        model->revision++; /* a change of its own here; of the same number in etcd */
        put_at(model, call->last, call->value, 0, 0);
    }
    model->revision++;
    put_at(model, call->key, call->value, answer->lease, model->now_ms + call->ttl_ms);
    answer->tenure = model->revision;
}

static void do_renew(engine_model *model, const pd_engine_call *call, pd_engine_answer *answer)
{
    answer->result = PD_ENGINE_GONE;
    for (int i = 0; i < MODEL_KEYS; i++) {
        if (model->at[i].entry.lease != call->lease || model->at[i].until_ms == 0) continue;
        model->at[i].until_ms = model->now_ms + call->ttl_ms;
        answer->result = PD_ENGINE_DONE;
        answer->ttl_ms = call->ttl_ms;
    }
}

static void do_read(const engine_model *model, const pd_engine_call *call, pd_engine_answer *answer)
{
    static pd_engine_entry list[MODEL_KEYS];

    answer->entries = list;
    for (int i = 0; i < MODEL_KEYS; i++)
        if (model->at[i].entry.key[0] != '\0' && strncmp(model->at[i].entry.key, call->key, strlen(call->key)) == 0)
            list[answer->n++] = model->at[i].entry;
}

static void execute(model_client *client, const pd_engine_call *call, pd_engine_answer *answer)
{
    int i = find(client->model, call->key);

    client->n_calls++;
    client->last_verb = call->verb;
    client->last_ms = client->model->now_ms;
    switch (call->verb) {
    case PD_ENGINE_REGISTER: do_register(client->model, call, answer); break;
    case PD_ENGINE_RENEW: do_renew(client->model, call, answer); break;
    case PD_ENGINE_READ: do_read(client->model, call, answer); break;
    case PD_ENGINE_REMOVE:
        if (i >= 0 && client->model->at[i].entry.tenure == call->tenure) remove_at(client->model, i);
        break;
    case PD_ENGINE_WATCH: break;
    }
    answer->revision = client->model->revision;
}

static void fail(model_client *client, size_t i)
{
    pd_engine_answer answer = { .result = PD_ENGINE_FAILED, .why = "no answer" };
    pd_engine_call *call = client->open[i];

    client->open[i] = NULL;
    pd_engine_answered(call, &answer);
}

/* Reports changes to a watch. */
static void turn_watch(model_client *client, size_t i)
{
    const engine_model *model = client->model;
    pd_engine_call *call = client->open[i];
    pd_engine_answer answer = { .revision = model->revision };

    if (client->seen[i] < model->compacted) {
        answer.result = PD_ENGINE_COMPACTED;
        client->open[i] = NULL;
        pd_engine_answered(call, &answer);
        return;
    }
    while (client->open[i] == call && client->seen[i] < model->revision) {
        answer.entries = &model->history[client->seen[i]++];
        answer.n = strncmp(answer.entries->key, call->key, strlen(call->key)) == 0;
        if (answer.n == 1) pd_engine_answered(call, &answer);
    }
}

static void turn_call(model_client *client, size_t i)
{
    pd_engine_answer answer = { .result = PD_ENGINE_DONE };
    pd_engine_call *call = client->open[i];
    bool late = client->model->now_ms - client->since_ms[i] >= MODEL_TRY_MS;

    if (client->cut || client->fault == MODEL_LOSES_CALL) {
        if (late) fail(client, i);
        if (late && !client->cut) client->fault = MODEL_FINE;
        return;
    }
    execute(client, call, &answer);
    if (client->fault == MODEL_LOSES_ANSWER) {
        client->fault = MODEL_FINE;
        fail(client, i);
        return;
    }
    client->open[i] = NULL;
    pd_engine_answered(call, &answer);
}

static uint64_t turn(pd_engine *engine, uint64_t now_ms)
{
    model_client *client = (model_client *)(void *)engine;

    for (size_t i = 0; i < MODEL_OPEN; i++) {
        if (client->open[i] == NULL) continue;
        if (client->open[i]->verb != PD_ENGINE_WATCH)
            turn_call(client, i);
        else if (client->cut)
            fail(client, i);
        else if (!client->lags)
            turn_watch(client, i);
    }
    return now_ms + 50;
}

static void ask(pd_engine *engine, pd_engine_call *call)
{
    model_client *client = (model_client *)(void *)engine;
    size_t i = 0;

    while (client->open[i] != NULL) i++;
    assert(i < MODEL_OPEN);
    client->open[i] = call;
    client->since_ms[i] = client->model->now_ms;
    client->seen[i] = call->revision;
    call->open = true;
}

static void drop(pd_engine *engine, pd_engine_call *call)
{
    model_client *client = (model_client *)(void *)engine;

    for (size_t i = 0; i < MODEL_OPEN; i++)
        if (client->open[i] == call) client->open[i] = NULL;
    call->open = false;
}

static void no_free(pd_engine *engine)
{
    (void)engine;
}

void model_client_init(model_client *client, engine_model *model)
{
    *client =
        (model_client){ .base = { .ask = ask, .drop = drop, .turn = turn, .free = no_free, .fd = -1 }, .model = model };
}
