/* statefile.c - writes files of saved optimizer state, tensor by tensor. */
#include "statefile.h"

#include "test.h"

void save_tensor(saved *s, pd_st_dtype dtype, const pd_shape *shape, void *data, const char *name)
{
    assert_true(s->n < 512);
    snprintf(s->name[s->n], sizeof s->name[0], "%s", name);
    s->tensor[s->n] = (pd_st_tensor){ .name = s->name[s->n], .dtype = dtype, .shape = *shape };
    s->data[s->n++] = data;
}

void save_as(saved *s, pd_st_dtype dtype, const pd_shape *shape, const void *data, const char *stem, const char *word)
{
    char name[256];
    int64_t n;

    (void)pd_shape_elements(shape, &n);
    snprintf(name, sizeof name, "%s%s", stem, word);
    save_tensor(s, dtype, shape,
                memcpy(malloc((size_t)n * pd_st_dtype_size(dtype) + 1), data, (size_t)n * pd_st_dtype_size(dtype)),
                name);
}

void write_saved(saved *s, const char *path)
{
    FILE *file = fopen(path, "wb");
    uint8_t *head;
    size_t bytes;
    pd_error err = { 0 };

    assert_non_null(file);
    if (pd_safetensors_header(&head, &bytes, s->tensor, s->n, NULL, 0, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(fwrite(head, 1, bytes, file), bytes);
    for (size_t i = 0; i < s->n; i++) { /* writes the tensors in the order of the header, which has sorted them */
        size_t k = (size_t)(s->tensor[i].name - s->name[0]) / sizeof s->name[0];
        assert_int_equal(fwrite(s->data[k], 1, s->tensor[i].bytes, file), s->tensor[i].bytes);
    }
    assert_int_equal(fclose(file), 0);
    free(head);
    for (size_t i = 0; i < s->n; i++) free(s->data[i]);
}
