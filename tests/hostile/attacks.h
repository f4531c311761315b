/* attacks.h - the table of attacks: each sends requests of one method, the largest and the most that its identity may,
 * for as long as it is let. The figures hostile_step_ms and read_only_step and the test e2e.largest run them. */
#ifndef ATTACKS_H
#define ATTACKS_H

#include "foe_job.h"

enum { ATTACK_FOES = 60 };
/* A job of the most ranks, and with so many parameters that its records of them fit the quota. */
enum { ATTACK_MANY = 4096, ATTACK_PARAMS_OF_MANY = 100 };

/* The method of attacks that are no request of the protocol. */
enum { ATTACK_CONNECTS = PD_METHODS, ATTACK_HTTP };

/* The attacker is admin of its own jobs; or it only reads, also its own jobs; or it reads those of others alone. */
typedef enum attack_role { ATTACK_ADMIN, ATTACK_READER, ATTACK_READER_OF_OTHERS } attack_role;

/* What an attack works on. */
typedef struct attack_scene {
    foe_side *side;         /* who attacks */
    foe_side *owner;        /* who creates the jobs that are attacked: the attacker itself, unless it may only read */
    const char *running;    /* a job that takes steps, with the parameter "w"; NULL: there is none */
    const char *job;        /* the job that is attacked, or that the attack creates */
    uint32_t params;        /* number of its parameters */
    int http_port;          /* port of the daemon's HTTP listener */
    const char *options[4]; /* options of the job: NAME, VALUE, NULL */
    foe_set set;            /* the parameters of the job */
    foe host, host2;        /* connections that keep the job */
    foe foes[ATTACK_FOES];
    size_t n;          /* connections in `foes` */
    foe_frame *frames; /* what they send */
    size_t n_frames, most;
} attack_scene;

typedef struct attack {
    const char *name;
    unsigned method;  /* of the requests that it sends */
    attack_role role; /* what the attacker has to be */
    /* Prepares the scene, before the time is taken. Returns false if the daemon refuses that; the side's count has the
     * error. NULL: nothing is to be prepared. */
    bool (*prepare)(attack_scene *scene);
    void (*run)(attack_scene *scene); /* attacks until it is over */
} attack;

/* They end with a name of NULL. */
extern const attack attacks_of_workers[], attacks_of_operators[], attacks_of_shards[], attacks_of_strangers[];

/* Returns the number of all attacks, and the attack of an index below it. */
size_t attacks_count(void);
const attack *attacks_at(size_t i);
const attack *attacks_find(const char *name); /* NULL: there is none */

/* Closes connections and frees memory of an attack that has run. */
void attack_clear(attack_scene *scene);

/* Sends the scene's frames over its connections. */
void attack_flood(attack_scene *scene);
/* Creates the scene's job with the owner's connection `host` as rank 0: declared, with initial weights. */
bool attack_make_job(attack_scene *scene, uint32_t world);
/* As attack_make_job, with one step_timeout after the other, from the shortest on, until the daemon takes one. Rank 1
 * joins and declares, too, as `host2`. */
bool attack_make_impatient_job(attack_scene *scene, uint32_t world);
/* Connects n operators as `foes`. */
bool attack_operators(attack_scene *scene, size_t n);
/* Adds a frame to the scene's list. */
void attack_add(attack_scene *scene, unsigned method, const ProtobufCMessage *message, size_t payload_bytes);
/* Patterns that cost a matcher much, whatever way it works: sets, stars, near matches, unclosed brackets. */
const char *const *attack_patterns(void);

#endif
