/* state_table.c - the command state: prints a table of a job's optimizer state tensors. */
#include "state_table.h"

#include "format.h"
#include "list_table.h"
#include "result.h"
#include "state_list.h"

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
                                             pd_state_tensor_name(tensor, text, sizeof text), "shape", shape, "follows",
                                             follows_json(tensor), "storage", tensor->storage, "bytes",
                                             (json_int_t)tensor->bytes));
    }
    return json_pack("{s:o}", "state", all);
}

static int print(const pd_line *line, const pd_state_list *list)
{
    pd_table *table;

    if (line->json) return pd_result_json(as_json(list));
    if ((table = pd_table_new("~PARAMETER|~STATE|SHAPE|FOLLOWS|STORAGE|>BYTES")) != NULL)
        for (size_t i = 0; i < list->n; i++) row(table, &list->at[i]);
    pd_table_limit(table, line->wide ? 0 : pd_table_default_limit());
    return pd_table_print(table, stdout, "no state") == PD_OK ? PD_EXIT_OK : PD_EXIT_FAILED;
}

int pd_run_state(pd_line *line)
{
    const char *pattern = line->n_args > 1 ? line->args[1] : NULL;
    pd_operator op;
    pd_state_list list = { 0 };
    pd_error err = { 0 };
    int rc, status;

    rc = pd_operator_open(&op, line->server, line->timeout, &err);
    if (rc == PD_OK) rc = pd_state_list_fetch(&list, &op, line->args[0], pattern, &err);
    if (rc == PD_OK && list.n == 0 && pattern != NULL) rc = pd_list_check_match(&op, line->args[0], pattern, &err);
    status = rc == PD_OK ? print(line, &list) : pd_result_fail(line->json, &err);
    pd_state_list_free(&list);
    pd_operator_close(&op);
    return status;
}
