/* manifest.c - makes and reads the manifest of a checkpoint. */
#include "manifest.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The end of a manifest, with its own hash. */
#define TAIL ",\n  \"xxh3\": \"%016" PRIx64 "\"\n}\n"
enum { TAIL_BYTES = sizeof ",\n  \"xxh3\": \"0123456789abcdef\"\n}\n" - 1, BODY_END = sizeof "\n}" - 1 };

/* ---- writing ---- */

static json_t *hex(uint64_t value)
{
    char text[17];

    snprintf(text, sizeof text, "%016" PRIx64, value);
    return json_string(text);
}

/* Returns the list of files as JSON; NULL: out of memory. */
static json_t *file_list(const pd_manifest *manifest)
{
    json_t *list = json_array();

    for (int i = 0; list != NULL && i < PD_KEEP_FILES; i++) {
        json_t *file = json_pack("{s:s, s:I, s:o}", "name", pd_keep_files[i], "bytes",
                                 (json_int_t)manifest->file[i].bytes, "xxh3", hex(manifest->file[i].xxh3));
        if (file != NULL && json_array_append_new(list, file) == 0) continue;
        json_decref(list);
        list = NULL;
    }
    return list;
}

/* Sets the members that a manifest may lack. Returns false if out of memory. */
static bool set_optional(json_t *body, const pd_manifest *m)
{
    if (m->place != m->step && json_object_set_new(body, "place", json_integer((json_int_t)m->place)) != 0)
        return false;
    return !m->together || json_object_set_new(body, "together", json_true()) == 0;
}

static json_t *body_of(const pd_manifest *m)
{
    json_t *body = json_pack("{s:i, s:s, s:o, s:I, s:I, s:s, s:s, s:s, s:o}", "format", PD_MANIFEST_FORMAT, "job",
                             m->job, "creator", hex(m->creator), "step", (json_int_t)m->step, "written_ms",
                             (json_int_t)m->about.written_ms, "paramd", m->about.paramd, "blas", m->about.blas, "cpu",
                             m->about.cpu, "files", file_list(m));

    if (body == NULL || set_optional(body, m)) return body;
    json_decref(body);
    return NULL;
}

int pd_manifest_text(char **out, size_t *bytes, const pd_manifest *manifest, pd_error *err)
{
    json_t *body = body_of(manifest);
    size_t n = json_dumpb(body, NULL, 0, JSON_INDENT(2));
    char *text = n > BODY_END ? malloc(n + TAIL_BYTES + 1) : NULL;

    if (text != NULL) {
        json_dumpb(body, text, n, JSON_INDENT(2));
        n -= BODY_END; /* the closing brace comes after the hash */
        snprintf(text + n, TAIL_BYTES + 1, TAIL, (uint64_t)XXH3_64bits(text, n));
        *out = text;
        *bytes = n + TAIL_BYTES;
    }
    json_decref(body);
    if (text == NULL) return pd_fail(err, PD_NO_MEMORY, "the manifest of a checkpoint: out of memory");
    return PD_OK;
}

/* ---- reading ---- */

static int damaged(pd_error *err, const char *what)
{
    return pd_fail(err, PD_DATA_LOSS, PD_KEEP_MANIFEST ": %s", what);
}

/* Copies a JSON string. Returns false if `from` is not a string, or too long. */
static bool read_text(char *out, size_t room, const json_t *from)
{
    const char *text = json_string_value(from);

    if (text == NULL || strlen(text) >= room) return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

static bool read_number(uint64_t *out, const json_t *from)
{
    if (!json_is_integer(from) || json_integer_value(from) < 0) return false;
    *out = (uint64_t)json_integer_value(from);
    return true;
}

static bool read_hex(uint64_t *out, const json_t *from)
{
    const char *text = json_string_value(from);

    if (text == NULL || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16) return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static bool read_files(pd_manifest *m, const json_t *list)
{
    bool ok = json_array_size(list) == PD_KEEP_FILES;

    for (size_t i = 0; ok && i < PD_KEEP_FILES; i++) {
        const json_t *file = json_array_get(list, i);
        const char *name = json_string_value(json_object_get(file, "name"));
        ok = name != NULL && strcmp(name, pd_keep_files[i]) == 0 &&
             read_number(&m->file[i].bytes, json_object_get(file, "bytes")) &&
             read_hex(&m->file[i].xxh3, json_object_get(file, "xxh3"));
    }
    return ok;
}

/* Reads the place, and whether servers go back together. A manifest lacks the place if it is the step. */
static bool read_optional(pd_manifest *m, const json_t *root)
{
    const json_t *place = json_object_get(root, "place"), *together = json_object_get(root, "together");

    m->place = m->step;
    m->together = json_is_true(together);
    return (place == NULL || read_number(&m->place, place)) && (together == NULL || json_is_boolean(together));
}

static int read_members(pd_manifest *m, const json_t *root, pd_error *err)
{
    uint64_t format;

    if (!read_number(&format, json_object_get(root, "format"))) return damaged(err, "it has no format");
    if (format != PD_MANIFEST_FORMAT)
        return pd_fail(err, PD_UNIMPLEMENTED, PD_KEEP_MANIFEST ": format %" PRIu64 ": this version of paramd reads %d",
                       format, PD_MANIFEST_FORMAT);
    if (read_text(m->job, sizeof m->job, json_object_get(root, "job")) && m->job[0] != '\0' &&
        read_hex(&m->creator, json_object_get(root, "creator")) &&
        read_number(&m->step, json_object_get(root, "step")) && read_optional(m, root) &&
        read_number(&m->about.written_ms, json_object_get(root, "written_ms")) &&
        read_text(m->about.paramd, sizeof m->about.paramd, json_object_get(root, "paramd")) &&
        read_text(m->about.blas, sizeof m->about.blas, json_object_get(root, "blas")) &&
        read_text(m->about.cpu, sizeof m->about.cpu, json_object_get(root, "cpu")) &&
        read_files(m, json_object_get(root, "files")))
        return PD_OK;
    return damaged(err, "a member is not there, or not of its kind");
}

/* Checks that the text ends with its own hash. */
static bool is_whole(const char *text, size_t bytes)
{
    char tail[TAIL_BYTES + 1];

    if (bytes < TAIL_BYTES) return false;
    snprintf(tail, sizeof tail, TAIL, (uint64_t)XXH3_64bits(text, bytes - TAIL_BYTES));
    return memcmp(text + bytes - TAIL_BYTES, tail, TAIL_BYTES) == 0;
}

int pd_manifest_parse(pd_manifest *manifest, const char *text, size_t bytes, pd_error *err)
{
    json_error_t why;
    json_t *root;
    int rc;

    *manifest = (pd_manifest){ 0 };
    if (!is_whole(text, bytes)) return damaged(err, "its XXH3 is not that of its text");
    root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &why);
    if (root == NULL && json_error_code(&why) == json_error_out_of_memory)
        return pd_fail(err, PD_NO_MEMORY, "the manifest of a checkpoint: out of memory");
    rc = read_members(manifest, root, err);
    json_decref(root);
    return rc;
}

uint64_t pd_manifest_bytes(const pd_manifest *manifest)
{
    uint64_t bytes = 0;

    for (int i = 0; i < PD_KEEP_FILES; i++) bytes += manifest->file[i].bytes;
    return bytes;
}
