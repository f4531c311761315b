/* shampoos.h - what the tests of both Shampoos share. */
#ifndef PD_TEST_SHAMPOOS_H
#define PD_TEST_SHAMPOOS_H

#include "paramd/optim.h"

/* Random numbers that begin anew with a seed. */
void     shampoo_seed(uint64_t seed);
int64_t  shampoo_below(int64_t n);                      /* 0 ... n - 1 */
void     shampoo_fill(float *at, int64_t n, float size);/* uniform on [-size, size) */

/* The row's defaults but for "name=value name=value ..."; refusals end the test. */
pd_hypers shampoo_hypers(const char *row, const char *list);
pd_model *shampoo_model(const pd_declaration *params, size_t n, int threads);

#endif
