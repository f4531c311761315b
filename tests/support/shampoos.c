/* shampoos.c - runs the two Shampoos on small tensors for their tests. */
#include "shampoos.h"

#include "test.h"

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

void shampoo_seed(uint64_t seed)
{
    state = seed;
}
int64_t shampoo_below(int64_t n)
{
    return draw() % n;
}

void shampoo_fill(float *at, int64_t n, float size)
{
    for (int64_t i = 0; i < n; i++) at[i] = size * ((float)draw() / 1073741824.0f - 1);
}

void shampoo_take(pd_hypers *hypers, const char *row, const char *list)
{
    char text[512], *rest = text, *word;
    pd_error err;

    pd_hypers_init(hypers, pd_optim_find(row));
    snprintf(text, sizeof text, "%s", list);
    while ((word = strsep(&rest, " ")) != NULL) {
        char *value = strchr(word, '=');
        if (value == NULL) continue;
        *value++ = '\0';
        if (pd_hypers_set(hypers, word, value, &err) != PD_OK) fail_msg("%s", err.text);
    }
}

/* Hyperparameters with texts, from which copies borrow: they live until the program ends. */
static struct kept {
    pd_hypers hypers;
    struct kept *next;
} * all_kept;

pd_hypers shampoo_hypers(const char *row, const char *list)
{
    struct kept *made = calloc(1, sizeof *made);
    pd_hypers plain;
    pd_error err;

    assert_non_null(made);
    shampoo_take(&made->hypers, row, list);
    if (pd_hypers_check(&made->hypers, &err) != PD_OK) fail_msg("%s", err.text);
    if (made->hypers.texts != NULL || made->hypers.schedules != NULL) {
        made->next = all_kept;
        all_kept = made;
        return made->hypers;
    }
    plain = made->hypers;
    free(made);
    return plain;
}

void shampoo_assert_refused(const char *row, const char *name, const char *value, const char *part)
{
    pd_hypers hypers;
    pd_error err = { 0 };
    int rc;

    pd_hypers_init(&hypers, pd_optim_find(row));
    rc = pd_hypers_set(&hypers, name, value, &err);
    if (rc == PD_OK) rc = pd_hypers_check(&hypers, &err);
    assert_true(rc == PD_OUT_OF_RANGE || rc == PD_INVALID_ARGUMENT);
    if (strstr(err.text, name) == NULL || strstr(err.text, part) == NULL) fail_msg("%s", err.text);
    pd_hypers_free(&hypers);
}

int shampoo_try_model(const void *param)
{
    pd_model *model = NULL;
    int rc = pd_model_new(&model, param, 1, 1, NULL);

    if (rc == PD_OK) pd_model_free(model);
    return rc;
}

pd_model *shampoo_model(const pd_declaration *params, size_t n, int threads)
{
    pd_model *model;
    pd_error err;

    if (pd_model_new(&model, params, n, threads, &err) != PD_OK) fail_msg("%s", err.text);
    return model;
}

void shampoo_step_one(pd_model *model, const float *gradient, float *weights)
{
    pd_error err;

    if (pd_model_step(model, &(pd_step_io){ .gradient = gradient, .before = weights, .after = weights }, &err) != PD_OK)
        fail_msg("%s", err.text);
}

double shampoo_difference(const float *a, const double *b, int64_t n)
{
    double sum = 0, norm = 0;

    for (int64_t i = 0; i < n; i++) {
        sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(sum / fmax(norm, 1));
}

int64_t shampoo_elements(const pd_declaration *param)
{
    int64_t n = 0;

    assert_int_equal(pd_shape_elements(&param->shape, &n), PD_OK);
    return n;
}

shampoo_run shampoo_run_of(const char *row, const pd_shape *shape, const char *hypers, int steps)
{
    return (shampoo_run){ .param = { { .name = "w", .shape = *shape, .hypers = shampoo_hypers(row, hypers) } },
                          .n = 1,
                          .steps = steps,
                          .seed = 9 };
}

void shampoo_run_begin(shampoo_run *r)
{
    r->model = shampoo_model(r->param, r->n, r->threads > 0 ? r->threads : 1);
    shampoo_seed(r->seed);
    for (size_t p = 0; p < r->n; p++) {
        r->weights[p] = calloc((size_t)shampoo_elements(&r->param[p]) + 1, sizeof(float));
        r->gradient[p] = calloc((size_t)shampoo_elements(&r->param[p]) + 1, sizeof(float));
        shampoo_fill(r->weights[p], shampoo_elements(&r->param[p]), 1);
    }
}

void shampoo_run_draw(shampoo_run *r)
{
    for (size_t p = 0; p < r->n; p++) shampoo_fill(r->gradient[p], shampoo_elements(&r->param[p]), 1);
}

int shampoo_run_try(shampoo_run *r, pd_error *err)
{
    pd_step_io io[3];

    for (size_t p = 0; p < r->n; p++)
        io[p] = (pd_step_io){ .gradient = r->missing[p] ? NULL : r->gradient[p],
                              .before = r->weights[p],
                              .after = r->weights[p],
                              .update = r->update[p] };
    return pd_model_step(r->model, io, err);
}

void shampoo_run_step(shampoo_run *r)
{
    pd_error err;

    if (shampoo_run_try(r, &err) != PD_OK) fail_msg("%s", err.text);
}

void shampoo_run_all(shampoo_run *r)
{
    shampoo_run_begin(r);
    for (int step = 0; step < r->steps; step++) {
        shampoo_run_draw(r);
        shampoo_run_step(r);
    }
}

void shampoo_run_end(shampoo_run *r)
{
    pd_model_free(r->model);
    for (size_t p = 0; p < r->n; p++) {
        free(r->weights[p]);
        free(r->gradient[p]);
        free(r->update[p]);
    }
}

void shampoo_run_moves(shampoo_run *r, int steps)
{
    float first;

    shampoo_run_begin(r);
    first = r->weights[0][0];
    for (int step = 0; step < steps; step++) {
        shampoo_run_draw(r);
        shampoo_run_step(r);
    }
    assert_true(shampoo_all_finite(r->weights[0], shampoo_elements(&r->param[0])) && r->weights[0][0] != first);
    shampoo_run_end(r);
}

bool shampoo_same_bits(const shampoo_run *a, const shampoo_run *b)
{
    return memcmp(a->weights[0], b->weights[0], (size_t)shampoo_elements(&a->param[0]) * sizeof(float)) == 0;
}

bool shampoo_same_runs(shampoo_run a, shampoo_run b)
{
    bool same;

    shampoo_run_all(&a);
    shampoo_run_all(&b);
    same = shampoo_same_bits(&a, &b);
    shampoo_run_end(&a);
    shampoo_run_end(&b);
    return same;
}

void shampoo_assert_threads_agree(const char *row, const pd_shape *shape, const char *hypers, int steps)
{
    for (int threads = 2; threads <= 4; threads += 2) {
        shampoo_run one = shampoo_run_of(row, shape, hypers, steps), other = one;
        other.threads = threads;
        assert_true(shampoo_same_runs(one, other));
    }
}

void shampoo_assert_steps_without_memory(const char *row, const pd_shape *shape, const char *hypers, int most)
{
    bool hit = true;

    for (int64_t n = 0; hit; n++) {
        shampoo_run r = shampoo_run_of(row, shape, hypers, 0);
        pd_error err;
        int rc;
        shampoo_run_begin(&r);
        shampoo_run_draw(&r);
        oom_arm(n);
        rc = shampoo_run_try(&r, &err);
        hit = oom_disarm();
        assert_true(rc == PD_OK || (rc == PD_NO_MEMORY && n < most));
        assert_true(shampoo_all_finite(r.weights[0], shampoo_elements(&r.param[0])));
        shampoo_run_end(&r);
    }
}

bool shampoo_runs_agree(const char *row, const pd_shape *shape, const char *one, const char *other, int steps)
{
    return shampoo_same_runs(shampoo_run_of(row, shape, one, steps), shampoo_run_of(row, shape, other, steps));
}

float *shampoo_slot(const shampoo_run *r, const char *slot, int number, int block, int64_t n)
{
    double *wide = malloc((size_t)n * sizeof *wide);
    float *at = malloc((size_t)n * sizeof *at);
    pd_error err;

    if (pd_model_read_part(r->model, 0, slot, number, block, wide, n, &err) != PD_OK) fail_msg("%s", err.text);
    for (int64_t i = 0; i < n; i++) at[i] = (float)wide[i];
    free(wide);
    return at;
}

bool shampoo_all_finite(const float *at, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(at[i])) return false;
    return true;
}
