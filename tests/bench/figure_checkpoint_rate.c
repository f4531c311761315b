/* checkpoint_rate: the bytes of a checkpoint per second, divided by what the disk does when a program writes as many
 * bytes to one file in large pieces and syncs it: past the page cache, which is the fastest way here. Each checkpoint
 * is compared with such a file before and after it, and the median of the ratios counts. */
#define _GNU_SOURCE /* mkdtemp */

#include "checkpoint_files.h"
#include "figure.h"
#include "state_dir.h"
#include "pages.h"
#include "overlapped.h"

/* A checkpoint of AdamW: two numbers of state for each weight, in parameters of PARAM_BYTES. */
enum { ROUNDS = 5, PARAM_BYTES = 16 << 20, PARAMS = 32 };

static pd_checkpoint_image *make_checkpoint(void)
{
    pd_checkpoint_image *kept = figure_alloc(sizeof *kept);
    float *weights = pd_pages_new((size_t)PARAMS * PARAM_BYTES);

    *kept = (pd_checkpoint_image){ .job = strdup("figure"), .keep = 1, .n_params = PARAMS, .memory = weights };
    kept->params = figure_alloc(PARAMS * sizeof *kept->params);
    kept->head = figure_alloc(1);
    if (weights == NULL) figure_stop("out of memory");
    figure_fill(weights, (size_t)PARAMS * PARAM_BYTES);
    for (int i = 0; i < PARAMS; i++) {
        pd_checkpoint_param *p = &kept->params[i];
        char name[16];
        snprintf(name, sizeof name, "w%02d", i);
        p->name = strdup(name);
        p->shape = (pd_shape){ 1, { PARAM_BYTES / (int)sizeof(float) } };
        p->elements = p->shape.dim[0];
        p->weights = weights + (size_t)i * (size_t)p->elements;
        p->state_bytes = 2 * PARAM_BYTES + 123; /* the image of a state has a head, so it is not aligned */
        p->state = figure_alloc(p->state_bytes);
        figure_fill(p->state, p->state_bytes);
    }
    return kept;
}

/* Returns how many ms it takes until the checkpoint is on the disk. The one before is removed after that. */
static double checkpoint_ms(const pd_disk *disk, const char *root, pd_checkpoint_image *kept)
{
    const pd_checkpoint_about about = { .paramd = "figure" };
    char job_dir[PD_KEEP_PATH];
    double begin = figure_ms(), end;
    pd_error err;

    kept->step++;
    if (pd_checkpoint_put(disk, root, kept, &about, &err) != PD_OK) figure_stop("%s", err.text);
    end = figure_ms();
    pd_checkpoint_job_dir(job_dir, root, kept);
    pd_checkpoint_tidy(disk, job_dir, &(pd_retention){ .keep = 1 });
    return end - begin;
}

static void remove_all(const char *root)
{
    char job[PD_KEEP_PATH], path[PD_KEEP_PATH];
    pd_job_dirs jobs;
    pd_step_list steps;

    if (pd_job_dirs_read(&jobs, &pd_disk_posix, root, NULL) != PD_OK) return;
    for (size_t i = 0; i < jobs.n; i++) {
        pd_keep_join(job, root, jobs.at[i]);
        if (pd_step_list_read(&steps, &pd_disk_posix, job, NULL) != PD_OK) continue;
        for (size_t k = 0; k < steps.n; k++) {
            pd_keep_join(path, job, steps.at[k].name);
            (void)pd_keep_remove_dir(&pd_disk_posix, path, NULL);
        }
        pd_step_list_free(&steps);
        (void)rmdir(job);
    }
    pd_job_dirs_free(&jobs);
    (void)rmdir(root);
}

int main(int argc, char **argv)
{
    char root[512];
    double share[ROUNDS], rate[ROUNDS], plain[ROUNDS], cached[ROUNDS];
    void *piece = pd_pages_new(FIGURE_PIECE);
    pd_checkpoint_image *kept = make_checkpoint();

    pd_write_behind *behind;
    const pd_disk *disk;

    if (piece == NULL || pd_write_behind_start(&behind, &pd_disk_posix, NULL) != PD_OK) figure_stop("out of memory");
    disk = pd_write_behind_disk(behind);
    figure_fill(piece, FIGURE_PIECE);
    snprintf(root, sizeof root, "%s/checkpoint-rate-XXXXXX", argc > 1 ? argv[1] : "build");
    if (mkdtemp(root) == NULL) figure_stop("%s cannot be made: name a directory on the disk to measure", root);
    (void)checkpoint_ms(disk, root, kept);
    for (int i = 0; i < ROUNDS; i++) {
        double before = figure_file_ms(root, piece, kept->bytes, true), own = checkpoint_ms(disk, root, kept),
               after = figure_file_ms(root, piece, kept->bytes, true), mb = (double)kept->bytes / 1e3;
        cached[i] = mb / figure_file_ms(root, piece, kept->bytes, false);
        rate[i] = mb / own;
        plain[i] = mb / ((before + after) / 2);
        share[i] = rate[i] / plain[i];
        fprintf(stderr, "checkpoint %.0f MB/s, file %.0f MB/s, through the page cache %.0f MB/s: %.3f\n", rate[i],
                plain[i], cached[i], share[i]);
    }
    remove_all(root);
    pd_write_behind_stop(behind);
    printf("%.3f\t%.2f GB at %.0f MB/s; one file: %.0f MB/s, through the page cache %.0f MB/s\n",
           figure_quantile(share, ROUNDS, 0.5), (double)kept->bytes / 1e9, figure_quantile(rate, ROUNDS, 0.5),
           figure_quantile(plain, ROUNDS, 0.5), figure_quantile(cached, ROUNDS, 0.5));
    return 0;
}
