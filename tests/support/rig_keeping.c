/* rig_keeping.c - plays the checkpoint writer for the store of a rig, asks for checkpoints and notes, and restores
 * jobs. */
#include "kept_copy.h"
#include "rig.h"
#include "test.h"

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
        r->disk = must(kept_copy(kept));
        r->kept++;
        rig_forget_entries(r, kept->step);
    }
    request->u.checkpoint_image = kept;
    pd_store_apply(r->store, request, r->now);
}

void rig_on_kept(rig *r, pd_checkpoint_image *kept)
{
    if (!r->lazy_disk || kept->ended) {
        give_back(r, kept);
        return;
    }
    assert_null(r->checkpointing);
    r->checkpointing = kept;
}

void rig_kept(rig *r)
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
