/* gate.c - stops a thread of the code under test at a known place. */
#include "gate.h"

#include "await.h"
#include "daemon_process.h"
#include "test.h"

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
