/* Tests that a log brings back all steps that were reported as durable, and never a step of another past: power cuts,
 * calls that fail, a daemon that is killed, no memory, and bytes that are damaged. */
#include "test.h"
#include "wal_sample.h"

enum { SEEDS = 2, MOST_CALLS = 400 };

/* Groups of steps, and the checkpoints that become durable before them; 0: none. That of step 12 begins a chain. */
static const struct {
    unsigned steps;
    uint64_t checkpoint;
} script[] = {
    { 1, 0 }, { 2, 0 }, { 3, 0 }, { 2, 4 }, { 4, 0 }, { 3, 12 }, { 1, 0 }, { 4, 14 }, { 2, 19 }, { 5, 0 }, { 2, 24 },
};
enum { GROUPS = sizeof script / sizeof script[0] };

/* The tests below the script are run with the stream of steps, and again with that of decisions. */
static bool control;

static void begin(log_course *c)
{
    course_new(c);
    c->control = control;
}

static int use_control(void **state)
{
    (void)state;
    control = true;
    return 0;
}

/* Plays the script. After an entry came back with an error, it ends, or a checkpoint of the last step is made, after
 * which entries begin again. */
static void play(log_course *c, bool ends)
{
    for (size_t i = 0; i < GROUPS; i++) {
        uint64_t refused = c->refused;
        if (script[i].checkpoint > c->base) course_checkpoint(c, script[i].checkpoint);
        course_steps(c, script[i].steps);
        if (c->refused == refused) continue;
        if (ends) return;
        course_checkpoint(c, c->step);
    }
}

/* Goes on for a while in the next life, and checks that this survives, too. */
static void assert_goes_on(log_course *c)
{
    uint64_t refused = c->refused;

    course_return(c);
    course_steps(c, 3);
    course_steps(c, 1);
    assert_int_equal(c->refused, refused);
    course_stop(c);
    mem_disk_crash(c->memory, MEM_DISK_LOSE, 0);
    course_return(c);
    assert_int_equal(c->step, c->durable);
}

/* Cuts the power before call n of the script. Returns true if there were fewer calls. */
static bool cut_power(int64_t n, mem_disk_crash_kind kind, uint64_t seed)
{
    log_course c;
    size_t all;

    begin(&c);
    mem_disk_forget_calls(c.memory);
    mem_disk_power_off_at(c.memory, n);
    play(&c, true);
    mem_disk_calls(c.memory, &all);
    course_stop(&c);
    mem_disk_crash(c.memory, kind, seed);
    assert_goes_on(&c);
    course_free(&c);
    return (int64_t)all <= n;
}

TEST(a_power_cut_costs_no_durable_step)
{
    int64_t n = 0;

    while (!cut_power(n, MEM_DISK_LOSE, 0)) {
        cut_power(n, MEM_DISK_KEEP, 0);
        for (uint64_t seed = 1; seed <= SEEDS; seed++) cut_power(n, MEM_DISK_TEAR, seed);
        assert_true(++n < MOST_CALLS);
    }
    assert_true(n > 40);
}

/* Makes call n of the script fail. Then the daemon is killed, and later the power is cut. Returns true if there were
 * fewer calls. */
static bool fail_call(int64_t n, int number, bool crashes, mem_disk_crash_kind kind)
{
    log_course c;
    size_t all;

    begin(&c);
    mem_disk_forget_calls(c.memory);
    mem_disk_fail_at(c.memory, n, number);
    play(&c, false);
    mem_disk_calls(c.memory, &all);
    mem_disk_fail_at(c.memory, -1, 0);
    if (c.refused > 0) {
        assert_true(c.error.code == PD_FAILED_PRECONDITION || strstr(c.error.text, strerror(number)) != NULL);
        assert_non_null(strstr(c.error.text, LOG_ROOT));
    }
    course_stop(&c);
    if (crashes) mem_disk_crash(c.memory, kind, (uint64_t)n);
    assert_goes_on(&c);
    course_free(&c);
    return (int64_t)all <= n;
}

TEST(a_call_that_fails_costs_no_durable_step)
{
    const int numbers[] = { EIO, ENOSPC };

    for (int k = 0; k < 2; k++) {
        int64_t n = 0;
        while (!fail_call(n, numbers[k], true, MEM_DISK_LOSE)) {
            if (k == 0) fail_call(n, numbers[k], true, MEM_DISK_TEAR);
            if (k == 0) fail_call(n, numbers[k], false, MEM_DISK_LOSE);
            assert_true(++n < MOST_CALLS);
        }
        assert_true(n > 40);
    }
}

/* Lets call n fail as fail_call does, but kills the daemon at once, so no checkpoint makes the entry obsolete. `dies`:
 * the daemon is killed before call n. The disk then has all bytes written so far, synced or not, and the power is cut
 * later. */
static bool fail_and_kill(int64_t n, bool dies)
{
    log_course c;
    size_t all;

    begin(&c);
    mem_disk_forget_calls(c.memory);
    if (dies)
        mem_disk_power_off_at(c.memory, n);
    else
        mem_disk_fail_at(c.memory, n, EIO);
    play(&c, true);
    mem_disk_calls(c.memory, &all);
    mem_disk_fail_at(c.memory, -1, 0);
    mem_disk_power_off_at(c.memory, -1);
    course_stop(&c);
    assert_goes_on(&c);
    course_free(&c);
    return (int64_t)all <= n;
}

TEST(a_daemon_that_is_killed_after_an_error_does_not_trust_the_file)
{
    int64_t n = 0;

    while (!fail_and_kill(n, false)) assert_true(++n < MOST_CALLS);
}

TEST(entries_that_a_killed_daemon_has_not_synced_are_synced_before_others_follow)
{
    int64_t n = 0;

    while (!fail_and_kill(n, true)) assert_true(++n < MOST_CALLS);
}

TEST(a_power_cut_while_the_log_is_read_changes_nothing)
{
    bool done = false;

    for (int64_t n = 0; !done; n++) {
        log_course c;
        pd_wal_about about;
        pd_error err;
        assert_true(n < MOST_CALLS);
        begin(&c);
        play(&c, false);
        course_stop(&c);
        mem_disk_power_off_at(c.memory, n);
        done = course_recover(&c, &about, &err) == PD_OK && c.step == c.durable;
        mem_disk_crash(c.memory, MEM_DISK_TEAR, (uint64_t)n);
        assert_goes_on(&c);
        course_free(&c);
    }
}

TEST(a_full_disk_costs_only_entries)
{
    uint64_t refusals = 0;

    for (uint64_t limit = 4000; limit < 200000; limit += 4000) {
        log_course c;
        begin(&c);
        mem_disk_limit(c.memory, limit);
        play(&c, false);
        mem_disk_limit(c.memory, UINT64_MAX / 2);
        refusals += c.refused;
        course_stop(&c);
        mem_disk_crash(c.memory, MEM_DISK_LOSE, 0);
        assert_goes_on(&c);
        course_free(&c);
    }
    assert_true(refusals > 10);
}

TEST(no_memory_while_writing_costs_only_entries)
{
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        log_course c;
        pd_wal_record *e[3];
        course_new(&c);
        course_steps(&c, 2);
        course_stop(&c);
        course_return(&c);
        for (uint64_t i = 0; i < 3; i++) e[i] = sample_logged(3 + i, 0, 2);
        oom_arm(n);
        pd_wal_write(c.logs, e, 3);
        failed = oom_disarm();
        for (int i = 0; i < 3; i++) {
            assert_true(e[i]->error.code == PD_OK ||
                        (failed && (e[i]->error.code == PD_NO_MEMORY || e[i]->error.code == PD_FAILED_PRECONDITION)));
            if (e[i]->error.code == PD_OK) {
                c.life_of[++c.step] = 2;
                c.durable = c.step;
            }
            pd_wal_record_free(e[i]);
        }
        course_stop(&c);
        mem_disk_crash(c.memory, MEM_DISK_LOSE, 0);
        course_return(&c);
        course_free(&c);
    }
}

static int sweep_read(const void *what)
{
    const log_course *c = what;
    pd_wal_about about;
    int rc = pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, c->base }, NULL, NULL,
                         &about, NULL);

    return rc == PD_OK && about.last != c->step ? PD_DATA_LOSS : rc;
}

TEST(no_memory_while_reading_is_no_damage)
{
    log_course c;

    course_new(&c);
    play(&c, false);
    assert_true(oom_each(sweep_read, &c) > 10);
    course_free(&c);
}

/* Counts an entry that is read from the damaged log, and compares it with the entry that was written. */
static int see(void *arg, const pd_wal_record *record, pd_error *err)
{
    uint64_t *step = arg;

    (void)err;
    assert_logged(record, ++*step, 1);
    return PD_OK;
}

static uint64_t read_damaged(log_course *c, pd_wal_about *about)
{
    uint64_t step = 0;

    assert_int_equal(
        pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, see, &step, about, NULL),
        PD_OK);
    assert_int_equal(step, about->last);
    return step;
}

/* Flips bits of one byte after the other. Zeros, of which there are many, are mostly left out. */
static void flip_bytes(log_course *c, const char *path, uint64_t first, uint64_t last)
{
    size_t bytes;
    uint8_t *file = mem_disk_file(c->memory, path, &bytes);
    pd_wal_about about;

    assert_non_null(file);
    for (size_t i = 0; i < bytes; i++) {
        if (file[i] == 0 && i % 32 != 0) continue;
        file[i] ^= (uint8_t)(1 << i % 8);
        if (read_damaged(c, &about) < c->durable) {
            assert_true(about.last + 1 >= first && about.last <= last);
            assert_true(about.last + 2 >= c->durable || about.damage.code == PD_DATA_LOSS);
            if (about.damage.code != PD_OK) assert_non_null(strstr(about.damage.text, "were durable"));
        } else {
            assert_int_equal(about.damage.code, PD_OK);
        }
        file[i] ^= (uint8_t)(1 << i % 8);
    }
    assert_int_equal(read_damaged(c, &about), c->durable);
}

TEST(every_byte_that_is_damaged_ends_the_log_before_its_entry)
{
    log_course c;

    course_new(&c);
    for (int i = 0; i < 5; i++) course_steps(&c, 1);
    assert_true(mem_disk_has(c.memory, LOG_JOB_DIR "/log/segment-00000000000000000002"));
    flip_bytes(&c, LOG_JOB_DIR "/log/segment-00000000000000000001", 1, 4);
    flip_bytes(&c, LOG_JOB_DIR "/log/segment-00000000000000000002", 5, 5);
    course_free(&c);
}

TEST(bytes_that_an_earlier_use_has_left_never_count)
{
    log_course c;
    pd_wal_about about;
    size_t bytes, others;

    course_new(&c);
    for (int i = 0; i < 5; i++) course_steps(&c, 1);
    /* the segment has the entries up to step 4, and behind them lies one of step 5 from another segment */
    mem_disk_file(c.memory, LOG_JOB_DIR "/log/segment-00000000000000000001", &bytes);
    mem_disk_resize(c.memory, LOG_JOB_DIR "/log/segment-00000000000000000001", bytes + 8192);
    memcpy(mem_disk_file(c.memory, LOG_JOB_DIR "/log/segment-00000000000000000001", &others) + bytes,
           mem_disk_file(c.memory, LOG_JOB_DIR "/log/segment-00000000000000000002", &others) + PD_DISK_BLOCK, 4096);
    assert_int_equal(c.disk.remove(c.disk.arg, LOG_JOB_DIR "/log/segment-00000000000000000002"), 0);
    assert_int_equal(read_damaged(&c, &about), 4);
    course_free(&c);
}

TEST(a_segment_that_is_missing_is_reported)
{
    log_course c;
    pd_wal_about about;

    course_new(&c);
    for (int i = 0; i < 10; i++) course_steps(&c, 1);
    assert_int_equal(c.disk.remove(c.disk.arg, LOG_JOB_DIR "/log/segment-00000000000000000002"), 0);
    assert_int_equal(read_damaged(&c, &about), 4);
    assert_int_equal(about.damage.code, PD_DATA_LOSS);
    assert_non_null(strstr(about.damage.text, "steps 5 to 9 were durable"));
    course_free(&c);
}

TEST(an_entry_that_the_disk_cannot_read_is_reported)
{
    log_course c;
    pd_wal_about about;
    uint64_t step;
    int reported = 0;

    course_new(&c);
    for (int i = 0; i < 6; i++) course_steps(&c, 1);
    for (int64_t n = 1; n < 30; n++) {
        mem_disk_fail_at(c.memory, n, EIO);
        step = read_damaged(&c, &about);
        mem_disk_fail_at(c.memory, -1, 0);
        if (step < 6) assert_non_null(strstr(about.damage.text, strerror(EIO)));
        reported += step < 6;
    }
    assert_true(reported > 4);
    course_free(&c);
}

TEST(files_that_are_cut_short_end_the_log)
{
    static const char path[] = LOG_JOB_DIR "/log/segment-00000000000000000001";
    log_course c;
    pd_wal_about about;
    size_t bytes;

    course_new(&c);
    for (int i = 0; i < 3; i++) course_steps(&c, 1);
    mem_disk_file(c.memory, path, &bytes);
    for (size_t n = bytes; n-- > 0;) {
        if (n % 512 > 1) continue;
        mem_disk_resize(c.memory, path, n);
        assert_true(read_damaged(&c, &about) < 3);
    }
    course_free(&c);
}

TEST_PROGRAM(tests_of_the_control_log)
{
    const struct CMUnitTest of_control[] = {
        cmocka_unit_test(a_power_cut_costs_no_durable_step),
        cmocka_unit_test(a_call_that_fails_costs_no_durable_step),
        cmocka_unit_test(a_daemon_that_is_killed_after_an_error_does_not_trust_the_file),
        cmocka_unit_test(entries_that_a_killed_daemon_has_not_synced_are_synced_before_others_follow),
        cmocka_unit_test(a_power_cut_while_the_log_is_read_changes_nothing),
        cmocka_unit_test(a_full_disk_costs_only_entries),
    };
    return cmocka_run_group_tests(of_control, use_control, NULL);
}
