/* Reads any bytes as a safetensors file. The file is refused, or its tensors lie inside it one after the other and can
 * be written and read again. */
#include "safetensors.h"

#include "seed.h"

#include <string.h>

static void check_places(const pd_safetensors *file, const uint8_t *data, size_t size)
{
    size_t n;
    const pd_st_tensor *tensors = pd_safetensors_tensors(file, &n);
    const uint8_t *end = n > 0 ? pd_safetensors_data(file, &tensors[0]) : data + size;

    for (size_t i = 0; i < n; i++) {
        const uint8_t *at = pd_safetensors_data(file, &tensors[i]);
        MUST(at == end && at >= data && tensors[i].bytes <= (size_t)(data + size - at));
        MUST(pd_safetensors_find(file, tensors[i].name) == &tensors[i]);
        end = at + tensors[i].bytes;
    }
    MUST(end == data + size);
    pd_safetensors_meta(file, "case");
}

/* Writes the same tensors with a header of our own, and reads them again. */
static void write_again(const pd_safetensors *file)
{
    size_t n, bytes;
    const pd_st_tensor *tensors = pd_safetensors_tensors(file, &n);
    pd_st_tensor *copy = malloc((n + 1) * sizeof *copy);
    uint64_t data = 0;
    uint8_t *header;
    pd_safetensors *again;

    memcpy(copy, tensors, n * sizeof *copy);
    MUST(pd_safetensors_header(&header, &bytes, copy, n, NULL, 0, NULL) == PD_OK);
    for (size_t i = 0; i < n; i++) data += copy[i].bytes;
    header = realloc(header, bytes + data);
    memset(header + bytes, 0, data);
    MUST(pd_safetensors_read(&again, header, bytes + data, NULL) == PD_OK);
    pd_safetensors_tensors(again, &bytes);
    MUST(bytes == n);
    pd_safetensors_free(again);
    free(header);
    free(copy);
}

static void make_seeds(const char *folder)
{
    pd_st_tensor tensors[] = { { .name = "layers.0.weight", .dtype = PD_ST_F32, .shape = { 2, { 2, 3 } } },
                               { .name = "größe", .dtype = PD_ST_BOOL, .shape = { 1, { 5 } } },
                               { .name = "scalar", .dtype = PD_ST_I64 },
                               { .name = "empty", .dtype = PD_ST_BF16, .shape = { 1, { 0 } } } };
    pd_st_meta meta[] = { { "format", "np" }, { "config", "{\"lr\": 0.1}" } };
    uint8_t *header;
    size_t bytes;

    MUST(pd_safetensors_header(&header, &bytes, tensors, 4, meta, 2, NULL) == PD_OK);
    header = realloc(header, bytes + 37);
    memset(header + bytes, 1, 37);
    write_seed(folder, "four_tensors", header, bytes + 37);
    write_seed(folder, "cut", header, bytes + 36);
    write_seed(folder, "nothing", (const uint8_t *)"\2\0\0\0\0\0\0\0{}", 10);
    free(header);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pd_safetensors *file = NULL;
    pd_error err;

    if (pd_safetensors_read(&file, data, size, &err) != PD_OK) {
        MUST(file == NULL && err.text[0] != '\0');
        return 0;
    }
    check_places(file, data, size);
    write_again(file);
    pd_safetensors_free(file);
    return 0;
}
