/* mover.c - starts and ends the movers, and passes jobs between them and the loop thread. */
#include "mover.h"

#include "thread.h"

#include <stdlib.h>

typedef struct mover {
    pthread_t thread;
    pd_mailbox *jobs, *done; /* done: the loop thread's, for the jobs of all movers */
    size_t n_jobs;           /* number of jobs that the loop thread has given it and has not got back */
} mover;

struct pd_movers {
    pd_mailbox *done;
    int n; /* number of movers that were started */
    mover at[];
};

/* Runs jobs, and hands each one back at once, until the mailbox is closed and empty. */
static void *run_jobs(void *arg)
{
    mover *m = arg;
    bool closed = false;

    while (!closed) {
        pd_mail *next, *mail = pd_mailbox_wait(m->jobs, UINT64_MAX, &closed);
        for (; mail != NULL; mail = next) {
            pd_mover_job *job = (pd_mover_job *)(void *)mail;
            next = mail->next;
            job->run(job);
            (void)pd_mailbox_post(m->done, mail, mail); /* it is open as long as movers run */
        }
    }
    return NULL;
}

/* Starts the next mover. */
static int start(pd_movers *movers, pd_error *err)
{
    mover *m = &movers->at[movers->n];
    int rc;

    m->done = movers->done;
    if ((m->jobs = pd_mailbox_new(NULL, NULL)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    rc = pd_thread_start(&m->thread, run_jobs, m, "threads that move bytes (threads.movers)", err);
    if (rc == PD_OK)
        movers->n++;
    else
        pd_mailbox_free(m->jobs);
    return rc;
}

pd_movers *pd_movers_new(int n, void (*wake)(void *arg), void *arg, pd_error *err)
{
    pd_movers *movers = calloc(1, sizeof *movers + (size_t)n * sizeof movers->at[0]);
    int rc = PD_OK;

    if (movers == NULL || (movers->done = pd_mailbox_new(wake, arg)) == NULL) {
        free(movers);
        pd_fail(err, PD_NO_MEMORY, "out of memory");
        return NULL;
    }
    while (rc == PD_OK && movers->n < n) rc = start(movers, err);
    if (rc == PD_OK) return movers;
    pd_movers_free(movers);
    return NULL;
}

void pd_movers_post(pd_movers *movers, pd_mover_job *job)
{
    int least = 0;

    for (int i = 1; i < movers->n; i++)
        if (movers->at[i].n_jobs < movers->at[least].n_jobs) least = i;
    job->mover = least;
    movers->at[least].n_jobs++;
    (void)pd_mailbox_post(movers->at[least].jobs, &job->mail, &job->mail); /* it is closed only when they end */
}

void pd_movers_take(pd_movers *movers)
{
    pd_mail *next, *mail = movers != NULL ? pd_mailbox_take(movers->done) : NULL;

    for (; mail != NULL; mail = next) {
        pd_mover_job *job = (pd_mover_job *)(void *)mail;
        next = mail->next;
        movers->at[job->mover].n_jobs--;
        job->done(job);
    }
}

void pd_movers_free(pd_movers *movers)
{
    if (movers == NULL) return;
    for (int i = 0; i < movers->n; i++) pd_mailbox_close(movers->at[i].jobs);
    for (int i = 0; i < movers->n; i++) {
        pthread_join(movers->at[i].thread, NULL);
        pd_mailbox_free(movers->at[i].jobs);
    }
    pd_movers_take(movers);
    pd_mailbox_free(movers->done);
    free(movers);
}
