/* windowed.h - a client's core with a window, and a server whose weights follow from the step: for tests of servers
 * that have gone back to an earlier step. */
#ifndef WINDOWED_H
#define WINDOWED_H

#include "peer.h"

enum { WINDOWED_STEPS = 40, WINDOWED_PARAMS = 2, WINDOWED_ELEMENTS = 3 };

typedef struct windowed {
    peer *p;
    struct {
        uint8_t *at; /* the frame of this step's push, as the server got it first */
        size_t bytes;
    } first[WINDOWED_STEPS];
} windowed;

/* Returns a worker with a window of so many steps, whose job is at step 0. It has WINDOWED_PARAMS parameters. */
windowed windowed_new(uint32_t window);
void windowed_free(windowed *w);

/* Pushes the next step. The server gets it, and does not answer. */
pd_ticket_id windowed_push(windowed *w, peer_frame *got);
/* Takes steps up to this one: each is pushed, answered and finished. */
void windowed_train(windowed *w, uint64_t step);
/* Answers a push or pull: the weights and outcomes are those of `step`. */
void windowed_answer(windowed *w, const pd_prefix *asked, uint64_t step);

/* Answers like windowed_answer, while the core's n-th allocation fails. Returns whether there was one. */
bool windowed_answer_without_memory(windowed *w, const pd_prefix *asked, uint64_t step, int64_t n);

/* Breaks the connection, connects again and declares: the server is at this step now. */
void windowed_come_back(windowed *w, uint64_t step);
/* Expects that the push of this step is sent again with the bytes that were sent first. */
pd_prefix windowed_expect_again(windowed *w, uint64_t step);
/* Expects and answers the pushes of steps `from` to `to`, which are sent again one after the other. */
void windowed_catch_up(windowed *w, uint64_t from, uint64_t to);
/* Expects a frame of this method, and returns its prefix. */
pd_prefix windowed_expect(windowed *w, unsigned method);

#endif
