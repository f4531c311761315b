#include "stepper.h"

#include "rootpool.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

struct pd_stepper {
    pd_store         *store;        /* step thread's; the stopping thread's once that has ended */
    pd_rootpool      *pool;
    pd_mailbox       *requests;     /* ours */
    pd_mailbox       *effects;      /* the loop's */
    pd_request       *last_call;    /* mail that wakes the thread to stop, made in time */
    pthread_t         thread;
    atomic_bool       stop;         /* told before a last mail wakes the thread */
    _Atomic uint64_t  busy_since;   /* monotonic ns; 0: idle */
};

static uint64_t now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void busy(pd_stepper *stepper, uint64_t since)
{
    atomic_store_explicit(&stepper->busy_since, since, memory_order_relaxed);
}

/* ---- step thread ---- */

/* Takes the effect. Its memory makes room for what the pool needs; when even that fails we wait for some: a task is never lost. */
static void hand_to_pool(pd_stepper *stepper, pd_effect *effect)
{
    struct pd_task *task = effect->u.task.task;
    uint32_t job = effect->job, param = effect->u.task.param;

    pd_effect_free(effect);
    while (pd_rootpool_submit(stepper->pool, task, job, param) != PD_OK) nanosleep(&(struct timespec){ .tv_nsec = 10000000 }, NULL);
}

/* Root tasks stay on this side, and those of a job that is gone come home; everything else goes to the loop as one chain. */
static void forward_effects(pd_stepper *stepper)
{
    pd_mail *first = NULL, *last = NULL;
    pd_effect *next;

    for (pd_effect *effect = pd_store_effects(stepper->store); effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        effect->mail.next = NULL;
        if (effect->kind == PD_EFF_TASK) {
            hand_to_pool(stepper, effect);
            continue;
        }
        if (effect->kind == PD_EFF_JOB_GONE) pd_rootpool_forget(stepper->pool, effect->job);
        if (first == NULL) first = &effect->mail;
        else last->next = &effect->mail;
        last = &effect->mail;
    }
    if (first != NULL) pd_mailbox_post(stepper->effects, first, last);
}

static void apply_all(pd_stepper *stepper, pd_mail *mail)
{
    while (mail != NULL) {
        pd_request *request = (pd_request *)(void *)mail;
        mail = mail->next;
        request->mail.next = NULL;
        pd_store_apply(stepper->store, request, now_ns());
    }
}

/* One turn: what has come, then a batch of work, then deadlines. True: there is more work. */
static bool turn(pd_stepper *stepper, pd_mail *mail)
{
    uint64_t now = now_ns();
    bool more;

    busy(stepper, now);
    apply_all(stepper, mail);
    forward_effects(stepper);
    more = pd_store_work(stepper->store, now_ns());
    now = now_ns();
    if (now >= pd_store_next_tick(stepper->store)) pd_store_tick(stepper->store, now);
    forward_effects(stepper);
    busy(stepper, 0);
    return more;
}

/* Payload buffers, snapshots and tasks come home before the store goes: jobs end, the pool gives its tasks back. */
static void wind_up(pd_stepper *stepper)
{
    pd_request *drop = pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 });

    apply_all(stepper, pd_mailbox_take(stepper->requests));
    if (drop != NULL) pd_store_apply(stepper->store, drop, now_ns());
    forward_effects(stepper);
    pd_rootpool_stop(stepper->pool);
    stepper->pool = NULL;
    apply_all(stepper, pd_mailbox_take(stepper->requests));
    forward_effects(stepper);
}

static void *run(void *arg)
{
    pd_stepper *stepper = arg;
    bool more = false, closed = false;

    while (!atomic_load(&stepper->stop)) {
        pd_mail *mail = more ? pd_mailbox_take(stepper->requests)
                             : pd_mailbox_wait(stepper->requests, pd_store_next_tick(stepper->store), &closed);
        more = turn(stepper, mail);
    }
    wind_up(stepper);
    return NULL;
}

/* ---- the thread that starts and stops it ---- */

int pd_stepper_start(pd_stepper **out, const pd_stepper_config *config, pd_error *err)
{
    pd_stepper *stepper = calloc(1, sizeof *stepper);
    int rc = PD_NO_MEMORY;

    if (stepper == NULL) return pd_fail(err, rc, "out of memory");
    stepper->effects = config->effects;
    stepper->requests = pd_mailbox_new(NULL, NULL);
    stepper->last_call = pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 });
    if (stepper->requests == NULL || stepper->last_call == NULL) {
        pd_fail(err, rc, "out of memory");
        goto fail;
    }
    if ((rc = pd_store_new(&stepper->store, &config->store, err)) != PD_OK) goto fail;
    if ((rc = pd_rootpool_start(&stepper->pool, config->pool_threads, stepper->requests, err)) != PD_OK) goto fail;
    if (pthread_create(&stepper->thread, NULL, run, stepper) != 0) {
        rc = pd_fail(err, PD_RESOURCE_EXHAUSTED, "the step thread cannot be started");
        goto fail;
    }
    *out = stepper;
    return PD_OK;

fail:
    pd_rootpool_stop(stepper->pool);
    pd_store_free(stepper->store);
    pd_request_free(stepper->last_call);
    pd_mailbox_free(stepper->requests);
    free(stepper);
    return rc;
}

pd_mailbox *pd_stepper_requests(pd_stepper *stepper)
{
    return stepper->requests;
}

uint64_t pd_stepper_busy_ns(const pd_stepper *stepper)
{
    uint64_t since = atomic_load_explicit(&((pd_stepper *)stepper)->busy_since, memory_order_relaxed), now = now_ns();
    return since == 0 || now < since ? 0 : now - since;
}

/* Wakes the thread with a mail that says nothing. The mailbox stays open while the pool gives its tasks back. */
static void tell_to_stop(pd_stepper *stepper)
{
    atomic_store(&stepper->stop, true);
    pd_mailbox_post(stepper->requests, &stepper->last_call->mail, &stepper->last_call->mail);
}

/* Snapshots that the loop thread will not see any more go back to the store; the rest stays for it to take home. */
static void take_back_snapshots(pd_stepper *stepper)
{
    pd_mail *mail = pd_mailbox_take(stepper->effects), *first = mail, *last = NULL;

    for (; mail != NULL; last = mail, mail = mail->next) {
        pd_effect *effect = (pd_effect *)(void *)mail;
        for (size_t i = 0; effect->kind == PD_EFF_CLOSED && i < effect->u.closed.n; i++) {
            pd_request *released = effect->u.closed.at[i].snapshot != NULL ? pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 }) : NULL;
            if (released == NULL) continue;
            released->u.released.first = effect->u.closed.at[i].snapshot;
            released->u.released.first->next_released = NULL;
            effect->u.closed.at[i].snapshot = NULL;
            pd_store_apply(stepper->store, released, now_ns());
        }
    }
    if (first != NULL) pd_mailbox_post(stepper->effects, first, last);
}

void pd_stepper_stop(pd_stepper *stepper)
{
    if (stepper == NULL) return;
    tell_to_stop(stepper);
    pthread_join(stepper->thread, NULL);
    pd_mailbox_close(stepper->requests);
    take_back_snapshots(stepper);
    forward_effects(stepper);
    pd_store_free(stepper->store);
    pd_mailbox_free(stepper->requests);
    free(stepper);
}
