/* Tests that a whole checkpoint is on the disk at every moment: power cuts, calls that fail, full disks, no memory. */
#include "test.h"
#include "state_dir.h"
#include "checkpoint_sample.h"
#include "mem_disk.h"

#define ROOT "/state"
#define JOB_DIR ROOT "/runs%2Fgpt%20%231-0123456789abcdef"

#if defined __SANITIZE_ADDRESS__
enum { SEEDS = 4 }; /* few cases, since sanitizers are slow */
#else
enum { SEEDS = 12 };
#endif
enum { MOST_CALLS = 400 };

/* The disk has checkpoints of the steps 2 and 3 at first. Then a checkpoint of `step` is written, and the last `keep`
 * checkpoints stay. */
typedef struct scenario {
    uint64_t keep, step;
    bool first; /* the disk has no checkpoint before */
    bool later; /* the checkpoint of step 3 is damaged, and the job has gone back to step 2 */
    /* there is an old one of step 3, too, since the power was cut before it was removed; then this one was damaged, and
     * the job has come back from the other one */
    const char *damaged;
} scenario;

static const scenario scenarios[] = {
    { .keep = 2, .step = 4 },
    { .keep = 1, .step = 4 },
    { .keep = 2, .step = 3 },
    { .keep = 1, .step = 3 },
    { .keep = 2, .step = 4, .first = true },
    { .keep = 3, .step = 2, .later = true },
    { .keep = 1, .step = 3, .damaged = JOB_DIR "/step-00000000000000000003/state.bin" },
    { .keep = 1, .step = 3, .damaged = JOB_DIR "/step-00000000000000000003.old/state.bin" },
    { .keep = 3, .step = 2, .later = true, .damaged = JOB_DIR "/step-00000000000000000003/state.bin" },
};
enum { SCENARIOS = sizeof scenarios / sizeof scenarios[0] };

static int write_step(const pd_disk *disk, uint64_t step, uint64_t keep, pd_error *err)
{
    pd_checkpoint_image *kept = sample_checkpoint(step, keep);
    int rc = kept != NULL ? pd_checkpoint_write(disk, ROOT, kept, &sample_about, err) : PD_NO_MEMORY;

    pd_checkpoint_image_free(kept);
    return rc;
}

/* Writes a second checkpoint of step 3, as if the power was cut before the first one was removed. */
static void write_second(const pd_disk *disk)
{
    pd_checkpoint_image *kept = sample_checkpoint(3, 1);

    assert_int_equal(pd_checkpoint_put(disk, ROOT, kept, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(kept);
}

static void damage(mem_disk *memory, const char *path)
{
    size_t bytes;

    mem_disk_file(memory, path, &bytes)[0] ^= 1;
}

static mem_disk *before(const scenario *s)
{
    mem_disk *memory = mem_disk_new();
    pd_disk disk = mem_disk_table(memory);

    assert_int_equal(disk.make_dir(disk.arg, ROOT), 0);
    assert_int_equal(disk.sync_dir(disk.arg, "/"), 0);
    if (s->first) return memory;
    for (uint64_t step = 2; step <= 3; step++) assert_int_equal(write_step(&disk, step, s->keep, NULL), PD_OK);
    if (s->later) damage(memory, JOB_DIR "/step-00000000000000000003/state.bin");
    if (s->damaged != NULL) write_second(&disk);
    if (s->damaged != NULL) damage(memory, s->damaged);
    return memory;
}

static void ignore_damage(void *arg, const char *dir, const pd_error *why)
{
    (void)arg, (void)dir, (void)why;
}

/* Loads the newest checkpoint. Returns its step, after comparing it with what was written; 0: there is none. */
static uint64_t newest(const pd_disk *disk)
{
    pd_checkpoint_image *kept, *expected;
    pd_manifest manifest;
    uint64_t step;
    int rc = pd_checkpoint_newest(disk, JOB_DIR, &kept, &manifest, ignore_damage, NULL, NULL);

    if (rc == PD_NOT_FOUND) return 0;
    assert_int_equal(rc, PD_OK);
    step = kept->step;
    expected = sample_checkpoint(step, 1);
    assert_checkpoints_same(kept, expected);
    pd_checkpoint_image_free(expected);
    pd_checkpoint_image_free(kept);
    return step;
}

static uint64_t old_step(const scenario *s)
{
    return s->first ? 0 : s->later ? 2 : 3;
}

/* Checks that a next checkpoint heals the directory: it loads, nothing temporary is left, and no more is there than the
 * job wants. */
static void assert_heals(mem_disk *memory, const scenario *s)
{
    pd_disk disk = mem_disk_table(memory);
    pd_step_list list;
    pd_error err = { 0 };

    if (write_step(&disk, 5, s->keep, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(newest(&disk), 5);
    assert_int_equal(pd_step_list_read(&list, &disk, JOB_DIR, NULL), PD_OK);
    for (size_t i = 0; i < list.n; i++) assert_int_not_equal(list.at[i].kind, PD_STEP_TEMPORARY);
    assert_true(list.n <= s->keep);
    pd_step_list_free(&list);
    mem_disk_crash(memory, MEM_DISK_LOSE, 0);
    assert_int_equal(newest(&disk), 5);
}

/* Cuts the power before call n. Returns true if the checkpoint was complete before that. */
static bool cut_power(const scenario *s, int64_t n, mem_disk_crash_kind kind, uint64_t seed)
{
    mem_disk *memory = before(s);
    pd_disk disk = mem_disk_table(memory);
    size_t calls, all;
    uint64_t loaded;
    bool ok;

    mem_disk_calls(memory, &calls);
    mem_disk_power_off_at(memory, n);
    ok = write_step(&disk, s->step, s->keep, NULL) == PD_OK;
    mem_disk_calls(memory, &all);
    mem_disk_crash(memory, kind, seed);
    loaded = newest(&disk);
    if (loaded != s->step && (ok || loaded != old_step(s)))
        fail_msg("power off at call %lld, crash %d, seed %llu: step %llu loads", (long long)n, kind,
                 (unsigned long long)seed, (unsigned long long)loaded);
    assert_heals(memory, s);
    mem_disk_free(memory);
    return ok && (int64_t)(all - calls) <= n;
}

TEST(a_power_cut_leaves_the_old_checkpoint_or_the_new_one)
{
    for (int i = 0; i < SCENARIOS; i++) {
        int64_t n = 0;
        while (!cut_power(&scenarios[i], n, MEM_DISK_LOSE, 0)) {
            cut_power(&scenarios[i], n, MEM_DISK_KEEP, 0);
            for (uint64_t seed = 1; seed <= (scenarios[i].damaged != NULL ? SEEDS / 4 : SEEDS); seed++)
                cut_power(&scenarios[i], n, MEM_DISK_TEAR, seed);
            assert_true(++n < MOST_CALLS);
        }
        assert_true(n > 20);
    }
}

/* Makes call n fail. Then the machine crashes, and `seed` chooses what is kept. Returns true if there were fewer
 * calls. */
static bool fail_call(const scenario *s, int64_t n, int number, mem_disk_crash_kind kind, uint64_t seed)
{
    mem_disk *memory = before(s);
    pd_disk disk = mem_disk_table(memory);
    size_t calls, all;
    pd_error err = { 0 };
    uint64_t loaded;
    int rc;

    mem_disk_calls(memory, &calls);
    mem_disk_fail_at(memory, n, number);
    rc = write_step(&disk, s->step, s->keep, &err);
    mem_disk_calls(memory, &all);
    mem_disk_fail_at(memory, -1, 0);
    if (rc != PD_OK) {
        assert_int_equal(rc, number == ENOSPC ? PD_RESOURCE_EXHAUSTED : PD_UNAVAILABLE);
        assert_int_equal(err.code, rc);
        assert_non_null(strstr(err.text, strerror(number)));
        assert_non_null(strstr(err.text, ROOT));
    }
    loaded = newest(&disk);
    if (loaded != (rc == PD_OK ? s->step : old_step(s)))
        fail_msg("call %lld fails: step %llu loads: %s", (long long)n, (unsigned long long)loaded, err.text);
    mem_disk_crash(memory, kind, seed);
    loaded = newest(&disk);
    if (loaded != s->step && (rc == PD_OK || loaded != old_step(s)))
        fail_msg("call %lld fails, then crash %d, seed %llu: step %llu loads", (long long)n, kind,
                 (unsigned long long)seed, (unsigned long long)loaded);
    assert_heals(memory, s);
    mem_disk_free(memory);
    return (int64_t)(all - calls) <= n;
}

TEST(after_any_call_that_fails_the_old_checkpoint_loads)
{
    const int numbers[] = { EIO, ENOSPC };

    for (int i = 0; i < SCENARIOS; i++)
        for (int k = 0; k < 2; k++) {
            int64_t n = 0;
            while (!fail_call(&scenarios[i], n, numbers[k], MEM_DISK_LOSE, 0)) {
                fail_call(&scenarios[i], n, numbers[k], MEM_DISK_KEEP, 0);
                for (uint64_t seed = 1; seed <= (k == 0 ? SEEDS / 3 : 1); seed++)
                    fail_call(&scenarios[i], n, numbers[k], MEM_DISK_TEAR, seed);
                assert_true(++n < MOST_CALLS);
            }
        }
}

/* Lets two attempts to write a checkpoint fail, one after the other, each at another call. Then the machine crashes. */
static void fail_twice(const scenario *s, uint64_t seed)
{
    mem_disk *memory = before(s);
    pd_disk disk = mem_disk_table(memory);
    bool ok = false;
    uint64_t loaded;

    for (uint64_t i = 0; i < 2; i++) {
        mem_disk_fail_at(memory, (int64_t)(seed * (5 + 6 * i) / (1 + i) % 70), EIO);
        ok = write_step(&disk, s->step, s->keep, NULL) == PD_OK || ok;
    }
    mem_disk_crash(memory, MEM_DISK_TEAR, seed);
    loaded = newest(&disk);
    if (loaded != s->step && (ok || loaded != old_step(s)))
        fail_msg("seed %llu: step %llu loads", (unsigned long long)seed, (unsigned long long)loaded);
    assert_heals(memory, s);
    mem_disk_free(memory);
}

TEST(a_crash_after_two_failed_attempts_leaves_the_old_checkpoint_or_the_new_one)
{
    for (int i = 0; i < SCENARIOS; i++)
        for (uint64_t seed = 1; seed <= 2 * SEEDS * SEEDS; seed++) fail_twice(&scenarios[i], seed);
}

TEST(a_full_disk_is_found_before_anything_is_written)
{
    mem_disk *memory = before(&scenarios[0]);
    pd_disk disk = mem_disk_table(memory);
    pd_error err = { 0 };
    const mem_disk_call *calls;
    size_t n;

    mem_disk_limit(memory, 100000);
    mem_disk_forget_calls(memory);
    assert_int_equal(write_step(&disk, 4, 2, &err), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "MiB are free"));
    calls = mem_disk_calls(memory, &n);
    for (size_t i = 0; i < n; i++) assert_string_not_equal(calls[i].what, "create");
    assert_int_equal(newest(&disk), 3);
    mem_disk_limit(memory, UINT64_MAX / 2);
    assert_heals(memory, &scenarios[0]);
    mem_disk_free(memory);
}

static int plenty_of_space(void *arg, const char *path, uint64_t *bytes)
{
    (void)arg, (void)path;
    *bytes = UINT64_MAX;
    return 0;
}

TEST(a_disk_that_fills_up_meanwhile_costs_only_the_new_checkpoint)
{
    int failures = 0, successes = 0;

    for (uint64_t room = 0; room < 20000; room += 500) {
        mem_disk *memory = before(&scenarios[0]);
        pd_disk disk = mem_disk_table(memory);
        uint64_t space;
        int rc;
        assert_int_equal(disk.space(disk.arg, ROOT, &space), 0);
        mem_disk_limit(memory, UINT64_MAX / 2 - space + room);
        disk.space = plenty_of_space;
        rc = write_step(&disk, 4, 2, NULL);
        assert_true(rc == PD_OK || rc == PD_RESOURCE_EXHAUSTED);
        *(rc == PD_OK ? &successes : &failures) += 1;
        assert_int_equal(newest(&disk), rc == PD_OK ? 4 : 3);
        mem_disk_free(memory);
    }
    assert_true(failures > 3 && successes > 3);
}

static int sweep_write(const void *what)
{
    const pd_disk *disk = what;
    return write_step(disk, 4, 2, NULL);
}

TEST(no_memory_while_writing_leaves_the_old_checkpoint)
{
    for (int64_t n = 0;; n++) {
        mem_disk *memory = before(&scenarios[0]);
        pd_disk disk = mem_disk_table(memory);
        bool failed;
        int rc;
        oom_arm(n);
        rc = sweep_write(&disk);
        failed = oom_disarm();
        assert_true(rc == PD_OK || (failed && rc == PD_NO_MEMORY));
        assert_int_equal(newest(&disk), rc == PD_OK ? 4 : 3);
        assert_heals(memory, &scenarios[0]);
        mem_disk_free(memory);
        if (!failed) break;
    }
}

static int sweep_load(const void *what)
{
    pd_checkpoint_image *kept = NULL;
    pd_manifest manifest;
    int rc = pd_checkpoint_newest(what, JOB_DIR, &kept, &manifest, ignore_damage, NULL, NULL);

    if (rc == PD_OK) {
        rc = kept->step == 3 ? PD_OK : PD_DATA_LOSS; /* an older one must not take its place */
        pd_checkpoint_image_free(kept);
    }
    return rc;
}

TEST(no_memory_while_loading_is_no_damage)
{
    mem_disk *memory = before(&scenarios[0]);
    pd_disk disk = mem_disk_table(memory);

    assert_true(oom_each(sweep_load, &disk) > 15);
    mem_disk_free(memory);
}

TEST(a_file_whose_sync_failed_is_never_synced_again)
{
    mem_disk *memory = before(&scenarios[0]);
    pd_disk disk = mem_disk_table(memory);
    const mem_disk_call *calls;
    size_t n, failed = 0;

    mem_disk_forget_calls(memory);
    for (int64_t at = 0; failed == 0 && at < MOST_CALLS; at++) { /* looks for the first call that is a sync of a file */
        mem_disk_forget_calls(memory);
        mem_disk_fail_at(memory, at, EIO);
        (void)write_step(&disk, 4, 2, NULL);
        calls = mem_disk_calls(memory, &n);
        for (size_t i = 0; i < n; i++)
            if (calls[i].number == EIO && strcmp(calls[i].what, "sync_file") == 0) failed = i + 1;
    }
    assert_true(failed > 0);
    for (size_t i = failed; i < n; i++) assert_string_not_equal(calls[i].what, "sync_file");
    mem_disk_forget_calls(memory);
    assert_int_equal(write_step(&disk, 4, 2, NULL), PD_OK);
    mem_disk_crash(memory, MEM_DISK_LOSE, 0);
    assert_int_equal(newest(&disk), 4);
    mem_disk_free(memory);
}
