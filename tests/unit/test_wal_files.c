/* Tests logs of jobs on a disk: what is written comes back, in order, and after a restart, and nothing else does. */
#define _GNU_SOURCE /* mkdtemp */
#include <errno.h>
#include <xxhash.h>

#include "test.h"
#include "wal_sample.h"

static void set_up(log_course *c)
{
    course_new(c);
}

static void count_name(void *what, const char *name)
{
    (void)name;
    ++*(size_t *)what;
}

static size_t files_of(const log_course *c)
{
    size_t n = 0;

    assert_int_equal(c->disk.list(c->disk.arg, LOG_JOB_DIR "/log", count_name, &n), 0);
    return n;
}

/* Counts the calls of a function of the disk since the record was emptied. */
static size_t calls_of(const log_course *c, const char *what)
{
    size_t n, found = 0;
    const mem_disk_call *calls = mem_disk_calls(c->memory, &n);

    for (size_t i = 0; i < n; i++) found += strcmp(calls[i].what, what) == 0;
    return found;
}

static void restart(log_course *c, mem_disk_crash_kind kind)
{
    course_stop(c);
    mem_disk_crash(c->memory, kind, 1);
    course_return(c);
}

FIXTURE(log_course, set_up, course_free);

TEST(a_job_without_a_log_has_no_entries, log_course *c)
{
    pd_wal_about about;

    assert_int_equal(
        pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 7 }, NULL, NULL, &about, NULL),
        PD_OK);
    assert_int_equal(about.entries, 0);
    assert_int_equal(about.last, 7);
    assert_int_equal(about.damage.code, PD_OK);
    assert_int_equal(pd_wal_truncate(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 7 }, 7, NULL),
                     PD_OK);
}

TEST(entries_survive_a_power_cut_and_go_on_after_it, log_course *c)
{
    for (int life = 0; life < 4; life++) {
        course_steps(c, 1);
        course_steps(c, 3);
        restart(c, MEM_DISK_LOSE);
        assert_int_equal(c->step, 4 * life + 4);
    }
    assert_int_equal(c->refused, 0);
}

TEST(entries_that_wait_cost_one_sync, log_course *c)
{
    course_steps(c, 1);
    mem_disk_forget_calls(c->memory);
    course_steps(c, 2);
    assert_int_equal(calls_of(c, "sync_data"), 1);
    assert_int_equal(calls_of(c, "write_at"), 1);
    assert_int_equal(calls_of(c, "sync_dir"), 0);
}

TEST(segments_are_written_anew_after_a_checkpoint, log_course *c)
{
    size_t most = 0;

    for (int i = 0; i < 40; i++) {
        course_steps(c, 4);
        if (c->step % 20 == 0) course_checkpoint(c, c->step - 8);
        if (c->step == 80) most = files_of(c);
        if (c->step == 80) mem_disk_forget_calls(c->memory);
    }
    assert_true(most >= 3);
    assert_true(files_of(c) <= most + 1);
    assert_int_equal(calls_of(c, "create"), 0);
    assert_true(calls_of(c, "reopen") > 5);
    restart(c, MEM_DISK_LOSE);
    assert_int_equal(c->step, 160);
    assert_int_equal(c->refused, 0);
}

TEST(a_chain_begins_after_a_checkpoint_of_the_last_step, log_course *c)
{
    course_steps(c, 5);
    course_checkpoint(c, 5);
    course_steps(c, 2);
    restart(c, MEM_DISK_LOSE);
    assert_int_equal(c->step, 7);
}

TEST(an_entry_that_leaves_a_step_out_is_refused, log_course *c)
{
    course_steps(c, 2);
    c->step++;
    c->life_of[3] = 1;
    course_steps(c, 2);
    assert_int_equal(c->refused, 2);
    assert_int_equal(c->error.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(c->error.text, "missing record 4"));
    assert_int_equal(c->durable, 2);
    course_checkpoint(c, 5);
    course_steps(c, 1);
    assert_int_equal(c->durable, 6);
    restart(c, MEM_DISK_LOSE);
    assert_int_equal(c->step, 6);
}

TEST(entries_of_another_past_are_never_read, log_course *c)
{
    pd_wal_about about;

    course_steps(c, 8);
    course_stop(c);
    c->step = 0;
    assert_int_equal(pd_wal_truncate(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, 3, NULL),
                     PD_OK);
    c->durable = 3;
    course_return(c);
    assert_int_equal(c->step, 3);
    course_steps(c, 2);
    restart(c, MEM_DISK_LOSE);
    assert_int_equal(c->step, 5);
    /* the checkpoint of step 6 was made another time, so the old entry of step 7 is none of this job's */
    assert_int_equal(
        pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 6 }, NULL, NULL, &about, NULL),
        PD_OK);
    assert_int_equal(about.entries, 0);
}

TEST(entries_of_another_job_are_never_read, log_course *c)
{
    pd_wal_about about;

    course_steps(c, 3);
    assert_int_equal(pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR + 1, PD_WAL_STEPS, 0 }, NULL,
                                 NULL, &about, NULL),
                     PD_OK);
    assert_int_equal(about.entries, 0);
}

TEST(a_log_that_follows_a_later_checkpoint_is_reported, log_course *c)
{
    pd_wal_about about;

    for (int i = 0; i < 10; i++) course_steps(c, 4);
    course_checkpoint(c, 38);
    course_steps(c, 4);
    for (int i = 0; i < 10; i++) course_steps(c, 4);
    assert_int_equal(
        pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 10 }, NULL, NULL, &about, NULL),
        PD_OK);
    assert_int_equal(about.entries, 0);
    assert_int_equal(about.damage.code, PD_DATA_LOSS);
    assert_non_null(strstr(about.damage.text, "steps 11 to "));
}

TEST(an_entry_larger_than_a_segment_gets_a_larger_one, log_course *c)
{
    pd_wal_record *e = sample_large_entry(1, 0, 3 * LOG_SEGMENT_BYTES / sizeof(float));
    pd_wal_about about;

    pd_wal_write(c->logs, &e, 1);
    assert_int_equal(e->error.code, PD_OK);
    assert_int_equal(
        pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, NULL, NULL, &about, NULL),
        PD_OK);
    assert_int_equal(about.entries, 1);
    assert_int_equal(about.bytes, e->bytes);
    assert_int_equal(about.files, 1);
    pd_wal_record_free(e);
}

TEST(two_jobs_have_logs_of_their_own, log_course *c)
{
    pd_wal_record *e[4];
    pd_wal_about about;
    char dir[PD_KEEP_PATH], name[PD_KEEP_NAME];

    pd_keep_job_name(name, "other", 5);
    pd_keep_join(dir, LOG_ROOT, name);
    assert_int_equal(c->disk.make_dir(c->disk.arg, dir), 0);
    for (int i = 0; i < 4; i++) e[i] = sample_logged((uint64_t)i / 2 + 1, 0, 1);
    for (int i = 1; i < 4; i += 2) {
        free(e[i]->job);
        e[i]->job = strdup("other");
        e[i]->creator = 5;
    }
    pd_wal_write(c->logs, e, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(e[i]->error.code, PD_OK);
        pd_wal_record_free(e[i]);
    }
    assert_int_equal(pd_wal_read(&(pd_wal_source){ &c->disk, dir, 5, PD_WAL_STEPS, 0 }, NULL, NULL, &about, NULL),
                     PD_OK);
    assert_int_equal(about.entries, 2);
    assert_int_equal(
        pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, NULL, NULL, &about, NULL),
        PD_OK);
    assert_int_equal(about.entries, 2);
}

TEST(the_log_of_a_job_that_has_ended_is_removed, log_course *c)
{
    pd_wal_record *e = sample_logged(1, 0, 1);
    char dir[PD_KEEP_PATH], name[PD_KEEP_NAME];
    int file;

    course_steps(c, 2);
    assert_int_equal(c->disk.create(c->disk.arg, LOG_JOB_DIR "/ended", 0, &file), 0);
    assert_int_equal(c->disk.close(c->disk.arg, file), 0);
    e->creator = 5;
    pd_keep_job_name(name, e->job, 5);
    pd_keep_join(dir, LOG_ROOT, name);
    assert_int_equal(c->disk.make_dir(c->disk.arg, dir), 0);
    pd_wal_write(c->logs, &e, 1);
    assert_int_equal(e->error.code, PD_OK);
    assert_false(mem_disk_has(c->memory, LOG_JOB_DIR "/log"));
    pd_wal_record_free(e);
}

TEST(a_log_can_be_set_aside, log_course *c)
{
    bool was_there;

    for (int i = 0; i < 3; i++) {
        course_steps(c, 2);
        course_stop(c);
        assert_int_equal(pd_wal_set_aside(&c->disk, LOG_JOB_DIR, &was_there, NULL), PD_OK);
        assert_true(was_there);
        c->durable = 0;
        course_return(c);
        assert_int_equal(c->step, 0);
    }
    course_stop(c);
    assert_int_equal(pd_wal_set_aside(&c->disk, LOG_JOB_DIR, &was_there, NULL), PD_OK);
    assert_false(was_there);
    assert_true(mem_disk_has(c->memory, LOG_JOB_DIR "/log-aside.3"));
}

/* The first attempt may have renamed a directory whose name the disk does not have. */
TEST(a_log_is_set_aside_by_the_attempt_after_one_that_has_failed)
{
    unsigned failed = 0;
    bool was_there;

    for (int64_t n = 0; n < 8; n++) {
        log_course c;

        course_new(&c);
        course_steps(&c, 2);
        course_stop(&c);
        mem_disk_fail_at(c.memory, n, EIO);
        failed += pd_wal_set_aside(&c.disk, LOG_JOB_DIR, &was_there, NULL) != PD_OK;
        mem_disk_fail_at(c.memory, -1, 0);
        assert_int_equal(pd_wal_set_aside(&c.disk, LOG_JOB_DIR, &was_there, NULL), PD_OK);
        mem_disk_crash(c.memory, MEM_DISK_LOSE, 0);
        c.durable = 0;
        course_return(&c);
        assert_int_equal(c.step, 0);
        course_free(&c);
    }
    assert_true(failed > 1);
}

/* Lets the writer drop the streams of the job, which goes back to step 0. */
static void drop_streams(log_course *c, pd_wal_act act)
{
    pd_wal_record *order = sample_logged(0, 0, 1);

    order->act = act;
    pd_wal_write(c->logs, &order, 1);
    assert_int_equal(order->error.code, PD_OK);
    pd_wal_record_free(order);
    c->durable = c->step = c->base = 0;
}

/* After that a restart finds no record, and records of the new steps are found whatever lies there. */
TEST(a_log_can_be_dropped_while_it_is_written, log_course *c)
{
    for (int i = 0; i < 6; i++) {
        course_steps(c, 3 + (unsigned)i);
        drop_streams(c, i % 3 == 1 ? PD_WAL_SET_ASIDE : PD_WAL_DROP);
        if (i % 2 == 0) {
            course_stop(c);
            mem_disk_crash(c->memory, MEM_DISK_LOSE, 0);
            course_return(c);
            assert_int_equal(c->step, 0);
        }
        course_steps(c, 2);
        course_stop(c);
        course_return(c);
        assert_int_equal(c->step, 2);
        drop_streams(c, PD_WAL_DROP);
    }
}

/* Counts records, and checks that their steps follow each other. */
static void count_list(pd_wal_record *list, uint64_t after, uint64_t until)
{
    for (pd_wal_record *record; (record = pd_wal_record_take(&list)) != NULL; pd_wal_record_free(record))
        assert_int_equal(record->step, ++after);
    assert_int_equal(after, until);
}

/* A job goes back to a step of its log: the records up to it stay, also those before its checkpoint, and those of the
 * new steps follow them. */
TEST(the_end_of_a_log_can_be_dropped_while_it_is_written, log_course *c)
{
    pd_wal_source from = { &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 };
    pd_wal_record *order, *list;

    for (int i = 0; i < 4; i++) course_steps(c, 3);
    order = sample_logged(7, 5, 1);
    order->act = PD_WAL_DROP;
    pd_wal_write(c->logs, &order, 1);
    assert_int_equal(order->error.code, PD_OK);
    pd_wal_record_free(order);
    assert_int_equal(pd_wal_oldest(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 7), 0);
    assert_int_equal(pd_wal_oldest(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 8), 8);
    assert_int_equal(pd_wal_read_some(&from, 6, &list, NULL), PD_OK);
    count_list(list, 0, 6);
    from.base = 6;
    assert_int_equal(pd_wal_read_some(&from, 12, &list, NULL), PD_OK);
    count_list(list, 6, 7);
    c->durable = c->step = 7;
    c->life++;
    course_steps(c, 2);
    course_stop(c);
    course_return(c);
    assert_int_equal(c->step, 9);
    assert_int_equal(pd_wal_oldest(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 9), 0);
}

/* A restart keeps the records before the checkpoint, for shards that go back further. */
TEST(a_restart_keeps_the_records_before_its_checkpoint, log_course *c)
{
    pd_wal_source from = { &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 6 };

    course_steps(c, 9);
    course_stop(c);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pd_wal_oldest(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 6), 0);
        assert_int_equal(pd_wal_truncate(&from, i == 0 ? 9 : 6, NULL), PD_OK);
        mem_disk_crash(c->memory, MEM_DISK_LOSE, 0);
    }
    assert_int_equal(pd_wal_oldest(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 7), 7);
    c->durable = c->step = 6;
    course_return(c);
    assert_int_equal(c->step, 6);
}

/* The stream of a shard has ended at step 6, and checkpoints follow: a restart keeps the records for other shards. */
TEST(a_restart_keeps_the_records_that_a_stream_has_left, log_course *c)
{
    pd_wal_source from = { &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 9 };
    uint64_t oldest = 77;

    course_steps(c, 6);
    course_stop(c);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pd_wal_oldest(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 9), 9);
        assert_int_equal(pd_wal_ended(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 9, &oldest), 6);
        assert_int_equal(oldest, 0);
        assert_int_equal(pd_wal_truncate(&from, 9, NULL), PD_OK);
        mem_disk_crash(c->memory, MEM_DISK_LOSE, 0);
    }
    assert_int_equal(pd_wal_ended(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 6, &oldest), 0);
    course_return(c);
    assert_int_equal(c->step, 6);
}

/* The job has gone back behind the records, or has begun a chain after them: they are none of its past. */
TEST(records_from_a_step_on_are_no_stream_that_has_ended_before_it, log_course *c)
{
    uint64_t oldest;

    course_steps(c, 6);
    assert_int_equal(pd_wal_ended(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 4, &oldest), 0);
    course_checkpoint(c, 6);
    c->base = c->step = 9;
    course_steps(c, 1);
    assert_int_equal(pd_wal_ended(&c->disk, LOG_JOB_DIR, LOG_CREATOR, 9, &oldest), 0);
    c->life_of[9] = c->life;
}

/* Drops the records after step 3, while call number n of the disk fails. Returns whether the order succeeds. */
static bool drop_while_failing(log_course *c, int64_t n)
{
    pd_wal_record *order = sample_logged(3, 0, 1);
    bool good;

    order->act = PD_WAL_DROP;
    mem_disk_fail_at(c->memory, n, EIO);
    pd_wal_write(c->logs, &order, 1);
    mem_disk_fail_at(c->memory, -1, 0);
    good = order->error.code == PD_OK;
    pd_wal_record_free(order);
    return good;
}

/* The disk has lost data of a file whose sync has failed, and may lose what is written to it later. */
TEST(a_file_whose_sync_has_failed_while_records_were_dropped_is_not_written_again)
{
    unsigned failed = 0;

    for (int64_t n = 0; n < 30; n++) {
        log_course c;

        course_new(&c);
        course_steps(&c, 3);
        failed += !drop_while_failing(&c, n);
        course_checkpoint(&c, 3);
        course_steps(&c, 2);
        restart(&c, MEM_DISK_LOSE);
        assert_int_equal(c.step, 5);
        course_free(&c);
    }
    assert_true(failed > 2);
}

TEST(other_jobs_keep_their_logs_when_one_is_dropped, log_course *c)
{
    char name[PD_KEEP_NAME], dir[PD_KEEP_PATH];
    pd_wal_record *e = sample_logged(1, 0, 1);

    course_steps(c, 3);
    e->creator = 5;
    pd_keep_job_name(name, e->job, 5);
    pd_keep_join(dir, LOG_ROOT, name);
    assert_int_equal(c->disk.make_dir(c->disk.arg, dir), 0);
    pd_wal_write(c->logs, &e, 1);
    e->act = PD_WAL_DROP;
    pd_wal_write(c->logs, &e, 1);
    assert_int_equal(e->error.code, PD_OK);
    pd_wal_record_free(e);
    course_stop(c);
    course_return(c);
    assert_int_equal(c->step, 3);
}

TEST(a_newer_format_is_refused_and_left_alone, log_course *c)
{
    static const char path[] = LOG_JOB_DIR "/log/segment-00000000000000000001";
    pd_wal_about about;
    pd_error err;
    uint64_t hash;
    uint32_t name;
    size_t bytes;
    uint8_t *file;

    course_steps(c, 1);
    file = mem_disk_file(c->memory, path, &bytes);
    file[16] = 9; /* the version */
    name = (uint32_t)file[20];
    hash = XXH3_64bits(file, 72 + name);
    memcpy(file + 72 + name, &hash, sizeof hash);
    assert_int_equal(
        pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, 0 }, NULL, NULL, &about, &err),
        PD_UNIMPLEMENTED);
    assert_non_null(strstr(err.text, "format 9"));
    assert_true(mem_disk_has(c->memory, path));
}

/* Writes entries to the real disk, and reads them again. */
TEST(the_real_disk_brings_entries_back)
{
    char root[] = "/tmp/paramd-log-XXXXXX", dir[PD_KEEP_PATH], name[PD_KEEP_NAME];
    pd_wal_record *e[3];
    pd_wal_about about;
    pd_wal_writer *logs;
    pd_error err;

    assert_non_null(mkdtemp(root));
    pd_keep_job_name(name, LOG_JOB, LOG_CREATOR);
    pd_keep_join(dir, root, name);
    assert_int_equal(pd_disk_posix.make_dir(NULL, dir), 0);
    for (uint64_t round = 0; round < 6; round++) {
        assert_int_equal(pd_wal_writer_new(&logs, &pd_disk_posix, root, 4u << 20, NULL), PD_OK);
        for (uint64_t i = 0; i < 3; i++)
            e[i] = sample_large_entry(3 * round + i + 1, 3 * round > 4 ? 3 * round - 4 : 0, 300000 + (size_t)i);
        pd_wal_write(logs, e, 3);
        for (int i = 0; i < 3; i++) {
            if (e[i]->error.code != PD_OK) fail_msg("%s", e[i]->error.text);
            pd_wal_record_free(e[i]);
        }
        pd_wal_writer_free(logs);
        if (pd_wal_read(&(pd_wal_source){ &pd_disk_posix, dir, LOG_CREATOR, PD_WAL_STEPS, 3 * round }, NULL, NULL,
                        &about, &err) != PD_OK)
            fail_msg("%s", err.text);
        assert_int_equal(about.damage.code, PD_OK);
        assert_int_equal(about.entries, 3);
        assert_int_equal(pd_wal_truncate(&(pd_wal_source){ &pd_disk_posix, dir, LOG_CREATOR, PD_WAL_STEPS, 3 * round },
                                         3 * round + 3, NULL),
                         PD_OK);
    }
    assert_int_equal(pd_wal_remove(&pd_disk_posix, dir, PD_WAL_STEPS, NULL), PD_OK);
    assert_int_equal(rmdir(dir), 0);
    assert_int_equal(rmdir(root), 0);
}
