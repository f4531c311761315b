/* set_rule.c - fills in the defaults of the job keys of rounds and members, and checks that they suit each other. */
#include "set_rule.h"

#include <math.h>

/* values of the key `rounds` */
enum { ROUNDS_SYNC, ROUNDS_QUORUM, ROUNDS_ASYNC };

/* The first word of a key, "default", and its second one (pd_job_key.words). */
#define DEFAULT UINT64_MAX
#define SECOND_WORD (UINT64_MAX - 1)

static uint64_t value_of(const pd_job_values *values, enum pd_job_key_index key, uint64_t preset)
{
    return values->at[key] == DEFAULT ? preset : values->at[key];
}

/* Returns the value of a choice whose first one is "default". */
static uint64_t choice_of(const pd_job_values *values, enum pd_job_key_index key, uint64_t preset)
{
    return values->at[key] == 0 ? preset : values->at[key] - 1;
}

/* Returns whether the aggregate of the job does not depend on the weights of contributions. */
static bool ignores_weights(const pd_job_values *values)
{
    pd_aggregation how = (pd_aggregation)values->at[PD_JOB_KEY_AGGREGATE];

    return pd_is_collected(how) && !pd_is_weighted(how);
}

static void fill_rounds(pd_set_rule *rule, const pd_job_values *values)
{
    bool async = values->at[PD_JOB_KEY_ROUNDS] == ROUNDS_ASYNC;
    uint64_t quorum = value_of(values, PD_JOB_KEY_QUORUM, async ? 1 : SECOND_WORD),
             staleness = value_of(values, PD_JOB_KEY_STALENESS, async ? SECOND_WORD : 0);

    rule->quorum = quorum == SECOND_WORD ? UINT32_MAX : (uint32_t)quorum;
    rule->grace_ns = values->at[PD_JOB_KEY_GRACE];
    rule->staleness = staleness == SECOND_WORD ? UINT64_MAX : staleness;
    rule->waits = values->at[PD_JOB_KEY_ON_STALE] == 1;
    rule->damping = (pd_damping)choice_of(values, PD_JOB_KEY_DAMPING,
                                          async && !ignores_weights(values) ? PD_DAMPING_ROOT : PD_DAMPING_NONE);
    rule->weight_cap = pd_job_values_limit(values, PD_JOB_KEY_WEIGHT_CAP);
}

static void fill_members(pd_set_rule *rule, const pd_job_values *values, uint32_t world)
{
    uint64_t least = value_of(values, PD_JOB_KEY_MIN_WORKERS, 0),
             most = value_of(values, PD_JOB_KEY_MAX_WORKERS, world);
    bool elastic = least > 0 && least < most;

    rule->on_lost = (pd_on_lost)choice_of(values, PD_JOB_KEY_ON_LOST_WORKER, elastic ? PD_LOST_SHRINK : PD_LOST_WAIT);
    rule->least = least > 0 ? (uint32_t)least : rule->on_lost == PD_LOST_SHRINK ? 1 : world;
    rule->in_ranks = least == 0;
    rule->most = (uint32_t)most;
    rule->reconnect_grace_ns = values->at[PD_JOB_KEY_RECONNECT_GRACE];
}

static int check_members(const pd_set_rule *rule, uint32_t world, pd_error *err)
{
    if (rule->least > rule->most)
        return pd_fail(err, PD_INVALID_ARGUMENT, "min_workers = %u is more than max_workers = %u", rule->least,
                       rule->most);
    if (world > rule->most)
        return pd_fail(err, PD_INVALID_ARGUMENT, "the job begins with %u workers, more than max_workers = %u", world,
                       rule->most);
    if (rule->quorum != UINT32_MAX && rule->quorum > rule->most)
        return pd_fail(err, PD_INVALID_ARGUMENT, "quorum = %u is more than the %u workers that the job can have",
                       rule->quorum, rule->most);
    return PD_OK;
}

static int check_values(const pd_set_rule *rule, const pd_job_values *values, pd_error *err)
{
    if (values->at[PD_JOB_KEY_ROUNDS] == ROUNDS_QUORUM && values->at[PD_JOB_KEY_QUORUM] == DEFAULT)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "rounds = quorum needs quorum: how many workers a step waits for, such as quorum = 3");
    if (rule->waits && rule->staleness == UINT64_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT, "on_stale = wait needs staleness: the largest age, such as 4");
    if (rule->damping != PD_DAMPING_NONE && ignores_weights(values)) {
        char how[32];
        return pd_fail(
            err, PD_INVALID_ARGUMENT,
            "damping changes weights, which aggregate = %s ignores: use mean, weighted_mean or radial_mean, or "
            "damping = none",
            pd_job_values_text(values, PD_JOB_KEY_AGGREGATE, how, sizeof how));
    }
    if (!rule->open) return PD_OK;
    if (values->at[PD_JOB_KEY_AGGREGATE] == PD_SUM && (rule->quorum != UINT32_MAX || rule->staleness > 0))
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "aggregate = sum needs the contributions of all: with a quorum or staleness, use mean");
    if (values->at[PD_JOB_KEY_INITIAL_WEIGHTS] == PD_INIT_MEAN)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "initial_weights = mean needs all workers: it does not go with a quorum, staleness, or workers "
                       "that come and go");
    return PD_OK;
}

int pd_set_rule_make(pd_set_rule *rule, const pd_job_values *values, uint32_t world, pd_error *err)
{
    int rc;

    *rule = (pd_set_rule){ 0 };
    fill_rounds(rule, values);
    fill_members(rule, values, world);
    rule->open = rule->quorum != UINT32_MAX || rule->staleness > 0 || rule->on_lost == PD_LOST_SHRINK ||
                 rule->least < rule->most;
    rc = check_members(rule, world, err);
    return rc == PD_OK ? check_values(rule, values, err) : rc;
}

uint32_t pd_set_rule_fewest(const pd_set_rule *rule)
{
    return rule->quorum < rule->least ? rule->quorum : rule->least;
}

double pd_set_rule_damp(const pd_set_rule *rule, uint64_t age)
{
    if (rule->damping == PD_DAMPING_INVERSE) return 1.0 / (1.0 + (double)age);
    return rule->damping == PD_DAMPING_ROOT ? 1.0 / sqrt(1.0 + (double)age) : 1.0;
}
