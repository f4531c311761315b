#include "weights.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "safetensors.h"

static const float *data_of(const mlp *net, const char *name)
{
    int t = 0;
    while (strcmp(mlp_name(t), name) != 0) t++;
    return net->tensor[t];
}

/* Header and tensors to an open file. */
static int write_all(FILE *file, const mlp *net, pd_error *err)
{
    static const pd_st_meta meta[] = { { "format", "pt" } };        /* weights lie as PyTorch's Linear has them: (out, in) */
    pd_st_tensor tensors[MLP_TENSORS] = { 0 };
    uint8_t *header;
    size_t   bytes;
    int      rc;

    for (int t = 0; t < MLP_TENSORS; t++)
        tensors[t] = (pd_st_tensor){ .name = mlp_name(t), .dtype = PD_ST_F32, .shape = mlp_shape(net, t) };
    if ((rc = pd_safetensors_header(&header, &bytes, tensors, MLP_TENSORS, meta, 1, err)) != PD_OK) return rc;
    fwrite(header, 1, bytes, file);                                 /* errors are kept by the file: weights_write asks */
    for (int t = 0; t < MLP_TENSORS; t++) fwrite(data_of(net, tensors[t].name), 1, tensors[t].bytes, file);
    free(header);
    return PD_OK;
}

int weights_write(const mlp *net, const char *path, pd_error *err)
{
    char  part[520];
    FILE *file;
    int   rc;

    snprintf(part, sizeof part, "%s.part", path);
    if ((file = fopen(part, "wb")) == NULL) return pd_fail(err, PD_UNAVAILABLE, "%s: %s", part, strerror(errno));
    rc = write_all(file, net, err);
    if (fflush(file) != 0 && rc == PD_OK) rc = pd_fail(err, PD_UNAVAILABLE, "%s: %s", part, strerror(errno));
    if (ferror(file) && rc == PD_OK) rc = pd_fail(err, PD_UNAVAILABLE, "%s: cannot write", part);
    fclose(file);
    if (rc == PD_OK && rename(part, path) != 0) rc = pd_fail(err, PD_UNAVAILABLE, "%s: %s", path, strerror(errno));
    if (rc != PD_OK) remove(part);
    return rc;
}
