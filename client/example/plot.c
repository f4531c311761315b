#include "plot.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GRID "#e4e7eb"

enum { MOST_DRAWN = 800, LINE_LENGTH = 100, MOST_LABELS = 12 };

static int grow(plot_points *points)
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

int plot_add(plot_points *points, double step, double value)
{
    if (!isfinite(value)) return PD_OK;
    if (points->n == points->room && grow(points) != PD_OK) return PD_NO_MEMORY;
    points->step[points->n] = step;
    points->value[points->n++] = value;
    return PD_OK;
}

void plot_free(plot_points *points)
{
    free(points->step);
    free(points->value);
    *points = (plot_points){ 0 };
}

/* On one line, or on two, the first as long as fits. */
static void write_subtitle(const plot *p, const char *words)
{
    char first[LINE_LENGTH + 1];
    int  n = (int)strlen(words);

    if (n > LINE_LENGTH)
        for (n = LINE_LENGTH; n > 0 && words[n] != ' ';) n--;
    snprintf(first, sizeof first, "%.*s", n, words);
    plot_text(p, PLOT_LEFT, 58, "start", 13, PLOT_FAINT, first);
    if (words[n] != '\0') plot_text(p, PLOT_LEFT, 76, "start", 13, PLOT_FAINT, words + n + (words[n] == ' '));
}

int plot_open(plot *p, const char *path, int height, const char *title, const char *subtitle, pd_error *err)
{
    *p = (plot){ .file = fopen(path, "w") };
    if (p->file == NULL) return pd_fail(err, PD_UNAVAILABLE, "%s: %s", path, strerror(errno));
    fprintf(p->file, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" "
            "font-family=\"DejaVu Sans, Verdana, Helvetica, sans-serif\" role=\"img\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
            PLOT_WIDTH, height, PLOT_WIDTH, height);
    plot_text(p, PLOT_LEFT, 36, "start", 19, PLOT_INK, title);
    write_subtitle(p, subtitle);
    return PD_OK;
}

int plot_close(plot *p, const char *path, pd_error *err)
{
    bool broken;

    fputs("</svg>\n", p->file);
    broken = ferror(p->file) != 0;
    return fclose(p->file) != 0 || broken ? pd_fail(err, PD_UNAVAILABLE, "%s: cannot write: %s", path, strerror(errno)) : PD_OK;
}

double plot_x(const plot *p, double step) { return PLOT_LEFT + (PLOT_RIGHT - PLOT_LEFT) * (step - p->x0) / (p->x1 - p->x0); }

double plot_y(const plot *p, double value)
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

void plot_text(const plot *p, double x, double y, const char *anchor, int size, const char *colour, const char *words)
{
    fprintf(p->file, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" font-size=\"%d\" fill=\"%s\">", x, y, anchor, size, colour);
    for (; *words; words++)
        if (strchr("<>&", *words)) fprintf(p->file, "&#%d;", *words);
        else fputc(*words, p->file);
    fputs("</text>\n", p->file);
}

static void draw_segment(const plot *p, double x1, double y1, double x2, double y2, const char *colour)
{
    fprintf(p->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour);
}

void plot_dashes(const plot *p, double x1, double y1, double x2, double y2, const char *colour)
{
    fprintf(p->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-dasharray=\"5 4\"/>\n", x1, y1, x2, y2, colour);
}

void plot_loss_range(plot *p, double least, double most)
{
    if (!isfinite(least)) least = most = 1.0;                           /* no point at all */
    p->logarithmic = true;
    p->y0 = fmax(least, 1e-6) / 1.15;
    p->y1 = fmax(most, 2 * p->y0) * 1.15;
}

static void tick_y(const plot *p, double value, const char *unit)
{
    char label[32];
    snprintf(label, sizeof label, "%g%s", value, unit);
    draw_segment(p, PLOT_LEFT, plot_y(p, value), PLOT_RIGHT, plot_y(p, value), GRID);
    plot_text(p, PLOT_LEFT - 8, plot_y(p, value) + 4, "end", 12, PLOT_FAINT, label);
}

/* 1, 2, 5 times powers of ten; where these would be too many, as of a run that has diverged, every so many-th power. */
static void logarithmic_ticks(const plot *p, const char *unit)
{
    double decades = log10(p->y1 / p->y0);
    int leads = decades <= MOST_LABELS / 3 ? 3 : 1, every = leads == 3 ? 1 : (int)(decades / MOST_LABELS) + 1;

    for (int power = (int)floor(log10(p->y0)); pow(10.0, power) <= p->y1; power++)
        for (int i = 0; i < leads && power % every == 0; i++) {
            double value = pow(10.0, power) * (double[]){ 1, 2, 5 }[i];
            if (value >= p->y0 * 0.999 && value <= p->y1 * 1.001) tick_y(p, value, unit);
        }
}

/* Grid and ticks of y, evenly spaced unless the axis is logarithmic. */
void plot_y_axis(const plot *p, const char *name, const char *unit)
{
    if (p->logarithmic) {
        logarithmic_ticks(p, unit);
    } else {
        double distance = nice_distance(p->y1 - p->y0, 6);
        for (double value = ceil(p->y0 / distance) * distance; value <= p->y1 + distance / 1e6; value += distance) tick_y(p, value, unit);
    }
    fprintf(p->file, "<text transform=\"translate(22 %.1f) rotate(-90)\" text-anchor=\"middle\" font-size=\"13\" fill=\"%s\">%s</text>\n",
            (p->top + p->bottom) / 2, PLOT_INK, name);
}

void plot_x_axis(const plot *p, bool labelled)
{
    double distance = fmax(nice_distance(p->x1 - p->x0, 10), 1.0);

    for (double step = ceil(p->x0 / distance) * distance; step <= p->x1; step += distance) {
        char label[32];
        snprintf(label, sizeof label, "%.0f", step);
        draw_segment(p, plot_x(p, step), p->bottom, plot_x(p, step), p->bottom + 5, PLOT_FAINT);
        if (labelled) plot_text(p, plot_x(p, step), p->bottom + 20, "middle", 12, PLOT_FAINT, label);
    }
    draw_segment(p, PLOT_LEFT, p->bottom, PLOT_RIGHT, p->bottom, PLOT_FAINT);
    draw_segment(p, PLOT_LEFT, p->top, PLOT_LEFT, p->bottom, PLOT_FAINT);
    if (labelled) plot_text(p, (PLOT_LEFT + PLOT_RIGHT) / 2.0, p->bottom + 42, "middle", 13, PLOT_INK, "step");
}

/* Of many points only every so many-th is drawn. */
static size_t stride(const plot_points *points) { return points->n / MOST_DRAWN + 1; }

/* Mean of the values within `reach` points of point i. */
static double smooth(const plot_points *points, size_t i, size_t reach)
{
    size_t first = i > reach ? i - reach : 0, last = i + reach < points->n ? i + reach : points->n - 1;
    double sum = 0.0;

    for (size_t k = first; k <= last; k++) sum += points->value[k];
    return sum / (double)(last - first + 1);
}

void plot_line(const plot *p, const plot_points *points, size_t reach, const char *colour, double width)
{
    size_t last = points->n - 1;

    if (points->n == 0) return;
    fprintf(p->file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"%.1f\" stroke-linejoin=\"round\" points=\"", colour, width);
    for (size_t i = 0; i < last; i += stride(points))
        fprintf(p->file, "%.1f,%.1f ", plot_x(p, points->step[i]), plot_y(p, smooth(points, i, reach)));
    fprintf(p->file, "%.1f,%.1f\"/>\n", plot_x(p, points->step[last]), plot_y(p, smooth(points, last, reach)));
}

void plot_dots(const plot *p, const plot_points *points, const char *colour)
{
    for (size_t i = 0; i < points->n; i++)
        fprintf(p->file, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"%s\" stroke=\"white\"/>\n", plot_x(p, points->step[i]), plot_y(p, points->value[i]), colour);
}

/* One entry; x: where it begins. */
void plot_legend(const plot *p, double x, const char *colour, const char *words)
{
    fprintf(p->file, "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\" stroke-linecap=\"round\"/>\n",
            x, p->top - 14, x + 22, p->top - 14, colour);
    plot_text(p, x + 30, p->top - 10, "start", 12, PLOT_INK, words);
}

/* Least and most of what is drawn of a line, from what they were before. */
void plot_widen(const plot_points *points, double *least, double *most)
{
    for (size_t i = 0; i < points->n; i += stride(points)) {
        *least = fmin(*least, points->value[i]);
        *most = fmax(*most, points->value[i]);
    }
}

