/* forecasts.h - small models and what paramctl plan tells of them, for its tests.
 *
 *     model m = small_model();                                 or { 0 } and add_param
 *     const pd_forecast *f = forecast(&m, "* coupled", NULL);  rules; pd_forecast_free(&m.forecast) when done
 *     assert_tells(f, false, "6 blocks of at most (3, 3)"); */
#ifndef FORECASTS_H
#define FORECASTS_H

#include "forecast.h"

typedef struct model {
    pd_shapes      shapes;
    pd_shape_entry entry[64];
    pd_sizing      job;                 /* zeroed: pd_forecast_job's */
    pd_forecast    forecast;
} model;

/* One parameter, w, of 7 x 5. */
model small_model(void);
/* `name` is borrowed. */
void  add_param(model *m, const char *name, int rank, int64_t a, int64_t b);

/* sgd, coupled (coupled_row.h), scalable_shampoo, and varied: coupled with tasks that differ. Each of those also reads the first statistic and the
 * tally, the last one costs 5000, the others 40; roots are used when they are ready; they are due where lr is above 1. literal: has a slot of as many numbers as
 * the parameter's name has letters, where its text `part` is in the name; notes the axes. */
extern const pd_row *const forecast_rows[];
int                make_forecast(model *m, char *const *rules, size_t n, pd_error *err);
/* By one rule or two; NULL: none. Fails the test where it is refused. */
const pd_forecast *forecast(model *m, const char *first, const char *second);

/* Of the text, with one blank for any number of them. */
void assert_tells(const pd_forecast *f, bool verbose, const char *part);
void assert_does_not_tell(const pd_forecast *f, bool verbose, const char *part);

#endif
