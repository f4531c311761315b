/* Tests images (saved copies) of jobs. A job is saved at a random step, dropped, read into a new store and
 * continued. It must end with the same bits as a job that was not interrupted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "oom.h"
#include "optimizer.h"
#include "plan_bytes.h"
#include "rig.h"
#include "store_inside.h"
#include "table.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { THOROUGH = 1, SEEDS = 1 }; /* few cases, since sanitizers are slow */
#else
enum { THOROUGH = 8, SEEDS = 4 };
#endif
enum { WORLD = 3, PARAMS = 3, STEPS = 30, CONN = 10, MOST = 480 };

static const char *const names[PARAMS] = { "layer.weight", "layer.bias", "head.bias" };
static const pd_shape shapes[PARAMS] = { { 2, { 24, 20 } }, { 1, { 150 } }, { 1, { 96 } } };
static const int64_t sizes[PARAMS] = { 480, 150, 96 };
static const rig_range ranges[WORLD][PARAMS] = { { { -1, 0 }, { -1, 0 }, { 0, 40 } },
                                                 { { -1, 0 }, { -1, 0 }, { 40, 96 } },
                                                 { { -1, 0 }, { -1, 0 }, { 30, 70 } } };

typedef struct course {
    const char *options, *rules;
    bool ranged;    /* each rank contributes only a range of the last parameter */
    bool overrides; /* an operator sets overrides in step 5, for that step and for step 20 */
    bool absent;    /* some ranks have no gradient in some steps */
} course;

/* ---- training of a job ---- */

static void values_of(uint64_t seed, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)(int)(rig_random(&seed) % 2001 - 1000) / 1000;
}

static void join(rig *r, const course *p)
{
    for (uint32_t rank = 0; rank < WORLD; rank++) {
        if (rig_hello(r, "job", rank, WORLD, CONN + rank, CONN + rank, p->options, p->rules) != PD_OK)
            fail_msg("%s", r->error.text);
        r->ranges = p->ranged ? ranges[rank] : NULL;
        if (rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, PARAMS, rank == 1 ? PD_BF16 : PD_F32) !=
            PD_OK)
            fail_msg("%s", r->error.text);
        r->ranges = NULL;
    }
}

/* Sends the rank's part of a parameter in frames, one for each chunk. */
static void send(rig *r, const course *p, pd_request_kind kind, uint32_t rank, uint32_t param, uint64_t step,
                 const float *values)
{
    bool part = p->ranged && ranges[rank][param].start >= 0;
    int64_t start = part ? ranges[rank][param].start : 0, end = part ? ranges[rank][param].end : sizes[param], stop;

    for (int64_t first = start; first < end; first = stop) {
        rig_frame *frame = rig_frame_new(r, kind, r->job, rank, CONN + rank, step);
        stop = (first / r->chunk + 1) * r->chunk < end ? (first / r->chunk + 1) * r->chunk : end;
        rig_piece(frame, param, PD_F32, first, stop - first, values + first);
        assert_int_equal(rig_send(r, frame), PD_OK);
    }
}

static void initialise(rig *r, const course *p)
{
    float values[MOST];

    for (uint32_t param = 0; param < PARAMS; param++) {
        bool all = p->ranged && ranges[0][param].start >= 0;
        values_of(param + 1, values, sizes[param]);
        for (uint32_t rank = 0; rank < (all ? WORLD : 1); rank++) send(r, p, PD_REQ_INIT, rank, param, 0, values);
    }
    rig_work(r);
}

static void push(rig *r, const course *p, uint32_t rank, uint32_t param, uint64_t step)
{
    float values[MOST];
    uint64_t seed = step * 1000 + param * 10 + rank, drawn = seed;
    rig_frame *frame;

    if (p->absent && rig_random(&drawn) % 3 == 0) {
        frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
        rig_absent(frame, param);
        assert_int_equal(rig_send(r, frame), PD_OK);
        return;
    }
    values_of(seed, values, sizes[param]);
    send(r, p, PD_REQ_PUSH, rank, param, step, values);
}

/* Sends push number k of the WORLD * PARAMS pushes of a step. The push is left out if its round has closed, since
 * the server has then answered it. */
static void push_one(rig *r, const course *p, uint64_t step, uint32_t k)
{
    if (inside_job(r->store, r->job)->steps.params[k % PARAMS].saved.step < step)
        push(r, p, k / PARAMS, k % PARAMS, step);
}

static void operate(rig *r, const course *p, uint64_t step)
{
    if (!p->overrides || step != 5) return;
    assert_int_equal(rig_set(r, "job", "*", "lr=0.03", 0), PD_OK);
    assert_int_equal(rig_set(r, "job", "layer*", "lr=linear_warmup(peak=0.02,warmup_steps=50)", 20), PD_OK);
}

static void step_to(rig *r, const course *p, uint64_t step, uint32_t pushes)
{
    for (uint32_t k = 0; k < pushes; k++) push_one(r, p, step, k);
    rig_work(r);
}

/* ---- saving a job and reading it into a new store ---- */

static void save(rig *r, uint8_t **image, size_t *n)
{
    pd_error err = { 0 };
    int rc = pd_store_save_job(r->store, "job", image, n, &err);

    if (rc != PD_OK) print_message("%s\n", err.text);
    assert_int_equal(rc, PD_OK);
}

static void load(rig *r, const uint8_t *image, size_t n)
{
    pd_error err = { 0 };
    int rc = pd_store_load_job(r->store, image, n, r->now, &err);

    if (rc != PD_OK) print_message("%s\n", err.text);
    assert_int_equal(rc, PD_OK);
}

/* Saves the job as an image, drops the store, and reads the image into a new store with another number of threads. */
static void start_anew(rig *r, const course *p, int threads)
{
    pd_store_config config = rig_config();
    uint8_t *image;
    size_t n;

    save(r, &image, &n);
    rig_free(r);
    config.threads = threads;
    rig_new(r, &config);
    load(r, image, n);
    free(image);
    join(r, p);
}

/* ---- comparing ---- */

static void compare_slots(const pd_optim *a, const pd_optim *b)
{
    const pd_plan *plan = pd_optim_plan(a);

    assert_int_equal(pd_optim_count(a), pd_optim_count(b));
    for (size_t i = 0; i < plan->n_slots; i++) {
        int64_t n;
        float *x, *y;
        if (plan->slots[i].temporary) continue;
        assert_int_equal(pd_shape_elements(&plan->slots[i].shape, &n), PD_OK);
        x = calloc((size_t)n, sizeof *x);
        y = calloc((size_t)n, sizeof *y);
        pd_optim_read_slot(a, i, x);
        pd_optim_read_slot(b, i, y);
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
    }
}

static void compare(rig *a, rig *b)
{
    for (uint32_t i = 0; i < PARAMS; i++) {
        const pd_param *x = &inside_job(a->store, a->job)->steps.params[i],
                       *y = &inside_job(b->store, b->job)->steps.params[i];
        assert_int_equal(x->saved.step, STEPS);
        assert_int_equal(y->saved.step, STEPS);
        assert_int_equal(x->saved.skipped, y->saved.skipped);
        assert_memory_equal(x->current->at[PD_F32], y->current->at[PD_F32], (size_t)sizes[i] * sizeof(float));
        assert_memory_equal(x->current->at[PD_BF16], y->current->at[PD_BF16], (size_t)sizes[i] * 2);
        compare_slots(x->optim, y->optim);
    }
}

static void check(const course *p, uint64_t seed)
{
    uint64_t at = 1 + rig_random(&seed) % STEPS, again = 1 + rig_random(&seed) % STEPS;
    pd_store_config config = rig_config();
    rig a, b;

    rig_new(&a, &config);
    config.threads = 2;
    rig_new(&b, &config);
    for (rig *r = &a; r != NULL; r = r == &a ? &b : NULL) {
        join(r, p);
        initialise(r, p);
        for (uint64_t step = 1; step <= STEPS; step++) {
            operate(r, p, step);
            if (r == &b && (step == at || step == again)) {
                step_to(r, p, step, (uint32_t)(rig_random(&seed) % (WORLD * PARAMS)));
                start_anew(r, p, 1 + (int)(rig_random(&seed) % 3));
            }
            step_to(r, p, step, WORLD * PARAMS);
        }
    }
    compare(&a, &b);
    rig_free(&a);
    rig_free(&b);
}

/* ---- tests ---- */

static void every_optimizer_goes_on_with_the_same_bits(void **state)
{
    (void)state;
    for (const pd_row *const *row = pd_rows; *row != NULL; row++) {
        char rule[96];
        snprintf(rule, sizeof rule, "* %s", pd_row_name(*row));
        if (strcmp(pd_row_name(*row), "scalable_shampoo") == 0)
            strcat(rule, " root_delay=1"); /* with the default root_delay, the bits would depend on timing */
        if (strcmp(pd_row_name(*row), "adafactor") == 0) strcat(rule, " learning_rate=0.01");
        check(&(course){ .rules = rule }, (uint64_t)(row - pd_rows));
    }
}

static void roots_that_are_not_due_yet_are_adopted_in_their_step(void **state)
{
    char rule[256];
    (void)state;

    for (int delay = 0; delay <= 3; delay++) {
        snprintf(rule, sizeof rule,
                 "* scalable_shampoo block_size=16 learning_rate=0.01 "
                 "preconditioning_compute_steps=3 start_preconditioning_step=2 root_delay=%d",
                 delay);
        check(&(course){ .rules = rule }, 100 + (uint64_t)delay);
        snprintf(rule, sizeof rule,
                 "* shampoo max_preconditioner_dim=16 precondition_frequency=3 betas=0.9,0.99 "
                 "grafting_config=SGD epsilon=1e-4 root_delay=%d",
                 delay);
        check(&(course){ .rules = rule }, 200 + (uint64_t)delay);
        snprintf(rule, sizeof rule,
                 "* kron max_size_triangular=64 preconditioner_update_probability=0.3 "
                 "root_delay=%d",
                 delay > 1 ? 1 : delay);
        check(&(course){ .rules = rule }, 300 + (uint64_t)delay);
    }
}

static void coded_and_wide_slots_come_back_byte_for_byte(void **state)
{
    (void)state;
    check(&(course){ .rules = "* scalable_shampoo block_size=16 best_effort_memory_usage_reduction=yes root_delay=2 "
                              "preconditioning_compute_steps=4" },
          1);
    check(&(course){ .rules = "* shampoo preconditioner_dtype=float64 max_preconditioner_dim=16 "
                              "precondition_frequency=2 root_delay=1" },
          2);
    check(&(course){ .rules = "* kron mu_dtype=bfloat16" }, 3);
    check(&(course){ .rules = "* adafactor learning_rate=0.01 beta1=0.9 dtype_momentum=bfloat16" }, 4);
}

static void groups_ranges_absences_clipping_and_overrides_come_back(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < SEEDS; seed++) {
        check(&(course){ .rules = "* kron", .absent = true }, 10 + seed);
        check(&(course){ .rules = "* adam", .ranged = true, .absent = true }, 20 + seed);
        check(&(course){ .rules = "layer* adam lr=0.1;* sgd momentum=0.9",
                         .options = "clip_global_norm=0.5",
                         .overrides = true },
              30 + seed);
        check(&(course){ .rules = "* adam", .options = "aggregate=median", .ranged = true }, 40 + seed);
        check(&(course){ .rules = "* adam",
                         .options = "aggregate=weighted_mean nonfinite_scope=job start_step=7 "
                                    "seed=3",
                         .ranged = true },
              50 + seed);
        check(&(course){ .rules = "* shampoo", .options = "nonfinite_scope=job aggregate=adasum_vdot", .absent = true },
              60 + seed);
    }
}

static void a_job_of_one_rank_that_declares_ranges_comes_back(void **state)
{
    static const char *const name[] = { "p" };
    static const pd_shape shape = { 1, { 100 } };
    static const rig_range all = { 0, 100 };
    pd_store_config config = rig_config();
    float values[100] = { 0 };
    uint8_t *image;
    size_t n;
    rig r;

    (void)state;
    rig_new(&r, &config);
    assert_int_equal(rig_hello(&r, "job", 0, 1, CONN, CONN, NULL, "* sgd"), PD_OK);
    assert_int_equal(rig_declare_range(&r, 0, CONN, name[0], &shape, all), PD_OK);
    assert_int_equal(rig_init(&r, r.job, CONN, 0, values, 100), PD_OK);
    rig_work(&r);
    save(&r, &image, &n);
    rig_free(&r);
    rig_new(&r, &config);
    load(&r, image, n);
    free(image);
    rig_free(&r);
}

/* ---- bad images ---- */

static void some_job(rig *r, const course *p)
{
    pd_store_config config = rig_config();

    rig_new(r, &config);
    join(r, p);
    initialise(r, p);
    for (uint64_t step = 1; step <= 6; step++) {
        operate(r, p, step);
        step_to(r, p, step, WORLD * PARAMS);
    }
}

static const course rich = { .rules = "layer* shampoo lr=0.1 max_preconditioner_dim=8 root_delay=1;* adam",
                             .ranged = true,
                             .overrides = true };

/* Reads the image into an empty store. Checks that the store stays empty after an error. */
static int try_load(const uint8_t *image, size_t n)
{
    pd_store_config config = rig_config();
    pd_error err = { 0 };
    rig r;
    int rc;

    config.max_total_bytes = 16 << 20; /* a flipped byte may enlarge a size in the image; this limit then refuses the
                                        * image */
    rig_new(&r, &config);
    rc = pd_store_load_job(r.store, image, n, r.now, &err);
    if (rc != PD_OK) {
        assert_int_equal(r.store->jobs.n, 0);
        assert_int_equal(r.store->budget.used, 0);
        assert_true(err.text[0] != '\0');
    }
    rig_free(&r);
    return rc;
}

static void a_cut_image_is_refused_and_changes_nothing(void **state)
{
    uint8_t *image;
    size_t n;
    rig r;

    (void)state;
    some_job(&r, &rich);
    save(&r, &image, &n);
    assert_int_equal(try_load(image, n), PD_OK);
    for (size_t cut = 0; cut < n; cut += cut < 100 * THOROUGH || cut + 20 * THOROUGH > n ? 1 : 800 / THOROUGH) {
        uint8_t *part = malloc(cut + 1); /* each cut image has its own allocation, so that a sanitizer finds reads
                                          * beyond its end */
        memcpy(part, image, cut);
        assert_int_not_equal(try_load(part, cut), PD_OK);
        free(part);
    }
    free(image);
    rig_free(&r);
}

/* A flipped byte may turn a value into another valid value. Then the image is accepted. */
static void a_flipped_byte_is_refused_or_is_another_value(void **state)
{
    uint8_t *image;
    size_t n;
    rig r;

    (void)state;
    some_job(&r, &rich);
    save(&r, &image, &n);
    for (size_t i = 0; i < n; i += i < 400 * THOROUGH ? 1 : 400 / THOROUGH) {
        image[i] ^= 0xff;
        (void)try_load(image, n);
        image[i] ^= 0xff;
    }
    free(image);
    rig_free(&r);
}

static void an_image_of_a_job_that_exists_is_refused(void **state)
{
    pd_error err;
    uint8_t *image;
    size_t n;
    rig r;

    (void)state;
    some_job(&r, &rich);
    save(&r, &image, &n);
    assert_int_equal(pd_store_load_job(r.store, image, n, r.now, &err), PD_FAILED_PRECONDITION);
    free(image);
    rig_free(&r);
}

typedef struct bytes {
    const uint8_t *at;
    size_t n;
} bytes;

static int attempt(const void *what)
{
    const bytes *image = what;
    pd_store_config config = rig_config();
    pd_store *store;
    pd_error err;
    int rc = pd_store_new(&store, &config, &err);

    if (rc != PD_OK) return rc;
    rc = pd_store_load_job(store, image->at, image->n, 1, &err);
    pd_store_free(store);
    return rc;
}

static void memory_that_fails_while_reading_leaves_nothing(void **state)
{
    bytes image;
    uint8_t *at;
    rig r;

    (void)state;
    some_job(&r, &rich);
    save(&r, &at, &image.n);
    image.at = at;
    for (int64_t fail = 0;; fail += 1 + fail % (9 - THOROUGH)) {
        int rc;
        oom_arm(fail);
        rc = attempt(&image); /* PD_OK is possible although an allocation failed: only a log line was lost */
        if (!oom_disarm()) break;
        assert_true(rc == PD_OK || rc == PD_NO_MEMORY);
    }
    free(at);
    rig_free(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_optimizer_goes_on_with_the_same_bits),
        cmocka_unit_test(roots_that_are_not_due_yet_are_adopted_in_their_step),
        cmocka_unit_test(coded_and_wide_slots_come_back_byte_for_byte),
        cmocka_unit_test(groups_ranges_absences_clipping_and_overrides_come_back),
        cmocka_unit_test(a_job_of_one_rank_that_declares_ranges_comes_back),
        cmocka_unit_test(a_cut_image_is_refused_and_changes_nothing),
        cmocka_unit_test(a_flipped_byte_is_refused_or_is_another_value),
        cmocka_unit_test(an_image_of_a_job_that_exists_is_refused),
        cmocka_unit_test(memory_that_fails_while_reading_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
