/* cluster_value.c - writes and reads the values of keys of shards and spares. */
#include "cluster_value.h"

#include "text.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEX = 17 };

int pd_cluster_value_write(char *out, const pd_cluster_value *value, pd_error *err)
{
    char life[HEX], process[HEX];
    json_t *root;
    size_t n;

    snprintf(life, sizeof life, "%016" PRIx64, value->life);
    snprintf(process, sizeof process, "%016" PRIx64, value->process);
    root = json_pack("{s:s, s:s, s:s, s:s, s:i}", "url", value->url, "http", value->http, "life", life, "process",
                     process, "shards", (int)value->shards);
    if (root == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory for a key of the engine");
    n = json_dumpb(root, out, PD_ENGINE_VALUE - 1, JSON_COMPACT);
    json_decref(root);
    if (n == 0 || n >= PD_ENGINE_VALUE)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.100s: URL too long for the engine", value->url);
    out[n] = '\0';
    return PD_OK;
}

static bool read_url(char out[PD_CLUSTER_URL], const json_t *root, const char *name)
{
    const char *text = json_string_value(json_object_get(root, name));

    if (text == NULL || strlen(text) >= PD_CLUSTER_URL || pd_text_printable(text, strlen(text)) != strlen(text))
        return false;
    strcpy(out, text);
    return true;
}

static bool read_hex(uint64_t *out, const json_t *root, const char *name)
{
    const char *text = json_string_value(json_object_get(root, name));

    if (text == NULL || strlen(text) != HEX - 1 || strspn(text, "0123456789abcdef") != HEX - 1) return false;
    *out = strtoull(text, NULL, 16);
    return true;
}

static const char *read_members(pd_cluster_value *out, const json_t *root)
{
    const json_t *shards = json_object_get(root, "shards");

    *out = (pd_cluster_value){ 0 };
    if (!read_url(out->url, root, "url")) return "url";
    if (!read_url(out->http, root, "http")) return "http";
    if (!read_hex(&out->life, root, "life")) return "life";
    if (!read_hex(&out->process, root, "process")) return "process";
    if (!json_is_integer(shards) || json_integer_value(shards) < 1 || json_integer_value(shards) > PD_MAX_SHARDS)
        return "shards";
    out->shards = (uint32_t)json_integer_value(shards);
    return NULL;
}

int pd_cluster_value_read(pd_cluster_value *out, const char *text, pd_error *err)
{
    json_error_t where;
    json_t *root = json_loads(text, 0, &where);
    const char *wrong = read_members(out, root);

    json_decref(root);
    if (root == NULL) return pd_fail(err, PD_DATA_LOSS, "not JSON (byte %d)", where.position);
    return wrong == NULL ? PD_OK : pd_fail(err, PD_DATA_LOSS, "no valid member \"%s\"", wrong);
}
