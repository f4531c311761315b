/* Tests how the lists that operators ask for are cut into pages. */
#include "test.h"
#include "listing.h"
#include "rig.h"
#include "store_inside.h"
#include "job_figures.h"

enum { PARAMS = 60 };

static uint64_t counted;

static uint64_t entries_of(const pd_param *param)
{
    return param->index >= 50 ? 300 : param->index % 4;
}

/* Returns the number of list entries of a parameter: i % 4 for parameter i, and 300 from parameter 50 on. */
static uint64_t count(const pd_param *param)
{
    counted++;
    return entries_of(param);
}

/* Every third item is an entry. */
static uint64_t items(const pd_param *param)
{
    return 3 * entries_of(param);
}

static bool is_entry(const pd_param *param, uint64_t item)
{
    (void)param;
    return item % 3 == 2;
}

/* Appends an entry to the page, which holds the index of its parameter and its number in this parameter. */
static void fill(pd_info *info, const pd_param *param, uint64_t item)
{
    assert_true(info->n_roots < PD_INFO_PAGE);
    info->roots[info->n_roots].age = param->index;
    info->roots[info->n_roots++].adopted = item / 3;
}

static void fill_every(pd_info *info, const pd_param *param, uint64_t item)
{
    fill(info, param, 3 * item);
}

static const pd_list_kind lasting = { items, is_entry, count, fill, .lasting = true },
                          passing = { items, is_entry, count, fill, .lasting = false },
                          every = { count, NULL, count, fill_every, .lasting = true };

static pd_job *start(rig *r)
{
    int64_t sizes[PARAMS];

    for (int i = 0; i < PARAMS; i++) sizes[i] = 4;
    return inside_job(r->store, rig_start(r, "j", 1, 1, sizes, PARAMS, NULL, NULL));
}

/* Makes a page in parts of `part_ns` by estimate. Returns the number of parts. */
static size_t make_page(pd_info *info, pd_job *job, const pd_list_kind *kind, const char *pattern, uint64_t from,
                        double part_ns)
{
    pd_listing_walk walk;
    pd_error err;
    size_t parts = 1;

    *info = (pd_info){ .start = from, .roots = calloc(PD_INFO_PAGE, sizeof *info->roots) };
    assert_non_null(info->roots);
    assert_int_equal(pd_listing_begin(&walk, job, kind, pattern, &err), PD_OK);
    for (double budget_ns = part_ns; !pd_listing_some(&walk, info, job, &budget_ns); budget_ns = part_ns) parts++;
    assert_true(pd_listing_fits(&walk, job));
    pd_listing_end(&walk, job);
    return parts;
}

static void get_page(pd_info *info, pd_job *job, const pd_list_kind *kind, const char *pattern, uint64_t from)
{
    assert_int_equal(make_page(info, job, kind, pattern, from, 1e9), 1);
}

static void ask(pd_job *job, const pd_list_kind *kind, const char *pattern, uint64_t from)
{
    pd_info info;

    get_page(&info, job, kind, pattern, from);
    free(info.roots);
}

static void assert_pages(pd_job *job, const pd_list_kind *kind, const char *pattern, size_t step, double part_ns)
{
    pd_info info = { .total = 1 };
    uint64_t at = 0, param = UINT64_MAX, number = 0;

    for (uint64_t from = 0; from < info.total; from += step) {
        make_page(&info, job, kind, pattern, from, part_ns);
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

FIXTURE(rig, rig_make, rig_free);

TEST(pages_give_every_entry_once_and_in_order, rig *r)
{
    pd_job *job = start(r);
    pd_info info;

    get_page(&info, job, &lasting, "", 0);
    assert_int_equal(info.total, 12 * (1 + 2 + 3) + 1 + 10 * 300);
    free(info.roots);
    assert_pages(job, &lasting, "", PD_INFO_PAGE, 1e9);
    assert_pages(job, &lasting, "", 7, 1e9);
    assert_pages(job, &every, "", 7, 1e9);
    assert_pages(job, &lasting, "p?5", 3, 1e9);
}

TEST(pages_made_in_parts_are_the_same, rig *r)
{
    pd_job *job = start(r);
    pd_info info;

    assert_pages(job, &passing, "", 100, 1);
    assert_pages(job, &passing, "", 100, 2000);
    assert_pages(job, &every, "", 100, 1);
    assert_pages(job, &lasting, "p?5", 3, 1);
    assert_true(make_page(&info, job, &passing, "p*", 0, 1000) > PARAMS / 10);
    free(info.roots);
}

/* Two pages of different lists are made in turn: each has an index of its own. */
TEST(pages_under_way_do_not_share_an_index, rig *r)
{
    pd_job *job = start(r);
    pd_listing_walk a, b;
    pd_info page[2] = { { .roots = calloc(PD_INFO_PAGE, sizeof *page->roots) },
                        { .roots = calloc(PD_INFO_PAGE, sizeof *page->roots) } };
    bool done[2] = { false, false };

    ask(job, &lasting, "", 0);
    assert_int_equal(pd_listing_begin(&a, job, &lasting, "", NULL), PD_OK);
    assert_int_equal(pd_listing_begin(&b, job, &lasting, "p55", NULL), PD_OK);
    while (!done[0] || !done[1]) {
        double budget_ns = 500;
        if (!done[0]) done[0] = pd_listing_some(&a, &page[0], job, &budget_ns);
        budget_ns = 500;
        if (!done[1]) done[1] = pd_listing_some(&b, &page[1], job, &budget_ns);
        job->steps.changes++;
    }
    pd_listing_end(&b, job);
    pd_listing_end(&a, job);
    assert_int_equal(page[0].total, 3073);
    assert_int_equal(page[1].total, 300);
    assert_int_equal(page[1].n_roots, PD_INFO_PAGE);
    free(page[0].roots);
    free(page[1].roots);
}

TEST(a_pattern_beyond_256_bytes_is_refused, rig *r)
{
    pd_job *job = start(r);
    pd_listing_walk walk;
    pd_error err = { 0 };
    char pattern[PD_GLOB_MAX + 2];

    memset(pattern, '*', sizeof pattern);
    pattern[sizeof pattern - 1] = '\0';
    assert_int_equal(pd_listing_begin(&walk, job, &lasting, pattern, &err), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(err.text, "has 257 bytes; expected at most 256"));
    pd_listing_end(&walk, NULL);
    pattern[PD_GLOB_MAX] = '\0';
    ask(job, &lasting, pattern, 0);
}

TEST(a_page_behind_the_last_entry_is_empty, rig *r)
{
    pd_job *job = start(r);
    pd_info info;

    get_page(&info, job, &lasting, NULL, 1000000);
    assert_int_equal(info.n_roots, 0);
    assert_int_equal(info.total, 3073);
    free(info.roots);
}

TEST(the_second_page_does_not_count_all_parameters_again, rig *r)
{
    pd_job *job = start(r);

    ask(job, &lasting, "", 0);
    counted = 0;
    ask(job, &lasting, "", 2900);
    assert_true(counted <= 32);
}

TEST(another_pattern_is_counted_anew, rig *r)
{
    pd_job *job = start(r);
    pd_info info;

    ask(job, &lasting, "", 0);
    get_page(&info, job, &lasting, "p55", 0);
    assert_int_equal(info.total, 300);
    free(info.roots);
}

TEST(what_a_job_changes_is_counted_anew_when_it_has_changed, rig *r)
{
    pd_job *job = start(r);

    ask(job, &passing, "", 0);
    job->steps.changes++;
    counted = 0;
    ask(job, &passing, "", 0);
    assert_true(counted >= PARAMS);
}

/* Counts the sums of a job in parts. Returns the number of parts. */
static size_t count_sums(pd_job *job, double part_ns)
{
    pd_totals_count counting = { 0 };
    size_t parts = 1;

    for (double budget_ns = part_ns; !pd_totals_some(&counting, job, &budget_ns); budget_ns = part_ns) parts++;
    return parts;
}

TEST(sums_follow_the_steps_of_a_job, rig *r)
{
    pd_job *job = start(r);
    float ones[4] = { 1, 1, 1, 1 };

    count_sums(job, 1e9);
    assert_int_equal(job->figures.totals.step_most, 0);
    assert_int_equal(job->figures.totals.elements, 4 * PARAMS);
    rig_push(r, job->steps.number, 0, 1, 1, 5, ones, 4);
    rig_work(r);
    assert_int_equal(count_sums(job, 1), PARAMS);
    assert_int_equal(job->figures.totals.step_most, 1);
    assert_int_equal(job->figures.totals.step_least, 0);
    assert_int_equal(job->figures.totals.elements, 4 * PARAMS);
    assert_int_equal(count_sums(job, 1), 1); /* they are valid still */
}

TEST(the_lowest_step_is_that_of_the_last_parameter, rig *r)
{
    pd_job *job = start(r);
    float ones[4] = { 1, 1, 1, 1 };

    assert_int_equal(pd_steps_least(&job->steps), 0);
    for (uint64_t step = 1; step <= 3; step++) {
        for (uint32_t i = 0; i < PARAMS; i++) {
            rig_push(r, job->steps.number, 0, 1, step, (i * 7 + 3) % PARAMS, ones, 4);
            rig_work(r);
            assert_int_equal(pd_steps_least(&job->steps), i + 1 < PARAMS ? step - 1 : step);
        }
    }
}

TEST(a_status_of_an_unchanged_job_does_not_look_at_its_parameters, rig *r)
{
    pd_job *job = start(r);
    uint64_t least = rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].step_least;

    job->steps.params[3].saved.step = 77; /* behind its back */
    assert_int_equal(rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].step_least, least);
    assert_int_equal(rig_ask(r, PD_INFO_STATUS, NULL)->jobs[0].step_most, 0);
    job->steps.params[3].saved.step = 0;
}

TEST(a_status_counts_connected_workers_and_bytes_in_flight, rig *r)
{
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
