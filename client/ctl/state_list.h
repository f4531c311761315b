/* state_list.h - fetches and searches the list of the optimizer state tensors that a daemon keeps for a job. */
#ifndef PD_STATE_LIST_H
#define PD_STATE_LIST_H

#include "ask_all.h"
#include "paramd/tensor.h"

/* A tensor of optimizer state as one daemon has it: the daemon, and the names by which it is asked for. */
typedef struct pd_state_piece {
    uint32_t shard;
    const char *param; /* one of pd_state_list.names */
    int block;         /* -1: none */
    pd_shape shape;
    int64_t elements;
} pd_state_piece;

/* The description of one tensor of optimizer state, without its values. */
typedef struct pd_state_tensor {
    /* one of pd_state_list.names; after pd_whole_params_join_state, a name of a whole parameter */
    const char *param;
    char slot[64], storage[16];
    int number, block; /* -1: none */
    pd_shape shape;
    int64_t elements;
    pd_state_piece own; /* the tensor as its daemon has it */
    /* What pd_whole_params_join_state finds: the index of the portion of the parameter; the pieces of the whole tensor,
     * pd_state_list.pieces[first_piece] and so on, in the order of its rows; whether each of them is all of it. */
    size_t part, first_piece, n_pieces;
    bool copies;
    uint64_t bytes; /* size in bytes as the daemon stores the tensor */
    /* The tensor is only a measurement for operators, such as a matrix root's error, so an import may leave it out. */
    bool kept;
    /* Whether `follows` is known. follows[i] is the dimension of the parameter to which dimension i of the tensor
     * is tied; -1: to none. */
    bool follows_known;
    int follows[PD_MAX_RANK];
    bool fresh;      /* only for import-state: the parameter had seen no gradient, so the file may leave it out */
    int64_t covered; /* only for import-state: number of the tensor's elements for which the file has values */
} pd_state_tensor;

typedef struct pd_state_list {
    /* Names of the parameters that have optimizer state (or of all parameters), in ascending order. Freed with the
     * list. */
    const char **names;
    size_t n_names;
    pd_state_tensor *at; /* the tensors of optimizer state, in ascending order of (param, slot, number, block) */
    size_t n;
    pd_state_piece *pieces; /* of whole tensors; NULL: they are not joined */
} pd_state_list;

/* Fetches the list of the optimizer state tensors of all parameters whose name matches `glob`; NULL: of all
 * parameters. The caller frees *out, also after an error. Returns PD_NO_MEMORY, or the daemon's error. */
int pd_state_list_fetch(pd_state_list *out, pd_cluster *cluster, const char *job, const char *glob, pd_error *err);
/* Sorts the tensors in the order that pd_state_list promises, and pieces of one tensor by their portions. */
void pd_state_list_sort(pd_state_list *list);
void pd_state_list_free(pd_state_list *list);
/* Returns the optimizer state tensor with this parameter, slot, number and block; NULL: the list has none. */
pd_state_tensor *pd_state_list_find(const pd_state_list *list, const char *param, const char *slot, int number,
                                    int block);
/* Marks the tensors of a parameter as fresh, if none of them is covered. */
void pd_state_list_excuse(const pd_state_list *list, const char *param);
/* Writes the name of an optimizer state tensor without its parameter, such as "block_3.factor_matrices.1". Returns
 * `text`. */
char *pd_state_tensor_name(const pd_state_tensor *tensor, char *text, size_t size);

#endif
