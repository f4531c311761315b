/* state_keys.h - which part of which parameter's optimizer state does a tensor of a saved file hold? Pure.
 *
 * Names that are understood:
 *
 *     NAME.exp_avg   NAME.block_3.factor_matrices.1   NAME.step                 paramd's own names
 *     NAME["block_3", "shampoo", "factor_matrices", 1, "quantized_values"]      Meta's flat keys
 *     stats/NAME/statistics/3   .stats['NAME'].momentum.quantized               scalable_shampoo's ShampooState
 *     param_states/NAME/v_row                                                   T5X's Adafactor
 *     mu/NAME   Qs_preconditioners/NAME/0                                       distributed_kron
 *     count   step   update_counter                                             of all parameters
 *     state/0007/NAME/statistics/3                                              recorded runs; the step may be left out
 *
 * A flat key stands behind the parameter's fully qualified name, with '.' or '/' between if there is something between,
 * and with "state." or "state/" before it if there is something before it. Paths are joined by '/' or '.', or are
 * jax.tree_util.keystr's. A parameter's name may have either separator, whichever the job has. Words before "stats" and
 * its like (an index into a chain, "opt_state") do not matter. One table maps upstream's paths to slots. */
#ifndef PD_STATE_KEYS_H
#define PD_STATE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#define PD_KEY_ALL ((size_t)-1)     /* pd_state_key.param: one value for all parameters */

typedef enum pd_key_kind {
    PD_KEY_UNKNOWN,             /* no such parameter, or no such path */
    PD_KEY_PART,                /* a tensor of state: param, slot, number, block */
    PD_KEY_COUNT,               /* the step counter: param */
    PD_KEY_DERIVED,             /* upstream saves it, but it follows from the rest: skipped */
    PD_KEY_COMPANION,           /* bucket sizes or the diagonal of codes, which are read with the codes */
    PD_KEY_REFUSED,             /* upstream's, but belongs to no parameter: why */
} pd_key_kind;

typedef struct pd_state_key {
    pd_key_kind kind;
    size_t      param;          /* index in the list of names; PD_KEY_ALL */
    char        slot[64];
    int         number, block;  /* -1: none */
    bool        codes;          /* integers are codes of a quantized value: this key ends in "quantized", its companions
                                 * in "bucket_size" and "diagonal" */
    bool        stacked;        /* its leading dimensions (layers, blocks) may be fewer or more than the slot's */
    bool        fill;           /* upstream saves a single zero if it keeps nothing */
    const char *why;            /* of PD_KEY_REFUSED: advice; static */
} pd_state_key;

/* Reads one key. `names`: the job's parameters in ascending order (strcmp). The longest name that fits wins. */
void pd_state_key_read(pd_state_key *out, const char *key, const char *const *names, size_t n);

#endif
