/* output.c - queues frames to send, and finds where the bytes of the frame that is being sent are in memory. */
#include "output.h"

#include "mutant.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

void pd_outstanding_add(pd_outstanding *list, pd_pending *answer, uint64_t now_ms)
{
    answer->next_reply = NULL;
    if (list->first == NULL) {
        list->first = answer;
        list->since_ms = now_ms;
    } else {
        list->last->next_reply = answer;
    }
    list->last = answer;
    list->n++;
    list->bytes += pd_pending_bytes(answer->wait.n);
}

pd_pending *pd_outstanding_take(pd_outstanding *list, uint64_t n, uint64_t now_ms)
{
    pd_pending *taken = n > 0 ? list->first : NULL, *end = NULL;

    assert(n <= list->n);
    for (uint64_t i = 0; i < n; i++) {
        end = list->first;
        list->first = end->next_reply;
        list->bytes -= pd_pending_bytes(end->wait.n);
    }
    if (end != NULL) {
        end->next_reply = NULL;
        list->since_ms = now_ms;
    }
    list->n -= n;
    return taken;
}

static const uint8_t zeros[PD_PAYLOAD_ALIGN];

int pd_reply_scratch_init(pd_reply_scratch *scratch, size_t capacity)
{
    scratch->capacity = capacity;
    scratch->outcomes = calloc(capacity, sizeof *scratch->outcomes);
    scratch->list = calloc(capacity, sizeof *scratch->list);
    scratch->spans = calloc(2 * capacity, sizeof *scratch->spans);
    if (scratch->outcomes == NULL || scratch->list == NULL || scratch->spans == NULL) return PD_NO_MEMORY;
    for (size_t i = 0; i < capacity; i++) {
        paramd__outcome__init(&scratch->outcomes[i]);
        scratch->list[i] = &scratch->outcomes[i];
    }
    for (size_t i = 0; i < PD_REPLY_SCALARS; i++) {
        paramd__scalar__init(&scratch->scalars[i]);
        scratch->scalar_list[i] = &scratch->scalars[i];
    }
    return PD_OK;
}

void pd_reply_scratch_free(pd_reply_scratch *scratch)
{
    free(scratch->outcomes);
    free(scratch->list);
    free(scratch->spans);
}

bool pd_output_empty(const pd_output *output)
{
    return !output->busy && output->beats_bytes == 0 && output->first == NULL && output->first_reply == NULL;
}

bool pd_output_beat(pd_output *output, const pd_prefix *asked)
{
    pd_prefix prefix = {
        .version = PD_PROTOCOL_VERSION, .flags = PD_FLAG_REPLY, .method = PD_HEARTBEAT, .request = asked->request
    };

    if (output->beats_bytes == sizeof output->beats) return false;
    if ((asked->flags & PD_FLAG_CHECKSUM) != 0) {
        prefix.flags |= PD_FLAG_CHECKSUM;
        pd_frame_checksum(&prefix.checksum, "", 0, NULL, 0);
    }
    pd_prefix_write(output->beats + output->beats_bytes, &prefix);
    output->beats_bytes += PD_PREFIX_BYTES;
    return true;
}

int pd_output_frame(pd_output *output, uint8_t *at, size_t bytes)
{
    pd_frame_out *frame = malloc(sizeof *frame);

    if (frame == NULL) return PD_NO_MEMORY;
    *frame = (pd_frame_out){ .bytes = bytes, .at = at };
    if (output->first == NULL)
        output->first = frame;
    else
        output->last->next = frame;
    output->last = frame;
    output->held += bytes + sizeof *frame;
    return PD_OK;
}

void pd_output_reply(pd_output *output, pd_pending *reply)
{
    reply->next_reply = NULL;
    if (output->first_reply == NULL)
        output->first_reply = reply;
    else
        output->last_reply->next_reply = reply;
    output->last_reply = reply;
    output->held += pd_pending_bytes(reply->wait.n);
}

static size_t element_bytes(const pd_waiter *piece)
{
    return pd_dtype_size(piece->updates ? piece->update : piece->dtype);
}

static size_t data_bytes(const pd_waiter *piece)
{
    return piece->pulls ? (size_t)piece->count * element_bytes(piece) : 0;
}

static const uint8_t *data_at(const pd_waiter *piece)
{
    const void *at = piece->published->at[piece->updates ? PD_UPDATE : piece->dtype];
    size_t first = (size_t)piece->first - (PD_MUTANT(torn_reply) && piece->first > 0 && piece->version > 1);

    return (const uint8_t *)at + first * element_bytes(piece);
}

static size_t last_with_data(const pd_wait *wait)
{
    size_t i = wait->n;
    while (i > 0 && data_bytes(&wait->at[i - 1]) == 0) i--;
    return i > 0 ? i - 1 : 0;
}

static size_t padding_after(const pd_waiter *piece, bool last)
{
    size_t over = data_bytes(piece) % PD_PAYLOAD_ALIGN;
    return over == 0 || last ? 0 : PD_PAYLOAD_ALIGN - over;
}

uint64_t pd_reply_payload_bytes(const pd_wait *wait)
{
    size_t last = last_with_data(wait);
    uint64_t bytes = 0;

    for (size_t i = 0; i < wait->n; i++) bytes += data_bytes(&wait->at[i]) + padding_after(&wait->at[i], i == last);
    return bytes;
}

/* Sets iov to the memory spans of the next bytes of a payload, at most `max` spans and `most` bytes. They begin in the
 * piece with index `piece`, of which `sent` bytes are sent already. `last`: index of the last piece that has data.
 * Returns the number of spans. */
static int payload_spans(const pd_wait *wait, size_t last, size_t piece, uint64_t sent, struct iovec *iov, int max,
                         size_t most)
{
    int n = 0;

    for (; piece < wait->n && n < max && most > 0; piece++, sent = 0) {
        size_t data = data_bytes(&wait->at[piece]), pad = padding_after(&wait->at[piece], piece == last);
        if (sent < data) {
            size_t len = data - sent < most ? data - sent : most;
            iov[n++] = (struct iovec){ (void *)(data_at(&wait->at[piece]) + sent), len };
            most -= len;
            sent += len;
        }
        if (sent >= data && sent < data + pad && n < max && most > 0) {
            size_t len = data + pad - sent < most ? data + pad - sent : most;
            iov[n++] = (struct iovec){ (void *)zeros, len };
            most -= len;
        } else if (sent < data + pad) {
            break;
        }
    }
    return n;
}

#define MOST_OUTSTANDING                                                                                               \
    (1024u * 1024u) /* most bytes of outstanding replies; weights of further replies go through the socket */

/* Returns whether the worker can read all weights of the reply in shared memory. */
static bool can_share(const pd_output *output, const pd_pending *reply)
{
    const pd_wait *wait = &reply->wait;

    if (output->weights.at == NULL || reply->checksum || output->outstanding.bytes >= MOST_OUTSTANDING) return false;
    if (pd_reply_payload_bytes(wait) < pd_least_shared(output->least_shared)) return false;
    for (size_t i = 0; i < wait->n; i++)
        if (data_bytes(&wait->at[i]) > 0 &&
            !pd_segment_has(&output->weights, data_at(&wait->at[i]), data_bytes(&wait->at[i])))
            return false;
    return true;
}

/* Sets `place` in each outcome of a reply: the offset of the piece's weights in the segment; 0 if the reply does not
 * use shared memory or the piece has no weights. */
static void put_places(const pd_output *output, const pd_reply_scratch *scratch, const pd_wait *wait)
{
    for (size_t i = 0; i < wait->n; i++) {
        const pd_waiter *piece = &wait->at[i - (PD_MUTANT(place_of_another) && i > 0)];
        bool has_data = output->shared && data_bytes(piece) > 0;
        scratch->outcomes[i].place = has_data ? (uint64_t)(data_at(piece) - output->weights.at) : 0;
    }
}

/* Most bytes that the reasons of refused steps may have in one reply; its header has space for them. */
#define REASONS_BYTES 4096

/* Adds the reasons why steps were refused to the outcomes of a reply. A reason is left out if it repeats the reason
 * before it, or if it does not fit. */
static void put_reasons(const pd_reply_scratch *scratch, const pd_wait *wait)
{
    const pd_reason *last = NULL;
    size_t used = 0;

    for (size_t i = 0; i < wait->n; i++) {
        const pd_reason *why = wait->at[i].why;
        bool news = why != NULL && (last == NULL || strcmp(why->text, last->text) != 0) &&
                    used + strlen(why->text) <= REASONS_BYTES;
        scratch->outcomes[i].why = news ? (char *)why->text : (char *)protobuf_c_empty_string;
        if (!news) continue;
        used += strlen(why->text);
        last = why;
    }
}

/* Adds the averages of the scalars to the outcomes of a reply. If consecutive pieces belong to the same round, only the
 * first piece gets them. Averages that do not fit are left out. */
static void put_scalars(pd_reply_scratch *scratch, const pd_wait *wait)
{
    const pd_scalar_means *last = NULL;
    size_t used = 0;

    for (size_t i = 0; i < wait->n; i++) {
        const pd_scalar_means *scalars = wait->at[i].scalars;
        bool news = scalars != NULL && scalars != last && used + scalars->n <= PD_REPLY_SCALARS;
        scratch->outcomes[i].scalars = scratch->scalar_list + used;
        scratch->outcomes[i].n_scalars = news ? scalars->n : 0;
        for (size_t k = 0; news && k < scalars->n; k++, used++) {
            scratch->scalars[used].name = (char *)scalars->at[k].name;
            scratch->scalars[used].value = scalars->at[k].mean;
            scratch->scalars[used].weight = scalars->at[k].weight;
        }
        last = scalars;
    }
}

Paramd__Lease **pd_lease_list_fill(pd_lease_list *list, const pd_rank_leases *leases)
{
    for (uint32_t i = 0; i < leases->n; i++) {
        paramd__lease__init(&list->at[i]);
        list->at[i].first = leases->ranges[i].first;
        list->at[i].count = leases->ranges[i].count;
        list->list[i] = &list->at[i];
    }
    return list->list;
}

static int pack_reply(pd_output *output, pd_reply_scratch *scratch, const pd_pending *reply)
{
    const pd_wait *wait = &reply->wait;
    Paramd__DataReply message = PARAMD__DATA_REPLY__INIT;
    pd_lease_list leases;
    uint8_t flags = PD_FLAG_REPLY | (reply->checksum ? PD_FLAG_CHECKSUM : 0) | (output->shared ? PD_FLAG_SHARED : 0);
    int n_spans = 0;

    assert(wait->n <= scratch->capacity);
    message.outcomes = scratch->list;
    message.n_outcomes = wait->n;
    message.durable_step = wait->durable;
    message.unbroken = wait->unbroken;
    message.mirrored = wait->mirrored;
    message.members = wait->members;
    message.index = wait->index;
    message.leads = wait->leads;
    message.epoch = wait->epoch;
    message.course = wait->course;
    if (reply->leases != NULL) {
        message.leases = pd_lease_list_fill(&leases, reply->leases);
        message.n_leases = reply->leases->n;
        message.least_unused = reply->leases->least_unused;
    }
    message.fastest = reply->fastest;
    message.staleness = wait->pushes ? wait->age : 0;
    message.counted = wait->pushes ? wait->counted : 0;
    for (size_t i = 0; i < wait->n; i++) {
        scratch->outcomes[i].outcome = (uint32_t)wait->at[i].outcome;
        scratch->outcomes[i].step = wait->at[i].step;
        scratch->outcomes[i].version = wait->at[i].version;
        scratch->outcomes[i].update = wait->at[i].updates;
    }
    put_reasons(scratch, wait);
    put_scalars(scratch, wait);
    put_places(output, scratch, wait);
    if (reply->checksum)
        n_spans =
            payload_spans(wait, last_with_data(wait), 0, 0, scratch->spans, (int)(2 * scratch->capacity), SIZE_MAX);
    return pd_frame_pack(&output->head_owned, &output->head_bytes, reply->method, flags, reply->id, &message.base,
                         scratch->spans, (size_t)n_spans, pd_reply_payload_bytes(wait));
}

static void begin_frame(pd_output *output)
{
    pd_frame_out *frame = output->first;

    output->head = output->head_owned = frame->at;
    output->head_bytes = frame->bytes;
    output->held -= frame->bytes + sizeof *frame;
    output->first = frame->next;
    free(frame);
}

static int begin_reply(pd_output *output, pd_reply_scratch *scratch)
{
    pd_pending *reply = output->first_reply;
    int rc;

    output->shared = can_share(output, reply);
    if ((rc = pack_reply(output, scratch, reply)) != PD_OK) return rc;
    output->first_reply = reply->next_reply;
    output->head = output->head_owned;
    output->reply = reply;
    output->last_piece = last_with_data(&reply->wait);
    output->piece = 0;
    output->piece_sent = 0;
    return PD_OK;
}

static int begin(pd_output *output, pd_reply_scratch *scratch)
{
    int rc = PD_OK;

    output->head_sent = 0;
    output->head_owned = NULL;
    output->reply = NULL;
    output->shared = false;
    if (output->beats_bytes > 0) {
        memcpy(output->sending, output->beats, output->beats_bytes);
        output->head = output->sending;
        output->head_bytes = output->beats_bytes;
        output->beats_bytes = 0;
    } else if (output->first != NULL) {
        begin_frame(output);
    } else {
        rc = begin_reply(output, scratch);
    }
    output->busy = rc == PD_OK;
    return rc;
}

int pd_output_next(pd_output *output, pd_reply_scratch *scratch, struct iovec *iov, int max, size_t most, int *n)
{
    size_t head;
    int rc;

    *n = 0;
    if (pd_output_empty(output)) return PD_OK;
    if (!output->busy && (rc = begin(output, scratch)) != PD_OK) return rc;
    head = output->head_bytes - output->head_sent;
    if (head > most) head = most;
    if (head > 0) iov[(*n)++] = (struct iovec){ output->head + output->head_sent, head };
    if (output->reply != NULL && !output->shared && output->head_sent + head == output->head_bytes)
        *n += payload_spans(&output->reply->wait, output->last_piece, output->piece, output->piece_sent, iov + *n,
                            max - *n, most - head);
    return PD_OK;
}

/* Counts n more sent bytes of the payload, and releases the references to weights of the pieces that are completely
 * sent. */
static void payload_sent(pd_output *output, pd_version_table *versions, uint64_t n)
{
    pd_wait *wait = &output->reply->wait;

    while (output->piece < wait->n) {
        pd_waiter *piece = &wait->at[output->piece];
        uint64_t bytes = data_bytes(piece) + padding_after(piece, output->piece == output->last_piece);
        uint64_t left = bytes - output->piece_sent;
        if (n < left) {
            output->piece_sent += n;
            return;
        }
        n -= left;
        pd_version_table_unref(versions, piece);
        output->piece++;
        output->piece_sent = 0;
    }
    assert(n == 0);
}

uint64_t pd_output_shared_bytes(const pd_output *output, size_t n)
{
    bool ends = output->shared && output->head_sent + n == output->head_bytes;

    return ends ? pd_reply_payload_bytes(&output->reply->wait) : 0;
}

/* Ends the frame that was being sent, and sets *done as pd_output_sent does. */
static void end_frame(pd_output *output, pd_version_table *versions, uint64_t now_ms, pd_pending **done)
{
    if (output->reply != NULL) output->held -= pd_pending_bytes(output->reply->wait.n);
    if (output->shared && PD_MUTANT(lent_unheld))
        payload_sent(output, versions, pd_reply_payload_bytes(&output->reply->wait));
    if (output->shared)
        pd_outstanding_add(&output->outstanding, output->reply, now_ms);
    else
        *done = output->reply;
    free(output->head_owned);
    output->head_owned = NULL;
    output->reply = NULL;
    output->busy = false;
}

bool pd_output_sent(pd_output *output, pd_version_table *versions, size_t n, uint64_t now_ms, pd_pending **done)
{
    size_t head = output->head_bytes - output->head_sent;

    *done = NULL;
    if (head > n) head = n;
    output->head_sent += head;
    if (output->head_sent < output->head_bytes) return false;
    if (output->reply != NULL && !output->shared) {
        payload_sent(output, versions, n - head);
        if (output->piece < output->reply->wait.n) return false;
    }
    end_frame(output, versions, now_ms, done);
    return true;
}

pd_pending *pd_output_clear(pd_output *output)
{
    pd_pending *replies = output->first_reply;

    free(output->head_owned);
    while (output->first != NULL) {
        begin_frame(output);
        free(output->head_owned);
    }
    if (output->reply != NULL) {
        output->reply->next_reply = replies;
        replies = output->reply;
    }
    if (output->outstanding.first != NULL) {
        output->outstanding.last->next_reply = replies;
        replies = output->outstanding.first;
    }
    memset(output, 0, sizeof *output);
    return replies;
}
