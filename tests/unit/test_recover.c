/* Tests which jobs come back from a state directory. */
#include "test.h"
#include "disk.h"
#include "disk_writer.h"
#include "checkpoint_sample.h"
#include "wal_sample.h"
#include "recover.h"

#define ROOT "/state"

typedef struct fixture {
    pd_disk_pass stopping; /* must be the first member: a disk on which the daemon has to stop during a read */
    int64_t reads;         /* number of reads before that one */
    atomic_bool stops;     /* the daemon has to stop */
    mem_disk *memory;
    pd_disk disk;
    int restored, refusal;
    uint64_t step, creator;
    bool foreign;
    uint64_t refused_step; /* the step of the log that is refused; 0: none is */
    uint64_t spoiled_step; /* the step of the log that fails when it is half replayed, so the job is lost; 0: none */
} fixture;

static void set_up(fixture *f)
{
    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    assert_int_equal(f->disk.make_dir(f->disk.arg, ROOT), 0);
}

static void tear_down(fixture *f)
{
    mem_disk_free(f->memory);
}

static void write_one(fixture *f, uint64_t creator, uint64_t step, uint64_t written_ms, bool ended)
{
    pd_checkpoint_image *kept = sample_checkpoint(step, 3);
    pd_checkpoint_about about = pd_checkpoint_about_here();

    kept->creator = creator;
    kept->ended = ended;
    about.written_ms = written_ms;
    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &about, NULL), PD_OK);
    pd_checkpoint_image_free(kept);
}

/* Reads all weights one after the other to the same place. */
static int read_weights(const pd_checkpoint_image *kept, pd_error *err)
{
    static float weights[1024];
    float *to[16];

    for (uint32_t i = 0; i < kept->n_params; i++) {
        assert_in_range(kept->params[i].elements, 0, 1024);
        to[i] = weights;
    }
    return kept->read_weights(kept->read_arg, to, err);
}

static int restore(void *arg, const pd_checkpoint_image *kept, pd_error *err)
{
    fixture *f = arg;

    if (f->refusal != PD_OK) return pd_fail(err, f->refusal, "it does not fit");
    for (uint32_t i = 0; i <= kept->n_params; i++)
        if (kept->read_state(kept->read_arg, i, err) != PD_OK) return err->code;
    if (read_weights(kept, err) != PD_OK) return err->code;
    f->restored++;
    f->step = kept->step;
    f->creator = kept->creator;
    f->foreign = kept->foreign;
    return PD_OK;
}

/* Takes a step of the log, unless it is the one that the test refuses. */
static int replay(void *arg, const pd_wal_record *record, pd_error *err)
{
    fixture *f = arg;

    if (record->step == f->refused_step) return pd_fail(err, PD_DATA_LOSS, "it does not fit");
    if (record->step == f->spoiled_step) return pd_fail(err, PD_ABORTED, "it takes another course");
    assert_int_equal(record->step, f->step + 1);
    assert_int_equal(record->creator, f->creator);
    f->step = record->step;
    return PD_OK;
}

static int recover(fixture *f, pd_error *err)
{
    const pd_recover_user user = { .arg = f, .restore = restore, .replay = replay, .stops = &f->stops };

    f->restored = 0;
    return pd_recover(&f->disk, ROOT, &user, err);
}

/* Writes the entries of the steps first ... last of a job, whose newest checkpoint is of the step `base`. */
static void log_steps(fixture *f, uint64_t creator, uint64_t base, uint64_t first, uint64_t last)
{
    pd_wal_writer *logs;

    assert_int_equal(pd_wal_writer_new(&logs, &f->disk, ROOT, LOG_SEGMENT_BYTES, NULL), PD_OK);
    for (uint64_t step = first; step <= last; step++) {
        pd_wal_record *e = sample_logged(step, base, 1);
        e->creator = creator;
        pd_wal_write(logs, &e, 1);
        if (e->error.code != PD_OK) fail_msg("%s", e->error.text);
        pd_wal_record_free(e);
    }
    pd_wal_writer_free(logs);
}

FIXTURE(fixture, set_up, tear_down);

TEST(the_newest_checkpoint_of_a_job_comes_back, fixture *f)
{
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 0);
    for (uint64_t step = 1; step <= 3; step++) write_one(f, 7, step, step, false);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 1);
    assert_int_equal(f->step, 3);
    assert_false(f->foreign);
}

TEST(a_checkpoint_with_damaged_weights_is_passed_over, fixture *f)
{
    uint8_t *file;
    size_t bytes;

    write_one(f, 7, 1, 1, false);
    write_one(f, 7, 2, 2, false);
    file = mem_disk_file(
        f->memory, ROOT "/runs%2Fgpt%20%231-0000000000000007/step-00000000000000000002/weights.safetensors", &bytes);
    file[bytes - 1] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 1);
    file[bytes - 1] ^= 4;
    file[9] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 1);
    file[9] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 2);
}

TEST(a_damaged_checkpoint_is_passed_over, fixture *f)
{
    size_t bytes;

    write_one(f, 7, 1, 1, false);
    write_one(f, 7, 2, 2, false);
    mem_disk_file(f->memory, ROOT "/runs%2Fgpt%20%231-0000000000000007/step-00000000000000000002/state.bin",
                  &bytes)[30] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 1);
    mem_disk_file(f->memory, ROOT "/runs%2Fgpt%20%231-0000000000000007/step-00000000000000000001/notes.bin",
                  &bytes)[3] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 0);
}

TEST(the_steps_in_the_log_follow_the_checkpoint, fixture *f)
{
    write_one(f, 7, 2, 1, false);
    log_steps(f, 7, 2, 3, 5);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 1);
    assert_int_equal(f->step, 5);
    log_steps(f, 7, 2, 6, 12);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 12);
    write_one(f, 7, 9, 2, false);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 12);
}

static int read_and_stop(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    fixture *f = arg;

    if (f->reads-- == 0) atomic_store(&f->stops, true);
    return f->stopping.below->read(f->stopping.below->arg, file, offset, at, bytes);
}

/* Returns whether all calls of the disk since mem_disk_forget_calls have left the files as they were. */
static bool files_are_unchanged(const fixture *f)
{
    static const char *const harmless[] = { "open", "size", "read", "close", "list" };
    size_t n, k;
    const mem_disk_call *calls = mem_disk_calls(f->memory, &n);

    for (size_t i = 0; i < n; i++) {
        for (k = 0; k < 5 && strcmp(calls[i].what, harmless[k]) != 0; k++) continue;
        if (k == 5) return false;
    }
    return true;
}

TEST(a_daemon_that_has_to_stop_loads_no_more_and_changes_nothing, fixture *f)
{
    pd_disk below = f->disk;
    pd_error err;

    write_one(f, 7, 1, 1, false);
    write_one(f, 7, 2, 2, false);
    log_steps(f, 7, 2, 3, 5);
    pd_disk_pass_init(&f->stopping, &below);
    f->stopping.functions.read = read_and_stop;
    f->disk = f->stopping.functions;
    for (int64_t reads = 0;; reads++) {
        f->reads = reads;
        atomic_store(&f->stops, false);
        mem_disk_forget_calls(f->memory);
        if (recover(f, &err) == PD_OK) break;
        assert_int_equal(err.code, PD_CANCELLED);
        assert_true(files_are_unchanged(f));
        assert_int_equal(f->reads, -1); /* no file was read after that */
    }
    assert_int_equal(f->step, 5);
}

TEST(a_step_that_cannot_be_repeated_ends_the_log, fixture *f)
{
    write_one(f, 7, 2, 1, false);
    log_steps(f, 7, 2, 3, 9);
    f->refused_step = 6;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 5);
    f->refused_step = 0;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->step, 5); /* the job has gone on from there, so the old step 6 is not its past */
}

TEST(a_job_that_a_step_of_the_log_spoils_comes_back_up_to_the_step_before, fixture *f)
{
    write_one(f, 7, 2, 1, false);
    log_steps(f, 7, 2, 3, 9);
    f->spoiled_step = 6;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 2);
    assert_int_equal(f->step, 5);
}

TEST(a_damaged_log_ends_before_its_damage, fixture *f)
{
    size_t bytes;

    write_one(f, 7, 2, 1, false);
    log_steps(f, 7, 2, 3, 5);
    mem_disk_file(f->memory, ROOT "/runs%2Fgpt%20%231-0000000000000007/log/segment-00000000000000000001",
                  &bytes)[3 * PD_DISK_BLOCK] ^= 4;
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_true(f->step < 5);
}

TEST(a_log_of_a_newer_version_stops_the_start, fixture *f)
{
    uint64_t hash;
    uint8_t *file;
    size_t bytes;
    pd_error err;

    write_one(f, 7, 2, 1, false);
    log_steps(f, 7, 2, 3, 5);
    file =
        mem_disk_file(f->memory, ROOT "/runs%2Fgpt%20%231-0000000000000007/log/segment-00000000000000000001", &bytes);
    file[16] = 9; /* the version */
    hash = XXH3_64bits(file, 72 + (size_t)file[20]);
    memcpy(file + 72 + file[20], &hash, sizeof hash);
    assert_int_equal(recover(f, &err), PD_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "to start without this job"));
}

TEST(a_job_that_has_ended_does_not_come_back, fixture *f)
{
    write_one(f, 7, 1, 1, false);
    write_one(f, 8, 2, 2, false);
    write_one(f, 8, 2, 2, true);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 1);
    assert_int_equal(f->creator, 7);
}

TEST(of_jobs_of_the_same_name_the_later_one_comes_back, fixture *f)
{
    write_one(f, 7, 1, 200, false);
    write_one(f, 6, 9, 100, false);
    write_one(f, 8, 5, 150, false);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_int_equal(f->restored, 1);
    assert_int_equal(f->creator, 7);
}

TEST(a_checkpoint_that_does_not_fit_ends_the_start, fixture *f)
{
    pd_error err = { 0 };

    write_one(f, 7, 1, 1, false);
    f->refusal = PD_RESOURCE_EXHAUSTED;
    assert_int_equal(recover(f, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "it does not fit; to start without this job, move " ROOT));
}

TEST(checkpoints_of_other_hardware_are_foreign, fixture *f)
{
    pd_checkpoint_image *kept = sample_checkpoint(1, 1);

    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &(pd_checkpoint_about){ .blas = "Katmai" }, NULL),
                     PD_OK);
    assert_int_equal(recover(f, NULL), PD_OK);
    assert_true(f->foreign);
    pd_checkpoint_image_free(kept);
}
