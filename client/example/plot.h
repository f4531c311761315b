/* plot.h - what the example's pictures are drawn with: points over steps, axes, lines and legends as SVG. */
#ifndef PLOT_H
#define PLOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "paramd/error.h"

#define PLOT_INK   "#1f2933"
#define PLOT_FAINT "#616e7c"

enum { PLOT_WIDTH = 880, PLOT_LEFT = 74, PLOT_RIGHT = 846 };

/* Begins zeroed. */
typedef struct plot_points {
    double *step, *value;
    size_t  n, room;
} plot_points;

/* Adds a point to the right of those before. Values that are not finite are left out. PD_NO_MEMORY: nothing was added. */
int  plot_add(plot_points *points, double step, double value);
void plot_free(plot_points *points);                    /* accepts zeroed ones */

/* Maps [x0, x1] to PLOT_LEFT..PLOT_RIGHT and [y0, y1] (or their logarithms) to bottom..top. */
typedef struct plot {
    FILE  *file;
    double top, bottom, x0, x1, y0, y1;
    bool   logarithmic;
} plot;

/* A page of that height with its title and below it a subtitle, which may take two lines. PD_UNAVAILABLE: cannot write `path`. */
int plot_open(plot *p, const char *path, int height, const char *title, const char *subtitle, pd_error *err);
/* Ends the page. PD_UNAVAILABLE: it could not be written whole. */
int plot_close(plot *p, const char *path, pd_error *err);

double plot_x(const plot *p, double step);
double plot_y(const plot *p, double value);

/* Least and most of what is drawn of a line, from what they were before. */
void plot_widen(const plot_points *points, double *least, double *most);
/* A logarithmic y axis from a little below `least` to a little above `most`; any numbers will do. */
void plot_loss_range(plot *p, double least, double most);
void plot_y_axis(const plot *p, const char *name, const char *unit);
void plot_x_axis(const plot *p, bool labelled);
/* Each value as the mean of those within `reach` points of it. */
void plot_line(const plot *p, const plot_points *points, size_t reach, const char *colour, double width);
void plot_dots(const plot *p, const plot_points *points, const char *colour);
void plot_dashes(const plot *p, double x1, double y1, double x2, double y2, const char *colour);
/* One entry above the plot; x: where it begins. */
void plot_legend(const plot *p, double x, const char *colour, const char *words);
/* anchor: "start", "middle" or "end" of the words is at x. */
void plot_text(const plot *p, double x, double y, const char *anchor, int size, const char *colour, const char *words);

#endif
