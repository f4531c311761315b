#include "dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "counter.h"

enum { STRATA = 240, MOST_IMAGES = 10000000 };
static const float mean = 0.2860f, deviation = 0.3530f;         /* of the training images' pixels, from 0 to 1 */

static gzFile open_part(const char *folder, const char *part, const char *kind, pd_error *err)
{
    char   path[4096];
    gzFile file = NULL;

    for (const char *const *end = (const char *const[]){ ".gz", "", NULL }; file == NULL && *end != NULL; end++) {
        snprintf(path, sizeof path, "%s/%s-%s-ubyte%s", folder, part, kind, *end);
        file = gzopen(path, "rb");                              /* reads plain files too */
    }
    if (file == NULL) pd_fail(err, PD_NOT_FOUND, "%s.gz: cannot open: install Debian's dataset-fashion-mnist, or tell the folder with --data", path);
    return file;
}

/* An IDX header: 0 0 8 rank, then `rank` big-endian dimensions. */
static bool read_header(gzFile file, int rank, uint32_t *dim)
{
    uint8_t at[16];
    int     bytes = 4 + 4 * rank;

    if (gzread(file, at, (unsigned)bytes) != bytes || memcmp(at, "\0\0\x08", 3) != 0 || at[3] != rank) return false;
    for (int d = 0; d < rank; d++)
        dim[d] = (uint32_t)at[4 * d + 4] << 24 | (uint32_t)at[4 * d + 5] << 16 | (uint32_t)at[4 * d + 6] << 8 | at[4 * d + 7];
    return true;
}

/* Keeps the rows of `size` bytes that are this worker's. Gives NULL when the file ends early or memory is out. */
static uint8_t *read_rows(gzFile file, const dataset *set, size_t size)
{
    uint8_t  others[DATASET_PIXELS] = { 0 };
    uint8_t *rows = malloc((size_t)set->n * size + 1), *next = rows;

    for (int i = 0; rows != NULL && i < set->total; i++) {
        bool mine = i % set->world == set->rank;
        if (gzread(file, mine ? next : others, (unsigned)size) != (int)size) {
            free(rows);
            return NULL;
        }
        if (mine) next += size;
    }
    return rows;
}

/* Of the first `most` images in the file. */
static int load_images(dataset *set, gzFile file, const char *part, int most, pd_error *err)
{
    uint32_t dim[3];

    if (!read_header(file, 3, dim) || dim[0] == 0 || dim[0] > MOST_IMAGES || dim[1] != 28 || dim[2] != 28)
        return pd_fail(err, PD_DATA_LOSS, "%s images: expected an IDX file of 28 x 28 images", part);
    set->in_file = (int)dim[0];
    set->total = set->in_file < most ? set->in_file : most;
    set->n = (set->total - set->rank + set->world - 1) / set->world;
    if ((set->pixels = read_rows(file, set, DATASET_PIXELS)) == NULL)
        return pd_fail(err, PD_DATA_LOSS, "%s images: the file ends early, or out of memory", part);
    return PD_OK;
}

static int load_labels(dataset *set, gzFile file, const char *part, pd_error *err)
{
    uint32_t count;

    if (!read_header(file, 1, &count) || count != (uint32_t)set->in_file)
        return pd_fail(err, PD_DATA_LOSS, "%s labels: expected an IDX file of %d labels, one an image", part, set->in_file);
    if ((set->labels = read_rows(file, set, 1)) == NULL)
        return pd_fail(err, PD_DATA_LOSS, "%s labels: the file ends early, or out of memory", part);
    for (int i = 0; i < set->n; i++)
        if (set->labels[i] >= DATASET_CLASSES) return pd_fail(err, PD_DATA_LOSS, "%s labels: %d is not a class from 0 to 9", part, set->labels[i]);
    return PD_OK;
}

static int load(dataset *set, const char *folder, const char *part, int rank, int world, int most, pd_error *err)
{
    int    rc = PD_NOT_FOUND;
    gzFile images = NULL, labels = NULL;

    *set = (dataset){ .rank = rank, .world = world };
    if ((images = open_part(folder, part, "images-idx3", err)) == NULL) goto done;
    if ((labels = open_part(folder, part, "labels-idx1", err)) == NULL) goto done;
    if ((rc = load_images(set, images, part, most, err)) != PD_OK) goto done;
    if ((rc = load_labels(set, labels, part, err)) != PD_OK) goto done;
    if ((set->order = malloc(((size_t)set->n + 1) * sizeof *set->order)) == NULL) {
        rc = pd_fail(err, PD_NO_MEMORY, "%s: out of memory", part);
        goto done;
    }
    for (int i = 0; i < set->n; i++) set->order[i] = (uint32_t)i;

done:
    if (rc != PD_OK) dataset_free(set);
    if (images != NULL) gzclose(images);
    if (labels != NULL) gzclose(labels);
    return rc;
}

int dataset_load(dataset *set, const char *folder, const char *part, int rank, int world, pd_error *err)
{
    return load(set, folder, part, rank, world, MOST_IMAGES, err);
}

int dataset_load_first(dataset *set, const char *folder, const char *part, int most, pd_error *err)
{
    return load(set, folder, part, 0, 1, most, err);
}

void dataset_free(dataset *set)
{
    free(set->pixels);
    free(set->labels);
    free(set->order);
    *set = (dataset){ 0 };
}

/* Positions p and p + 240 exchange images, never p and p + 1: whoever owns p mod 240 owns what comes there, for every world that divides 240.
 * Fisher and Yates' shuffle within each such class; it begins at the file's order, so an epoch does not depend on those before it. */
void dataset_shuffle(dataset *set, uint64_t seed, uint64_t epoch)
{
    int strata = STRATA % set->world == 0 ? STRATA / set->world : 1;    /* this worker's classes */

    for (int i = 0; i < set->n; i++) set->order[i] = (uint32_t)i;
    for (int s = 0; s < strata; s++)
        for (int last = (set->n - 1 - s) / strata; last > 0; last--) {
            uint64_t position = (uint64_t)(s + last * strata) * (uint64_t)set->world + (uint64_t)set->rank;     /* in the common order */
            int      other = (int)counter_below((uint32_t)last + 1, seed, epoch, position);
            uint32_t *a = &set->order[s + last * strata], *b = &set->order[s + other * strata], keep = *a;
            *a = *b;
            *b = keep;
        }
}

int dataset_take(const dataset *set, int first, int batch, float *x, uint8_t *label)
{
    int begin = (first - set->rank + set->world - 1) / set->world;              /* first own position at or after `first` */
    int end = (first + batch - set->rank + set->world - 1) / set->world;

    for (int i = begin; i < end; i++) {
        const uint8_t *image = set->pixels + (size_t)set->order[i] * DATASET_PIXELS;
        for (int p = 0; p < DATASET_PIXELS; p++) *x++ = ((float)image[p] / 255.0f - mean) / deviation;
        *label++ = set->labels[set->order[i]];
    }
    return end - begin;
}
