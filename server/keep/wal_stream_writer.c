/* wal_stream_writer.c - writes the log of one job: segments, one entry after the other. */
#include "wal_stream_writer.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cursor.h"
#include "keep_array.h"

/* Most files that wait to be written anew; the others are removed. */
enum { SPARES = 16 };

/* Least bytes of a segment of a control log in a daemon: its entries are small and few. */
enum { CONTROL_SEGMENT = 1 << 20 };

static const uint8_t zeros[PD_DISK_BLOCK];

static int sync_dir(const pd_wal_stream_writer *log, const char *path, pd_error *err)
{
    int number = log->disk->sync_dir(log->disk->arg, path);

    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync the directory", path);
}

/* ---- the other files of the log ---- */

static void file_path(char out[PD_KEEP_PATH], const pd_wal_stream_writer *log, const pd_wal_file *file)
{
    pd_keep_join(out, log->dir, file->name);
}

/* Notes the segment that was written, whose last entry is of the step `last`, so that it is removed one day. If there
 * is no memory for the note, it never is. A segment of the kind PD_SEGMENT_UP_TO is not written anew, only removed. */
static void note_file(pd_wal_stream_writer *log, const char *path, pd_segment_kind kind, uint64_t last)
{
    pd_wal_file file = { .kind = kind, .number = log->segment.number, .last = last, .bytes = log->bytes };
    void *at = log->files;

    snprintf(file.name, sizeof file.name, "%.63s", strrchr(path, '/') + 1);
    if (!pd_keep_grow(&at, &log->files_room, log->n_files, sizeof file)) return;
    log->files = at;
    log->files[log->n_files++] = file;
}

/* Removes files that are not needed after the checkpoint of a step, but for some that will be written anew. */
static void forget(pd_wal_stream_writer *log, uint64_t step)
{
    char path[PD_KEEP_PATH];
    size_t spares = 0, n = 0;

    for (size_t i = 0; i < log->n_files; i++) {
        const pd_wal_file *file = &log->files[i];
        bool is_spare = file->kind == PD_SEGMENT_WHOLE && file->last <= step && spares < SPARES;
        file_path(path, log, file);
        if (file->last <= step && !is_spare && log->disk->remove(log->disk->arg, path) == 0) continue;
        spares += is_spare;
        log->files[n++] = *file;
    }
    log->n_files = n;
}

/* Takes a file whose entries a checkpoint has made obsolete out of the list. Returns false if there is none. */
static bool take_spare(pd_wal_stream_writer *log, pd_wal_file *file)
{
    for (size_t i = 0; i < log->n_files; i++) {
        if (log->files[i].last > log->given_up || log->files[i].kind != PD_SEGMENT_WHOLE) continue;
        *file = log->files[i];
        log->files[i] = log->files[--log->n_files];
        return true;
    }
    return false;
}

/* ---- the segment that is written ---- */

/* Closes the segment, which is durable up to its last entry. */
static void close_segment(pd_wal_stream_writer *log)
{
    if (!log->open) return;
    log->disk->close(log->disk->arg, log->file);
    log->open = log->resumed = log->new_name = false;
    note_file(log, log->path, PD_SEGMENT_WHOLE, log->last);
}

/* Gives up the segment after an error. What was not synced must not be read, even if the disk should have it: a later
 * sync that succeeds would prove nothing. So the name tells up to which step the file counts. */
static void break_off(pd_wal_stream_writer *log)
{
    char path[PD_KEEP_PATH], name[PD_KEEP_NAME];
    const pd_disk *disk = log->disk;

    log->link = 0;
    if (!log->open) return;
    disk->close(disk->arg, log->file);
    log->open = log->resumed = log->new_name = false;
    pd_keep_segment_name(name, PD_SEGMENT_UP_TO, log->segment.number, log->durable);
    pd_keep_join(path, log->dir, name);
    if (disk->rename(disk->arg, log->path, path) != 0) memcpy(path, log->path, sizeof path);
    note_file(log, path, PD_SEGMENT_UP_TO, log->last);
    (void)sync_dir(log, log->dir, NULL);
}

int pd_wal_stream_writer_sync(pd_wal_stream_writer *log, pd_error *err)
{
    int number, rc;

    if (!log->resumed) return PD_OK;
    rc = pd_file_writer_flush(log->writer, err);
    if (rc == PD_OK && (number = log->disk->sync_data(log->disk->arg, log->file)) != 0)
        rc = pd_disk_fail(err, number, "sync", log->path);
    if (rc == PD_OK && log->new_name) rc = sync_dir(log, log->dir, err);
    if (rc != PD_OK) {
        break_off(log);
        return rc;
    }
    log->resumed = log->new_name = false;
    log->durable = log->last;
    log->given_up = log->base;
    return PD_OK;
}

/* Opens the file of a new segment: one that is written anew, or a new one. */
static int open_file(pd_wal_stream_writer *log, uint64_t bytes, pd_error *err)
{
    char name[PD_KEEP_NAME], from[PD_KEEP_PATH];
    const pd_disk *disk = log->disk;
    pd_wal_file spare;
    int number;

    pd_keep_segment_name(name, PD_SEGMENT_WHOLE, log->segment.number, 0);
    pd_keep_join(log->path, log->dir, name);
    log->bytes = 0;
    if (!take_spare(log, &spare)) {
        number = disk->create(disk->arg, log->path, bytes, &log->file);
        return number == 0 ? PD_OK : pd_disk_fail(err, number, "create the file", log->path);
    }
    file_path(from, log, &spare);
    if ((number = disk->rename(disk->arg, from, log->path)) != 0) return pd_disk_fail(err, number, "rename", from);
    log->bytes = spare.bytes;
    number = disk->reopen(disk->arg, log->path, bytes, &log->file);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "open", log->path);
}

/* Begins a segment, in which the entry comes first, with room for two such entries. */
static int begin_segment(pd_wal_stream_writer *log, const pd_wal_record *entry, uint64_t entry_bytes, pd_error *err)
{
    uint8_t block[PD_DISK_BLOCK];
    int rc = pd_wal_stream_writer_sync(log, err);

    if (rc != PD_OK) return rc;
    close_segment(log);
    log->most = PD_DISK_BLOCK + 2 * entry_bytes;
    if (log->most < log->segment_bytes) log->most = log->segment_bytes;
    log->segment.number++;
    log->segment.base = entry->base;
    log->segment.first = entry->step;
    log->segment.previous = log->link;
    log->segment.durable = log->durable;
    if ((rc = open_file(log, log->most, err)) != PD_OK) return rc;
    if (log->most < log->bytes) log->most = log->bytes;
    log->open = log->resumed = log->new_name = true;
    log->offset = PD_DISK_BLOCK;
    pd_wal_segment_write(&log->segment, block);
    log->link = log->segment.link;
    pd_file_writer_resume(log->writer, log->file, log->path, 0);
    return pd_file_writer_put(log->writer, block, sizeof block, err);
}

/* ---- entries ---- */

static int put_zeros(pd_wal_stream_writer *log, uint64_t written, uint64_t multiple, pd_error *err)
{
    return pd_file_writer_put(log->writer, zeros, (size_t)((multiple - written % multiple) % multiple), err);
}

static int put_table(pd_wal_stream_writer *log, const pd_wal_record *entry, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; i < entry->n_parts && rc == PD_OK; i++) {
        uint64_t elements = htole64((uint64_t)entry->parts[i].elements);
        rc = pd_file_writer_put(log->writer, &elements, sizeof elements, err);
    }
    return rc;
}

static int put_aggregates(pd_wal_stream_writer *log, const pd_wal_record *entry, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; i < entry->n_parts && rc == PD_OK; i++) {
        size_t bytes = (size_t)entry->parts[i].elements * sizeof(float);
        rc = pd_file_writer_put(log->writer, entry->parts[i].at, bytes, err);
        if (rc == PD_OK) rc = put_zeros(log, bytes, PD_WAL_ALIGN, err);
    }
    return rc;
}

static pd_wal_header header_of(const pd_wal_stream_writer *log, const pd_wal_record *entry)
{
    pd_wal_header header = { .n_parts = entry->n_parts,
                             .segment = log->segment.number,
                             .creator = entry->creator,
                             .base = entry->base,
                             .step = entry->step,
                             .durable = log->durable,
                             .head_bytes = entry->head_bytes,
                             .previous = log->link };

    for (uint32_t i = 0; i < entry->n_parts; i++)
        header.data_bytes += pd_wal_part_bytes((uint64_t)entry->parts[i].elements);
    return header;
}

static int put_entry(pd_wal_stream_writer *log, const pd_wal_record *entry, pd_error *err)
{
    pd_wal_header header = header_of(log, entry);
    uint8_t bytes[PD_WAL_HEADER];
    uint64_t link;
    int rc;

    pd_wal_header_write(&header, bytes);
    pd_file_writer_begin_block(log->writer);
    rc = pd_file_writer_put(log->writer, bytes, sizeof bytes, err);
    if (rc == PD_OK) rc = put_table(log, entry, err);
    if (rc == PD_OK) rc = pd_file_writer_put(log->writer, entry->head, entry->head_bytes, err);
    if (rc == PD_OK)
        rc = put_zeros(log, sizeof bytes + 8 * (uint64_t)entry->n_parts + entry->head_bytes, PD_WAL_ALIGN, err);
    if (rc == PD_OK) rc = put_aggregates(log, entry, err);
    log->link = pd_file_writer_end_block(log->writer);
    link = htole64(log->link);
    if (rc == PD_OK) rc = pd_file_writer_put(log->writer, &link, sizeof link, err);
    return rc == PD_OK ? put_zeros(log, pd_wal_header_link(&header) + sizeof link, PD_DISK_BLOCK, err) : rc;
}

/* Begins a chain: nothing that the log has is needed after the checkpoint before it. */
static int begin_chain(pd_wal_stream_writer *log, const pd_wal_record *entry, pd_error *err)
{
    int rc = pd_wal_stream_writer_sync(log, err);

    if (rc != PD_OK) return rc;
    close_segment(log);
    for (size_t i = 0; i < log->n_files && !log->control; i++) log->files[i].last = 0;
    log->link = 0;
    log->last = log->durable = entry->base;
    return PD_OK;
}

/* Prepares a segment for an entry. */
static int make_room(pd_wal_stream_writer *log, const pd_wal_record *entry, pd_error *err)
{
    pd_wal_header header = header_of(log, entry);
    uint64_t bytes = pd_wal_header_bytes(&header);
    bool begins = entry->step == entry->base + 1;
    int rc = begins ? begin_chain(log, entry, err) : PD_OK;

    if (rc != PD_OK) return rc;
    if (!log->control) log->given_up = entry->base;
    if (begins || entry->base > log->base) forget(log, log->given_up);
    log->base = entry->base;
    if (!log->open || log->offset + bytes > log->most) return begin_segment(log, entry, bytes, err);
    if (!log->resumed) pd_file_writer_resume(log->writer, log->file, log->path, log->offset);
    log->resumed = true;
    return PD_OK;
}

int pd_wal_stream_writer_append(pd_wal_stream_writer *log, pd_wal_record *record, pd_error *err)
{
    pd_wal_header header = header_of(log, record);
    int rc;

    if (record->step != record->base + 1 && (log->link == 0 || record->step != log->last + 1))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s: no entry of step %" PRIu64 " is there, which one of step %" PRIu64
                       " could follow; entries begin again after the next checkpoint",
                       log->dir, record->step - 1, record->step);
    rc = make_room(log, record, err);
    if (rc == PD_OK) rc = put_entry(log, record, err);
    if (rc != PD_OK) {
        break_off(log);
        return rc;
    }
    record->bytes = pd_wal_header_bytes(&header);
    log->offset += record->bytes;
    if (log->offset > log->bytes) log->bytes = log->offset;
    log->last = record->step;
    return PD_OK;
}

/* ---- opening and closing ---- */

/* Takes over the files that are there, and finds the entry that the first one will follow. */
static int take_over(pd_wal_stream_writer *log, const pd_wal_record *first, pd_error *err)
{
    pd_wal_index index;
    size_t spot;
    const char *name = log->control ? PD_KEEP_DECISIONS : PD_KEEP_STEPS;
    int rc = pd_wal_index_read(&index, log->disk, log->job_dir, name, first->creator, false, err);

    if (rc != PD_OK) return rc;
    if (index.n_files > 0) log->segment.number = index.files[index.n_files - 1].number;
    spot = first->step == first->base + 1 ? PD_WAL_NOWHERE : pd_wal_index_find(&index, first->step - 1);
    if (spot != PD_WAL_NOWHERE) {
        log->link = index.spots[spot].link;
        log->last = log->durable = first->step - 1;
    }
    log->files = index.files;
    log->n_files = index.n_files;
    log->files_room = index.files_room;
    index.files = NULL;
    pd_wal_index_free(&index);
    return PD_OK;
}

static int make_dir(const pd_wal_stream_writer *log, pd_error *err)
{
    int number = log->disk->make_dir(log->disk->arg, log->dir);

    if (number != 0 && number != EEXIST) return pd_disk_fail(err, number, "make the directory", log->dir);
    return sync_dir(log, log->job_dir, err);
}

int pd_wal_stream_writer_open(pd_wal_stream_writer *log, const pd_disk *disk, const char *root, uint64_t segment_bytes,
                              pd_file_writer *writer, const pd_wal_record *first, pd_error *err)
{
    char name[PD_KEEP_NAME];
    int rc;

    *log = (pd_wal_stream_writer){
        .disk = disk, .writer = writer, .segment_bytes = segment_bytes, .control = first->control
    };
    if (log->control && segment_bytes > CONTROL_SEGMENT) log->segment_bytes = CONTROL_SEGMENT;
    log->segment.creator = first->creator;
    snprintf(log->segment.job, sizeof log->segment.job, "%s", first->job);
    pd_keep_job_name(name, first->job, first->creator);
    pd_keep_join(log->job_dir, root, name);
    pd_keep_join(log->dir, log->job_dir, log->control ? PD_KEEP_DECISIONS : PD_KEEP_STEPS);
    rc = make_dir(log, err);
    return rc == PD_OK ? take_over(log, first, err) : rc;
}

void pd_wal_stream_writer_close(pd_wal_stream_writer *log)
{
    if (log->open) log->disk->close(log->disk->arg, log->file);
    free(log->files);
    *log = (pd_wal_stream_writer){ 0 };
}
