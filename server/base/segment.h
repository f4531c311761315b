/* segment.h - makes, maps and frees segments, which are memfds: one process makes a segment and passes its descriptor
 * to another.
 *
 * A segment has no name, so the kernel frees it when its processes have ended. Its size is sealed. Otherwise a peer
 * could shorten it, and an access to the missing pages would kill the process that has mapped it.
 *
 * The kernel charges a page to the cgroup of the process that first accesses the page. There are two kinds of segments,
 * so that neither process pays for pages of the other:
 *
 *   erasable: made by the daemon, for weights. A page takes memory only once it is written, so a segment may be larger
 *             than its used part. Peers get a read-only descriptor. When the daemon drops the segment, its pages are
 *             freed, even while peers have it mapped or open: they then read zeros.
 *   full:     made by a worker, for gradients. All pages are allocated before the daemon gets the descriptor, and a
 *             seal keeps them from being freed.
 *
 * Any thread. */
#ifndef PD_SEGMENT_H
#define PD_SEGMENT_H

#include "paramd/error.h"

#include <stdbool.h>
#include <stdint.h>

/* A segment that this process has mapped. */
typedef struct pd_segment {
    uint8_t *at;    /* start of the mapping; NULL: there is no segment */
    uint64_t bytes; /* size of the mapping */
    int fd; /* descriptor of a segment that this process made; -1: the peer made it, and its descriptor was closed
             * after mapping */
    bool erasable;
} pd_segment;

#define PD_NO_SEGMENT                                                                                                  \
    {                                                                                                                  \
        .at = 0, .bytes = 0, .fd = -1, .erasable = false                                                               \
    }

/* Makes and maps an erasable segment of `bytes` > 0 zero bytes. PD_UNAVAILABLE: the kernel or a limit of the process
 * does not allow it. */
int pd_segment_make(pd_segment *out, uint64_t bytes, pd_error *err);
/* Makes and maps a full segment of at least `bytes` > 0 zero bytes. Only this mapping can write to it. Takes half a
 * second for each GiB. Errors are those of pd_segment_make. */
int pd_segment_make_full(pd_segment *out, uint64_t bytes, pd_error *err);
/* Maps the first `bytes` bytes of a peer's segment for reading. Closes the descriptor, also after an error.
 * PD_INVALID_ARGUMENT: fd is -1, or not a memfd of ordinary pages; or the segment can still change its size, or is
 * smaller than `bytes`. PD_UNAVAILABLE: the segment cannot be mapped. */
int pd_segment_map(pd_segment *out, int fd, uint64_t bytes, pd_error *err);
/* Does what pd_segment_map does, for a segment that must be full. PD_INVALID_ARGUMENT also if pages are not allocated
 * or can be freed. */
int pd_segment_map_full(pd_segment *out, int fd, uint64_t bytes, pd_error *err);
/* Returns a new descriptor of a segment that this process made, to be passed to a peer. The descriptor of an erasable
 * segment is read-only, and opening it needs /proc. Returns -1 if no descriptor is free, or there is no /proc. */
int pd_segment_share(const pd_segment *segment);
/* Returns the bytes of allocated pages of a segment that this process made. */
uint64_t pd_segment_allocated(const pd_segment *segment);
/* Frees the pages that lie completely within n bytes at `at`, in an erasable segment that this process made. These
 * pages then read as zeros, and take memory again once they are written. */
void pd_segment_erase(const pd_segment *segment, void *at, uint64_t n);
/* Returns whether n bytes at `at` lie in the segment. */
bool pd_segment_has(const pd_segment *segment, const void *at, uint64_t n);
/* Unmaps the segment, closes its descriptor, and sets *segment to PD_NO_SEGMENT. Frees the pages of an erasable
 * segment. Does nothing if *segment is PD_NO_SEGMENT. */
void pd_segment_drop(pd_segment *segment);

#endif
