/* replay_case.h - files with cases of a routine instead of a run: recorded inputs and results of one function, such as
 * a matrix root.
 *
 * A routine is a row of the table in replay_routine.c. The routine's function `judge` computes one case, and adds to
 * the verdict how far each result is from the recorded one. A case is an entry of a list in the metadata `config` of
 * the file, or the whole config. Its tensors are named in one of four ways:
 *   FIELD with stars: the stars are replaced by the digits of the case's index
 *   FIELD/0012: four digits, if the routine is `numbered`
 *   FIELD: if the config is the only case
 *   012/FIELD: three digits, otherwise */
#ifndef PD_REPLAY_CASE_H
#define PD_REPLAY_CASE_H

#include "linalg.h"
#include "trace.h"
#include "verdict.h"

typedef struct pd_routine pd_routine;

/* One recorded case while it is computed, with memory that is freed after the case. `config` is the metadata of the
 * file, `entry` the entry of the case in it, `index` the number in the names of its tensors. */
typedef struct pd_case {
    const pd_routine *routine;
    const pd_trace *trace;
    const json_t *config, *entry;
    int index;
    size_t number; /* index of the case in the file's list of cases, from 0 */
    pd_verdict *verdict;
    pd_error *err;
    void **held; /* n_held pointers to memory to free after the case; the list has room for `room` */
    size_t n_held, room;
} pd_case;

/* A routine: which files have its cases, how their tensors are named, and how a case is computed. */
struct pd_routine {
    /* A file has cases of this routine if its metadata `system` and `case` have these values. A name that ends in
     * "*" fits any ending. */
    const char *system, *name;
    /* Name of the list of cases in the metadata `config`. "": the config itself is the list. NULL: the config is
     * the only case. A name with stars: there is no list, and each tensor with such a name is a case. */
    const char *list;
    /* true: tensors are named FIELD/NNNN, where NNNN is the index of the case in the list. false: NNN/FIELD, where
     * NNN is the key `index` of the case's entry, or just FIELD if there is no list. */
    bool numbered;
    bool own_tolerance; /* each case has its own tolerance, and its errors are stored as multiples of that tolerance */
    /* Computes one case and compares the results with the recorded ones. Returns PD_OK or an error of
     * pd_replay_routine. */
    int (*judge)(pd_case *c);
};

/* A tensor of a recorded case, converted to float32. */
typedef struct pd_case_tensor {
    float *at;
    pd_shape shape;
    int64_t n;
} pd_case_tensor;

/* Allocate memory that lives until the case is done. pd_case_floats fills it with zeros. PD_NO_MEMORY. */
int pd_case_memory(pd_case *c, void **out, size_t bytes);
int pd_case_floats(pd_case *c, float **out, int64_t n);
/* Frees the memory that was allocated for the case so far. Routines that read many tensors one after the other call it
 * between them. */
void pd_case_release(pd_case *c);
/* Returns true if the recorded case has a tensor FIELD whose elements are numbers. */
bool pd_case_has(const pd_case *c, const char *field);
/* Read tensor FIELD of the recorded case. pd_case_mat requires a matrix, pd_case_vector a tensor of n elements.
 * PD_INVALID_ARGUMENT: the tensor is missing or has another shape. PD_NO_MEMORY. */
int pd_case_doubles(pd_case *c, const char *field, double **at, pd_shape *shape, int64_t *n);
int pd_case_take(pd_case *c, const char *field, pd_case_tensor *out);
int pd_case_mat(pd_case *c, const char *field, pd_mat *out);
int pd_case_vector(pd_case *c, const char *field, int64_t n, float **out);
/* Fails with PD_INVALID_ARGUMENT and an error text that names the case, the field, and what is wrong (`what`). */
int pd_case_refuse(const pd_case *c, const char *field, const char *what);

/* Computes the relative error of `ours` (paramd's result) against the recorded tensor FIELD, which must have n
 * elements: the norm of their difference, divided by the norm of the recorded tensor or by `scale`, whichever is
 * larger. */
int pd_case_error(pd_case *c, const char *field, const float *ours, int64_t n, double scale, double *error);
/* Compare `ours` (paramd's result) with the recorded tensor FIELD, and add the error to the verdict. With
 * pd_case_judge_equal the tensors must be equal: any difference counts as an infinite error. */
int pd_case_judge(pd_case *c, const char *field, const float *ours, int64_t n);
int pd_case_judge_equal(pd_case *c, const char *field, const float *ours, int64_t n);
/* Adds an error to the verdict: 0 if `holds` is true, otherwise infinity. */
void pd_case_expect(pd_case *c, bool holds);

/* The judges of routines. They return PD_OK or an error of pd_replay_routine. */
int pd_judge_inverse_pth_root(pd_case *c); /* replay_google.c */
int pd_judge_power_iteration(pd_case *c);
int pd_judge_quantized_value(pd_case *c);
int pd_judge_symmetric_matrices(pd_case *c);
int pd_judge_meta_root(pd_case *c); /* replay_meta.c */
int pd_judge_meta_retry(pd_case *c);
int pd_judge_kron_norm(pd_case *c); /* replay_kron.c */
int pd_judge_kron_update(pd_case *c);
int pd_judge_kron_probability(pd_case *c);
int pd_judge_jax_threefry(pd_case *c);
int pd_judge_weighted_mean(pd_case *c); /* replay_average.c */

/* Returns true if the file has cases of a routine that is in the table of routines. */
bool pd_replay_is_routine(const pd_trace *trace);
/* Computes every case of the file with the arithmetic library in this process, compares the results with the recorded
 * ones, and sets n, params, verdicts and why in *out. PD_INVALID_ARGUMENT: a case cannot be computed because a tensor
 * is missing or has a wrong shape. PD_UNIMPLEMENTED: a case has an option that paramd's function does not have.
 * PD_NO_MEMORY: out of memory. */
int pd_replay_routine(pd_replay_result *out, pd_trace *trace);

#endif
