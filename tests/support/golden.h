/* golden.h - recorded files: numbered cases for the tests of routines, and folders of recorded runs, one test for each
 * run. The files are in tests/golden/traces, which is committed, and in ../shared/golden, if that folder exists. A file
 * that is missing or damaged ends the program. */
#ifndef PD_GOLDEN_H
#define PD_GOLDEN_H

#include <jansson.h>

#include "safetensors.h"

typedef struct golden_file {
    void *bytes;
    pd_safetensors *tensors;
    json_t *config;
} golden_file;

/* Returns the path of the file SYSTEM/FILE. Borrowed until the next call. */
const char *golden_path(const char *name);
/* Reads the table SYSTEM/FILE.json. The caller drops the reference. */
json_t *golden_table(const char *name);
/* Reads numbered cases from SYSTEM/FILE.safetensors. */
void golden_open(golden_file *file, const char *name);
void golden_close(golden_file *file);

/* Returns all bytes of a file; the caller frees them. Ends the program if the file cannot be read. */
void *golden_read(const char *path, size_t *bytes);

/* Returns the tensor of a name, which is given as a printf format, or NULL. */
const pd_st_tensor *golden_find(const golden_file *file, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Returns the tensor's elements, borrowed. They may be unaligned. */
const void *golden_data(const golden_file *file, const pd_st_tensor *tensor);
/* Returns the elements of a float32 tensor; the caller frees them. Ends the program if `tensor` is NULL or of another
 * type. */
float *golden_floats(const golden_file *file, const pd_st_tensor *tensor);
/* Returns the member "cases" of the file's config. Borrowed. */
json_t *golden_cases(const golden_file *file);
/* Return the value of a member of a recorded case. */
int64_t golden_int(const json_t *entry, const char *key);
double golden_real(const json_t *entry, const char *key);

enum { GOLDEN_MOST = 256 };

typedef struct golden_list {
    char path[GOLDEN_MOST][1024];
    int n;
} golden_list;

/* Lists the traces of a system in both folders. A name that is in both folders is listed once. */
void golden_list_of(golden_list *list, const char *system);

/* Runs `judge` on each trace of a system, with its path in *state. `setup` and `teardown` run before and after all of
 * them; each may be NULL. Returns the program's exit status. */
int golden_folder(const char *system, void (*judge)(void **state), int (*setup)(void **state),
                  int (*teardown)(void **state));

#endif
