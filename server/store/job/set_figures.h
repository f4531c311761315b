/* set_figures.h - what operators see of rounds and members: which step each fragment of a job collects, whom it waits
 * for, and how often each rank counts. Step thread. */
#ifndef PD_SET_FIGURES_H
#define PD_SET_FIGURES_H

#include "job.h"

/* Fill the entry of fragment i in the list of rounds (pd_round_info), and that of rank r in the list of members
 * (pd_member_info). The entry is zeroed before. */
void pd_listed_round_fill(void *entry, const pd_job *job, uint32_t i, uint64_t now_ns);
void pd_listed_member_fill(void *entry, const pd_job *job, uint32_t r, uint64_t now_ns);
/* Return an estimate of how many nanoseconds that takes. */
double pd_listed_round_ns(const pd_job *job, uint32_t i);
double pd_listed_member_ns(const pd_job *job, uint32_t r);

/* Returns the fragment whose open step is the oldest; if no step is open, the first one. NULL: the job has no
 * parameters yet. */
const struct pd_fragment *pd_oldest_fragment(const pd_job *job);
/* Returns how many members the job has. A group of ranks is one, unless min_workers counts ranks. */
uint32_t pd_members_count(const pd_job *job);
/* Writes whom a job whose sets are open waits for: "members: 1 of 2" if it has too few, else the ranks that its oldest
 * step misses, such as "1,3". The text is empty if it waits for nobody. Returns the time at which that step was opened;
 * 0: none is open. */
uint64_t pd_sets_wait(const pd_job *job, char *text, size_t size);

#endif
