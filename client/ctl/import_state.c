/* import_state.c - paramctl import-state: puts the optimizer state of a saved file into a job of a daemon, either all
 * of it or nothing.
 *
 * The command first compares the names in the file with the job's slots. If they do not match, nothing is sent, unless
 * the user gives --partial. A file may also have pending roots: matrix roots that are computed, but not used yet. */
#include "commands.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "format.h"
#include "grow.h"
#include "result.h"
#include "safetensors.h"
#include "state_keys.h"
#include "state_list.h"
#include "whole_params.h"

enum { PIECE_BYTES = 1 << 20, LISTED = 20 };

/* One tensor of the file, and the tensor of the job's optimizer state into which its values go. */
typedef struct entry {
    const pd_st_tensor *tensor;
    pd_state_key key;
    const pd_whole_param *param;
    /* The job's slot. The file's tensor fills all of it, or one block of it. NULL: the tensor is a pending root, which
     * needs no slot. */
    const pd_state_tensor *slot;
    int64_t count; /* the number of steps taken, if the tensor is a step counter (PD_KEY_COUNT) */
} entry;

/* A tensor of the file that has no place in the job: its name, and the reason (NULL: the job has no such state). */
typedef struct stranger {
    const char *name, *why;
} stranger;

typedef struct state_import {
    const pd_line *line;
    const char *job, *path;
    bool partial, verbose;
    pd_cluster cluster;
    pd_state_list list;
    pd_whole_params params;
    const char **names; /* of all parameters, in ascending order */
    void *file;
    size_t file_bytes;
    pd_safetensors *tensors;
    entry *entries;
    size_t n, room; /* n: number of entries to send; room: capacity of the array */
    stranger *unknown;
    size_t n_unknown;
    bool counted; /* the file has one step counter for all parameters, whose value is `count` */
    int64_t count;
    size_t derived, weights, parts, counts;
    uint64_t bytes, sent, piece; /* piece: largest payload of one Import request, in bytes */
    float *floats;               /* buffer for the numbers of one Import request */
} state_import;

static int map_file(state_import *im, pd_error *err)
{
    int fd = open(im->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;
    struct stat st;
    pd_error why;

    if (fd < 0) return pd_fail(err, PD_NOT_FOUND, "%.300s: %s", im->path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        close(fd);
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.300s: not a regular file, or empty", im->path);
    }
    im->file_bytes = (size_t)st.st_size;
    im->file = mmap(NULL, im->file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (im->file == MAP_FAILED) {
        im->file = NULL;
        return pd_fail(err, PD_NOT_FOUND, "%.300s: cannot be read: %s", im->path, strerror(errno));
    }
    rc = pd_safetensors_read(&im->tensors, im->file, im->file_bytes, &why);
    return rc == PD_OK ? rc : pd_fail(err, rc, "%.200s: %.300s", im->path, why.text);
}

static bool is_float(pd_st_dtype dtype)
{
    return dtype == PD_ST_F32 || dtype == PD_ST_F64 || dtype == PD_ST_F16 || dtype == PD_ST_BF16;
}

static int64_t elements_of(const pd_st_tensor *tensor)
{
    return (int64_t)(tensor->bytes / pd_st_dtype_size(tensor->dtype));
}

/* Reads a step counter from a tensor of the file, which must have a single element, a whole number. Returns false
 * for any other tensor. */
static bool read_count(const state_import *im, const pd_st_tensor *tensor, int64_t *count)
{
    const void *at = pd_safetensors_data(im->tensors, tensor);
    int32_t narrow;
    float real;

    if (elements_of(tensor) != 1) return false;
    switch (tensor->dtype) {
    case PD_ST_I64: memcpy(count, at, sizeof *count); break;
    case PD_ST_I32: *count = (memcpy(&narrow, at, sizeof narrow), narrow); break;
    case PD_ST_F32: *count = (memcpy(&real, at, sizeof real), real >= 0 && real <= 1e9f ? (int64_t)real : -1); break;
    default: return false;
    }
    return *count >= 0;
}

/* Returns the job's slot for a name in the file. If the job has no slot for the block in the name, returns the slot of
 * the whole parameter. NULL: the job has neither. */
static pd_state_tensor *slot_of(const state_import *im, const pd_state_key *key, const char *param)
{
    pd_state_tensor *slot = pd_state_list_find(&im->list, param, key->slot, key->number, key->block);

    return slot != NULL || key->block < 0 ? slot : pd_state_list_find(&im->list, param, key->slot, key->number, -1);
}

static int add_entry(state_import *im, const entry *e)
{
    if (pd_grow((void **)&im->entries, &im->room, im->n + 1, sizeof *e) != PD_OK) return PD_NO_MEMORY;
    im->entries[im->n++] = *e;
    im->bytes += e->tensor->bytes;
    return PD_OK;
}

/* Returns the tensor of the file that belongs to a tensor of quantized codes, such as their bucket sizes (numbers
 * by which codes are multiplied). It is named like the codes, with `word` in place of the last "quantized". NULL:
 * the file has no such tensor. */
static const pd_st_tensor *companion(const state_import *im, const pd_st_tensor *codes, const char *word)
{
    static const char own[] = "quantized";
    const pd_st_tensor *found = NULL;
    const char *last = NULL;
    char *name = NULL;

    for (const char *at = strstr(codes->name, own); at != NULL; at = strstr(at + 1, own)) last = at;
    if (last == NULL ||
        asprintf(&name, "%.*s%s%s", (int)(last - codes->name), codes->name, word, last + strlen(own)) < 0)
        return NULL;
    found = pd_safetensors_find(im->tensors, name);
    free(name);
    return found;
}

/* Checks that the file has the bucket sizes of a tensor of quantized codes: one float32 for each column, by which
 * its codes are multiplied. If the file has the tensor's diagonal as well, checks that its length fits. */
static bool has_companions(const state_import *im, const pd_st_tensor *codes)
{
    const pd_st_tensor *buckets = companion(im, codes, "bucket_size"), *diagonal = companion(im, codes, "diagonal");
    int64_t rows = codes->shape.rank > 0 ? codes->shape.dim[0] : 1, n = elements_of(codes);

    if (n == 0 || buckets == NULL || buckets->dtype != PD_ST_F32 || elements_of(buckets) != n / rows) return false;
    return diagonal == NULL || elements_of(diagonal) == 0 ||
           (diagonal->dtype == PD_ST_F32 && elements_of(diagonal) == rows && rows * rows == n);
}

static bool is_codes(const entry *e)
{
    return e->key.codes && (e->tensor->dtype == PD_ST_I8 || e->tensor->dtype == PD_ST_I16);
}

/* Returns true if the file's tensor has an element type whose numbers can be sent to the daemon. */
static bool is_readable(const state_import *im, const entry *e)
{
    if (is_codes(e)) return has_companions(im, e->tensor);
    return is_float(e->tensor->dtype) || (e->key.param == PD_KEY_ALL && e->tensor->dtype == PD_ST_I32);
}

/* Returns true if the tensor is a single zero. The original optimizers save a zero in place of state that they do
 * not keep. */
static bool is_filling(const state_import *im, const pd_st_tensor *tensor)
{
    const uint8_t *at = pd_safetensors_data(im->tensors, tensor);

    if (elements_of(tensor) > 1) return false;
    for (uint64_t i = 0; i < tensor->bytes; i++)
        if (at[i] != 0) return false;
    return true;
}

/* Returns true if a name in the file is that of a pending root: a matrix root that is computed and not used yet.
 * `paramctl export' writes such names. */
static bool is_pending_root(const pd_state_key *key)
{
    return strcmp(key->slot, "pending_root") == 0 && key->number >= 0 && key->block < 0;
}

/* Adds a tensor of the file that belongs to one parameter to the entries to send. PD_NOT_FOUND: the job has no slot for
 * it, or its element type cannot be read. */
static int place_part(state_import *im, const entry *from, const pd_whole_param *param)
{
    pd_state_tensor *slot = slot_of(im, &from->key, param->name);
    entry e = *from;

    if (slot == NULL && from->key.fill && is_filling(im, from->tensor)) {
        im->derived++;
        return PD_OK;
    }
    if ((slot == NULL && !is_pending_root(&from->key)) || !is_readable(im, from)) return PD_NOT_FOUND;
    e.param = param;
    e.slot = slot;
    if (slot != NULL) slot->covered += elements_of(from->tensor);
    im->parts++;
    return add_entry(im, &e);
}

/* Adds a value that the file has once for all parameters: one entry to send for each parameter that has a slot for
 * it. */
static int place_parts(state_import *im, const entry *from)
{
    int rc = PD_NOT_FOUND;

    for (size_t i = 0; i < im->params.n && (rc == PD_OK || rc == PD_NOT_FOUND); i++)
        if (slot_of(im, &from->key, im->names[i]) != NULL) rc = place_part(im, from, &im->params.at[i]);
    return rc;
}

static int place_count(state_import *im, entry *e)
{
    if (!read_count(im, e->tensor, &e->count)) return PD_NOT_FOUND;
    if (e->key.param != PD_KEY_ALL) {
        e->param = &im->params.at[e->key.param];
        im->counts++;
        return add_entry(im, e);
    }
    if (im->counted) { /* a chain of optimizers in the file has several counters, which must be equal */
        im->derived++;
        return im->count == e->count ? PD_OK : PD_NOT_FOUND;
    }
    im->counted = true;
    im->count = e->count;
    for (size_t i = 0; i < im->params.n; i++) {
        e->param = &im->params.at[i];
        im->counts++;
        if (add_entry(im, e) != PD_OK) return PD_NO_MEMORY;
    }
    return PD_OK;
}

/* Finds the slots into which one tensor of the file goes, and adds the entries to send. PD_NOT_FOUND: the job has no
 * such slot; *why may be set to the reason. */
static int place(state_import *im, const pd_st_tensor *tensor, const char **why)
{
    entry e = { .tensor = tensor };

    *why = NULL;
    pd_state_key_read(&e.key, tensor->name, im->names, im->params.n);
    switch (e.key.kind) {
    case PD_KEY_PART:
        return e.key.param == PD_KEY_ALL ? place_parts(im, &e) : place_part(im, &e, &im->params.at[e.key.param]);
    case PD_KEY_COUNT: return place_count(im, &e);
    case PD_KEY_REFUSED: *why = e.key.why; return PD_NOT_FOUND;
    case PD_KEY_UNKNOWN: return PD_NOT_FOUND;
    case PD_KEY_WEIGHTS: im->weights++; return PD_OK;
    case PD_KEY_DERIVED:
    case PD_KEY_COMPANION: break;
    }
    im->derived++;
    return PD_OK;
}

/* Lets the file leave out the state of those parameters whose step counter in it is 0: they have seen no gradient yet,
 * and begin as in a new job. Does nothing if the file has unknown names, since it may be of another optimizer. */
static void excuse_fresh(state_import *im)
{
    for (size_t i = 0; im->n_unknown == 0 && i < im->n; i++)
        if (im->entries[i].key.kind == PD_KEY_COUNT && im->entries[i].count == 0)
            pd_state_list_excuse(&im->list, im->entries[i].param->name);
}

static int sort_out(state_import *im, pd_error *err)
{
    size_t n;
    const pd_st_tensor *tensors = pd_safetensors_tensors(im->tensors, &n);

    im->unknown = calloc(n + 1, sizeof *im->unknown);
    im->floats = malloc(PIECE_BYTES);
    if (im->unknown == NULL || im->floats == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        const char *why;
        int rc = place(im, &tensors[i], &why);
        if (rc == PD_NO_MEMORY) return pd_fail(err, PD_NO_MEMORY, "out of memory");
        if (rc == PD_NOT_FOUND) im->unknown[im->n_unknown++] = (stranger){ tensors[i].name, why };
    }
    excuse_fresh(im);
    return PD_OK;
}

static bool is_missing(const pd_state_tensor *slot)
{
    return !slot->kept && !slot->fresh && slot->covered < slot->elements;
}

static size_t count_missing(const state_import *im)
{
    size_t missing = 0;

    for (size_t i = 0; i < im->list.n; i++) missing += is_missing(&im->list.at[i]);
    return missing;
}

static Paramd__ImportRequest request_of(const state_import *im, uint32_t act)
{
    Paramd__ImportRequest request = PARAMD__IMPORT_REQUEST__INIT;

    request.job = (char *)im->job;
    request.act = act;
    return request;
}

static int call(state_import *im, uint32_t shard, const Paramd__ImportRequest *request, const void *payload,
                size_t bytes, pd_error *err)
{
    pd_operator *op = &im->cluster.at[shard].op;

    return pd_client_call_with(op->client, PD_IMPORT, &request->base, payload, bytes, op->arena, NULL, err);
}

static void show_progress(const state_import *im, bool last)
{
    if (!im->line->json) pd_transfer_show(im->sent, im->bytes, "sent", last);
}

/* Numbers that are to be sent to the daemon: their address in memory and their element type. */
typedef struct source {
    const uint8_t *at;
    pd_st_dtype dtype;
} source;

/* Turns the codes of a quantized tensor into float32: each code is multiplied by the bucket size of its column. If
 * the diagonal is stored apart, it is added. The caller frees the result. NULL: out of memory. */
static float *decode(const state_import *im, const pd_st_tensor *codes)
{
    const pd_st_tensor *buckets = companion(im, codes, "bucket_size"), *diagonal = companion(im, codes, "diagonal");
    const uint8_t *at = pd_safetensors_data(im->tensors, codes), *bucket = pd_safetensors_data(im->tensors, buckets);
    int64_t n = elements_of(codes), cols = elements_of(buckets);
    float *out = malloc((size_t)n * sizeof *out), one;
    int16_t wide;

    for (int64_t i = 0; out != NULL && i < n; i++) {
        if (codes->dtype == PD_ST_I16)
            memcpy(&wide, at + 2 * i, sizeof wide);
        else
            wide = ((const int8_t *)at)[i];
        memcpy(&one, bucket + i % cols * (int64_t)sizeof one, sizeof one);
        out[i] = (float)wide * one;
    }
    for (int64_t i = 0; out != NULL && diagonal != NULL && i < elements_of(diagonal); i++) {
        memcpy(&one, (const uint8_t *)pd_safetensors_data(im->tensors, diagonal) + i * (int64_t)sizeof one, sizeof one);
        out[i * (cols + 1)] += one;
    }
    return out;
}

/* Sets *out to the numbers of an entry's tensor as floating point. If they had to be converted, *own is the
 * converted copy, which the caller frees; otherwise *own is NULL. */
static int find_source(const state_import *im, const entry *e, source *out, float **own, pd_error *err)
{
    int32_t whole;

    *own = NULL;
    *out = (source){ pd_safetensors_data(im->tensors, e->tensor), e->tensor->dtype };
    if (is_float(e->tensor->dtype)) return PD_OK;
    *own = is_codes(e) ? decode(im, e->tensor) : malloc(sizeof **own);
    if (*own == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (!is_codes(e)) **own = (float)(memcpy(&whole, out->at, sizeof whole), whole);
    *out = (source){ (const uint8_t *)*own, PD_ST_F32 };
    return PD_OK;
}

/* Copies the numbers of one request to im->floats and returns them: tensors in files may be unaligned. Numbers of
 * 16 bits are widened to float32. */
static const void *piece_of(state_import *im, const source *from, uint64_t first, uint64_t count)
{
    size_t each = pd_st_dtype_size(from->dtype);
    const uint8_t *at = from->at + first * each;

    if (from->dtype == PD_ST_F16)
        pd_convert(im->floats, PD_F32, at, PD_F16, (int64_t)count);
    else if (from->dtype == PD_ST_BF16)
        pd_convert(im->floats, PD_F32, at, PD_BF16, (int64_t)count);
    else
        memcpy(im->floats, at, count * each);
    return im->floats;
}

/* Returns true if two shapes differ only in their leading dimensions, so that both list the same elements in the
 * same order. One shape may merge its leading dimensions (layers, blocks) into one, or leave them out. */
static bool is_stacked_alike(const pd_shape *a, const pd_shape *b)
{
    int i = a->rank, k = b->rank;

    while (i > 0 && k > 0 && a->dim[i - 1] == b->dim[k - 1]) i--, k--;
    return i <= 1 || k <= 1;
}

/* Returns the shape to send with a tensor of the file. A tensor with a single element gets the shape of its slot, since
 * some programs save a scalar with shape (1,), for example numpy.ascontiguousarray. */
static const pd_shape *shape_of(const entry *e)
{
    bool whole = e->slot != NULL && e->key.block == e->slot->block && elements_of(e->tensor) == e->slot->elements;

    return whole && (e->key.param == PD_KEY_ALL || e->slot->elements == 1 ||
                     (e->key.stacked && is_stacked_alike(&e->tensor->shape, &e->slot->shape)))
               ? &e->slot->shape
               : &e->tensor->shape;
}

/* The elements of a tensor of the file that go to one daemon, and where they go. */
typedef struct piece {
    uint32_t shard;
    const char *param; /* name of the parameter or portion on that daemon */
    int block;
    const pd_shape *shape;
    uint64_t first, count; /* elements of the tensor of the file */
} piece;

static int send_elements(state_import *im, const entry *e, const source *from, const piece *to, pd_error *err)
{
    Paramd__ImportRequest request = request_of(im, 2);
    uint64_t shape[PD_MAX_RANK];
    size_t each = from->dtype == PD_ST_F64 ? sizeof(double) : sizeof(float);
    int rc = PD_OK;

    for (int d = 0; d < to->shape->rank; d++) shape[d] = (uint64_t)to->shape->dim[d];
    request.param = (char *)to->param;
    request.slot = (char *)e->key.slot;
    request.number = e->key.number;
    request.block = to->block;
    request.shape = shape;
    request.n_shape = (size_t)to->shape->rank;
    request.wide = from->dtype == PD_ST_F64;
    do {
        uint64_t left = to->count - request.first;
        request.count = left < im->piece / each ? left : im->piece / each;
        rc = call(im, to->shard, &request, piece_of(im, from, to->first + request.first, request.count),
                  request.count * each, err);
        request.first += request.count;
        im->sent += request.count * pd_st_dtype_size(e->tensor->dtype);
        show_progress(im, false);
    } while (rc == PD_OK && request.first < to->count);
    return rc;
}

/* Sends a tensor that one daemon gets whole: `part` is the portion of the parameter that it belongs to, `block` its
 * block there. */
static int send_whole(state_import *im, const entry *e, const source *from, const pd_whole_part *part, int block,
                      pd_error *err)
{
    const piece to = { part->shard, part->name, block, shape_of(e), 0, (uint64_t)elements_of(e->tensor) };

    return send_elements(im, e, from, &to, err);
}

/* Sends a tensor to the portions of a cut parameter: each gets its rows, or all of it if the portions have copies. */
static int send_rows(state_import *im, const entry *e, const source *from, pd_error *err)
{
    uint64_t first = 0;
    int rc = PD_OK;

    if (elements_of(e->tensor) != e->slot->elements)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.300s: expected %lld elements, got %lld", e->tensor->name,
                       (long long)e->slot->elements, (long long)elements_of(e->tensor));
    for (size_t i = 0; i < e->slot->n_pieces && rc == PD_OK; i++) {
        const pd_state_piece *at = &im->list.pieces[e->slot->first_piece + i];
        const piece to = { at->shard, at->param, at->block, &at->shape, first, (uint64_t)at->elements };
        if (!e->slot->copies) first += to.count;
        rc = send_elements(im, e, from, &to, err);
    }
    return rc;
}

/* Sends a pending root to the portion that computes it. Its first number is the index of the root in the parameter. */
static int send_root(state_import *im, const entry *e, const source *from, pd_error *err)
{
    const pd_whole_part *parts = &im->params.parts[e->param->first];
    size_t part = 0;
    uint64_t before = 0;
    double *own, index = 0;
    source moved = { .dtype = PD_ST_F64 };
    int rc;

    if (e->param->n == 1 || from->dtype != PD_ST_F64 || elements_of(e->tensor) < 1)
        return send_whole(im, e, from, parts, e->key.block, err);
    memcpy(&index, from->at, sizeof index);
    while (part + 1 < e->param->n && index >= (double)(before + parts[part].roots)) before += parts[part++].roots;
    if ((own = malloc(e->tensor->bytes)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    memcpy(own, from->at, e->tensor->bytes);
    own[0] = index - (double)before;
    moved.at = (const uint8_t *)own;
    rc = send_whole(im, e, &moved, &parts[part], e->key.block, err);
    free(own);
    return rc;
}

/* Sends the tensor of one block. The blocks of a parameter are numbered through its portions. */
static int send_block(state_import *im, const entry *e, const source *from, pd_error *err)
{
    const pd_whole_part *parts = &im->params.parts[e->param->first];
    int block = e->key.block;
    size_t part = 0;

    while (part + 1 < e->param->n && block >= parts[part].blocks) block -= parts[part++].blocks;
    return send_whole(im, e, from, &parts[part], block, err);
}

static int send_tensor(state_import *im, const entry *e, pd_error *err)
{
    source from;
    float *own;
    int rc = find_source(im, e, &from, &own, err);

    if (rc != PD_OK) return rc;
    if (e->slot == NULL)
        rc = send_root(im, e, &from, err);
    else if (e->key.block >= 0)
        rc = send_block(im, e, &from, err);
    else if (e->slot->n_pieces > 1)
        rc = send_rows(im, e, &from, err);
    else
        rc = send_whole(im, e, &from, &im->params.parts[e->param->first], e->key.block, err);
    free(own);
    return rc;
}

/* Sends the number of steps that a parameter has taken, to all its portions. */
static int send_count(state_import *im, const entry *e, pd_error *err)
{
    Paramd__ImportRequest request = request_of(im, 3);
    int rc = PD_OK;

    request.value = (uint64_t)e->count;
    for (size_t i = 0; i < e->param->n && rc == PD_OK; i++) {
        const pd_whole_part *part = &im->params.parts[e->param->first + i];
        request.param = part->name;
        rc = call(im, part->shard, &request, NULL, 0, err);
    }
    return rc;
}

/* Lets all daemons put the state into the job, each by itself. They answer when it is on their disks. */
static int commit_all(state_import *im, pd_error *err)
{
    Paramd__ImportRequest commit = request_of(im, 4);
    pd_error why = { 0 };
    int rc;

    commit.partial = im->partial;
    rc = pd_cluster_ask(&im->cluster, PD_IMPORT, &commit.base, NULL, &why);
    if (rc == PD_OK) return rc;
    return pd_fail(err, rc, "%.400s%s", why.text,
                   im->cluster.n > 1 ? "; other daemons may have imported their part: import again when all answer"
                                     : "");
}

static int send_all(state_import *im, pd_error *err)
{
    Paramd__ImportRequest begin = request_of(im, 1);
    int rc = pd_cluster_ask(&im->cluster, PD_IMPORT, &begin.base, NULL, err);

    for (size_t i = 0; i < im->n && rc == PD_OK; i++)
        rc = im->entries[i].key.kind == PD_KEY_COUNT ? send_count(im, &im->entries[i], err)
                                                     : send_tensor(im, &im->entries[i], err);
    if (rc == PD_OK) show_progress(im, true);
    return rc == PD_OK ? commit_all(im, err) : rc;
}

static void print_unknown(const state_import *im)
{
    for (size_t i = 0; i < im->n_unknown && (i < LISTED || im->verbose); i++)
        pd_print_line(stdout, "unknown  %s%s%s", im->unknown[i].name, im->unknown[i].why != NULL ? ": " : "",
                      im->unknown[i].why != NULL ? im->unknown[i].why : "");
    if (im->n_unknown > LISTED && !im->verbose)
        printf("unknown  ... and %zu more (--verbose)\n", im->n_unknown - LISTED);
}

static void print_missing(const state_import *im)
{
    size_t told = 0, missing = count_missing(im);
    char name[128], shape[192];

    for (size_t i = 0; i < im->list.n; i++) {
        const pd_state_tensor *slot = &im->list.at[i];
        if (!is_missing(slot) || (told == LISTED && !im->verbose)) continue;
        pd_print_line(stdout, "missing  %s.%s %s%s", slot->param, pd_state_tensor_name(slot, name, sizeof name),
                      pd_shape_text(&slot->shape, shape, sizeof shape), slot->covered > 0 ? " in part" : "");
        told++;
    }
    if (missing > told) printf("missing  ... and %zu more (--verbose)\n", missing - told);
}

static json_t *as_json(const state_import *im, bool imported)
{
    json_t *unknown = json_array(), *missing = json_array();
    char name[128], text[512];

    for (size_t i = 0; i < im->n_unknown; i++) json_array_append_new(unknown, json_string(im->unknown[i].name));
    for (size_t i = 0; i < im->list.n; i++) {
        if (!is_missing(&im->list.at[i])) continue;
        snprintf(text, sizeof text, "%s.%s", im->list.at[i].param,
                 pd_state_tensor_name(&im->list.at[i], name, sizeof name));
        json_array_append_new(missing, json_string(text));
    }
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "imported", imported, "tensors", (json_int_t)im->parts,
                     "counters", (json_int_t)im->counts, "derived", (json_int_t)im->derived, "weights",
                     (json_int_t)im->weights, "bytes", (json_int_t)im->bytes, "unknown", unknown, "missing", missing);
}

static int tell(const state_import *im, bool imported)
{
    char bytes[PD_CELL];

    if (im->line->json) {
        int status = pd_result_json(as_json(im, imported));
        return imported ? status : PD_CTL_FAILED;
    }
    print_unknown(im);
    print_missing(im);
    if (im->weights > 0) printf("skipped the weights of %zu parameters: workers send weights\n", im->weights);
    if (imported)
        pd_print_line(stdout, "imported %zu tensors (%s) and %zu counters into job %s", im->parts,
                      pd_bytes_text(bytes, im->bytes), im->counts, im->job);
    else
        printf("nothing imported: %zu names of the file are unknown to the job, %zu tensors are missing in the file "
               "(--partial imports the rest)\n",
               im->n_unknown, count_missing(im));
    return imported ? PD_CTL_OK : PD_CTL_FAILED;
}

static void close_import(state_import *im)
{
    pd_safetensors_free(im->tensors);
    if (im->file != NULL) munmap(im->file, im->file_bytes);
    pd_state_list_free(&im->list);
    pd_whole_params_free(&im->params);
    free(im->names);
    pd_cluster_close(&im->cluster);
    free(im->entries);
    free(im->unknown);
    free(im->floats);
}

/* Fetches what parameters and what optimizer state the job has. */
static int fetch(state_import *im, pd_error *err)
{
    int rc = pd_state_list_fetch(&im->list, &im->cluster, im->job, NULL, err);

    if (rc == PD_OK) rc = pd_whole_params_fetch(&im->params, &im->cluster, im->job, err);
    if (rc == PD_OK) rc = pd_whole_params_join_state(&im->params, &im->list, err);
    if (rc != PD_OK) return rc;
    if ((im->names = calloc(im->params.n + 1, sizeof *im->names)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < im->params.n; i++) im->names[i] = im->params.at[i].name;
    return PD_OK;
}

static int run(state_import *im)
{
    const pd_line *line = im->line;
    pd_error err = { 0 };
    bool matches = false;
    int rc = map_file(im, &err), status;

    if (rc == PD_OK) rc = pd_cluster_probe(line, &err);
    if (rc == PD_OK) rc = pd_cluster_open_complete(&im->cluster, line, PD_IMPORT_SECONDS, &err);
    if (rc == PD_OK) im->piece = pd_cluster_payload(&im->cluster, PIECE_BYTES);
    if (rc == PD_OK) rc = fetch(im, &err);
    if (rc == PD_OK) rc = sort_out(im, &err);
    matches = rc == PD_OK && (im->partial ? im->n > 0 : im->n_unknown == 0 && count_missing(im) == 0);
    if (matches) rc = send_all(im, &err);
    status = rc == PD_OK ? tell(im, matches) : pd_result_fail(line->json, &err);
    close_import(im);
    return status;
}

int pd_run_import_state(pd_line *line)
{
    state_import im = { .line = line };

    im.job = line->args[0];
    im.path = line->args[1];
    im.partial = pd_line_has(line, "partial");
    im.verbose = pd_line_has(line, "verbose");

    return run(&im);
}
