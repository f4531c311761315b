/* set_figures.c - fills the entries of rounds and members in operators' lists. */
#include "set_figures.h"

#include "fragment.h"

#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* Estimated nanoseconds to fill the entry of a round, and more for each parameter and rank of the job, for each
 * contribution that is read, and to fill that of a member. */
#define ROUND_NS 2000.0
#define PARAM_NS 2.0
#define RANK_NS 20.0
#define LOOK_NS 3.0
#define MEMBER_NS 800.0

/* Largest number of contributions to a parameter that are read to find the ranks that its round waits for, which takes
 * some milliseconds. */
enum { MOST_LOOKS = 1 << 20 };
enum { NS_PER_MS = 1000000 };

static uint64_t ms_since(uint64_t since_ns, uint64_t now_ns)
{
    return since_ns > 0 && now_ns > since_ns ? (now_ns - since_ns) / NS_PER_MS : 0;
}

/* ---- texts with ranks ---- */

/* A text to which entries are added, until it has no room for more. */
typedef struct entries {
    char *at;
    size_t size, used;
    const char *between; /* stands between two entries */
} entries;

/* The longest entry, with what stands before it. */
enum { LONGEST = 40 };

static void add(entries *to, const char *entry)
{
    if (to->used + LONGEST + 8 > to->size) {
        if (to->used > 0 && to->at[to->used - 1] != '.')
            to->used += (size_t)snprintf(to->at + to->used, to->size - to->used, "%s...", to->between);
        return;
    }
    to->used += (size_t)snprintf(to->at + to->used, to->size - to->used, "%s%.*s", to->used > 0 ? to->between : "",
                                 LONGEST - 4, entry);
}

/* Writes the ranks of a set, three and more neighbours as one entry: "0-2,5". */
static void write_ranks(const pd_rank_set *set, char *text, size_t size)
{
    entries to = { text, size, 0, "," };
    char entry[LONGEST];

    for (uint32_t r = 0; r < set->ranks; r++) {
        uint32_t end = r;
        if (!pd_rank_set_has(set, r)) continue;
        while (end + 1 < set->ranks && pd_rank_set_has(set, end + 1)) end++;
        if (end < r + 2) end = r;
        snprintf(entry, sizeof entry, end > r ? "%u-%u" : "%u", r, end);
        add(&to, entry);
        r = end;
    }
}

static void write_each(const pd_rank_set *set, char *text, size_t size)
{
    entries to = { text, size, 0, "," };
    char entry[LONGEST];

    for (uint32_t r = 0; r < set->ranks; r++) {
        if (!pd_rank_set_has(set, r)) continue;
        snprintf(entry, sizeof entry, "%u", r);
        add(&to, entry);
    }
}

/* Writes a rank for people: "3", or "3 (lost 4 s)" if its worker is not there. */
static void write_rank(const pd_job *job, uint32_t r, uint64_t now_ns, char text[LONGEST])
{
    unsigned long long seconds = ms_since(job->ranks[r].since_ns, now_ns) / 1000;

    switch (job->ranks[r].state) {
    case PD_RANK_CONNECTED: snprintf(text, LONGEST, "%u", r); break;
    case PD_RANK_ABSENT: snprintf(text, LONGEST, "%u (never came)", r); break;
    case PD_RANK_LOST: snprintf(text, LONGEST, "%u (lost %llu s)", r, seconds); break;
    case PD_RANK_LEFT: snprintf(text, LONGEST, "%u (left)", r); break;
    }
}

/* Adds the ranks of a set for people. Those whose workers are not there come first. */
static void add_missing(entries *to, const pd_job *job, const pd_rank_set *missing, uint64_t now_ns)
{
    char entry[LONGEST];

    for (int there = 0; there < 2; there++)
        for (uint32_t r = 0; r < missing->ranks; r++) {
            if (!pd_rank_set_has(missing, r) || (job->ranks[r].state == PD_RANK_CONNECTED) != there) continue;
            write_rank(job, r, now_ns, entry);
            add(to, entry);
        }
}

/* ---- members ---- */

uint32_t pd_members_count(const pd_job *job)
{
    const pd_steps *steps = &job->steps;
    bool counted[PD_MAX_WORLD] = { false };
    uint32_t n = 0;

    if (steps->n_fragments == 0 || steps->sets.in_ranks) return steps->members.n;
    for (uint32_t r = 0; r < steps->members.ranks; r++) {
        uint32_t unit = steps->fragments[0].ranks[r].unit;
        if (!pd_rank_set_has(&steps->members, r) || counted[unit]) continue;
        counted[unit] = true;
        n++;
    }
    return n;
}

static bool are_too_few(const pd_job *job)
{
    return job->steps.sets.open && pd_members_count(job) < job->steps.sets.least;
}

static void write_too_few(const pd_job *job, char text[LONGEST])
{
    snprintf(text, LONGEST, "members: %u of %u", pd_members_count(job), job->steps.sets.least);
}

static const char *state_of_member(const pd_job *job, uint32_t r)
{
    const pd_fragment *fragment = pd_oldest_fragment(job);
    bool member = pd_rank_set_has(&job->steps.members, r);

    switch (job->ranks[r].state) {
    case PD_RANK_ABSENT: return member ? "never came" : "absent";
    case PD_RANK_LOST: return member ? "lost" : "removed";
    case PD_RANK_LEFT: return "left";
    case PD_RANK_CONNECTED: break;
    }
    if (!member) return job->ranks[r].saved.sealed ? "removed" : "joining";
    if (fragment == NULL || fragment->opened_ns == 0) return "member";
    return pd_rank_set_has(&fragment->expected, r) ? "expected" : "welcome";
}

/* Adds to the entry of a member how often it counts in the steps of one fragment. */
static void add_counts(pd_member_info *info, const pd_fragment_rank *rank)
{
    info->counted += rank->counts.counted;
    info->steps += rank->counts.steps;
    info->late += rank->counts.late;
    info->ages += rank->counts.ages;
    info->whole |= rank->step > 0 && rank->missing == 0;
    if (rank->counts.missed > info->missed) info->missed = rank->counts.missed;
    if (rank->joined > info->epoch) info->epoch = rank->joined;
    info->group = rank->unit;
    if (rank->next < info->next) return;
    info->next = rank->next;
    info->patience_ms = rank->patience_ns / NS_PER_MS;
}

/* Fills in the step that a rank works on, and the number of steps since the server started, in a job in whose steps all
 * ranks count. */
static void fill_closed_member(pd_member_info *info, const pd_job *job, const pd_rank *rank)
{
    info->next = rank->saved.step + (rank->ended >= rank->saved.step);
    info->counted = info->steps = pd_histogram_count(&job->steps.times.total.phase[PD_PHASE_WAIT]);
    info->share = info->steps > 0;
}

void pd_listed_member_fill(void *entry, const pd_job *job, uint32_t r, uint64_t now_ns)
{
    pd_member_info *info = entry;
    const pd_rank *rank = &job->ranks[r];

    info->rank = info->group = r;
    snprintf(info->label, sizeof info->label, "%s", rank->label);
    info->state = state_of_member(job, r);
    if (rank->state == PD_RANK_LOST || rank->state == PD_RANK_LEFT) info->since_ms = ms_since(rank->since_ns, now_ns);
    if (!job->steps.sets.open) {
        fill_closed_member(info, job, rank);
        return;
    }
    for (uint32_t i = 0; i < job->steps.n_fragments; i++) add_counts(info, &job->steps.fragments[i].ranks[r]);
    if (info->counted > 0) info->mean_age = (double)info->ages / (double)info->counted;
    if (info->steps > 0) info->share = (double)info->counted / (double)info->steps;
}

double pd_listed_member_ns(const pd_job *job, uint32_t r)
{
    (void)r;
    return MEMBER_NS + RANK_NS * job->steps.n_fragments;
}

/* ---- rounds ---- */

const pd_fragment *pd_oldest_fragment(const pd_job *job)
{
    const pd_fragment *oldest = job->steps.fragments;

    for (uint32_t i = 1; i < job->steps.n_fragments; i++) {
        const pd_fragment *fragment = &job->steps.fragments[i];
        if (fragment->opened_ns > 0 && (oldest->opened_ns == 0 || fragment->opened_ns < oldest->opened_ns))
            oldest = fragment;
    }
    return oldest;
}

uint64_t pd_sets_wait(const pd_job *job, char *text, size_t size)
{
    const pd_fragment *oldest = pd_oldest_fragment(job);
    char few[LONGEST];

    text[0] = '\0';
    if (oldest == NULL) return 0;
    if (are_too_few(job)) {
        write_too_few(job, few);
        snprintf(text, size, "%s", few);
    } else {
        pd_fragment_missing(&job->steps, oldest, text, size);
    }
    return oldest->opened_ns;
}

/* Returns the parameter of the fragment whose open round is the oldest; NULL: no round is open, or all are complete. */
static const pd_param *oldest_round(const pd_job *job, const pd_fragment *fragment)
{
    const pd_param *param;

    DL_FOREACH2(job->steps.queue.waiting, param, links.next_waiting)
    if (param->fragment == fragment && param->stage == PD_COLLECTING) return param;
    return NULL;
}

static const pd_param *first_param(const pd_job *job, const pd_fragment *fragment)
{
    const pd_param *param = job->steps.params;

    while (param->fragment != fragment) param++;
    return param;
}

static const char *state_of_set(const pd_fragment *fragment)
{
    static const char *const states[] = {
        [PD_FRAGMENT_IDLE] = "idle", [PD_FRAGMENT_OPEN] = "open", [PD_FRAGMENT_GRACE] = "grace"
    };

    return fragment->n_closed < fragment->n_params ? "stepping" : states[fragment->state];
}

/* Fills in which ranks counted in the step that was fixed last. */
static void fill_set(pd_round_info *info, const pd_fragment *fragment)
{
    entries ages = { info->ages, sizeof info->ages, 0, "," };
    pd_rank_set counted;
    char entry[LONGEST];

    pd_rank_set_none(&counted, fragment->expected.ranks);
    for (uint32_t r = 0; fragment->fixed > 0 && r < counted.ranks; r++) {
        const pd_fragment_rank_saved *saved = &fragment->ranks[r].saved;
        if (saved->counted != fragment->fixed) continue;
        pd_rank_set_add(&counted, r);
        if (saved->last == saved->counted) continue;
        snprintf(entry, sizeof entry, "%u:%llu", r, (unsigned long long)(saved->counted - saved->last));
        add(&ages, entry);
    }
    write_ranks(&counted, info->counted, sizeof info->counted);
}

static void fill_open(pd_round_info *info, const pd_job *job, const pd_fragment *fragment, pd_rank_set *missing,
                      uint64_t now_ns)
{
    info->state = state_of_set(fragment);
    info->step = fragment->fixed + 1;
    info->fixed = fragment->fixed;
    info->expected = pd_fragment_expected(&job->steps, fragment, &info->whole);
    info->quorum = pd_fragment_quorum(&job->steps, fragment);
    info->least = job->steps.sets.least;
    info->since_ms = ms_since(fragment->opened_ns, now_ns);
    info->grace_waits = fragment->graces;
    if (fragment->state == PD_FRAGMENT_GRACE) {
        info->left_ms = ms_since(now_ns, fragment->deadline_ns);
        if (job->steps.sets.grace_ns == UINT64_MAX) info->hasty = 1 + fragment->hasty;
    }
    fill_set(info, fragment);
    for (uint32_t r = 0; r < missing->ranks; r++)
        if (pd_fragment_misses(&job->steps, fragment, r)) pd_rank_set_add(missing, r);
}

/* Adds the ranks that the round misses to `missing`, as far as a limited number of contributions tells. */
static void find_missing(const pd_round *round, pd_rank_set *missing)
{
    uint64_t looks = 0;

    for (uint32_t r = 0; r < missing->ranks && looks < MOST_LOOKS; r++, looks += round->n_chunks)
        if (pd_round_misses(round, r)) pd_rank_set_add(missing, r);
}

/* Fills the entry of a fragment of a job in whose steps all ranks count, from the rounds of its parameters. */
static void fill_closed(pd_round_info *info, const pd_job *job, const pd_fragment *fragment, pd_rank_set *missing,
                        uint64_t now_ns)
{
    const pd_param *oldest = oldest_round(job, fragment), *first = first_param(job, fragment);
    bool steps = oldest == NULL && (first->round.open || first->stage != PD_COLLECTING);

    info->state = oldest != NULL ? "open" : steps ? "stepping" : "idle";
    info->step = (oldest != NULL ? oldest : first)->saved.step + 1 + steps;
    info->fixed = info->step - 1;
    info->expected = info->quorum = info->least = missing->ranks;
    if (oldest == NULL) return;
    info->since_ms = ms_since(oldest->round.started_ns, now_ns);
    find_missing(&oldest->round, missing);
    info->whole = info->expected - missing->n;
}

void pd_listed_round_fill(void *entry, const pd_job *job, uint32_t i, uint64_t now_ns)
{
    pd_round_info *info = entry;
    const pd_fragment *fragment = &job->steps.fragments[i];
    entries waits = { info->waits_for, sizeof info->waits_for, 0, ", " };
    pd_rank_set missing;
    char few[LONGEST];

    pd_rank_set_none(&missing, job->steps.members.ranks);
    snprintf(info->job, sizeof info->job, "%s", job->steps.name);
    info->fragment = fragment->declared;
    info->epoch = job->steps.epoch;
    info->members = pd_members_count(job);
    (job->steps.sets.open ? fill_open : fill_closed)(info, job, fragment, &missing, now_ns);
    write_each(&missing, info->missing, sizeof info->missing);
    if (are_too_few(job)) {
        write_too_few(job, few);
        add(&waits, few);
    }
    add_missing(&waits, job, &missing, now_ns);
}

double pd_listed_round_ns(const pd_job *job, uint32_t i)
{
    const pd_param *oldest = oldest_round(job, &job->steps.fragments[i]);
    double looks = oldest != NULL ? (double)oldest->round.n_chunks * job->steps.members.ranks : 0;

    return ROUND_NS + PARAM_NS * job->steps.n_params + RANK_NS * job->steps.members.ranks +
           LOOK_NS * (looks < MOST_LOOKS ? looks : MOST_LOOKS);
}
