#include "curve.h"

#include <math.h>
#include <stdio.h>

#define BLUE  "#2563eb"
#define PALE  "#bfd3fb"
#define AMBER "#d97706"
#define GREEN "#15803d"

int curve_add(curve *c, curve_line line, double step, double value) { return plot_add(&c->line[line], step, value); }

void curve_free(curve *c)
{
    for (int l = 0; l < CURVE_LINES; l++) plot_free(&c->line[l]);
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
    const plot_points *loss = &c->line[CURVE_LOSS], *test = &c->line[CURVE_TEST_LOSS];
    plot   p = { .file = file, .top = 110, .bottom = 340, .x1 = last_step(c) };
    double least = INFINITY, most = 0.0;

    plot_widen(loss, &least, &most);
    plot_widen(test, &least, &most);
    plot_loss_range(&p, least, most);
    plot_y_axis(&p, "loss (log scale)", "");
    plot_line(&p, loss, 0, PALE, 1.0);
    plot_line(&p, loss, loss->n / 100, BLUE, 2.0);
    plot_line(&p, test, 0, AMBER, 1.5);
    plot_dots(&p, test, AMBER);
    plot_x_axis(&p, false);
    plot_legend(&p, PLOT_LEFT, PALE, "training loss (rank 0's images), each step");
    plot_legend(&p, PLOT_LEFT + 320, BLUE, "smoothed");
    plot_legend(&p, PLOT_LEFT + 430, AMBER, "test loss, each epoch");
}

static void draw_accuracy(const curve *c, FILE *file)
{
    const plot_points *accuracy = &c->line[CURVE_ACCURACY];
    plot   p = { .file = file, .top = 394, .bottom = 540, .x1 = last_step(c) };
    double least = 100.0, most = 0.0;
    char   label[32];

    plot_widen(accuracy, &least, &most);
    if (least > most) least = most = 50.0;
    p.y0 = fmax(floor(least) - 1.0, 0.0);
    p.y1 = fmin(ceil(most) + 1.0, 100.0);
    plot_y_axis(&p, "test accuracy", " %");
    plot_line(&p, accuracy, 0, GREEN, 2.0);
    plot_dots(&p, accuracy, GREEN);
    plot_x_axis(&p, true);
    plot_legend(&p, PLOT_LEFT, GREEN, "test accuracy, each epoch");
    if (accuracy->n == 0) return;
    snprintf(label, sizeof label, "%.2f %%", accuracy->value[accuracy->n - 1]);
    plot_text(&p, PLOT_RIGHT, plot_y(&p, accuracy->value[accuracy->n - 1]) - 12, "end", 13, GREEN, label);
}

int curve_write(const curve *c, const char *path, const char *title, const char *subtitle, pd_error *err)
{
    plot page;
    int  rc = plot_open(&page, path, 600, title, subtitle, err);

    if (rc != PD_OK) return rc;
    draw_loss(c, page.file);
    draw_accuracy(c, page.file);
    return plot_close(&page, path, err);
}
