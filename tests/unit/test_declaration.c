/* Tests what a declaration carries besides names and shapes (names of dimensions, the job's seed, model state), and
 * the notes that optimizers write about parameters. */
#include "test.h"
#include "optimizer_ops.h"
#include "rig.h"

/* This test's optimizer writes its axes and seed into the note of its plan, unless the parameter's name begins with
 * "quiet". */
static const pd_hyper no_hypers[] = { { .name = NULL } };

static int talk(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    (void)stats, (void)err;
    if (strncmp(declaration->name, "quiet", 5) == 0) return PD_OK;
    snprintf(plan->note, sizeof plan->note, "%s: axes %s, seed %llu", declaration->name,
             declaration->axes != NULL ? declaration->axes : "none", (unsigned long long)declaration->seed);
    return PD_OK;
}

static void stand_still(const pd_unit *unit)
{
    memcpy(unit->after + unit->first, unit->before + unit->first, (size_t)unit->n * sizeof *unit->after);
}

static const pd_optimizer_ops talking = {
    .name = "talking", .about = "for this test", .hypers = no_hypers, .plan = talk, .phases = { { .run = stand_still } }
};
static const pd_optimizer_ops *const rows[] = { &talking, NULL };

static const char *const names[] = { "a", "quiet", "b" };
static const pd_shape shapes[] = { { 2, { 4, 6 } }, { 1, { 5 } }, { 0, { 0 } } };
enum { PARAMS = 3 };

/* Creates the job "job" with two ranks. Both ranks have joined, but have declared no parameter. */
static void begin_with(rig *r, const pd_optimizer_ops *const *of, const char *options, const char *rules)
{
    pd_store_config config = rig_config();

    if (of != NULL) config.rows = of;
    rig_new(r, &config);
    assert_int_equal(rig_hello(r, "job", 0, 2, 1, 1, options, rules), PD_OK);
    assert_int_equal(rig_hello(r, "job", 1, 2, 2, 2, options, rules), PD_OK);
}

static void begin(rig *r)
{
    begin_with(r, rows, NULL, "* talking");
}

static int declare(rig *r, uint32_t rank)
{
    return rig_declare(r, r->job, rank, rank + 1, names, shapes, NULL, PARAMS, PD_F32);
}

/* Declares the test's parameters with these axes. `states` says for each parameter whether it is model state; NULL:
 * no parameter is. */
static int declare_as(rig *r, uint32_t rank, const char *const *axes, const bool *states)
{
    r->axes = axes;
    r->states = states;
    return declare(r, rank);
}

/* Checks that rank 1 is refused with `text` when it declares other axes or model state than rank 0 declared. */
static void assert_differs(rig *r, const char *const *axes, const bool *states, const char *text)
{
    assert_int_equal(declare_as(r, 1, axes, states), PD_FAILED_PRECONDITION);
    assert_string_equal(r->error.text, text);
}

TEST(a_plan_is_told_axes_and_the_jobs_seed)
{
    static const char *const axes[] = { "embed,mlp", NULL, NULL };
    rig r;
    begin_with(&r, rows, "seed=77", "* talking");
    assert_int_equal(declare_as(&r, 0, axes, NULL), PD_OK);
    assert_string_equal(r.notes[0], "a: axes embed,mlp, seed 77");
    assert_string_equal(r.notes[1], "");
    assert_string_equal(r.notes[2], "b: axes none, seed 77");
    rig_free(&r);
}

TEST(axes_are_a_name_or_nothing_for_each_dimension)
{
    char name[PD_AXIS_BYTES + 8];
    pd_error err;
    memset(name, 'x', PD_AXIS_BYTES);
    strcpy(name + PD_AXIS_BYTES, ",a");
    assert_int_equal(pd_axes_check(name, 2, &err), PD_OK);
    assert_int_equal(pd_axes_check("a,_b,C9_,", 4, &err), PD_OK);
    assert_int_equal(pd_axes_check(",,", 3, &err), PD_OK);
    assert_int_equal(pd_axes_check("", 0, &err), PD_OK);
    assert_int_equal(pd_axes_check("", 5, &err), PD_OK);
    strcpy(name + PD_AXIS_BYTES, "x,a");
    assert_int_equal(pd_axes_check(name, 2, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_axes_check("a", 0, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_axes_check("a,b", 3, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "expected a name for each of 3 dimensions, got 2 in \"a,b\"");
}

TEST(an_axis_of_other_letters_is_refused_by_its_place)
{
    static const char *const bad[] = { "a,9b", "a, b", "a,b-c", "a,b.c", "a,\xc3\xa9", "a,b\n" };
    pd_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        if (pd_axes_check(bad[i], 2, &err) != PD_INVALID_ARGUMENT) fail_msg("%s", bad[i]);
        assert_non_null(strstr(err.text, "axis 1: expected a name of at most 64"));
    }
}

TEST(the_store_refuses_bad_axes_and_makes_nothing)
{
    static const char *const axes[] = { "embed", NULL, NULL };
    rig r;
    begin(&r);
    assert_int_equal(declare_as(&r, 0, axes, NULL), PD_INVALID_ARGUMENT);
    assert_string_equal(r.error.text,
                        "parameter a: axes: expected a name for each of 2 dimensions, got 1 in \"embed\"");
    assert_int_equal(rig_ask(&r, PD_INFO_PARAMS, "job")->n_params, 0);
    rig_free(&r);
}

TEST(the_log_names_the_refused_request_and_its_rank)
{
    static const char *const axes[] = { "embed", NULL, NULL };
    rig r;
    begin(&r);
    r.axes = axes;
    for (int i = 0; i < 5; i++) assert_int_equal(declare(&r, 1), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r.warning, "job job: rank 1: refused what "));
    assert_non_null(strstr(r.warning, ": parameter a: axes: expected a name for each of 2 dimensions"));
    assert_int_equal(r.warnings, 3); /* of five equal refusals, only numbers 1, 2 and 4 are logged */
    rig_free(&r);
}

TEST(ranks_declare_the_same_axes)
{
    static const char *const ours[] = { "embed,mlp", NULL, NULL }, *const theirs[] = { "mlp,embed", NULL, NULL },
                             *const more[] = { "embed,mlp", "mlp", NULL };
    rig r;
    begin(&r);
    assert_int_equal(declare_as(&r, 0, ours, NULL), PD_OK);
    assert_differs(&r, theirs, NULL, "parameter a: job job has it with axes embed,mlp, this rank declares mlp,embed");
    assert_differs(&r, NULL, NULL, "parameter a: job job has it with axes embed,mlp, this rank declares none");
    assert_differs(&r, more, NULL, "parameter quiet: job job has it with axes none, this rank declares mlp");
    assert_int_equal(declare_as(&r, 1, ours, NULL), PD_OK);
    rig_free(&r);
}

TEST(every_rank_and_every_operator_gets_the_notes)
{
    static const char *const axes[] = { "x,", NULL, NULL };
    const pd_info *info;
    rig r;
    begin(&r);
    assert_int_equal(declare_as(&r, 0, axes, NULL), PD_OK);
    memset(r.notes, 0, sizeof r.notes);
    assert_int_equal(declare(&r, 1), PD_OK);
    assert_string_equal(r.notes[0], "a: axes x,, seed 0");
    info = rig_ask(&r, PD_INFO_PARAMS, "job");
    assert_string_equal(info->params[0].note, "a: axes x,, seed 0");
    assert_string_equal(info->params[0].axes, "x,");
    assert_string_equal(info->params[1].note, "");
    assert_string_equal(info->params[1].axes, "");
    rig_free(&r);
}

TEST(the_log_says_each_note_once)
{
    rig r;
    uint64_t before;
    begin(&r);
    before = r.warnings;
    assert_int_equal(declare(&r, 0), PD_OK);
    assert_int_equal(r.warnings - before, 2);
    assert_string_equal(r.warning, "job job: parameter b: b: axes none, seed 0");
    assert_int_equal(declare(&r, 1), PD_OK);
    assert_int_equal(declare(&r, 0), PD_OK);
    assert_int_equal(r.warnings - before, 2);
    rig_free(&r);
}

TEST(the_log_of_very_many_notes_is_short)
{
    enum { MANY = 1000 };
    static char many[MANY][16];
    static const char *list[MANY];
    static pd_shape scalars[MANY];
    rig r;
    uint64_t before;
    for (int i = 0; i < MANY; i++) {
        snprintf(many[i], sizeof many[i], "p%d", i);
        list[i] = many[i];
    }
    begin(&r);
    before = r.warnings;
    assert_int_equal(rig_declare(&r, r.job, 0, 1, list, scalars, NULL, MANY, PD_F32), PD_OK);
    assert_int_equal(r.warnings - before, 9);
    assert_string_equal(r.warning,
                        "job job: the optimizers warn about 992 more parameters (`paramctl params job --verbose`)");
    rig_free(&r);
}

/* Makes each allocation of a Declare fail in turn. Afterwards the same parameters can be declared. */
TEST(without_memory_a_declaration_with_axes_and_notes_changes_nothing)
{
    static const char *const axes[] = { "embed,mlp", NULL, NULL };
    static const bool states[] = { false, false, true };
    int64_t n;
    rig r;
    for (uint32_t rank = 0; rank < 2; rank++) {
        for (n = 0;; n++) {
            pd_request *request;
            int rc;
            begin(&r);
            r.axes = axes;
            r.states = states;
            if (rank == 1) assert_int_equal(declare(&r, 0), PD_OK);
            request = pd_request_new(PD_REQ_DECLARE, rig_ticket(&r, rank + 1));
            request->job = r.job;
            request->rank = rank;
            request->u.declare.n = PARAMS;
            request->u.declare.params = calloc(PARAMS, sizeof(pd_param_decl));
            for (size_t i = 0; i < PARAMS; i++)
                request->u.declare.params[i] = (pd_param_decl){ .name = strdup(names[i]),
                                                                .shape = shapes[i],
                                                                .pull_dtype = PD_F32,
                                                                .model_state = states[i],
                                                                .axes = axes[i] != NULL ? strdup(axes[i]) : NULL };
            oom_arm(n);
            rc = rig_apply(&r, request);
            if (!oom_disarm()) break;
            if (rc != PD_OK) assert_int_equal(rc, PD_NO_MEMORY); /* PD_OK: only a log line could not be allocated */
            assert_int_equal(declare(&r, rank), PD_OK);
            rig_free(&r);
        }
        rig_free(&r);
        assert_true(n > 3);
    }
}

/* Declares n parameters. The optimizer's rule has a map whose expressions are searched in each name, and each search
 * takes some 200,000 steps. */
static int declare_with_a_hostile_map(rig *r, size_t n)
{
    static char name[40][PD_NAME_MAX + 1];
    const char *all[40];
    pd_shape shape[40];

    for (size_t i = 0; i < n; i++) {
        memset(name[i], 'a', PD_NAME_MAX);
        name[i][PD_NAME_MAX - 2] = (char)('0' + i / 10);
        name[i][PD_NAME_MAX - 1] = (char)('0' + i % 10);
        all[i] = name[i];
        shape[i] = (pd_shape){ 1, { 3 } };
    }
    return rig_declare(r, r->job, 0, 1, all, shape, NULL, n, PD_F32);
}

TEST(the_cost_of_all_searches_of_a_set_is_bounded)
{
    rig r;
    begin_with(&r, NULL, NULL, "* adafactor learning_rate=0.1 factor_map=['a*a*[bc]':none,'':none]");
    assert_int_equal(declare_with_a_hostile_map(&r, 40), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r.error.text, "parameter aaaa"));
    assert_int_equal(declare_with_a_hostile_map(&r, 3), PD_OK);
    rig_free(&r);
}

TEST(model_state_is_the_mean_of_what_ranks_push)
{
    static const bool states[] = { true };
    static const char *const name[] = { "running_mean" };
    static const pd_shape three = { 1, { 3 } };
    const float initial[] = { 5, 6, 7 }, a[] = { 1, -2, 8 }, b[] = { 2, 4, -1 };
    rig r;
    begin_with(&r, NULL, NULL, "* sgd lr=0.1 momentum=0.9");
    r.states = states;
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(rig_declare(&r, r.job, rank, rank + 1, name, &three, NULL, 1, PD_F32), PD_OK);
    assert_string_equal(rig_ask(&r, PD_INFO_PARAMS, "job")->params[0].optimizer, "model_state");
    assert_int_equal(rig_ask(&r, PD_INFO_PARAMS, "job")->params[0].state_bytes, 0);
    assert_int_equal(rig_init(&r, r.job, 1, 0, initial, 3), PD_OK);
    assert_memory_equal(rig_weights(&r, r.job, 0), initial, sizeof initial);
    for (uint64_t step = 1; step <= 2; step++) {
        assert_int_equal(rig_push(&r, r.job, 0, 1, step, 0, step == 1 ? a : b, 3), PD_OK);
        assert_int_equal(rig_push(&r, r.job, 1, 2, step, 0, step == 1 ? b : b, 3), PD_OK);
        rig_work(&r);
        for (int i = 0; i < 3; i++) assert_true(rig_weights(&r, r.job, 0)[i] == (step == 1 ? (a[i] + b[i]) / 2 : b[i]));
    }
    rig_free(&r);
}

/* Returns the model state of a job of one element after one round. Rank r contributes value[r] with weight[r]. */
static float after_a_round(const char *options, const float value[2], const double weight[2])
{
    static const char *const name[] = { "s" };
    static const pd_shape one = { 1, { 1 } };
    float begin = 100, result;
    rig r;

    begin_with(&r, NULL, options, "s model_state");
    for (uint32_t rank = 0; rank < 2; rank++)
        assert_int_equal(rig_declare(&r, r.job, rank, rank + 1, name, &one, NULL, 1, PD_F32), PD_OK);
    assert_int_equal(rig_init(&r, r.job, 1, 0, &begin, 1), PD_OK);
    for (uint32_t rank = 0; rank < 2; rank++) {
        rig_frame *frame = rig_frame_new(&r, PD_REQ_PUSH, r.job, rank, rank + 1, 1);
        if (isnan(value[rank]))
            rig_absent(frame, 0);
        else
            rig_piece(frame, 0, PD_F32, 0, 1, &value[rank]);
        rig_weight(frame, weight[rank], false);
        assert_int_equal(rig_send(&r, frame), PD_OK);
    }
    rig_work(&r);
    result = *rig_weights(&r, r.job, 0);
    rig_free(&r);
    return result;
}

TEST(model_state_is_weighted_as_the_job_weighs)
{
    assert_true(after_a_round("aggregate=weighted_mean", (float[]){ 1, 5 }, (double[]){ 3, 1 }) == 2);
    assert_true(after_a_round("aggregate=mean", (float[]){ 1, 5 }, (double[]){ 3, 1 }) == 3);
}

TEST(model_state_is_averaged_with_every_aggregate)
{
    static const char *const options[] = { "aggregate=sum", "aggregate=adasum", "aggregate=median",
                                           "aggregate=trimmed_mean trim=0" };
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        if (after_a_round(options[i], (float[]){ 1, 5 }, (double[]){ 1, 1 }) != 3) fail_msg("%s", options[i]);
    assert_true(after_a_round("clip_global_norm=0.5", (float[]){ 1, 5 }, (double[]){ 1, 1 }) == 3);
}

TEST(a_rank_without_values_does_not_count_and_none_at_all_changes_nothing)
{
    assert_true(after_a_round(NULL, (float[]){ 8, NAN }, (double[]){ 1, 1 }) == 8);
    assert_true(after_a_round(NULL, (float[]){ NAN, NAN }, (double[]){ 1, 1 }) == 100);
}

TEST(values_that_are_not_finite_are_skipped_as_ever)
{
    assert_true(after_a_round("nonfinite=skip", (float[]){ INFINITY, 1 }, (double[]){ 1, 1 }) == 100);
    assert_true(isinf(after_a_round("nonfinite=apply", (float[]){ INFINITY, 1 }, (double[]){ 1, 1 })));
}

TEST(whole_numbers_up_to_2_to_the_24th_are_exact)
{
    assert_true(after_a_round(NULL, (float[]){ 16777216, 16777216 }, (double[]){ 1, 1 }) == 16777216);
    assert_true(after_a_round(NULL, (float[]){ 16777215, 16777215 }, (double[]){ 1, 1 }) == 16777215);
}

TEST(ranks_agree_on_what_is_model_state)
{
    static const bool states[] = { true, false, false };
    rig r;
    begin(&r);
    assert_int_equal(declare_as(&r, 0, NULL, states), PD_OK);
    assert_differs(&r, NULL, NULL, "parameter a: job job has it as model state, this rank declares it as trained");
    assert_int_equal(declare_as(&r, 1, NULL, states), PD_OK);
    rig_free(&r);
}

TEST(model_state_needs_no_rule_and_other_parameters_do)
{
    static const bool all[] = { true, true, true }, some[] = { true, true, false };
    rig r;
    begin_with(&r, rows, NULL, "nothing_has_this_name talking");
    assert_int_equal(declare_as(&r, 0, NULL, some), PD_INVALID_ARGUMENT);
    assert_string_equal(r.error.text, "parameter b: none of the job's 1 rules matches: add a catch-all \"* sgd\"");
    assert_int_equal(declare_as(&r, 0, NULL, all), PD_OK);
    rig_free(&r);
}

/* An override for all parameters does not apply to model state. */
TEST(an_operator_cannot_override_model_state)
{
    static const bool states[] = { true, false, false };
    rig r;
    begin_with(&r, NULL, NULL, "* sgd lr=1");
    assert_int_equal(declare_as(&r, 0, NULL, states), PD_OK);
    assert_int_equal(declare(&r, 1), PD_OK);
    assert_int_equal(rig_set(&r, "job", "*", "lr=0.5", 0), PD_OK);
    assert_int_equal(r.set->params, 2);
    assert_int_equal(rig_set(&r, "job", "a", "lr=0.5", 0), PD_INVALID_ARGUMENT);
    assert_string_equal(r.error.text,
                        "a: model_state has no hyperparameter lr; it has: none (paramctl optimizers model_state)");
    rig_free(&r);
}

TEST(model_state_in_ranges_is_what_each_rank_has)
{
    static const bool states[] = { true };
    static const char *const name[] = { "s" };
    static const pd_shape four = { 1, { 4 } };
    static const rig_range ranges[2] = { { 0, 3 }, { 2, 4 } };
    const float value[2][3] = { { 1, 2, 3 }, { 5, 8 } }, expected[] = { 1, 2, 4, 8 };
    rig r;
    begin_with(&r, NULL, NULL, "* sgd lr=1");
    r.states = states;
    for (uint32_t rank = 0; rank < 2; rank++) {
        r.ranges = &ranges[rank];
        assert_int_equal(rig_declare(&r, r.job, rank, rank + 1, name, &four, NULL, 1, PD_F32), PD_OK);
    }
    for (int push = 0; push < 2; push++)
        for (uint32_t rank = 0; rank < 2; rank++) {
            rig_frame *frame = rig_frame_new(&r, push ? PD_REQ_PUSH : PD_REQ_INIT, r.job, rank, rank + 1, 1);
            rig_piece(frame, 0, PD_F32, ranges[rank].start, ranges[rank].end - ranges[rank].start, value[rank]);
            assert_int_equal(rig_send(&r, frame), PD_OK);
            rig_work(&r);
        }
    assert_memory_equal(rig_weights(&r, r.job, 0), expected, sizeof expected);
    rig_free(&r);
}
