/* rig_wal.c - plays the WAL thread for the store of a rig: writes the entries of logs, and repeats them. */
#include "rig.h"
#include "test.h"
#include "wal_copy.h"

/* Writes an entry as wal_files.h says: it begins a chain, or follows the entry before. */
static int put(rig *r, const pd_wal_record *entry, pd_error *err)
{
    if (r->log_error != NULL) return pd_fail(err, PD_UNAVAILABLE, "%s", r->log_error);
    if (entry->step == entry->base + 1) rig_forget_entries(r, UINT64_MAX);
    if (entry->step != entry->base + 1 && (r->n_entries == 0 || r->entries[r->n_entries - 1]->step + 1 != entry->step))
        return pd_fail(err, PD_FAILED_PRECONDITION, "the log has no entry of step %llu",
                       (unsigned long long)entry->step - 1);
    assert_true(r->disk != NULL && entry->base <= r->disk->step && r->n_entries < RIG_ENTRIES);
    r->entries[r->n_entries++] = logged_copy(entry);
    r->recorded++;
    return PD_OK;
}

/* Writes an entry of the stream of decisions: it begins a chain, or follows the entry before. */
static int put_decisions(rig *r, const pd_wal_record *entry, pd_error *err)
{
    const pd_wal_record *last = r->n_controls > 0 ? r->controls[r->n_controls - 1] : NULL;
    size_t gone = 0;

    if (r->log_error != NULL) return pd_fail(err, PD_UNAVAILABLE, "%s", r->log_error);
    if (entry->step != entry->base + 1 && (last == NULL || last->step + 1 != entry->step))
        return pd_fail(err, PD_FAILED_PRECONDITION, "no record of decisions %llu", (unsigned long long)entry->step - 1);
    while (gone < r->n_controls && (entry->step == entry->base + 1 || r->controls[gone]->step <= entry->base))
        pd_wal_record_free(r->controls[gone++]);
    r->n_controls -= gone;
    memmove(&r->controls[0], &r->controls[gone], r->n_controls * sizeof r->controls[0]);
    assert_true(r->n_controls < RIG_ENTRIES);
    r->controls[r->n_controls++] = logged_copy(entry);
    r->controlled++;
    return PD_OK;
}

static void give_back(rig *r, pd_wal_record *entry)
{
    pd_request *request = pd_request_new(PD_REQ_WAL, (pd_ticket){ 0, 0 });

    assert_non_null(request);
    entry->bytes = entry->head_bytes;
    entry->ns = 1000000;
    (void)(entry->stream == PD_WAL_DECISIONS ? put_decisions : put)(r, entry, &entry->error);
    request->u.wal = entry;
    pd_store_apply(r->store, request, r->now);
}

void rig_on_entry(rig *r, pd_wal_record *entry)
{
    if (!r->lazy_log) {
        give_back(r, entry);
        return;
    }
    assert_true(r->n_logging < RIG_ENTRIES);
    r->logging[r->n_logging++] = entry;
}

void rig_logged(rig *r)
{
    pd_wal_record *entry = r->logging[0];

    assert_true(r->n_logging > 0);
    memmove(&r->logging[0], &r->logging[1], --r->n_logging * sizeof r->logging[0]);
    give_back(r, entry);
    rig_absorb(r);
}

void rig_forget_entries(rig *r, uint64_t step)
{
    size_t gone = 0;

    while (gone < r->n_entries && r->entries[gone]->step <= step) pd_wal_record_free(r->entries[gone++]);
    r->n_entries -= gone;
    memmove(&r->entries[0], &r->entries[gone], r->n_entries * sizeof r->entries[0]);
}

int rig_replay(rig *r, const rig *from)
{
    bool kept;
    int rc = PD_OK;

    r->error.code = PD_OK;
    for (size_t i = 0; i < from->n_entries && rc == PD_OK; i++)
        rc = pd_store_replay(r->store, from->entries[i], r->now, &kept, &r->error);
    return rc;
}

int rig_control(rig *r, const rig *from)
{
    bool unchanged;
    int rc = PD_OK;

    r->error.code = PD_OK;
    for (size_t i = 0; i < from->n_controls && rc == PD_OK; i++)
        rc = pd_store_replay(r->store, from->controls[i], r->now, &unchanged, &r->error);
    return rc;
}
