/* Tests segments of shared memory: what two processes see of each other, which descriptors of a peer are refused, and
 * that none is left over. */
#define _GNU_SOURCE /* F_ADD_SEALS, MFD_HUGETLB, fallocate */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "test.h"
#include "descriptors.h"
#include "segment.h"

enum { BYTES = 3 * 4096 + 100, SIZE_SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL };

static int open_before; /* descriptors that were open when the test began */

static int set_up(void **state)
{
    (void)state;
    open_before = descriptors_open(0);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return descriptors_open(0) == open_before ? 0 : -1;
}

static pd_segment made(uint64_t bytes)
{
    pd_segment segment;
    pd_error err;

    if (pd_segment_make(&segment, bytes, &err) != PD_OK) fail_msg("%s", err.text);
    return segment;
}

EACH_TEST(set_up, tear_down);

TEST(a_new_segment_is_zeroed)
{
    static const uint8_t zeros[BYTES];
    pd_segment segment = made(BYTES);

    assert_memory_equal(segment.at, zeros, BYTES);
    pd_segment_drop(&segment);
}

TEST(what_one_side_writes_the_other_reads)
{
    pd_segment mine = made(BYTES), theirs;

    assert_int_equal(pd_segment_map(&theirs, pd_segment_share(&mine), BYTES, NULL), PD_OK);
    for (int i = 0; i < BYTES; i++) mine.at[i] = (uint8_t)(i * 7);
    assert_memory_equal(theirs.at, mine.at, BYTES);
    pd_segment_drop(&theirs);
    pd_segment_drop(&mine);
}

/* Returns how many bytes of a memfd are allocated. */
static uint64_t allocated(int fd)
{
    struct stat file;

    assert_int_equal(fstat(fd, &file), 0);
    return (uint64_t)file.st_blocks * 512;
}

/* Otherwise workers that keep a descriptor or a mapping would keep memory that counts as the daemon's. */
TEST(a_dropped_segment_has_no_pages_whoever_has_it_open)
{
    pd_segment mine = made(BYTES), theirs;
    int kept = pd_segment_share(&mine);

    assert_int_equal(pd_segment_map(&theirs, pd_segment_share(&mine), BYTES, NULL), PD_OK);
    memset(mine.at, 9, BYTES);
    assert_int_equal(theirs.at[BYTES - 1], 9);
    assert_true(allocated(kept) >= BYTES);
    pd_segment_drop(&mine);
    assert_int_equal(allocated(kept), 0);
    assert_int_equal(theirs.at[BYTES - 1], 0);
    pd_segment_drop(&theirs);
    close(kept);
}

TEST(a_full_segment_stays_full)
{
    static const uint64_t sizes[] = { 1, BYTES, (2 << 20) - 1, 2 << 20, (2 << 20) + 1 };

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pd_segment mine, theirs;
        assert_int_equal(pd_segment_make_full(&mine, sizes[i], NULL), PD_OK);
        assert_true(mine.bytes >= sizes[i]);
        assert_int_equal(allocated(mine.fd), mine.bytes);
        assert_int_equal(fallocate(mine.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096), -1);
        assert_int_equal(madvise(mine.at, 4096, MADV_REMOVE), -1);
        mine.at[0] = 3;
        assert_int_equal(pd_segment_map_full(&theirs, pd_segment_share(&mine), mine.bytes, NULL), PD_OK);
        assert_int_equal(theirs.at[0], 3);
        pd_segment_drop(&theirs);
        pd_segment_drop(&mine);
    }
}

TEST(pages_that_nobody_writes_take_no_memory)
{
    pd_segment segment = made((uint64_t)1 << 36);
    struct stat file;

    segment.at[(uint64_t)1 << 35] = 1;
    assert_int_equal(fstat(segment.fd, &file), 0);
    assert_true(file.st_blocks * 512 <= 2 << 20);
    pd_segment_drop(&segment);
}

TEST(a_dropped_segment_may_be_dropped_again)
{
    pd_segment segment = made(BYTES);

    pd_segment_drop(&segment);
    pd_segment_drop(&segment);
    assert_null(segment.at);
}

TEST(the_other_side_cannot_map_it_to_write)
{
    pd_segment mine = made(BYTES);
    int fd = pd_segment_share(&mine);

    assert_ptr_equal(mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
    close(fd);
    pd_segment_drop(&mine);
}

TEST(the_other_side_cannot_make_its_mapping_writable)
{
    pd_segment mine = made(BYTES);
    int fd = pd_segment_share(&mine);
    void *at = mmap(NULL, BYTES, PROT_READ, MAP_SHARED, fd, 0);

    assert_ptr_not_equal(at, MAP_FAILED);
    assert_int_equal(mprotect(at, BYTES, PROT_READ | PROT_WRITE), -1);
    munmap(at, BYTES);
    close(fd);
    pd_segment_drop(&mine);
}

TEST(the_other_side_cannot_write_to_its_file)
{
    pd_segment mine = made(BYTES);
    int fd = pd_segment_share(&mine);

    assert_int_equal(pwrite(fd, "x", 1, 0), -1);
    close(fd);
    pd_segment_drop(&mine);
}

TEST(nobody_can_change_its_size)
{
    static const off_t sizes[] = { 0, 1, 4096, BYTES - 1, BYTES + 1, 1 << 20 };
    pd_segment mine = made(BYTES);

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(ftruncate(mine.fd, sizes[i]), -1);
        assert_int_equal(errno, EPERM);
    }
    pd_segment_drop(&mine);
}

TEST(nobody_can_forbid_the_maker_to_write)
{
    pd_segment mine = made(BYTES);
    int fd = pd_segment_share(&mine);

    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
    mine.at[0] = 1;
    close(fd);
    pd_segment_drop(&mine);
}

TEST(a_segment_of_a_peer_cannot_be_passed_on)
{
    pd_segment theirs;

    assert_int_equal(pd_segment_map(&theirs, memfd_sealed(BYTES, 1), BYTES, NULL), PD_OK);
    assert_int_equal(pd_segment_share(&theirs), -1);
    pd_segment_drop(&theirs);
}

static void assert_refuses(int fd, uint64_t bytes, const char *part)
{
    pd_segment segment;
    pd_error err;

    assert_int_equal(pd_segment_map(&segment, fd, bytes, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(segment.at);
    if (fd >= 0) assert_int_equal(fcntl(fd, F_GETFD), -1); /* it is closed */
}

TEST(maps_a_memfd_of_any_length_up_to_that_of_the_file)
{
    static const uint64_t lengths[] = { 1, 4095, 4096, 4097, BYTES };
    pd_segment segment;

    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        assert_int_equal(pd_segment_map(&segment, memfd_sealed(BYTES, 1), lengths[i], NULL), PD_OK);
        assert_int_equal(segment.bytes, lengths[i]);
        assert_int_equal(segment.at[lengths[i] - 1], (uint8_t)((lengths[i] - 1) * 7 + 1));
        pd_segment_drop(&segment);
    }
}

HOLDS(refuses_that_none_came, assert_refuses(-1, BYTES, "the request has no file descriptor"));

/* Every set of seals but the whole one leaves the peer a way to change the size, or to do so later. */
TEST(refuses_a_memfd_whose_size_is_not_sealed)
{
    static const int seals[] = { F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL };

    for (unsigned set = 0; set < 7; set++) {
        int some = 0;
        for (unsigned i = 0; i < 3; i++)
            if ((set & 1u << i) != 0) some |= seals[i];
        assert_refuses(memfd_with(0, BYTES, some), BYTES, "F_SEAL_SHRINK");
    }
}

HOLDS(refuses_a_memfd_that_is_shorter_than_announced,
      assert_refuses(memfd_sealed(BYTES, 1), BYTES + 1, "expected a memfd of 12389 bytes, got 12388"));

HOLDS(refuses_a_length_of_all_ones,
      assert_refuses(memfd_sealed(BYTES, 1), UINT64_MAX, "expected a memfd of 18446744073709551615 bytes"));

HOLDS(refuses_a_segment_of_no_bytes, assert_refuses(memfd_sealed(BYTES, 1), 0, "expected a memfd of 0 bytes"));

TEST(refuses_a_pipe)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    assert_refuses(ends[0], BYTES, "expected a memfd of ordinary pages");
    close(ends[1]);
}

static int new_file(const char *folder)
{
    char path[64];
    int fd;

    snprintf(path, sizeof path, "%s/paramd-test-XXXXXX", folder);
    if ((fd = mkstemp(path)) < 0) return -1;
    unlink(path);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    return fd;
}

HOLDS(refuses_a_file_of_a_disk, assert_refuses(new_file("/var/tmp"), BYTES, "shared memory: "));

/* /dev/shm is the file system that a memfd is in. But other processes can shorten a file there. */
TEST(refuses_a_file_in_dev_shm)
{
    int fd = new_file("/dev/shm");

    if (fd < 0) skip();
    assert_refuses(fd, BYTES, "F_SEAL_SHRINK");
}

/* An access to a huge page kills the process if none is free, so such memory is refused. */
TEST(refuses_memory_of_huge_pages)
{
    int fd = memfd_with(MFD_HUGETLB, 2 << 20, SIZE_SEALS);

    if (fd < 0) skip();
    assert_refuses(fd, 4096, "ordinary pages");
}

TEST(refuses_memory_that_cannot_be_mapped)
{
    uint64_t bytes = (uint64_t)1 << 48; /* more than a process can map */
    int fd = memfd_with(0, bytes, SIZE_SEALS);
    pd_segment segment;
    pd_error err;

    assert_true(fd >= 0);
    assert_int_equal(pd_segment_map(&segment, fd, bytes, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "mapping it"));
    assert_null(segment.at);
}

static void assert_not_full(int fd, const char *part)
{
    pd_segment segment;
    pd_error err;

    assert_int_equal(pd_segment_map_full(&segment, fd, BYTES, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(segment.at);
    assert_int_equal(fcntl(fd, F_GETFD), -1);
}

TEST(refuses_gradients_whose_pages_are_not_there)
{
    enum { SEALS = SIZE_SEALS | F_SEAL_FUTURE_WRITE };
    int one_missing = memfd_with(0, BYTES, F_SEAL_SHRINK | F_SEAL_GROW);

    assert_not_full(memfd_with(0, BYTES, SEALS), "only 0 of 16384 bytes are allocated");
    assert_int_equal(fallocate(one_missing, 0, 4096, BYTES - 4096), 0);
    assert_int_equal(fcntl(one_missing, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_FUTURE_WRITE), 0);
    assert_not_full(one_missing, "only 12288 of 16384 bytes are allocated");
}

TEST(refuses_gradients_whose_pages_can_be_freed)
{
    int fd = memfd_with(0, BYTES, SIZE_SEALS);

    assert_int_equal(fallocate(fd, 0, 0, BYTES), 0);
    assert_not_full(fd, "F_SEAL_FUTURE_WRITE");
}

static void assert_cannot_make(uint64_t bytes, const char *part)
{
    pd_segment segment;
    pd_error err;

    assert_int_equal(pd_segment_make(&segment, bytes, &err), PD_UNAVAILABLE);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(segment.at);
}

TEST(says_that_no_descriptor_is_free)
{
    pd_segment segment;
    pd_error err;
    int rc;

    descriptors_forbid();
    rc = pd_segment_make(&segment, BYTES, &err);
    descriptors_allow();
    assert_int_equal(rc, PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "memfd_create: Too many open files"));
}

HOLDS(says_that_the_memory_cannot_be_mapped, assert_cannot_make((uint64_t)1 << 48, "mapping it"));

HOLDS(says_that_no_file_is_so_long,
      assert_cannot_make(UINT64_MAX, "18446744073709551615 bytes exceed the largest size"));

TEST(passes_no_descriptor_where_none_is_free)
{
    pd_segment mine = made(BYTES);
    int fd;

    descriptors_forbid();
    fd = pd_segment_share(&mine);
    descriptors_allow();
    assert_int_equal(fd, -1);
    pd_segment_drop(&mine);
}

static uint64_t draw(uint64_t *seed, uint64_t below)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % below;
}

TEST(has_what_lies_between_its_ends_and_nothing_else)
{
    pd_segment segment = made(100);
    uint64_t seed = 1;

    for (int i = 0; i < 20000; i++) {
        int64_t first = (int64_t)draw(&seed, 300) - 100;
        uint64_t n = draw(&seed, 8) == 0 ? UINT64_MAX - draw(&seed, 300) : draw(&seed, 300);
        bool inside = first >= 0 && first < 100 && n <= 100 - (uint64_t)first;
        const void *at = (const void *)((uintptr_t)segment.at + (uintptr_t)first);

        assert_int_equal(pd_segment_has(&segment, at, n), inside);
    }
    pd_segment_drop(&segment);
}

TEST(where_there_is_none_nothing_lies_in_it)
{
    const pd_segment none = PD_NO_SEGMENT;

    assert_false(pd_segment_has(&none, NULL, 0));
}
