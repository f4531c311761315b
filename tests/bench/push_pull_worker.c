/* push_pull_worker URL TENSORS ELEMENTS STEPS: a worker of the C library, for python_push_pull. It declares TENSORS
 * parameters of ELEMENTS float32 elements. For each line of the standard input it takes STEPS steps, and prints their
 * median duration in milliseconds. It leaves at the end of the input. */
#include "bench_team.h"
#include "figure.h"

#include <stdlib.h>

enum { MOST_STEPS = 1000 };

int main(int argc, char **argv)
{
    int64_t *elements, tensors, steps;
    double ms[MOST_STEPS];
    char line[16];
    team *worker;

    if (argc != 5) figure_stop("expected URL TENSORS ELEMENTS STEPS");
    tensors = atoll(argv[2]), steps = atoll(argv[4]);
    if (tensors < 1 || steps < 1 || steps > MOST_STEPS) figure_stop("expected 1 or more tensors, 1 to 1000 steps");
    elements = figure_alloc((size_t)tensors * sizeof *elements);
    for (int64_t i = 0; i < tensors; i++) elements[i] = atoll(argv[3]);
    worker = team_start(&(team_options){ .url = argv[1],
                                         .job = "c",
                                         .workers = 1,
                                         .elements = elements,
                                         .n = (size_t)tensors,
                                         .rule = "* sgd lr=0.001" });
    while (fgets(line, sizeof line, stdin) != NULL) {
        team_steps(worker, steps, ms);
        printf("%.6f\n", figure_quantile(ms, (size_t)steps, 0.5));
        fflush(stdout);
    }
    team_end(worker);
    free(elements);
    return 0;
}
