/* Tests that plans state the scratch memory of tasks, that this memory is counted when a job declares, and that the
 * copies of one step lie where those of the step before lay. */
#include "test.h"
#include "batch.h"
#include "optimizer.h"
#include "rule.h"
#include "state.h"

enum { SIDE = 160, N = SIDE * SIDE, MOST_TASKS = 16, ALIGN = 64 };

/* Runs a task. Its largest allocation must not exceed the scratch memory in the plan, and must be at least the
 * fraction `least` of it. */
static void run_task(const char *rule, pd_task *task, double least)
{
    int64_t told = task->view.spec->scratch, largest;

    oom_forget_largest();
    pd_task_run(task);
    largest = oom_largest();
    if (largest > told + ALIGN || (double)largest < least * (double)told)
        fail_msg("%s: the plan tells %lld bytes, the task asks for %lld", rule, (long long)told, (long long)largest);
}

/* Makes the optimizer of one matrix with the rule `text`. */
static pd_optim *new_optim(const char *text)
{
    static const double no_stats[PD_MAX_MODEL_STATS];
    char *texts[] = { (char *)(uintptr_t)text };
    pd_rule *rules;
    size_t n;
    pd_optim *optim;
    pd_error err;

    if (pd_rules_parse(&rules, &n, texts, 1, pd_optimizer_table, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_optim_new(&optim, &(pd_declaration){ .name = "w", .shape = { 2, { SIDE, SIDE } }, .hypers = rules->hypers },
                     no_stats, &err) != PD_OK)
        fail_msg("%s", err.text);
    pd_rules_free(rules, n);
    return optim;
}

/* Takes step s, and checks the scratch memory of every task. Returns whether there was a task. */
static bool take_step(pd_optim *optim, const char *text, int s, double least)
{
    static float W[N], G[N];
    bool any = false;

    for (int i = 0; i < N; i++) G[i] = sinf((float)(i % 977 * (s + 1)) + (float)i * 0.37f);
    assert_int_equal(pd_optim_begin(optim, &(pd_step_io){ .gradient = G, .before = W, .after = W }), PD_OK);
    while (!pd_optim_done(optim)) {
        pd_task *out[MOST_TASKS], *task;
        size_t n_out = 0;
        assert_int_equal(pd_batch_run(&optim, 1, 1), PD_OK);
        while ((task = pd_optim_capture(optim)) != NULL) out[n_out++] = task;
        any = any || n_out > 0;
        for (size_t i = 0; i < n_out; i++) run_task(text, out[i], least);
        for (size_t i = 0; i < n_out; i++) pd_optim_deliver(optim, out[i]);
    }
    return any;
}

/* Takes steps of one matrix with the rule `text`, and checks the scratch memory of every task. */
static void run(const char *text, int steps, double least)
{
    pd_optim *optim = new_optim(text);
    bool any = false;

    for (int s = 0; s < steps; s++) any = take_step(optim, text, s, least) || any;
    assert_true(any);
    pd_optim_free(optim);
}

TEST(roots_of_google_s_shampoo_take_what_its_plan_tells)
{
    run("* scalable_shampoo block_size=160 learning_rate=0.1", 1, 0.9);
    run("* scalable_shampoo block_size=160 learning_rate=0.1 exponent_override=3", 1, 0.9);
    run("* scalable_shampoo block_size=160 learning_rate=0.1 root_method=eigh root_retries=0", 1, 0.8);
    run("* scalable_shampoo block_size=160 learning_rate=0.1 root_method=eigh64", 1, 0.9);
}

TEST(roots_of_meta_s_shampoo_take_what_its_plan_tells)
{
    run("* shampoo lr=0.1 use_protected_eigh=no", 1, 0.8);
    run("* shampoo lr=0.1 preconditioner_dtype=float64", 1, 0.9);
}

/* A tracked root allocates its scratch memory in two pieces. Its first step is an eigendecomposition. Later steps
 * update the eigenbasis. */
HOLDS(roots_that_follow_a_basis_take_no_more_than_the_plan_tells,
      run("* scalable_shampoo block_size=160 learning_rate=0.1 root_method=tracked root_retries=0", 4, 0.3));

TEST(updates_of_kron_take_what_its_plan_tells)
{
    run("* kron learning_rate=0.1 merge_small_dims=no partition_grads_into_blocks=no", 1, 0.99);
    run("* kron learning_rate=0.1 merge_small_dims=no partition_grads_into_blocks=yes block_size=100", 1, 0.99);
    run("* kron learning_rate=0.1 merge_small_dims=no partition_grads_into_blocks=no memory_save_mode=all_diag", 1,
        0.99);
    run("* kron learning_rate=0.1 merge_small_dims=no dQ=QUAD block_size=100", 1, 0.99);
    run("* kron learning_rate=0.1 merge_small_dims=no dQ=Q0.5EQ1.5 partition_grads_into_blocks=no", 1, 0.99);
    run("* kron learning_rate=0.1 merge_small_dims=no dQ=QEP block_size=100", 1, 0.99);
    run("* kron learning_rate=0.1 merge_small_dims=no dQ=EQ_psgd partition_grads_into_blocks=no", 1, 0.99);
}

/* Returns how many allocations a step makes. */
static int64_t count_allocations(pd_optim *optim, const char *rule, int s)
{
    int64_t before = oom_allocations();

    assert_true(take_step(optim, rule, s, 0));
    return oom_allocations() - before;
}

/* The first step allocates the memory of the copies, and the struct that describes it. */
TEST(tasks_take_the_memory_of_those_of_the_step_before)
{
    const char *rule = "* kron learning_rate=0.1 merge_small_dims=no block_size=100";
    pd_optim *optim = new_optim(rule);
    int64_t first = count_allocations(optim, rule, 0);

    assert_int_equal(count_allocations(optim, rule, 1), first - 2);
    pd_optim_free(optim);
}

TEST(bases_take_what_their_plans_tell)
{
    run("* soap lr=0.1", 2, 0.9);
    run("* kl_shampoo lr=0.1", 2, 0.9);
}
