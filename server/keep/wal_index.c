/* wal_index.c - finds the records of a WAL stream by their headers. */
#include "wal_index.h"

#include "grow.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes that look_for_claims reads at a time. */
enum { SLICE = 1 << 20 };

/* A segment whose headers are being read. */
typedef struct visit {
    pd_wal_index *index;
    size_t file; /* index of its file in index->files */
    int handle;  /* the open file */
    pd_wal_segment segment;
    uint64_t offset; /* end of the last record that was read */
} visit;

const char *pd_wal_stream_dir(pd_wal_stream stream)
{
    return stream == PD_WAL_STEPS ? PD_KEEP_STEPS : PD_KEEP_DECISIONS;
}

static void add_file(void *what, const char *name)
{
    pd_wal_index *index = what;
    pd_wal_file file = { 0 };
    void *at = index->files;

    file.kind = pd_keep_segment_parse(name, &file.number, &file.up_to);
    if (file.kind == PD_SEGMENT_NONE || strlen(name) >= sizeof file.name) return;
    snprintf(file.name, sizeof file.name, "%s", name);
    if (pd_grow(&at, &index->files_room, index->n_files + 1, sizeof file) != PD_OK) {
        index->no_memory = true;
        return;
    }
    index->files = at;
    index->files[index->n_files++] = file;
}

static int compare_files(const void *left, const void *right)
{
    const pd_wal_file *a = left, *b = right;

    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return strcmp(a->name, b->name);
}

void pd_wal_index_path(char out[PD_KEEP_PATH], const pd_wal_index *index, size_t file)
{
    pd_keep_join(out, index->dir, index->files[file].name);
}

/* ---- records ---- */

size_t pd_wal_index_find(const pd_wal_index *index, uint64_t step)
{
    for (size_t i = index->n_places; i-- > 0;)
        if (index->places[i].header.step == step) return i;
    return PD_WAL_NOWHERE;
}

/* Returns the index of the record that the record at `place` follows. The search begins with the newest record, which
 * is nearly always the right one. */
static size_t find_parent(const pd_wal_index *index, const pd_wal_place *place)
{
    for (size_t i = index->n_places; place->parent != 0 && i-- > 0;)
        if (index->places[i].link == place->parent && index->places[i].header.step + 1 == place->header.step) return i;
    return PD_WAL_NOWHERE;
}

static int add_place(visit *v, const pd_wal_place *place)
{
    pd_wal_index *index = v->index;
    void *at = index->places;
    size_t parent = find_parent(index, place);

    if (pd_grow(&at, &index->places_room, index->n_places + 1, sizeof *place) != PD_OK) return ENOMEM;
    index->places = at;
    index->places[index->n_places] = *place;
    if (parent != PD_WAL_NOWHERE) index->places[parent].next = index->n_places;
    index->n_places++;
    index->files[v->file].last = place->header.step;
    return 0;
}

static int read_at(const visit *v, uint64_t offset, void *at, size_t bytes)
{
    const pd_disk *disk = v->index->disk;

    return disk->read(disk->arg, v->handle, offset, at, bytes);
}

static void note_durable(pd_wal_index *index, uint64_t step)
{
    if (step > index->durable) index->durable = step;
}

/* Reads the header and the link of the record at v->offset, which must be of step `step`. Returns ENODATA if there is
 * no such record, or the error of the disk. */
static int read_place(const visit *v, uint64_t step, pd_wal_place *place)
{
    const pd_wal_file *file = &v->index->files[v->file];
    uint8_t bytes[PD_WAL_HEADER];
    pd_wal_header *h = &place->header;
    int number;

    if (v->offset + PD_DISK_BLOCK > file->bytes) return ENODATA;
    if ((number = read_at(v, v->offset, bytes, sizeof bytes)) != 0) return number;
    if (!pd_wal_header_read(h, bytes) || h->segment != v->segment.number || h->creator != v->segment.creator)
        return ENODATA;
    if (h->step != step || step > file->up_to || pd_wal_header_bytes(h) > file->bytes - v->offset) return ENODATA;
    if ((number = read_at(v, v->offset + pd_wal_header_link(h), &place->link, sizeof place->link)) != 0) return number;
    place->link = le64toh(place->link);
    return 0;
}

/* Adds the records of a segment to the index, up to the first one that does not follow the record before it. */
static int walk(visit *v)
{
    uint64_t parent = v->segment.previous, before = v->segment.link;
    int number;

    v->offset = PD_DISK_BLOCK;
    for (uint64_t step = v->segment.first;; step++) {
        pd_wal_place place = { .file = v->file, .offset = v->offset, .parent = parent, .next = PD_WAL_NOWHERE };
        if ((number = read_place(v, step, &place)) != 0) return number == ENODATA ? 0 : number;
        if (place.header.previous != before) return 0;
        if ((number = add_place(v, &place)) != 0) return number;
        note_durable(v->index, place.header.durable);
        v->offset += pd_wal_header_bytes(&place.header);
        parent = before = place.link;
    }
}

/* Looks for headers of this segment's records in all disk blocks from v->offset on, and raises index->durable to the
 * largest step that they say was durable. So durable steps are known even after a record that cannot be read. */
static int look_for_claims(const visit *v)
{
    const pd_wal_file *file = &v->index->files[v->file];
    uint64_t left = file->bytes - v->offset;
    uint8_t *slice = malloc(left < SLICE ? (size_t)left + 1 : SLICE);
    pd_wal_header header;
    int number = slice != NULL ? 0 : ENOMEM;

    for (uint64_t at = v->offset; number == 0 && at + PD_DISK_BLOCK <= file->bytes; at += SLICE) {
        size_t n = file->bytes - at < SLICE ? (size_t)(file->bytes - at) : SLICE;
        number = read_at(v, at, slice, n);
        for (size_t i = 0; number == 0 && i + PD_DISK_BLOCK <= n; i += PD_DISK_BLOCK)
            if (pd_wal_header_read(&header, slice + i) && header.segment == file->number &&
                header.creator == v->index->creator)
                note_durable(v->index, header.durable);
    }
    free(slice);
    return number;
}

/* ---- segments ---- */

/* Reads the header of a segment. *counts: the header belongs to this file and job, so its records count. */
static int read_header(visit *v, bool *counts)
{
    pd_wal_file *file = &v->index->files[v->file];
    uint8_t block[PD_DISK_BLOCK];
    pd_error why = { 0 };
    int number = file->bytes < sizeof block ? ENODATA : read_at(v, 0, block, sizeof block), rc;

    *counts = false;
    v->offset = 0;
    if (number != 0) return number == ENODATA ? 0 : number;
    rc = pd_wal_segment_read(&v->segment, block, &why);
    if (rc == PD_UNIMPLEMENTED && v->index->unreadable.code == PD_OK)
        pd_fail(&v->index->unreadable, rc, "%.300s/%s: %s", v->index->dir, file->name, why.text);
    *counts = rc == PD_OK && v->segment.number == file->number && v->segment.creator == v->index->creator;
    if (!*counts) return 0;
    memcpy(file->job, v->segment.job, sizeof file->job);
    if (file->up_to >= v->segment.first) note_durable(v->index, v->segment.durable);
    return 0;
}

static int visit_file(visit *v, bool claims)
{
    const pd_disk *disk = v->index->disk;
    pd_wal_file *file = &v->index->files[v->file];
    bool counts = false;
    int number = disk->size(disk->arg, v->handle, &file->bytes);

    if (number == 0) number = read_header(v, &counts);
    if (number == 0 && counts) number = walk(v);
    return number == 0 && claims && file->kind == PD_SEGMENT_WHOLE ? look_for_claims(v) : number;
}

/* Reads the headers in one file. Stores an error of the disk in index->unreadable: records of other files still
 * count. */
static void read_file(pd_wal_index *index, size_t i, bool claims)
{
    visit v = { .index = index, .file = i };
    char path[PD_KEEP_PATH];
    int number;

    pd_wal_index_path(path, index, i);
    if ((number = index->disk->open(index->disk->arg, path, &v.handle)) == 0) {
        number = visit_file(&v, claims);
        index->disk->close(index->disk->arg, v.handle);
    }
    if (number == ENOMEM) index->no_memory = true;
    if (number != 0 && index->unreadable.code == PD_OK) pd_disk_fail(&index->unreadable, number, "read", path);
}

/* Returns the last record of the chain that pd_wal_index_chain looks for; PD_WAL_NOWHERE: there is none. */
static size_t find_last(const pd_wal_index *index, uint64_t base, uint64_t last)
{
    size_t place = pd_wal_index_find(index, base + 1), next;

    if (last < base) return PD_WAL_NOWHERE;
    if (place == PD_WAL_NOWHERE) return pd_wal_index_find(index, base);
    if (last == base) return find_parent(index, &index->places[place]);
    while ((next = index->places[place].next) != PD_WAL_NOWHERE && index->places[next].header.step <= last)
        place = next;
    return place;
}

/* Marks the files of the chain whose last record is `at`. Returns the number before its first record; `before`: there
 * is no record. */
static uint64_t mark_chain(pd_wal_index *index, size_t at, uint64_t before)
{
    for (size_t i = 0; i < index->n_files; i++) index->files[i].used = false;
    for (; at != PD_WAL_NOWHERE; at = find_parent(index, &index->places[at])) {
        index->files[index->places[at].file].used = true;
        before = index->places[at].header.step - 1;
    }
    return before;
}

uint64_t pd_wal_index_chain(pd_wal_index *index, uint64_t base, uint64_t last)
{
    return mark_chain(index, find_last(index, base, last), base);
}

bool pd_wal_index_ended(pd_wal_index *index, uint64_t place, uint64_t *oldest, uint64_t *last)
{
    size_t end = index->n_places;

    for (size_t i = 0; i < index->n_places; i++)
        if (index->places[i].header.step >= place) return false;
    if (end == 0) return false;
    *last = index->places[end - 1].header.step;
    *oldest = mark_chain(index, end - 1, *last);
    return true;
}

uint64_t pd_wal_index_base(const pd_wal_index *index)
{
    return index->n_places > 0 ? index->places[index->n_places - 1].header.base : 0;
}

int pd_wal_index_read(pd_wal_index *index, const pd_disk *disk, const char *job_dir, pd_wal_stream stream,
                      uint64_t creator, bool claims, pd_error *err)
{
    int number, rc = PD_OK;

    *index = (pd_wal_index){ .disk = disk, .creator = creator };
    pd_keep_join(index->dir, job_dir, pd_wal_stream_dir(stream));
    number = disk->list(disk->arg, index->dir, add_file, index);
    if (number != 0 && number != ENOENT) rc = pd_disk_fail(err, number, "list", index->dir);
    if (index->n_files > 0) qsort(index->files, index->n_files, sizeof *index->files, compare_files);
    for (size_t i = 0; rc == PD_OK && i < index->n_files && !index->no_memory; i++) read_file(index, i, claims);
    if (rc == PD_OK && index->no_memory) rc = pd_fail(err, PD_NO_MEMORY, "out of memory for the WAL of a job");
    if (rc != PD_OK) pd_wal_index_free(index);
    return rc;
}

void pd_wal_index_free(pd_wal_index *index)
{
    free(index->files);
    free(index->places);
    *index = (pd_wal_index){ 0 };
}
