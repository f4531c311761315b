#include "state_list.h"

#include <stdlib.h>
#include <string.h>

#include "format.h"

static int compare_whole(const void *left, const void *right)
{
    const pd_state_tensor *a = left, *b = right;
    int order = strcmp(a->param, b->param);

    if (order == 0) order = strcmp(a->slot, b->slot);
    if (order == 0) order = (a->number > b->number) - (a->number < b->number);
    return order != 0 ? order : (a->block > b->block) - (a->block < b->block);
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(const char *const *)left, *(const char *const *)right);
}

/* The name as the list keeps it, each once: entries of a parameter follow each other. NULL: out of memory. */
static const char *keep_name(pd_state_list *list, const char *name)
{
    const char **more;

    if (list->n_names > 0 && strcmp(list->names[list->n_names - 1], name) == 0) return list->names[list->n_names - 1];
    if ((more = realloc(list->names, (list->n_names + 1) * sizeof *more)) == NULL) return NULL;
    list->names = more;
    if ((more[list->n_names] = strdup(name)) == NULL) return NULL;
    return more[list->n_names++];
}

static int add(pd_state_list *list, const Paramd__StateInfo *from, pd_error *err)
{
    pd_state_tensor *more = realloc(list->at, (list->n + 1) * sizeof *more), *to;

    if (more == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    list->at = more;
    to = &more[list->n];
    *to = (pd_state_tensor){ .number = from->number, .block = from->block, .bytes = from->bytes, .kept = from->kept };
    snprintf(to->slot, sizeof to->slot, "%s", from->slot);
    snprintf(to->storage, sizeof to->storage, "%s", from->storage);
    for (size_t i = 0; i < from->n_shape && i < PD_MAX_RANK; i++) to->shape.dim[to->shape.rank++] = (int64_t)from->shape[i];
    to->follows_known = from->follows_known && from->n_follows == (size_t)to->shape.rank;
    for (int d = 0; to->follows_known && d < to->shape.rank; d++) to->follows[d] = from->follows[d];
    if (pd_shape_elements(&to->shape, &to->elements) != PD_OK) return pd_fail(err, PD_DATA_LOSS, "the daemon tells of a shape that is none");
    if ((to->param = keep_name(list, from->param)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    list->n++;
    return PD_OK;
}

int pd_state_list_fetch(pd_state_list *out, pd_operator *op, const char *job, const char *glob, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    Paramd__ListReply *page = NULL;
    int rc = PD_OK;

    *out = (pd_state_list){ 0 };
    request.what = PD_LIST_STATE;
    request.job = (char *)job;
    if (glob != NULL) request.param = (char *)glob;
    do {
        if (page != NULL) request.start = page->next;
        rc = pd_client_call(op->client, PD_LIST, &request.base, op->arena, (void **)&page, err);
        for (size_t i = 0; rc == PD_OK && i < page->n_state; i++) rc = add(out, page->state[i], err);
    } while (rc == PD_OK && page->next > request.start);                /* 0: that was the last */
    if (rc != PD_OK) return rc;
    qsort(out->at, out->n, sizeof *out->at, compare_whole);
    qsort(out->names, out->n_names, sizeof *out->names, compare_names);
    return PD_OK;
}

void pd_state_list_free(pd_state_list *list)
{
    for (size_t i = 0; i < list->n_names; i++) free((char *)list->names[i]);
    free(list->names);
    free(list->at);
    *list = (pd_state_list){ 0 };
}

pd_state_tensor *pd_state_list_find(const pd_state_list *list, const char *param, const char *slot, int number, int block)
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

/* ---- the command ---- */

/* "0,1", "-" for a dimension that is none of the parameter's; "?": not known. */
static char *follows_text(const pd_state_tensor *tensor, char *text, size_t size)
{
    size_t used = 0;

    snprintf(text, size, "%s", tensor->follows_known ? "-" : "?");
    for (int d = 0; tensor->follows_known && d < tensor->shape.rank && used < size; d++) {
        if (tensor->follows[d] < 0) used += (size_t)snprintf(text + used, size - used, "%s-", d > 0 ? "," : "");
        else used += (size_t)snprintf(text + used, size - used, "%s%d", d > 0 ? "," : "", tensor->follows[d]);
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

static void row(pd_table *table, const pd_state_tensor *tensor)
{
    char text[192];

    pd_table_cell(table, "%s", tensor->param);
    pd_table_cell(table, "%s", pd_state_tensor_name(tensor, text, sizeof text));
    pd_table_cell(table, "%s", pd_shape_text(&tensor->shape, text, sizeof text));
    pd_table_cell(table, "%s", follows_text(tensor, text, sizeof text));
    pd_table_cell(table, "%s", tensor->storage);
    pd_table_cell(table, "%s", pd_bytes_text(text, tensor->bytes));
}

static json_t *as_json(const pd_state_list *list)
{
    json_t *all = json_array();
    char text[128];

    for (size_t i = 0; i < list->n; i++) {
        const pd_state_tensor *tensor = &list->at[i];
        json_t *shape = json_array();
        for (int d = 0; d < tensor->shape.rank; d++) json_array_append_new(shape, json_integer(tensor->shape.dim[d]));
        json_array_append_new(all, json_pack("{s:s, s:s, s:o, s:o, s:s, s:I}", "param", tensor->param, "state",
                                             pd_state_tensor_name(tensor, text, sizeof text), "shape", shape, "follows", follows_json(tensor), "storage", tensor->storage,
                                             "bytes", (json_int_t)tensor->bytes));
    }
    return json_pack("{s:o}", "state", all);
}

static int print(const pd_ctl *ctl, const pd_state_list *list)
{
    pd_table *table;

    if (ctl->json) return pd_ctl_print_json(as_json(list));
    if ((table = pd_table_new("PARAMETER|STATE|SHAPE|FOLLOWS|STORAGE|>BYTES")) != NULL)
        for (size_t i = 0; i < list->n; i++) row(table, &list->at[i]);
    pd_table_print(table, stdout, "no state");
    return PD_EXIT_OK;
}

int pd_ctl_state(const pd_ctl *ctl)
{
    pd_operator op;
    pd_state_list list = { 0 };
    pd_error err = { 0 };
    int rc = pd_operator_open(&op, ctl->server, ctl->timeout, &err), status;

    if (rc == PD_OK) rc = pd_state_list_fetch(&list, &op, ctl->args[0], ctl->n_args > 1 ? ctl->args[1] : NULL, &err);
    status = rc == PD_OK ? print(ctl, &list) : pd_ctl_fail(ctl, &err);
    pd_state_list_free(&list);
    pd_operator_close(&op);
    return status;
}
