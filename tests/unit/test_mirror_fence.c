/* Tests that an owner of a shard that was replaced while it slept does not change what the next owner has copied to the
 * mirror, wherever in a pass it fell asleep. */
#include "test.h"
#include "checkpoint_sample.h"
#include "mem_disk.h"
#include "mirror.h"
#include "state_dir.h"

#define ROOT "/state"
#define MIRROR "/mirror"
#define JOB "/runs%2Fgpt%20%231-0123456789abcdef"

enum { MOST_CALLS = 200 };

/* An owner, its state directory, and its way to the mirror. */
typedef struct owner {
    mem_disk *memory;
    pd_disk disk;
    uint64_t tenure;
    pd_fenced_disk fenced;
    pd_mirror_user user;
    pd_mirror_writer *writer;
} owner;

typedef struct fixture {
    mem_disk *memory; /* of the mirror */
    pd_disk disk;
    pd_disk_pass sleeps; /* the mirror's disk, as the old owner reaches it */
    int64_t calls_left;  /* calls of the old owner until it falls asleep; -1: it does not */
    bool replaced;
    owner old, new;
} fixture;

static void hear_step(void *arg, const char *job, uint64_t creator, uint64_t step)
{
    (void)arg, (void)job, (void)creator, (void)step;
}

static void hear_remark(void *arg, const pd_error *remark)
{
    (void)arg, (void)remark;
}

/* Makes an owner with an empty state directory. */
static void make(owner *o, uint64_t tenure)
{
    o->memory = mem_disk_new();
    o->disk = mem_disk_table(o->memory);
    assert_int_equal(o->disk.make_dir(o->disk.arg, ROOT), 0);
    o->tenure = tenure;
}

static uint64_t tenure_of(void *arg)
{
    return ((const owner *)arg)->tenure;
}

/* Lets an owner begin to copy. */
static void begin(owner *o, const pd_disk *mirror)
{
    size_t n;

    pd_fenced_disk_init(&o->fenced, mirror, MIRROR, tenure_of, o);
    o->user = (pd_mirror_user){ o, hear_step, hear_remark };
    assert_int_equal(
        pd_mirror_writer_new(&o->writer, &o->disk, ROOT, &o->fenced.base.functions, MIRROR, &o->user, NULL), PD_OK);
    assert_int_equal(pd_mirror_begin(o->writer, &n, NULL), PD_OK);
}

static void free_owner(owner *o)
{
    pd_mirror_writer_free(o->writer);
    mem_disk_free(o->memory);
    *o = (owner){ 0 };
}

static void checkpoint(const owner *o, uint64_t step)
{
    pd_checkpoint_image *image = sample_checkpoint(step, 2);

    assert_int_equal(pd_checkpoint_write(&o->disk, ROOT, image, &sample_about, NULL), PD_OK);
    pd_checkpoint_image_free(image);
}

/* Replaces the old owner: the next one fetches the state, trains on and copies. */
static void take_over(fixture *f)
{
    f->replaced = true;
    make(&f->new, 9);
    assert_int_equal(pd_mirror_fence(&f->disk, MIRROR, f->old.tenure, NULL), PD_OK);
    assert_int_equal(pd_mirror_fetch_from(&f->disk, MIRROR, &f->new.disk, ROOT, NULL, NULL), PD_OK);
    begin(&f->new, &f->disk);
    checkpoint(&f->new, 13);
    assert_int_equal(pd_mirror_pass(f->new.writer, NULL), PD_OK);
}

/* Counts a call of the old owner, which sleeps in it until it is replaced. */
static const pd_disk *pass_on(void *arg)
{
    fixture *f = (fixture *)(void *)((char *)arg - offsetof(fixture, sleeps));

    if (f->calls_left-- == 0) take_over(f);
    return f->sleeps.below;
}

#define SLEEPS(function, parameters, ...)                                                                              \
    static int sleeps_##function parameters                                                                            \
    {                                                                                                                  \
        const pd_disk *below = pass_on(arg);                                                                           \
        return below->function(below->arg, __VA_ARGS__);                                                               \
    }
SLEEPS(make_dir, (void *arg, const char *path), path)
SLEEPS(create, (void *arg, const char *path, uint64_t bytes, int *file), path, bytes, file)
SLEEPS(write, (void *arg, int file, const void *at, size_t bytes), file, at, bytes)
SLEEPS(sync_file, (void *arg, int file), file)
SLEEPS(rename, (void *arg, const char *from, const char *to), from, to)
SLEEPS(remove, (void *arg, const char *path), path)

static void set_up(fixture *f)
{
    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    assert_int_equal(f->disk.make_dir(f->disk.arg, MIRROR), 0);
    pd_disk_pass_init(&f->sleeps, &f->disk);
    f->sleeps.functions.make_dir = sleeps_make_dir;
    f->sleeps.functions.create = sleeps_create;
    f->sleeps.functions.write = sleeps_write;
    f->sleeps.functions.sync_file = sleeps_sync_file;
    f->sleeps.functions.rename = sleeps_rename;
    f->sleeps.functions.remove = sleeps_remove;
    f->calls_left = -1;
    make(&f->old, 4);
    begin(&f->old, &f->sleeps.functions);
    checkpoint(&f->old, 3);
    assert_int_equal(pd_mirror_pass(f->old.writer, NULL), PD_OK);
}

static void tear_down(fixture *f)
{
    free_owner(&f->old);
    if (f->replaced) free_owner(&f->new);
    mem_disk_free(f->memory);
}

FIXTURE(fixture, set_up, tear_down);

/* Expects that no call since the last mem_disk_forget_calls has changed the mirror. */
static void expect_reads(const fixture *f)
{
    static const char *const reads[] = { "open", "size", "read", "close", "list", "space", "sync_dir" };
    size_t n, k;
    const mem_disk_call *calls = mem_disk_calls(f->memory, &n);

    for (size_t i = 0; i < n; i++) {
        for (k = 0; k < sizeof reads / sizeof *reads && strcmp(calls[i].what, reads[k]) != 0;) k++;
        if (k == sizeof reads / sizeof *reads) fail_msg("%s %s", calls[i].what, calls[i].path);
    }
}

TEST(an_owner_that_was_replaced_only_reads_the_mirror, fixture *f)
{
    pd_error err;

    take_over(f);
    checkpoint(&f->old, 7);
    mem_disk_forget_calls(f->memory);
    assert_int_not_equal(pd_mirror_pass(f->old.writer, &err), PD_OK);
    assert_int_equal(f->old.fenced.why.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(f->old.fenced.why.text, "owners up to tenure 4 are replaced, and this daemon's is 4"));
    expect_reads(f);
}

static void hear_verdict(void *arg, const char *file, const pd_error *why)
{
    (void)arg, (void)file, (void)why;
}

/* Expects that the mirror has the checkpoints of the new owner, whole, and no others. */
static void expect_state_of_new(const fixture *f)
{
    char path[PD_KEEP_PATH];
    pd_step_list source, target;

    assert_int_equal(pd_step_list_read(&source, &f->new.disk, ROOT JOB, NULL), PD_OK);
    assert_int_equal(pd_step_list_read(&target, &f->disk, MIRROR JOB, NULL), PD_OK);
    assert_int_equal(source.n, 2);
    assert_int_equal(target.n, source.n);
    for (size_t i = 0; i < source.n; i++) {
        assert_string_equal(target.at[i].name, source.at[i].name);
        pd_keep_join(path, MIRROR JOB, target.at[i].name);
        assert_int_equal(pd_checkpoint_verify(&f->disk, path, hear_verdict, NULL, NULL), PD_OK);
    }
    pd_step_list_free(&source);
    pd_step_list_free(&target);
}

/* Lets the old owner fall asleep in its call n of a pass. Returns whether it has made so many. */
static bool sleeps_at(fixture *f, int64_t n)
{
    checkpoint(&f->old, 6);
    checkpoint(&f->old, 7); /* the mirror must lose step 3, and get two checkpoints */
    f->calls_left = n;
    (void)pd_mirror_pass(f->old.writer, NULL);
    if (!f->replaced) return false;
    mem_disk_forget_calls(f->memory);
    (void)pd_mirror_pass(f->old.writer, NULL);
    expect_reads(f);
    checkpoint(&f->new, 18);
    assert_int_equal(pd_mirror_pass(f->new.writer, NULL), PD_OK);
    expect_state_of_new(f);
    return true;
}

TEST(wherever_an_owner_sleeps_the_next_one_has_a_whole_mirror_after_its_next_checkpoint)
{
    bool slept = true;
    int64_t n = 0;

    for (; slept && n < MOST_CALLS; n++) {
        fixture f = { 0 };
        set_up(&f);
        slept = sleeps_at(&f, n);
        tear_down(&f);
    }
    assert_true(n > 20 && n < MOST_CALLS); /* it has slept in every call of the pass */
}

TEST(an_owner_that_gets_a_higher_tenure_copies_again, fixture *f)
{
    assert_int_equal(pd_mirror_fence(&f->disk, MIRROR, 4, NULL), PD_OK);
    checkpoint(&f->old, 7);
    assert_int_not_equal(pd_mirror_pass(f->old.writer, NULL), PD_OK);
    f->old.tenure = 5;
    assert_int_equal(pd_mirror_pass(f->old.writer, NULL), PD_OK);
    assert_true(mem_disk_has(f->memory, MIRROR JOB "/step-00000000000000000007/manifest.json"));
}

static uint64_t fence_of(const fixture *f)
{
    uint64_t fence;

    assert_int_equal(pd_keep_number_read(&f->disk, MIRROR "/fence", &fence, NULL), PD_OK);
    return fence;
}

TEST(a_fence_is_raised_and_never_lowered, fixture *f)
{
    assert_int_equal(pd_mirror_fence(&f->disk, MIRROR, 7, NULL), PD_OK);
    assert_int_equal(fence_of(f), 7);
    assert_int_equal(pd_mirror_fence(&f->disk, MIRROR, 4, NULL), PD_OK);
    assert_int_equal(fence_of(f), 7);
    assert_int_equal(pd_mirror_fence(&f->disk, MIRROR, 8, NULL), PD_OK);
    assert_int_equal(fence_of(f), 8);
}

TEST(a_fence_that_a_crash_has_left_in_part_stops_copying_until_it_is_raised, fixture *f)
{
    assert_int_equal(pd_mirror_fence(&f->disk, MIRROR, 3, NULL), PD_OK);
    mem_disk_resize(f->memory, MIRROR "/fence", 5);
    checkpoint(&f->old, 7);
    assert_int_not_equal(pd_mirror_pass(f->old.writer, NULL), PD_OK);
    assert_non_null(strstr(f->old.fenced.why.text, MIRROR "/fence"));
    assert_int_equal(pd_mirror_fence(&f->disk, MIRROR, 3, NULL), PD_OK);
    assert_int_equal(pd_mirror_pass(f->old.writer, NULL), PD_OK);
}

static int refuse_rename(void *arg, const char *from, const char *to)
{
    (void)arg, (void)from, (void)to;
    return EPERM;
}

TEST(a_fence_is_written_where_files_cannot_be_renamed, fixture *f)
{
    pd_disk_pass plain;

    pd_disk_pass_init(&plain, &f->disk);
    plain.functions.rename = refuse_rename;
    assert_int_equal(pd_mirror_fence(&plain.functions, MIRROR, 7, NULL), PD_OK);
    assert_int_equal(fence_of(f), 7);
    assert_false(mem_disk_has(f->memory, MIRROR "/fence.new"));
}

TEST(a_mirror_that_does_not_exist_gets_no_fence, fixture *f)
{
    assert_int_equal(pd_mirror_fence(&f->disk, "/nowhere", 7, NULL), PD_NOT_FOUND);
}
