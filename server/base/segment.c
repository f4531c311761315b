/* segment.c - makes, checks and maps segments of shared memory. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS, fallocate */
#include "segment.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "mutant.h"

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010 /* seal: no new mapping can write; from Linux 5.1 on */
#endif
#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U /* the memory cannot be executed as a program; from Linux 6.3 on */
#endif
#define TMPFS_MAGIC 0x01021994L /* file system of a memfd of ordinary pages; memfds of huge pages have another one */
#define HUGE_PAGE ((uint64_t)2 << 20)

enum { FIXED_SIZE = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return n / unit * unit + (n % unit != 0 ? unit : 0);
}

static uint64_t page_bytes(void)
{
    return (uint64_t)sysconf(_SC_PAGESIZE);
}

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

/* Sets the size of the memfd, maps it, and seals it. The mapping is made before F_SEAL_FUTURE_WRITE, so it stays
 * writable. */
static int fill(pd_segment *out, int fd, uint64_t bytes, int seals, pd_error *err)
{
    void *at;

    if (ftruncate(fd, (off_t)bytes) != 0) return unavailable("setting its size", err);
    at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (at == MAP_FAILED) return unavailable("mapping it", err);
    *out = (pd_segment){ .at = at, .bytes = bytes, .fd = fd };
    if (fcntl(fd, F_ADD_SEALS, seals) != 0) return unavailable("sealing it", err);
    /* Huge pages only save time, so an error is ignored. */
    (void)madvise(at, bytes, bytes >= HUGE_PAGE ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    return PD_OK;
}

static int make(pd_segment *out, uint64_t bytes, int seals, pd_error *err)
{
    int fd = new_memfd(), rc;

    *out = (pd_segment)PD_NO_SEGMENT;
    if (fd < 0) return unavailable("memfd_create", err);
    if (bytes > INT64_MAX) {
        close(fd);
        return pd_fail(err, PD_UNAVAILABLE, "shared memory: %llu bytes exceed the largest size",
                       (unsigned long long)bytes);
    }
    if ((rc = fill(out, fd, bytes, seals, err)) == PD_OK) return PD_OK;
    if (out->at != NULL)
        pd_segment_drop(out);
    else
        close(fd);
    return rc;
}

int pd_segment_make(pd_segment *out, uint64_t bytes, pd_error *err)
{
    int rc = make(out, bytes, FIXED_SIZE, err);

    if (rc != PD_OK) return rc;
    out->erasable = true;
    if (fchmod(out->fd, S_IRUSR) == 0) return PD_OK;
    rc = unavailable("making it read-only for others", err);
    pd_segment_drop(out);
    return rc;
}

int pd_segment_make_full(pd_segment *out, uint64_t bytes, pd_error *err)
{
    uint64_t page = page_bytes(), unit = bytes >= HUGE_PAGE ? HUGE_PAGE : page;
    uint64_t whole = bytes <= INT64_MAX ? round_up(bytes, unit) : bytes;
    int rc = make(out, whole, FIXED_SIZE | F_SEAL_FUTURE_WRITE, err);

    for (uint64_t i = 0; rc == PD_OK && i < whole; i += page) ((volatile uint8_t *)out->at)[i] = 0;
    return rc;
}

/* Checks that accesses to the mapped memory cannot fail: the peer cannot shorten the memory, and it is not of a kind
 * whose pages may be unavailable. */
static int check(int fd, uint64_t bytes, pd_error *err)
{
    struct statfs fs;
    struct stat file;
    int seals = fd >= 0 ? fcntl(fd, F_GET_SEALS) : -1;

    if (fd < 0) return pd_fail(err, PD_INVALID_ARGUMENT, "shared memory: the request has no file descriptor");
    if (seals < 0 || fstatfs(fd, &fs) != 0 || (long)fs.f_type != TMPFS_MAGIC)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "shared memory: expected a memfd of ordinary pages, made by memfd_create with MFD_ALLOW_SEALING");
    if ((seals & FIXED_SIZE) != FIXED_SIZE && !PD_MUTANT(any_seals))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "shared memory: expected the seals F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_SEAL, got 0x%x",
                       (unsigned)seals);
    if (bytes == 0 || fstat(fd, &file) != 0 || (uint64_t)file.st_size < bytes)
        return pd_fail(err, PD_INVALID_ARGUMENT, "shared memory: expected a memfd of %llu bytes, got %lld",
                       (unsigned long long)bytes, (long long)file.st_size);
    return PD_OK;
}

/* Checks that all pages of the memory are allocated, and that the peer cannot free one. Reading a page that is not
 * allocated would allocate it, as memory of this process. The check uses the kernel's counter of pages (fstat), not
 * SEEK_HOLE, which takes a lock that the peer could hold. */
static int check_full(int fd, pd_error *err)
{
    uint64_t page = page_bytes(), there, whole;
    struct stat file;

    if ((fcntl(fd, F_GET_SEALS) & F_SEAL_FUTURE_WRITE) == 0 && !PD_MUTANT(holes_lent))
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "shared memory: the seal F_SEAL_FUTURE_WRITE is missing: without it pages can be freed while they "
            "are read");
    if (fstat(fd, &file) != 0) return unavailable("fstat", err);
    there = (uint64_t)file.st_blocks * 512;
    whole = round_up((uint64_t)file.st_size, page);
    if (there == whole || PD_MUTANT(holes_lent)) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "shared memory: only %llu of %llu bytes are allocated: write to each page before Share; with huge "
                   "pages make the size a multiple of their size",
                   (unsigned long long)there, (unsigned long long)whole);
}

static int map(pd_segment *out, int fd, uint64_t bytes, int checked, pd_error *err)
{
    int rc = checked;
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

int pd_segment_map(pd_segment *out, int fd, uint64_t bytes, pd_error *err)
{
    return map(out, fd, bytes, check(fd, bytes, err), err);
}

int pd_segment_map_full(pd_segment *out, int fd, uint64_t bytes, pd_error *err)
{
    int rc = check(fd, bytes, err);

    return map(out, fd, bytes, rc == PD_OK ? check_full(fd, err) : rc, err);
}

int pd_segment_share(const pd_segment *segment)
{
    char path[32];

    if (segment->fd < 0) return -1;
    if (!segment->erasable) return fcntl(segment->fd, F_DUPFD_CLOEXEC, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", segment->fd);
    return open(path, O_RDONLY | O_CLOEXEC);
}

uint64_t pd_segment_allocated(const pd_segment *segment)
{
    struct stat file;

    return fstat(segment->fd, &file) == 0 ? (uint64_t)file.st_blocks * 512 : segment->bytes;
}

void pd_segment_erase(const pd_segment *segment, void *at, uint64_t n)
{
    uint64_t first = (uint64_t)((uint8_t *)at - segment->at), begin = round_up(first, page_bytes());
    uint64_t end = (first + n) / page_bytes() * page_bytes();

    assert(segment->erasable && pd_segment_has(segment, at, n));
    if (begin < end)
        (void)fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin, (off_t)(end - begin));
}

bool pd_segment_has(const pd_segment *segment, const void *at, uint64_t n)
{
    uint64_t first = (uint64_t)((uintptr_t)at - (uintptr_t)segment->at);

    return segment->at != NULL && first < segment->bytes && n <= segment->bytes - first;
}

void pd_segment_drop(pd_segment *segment)
{
    if (segment->at != NULL) munmap(segment->at, segment->bytes);
    if (segment->erasable)
        (void)fallocate(segment->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        (off_t)round_up(segment->bytes, page_bytes()));
    if (segment->fd >= 0) close(segment->fd);
    *segment = (pd_segment)PD_NO_SEGMENT;
}
