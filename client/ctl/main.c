/* paramctl - the operator's program: asks a daemon, proves a build, measures a machine. */
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ctl.h"

enum { KEY_LOCAL = 256, KEY_STATE, KEY_WITHIN, KEY_WORKERS, KEY_TENSORS, KEY_FLOATS, KEY_ROUNDS, KEY_RULE, KEY_OPTION, KEY_WORLD, KEY_THREADS, KEY_POOL, KEY_FROM, KEY_PARTIAL };

static const struct argp_option common_options[] = {
    { "server",  's', "URL",     0, "Daemon to talk to: tcp://host:port or unix:///path (default: $PARAMD_URL, else tcp://127.0.0.1:7070)", 1 },
    { "timeout", 't', "SECONDS", 0, "Give up after so long without an answer (default 5)", 1 },
    { "json",    'j', NULL,      0, "Print JSON for machines instead of text for people", 1 },
    { 0 }
};
static const struct argp_option ping_options[] = {
    { "quiet", 'q', NULL, 0, "Print nothing: the exit status is the answer", 0 },
    { 0 }
};
static const struct argp_option drain_options[] = {
    { "within", KEY_WITHIN, "SECONDS", 0, "Time that open rounds have to finish (default 60)", 0 },
    { 0 }
};
static const struct argp_option params_options[] = {
    { "verbose", 'v', NULL, 0, "Also show axes, remarks, the scalars of the last round and the error that is kept of each root", 0 },
    { 0 }
};
static const struct argp_option import_options[] = {
    { "partial", KEY_PARTIAL, NULL, 0, "Pass over what the job does not know, and leave what the file does not have as it is", 0 },
    { "verbose", 'v',         NULL, 0, "List all names that are unknown or missing", 0 },
    { NULL, 0, NULL, 0, "FILE is a safetensors file. Names that it may have, for a parameter NAME:\n"
                        "NAME.SLOT, NAME.block_B.SLOT.I, NAME.step: as `paramctl state JOB' lists them.\n"
                        "NAME[\"block_B\", \"shampoo\", \"factor_matrices\", I, \"quantized_values\"], NAME[\"step\"]: flat keys of Meta's distributed_state_dict.\n"
                        "count, stats/NAME/momentum/quantized, stats/NAME/statistics/I: paths into scalable_shampoo's ShampooState; integers with their bucket_size and diagonal.\n"
                        "step, param_states/NAME/v_row (v_col, v, m): T5X's Adafactor.\n"
                        "count, update_counter, mu/NAME, Qs_preconditioners/NAME/I: distributed_kron.\n"
                        "Paths may be joined by / or ., or be jax.tree_util.keystr's; an index or a word like opt_state may stand before, and NAME may have "
                        "either separator.", 1 },
    { 0 }
};
static const struct argp_option replay_options[] = {
    { "local",   KEY_LOCAL, NULL, 0, "Run the optimizer in this process instead of through a daemon", 0 },
    { "state",   KEY_STATE, NULL, 0, "With --local: also compare recorded optimizer state", 0 },
    { "verbose", 'v',       NULL, 0, "Also show each parameter's largest error", 0 },
    { 0 }
};
static const struct argp_option bench_options[] = {
    { "workers", KEY_WORKERS, "W", 0, "Client connections, one thread each (default 4)", 0 },
    { "tensors", KEY_TENSORS, "N", 0, "Tensors that each pushes and pulls in a round (default 25)", 0 },
    { "floats",  KEY_FLOATS,  "F", 0, "Elements of a tensor (default 1048576)", 0 },
    { "rounds",  KEY_ROUNDS,  "R", 0, "Rounds measured, at least 5 (default 20)", 0 },
    { 0 }
};

static const struct argp_option plan_options[] = {
    { "rule",    KEY_RULE, "RULE", 0, "\"GLOB OPTIMIZER name=value ...\", as a job gives it; may be repeated, the first that matches wins (default \"* sgd\")", 0 },
    { "workers", KEY_WORLD, "W",   0, "Workers of the job (default 1)", 0 },
    { "option",  KEY_OPTION, "KEY=VALUE", 0, "Of the job, as its workers give it: aggregate=median, say; may be repeated", 0 },
    { "threads", KEY_THREADS, "T", 0, "Threads of the daemon that take optimizer steps, its step_threads (default 1)", 0 },
    { "pool-threads", KEY_POOL, "P", 0, "Threads of the daemon that compute roots, its pool_threads (default 1)", 0 },
    { "verbose", 'v',      NULL,   0, "List every parameter, slot and task; without it those that are alike share a line", 0 },
    { 0 }
};

static const struct argp_option set_options[] = {
    { "from", KEY_FROM, "STEP", 0, "Step from which it holds (default: each parameter's next step that has not begun)", 0 },
    { 0, 0, 0, OPTION_DOC, "Parameters whose name matches PATTERN (* is all) take what their optimizer has of it, or nothing changes. VALUE is a number, flag or "
      "schedule, as in a job's rules, and goes before values sent with a push; NAME= withdraws what was set before.", 0 },
    { 0 }
};
static const struct argp_option settings_options[] = {
    { "verbose", 'v', NULL, 0, "List every parameter; without it those that are alike share a line", 0 },
    { 0 }
};

/* Every command. A new one needs a line here and a function. */
typedef struct command {
    const char *name;
    const char *args;                       /* as the help shows them */
    const char *about;
    const struct argp_option *options;      /* its own, beside the common ones */
    int least, most;                        /* arguments */
    int (*run)(const pd_ctl *ctl);
} command;

static const command commands[] = {
    { "ping",       "",               "Ask whether the daemon answers",                 ping_options,   0, 0, pd_ctl_ping },
    { "status",     "",               "Show memory, traffic and jobs",                  NULL,           0, 0, pd_ctl_status },
    { "jobs",       "",               "List jobs",                                      NULL,           0, 0, pd_ctl_jobs },
    { "params",     "JOB",            "List a job's parameters and whom they wait for",  params_options, 1, 1, pd_ctl_params },
    { "workers",    "JOB",            "List a job's workers",                           NULL,           1, 1, pd_ctl_workers },
    { "roots",      "JOB [PARAM-GLOB]", "List the inverse roots of a job's blocks",   NULL,           1, 2, pd_ctl_roots },
    { "state",      "JOB [PARAM-GLOB]", "List the tensors of a job's optimizer state", NULL,          1, 2, pd_ctl_state },
    { "import-state", "JOB FILE",     "Put saved optimizer state into a job", import_options, 2, 2, pd_ctl_import_state },
    { "optimizers", "[NAME]",         "List optimizers, or one's hyperparameters",       NULL,           0, 1, pd_ctl_optimizers },
    { "set",        "JOB PATTERN NAME=VALUE...", "Set hyperparameters while a job runs", set_options,  3, 2 + 64, pd_ctl_set },
    { "settings",   "JOB [PARAM-GLOB]", "List what operators have set in a job",       settings_options, 1, 2, pd_ctl_settings },
    { "drop",       "JOB",            "End a job; its workers get an error",            NULL,           1, 1, pd_ctl_drop },
    { "drain",      "",               "Finish the open steps and take no new ones",     drain_options,  0, 0, pd_ctl_drain },
    { "shutdown",   "",               "Stop the daemon",                                NULL,           0, 0, pd_ctl_shutdown },
    { "replay",     "TRACE|FOLDER...", "Replay recorded runs, compare the weights",     replay_options, 1, 1 << 20, pd_ctl_replay },
    { "plan",       "FILE",           "Tell what a model's optimizer costs", plan_options, 1, 1, pd_ctl_plan },
    { "bench",      "net",            "Measure throughput beside bare TCP",             bench_options,  1, 1, pd_ctl_bench },
    { 0 }
};

static const command *find_command(const char *name)
{
    for (const command *c = commands; c->name != NULL; c++) {
        if (strcmp(c->name, name) == 0) return c;
    }
    return NULL;
}

static double seconds(const char *text, struct argp_state *state)
{
    char *end;
    double value = strtod(text, &end);

    if (end == text || *end != '\0' || !(value > 0) || value > 1e6) {
        argp_error(state, "%s: expected a number of seconds above 0 and at most 1000000", text);
    }
    return value;
}

static int64_t number(const char *text, int64_t least, int64_t most, struct argp_state *state)
{
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);

    if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
        argp_error(state, "%s: expected a whole number from %lld to %lld", text, (long long)least, (long long)most);
    }
    return value;
}

static void add_rule(pd_ctl *ctl, char *rule, struct argp_state *state)
{
    if (ctl->n_rules == PD_CTL_RULES) argp_error(state, "more than %d rules", PD_CTL_RULES);
    ctl->rules[ctl->n_rules++] = rule;
}

static void add_option(pd_ctl *ctl, char *option, struct argp_state *state)
{
    if (ctl->n_options == PD_CTL_OPTIONS) argp_error(state, "more than %d options", PD_CTL_OPTIONS);
    if (strchr(option, '=') == NULL) argp_error(state, "--option %s: expected KEY=VALUE", option);
    ctl->options[ctl->n_options++] = option;
}

/* All options of all commands: an option means the same wherever it is offered. */
static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    pd_ctl *ctl = state->input;

    switch (key) {
    case 's':         ctl->server = arg; break;
    case 't':         ctl->timeout = seconds(arg, state); break;
    case 'j':         ctl->json = true; break;
    case 'q':         ctl->quiet = true; break;
    case 'v':         ctl->verbose = true; break;
    case KEY_LOCAL:   ctl->local = true; break;
    case KEY_STATE:   ctl->state = true; break;
    case KEY_WITHIN:  ctl->within = seconds(arg, state); break;
    case KEY_WORKERS: ctl->workers = number(arg, 1, 256, state); break;
    case KEY_TENSORS: ctl->tensors = number(arg, 1, 1 << 20, state); break;
    case KEY_FLOATS:  ctl->floats = number(arg, 1, 1ll << 32, state); break;
    case KEY_ROUNDS:  ctl->rounds = number(arg, 5, 100000, state); break;
    case KEY_FROM:    ctl->from = number(arg, 1, INT64_MAX, state); break;
    case KEY_PARTIAL: ctl->partial = true; break;
    case KEY_RULE:    add_rule(ctl, arg, state); break;
    case KEY_OPTION:  add_option(ctl, arg, state); break;
    case KEY_WORLD:   ctl->world = number(arg, 0, UINT32_MAX, state); break;
    case KEY_THREADS: ctl->threads = number(arg, 1, 1024, state); break;
    case KEY_POOL:    ctl->pool_threads = number(arg, 1, 60, state); break;
    default:          return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

static const struct argp common_argp = { .options = common_options, .parser = parse_option };
static const struct argp_child common_child[] = { { &common_argp, 0, NULL, 0 }, { 0 } };

/* ---- the command's own part of the line ---- */

typedef struct line {
    pd_ctl         ctl;
    const command *command;
    int            rest;            /* index in argv of the command's name */
} line;

static error_t parse_command_part(int key, char *arg, struct argp_state *state)
{
    line *l = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &l->ctl;
        return 0;
    case ARGP_KEY_ARGS:
        l->ctl.args = state->argv + state->next;
        l->ctl.n_args = state->argc - state->next;
        return 0;
    case ARGP_KEY_END:
        if (l->ctl.n_args < l->command->least) argp_error(state, "%s is missing", l->command->args);
        if (l->ctl.n_args > l->command->most) argp_error(state, "%s: one argument too many", l->ctl.args[l->command->most]);
        return 0;
    default: {
        void *input = state->input;
        error_t rc;
        state->input = &l->ctl;
        rc = parse_option(key, arg, state);
        state->input = input;
        return rc;
    }
    }
}

static int run_command(line *l, int argc, char **argv)
{
    char name[64];
    struct argp argp = { .options = l->command->options, .parser = parse_command_part, .args_doc = l->command->args,
                         .doc = l->command->about, .children = common_child };

    snprintf(name, sizeof name, "paramctl %s", l->command->name);
    argv[l->rest] = name;
    if (argp_parse(&argp, argc - l->rest, argv + l->rest, 0, NULL, l) != 0) return PD_EXIT_USAGE;
    return l->command->run(&l->ctl);
}

/* ---- the line up to the command ---- */

static error_t parse_line(int key, char *arg, struct argp_state *state)
{
    line *l = state->input;

    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &l->ctl;
        return 0;
    case ARGP_KEY_ARG:
        if ((l->command = find_command(arg)) == NULL) argp_error(state, "%s: no such command", arg);
        l->rest = state->next - 1;
        state->next = state->argc;              /* the rest is the command's */
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_state_help(state, stderr, ARGP_HELP_SHORT_USAGE | ARGP_HELP_SEE);
        exit(PD_EXIT_USAGE);
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* The list of commands, for --help. */
static char *list_commands(int key, const char *text, void *input)
{
    char *list = NULL;
    size_t size = 0;
    FILE *out;

    (void)input;
    if (key != ARGP_KEY_HELP_POST_DOC || (out = open_memstream(&list, &size)) == NULL) return (char *)text;
    fprintf(out, "Commands (paramctl COMMAND --help tells more):\n");
    for (const command *c = commands; c->name != NULL; c++) fprintf(out, "  %-13s%-16s %s\n", c->name, c->args, c->about);
    fprintf(out, "\nExit status: 0 ok, 1 the server said no or a replay failed, 2 usage, 3 unreachable.");
    fclose(out);
    return list;
}

int main(int argc, char **argv)
{
    line l = { .ctl = { .timeout = 5, .within = 60, .workers = 4, .tensors = 25, .floats = 1 << 20, .rounds = 20, .world = 1, .threads = 1, .pool_threads = 1 } };
    struct argp argp = { .parser = parse_line, .args_doc = "COMMAND [ARGUMENT...]", .children = common_child, .help_filter = list_commands,
                         .doc = "Asks a paramd daemon, proves a build by replaying recorded runs, measures a machine.\v(commands)" };

    argp_program_version = "paramctl " PD_VERSION;      /* assigned, not defined: a hidden symbol would be no news to libc */
    argp_err_exit_status = PD_EXIT_USAGE;
    if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &l) != 0) return PD_EXIT_USAGE;
    return run_command(&l, argc, argv);
}
