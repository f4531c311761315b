/* shard_plan.h - forecasts how a model is spread over the daemons of a cluster: which portions each of them gets, and
 * what the most loaded one must hold, carry and compute. The map is that of the daemons (placement.h). The functions
 * are pure. */
#ifndef PD_SHARD_PLAN_H
#define PD_SHARD_PLAN_H

#include <jansson.h>
#include <stdio.h>

#include "forecast.h"
#include "placement.h"

enum { PD_MOST_SHARD_PLANS = 16 }; /* most numbers of daemons that one command asks for */

/* What a machine does in a second: for the expected time of a step. */
typedef struct pd_speeds {
    double payload; /* bytes that one daemon carries, in and out together */
    double flops;   /* floating-point operations of one thread */
} pd_speeds;

/* The forecast for one number of daemons. The figures without `skew` and `map` are those of the daemon that has most of
 * them. */
typedef struct pd_shard_plan {
    uint32_t shards;
    size_t portions;
    bool fragments;  /* a fragment lies whole on one daemon; the portions are whole parameters */
    uint32_t empty;  /* the first shard without a portion: the daemons refuse the job; otherwise `shards` */
    uint64_t memory; /* as the daemon counts it against limits.max_total_bytes */
    double traffic;  /* bytes of gradients and weights in one step, of all workers together */
    double step_flops, root_flops; /* per step */
    double step_s;                 /* seconds that traffic, step and roots take, one after the other */
    pd_skew skew;
    char cause[320]; /* name of the portion that causes the skew, with its rows if it is cut */
    uint64_t map;    /* number of the map; 0: one daemon */
} pd_shard_plan;

/* The parameter that is largest among those which are larger than split_bytes and not cut. */
typedef struct pd_shard_plan_uncut {
    const char *name; /* NULL: there is none */
    pd_uncut why;
    int64_t elements;
} pd_shard_plan_uncut;

/* Forecasts the model of `f` on `shards` daemons, of which each has the threads of f->job. *uncut may be NULL.
 * PD_NO_MEMORY. */
int pd_shard_plan_make(pd_shard_plan *out, pd_shard_plan_uncut *uncut, const pd_forecast *f, uint32_t shards,
                       const pd_speeds *speeds, pd_error *err);
/* Prints forecasts as a table. PD_NO_MEMORY. */
int pd_shard_plan_print(const pd_shard_plan *spreads, size_t n, const pd_shard_plan_uncut *uncut, const pd_forecast *f,
                        const pd_speeds *speeds, FILE *out, pd_error *err);
/* Returns forecasts as JSON, which the caller frees. NULL: out of memory. */
json_t *pd_shard_plan_json(const pd_shard_plan *spreads, size_t n, const pd_shard_plan_uncut *uncut);

#endif
