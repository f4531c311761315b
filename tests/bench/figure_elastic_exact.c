/* elastic_exact: how many indices of three epochs count twice or never, if workers come, go and are killed.
 *
 *     figure_elastic_exact [SEEDS]     SEEDS: jobs, one after the other [3]
 *
 * The data set is a row of counters, one for each index and epoch, which are the weights of the job. A worker takes a
 * share, pushes -1 for each of its indices, and the optimizer (sgd, lr = 1, aggregate = sum) adds up what counts. So in
 * the end each weight is the number of times that its index counted, whatever workers believe. Share s has the indices
 * s * BATCH and so on, counted through all epochs; StepSampler gives each epoch an order of its own besides.
 *
 * Four workers begin, with ranks that the server chooses. Two are killed by SIGKILL, then three new ones join. After
 * that a random worker is killed every second, and a new one joins 700 ms later. on_lost_worker is shrink,
 * reconnect_grace 300 ms, a step takes 40 ms. */
#include "figure.h"

#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

#include "paramd/client.h"

enum { SAMPLES = 4000, BATCH = 8, EPOCHS = 3, INDICES = EPOCHS * SAMPLES, SHARES = INDICES / BATCH };
enum { FIRST = 4, LEFT = 2, MOST = 5, STEP_MS = 40, PHASE_MS = 3000, KILL_MS = 1000, BACK_MS = 700, MOST_MS = 120000 };

/* What the processes share. */
typedef struct results {
    atomic_bool done;              /* a worker has seen that all shares are used, and left the weights here */
    float weight[INDICES];         /* how often each index counted */
    atomic_int joined, late, most; /* workers that joined; pushes that came late; most members that a worker saw */
} results;

static results *shared;
static pid_t pids[MOST]; /* 0: no worker */

static void pause_ms(double ms)
{
    nanosleep(&(struct timespec){ .tv_sec = (time_t)(ms / 1e3), .tv_nsec = (long)(fmod(ms, 1e3) * 1e6) }, NULL);
}

/* ---- a worker ---- */

typedef struct worker {
    pd_client *client;
    float weight[INDICES], gradient[INDICES];
} worker;

static void check(int rc, const pd_error *err)
{
    if (rc != PD_OK) figure_stop("a worker: %s", err->text);
}

static void join(worker *w, const char *url, const char *job)
{
    static const char *const options[] = { "aggregate=sum", "min_workers=1", "max_workers=5", "reconnect_grace=300ms",
                                           NULL };
    static const char *const rules[] = { "* sgd lr=1", NULL };
    pd_client_options me = { .urls = url,
                             .job = job,
                             .rank = PD_ANY_RANK,
                             .world_size = FIRST,
                             .options = options,
                             .rules = rules,
                             .run = "elastic",
                             .shares = 1,
                             .quiet = true };
    pd_client_param param = { .name = "counters", .shape = { 1, { INDICES } } };
    void *weights = w->weight;
    pd_error err = { 0 };

    check(pd_client_open(&w->client, &me, &err), &err);
    check(pd_client_declare(w->client, &param, 1, &err), &err);
    check(pd_client_init(w->client, &weights, &err), &err);
    atomic_fetch_add(&shared->joined, 1);
}

/* Makes the gradient of the worker's next share. Returns false if it has none of the data set's: the others may still
 * have some, so it takes part in steps without a gradient, and gets what they leave behind. */
static bool take_share(worker *w)
{
    uint64_t share;
    pd_error err = { 0 };
    int rc = pd_client_share(w->client, &share, &err);

    if (rc == PD_UNAVAILABLE) return false;
    check(rc, &err);
    if (share >= SHARES) return false;
    memset(w->gradient, 0, sizeof w->gradient);
    for (int i = 0; i < BATCH; i++) w->gradient[(int)share * BATCH + i] = -1;
    return true;
}

static void take_step(worker *w)
{
    bool has = take_share(w);
    pd_item item = { .gradient = has ? w->gradient : NULL, .weights = w->weight };
    pd_ticket_id ticket;
    pd_error err = { 0 };
    int members = 0, most = atomic_load(&shared->most);

    pause_ms(STEP_MS);
    check(pd_client_push_pull(w->client, &item, 1, NULL, &ticket, &err), &err);
    check(pd_client_wait(w->client, ticket, 0, &err), &err);
    if (item.outcome == 5) atomic_fetch_add(&shared->late, 1);
    pd_client_members(w->client, &members, NULL, NULL);
    while (most < members && !atomic_compare_exchange_weak(&shared->most, &most, members)) {}
}

static _Noreturn void work(const char *url, const char *job)
{
    worker *w = figure_alloc(sizeof *w);

    join(w, url, job);
    while (pd_client_least_unused(w->client) < SHARES) take_step(w);
    memcpy(shared->weight, w->weight, sizeof shared->weight);
    atomic_store(&shared->done, true);
    for (;;) pause_ms(1000); /* until it is killed */
}

/* ---- the program ---- */

static void launch(int place, const char *url, const char *job)
{
    pid_t parent = getpid(), pid = fork();

    if (pid < 0) figure_stop("cannot start a process: %s", strerror(errno));
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) _exit(1);
        work(url, job);
    }
    pids[place] = pid;
}

static void end(int place)
{
    if (pids[place] > 0 && kill(pids[place], SIGKILL) == 0) waitpid(pids[place], NULL, 0);
    pids[place] = 0;
}

/* Waits for so long, or until all shares are used. Ends the program if a worker has failed. */
static void watch(double ms)
{
    for (double until = figure_ms() + ms; figure_ms() < until && !atomic_load(&shared->done); pause_ms(5)) {
        for (int i = 0; i < MOST; i++)
            if (pids[i] > 0 && waitpid(pids[i], NULL, WNOHANG) == pids[i]) figure_stop("a worker has ended");
    }
}

/* Returns how many indices did not count once. Adds to *kills. */
static int run(const char *url, int seed, int *kills)
{
    unsigned short random[3] = { 1, 2, (unsigned short)seed };
    char job[32];
    int wrong = 0;
    double began = figure_ms();

    snprintf(job, sizeof job, "elastic-%d", seed);
    memset(shared, 0, sizeof *shared);
    for (int i = 0; i < FIRST; i++) launch(i, url, job);
    watch(PHASE_MS);
    for (int i = LEFT; i < FIRST; i++, ++*kills) end(i);
    watch(PHASE_MS);
    for (int i = LEFT; i < MOST; i++) launch(i, url, job);
    watch(PHASE_MS);
    while (!atomic_load(&shared->done)) {
        int place = (int)(erand48(random) * MOST);
        end(place);
        ++*kills;
        watch(BACK_MS);
        launch(place, url, job);
        watch(KILL_MS - BACK_MS);
        if (figure_ms() > began + MOST_MS) figure_stop("not all shares are used after %d s", MOST_MS / 1000);
    }
    pause_ms(50); /* a worker that is still writing the same weights */
    for (int i = 0; i < MOST; i++) end(i);
    for (int i = 0; i < INDICES; i++) wrong += shared->weight[i] != 1;
    return wrong;
}

int main(int argc, char **argv)
{
    int seeds = argc > 1 ? atoi(argv[1]) : 3, wrong = 0, kills = 0, joined = 0, late = 0, most = 0;
    pd_child daemon;

    if (seeds < 1) figure_stop("expected [SEEDS]");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) figure_stop("no memory to share");
    figure_daemon(&daemon);
    for (int seed = 1; seed <= seeds; seed++) {
        wrong += run(daemon.url, seed, &kills);
        joined += atomic_load(&shared->joined);
        late += atomic_load(&shared->late);
        most = atomic_load(&shared->most) > most ? atomic_load(&shared->most) : most;
    }
    pd_child_stop(&daemon);
    printf("%d\tof %d indices in %d jobs; %d workers joined, %d were killed, %d pushes came late; at most %d members\n",
           wrong, seeds * INDICES, seeds, joined, kills, late, most);
    return 0;
}
