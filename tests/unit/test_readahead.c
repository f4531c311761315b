/* Tests the disk that reads ahead of its user: same bytes, and errors at the reads that they concern. */
#include "test.h"
#include "mem_disk.h"
#include "overlapped.h"

WITH_THREADS();

enum { BYTES = 9 << 20, FAILING = -1 };

typedef struct fixture {
    mem_disk *memory;
    pd_disk below; /* reads as `original` does, and fails at `failing` */
    pd_disk original;
    uint64_t failing; /* a read of this offset fails; FAILING: none */
    pd_read_ahead *ahead;
    const pd_disk *disk;
    uint8_t *bytes, *read;
    int file;
} fixture;

static int read_or_fail(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    fixture *f = arg;

    if (f->failing >= offset && f->failing < offset + bytes) return EIO;
    return f->original.read(f->original.arg, file, offset, at, bytes);
}

static int size_below(void *arg, int file, uint64_t *bytes)
{
    fixture *f = arg;
    return f->original.size(f->original.arg, file, bytes);
}

static int close_below(void *arg, int file)
{
    fixture *f = arg;
    return f->original.close(f->original.arg, file);
}

static void set_up(fixture *f)
{
    int file;

    f->memory = mem_disk_new();
    f->original = mem_disk_table(f->memory);
    f->below = (pd_disk){ .arg = f, .read = read_or_fail, .size = size_below, .close = close_below };
    f->failing = (uint64_t)FAILING;
    f->bytes = malloc(BYTES);
    f->read = calloc(1, BYTES);
    for (size_t i = 0; i < BYTES; i++) f->bytes[i] = (uint8_t)(i * 2654435761u >> 13);
    assert_int_equal(f->original.create(f->original.arg, "/file", BYTES, &file), 0);
    assert_int_equal(f->original.write(f->original.arg, file, f->bytes, BYTES), 0);
    assert_int_equal(f->original.close(f->original.arg, file), 0);
    assert_int_equal(pd_read_ahead_start(&f->ahead, &f->below, NULL), PD_OK);
    f->disk = pd_read_ahead_disk(f->ahead);
    assert_int_equal(f->original.open(f->original.arg, "/file", &f->file), 0);
}

static void tear_down(fixture *f)
{
    pd_read_ahead_stop(f->ahead);
    mem_disk_free(f->memory);
    free(f->bytes);
    free(f->read);
}

static int read_at(fixture *f, uint64_t offset, size_t bytes)
{
    return f->disk->read(f->disk->arg, f->file, offset, f->read + offset, bytes);
}

/* Reads from `from` on to the end of the file, `piece` bytes at a time. Returns the first error. */
static int read_on(fixture *f, uint64_t from, size_t piece)
{
    int number = 0;

    for (size_t n; from < BYTES && number == 0; from += n) {
        n = BYTES - from < piece ? (size_t)(BYTES - from) : piece;
        number = read_at(f, from, n);
    }
    return number;
}

static void close_it(fixture *f)
{
    assert_int_equal(f->disk->close(f->disk->arg, f->file), 0);
}

FIXTURE(fixture, set_up, tear_down);

TEST(a_file_that_is_read_in_pieces_has_the_same_bytes, fixture *f)
{
    const size_t pieces[] = { 100003, 1 << 20, (3 << 20) + 1, BYTES };

    for (size_t i = 0; i < sizeof pieces / sizeof *pieces; i++) {
        memset(f->read, 0, BYTES);
        assert_int_equal(read_on(f, 0, pieces[i]), 0);
        assert_memory_equal(f->read, f->bytes, BYTES);
    }
    close_it(f);
}

TEST(a_reader_may_leap, fixture *f)
{
    assert_int_equal(read_at(f, BYTES - 24, 24), 0);
    assert_int_equal(read_at(f, 0, 16), 0);
    assert_int_equal(read_at(f, 16, 5000), 0);
    assert_int_equal(read_at(f, 5016, 70000), 0);
    assert_int_equal(read_at(f, 6 << 20, 1000), 0);
    assert_int_equal(read_at(f, 75016, 1000), 0);
    assert_int_equal(read_on(f, 76016, 1 << 20), 0);
    assert_memory_equal(f->read, f->bytes, BYTES);
    close_it(f);
}

TEST(bytes_before_an_error_are_read_and_the_error_comes_after_them, fixture *f)
{
    const size_t piece = 1 << 16;
    uint64_t at = 0;

    f->failing = 5 << 20;
    while (read_at(f, at, piece) == 0) at += piece;
    assert_in_range(at, (4 << 20) - piece, 5 << 20);
    assert_memory_equal(f->read, f->bytes, at);
    f->failing = (uint64_t)FAILING;
    assert_int_equal(read_on(f, at, piece), 0);
    assert_memory_equal(f->read, f->bytes, BYTES);
    close_it(f);
}

TEST(a_file_that_ends_too_early_is_told, fixture *f)
{
    assert_int_equal(read_on(f, 0, 1 << 20), 0);
    assert_int_equal(f->disk->read(f->disk->arg, f->file, BYTES, f->read, 1), ENODATA);
    assert_int_equal(read_on(f, 0, 1 << 20), 0);
    assert_int_equal(f->disk->read(f->disk->arg, f->file, BYTES - 1, f->read, 2), ENODATA);
    close_it(f);
}

TEST(a_file_may_be_closed_while_it_is_read_ahead, fixture *f)
{
    assert_int_equal(read_at(f, 0, 16), 0);
    assert_int_equal(read_at(f, 16, 16), 0);
    close_it(f);
    assert_int_equal(f->original.open(f->original.arg, "/file", &f->file), 0);
    assert_int_equal(read_on(f, 0, 1 << 20), 0);
    assert_memory_equal(f->read, f->bytes, BYTES);
    close_it(f);
}
