/* footprint.c - adds up the bytes that a job takes: weights, sums of gradients, contributions, optimizer state, roots
 * and structs. */
#include "footprint.h"

#include "aggregate_fit.h"
#include "archive.h"
#include "fragment_ranks.h"
#include "set_rule.h"
#include "wal.h"
#include "global_clip.h"
#include "job.h"
#include "mutant.h"
#include "robust.h"
#include "settle.h"

#include <string.h>

enum { ALLOCATOR_ENDS = 1024 }; /* bytes of allocator overhead for a job's own memory blocks and hash tables */
/* bytes of a checkpoint's header, structs and messages; bytes for each rank: its struct and the entry of its note */
enum { KEPT_HEAD = 8192, KEPT_RANK = 512 };
/* bytes of a parameter's structs in a checkpoint: its entry, and what the allocator adds to its memory */
enum { KEPT_BYTES = sizeof(pd_checkpoint_param) + 128 };
/* bytes of the records that the WAL thread may have at once: of each its struct, the effect that carries it, and what
 * the allocator adds. The data of parameters and pd_wal_own_bytes are counted beside it. */
enum { LOGGED_OWN = PD_WAL_MOST * (sizeof(pd_wal_record) + sizeof(pd_effect) + 512) };

#include <math.h>

static uint64_t times(uint64_t bytes, uint64_t n)
{
    return __builtin_mul_overflow(bytes, n, &bytes) ? UINT64_MAX : bytes;
}

/* Converts a number of bytes from an optimizer's plan. A plan says INT64_MAX for "too many to count", this file
 * UINT64_MAX. */
static uint64_t known(int64_t bytes)
{
    return bytes == INT64_MAX ? UINT64_MAX : (uint64_t)bytes;
}

int pd_sizing_check(pd_sizing *job, pd_error *err)
{
    int rc;

    if (job->world == 0 || job->world > PD_MAX_WORLD)
        return pd_fail(err, PD_INVALID_ARGUMENT, "a job has 1 to %d workers, not %u", PD_MAX_WORLD, job->world);
    if ((rc = pd_set_rule_make(&job->sets, &job->values, job->world, err)) != PD_OK) return rc;
    job->world = job->sets.most;
    return pd_aggregate_fits(&job->values, &job->sets, err);
}

int pd_sizing_check_param(const pd_sizing *job, pd_aggregation how, const char *name, pd_error *err)
{
    return pd_aggregate_fits_whole(&job->values, job->world, how, name, err);
}

bool pd_sizing_is_whole(const pd_sizing *job, const pd_rule *rules, size_t n_rules)
{
    return pd_global_clip_scopes(&job->values, rules, n_rules) > 0 ||
           job->values.at[PD_JOB_KEY_NONFINITE_SCOPE] == PD_SCOPE_JOB;
}

/* Returns how contributions are aggregated. Values of model state (`takes_values`) are averaged whatever the job's
 * `aggregate` is: by a weighted mean if that depends on weights, otherwise by the plain mean. */
pd_aggregation pd_aggregation_of(const pd_job_values *values, const pd_optimizer_ops *row)
{
    pd_aggregation how = (pd_aggregation)values->at[PD_JOB_KEY_AGGREGATE];

    if (!row->takes_values) return how;
    return pd_is_weighted(how) ? PD_WEIGHTED_MEAN : PD_MEAN;
}

/* Returns the bytes of a plan's preconditioner tasks. With the option root_delay they count twice, because the next
 * tasks may copy their inputs before the present ones are done. */
static uint64_t root_bytes(const pd_plan *plan)
{
    uint64_t once = known(pd_plan_task_bytes(plan));

    return plan->root_delay != 0 ? pd_footprint_plus(once, once) : once;
}

/* Returns the bytes of one parameter's records on the step thread and the loop thread, whatever its optimizer is:
 *
 * - the parameter's own record, with hyperparameters that pushes may bring
 * - the fixed overhead of its published versions and buffers
 * - a record of its declaration on each connection */
static uint64_t param_bytes(const pd_sizing *job)
{
    uint64_t bytes = sizeof(pd_param) + (uint64_t)pd_block_bytes(sizeof(pd_pushed)) + pd_published_own_bytes() +
                     sizeof(pd_closed) + 2 * sizeof(void *);

    return bytes + PD_LOOP_PARAM_BYTES + job->world * (uint64_t)PD_LOOP_DECL_BYTES;
}

static uint64_t record_bytes(const pd_sizing *job, int64_t elements, bool ranged)
{
    uint64_t chunks =
        times(pd_count_chunks(elements, job->chunk_elements), sizeof(pd_chunk) + job->world * sizeof(pd_contribution));

    if (PD_MUTANT(records_uncounted)) return 0;
    return pd_footprint_plus(chunks, (ranged ? job->world * sizeof(pd_rank_range) : 0) + param_bytes(job));
}

uint64_t pd_footprint_name(const pd_sizing *job, const char *name, const char *axes)
{
    uint64_t bytes = (uint64_t)pd_block_bytes((int64_t)strlen(name) + 1) +
                     (axes != NULL ? (uint64_t)pd_block_bytes((int64_t)strlen(axes) + 1) : 0);

    /* The store has one copy of each name, and so has the connection of each of the job's `world` ranks. */
    return bytes * (job->world + 1);
}

static uint64_t collect_bytes(const pd_sizing *job, pd_aggregation how, int64_t elements, pd_dtype pushed, bool ranged)
{
    if (ranged || !(job->sets.open || pd_is_collected(how))) return 0;
    return pd_contributors_bytes(pd_contributors_whole(elements, job->chunk_elements, job->world), how, elements,
                                 pushed, job->chunk_elements);
}

/* Returns the bytes that a checkpoint needs for one parameter: a further buffer of weights, the image of the state, and
 * structs. If roots are used in a later step, also an archive that waits for them. */
static uint64_t kept_bytes(const pd_plan *plan, const bool pulled[4])
{
    uint64_t bytes = KEPT_BYTES + (plan->n_tasks > 0 && plan->root_delay != 0 ? sizeof(pd_archive) : 0);

    bytes = pd_footprint_plus(bytes, known(pd_plan_image_bytes(plan)));
    return pd_footprint_plus(bytes, pd_weight_bytes(plan->elements, pulled) / 2);
}

/* Returns the bytes that the stream of steps needs for one parameter: its aggregates in the records that the WAL thread
 * has. */
static uint64_t logged_bytes(const pd_plan *plan)
{
    uint64_t aggregates = times((uint64_t)plan->elements, PD_WAL_MOST * sizeof(float));

    return pd_footprint_plus(aggregates, PD_WAL_MOST * sizeof(pd_wal_part));
}

void pd_footprint_least(pd_footprint *out, const pd_sizing *job, pd_aggregation how, int64_t elements, pd_dtype pushed,
                        bool ranged, const bool pulled[4])
{
    *out = (pd_footprint){ .weights = pd_weight_bytes(elements, pulled),
                           .sums = times((uint64_t)elements, sizeof(float)),
                           .collected = collect_bytes(job, how, elements, pushed, ranged),
                           .records = record_bytes(job, elements, ranged) };
}

/* Returns the bytes with which one thread computes a median or trimmed mean of all workers' contributions. */
static uint64_t robust_bytes(const pd_sizing *job, pd_aggregation how)
{
    return pd_is_robust(how) ? pd_trimmed_mean_scratch((int)job->world) + 63 : 0;
}

int pd_footprint_of(pd_footprint *out, const pd_sizing *job, pd_aggregation how, const pd_plan *plan, pd_dtype pushed,
                    bool ranged, const bool pulled[4])
{
    int64_t thread;
    int rc = pd_plan_thread_bytes(plan, &thread);

    if (rc != PD_OK) return rc;
    pd_footprint_least(out, job, how, plan->elements, pushed, ranged, pulled);
    out->state = known(pd_plan_state_bytes(plan));
    if (job->durable) out->kept = pd_footprint_plus(kept_bytes(plan, pulled), pd_wal_param_bytes(plan, job->logged));
    if (job->logged) out->kept = pd_footprint_plus(out->kept, logged_bytes(plan));
    out->roots = root_bytes(plan);
    out->step = known(pd_plan_step_bytes(plan));
    out->records = pd_footprint_plus(out->records, (uint64_t)pd_plan_own_bytes(plan));
    out->thread = pd_footprint_plus(known(thread), robust_bytes(job, how));
    out->pool = known(pd_plan_task_scratch(plan, INFINITY));
    out->light = known(pd_plan_task_scratch(plan, PD_TASK_LIGHT));
    return PD_OK;
}

void pd_footprint_add(pd_footprint *all, const pd_footprint *one, uint64_t n)
{
    all->weights = pd_footprint_plus(all->weights, times(one->weights, n));
    all->sums = pd_footprint_plus(all->sums, times(one->sums, n));
    all->collected = pd_footprint_plus(all->collected, times(one->collected, n));
    all->state = pd_footprint_plus(all->state, times(one->state, n));
    all->kept = pd_footprint_plus(all->kept, times(one->kept, n));
    all->roots = pd_footprint_plus(all->roots, times(one->roots, n));
    all->step = pd_footprint_plus(all->step, times(one->step, n));
    all->records = pd_footprint_plus(all->records, times(one->records, n));
    if (one->thread > all->thread) all->thread = one->thread;
    if (one->pool > all->pool) all->pool = one->pool;
    if (one->light > all->light) all->light = one->light;
}

/* Returns the bytes of the records of a job itself, its ranks and its optimizer rules. The rule for model state, which
 * every job has besides its workers' rules, is counted once. */
static uint64_t own_bytes(const pd_sizing *job, const pd_rule *rules, size_t n_rules)
{
    uint64_t bytes = sizeof(pd_job) + 2 * sizeof(pd_effect) + sizeof(pd_rule) + ALLOCATOR_ENDS +
                     pd_fragments_bytes(job->world, job->fragments) +
                     (job->fragments > 1 ? job->fragments * (uint64_t)PD_LOOP_FRAGMENT_BYTES : 0);

    for (size_t r = 0; r < n_rules; r++)
        if (rules[r].hypers.row != &pd_model_state)
            bytes += sizeof(pd_rule) + (uint64_t)pd_block_bytes((int64_t)strlen(rules[r].text)) +
                     (uint64_t)pd_block_bytes((int64_t)pd_glob_bytes(rules[r].glob));
    return bytes + job->world * (sizeof(pd_rank) + sizeof(pd_quota) + (uint64_t)PD_LOOP_RANK_BYTES);
}

/* Returns the number of ranks if the sets of the job are open; otherwise 0. */
static uint32_t slots_of(const pd_sizing *job)
{
    pd_set_rule rule;
    pd_error err;

    return pd_set_rule_make(&rule, &job->values, job->world, &err) == PD_OK && rule.open ? job->world : 0;
}

/* Returns the bytes of the tallies of a job whose steps are settled by several shards. */
static uint64_t settle_bytes(const pd_sizing *job, const pd_rule *rules, size_t n_rules)
{
    const pd_settle_size size = { .values = &job->values,
                                  .rules = rules,
                                  .n_rules = n_rules,
                                  .scopes = pd_global_clip_scopes(&job->values, rules, n_rules),
                                  .shards = job->shards,
                                  .n_cut = job->n_cut,
                                  .ranks = job->world };

    return job->shards > 1 && pd_sizing_is_whole(job, rules, n_rules) ? pd_settle_bytes(&size) : 0;
}

void pd_footprint_complete(pd_footprint *all, const pd_sizing *job, const pd_rule *rules, size_t n_rules)
{
    uint64_t pool = pd_footprint_plus(times(all->pool, (uint64_t)job->pool_threads), all->light);
    uint64_t threads = pd_footprint_plus(times(all->thread, (uint64_t)job->threads), pool);

    all->job = pd_footprint_plus(pd_footprint_plus(threads, pd_global_clip_bytes(&job->values, rules, n_rules)),
                                 settle_bytes(job, rules, n_rules));
    all->records = pd_footprint_plus(all->records, own_bytes(job, rules, n_rules));
    if (job->durable)
        all->kept = pd_footprint_plus(all->kept, KEPT_HEAD + job->world * (uint64_t)KEPT_RANK +
                                                     pd_wal_own_bytes(slots_of(job), job->fragments));
    if (job->logged) all->kept = pd_footprint_plus(all->kept, LOGGED_OWN);
}

uint64_t pd_footprint_sum(const pd_footprint *n)
{
    uint64_t rounds =
                 pd_footprint_plus(pd_footprint_plus(n->weights, n->sums), pd_footprint_plus(n->collected, n->records)),
             steps = pd_footprint_plus(pd_footprint_plus(n->state, n->roots), pd_footprint_plus(n->step, n->job));

    return pd_footprint_plus(pd_footprint_plus(rounds, steps), n->kept);
}
