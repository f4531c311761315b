/* store_go_back.c - lets a job go back to the checkpoint of an earlier step. */
#include "store_go_back.h"

#include "checkpoint.h"
#include "checkpoint_policy.h"
#include "import.h"
#include "job_turn.h"
#include "jobs.h"
#include "mutant.h"
#include "param_set.h"
#include "ranks.h"
#include "repeats.h"
#include "restore.h"
#include "store_state.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

typedef enum stage { ASKED, READING, ENDING, LOADING, REPLAYING } stage;

/* What the present job knows and its checkpoint does not. */
typedef struct carried {
    char *run;
    uint64_t course, went_back, mirrored_step;
    uint64_t common, floor;
    bool floored;
    uint64_t kicked[PD_KICKED];
    uint32_t n_kicked;
} carried;

/* A job that goes back. */
struct pd_going_back {
    struct pd_going_back *prev, *next;
    stage stage;
    uint32_t number; /* number of the job that goes back */
    char *name;
    uint64_t step;       /* step to which it goes back */
    bool replays;        /* it is a step of the WAL: records lead to it from the checkpoint that is loaded */
    pd_request *request; /* NULL: it was answered */
    pd_effect *order;    /* for the checkpoint writer; NULL: it was handed over */
    pd_effect *dropping; /* tells the WAL thread to drop the streams; NULL: it was handed over */
    bool dropped;        /* the WAL thread has done that */
    uint64_t drop_ns;    /* time at which it is told again, after the disk has failed */
    unsigned undropped;  /* number of times that the disk has failed */
    pd_checkpoint_image *image;
    pd_restoring *restoring;  /* NULL: not begun */
    bool read;                /* everything was read */
    pd_wal_record *records;   /* records to replay next */
    uint64_t replayed;        /* place of the last record that was replayed, or of the checkpoint */
    uint64_t retry_ns;        /* time at which loading is tried again, after memory was short */
    unsigned short_of_memory; /* number of times that it was */
    carried carried;
    uint64_t since_ns;
};

static void free_back(pd_store *store, pd_going_back *back)
{
    DL_DELETE(store->going_back, back);
    if (back->stage >= ENDING) store->jobs.away--;
    while (back->records != NULL) pd_wal_record_free(pd_wal_record_take(&back->records));
    if (back->order != NULL) pd_go_back_order_free(back->order->u.go_back_order);
    if (back->dropping != NULL) pd_wal_record_free(back->dropping->u.wal);
    pd_effect_free(back->order);
    pd_effect_free(back->dropping);
    pd_restore_abandon(back->restoring);
    pd_checkpoint_image_free(back->image);
    free(back->carried.run);
    free(back->name);
    free(back);
}

/* Answers the request, if it is not answered yet: `err` NULL: the job has gone back. */
static void answer(pd_store *store, pd_going_back *back, const pd_error *err)
{
    pd_request *request = back->request;

    back->request = NULL;
    if (request == NULL) return;
    if (err != NULL) {
        pd_request_refuse(&store->outbox, request, err);
        return;
    }
    pd_answer_ok(&store->outbox, request);
    pd_request_free(request);
}

static bool is_from_worker(const pd_request *request)
{
    return request->u.go_back.job_name == NULL;
}

/* ---- asked ---- */

static void list_steps(const pd_kept_steps *kept, char *text, size_t size)
{
    size_t at = 0;

    text[0] = '\0';
    for (uint32_t i = 0; i < kept->n && at + 24 < size; i++)
        at += (size_t)snprintf(text + at, size - at, "%s%" PRIu64, i > 0 ? ", " : "", kept->at[i]);
}

/* Checks that the job has a checkpoint of the step; PD_NEWEST: that it has one at all; `log`: or that its WAL has the
 * step. */
static int check_step(pd_job *job, uint64_t step, bool log, pd_error *err)
{
    char steps[300];
    uint64_t first, last;

    if (step == PD_NEWEST && job->checkpointing.kept.n > 0) return PD_OK;
    if (pd_kept_steps_has(&job->checkpointing.kept, step)) return PD_OK;
    if (log && pd_checkpoint_policy_replays(job, &first, &last) && step >= first && step <= last &&
        step <= pd_steps_least(&job->steps))
        return PD_OK;
    if (job->checkpointing.kept.n == 0)
        return pd_fail(err, PD_NOT_FOUND, "job %.100s has no checkpoint yet", job->steps.name);
    list_steps(&job->checkpointing.kept, steps, sizeof steps);
    return pd_fail(err, PD_NOT_FOUND, "job %.100s has no checkpoint of step %" PRIu64 ", but of %s", job->steps.name,
                   step, steps);
}

/* Checks that there is memory for the weights of the checkpoint. Declare has counted the memory for its states. */
static int check_memory(const pd_job *job, pd_error *err)
{
    uint64_t bytes = 0;
    pd_error why;

    for (uint32_t i = 0; i < job->steps.n_params; i++) bytes += (uint64_t)job->steps.params[i].elements * sizeof(float);
    if (pd_job_check_total(job, bytes, &why) == PD_OK) return PD_OK;
    return pd_fail(err, why.code,
                   "job %.100s cannot go back now, because its checkpoint is read into memory first: %.300s",
                   job->steps.name, why.text);
}

/* Checks that no step has become durable since the worker has looked. Another worker may have waited for that step to
 * be durable on all shards (pd_client_sync): then it must not be taken back. */
static int check_durable(const pd_job *job, const pd_request *request, pd_error *err)
{
    uint64_t durable = job->checkpointing.newest.exists ? job->checkpointing.durable_step : 0;

    if (request->u.go_back.durable == 0 || durable < request->u.go_back.durable || durable <= request->u.go_back.step)
        return PD_OK;
    return pd_fail(err, PD_ABORTED,
                   "step %" PRIu64 " of job %.100s is durable now, and %" PRIu64 " was the last when you looked: look "
                   "again",
                   durable, job->steps.name, request->u.go_back.durable - 1);
}

static int check(const pd_store *store, pd_job *job, const pd_request *request, pd_error *err)
{
    int rc;

    if (store->drain.draining) return pd_fail(err, PD_UNAVAILABLE, "the server is about to stop");
    if (!job->checkpointing.durable)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s has no checkpoints to go back to", job->steps.name);
    if (request->u.go_back.life != 0 && request->u.go_back.life != job->life && !PD_MUTANT(goback_ignores_life))
        return pd_fail(err, PD_ABORTED,
                       "job %.100s has been loaded again meanwhile, and is at step %" PRIu64 ": look again",
                       job->steps.name, pd_steps_least(&job->steps));
    if ((rc = check_durable(job, request, err)) != PD_OK) return rc;
    if (job->goes_back)
        return pd_fail(err, PD_ABORTED, "job %.100s goes back to an earlier step already: look again", job->steps.name);
    if (job->import != NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION, "job %.100s: state is being imported: end the import first",
                       job->steps.name);
    if ((rc = check_step(job, request->u.go_back.step, is_from_worker(request), err)) != PD_OK) return rc;
    return check_memory(job, err);
}

/* Makes the order to the checkpoint writer. `removes`: later checkpoints are of no use, since a worker has found that
 * the shards of its cluster do not have them all. */
static int make_order(pd_going_back *back, const pd_job *job, bool removes)
{
    pd_go_back_order *order = calloc(1, sizeof *order);

    back->order = pd_effect_new(PD_EFF_GO_BACK, (pd_ticket){ 0, 0 }, job->steps.number);
    if (back->order == NULL || order == NULL) {
        free(order);
        return PD_NO_MEMORY;
    }
    back->order->u.go_back_order = order;
    *order = (pd_go_back_order){ .job = strdup(job->steps.name),
                                 .number = job->steps.number,
                                 .creator = job->saved.creator,
                                 .step = back->step,
                                 .exact = job->steps.values.at[PD_JOB_KEY_EXACT] != 0,
                                 .removes = removes };
    return order->job != NULL ? PD_OK : PD_NO_MEMORY;
}

/* Makes the order to the WAL thread. It belongs to no job, since the job has ended when the order is carried out. */
static int make_dropping(pd_going_back *back, const pd_job *job, bool removes)
{
    pd_wal_record *record = calloc(1, sizeof *record);

    back->dropping = pd_effect_new(PD_EFF_WAL, (pd_ticket){ 0, 0 }, job->steps.number);
    if (back->dropping == NULL || record == NULL) {
        free(record);
        return PD_NO_MEMORY;
    }
    back->dropping->u.wal = record;
    *record = (pd_wal_record){ .act = removes ? PD_WAL_DROP : PD_WAL_SET_ASIDE,
                               .job = strdup(job->steps.name),
                               .number = job->steps.number,
                               .creator = job->saved.creator };
    return record->job != NULL ? PD_OK : PD_NO_MEMORY;
}

/* Allocates everything that going back needs before the checkpoint is read. */
static int begin(pd_store *store, pd_job *job, pd_request *request, uint64_t now_ns, pd_error *err)
{
    pd_going_back *back = calloc(1, sizeof *back);
    bool removes = is_from_worker(request);

    if (back == NULL) return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory to go back", job->steps.name);
    *back = (pd_going_back){ .number = job->steps.number,
                             .name = strdup(job->steps.name),
                             .step = request->u.go_back.step,
                             .since_ns = now_ns };
    DL_APPEND(store->going_back, back);
    if (back->name == NULL || make_order(back, job, removes) != PD_OK || make_dropping(back, job, removes) != PD_OK) {
        free_back(store, back);
        return pd_fail(err, PD_NO_MEMORY, "job %.100s: out of memory to go back", job->steps.name);
    }
    if (__builtin_add_overflow(now_ns, request->u.go_back.wait_ns, &request->u.go_back.wait_ns))
        request->u.go_back.wait_ns = UINT64_MAX;
    back->request = request;
    job->goes_back = true;
    return PD_OK;
}

/* Returns the job that a request means. NULL, with the reason in *err: there is none, or the worker is no longer in
 * it. */
static pd_job *find_job(pd_store *store, const pd_request *request, pd_error *err)
{
    const char *name = request->u.go_back.job_name;
    pd_job *job =
        is_from_worker(request) ? pd_jobs_numbered(&store->jobs, request->job) : pd_jobs_find(&store->jobs, name);

    if (!is_from_worker(request)) {
        if (job == NULL && pd_store_go_back_check(store, name, err) == PD_OK)
            pd_fail(err, PD_NOT_FOUND, "there is no job %.200s", name);
        return job;
    }
    if (job == NULL || job->gone) {
        pd_fail(err, PD_ABORTED, "this job has ended: say Hello again");
        return NULL;
    }
    return pd_rank_speaker(job, request, err) != NULL ? job : NULL;
}

/* Returns whether the job was read at this step, and has got no gradient since: it has nothing to take back. So workers
 * that look while another one brings the shards to a step do not undo that. */
static bool is_there(pd_job *job, const pd_request *request)
{
    uint64_t step = request->u.go_back.step;

    return is_from_worker(request) && job->restart.restored && job->counts.frames == 0 && !job->goes_back &&
           pd_steps_least(&job->steps) == step && pd_job_largest_step(job) == step;
}

void pd_store_go_back(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_error err;
    pd_job *job = find_job(store, request, &err);

    if (job != NULL && check(store, job, request, &err) == PD_OK && is_there(job, request)) {
        pd_answer_ok(&store->outbox, request);
        pd_request_free(request);
        return;
    }
    if (job == NULL || check(store, job, request, &err) != PD_OK || begin(store, job, request, now_ns, &err) != PD_OK)
        pd_request_refuse(&store->outbox, request, &err);
}

/* Gives up, and lets the job continue. */
static void give_up(pd_store *store, pd_going_back *back, pd_job *job, const pd_error *err)
{
    uint64_t step = back->step;

    pd_say(&store->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = back->name, .step = &step, .code = err->code },
           "has not gone back to step %" PRIu64 ": %.300s", step, err->text);
    answer(store, back, err);
    if (job != NULL) job->goes_back = false;
    free_back(store, back);
}

/* Hands the order to the checkpoint writer, once no checkpoint of the job is under way, and the disk has the record of
 * the step. That checkpoint may be the newest now, or have replaced the one to which the job was to go back. */
static void look_asked(pd_store *store, pd_going_back *back, pd_job *job)
{
    pd_go_back_order *order = back->order->u.go_back_order;
    pd_error err;

    if (job->checkpointing.making != NULL || job->checkpointing.writing) return;
    if (check_step(job, back->step, order->removes, &err) != PD_OK) {
        give_up(store, back, job, &err);
        return;
    }
    if (back->step == PD_NEWEST) back->step = job->checkpointing.kept.at[0];
    back->replays = !pd_kept_steps_has(&job->checkpointing.kept, back->step);
    if (back->replays && job->checkpointing.durable_step < back->step) return;
    back->stage = READING;
    order->step = back->step;
    order->replays = back->replays;
    pd_effects_add(&store->outbox, back->order);
    back->order = NULL;
}

/* ---- failing to load ---- */

enum { RETRY_NS = 1000000000, REPLAY_TRIES = 4 };

/* Lets loading be tried again a second later, because memory was short. */
static void retry_loading(pd_store *store, pd_going_back *back, uint64_t now_ns, const pd_error *err)
{
    uint64_t step = back->step;

    while (back->records != NULL) pd_wal_record_free(pd_wal_record_take(&back->records));
    pd_restore_abandon(back->restoring);
    back->restoring = NULL;
    back->read = false;
    back->stage = ENDING;
    back->retry_ns = now_ns + RETRY_NS;
    if (!pd_is_power_of_two(++back->short_of_memory)) return;
    pd_say(&store->outbox, PD_SAY_WARNING, (pd_log_facts){ .job = back->name, .step = &step, .code = err->code },
           "goes back, but could not be loaded yet; it is tried again every second: %.300s", err->text);
}

/* Handles a job that could not be loaded. It is whole on the disk, so a restart of the daemon brings it back. A replay
 * can also differ from its record because a root had no memory: it is tried again some times. */
static void fail_loading(pd_store *store, pd_going_back *back, uint64_t now_ns, const pd_error *err)
{
    uint64_t step = back->step;

    if (err->code == PD_NO_MEMORY || err->code == PD_RESOURCE_EXHAUSTED ||
        (back->stage == REPLAYING && back->short_of_memory < REPLAY_TRIES)) {
        retry_loading(store, back, now_ns, err);
        return;
    }
    pd_say(&store->outbox, PD_SAY_ERROR, (pd_log_facts){ .job = back->name, .step = &step, .code = err->code },
           "could not be loaded after it went back, and stays on the disk: restart the server to bring it back: %.300s",
           err->text);
    answer(store, back, err);
    free_back(store, back);
}

/* ---- ending ---- */

static pd_going_back *find_back(const pd_store *store, uint32_t number)
{
    pd_going_back *back = store->going_back;

    while (back != NULL && back->number != number) back = back->next;
    return back;
}

static pd_job *job_of(pd_store *store, const pd_going_back *back)
{
    pd_job *job = pd_jobs_numbered(&store->jobs, back->number);

    return job != NULL && !job->gone ? job : NULL;
}

/* Takes along what the present job knows and the checkpoint does not. */
static void carry(pd_going_back *back, pd_job *job)
{
    back->carried = (carried){ .run = job->run,
                               .course = job->saved.course,
                               .went_back = job->counts.went_back,
                               .mirrored_step = job->checkpointing.mirrored_step,
                               .common = job->checkpointing.common,
                               .floor = job->checkpointing.floor,
                               .floored = job->checkpointing.floored,
                               .n_kicked = job->saved.n_kicked };
    memcpy(back->carried.kicked, job->saved.kicked, sizeof back->carried.kicked);
    job->run = NULL;
}

/* Ends the job in memory. Its workers connect again by themselves, and wait until it is loaded. */
static void end_job(pd_store *store, pd_going_back *back, pd_job *job, uint64_t now_ns)
{
    pd_error err;

    pd_fail(&err, PD_UNAVAILABLE, "job %.100s goes back from step %" PRIu64 " to step %" PRIu64 ": connect again",
            back->name, pd_steps_least(&job->steps), back->step);
    carry(back, job);
    for (uint32_t r = 0; r < job->steps.members.ranks; r++)
        if (job->ranks[r].state == PD_RANK_CONNECTED)
            pd_rank_send_away(job, r, &err, "the job goes back to an earlier step", now_ns);
    back->stage = ENDING;
    store->jobs.away++;
    pd_store_fail(store, job, &err);
    back->dropping->u.wal->base = back->image->place;
    back->dropping->u.wal->step = back->replays ? back->step : back->image->place;
}

/* Tells the WAL thread to drop the streams, or tells it again a second after the disk has failed. The job is loaded
 * after that: if it took steps before, a restart would repeat those that it took earlier. */
static void look_dropping(pd_store *store, pd_going_back *back, uint64_t now_ns)
{
    if (back->stage < ENDING || back->dropping == NULL || now_ns < back->drop_ns) return;
    pd_effects_add(&store->outbox, back->dropping);
    back->dropping = NULL;
}

/* Lets the streams be dropped a second later, because the disk has failed. Takes ownership of the request. */
static void retry_dropping(pd_store *store, pd_going_back *back, pd_request *request, uint64_t now_ns)
{
    pd_wal_record *record = request->u.wal;

    back->dropping = pd_request_become(request, PD_EFF_WAL, (pd_ticket){ 0, 0 }, back->number);
    back->dropping->u.wal = record;
    back->drop_ns = now_ns + RETRY_NS;
    if (!pd_is_power_of_two(++back->undropped)) return;
    pd_say(&store->outbox, PD_SAY_WARNING,
           (pd_log_facts){ .job = back->name, .step = &back->step, .code = record->error.code },
           "goes back, but its WAL could not be dropped yet; it is tried again every second: %.300s",
           record->error.text);
}

bool pd_store_wal_dropped(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_wal_record *record = request->u.wal;
    pd_going_back *back = find_back(store, record->number);

    if (record->act == PD_WAL_APPEND) return false;
    if (back != NULL && record->error.code != PD_OK && !PD_MUTANT(undropped_continues)) {
        retry_dropping(store, back, request, now_ns);
        return true;
    }
    if (back != NULL) back->dropped = true;
    pd_wal_record_free(record);
    pd_request_free(request);
    return true;
}

/* Keeps the order, which reads records next. */
static void keep_order(pd_going_back *back, pd_request *request)
{
    pd_go_back_order *order = request->u.go_back_order;

    back->order = pd_request_become(request, PD_EFF_GO_BACK, (pd_ticket){ 0, 0 }, back->number);
    back->order->u.go_back_order = order;
    order->reads = true;
}

/* Takes records that were read. */
static void take_records(pd_store *store, pd_going_back *back, pd_request *request, uint64_t now_ns)
{
    pd_go_back_order *order = request->u.go_back_order;

    back->records = order->records;
    order->records = NULL;
    keep_order(back, request);
    if (order->error.code != PD_OK) fail_loading(store, back, now_ns, &order->error);
}

void pd_store_went_back(pd_store *store, pd_request *request, uint64_t now_ns)
{
    pd_go_back_order *order = request->u.go_back_order;
    pd_going_back *back = find_back(store, order->number);
    pd_job *job = back != NULL ? job_of(store, back) : NULL;
    pd_error err;

    if (back != NULL && order->reads) {
        take_records(store, back, request, now_ns);
        return;
    }
    if (back != NULL && order->error.code != PD_OK) {
        give_up(store, back, job, &order->error);
    } else if (back != NULL && job == NULL) {
        pd_fail(&err, PD_ABORTED, "job %.100s has ended meanwhile", back->name);
        give_up(store, back, NULL, &err);
    } else if (back != NULL) {
        back->image = order->image;
        order->image = NULL;
        /* The connection of a worker ends now. An operator waits until the job is loaded. */
        if (back->request != NULL && is_from_worker(back->request)) answer(store, back, NULL);
        end_job(store, back, job, now_ns);
        if (back->replays) {
            keep_order(back, request);
            return;
        }
    }
    pd_go_back_order_free(order);
    pd_request_free(request);
}

/* ---- loading ---- */

/* Claims the memory of the job that is made from the checkpoint, as soon as that of the job before is free. */
static void look_ending(pd_store *store, pd_going_back *back, uint64_t now_ns)
{
    const pd_job_env env = pd_store_env(store);
    pd_error err;

    if (pd_jobs_numbered(&store->jobs, back->number) != NULL || now_ns < back->retry_ns) return;
    pd_store_forget_deadlines(store);
    if (pd_restore_begin(&back->restoring, &store->jobs, &env, back->image, &err) != PD_OK) {
        fail_loading(store, back, now_ns, &err);
        return;
    }
    store->jobs.last_number++; /* the job has this number, and is in no table yet */
    back->stage = LOADING;
}

/* Keeps what other shards may still go back to. The step itself need not be durable on all of them: one of them can
 * just have been at it. */
static void give_floor(pd_job *job, const pd_going_back *back)
{
    const carried *from = &back->carried;
    uint64_t floor = from->floor < back->step ? from->floor : back->step;

    job->checkpointing.floored = from->floored;
    job->checkpointing.floor = floor;
    job->checkpointing.common = from->common <= back->step ? from->common : floor;
}

static void give_carried(pd_job *job, pd_going_back *back)
{
    free(job->run);
    job->run = back->carried.run;
    back->carried.run = NULL;
    job->counts.went_back = back->carried.went_back + 1;
    job->checkpointing.mirrored_step =
        back->carried.mirrored_step < back->step ? back->carried.mirrored_step : back->step;
    give_floor(job, back);
    job->saved.n_kicked = back->carried.n_kicked;
    memcpy(job->saved.kicked, back->carried.kicked, sizeof job->saved.kicked);
    pd_repeats_leave(job, back->carried.course + 1);
}

/* Asks the checkpoint writer for the records that follow. */
static void read_on(pd_store *store, pd_going_back *back)
{
    pd_go_back_order *order = back->order->u.go_back_order;

    order->read = back->replayed;
    pd_effects_add(&store->outbox, back->order);
    back->order = NULL;
}

/* Puts the job into the table of jobs, once its WAL is dropped, everything was read, and its records were replayed. */
static void look_loading(pd_store *store, pd_going_back *back, uint64_t now_ns)
{
    pd_job *job;
    pd_error err;
    int rc;

    if (!back->dropped || !back->read) return;
    if (back->replays && back->stage == LOADING) {
        back->stage = REPLAYING;
        back->replayed = back->image->place;
    }
    if (back->replays && back->replayed < back->step) {
        if (back->records == NULL && back->order != NULL) read_on(store, back);
        return;
    }
    pd_store_forget_deadlines(store);
    rc = pd_restore_end(back->restoring, &store->jobs, now_ns, &job, &err);
    back->restoring = NULL;
    if (rc != PD_OK) {
        fail_loading(store, back, now_ns, &err);
        return;
    }
    pd_job_owners_resume(&store->jobs, &store->owners, store->roles);
    give_carried(job, back);
    pd_publishing_note(&store->publishing, job);
    pd_say(&store->outbox, PD_SAY_INFO, (pd_log_facts){ .job = back->name, .step = &back->step },
           "has gone back to step %" PRIu64 " in %" PRIu64 " ms", back->step, (now_ns - back->since_ns) / 1000000);
    answer(store, back, NULL);
    free_back(store, back);
}

/* Replays a part of the next record. */
static void replay(pd_store *store, pd_going_back *back, uint64_t now_ns)
{
    pd_wal_record *record = back->records;
    pd_error err;
    int rc;

    if (!pd_restore_replay(back->restoring, record, store->config.batch_ns, now_ns, &rc, &err)) return;
    (void)pd_wal_record_take(&back->records);
    back->replayed = record->step;
    pd_wal_record_free(record);
    if (rc != PD_OK) fail_loading(store, back, now_ns, &err);
}

static bool has_work(const pd_going_back *back)
{
    return (back->stage == LOADING && !back->read) || (back->stage == REPLAYING && back->records != NULL);
}

void pd_store_go_back_work(pd_store *store, uint64_t now_ns)
{
    pd_going_back *back = store->going_back;
    pd_error err;
    int rc = PD_OK;

    while (back != NULL && !has_work(back)) back = back->next;
    if (back == NULL) return;
    if (back->stage == REPLAYING) {
        replay(store, back, now_ns);
        return;
    }
    back->read = pd_restore_some(back->restoring, store->config.batch_ns, &rc, &err);
    if (rc != PD_OK) fail_loading(store, back, now_ns, &err);
}

bool pd_store_go_back_has_work(const pd_store *store)
{
    for (const pd_going_back *back = store->going_back; back != NULL; back = back->next)
        if (has_work(back)) return true;
    return false;
}

/* ---- all stages ---- */

static void look(pd_store *store, pd_going_back *back, uint64_t now_ns)
{
    pd_job *job = back->stage == ASKED ? job_of(store, back) : NULL;
    pd_error err;

    switch (back->stage) {
    case ASKED:
        if (job != NULL) {
            look_asked(store, back, job);
            break;
        }
        pd_fail(&err, PD_ABORTED, "job %.100s has ended meanwhile", back->name);
        give_up(store, back, NULL, &err);
        break;
    case READING: break;
    case ENDING: look_ending(store, back, now_ns); break;
    case LOADING:
    case REPLAYING: look_loading(store, back, now_ns); break;
    }
}

void pd_store_go_back_look(pd_store *store, uint64_t now_ns)
{
    pd_going_back *back, *next;

    DL_FOREACH_SAFE(store->going_back, back, next) look(store, back, now_ns);
    DL_FOREACH(store->going_back, back) look_dropping(store, back, now_ns);
}

/* Refuses a request whose time is over. A job whose order was not handed over yet continues. */
static void tick(pd_store *store, pd_going_back *back, uint64_t now_ns)
{
    pd_error err;

    if (back->request == NULL || now_ns < back->request->u.go_back.wait_ns) return;
    if (back->stage == ASKED) {
        pd_fail(&err, PD_DEADLINE_EXCEEDED, "job %.100s: a checkpoint is still under way: try again", back->name);
        give_up(store, back, job_of(store, back), &err);
        return;
    }
    pd_fail(&err, PD_DEADLINE_EXCEEDED,
            "job %.100s has not gone back to step %" PRIu64 " yet, but will as soon as the disk has answered",
            back->name, back->step);
    answer(store, back, &err);
}

void pd_store_go_back_tick(pd_store *store, uint64_t now_ns)
{
    pd_going_back *back, *next;

    DL_FOREACH_SAFE(store->going_back, back, next) tick(store, back, now_ns);
}

uint64_t pd_store_go_back_next(const pd_store *store)
{
    uint64_t at = UINT64_MAX;

    for (const pd_going_back *back = store->going_back; back != NULL; back = back->next) {
        if (back->request != NULL && back->request->u.go_back.wait_ns < at) at = back->request->u.go_back.wait_ns;
        if (back->stage == ENDING && back->short_of_memory > 0 && back->retry_ns < at) at = back->retry_ns;
        if (back->stage >= ENDING && back->dropping != NULL && back->drop_ns < at) at = back->drop_ns;
    }
    return at;
}

int pd_store_go_back_check(const pd_store *store, const char *job_name, pd_error *err)
{
    for (const pd_going_back *back = store->going_back; back != NULL; back = back->next)
        if (back->stage >= ENDING && strcmp(back->name, job_name) == 0)
            return pd_fail(err, PD_UNAVAILABLE, "job %.100s goes back to step %" PRIu64 ": wait until it is loaded",
                           back->name, back->step);
    return PD_OK;
}

void pd_store_go_back_end(pd_store *store, const pd_error *err)
{
    while (store->going_back != NULL) {
        answer(store, store->going_back, err);
        free_back(store, store->going_back);
    }
}
