/* out_folder.h - the folder into which state directories are written. It gets its name when all of them are complete
 * and on the disk, so a crash leaves either all of them or none. */
#ifndef PD_OUT_FOLDER_H
#define PD_OUT_FOLDER_H

#include "state_dir.h"

typedef struct pd_out_folder {
    char path[PD_KEEP_PATH];      /* what it is called in the end */
    char temporary[PD_KEEP_PATH]; /* PATH.part, what it is called until then */
    bool made;
} pd_out_folder;

/* Makes PATH.part. PD_FAILED_PRECONDITION: PATH or PATH.part exists. */
int pd_out_folder_begin(pd_out_folder *out, const char *path, pd_error *err);
/* Makes state directory `i` in it, and writes its path to `dir`. */
int pd_out_folder_add(const pd_out_folder *out, size_t i, char dir[PD_KEEP_PATH], pd_error *err);
/* Waits until the disk has the folder, and renames it. */
int pd_out_folder_end(pd_out_folder *out, pd_error *err);
/* Removes what was written, unless pd_out_folder_end has succeeded. */
void pd_out_folder_free(pd_out_folder *out);

#endif
