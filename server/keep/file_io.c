/* file_io.c - writes files in large aligned blocks, and reads them, with their XXH3. */
#include "file_io.h"

#include "mutant.h"
#include "pages.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of the buffer, which are also the most bytes of one write. The buffer lies on huge pages, so that the kernel
 * splits a write into few requests to the disk. */
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

/* Returns how many of the bytes at `at` can be written without copying them to the buffer. */
static size_t direct_bytes(const pd_file_writer *writer, const void *at, size_t bytes)
{
    bool fits = writer->disk->any_memory || (uintptr_t)at % PD_DISK_BLOCK == 0;

    if (writer->used != 0 || !fits) return 0;
    return bytes >= ROOM ? ROOM : bytes / PD_DISK_BLOCK * PD_DISK_BLOCK;
}

/* Returns how many of the next bytes are copied to the buffer. If many bytes follow that need not be copied, fills the
 * buffer only up to the end of a disk block, so that the others are written without the buffer. */
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

/* Bytes that are read and hashed at a time, so few that they are still in the processor's cache when they are
 * hashed. */
enum { SLICE = 1 << 20 };

int pd_file_reader_damaged(const pd_file_reader *reader, pd_error *err, const char *what)
{
    return pd_fail(err, PD_DATA_LOSS, "%.300s: %s", reader->path, what);
}

static int start(pd_file_reader *reader, const pd_file_sum *expected, pd_error *err)
{
    int number = reader->disk->size(reader->disk->arg, reader->file, &reader->bytes);

    if (number != 0) return pd_disk_fail(err, number, "read the size", reader->path);
    if (expected == NULL) {
        reader->expected.bytes = reader->bytes;
        return PD_OK;
    }
    reader->expected = *expected;
    if (reader->bytes != expected->bytes)
        return pd_fail(err, PD_DATA_LOSS, "%.300s: %" PRIu64 " bytes, the manifest tells of %" PRIu64, reader->path,
                       reader->bytes, expected->bytes);
    if ((reader->whole = XXH3_createState()) == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    XXH3_64bits_reset(reader->whole);
    return PD_OK;
}

int pd_file_reader_open(pd_file_reader *reader, const pd_disk *disk, const char *dir, const char *name,
                        const pd_file_sum *expected, pd_error *err)
{
    int number, rc;

    *reader = (pd_file_reader){ .disk = disk, .name = name };
    pd_keep_join(reader->path, dir, name);
    if ((number = disk->open(disk->arg, reader->path, &reader->file)) != 0)
        return pd_disk_fail(err, number, "open", reader->path);
    if ((rc = start(reader, expected, err)) != PD_OK) disk->close(disk->arg, reader->file);
    return rc;
}

int pd_file_reader_peek(pd_file_reader *reader, uint64_t offset, void *at, size_t bytes, pd_error *err)
{
    int number;

    if (offset > reader->bytes || bytes > reader->bytes - offset)
        return pd_file_reader_damaged(reader, err, "it ends before what it should have");
    number = reader->disk->read(reader->disk->arg, reader->file, offset, at, bytes);
    if (number == ENODATA) return pd_file_reader_damaged(reader, err, "it has become shorter");
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "read", reader->path);
}

int pd_file_reader_take(pd_file_reader *reader, void *at, size_t bytes, pd_error *err)
{
    uint8_t *to = at;
    int rc = PD_OK;

    while (bytes > 0 && rc == PD_OK) {
        size_t n = bytes < SLICE ? bytes : SLICE;
        if ((rc = pd_file_reader_peek(reader, reader->at, to, n, err)) != PD_OK) return rc;
        if (reader->whole != NULL) XXH3_64bits_update(reader->whole, to, n);
        reader->at += n;
        to += n;
        bytes -= n;
    }
    return rc;
}

int pd_file_reader_skip(pd_file_reader *reader, pd_error *err)
{
    uint8_t *slice = malloc(SLICE);
    int rc = slice != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");

    while (rc == PD_OK && reader->at < reader->bytes) {
        uint64_t left = reader->bytes - reader->at;
        rc = pd_file_reader_take(reader, slice, left < SLICE ? (size_t)left : SLICE, err);
    }
    free(slice);
    return rc;
}

/* Checks that the whole file was read, and that its hash is that of the manifest. */
static int prove(const pd_file_reader *reader, pd_error *err)
{
    uint64_t hash;

    if (reader->at != reader->bytes) return pd_file_reader_damaged(reader, err, "it has more bytes than it should");
    if (reader->whole == NULL || (hash = XXH3_64bits_digest(reader->whole)) == reader->expected.xxh3) return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "%.300s: its XXH3 is %016" PRIx64 ", the manifest tells of %016" PRIx64,
                   reader->path, hash, reader->expected.xxh3);
}

int pd_file_reader_close(pd_file_reader *reader, int rc, pd_error *err)
{
    reader->disk->close(reader->disk->arg, reader->file);
    if (rc == PD_OK && !PD_MUTANT(trusts_unsynced)) rc = prove(reader, err);
    if (reader->whole != NULL) XXH3_freeState(reader->whole);
    reader->whole = NULL;
    return rc;
}
