#include "settings.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_BATCH = 8192 };

static const struct argp_option options[] = {
    { "url", 'u', "URL", 0, "where paramd listens [PARAMD_URL, else tcp://127.0.0.1:7070]", 1 },
    { "job", 'j', "NAME", 0, "the job to join [PARAMD_JOB, else default]", 1 },
    { "rank", 'r', "N", 0, "this worker's number, from 0 [RANK, else 0]", 1 },
    { "world-size", 'w', "N", 0, "number of workers [WORLD_SIZE, else 1]", 1 },
    { "optimizer", 'o', "NAME", 0, "one of `paramctl optimizers` [sgd]; its hyperparameters follow as name=value", 2 },
    { "epochs", 'e', "N", 0, "times over the training images [8]", 2 },
    { "batch", 'b', "N", 0, "images a step, of all workers together [256]", 2 },
    { "seed", 's', "N", 0, "of the first weights and the images' order [1]", 2 },
    { "train-loss", 't', "N", 0, "every N steps rank 0 adds the loss on 10,000 training images, always the same, to its log [0: never]", 2 },
    { "constant-lr", 'c', NULL, 0, "keep the learning rate; without this it follows a cosine to zero", 2 },
    { "data", 'd', "DIR", 0, "folder of the images [/usr/share/datasets/fashion-mnist]", 3 },
    { "out", 'O', "PREFIX", 0, "rank 0 leaves PREFIX.safetensors, PREFIX.svg and PREFIX.jsonl [fashion]", 3 },
    { 0 },
};

/* What optimizers call the learning rate: each by its upstream's word. */
static const char *const rate_names[] = { "lr", "learning_rate", NULL };

/* What suits this model where the user says nothing else (tests/bench/steps_to.c tries what is near). */
static const struct preset {
    const char *optimizer, *hypers[8];
} presets[] = {
    { "sgd", { "lr=0.1", "momentum=0.9" } },
    { "scalable_shampoo", { "learning_rate=0.05", "beta2=0.99", "block_size=128", "preconditioning_compute_steps=20", "root_method=eigh" } },
    { "kron",
      { "learning_rate=0.001", "merge_small_dims=no", "partition_grads_into_blocks=no", "preconditioner_update_probability=0.2",
        "preconditioner_lr=0.3" } },
    { "adafactor", { "learning_rate=0.04", "beta1=0.9", "decay_rate=0.95" } },
};

static long number(struct argp_state *state, const char *text, long least, long most)
{
    char *end;
    long  value = strtol(text, &end, 10);

    if (end == text || *end != '\0' || value < least || value > most) argp_error(state, "%s: expected a number from %ld to %ld", text, least, most);
    return value;
}

static void add_hyper(settings *set, const char *hyper, struct argp_state *state)
{
    size_t used = strlen(set->optimizer);

    if (strchr(hyper, '=') == NULL || strpbrk(hyper, " \t") != NULL) argp_error(state, "%s: expected name=value", hyper);
    if ((size_t)snprintf(set->optimizer + used, sizeof set->optimizer - used, " %s", hyper) >= sizeof set->optimizer - used)
        argp_error(state, "too many hyperparameters");
    for (const char *const *name = rate_names; *name != NULL; name++)
        if (strncmp(hyper, *name, strlen(*name)) == 0 && hyper[strlen(*name)] == '=') {
            set->rate = atof(strchr(hyper, '=') + 1);
            set->rate_name = *name;
        }
}

/* Did the user say a value for this "name=value"? */
static bool is_said(const settings *set, const char *hyper)
{
    char name[64];

    snprintf(name, sizeof name, " %.*s=", (int)strcspn(hyper, "="), hyper);
    return strstr(set->optimizer, name) != NULL;
}

static void add_presets(settings *set, struct argp_state *state)
{
    size_t name = strcspn(set->optimizer, " ");

    for (size_t p = 0; p < sizeof presets / sizeof *presets; p++) {
        if (strlen(presets[p].optimizer) != name || strncmp(set->optimizer, presets[p].optimizer, name) != 0) continue;
        for (const char *const *hyper = presets[p].hypers; *hyper != NULL; hyper++)
            if (!is_said(set, *hyper)) add_hyper(set, *hyper, state);
    }
}

/* The optimizer's name goes first, whatever came before it on the command line. */
static void name_optimizer(settings *set, const char *name, struct argp_state *state)
{
    const char *hypers = strchr(set->optimizer, ' ');
    char        whole[sizeof set->optimizer];

    if ((size_t)snprintf(whole, sizeof whole, "%s%s", name, hypers == NULL ? "" : hypers) >= sizeof whole) argp_error(state, "%s: too long", name);
    memcpy(set->optimizer, whole, sizeof whole);
}

static error_t on_option(int key, char *text, struct argp_state *state)
{
    settings *set = state->input;

    switch (key) {
    case 'u': set->url = text; break;
    case 'j': set->job = text; break;
    case 'r': set->rank = (int)number(state, text, 0, 65535); break;
    case 'w': set->world_size = (int)number(state, text, 1, 65536); break;
    case 'o': name_optimizer(set, text, state); break;
    case 'e': set->epochs = (int)number(state, text, 1, 10000); break;
    case 'b': set->batch = (int)number(state, text, 1, MOST_BATCH); break;
    case 's': set->seed = (uint64_t)number(state, text, 0, 1L << 62); break;
    case 't': set->probe = (int)number(state, text, 0, 1000000); break;
    case 'c': set->constant = true; break;
    case 'd': set->data = text; break;
    case 'O': set->out = text; break;
    case ARGP_KEY_ARG: add_hyper(set, text, state); break;
    case ARGP_KEY_END:
        if (set->rank != 0 && set->world_size == 0) argp_error(state, "--rank needs --world-size");
        add_presets(set, state);
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

void settings_parse(settings *set, int argc, char **argv)
{
    static const struct argp argp = { options, on_option, "[name=value...]",
        "Trains a classifier of Fashion-MNIST as one of several workers of a paramd job.", NULL, NULL, NULL };

    argp_program_version = "fashion (paramd " PD_VERSION ")";
    argp_err_exit_status = 2;
    *set = (settings){ .data = "/usr/share/datasets/fashion-mnist", .out = "fashion", .epochs = 8, .batch = 256, .seed = 1, .rate_name = "lr", .optimizer = "sgd" };
    argp_parse(&argp, argc, argv, 0, NULL, set);
}
