/* wal_read.c - reads and checks the records of a WAL stream, truncates the stream, sets the WAL aside, and removes
 * it. */
#include "cursor.h"
#include "hash.h"
#include "state_dir.h"
#include "wal_files.h"
#include "wal_index.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that are read and hashed at a time, so few that they are still in the processor's cache when they are
 * hashed. */
enum { SLICE = 1 << 20 };
/* pd_wal_read_some reads no further record once it has read so many bytes. */
enum { AT_ONCE = 64 << 20 };

/* Returns the base of a stream: its records count from number base + 1 on. */
static uint64_t base_of(const pd_wal_source *from, const pd_wal_index *index)
{
    return from->stream == PD_WAL_DECISIONS ? pd_wal_index_base(index) : from->base;
}

/* A stream that is being read. */
typedef struct reading {
    pd_wal_index index;
    pd_wal_stream stream;
    size_t file; /* index in index.files of the file that is open; PD_WAL_NOWHERE: no file is open */
    int handle;  /* the open file */
} reading;

static void close_file(reading *r)
{
    if (r->file != PD_WAL_NOWHERE) r->index.disk->close(r->index.disk->arg, r->handle);
    r->file = PD_WAL_NOWHERE;
}

static int open_file(reading *r, size_t file, pd_error *err)
{
    char path[PD_KEEP_PATH];
    int number;

    if (r->file == file) return PD_OK;
    close_file(r);
    pd_wal_index_path(path, &r->index, file);
    number = r->index.disk->open(r->index.disk->arg, path, &r->handle);
    if (number == 0) r->file = file;
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "open", path);
}

/* Fills *err with PD_DATA_LOSS, the place of the damaged record, and `what`: what is wrong with it. */
static int damaged(const reading *r, const pd_wal_place *place, pd_error *err, const char *what)
{
    return pd_fail(err, PD_DATA_LOSS, "%.300s/%s: the record of step %" PRIu64 ", at byte %" PRIu64 ": %s",
                   r->index.dir, r->index.files[place->file].name, place->header.step, place->offset, what);
}

/* Reads all bytes of a record before its link, and compares their hash with the link. */
static int read_bytes(reading *r, const pd_wal_place *place, uint8_t *to, XXH3_state_t *hash, pd_error *err)
{
    uint64_t bytes = pd_wal_header_link(&place->header);
    char path[PD_KEEP_PATH];
    int number;

    XXH3_64bits_reset(hash);
    for (uint64_t at = 0; at < bytes; at += SLICE) {
        size_t n = bytes - at < SLICE ? (size_t)(bytes - at) : SLICE;
        pd_wal_index_path(path, &r->index, place->file);
        number = r->index.disk->read(r->index.disk->arg, r->handle, place->offset + at, to + at, n);
        if (number != 0) return pd_disk_fail(err, number, "read", path);
        XXH3_64bits_update(hash, to + at, n);
    }
    if (XXH3_64bits_digest(hash) == place->link) return PD_OK;
    return damaged(r, place, err, "its XXH3 differs from the one that is written behind it");
}

/* Lets record->parts point to the aggregates in the bytes of the record. */
static int find_parts(const reading *r, const pd_wal_place *place, pd_wal_record *record, pd_error *err)
{
    uint8_t *at = record->memory;
    uint64_t offset = pd_wal_header_data(&place->header), end = pd_wal_header_link(&place->header);
    pd_cursor table = { .at = at + PD_WAL_HEADER, .left = 8 * (size_t)place->header.n_parts };

    for (uint32_t i = 0; i < place->header.n_parts; i++) {
        uint64_t elements = pd_cursor_u64(&table);
        if (offset > end || elements > (end - offset) / sizeof(float))
            return damaged(r, place, err, "an aggregate is longer than it");
        if (elements > 0) record->parts[i].at = (const float *)(const void *)(at + offset);
        record->parts[i].elements = (int64_t)elements;
        offset += pd_wal_part_bytes(elements);
    }
    return offset == end ? PD_OK : damaged(r, place, err, "its aggregates are shorter than it says");
}

static int fill(reading *r, const pd_wal_place *place, pd_wal_record *record, XXH3_state_t *hash, pd_error *err)
{
    const pd_wal_header *h = &place->header;
    uint8_t *at = record->memory;
    int rc = read_bytes(r, place, at, hash, err);

    if (rc != PD_OK) return rc;
    memcpy(record->head, at + PD_WAL_HEADER + 8 * (size_t)h->n_parts, (size_t)h->head_bytes);
    record->head_bytes = (size_t)h->head_bytes;
    record->n_parts = h->n_parts;
    record->stream = r->stream;
    record->creator = h->creator;
    record->base = h->base;
    record->step = h->step;
    record->bytes = pd_wal_header_bytes(h);
    return find_parts(r, place, record, err);
}

static int read_entry(reading *r, const pd_wal_place *place, pd_wal_record **out, pd_error *err)
{
    const pd_wal_header *h = &place->header;
    pd_wal_record *record = calloc(1, sizeof *record);
    XXH3_state_t *hash = XXH3_createState();
    int rc = PD_NO_MEMORY;

    if (record != NULL) {
        record->job = strdup(r->index.files[place->file].job);
        record->memory = aligned_alloc(PD_DISK_BLOCK, (size_t)pd_wal_header_bytes(h));
        record->head = malloc((size_t)h->head_bytes + 1);
        record->parts = calloc((size_t)h->n_parts + 1, sizeof *record->parts);
    }
    if (record == NULL || hash == NULL || record->job == NULL || record->memory == NULL || record->head == NULL ||
        record->parts == NULL)
        pd_fail(err, rc, "the WAL of a job: out of memory");
    else if ((rc = open_file(r, place->file, err)) == PD_OK)
        rc = fill(r, place, record, hash, err);
    if (hash != NULL) XXH3_freeState(hash);
    if (rc == PD_OK)
        *out = record;
    else
        pd_wal_record_free(record);
    return rc;
}

/* Sets about->damage if the disk could not read the stream, or if a header says that steps after the last record that
 * was read were durable. `why` says why the next record could not be read; code PD_OK: there is no next record. */
static void judge(const reading *r, pd_wal_about *about, const pd_error *why)
{
    const pd_wal_index *index = &r->index;
    const pd_error *of_disk = index->unreadable.code != PD_OK ? &index->unreadable : why;
    const char *reason = why->code != PD_OK ? why->text : "no record follows";

    if (of_disk->code != PD_OK && of_disk->code != PD_DATA_LOSS)
        pd_fail(&about->damage, PD_DATA_LOSS, "steps after %" PRIu64 " may be lost: %.400s", about->last,
                of_disk->text);
    else if (index->durable > about->last)
        pd_fail(&about->damage, PD_DATA_LOSS,
                "%.200s: steps %" PRIu64 " to %" PRIu64 " were durable, and cannot be read from it: %.250s", index->dir,
                about->last + 1, index->durable, reason);
}

/* Reads the record with the index `place` and those that follow it, and calls `each` for each. If a record cannot be
 * read, stops, sets *why, and returns PD_OK. */
static int read_all(reading *r, size_t place, int (*each)(void *arg, const pd_wal_record *record, pd_error *err),
                    void *arg, pd_wal_about *about, pd_error *why, pd_error *err)
{
    pd_wal_record *record;
    int rc = PD_OK;

    for (; place != PD_WAL_NOWHERE; place = r->index.places[place].next) {
        rc = read_entry(r, &r->index.places[place], &record, why);
        if (rc == PD_NO_MEMORY) return pd_fail(err, rc, "%s", why->text);
        if (rc != PD_OK) return PD_OK;
        rc = each != NULL ? each(arg, record, err) : PD_OK;
        if (rc == PD_OK) {
            about->entries++;
            about->bytes += record->bytes;
            about->last = record->step;
        }
        pd_wal_record_free(record);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}

/* Opens a stream: finds its records, and sets about->last to its base. After an error there is nothing to close. */
static int begin(reading *r, const pd_wal_source *from, pd_wal_about *about, pd_error *err)
{
    int rc;

    *r = (reading){ .stream = from->stream, .file = PD_WAL_NOWHERE };
    *about = (pd_wal_about){ 0 };
    rc = pd_wal_index_read(&r->index, from->disk, from->job_dir, from->stream, from->creator, true, err);
    if (rc != PD_OK) return rc;
    about->files = r->index.n_files;
    about->last = base_of(from, &r->index);
    for (size_t i = 0; i < r->index.n_files; i++) about->file_bytes += r->index.files[i].bytes;
    if (r->index.unreadable.code != PD_UNIMPLEMENTED) return PD_OK;
    rc = pd_fail(err, PD_UNIMPLEMENTED, "%s", r->index.unreadable.text);
    pd_wal_index_free(&r->index);
    return rc;
}

int pd_wal_survey(const pd_wal_source *from, pd_wal_about *about, pd_error *err)
{
    const pd_error nothing = { 0 };
    const pd_wal_place *place;
    reading r;
    int rc = begin(&r, from, about, err);

    if (rc != PD_OK) return rc;
    for (size_t i = pd_wal_index_find(&r.index, about->last + 1); i != PD_WAL_NOWHERE; i = place->next) {
        place = &r.index.places[i];
        about->entries++;
        about->bytes += pd_wal_header_bytes(&place->header);
        about->last = place->header.step;
    }
    judge(&r, about, &nothing);
    pd_wal_index_free(&r.index);
    return PD_OK;
}

int pd_wal_read(const pd_wal_source *from, pd_wal_each *each, void *arg, pd_wal_about *about, pd_error *err)
{
    pd_error why = { 0 };
    reading r;
    int rc = begin(&r, from, about, err);

    if (rc != PD_OK) return rc;
    rc = read_all(&r, pd_wal_index_find(&r.index, about->last + 1), each, arg, about, &why, err);
    if (rc == PD_OK) judge(&r, about, &why);
    close_file(&r);
    pd_wal_index_free(&r.index);
    return rc;
}

uint64_t pd_wal_oldest(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t place)
{
    pd_wal_index index;
    uint64_t oldest;

    if (pd_wal_index_read(&index, disk, job_dir, PD_WAL_STEPS, creator, false, NULL) != PD_OK) return place;
    oldest = pd_wal_index_chain(&index, place, place);
    pd_wal_index_free(&index);
    return oldest;
}

uint64_t pd_wal_ended(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t place, uint64_t *oldest)
{
    pd_wal_index index;
    uint64_t last;
    bool found;

    if (pd_wal_index_read(&index, disk, job_dir, PD_WAL_STEPS, creator, false, NULL) != PD_OK) return 0;
    found = pd_wal_index_ended(&index, place, oldest, &last);
    pd_wal_index_free(&index);
    return found ? last : 0;
}

int pd_wal_read_some(const pd_wal_source *from, uint64_t until, pd_wal_record **list, pd_error *err)
{
    pd_wal_about about;
    reading r;
    uint64_t bytes = 0;
    size_t at;
    int rc = begin(&r, from, &about, err);

    *list = NULL;
    if (rc != PD_OK) return rc;
    for (at = pd_wal_index_find(&r.index, from->base + 1); rc == PD_OK && at != PD_WAL_NOWHERE && bytes < AT_ONCE;
         at = r.index.places[at].next) {
        if (r.index.places[at].header.step > until) break;
        rc = read_entry(&r, &r.index.places[at], list, err);
        if (rc != PD_OK) break;
        bytes += (*list)->bytes;
        list = &(*list)->next;
    }
    close_file(&r);
    pd_wal_index_free(&r.index);
    return rc;
}

/* Renames a file so that its records after `step` do not count. */
static int limit(const pd_wal_index *index, size_t file, uint64_t step, pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], name[PD_KEEP_NAME];
    int number;

    pd_wal_index_path(from, index, file);
    pd_keep_segment_name(name, PD_SEGMENT_UP_TO, index->files[file].number, step);
    pd_keep_join(to, index->dir, name);
    number = index->disk->rename(index->disk->arg, from, to);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "rename", from);
}

/* Waits until the disk has the data of a file: a daemon that was killed may have left them unsynced. */
static int settle(const pd_wal_index *index, size_t file, pd_error *err)
{
    const pd_disk *disk = index->disk;
    char path[PD_KEEP_PATH];
    int handle, number;

    pd_wal_index_path(path, index, file);
    if ((number = disk->reopen(disk->arg, path, 0, &handle)) != 0) return pd_disk_fail(err, number, "open", path);
    number = disk->sync_data(disk->arg, handle);
    disk->close(disk->arg, handle);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "sync", path);
}

static int truncate_file(const pd_wal_index *index, size_t i, uint64_t step, pd_error *err)
{
    const pd_wal_file *file = &index->files[i];
    int rc;

    if (!file->used) return file->up_to > 0 ? limit(index, i, 0, err) : PD_OK;
    rc = settle(index, i, err);
    return rc == PD_OK && file->last > step ? limit(index, i, step, err) : rc;
}

/* Marks the files of the records that stay: those that lead to `last`, or, if the stream of steps has ended before the
 * base, all of its last chain. */
static void choose_files(const pd_wal_source *from, pd_wal_index *index, uint64_t last)
{
    uint64_t base = base_of(from, index), oldest, end;

    if (from->stream == PD_WAL_STEPS && last > 0 && pd_wal_index_ended(index, base, &oldest, &end)) return;
    (void)pd_wal_index_chain(index, base, last);
}

int pd_wal_truncate(const pd_wal_source *from, uint64_t last, pd_error *err)
{
    pd_wal_index index;
    int rc = pd_wal_index_read(&index, from->disk, from->job_dir, from->stream, from->creator, false, err);

    if (rc != PD_OK) return rc;
    choose_files(from, &index, last);
    for (size_t i = 0; i < index.n_files && rc == PD_OK; i++) rc = truncate_file(&index, i, last, err);
    if (rc == PD_OK && index.n_files > 0) rc = pd_disk_sync_dir(index.disk, index.dir, err);
    pd_wal_index_free(&index);
    return rc;
}

/* Renames the directory `old` of a job to `new`, or to the first free name of new.2, new.3 ... *was_there: there was
 * such a directory. Syncs even if there was none: an earlier attempt may have failed before the sync. */
static int set_aside(const pd_disk *disk, const char *job_dir, const char *old, const char *new, bool *was_there,
                     pd_error *err)
{
    char from[PD_KEEP_PATH], to[PD_KEEP_PATH], name[PD_KEEP_NAME];
    int number = EEXIST;

    snprintf(name, sizeof name, "%s", new);
    pd_keep_join(from, job_dir, old);
    for (int i = 2; i < 1000 && (number == EEXIST || number == ENOTEMPTY); i++) {
        pd_keep_join(to, job_dir, name);
        number = disk->rename(disk->arg, from, to);
        snprintf(name, sizeof name, "%s.%d", new, i);
    }
    *was_there = number == 0;
    if (number != 0 && number != ENOENT) return pd_disk_fail(err, number, "rename", from);
    return pd_disk_sync_dir(disk, job_dir, err);
}

int pd_wal_set_aside(const pd_disk *disk, const char *job_dir, bool *was_there, pd_error *err)
{
    bool control;
    int rc = set_aside(disk, job_dir, PD_KEEP_STEPS, PD_KEEP_STEPS_ASIDE, was_there, err);

    return rc == PD_OK ? set_aside(disk, job_dir, PD_KEEP_DECISIONS, PD_KEEP_DECISIONS_ASIDE, &control, err) : rc;
}

int pd_wal_remove(const pd_disk *disk, const char *job_dir, pd_wal_stream stream, pd_error *err)
{
    char dir[PD_KEEP_PATH];

    pd_keep_join(dir, job_dir, pd_wal_stream_dir(stream));
    return pd_keep_remove_dir(disk, dir, err);
}
