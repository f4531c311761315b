/* golden.h - recorded files: numbered cases, for the tests of routines, and folders of runs, a test each.
 * They lie in tests/golden/traces, which is committed, and in ../shared/golden, where that exists. A file that is
 * missing or damaged ends the program. */
#ifndef PD_GOLDEN_H
#define PD_GOLDEN_H

#include <jansson.h>

#include "safetensors.h"

typedef struct golden_file {
    void           *bytes;
    pd_safetensors *tensors;
    json_t         *config;
} golden_file;

/* Where the file SYSTEM/FILE lies. Borrowed until the next call. */
const char *golden_path(const char *name);
/* Reads the table SYSTEM/FILE.json. Gives: the caller drops the reference. */
json_t *golden_table(const char *name);
/* Reads numbered cases from SYSTEM/FILE.safetensors. */
void golden_open(golden_file *file, const char *name);
void golden_close(golden_file *file);

/* All bytes of a file. Gives. Ends the program where it cannot be read. */
void *golden_read(const char *path, size_t *bytes);

/* The tensor of that name, or NULL. */
const pd_st_tensor *golden_find(const golden_file *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Its elements, borrowed; may lie unaligned. */
const void *golden_data(const golden_file *file, const pd_st_tensor *tensor);
/* Elements of a tensor of float32. Gives: the caller frees. Ends the program where there is no such tensor. */
float *golden_floats(const golden_file *file, const pd_st_tensor *tensor);
/* config.cases, borrowed. */
json_t *golden_cases(const golden_file *file);
/* A member of a case. */
int64_t golden_int(const json_t *entry, const char *key);
double  golden_real(const json_t *entry, const char *key);

enum { GOLDEN_MOST = 256 };

typedef struct golden_list {
    char path[GOLDEN_MOST][1024];
    int  n;
} golden_list;

/* Lists the traces of a system in both folders; a name that is in both is listed once. */
void golden_list_of(golden_list *list, const char *system);

/* Runs `judge` on each of them, its path in *state, between `setup` and `teardown`, each of which may be NULL.
 * Returns what main returns. */
int golden_folder(const char *system, void (*judge)(void **state), int (*setup)(void **state),
                  int (*teardown)(void **state));

#endif
