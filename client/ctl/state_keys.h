/* state_keys.h - which part of which parameter's optimizer state does a tensor of a saved file hold? Pure.
 *
 * Two ways to name it are understood:
 *     NAME.exp_avg   NAME.block_3.factor_matrices.1   NAME.step              paramd's own names
 *     NAME["block_3", "shampoo", "factor_matrices", 1, "quantized_values"]   Meta's flat keys, behind the parameter's fully qualified name; a
 *                                                                            '.' or '/' may stand between, and "state." or "state/" before
 * One table maps upstream's paths to slots. */
#ifndef PD_STATE_KEYS_H
#define PD_STATE_KEYS_H

#include <stddef.h>

typedef enum pd_key_kind {
    PD_KEY_UNKNOWN,             /* no such parameter, or no such path */
    PD_KEY_PART,                /* a tensor of state: param, slot, number, block */
    PD_KEY_COUNT,               /* the step counter: param */
    PD_KEY_DERIVED,             /* upstream saves it, but it follows from the rest: passed over */
} pd_key_kind;

typedef struct pd_state_key {
    pd_key_kind kind;
    size_t      param;          /* index in the list of names */
    char        slot[64];
    int         number, block;  /* -1: none */
} pd_state_key;

/* `names`: the job's parameters in ascending order (strcmp). The longest name that fits counts. */
void pd_state_key_read(pd_state_key *out, const char *key, const char *const *names, size_t n);

#endif
