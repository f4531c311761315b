/* ask_all.h - sends a command's requests to all daemons that --server or PARAMD_URL names, at the same time, and merges
 * their lists.
 *
 * The daemons of a list are the shards of a cluster, numbered by their place in the list. With one daemon the functions
 * pass everything through unchanged. With several, the command goes on with the shards that answer: a line on standard
 * error says what another one has failed with, and the exit status is that of the failure. A shard that cannot be
 * reached is left out from then on. */
#ifndef PD_ASK_ALL_H
#define PD_ASK_ALL_H

#include "command_line.h"
#include "connection.h"

/* A shard, and the command's connection to it. */
typedef struct pd_shard {
    uint32_t number;
    const char *url; /* its addresses; NULL: the client library's default */
    pd_operator op;
    int rc;       /* result of the last call; a shard that cannot be reached keeps it, and is left out of later calls */
    pd_error err; /* error of that call */
} pd_shard;

typedef struct pd_cluster {
    const pd_line *line;
    pd_shard *at;
    size_t n;
    bool complete; /* a call fails if it fails for any shard; otherwise, if it fails for all */
    int tolerated
        [2]; /* errors of single shards that are not reported, though they fail if all have them; PD_OK: none */
} pd_cluster;

/* A function that works with one shard, in a thread of its own if there are several. `arg` is shared by all threads. */
typedef int pd_shard_work(pd_shard *shard, void *arg, pd_error *err);

/* Connects to all shards of the command line, with its timeout plus `more_s` seconds as the deadline of requests. If it
 * names one daemon, which has a table of shards, connects to all shards of the table. The caller closes *out, also
 * after an error. Errors are those of pd_operator_open; with several shards, only if none could be reached.
 * PD_UNAVAILABLE: a shard of the table has had no owner yet. */
int pd_cluster_open(pd_cluster *out, const pd_line *line, double more_s, pd_error *err);
/* Works as pd_cluster_open, for a command that needs all shards: this call, and later ones, fail if one shard fails. */
int pd_cluster_open_complete(pd_cluster *out, const pd_line *line, double more_s, pd_error *err);
/* Works as pd_cluster_open, for a command that is about the named daemons alone. */
int pd_cluster_open_named(pd_cluster *out, const pd_line *line, double more_s, pd_error *err);
/* Connects again to the shards of a cluster that could not be reached, for a command that asks again and again. Each
 * attempt takes at most `most_s` seconds. Does nothing with one daemon. */
void pd_cluster_reopen(pd_cluster *cluster, double most_s);
/* Checks that all daemons answer, before a command sends requests with a long deadline, so that the user hears soon if
 * one does not. */
int pd_cluster_probe(const pd_line *line, pd_error *err);
void pd_cluster_close(pd_cluster *cluster);
/* Returns the most payload bytes that a frame of every shard may have, at most `most`. */
uint64_t pd_cluster_payload(const pd_cluster *cluster, uint64_t most);
/* Calls `work` for every shard that can be reached, for all at the same time, and returns when the last one has ended.
 * Fails only if it fails for every shard, or in a complete cluster for any. The error is that of the first one of
 * these. */
int pd_cluster_each(pd_cluster *cluster, pd_shard_work *work, void *arg, pd_error *err);
/* Sends one request to every shard. The answers are in the memory of the shards' connections. replies[i] is the message
 * of shard i; NULL: it has failed. `replies` may be NULL. */
int pd_cluster_ask(pd_cluster *cluster, unsigned method, const ProtobufCMessage *request, void **replies,
                   pd_error *err);
/* Prints the answers of pd_cluster_ask. Returns the exit status of the command. */
typedef int pd_replies_print(const pd_line *line, const pd_cluster *cluster, void *const *replies, pd_error *err);
/* Runs a command that sends one request without fields to every shard, and prints the answers. Returns its exit
 * status. */
int pd_cluster_print(const pd_line *line, unsigned method, pd_replies_print *print);
/* Fetches a list from all shards, and calls `use` with it. With several shards, entries of the same job, worker or
 * round become one entry, and entries that lie on one shard, such as parameters, are sorted by name; `use` is then
 * called for each of these entries, and line->asked->shard is its shard. */
int pd_cluster_list(pd_cluster *cluster, const Paramd__ListRequest *request, pd_page_user *use, void *arg,
                    pd_error *err);

/* Adds a line to those that the command prints on standard error after its answer, and makes its exit status that of
 * the error, if it is worse. */
void pd_cluster_miss(const pd_line *line, const pd_shard *shard, const pd_error *err);

#endif
