#include "curve.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INK   "#1f2933"
#define FAINT "#616e7c"
#define GRID  "#e4e7eb"
#define BLUE  "#2563eb"
#define PALE  "#bfd3fb"
#define AMBER "#d97706"
#define GREEN "#15803d"

enum { WIDTH = 880, HEIGHT = 600, LEFT = 74, RIGHT = 846, MOST_DRAWN = 800 };

/* A panel maps [x0, x1] to LEFT..RIGHT and [y0, y1] (or their logarithms) to bottom..top. */
typedef struct panel {
    FILE  *file;
    double top, bottom, x0, x1, y0, y1;
    bool   logarithmic;
} panel;

static int grow(curve_points *points)
{
    size_t  room = points->room ? 2 * points->room : 256;
    double *step = realloc(points->step, room * sizeof *step), *value;

    if (step == NULL) return PD_NO_MEMORY;
    points->step = step;
    if ((value = realloc(points->value, room * sizeof *value)) == NULL) return PD_NO_MEMORY;
    points->value = value;
    points->room = room;
    return PD_OK;
}

int curve_add(curve *c, curve_line line, double step, double value)
{
    curve_points *points = &c->line[line];

    if (!isfinite(value)) return PD_OK;
    if (points->n == points->room && grow(points) != PD_OK) return PD_NO_MEMORY;
    points->step[points->n] = step;
    points->value[points->n++] = value;
    return PD_OK;
}

void curve_free(curve *c)
{
    for (int l = 0; l < CURVE_LINES; l++) {
        free(c->line[l].step);
        free(c->line[l].value);
    }
    *c = (curve){ 0 };
}

static double at_x(const panel *p, double step) { return LEFT + (RIGHT - LEFT) * (step - p->x0) / (p->x1 - p->x0); }

static double at_y(const panel *p, double value)
{
    double part = p->logarithmic ? log(fmax(value, p->y0) / p->y0) / log(p->y1 / p->y0) : (value - p->y0) / (p->y1 - p->y0);
    return p->bottom - (p->bottom - p->top) * part;
}

/* 1, 2 or 5 times a power of ten, such that `span` has at most about `wanted` of them. */
static double nice_distance(double span, int wanted)
{
    double raw = span / wanted, power = pow(10.0, floor(log10(raw))), lead = raw / power;
    return power * (lead <= 1.0 ? 1.0 : lead <= 2.0 ? 2.0 : lead <= 5.0 ? 5.0 : 10.0);
}

static void text(const panel *p, double x, double y, const char *anchor, int size, const char *colour, const char *words)
{
    fprintf(p->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x, y, anchor, size, colour);
    for (; *words; words++)
        if (strchr("<>&", *words)) fprintf(p->file, "&#%d;", *words);
        else fputc(*words, p->file);
    fputs("</text>\n", p->file);
}

static void draw_segment(const panel *p, double x1, double y1, double x2, double y2, const char *colour)
{
    fprintf(p->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

static void tick_y(const panel *p, double value, const char *unit)
{
    char label[32];
    snprintf(label, sizeof label, "%g%s", value, unit);
    draw_segment(p, LEFT, at_y(p, value), RIGHT, at_y(p, value), GRID);
    text(p, LEFT - 8, at_y(p, value) + 4, "end", 12, FAINT, label);
}

/* Grid and ticks of y: 1, 2, 5 times powers of ten on a logarithmic axis, else evenly spaced. */
static void draw_y_axis(const panel *p, const char *name, const char *unit)
{
    if (p->logarithmic) {
        for (double power = pow(10.0, floor(log10(p->y0))); power <= p->y1; power *= 10.0)
            for (int i = 0; i < 3; i++) {
                double value = power * (double[]){ 1, 2, 5 }[i];
                if (value >= p->y0 * 0.999 && value <= p->y1 * 1.001) tick_y(p, value, unit);
            }
    } else {
        double distance = nice_distance(p->y1 - p->y0, 6);
        for (double value = ceil(p->y0 / distance) * distance; value <= p->y1 + distance / 1e6; value += distance) tick_y(p, value, unit);
    }
    fprintf(p->file, "<text transform=\"translate(22 %.1f) rotate(-90)\" text-anchor=\"middle\" font-size=\"13\" fill=\"%s\">%s</text>\n",
            (p->top + p->bottom) / 2, INK, name);
}

static void draw_x_axis(const panel *p, bool labelled)
{
    double distance = fmax(nice_distance(p->x1 - p->x0, 10), 1.0);

    for (double step = ceil(p->x0 / distance) * distance; step <= p->x1; step += distance) {
        char label[32];
        snprintf(label, sizeof label, "%.0f", step);
        draw_segment(p, at_x(p, step), p->bottom, at_x(p, step), p->bottom + 5, FAINT);
        if (labelled) text(p, at_x(p, step), p->bottom + 20, "middle", 12, FAINT, label);
    }
    draw_segment(p, LEFT, p->bottom, RIGHT, p->bottom, FAINT);
    draw_segment(p, LEFT, p->top, LEFT, p->bottom, FAINT);
    if (labelled) text(p, (LEFT + RIGHT) / 2.0, p->bottom + 42, "middle", 13, INK, "step");
}

/* Of many points only every so many-th is drawn. */
static size_t stride(const curve_points *points) { return points->n / MOST_DRAWN + 1; }

/* Mean of the values within `reach` points of point i. */
static double smooth(const curve_points *points, size_t i, size_t reach)
{
    size_t first = i > reach ? i - reach : 0, last = i + reach < points->n ? i + reach : points->n - 1;
    double sum = 0.0;

    for (size_t k = first; k <= last; k++) sum += points->value[k];
    return sum / (double)(last - first + 1);
}

static void draw_line(const panel *p, const curve_points *points, size_t reach, const char *colour, double width)
{
    size_t last = points->n - 1;

    if (points->n == 0) return;
    fprintf(p->file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\" points=\"", colour, width);
    for (size_t i = 0; i < last; i += stride(points))
        fprintf(p->file, "%.1f,%.1f ", at_x(p, points->step[i]), at_y(p, smooth(points, i, reach)));
    fprintf(p->file, "%.1f,%.1f\"/>\n", at_x(p, points->step[last]), at_y(p, smooth(points, last, reach)));
}

static void draw_dots(const panel *p, const curve_points *points, const char *colour)
{
    for (size_t i = 0; i < points->n; i++)
        fprintf(p->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\" stroke=\"white\"/>\n", at_x(p, points->step[i]), at_y(p, points->value[i]), colour);
}

/* One entry; x: where it begins. */
static void draw_legend(const panel *p, double x, const char *colour, const char *words)
{
    fprintf(p->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\" stroke-linecap=\"round\"/>\n",
            x, p->top - 14, x + 22, p->top - 14, colour);
    text(p, x + 30, p->top - 10, "start", 12, INK, words);
}

/* Least and most of what is drawn of a line, from what they were before. */
static void widen(const curve_points *points, double *least, double *most)
{
    for (size_t i = 0; i < points->n; i += stride(points)) {
        *least = fmin(*least, points->value[i]);
        *most = fmax(*most, points->value[i]);
    }
}

static double last_step(const curve *c)
{
    double last = 1.0;
    for (int l = 0; l < CURVE_LINES; l++)
        if (c->line[l].n > 0) last = fmax(last, c->line[l].step[c->line[l].n - 1]);
    return last;
}

static void draw_loss(const curve *c, FILE *file)
{
    const curve_points *loss = &c->line[CURVE_LOSS], *test = &c->line[CURVE_TEST_LOSS];
    panel  p = { .file = file, .top = 110, .bottom = 340, .x1 = last_step(c), .logarithmic = true };
    double least = INFINITY, most = 0.0;

    widen(loss, &least, &most);
    widen(test, &least, &most);
    if (!isfinite(least)) least = most = 1.0;                           /* no point at all */
    p.y0 = fmax(least, 1e-6) / 1.15;
    p.y1 = fmax(most, 2 * p.y0) * 1.15;
    draw_y_axis(&p, "loss (log scale)", "");
    draw_line(&p, loss, 0, PALE, 1.0);
    draw_line(&p, loss, loss->n / 100, BLUE, 2.0);
    draw_line(&p, test, 0, AMBER, 1.5);
    draw_dots(&p, test, AMBER);
    draw_x_axis(&p, false);
    draw_legend(&p, LEFT, PALE, "training loss (rank 0's images), each step");
    draw_legend(&p, LEFT + 320, BLUE, "smoothed");
    draw_legend(&p, LEFT + 430, AMBER, "test loss, each epoch");
}

static void draw_accuracy(const curve *c, FILE *file)
{
    const curve_points *accuracy = &c->line[CURVE_ACCURACY];
    panel  p = { .file = file, .top = 394, .bottom = 540, .x1 = last_step(c) };
    double least = 100.0, most = 0.0;
    char   label[32];

    widen(accuracy, &least, &most);
    if (least > most) least = most = 50.0;
    p.y0 = fmax(floor(least) - 1.0, 0.0);
    p.y1 = fmin(ceil(most) + 1.0, 100.0);
    draw_y_axis(&p, "test accuracy", " %");
    draw_line(&p, accuracy, 0, GREEN, 2.0);
    draw_dots(&p, accuracy, GREEN);
    draw_x_axis(&p, true);
    draw_legend(&p, LEFT, GREEN, "test accuracy, each epoch");
    if (accuracy->n == 0) return;
    snprintf(label, sizeof label, "%.2f %%", accuracy->value[accuracy->n - 1]);
    text(&p, RIGHT, at_y(&p, accuracy->value[accuracy->n - 1]) - 12, "end", 13, GREEN, label);
}

int curve_write(const curve *c, const char *path, const char *title, const char *subtitle, pd_error *err)
{
    FILE *file = fopen(path, "w");
    panel page = { .file = file };
    bool  broken;

    if (file == NULL) return pd_fail(err, PD_UNAVAILABLE, "%s: %s", path, strerror(errno));
    fprintf(file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"DejaVu Sans, Verdana, Helvetica, sans-serif\" role=\"img\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            WIDTH, HEIGHT, WIDTH, HEIGHT);
    text(&page, LEFT, 36, "start", 19, INK, title);
    text(&page, LEFT, 60, "start", 13, FAINT, subtitle);
    draw_loss(c, file);
    draw_accuracy(c, file);
    fputs("</svg>\n", file);
    broken = ferror(file) != 0;
    return fclose(file) != 0 || broken ? pd_fail(err, PD_UNAVAILABLE, "%s: cannot write: %s", path, strerror(errno)) : PD_OK;
}
