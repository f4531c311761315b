/* Tests the movers, with jobs that the test holds back: no bytes are moved here. */
#include <semaphore.h>

#include "test.h"
#include "daemon_process.h"
#include "mover.h"
#include "thread.h"

WITH_THREADS();

enum { JOBS = 200 };

typedef struct job {
    pd_mover_job job; /* must be the first member: the address of a job's part is cast to the job */
    struct fixture *of;
    pthread_t ran_on;
    bool waits; /* it posts `begun`, and waits for `go` */
    int n_run, n_done;
} job;

typedef struct fixture {
    pd_movers *movers;
    sem_t woken, begun, go;
    job jobs[JOBS];
    int n_posted, n_done;
} fixture;

static void wake(void *arg)
{
    sem_post(&((fixture *)arg)->woken);
}

static void run(pd_mover_job *of)
{
    job *j = (job *)(void *)of;

    if (j->waits) {
        sem_post(&j->of->begun);
        sem_wait(&j->of->go);
    }
    j->ran_on = pthread_self();
    j->n_run++;
}

static void done(pd_mover_job *of)
{
    job *j = (job *)(void *)of;

    assert_int_equal(j->n_run, 1); /* the owner sees what the mover has written */
    assert_false(pthread_equal(j->ran_on, pthread_self()));
    j->n_done++;
    j->of->n_done++;
}

static void set_up(fixture *f)
{
    sem_init(&f->woken, 0, 0);
    sem_init(&f->begun, 0, 0);
    sem_init(&f->go, 0, 0);
}

static void tear_down(fixture *f)
{
    pd_movers_free(f->movers);
    sem_destroy(&f->woken);
    sem_destroy(&f->begun);
    sem_destroy(&f->go);
}

FIXTURE(fixture, set_up, tear_down);

static void start(fixture *f, int n)
{
    pd_error err = { 0 };

    f->movers = pd_movers_new(n, wake, f, &err);
    if (f->movers == NULL) fail_msg("%s", err.text);
}

static job *post(fixture *f, bool waits)
{
    job *j = &f->jobs[f->n_posted++];

    *j = (job){ .job = { .run = run, .done = done }, .of = f, .waits = waits };
    pd_movers_post(f->movers, &j->job);
    return j;
}

/* Takes jobs back until `n` have come. */
static void await_done(fixture *f, int n)
{
    while (f->n_done < n) {
        sem_wait(&f->woken);
        pd_movers_take(f->movers);
    }
}

static void expect_each_once(const fixture *f)
{
    for (int i = 0; i < f->n_posted; i++) {
        assert_int_equal(f->jobs[i].n_run, 1);
        assert_int_equal(f->jobs[i].n_done, 1);
    }
}

static void bring_each_job_back_once(fixture *f, int movers)
{
    start(f, movers);
    while (f->n_posted < JOBS) post(f, false);
    await_done(f, JOBS);
    expect_each_once(f);
}

HOLDS_FOR(fixture *f, one_mover_brings_each_job_back_once, bring_each_job_back_once(f, 1));
HOLDS_FOR(fixture *f, seven_movers_bring_each_job_back_once, bring_each_job_back_once(f, 7));

TEST(a_job_is_done_only_when_its_owner_takes_it, fixture *f)
{
    start(f, 1);
    post(f, false);
    sem_wait(&f->woken);
    assert_int_equal(f->n_done, 0);
    pd_movers_take(f->movers);
    assert_int_equal(f->n_done, 1);
    pd_movers_take(f->movers);
    assert_int_equal(f->n_done, 1);
}

TEST(a_job_that_is_late_holds_up_only_its_own_mover, fixture *f)
{
    const job *late;

    start(f, 2);
    late = post(f, true);
    sem_wait(&f->begun);
    for (int i = 1; i <= JOBS / 2; i++) {
        post(f, false); /* the other mover has no job now, so it gets this one */
        await_done(f, i);
    }
    assert_int_equal(late->n_done, 0);
    sem_post(&f->go);
    await_done(f, f->n_posted);
    expect_each_once(f);
}

static void *let_go(void *arg)
{
    fixture *f = arg;

    sem_wait(&f->begun);
    sem_post(&f->go);
    return NULL;
}

TEST(movers_that_are_freed_end_the_jobs_that_they_have, fixture *f)
{
    pthread_t helper;

    start(f, 2);
    post(f, true);
    for (int i = 0; i < 20; i++) post(f, false);
    assert_int_equal(pthread_create(&helper, NULL, let_go, f), 0);
    pd_movers_free(f->movers);
    f->movers = NULL;
    pthread_join(helper, NULL);
    assert_int_equal(f->n_done, f->n_posted);
    expect_each_once(f);
}

TEST(movers_without_jobs_end_at_once, fixture *f)
{
    start(f, 3);
    pd_movers_free(f->movers);
    f->movers = NULL;
    pd_movers_free(NULL);
    pd_movers_take(NULL);
}

TEST(without_memory_there_are_no_movers, fixture *f)
{
    bool failed = true;
    pd_error err;

    for (int64_t n = 0; failed; n++) {
        oom_arm(n);
        f->movers = pd_movers_new(1, wake, f, &err);
        failed = oom_disarm();
        assert_int_equal(f->movers == NULL, failed);
        if (failed) assert_int_equal(err.code, PD_NO_MEMORY);
    }
}
