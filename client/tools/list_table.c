/* list_table.c - prints a daemon's lists as tables, as the table of their columns describes them. */
#include "list_table.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <string.h>

#include "format.h"
#include "result.h"

static const void *field_at(const pd_column *column, const void *entry)
{
    return pd_message_at(entry, pd_message_field(entry, column->field));
}

static uint64_t number_of(const pd_column *column, const void *entry)
{
    const ProtobufCFieldDescriptor *field = pd_message_field(entry, column->field);
    const void *at = pd_message_at(entry, field);

    return field->type == PROTOBUF_C_TYPE_UINT32 ? *(const uint32_t *)at : *(const uint64_t *)at;
}

void pd_cell_text(pd_table *table, const pd_column *column, const void *entry)
{
    pd_table_cell(table, "%s", *(char *const *)field_at(column, entry));
}

void pd_cell_text_or_dash(pd_table *table, const pd_column *column, const void *entry)
{
    const char *text = *(char *const *)field_at(column, entry);

    pd_table_cell(table, "%s", text[0] != '\0' ? text : "-");
}

void pd_cell_number(pd_table *table, const pd_column *column, const void *entry)
{
    pd_table_cell(table, "%" PRIu64, number_of(column, entry));
}

void pd_cell_count(pd_table *table, const pd_column *column, const void *entry)
{
    char text[PD_CELL];

    pd_table_cell(table, "%s", pd_count_text(text, number_of(column, entry)));
}

void pd_cell_bytes(pd_table *table, const pd_column *column, const void *entry)
{
    char text[PD_CELL];

    pd_table_cell(table, "%s", pd_bytes_text(text, number_of(column, entry)));
}

void pd_cell_shape(pd_table *table, const pd_column *column, const void *entry)
{
    const ProtobufCFieldDescriptor *field = pd_message_field(entry, column->field);
    const uint64_t *dims = *(const uint64_t *const *)pd_message_at(entry, field);
    pd_shape shape = { 0 };
    char text[192];

    for (size_t i = 0; i < pd_message_count(entry, field) && i < PD_MAX_RANK; i++)
        shape.dim[shape.rank++] = (int64_t)dims[i];
    pd_table_cell(table, "%s", pd_shape_text(&shape, text, sizeof text));
}

static void real_cell(pd_table *table, const char *format, double value)
{
    char text[PD_CELL];

    snprintf(text, sizeof text, format, value);
    pd_table_cell(table, "%s", value == 0 ? "-" : text);
}

double pd_column_number(const pd_column *column, const void *entry)
{
    return *(const double *)field_at(column, entry);
}

void pd_cell_power(pd_table *table, const pd_column *column, const void *entry)
{
    real_cell(table, "%.2e", pd_column_number(column, entry));
}

void pd_cell_decimal(pd_table *table, const pd_column *column, const void *entry)
{
    real_cell(table, "%.2f", pd_column_number(column, entry));
}

static bool is_shown(const pd_column *column, bool wide)
{
    return wide || column->title[0] != '+';
}

/* Returns whether the output says on which shard an entry lies. */
static bool is_placed(const pd_list *list, const pd_line *line)
{
    return list->placed && line->asked->n_shards > 1;
}

static pd_table *new_table(const pd_list *list, const pd_line *line)
{
    char titles[512] = "";
    size_t used = 0;

    for (const pd_column *c = list->columns; c->title != NULL; c++)
        if (is_shown(c, line->wide))
            used += (size_t)snprintf(titles + used, sizeof titles - used, "%s%s", used == 0 ? "" : "|",
                                     c->title + (c->title[0] == '+'));
    if (is_placed(list, line)) snprintf(titles + used, sizeof titles - used, "|>SHARD");
    return pd_table_new(titles);
}

pd_list_output pd_list_begin(const pd_list *list, const pd_line *line)
{
    return (pd_list_output){ .list = list,
                             .line = line,
                             .table = line->json ? NULL : new_table(list, line),
                             .json = line->json ? json_array() : NULL };
}

void pd_list_add(pd_list_output *out, const ProtobufCMessage *entry)
{
    bool placed = is_placed(out->list, out->line);

    out->n++;
    if (out->json != NULL) {
        json_t *object = pd_message_json(entry);
        if (placed) json_object_set_new(object, "shard", json_integer(out->line->asked->shard));
        json_array_append_new(out->json, object);
    }
    for (const pd_column *c = out->list->columns; out->table != NULL && c->title != NULL; c++)
        if (is_shown(c, out->line->wide)) c->cell(out->table, c, entry);
    if (placed && out->table != NULL) pd_table_cell(out->table, "%u", out->line->asked->shard);
}

void pd_list_add_page(void *arg, const Paramd__ListReply *page)
{
    pd_list_output *out = arg;
    const ProtobufCFieldDescriptor *field = pd_message_field(&page->base, out->list->name);
    const ProtobufCMessage *const *entries = *(const ProtobufCMessage *const *const *)pd_message_at(&page->base, field);

    for (size_t i = 0; i < pd_message_count(&page->base, field); i++) pd_list_add(out, entries[i]);
}

int pd_list_end(pd_list_output *out, int rc, const pd_error *err)
{
    if (rc == PD_OK && out->line->json) return pd_result_json(json_pack("{s:o}", out->list->name, out->json));
    json_decref(out->json);
    if (rc == PD_OK) return pd_result_table(out->line, out->table, out->list->none);
    pd_table_free(out->table);
    return pd_result_fail(out->line->json, err);
}

/* The state of fetching a list from the daemon, page by page. */
typedef struct fetching {
    const char *pattern; /* pattern of parameter names; NULL: all parameters */
    pd_page_user *use;
    void *arg;
    size_t entries; /* number of entries fetched so far */
} fetching;

static void use_page(void *arg, const Paramd__ListReply *page)
{
    fetching *f = arg;

    f->entries += page->n_jobs + page->n_params + page->n_workers + page->n_roots + page->n_settings + page->n_state +
                  page->n_rounds + page->n_members;
    f->use(f->arg, page);
}

static void count_matches(void *arg, const Paramd__ListReply *page)
{
    fetching *f = arg;

    for (size_t i = 0; i < page->n_params; i++) f->entries += fnmatch(f->pattern, page->params[i]->name, 0) == 0;
}

int pd_list_check_match(pd_cluster *cluster, const char *job, const char *pattern, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    fetching f = { .pattern = pattern };
    int rc;

    request.what = PARAMD__LIST_KIND__LIST_PARAMS;
    request.job = (char *)job;
    rc = pd_cluster_list(cluster, &request, count_matches, &f, err);
    if (rc != PD_OK || f.entries > 0) return rc;
    return pd_fail(err, PD_NOT_FOUND, "no parameter matches '%.200s'", pattern);
}

int pd_list_fetch(const pd_line *line, unsigned what, pd_page_user *use, void *arg, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    fetching f = { line->n_args > 1 ? line->args[1] : NULL, use, arg, 0 };
    pd_cluster cluster;
    int rc = pd_cluster_open(&cluster, line, 0, err);

    request.what = what;
    if (line->n_args > 0) request.job = line->args[0];
    if (f.pattern != NULL) request.param = (char *)f.pattern;
    if (rc == PD_OK) rc = pd_cluster_list(&cluster, &request, use_page, &f, err);
    if (rc == PD_OK && f.entries == 0 && f.pattern != NULL)
        rc = pd_list_check_match(&cluster, line->args[0], f.pattern, err);
    pd_cluster_close(&cluster);
    return rc;
}
