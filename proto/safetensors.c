/* safetensors.c - reads and writes the header of a safetensors file, which lists the file's tensors. */
#include "safetensors.h"

#include <assert.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define META "__metadata__"

enum { LENGTH_BYTES = 8, DATA_ALIGN = 8 };

struct pd_safetensors {
    const uint8_t *data;
    uint64_t data_bytes;
    json_t *root;           /* the header of the file, parsed from JSON; it owns the names and the metadata */
    pd_st_tensor *tensors;  /* all tensors of the file, in the order of their data */
    pd_st_tensor **by_name; /* pointers to all tensors of the file, in the order of names */
    size_t n;
};

static const struct {
    const char *name;
    size_t size;
} dtypes[PD_ST_DTYPES] = {
    [PD_ST_BOOL] = { "BOOL", 1 },       [PD_ST_U8] = { "U8", 1 },           [PD_ST_I8] = { "I8", 1 },
    [PD_ST_F8_E5M2] = { "F8_E5M2", 1 }, [PD_ST_F8_E4M3] = { "F8_E4M3", 1 }, [PD_ST_I16] = { "I16", 2 },
    [PD_ST_U16] = { "U16", 2 },         [PD_ST_F16] = { "F16", 2 },         [PD_ST_BF16] = { "BF16", 2 },
    [PD_ST_I32] = { "I32", 4 },         [PD_ST_U32] = { "U32", 4 },         [PD_ST_F32] = { "F32", 4 },
    [PD_ST_F64] = { "F64", 8 },         [PD_ST_I64] = { "I64", 8 },         [PD_ST_U64] = { "U64", 8 },
};

size_t pd_st_dtype_size(pd_st_dtype dtype)
{
    return (unsigned)dtype < PD_ST_DTYPES ? dtypes[dtype].size : 0;
}

const char *pd_st_dtype_name(pd_st_dtype dtype)
{
    return (unsigned)dtype < PD_ST_DTYPES ? dtypes[dtype].name : "?";
}

static pd_st_dtype find_dtype(const char *name)
{
    int i = 0;
    while (i < PD_ST_DTYPES && strcmp(dtypes[i].name, name) != 0) i++;
    return (pd_st_dtype)i;
}

/* Computes how many bytes of data a tensor has. Returns false if the shape is invalid, or too large for any file. */
static bool count_bytes(const pd_st_tensor *tensor, uint64_t *bytes)
{
    int64_t elements;

    if (pd_shape_elements(&tensor->shape, &elements) != PD_OK) return false;
    *bytes = (uint64_t)elements * pd_st_dtype_size(tensor->dtype); /* cannot overflow, because pd_shape_elements limits
                                                                    * the number of elements */
    return true;
}

static int by_place(const void *left, const void *right)
{
    const pd_st_tensor *a = left, *b = right;

    if (a->offset != b->offset) return a->offset < b->offset ? -1 : 1;
    if (a->bytes != b->bytes) return a->bytes < b->bytes ? -1 : 1;
    return strcmp(a->name, b->name); /* empty tensors may have the same offset, so their names decide */
}

static int by_name(const void *left, const void *right)
{
    return strcmp((*(pd_st_tensor *const *)left)->name, (*(pd_st_tensor *const *)right)->name);
}

static int parse_json(pd_safetensors *file, const char *at, size_t bytes, pd_error *err)
{
    json_error_t why;

    if (bytes == 0 || at[0] != '{')
        return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: the header does not begin with {");
    file->root = json_loadb(at, bytes, JSON_REJECT_DUPLICATES, &why);
    if (file->root != NULL) return PD_OK;
    if (json_error_code(&why) == json_error_out_of_memory)
        return pd_fail(err, PD_NO_MEMORY, "safetensors: out of memory");
    return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: byte %d of the header: %s", why.position, why.text);
}

static int parse_meta(const json_t *meta, pd_error *err)
{
    const char *key;
    json_t *value;

    if (!json_is_object(meta)) return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: " META " is no object");
    json_object_foreach((json_t *)(uintptr_t)meta, key, value) if (!json_is_string(value)) return pd_fail(
        err, PD_INVALID_ARGUMENT, "safetensors: " META " %.100s: expected text", key);
    return PD_OK;
}

static int parse_shape(pd_st_tensor *tensor, const json_t *shape, pd_error *err)
{
    if (!json_is_array(shape) || json_array_size(shape) > PD_MAX_RANK)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "safetensors: tensor %.200s: expected a shape of at most %d "
                       "dimensions",
                       tensor->name, PD_MAX_RANK);
    tensor->shape.rank = (int)json_array_size(shape);
    for (int i = 0; i < tensor->shape.rank; i++) {
        const json_t *dim = json_array_get(shape, (size_t)i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: dimension %d is not a number",
                           tensor->name, i);
        tensor->shape.dim[i] = json_integer_value(dim);
    }
    return PD_OK;
}

/* Reads where a tensor's data is in the file. check_places later checks this place against the file's size and the
 * other tensors. */
static int parse_offsets(pd_st_tensor *tensor, const json_t *offsets, pd_error *err)
{
    const json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    uint64_t expected;

    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: expected data_offsets [begin, end]",
                       tensor->name);
    tensor->offset = (uint64_t)json_integer_value(begin);
    tensor->bytes = (uint64_t)json_integer_value(end) - tensor->offset;
    if (!count_bytes(tensor, &expected))
        return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: its shape is too large", tensor->name);
    if (tensor->bytes != expected)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "safetensors: tensor %.200s: %" PRIu64 " bytes of data: its shape and "
                       "dtype %s need %" PRIu64,
                       tensor->name, tensor->bytes, pd_st_dtype_name(tensor->dtype), expected);
    return PD_OK;
}

static int parse_tensor(pd_st_tensor *tensor, const char *name, const json_t *entry, pd_error *err)
{
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    int rc;

    tensor->name = name;
    if (dtype == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: expected dtype, shape and data_offsets",
                       name);
    tensor->dtype = find_dtype(dtype);
    if (tensor->dtype == PD_ST_DTYPES)
        return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: unknown dtype %.20s", name, dtype);
    rc = parse_shape(tensor, json_object_get(entry, "shape"), err);
    return rc != PD_OK ? rc : parse_offsets(tensor, json_object_get(entry, "data_offsets"), err);
}

static int parse_entries(pd_safetensors *file, pd_error *err)
{
    size_t most = json_object_size(file->root);
    const char *name;
    json_t *entry;
    int rc;

    file->tensors = calloc(most + 1, sizeof *file->tensors);
    file->by_name = calloc(most + 1, sizeof *file->by_name);
    if (file->tensors == NULL || file->by_name == NULL) return pd_fail(err, PD_NO_MEMORY, "safetensors: out of memory");
    json_object_foreach(file->root, name, entry)
    {
        if (strcmp(name, META) == 0)
            rc = parse_meta(entry, err);
        else
            rc = parse_tensor(&file->tensors[file->n++], name, entry, err);
        if (rc != PD_OK) return rc;
    }
    return PD_OK;
}

/* Checks that the data of the tensors fill the file without gaps and overlaps, and that no bytes are left at the
 * end. */
static int check_places(pd_safetensors *file, pd_error *err)
{
    uint64_t end = 0;

    qsort(file->tensors, file->n, sizeof *file->tensors, by_place);
    for (size_t i = 0; i < file->n; i++) {
        const pd_st_tensor *tensor = &file->tensors[i];
        if (tensor->offset != end)
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "safetensors: tensor %.200s: its data begins at "
                           "%" PRIu64 ", that before it ends at %" PRIu64,
                           tensor->name, tensor->offset, end);
        end += tensor->bytes; /* cannot overflow: both numbers are below 2^63 */
        if (end > file->data_bytes) break;
    }
    if (end != file->data_bytes)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "safetensors: the header describes data up to byte "
                       "%" PRIu64 ", the file has %" PRIu64,
                       end, file->data_bytes);
    for (size_t i = 0; i < file->n; i++) file->by_name[i] = &file->tensors[i];
    qsort(file->by_name, file->n, sizeof *file->by_name, by_name);
    return PD_OK;
}

/* Reads the header of a file of `whole` bytes, of which the first `bytes` bytes are in memory at `at`. */
static int read_file(pd_safetensors *file, const uint8_t *at, size_t bytes, uint64_t whole, pd_error *err)
{
    uint64_t header = 0;
    int rc;

    if (bytes < LENGTH_BYTES) return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: a file of %zu bytes", bytes);
    for (int i = 0; i < LENGTH_BYTES; i++) header |= (uint64_t)at[i] << (8 * i);
    if (header > bytes - LENGTH_BYTES)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "safetensors: a header of %" PRIu64 " bytes in a file of %zu: cut, or "
                       "another format",
                       header, bytes);
    if (header > PD_ST_MAX_HEADER)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "safetensors: a header of %" PRIu64 " bytes: at most %d are read",
                       header, PD_ST_MAX_HEADER);
    file->data = at + LENGTH_BYTES + header;
    file->data_bytes = whole - LENGTH_BYTES - header;
    if ((rc = parse_json(file, (const char *)at + LENGTH_BYTES, (size_t)header, err)) != PD_OK) return rc;
    if ((rc = parse_entries(file, err)) != PD_OK) return rc;
    return check_places(file, err);
}

int pd_safetensors_read(pd_safetensors **out, const void *at, size_t bytes, pd_error *err)
{
    return pd_safetensors_read_part(out, at, bytes, bytes, err);
}

int pd_safetensors_read_part(pd_safetensors **out, const void *at, size_t bytes, uint64_t whole, pd_error *err)
{
    pd_safetensors *file = calloc(1, sizeof *file);
    int rc;

    if (file == NULL) return pd_fail(err, PD_NO_MEMORY, "safetensors: out of memory");
    if ((rc = read_file(file, at, bytes, whole, err)) != PD_OK) {
        pd_safetensors_free(file);
        return rc;
    }
    *out = file;
    return PD_OK;
}

void pd_safetensors_free(pd_safetensors *file)
{
    if (file == NULL) return;
    json_decref(file->root);
    free(file->tensors);
    free(file->by_name);
    free(file);
}

const pd_st_tensor *pd_safetensors_tensors(const pd_safetensors *file, size_t *n)
{
    *n = file->n;
    return file->tensors;
}

const pd_st_tensor *pd_safetensors_find(const pd_safetensors *file, const char *name)
{
    pd_st_tensor wanted = { .name = name }, *key = &wanted;
    pd_st_tensor *const *found = bsearch(&key, file->by_name, file->n, sizeof *file->by_name, by_name);

    return found != NULL ? *found : NULL;
}

const void *pd_safetensors_data(const pd_safetensors *file, const pd_st_tensor *tensor)
{
    return file->data + tensor->offset;
}

const char *pd_safetensors_meta(const pd_safetensors *file, const char *key)
{
    return json_string_value(json_object_get(json_object_get(file->root, META), key));
}

/* Compares two tensors in the order of writing: by element type, the widest first, so that every tensor is aligned;
 * then by name. */
static int by_dtype(const void *left, const void *right)
{
    const pd_st_tensor *a = left, *b = right;

    if (a->dtype != b->dtype) return a->dtype > b->dtype ? -1 : 1;
    return strcmp(a->name, b->name);
}

static int lay_out(pd_st_tensor *tensors, size_t n, pd_error *err)
{
    uint64_t end = 0;

    for (size_t i = 0; i < n; i++)
        if (pd_st_dtype_size(tensors[i].dtype) == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: unknown dtype", tensors[i].name);
    if (n > 0) qsort(tensors, n, sizeof *tensors, by_dtype);
    for (size_t i = 0; i < n; i++) {
        tensors[i].offset = end;
        if (!count_bytes(&tensors[i], &tensors[i].bytes) || __builtin_add_overflow(end, tensors[i].bytes, &end) ||
            end > INT64_MAX)
            return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: invalid or oversized shape",
                           tensors[i].name);
    }
    return PD_OK;
}

/* Checks that no two tensors have the same name, and that none has the name "__metadata__". */
static int check_names(const pd_st_tensor *tensors, size_t n, pd_error *err)
{
    const pd_st_tensor **names = malloc((n + 1) * sizeof *names);
    const char *twice = NULL;

    if (names == NULL) return pd_fail(err, PD_NO_MEMORY, "safetensors: out of memory");
    for (size_t i = 0; i < n; i++) names[i] = &tensors[i];
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i + 1 < n && twice == NULL; i++)
        if (strcmp(names[i]->name, names[i + 1]->name) == 0) twice = names[i]->name;
    free(names);
    if (twice != NULL) return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: duplicate name", twice);
    for (size_t i = 0; i < n; i++)
        if (strcmp(tensors[i].name, META) == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: a tensor cannot have the name " META);
    return PD_OK;
}

/* Adds one entry of the metadata, a key and its value, to the JSON object. PD_INVALID_ARGUMENT: the object has the key
 * already, or the key or its value is not UTF-8. */
static int add_key(json_t *object, const pd_st_meta *meta, pd_error *err)
{
    json_t *value = json_string(meta->value);
    const char *wrong = NULL;

    if (value == NULL)
        wrong = "value is not UTF-8";
    else if (json_object_get(object, meta->key) != NULL)
        wrong = "name is a duplicate";
    else if (json_object_set(object, meta->key, value) != 0)
        wrong = "name is not UTF-8";
    json_decref(value);
    if (wrong == NULL) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: metadata %.200s: the %s", meta->key, wrong);
}

/* Makes a JSON object of the metadata. *out is NULL if there are no metadata. The caller frees it. */
static int make_meta(json_t **out, const pd_st_meta *meta, size_t n, pd_error *err)
{
    int rc = PD_OK;

    *out = n > 0 ? json_object() : NULL;
    if (n > 0 && *out == NULL) return pd_fail(err, PD_NO_MEMORY, "safetensors: out of memory");
    for (size_t i = 0; i < n && rc == PD_OK; i++) rc = add_key(*out, &meta[i], err);
    if (rc != PD_OK) json_decref(*out);
    return rc;
}

/* The memory to which a header is printed. The header is printed twice: first without memory, to count its bytes, then
 * into memory of that size. So a header of many tensors takes no more memory than its own bytes. */
typedef struct printer {
    char *at; /* NULL: bytes are only counted */
    size_t bytes, room;
} printer;

static void put_text(printer *p, const char *text)
{
    size_t n = strlen(text);

    if (p->at != NULL && n <= p->room - p->bytes) memcpy(p->at + p->bytes, text, n);
    p->bytes += n;
}

static int put_value(printer *p, const json_t *value, pd_error *err)
{
    char *at = p->at != NULL ? p->at + p->bytes : NULL;
    size_t n = json_dumpb(value, at, at != NULL ? p->room - p->bytes : 0, JSON_COMPACT | JSON_ENCODE_ANY);

    if (n == 0) return pd_fail(err, PD_NO_MEMORY, "safetensors: out of memory");
    p->bytes += n;
    return PD_OK;
}

static int put_tensor(printer *p, const pd_st_tensor *tensor, pd_error *err)
{
    json_t *name = json_string(tensor->name);
    char text[96];
    int rc;

    if (name == NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "safetensors: tensor %.200s: the name is not UTF-8", tensor->name);
    rc = put_value(p, name, err);
    json_decref(name);
    if (rc != PD_OK) return rc;
    snprintf(text, sizeof text, ":{\"dtype\":\"%s\",\"shape\":[", pd_st_dtype_name(tensor->dtype));
    put_text(p, text);
    for (int i = 0; i < tensor->shape.rank; i++) {
        snprintf(text, sizeof text, "%s%" PRId64, i > 0 ? "," : "", tensor->shape.dim[i]);
        put_text(p, text);
    }
    snprintf(text, sizeof text, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", tensor->offset,
             tensor->offset + tensor->bytes);
    put_text(p, text);
    return PD_OK;
}

static int put_header(printer *p, const pd_st_tensor *tensors, size_t n, const json_t *meta, pd_error *err)
{
    int rc = PD_OK;

    put_text(p, "{");
    if (meta != NULL) {
        put_text(p, "\"" META "\":");
        rc = put_value(p, meta, err);
    }
    for (size_t i = 0; i < n && rc == PD_OK; i++) {
        if (i > 0 || meta != NULL) put_text(p, ",");
        rc = put_tensor(p, &tensors[i], err);
    }
    put_text(p, "}");
    return rc;
}

/* Allocates and writes the beginning of a safetensors file: the header's length, the header as JSON, and padding. */
static int print_header(uint8_t **out, size_t *bytes, const pd_st_tensor *tensors, size_t n, const json_t *meta,
                        pd_error *err)
{
    printer p = { 0 };
    int rc = put_header(&p, tensors, n, meta, err);
    size_t length = p.bytes, padded = (length + DATA_ALIGN - 1) / DATA_ALIGN * DATA_ALIGN;
    uint8_t *header;

    if (rc != PD_OK) return rc;
    if (padded > PD_ST_MAX_HEADER)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "safetensors: a header of %zu bytes: at most %d are read", padded,
                       PD_ST_MAX_HEADER);
    if ((header = malloc(LENGTH_BYTES + padded)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "safetensors: out of memory");
    p = (printer){ .at = (char *)header + LENGTH_BYTES, .room = length };
    if ((rc = put_header(&p, tensors, n, meta, err)) != PD_OK) {
        free(header);
        return rc;
    }
    assert(p.bytes == length);
    for (int i = 0; i < LENGTH_BYTES; i++) header[i] = (uint8_t)((uint64_t)padded >> (8 * i));
    memset(header + LENGTH_BYTES + length, ' ', padded - length);
    *out = header;
    *bytes = LENGTH_BYTES + padded;
    return PD_OK;
}

int pd_safetensors_header(uint8_t **out, size_t *bytes, pd_st_tensor *tensors, size_t n, const pd_st_meta *meta,
                          size_t n_meta, pd_error *err)
{
    json_t *object;
    int rc = lay_out(tensors, n, err);

    if (rc == PD_OK) rc = check_names(tensors, n, err);
    if (rc == PD_OK) rc = make_meta(&object, meta, n_meta, err);
    if (rc != PD_OK) return rc;
    rc = print_header(out, bytes, tensors, n, object, err);
    json_decref(object);
    return rc;
}
