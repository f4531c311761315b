/* Tests that a job's checkpoint of an earlier step becomes its newest one wholly or not at all, and which checkpoints
 * stay for that. */
#include "test.h"
#include "checkpoint_sample.h"
#include "mem_disk.h"
#include "state_dir.h"
#include "wal_sample.h"

#include <errno.h>

#define ROOT "/state"
#define JOB_DIR ROOT "/runs%2Fgpt%20%231-0123456789abcdef"

enum { FIRST = 2, LAST = 5, TARGET = 3, SEEDS = 12 };

static mem_disk *new_disk(void)
{
    mem_disk *memory = mem_disk_new();
    pd_disk disk = mem_disk_table(memory);

    assert_int_equal(disk.make_dir(disk.arg, ROOT), 0);
    assert_int_equal(disk.sync_dir(disk.arg, "/"), 0);
    return memory;
}

static pd_kept_steps write_step(mem_disk *memory, uint64_t step, const pd_retention *retention)
{
    pd_disk disk = mem_disk_table(memory);
    pd_checkpoint_image *image = sample_checkpoint(step, retention->keep);
    pd_kept_steps kept;

    image->has_common = retention->has_common;
    image->common = retention->common;
    assert_int_equal(pd_checkpoint_write(&disk, ROOT, image, &sample_about, NULL), PD_OK);
    kept = image->kept;
    pd_checkpoint_image_free(image);
    return kept;
}

/* Makes a disk with checkpoints of the steps FIRST to LAST. */
static mem_disk *before(void)
{
    mem_disk *memory = new_disk();

    for (uint64_t step = FIRST; step <= LAST; step++) write_step(memory, step, &(pd_retention){ .keep = 9 });
    return memory;
}

static pd_go_back_order order_for(uint64_t step, bool removes)
{
    static char job[] = SAMPLE_JOB;

    return (pd_go_back_order){ .job = job, .creator = SAMPLE_CREATOR, .step = step, .removes = removes };
}

/* Carries out an order, and returns its code. Checks what it has read. */
static int go_back(mem_disk *memory, uint64_t step, bool removes, pd_error *err)
{
    pd_disk disk = mem_disk_table(memory);
    pd_go_back_order order = order_for(step, removes);
    pd_checkpoint_image *expected;

    pd_checkpoint_go_back(&disk, ROOT, &sample_about, &order);
    if (err != NULL) *err = order.error;
    assert_true((order.error.code == PD_OK) == (order.image != NULL));
    if (order.image == NULL) return order.error.code;
    expected = sample_checkpoint(step, 9);
    assert_checkpoints_same(order.image, expected);
    pd_checkpoint_image_free(expected);
    pd_checkpoint_image_free(order.image);
    return PD_OK;
}

static void ignore_damage(void *arg, const char *dir, const pd_error *why)
{
    (void)arg, (void)dir, (void)why;
}

/* Returns the step of the newest checkpoint that a restart would load. */
static uint64_t newest(mem_disk *memory)
{
    pd_disk disk = mem_disk_table(memory);
    pd_checkpoint_image *kept;
    pd_manifest manifest;
    uint64_t step;

    assert_int_equal(pd_checkpoint_newest(&disk, JOB_DIR, &kept, &manifest, ignore_damage, NULL, NULL), PD_OK);
    step = kept->step;
    pd_checkpoint_image_free(kept);
    return step;
}

static bool has(mem_disk *memory, pd_step_kind kind, uint64_t step)
{
    pd_disk disk = mem_disk_table(memory);
    pd_step_list list;
    bool found;

    assert_int_equal(pd_step_list_read(&list, &disk, JOB_DIR, NULL), PD_OK);
    found = pd_step_list_has(&list, kind, step);
    pd_step_list_free(&list);
    return found;
}

TEST(later_checkpoints_are_set_aside_or_removed_with_the_next_one)
{
    for (int removes = 0; removes <= 1; removes++) {
        mem_disk *memory = before();

        assert_int_equal(go_back(memory, TARGET, removes, NULL), PD_OK);
        assert_int_equal(newest(memory), TARGET);
        assert_true(has(memory, removes ? PD_STEP_TEMPORARY : PD_STEP_ASIDE, LAST));
        assert_true(has(memory, PD_STEP_CURRENT, FIRST));
        write_step(memory, TARGET + 1, &(pd_retention){ .keep = 9 });
        assert_false(has(memory, PD_STEP_TEMPORARY, LAST));
        assert_true(has(memory, PD_STEP_ASIDE, LAST) == !removes);
        mem_disk_free(memory);
    }
}

TEST(the_newest_checkpoint_is_read_again_and_nothing_is_renamed)
{
    mem_disk *memory = before();

    assert_int_equal(go_back(memory, LAST, true, NULL), PD_OK);
    assert_int_equal(newest(memory), LAST);
    mem_disk_free(memory);
}

/* Writes records of the steps from `first` to `last`. */
static void write_records(mem_disk *memory, uint64_t first, uint64_t last)
{
    pd_disk disk = mem_disk_table(memory);
    pd_wal_writer *writer;

    assert_int_equal(pd_wal_writer_new(&writer, &disk, ROOT, 1 << 16, NULL), PD_OK);
    for (uint64_t step = first; step <= last; step++) {
        pd_wal_record *record = sample_logged(step, first - 1, 1);
        pd_wal_write(writer, &record, 1);
        assert_int_equal(record->error.code, PD_OK);
        pd_wal_record_free(record);
    }
    pd_wal_writer_free(writer);
}

/* Carries out an order to go back to a step that only the WAL has. Returns its code. */
static int go_back_by_records(mem_disk *memory, uint64_t step, uint64_t from)
{
    pd_disk disk = mem_disk_table(memory);
    pd_go_back_order order = order_for(step, true);

    order.replays = true;
    pd_checkpoint_go_back(&disk, ROOT, &sample_about, &order);
    if (order.error.code != PD_OK) return order.error.code;
    assert_int_equal(order.image->step, from);
    pd_checkpoint_image_free(order.image);
    order.image = NULL;
    order.reads = true;
    order.read = from;
    pd_checkpoint_go_back(&disk, ROOT, &sample_about, &order);
    assert_int_equal(order.error.code, PD_OK);
    assert_int_equal(order.read, step);
    for (pd_wal_record *record; (record = pd_wal_record_take(&order.records)) != NULL; pd_wal_record_free(record))
        assert_logged(record, ++from, 1);
    assert_int_equal(from, step);
    return PD_OK;
}

TEST(records_lead_to_a_step_after_a_checkpoint)
{
    mem_disk *memory = before();

    assert_int_equal(go_back_by_records(memory, LAST + 2, LAST), PD_NOT_FOUND);
    write_records(memory, LAST + 1, LAST + 3);
    assert_int_equal(go_back_by_records(memory, LAST + 4, LAST), PD_NOT_FOUND);
    assert_int_equal(go_back_by_records(memory, LAST + 2, LAST), PD_OK);
    assert_int_equal(newest(memory), LAST);
    mem_disk_free(memory);
}

TEST(records_lead_past_a_checkpoint_that_is_no_longer_used)
{
    mem_disk *memory = new_disk();

    write_step(memory, 2, &(pd_retention){ .keep = 9 });
    write_step(memory, 6, &(pd_retention){ .keep = 9 });
    write_records(memory, 3, 8);
    assert_int_equal(go_back_by_records(memory, 5, 2), PD_OK);
    assert_int_equal(newest(memory), 2);
    assert_true(has(memory, PD_STEP_TEMPORARY, 6));
    mem_disk_free(memory);
}

static void flip(mem_disk *memory, const char *path)
{
    size_t bytes;

    mem_disk_file(memory, path, &bytes)[bytes / 2] ^= 1;
}

TEST(a_damaged_or_missing_checkpoint_changes_nothing)
{
    static const char *const files[] = { "weights.safetensors", "state.bin", "manifest.json" };
    pd_error err;

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        mem_disk *memory = before();
        char path[300];

        snprintf(path, sizeof path, "%s/step-%020d/%s", JOB_DIR, TARGET, files[i]);
        flip(memory, path);
        assert_int_equal(go_back(memory, TARGET, false, &err), PD_DATA_LOSS);
        assert_int_equal(newest(memory), LAST);
        assert_int_equal(go_back(memory, 77, false, &err), PD_NOT_FOUND);
        assert_non_null(strstr(err.text, "no checkpoint of step 77"));
        assert_int_equal(newest(memory), LAST);
        mem_disk_free(memory);
    }
}

TEST(an_older_intact_checkpoint_of_the_step_is_used)
{
    mem_disk *memory = before();
    pd_disk disk = mem_disk_table(memory);
    pd_checkpoint_image *again = sample_checkpoint(LAST, 9);

    assert_int_equal(pd_checkpoint_put(&disk, ROOT, again, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(again);
    assert_true(has(memory, PD_STEP_OLD, LAST));
    flip(memory, JOB_DIR "/step-00000000000000000005/state.bin");
    assert_int_equal(go_back(memory, LAST, true, NULL), PD_OK);
    mem_disk_free(memory);
}

TEST(a_foreign_checkpoint_is_refused_if_the_job_says_exact)
{
    mem_disk *memory = before();
    pd_disk disk = mem_disk_table(memory);
    pd_checkpoint_about here = sample_about;
    pd_go_back_order order = order_for(TARGET, true);

    order.exact = true;
    strcpy(here.blas, "other");
    pd_checkpoint_go_back(&disk, ROOT, &here, &order);
    assert_int_equal(order.error.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(order.error.text, "exact = yes refuses"));
    assert_int_equal(newest(memory), LAST);
    order.exact = false;
    pd_checkpoint_go_back(&disk, ROOT, &here, &order);
    assert_int_equal(order.error.code, PD_OK);
    assert_true(order.image->foreign);
    pd_checkpoint_image_free(order.image);
    mem_disk_free(memory);
}

/* Cuts the power before call n of going back. Returns whether it was complete before that. */
static bool cut_power(int64_t n, bool removes, mem_disk_crash_kind kind, uint64_t seed)
{
    mem_disk *memory = before();
    size_t calls, all;
    uint64_t step;
    int rc;

    mem_disk_calls(memory, &calls);
    mem_disk_power_off_at(memory, n);
    rc = go_back(memory, TARGET, removes, NULL);
    mem_disk_calls(memory, &all);
    mem_disk_crash(memory, kind, seed);
    step = newest(memory);
    if (step != LAST && step != TARGET) fail_msg("call %d: a restart loads step %d", (int)n, (int)step);
    if (rc == PD_OK) assert_int_equal(step, TARGET);
    write_step(memory, step + 1, &(pd_retention){ .keep = 9 });
    assert_int_equal(newest(memory), step + 1);
    mem_disk_free(memory);
    return all <= calls + (size_t)n;
}

TEST(a_power_cut_leaves_the_old_state_or_the_new_one)
{
    for (int removes = 0; removes <= 1; removes++)
        for (uint64_t seed = 0; seed < SEEDS; seed++) {
            mem_disk_crash_kind kind = seed == 0 ? MEM_DISK_LOSE : seed == 1 ? MEM_DISK_KEEP : MEM_DISK_TEAR;
            int64_t n = 0;
            while (!cut_power(n, removes, kind, seed)) n++;
            assert_true(n > 10);
        }
}

/* Makes call n of going back fail. Returns whether there was such a call. */
static bool fail_at(int64_t n, bool removes)
{
    mem_disk *memory = before();
    size_t calls, all;
    pd_error err;
    int rc;

    mem_disk_calls(memory, &calls);
    mem_disk_fail_at(memory, n, EIO);
    rc = go_back(memory, TARGET, removes, &err);
    mem_disk_calls(memory, &all);
    mem_disk_fail_at(memory, -1, 0);
    assert_int_equal(newest(memory), rc == PD_OK ? TARGET : LAST);
    for (uint64_t step = FIRST; rc != PD_OK && step <= LAST; step++) assert_true(has(memory, PD_STEP_CURRENT, step));
    mem_disk_free(memory);
    return all > calls + (size_t)n;
}

TEST(after_an_error_of_the_disk_all_checkpoints_have_their_names)
{
    for (int removes = 0; removes <= 1; removes++) {
        int64_t n = 0;
        while (fail_at(n, removes)) n++;
        assert_true(n > 10);
    }
}

/* ---- which checkpoints stay ---- */

static void assert_steps(const pd_kept_steps *kept, mem_disk *memory, const char *expected)
{
    char text[400] = "";
    size_t at = 0, n = 0;
    pd_disk disk = mem_disk_table(memory);
    pd_step_list list;

    for (uint32_t i = 0; i < kept->n; i++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d", i > 0 ? " " : "", (int)kept->at[i]);
    assert_string_equal(text, expected);
    assert_int_equal(pd_step_list_read(&list, &disk, JOB_DIR, NULL), PD_OK);
    for (size_t i = 0; i < list.n; i++) n += list.at[i].kind == PD_STEP_CURRENT;
    assert_int_equal(n, kept->n);
    pd_step_list_free(&list);
}

static void expect_kept(const pd_retention *retention, uint64_t last, const char *expected)
{
    mem_disk *memory = new_disk();
    pd_kept_steps kept = { 0 };

    for (uint64_t step = 1; step <= last; step++) kept = write_step(memory, step, retention);
    assert_steps(&kept, memory, expected);
    mem_disk_free(memory);
}

HOLDS(a_job_alone_keeps_the_newest_ones, expect_kept(&(pd_retention){ .keep = 2 }, 7, "7 6"));
HOLDS(a_common_step_stays_with_all_later_ones, expect_kept(&(pd_retention){ 2, true, 4 }, 7, "7 6 5 4"));
HOLDS(what_keep_says_stays_besides, expect_kept(&(pd_retention){ 5, true, 6 }, 7, "7 6 5 4 3"));
HOLDS(without_a_checkpoint_of_the_common_step_the_one_before_it_stays,
      expect_kept(&(pd_retention){ 1, true, 40 }, 7, "7"));
HOLDS(of_too_many_the_common_one_and_the_newest_stay,
      expect_kept(&(pd_retention){ 1, true, 3 }, 40, "40 39 38 37 36 35 34 33 32 31 30 29 28 27 26 3"));
HOLDS(before_a_common_step_is_known_as_many_stay_as_can_be_listed,
      expect_kept(&(pd_retention){ 1, true, 0 }, 20, "20 19 18 17 16 15 14 13 12 11 10 9 8 7 6"));
