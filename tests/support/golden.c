#include "golden.h"

#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void give_up(const char *what)
{
    fprintf(stderr, "golden file: %s\n", what);
    abort();
}

static void *read_all(FILE *in, size_t *n)
{
    long length = -1;
    void *bytes;

    if (fseek(in, 0, SEEK_END) != 0 || (length = ftell(in)) < 0) give_up("cannot be read");
    rewind(in);
    if ((bytes = malloc((size_t)length + 1)) == NULL || fread(bytes, 1, (size_t)length, in) != (size_t)length) give_up("cannot be read");
    *n = (size_t)length;
    return bytes;
}

void *golden_read(const char *path, size_t *bytes)
{
    FILE *in = fopen(path, "rb");
    void *at;

    if (in == NULL) give_up("cannot be opened");
    at = read_all(in, bytes);
    fclose(in);
    return at;
}

bool golden_open(golden_file *file, const char *path)
{
    const char *folder = getenv("PARAMD_GOLDEN");
    char full[1024];
    FILE *in;
    size_t n;
    pd_error err;

    snprintf(full, sizeof full, "%s/%s", folder != NULL ? folder : "", path);
    if (folder == NULL || (in = fopen(full, "rb")) == NULL) {
        printf("skipped: no %s (PARAMD_GOLDEN)\n", full);
        return false;
    }
    file->bytes = read_all(in, &n);
    fclose(in);
    if (pd_safetensors_read(&file->tensors, file->bytes, n, &err) != PD_OK) give_up(err.text);
    file->config = json_loads(pd_safetensors_meta(file->tensors, "config"), 0, NULL);
    if (!json_is_array(golden_cases(file))) give_up("metadata has no config.cases");
    return true;
}

void golden_close(golden_file *file)
{
    json_decref(file->config);
    pd_safetensors_free(file->tensors);
    free(file->bytes);
}

const pd_st_tensor *golden_find(const golden_file *file, const char *format, ...)
{
    char name[128];
    va_list args;

    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return pd_safetensors_find(file->tensors, name);
}

const void *golden_data(const golden_file *file, const pd_st_tensor *tensor)
{
    return pd_safetensors_data(file->tensors, tensor);
}

float *golden_floats(const golden_file *file, const pd_st_tensor *tensor)
{
    float *at;

    if (tensor == NULL || tensor->dtype != PD_ST_F32) give_up("a tensor of float32 is missing");
    if ((at = malloc(tensor->bytes + sizeof *at)) == NULL) give_up("no memory");
    memcpy(at, golden_data(file, tensor), tensor->bytes);
    return at;
}

json_t *golden_cases(const golden_file *file)
{
    return json_object_get(file->config, "cases");
}

int64_t golden_int(const json_t *entry, const char *key)
{
    return json_integer_value(json_object_get(entry, key));
}

double golden_real(const json_t *entry, const char *key)
{
    return json_number_value(json_object_get(entry, key));
}

enum { MOST_TRACES = 256 };

static int safetensors_only(const struct dirent *entry)
{
    size_t length = strlen(entry->d_name);
    return length > 12 && strcmp(entry->d_name + length - 12, ".safetensors") == 0;
}

int golden_folder(const char *system, void (*judge)(void **state), int (*setup)(void **state), int (*teardown)(void **state))
{
    static char paths[MOST_TRACES][1024];
    struct CMUnitTest tests[MOST_TRACES];
    const char *golden = getenv("PARAMD_GOLDEN");
    char folder[512];
    struct dirent **entries;
    int found, n = 0;

    snprintf(folder, sizeof folder, "%s/%s", golden != NULL ? golden : "", system);
    if (golden == NULL || (found = scandir(folder, &entries, safetensors_only, alphasort)) < 0) {
        printf("skipped: no traces in %s (PARAMD_GOLDEN)\n", folder);
        return 77;
    }
    for (int i = 0; i < found; i++) {
        if (n < MOST_TRACES) snprintf(paths[n], sizeof paths[n], "%s/%s", folder, entries[i]->d_name);
        free(entries[i]);
        if (n >= MOST_TRACES) continue;
        tests[n] = (struct CMUnitTest){ .name = paths[n], .test_func = judge, .initial_state = paths[n] };
        n++;
    }
    free(entries);
    if (n > 0) return _cmocka_run_group_tests(system, tests, (size_t)n, setup, teardown);
    printf("failed: there is no trace for this test in %s\n", folder);
    return 1;
}
