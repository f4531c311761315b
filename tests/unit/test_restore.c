/* Tests that a checkpoint from the disk is restored, or refused and nothing changes. */
#include "test.h"
#include "course.h"
#include "durable_job.h"
#include "plan_bytes.h"
#include "rig.h"
#include "store_inside.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { STRIDE = 61 }; /* few cases, since sanitizers are slow */
#else
enum { STRIDE = 7 };
#endif

static const course rich = { .options = "checkpoint_every=6",
                             .rules = "layer* shampoo lr=0.1 max_preconditioner_dim=8 root_delay=1;* adam",
                             .ranged = true,
                             .overrides = true };

/* Trains a job until its disk has a checkpoint of step 6, with a note. */
static void train(rig *r, const course *p)
{
    pd_store_config config = durable_config();

    rig_new(r, &config);
    course_join(r, p);
    course_initialise(r, p);
    for (uint64_t step = 1; step <= 6; step++) {
        course_operate(r, p, step);
        if (step == 6) assert_int_equal(rig_note(r, 0, COURSE_CONN, step, "my place"), PD_OK);
        course_step_to(r, p, step, COURSE_WORLD * COURSE_PARAMS);
    }
    assert_int_equal(r->durable, 6);
}

static void set_up(rig *r)
{
    train(r, &rich);
}

/* Restores the checkpoint into an empty store. Checks that the store stays empty after an error. */
static int try(const pd_checkpoint_image *kept, pd_error *err)
{
    pd_store_config config = durable_config();
    rig r;
    int rc;

    config.max_total_bytes = 16 << 20; /* a flipped byte may enlarge a size, which this limit then refuses */
    rig_new(&r, &config);
    *err = (pd_error){ 0 };
    rc = pd_store_restore(r.store, kept, r.now, err);
    if (rc != PD_OK) {
        assert_int_equal(r.store->jobs.n, 0);
        assert_int_equal(r.store->budget.used, 0);
        assert_true(err->text[0] != '\0');
    }
    rig_free(&r);
    return rc;
}

static void expect(const pd_checkpoint_image *kept, int code, const char *text)
{
    pd_error err;

    assert_int_equal(try(kept, &err), code);
    if (strstr(err.text, text) == NULL) fail_msg("expected \"%s\", got \"%s\"", text, err.text);
}

FIXTURE(rig, set_up, rig_free);

TEST(a_cut_part_is_refused, const rig *r)
{
    pd_checkpoint_image *kept = checkpoint_copy(r->disk);
    size_t whole = kept->head_bytes, state_bytes = kept->params[0].state_bytes;
    pd_error err;

    assert_int_equal(try(kept, &err), PD_OK);
    for (size_t cut = 0; cut < whole; cut += cut < 100 ? 1 : STRIDE * 5) {
        kept->head_bytes = cut;
        assert_int_not_equal(try(kept, &err), PD_OK);
    }
    kept->head_bytes = whole;
    for (size_t cut = 0; cut < state_bytes; cut += cut < 100 ? 1 : STRIDE * 29) {
        kept->params[0].state_bytes = cut;
        assert_int_not_equal(try(kept, &err), PD_OK);
    }
    pd_checkpoint_image_free(kept);
}

/* A flipped byte may turn a value into another valid value. Then the checkpoint is accepted: the disk's checksums find
 * such a byte. */
TEST(a_flipped_byte_is_refused_or_is_another_value, const rig *r)
{
    pd_checkpoint_image *kept = checkpoint_copy(r->disk);
    pd_error err;

    for (size_t i = 0; i < kept->head_bytes; i += STRIDE) {
        kept->head[i] ^= 0xff;
        (void)try(kept, &err);
        kept->head[i] ^= 0xff;
    }
    for (size_t i = 0; i < kept->params[0].state_bytes; i += i < 400 ? STRIDE : STRIDE * 29) {
        kept->params[0].state[i] ^= 0xff;
        (void)try(kept, &err);
        kept->params[0].state[i] ^= 0xff;
    }
    pd_checkpoint_image_free(kept);
}

TEST(parts_that_do_not_belong_together_are_refused, const rig *r)
{
    pd_checkpoint_image *kept = checkpoint_copy(r->disk);
    pd_checkpoint_param swapped = kept->params[1];

    kept->creator++;
    expect(kept, PD_DATA_LOSS, "creator");
    kept->creator--;
    kept->n_params--;
    expect(kept, PD_DATA_LOSS, "2 parameters, but its header 3");
    kept->n_params++;
    kept->params[1] = kept->params[2];
    kept->params[2] = swapped;
    expect(kept, PD_DATA_LOSS, "parameter 1 of the checkpoint is head.bias");
    kept->params[2] = kept->params[1];
    kept->params[1] = swapped;
    kept->params[1].shape.dim[0]++;
    expect(kept, PD_DATA_LOSS, "shape");
    kept->params[1].shape.dim[0]--;
    kept->params[1].step++;
    expect(kept, PD_DATA_LOSS, "is at step 7");
    kept->params[1].step--;
    kept->worker_states[0].rank = COURSE_WORLD;
    expect(kept, PD_DATA_LOSS, "worker state");
    kept->worker_states[0].rank = 0;
    kept->job[0] = 'J';
    expect(kept, PD_DATA_LOSS, "job Job");
    kept->job[0] = 'j';
    expect(kept, PD_OK, "");
    pd_checkpoint_image_free(kept);
}

HOLDS_FOR(rig *r, a_checkpoint_of_a_job_that_exists_is_refused,
          assert_int_equal(rig_restore(r, r), PD_FAILED_PRECONDITION));

TEST(the_restored_job_knows_what_is_durable, void *given)
{
    rig *r = given, next;
    pd_store_config config = durable_config();
    const pd_job_info *info;

    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    rig_sleep(&next, 3);
    info = rig_ask(&next, PD_INFO_JOBS, NULL)->jobs;
    assert_string_equal(info->name, "job");
    assert_int_equal(info->durable_step, 6);
    assert_int_equal(info->step_least, 6);
    assert_int_equal(info->checkpoint_age_ms, 3000);
    assert_int_equal(next.store->budget.used, r->store->budget.used);
    assert_int_equal(next.durable, 0);
    course_join(&next, &rich);
    assert_int_equal(next.durable, 6);
    rig_free(&next);
}

/* An operator may change defaults before the restart. */
TEST(workers_come_back_although_defaults_have_changed, void *given)
{
    rig *r = given, next;
    pd_store_config config = durable_config();
    const pd_option presets[] = { { "checkpoint_every", "50" }, { "checkpoint_keep", "9" } };

    config.job_presets = presets;
    config.n_job_presets = 2;
    rig_new(&next, &config);
    assert_int_equal(rig_restore(&next, r), PD_OK);
    assert_int_equal(rig_hello(&next, "job", 0, COURSE_WORLD, COURSE_CONN, COURSE_CONN, NULL, rich.rules), PD_OK);
    assert_int_equal(
        rig_hello(&next, "job", 1, COURSE_WORLD, COURSE_CONN + 1, COURSE_CONN + 1, "checkpoint_every=7", rich.rules),
        PD_FAILED_PRECONDITION);
    rig_free(&next);
}

/* Returns whether the weights of all parameters of the restored job lie in memory that workers can map. */
static bool weights_are_shared(const rig *from, bool shares)
{
    pd_store_config config = durable_config();
    const pd_segment *segment;
    const pd_job *job;
    bool shared = true;
    rig r;

    config.shares = shares;
    rig_new(&r, &config);
    assert_int_equal(rig_restore(&r, from), PD_OK);
    job = inside_find(r.store, "job");
    segment = pd_shared_weights_segment(job->steps.memory.shared);
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        const pd_param *param = &job->steps.params[i];
        shared = shared && segment != NULL &&
                 pd_segment_has(segment, param->current->at[PD_F32], (uint64_t)param->elements * sizeof(float));
    }
    rig_free(&r);
    return shared;
}

TEST(a_restored_job_has_its_weights_in_shared_memory_where_workers_may_map_them, rig *r)
{
    assert_true(weights_are_shared(r, true));
    assert_false(weights_are_shared(r, false));
}

static int attempt(const void *what)
{
    pd_store_config config = durable_config();
    pd_store *store;
    pd_error err;
    int rc = pd_store_new(&store, &config, &err);

    if (rc != PD_OK) return rc;
    rc = pd_store_restore(store, what, 1, &err);
    pd_store_free(store);
    return rc;
}

TEST(memory_that_fails_while_restoring_leaves_nothing, const rig *r)
{
    for (int64_t fail = 0;; fail += 1 + fail % STRIDE) {
        int rc;
        oom_arm(fail);
        rc = attempt(r->disk); /* PD_OK is possible although an allocation failed: only a log line was lost */
        if (!oom_disarm()) break;
        assert_true(rc == PD_OK || rc == PD_NO_MEMORY);
    }
}

/* Takes two steps while allocation number `fail` fails; the second step makes a checkpoint. Returns whether an
 * allocation failed. Adds 1 to *lost if the checkpoint was given up. */
static bool train_short_of_memory(int64_t fail, float *out, int *lost)
{
    pd_store_config config = durable_config();
    rig r;
    bool failed;

    durable_job_start(&r, &config, "checkpoint_every=2");
    durable_job_step(&r, 1);
    for (uint32_t i = 0; i < 4; i++) durable_job_push(&r, i % 2, i / 2, 2);
    oom_arm(fail);
    while (pd_store_work(r.store, r.now)) {}
    failed = oom_disarm();
    rig_work(&r);
    rig_sleep(&r, 1.5);
    rig_work(&r);
    assert_int_equal(durable_job_step_of(&r, 0), 2);
    assert_int_equal(durable_job_step_of(&r, 1), 2);
    if (r.kept == 1) { /* only the one of the initial weights */
        assert_true(inside_job(r.store, r.job)->checkpointing.counts.failed > 0);
        ++*lost;
    }
    durable_job_step(&r, 3);
    durable_job_step(&r, 4);
    assert_int_equal(r.durable, 4);
    memcpy(out, rig_weights(&r, r.job, 0), (size_t)durable_job_sizes[0] * sizeof *out);
    rig_free(&r);
    return failed;
}

TEST(memory_that_fails_at_a_cut_costs_only_the_checkpoint)
{
    float whole[256], some[256];
    int lost = 0;

    assert_false(train_short_of_memory(INT64_MAX / 2, whole, &lost));
    assert_int_equal(lost, 0);
    for (int64_t fail = 0; train_short_of_memory(fail, some, &lost); fail++)
        assert_memory_equal(some, whole, (size_t)durable_job_sizes[0] * sizeof *some);
    assert_true(lost > 10);
}
