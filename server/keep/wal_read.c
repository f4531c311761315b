/* wal_read.c - reads the entries of a log that follow a checkpoint, and trusts no byte of them. */
#include "wal_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cursor.h"
#include "hash.h"
#include "wal_index.h"

/* Bytes that are read and hashed at a time: they are in the processor's cache when they are hashed. */
enum { SLICE = 1 << 20 };

/* A log that is being read. */
typedef struct reading {
    pd_wal_index index;
    size_t file; /* index of the file that is open; PD_WAL_NOWHERE: none */
    int handle;
} reading;

/* ---- files ---- */

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

/* Fills *err with PD_DATA_LOSS, and says where the entry lies that is damaged. */
static int damaged(const reading *r, const pd_wal_place *spot, pd_error *err, const char *what)
{
    return pd_fail(err, PD_DATA_LOSS, "%.300s/%s: the entry of step %" PRIu64 ", at byte %" PRIu64 ": %s", r->index.dir,
                   r->index.files[spot->file].name, spot->header.step, spot->offset, what);
}

/* ---- one entry ---- */

/* Reads all bytes of an entry up to its link, and compares their hash with it. */
static int read_bytes(reading *r, const pd_wal_place *spot, uint8_t *to, XXH3_state_t *hash, pd_error *err)
{
    uint64_t bytes = pd_wal_header_link(&spot->header);
    char path[PD_KEEP_PATH];
    int number;

    XXH3_64bits_reset(hash);
    for (uint64_t at = 0; at < bytes; at += SLICE) {
        size_t n = bytes - at < SLICE ? (size_t)(bytes - at) : SLICE;
        pd_wal_index_path(path, &r->index, spot->file);
        number = r->index.disk->read(r->index.disk->arg, r->handle, spot->offset + at, to + at, n);
        if (number != 0) return pd_disk_fail(err, number, "read", path);
        XXH3_64bits_update(hash, to + at, n);
    }
    if (XXH3_64bits_digest(hash) == spot->link) return PD_OK;
    return damaged(r, spot, err, "its XXH3 differs from the one that is written behind it");
}

/* Finds the aggregates in the bytes of an entry. */
static int find_parts(const reading *r, const pd_wal_place *spot, pd_wal_record *record, pd_error *err)
{
    uint8_t *at = record->memory;
    uint64_t offset = pd_wal_header_data(&spot->header), end = pd_wal_header_link(&spot->header);
    pd_cursor table = { .at = at + PD_WAL_HEADER, .left = 8 * (size_t)spot->header.n_parts };

    for (uint32_t i = 0; i < spot->header.n_parts; i++) {
        uint64_t elements = pd_cursor_u64(&table);
        if (offset > end || elements > (end - offset) / sizeof(float))
            return damaged(r, spot, err, "an aggregate is longer than it");
        if (elements > 0) record->parts[i].at = (const float *)(const void *)(at + offset);
        record->parts[i].elements = (int64_t)elements;
        offset += pd_wal_part_bytes(elements);
    }
    return offset == end ? PD_OK : damaged(r, spot, err, "its aggregates are shorter than it says");
}

static int fill(reading *r, const pd_wal_place *spot, pd_wal_record *record, XXH3_state_t *hash, pd_error *err)
{
    const pd_wal_header *h = &spot->header;
    uint8_t *at = record->memory;
    int rc = read_bytes(r, spot, at, hash, err);

    if (rc != PD_OK) return rc;
    memcpy(record->head, at + PD_WAL_HEADER + 8 * (size_t)h->n_parts, (size_t)h->head_bytes);
    record->head_bytes = (size_t)h->head_bytes;
    record->n_parts = h->n_parts;
    record->creator = h->creator;
    record->base = h->base;
    record->step = h->step;
    record->bytes = pd_wal_header_bytes(h);
    return find_parts(r, spot, record, err);
}

static int read_entry(reading *r, const pd_wal_place *spot, pd_wal_record **out, pd_error *err)
{
    const pd_wal_header *h = &spot->header;
    pd_wal_record *record = calloc(1, sizeof *record);
    XXH3_state_t *hash = XXH3_createState();
    int rc = PD_NO_MEMORY;

    if (record != NULL) {
        record->job = strdup(r->index.files[spot->file].job);
        record->memory = aligned_alloc(PD_DISK_BLOCK, (size_t)pd_wal_header_bytes(h));
        record->head = malloc((size_t)h->head_bytes + 1);
        record->parts = calloc((size_t)h->n_parts + 1, sizeof *record->parts);
    }
    if (record == NULL || hash == NULL || record->job == NULL || record->memory == NULL || record->head == NULL ||
        record->parts == NULL)
        pd_fail(err, rc, "the log of a job: out of memory");
    else if ((rc = open_file(r, spot->file, err)) == PD_OK)
        rc = fill(r, spot, record, hash, err);
    if (hash != NULL) XXH3_freeState(hash);
    if (rc == PD_OK)
        *out = record;
    else
        pd_wal_record_free(record);
    return rc;
}

/* ---- all entries ---- */

/* Tells what is lost if the log says that later steps than the last that was read were on the disk, or if the disk
 * cannot read it. `why` says why the next entry could not be read; code PD_OK: there is none. */
static void judge(const reading *r, pd_wal_about *about, const pd_error *why)
{
    const pd_wal_index *index = &r->index;
    const pd_error *of_disk = index->unreadable.code != PD_OK ? &index->unreadable : why;
    const char *reason = why->code != PD_OK ? why->text : "no entry follows";

    if (of_disk->code != PD_OK && of_disk->code != PD_DATA_LOSS)
        pd_fail(&about->damage, PD_DATA_LOSS, "steps after %" PRIu64 " may be lost: %.400s", about->last,
                of_disk->text);
    else if (index->durable > about->last)
        pd_fail(&about->damage, PD_DATA_LOSS,
                "%.200s: steps %" PRIu64 " to %" PRIu64 " were durable, and cannot be read from it: %.250s", index->dir,
                about->last + 1, index->durable, reason);
}

/* Reads entries from the one at `spot` on. Sets *why if one cannot be read. */
static int read_all(reading *r, size_t spot, int (*each)(void *arg, const pd_wal_record *record, pd_error *err),
                    void *arg, pd_wal_about *about, pd_error *why, pd_error *err)
{
    pd_wal_record *record;
    int rc = PD_OK;

    for (; spot != PD_WAL_NOWHERE; spot = r->index.spots[spot].next) {
        rc = read_entry(r, &r->index.spots[spot], &record, why);
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

/* Opens a log: finds its entries. After an error there is nothing to close. */
static int begin(reading *r, const pd_disk *disk, const char *job_dir, const char *name, uint64_t creator,
                 pd_wal_about *about, pd_error *err)
{
    int rc;

    *r = (reading){ .file = PD_WAL_NOWHERE };
    *about = (pd_wal_about){ 0 };
    if ((rc = pd_wal_index_read(&r->index, disk, job_dir, name, creator, true, err)) != PD_OK) return rc;
    about->files = r->index.n_files;
    for (size_t i = 0; i < r->index.n_files; i++) about->file_bytes += r->index.files[i].bytes;
    if (r->index.unreadable.code != PD_UNIMPLEMENTED) return PD_OK;
    rc = pd_fail(err, PD_UNIMPLEMENTED, "%s", r->index.unreadable.text);
    pd_wal_index_free(&r->index);
    return rc;
}

int pd_wal_survey(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t step, pd_wal_about *about,
                  pd_error *err)
{
    const pd_error nothing = { 0 };
    const pd_wal_place *spot;
    reading r;
    int rc = begin(&r, disk, job_dir, PD_KEEP_STEPS, creator, about, err);

    if (rc != PD_OK) return rc;
    about->last = step;
    for (size_t i = pd_wal_index_find(&r.index, step + 1); i != PD_WAL_NOWHERE; i = spot->next) {
        spot = &r.index.spots[i];
        about->entries++;
        about->bytes += pd_wal_header_bytes(&spot->header);
        about->last = spot->header.step;
    }
    judge(&r, about, &nothing);
    pd_wal_index_free(&r.index);
    return PD_OK;
}

/* Reads the entries after that of a step, and closes the log. */
static int read_after(reading *r, uint64_t step, int (*each)(void *arg, const pd_wal_record *record, pd_error *err),
                      void *arg, pd_wal_about *about, pd_error *err)
{
    pd_error why = { 0 };
    int rc;

    about->last = step;
    rc = read_all(r, pd_wal_index_find(&r->index, step + 1), each, arg, about, &why, err);
    if (rc == PD_OK) judge(r, about, &why);
    close_file(r);
    pd_wal_index_free(&r->index);
    return rc;
}

int pd_wal_read(const pd_disk *disk, const char *job_dir, uint64_t creator, uint64_t step,
                int (*each)(void *arg, const pd_wal_record *record, pd_error *err), void *arg, pd_wal_about *about,
                pd_error *err)
{
    reading r;
    int rc = begin(&r, disk, job_dir, PD_KEEP_STEPS, creator, about, err);

    return rc == PD_OK ? read_after(&r, step, each, arg, about, err) : rc;
}

int pd_control_read(const pd_disk *disk, const char *job_dir, uint64_t creator,
                    int (*each)(void *arg, const pd_wal_record *record, pd_error *err), void *arg, pd_wal_about *about,
                    pd_error *err)
{
    reading r;
    int rc = begin(&r, disk, job_dir, PD_KEEP_DECISIONS, creator, about, err);

    return rc == PD_OK ? read_after(&r, pd_wal_index_base(&r.index), each, arg, about, err) : rc;
}
