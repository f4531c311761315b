/* import_state.c - paramctl import-state: optimizer state of a saved file, put into a job of a daemon whole or not at all.
 *
 * What the file has and what the job keeps are compared first; nothing is sent where they do not match, unless --partial. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "convert.h"
#include "format.h"
#include "safetensors.h"
#include "state_keys.h"
#include "state_list.h"

enum { PIECE_BYTES = 1 << 20, LISTED = 20 };

/* A tensor of the file, and where it goes. */
typedef struct entry {
    const pd_st_tensor *tensor;
    pd_state_key        key;
    const char         *param;
    int64_t             count;          /* PD_KEY_COUNT */
} entry;

typedef struct import {
    const pd_ctl   *ctl;
    const char     *path;
    pd_operator     op;
    pd_state_list   list;
    void           *file;
    size_t          file_bytes;
    pd_safetensors *tensors;
    entry          *entries;        size_t n;       /* what is sent */
    const char    **unknown;        size_t n_unknown;
    size_t          derived, parts, counts;
    uint64_t        bytes, sent, piece;             /* piece: bytes that one may have */
    float          *floats;                         /* of a piece */
} import;

/* ---- the file ---- */

static int map_file(import *im, pd_error *err)
{
    int fd = open(im->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat st;

    if (fd < 0) return pd_fail(err, PD_NOT_FOUND, "%.300s: %s", im->path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_size == 0) {
        close(fd);
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.300s: not a file with something in it", im->path);
    }
    im->file_bytes = (size_t)st.st_size;
    im->file = mmap(NULL, im->file_bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    close(fd);
    if (im->file == MAP_FAILED) {
        im->file = NULL;
        return pd_fail(err, PD_NOT_FOUND, "%.300s: cannot be read: %s", im->path, strerror(errno));
    }
    return pd_safetensors_read(&im->tensors, im->file, im->file_bytes, err);
}

/* ---- what goes where ---- */

static bool is_float(pd_st_dtype dtype)
{
    return dtype == PD_ST_F32 || dtype == PD_ST_F64 || dtype == PD_ST_F16 || dtype == PD_ST_BF16;
}

/* A counter: one element, whole. */
static bool read_count(const import *im, const pd_st_tensor *tensor, int64_t *count)
{
    const void *at = pd_safetensors_data(im->tensors, tensor);
    float real;

    if (tensor->bytes != pd_st_dtype_size(tensor->dtype)) return false;
    if (tensor->dtype == PD_ST_I64) memcpy(count, at, sizeof *count);
    else if (tensor->dtype == PD_ST_F32) memcpy(&real, at, sizeof real);
    else return false;
    if (tensor->dtype == PD_ST_F32) *count = real >= 0 && real <= 1e9f ? (int64_t)real : -1;
    return *count >= 0;
}

/* The job's slot that it is of, or is a block of. NULL: none. */
static pd_state_tensor *slot_of(const import *im, const entry *e)
{
    pd_state_tensor *slot = pd_state_list_find(&im->list, e->param, e->key.slot, e->key.number, e->key.block);

    return slot != NULL || e->key.block < 0 ? slot : pd_state_list_find(&im->list, e->param, e->key.slot, e->key.number, -1);
}

/* False: the job has nothing of that name. */
static bool place(import *im, const pd_st_tensor *tensor, entry *e)
{
    pd_state_tensor *slot;
    int64_t elements = 0;

    *e = (entry){ .tensor = tensor };
    pd_state_key_read(&e->key, tensor->name, im->list.names, im->list.n_names);
    if (e->key.kind == PD_KEY_UNKNOWN) return false;
    e->param = im->list.names[e->key.param];
    if (e->key.kind == PD_KEY_COUNT) return read_count(im, tensor, &e->count);
    if (e->key.kind == PD_KEY_DERIVED) return true;
    if (!is_float(tensor->dtype) || (slot = slot_of(im, e)) == NULL || pd_shape_elements(&tensor->shape, &elements) != PD_OK) return false;
    slot->covered += elements;
    return true;
}

static int sort_out(import *im, pd_error *err)
{
    size_t n;
    const pd_st_tensor *tensors = pd_safetensors_tensors(im->tensors, &n);

    im->entries = calloc(n + 1, sizeof *im->entries);
    im->unknown = calloc(n + 1, sizeof *im->unknown);
    im->floats = malloc(PIECE_BYTES);
    if (im->entries == NULL || im->unknown == NULL || im->floats == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < n; i++) {
        entry *e = &im->entries[im->n];
        if (!place(im, &tensors[i], e)) {
            im->unknown[im->n_unknown++] = tensors[i].name;
            continue;
        }
        if (e->key.kind == PD_KEY_DERIVED) {
            im->derived++;
            continue;
        }
        if (e->key.kind == PD_KEY_COUNT) im->counts++;
        else im->parts++;
        im->bytes += tensors[i].bytes;
        im->n++;
    }
    return PD_OK;
}

static bool is_missing(const pd_state_tensor *slot)
{
    return !slot->kept && slot->covered < slot->elements;
}

static size_t count_missing(const import *im)
{
    size_t missing = 0;

    for (size_t i = 0; i < im->list.n; i++) missing += is_missing(&im->list.at[i]);
    return missing;
}

/* ---- sending ---- */

static Paramd__ImportRequest request_of(const import *im, uint32_t act)
{
    Paramd__ImportRequest request = PARAMD__IMPORT_REQUEST__INIT;

    request.job = im->ctl->args[0];
    request.act = act;
    return request;
}

static int call(import *im, const Paramd__ImportRequest *request, const void *payload, size_t bytes, pd_error *err)
{
    return pd_client_call_with(im->op.client, PD_IMPORT, &request->base, payload, bytes, im->op.arena, NULL, err);
}

static void show_progress(const import *im, bool last)
{
    char sent[PD_CELL], all[PD_CELL];

    if (im->ctl->json || !isatty(STDERR_FILENO)) return;
    fprintf(stderr, "\r%s of %s sent%s", pd_bytes_text(sent, im->sent), pd_bytes_text(all, im->bytes), last ? "\n" : "");
}

/* Files may leave tensors unaligned, and some types are widened: through memory of our own. */
static const void *piece_of(import *im, const pd_st_tensor *tensor, uint64_t first, uint64_t count)
{
    const uint8_t *at = pd_safetensors_data(im->tensors, tensor);
    size_t each = pd_st_dtype_size(tensor->dtype);

    at += first * each;
    if (tensor->dtype == PD_ST_F16) pd_convert(im->floats, PD_F32, at, PD_F16, (int64_t)count);
    else if (tensor->dtype == PD_ST_BF16) pd_convert(im->floats, PD_F32, at, PD_BF16, (int64_t)count);
    else memcpy(im->floats, at, count * each);
    return im->floats;
}

static int send_tensor(import *im, const entry *e, pd_error *err)
{
    const pd_st_tensor *tensor = e->tensor;
    Paramd__ImportRequest request = request_of(im, 2);
    uint64_t shape[PD_MAX_RANK], elements = tensor->bytes / pd_st_dtype_size(tensor->dtype);
    size_t each = tensor->dtype == PD_ST_F64 ? sizeof(double) : sizeof(float);
    int rc = PD_OK;

    for (int d = 0; d < tensor->shape.rank; d++) shape[d] = (uint64_t)tensor->shape.dim[d];
    request.param = (char *)e->param;
    request.slot = (char *)e->key.slot;
    request.number = e->key.number;
    request.block = e->key.block;
    request.shape = shape;
    request.n_shape = (size_t)tensor->shape.rank;
    request.wide = tensor->dtype == PD_ST_F64;
    do {
        request.count = elements - request.first < im->piece / each ? elements - request.first : im->piece / each;
        rc = call(im, &request, piece_of(im, tensor, request.first, request.count), request.count * each, err);
        request.first += request.count;
        im->sent += request.count * pd_st_dtype_size(tensor->dtype);
        show_progress(im, false);
    } while (rc == PD_OK && request.first < elements);
    return rc;
}

static int send_count(import *im, const entry *e, pd_error *err)
{
    Paramd__ImportRequest request = request_of(im, 3);

    request.param = (char *)e->param;
    request.value = (uint64_t)e->count;
    return call(im, &request, NULL, 0, err);
}

static uint64_t piece_bytes(const pd_operator *op)
{
    uint64_t most = pd_client_welcome(op->client)->max_payload;

    return most < PIECE_BYTES ? most : PIECE_BYTES;
}

static int send_all(import *im, pd_error *err)
{
    Paramd__ImportRequest begin = request_of(im, 1), commit = request_of(im, 4);
    int rc = call(im, &begin, NULL, 0, err);

    for (size_t i = 0; i < im->n && rc == PD_OK; i++)
        rc = im->entries[i].key.kind == PD_KEY_COUNT ? send_count(im, &im->entries[i], err) : send_tensor(im, &im->entries[i], err);
    commit.partial = im->ctl->partial;
    if (rc == PD_OK) show_progress(im, true);
    return rc == PD_OK ? call(im, &commit, NULL, 0, err) : rc;
}

/* ---- telling ---- */

static void print_unknown(const import *im)
{
    for (size_t i = 0; i < im->n_unknown && (i < LISTED || im->ctl->verbose); i++) printf("unknown  %s\n", im->unknown[i]);
    if (im->n_unknown > LISTED && !im->ctl->verbose) printf("unknown  ... and %zu more (--verbose)\n", im->n_unknown - LISTED);
}

static void print_missing(const import *im)
{
    size_t told = 0, missing = count_missing(im);
    char name[128], shape[192];

    for (size_t i = 0; i < im->list.n; i++) {
        const pd_state_tensor *slot = &im->list.at[i];
        if (!is_missing(slot) || (told == LISTED && !im->ctl->verbose)) continue;
        printf("missing  %s.%s %s%s\n", slot->param, pd_state_tensor_name(slot, name, sizeof name), pd_shape_text(&slot->shape, shape, sizeof shape),
               slot->covered > 0 ? " in part" : "");
        told++;
    }
    if (missing > told) printf("missing  ... and %zu more (--verbose)\n", missing - told);
}

static json_t *as_json(const import *im, bool imported)
{
    json_t *unknown = json_array(), *missing = json_array();
    char name[128], text[512];

    for (size_t i = 0; i < im->n_unknown; i++) json_array_append_new(unknown, json_string(im->unknown[i]));
    for (size_t i = 0; i < im->list.n; i++) {
        if (!is_missing(&im->list.at[i])) continue;
        snprintf(text, sizeof text, "%s.%s", im->list.at[i].param, pd_state_tensor_name(&im->list.at[i], name, sizeof name));
        json_array_append_new(missing, json_string(text));
    }
    return json_pack("{s:b, s:I, s:I, s:I, s:I, s:o, s:o}", "imported", imported, "tensors", (json_int_t)im->parts, "counters", (json_int_t)im->counts, "derived",
                     (json_int_t)im->derived, "bytes", (json_int_t)im->bytes, "unknown", unknown, "missing", missing);
}

static int tell(const import *im, bool imported)
{
    char bytes[PD_CELL];

    if (im->ctl->json) {
        int status = pd_ctl_print_json(as_json(im, imported));
        return imported ? status : PD_EXIT_REFUSED;
    }
    print_unknown(im);
    print_missing(im);
    if (imported) printf("imported %zu tensors (%s) and %zu counters into job %s\n", im->parts, pd_bytes_text(bytes, im->bytes), im->counts, im->ctl->args[0]);
    else printf("nothing was imported: %zu names of the file are unknown to the job, %zu of its tensors are missing in the file (--partial imports the rest)\n",
                im->n_unknown, count_missing(im));
    return imported ? PD_EXIT_OK : PD_EXIT_REFUSED;
}

/* ---- the command ---- */

static void close_import(import *im)
{
    pd_safetensors_free(im->tensors);
    if (im->file != NULL) munmap(im->file, im->file_bytes);
    pd_state_list_free(&im->list);
    pd_operator_close(&im->op);
    free(im->entries);
    free(im->unknown);
    free(im->floats);
}

int pd_ctl_import_state(const pd_ctl *ctl)
{
    import im = { .ctl = ctl, .path = ctl->args[1] };
    pd_error err = { 0 };
    int rc = map_file(&im, &err), status;
    bool matches = false;

    if (rc == PD_OK) rc = pd_operator_open(&im.op, ctl->server, ctl->timeout, &err);
    if (rc == PD_OK) im.piece = piece_bytes(&im.op);
    if (rc == PD_OK) rc = pd_state_list_fetch(&im.list, &im.op, ctl->args[0], NULL, &err);
    if (rc == PD_OK) rc = sort_out(&im, &err);
    matches = rc == PD_OK && (ctl->partial ? im.n > 0 : im.n_unknown == 0 && count_missing(&im) == 0);
    if (matches) rc = send_all(&im, &err);
    status = rc == PD_OK ? tell(&im, matches) : pd_ctl_fail(ctl, &err);
    close_import(&im);
    return status;
}
