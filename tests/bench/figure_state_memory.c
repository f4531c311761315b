/* state_memory: the bytes of scalable_shampoo's state, divided by the bytes that its mathematics needs. The figure
 * is the largest ratio over usual shapes, block sizes and options.
 *
 * The mathematics needs:
 *
 *     4 s^2 bytes for each statistic and each preconditioner, s the side of a block
 *         (in int16: 2 s^2, and 8 s for the diagonal and the bucket sizes)
 *     4 bytes for each element of two momenta (in int8: 1, and 4 for each column)
 *     4 bytes for each element of the diagonal of an Adagrad or RMSProp graft */

#include "figure.h"
#include "optimizer.h"
#include "partition.h"

typedef struct option {
    const char *graft, *reduced;
    bool diagonal, small;
} option;

static const option options[] = {
    { "SGD", "no", false, false },
    { "RMSPROP_NORMALIZED", "no", true, false },
    { "SGD", "yes", false, true },
    { "ADAGRAD", "yes", true, true },
};
/* Shapes of parameters of a transformer and of a convolutional network. */
static const pd_shape shapes[] = {
    { 2, { 4096, 1024 } },  { 2, { 1024, 1024 } },   { 2, { 768, 3072 } },   { 1, { 4096 } },
    { 1, { 1024 } },        { 2, { 784, 256 } },     { 2, { 1000, 2048 } },  { 4, { 3, 3, 256, 256 } },
    { 4, { 7, 7, 3, 64 } }, { 3, { 1024, 16, 64 } }, { 2, { 50257, 1024 } },
};
static const int64_t block_sizes[] = { 64, 128, 512, 1024 };

static void set(pd_hypers *hypers, const char *name, const char *value)
{
    pd_error err;

    if (pd_hypers_set(hypers, name, value, &err) != PD_OK) figure_stop("%s", err.text);
}

static double blocks_need(const pd_shape *shape, int64_t block_size, bool small)
{
    pd_shape merged = pd_shape_merged(shape, block_size);
    double bytes = 0;

    for (int64_t b = 0; !pd_shape_exceeds(shape, 4096) && b < pd_partition_count(&merged, block_size); b++) {
        pd_block block = pd_partition_block(&merged, block_size, b);
        for (int d = 0; d < merged.rank; d++) {
            double s = (double)block.size[d];
            bytes += 2 * (small ? 2 * s * s + 8 * s : 4 * s * s);
        }
    }
    return bytes;
}

static double needed(const pd_shape *shape, int64_t block_size, const option *o)
{
    double elements, columns;
    int64_t n = 0;

    (void)pd_shape_elements(shape, &n);
    elements = (double)n;
    columns = elements / (double)shape->dim[0];
    return blocks_need(shape, block_size, o->small) + 2 * (o->small ? elements + 4 * columns : 4 * elements) +
           (o->diagonal ? 4 * elements : 0);
}

static double taken(const pd_shape *shape, int64_t block_size, const option *o)
{
    pd_declaration param = { .name = "w", .shape = *shape };
    double stats[PD_MAX_MODEL_STATS], bytes;
    char size[24];
    pd_plan plan;
    pd_error err;

    snprintf(size, sizeof size, "%d", (int)block_size);
    pd_hypers_init(&param.hypers, pd_optim_find("scalable_shampoo"));
    set(&param.hypers, "block_size", size);
    set(&param.hypers, "graft_type", o->graft);
    set(&param.hypers, "best_effort_memory_usage_reduction", o->reduced);
    pd_model_stats_of(param.hypers.row, &param, 1, stats);
    if (pd_plan_make(&plan, &param, stats, &err) != PD_OK) figure_stop("%s", err.text);
    bytes = (double)pd_plan_state_bytes(&plan);
    pd_plan_free(&plan);
    return bytes;
}

int main(void)
{
    double worst = 0, sum = 0, all = 0;
    char where[96] = "", text[64];

    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
        for (size_t b = 0; b < sizeof block_sizes / sizeof *block_sizes; b++)
            for (size_t o = 0; o < sizeof options / sizeof *options; o++) {
                double bytes = taken(&shapes[s], block_sizes[b], &options[o]),
                       least = needed(&shapes[s], block_sizes[b], &options[o]);
                sum += bytes;
                all += least;
                if (bytes / least <= worst) continue;
                worst = bytes / least;
                snprintf(where, sizeof where, "%s in blocks of %d, %s", pd_shape_text(&shapes[s], text, sizeof text),
                         (int)block_sizes[b], options[o].graft);
            }
    printf("%.4f\tworst of %zu: %s; all together %.4f\n", worst, sizeof shapes / sizeof *shapes * 16, where, sum / all);
    return 0;
}
