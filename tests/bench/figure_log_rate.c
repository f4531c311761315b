/* log_rate: the bytes of entries that a job's log takes per second, divided by what the disk does when a program writes
 * as many bytes to one file in large pieces, past the page cache, and syncs it. The WAL thread has as many entries
 * as a job may have under way, and each that comes back is followed by another, so it writes as fast as it can. The log
 * is compared with such a file before and after it, and the median of the ratios counts.
 * Usage: figure_log_rate [MB of an entry: 4] [DIRECTORY on the disk to measure: build] */
#define _GNU_SOURCE /* mkdtemp */

#include "effects.h"
#include "figure.h"
#include "disk_writer.h"
#include "wal_files.h"
#include "pages.h"

enum { ROUNDS = 5, UNDER_WAY = 4, PARAMS = 10 };

/* A job whose entries are written: its aggregates are the same in each step. */
typedef struct job {
    pd_disk_writer *writer;
    pd_mailbox *done;
    float *aggregates;
    size_t elements; /* of each parameter */
    uint64_t step, every;
} job;

/* Hands the entry of the next step to the WAL thread. Each checkpoint makes those before it obsolete. */
static void submit(job *j)
{
    pd_effect *effect = pd_effect_new(PD_EFF_WAL, (pd_ticket){ 0, 0 }, 1);
    pd_wal_record *e = figure_alloc(sizeof *e);
    uint64_t step = ++j->step;

    if (effect == NULL) figure_stop("out of memory");
    *e = (pd_wal_record){ .job = strdup("figure"), .creator = 1, .step = step, .head_bytes = 5000, .n_parts = PARAMS };
    if (step > j->every + UNDER_WAY) e->base = (step - UNDER_WAY - 1) / j->every * j->every;
    e->head = figure_alloc(e->head_bytes);
    e->parts = figure_alloc(PARAMS * sizeof *e->parts);
    for (uint32_t i = 0; i < PARAMS; i++)
        e->parts[i] = (pd_wal_part){ .at = j->aggregates + i * j->elements, .elements = (int64_t)j->elements };
    effect->u.wal = e;
    pd_disk_writer_submit(j->writer, j->done, effect);
}

/* Waits for entries that come back. Returns how many there were, and adds their bytes. */
static unsigned take_back(job *j, uint64_t *bytes)
{
    bool closed;
    unsigned n = 0;

    for (pd_mail *mail = pd_mailbox_wait(j->done, UINT64_MAX, &closed), *next; mail != NULL; mail = next, n++) {
        pd_request *request = (pd_request *)(void *)mail;
        next = mail->next;
        if (request->u.wal->error.code != PD_OK) figure_stop("%s", request->u.wal->error.text);
        *bytes += request->u.wal->bytes;
        pd_wal_record_free(request->u.wal);
        pd_request_free(request);
    }
    return n;
}

/* Writes entries until there are `most` bytes. Returns how many ms that takes. */
static double log_ms(job *j, uint64_t most, uint64_t *bytes)
{
    double begin = figure_ms();
    unsigned under_way = UNDER_WAY;

    *bytes = 0;
    for (int i = 0; i < UNDER_WAY; i++) submit(j);
    while (under_way > 0) {
        unsigned n = take_back(j, bytes);
        under_way -= n;
        for (; n > 0 && *bytes < most; n--, under_way++) submit(j);
    }
    return figure_ms() - begin;
}

/* Makes the directory of the job in a new state directory. */
static void make_dirs(char *root, char job_dir[PD_KEEP_PATH])
{
    char name[PD_KEEP_NAME];

    if (mkdtemp(root) == NULL) figure_stop("%s cannot be made: name a directory on the disk to measure", root);
    pd_keep_job_name(name, "figure", 1);
    pd_keep_join(job_dir, root, name);
    if (pd_disk_posix.make_dir(NULL, job_dir) != 0) figure_stop("%s cannot be made", job_dir);
}

int main(int argc, char **argv)
{
    double mb = argc > 1 ? atof(argv[1]) : 4, share[ROUNDS], rate[ROUNDS], plain[ROUNDS];
    uint64_t most = (uint64_t)(mb >= 50 ? 800e6 : 400e6), bytes;
    job j = { .elements = (size_t)(mb * 1e6 / sizeof(float) / PARAMS), .every = mb >= 50 ? 5 : 50 };
    char root[512], job_dir[PD_KEEP_PATH];
    pd_disk_writer_config config = { PD_WRITES_WAL, .dir = root };
    void *piece = pd_pages_new(FIGURE_PIECE);

    j.aggregates = pd_pages_new(PARAMS * j.elements * sizeof(float));
    config.done = j.done = pd_mailbox_new(NULL, NULL);
    if (piece == NULL || j.aggregates == NULL || j.done == NULL) figure_stop("out of memory");
    figure_fill(piece, FIGURE_PIECE);
    figure_fill(j.aggregates, PARAMS * j.elements * sizeof(float));
    snprintf(root, sizeof root, "%s/log-rate-XXXXXX", argc > 2 ? argv[2] : "build");
    make_dirs(root, job_dir);
    if (pd_disk_writer_start(&j.writer, &config, NULL) != PD_OK) figure_stop("out of memory");
    (void)log_ms(&j, 2 * most, &bytes); /* later ones write their segments anew */
    for (int i = 0; i < ROUNDS; i++) {
        double before = figure_file_ms(root, piece, most, true), own = log_ms(&j, most, &bytes),
               after = figure_file_ms(root, piece, most, true);
        rate[i] = (double)bytes / 1e3 / own;
        plain[i] = (double)most / 1e3 / ((before + after) / 2);
        share[i] = rate[i] / plain[i];
        fprintf(stderr, "log %.0f MB/s, file %.0f MB/s: %.3f\n", rate[i], plain[i], share[i]);
    }
    (void)pd_disk_writer_stop(j.writer, UINT64_MAX, NULL);
    (void)pd_wal_remove(&pd_disk_posix, job_dir, PD_WAL_STEPS, NULL);
    (void)rmdir(job_dir);
    (void)rmdir(root);
    printf("%.3f\tentries of %.0f MB at %.0f MB/s; one file: %.0f MB/s\n", figure_quantile(share, ROUNDS, 0.5), mb,
           figure_quantile(rate, ROUNDS, 0.5), figure_quantile(plain, ROUNDS, 0.5));
    return 0;
}
