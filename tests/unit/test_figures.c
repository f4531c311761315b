/* Tests the points of a job's past: how many are kept, and what they say. */
#include "test.h"
#include "figures.h"

#define SECOND 1000000000ull

/* Publishes the figures of job 1 at a step, so many seconds after the start. */
static void publish(pd_figures *figures, uint64_t step, double seconds)
{
    pd_job_stats *stats = pd_job_stats_new(0);

    snprintf(stats->info.name, sizeof stats->info.name, "j");
    stats->info.step_least = step;
    stats->info.loss = 1.0 / (double)(step + 1);
    stats->info.loss_step = step;
    stats->info.steps_per_second = 2;
    stats->at_ns = stats->step_ns = stats->waits_ns = (uint64_t)(seconds * 1e9);
    pd_figures_take(figures, 1, stats);
}

TEST(the_past_has_at_most_512_points_and_keeps_its_whole_length)
{
    pd_figures figures = { 0 };
    const pd_history *history;

    for (uint64_t step = 1; step <= 5000; step++) {
        publish(&figures, step, (double)step);
        assert_true(figures.first->history.n <= PD_HISTORY_POINTS);
    }
    history = &figures.first->history;
    assert_true(history->n > PD_HISTORY_POINTS / 2);
    assert_true(history->at[0].step <= 16);
    assert_true(history->at[history->n - 1].step > 5000 - 16);
    for (size_t i = 1; i < history->n; i++) assert_true(history->at[i].step > history->at[i - 1].step);
    pd_figures_free(&figures);
}

/* Publishes the figures of a job, of which so many ranks have come. */
static void publish_ranks(pd_figures *figures, uint32_t job, uint32_t ranks)
{
    pd_job_stats *stats = pd_job_stats_new(ranks < PD_STATS_RANKS ? ranks : PD_STATS_RANKS);

    snprintf(stats->info.name, sizeof stats->info.name, "j%u", job);
    stats->workers_in[PD_COUNT_CONNECTED] = ranks / 2;
    stats->workers_in[PD_COUNT_LEFT] = ranks - ranks / 2;
    for (uint32_t r = 0; r < stats->n_ranks; r++) stats->ranks[r].info.rank = r;
    pd_figures_take(figures, job, stats);
}

TEST(figures_of_ranks_have_room_for_all_jobs_together)
{
    pd_figures figures = { 0 };
    const pd_figure *last;

    for (int again = 0; again < 3; again++)
        for (uint32_t job = 1; job <= 1000; job++) publish_ranks(&figures, job, 300);
    assert_in_range(figures.ranks, PD_FIGURES_RANKS / 4 * 3, PD_FIGURES_RANKS);
    assert_int_equal(figures.ranks + figures.left_out, 1000 * 300);
    assert_int_equal(figures.first->stats->n_ranks, PD_STATS_RANKS);
    assert_int_equal(figures.first->left_out, 300 - PD_STATS_RANKS);
    publish_ranks(&figures, 2000, 3); /* a small job that comes late */
    last = figures.first->prev;
    assert_int_equal(last->stats->n_ranks + last->left_out, 3);
    for (uint32_t job = 1; job <= 1000; job++) pd_figures_remove(&figures, job);
    publish_ranks(&figures, 2000, 3);
    assert_int_equal(figures.ranks, 3);
    assert_int_equal(figures.left_out, 0);
    pd_figures_free(&figures);
}

TEST(a_job_whose_ranks_found_no_room_gets_it_when_others_end)
{
    pd_figures figures = { 0 };

    for (uint32_t job = 1; job <= 1000; job++) publish_ranks(&figures, job, 256);
    assert_true(figures.first->prev->stats->n_ranks < 8);
    for (uint32_t job = 1; job <= 500; job++) pd_figures_remove(&figures, job);
    publish_ranks(&figures, 1000, 256);
    assert_int_equal(figures.first->prev->stats->n_ranks, 256);
    pd_figures_free(&figures);
}

TEST(a_point_has_the_mean_time_of_the_steps_since_the_one_before)
{
    pd_figures figures = { 0 };

    publish(&figures, 1, 1);
    publish(&figures, 5, 2);
    assert_true(isnan(figures.first->history.at[0].ms_per_step));
    assert_float_equal(figures.first->history.at[1].ms_per_step, 250, 1e-9);
    assert_float_equal(figures.first->history.at[1].loss, 1.0 / 6, 0);
    assert_true(isnan(figures.first->history.at[1].gradient_norm));
    pd_figures_free(&figures);
}

TEST(a_copy_without_a_new_step_gives_no_point)
{
    pd_figures figures = { 0 };

    publish(&figures, 1, 1);
    publish(&figures, 1, 1);
    assert_int_equal(figures.first->history.n, 1);
    pd_figures_free(&figures);
}

TEST(steps_that_are_taken_again_replace_those_before)
{
    pd_figures figures = { 0 };

    for (uint64_t step = 1; step <= 10; step++) publish(&figures, step, (double)step);
    publish(&figures, 4, 11);
    publish(&figures, 5, 12);
    assert_int_equal(figures.first->history.n, 5);
    assert_int_equal(figures.first->history.at[4].step, 5);
    pd_figures_free(&figures);
}

static void add_job(pd_figures *figures, uint32_t job)
{
    pd_job_stats *stats = pd_job_stats_new(0);

    snprintf(stats->info.name, sizeof stats->info.name, "j%u", job);
    pd_figures_take(figures, job, stats);
}

static void expect_next(const pd_figures *figures, pd_figures_place *place, uint32_t job)
{
    const pd_figure *next = pd_figures_next(figures, place);

    assert_non_null(next);
    assert_int_equal(next->job, job);
}

TEST(jobs_are_found_one_after_another_although_they_come_and_go)
{
    pd_figures figures = { 0 };
    pd_figures_place place = { 0 }, other;

    for (uint32_t job = 1; job <= 5; job++) add_job(&figures, job);
    expect_next(&figures, &place, 1);
    pd_figures_remove(&figures, 2); /* the next one */
    expect_next(&figures, &place, 3);
    pd_figures_remove(&figures, 3); /* the one at which we are */
    other = place;
    expect_next(&figures, &place, 4);
    expect_next(&figures, &other, 4);
    add_job(&figures, 6);
    expect_next(&figures, &place, 5);
    pd_figures_remove(&figures, 1); /* one behind us */
    expect_next(&figures, &place, 6);
    assert_null(pd_figures_next(&figures, &place));
    pd_figures_remove(&figures, 6);
    assert_null(pd_figures_next(&figures, &place));
    pd_figures_free(&figures);
}

TEST(a_job_under_a_new_number_takes_the_place_of_its_namesake)
{
    pd_figures figures = { 0 };
    pd_job_stats *stats = pd_job_stats_new(0);

    publish(&figures, 1, 1);
    snprintf(stats->info.name, sizeof stats->info.name, "j");
    pd_figures_take(&figures, 7, stats);
    assert_int_equal(figures.first->job, 7);
    assert_null(figures.first->next);
    pd_figures_free(&figures);
}

TEST(figures_hold_for_the_time_of_their_copy_while_a_newer_one_may_come)
{
    pd_figures figures = { 0 };
    const pd_job_stats *stats;

    publish(&figures, 1, 1);
    stats = figures.first->stats;
    assert_float_equal(pd_figure_speed(stats, 2 * SECOND + SECOND / 2), 2, 0);
    assert_int_equal(pd_figure_wait(stats, 2 * SECOND + SECOND / 2), 0);
    pd_figures_free(&figures);
}

TEST(a_job_that_stands_still_becomes_slower)
{
    pd_figures figures = { 0 };
    const pd_job_stats *stats;

    publish(&figures, 1, 1);
    stats = figures.first->stats;
    assert_float_equal(pd_figure_speed(stats, 11 * SECOND), 0.1, 1e-12);
    assert_int_equal(pd_figure_wait(stats, 11 * SECOND), 10 * SECOND);
    pd_figures_free(&figures);
}
