/* Which images a worker of the example sees, on a small data set whose pixels tell the image's number. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

enum { IMAGES = 1000, BATCH = 64 };
static char folder[64];

static void write_idx(const char *name, const uint8_t *header, unsigned header_bytes, unsigned row, int rows)
{
    char   path[128];
    gzFile file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    assert_non_null(file = gzopen(path, "wb"));
    assert_int_equal(gzwrite(file, header, header_bytes), header_bytes);
    for (int i = 0; i < rows; i++) {
        uint8_t at[DATASET_PIXELS] = { (uint8_t)(i & 255), (uint8_t)(i >> 8) };
        if (row == 1) at[0] = (uint8_t)(i % 10);
        assert_int_equal(gzwrite(file, at, row), row);
    }
    gzclose(file);
}

static const uint8_t images_header[16] = { 0, 0, 8, 3, 0, 0, IMAGES >> 8, IMAGES & 255, 0, 0, 0, 28, 0, 0, 0, 28 };
static const uint8_t labels_header[8] = { 0, 0, 8, 1, 0, 0, IMAGES >> 8, IMAGES & 255 };

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/paramd-dataset-XXXXXX");
    assert_non_null(mkdtemp(folder));
    write_idx("train-images-idx3-ubyte.gz", images_header, 16, DATASET_PIXELS, IMAGES);
    write_idx("train-labels-idx1-ubyte.gz", labels_header, 8, 1, IMAGES);
    return 0;
}

static int teardown(void **state)
{
    char path[128];
    (void)state;
    snprintf(path, sizeof path, "%s/train-images-idx3-ubyte.gz", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/train-labels-idx1-ubyte.gz", folder);
    unlink(path);
    return rmdir(folder);
}

static int pixel(float x) { return (int)lroundf((x * 0.3530f + 0.2860f) * 255.0f); }

/* Counts in seen[image] what all `world` workers take together at positions [first, first + n) of an epoch. */
static void count(int world, uint64_t epoch, int first, int n, int seen[IMAGES])
{
    static float x[IMAGES * DATASET_PIXELS];
    uint8_t label[IMAGES];

    memset(seen, 0, IMAGES * sizeof *seen);
    for (int rank = 0; rank < world; rank++) {
        dataset  set;
        pd_error err;
        assert_int_equal(dataset_load(&set, folder, "train", rank, world, &err), PD_OK);
        dataset_shuffle(&set, 3, epoch);
        for (int i = dataset_take(&set, first, n, x, label) - 1; i >= 0; i--) {
            int image = pixel(x[i * DATASET_PIXELS]) + 256 * pixel(x[i * DATASET_PIXELS + 1]);
            assert_in_range(image, 0, IMAGES - 1);
            assert_int_equal(image % world, rank);              /* its own */
            assert_int_equal(label[i], image % 10);
            seen[image]++;
        }
        dataset_free(&set);
    }
}

static void an_epoch_shows_each_image_once(void **state)
{
    int seen[IMAGES];
    (void)state;
    for (int world = 1; world <= 7; world++) {
        count(world, 2, 0, IMAGES, seen);
        for (int i = 0; i < IMAGES; i++) assert_int_equal(seen[i], 1);
    }
}

static void any_number_of_workers_that_divides_240_sees_the_same_batches(void **state)
{
    int alone[IMAGES], together[IMAGES], worlds[] = { 2, 3, 4, 5, 8, 16, 240 };
    (void)state;
    for (int first = 0; first + BATCH <= IMAGES; first += 5 * BATCH) {
        count(1, 1, first, BATCH, alone);
        for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++) {
            count(worlds[i], 1, first, BATCH, together);
            assert_memory_equal(alone, together, sizeof alone);
        }
    }
}

static void each_epoch_has_an_order_of_its_own(void **state)
{
    int one[IMAGES], other[IMAGES];
    (void)state;
    count(4, 0, 0, BATCH, one);
    count(4, 1, 0, BATCH, other);
    assert_memory_not_equal(one, other, sizeof one);
    count(4, 0, 0, BATCH, other);
    assert_memory_equal(one, other, sizeof one);
}

static void shares_of_a_batch_differ_by_at_most_one_image(void **state)
{
    static float x[BATCH * DATASET_PIXELS];
    uint8_t label[BATCH];
    (void)state;
    for (int rank = 0; rank < 7; rank++) {
        dataset set;
        assert_int_equal(dataset_load(&set, folder, "train", rank, 7, NULL), PD_OK);
        assert_in_range(dataset_take(&set, 3 * BATCH, BATCH, x, label), BATCH / 7, BATCH / 7 + 1);
        dataset_free(&set);
    }
}

static void the_first_images_of_a_file_may_be_asked_for_alone(void **state)
{
    static float x[IMAGES * DATASET_PIXELS];
    uint8_t label[IMAGES];
    dataset set;
    (void)state;
    assert_int_equal(dataset_load_first(&set, folder, "train", 300, NULL), PD_OK);
    assert_int_equal(set.total, 300);
    assert_int_equal(set.n, 300);
    assert_int_equal(dataset_take(&set, 0, 300, x, label), 300);
    for (int i = 0; i < 300; i++) assert_int_equal(pixel(x[i * DATASET_PIXELS]) + 256 * pixel(x[i * DATASET_PIXELS + 1]), i);
    assert_int_equal(label[299], 9);
    dataset_free(&set);
    assert_int_equal(dataset_load_first(&set, folder, "train", 5 * IMAGES, NULL), PD_OK);
    assert_int_equal(set.n, IMAGES);                                    /* all there are */
    dataset_free(&set);
}

/* What dataset_load says after the images' or the labels' file was written anew. */
static void refused(int code, const char *word)
{
    dataset  set;
    pd_error err = { 0 };
    assert_int_equal(dataset_load(&set, folder, "train", 0, 1, &err), code);
    if (strstr(err.text, word) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, word);
    assert_null(set.pixels);
}

static void refuses_a_folder_without_the_images(void **state)
{
    dataset  set;
    pd_error err;
    (void)state;
    assert_int_equal(dataset_load(&set, "/nonexistent", "train", 0, 1, &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "dataset-fashion-mnist"));
}

static void refuses_images_that_end_early(void **state)
{
    (void)state;
    write_idx("train-images-idx3-ubyte.gz", images_header, 16, DATASET_PIXELS, IMAGES - 1);
    refused(PD_DATA_LOSS, "ends early");
}

static void refuses_another_kind_of_file(void **state)
{
    (void)state;
    write_idx("train-images-idx3-ubyte.gz", labels_header, 8, 1, IMAGES);
    refused(PD_DATA_LOSS, "28 x 28");
}

static void refuses_images_of_another_size(void **state)
{
    uint8_t header[16];
    (void)state;
    memcpy(header, images_header, sizeof header);
    header[11] = 56, header[15] = 14;                   /* as many pixels, another picture */
    write_idx("train-images-idx3-ubyte.gz", header, 16, DATASET_PIXELS, IMAGES);
    refused(PD_DATA_LOSS, "28 x 28");
}

static void refuses_labels_of_another_number(void **state)
{
    uint8_t header[8];
    (void)state;
    memcpy(header, labels_header, sizeof header);
    header[7]--;
    write_idx("train-labels-idx1-ubyte.gz", header, 8, 1, IMAGES - 1);
    refused(PD_DATA_LOSS, "1000 labels");
}

static void refuses_a_label_that_is_no_class(void **state)
{
    (void)state;
    write_idx("train-labels-idx1-ubyte.gz", labels_header, 8, 2, IMAGES);       /* i & 255, i >> 8: 11 comes before long */
    refused(PD_DATA_LOSS, "not a class");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        CASE(an_epoch_shows_each_image_once),
        CASE(any_number_of_workers_that_divides_240_sees_the_same_batches),
        CASE(each_epoch_has_an_order_of_its_own),
        CASE(shares_of_a_batch_differ_by_at_most_one_image),
        CASE(the_first_images_of_a_file_may_be_asked_for_alone),
        CASE(refuses_a_folder_without_the_images),
        CASE(refuses_images_that_end_early),
        CASE(refuses_another_kind_of_file),
        CASE(refuses_images_of_another_size),
        CASE(refuses_labels_of_another_number),
        CASE(refuses_a_label_that_is_no_class),
    };
    return cmocka_run_group_tests_name("dataset", tests, NULL, NULL);
}
