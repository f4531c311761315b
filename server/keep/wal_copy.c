/* wal_copy.c - copies the records of a WAL stream from one directory of a job to another, while the stream is
 * written. */
#include "copy.h"

#include "grow.h"
#include "wal_files.h"
#include "wal_index.h"

#include <assert.h>
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- names of segments ---- */

typedef struct segment_name {
    pd_segment_kind kind;
    uint64_t number, up_to;
    char name[64];
} segment_name;

/* The segments in a directory, in the order in which they were written. */
typedef struct segment_names {
    segment_name *at;
    size_t n, room;
    bool no_memory;
} segment_names;

static void add_name(void *what, const char *name)
{
    segment_names *names = what;
    segment_name segment = { 0 };
    void *at = names->at;

    segment.kind = pd_keep_segment_parse(name, &segment.number, &segment.up_to);
    if (segment.kind == PD_SEGMENT_NONE || strlen(name) >= sizeof segment.name) return;
    snprintf(segment.name, sizeof segment.name, "%s", name);
    names->no_memory |= pd_grow(&at, &names->room, names->n + 1, sizeof segment) != PD_OK;
    if (names->no_memory) return;
    names->at = at;
    names->at[names->n++] = segment;
}

static int compare_names(const void *left, const void *right)
{
    const segment_name *a = left, *b = right;

    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return strcmp(a->name, b->name);
}

/* Lists the segments in a directory. If it does not exist, the list is empty. */
static int read_names(segment_names *names, const pd_disk *disk, const char *dir, pd_error *err)
{
    int number = disk->list(disk->arg, dir, add_name, names);

    if (number != 0 && number != ENOENT) return pd_disk_fail(err, number, "list", dir);
    if (names->no_memory) return pd_fail(err, PD_NO_MEMORY, "the segments of a WAL: out of memory");
    if (names->n > 0) qsort(names->at, names->n, sizeof *names->at, compare_names);
    return PD_OK;
}

static bool has_name(const segment_names *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++)
        if (strcmp(names->at[i].name, name) == 0) return true;
    return false;
}

/* ---- one segment ---- */

/* What is done with a segment. */
typedef enum treatment {
    PASS_OVER, /* the target has it, and how far the stream was copied is known */
    WALK,      /* the target has it: only its headers are read, to know how far the stream was copied */
    COPY       /* the records that the target lacks are copied */
} treatment;

/* A segment that is being copied, and its files. */
typedef struct job {
    pd_copier *copier;
    const pd_wal_copy *what;
    pd_wal_copied *copied;
    segment_names source, target;
    char from_dir[PD_KEEP_PATH], to_dir[PD_KEEP_PATH]; /* paths of the stream's directories */
    const segment_name *name;                          /* the segment */
    uint8_t block[PD_DISK_BLOCK];                      /* its header */
    pd_wal_segment segment;                            /* the same, in memory */
    uint64_t bytes;                                    /* size of the source's file */
    int from, to;                                      /* the open files */
    bool writes;                                       /* `to` is open */
    bool created;                                      /* the directory may have names that are not synced */
    bool at_end;                                       /* `to` was created by this call, so it is written at its end */
    bool held;                                         /* the next record may not be copied yet */
    bool continues;                                    /* this process has copied a part of the segment before */
    char path[PD_KEEP_PATH];
} job;

static int read_at(const job *j, uint64_t offset, void *at, size_t bytes)
{
    const pd_disk *disk = j->copier->from;

    return disk->read(disk->arg, j->from, offset, at, bytes);
}

static bool is_gone(int number)
{
    return number == ENOENT || number == ENODATA;
}

/* Opens the source's file, and reads its header. *fits: it is a segment of this stream whose records may be copied. */
static int open_source(job *j, bool *fits, pd_error *err)
{
    const pd_disk *disk = j->copier->from;
    char path[PD_KEEP_PATH];
    int number;

    *fits = false;
    pd_keep_join(path, j->from_dir, j->name->name);
    number = disk->open(disk->arg, path, &j->from);
    if (number == ENOENT) return PD_OK; /* it was renamed */
    if (number != 0) return pd_disk_fail(err, number, "open", path);
    number = disk->size(disk->arg, j->from, &j->bytes);
    if (number == 0) number = read_at(j, 0, j->block, sizeof j->block);
    *fits = number == 0 && pd_wal_segment_read(&j->segment, j->block, NULL) == PD_OK &&
            j->segment.number == j->name->number && j->segment.creator == j->what->creator;
    if (*fits) return PD_OK;
    disk->close(disk->arg, j->from);
    return number == 0 || is_gone(number) ? PD_OK : pd_disk_fail(err, number, "read", path);
}

/* Compares the header of the target's file j->path with the source's. *same: it is the same, and the file has at least
 * `bytes` bytes. */
static int compare_header(const job *j, uint64_t bytes, bool *same, pd_error *err)
{
    const pd_disk *disk = j->copier->to;
    uint8_t block[PD_DISK_BLOCK];
    uint64_t size = 0;
    int file, number = disk->open(disk->arg, j->path, &file);

    *same = false;
    if (number == ENOENT) return PD_OK;
    if (number != 0) return pd_disk_fail(err, number, "open", j->path);
    number = disk->size(disk->arg, file, &size);
    if (number == 0) number = disk->read(disk->arg, file, 0, block, sizeof block);
    disk->close(disk->arg, file);
    if (number != 0 && !is_gone(number)) return pd_disk_fail(err, number, "read", j->path);
    *same = number == 0 && size >= bytes && memcmp(block, j->block, sizeof block) == 0;
    return PD_OK;
}

/* Makes the target's file anew, with the segment's header. */
static int create_target(job *j, pd_error *err)
{
    const pd_disk *disk = j->copier->to;
    int number = disk->remove(disk->arg, j->path);

    if (number != 0 && number != ENOENT) return pd_disk_fail(err, number, "remove", j->path);
    if ((number = disk->create(disk->arg, j->path, 0, &j->to)) != 0)
        return pd_disk_fail(err, number, "create the file", j->path);
    j->writes = j->created = j->at_end = true;
    number = disk->write(disk->arg, j->to, j->block, sizeof j->block);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "write", j->path);
}

/* Returns whether an error says that the file system cannot write into a file that exists. */
static bool cannot_reopen(int number)
{
    return number == EPERM || number == EACCES || number == EINVAL || number == ENOSYS || number == EOPNOTSUPP;
}

/* Opens the target's file for writing, before the first record that it lacks. *anew: it was created, so no record is
 * in it. Only a file that this process has written without an error is continued: after a failed sync nobody knows what
 * a disk has, also of the bytes that are written later. */
static int open_target(job *j, bool *anew, pd_error *err)
{
    const pd_disk *disk = j->copier->to;
    bool same = false;
    int number, rc = PD_OK;

    *anew = false;
    if (j->writes) return PD_OK;
    if (j->continues && !j->copier->whole_segments) rc = compare_header(j, j->copied->offset, &same, err);
    if (rc != PD_OK) return rc;
    if (same) {
        number = disk->reopen(disk->arg, j->path, 0, &j->to);
        j->writes = number == 0;
        if (number == 0) return PD_OK;
        if (!cannot_reopen(number)) return pd_disk_fail(err, number, "open", j->path);
        j->copier->whole_segments = true;
    }
    *anew = true;
    return create_target(j, err);
}

static int close_target(job *j, int rc, pd_error *err)
{
    const pd_disk *disk = j->copier->to;
    int number;

    if (!j->writes) return rc;
    number = rc == PD_OK ? disk->sync_file(disk->arg, j->to) : 0;
    if (number != 0) rc = pd_disk_fail(err, number, "sync", j->path);
    number = disk->close(disk->arg, j->to);
    if (rc == PD_OK && number != 0) rc = pd_disk_fail(err, number, "close", j->path);
    j->writes = j->at_end = false;
    return rc;
}

/* Begins to count the records of a segment from its first one on. */
static void begin_segment(job *j)
{
    pd_wal_copied *c = j->copied;

    snprintf(c->name, sizeof c->name, "%s", j->name->name);
    c->of = c->previous = j->segment.link;
    c->offset = PD_DISK_BLOCK;
    c->number = j->segment.first;
    if (j->segment.previous == 0 || j->segment.previous != c->link || c->last + 1 != j->segment.first) {
        c->before = c->last = j->segment.first - 1;
        c->link = j->segment.previous;
    }
}

/* Reads the source's file. *there: it has these bytes. */
static int read_source(const job *j, uint64_t offset, void *at, size_t bytes, bool *there, pd_error *err)
{
    char path[PD_KEEP_PATH];
    int number = read_at(j, offset, at, bytes);

    *there = number == 0;
    if (number == 0 || number == ENODATA) return PD_OK;
    pd_keep_join(path, j->from_dir, j->name->name);
    return pd_disk_fail(err, number, "read", path);
}

/* Finds the next record of the segment by its header. *there: there is one. */
static int find_record(const job *j, pd_wal_header *h, uint64_t *link, bool *there, pd_error *err)
{
    const pd_wal_copied *c = j->copied;
    uint8_t bytes[PD_WAL_HEADER];
    int rc;

    *there = false;
    *link = 0;
    if (c->number > j->name->up_to || c->offset + PD_DISK_BLOCK > j->bytes) return PD_OK;
    if ((rc = read_source(j, c->offset, bytes, sizeof bytes, there, err)) != PD_OK || !*there) return rc;
    *there = pd_wal_header_read(h, bytes) && h->segment == j->segment.number && h->creator == j->segment.creator &&
             h->step == c->number && h->previous == c->previous && pd_wal_header_bytes(h) <= j->bytes - c->offset;
    if (!*there) return PD_OK;
    rc = read_source(j, c->offset + pd_wal_header_link(h), link, sizeof *link, there, err);
    *link = le64toh(*link);
    return rc;
}

static int put(job *j, uint64_t offset, size_t bytes, pd_error *err)
{
    const pd_disk *disk = j->copier->to;
    int number = j->at_end ? disk->write(disk->arg, j->to, j->copier->slice, bytes)
                           : disk->write_at(disk->arg, j->to, offset, j->copier->slice, bytes);

    return number == 0 ? PD_OK : pd_disk_fail(err, number, "write", j->path);
}

/* Copies the bytes of a record. *whole: its link is right. If it is not, a later call overwrites what was written,
 * which no reader takes for a record. */
static int copy_bytes(job *j, const pd_wal_header *h, uint64_t link, bool *whole, pd_error *err)
{
    uint64_t bytes = pd_wal_header_bytes(h), hashed = pd_wal_header_link(h), offset = j->copied->offset;
    pd_copier *copier = j->copier;
    int rc = PD_OK;

    *whole = false;
    XXH3_64bits_reset(copier->hash);
    for (uint64_t at = 0; at < bytes && rc == PD_OK; at += PD_COPY_SLICE) {
        size_t n = bytes - at < PD_COPY_SLICE ? (size_t)(bytes - at) : PD_COPY_SLICE;
        uint64_t left = at < hashed ? hashed - at : 0;
        bool there;
        if ((rc = read_source(j, offset + at, copier->slice, n, &there, err)) != PD_OK || !there) return rc;
        XXH3_64bits_update(copier->hash, copier->slice, left < n ? (size_t)left : n);
        if (at + n == bytes && XXH3_64bits_digest(copier->hash) != link) return PD_OK;
        rc = put(j, offset + at, n, err);
    }
    *whole = rc == PD_OK;
    return rc;
}

static void note_record(pd_wal_copied *c, const pd_wal_header *h, uint64_t link)
{
    c->offset += pd_wal_header_bytes(h);
    c->previous = c->link = link;
    c->last = h->step;
    c->number = h->step + 1;
    c->base = h->base;
}

static bool may_copy(job *j, const pd_wal_header *h)
{
    if (h->base == j->copied->base || j->what->may_pass == NULL) return true;
    j->held = !j->what->may_pass(j->what->arg);
    return !j->held;
}

/* Copies the next record. *more: there was one. */
static int copy_record(job *j, bool *more, pd_error *err)
{
    pd_wal_header h;
    uint64_t link;
    bool anew, there;
    int rc = find_record(j, &h, &link, &there, err);

    *more = false;
    if (rc != PD_OK || !there || !may_copy(j, &h)) return rc;
    if ((rc = open_target(j, &anew, err)) != PD_OK) return rc;
    if (anew && j->copied->offset > PD_DISK_BLOCK) {
        begin_segment(j); /* from its first record on, once more */
        *more = true;
        return PD_OK;
    }
    rc = copy_bytes(j, &h, link, more, err);
    if (*more) note_record(j->copied, &h, link);
    return rc;
}

/* Reads the headers of all records of a segment. *has: the target has them. If not, counts from the first one on
 * again. */
static int walk(job *j, bool *has, pd_error *err)
{
    pd_wal_copied before = *j->copied;
    pd_wal_header h;
    uint64_t link;
    bool there;
    int rc;

    while ((rc = find_record(j, &h, &link, &there, err)) == PD_OK && there) note_record(j->copied, &h, link);
    if (rc == PD_OK) rc = compare_header(j, j->copied->offset, has, err);
    if (!*has) *j->copied = before;
    return rc;
}

static int copy_segment(job *j, treatment how, pd_error *err)
{
    bool fits, has = false, more = true;
    int rc = open_source(j, &fits, err);

    if (rc != PD_OK || !fits) return rc;
    pd_keep_join(j->path, j->to_dir, j->name->name);
    j->continues = strcmp(j->copied->name, j->name->name) == 0 && j->copied->of == j->segment.link;
    if (!j->continues) begin_segment(j);
    if (how == WALK) rc = walk(j, &has, err);
    while (!has && rc == PD_OK && more) rc = copy_record(j, &more, err);
    /* A segment with a limit and no records gets a file, too, which says that nothing of it is missing. */
    if (!has && rc == PD_OK && !j->held && j->name->kind == PD_SEGMENT_UP_TO) rc = open_target(j, &has, err);
    rc = close_target(j, rc, err);
    j->copier->from->close(j->copier->from->arg, j->from);
    return rc;
}

/* ---- a stream ---- */

/* Returns the index of the last segment that both have; -1: they have none in common. */
static ptrdiff_t last_common(const job *j)
{
    for (size_t i = j->source.n; i-- > 0;)
        if (has_name(&j->target, j->source.at[i].name)) return (ptrdiff_t)i;
    return -1;
}

/* Says what is done with segment i. A crash may have left the last segment that both have in part, and any that has a
 * limit, which it got after later ones were copied. `known`: how far the stream was copied is known. */
static treatment treat(const job *j, size_t i, ptrdiff_t common, bool known)
{
    const segment_name *name = &j->source.at[i];

    if (j->copier->whole_segments && i + 1 == j->source.n) return PASS_OVER;
    if (!has_name(&j->target, name->name) || strcmp(name->name, j->copied->name) == 0) return COPY;
    if (known) return PASS_OVER;
    if (j->copier->whole_segments) return WALK;
    return (ptrdiff_t)i == common || name->kind == PD_SEGMENT_UP_TO ? COPY : WALK;
}

static int make_dir(const job *j, pd_error *err)
{
    const pd_disk *disk = j->copier->to;
    int number = disk->make_dir(disk->arg, j->to_dir);

    if (number == EEXIST && j->copied->name[0] != '\0') return PD_OK;
    if (number != 0 && number != EEXIST) return pd_disk_fail(err, number, "make the directory", j->to_dir);
    return pd_copy_sync_dir(disk, j->what->to_dir, err);
}

/* Returns whether it is known how far the stream was copied: the target has the segment that was copied last, and all
 * before it. It lacks one if the source has got one there: steps were taken back. */
static bool is_known(const job *j)
{
    for (size_t i = 0; j->copied->name[0] != '\0' && i < j->source.n; i++) {
        if (strcmp(j->source.at[i].name, j->copied->name) == 0) return true;
        if (!has_name(&j->target, j->source.at[i].name)) return false;
    }
    return false;
}

static int copy_all(job *j, pd_error *err)
{
    bool known = is_known(j);
    ptrdiff_t common = last_common(j);
    int rc = PD_OK;

    if (!known) {
        *j->copied = (pd_wal_copied){ .base = UINT64_MAX };
        j->created = true; /* an earlier attempt may have failed before it had synced the directory */
    }
    for (size_t i = 0; i < j->source.n && rc == PD_OK && !j->held; i++) {
        treatment how = treat(j, i, common, known);
        j->name = &j->source.at[i];
        if (how != PASS_OVER) rc = copy_segment(j, how, err);
    }
    if (rc == PD_OK && j->created) rc = pd_copy_sync_dir(j->copier->to, j->to_dir, err);
    return rc;
}

static job *open_job(pd_copier *copier, const pd_wal_copy *what, pd_error *err)
{
    job *j = calloc(1, sizeof *j);

    if (j == NULL) {
        pd_fail(err, PD_NO_MEMORY, "a copy of a WAL: out of memory");
        return NULL;
    }
    j->copier = copier;
    j->what = what;
    pd_keep_join(j->from_dir, what->from_dir, pd_wal_stream_dir(what->stream));
    pd_keep_join(j->to_dir, what->to_dir, pd_wal_stream_dir(what->stream));
    return j;
}

static void free_job(job *j)
{
    free(j->source.at);
    free(j->target.at);
    free(j);
}

int pd_wal_copy_new(pd_copier *copier, const pd_wal_copy *what, pd_wal_copied *copied, pd_error *err)
{
    job *j = open_job(copier, what, err);
    int rc;

    if (j == NULL) return PD_NO_MEMORY;
    j->copied = copied;
    rc = read_names(&j->source, copier->from, j->from_dir, err);
    if (rc == PD_OK && j->source.n > 0) {
        rc = make_dir(j, err);
        if (rc == PD_OK) rc = read_names(&j->target, copier->to, j->to_dir, err);
        if (rc == PD_OK) rc = copy_all(j, err);
    }
    if (rc != PD_OK) *copied = (pd_wal_copied){ 0 };
    free_job(j);
    return rc;
}

static int remove_others(const job *j, pd_error *err)
{
    const pd_disk *disk = j->copier->to;
    char path[PD_KEEP_PATH];
    int number;

    for (size_t i = 0; i < j->target.n; i++) {
        if (has_name(&j->source, j->target.at[i].name)) continue;
        pd_keep_join(path, j->to_dir, j->target.at[i].name);
        number = disk->remove(disk->arg, path);
        if (number != 0 && number != ENOENT) return pd_disk_fail(err, number, "remove", path);
    }
    return PD_OK;
}

int pd_wal_copy_tidy(pd_copier *copier, const pd_wal_copy *what, pd_error *err)
{
    job *j = open_job(copier, what, err);
    int rc;

    if (j == NULL) return PD_NO_MEMORY;
    rc = read_names(&j->source, copier->from, j->from_dir, err);
    if (rc == PD_OK) rc = read_names(&j->target, copier->to, j->to_dir, err);
    if (rc == PD_OK && (what->may_pass == NULL || what->may_pass(what->arg))) rc = remove_others(j, err);
    free_job(j);
    return rc;
}
