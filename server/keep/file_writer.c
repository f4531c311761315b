/* file_writer.c - writes one file of a checkpoint or log in large aligned pieces, and computes its XXH3 on the way. */
#include "file_writer.h"

#include "pages.h"
#include "mutant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the buffer, and of the largest piece that is written at once. It lies on huge pages, as pieces of
 * writebehind.c do: the disk takes them in few requests. */
enum { ROOM = 4 << 20 };

int pd_file_writer_init(pd_file_writer *writer, const pd_disk *disk, pd_error *err)
{
    *writer = (pd_file_writer){ .disk = disk };
    writer->buffer = pd_pages_new(ROOM);
    writer->whole = XXH3_createState();
    writer->block = XXH3_createState();
    if (writer->buffer != NULL && writer->whole != NULL && writer->block != NULL) return PD_OK;
    pd_file_writer_free(writer);
    return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
}

void pd_file_writer_free(pd_file_writer *writer)
{
    if (writer->open) writer->disk->close(writer->disk->arg, writer->file);
    if (writer->whole != NULL) XXH3_freeState(writer->whole);
    if (writer->block != NULL) XXH3_freeState(writer->block);
    free(writer->buffer);
    *writer = (pd_file_writer){ 0 };
}

int pd_file_writer_open(pd_file_writer *writer, const char *dir, const char *name, uint64_t expected, pd_error *err)
{
    int number;

    pd_keep_join(writer->path, dir, name);
    number = writer->disk->create(writer->disk->arg, writer->path, expected, &writer->file);
    if (number != 0) return pd_disk_fail(err, number, "create the file", writer->path);
    writer->open = true;
    writer->in_place = false;
    writer->used = 0;
    writer->bytes = 0;
    XXH3_64bits_reset(writer->whole);
    return PD_OK;
}

void pd_file_writer_resume(pd_file_writer *writer, int file, const char *path, uint64_t offset)
{
    snprintf(writer->path, sizeof writer->path, "%s", path);
    writer->file = file;
    writer->in_place = true;
    writer->offset = offset;
    writer->used = 0;
    writer->bytes = 0;
}

static int write_piece(pd_file_writer *writer, const void *at, size_t bytes, pd_error *err)
{
    const pd_disk *disk = writer->disk;
    int number = writer->in_place ? disk->write_at(disk->arg, writer->file, writer->offset, at, bytes)
                                  : disk->write(disk->arg, writer->file, at, bytes);

    writer->offset += bytes;
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "write", writer->path);
}

int pd_file_writer_flush(pd_file_writer *writer, pd_error *err)
{
    size_t bytes = writer->used;

    writer->used = 0;
    return bytes == 0 ? PD_OK : write_piece(writer, writer->buffer, bytes, err);
}

static void add_to_hashes(pd_file_writer *writer, const void *at, size_t bytes)
{
    if (!writer->in_place) XXH3_64bits_update(writer->whole, at, bytes);
    if (writer->in_block) XXH3_64bits_update(writer->block, at, bytes);
    writer->bytes += bytes;
}

/* Returns how many bytes can be written from where they lie, without the buffer. */
static size_t direct_bytes(const pd_file_writer *writer, const void *at, size_t bytes)
{
    bool fits = writer->disk->any_memory || (uintptr_t)at % PD_DISK_BLOCK == 0;

    if (writer->used != 0 || !fits) return 0;
    return bytes >= ROOM ? ROOM : bytes / PD_DISK_BLOCK * PD_DISK_BLOCK;
}

/* Returns how many bytes go into the buffer. Where many come from memory that need not be copied, the buffer is filled
 * only up to the end of a block, so that they can be written from where they lie. */
static size_t buffered_bytes(const pd_file_writer *writer, size_t bytes)
{
    size_t left = ROOM - writer->used, to_block = (PD_DISK_BLOCK - writer->used % PD_DISK_BLOCK) % PD_DISK_BLOCK;

    if (writer->disk->any_memory && bytes >= ROOM && writer->used != 0) return to_block;
    return bytes < left ? bytes : left;
}

static int put_buffered(pd_file_writer *writer, const void *at, size_t n, bool flushes, pd_error *err)
{
    memcpy(writer->buffer + writer->used, at, n);
    writer->used += n;
    return flushes || writer->used == ROOM ? pd_file_writer_flush(writer, err) : PD_OK;
}

int pd_file_writer_put(pd_file_writer *writer, const void *at, size_t bytes, pd_error *err)
{
    const uint8_t *from = at;
    int rc = PD_OK;

    while (bytes > 0 && rc == PD_OK) {
        size_t n = direct_bytes(writer, from, bytes);
        bool direct = n > 0;
        if (!direct) n = buffered_bytes(writer, bytes);
        add_to_hashes(writer, from, n);
        if (direct)
            rc = write_piece(writer, from, n, err);
        else
            rc = put_buffered(writer, from, n, writer->disk->any_memory && bytes >= ROOM, err);
        from += n;
        bytes -= n;
    }
    return rc;
}

void pd_file_writer_begin_block(pd_file_writer *writer)
{
    XXH3_64bits_reset(writer->block);
    writer->in_block = true;
}

uint64_t pd_file_writer_end_block(pd_file_writer *writer)
{
    writer->in_block = false;
    return XXH3_64bits_digest(writer->block);
}

int pd_file_writer_close(pd_file_writer *writer, pd_file_sum *sum, pd_error *err)
{
    const pd_disk *disk = writer->disk;
    int rc = pd_file_writer_flush(writer, err), number = 0;
    bool syncs = true;

    if (rc != PD_OK) return rc;
    if (PD_MUTANT(fsync_left_out)) syncs = false;
    if (PD_MUTANT(trusts_unsynced)) syncs = false;
    if (syncs) number = disk->sync_file(disk->arg, writer->file);
    if (number != 0 && PD_MUTANT(failed_sync_repeated)) number = disk->sync_file(disk->arg, writer->file);
    if (number != 0) return pd_disk_fail(err, number, "sync", writer->path);
    writer->open = false;
    if ((number = disk->close(disk->arg, writer->file)) != 0) return pd_disk_fail(err, number, "close", writer->path);
    *sum = (pd_file_sum){ .bytes = writer->bytes, .xxh3 = XXH3_64bits_digest(writer->whole) };
    return PD_OK;
}
