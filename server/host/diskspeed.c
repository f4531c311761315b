/* diskspeed.c - measures how fast the disk of the state directory is. */
#include "diskspeed.h"

#include "keep_names.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PIECE = 4 << 20, MOST = 16 << 20 };
#define MOST_NS 100000000u

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Writes pieces until there are enough, or the time is over, and syncs the file. */
static int write_pieces(const pd_disk *disk, int file, const uint8_t *piece, uint64_t begun, uint64_t *bytes)
{
    int number = 0;

    for (*bytes = 0; number == 0 && *bytes < MOST && now_ns() - begun < MOST_NS; *bytes += PIECE)
        number = disk->write(disk->arg, file, piece, PIECE);
    return number == 0 ? disk->sync_file(disk->arg, file) : number;
}

int pd_disk_speed(const pd_disk *disk, const char *dir, uint64_t *bytes_per_s, pd_error *err)
{
    uint8_t *piece = aligned_alloc(PD_DISK_BLOCK, PIECE);
    char path[PD_KEEP_PATH];
    uint64_t bytes = 0, begun, ns;
    int file, number;

    *bytes_per_s = 0;
    if (piece == NULL) return pd_fail(err, PD_NO_MEMORY, "the measurement of the disk: out of memory");
    memset(piece, 0xa5, PIECE);
    pd_keep_join(path, dir, PD_KEEP_SPEED);
    (void)disk->remove(disk->arg, path); /* a daemon that was killed may have left it */
    begun = now_ns();
    if ((number = disk->create(disk->arg, path, MOST, &file)) == 0) {
        number = write_pieces(disk, file, piece, begun, &bytes);
        disk->close(disk->arg, file);
        ns = now_ns() - begun;
        if (number == 0) *bytes_per_s = (uint64_t)((double)bytes * 1e9 / (double)(ns > 0 ? ns : 1));
        (void)disk->remove(disk->arg, path);
    }
    free(piece);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "measure the disk with the file", path);
}
