/* overlapped.c - the threads that read files ahead, write files behind, and populate memory before its first use. Also
 * measures the disk. */
#include "overlapped.h"

#include "disk.h"
#include "state_dir.h"
#include "pages.h"
#include "thread.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Number and size of the buffers for read-ahead. They fit into the cache that the two threads share. */
enum { AHEAD_PIECES = 4, AHEAD_ROOM = 1 << 20, NO_FILE = -1 };

/* A buffer of bytes that were read ahead. */
typedef struct ahead {
    uint8_t *at;
    size_t bytes, used; /* number of bytes in the buffer, and of those that the user has taken */
    int number;         /* errno of the read; 0: no error */
} ahead;

/* The thread that reads ahead, and the pd_disk of its user. */
struct pd_read_ahead {
    pd_disk_pass base; /* must be the first member */
    pd_side_thread side;
    /* `file`, `offset` and `ahead` are changed by the user's thread alone */
    int file;        /* the file that is read without gaps; NO_FILE: none */
    uint64_t offset; /* offset in the file at which the user's last read ended */
    bool ahead;      /* the thread reads `file` ahead from `offset` on */
    /* protected by the lock of `side` */
    ahead pieces[AHEAD_PIECES];
    unsigned first, n;  /* `pieces` is a ring: index of the oldest full buffer, and number of full buffers */
    uint64_t next, end; /* range of the file that the thread still has to read */
    bool reading;       /* the thread is reading into a buffer */
};

/* Waits until there are bytes to read and a free buffer. Returns the buffer to read into, or NULL when the thread has
 * to end. */
static ahead *next_ahead(pd_read_ahead *disk)
{
    ahead *p = NULL;

    pd_side_lock(&disk->side);
    while (!disk->side.stop && (disk->n == AHEAD_PIECES || disk->next == disk->end)) pd_side_wait(&disk->side);
    if (!disk->side.stop) {
        uint64_t left = disk->end - disk->next;
        p = &disk->pieces[(disk->first + disk->n) % AHEAD_PIECES];
        p->bytes = left < AHEAD_ROOM ? (size_t)left : AHEAD_ROOM;
        p->used = 0;
        disk->reading = true;
    }
    pd_side_unlock(&disk->side);
    return p;
}

/* Hands a full buffer to the user. After an error, the rest of the file is not read ahead. */
static void end_ahead(pd_read_ahead *disk, ahead *p)
{
    pd_side_lock(&disk->side);
    disk->next = p->number == 0 ? disk->next + p->bytes : disk->end;
    disk->n++;
    disk->reading = false;
    pd_side_unlock(&disk->side);
}

static void *run_ahead(void *arg)
{
    pd_read_ahead *disk = arg;
    ahead *p;

    while ((p = next_ahead(disk)) != NULL) {
        p->number = disk->base.below->read(disk->base.below->arg, disk->file, disk->next, p->at, p->bytes);
        end_ahead(disk, p);
    }
    return NULL;
}

/* Lets the thread read ahead from the end of the last read, unless little is left of the file. */
static void begin_ahead(pd_read_ahead *disk)
{
    uint64_t size;

    if (disk->base.below->size(disk->base.below->arg, disk->file, &size) != 0 || size <= disk->offset + AHEAD_ROOM)
        return;
    pd_side_lock(&disk->side);
    disk->next = disk->offset;
    disk->end = size;
    disk->ahead = true;
    pd_side_unlock(&disk->side);
}

/* Ends the read-ahead of the file: waits until the thread no longer reads it, and discards the contents of the
 * buffers. */
static void leave_ahead(pd_read_ahead *disk)
{
    pd_side_lock(&disk->side);
    while (disk->reading) pd_side_wait(&disk->side);
    disk->next = disk->end = 0;
    disk->first = disk->n = 0;
    pd_side_unlock(&disk->side);
    disk->ahead = false;
    disk->file = NO_FILE;
}

/* Waits for the next full buffer and returns it. Returns NULL at the end of the file. */
static ahead *wait_ahead(pd_read_ahead *disk)
{
    ahead *p;

    pd_side_lock(&disk->side);
    while (disk->n == 0 && disk->next != disk->end) pd_side_wait(&disk->side);
    p = disk->n > 0 ? &disk->pieces[disk->first] : NULL;
    pd_side_unlock(&disk->side);
    return p;
}

/* Copies bytes from the buffers to `to`. Returns their number, which is less than `bytes` at the end of the file and
 * after an error. *number is the errno, or 0. */
static size_t take_ahead(pd_read_ahead *disk, uint8_t *to, size_t bytes, int *number)
{
    size_t taken = 0;
    ahead *p;

    while (taken < bytes && (p = wait_ahead(disk)) != NULL && (*number = p->number) == 0) {
        size_t n = p->bytes - p->used < bytes - taken ? p->bytes - p->used : bytes - taken;
        memcpy(to + taken, p->at + p->used, n);
        taken += n;
        p->used += n;
        if (p->used < p->bytes) continue;
        pd_side_lock(&disk->side);
        disk->first = (disk->first + 1) % AHEAD_PIECES;
        disk->n--;
        pd_side_unlock(&disk->side);
    }
    return taken;
}

/* Reads from the wrapped disk. If this read continues the last one, the file is read ahead from now on. */
static int read_below(pd_read_ahead *disk, int file, uint64_t offset, void *at, size_t bytes)
{
    bool goes_on = file == disk->file && offset == disk->offset && offset > 0;
    int number = disk->base.below->read(disk->base.below->arg, file, offset, at, bytes);

    disk->file = number == 0 ? file : NO_FILE;
    disk->offset = offset + bytes;
    if (goes_on && number == 0) begin_ahead(disk);
    return number;
}

static int read_file(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    pd_read_ahead *disk = arg;
    size_t taken = 0;
    int number = 0;

    if (disk->ahead && file == disk->file && offset == disk->offset) {
        taken = take_ahead(disk, at, bytes, &number);
        disk->offset += taken;
        if (taken == bytes) return 0;
    }
    if (disk->ahead) leave_ahead(disk);
    return number != 0 ? number : read_below(disk, file, offset + taken, (uint8_t *)at + taken, bytes - taken);
}

static int close_ahead(void *arg, int file)
{
    pd_read_ahead *disk = arg;

    if (file == disk->file) leave_ahead(disk);
    return disk->base.below->close(disk->base.below->arg, file);
}

int pd_read_ahead_start(pd_read_ahead **out, const pd_disk *below, pd_error *err)
{
    pd_read_ahead *disk = *out = calloc(1, sizeof *disk);

    if (disk == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_disk_pass_init(&disk->base, below);
    disk->base.functions.read = read_file;
    disk->base.functions.close = close_ahead;
    disk->file = NO_FILE;
    for (int i = 0; i < AHEAD_PIECES; i++)
        if ((disk->pieces[i].at = aligned_alloc(PD_DISK_BLOCK, AHEAD_ROOM)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_side_start(&disk->side, run_ahead, disk, "thread that reads checkpoints ahead", err);
}

const pd_disk *pd_read_ahead_disk(const pd_read_ahead *disk)
{
    return &disk->base.functions;
}

void pd_read_ahead_stop(pd_read_ahead *disk)
{
    if (disk == NULL) return;
    pd_side_stop(&disk->side);
    for (int i = 0; i < AHEAD_PIECES; i++) free(disk->pieces[i].at);
    free(disk);
}

enum { BEHIND_PIECES = 3, BEHIND_ROOM = 4 << 20 };

/* A buffer of bytes that wait to be written. */
typedef struct behind {
    uint8_t *at; /* the memory, on huge pages, so the kernel sends it to the disk in few requests */
    size_t bytes;
    int file;    /* the file to which the bytes are written */
    bool placed; /* true: the bytes are written at `offset` of the file; false: they are appended to it */
    uint64_t offset;
} behind;

/* The thread that writes behind, and the pd_disk of its user. */
struct pd_write_behind {
    pd_disk_pass base; /* must be the first member */
    pd_side_thread side;
    /* protected by the lock of `side` */
    behind pieces[BEHIND_PIECES];
    unsigned first, n; /* `pieces` is a ring: index of the oldest full buffer, and number of full buffers */
    int number;        /* errno of a failed write to the open file; 0: none failed */
};

/* Waits for a full buffer and returns it. Returns NULL when the thread has to end. Sets *skip if the buffer must not be
 * written, because an earlier write failed. */
static const behind *next_behind(pd_write_behind *disk, bool *skip)
{
    const behind *p;

    pd_side_lock(&disk->side);
    while (disk->n == 0 && !disk->side.stop) pd_side_wait(&disk->side);
    p = disk->n > 0 ? &disk->pieces[disk->first] : NULL;
    *skip = disk->number != 0;
    pd_side_unlock(&disk->side);
    return p;
}

static void end_behind(pd_write_behind *disk, int number)
{
    pd_side_lock(&disk->side);
    if (number != 0) disk->number = number;
    disk->first = (disk->first + 1) % BEHIND_PIECES;
    disk->n--;
    pd_side_unlock(&disk->side);
}

static int write_piece(const pd_disk *below, const behind *p)
{
    if (p->placed) return below->write_at(below->arg, p->file, p->offset, p->at, p->bytes);
    return below->write(below->arg, p->file, p->at, p->bytes);
}

static void *run_behind(void *arg)
{
    pd_write_behind *disk = arg;
    const behind *p;
    bool skip;

    while ((p = next_behind(disk, &skip)) != NULL) end_behind(disk, skip ? 0 : write_piece(disk->base.below, p));
    return NULL;
}

/* Copies bytes into a buffer for the thread, after waiting for a free one. `bytes` is at most BEHIND_ROOM. Returns the
 * errno of an earlier write, or 0. */
static int hand_over(pd_write_behind *disk, behind where, const void *at, size_t bytes)
{
    behind *p;
    int number;

    pd_side_lock(&disk->side);
    while (disk->n == BEHIND_PIECES) pd_side_wait(&disk->side);
    p = &disk->pieces[(disk->first + disk->n) % BEHIND_PIECES];
    number = disk->number;
    pd_side_unlock(&disk->side);
    if (number != 0) return number;
    memcpy(p->at, at, bytes); /* no lock is needed: the thread uses this buffer only after n++ */
    p->bytes = bytes;
    p->file = where.file;
    p->placed = where.placed;
    p->offset = where.offset;
    pd_side_lock(&disk->side);
    disk->n++;
    pd_side_unlock(&disk->side);
    return 0;
}

static int hand_all_over(pd_write_behind *disk, behind where, const void *at, size_t bytes)
{
    const uint8_t *from = at;
    int number = 0;

    for (size_t n; bytes > 0 && number == 0; from += n, bytes -= n, where.offset += n) {
        n = bytes < BEHIND_ROOM ? bytes : BEHIND_ROOM;
        number = hand_over(disk, where, from, n);
    }
    return number;
}

static int write_file(void *arg, int file, const void *at, size_t bytes)
{
    return hand_all_over(arg, (behind){ .file = file }, at, bytes);
}

static int write_file_at(void *arg, int file, uint64_t offset, const void *at, size_t bytes)
{
    return hand_all_over(arg, (behind){ .file = file, .placed = true, .offset = offset }, at, bytes);
}

/* Waits until all buffers are written. Returns the errno of a failed write, or 0. With `end`, forgets the errno, so
 * that it does not concern the next file. */
static int settle(pd_write_behind *disk, bool end)
{
    int number;

    pd_side_lock(&disk->side);
    while (disk->n > 0) pd_side_wait(&disk->side);
    number = disk->number;
    if (end) disk->number = 0;
    pd_side_unlock(&disk->side);
    return number;
}

static int sync_file(void *arg, int file)
{
    pd_write_behind *disk = arg;
    int number = settle(disk, false);

    return number != 0 ? number : disk->base.below->sync_file(disk->base.below->arg, file);
}

static int sync_data(void *arg, int file)
{
    pd_write_behind *disk = arg;
    int number = settle(disk, false);

    return number != 0 ? number : disk->base.below->sync_data(disk->base.below->arg, file);
}

static int close_behind(void *arg, int file)
{
    pd_write_behind *disk = arg;
    int number = settle(disk, true), closed = disk->base.below->close(disk->base.below->arg, file);

    return number != 0 ? number : closed;
}

int pd_write_behind_start(pd_write_behind **out, const pd_disk *below, pd_error *err)
{
    pd_write_behind *disk = *out = calloc(1, sizeof *disk);

    if (disk == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_disk_pass_init(&disk->base, below);
    disk->base.functions.any_memory = true;
    disk->base.functions.write = write_file;
    disk->base.functions.write_at = write_file_at;
    disk->base.functions.sync_file = sync_file;
    disk->base.functions.sync_data = sync_data;
    disk->base.functions.close = close_behind;
    for (int i = 0; i < BEHIND_PIECES; i++)
        if ((disk->pieces[i].at = pd_pages_new(BEHIND_ROOM)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_side_start(&disk->side, run_behind, disk, "thread that writes checkpoints", err);
}

const pd_disk *pd_write_behind_disk(const pd_write_behind *disk)
{
    return &disk->base.functions;
}

void pd_write_behind_stop(pd_write_behind *disk)
{
    if (disk == NULL) return;
    pd_side_stop(&disk->side);
    for (int i = 0; i < BEHIND_PIECES; i++) free(disk->pieces[i].at);
    free(disk);
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* from Linux 5.14 on; an older kernel refuses it, so memory is not populated */
#endif

/* Bytes that the warmer populates in one system call. pd_warmer_put waits for one such call at most. */
enum { WARM_PIECE = 2 << 20 };

/* The warmer and the memory that it populates. */
struct pd_warmer {
    pd_numa numa;
    pd_side_thread side;
    /* protected by the lock of `side` */
    uint8_t *at; /* start of the memory that is still to be populated: `left` bytes */
    size_t left;
    bool busy; /* the thread is populating memory */
};

/* Waits for memory to populate. Sets *at to the start of the next bytes to populate and returns their number, or 0 when
 * the thread has to end. */
static size_t take_warm(pd_warmer *warmer, uint8_t **at)
{
    size_t bytes = 0;

    pd_side_lock(&warmer->side);
    while (warmer->left == 0 && !warmer->side.stop) pd_side_wait(&warmer->side);
    if (!warmer->side.stop) {
        bytes = warmer->left < WARM_PIECE ? warmer->left : WARM_PIECE;
        *at = warmer->at;
        warmer->at += bytes;
        warmer->left -= bytes;
        warmer->busy = true;
    }
    pd_side_unlock(&warmer->side);
    return bytes;
}

/* Marks the thread as idle. `done` is false if the kernel has refused the call: then the rest of the memory is not
 * populated. */
static void end_warm(pd_warmer *warmer, bool done)
{
    pd_side_lock(&warmer->side);
    if (!done) warmer->left = 0;
    warmer->busy = false;
    pd_side_unlock(&warmer->side);
}

static void *run_warmer(void *arg)
{
    pd_warmer *warmer = arg;
    uint8_t *at;
    size_t bytes;

    (void)pd_numa_prefer(&warmer->numa);
    while ((bytes = take_warm(warmer, &at)) > 0) end_warm(warmer, madvise(at, bytes, MADV_POPULATE_WRITE) == 0);
    return NULL;
}

void pd_warmer_put(void *arg, void *at, size_t bytes)
{
    pd_warmer *warmer = arg;

    pd_side_lock(&warmer->side);
    warmer->left = 0;
    while (warmer->busy) pd_side_wait(&warmer->side);
    warmer->at = at;
    warmer->left = bytes;
    pd_side_unlock(&warmer->side);
}

int pd_warmer_start(pd_warmer **out, const pd_numa *numa, pd_error *err)
{
    pd_warmer *warmer = *out = calloc(1, sizeof *warmer);

    if (warmer == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    warmer->numa = *numa;
    return pd_side_start(&warmer->side, run_warmer, warmer, "thread that touches memory of jobs", err);
}

void pd_warmer_stop(pd_warmer *warmer)
{
    if (warmer == NULL) return;
    pd_side_stop(&warmer->side);
    free(warmer);
}

enum { SPEED_PIECE = 4 << 20, SPEED_BYTES = 16 << 20 };
#define SPEED_NS 100000000u

/* Writes `piece` again and again, until SPEED_BYTES are written or SPEED_NS are over, and syncs the file. Sets *bytes
 * to the number of bytes written. */
static int write_sample(const pd_disk *disk, int file, const uint8_t *piece, uint64_t begun, uint64_t *bytes)
{
    int number = 0;

    for (*bytes = 0; number == 0 && *bytes < SPEED_BYTES && pd_clock_ns() - begun < SPEED_NS; *bytes += SPEED_PIECE)
        number = disk->write(disk->arg, file, piece, SPEED_PIECE);
    return number == 0 ? disk->sync_file(disk->arg, file) : number;
}

int pd_disk_speed(const pd_disk *disk, const char *dir, uint64_t *bytes_per_s, pd_error *err)
{
    uint8_t *piece = aligned_alloc(PD_DISK_BLOCK, SPEED_PIECE);
    char path[PD_KEEP_PATH];
    uint64_t bytes = 0, begun, ns;
    int file, number;

    *bytes_per_s = 0;
    if (piece == NULL) return pd_fail(err, PD_NO_MEMORY, "the measurement of the disk: out of memory");
    memset(piece, 0xa5, SPEED_PIECE);
    pd_keep_join(path, dir, PD_KEEP_SPEED);
    (void)disk->remove(disk->arg, path); /* a daemon that was killed may have left it */
    begun = pd_clock_ns();
    if ((number = disk->create(disk->arg, path, SPEED_BYTES, &file)) == 0) {
        number = write_sample(disk, file, piece, begun, &bytes);
        disk->close(disk->arg, file);
        ns = pd_clock_ns() - begun;
        if (number == 0) *bytes_per_s = (uint64_t)((double)bytes * 1e9 / (double)(ns > 0 ? ns : 1));
        (void)disk->remove(disk->arg, path);
    }
    free(piece);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "measure the disk with the file", path);
}
