/* Reads any bytes as the rules of a job, one a line. They are refused with a reason, or every value can be written and
 * read again, plans are made or refused with a reason, and small parameters take steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "optimizer.h"
#include "optimizer_ops.h"
#include "rule.h"
#include "seed.h"

enum { RULES = 8, ELEMENTS = 60 };

/* Cuts the text into lines and returns their number. */
static size_t cut(char *text, char **lines)
{
    size_t n = 0;

    for (char *line; n < RULES && (line = strsep(&text, "\n")) != NULL;) lines[n++] = line;
    return n;
}

static void same_values(const pd_hypers *a, const pd_hypers *b)
{
    static const int64_t counts[] = { 0, 1, 7, 1000, (int64_t)1 << 40 };
    double x[PD_MAX_HYPERS], y[PD_MAX_HYPERS];

    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        pd_hypers_at(a, counts[i], x);
        pd_hypers_at(b, counts[i], y);
        MUST(memcmp(x, y, sizeof x) == 0);
    }
}

static void write_and_read(const pd_hypers *hypers)
{
    pd_hypers again;
    size_t n;
    const pd_hyper *list = pd_optimizer_hypers(hypers->row, &n);
    char text[64];

    pd_hypers_init(&again, hypers->row);
    for (size_t i = 0; i < n; i++)
        MUST(pd_hypers_set(&again, list[i].name, pd_hypers_text(hypers, (int)i, text, sizeof text), NULL) == PD_OK);
    same_values(hypers, &again);
    for (size_t i = 0; i < n; i++)
        MUST(strcmp(pd_hypers_given_text(hypers, (int)i), pd_hypers_given_text(&again, (int)i)) == 0);
    pd_hypers_free(&again);
}

static void make_plan(const pd_hypers *hypers, pd_shape shape)
{
    pd_declaration declaration = { .name = "w", .shape = shape, .hypers = *hypers };
    double stats[PD_MAX_MODEL_STATS];
    pd_plan plan;
    pd_error err = { 0 };

    pd_model_stats_of(hypers->row, &declaration, 1, stats);
    if (pd_plan_make(&plan, &declaration, stats, &err) != PD_OK) {
        MUST(err.text[0] != '\0');
        return;
    }
    MUST(pd_plan_state_bytes(&plan) >= 0 && pd_plan_task_bytes(&plan) >= 0);
    pd_plan_free(&plan);
}

static void take_steps(const pd_hypers *hypers, pd_shape shape)
{
    pd_declaration declaration = { .name = "w", .shape = shape, .hypers = *hypers };
    float w[ELEMENTS], g[ELEMENTS];
    pd_model *model;
    pd_error err = { 0 };

    if (pd_model_new(&model, &declaration, 1, 1, &err) != PD_OK) {
        MUST(err.text[0] != '\0');
        return;
    }
    for (int i = 0; i < ELEMENTS; i++) w[i] = g[i] = cosf((float)i);
    for (int step = 0; step < 3; step++)
        MUST(pd_model_step(model, &(pd_step_io){ .gradient = g, .before = w, .after = w }, &err) == PD_OK);
    pd_model_free(model);
}

static void use(const pd_hypers *hypers)
{
    static const pd_shape planned[] = { { 0 },
                                        { 1, { 0 } },
                                        { 1, { 100 } },
                                        { 2, { 1, 1 } },
                                        { 2, { 300, 7 } },
                                        { 4, { 3, 3, 2, 50 } },
                                        { 2, { 1 << 22, 1 << 20 } } };
    static const pd_shape stepped[] = { { 0 }, { 1, { 7 } }, { 2, { 6, 10 } }, { 3, { 2, 5, 3 } } };

    for (size_t i = 0; i < sizeof planned / sizeof *planned; i++) make_plan(hypers, planned[i]);
    for (size_t i = 0; i < sizeof stepped / sizeof *stepped; i++) take_steps(hypers, stepped[i]);
}

/* Compares a name with all globs. */
static void match(pd_rule *rules, size_t n, const char *name)
{
    double cost_ns = 0;
    const pd_rule *rule = pd_rules_match(rules, n, name, &cost_ns);

    MUST(cost_ns > 0 && (rule == NULL || (rule >= rules && rule < rules + n)));
    MUST(rule == pd_rules_match(rules, n, name, NULL));
}

static void make_seeds(const char *folder)
{
    static const char *const seeds[] = {
        "*.bias sgd lr=0.1\n* sgd momentum=0.9 nesterov=yes lr=cosine(peak=0.1,steps=100,warmup_steps=10,end=0.001)",
        "* sgd lr=piecewise(0.1,1000:0.01,2000:0.001) weight_decay=table(0,0.1,0.2)",
        "* sgd lr=linear_warmup(peak=0.1,warmup_steps=6)\n? sgd lr=rsqrt(base=1,warmup_steps=10)",
        "[a-c]* scalable_shampoo block_size=2 graft_type=RMSPROP clip_by_scaled_gradient_norm=none root_delay=ready",
        "* scalable_shampoo best_effort_memory_usage_reduction=yes preconditioning_compute_steps=2 root_delay=1 "
        "root_method=tracked",
        "a* kron scanned_axes=[layers, 'a b,(', ''] b1=0.5\n* kron scanned_axes='layers",
        "?? kron dQ=QUAD4P merge_small_dims=no preconditioner_max_skew=1e9 grad_clip_max_amps=2,10 betaL=0 "
        "root_delay=1\n"
        "* kron dQ=Q0.5EQ1.5 whiten_grad=no damping=0 preconditioner_update_probability=0.5",
        "?? kron dQ=PRO4P preconditioner_init_scale=auto\n? kron dQ=QEP root_delay=ready\n* kron dQ=EQ_psgd b1=0",
        "a* soap orthogonalize=yes polynomial=polar_express ns_steps=3 hyperball=yes block_size=3\n"
        "* kl_shampoo orthogonalize=yes using_klsoap=yes normalize_grads=yes root_delay=ready",
        "w* ademamix alpha=8 alpha_warmup=9 beta3_warmup=9 betas=0,0.9,0.99\n"
        "* mars mars_type=mars-lion lr_1d=0.1 optimize_1d=yes",
        "?* muon form=keller normuon=yes compute=bfloat16 ns_coefficients=3,-4,2\n* adamw hyperball=yes",
        "* model_state\n?* model_state lr=1",
        "[]a-]*[!b-d]?\\*[x sgd\n*a*a*a*b sgd\n[^]-]] sgd\n[ sgd\n\\ sgd",
        "* scalable_shampoo root_method=eigh matrix_epsilon=0 exponent_override=3 root_retries=2 "
        "start_preconditioning_step=0",
    };

    write_texts(folder, "rules", seeds, sizeof seeds / sizeof *seeds);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = strndup((const char *)data, size), *lines[RULES];
    size_t n = cut(text, lines), parsed = 0;
    pd_rule *rules = NULL;
    pd_error err = { 0 };

    if (pd_rules_parse(&rules, &parsed, lines, n, pd_optimizer_table, &err) != PD_OK) {
        MUST(rules == NULL && err.text[0] != '\0');
    } else {
        MUST(parsed == n);
        match(rules, parsed, "");
        match(rules, parsed, "layers.0.[weight]");
        match(rules, parsed, rules[0].text);
        for (size_t i = 0; i < parsed; i++) {
            write_and_read(&rules[i].hypers);
            use(&rules[i].hypers);
        }
        pd_rules_free(rules, parsed);
    }
    free(text);
    return 0;
}
