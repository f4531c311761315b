#include "course.h"

#include <math.h>

const int course_widths[MLP_LAYERS + 1] = { DATASET_PIXELS, 256, 128, DATASET_CLASSES };

double course_rate(double first, uint64_t step, uint64_t steps) { return first * 0.5 * (1.0 + cos(M_PI * (double)step / (double)steps)); }

double course_evaluate(mlp *net, const dataset *set, float *x, uint8_t *label, double *accuracy)
{
    double loss = 0.0;
    int    correct, right = 0;

    for (int first = 0; first < set->n; first += COURSE_CHUNK) {
        int n = set->n - first < COURSE_CHUNK ? set->n - first : COURSE_CHUNK;
        dataset_take(set, first, n, x, label);
        loss += n * mlp_evaluate(net, x, label, n, &correct);
        right += correct;
    }
    *accuracy = (double)right / set->n;
    return loss / set->n;
}
