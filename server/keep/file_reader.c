/* file_reader.c - reads one file of a checkpoint, and compares its size and XXH3 with those that the manifest has. */
#include "file_reader.h"

#include "mutant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

/* Bytes that are read and hashed at a time: they are in the processor's cache when they are hashed. */
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

/* Compares what was read with what the manifest tells. */
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
