/* gated_disk.c - a disk in memory at which a thread of the code under test can be made to wait. */
#include "gated_disk.h"

#include <pthread.h>
#include <time.h>

#include "daemon_process.h"
#include "test.h"

/* The functions with the gate get the argument of the disk below, so they find the gate here. */
static gated_disk *only;

static int make_dir_at_gate(void *arg, const char *path)
{
    gate_pass(&only->gate);
    return only->real.make_dir(arg, path);
}

static int sync_data_at_gate(void *arg, int file)
{
    gate_pass(&only->gate);
    return only->real.sync_data(arg, file);
}

gated_disk *gated_disk_new(gate_place place)
{
    gated_disk *d = calloc(1, sizeof *d);

    assert_non_null(d);
    assert_null(only);
    only = d;
    d->memory = mem_disk_new();
    d->disk = d->real = mem_disk_table(d->memory);
    if (place == GATE_AT_MAKE_DIR)
        d->disk.make_dir = make_dir_at_gate;
    else
        d->disk.sync_data = sync_data_at_gate;
    gate_init(&d->gate);
    d->done = pd_mailbox_new(NULL, NULL);
    return d;
}

void gated_disk_free(gated_disk *d)
{
    assert_null(d->mail);
    assert_null(pd_mailbox_take(d->done));
    pd_mailbox_free(d->done);
    gate_free(&d->gate);
    mem_disk_free(d->memory);
    only = NULL;
    free(d);
}

pd_request *gated_disk_take(gated_disk *d, pd_request_kind kind)
{
    struct timespec now;
    pd_request *request;
    bool closed;

    clock_gettime(CLOCK_MONOTONIC, &now);
    if (d->mail == NULL) d->mail = pd_mailbox_wait(d->done, ((uint64_t)now.tv_sec + 60) * 1000000000u, &closed);
    assert_non_null(d->mail);
    request = (pd_request *)(void *)d->mail;
    d->mail = request->mail.next;
    assert_int_equal(request->kind, kind);
    assert_int_equal(request->job, 9);
    return request;
}

/* A call that waits, and its argument. */
typedef struct call {
    void (*function)(void *arg);
    void *arg;
} call;

static void *make(void *arg)
{
    call *c = arg;

    c->function(c->arg);
    return NULL;
}

void gated_disk_stop(gated_disk *d, void (*stop)(void *arg), void *arg)
{
    call c = { stop, arg };
    pthread_t thread;

    assert_int_equal(pthread_create(&thread, NULL, make, &c), 0);
    gate_shut(&d->gate, false);
    pthread_join(thread, NULL);
}

void gate_init(gate *g)
{
    *g = (gate){ .shut = false };
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
}

void gate_free(gate *g)
{
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
}

void gate_pass(gate *g)
{
    pthread_mutex_lock(&g->lock);
    g->stands = g->shut;
    g->passes++;
    pthread_cond_broadcast(&g->changed);
    while (g->shut) pthread_cond_wait(&g->changed, &g->lock);
    g->stands = false;
    pthread_mutex_unlock(&g->lock);
}

void gate_shut(gate *g, bool is_shut)
{
    pthread_mutex_lock(&g->lock);
    g->shut = is_shut;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static bool has_one_before_it(void *arg)
{
    gate *g = arg;
    bool stands;

    pthread_mutex_lock(&g->lock);
    stands = g->stands;
    pthread_mutex_unlock(&g->lock);
    return stands;
}

void gate_await(gate *g)
{
    assert_true(await(has_one_before_it, g, patient(20)));
}

unsigned gate_passes(gate *g)
{
    unsigned passes;

    pthread_mutex_lock(&g->lock);
    passes = g->passes;
    pthread_mutex_unlock(&g->lock);
    return passes;
}
