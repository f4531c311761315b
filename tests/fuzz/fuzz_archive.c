/* Reads any bytes as the archive image of a test object. The image is refused with a reason, or the object that was
 * read writes the same bytes again. */
#include <string.h>

#include "archived.h"
#include "seed.h"

static void make_seeds(const char *folder)
{
    archived_point points[] = { { 7, "label" }, { 8, NULL } };
    archived things[] = { { 0 }, { .level = 5, .text = "text", .name = "name", .points = points, .n_points = 2 } };
    char name[16];

    for (size_t i = 0; i < sizeof things / sizeof *things; i++) {
        uint8_t *image;
        size_t n;
        MUST(archived_write(&things[i], &image, &n, NULL) == PD_OK);
        snprintf(name, sizeof name, "thing_%zu", i);
        write_seed(folder, name, image, n);
        free(image);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

/* Overwrites the length that the image states at its start with the true length. Inputs of any length then pass the
 * check of the length. */
static void mend_length(uint8_t *image, size_t n)
{
    uint64_t length = n;

    if (n >= 16) memcpy(image + 8, &length, sizeof length);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *image = malloc(size + 1), *again;
    archived thing;
    pd_error err = { 0 };
    size_t n;

    if (image == NULL) return 0;
    memcpy(image, data, size);
    mend_length(image, size);
    if (archived_read(&thing, image, size, &err) != PD_OK) {
        MUST(err.text[0] != '\0');
    } else {
        MUST(archived_write(&thing, &again, &n, NULL) == PD_OK);
        MUST(n == size && memcmp(image, again, n) == 0);
        free(again);
    }
    archived_free(&thing);
    free(image);
    return 0;
}
