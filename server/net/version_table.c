/* version_table.c - keeps the published state of every parameter, and the requests that wait for it. */
#include "version_table.h"
#include "mutant.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Makes uthash return when it is out of memory: it then adds no element, and sets the element's table pointer to
 * NULL. */
#define HASH_NONFATAL_OOM 1
#include <uthash.h>

/* Parameters that take their steps together: those of a fragment, or all of a job. */
typedef struct group {
    uint64_t least;  /* number of rounds that every one of the parameters has closed */
    size_t at_least; /* number of the parameters that have closed exactly `least` rounds */
    pd_waiter *rest; /* requests that wait until all these parameters have closed the request's round */
} group;

_Static_assert(sizeof(group) <= PD_LOOP_FRAGMENT_BYTES, "Declare counts what the version table has of a fragment");

typedef struct entry {
    uint32_t fragment; /* number of the parameter's fragment */
    uint64_t closed;   /* number of rounds that the parameter has closed */
    int outcome;       /* pd_outcome of the last round; 0: no round has closed yet */
    uint64_t version;
    pd_published *published; /* reference to the newest published weights; NULL: none are published yet */
    pd_reason *why;          /* reason why the optimizer refused the last step; NULL: it did not refuse, or there was no
                              * memory for the text */
    pd_scalar_means *scalars; /* averages of the scalars that workers sent with their gradients of
                               * the last round; NULL: they sent none */
    pd_counted *counted; /* the ranks whose contributions were averaged in the last round; NULL: those of all ranks */
    pd_waiter *waiters;
    pd_waiter *readers; /* pieces whose answer only lacks the weights to evaluate with, for which the store was asked */
    bool unasked;       /* there was no memory to ask for them */
} entry;

_Static_assert(sizeof(entry) + 2 * sizeof(entry *) + 16 <= PD_LOOP_PARAM_BYTES,
               "Declare counts what the version table has of a parameter");

typedef struct durable_step {
    uint64_t step;     /* 0: there is none */
    uint64_t unbroken; /* pd_effect.u.durable.unbroken */
    uint64_t mirrored; /* pd_effect.u.durable.mirrored */
} durable_step;

typedef struct job {
    uint32_t number; /* number of the job and key of the hash table. The store chooses it, not a peer, so the hash needs
                      * no secret */
    size_t n;
    entry **at;       /* array of pointers to the entries of the parameters. Each entry is allocated separately: waiters
                       * point into entries, while the array may move */
    size_t params;    /* number of the job's parameters, at most n; 0: not known yet */
    group all;        /* all parameters of the job */
    group *fragments; /* the fragments, if the job has several; NULL: it has one, `all` */
    uint32_t n_fragments;   /* number of `fragments`; 0: NULL */
    durable_step durable;   /* the durable step of the job */
    durable_step told;      /* the one that answers tell */
    pd_counted *members;    /* the members of the job; NULL: all ranks are members for ever */
    uint32_t leader;        /* if `members` is set: their leader; PD_MAX_WORLD: none of them is there */
    uint64_t epoch, course; /* number of times that the members have changed; the course of steps */
    UT_hash_handle hh;
} job;

struct pd_version_table {
    pd_version_table_user user;
    job *jobs;
    bool unasked; /* an entry may be `unasked` */
};

static job *find(const pd_version_table *versions, uint32_t number)
{
    job *found;
    HASH_FIND(hh, versions->jobs, &number, sizeof number, found);
    return found;
}

static void unref(pd_version_table *versions, pd_published *published)
{
    if (published != NULL && --published->version_refs == 0) versions->user.released(versions->user.arg, published);
}

static void job_free(pd_version_table *versions, job *j)
{
    for (size_t i = 0; i < j->n; i++) {
        assert(j->at[i]->waiters == NULL && j->at[i]->readers == NULL);
        unref(versions, j->at[i]->published);
        pd_reason_unref(j->at[i]->why);
        pd_scalar_means_unref(j->at[i]->scalars);
        pd_counted_unref(j->at[i]->counted);
        free(j->at[i]);
    }
    assert(j->all.rest == NULL);
    for (uint32_t f = 0; f < j->n_fragments; f++) assert(j->fragments[f].rest == NULL);
    free(j->fragments);
    pd_counted_unref(j->members);
    HASH_DEL(versions->jobs, j);
    free(j->at);
    free(j);
}

pd_version_table *pd_version_table_new(const pd_version_table_user *user)
{
    pd_version_table *versions = calloc(1, sizeof *versions);

    if (versions != NULL) versions->user = *user;
    return versions;
}

void pd_version_table_free(pd_version_table *versions)
{
    job *j, *next;

    if (versions == NULL) return;
    HASH_ITER(hh, versions->jobs, j, next) job_free(versions, j);
    free(versions);
}

static int add_entries(job *j, size_t n)
{
    entry **at = realloc(j->at, n * sizeof *at);

    if (at == NULL) return PD_NO_MEMORY;
    j->at = at;
    while (j->n < n) {
        if ((at[j->n] = calloc(1, sizeof *at[0])) == NULL) return PD_NO_MEMORY;
        j->n++;
    }
    return PD_OK;
}

static job *add_job(pd_version_table *versions, uint32_t number)
{
    job *j = calloc(1, sizeof *j);

    if (j == NULL) return NULL;
    j->number = number;
    HASH_ADD(hh, versions->jobs, number, sizeof j->number, j);
    if (j->hh.tbl != NULL) return j;
    free(j);
    return NULL;
}

int pd_version_table_reserve(pd_version_table *versions, uint32_t number, size_t n)
{
    job *j = find(versions, number);

    if (j == NULL && (j = add_job(versions, number)) == NULL) return PD_NO_MEMORY;
    return n <= j->n ? PD_OK : add_entries(j, n);
}

int pd_version_table_reserve_fragments(pd_version_table *versions, uint32_t number, uint32_t n)
{
    job *j = find(versions, number);
    group *all;

    if (n <= 1 || n <= j->n_fragments) return PD_OK;
    if ((all = realloc(j->fragments, n * sizeof *all)) == NULL) return PD_NO_MEMORY;
    for (uint32_t f = 0; f < j->n_fragments; f++)
        if (all[f].rest != NULL) all[f].rest->link = &all[f].rest;
    for (uint32_t f = j->n_fragments; f < n; f++) all[f] = (group){ 0 };
    j->fragments = all;
    j->n_fragments = n;
    return PD_OK;
}

static group *group_of(job *j, const entry *e)
{
    return e->fragment < j->n_fragments ? &j->fragments[e->fragment] : &j->all;
}

static void find_least(job *j, group *g)
{
    g->least = UINT64_MAX;
    g->at_least = 0;
    for (size_t i = 0; i < j->params; i++) {
        if (g != &j->all && group_of(j, j->at[i]) != g) continue;
        if (j->at[i]->closed < g->least) {
            g->least = j->at[i]->closed;
            g->at_least = 0;
        }
        g->at_least += j->at[i]->closed == g->least;
    }
}

void pd_version_table_put(pd_version_table *versions, uint32_t number, uint32_t param, uint32_t fragment)
{
    job *j = find(versions, number);

    assert(j != NULL && param < j->n);
    j->at[param]->fragment = fragment;
}

uint32_t pd_version_table_fragment(const pd_version_table *versions, uint32_t number, uint32_t param)
{
    const job *j = find(versions, number);

    return j != NULL && param < j->n ? j->at[param]->fragment : 0;
}

void pd_version_table_settle(pd_version_table *versions, uint32_t number, size_t n)
{
    job *j = find(versions, number);

    assert(j != NULL && n <= j->n);
    if (j->params == n) return;
    j->params = n;
    find_least(j, &j->all);
    for (uint32_t f = 0; f < j->n_fragments; f++) find_least(j, &j->fragments[f]);
}

void pd_version_table_note_durable(pd_version_table *versions, uint32_t number, uint64_t step, uint64_t unbroken,
                                   uint64_t mirrored)
{
    job *j = find(versions, number);

    if (j == NULL && (j = add_job(versions, number)) == NULL) return;
    j->durable = (durable_step){ step, unbroken, mirrored };
}

void pd_version_table_note_members(pd_version_table *versions, uint32_t number, pd_counted *set, uint32_t leader,
                                   uint64_t epoch, uint64_t course)
{
    job *j = find(versions, number);

    if (j == NULL && (j = add_job(versions, number)) == NULL) {
        pd_counted_unref(set);
        return;
    }
    j->epoch = epoch;
    j->course = course;
    if (set == NULL) return;
    pd_counted_unref(j->members);
    j->members = set;
    j->leader = leader;
}

uint32_t pd_version_table_leader(const pd_version_table *versions, uint32_t number)
{
    const job *j = find(versions, number);

    return j != NULL && j->members != NULL ? j->leader : 0;
}

void pd_version_table_note_course(pd_version_table *versions, uint32_t number, uint64_t course)
{
    job *j = find(versions, number);

    if (j == NULL && (j = add_job(versions, number)) == NULL) return;
    j->course = course;
}

/* Puts into the answer to a request what belongs to its whole job. */
static void answer_job(const pd_version_table *versions, job *j, pd_wait *wait)
{
    const pd_counted *members = j->members;

    if (versions->user.may_tell == NULL || versions->user.may_tell(versions->user.arg)) j->told = j->durable;
    wait->durable = j->told.step;
    wait->unbroken = j->told.unbroken;
    wait->mirrored = j->told.mirrored;
    wait->course = j->course;
    if (members == NULL) return;
    wait->epoch = j->epoch;
    wait->members = members->n;
    wait->leads = wait->rank == j->leader;
    wait->index = 0;
    if (wait->rank >= members->ranks || !pd_counted_has(members, wait->rank)) return;
    for (uint32_t r = 0; r <= wait->rank; r++) wait->index += pd_counted_has(members, r);
}

uint64_t pd_version_table_durable(const pd_version_table *versions, uint32_t number)
{
    const job *j = find(versions, number);

    return j != NULL ? j->durable.step : 0;
}

uint64_t pd_version_table_mirrored(const pd_version_table *versions, uint32_t number)
{
    const job *j = find(versions, number);

    return j != NULL ? j->durable.mirrored : 0;
}

static void link_in(pd_waiter **list, pd_waiter *waiter)
{
    waiter->next = *list;
    if (waiter->next != NULL) waiter->next->link = &waiter->next;
    waiter->link = list;
    *list = waiter;
}

static void link_out(pd_waiter *waiter)
{
    if (waiter->link == NULL) return;
    *waiter->link = waiter->next;
    if (waiter->next != NULL) waiter->next->link = waiter->link;
    waiter->link = NULL;
}

static bool has_answer(const entry *e, const pd_wait *wait, const pd_waiter *waiter)
{
    if (wait->unfiled) return false;
    return (e->closed >= wait->step || waiter->idle) && (!waiter->pulls || e->published != NULL);
}

static bool all_closed(const job *j, const group *g, uint64_t step)
{
    return j->params > 0 && g->least >= step;
}

/* Returns the parameters for which a request waits that has `all` set: those of its fragment if it is a push that does
 * not count, otherwise all of the job. */
static group *awaited(job *j, const pd_wait *wait)
{
    return wait->late && wait->n > 0 ? group_of(j, j->at[wait->at[0].param]) : &j->all;
}

bool pd_version_table_would_answer(const pd_version_table *versions, uint32_t number, const pd_wait *wait)
{
    const job *j = find(versions, number);
    size_t i = 0;

    if (wait->unfiled || (wait->all && (j == NULL || !all_closed(j, &j->all, wait->step)))) return false;
    while (j != NULL && i < wait->n && has_answer(j->at[wait->at[i].param], wait, &wait->at[i])) i++;
    return i == wait->n;
}

/* Counts down `open` of a request, because all other parameters of the job have closed the request's round. */
static void answer_rest(pd_waiter *waiter)
{
    waiter->wait->open--;
}

/* Returns whether the set of the last step has the rank with this push, and not with one that has taken its place. */
static bool has_counted(const entry *e, const pd_wait *wait)
{
    if (!pd_counted_has(e->counted, wait->rank)) return false;
    return e->closed != wait->step || e->closed - pd_counted_age(e->counted, wait->rank) == wait->pushed;
}

static bool is_late(const entry *e, const pd_wait *wait)
{
    if (PD_MUTANT(late_told_as_stepped)) return false;
    if (PD_MUTANT(stepped_told_as_late) && pd_counted_age(e->counted, wait->rank) > 0) return true;
    if (wait->filed != PD_FILED_FOR) return wait->filed == PD_FILED_LATE;
    return !has_counted(e, wait);
}

/* Returns the step in which a push has counted, minus the one that it was for. */
static uint32_t age_of(const entry *e, const pd_wait *wait)
{
    if (wait->filed == PD_FILED_COUNTED) return wait->age;
    if (PD_MUTANT(age_told_as_none)) return 0;
    return e->closed == wait->step ? pd_counted_age(e->counted, wait->rank) : 0;
}

/* Tells whether a push has counted, how old it was, and how many ranks have counted. */
static void tell_count(const entry *e, pd_waiter *waiter)
{
    if (waiter->outcome != 0 && is_late(e, waiter->wait)) waiter->outcome = PD_LATE;
    if (waiter->outcome == 0) return;
    waiter->wait->age = waiter->outcome != PD_LATE ? age_of(e, waiter->wait) : 0;
    waiter->wait->counted = e->counted != NULL ? e->counted->n : 0;
}

static void answer(const entry *e, pd_waiter *waiter)
{
    waiter->outcome = waiter->wait->pushes && !waiter->idle ? e->outcome : 0;
    waiter->step = e->closed;
    waiter->version = e->version - (PD_MUTANT(version_back) && e->version > 1 && waiter->first > 0 ? 1 : 0);
    if (waiter->wait->pushes && e->why != NULL) {
        waiter->why = e->why;
        waiter->why->refs++;
    }
    if (e->counted != NULL || waiter->wait->filed != PD_FILED_FOR) tell_count(e, waiter);
    if (e->scalars != NULL) {
        waiter->scalars = e->scalars;
        waiter->scalars->refs++;
    }
    if (waiter->pulls) {
        waiter->published = e->published;
        waiter->published->version_refs++;
        waiter->updates = waiter->update != 0 && waiter->holds != 0 && waiter->published->builds_on == waiter->holds &&
                          waiter->published->update_dtype == waiter->update;
    }
    waiter->wait->open--;
}

/* Asks for the weights to evaluate with, for which the readers of an entry wait. */
static void ask(pd_version_table *versions, const job *j, entry *e)
{
    const pd_waiter *reader = e->readers;

    e->unasked = versions->user.asks(versions->user.arg, reader->wait, j->number, reader->param) != PD_OK;
    versions->unasked = versions->unasked || e->unasked;
}

void pd_version_table_ask_again(pd_version_table *versions)
{
    if (!versions->unasked) return;
    versions->unasked = false;
    for (job *j = versions->jobs; j != NULL; j = j->hh.next)
        for (size_t i = 0; i < j->n; i++)
            if (j->at[i]->unasked && j->at[i]->readers != NULL) ask(versions, j, j->at[i]);
}

/* Answers a piece. If it wants the weights to evaluate with, lets it wait for them, and asks for them unless others
 * wait already. */
static void answer_or_ask(pd_version_table *versions, const job *j, entry *e, pd_waiter *waiter)
{
    const bool asks = e->readers == NULL;

    answer(e, waiter);
    if (!waiter->pulls || !waiter->wait->evaluates) return;
    waiter->wait->open++;
    link_in(&e->readers, waiter);
    if (asks) ask(versions, j, e);
}

bool pd_version_table_wait(pd_version_table *versions, uint32_t number, pd_wait *wait)
{
    job *j = find(versions, number);

    wait->open = wait->n;
    if (j != NULL) answer_job(versions, j, wait);
    if (wait->all) {
        assert(j != NULL);
        wait->rest.wait = wait;
        wait->open++;
        if (!wait->unfiled && all_closed(j, &j->all, wait->step))
            answer_rest(&wait->rest);
        else
            link_in(&j->all.rest, &wait->rest);
    }
    for (size_t i = 0; i < wait->n; i++) {
        pd_waiter *waiter = &wait->at[i];
        entry *e;
        assert(j != NULL && waiter->param < j->n);
        e = j->at[waiter->param];
        waiter->wait = wait;
        if (has_answer(e, wait, waiter))
            answer_or_ask(versions, j, e, waiter);
        else
            link_in(&e->waiters, waiter);
    }
    return wait->open == 0;
}

void pd_version_table_unref(pd_version_table *versions, pd_waiter *waiter)
{
    unref(versions, waiter->published);
    waiter->published = NULL;
    pd_reason_unref(waiter->why);
    waiter->why = NULL;
    pd_scalar_means_unref(waiter->scalars);
    waiter->scalars = NULL;
}

void pd_version_table_forget(pd_version_table *versions, pd_wait *wait)
{
    link_out(&wait->rest);
    for (size_t i = 0; i < wait->n; i++) {
        link_out(&wait->at[i]);
        pd_version_table_unref(versions, &wait->at[i]);
    }
}

/* Calls `resolved` for a request if all its pieces have their answers. */
static void resolve(pd_version_table *versions, job *j, pd_wait *wait)
{
    if (wait->open > 0) return;
    answer_job(versions, j, wait);
    versions->user.resolved(versions->user.arg, wait);
}

static void publish(pd_version_table *versions, entry *e, pd_closed *closed)
{
    if (closed->published != NULL) {
        unref(versions, e->published);
        e->published = closed->published;
        e->published->version_refs = 1;
        e->version = e->published->version;
    }
    e->closed = closed->step; /* initial weights also set the number of closed rounds: a job may start at a later step
                               * than 0 */
    if (closed->outcome != 0) {
        e->outcome = (int)closed->outcome;
        pd_reason_unref(e->why);
        e->why = closed->why;
        closed->why = NULL;
        pd_scalar_means_unref(e->scalars);
        e->scalars = closed->scalars;
        closed->scalars = NULL;
        pd_counted_unref(e->counted);
        e->counted = closed->counted;
        closed->counted = NULL;
    }
}

/* Lets a push wait for the step after the one that a parameter has just closed, if its rank's contributions did not
 * count in this one and are kept. */
static void wait_on(const entry *e, pd_wait *wait)
{
    if (e->counted != NULL && wait->pushes && !wait->unfiled && wait->filed == PD_FILED_FOR &&
        wait->step == e->closed && pd_counted_keeps(e->counted, wait->rank))
        wait->step++;
}

static void close_for_all(pd_version_table *versions, job *j, group *g, const pd_closed *closed, uint64_t before)
{
    if (closed->param >= j->params || before != g->least || j->at[closed->param]->closed == before || --g->at_least > 0)
        return;
    find_least(j, g);
    for (pd_waiter *waiter = g->rest, *next; waiter != NULL; waiter = next) {
        next = waiter->next;
        wait_on(j->at[closed->param], waiter->wait);
        if (waiter->wait->unfiled || !all_closed(j, g, waiter->wait->step)) continue;
        link_out(waiter);
        answer_rest(waiter);
        resolve(versions, j, waiter->wait);
    }
}

/* Returns the last step that one of the parameters has closed, or `step` if that is later. */
static uint64_t last_closed(job *j, const group *g, uint64_t step)
{
    for (size_t i = 0; i < j->params; i++)
        if ((g == &j->all || group_of(j, j->at[i]) == g) && j->at[i]->closed > step) step = j->at[i]->closed;
    return step;
}

/* Lets a push that does not count also wait until all other parameters of its fragment have closed its step. */
static void await_rest(job *j, pd_wait *wait)
{
    wait->all = true;
    wait->open++;
    wait->rest.wait = wait;
    link_in(&awaited(j, wait)->rest, &wait->rest);
}

/* A push that does not count any more is answered when all parameters of its fragment have closed the last step that
 * one of them has closed. So all its answers name one step, and its worker may push for the next one. */
void pd_version_table_filed(pd_version_table *versions, uint32_t number, pd_wait *wait, pd_filed filed, uint64_t step)
{
    job *j = find(versions, number);

    if (j == NULL || !wait->unfiled) return;
    wait->unfiled = false;
    wait->filed = filed;
    wait->late = filed != PD_FILED_FOR && !wait->all;
    if (filed == PD_FILED_COUNTED && step > wait->step) wait->age = (uint32_t)(step - wait->step);
    wait->step = filed == PD_FILED_FOR ? step : last_closed(j, awaited(j, wait), step);
    if (wait->late) await_rest(j, wait);
    if (wait->all && all_closed(j, awaited(j, wait), wait->step)) {
        link_out(&wait->rest);
        answer_rest(&wait->rest);
    }
    for (size_t i = 0; i < wait->n; i++) {
        pd_waiter *waiter = &wait->at[i];
        if (!has_answer(j->at[waiter->param], wait, waiter)) continue;
        link_out(waiter);
        answer_or_ask(versions, j, j->at[waiter->param], waiter);
    }
    resolve(versions, j, wait);
}

/* Gives a piece the weights to evaluate with, in place of the published ones. */
static void give_readout(pd_version_table *versions, pd_waiter *waiter, pd_published *published)
{
    waiter->wait->open--;
    if (published == NULL || PD_MUTANT(read_out_trained)) return;
    unref(versions, waiter->published);
    waiter->published = published;
    waiter->version = published->version;
    waiter->updates = false;
    published->version_refs++;
}

/* Fails the requests that wait for a parameter's weights to evaluate with. */
static void fail_readers(pd_version_table *versions, entry *e, const pd_error *err)
{
    while (e->readers != NULL) {
        pd_wait *wait = e->readers->wait;
        pd_version_table_forget(versions, wait);
        versions->user.failed(versions->user.arg, wait, err);
    }
}

/* Takes weights to evaluate with. They are kept for nobody but those who wait. */
static void take_readout(pd_version_table *versions, job *j, entry *e, const pd_closed *closed)
{
    pd_error err;

    if (closed->starved) {
        pd_fail(&err, PD_RESOURCE_EXHAUSTED,
                "the server is out of memory for the weights to evaluate with: pull again later");
        fail_readers(versions, e, &err);
    }
    if (closed->published != NULL) closed->published->version_refs = 1;
    for (pd_waiter *waiter; (waiter = e->readers) != NULL;) {
        link_out(waiter);
        give_readout(versions, waiter, closed->published);
        resolve(versions, j, waiter->wait);
    }
    unref(versions, closed->published);
}

void pd_version_table_close(pd_version_table *versions, uint32_t number, pd_closed *closed)
{
    job *j = find(versions, number);
    uint64_t before;
    entry *e;

    assert(j != NULL && closed->param < j->n);
    e = j->at[closed->param];
    if (closed->read_out) {
        take_readout(versions, j, e, closed);
        return;
    }
    before = e->closed;
    publish(versions, e, closed);
    for (pd_waiter *waiter = e->waiters, *next; waiter != NULL; waiter = next) {
        next = waiter->next;
        wait_on(e, waiter->wait);
        if (!has_answer(e, waiter->wait, waiter)) continue;
        link_out(waiter);
        answer_or_ask(versions, j, e, waiter);
        resolve(versions, j, waiter->wait);
    }
    close_for_all(versions, j, &j->all, closed, before);
    if (group_of(j, e) != &j->all) close_for_all(versions, j, group_of(j, e), closed, before);
}

/* Moves the waiters for round `step` or an earlier one from `list` to the end of another list, in their
 * order. Returns how many waiters `list` had before. */
static size_t take_overdue(pd_waiter **list, uint64_t step, pd_waiter **overdue)
{
    size_t n = 0;

    for (pd_waiter *waiter = *list, *next; waiter != NULL; waiter = next, n++) {
        next = waiter->next;
        if (waiter->wait->step > step) continue;
        link_out(waiter);
        link_in(overdue, waiter);
        overdue = &waiter->next;
    }
    return n;
}

/* Fails the requests in a list that wait for round `step` or an earlier one. Returns how many waiters the list had.
 *
 * The overdue waiters are first moved to a list of their own. A request that fails is removed from all lists with all
 * its pieces. The callback `failed` may end other requests, which leave their lists, too. So the head of the list of
 * overdue waiters is always valid. */
static size_t fail_waiters(pd_version_table *versions, pd_waiter **list, uint64_t step, const pd_error *err)
{
    pd_waiter *overdue = NULL;
    size_t n = take_overdue(list, step, &overdue);

    while (overdue != NULL) {
        pd_wait *wait = overdue->wait;
        pd_version_table_forget(versions, wait);
        versions->user.failed(versions->user.arg, wait, err);
    }
    return n;
}

size_t pd_version_table_time_out(pd_version_table *versions, uint32_t number, uint32_t fragment, uint64_t step,
                                 const pd_error *err)
{
    bool all = fragment == PD_ALL_FRAGMENTS;
    job *j = find(versions, number);
    size_t n = 0;

    for (size_t i = 0; j != NULL && i < j->n; i++)
        if (all || j->at[i]->fragment == fragment) n += fail_waiters(versions, &j->at[i]->waiters, step, err);
    for (uint32_t f = 0; j != NULL && f < j->n_fragments; f++)
        if (all || f == fragment) n += fail_waiters(versions, &j->fragments[f].rest, step, err);
    if (j != NULL) n += fail_waiters(versions, &j->all.rest, step, err);
    return n;
}

void pd_version_table_drop(pd_version_table *versions, uint32_t number, const pd_error *err)
{
    job *j = find(versions, number);

    if (j == NULL) return;
    (void)pd_version_table_time_out(versions, number, PD_ALL_FRAGMENTS, UINT64_MAX, err);
    for (size_t i = 0; i < j->n; i++) fail_readers(versions, j->at[i], err);
    job_free(versions, j);
}
