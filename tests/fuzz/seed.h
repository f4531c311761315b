/* seed.h - writes the seed corpus of a fuzzer that is started with PARAMD_SEEDS=FOLDER, and ends the program. The
 * seeds are packed with the project's own code, so they follow changes of the protocol. */
#ifndef PD_SEED_H
#define PD_SEED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Ends the program when the seed cannot be written. */
static inline void write_seed(const char *folder, const char *name, const uint8_t *at, size_t bytes)
{
    char path[4096];

    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *to = fopen(path, "wb");
    if (to == NULL || fwrite(at, 1, bytes, to) != bytes || fclose(to) != 0) {
        perror(path);
        exit(1);
    }
}

/* Writes n texts as the seeds PREFIX_0, PREFIX_1 ... */
static inline void write_texts(const char *folder, const char *prefix, const char *const *texts, size_t n)
{
    char name[32];

    for (size_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "%s_%zu", prefix, i);
        write_seed(folder, name, (const uint8_t *)texts[i], strlen(texts[i]));
    }
}

/* Writes the seeds and ends the program if PARAMD_SEEDS is set. For use in LLVMFuzzerInitialize. */
static inline int seed_if_asked(void (*make)(const char *folder))
{
    const char *folder = getenv("PARAMD_SEEDS");

    if (folder == NULL) return 0;
    make(folder);
    exit(0);
}

/* Aborts with the text of the condition if it is false. It must hold for every input. */
#define MUST(holds)                                                                                                    \
    do {                                                                                                               \
        if (!(holds)) {                                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #holds);                                                \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#endif
