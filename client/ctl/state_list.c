/* state_list.c - fetches the list of a job's optimizer state tensors, and prints it: the command state. */
#include "state_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "format.h"
#include "list_table.h"
#include "result.h"

static int compare_whole(const void *left, const void *right)
{
    const pd_state_tensor *a = left, *b = right;
    int order = strcmp(a->param, b->param);

    if (order == 0) order = strcmp(a->slot, b->slot);
    if (order == 0) order = (a->number > b->number) - (a->number < b->number);
    return order != 0 ? order : (a->block > b->block) - (a->block < b->block);
}

static int compare_pieces(const void *left, const void *right)
{
    const pd_state_tensor *a = left, *b = right;
    int order = compare_whole(left, right);

    return order != 0 ? order : (a->part > b->part) - (a->part < b->part);
}

void pd_state_list_sort(pd_state_list *list)
{
    if (list->n > 0) qsort(list->at, list->n, sizeof *list->at, compare_pieces);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* Returns the list's own copy of a parameter's name. Each name is copied only once: the tensors of a parameter
 * arrive one after the other, so only the last name is compared. NULL: out of memory. */
static const char *keep_name(pd_state_list *list, const char *name)
{
    const char **more;

    if (list->n_names > 0 && strcmp(list->names[list->n_names - 1], name) == 0) return list->names[list->n_names - 1];
    if ((more = realloc(list->names, (list->n_names + 1) * sizeof *more)) == NULL) return NULL;
    list->names = more;
    if ((more[list->n_names] = strdup(name)) == NULL) return NULL;
    return more[list->n_names++];
}

/* Adds a tensor of optimizer state to the list. PD_NO_MEMORY: out of memory. PD_DATA_LOSS: the daemon sent an
 * invalid shape. */
static int add(pd_state_list *list, const Paramd__StateInfo *from, uint32_t shard, pd_error *err)
{
    pd_state_tensor *more = realloc(list->at, (list->n + 1) * sizeof *more), *to;

    if (more == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    list->at = more;
    to = &more[list->n];
    *to = (pd_state_tensor){ .number = from->number, .block = from->block, .bytes = from->bytes, .kept = from->kept };
    snprintf(to->slot, sizeof to->slot, "%s", from->slot);
    snprintf(to->storage, sizeof to->storage, "%s", from->storage);
    for (size_t i = 0; i < from->n_shape && i < PD_MAX_RANK; i++)
        to->shape.dim[to->shape.rank++] = (int64_t)from->shape[i];
    to->follows_known = from->follows_known && from->n_follows == (size_t)to->shape.rank;
    for (int d = 0; to->follows_known && d < to->shape.rank; d++) to->follows[d] = from->follows[d];
    if (pd_shape_elements(&to->shape, &to->elements) != PD_OK)
        return pd_fail(err, PD_DATA_LOSS, "the daemon sent an invalid shape");
    if ((to->param = keep_name(list, from->param)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    to->own = (pd_state_piece){ shard, to->param, to->block, to->shape, to->elements };
    list->n++;
    return PD_OK;
}

typedef struct fetching {
    pd_state_list *list;
    const uint32_t *shard; /* number of the daemon that has sent the page */
    pd_error err;          /* error of the first tensor that could not be added to the list */
} fetching;

static void add_page(void *arg, const Paramd__ListReply *page)
{
    fetching *f = arg;

    for (size_t i = 0; f->err.code == PD_OK && i < page->n_state; i++) add(f->list, page->state[i], *f->shard, &f->err);
}

int pd_state_list_fetch(pd_state_list *out, pd_cluster *cluster, const char *job, const char *glob, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    fetching f = { .list = out, .shard = &cluster->line->asked->shard };
    int rc;

    *out = (pd_state_list){ 0 };
    request.what = PARAMD__LIST_KIND__LIST_STATE;
    request.job = (char *)job;
    if (glob != NULL) request.param = (char *)glob;
    rc = pd_cluster_list(cluster, &request, add_page, &f, err);
    if (rc == PD_OK && (rc = f.err.code) != PD_OK) *err = f.err;
    if (rc != PD_OK) return rc;
    if (out->n == 0) return PD_OK;
    pd_state_list_sort(out);
    qsort(out->names, out->n_names, sizeof *out->names, compare_names);
    return PD_OK;
}

void pd_state_list_free(pd_state_list *list)
{
    for (size_t i = 0; i < list->n_names; i++) free((char *)list->names[i]);
    free(list->names);
    free(list->at);
    free(list->pieces);
    *list = (pd_state_list){ 0 };
}

void pd_state_list_excuse(const pd_state_list *list, const char *param)
{
    size_t first = 0, end = list->n;
    bool any = false;

    while (first < end) {
        size_t middle = first + (end - first) / 2;
        if (strcmp(list->at[middle].param, param) < 0)
            first = middle + 1;
        else
            end = middle;
    }
    for (; end < list->n && strcmp(list->at[end].param, param) == 0; end++) any = any || list->at[end].covered > 0;
    for (; !any && first < end; first++) list->at[first].fresh = true;
}

pd_state_tensor *pd_state_list_find(const pd_state_list *list, const char *param, const char *slot, int number,
                                    int block)
{
    pd_state_tensor wanted = { .param = param, .number = number, .block = block };

    if (list->n == 0) return NULL;
    snprintf(wanted.slot, sizeof wanted.slot, "%s", slot);
    return bsearch(&wanted, list->at, list->n, sizeof *list->at, compare_whole);
}

char *pd_state_tensor_name(const pd_state_tensor *tensor, char *text, size_t size)
{
    char block[32] = "", number[32] = "";

    if (tensor->block >= 0) snprintf(block, sizeof block, "block_%d.", tensor->block);
    if (tensor->number >= 0) snprintf(number, sizeof number, ".%d", tensor->number);
    snprintf(text, size, "%s%s%s", block, tensor->slot, number);
    return text;
}

/* Writes to which dimension of the parameter each dimension of the tensor is tied, such as "0,1". "-": to none.
 * "?": the daemon does not know. Returns `text`. */
static char *follows_text(const pd_state_tensor *tensor, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "%s", tensor->follows_known ? "-" : "?");
    for (int d = 0; tensor->follows_known && d < tensor->shape.rank && used < size; d++) {
        if (tensor->follows[d] < 0)
            used += (size_t)snprintf(text + used, size - used, "%s-", d > 0 ? "," : "");
        else
            used += (size_t)snprintf(text + used, size - used, "%s%d", d > 0 ? "," : "", tensor->follows[d]);
    }
    return text;
}

static json_t *follows_json(const pd_state_tensor *tensor)
{
    json_t *list = tensor->follows_known ? json_array() : json_null();

    for (int d = 0; tensor->follows_known && d < tensor->shape.rank; d++)
        json_array_append_new(list, tensor->follows[d] < 0 ? json_null() : json_integer(tensor->follows[d]));
    return list;
}

static void row(pd_table *table, const pd_state_tensor *tensor, bool placed)
{
    char text[192];

    pd_table_cell(table, "%s", tensor->param);
    pd_table_cell(table, "%s", pd_state_tensor_name(tensor, text, sizeof text));
    pd_table_cell(table, "%s", pd_shape_text(&tensor->shape, text, sizeof text));
    pd_table_cell(table, "%s", follows_text(tensor, text, sizeof text));
    pd_table_cell(table, "%s", tensor->storage);
    pd_table_cell(table, "%s", pd_bytes_text(text, tensor->bytes));
    if (placed) pd_table_cell(table, "%u", tensor->own.shard);
}

static json_t *as_json(const pd_state_list *list, bool placed)
{
    json_t *all = json_array();
    char text[128];

    for (size_t i = 0; i < list->n; i++) {
        const pd_state_tensor *tensor = &list->at[i];
        json_t *shape = json_array(), *one;
        for (int d = 0; d < tensor->shape.rank; d++) json_array_append_new(shape, json_integer(tensor->shape.dim[d]));
        one = json_pack("{s:s, s:s, s:o, s:o, s:s, s:I}", "param", tensor->param, "state",
                        pd_state_tensor_name(tensor, text, sizeof text), "shape", shape, "follows",
                        follows_json(tensor), "storage", tensor->storage, "bytes", (json_int_t)tensor->bytes);
        if (placed) json_object_set_new(one, "shard", json_integer(tensor->own.shard));
        json_array_append_new(all, one);
    }
    return json_pack("{s:o}", "state", all);
}

static int print(const pd_line *line, const pd_state_list *list)
{
    bool placed = line->asked->n_shards > 1;
    pd_table *table;

    if (line->json) return pd_result_json(as_json(list, placed));
    table = pd_table_new(placed ? "~PARAMETER|~STATE|SHAPE|FOLLOWS|STORAGE|>BYTES|>SHARD"
                                : "~PARAMETER|~STATE|SHAPE|FOLLOWS|STORAGE|>BYTES");
    if (table != NULL)
        for (size_t i = 0; i < list->n; i++) row(table, &list->at[i], placed);
    return pd_result_table(line, table, "no state");
}

int pd_run_state(pd_line *line)
{
    const char *pattern = line->n_args > 1 ? line->args[1] : NULL;
    pd_cluster cluster;
    pd_state_list list = { 0 };
    pd_error err = { 0 };
    int rc, status;

    rc = pd_cluster_open(&cluster, line, 0, &err);
    if (rc == PD_OK) rc = pd_state_list_fetch(&list, &cluster, line->args[0], pattern, &err);
    if (rc == PD_OK && list.n == 0 && pattern != NULL) rc = pd_list_check_match(&cluster, line->args[0], pattern, &err);
    status = rc == PD_OK ? print(line, &list) : pd_result_fail(line->json, &err);
    pd_state_list_free(&list);
    pd_cluster_close(&cluster);
    return status;
}
