/* local_attacks.h - a local worker's attempts to make the daemon hold memory that no quota counts. */
#ifndef PD_LOCAL_ATTACKS_H
#define PD_LOCAL_ATTACKS_H

/* An attack. `run` gets the address of the daemon's Unix socket. It returns when it has done its worst, or when the
 * daemon refuses it; any other error ends the program. What it has opened stays open until the program ends. */
typedef struct local_attack {
    const char *name;
    void (*run)(const char *local);
} local_attack;

/* The attacks; the last one has no name. */
extern const local_attack local_attacks[];

/* Bytes of a job's weights in these attacks, and the quota that such a job needs: weights, the next ones, and sums. */
#define ATTACK_WEIGHTS (8 << 20)
#define ATTACK_QUOTA "40M"

#endif
