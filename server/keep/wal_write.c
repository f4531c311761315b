/* wal_write.c - writes the records of all jobs' WALs into segments. If several records of a stream are written
 * together, waits for the disk only once. */
#include "cursor.h"
#include "file_io.h"
#include "grow.h"
#include "wal_files.h"
#include "wal_index.h"
#include "wal_record.h"

#include <endian.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One stream of a job's WAL, while it is open for writing. The pd_wal_writer owns it. */
typedef struct stream {
    const pd_disk *disk;
    pd_file_writer *writer; /* borrowed; no other stream uses it between the first record and the sync */
    char job_dir[PD_KEEP_PATH], dir[PD_KEEP_PATH]; /* paths of the job's directory and of the stream's */
    pd_wal_stream kind;
    pd_wal_segment segment; /* header of the segment that is being written, or of the last one */
    uint64_t segment_bytes; /* least bytes of a segment */
    pd_wal_file *files;     /* the other segments of the stream */
    size_t n_files, files_room;
    bool open; /* a segment is being written */
    int file;  /* file of this segment */
    char path[PD_KEEP_PATH];
    uint64_t bytes;        /* size of the file `file` */
    uint64_t offset, most; /* offset of the next record; largest offset at which a record may end */
    bool resumed;          /* `writer` writes into this segment, so there may be unsynced records */
    bool new_name;         /* the segment was created or renamed after the last sync of the directory */
    uint64_t last, link;   /* step and link of the last record; link 0: the next record must begin a chain */
    uint64_t base;         /* pd_wal_record.base of the last record */
    /* Records up to this one are no longer needed, so a new segment may overwrite their files. In the stream of steps
     * this is the base of the newest record, which is the step of a durable checkpoint. In the stream of decisions it
     * is the base of the newest durable record. */
    uint64_t given_up;
    uint64_t durable; /* step of the last durable record */
} stream;

/* Most obsolete files that are kept, so that new segments can overwrite them. More files are removed. */
enum { SPARES = 16 };

/* Least bytes of a segment in the stream of decisions, whose records are small and few. A writer that was made with
 * fewer segment_bytes uses those. */
enum { DECISIONS_SEGMENT = 1 << 20 };

static const uint8_t zeros[PD_DISK_BLOCK];

static void file_path(char out[PD_KEEP_PATH], const stream *s, const pd_wal_file *file)
{
    pd_keep_join(out, s->dir, file->name);
}

/* Adds the segment that was written to s->files, so that it is removed or overwritten when its last record, of step
 * `last`, is obsolete. If there is no memory for the list, the file stays on the disk. A file of the kind
 * PD_SEGMENT_UP_TO is never overwritten, only removed. */
static void note_file(stream *s, const char *path, pd_segment_kind kind, uint64_t last)
{
    pd_wal_file file = { .kind = kind, .number = s->segment.number, .last = last, .bytes = s->bytes };
    void *at = s->files;

    snprintf(file.name, sizeof file.name, "%.63s", strrchr(path, '/') + 1);
    if (pd_grow(&at, &s->files_room, s->n_files + 1, sizeof file) != PD_OK) return;
    s->files = at;
    s->files[s->n_files++] = file;
}

/* Removes the files whose records are all obsolete (up to step `step`), except up to SPARES files that new segments can
 * overwrite. */
static void forget(stream *s, uint64_t step)
{
    char path[PD_KEEP_PATH];
    size_t spares = 0, n = 0;

    for (size_t i = 0; i < s->n_files; i++) {
        const pd_wal_file *file = &s->files[i];
        bool is_spare = file->kind == PD_SEGMENT_WHOLE && file->last <= step && spares < SPARES;
        file_path(path, s, file);
        if (file->last <= step && !is_spare && s->disk->remove(s->disk->arg, path) == 0) continue;
        spares += is_spare;
        s->files[n++] = *file;
    }
    s->n_files = n;
}

/* Takes a file whose records are all obsolete out of s->files. Returns false if there is no such file. */
static bool take_spare(stream *s, pd_wal_file *file)
{
    for (size_t i = 0; i < s->n_files; i++) {
        if (s->files[i].last > s->given_up || s->files[i].kind != PD_SEGMENT_WHOLE) continue;
        *file = s->files[i];
        s->files[i] = s->files[--s->n_files];
        return true;
    }
    return false;
}

/* Closes the segment, whose records must all be durable. */
static void close_segment(stream *s)
{
    if (!s->open) return;
    s->disk->close(s->disk->arg, s->file);
    s->open = s->resumed = s->new_name = false;
    note_file(s, s->path, PD_SEGMENT_WHOLE, s->last);
}

/* Closes the segment after an error. Its unsynced records must not be read later, because it is unknown whether the
 * disk has them. So the file is renamed to say that only its records up to s->durable count. */
static void break_off(stream *s)
{
    char path[PD_KEEP_PATH], name[PD_KEEP_NAME];
    const pd_disk *disk = s->disk;

    s->link = 0;
    if (!s->open) return;
    disk->close(disk->arg, s->file);
    s->open = s->resumed = s->new_name = false;
    pd_keep_segment_name(name, PD_SEGMENT_UP_TO, s->segment.number, s->durable);
    pd_keep_join(path, s->dir, name);
    if (disk->rename(disk->arg, s->path, path) != 0) memcpy(path, s->path, sizeof path);
    note_file(s, path, PD_SEGMENT_UP_TO, s->last);
    (void)pd_disk_sync_dir(s->disk, s->dir, NULL);
}

static int sync_stream(stream *s, pd_error *err)
{
    int number, rc;

    if (!s->resumed) return PD_OK;
    rc = pd_file_writer_flush(s->writer, err);
    if (rc == PD_OK && (number = s->disk->sync_data(s->disk->arg, s->file)) != 0)
        rc = pd_disk_fail(err, number, "sync", s->path);
    if (rc == PD_OK && s->new_name) rc = pd_disk_sync_dir(s->disk, s->dir, err);
    if (rc != PD_OK) {
        break_off(s);
        return rc;
    }
    s->resumed = s->new_name = false;
    s->durable = s->last;
    s->given_up = s->base;
    return PD_OK;
}

/* Opens the file of a new segment: renames an obsolete file, or creates one. `bytes`: its expected size. */
static int open_file(stream *s, uint64_t bytes, pd_error *err)
{
    char name[PD_KEEP_NAME], from[PD_KEEP_PATH];
    const pd_disk *disk = s->disk;
    pd_wal_file spare;
    int number;

    pd_keep_segment_name(name, PD_SEGMENT_WHOLE, s->segment.number, 0);
    pd_keep_join(s->path, s->dir, name);
    s->bytes = 0;
    if (!take_spare(s, &spare)) {
        number = disk->create(disk->arg, s->path, bytes, &s->file);
        return number == 0 ? PD_OK : pd_disk_fail(err, number, "create the file", s->path);
    }
    file_path(from, s, &spare);
    if ((number = disk->rename(disk->arg, from, s->path)) != 0) return pd_disk_fail(err, number, "rename", from);
    s->bytes = spare.bytes;
    number = disk->reopen(disk->arg, s->path, bytes, &s->file);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "open", s->path);
}

/* Begins a segment for `record`, with room for at least two records of its size. */
static int begin_segment(stream *s, const pd_wal_record *record, uint64_t record_bytes, pd_error *err)
{
    uint8_t block[PD_DISK_BLOCK];
    int rc = sync_stream(s, err);

    if (rc != PD_OK) return rc;
    close_segment(s);
    s->most = PD_DISK_BLOCK + 2 * record_bytes;
    if (s->most < s->segment_bytes) s->most = s->segment_bytes;
    s->segment.number++;
    s->segment.base = record->base;
    s->segment.first = record->step;
    s->segment.previous = s->link;
    s->segment.durable = s->durable;
    if ((rc = open_file(s, s->most, err)) != PD_OK) return rc;
    if (s->most < s->bytes) s->most = s->bytes;
    s->open = s->resumed = s->new_name = true;
    s->offset = PD_DISK_BLOCK;
    pd_wal_segment_write(&s->segment, block);
    s->link = s->segment.link;
    pd_file_writer_resume(s->writer, s->file, s->path, 0);
    return pd_file_writer_put(s->writer, block, sizeof block, err);
}

static int put_zeros(stream *s, uint64_t written, uint64_t multiple, pd_error *err)
{
    return pd_file_writer_put(s->writer, zeros, (size_t)((multiple - written % multiple) % multiple), err);
}

static int put_table(stream *s, const pd_wal_record *record, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; i < record->n_parts && rc == PD_OK; i++) {
        uint64_t elements = htole64((uint64_t)record->parts[i].elements);
        rc = pd_file_writer_put(s->writer, &elements, sizeof elements, err);
    }
    return rc;
}

static int put_aggregates(stream *s, const pd_wal_record *record, pd_error *err)
{
    int rc = PD_OK;

    for (uint32_t i = 0; i < record->n_parts && rc == PD_OK; i++) {
        size_t bytes = (size_t)record->parts[i].elements * sizeof(float);
        rc = pd_file_writer_put(s->writer, record->parts[i].at, bytes, err);
        if (rc == PD_OK) rc = put_zeros(s, bytes, PD_WAL_ALIGN, err);
    }
    return rc;
}

static pd_wal_header header_of(const stream *s, const pd_wal_record *record)
{
    pd_wal_header header = { .n_parts = record->n_parts,
                             .segment = s->segment.number,
                             .creator = record->creator,
                             .base = record->base,
                             .step = record->step,
                             .durable = s->durable,
                             .head_bytes = record->head_bytes,
                             .previous = s->link };

    for (uint32_t i = 0; i < record->n_parts; i++)
        header.data_bytes += pd_wal_part_bytes((uint64_t)record->parts[i].elements);
    return header;
}

static int put_record(stream *s, const pd_wal_record *record, pd_error *err)
{
    pd_wal_header header = header_of(s, record);
    uint8_t bytes[PD_WAL_HEADER];
    uint64_t link;
    int rc;

    pd_wal_header_write(&header, bytes);
    pd_file_writer_begin_block(s->writer);
    rc = pd_file_writer_put(s->writer, bytes, sizeof bytes, err);
    if (rc == PD_OK) rc = put_table(s, record, err);
    if (rc == PD_OK) rc = pd_file_writer_put(s->writer, record->head, record->head_bytes, err);
    if (rc == PD_OK)
        rc = put_zeros(s, sizeof bytes + 8 * (uint64_t)record->n_parts + record->head_bytes, PD_WAL_ALIGN, err);
    if (rc == PD_OK) rc = put_aggregates(s, record, err);
    s->link = pd_file_writer_end_block(s->writer);
    link = htole64(s->link);
    if (rc == PD_OK) rc = pd_file_writer_put(s->writer, &link, sizeof link, err);
    return rc == PD_OK ? put_zeros(s, pd_wal_header_link(&header) + sizeof link, PD_DISK_BLOCK, err) : rc;
}

/* Begins a chain. All earlier records of steps are obsolete then. */
static int begin_chain(stream *s, const pd_wal_record *record, pd_error *err)
{
    int rc = sync_stream(s, err);

    if (rc != PD_OK) return rc;
    close_segment(s);
    for (size_t i = 0; i < s->n_files && s->kind == PD_WAL_STEPS; i++) s->files[i].last = 0;
    s->link = 0;
    s->last = s->durable = record->base;
    return PD_OK;
}

/* Makes sure that a segment is open and has room for a record. */
static int make_room(stream *s, const pd_wal_record *record, pd_error *err)
{
    pd_wal_header header = header_of(s, record);
    uint64_t bytes = pd_wal_header_bytes(&header);
    bool begins = record->step == record->base + 1;
    int rc = begins ? begin_chain(s, record, err) : PD_OK;

    if (rc != PD_OK) return rc;
    if (s->kind == PD_WAL_STEPS) s->given_up = record->base;
    if (begins || record->base > s->base) forget(s, s->given_up);
    s->base = record->base;
    if (!s->open || s->offset + bytes > s->most) return begin_segment(s, record, bytes, err);
    if (!s->resumed) pd_file_writer_resume(s->writer, s->file, s->path, s->offset);
    s->resumed = true;
    return PD_OK;
}

static int append(stream *s, pd_wal_record *record, pd_error *err)
{
    pd_wal_header header = header_of(s, record);
    int rc;

    if (record->step != record->base + 1 && (s->link == 0 || record->step != s->last + 1))
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s: missing record %" PRIu64 ", expected before %" PRIu64
                       "; records begin again after the next checkpoint",
                       s->dir, record->step - 1, record->step);
    rc = make_room(s, record, err);
    if (rc == PD_OK) rc = put_record(s, record, err);
    if (rc != PD_OK) {
        break_off(s);
        return rc;
    }
    record->bytes = pd_wal_header_bytes(&header);
    s->offset += record->bytes;
    if (s->offset > s->bytes) s->bytes = s->offset;
    s->last = record->step;
    return PD_OK;
}

/* Continues a stream that an earlier daemon has written: lists its files, and finds the record after which `first`
 * comes. */
static int take_over(stream *s, const pd_wal_record *first, pd_error *err)
{
    pd_wal_index index;
    size_t place;
    int rc = pd_wal_index_read(&index, s->disk, s->job_dir, s->kind, first->creator, false, err);

    if (rc != PD_OK) return rc;
    if (index.n_files > 0) s->segment.number = index.files[index.n_files - 1].number;
    place = first->step == first->base + 1 ? PD_WAL_NOWHERE : pd_wal_index_find(&index, first->step - 1);
    if (place != PD_WAL_NOWHERE) {
        s->link = index.places[place].link;
        s->last = s->durable = first->step - 1;
    }
    s->files = index.files;
    s->n_files = index.n_files;
    s->files_room = index.files_room;
    index.files = NULL;
    pd_wal_index_free(&index);
    return PD_OK;
}

static int make_dir(const stream *s, pd_error *err)
{
    int number = s->disk->make_dir(s->disk->arg, s->dir);

    if (number != 0 && number != EEXIST) return pd_disk_fail(err, number, "make the directory", s->dir);
    return pd_disk_sync_dir(s->disk, s->job_dir, err);
}

static int open_stream(stream *s, const pd_disk *disk, const char *root, uint64_t segment_bytes, pd_file_writer *writer,
                       const pd_wal_record *first, pd_error *err)
{
    char name[PD_KEEP_NAME];
    int rc;

    *s = (stream){ .disk = disk, .writer = writer, .segment_bytes = segment_bytes, .kind = first->stream };
    if (s->kind == PD_WAL_DECISIONS && segment_bytes > DECISIONS_SEGMENT) s->segment_bytes = DECISIONS_SEGMENT;
    s->segment.creator = first->creator;
    snprintf(s->segment.job, sizeof s->segment.job, "%s", first->job);
    pd_keep_job_name(name, first->job, first->creator);
    pd_keep_join(s->job_dir, root, name);
    pd_keep_join(s->dir, s->job_dir, pd_wal_stream_dir(s->kind));
    rc = make_dir(s, err);
    return rc == PD_OK ? take_over(s, first, err) : rc;
}

static void close_stream(stream *s)
{
    if (s->open) s->disk->close(s->disk->arg, s->file);
    free(s->files);
    *s = (stream){ 0 };
}

struct pd_wal_writer {
    const pd_disk *disk;
    char root[PD_KEEP_PATH];
    uint64_t segment_bytes;
    pd_file_writer file;
    stream **at; /* the open streams */
    size_t n, room;
    /* An order to drop records has failed, so the sync of a file may have failed: files that are on the disk are not
     * written again. */
    bool unsure;
};

int pd_wal_writer_new(pd_wal_writer **out, const pd_disk *disk, const char *root, uint64_t segment_bytes, pd_error *err)
{
    pd_wal_writer *writer = calloc(1, sizeof *writer);
    int rc;

    if (writer == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for the WALs of jobs");
    writer->disk = disk;
    writer->segment_bytes = segment_bytes;
    memcpy(writer->root, root, strlen(root) + 1);
    if ((rc = pd_file_writer_init(&writer->file, disk, err)) == PD_OK)
        *out = writer;
    else
        free(writer);
    return rc;
}

static void free_stream(stream *s)
{
    close_stream(s);
    free(s);
}

static bool has_ended(const stream *s)
{
    char path[PD_KEEP_PATH];
    int file;

    pd_keep_join(path, s->job_dir, PD_KEEP_ENDED);
    if (s->disk->open(s->disk->arg, path, &file) != 0) return false;
    s->disk->close(s->disk->arg, file);
    return true;
}

/* Closes the streams of jobs that have ended, and removes their files. */
static void sweep(pd_wal_writer *writer)
{
    char job_dir[PD_KEEP_PATH];
    pd_wal_stream kind;
    size_t n = 0;

    for (size_t i = 0; i < writer->n; i++) {
        if (!has_ended(writer->at[i])) {
            writer->at[n++] = writer->at[i];
            continue;
        }
        memcpy(job_dir, writer->at[i]->job_dir, sizeof job_dir);
        kind = writer->at[i]->kind;
        free_stream(writer->at[i]);
        (void)pd_wal_remove(writer->disk, job_dir, kind, NULL);
    }
    writer->n = n;
}

static bool is_of(const stream *s, const pd_wal_record *record)
{
    return s->kind == record->stream && s->segment.creator == record->creator &&
           strcmp(s->segment.job, record->job) == 0;
}

static int add_stream(pd_wal_writer *writer, const pd_wal_record *record, stream **out, pd_error *err)
{
    stream *s = calloc(1, sizeof *s);
    void *at = writer->at;
    int rc = s != NULL ? pd_grow(&at, &writer->room, writer->n + 1, sizeof(stream *)) : PD_NO_MEMORY;

    writer->at = at;
    if (rc != PD_OK) {
        free(s);
        return pd_fail(err, rc, "out of memory for the WAL of a job");
    }
    rc = open_stream(s, writer->disk, writer->root, writer->segment_bytes, &writer->file, record, err);
    for (size_t i = 0; writer->unsure && i < s->n_files; i++) s->files[i].kind = PD_SEGMENT_UP_TO;
    if (rc == PD_OK)
        writer->at[writer->n++] = *out = s;
    else
        free(s);
    return rc;
}

static int find_stream(pd_wal_writer *writer, const pd_wal_record *record, stream **out, pd_error *err)
{
    for (size_t i = 0; i < writer->n; i++) {
        if (!is_of(writer->at[i], record)) continue;
        *out = writer->at[i];
        return PD_OK;
    }
    sweep(writer);
    return add_stream(writer, record, out, err);
}

/* Closes both streams of a job. */
static void close_streams(pd_wal_writer *writer, const pd_wal_record *order)
{
    size_t n = 0;

    for (size_t i = 0; i < writer->n; i++) {
        const pd_wal_segment *segment = &writer->at[i]->segment;
        if (segment->creator == order->creator && strcmp(segment->job, order->job) == 0)
            free_stream(writer->at[i]);
        else
            writer->at[n++] = writer->at[i];
    }
    writer->n = n;
}

/* Drops records of both streams of a job, or sets them aside: pd_wal_act. */
static int drop_streams(pd_wal_writer *writer, const pd_wal_record *order, pd_error *err)
{
    char job_dir[PD_KEEP_PATH], name[PD_KEEP_NAME];
    pd_wal_source from = { .disk = writer->disk, .job_dir = job_dir, .creator = order->creator };
    bool was_there;
    int rc;

    close_streams(writer, order);
    pd_keep_job_name(name, order->job, order->creator);
    pd_keep_join(job_dir, writer->root, name);
    if (order->act == PD_WAL_SET_ASIDE) return pd_wal_set_aside(writer->disk, job_dir, &was_there, err);
    from.stream = PD_WAL_STEPS;
    from.base = order->base;
    if ((rc = pd_wal_truncate(&from, order->step, err)) != PD_OK) return rc;
    from.stream = PD_WAL_DECISIONS;
    return pd_wal_truncate(&from, 0, err);
}

/* Writes those of n records that belong to a stream, and waits for the disk once. */
static void write_job(stream *s, pd_wal_record *const *records, size_t n)
{
    pd_error why = { 0 };
    size_t appended = 0;

    for (size_t i = 0; i < n; i++) {
        if (!is_of(s, records[i]) || records[i]->act != PD_WAL_APPEND) continue;
        records[i]->error = (pd_error){ 0 };
        if (append(s, records[i], &records[i]->error) == PD_OK)
            appended++;
        else if (why.code == PD_OK)
            why = records[i]->error;
    }
    if (appended > 0) (void)sync_stream(s, &why);
    for (size_t i = 0; i < n; i++)
        if (is_of(s, records[i]) && records[i]->act == PD_WAL_APPEND && records[i]->error.code == PD_OK &&
            records[i]->step > s->durable)
            records[i]->error = why;
}

static bool are_of_one_stream(const pd_wal_record *a, const pd_wal_record *b)
{
    return a->act == PD_WAL_APPEND && b->act == PD_WAL_APPEND && a->stream == b->stream && a->creator == b->creator &&
           strcmp(a->job, b->job) == 0;
}

static bool is_later(pd_wal_record *const *records, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (are_of_one_stream(records[k], records[i])) return true;
    return false;
}

void pd_wal_write(pd_wal_writer *writer, pd_wal_record *const *records, size_t n)
{
    pd_error why;
    stream *s = NULL;

    for (size_t i = 0; i < n; i++) {
        if (records[i]->act != PD_WAL_APPEND) continue;
        if (is_later(records, i)) continue; /* written already, with the first record of its stream */
        if (find_stream(writer, records[i], &s, &why) == PD_OK)
            write_job(s, records, n);
        else
            for (size_t k = i; k < n; k++)
                if (are_of_one_stream(records[k], records[i])) records[k]->error = why;
    }
    for (size_t i = 0; i < n; i++) {
        if (records[i]->act == PD_WAL_APPEND) continue;
        records[i]->error = (pd_error){ 0 };
        if (drop_streams(writer, records[i], &records[i]->error) != PD_OK) writer->unsure = true;
    }
}

void pd_wal_writer_free(pd_wal_writer *writer)
{
    if (writer == NULL) return;
    for (size_t i = 0; i < writer->n; i++) free_stream(writer->at[i]);
    pd_file_writer_free(&writer->file);
    free(writer->at);
    free(writer);
}
