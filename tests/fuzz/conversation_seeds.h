/* conversation_seeds.h - conversations that fuzz_conversation begins with, in its own language of choices: part of that file, which includes it behind
 * what these need. */
#define WORKER(job, rank, world) (uint8_t)((job) | (rank) << 2 | ((world) - 1) << 4)
#define PLAIN 0x30                      /* Hello: no options, one rule for all */
#define F32_  0                         /* make_piece: float32, no oddity */

/* Two ranks train two parameters, one of them of two chunks, through every method a worker has. */
static const uint8_t training[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 1 | 4, 0 | 1 << 3, 10, 10,  PD_DECLARE, 0, 1, 1 | 1 << 3, 1, 7,
    PD_DECLARE, 1, 2, 0 | 1 << 3, 10, 10, 1 | 3 << 3, 1, 7,
    PD_PULL, 1, 0, 1, 1, F32_,
    PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH, 1, 1, 2, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL | 0x80, 1, 2, 1, 1, 1, 1, PD_PUSH, 0, 2 | 128, 3, 1, 1, 2,
    PD_PUSH_PULL, 0, 1, 1, 1, 1, F32_,
    PD_BARRIER, 0, 1,  PD_BARRIER, 1, 1,  PD_HEARTBEAT, 0,  PD_LEAVE, 0,  PD_LEAVE, 1,
};
#define SHAMPOO (0x30 | 3)              /* Hello: no options, shampoo that communicates bfloat16 */
/* A worker asks for updates, holds now this version and now another, and asks for some that there are none of. */
static const uint8_t updating[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), SHAMPOO, 1,  PD_DECLARE, 0, 1, 0 | 1 << 3 | 3 << 6, 10, 10,  PD_INIT, 0, 0, 2, 0, F32_, 1 << 3, F32_,
    PD_PUSH_PULL, 0, 1, 1, 2, 1 << 6, F32_, 1 << 3 | 1 << 6, F32_,  PD_PUSH_PULL, 0, 2, 1, 2, 2 << 6, F32_, 1 << 3 | 1 << 6, F32_,  PD_PULL, 0, 2, 1, 2 << 6, F32_,
    PD_PUSH_PULL, 0, 3, 255, 2, 3 << 6, F32_, 1 << 3 | 3 << 6, F32_,  PD_HELLO, 1, WORKER(2, 0, 1), PLAIN, 2,  PD_DECLARE, 1, 1, 0 | 1 << 3 | 3 << 6, 3, 3,
};
#define WHOLE 0xc0                      /* Hello: the job steps as a whole */
#define LAST  4                         /* Push: ends the rank's step */
/* Two ranks of a job that steps as a whole leave gradients out, one spoils one, and both end their steps, more than once. */
static const uint8_t closing[] = {
    PD_HELLO, 0, WORKER(1, 0, 2) | WHOLE, PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2) | WHOLE, PLAIN, 2,
    PD_DECLARE, 0, 2, 0, 1, 3, 1, 1, 7,  PD_DECLARE, 1, 2, 0, 1, 3, 1, 1, 7,  PD_INIT, 0, 0, 2, 0, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, 1, 1, 0, F32_,  PD_PUSH, 0, 1 | LAST, 0, 0,  PD_PUSH | 0x80, 0, 1 | LAST, 0, 0,  PD_PUSH_PULL, 1, 1 | LAST, 1, 1, 1, F32_,
    PD_PUSH, 0, 1 | LAST, 0, 0,  PD_PUSH, 0, 2 | LAST, 255, 1, 1, F32_,  PD_PUSH, 1, 3 | LAST, 0, 0,  PD_PUSH, 1, 2 | LAST, 0, 0,
    PD_PUSH, 0, 3 | LAST, 0, 0,  CLOSE, 0,  TIME, 1, 200,  PD_PUSH, 1, 3 | LAST, 0, 0,
};
#define SCALARS(n, from, value) (uint8_t)((n) << 5 | (from) << 3 | (value))    /* Push: so many scalars */
/* Two ranks give numbers with their pushes: with several frames of a parameter, again, with another value, with what is none, without a gradient, and one
 * process in another's place. */
static const uint8_t reporting[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_DECLARE, 1, 2, 0, 10, 10, 1, 1, 7,  PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, SCALARS(2, 0, 1), 1, 0, F32_,  PD_PUSH_PULL, 0, 1 | 8, SCALARS(1, 2, 3), 2, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, SCALARS(2, 0, 1), 1, 0, F32_,  PD_PUSH, 0, 1, SCALARS(1, 0, 2), 1, 0, F32_,  PD_PUSH, 1, 1, SCALARS(5, 0, 2), 1, 0, F32_,
    PD_PUSH, 1, 1 | 32, SCALARS(3, 1, 2), 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH | 0x80, 1, 1, SCALARS(1, 0, 7), 1, 1, F32_,
    PD_PULL, 1, 1, 2, 0, F32_, 1, F32_,  PD_PUSH_PULL, 0, 1, SCALARS(2, 0, 1), 1, 0, F32_,  PD_PUSH, 0, 2 | LAST, SCALARS(1, 0, 1), 0,
    PD_PUSH, 0, 2 | LAST, SCALARS(1, 0, 1), 1, 1, 1,  CLOSE, 0,  PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 3,  PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,
    PD_PUSH, 0, 2, SCALARS(2, 0, 6), 1, 1, 1,  PD_PUSH, 1, 2 | LAST, SCALARS(1, 0, 2), 1, 1, F32_,  PD_PUSH, 1, 3, SCALARS(7, 1, 0), 1, 1, F32_,
};
/* An operator looks at a worker's job and ends it. */
static const uint8_t operating[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,  PD_DECLARE, 0, 1, 0, 3, 3,  PD_INIT, 0, 0, 1, 0, F32_,  PD_PULL, 0, 5, 1, 0, F32_,
    PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,  PD_STATUS, 1,  PD_LIST, 1, 1,  PD_LIST, 1, 2 | 1 << 3,  PD_LIST, 1, 3 | 1 << 3,  PD_LIST, 1, 2 | 3 << 3,
    PD_OPTIMIZERS, 1, 0,  PD_OPTIMIZERS, 1, 1 << 3,  PD_DROP, 1, 1 << 3,  PD_PUSH, 0, 1, 0, 1, 0, F32_,  PD_DRAIN, 1, 5,  TIME, 0, 9,  PD_SHUTDOWN, 1,  TURN, 0,
};
/* An operator changes hyperparameters between a worker's steps, some at once, some for later, and withdraws them. */
static const uint8_t setting[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,  PD_DECLARE, 0, 2, 0, 3, 3, 1, 1, 7,  PD_INIT, 0, 0, 2, 0, F32_, 1, F32_,  PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,
    PD_SET, 1, 1 | 2 << 4, 0, 1 | 0 << 3,  PD_PUSH, 0, 1, 0, 2, 0, F32_, 1, F32_,  PD_SET, 1, 1 | 1 << 4, 0 | 2 << 3,  PD_LIST, 1, 5 | 1 << 3,
    PD_SET, 1, 1 | 1 << 4 | 3 << 6, 6 | 3 << 3,  PD_PUSH, 0, 2 | 128, 0, 2, 0, F32_, 1, F32_,  PD_SET, 1, 1 | 1 << 2 | 1 << 4, 0 | 1 << 3,
    PD_PUSH, 0, 3, 0, 2, 0, F32_, 1, F32_,  PD_SET, 1, 1 | 1 << 4, 0 | 4 << 3,  PD_LIST, 1, 5 | 1 << 3,  PD_DROP, 1, 1 << 3,
};
#define ACT(act) (uint8_t)(1 | (act) << 2)     /* Import: of job "a" */
#define ONLY 0x40                       /* commit: a part is enough */
/* An operator brings state to a worker's job: too early, with a hole, under a wrong name, and then as it should be; training goes on. */
static const uint8_t importing[] = {
    PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,  PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,
    PD_DECLARE, 0, 1, 0, 3, 5,  PD_INIT, 0, 0, 1, 0, F32_,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(2), 0, 3, 5, 0, 7,
    PD_IMPORT, 1, ACT(2), 3, 3, 5, 0, 7,  PD_IMPORT, 1, ACT(4), 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(2), 0, 3, 5, 8, 7,  PD_IMPORT, 1, ACT(2), 0, 3, 5, 7, 8,
    PD_IMPORT, 1, ACT(3), 0, 0, 0, 9, 0,  PD_LIST, 1, 6 | 1 << 3,  PD_IMPORT | 0x80, 1, ACT(4), 0, 0, 0, 0, 0,  PD_PUSH, 0, 1, 0, 1, 0, F32_,
    PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(4) | ONLY, 0, 0, 0, 0, 0,  PD_IMPORT, 1, ACT(1), 0, 0, 0, 0, 0,
    PD_IMPORT, 1, ACT(2), 0, 3, 5, 0, 4,  TIME, 0, 70,  PD_IMPORT, 1, ACT(4), 0, 0, 0, 0, 0,
};
/* A worker is lost, its rank taken over, the old one fenced; rounds time out; frames lie. */
static const uint8_t troubles[] = {
    PD_HELLO, 0, WORKER(2, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(2, 1, 2), PLAIN, 2,  PD_DECLARE, 0, 1, 0, 3, 3,  PD_DECLARE, 1, 1, 0, 3, 3,
    PD_INIT, 0, 0, 1, 0, F32_,  PD_PUSH_PULL, 0, 1, 0, 1, 0, F32_,  TIME, 0, 200,  CLOSE, 1,  PD_HELLO, 1, WORKER(2, 1, 2), PLAIN, 3,
    PD_HELLO, 2, WORKER(2, 0, 2), PLAIN, 4,  SPOIL, 0, 50, 7,  PD_DECLARE, 1, 1, 0, 3, 3,  PD_PUSH, 1, 1, 0, 1, 0, 0x10,  PD_PUSH, 1, 1, 0, 1, 0, 0x20,
    PD_PUSH, 1, 1, 255, 2, 0, F32_, 7, F32_,  CUT, 1, 60,  PD_PUSH, 1, 1, 0, 1, 0, F32_,  RAW, 2, 4, 'P', 'D', 'F', '1',  CLOSE, 0, TIME, 0, 255, TIME, 0, 255,
};

#define RANGED 0x20                     /* a parameter: of it elements from, to, in parts of 128; with TO_END from there to its end */
#define TO_END 0x40

/* Two ranks train in shards: one parameter that is cut within a chunk, one of which the second rank has nothing. */
static const uint8_t shards[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,
    PD_DECLARE, 0, 2, 0 | RANGED, 10, 16, 0, 64,  1 | RANGED | TO_END, 1, 7, 0,  PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 60,  1 | RANGED, 1, 7, 64, 64,
    PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 64,  1 | RANGED, 1, 7, 64, 64,  PD_DECLARE, 1, 2, 0, 10, 16,  1 | RANGED, 1, 7, 64, 64,
    PD_PULL, 1, 0, 2, 0, F32_, 1, F32_,
    PD_INIT, 1, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL, 0, 1, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH_PULL, 1, 1, 2, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,
    PD_PUSH_PULL | 0x80, 1, 2, 1, 2, 0, 1, 1, 1,  PD_PUSH, 0, 2, 3, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH, 0, 3, 3, 1, 0, 0x30,
    CLOSE, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,  PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 64,  1 | RANGED, 1, 7, 64, 64,
    PD_PUSH_PULL, 1, 2, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, 1,  PD_LEAVE, 0,  PD_LEAVE, 1,
};

#define AXES(n) ((n) << 3)              /* Declare: each has the n-th of the lists of axes */
#define STATE   0x20                    /* Declare: each is model state */
/* Two ranks disagree on axes and on model state, then agree; their statistics are averaged, a sparse gradient is refused. */
static const uint8_t stating[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1,  PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2,  PD_DECLARE, 0, 1 | AXES(3), 0, 3, 3,
    PD_DECLARE, 0, 1 | 4 | AXES(1), 0, 3, 3,  PD_DECLARE, 0, 1 | STATE, 1, 1, 7,
    PD_DECLARE, 1, 1 | 4 | AXES(2), 0, 3, 3,  PD_DECLARE, 1, 1 | STATE, 1, 1, 7,  PD_DECLARE, 1, 1 | 4 | AXES(1), 0, 3, 3,  PD_DECLARE, 1, 1, 1, 1, 7,
    PD_DECLARE, 1, 1 | 4 | AXES(1), 0, 3, 3,  PD_DECLARE, 1, 1 | STATE, 1, 1, 7,
    PD_INIT, 0, 0, 2, 0, F32_, 1, F32_,  PD_PUSH_PULL, 0, 1, 1, 2, 0, F32_, 1, F32_,  PD_PUSH, 1, 1, 2, 1, 0, 0x50,  PD_PUSH, 1, 1, 2, 2, 0, F32_, 1, F32_,
    PD_HELLO, 2, WORKER(0, 0, 1), PLAIN, 0,  PD_LIST, 2, 2 | 1 << 3,  PD_LIST, 2, 6 | 1 << 3,
};

#define TOGETHER 0x70                   /* in a nonce: the job starts at step 1, with the mean of all weights, and clips gradients together */
/* Two ranks begin with their mean, one before the other has said which elements it has; one comes back, another process takes its place and sends again what is
 * missing; they clip, with a gradient that is not finite and one left out, and begin a job that ends in the midst of its first weights. */
static const uint8_t averaging[] = {
    PD_HELLO, 0, WORKER(1, 0, 2), PLAIN, 1 | TOGETHER,  PD_DECLARE, 0, 2, 0 | RANGED, 10, 16, 0, 64,  1, 1, 7,
    PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PULL, 0, 1, 2, 0, F32_, 1, F32_,  TIME, 0, 100,
    PD_HELLO, 1, WORKER(1, 1, 2), PLAIN, 2 | TOGETHER,  PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 70,  1, 1, 7,
    PD_DECLARE, 1, 2, 0 | RANGED | TO_END, 10, 16, 60,  1, 1, 7,  PD_INIT, 1, 0, 1, 1, F32_,  PD_INIT, 0, 0, 1, 1, F32_,  PD_PUSH, 0, 2, 0, 1, 1, F32_,
    CLOSE, 1,  PD_HELLO, 2, WORKER(1, 1, 2), PLAIN, 3 | TOGETHER,  PD_DECLARE, 2, 2, 0 | RANGED | TO_END, 10, 16, 60,  1, 1, 7,
    PD_INIT | 0x80, 2, 5, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_INIT, 2, 5, 1, 1, F32_,
    PD_PUSH_PULL, 0, 2, 1, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_PUSH_PULL, 2, 2, 63, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,  PD_LIST, 0, 1,
    PD_PUSH_PULL, 0, 3, 255, 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH, 2, 3 | LAST, 0, 0,  PD_PUSH, 0, 3 | LAST, 0, 0,  PD_STATUS, 0,
    PD_HELLO, 1, WORKER(2, 0, 2), PLAIN, 4 | TOGETHER,  PD_DECLARE, 1, 1, 0, 10, 10,  PD_INIT, 1, 0, 2, 0, F32_, 0 | 1 << 3, F32_,  TIME, 0, 200,  PD_DROP, 0, 2 << 3,
};

#define GATHERS 0x80                    /* in a nonce: the next choice says how */
#define FOLDED(how) (uint8_t)((how) | 4)
#define SPILLS(how)                                                                                                                                  \
    PD_HELLO, 1, WORKER(2, 0, 4), PLAIN, 9,  PD_DECLARE, 1, 1, 0, 3, 3,  CLOSE, 1,         /* eight ranks: the whole budget is reserved */            \
    PD_HELLO, 0, WORKER(1, 0, 4), PLAIN, 1 | GATHERS, how,  PD_DECLARE, 0, 2, 0, 10, 10, 1, 1, 7,  PD_INIT, 0, 0, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,   \
    PD_HELLO, 1, WORKER(1, 1, 4), PLAIN, 2 | GATHERS, how,  PD_DECLARE, 1, 2, 0, 10, 10, 1, 1, 7,                                                       \
    PD_PUSH, 1, 1, 3, 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH, 1, 1, 3, 2, 0, F32_, 1, F32_,  PD_LIST, 1, 2 | 1 << 3,                                   \
    PD_HELLO, 2, WORKER(1, 2, 4), PLAIN, 3 | GATHERS, how,  PD_DECLARE, 2, 2, 0, 10, 10, 1, 1, 7,  PD_PUSH, 2, 1, 5, 2, 0 | 1 << 3, 2, 1, F32_,  CLOSE, 2,    \
    PD_HELLO, 2, WORKER(1, 3, 4), PLAIN, 4 | GATHERS, how,  PD_DECLARE, 2, 2, 0, 10, 10, 1, 1, 7,  PD_PUSH, 2, 1 | LAST, 255, 1, 1, F32_,  CLOSE, 2,           \
    PD_PUSH | 0x80, 0, 1, 7, 3, 0, F32_, 0 | 1 << 3, F32_, 1, F32_,                                                                                    \
    PD_HELLO, 2, WORKER(1, 2, 4), PLAIN, 5 | GATHERS, how,  PD_DECLARE, 2, 2, 0, 10, 10, 1, 1, 7,  PD_PUSH, 2, 1, 5, 1, 0, 4,                                  \
    PD_PUSH, 2, 2, 5, 2, 0, F32_, 0 | 1 << 3, F32_,  PD_PUSH, 0, 2, 5, 2, 0, F32_, 1, 1,  TIME, 0, 200
/* Four ranks of a job that gathers, all of them pressed: what they push is left behind, comes twice, is absent; one is taken over; then the job is dropped. */
static const uint8_t gathering[] = { SPILLS(2),  CLOSE, 1,  PD_HELLO, 1, WORKER(0, 0, 1), PLAIN, 0,  PD_DROP, 1, 1 << 3 };
/* Adasum of one rank, before anything else was gathered. */
static const uint8_t alone[] = {
    PD_HELLO, 0, WORKER(1, 0, 1), PLAIN, 1 | GATHERS, 0,  PD_DECLARE, 0, 1, 0, 3, 3,  PD_INIT, 0, 0, 1, 0, F32_,  PD_PUSH_PULL, 0, 1, 5, 1, 0, F32_,
};
static const uint8_t merging[] = {
    PD_HELLO, 0, WORKER(3, 0, 3), PLAIN, 1 | GATHERS, 0,  SPILLS(0),  CLOSE, 0,  PD_HELLO, 0, WORKER(3, 0, 3), PLAIN, 1 | GATHERS, FOLDED(0),
};
