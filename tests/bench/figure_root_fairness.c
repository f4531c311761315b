/* root_fairness: how much the roots of another job slow down a job whose own roots are due at once.
 *
 * The small job has one parameter of 8 elements, so one 8 x 8 root, which every step computes and waits for
 * (root_delay 0). The large job has 16 parameters of 512 elements, so 16 roots of side 512 in every step, used when
 * they are ready. Its worker waits 30 ms in each step, in place of an accelerator's computation. One of its roots
 * takes longer than that, so its roots are always behind. Its parameters are vectors, because the steps of vectors
 * cost little beside their roots; the figure fairness_ms measures the effect of large steps. The figure is the mean
 * step time of the small job beside the large job, divided by its mean step time before the large job starts. */
#include "figure.h"
#include "bench_team.h"

enum { SIDE = 8, LARGE_SIDE = 512, LARGE = 16, COMPUTE_MS = 30, WARM_UP = 50, STEPS = 5000 };

#define RULE "* scalable_shampoo learning_rate=0.001 block_size=512 preconditioning_compute_steps=1 "

typedef struct roots {
    uint64_t due, adopted, replaced;
} roots;

static roots count_roots(const pd_child *daemon, const char *job)
{
    pd_operator op;
    const Paramd__StatusReply *status = figure_status(daemon->url, &op);
    roots n = { 0, 0, 0 };

    for (size_t i = 0; i < status->n_jobs; i++) {
        if (strcmp(status->jobs[i]->name, job) != 0) continue;
        n = (roots){ status->jobs[i]->roots_due, status->jobs[i]->roots_adopted, status->jobs[i]->roots_unused };
    }
    pd_operator_close(&op);
    return n;
}

static double mean(const double *ms)
{
    double sum = 0;

    for (int i = 0; i < STEPS; i++) sum += ms[i];
    return sum / STEPS;
}

static team *start_small(const pd_child *daemon)
{
    static const int64_t elements[] = { SIDE };

    return team_start(&(team_options){
        .url = daemon->url, .job = "small", .workers = 1, .elements = elements, .n = 1, .rule = RULE "root_delay=0" });
}

static team *start_large(const pd_child *daemon)
{
    int64_t elements[LARGE];

    for (int i = 0; i < LARGE; i++) elements[i] = LARGE_SIDE;
    return team_start(&(team_options){ .url = daemon->url,
                                       .job = "large",
                                       .workers = 1,
                                       .elements = elements,
                                       .n = LARGE,
                                       .rule = RULE "root_delay=ready",
                                       .compute_ms = COMPUTE_MS });
}

static void print(double *alone, double *beside, uint64_t small_roots, roots before, roots after)
{
    double mean_alone = mean(alone), mean_beside = mean(beside);

    printf("%.2f\talone: mean %.3f, median %.3f, 99 %%: %.3f; ", mean_beside / mean_alone, mean_alone,
           figure_quantile(alone, STEPS, 0.5), figure_quantile(alone, STEPS, 0.99));
    printf("beside: mean %.3f, median %.3f, 99 %%: %.3f, most %.2f ms; ", mean_beside,
           figure_quantile(beside, STEPS, 0.5), figure_quantile(beside, STEPS, 0.99),
           figure_quantile(beside, STEPS, 1));
    printf("%llu of %d roots of the small job adopted; meanwhile %llu roots of the large job due, %llu adopted\n",
           (unsigned long long)small_roots, 2 * (WARM_UP + STEPS), (unsigned long long)(after.due - before.due),
           (unsigned long long)(after.adopted - before.adopted));
}

int main(void)
{
    double *alone = figure_alloc(STEPS * sizeof *alone), *beside = figure_alloc(STEPS * sizeof *beside);
    roots before, after, of_small;
    team *small, *large;
    pd_child daemon;

    figure_daemon(&daemon);
    small = start_small(&daemon);
    team_steps(small, WARM_UP, NULL);
    team_steps(small, STEPS, alone);
    large = start_large(&daemon);
    team_steps(large, 3, NULL);
    team_run_on(large);
    team_steps(small, WARM_UP, NULL);
    before = count_roots(&daemon, "large");
    team_steps(small, STEPS, beside);
    after = count_roots(&daemon, "large");
    of_small = count_roots(&daemon, "small");
    team_halt(large);
    print(alone, beside, of_small.adopted, before, after);
    team_end(small);
    team_end(large);
    pd_child_stop(&daemon);
    free(alone);
    free(beside);
    /* If no root request was replaced by a newer one, the large job's roots were not behind, and the measurement is
     * void. */
    return after.replaced > before.replaced ? 0 : 1;
}
