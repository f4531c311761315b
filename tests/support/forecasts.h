/* forecasts.h - small models, and the text that paramctl plan prints for them, for the tests of plan.
 *
 *     model m = small_model();                                 or { 0 } and add_param
 *     const pd_forecast *f = forecast(&m, "* coupled", NULL);  rules; pd_forecast_free(&m.forecast) when done
 *     assert_tells(f, false, "6 blocks of at most (3, 3)"); */
#ifndef FORECASTS_H
#define FORECASTS_H

#include "forecast.h"

typedef struct model {
    pd_shapes shapes;
    pd_shape_entry entry[64];
    pd_sizing job; /* sizing of the job; all zero: that of pd_forecast_job() */
    pd_forecast forecast;
} model;

/* Returns a model with one parameter, a matrix w of 7 x 5. */
model small_model(void);
/* Adds a parameter. `name` is borrowed. */
void add_param(model *m, const char *name, int rank, int64_t a, int64_t b);

/* The optimizers of these forecasts: sgd, coupled (coupled_row.h), varied, the one of wide_row.h, scalable_shampoo and
 * literal.
 *
 * varied is coupled with other tasks: each task also reads the first statistic and the tally; the last task costs 5000,
 * the others 40; roots are used when they are ready, and are due where lr is above 1. literal has a slot of as many
 * numbers as the parameter's name has letters, if its text `part` is in the name. Its note holds the axes. */
extern const pd_optimizer_ops *const forecast_rows[];
int make_forecast(model *m, char *const *rules, size_t n, pd_error *err);
/* Makes the forecast of a model with one rule or two; NULL: no rule. Fails the test if the forecast is refused. */
const pd_forecast *forecast(model *m, const char *first, const char *second);

/* Check that the printed forecast contains a text, or does not contain it. Several blanks count as one. */
void assert_tells(const pd_forecast *f, bool verbose, const char *part);
void assert_does_not_tell(const pd_forecast *f, bool verbose, const char *part);

#endif
