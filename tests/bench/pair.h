/* pair.h - two jobs of one daemon that differ in an option, and take blocks of steps in turn. */
#ifndef PD_BENCH_PAIR_H
#define PD_BENCH_PAIR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the jobs are: `params` matrices of side x side, two workers on the daemon's machine. */
typedef struct pair_options {
    const char *rule;
    const char *const *with, *const *without; /* options of the two jobs; the lists end with NULL */
    int side, params;
    int before;        /* steps of each job before the first block */
    int block, blocks; /* steps of a block, and how many blocks each job takes */
} pair_options;

/* What came of it. Times are in ms, block by block. */
typedef struct pair_result {
    double *with, *without;
    int steps;            /* of each job, in all blocks */
    double ratio;         /* the median, over pairs of blocks, of the ratio of their median step times */
    double least, most;   /* the least and the largest of these ratios */
    double noise;         /* the largest ratio of the medians of two blocks, one after the other, of the job without */
    uint64_t durable;     /* durable step of the job `with` at the end */
    double checkpoint_mb; /* size of its last checkpoint */
} pair_result;

/* Starts a daemon with a state directory, and both jobs; measures them, and ends all. Free the times with pair_free. */
void pair_measure(pair_result *out, const pair_options *options);
void pair_free(pair_result *result);

#endif
