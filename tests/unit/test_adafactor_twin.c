/* Tests adafactor against a second implementation in float64 that works element by element, without blocks.
 * Shapes, rules and options are random. */
#include "test.h"
#include "paramd/optim.h"

enum { NONE, ROW, COLUMN, BATCH };
enum { STEPS = 4, CASES = 200 };
static const char *const words[] = { "NONE", "ROW", "COLUMN", "BATCH" };

typedef struct config {
    pd_shape shape;
    int64_t n;
    int rule[PD_MAX_RANK]; /* how each dimension is factored: ROW, COLUMN, NONE or BATCH */
    bool factored;         /* whether the state is factored: some dimension is ROW or COLUMN */
    char map[256];         /* text of the factoring rule in the declaration */
    bool by_scale, skip_nan;
    double rate, beta1, decay_rate, clip, weight_decay, epsilon1, epsilon2, max_scale,
        exponent; /* -1 (beta1) or 0 (clip, max_scale): option not set */
    int offset, start;
} config;

static uint32_t seed;

static uint32_t draw(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (uint32_t)((uint64_t)(seed >> 4) * below >> 28);
}

static double real(double low, double high)
{
    return low + (high - low) * draw(1u << 20) / (1 << 20);
}
static float noise(void)
{
    return (float)(real(-1, 1) + real(-1, 1));
}

typedef struct twin {
    double *w, *v_row, *v_col, *v, *m;
} twin;

/* Returns the index of element i in a tensor that keeps only the dimensions for which `has` is true. */
static int64_t place(const config *c, int64_t i, bool (*has)(int rule))
{
    int64_t at = 0, stride = 1;

    for (int d = c->shape.rank - 1; d >= 0; d--) {
        if (has(c->rule[d])) at += i % c->shape.dim[d] * stride, stride *= c->shape.dim[d];
        i /= c->shape.dim[d];
    }
    return at;
}

static bool in_row(int rule)
{
    return rule != COLUMN;
}
static bool in_col(int rule)
{
    return rule != ROW;
}
static bool in_group(int rule)
{
    return rule == BATCH;
}
static bool in_both(int rule)
{
    return rule == BATCH || rule == NONE;
}

/* Returns an array with one value per element of x: the mean of x over all elements that have the same index in the
 * kept dimensions (those for which `has` is true). */
static double *means(const config *c, const double *x, bool (*has)(int rule))
{
    double *sum = calloc((size_t)c->n, sizeof *sum), *count = calloc((size_t)c->n, sizeof *count),
           *to = calloc((size_t)c->n, sizeof *to);

    for (int64_t i = 0; i < c->n; i++) sum[place(c, i, has)] += x[i], count[place(c, i, has)]++;
    for (int64_t i = 0; i < c->n; i++) to[i] = sum[place(c, i, has)] / count[place(c, i, has)];
    free(sum);
    free(count);
    return to;
}

static double kept(double next, double old, const config *c)
{
    return c->skip_nan && isnan(next) ? old : next;
}

/* Takes one step of the twin. Unlike adafactor, the twin stores the row and column moments once per element:
 * v_row[i] is the moment of the row that contains element i. */
static void twin_step(const config *c, twin *t, const float *gradient, int step)
{
    double time = step - c->offset + 1, b = 1 - pow(time, -c->decay_rate), decay = c->weight_decay;
    double *s = calloc((size_t)c->n, sizeof *s), *y = calloc((size_t)c->n, sizeof *y), *row, *col, *scale, *length,
           *both;

    for (int64_t i = 0; i < c->n; i++) s[i] = (double)gradient[i] * gradient[i] + c->epsilon1;
    row = means(c, s, in_row);
    col = means(c, s, in_col);
    for (int64_t i = 0; i < c->n; i++) {
        row[i] = b * t->v_row[i] + (1 - b) * row[i];
        col[i] = b * t->v_col[i] + (1 - b) * col[i];
    }
    /* every row has equally many elements, so the mean over elements is the mean over rows */
    both = means(c, row, in_both);
    for (int64_t i = 0; i < c->n; i++) {
        double v = b * t->v[i] + (1 - b) * s[i];
        y[i] = c->factored ? gradient[i] / sqrt(row[i] / both[i]) / sqrt(col[i]) : gradient[i] / sqrt(v);
        t->v[i] = kept(v, t->v[i], c);
        t->v_row[i] = kept(row[i], t->v_row[i], c);
        t->v_col[i] = kept(col[i], t->v_col[i], c);
    }
    for (int64_t i = 0; i < c->n; i++) s[i] = t->w[i] * t->w[i];
    scale = means(c, s, in_group);
    for (int64_t i = 0; i < c->n; i++) s[i] = y[i] * y[i];
    length = means(c, s, in_group);
    if (c->exponent != 0) decay = (decay != 0 ? decay : 1) * pow(c->rate, c->exponent);
    for (int64_t i = 0; i < c->n; i++) {
        double size = fmax(sqrt(scale[i]), c->epsilon2), u, r = sqrt(length[i]);
        if (c->max_scale != 0 && size > c->max_scale) size = c->max_scale;
        if (isnan(r))
            y[i] = c->clip != 0 ? (double)NAN : y[i];
        else if (c->clip != 0 && r / c->clip > 1)
            y[i] /= r / c->clip;
        u = c->rate * (c->by_scale ? size : 1) * y[i];
        if (c->beta1 >= 0) {
            u = c->beta1 * t->m[i] + (1 - c->beta1) * u;
            t->m[i] = kept(u, t->m[i], c);
        }
        t->w[i] = kept((1 - decay) * t->w[i] - u, t->w[i], c);
    }
    free(s), free(y), free(row), free(col), free(scale), free(length), free(both);
}

static void set(pd_hypers *hypers, const char *name, const char *format, ...)
{
    char text[320];
    pd_error err;
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (pd_hypers_set(hypers, name, text, &err) != PD_OK) fail_msg("%s", err.text);
}

static void set_all(pd_hypers *hypers, const config *c)
{
    pd_hypers_init(hypers, pd_optim_find("adafactor"));
    set(hypers, "learning_rate", "%.17g", c->rate);
    set(hypers, "factor_map", "%s", c->map);
    set(hypers, "min_dim_size_to_factor", "4");
    set(hypers, "multiply_by_parameter_scale", "%s", c->by_scale ? "yes" : "no");
    if (c->beta1 >= 0) set(hypers, "beta1", "%.17g", c->beta1);
    set(hypers, "decay_rate", "%.17g", c->decay_rate);
    if (c->clip != 0)
        set(hypers, "clipping_threshold", "%.17g", c->clip);
    else
        set(hypers, "clipping_threshold", "none");
    set(hypers, "weight_decay_rate", "%.17g", c->weight_decay);
    if (c->exponent != 0) set(hypers, "weight_decay_rate_lr_exponent", "%.17g", c->exponent);
    set(hypers, "epsilon1", "%.17g", c->epsilon1);
    set(hypers, "epsilon2", "%.17g", c->epsilon2);
    if (c->max_scale != 0) set(hypers, "max_parameter_scale", "%.17g", c->max_scale);
    set(hypers, "step_offset", "%d", c->offset);
    set(hypers, "skip_nan_updates", "%s", c->skip_nan ? "yes" : "no");
}

static double difference(const float *ours, const double *twins, int64_t n)
{
    double apart = 0, size = 0;

    for (int64_t i = 0; i < n; i++) {
        if (isnan(ours[i]) != isnan(twins[i])) return (double)INFINITY;
        if (isnan(twins[i])) continue;
        apart += (ours[i] - twins[i]) * (ours[i] - twins[i]);
        size += twins[i] * twins[i];
    }
    return sqrt(apart) / (size > 0 ? sqrt(size) : 1);
}

/* Takes STEPS steps with `threads` threads and writes the weights to w. Compares each step with the twin unless t is
 * NULL. */
static void play(const config *c, float *w, twin *t, int threads)
{
    pd_declaration param = { .name = "layer/kernel", .shape = c->shape, .start_step = c->start };
    float *g = calloc((size_t)c->n + 1, sizeof *g);
    pd_model *model;
    pd_error err;
    char shape[192];

    set_all(&param.hypers, c);
    if (pd_model_new(&model, &param, 1, threads, &err) != PD_OK) fail_msg("%s: %s", c->map, err.text);
    for (int64_t i = 0; i < c->n; i++) {
        w[i] = noise();
        if (t != NULL) t->w[i] = w[i];
    }
    for (int step = 0; step < STEPS; step++) {
        pd_step_io io = { .gradient = g, .before = w, .after = w };
        double apart;
        for (int64_t i = 0; i < c->n; i++) g[i] = noise();
        if (c->skip_nan && step == 1) g[draw((uint32_t)c->n)] = NAN;
        assert_int_equal(pd_model_step(model, &io, &err), PD_OK);
        if (t == NULL) continue;
        twin_step(c, t, g, c->start + step);
        apart = difference(w, t->w, c->n);
        if (!(apart < 5e-6))
            fail_msg("%s %s, step %d: %g apart", c->map, pd_shape_text(&c->shape, shape, sizeof shape), step, apart);
    }
    pd_model_free(model);
    pd_hypers_free(&param.hypers);
    free(g);
}

static void agrees(const config *c)
{
    size_t n = (size_t)c->n + 1;
    twin t = { calloc(n, 8), calloc(n, 8), calloc(n, 8), calloc(n, 8), calloc(n, 8) };
    float *w = calloc(n, sizeof *w), *again = calloc(n, sizeof *again);
    uint32_t begin = seed;

    play(c, w, &t, 1);
    seed = begin;
    play(c, again, NULL, 3);
    assert_memory_equal(w, again, n * sizeof *w);
    free(t.w), free(t.v_row), free(t.v_col), free(t.v), free(t.m);
    free(w), free(again);
}

static void heuristic(config *c)
{
    int row = c->shape.rank == 2 && c->shape.dim[1] < c->shape.dim[0] ? 1 : 0;

    memset(c->rule, 0, sizeof c->rule);
    c->factored = c->shape.rank == 2 && c->shape.dim[row] >= 4;
    if (!c->factored) return;
    c->rule[row] = ROW;
    c->rule[1 - row] = COLUMN;
}

/* Writes the declared factoring rule to c->map as text. Then sets c->rule to the rule that the optimizer is expected to
 * use. For a parameter with at most two dimensions and without BATCH, the optimizer chooses the rule from the shape. */
static void take_rule(config *c)
{
    bool batch = false;
    size_t used = (size_t)snprintf(c->map, sizeof c->map, "['kernel$':(");

    for (int d = 0; d < c->shape.rank; d++) {
        used += (size_t)snprintf(c->map + used, sizeof c->map - used, "%s%s", d > 0 ? "," : "", words[c->rule[d]]);
        batch |= c->rule[d] == BATCH;
        c->factored |= c->rule[d] == ROW || c->rule[d] == COLUMN;
    }
    snprintf(c->map + used, sizeof c->map - used, ")]");
    if (c->shape.rank <= 2 && !batch) heuristic(c);
}

static void take_word(config *c)
{
    bool full = c->shape.rank > 2 || draw(2) == 0;

    snprintf(c->map, sizeof c->map, "['':%s]", full ? "none" : "HEURISTIC");
    memset(c->rule, 0, sizeof c->rule);
    if (!full) heuristic(c);
}

static void options(config *c)
{
    c->by_scale = draw(3) > 0;
    c->skip_nan = draw(4) == 0;
    c->rate = real(0.01, 0.3);
    c->beta1 = draw(2) ? real(0, 0.95) : -1;
    c->decay_rate = real(0.3, 1.2);
    c->clip = draw(3) ? real(0.3, 2) : 0;
    c->weight_decay = draw(2) ? real(0, 0.1) : 0;
    c->exponent = draw(3) ? 0 : real(0.5, 2);
    c->epsilon1 = draw(2) ? 1e-30 : 1e-3;
    c->epsilon2 = draw(2) ? 1e-3 : 1.2;
    c->max_scale = draw(3) ? 0 : real(0.05, 1.5);
    c->start = (int)draw(3) * 5;
    c->offset = c->start - (int)draw(4) * 2;
}

static void measure(config *c)
{
    assert_int_equal(pd_shape_elements(&c->shape, &c->n), PD_OK);
}

TEST(agrees_with_its_twin_on_small_shapes)
{
    seed = 5;
    for (int i = 0; i < CASES; i++) {
        config c = { .shape.rank = (int)draw(6) };
        for (int d = 0; d < c.shape.rank; d++) {
            c.shape.dim[d] = 1 + draw(d < 2 ? 9 : 5);
            c.rule[d] = (int)draw(4);
        }
        measure(&c);
        options(&c);
        if (draw(4) > 0)
            take_rule(&c);
        else
            take_word(&c);
        agrees(&c);
    }
}

/* These shapes are cut into several blocks. The cases cover every way of cutting. */
TEST(agrees_with_its_twin_on_shapes_of_many_blocks)
{
    static const struct {
        pd_shape shape;
        int rule[PD_MAX_RANK];
    } cases[] = {
        { { 2, { 290, 530 } }, { ROW, COLUMN } },
        { { 2, { 530, 290 } }, { COLUMN, ROW } },
        { { 1, { 150001 } }, { NONE } },
        { { 2, { 20, 70000 } }, { ROW, COLUMN } },
        { { 2, { 3, 70001 } }, { ROW, COLUMN } },
        { { 3, { 3, 161, 450 } }, { BATCH, ROW, COLUMN } },
        { { 3, { 3, 450, 161 } }, { BATCH, COLUMN, ROW } },
        { { 3, { 161, 3, 450 } }, { ROW, BATCH, COLUMN } },
        { { 3, { 450, 3, 161 } }, { COLUMN, NONE, ROW } },
        { { 3, { 150, 150, 7 } }, { ROW, COLUMN, BATCH } },
        { { 3, { 150, 151, 7 } }, { COLUMN, ROW, NONE } },
        { { 3, { 700, 20, 11 } }, { BATCH, ROW, COLUMN } },
        { { 3, { 5, 30000, 1 } }, { BATCH, NONE, NONE } },
        { { 2, { 5, 30000 } }, { NONE, BATCH } },
        { { 3, { 40, 50, 70 } }, { ROW, ROW, ROW } },
        { { 3, { 40, 50, 70 } }, { BATCH, COLUMN, NONE } },
        { { 4, { 40, 5, 30, 30 } }, { NONE, BATCH, ROW, COLUMN } },
        { { 5, { 2, 100, 3, 20, 20 } }, { BATCH, ROW, BATCH, COLUMN, COLUMN } },
    };
    seed = 9;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        config c = { .shape = cases[i].shape };
        memcpy(c.rule, cases[i].rule, sizeof c.rule);
        measure(&c);
        options(&c);
        take_rule(&c);
        agrees(&c);
    }
}
