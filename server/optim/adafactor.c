/* adafactor - the optimizer Adafactor (arXiv:1804.04235) as T5X has it (t5x/adafactor.py, 2022).
 *
 * Adafactor divides the gradient by the root of its second moment, a running average of squared gradients. The moment
 * of a matrix is factored: instead of all its elements, only the mean over each row and the mean over each column are
 * kept. Each dimension of a parameter has a rule that says its role: ROW, COLUMN, BATCH (it counts independent tensors)
 * or NONE (it is not factored). A step with the gradient G changes the weights W so:
 *
 *     t     = step - step_offset + 1;   b = 1 - t^(-decay_rate)        step counts from 0, or from the job's start_step
 *     alpha = learning_rate max(rms(W), epsilon2), the maximum limited to max_parameter_scale;  learning_rate alone
 *         without multiply_by_parameter_scale
 *     s     = G^2 + epsilon1
 *     v_row <- b v_row + (1 - b) mean of s over COLUMN;   v_col <- b v_col + (1 - b) mean of s over ROW
 *     y     = G (v_row / mean of v_row over ROW)^(-1/2) v_col^(-1/2)
 *     v     <- b v + (1 - b) s;   y = G v^(-1/2)                                 where nothing is factored
 *     y     <- y / max(1, rms(y) / clipping_threshold)
 *     u     = alpha y;   m <- beta1 m + (1 - beta1) u, u = m                     m only if beta1 is set
 *     W     <- (1 - decay) W - u
 *
 * rms is the root mean square over all dimensions except BATCH: each tensor of a stack has its own scale and clip
 * factor.
 *
 * Arithmetic is float32; sums of many numbers are float64. With param_dtype=bfloat16, T5X computes squares, scale,
 * decayed weights and weights in bfloat16. So these values are rounded to bfloat16 here.
 *
 * T5X warns if it ignores a rule that the user has written. Here the plan of the parameter has a note for the user
 * instead. */
#include "adafactor_step.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "factor_rules.h"

#define LARGEST_INT 2147483647

static const pd_hyper adafactor_hypers[] = {
    [LEARNING_RATE] = { "learning_rate", PD_REAL, ADAFACTOR_NONE, ADAFACTOR_NONE, INFINITY, "none",
                        "learning rate, required; with multiply_by_parameter_scale relative to the parameter's root "
                        "mean square",
                        true, false },
    [FACTORED] = { "factored", PD_FLAG, 1, 0, 1, NULL,
                   "factor the second moments of matrices; no: never, and factor_map must not be set", false, false },
    [BY_SCALE] = { "multiply_by_parameter_scale", PD_TEXT, 0, 0, 0, NULL,
                   "yes (default), no, or a rule by name: ['bias|scale':no,'.*':yes]", false, false },
    [BETA1] = { "beta1", PD_REAL, ADAFACTOR_NONE, ADAFACTOR_NONE, 1, "none",
                "decay of the momentum, below 1; none: no momentum", true, false },
    [DECAY_RATE] = { "decay_rate", PD_REAL, 0.8, 0, INFINITY, NULL,
                     "the second moment decays by 1 - t^(-decay_rate) in step t; above 0", true, false },
    [STEP_OFFSET] = { "step_offset", PD_INT, 0, -LARGEST_INT, LARGEST_INT, NULL,
                      "subtracted from the step number in decay_rate's formula; at most the job's start_step", false,
                      false },
    [CLIPPING] = { "clipping_threshold", PD_REAL, 1, 0, INFINITY, "none",
                   "largest root mean square of the update, before it is multiplied by the learning rate", true,
                   false },
    [WEIGHT_DECAY] = { "weight_decay_rate", PD_REAL, 0, 0, INFINITY, "none",
                       "share of the weights that a step subtracts, not multiplied by the learning rate", true, false },
    [MIN_DIM] = { "min_dim_size_to_factor", PD_INT, 128, 0, LARGEST_INT, NULL,
                  "smallest side of a matrix that HEURISTIC factors", false, false },
    [EPSILON1] = { "epsilon1", PD_REAL, 1e-30, 0, INFINITY, NULL, "added to each squared gradient", true, false },
    [EPSILON2] = { "epsilon2", PD_REAL, 1e-3, 0, INFINITY, NULL, "least scale of a parameter", true, false },
    [DTYPE_MOMENTUM] = { "dtype_momentum", PD_CHOICE, DTYPE_FLOAT32, 0, 1, "float32|bfloat16",
                         "storage type of the momentum", false, false },
    [FACTOR_MAP] = { "factor_map", PD_TEXT, 0, 0, 0, NULL,
                     "factor rules by parameter name, the first match counts: "
                     "['attention/query':(ROW,COLUMN,COLUMN),'.*':HEURISTIC]",
                     false, false },
    [LOGICAL_RULES] = { "logical_factor_rules", PD_TEXT, 0, 0, 0, NULL,
                        "factor rules by the names of a parameter's axes, instead of factor_map: standard, or "
                        "[embed:ROW,mlp:COLUMN,layers:BATCH]",
                        false, false },
    [DECAY_EXPONENT] = { "weight_decay_rate_lr_exponent", PD_REAL, ADAFACTOR_NONE, ADAFACTOR_NONE, INFINITY, "none",
                         "the weight decay is weight_decay_rate (or 1) times learning_rate to this power; 0: "
                         "weight_decay_rate alone",
                         true, false },
    [GLOBAL_CLIP] = { "global_norm_clip_threshold", PD_REAL, 0, 0, INFINITY, "none",
                      "largest common norm of the gradients of all parameters of the rule", false, false },
    [MAX_SCALE] = { "max_parameter_scale", PD_REAL, 0, 0, INFINITY, "none", "largest scale of a parameter", true,
                    false },
    [SKIP_NAN] = { "skip_nan_updates", PD_FLAG, 0, 0, 1, NULL,
                   "elements of weights or state that would become NaN keep their old values", true, false },
    [PARAM_DTYPE] = { "param_dtype", PD_CHOICE, DTYPE_FLOAT32, 0, 1, "float32|bfloat16",
                      "bfloat16: weights are rounded to bfloat16, as upstream's bfloat16 parameters are", false,
                      false },
    { .name = NULL },
};

enum { STAT_HAS_AXES }; /* the statistic is 1 if some parameter of the job names its dimensions, otherwise 0 */
static const pd_model_stat adafactor_stats[] = { [STAT_HAS_AXES] = { "has_axes", PD_FOLD_MAX }, { .name = NULL } };

static int check(const pd_hypers *declared, const pd_hypers *now, pd_error *err)
{
    const double *h = now->value;
    bool had = !pd_adafactor_is_none(declared->value[BETA1]), has = !pd_adafactor_is_none(h[BETA1]);

    if (pd_adafactor_is_none(h[LEARNING_RATE]) && !pd_adafactor_is_none(declared->value[LEARNING_RATE]))
        return pd_fail(err, PD_INVALID_ARGUMENT, "learning_rate of adafactor: expected a number, got none");
    if (has && !(h[BETA1] >= 0 && h[BETA1] < 1))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "beta1 of adafactor: expected none, or a number from 0 to below 1, got %g", h[BETA1]);
    if (!(h[DECAY_RATE] > 0))
        return pd_fail(err, PD_INVALID_ARGUMENT, "decay_rate of adafactor: expected a number above 0, got %g",
                       h[DECAY_RATE]);
    if (had != has)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "adafactor: beta1 cannot change %s none while the job runs: it determines the state layout",
                       has ? "from" : "to");
    return PD_OK;
}

static double clip_norm(const double *hyper)
{
    return hyper[GLOBAL_CLIP];
}

static bool is_unfactored(const pd_plan *plan, const double *hyper, int64_t count)
{
    const pd_adafactor_own *own = plan->own;

    (void)hyper, (void)count;
    return !own->factored;
}

/* Returns whether a step skips the phase "lengths", the pass over a parameter that sums the squares of its updates for
 * clipping. It is skipped without clipping. It is also skipped if the second moment is not factored, because the phase
 * "sums" then computes the same sums together with the moment. */
static bool needs_no_lengths(const pd_plan *plan, const double *hyper, int64_t count)
{
    return hyper[CLIPPING] == 0 || is_unfactored(plan, hyper, count);
}

enum { CHUNK_ELEMENTS = 65536, MOST_CHUNKS = 64 };

static void prepass(const pd_declaration *declaration, double *stats)
{
    stats[STAT_HAS_AXES] = declaration->axes != NULL && declaration->axes[0] != '\0';
}

static const char *text_of(const pd_declaration *declaration, int hyper)
{
    return pd_hypers_given_text(&declaration->hypers, hyper);
}

/* Writes the name of a hyperparameter and the error text `why` to *err, if `rc`, the result of reading the
 * hyperparameter's text, is an error. Returns `rc`, but PD_INVALID_ARGUMENT in place of PD_NOT_FOUND. */
static int in_hyper(const char *name, int rc, const pd_error *why, pd_error *err)
{
    return rc == PD_OK ? rc
                       : pd_fail(err, rc == PD_NOT_FOUND ? PD_INVALID_ARGUMENT : rc, "%s: %.400s", name, why->text);
}

/* Makes the factor rule of a parameter from the names of its dimensions. Called only if some parameter of the job names
 * its dimensions. Then every parameter that has dimensions must name them; without names it is refused. */
static int rule_of_axes(pd_factor_rule *rule, const pd_declaration *declaration, pd_error *err)
{
    pd_error why = { 0 };
    pd_axes axes;
    int rc = pd_axes_read(&axes, declaration->axes, declaration->shape.rank, err);

    if (rc != PD_OK) return rc;
    if (axes.n != declaration->shape.rank)
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "logical_factor_rules: the parameter has no axes, but others of the job have: declare its axes, too");
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

static int find_rule(pd_factor_rule *rule, const pd_declaration *declaration, const double *stats, pd_plan *plan,
                     pd_error *err)
{
    bool factored = declaration->hypers.value[FACTORED] != 0, maps = *text_of(declaration, FACTOR_MAP) != '\0';
    bool tabled = *text_of(declaration, LOGICAL_RULES) != '\0';
    int rc = PD_OK;

    *rule = (pd_factor_rule){ .way = PD_FACTOR_HEURISTIC };
    if (!factored && maps)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "adafactor: factored is no, but factorization rules have been provided in factor_map");
    if (tabled && stats[STAT_HAS_AXES] == 0)
        snprintf(plan->note, sizeof plan->note,
                 "logical_factor_rules has no effect: no parameter of the job names its axes");
    if (tabled && stats[STAT_HAS_AXES] != 0)
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

/* Chooses own->cut, the dimension along which a parameter is cut into blocks, and own->chunks, the number of ranges of
 * indices into which this dimension is cut.
 *
 * If it is a ROW or COLUMN dimension, one of the two moments does not have it. Blocks that differ only in their range
 * then add squared gradients to the same elements of this moment. So that no two threads write the same sums, each
 * block has its own copy of these sums. A range has at least ADAFACTOR_SHARES indices, so that the copies are small
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
    /* `chunks` was the number of ranges so far; from here on it is the number of indices in each range */
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

/* Returns the slot of a moment that has all dimensions of the parameter except those with the rule `rule`. */
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

/* Adds temporary slots for the sums and factors that a step computes only if the parameter's second moment is
 * factored. */
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
                                     /* no block has elements of more groups than the first one */
                                     : 0;
    rc = add_temporary(plan, "squares", 2 * (int64_t)plan->n_blocks * own->groups, PD_STORE_F64, &own->squares);
    return rc == PD_OK ? add_temporary(plan, "limits", 2 * groups.elements, PD_STORE_F64, &own->limits) : rc;
}

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
                   "step_offset of adafactor: expected at most the job's first step, %lld, got %lld",
                   (long long)declaration->start_step, (long long)offset);
}

static int adafactor_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
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
    if ((rc = find_rule(&rule, declaration, stats, plan, err)) != PD_OK) return rc;
    if ((rc = pd_factoring_of(&factoring, &rule, &declaration->shape, (int64_t)h[MIN_DIM], err)) != PD_OK) return rc;
    note_ignored(plan, &rule, &factoring);
    own->factored = factoring.factored;
    merge(plan, &declaration->shape, &factoring);
    if ((rc = make_blocks(plan)) != PD_OK) return rc;
    rc = add_moments(plan, &declaration->shape, &factoring, !pd_adafactor_is_none(h[BETA1]), storage);
    if (rc == PD_OK && factoring.factored) rc = add_sums(plan);
    return rc == PD_OK ? add_limits(plan) : rc;
}

const pd_optimizer_ops pd_adafactor = {
    .name = "adafactor",
    .about = "Adafactor with factored second moments (T5X, arXiv:1804.04235)",
    .hypers = adafactor_hypers,
    .stats = adafactor_stats,
    .prepass = prepass,
    .check = check,
    .plan = adafactor_plan,
    .own_bytes = sizeof(pd_adafactor_own),
    .clip_norm = clip_norm,
    .gradient_most = PD_PRODUCT_MOST,
    .phases = { { .name = "sums", .kind = PD_BLOCKS, .run = pd_adafactor_sums },
                { .name = "moments", .kind = PD_BLOCKS, .run = pd_adafactor_moments, .skip = is_unfactored },
                { .name = "means", .kind = PD_WHOLE, .run = pd_adafactor_means, .skip = is_unfactored },
                { .name = "lengths", .kind = PD_BLOCKS, .run = pd_adafactor_lengths, .skip = needs_no_lengths },
                { .name = "limits", .kind = PD_WHOLE, .run = pd_adafactor_limits },
                { .name = "update", .kind = PD_BLOCKS, .run = pd_adafactor_update } },
};
