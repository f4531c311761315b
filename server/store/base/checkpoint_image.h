/* checkpoint_image.h - a checkpoint of a job in memory: on its way from the step thread to the disk, or back from the
 * disk.
 *
 * The step thread makes a pd_checkpoint_image at a consistent cut and hands it to the checkpoint writer in an effect
 * PD_EFF_WRITE_CHECKPOINT. From then on the checkpoint writer owns and reads it. The checkpoint writer hands it back,
 * with the result, in a request PD_REQ_CHECKPOINT_WRITTEN. Weights are not copied: the checkpoint refers to published
 * versions, which nobody changes, and the step thread drops these references when the checkpoint has returned. All
 * other state is a copy.
 *
 * The same struct describes a checkpoint that was read from the disk. It refers to no published versions: it owns the
 * memory of its weights. When a daemon restores its jobs, weights and states may still be on the disk; then the
 * functions read_weights and read_state read them. */
#ifndef PD_CHECKPOINT_IMAGE_H
#define PD_CHECKPOINT_IMAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "paramd/error.h"
#include "paramd/tensor.h"

#define PD_WORKER_STATE_MAX (1u << 20) /* most bytes of a worker state */

struct pd_published;

/* A parameter in a checkpoint. */
typedef struct pd_checkpoint_param {
    char *name;
    pd_shape shape;
    int64_t elements;
    uint64_t step; /* last step that the parameter had closed */
    /* `elements` numbers, aligned to 64 bytes; NULL: pd_checkpoint_image.read_weights reads them */
    const float *weights;
    /* the published version that has the weights; NULL: they lie in pd_checkpoint_image.memory */
    struct pd_published *published;
    uint8_t *state; /* everything else that belongs to the parameter, as an image (image.h) */
    size_t state_bytes;
} pd_checkpoint_param;

/* A worker state. Only its worker knows what the bytes mean. */
typedef struct pd_worker_state {
    uint32_t rank;
    uint64_t step; /* step after which the worker can continue from it */
    uint8_t *at;
    size_t bytes;
} pd_worker_state;

#define PD_KEPT_MOST 16 /* most steps in a pd_kept_steps */
/* A mirror that lacks so many checkpoints of a job does not count for the common step. */
#define PD_MIRROR_LACKS 8

/* Steps of a job's checkpoints, the newest first. */
typedef struct pd_kept_steps {
    uint32_t n;
    uint64_t at[PD_KEPT_MOST];
} pd_kept_steps;

/* Returns whether the list has a step. */
bool pd_kept_steps_has(const pd_kept_steps *kept, uint64_t step);
/* Appends a step that is earlier than those of the list, unless the list is full or has the step. */
void pd_kept_steps_add(pd_kept_steps *kept, uint64_t step);

/* A checkpoint of a job, or the notice that a job has ended (`ended`). */
typedef struct pd_checkpoint_image {
    char *job;        /* name of the job */
    uint32_t number;  /* number of the job in this daemon; 0 in a checkpoint that was read from the disk */
    uint64_t creator; /* tells the job from other jobs of the same name: pd_job_saved.creator */
    uint64_t step;    /* step of the checkpoint: lowest step over all parameters */
    uint64_t place;   /* number of its last step in the WAL (pd_steps.place); with one fragment: `step` */
    uint64_t keep;    /* number of checkpoints of the job that stay on the disk, this one included */
    /* Further checkpoints stay on the disk, because the shards of a cluster must be able to go back to one step: the
     * newest one up to step `common`, and later ones, at most PD_KEPT_MOST with those of `keep`. `common` counts only
     * with has_common. */
    bool has_common;
    uint64_t common;
    bool ended;    /* this is no checkpoint: it says that the job has ended, so a restart must not restore it */
    uint8_t *head; /* everything that belongs to no parameter, as an image (image.h) */
    size_t head_bytes;
    pd_checkpoint_param *params;
    uint32_t n_params;
    pd_worker_state *worker_states; /* at most one for each rank, in the order of the ranks */
    uint32_t n_worker_states;
    void *memory; /* a checkpoint from the disk: one allocation with the weights of all parameters; else NULL */
    /* Reads the state of parameter i from the disk into params[i].state, where it stays until the next call. So a
     * restored job and its checkpoint do not both take memory for all states. Call it for i = 0, 1, 2, ...; with i =
     * n_params it checks that the file was intact. NULL: the states are in memory. */
    int (*read_state)(void *arg, uint32_t i, pd_error *err);
    /* Reads the weights of each parameter i from the disk to to[i], where the job keeps them, and checks that the file
     * was intact. NULL: the weights are in memory. */
    int (*read_weights)(void *arg, float *const *to, pd_error *err);
    /* Of a checkpoint that is to be written, whose states and weights are made one after the other. read_state does as
     * above, for i = 0, 1, 2, ..., n_params - 1. lend_weights lets params[i].weights point to the weights of parameter
     * i until its next call. NULL: they are in memory. */
    int (*lend_weights)(void *arg, uint32_t i, pd_error *err);
    void *read_arg; /* passed to read_state, read_weights and lend_weights; borrowed */
    /* a checkpoint from the disk was made with other BLAS kernels or CPU instructions than this daemon's, so later
     * steps may differ in their last bits. A job with exact = yes is not restored from it. */
    bool foreign;

    /* steps of checkpoints of the job that stay on the disk, the newest first: this one, and those before it. The
     * checkpoint writer fills the list in, or who reads the checkpoint from the disk. */
    pd_kept_steps kept;
    /* A checkpoint from the disk: place from which on records of steps lead to `place` without a gap (`place`: none
     * do). Or if the stream of steps has ended before `place`, and not begun anew: `ended_record` is the place of its
     * last record, and records lead to this place from oldest_record on. ended_record 0: it has not. */
    uint64_t oldest_record, ended_record;

    /* the result, which the checkpoint writer fills in */
    pd_error error; /* PD_OK: the checkpoint is durable */
    uint64_t bytes; /* bytes that were written */
    uint64_t ns;    /* time that writing took */
} pd_checkpoint_image;

/* An order to the checkpoint writer: go back to an earlier step, and read its checkpoint. If the WAL has the step, the
 * checkpoint is the newest one before the step, and the order comes again, to read records up to the step. */
typedef struct pd_go_back_order {
    char *job;        /* name of the job */
    uint32_t number;  /* number of the job in this daemon */
    uint64_t creator; /* pd_job_saved.creator */
    uint64_t step;    /* step to go back to */
    bool replays;     /* the WAL has the step, and no checkpoint has it */
    bool exact;       /* refuse a checkpoint that other BLAS kernels or CPU instructions have made */
    /* true: later checkpoints are removed; false: they are set aside, for people */
    bool removes;
    bool reads; /* the job has gone back: read records after the one at place `read` */
    uint64_t read;

    /* the result, which the checkpoint writer fills in */
    pd_error error;                /* PD_OK: a restart of the daemon restores the job from this checkpoint now */
    pd_checkpoint_image *image;    /* the checkpoint, with all weights and states in memory; NULL after an error */
    struct pd_wal_record *records; /* `reads`: a list of records, which ends with that of `step` if all were read */
} pd_go_back_order;

/* Frees an order, and the image if there is one. Accepts NULL. */
void pd_go_back_order_free(pd_go_back_order *order);

/* Frees a checkpoint. The caller must have dropped the references to published versions before. Accepts NULL. */
void pd_checkpoint_image_free(pd_checkpoint_image *image);
/* Returns the bytes of memory that the copies in a checkpoint take; published versions are not counted. */
uint64_t pd_checkpoint_image_bytes(const pd_checkpoint_image *image);

#endif
