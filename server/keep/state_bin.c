/* state_bin.c - writes and reads the files state.bin and notes.bin of a checkpoint. */
#include "state_bin.h"

#include "cursor.h"
#include "pages.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const char magic[8] = { 'p', 'd', 's', 't', 'a', 't', 'e', '\n' };

enum {
    VERSION = 1,
    PREFIX = 16,
    FOOTER = 24,
    INDEX_HEAD = 48,     /* bytes of the index without the job's name and the parameters */
    RECORD = 40,         /* bytes of one parameter in the index, without its name and dimensions */
    MOST_OF_NAME = 1024, /* most bytes of a name */
    MOST_OF_INDEX = 1 << 28
};

/* ---- writing ---- */

static size_t index_bytes(const pd_checkpoint_image *kept)
{
    size_t bytes = INDEX_HEAD + strlen(kept->job);

    for (uint32_t i = 0; i < kept->n_params; i++)
        bytes += RECORD + strlen(kept->params[i].name) + sizeof(uint64_t) * (size_t)kept->params[i].shape.rank;
    return bytes;
}

uint64_t pd_state_bin_bytes(const pd_checkpoint_image *kept)
{
    uint64_t bytes = PREFIX + FOOTER + index_bytes(kept) + kept->head_bytes;

    for (uint32_t i = 0; i < kept->n_params; i++) bytes += kept->params[i].state_bytes;
    return bytes;
}

/* Writes a section (the header of the image, or the state of a parameter), and adds its offset, length and hash to the
 * index. */
static int write_block(pd_file_writer *writer, const void *at, size_t bytes, pd_cursor *index, pd_error *err)
{
    uint64_t offset = writer->bytes;
    int rc;

    pd_file_writer_begin_block(writer);
    rc = pd_file_writer_put(writer, at, bytes, err);
    pd_cursor_put_u64(index, offset);
    pd_cursor_put_u64(index, bytes);
    pd_cursor_put_u64(index, pd_file_writer_end_block(writer));
    return rc;
}

static int write_param(pd_file_writer *writer, const pd_checkpoint_param *param, pd_cursor *index, pd_error *err)
{
    uint32_t n = (uint32_t)strlen(param->name);
    int rc;

    pd_cursor_put_u32(index, n);
    pd_cursor_put_u32(index, (uint32_t)param->shape.rank);
    for (int d = 0; d < param->shape.rank; d++) pd_cursor_put_u64(index, (uint64_t)param->shape.dim[d]);
    pd_cursor_put_u64(index, param->step);
    rc = write_block(writer, param->state, param->state_bytes, index, err);
    pd_cursor_put(index, param->name, n);
    return rc;
}

static int write_blocks(pd_file_writer *writer, const pd_checkpoint_image *kept, pd_cursor *index, pd_error *err)
{
    uint32_t n = (uint32_t)strlen(kept->job);
    int rc;

    pd_cursor_put_u64(index, kept->creator);
    pd_cursor_put_u64(index, kept->step);
    pd_cursor_put_u32(index, kept->n_params);
    pd_cursor_put_u32(index, n);
    rc = write_block(writer, kept->head, kept->head_bytes, index, err);
    pd_cursor_put(index, kept->job, n);
    for (uint32_t i = 0; i < kept->n_params && rc == PD_OK; i++) {
        if (kept->read_state != NULL) rc = kept->read_state(kept->read_arg, i, err);
        if (rc == PD_OK) rc = write_param(writer, &kept->params[i], index, err);
    }
    return rc;
}

static int write_prefix(pd_file_writer *writer, pd_error *err)
{
    uint8_t at[PREFIX];
    pd_cursor prefix = { .at = at, .left = sizeof at };

    pd_cursor_put(&prefix, magic, sizeof magic);
    pd_cursor_put_u32(&prefix, VERSION);
    pd_cursor_put_u32(&prefix, 0);
    return pd_file_writer_put(writer, at, sizeof at, err);
}

static int write_index(pd_file_writer *writer, const uint8_t *index, size_t bytes, pd_error *err)
{
    uint8_t at[FOOTER];
    pd_cursor footer = { .at = at, .left = sizeof at };
    int rc = pd_file_writer_put(writer, index, bytes, err);

    pd_cursor_put_u64(&footer, bytes);
    pd_cursor_put_u64(&footer, XXH3_64bits(index, bytes));
    pd_cursor_put(&footer, magic, sizeof magic);
    return rc == PD_OK ? pd_file_writer_put(writer, at, sizeof at, err) : rc;
}

int pd_state_bin_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                       pd_error *err)
{
    size_t bytes = index_bytes(kept);
    uint8_t *at = bytes <= MOST_OF_INDEX ? malloc(bytes) : NULL;
    pd_cursor index = { .at = at, .left = bytes };
    int rc;

    if (at == NULL) return pd_fail(err, PD_NO_MEMORY, "the index of a checkpoint of %zu bytes: out of memory", bytes);
    rc = pd_file_writer_open(writer, dir, pd_keep_files[PD_KEEP_STATE], pd_state_bin_bytes(kept), err);
    if (rc == PD_OK) rc = write_prefix(writer, err);
    if (rc == PD_OK) rc = write_blocks(writer, kept, &index, err);
    if (rc == PD_OK) rc = write_index(writer, at, bytes, err);
    if (rc == PD_OK) rc = pd_file_writer_close(writer, sum, err);
    free(at);
    return rc;
}

/* ---- reading ---- */

/* A state.bin that is being read. */
typedef struct pd_state_bin {
    pd_file_reader file;
    pd_checkpoint_image *kept;
    bool one_by_one; /* states are read one after the other, all into `buffer` */
    uint8_t *buffer; /* memory for one state; NULL: not one_by_one */
    size_t largest;  /* bytes of the largest section */
    uint8_t *index;
    size_t index_bytes;
    pd_cursor cursor;   /* position in the index */
    uint64_t end;       /* offset at which the next section must begin */
    uint64_t head_xxh3; /* hash of the header */
    uint64_t *xxh3;     /* hash of the state of each parameter */
    uint64_t *offset;   /* where the state of each parameter begins */
    uint32_t picked;    /* index of the parameter that pd_state_bin_pick has read last */
} reading;

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
}

static int damaged(const reading *r, pd_error *err, const char *what)
{
    return pd_file_reader_damaged(&r->file, err, what);
}

/* Copies a name of n bytes from the index to new memory. */
static int read_name(reading *r, char **out, uint32_t n, pd_error *err)
{
    const uint8_t *at = n > 0 && n <= MOST_OF_NAME ? pd_cursor_bytes(&r->cursor, n) : NULL;

    if (at == NULL || memchr(at, '\0', n) != NULL) return damaged(r, err, "its index has a name that is none");
    if ((*out = malloc(n + 1u)) == NULL) return no_memory(err);
    memcpy(*out, at, n);
    (*out)[n] = '\0';
    return PD_OK;
}

/* Reads the offset, length and hash of a section from the index, and checks that the section lies in the file. If `out`
 * is not NULL, allocates memory for the section. */
static int read_place(reading *r, uint8_t **out, size_t *bytes, uint64_t *xxh3, pd_error *err)
{
    uint64_t offset = pd_cursor_u64(&r->cursor), n = pd_cursor_u64(&r->cursor);
    uint64_t most = r->file.bytes - FOOTER - r->index_bytes;

    *xxh3 = pd_cursor_u64(&r->cursor);
    if (r->cursor.ended || offset != r->end || n > most - r->end)
        return damaged(r, err, "its index has a block that is elsewhere");
    r->end += n;
    *bytes = (size_t)n;
    if (r->largest < *bytes) r->largest = *bytes;
    return out == NULL || (*out = pd_pages_new(*bytes)) != NULL ? PD_OK : no_memory(err);
}

static int read_shape(reading *r, pd_checkpoint_param *param, uint32_t rank, pd_error *err)
{
    if (rank > PD_MAX_RANK) return damaged(r, err, "its index has a shape that is none");
    param->shape.rank = (int)rank;
    for (uint32_t d = 0; d < rank; d++) param->shape.dim[d] = (int64_t)pd_cursor_u64(&r->cursor);
    if (pd_shape_elements(&param->shape, &param->elements) == PD_OK) return PD_OK;
    return damaged(r, err, "its index has a shape that is none");
}

static int read_record(reading *r, uint32_t i, pd_error *err)
{
    pd_checkpoint_param *param = &r->kept->params[i];
    uint32_t n = pd_cursor_u32(&r->cursor), rank = pd_cursor_u32(&r->cursor);
    int rc = read_shape(r, param, rank, err);

    param->step = pd_cursor_u64(&r->cursor);
    r->offset[i] = r->end;
    if (rc == PD_OK) rc = read_place(r, r->one_by_one ? NULL : &param->state, &param->state_bytes, &r->xxh3[i], err);
    return rc == PD_OK ? read_name(r, &param->name, n, err) : rc;
}

static int read_records(reading *r, uint32_t n, pd_error *err)
{
    int rc = PD_OK;

    if (n > r->index_bytes / RECORD) return damaged(r, err, "its index tells of more parameters than it has");
    r->kept->params = calloc(n + 1u, sizeof *r->kept->params);
    r->xxh3 = calloc(n + 1u, sizeof *r->xxh3);
    r->offset = calloc(n + 1u, sizeof *r->offset);
    if (r->kept->params == NULL || r->xxh3 == NULL || r->offset == NULL) return no_memory(err);
    for (uint32_t i = 0; i < n && rc == PD_OK; i++) {
        r->kept->n_params = i + 1;
        rc = read_record(r, i, err);
    }
    if (rc == PD_OK && r->cursor.left != 0) return damaged(r, err, "its index is longer than it should be");
    return rc;
}

/* Reads the index from the end of the file. */
static int fetch_index(reading *r, pd_error *err)
{
    uint8_t at[FOOTER];
    pd_cursor footer = { .at = at, .left = sizeof at };
    uint64_t xxh3;
    int rc;

    if (r->file.bytes < PREFIX + FOOTER) return damaged(r, err, "it is too short");
    if ((rc = pd_file_reader_peek(&r->file, r->file.bytes - FOOTER, at, FOOTER, err)) != PD_OK) return rc;
    r->index_bytes = (size_t)pd_cursor_u64(&footer);
    xxh3 = pd_cursor_u64(&footer);
    if (memcmp(footer.at, magic, sizeof magic) != 0 || r->index_bytes > MOST_OF_INDEX ||
        r->index_bytes > r->file.bytes - PREFIX - FOOTER)
        return damaged(r, err, "its end is not that of such a file");
    if ((r->index = malloc(r->index_bytes + 1)) == NULL) return no_memory(err);
    rc = pd_file_reader_peek(&r->file, r->file.bytes - FOOTER - r->index_bytes, r->index, r->index_bytes, err);
    if (rc == PD_OK && XXH3_64bits(r->index, r->index_bytes) != xxh3)
        rc = damaged(r, err, "the XXH3 of its index is another");
    r->cursor = (pd_cursor){ .at = r->index, .left = r->index_bytes };
    return rc;
}

static int read_index(reading *r, pd_error *err)
{
    uint32_t n_params, n;
    int rc = fetch_index(r, err);

    if (rc != PD_OK) return rc;
    r->kept->creator = pd_cursor_u64(&r->cursor);
    r->kept->step = pd_cursor_u64(&r->cursor);
    n_params = pd_cursor_u32(&r->cursor);
    n = pd_cursor_u32(&r->cursor);
    r->end = PREFIX;
    rc = read_place(r, &r->kept->head, &r->kept->head_bytes, &r->head_xxh3, err);
    if (rc == PD_OK) rc = read_name(r, &r->kept->job, n, err);
    if (rc == PD_OK) rc = read_records(r, n_params, err);
    if (rc == PD_OK && r->end != r->file.bytes - FOOTER - r->index_bytes)
        rc = damaged(r, err, "it has bytes that belong to no block");
    return rc;
}

static int read_prefix(reading *r, pd_error *err)
{
    uint8_t at[PREFIX];
    pd_cursor prefix = { .at = at + sizeof magic, .left = sizeof at - sizeof magic };
    int rc = pd_file_reader_take(&r->file, at, sizeof at, err);
    uint32_t version = pd_cursor_u32(&prefix);

    if (rc != PD_OK) return rc;
    if (memcmp(at, magic, sizeof magic) != 0) return damaged(r, err, "its beginning is not that of such a file");
    if (version == VERSION) return PD_OK;
    return pd_fail(err, PD_UNIMPLEMENTED, "%.300s: version %" PRIu32 ": this version of paramd reads %d", r->file.path,
                   version, VERSION);
}

/* Reads the index and the header. */
static int read_head(reading *r, pd_error *err)
{
    int rc = read_index(r, err);

    if (rc == PD_OK) rc = read_prefix(r, err);
    return rc == PD_OK ? pd_file_reader_take(&r->file, r->kept->head, r->kept->head_bytes, err) : rc;
}

static int read_states(reading *r, pd_error *err)
{
    pd_checkpoint_image *kept = r->kept;
    int rc = PD_OK;

    for (uint32_t i = 0; i < kept->n_params && rc == PD_OK; i++)
        rc = pd_file_reader_take(&r->file, kept->params[i].state, kept->params[i].state_bytes, err);
    return rc == PD_OK ? pd_file_reader_skip(&r->file, err) : rc;
}

static int check_head(const reading *r, pd_error *err)
{
    if (XXH3_64bits(r->kept->head, r->kept->head_bytes) == r->head_xxh3) return PD_OK;
    return damaged(r, err, "its head is damaged");
}

static int check_state(const reading *r, uint32_t i, pd_error *err)
{
    const pd_checkpoint_param *param = &r->kept->params[i];

    if (XXH3_64bits(param->state, param->state_bytes) == r->xxh3[i]) return PD_OK;
    return pd_fail(err, PD_DATA_LOSS, "%.300s: the state of parameter %.200s is damaged", r->file.path, param->name);
}

/* Finds the first damaged section by the hashes of the sections, and names it in *err. If all sections are intact, *err
 * stays unchanged. Returns PD_DATA_LOSS. Call it if the hash of the file is wrong. */
static int name_damage(const reading *r, pd_error *err)
{
    int rc = check_head(r, err);

    for (uint32_t i = 0; i < r->kept->n_params && rc == PD_OK; i++) rc = check_state(r, i, err);
    return PD_DATA_LOSS;
}

static void free_lists(reading *r)
{
    free(r->index);
    free(r->xxh3);
    free(r->offset);
    free(r->buffer);
}

int pd_state_bin_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                      pd_error *err)
{
    reading r = { .kept = kept };
    int rc = pd_file_reader_open(&r.file, disk, dir, pd_keep_files[PD_KEEP_STATE], sum, err), proved;

    if (rc != PD_OK) return rc;
    rc = read_head(&r, err);
    if (rc == PD_OK) rc = read_states(&r, err);
    proved = pd_file_reader_close(&r.file, rc, err);
    if (rc == PD_OK && proved == PD_DATA_LOSS) proved = name_damage(&r, err);
    free_lists(&r);
    return proved;
}

/* ---- reading one state after the other ---- */

/* Reads the index and the header, checks the hash of the header, and allocates the buffer for states. */
static int begin_states(reading *r, pd_error *err)
{
    int rc = read_head(r, err);

    if (rc != PD_OK || (rc = check_head(r, err)) != PD_OK) return rc;
    return (r->buffer = pd_pages_new(r->largest)) != NULL ? PD_OK : no_memory(err);
}

int pd_state_bin_open(pd_state_bin **out, const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                      pd_checkpoint_image *kept, pd_error *err)
{
    reading *r = calloc(1, sizeof *r);
    int rc;

    if (r == NULL) return no_memory(err);
    *r = (reading){ .kept = kept, .one_by_one = true };
    if ((rc = pd_file_reader_open(&r->file, disk, dir, pd_keep_files[PD_KEEP_STATE], sum, err)) != PD_OK) {
        free(r);
        return rc;
    }
    if ((rc = begin_states(r, err)) != PD_OK) return pd_state_bin_close(r, rc, err);
    *out = r;
    return PD_OK;
}

int pd_state_bin_next(pd_state_bin *r, uint32_t i, pd_error *err)
{
    pd_checkpoint_param *param = &r->kept->params[i];
    int rc = pd_file_reader_take(&r->file, r->buffer, param->state_bytes, err);

    if (i > 0) r->kept->params[i - 1].state = NULL;
    if (rc != PD_OK) return rc;
    param->state = r->buffer;
    return check_state(r, i, err);
}

int pd_state_bin_pick(pd_state_bin *r, uint32_t i, pd_error *err)
{
    pd_checkpoint_param *param = &r->kept->params[i];
    int rc;

    r->kept->params[r->picked].state = NULL;
    if (r->buffer == NULL && (r->buffer = pd_pages_new(r->largest)) == NULL) return no_memory(err);
    if ((rc = pd_file_reader_peek(&r->file, r->offset[i], r->buffer, param->state_bytes, err)) != PD_OK) return rc;
    r->picked = i;
    param->state = r->buffer;
    return check_state(r, i, err);
}

void pd_state_bin_release(pd_state_bin *r)
{
    r->kept->params[r->picked].state = NULL;
    free(r->buffer);
    r->buffer = NULL;
}

int pd_state_bin_close(pd_state_bin *r, int rc, pd_error *err)
{
    if (r == NULL) return rc;
    if (rc == PD_OK) rc = pd_file_reader_skip(&r->file, err);
    rc = pd_file_reader_close(&r->file, rc, err);
    for (uint32_t i = 0; i < r->kept->n_params; i++) r->kept->params[i].state = NULL;
    free_lists(r);
    free(r);
    return rc;
}

static const char notes_magic[8] = { 'p', 'd', 'n', 'o', 't', 'e', 's', '\n' };

enum { NOTES_VERSION = 1, NOTES_PREFIX = 16, NOTES_RECORD = 24 };

uint64_t pd_notes_bin_bytes(const pd_checkpoint_image *kept)
{
    uint64_t bytes = NOTES_PREFIX;

    for (uint32_t i = 0; i < kept->n_worker_states; i++) bytes += NOTES_RECORD + kept->worker_states[i].bytes;
    return bytes;
}

/* ---- writing ---- */

static int write_note(pd_file_writer *writer, const pd_worker_state *note, pd_error *err)
{
    uint8_t at[NOTES_RECORD];
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
    uint8_t at[NOTES_PREFIX];
    pd_cursor prefix = { .at = at, .left = sizeof at };
    int rc = pd_file_writer_open(writer, dir, pd_keep_files[PD_KEEP_NOTES], pd_notes_bin_bytes(kept), err);

    pd_cursor_put(&prefix, notes_magic, sizeof notes_magic);
    pd_cursor_put_u32(&prefix, NOTES_VERSION);
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
    uint8_t at[NOTES_RECORD];
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

/* Reads the beginning of notes.bin, checks that the file is large enough for its number of worker states, and allocates
 * their array. *n becomes this number. */
static int read_notes_prefix(pd_file_reader *file, pd_checkpoint_image *kept, uint32_t *n, pd_error *err)
{
    uint8_t at[NOTES_PREFIX];
    pd_cursor prefix = { .at = at + sizeof notes_magic, .left = sizeof at - sizeof notes_magic };
    int rc = pd_file_reader_take(file, at, sizeof at, err);
    uint32_t version = pd_cursor_u32(&prefix);

    *n = pd_cursor_u32(&prefix);
    if (rc != PD_OK) return rc;
    if (memcmp(at, notes_magic, sizeof notes_magic) != 0)
        return pd_file_reader_damaged(file, err, "its beginning is not that of such a file");
    if (version != NOTES_VERSION)
        return pd_fail(err, PD_UNIMPLEMENTED, "%.300s: version %" PRIu32 ": this version of paramd reads %d",
                       file->path, version, NOTES_VERSION);
    if (*n > (file->bytes - NOTES_PREFIX) / NOTES_RECORD)
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
    rc = read_notes_prefix(&file, kept, &n, err);
    for (uint32_t i = 0; i < n && rc == PD_OK; i++) rc = read_note(&file, kept, err);
    return pd_file_reader_close(&file, rc, err);
}
