/* golden.h - recorded files in $PARAMD_GOLDEN: numbered cases, for the tests of routines, and folders of runs, a test each. */
#ifndef PD_GOLDEN_H
#define PD_GOLDEN_H

#include <jansson.h>

#include "safetensors.h"

typedef struct golden_file {
    void           *bytes;
    pd_safetensors *tensors;
    json_t         *config;
} golden_file;

/* False: it is not there, and the reason is printed: the test is skipped (exit 77). A file that is there and damaged ends the program. */
bool golden_open(golden_file *file, const char *path);
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

/* What main returns: runs `judge` on each trace of $PARAMD_GOLDEN/SYSTEM, its path in *state, between `setup` and `teardown`, each of which may
 * be NULL. 77: there is no such folder, and the reason is printed. */
int golden_folder(const char *system, void (*judge)(void **state), int (*setup)(void **state), int (*teardown)(void **state));

#endif
