/* withheld.h - keeps reports of closed steps back until the disk has what decided the steps.
 *
 * Step thread. In a job with checkpoints whose sets of ranks are open, a restart of the server could fix another set
 * for a step than workers have seen. So the report that a step has closed (PD_EFF_CLOSED), which brings answers and
 * weights, is withheld:
 *
 *   - with durability = log, until the record of the step is on the disk;
 *   - otherwise, if the set of the step is a decision (wal.h), until the record with this decision is on the disk, or a
 *     checkpoint of the step; and until the disk has all changes of leases (leases.h) that were made before.
 *
 * The answer to a Declare (PD_EFF_DECLARED) tells what is leased to the rank. It is withheld until the disk has what
 * its leases follow from: the set of the last step of fragment 0, and all changes of leases. If parameters still take
 * that step, the answer waits for them in any case: it names the step, so that the worker's next push is for the one
 * after it.
 *
 * The step thread does not wait. Later steps go on, but at most PD_WAL_MOST steps are withheld: then parameters stop
 * until the disk answers. Reports leave in the order in which they were made, as do effects that tell of the job as it
 * was after them (PD_EFF_DURABLE, PD_EFF_MEMBERS, PD_EFF_DECLARED). An effect PD_EFF_FILED need not wait, since it only
 * names the step whose report answers a push.
 *
 * Nothing is withheld before the first checkpoint, because a restart would not find the job at all; and after an error
 * of the disk with on_disk_error = go_on, until a checkpoint is durable. With on_disk_error = pause, reports are
 * withheld until then.
 *
 * If the job has several fragments, their steps are counted together, in the order in which their sets were fixed: a
 * step is known by its place in this order (pd_steps.place). With one fragment that is its number.
 *
 * What leaves after such an error names a passing course of the job (job/job_course.h), which no image has. If the
 * server is restarted before the disk has these steps, it cannot repeat them, and workers that have seen them name a
 * course that it does not know: they go back to its step. */
#ifndef PD_WITHHELD_H
#define PD_WITHHELD_H

#include "effects.h"

typedef struct pd_withheld {
    bool on;          /* reports are withheld */
    bool logged;      /* all reports wait for records of steps; false: those of decided sets wait for decisions */
    bool failed;      /* the disk has failed, and nothing is withheld before the next durable checkpoint */
    uint64_t durable; /* steps up to this place are on the disk */
    /* All steps below are places. Lowest step with a decided set whose decision waits for the next record (`made`),
     * is in the record under way (`handed`), or is in no record, so that only a checkpoint can make it durable
     * (`lost`). 0: there is none. */
    uint64_t made, handed, lost;
    uint64_t last, lost_last; /* last step with a decided set; last one whose decision is in no record, if lost > 0 */
    /* first step of a course that no durable checkpoint knows (job/repeats.h): a checkpoint comes before its reports;
     * 0: there is none */
    uint64_t anew;
    uint64_t passing; /* the passing course, while the disk lacks steps that workers have seen; 0: it lacks none */
    uint64_t unsaved; /* if `passing` > 0: the last step that workers have seen although the disk had failed */
    /* Numbers of changes of leases since the server started: how many were made; how many of them the record under way,
     * the last copy of the job's state, and the disk have. */
    struct {
        uint64_t made, handed, copied, durable;
    } leases;
    uint64_t open;      /* step of fragment 0 whose set is fixed and that is not closed; 0: there is none */
    pd_effects effects; /* the effects that are withheld, oldest first; the first one is a report, or DECLARED */
} pd_withheld;

/* Adds an effect to the outbox, or withholds it. The effect is a report (PD_EFF_CLOSED), or tells of the job as it is
 * after the reports before it (PD_EFF_DECLARED: after the set at place u.declared.place). Takes ownership of the
 * effect. */
void pd_withheld_send(pd_withheld *withheld, pd_effects *outbox, pd_effect *effect);
/* Moves the effects that need not wait any more to the outbox. The caller lets stopped parameters continue
 * (pd_riders_release). */
void pd_withheld_release(pd_withheld *withheld, pd_effects *outbox);
/* Drops all effects that are withheld, because the job ends. */
void pd_withheld_drop(pd_withheld *withheld);
/* Returns the answer to the Declare on connection `conn` that is withheld; NULL: none is. */
pd_effect *pd_withheld_declared(const pd_withheld *withheld, uint64_t conn);
/* Returns the lowest place of a step whose report is withheld; 0: none is. */
uint64_t pd_withheld_first(const pd_withheld *withheld);
/* Returns whether so many steps are withheld that after the step at `place` no further one begins. */
bool pd_withheld_stops(const pd_withheld *withheld, uint64_t place);

/* Note what becomes of decided sets: that of the step at `place` waits for the next record, or is in no record
 * (`made` false); a record was handed over with all that wait for one; the record has returned (`good`: it is on the
 * disk); the decisions that wait for a record are dropped. The caller then calls pd_withheld_release. */
void pd_withheld_fixed(pd_withheld *withheld, uint64_t place, bool made);
void pd_withheld_handed(pd_withheld *withheld);
void pd_withheld_returned(pd_withheld *withheld, bool good);
void pd_withheld_dropped(pd_withheld *withheld);
/* Note that leases were changed, that a copy of the job's state was made, which has all changes so far, and that the
 * disk does not get this copy. */
void pd_withheld_leased(pd_withheld *withheld);
void pd_withheld_copied(pd_withheld *withheld);
void pd_withheld_copy_lost(pd_withheld *withheld);
/* Returns whether effects are withheld for changes of leases that neither a record under way nor a copy has. */
bool pd_withheld_lacks_leases(const pd_withheld *withheld);
/* Returns whether effects are withheld until a record of decisions returns that is under way. */
bool pd_withheld_waits_for_record(const pd_withheld *withheld);
/* Notes that the job takes another course from the step at `place` on; 0: a checkpoint has it. */
void pd_withheld_course(pd_withheld *withheld, uint64_t place);
/* Notes that steps up to `place` are on the disk; `whole`: a checkpoint made them so. Returns whether the passing
 * course has ended with that: the caller then tells the loop thread of the job's own course. */
bool pd_withheld_durable(pd_withheld *withheld, uint64_t place, bool whole);
/* Begins to withhold reports, unless the disk has failed and no checkpoint is durable since. */
void pd_withheld_begin(pd_withheld *withheld);
/* Lets all reports go, because the disk has failed and the job goes on. They name course `passing`, as does all that
 * follows until the disk has the steps that were reported in this way. */
void pd_withheld_give_up(pd_withheld *withheld, pd_effects *outbox, uint64_t passing);

#endif
