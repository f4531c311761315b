/* adafactor_plan.c - decides for which dimensions of a parameter adafactor factors the second moment (keeps means
 * instead of all elements), and how the parameter's elements are cut into blocks. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adafactor_plan.h"
#include "factor_rules.h"

enum { CHUNK_ELEMENTS = 65536, MOST_CHUNKS = 64 };

/* ---- rules ---- */

static bool has_axes(const pd_declaration *declaration)
{
    return declaration->axes != NULL && declaration->axes[0] != '\0';
}

void pd_adafactor_survey(const pd_declaration *declaration, double *fact)
{
    fact[FACT_HAS_AXES] = has_axes(declaration);
}

static const char *text_of(const pd_declaration *declaration, int hyper)
{
    return pd_hypers_given_text(&declaration->hypers, hyper);
}

/* Reports an error in the text of a hyperparameter: if `rc`, the result of reading the text, is an error, writes the
 * hyperparameter's name and the error text `why` to *err. Returns `rc`, but PD_INVALID_ARGUMENT for PD_NOT_FOUND. */
static int in_hyper(const char *name, int rc, const pd_error *why, pd_error *err)
{
    return rc == PD_OK ? rc
                       : pd_fail(err, rc == PD_NOT_FOUND ? PD_INVALID_ARGUMENT : rc, "%s: %.400s", name, why->text);
}

/* Makes the factor rule of a parameter (the role of each dimension: ROW, COLUMN, BATCH or NONE) from the names of its
 * dimensions. Called only if some parameter of the job names its dimensions. Then every parameter that has dimensions
 * must name them; without names it is refused. */
static int rule_of_axes(pd_factor_rule *rule, const pd_declaration *declaration, pd_error *err)
{
    pd_error why = { 0 };
    pd_axes axes;
    int rc = pd_axes_read(&axes, declaration->axes, declaration->shape.rank, err);

    if (rc != PD_OK) return rc;
    if (axes.n != declaration->shape.rank)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "logical_factor_rules: no rule is found for it: others of the job name their axes, it does not; "
                       "give it axes, too");
    return in_hyper("logical_factor_rules",
                    pd_factor_rule_of_axes(rule, text_of(declaration, LOGICAL_RULES), &axes, &why), &why, err);
}

/* Finds the value for a parameter in a map, and reads it into *value. A map is the text of a hyperparameter: pairs of a
 * regular expression for parameter names and a value. declaration->maps has the maps that were read already, so that
 * each is read only once for all parameters. If it is NULL, the map is read for this parameter alone. */
static int find_in_map(const pd_declaration *declaration, int hyper, pd_value_reader *parse, void *value, pd_error *err)
{
    pd_name_maps *own = declaration->maps == NULL ? pd_name_maps_new(1) : NULL,
                 *maps = own != NULL ? own : declaration->maps;
    pd_error why = { 0 };
    int rc = maps == NULL ? pd_fail(&why, PD_NO_MEMORY, "out of memory for a map")
                          : pd_name_map_find(maps, text_of(declaration, hyper), declaration->name, parse, value, &why);

    pd_name_maps_free(own);
    return in_hyper(declaration->hypers.row->hypers[hyper].name, rc, &why, err);
}

static int find_rule(pd_factor_rule *rule, const pd_declaration *declaration, const double *fact, pd_plan *plan,
                     pd_error *err)
{
    bool factored = declaration->hypers.value[FACTORED] != 0, maps = *text_of(declaration, FACTOR_MAP) != '\0';
    bool tabled = *text_of(declaration, LOGICAL_RULES) != '\0';
    int rc = PD_OK;

    *rule = (pd_factor_rule){ .way = PD_FACTOR_HEURISTIC };
    if (!factored && maps)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "adafactor: factored is no, but factorization rules have been provided in factor_map");
    if (tabled && fact[FACT_HAS_AXES] == 0)
        snprintf(plan->note, sizeof plan->note,
                 "logical_factor_rules has no effect: no parameter of the job names its axes");
    if (tabled && fact[FACT_HAS_AXES] != 0)
        rc = rule_of_axes(rule, declaration, err);
    else if (maps)
        rc = find_in_map(declaration, FACTOR_MAP, pd_factor_reader, rule, err);
    if (!factored) *rule = (pd_factor_rule){ .way = PD_FACTOR_NONE };
    return rc;
}

static int find_scaling(pd_plan *plan, const pd_declaration *declaration, pd_error *err)
{
    pd_adafactor_own *own = plan->own;
    const char *text = text_of(declaration, BY_SCALE);
    bool flag = true;
    int rc = PD_OK;

    if (*text != '\0' && pd_flag_reader(&flag, text, NULL) != PD_OK) {
        if (strchr(text, ':') == NULL)
            return pd_fail(err, PD_INVALID_ARGUMENT,
                           "multiply_by_parameter_scale must be either yes, no or rules, ['regular "
                           "expression':yes,...]; got \"%.80s\"",
                           text);
        rc = find_in_map(declaration, BY_SCALE, pd_flag_reader, &flag, err);
    }
    own->by_scale = flag;
    return rc;
}

/* ---- the plan's shape ---- */

/* Writes the plan's shape: the shape of the parameter, in which neighbouring dimensions with the same factor rule (ROW,
 * COLUMN, BATCH or NONE) are merged into one. A scalar becomes a vector of one element. */
static void merge(pd_plan *plan, const pd_shape *shape, const pd_factoring *factoring)
{
    pd_adafactor_own *own = plan->own;
    pd_shape *to = &plan->shape;

    *to = (pd_shape){ 0 };
    for (int i = 0; i < shape->rank; i++) {
        bool alike = to->rank > 0 && pd_adafactor_rule(plan, to->rank - 1) == factoring->dim[i];
        if (alike) {
            to->dim[to->rank - 1] *= shape->dim[i];
        } else {
            own->rule[to->rank] = factoring->dim[i];
            to->dim[to->rank++] = shape->dim[i];
        }
    }
    if (to->rank > 0) return;
    to->dim[to->rank++] = 1;
    own->rule[0] = PD_DIM_NONE;
}

/* Returns the layout of a tensor that has only some dimensions of the plan's shape: those whose factor rule (ROW,
 * COLUMN, BATCH or NONE) is in the bit set `rules`. */
static pd_over over(const pd_plan *plan, unsigned rules)
{
    pd_over to = { .elements = 1 };

    for (int d = plan->shape.rank - 1; d >= 0; d--) {
        if ((rules >> pd_adafactor_rule(plan, d) & 1) == 0) continue;
        to.stride[d] = to.elements;
        to.elements *= plan->shape.dim[d];
    }
    return to;
}

pd_over pd_over_all_but(const pd_plan *plan, pd_dim_rule rule)
{
    return over(plan, ~(1u << rule));
}
pd_over pd_over_groups(const pd_plan *plan)
{
    return over(plan, 1u << PD_DIM_BATCH);
}
pd_over pd_over_both(const pd_plan *plan)
{
    return over(plan, 1u << PD_DIM_BATCH | 1u << PD_DIM_NONE);
}

int64_t pd_over_first(const pd_over *of, const pd_block *block, int rank)
{
    int64_t first = 0;

    for (int d = 0; d < rank; d++) first += of->stride[d] * block->start[d];
    return first;
}

int64_t pd_over_size(const pd_over *of, const pd_block *block, int rank)
{
    int64_t size = 1;

    for (int d = 0; d < rank; d++) size *= of->stride[d] != 0 ? block->size[d] : 1;
    return size;
}

/* ---- blocks ---- */

static bool is_factored_dim(const pd_plan *plan, int d)
{
    return pd_adafactor_rule(plan, d) == PD_DIM_ROW || pd_adafactor_rule(plan, d) == PD_DIM_COLUMN;
}

static int64_t at_most(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
static int64_t at_least(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Chooses the dimension along which a parameter is cut into blocks, and the number of chunks into which this dimension
 * is cut.
 *
 * If it is a ROW or COLUMN dimension, one of the two moments does not have it. Blocks that differ only in their chunk
 * then add squared gradients to the same elements of this moment. So that no two threads write the same sums, each
 * block has its own copy of these sums. A chunk has at least ADAFACTOR_SHARES indices, so that the copies are small
 * compared with the blocks. */
static void find_cut(pd_plan *plan)
{
    pd_adafactor_own *own = plan->own;
    int64_t inner = plan->elements, chunks = 1;
    int cut = 0;

    for (;; cut++) {
        int64_t size = plan->shape.dim[cut], all = inner;
        inner /= size;
        chunks = (all + CHUNK_ELEMENTS - 1) / CHUNK_ELEMENTS;
        if (is_factored_dim(plan, cut)) {
            chunks = at_least(at_most(at_most(chunks, MOST_CHUNKS), size / ADAFACTOR_SHARES), 1);
            break;
        }
        if (inner <= CHUNK_ELEMENTS || cut == plan->shape.rank - 1) break;
    }
    chunks = at_most(chunks, plan->shape.dim[cut]);
    /* From here on, `chunks` is the number of indices in each chunk of the dimension */
    chunks = (plan->shape.dim[cut] + chunks - 1) / chunks;
    own->cut = cut;
    own->chunks = (plan->shape.dim[cut] + chunks - 1) / chunks;
}

static pd_block block_at(const pd_plan *plan, int64_t index)
{
    const pd_adafactor_own *own = plan->own;
    int cut = own->cut;
    int64_t chunks = own->chunks, chunk = index % chunks, size = (plan->shape.dim[cut] + chunks - 1) / chunks;
    pd_block block = { 0 };

    index /= chunks;
    for (int d = plan->shape.rank - 1; d >= 0; d--) {
        block.size[d] = d < cut ? 1 : plan->shape.dim[d];
        if (d >= cut) continue;
        block.start[d] = index % plan->shape.dim[d];
        index /= plan->shape.dim[d];
    }
    block.start[cut] = chunk * size;
    block.size[cut] = at_most(size, plan->shape.dim[cut] - chunk * size);
    return block;
}

static int make_blocks(pd_plan *plan)
{
    const pd_adafactor_own *own = plan->own;
    int64_t n;

    if (plan->elements == 0) return PD_OK;
    find_cut(plan);
    n = own->chunks;
    for (int d = 0; d < own->cut; d++) n *= plan->shape.dim[d];
    if ((plan->blocks = calloc((size_t)n, sizeof *plan->blocks)) == NULL) return PD_NO_MEMORY;
    plan->n_blocks = (size_t)n;
    for (int64_t i = 0; i < n; i++) plan->blocks[i] = block_at(plan, i);
    return PD_OK;
}

/* ---- slots ---- */

/* Returns the description of a slot for a moment that has all dimensions of the parameter except those with the factor
 * rule `rule` (ROW, COLUMN, BATCH or NONE). */
static pd_slot_spec moment(const char *name, const pd_shape *shape, const pd_factoring *factoring, pd_dim_rule rule)
{
    pd_slot_spec spec = { .name = name, .number = -1, .follows_known = true };

    for (int d = 0; d < shape->rank; d++) {
        if (factoring->dim[d] == rule) continue;
        spec.follows[spec.shape.rank] = (int8_t)d;
        spec.shape.dim[spec.shape.rank++] = shape->dim[d];
    }
    return spec;
}

/* Adds a slot to the plan, and writes its index to *slot. Returns PD_OK or PD_NO_MEMORY. */
static int add(pd_plan *plan, const pd_slot_spec *spec, int *slot)
{
    int index = pd_plan_slot(plan, spec);

    *slot = index;
    return index < 0 ? index : PD_OK;
}

static int add_temporary(pd_plan *plan, const char *name, int64_t n, pd_storage storage, int *slot)
{
    return add(
        plan,
        &(pd_slot_spec){ .name = name, .number = -1, .shape = { 1, { n } }, .temporary = true, .storage = storage },
        slot);
}

static int add_moments(pd_plan *plan, const pd_shape *shape, const pd_factoring *factoring, bool momentum,
                       pd_storage storage)
{
    pd_slot_spec v_row = moment("v_row", shape, factoring, PD_DIM_COLUMN),
                 v_col = moment("v_col", shape, factoring, PD_DIM_ROW);
    pd_adafactor_own *own = plan->own;
    int rc = PD_OK;

    if (factoring->factored) {
        rc = add(plan, &v_row, &own->v_row);
        if (rc == PD_OK) rc = add(plan, &v_col, &own->v_col);
    } else {
        rc = add(plan, &(pd_slot_spec){ .name = "v", .number = -1, .shape = *shape }, &own->v);
    }
    if (rc == PD_OK && momentum)
        rc = add(plan, &(pd_slot_spec){ .name = "m", .number = -1, .shape = *shape, .storage = storage }, &own->m);
    return rc;
}

/* Adds temporary slots for the sums and factors that a step computes only if the
 * parameter's second moment is factored. */
static int add_sums(pd_plan *plan)
{
    pd_adafactor_own *own = plan->own;
    pd_over row = pd_over_all_but(plan, PD_DIM_COLUMN), col = pd_over_all_but(plan, PD_DIM_ROW),
            both = pd_over_both(plan);
    bool chunked = own->chunks > 1 && is_factored_dim(plan, own->cut);
    int rc = add_temporary(plan, "row_sums", row.elements, PD_STORE_F64, &own->row_sums);

    if (rc == PD_OK) rc = add_temporary(plan, "col_sums", col.elements, PD_STORE_F64, &own->col_sums);
    if (rc == PD_OK) rc = add_temporary(plan, "row_factors", row.elements, PD_STORE_F32, &own->row_factors);
    if (rc == PD_OK) rc = add_temporary(plan, "col_factors", col.elements, PD_STORE_F32, &own->col_factors);
    if (rc == PD_OK) rc = add_temporary(plan, "row_means", both.elements, PD_STORE_F64, &own->row_means);
    if (rc != PD_OK || !chunked) return rc;
    own->shared_is_row = pd_adafactor_rule(plan, own->cut) == PD_DIM_COLUMN;
    own->shared_size = pd_over_size(own->shared_is_row ? &row : &col, &plan->blocks[0], plan->shape.rank);
    return add_temporary(plan, "shared_sums", (int64_t)plan->n_blocks * own->shared_size, PD_STORE_F64, &own->shared);
}

static int add_limits(pd_plan *plan)
{
    pd_over groups = pd_over_groups(plan);
    pd_adafactor_own *own = plan->own;
    int rc;

    own->groups = plan->n_blocks > 0 ? pd_over_size(&groups, &plan->blocks[0], plan->shape.rank)
                                     /* the first block has parts of at least as many groups (independent tensors that a
                                      * parameter may stack) as any other */
                                     : 0;
    rc = add_temporary(plan, "squares", 2 * (int64_t)plan->n_blocks * own->groups, PD_STORE_F64, &own->squares);
    return rc == PD_OK ? add_temporary(plan, "limits", 2 * groups.elements, PD_STORE_F64, &own->limits) : rc;
}

/* ---- */

static void note_ignored(pd_plan *plan, const pd_factor_rule *rule, const pd_factoring *factoring)
{
    char text[96];

    if (!factoring->ignored) return;
    snprintf(plan->note, sizeof plan->note,
             "factorization rule %s is ignored: a parameter of rank at most 2 without BATCH goes by HEURISTIC",
             pd_factor_rule_text(rule, text, sizeof text));
}

/* Checks two values that matter only when a parameter is declared: the learning rate must be given, and step_offset
 * must not be above the job's first step. */
static int check_declared(const pd_declaration *declaration, pd_error *err)
{
    int64_t offset = (int64_t)declaration->hypers.value[STEP_OFFSET];

    if (pd_adafactor_is_none(declaration->hypers.value[LEARNING_RATE]))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "no learning rate provided: learning_rate of adafactor has no default, set it in the rule");
    if (offset <= declaration->start_step) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "step_offset of adafactor is %lld, and the job's steps begin at %lld: it must not be larger, or all "
                   "would be NaN",
                   (long long)offset, (long long)declaration->start_step);
}

int pd_adafactor_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err)
{
    pd_adafactor_own *own = plan->own;
    const double *h = declaration->hypers.value;
    pd_storage storage = h[DTYPE_MOMENTUM] == DTYPE_BFLOAT16 ? PD_STORE_BF16 : PD_STORE_F32;
    pd_factor_rule rule;
    pd_factoring factoring;
    int rc;

    own->v = own->m = own->v_row = own->v_col = own->shared = -1;
    if ((rc = check_declared(declaration, err)) != PD_OK || (rc = find_scaling(plan, declaration, err)) != PD_OK)
        return rc;
    if ((rc = find_rule(&rule, declaration, fact, plan, err)) != PD_OK) return rc;
    if ((rc = pd_factoring_of(&factoring, &rule, &declaration->shape, (int64_t)h[MIN_DIM], err)) != PD_OK) return rc;
    note_ignored(plan, &rule, &factoring);
    own->factored = factoring.factored;
    merge(plan, &declaration->shape, &factoring);
    if ((rc = make_blocks(plan)) != PD_OK) return rc;
    rc = add_moments(plan, &declaration->shape, &factoring, !pd_adafactor_is_none(h[BETA1]), storage);
    if (rc == PD_OK && factoring.factored) rc = add_sums(plan);
    return rc == PD_OK ? add_limits(plan) : rc;
}
