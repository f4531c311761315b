/* rig_disk.c - plays the checkpoint writer and the WAL thread for the store of a rig: writes checkpoints and records,
 * asks for checkpoints and worker states, restores jobs and repeats records. */
#include "rig.h"
#include "test.h"

static void *copy_bytes(const void *at, size_t bytes)
{
    void *copy = malloc(bytes + 1);

    if (copy != NULL && bytes > 0) memcpy(copy, at, bytes);
    return copy;
}

static void copy_params(pd_checkpoint_image *to, const pd_checkpoint_image *from)
{
    size_t n = 0;
    float *weights;

    for (uint32_t i = 0; i < from->n_params; i++) n += (size_t)from->params[i].elements;
    to->memory = weights = malloc((n + 1) * sizeof *weights);
    to->params = calloc(from->n_params + 1, sizeof *to->params);
    for (uint32_t i = 0; i < from->n_params; i++) {
        const pd_checkpoint_param *param = &from->params[i];
        to->params[i] = *param;
        to->params[i].name = strdup(param->name);
        to->params[i].published = NULL;
        to->params[i].state = copy_bytes(param->state, param->state_bytes);
        to->params[i].weights = memcpy(weights, param->weights, (size_t)param->elements * sizeof *weights);
        weights += param->elements;
    }
}

pd_checkpoint_image *checkpoint_copy(const pd_checkpoint_image *from)
{
    pd_checkpoint_image *to = copy_bytes(from, sizeof *from);

    if (to == NULL) return NULL;
    to->number = 0;
    to->job = strdup(from->job);
    to->head = copy_bytes(from->head, from->head_bytes);
    to->worker_states = calloc(from->n_worker_states + 1, sizeof *to->worker_states);
    for (uint32_t i = 0; i < from->n_worker_states; i++) {
        to->worker_states[i] = from->worker_states[i];
        to->worker_states[i].at = copy_bytes(from->worker_states[i].at, from->worker_states[i].bytes);
    }
    copy_params(to, from);
    return to;
}

static void copy_parts(pd_wal_record *to, const pd_wal_record *from)
{
    size_t n = 0;
    float *at;

    for (uint32_t i = 0; i < from->n_parts; i++) n += (size_t)from->parts[i].elements;
    to->memory = at = malloc((n + 1) * sizeof *at);
    to->parts = calloc(from->n_parts + 1, sizeof *to->parts);
    for (uint32_t i = 0; i < from->n_parts; i++) {
        size_t bytes = (size_t)from->parts[i].elements * sizeof *at;
        if (from->parts[i].at == NULL) continue;
        to->parts[i] = (pd_wal_part){ memcpy(at, from->parts[i].at, bytes), from->parts[i].elements, NULL };
        at += from->parts[i].elements;
    }
}

pd_wal_record *record_copy(const pd_wal_record *from)
{
    pd_wal_record *to = malloc(sizeof *to);

    if (to == NULL) return NULL;
    *to = *from;
    to->number = 0;
    to->next = NULL;
    to->job = strdup(from->job);
    to->head = malloc(from->head_bytes + 1);
    memcpy(to->head, from->head, from->head_bytes);
    copy_parts(to, from);
    return to;
}

static void *must(void *at)
{
    assert_non_null(at);
    return at;
}

/* Gives a checkpoint back to the store: it is written, or the disk has failed. */
static void give_back(rig *r, pd_checkpoint_image *kept)
{
    pd_request *request = must(pd_request_new(PD_REQ_CHECKPOINT_WRITTEN, (pd_ticket){ 0, 0 }));

    kept->ns = 5000000;
    if (r->disk_error != NULL)
        pd_fail(&kept->error, PD_UNAVAILABLE, "%s", r->disk_error);
    else
        kept->bytes = pd_checkpoint_image_bytes(kept);
    if (r->disk_error == NULL && kept->ended) r->ended++;
    if (r->disk_error == NULL && !kept->ended) {
        pd_checkpoint_image_free(r->disk);
        r->disk = must(checkpoint_copy(kept));
        if (r->keeps_older) rig_note_older(r, kept);
        r->kept++;
        /* A record that is under way follows one that the checkpoint makes superfluous: that stays until then. */
        if (r->n_logging == 0 && !r->keeps_older) rig_drop_records(r, kept->place);
    }
    request->u.checkpoint_image = kept;
    pd_store_apply(r->store, request, r->now);
}

void rig_on_checkpoint(rig *r, pd_checkpoint_image *kept)
{
    if (!r->lazy_disk || kept->ended) {
        give_back(r, kept);
        return;
    }
    assert_null(r->checkpointing);
    r->checkpointing = kept;
}

void rig_write_checkpoint(rig *r)
{
    pd_checkpoint_image *kept = r->checkpointing;

    assert_non_null(kept);
    r->checkpointing = NULL;
    give_back(r, kept);
    rig_absorb(r);
}

int rig_checkpoint(rig *r, const char *job, uint64_t conn, uint64_t step, double seconds)
{
    pd_request *request = must(pd_request_new(PD_REQ_CHECKPOINT, rig_ticket(r, conn)));

    request->job = r->job;
    request->u.checkpoint.job_name = job != NULL ? must(strdup(job)) : NULL;
    request->u.checkpoint.step = step;
    request->u.checkpoint.wait_ns = (uint64_t)(seconds * 1e9);
    return rig_apply(r, request);
}

int rig_note(rig *r, uint32_t rank, uint64_t conn, uint64_t step, const char *text)
{
    pd_request *request = must(pd_request_new(PD_REQ_WORKER_STATE, rig_ticket(r, conn)));

    request->job = r->job;
    request->rank = rank;
    request->u.worker_state.step = step;
    request->u.worker_state.bytes = strlen(text);
    if (text[0] != '\0')
        memcpy(rig_payload(r, conn, strlen(text), &request->u.worker_state.buffer), text, strlen(text));
    return rig_apply(r, request);
}

int rig_recall(rig *r, uint32_t rank, uint64_t conn)
{
    pd_request *request = must(pd_request_new(PD_REQ_GET_WORKER_STATE, rig_ticket(r, conn)));

    request->job = r->job;
    request->rank = rank;
    return rig_apply(r, request);
}

int rig_restore(rig *r, const rig *from)
{
    assert_non_null(from->disk);
    r->error.code = PD_OK;
    rig_describe(from, from->disk);
    return pd_store_restore(r->store, from->disk, r->now, &r->error);
}

bool rig_drain(rig *r, uint64_t conn, double seconds)
{
    pd_request *request = must(pd_request_new(PD_REQ_DRAIN, rig_ticket(r, conn)));
    uint64_t before = r->answered;

    request->u.drain.deadline_ns = (uint64_t)(seconds * 1e9);
    request->u.drain.keep_ns = 60 * 1000000000ull;
    rig_apply(r, request);
    rig_work(r);
    return r->answered > before;
}

/* Writes an entry as wal_files.h says: it begins a chain, or follows the entry before. */
static int put(rig *r, const pd_wal_record *entry, pd_error *err)
{
    if (r->wal_error != NULL) return pd_fail(err, PD_UNAVAILABLE, "%s", r->wal_error);
    if (entry->step == entry->base + 1) rig_drop_records(r, UINT64_MAX);
    if (entry->step != entry->base + 1 && (r->n_records == 0 || r->records[r->n_records - 1]->step + 1 != entry->step))
        return pd_fail(err, PD_FAILED_PRECONDITION, "the log has no entry of step %llu",
                       (unsigned long long)entry->step - 1);
    rig_drop_records(r, entry->base);
    assert_true(r->disk != NULL && entry->base <= r->disk->place && r->n_records < RIG_RECORDS);
    r->records[r->n_records++] = record_copy(entry);
    r->recorded++;
    return PD_OK;
}

/* Writes an entry of the stream of decisions: it begins a chain, or follows the entry before. */
static int put_decisions(rig *r, const pd_wal_record *entry, pd_error *err)
{
    const pd_wal_record *last = r->n_decisions > 0 ? r->decisions[r->n_decisions - 1] : NULL;
    size_t gone = 0;

    if (r->wal_error != NULL) return pd_fail(err, PD_UNAVAILABLE, "%s", r->wal_error);
    if (entry->step != entry->base + 1 && (last == NULL || last->step + 1 != entry->step))
        return pd_fail(err, PD_FAILED_PRECONDITION, "no record of decisions %llu", (unsigned long long)entry->step - 1);
    while (gone < r->n_decisions && (entry->step == entry->base + 1 || r->decisions[gone]->step <= entry->base))
        pd_wal_record_free(r->decisions[gone++]);
    r->n_decisions -= gone;
    memmove(&r->decisions[0], &r->decisions[gone], r->n_decisions * sizeof r->decisions[0]);
    assert_true(r->n_decisions < RIG_RECORDS);
    r->decisions[r->n_decisions++] = record_copy(entry);
    r->decisions_written++;
    return PD_OK;
}

static void return_record(rig *r, pd_wal_record *entry)
{
    pd_request *request = pd_request_new(PD_REQ_WAL, (pd_ticket){ 0, 0 });

    assert_non_null(request);
    entry->bytes = entry->head_bytes;
    entry->ns = 1000000;
    entry->error = (pd_error){ 0 };
    if (entry->act == PD_WAL_APPEND)
        (void)(entry->stream == PD_WAL_DECISIONS ? put_decisions : put)(r, entry, &entry->error);
    else if (r->wal_error != NULL)
        pd_fail(&entry->error, PD_UNAVAILABLE, "%s", r->wal_error);
    else
        rig_on_dropping(r, entry);
    request->u.wal = entry;
    pd_store_apply(r->store, request, r->now);
}

void rig_on_record(rig *r, pd_wal_record *entry)
{
    if (!r->lazy_wal) {
        return_record(r, entry);
        return;
    }
    assert_true(r->n_logging < RIG_RECORDS);
    r->logging[r->n_logging++] = entry;
}

void rig_write_record(rig *r)
{
    pd_wal_record *entry = r->logging[0];

    assert_true(r->n_logging > 0);
    memmove(&r->logging[0], &r->logging[1], --r->n_logging * sizeof r->logging[0]);
    return_record(r, entry);
    rig_absorb(r);
}

void rig_drop_records(rig *r, uint64_t step)
{
    size_t gone = 0;

    while (gone < r->n_records && r->records[gone]->step <= step) pd_wal_record_free(r->records[gone++]);
    r->n_records -= gone;
    memmove(&r->records[0], &r->records[gone], r->n_records * sizeof r->records[0]);
}

int rig_replay(rig *r, const rig *from)
{
    bool kept;
    int rc = PD_OK;

    r->error.code = PD_OK;
    for (size_t i = 0; i < from->n_records && rc == PD_OK; i++)
        if (from->records[i]->step > from->disk->place)
            rc = pd_store_replay(r->store, from->records[i], r->now, &kept, &r->error);
    return rc;
}

int rig_read_decisions(rig *r, const rig *from)
{
    bool unchanged;
    int rc = PD_OK;

    r->error.code = PD_OK;
    for (size_t i = 0; i < from->n_decisions && rc == PD_OK; i++)
        rc = pd_store_replay(r->store, from->decisions[i], r->now, &unchanged, &r->error);
    return rc;
}

/* Lets the new server have what the disk of the old one has. */
static void hand_disk_over(rig *next, rig *old)
{
    memcpy(next->decisions, old->decisions, sizeof next->decisions);
    memcpy(next->records, old->records, sizeof next->records);
    next->n_decisions = old->n_decisions;
    next->n_records = old->n_records;
    next->disk = old->disk;
    old->disk = NULL;
    memcpy(next->older, old->older, sizeof next->older);
    next->n_older = old->n_older;
    next->keeps_older = old->keeps_older;
    old->n_older = 0;
    old->n_decisions = old->n_records = 0;
    old->wal_error = old->disk_error = "the server has crashed";
}

void rig_crash(rig *r, const pd_store_config *config)
{
    rig *old = malloc(sizeof *old);

    assert_non_null(old);
    *old = *r;
    rig_new(r, config);
    r->now = old->now;
    r->lazy_wal = old->lazy_wal;
    r->lazy_disk = old->lazy_disk;
    r->lazy_tasks = old->lazy_tasks;
    r->watch = old->watch;
    r->watcher = old->watcher;
    old->watch = NULL;
    if (rig_restore(r, old) != PD_OK || rig_replay(r, old) != PD_OK || rig_read_decisions(r, old) != PD_OK)
        fail_msg("%s", r->error.text);
    hand_disk_over(r, old);
    rig_free(old);
    free(old);
}
