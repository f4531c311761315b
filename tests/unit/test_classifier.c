/* Tests how the example worker reads its images, and its model. */
#include "test.h"
#include "classifier.h"

enum { N = 9000, BATCH = 64, EXAMPLES = 12, STRIDE = 997 };
static images set, other;
static mlp net, twin;
static float x[BATCH * PIXELS];
static uint8_t label[BATCH];

static char folder[64], images_path[128], labels_path[128];

/* Writes an IDX file of `rows` rows. Two pixels of an image encode the row number. A label is the row number modulo
 * `classes`. */
static void write_idx(const char *path, const char *header, int head_bytes, int size, int rows, int classes)
{
    gzFile file = gzopen(path, "wb1");

    assert_non_null(file);
    assert_int_equal(gzwrite(file, header, (unsigned)head_bytes), head_bytes);
    for (int i = 0; i < rows; i++) {
        uint8_t row[PIXELS] = { (uint8_t)(size == 1 ? i % classes : i & 255), (uint8_t)(i >> 8) };
        assert_int_equal(gzwrite(file, row, (unsigned)size), size);
    }
    gzclose(file);
}

static void write_images(int rows)
{
    write_idx(images_path, "\0\0\10\3\0\0\43\50\0\0\0\34\0\0\0\34", 16, PIXELS, rows, 0);
}

static void write_labels(int rows, int classes)
{
    write_idx(labels_path, "\0\0\10\1\0\0\43\50", 8, 1, rows, classes);
}

static int make_files(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/paramd-classifier-XXXXXX");
    assert_non_null(mkdtemp(folder));
    snprintf(images_path, sizeof images_path, "%s/train-images-idx3-ubyte.gz", folder);
    snprintf(labels_path, sizeof labels_path, "%s/train-labels-idx1-ubyte.gz", folder);
    write_images(N);
    write_labels(N, CLASSES);
    assert_int_equal(images_load(&set, folder, "train", NULL), PD_OK);
    return 0;
}

static int remove_files(void **state)
{
    (void)state;
    unlink(images_path);
    unlink(labels_path);
    return rmdir(folder);
}

static int pixel(float value)
{
    return (int)lroundf((value * 0.3530f + 0.2860f) * 255.0f);
}

/* Returns the row number that is encoded in image i of x. */
static int image_at(int i)
{
    return pixel(x[i * PIXELS]) + 256 * pixel(x[i * PIXELS + 1]);
}

EACH_TEST(make_files, remove_files);

TEST(an_epoch_shows_each_image_once)
{
    static int seen[N];

    memset(seen, 0, sizeof seen);
    images_shuffle(&set, 3, 2);
    for (int i = 0; i < N; i++) seen[set.order[i]]++;
    for (int i = 0; i < N; i++) assert_int_equal(seen[i], 1);
}

TEST(each_epoch_and_each_seed_have_an_order_of_their_own)
{
    other = set;
    images_shuffle(&set, 3, 2);
    images_shuffle(&other, 3, 2);
    assert_memory_equal(set.order, other.order, N * sizeof *set.order);
    images_shuffle(&other, 3, 1);
    assert_memory_not_equal(set.order, other.order, BATCH * sizeof *set.order);
    images_shuffle(&other, 4, 2);
    assert_memory_not_equal(set.order, other.order, BATCH * sizeof *set.order);
}

TEST(workers_share_a_batch_without_gaps_or_overlaps)
{
    static int seen[N];

    images_shuffle(&set, 1, 0);
    for (int world = 1; world <= 7; world++) {
        memset(seen, 0, sizeof seen);
        for (int rank = 0; rank < world; rank++) {
            int n = images_take(&set, BATCH + rank, 2 * BATCH, world, x, label);
            assert_in_range(n, BATCH / world, BATCH / world + 1);
            for (int i = 0; i < n; i++) seen[image_at(i)]++;
        }
        for (int at = 0; at < N; at++) assert_int_equal(seen[set.order[at]], at >= BATCH && at < 2 * BATCH);
    }
}

TEST(an_image_comes_with_its_label)
{
    images_shuffle(&set, 1, 0);
    assert_int_equal(images_take(&set, 0, BATCH, 1, x, label), BATCH);
    for (int i = 0; i < BATCH; i++) assert_int_equal(label[i], image_at(i) % CLASSES);
}

static void expect_refusal(void)
{
    pd_error err = { 0 };

    assert_int_equal(images_load(&other, folder, "train", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "dataset-fashion-mnist"));
}

TEST(refuses_a_folder_without_the_images)
{
    unlink(images_path);
    expect_refusal();
}

TEST(refuses_images_that_end_early)
{
    write_images(N - 1);
    expect_refusal();
}

TEST(refuses_labels_of_another_number)
{
    write_labels(N - 1, CLASSES);
    expect_refusal();
}

TEST(refuses_a_label_that_is_no_class)
{
    write_labels(N, CLASSES + 1);
    expect_refusal();
}

/* Makes examples and weights. The biases are not 0, so that they are tested too. */
static int make_model(void **state)
{
    unsigned short random[3] = { 1, 2, 3 };

    (void)state;
    mlp_init(&net, 5);
    for (int l = 0; l < LAYERS; l++)
        for (int i = tensor_at[2 * l + 1]; i < tensor_at[2 * l + 2]; i++) net.value[i] = (float)(erand48(random) - 0.5);
    for (int i = 0; i < EXAMPLES * PIXELS; i++) net.out[0][i] = (float)(2 * erand48(random) - 1);
    for (int i = 0; i < EXAMPLES; i++) net.label[i] = (uint8_t)(nrand48(random) % CLASSES);
    return 0;
}

TEST_WITH(make_model, NULL, the_tensors_follow_each_other_without_gaps)
{
    for (int l = 0; l < LAYERS; l++) {
        assert_int_equal(tensor_at[2 * l + 1] - tensor_at[2 * l], width[l] * width[l + 1]);
        assert_int_equal(tensor_at[2 * l + 2] - tensor_at[2 * l + 1], width[l + 1]);
    }
    assert_int_equal(tensor_at[TENSORS] * sizeof(float), sizeof net.value);
}

/* Compares the loss's derivative by weight i (an index into all weights of the model) with a difference quotient. */
static void check_derivative(int i)
{
    float here = net.value[i];
    double high, low;

    net.value[i] = here + 1e-3f;
    high = mlp_loss(&net, EXAMPLES);
    net.value[i] = here - 1e-3f;
    low = mlp_loss(&net, EXAMPLES);
    net.value[i] = here;
    if (fabs((high - low) / 2e-3 - net.gradient[i]) > 1e-3)
        fail_msg("value %d: derivative %g, difference %g", i, net.gradient[i], (high - low) / 2e-3);
}

TEST_WITH(make_model, NULL, derivatives_agree_with_differences_of_the_loss)
{
    mlp_differentiate(&net, EXAMPLES);
    for (int t = 0; t < TENSORS; t++)
        for (int i = tensor_at[t]; i < tensor_at[t + 1]; i += t == 0 ? 20 * STRIDE : 1 + (tensor_at[t + 1] - i) / 9)
            check_derivative(i);
}

TEST_WITH(make_model, NULL, gradients_of_parts_average_to_the_whole_batch)
{
    static float mean[sizeof net.value / sizeof *net.value];
    int bounds[] = { 0, 5, 6, EXAMPLES };

    memset(mean, 0, sizeof mean);
    for (int part = 0; part < 3; part++) {
        int first = bounds[part], n = bounds[part + 1] - first;
        memcpy(twin.value, net.value, sizeof net.value);
        memcpy(twin.out[0], net.out[0] + first * PIXELS, (size_t)n * PIXELS * sizeof(float));
        memcpy(twin.label, net.label + first, (size_t)n);
        mlp_differentiate(&twin, n);
        for (int i = 0; i < tensor_at[TENSORS]; i++) mean[i] += twin.gradient[i] * (float)n / EXAMPLES;
    }
    mlp_differentiate(&net, EXAMPLES);
    for (int i = 0; i < tensor_at[TENSORS]; i++) assert_float_equal(mean[i], net.gradient[i], 1e-5);
}

TEST_WITH(make_model, NULL, loss_of_equal_scores_is_the_logarithm_of_the_classes)
{
    memset(net.value, 0, sizeof net.value);
    assert_float_equal(mlp_loss(&net, EXAMPLES), log(CLASSES), 1e-6);
}

TEST_WITH(make_model, NULL, large_scores_give_a_finite_loss)
{
    net.value[tensor_at[TENSORS] - 1] = 1e30f;
    assert_true(isfinite(mlp_loss(&net, EXAMPLES)));
}

TEST_WITH(make_model, NULL, counts_correct_answers)
{
    int expected = 0;

    memset(net.value, 0, sizeof net.value);
    /* the model answers every example with the first example's class */
    net.value[tensor_at[TENSORS - 1] + net.label[0]] = 1.0f;
    for (int i = 0; i < EXAMPLES; i++) expected += net.label[i] == net.label[0];
    mlp_loss(&net, EXAMPLES);
    assert_int_equal(net.correct, expected);
}

TEST_WITH(make_model, NULL, initial_weights_depend_on_the_seed_alone)
{
    mlp_init(&net, 9);
    mlp_init(&twin, 9);
    assert_memory_equal(net.value, twin.value, sizeof net.value);
    mlp_init(&twin, 10);
    assert_memory_not_equal(net.value, twin.value, 100 * sizeof *net.value);
}

/* The number of images is not a multiple of mlp_test's batch size. */
TEST(the_test_loss_is_the_mean_over_all_images)
{
    static float all[537 * PIXELS];
    double accuracy, loss;

    mlp_init(&net, 1);
    other = set;
    other.n = 537;
    images_take(&other, 0, 537, 1, all, twin.label);
    loss = mlp_test(&net, &other, &accuracy);
    memcpy(net.out[0], all, sizeof all);
    memcpy(net.label, twin.label, 537);
    assert_float_equal(loss, mlp_loss(&net, 537), 1e-5 * loss);
    assert_float_equal(accuracy, net.correct / 537.0, 1e-12);
}
