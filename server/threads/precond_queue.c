/* precond_queue.c - decides the order in which waiting preconditioner tasks run, as precond_queue.h describes. */
#include "precond_queue.h"

#include "grow.h"
#include "task.h"
#include "optimizer.h"
#include "mutant.h"
#include "optimizer_ops.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

/* The largest cost that a job is charged for one preconditioner task. The queue adds up a job's costs in float64. In a
 * sum that is much larger than this, the smallest cost of a task (PD_PRECOND_QUEUE_HANDOVER) would be lost by
 * rounding. */
#define LARGEST_COST 1e15

/* Identifies an inverse root: number of the job, number of its parameter, and index of the root in that parameter.
 * Numbers are used instead of pointers, because job and parameter may be freed before the task is. The struct has no
 * padding, because it is hashed as bytes. */
typedef struct root_key {
    uint32_t job, param, index;
} root_key;

struct flow;

/* A preconditioner task that waits in the queue, and the request that later returns it to the store. */
typedef struct entry {
    UT_hash_handle hh; /* this task's place in pd_precond_queue.replaceable */
    /* neighbours of this preconditioner task in the list task_lane.oldest */
    struct entry *prev, *next;
    root_key key;
    struct flow *owner;
    size_t at;           /* index of this preconditioner task in task_lane.heap */
    pd_load load;        /* cost of the preconditioner task, and its number in the order of submission */
    bool light, awaited; /* light: PD_TASK_LIGHT. awaited: a step waits for the root */
    pd_request *home;    /* the request that will return the preconditioner task; it contains the task */
} entry;

/* The waiting preconditioner tasks of one job: either its light tasks, whose cost is low (PD_TASK_LIGHT), or its other
 * tasks. */
typedef struct task_lane {
    entry **heap; /* binary heap of the waiting preconditioner tasks; the first one runs next */
    size_t n, capacity;
    entry *oldest; /* list of the same preconditioner tasks in the order of submission */
} task_lane;

/* The waiting preconditioner tasks of one job, and the job's place in the fair order between jobs. */
typedef struct flow {
    UT_hash_handle hh; /* this job's place in the hash table of jobs */
    /* neighbours in the list pd_precond_queue.active, if the job is in it */
    struct flow *prev, *next;
    uint32_t job;
    /* preconditioner tasks of the job: [false] heavy ones, [true] light ones */
    task_lane lane[2];
    double tag;    /* virtual time of the job: the cost charged to it, in operations */
    uint64_t turn; /* number of the turn in which the thread for light tasks last took a task of this job; 0: none */
    unsigned taken[2]; /* numbers of tasks of this job that were taken so far, by pd_precond_queue_choice */
} flow;

/* The waiting preconditioner tasks of all jobs. */
struct pd_precond_queue {
    /* hash table of jobs, by number: from a job's first preconditioner task until pd_precond_queue_forget */
    flow *flows;
    /* list of jobs with waiting preconditioner tasks, beginning with the job that joined the list first */
    flow *active;
    /* hash table, by root, of waiting preconditioner tasks that a newer task of the same root replaces */
    entry *replaceable;
    /* virtual time of the queue, in costs of preconditioner tasks: the smallest flow.tag of jobs with waiting tasks
     * when a task was last taken; it never decreases */
    double now;
    uint64_t submitted, turns;
};

/* Returns whether preconditioner task a runs before preconditioner task b of the same job. */
static bool leads(const entry *a, const entry *b)
{
    return a->awaited != b->awaited ? a->awaited : pd_load_leads(a->load, b->load);
}

static void put(task_lane *lane, size_t at, entry *e)
{
    lane->heap[at] = e;
    e->at = at;
}

/* Puts a preconditioner task into the heap of its job at index `at`, or nearer to the top, so that the task that runs
 * next stays at the top. */
static void rise(task_lane *lane, size_t at, entry *e)
{
    for (; at > 0 && leads(e, lane->heap[(at - 1) / 2]); at = (at - 1) / 2) put(lane, at, lane->heap[(at - 1) / 2]);
    put(lane, at, e);
}

/* Puts a preconditioner task into the heap of its job at index `at`, or farther from the top, so that the task that
 * runs next stays at the top. */
static void sink(task_lane *lane, size_t at, entry *e)
{
    for (size_t child; (child = 2 * at + 1) < lane->n; at = child) {
        if (child + 1 < lane->n && leads(lane->heap[child + 1], lane->heap[child])) child++;
        if (!leads(lane->heap[child], e)) break;
        put(lane, at, lane->heap[child]);
    }
    put(lane, at, e);
}

static void lane_remove(task_lane *lane, entry *e)
{
    entry *last = lane->heap[--lane->n];

    DL_DELETE(lane->oldest, e);
    if (last == e) return;
    if (e->at > 0 && leads(last, lane->heap[(e->at - 1) / 2]))
        rise(lane, e->at, last);
    else
        sink(lane, e->at, last);
}

/* Returns the preconditioner task of a job that runs next: the first one in the job's order, but for every
 * PD_PRECOND_QUEUE_AGED-th task that is taken from the job the oldest one. */
static entry *next_of(flow *f, pd_precond_queue_choice choice)
{
    const task_lane *light = &f->lane[true], *heavy = &f->lane[false];
    bool aged = ++f->taken[choice] % PD_PRECOND_QUEUE_AGED == 0;
    entry *a, *b;

    if (light->n == 0) return aged ? heavy->oldest : heavy->heap[0];
    a = aged ? light->oldest : light->heap[0];
    if (choice == PD_PRECOND_QUEUE_LIGHT || heavy->n == 0) return a;
    b = aged ? heavy->oldest : heavy->heap[0];
    if (aged) return a->load.place < b->load.place ? a : b;
    return leads(a, b) ? a : b;
}

/* Returns the flow of a job, and creates it if the job is new. Returns NULL if out of memory. */
static flow *flow_of(pd_precond_queue *queue, uint32_t job)
{
    flow *f;

    HASH_FIND(hh, queue->flows, &job, sizeof job, f);
    if (f != NULL || (f = calloc(1, sizeof *f)) == NULL) return f;
    f->job = job;
    HASH_ADD(hh, queue->flows, job, sizeof f->job, f);
    if (f->hh.tbl != NULL) return f;
    free(f);
    return NULL;
}

static bool is_active(const flow *f)
{
    return f->lane[false].n + f->lane[true].n > 0;
}

/* Returns the job whose preconditioner task runs next. For PD_PRECOND_QUEUE_ALL, this is the job with the smallest tag.
 * For PD_PRECOND_QUEUE_LIGHT, it is the job that has waited longest for its turn. Sets the virtual time of the queue to
 * the smallest tag. Returns NULL if no task of this choice waits. */
static flow *next_flow(pd_precond_queue *queue, pd_precond_queue_choice choice)
{
    flow *least = queue->active, *in_turn = NULL, *f;

    DL_FOREACH(queue->active, f)
    {
        if (f->tag < least->tag) least = f;
        if (f->lane[true].n > 0 && (in_turn == NULL || f->turn < in_turn->turn)) in_turn = f;
    }
    if (least != NULL) queue->now = least->tag;
    return choice == PD_PRECOND_QUEUE_LIGHT ? in_turn : least;
}

static entry *entry_new(pd_precond_queue *queue, struct pd_task *task, uint32_t job, uint32_t param)
{
    entry *e = calloc(1, sizeof *e);

    if (e == NULL || (e->home = pd_request_new(PD_REQ_TASK, (pd_ticket){ 0, 0 })) == NULL) {
        free(e);
        return NULL;
    }
    e->key = (root_key){ job, param, (uint32_t)pd_task_index(task) };
    e->load = (pd_load){ pd_task_cost(task), queue->submitted++ };
    e->light = pd_precond_queue_is_light(task);
    e->awaited = !pd_task_replaceable(task);
    e->home->job = job;
    e->home->u.task.task = task;
    e->home->u.task.param = param;
    return e;
}

/* Adds a preconditioner task to the waiting tasks of its job. PD_NO_MEMORY: nothing was added, and the entry is still
 * the caller's. */
static int insert(pd_precond_queue *queue, entry *e)
{
    task_lane *lane;

    if ((e->owner = flow_of(queue, e->key.job)) == NULL) return PD_NO_MEMORY;
    lane = &e->owner->lane[e->light];
    if (pd_grow((void **)&lane->heap, &lane->capacity, lane->n < 8 ? 8 : lane->n + 1, sizeof *lane->heap) != PD_OK)
        return PD_NO_MEMORY;
    if (!e->awaited) {
        HASH_ADD(hh, queue->replaceable, key, sizeof e->key, e);
        if (e->hh.tbl == NULL) return PD_NO_MEMORY;
    }
    if (!is_active(e->owner)) {
        e->owner->tag = fmax(e->owner->tag, queue->now);
        DL_APPEND(queue->active, e->owner);
    }
    DL_APPEND(lane->oldest, e);
    rise(lane, lane->n++, e);
    return PD_OK;
}

/* Removes a waiting preconditioner task from the queue, and frees its entry. Returns the request that contains the
 * task. */
static pd_request *extract(pd_precond_queue *queue, entry *e)
{
    pd_request *home = e->home;

    lane_remove(&e->owner->lane[e->light], e);
    if (!is_active(e->owner)) DL_DELETE(queue->active, e->owner);
    if (e->hh.tbl != NULL) HASH_DEL(queue->replaceable, e);
    free(e);
    return home;
}

/* Replaces the waiting preconditioner task of the same root by the newer one: exchanges the requests of the two
 * entries, so `newer` then contains the old request. Returns false if no task of this root waits. The order of the heap
 * stays valid, because all tasks of a root cost the same. */
static bool replace(pd_precond_queue *queue, entry *newer)
{
    pd_request *home = newer->home;
    entry *older;

    HASH_FIND(hh, queue->replaceable, &newer->key, sizeof newer->key, older);
    if (older == NULL) return false;
    newer->home = older->home;
    older->home = home;
    return true;
}

/* Returns the waiting preconditioner task with the largest cost over all jobs. Used only by a mutant. */
static entry *largest(const pd_precond_queue *queue)
{
    entry *best = NULL, *e;
    flow *f;

    DL_FOREACH(queue->active, f)
    for (int light = 0; light < 2; light++) DL_FOREACH(f->lane[light].oldest, e)
    if (best == NULL || pd_load_leads(e->load, best->load)) best = e;
    return best;
}

pd_precond_queue *pd_precond_queue_new(void)
{
    return calloc(1, sizeof(pd_precond_queue));
}

static void flow_free(pd_precond_queue *queue, flow *f)
{
    HASH_DEL(queue->flows, f);
    for (int light = 0; light < 2; light++) free(f->lane[light].heap);
    free(f);
}

void pd_precond_queue_free(pd_precond_queue *queue)
{
    if (queue == NULL) return;
    assert(queue->active == NULL);
    while (queue->flows != NULL) flow_free(queue, queue->flows);
    free(queue);
}

int pd_precond_queue_add(pd_precond_queue *queue, struct pd_task *task, uint32_t job, uint32_t param,
                         pd_request **unrun)
{
    entry *e = entry_new(queue, task, job, param);

    *unrun = NULL;
    if (e == NULL) return PD_NO_MEMORY;
    if (!e->awaited && replace(queue, e)) {
        *unrun = e->home;
        free(e);
        return PD_OK;
    }
    if (insert(queue, e) == PD_OK) return PD_OK;
    pd_request_free(e->home);
    free(e);
    return PD_NO_MEMORY;
}

pd_request *pd_precond_queue_refuse(pd_effect *effect)
{
    pd_task_fail_unrun(effect->u.task.task);
    return pd_effect_become_task(effect);
}

pd_request *pd_precond_queue_take(pd_precond_queue *queue, pd_precond_queue_choice choice)
{
    flow *f = next_flow(queue, choice);
    entry *e;

    if (f == NULL) return NULL;
    e = PD_MUTANT(roots_largest_first) ? largest(queue) : next_of(f, choice);
    if (choice == PD_PRECOND_QUEUE_LIGHT)
        f->turn = ++queue->turns;
    else
        e->owner->tag += PD_PRECOND_QUEUE_HANDOVER + fmin(fmax(e->load.size, 0), LARGEST_COST);
    return extract(queue, e);
}

pd_request *pd_precond_queue_forget(pd_precond_queue *queue, uint32_t job)
{
    pd_request *unrun = NULL;
    flow *f;

    HASH_FIND(hh, queue->flows, &job, sizeof job, f);
    if (f == NULL) return NULL;
    for (int light = 0; light < 2; light++)
        while (f->lane[light].n > 0) {
            pd_request *home = extract(queue, f->lane[light].heap[f->lane[light].n - 1]);
            home->mail.next = unrun == NULL ? NULL : &unrun->mail;
            unrun = home;
        }
    flow_free(queue, f);
    return unrun;
}

bool pd_precond_queue_is_light(const struct pd_task *task)
{
    return pd_task_cost(task) <= PD_TASK_LIGHT;
}
