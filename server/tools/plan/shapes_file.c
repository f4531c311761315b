/* shapes_file.c - reads names and shapes of parameters from a file. */
#include "shapes_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "message.h"
#include "text.h"
#include "safetensors.h"

enum { NAME_BYTES = 256 }; /* longest name of a parameter that the protocol allows, in bytes */

/* State of reading a file. */
typedef struct reader {
    pd_shapes *out;
    const char *path;
    int64_t line; /* line number in a text file; 0: the file is not read by lines */
    pd_error *err;
} reader;

static __attribute__((format(printf, 3, 4))) int refuse(const reader *r, int code, const char *format, ...)
{
    char text[400];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (r->line > 0) return pd_fail(r->err, code, "%.200s:%" PRId64 ": %s", r->path, r->line, text);
    return pd_fail(r->err, code, "%.200s: %s", r->path, text);
}

static int check_name(const reader *r, const char *name, size_t n)
{
    size_t good = pd_text_printable(name, n);
    uint32_t point;

    if (n == 0 || n > NAME_BYTES)
        return refuse(r, PD_INVALID_ARGUMENT, "a name of %zu bytes: expected 1 to %d", n, NAME_BYTES);
    if (good == n) return PD_OK;
    if (pd_utf8_next(name + good, n - good, &point) == 0)
        return refuse(r, PD_INVALID_ARGUMENT, "the name is not UTF-8");
    return refuse(r, PD_INVALID_ARGUMENT, "the name has a control character at byte %zu", good);
}

static int check_shape(const reader *r, const char *name, int n, const pd_shape *shape, int64_t *elements)
{
    char text[192];

    if (pd_shape_elements(shape, elements) != PD_OK)
        return refuse(r, PD_INVALID_ARGUMENT, "%.*s: the size of shape %s does not fit 64 bits", n, name,
                      pd_shape_text(shape, text, sizeof text));
    if (*elements == 0)
        return refuse(r, PD_INVALID_ARGUMENT, "%.*s: shape %s has no elements; leave it out", n, name,
                      pd_shape_text(shape, text, sizeof text));
    return PD_OK;
}

/* Makes room for one more parameter: doubles the capacity of the array when it is full. PD_RESOURCE_EXHAUSTED: the file
 * has too many parameters. PD_NO_MEMORY. */
static int make_room(const reader *r)
{
    pd_shapes *out = r->out;
    pd_shape_entry *entries;

    if (out->n == PD_SHAPES_MAX) return refuse(r, PD_RESOURCE_EXHAUSTED, "more than %d parameters", PD_SHAPES_MAX);
    if ((out->n & (out->n - 1)) != 0 || (out->n > 0 && out->n < 64)) return PD_OK;
    entries = realloc(out->entries, (out->n == 0 ? 64 : 2 * out->n) * sizeof *entries);
    if (entries == NULL) return refuse(r, PD_NO_MEMORY, "out of memory");
    out->entries = entries;
    return PD_OK;
}

static int check_axes(const reader *r, const char *name, int n, const char *axes, int rank)
{
    pd_error why;

    if (pd_axes_check(axes, rank, &why) == PD_OK) return PD_OK;
    return refuse(r, PD_INVALID_ARGUMENT, "%.*s: axes: %.200s", n < 160 ? n : 160, name, why.text);
}

/* Checks a parameter and adds it to the list. `axes` are n_axes bytes with the names of its dimensions, or NULL. */
static int add(const reader *r, const char *name, size_t n, const pd_shape *shape, const char *axes, size_t n_axes)
{
    pd_shape_entry entry = { .shape = *shape, .line = r->line };
    int rc = check_name(r, name, n);

    if (rc == PD_OK) rc = check_shape(r, name, (int)n, shape, &entry.elements);
    if (rc == PD_OK) rc = make_room(r);
    if (rc != PD_OK) return rc;
    if (n_axes > 0 && (entry.axes = strndup(axes, n_axes)) == NULL) return refuse(r, PD_NO_MEMORY, "out of memory");
    if (n_axes > 0) rc = check_axes(r, name, (int)n, entry.axes, shape->rank);
    if (rc == PD_OK && (entry.name = strndup(name, n)) == NULL) rc = refuse(r, PD_NO_MEMORY, "out of memory");
    if (rc != PD_OK) {
        free(entry.axes);
        return rc;
    }
    r->out->entries[r->out->n++] = entry;
    return PD_OK;
}

typedef struct word {
    const char *at;
    size_t n;
} word;

/* Returns the next word of a line of the file, which ends at `end`. Moves *at past the word. At the end of the line and
 * before a comment, the word is empty (n = 0). */
static word next_word(const char **at, const char *end)
{
    word w;

    *at += strspn(*at, " \t\r");
    w.at = *at;
    if (*at >= end || **at == '#') return (word){ end, 0 };
    w.n = strcspn(*at, " \t\r\n");
    *at += w.n;
    return w;
}

static int parse_dim(const reader *r, const char *name, int n, word w, int64_t *dim)
{
    bool fits = true;

    *dim = 0;
    for (size_t i = 0; i < w.n; i++) {
        if (w.at[i] < '0' || w.at[i] > '9')
            return refuse(r, PD_INVALID_ARGUMENT, "%.*s: expected a dimension, a whole number, not \"%.*s\"", n, name,
                          w.n < 40 ? (int)w.n : 40, w.at);
        fits = fits && !__builtin_mul_overflow(*dim, (int64_t)10, dim) &&
               !__builtin_add_overflow(*dim, (int64_t)(w.at[i] - '0'), dim);
    }
    return fits ? PD_OK
                : refuse(r, PD_INVALID_ARGUMENT, "%.*s: a dimension of %zu digits does not fit 64 bits", n, name, w.n);
}

static int add_dim(const reader *r, const char *name, int n, word w, pd_shape *shape)
{
    if (shape->rank == PD_MAX_RANK)
        return refuse(r, PD_INVALID_ARGUMENT, "%.*s: more than %d dimensions", n, name, PD_MAX_RANK);
    return parse_dim(r, name, n, w, &shape->dim[shape->rank++]);
}

/* Reads a shape in parentheses, such as "(768, 2304)", "(768,)" or "()", and moves *at past it. */
static int parse_tuple(const reader *r, const char *name, int n, const char **at, const char *end, pd_shape *shape)
{
    const char *close = memchr(*at, ')', (size_t)(end - *at));
    int rc = PD_OK;

    if (close == NULL) return refuse(r, PD_INVALID_ARGUMENT, "%.*s: missing ) after the shape", n, name);
    for ((*at)++; *at < close && rc == PD_OK; *at += **at == ',') {
        word w;
        *at += strspn(*at, " \t");
        if (*at == close) break;
        w = (word){ *at, strcspn(*at, " \t,)") };
        if (w.n == 0) return refuse(r, PD_INVALID_ARGUMENT, "%.*s: expected a dimension before \",\"", n, name);
        rc = add_dim(r, name, n, w, shape);
        *at += w.n;
        *at += strspn(*at, " \t");
    }
    *at = close + 1;
    return rc;
}

/* Reads a line of a text file: a parameter's name, its shape, and the names of its axes if given. */
static int parse_line(const reader *r, const char *at, const char *end)
{
    word name = next_word(&at, end), w;
    int shown = name.n < NAME_BYTES ? (int)name.n : NAME_BYTES, rc = PD_OK;
    pd_shape shape = { 0 };
    static const char names[] = "axes=";
    const size_t before = sizeof names - 1;

    if (name.n == 0) return PD_OK;
    at += strspn(at, " \t\r");
    if (*at == '(') rc = parse_tuple(r, name.at, shown, &at, end, &shape);
    while (rc == PD_OK && (w = next_word(&at, end)).n > 0) {
        if (w.n >= before && memcmp(w.at, names, before) == 0) {
            if (next_word(&at, end).n > 0)
                return refuse(r, PD_INVALID_ARGUMENT, "%.*s: unexpected text after axes=", shown, name.at);
            return add(r, name.at, name.n, &shape, w.at + before, w.n - before);
        }
        rc = add_dim(r, name.at, shown, w, &shape);
    }
    return rc == PD_OK ? add(r, name.at, name.n, &shape, NULL, 0) : rc;
}

/* Reads a text file with one parameter on each line. The text ends with a NUL. */
static int read_text(reader *r, const char *text, size_t bytes)
{
    int rc = PD_OK;

    if (strlen(text) != bytes)
        return refuse(r, PD_INVALID_ARGUMENT, "neither text nor a safetensors file: NUL at byte %zu", strlen(text));
    for (r->line = 1; rc == PD_OK && *text != '\0'; r->line++) {
        const char *end = strchrnul(text, '\n');
        rc = parse_line(r, text, end);
        text = *end == '\0' ? end : end + 1;
    }
    r->line = 0;
    return rc;
}

static int json_shape(const reader *r, const char *name, const json_t *list, pd_shape *shape)
{
    *shape = (pd_shape){ 0 };
    if (!json_is_array(list) || json_array_size(list) > PD_MAX_RANK)
        return refuse(r, PD_INVALID_ARGUMENT, "%.256s: expected a list of at most %d dimensions", name, PD_MAX_RANK);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *dim = json_array_get(list, i);
        if (!json_is_integer(dim) || json_integer_value(dim) < 0)
            return refuse(r, PD_INVALID_ARGUMENT, "%.256s: dimension %zu is not a whole number", name, i);
        shape->dim[shape->rank++] = json_integer_value(dim);
    }
    return PD_OK;
}

static int read_json(reader *r, const char *text, size_t bytes)
{
    json_error_t why;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why), *list;
    const char *name;
    int rc = PD_OK;

    if (root == NULL && json_error_code(&why) == json_error_out_of_memory)
        return refuse(r, PD_NO_MEMORY, "out of memory");
    r->line = root == NULL && why.line > 0 ? why.line : 0;
    if (root == NULL) return refuse(r, PD_INVALID_ARGUMENT, "JSON: %s", why.text);
    json_object_foreach(root, name, list)
    {
        const json_t *names = json_object_get(list, "axes");
        const char *axes = json_string_value(names);
        pd_shape shape;
        if (names != NULL && axes == NULL)
            rc = refuse(r, PD_INVALID_ARGUMENT, "%.256s: axes: expected a string, \"embed,mlp\"", name);
        if (json_is_object(list)) list = json_object_get(list, "shape");
        if (rc == PD_OK) rc = json_shape(r, name, list, &shape);
        if (rc == PD_OK) rc = add(r, name, strlen(name), &shape, axes, axes != NULL ? strlen(axes) : 0);
        if (rc != PD_OK) break;
    }
    json_decref(root);
    return rc;
}

static bool is_float(pd_st_dtype dtype)
{
    return dtype == PD_ST_F16 || dtype == PD_ST_BF16 || dtype == PD_ST_F32 || dtype == PD_ST_F64 ||
           dtype == PD_ST_F8_E4M3 || dtype == PD_ST_F8_E5M2;
}

static int read_tensors(const reader *r, const void *at, size_t bytes)
{
    pd_safetensors *file;
    const pd_st_tensor *tensors;
    pd_error why;
    size_t n;
    int rc = pd_safetensors_read(&file, at, bytes, &why);

    if (rc != PD_OK) return refuse(r, rc, "%.300s", why.text);
    tensors = pd_safetensors_tensors(file, &n);
    for (size_t i = 0; rc == PD_OK && i < n; i++) {
        if (is_float(tensors[i].dtype))
            rc = add(r, tensors[i].name, strlen(tensors[i].name), &tensors[i].shape, NULL, 0);
        else
            r->out->left_out++;
    }
    pd_safetensors_free(file);
    return rc;
}

/* Reads a text or JSON file from a copy that ends with a NUL. It is JSON if it begins with '{'. */
static int read_words(reader *r, const char *at, size_t bytes)
{
    char *text;
    int rc;

    if (bytes > PD_SHAPES_TEXT_BYTES)
        return refuse(r, PD_RESOURCE_EXHAUSTED, "%zu bytes; a shape file may have %lld", bytes, PD_SHAPES_TEXT_BYTES);
    if ((text = malloc(bytes + 1)) == NULL) return refuse(r, PD_NO_MEMORY, "out of memory");
    memcpy(text, at, bytes);
    text[bytes] = '\0';
    rc = text[strspn(text, " \t\r\n")] == '{' ? read_json(r, text, bytes) : read_text(r, text, bytes);
    free(text);
    return rc;
}

/* Returns whether the file is a safetensors file: its name ends in ".safetensors", or one of its first eight bytes is
 * zero. These bytes are the length of a header, of which the highest are zero; text has no zero bytes. */
static bool is_safetensors(const char *path, const void *at, size_t bytes)
{
    const char *dot = strrchr(path, '.');

    return (dot != NULL && strcmp(dot, ".safetensors") == 0) || memchr(at, '\0', bytes < 8 ? bytes : 8) != NULL;
}

static int read_bytes(reader *r, const void *at, size_t bytes)
{
    return is_safetensors(r->path, at, bytes) ? read_tensors(r, at, bytes) : read_words(r, at, bytes);
}

static int read_mapped(reader *r, int fd)
{
    struct stat st;
    void *at;
    int rc;

    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return refuse(r, PD_INVALID_ARGUMENT, "not a file");
    if (st.st_size == 0) return refuse(r, PD_INVALID_ARGUMENT, "the file is empty");
    /* A checkpoint is mapped into memory, not read, since only its header is needed. */
    at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (at == MAP_FAILED) return refuse(r, PD_NOT_FOUND, "cannot be read: %s", strerror(errno));
    rc = read_bytes(r, at, (size_t)st.st_size);
    munmap(at, (size_t)st.st_size);
    return rc;
}

/* Reads shapes from standard input: all its bytes, up to a limit. */
static int read_stream(reader *r)
{
    char *at = NULL, *more;
    size_t n = 0, room = 0;
    ssize_t got = 1;
    int rc = PD_OK;

    while (got > 0 && rc == PD_OK) {
        if (n == room) {
            room = room == 0 ? 1 << 16 : 2 * room;
            if (room > 2 * PD_SHAPES_TEXT_BYTES)
                rc = refuse(r, PD_RESOURCE_EXHAUSTED, "more than %lld bytes", PD_SHAPES_TEXT_BYTES);
            else if ((more = realloc(at, room)) == NULL)
                rc = refuse(r, PD_NO_MEMORY, "out of memory");
            else
                at = more;
            if (rc != PD_OK) break;
        }
        if ((got = read(STDIN_FILENO, at + n, room - n)) > 0) n += (size_t)got;
    }
    if (rc == PD_OK && got < 0) rc = refuse(r, PD_NOT_FOUND, "cannot be read: %s", strerror(errno));
    if (rc == PD_OK && n == 0) rc = refuse(r, PD_INVALID_ARGUMENT, "empty input");
    if (rc == PD_OK) rc = read_bytes(r, at, n);
    free(at);
    return rc;
}

static int read_path(reader *r)
{
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), rc;

    if (fd < 0) return refuse(r, PD_NOT_FOUND, "%s", strerror(errno));
    rc = read_mapped(r, fd);
    close(fd);
    return rc;
}

static int by_name(const void *left, const void *right)
{
    const pd_shape_entry *a = *(const pd_shape_entry *const *)left, *b = *(const pd_shape_entry *const *)right;
    int order = strcmp(a->name, b->name);

    return order != 0 ? order : (a > b) - (a < b);
}

/* Checks that each parameter's name occurs only once in the file. */
static int check_names(reader *r)
{
    const pd_shapes *out = r->out;
    const pd_shape_entry **sorted = malloc((out->n + 1) * sizeof *sorted);
    int rc = PD_OK;

    if (sorted == NULL) return refuse(r, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; i < out->n; i++) sorted[i] = &out->entries[i];
    qsort(sorted, out->n, sizeof *sorted, by_name);
    for (size_t i = 1; i < out->n && rc == PD_OK; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) != 0) continue;
        r->line = sorted[i]->line;
        rc = refuse(r, PD_INVALID_ARGUMENT, "%.256s: duplicate name, first in line %" PRId64, sorted[i]->name,
                    sorted[i - 1]->line);
    }
    free(sorted);
    return rc;
}

int pd_shapes_read(pd_shapes *out, const char *path, pd_error *err)
{
    bool stream = strcmp(path, "-") == 0;
    reader r = { .out = out, .path = stream ? "standard input" : path, .err = err };
    int rc;

    *out = (pd_shapes){ 0 };
    rc = stream ? read_stream(&r) : read_path(&r);
    if (rc == PD_OK) rc = check_names(&r);
    if (rc == PD_OK && out->n == 0) rc = refuse(&r, PD_INVALID_ARGUMENT, "no parameters");
    if (rc != PD_OK) pd_shapes_free(out);
    return rc;
}

void pd_shapes_free(pd_shapes *shapes)
{
    for (size_t i = 0; i < shapes->n; i++) {
        free(shapes->entries[i].name);
        free(shapes->entries[i].axes);
    }
    free(shapes->entries);
    *shapes = (pd_shapes){ 0 };
}
