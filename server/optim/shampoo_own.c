/* shampoo_own.c - decides which dimensions of a parameter's blocks have factors in the optimizer shampoo, and with
 * which exponents: merged dimensions, and the texts inverse_exponent_override and ignored_basis_change_dims. */
#include <math.h>
#include <stdlib.h>

#include "axes.h"
#include "hyper_text.h"
#include "partition.h"
#include "shampoo_step.h"

/* largest exponent; more is a mistake, and A^-e would not be finite */
#define MOST_EXPONENT 16.0

/* Reads a whole number from 0 to most. Returns -1 for any other text. */
static int read_index(const char *text, int most)
{
    double value;

    return pd_number_read_whole(text, &value) == PD_OK && value >= 0 && value <= most ? (int)value : -1;
}

static int no_order(const char *hyper, const pd_pair *pair, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "%s of shampoo: expected a number of dimensions from 0 to %d, got \"%.40s\"", hyper, PD_MAX_RANK,
                   pair->key);
}

static int no_dim(const char *hyper, const char *text, int order, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s of shampoo: expected a dimension below %d, got \"%.40s\"", hyper,
                   order, text);
}

static int read_exponent(const char *text, double *exponent, pd_error *err)
{
    if (pd_number_read(text, exponent) == PD_OK && *exponent >= 0 && *exponent <= MOST_EXPONENT) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "inverse_exponent_override of shampoo: expected an exponent from 0 to %g, got \"%.40s\"",
                   MOST_EXPONENT, text);
}

/* Reads the exponents of blocks of `order` dimensions: a number for all of them, or [dimension:number,...]. */
static int read_for_order(const char *text, int order, double *exponent, pd_error *err)
{
    pd_pairs pairs;
    double all;
    int rc;

    if (*text != '[') {
        rc = read_exponent(text, &all, err);
        for (int d = 0; rc == PD_OK && d < PD_MAX_RANK; d++) exponent[d] = all;
        return rc;
    }
    rc = pd_pairs_read(&pairs, text, err);
    for (size_t i = 0; rc == PD_OK && i < pairs.n; i++) {
        int d = read_index(pairs.at[i].key, order - 1);
        rc = d < 0 ? no_dim("inverse_exponent_override", pairs.at[i].key, order, err)
                   : read_exponent(pairs.at[i].value, &exponent[d], err);
    }
    pd_pairs_free(&pairs);
    return rc;
}

int pd_shampoo_read_exponents(const char *text, double (*exponent)[PD_MAX_RANK], pd_error *err)
{
    pd_pairs pairs;
    int rc;

    for (int order = 0; order < ROOT_ORDERS; order++)
        for (int d = 0; d < PD_MAX_RANK; d++) exponent[order][d] = NAN;
    if (*text == '\0') return PD_OK;
    rc = pd_pairs_read(&pairs, text, err);
    for (size_t i = 0; rc == PD_OK && i < pairs.n; i++) {
        int order = read_index(pairs.at[i].key, PD_MAX_RANK);
        rc = order < 0 ? no_order("inverse_exponent_override", &pairs.at[i], err)
                       : read_for_order(pairs.at[i].value, order, exponent[order], err);
    }
    pd_pairs_free(&pairs);
    return rc;
}

/* Reads one dimension, or a list of them such as [0,1]. */
static int read_dims(char *text, int order, unsigned *dims, pd_error *err)
{
    char *rest, *item;
    int rc = pd_text_inside(&rest, text), d;
    char *inside = rest;

    if (rc != PD_OK) return pd_fail(err, rc, "out of memory");
    if (inside == NULL) rest = text;
    while (rc == PD_OK && (item = pd_text_item(&rest)) != NULL)
        if ((d = read_index(item, order - 1)) < 0)
            rc = no_dim("ignored_basis_change_dims", item, order, err);
        else
            *dims |= 1u << d;
    free(inside);
    return rc;
}

int pd_shampoo_read_ignored(const char *text, unsigned *ignored, pd_error *err)
{
    pd_pairs pairs;
    int rc;

    for (int order = 0; order < ROOT_ORDERS; order++) ignored[order] = 0;
    if (*text == '\0') return PD_OK;
    rc = pd_pairs_read(&pairs, text, err);
    for (size_t i = 0; rc == PD_OK && i < pairs.n; i++) {
        int order = read_index(pairs.at[i].key, PD_MAX_RANK);
        rc = order < 0 ? no_order("ignored_basis_change_dims", &pairs.at[i], err)
                       : read_dims(pairs.at[i].value, order, &ignored[order], err);
    }
    pd_pairs_free(&pairs);
    return rc;
}

pd_shape pd_shampoo_cut_shape(const pd_shape *shape, const double *h)
{
    int64_t limit = (int64_t)h[MAX_DIM],
            target = h[PRECONDITIONER] == PRECONDITION_SPECTRAL ? 2 : (int64_t)h[TARGET_DIMS];
    pd_shape merged = *shape;

    if (h[MERGE_DIMS] != 0 && h[SEMANTICS] == RELEASE_2024) merged = pd_shape_merged(shape, limit);
    if (h[MERGE_DIMS] != 0 && h[SEMANTICS] == RELEASE_2026 && target > 0)
        merged = pd_shape_merged_backwards(shape, limit, target);
    return merged.rank > 0 ? merged : (pd_shape){ .rank = 1, .dim = { 1 } };
}

/* Returns whether portions of a parameter, which have whole blocks along the first dimension, are cut as the parameter
 * is. Small ones may have more dimensions merged. */
static bool may_be_cut(const pd_plan *plan, const pd_shape *declared, const double *h)
{
    pd_shape portion = *declared, cut;
    int64_t side = plan->n_blocks > 0 ? plan->blocks[0].size[0] : 0, rest = side > 0 ? plan->shape.dim[0] % side : 0;

    if (side == 0 || declared->rank == 0 || plan->shape.dim[0] != declared->dim[0]) return false;
    portion.dim[0] = rest > 0 ? rest : side;
    cut = pd_shampoo_cut_shape(&portion, h);
    if (cut.rank != plan->shape.rank || cut.dim[0] != portion.dim[0]) return false;
    for (int d = 1; d < cut.rank; d++)
        if (cut.dim[d] != plan->shape.dim[d]) return false;
    return true;
}

/* Returns whether root_inverse_method can compute A^-e. */
static bool has_root(const double *h, double e)
{
    double p = round(1 / e);

    if (h[ROOT_METHOD] != ROOT_NEWTON && h[ROOT_METHOD] != ROOT_HIGHER_ORDER) return true;
    return p >= 1 && p <= 1 << 20 && fabs(p * e - 1) <= 0x1p-50;
}

int pd_shampoo_fill_own(pd_plan *plan, const pd_declaration *declaration, pd_error *err)
{
    const double *h = declaration->hypers.value;
    shampoo_own *own = plan->own;
    int rank = plan->shape.rank;
    double exponent[ROOT_ORDERS][PD_MAX_RANK];
    unsigned ignored[ROOT_ORDERS];
    int rc = pd_shampoo_read_exponents(pd_hypers_given_text(&declaration->hypers, EXPONENTS), exponent, err);

    if (rc == PD_OK)
        rc = pd_shampoo_read_ignored(pd_hypers_given_text(&declaration->hypers, IGNORED_DIMS), ignored, err);
    if (rc != PD_OK) return rc;
    if (h[PRECONDITIONER] == PRECONDITION_SPECTRAL && rank != 2)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "SpectralDescent needs matrices, and the parameter has %d dimensions: give it another optimizer "
                       "by a rule before",
                       rank);
    own->peak_lr = h[PEAK_LR] > 0 ? h[PEAK_LR] : h[LR];
    own->may_be_cut = may_be_cut(plan, &declaration->shape, h);
    for (int d = 0; d < rank; d++) {
        double e = exponent[rank][d];
        if (isnan(e)) e = pd_shampoo_is_corrected(h) ? 0.5 : 0.5 / rank;
        own->exponent[d] = e;
        own->place[d] =
            pd_shampoo_has_factors(h) && (ignored[rank] >> d & 1) == 0 && (e > 0 || pd_shampoo_is_corrected(h))
                ? own->n_factored++
                : -1;
        if (h[SEMANTICS] == RELEASE_2026 && own->place[d] >= 0 && !has_root(h, e))
            return pd_fail(
                err, PD_INVALID_ARGUMENT,
                "root_inverse_method of shampoo: newton and higher_order compute only exponents 1/p of whole "
                "p, and dimension %d has %g; use eigen",
                d, e);
    }
    return PD_OK;
}
