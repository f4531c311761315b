/* weights_file.c - writes and reads the file weights.safetensors of a checkpoint. */
#include "weights_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pages.h"
#include "safetensors.h"

/* ALIGN: weights begin at multiples of so many bytes in memory. LENGTH_BYTES: bytes of the header's length, before the
 * header. SPARE: most bytes of the header for one parameter without its name, and for the metadata. */
enum { ALIGN = 64, LENGTH_BYTES = 8, SPARE = 320 };

uint64_t pd_weights_file_bytes(const pd_checkpoint_image *kept)
{
    uint64_t bytes = SPARE + 6 * strlen(kept->job) + PD_DISK_BLOCK;

    for (uint32_t i = 0; i < kept->n_params; i++)
        bytes += SPARE + 6 * strlen(kept->params[i].name) + sizeof(float) * (uint64_t)kept->params[i].elements;
    return bytes;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp((*(pd_checkpoint_param *const *)left)->name, (*(pd_checkpoint_param *const *)right)->name);
}

/* Returns pointers to the parameters, sorted by name. NULL: out of memory. */
static pd_checkpoint_param **by_name(const pd_checkpoint_image *kept)
{
    pd_checkpoint_param **list = calloc(kept->n_params + 1u, sizeof *list);

    if (list == NULL) return NULL;
    for (uint32_t i = 0; i < kept->n_params; i++) list[i] = &kept->params[i];
    if (kept->n_params > 0) qsort(list, kept->n_params, sizeof *list, compare_names);
    return list;
}

/* ---- writing ---- */

/* Adds spaces to the header, so that the weights begin at a multiple of PD_DISK_BLOCK and can be written without
 * copying them. */
static int pad_header(uint8_t **header, size_t *bytes, pd_error *err)
{
    size_t padded = (*bytes + PD_DISK_BLOCK - 1) / PD_DISK_BLOCK * PD_DISK_BLOCK;
    uint8_t *moved = realloc(*header, padded);

    if (moved == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    memset(moved + *bytes, ' ', padded - *bytes);
    for (int i = 0; i < LENGTH_BYTES; i++) moved[i] = (uint8_t)((uint64_t)(padded - LENGTH_BYTES) >> (8 * i));
    *header = moved;
    *bytes = padded;
    return PD_OK;
}

static int make_header(uint8_t **header, size_t *bytes, const pd_checkpoint_image *kept,
                       pd_checkpoint_param *const *order, pd_error *err)
{
    pd_st_tensor *tensors = calloc(kept->n_params + 1u, sizeof *tensors);
    char step[24];
    const pd_st_meta meta[] = { { "job", kept->job }, { "step", step } };
    int rc;

    snprintf(step, sizeof step, "%" PRIu64, kept->step);
    if (tensors == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    for (uint32_t i = 0; i < kept->n_params; i++)
        tensors[i] = (pd_st_tensor){ .name = order[i]->name, .dtype = PD_ST_F32, .shape = order[i]->shape };
    rc = pd_safetensors_header(header, bytes, tensors, kept->n_params, meta, sizeof meta / sizeof *meta, err);
    free(tensors);
    return rc == PD_OK ? pad_header(header, bytes, err) : rc;
}

int pd_weights_file_write(pd_file_writer *writer, const char *dir, const pd_checkpoint_image *kept, pd_file_sum *sum,
                          pd_error *err)
{
    pd_checkpoint_param **order = by_name(kept);
    uint8_t *header = NULL;
    size_t bytes;
    int rc = order != NULL ? PD_OK : pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");

    if (rc == PD_OK) rc = make_header(&header, &bytes, kept, order, err);
    if (rc == PD_OK)
        rc = pd_file_writer_open(writer, dir, pd_keep_files[PD_KEEP_WEIGHTS], pd_weights_file_bytes(kept), err);
    if (rc == PD_OK) rc = pd_file_writer_put(writer, header, bytes, err);
    for (uint32_t i = 0; i < kept->n_params && rc == PD_OK; i++) {
        if (kept->lend_weights != NULL)
            rc = kept->lend_weights(kept->read_arg, (uint32_t)(order[i] - kept->params), err);
        if (rc == PD_OK)
            rc = pd_file_writer_put(writer, order[i]->weights, sizeof(float) * (size_t)order[i]->elements, err);
    }
    if (rc == PD_OK) rc = pd_file_writer_close(writer, sum, err);
    free(header);
    free(order);
    return rc;
}

/* ---- reading ---- */

/* A weights.safetensors that is being read. */
typedef struct pd_weights_file {
    pd_file_reader file;
    const pd_checkpoint_image *kept;
    pd_checkpoint_param **order; /* the parameters, sorted by name */
    uint8_t *header;
    pd_safetensors *tensors;
    uint64_t data; /* offset at which the data of the first tensor begins */
    bool open;
} reading;

/* Reads the header. A header that is longer than the file or PD_ST_MAX_HEADER is damaged. */
static int read_header(reading *r, pd_error *err)
{
    uint64_t length = 0;
    uint8_t at[LENGTH_BYTES];
    pd_error why = { 0 };
    int rc = pd_file_reader_peek(&r->file, 0, at, sizeof at, err);

    if (rc != PD_OK) return rc;
    for (int i = 0; i < LENGTH_BYTES; i++) length |= (uint64_t)at[i] << (8 * i);
    if (length > r->file.bytes - LENGTH_BYTES || length > PD_ST_MAX_HEADER)
        return pd_file_reader_damaged(&r->file, err, "its header is longer than it can be");
    if ((r->header = malloc(LENGTH_BYTES + (size_t)length)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    rc = pd_file_reader_take(&r->file, r->header, LENGTH_BYTES + (size_t)length, err);
    r->data = r->file.at;
    if (rc == PD_OK) rc = pd_safetensors_read_part(&r->tensors, r->header, (size_t)r->file.at, r->file.bytes, &why);
    if (rc == PD_NO_MEMORY || why.code == PD_OK) return rc == PD_NO_MEMORY ? pd_fail(err, rc, "%s", why.text) : rc;
    return pd_file_reader_damaged(&r->file, err, why.text);
}

/* Allocates memory for the weights of all parameters, and lets to[i] point to the place of parameter i. The shapes
 * equal those in the file, so the memory is about as large as the file. */
static int place_weights(pd_checkpoint_image *kept, float **to, pd_error *err)
{
    size_t bytes = 0;
    uint8_t *at;

    for (uint32_t i = 0; i < kept->n_params; i++)
        bytes += (sizeof(float) * (size_t)kept->params[i].elements + ALIGN - 1) / ALIGN * ALIGN;
    if ((at = kept->memory = pd_pages_new(bytes)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "the weights of a checkpoint, %zu bytes: out of memory", bytes);
    for (uint32_t i = 0; i < kept->n_params; i++) {
        kept->params[i].weights = to[i] = (float *)(void *)at;
        at += (sizeof(float) * (size_t)kept->params[i].elements + ALIGN - 1) / ALIGN * ALIGN;
    }
    return PD_OK;
}

/* Checks that the file has exactly the parameters that state.bin has. */
static int compare(reading *r, pd_error *err)
{
    size_t n;

    (void)pd_safetensors_tensors(r->tensors, &n);
    if (n != r->kept->n_params) return pd_file_reader_damaged(&r->file, err, "it has other parameters than state.bin");
    for (uint32_t i = 0; i < n; i++) {
        const pd_st_tensor *tensor = pd_safetensors_find(r->tensors, r->order[i]->name);
        if (tensor == NULL || tensor->dtype != PD_ST_F32 || !pd_shape_equal(&tensor->shape, &r->order[i]->shape) ||
            (i > 0 && compare_names(&r->order[i - 1], &r->order[i]) == 0))
            return pd_file_reader_damaged(&r->file, err, "it has other parameters than state.bin");
    }
    return PD_OK;
}

/* Reads all weights in the order of the file, the weights of parameter i to the memory to[i]. */
static int read_weights(reading *r, float *const *to, pd_error *err)
{
    size_t n;
    const pd_st_tensor *tensors = pd_safetensors_tensors(r->tensors, &n);
    int rc = PD_OK;

    for (size_t i = 0; i < n && rc == PD_OK; i++) {
        pd_checkpoint_param wanted = { .name = (char *)(uintptr_t)tensors[i].name }, *key = &wanted;
        pd_checkpoint_param *const *found = bsearch(&key, r->order, n, sizeof *r->order, compare_names);
        rc = pd_file_reader_take(&r->file, to[*found - r->kept->params], (size_t)tensors[i].bytes, err);
    }
    return rc;
}

/* Opens the file, and checks that it has exactly the parameters of the checkpoint. */
static int begin(reading *r, const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                 const pd_checkpoint_image *kept, pd_error *err)
{
    int rc;

    *r = (reading){ .kept = kept };
    if ((rc = pd_file_reader_open(&r->file, disk, dir, pd_keep_files[PD_KEEP_WEIGHTS], sum, err)) != PD_OK) return rc;
    r->open = true;
    if ((r->order = by_name(kept)) == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    rc = read_header(r, err);
    return rc == PD_OK ? compare(r, err) : rc;
}

static int end(reading *r, int rc, pd_error *err)
{
    if (r->open) rc = pd_file_reader_close(&r->file, rc, err);
    pd_safetensors_free(r->tensors);
    free(r->header);
    free(r->order);
    return rc;
}

int pd_weights_file_read(const pd_disk *disk, const char *dir, const pd_file_sum *sum, pd_checkpoint_image *kept,
                         pd_error *err)
{
    float **to = calloc(kept->n_params + 1u, sizeof *to);
    reading r;
    int rc;

    if (to == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    rc = begin(&r, disk, dir, sum, kept, err);
    if (rc == PD_OK) rc = place_weights(kept, to, err);
    if (rc == PD_OK) rc = read_weights(&r, to, err);
    free(to);
    return end(&r, rc, err);
}

int pd_weights_file_read_to(const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                            const pd_checkpoint_image *kept, float *const *to, pd_error *err)
{
    reading r;
    int rc = begin(&r, disk, dir, sum, kept, err);

    if (rc == PD_OK) rc = read_weights(&r, to, err);
    return end(&r, rc, err);
}

/* ---- reading ranges ---- */

int pd_weights_file_open(pd_weights_file **out, const pd_disk *disk, const char *dir, const pd_file_sum *sum,
                         const pd_checkpoint_image *kept, pd_error *err)
{
    reading *r = calloc(1, sizeof *r);
    int rc;

    if (r == NULL) return pd_fail(err, PD_NO_MEMORY, "a checkpoint: out of memory");
    if ((rc = begin(r, disk, dir, sum, kept, err)) == PD_OK) {
        *out = r;
        return PD_OK;
    }
    (void)end(r, rc, NULL);
    free(r);
    return rc;
}

int pd_weights_file_pick(pd_weights_file *r, uint32_t i, int64_t first, int64_t n, float *to, pd_error *err)
{
    const pd_st_tensor *tensor = pd_safetensors_find(r->tensors, r->kept->params[i].name);

    return pd_file_reader_peek(&r->file, r->data + tensor->offset + sizeof *to * (uint64_t)first, to,
                               sizeof *to * (size_t)n, err);
}

void pd_weights_file_close(pd_weights_file *r)
{
    if (r == NULL) return;
    (void)end(r, PD_CANCELLED, NULL);
    free(r);
}
