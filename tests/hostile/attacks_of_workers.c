/* attacks_of_workers.c - attacks by requests of workers. */
#include "attacks.h"

#include <fcntl.h>
#include <sys/mman.h>

enum { REQUESTS = 980, CONTROLS = 16, WORKERS = 8, NOTE_BYTES = 1 << 20, SMALL = 1000 };

/* A job of two workers, of which one never pushes: all that the other sends waits, until the step's deadline. */
static bool prepare_waiting(attack_scene *s)
{
    s->most = REQUESTS;
    if (!attack_make_impatient_job(s, 2)) return false;
    s->foes[0] = s->host;
    s->host = (foe){ 0 };
    s->n = 1;
    return true;
}

static bool prepare_last(attack_scene *s)
{
    s->frames = calloc(1, sizeof *s->frames);
    if (s->frames == NULL) return false;
    s->frames[0] = foe_pack_last(1);
    s->n_frames = 1;
    return prepare_waiting(s);
}

/* A job of one worker, whose steps consist of `last` alone. */
static bool prepare_alone(attack_scene *s)
{
    return attack_make_job(s, 1);
}

static void run_last_steps(attack_scene *s)
{
    for (uint64_t step = 1; s->host.fd >= 0 && !foe_over(s->side); step++) {
        foe_frame frame = foe_pack_last(step);
        (void)foe_call(&s->host, &frame);
        s->host.out = NULL;
        foe_frame_free(&frame);
    }
}

static bool prepare_absent(attack_scene *s)
{
    bool done = prepare_waiting(s);

    s->n_frames = foe_push_frames(&s->frames, &s->set, PD_PUSH, 1, true, false);
    return done;
}

static bool prepare_pieces(attack_scene *s)
{
    bool done = prepare_waiting(s);

    s->n_frames = foe_push_frames(&s->frames, &s->set, PD_PUSH, 1, false, false);
    return done;
}

/* Rounds of all parameters are open, and their deadline passes again and again. */
static bool prepare_open_rounds(attack_scene *s)
{
    bool done = prepare_last(s);

    s->most = 1;
    return done;
}

static void run_steps(attack_scene *s)
{
    for (uint64_t step = 1; s->host.fd >= 0 && !foe_over(s->side); step++) {
        foe_frame *frames;
        size_t n = foe_push_frames(&frames, &s->set, PD_PUSH_PULL, step, false, false);
        (void)foe_send_all(&s->host, frames, n, n);
        s->host.out = NULL;
        foe_frames_free(frames, n);
    }
}

static bool prepare_pulls(attack_scene *s)
{
    s->most = REQUESTS;
    if (!attack_make_job(s, 1)) return false;
    s->foes[0] = s->host;
    s->host = (foe){ 0 };
    s->n = 1;
    s->n_frames = foe_pull_frames(&s->frames, &s->set, 0);
    return true;
}

static bool prepare_waiting_pulls(attack_scene *s)
{
    bool done = prepare_waiting(s);

    s->n_frames = foe_pull_frames(&s->frames, &s->set, 1000);
    return done;
}

/* The shapes of rules that attack: one set as long as Hello allows, many short globs, some of 256 bytes. */
enum { SHAPES = 3, SET_BYTES = 3700, LONG_RULES = 13 };

static const char *const *shape_of(int shape)
{
    static char set[SET_BYTES + 32], longs[LONG_RULES][300];
    static const char *rules[FOE_MOST_RULES + 1];
    size_t n = 0;

    if (shape == 0) {
        memcpy(set, "*[", 2);
        memset(set + 2, 'b', SET_BYTES);
        strcpy(set + 2 + SET_BYTES, "]x sgd");
        rules[n++] = set;
    }
    while (shape == 1 && n < FOE_MOST_RULES - 1) rules[n++] = "*a*a*b sgd";
    for (const char *const *at = attack_patterns(); shape == 2 && n < LONG_RULES; n++, at++) {
        if (strlen(*at) < 200) at = attack_patterns();
        strcpy(longs[n], *at);
        strcat(longs[n], " sgd");
        rules[n] = longs[n];
    }
    rules[n++] = "* sgd lr=0.1";
    rules[n] = NULL;
    return rules;
}

static bool prepare_set(attack_scene *s)
{
    foe_set_make(&s->set, s->params, 1);
    return true;
}

static void drop(attack_scene *s)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;

    if (s->host2.side == NULL || s->host2.fd < 0) (void)foe_join(&s->host2, s->side, &(foe_hello){ .job = "" });
    request.job = (char *)s->job;
    if (s->host2.fd >= 0) (void)foe_ask(&s->host2, PD_DROP, &request.base, 0);
}

/* Creates the job with hostile rules, declares its parameters, and drops it, again and again. */
static void run_rules(attack_scene *s)
{
    for (uint64_t i = 0; !foe_over(s->side); i++) {
        foe_hello hello = { .job = s->job, .world = 1, .nonce = i + 1, .rules = shape_of((int)(i % SHAPES)) };
        if (foe_join(&s->host, s->side, &hello)) (void)foe_declare(&s->host, &s->set);
        foe_close(&s->host);
        drop(s);
    }
}

/* A process after the other takes the rank of the job over, and declares what the job has. */
static void run_again(attack_scene *s)
{
    for (uint64_t i = 2; !foe_over(s->side); i++) {
        foe f;
        if (foe_join(&f, s->side, &(foe_hello){ .job = s->job, .world = 1, .nonce = i }))
            (void)foe_declare(&f, &s->set);
        foe_close(&s->host);
        s->host = f;
    }
}

static bool prepare_init(attack_scene *s)
{
    if (!prepare_pulls(s)) return false;
    foe_frames_free(s->frames, s->n_frames);
    s->n_frames = foe_init_frames(&s->frames, &s->set);
    return true;
}

static void run_hellos(attack_scene *s)
{
    static const char *const jobs[] = { "m-1", "m-2", "m-3", "m-4" };

    for (uint64_t i = 0; !foe_over(s->side); i++) {
        foe_hello hello = { .job = jobs[i % 4], .world = 4096, .nonce = i + 1, .anew = true };
        foe f;
        hello.rules = shape_of((int)(i / 4 % SHAPES));
        (void)foe_join(&f, s->side, &hello);
        foe_close(&f);
    }
}

static void run_turnover(attack_scene *s)
{
    for (uint64_t i = 0; !foe_over(s->side); i++) {
        Paramd__Empty empty = PARAMD__EMPTY__INIT;
        foe f;
        if (foe_begin(&f, s->side, &(foe_hello){ .job = s->job, .world = 1, .nonce = i + 1 }, &s->set))
            (void)foe_ask(&f, PD_LEAVE, &empty.base, 0);
        foe_close(&f);
    }
}

static bool prepare_turnover(attack_scene *s)
{
    foe_set_make(&s->set, s->params < SMALL ? s->params : SMALL, 1);
    return true;
}

static bool join_workers(attack_scene *s, size_t most)
{
    s->most = most;
    for (uint32_t i = 0; i < WORKERS; i++, s->n++)
        if (!foe_join(&s->foes[i], s->side,
                      &(foe_hello){ .job = s->job, .rank = i, .world = WORKERS + 1, .nonce = i + 1 }))
            return false;
    return true;
}

static bool prepare_barriers(attack_scene *s)
{
    Paramd__BarrierRequest request = PARAMD__BARRIER_REQUEST__INIT;

    request.sequence = 1;
    attack_add(s, PD_BARRIER, &request.base, 0);
    request.sequence = 2; /* which is refused, since the first one waits */
    attack_add(s, PD_BARRIER, &request.base, 0);
    return join_workers(s, CONTROLS + 1);
}

static bool prepare_heartbeats(attack_scene *s)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    attack_add(s, PD_HEARTBEAT, &empty.base, 0);
    return join_workers(s, REQUESTS / WORKERS);
}

static bool prepare_releases(attack_scene *s)
{
    Paramd__ReleaseRequest request = PARAMD__RELEASE_REQUEST__INIT;

    request.answers = UINT64_MAX;
    attack_add(s, PD_RELEASE, &request.base, 0);
    return join_workers(s, REQUESTS / WORKERS);
}

static bool prepare_notes(attack_scene *s)
{
    Paramd__NoteRequest request = PARAMD__NOTE_REQUEST__INIT;

    for (request.step = 1; request.step <= CONTROLS; request.step++) attack_add(s, PD_NOTE, &request.base, NOTE_BYTES);
    return join_workers(s, CONTROLS);
}

static bool prepare_recalls(attack_scene *s)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    Paramd__NoteRequest note = PARAMD__NOTE_REQUEST__INIT;

    note.step = 1;
    attack_add(s, PD_RECALL, &empty.base, 0);
    if (!join_workers(s, CONTROLS)) return false;
    for (size_t i = 0; i < s->n; i++) (void)foe_ask(&s->foes[i], PD_NOTE, &note.base, NOTE_BYTES);
    return true;
}

static int sealed_segment(size_t bytes)
{
    int fd = memfd_create("mallory", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd >= 0 &&
        (ftruncate(fd, (off_t)bytes) != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* Joins, declares and shares the largest segment, and hangs up, again and again. */
static void run_shares(attack_scene *s)
{
    size_t bytes = (1 << 20) + s->set.n * (3 * sizeof(float) + 512);
    int segment = sealed_segment(bytes);

    for (uint64_t i = 0; segment >= 0 && !foe_over(s->side); i++) {
        Paramd__ShareRequest request = PARAMD__SHARE_REQUEST__INIT;
        foe_hello hello = { .job = s->job, .world = 1, .nonce = i + 1, .shares = true };
        foe f;
        request.bytes = bytes;
        if (foe_join(&f, s->side, &hello) && foe_declare(&f, &s->set) == PD_OK) {
            f.descriptor = segment;
            (void)foe_ask(&f, PD_SHARE, &request.base, 0);
        }
        foe_close(&f);
    }
    close(segment);
}

static bool prepare_durable(attack_scene *s)
{
    s->options[0] = "durability";
    s->options[1] = "checkpoint";
    return attack_make_job(s, 1);
}

static void run_checkpoints(attack_scene *s)
{
    Paramd__CheckpointRequest request = PARAMD__CHECKPOINT_REQUEST__INIT;

    for (uint64_t step = 1; s->host.fd >= 0 && !foe_over(s->side); step++) {
        foe_frame frames[CONTROLS + 1];
        frames[0] = foe_pack_last(step);
        for (int i = 1; i <= CONTROLS; i++) frames[i] = foe_pack(PD_CHECKPOINT, &request.base, 0);
        (void)foe_send_all(&s->host, frames, CONTROLS + 1, SIZE_MAX);
        s->host.out = NULL;
        for (int i = 0; i <= CONTROLS; i++) foe_frame_free(&frames[i]);
    }
}

const attack attacks_of_workers[] = {
    { "hello", PD_HELLO, ATTACK_ADMIN, NULL, run_hellos },
    { "declare_rules", PD_DECLARE, ATTACK_ADMIN, prepare_set, run_rules },
    { "declare_again", PD_DECLARE, ATTACK_ADMIN, prepare_alone, run_again },
    { "initialise", PD_INIT, ATTACK_ADMIN, prepare_init, attack_flood },
    { "push_last", PD_PUSH, ATTACK_ADMIN, prepare_last, attack_flood },
    { "push_last_steps", PD_PUSH, ATTACK_ADMIN, prepare_alone, run_last_steps },
    { "push_absent", PD_PUSH, ATTACK_ADMIN, prepare_absent, attack_flood },
    { "push_pieces", PD_PUSH, ATTACK_ADMIN, prepare_pieces, attack_flood },
    { "push_open_rounds", PD_PUSH, ATTACK_ADMIN, prepare_open_rounds, attack_flood },
    { "push_pull_steps", PD_PUSH_PULL, ATTACK_ADMIN, prepare_alone, run_steps },
    { "pull", PD_PULL, ATTACK_ADMIN, prepare_pulls, attack_flood },
    { "pull_waiting", PD_PULL, ATTACK_ADMIN, prepare_waiting_pulls, attack_flood },
    { "barrier", PD_BARRIER, ATTACK_ADMIN, prepare_barriers, attack_flood },
    { "heartbeat", PD_HEARTBEAT, ATTACK_ADMIN, prepare_heartbeats, attack_flood },
    { "leave", PD_LEAVE, ATTACK_ADMIN, prepare_turnover, run_turnover },
    { "share", PD_SHARE, ATTACK_ADMIN, prepare_turnover, run_shares },
    { "release", PD_RELEASE, ATTACK_ADMIN, prepare_releases, attack_flood },
    { "note", PD_NOTE, ATTACK_ADMIN, prepare_notes, attack_flood },
    { "recall", PD_RECALL, ATTACK_ADMIN, prepare_recalls, attack_flood },
    { "checkpoint", PD_CHECKPOINT, ATTACK_ADMIN, prepare_durable, run_checkpoints },
    { NULL, 0, ATTACK_ADMIN, NULL, NULL },
};
