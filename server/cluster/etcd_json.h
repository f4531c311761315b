/* etcd_json.h - requests to etcd's JSON gateway, and its answers. Bytes from etcd are not trusted: an answer is
 * bounded, and a wrong one is refused with a reason. Pure functions. */
#ifndef PD_ETCD_JSON_H
#define PD_ETCD_JSON_H

#include "engine.h"
#include "etcd_login.h"

enum {
    PD_ETCD_BODY = 8192,          /* bytes that suffice for any request, with its terminating zero */
    PD_ETCD_ANSWER = 1024 * 1024, /* most bytes of an answer, or of a line of a watch */
    PD_ETCD_ENTRIES = 256,        /* most entries that are read from an answer; the request asks for no more */
};

/* Each writes the body of a request to `out`, which has PD_ETCD_BODY bytes, and returns the path to post it to. */
const char *pd_etcd_grant(char *out, uint64_t ttl_ms);
const char *pd_etcd_create(char *out, const pd_engine_call *call, uint64_t lease);
const char *pd_etcd_renew(char *out, uint64_t lease);
const char *pd_etcd_read(char *out, const char *prefix);
const char *pd_etcd_watch(char *out, const char *prefix, uint64_t revision);
const char *pd_etcd_remove(char *out, const char *key, uint64_t tenure);

/* The kinds of answers, by the request. */
typedef enum pd_etcd_kind {
    PD_ETCD_GRANTED,
    PD_ETCD_CREATED,
    PD_ETCD_RENEWED,
    PD_ETCD_LISTED,
    PD_ETCD_CHANGES,
    PD_ETCD_REMOVED,
    PD_ETCD_LOGGED_IN, /* the answer to pd_etcd_login.body */
} pd_etcd_kind;

/* An answer, and memory for its entries. */
typedef struct pd_etcd_answer {
    pd_engine_answer answer;
    pd_engine_entry *entries;  /* owned; room for PD_ETCD_ENTRIES */
    char token[PD_ETCD_TOKEN]; /* PD_ETCD_LOGGED_IN */
} pd_etcd_answer;

int pd_etcd_answer_init(pd_etcd_answer *answer);
void pd_etcd_answer_free(pd_etcd_answer *answer);

/* Reads an answer of n bytes. Of PD_ETCD_CREATED sets `tenure` or the entry that has the key; `lease` and `ttl_ms` come
 * with PD_ETCD_GRANTED. Errors of etcd have its words:
 *
 *   PD_DATA_LOSS            the answer is not JSON, or lacks a member; the error says which
 *   PD_UNAUTHENTICATED      etcd asks for a user and a password, or has ended the token
 *   PD_FAILED_PRECONDITION  PD_ETCD_LOGGED_IN: etcd asks for no password
 *   PD_UNAVAILABLE          etcd has refused the request for another reason */
int pd_etcd_parse(pd_etcd_answer *out, pd_etcd_kind kind, const char *at, size_t n, pd_error *err);

#endif
