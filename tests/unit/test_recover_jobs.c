/* Tests jobs that come back from a disk into a store, as when a daemon starts: their steps, and what is refused. */
#include <inttypes.h>

#include "test.h"
#include "checkpoint_files.h"
#include "disk_writer.h"
#include "mem_disk.h"
#include "recover.h"
#include "rig.h"

static const pd_checkpoint_about elsewhere = { .paramd = "1.0", .blas = "Katmai", .cpu = "mmx", .written_ms = 1000 };

typedef struct fixture {
    mem_disk *memory;
    pd_disk disk;
    rig r;        /* the store of the daemon that starts */
    char dir[64]; /* directory of the job that was written last */
} fixture;

static pd_store_config keeping_config(void)
{
    pd_store_config config = rig_config();

    config.keeps = true;
    return config;
}

static int set_up(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    pd_store_config config = keeping_config();

    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    assert_int_equal(f->disk.make_dir(f->disk.arg, "/state"), 0);
    rig_new(&f->r, &config);
    *state = f;
    return 0;
}

static int tear_down(void **state)
{
    fixture *f = *state;

    rig_free(&f->r);
    mem_disk_free(f->memory);
    free(f);
    return 0;
}

/* Writes the last checkpoint of the rig to the disk, as a daemon on the hardware `about` does (NULL: this one). */
static void write_checkpoint(fixture *f, const rig *r, const pd_checkpoint_about *about)
{
    pd_checkpoint_about same = pd_checkpoint_about_here();
    pd_error err;

    if (pd_checkpoint_write(&f->disk, "/state", r->disk, about != NULL ? about : &same, &err) != PD_OK)
        fail_msg("%s", err.text);
}

/* Trains a job with one parameter for `steps` steps, and writes its checkpoints and that of its last step to the
 * disk. */
static void write_job(fixture *f, const char *job, const char *options, uint64_t steps,
                      const pd_checkpoint_about *about)
{
    static const char *const names[] = { "w" };
    static const pd_shape shape = { 1, { 5 } };
    static const float values[] = { 1, 2, 3, 4, 5 };
    pd_store_config config = keeping_config();
    rig r;

    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, job, 0, 1, 7, 1, options, "* sgd lr=1"), PD_OK);
    snprintf(f->dir, sizeof f->dir, "/state/%s-%016" PRIx64, job, r.creator);
    assert_int_equal(rig_declare(&r, r.job, 0, 1, names, &shape, NULL, 1, PD_F32), PD_OK);
    for (uint64_t step = 0; step <= steps; step++) {
        rig_frame *frame = rig_frame_new(&r, step == 0 ? PD_REQ_INIT : PD_REQ_PUSH, r.job, 0, 1, step);
        rig_piece(frame, 0, PD_F32, 0, 5, values);
        assert_int_equal(rig_send(&r, frame), PD_OK);
        rig_work(&r);
        if (step > 0 && r.disk != NULL && r.disk->step == step) write_checkpoint(f, &r, about);
    }
    assert_int_equal(rig_checkpoint(&r, NULL, 1, 0, 10), PD_OK);
    rig_work(&r);
    assert_non_null(r.disk);
    write_checkpoint(f, &r, about);
    rig_free(&r);
}

static int restore(void *arg, const pd_checkpoint_image *kept, pd_error *err)
{
    fixture *f = arg;

    return pd_store_restore(f->r.store, kept, f->r.now, err);
}

static void recover(fixture *f)
{
    pd_error err;

    if (pd_recover(&f->disk, "/state", &(pd_recover_user){ .arg = f, .restore = restore }, &err) != PD_OK)
        fail_msg("%s", err.text);
    rig_absorb(&f->r);
}

static size_t count_jobs(fixture *f)
{
    return rig_ask(&f->r, PD_INFO_JOBS, "")->n;
}

static const pd_job_info *only_job(fixture *f)
{
    const pd_info *info = rig_ask(&f->r, PD_INFO_JOBS, "");

    assert_int_equal(info->n, 1);
    return &info->jobs[0];
}

EACH_TEST(set_up, tear_down);

TEST(a_job_comes_back_with_its_step_which_is_durable, fixture *f)
{
    write_job(f, "j", NULL, 3, NULL);
    recover(f);
    assert_string_equal(only_job(f)->name, "j");
    assert_int_equal(only_job(f)->step_least, 3);
    assert_int_equal(only_job(f)->durable_step, 3);
    assert_string_equal(only_job(f)->durability, "checkpoint");
    assert_true(only_job(f)->checkpoint_bytes > 5 * sizeof(float));
}

TEST(several_jobs_come_back, fixture *f)
{
    write_job(f, "j", NULL, 3, NULL);
    write_job(f, "k/l", NULL, 2, NULL);
    recover(f);
    assert_int_equal(count_jobs(f), 2);
}

/* Flips a byte in the middle of a file of the job's checkpoint of step 3. */
static void damage(fixture *f, const char *name)
{
    char path[160];
    size_t bytes;
    uint8_t *file;

    snprintf(path, sizeof path, "%s/step-00000000000000000003/%s", f->dir, name);
    file = mem_disk_file(f->memory, path, &bytes);
    assert_non_null(file);
    file[bytes / 2] ^= 1;
}

/* Writes checkpoints of steps 2 and 3 of a job, and damages the state of its parameter, or the weights, of step 3. */
static void expect_step_2_without(fixture *f, const char *name)
{
    write_job(f, "j", "checkpoint_every=2 checkpoint_keep=2", 3, NULL);
    damage(f, name);
    recover(f);
    assert_int_equal(only_job(f)->step_least, 2);
}

HOLDS_FOR(fixture *f, a_job_goes_on_from_the_checkpoint_before_one_whose_state_is_damaged,
          expect_step_2_without(f, "state.bin"));

HOLDS_FOR(fixture *f, a_job_goes_on_from_the_checkpoint_before_one_whose_weights_are_damaged,
          expect_step_2_without(f, "weights.safetensors"));

TEST(a_foreign_checkpoint_is_refused_only_to_a_job_that_must_be_exact, fixture *f)
{
    char manifest[128];

    write_job(f, "lax", NULL, 2, &elsewhere);
    write_job(f, "strict", "exact=yes", 3, &elsewhere);
    snprintf(manifest, sizeof manifest, "%s/step-00000000000000000003/manifest.json", f->dir);
    recover(f);
    assert_string_equal(only_job(f)->name, "lax");
    assert_true(mem_disk_has(f->memory, manifest));
}

TEST(a_job_that_must_be_exact_comes_back_on_the_same_instructions, fixture *f)
{
    write_job(f, "strict", "exact=yes", 3, NULL);
    recover(f);
    assert_string_equal(only_job(f)->name, "strict");
}

TEST(a_job_that_does_not_fit_the_limits_ends_the_start, fixture *f)
{
    pd_store_config config = keeping_config();
    pd_error err;

    write_job(f, "j", NULL, 3, NULL);
    rig_free(&f->r);
    config.max_total_bytes = 16;
    rig_new(&f->r, &config);
    assert_int_equal(pd_recover(&f->disk, "/state", &(pd_recover_user){ .arg = f, .restore = restore }, &err),
                     PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, f->dir));
    assert_int_equal(count_jobs(f), 0);
}
