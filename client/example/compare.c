#include "compare.h"

#include <math.h>
#include <stdlib.h>

/* Okabe and Ito's blue, vermillion, green and purple, which every kind of eye tells apart, and the same mixed with white. */
static const char *const strong[COMPARE_MOST_SIDES] = { "#0072b2", "#d55e00", "#009e73", "#a8457e" };
static const char *const pale[COMPARE_MOST_SIDES] = { "#b3d5e8", "#f4cfb3", "#b3e2d5", "#e9cfdf" };

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int compare_median(const compare_side *side, plot_points *median)
{
    size_t points = side->n_seeds > 0 ? side->seed[0].n : 0;
    int    rc = PD_OK;

    for (int s = 1; s < side->n_seeds; s++)
        if (side->seed[s].n < points) points = side->seed[s].n;
    for (size_t i = 0; i < points && rc == PD_OK; i++) {
        double value[COMPARE_MOST_SEEDS];
        int    n = side->n_seeds;
        for (int s = 0; s < n; s++) value[s] = side->seed[s].value[i];
        qsort(value, (size_t)n, sizeof *value, by_size);
        rc = plot_add(median, side->seed[0].step[i], 0.5 * (value[(n - 1) / 2] + value[n / 2]));
    }
    return rc;
}

enum { WORDS_HEIGHT = 18 };

/* Curves end so far above the bottom that a line of words for each side fits below them. */
static void leave_room_for_words(plot *p, int n)
{
    double words = WORDS_HEIGHT * (n + 0.5), height = p->bottom - p->top;

    p->y0 *= pow(p->y1 / p->y0, -words / (height - words));
}

/* Steps and losses of all seeds. */
static void fit(plot *p, const compare_side *side, int n)
{
    double least = INFINITY, most = 0.0;

    p->x1 = 1.0;
    for (int k = 0; k < n; k++)
        for (int s = 0; s < side[k].n_seeds; s++) {
            const plot_points *points = &side[k].seed[s];
            plot_widen(points, &least, &most);
            if (points->n > 0) p->x1 = fmax(p->x1, points->step[points->n - 1]);
        }
    plot_loss_range(p, least, most);
}

static void draw_level(const plot *p, const compare_side *side, int n, double level)
{
    char words[96];

    plot_dashes(p, PLOT_LEFT, plot_y(p, level), PLOT_RIGHT, plot_y(p, level), PLOT_FAINT);
    for (int k = 0; k < n; k++) {
        double x = plot_x(p, side[k].reached);
        if (side[k].reached <= 0.0) continue;
        plot_dashes(p, x, plot_y(p, level), x, p->bottom, strong[k]);
        snprintf(words, sizeof words, "step %.0f", side[k].reached);
        plot_text(p, x - 6, p->bottom - 8 - WORDS_HEIGHT * k, "end", 13, strong[k], words);         /* a line of its own: steps may be close */
    }
    snprintf(words, sizeof words, "where %s ends", side[0].name);
    plot_text(p, PLOT_LEFT + 8, plot_y(p, level) + 16, "start", 12, PLOT_FAINT, words);
}

int compare_write(const compare_side *side, int n, double level, const char *path, const char *title, const char *subtitle, pd_error *err)
{
    plot_points median = { 0 };
    plot p;
    int  column = (PLOT_RIGHT - PLOT_LEFT) / (n + 1);
    int  rc = plot_open(&p, path, 560, title, subtitle, err);

    if (rc != PD_OK) return rc;
    p.top = 110;
    p.bottom = 500;
    fit(&p, side, n);
    if (level > 0.0) leave_room_for_words(&p, n);
    plot_y_axis(&p, "training loss (log scale)", "");
    for (int k = 0; k < n; k++)
        for (int s = 0; s < side[k].n_seeds; s++) plot_line(&p, &side[k].seed[s], 0, pale[k], 1.0);
    if (level > 0.0) draw_level(&p, side, n, level);
    for (int k = 0; k < n; k++) {
        if (compare_median(&side[k], &median) != PD_OK) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
        plot_line(&p, &median, 0, strong[k], 2.5);
        plot_legend(&p, PLOT_LEFT + column * k, strong[k], side[k].name);
        plot_free(&median);
    }
    plot_legend(&p, PLOT_LEFT + column * n, "#cbd2d9", "each seed");
    plot_x_axis(&p, true);
    if (rc != PD_OK) {
        plot_close(&p, path, NULL);
        return rc;
    }
    return plot_close(&p, path, err);
}
