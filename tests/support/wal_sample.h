/* wal_sample.h - entries of a log for tests, and a job that writes them, is stopped, and comes back.
 *
 * A job closes the steps 1, 2, 3 ... and has checkpoints, of which only the step matters here. What an entry says
 * depends on its step and on the life of the job: one that has come back takes a step another way than before. So a
 * test sees whether an entry is read that belongs to a past which this job does not have. */
#ifndef LOG_SAMPLE_H
#define LOG_SAMPLE_H

#include "wal_files.h"
#include "mem_disk.h"

#define LOG_ROOT "/state"
#define LOG_JOB "runs/gpt #1"
#define LOG_CREATOR 0x0123456789abcdefu
#define LOG_JOB_DIR LOG_ROOT "/runs%2Fgpt%20%231-0123456789abcdef"

/* Returns the entry of a step in a life of the job. NULL: out of memory. */
pd_wal_record *sample_logged(uint64_t step, uint64_t base, unsigned life);
/* Returns an entry with one aggregate of so many elements. NULL: out of memory. */
pd_wal_record *sample_large_entry(uint64_t step, uint64_t base, size_t elements);
/* Fails the test unless an entry that was read is what sample_logged returns. */
void assert_logged(const pd_wal_record *record, uint64_t step, unsigned life);

enum { LOG_MOST_STEPS = 400, LOG_SEGMENT_BYTES = 32 << 10 };

typedef struct log_course {
    mem_disk *memory;
    pd_disk disk;
    pd_wal_writer *logs;
    bool control; /* it is the stream of decisions: its records have numbers, for which the words below say steps */
    unsigned life;
    uint64_t step, base;              /* the last closed step; the step of the newest durable checkpoint */
    uint64_t durable;                 /* the last step that was reported as durable */
    uint64_t refused;                 /* entries that came back with an error */
    unsigned life_of[LOG_MOST_STEPS]; /* the life in which a step was closed */
    pd_error error;                   /* the error of the last entry that came back with an error */
} log_course;

/* Begins with an empty disk, and a job at step 0 whose checkpoint of step 0 is durable. */
void course_new(log_course *c);
void course_free(log_course *c);
/* Closes n steps, whose entries are written as one group. */
void course_steps(log_course *c, unsigned n);
/* Makes a checkpoint of a step durable: entries up to it are not needed any more. */
void course_checkpoint(log_course *c, uint64_t step);
/* Stops the job, without a word to anybody. */
void course_stop(log_course *c);
/* Brings it back from its newest checkpoint and the log, as a daemon does, and begins the next life. Every entry that
 * is read must belong to this job's past, and all steps that were reported as durable must be back. Returns the result
 * of reading and cutting. */
int course_recover(log_course *c, pd_wal_about *about, pd_error *err);
/* Does it, and fails the test if that fails or damage is reported. */
void course_return(log_course *c);

#endif
