/* portion_records.c - keeps the map of a cluster: makes records of portions, and compares the maps of later answers. */
#include "portion_records.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "feedback.h"

void pd_portions_forget(pd_core *core)
{
    while (core->n_params > core->n_declared) pd_param_record_free(&core->params[--core->n_params]);
    for (size_t i = 0; i < core->n_declared; i++) {
        pd_param_record *record = &core->params[i];
        record->cut = record->elsewhere = false;
        record->shard = 0;
        record->portion = record->n_portions = 0;
    }
    core->map = 0;
}

/* Checks that the portions of a parameter follow each other, have elements, and make up the whole parameter. */
static bool are_sound(const pd_core *core, const pd_param_record *record, const Paramd__Declared *told)
{
    int64_t elements;
    uint64_t at = 0;

    pd_shape_elements(&record->shape, &elements);
    if (told->n_portions == 0) return told->shard < core->setup.shards;
    for (size_t k = 0; k < told->n_portions; k++) {
        const Paramd__Portion *portion = told->portions[k];
        if (portion->first != at || portion->count == 0 || portion->count > (uint64_t)elements - at ||
            portion->shard >= core->setup.shards)
            return false;
        at += portion->count;
    }
    return at == (uint64_t)elements;
}

/* Returns whether the parameter lies where an earlier answer has said. */
static bool is_same(const pd_core *core, const pd_param_record *record, const Paramd__Declared *told)
{
    if (record->n_portions != told->n_portions) return false;
    if (told->n_portions == 0) return record->shard == told->shard;
    for (size_t k = 0; k < told->n_portions; k++) {
        const pd_param_record *portion = &core->params[record->portion + k];
        if ((uint64_t)portion->origin != told->portions[k]->first || portion->shard != told->portions[k]->shard)
            return false;
    }
    return true;
}

/* Makes room for the records of all portions that an answer names. */
static int make_room(pd_core *core, const Paramd__DeclareReply *reply)
{
    size_t n = core->n_params;
    pd_param_record *more;

    for (size_t i = 0; i < reply->n_parameters; i++) n += reply->parameters[i]->n_portions;
    if (n == core->n_params) return PD_OK;
    if ((more = realloc(core->params, n * sizeof *more)) == NULL) return PD_NO_MEMORY;
    core->params = more;
    return PD_OK;
}

/* Sets which elements of a portion this rank has: those of its range of the parameter. */
static void set_range(pd_param_record *record, const pd_param_record *whole, const Paramd__Portion *told)
{
    int64_t first = (int64_t)told->first, end = first + (int64_t)told->count;
    int64_t from = whole->start > first ? whole->start : first, to = whole->end < end ? whole->end : end;

    record->start = from < to ? from - first : 0;
    record->end = from < to ? to - first : 0;
}

/* Allocates what the client keeps for a quantized parameter or portion, on the shard that has it. */
static int make_feedback(pd_core *core, pd_param_record *record)
{
    if (record->elsewhere || !pd_dtype_is_quantized(record->push) || record->feedback.rest != NULL) return PD_OK;
    return pd_feedback_make(core, record);
}

static int add_portion(pd_core *core, const pd_param_record *whole, const Paramd__Portion *told)
{
    pd_param_record *record = &core->params[core->n_params];

    *record = (pd_param_record){ .shape = whole->shape,
                                 .ranged = whole->ranged,
                                 .push = whole->push,
                                 .pull = whole->pull,
                                 .update = whole->update,
                                 .model_state = whole->model_state,
                                 .fragment = whole->fragment,
                                 .cut = true,
                                 .elsewhere = told->shard != core->setup.shard,
                                 .shard = told->shard,
                                 .declared = whole->declared,
                                 .origin = (int64_t)told->first };
    set_range(record, whole, told);
    if ((record->name = strdup(whole->name)) == NULL) return PD_NO_MEMORY;
    core->n_params++;
    return make_feedback(core, record);
}

static int learn(pd_core *core, pd_param_record *record, const Paramd__Declared *told)
{
    int rc = PD_OK;

    record->shard = told->shard;
    record->cut = told->n_portions > 0;
    record->elsewhere = record->cut || told->shard != core->setup.shard;
    record->portion = core->n_params;
    for (size_t k = 0; rc == PD_OK && k < told->n_portions; k++, record->n_portions++)
        rc = add_portion(core, record, told->portions[k]);
    return rc == PD_OK ? make_feedback(core, record) : rc;
}

static int end_as_moved(pd_core *core, const char *what)
{
    pd_error error;

    pd_fail(
        &error, PD_FAILED_PRECONDITION,
        "the server now has another map of the cluster's parameters than before (%.200s): all shards must come back "
        "with the job that they had",
        what);
    pd_core_end(core, &error);
    return PD_FAILED_PRECONDITION;
}

int pd_portions_take(pd_core *core, size_t first, const Paramd__DeclareReply *reply, const pd_prefix *prefix)
{
    int rc = core->declared ? PD_OK : make_room(core, reply);

    for (size_t i = 0; rc == PD_OK && i < reply->n_parameters; i++) {
        pd_param_record *record = &core->params[first + i];
        const Paramd__Declared *told = reply->parameters[i];

        if (!are_sound(core, record, told)) return pd_reply_broken(core, prefix, "portions that are none");
        if (!core->declared)
            rc = learn(core, record, told);
        else if (!is_same(core, record, told))
            return end_as_moved(core, record->name);
    }
    if (rc != PD_OK) {
        pd_core_drop(core, "out of memory");
        return rc;
    }
    if (reply->map == 0) return PD_OK;
    if (core->declared && core->map != 0 && core->map != reply->map) return end_as_moved(core, "its number differs");
    core->map = reply->map;
    return PD_OK;
}
