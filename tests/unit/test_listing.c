/* Tests how the lists that operators ask for are cut into pages. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "listing.h"
#include "rig.h"
#include "store_inside.h"

enum { PARAMS = 60 };

static uint64_t counted;

/* Returns the number of list entries of a parameter: i % 4 for parameter i, and 300 from parameter 50 on. */
static uint64_t count(const pd_param *param)
{
    counted++;
    return param->index >= 50 ? 300 : param->index % 4;
}

/* Appends the parameter's entries to the page, beginning with entry `first`. An entry holds the index of its
 * parameter and its number in this parameter. */
static void fill(pd_info *info, const pd_param *param, uint64_t first)
{
    uint64_t n = param->index >= 50 ? 300 : param->index % 4;

    for (; first < n && info->n_roots < PD_INFO_PAGE; first++) {
        info->roots[info->n_roots].age = param->index;
        info->roots[info->n_roots++].adopted = first;
    }
}

static const pd_list_kind lasting = { count, fill, .lasting = true }, passing = { count, fill, .lasting = false };

static pd_job *start(rig *r)
{
    int64_t sizes[PARAMS];

    for (int i = 0; i < PARAMS; i++) sizes[i] = 4;
    return inside_job(r->store, rig_start(r, "j", 1, 1, sizes, PARAMS, NULL, NULL));
}

static void get_page(pd_info *info, pd_job *job, const pd_list_kind *kind, const char *pattern, uint64_t from)
{
    *info = (pd_info){ .start = from, .roots = calloc(PD_INFO_PAGE, sizeof *info->roots) };
    assert_non_null(info->roots);
    assert_int_equal(pd_listing_page(info, job, kind, pattern), PD_OK);
}

static void ask(pd_job *job, const pd_list_kind *kind, const char *pattern, uint64_t from)
{
    pd_info info;

    get_page(&info, job, kind, pattern, from);
    free(info.roots);
}

static void assert_pages(pd_job *job, const char *pattern, size_t step)
{
    pd_info info = { .total = 1 };
    uint64_t at = 0, param = UINT64_MAX, number = 0;

    for (uint64_t from = 0; from < info.total; from += step) {
        get_page(&info, job, &lasting, pattern, from);
        assert_true(info.n_roots > 0 && (info.n_roots == PD_INFO_PAGE || from + info.n_roots == info.total));
        for (size_t i = 0; i < info.n_roots && i < step; i++, at++) {
            number = info.roots[i].age == param ? number + 1 : 0;
            param = info.roots[i].age;
            assert_int_equal(info.roots[i].adopted, number);
        }
        free(info.roots);
    }
    assert_int_equal(at, info.total);
}

static void pages_give_every_entry_once_and_in_order(void **state)
{
    pd_job *job = start(*state);
    pd_info info;

    get_page(&info, job, &lasting, "", 0);
    assert_int_equal(info.total, 12 * (1 + 2 + 3) + 1 + 10 * 300);
    free(info.roots);
    assert_pages(job, "", PD_INFO_PAGE);
    assert_pages(job, "", 7);
    assert_pages(job, "p?5", 3);
}

static void a_page_behind_the_last_entry_is_empty(void **state)
{
    pd_job *job = start(*state);
    pd_info info;

    get_page(&info, job, &lasting, NULL, 1000000);
    assert_int_equal(info.n_roots, 0);
    assert_int_equal(info.total, 3073);
    free(info.roots);
}

static void the_second_page_does_not_count_all_parameters_again(void **state)
{
    pd_job *job = start(*state);

    ask(job, &lasting, "", 0);
    counted = 0;
    ask(job, &lasting, "", 2900);
    assert_true(counted <= 32);
}

static void another_pattern_is_counted_anew(void **state)
{
    pd_job *job = start(*state);
    pd_info info;

    ask(job, &lasting, "", 0);
    get_page(&info, job, &lasting, "p55", 0);
    assert_int_equal(info.total, 300);
    free(info.roots);
}

static void what_a_job_changes_is_counted_anew_when_it_has_changed(void **state)
{
    pd_job *job = start(*state);

    ask(job, &passing, "", 0);
    job->steps.changes++;
    counted = 0;
    ask(job, &passing, "", 0);
    assert_true(counted >= PARAMS);
}

static void sums_follow_the_steps_of_a_job(void **state)
{
    rig *r = *state;
    pd_job *job = start(r);
    float ones[4] = { 1, 1, 1, 1 };

    assert_int_equal(pd_job_count_totals(job)->step_most, 0);
    assert_int_equal(pd_job_count_totals(job)->elements, 4 * PARAMS);
    rig_push(r, job->steps.number, 0, 1, 1, 5, ones, 4);
    rig_work(r);
    assert_int_equal(pd_job_count_totals(job)->step_most, 1);
    assert_int_equal(pd_job_count_totals(job)->step_least, 0);
}

static void a_status_of_an_unchanged_job_does_not_look_at_its_parameters(void **state)
{
    rig *r = *state;
    pd_job *job = start(r);
    uint64_t least = rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].step_least;

    job->steps.params[3].saved.step = 77; /* behind its back */
    assert_int_equal(rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].step_least, least);
    assert_int_equal(rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].step_most, 0);
    job->steps.params[3].saved.step = 0;
}

static void a_status_counts_connected_workers_and_bytes_in_flight(void **state)
{
    rig *r = *state;
    int64_t size = 4;
    uint32_t job = rig_start(r, "two", 2, 1, &size, 1, NULL, NULL);
    float ones[4] = { 1, 1, 1, 1 };
    pd_request *lost = pd_request_new(PD_REQ_LOST, (pd_ticket){ 2, 0 });

    rig_push(r, job, 0, 1, 1, 0, ones, 4);
    assert_int_equal(rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].connected, 2);
    assert_int_equal(rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].held_bytes, r->bytes_out[1]);
    lost->job = job;
    lost->rank = 1;
    rig_apply(r, lost);
    assert_int_equal(rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].connected, 1);
    rig_push(r, job, 1, 2, 1, 0, ones, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(pages_give_every_entry_once_and_in_order, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(a_page_behind_the_last_entry_is_empty, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(the_second_page_does_not_count_all_parameters_again, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(another_pattern_is_counted_anew, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(what_a_job_changes_is_counted_anew_when_it_has_changed, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(sums_follow_the_steps_of_a_job, rig_set_up, rig_tear_down),
        cmocka_unit_test_setup_teardown(a_status_of_an_unchanged_job_does_not_look_at_its_parameters, rig_set_up,
                                        rig_tear_down),
        cmocka_unit_test_setup_teardown(a_status_counts_connected_workers_and_bytes_in_flight, rig_set_up,
                                        rig_tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
