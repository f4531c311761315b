/* gate.c - stops a thread of the code under test at a known place. */
#include "gate.h"

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
    pthread_mutex_unlock(&g->lock);
}

void gate_shut(gate *g, bool is_shut)
{
    pthread_mutex_lock(&g->lock);
    g->shut = is_shut;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

void gate_await(gate *g)
{
    pthread_mutex_lock(&g->lock);
    while (!g->stands) pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

unsigned gate_passes(gate *g)
{
    unsigned passes;

    pthread_mutex_lock(&g->lock);
    passes = g->passes;
    pthread_mutex_unlock(&g->lock);
    return passes;
}
