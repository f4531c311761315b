/* notes_bin.c - writes and reads the file notes.bin of a checkpoint. */
#include "notes_bin.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cursor.h"

static const char magic[8] = { 'p', 'd', 'n', 'o', 't', 'e', 's', '\n' };

enum { VERSION = 1, PREFIX = 16, RECORD = 24 };

uint64_t pd_notes_bin_bytes(const pd_checkpoint_image *kept)
{
    uint64_t bytes = PREFIX;

    for (uint32_t i = 0; i < kept->n_worker_states; i++) bytes += RECORD + kept->worker_states[i].bytes;
    return bytes;
}

/* ---- writing ---- */

static int write_note(pd_file_writer *writer, const pd_worker_state *note, pd_error *err)
{
    uint8_t at[RECORD];
    pd_cursor record = { .at = at, .left = sizeof at };
    int rc;

    pd_cursor_put_u32(&record, note->rank);
    pd_cursor_put_u32(&record, 0);
    pd_cursor_put_u64(&record, note->step);
    pd_cursor_put_u64(&record, note->bytes);
    rc = pd_file_writer_put(writer, at, sizeof at, err);
    return rc == PD_OK ? pd_file_writer_put(writer, note->at, note->bytes, err) : rc;
}

int pd_notes_bin_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                       pd_error *err)
{
    uint8_t at[PREFIX];
    pd_cursor prefix = { .at = at, .left = sizeof at };
    int rc = pd_file_writer_open(writer, dir, pd_keep_files[PD_KEEP_NOTES], pd_notes_bin_bytes(kept), err);

    pd_cursor_put(&prefix, magic, sizeof magic);
    pd_cursor_put_u32(&prefix, VERSION);
    pd_cursor_put_u32(&prefix, kept->n_worker_states);
    if (rc == PD_OK) rc = pd_file_writer_put(writer, at, sizeof at, err);
    for (uint32_t i = 0; i < kept->n_worker_states && rc == PD_OK; i++)
        rc = write_note(writer, &kept->worker_states[i], err);
    return rc == PD_OK ? pd_file_writer_close(writer, sum, err) : rc;
}

/* ---- reading ---- */

static int read_note(pd_file_reader *file, pd_checkpoint_image *kept, pd_error *err)
{
    pd_worker_state *note = &kept->worker_states[kept->n_worker_states];
    uint8_t at[RECORD];
    pd_cursor record = { .at = at, .left = sizeof at };
    uint64_t bytes;
    int rc = pd_file_reader_take(file, at, sizeof at, err);

    if (rc != PD_OK) return rc;
    note->rank = pd_cursor_u32(&record);
    (void)pd_cursor_u32(&record);
    note->step = pd_cursor_u64(&record);
    bytes = pd_cursor_u64(&record);
    if (kept->n_worker_states > 0 && note->rank <= note[-1].rank)
        return pd_file_reader_damaged(file, err, "its ranks are not in order");
    if (bytes > PD_WORKER_STATE_MAX || bytes > file->bytes - file->at)
        return pd_file_reader_damaged(file, err, "it has a note that is too long");
    if ((note->at = malloc(bytes > 0 ? (size_t)bytes : 1)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    note->bytes = (size_t)bytes;
    kept->n_worker_states++;
    return pd_file_reader_take(file, note->at, note->bytes, err);
}

/* Reads the beginning of the file, and allocates the array of notes: no more than the file can have. */
static int read_prefix(pd_file_reader *file, pd_checkpoint_image *kept, uint32_t *n, pd_error *err)
{
    uint8_t at[PREFIX];
    pd_cursor prefix = { .at = at + sizeof magic, .left = sizeof at - sizeof magic };
    int rc = pd_file_reader_take(file, at, sizeof at, err);
    uint32_t version = pd_cursor_u32(&prefix);

    *n = pd_cursor_u32(&prefix);
    if (rc != PD_OK) return rc;
    if (memcmp(at, magic, sizeof magic) != 0)
        return pd_file_reader_damaged(file, err, "its beginning is not that of such a file");
    if (version != VERSION)
        return pd_fail(err, PD_UNIMPLEMENTED, "%.300s: version %" PRIu32 ": this version of paramd reads %d",
                       file->path, version, VERSION);
    if (*n > (file->bytes - PREFIX) / RECORD)
        return pd_file_reader_damaged(file, err, "it tells of more notes than it has");
    kept->worker_states = calloc(*n + 1u, sizeof *kept->worker_states);
    return kept->worker_states != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
}

int pd_notes_bin_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                      pd_error *err)
{
    pd_file_reader file;
    uint32_t n = 0;
    int rc = pd_file_reader_open(&file, disk, dir, pd_keep_files[PD_KEEP_NOTES], sum, err);

    if (rc != PD_OK) return rc;
    rc = read_prefix(&file, kept, &n, err);
    for (uint32_t i = 0; i < n && rc == PD_OK; i++) rc = read_note(&file, kept, err);
    return pd_file_reader_close(&file, rc, err);
}
