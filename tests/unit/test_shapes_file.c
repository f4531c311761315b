/* Tests the three kinds of shape files, and the errors for files of no known kind. */
#include "test.h"
#include "shapes_file.h"
#include "tracefile.h"

/* Writes `bytes` bytes from `at` to a new file. `path` gets the name of the file. */
static void put(char path[64], const void *at, size_t bytes)
{
    int fd;

    strcpy(path, "/tmp/paramd_shapes_XXXXXX");
    assert_true((fd = mkstemp(path)) >= 0);
    assert_int_equal(write(fd, at, bytes), bytes);
    close(fd);
}

static int read_bytes(pd_shapes *out, const void *at, size_t bytes, pd_error *err)
{
    char path[64];
    int rc;

    put(path, at, bytes);
    rc = pd_shapes_read(out, path, err);
    unlink(path);
    return rc;
}

static pd_shapes shapes_of(const char *text)
{
    pd_shapes shapes;
    pd_error err = { 0 };

    if (read_bytes(&shapes, text, strlen(text), &err) != PD_OK) fail_msg("%s", err.text);
    return shapes;
}

static void assert_entry(const pd_shapes *shapes, size_t i, const char *name, const char *shape)
{
    char text[192];

    assert_true(i < shapes->n);
    assert_string_equal(shapes->entries[i].name, name);
    assert_string_equal(pd_shape_text(&shapes->entries[i].shape, text, sizeof text), shape);
}

static void assert_refused(const void *at, size_t bytes, int code, const char *part)
{
    pd_shapes shapes;
    pd_error err = { 0 };

    assert_int_equal(read_bytes(&shapes, at, bytes, &err), code);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(shapes.entries);
    assert_int_equal(shapes.n, 0);
}

TEST(a_line_is_a_name_and_its_dimensions)
{
    pd_shapes shapes = shapes_of("wte 50257 768\nh.0/w\t3 4\t5 \r\n");

    assert_int_equal(shapes.n, 2);
    assert_entry(&shapes, 0, "wte", "(50257, 768)");
    assert_entry(&shapes, 1, "h.0/w", "(3, 4, 5)");
    assert_int_equal(shapes.entries[0].elements, 50257 * 768);
    assert_int_equal(shapes.entries[1].line, 2);
    pd_shapes_free(&shapes);
}

TEST(a_name_alone_is_a_scalar)
{
    pd_shapes shapes = shapes_of("scale");

    assert_int_equal(shapes.n, 1);
    assert_entry(&shapes, 0, "scale", "()");
    assert_int_equal(shapes.entries[0].elements, 1);
    pd_shapes_free(&shapes);
}

TEST(blank_lines_and_comments_count_for_nothing_but_lines)
{
    pd_shapes shapes = shapes_of("# a model\n\n   \t\nw 2 # 3 4\n  # w 5\nb#1 6\n");

    assert_int_equal(shapes.n, 2);
    assert_entry(&shapes, 0, "w", "(2,)");
    assert_entry(&shapes, 1, "b#1", "(6,)");
    assert_int_equal(shapes.entries[1].line, 6);
    pd_shapes_free(&shapes);
}

/* Checks the n entries that are read from `text`. Each expected entry is a name, a shape and axes (NULL: no axes). */
static void assert_reads(const char *text, size_t n, const char *const (*expected)[3])
{
    pd_shapes shapes = shapes_of(text);

    assert_int_equal(shapes.n, n);
    for (size_t i = 0; i < n; i++) {
        assert_entry(&shapes, i, expected[i][0], expected[i][1]);
        if (expected[i][2] == NULL)
            assert_null(shapes.entries[i].axes);
        else
            assert_string_equal(shapes.entries[i].axes, expected[i][2]);
    }
    pd_shapes_free(&shapes);
}

TEST(a_line_may_end_with_the_names_of_its_axes)
{
    static const char *const expected[][3] = { { "w", "(3, 4)", "embed,mlp" },
                                               { "b", "(4,)", NULL },
                                               { "s", "()", NULL } };

    assert_reads("w 3 4 axes=embed,mlp # so\nb 4\ns axes=\n", 3, expected);
}

TEST(json_may_name_axes_beside_a_shape)
{
    static const char *const expected[][3] = { { "w", "(3, 4)", "embed,mlp" },
                                               { "v", "(5,)", NULL },
                                               { "b", "(4,)", NULL } };

    assert_reads("{\"w\": {\"shape\": [3, 4], \"axes\": \"embed,mlp\"}, \"v\": {\"shape\": [5]}, \"b\": [4]}", 3,
                 expected);
}

TEST(axes_that_a_job_would_refuse_are_refused)
{
    static const char *const bad[][2] = {
        { "v 2\nw 3 4 axes=embed", ":2: w: axes: expected a name for each of 2 dimensions, got 1" },
        { "w 3 axes=a-b", ":1: w: axes: axis 0: expected" },
        { "w 3 axes=a 4", ":1: w: unexpected text after axes=" },
        { "{\"w\": {\"shape\": [3], \"axes\": \"a,b\"}}", "w: axes: expected a name for each of 1 dimensions" },
        { "{\"w\": {\"axes\": \"a\"}}", "w: expected a list" },
        { "{\"w\": {\"shape\": [3], \"axes\": 3}}", "w: axes: expected a string" },
    };

    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_refused(bad[i][0], strlen(bad[i][0]), PD_INVALID_ARGUMENT, bad[i][1]);
}

TEST(json_is_an_object_of_lists)
{
    pd_shapes shapes = shapes_of("\n {\"z w\": [3, 4], \"a\": []}\n");

    assert_int_equal(shapes.n, 2);
    assert_entry(&shapes, 0, "z w", "(3, 4)");
    assert_entry(&shapes, 1, "a", "()");
    pd_shapes_free(&shapes);
}

TEST(a_checkpoint_gives_its_floating_point_tensors)
{
    static const float values[3] = { 1, 2, 3 };
    static const int32_t ids[3] = { 0, 1, 2 };
    tracefile file = { 0 };
    pd_shapes shapes;
    char path[64];

    tracefile_add(&file, "b", values, 3);
    tracefile_add_typed(&file, "ids", PD_ST_I32, ids, 3);
    tracefile_add(&file, "scale", values, 0);
    tracefile_write(&file, path);
    assert_int_equal(pd_shapes_read(&shapes, path, NULL), PD_OK);
    unlink(path);
    assert_int_equal(shapes.n, 2);
    assert_int_equal(shapes.left_out, 1);
    assert_entry(&shapes, 0, "b", "(3,)");
    assert_entry(&shapes, 1, "scale", "()");
    pd_shapes_free(&shapes);
}

typedef struct bad {
    const char *text;
    int code;
    const char *says;
} bad;

static void assert_each_is_refused(const bad *list, size_t n)
{
    for (size_t i = 0; i < n; i++) assert_refused(list[i].text, strlen(list[i].text), list[i].code, list[i].says);
}

TEST(a_bad_line_is_named_by_its_number)
{
    static const bad list[] = {
        { "w 2\nb 3x\n", PD_INVALID_ARGUMENT, ":2: b: expected a dimension, a whole number, not \"3x\"" },
        { "w -2", PD_INVALID_ARGUMENT, ":1: w: expected a dimension" },
        { "w 1.5", PD_INVALID_ARGUMENT, "1.5" },
        { "w 1 2 3 4 5 6 7 8 9", PD_INVALID_ARGUMENT, "more than 8 dimensions" },
        { "\n\nw 0 3", PD_INVALID_ARGUMENT, ":3: w: shape (0, 3) has no elements" },
        { "w 9223372036854775808", PD_INVALID_ARGUMENT, "19 digits does not fit" },
        { "w 184467440737095516160", PD_INVALID_ARGUMENT, "21 digits does not fit" },
        { "w 4294967296 4294967296", PD_INVALID_ARGUMENT, "does not fit 64 bits" },
        { "w 2\nv 3\nw 4", PD_INVALID_ARGUMENT, ":3: w: duplicate name, first in line 1" },
        { "w\x01 2", PD_INVALID_ARGUMENT, "control character at byte 1" },
        { "w\xff 2", PD_INVALID_ARGUMENT, "not UTF-8" },
        { "# nothing\n\n", PD_INVALID_ARGUMENT, "no parameter" },
        { "", PD_INVALID_ARGUMENT, "empty" },
    };

    assert_each_is_refused(list, sizeof list / sizeof *list);
}

TEST(bad_json_is_told_where_it_is_bad)
{
    static const bad list[] = {
        { "{\"w\": [1],\n\"b\" [2]}", PD_INVALID_ARGUMENT, ":2: JSON" },
        { "{\"w\": [1], \"w\": [2]}", PD_INVALID_ARGUMENT, "duplicate" },
        { "{\"w\": 3}", PD_INVALID_ARGUMENT, "w: expected a list" },
        { "{\"w\": [1,1,1,1,1,1,1,1,1]}", PD_INVALID_ARGUMENT, "w: expected a list of at most 8" },
        { "{\"w\": [2, 1.5]}", PD_INVALID_ARGUMENT, "w: dimension 1 is not a whole number" },
        { "{\"w\": [-1]}", PD_INVALID_ARGUMENT, "w: dimension 0 is not a whole number" },
        { "{\"w\": [0]}", PD_INVALID_ARGUMENT, "no elements" },
        { "{\"\": [1]}", PD_INVALID_ARGUMENT, "a name of 0 bytes" },
        { "{\"a\\nb\": [1]}", PD_INVALID_ARGUMENT, "control character" },
        { "{}", PD_INVALID_ARGUMENT, "no parameter" },
    };

    assert_each_is_refused(list, sizeof list / sizeof *list);
}

TEST(a_name_may_have_256_bytes)
{
    char text[300];
    pd_shapes shapes;

    memset(text, 'n', sizeof text);
    text[256] = '\0';
    shapes = shapes_of(text);
    assert_int_equal(strlen(shapes.entries[0].name), 256);
    pd_shapes_free(&shapes);
    assert_refused(text, 257, PD_INVALID_ARGUMENT, "NUL at byte 256");
    text[256] = 'n';
    assert_refused(text, 257, PD_INVALID_ARGUMENT, "a name of 257 bytes");
}

TEST(parameters_are_counted_before_memory_is_asked_for)
{
    size_t bytes = 9 * (PD_SHAPES_MAX + 1);
    char *text = malloc(bytes + 1);

    assert_non_null(text);
    for (int i = 0; i <= PD_SHAPES_MAX; i++) sprintf(text + 9 * i, "w%07d\n", i);
    assert_refused(text, bytes, PD_RESOURCE_EXHAUSTED, ":1048577: more than 1048576 parameters");
    free(text);
}

TEST(binary_files_are_held_to_be_safetensors)
{
    static const uint8_t lies[12] = { 200, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
    static const char words[] = "w 2 3\nv 4\n\0 5";

    assert_refused(lies, sizeof lies, PD_INVALID_ARGUMENT, "safetensors");
    assert_refused(words, sizeof words, PD_INVALID_ARGUMENT, "NUL at byte 10");
}

TEST(what_is_no_file_is_said)
{
    pd_shapes shapes;
    pd_error err;

    assert_int_equal(pd_shapes_read(&shapes, "/tmp/no/such/file", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "/tmp/no/such/file"));
    assert_int_equal(pd_shapes_read(&shapes, "/tmp", &err), PD_INVALID_ARGUMENT);
}

TEST(out_of_memory_leaves_nothing)
{
    char path[64], text[8000], *at = text;

    for (int i = 0; i < 200; i++) at += sprintf(at, "layer.%d.w 3 4%s\n", i, i % 2 == 0 ? " axes=a,b" : "");
    put(path, text, (size_t)(at - text));
    for (int64_t n = 0;; n++) {
        pd_shapes shapes;
        oom_arm(n);
        int rc = pd_shapes_read(&shapes, path, NULL);
        if (!oom_disarm()) {
            assert_int_equal(rc, PD_OK);
            assert_int_equal(shapes.n, 200);
            pd_shapes_free(&shapes);
            break;
        }
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(shapes.entries);
    }
    unlink(path);
}
