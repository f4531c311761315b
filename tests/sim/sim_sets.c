/* sim_sets.c - checks which ranks count in the steps of jobs with open sets. */
#include "sim_sets.h"

#include "fragment.h"
#include "job.h"
#include "server_state.h"
#include "sim_judge.h"
#include "sim_patience.h"
#include "sim_shares.h"
#include "store_inside.h"
#include "worker.h"

#include <math.h>

typedef unsigned long long number;

sim_history *sim_sets_history(sim *s, const sim_job *job, uint64_t creator)
{
    sim_history *h = s->histories;

    while (h != NULL && (h->job == NULL || h->job->number != job->number || h->creator != creator)) h = h->next;
    return h;
}

uint64_t sim_sets_newest(const sim *s, const sim_job *job)
{
    const sim_history *h = s->histories;

    while (h != NULL && (h->job == NULL || h->job->number != job->number)) h = h->next;
    return h != NULL ? h->creator : 0;
}

uint64_t sim_sets_barrier(sim *s, const sim_job *job, uint64_t creator)
{
    const sim_history *h = sim_sets_history(s, job, creator);

    return h != NULL ? h->fragments[0].watch.barrier : 0;
}

static sim_sets *sets_of(sim_history *h, uint32_t param)
{
    return &h->fragments[sim_fragment_of(h->job, param)];
}

void sim_sets_sent(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint32_t param, uint64_t step)
{
    sim_history *h = job->open.on ? sim_sets_history(s, job, creator) : NULL;

    if (h != NULL) sets_of(h, param)->pushes[rank].sent[step] = true;
}

/* Returns the step of the rank's push that counted in a step of the fragment; 0: none did. */
static uint64_t push_of(const sim_sets *f, uint64_t step, uint32_t rank)
{
    const sim_set *set = &f->sets[step];

    return set->known && (set->mask >> rank & 1) != 0 ? step - set->age[rank] : 0;
}

/* Returns the step in which a push has counted, of the job's present course; 0: it has not. A step that was taken again
 * with another course may have left the push out. */
static uint64_t counted_in(const sim_sets *f, uint32_t rank, uint64_t of)
{
    uint64_t step = f->pushes[rank].counted[of];

    return step > 0 && !f->sets[step].open && push_of(f, step, rank) == of ? step : 0;
}

uint64_t sim_sets_counted(const sim_history *h, uint32_t rank, uint64_t of)
{
    return counted_in(&h->fragments[0], rank, of);
}

/* Checks the age of a push and the number of ranks that a process was told of. Frames of a late push may have been
 * answered in several steps: then the number is that of one of them. */
static void check_told(const sim_history *h, const sim_sets *f, uint32_t rank, uint64_t of, const pd_item *item,
                       const pd_item_count *count)
{
    uint64_t in = item->outcome != PD_LATE ? counted_in(f, rank, of) : 0, age = in > 0 ? in - of : 0;
    uint32_t n = (uint32_t)__builtin_popcount(f->sets[in].mask);

    if ((in > 0 || item->outcome == PD_LATE) && count->age != age)
        sim_fail("told", "%s rank %u is told that its push for step %llu has age %u, and it is %llu", h->job->name,
                 rank, (number)of, count->age, (number)age);
    if (in > 0 && item->step == in && count->counted != n && !(count->counted == 0 && n == h->job->world))
        sim_fail("told", "%s rank %u is told that %u ranks have counted in step %llu, and %u have", h->job->name, rank,
                 count->counted, (number)in, n);
}

void sim_sets_told(sim *s, const sim_job *job, uint64_t creator, uint32_t rank, uint64_t step, const pd_item *item,
                   const pd_item_count *count)
{
    sim_history *h = sim_sets_history(s, job, creator);
    sim_sets *f = h != NULL ? sets_of(h, (uint32_t)item->param) : NULL;
    sim_pushes *pushes = f != NULL ? &f->pushes[rank] : NULL;
    bool late = item->outcome == PD_LATE;

    if (pushes == NULL) return;
    if (late && counted_in(f, rank, step) > 0)
        sim_fail("told", "%s rank %u is told that its push for step %llu came too late, but it counted in step %llu",
                 job->name, rank, (number)step, (number)pushes->counted[step]);
    if (!late && pushes->counted[step] == 0)
        sim_fail("told", "%s rank %u is told that its push for step %llu has counted, but it has not", job->name, rank,
                 (number)step);
    check_told(h, f, rank, step, item, count);
    pushes->late[step] = pushes->late[step] || late;
}

uint64_t sim_sets_push(const sim_history *h, uint32_t param, uint64_t step, uint32_t rank)
{
    return h->job->open.on ? push_of(&h->fragments[sim_fragment_of(h->job, param)], step, rank) : step;
}

static sim_set read_set(const sim_job *job, const pd_closed *closed)
{
    sim_set set = { .known = true };

    for (uint32_t rank = 0; rank < job->world; rank++) {
        if (pd_counted_has(closed->counted, rank)) set.mask |= 1u << rank;
        if (pd_counted_keeps(closed->counted, rank)) set.kept |= 1u << rank;
        set.age[rank] = pd_counted_age(closed->counted, rank);
    }
    return set;
}

/* Checks that the push which counts in a step was sent, is not too old, and counts for the first time. */
static void check_push(sim_history *h, sim_sets *f, uint64_t step, uint32_t rank, uint64_t age)
{
    const sim_open *open = &h->job->open;
    sim_pushes *pushes = &f->pushes[rank];
    uint64_t of = step - age;

    if (age > open->staleness || age >= step)
        sim_fail("ages", "%s rank %u counts in step %llu with age %llu", h->job->name, rank, (number)step, (number)age);
    if (!pushes->sent[of])
        sim_fail("whole", "%s rank %u counts in step %llu with a push for step %llu, which it has not sent",
                 h->job->name, rank, (number)step, (number)of);
    if (counted_in(f, rank, of) > 0)
        sim_fail("counted once",
                 "%s rank %u counts in step %llu with its push for step %llu, which counted in step %llu", h->job->name,
                 rank, (number)step, (number)of, (number)pushes->counted[of]);
    if (pushes->late[of])
        sim_fail("told",
                 "%s rank %u counts in step %llu with its push for step %llu, of which it was told that it "
                 "came too late",
                 h->job->name, rank, (number)step, (number)of);
    /* Later steps may have been taken before the server went back. */
    for (uint64_t later = of + 1; later < VERSIONS; later++)
        if (counted_in(f, rank, later) > 0 && pushes->counted[later] < step)
            sim_fail("ages", "%s rank %u counts in step %llu with its push for step %llu, after the one for step %llu",
                     h->job->name, rank, (number)step, (number)of, (number)later);
    pushes->counted[of] = step;
    if (f == &h->fragments[0]) sim_shares_count(h, rank, of); /* pushes of other fragments are made of no shares */
}

/* Returns the number of groups that the ranks belong to. */
static uint32_t count_groups(const sim_history *h, uint32_t ranks)
{
    uint32_t groups = 0;

    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if ((ranks >> rank & 1) != 0) groups |= 1u << h->fragments[0].watch.group[rank];
    return (uint32_t)__builtin_popcount(groups);
}

static uint32_t mates_of(const sim_history *h, uint32_t rank)
{
    uint32_t mates = 0;

    for (uint32_t other = 0; other < h->job->world; other++)
        if (h->fragments[0].watch.group[other] == h->fragments[0].watch.group[rank]) mates |= 1u << other;
    return mates;
}

/* Checks a set that is not known yet. */
static void check_new(sim_history *h, sim_sets *f, uint64_t step, const sim_set *set)
{
    const sim_open *open = &h->job->open;
    uint32_t n = count_groups(h, set->mask);
    /* Once members have come or gone, it is not known how many the step has waited for. */
    uint32_t needed = h->least_members > 0 ? 1 : open->quorum, all = (h->job->world + open->group - 1) / open->group;

    if (needed > all) needed = all;
    if (n < needed)
        sim_fail("quorum", "%s: step %llu is taken with %u groups (%x), but it needs %u", h->job->name, (number)step, n,
                 set->mask, needed);
    if ((set->mask & set->kept) != 0)
        sim_fail("counted once", "%s: ranks (%x) count in step %llu, and are kept for the next one", h->job->name,
                 set->mask & set->kept, (number)step);
    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if ((set->mask >> rank & 1) != 0) check_push(h, f, step, rank, set->age[rank]);
}

static bool are_alike(const sim_set *a, const sim_set *b)
{
    return a->mask == b->mask && memcmp(a->age, b->age, sizeof a->age) == 0;
}

void sim_sets_note_members(sim_history *h, const pd_job *job)
{
    if (job->steps.epoch > 0 && (h->job->open.shrinks || h->job->open.any_rank)) h->least_members = 1;
}

void sim_sets_adopt(sim_history *h, uint32_t param, const pd_closed *closed)
{
    sim_set *before = &sets_of(h, param)->sets[closed->step], set = read_set(h->job, closed);

    if (before->known && !before->open) return;
    check_new(h, sets_of(h, param), closed->step, &set);
    *before = set;
}

void sim_sets_forget(sim_history *h, uint32_t fragment, uint64_t step)
{
    sim_sets *f = &h->fragments[fragment];

    for (uint64_t later = step; later < VERSIONS; later++) f->sets[later].open = f->sets[later].known;
    for (uint32_t rank = 0; rank < SIM_WORLD; rank++) memset(f->pushes[rank].late, 0, sizeof f->pushes[rank].late);
}

bool sim_sets_was_whole(const sim_history *h, uint32_t param, const pd_closed *closed)
{
    const sim_set *before = &h->fragments[sim_fragment_of(h->job, param)].sets[closed->step];
    uint32_t ranks = closed->counted != NULL ? closed->counted->ranks : h->job->world, all = (1u << ranks) - 1;
    sim_set set = read_set(h->job, closed);
    uint64_t oldest = 0;

    for (uint32_t rank = 0; rank < h->job->world; rank++) oldest += before->age[rank];
    return before->known && !before->open && before->mask == all && oldest == 0 && !are_alike(before, &set);
}

void sim_sets_forget_one(sim_history *h, uint32_t param, uint64_t step)
{
    sim_sets *f = sets_of(h, param);

    f->sets[step].open = true;
    for (uint32_t rank = 0; rank < SIM_WORLD; rank++)
        for (uint64_t later = step + 1; later < VERSIONS; later++) f->pushes[rank].late[later] = false;
}

double sim_sets_scalar(uint32_t rank, uint64_t step)
{
    return (double)(1u << rank) + 256.0 * (double)step;
}

/* Returns whether the rank gives a scalar with its push: it pushes parameter 0, if only to say that it is absent. */
static bool gives_scalar(const sim_job *job, uint32_t rank, uint64_t step)
{
    return sim_has_gradient(job, rank, step, 0) || !sim_rank_closes(job, rank, step);
}

double sim_sets_lr(uint64_t step)
{
    return 1.0 / (double)(1u << step % 3);
}

void sim_sets_lr_text(uint64_t step, char *text, size_t size)
{
    snprintf(text, size, "lr=%g", sim_sets_lr(step));
}

uint64_t sim_sets_lr_step(const sim_history *h, uint64_t step, uint32_t param)
{
    for (uint32_t rank = 0; h->job->open.sends_lr && rank < h->job->world; rank++) {
        uint64_t of = sim_sets_push(h, param, step, rank);
        if (of > 0 && (sim_has_gradient(h->job, rank, of, param) || !sim_rank_closes(h->job, rank, of))) return of;
    }
    return 0;
}

double sim_sets_damp(const sim_history *h, uint32_t param, uint64_t step, uint32_t rank)
{
    uint64_t of = sim_sets_push(h, param, step, rank);
    double age = of > 0 ? (double)(step - of) : 0;

    if (h->job->open.damping == SIM_UNDAMPED || age == 0) return 1;
    return h->job->open.damping == SIM_INVERSE ? 1 / (1 + age) : 1 / sqrt(1 + age);
}

/* Checks the mean of the scalars that came with a step: it is that over the ranks which counted. */
static void check_scalars(const sim_history *h, const sim_set *set, const pd_closed *closed)
{
    double sum = 0, weight = 0;

    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        uint64_t of = closed->step - set->age[rank];
        bool counts = (set->mask >> rank & 1) != 0 && gives_scalar(h->job, rank, of);
        double w = counts ? sim_weight(h->job, rank, of) : 0;
        sum += w * sim_sets_scalar(rank, of);
        weight += w;
    }
    if (weight == 0 && closed->scalars == NULL) return;
    if (closed->scalars == NULL || closed->scalars->n != 1)
        sim_fail("one set", "%s: step %llu has no mean of scalars", h->job->name, (number)closed->step);
    if (fabs(closed->scalars->at[0].mean - sum / weight) > 1e-9 * sum)
        sim_fail("one set",
                 "%s: the mean of scalars in step %llu is %.17g, that over the ranks which count (%x) is %.17g",
                 h->job->name, (number)closed->step, closed->scalars->at[0].mean, set->mask, sum / weight);
}

void sim_sets_closed(sim_history *h, uint32_t param, const pd_closed *closed)
{
    sim_set set = read_set(h->job, closed), *before;

    if (closed->step > sim_last_step(h->job)) return; /* which is reported as too many steps */
    before = &sets_of(h, param)->sets[closed->step];
    if (before->known && before->open && are_alike(before, &set)) before->open = false;
    if (!before->known || before->open) {
        check_new(h, sets_of(h, param), closed->step, &set);
        *before = set;
    } else if (!are_alike(before, &set)) {
        sim_fail("one set", "%s %s: ranks (%x) count in step %llu, and (%x) for another parameter, or before",
                 h->job->name, h->job->params[param].name, set.mask, (number)closed->step, before->mask);
    }
    if (param == 0) check_scalars(h, &set, closed);
}

/* ---- what is seen of the store ---- */

/* Returns whether the rank's contributions to the round are to the step that is already fixed. */
static bool is_settled(const pd_round *round, uint32_t rank)
{
    return round->fixed && pd_counted_has(round->set, rank);
}

static bool has_come(const pd_round *round, uint32_t rank)
{
    if (is_settled(round, rank)) return false;
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (pd_chunk_state(&round->chunks[c], rank) == PD_CONTRIBUTION_EMPTY) return false;
    return true;
}

/* Returns the ranks of which each chunk of the step has come that the fragment collects. */
static uint32_t whole_ranks(const pd_job *job, const pd_fragment *fragment)
{
    uint32_t whole = 0;

    for (uint32_t rank = 0; rank < job->steps.members.ranks; rank++) {
        bool all = true;
        for (uint32_t p = 0; p < job->steps.n_params && all; p++)
            if (job->steps.params[p].fragment == fragment) all = has_come(&job->steps.params[p].round, rank);
        if (all) whole |= 1u << rank;
    }
    return whole;
}

/* Returns whether a process of another group has taken the place of a rank of this one's group. */
static bool has_lost_mates(const sim_history *h, const pd_job *job, uint32_t rank)
{
    return h->job->open.any_rank && h->job->open.group > 1 &&
           (uint32_t)__builtin_popcount(mates_of(h, rank)) < job->ranks[rank].saved.mates;
}

/* Returns those of the whole ranks whose groups are whole: a group lacks a rank that is a member, or has given part of
 * a push, or has lost a rank to another group: the server removes what is left of it. Who is no member does not count,
 * unless it was removed when its group was whole. */
static uint32_t whole_units(const sim_history *h, const pd_job *job, const pd_fragment *fragment, uint32_t whole)
{
    uint32_t units = whole, part = 0;

    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if (pd_rank_set_has(&job->steps.members, rank) || pd_rank_set_has(&fragment->expected, rank) ||
            fragment->ranks[rank].step > 0)
            part |= 1u << rank;
    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if (!pd_rank_set_has(&job->steps.members, rank) && !fragment->ranks[rank].leaver) whole &= ~(1u << rank);
    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if ((mates_of(h, rank) & part & ~whole) != 0 || has_lost_mates(h, job, rank)) units &= ~(1u << rank);
    return units & whole;
}

/* Checks that nothing is held of a rank that has given nothing to the step that is collected. */
static void check_memory(const pd_job *job)
{
    for (uint32_t rank = 0; rank < job->steps.members.ranks; rank++)
        for (uint32_t p = 0; p < job->steps.n_params; p++) {
            const pd_round *round = &job->steps.params[p].round;
            if (job->steps.params[p].fragment->ranks[rank].step != 0) continue;
            for (uint32_t c = 0; c < round->n_chunks && !is_settled(round, rank); c++)
                if (pd_chunk_state(&round->chunks[c], rank) != PD_CONTRIBUTION_EMPTY)
                    sim_fail("memory", "%s: chunk %u of %s has something of rank %u, which has no push under way",
                             job->steps.name, c, job->steps.params[p].name, rank);
        }
}

static uint32_t members_of(const pd_job *job)
{
    uint32_t mask = 0;

    for (uint32_t rank = 0; rank < job->steps.members.ranks; rank++)
        if (pd_rank_set_has(&job->steps.members, rank)) mask |= 1u << rank;
    return mask;
}

/* Checks that each change of the members was counted. */
static void check_epoch(const sim_history *h, const sim_watch *watch, const pd_job *job)
{
    uint32_t changed = (uint32_t)__builtin_popcount(watch->members ^ members_of(job));

    if (h->job->open.group > 1 && changed > 1) changed = 1; /* a group comes and goes at once */
    if (watch->members != 0 && job->steps.epoch < watch->epoch + changed)
        sim_fail("epoch", "%s: the members change from (%x) to (%x), but the epoch from %llu to %llu", h->job->name,
                 watch->members, members_of(job), (number)watch->epoch, (number)job->steps.epoch);
}

/* Returns the ranks that other processes have taken since the last look. Each may have brought another group. */
static uint32_t renewed(const sim_watch *watch, const pd_job *job)
{
    uint32_t mask = 0;

    for (uint32_t rank = 0; rank < job->steps.members.ranks; rank++)
        if (job->ranks[rank].saved.process != watch->process[rank]) mask |= 1u << rank;
    return mask;
}

/* Checks that of each group all members count, or none. */
static void check_units(const sim_history *h, const pd_job *job, uint32_t mask)
{
    const sim_watch *watch = &h->fragments[0].watch;
    uint32_t members = watch->members & members_of(job) & ~renewed(watch, job);

    for (uint32_t rank = 0; h->job->open.group > 1 && rank < h->job->world; rank++)
        if ((mask >> rank & 1) != 0 && (mates_of(h, rank) & members & ~mask) != 0)
            sim_fail("units", "%s: rank %u counts in step %llu, but not all members of its group (%x) do", h->job->name,
                     rank, (number)job->steps.fragments[0].fixed, mates_of(h, rank) & members);
}

/* Returns whether the rank has said Hello since the last look, and the job's course may have changed since its Hello
 * before. Then it goes back, and what it has given is released: it gives that again. */
static bool has_gone_back(const sim_watch *watch, const pd_job *job, uint32_t rank)
{
    return job->ranks[rank].conn != watch->conn[rank] && job->saved.course != watch->joined[rank];
}

/* Returns the ranks of which what they had given at the last look may be gone: another process has taken the rank, its
 * process goes back since the job takes another course, or it has pushed for a later step. So may what others of its
 * group had given, which do not count without such a rank. */
static uint32_t replaced(const sim_history *h, const sim_watch *watch, const pd_job *job, const pd_fragment *fragment)
{
    uint32_t mask = 0, mates = 0;

    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if (job->ranks[rank].saved.process != watch->process[rank] || has_gone_back(watch, job, rank) ||
            (watch->pushes[rank] > 0 && fragment->ranks[rank].late >= watch->pushes[rank]))
            mask |= 1u << rank;
    for (uint32_t rank = 0; h->job->open.group > 1 && rank < h->job->world; rank++)
        if ((mask >> rank & 1) != 0) mates |= mates_of(h, rank);
    return mask | mates;
}

/* Returns whether a push that counts in the step which was just fixed has a gradient. */
static bool has_gradient(const sim_history *h, const pd_fragment *fragment)
{
    bool any = false;

    for (uint32_t rank = 0; rank < h->job->world; rank++)
        for (uint32_t p = 0; pd_counted_has(fragment->set, rank) && p < h->job->n_params; p++)
            any = any || (sim_fragment_of(h->job, p) == fragment->number &&
                          sim_has_gradient(h->job, rank, fragment->fixed - pd_counted_age(fragment->set, rank), p));
    return any;
}

/* Returns those of the ranks whose processes have been there since the last look, and may push. */
static uint32_t working(const sim_watch *watch, const pd_job *job, uint32_t ranks)
{
    for (uint32_t rank = 0; rank < job->steps.members.ranks; rank++)
        if (job->ranks[rank].conn != watch->conn[rank] || !job->steps.quotas[rank].declared) ranks &= ~(1u << rank);
    return ranks;
}

/* Returns the ranks that a step which was just fixed may have waited for: those who were members since the step before.
 * A step without a gradient waits only for ranks that may have one. */
static uint32_t awaited(const sim_history *h, const sim_watch *watch, const pd_job *job, const pd_fragment *fragment)
{
    return has_gradient(h, fragment) ? watch->steady : working(watch, job, watch->steady);
}

/* Checks a set that was fixed since the last look: those who were whole are in it, and it was not too early. */
static void check_fixed(const sim_history *h, const sim_watch *watch, const pd_job *job, const pd_fragment *fragment,
                        uint64_t now_ns, uint64_t clock_ns)
{
    uint64_t since = watch->quorum_ns > 0 ? watch->quorum_ns : now_ns;
    uint32_t mask = 0, whole = 0, missed;

    if (watch->generation == job->saved.generation) whole = watch->units & ~replaced(h, watch, job, fragment);

    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if (pd_counted_has(fragment->set, rank)) mask |= 1u << rank;
    check_units(h, job, mask);
    if (h->job->open.group > 1 && job->steps.epoch != watch->epoch) whole = 0;
    if ((whole & ~mask) != 0)
        sim_fail("whole", "%s: ranks (%x) were whole, but do not count in step %llu with (%x)", h->job->name,
                 whole & ~mask, (number)fragment->fixed, mask);
    missed = awaited(h, watch, job, fragment) & ~mask;
    /* A group without such a rank may have been whole for long. */
    if (h->job->open.group > 1) missed &= ~renewed(watch, job);
    /* No step waits for those who are removed, or have joined since it was opened. */
    if (job->steps.epoch == watch->epoch && missed != 0 && clock_ns < since + h->job->open.grace_ns)
        sim_fail("grace", "%s: step %llu is taken with ranks (%x) %.3f s after a quorum was whole, not %.3f s",
                 h->job->name, (number)fragment->fixed, mask, ((double)clock_ns - (double)since) / 1e9,
                 (double)h->job->open.grace_ns / 1e9);
}

/* Returns whether the rank was removed because its group lacks ranks: the process of another one belongs to another
 * group now, or has not declared its parameters. */
static bool was_incomplete(const sim_history *h, const sim_watch *watch, const pd_job *job, uint32_t rank)
{
    uint32_t there = watch->members;

    for (uint32_t other = 0; other < h->job->world; other++)
        if (job->steps.quotas[other].declared) there |= 1u << other;
    return h->job->open.group > 1 && (members_of(job) >> rank & 1) == 0 &&
           (uint32_t)__builtin_popcount(mates_of(h, rank) & there) < h->job->open.group;
}

/* Checks that what a rank has given stays until the step is fixed once all of it has come, unless it may be gone
 * (replaced), or the server starts anew. */
static void check_kept(const sim_history *h, const sim_watch *watch, const pd_job *job, const pd_fragment *fragment,
                       uint32_t whole)
{
    const pd_fragment_rank *ranks = fragment->ranks;
    uint32_t gone = watch->units & ~whole & ~replaced(h, watch, job, fragment);

    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if (ranks[rank].owed == UINT32_MAX || was_incomplete(h, watch, job, rank)) gone &= ~(1u << rank);
    if (gone != 0)
        sim_fail("whole", "%s: ranks (%x) were whole in step %llu, and what they had given is gone", h->job->name, gone,
                 (number)watch->fixed + 1);
}

static uint32_t expected_of(const pd_fragment *fragment)
{
    uint32_t mask = 0;

    for (uint32_t rank = 0; rank < fragment->expected.ranks; rank++)
        if (pd_rank_set_has(&fragment->expected, rank)) mask |= 1u << rank;
    return mask;
}

/* Returns whether all ranks were removed since the last look that the step had waited for. Some may have joined again.
 * Then the step waits for those who are members. */
static bool has_lost_all(const sim_watch *watch, const pd_job *job, const pd_fragment *fragment)
{
    uint32_t stay = watch->expected & members_of(job);

    for (uint32_t rank = 0; rank < fragment->expected.ranks; rank++)
        if (fragment->ranks[rank].joined > watch->epoch) stay &= ~(1u << rank);
    return watch->expected != 0 && stay == 0;
}

/* Checks that the step waits for none that have joined since it was opened. */
static void check_expected(const sim_history *h, sim_watch *watch, const pd_job *job, const pd_fragment *fragment)
{
    uint32_t expected = expected_of(fragment), late;

    if (fragment->opened_ns != watch->opened_ns || has_lost_all(watch, job, fragment)) watch->opened = members_of(job);
    watch->opened_ns = fragment->opened_ns;
    watch->expected = expected;
    late = expected & ~watch->opened;
    if (watch->opened_ns > 0 && late != 0)
        sim_fail("members", "%s: step %llu waits for ranks (%x), which were no members when it was opened",
                 h->job->name, (number)fragment->fixed + 1, late);
}

/* Returns whether the rank's process may have declared its parameters on an earlier connection: it has another one
 * since the last look, and some process of the rank has declared them. */
static bool may_have_declared(const sim_watch *watch, const pd_job *job, uint32_t rank)
{
    return job->ranks[rank].conn != watch->conn[rank] && job->ranks[rank].saved.sealed;
}

/* Checks that the ranks which have joined since the last look have declared their parameters. */
static void check_joined(const sim_history *h, const sim_watch *watch, const pd_job *job)
{
    for (uint32_t rank = 0; watch->members != 0 && rank < h->job->world; rank++)
        if ((members_of(job) & ~watch->members) >> rank & 1 && job->ranks[rank].state == PD_RANK_CONNECTED &&
            !job->steps.quotas[rank].declared && !may_have_declared(watch, job, rank))
            sim_fail("members", "%s: rank %u is a member, and has not declared its parameters", h->job->name, rank);
}

/* Notes who is connected, and in which course of the job the connections were made. */
static void note_ranks(sim_watch *watch, const pd_job *job, const pd_fragment *fragment, uint32_t world)
{
    for (uint32_t rank = 0; rank < world; rank++) {
        if (job->ranks[rank].conn != watch->conn[rank]) watch->joined[rank] = watch->course;
        watch->conn[rank] = job->ranks[rank].conn;
        watch->process[rank] = job->ranks[rank].saved.process;
        watch->pushes[rank] = fragment->ranks[rank].step;
        watch->late[rank] = fragment->ranks[rank].late;
    }
    watch->course = job->saved.course;
}

/* Begins to watch the step after the one that has just been fixed. */
static void watch_next(sim_watch *watch, uint64_t fixed)
{
    watch->fixed = fixed;
    watch->whole = watch->units = watch->opened = 0;
    watch->opened_ns = watch->quorum_ns = 0;
    watch->steady = UINT32_MAX;
}

/* Notes which group each rank belongs to: that of its process. */
static void note_groups(const sim *s, const sim_history *h, sim_watch *watch, const pd_job *job)
{
    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        bool any = h->job->open.any_rank && h->job->open.group > 1;
        uint32_t place = any ? sim_worker_place(s, job->ranks[rank].saved.nonce) : rank;
        watch->group[rank] = place / h->job->open.group;
    }
}

/* Checks that no process is connected that an operator has removed. */
static void check_kicked(const pd_job *job)
{
    for (uint32_t rank = 0; rank < job->steps.members.ranks; rank++)
        for (uint32_t i = 0; i < job->saved.n_kicked && i < PD_KICKED; i++)
            if (job->ranks[rank].state == PD_RANK_CONNECTED && job->saved.kicked[i] == job->ranks[rank].saved.nonce)
                sim_fail("kick", "%s rank %u has the process that an operator has removed", job->steps.name, rank);
}

/* Checks that a barrier is passed as soon as all members have come to it, and not before. A process that is not
 * connected may have come. */
static void check_barriers(const sim *s, const sim_history *h, sim_watch *watch, const pd_job *job)
{
    uint32_t members = watch->members & members_of(job), here = 0;

    for (uint32_t rank = 0; rank < h->job->world; rank++) {
        bool passes = job->saved.barrier > watch->barrier && (members >> rank & 1) != 0;
        if (passes && watch->process[rank] == job->ranks[rank].saved.process &&
            !sim_worker_waits(s, job->ranks[rank].saved.nonce))
            sim_fail("barriers", "%s passes barrier %llu, to which rank %u has not come", h->job->name,
                     (number)job->saved.barrier, rank);
        if (job->ranks[rank].barrier != NULL) here |= 1u << rank;
    }
    if (members_of(job) != 0 && (members_of(job) & ~here) == 0)
        sim_fail("barriers", "%s: all members (%x) have come to barrier %llu, and it is not passed", h->job->name,
                 members_of(job), (number)job->saved.barrier + 1);
    watch->barrier = job->saved.barrier;
}

/* Checks that no process of an earlier launch is connected. Begins to watch the job anew when another launch has taken
 * it over: all ranks of the earlier one are removed at once, and what they have given is released. */
static void check_generation(const sim *s, sim_history *h, sim_watch *watch, const pd_job *job)
{
    for (uint32_t rank = 0; rank < h->job->world; rank++)
        if (job->ranks[rank].state == PD_RANK_CONNECTED &&
            sim_worker_generation(s, job->ranks[rank].saved.nonce) < job->saved.generation)
            sim_fail("generations", "%s rank %u has a process of generation %llu, and the job is of generation %llu",
                     h->job->name, rank, (number)sim_worker_generation(s, job->ranks[rank].saved.nonce),
                     (number)job->saved.generation);
    if (watch->generation == job->saved.generation) return;
    if (watch->generation > 0) {
        watch->members = watch->whole = watch->units = watch->steady = 0;
        watch->opened = UINT32_MAX;
        h->least_members = 1;
    }
    watch->generation = job->saved.generation;
}

/* Begins to watch the job of a server that was killed and started again: its members and barriers may be earlier ones,
 * and what ranks had given is gone. */
static void begin_life(sim_watch *watch, const pd_job *job, uint64_t life)
{
    if (watch->life == life) return;
    *watch = (sim_watch){ .life = life,
                          .fixed = watch->fixed,
                          .epoch = job->steps.epoch,
                          .steady = UINT32_MAX,
                          .barrier = job->saved.barrier,
                          .patience = { .looked_ns = watch->patience.looked_ns, .work_ns = watch->patience.work_ns },
                          .generation = watch->generation };
}

static void look_at(sim_server *server, sim_history *h, const pd_job *job, uint32_t f)
{
    const sim *s = server->s;
    const pd_fragment *fragment = &job->steps.fragments[f];
    sim_watch *watch = &h->fragments[f].watch;
    uint32_t needed;
    bool anew;

    begin_life(watch, job, server->life);
    /* A set that is repeated after a restart waits for nobody else. */
    anew = fragment->fixed == watch->fixed + 1 && fragment->set != NULL &&
           !h->fragments[f].sets[fragment->fixed].known && fragment->fixed > h->secret_most;
    if (anew) check_fixed(h, watch, job, fragment, s->now_ns, server->step_clock_ns);
    sim_patience_look(h, f, fragment, anew && job->steps.epoch == watch->epoch ? awaited(h, watch, job, fragment) : 0,
                      server->step_clock_ns);
    if (fragment->fixed != watch->fixed) watch_next(watch, fragment->fixed);
    if (h->job->open.meets) check_barriers(s, h, watch, job);
    if (h->job->open.reforms) check_generation(s, h, watch, job);
    check_epoch(h, watch, job);
    check_joined(h, watch, job);
    check_kept(h, watch, job, fragment, whole_ranks(job, fragment));
    check_expected(h, watch, job, fragment);
    if (watch->members == 0)
        *watch = (sim_watch){ .life = watch->life,
                              .fixed = watch->fixed,
                              .epoch = job->steps.epoch,
                              .steady = UINT32_MAX,
                              .barrier = watch->barrier,
                              .patience = watch->patience,
                              .generation = watch->generation };
    watch->members = members_of(job);
    watch->steady = job->steps.epoch == watch->epoch ? watch->steady & watch->members : 0;
    watch->epoch = job->steps.epoch;
    needed = count_groups(h, watch->members);
    if (needed > h->job->open.quorum) needed = h->job->open.quorum;
    sim_sets_note_members(h, job);
    note_groups(s, h, watch, job);
    watch->whole = whole_ranks(job, fragment);
    watch->units = whole_units(h, job, fragment, watch->whole);
    note_ranks(watch, job, fragment, h->job->world);
    if (count_groups(h, watch->units) < needed)
        watch->quorum_ns = 0;
    else if (watch->quorum_ns == 0)
        watch->quorum_ns = s->now_ns;
    check_memory(job);
    check_kicked(job);
    if (f == 0) sim_shares_look(h, job, server->life);
}

void sim_sets_look(sim_server *server)
{
    for (sim_history *h = server->s->histories; h != NULL; h = h->next) {
        const pd_job *job = h->job != NULL && h->job->open.on ? inside_job(server->store, h->number) : NULL;
        for (uint32_t f = 0; job != NULL && job->steps.fragments != NULL && f < job->steps.n_fragments; f++)
            look_at(server, h, job, f);
    }
}

static void describe(const pd_job *job, const pd_fragment *f)
{
    printf("    fragment %u collects step %llu, state %d until %.3f s, %u of %u parameters have closed the one before; "
           "whole: %x\n",
           f->number, (number)f->fixed + 1, (int)f->state, (double)f->deadline_ns / 1e9, f->n_closed, f->n_params,
           whole_ranks(job, f));
    for (uint32_t rank = 0; rank < job->steps.members.ranks; rank++)
        printf("    rank %u: push of step %llu, %u of %u chunks missing, last counted %llu in %llu\n", rank,
               (number)f->ranks[rank].step, f->ranks[rank].missing, f->ranks[rank].owed,
               (number)f->ranks[rank].saved.last, (number)f->ranks[rank].saved.counted);
}

void sim_sets_describe(const pd_job *job)
{
    for (uint32_t f = 0; f < job->steps.n_fragments; f++) describe(job, &job->steps.fragments[f]);
}
