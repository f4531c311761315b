/* conversation_seeds.h - the seed inputs of fuzz_conversation: conversations, written as sequences of its choices.
 * fuzz_conversation.c includes this file after the definitions that the seeds use. */
/* In a seed, each line stands for one frame or a few frames. */
/* clang-format off */
#define WORKER(job, rank, world) (uint8_t)((job) | (rank) << 2 | ((world) - 1) << 4)
#define PLAIN 0x30                      /* Hello: no job options, one rule for all parameters */
#define EVALUATE 0x40                   /* Pull: the weights to evaluate with */
#define F32_  0                         /* piece of a gradient or of weights: float32, not damaged */

/* Two ranks train two parameters, one of which has two chunks. They call every method that workers have. */
static const uint8_t training[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 1 | 4, 0 | 1 << 3, 10, 10,  PD_DECLARE, 0, 1, 1 | 1 << 3, 1, 7,
    PD_DECLARE, 1, 2, 0 | 1 << 3, 10, 10, 1 | 3 << 3, 1, 7,
    PD_PULL, 1, 0, 1, 1, F32_,  PD_PULL, 1, 1 | EVALUATE, 1, 1, F32_,
    PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH, 1, 1, 2, 3, 0, F32_, 0 | 1 << 3, F32_, 1,
    F32_,
    PD_PUSH_PULL | 0x80, 1, 2, 1, 1, 1, 1, PD_PUSH, 0, 2 | 128, 3, 1, 1, 2,
    PD_PUSH_PULL, 0, 1, 1, 1, 1, F32_,
    PD_BARRIER, 0, 1,  PD_BARRIER, 1, 1,  PD_HEARTBEAT, 0,  PD_LEAVE, 0,  PD_LEAVE, 1,
};
#define SHAMPOO (0x30 | 3)              /* Hello: no job options, a shampoo rule that communicates in bfloat16 */
/* A worker pulls updates instead of weights. It names different versions of the weights that it
 * has, and also asks for updates that the server does not have. */
static const uint8_t updating[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), SHAMPOO, 1,  PD_DECLARE, 0, 1, 0 | 1 << 3 | 3 << 6, 10, 10,  PD_INIT, 0, 0, 2, 0,
    F32_, 1 << 3, F32_,
    PD_PUSH_PULL, 0, 1, 1, 2, 1 << 6, F32_, 1 << 3 | 1 << 6, F32_,  PD_PUSH_PULL, 0, 2, 1, 2, 2 << 6, F32_, 1 << 3 | 1
    << 6, F32_,  PD_PULL, 0, 2, 1, 2 << 6, F32_,
    PD_PUSH_PULL, 0, 3, 255, 2, 3 << 6, F32_, 1 << 3 | 3 << 6, F32_,  PD_HELLO, 1, WORKER(2, 0, 1), PLAIN, 2,
    PD_DECLARE, 1, 1, 0 | 1 << 3 | 3 << 6, 3, 3,
};
#define WHOLE 0xc0                      /* Hello: all parameters of the job step together */
#define LAST  4                         /* Push: close_step, which ends the rank's step */
/* Two ranks of a job whose parameters step together leave gradients out. One gradient has a NaN. Both ranks send
 * close_step, more than once. */
static const uint8_t closing[] = {
    PD_HELLO, 0, WORKER(1, 0, 2) | WHOLE, PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2) | WHOLE, PLAIN, 2,
    PD_DECLARE, 0, 2, 0, 1, 3, 1, 1, 7,  PD_DECLARE, 1, 2, 0, 1, 3, 1, 1, 7,  PD_INIT, 0, 0, 2, 0, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, 1, 1, 0, F32_,  PD_PUSH, 0, 1 | LAST, 0, 0,  PD_PUSH | 0x80, 0, 1 | LAST, 0, 0,  PD_PUSH_PULL,
    1, 1 | LAST, 1, 1, 1, F32_,
    PD_PUSH, 0, 1 | LAST, 0, 0,  PD_PUSH, 0, 2 | LAST, 255, 1, 1, F32_,  PD_PUSH, 1, 3 | LAST, 0, 0,  PD_PUSH, 1, 2 |
    LAST, 0, 0,
    PD_PUSH, 0, 3 | LAST, 0, 0,  CLOSE, 0,  TIME, 1, 200,  PD_PUSH, 1, 3 | LAST, 0, 0,
};
#define SCALARS(n, from, value) (uint8_t)((n) << 5 | (from) << 3 | (value))    /* Push: n scalars */
/* Two ranks send scalars with their pushes: in several frames of a parameter, twice, with another value, with
 * invalid values, and without a gradient. Then another process takes the place of rank 0. */
static const uint8_t reporting[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_DECLARE, 1, 2, 0, 10, 10, 1, 1, 7,  PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3,
    F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, SCALARS(2, 0, 1), 1, 0, F32_,  PD_PUSH_PULL, 0, 1 | 8, SCALARS(1, 2, 3), 2, 0 | 1 << 3, F32_, 1,
    F32_,
    PD_PUSH_PULL, 0, 1, SCALARS(2, 0, 1), 1, 0, F32_,  PD_PUSH, 0, 1, SCALARS(1, 0, 2), 1, 0, F32_,  PD_PUSH, 1, 1,
    SCALARS(5, 0, 2), 1, 0, F32_,
    PD_PUSH, 1, 1 | 32, SCALARS(3, 1, 2), 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH | 0x80, 1, 1, SCALARS(1, 0, 7), 1, 1,
    F32_,
    PD_PULL, 1, 1, 2, 0, F32_, 1, F32_,  PD_PUSH_PULL, 0, 1, SCALARS(2, 0, 1), 1, 0, F32_,  PD_PUSH, 0, 2 | LAST,
    SCALARS(1, 0, 1), 0,
    PD_PUSH, 0, 2 | LAST, SCALARS(1, 0, 1), 1, 1, 1,  CLOSE, 0,  PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 3,  PD_DECLARE, 0,
    2, 0, 10, 10, 1, 1, 7,
    PD_PUSH, 0, 2, SCALARS(2, 0, 6), 1, 1, 1,  PD_PUSH, 1, 2 | LAST, SCALARS(1, 0, 2), 1, 1, F32_,  PD_PUSH, 1, 3,
    SCALARS(7, 1, 0), 1, 1, F32_,
};
/* Init: replaces weights */
#define CHANGED(number, step, whole) (uint8_t)(0x80 | (whole) << 4 | (step) << 2 | (number))
/* Rank 0 replaces weights between two steps, in one frame and in several. Pushes tell of the change, of none, and of
 * one that was not sent; another process takes rank 0 over in the midst of a change. */
static const uint8_t replacing[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_DECLARE, 1, 2, 0, 10, 10, 1, 1, 7,  PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3,
    F32_, 1, F32_,
    PD_INIT, 0, CHANGED(1, 0, 2), 2, 0, F32_, 1, F32_,  PD_INIT, 0, CHANGED(1, 0, 2), 1, 0 | 1 << 3, F32_,
    PD_INIT, 1, CHANGED(1, 0, 1), 1, 1, F32_,  PD_INIT, 0, CHANGED(1, 1, 1), 1, 1, F32_,
    PD_PUSH, 1, 1, 0, 1, 0, F32_,  PD_PUSH, 1, 1, 4, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_INIT, 0, CHANGED(2, 0, 1), 1, 1, F32_,  PD_PUSH_PULL, 0, 1, 4, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_INIT, 0, CHANGED(1, 0, 2), 2, 0, F32_, 1, F32_,  PD_INIT, 0, CHANGED(1, 0, 2), 1, 0 | 1 << 3, F32_,
    PD_PUSH_PULL, 0, 1, 4, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_INIT, 0, CHANGED(3, 1, 2), 1, 0, F32_,  CLOSE, 0,  PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 3,
    PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_INIT, 0, CHANGED(3, 1, 2), 2, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH, 0, 2, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH, 1, 2, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PULL, 1, 2, 1, 1, F32_,
};
/* An operator lists the state of a worker's job and drops the job. */
static const uint8_t operating[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,  PD_DECLARE, 0, 1, 0, 3, 3,  PD_INIT, 0, 0, 1, 0, F32_,  PD_PULL, 0, 5, 1,
    0, F32_,
    PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,  PD_STATUS, 1,  PD_LIST, 1, 1,  PD_LIST, 1, 2 | 1 << 3,  PD_LIST, 1, 3 | 1
    << 3,  PD_LIST, 1, 2 | 3 << 3,
    PD_OPTIMIZERS, 1, 0,  PD_OPTIMIZERS, 1, 1 << 3,  PD_KICK, 1, 1 << 3 | 1,  PD_DROP, 1, 1 << 3,
    PD_PUSH, 0, 1, 0, 1, 0, F32_,  PD_DRAIN, 1, 5,
    TIME, 0, 9,  PD_SHUTDOWN, 1,  TURN, 0,
};
/* An operator changes hyperparameters between a worker's steps, some at once and some for later steps, and withdraws
 * the changes. */
static const uint8_t setting[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,  PD_DECLARE, 0, 2, 0, 3, 3, 1, 1, 7,  PD_INIT, 0, 0, 2, 0, F32_, 1, F32_,
    PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,
    PD_SET, 1, 1 | 2 << 4, 0, 1 | 0 << 3,  PD_PUSH, 0, 1, 0, 2, 0, F32_, 1, F32_,  PD_SET, 1, 1 | 1 << 4, 0 | 2 << 3,
    PD_LIST, 1, 5 | 1 << 3,
    PD_SET, 1, 1 | 1 << 4 | 3 << 6, 6 | 3 << 3,  PD_PUSH, 0, 2 | 128, 0, 2, 0, F32_, 1, F32_,  PD_SET, 1, 1 | 1 << 2 | 1
    << 4, 0 | 1 << 3,
    PD_PUSH, 0, 3, 0, 2, 0, F32_, 1, F32_,  PD_SET, 1, 1 | 1 << 4, 0 | 4 << 3,  PD_LIST, 1, 5 | 1 << 3,  PD_DROP, 1, 1
    << 3,
};
#define ACT(act) (uint8_t)(1 | (act) << 2)     /* act of Import and Export: 1 begin, 2 piece, 3 counter, 4 end */
#define ONLY 0x40                       /* Import, at the commit: parts of the state may be missing */
/* An operator imports state into a worker's job: before the job exists, with a missing part, under a wrong name, and
 * then correctly. Training goes on. */
static const uint8_t importing[] = {
    PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,  PD_HELLO, 0, WORKER(1, 0, 1), PLAIN,
    1,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,
    PD_DECLARE, 0, 1, 0, 3, 5,  PD_INIT, 0, 0, 1, 0, F32_,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(2),
    0, 3, 5, 0, 7,
    PD_IMPORT, 1, ACT(2), 3, 3, 5, 0, 7,  PD_IMPORT, 1, ACT(4), 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(2), 0, 3, 5, 8, 7,
    PD_IMPORT, 1, ACT(2), 0, 3, 5, 7, 8,
    PD_IMPORT, 1, ACT(3), 0, 0, 0, 9, 0,  PD_LIST, 1, 6 | 1 << 3,  PD_IMPORT | 0x80, 1, ACT(4), 0, 0, 0, 0, 0,  PD_PUSH,
    0, 1, 0, 1, 0, F32_,
    PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(4) | ONLY, 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0,
    0,
    PD_IMPORT, 1, ACT(2), 0, 3, 5, 0, 4,  TIME, 0, 70,  PD_IMPORT, 1, ACT(4), 0, 0, 0, 0, 0,
};
#define WITH_STATE 0x20                 /* Export: a begin */
#define SLOT 4                          /* Export: a slot of the optimizer state instead of the weights */
/* An operator exports a worker's job: before the job exists, and with state while a step waits, to the end. A second
 * operator begins an export and disconnects. The first one begins another and falls silent. */
static const uint8_t exporting[] = {
    PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,  PD_HELLO, 2, WORKER(0, 0, 1), PLAIN, 0,  PD_EXPORT, 1, ACT(1), 0, 0, 0,
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,  PD_DECLARE, 0, 1, 0, 3, 5,  PD_EXPORT, 1, ACT(1), 0, 0, 0,
    PD_INIT, 0, 0, 1,
    0, F32_,
    PD_EXPORT, 1, ACT(1) | WITH_STATE, 0, 0, 0,  PD_PUSH, 0, 1, 0, 1, 0, F32_,  PD_EXPORT, 2, ACT(1), 0, 0, 0,
    PD_EXPORT, 1, ACT(2), 0, 3, 8,  PD_EXPORT, 1, ACT(2), SLOT, 0, 15,  PD_EXPORT, 1, ACT(2), 3, 0, 1,
    PD_EXPORT, 1, ACT(2), 0x80, 0, 0,  PD_EXPORT, 1, ACT(3), 0, 0, 0,  PD_EXPORT | 0x80, 1, ACT(2), 0, 0, 1,
    PD_EXPORT, 1,
    ACT(4), 0, 0, 0,
    PD_EXPORT, 2, ACT(1), 0, 0, 0,  PD_PUSH, 0, 1, 0, 1, 0, F32_,  PD_EXPORT, 2, ACT(2), 0, 0, 15,  CLOSE, 2,
    PD_EXPORT, 1, ACT(1) | WITH_STATE, 0, 0, 0,  PD_PUSH, 0, 1, 0, 1, 0, F32_,  TIME, 0, 40,
    PD_EXPORT, 1, ACT(2), 0, 0, 1,
};
/* A worker is lost, another process takes its rank, and requests of the lost worker are refused. Rounds time out.
 * Frames are damaged. */
static const uint8_t troubles[] = {
    PD_HELLO, 0, WORKER(2, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(2, 1, 2), PLAIN, 2,  PD_DECLARE, 0, 1, 0, 3, 3,
    PD_DECLARE, 1, 1, 0, 3, 3,
    PD_INIT, 0, 0, 1, 0, F32_,  PD_PUSH_PULL, 0, 1, 0, 1, 0, F32_,  TIME, 0, 200,  CLOSE, 1,  PD_HELLO, 1, WORKER(2, 1,
    2), PLAIN, 3,
    PD_HELLO, 2, WORKER(2, 0, 2), PLAIN, 4,  SPOIL, 0, 50, 7,  PD_DECLARE, 1, 1, 0, 3, 3,  PD_PUSH, 1, 1, 0, 1, 0, 0x10,
    PD_PUSH, 1, 1, 0, 1, 0, 0x20,
    PD_PUSH, 1, 1, 255, 2, 0, F32_, 7, F32_,  CUT, 1, 60,  PD_PUSH, 1, 1, 0, 1, 0, F32_,  RAW, 2, 4, 'P', 'D', 'F', '1',
    CLOSE, 0, TIME, 0, 255, TIME, 0, 255,
};

/* Declare: the rank has a range of the parameter's elements. Its start and its end follow, in units of 1/128 of the
 * parameter. With TO_END only the start follows, and the range goes to the end of the parameter. */
#define RANGED 0x20
#define TO_END 0x40

/* Two ranks train in shards. One parameter is cut within a chunk. Of the other parameter the second rank has no
 * elements. */
static const uint8_t shards[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 2, 0 | RANGED, 10, 16, 0, 64,  1 | RANGED | TO_END, 1, 7, 0,  PD_DECLARE, 1, 2, 0 | RANGED | TO_END,
    10, 16, 60,  1 | RANGED, 1, 7, 64, 64,
    PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 64,  1 | RANGED, 1, 7, 64, 64,  PD_DECLARE, 1, 2, 0, 10, 16,  1 |
    RANGED, 1, 7, 64, 64,
    PD_PULL, 1, 0, 2, 0, F32_, 1, F32_,
    PD_INIT, 1, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH_PULL, 1, 1, 2, 3, 0, F32_, 0 | 1 << 3, F32_,
    1, F32_,
    PD_PUSH_PULL | 0x80, 1, 2, 1, 2, 0, 1, 1, 1,  PD_PUSH, 0, 2, 3, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH, 0,
    3, 3, 1, 0, 0x30,
    CLOSE, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,  PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 64,  1 | RANGED,
    1, 7, 64, 64,
    PD_PUSH_PULL, 1, 2, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, 1,  PD_LEAVE, 0,  PD_LEAVE, 1,
};

#define AXES(n) ((n) << 3)              /* Declare: each parameter has the axes number n of a fixed list */
#define STATE   0x20                    /* Declare: each parameter is model state */
/* Two ranks declare different axes and model state, then agree. Their statistics are averaged. A sparse gradient is
 * refused. */
static const uint8_t stating[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,  PD_DECLARE, 0, 1 | AXES(3), 0, 3,
    3,
    PD_DECLARE, 0, 1 | 4 | AXES(1), 0, 3, 3,  PD_DECLARE, 0, 1 | STATE, 1, 1, 7,
    PD_DECLARE, 1, 1 | 4 | AXES(2), 0, 3, 3,  PD_DECLARE, 1, 1 | STATE, 1, 1, 7,  PD_DECLARE, 1, 1 | 4 | AXES(1), 0, 3,
    3,  PD_DECLARE, 1, 1, 1, 1, 7,
    PD_DECLARE, 1, 1 | 4 | AXES(1), 0, 3, 3,  PD_DECLARE, 1, 1 | STATE, 1, 1, 7,
    PD_INIT, 0, 0, 2, 0, F32_, 1, F32_,  PD_PUSH_PULL, 0, 1, 1, 2, 0, F32_, 1, F32_,  PD_PUSH, 1, 1, 2, 1, 0, 0x50,
    PD_PUSH, 1, 1, 2, 2, 0, F32_, 1, F32_,
    PD_HELLO, 2, WORKER(0, 0, 1), PLAIN, 0,  PD_LIST, 2, 2 | 1 << 3,  PD_LIST, 2, 6 | 1 << 3,
};

/* bits of a nonce: the job starts at step 1, averages the initial weights of all ranks, and clips the global norm of
 * the gradients */
#define TOGETHER 0x70
/* Two ranks begin with the mean of their weights. Rank 0 sends weights before rank 1 has declared its range. Rank 1
 * is replaced by another process, which sends the missing weights again. They clip gradients, of which one has a NaN
 * and one is left out. A second job is dropped before all of its initial weights have arrived. */
static const uint8_t averaging[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1 | TOGETHER,  PD_DECLARE, 0, 2, 0 | RANGED, 10, 16, 0, 64,  1, 1, 7,
    PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PULL, 0, 1, 2, 0, F32_, 1, F32_,  TIME, 0, 100,
    PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2 | TOGETHER,  PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 70,  1, 1, 7,
    PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 60,  1, 1, 7,  PD_INIT, 1, 0, 1, 1, F32_,  PD_INIT, 0, 0, 1, 1, F32_,
    PD_PUSH, 0, 2, 0, 1, 1, F32_,
    CLOSE, 1,  PD_HELLO, 2, WORKER(1, 1, 2), PLAIN, 3 | TOGETHER,  PD_DECLARE, 2, 2, 0 | RANGED | TO_END, 10, 16, 60,
    1, 1, 7,
    PD_INIT | 0x80, 2, 5, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_INIT, 2, 5, 1, 1, F32_,
    PD_PUSH_PULL, 0, 2, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH_PULL, 2, 2, 63, 3, 0, F32_, 0 | 1 << 3, F32_,
    1, F32_,  PD_LIST, 0, 1,
    PD_PUSH_PULL, 0, 3, 255, 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH, 2, 3 | LAST, 0, 0,  PD_PUSH, 0, 3 | LAST, 0, 0,
    PD_STATUS, 0,
    PD_HELLO, 1, WORKER(2, 0, 2), PLAIN, 4 | TOGETHER,  PD_DECLARE, 1, 1, 0, 10, 10,  PD_INIT, 1, 0, 2, 0, F32_, 0 | 1
    << 3, F32_,  TIME, 0, 200,  PD_DROP, 0, 2 << 3,
};

#define GOOD 4                          /* Share: the peer's segment, with its length; 0 to 3: other descriptors */
/* Two ranks share memory, after Shares that are refused. Payloads lie in it and beside it. A rank reads answers and
 * releases them, more than it has at last. The other one changes its memory, dies and comes back without sharing. */
static const uint8_t sharing[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_SHARE, 0, GOOD,
    PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 2, 0 | 1 << 3, 10, 10, 1 | 3 << 3, 1, 7,  PD_DECLARE, 1, 2, 0 | 1 << 3, 10, 10, 1 | 3 << 3, 1, 7,
    LEND, 0, 0,  PD_PUSH, 0, 1, 1, 1, 0, F32_,  PD_SHARE, 0, 0,  PD_SHARE, 0, 1,  PD_SHARE, 0, 2,  PD_SHARE, 0, 3,
    PD_SHARE, 0, GOOD | 4 << 3,  PD_SHARE, 0, GOOD | 5 << 3,  PD_SHARE, 0, GOOD,  PD_SHARE, 0, GOOD,
    PASS, 1, 3,  PD_SHARE, 1, GOOD | 1 << 3,
    LEND, 0, 1,  PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    LEND, 0, 0,  PD_PUSH_PULL, 0, 1, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    LEND, 1, 200,  PD_PUSH, 1, 1, 1, 1, 0, F32_,  LEND, 1, 255,  PD_PUSH, 1, 1, 1, 1, 0, F32_,
    LEND, 1, 62,  PD_PUSH, 1, 1, 1, 2, 0, F32_, 0 | 1 << 3, F32_,
    LEND, 1, 4,  PD_PUSH_PULL, 1, 1, 2, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PULL, 0, 1, 2, 0, F32_, 1, F32_,  PD_RELEASE, 0, 1,  PD_RELEASE, 0, 1,  PD_RELEASE, 0, 255,
    LEND, 1, 8,  PD_PUSH_PULL, 1, 2, 2, 1, 0, F32_,  SCRIBBLE, 1, 255,
    LEND, 0, 0,  PD_PUSH_PULL, 0, 2, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  CLOSE, 1,
    PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,  PD_DECLARE, 1, 2, 0 | 1 << 3, 10, 10, 1 | 3 << 3, 1, 7,
    PD_PUSH_PULL, 1, 2, 2, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    TIME, 0, 100,
};

#define WINDOW 4                        /* bit of a nonce: the worker keeps a window of two steps */
#define FAILS 1                         /* KEPT: the disk has failed */
#define OF_JOB(job, step) (uint8_t)((job) | (step) << 2)
/* Two ranks with a window train, give notes and ask for checkpoints. One checkpoint fails, and one is asked for while
 * another is under way. A worker reads its note, an operator asks by name, for a step that never comes, and for a job
 * that is not there. The job ends while a checkpoint is out. */
static const uint8_t checkpointing[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1 | WINDOW,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2 | WINDOW,
    PD_NOTE, 0, 1, 10, 7,  PD_RECALL, 0,
    PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_DECLARE, 1, 2, 0, 10, 10, 1, 1, 7,
    PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_CHECKPOINT, 0, OF_JOB(0, 1),  PD_CHECKPOINT, 1, OF_JOB(1, 1),
    PD_NOTE, 0, 1, 255, 7,  PD_NOTE, 1, 1, 0, 0,
    PD_PUSH, 0, 1, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH, 1, 1, 2, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    KEPT, 0, FAILS,  PD_CHECKPOINT, 0, OF_JOB(0, 0),
    PD_NOTE, 0, 2, 3, 9,  PD_NOTE, 0, 2, 4, 9,  PD_NOTE, 0, 255, 1, 1,
    PD_PUSH, 0, 2, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_CHECKPOINT, 1, OF_JOB(0, 7) | 0x20,
    PD_PUSH, 1, 2, 2, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    KEPT, 0, 0,  KEPT, 0, 0,  PD_RECALL, 0,  PD_RECALL, 1,  PD_BARRIER, 0, 2,  PD_BARRIER, 1, 2,
    PD_HELLO, 2, WORKER(0, 0, 1), PLAIN, 0,  PD_CHECKPOINT, 2, OF_JOB(1, 0),  PD_CHECKPOINT, 2, OF_JOB(3, 0),
    PD_CHECKPOINT, 2, OF_JOB(1, 0) | 0x40,  PD_CHECKPOINT, 2, 255,  KEPT, 0, 0,  PD_LIST, 2, 1,  TIME, 0, 2,
    PD_CHECKPOINT, 2, OF_JOB(1, 7),  TIME, 0, 40,  PD_PUSH, 0, 3, 1, 1, 1, F32_,  PD_CHECKPOINT, 2, OF_JOB(1, 0),
    TIME, 0, 40,  PD_DROP, 2, 1 << 3,  KEPT, 0, FAILS,
};

#define GATHERS 0x80                    /* bit of a nonce: the next byte chooses an aggregate that collects */
#define FOLDED(how) (uint8_t)((how) | 4)
#define SPILLS(how)                                                                                                    \
    PD_HELLO, 1, WORKER(2, 0, 4), PLAIN, 9,  PD_DECLARE, 1, 1, 0, 3, 3,  CLOSE, 1,                                     \
    /* two jobs of four ranks reserve the whole budget */                                                              \
    PD_HELLO, 0, WORKER(1, 0, 4), PLAIN, 1 | GATHERS, how,  PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_INIT, 0, 0, 3,   \
    0, F32_, 0 | 1 << 3, F32_, 1, F32_,                                                                                \
    PD_HELLO, 1, WORKER(1, 1, 4), PLAIN, 2 | GATHERS, how,  PD_DECLARE, 1, 2, 0, 10, 10, 1, 1, 7,                      \
    PD_PUSH, 1, 1, 3, 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH, 1, 1, 3, 2, 0, F32_, 1, F32_,  PD_LIST, 1, 2 | 1 << 3,   \
    PD_HELLO, 2, WORKER(1, 2, 4), PLAIN, 3 | GATHERS, how,  PD_DECLARE, 2, 2, 0, 10, 10, 1, 1, 7,  PD_PUSH, 2, 1, 5,   \
    2, 0 | 1 << 3, 2, 1, F32_,  CLOSE, 2,                                                                              \
    PD_HELLO, 2, WORKER(1, 3, 4), PLAIN, 4 | GATHERS, how,  PD_DECLARE, 2, 2, 0, 10, 10, 1, 1, 7,  PD_PUSH, 2, 1 |     \
    LAST, 255, 1, 1, F32_,  CLOSE, 2,                                                                                  \
    PD_PUSH | 0x80, 0, 1, 7, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,                                                    \
    PD_HELLO, 2, WORKER(1, 2, 4), PLAIN, 5 | GATHERS, how,  PD_DECLARE, 2, 2, 0, 10, 10, 1, 1, 7,  PD_PUSH, 2, 1, 5,   \
    1, 0, 4,                                                                                                           \
    PD_PUSH, 2, 2, 5, 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH, 0, 2, 5, 2, 0, F32_, 1, 1,  TIME, 0, 200
/* Four ranks of a job whose aggregate collects all contributions are all over quota. Contributions are left by
 * closed connections, pushed twice, or absent. One rank is taken over by another process. Then the job is dropped. */
static const uint8_t collecting[] = { SPILLS(2),  CLOSE, 1,  PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,  PD_DROP, 1, 1 << 3
    };
/* A job of one rank uses Adasum before any contribution was collected. */
static const uint8_t alone[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1 | GATHERS, 0,  PD_DECLARE, 0, 1, 0, 3, 3,  PD_INIT, 0, 0, 1, 0, F32_,
    PD_PUSH_PULL, 0, 1, 5, 1, 0, F32_,
};
static const uint8_t merging[] = {
    PD_HELLO, 0, WORKER(3, 0, 3), PLAIN, 1 | GATHERS, 0,  SPILLS(0),  CLOSE, 0,  PD_HELLO, 0, WORKER(3, 0, 3), PLAIN, 1
    | GATHERS, FOLDED(0),
};
#define SHARD(shard, shards) (uint8_t)((shard) | (shards) << 2)
#define ASK(step) (uint8_t)(step)       /* Settle: asks for a tally */
#define VERDICT(step, shards) (uint8_t)((step) | (shards) << 4)
#define CHANGES 0x80                    /* Settle: a byte of each tally is changed */
/* A rank trains on the first one of two shards: it asks for tallies before and after they are made, and brings
 * verdicts: changed ones, one of too few tallies, an early one, and the right one twice. Parameters that lie elsewhere
 * are refused. */
static const uint8_t settling[] = {
    SPREAD, 0, SHARD(0, 2),  PD_HELLO, 0, WORKER(1, 0, 1) | WHOLE, PLAIN, 1,
    PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_INIT, 0, 0, 2, 0, F32_, 1 << 3, F32_,  PD_INIT, 0, 0, 1, 1, F32_,
    PD_SETTLE, 0, ASK(1), 0,  PD_SETTLE, 0, VERDICT(1, 2), 0,
    PD_PUSH, 0, 1, 1, 2, 0, F32_, 1 << 3, F32_,  PD_PUSH, 0, 1, 2, 1, 1, F32_,  PD_PUSH, 0, 1 | LAST, 3, 0,
    PD_SETTLE, 0, VERDICT(1, 2) | CHANGES, 1,  PD_SETTLE, 0, VERDICT(1, 2) | CHANGES, 33,
    PD_SETTLE, 0, VERDICT(1, 1), 0,  PD_SETTLE, 0, VERDICT(2, 2), 0,  PD_SETTLE, 0, VERDICT(1, 2), 0,
    PD_SETTLE, 0, VERDICT(1, 2), 0,  PD_SETTLE, 0, ASK(0), 0,  PD_SETTLE, 0, ASK(2), 0,
    PD_PULL, 0, 1, 2, 0, F32_, 1 << 3, F32_,  PD_PULL, 0, 1, 1, 1, F32_,
    SPREAD, 1, SHARD(1, 2),  PD_HELLO, 1, WORKER(1, 0, 1) | WHOLE, PLAIN, 2,
    SPREAD, 1, SHARD(2, 2),  PD_HELLO, 1, WORKER(1, 0, 1) | WHOLE, PLAIN, 2,
};
/* Workers and an operator let a job go back: to checkpoints that are not there, by a life that is none, and to one that
 * the disk cannot read any more. */
static const uint8_t returning[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1 | WINDOW,  PD_HELLO, 2, WORKER(0, 0, 1), PLAIN, 0,
    PD_GO_BACK, 0, OF_JOB(0, 1) | 0x20,  PD_DECLARE, 0, 1, 1, 1, 7,  PD_INIT, 0, 0, 1, 0, F32_,
    PD_GO_BACK, 2, OF_JOB(1, 1),  PD_GO_BACK, 0, OF_JOB(1, 1) | 0x20,  PD_GO_BACK, 0, OF_JOB(0, 1),
    PD_CHECKPOINT, 0, OF_JOB(0, 0),  PD_PUSH, 0, 1, 0, 1, 0, F32_,  KEPT, 0, 0,  KEPT, 0, 0,
    PD_GO_BACK, 2, OF_JOB(1, 7),  PD_GO_BACK, 2, OF_JOB(3, 0),  PD_GO_BACK, 2, OF_JOB(1, 0) | 0x80,
    PD_GO_BACK, 2, OF_JOB(1, 0) | 0x80,  KEPT, 0, 0,  KEPT, 0, 0,  PD_PUSH, 0, 2, 0, 1, 0, F32_,
    PD_GO_BACK, 2, OF_JOB(1, 0) | 0x80,  PD_DROP, 2, 1 << 3,  KEPT, 0, FAILS,
};
#define PLACES(shards, own, tenure) (uint8_t)((shards) | ((own) + 1) << 2 | (tenure) << 4)
#define FOLLOWS 0x80                    /* TABLE: the next Hello follows its shard */
/* A worker names one daemon of two shards, and asks for the table. Another one is shard 1, which has moved when it
 * comes again: it knows a newer owner, or follows a shard that is not here. It hears of each change. */
static const uint8_t moving[] = {
    PD_HELLO, 2, WORKER(0, 0, 1), PLAIN, 0,  PD_SHARDS, 2,
    TABLE, 0, PLACES(2, 1, 3), FOLLOWS,  PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,  PD_SHARDS, 0,  CLOSE, 0,
    TABLE, 0, PLACES(2, 1, 3), 0,  PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,
    TABLE, 0, PLACES(2, 1, 3), FOLLOWS | 3,  SPREAD, 1, SHARD(1, 2) | 1 << 5,  PD_HELLO, 1, WORKER(1, 0, 1), PLAIN, 1,
    PD_SHARDS, 1,  TABLE, 0, PLACES(3, 1, 4) | 0x80, 0,  PD_SHARDS, 1,  CLOSE, 1,
    TABLE, 0, PLACES(2, 1, 3), FOLLOWS | 4,  SPREAD, 1, SHARD(1, 2) | 1 << 5,  PD_HELLO, 1, WORKER(1, 0, 1), PLAIN, 1,
    TABLE, 0, PLACES(2, 0, 3), FOLLOWS | 2,  SPREAD, 1, SHARD(1, 2) | 1 << 5,  PD_HELLO, 1, WORKER(1, 0, 1), PLAIN, 1,
    TABLE, 0, PLACES(2, 0, 3), FOLLOWS,  SPREAD, 1, SHARD(1, 2) | 1 << 5,  PD_HELLO, 1, WORKER(1, 0, 1), PLAIN, 1,
};
