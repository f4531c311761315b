/* scene.h - the loop thread's code on socket pairs, with the store in the same thread, for tests of an exact order of
 * events. */
#ifndef SCENE_H
#define SCENE_H

#include "daemon.h"
#include "message.h"
#include "optimizer_ops.h"
#include "turn.h"

enum { CHUNK = 1024, SCENE_HEARD = 80 * 1024 };

typedef struct scene {
    pd_daemon *daemon;
    pd_store *store;
    pd_turn turn; /* runs the store, and forwards its effects to the loop */
    pd_mailbox *requests;
    uint64_t now, loop_ms; /* clocks of the store and of the loop, which the test moves */
    uint64_t last_id;
    char said[4000]; /* the daemon's log */
    pd_arena *arena;
    const char *rule;           /* rule of the jobs that the scene's workers create */
    bool shares;                /* the scene's workers say in Hello that they share memory */
    const char *identity;       /* identity of clients that connect from now on; NULL: the user of this process */
    int taken;                  /* descriptor that came last from the daemon; -1: none */
    const char *option, *value; /* a job option of the jobs that the workers create; NULL: none */
    uint32_t shard, shards;     /* what the scene's workers ask the daemon to be; 0 and 0: alone */
    uint8_t in[SCENE_HEARD];    /* header and payload of the last received frame */
    pd_prefix prefix;
    double speed; /* in the pushes of scene_data */
} scene;

/* Makes a scene whose jobs may have max_params parameters. `rows` NULL: the optimizers of the table. There may be only
 * one scene at a time. */
scene *scene_new(uint32_t max_params, const pd_optimizer_ops *const *rows);
/* Makes a scene whose chunks have another size than CHUNK elements. */
scene *scene_new_chunks(uint64_t elements);
/* Drops all jobs, checks that all payload buffers and published versions were returned, and frees the scene. */
void scene_free(scene *s);

/* Runs a turn of the loop alone. Its requests to the store stay in the mailbox. */
void scene_turn(scene *s);
/* Runs a turn of the store: takes the requests from the mailbox and posts the effects. */
void scene_answer(scene *s);
void scene_settle(scene *s);
/* Lets time pass for the store, and passes its effects to the loop. */
void scene_sleep(scene *s, double seconds);
/* Lets time pass for the loop, which then looks at its connections. */
void scene_pass(scene *s, uint64_t ms);

/* Gives the daemon and the store these roles (roles.h). */
void scene_roles(scene *s, const char *text);
/* Connects a client. Returns its end of the socket pair, or -1: the daemon has closed its end at once. */
int scene_connect(scene *s);
/* sends a request with `payload` bytes of zeros */
void scene_send(scene *s, int fd, unsigned method, const ProtobufCMessage *message, size_t payload);
/* Sends a request that has no fields. */
void scene_say(scene *s, int fd, unsigned method);
/* Reads the next frame that has arrived. Returns false if there is none. */
bool scene_receive(scene *s, int fd);
void scene_expect(scene *s, int fd, unsigned method);
void scene_expect_error(scene *s, int fd, int code, const char *part);
/* Connects a new operator and returns the list of a job that it gets. `what` 2: parameters; 3: workers. Borrowed. */
const Paramd__ListReply *scene_list(scene *s, uint32_t what, const char *job);
void scene_hello(scene *s, int fd, const char *job, uint32_t rank, uint32_t world);
/* Declares n parameters of one chunk each, n <= 8. */
void scene_declare(scene *s, int fd, unsigned n);
/* Sends initial weights (PD_INIT) or a gradient (PD_PUSH) of a whole parameter, which has one chunk. */
void scene_data(scene *s, int fd, unsigned method, uint32_t handle, uint64_t step);
/* Connects a worker of job "j" and declares n parameters. They are not initialised. */
int scene_join(scene *s, uint32_t rank, uint32_t world, unsigned n);
/* Sends initial weights for a worker's n parameters. */
void scene_initialise(scene *s, int fd, unsigned n);
/* Connects an operator, which is welcomed. Returns its socket. */
int scene_operator(scene *s);

#endif
