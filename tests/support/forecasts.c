/* forecasts.c - makes forecasts of small models and checks their text. */
#include "forecasts.h"

#include "coupled_row.h"
#include "forecast.h"
#include "test.h"
#include "wide_row.h"

static int varied_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    int rc = coupled_row.plan(declaration, stats, plan, err);

    plan->root_delay = PD_ROOT_READY;
    for (size_t t = 0; t < plan->n_tasks; t++) {
        plan->tasks[t].n_inputs = 3;
        plan->tasks[t].input[1] = plan->tasks[0].input[0];
        plan->tasks[t].input[2] = 1;
        plan->tasks[t].cost = t + 1 == plan->n_tasks ? 5000 : 40;
    }
    return rc;
}

static bool varied_due(const pd_plan *plan, const double *hyper, int64_t count, float *const *slot)
{
    (void)plan, (void)slot;
    (void)count;
    return hyper[COUPLED_LR] > 1;
}

/* An optimizer whose plan depends on the parameter's name and axes. If the name contains its hyperparameter `part`,
 * the parameter has a slot with as many numbers as the name has letters. The plan's note holds the axes. */
static const pd_hyper literal_hypers[] = { { "part", PD_TEXT, 0, 0, 0, NULL, "a part of names", false, false },
                                           { .name = NULL } };

static int literal_plan(const pd_declaration *declaration, const double *stats, pd_plan *plan, pd_error *err)
{
    const char *part = pd_hypers_given_text(&declaration->hypers, 0);
    pd_slot_spec letters = { .name = "letters", .number = -1, .shape = { 1, { (int64_t)strlen(declaration->name) } } };

    (void)stats, (void)err;
    if (declaration->axes != NULL) snprintf(plan->note, sizeof plan->note, "axes were %s", declaration->axes);
    if (part[0] == '\0' || strstr(declaration->name, part) == NULL) return PD_OK;
    return pd_plan_slot(plan, &letters) < 0 ? PD_NO_MEMORY : PD_OK;
}

static const pd_optimizer_ops literal_row = {
    .name = "literal", .about = "for tests", .hypers = literal_hypers, .plan = literal_plan
};

static pd_optimizer_ops varied_row; /* copied from coupled_row and changed by make_forecast */
extern const pd_optimizer_ops pd_sgd, pd_scalable_shampoo;
const pd_optimizer_ops *const forecast_rows[] = { &pd_sgd,   &coupled_row,         &varied_row,
                                                  &wide_row, &pd_scalable_shampoo, &literal_row,
                                                  NULL };

void add_param(model *m, const char *name, int rank, int64_t a, int64_t b)
{
    pd_shape_entry *e = &m->entry[m->shapes.n++];

    *e = (pd_shape_entry){ .name = (char *)(uintptr_t)name, .shape = { rank, { a, b } }, .line = (int64_t)m->shapes.n };
    assert_int_equal(pd_shape_elements(&e->shape, &e->elements), PD_OK);
}

model small_model(void)
{
    model m = { 0 };

    add_param(&m, "w", 2, 7, 5);
    return m;
}

int make_forecast(model *m, char *const *rules, size_t n, pd_error *err)
{
    varied_row = coupled_row;
    varied_row.name = "varied";
    varied_row.plan = varied_plan;
    varied_row.due = varied_due;
    m->shapes.entries = m->entry;
    if (m->job.world == 0) m->job = pd_forecast_job();
    return pd_forecast_make(&m->forecast, &m->job, &m->shapes, rules, n, forecast_rows, err);
}

const pd_forecast *forecast(model *m, const char *first, const char *second)
{
    char *rules[] = { (char *)(uintptr_t)first, (char *)(uintptr_t)second };
    pd_error err = { 0 };

    if (make_forecast(m, rules, (size_t)(first != NULL) + (second != NULL), &err) != PD_OK) fail_msg("%s", err.text);
    return &m->forecast;
}

/* Returns the printed forecast, with runs of blanks replaced by one blank. The caller frees it. */
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

void assert_tells(const pd_forecast *f, bool verbose, const char *part)
{
    char *text = told(f, verbose);

    if (strstr(text, part) == NULL) fail_msg("does not tell \"%s\":\n%s", part, text);
    free(text);
}

void assert_does_not_tell(const pd_forecast *f, bool verbose, const char *part)
{
    char *text = told(f, verbose);

    if (strstr(text, part) != NULL) fail_msg("tells \"%s\":\n%s", part, text);
    free(text);
}
