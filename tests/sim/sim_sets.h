/* sim_sets.h - a model of jobs with open sets (server/store/step/fragment.h): it knows what ranks have sent, which of
 * them counted in each step, and what they were told, and checks that all of that fits. It decides nothing itself. */
#ifndef SIM_SETS_H
#define SIM_SETS_H

#include "paramd/client.h"
#include "server.h"
#include "sim_history.h"

struct pd_job;

/* Returns the history of the job of this name that the process `creator` has begun; NULL: it has published nothing. */
sim_history *sim_sets_history(sim *s, const sim_job *job, uint64_t creator);
/* Returns the step in which the push of the rank for step `of` has counted, of the job's present course; 0: it has not.
 * A step that was taken again with another course may have left the push out. */
uint64_t sim_sets_counted(const sim_history *h, uint32_t rank, uint64_t of);
/* Returns the creator of the last job of this name that has published something; 0: there is none. */
uint64_t sim_sets_newest(const sim *s, const sim_job *job);
/* Returns the number of barriers that the job has passed. */
uint64_t sim_sets_barrier(sim *s, const sim_job *job, uint64_t creator);
/* Notes that a process of the rank begins to push for a step of a parameter's fragment. `creator` tells which job of
 * this name is meant. */
void sim_sets_sent(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint32_t param, uint64_t step);
/* Notes that a process was told that its push for this step has counted, and how old it was then; or that it was
 * late. */
void sim_sets_told(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint64_t step, const pd_item *item,
                   const pd_item_count *count);
/* Checks the set of ranks of a step that a parameter has closed. */
void sim_sets_closed(sim_history *h, uint32_t param, const pd_closed *closed);
/* Looks at all jobs with open sets, after the step thread has run: when sets are fixed, and what is held. */
void sim_sets_look(sim_server *server);
/* Prints what a job with open sets waits for. */
void sim_sets_describe(const struct pd_job *job);
/* The scalar that a rank gives with its push for a step. */
double sim_sets_scalar(uint32_t rank, uint64_t step);
/* Writes the learning rate that a push for a step brings, in a job whose pushes bring one. */
void sim_sets_lr_text(uint64_t step, char *text, size_t size);
double sim_sets_lr(uint64_t step);
/* Returns the step of the push whose learning rate a parameter's step must use: the push of the lowest rank that counts
 * in the step and has sent a rate. 0: no rank that counts has sent one. */
uint64_t sim_sets_lr_step(const sim_history *h, uint64_t step, uint32_t param);
/* Returns what the weight of the rank's contribution to a step is multiplied by because it is old. */
double sim_sets_damp(const sim_history *h, uint32_t param, uint64_t step, uint32_t rank);
/* Notes how many members the job has now. */
void sim_sets_note_members(sim_history *h, const struct pd_job *job);
/* Takes a set from a step that nobody was told of, but that the disk has. */
void sim_sets_adopt(sim_history *h, uint32_t param, const pd_closed *closed);
/* Forgets the sets of a fragment from a step on, since the job takes another course. */
void sim_sets_forget(sim_history *h, uint32_t fragment, uint64_t step);
/* Returns whether all ranks counted in the step when it was taken before, and others count in it now. */
bool sim_sets_was_whole(const sim_history *h, uint32_t param, const pd_closed *closed);
/* Forgets the set of one step. Later sets stay as they were. */
void sim_sets_forget_one(sim_history *h, uint32_t param, uint64_t step);
/* Returns the step of the rank's push that counted in a step of a parameter: the step itself, if the job's sets are
 * not open. 0: none counted. */
uint64_t sim_sets_push(const sim_history *h, uint32_t param, uint64_t step, uint32_t rank);

#endif
