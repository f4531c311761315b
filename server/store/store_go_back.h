/* store_go_back.h - lets a job go back to an earlier step, of a checkpoint or of its WAL, while others continue. Step
 * thread.
 *
 *     asked      no checkpoint of the job is begun any more; one that is under way ends first, and the record of the
 *                step becomes durable. Training continues
 *     reading    the checkpoint writer reads the whole checkpoint into memory, checks the records up to the step, and
 *                makes the checkpoint the newest one on the disk
 *     ending     the job ends: the connections of its workers get PD_UNAVAILABLE. Its memory is freed as soon as its
 *                preconditioner tasks have returned. The WAL thread drops the records after the step, and all
 *                decisions; if the disk fails, it tries again every second, and the job is not ready before that
 *     loading    a job is made from the checkpoint, in parts. It has another life (pd_job.life). If memory is short,
 *                loading is tried again every second
 *     replaying  the checkpoint writer reads records up to the step, some at a time. Each is replayed in one part
 *
 * A worker's request to go back to the step at which the job was read, and has got nothing since, is answered at once.
 *
 * An error before the end of `reading` changes nothing. A crash before that leaves the job as it was, a crash after
 * that leaves it at the step to which it goes back, or at a later one that its WAL repeats. */
#ifndef PD_STORE_GO_BACK_H
#define PD_STORE_GO_BACK_H

#include "request.h"

#include <stdbool.h>

struct pd_store;

/* Takes a request that a job goes back. Takes ownership of the request.
 *
 *   PD_NOT_FOUND            there is no such job, or the job has no checkpoint of that step, nor, for a worker, its
 *                           WAL
 *   PD_ABORTED              the job has another life than the request means, goes back already, or has another durable
 *                           step than the worker has seen
 *   PD_FAILED_PRECONDITION  the job has no checkpoints, or state is being imported into it
 *   PD_UNAVAILABLE          the server is about to stop
 *   PD_RESOURCE_EXHAUSTED, PD_NO_MEMORY, and errors of pd_checkpoint_go_back */
void pd_store_go_back(struct pd_store *store, pd_request *request, uint64_t now_ns);
/* Takes an order back from the checkpoint writer (PD_REQ_WENT_BACK). Takes ownership of the request. */
void pd_store_went_back(struct pd_store *store, pd_request *request, uint64_t now_ns);
/* Takes the order to drop the streams of a WAL back from the WAL thread (PD_REQ_WAL), and ownership of the request.
 * Returns false, and takes nothing, if the record is no such order. */
bool pd_store_wal_dropped(struct pd_store *store, pd_request *request, uint64_t now_ns);
/* Advances all jobs that go back, as far as that is possible without reading. Call it after each request. */
void pd_store_go_back_look(struct pd_store *store, uint64_t now_ns);
/* Reads a part of a checkpoint, if a job is being loaded. */
void pd_store_go_back_work(struct pd_store *store, uint64_t now_ns);
/* Returns whether pd_store_go_back_work has something to do. */
bool pd_store_go_back_has_work(const struct pd_store *store);
/* Refuses requests whose time is over. Call pd_store_go_back_look after it. */
void pd_store_go_back_tick(struct pd_store *store, uint64_t now_ns);
/* Returns the time at which pd_store_go_back_tick must be called next; UINT64_MAX: at none. */
uint64_t pd_store_go_back_next(const struct pd_store *store);
/* Checks that the job of this name is not between two lives. PD_UNAVAILABLE: it is being loaded. */
int pd_store_go_back_check(const struct pd_store *store, const char *job_name, pd_error *err);
/* Refuses all requests, and frees what the store has of jobs that go back. They stay on the disk. Call it when all jobs
 * end. */
void pd_store_go_back_end(struct pd_store *store, const pd_error *err);

#endif
