/* portion_handles.c - gives the portions of cut parameters handles, and says in the answer to Declare on which server
 * each portion lies. */
#include "portion_handles.h"

#include "version_table.h"

#include <stdio.h>
#include <stdlib.h>

/* Values in pd_handle_facts of a handle of which nothing is here: `end` is ELSEWHERE, and `start` the shard that has
 * the parameter, or CUT if portions have handles of their own. */
enum { ELSEWHERE = -1, CUT = -1 };

/* ---- the answer to Declare ---- */

static int make(pd_declared_list *declared, size_t n, size_t places)
{
    *declared = (pd_declared_list){ .of = calloc(n, sizeof *declared->of),
                                    .list = calloc(n, sizeof *declared->list),
                                    .notes = calloc(n, sizeof *declared->notes),
                                    .portions = calloc(places + 1, sizeof *declared->portions),
                                    .portion_list = calloc(places + 1, sizeof *declared->portion_list) };
    if (declared->of == NULL || declared->list == NULL || declared->notes == NULL || declared->portions == NULL ||
        declared->portion_list == NULL)
        return PD_NO_MEMORY;
    for (size_t i = 0; i < n; i++) {
        paramd__declared__init(&declared->of[i]);
        declared->list[i] = &declared->of[i];
    }
    return PD_OK;
}

void pd_declared_list_free(pd_declared_list *declared)
{
    free(declared->of);
    free(declared->list);
    free(declared->notes);
    free(declared->portions);
    free(declared->portion_list);
}

static void take(Paramd__Declared *of, const char **note, const pd_declared *from)
{
    of->step = from->step;
    of->initialised = from->initialised;
    of->replaces = from->replaced;
    *note = from->note;
}

/* Adds what is known of a portion of this shard to what the answer says of its parameter: the lowest step counts. */
static void join(Paramd__Declared *of, const char **note, const pd_declared *from)
{
    if (from->step < of->step) of->step = from->step;
    of->initialised = of->initialised && from->initialised;
    if (*note == NULL) *note = from->note;
}

static bool is_cut(const pd_effect *effect, size_t k)
{
    const pd_declared_place *places = effect->u.declared.places;

    return (k > 0 && places[k - 1].param == places[k].param) ||
           (k + 1 < effect->u.declared.n_places && places[k + 1].param == places[k].param);
}

static void add_portion(pd_declared_list *declared, const pd_declared_place *place, size_t k)
{
    Paramd__Declared *of = &declared->of[place->param];

    declared->portions[k] = (Paramd__Portion)PARAMD__PORTION__INIT;
    declared->portions[k].first = (uint64_t)place->first;
    declared->portions[k].count = (uint64_t)place->count;
    declared->portions[k].shard = place->shard;
    declared->portion_list[k] = &declared->portions[k];
    if (of->n_portions++ == 0) of->portions = &declared->portion_list[k];
}

/* Fills in what the job on several shards says of each parameter. Of a parameter of which nothing lies here this shard
 * wants nothing: its weights count as sent. */
static void fill_places(pd_declared_list *declared, size_t n, const pd_effect *effect)
{
    uint32_t last = UINT32_MAX; /* the parameter of the last portion that lies here */

    for (size_t i = 0; i < n; i++) declared->of[i].initialised = true;
    for (size_t k = 0; k < effect->u.declared.n_places; k++) {
        const pd_declared_place *place = &effect->u.declared.places[k];
        Paramd__Declared *of = &declared->of[place->param];
        const pd_declared *from = place->own < UINT32_MAX ? &effect->u.declared.params[place->own] : NULL;
        if (is_cut(effect, k))
            add_portion(declared, place, k);
        else
            of->shard = place->shard;
        if (from == NULL) continue;
        if (place->param == last)
            join(of, &declared->notes[place->param], from);
        else
            take(of, &declared->notes[place->param], from);
        last = place->param;
    }
}

int pd_declared_list_make(pd_declared_list *declared, size_t n, const pd_effect *effect)
{
    if (make(declared, n, effect->u.declared.n_places) != PD_OK) {
        pd_declared_list_free(declared);
        *declared = (pd_declared_list){ 0 };
        return PD_NO_MEMORY;
    }
    if (effect->u.declared.places != NULL) {
        fill_places(declared, n, effect);
        return PD_OK;
    }
    for (size_t i = 0; i < n; i++) take(&declared->of[i], &declared->notes[i], &effect->u.declared.params[i]);
    return PD_OK;
}

/* ---- handles ---- */

/* Adds a handle for portion number `number` of a declared parameter. */
static int add_handle(pd_handles *handles, const pd_declared_place *place, size_t number)
{
    pd_param_decl decl = handles->decls[place->param];
    char name[PD_NAME_MAX + 16];
    size_t at = handles->n;

    snprintf(name, sizeof name, "%s#%zu", decl.name, number);
    decl.name = name;
    if (decl.ranged) pd_decl_cut_range(&decl, place->first, place->count);
    if (pd_handles_add(handles, &decl, place->count) != PD_OK) return PD_NO_MEMORY;
    if (place->own == UINT32_MAX)
        handles->facts[at] = (pd_handle_facts){ place->shard, ELSEWHERE, handles->facts[at].name };
    return PD_OK;
}

static void mark(pd_handles *handles, uint32_t handle, int64_t where)
{
    handles->facts[handle].start = where;
    handles->facts[handle].end = ELSEWHERE;
}

static int settle_places(pd_handles *handles, const pd_effect *effect)
{
    size_t number = 0;

    for (size_t k = 0; k < effect->u.declared.n_places; k++) {
        const pd_declared_place *place = &effect->u.declared.places[k];
        uint32_t handle = place->param;
        number = k > 0 && effect->u.declared.places[k - 1].param == place->param ? number + 1 : 0;
        if (is_cut(effect, k)) {
            handle = (uint32_t)handles->n;
            if (add_handle(handles, place, number) != PD_OK) return PD_NO_MEMORY;
        } else if (place->own == UINT32_MAX) {
            mark(handles, handle, place->shard);
        }
        if (place->own < UINT32_MAX) handles->params[handle] = effect->u.declared.params[place->own].param;
    }
    for (size_t k = 0; k < effect->u.declared.n_places; k++)
        if (is_cut(effect, k)) mark(handles, effect->u.declared.places[k].param, CUT);
    return PD_OK;
}

int pd_handles_settle(pd_handles *handles, const pd_effect *effect)
{
    if (effect->u.declared.places != NULL) return settle_places(handles, effect);
    for (size_t i = 0; i < effect->u.declared.n; i++) handles->params[i] = effect->u.declared.params[i].param;
    return PD_OK;
}

int pd_handle_check(const pd_conn *conn, uint32_t handle, const char *what, size_t i, pd_error *err)
{
    const pd_handle_facts *facts = handle < conn->params.handles.n ? &conn->params.handles.facts[handle] : NULL;

    if (facts == NULL || pd_handle_is_here(facts)) return PD_OK;
    if (facts->start == CUT)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s %zu: handle %u: parameter %.200s is cut: its portions have handles of their own", what, i,
                       handle, facts->name);
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%s %zu: handle %u: parameter %.200s lies on shard %lld of %u, this is shard %u", what, i, handle,
                   facts->name, (long long)facts->start, conn->params.shards, conn->params.shard);
}
