/* round_scalars.c - checks, files and averages the scalars that workers push to a round. */
#include "round_scalars.h"

#include "mutant.h"

#include "fragment_ranks.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void pd_scalars_free(pd_scalars *scalars)
{
    if (scalars == NULL) return;
    free(scalars->means);
    free(scalars);
}

/* Returns the bytes that a parameter's scalars take, with the loop thread's copy of the means of the last closed
 * round. */
static uint64_t bytes_for(const pd_steps *steps)
{
    return sizeof(pd_scalars) + steps->members.ranks * sizeof(pd_scalar_row) + 2 * sizeof(pd_scalar_means);
}

int pd_scalars_make(pd_steps *steps, pd_param *param, pd_error *err)
{
    uint64_t bytes = bytes_for(steps);
    const pd_budget *budget = pd_account_budget(&steps->account, bytes);

    if (!pd_budget_fits(budget, bytes))
        return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                       "%.160s: scalars need %llu bytes; of %llu allowed for %.100s, %llu are in use (%s)", param->name,
                       (unsigned long long)bytes, (unsigned long long)budget->limit, budget->whose,
                       (unsigned long long)budget->used, budget->key);
    param->scalars = calloc(1, sizeof(pd_scalars) + steps->members.ranks * sizeof(pd_scalar_row));
    if (param->scalars == NULL) return PD_NO_MEMORY;
    pd_account_take(&steps->account, bytes);
    return PD_OK;
}

/* Allocates memory for the scalars of the open round and for their means, if the parameter has none. Without it,
 * closing the round could run out of memory. */
static int make_room(pd_steps *steps, pd_param *param, pd_error *err)
{
    int rc = param->scalars != NULL ? PD_OK : pd_scalars_make(steps, param, err);

    if (rc == PD_OK && param->scalars->means == NULL &&
        (param->scalars->means = calloc(1, sizeof(pd_scalar_means))) == NULL)
        rc = PD_NO_MEMORY;
    return rc == PD_NO_MEMORY ? pd_fail(err, rc, "%.160s: out of memory for scalars, try again later", param->name)
                              : rc;
}

static pd_param *param_of(const pd_steps *steps, const pd_request *frame)
{
    assert(frame->u.data.n > 0 && frame->u.data.n_scalars <= PD_MAX_SCALARS);
    return &steps->params[frame->u.data.pieces[0].param];
}

/* Returns the index of the scalar with that name in the open round; -1: no rank has sent it yet. */
static int find(const pd_scalars *scalars, const char *name)
{
    for (uint32_t i = 0; i < scalars->n; i++)
        if (strcmp(scalars->names[i], name) == 0) return (int)i;
    return -1;
}

/* Returns whether another process at the rank has given scalars to the open round. Then those of the process with this
 * nonce are ignored. */
static bool stands(const pd_scalar_row *row, uint64_t nonce)
{
    return row->mask != 0 && row->nonce != nonce;
}

static int check_value(const pd_param *param, const pd_scalar_row *row, int i, const pd_scalar_value *scalar,
                       const pd_request *frame, pd_error *err)
{
    if (i < 0 || (row->mask >> i & 1) == 0 || row->value[i] == scalar->value) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%.160s: rank %u has already given %s = %.17g for step %llu, and now gives %.17g: a rank gives each "
                   "scalar once in a step",
                   param->name, frame->rank, scalar->name, row->value[i], (unsigned long long)frame->u.data.step,
                   scalar->value);
}

static int check_values(const pd_param *param, const pd_request *frame, pd_error *err)
{
    const pd_scalars *scalars = param->scalars;
    size_t names = scalars->n;

    for (size_t s = 0; s < frame->u.data.n_scalars; s++) {
        const pd_scalar_value *scalar = &frame->u.data.scalars[s];
        int i = find(scalars, scalar->name),
            rc = check_value(param, &scalars->rows[frame->rank], i, scalar, frame, err);
        if (rc != PD_OK) return rc;
        names += i < 0;
    }
    if (names <= PD_MAX_SCALARS) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%.160s: with this push of rank %u there would be scalars of %zu names for step %llu, at most %d "
                   "are allowed: use fewer names, the same on all ranks",
                   param->name, frame->rank, names, (unsigned long long)frame->u.data.step, PD_MAX_SCALARS);
}

int pd_scalars_admit(pd_steps *steps, const pd_request *frame, uint64_t nonce, pd_error *err)
{
    pd_param *param = param_of(steps, frame);
    int rc;

    /* If the round of the push is closed already, the push is a duplicate, and its scalars are not filed. */
    if (pd_param_admit(steps, param, frame->rank, frame->u.data.step) != PD_ADMIT_NEW) return PD_OK;
    if ((rc = make_room(steps, param, err)) != PD_OK) return rc;
    return stands(&param->scalars->rows[frame->rank], nonce) ? PD_OK : check_values(param, frame, err);
}

static void keep(pd_scalars *scalars, pd_scalar_row *row, const pd_scalar_value *scalar, double weight)
{
    int i = find(scalars, scalar->name);

    if (i < 0) {
        i = (int)scalars->n++;
        memcpy(scalars->names[i], scalar->name, sizeof scalars->names[i]);
    }
    if (row->mask >> i & 1) return;
    row->mask |= 1u << i;
    row->value[i] = scalar->value;
    row->weight[i] = weight;
}

void pd_scalars_file(pd_steps *steps, const pd_request *frame, uint64_t nonce)
{
    pd_param *param = param_of(steps, frame);
    pd_scalar_row *row;

    if (pd_param_admit(steps, param, frame->rank, frame->u.data.step) != PD_ADMIT_NEW) return;
    row = &param->scalars->rows[frame->rank];
    if (stands(row, nonce)) return;
    row->nonce = nonce;
    for (size_t s = 0; s < frame->u.data.n_scalars; s++)
        keep(param->scalars, row, &frame->u.data.scalars[s], frame->u.data.weight);
}

/* Returns the weighted mean of the round's scalar number i over the ranks. If only one rank gave a value, it is
 * returned unchanged. */
static pd_scalar_mean mean_of(const pd_scalars *scalars, const pd_round *round, int i)
{
    pd_scalar_mean mean = { .mean = NAN };
    double sum = 0, only = 0;
    uint32_t counted = 0;

    memcpy(mean.name, scalars->names[i], sizeof mean.name);
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        const pd_scalar_row *row = &scalars->rows[rank];
        if ((row->mask >> i & 1) == 0 || row->weight[i] == 0) continue;
        if (!pd_round_counts(round, rank) && !PD_MUTANT(scalar_of_excluded)) continue;
        only = row->value[i];
        sum += row->weight[i] * row->value[i];
        mean.weight += row->weight[i];
        counted++;
    }
    if (counted > 0) mean.mean = counted == 1 ? only : sum / mean.weight;
    return mean;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pd_scalar_mean *)a)->name, ((const pd_scalar_mean *)b)->name);
}

/* Returns the names that ranks have given: bit i for names[i]. `counted`: only ranks that count in the round; false:
 * only ranks that do not. */
static uint32_t names_of(const pd_scalars *scalars, const pd_round *round, bool counted)
{
    uint32_t mask = 0;

    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++)
        if (pd_round_counts(round, rank) == counted) mask |= scalars->rows[rank].mask;
    return mask;
}

static void move_values(pd_scalar_row *row, uint32_t from, uint32_t to)
{
    if ((row->mask >> from & 1) == 0) return;
    row->mask = (row->mask & ~(1u << from)) | 1u << to;
    row->value[to] = row->value[from];
    row->weight[to] = row->weight[from];
}

/* Removes the scalars of the ranks that count in the round. Those of other ranks belong to the next round. */
static void clear(pd_scalars *scalars, const pd_round *round)
{
    uint32_t world = pd_round_ranks(round), kept = names_of(scalars, round, false), n = 0;

    for (uint32_t rank = 0; rank < world; rank++)
        if (pd_round_counts(round, rank)) scalars->rows[rank].mask = 0;
    for (uint32_t i = 0; i < scalars->n; i++) {
        if ((kept >> i & 1) == 0) continue;
        if (n < i) memcpy(scalars->names[n], scalars->names[i], sizeof scalars->names[n]);
        for (uint32_t rank = 0; n < i && rank < world; rank++) move_values(&scalars->rows[rank], i, n);
        n++;
    }
    scalars->n = n;
}

pd_scalar_means *pd_scalars_close(pd_param *param)
{
    pd_scalars *scalars = param->scalars;
    pd_scalar_means *means;
    uint32_t names;

    if (scalars == NULL) return NULL;
    names = names_of(scalars, &param->round, true);
    /* Scalars that were kept from an earlier round may have no memory for means. */
    if (names != 0 && scalars->means == NULL) scalars->means = calloc(1, sizeof *scalars->means);
    means = names != 0 ? scalars->means : NULL;
    scalars->n_last = 0;
    for (uint32_t i = 0; means != NULL && i < scalars->n; i++)
        if (names >> i & 1) means->at[scalars->n_last++] = mean_of(scalars, &param->round, (int)i);
    clear(scalars, &param->round);
    if (means == NULL) return NULL;
    means->refs = 1;
    means->n = scalars->n_last;
    qsort(means->at, means->n, sizeof means->at[0], by_name);
    memcpy(scalars->last, means->at, means->n * sizeof means->at[0]);
    scalars->means = NULL;
    return means;
}

void pd_scalars_forget(pd_param *param, uint32_t rank)
{
    if (param->scalars != NULL) param->scalars->rows[rank].mask = 0;
}

void pd_scalars_of_param(pd_param_info *info, const pd_param *param)
{
    info->n_scalars = param->scalars != NULL ? param->scalars->n_last : 0;
    if (info->n_scalars > 0) memcpy(info->scalars, param->scalars->last, info->n_scalars * sizeof info->scalars[0]);
}

pd_scalar_means *pd_scalars_again(const pd_param *param)
{
    const pd_scalars *scalars = param->scalars;
    pd_scalar_means *means = scalars != NULL && scalars->n_last > 0 ? calloc(1, sizeof *means) : NULL;

    if (means == NULL) return NULL;
    means->refs = 1;
    means->n = scalars->n_last;
    memcpy(means->at, scalars->last, means->n * sizeof means->at[0]);
    return means;
}
