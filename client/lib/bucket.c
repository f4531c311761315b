/* bucket.c - cuts the tensors of a call (push, pull or init) into frames. */
#include "bucket.h"

#include "feedback.h"
#include "pieces.h"
#include "replace.h"
#include "recoveries.h"

#include <string.h>
#include <utlist.h>

/* Small tensors share a frame until its payload has this many bytes. With larger frames the server would begin its work
 * later; smaller frames cost more headers. */
#define BUCKET_BYTES (1024 * 1024)

void pd_bucket_init(pd_bucket *bucket, pd_core *core, pd_op *op, unsigned method)
{
    memset(bucket, 0, sizeof *bucket);
    bucket->core = core;
    bucket->op = op;
    bucket->method = method;
    paramd__push_request__init(&bucket->push);
    paramd__pull_request__init(&bucket->pull);
    bucket->pull.form = (uint32_t)op->form;
    if (method == PD_PUSH_PULL) bucket->push.form = (uint32_t)op->form;
}

/* Frees the bucket's complete frames that pd_bucket_post has not queued. */
static void drop(pd_bucket *bucket)
{
    for (pd_outgoing_frame *frame = bucket->first, *next; frame != NULL; frame = next) {
        next = frame->next;
        pd_outgoing_frame_free(frame);
    }
    bucket->first = NULL;
    bucket->n = 0;
}

/* Returns the number of parameters whose weights a replacement brings. */
static uint32_t count_changed(const pd_op *op)
{
    uint32_t n = 0;

    for (size_t i = 0; i < op->n; i++) n += op->items[i].gradient != NULL;
    return n;
}

static int pack(pd_bucket *bucket, uint64_t id, uint8_t **head, size_t *bytes)
{
    pd_frame_scratch *scratch = bucket->core->scratch;
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    const ProtobufCMessage *message = &bucket->push.base;

    bucket->push.pieces = init.pieces = scratch->pieces;
    bucket->push.n_pieces = init.n_pieces = bucket->pull.n_wants = bucket->n;
    bucket->pull.wants = scratch->wants;
    bucket->push.mark = init.mark = bucket->core->link.mark;
    if (bucket->op->replaces != 0) {
        init.replaces = bucket->op->replaces;
        init.step = bucket->push.step;
        init.whole = count_changed(bucket->op);
    }
    if (bucket->method == PD_INIT) message = &init.base;
    if (bucket->method == PD_PULL) message = &bucket->pull.base;
    return pd_frame_pack(head, bytes, bucket->method, bucket->core->setup.flags, id, message, scratch->iov,
                         bucket->n_iov, bucket->payload);
}

/* Completes the frame that is being filled and appends it to the bucket's list. Does nothing if the frame is empty. */
static int seal(pd_bucket *bucket)
{
    pd_frame_scratch *scratch = bucket->core->scratch;
    uint64_t id = ++bucket->core->calls.last_id;
    pd_outgoing_frame *frame;
    uint8_t *head;
    size_t bytes;
    int rc;

    if (bucket->n == 0) return PD_OK;
    if ((rc = pack(bucket, id, &head, &bytes)) != PD_OK) return rc;
    if ((frame = pd_outgoing_frame_new(head, bytes, scratch->own, bucket->n, scratch->iov, bucket->n_iov)) == NULL)
        return PD_NO_MEMORY;
    frame->id = id;
    frame->method = bucket->method;
    frame->op = bucket->op;
    frame->reply_bytes = bucket->reply;
    if (pd_method_pushes(bucket->method)) frame->step = bucket->push.step;
    if (bucket->method != PD_PULL) frame->mark = bucket->core->link.mark;
    DL_APPEND(bucket->first, frame);
    bucket->n = bucket->n_iov = 0;
    bucket->payload = bucket->reply = 0;
    bucket->push.n_scalars = 0;
    return PD_OK;
}

/* Adds bytes of the caller's memory to the payload of the frame being filled. If they directly follow the last iovec
 * entry in memory, the entry becomes longer; otherwise they get a new entry. */
static void append(pd_bucket *bucket, const void *at, size_t bytes)
{
    struct iovec *iov = bucket->core->scratch->iov;
    struct iovec *last = bucket->n_iov > 0 ? &iov[bucket->n_iov - 1] : NULL;

    if (bytes == 0) return;
    if (last != NULL && (const uint8_t *)last->iov_base + last->iov_len == (const uint8_t *)at)
        last->iov_len += bytes;
    else
        iov[bucket->n_iov++] = (struct iovec){ (void *)at, bytes };
    bucket->payload += bytes;
}

/* One piece that is about to be added to a frame: a chunk of an item, and the place for its weights in the answer. */
typedef struct pd_cut {
    size_t item;
    uint32_t handle;
    int64_t first, count;
    bool absent, alone; /* alone: the tensor has several chunks, so each chunk gets a frame of its own */
    const void *from;   /* NULL: no payload */
    size_t bytes;
    pd_dtype dtype;
    void *land;
    size_t reply;
    uint64_t holds;
} pd_cut;

static bool fits(const pd_bucket *bucket, const pd_cut *cut)
{
    uint64_t most = bucket->core->welcome.max_payload;
    uint64_t payload = pd_piece_end(bucket->payload, 0) + cut->bytes;
    uint64_t reply = pd_piece_end(bucket->reply, 0) + cut->reply;

    if (bucket->n == 0) return true;
    if (cut->alone || bucket->n >= bucket->core->max_pieces) return false;
    if (most > BUCKET_BYTES) most = BUCKET_BYTES;
    return payload <= most && reply <= most;
}

static void put_piece(pd_bucket *bucket, const pd_cut *cut)
{
    pd_frame_scratch *scratch = bucket->core->scratch;
    Paramd__Piece *piece = &scratch->piece[bucket->n];

    paramd__piece__init(piece);
    scratch->pieces[bucket->n] = piece;
    piece->handle = cut->handle;
    piece->dtype = cut->dtype;
    piece->absent = cut->absent;
    if (cut->absent) return;
    append(bucket, pd_outgoing_padding, pd_piece_end(bucket->payload, 0) - bucket->payload);
    piece->first = (uint64_t)cut->first;
    piece->count = (uint64_t)cut->count;
    piece->offset = bucket->payload;
    piece->holds = cut->holds;
    append(bucket, cut->from, cut->bytes);
}

static void put_want(pd_bucket *bucket, const pd_cut *cut)
{
    pd_frame_scratch *scratch = bucket->core->scratch;
    Paramd__Want *want = &scratch->want[bucket->n];

    paramd__want__init(want);
    scratch->wants[bucket->n] = want;
    want->handle = cut->handle;
    want->first = (uint64_t)cut->first;
    want->count = (uint64_t)cut->count;
    want->holds = cut->holds;
}

static int put(pd_bucket *bucket, const pd_cut *cut)
{
    if (!fits(bucket, cut)) {
        int rc = seal(bucket);
        if (rc != PD_OK) return rc;
    }
    if (bucket->method == PD_PULL)
        put_want(bucket, cut);
    else
        put_piece(bucket, cut);
    if (cut->reply > 0) bucket->reply = pd_piece_end(bucket->reply, 0) + cut->reply;
    bucket->core->scratch->own[bucket->n++] = (pd_frame_piece){ cut->item, cut->land, cut->reply };
    return cut->alone ? seal(bucket) : PD_OK;
}

static int put_chunk(pd_bucket *bucket, size_t index, int64_t first, int64_t count)
{
    const pd_item *item = &bucket->op->items[index];
    const pd_param_record *record = &bucket->core->params[item->param];
    pd_cut cut = {
        .item = index,
        .handle = (uint32_t)item->param,
        .first = first,
        .count = count,
        .alone = count < record->end - record->start,
        .dtype = bucket->method == PD_INIT ? record->pull : record->push,
    };

    if (bucket->method != PD_PULL) {
        size_t each = pd_dtype_size(cut.dtype);
        cut.from = each > 0 ? (const uint8_t *)item->gradient + (size_t)(first - record->start) * each
                            : pd_feedback_piece(record, first);
        cut.bytes = (size_t)pd_dtype_bytes(cut.dtype, (uint64_t)count);
    }
    if (bucket->method == PD_PULL || bucket->method == PD_PUSH_PULL) {
        size_t each = pd_dtype_size(record->pull);
        cut.land = (uint8_t *)item->weights + (size_t)(first - record->start) * each;
        cut.reply = (size_t)count * each;
        if (record->holds != NULL && bucket->op->form == PD_FORM_TRAIN)
            cut.holds = record->holds[(uint64_t)first / bucket->core->welcome.chunk_elements];
    }
    return put(bucket, &cut);
}

static int put_chunks(pd_bucket *bucket, size_t index)
{
    const pd_param_record *record = &bucket->core->params[bucket->op->items[index].param];
    int64_t first = record->start;
    int rc;

    do {
        int64_t count =
            pd_range_piece(record->start, record->end, bucket->core->welcome.chunk_elements, (uint64_t)first);
        if ((rc = put_chunk(bucket, index, first, count)) != PD_OK) return rc;
        first += count;
    } while (first < record->end);
    return PD_OK;
}

/* Sets in the frame being filled the step number of a push, or the lowest step that a pull accepts. A frame has only
 * one such number. So if the frame has another number, it is completed, and a new frame begins. */
static int set_step(pd_bucket *bucket, uint64_t step)
{
    uint64_t *own = bucket->method == PD_PULL ? &bucket->pull.min_step : &bucket->push.step;

    if (*own != step) {
        int rc = seal(bucket);
        if (rc != PD_OK) return rc;
    }
    *own = step;
    return PD_OK;
}

/* Sets in the frame being filled the number of the change (pd_push_options.replaces). As with the step, a frame has
 * only one such number. */
static int set_replaces(pd_bucket *bucket, uint64_t number)
{
    if (bucket->push.replaces != number) {
        int rc = seal(bucket);
        if (rc != PD_OK) return rc;
    }
    bucket->push.replaces = number;
    return PD_OK;
}

/* Returns the step that an item of a push belongs to, or from which on its weights are pulled. */
static uint64_t step_of(const pd_op *op, const pd_param_record *record)
{
    return op->level > 0 ? op->level : pd_op_step(op, record);
}

int pd_bucket_item(pd_bucket *bucket, size_t i)
{
    const pd_item *item = &bucket->op->items[i];
    const pd_param_record *record = &bucket->core->params[item->param];
    bool pushes = pd_method_pushes(bucket->method);
    int rc = PD_OK;

    if (pd_method_pushes(bucket->op->method)) rc = set_step(bucket, step_of(bucket->op, record));
    if (bucket->op->replaces != 0) rc = set_step(bucket, item->step);
    if (rc == PD_OK && pushes) rc = set_replaces(bucket, pd_replace_number(record, bucket->replaces));
    if (rc == PD_OK && (pushes || bucket->op->replaces != 0) && item->gradient == NULL) {
        pd_cut marker = { .item = i, .handle = (uint32_t)item->param, .absent = true, .dtype = record->push };
        rc = put(bucket, &marker);
    } else if (rc == PD_OK) {
        rc = put_chunks(bucket, i);
    }
    if (rc != PD_OK) drop(bucket);
    return rc;
}

void pd_bucket_unpost(pd_core *core, pd_op *op)
{
    for (pd_outgoing_frame *frame = pd_outgoing_first(&core->out), *next; frame != NULL; frame = next) {
        next = pd_outgoing_after(&core->out, frame);
        if (frame->op == op) pd_outgoing_remove(&core->out, frame);
    }
    op->waits = 0;
}

int pd_bucket_post(pd_bucket *bucket)
{
    int rc = seal(bucket);

    if (rc != PD_OK) drop(bucket);
    while (bucket->first != NULL) {
        pd_outgoing_frame *frame = bucket->first;

        DL_DELETE(bucket->first, frame);
        if (!pd_outgoing_add(&bucket->core->out, frame, PD_QUEUE_LASTING)) {
            pd_outgoing_frame_free(frame);
            drop(bucket);
            pd_bucket_unpost(bucket->core, bucket->op);
            return PD_NO_MEMORY;
        }
        bucket->op->waits++;
    }
    pd_resend_hold(bucket->core);
    return rc;
}
