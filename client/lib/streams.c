/* streams.c - gives the user random numbers that depend only on the job's seed. Runs in the user's thread. */
#include "paramd/client.h"
#include "random.h"

/* Returns the random stream of this worker, or the stream that all workers share.
 *
 * Other streams of the job are made from the seed and a step number, or from the name of a parameter. The workers'
 * streams are made with UINT64_MAX in place of the step number, and no job has so many steps. So no two streams are
 * equal. */
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
