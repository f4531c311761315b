/* Tests state directories on the real file system: who may open one, and checkpoints on a real and on a full disk. */
#define _GNU_SOURCE /* mkdtemp */
#include <sys/mount.h>
#include <sys/stat.h>

#include "test.h"
#include "state_dir.h"
#include "checkpoint_sample.h"

static char base[] = "/tmp/state-dir-XXXXXX", root[64];

static int set_up(void **state)
{
    (void)state;
    strcpy(base, "/tmp/state-dir-XXXXXX");
    assert_non_null(mkdtemp(base));
    snprintf(root, sizeof root, "%s/state", base);
    return 0;
}

static int tear_down(void **state)
{
    char command[64];
    (void)state;

    snprintf(command, sizeof command, "rm -r %s", base);
    return system(command);
}

EACH_TEST(set_up, tear_down);

TEST(a_new_directory_is_for_its_owner_alone)
{
    struct stat about;
    pd_state_dir dir;

    assert_int_equal(pd_state_dir_open(&dir, root, false, NULL), PD_NOT_FOUND);
    assert_int_equal(pd_state_dir_open(&dir, root, true, NULL), PD_OK);
    assert_int_equal(stat(root, &about), 0);
    assert_int_equal(about.st_mode & 07777, 0700);
    pd_state_dir_close(&dir);
}

TEST(a_directory_has_one_user_at_a_time)
{
    pd_state_dir dir, other;
    pd_error err;
    char pid[32];

    assert_int_equal(pd_state_dir_open(&dir, root, true, NULL), PD_OK);
    assert_int_equal(pd_state_dir_open(&other, root, true, &err), PD_UNAVAILABLE);
    snprintf(pid, sizeof pid, "(%ld)", (long)getpid());
    assert_non_null(strstr(err.text, pid));
    pd_state_dir_close(&dir);
    assert_int_equal(pd_state_dir_open(&other, root, true, NULL), PD_OK);
    pd_state_dir_close(&other);
}

TEST(a_directory_has_the_number_of_its_copy_that_it_was_given_last)
{
    const pd_disk *disk = &pd_disk_posix;
    pd_state_dir dir;
    uint64_t life = 1;

    assert_int_equal(pd_state_dir_open(&dir, root, true, NULL), PD_OK);
    assert_int_equal(pd_state_dir_life(disk, root, &life, NULL), PD_OK);
    assert_int_equal(life, 0);
    assert_int_equal(pd_state_dir_set_life(disk, root, UINT64_MAX, NULL), PD_OK);
    assert_int_equal(pd_state_dir_set_life(disk, root, 0x1234, NULL), PD_OK);
    assert_int_equal(pd_state_dir_life(disk, root, &life, NULL), PD_OK);
    assert_int_equal(life, 0x1234);
    pd_state_dir_close(&dir);
}

TEST(a_damaged_number_of_a_copy_is_refused)
{
    static const char *const damaged[] = { "", "123", "0000000000000000", "000000000000000g" };
    pd_state_dir dir;
    pd_error err;
    uint64_t life;
    char path[96];

    assert_int_equal(pd_state_dir_open(&dir, root, true, NULL), PD_OK);
    snprintf(path, sizeof path, "%s/life", root);
    for (size_t i = 0; i < sizeof damaged / sizeof *damaged; i++) {
        FILE *file = fopen(path, "w");
        assert_non_null(file);
        fputs(damaged[i], file);
        fclose(file);
        assert_int_equal(pd_state_dir_life(&pd_disk_posix, root, &life, &err), PD_DATA_LOSS);
        assert_non_null(strstr(err.text, "16 hexadecimal digits"));
    }
    pd_state_dir_close(&dir);
}

TEST(what_others_may_write_is_refused)
{
    const mode_t modes[] = { 0770, 0702, 01777 };
    pd_state_dir dir;
    pd_error err;

    assert_int_equal(mkdir(root, 0700), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(root, modes[i]), 0);
        assert_int_equal(pd_state_dir_open(&dir, root, true, &err), PD_FAILED_PRECONDITION);
        assert_non_null(strstr(err.text, "other users may write in it"));
    }
}

TEST(a_file_is_no_directory)
{
    FILE *file = fopen(root, "w");
    pd_state_dir dir;

    assert_non_null(file);
    fclose(file);
    assert_int_equal(pd_state_dir_open(&dir, root, true, NULL), PD_FAILED_PRECONDITION);
}

static void ignore_damage(void *arg, const char *dir, const pd_error *why)
{
    (void)arg, (void)dir, (void)why;
}

static void expect_newest(const char *job_dir, const pd_checkpoint_image *expected)
{
    pd_manifest manifest;
    pd_checkpoint_image *loaded;

    assert_int_equal(pd_checkpoint_newest(&pd_disk_posix, job_dir, &loaded, &manifest, ignore_damage, NULL, NULL),
                     PD_OK);
    assert_checkpoints_same(expected, loaded);
    pd_checkpoint_image_free(loaded);
}

TEST(checkpoints_load_from_a_real_disk)
{
    char job_dir[PD_KEEP_PATH];
    pd_error err;

    assert_int_equal(mkdir(root, 0700), 0);
    for (uint64_t i = 0; i < 3; i++) { /* aligned and unaligned memory: past the page cache, and through it */
        pd_checkpoint_image *kept = sample_large(i + 1, (9u << 20) + (i == 2 ? 0 : 4), i == 1 ? 64 : 0);
        if (pd_checkpoint_write(&pd_disk_posix, root, kept, &sample_about, &err) != PD_OK) fail_msg("%s", err.text);
        pd_checkpoint_job_dir(job_dir, root, kept);
        expect_newest(job_dir, kept);
        pd_checkpoint_image_free(kept);
    }
}

/* Fills the disk up to its last bytes, behind the back of the check for free space. */
static int plenty_of_space(void *arg, const char *path, uint64_t *bytes)
{
    (void)arg, (void)path;
    *bytes = UINT64_MAX;
    return 0;
}

TEST(a_full_disk_keeps_the_checkpoint_that_it_has)
{
    pd_checkpoint_image *first = sample_large(1, 3u << 20, 0), *second = sample_large(2, 3u << 20, 0);
    pd_disk disk = pd_disk_posix;
    char job_dir[PD_KEEP_PATH];
    pd_step_list list;
    pd_error err;

    assert_int_equal(mkdir(root, 0700), 0);
    if (mount("none", root, "tmpfs", 0, "size=10m,mode=0700") != 0) {
        print_message("a_full_disk_keeps_the_checkpoint_that_it_has: skipped, tmpfs cannot be mounted: %s\n",
                      strerror(errno));
        pd_checkpoint_image_free(first);
        pd_checkpoint_image_free(second);
        skip();
    }
    pd_checkpoint_job_dir(job_dir, root, first);
    assert_int_equal(pd_checkpoint_write(&disk, root, first, &sample_about, NULL), PD_OK);
    for (int i = 0; i < 2; i++) { /* it is found before, or by a write */
        assert_int_equal(pd_checkpoint_write(&disk, root, second, &sample_about, &err), PD_RESOURCE_EXHAUSTED);
        expect_newest(job_dir, first);
        disk.space = plenty_of_space;
    }
    assert_non_null(strstr(err.text, strerror(ENOSPC)));
    assert_int_equal(mount("none", root, "tmpfs", MS_REMOUNT, "size=20m,mode=0700"), 0);
    assert_int_equal(pd_checkpoint_write(&disk, root, second, &sample_about, NULL), PD_OK);
    expect_newest(job_dir, second);
    assert_int_equal(pd_step_list_read(&list, &disk, job_dir, NULL), PD_OK);
    assert_int_equal(list.n, 1);
    pd_step_list_free(&list);
    assert_int_equal(umount(root), 0);
    pd_checkpoint_image_free(first);
    pd_checkpoint_image_free(second);
}
