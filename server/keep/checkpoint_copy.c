/* checkpoint_copy.c - copies a checkpoint from one directory to another, and compares the hashes of its files with the
 * manifest. */
#include "copy.h"

#include "mutant.h"
#include "pages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int pd_copier_init(pd_copier *copier, const pd_disk *from, const pd_disk *to, pd_error *err)
{
    int rc;

    *copier = (pd_copier){ .from = from, .to = to };
    if ((rc = pd_file_writer_init(&copier->writer, to, err)) != PD_OK) return rc;
    copier->slice = pd_pages_new(PD_COPY_SLICE);
    copier->hash = XXH3_createState();
    if (copier->slice != NULL && copier->hash != NULL) return PD_OK;
    pd_copier_free(copier);
    return pd_fail(err, PD_NO_MEMORY, "a copy of a checkpoint: out of memory");
}

void pd_copier_free(pd_copier *copier)
{
    pd_file_writer_free(&copier->writer);
    if (copier->hash != NULL) XXH3_freeState(copier->hash);
    free(copier->slice);
    *copier = (pd_copier){ 0 };
}

int pd_copy_sync_dir(const pd_disk *disk, const char *path, pd_error *err)
{
    int number = PD_MUTANT(mirror_unsynced) ? 0 : disk->sync_dir(disk->arg, path);

    if (number == 0 || number == EINVAL || number == ENOSYS || number == EOPNOTSUPP) return PD_OK;
    return pd_disk_fail(err, number, "sync the directory", path);
}

/* Number of slices after which pd_copier.between is called. */
enum { SLICES_BETWEEN = 16 };

/* Copies the bytes of an open file that are left. */
static int copy_bytes(pd_copier *copier, pd_file_reader *reader, pd_error *err)
{
    unsigned slices = 0;
    int rc = PD_OK;

    while (rc == PD_OK && reader->at < reader->bytes) {
        uint64_t left = reader->bytes - reader->at;
        size_t n = left < PD_COPY_SLICE ? (size_t)left : PD_COPY_SLICE;
        if ((rc = pd_file_reader_take(reader, copier->slice, n, err)) != PD_OK) {
            copier->of_source = true;
            return rc;
        }
        rc = pd_file_writer_put(&copier->writer, copier->slice, n, err);
        if (rc == PD_OK && copier->between != NULL && ++slices % SLICES_BETWEEN == 0) copier->between(copier->arg);
    }
    return rc;
}

/* Closes the file that is written, whatever its contents are. */
static void leave_file(pd_copier *copier)
{
    if (copier->writer.open) copier->to->close(copier->to->arg, copier->writer.file);
    copier->writer.open = false;
}

static int copy_file(pd_copier *copier, const char *from_dir, const char *to_dir, const char *name,
                     const pd_file_sum *sum, pd_error *err)
{
    pd_file_reader reader;
    pd_file_sum written;
    int rc = pd_file_reader_open(&reader, copier->from, from_dir, name, sum, err);

    if (rc != PD_OK) {
        copier->of_source = true;
        return rc;
    }
    rc = pd_file_writer_open(&copier->writer, to_dir, name, sum->bytes, err);
    if (rc == PD_OK) rc = copy_bytes(copier, &reader, err);
    if (rc == PD_OK) rc = pd_file_writer_close(&copier->writer, &written, err);
    if (rc != PD_OK) {
        leave_file(copier);
        return pd_file_reader_close(&reader, rc, err);
    }
    if ((rc = pd_file_reader_close(&reader, PD_OK, err)) != PD_OK) copier->of_source = true;
    return rc;
}

static int write_manifest(pd_copier *copier, const char *to_dir, const pd_manifest *manifest, pd_error *err)
{
    pd_file_sum sum;
    char *text;
    size_t bytes;
    int rc = pd_manifest_text(&text, &bytes, manifest, err);

    if (rc != PD_OK) return rc;
    rc = pd_file_writer_open(&copier->writer, to_dir, PD_KEEP_MANIFEST, 0, err);
    if (rc == PD_OK) rc = pd_file_writer_put(&copier->writer, text, bytes, err);
    if (rc == PD_OK) rc = pd_file_writer_close(&copier->writer, &sum, err);
    if (rc != PD_OK) leave_file(copier);
    free(text);
    return rc;
}

int pd_copy_checkpoint(pd_copier *copier, const char *from_dir, const char *to_dir, const pd_manifest *manifest,
                       pd_error *err)
{
    int number = copier->to->make_dir(copier->to->arg, to_dir), rc = PD_OK;

    copier->of_source = false;
    if (number != 0 && number != EEXIST) return pd_disk_fail(err, number, "make the directory", to_dir);
    for (int i = 0; i < PD_KEEP_FILES && rc == PD_OK; i++)
        rc = copy_file(copier, from_dir, to_dir, pd_keep_files[i], &manifest->file[i], err);
    /* The names of the other files are on the disk before that of the manifest. */
    if (rc == PD_OK) rc = pd_copy_sync_dir(copier->to, to_dir, err);
    if (rc == PD_OK) rc = write_manifest(copier, to_dir, manifest, err);
    return rc == PD_OK ? pd_copy_sync_dir(copier->to, to_dir, err) : rc;
}

bool pd_copy_is_same(const pd_manifest *a, const pd_manifest *b)
{
    return a->creator == b->creator && a->step == b->step && a->about.written_ms == b->about.written_ms &&
           strcmp(a->job, b->job) == 0 && memcmp(a->file, b->file, sizeof a->file) == 0;
}
