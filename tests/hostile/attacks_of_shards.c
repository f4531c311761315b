/* attacks_of_shards.c - attacks by requests of jobs on several shards: tallies, verdicts and going back. */
#include "attacks.h"
#include "most_shards.h"
#include "tally.h"

enum { CONTROLS = 16, WORKERS = 8, SHARDS = PD_MAX_SHARDS, EMPTY_TALLIES = 30000, STEP = 1000 };

/* Writes the largest tally of a job without limits for elements of gradients: the longest sum, the longest reason. */
static size_t write_tally(uint8_t *out, uint16_t shard)
{
    char reason[PD_TALLY_REASON];
    pd_tally tally = { .step = STEP,
                       .shard = shard,
                       .shards = SHARDS,
                       .kind = PD_TALLY_NORM,
                       .seen = true,
                       .reason_bytes = sizeof reason,
                       .reason = reason };

    memset(reason, 'x', sizeof reason);
    pd_exact_sum_add(&tally.sum, 0x1p-298);
    pd_exact_sum_add(&tally.sum, 0x1p319);
    return pd_tally_write(&tally, out);
}

/* Adds a verdict to the scene's frames, whose last tally lacks its last `less` bytes. */
static void add_verdict(attack_scene *s, size_t less)
{
    static uint8_t bytes[SHARDS][1024];
    Paramd__SettleRequest request = PARAMD__SETTLE_REQUEST__INIT;
    ProtobufCBinaryData tallies[SHARDS];

    for (uint16_t i = 0; i < SHARDS; i++)
        tallies[i] = (ProtobufCBinaryData){ .len = write_tally(bytes[i], i), .data = bytes[i] };
    tallies[SHARDS - 1].len -= less;
    request.step = STEP;
    request.n_tallies = SHARDS;
    request.tallies = tallies;
    attack_add(s, PD_SETTLE, &request.base, 0);
}

/* Adds a verdict of as many tallies as a header has room for. */
static void add_crowd(attack_scene *s)
{
    Paramd__SettleRequest request = PARAMD__SETTLE_REQUEST__INIT;

    request.step = STEP;
    request.n_tallies = EMPTY_TALLIES;
    if ((request.tallies = calloc(EMPTY_TALLIES, sizeof *request.tallies)) == NULL) abort();
    attack_add(s, PD_SETTLE, &request.base, 0);
    free(request.tallies);
}

static void add_ask(attack_scene *s, uint64_t step)
{
    Paramd__SettleRequest request = PARAMD__SETTLE_REQUEST__INIT;

    request.step = step;
    attack_add(s, PD_SETTLE, &request.base, 0);
}

/* Lets workers join and declare the first shard of a job whose steps are settled. None of them pushes. */
static bool join_shard(attack_scene *s)
{
    static const char *const options[] = { "nonfinite_scope", "job", NULL };

    s->most = CONTROLS + 1;
    if (s->set.n == 0) foe_set_make(&s->set, s->params, 1);
    for (uint32_t i = 0; i < WORKERS; i++, s->n++) {
        const foe_hello hello = {
            .job = s->job, .rank = i, .world = WORKERS + 1, .nonce = i + 1, .shards = SHARDS, .options = options
        };
        if (!foe_join(&s->foes[i], s->side, &hello)) return false;
        if (foe_declare(&s->foes[i], &s->set) != PD_OK) return false;
    }
    return true;
}

/* A verdict and an ask of each rank wait for a step that never comes, and more are refused. */
static bool prepare_waiting_verdicts(attack_scene *s)
{
    add_ask(s, STEP);
    add_verdict(s, 0);
    return join_shard(s);
}

/* Nothing of these is a verdict. */
static bool prepare_refused_verdicts(attack_scene *s)
{
    add_verdict(s, 1);
    add_crowd(s);
    add_ask(s, 0);
    return join_shard(s);
}

static void add_go_back(attack_scene *s, const char *job, uint64_t step, uint64_t life)
{
    Paramd__GoBackRequest request = PARAMD__GO_BACK_REQUEST__INIT;

    request.job = (char *)job;
    request.step = step;
    request.life = life;
    attack_add(s, PD_GO_BACK, &request.base, 0);
}

static bool make_durable_job(attack_scene *s)
{
    s->options[0] = "durability";
    s->options[1] = "checkpoint";
    return attack_make_job(s, 1);
}

/* A worker names other lives of its job and the wrong fields; it may not let other jobs go back. */
static bool prepare_wrong_lives(attack_scene *s)
{
    s->most = CONTROLS + 1;
    if (!make_durable_job(s)) return false;
    s->foes[0] = s->host;
    s->host = (foe){ 0 };
    s->n = 1;
    add_go_back(s, "", 1, 1);
    add_go_back(s, "", 1, 0);
    add_go_back(s, s->job, 1, 1);
    return true;
}

/* Operators name steps and jobs that do not exist, and a job of somebody else. */
static bool prepare_wrong_steps(attack_scene *s)
{
    s->most = CONTROLS + 1;
    if (!make_durable_job(s)) return false;
    add_go_back(s, s->job, STEP, 0);
    add_go_back(s, s->job, 1, 1);
    add_go_back(s, "missing", 1, 0);
    add_go_back(s, s->running != NULL ? s->running : "small", 1, 0);
    return attack_operators(s, ATTACK_FOES);
}

/* Takes a step, and makes a checkpoint of it. */
static void take_step(attack_scene *s, uint64_t step)
{
    Paramd__CheckpointRequest checkpoint = PARAMD__CHECKPOINT_REQUEST__INIT;
    foe_frame last = foe_pack_last(step);

    (void)foe_call(&s->host, &last);
    s->host.out = NULL;
    foe_frame_free(&last);
    (void)foe_ask(&s->host, PD_CHECKPOINT, &checkpoint.base, 0);
}

/* Lets the job go back to its newest checkpoint, and takes the next step, again and again: each time the job is read
 * and planned anew. */
static void run_returns(attack_scene *s)
{
    Paramd__GoBackRequest back = PARAMD__GO_BACK_REQUEST__INIT;

    back.job = (char *)s->job;
    back.step = UINT64_MAX; /* the newest checkpoint */
    for (uint64_t step = 2; !foe_over(s->side); step++) {
        const foe_hello hello = { .job = s->job, .world = 1, .nonce = 1, .options = s->options };
        (void)foe_ask(&s->foes[0], PD_GO_BACK, &back.base, 0);
        foe_close(&s->host);
        if (foe_join(&s->host, s->owner, &hello)) (void)foe_declare(&s->host, &s->set);
        take_step(s, step);
    }
}

static bool prepare_returns(attack_scene *s)
{
    if (!make_durable_job(s) || !attack_operators(s, 1)) return false;
    take_step(s, 1);
    return true;
}

const attack attacks_of_shards[] = {
    { "settle_waiting", PD_SETTLE, ATTACK_ADMIN, prepare_waiting_verdicts, attack_flood },
    { "settle_refused", PD_SETTLE, ATTACK_ADMIN, prepare_refused_verdicts, attack_flood },
    { "go_back", PD_GO_BACK, ATTACK_ADMIN, prepare_returns, run_returns },
    { "go_back_lives", PD_GO_BACK, ATTACK_ADMIN, prepare_wrong_lives, attack_flood },
    { "go_back_steps", PD_GO_BACK, ATTACK_ADMIN, prepare_wrong_steps, attack_flood },
    { NULL, 0, ATTACK_ADMIN, NULL, NULL },
};
