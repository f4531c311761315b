/* rank_check.h - notes the first error of a rank that runs on a thread of its own, where a test cannot fail. */
#ifndef RANK_CHECK_H
#define RANK_CHECK_H

#include "paramd/client.h"
#include "test.h"

/* Returns whether rc is PD_OK. Otherwise writes what has failed to `failure`, unless it has a text. */
static inline bool rank_check(char *failure, size_t size, int rank, const char *what, int rc, const pd_error *err)
{
    if (rc == PD_OK) return true;
    if (failure[0] == '\0') snprintf(failure, size, "rank %d: %s: %s", rank, what, err->text);
    return false;
}

/* Opens a rank, declares its n parameters, and initialises them. Returns NULL after an error, which is noted. */
static inline pd_client *rank_begin(char *failure, size_t size, const pd_client_options *options,
                                    const pd_client_param *params, size_t n, float *const *weights, pd_error *err)
{
    int rank = options->rank;
    pd_client *client;

    if (!rank_check(failure, size, rank, "open", pd_client_open(&client, options, err), err)) return NULL;
    if (rank_check(failure, size, rank, "declare", pd_client_declare(client, params, n, err), err) &&
        rank_check(failure, size, rank, "init", pd_client_init(client, (void *const *)weights, err), err))
        return client;
    pd_client_close(client);
    return NULL;
}

#endif
