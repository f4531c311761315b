/* state_keys.h - finds out from a tensor's name in a saved file to which parameter and which optimizer state it
 * belongs. The function is pure: it opens no file.
 *
 * Names that are understood:
 *
 *     NAME.exp_avg   NAME.block_3.factor_matrices.1   NAME.step                 paramd's own names
 *     NAME["block_3", "shampoo", "factor_matrices", 1, "quantized_values"]      Meta's Shampoo
 *     stats/NAME/statistics/3   .stats['NAME'].momentum.quantized               scalable_shampoo's ShampooState
 *     param_states/NAME/v_row                                                   T5X's Adafactor
 *     mu/NAME   Qs_preconditioners/NAME/0                                       distributed_kron
 *     count   step   update_counter                                             one value for all parameters
 *     state/0007/NAME/statistics/3                                              recorded runs; the step may be left out
 *
 * In names of Meta's Shampoo, the list may follow the parameter's name directly, or after '.' or '/'. The name may have
 * "state." or "state/" in front.
 *
 * In the other names, words are joined by '/' or '.', or written as jax.tree_util.keystr does. The separators in a
 * parameter's name may differ from those of the job. Words in front of "stats" and the other container names are
 * ignored, for example "opt_state" or an index in a chain of optimizers.
 *
 * One table (state_keys.c) maps the names of other optimizers' state to paramd's slots. */
#ifndef PD_STATE_KEYS_H
#define PD_STATE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#define PD_KEY_ALL ((size_t)-1) /* value of pd_state_key.param: the tensor has one value for all parameters */

typedef enum pd_key_kind {
    PD_KEY_UNKNOWN,   /* the tensor's name matches no parameter, or no known kind of state */
    PD_KEY_PART,      /* the name is that of a tensor of optimizer state; param, slot, number and block are set */
    PD_KEY_COUNT,     /* the name is that of a step counter; param is set */
    PD_KEY_DERIVED,   /* the tensor is skipped, because its value can be computed from other state */
    PD_KEY_WEIGHTS,   /* the name is that of a parameter's weights; param is set */
    PD_KEY_COMPANION, /* bucket sizes or diagonal of a quantized tensor, which are read together with its codes */
    PD_KEY_REFUSED,   /* the tensor is known, but belongs to no single parameter; `why` is set */
} pd_key_kind;

/* What a tensor's name in a saved file means. */
typedef struct pd_state_key {
    pd_key_kind kind;
    size_t param; /* index of the parameter in the list of names, or PD_KEY_ALL */
    char slot[64];
    int number, block; /* number of the tensor within its slot, and index of its block; -1: none */
    /* The name ends in "quantized", as those of quantized codes do. The tensor has codes only if its elements are whole
     * numbers. Its companions' names then end in "bucket_size" and "diagonal". */
    bool codes;
    /* The tensor may have more or fewer leading dimensions (layers, blocks) than the slot into which it goes. */
    bool stacked;
    bool fill;       /* if the original optimizer does not keep this state, it saves a single zero */
    const char *why; /* advice for the user, if the kind is PD_KEY_REFUSED; a constant */
} pd_state_key;

/* Finds out what a tensor's name (`key`) means. `names` are the job's parameters in ascending order (strcmp). A
 * parameter's name alone is the name of its weights. If several parameter names fit, the longest one is taken. */
void pd_state_key_read(pd_state_key *out, const char *key, const char *const *names, size_t n);

#endif
