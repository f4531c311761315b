/* segment.h - segments: memory that two processes share, passed between them as a descriptor (memfd).
 *
 * A segment has no name, so nothing is left over when its processes end. Its size is sealed. Otherwise a peer could
 * shorten it, and an access to the missing pages would kill the process that mapped it.
 *
 * The kernel charges a page to the cgroup of the process that touches it first. There are two kinds of segments, so
 * that neither side pays for pages of the other:
 *
 *   erasable: the daemon's, for weights. Pages take memory only once they are written, so it may be larger than what is
 *             used of it. Peers get a descriptor that can only read. When the maker drops the segment, its pages are
 *             freed, whoever still has it mapped or open: readers then see zeros.
 *   full:     a worker's, for gradients. All pages are there before the peer gets it, and a seal keeps them.
 *
 * Any thread. */
#ifndef PD_SEGMENT_H
#define PD_SEGMENT_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct pd_segment {
    uint8_t *at; /* NULL: there is no segment */
    uint64_t bytes;
    int fd; /* -1: the segment was made by the peer, whose descriptor is closed once it is mapped */
    bool erasable;
} pd_segment;

#define PD_NO_SEGMENT                                                                                                  \
    {                                                                                                                  \
        .at = 0, .bytes = 0, .fd = -1, .erasable = false                                                               \
    }

/* Makes and maps an erasable segment of `bytes` > 0, zeroed. PD_UNAVAILABLE: the kernel or a limit of the process does
 * not allow it. */
int pd_segment_make(pd_segment *out, uint64_t bytes, pd_error *err);
/* Makes and maps a full segment of at least `bytes` > 0, zeroed. Only this mapping can write. Takes half a second for
 * each GiB. Errors are those of pd_segment_make. */
int pd_segment_make_full(pd_segment *out, uint64_t bytes, pd_error *err);
/* Maps a peer's segment for reading, and takes the descriptor, also after an error. PD_INVALID_ARGUMENT: fd is -1, is
 * no memfd of ordinary pages, can still change its size, or is smaller than `bytes`. PD_UNAVAILABLE: it cannot be
 * mapped. */
int pd_segment_map(pd_segment *out, int fd, uint64_t bytes, pd_error *err);
/* Does the same with a segment that must be full. PD_INVALID_ARGUMENT, too: pages are missing, or can be freed. */
int pd_segment_map_full(pd_segment *out, int fd, uint64_t bytes, pd_error *err);
/* Returns a new descriptor of a segment that this process made, to be passed to a peer. That of an erasable segment can
 * only read, and needs /proc. -1: none is free, or there is no /proc. */
int pd_segment_share(const pd_segment *segment);
/* Returns the bytes of the pages that a segment which this process made has now. */
uint64_t pd_segment_allocated(const pd_segment *segment);
/* Frees the whole pages among n bytes at `at`, in an erasable segment that this process made. They are zeros then, and
 * take memory again once they are written. */
void pd_segment_erase(const pd_segment *segment, void *at, uint64_t n);
/* Returns whether n bytes at `at` lie in the segment. */
bool pd_segment_has(const pd_segment *segment, const void *at, uint64_t n);
/* Unmaps the segment, and sets it to PD_NO_SEGMENT. Frees the pages of an erasable one. Does nothing if there is
 * none. */
void pd_segment_drop(pd_segment *segment);

#endif
