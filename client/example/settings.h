/* settings.h - what the user asked for on the command line. */
#ifndef SETTINGS_H
#define SETTINGS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct settings {
    const char *url, *job;              /* NULL: from the environment (paramd/client.h) */
    int         rank, world_size;       /* 0 and 0: from the environment */
    const char *data, *out;             /* folder of the images; prefix of the files that rank 0 leaves */
    int         epochs, batch;          /* batch: examples a step, of all workers together */
    uint64_t    seed;
    int         probe;                  /* steps between two looks at the training loss; 0: none */
    bool        constant;               /* keep the learning rate instead of a cosine to zero */
    double      rate;                   /* first learning rate; 0: the optimizer's own default, which then stays */
    const char *rate_name;              /* "lr" or "learning_rate" */
    char        optimizer[512];         /* "sgd lr=0.1 momentum=0.9" */
} settings;

/* Ends the program with a message when the command line cannot be understood, and after --help. */
void settings_parse(settings *set, int argc, char **argv);

#endif
