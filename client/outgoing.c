#include "outgoing.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

pd_parcel *pd_parcel_new(uint8_t *head, size_t head_bytes, const pd_part *parts, size_t n_parts, const struct iovec *iov, size_t n_iov)
{
    pd_parcel *parcel = calloc(1, sizeof *parcel + n_parts * sizeof *parts + n_iov * sizeof *iov);

    if (parcel == NULL) {
        free(head);
        return NULL;
    }
    parcel->head = head;
    parcel->head_bytes = head_bytes;
    parcel->parts = (pd_part *)(parcel + 1);
    parcel->n_parts = n_parts;
    parcel->iov = (struct iovec *)(parcel->parts + n_parts);
    parcel->n_iov = n_iov;
    if (n_parts > 0) memcpy(parcel->parts, parts, n_parts * sizeof *parts);
    if (n_iov > 0) memcpy(parcel->iov, iov, n_iov * sizeof *iov);
    for (size_t i = 0; i < n_iov; i++) parcel->payload_bytes += iov[i].iov_len;
    return parcel;
}

void pd_parcel_free(pd_parcel *parcel)
{
    if (parcel == NULL) return;
    free(parcel->head);
    free(parcel);
}

/* Out of memory shows as an entry that is in no table. */
#undef uthash_nonfatal_oom
#define uthash_nonfatal_oom(parcel) ((parcel)->hh.tbl = NULL)

bool pd_outgoing_add(pd_outgoing *out, pd_parcel *parcel, pd_lane lane)
{
    HASH_ADD(hh, out->by_id, id, sizeof parcel->id, parcel);
    if (parcel->hh.tbl == NULL) return false;
    parcel->lane = lane;
    parcel->next = NULL;
    parcel->prev = out->lane[lane].last;
    if (parcel->prev != NULL) parcel->prev->next = parcel;
    else out->lane[lane].first = parcel;
    out->lane[lane].last = parcel;
    if (out->lane[lane].next == NULL) out->lane[lane].next = parcel;
    return true;
}

pd_parcel *pd_outgoing_find(const pd_outgoing *out, uint64_t id)
{
    pd_parcel *parcel;
    HASH_FIND(hh, out->by_id, &id, sizeof id, parcel);
    return parcel;
}

/* Some of its bytes have gone, not all. */
static bool half_sent(const pd_outgoing *out, const pd_parcel *parcel)
{
    return out->gone > 0 && out->lane[out->current].next == parcel;
}

static void take_out(pd_outgoing *out, pd_parcel *parcel)
{
    pd_lane lane = parcel->lane;

    assert(!parcel->lent);
    if (out->lane[lane].next == parcel) out->lane[lane].next = parcel->next;
    if (parcel->prev != NULL) parcel->prev->next = parcel->next;
    else out->lane[lane].first = parcel->next;
    if (parcel->next != NULL) parcel->next->prev = parcel->prev;
    else out->lane[lane].last = parcel->prev;
    HASH_DELETE(hh, out->by_id, parcel);
    pd_parcel_free(parcel);
}

bool pd_outgoing_retire(pd_outgoing *out, pd_parcel *parcel)
{
    parcel->answered = parcel->lent || half_sent(out, parcel);
    if (parcel->answered) return false;
    take_out(out, parcel);
    return true;
}

void pd_outgoing_remove(pd_outgoing *out, pd_parcel *parcel)
{
    parcel->op = NULL;
    pd_outgoing_retire(out, parcel);
}

void pd_outgoing_retire_all(pd_outgoing *out)
{
    for (pd_lane lane = 0; lane < PD_LANES; lane++) {
        for (pd_parcel *parcel = out->lane[lane].first, *next; parcel != NULL; parcel = next) {
            next = parcel->next;
            if (!parcel->lent && half_sent(out, parcel)) out->gone = 0;         /* the rest of it will not go either */
            pd_outgoing_retire(out, parcel);
        }
    }
}

/* ---- sending ---- */

/* A frame once begun is finished; else the connection's own go first. */
static pd_parcel *choose(pd_outgoing *out, pd_lane *lane)
{
    if (out->gone > 0) *lane = out->current;
    else if (out->lane[PD_LANE_CONNECTION].next != NULL) *lane = PD_LANE_CONNECTION;
    else *lane = PD_LANE_LASTING;
    return *lane == PD_LANE_CONNECTION || out->open ? out->lane[*lane].next : NULL;
}

/* What is left of a frame after `skip` bytes. */
static int gather_one(const pd_parcel *parcel, size_t skip, struct iovec *iov, int max, size_t *bytes)
{
    int n = 0;

    for (size_t i = 0; i <= parcel->n_iov && n < max; i++) {
        struct iovec part = i == 0 ? (struct iovec){ parcel->head, parcel->head_bytes } : parcel->iov[i - 1];
        size_t cut = skip < part.iov_len ? skip : part.iov_len;

        skip -= cut;
        if (cut == part.iov_len) continue;
        iov[n++] = (struct iovec){ (uint8_t *)part.iov_base + cut, part.iov_len - cut };
        *bytes += part.iov_len - cut;
    }
    return n;
}

int pd_outgoing_gather(pd_outgoing *out, struct iovec *iov, int max, size_t bytes)
{
    pd_lane lane;
    pd_parcel *parcel = choose(out, &lane);
    bool yields = lane == PD_LANE_LASTING && out->lane[PD_LANE_CONNECTION].next != NULL;
    size_t skip = out->gone, gathered = 0;
    int n = 0;

    assert(out->lent == 0);
    out->current = lane;
    for (; parcel != NULL && n < max && gathered < bytes; parcel = parcel->next, skip = 0) {
        n += gather_one(parcel, skip, iov + n, max - n, &gathered);
        parcel->lent = true;
        out->lent++;
        if (yields) break;
    }
    return n;
}

/* A frame that was retired before its bytes had left. */
static void leave(pd_outgoing *out, pd_parcel *parcel, pd_parcel_done *done, void *arg)
{
    if (parcel->op != NULL) done(arg, parcel);
    take_out(out, parcel);
}

/* Counts n bytes of the lent frames as gone. */
static void advance(pd_outgoing *out, size_t n, pd_parcel_done *done, void *arg)
{
    while (n > 0) {
        pd_parcel *parcel = out->lane[out->current].next;
        size_t left;

        assert(out->lent > 0 && parcel->lent);
        left = parcel->head_bytes + parcel->payload_bytes - out->gone;
        if (n < left) {
            out->gone += n;
            return;
        }
        n -= left;
        out->gone = 0;
        out->lane[out->current].next = parcel->next;
        parcel->sent = true;
        parcel->lent = false;
        out->lent--;
        if (parcel->answered) leave(out, parcel, done, arg);
    }
}

void pd_outgoing_sent(pd_outgoing *out, size_t n, pd_parcel_done *done, void *arg)
{
    pd_parcel *parcel, *next;

    advance(out, n, done, arg);
    parcel = out->lane[out->current].next;
    for (; out->lent > 0; out->lent--, parcel = next) {
        next = parcel->next;
        parcel->lent = false;
        if (parcel->answered && !half_sent(out, parcel)) leave(out, parcel, done, arg);
    }
}

bool pd_outgoing_pending(const pd_outgoing *out)
{
    return out->gone > 0 || out->lane[PD_LANE_CONNECTION].next != NULL || (out->open && out->lane[PD_LANE_LASTING].next != NULL);
}

/* ---- the connection's end ---- */

static void take_back(pd_outgoing *out)
{
    for (pd_parcel *parcel = out->lane[out->current].next; out->lent > 0; out->lent--, parcel = parcel->next) parcel->lent = false;
    out->gone = 0;
}

size_t pd_outgoing_rewind(pd_outgoing *out, pd_parcel_done *done, void *arg)
{
    size_t again = 0;

    take_back(out);
    out->open = false;
    while (out->lane[PD_LANE_CONNECTION].first != NULL) take_out(out, out->lane[PD_LANE_CONNECTION].first);
    for (pd_parcel *parcel = out->lane[PD_LANE_LASTING].first, *next; parcel != NULL; parcel = next) {
        next = parcel->next;
        if (parcel->sent) again++;
        parcel->sent = false;
        if (parcel->answered) leave(out, parcel, done, arg);
    }
    out->lane[PD_LANE_LASTING].next = out->lane[PD_LANE_LASTING].first;
    return again;
}

void pd_outgoing_clear(pd_outgoing *out)
{
    take_back(out);
    for (pd_lane lane = 0; lane < PD_LANES; lane++)
        while (out->lane[lane].first != NULL) take_out(out, out->lane[lane].first);
}
