/* replay_case.h - the context of one recorded case of a routine, for the files that compute such cases.
 *
 * A routine is a row of the table in replay_routine.c, and a function that computes one case and notes how far each
 * result is from the recorded one. A case is an entry of a list in the config, or the whole config. Its tensors are
 * named in one of four ways:
 *   FIELD with stars    the stars are replaced by the digits of the case's index
 *   FIELD/0012          four digits, if the routine is `numbered`
 *   FIELD               if the config is the only case
 *   012/FIELD           three digits, otherwise */
#ifndef PD_REPLAY_CASE_H
#define PD_REPLAY_CASE_H

#include "linalg.h"
#include "trace.h"
#include "verdict.h"

typedef struct pd_routine pd_routine;

/* The context of one case, with memory that is freed after it. */
typedef struct pd_case {
    const pd_routine *routine;
    const pd_trace *trace;
    const json_t *config, *entry;
    int index;
    size_t number; /* place of the case in the list */
    pd_verdict *verdict;
    pd_error *err;
    void **held;
    size_t n_held, room;
} pd_case;

struct pd_routine {
    const char *system, *name; /* values of the metadata `system` and `case`; a name that ends in "*" matches any
                                * ending */
    const char *list;          /* name of the config's list of cases; "": the config is the list; NULL: the config is
                                * the only case. A name with stars: each tensor with such a name is a case */
    bool numbered;             /* tensors are named FIELD/NNNN after the place of the case in the list; otherwise
                                * NNN/FIELD after the entry's key `index`, or just FIELD if there is no list */
    bool own_tolerance;        /* each case has its own tolerance: errors are noted as multiples of it */
    int (*judge)(pd_case *c);  /* computes one case and compares it; returns the codes of pd_replay_routine */
};

/* ---- memory and tensors. PD_INVALID_ARGUMENT: a tensor is missing or has another shape than expected.
 * PD_NO_MEMORY: out of memory ---- */

/* A tensor of a case, converted to float32. */
typedef struct pd_case_tensor {
    float *at;
    pd_shape shape;
    int64_t n;
} pd_case_tensor;

/* Allocate memory that is freed after the case. pd_case_floats fills it with zeros. */
int pd_case_memory(pd_case *c, void **out, size_t bytes);
int pd_case_floats(pd_case *c, float **out, int64_t n);
/* Frees the case's memory now. Routines that read many tensors one after the other call it in between. */
void pd_case_release(pd_case *c);
/* Returns true if the case has a tensor FIELD whose elements are numbers. */
bool pd_case_has(const pd_case *c, const char *field);
int pd_case_doubles(pd_case *c, const char *field, double **at, pd_shape *shape, int64_t *n);
int pd_case_take(pd_case *c, const char *field, pd_case_tensor *out);
/* Read a tensor FIELD that must be a matrix, or that must have n elements. */
int pd_case_mat(pd_case *c, const char *field, pd_mat *out);
int pd_case_vector(pd_case *c, const char *field, int64_t n, float **out);
/* Returns PD_INVALID_ARGUMENT, with an error text that names the case and the field. */
int pd_case_refuse(const pd_case *c, const char *field, const char *what);

/* ---- judging ---- */

/* Computes the relative error of `ours` against the recorded tensor FIELD, which must have n elements. `scale`: see
 * pd_relative_error. */
int pd_case_error(pd_case *c, const char *field, const float *ours, int64_t n, double scale, double *error);
/* Compare `ours` with the recorded tensor FIELD and note the error. With pd_case_judge_equal the tensors must be
 * equal: any difference counts as an infinite error. */
int pd_case_judge(pd_case *c, const char *field, const float *ours, int64_t n);
int pd_case_judge_equal(pd_case *c, const char *field, const float *ours, int64_t n);
/* Notes an error of 0 if the condition is true, else an infinite error. */
void pd_case_expect(pd_case *c, bool holds);

#endif
