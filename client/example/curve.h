/* curve.h - a training curve as an SVG picture: loss above, test accuracy below, over the steps. */
#ifndef CURVE_H
#define CURVE_H

#include "plot.h"

typedef enum curve_line { CURVE_LOSS, CURVE_TEST_LOSS, CURVE_ACCURACY, CURVE_LINES } curve_line;

/* Begins zeroed. */
typedef struct curve {
    plot_points line[CURVE_LINES];
} curve;

/* Adds a point to the right of those before. Values that are not finite are left out. PD_NO_MEMORY: nothing was added. */
int  curve_add(curve *c, curve_line line, double step, double value);
/* PD_UNAVAILABLE: cannot write `path`. */
int  curve_write(const curve *c, const char *path, const char *title, const char *subtitle, pd_error *err);
void curve_free(curve *c);                              /* accepts a zeroed one */

#endif
