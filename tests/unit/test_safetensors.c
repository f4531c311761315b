/* Tests which safetensors files are read, and that other programs can read the files that we write. */
#include <sys/mman.h>

#include "test.h"
#include "golden.h"
#include "safetensors.h"

/* Makes a safetensors file from a header and `data` bytes of data. Returns the file; *bytes is its size. */
static uint8_t *make_file(const char *header, size_t data, size_t *bytes)
{
    size_t n = strlen(header);
    uint8_t *file = calloc(1, 8 + n + data);

    for (int i = 0; i < 8; i++) file[i] = (uint8_t)((uint64_t)n >> (8 * i));
    memcpy(file + 8, header, n);
    for (size_t i = 0; i < data; i++) file[8 + n + i] = (uint8_t)i;
    *bytes = 8 + n + data;
    return file;
}

static void assert_refuses(const char *header, size_t data, const char *names)
{
    pd_safetensors *read = NULL;
    pd_error err = { 0 };
    size_t bytes;
    uint8_t *file = make_file(header, data, &bytes);

    assert_int_equal(pd_safetensors_read(&read, file, bytes, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, names) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, names);
    assert_null(read);
    free(file);
}

TEST(reads_tensors_in_the_order_of_their_data)
{
    size_t bytes, n;
    uint8_t *file = make_file(
        "{\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]},\"__metadata__\":{\"case\":\"one\"},"
        "\"a/ü\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[0,4]}}   ",
        12, &bytes);
    pd_safetensors *read;

    assert_int_equal(pd_safetensors_read(&read, file, bytes, NULL), PD_OK);
    const pd_st_tensor *tensors = pd_safetensors_tensors(read, &n);
    assert_int_equal(n, 2);
    assert_string_equal(tensors[0].name, "a/ü");
    assert_int_equal(tensors[0].dtype, PD_ST_BF16);
    assert_int_equal(tensors[0].shape.rank, 2);
    assert_int_equal(tensors[0].shape.dim[1], 2);
    assert_ptr_equal(pd_safetensors_find(read, "b"), &tensors[1]);
    assert_int_equal(*(const uint8_t *)pd_safetensors_data(read, &tensors[1]), 4);
    assert_string_equal(pd_safetensors_meta(read, "case"), "one");
    assert_null(pd_safetensors_find(read, "c"));
    assert_null(pd_safetensors_meta(read, "b"));
    pd_safetensors_free(read);
    free(file);
}

TEST(takes_scalars_empty_tensors_and_no_tensors)
{
    size_t bytes, n;
    uint8_t *file = make_file("{\"s\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},\"e\":{\"dtype\":\"I8\","
                              "\"shape\":[3,0],\"data_offsets\":[8,8]},"
                              "\"d\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                              8, &bytes);
    pd_safetensors *read;

    assert_int_equal(pd_safetensors_read(&read, file, bytes, NULL), PD_OK);
    pd_safetensors_tensors(read, &n);
    assert_int_equal(n, 3);
    assert_int_equal(pd_safetensors_find(read, "s")->bytes, 8);
    assert_null(pd_safetensors_meta(read, "case"));
    pd_safetensors_free(read);
    free(file);
    file = make_file("{}", 0, &bytes);
    assert_int_equal(pd_safetensors_read(&read, file, bytes, NULL), PD_OK);
    pd_safetensors_free(read);
    free(file);
}

TEST(refuses_what_is_no_header)
{
    assert_refuses("", 0, "begin with {");
    assert_refuses(" {}", 0, "begin with {");
    assert_refuses("[]", 0, "begin with {");
    assert_refuses("{", 0, "header");
    assert_refuses("{}x", 0, "header");
    assert_refuses("{\"a\":\"\\u0000\"}", 0, "header");
    assert_refuses("{\"a\xff\":{}}", 0, "header");
}

TEST(refuses_a_length_that_is_longer_than_the_file)
{
    static const uint8_t lengths[][8] = { { 3, 0, 0, 0, 0, 0, 0, 0 },
                                          { 0, 0, 0, 0, 0, 0, 0, 0x80 },
                                          { 255, 255, 255, 255, 255, 255, 255, 255 } };
    uint8_t file[10] = { 0 };
    pd_safetensors *read;
    pd_error err;

    for (int i = 0; i < 3; i++) {
        memcpy(file, lengths[i], 8);
        assert_int_equal(pd_safetensors_read(&read, file, sizeof file, &err), PD_INVALID_ARGUMENT);
        assert_non_null(strstr(err.text, "in a file of 10"));
    }
    assert_int_equal(pd_safetensors_read(&read, file, 7, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_safetensors_read(&read, file, 0, &err), PD_INVALID_ARGUMENT);
}

TEST(refuses_a_header_that_is_too_long)
{
    size_t bytes = 8 + (size_t)PD_ST_MAX_HEADER + 8;
    uint8_t *file = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pd_safetensors *read;

    assert_ptr_not_equal(file, MAP_FAILED);
    file[0] = 8;
    file[3] = PD_ST_MAX_HEADER >> 24;
    assert_int_equal(pd_safetensors_read(&read, file, bytes, NULL), PD_RESOURCE_EXHAUSTED);
    munmap(file, bytes);
}

#define TENSOR(name, dtype, shape, begin, end)                                                                         \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

TEST(refuses_a_name_twice)
{
    assert_refuses("{" TENSOR("a", "U8", "[1]", "0", "1") "," TENSOR("a", "U8", "[1]", "1", "2") "}", 2, "duplicate");
    assert_refuses("{" TENSOR("a", "U8", "[1]", "0", "1") "," TENSOR("\\u0061", "U8", "[1]", "1", "2") "}", 2,
                   "duplicate");
}

TEST(refuses_entries_that_are_not_tensors)
{
    assert_refuses("{\"a\":1}", 0, "tensor a: expected dtype");
    assert_refuses("{\"a\":{\"dtype\":4}}", 0, "tensor a: expected dtype");
    assert_refuses("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, "tensor a: expected a shape");
    assert_refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "tensor a: expected data_offsets");
    assert_refuses("{" TENSOR("a", "F4", "[1]", "0", "1") "}", 1, "unknown dtype F4");
    assert_refuses("{" TENSOR("a", "U8", "[1.0]", "0", "1") "}", 1, "dimension 0 is not a number");
    assert_refuses("{" TENSOR("a", "U8", "[-1]", "0", "1") "}", 1, "dimension 0 is not a number");
    assert_refuses("{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", "0", "1") "}", 1, "at most 8 dimensions");
    assert_refuses("{\"__metadata__\":{\"a\":1}}", 0, "expected text");
    assert_refuses("{\"__metadata__\":[]}", 0, "no object");
}

TEST(refuses_a_size_that_is_not_the_shapes)
{
    assert_refuses("{" TENSOR("a", "F32", "[2]", "0", "4") "}", 4, "4 bytes of data: its shape and dtype F32 need 8");
    assert_refuses("{" TENSOR("a", "F32", "[4294967296,4294967296]", "0", "0") "}", 0, "too large");
    assert_refuses("{" TENSOR("a", "F32", "[4611686018427387904]", "0", "0") "}", 0, "too large");
    assert_refuses("{" TENSOR("a", "F32", "[1]", "4", "0") "}", 4, "data_offsets");
    assert_refuses("{" TENSOR("a", "F32", "[1]", "-4", "0") "}", 4, "data_offsets");
    assert_refuses("{" TENSOR("a", "U8", "[9223372036854775808]", "0", "1") "}", 1, "header");
}

TEST(refuses_data_with_holes_overlaps_or_a_rest)
{
    assert_refuses("{" TENSOR("a", "U8", "[1]", "0", "1") "," TENSOR("b", "U8", "[1]", "2", "3") "}", 3,
                   "tensor b: its data begins at 2, that before it ends at 1");
    assert_refuses("{" TENSOR("a", "U8", "[2]", "0", "2") "," TENSOR("b", "U8", "[2]", "1", "3") "}", 3,
                   "tensor b: its data begins at 1, that before it ends at 2");
    assert_refuses("{" TENSOR("a", "U8", "[1]", "1", "2") "}", 2, "begins at 1");
    assert_refuses("{" TENSOR("a", "U8", "[2]", "0", "2") "}", 3, "up to byte 2, the file has 3");
    assert_refuses("{" TENSOR("a", "U8", "[4]", "0", "4") "}", 3, "up to byte 4, the file has 3");
    assert_refuses("{}", 1, "up to byte 0, the file has 1");
}

static pd_st_tensor tensor_of(const char *name, pd_st_dtype dtype, int rank, int64_t a, int64_t b)
{
    return (pd_st_tensor){ .name = name, .dtype = dtype, .shape = { .rank = rank, .dim = { a, b } } };
}

/* The file equals, byte for byte, what the Python package safetensors 0.8.0 writes for the same tensors and
 * metadata. */
TEST(writes_the_reference_writers_bytes)
{
    static const char expected[] = "\xa8\x01\0\0\0\0\0\0{\"__metadata__\":{\"format\":\"np\"},\"i\":{\"dtype\":\"I64\","
                                   "\"shape\":[1],\"data_offsets\":[0,8]},"
                                   "\"w\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[8,16]},\"a\":{\"dtype\":"
                                   "\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]},"
                                   "\"b\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[40,40]},\"h\":{\"dtype\":"
                                   "\"F16\",\"shape\":[1],\"data_offsets\":[40,42]},"
                                   "\"gr\xc3\xb6\\\"\\n\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[42,45]},"
                                   "\"aa\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[45,46]}} ";
    pd_st_tensor tensors[] = { tensor_of("b", PD_ST_F32, 1, 0, 0),     tensor_of("aa", PD_ST_BOOL, 1, 1, 0),
                               tensor_of("a", PD_ST_F32, 2, 2, 3),     tensor_of("w", PD_ST_F64, 0, 0, 0),
                               tensor_of("i", PD_ST_I64, 1, 1, 0),     tensor_of("h", PD_ST_F16, 1, 1, 0),
                               tensor_of("grö\"\n", PD_ST_U8, 1, 3, 0) };
    pd_st_meta meta = { "format", "np" };
    uint8_t *header;
    size_t bytes;

    assert_int_equal(pd_safetensors_header(&header, &bytes, tensors, 7, &meta, 1, NULL), PD_OK);
    assert_int_equal(bytes, sizeof expected - 1);
    assert_memory_equal(header, expected, bytes);
    assert_string_equal(tensors[2].name, "a");
    assert_int_equal(tensors[2].offset, 16);
    assert_int_equal(tensors[2].bytes, 24);
    free(header);
}

TEST(reads_what_it_writes)
{
    pd_st_tensor tensors[] = { tensor_of("quote\"\\\n", PD_ST_F16, 1, 5, 0), tensor_of("größe", PD_ST_I64, 1, 2, 0) };
    pd_st_meta meta[] = { { "a", "" }, { "b", "{\"json\": [1]}" } };
    pd_safetensors *read;
    uint8_t *file;
    size_t bytes, n;

    assert_int_equal(pd_safetensors_header(&file, &bytes, tensors, 2, meta, 2, NULL), PD_OK);
    file = realloc(file, bytes + 26);
    memset(file + bytes, 7, 26);
    assert_int_equal(pd_safetensors_read(&read, file, bytes + 26, NULL), PD_OK);
    assert_int_equal(pd_safetensors_tensors(read, &n)[0].dtype, PD_ST_I64);
    assert_int_equal(pd_safetensors_find(read, "quote\"\\\n")->offset, 16);
    assert_string_equal(pd_safetensors_meta(read, "b"), "{\"json\": [1]}");
    pd_safetensors_free(read);
    free(file);
}

static void assert_not_written(pd_st_tensor *tensors, size_t n, const pd_st_meta *meta, size_t n_meta,
                               const char *names)
{
    uint8_t *header = NULL;
    size_t bytes;
    pd_error err = { 0 };

    assert_int_equal(pd_safetensors_header(&header, &bytes, tensors, n, meta, n_meta, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, names) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, names);
    assert_null(header);
}

TEST(refuses_to_write_what_it_would_not_read)
{
    pd_st_tensor same[] = { tensor_of("a", PD_ST_F32, 1, 1, 0), tensor_of("a", PD_ST_F16, 1, 1, 0) };
    pd_st_tensor apart[] = { tensor_of("a", PD_ST_F32, 1, 1, 0), tensor_of("b", PD_ST_F32, 1, 1, 0),
                             tensor_of("a", PD_ST_U8, 1, 1, 0) };
    pd_st_meta meta[] = { { "k", "1" }, { "k", "2" } }, bad = { "k", "\xff" }, bad_key = { "\xff", "v" };

    assert_not_written(same, 2, NULL, 0, "tensor a: duplicate name");
    assert_not_written(apart, 3, NULL, 0, "tensor a: duplicate name");
    assert_not_written((pd_st_tensor[]){ tensor_of("__metadata__", PD_ST_F32, 1, 1, 0) }, 1, NULL, 0, "__metadata__");
    assert_not_written((pd_st_tensor[]){ tensor_of("\xff", PD_ST_F32, 1, 1, 0) }, 1, NULL, 0, "not UTF-8");
    assert_not_written((pd_st_tensor[]){ tensor_of("a", PD_ST_DTYPES, 1, 1, 0) }, 1, NULL, 0, "dtype");
    assert_not_written((pd_st_tensor[]){ tensor_of("a", PD_ST_F32, 1, -1, 0) }, 1, NULL, 0, "shape");
    assert_not_written((pd_st_tensor[]){ tensor_of("a", PD_ST_F32, 9, 1, 0) }, 1, NULL, 0, "shape");
    assert_not_written(NULL, 0, meta, 2, "metadata k: the name is a duplicate");
    assert_not_written(NULL, 0, &bad, 1, "metadata k: the value is not UTF-8");
    assert_not_written(NULL, 0, &bad_key, 1, "the name is not UTF-8");
}

TEST(every_dtype_has_a_name_and_a_size)
{
    for (int i = 0; i < PD_ST_DTYPES; i++) {
        assert_in_range(pd_st_dtype_size((pd_st_dtype)i), 1, 8);
        assert_true(i == 0 || pd_st_dtype_size((pd_st_dtype)i) >=
                                  pd_st_dtype_size((pd_st_dtype)(i - 1))); /* alignment by order */
        assert_string_not_equal(pd_st_dtype_name((pd_st_dtype)i), "?");
    }
    assert_string_equal(pd_st_dtype_name(PD_ST_F32), "F32");
    assert_string_equal(pd_st_dtype_name(PD_ST_F16), "F16");
    assert_string_equal(pd_st_dtype_name(PD_ST_BF16), "BF16");
    assert_int_equal(pd_st_dtype_size(PD_ST_DTYPES), 0);
}

TEST(without_memory_it_neither_reads_nor_writes)
{
    pd_st_tensor tensors[] = { tensor_of("a", PD_ST_F32, 1, 0, 0), tensor_of("b", PD_ST_F16, 1, 0, 0) };
    pd_st_meta meta = { "k", "v" };
    uint8_t *header = NULL;
    size_t bytes;
    bool failed = true;

    for (int64_t n = 0; failed; n++) {
        oom_arm(n);
        int rc = pd_safetensors_header(&header, &bytes, tensors, 2, &meta, 1, NULL);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        assert_int_equal(header == NULL, failed);
    }
    failed = true;
    for (int64_t n = 0; failed; n++) {
        pd_safetensors *file = NULL;
        oom_arm(n);
        int rc = pd_safetensors_read(&file, header, bytes, NULL);
        failed = oom_disarm();
        assert_int_equal(rc, failed ? PD_NO_MEMORY : PD_OK);
        assert_int_equal(file == NULL, failed);
        pd_safetensors_free(file);
    }
    free(header);
}

TEST(reads_every_golden_trace)
{
    static const char *const systems[] = {
        "google_shampoo", "meta_shampoo", "t5x_adafactor", "distributed_kron", "torch_optim", "trax_average",
        "soap",           "muon",         "psgd"
    };
    static golden_list found;
    int read_in_all = 0;

    for (size_t s = 0; s < sizeof systems / sizeof *systems; s++) {
        golden_list_of(&found, systems[s]);
        read_in_all += found.n;
        for (int i = 0; i < found.n; i++) {
            pd_safetensors *read;
            pd_error err = { 0 };
            size_t bytes, n;
            uint8_t *file = golden_read(found.path[i], &bytes);
            if (pd_safetensors_read(&read, file, bytes, &err) != PD_OK) fail_msg("%s: %s", found.path[i], err.text);
            pd_safetensors_tensors(read, &n);
            assert_true(n > 0);
            assert_non_null(pd_safetensors_meta(read, "system"));
            pd_safetensors_free(read);
            free(file);
        }
    }
    assert_true(read_in_all > 100);
}
