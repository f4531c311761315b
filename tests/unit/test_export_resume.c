/* Tests that exported weights and optimizer state, imported into a new job, give the same bits from there on as the job
 * that was not interrupted. */
#include "test.h"
#include "exporting.h"
#include "optimizer.h"
#include "save.h"
#include "step_group.h"
#include "rig.h"
#include "store_inside.h"

enum { WORLD = 2, PARAMS = 3, BEFORE = 9, STEPS = 20, CONN = 10, OPERATOR = 99, MOST = 480, PIECE = 77 };
static const char *const names[PARAMS] = { "layer.weight", "layer.bias", "head.bias" };
static const pd_shape shapes[PARAMS] = { { 2, { 24, 20 } }, { 1, { 150 } }, { 1, { 96 } } };
static const int64_t sizes[PARAMS] = { 480, 150, 96 };

typedef struct course {
    const char *options, *rules;
    bool absent;  /* some ranks have no gradient in some steps */
    bool skipped; /* a step is skipped because a gradient is not finite */
    bool silent;  /* one parameter has no gradient before step 12 */
    bool early;   /* the other rank of the new job pushes before rank 0 brings the state */
    bool late;    /* it joins after that */
    int before;   /* step after which the job is exported, if not BEFORE; -1: before the first step */
} course;

static void values_of(uint64_t seed, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++) out[i] = (float)(int)(rig_random(&seed) % 2001 - 1000) / 1000;
}

static void join_some(rig *r, const course *p, uint64_t start_step, uint32_t first, uint32_t end)
{
    char options[256];

    snprintf(options, sizeof options, "%s start_step=%llu", p->options != NULL ? p->options : "seed=5",
             (unsigned long long)start_step);
    for (uint32_t rank = first; rank < end; rank++) {
        if (rig_hello(r, "job", rank, WORLD, CONN + rank, CONN + rank, options, p->rules) != PD_OK)
            fail_msg("%s", r->error.text);
        if (rig_declare(r, r->job, rank, CONN + rank, names, shapes, NULL, PARAMS, PD_F32) != PD_OK)
            fail_msg("%s", r->error.text);
    }
}

static void join(rig *r, const course *p, uint64_t start_step)
{
    join_some(r, p, start_step, 0, WORLD);
}

static void initialise(rig *r, float *const *weights)
{
    for (uint32_t i = 0; i < PARAMS; i++) assert_int_equal(rig_init(r, r->job, CONN, i, weights[i], sizes[i]), PD_OK);
    rig_work(r);
}

static void push(rig *r, const course *p, uint32_t rank, uint32_t param, uint64_t step)
{
    float values[MOST];
    uint64_t seed = step * 1000 + param * 10 + rank, drawn = seed;

    if ((p->absent && rig_random(&drawn) % 3 == 0) || (p->silent && param == 1 && step < 12)) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, r->job, rank, CONN + rank, step);
        rig_absent(frame, param);
        assert_int_equal(rig_send(r, frame), PD_OK);
        return;
    }
    values_of(seed, values, sizes[param]);
    if (p->skipped && (step == 3 || step == 4)) values[step] = 1e38f * 10;
    assert_int_equal(rig_push(r, r->job, rank, CONN + rank, step, param, values, sizes[param]), PD_OK);
}

static void step_to(rig *r, const course *p, uint64_t step)
{
    for (uint32_t rank = 0; rank < WORLD; rank++)
        for (uint32_t i = 0; i < PARAMS; i++) push(r, p, rank, i, step);
    rig_work(r);
}

static pd_param *param_of(rig *r, uint32_t i)
{
    return &inside_job(r->store, r->job)->steps.params[i];
}

static pd_request *import(rig *r, pd_import_act act, uint32_t param)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(r, OPERATOR));

    request->u.import.act = act;
    request->u.import.job_name = strdup("job");
    request->u.import.param = strdup(names[param]);
    request->u.import.slot = strdup("");
    request->u.import.number = request->u.import.block = -1;
    return request;
}

static void must_apply(rig *r, pd_request *request)
{
    if (rig_apply(r, request) != PD_OK) fail_msg("%s", r->error.text);
}

/* Imports into the new job the part of an optimizer's slot that was just exported from the old job. */
static void bring(rig *to, const rig *from, uint32_t param, const pd_slot_spec *spec, int64_t first, int64_t count)
{
    pd_request *request = import(to, PD_IMPORT_PIECE, param);

    free(request->u.import.slot);
    request->u.import.slot = strdup(spec->name);
    request->u.import.number = spec->number;
    request->u.import.block = spec->of_block ? spec->block : -1;
    request->u.import.shape = spec->shape;
    request->u.import.wide = from->exported.wide;
    request->u.import.first = first;
    request->u.import.count = count;
    memcpy(rig_payload(to, OPERATOR, from->exported.bytes, &request->u.import.buffer), from->exported.at,
           from->exported.bytes);
    must_apply(to, request);
}

static void carry_slot(rig *from, rig *to, uint32_t param, const pd_slot_spec *spec)
{
    int64_t n = pd_slot_elements(spec);

    for (int64_t first = 0; first < n; first += PIECE) {
        int64_t some = n - first < PIECE ? n - first : PIECE;
        if (export_state(from, "job", OPERATOR, names[param], spec->name, spec->number,
                         spec->of_block ? spec->block : -1, first, some) != PD_OK)
            fail_msg("%s", from->error.text);
        bring(to, from, param, spec, first, some);
    }
}

static int roots_carried; /* number of pending roots (computed, but not used yet) that all cases have imported */

/* Imports into the new job the part of a pending root that was just exported from the old job. */
static void bring_root(rig *to, const rig *from, uint32_t param, int k, int64_t n, int64_t first, int64_t count)
{
    pd_request *request = import(to, PD_IMPORT_PIECE, param);

    free(request->u.import.slot);
    request->u.import.slot = strdup(PD_PENDING_ROOT);
    request->u.import.number = k;
    request->u.import.shape = (pd_shape){ 1, { n } };
    request->u.import.wide = true;
    request->u.import.first = first;
    request->u.import.count = count;
    memcpy(rig_payload(to, OPERATOR, from->exported.bytes, &request->u.import.buffer), from->exported.at,
           from->exported.bytes);
    must_apply(to, request);
}

/* Exports the pending roots (computed, but not used yet) and imports them into the new job. Begins with the last
 * root, since the order must not matter. */
static void carry_roots(rig *from, rig *to, uint32_t param, int n)
{
    roots_carried += n;
    for (int k = n - 1; k >= 0; k--) {
        int64_t length;
        assert_int_equal(export_state(from, "job", OPERATOR, names[param], PD_PENDING_ROOT, k, -1, 0, 0), PD_OK);
        length = (int64_t)from->exported.elements;
        for (int64_t first = 0; first < length; first += PIECE) {
            int64_t some = length - first < PIECE ? length - first : PIECE;
            assert_int_equal(export_state(from, "job", OPERATOR, names[param], PD_PENDING_ROOT, k, -1, first, some),
                             PD_OK);
            assert_true(from->exported.wide);
            bring_root(to, from, param, k, length, first, some);
        }
    }
}

static void carry_count(rig *from, rig *to, uint32_t param)
{
    pd_request *request = import(to, PD_IMPORT_COUNT, param);

    assert_int_equal(export_count(from, "job", OPERATOR, names[param]), PD_OK);
    request->u.import.value = from->exported.count;
    must_apply(to, request);
    carry_roots(from, to, param, (int)from->exported.roots);
}

static void carry_state(rig *from, rig *to)
{
    uint64_t answered;

    must_apply(to, import(to, PD_IMPORT_BEGIN, 0));
    for (uint32_t i = 0; i < PARAMS; i++) {
        const pd_plan *plan = pd_optim_plan(param_of(from, i)->optim);
        for (size_t k = 0; k < plan->n_slots; k++)
            if (!plan->slots[k].temporary) carry_slot(from, to, i, &plan->slots[k]);
        carry_count(from, to, i);
    }
    answered = to->answered;
    must_apply(to, import(to, PD_IMPORT_COMMIT, 0));
    rig_work(to);
    assert_int_equal(to->answered, answered + 1);
    if (to->error.code != PD_OK) fail_msg("%s", to->error.text);
}

static void carry_weights(rig *from, rig *to)
{
    float weights[PARAMS][MOST], *list[PARAMS];

    for (uint32_t i = 0; i < PARAMS; i++) {
        list[i] = weights[i];
        assert_int_equal(export_weights(from, "job", OPERATOR, names[i], 0, sizes[i]), PD_OK);
        memcpy(weights[i], from->exported.at, from->exported.bytes);
    }
    initialise(to, list);
}

/* Exports a job and creates the other job from the export. The first job may have received part of a step's pushes. */
static void resume(rig *from, rig *to, const course *p)
{
    pd_store_config config = rig_config();
    uint64_t step;

    config.threads = 2;
    if (export_begin(from, "job", OPERATOR, true, 30) != PD_OK) fail_msg("%s", from->error.text);
    rig_new(to, &config);
    step = from->exported.step;
    join_some(to, p, step, 0, p->late ? 1 : WORLD);
    carry_weights(from, to);
    for (uint32_t i = 0; p->early && i < PARAMS; i++) push(to, p, 1, i, step + 1);
    rig_work(to);
    carry_state(from, to);
    if (p->late) join_some(to, p, step, 1, WORLD);
    assert_int_equal(export_end(from, "job", OPERATOR), PD_OK);
}

static void compare_slot(rig *a, rig *b, uint32_t i, size_t slot)
{
    const pd_optim *x = param_of(a, i)->optim, *y = param_of(b, i)->optim;
    const pd_slot_spec *spec = &pd_optim_plan(x)->slots[slot];
    int64_t n = pd_slot_elements(spec);
    double *left = calloc((size_t)n, sizeof *left), *right = calloc((size_t)n, sizeof *right);

    pd_optim_read_elements(x, slot, 0, n, left);
    pd_optim_read_elements(y, slot, 0, n, right);
    if (memcmp(left, right, (size_t)n * sizeof *left) != 0) fail_msg("%s: %s differs", names[i], spec->name);
    free(left);
    free(right);
}

/* Returns the steps that the parameter has counted, alone or with others. An optimizer learns of those that its
 * parameter had no gradient in when it steps. */
static int64_t count_of(rig *r, uint32_t i)
{
    const pd_param *param = param_of(r, i);

    return param->group != NULL ? pd_step_group_count(param) : pd_optim_count(param->optim);
}

static void compare(rig *a, rig *b, const char *rules)
{
    for (uint32_t i = 0; i < PARAMS; i++) {
        const pd_plan *plan = pd_optim_plan(param_of(a, i)->optim);
        assert_int_equal(param_of(a, i)->saved.step, param_of(b, i)->saved.step);
        assert_int_equal(count_of(a, i), count_of(b, i));
        if (memcmp(param_of(a, i)->current->at[PD_F32], param_of(b, i)->current->at[PD_F32],
                   (size_t)sizes[i] * sizeof(float)) != 0)
            fail_msg("%s: the weights of %s differ", rules, names[i]);
        for (size_t k = 0; k < plan->n_slots; k++)
            if (!plan->slots[k].temporary) compare_slot(a, b, i, k);
    }
}

/* Trains one job for all steps. After some steps, creates another job from its export, which trains for the
 * remaining steps. Checks that both jobs end with the same bits. */
static void check(const course *p)
{
    pd_store_config config = rig_config();
    float weights[PARAMS][MOST], *list[PARAMS];
    uint64_t before = p->before < 0 ? 0 : p->before > 0 ? (uint64_t)p->before : BEFORE;
    rig a, b;

    rig_new(&a, &config);
    join(&a, p, 0);
    for (uint32_t i = 0; i < PARAMS; i++) values_of(i + 1, list[i] = weights[i], sizes[i]);
    initialise(&a, list);
    for (uint64_t step = 1; step <= before; step++) step_to(&a, p, step);
    resume(&a, &b, p);
    compare(&a, &b, p->rules);
    for (uint64_t step = before + 1; step <= STEPS; step++) {
        step_to(&a, p, step);
        step_to(&b, p, step);
    }
    compare(&a, &b, p->rules);
    rig_free(&a);
    rig_free(&b);
}

/* Checks a course with each optimizer of the table. */
static void check_all(course p)
{
    char rule[128];

    for (const pd_optimizer_ops *const *row = pd_optimizer_table; *row != NULL; row++) {
        snprintf(rule, sizeof rule, "* %s%s", pd_optimizer_name(*row),
                 strcmp(pd_optimizer_name(*row), "adafactor") == 0          ? " learning_rate=0.01"
                 : strcmp(pd_optimizer_name(*row), "scalable_shampoo") == 0 ? " root_delay=0"
                 : strcmp(pd_optimizer_name(*row), "delayed_nesterov") == 0 ? " period=4"
                                                                            : "");
        p.rules = rule;
        check(&p);
    }
}

HOLDS(every_optimizer_goes_on_with_the_same_bits, check_all((course){ 0 }));

HOLDS(a_state_from_before_the_first_step_goes_on, check_all((course){ .before = -1 }));

HOLDS(a_parameter_that_had_no_gradient_yet_goes_on,
      check_all((course){ .silent = true, .options = "nonfinite_scope=job seed=3", .skipped = true, .before = 4 }));

TEST(rank_0_alone_brings_the_state_while_others_push_or_are_not_there)
{
    check_all((course){ .early = true, .before = 1 });
    check(&(course){ .rules = "* adam", .late = true });
    check(&(course){ .rules = "* shampoo max_preconditioner_dim=16", .late = true });
    check(&(course){ .rules = "* sgd momentum=0.9", .options = "clip_global_norm=0.5", .early = true });
    check(&(course){ .rules = "* kron", .skipped = true, .absent = true, .early = true });
}

TEST(a_job_goes_on_from_every_step)
{
    static const char *const rules[] = {
        "* scalable_shampoo block_size=16 learning_rate=0.01 preconditioning_compute_steps=3 root_delay=2",
        "* shampoo max_preconditioner_dim=16 precondition_frequency=3 start_preconditioning_step=3 root_delay=2",
        "* kron preconditioner_update_probability=0.5 root_delay=1",
    };

    for (int before = 1; before < STEPS; before++)
        check(&(course){ .rules = rules[before % 3], .absent = before % 2 > 0, .skipped = true, .before = before });
}

TEST(a_period_goes_on_from_each_of_its_steps)
{
    for (int before = 1; before <= 5; before++)
        check(&(course){ .rules = "* delayed_nesterov lr=0.7 period=4 spread=0.1", .before = before });
}

TEST(momentum_averages_and_factors_go_on)
{
    check(&(course){ .rules = "* sgd lr=0.1 momentum=0.9 nesterov=yes" });
    check(&(course){ .rules = "* adamw lr=cosine(peak=0.01,steps=20,warmup_steps=3) amsgrad=yes" });
    check(&(course){ .rules = "* adafactor learning_rate=0.01 beta1=0.9 dtype_momentum=bfloat16" });
    check(&(course){ .rules = "* kron max_size_triangular=64 preconditioner_update_probability=0.3 root_delay=0" });
    check(&(course){ .rules = "* kron mu_dtype=bfloat16" });
    check(&(course){ .rules = "* kron dQ=QUAD merge_small_dims=no block_size=8 precond_dtype=bfloat16" });
    check(&(course){ .rules = "* kron dQ=QEP merge_small_dims=no preconditioner_init_scale=auto" });
    check(&(course){ .rules = "* ademamix alpha_warmup=9 beta3_warmup=12 mu_dtype=bfloat16" });
    check(&(course){ .rules = "* mars mars_type=mars-lion last_grad_dtype=bfloat16" });
    check(&(course){ .rules = "* schedule_free warmup_steps=9 inner_momentum=0.9 mu_dtype=bfloat16" });
    check(&(course){ .rules = "* schedule_free_sgd lr=linear_warmup(peak=0.1,warmup_steps=9) r=1" });
    check(&(course){ .rules = "* gpa lr=0.01 weight_decay=0.1" });
    check(&(course){ .rules = "* muon normuon=yes mu_dtype=bfloat16 hyperball=yes" });
    check(&(course){ .rules = "* soap hyperball=yes precondition_frequency=3 root_delay=2" });
    check(&(course){ .rules = "* kl_shampoo using_klsoap=yes hyperball=yes precondition_frequency=3 root_delay=2" });
    check(&(course){ .rules = "* soap orthogonalize=yes block_size=8 exp_avg_dtype=bfloat16 basis_dtype=bfloat16" });
    check(&(course){ .rules = "* shampoo hyperball=yes precondition_frequency=3 root_delay=2 grafting_config=Adam" });
}

TEST(roots_go_on)
{
    check(&(course){ .rules = "* scalable_shampoo block_size=16 learning_rate=0.01 preconditioning_compute_steps=3 "
                              "start_preconditioning_step=2 root_delay=0" });
    check(&(course){ .rules = "* shampoo max_preconditioner_dim=16 precondition_frequency=3 betas=0.9,0.99 "
                              "grafting_config=SGD epsilon=1e-4 root_delay=0" });
    check(&(course){
        .rules =
            "* shampoo preconditioner_dtype=float64 max_preconditioner_dim=16 precondition_frequency=2 root_delay=0" });
}

TEST(roots_that_are_not_used_yet_go_on)
{
    char rule[256];

    roots_carried = 0;
    for (int delay = 1; delay <= 3; delay++) {
        snprintf(rule, sizeof rule,
                 "* scalable_shampoo block_size=16 learning_rate=0.01 preconditioning_compute_steps=3 "
                 "start_preconditioning_step=2 root_delay=%d",
                 delay);
        check(&(course){ .rules = rule });
        snprintf(rule, sizeof rule,
                 "* shampoo max_preconditioner_dim=8 precondition_frequency=3 start_preconditioning_step=3 "
                 "betas=0.9,0.99 grafting_config=SGD epsilon=1e-4 root_delay=%d%s",
                 delay, delay == 2 ? " preconditioner_dtype=float64" : "");
        check(&(course){ .rules = rule });
    }
    check(&(course){ .rules = "* kron max_size_triangular=64 preconditioner_update_probability=1 root_delay=1" });
    check(&(course){ .rules = "* kron dQ=Q0.5EQ1.5 merge_small_dims=no root_delay=1" });
    assert_true(roots_carried >= 20);
}

TEST(quantized_state_goes_on)
{
    check(&(course){ .rules = "* scalable_shampoo block_size=16 best_effort_memory_usage_reduction=yes root_delay=0 "
                              "preconditioning_compute_steps=4" });
    check(&(course){ .rules = "* scalable_shampoo block_size=16 best_effort_memory_usage_reduction=yes root_delay=0 "
                              "preconditioning_compute_steps=1 graft_type=RMSPROP moving_average_for_momentum=yes" });
}

TEST(counters_of_steps_that_were_not_taken_go_on)
{
    check(&(course){ .rules = "* adam", .skipped = true });
    check(&(course){ .rules = "* adam", .absent = true });
    check(&(course){ .rules = "* kron", .skipped = true, .absent = true });
    check(&(course){ .rules = "* adafactor learning_rate=0.01", .options = "nonfinite_scope=job", .skipped = true });
    check(&(course){ .rules = "layer* adam lr=0.1;* sgd momentum=0.9", .options = "clip_global_norm=0.5" });
}
