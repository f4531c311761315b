/* segment.c - makes, checks and maps segments of shared memory. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "plant.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* no new mapping can write; from Linux 5.1 on */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* the memory cannot be executed as a program; from Linux 6.3 on */
#endif
#define TMPFS_MAGIC 0x01021994L /* file system of a memfd of ordinary pages; that of huge pages is another one */
#define HUGE_PAGE ((uint64_t)2 << 20)

enum { FIXED_SIZE = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int unavailable(const char *what, pd_error *err)
{
    return pd_fail(err, PD_UNAVAILABLE, "shared memory: %s: %s", what, strerror(errno));
}

static int new_memfd(void)
{
    int fd = memfd_create("paramd", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);

    if (fd < 0 && errno == EINVAL) fd = memfd_create("paramd", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    return fd;
}

/* Sizes and maps the memory, then seals it: the seal against writing spares mappings that exist. */
static int fill(pd_segment *out, int fd, uint64_t bytes, pd_error *err)
{
    void *at;

    if (ftruncate(fd, (off_t)bytes) != 0) return unavailable("setting its size", err);
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return unavailable("mapping it", err);
    *out = (pd_segment){ .at = at, .bytes = bytes, .fd = fd };
    if (fcntl(fd, F_ADD_SEALS, FIXED_SIZE | F_SEAL_FUTURE_WRITE) != 0) return unavailable("sealing it", err);
    if (bytes >= HUGE_PAGE) (void)madvise(at, bytes, MADV_HUGEPAGE); /* only saves time, so an error is ignored */
    return PD_OK;
}

int pd_segment_make(pd_segment *out, uint64_t bytes, pd_error *err)
{
    int fd = new_memfd(), rc;

    *out = (pd_segment)PD_NO_SEGMENT;
    if (fd < 0) return unavailable("memfd_create", err);
    if (bytes > INT64_MAX) {
        close(fd);
        return pd_fail(err, PD_UNAVAILABLE, "shared memory: %llu bytes are too many", (unsigned long long)bytes);
    }
    if ((rc = fill(out, fd, bytes, err)) == PD_OK) return PD_OK;
    if (out->at != NULL)
        pd_segment_drop(out);
    else
        close(fd);
    return rc;
}

/* Checks that accesses to the mapped memory cannot fail: the peer can neither shorten it, nor has it chosen memory
 * whose pages may be missing. */
static int check(int fd, uint64_t bytes, pd_error *err)
{
    struct statfs fs;
    struct stat file;
    int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;

    if (fd < 0) return pd_fail(err, PD_INVALID_ARGUMENT, "shared memory: no descriptor came with the request");
    if (seals < 0 || fstatfs(fd, &fs) != 0 || (long)fs.f_type != TMPFS_MAGIC)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shared memory: the descriptor is no memfd of ordinary pages: make it with memfd_create and "
                       "MFD_ALLOW_SEALING");
    if ((seals & FIXED_SIZE) != FIXED_SIZE && !PD_PLANTED(any_seals))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shared memory: its size must be sealed with F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL, and "
                       "its seals are 0x%x",
                       (unsigned)seals);
    if (bytes == 0 || fstat(fd, &file) != 0 || (uint64_t)file.st_size < bytes)
        return pd_fail(err, PD_INVALID_ARGUMENT, "shared memory: %llu bytes are announced, the memfd has %lld",
                       (unsigned long long)bytes, (long long)file.st_size);
    return PD_OK;
}

int pd_segment_map(pd_segment *out, int fd, uint64_t bytes, pd_error *err)
{
    int rc = check(fd, bytes, err);
    void *at;

    *out = (pd_segment)PD_NO_SEGMENT;
    if (rc == PD_OK) {
        at = mmap(NULL, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
        if (at == MAP_FAILED)
            rc = unavailable("mapping it", err);
        else
            *out = (pd_segment){ .at = at, .bytes = bytes, .fd = -1 };
    }
    if (fd >= 0) close(fd);
    return rc;
}

int pd_segment_share(const pd_segment *segment)
{
    return segment->fd >= 0 ? fcntl(segment->fd, F_DUPFD_CLOEXEC, 0) : -1;
}

bool pd_segment_has(const pd_segment *segment, const void *at, uint64_t n)
{
    uint64_t first = (uint64_t)((uintptr_t)at - (uintptr_t)segment->at);

    return segment->at != NULL && first < segment->bytes && n <= segment->bytes - first;
}

void pd_segment_drop(pd_segment *segment)
{
    if (segment->at != NULL) munmap(segment->at, segment->bytes);
    if (segment->fd >= 0) close(segment->fd);
    *segment = (pd_segment)PD_NO_SEGMENT;
}
