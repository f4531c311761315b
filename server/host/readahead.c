/* readahead.c - a disk that reads files ahead of its user, in a thread of its own. */
#include "readahead.h"

#include "disk_pass.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>

/* Pieces fit the cache that the two threads share. */
enum { PIECES = 4, ROOM = 1 << 20, NO_FILE = -1 };

/* Bytes that were read ahead. */
typedef struct piece {
    uint8_t *at;
    size_t bytes, used; /* how many there are, and how many of them the user has */
    int number;         /* error of the read; 0: none */
} piece;

struct pd_read_ahead {
    pd_disk_pass base; /* must be the first member */
    pd_side_thread side;
    int file;        /* the file that is read without gaps; NO_FILE: none */
    uint64_t offset; /* where its last read ended */
    bool ahead;      /* the pieces have what follows; only the user's thread changes this and those above */
    /* protected by the lock of `side` */
    piece pieces[PIECES];
    unsigned first, n;  /* pieces that are read: from `first` on, as a ring */
    uint64_t next, end; /* what the thread has to read of the file: up to its end */
    bool reading;       /* the thread reads a piece now */
};

/* ---- the thread that reads ---- */

/* Waits until there is something to read, and room for it. Returns NULL when the thread has to end. */
static piece *next_piece(pd_read_ahead *disk)
{
    piece *p = NULL;

    pd_side_lock(&disk->side);
    while (!disk->side.stop && (disk->n == PIECES || disk->next == disk->end)) pd_side_wait(&disk->side);
    if (!disk->side.stop) {
        uint64_t left = disk->end - disk->next;
        p = &disk->pieces[(disk->first + disk->n) % PIECES];
        p->bytes = left < ROOM ? (size_t)left : ROOM;
        p->used = 0;
        disk->reading = true;
    }
    pd_side_unlock(&disk->side);
    return p;
}

/* Hands a piece to the user. After an error nothing more is read. */
static void end_piece(pd_read_ahead *disk, piece *p)
{
    pd_side_lock(&disk->side);
    disk->next = p->number == 0 ? disk->next + p->bytes : disk->end;
    disk->n++;
    disk->reading = false;
    pd_side_unlock(&disk->side);
}

static void *run(void *arg)
{
    pd_read_ahead *disk = arg;
    piece *p;

    while ((p = next_piece(disk)) != NULL) {
        p->number = disk->base.below->read(disk->base.below->arg, disk->file, disk->next, p->at, p->bytes);
        end_piece(disk, p);
    }
    return NULL;
}

/* ---- reading ---- */

/* Lets the thread read what follows the last read. */
static void begin(pd_read_ahead *disk)
{
    uint64_t size;

    if (disk->base.below->size(disk->base.below->arg, disk->file, &size) != 0 || size <= disk->offset + ROOM) return;
    pd_side_lock(&disk->side);
    disk->next = disk->offset;
    disk->end = size;
    disk->ahead = true;
    pd_side_unlock(&disk->side);
}

/* Waits until the thread has left the file, and drops what it has read. */
static void leave(pd_read_ahead *disk)
{
    pd_side_lock(&disk->side);
    while (disk->reading) pd_side_wait(&disk->side);
    disk->next = disk->end = 0;
    disk->first = disk->n = 0;
    pd_side_unlock(&disk->side);
    disk->ahead = false;
    disk->file = NO_FILE;
}

/* Waits for the piece that comes next. NULL: the file has ended. */
static piece *wait_piece(pd_read_ahead *disk)
{
    piece *p;

    pd_side_lock(&disk->side);
    while (disk->n == 0 && disk->next != disk->end) pd_side_wait(&disk->side);
    p = disk->n > 0 ? &disk->pieces[disk->first] : NULL;
    pd_side_unlock(&disk->side);
    return p;
}

static void drop_piece(pd_read_ahead *disk)
{
    pd_side_lock(&disk->side);
    disk->first = (disk->first + 1) % PIECES;
    disk->n--;
    pd_side_unlock(&disk->side);
}

/* Takes bytes out of the pieces. Returns how many; fewer than wanted: the file has ended, or *number is an error. */
static size_t take(pd_read_ahead *disk, uint8_t *to, size_t bytes, int *number)
{
    size_t taken = 0;
    piece *p;

    while (taken < bytes && (p = wait_piece(disk)) != NULL && (*number = p->number) == 0) {
        size_t n = p->bytes - p->used < bytes - taken ? p->bytes - p->used : bytes - taken;
        memcpy(to + taken, p->at + p->used, n);
        taken += n;
        p->used += n;
        if (p->used == p->bytes) drop_piece(disk);
    }
    return taken;
}

/* Reads from the disk below. A file that goes on where the last read has ended is read ahead from here on. */
static int read_below(pd_read_ahead *disk, int file, uint64_t offset, void *at, size_t bytes)
{
    bool goes_on = file == disk->file && offset == disk->offset && offset > 0;
    int number = disk->base.below->read(disk->base.below->arg, file, offset, at, bytes);

    disk->file = number == 0 ? file : NO_FILE;
    disk->offset = offset + bytes;
    if (goes_on && number == 0) begin(disk);
    return number;
}

static int read_file(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    pd_read_ahead *disk = arg;
    size_t taken = 0;
    int number = 0;

    if (disk->ahead && file == disk->file && offset == disk->offset) {
        taken = take(disk, at, bytes, &number);
        disk->offset += taken;
        if (taken == bytes) return 0;
    }
    if (disk->ahead) leave(disk);
    return number != 0 ? number : read_below(disk, file, offset + taken, (uint8_t *)at + taken, bytes - taken);
}

static int close_file(void *arg, int file)
{
    pd_read_ahead *disk = arg;

    if (file == disk->file) leave(disk);
    return disk->base.below->close(disk->base.below->arg, file);
}

/* ---- life of the disk ---- */

int pd_read_ahead_start(pd_read_ahead **out, const pd_disk *below, pd_error *err)
{
    pd_read_ahead *disk = *out = calloc(1, sizeof *disk);

    if (disk == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    pd_disk_pass_init(&disk->base, below);
    disk->base.functions.read = read_file;
    disk->base.functions.close = close_file;
    disk->file = NO_FILE;
    for (int i = 0; i < PIECES; i++)
        if ((disk->pieces[i].at = aligned_alloc(PD_DISK_BLOCK, ROOM)) == NULL)
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_side_start(&disk->side, run, disk, "thread that reads checkpoints ahead", err);
}

const pd_disk *pd_read_ahead_disk(const pd_read_ahead *disk)
{
    return &disk->base.functions;
}

void pd_read_ahead_stop(pd_read_ahead *disk)
{
    if (disk == NULL) return;
    pd_side_stop(&disk->side);
    for (int i = 0; i < PIECES; i++) free(disk->pieces[i].at);
    free(disk);
}
