/* scene.h - the loop thread's code on socket pairs with a store in line, for tests of an exact order of events. */
#ifndef SCENE_H
#define SCENE_H

#include "daemon.h"
#include "message.h"
#include "row.h"
#include "turn.h"

enum { CHUNK = 1024, SCENE_HEARD = 80 * 1024 };

typedef struct scene {
    pd_daemon  *daemon;
    pd_store   *store;
    pd_turn     turn;                   /* of the store; forwards its effects */
    pd_mailbox *requests;
    uint64_t    now, last_id;
    char        said[4000];             /* the daemon's log */
    pd_arena   *arena;
    const char *rule;                   /* of the jobs that workers ask for */
    const char *option, *value;         /* of these jobs; NULL: none */
    uint8_t     in[SCENE_HEARD];        /* header and payload last heard */
    pd_prefix   prefix;
} scene;

/* A job may have max_params parameters; `rows` NULL: the optimizers of the table. One at a time. */
scene *scene_new(uint32_t max_params, const pd_row *const *rows);
/* The same, of chunks with so many elements instead of CHUNK. */
scene *scene_new_chunks(uint64_t elements);
/* Drops all jobs; everything must have come home. */
void   scene_free(scene *s);

/* The loop's turn alone: what it asks of the store stays in the mailbox. */
void   scene_turn(scene *s);
/* The store's turn: takes what was asked and posts what comes of it. */
void   scene_answer(scene *s);
void   scene_settle(scene *s);
/* Time passes for the store; what comes of it arrives. */
void   scene_sleep(scene *s, double seconds);

/* The other end. */
int    scene_connect(scene *s);
void   scene_send(scene *s, int fd, unsigned method, const ProtobufCMessage *message, size_t payload);     /* zeros */
/* Sends a request that has no fields. */
void   scene_say(scene *s, int fd, unsigned method);
/* The next frame that has come; false: none. */
bool   scene_hear(scene *s, int fd);
void   scene_expect(scene *s, int fd, unsigned method);
void   scene_expect_error(scene *s, int fd, int code, const char *part);
/* What a new operator is told when it asks for a list of that job: 2 its parameters, 3 its workers. Borrowed. */
const Paramd__ListReply *scene_list(scene *s, uint32_t what, const char *job);
void   scene_hello(scene *s, int fd, const char *job, uint32_t rank, uint32_t world);
/* Declares n parameters of a chunk each, eight at most. */
void   scene_declare(scene *s, int fd, unsigned n);
/* A whole parameter of a chunk: PD_INIT or PD_PUSH. */
void   scene_data(scene *s, int fd, unsigned method, uint32_t handle, uint64_t step);
/* A worker of job "j" with n parameters declared. Not initialised. */
int    scene_join(scene *s, uint32_t rank, uint32_t world, unsigned n);
/* A worker's n parameters get initial weights. */
void   scene_initialise(scene *s, int fd, unsigned n);
/* An operator, welcomed. */
int    scene_operator(scene *s);

#endif
