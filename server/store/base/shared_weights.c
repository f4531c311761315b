/* shared_weights.c - hands out the memory of a job's shared segment, from its beginning to its end.
 *
 * Buffers follow each other without gaps. If large ones began on huge pages of their own, each would take up to 2 MiB
 * more than is counted for it, because the kernel fills a huge page at once. */
#include "shared_weights.h"

#include <assert.h>
#include <stdlib.h>

#define ALIGN ((uint64_t)64)
#define HUGE_PAGE ((uint64_t)2 << 20)

/* Room for each element: four buffers of float32 (published weights, the next ones, a sum, a version that a slow reader
 * still holds) and as many of another element type. */
enum { BYTES_PER_ELEMENT = 4 * 4 + 4 * 4, BUFFERS_PER_PARAM = 8 };

struct pd_shared_weights {
    pd_segment segment;
    uint64_t used; /* bytes from the segment's beginning that are handed out, with the gaps of alignment */
    unsigned refs;
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return (n + unit - 1) / unit * unit;
}

int pd_shared_weights_new(pd_shared_weights **out, uint64_t elements, uint64_t params, pd_error *err)
{
    uint64_t bytes = elements * BYTES_PER_ELEMENT + params * BUFFERS_PER_PARAM * ALIGN;
    pd_shared_weights *shared = calloc(1, sizeof *shared);
    int rc;

    if (shared == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = pd_segment_make(&shared->segment, round_up(bytes, HUGE_PAGE), err);
    if (rc != PD_OK) {
        free(shared);
        return rc;
    }
    shared->refs = 1;
    *out = shared;
    return PD_OK;
}

void pd_shared_weights_ref(pd_shared_weights *shared)
{
    shared->refs++;
}

uint64_t pd_shared_weights_left(const pd_shared_weights *shared)
{
    return shared != NULL && shared->refs > 1 ? pd_segment_allocated(&shared->segment) : 0;
}

void pd_shared_weights_unref(pd_shared_weights *shared)
{
    if (shared == NULL) return;
    assert(shared->refs > 0);
    if (--shared->refs > 0) return;
    pd_segment_drop(&shared->segment);
    free(shared);
}

void *pd_shared_weights_take(pd_shared_weights *shared, size_t bytes)
{
    uint64_t at = round_up(shared->used, ALIGN);

    if (at > shared->segment.bytes || bytes > shared->segment.bytes - at) return NULL;
    shared->used = at + bytes;
    return shared->segment.at + at;
}

const pd_segment *pd_shared_weights_segment(const pd_shared_weights *shared)
{
    return shared != NULL ? &shared->segment : NULL;
}
