/* state_keys.h - finds out from a tensor's name in a saved file to which parameter and which optimizer state it
 * belongs. Pure.
 *
 * Names that are understood:
 *
 *     NAME.exp_avg   NAME.block_3.factor_matrices.1   NAME.step                 paramd's own names
 *     NAME["block_3", "shampoo", "factor_matrices", 1, "quantized_values"]      Meta's flat keys
 *     stats/NAME/statistics/3   .stats['NAME'].momentum.quantized               scalable_shampoo's ShampooState
 *     param_states/NAME/v_row                                                   T5X's Adafactor
 *     mu/NAME   Qs_preconditioners/NAME/0                                       distributed_kron
 *     count   step   update_counter                                             one value for all parameters
 *     state/0007/NAME/statistics/3                                              recorded runs; the step may be left out
 *
 * In a flat key, the list may follow the parameter's name directly, or after '.' or '/'. The name may have "state."
 * or "state/" in front.
 *
 * The words of a path are joined by '/' or '.', or written as jax.tree_util.keystr does. The separators in a
 * parameter's name may differ from those of the job. Words in front of "stats" and the other container names are
 * ignored, for example "opt_state" or an index in a chain of optimizers.
 *
 * One table maps the paths of other optimizers to paramd's slots (tensors of optimizer state). */
#ifndef PD_STATE_KEYS_H
#define PD_STATE_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#define PD_KEY_ALL ((size_t)-1) /* value of pd_state_key.param: the tensor is one value for all parameters */

typedef enum pd_key_kind {
    PD_KEY_UNKNOWN,   /* the name matches no parameter, or no known path */
    PD_KEY_PART,      /* a tensor of optimizer state; param, slot, number and block are set */
    PD_KEY_COUNT,     /* a step counter; param is set */
    PD_KEY_DERIVED,   /* a tensor to skip: its value follows from other state */
    PD_KEY_WEIGHTS,   /* the weights of a parameter; param is set */
    PD_KEY_COMPANION, /* bucket sizes or diagonal of a quantized value, which are read together with its codes */
    PD_KEY_REFUSED,   /* a known tensor that belongs to no single parameter; `why` is set */
} pd_key_kind;

typedef struct pd_state_key {
    pd_key_kind kind;
    size_t param; /* index in the list of parameter names, or PD_KEY_ALL */
    char slot[64];
    int number, block; /* -1: none */
    bool codes;        /* This key may end in "quantized": if the tensor has integers, they are codes of a quantized
                        * value. The tensors with the rest of the value then end in "bucket_size" and "diagonal". */
    bool stacked;      /* the tensor may have more or fewer leading dimensions (layers, blocks) than its slot */
    bool fill;         /* the original optimizer saves a single zero here if it keeps no such state */
    const char *why;   /* advice for the user, if the kind is PD_KEY_REFUSED; static */
} pd_state_key;

/* Reads one key. `names` are the job's parameters in ascending order (strcmp). A parameter's name alone is the key
 * of its weights. If several names fit, the longest one wins. */
void pd_state_key_read(pd_state_key *out, const char *key, const char *const *names, size_t n);

#endif
