/* engine.h - a store of keys with leases, through which daemons find each other: the calls that a cluster needs, and
 * their answers. etcd.c is one; another engine is another file with these functions.
 *
 * An engine gives each key that is created the next number of a sequence, by which owners are told apart (tenure). A
 * key that is registered has a lease: the engine removes the key when the lease is not renewed in time.
 *
 * Loop thread. No function waits, and pd_engine_turn alone calls back. */
#ifndef PD_ENGINE_H
#define PD_ENGINE_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PD_ENGINE_KEY = 192,    /* most bytes of a key, with its terminating zero */
    PD_ENGINE_VALUE = 2048, /* most bytes of a value, with its terminating zero */
};

typedef enum pd_engine_verb {
    /* creates `key` with `value` under a new lease, unless the key exists; or, if `tenure` is not 0, `last` was changed
     * after that number: somebody else has had the key since the caller had it */
    PD_ENGINE_REGISTER,
    PD_ENGINE_RENEW,  /* renews `lease` */
    PD_ENGINE_READ,   /* lists all keys that begin with `key` */
    PD_ENGINE_WATCH,  /* reports changes after `revision` of keys that begin with `key`, until it ends */
    PD_ENGINE_REMOVE, /* removes `key`, if it was created with the number `tenure` */
} pd_engine_verb;

typedef enum pd_engine_result {
    PD_ENGINE_DONE,      /* a watch: has a change to report, or has begun; it goes on */
    PD_ENGINE_HELD,      /* REGISTER: the key exists, or `last` has changed; that key is the answer's only entry */
    PD_ENGINE_GONE,      /* RENEW: the lease has ended */
    PD_ENGINE_COMPACTED, /* WATCH: the changes after `revision` are no longer known: read again */
    PD_ENGINE_ENDED,     /* WATCH: the watch has been silent, or its connection has ended: watch again */
    PD_ENGINE_FAILED,    /* no answer that counts; what the engine has done is not known */
} pd_engine_result;

/* A key and its value. */
typedef struct pd_engine_entry {
    char key[PD_ENGINE_KEY];
    char value[PD_ENGINE_VALUE]; /* "" if the key was removed */
    uint64_t tenure;             /* number that the key got when it was created; 0: the key was removed */
    uint64_t revision;           /* number of the last change of the key, of the same sequence */
    uint64_t lease;              /* the key's lease; 0: none */
    bool removed;
} pd_engine_entry;

/* An answer to a call. Valid during the callback. */
typedef struct pd_engine_answer {
    pd_engine_result result;
    uint64_t lease, tenure;         /* REGISTER: the new lease, and the number of the key */
    uint64_t ttl_ms;                /* REGISTER, RENEW: how long the lease lasts from the call on */
    uint64_t revision;              /* READ, WATCH: number of the newest change that is known */
    const pd_engine_entry *entries; /* READ: the keys; WATCH: the changes, in their order; REGISTER: who has the key, or
                                     * had it last */
    size_t n, left_out;             /* left_out: number of entries that are longer than the limits above */
    const char *why;                /* a failed call: the reason, in words */
} pd_engine_answer;

/* A call. Its owner fills in the members of its verb, and keeps the struct until the call has ended. */
typedef struct pd_engine_call {
    pd_engine_verb verb;
    const char *key, *value;
    const char *last; /* REGISTER: another key that gets the same value without a lease, together with `key`; NULL:
                       * none */
    uint64_t lease, tenure, revision;
    uint64_t ttl_ms;
    bool open; /* the call has no answer yet, or is a watch that has not ended; set by the engine */
    void (*answered)(struct pd_engine_call *call, const pd_engine_answer *answer);
    void *arg;
} pd_engine_call;

/* An engine, as the first member of the struct of its kind. */
typedef struct pd_engine {
    /* Begins a call. The answer comes in a later turn. */
    void (*ask)(struct pd_engine *engine, pd_engine_call *call);
    /* Gives up an open call: there is no answer. */
    void (*drop)(struct pd_engine *engine, pd_engine_call *call);
    /* Sends, receives and calls back. Returns when the next turn is due at the latest. */
    uint64_t (*turn)(struct pd_engine *engine, uint64_t now_ms);
    void (*free)(struct pd_engine *engine);
    int fd; /* readable when a turn is due; -1: an engine without sockets, of a test */
} pd_engine;

/* Answers a call: ends it, unless it is a watch that goes on, and calls its owner. For engines. */
static inline void pd_engine_answered(pd_engine_call *call, const pd_engine_answer *answer)
{
    call->open = call->verb == PD_ENGINE_WATCH && answer->result == PD_ENGINE_DONE;
    call->answered(call, answer);
}

/* What pd_etcd_open needs to know. Texts and bytes are borrowed until the engine is freed. */
typedef struct pd_etcd_config {
    const char *urls; /* members: etcd://host:port or etcds://host:port (TLS), separated by commas */
    const char *ca, *cert,
        *key; /* contents of the files with the authorities, the certificate and its key; NULL: none */
    const char *user, *password; /* of an etcd that asks for them; NULL: none */
    uint64_t try_ms;             /* how long one member has for an answer */
    uint64_t silent_ms;          /* how long a watch may be silent before it ends */
} pd_etcd_config;

/* Makes an engine that asks the members of an etcd cluster in turn, over their JSON gateway. PD_INVALID_ARGUMENT: the
 * addresses are wrong, or the user or the password. PD_UNIMPLEMENTED: libcurl cannot be loaded. */
int pd_etcd_open(pd_engine **out, const pd_etcd_config *config, pd_error *err);

#endif
