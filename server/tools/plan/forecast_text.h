/* forecast_text.h - prints a forecast as text for people. */
#ifndef PD_FORECAST_TEXT_H
#define PD_FORECAST_TEXT_H

#include <stdio.h>

#include "forecast.h"

/* Prints the forecast. Without `verbose`, similar parameters, slots and tasks share a line. PD_NO_MEMORY: out of
 * memory. */
int pd_forecast_print(const pd_forecast *forecast, bool verbose, FILE *out, pd_error *err);

#endif
