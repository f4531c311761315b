/* state_list.h - the tensors of optimizer state that a job of a daemon keeps. */
#ifndef PD_STATE_LIST_H
#define PD_STATE_LIST_H

#include "connection.h"
#include "paramd/tensor.h"

typedef struct pd_state_tensor {
    const char *param;              /* in `names` */
    char        slot[64], storage[16];
    int         number, block;      /* -1: none */
    pd_shape    shape;
    int64_t     elements;
    uint64_t    bytes;              /* in the form in which it is stored */
    bool        kept;               /* a measure for operators; an import need not bring it */
    bool        follows_known;      /* `follows`: which dimension of the parameter each of its dimensions is; -1:
                                     * none */
    int         follows[PD_MAX_RANK];
    int64_t     covered;            /* elements that the file has, for import-state */
} pd_state_tensor;

typedef struct pd_state_list {
    const char     **names;         /* parameters that keep state, in ascending order; owned by the list */
    size_t           n_names;
    pd_state_tensor *at;            /* in ascending order of (param, slot, number, block) */
    size_t           n;
} pd_state_list;

/* Fetches all tensors; `glob` on the parameter's name, or NULL. Free *out, also after an error. PD_NO_MEMORY, or the
 * daemon's error. */
int  pd_state_list_fetch(pd_state_list *out, pd_operator *op, const char *job, const char *glob, pd_error *err);
void pd_state_list_free(pd_state_list *list);
/* Returns one tensor; NULL: there is none. */
pd_state_tensor *pd_state_list_find(const pd_state_list *list, const char *param, const char *slot, int number,
                                    int block);
/* Writes "block_3.factor_matrices.1". Returns `text`. */
char *pd_state_tensor_name(const pd_state_tensor *tensor, char *text, size_t size);

#endif
