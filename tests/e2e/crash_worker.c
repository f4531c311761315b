/* crash_worker.c - a worker for crash_loop.sh whose weights depend on its seed alone, however often it is killed.
 *
 * Each gradient is a function of the worker's generator (a random state that it saves in the note of each step), the
 * parameter and the parameter's weights; with --whole also of weights of all other parameters. So a wrong note, a lost
 * or doubled contribution, or wrong weights after a restart give other weights at the end. Prints one line for each
 * event: "SECONDS EVENT STEP DURABLE HASH", where DURABLE is the durable step that the server has reported, and HASH is
 * the XXH3 of all weights. With --tenures the line ends with the tenures of all shards' owners, as " 3,4,9". */
#include "paramd/client.h"

#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <xxhash.h>

enum { WINDOW = 200, MOST_PARAMS = 5, MOST_OPTIONS = 16, MOST_RULES = 8, MOST_ELEMENTS = 2304, MOST_SHARDS = 8 };

static const struct {
    const char *name;
    pd_shape shape;
    int64_t elements;
} model[MOST_PARAMS] = {
    { "embedding", { 2, { 96, 24 } }, 2304 },
    { "middle", { 2, { 24, 16 } }, 384 },
    { "head", { 2, { 16, 10 } }, 160 },
    { "bias", { 1, { 10 } }, 10 },
    { "scale", { 0, { 0 } }, 1 },
};

/* What a note contains: everything that the worker needs to go on after a step, besides weights. */
typedef struct note {
    uint64_t step;      /* step after which the generator had this state */
    uint64_t generator; /* random state from which the next step's gradients follow */
} note;

typedef struct settings {
    const char *url, *out, *until;
    const char *rules[MOST_RULES + 1], *options[MOST_OPTIONS + 1];
    size_t n_rules, n_options;
    int rank, world;
    uint64_t seed, steps, window;
    double delay, deadline;
    bool whole;   /* gradients depend on the weights of all parameters, whose steps are taken together */
    bool loses;   /* the server's disk may be lost, and then durable steps are taken again */
    bool tenures; /* lines have the tenures of the owners of all shards */
} settings;

typedef struct worker {
    const settings *set;
    pd_client *client;
    note at;                       /* the step that all weights have, and the generator after it */
    uint64_t durable;              /* largest durable step that the server has reported */
    uint64_t tenures[MOST_SHARDS]; /* of the owners of all shards, as last reported */
    uint64_t began; /* highest step of a parameter when this process began; UINT64_MAX: it has not begun yet */
    float *weights[MOST_PARAMS], *gradients[MOST_PARAMS];
} worker;

static double seconds_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static uint64_t hash_weights(const worker *w)
{
    uint64_t hash = 0;

    for (size_t p = 0; p < MOST_PARAMS; p++)
        hash = XXH3_64bits_withSeed(w->weights[p], (size_t)model[p].elements * sizeof(float), hash);
    return hash;
}

/* Prints the tenures of all shards' owners, and remembers them: none must ever become smaller. */
static void print_tenures(worker *w)
{
    for (size_t i = 0; i < MOST_SHARDS && i < pd_client_shards(w->client, 0, NULL, 0, NULL); i++) {
        uint64_t tenure = 0;
        pd_client_shards(w->client, i, NULL, 0, &tenure);
        printf("%c%llu", i == 0 ? ' ' : ',', (unsigned long long)tenure);
        if (tenure < w->tenures[i]) {
            fprintf(stderr, "rank %d: the tenure of shard %zu went from %llu back to %llu\n", w->set->rank, i,
                    (unsigned long long)w->tenures[i], (unsigned long long)tenure);
            exit(1);
        }
        w->tenures[i] = tenure;
    }
}

/* Prints a line for crash_loop.sh and cluster_net.py, and remembers the durable step, which must never become smaller
 * unless disks are lost. */
static void report(worker *w, const char *event, uint64_t step)
{
    uint64_t durable = pd_client_durable(w->client);

    printf("%.6f %s %llu %llu %016llx", seconds_now(), event, (unsigned long long)step, (unsigned long long)durable,
           (unsigned long long)hash_weights(w));
    if (w->set->tenures) print_tenures(w);
    printf("\n");
    fflush(stdout);
    if (durable >= w->durable || w->set->loses) {
        w->durable = durable;
        return;
    }
    fprintf(stderr, "rank %d: the durable step went from %llu back to %llu\n", w->set->rank,
            (unsigned long long)w->durable, (unsigned long long)durable);
    exit(1);
}

static _Noreturn void stop(const worker *w, const char *call, int code, const char *text)
{
    fprintf(stderr, "rank %d, after step %llu: %s: %s: %s\n", w->set->rank, (unsigned long long)w->at.step, call,
            pd_code_name(code), text);
    exit(1);
}

/* Returns the next random number (splitmix64). */
static uint64_t next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static float small(uint64_t *state)
{
    return (float)(int)(next(state) >> 40) / (1 << 23) - 1;
}

static void compute_gradient(const worker *w, size_t p)
{
    uint64_t state = w->at.generator ^ (p + 1) * 0xd6e8feb86659fd93u;
    float mixed = 0;

    for (size_t q = 0; w->set->whole && q < MOST_PARAMS; q++) mixed += w->weights[q][0] / (float)(q + 2);
    for (int64_t i = 0; i < model[p].elements; i++)
        w->gradients[p][i] = small(&state) + 0.05f * (w->weights[p][i] + mixed);
}

static void make_buffers(worker *w)
{
    for (size_t p = 0; p < MOST_PARAMS; p++) {
        uint64_t state = w->set->seed * 31 + p;
        w->weights[p] = malloc(MOST_ELEMENTS * sizeof(float));
        w->gradients[p] = malloc(MOST_ELEMENTS * sizeof(float));
        if (w->weights[p] == NULL || w->gradients[p] == NULL) stop(w, "malloc", PD_NO_MEMORY, "no memory");
        for (int64_t i = 0; i < model[p].elements; i++) w->weights[p][i] = small(&state);
    }
}

static note first_note(const settings *set)
{
    uint64_t state = set->seed << 8 | (uint64_t)set->rank;

    return (note){ .step = 0, .generator = next(&state) };
}

/* Returns the note of the step after `at`. */
static note note_after(note at)
{
    next(&at.generator);
    at.generator ^= at.step << 17;
    at.step++;
    return at;
}

static void open_job(worker *w)
{
    const settings *set = w->set;
    pd_client_options options = { .urls = set->url,
                                  .job = "crash",
                                  .rank = set->rank,
                                  .world_size = set->world,
                                  .rules = set->rules,
                                  .options = set->options,
                                  .window = (uint32_t)set->window,
                                  .deadline = set->deadline,
                                  .quiet = true };
    pd_client_param params[MOST_PARAMS];
    pd_error err;
    int rc;

    memset(params, 0, sizeof params);
    for (size_t p = 0; p < MOST_PARAMS; p++)
        params[p] = (pd_client_param){ .name = model[p].name, .shape = model[p].shape };
    if ((rc = pd_client_open(&w->client, &options, &err)) != PD_OK) stop(w, "open", rc, err.text);
    if ((rc = pd_client_declare(w->client, params, MOST_PARAMS, &err)) != PD_OK) stop(w, "declare", rc, err.text);
}

/* Returns the lowest step of the parameters. A parameter may be one step ahead if this rank's last process pushed it
 * before it was killed. */
static uint64_t lowest_step(const worker *w)
{
    uint64_t lowest = pd_client_step(w->client, 0);

    for (size_t p = 1; p < MOST_PARAMS; p++)
        if (pd_client_step(w->client, p) < lowest) lowest = pd_client_step(w->client, p);
    return lowest;
}

/* Receives the weights of all parameters after a step. */
static int pull(worker *w, uint64_t step, pd_error *err)
{
    pd_item items[MOST_PARAMS];
    pd_ticket_id ticket;
    int rc;

    for (size_t p = 0; p < MOST_PARAMS; p++) items[p] = (pd_item){ .param = p, .weights = w->weights[p] };
    rc = pd_client_pull(w->client, items, MOST_PARAMS, step, &ticket, err);
    return rc == PD_OK ? pd_client_wait(w->client, ticket, 0, err) : rc;
}

/* Checks that a note belongs to the step at which the weights are, and goes on from there. */
static void take_note(worker *w, note got, size_t bytes, uint64_t step)
{
    uint64_t lowest = lowest_step(w);

    if (lowest > 0 && (bytes != sizeof got || step != lowest || got.step != lowest)) {
        fprintf(stderr, "rank %d: the job is at step %llu, but the note is of step %llu (it says %llu, in %zu bytes)\n",
                w->set->rank, (unsigned long long)lowest, (unsigned long long)step, (unsigned long long)got.step,
                bytes);
        exit(1);
    }
    w->at = lowest > 0 ? got : first_note(w->set);
}

/* Reads this rank's note of the step at which the job is. If a round has closed since this process got weights, with
 * what an earlier process of the rank had pushed, the note is newer than they are. Returns an error's code. */
static int recall(worker *w, pd_error *err)
{
    note got = first_note(w->set);
    uint64_t step;
    size_t bytes;
    int rc;

    for (;;) {
        rc = pd_client_recall(w->client, &got, sizeof got, &bytes, &step, err);
        if (rc != PD_OK || step <= lowest_step(w)) break;
        if ((rc = pull(w, step, err)) != PD_OK) break;
    }
    if (rc == PD_OK) take_note(w, got, bytes, step);
    return rc;
}

/* Returns the highest step of the parameters. */
static uint64_t highest_step(const worker *w)
{
    uint64_t highest = 0;

    for (size_t p = 0; p < MOST_PARAMS; p++)
        if (pd_client_step(w->client, p) > highest) highest = pd_client_step(w->client, p);
    return highest;
}

/* Goes back to the server's checkpoint, after a call has returned PD_REWIND. A server that is killed meanwhile goes
 * back once more. A process with a window goes back only behind the step with which it began: it has no pushes of the
 * steps before. */
static void go_back(worker *w)
{
    pd_error err;
    int rc;

    do {
        rc = pd_client_rewind(w->client, (void *const *)w->weights, &err);
        if (rc == PD_OK) rc = recall(w, &err);
    } while (rc == PD_REWIND);
    if (rc != PD_OK) stop(w, "rewind", rc, err.text);
    report(w, "rewound", w->at.step);
    if (w->set->window > 0 && w->at.step >= w->began && !w->set->loses)
        stop(w, "a step", PD_REWIND, "the window has the pushes since then, so they should have been sent again");
    w->began = highest_step(w);
}

/* Begins or goes on with the job as a new process does. */
static void begin(worker *w)
{
    pd_error err;
    int rc;

    open_job(w);
    rc = pd_client_init(w->client, (void *const *)w->weights, &err);
    if (rc == PD_OK) rc = recall(w, &err);
    if (rc != PD_OK && rc != PD_REWIND) stop(w, "init", rc, err.text);
    if (rc == PD_REWIND) go_back(w);
    w->began = highest_step(w);
    report(w, "begins", w->at.step);
}

/* Pushes the next step of the parameters that have not taken it, with its note. Waits for the weights. */
static int take_step(worker *w, pd_error *err)
{
    note after = note_after(w->at);
    pd_push_options options = { .note = &after, .note_bytes = sizeof after };
    pd_item items[MOST_PARAMS];
    pd_ticket_id ticket;
    size_t n = 0;
    int rc;

    for (size_t p = 0; p < MOST_PARAMS; p++) {
        if (pd_client_step(w->client, p) > w->at.step) continue;
        compute_gradient(w, p);
        items[n++] = (pd_item){ .param = p, .gradient = w->gradients[p], .weights = w->weights[p] };
    }
    rc = pd_client_push_pull(w->client, items, n, &options, &ticket, err);
    if (rc == PD_OK) rc = pd_client_wait(w->client, ticket, 0, err);
    if (rc == PD_OK) w->at = after;
    return rc;
}

/* Returns the last step to take: --steps, or the number in the file --until once crash_loop.sh has written it. */
static uint64_t last_step(const worker *w)
{
    unsigned long long last = w->set->steps;
    FILE *file = w->set->until != NULL ? fopen(w->set->until, "r") : NULL;

    if (file == NULL) return last;
    if (fscanf(file, "%llu", &last) != 1) stop(w, "--until", PD_INVALID_ARGUMENT, "the file has no number");
    fclose(file);
    return last;
}

static void train(worker *w)
{
    const struct timespec delay = { 0, (long)(w->set->delay * 1e9) };
    pd_error err;
    uint64_t last;
    int rc;

    while (w->at.step < (last = last_step(w))) {
        rc = take_step(w, &err);
        if (rc == PD_OK)
            report(w, "step", w->at.step);
        else if (rc == PD_REWIND)
            go_back(w);
        else
            stop(w, "step", rc, err.text);
        if (w->set->delay > 0) nanosleep(&delay, NULL);
    }
    if (w->at.step > last) stop(w, "--until", PD_OUT_OF_RANGE, "this step was taken before the file was written");
}

/* Waits until the last step is durable: from then on nothing that happens to the server takes it back. Returns false
 * if the server went back before. */
static bool make_durable(worker *w)
{
    pd_error err;
    int rc = pd_client_sync(w->client, w->at.step, &err);

    if (rc == PD_REWIND) {
        go_back(w);
        return false;
    }
    if (rc != PD_OK) stop(w, "sync", rc, err.text);
    return true;
}

static void write_result(worker *w)
{
    pd_client_stats stats = pd_client_count(w->client);
    uint64_t hash = hash_weights(w);
    FILE *file = fopen(w->set->out, "w");

    if (file == NULL) stop(w, w->set->out, PD_UNAVAILABLE, "the file cannot be written");
    hash = XXH3_64bits_withSeed(&w->at, sizeof w->at, hash);
    fprintf(file, "%016llx %llu %llu %llu\n", (unsigned long long)hash, (unsigned long long)w->at.step,
            (unsigned long long)stats.rewinds, (unsigned long long)stats.replayed);
    if (fclose(file) != 0) stop(w, w->set->out, PD_UNAVAILABLE, "the file cannot be written");
}

static void leave(worker *w)
{
    pd_error err;
    int rc = pd_client_leave(w->client, &err);

    if (rc != PD_OK && rc != PD_DATA_LOSS) stop(w, "leave", rc, err.text);
    pd_client_close(w->client);
}

enum { OPT_UNTIL = 256, OPT_DELAY, OPT_DEADLINE, OPT_WORLD, OPT_WHOLE, OPT_LOSES, OPT_TENURES };

static const struct argp_option options[] = {
    { "url", 'u', "ADDRESS", 0, "Address of the server", 0 },
    { "rank", 'r', "N", 0, "Rank of this worker", 0 },
    { "world", OPT_WORLD, "N", 0, "Number of workers", 0 },
    { "seed", 's', "N", 0, "Seed from which all gradients follow", 0 },
    { "mode", 'm', "window|rewind|log", 0, "Keep a window, or handle PD_REWIND", 0 },
    { "steps", 'n', "N", 0, "Steps to take", 0 },
    { "until", OPT_UNTIL, "FILE", 0, "Take as many steps as the number in the file says, once the file is there", 0 },
    { "rule", 'R', "RULE", 0, "A rule of the job; may be given several times", 0 },
    { "option", 'o', "NAME=VALUE", 0, "An option of the job; may be given several times", 0 },
    { "whole", OPT_WHOLE, NULL, 0, "Let gradients depend on the weights of all parameters", 0 },
    { "loses-disks", OPT_LOSES, NULL, 0, "Accept that durable steps are lost with the server's disk", 0 },
    { "tenures", OPT_TENURES, NULL, 0, "Print the tenures of all shards' owners, which must not fall", 0 },
    { "delay", OPT_DELAY, "SECONDS", 0, "Pause after each step, less than 1", 0 },
    { "deadline", OPT_DEADLINE, "SECONDS", 0, "Most seconds that a call waits", 0 },
    { "out", 'O', "FILE", 0, "File for the hash of the final weights, the step, and counts", 0 },
    { 0 }
};

static error_t parse(int key, char *value, struct argp_state *state)
{
    settings *set = state->input;

    switch (key) {
    case 'u': set->url = value; return 0;
    case 'r': set->rank = atoi(value); return 0;
    case OPT_WORLD: set->world = atoi(value); return 0;
    case 's': set->seed = strtoull(value, NULL, 10); return 0;
    case 'm': set->window = strcmp(value, "window") == 0 ? WINDOW : 0; return 0;
    case 'n': set->steps = strtoull(value, NULL, 10); return 0;
    case OPT_UNTIL: set->until = value; return 0;
    case 'R':
        if (set->n_rules < MOST_RULES) set->rules[set->n_rules++] = value;
        return 0;
    case 'o':
        if (set->n_options < MOST_OPTIONS) set->options[set->n_options++] = value;
        return 0;
    case OPT_WHOLE: set->whole = true; return 0;
    case OPT_LOSES: set->loses = true; return 0;
    case OPT_TENURES: set->tenures = true; return 0;
    case OPT_DELAY: set->delay = strtod(value, NULL); return 0;
    case OPT_DEADLINE: set->deadline = strtod(value, NULL); return 0;
    case 'O': set->out = value; return 0;
    case ARGP_KEY_END:
        if (set->out == NULL) argp_error(state, "--out is missing");
        return 0;
    default: return ARGP_ERR_UNKNOWN;
    }
}

int main(int argc, char **argv)
{
    static const struct argp argp = { options, parse, NULL, "A worker that may be killed.", NULL, NULL, NULL };
    static settings set = { .world = 1, .steps = 100, .seed = 1, .deadline = 30 };
    static worker w = { .set = &set, .began = UINT64_MAX };

    argp_parse(&argp, argc, argv, 0, NULL, &set);
    w.at = first_note(&set);
    make_buffers(&w);
    begin(&w);
    do train(&w);
    while (!make_durable(&w));
    report(&w, "done", w.at.step);
    write_result(&w);
    leave(&w);
    return 0;
}
