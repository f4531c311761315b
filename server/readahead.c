/* readahead.c - a disk that reads files ahead of its user, in a thread of its own. */
#include "readahead.h"

#include "disk_pass.h"

#include <pthread.h>
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
    pthread_t thread;
    int file;        /* the file that is read without gaps; NO_FILE: none */
    uint64_t offset; /* where its last read ended */
    bool ahead;      /* the pieces have what follows; only the user's thread changes this and those above */
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a piece was read or used up, or one of the fields below has changed */
    piece pieces[PIECES];
    unsigned first, n;  /* pieces that are read: from `first` on, as a ring */
    uint64_t next, end; /* what the thread has to read of the file: up to its end */
    bool reading, stop; /* the thread reads a piece now; it has to end */
};

/* ---- the thread that reads ---- */

/* Waits until there is something to read, and room for it. Returns NULL when the thread has to end. */
static piece *next_piece(pd_read_ahead *disk)
{
    piece *p = NULL;

    pthread_mutex_lock(&disk->lock);
    while (!disk->stop && (disk->n == PIECES || disk->next == disk->end))
        pthread_cond_wait(&disk->changed, &disk->lock);
    if (!disk->stop) {
        uint64_t left = disk->end - disk->next;
        p = &disk->pieces[(disk->first + disk->n) % PIECES];
        p->bytes = left < ROOM ? (size_t)left : ROOM;
        p->used = 0;
        disk->reading = true;
    }
    pthread_mutex_unlock(&disk->lock);
    return p;
}

/* Hands a piece to the user. After an error nothing more is read. */
static void end_piece(pd_read_ahead *disk, piece *p)
{
    pthread_mutex_lock(&disk->lock);
    disk->next = p->number == 0 ? disk->next + p->bytes : disk->end;
    disk->n++;
    disk->reading = false;
    pthread_cond_broadcast(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
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
    pthread_mutex_lock(&disk->lock);
    disk->next = disk->offset;
    disk->end = size;
    disk->ahead = true;
    pthread_cond_broadcast(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
}

/* Waits until the thread has left the file, and drops what it has read. */
static void leave(pd_read_ahead *disk)
{
    pthread_mutex_lock(&disk->lock);
    while (disk->reading) pthread_cond_wait(&disk->changed, &disk->lock);
    disk->next = disk->end = 0;
    disk->first = disk->n = 0;
    pthread_mutex_unlock(&disk->lock);
    disk->ahead = false;
    disk->file = NO_FILE;
}

/* Waits for the piece that comes next. NULL: the file has ended. */
static piece *wait_piece(pd_read_ahead *disk)
{
    piece *p;

    pthread_mutex_lock(&disk->lock);
    while (disk->n == 0 && disk->next != disk->end) pthread_cond_wait(&disk->changed, &disk->lock);
    p = disk->n > 0 ? &disk->pieces[disk->first] : NULL;
    pthread_mutex_unlock(&disk->lock);
    return p;
}

static void drop_piece(pd_read_ahead *disk)
{
    pthread_mutex_lock(&disk->lock);
    disk->first = (disk->first + 1) % PIECES;
    disk->n--;
    pthread_cond_broadcast(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
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

static void free_disk(pd_read_ahead *disk)
{
    for (int i = 0; i < PIECES; i++) free(disk->pieces[i].at);
    pthread_cond_destroy(&disk->changed);
    pthread_mutex_destroy(&disk->lock);
    free(disk);
}

static pd_read_ahead *new_disk(const pd_disk *below)
{
    pd_read_ahead *disk = calloc(1, sizeof *disk);

    if (disk == NULL) return NULL;
    pthread_mutex_init(&disk->lock, NULL);
    pthread_cond_init(&disk->changed, NULL);
    pd_disk_pass_init(&disk->base, below);
    disk->base.functions.read = read_file;
    disk->base.functions.close = close_file;
    disk->file = NO_FILE;
    for (int i = 0; i < PIECES; i++) {
        if ((disk->pieces[i].at = aligned_alloc(PD_DISK_BLOCK, ROOM)) != NULL) continue;
        free_disk(disk);
        return NULL;
    }
    return disk;
}

int pd_read_ahead_start(pd_read_ahead **out, const pd_disk *below, pd_error *err)
{
    pd_read_ahead *disk = new_disk(below);

    if (disk == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (pthread_create(&disk->thread, NULL, run, disk) == 0) {
        *out = disk;
        return PD_OK;
    }
    free_disk(disk);
    return pd_fail(err, PD_RESOURCE_EXHAUSTED, "the thread that reads checkpoints ahead cannot be started");
}

const pd_disk *pd_read_ahead_disk(const pd_read_ahead *disk)
{
    return &disk->base.functions;
}

void pd_read_ahead_stop(pd_read_ahead *disk)
{
    if (disk == NULL) return;
    pthread_mutex_lock(&disk->lock);
    disk->stop = true;
    pthread_cond_broadcast(&disk->changed);
    pthread_mutex_unlock(&disk->lock);
    pthread_join(disk->thread, NULL);
    free_disk(disk);
}
