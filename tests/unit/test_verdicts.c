/* Tests which verdicts and asks a shard takes, and what the others are told. */
#include "test.h"
#include "clipped.h"
#include "shard_rigs.h"
#include "store_inside.h"
#include "tally.h"

enum { CONN = 10, N = 2 };

static const char options[] = "clip_global_norm=3", rules[] = "* sgd lr=0.1";

/* Starts a job of two ranks on two shards with these options and rules, and all contributions to step 1. */
static void start_with(shard_rigs *s, const char *with_options, const char *with_rules)
{
    pd_store_config config = clipped_configuration();

    config.chunk_elements = 4096;
    shard_rigs_declare(s, N, 2, &config, with_options, with_rules);
    for (uint32_t rank = 0; rank < 2; rank++) shard_rigs_push(s, rank, 1, 1, 0);
}

static void start(shard_rigs *s)
{
    start_with(s, options, rules);
}

/* Gets the tallies of step 1, of all shards, as the verdict `out`. */
static void collect(shard_rigs *s, shard_verdict *out)
{
    out->step = 1;
    out->phase = 0;
    for (uint32_t i = 0; i < N; i++) {
        rig *r = s->shard[i];
        rig_work(r);
        assert_int_equal(rig_settle(r, 0, CONN, 1, 0, NULL, 0), PD_OK);
        assert_int_equal(r->tallies, 1);
        memcpy(out->bytes[i], r->tally, r->tally_bytes);
        out->tally[i] = (pd_tally_view){ out->bytes[i], r->tally_bytes };
    }
}

static int give(rig *r, uint32_t rank, const shard_verdict *v, size_t n)
{
    int rc = rig_settle(r, rank, CONN + rank, v->step, v->phase, v->tally, n);

    rig_work(r);
    return rc;
}

static uint64_t step_of(const rig *r)
{
    return inside_job(r->store, r->job)->steps.params[0].saved.step;
}

TEST(the_first_verdict_counts_and_an_equal_one_is_welcome)
{
    shard_rigs s;
    shard_verdict v;

    start(&s);
    collect(&s, &v);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(give(s.shard[i], 0, &v, N), PD_OK);
        assert_int_equal(step_of(s.shard[i]), 1);
        assert_int_equal(give(s.shard[i], 1, &v, N), PD_OK);
    }
    rig_work(s.whole);
    shard_rigs_assert_same(&s, 1);
    shard_rigs_free(&s);
}

TEST(the_time_from_a_tally_to_its_verdict_is_measured_once)
{
    shard_rigs s;
    shard_verdict v;
    const pd_histogram *times;

    start(&s);
    collect(&s, &v);
    times = &inside_job(s.shard[0]->store, s.shard[0]->job)->steps.figures.settle_times;
    assert_int_equal(pd_histogram_count(times), 0);
    s.shard[0]->now += 3000000000;
    for (uint32_t rank = 0; rank < 2; rank++) assert_int_equal(give(s.shard[0], rank, &v, N), PD_OK);
    assert_int_equal(pd_histogram_count(times), 1);
    assert_int_equal(times->sum_ns, 3000000000);
    shard_rigs_free(&s);
}

TEST(another_verdict_after_the_first_is_refused)
{
    shard_rigs s;
    shard_verdict v;

    start(&s);
    collect(&s, &v);
    assert_int_equal(give(s.shard[0], 0, &v, N), PD_OK);
    v.bytes[1][2] ^= 1; /* shard 1 would skip the step */
    assert_int_equal(give(s.shard[0], 1, &v, N), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(s.shard[0]->error.text, "another one has come before"));
    v.bytes[1][2] ^= 1;
    assert_int_equal(give(s.shard[1], 0, &v, N), PD_OK);
    rig_work(s.whole);
    shard_rigs_assert_same(&s, 1);
    shard_rigs_free(&s);
}

TEST(a_verdict_with_another_tally_of_this_shard_is_refused_and_changes_nothing)
{
    shard_rigs s;
    shard_verdict v;

    start(&s);
    collect(&s, &v);
    v.bytes[0][2] ^= 1;
    assert_int_equal(give(s.shard[0], 0, &v, N), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(s.shard[0]->error.text, "this shard, 0 of 2, has made another tally"));
    assert_int_equal(step_of(s.shard[0]), 0);
    v.bytes[0][2] ^= 1;
    for (uint32_t i = 0; i < N; i++) assert_int_equal(give(s.shard[i], 0, &v, N), PD_OK);
    rig_work(s.whole);
    shard_rigs_assert_same(&s, 1);
    shard_rigs_free(&s);
}

TEST(what_is_no_verdict_is_refused)
{
    shard_rigs s;
    shard_verdict v, odd;
    rig *r;

    start(&s);
    r = s.shard[0];
    collect(&s, &v);
    assert_int_equal(give(r, 0, &v, 1), PD_INVALID_ARGUMENT); /* one tally is missing */
    odd = v;
    odd.tally[0] = v.tally[1]; /* in another order */
    odd.tally[1] = v.tally[0];
    assert_int_equal(give(r, 0, &odd, N), PD_INVALID_ARGUMENT);
    odd = v;
    odd.step = 2; /* of another step */
    odd.tally[0] = v.tally[0], odd.tally[1] = v.tally[1];
    assert_int_equal(give(r, 0, &odd, N), PD_INVALID_ARGUMENT);
    v.tally[1].n--; /* cut off */
    assert_int_equal(give(r, 0, &v, N), PD_INVALID_ARGUMENT);
    v.tally[1].n++;
    assert_int_equal(rig_settle(r, 0, CONN, 0, 0, NULL, 0), PD_INVALID_ARGUMENT);
    assert_int_equal(step_of(r), 0);
    shard_rigs_settle(&s);
    shard_rigs_assert_same(&s, 1);
    shard_rigs_free(&s);
}

TEST(a_verdict_that_comes_before_the_tally_waits)
{
    shard_rigs s, twin;
    shard_verdict v;

    pd_store_config config = clipped_configuration();

    start(&twin);
    collect(&twin, &v);
    config.chunk_elements = 4096;
    shard_rigs_declare(&s, N, 2, &config, options, rules);
    shard_rigs_push(&s, 0, 1, 1, 0);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t before = s.shard[i]->answered;
        assert_int_equal(give(s.shard[i], 0, &v, N), PD_OK);
        assert_int_equal(s.shard[i]->answered, before);
        /* A rank has one verdict under way. */
        assert_int_equal(give(s.shard[i], 0, &v, N), PD_RESOURCE_EXHAUSTED);
    }
    shard_rigs_push(&s, 1, 1, 1, 0);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t before = s.shard[i]->answered;
        rig_work(s.shard[i]);
        assert_int_equal(s.shard[i]->answered, before + 1);
        assert_int_equal(step_of(s.shard[i]), 1);
    }
    rig_work(s.whole);
    shard_rigs_assert_same(&s, 1);
    shard_rigs_free(&s);
    shard_rigs_free(&twin);
}

/* A tally that this job cannot make: its sum has more words than squares of float32 numbers, beside the longest
 * reason. */
static size_t write_too_large(uint8_t *out, uint16_t shard)
{
    char reason[PD_TALLY_REASON];
    pd_tally tally = { .step = 9, .shard = shard, .shards = N, .kind = PD_TALLY_NORM, .seen = true, .reason = reason };

    memset(reason, 'x', sizeof reason);
    tally.reason_bytes = sizeof reason;
    pd_exact_sum_add(&tally.sum, 0x1p-1074);
    pd_exact_sum_add(&tally.sum, 0x1p1000);
    return pd_tally_write(&tally, out);
}

TEST(a_verdict_that_waits_has_no_more_bytes_than_were_counted)
{
    shard_rigs s;
    shard_verdict v = { .step = 9 };

    start(&s);
    for (uint16_t i = 0; i < N; i++) v.tally[i] = (pd_tally_view){ v.bytes[i], write_too_large(v.bytes[i], i) };
    assert_int_equal(give(s.shard[0], 0, &v, N), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(s.shard[0]->error.text, "bytes, expected at most"));
    shard_rigs_settle(&s);
    shard_rigs_assert_same(&s, 1);
    shard_rigs_free(&s);
}

TEST(requests_that_wait_end_with_the_job)
{
    shard_rigs s;
    shard_verdict v;

    start(&s);
    collect(&s, &v);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t before = s.shard[i]->answered;
        pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(s.shard[i], 99));
        assert_int_equal(rig_settle(s.shard[i], 0, CONN, 1, 1, NULL, 0), PD_OK);
        assert_int_equal(s.shard[i]->answered, before);
        drop->u.info.job_name = strdup("job");
        rig_apply(s.shard[i], drop);
        assert_int_equal(s.shard[i]->answered, before + 2);
    }
    shard_rigs_free(&s);
}

TEST(an_ask_for_an_earlier_tally_replaces_one_that_waits)
{
    shard_rigs s;
    shard_verdict v;
    rig *r;
    uint64_t before;

    start(&s);
    collect(&s, &v);
    r = s.shard[0];
    before = r->answered;
    assert_int_equal(rig_settle(r, 0, CONN, 2, 0, NULL, 0), PD_OK); /* step 2 has no contributions yet */
    assert_int_equal(r->answered, before);
    assert_int_equal(rig_settle(r, 0, CONN, 1, 1, NULL, 0), PD_CANCELLED); /* the first one, and this one waits */
    assert_string_equal(r->error.text, "rank 0 of job job has asked anew, for the tally of step 1");
    assert_int_equal(r->answered, before + 1);
    assert_int_equal(rig_settle(r, 0, CONN, 1, 0, NULL, 0), PD_OK);
    assert_int_equal(r->answered, before + 3);
    assert_int_equal(r->tallies, 2);
    assert_int_equal(r->tally_step, 1);
    shard_rigs_free(&s);
}

TEST(the_tallies_of_eight_steps_are_kept)
{
    shard_rigs s;

    start(&s);
    for (uint64_t n = 1; n <= 40; n++) {
        if (n > 1)
            for (uint32_t rank = 0; rank < 2; rank++) shard_rigs_push(&s, rank, n, 1, 0);
        shard_rigs_settle(&s);
    }
    for (uint64_t n = 33; n <= 40; n++) {
        assert_int_equal(rig_settle(s.shard[0], 1, CONN + 1, n, 0, NULL, 0), PD_OK);
        assert_int_equal(s.shard[0]->tally_step, n);
    }
    assert_int_equal(rig_settle(s.shard[0], 1, CONN + 1, 1, 0, NULL, 0), PD_NOT_FOUND);
    assert_non_null(strstr(s.shard[0]->error.text, "go back to a checkpoint"));
    shard_rigs_free(&s);
}

/* Starts a job whose optimizers may refuse their steps, and carries the verdict about the outcomes of step 1: now both
 * shards wait for the one about refusals. */
static void start_refusals(shard_rigs *s)
{
    shard_verdict v;

    start_with(s, "nonfinite_scope=job step_timeout=5", "* counting lr=0.1");
    collect(s, &v);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(give(s->shard[i], 0, &v, N), PD_OK);
        assert_int_equal(step_of(s->shard[i]), 0);
        s->seen[i] = s->shard[i]->tallies;
    }
}

TEST(workers_hear_that_a_step_waits_for_the_verdict_about_refusals)
{
    shard_rigs s;
    rig *r;

    start_refusals(&s);
    r = s.shard[1];
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].waits_for, "the verdict of 2 shards");
    rig_sleep(r, 6);
    rig_work(r);
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].waits_ms / 1000, 6);
    assert_int_equal(r->timed_out, 1);
    assert_int_equal(r->timed_out_step, 1);
    assert_non_null(strstr(r->timeout.text, "step 1 has waited for 6 s for the verdict of all 2 shards"));
    shard_rigs_settle(&s);
    shard_rigs_assert_same(&s, 1);
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].waits_for, "");
    shard_rigs_free(&s);
}

TEST(a_drain_ends_although_a_step_waits_for_a_verdict_that_nobody_brings)
{
    shard_rigs s;
    rig *r;

    /* Without workers, a step that has not begun is not waited for. */
    start(&s);
    r = s.shard[0];
    rig_work(r);
    for (uint32_t rank = 0; rank < 2; rank++) rig_ask_as(r, PD_REQ_LOST, rank, CONN + rank, 0);
    assert_true(rig_drain(r, 99, 10));
    assert_int_equal(r->error.code, PD_OK);
    shard_rigs_free(&s);
    start_refusals(&s);
    r = s.shard[0];
    for (uint32_t rank = 0; rank < 2; rank++) rig_ask_as(r, PD_REQ_LOST, rank, CONN + rank, 0);
    assert_false(rig_drain(r, 99, 10));
    rig_sleep(r, 11);
    rig_work(r);
    assert_int_equal(r->error.code, PD_DEADLINE_EXCEEDED);
    assert_non_null(strstr(r->error.text, "is still under way"));
    shard_rigs_free(&s);
}

TEST(a_job_whose_steps_are_its_own_takes_none)
{
    rig r;

    rig_make(&r);
    rig_start(&r, "job", 1, CONN, shard_sizes, 2, "clip_global_norm=1", NULL);
    assert_int_equal(rig_settle(&r, 0, CONN, 1, 0, NULL, 0), PD_FAILED_PRECONDITION);
    rig_free(&r);
}
