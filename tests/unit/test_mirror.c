/* Tests that a mirror is a state directory at every moment, follows the state directory, and never stands in its way:
 * power cuts, calls that fail, full disks, file systems without renaming, steps that are taken back. */
#include "test.h"
#include "checkpoint_sample.h"
#include "mirror.h"
#include "wal_sample.h"

#include <errno.h>

#define MIRROR "/mirror"
#define MIRROR_JOB MIRROR "/runs%2Fgpt%20%231-0123456789abcdef"
#define STEP_DIR(step) MIRROR_JOB "/step-0000000000000000000" #step

enum { MOST_CALLS = 2000, SEEDS = 2 };

/* A job that trains, its state directory, and the mirror on a disk of its own. */
typedef struct fixture {
    log_course course;
    mem_disk *memory; /* of the mirror */
    pd_disk disk;
    pd_mirror_writer *writer;
    pd_mirror_user user;
    uint64_t told;   /* step up to which the mirror has the job, as it was told */
    uint64_t all[8]; /* the first ones that were told */
    size_t n_told;
    unsigned n_remarks;
    pd_error remark; /* the last one */
} fixture;

static void take_step(void *arg, const char *job, uint64_t creator, uint64_t step)
{
    fixture *f = arg;

    assert_string_equal(job, LOG_JOB);
    assert_int_equal(creator, LOG_CREATOR);
    f->told = step;
    if (f->n_told < sizeof f->all / sizeof *f->all) f->all[f->n_told++] = step;
}

static void take_remark(void *arg, const pd_error *remark)
{
    fixture *f = arg;

    f->remark = *remark;
    f->n_remarks++;
}

/* Begins another life of the daemon, as far as the mirror is concerned. */
static void begin_life(fixture *f)
{
    size_t n;

    pd_mirror_writer_free(f->writer);
    f->user = (pd_mirror_user){ f, take_step, take_remark };
    assert_int_equal(pd_mirror_writer_new(&f->writer, &f->course.disk, LOG_ROOT, &f->disk, MIRROR, &f->user, NULL),
                     PD_OK);
    assert_int_equal(pd_mirror_begin(f->writer, &n, NULL), PD_OK);
}

static void set_up(fixture *f)
{
    course_new(&f->course);
    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    assert_int_equal(f->disk.make_dir(f->disk.arg, MIRROR), 0);
    assert_int_equal(f->disk.sync_dir(f->disk.arg, "/"), 0);
    begin_life(f);
}

static void tear_down(fixture *f)
{
    pd_mirror_writer_free(f->writer);
    mem_disk_free(f->memory);
    course_free(&f->course);
}

static void checkpoint(fixture *f, uint64_t step, uint64_t keep)
{
    pd_checkpoint_image *image = sample_checkpoint(step, keep);

    assert_int_equal(pd_checkpoint_write(&f->course.disk, LOG_ROOT, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
    if (step > f->course.base) course_checkpoint(&f->course, step);
}

static int pass(fixture *f)
{
    pd_error err = { 0 };
    int rc = pd_mirror_pass(f->writer, &err);

    if (rc != PD_OK) assert_non_null(strstr(err.text, MIRROR));
    return rc;
}

static void ignore_damage(void *arg, const char *dir, const pd_error *why)
{
    (void)arg, (void)dir, (void)why;
}

/* A state as a restart would find it. */
typedef struct found {
    uint64_t step, last; /* the newest intact checkpoint, and the last record after it */
} found;

static int check_record(void *arg, const pd_wal_record *record, pd_error *err)
{
    const log_course *c = arg;

    (void)err;
    assert_logged(record, record->step, c->life_of[record->step]);
    return PD_OK;
}

/* Reads all of a state directory with the sample job, and compares it with what was written. */
static found look(const pd_disk *disk, const char *job_dir, log_course *c)
{
    pd_checkpoint_image *image, *expected;
    pd_manifest manifest;
    pd_wal_about about;
    found out = { 0 };
    int rc = pd_checkpoint_newest(disk, job_dir, &image, &manifest, ignore_damage, NULL, NULL);

    if (rc == PD_NOT_FOUND) return out;
    assert_int_equal(rc, PD_OK);
    out.step = image->step;
    expected = sample_checkpoint(image->step, 1);
    assert_checkpoints_same(image, expected);
    pd_checkpoint_image_free(expected);
    pd_checkpoint_image_free(image);
    const pd_wal_source from = { disk, job_dir, LOG_CREATOR, PD_WAL_STEPS, out.step };
    assert_int_equal(pd_wal_read(&from, check_record, c, &about, NULL), PD_OK);
    if (about.damage.code != PD_OK) fail_msg("%s: %s", job_dir, about.damage.text);
    out.last = about.last;
    return out;
}

static found mirrored(fixture *f)
{
    return look(&f->disk, MIRROR_JOB, &f->course);
}

static void assert_follows(fixture *f)
{
    found source = look(&f->course.disk, LOG_JOB_DIR, &f->course), target = mirrored(f);

    assert_int_equal(target.step, source.step);
    assert_int_equal(target.last, source.last);
    assert_int_equal(f->told, source.last);
}

/* Groups of steps, and the checkpoints that become durable before them; 0: none. */
static const struct {
    unsigned steps;
    uint64_t checkpoint;
} script[] = {
    { 3, 0 }, { 2, 3 }, { 3, 0 }, { 4, 7 }, { 3, 0 }, { 2, 12 }, { 4, 16 }, { 3, 0 }, { 2, 23 }, { 1, 25 },
};
enum { GROUPS = sizeof script / sizeof script[0] };

/* Plays group i of the script, and copies it to the mirror. */
static int play(fixture *f, size_t i)
{
    if (script[i].checkpoint > 0) checkpoint(f, script[i].checkpoint, 2);
    course_steps(&f->course, script[i].steps);
    return pass(f);
}

FIXTURE(fixture, set_up, tear_down);

TEST(a_mirror_has_what_is_durable_after_each_pass, fixture *f)
{
    for (size_t i = 0; i < GROUPS; i++) {
        assert_int_equal(play(f, i), PD_OK);
        assert_follows(f);
    }
    assert_int_equal(f->told, 27);
    assert_int_equal(f->n_remarks, 0);
}

TEST(a_mirror_keeps_as_many_checkpoints_and_segments_as_the_state_directory, fixture *f)
{
    pd_step_list source, target;
    pd_wal_about here, there;

    for (size_t i = 0; i < GROUPS; i++) assert_int_equal(play(f, i), PD_OK);
    assert_int_equal(pd_step_list_read(&source, &f->course.disk, LOG_JOB_DIR, NULL), PD_OK);
    assert_int_equal(pd_step_list_read(&target, &f->disk, MIRROR_JOB, NULL), PD_OK);
    assert_int_equal(source.n, 2);
    assert_int_equal(target.n, 2);
    for (size_t i = 0; i < 2; i++) assert_string_equal(source.at[i].name, target.at[i].name);
    pd_step_list_free(&source);
    pd_step_list_free(&target);
    assert_int_equal(
        pd_wal_survey(&(pd_wal_source){ &f->course.disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 25 }, &here, NULL),
        PD_OK);
    assert_int_equal(
        pd_wal_survey(&(pd_wal_source){ &f->disk, MIRROR_JOB, LOG_CREATOR, PD_WAL_STEPS, 25 }, &there, NULL), PD_OK);
    assert_true(there.files <= here.files && there.files > 0);
}

TEST(a_mirror_that_was_away_gets_what_is_there_then, fixture *f)
{
    assert_int_equal(play(f, 0), PD_OK);
    for (size_t i = 1; i < GROUPS; i++) {
        mem_disk_power_off_at(f->memory, i % 4 == 3 ? -1 : 0);
        assert_true((play(f, i) == PD_OK) == (i % 4 == 3));
        if (i % 4 == 3) assert_follows(f);
    }
    mem_disk_power_off_at(f->memory, -1);
    assert_int_equal(pass(f), PD_OK);
    assert_follows(f);
}

/* Cuts the power of the mirror before its call n, while the script is played. What the mirror was told to have must be
 * there, and another life of the daemon makes it complete. Returns true if there were fewer calls. */
static bool cut_power(int64_t n, mem_disk_crash_kind kind, uint64_t seed)
{
    fixture f = { 0 };
    found there;
    size_t all;

    set_up(&f);
    mem_disk_forget_calls(f.memory);
    mem_disk_power_off_at(f.memory, n);
    for (size_t i = 0; i < GROUPS && play(&f, i) == PD_OK;) i++;
    mem_disk_calls(f.memory, &all);
    mem_disk_crash(f.memory, kind, seed);
    there = mirrored(&f);
    assert_true(there.last >= f.told && there.last <= f.course.step);
    begin_life(&f);
    assert_int_equal(pass(&f), PD_OK);
    assert_follows(&f);
    tear_down(&f);
    return (int64_t)all <= n;
}

TEST(a_power_cut_of_the_mirror_leaves_what_was_told, fixture *f)
{
    int64_t n = 0;

    (void)f;
    while (!cut_power(n, MEM_DISK_LOSE, 0)) {
        cut_power(n, MEM_DISK_KEEP, 0);
        for (uint64_t seed = 1; seed <= SEEDS; seed++) cut_power(n, MEM_DISK_TEAR, seed);
        assert_true(++n < MOST_CALLS);
    }
    assert_true(n > 200);
}

/* Makes call n of the mirror fail while the script is played. Returns true if there were fewer calls. */
static bool fail_call(int64_t n, int number)
{
    fixture f = { 0 };
    unsigned failed = 0;
    size_t all;

    set_up(&f);
    mem_disk_forget_calls(f.memory);
    mem_disk_fail_at(f.memory, n, number);
    for (size_t i = 0; i < GROUPS; i++) failed += play(&f, i) != PD_OK;
    assert_true(failed <= 1);
    mem_disk_calls(f.memory, &all);
    mem_disk_fail_at(f.memory, -1, 0);
    assert_int_equal(f.course.refused, 0);
    assert_int_equal(pass(&f), PD_OK);
    assert_follows(&f);
    tear_down(&f);
    return (int64_t)all <= n;
}

TEST(a_call_of_the_mirror_that_fails_is_made_good_by_the_next_pass, fixture *f)
{
    const int numbers[] = { EIO, ENOSPC };

    (void)f;
    for (int k = 0; k < 2; k++) {
        int64_t n = 0;
        while (!fail_call(n, numbers[k])) assert_true(++n < MOST_CALLS);
        assert_true(n > 200);
    }
}

TEST(a_full_mirror_keeps_the_older_state_until_there_is_room, fixture *f)
{
    assert_int_equal(play(f, 0), PD_OK);
    assert_int_equal(play(f, 1), PD_OK);
    mem_disk_limit(f->memory, 100000);
    for (size_t i = 2; i < GROUPS; i++) (void)play(f, i);
    assert_int_equal(pass(f), PD_RESOURCE_EXHAUSTED);
    assert_true(mirrored(f).step >= 3);
    mem_disk_limit(f->memory, UINT64_MAX);
    assert_int_equal(pass(f), PD_OK);
    assert_follows(f);
}

static int refuse_rename(void *arg, const char *from, const char *to)
{
    (void)arg, (void)from, (void)to;
    return EPERM;
}

static int refuse_reopen(void *arg, const char *path, uint64_t bytes, int *file)
{
    (void)arg, (void)path, (void)bytes, (void)file;
    return EPERM;
}

static int refuse_sync(void *arg, const char *path)
{
    (void)arg, (void)path;
    return EINVAL;
}

TEST(without_renaming_and_appending_a_mirror_has_whole_files_and_segments, fixture *f)
{
    pd_disk_pass plain;
    found there;

    pd_disk_pass_init(&plain, &f->disk);
    plain.functions.rename = refuse_rename;
    plain.functions.reopen = refuse_reopen;
    plain.functions.sync_dir = refuse_sync;
    pd_mirror_writer_free(f->writer);
    assert_int_equal(
        pd_mirror_writer_new(&f->writer, &f->course.disk, LOG_ROOT, &plain.functions, MIRROR, &f->user, NULL), PD_OK);
    for (size_t i = 0; i < GROUPS; i++) {
        assert_int_equal(play(f, i), PD_OK);
        there = mirrored(f);
        assert_int_equal(there.step, f->course.base);
        assert_true(there.last <= f->course.step);
    }
    course_steps(&f->course, 10); /* segments of at least two records: some are whole */
    assert_int_equal(pass(f), PD_OK);
    assert_true(mirrored(f).last >= f->course.base + 2);
    pd_mirror_writer_free(f->writer);
    f->writer = NULL;
}

/* Returns the end of the file of a segment in the state directory. */
static uint8_t *end_of_segment(fixture *f, uint64_t number)
{
    char path[PD_KEEP_PATH], name[PD_KEEP_NAME];
    size_t bytes;
    uint8_t *at;

    pd_keep_segment_name(name, PD_SEGMENT_WHOLE, number, 0);
    pd_keep_join(path, LOG_JOB_DIR "/log", name);
    at = mem_disk_file(f->course.memory, path, &bytes);
    assert_non_null(at);
    return at + bytes;
}

TEST(a_record_that_is_not_whole_yet_is_copied_by_a_later_pass, fixture *f)
{
    uint8_t *end;

    course_steps(&f->course, 1);
    checkpoint(f, 1, 2);
    course_steps(&f->course, 2);
    end = end_of_segment(f, 2);   /* the checkpoint has begun it */
    while (*--end == 0) continue; /* the link of the last record, before the zeros at its end */
    *end ^= 1;
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(mirrored(f).last, 2);
    assert_int_equal(f->told, 2);
    *end ^= 1;
    assert_int_equal(pass(f), PD_OK);
    assert_follows(f);
}

TEST(steps_that_a_job_takes_back_are_withdrawn_in_the_mirror, fixture *f)
{
    size_t n;
    bool aside;

    for (size_t i = 0; i < 5; i++) assert_int_equal(play(f, i), PD_OK);
    course_stop(&f->course);
    assert_int_equal(pd_checkpoint_restore(&f->course.disk, LOG_ROOT, LOG_JOB, 0, 3, &n, &aside, NULL), PD_OK);
    assert_true(n == 1 && aside);
    begin_life(f);
    f->course.step = f->course.base = f->course.durable = 3;
    f->course.life++;
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(f->n_remarks, 1); /* it may be by mistake: nothing is withdrawn yet */
    assert_non_null(strstr(f->remark.text, "paramctl mirror fetch"));
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(f->n_remarks, 1);
    f->course.logs = NULL;
    course_return(&f->course);
    f->course.life_of[4] = f->course.life;
    course_steps(&f->course, 1);
    checkpoint(f, 4, 2);
    course_steps(&f->course, 3);
    assert_int_equal(pass(f), PD_OK);
    assert_false(mem_disk_has(f->memory, STEP_DIR(7)));
    assert_follows(f);
}

/* Writes the checkpoint of step 3 once more, as a job that has gone back does. */
static void replace_checkpoint(const fixture *f, unsigned later_ms)
{
    pd_checkpoint_about later = sample_about;
    pd_checkpoint_image *image = sample_checkpoint(3, 2);

    later.written_ms += later_ms;
    assert_int_equal(pd_checkpoint_write(&f->course.disk, LOG_ROOT, image, &later, NULL), PD_OK);
    pd_checkpoint_image_free(image);
}

/* Replaces a checkpoint twice. Makes call n of the mirror fail while it copies the first one, and cuts the power before
 * call `more` after the failed pass. The mirror must have one of the checkpoints at each moment, and the last one after
 * a pass. Returns true if there were fewer calls. */
static bool fail_and_cut_power(int64_t n, int64_t more, mem_disk_crash_kind kind, uint64_t seed)
{
    fixture f = { 0 };
    size_t all;

    set_up(&f);
    assert_int_equal(play(&f, 0), PD_OK);
    assert_int_equal(play(&f, 1), PD_OK);
    replace_checkpoint(&f, 1);
    mem_disk_forget_calls(f.memory);
    mem_disk_fail_at(f.memory, n, EIO);
    (void)pass(&f);
    mem_disk_calls(f.memory, &all);
    replace_checkpoint(&f, 2);
    mem_disk_forget_calls(f.memory);
    mem_disk_power_off_at(f.memory, more);
    (void)pass(&f);
    mem_disk_crash(f.memory, kind, seed);
    assert_int_equal(mirrored(&f).step, 3);
    begin_life(&f);
    assert_int_equal(pass(&f), PD_OK);
    assert_follows(&f);
    tear_down(&f);
    return (int64_t)all <= n;
}

TEST(a_power_cut_after_a_call_that_fails_leaves_one_of_the_checkpoints_of_a_step, fixture *f)
{
    int64_t n = 0;

    (void)f;
    while (!fail_and_cut_power(n, 0, MEM_DISK_LOSE, 0)) {
        for (int64_t more = n % 5; more < 40; more += 5)
            fail_and_cut_power(n, more, MEM_DISK_TEAR, (uint64_t)(more + 1));
        assert_true(++n < MOST_CALLS);
    }
    assert_true(n > 20);
}

TEST(a_newer_checkpoint_of_the_same_step_replaces_the_one_of_the_mirror, fixture *f)
{
    pd_manifest manifest;

    assert_int_equal(play(f, 0), PD_OK);
    assert_int_equal(play(f, 1), PD_OK);
    replace_checkpoint(f, 1);
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(pd_checkpoint_check(&f->disk, STEP_DIR(3), &manifest, NULL), PD_OK);
    assert_int_equal(manifest.about.written_ms, sample_about.written_ms + 1);
    assert_false(mem_disk_has(f->memory, STEP_DIR(3) ".old"));
}

TEST(a_checkpoint_that_is_damaged_in_the_state_directory_is_left_out_with_a_remark, fixture *f)
{
    size_t bytes;

    assert_int_equal(play(f, 0), PD_OK);
    assert_int_equal(play(f, 1), PD_OK);
    checkpoint(f, 5, 2);
    mem_disk_file(f->course.memory, LOG_JOB_DIR "/step-00000000000000000005/state.bin", &bytes)[9] ^= 1;
    for (int i = 0; i < 3; i++) assert_int_equal(pass(f), PD_OK);
    assert_int_equal(f->n_remarks, 1);
    assert_non_null(strstr(f->remark.text, "state.bin"));
    assert_int_equal(mirrored(f).step, 3);
}

TEST(the_mark_that_a_job_has_ended_is_mirrored, fixture *f)
{
    pd_checkpoint_image *end = sample_checkpoint(3, 2);
    size_t n;

    assert_int_equal(play(f, 0), PD_OK);
    assert_int_equal(play(f, 1), PD_OK);
    assert_int_equal(pd_mirror_count(&f->disk, MIRROR, &n, NULL), PD_OK);
    assert_int_equal(n, 1);
    end->ended = true;
    assert_int_equal(pd_checkpoint_put(&f->course.disk, LOG_ROOT, end, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(end);
    assert_int_equal(pass(f), PD_OK);
    assert_true(mem_disk_has(f->memory, MIRROR_JOB "/ended"));
    assert_int_equal(pd_mirror_count(&f->disk, MIRROR, &n, NULL), PD_OK);
    assert_int_equal(n, 0);
}

TEST(a_job_that_only_the_mirror_has_stays_there, fixture *f)
{
    assert_int_equal(play(f, 0), PD_OK);
    assert_int_equal(play(f, 1), PD_OK);
    course_stop(&f->course);
    mem_disk_free(f->course.memory);
    course_new(&f->course); /* the machine has another, empty disk */
    f->course.life_of[4] = f->course.life_of[5] = 1;
    begin_life(f);
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(mirrored(f).last, 5);
}

/* Decisions of a later checkpoint would be of no use to an earlier one. */
TEST(decisions_never_overtake_their_checkpoint, fixture *f)
{
    pd_wal_about about;
    const pd_wal_source from = { &f->disk, MIRROR_JOB, LOG_CREATOR, PD_WAL_DECISIONS, 0 };

    f->course.control = true;
    for (size_t i = 0; i < 2; i++) assert_int_equal(play(f, i), PD_OK);
    assert_int_equal(pd_wal_survey(&from, &about, NULL), PD_OK);
    assert_int_equal(about.last, 5);
    checkpoint(f, 5, 2);
    course_steps(&f->course, 3);
    mem_disk_limit(f->memory, 30000); /* no room for the checkpoint */
    assert_int_equal(pass(f), PD_RESOURCE_EXHAUSTED);
    assert_int_equal(pd_wal_survey(&from, &about, NULL), PD_OK);
    assert_int_equal(about.last, 5);
    mem_disk_limit(f->memory, UINT64_MAX);
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(pd_wal_survey(&from, &about, NULL), PD_OK);
    assert_int_equal(about.last, 8);
}

/* ---- jobs on several servers ---- */

/* Writes the checkpoint of a job that is on several servers, if `together`. */
static void shared_checkpoint(const fixture *f, uint64_t step, bool together)
{
    pd_checkpoint_image *image = sample_checkpoint(step, 8);

    image->has_common = together;
    assert_int_equal(pd_checkpoint_write(&f->course.disk, LOG_ROOT, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
}

TEST(of_a_job_on_one_server_the_newest_checkpoint_is_copied_first, fixture *f)
{
    for (uint64_t step = 2; step <= 6; step += 2) shared_checkpoint(f, step, false);
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(f->n_told, 1);
    assert_int_equal(f->told, 6);
    assert_true(mem_disk_has(f->memory, STEP_DIR(2)));
}

TEST(of_a_job_on_several_servers_the_oldest_checkpoint_is_copied_first, fixture *f)
{
    for (uint64_t step = 2; step <= 6; step += 2) shared_checkpoint(f, step, true);
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(f->n_told, 3);
    for (size_t i = 0; i < f->n_told; i++) assert_int_equal(f->all[i], 2 * (i + 1));
    shared_checkpoint(f, 7, true);
    shared_checkpoint(f, 8, true);
    begin_life(f);
    f->n_told = 0;
    assert_int_equal(pass(f), PD_OK); /* begins with the newest one that the mirror has */
    assert_int_equal(f->n_told, 3);
    for (size_t i = 0; i < f->n_told; i++) assert_int_equal(f->all[i], 6 + i);
}

/* Cuts the power of the mirror before its call n, while it copies four checkpoints. It must have all up to the one that
 * was told. Returns true if there were fewer calls. */
static bool cut_shared(int64_t n)
{
    static const char *const dirs[] = { STEP_DIR(1), STEP_DIR(2), STEP_DIR(3), STEP_DIR(4) };
    fixture f = { 0 };
    pd_manifest manifest;
    bool whole;

    set_up(&f);
    for (uint64_t step = 1; step <= 4; step++) shared_checkpoint(&f, step, true);
    mem_disk_power_off_at(f.memory, n);
    whole = pass(&f) == PD_OK;
    mem_disk_crash(f.memory, MEM_DISK_LOSE, 0);
    assert_true(f.told <= 4);
    for (size_t i = 0; i < f.told; i++) assert_int_equal(pd_checkpoint_check(&f.disk, dirs[i], &manifest, NULL), PD_OK);
    tear_down(&f);
    return whole;
}

TEST(a_mirror_has_all_checkpoints_of_several_servers_up_to_the_told_one, fixture *f)
{
    int64_t n = 0;

    (void)f;
    while (!cut_shared(n)) assert_true(++n < MOST_CALLS);
    assert_true(n > 20);
}

#define VANISHES LOG_JOB_DIR "/step-00000000000000000002"

/* The state directory's disk, on which the checkpoint of step 2 vanishes when the mirror begins to copy it: it has
 * looked at its files' sizes before. */
typedef struct vanishing {
    pd_disk_pass base; /* must be the first member */
    unsigned opened;   /* how often its weights were opened */
} vanishing;

static int open_vanishing(void *arg, const char *path, int *file)
{
    vanishing *v = arg;

    if (strcmp(path, VANISHES "/weights.safetensors") == 0 && v->opened++ == 1)
        (void)pd_keep_remove_dir(v->base.below, VANISHES, NULL);
    return v->base.below->open(v->base.below->arg, path, file);
}

/* The state directory removes a checkpoint when it has more than it keeps, also while the mirror copies it. */
TEST(a_mirror_goes_on_with_the_newest_checkpoint_where_an_older_one_vanishes, fixture *f)
{
    vanishing source = { .opened = 0 };
    size_t n;

    pd_disk_pass_init(&source.base, &f->course.disk);
    source.base.functions.open = open_vanishing;
    for (uint64_t step = 2; step <= 6; step += 2) shared_checkpoint(f, step, true);
    pd_mirror_writer_free(f->writer);
    assert_int_equal(
        pd_mirror_writer_new(&f->writer, &source.base.functions, LOG_ROOT, &f->disk, MIRROR, &f->user, NULL), PD_OK);
    assert_int_equal(pd_mirror_begin(f->writer, &n, NULL), PD_OK);
    assert_int_equal(pass(f), PD_OK);
    assert_int_equal(source.opened, 2);
    assert_int_equal(f->n_told, 1);
    assert_int_equal(f->told, 6);
    assert_true(mem_disk_has(f->memory, STEP_DIR(4)));
    assert_false(mem_disk_has(f->memory, STEP_DIR(2)));
}

/* ---- whatever happens ---- */

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* Reads a stream of decisions, and compares its records with what was written. */
static pd_wal_about decisions(fixture *f, const pd_disk *disk, const char *job_dir)
{
    const pd_wal_source from = { disk, job_dir, LOG_CREATOR, PD_WAL_DECISIONS, 0 };
    pd_wal_about about;

    assert_int_equal(pd_wal_read(&from, check_record, &f->course, &about, NULL), PD_OK);
    if (about.damage.code != PD_OK) fail_msg("%s: %s", job_dir, about.damage.text);
    return about;
}

static void assert_same(fixture *f)
{
    pd_wal_about source, target;

    if (!f->course.control) {
        assert_follows(f);
        return;
    }
    source = decisions(f, &f->course.disk, LOG_JOB_DIR);
    target = decisions(f, &f->disk, MIRROR_JOB);
    assert_int_equal(target.last, source.last);
    assert_int_equal(target.entries, source.entries);
    assert_int_equal(mirrored(f).step, look(&f->course.disk, LOG_JOB_DIR, &f->course).step);
}

/* Lets something happen to the daemon or to the mirror. */
static void happen(fixture *f, uint64_t *random)
{
    log_course *c = &f->course;
    uint64_t what = next_random(random) % 12, chance = next_random(random);

    if (what < 5 && c->step + 4 < LOG_MOST_STEPS) course_steps(c, 1 + chance % 4);
    if (what == 5 && c->step > c->base) checkpoint(f, c->base + 1 + chance % (c->step - c->base), 2);
    if (what == 6) mem_disk_fail_at(f->memory, (int64_t)(chance % 60), chance % 2 == 0 ? EIO : ENOSPC);
    if (what == 7) {
        mem_disk_crash(f->memory, (mem_disk_crash_kind)(chance % 3), chance);
        if (!c->control) assert_true(mirrored(f).last >= f->told);
        begin_life(f);
    }
    if (what == 8) {
        course_stop(c);
        if (chance % 2 == 0) mem_disk_crash(c->memory, (mem_disk_crash_kind)(chance % 3), chance);
        course_return(c);
        begin_life(f);
    }
    if (what > 8 && pass(f) == PD_OK && c->base > 0) {
        mem_disk_fail_at(f->memory, -1, 0);
        assert_same(f);
    }
}

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { COURSES = 40 }; /* sanitizers are slow */
#else
enum { COURSES = 300 };
#endif

TEST(a_mirror_follows_whatever_happens, fixture *unused)
{
    (void)unused;
    for (uint64_t seed = 1; seed <= COURSES; seed++) {
        fixture f = { 0 };
        uint64_t random = seed;
        set_up(&f);
        f.course.control = seed % 2 == 0;
        for (int i = 0; i < 60; i++) happen(&f, &random);
        mem_disk_fail_at(f.memory, -1, 0);
        (void)pass(&f); /* continues with segments that an error has left in part */
        assert_int_equal(pass(&f), PD_OK);
        if (f.course.base > 0) assert_same(&f);
        assert_int_equal(f.n_remarks, 0);
        tear_down(&f);
    }
}
