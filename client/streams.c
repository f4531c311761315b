/* streams.c - random numbers from the job's seed, for the user. User's thread. */
#include "paramd/client.h"
#include "random.h"

/* Returns the stream of a worker or of all workers. It differs from the streams of parameters, which have names, and
 * from the stream of the whole job, whose keys are steps. */
static pd_random stream_of(const pd_client *client, pd_stream stream)
{
    const pd_welcome *welcome = pd_client_welcome(client);
    pd_random workers = pd_random_fold(pd_random_stream(welcome->seed, ""), UINT64_MAX);

    return pd_random_fold(workers, stream == PD_STREAM_SHARED ? 0 : 1 + (uint64_t)welcome->rank);
}

void pd_client_uniform(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out, size_t n)
{
    pd_random_uniform(stream_of(client, stream), key, first, out, (int64_t)n);
}

void pd_client_normal(const pd_client *client, pd_stream stream, uint64_t key, uint64_t first, float *out, size_t n)
{
    pd_random_normal(stream_of(client, stream), key, first, out, (int64_t)n);
}
