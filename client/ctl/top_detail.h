/* top_detail.h - what `paramctl top' shows of one job below the table: where the time of a step goes, who is waited
 * for, matrix roots, memory, traffic and the last checkpoint. */
#ifndef PD_TOP_DETAIL_H
#define PD_TOP_DETAIL_H

#include "top_sample.h"

enum { PD_TOP_LINES = 9, PD_TOP_LINE = 200 };

typedef struct pd_top_detail {
    size_t n;
    char line[PD_TOP_LINES][PD_TOP_LINE];
    bool alarm[PD_TOP_LINES]; /* the line tells of something that an operator should look at */
} pd_top_detail;

/* Describes a job. `late` lists the n_late ranks that were last most often. */
void pd_top_describe(pd_top_detail *out, const pd_top_job *job, const pd_top_late *late, size_t n_late);

#endif
