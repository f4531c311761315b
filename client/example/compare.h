/* compare.h - optimizers' training losses in one picture: the median of the seeds as a line over faint lines of the seeds. */
#ifndef COMPARE_H
#define COMPARE_H

#include "plot.h"

enum { COMPARE_MOST_SEEDS = 16, COMPARE_MOST_SIDES = 4 };

/* One optimizer. Begins zeroed. */
typedef struct compare_side {
    const char *name;
    plot_points seed[COMPARE_MOST_SEEDS];           /* losses of each seed's run, already smoothed */
    int         n_seeds;
    double      reached;                            /* step at which the level was reached (median); 0: never */
} compare_side;

/* Median over the seeds at each point of the first seed that the others have too. Adds to `median`, which begins zeroed. PD_NO_MEMORY. */
int compare_median(const compare_side *side, plot_points *median);

/* n sides, at most COMPARE_MOST_SIDES. level: the loss all are held to, which is the first one's last, drawn as a dashed line with the steps at which it was
 * reached; 0: none. PD_UNAVAILABLE: cannot write `path`. PD_NO_MEMORY. */
int compare_write(const compare_side *side, int n, double level, const char *path, const char *title, const char *subtitle, pd_error *err);

#endif
