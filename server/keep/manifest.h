/* manifest.h - the manifest of a checkpoint: what it is, and the size and XXH3 of each of its files, as JSON.
 *
 * It is written last. Its own last member is the XXH3 of all bytes before that member, so a change of any of its bytes
 * is found. */
#ifndef PD_MANIFEST_H
#define PD_MANIFEST_H

#include "file_io.h"

#define PD_MANIFEST_FORMAT 1
#define PD_MANIFEST_MOST 65536 /* most bytes of a manifest */

/* The software and hardware that wrote a checkpoint, and when. Texts that are too long are cut. */
typedef struct pd_checkpoint_about {
    char paramd[32];     /* version of paramd */
    char blas[32];       /* name of the BLAS kernels: with others, results differ in their last bits */
    char cpu[32];        /* name of the instruction set of our own loops */
    uint64_t written_ms; /* time since 1970, in ms */
} pd_checkpoint_about;

typedef struct pd_manifest {
    char job[512];
    uint64_t creator, step;
    pd_checkpoint_about about;
    pd_file_sum file[PD_KEEP_FILES];
} pd_manifest;

/* Makes the text of a manifest. The caller frees *out. */
int pd_manifest_text(char **out, size_t *bytes, const pd_manifest *manifest, pd_error *err);
/* Reads the text of a manifest. PD_DATA_LOSS: it is damaged. PD_UNIMPLEMENTED: it has a newer format. PD_NO_MEMORY. */
int pd_manifest_parse(pd_manifest *manifest, const char *text, size_t bytes, pd_error *err);
/* Returns the bytes of all files that a manifest tells of. */
uint64_t pd_manifest_bytes(const pd_manifest *manifest);

#endif
