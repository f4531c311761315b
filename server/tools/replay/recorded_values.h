/* recorded_values.h - reads the numbers of a recorded tensor, of any element type. */
#ifndef PD_RECORDED_VALUES_H
#define PD_RECORDED_VALUES_H

#include "safetensors.h"

/* Returns whether a replay can read numbers of this element type. */
bool pd_recorded_is_number(pd_st_dtype dtype);
/* Returns how many elements a recorded tensor has. */
int64_t pd_recorded_count(const pd_st_tensor *tensor);
/* Returns element i. */
double pd_recorded_value(const pd_safetensors *tensors, const pd_st_tensor *tensor, int64_t i);
/* Copy all elements of a recorded tensor, converted to the type of `at`. Return false if `tensor` is NULL. */
bool pd_recorded_floats(const pd_safetensors *tensors, const pd_st_tensor *tensor, float *at);
bool pd_recorded_doubles(const pd_safetensors *tensors, const pd_st_tensor *tensor, double *at);

#endif
