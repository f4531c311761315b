/* Tests the answer to Optimizers: it lists every optimizer once, in pages that fit into the header of a frame. */
#include "test.h"
#include "optimizers.h"
#include "optimizer_ops.h"

enum { ROWS = 40, HYPERS = 47 };

/* 40 optimizers with 47 hyperparameters each. Long texts make each optimizer about 10 KiB. */
static pd_hyper hypers[HYPERS + 1];
static pd_optimizer_ops rows[ROWS];
static char names[ROWS][16], hyper_names[HYPERS][64];
static pd_error err;

static const pd_optimizer_ops *row_at(size_t index)
{
    return index < ROWS ? &rows[index] : NULL;
}
static const pd_optimizer_ops *no_row_at(size_t index)
{
    (void)index;
    return NULL;
}

static int set_up(void **state)
{
    (void)state;
    for (int h = 0; h < HYPERS; h++) {
        snprintf(hyper_names[h], sizeof hyper_names[h], "a_rather_long_name_of_hyperparameter_%d", h);
        hypers[h] = (pd_hyper){
            hyper_names[h],
            h % 2 == 0 ? PD_REAL : PD_INT,
            h,
            -1,
            1e6,
            h == 5 ? "ready" : NULL,
            "what it means, told in a line that is about as long as the longest lines of real optimizers are",
            h % 3 == 0,
            false
        };
    }
    for (int r = 0; r < ROWS; r++) {
        snprintf(names[r], sizeof names[r], "row_%d", r);
        rows[r] = (pd_optimizer_ops){ .name = names[r], .about = "one of many", .hypers = hypers };
    }
    return 0;
}

static Paramd__OptimizersReply *page(pd_optimizer_at *at, uint32_t start, const char *name)
{
    Paramd__OptimizersReply *reply = NULL;

    if (pd_optimizers_page(&reply, at, start, name, &err) != PD_OK) fail_msg("%s", err.text);
    return reply;
}

static size_t packed_bytes(const Paramd__OptimizersReply *reply)
{
    return protobuf_c_message_get_packed_size(&reply->base);
}

TEST(pages_hold_every_row_once_and_fit)
{
    size_t seen = 0, pages = 0;
    uint32_t start = 0;

    do {
        Paramd__OptimizersReply *reply = page(row_at, start, "");
        assert_true(packed_bytes(reply) <= PD_MAX_HEADER_BYTES);
        assert_true(reply->n_optimizers > 0);
        for (size_t i = 0; i < reply->n_optimizers; i++) {
            assert_string_equal(reply->optimizers[i]->name, names[seen++]);
            assert_int_equal(reply->optimizers[i]->n_hypers, HYPERS);
        }
        assert_true(reply->next == 0 || reply->next == seen);
        start = reply->next;
        pages++;
        pd_optimizers_free(reply);
    } while (start != 0);
    assert_int_equal(seen, ROWS);
    assert_true(pages > 4);
}

/* A page ends only when the next optimizer no longer fits. */
TEST(pages_are_full)
{
    Paramd__OptimizersReply *first = page(row_at, 0, ""), *next = page(row_at, first->next, "");

    assert_true(packed_bytes(first) + protobuf_c_message_get_packed_size(&next->optimizers[0]->base) >
                PD_OPTIMIZERS_BYTES - 500);
    pd_optimizers_free(first);
    pd_optimizers_free(next);
}

TEST(a_name_gives_that_one_alone)
{
    Paramd__OptimizersReply *reply = page(row_at, 0, "row_37");

    assert_int_equal(reply->n_optimizers, 1);
    assert_string_equal(reply->optimizers[0]->name, "row_37");
    assert_int_equal(reply->next, 0);
    pd_optimizers_free(reply);
}

TEST(a_name_that_nobody_has_gets_the_list)
{
    Paramd__OptimizersReply *reply = NULL;

    assert_int_equal(pd_optimizers_page(&reply, row_at, 0, "row", &err), PD_NOT_FOUND);
    assert_non_null(strstr(err.text, "there is no optimizer row; there are: row_0, row_1,"));
    assert_null(reply);
}

TEST(behind_the_end_is_an_empty_last_page)
{
    static const uint32_t starts[] = { ROWS, ROWS + 1, UINT32_MAX };

    for (int i = 0; i < 3; i++) {
        Paramd__OptimizersReply *reply = page(row_at, starts[i], "");
        assert_int_equal(reply->n_optimizers, 0);
        assert_int_equal(reply->next, 0);
        pd_optimizers_free(reply);
    }
    pd_optimizers_free(page(no_row_at, 0, ""));
}

TEST(a_hyperparameter_is_told_whole)
{
    Paramd__OptimizersReply *reply = page(row_at, 3, "row_3");
    const Paramd__Hyper *hyper = reply->optimizers[0]->hypers[5];

    assert_string_equal(hyper->name, hyper_names[5]);
    assert_string_equal(hyper->type, "int");
    assert_string_equal(hyper->preset, "5");
    assert_string_equal(hyper->choices, "ready");
    assert_true(hyper->least == -1 && hyper->most == 1e6 && !hyper->per_step &&
                reply->optimizers[0]->hypers[6]->per_step);
    assert_string_equal(hyper->help, hypers[5].help);
    pd_optimizers_free(reply);
}

TEST(every_row_of_the_table_fits_a_page)
{
    for (size_t i = 0; pd_optim_at(i) != NULL; i++) {
        Paramd__OptimizersReply *reply = page(pd_optim_at, 0, pd_optimizer_name(pd_optim_at(i)));
        if (packed_bytes(reply) > PD_OPTIMIZERS_BYTES)
            fail_msg("%s: %zu bytes", pd_optimizer_name(pd_optim_at(i)), packed_bytes(reply));
        pd_optimizers_free(reply);
    }
}

TEST(without_memory_there_is_no_page)
{
    int64_t n;

    for (n = 0;; n++) {
        Paramd__OptimizersReply *reply = NULL;
        bool failed;
        int rc;
        oom_arm(n);
        rc = pd_optimizers_page(&reply, row_at, 0, "", &err);
        failed = oom_disarm();
        pd_optimizers_free(reply);
        if (!failed) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(reply);
    }
    assert_true(n > 4);
}

/* Returns the bytes of a page as pd_optimizers_packed_page gives it, unpacked again. */
static Paramd__OptimizersReply *packed_page(pd_packed_optimizers *packed, uint32_t start, const char *name)
{
    Paramd__OptimizersReply reply, *read;
    uint8_t *bytes;
    size_t n;

    if (pd_optimizers_packed_page(&reply, packed, start, name, &err) != PD_OK) fail_msg("%s", err.text);
    n = packed_bytes(&reply);
    bytes = malloc(n + 1);
    assert_true(n <= PD_MAX_HEADER_BYTES);
    assert_int_equal(protobuf_c_message_pack(&reply.base, bytes), n);
    read = paramd__optimizers_reply__unpack(NULL, n, bytes);
    assert_non_null(read);
    assert_int_equal(read->base.n_unknown_fields, 0);
    free(bytes);
    return read;
}

static void expect_same_page(pd_optimizer_at *at, pd_packed_optimizers *packed, uint32_t start, const char *name)
{
    Paramd__OptimizersReply *expected = page(at, start, name), *read = packed_page(packed, start, name);
    size_t n = packed_bytes(expected);
    uint8_t *left = malloc(n + 1), *right = malloc(n + 1);

    assert_int_equal(packed_bytes(read), n);
    assert_int_equal(read->n_optimizers, expected->n_optimizers);
    protobuf_c_message_pack(&expected->base, left);
    protobuf_c_message_pack(&read->base, right);
    assert_memory_equal(left, right, n);
    free(left);
    free(right);
    pd_optimizers_free(expected);
    paramd__optimizers_reply__free_unpacked(read, NULL);
}

TEST(packed_pages_are_the_same_pages)
{
    static pd_optimizer_at *const tables[] = { row_at, no_row_at, pd_optim_at };

    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        pd_packed_optimizers *packed = pd_optimizers_pack(tables[t]);
        uint32_t n = 0;
        assert_non_null(packed);
        for (; tables[t](n) != NULL; n++) {
            expect_same_page(tables[t], packed, n, "");
            expect_same_page(tables[t], packed, 0, pd_optimizer_name(tables[t](n)));
        }
        expect_same_page(tables[t], packed, n, "");
        expect_same_page(tables[t], packed, UINT32_MAX, "");
        pd_packed_optimizers_free(packed);
    }
}

TEST(a_packed_page_allocates_nothing)
{
    pd_packed_optimizers *packed = pd_optimizers_pack(pd_optim_at);
    int64_t before = oom_allocations();
    Paramd__OptimizersReply reply;

    assert_int_equal(pd_optimizers_packed_page(&reply, packed, 0, "", &err), PD_OK);
    assert_int_equal(pd_optimizers_packed_page(&reply, packed, 0, "no_such", &err), PD_NOT_FOUND);
    assert_int_equal(oom_allocations(), before);
    assert_non_null(strstr(err.text, "there is no optimizer no_such; there are: "));
    pd_packed_optimizers_free(packed);
}

TEST(without_memory_nothing_is_packed)
{
    pd_packed_optimizers *packed;
    bool failed;
    int64_t n = 0;

    do {
        oom_arm(n++);
        packed = pd_optimizers_pack(row_at);
        failed = oom_disarm();
        assert_int_equal(packed == NULL, failed);
        pd_packed_optimizers_free(packed);
    } while (failed);
    assert_true(n > 2 * ROWS);
}

GROUP(set_up, NULL);
