/* Tests jobs whose aggregate collects all contributions: which requests are refused, where contributions wait, when
 * their memory is freed, which figures are reported, and that no worker waits for long. */
#include "test.h"
#include "collecting.h"
#include "optimizer.h"
#include "optimizer_ops.h"
#include "rig.h"
#include "store_inside.h"

enum { CHUNK = 64, CONN = COLLECTING_CONN };

static int hello(rig *r, uint32_t world, const char *options)
{
    return rig_hello(r, "job", 0, world, 1, CONN, options, "* sgd lr=1");
}

FIXTURE(rig, rig_make, rig_free);

TEST(hello_refuses_unsuitable_world_sizes)
{
    static const struct {
        uint32_t world;
        const char *options;
        int rc;
        const char *word;
    } cases[] = {
        { 3, "aggregate=adasum", PD_OK, NULL }, /* Adasum needs a power of two of contributors. Ranks may still
                                                 * declare shards with two contributors, so it is not refused yet */
        { 2, "aggregate=trimmed_mean", PD_INVALID_ARGUMENT, "less than half" },
        { 3, "aggregate=trimmed_mean", PD_OK, NULL },
        { 4, "aggregate=trimmed_mean trim=2", PD_INVALID_ARGUMENT, "trim = 2" },
        { 5, "aggregate=trimmed_mean trim=2", PD_OK, NULL },
        { 5, "aggregate=trimmed_mean trim=4096", PD_INVALID_ARGUMENT, "trim = 4096" },
        { 1, "aggregate=trimmed_mean trim=0", PD_OK, NULL },
        { 5, "aggregate=trimmed_mean trim=-1", PD_INVALID_ARGUMENT, "whole number" },
        { 2, "aggregate=median trim=9", PD_OK, NULL },
        { 2, "adasum_fold=maybe", PD_INVALID_ARGUMENT, "no|yes" },
    };
    pd_store_config config = rig_config();
    rig r;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_new(&r, &config);
        assert_int_equal(hello(&r, cases[i].world, cases[i].options), cases[i].rc);
        if (cases[i].word != NULL && strstr(r.error.text, cases[i].word) == NULL)
            fail_msg("case %zu: %s", i, r.error.text);
        assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->n_jobs, cases[i].rc == PD_OK);
        rig_free(&r);
    }
}

TEST(ranks_of_a_job_agree_on_the_aggregate_and_its_keys, rig *r)
{
    assert_int_equal(hello(r, 4, "aggregate=adasum"), PD_OK);
    assert_int_equal(rig_hello(r, "job", 1, 4, 2, 11, "aggregate=adasum_vdot", "* sgd lr=1"), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "aggregate = adasum, "));
    assert_int_equal(rig_hello(r, "job", 1, 4, 2, 11, "aggregate=adasum trim=2", "* sgd lr=1"), PD_FAILED_PRECONDITION);
    assert_int_equal(rig_hello(r, "job", 1, 4, 2, 11, "aggregate=adasum", "* sgd lr=1"), PD_OK);
}

static int declare_range(rig *r, uint32_t rank, int64_t start, int64_t end)
{
    return rig_declare_range(r, rank, CONN + rank, "w", &(pd_shape){ 1, { 100 } }, (rig_range){ start, end });
}

/* With the range of the last rank, three ranks contribute to elements of the first half, so Adasum refuses it. An empty
 * range is accepted. */
TEST(adasum_refuses_ranges_that_leave_no_power_of_two)
{
    static const rig_range fine[] = { { 0, 100 }, { 0, 50 }, { 50, 100 } };
    static const char *const options[] = { "aggregate=adasum", "aggregate=adasum adasum_fold=yes",
                                           "aggregate=adasum_vdot" };
    pd_store_config config = rig_config();
    rig r;

    for (int i = 0; i < 3; i++) {
        rig_new(&r, &config);
        for (uint32_t rank = 0; rank < 4; rank++)
            assert_int_equal(rig_hello(&r, "job", rank, 4, rank + 1, CONN + rank, options[i], "* sgd lr=1"), PD_OK);
        for (uint32_t rank = 0; rank < 3; rank++)
            assert_int_equal(declare_range(&r, rank, fine[rank].start, fine[rank].end), PD_OK);
        assert_int_equal(declare_range(&r, 3, 20, 60), i == 0 ? PD_FAILED_PRECONDITION : PD_OK);
        if (i == 0) assert_non_null(strstr(r.error.text, "3 ranks contribute elements 20 to 50"));
        if (i == 0)
            assert_int_equal(declare_range(&r, 3, 40, 40), PD_OK); /* a rank with an empty range contributes
                                                                            * to no elements */
        rig_free(&r);
    }
}

TEST(a_push_that_is_not_finite_is_rejected_where_that_is_asked_for)
{
    static const int64_t one[] = { 70 };
    pd_store_config config = rig_config();
    float values[70] = { 0 };
    rig r;

    values[69] = NAN;
    for (int i = 0; i < COLLECTING; i++) {
        char options[96];
        rig_new(&r, &config);
        snprintf(options, sizeof options, "%s nonfinite=reject", collecting[i]);
        r.job = rig_start(&r, "job", 4, CONN, one, 1, options, NULL);
        rig_push(&r, r.job, 2, CONN + 2, 1, 0, values, 70);
        rig_work(&r);
        assert_int_equal(r.error.code, PD_INVALID_ARGUMENT);
        rig_free(&r);
    }
}

TEST(params_report_the_aggregate_and_the_memory_that_it_may_hold)
{
    static const int64_t sizes[] = { 130, 5 };
    static const struct {
        const char *options, *name;
        uint64_t each;
    } cases[] = {
        /* third column: expected bytes per element for collected contributions, summed over the 4 ranks */
        { "aggregate=mean", "mean", 0 },
        { "aggregate=weighted_mean", "weighted_mean", 0 },
        { "aggregate=sum", "sum", 0 },
        { "aggregate=median", "median", 16 },
        { "aggregate=trimmed_mean", "trimmed_mean", 16 },
        { "aggregate=adasum", "adasum", 16 },
        { "aggregate=adasum_vdot", "adasum_vdot", 16 },
        { "aggregate=radial_mean", "radial_mean", 16 },
    };
    pd_store_config config = rig_config();
    rig r;

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        rig_new(&r, &config);
        rig_start(&r, "job", 4, CONN, sizes, 2, cases[i].options, NULL);
        rig_ask(&r, PD_INFO_PARAMS, "job");
        for (int p = 0; p < 2; p++) {
            uint64_t bytes = r.info->params[p].collect_bytes, rounded = (uint64_t)(p == 0 ? 192 : 5) * cases[i].each;
            assert_string_equal(r.info->params[p].aggregate, cases[i].name);
            assert_true(bytes >= rounded && (cases[i].each > 0 || bytes == 0) &&
                        bytes <= rounded + 4 * 3 * sizeof(pd_vector_run));
        }
        rig_free(&r);
    }
}

/* The memory limit admits the parameter with aggregate=mean. It does not admit the parameter with a collecting
 * aggregate, since all ranks may spill their contributions. */
TEST(declare_counts_the_bytes_that_all_ranks_may_spill)
{
    static const char *const name[] = { "w" };
    static const pd_shape shape = { 1, { 100000 } };
    pd_store_config config = rig_config();
    rig r;

    config.max_total_bytes = 100000 * 4 * 9;
    for (int i = -1; i < COLLECTING; i++) {
        rig_new(&r, &config);
        assert_int_equal(hello(&r, 8, i < 0 ? "aggregate=mean" : collecting[i]), PD_OK);
        assert_int_equal(rig_declare(&r, r.job, 0, CONN, name, &shape, NULL, 1, PD_F32),
                         i < 0 ? PD_OK : PD_RESOURCE_EXHAUSTED);
        if (i >= 0) assert_non_null(strstr(r.error.text, "contributions collected 3"));
        rig_free(&r);
    }
}

enum { WORLD = COLLECTING_WORLD, N = COLLECTING_N };

static void push(rig *r, uint32_t rank, int64_t chunk)
{
    float values[N];
    rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, r->versions[r->job][0].step + 1);

    rig_noise(rank + 10 * r->versions[r->job][0].step, values, N);
    rig_piece(frame, 0, PD_F32, chunk * CHUNK, N - chunk * CHUNK < CHUNK ? N - chunk * CHUNK : CHUNK,
              values + chunk * CHUNK);
    assert_int_equal(rig_send(r, frame), PD_OK);
    rig_work(r);
}

/* Checks that `step` rounds of the test's job are closed, then frees the test's store. */
static void end_at(rig *r, uint64_t step)
{
    assert_int_equal(r->versions[r->job][0].step, step);
    rig_free(r);
}

TEST(contributions_wait_in_their_frames_while_memory_allows)
{
    rig r;

    for (int i = 0; i < COLLECTING; i++) {
        uint64_t before;
        collecting_start(&r, collecting[i], false);
        before = pd_store_count_bytes(r.store).published_list;
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            assert_int_equal(r.buffers_out, 3 * rank);
            for (int64_t c = 2; c >= 0; c--) {
                assert_int_equal(pd_store_count_bytes(r.store).published_list, before);
                push(&r, rank, c);
            }
        }
        end_at(&r, 1);
    }
}

TEST(the_median_of_a_chunk_does_not_wait_for_other_chunks)
{
    rig r;

    for (int i = 2; i < 4; i++) { /* median and trimmed mean */
        collecting_start(&r, collecting[i], false);
        for (uint32_t rank = 0; rank < WORLD; rank++) push(&r, rank, 1);
        assert_int_equal(r.buffers_out, 0);
        end_at(&r, 0);
    }
}

/* Only the rank that is over quota spills its contribution. The frames of the other ranks stay. The spilled memory
 * is freed when the round closes. */
TEST(a_rank_over_quota_spills_its_contributions_until_the_round_closes)
{
    rig r;

    for (int i = 0; i < COLLECTING; i++) {
        uint64_t before, chunk = CHUNK * sizeof(float);
        collecting_start(&r, collecting[i], true);
        before = pd_store_count_bytes(r.store).published_list;
        for (uint32_t step = 0; step < 3; step++)
            for (uint32_t rank = WORLD; rank-- > 0;)
                for (int64_t c = 0; c < 3; c++) {
                    push(&r, rank, c);
                    assert_int_equal(r.buffers_out, 0);
                    if (step > 0 || rank == 0) continue;
                    assert_int_equal(pd_store_count_bytes(r.store).published_list,
                                     before + (uint64_t)(3 * (WORLD - 1 - (int)rank) + c + 1) * chunk);
                }
        end_at(&r, 3);
    }
}

TEST(spilled_contributions_stay_when_they_come_again_or_their_rank_is_taken_over)
{
    static const char *const name[] = { "p0" };
    static const pd_shape shape = { 1, { N } };
    float expected[N];
    rig r;

    for (int i = 0; i < 2 * COLLECTING; i++) {
        bool again = i % 2 == 1;
        collecting_start(&r, collecting[i / 2], true);
        for (int64_t c = 0; c < 3; c++) push(&r, 2, c);
        if (again) {
            for (int64_t c = 0; c < 3; c++) push(&r, 2, c);
            assert_int_equal(rig_ask(&r, PD_INFO_JOBS, NULL)->jobs[0].duplicates, 3);
            assert_int_equal(rig_hello(&r, "job", 2, WORLD, 99, 40, collecting[i / 2], "* sgd lr=1"), PD_OK);
            assert_int_equal(rig_declare(&r, r.job, 2, 40, name, &shape, NULL, 1, PD_F32), PD_OK);
            rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, 2, 40, 1);
            rig_absent(frame, 0);
            /* this rank has already contributed a gradient */
            assert_int_equal(rig_send(&r, frame), PD_FAILED_PRECONDITION);
        }
        for (uint32_t rank = 0; rank < WORLD; rank++)
            for (int64_t c = 0; rank != 2 && c < 3; c++) push(&r, rank, c);
        assert_int_equal(r.versions[r.job][0].step, 1);
        if (again)
            assert_memory_equal(rig_weights(&r, r.job, 0), expected, sizeof expected);
        else
            memcpy(expected, rig_weights(&r, r.job, 0), sizeof expected);
        rig_free(&r);
    }
}

/* rig_free, which frees the test's store, checks that all memory and every frame are freed. */
TEST(a_job_may_be_dropped_at_any_moment_of_a_round)
{
    static const int64_t one[] = { 700 };
    static float values[700];
    rig r;

    for (int i = 0; i < COLLECTING; i++)
        for (int moment = 0; moment < 40; moment++) {
            pd_store_config config = rig_config();
            config.batch_ns = 1;
            config.ingest_bytes = moment % 2 == 0 ? WORLD * 4096 : config.ingest_bytes;
            rig_new(&r, &config);
            r.job = rig_start(&r, "job", WORLD, CONN, one, 1, collecting[i], NULL);
            for (uint32_t rank = 0; rank < (moment < 20 ? 2 : WORLD); rank++)
                rig_push(&r, r.job, rank, CONN + rank, 1, 0, values, 700);
            for (int k = 0; k < moment % 20 / 2; k++) {
                pd_store_work(r.store, r.now);
                rig_absorb(&r);
            }
            rig_apply(&r, pd_request_new(PD_REQ_DROP, rig_ticket(&r, 1)));
            assert_int_equal(r.buffers_out, 0);
            assert_int_equal(r.gone, 1);
            rig_free(&r);
        }
}

TEST(draining_waits_for_rounds_that_collect)
{
    rig r;

    for (int i = 0; i < COLLECTING; i++) {
        pd_request *drain;
        uint64_t answered;
        collecting_start(&r, collecting[i], true);
        for (int64_t c = 0; c < 3; c++) push(&r, 0, c);
        drain = pd_request_new(PD_REQ_DRAIN, rig_ticket(&r, 1));
        drain->u.drain.deadline_ns = 5000000000u;
        answered = r.answered;
        rig_apply(&r, drain);
        assert_int_equal(r.answered, answered);
        for (uint32_t rank = 1; rank < WORLD; rank++)
            for (int64_t c = 0; c < 3; c++) push(&r, rank, c);
        assert_int_equal(r.answered, answered + 1);
        end_at(&r, 1);
    }
}

static void push_all(rig *r, const float *const values[WORLD])
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        assert_int_equal(rig_push(r, r->job, rank, CONN + rank, r->versions[r->job][0].step + 1, 0, values[rank], N),
                         PD_OK);
    rig_work(r);
}

/* All four ranks send the same weights. Their mean is these weights, whatever the aggregate of gradients is. */
TEST(initial_weights_are_their_mean_with_every_aggregate)
{
    static const char *const name[] = { "w" };
    static const pd_shape shape = { 1, { N } };

    for (int i = 0; i < COLLECTING; i++) {
        pd_store_config config = rig_config();
        char options[96];
        float ones[N];
        rig r;
        rig_new(&r, &config);
        snprintf(options, sizeof options, "%s initial_weights=mean", collecting[i]);
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            assert_int_equal(rig_hello(&r, "job", rank, WORLD, rank + 1, CONN + rank, options, "* sgd lr=1"), PD_OK);
            assert_int_equal(rig_declare(&r, r.job, rank, CONN + rank, name, &shape, NULL, 1, PD_F32), PD_OK);
        }
        for (uint32_t rank = 0; rank < WORLD; rank++)
            for (int64_t first = 0; first < N; first += CHUNK) {
                rig_frame *frame = rig_frame_new(&r, PD_REQ_INIT, r.job, rank, CONN + rank, 0);
                for (int e = 0; e < N; e++) ones[e] = rank == 3 ? 6 : 2;
                rig_piece(frame, 0, PD_F32, first, N - first < CHUNK ? N - first : CHUNK, ones);
                rig_send(&r, frame);
                rig_work(&r);
                assert_int_equal(r.error.code, PD_OK);
            }
        assert_true(rig_weights(&r, r.job, 0)[N - 1] == 3);
        for (int e = 0; e < N; e++) ones[e] = 1;
        push_all(&r, (const float *const[]){ ones, ones, ones, ones });
        assert_int_equal(r.versions[r.job][0].step, 1);
        for (int e = 0; e < N; e++) assert_true(fabsf(rig_weights(&r, r.job, 0)[e] - 2) < 1e-6f);
        rig_free(&r);
    }
}

/* Clipping applies to the aggregate, not to contributions. If every rank contributes ones, the norm is sqrt(N). */
TEST(the_aggregate_is_clipped)
{
    static const int64_t one[] = { N };
    pd_store_config config = rig_config();

    for (int i = 0; i < COLLECTING; i++) {
        char options[96];
        float ones[N], before[N];
        rig r;
        snprintf(options, sizeof options, "%s clip_global_norm=%.17g", collecting[i], sqrt(N) / 4);
        rig_new(&r, &config);
        r.job = rig_start(&r, "job", WORLD, CONN, one, 1, options, NULL);
        memcpy(before, rig_weights(&r, r.job, 0), sizeof before);
        for (int e = 0; e < N; e++) ones[e] = 1;
        push_all(&r, (const float *const[]){ ones, ones, ones, ones });
        for (int e = 0; e < N; e++)
            assert_true(fabsf(before[e] - rig_weights(&r, r.job, 0)[e] - 0.25f) < 1e-4f * fmaxf(1, fabsf(before[e])));
        rig_free(&r);
    }
}

/* A round in which no rank has a gradient closes without a step. The next round, with gradients, takes a step. */
TEST(a_round_without_gradients_is_no_step)
{
    rig r;

    for (int i = 0; i < COLLECTING; i++) {
        float ones[N] = { 1 };
        collecting_start(&r, collecting[i], i % 2 == 0);
        for (uint32_t rank = 0; rank < WORLD; rank++) {
            rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, rank, CONN + rank, 1);
            rig_last(frame); /* the rank ends its step without a gradient */
            assert_int_equal(rig_send(&r, frame), PD_OK);
        }
        rig_work(&r);
        assert_int_equal(r.versions[r.job][0].step, 1);
        assert_int_equal(r.versions[r.job][0].outcome, PD_NO_GRADIENT);
        push_all(&r, (const float *const[]){ ones, ones, ones, ones });
        assert_int_equal(r.versions[r.job][0].step, 2);
        assert_int_equal(r.versions[r.job][0].outcome, PD_STEPPED);
        rig_free(&r);
    }
}

/* All contributions have an infinite value in the first, a middle or the last element. A chunk is cut into several
 * units of work, so a unit other than the first must find the value too. */
TEST(values_that_are_not_finite_are_found_anywhere)
{
    enum { LARGE = 200000 };
    static const int64_t one[] = { LARGE };
    static const int64_t where[] = { 0, 70000, LARGE - 1 };
    static float values[LARGE];
    pd_store_config config = rig_config();
    rig r;

    config.chunk_elements = 1 << 18;
    for (int i = 0; i < 3 * COLLECTING; i++) {
        rig_new(&r, &config);
        r.job = rig_start(&r, "job", WORLD, CONN, one, 1, collecting[i / 3], NULL);
        values[where[i % 3]] = INFINITY;
        for (uint32_t rank = 0; rank < WORLD; rank++) rig_push(&r, r.job, rank, CONN + rank, 1, 0, values, LARGE);
        values[where[i % 3]] = 0;
        rig_work(&r);
        assert_int_equal(r.versions[r.job][0].outcome, PD_SKIPPED);
        rig_free(&r);
    }
}

/* Rank 1 is over quota: its model state waits for rank 0. Rank 2 is within its quota, and has pushed a gradient that
 * could be spilled. Spilling this gradient would not help rank 1, so the store must not spill it. */
TEST(a_rank_over_quota_by_other_parameters_causes_no_work)
{
    enum { VALUES = 40 * CHUNK };
    static const char *const names[] = { "gradients", "values" };
    static const pd_shape shapes[] = { { 1, { N } }, { 1, { VALUES } } };
    static const bool states[] = { false, true };
    static float values[VALUES];
    pd_store_config config = rig_config();
    rig r;

    config.ingest_bytes = WORLD * 2 * 4096;
    rig_new(&r, &config);
    r.states = states;
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        assert_int_equal(rig_hello(&r, "job", rank, WORLD, CONN + rank, CONN + rank, "aggregate=median", "* sgd lr=1"),
                         PD_OK);
        assert_int_equal(rig_declare(&r, r.job, rank, CONN + rank, names, shapes, NULL, 2, PD_F32), PD_OK);
    }
    rig_init(&r, r.job, CONN, 0, values, N);
    rig_init(&r, r.job, CONN, 1, values, VALUES);
    rig_push(&r, r.job, 2, CONN + 2, 1, 0, values, CHUNK);
    rig_push(&r, r.job, 1, CONN + 1, 1, 1, values, VALUES);
    assert_true(pd_rank_is_over_quota(&inside_job(r.store, r.job)->steps, 1));
    assert_false(pd_rank_is_over_quota(&inside_job(r.store, r.job)->steps, 2));
    for (int turns = 0; pd_store_work(r.store, r.now); turns++) assert_true(turns < 10);
    rig_absorb(&r);
    assert_int_not_equal(r.bytes_out[CONN + 2], 0);
    rig_free(&r);
}

/* A large parameter takes many batches. The store serves a small job between them. */
TEST(other_jobs_have_their_turn_between_batches)
{
    static const int64_t large[] = { 300000 }, small[] = { 3 };
    static float values[300000];
    pd_store_config config = rig_config();
    rig r;

    config.chunk_elements = 1 << 18; /* chunks so large that each takes several batches */
    config.batch_ns = 1e5;
    for (int i = 0; i < COLLECTING; i++) {
        uint32_t big, other;
        int batches = 0;
        rig_new(&r, &config);
        big = rig_start(&r, "big", WORLD, CONN, large, 1, collecting[i], NULL);
        other = rig_start(&r, "other", 1, 30, small, 1, NULL, NULL);
        rig_noise(3, values, 300000);
        for (uint32_t rank = 0; rank < WORLD; rank++) rig_push(&r, big, rank, CONN + rank, 1, 0, values, 300000);
        rig_push(&r, other, 0, 30, 1, 0, values, 3);
        while (r.versions[big][0].step == 0) {
            pd_store_work(r.store, r.now);
            rig_absorb(&r);
            if (++batches == 2) assert_int_equal(r.versions[other][0].step, 1);
        }
        assert_true(batches > 5);
        rig_free(&r);
    }
}

/* Values (model state) are averaged, whatever the aggregate of gradients is. With aggregate=weighted_mean their mean
 * is weighted. */
TEST(values_are_averaged)
{
    static const int64_t one[] = { 2 };
    static pd_optimizer_ops values;
    const pd_optimizer_ops *rows[] = { &values, NULL };
    pd_store_config config = rig_config();

    values = *pd_optim_find("sgd");
    values.takes_values = true;
    config.rows = rows;
    for (int i = 0; i <= COLLECTING; i++) {
        bool weighted = i == COLLECTING || strcmp(collecting[i], "aggregate=radial_mean") == 0;
        float before, x[] = { 0, 0 };
        rig r;
        rig_new(&r, &config);
        r.job =
            rig_start(&r, "job", 4, CONN, one, 1, i == COLLECTING ? "aggregate=weighted_mean" : collecting[i], NULL);
        before = rig_weights(&r, r.job, 0)[0];
        for (uint32_t rank = 0; rank < 4; rank++) {
            rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, rank, CONN + rank, 1);
            x[0] = rank == 3 ? 1000 : 4;
            rig_piece(frame, 0, PD_F32, 0, 2, x);
            rig_weight(frame, rank == 3 ? 0 : 1, false);
            assert_int_equal(rig_send(&r, frame), PD_OK);
        }
        rig_work(&r);
        assert_true(rig_weights(&r, r.job, 0)[0] == before - (weighted ? 4.0f : 253.0f));
        assert_string_equal(rig_ask(&r, PD_INFO_PARAMS, "job")->params[0].aggregate,
                            weighted ? "weighted_mean" : "mean");
        rig_free(&r);
    }
}

/* 5,000 chunks are complete at once. They are computed in batches of at most 4,096 units, whose arrays are freed, since
 * they count for no job. */
TEST(many_small_chunks_take_bounded_memory_and_leave_none)
{
    enum { TRIO = 3, CHUNKS = 5000 };
    static const int64_t sizes[] = { (int64_t)CHUNKS * CHUNK };
    pd_store_config config = rig_config();
    float *values = calloc((size_t)sizes[0], sizeof *values);
    const pd_collect_batch *batch;
    uint32_t job;
    rig r;

    config.chunk_elements = CHUNK;
    rig_new(&r, &config);
    batch = &r.store->collecting;
    job = rig_start(&r, "job", TRIO, CONN, sizes, 1, "aggregate=median", NULL);
    for (uint32_t rank = 0; rank < TRIO; rank++)
        assert_int_equal(rig_push(&r, job, rank, CONN + rank, 1, 0, values, sizes[0]), PD_OK);
    rig_work(&r);
    assert_int_equal(inside_job(r.store, job)->steps.params[0].saved.step, 1);
    assert_true(batch->n_units > 0 && batch->n_units <= CHUNKS - 4096);
    assert_true(batch->units_room * sizeof *batch->units <= 8192 && batch->runs_room * sizeof *batch->runs <= 8192);
    assert_true(batch->passes_room * sizeof *batch->passes <= 8192 && batch->scratch_room <= 8192);
    rig_free(&r);
    free(values);
}
