/* rig_back.c - plays the checkpoint writer of a rig whose jobs go back to earlier checkpoints. */
#include "rig.h"
#include "test.h"

static void *must(void *at)
{
    assert_non_null(at);
    return at;
}

void rig_note_older(rig *r, pd_checkpoint_image *kept)
{
    assert_true(r->n_older < RIG_OLDER);
    r->older[r->n_older++] = must(checkpoint_copy(kept));
    kept->kept.n = 0;
    for (size_t i = r->n_older; i-- > 0;) pd_kept_steps_add(&kept->kept, r->older[i]->step);
}

void rig_free_older(rig *r)
{
    while (r->n_older > 0) pd_checkpoint_image_free(r->older[--r->n_older]);
    pd_go_back_order_free(r->ordered);
    r->ordered = NULL;
}

void rig_forget_oldest(rig *r)
{
    pd_checkpoint_image_free(r->older[0]);
    memmove(&r->older[0], &r->older[1], --r->n_older * sizeof r->older[0]);
}

/* Reads the next two records, or the last one. */
static void read_records(const rig *r, pd_go_back_order *order)
{
    pd_wal_record **at = &order->records;
    size_t n = 0;

    for (size_t i = 0; i < r->n_records && n < 2; i++) {
        if (r->records[i]->step <= order->read || r->records[i]->step > order->step) continue;
        *at = must(record_copy(r->records[i]));
        at = &(*at)->next;
        n++;
    }
    assert_true(n > 0);
}

void rig_describe(const rig *r, pd_checkpoint_image *image)
{
    image->kept.n = 0;
    for (size_t i = r->n_older; i-- > 0;) pd_kept_steps_add(&image->kept, r->older[i]->step);
    image->oldest_record = image->place;
    for (size_t i = r->n_records; i-- > 0;)
        if (r->records[i]->step == image->oldest_record) image->oldest_record--;
    image->ended_record = 0;
    if (r->n_records == 0 || r->records[r->n_records - 1]->step >= image->place) return;
    image->oldest_record = r->records[0]->step - 1;
    image->ended_record = r->records[r->n_records - 1]->step;
}

/* Makes the checkpoint of order->step, or the last one before it, the newest one, and reads it. */
static void carry_out(rig *r, pd_go_back_order *order)
{
    pd_checkpoint_image *found;

    if (order->reads) {
        read_records(r, order);
        return;
    }
    if (r->disk_error != NULL) {
        pd_fail(&order->error, PD_UNAVAILABLE, "%s", r->disk_error);
        return;
    }
    while (r->n_older > 0 && r->older[r->n_older - 1]->step > order->step)
        pd_checkpoint_image_free(r->older[--r->n_older]);
    found = r->n_older > 0 ? r->older[r->n_older - 1] : NULL;
    assert_true(found != NULL && (order->replays ? found->step < order->step : found->step == order->step));
    pd_checkpoint_image_free(r->disk);
    r->disk = must(checkpoint_copy(found));
    order->image = must(checkpoint_copy(found));
    rig_describe(r, order->image);
}

pd_request *rig_answer_order(rig *r)
{
    pd_request *request = must(pd_request_new(PD_REQ_WENT_BACK, (pd_ticket){ 0, 0 }));

    carry_out(r, must(r->ordered));
    request->u.go_back_order = r->ordered;
    r->ordered = NULL;
    return request;
}

void rig_on_order(rig *r, pd_go_back_order *order)
{
    assert_null(r->ordered);
    r->ordered = order;
    if (!r->lazy_back) pd_store_apply(r->store, rig_answer_order(r), r->now);
}

void rig_go_back_ordered(rig *r)
{
    rig_apply(r, rig_answer_order(r));
    rig_work(r);
}

void rig_on_dropping(rig *r, const pd_wal_record *order)
{
    while (order->act == PD_WAL_DROP && r->n_records > 0 && r->records[r->n_records - 1]->step > order->step)
        pd_wal_record_free(r->records[--r->n_records]);
    if (order->act == PD_WAL_SET_ASIDE) rig_drop_records(r, UINT64_MAX);
    while (r->n_decisions > 0) pd_wal_record_free(r->decisions[--r->n_decisions]);
}

int rig_go_back(rig *r, const char *job, uint32_t rank, uint64_t conn, uint64_t step, uint64_t life)
{
    pd_request *request = must(pd_request_new(PD_REQ_GO_BACK, rig_ticket(r, conn)));
    uint64_t before = r->answered;

    request->job = job == NULL ? r->job : 0;
    request->rank = rank;
    request->u.go_back.job_name = job != NULL ? must(strdup(job)) : NULL;
    request->u.go_back.step = step;
    request->u.go_back.life = life;
    request->u.go_back.durable = r->looked;
    request->u.go_back.wait_ns = 60 * 1000000000ull;
    rig_apply(r, request);
    rig_work(r);
    return r->answered > before ? r->error.code : RIG_NO_ANSWER;
}
