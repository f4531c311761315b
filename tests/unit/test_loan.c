/* Tests the segment that a worker lends to the daemon: where payloads lie in it, and how long they can be read. */
#include "test.h"
#include "descriptors.h"
#include "frame.h"
#include "payloads.h"

enum { BYTES = 10 * 4096 + 100 };

static const pd_platform alone; /* a platform without other threads */

static pd_loan *lent(void)
{
    pd_loan *loan;
    pd_error err;

    if (pd_loan_new(&loan, memfd_sealed(BYTES, 5), BYTES, &err) != PD_OK) fail_msg("%s", err.text);
    return loan;
}

TEST(has_the_places_inside_it_and_no_others)
{
    static const uint32_t places[] = { 0, 1, 7, 640, 641, 642, 643, 1u << 20, UINT32_MAX };
    static const uint64_t lengths[] = { 0, 1, 63, 64, 65, 100, 4096, BYTES - 64, BYTES, BYTES + 1, UINT64_MAX };
    pd_loan *loan = lent();

    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            uint64_t first = (uint64_t)places[i] * PD_PAYLOAD_ALIGN;
            bool inside = first < BYTES && lengths[k] <= BYTES - first;
            assert_int_equal(pd_loan_has(loan, places[i], lengths[k]), inside);
        }
    pd_loan_unref(loan, &alone);
}

TEST(a_buffer_has_the_workers_bytes_at_its_place)
{
    pd_loan *loan = lent();
    pd_buffer *buffer = pd_loan_buffer(loan, 9, 3, 1000);

    for (uint64_t i = 0; i < 1000; i++) assert_int_equal(buffer->at[i], (uint8_t)((3 * 64 + i) * 7 + 5));
    pd_loan_return(buffer, &alone);
    pd_loan_unref(loan, &alone);
}

TEST(a_buffer_is_charged_with_nothing)
{
    pd_loan *loan = lent();
    pd_buffer *buffer = pd_loan_buffer(loan, 9, 3, 1000);

    assert_int_equal(buffer->charged, 0);
    assert_int_equal(buffer->conn, 9);
    assert_int_equal(buffer->size, 1000);
    assert_ptr_equal(buffer->lender, loan);
    pd_loan_return(buffer, &alone);
    pd_loan_unref(loan, &alone);
}

/* A platform that keeps its tasks until the test runs them. */
static pd_background *task;
static int tasks;
static bool busy; /* no task can be started */

static bool keep_task(void *arg, pd_background *work)
{
    (void)arg;
    if (busy) return false;
    task = work;
    tasks++;
    return true;
}

static const pd_platform threads = { .background = keep_task };

static int forget_tasks(void **state)
{
    (void)state;
    task = NULL;
    tasks = 0;
    busy = false;
    return 0;
}

EACH_TEST(forget_tasks, NULL);

TEST(a_payload_can_be_read_after_its_connection_has_ended)
{
    pd_loan *loan = lent();
    pd_buffer *buffer = pd_loan_buffer(loan, 9, 1, 500);

    pd_loan_unref(loan, &threads);
    assert_int_equal(tasks, 0);
    assert_int_equal(buffer->at[499], (uint8_t)((64 + 499) * 7 + 5));
    pd_loan_return(buffer, &alone);
}

TEST(any_order_of_returns_unmaps_it_once_and_last)
{
    enum { BUFFERS = 4 };

    for (unsigned last = 0; last <= BUFFERS; last++) {
        pd_loan *loan = lent();
        pd_buffer *buffers[BUFFERS];
        forget_tasks(NULL);
        for (uint32_t i = 0; i < BUFFERS; i++) buffers[i] = pd_loan_buffer(loan, 9, i, 64);
        for (unsigned i = last + 1; i < last + 1 + BUFFERS; i++) {
            assert_int_equal(tasks, 0);
            if (i % (BUFFERS + 1) == BUFFERS)
                pd_loan_unref(loan, &threads);
            else
                pd_loan_return(buffers[i % (BUFFERS + 1)], &threads);
        }
        assert_int_equal(tasks, 0);
        if (last == BUFFERS)
            pd_loan_unref(loan, &threads);
        else
            pd_loan_return(buffers[last], &threads);
        assert_int_equal(tasks, 1);
        task->run(task);
        task->done(task);
    }
}

TEST(it_is_unmapped_at_once_where_no_thread_is_free)
{
    pd_loan *loan = lent();

    busy = true;
    pd_loan_unref(loan, &threads); /* the leak sanitizer sees it if nothing is freed */
    assert_int_equal(tasks, 0);
}

TEST(no_loan_may_be_dropped)
{
    pd_loan_unref(NULL, &threads);
    assert_int_equal(tasks, 0);
}

TEST(the_descriptor_is_closed_once_it_is_mapped)
{
    int before = descriptors_open(0);
    pd_loan *loan = lent();

    assert_int_equal(descriptors_open(0), before);
    pd_loan_unref(loan, &alone);
}

TEST(a_descriptor_that_is_refused_is_closed)
{
    int before = descriptors_open(0);
    pd_loan *loan;

    assert_int_equal(pd_loan_new(&loan, memfd_sealed(BYTES, 5), BYTES + 1, NULL), PD_INVALID_ARGUMENT);
    assert_int_equal(descriptors_open(0), before);
}

static int lend_and_borrow(const void *what)
{
    pd_loan *loan = NULL;
    int rc = pd_loan_new(&loan, memfd_sealed(BYTES, 5), BYTES, NULL);
    pd_buffer *buffer = rc == PD_OK ? pd_loan_buffer(loan, 1, 0, 64) : NULL;

    (void)what;
    if (rc == PD_OK && buffer == NULL) rc = PD_NO_MEMORY;
    if (buffer != NULL) pd_loan_return(buffer, &alone);
    pd_loan_unref(loan, &alone);
    return rc;
}

TEST(says_that_memory_is_out_and_keeps_no_descriptor)
{
    int before = descriptors_open(0);

    assert_true(oom_each(lend_and_borrow, NULL) >= 2);
    assert_int_equal(descriptors_open(0), before);
}
