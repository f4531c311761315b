/* whole_params.c - joins what the daemons of a cluster have of a job to whole parameters and whole tensors of optimizer
 * state. */
#include "whole_params.h"

#include <stdlib.h>
#include <string.h>

#include "grow.h"

static int no_memory(pd_error *err)
{
    return pd_fail(err, PD_NO_MEMORY, "out of memory");
}

/* Returns the length of the parameter's name in the name of a portion, "wte#1", and sets *number to that of the
 * portion. A parameter that is not cut has number -1. */
static size_t split_name(const pd_whole_part *part, long *number)
{
    const char *mark = part->cut ? strrchr(part->name, '#') : NULL;

    *number = mark != NULL ? strtol(mark + 1, NULL, 10) : -1;
    return mark != NULL ? (size_t)(mark - part->name) : strlen(part->name);
}

/* Halves each pair of '#' in a name. */
static void halve_marks(char *name)
{
    char *to = name;

    for (const char *at = name; *at != '\0'; at++) {
        *to++ = *at;
        if (at[0] == '#' && at[1] == '#') at++;
    }
    *to = '\0';
}

/* Gives the parameters of a job with cut ones the names that its workers have declared. */
static void restore_names(pd_whole_params *params)
{
    bool cut = false;

    for (size_t i = 0; i < params->n_parts; i++) cut = cut || params->parts[i].cut;
    for (size_t i = 0; cut && i < params->n; i++) halve_marks(params->at[i].name);
}

static int add_part(pd_whole_params *params, const Paramd__ParamInfo *param)
{
    pd_whole_part *part;

    if (pd_grow((void **)&params->parts, &params->room, params->n_parts + 1, sizeof *part) != PD_OK)
        return no_memory(&params->err);
    part = &params->parts[params->n_parts];
    *part = (pd_whole_part){
        .name = strdup(param->name), .shard = *params->shard, .roots = param->roots, .cut = param->cut
    };
    if (part->name == NULL) return no_memory(&params->err);
    for (size_t d = 0; d < param->n_shape && d < PD_MAX_RANK; d++)
        part->shape.dim[part->shape.rank++] = (int64_t)param->shape[d];
    params->n_parts++;
    return PD_OK;
}

static void add_page(void *arg, const Paramd__ListReply *page)
{
    pd_whole_params *params = arg;

    for (size_t i = 0; params->err.code == PD_OK && i < page->n_params; i++) add_part(params, page->params[i]);
}

/* Orders portions by parameter, and the portions of one parameter by number. */
static int compare_parts(const void *left, const void *right)
{
    const pd_whole_part *a = left, *b = right;
    long i, k;
    size_t m = split_name(a, &i), n = split_name(b, &k);
    int order = strncmp(a->name, b->name, m < n ? m : n);

    if (order == 0) order = (m > n) - (m < n);
    return order != 0 ? order : (i > k) - (i < k);
}

static int compare_params(const void *left, const void *right)
{
    const pd_whole_param *a = left, *b = right;

    return strcmp(a->name, b->name);
}

/* Adds the rows of a portion to the shape of its parameter. */
static int add_rows(pd_whole_param *param, const pd_whole_part *part, pd_error *err)
{
    pd_shape whole = param->shape, rows = part->shape;

    whole.dim[0] = rows.dim[0] = 0;
    if (rows.rank < 1 || !pd_shape_equal(&whole, &rows))
        return pd_fail(err, PD_DATA_LOSS, "the portions of parameter %.200s have rows of different lengths",
                       param->name);
    param->shape.dim[0] += part->shape.dim[0];
    param->n++;
    return PD_OK;
}

/* Begins a parameter with its first portion, which is number `number`; -1: it is not cut. */
static int begin_param(pd_whole_params *params, size_t i, size_t length, long number, pd_error *err)
{
    pd_whole_param *param = &params->at[params->n];

    *param = (pd_whole_param){
        .name = strndup(params->parts[i].name, length), .shape = params->parts[i].shape, .first = i, .n = 1
    };
    if (param->name == NULL) return no_memory(err);
    params->n++;
    return number <= 0 ? PD_OK
                       : pd_fail(err, PD_DATA_LOSS,
                                 "portion 0 of parameter %.200s is missing: is the list of daemons "
                                 "complete?",
                                 param->name);
}

static int add_to_param(pd_whole_params *params, size_t i, long number, pd_error *err)
{
    pd_whole_param *param = &params->at[params->n - 1];

    if (number == (long)param->n) return add_rows(param, &params->parts[i], err);
    return pd_fail(err, PD_DATA_LOSS, "portion %zu of parameter %.200s is missing: is the list of daemons complete?",
                   param->n, param->name);
}

/* Groups the portions, which are sorted, by parameter. */
static int group(pd_whole_params *params, pd_error *err)
{
    int rc = PD_OK;

    if ((params->at = calloc(params->n_parts + 1, sizeof *params->at)) == NULL) return no_memory(err);
    for (size_t i = 0; i < params->n_parts && rc == PD_OK; i++) {
        long number;
        size_t length = split_name(&params->parts[i], &number);
        const pd_whole_param *last = params->n > 0 ? &params->at[params->n - 1] : NULL;
        bool same = last != NULL && number > 0 && strlen(last->name) == length &&
                    strncmp(last->name, params->parts[i].name, length) == 0;
        rc = same ? add_to_param(params, i, number, err) : begin_param(params, i, length, number, err);
    }
    restore_names(params);
    if (rc == PD_OK) qsort(params->at, params->n, sizeof *params->at, compare_params);
    return rc;
}

int pd_whole_params_fetch(pd_whole_params *out, pd_cluster *cluster, const char *job, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    int rc;

    *out = (pd_whole_params){ .shard = &cluster->line->asked->shard };
    request.what = PARAMD__LIST_KIND__LIST_PARAMS;
    request.job = (char *)job;
    rc = pd_cluster_list(cluster, &request, add_page, out, err);
    if (rc == PD_OK && (rc = out->err.code) != PD_OK) *err = out->err;
    if (rc != PD_OK) return rc;
    if (cluster->n > 1 && out->n_parts > 0) qsort(out->parts, out->n_parts, sizeof *out->parts, compare_parts);
    return group(out, err);
}

void pd_whole_params_free(pd_whole_params *params)
{
    for (size_t i = 0; i < params->n; i++) free(params->at[i].name);
    for (size_t i = 0; i < params->n_parts; i++) free(params->parts[i].name);
    free(params->at);
    free(params->parts);
    *params = (pd_whole_params){ 0 };
}

const pd_whole_param *pd_whole_params_find(const pd_whole_params *params, const char *name)
{
    const pd_whole_param wanted = { .name = (char *)name };

    return params->n > 0 ? bsearch(&wanted, params->at, params->n, sizeof wanted, compare_params) : NULL;
}

uint64_t pd_whole_param_roots(const pd_whole_params *params, const pd_whole_param *param, size_t part)
{
    uint64_t roots = 0;

    for (size_t i = 0; i < part; i++) roots += params->parts[param->first + i].roots;
    return roots;
}

/* The place of a portion in its parameter. */
typedef struct place {
    const char *name; /* of the portion */
    const pd_whole_param *param;
    size_t part; /* index of the portion in its parameter */
} place;

static int compare_places(const void *left, const void *right)
{
    const place *a = left, *b = right;

    return strcmp(a->name, b->name);
}

/* Lists the portions of all parameters, sorted by name. Returns NULL if out of memory. */
static place *list_places(const pd_whole_params *params)
{
    place *places = calloc(params->n_parts + 1, sizeof *places);
    size_t n = 0;

    for (size_t i = 0; places != NULL && i < params->n; i++)
        for (size_t k = 0; k < params->at[i].n; k++)
            places[n++] = (place){ params->parts[params->at[i].first + k].name, &params->at[i], k };
    if (n > 0) qsort(places, n, sizeof *places, compare_places);
    return places;
}

static const place *find_place(const place *places, size_t n, const char *name)
{
    const place wanted = { .name = name };

    return bsearch(&wanted, places, n, sizeof wanted, compare_places);
}

/* Counts the blocks for which each portion has optimizer state. */
static int count_blocks(pd_whole_params *params, const place *places, const pd_state_list *list, pd_error *err)
{
    for (size_t i = 0; i < list->n; i++) {
        const place *at = find_place(places, params->n_parts, list->at[i].param);
        pd_whole_part *part;
        if (at == NULL)
            return pd_fail(err, PD_ABORTED, "the job has changed: it has no parameter %.200s any more",
                           list->at[i].param);
        part = &params->parts[at->param->first + at->part];
        if (list->at[i].block >= part->blocks) part->blocks = list->at[i].block + 1;
    }
    return PD_OK;
}

/* Renames a tensor of a portion to the tensor of the whole parameter that it is a piece of. */
static void rename_tensor(const pd_whole_params *params, const place *at, pd_state_tensor *tensor)
{
    tensor->param = at->param->name;
    tensor->part = at->part;
    for (size_t k = 0; k < at->part && tensor->block >= 0; k++)
        tensor->block += params->parts[at->param->first + k].blocks;
}

static bool is_same_tensor(const pd_state_tensor *a, const pd_state_tensor *b)
{
    return strcmp(a->param, b->param) == 0 && strcmp(a->slot, b->slot) == 0 && a->number == b->number &&
           a->block == b->block;
}

/* Adds a piece to a tensor: rows of it, if its first dimension is that of the parameter. Any other tensor that several
 * portions have, such as a counter, is the same in all of them. */
static int add_piece(pd_state_tensor *whole, const pd_state_tensor *piece, pd_error *err)
{
    pd_shape a = whole->shape, b = piece->shape;
    bool rows = piece->follows_known && a.rank > 0 && piece->follows[0] == 0;

    if (rows) a.dim[0] = b.dim[0] = 0;
    if (!pd_shape_equal(&a, &b))
        return pd_fail(err, PD_DATA_LOSS, "the portions of parameter %.200s have state %.60s of different shapes",
                       whole->param, whole->slot);
    whole->n_pieces++;
    whole->copies = !rows;
    if (!rows) return PD_OK;
    whole->shape.dim[0] += piece->shape.dim[0];
    whole->elements += piece->elements;
    whole->bytes += piece->bytes;
    return PD_OK;
}

/* Sorts the tensors, and joins those that are pieces of one. */
static int join_tensors(pd_state_list *list, pd_error *err)
{
    size_t n = 0;
    int rc = PD_OK;

    pd_state_list_sort(list);
    if ((list->pieces = calloc(list->n + 1, sizeof *list->pieces)) == NULL) return no_memory(err);
    for (size_t i = 0; i < list->n && rc == PD_OK; i++) {
        list->pieces[i] = list->at[i].own;
        if (n > 0 && is_same_tensor(&list->at[n - 1], &list->at[i])) {
            rc = add_piece(&list->at[n - 1], &list->at[i], err);
        } else {
            list->at[n] = list->at[i];
            list->at[n].first_piece = i;
            list->at[n++].n_pieces = 1;
        }
    }
    list->n = n;
    return rc;
}

int pd_whole_params_join_state(pd_whole_params *params, pd_state_list *list, pd_error *err)
{
    place *places = list_places(params);
    int rc;

    if (places == NULL) return no_memory(err);
    rc = count_blocks(params, places, list, err);
    for (size_t i = 0; rc == PD_OK && i < list->n; i++)
        rename_tensor(params, find_place(places, params->n_parts, list->at[i].param), &list->at[i]);
    if (rc == PD_OK) rc = join_tensors(list, err);
    free(places);
    return rc;
}
