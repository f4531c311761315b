/* What a model costs, told from its shapes: on the row made for tests, and on sgd. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "coupled_row.h"
#include "forecast.h"
#include "oom.h"

extern const pd_row pd_sgd, pd_scalable_shampoo;

/* coupled_row with tasks that differ: each also reads the first statistic and the tally, the last one costs more, roots are used when they
 * are ready. They are due where lr is above 1. */
static pd_row varied_row;
static const pd_row *const rows[] = { &pd_sgd, &coupled_row, &varied_row, &pd_scalable_shampoo, NULL };

static int varied_plan(const pd_declaration *declaration, const double *fact, pd_plan *plan, pd_error *err)
{
    int rc = coupled_row.plan(declaration, fact, plan, err);

    plan->root_delay = PD_ROOT_READY;
    for (size_t t = 0; t < plan->n_tasks; t++) {
        plan->tasks[t].n_inputs = 3;
        plan->tasks[t].input[1] = plan->tasks[0].input[0];
        plan->tasks[t].input[2] = 1;
        plan->tasks[t].cost = t + 1 == plan->n_tasks ? 5000 : 40;
    }
    return rc;
}

static bool varied_due(const pd_plan *plan, const double *hyper, int64_t count)
{
    (void)plan;
    (void)count;
    return hyper[COUPLED_LR] > 1;
}

static int make_varied_row(void **state)
{
    (void)state;
    varied_row = coupled_row;
    varied_row.name = "varied";
    varied_row.plan = varied_plan;
    varied_row.due = varied_due;
    return 0;
}

#define MOST 64

typedef struct model {
    pd_shapes      shapes;
    pd_shape_entry entry[MOST];
    pd_forecast    forecast;
} model;

static void add(model *m, const char *name, int rank, int64_t a, int64_t b)
{
    pd_shape_entry *e = &m->entry[m->shapes.n++];

    *e = (pd_shape_entry){ .name = (char *)(uintptr_t)name, .shape = { rank, { a, b } }, .line = (int64_t)m->shapes.n };
    assert_int_equal(pd_shape_elements(&e->shape, &e->elements), PD_OK);
}

static int make(model *m, char *const *rules, size_t n, pd_error *err)
{
    m->shapes.entries = m->entry;
    return pd_forecast_make(&m->forecast, &m->shapes, rules, n, rows, err);
}

static const pd_forecast *forecast(model *m, const char *first, const char *second)
{
    char *rules[] = { (char *)(uintptr_t)first, (char *)(uintptr_t)second };
    pd_error err = { 0 };

    if (make(m, rules, (size_t)(first != NULL) + (second != NULL), &err) != PD_OK) fail_msg("%s", err.text);
    return &m->forecast;
}

/* What is printed, with one blank for any number of them; the caller frees. */
static char *told(const pd_forecast *f, bool verbose)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);

    assert_int_equal(pd_forecast_print(f, verbose, out, NULL), PD_OK);
    fclose(out);
    char *to = text;
    for (const char *at = text; *at != '\0'; at++)
        if (*at != ' ' || to == text || to[-1] != ' ') *to++ = *at;
    *to = '\0';
    return text;
}

static void assert_tells(const pd_forecast *f, bool verbose, const char *part)
{
    char *text = told(f, verbose);

    if (strstr(text, part) == NULL) fail_msg("does not tell \"%s\":\n%s", part, text);
    free(text);
}

static void assert_does_not_tell(const pd_forecast *f, bool verbose, const char *part)
{
    char *text = told(f, verbose);

    if (strstr(text, part) != NULL) fail_msg("tells \"%s\":\n%s", part, text);
    free(text);
}

/* ---- numbers ---- */

/* One parameter of 7 x 5 in blocks of at most 3 x 3. */
static model small(void)
{
    model m = { 0 };

    add(&m, "w", 2, 7, 5);
    return m;
}

static void sums_are_those_of_the_state_a_job_would_make(void **state)
{
    static const char *const names[] = { "w", "v", "s", "w2", "w3" };
    model m = small();
    int64_t bytes = 0;

    (void)state;
    add(&m, names[1], 1, 10, 0);
    add(&m, names[2], 0, 0, 0);
    add(&m, names[3], 2, 7, 5);
    add(&m, names[4], 2, 7, 5);
    const pd_forecast *f = forecast(&m, "s sgd momentum=0.5", "* coupled block_size=4 interval=5");
    for (int i = 0; i < 5; i++) {
        pd_declaration declaration = { names[i], m.entry[i].shape, f->kind[i]->rule->hypers };
        pd_optim *optim;
        assert_int_equal(pd_optim_new(&optim, &declaration, f->fact[1], NULL), PD_OK);
        assert_int_equal(f->kind[i]->state_bytes, pd_optim_state_bytes(optim));
        bytes += pd_optim_state_bytes(optim);
        pd_optim_free(optim);
    }
    assert_int_equal(f->all.state_bytes, bytes);
    assert_int_equal(f->all.params, 5);
    assert_int_equal(f->all.elements, 3 * 35 + 10 + 1);
    assert_int_equal(f->all.weight_bytes, (3 * 35 + 10 + 1) * 4);
    assert_int_equal(f->all.blocks, 3 * 4 + 3);
    assert_int_equal(f->all.tasks, 3 * 4 + 3);
    assert_int_equal(f->all.step_bytes, (3 * 35 + 10) * 4);
    assert_int_equal(f->all.task_bytes, 2 * (3 * 35 + 10) * 4);
    assert_true(f->all.task_flops == 4.0 * (3 * 35 + 10));
    assert_true(f->all.task_flops_per_step == f->all.task_flops / 5);
    assert_int_equal(f->all.thread_bytes, 4 * 4 * 4);
    assert_int_equal(f->of_rule[0].params, 1);
    assert_int_equal(f->of_rule[1].params, 4);
    pd_forecast_free(&m.forecast);
}

static void sums_that_do_not_fit_are_the_largest(void **state)
{
    model m = { 0 };

    (void)state;
    for (int i = 0; i < 10; i++) add(&m, "abcdefghij" + i, 1, INT64_MAX / 8, 0);
    assert_true(forecast(&m, "* sgd momentum=0.9", NULL)->all.state_bytes == INT64_MAX);
    assert_true(m.forecast.all.weight_bytes == INT64_MAX);
    assert_tells(&m.forecast, false, "state 8.0 EiB");
    pd_forecast_free(&m.forecast);
}

static void the_largest_has_most_weights_and_state(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "a", 1, 10, 0);
    add(&m, "b", 1, 6, 0);
    add(&m, "c", 1, 5, 0);
    assert_int_equal(forecast(&m, "a sgd", "* sgd momentum=0.9")->largest, 1);
    assert_tells(&m.forecast, false, "largest b: 24 B of weights, 24 B of state\n");
    pd_forecast_free(&m.forecast);
}

static void a_kind_has_one_rule(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "x1", 1, 4, 0);
    add(&m, "y1", 1, 4, 0);
    add(&m, "x2", 1, 4, 0);
    add(&m, "y2", 1, 4, 0);
    const pd_forecast *f = forecast(&m, "x* sgd", "* sgd momentum=0.9");
    assert_int_equal(f->n_kinds, 2);
    assert_ptr_equal(f->kind[0], f->kind[2]);
    assert_ptr_equal(f->kind[1], f->kind[3]);
    assert_int_equal(f->kind[0]->state_bytes, 0);
    assert_int_equal(f->kind[1]->state_bytes, 16);
    pd_forecast_free(&m.forecast);
}

static void facts_couple_the_parameters_of_one_optimizer(void **state)
{
    model m = small();

    (void)state;
    add(&m, "v", 1, 100, 0);
    const pd_forecast *f = forecast(&m, "v coupled block_size=50", "* coupled");
    assert_true(f->fact[0][0] == 50 && f->fact[1][0] == 50);
    assert_tells(f, false, "fact coupled: largest_block 50\n");
    pd_forecast_free(&m.forecast);
}

static void due_steps_are_the_first_that_the_row_names(void **state)
{
    model m = small();
    const pd_forecast *f = forecast(&m, "* coupled interval=20 root_delay=7", NULL);

    (void)state;
    assert_int_equal(f->kind[0]->n_due, 3);
    assert_int_equal(f->kind[0]->due[0], 20);
    assert_int_equal(f->kind[0]->due[2], 60);
    assert_int_equal(pd_kind_interval(f->kind[0]), 20);
    assert_true(f->all.task_flops_per_step == f->all.task_flops / 20);
    assert_tells(f, false, "due every 20 steps (20, 40, 60 …), used from 7 steps later on");
    pd_forecast_free(&m.forecast);
}

static void due_in_every_step_is_said_so(void **state)
{
    model m = small();
    const pd_forecast *f = forecast(&m, "* coupled", NULL);

    (void)state;
    assert_tells(f, false, "due in every step, used in the same step");
    pd_forecast_free(&m.forecast);
}

static void tasks_that_are_due_late_or_never_are_not_looked_for_without_end(void **state)
{
    model m = small();

    (void)state;
    assert_tells(forecast(&m, "* coupled interval=100000", NULL), false, "due in none of the first 65536 steps");
    pd_forecast_free(&m.forecast);
    assert_tells(forecast(&m, "* coupled interval=40000", NULL), false, "due in steps 40000 and no other of the first 65536");
    assert_int_equal(pd_kind_interval(m.forecast.kind[0]), 0);
    pd_forecast_free(&m.forecast);
}

static void due_steps_follow_schedules(void **state)
{
    model m = small();
    const pd_forecast *f = forecast(&m, "* varied lr=piecewise(0,4:2,6:0,9:3)", NULL);

    (void)state;
    assert_int_equal(f->kind[0]->due[0], 5);
    assert_int_equal(f->kind[0]->due[1], 6);
    assert_int_equal(f->kind[0]->due[2], 10);
    assert_int_equal(pd_kind_interval(f->kind[0]), 0);
    assert_true(f->all.task_flops_per_step == 0);
    assert_tells(f, false, " due in steps 5, 6, 10 …, used as soon as they are ready\n");
    pd_forecast_free(&m.forecast);
}

static void steps_that_change_later_are_told_as_those_at_first(void **state)
{
    static const struct { const char *rule; bool goes_on; } list[] = {
        { "* coupled interval=20", true }, { "* coupled", true }, { "* coupled lr=cosine(peak=2,steps=100)", true }, { "* varied lr=2", true },
        { "* varied lr=piecewise(2,50:1)", false }, { "* varied lr=piecewise(2,5000:1,5200:2,100000:0)", false },
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        model m = small();
        if (forecast(&m, list[i].rule, NULL)->kind[0]->goes_on != list[i].goes_on) fail_msg("%s", list[i].rule);
        if (list[i].goes_on) assert_does_not_tell(&m.forecast, false, "at first");
        else assert_tells(&m.forecast, false, "due in every step at first, used as soon");
        pd_forecast_free(&m.forecast);
    }
}

/* ---- what shares a line ---- */

static void tasks_that_differ_have_lines_of_their_own(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "w", 2, 9, 6);
    assert_tells(forecast(&m, "* varied lr=2", NULL), false,
                 " 5 tasks, exponent -1/2, 40 flop each\n from statistics.0 … 4; tally to root.0 … 4\n"
                 " 1 task, exponent -1/2, 5.0 kflop\n from statistics.0, 5; tally to root.5\n");
    pd_forecast_free(&m.forecast);
}

static void a_task_with_many_slots_has_a_line_for_inputs_and_one_for_outputs(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "w", 2, 8, 12);
    assert_tells(forecast(&m, "* scalable_shampoo block_size=4 root_method=tracked", NULL), false,
                 "\n from statistics.0 … 11; eigenbasis.0 … 11\n to preconditioners.0 … 11; eigenbasis.0 … 11\n");
    pd_forecast_free(&m.forecast);
}

static void storage_and_its_bytes_are_told(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "w", 2, 8, 12);
    const pd_forecast *f = forecast(&m, "* scalable_shampoo block_size=8 best_effort_memory_usage_reduction=yes", NULL);
    assert_tells(f, false, " momentum (8, 12) int8 144 B\n");                               /* 8 * 12 codes, 12 buckets */
    assert_tells(f, false, " statistics.0 … 2 (8, 8) int16+diagonal x3 576 B\n");         /* 8 * 8 codes, 8 buckets, 8 of the diagonal, each */
    assert_tells(f, false, " direction (8, 12) temporary -\n");
    pd_forecast_free(&m.forecast);
}

static void numbers_that_are_not_even_are_told_by_some(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "w", 2, 10, 7);
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    assert_tells(f, false, "statistics.0, 1, 3 … 7 (3, 3) float32 x6");
    assert_tells(f, false, "statistics.2, 5, 8 (3, 1) float32 x3");
    pd_forecast_free(&m.forecast);
    m = (model){ 0 };
    add(&m, "w", 2, 18, 5);
    assert_tells(forecast(&m, "* coupled", NULL), false, "statistics.1, 3 … 11 (3, 2) float32 x6");
    pd_forecast_free(&m.forecast);
}

static void equal_blocks_share_a_line(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "w", 2, 9, 6);
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    assert_tells(f, false, "statistics.0 … 5 (3, 3) float32 x6 216 B\n");
    assert_tells(f, false, " 6 blocks of (3, 3), 0 flop a step\n");
    assert_tells(f, false, "6 tasks, exponent -1/2, 36 flop each\n from statistics.0 … 5 to root.0 … 5\n");
    pd_forecast_free(&m.forecast);
}

static void blocks_at_the_edge_have_lines_of_their_own(void **state)
{
    model m = small();
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    pd_groups slots;

    (void)state;
    assert_tells(f, false, "6 blocks of at most (3, 3)");
    assert_tells(f, false, "statistics.0, 2 (3, 3)");
    assert_tells(f, false, "statistics.5 (1, 2)");
    assert_int_equal(pd_group_slots(&slots, &f->kind[0]->plan, false), PD_OK);
    assert_int_equal(slots.n, 2 + 2 * 4);
    assert_int_equal(slots.first[slots.n], f->kind[0]->plan.n_slots);
    pd_groups_free(&slots);
    pd_forecast_free(&m.forecast);
}

static void every_item_is_in_one_group_with_its_like(void **state)
{
    model m = { 0 };
    const pd_plan *plan;
    pd_groups g;
    bool seen[1024] = { false };

    (void)state;
    add(&m, "w", 2, 20, 31);
    plan = &forecast(&m, "* coupled", NULL)->kind[0]->plan;
    assert_int_equal(pd_group_slots(&g, plan, false), PD_OK);
    for (size_t k = 0; k < g.n; k++)
        for (size_t i = g.first[k]; i < g.first[k + 1]; i++) {
            const pd_slot_spec *one = &plan->slots[g.item[g.first[k]]], *it = &plan->slots[g.item[i]];
            assert_false(seen[g.item[i]]);
            seen[g.item[i]] = true;
            assert_string_equal(it->name, one->name);
            assert_true(pd_shape_equal(&it->shape, &one->shape));
            assert_true(i == g.first[k] || g.item[i] > g.item[i - 1]);
        }
    for (size_t i = 0; i < plan->n_slots; i++) assert_true(seen[i]);
    pd_groups_free(&g);
    pd_forecast_free(&m.forecast);
}

static void layers_that_are_alike_are_told_once(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "h.0.w1", 2, 4, 4);
    add(&m, "h.0.w2", 2, 4, 5);
    add(&m, "h.10.w1", 2, 4, 4);
    add(&m, "h.11.w1", 2, 4, 4);
    const pd_forecast *f = forecast(&m, "* sgd momentum=0.9", NULL);
    assert_int_equal(f->n_kinds, 2);
    assert_tells(f, false, "\nh.*.w* x3\n");
    assert_tells(f, false, "sgd: state 64 B each, 192 B of all 3\n");
    assert_tells(f, false, "\nh.0.w2\n");
    assert_does_not_tell(f, false, "h.11.w1");
    assert_tells(f, true, "\nh.11.w1\n");
    assert_does_not_tell(f, true, " of all ");
    pd_forecast_free(&m.forecast);
}

static void names_of_equal_parameters_stand_over_one_entry(void **state)
{
    model m = { 0 };

    (void)state;
    add(&m, "z.weight", 1, 4, 0);
    add(&m, "between", 1, 5, 0);
    add(&m, "c.2.bias", 1, 4, 0);
    add(&m, "b.0.bias", 1, 4, 0);
    add(&m, "b.1.bias", 1, 4, 0);
    assert_tells(forecast(&m, NULL, NULL), false, "\nz.weight\nc.2.bias\nb.*.bias x2\n sgd: state 0 B each, 0 B of all 4\n weights (4,) float32 16 B\nbetween\n");
    pd_forecast_free(&m.forecast);
}

static void many_names_of_equal_parameters_are_counted(void **state)
{
    static char name[20][8];
    model m = { 0 };

    (void)state;
    for (int i = 0; i < 20; i++) {
        snprintf(name[i], sizeof name[i], "%c", 'a' + i);
        add(&m, name[i], 1, 4, 0);
    }
    assert_tells(forecast(&m, NULL, NULL), false, "\ng\nand 13 others\n");
    pd_forecast_free(&m.forecast);
}

static void verbose_lists_every_slot_and_task(void **state)
{
    model m = small();
    const pd_forecast *f = forecast(&m, "* coupled", NULL);
    char name[80];

    (void)state;
    for (int b = 0; b < 6; b++) {
        snprintf(name, sizeof name, "\n statistics.%d (", b);
        assert_tells(f, true, name);
        snprintf(name, sizeof name, "from statistics.%d to root.%d\n", b, b);
        assert_tells(f, true, name);
    }
    pd_forecast_free(&m.forecast);
}

static void sgd_has_weights_and_at_most_momentum(void **state)
{
    model m = small();
    const pd_forecast *f = forecast(&m, NULL, NULL);

    (void)state;
    assert_int_equal(f->all.state_bytes, 0);
    assert_does_not_tell(f, false, "momentum");
    assert_does_not_tell(f, false, "due");
    assert_does_not_tell(f, false, "tasks");
    pd_forecast_free(&m.forecast);
    assert_tells(forecast(&m, "* sgd momentum=0.9", NULL), false, " momentum (7, 5) float32 140 B\n");
    pd_forecast_free(&m.forecast);
}

static void gpt2_small_has_nine_kinds_of_124_million_elements(void **state)
{
    char path[512], rule[] = "* coupled block_size=128";
    char *rules[] = { rule };
    pd_shapes shapes;
    pd_forecast f;

    (void)state;
    snprintf(path, sizeof path, "%.*s/../support/gpt2_small.shapes", (int)(strrchr(__FILE__, '/') - __FILE__), __FILE__);
    assert_int_equal(pd_shapes_read(&shapes, path, NULL), PD_OK);
    assert_int_equal(pd_forecast_make(&f, &shapes, rules, 1, rows, NULL), PD_OK);
    assert_int_equal(f.all.params, 148);
    assert_int_equal(f.all.elements, 124439808);
    assert_int_equal(f.n_kinds, 9);
    assert_int_equal(f.all.blocks, 393 * 6 + 8 * 6 + 12 * (6 * 18 + 36 + 2 * 6 * 24 + 18 + 24) + 74 * 6);
    pd_forecast_free(&f);
    pd_shapes_free(&shapes);
}

/* ---- JSON ---- */

static void json_has_every_slot_and_task(void **state)
{
    model m = small();
    json_t *root = pd_forecast_json(forecast(&m, "* coupled interval=3", NULL));
    json_t *kind = json_array_get(json_object_get(root, "kinds"), 0), *slots = json_object_get(kind, "slots"), *task;

    (void)state;
    assert_int_equal(json_array_size(slots), 14);
    assert_int_equal(json_array_size(json_object_get(kind, "blocks")), 6);
    assert_int_equal(json_array_size(json_object_get(kind, "tasks")), 6);
    task = json_array_get(json_object_get(kind, "tasks"), 5);
    assert_int_equal(json_integer_value(json_array_get(json_object_get(task, "inputs"), 0)), 12);
    assert_string_equal(json_string_value(json_object_get(json_array_get(slots, 12), "name")), "statistics");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(slots, 12), "number")), 5);
    assert_string_equal(json_string_value(json_object_get(json_array_get(slots, 12), "storage")), "float32");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(slots, 12), "bytes")), 2 * 4);
    assert_int_equal(json_integer_value(json_object_get(json_array_get(slots, 0), "bytes")), 0);
    assert_int_equal(json_integer_value(json_object_get(kind, "step_bytes")), 35 * 4);
    assert_int_equal(json_integer_value(json_object_get(kind, "task_bytes")), 2 * 35 * 4);
    assert_true(json_number_value(json_object_get(kind, "task_flops")) == 4 * 35);
    assert_true(json_number_value(json_object_get(task, "exponent")) == 2);
    assert_null(json_object_get(json_array_get(slots, 0), "number"));
    assert_true(json_is_true(json_object_get(json_array_get(slots, 0), "temporary")));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(kind, "due"), "interval")), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(root, "total"), "state_bytes")), (2 * 35 + 1) * 4);
    json_decref(root);
    pd_forecast_free(&m.forecast);
}

static void json_params_say_which_kind_they_are(void **state)
{
    model m = { 0 };
    json_t *root, *kinds, *params;

    (void)state;
    add(&m, "b", 1, 5, 0);
    add(&m, "a", 1, 3, 0);
    add(&m, "c", 1, 5, 0);
    root = pd_forecast_json(forecast(&m, "none sgd", "* sgd momentum=0.9"));
    kinds = json_object_get(root, "kinds");
    params = json_object_get(root, "params");
    assert_int_equal(json_array_size(kinds), 2);
    for (size_t i = 0; i < 3; i++) {
        json_t *kind = json_array_get(kinds, (size_t)json_integer_value(json_object_get(json_array_get(params, i), "kind")));
        assert_string_equal(json_string_value(json_object_get(json_array_get(params, i), "name")), m.entry[i].name);
        assert_int_equal(json_integer_value(json_object_get(kind, "rule")), 1);
        assert_int_equal(json_integer_value(json_object_get(kind, "elements")), m.entry[i].elements);
        assert_int_equal(json_integer_value(json_object_get(kind, "state_bytes")), m.entry[i].elements * 4);
    }
    json_decref(root);
    pd_forecast_free(&m.forecast);
}

/* ---- refusals ---- */

static void assert_refused(model *m, const char *rule, const char *part)
{
    char *rules[] = { (char *)(uintptr_t)rule };
    pd_error err = { 0 };

    assert_int_equal(make(m, rules, 1, &err), PD_INVALID_ARGUMENT);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
    assert_null(m->forecast.kinds);
}

static void rules_and_parameters_are_refused_as_a_job_would(void **state)
{
    model m = small();

    (void)state;
    assert_refused(&m, "* adam", "there are: sgd, coupled, varied, scalable_shampoo");
    assert_refused(&m, "* coupled block_size=0", "block_size");
    assert_refused(&m, "v* coupled", "parameter w: none of the 1 rules matches it");
}

static void out_of_memory_leaves_nothing(void **state)
{
    char *rules[] = { (char *)(uintptr_t)"w* coupled", (char *)(uintptr_t)"* sgd" };
    model m = small();

    (void)state;
    add(&m, "b", 1, 7, 0);
    for (int64_t n = 0; ; n++) {
        pd_error err;
        oom_arm(n);
        int rc = make(&m, rules, 2, &err);
        if (!oom_disarm()) break;
        assert_int_equal(rc, PD_NO_MEMORY);
        assert_null(m.forecast.kinds);
    }
    for (int64_t n = 0; ; n++) {
        FILE *out = fopen("/dev/null", "w");
        oom_arm(n);
        int rc = pd_forecast_print(&m.forecast, false, out, NULL);
        bool failed = oom_disarm();
        fclose(out);
        if (!failed) break;
        assert_int_equal(rc, PD_NO_MEMORY);
    }
    pd_forecast_free(&m.forecast);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_that_do_not_fit_are_the_largest),
        cmocka_unit_test(sums_are_those_of_the_state_a_job_would_make),
        cmocka_unit_test(the_largest_has_most_weights_and_state),
        cmocka_unit_test(a_kind_has_one_rule),
        cmocka_unit_test(facts_couple_the_parameters_of_one_optimizer),
        cmocka_unit_test(due_steps_are_the_first_that_the_row_names),
        cmocka_unit_test(due_steps_follow_schedules),
        cmocka_unit_test(steps_that_change_later_are_told_as_those_at_first),
        cmocka_unit_test(due_in_every_step_is_said_so),
        cmocka_unit_test(tasks_that_are_due_late_or_never_are_not_looked_for_without_end),
        cmocka_unit_test(equal_blocks_share_a_line),
        cmocka_unit_test(blocks_at_the_edge_have_lines_of_their_own),
        cmocka_unit_test(tasks_that_differ_have_lines_of_their_own),
        cmocka_unit_test(a_task_with_many_slots_has_a_line_for_inputs_and_one_for_outputs),
        cmocka_unit_test(storage_and_its_bytes_are_told),
        cmocka_unit_test(numbers_that_are_not_even_are_told_by_some),
        cmocka_unit_test(every_item_is_in_one_group_with_its_like),
        cmocka_unit_test(layers_that_are_alike_are_told_once),
        cmocka_unit_test(names_of_equal_parameters_stand_over_one_entry),
        cmocka_unit_test(many_names_of_equal_parameters_are_counted),
        cmocka_unit_test(verbose_lists_every_slot_and_task),
        cmocka_unit_test(sgd_has_weights_and_at_most_momentum),
        cmocka_unit_test(gpt2_small_has_nine_kinds_of_124_million_elements),
        cmocka_unit_test(json_has_every_slot_and_task),
        cmocka_unit_test(json_params_say_which_kind_they_are),
        cmocka_unit_test(rules_and_parameters_are_refused_as_a_job_would),
        cmocka_unit_test(out_of_memory_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, make_varied_row, NULL);
}
