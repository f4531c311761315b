/* note_request.c - Note and Recall: takes a worker's note of a step to the store, and brings it back. */
#include "note_request.h"

/* Checks the length of a note, and makes room for it in the rank's part of the ingest budget. A rank's reserve is as
 * large as its largest gradient frame, and a note may be larger than that. Then the reserve grows until the note has
 * come. */
static int check_note(pd_conn *conn, const pd_prefix *prefix, pd_error *err)
{
    if (prefix->payload_bytes > PD_NOTE_MAX)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "Note of %llu bytes: a note has at most %u bytes. Keep the rest in a file, and its name in the "
                       "note",
                       (unsigned long long)prefix->payload_bytes, PD_NOTE_MAX);
    if (conn->quota.reserve == 0 || prefix->payload_bytes <= conn->quota.reserve) return PD_OK;
    return pd_admission_join(&conn->daemon->admission, &conn->quota, prefix->payload_bytes, err);
}

int pd_prepare_note(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const Paramd__NoteRequest *note = message;
    int rc = check_note(conn, prefix, err);

    if (rc != PD_OK) return rc;
    if ((conn->incoming.pending = pd_pending_new(&conn->pendings, conn, prefix, 0)) != NULL) {
        conn->incoming.pending->kind = PD_AWAITS_STORE;
        conn->incoming.request = pd_request_new(PD_REQ_NOTE, pd_conn_ticket(conn, conn->incoming.pending));
    }
    if (conn->incoming.request == NULL) return pd_conn_no_memory(prefix, err);
    conn->incoming.request->job = conn->job;
    conn->incoming.request->rank = conn->rank;
    conn->incoming.request->u.note.step = note->step;
    return PD_OK;
}

void pd_finish_note(pd_conn *conn)
{
    pd_request *request = conn->incoming.request;

    pd_pendings_add(&conn->pendings, conn->incoming.pending);
    conn->incoming.pending = NULL;
    request->u.note.buffer = conn->incoming.buffer;
    request->u.note.bytes = conn->incoming.buffer != NULL ? conn->incoming.buffer->size : 0;
    conn->incoming.buffer = NULL;
    conn->incoming.request = NULL;
    if (conn->quota.reserve > conn->reserve)
        (void)pd_admission_join(&conn->daemon->admission, &conn->quota, conn->reserve, NULL);
    pd_loop_post(conn->daemon, request);
}

int pd_run_recall(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    pd_pending *pending = pd_pending_new(&conn->pendings, conn, prefix, 0);
    pd_request *request = pending != NULL ? pd_request_new(PD_REQ_RECALL, pd_conn_ticket(conn, pending)) : NULL;

    (void)message;
    if (request == NULL) {
        pd_pending_free(pending);
        return pd_conn_no_memory(prefix, err);
    }
    request->job = conn->job;
    request->rank = conn->rank;
    pending->kind = PD_AWAITS_STORE;
    pd_pendings_add(&conn->pendings, pending);
    pd_loop_post(conn->daemon, request);
    return PD_OK;
}

void pd_reply_recall(pd_conn *conn, pd_pending *pending, const pd_effect *effect)
{
    Paramd__RecallReply reply = PARAMD__RECALL_REPLY__INIT;

    reply.step = effect->u.recalled.step;
    reply.bytes = effect->u.recalled.bytes;
    pd_conn_answer_with(conn, pending, &reply.base, effect->u.recalled.at, effect->u.recalled.bytes);
}
