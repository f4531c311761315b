/* Tests that pd_client_abi tells sizes and offsets of the public structs, in the order that client.h promises. */
#include "test.h"
#include "paramd/client.h"
#include "paramd/diloco.h"
#include "paramd/optim.h"

enum { STRUCTS = 13, MOST = 256 };

/* What the test knows of a struct by itself: its size, the offset of its last field, and where that field ends. */
typedef struct known {
    size_t size, last, end;
} known;

#define KNOWN(type, field)                                                                                             \
    {                                                                                                                  \
        sizeof(type), offsetof(type, field), offsetof(type, field) + sizeof(((type *)0)->field)                        \
    }

static const known structs[STRUCTS] = {
    KNOWN(pd_error, text),
    KNOWN(pd_shape, dim),
    KNOWN(pd_client_options, tcp_congestion),
    KNOWN(pd_welcome, generation),
    KNOWN(pd_client_param, fragment),
    KNOWN(pd_item, version),
    KNOWN(pd_scalar, weight),
    KNOWN(pd_push_options, form),
    KNOWN(pd_client_stats, replayed),
    KNOWN(pd_item_count, counted),
    KNOWN(pd_diloco_options, weigh_tokens),
    KNOWN(pd_diloco_due, take),
    KNOWN(pd_diloco_status, speed),
};

TEST(every_struct_has_its_size_and_its_fields)
{
    size_t numbers[MOST], n = pd_client_abi(numbers, MOST), at = 0;

    assert_true(n <= MOST);
    for (int i = 0; i < STRUCTS; i++) {
        size_t fields = numbers[at + 1];
        assert_int_equal(numbers[at], structs[i].size);
        assert_true(fields >= 2);
        assert_int_equal(numbers[at + 2], 0);
        for (size_t k = 1; k < fields; k++) assert_true(numbers[at + 2 + k] > numbers[at + 1 + k]);
        assert_int_equal(numbers[at + 1 + fields], structs[i].last);
        at += 2 + fields;
    }
    assert_int_equal(at, n);
}

TEST(no_field_is_left_out_at_the_end_of_a_struct)
{
    for (int i = 0; i < STRUCTS; i++) assert_true(structs[i].size - structs[i].end < sizeof(double));
}

TEST(only_as_many_numbers_are_written_as_there_is_room_for)
{
    size_t numbers[4] = { 7, 7, 7, 7 }, all = pd_client_abi(NULL, 0);

    assert_int_equal(pd_client_abi(numbers, 2), all);
    assert_int_equal(numbers[0], sizeof(pd_error));
    assert_int_equal(numbers[1], 2);
    assert_int_equal(numbers[2], 7);
}

TEST(older_names_of_fields_and_functions_mean_the_same)
{
    pd_push_options options = { .note = "old", .note_bytes = 3 };
    size_t count, older;

    assert_ptr_equal(options.worker_state, options.note);
    assert_int_equal(options.worker_state_bytes, 3);
    assert_ptr_equal((void *)pd_client_worker_state, (void *)pd_client_recall);
    assert_string_equal(pd_row_name(pd_optim_at(0)), pd_optimizer_name(pd_optim_at(0)));
    assert_string_equal(pd_row_about(pd_optim_at(0)), pd_optimizer_about(pd_optim_at(0)));
    assert_ptr_equal(pd_row_hypers(pd_optim_at(0), &older), pd_optimizer_hypers(pd_optim_at(0), &count));
    assert_int_equal(older, count);
}
