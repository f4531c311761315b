/* engine_model.h - an engine in memory, for tests of a cluster's state machines: keys, leases, and a sequence of
 * changes, as etcd has them. The test sets the time, cuts links, and loses calls and answers. */
#ifndef ENGINE_MODEL_H
#define ENGINE_MODEL_H

#include "engine.h"

enum { MODEL_KEYS = 32, MODEL_HISTORY = 4096, MODEL_OPEN = 8, MODEL_TRY_MS = 1000 };

typedef struct engine_model {
    uint64_t now_ms, revision, leases, compacted; /* leases: number of the last lease */
    struct {
        pd_engine_entry entry; /* key "": this place is free */
        uint64_t until_ms;     /* when its lease ends; 0: it has none */
    } at[MODEL_KEYS];
    pd_engine_entry history[MODEL_HISTORY]; /* history[i] is the change with the revision i + 1 */
} engine_model;

/* What happens to the next call of a client. */
typedef enum model_fault { MODEL_FINE, MODEL_LOSES_CALL, MODEL_LOSES_ANSWER } model_fault;

/* One daemon's way to the model. */
typedef struct model_client {
    pd_engine base; /* must be the first member */
    engine_model *model;
    pd_engine_call *open[MODEL_OPEN];
    uint64_t since_ms[MODEL_OPEN], seen[MODEL_OPEN]; /* seen: last change that the watch has reported */
    bool cut;                                        /* the daemon does not reach the engine */
    bool lags;                                       /* its watches report nothing for now; other calls are answered */
    model_fault fault;
    unsigned n_calls; /* calls that the model has executed */
    pd_engine_verb last_verb;
    uint64_t last_ms; /* when the last call was executed */
} model_client;

void model_init(engine_model *model);
/* Sets the time: leases that have ended are removed, with their keys. */
void model_time(engine_model *model, uint64_t now_ms);
/* Creates, changes or removes (value NULL) a key without a lease, as another program would. */
void model_put(engine_model *model, const char *key, const char *value);
const pd_engine_entry *model_get(const engine_model *model, const char *key); /* NULL: there is no such key */
/* Ends the lease of a key at once. */
void model_expire(engine_model *model, const char *key);
/* Drops the changes so far, so that watches from before must list again. */
void model_compact(engine_model *model);

/* Makes a client. Its `free` does nothing. */
void model_client_init(model_client *client, engine_model *model);

#endif
