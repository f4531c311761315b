/* Tests checkpoints on a disk in memory: writing, loading, and what damage does. */
#include "test.h"
#include "state_dir.h"
#include "checkpoint_sample.h"
#include "mem_disk.h"
#include "safetensors.h"

#define ROOT "/state"
#define JOB_DIR ROOT "/runs%2Fgpt%20%231-0123456789abcdef"
#define STEP(n) JOB_DIR "/step-0000000000000000000" #n

typedef struct fixture {
    mem_disk *memory;
    pd_disk disk;
    int damaged;  /* number of checkpoints that were passed over */
    pd_error why; /* damage of the last one that was passed over */
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

static void write_step(fixture *f, uint64_t step, uint64_t keep)
{
    pd_checkpoint_image *kept = sample_checkpoint(step, keep);
    pd_error err = { 0 };

    if (pd_checkpoint_write(&f->disk, ROOT, kept, &sample_about, &err) != PD_OK) fail_msg("%s", err.text);
    pd_checkpoint_image_free(kept);
}

static void note_damage(void *arg, const char *dir, const pd_error *why)
{
    fixture *f = arg;
    (void)dir;

    f->damaged++;
    f->why = *why;
}

/* Loads the newest checkpoint. Returns its step, after comparing it with what was written; 0: there is none. */
static uint64_t newest(fixture *f)
{
    pd_checkpoint_image *kept, *expected;
    pd_manifest manifest;
    pd_error err = { 0 };
    uint64_t step;
    int rc;

    f->damaged = 0;
    rc = pd_checkpoint_newest(&f->disk, JOB_DIR, &kept, &manifest, note_damage, f, &err);
    if (rc == PD_NOT_FOUND) return 0;
    if (rc != PD_OK) fail_msg("%s", err.text);
    step = kept->step;
    expected = sample_checkpoint(step, 1);
    assert_checkpoints_same(kept, expected);
    pd_checkpoint_image_free(expected);
    pd_checkpoint_image_free(kept);
    return step;
}

FIXTURE(fixture, set_up, tear_down);

TEST(a_checkpoint_loads_as_it_was_written, fixture *f)
{
    pd_manifest manifest;
    pd_checkpoint_image *kept;

    write_step(f, 4, 3);
    assert_int_equal(newest(f), 4);
    assert_int_equal(pd_checkpoint_load(&f->disk, STEP(4), &kept, &manifest, NULL), PD_OK);
    for (uint32_t i = 0; i < kept->n_params; i++) assert_int_equal((uintptr_t)kept->params[i].weights % 64, 0);
    assert_int_equal(kept->number, 0);
    assert_string_equal(manifest.job, SAMPLE_JOB);
    assert_memory_equal(&manifest.about, &sample_about, sizeof sample_about);
    pd_checkpoint_image_free(kept);
}

TEST(weights_are_a_safetensors_file_whose_data_is_aligned, fixture *f)
{
    pd_safetensors *file;
    size_t bytes;
    const uint8_t *at;
    pd_checkpoint_image *kept = sample_checkpoint(4, 1);

    write_step(f, 4, 1);
    at = mem_disk_file(f->memory, STEP(4) "/weights.safetensors", &bytes);
    assert_int_equal(pd_safetensors_read(&file, at, bytes, NULL), PD_OK);
    assert_string_equal(pd_safetensors_meta(file, "job"), SAMPLE_JOB);
    assert_string_equal(pd_safetensors_meta(file, "step"), "4");
    for (uint32_t i = 0; i < kept->n_params; i++) {
        const pd_checkpoint_param *p = &kept->params[i];
        const pd_st_tensor *tensor = pd_safetensors_find(file, p->name);
        assert_non_null(tensor);
        assert_true(pd_shape_equal(&tensor->shape, &p->shape));
        assert_memory_equal(pd_safetensors_data(file, tensor), p->weights, tensor->bytes);
    }
    assert_int_equal(((const uint8_t *)pd_safetensors_data(file, pd_safetensors_tensors(file, &bytes)) - at) % 64, 0);
    pd_safetensors_free(file);
    pd_checkpoint_image_free(kept);
}

/* A job has as many parameters, and names as long, as the daemon's limits let it. Their header has 37 MB. */
TEST(most_parameters_with_the_longest_names_are_written_and_read, fixture *f)
{
    pd_checkpoint_image *kept = sample_long_names(4, 65536), *read;
    pd_manifest manifest;
    pd_error err = { 0 };
    size_t bytes;

    if (pd_checkpoint_write(&f->disk, ROOT, kept, &sample_about, &err) != PD_OK) fail_msg("%s", err.text);
    assert_non_null(mem_disk_file(f->memory, STEP(4) "/weights.safetensors", &bytes));
    assert_true(bytes > (size_t)65536 * 512 && bytes <= kept->bytes);
    if (pd_checkpoint_load(&f->disk, STEP(4), &read, &manifest, &err) != PD_OK) fail_msg("%s", err.text);
    assert_checkpoints_same(read, kept);
    pd_checkpoint_image_free(read);
    pd_checkpoint_image_free(kept);
}

TEST(the_size_that_is_told_is_that_of_all_files, fixture *f)
{
    const char *files[] = { "weights.safetensors", "state.bin", "notes.bin", "manifest.json" };
    pd_checkpoint_image *kept = sample_checkpoint(4, 1);
    size_t sum = 0, bytes;
    char path[512];

    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &sample_about, NULL), PD_OK);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", STEP(4), files[i]);
        assert_non_null(mem_disk_file(f->memory, path, &bytes));
        sum += bytes;
    }
    assert_int_equal(kept->bytes, sum);
    pd_checkpoint_image_free(kept);
}

TEST(any_byte_that_changes_brings_the_checkpoint_before, fixture *f)
{
    const char *files[] = { "weights.safetensors", "state.bin", "notes.bin", "manifest.json" };
    char path[512];
    size_t bytes;

    write_step(f, 3, 2);
    write_step(f, 4, 2);
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", STEP(4), files[i]);
        uint8_t *at = mem_disk_file(f->memory, path, &bytes);
        for (size_t b = 0; b < bytes; b++) {
            for (int bit = 1; bit <= 0x80; bit <<= 7) {
                at[b] ^= (uint8_t)bit;
                if (newest(f) != 3) fail_msg("%s: byte %zu", path, b);
                assert_int_equal(f->damaged, 1);
                assert_true(strstr(f->why.text, STEP(4)) != NULL);
                at[b] ^= (uint8_t)bit;
            }
        }
    }
    assert_int_equal(newest(f), 4);
}

TEST(a_file_that_is_cut_longer_or_missing_brings_the_checkpoint_before, fixture *f)
{
    const char *files[] = { "weights.safetensors", "state.bin", "notes.bin", "manifest.json" };
    char path[512];
    size_t bytes;

    for (int i = 0; i < 4; i++) {
        for (int how = 0; how < 4; how++) {
            write_step(f, 3, 2);
            write_step(f, 4, 2);
            snprintf(path, sizeof path, "%s/%s", STEP(4), files[i]);
            mem_disk_file(f->memory, path, &bytes);
            if (how < 3)
                mem_disk_resize(f->memory, path, how == 0 ? bytes - 1 : how == 1 ? 0 : bytes + 1);
            else
                assert_int_equal(f->disk.remove(f->disk.arg, path), 0);
            assert_int_equal(newest(f), 3);
            assert_non_null(strstr(f->why.text, how == 3 && i == 3 ? "it has no manifest" : files[i]));
        }
    }
}

TEST(the_error_names_the_parameter_whose_state_is_damaged, fixture *f)
{
    pd_checkpoint_image *kept = sample_checkpoint(4, 1);
    size_t bytes;
    uint8_t *at;

    write_step(f, 4, 1);
    at = mem_disk_file(f->memory, STEP(4) "/state.bin", &bytes);
    at[16 + kept->head_bytes + kept->params[0].state_bytes] ^= 1; /* the state of parameter 1 has no bytes */
    assert_int_equal(newest(f), 0);
    assert_non_null(strstr(f->why.text, "the state of parameter a scale is damaged"));
    pd_checkpoint_image_free(kept);
}

/* Copies a file of one checkpoint over that of another. */
static void exchange(fixture *f, const char *name)
{
    char from[512], to[512];
    size_t bytes, old;

    snprintf(from, sizeof from, "%s/%s", STEP(4), name);
    snprintf(to, sizeof to, "%s/%s", STEP(5), name);
    uint8_t *source = mem_disk_file(f->memory, from, &bytes);
    mem_disk_resize(f->memory, to, bytes);
    memcpy(mem_disk_file(f->memory, to, &old), source, bytes);
}

TEST(files_of_another_checkpoint_are_refused, fixture *f)
{
    const char *files[] = { "weights.safetensors", "state.bin", "notes.bin", "manifest.json" };

    for (int i = 0; i < 4; i++) {
        write_step(f, 3, 3);
        write_step(f, 4, 3);
        write_step(f, 5, 3);
        exchange(f, files[i]);
        assert_int_equal(newest(f), 4);
        assert_int_equal(f->damaged, 1);
    }
    for (int i = 0; i < 4; i++) exchange(f, files[i]);
    assert_int_equal(newest(f), 4);
    assert_non_null(strstr(f->why.text, "another step than the name of its directory"));
}

TEST(a_directory_of_another_job_is_refused, fixture *f)
{
    pd_manifest manifest;
    pd_checkpoint_image *kept;

    write_step(f, 4, 1);
    assert_int_equal(f->disk.rename(f->disk.arg, JOB_DIR, ROOT "/other-0123456789abcdef"), 0);
    assert_int_equal(
        pd_checkpoint_newest(&f->disk, ROOT "/other-0123456789abcdef", &kept, &manifest, note_damage, f, NULL),
        PD_NOT_FOUND);
    assert_non_null(strstr(f->why.text, "it belongs to another job"));
}

static bool has_step(fixture *f, uint64_t step)
{
    pd_step_list list;
    bool has;

    assert_int_equal(pd_step_list_read(&list, &f->disk, JOB_DIR, NULL), PD_OK);
    has = pd_step_list_has(&list, PD_STEP_CURRENT, step);
    for (size_t i = 0; i < list.n; i++) assert_int_not_equal(list.at[i].kind, PD_STEP_TEMPORARY);
    pd_step_list_free(&list);
    return has;
}

TEST(as_many_checkpoints_are_kept_as_the_job_wants, fixture *f)
{
    for (uint64_t step = 1; step <= 5; step++) write_step(f, step, 3);
    assert_false(has_step(f, 2));
    assert_true(has_step(f, 3) && has_step(f, 4) && has_step(f, 5));
    write_step(f, 6, 1);
    assert_false(has_step(f, 5));
    assert_int_equal(newest(f), 6);
}

TEST(a_checkpoint_of_the_same_step_takes_the_place_of_the_earlier_one, fixture *f)
{
    write_step(f, 4, 2);
    write_step(f, 4, 2);
    assert_int_equal(newest(f), 4);
    assert_false(mem_disk_has(f->memory, STEP(4) ".old"));
}

TEST(later_checkpoints_that_the_job_has_left_behind_are_removed, fixture *f)
{
    size_t bytes;

    write_step(f, 3, 3);
    write_step(f, 5, 3);
    mem_disk_file(f->memory, STEP(5) "/state.bin", &bytes)[20] ^= 1;
    assert_int_equal(newest(f), 3);
    write_step(f, 4, 3);
    assert_false(has_step(f, 5));
    assert_true(has_step(f, 3) && has_step(f, 4));
}

TEST(the_mark_of_an_ended_job_stays, fixture *f)
{
    pd_checkpoint_image *kept = sample_checkpoint(4, 1);
    pd_step_list list;

    kept->ended = true; /* without a checkpoint there is nothing to mark */
    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &sample_about, NULL), PD_OK);
    assert_false(mem_disk_has(f->memory, JOB_DIR));
    write_step(f, 4, 1);
    assert_int_equal(f->disk.sync_dir(f->disk.arg, "/"), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &sample_about, NULL), PD_OK);
    mem_disk_crash(f->memory, MEM_DISK_LOSE, 0);
    assert_int_equal(pd_step_list_read(&list, &f->disk, JOB_DIR, NULL), PD_OK);
    assert_true(list.ended);
    pd_step_list_free(&list);
    pd_checkpoint_image_free(kept);
}

TEST(names_of_jobs_fit_into_directories)
{
    char name[PD_KEEP_NAME], other[PD_KEEP_NAME], job[300];

    pd_keep_job_name(name, "..", 1);
    assert_string_equal(name, "..-0000000000000001");
    pd_keep_job_name(name, "a/b-\xc3\xbc%", 0xfedcba9876543210u);
    assert_string_equal(name, "a%2Fb%2D%C3%BC%25-fedcba9876543210");
    memset(job, '/', 256);
    job[256] = '\0';
    pd_keep_job_name(name, job, 1);
    job[255] = '+';
    pd_keep_job_name(other, job, 1);
    assert_true(strlen(name) < 255);
    assert_string_not_equal(name, other);
}

TEST(names_of_steps_are_read_as_they_are_written)
{
    const char *none[] = { "step-",
                           "step-1",
                           "step-99999999999999999999",
                           "step-0000000000000000000a",
                           "ended",
                           "step-00000000000000000001.new",
                           "tmp-00000000000000000001x" };
    char name[PD_KEEP_NAME];
    uint64_t step;

    for (pd_step_kind kind = 0; kind < PD_STEP_NONE; kind++) {
        pd_keep_step_name(name, kind, INT64_MAX);
        assert_int_equal(pd_keep_step_parse(name, &step), kind);
        assert_int_equal(step, INT64_MAX);
    }
    assert_int_equal(pd_keep_step_parse("aside-00000000000000000007.2", &step), PD_STEP_ASIDE);
    for (int number = 1; number <= PD_KEEP_OLDS; number++) {
        pd_keep_old_name(name, 8, number);
        assert_int_equal(pd_keep_step_parse(name, &step), PD_STEP_OLD);
        assert_int_equal(step, 8);
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++)
        assert_int_equal(pd_keep_step_parse(none[i], &step), PD_STEP_NONE);
}

TEST(restore_sets_newer_checkpoints_aside, fixture *f)
{
    pd_checkpoint_image *ended = sample_checkpoint(0, 1);
    size_t n;
    bool log;

    for (uint64_t step = 3; step <= 5; step++) write_step(f, step, 3);
    ended->ended = true;
    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, ended, &sample_about, NULL), PD_OK);
    assert_int_equal(pd_checkpoint_restore(&f->disk, ROOT, SAMPLE_JOB, 0, 3, &n, &log, NULL), PD_OK);
    assert_int_equal(n, 2);
    assert_false(log);
    assert_false(mem_disk_has(f->memory, JOB_DIR "/ended"));
    assert_int_equal(newest(f), 3);
    assert_true(mem_disk_has(f->memory, JOB_DIR "/aside-00000000000000000005"));
    write_step(f, 5, 1);
    write_step(f, 6, 2); /* what was set aside stays, whatever the job keeps */
    assert_true(mem_disk_has(f->memory, JOB_DIR "/aside-00000000000000000005"));
    assert_int_equal(pd_checkpoint_restore(&f->disk, ROOT, SAMPLE_JOB, 0, 5, &n, &log, NULL), PD_OK);
    assert_int_equal(n, 1);
    assert_int_equal(newest(f), 5);
    pd_checkpoint_image_free(ended);
}

TEST(restore_sets_the_log_aside, fixture *f)
{
    size_t n;
    bool log;

    write_step(f, 3, 3);
    assert_int_equal(f->disk.make_dir(f->disk.arg, JOB_DIR "/log"), 0);
    assert_int_equal(pd_checkpoint_restore(&f->disk, ROOT, SAMPLE_JOB, 0, 3, &n, &log, NULL), PD_OK);
    assert_int_equal(n, 0);
    assert_true(log);
    assert_false(mem_disk_has(f->memory, JOB_DIR "/log"));
    assert_true(mem_disk_has(f->memory, JOB_DIR "/log-aside"));
}

TEST(restore_refuses_what_is_not_there_or_damaged, fixture *f)
{
    pd_error err = { 0 };
    size_t n, bytes;
    bool log;

    write_step(f, 3, 2);
    write_step(f, 4, 2);
    assert_int_equal(pd_checkpoint_restore(&f->disk, ROOT, SAMPLE_JOB, 0, 7, &n, &log, &err), PD_NOT_FOUND);
    assert_int_equal(pd_checkpoint_restore(&f->disk, ROOT, "other", 0, 3, &n, &log, &err), PD_NOT_FOUND);
    mem_disk_file(f->memory, STEP(3) "/notes.bin", &bytes)[3] ^= 1;
    assert_int_equal(pd_checkpoint_restore(&f->disk, ROOT, SAMPLE_JOB, 0, 3, &n, &log, &err), PD_DATA_LOSS);
    assert_non_null(strstr(err.text, "notes.bin"));
    assert_int_equal(newest(f), 4);
}

static void count_entry(void *arg, const pd_checkpoint_entry *entry)
{
    int *counts = arg;

    counts[entry->error.code == PD_OK]++;
}

TEST(the_list_tells_which_checkpoints_are_complete, fixture *f)
{
    int counts[2] = { 0 };

    write_step(f, 3, 3);
    write_step(f, 4, 3);
    write_step(f, 5, 3);
    mem_disk_resize(f->memory, STEP(4) "/state.bin", 9);
    assert_int_equal(pd_checkpoint_list(&f->disk, ROOT, count_entry, counts, NULL), PD_OK);
    assert_int_equal(counts[true], 2);
    assert_int_equal(counts[false], 1);
}

TEST(large_weights_are_written_in_pieces_wherever_they_lie, fixture *f)
{
    size_t aligned[] = { 0, 64 };

    for (int i = 0; i < 2; i++) {
        pd_checkpoint_image *kept = sample_large(1 + (uint64_t)i, (9u << 20) + 4, aligned[i]), *loaded;
        pd_manifest manifest;
        assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, kept, &sample_about, NULL), PD_OK);
        assert_int_equal(pd_checkpoint_newest(&f->disk, JOB_DIR, &loaded, &manifest, note_damage, f, NULL), PD_OK);
        assert_checkpoints_same(kept, loaded);
        pd_checkpoint_image_free(kept);
        pd_checkpoint_image_free(loaded);
    }
}
