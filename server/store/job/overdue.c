/* overdue.c - reports overdue rounds (open longer than step_timeout) and missing initial weights to the workers that
 * wait for them; at once, if a rank that they need has left for good. */
#include "overdue.h"

#include "fragment.h"
#include "ranks.h"
#include "initial_weights.h"
#include "set_figures.h"

#include "settle.h"
#include "step_group.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

static const uint64_t second = 1000000000ull;
/* A slot is the contribution of one rank to one chunk. Largest number of slots that one report reads, which takes about
 * a millisecond. */
enum { MOST_LOOKED = 1000000 };

/* Requests that wait for a rank which has left for good are reported at once, and then as often as this: the loop
 * thread has pulls of which the store does not know. */
enum { AGAIN_MS = 1000 };
/* largest number of slots that one search for such requests reads, which takes less than 0.1 ms */
enum { MOST_LOOKED_AT_ONCE = 65536 };

/* Two reports, or two looks for ranks that have left, are so many times as far apart as one of them takes: they get at
 * most a hundredth of a thread. The estimates are for the step thread and the loop thread together. */
enum { REST = 100 };
#define PARAM_NS 40 /* to count an open round, and to find who waits for a parameter */
#define SLOT_NS 1   /* to look at a slot */

/* Returns the number of slots of a job, whose chunks are one array. */
static uint64_t count_slots(const pd_job *job)
{
    const pd_round *last = job->steps.n_params > 0 ? &job->steps.params[job->steps.n_params - 1].round : NULL;

    return last != NULL ? (uint64_t)(last->chunks + last->n_chunks - job->records.chunks) * job->steps.members.ranks
                        : 0;
}

/* Returns the least time between two reports, or between two looks that a request has asked for. */
static uint64_t rest_ns(const pd_job *job)
{
    uint64_t slots = count_slots(job);

    if (slots > MOST_LOOKED && job->steps.progress.n_begun == job->steps.n_params) slots = MOST_LOOKED;
    return REST * (PARAM_NS * (uint64_t)job->steps.n_params + SLOT_NS * slots);
}

/* Returns the least time between two reports of a job, besides what they cost. */
static uint64_t between_reports(const pd_job *job)
{
    uint64_t timeout = job->steps.values.at[PD_JOB_KEY_STEP_TIMEOUT], rest = rest_ns(job);

    if (timeout < PD_STEP_TIMEOUT_LEAST_NS) timeout = PD_STEP_TIMEOUT_LEAST_NS;
    return timeout > rest ? timeout : rest;
}

static uint64_t timeout_of(const pd_job *job)
{
    return job->steps.values.at[PD_JOB_KEY_STEP_TIMEOUT];
}

/* Writes a rank with its worker and state, like "rank 2 (host:123, lost 14 s ago)". Returns the length of the text. */
static size_t rank_text(const pd_job *job, uint32_t r, uint64_t now_ns, char *text, size_t size)
{
    const pd_rank *rank = &job->ranks[r];
    unsigned long long ago = (unsigned long long)((now_ns - rank->since_ns) / second);
    int n = 0;

    switch (rank->state) {
    case PD_RANK_ABSENT: n = snprintf(text, size, "rank %u (never came)", r); break;
    case PD_RANK_CONNECTED: n = snprintf(text, size, "rank %u (%.60s, connected)", r, rank->label); break;
    case PD_RANK_LOST: n = snprintf(text, size, "rank %u (%.60s, lost %llu s ago)", r, rank->label, ago); break;
    case PD_RANK_LEFT: n = snprintf(text, size, "rank %u (%.60s, left %llu s ago)", r, rank->label, ago); break;
    }
    return (size_t)n < size ? (size_t)n : size - 1;
}

static bool is_connected(const pd_job *job, uint32_t r)
{
    return job->ranks[r].state == PD_RANK_CONNECTED;
}

typedef bool owes_it(const pd_job *job, const pd_param *param, uint32_t r);

static bool owes_gradient(const pd_job *job, const pd_param *param, uint32_t r)
{
    (void)job;
    return pd_round_misses(&param->round, r);
}

/* In a job whose sets of ranks are open: whether the step that is collected waits for the rank. */
static bool owes_step(const pd_job *job, const pd_param *param, uint32_t r)
{
    return pd_fragment_misses(&job->steps, param->fragment, r);
}

/* Writes the ranks that the parameter waits for, as far as `text` has room. Ranks that are not connected come first.
 * owes(job, param, r) says whether it waits for rank r. Returns the number of ranks that it waits for. */
static uint32_t ranks_text(const pd_job *job, const pd_param *param, owes_it *owes, uint64_t now_ns, char *text,
                           size_t size)
{
    size_t used = 0;
    uint32_t n = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < 2 * job->steps.members.ranks; i++) {
        uint32_t r = i % job->steps.members.ranks;
        if (is_connected(job, r) != (i >= job->steps.members.ranks) || !owes(job, param, r)) continue;
        n++;
        if (used + 128 > size) continue;
        if (used > 0) used += (size_t)snprintf(text + used, size - used, ", ");
        used += rank_text(job, r, now_ns, text + used, size - used);
    }
    return n;
}

/* Returns the number of rounds of a fragment that are overdue. *step becomes the highest step that they are for. */
static uint32_t count_overdue(const pd_job *job, const pd_fragment *fragment, uint64_t now_ns, uint64_t *step)
{
    const pd_param *param;
    uint32_t n = 0;

    *step = 0;
    DL_FOREACH2(job->steps.queue.waiting, param, links.next_waiting)
    {
        if (param->round.started_ns + timeout_of(job) > now_ns) break;
        if (param->fragment != fragment) continue;
        if (param->saved.step + 1 > *step) *step = param->saved.step + 1;
        n++;
    }
    return n;
}

/* Returns the parameter to name in the report of the oldest overdue round, which is the round of `oldest`. If it has
 * all its contributions and waits for another parameter's round, the other parameter is returned. */
static const pd_param *culprit(const pd_job *job, const pd_param *oldest)
{
    const pd_param *awaited = oldest->stage == PD_HELD ? pd_param_awaited(&job->steps, oldest) : NULL;

    return awaited != NULL ? awaited : oldest;
}

static bool misses_gone(const pd_job *job, const pd_param *param)
{
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (!is_connected(job, r) && pd_round_misses(&param->round, r)) return true;
    return false;
}

/* Finds an overdue round that misses the contribution of a rank which is not connected. This rank may be the reason why
 * connected ranks are late: contributions wait for it and fill the memory that the next contributions need. Looks at a
 * limited number of rounds, oldest first. NULL: found none. */
static const pd_param *abandoned(const pd_job *job, uint64_t now_ns)
{
    const pd_param *param;
    uint64_t looked = 0;

    DL_FOREACH2(job->steps.queue.waiting, param, links.next_waiting)
    {
        if (param->round.started_ns + timeout_of(job) > now_ns || looked > MOST_LOOKED) break;
        if (misses_gone(job, param)) return param;
        looked += (uint64_t)param->round.n_chunks * job->steps.members.ranks;
    }
    return NULL;
}

/* Returns a hint for a job that shrinks, but waits for a rank that never came; else "". */
static const char *hint_of(const pd_job *job, const pd_param *param)
{
    for (uint32_t r = 0; job->steps.sets.on_lost == PD_LOST_SHRINK && r < job->steps.members.ranks; r++)
        if (job->ranks[r].state == PD_RANK_ABSENT && pd_round_misses(&param->round, r))
            return ", or remove the rank (paramctl kick)";
    return "";
}

/* Writes the error text of an overdue round, with the ranks whose gradients are missing. `oldest` is the parameter
 * whose round is overdue. `late` is the parameter whose gradients are missing: `oldest` itself, or another one that it
 * waits for. `n` is the number of overdue rounds. */
static void describe(const pd_job *job, const pd_param *oldest, const pd_param *late, uint32_t n, uint64_t now_ns,
                     pd_error *err)
{
    unsigned long long ago = (unsigned long long)((now_ns - oldest->round.started_ns) / second);
    char ranks[300], more[48] = "", held[160] = "", what[48], other[48];
    const char *again = late->current != NULL ? "push" : "pull";
    uint32_t missing = ranks_text(job, late, owes_gradient, now_ns, ranks, sizeof ranks);

    if (n > 1) snprintf(more, sizeof more, " (and %u more parameter%s)", n - 1, n > 2 ? "s" : "");
    if (late != oldest)
        snprintf(held, sizeof held, ", which %s of %.100s waits for", pd_round_text(oldest, other, sizeof other),
                 oldest->name);
    pd_round_text(late, what, sizeof what);
    if (missing == 0)
        pd_fail(
            err, PD_DEADLINE_EXCEEDED,
            "%s of %.100s%s ha%s not been taken for %llu s%s; contributions so far are kept, %s again to keep waiting",
            what, late->name, more, late->current != NULL ? "s" : "ve", ago, held, again);
    else
        pd_fail(err, PD_DEADLINE_EXCEEDED,
                "%s ha%s not contributed to %s of %.100s%s for %llu s%s; contributions so far are kept, %s again to "
                "keep waiting%s",
                ranks, missing == 1 ? "s" : "ve", what, late->name, more, ago, held, again, hint_of(job, late));
}

/* Writes which quorum the step of a fragment lacks: too few members, or too few of them are whole. */
static void quorum_text(const pd_job *job, const pd_fragment *fragment, const char *ranks, char *text, size_t size)
{
    uint32_t whole, expected = pd_fragment_expected(&job->steps, fragment, &whole), members = pd_members_count(job),
                    quorum = pd_fragment_quorum(&job->steps, fragment);

    if (members < job->steps.sets.least)
        snprintf(text, size, "for members: the job has %u, and needs %u (min_workers)", members, job->steps.sets.least);
    else
        snprintf(text, size, "for %u more of %s%u workers: %s", quorum - whole, quorum < expected ? "a quorum of " : "",
                 quorum, ranks);
}

/* Writes what the step of a fragment waits for. `oldest` is a parameter of it whose round is overdue. */
static void wait_text(const pd_job *job, const pd_param *oldest, uint64_t now_ns, char *text, size_t size)
{
    const pd_fragment *fragment = oldest->fragment;
    char ranks[300];
    uint32_t missing = ranks_text(job, oldest, owes_step, now_ns, ranks, sizeof ranks);

    switch (pd_fragment_lack(&job->steps, fragment)) {
    case PD_SET_LACKS_NOTHING:
        snprintf(text, size, "%s%s", missing > 0 ? "in its grace for " : "for the server's memory", ranks);
        break;
    case PD_SET_LACKS_CLOSE:
        snprintf(text, size, "until all parameters have taken step %llu", (unsigned long long)fragment->fixed);
        break;
    case PD_SET_LACKS_DISK: snprintf(text, size, "for the disk, or for a copy of the job's state"); break;
    case PD_SET_LACKS_REPEATED:
        snprintf(text, size, "for %s, to count the same ranks as before the server was restarted", ranks);
        break;
    case PD_SET_LACKS_GROUPS:
        snprintf(text, size, "for %s: until all members have said Hello, no group is known to be whole", ranks);
        break;
    case PD_SET_LACKS_QUORUM:
    case PD_SET_LACKS_MEMBERS: quorum_text(job, fragment, ranks, text, size); break;
    case PD_SET_LACKS_STALE:
        snprintf(text, size, "for %s, whose contributions would become older than staleness allows", ranks);
        break;
    }
}

/* Writes the error text of an overdue step, in a job whose sets of ranks are open. */
static void describe_step(const pd_job *job, const pd_param *oldest, uint64_t now_ns, pd_error *err)
{
    const pd_fragment *fragment = oldest->fragment;
    unsigned long long ago = (unsigned long long)((now_ns - oldest->round.started_ns) / second);
    char text[400], of[32] = "";

    if (job->steps.n_fragments > 1 || fragment->declared > 0)
        snprintf(of, sizeof of, " of fragment %u", fragment->declared);
    wait_text(job, oldest, now_ns, text, sizeof text);
    pd_fail(err, PD_DEADLINE_EXCEEDED,
            "step %llu%s has waited for %llu s %s; contributions so far are kept, push again to keep waiting%s",
            (unsigned long long)(fragment->fixed + 1), of, ago, text, hint_of(job, oldest));
}

/* Writes the error text of overdue rounds that miss contributions. */
static void describe_late(const pd_job *job, const pd_param *oldest, uint32_t n, uint64_t now_ns, pd_error *err)
{
    const pd_param *late = culprit(job, oldest), *other = misses_gone(job, late) ? NULL : abandoned(job, now_ns);

    if (other != NULL)
        describe(job, other, other, n, now_ns, err);
    else
        describe(job, oldest, late, n, now_ns, err);
}

/* Writes the error text of a step that has all contributions of this shard, and waits for a verdict (step/settle.h). */
static void describe_unsettled(const pd_job *job, const pd_param *oldest, uint64_t now_ns, pd_error *err)
{
    pd_fail(
        err, PD_DEADLINE_EXCEEDED,
        "step %llu has waited for %llu s for the verdict of all %u shards: this one, shard %u, has all contributions, "
        "another one misses some, or no worker is connected to all; contributions so far are kept, push again to "
        "keep waiting",
        (unsigned long long)(oldest->saved.step + 1),
        (unsigned long long)((now_ns - oldest->round.started_ns) / second), job->steps.shards, job->steps.shard);
}

static void describe_overdue(const pd_job *job, const pd_param *oldest, uint32_t n, uint64_t now_ns, pd_error *err)
{
    if (pd_settle_waits(&job->steps)) {
        describe_unsettled(job, oldest, now_ns, err);
        return;
    }
    describe_late(job, oldest, n, now_ns, err);
}

static pd_log_facts facts_of(const pd_job *job, const pd_effect *effect)
{
    return (pd_log_facts){ .job = job->steps.name,
                           .step = &effect->u.timed_out.step,
                           .code = effect->u.timed_out.error.code };
}

/* Returns whether the overdue round is logged already. */
static bool is_noticed(const pd_job *job, const pd_param *oldest)
{
    if (job->steps.n_fragments > 1 && oldest->current != NULL)
        return oldest->fragment->noticed == oldest->saved.step + 1;
    return job->reports.noticed == oldest && job->reports.noticed_step == oldest->saved.step;
}

/* Reports that rounds of a fragment are overdue, of which that of `oldest` is the oldest. */
static void report_fragment(pd_job *job, const pd_param *oldest, uint64_t now_ns)
{
    pd_effect *effect = pd_job_effect(job, PD_EFF_TIMED_OUT);
    uint32_t n;

    /* Out of memory: the report is tried again at the next deadline. */
    if (effect == NULL) return;
    effect->u.timed_out.fragment = oldest->fragment->declared;
    n = count_overdue(job, oldest->fragment, now_ns, &effect->u.timed_out.step);
    if (oldest->saved.step + 1 > effect->u.timed_out.step) effect->u.timed_out.step = oldest->saved.step + 1;
    if (oldest->round.together && !oldest->round.fixed)
        describe_step(job, oldest, now_ns, &effect->u.timed_out.error);
    else
        describe_overdue(job, oldest, n, now_ns, &effect->u.timed_out.error);
    if (!is_noticed(job, oldest))
        pd_say(job->steps.outbox, PD_SAY_WARNING, facts_of(job, effect), "%.300s", effect->u.timed_out.error.text);
    job->reports.noticed = oldest;
    job->reports.noticed_step = oldest->saved.step;
    oldest->fragment->noticed = oldest->saved.step + 1;
    pd_effects_add(job->steps.outbox, effect);
}

/* Reports the overdue rounds of each fragment that has some. A step that waits for a verdict about refusals has begun
 * before all rounds that wait for ranks. */
static void report_overdue(pd_job *job, uint64_t now_ns)
{
    bool reported[PD_MAX_FRAGMENTS] = { false };
    const pd_param *param = pd_step_groups_unsettled(&job->steps);

    job->reports.noticed_ns = now_ns;
    if (param != NULL) {
        reported[param->fragment->number] = true;
        report_fragment(job, param, now_ns);
    }
    DL_FOREACH2(job->steps.queue.waiting, param, links.next_waiting)
    {
        if (param->round.started_ns + timeout_of(job) > now_ns) break;
        if (reported[param->fragment->number]) continue;
        reported[param->fragment->number] = true;
        report_fragment(job, param, now_ns);
    }
}

/* Returns the time at which missing initial weights are to be reported. It is never, if initial weights are averaged:
 * these are contributions to a round, which is reported when it is overdue. */
static uint64_t init_overdue_at(const pd_job *job)
{
    uint64_t at = job->reports.init_ns + timeout_of(job),
             next = job->reports.noticed_ns > 0 ? job->reports.noticed_ns + between_reports(job) : 0;

    if (job->steps.progress.n_begun == job->steps.n_params || pd_job_averages_init(job)) return UINT64_MAX;
    return next > at ? next : at;
}

/* Returns the first parameter that has no weights, and stores in *n how many parameters have none. */
static const pd_param *first_without_weights(const pd_job *job, uint32_t *n)
{
    const pd_param *first = NULL;

    *n = 0;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        if (job->steps.params[i].current != NULL) continue;
        if (first == NULL) first = &job->steps.params[i];
        ++*n;
    }
    return first;
}

static void describe_init(const pd_job *job, const pd_param *param, uint32_t n, uint64_t now_ns, pd_error *err)
{
    char ranks[300], more[48] = "";

    /* In a job with open sets, a rank may have gone that was to send them. */
    if (ranks_text(job, param, pd_init_is_owed, now_ns, ranks, sizeof ranks) == 0)
        snprintf(ranks, sizeof ranks, "no worker is there that is to send them, the next one that declares will");
    if (n > 1) snprintf(more, sizeof more, " (and of %u more parameter%s)", n - 1, n > 2 ? "s" : "");
    pd_fail(
        err, PD_DEADLINE_EXCEEDED,
        "%s: no initial weights received of %.100s%s for %llu s; weights so far are kept, pull again to keep waiting",
        ranks, param->name, more, (unsigned long long)((now_ns - job->reports.init_ns) / second));
}

/* Reports missing initial weights to the workers that wait to pull weights: which ranks have not sent them. */
static void report_init(pd_job *job, uint64_t now_ns)
{
    uint32_t n;
    const pd_param *param = first_without_weights(job, &n);
    pd_effect *effect = pd_job_effect(job, PD_EFF_TIMED_OUT);

    if (effect != NULL) {
        effect->u.timed_out.fragment = PD_ALL_FRAGMENTS;
        effect->u.timed_out.step = param->saved.step;
        describe_init(job, param, n, now_ns, &effect->u.timed_out.error);
        pd_say(job->steps.outbox, PD_SAY_WARNING, facts_of(job, effect), "%.300s", effect->u.timed_out.error.text);
        pd_effects_add(job->steps.outbox, effect);
    }
    job->reports.init_ns = job->reports.noticed_ns = now_ns;
}

/* Returns whether the open step of the parameter can be taken without the ranks that have left: a quorum of others is
 * expected. */
static bool can_do_without(const pd_job *job, const pd_param *param)
{
    uint32_t whole, expected, left = 0;

    if (!param->round.together || job->steps.sets.waits) return false;
    expected = pd_fragment_expected(&job->steps, param->fragment, &whole);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        left += job->ranks[r].state == PD_RANK_LEFT && owes_step(job, param, r);
    return expected >= left + pd_fragment_quorum(&job->steps, param->fragment);
}

/* Returns a rank that has left for good and that the parameter waits for; NULL: none. owes(job, param, r) says whether
 * it waits for rank r. */
static const pd_rank *deserter(const pd_job *job, const pd_param *param, owes_it *owes)
{
    if (owes == owes_gradient && can_do_without(job, param)) return NULL;
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (job->ranks[r].state == PD_RANK_LEFT && pd_is_member(job, r) && owes(job, param, r)) return &job->ranks[r];
    return NULL;
}

/* Returns the parameter to name if the open round of `param` waits for a rank that has left; NULL: it does not. */
static const pd_param *deserted(const pd_job *job, const pd_param *param)
{
    const pd_param *late = culprit(job, param);

    return deserter(job, late, owes_gradient) != NULL ? late : NULL;
}

/* Looks at open rounds, oldest first, for those that wait for a rank which has left; at the newest one in any case. It
 * looks at about `most` slots. *step becomes the highest step of such a round. Returns the parameter to name; NULL:
 * found none. */
static const pd_param *find_deserted(const pd_job *job, uint64_t most, uint64_t *step)
{
    const pd_param *found = NULL, *param = job->steps.queue.waiting,
                   *newest = param != NULL ? param->links.prev_waiting : NULL;
    uint64_t looked = 0;

    *step = 0;
    for (; param != NULL; param = looked <= most || param == newest ? param->links.next_waiting : newest) {
        const pd_param *late = deserted(job, param);
        looked += (uint64_t)param->round.n_chunks * job->steps.members.ranks;
        if (late == NULL) continue;
        if (param->saved.step + 1 > *step) *step = param->saved.step + 1;
        if (found == NULL) found = late;
    }
    return found;
}

static void describe_deserter(const pd_job *job, const pd_rank *rank, const char *what, const char *of, pd_error *err)
{
    pd_fail(err, PD_FAILED_PRECONDITION,
            "rank %u (%.60s) has left job %.60s for good after step %llu, and is still needed for %s%.80s. Likely "
            "causes: the ranks have different numbers of batches, or one has stopped early. Let all take the same "
            "number of steps, or leave together. Contributions so far are kept",
            (unsigned)(rank - job->ranks), rank->label, job->steps.name, (unsigned long long)rank->saved.step, what,
            of);
}

/* Reports to all who wait for rounds up to `step`, or for initial weights, that a rank has left. It is logged once for
 * each round. */
static void report_deserted(pd_job *job, const pd_param *param, owes_it *owes, uint64_t step)
{
    pd_effect *effect = pd_job_effect(job, PD_EFF_TIMED_OUT);
    char what[48], of[64];

    if (effect == NULL) return;
    pd_round_text(param, what, sizeof what);
    snprintf(of, sizeof of, " of %.55s", param->name);
    effect->u.timed_out.fragment = PD_ALL_FRAGMENTS;
    effect->u.timed_out.step = step;
    describe_deserter(job, deserter(job, param, owes), what, of, &effect->u.timed_out.error);
    if (job->reports.noticed != param || job->reports.noticed_step != param->saved.step)
        pd_say(job->steps.outbox, PD_SAY_WARNING, facts_of(job, effect), "%.300s", effect->u.timed_out.error.text);
    job->reports.noticed = param;
    job->reports.noticed_step = param->saved.step;
    pd_effects_add(job->steps.outbox, effect);
}

static void refuse_barriers(pd_job *job)
{
    pd_error err;
    uint32_t r = 0;

    while (r < job->steps.members.ranks && !(job->ranks[r].state == PD_RANK_LEFT && pd_is_member(job, r))) r++;
    if (r == job->steps.members.ranks) return;
    describe_deserter(job, &job->ranks[r], "a barrier", "", &err);
    pd_barriers_refuse(job, &err);
}

/* Returns when to look next for requests that wait for a rank which has left for good. */
static uint64_t deserted_at(const pd_job *job)
{
    uint64_t soon = job->reports.looked_ns > 0 ? job->reports.looked_ns + rest_ns(job) : 0;

    if (job->left == 0 || job->connected == 0) return UINT64_MAX;
    return job->reports.look_soon && soon < job->reports.look_ns ? soon : job->reports.look_ns;
}

void pd_overdue_look(pd_job *job)
{
    job->reports.look_soon = true;
}

static void look_for_deserters(pd_job *job, uint64_t now_ns)
{
    uint64_t step, most = job->reports.look_soon ? MOST_LOOKED_AT_ONCE : MOST_LOOKED;
    const pd_param *param = find_deserted(job, most, &step);

    job->reports.look_soon = false;
    job->reports.looked_ns = now_ns;
    job->reports.look_ns = now_ns + (uint64_t)AGAIN_MS * (second / 1000);
    refuse_barriers(job);
    if (param != NULL) {
        report_deserted(job, param, owes_gradient, step);
        return;
    }
    if (job->steps.progress.n_begun == job->steps.n_params || pd_job_averages_init(job)) return;
    for (uint32_t i = 0; i < job->steps.n_params; i++) {
        param = &job->steps.params[i];
        if (param->current != NULL || deserter(job, param, pd_init_is_owed) == NULL) continue;
        report_deserted(job, param, pd_init_is_owed, param->saved.step);
        return;
    }
}

/* Returns the parameter whose open round has waited longest, for ranks, other parameters or a verdict; NULL: none
 * waits. */
static const pd_param *oldest_open(const pd_job *job)
{
    const pd_param *unsettled = pd_step_groups_unsettled(&job->steps);

    return unsettled != NULL ? unsettled : job->steps.queue.waiting;
}

/* Returns the time at which overdue rounds are to be reported next: one step_timeout after the oldest open round
 * began, but not too soon after the last report. */
static uint64_t overdue_at(const pd_job *job)
{
    const pd_param *oldest = oldest_open(job);
    uint64_t at, next;

    if (oldest == NULL) return UINT64_MAX;
    at = oldest->round.started_ns + timeout_of(job);
    next = job->reports.noticed_ns > 0 ? job->reports.noticed_ns + between_reports(job) : 0;
    return next > at ? next : at;
}

uint64_t pd_overdue_next(const pd_job *job)
{
    uint64_t at = overdue_at(job), init = init_overdue_at(job), deserted = deserted_at(job);

    if (init < at) at = init;
    return deserted < at ? deserted : at;
}

void pd_overdue_tick(pd_job *job, uint64_t now_ns)
{
    if (now_ns >= deserted_at(job)) look_for_deserters(job, now_ns);
    if (now_ns >= overdue_at(job)) report_overdue(job, now_ns);
    if (now_ns >= init_overdue_at(job)) report_init(job, now_ns);
}
