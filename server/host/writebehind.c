/* writebehind.c - a disk whose writes are made by a thread of its own. */
#include "writebehind.h"

#include "disk_pass.h"
#include "pages.h"
#include "thread.h"

#include <stdlib.h>
#include <string.h>

enum { PIECES = 3, ROOM = 4 << 20 };

/* Bytes that wait to be written. */
typedef struct piece {
    uint8_t *at; /* on huge pages, which the disk takes in few requests */
    size_t bytes;
    int file;
    bool placed; /* the bytes belong at `offset` of the file; false: behind those of the piece before */
    uint64_t offset;
} piece;

struct pd_write_behind {
    pd_disk_pass base; /* must be the first member */
    pd_side_thread side;
    /* protected by the lock of `side` */
    piece pieces[PIECES];
    unsigned first, n; /* pieces that wait or are being written: from `first` on, as a ring */
    int number;        /* error of a write of the file that is open; 0: none */
};

/* ---- the thread that writes ---- */

/* Waits for a piece. Returns NULL when the thread has to stop. */
static const piece *next_piece(pd_write_behind *disk, bool *skip)
{
    const piece *p;

    pd_side_lock(&disk->side);
    while (disk->n == 0 && !disk->side.stop) pd_side_wait(&disk->side);
    p = disk->n > 0 ? &disk->pieces[disk->first] : NULL;
    *skip = disk->number != 0;
    pd_side_unlock(&disk->side);
    return p;
}

static void end_piece(pd_write_behind *disk, int number)
{
    pd_side_lock(&disk->side);
    if (number != 0) disk->number = number;
    disk->first = (disk->first + 1) % PIECES;
    disk->n--;
    pd_side_unlock(&disk->side);
}

static int write_piece(const pd_disk *below, const piece *p)
{
    if (p->placed) return below->write_at(below->arg, p->file, p->offset, p->at, p->bytes);
    return below->write(below->arg, p->file, p->at, p->bytes);
}

static void *run(void *arg)
{
    pd_write_behind *disk = arg;
    const piece *p;
    bool skip;

    while ((p = next_piece(disk, &skip)) != NULL) end_piece(disk, skip ? 0 : write_piece(disk->base.below, p));
    return NULL;
}

/* ---- functions of the disk ---- */

/* Hands bytes to the thread: at most as many as a piece has room for. Waits until a piece is free. */
static int hand_over(pd_write_behind *disk, piece where, const void *at, size_t bytes)
{
    piece *p;
    int number;

    pd_side_lock(&disk->side);
    while (disk->n == PIECES) pd_side_wait(&disk->side);
    p = &disk->pieces[(disk->first + disk->n) % PIECES];
    number = disk->number;
    pd_side_unlock(&disk->side);
    if (number != 0) return number;
    memcpy(p->at, at, bytes); /* the thread does not know this piece yet */
    p->bytes = bytes;
    p->file = where.file;
    p->placed = where.placed;
    p->offset = where.offset;
    pd_side_lock(&disk->side);
    disk->n++;
    pd_side_unlock(&disk->side);
    return 0;
}

static int hand_all_over(pd_write_behind *disk, piece where, const void *at, size_t bytes)
{
    const uint8_t *from = at;
    int number = 0;

    for (size_t n; bytes > 0 && number == 0; from += n, bytes -= n, where.offset += n) {
        n = bytes < ROOM ? bytes : ROOM;
        number = hand_over(disk, where, from, n);
    }
    return number;
}

static int write_file(void *arg, int file, const void *at, size_t bytes)
{
    return hand_all_over(arg, (piece){ .file = file }, at, bytes);
}

static int write_file_at(void *arg, int file, uint64_t offset, const void *at, size_t bytes)
{
    return hand_all_over(arg, (piece){ .file = file, .placed = true, .offset = offset }, at, bytes);
}

/* Waits until all pieces are written. Returns the error of the writes, and forgets it if `end` is set. */
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

static int close_file(void *arg, int file)
{
    pd_write_behind *disk = arg;
    int number = settle(disk, true), closed = disk->base.below->close(disk->base.below->arg, file);

    return number != 0 ? number : closed;
}

/* ---- life of the disk ---- */

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
    disk->base.functions.close = close_file;
    for (int i = 0; i < PIECES; i++)
        if ((disk->pieces[i].at = pd_pages_new(ROOM)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return pd_side_start(&disk->side, run, disk, "thread that writes checkpoints", err);
}

const pd_disk *pd_write_behind_disk(const pd_write_behind *disk)
{
    return &disk->base.functions;
}

void pd_write_behind_stop(pd_write_behind *disk)
{
    if (disk == NULL) return;
    pd_side_stop(&disk->side);
    for (int i = 0; i < PIECES; i++) free(disk->pieces[i].at);
    free(disk);
}
