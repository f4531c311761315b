/* Tests the archive (the format in which objects are saved): one function of an object both writes and reads it, and
 * damaged bytes are refused. */
#include "test.h"
#include "archived.h"

enum { HEADER = 16, NAME = 1 + sizeof "thing" - 1, FIRST_FIELD = HEADER + NAME + 8 + 8 };

static archived_point some_points[] = { { 1, "one" }, { 2, NULL }, { 4000000000u, "" } };

static archived some_thing(void)
{
    return (archived){ .flag = true,
                       .small = 200,
                       .level = -3,
                       .large = UINT64_MAX,
                       .single = { -0.0f, INFINITY, 1e-45f },
                       .wide = -1e308,
                       .name = "fifteen letters",
                       .text = "any text",
                       .points = some_points,
                       .n_points = 3 };
}

/* Returns the bytes (the image) that the archive writes for this test's object. The caller frees them. */
static uint8_t *some_image(size_t *n)
{
    archived thing = some_thing();
    uint8_t *image;
    pd_error err = { 0 };

    assert_int_equal(archived_write(&thing, &image, n, &err), PD_OK);
    return image;
}

/* Checks that the image is refused with this code and with an error that contains `part`. */
static void refuses(const uint8_t *image, size_t n, int code, const char *part)
{
    archived thing;
    pd_error err = { 0 };
    int rc = archived_read(&thing, image, n, &err);

    archived_free(&thing);
    assert_int_equal(rc, code);
    if (strstr(err.text, part) == NULL) fail_msg("expected \"%s\" in \"%s\"", part, err.text);
}

/* Overwrites bytes in a copy of the image and checks that the copy is refused. */
static void refuses_with(size_t at, const void *bytes, size_t length, int code, const char *part)
{
    size_t n;
    uint8_t *image = some_image(&n);

    memcpy(image + at, bytes, length);
    refuses(image, n, code, part);
    free(image);
}

TEST(every_kind_of_field_comes_back_with_its_bits)
{
    size_t n;
    uint8_t *image = some_image(&n);
    archived a = some_thing(), b;

    assert_int_equal(archived_read(&b, image, n, NULL), PD_OK);
    assert_true(b.flag);
    assert_int_equal(b.small, a.small);
    assert_int_equal(b.level, a.level);
    assert_true(b.large == a.large);
    assert_memory_equal(b.single, a.single, sizeof a.single);
    assert_memory_equal(&b.wide, &a.wide, sizeof a.wide);
    assert_string_equal(b.name, a.name);
    assert_string_equal(b.text, a.text);
    archived_free(&b);
    free(image);
}

TEST(a_list_comes_back_with_its_texts)
{
    size_t n;
    uint8_t *image = some_image(&n);
    archived b;

    assert_int_equal(archived_read(&b, image, n, NULL), PD_OK);
    assert_int_equal(b.n_points, 3);
    assert_string_equal(b.points[0].label, "one");
    assert_null(b.points[1].label);
    assert_string_equal(b.points[2].label, "");
    assert_true(b.points[2].x == 4000000000u);
    archived_free(&b);
    free(image);
}

TEST(an_empty_list_is_read_as_null)
{
    archived a = { 0 }, b;
    uint8_t *image;
    size_t n;

    assert_int_equal(archived_write(&a, &image, &n, NULL), PD_OK);
    assert_int_equal(archived_read(&b, image, n, NULL), PD_OK);
    assert_null(b.points);
    archived_free(&b);
    free(image);
}

TEST(an_image_that_is_cut_anywhere_is_refused)
{
    size_t n;
    uint8_t *image = some_image(&n);

    for (size_t cut = 0; cut < n; cut++) refuses(image, cut, PD_DATA_LOSS, "expected");
    free(image);
}

TEST(bytes_behind_the_image_are_refused)
{
    size_t n;
    uint8_t *image = some_image(&n), *longer = calloc(1, n + 1);

    memcpy(longer, image, n);
    refuses(longer, n + 1, PD_DATA_LOSS, "bytes");
    free(longer);
    free(image);
}

HOLDS(bytes_that_are_no_image_are_refused, refuses_with(0, "safe", 4, PD_DATA_LOSS, "no image"));

HOLDS(another_version_of_the_format_is_refused,
      refuses_with(4, &(uint32_t){ PD_ARCHIVE_VERSION + 1 }, 4, PD_UNIMPLEMENTED, "expected version 1, found 2"));

HOLDS(another_section_is_refused_and_both_are_named,
      refuses_with(HEADER + 1, "thong", 5, PD_DATA_LOSS, "expected section thing, found thong"));

HOLDS(a_section_longer_than_the_image_is_refused,
      refuses_with(HEADER + NAME, &(uint64_t){ UINT64_MAX / 2 }, 8, PD_DATA_LOSS, "section thing is cut"));

TEST(a_section_that_ends_late_is_refused)
{
    pd_archive archive;
    pd_error err = { 0 };
    uint8_t *image;
    uint64_t a = 1, b = 2;
    size_t n;

    pd_archive_begin_write(&archive);
    pd_archive_enter(&archive, "pair");
    pd_archive_value(&archive, &a);
    pd_archive_value(&archive, &b);
    pd_archive_leave(&archive);
    assert_int_equal(pd_archive_end(&archive, &image, &n, &err), PD_OK);
    pd_archive_begin_read(&archive, image, n);
    pd_archive_enter(&archive, "pair");
    pd_archive_value(&archive, &a);
    pd_archive_leave(&archive);
    assert_int_equal(pd_archive_end(&archive, NULL, NULL, &err), PD_DATA_LOSS);
    assert_string_equal(err.text, "pair: the section has 8 bytes too many");
    free(image);
}

HOLDS(other_fields_are_refused,
      refuses_with(FIRST_FIELD - 8, "\0\0\0\0\0\0\0", 8, PD_UNIMPLEMENTED, "thing: its fields are not those"));

HOLDS(a_flag_of_2_is_refused, refuses_with(FIRST_FIELD, "\2", 1, PD_DATA_LOSS, "thing: flag is out of its bounds"));

TEST(a_number_out_of_its_bounds_is_refused)
{
    static const int32_t wrong[] = { -4, 6, INT32_MIN, INT32_MAX };

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        refuses_with(FIRST_FIELD + 2, &wrong[i], 4, PD_DATA_LOSS, "thing: level is out of its bounds");
}

/* Returns the offset of `text` in the image. Fails if the text is not there. */
static size_t find(const uint8_t *image, size_t n, const char *text)
{
    size_t length = strlen(text);

    for (size_t at = 0; at + length <= n; at++)
        if (memcmp(image + at, text, length) == 0) return at;
    fail_msg("%s is not in the image", text);
    return 0;
}

TEST(a_text_with_a_nul_inside_is_refused)
{
    size_t n, at;
    uint8_t *image = some_image(&n);

    at = find(image, n, "any text");
    free(image);
    refuses_with(at + 2, "", 1, PD_DATA_LOSS, "text is no text");
}

TEST(a_list_longer_than_it_may_be_is_refused)
{
    size_t n, at;
    uint8_t *image = some_image(&n);

    at = find(image, n, "any text") + strlen("any text");
    free(image);
    refuses_with(at, &(uint64_t){ ARCHIVED_MOST + 1 }, 8, PD_DATA_LOSS, "expected at most 8");
}

TEST(a_false_count_asks_for_no_memory)
{
    pd_archive archive;
    uint8_t *image;
    size_t n, many = (size_t)1 << 40;

    pd_archive_begin_write(&archive);
    pd_archive_count(&archive, &many, SIZE_MAX, 1);
    assert_int_equal(pd_archive_end(&archive, &image, &n, NULL), PD_OK);
    pd_archive_begin_read(&archive, image, n);
    pd_archive_count(&archive, &many, SIZE_MAX, 1);
    assert_int_equal(many, 0);
    assert_int_equal(pd_archive_end(&archive, NULL, NULL, NULL), PD_DATA_LOSS);
    free(image);
}

TEST(an_image_of_something_else_is_refused_with_both_texts)
{
    pd_archive archive;
    pd_error err = { 0 };
    uint8_t *image;
    size_t n;

    pd_archive_begin_write(&archive);
    pd_archive_agree(&archive, "optimizer", "adam");
    assert_int_equal(pd_archive_end(&archive, &image, &n, NULL), PD_OK);
    pd_archive_begin_read(&archive, image, n);
    pd_archive_agree(&archive, "optimizer", "sgd");
    assert_int_equal(pd_archive_end(&archive, NULL, NULL, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "optimizer is sgd here, but adam in the image");
    free(image);
}

TEST(the_first_error_counts_and_later_visits_change_nothing)
{
    pd_archive archive;
    pd_error err = { 0 };
    uint64_t value = 7;

    pd_archive_begin_read(&archive, "", 0);
    pd_archive_value(&archive, &value);
    assert_int_equal(pd_archive_fail(&archive, PD_INTERNAL, "later"), PD_DATA_LOSS);
    assert_int_equal(pd_archive_end(&archive, NULL, NULL, &err), PD_DATA_LOSS);
    assert_int_equal(value, 7);
}

static int write_once(const void *what)
{
    archived thing = *(const archived *)what;
    uint8_t *image;
    size_t n;
    int rc = archived_write(&thing, &image, &n, NULL);

    if (rc != PD_OK) assert_null(image);
    free(image);
    return rc;
}

TEST(memory_that_fails_while_writing_gives_no_image)
{
    archived thing = some_thing();

    assert_true(oom_each(write_once, &thing) > 0);
}

typedef struct bytes {
    const uint8_t *at;
    size_t n;
} bytes;

static int read_once(const void *what)
{
    const bytes *image = what;
    archived thing;
    int rc = archived_read(&thing, image->at, image->n, NULL);

    archived_free(&thing);
    return rc;
}

TEST(memory_that_fails_while_reading_is_an_error)
{
    size_t n;
    uint8_t *image = some_image(&n);

    /* reading the object allocates four times: the text, the list, two labels */
    assert_int_equal(oom_each(read_once, &(bytes){ image, n }), 4);
    free(image);
}
