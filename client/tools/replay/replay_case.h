/* replay_case.h - one recorded case of a routine, while it is computed: for the files that judge routines.
 *
 * A case is an entry of a list in the config, or the config itself; its tensors are named INDEX/FIELD with an index of
 * three digits, or FIELD/INDEX with one of four, or stars in FIELD are the digits of the index; where the config is the
 * only case and they have no number FIELD alone. A routine is a line of the table in replay_routine.c and a function
 * that computes one case and notes how far each result is from the recorded one. */
#ifndef PD_REPLAY_CASE_H
#define PD_REPLAY_CASE_H

#include "linalg.h"
#include "trace.h"
#include "verdict.h"

typedef struct pd_routine pd_routine;

/* One case, and the memory that is freed after it. */
typedef struct pd_case {
    const pd_routine *routine;
    const pd_trace   *trace;
    const json_t     *config, *entry;
    int               index;
    size_t            number;           /* in the list */
    pd_verdict       *verdict;
    pd_error         *err;
    void            **held;
    size_t            n_held, room;
} pd_case;

struct pd_routine {
    const char *system, *name;          /* the metadata system and case; a name may end in "*" for any ending */
    const char *list;                   /* of cases, in the config; "": the config is that list; NULL: the config is the
                                         * only case; with stars: as many cases as there are tensors of that name */
    bool        numbered;               /* tensors are FIELD/NNNN, by their place in the list; else NNN/FIELD, where
                                         * each entry has its index, or FIELD without a list */
    bool        own_tolerance;          /* errors are noted in units of the tolerance of the case */
    int       (*judge)(pd_case *c);  /* computes one case. Codes as pd_replay_routine */
};

/* ---- memory and tensors: PD_INVALID_ARGUMENT where a tensor is missing or has not the shape asked for; PD_NO_MEMORY
 * ---- */

/* A float32 tensor of a case. */
typedef struct pd_case_tensor {
    float   *at;
    pd_shape shape;
    int64_t  n;
} pd_case_tensor;

/* Gives memory until the case is done; the second is zeroed. */
int pd_case_memory(pd_case *c, void **out, size_t bytes);
int pd_case_floats(pd_case *c, float **out, int64_t n);
/* Frees the memory early: for routines that read many tensors one after the other. */
void pd_case_release(pd_case *c);
/* Returns true if there is a tensor of that name, with numbers. */
bool pd_case_has(const pd_case *c, const char *field);
int pd_case_doubles(pd_case *c, const char *field, double **at, pd_shape *shape, int64_t *n);
int pd_case_take(pd_case *c, const char *field, pd_case_tensor *out);
/* Take a matrix; a vector of n entries. */
int pd_case_mat(pd_case *c, const char *field, pd_mat *out);
int pd_case_vector(pd_case *c, const char *field, int64_t n, float **out);
/* Returns PD_INVALID_ARGUMENT with a text that names the case and the field. */
int pd_case_refuse(const pd_case *c, const char *field, const char *what);

/* ---- judging ---- */

/* Measures how far `ours` is from a recorded tensor, which must have as many elements. `scale` as in
 * pd_relative_error. */
int pd_case_error(pd_case *c, const char *field, const float *ours, int64_t n, double scale, double *error);
/* Notes the error. The second function is for tensors that must be equal: any difference is an infinite error. */
int pd_case_judge(pd_case *c, const char *field, const float *ours, int64_t n);
int pd_case_judge_equal(pd_case *c, const char *field, const float *ours, int64_t n);
/* Notes an error of 0 if the condition holds, else an infinite one. */
void pd_case_expect(pd_case *c, bool holds);

#endif
