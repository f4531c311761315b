/* store_hello.c - lets a worker into the job that its Hello names: into the job that is there, into the same job with
 * another number of workers, or into a new one.
 *
 * Three questions decide whether a Hello continues a job, waits, is refused, or begins the job again. Does the process
 * belong to the job's run? Is the job over, is a worker connected, or are all workers lost? And what has become of the
 * rank that the process asks for? The first row of the table that fits decides (PROTOCOL.md, section 7). */
#include "checkpoint_policy.h"
#include "export.h"
#include "job.h"
#include "jobs.h"
#include "generation.h"
#include "kick.h"
#include "membership.h"
#include "mutant.h"
#include "ranks.h"
#include "repeats.h"
#include "resize.h"
#include "set_warning.h"
#include "store_go_back.h"
#include "store_state.h"
#include "worker_states.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Answers to the three questions. A row of the table names the answers that it demands; 0: any answer. */
enum { BY_RUN = 1, RESUMES, ANEW }; /* intent: what the Hello wants of a job that is there */
/* run: the Hello's run compared with the job's. EARLIER: the Hello's is of the same launch, which has begun the job
 * again since then, so the program was started from its beginning. UNKNOWN: one of the two runs is not known */
enum { SAME = 1, EARLIER, OTHER, UNKNOWN };
enum {
    OVER = 1, /* job: all its ranks have left for good */
    ENDING,   /* some rank has left, and a worker is connected */
    LIVE,     /* no rank has left, and a worker is connected */
    LONELY,   /* not over, and no worker is connected */
};
enum {
    HELD = 1, /* rank: a process that is connected has it */
    LEFT,     /* its last process has left for good */
    VACANT,   /* its last process is lost, or it never had one */
};
enum { RANK_0 = 1, JOINS, OTHERS }; /* who sends the Hello: rank 0, a process that only joins, or another one */

typedef enum verdict {
    CONTINUE,
    BEGIN_ANEW,
    WAIT_FOR_END,   /* the worker waits until all ranks have left */
    WAIT_FOR_BEGIN, /* the worker waits until rank 0 has begun the job again */
    REFUSE_HELD,    /* the job is in training */
    REFUSE_OTHER,   /* the job belongs to another run, whose workers are lost */
} verdict;

typedef struct row {
    unsigned intent, run, job, rank, who;
    verdict verdict;
} row;

static const row table[] = {
    { .intent = RESUMES, .verdict = CONTINUE },
    { .job = OVER, .who = JOINS, .verdict = WAIT_FOR_BEGIN },
    { .job = OVER, .verdict = BEGIN_ANEW },
    { .run = SAME, .verdict = CONTINUE },
    { .intent = ANEW, .job = LONELY, .who = RANK_0, .verdict = BEGIN_ANEW },
    { .intent = ANEW, .job = LONELY, .verdict = WAIT_FOR_BEGIN },
    { .run = EARLIER, .job = ENDING, .verdict = WAIT_FOR_END },
    { .run = EARLIER, .job = LIVE, .verdict = REFUSE_HELD },
    { .run = EARLIER, .job = LONELY, .who = RANK_0, .verdict = BEGIN_ANEW },
    { .run = EARLIER, .job = LONELY, .verdict = WAIT_FOR_BEGIN },
    { .run = OTHER, .job = ENDING, .verdict = WAIT_FOR_END },
    { .run = OTHER, .job = LIVE, .verdict = REFUSE_HELD },
    { .run = OTHER, .job = LONELY, .who = JOINS, .verdict = WAIT_FOR_BEGIN },
    { .run = OTHER, .job = LONELY, .verdict = REFUSE_OTHER },
    { .run = UNKNOWN, .rank = LEFT, .verdict = WAIT_FOR_END },
    { .run = UNKNOWN, .job = ENDING, .rank = HELD, .verdict = WAIT_FOR_END },
    { .run = UNKNOWN, .rank = HELD, .verdict = REFUSE_HELD },
    { .run = UNKNOWN, .rank = VACANT, .verdict = CONTINUE },
};

static unsigned intent_of(const pd_request *hello)
{
    return hello->u.hello.intent == PD_INTENT_RESUME ? RESUMES
           : hello->u.hello.intent == PD_INTENT_ANEW ? ANEW
                                                     : BY_RUN;
}

/* Returns the generation of a run: the number after the last '#', or 1 if there is none. Stores in *launch the length
 * of the text before it. */
static unsigned long generation_of(const char *run, size_t *launch)
{
    const char *mark = strrchr(run, '#');

    *launch = mark != NULL ? (size_t)(mark - run) : strlen(run);
    return mark != NULL ? strtoul(mark + 1, NULL, 10) : 1;
}

static bool is_earlier(const char *run, const char *than)
{
    size_t length, other;
    unsigned long generation = generation_of(run, &length), later = generation_of(than, &other);

    return length == other && strncmp(run, than, length) == 0 && generation < later;
}

static unsigned run_of(const pd_job *job, const pd_request *hello)
{
    if (job->run == NULL || hello->u.hello.run == NULL) return UNKNOWN;
    if (strcmp(job->run, hello->u.hello.run) == 0 || PD_MUTANT(any_run)) return SAME;
    return is_earlier(hello->u.hello.run, job->run) ? EARLIER : OTHER;
}

static unsigned job_of(const pd_job *job)
{
    if (pd_job_is_over(job)) return OVER;
    if (job->connected == 0) return LONELY;
    return job->left > 0 ? ENDING : LIVE;
}

static const pd_rank *rank_of(const pd_job *job, const pd_request *hello)
{
    return hello->rank < job->steps.members.ranks ? &job->ranks[hello->rank] : NULL;
}

static unsigned state_of(const pd_job *job, const pd_rank *rank)
{
    if (rank == NULL) return VACANT;
    if (rank->state != PD_RANK_CONNECTED && !pd_is_member(job, (uint32_t)(rank - job->ranks))) return VACANT;
    return rank->state == PD_RANK_CONNECTED ? HELD : rank->state == PD_RANK_LEFT ? LEFT : VACANT;
}

static unsigned process_of(const pd_request *hello)
{
    return hello->u.hello.joins ? JOINS : hello->rank == 0 ? RANK_0 : OTHERS;
}

static bool fits(unsigned demanded, unsigned is)
{
    return demanded == 0 || demanded == is;
}

/* Returns whether the process that sends the Hello belongs to the job: it has the rank and has not left, or it names
 * the job's number (pd_job_saved.creator). */
static bool is_known(const pd_job *job, const pd_request *hello)
{
    const pd_rank *rank = rank_of(job, hello);

    if (hello->u.hello.rejoins && hello->u.hello.creator == job->saved.creator) return true;
    return rank != NULL && rank->saved.present && !rank->saved.left && rank->saved.nonce == hello->u.hello.nonce;
}

/* Returns whether the Hello comes from the job's launch, which was formed again. */
static bool forms_again(const pd_request *hello, const pd_job *job, unsigned run, unsigned state)
{
    return pd_generation_is_later(job, hello) && (run == SAME || run == UNKNOWN) && state != OVER &&
           hello->u.hello.intent != PD_INTENT_ANEW;
}

static verdict judge(const pd_job *job, const pd_request *hello)
{
    unsigned intent = intent_of(hello), run = run_of(job, hello), state = job_of(job),
             rank = state_of(job, rank_of(job, hello)), who = process_of(hello);

    if (is_known(job, hello) || forms_again(hello, job, run, state)) return CONTINUE;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (fits(table[i].intent, intent) && fits(table[i].run, run) && fits(table[i].job, state) &&
            fits(table[i].rank, rank) && fits(table[i].who, who))
            return table[i].verdict;
    return CONTINUE;
}

/* Returns a rank that has not left: the one that the Hello asks for, a connected one, or any. NULL: all have left. */
static const pd_rank *find_holder(const pd_job *job, const pd_request *hello)
{
    const pd_rank *asked = rank_of(job, hello), *found = NULL;

    if (asked != NULL && asked->state == PD_RANK_CONNECTED) return asked;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++) {
        if (job->ranks[r].state == PD_RANK_CONNECTED) return &job->ranks[r];
        if (found == NULL && job->ranks[r].state != PD_RANK_LEFT) found = &job->ranks[r];
    }
    return found;
}

/* Writes who has a rank, such as "rank 2 (host:123, lost 14 s ago)". */
static const char *holder_text(const pd_job *job, const pd_request *hello, uint64_t now_ns, char text[128])
{
    const pd_rank *rank = find_holder(job, hello);
    unsigned number = rank != NULL ? (unsigned)(rank - job->ranks) : 0;
    unsigned long long ago = rank != NULL ? (now_ns - rank->since_ns) / 1000000000ull : 0;

    if (rank == NULL || rank->state == PD_RANK_ABSENT)
        snprintf(text, 128, "rank %u (never came)", number);
    else if (rank->state == PD_RANK_CONNECTED)
        snprintf(text, 128, "rank %u (%.80s, connected)", number, rank->label);
    else
        snprintf(text, 128, "rank %u (%.80s, lost %llu s ago)", number, rank->label, ago);
    return text;
}

/* Writes the error for a worker that only joins, before rank 0 has created the job. Returns PD_UNAVAILABLE. */
static int wait_for_creator(const pd_request *hello, pd_error *err)
{
    return pd_fail(err, PD_UNAVAILABLE, "rank %u of job %.200s waits for rank 0, which creates the job", hello->rank,
                   hello->u.hello.job_name);
}

/* Decides about a Hello for the name of this job. PD_OK: *anew says whether the Hello begins the job again, which ends
 * this one, or continues it. PD_UNAVAILABLE: the worker must wait, and the text says for whom. PD_ALREADY_EXISTS: the
 * job is in training. PD_FAILED_PRECONDITION: the job belongs to another run. PD_NOT_FOUND: the Hello rejoins a job
 * that is over. */
static int apply_table(pd_job *job, const pd_request *hello, uint64_t now_ns, bool *anew, pd_error *err)
{
    verdict found = judge(job, hello);
    char holder[128];

    holder_text(job, hello, now_ns, holder);
    *anew = found == BEGIN_ANEW;
    switch (found) {
    case CONTINUE: break;
    case BEGIN_ANEW:
        if (!hello->u.hello.rejoins) break;
        return pd_fail(err, PD_NOT_FOUND,
                       "the job %.200s that this worker was in is over, and a rejoining worker cannot create a job",
                       hello->u.hello.job_name);
    case WAIT_FOR_END:
        return pd_fail(
            err, PD_UNAVAILABLE,
            "job %.100s is about to end: %s has not left it yet. To continue the job: resume, PARAMD_RESUME=1; "
            "or choose another name (job=, PARAMD_JOB)",
            job->steps.name, holder);
    case WAIT_FOR_BEGIN: return wait_for_creator(hello, err);
    case REFUSE_HELD:
        return pd_fail(
            err, PD_ALREADY_EXISTS,
            "job %.100s is in training: %s %sholds it. Choose another name (job=, PARAMD_JOB), or take it over "
            "(resume, PARAMD_RESUME=1)",
            job->steps.name, holder, run_of(job, hello) == OTHER ? "of another run " : "");
    case REFUSE_OTHER:
        return pd_fail(
            err, PD_FAILED_PRECONDITION,
            "job %.100s at step %" PRIu64
            " belongs to another run, whose workers are gone: %s. Continue it (resume, PARAMD_RESUME=1), begin "
            "anew (PARAMD_RESUME=0), or choose another name (job=, PARAMD_JOB)",
            job->steps.name, pd_steps_least(&job->steps), holder);
    }
    return PD_OK;
}

/* Makes the job belong to the Hello's run from now on, if the Hello says that it resumes the job. PD_NO_MEMORY. */
static int take_run(pd_job *job, const pd_request *hello, pd_error *err)
{
    const char *run = hello->u.hello.run;
    char *copy = NULL;

    if (hello->u.hello.intent != PD_INTENT_RESUME || hello->u.hello.rejoins) return PD_OK;
    if (run != NULL && (copy = strdup(run)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory for the run of job %.100s", job->steps.name);
    free(job->run);
    job->run = copy;
    return PD_OK;
}

/* Checks that one more job is allowed. Ends jobs that are over if the new one needs their place. */
static int check_jobs(pd_store *store, const pd_request *request, pd_error *err)
{
    const pd_owner *owner = pd_owner_find(&store->owners, pd_job_owner_identity(request));
    int rc;

    while (store->jobs.n + store->jobs.away >= store->config.max_jobs)
        if (!pd_store_end_oldest(store, NULL, NULL))
            return pd_fail(err, PD_RESOURCE_EXHAUSTED,
                           "job %.100s would be one more than the %u jobs allowed (limits.max_jobs)",
                           request->u.hello.job_name, store->config.max_jobs);
    while ((rc = pd_job_owner_check(&store->owners, store->roles, request, err)) != PD_OK && owner != NULL)
        if (!pd_store_end_oldest(store, pd_owner_budget(owner), NULL)) break;
    return rc;
}

/* Ends the job that a Hello begins again, and makes room for the new one. */
static int take_place(pd_store *store, pd_job *old, const pd_request *request, pd_error *err)
{
    pd_error why;

    if (old == NULL) return check_jobs(store, request, err);
    pd_fail(&why, PD_ABORTED, "job %.100s has ended: a new run has begun it anew", old->steps.name);
    pd_store_end(store, old, &why);
    return PD_OK;
}

/* Checks the rank that shard 0 has chosen for a worker which takes any. `job` NULL: it is not there yet. */
static int check_rank(const pd_job *job, const pd_request *request, pd_error *err)
{
    if (job == NULL || request->rank < job->steps.members.ranks) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s has ranks 0 to %u, and shard 0 has chosen rank %u",
                   job->steps.name, job->steps.members.ranks - 1, request->rank);
}

/* Creates the job that a Hello describes, in place of the job `old` of this name; NULL: there is none. If the Hello
 * does not describe a valid job, `old` stays. */
static int create_job(pd_store *store, const pd_request *request, pd_job *old, pd_job **out, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    pd_job *job;
    int rc;

    if (store->drain.draining) return pd_fail(err, PD_UNAVAILABLE, "the server is draining and accepts no new jobs");
    if (old != NULL && (rc = pd_job_owner_may_begin_anew(old, store->roles, request, err)) != PD_OK) return rc;
    if ((rc = pd_hello_check_globs(request, err)) != PD_OK) return rc;
    if ((rc = pd_job_new(&job, &env, store->jobs.last_number + 1, request, err)) != PD_OK) return rc;
    if ((rc = check_rank(job, request, err)) != PD_OK || (rc = pd_checkpoint_policy_begin(job, err)) != PD_OK ||
        (rc = take_place(store, old, request, err)) != PD_OK ||
        (rc = pd_job_owner_set(job, &store->owners, store->roles, request, err)) != PD_OK ||
        (rc = pd_jobs_add(&store->jobs, job, err)) != PD_OK) {
        pd_owner_remove(job->owner);
        pd_job_free(job);
        return rc;
    }
    pd_say(&store->outbox, PD_SAY_INFO, (pd_log_facts){ .job = job->steps.name }, "created for %u workers",
           job->steps.members.ranks);
    pd_set_warning_look(job);
    *out = job;
    return PD_OK;
}

/* Returns whether a worker wants to rejoin a job that does not exist any more. `job` is the one that has the name
 * now; NULL: none has. */
static bool rejoins_nothing(const pd_request *hello, const pd_job *job)
{
    return hello->u.hello.rejoins &&
           (job == NULL || (hello->u.hello.creator != 0 && hello->u.hello.creator != job->saved.creator));
}

/* Resizes a job to the number of workers that this Hello gives. */
static int change_world(pd_store *store, pd_job **job, const pd_request *request, uint64_t now_ns, pd_error *err)
{
    const pd_job_env env = pd_store_env(store);
    int rc;

    if ((rc = pd_job_owner_admits(*job, store->roles, request, err)) != PD_OK) return rc;
    pd_store_forget(store, *job);
    rc = pd_resize(job, &store->jobs, &env, request, now_ns, err);
    pd_job_owner_resume(*job, &store->owners, store->roles);
    return rc;
}

/* Lets the launch of a Hello take over the job. If the launch has another number of workers, the job is to be resized,
 * unless max_workers says how many slots it has. */
static int form_again(pd_store *store, pd_job *job, const pd_request *request, uint64_t now_ns, pd_error *err)
{
    uint32_t world = request->u.hello.world_size;
    bool changes = world != 0 && world != job->saved.workers,
         resizes = changes && job->steps.values.at[PD_JOB_KEY_MAX_WORKERS] == UINT64_MAX;
    pd_set_rule rule = job->steps.sets;
    int rc = pd_job_owner_admits(job, store->roles, request, err);

    if (rc != PD_OK) return rc;
    rc = resizes ? pd_job_agrees_but_world(job, request, err) : pd_job_agrees(job, request, err);
    if (rc == PD_OK && changes) rc = pd_set_rule_make(&rule, &job->steps.values, world, err);
    if (rc != PD_OK) return rc;
    pd_generation_rise(job, request, now_ns);
    if (changes && !resizes) {
        job->steps.sets.least = rule.least;
        job->saved.workers = world;
    }
    job->membership.forming = resizes ? world : 0;
    return PD_OK;
}

/* Checks that the worker's Hello describes the job. If its launch is a later one, lets it take over the job. Resizes
 * the job if the Hello may do that. The error says if the job has no workers now. */
static int agree(pd_store *store, pd_job **job, const pd_request *request, uint64_t now_ns, pd_error *err)
{
    int rc = pd_job_shard_agrees(*job, request, err);

    if (rc != PD_OK) return rc;
    if (pd_generation_is_later(*job, request)) rc = form_again(store, *job, request, now_ns, err);
    if (rc == PD_OK)
        rc = pd_may_resize(*job, request, now_ns) ? change_world(store, job, request, now_ns, err)
                                                  : pd_job_agrees(*job, request, err);
    if (rc == PD_FAILED_PRECONDITION) pd_linger_explain(*job, now_ns, err);
    return rc;
}

static void join(pd_job *job, pd_request *request, bool created, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[request->rank];
    uint64_t barriers = request->u.hello.barriers;
    bool same, member = pd_is_member(job, request->rank);

    pd_export_worker_comes(job);
    pd_repeats_joins(job, request, now_ns);
    same = pd_rank_join(job, request, created, now_ns);
    if (!same && !member) pd_worker_states_forget(job, rank);
    /* A process that was removed joins anew, and counts its barriers from those that the job has passed. */
    pd_barrier_joined(job, rank, barriers, same && member);
    pd_members_settle(job);
    pd_members_tell(job, now_ns);
    pd_repeats_look(job, now_ns);
}

/* Checks that the daemon is sure that no other one has the job, which is not here. */
static int check_sure(const pd_request *hello, pd_error *err)
{
    if (!hello->u.hello.unsure) return PD_OK;
    return pd_fail(
        err, PD_UNAVAILABLE,
        "job %.200s is not on this server, whose lease of shard %u has ended (cluster.engine): another server "
        "may own the shard, and have the job. No job is created until the lease is renewed",
        hello->u.hello.job_name, hello->u.hello.shard);
}

/* Finds out whether a Hello creates the job of its name. `job` is the one that has the name; NULL: none has. */
static int decide(const pd_store *store, pd_job *job, const pd_request *request, uint64_t now_ns, bool *creates,
                  pd_error *err)
{
    int rc = PD_OK;

    *creates = job == NULL;
    if (job == NULL) return request->u.hello.joins ? wait_for_creator(request, err) : PD_OK;
    if (request->rank < job->steps.members.ranks) rc = pd_rank_admits(job, request, store->roles != NULL, err);
    /* PD_ABORTED: the process is superseded. The caller checks its Hello before it refuses the process. */
    if (rc == PD_ABORTED) return PD_OK;
    return rc == PD_OK ? apply_table(job, request, now_ns, creates, err) : rc;
}

/* Checks that the process may come to the job, and finds a rank for it if it takes any. `job` NULL: there is none. */
static int find_rank(const pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    int rc = job != NULL ? pd_kick_admits(job, request, err) : PD_OK;

    if (rc == PD_OK && job != NULL) rc = pd_generation_check(job, request, err);
    if (rc != PD_OK || !request->u.hello.any_rank) return rc;
    if (request->u.hello.shard > 0) return check_rank(job, request, err);
    request->rank = 0;
    /* A later launch takes the ranks of the earlier one. */
    if (job == NULL || pd_generation_is_later(job, request)) return PD_OK;
    return pd_members_find_slot(job, request, now_ns, &request->rank, err);
}

pd_job *pd_store_hello(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_error err;
    pd_job *job = pd_jobs_find(&store->jobs, request->u.hello.job_name);
    bool created = false;
    int rc = pd_hello_check(request, &err);

    if (rc == PD_OK) rc = pd_store_go_back_check(store, request->u.hello.job_name, &err);
    if (rc == PD_OK && job == NULL) rc = check_sure(request, &err);
    if (rc == PD_OK && rejoins_nothing(request, job))
        rc = pd_fail(&err, PD_NOT_FOUND,
                     "the job %.200s that this worker was in is no longer on this server, and a rejoining worker "
                     "cannot create a job",
                     request->u.hello.job_name);
    if (rc == PD_OK) rc = find_rank(job, request, now_ns, &err);
    if (rc == PD_OK) rc = decide(store, job, request, now_ns, &created, &err);
    if (rc == PD_OK && created) rc = check_sure(request, &err);
    if (rc == PD_OK)
        rc = created ? create_job(store, request, job, &job, &err) : agree(store, &job, request, now_ns, &err);
    if (rc == PD_OK) rc = find_rank(job, request, now_ns, &err);
    if (rc == PD_OK) rc = pd_rank_admits(job, request, store->roles != NULL, &err);
    if (rc == PD_OK) rc = pd_job_owner_set(job, &store->owners, store->roles, request, &err);
    if (rc == PD_OK && !created) rc = take_run(job, request, &err);
    if (rc != PD_OK) {
        job = pd_jobs_find(&store->jobs, request->u.hello.job_name); /* the job may have ended */
        pd_request_refuse(&store->outbox, request, &err);
        return job;
    }
    join(job, request, created, now_ns);
    return job;
}
