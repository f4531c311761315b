/* checkpoint_policy_record.h - what a job knows of its checkpoints: whether it has any, when the next one is due, and
 * how the last one ended. Step thread. */
#ifndef PD_CHECKPOINT_POLICY_RECORD_H
#define PD_CHECKPOINT_POLICY_RECORD_H

#include "request_queue.h"

/* The last checkpoint of a job, made when the server drains. */
typedef enum pd_last_checkpoint { PD_LAST_UNWANTED, PD_LAST_WANTED, PD_LAST_DONE } pd_last_checkpoint;

/* Since when the disk has something of the job: disk_watch.h. */
typedef struct pd_disk_watch {
    bool runs, late;            /* the disk has something; it was logged that it does not answer */
    uint64_t results;           /* number of results that had come back from it before */
    uint64_t since_ns, next_ns; /* since when; when it is logged that the disk does not answer */
} pd_disk_watch;

/* The log of a job with durability = log, apart from what its steps read (step/step_log.h). */
typedef struct pd_log_keeping {
    bool wanted;       /* durability = log */
    bool slow;         /* the log has told that the job waits for the disk */
    const char *moved; /* why the state has changed otherwise than by a step, so that entries must stop; NULL: it has
                        * not */
    bool waits;        /* entries wait until the checkpoint that they follow (step_log.h: base) is durable */
    struct pd_effect *first, *last; /* the entries that wait, oldest first, linked by mail.next */
    /* after a checkpoint that failed, no checkpoint is begun for the log before this step; the distance that was last
     * waited */
    uint64_t retry, distance;
    uint64_t broken; /* number of times that the entries had to stop */
    /* for operators, since the server started: times that entries took to become durable, and their bytes; number of
     * steps that were repeated from the log at the start */
    pd_histogram times;
    uint64_t bytes, repeated;
    uint64_t results; /* number of entries that have come back from the WAL thread */
    pd_disk_watch watch;
    bool left; /* the disk does not answer, and the job has gone on without waiting for the entries that it has */
} pd_log_keeping;

/* The control log of a job with checkpoints, apart from the records that wait for an entry (step/control.h). */
typedef struct pd_control_keeping {
    bool on;           /* entries are handed over */
    bool fresh;        /* the next entry begins a chain: nothing that the log has counts any more */
    bool headed;       /* entries are not handed over, but records are made: since the head of the present checkpoint */
    const char *moved; /* why the state has changed otherwise than by steps, so that records end; NULL: it has not */
    uint64_t number, base; /* of the last entry that was handed over */
    uint64_t mark;         /* number up to which entries are not needed once the present checkpoint is durable */
    /* Step of the last state of the job that was copied, for a checkpoint or an entry of the job's log. Values that
     * were set before are in it. */
    uint64_t copied;
    uint64_t since; /* entries up to this number do not matter any more, even if they fail */
    /* step at which records began; number of steps that were waited after the last error before a checkpoint */
    uint64_t begun_step, distance;
    uint32_t under_way;    /* number of entries that are on their way to the disk */
    uint64_t renewed;      /* bytes that the account counts of these, since they have records that were read back */
    pd_request_queue sets; /* commands that wait until the disk has their values */
    uint64_t read;         /* number of records that were read at the start */
} pd_control_keeping;

typedef struct pd_checkpoint_policy {
    bool durable;   /* the job has checkpoints */
    bool on_disk;   /* the disk may have a checkpoint of the job, or something that remains of one */
    bool kept;      /* a checkpoint of the job is durable: that of `kept_step` */
    bool begun;     /* a checkpoint of the job was begun, whether or not it became durable */
    bool says_over; /* a checkpoint was begun, or read at the start, that says that the job is over */
    /* number of steps between two checkpoints, which are made at its multiples; 0: only if somebody asks */
    uint64_t every;
    /* step at which the next checkpoint begins, when the first parameter has closed it; UINT64_MAX: at no step */
    uint64_t next;
    struct pd_checkpoint *making; /* the checkpoint that is being made; NULL: none */
    uint64_t cut_step;            /* step of the checkpoint that is being made */
    bool writing;                 /* the checkpoint writer has a checkpoint of this job */
    uint64_t results;             /* number of checkpoints that have come back from the checkpoint writer */
    pd_disk_watch watch;
    bool paused; /* the job begins no step until a checkpoint is on the disk: pause.h */
    /* of a job that tries a checkpoint again by time (checkpoint_retry.h): time of the next attempt, and the time from
     * there to the one after it; retry_wait_ns 0: none has failed since the last one that is durable */
    uint64_t retry_ns, retry_wait_ns;
    /* steps up to this one are on disk, by a checkpoint or by the log; time at which the newest checkpoint became
     * durable; its bytes on the disk; its step */
    uint64_t durable_step, durable_ns, bytes, kept_step;
    /* Bytes of a checkpoint and of an entry of the log, computed when the job was planned; 0: the disk's speed is not
     * known, or the job has no log. */
    uint64_t size, entry_size;
    /* Number of times that the state has changed otherwise than by a step (an import, weights that were replaced); and
     * that number at the cut of the present checkpoint, and of the newest one that is durable */
    uint64_t changes, cut_changes, kept_changes;
    bool outrun;                  /* it was logged that the job outruns the disk */
    uint64_t written, written_ns; /* number of checkpoints that were written; time that writing the newest one took */
    uint64_t soon;                /* step at which a checkpoint is due, besides those at multiples; UINT64_MAX: none */
    pd_log_keeping log;
    pd_control_keeping control;
    /* For each parameter, memory for the copy of its state, which comes back with a checkpoint and serves the next one:
     * fresh memory would cost as much time as the copy. NULL: there is none. Its size follows from the optimizer's
     * plan. */
    uint8_t **spares;
    uint32_t n_spares;
    uint64_t counted; /* bytes that the job counts for the notes of the checkpoint that the checkpoint writer has */
    /* number of checkpoints that were not begun because something else was under way; that could not be made or
     * written */
    uint64_t skipped, failed;
    uint64_t unwritten;       /* number of checkpoints that could not be written, since the last one that was */
    char error[256];          /* why the last attempt failed; empty: it did not */
    pd_request_queue asked;   /* requests for a checkpoint that are not answered yet; wait_ns is their deadline */
    pd_request_queue exports; /* begins of exports that wait for another one, or for the cut of a checkpoint */
    uint64_t exported;        /* number of the identity that has exported the job last; 0: nobody */
    pd_last_checkpoint last;
    bool last_begun;     /* the last checkpoint is being made or written */
    pd_effect *farewell; /* tells the checkpoint writer that the job has ended; allocated with the job */
} pd_checkpoint_policy;

#endif
