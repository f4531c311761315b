/* Tests the disk that writes behind the caller's back: same bytes, and errors that come out in time. */
#include "test.h"
#include "checkpoint_sample.h"
#include "mem_disk.h"
#include "overlapped.h"

WITH_THREADS();

#define ROOT "/state"
#define JOB_DIR ROOT "/runs%2Fgpt%20%231-0123456789abcdef"

typedef struct fixture {
    mem_disk *memory;
    pd_disk below;
    pd_write_behind *behind;
    const pd_disk *disk;
} fixture;

static void set_up(fixture *f)
{
    f->memory = mem_disk_new();
    f->below = mem_disk_table(f->memory);
    assert_int_equal(f->below.make_dir(f->below.arg, ROOT), 0);
    assert_int_equal(pd_write_behind_start(&f->behind, &f->below, NULL), PD_OK);
    f->disk = pd_write_behind_disk(f->behind);
}

static void tear_down(fixture *f)
{
    pd_write_behind_stop(f->behind);
    mem_disk_free(f->memory);
}

static void ignore_damage(void *arg, const char *dir, const pd_error *why)
{
    (void)arg, (void)dir, (void)why;
}

FIXTURE(fixture, set_up, tear_down);

TEST(large_checkpoints_have_the_same_bytes, fixture *f)
{
    const size_t sizes[] = { 4, (4u << 20) - 4, 4u << 20, (13u << 20) + 4 };
    pd_manifest manifest;

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pd_checkpoint_image *kept = sample_large(i + 1, sizes[i], 64), *loaded;
        assert_int_equal(pd_checkpoint_write(f->disk, ROOT, kept, &sample_about, NULL), PD_OK);
        assert_int_equal(pd_checkpoint_newest(f->disk, JOB_DIR, &loaded, &manifest, ignore_damage, NULL, NULL), PD_OK);
        assert_checkpoints_same(kept, loaded);
        pd_checkpoint_image_free(kept);
        pd_checkpoint_image_free(loaded);
    }
}

TEST(a_write_that_fails_is_told_before_the_file_counts, fixture *f)
{
    pd_checkpoint_image *kept = sample_large(1, (17u << 20) + 4, 0);
    pd_error err;
    int failed = 0, rc;

    for (int64_t at = 0;; at++) {
        mem_disk_fail_at(f->memory, at, EIO);
        err.code = PD_OK;
        rc = pd_checkpoint_put(f->disk, ROOT, kept, &sample_about, &err);
        mem_disk_fail_at(f->memory, -1, 0);
        if (rc == PD_OK) break;
        assert_int_equal(err.code, PD_UNAVAILABLE);
        assert_non_null(strstr(err.text, strerror(EIO)));
        failed++;
        assert_true(at < 200);
    }
    assert_true(failed > 20);
    pd_checkpoint_image_free(kept);
}

TEST(an_error_does_not_reach_the_next_file, fixture *f)
{
    int file;

    assert_int_equal(f->disk->create(f->disk->arg, ROOT "/a", 0, &file), 0);
    mem_disk_fail_at(f->memory, 0, ENOSPC);
    assert_int_equal(f->disk->write(f->disk->arg, file, "abc", 3), 0);
    assert_int_equal(f->disk->sync_file(f->disk->arg, file), ENOSPC);
    assert_int_equal(f->disk->write(f->disk->arg, file, "def", 3), ENOSPC);
    assert_int_equal(f->disk->close(f->disk->arg, file), ENOSPC);
    assert_int_equal(f->disk->create(f->disk->arg, ROOT "/b", 0, &file), 0);
    assert_int_equal(f->disk->write(f->disk->arg, file, "abc", 3), 0);
    assert_int_equal(f->disk->sync_file(f->disk->arg, file), 0);
    assert_int_equal(f->disk->close(f->disk->arg, file), 0);
}
