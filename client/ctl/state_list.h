/* state_list.h - the list of the optimizer state tensors that a daemon keeps for a job. */
#ifndef PD_STATE_LIST_H
#define PD_STATE_LIST_H

#include "connection.h"
#include "paramd/tensor.h"

typedef struct pd_state_tensor {
    const char *param; /* one of pd_state_list.names */
    char slot[64], storage[16];
    int number, block; /* -1: none */
    pd_shape shape;
    int64_t elements;
    uint64_t bytes;     /* size in the form in which the daemon stores it */
    bool kept;          /* a measurement for operators, such as a root's error; an import may leave it out */
    bool follows_known; /* whether `follows` is known: which dimension of the parameter each dimension of the tensor
                         * is tied to; -1: none */
    int follows[PD_MAX_RANK];
    int64_t covered; /* for import-state: number of the tensor's elements that the file has */
} pd_state_tensor;

typedef struct pd_state_list {
    const char **names; /* names of the parameters that have state, or of all, in ascending order; owned by the list */
    size_t n_names;
    pd_state_tensor *at; /* the tensors, in ascending order of (param, slot, number, block) */
    size_t n;
} pd_state_list;

/* Fetches the list of the tensors of all parameters whose name matches `glob`; NULL: of all parameters. The caller
 * frees *out, also after an error. PD_NO_MEMORY, or the daemon's error. */
int pd_state_list_fetch(pd_state_list *out, pd_operator *op, const char *job, const char *glob, pd_error *err);
/* Adds the names of the parameters that have no state to the list's names. PD_NO_MEMORY, or the daemon's error. */
int pd_state_list_fetch_params(pd_state_list *list, pd_operator *op, const char *job, pd_error *err);
void pd_state_list_free(pd_state_list *list);
/* Returns the tensor with this parameter, slot, number and block; NULL: the list has none. */
pd_state_tensor *pd_state_list_find(const pd_state_list *list, const char *param, const char *slot, int number,
                                    int block);
/* Writes the tensor's name without its parameter, such as "block_3.factor_matrices.1". Returns `text`. */
char *pd_state_tensor_name(const pd_state_tensor *tensor, char *text, size_t size);

#endif
