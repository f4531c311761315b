/* recorded_values.c - reads the numbers of a recorded tensor, of any element type. The numbers may lie unaligned in
 * the file. */
#include "recorded_values.h"

#include <string.h>

#include "convert.h"

bool pd_recorded_is_number(pd_st_dtype dtype)
{
    static const bool numbers[PD_ST_DTYPES] = {
        [PD_ST_F32] = true, [PD_ST_F64] = true, [PD_ST_BF16] = true, [PD_ST_F16] = true,
        [PD_ST_I8] = true,  [PD_ST_I16] = true, [PD_ST_I32] = true,  [PD_ST_I64] = true
    };

    return numbers[dtype];
}

double pd_recorded_value(const pd_safetensors *tensors, const pd_st_tensor *tensor, int64_t i)
{
    size_t size = pd_st_dtype_size(tensor->dtype);
    union {
        int8_t c;
        int16_t s;
        uint16_t h;
        float f;
        double d;
        int32_t i;
        int64_t l;
    } x;

    memcpy(&x, (const uint8_t *)pd_safetensors_data(tensors, tensor) + (size_t)i * size, size);
    switch (tensor->dtype) {
    case PD_ST_F32: return x.f;
    case PD_ST_F64: return x.d;
    case PD_ST_BF16: return pd_f32_from_bf16(x.h);
    case PD_ST_F16: return pd_f32_from_f16(x.h);
    case PD_ST_I8: return x.c;
    case PD_ST_I16: return x.s;
    case PD_ST_I32: return x.i;
    default: return (double)x.l;
    }
}

int64_t pd_recorded_count(const pd_st_tensor *tensor)
{
    return (int64_t)(tensor->bytes / pd_st_dtype_size(tensor->dtype));
}

bool pd_recorded_floats(const pd_safetensors *tensors, const pd_st_tensor *tensor, float *at)
{
    if (tensor == NULL) return false;
    if (tensor->dtype == PD_ST_F32) {
        memcpy(at, pd_safetensors_data(tensors, tensor), tensor->bytes);
    } else {
        for (int64_t i = 0; i < pd_recorded_count(tensor); i++) at[i] = (float)pd_recorded_value(tensors, tensor, i);
    }
    return true;
}

bool pd_recorded_doubles(const pd_safetensors *tensors, const pd_st_tensor *tensor, double *at)
{
    if (tensor == NULL) return false;
    for (int64_t i = 0; i < pd_recorded_count(tensor); i++) at[i] = pd_recorded_value(tensors, tensor, i);
    return true;
}
