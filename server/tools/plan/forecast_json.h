/* forecast_json.h - prints a forecast as JSON for other programs. */
#ifndef PD_FORECAST_JSON_H
#define PD_FORECAST_JSON_H

#include <jansson.h>

#include "forecast.h"

/* Returns the whole forecast as JSON, which the caller frees. NULL: out of memory. */
json_t *pd_forecast_json(const pd_forecast *forecast);

#endif
