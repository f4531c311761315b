/* manifest.h - the manifest of a checkpoint: a JSON file with the job, the step, and the size and XXH3 of each file of
 * the checkpoint.
 *
 * The manifest is written after the other files. Its last member is the XXH3 of all bytes before that member, so a
 * change of any byte is found. */
#ifndef PD_MANIFEST_H
#define PD_MANIFEST_H

#include "file_io.h"

#define PD_MANIFEST_FORMAT 1
#define PD_MANIFEST_MOST 65536 /* most bytes of a manifest */

/* The software and hardware that wrote a checkpoint, and when. Texts that are too long are cut. */
typedef struct pd_checkpoint_about {
    char paramd[32];     /* version of paramd */
    char blas[32];       /* name of the kernels for products: with others, results differ in their last bits */
    char cpu[32];        /* name of the instruction set of our own loops */
    uint64_t written_ms; /* time since 1970, in ms */
} pd_checkpoint_about;

/* A manifest in memory. */
typedef struct pd_manifest {
    char job[512];          /* name of the job */
    uint64_t creator, step; /* the creator of the job (pd_job_saved.creator); the step of the checkpoint */
    uint64_t place;         /* number of the checkpoint's last step in the WAL; with one fragment: `step` */
    bool together;          /* the job is on several servers, which go back to the same step */
    pd_checkpoint_about about;
    pd_file_sum file[PD_KEEP_FILES]; /* size and hash of each of pd_keep_files */
} pd_manifest;

/* Makes the text of a manifest, *bytes bytes. The caller frees *out. PD_NO_MEMORY. */
int pd_manifest_text(char **out, size_t *bytes, const pd_manifest *manifest, pd_error *err);
/* Reads the text of a manifest. PD_DATA_LOSS: it is damaged. PD_UNIMPLEMENTED: it has another format. PD_NO_MEMORY. */
int pd_manifest_parse(pd_manifest *manifest, const char *text, size_t bytes, pd_error *err);
/* Returns the sum of the sizes of all files in a manifest. */
uint64_t pd_manifest_bytes(const pd_manifest *manifest);

#endif
