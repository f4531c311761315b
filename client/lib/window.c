/* window.c - the resend window: keeps the frames of this process's last steps until these steps are durable. */
#include "window.h"

#include <stdlib.h>
#include <utlist.h>

#include "pages.h"
#include "frame.h"
#include "hash.h"
#include "core.h"

/* The link of a free block in the list of spare blocks. It lies in the block's own first bytes. */
typedef struct pd_spare_block {
    struct pd_spare_block *prev, *next; /* prev of the first block: the last block */
    uint64_t bytes;
} pd_spare_block;

_Static_assert(sizeof(pd_spare_block) <= PD_LEAST_SPARE, "every block has room for its entry in the list");

static void take_block(pd_spare *spare, pd_spare_block *block)
{
    DL_DELETE(spare->blocks, block);
    spare->bytes -= block->bytes;
}

void *pd_spare_take(pd_spare *spare, uint64_t bytes)
{
    pd_spare_block *block = spare->blocks;

    while (block != NULL && block->bytes != bytes) block = block->next;
    if (block != NULL) take_block(spare, block);
    return block;
}

void pd_spare_give(pd_spare *spare, void *block, uint64_t bytes)
{
    pd_spare_block *entry = block;

    if (entry == NULL || bytes < PD_LEAST_SPARE) {
        free(block);
        return;
    }
    entry->bytes = bytes;
    DL_PREPEND(spare->blocks, entry);
    spare->bytes += bytes;
}

void pd_spare_shrink(pd_spare *spare, uint64_t most)
{
    while (spare->bytes > most) {
        pd_spare_block *oldest = spare->blocks->prev;

        take_block(spare, oldest);
        free(oldest);
    }
}

/* Returns whether the window keeps a frame. Without a window, worker states are still kept until their step is closed.
 * A restarted server has neither the push nor the worker state of an open step. The client sends the push again, since
 * it has no answer yet. The worker state was answered, so only the kept copy can be sent again. */
static bool is_kept(const pd_core *core, const pd_outgoing_frame *frame)
{
    return (core->window.steps > 0 || frame->method == PD_NOTE) && frame->op != NULL && frame->step > 0;
}

/* Returns the index of the parameter of piece number `i`. A worker state belongs to the first parameter of its push. */
static uint32_t param_of(const pd_outgoing_frame *frame, size_t i)
{
    size_t item = frame->method == PD_NOTE ? 0 : frame->pieces[i].item;

    return (uint32_t)frame->op->items[item].param;
}

/* The window and its spare memory together may exceed the highest number of bytes that the window had so far by this
 * number of bytes. So even a full window has spare memory of the last frames that have left it. */
#define EXTRA (UINT64_C(8) << 20)

/* Frees spare memory until the window, `coming` more bytes and the spare memory together have at most window->most +
 * EXTRA bytes. */
static void limit_spare(pd_window *window, uint64_t coming)
{
    uint64_t used = window->bytes + coming, most = window->most + EXTRA;

    pd_spare_shrink(&window->spare, used < most ? most - used : 0);
}

/* Allocates memory for the payload. Returns false if out of memory. */
static bool make_room(pd_window *window, pd_sent_frame *sent, uint64_t bytes)
{
    sent->payload_bytes = bytes;
    if (bytes == 0) return true;
    if ((sent->payload = pd_spare_take(&window->spare, bytes)) != NULL) return true;
    limit_spare(window, bytes);
    return (sent->payload = malloc(bytes)) != NULL;
}

static void begin_to_keep(pd_core *core, const pd_outgoing_frame *frame)
{
    size_t n = frame->method == PD_NOTE ? 1 : frame->n_pieces;
    pd_sent_frame *sent;

    if (!is_kept(core, frame)) return;
    if ((sent = pd_sent_frame_new(n, frame->head, frame->head_bytes)) == NULL) return;
    if (!make_room(&core->window, sent, frame->payload_bytes)) {
        pd_sent_frame_drop(sent);
        return;
    }
    sent->id = frame->id;
    sent->step = sent->settled = frame->step;
    sent->mark = frame->mark;
    sent->method = frame->method;
    sent->closes = frame->op->closes > 0;
    for (size_t i = 0; i < n; i++) sent->pieces[i].param = param_of(frame, i);
    core->window.coming = sent;
}

/* Begins the hash of the weights that an answer brings. A frame that is kept, or sent again, may be answered twice, and
 * the hashes of both answers are compared. If out of memory for the hash, the answers are not compared. */
static void begin_hash(pd_core *core, const pd_outgoing_frame *frame)
{
    pd_window *window = &core->window;

    if (frame->method != PD_PUSH_PULL || core->receive.message == NULL ||
        (window->coming == NULL && frame->source == NULL))
        return;
    if (window->hasher == NULL && (window->hasher = XXH3_createState()) == NULL) return;
    XXH3_64bits_reset(window->hasher);
    window->hashing = true;
}

void pd_window_expect(pd_core *core, pd_outgoing_frame *frame)
{
    pd_window_forget(core);
    core->window.frame = frame;
    begin_to_keep(core, frame);
    begin_hash(core, frame);
}

void pd_core_keep(const pd_core *core)
{
    const pd_outgoing_frame *frame = core->window.frame;
    uint8_t *to = core->window.coming != NULL ? core->window.coming->payload : NULL;

    if (to == NULL) return;
    for (size_t i = 0; i < frame->n_iov; to += frame->iov[i++].iov_len)
        pd_copy_bytes(to, frame->iov[i].iov_base, frame->iov[i].iov_len);
}

void pd_core_digest(pd_core *core, const void *weights, size_t n)
{
    if (core->window.hashing) XXH3_64bits_update(core->window.hasher, weights, n);
}

void pd_core_digest_end(pd_core *core)
{
    core->window.hashed = core->window.hashing;
    if (core->window.hashing) core->window.hash = XXH3_64bits_digest(core->window.hasher);
    core->window.hashing = false;
}

void pd_window_forget(pd_core *core)
{
    pd_sent_frame_drop(core->window.coming);
    core->window.coming = NULL;
    core->window.frame = NULL;
    core->window.hashing = false;
}

/* Returns the window's entry for a step; makes it if there is none. NULL: out of memory. */
static pd_window_step *list_of(pd_core *core, uint64_t step)
{
    pd_window_step **oldest = &core->window.oldest, *before = *oldest != NULL ? (*oldest)->prev : NULL, *made;

    while (before != NULL && before->step > step) before = before != *oldest ? before->prev : NULL;
    if (before != NULL && before->step == step) return before;
    if ((made = calloc(1, sizeof *made)) == NULL) return NULL;
    made->step = step;
    if (before != NULL)
        DL_APPEND_ELEM(*oldest, before, made);
    else
        DL_PREPEND(*oldest, made);
    return made;
}

static void remove_list(pd_core *core, pd_window_step *list)
{
    DL_DELETE(core->window.oldest, list);
    free(list);
}

/* Inserts a frame into the list of its step, in the order of ids. */
static void link_in(pd_window_step *list, pd_sent_frame *sent)
{
    pd_sent_frame *before = list->first != NULL ? list->first->prev : NULL;

    while (before != NULL && before->id > sent->id) before = before != list->first ? before->prev : NULL;
    if (before != NULL)
        DL_APPEND_ELEM(list->first, before, sent);
    else
        DL_PREPEND(list->first, sent);
}

/* Returns whether all parameters of a frame have since taken as many steps as the window keeps. */
static bool is_old(const pd_core *core, const pd_sent_frame *sent)
{
    uint64_t least = sent->step + core->window.steps;

    for (size_t i = 0; i < sent->n; i++)
        if (core->params[sent->pieces[i].param].step < least) return false;
    return !sent->closes || pd_core_steps_seen(core) >= least;
}

/* Notes in the parameters of a frame that leaves the window that the window no longer has the frame's step. */
static void note_gone(pd_core *core, const pd_sent_frame *sent)
{
    size_t n = sent->closes ? core->n_params : sent->n;

    for (size_t i = 0; i < n; i++) {
        pd_param_record *record = &core->params[sent->closes ? i : sent->pieces[i].param];
        if (record->kept_from <= sent->settled) record->kept_from = sent->settled + 1;
    }
}

/* Drops a frame that has left the window, and keeps the memory of its payload as spare memory. */
static void drop(pd_window *window, pd_sent_frame *sent)
{
    window->bytes -= sent->payload_bytes;
    pd_spare_give(&window->spare, sent->payload, sent->payload_bytes);
    limit_spare(window, 0);
    sent->payload = NULL;
    pd_sent_frame_drop(sent);
}

/* Returns the step before which the server does not go back. All shards of a cluster may go back together to a step
 * before the durable one of this shard. */
static uint64_t safe_step(const pd_core *core)
{
    const pd_core_progress *progress = &core->progress;

    return core->setup.shards > 1 && progress->common < progress->durable ? progress->common : progress->durable;
}

/* Drops the frames of a step that are durable or too old, and the step's entry if no frame is left. */
static void trim_list(pd_core *core, pd_window_step *list)
{
    for (pd_sent_frame *sent = list->first, *next; sent != NULL; sent = next) {
        next = sent->next;
        if (sent->again != NULL || (sent->settled > safe_step(core) && !is_old(core, sent))) continue;
        note_gone(core, sent);
        DL_DELETE(list->first, sent);
        drop(&core->window, sent);
    }
    if (list->first == NULL) remove_list(core, list);
}

void pd_window_trim(pd_core *core)
{
    uint64_t newest = core->window.oldest != NULL ? core->window.oldest->prev->step : 0;

    for (pd_window_step *list = core->window.oldest, *next; list != NULL; list = next) {
        next = list->next;
        if (list->step > safe_step(core) && list->step + core->window.steps > newest) return;
        trim_list(core, list);
    }
}

void pd_window_clear(pd_core *core)
{
    pd_window_forget(core);
    while (core->window.oldest != NULL) {
        pd_window_step *list = core->window.oldest;

        while (list->first != NULL) {
            pd_sent_frame *sent = list->first;
            DL_DELETE(list->first, sent);
            pd_sent_frame_drop(sent);
        }
        remove_list(core, list);
    }
    pd_spare_shrink(&core->window.spare, 0);
    core->window.bytes = core->window.most = 0;
}

/* Copies what the answer says about the frame to `sent`, which joins `list`. The frame that closes a step is answered
 * after the step's pushes, and the server needs it again wherever it needs one of them. */
static void note_answer(const pd_core *core, const pd_outgoing_frame *frame, const pd_window_step *list,
                        pd_sent_frame *sent)
{
    for (const pd_sent_frame *other = list->first; sent->closes && other != NULL; other = other->next)
        if (other->settled > sent->settled) sent->settled = other->settled;
    sent->comparable = pd_method_pushes(sent->method) && sent->step != core->window.changed;
    for (size_t i = 0; pd_method_pushes(sent->method) && i < sent->n; i++) {
        const Paramd__Outcome *outcome = core->receive.message->outcomes[i];
        pd_sent_piece *piece = &sent->pieces[i];

        piece->outcome = outcome->outcome;
        piece->update = outcome->update;
        piece->version = outcome->version;
        piece->bytes = frame->pieces[i].bytes;
        if (outcome->step != sent->step) sent->comparable = false;
    }
    if (pd_method_pushes(sent->method) && sent->step + core->receive.message->staleness > sent->settled)
        sent->settled = sent->step + core->receive.message->staleness;
    sent->hashed = core->window.hashed;
    sent->hash = core->window.hash;
}

void pd_window_take(pd_core *core, const pd_outgoing_frame *frame)
{
    pd_sent_frame *sent = core->window.coming;
    pd_window_step *list = sent != NULL ? list_of(core, sent->step) : NULL;

    if (!is_kept(core, frame)) return;
    if (list == NULL) {
        frame->op->gap = true;
        return;
    }
    core->window.coming = NULL;
    note_answer(core, frame, list, sent);
    link_in(list, sent);
    core->window.bytes += sent->payload_bytes;
    if (core->window.bytes > core->window.most) core->window.most = core->window.bytes;
    pd_window_trim(core);
}

void pd_window_free(pd_core *core)
{
    pd_window_clear(core);
    XXH3_freeState(core->window.hasher);
}

void pd_window_begin(pd_param_record *record)
{
    record->kept_from = record->step + 1;
    record->kept_to = record->step;
}

/* Notes that the window has all pushes of a parameter in this step. */
static void note_whole(pd_param_record *record, uint64_t step)
{
    if (step > record->kept_to + 1) record->kept_from = step;
    if (step > record->kept_to) record->kept_to = step;
}

void pd_window_note_done(pd_core *core, const pd_op *op)
{
    if (core->window.steps == 0 || op->gap || core->end.error.code != PD_OK || !pd_method_pushes(op->method)) return;
    for (size_t i = 0; i < op->n; i++) {
        if (op->items[i].outcome < 0) continue; /* refused: the window lacks a frame of this parameter */
        note_whole(&core->params[op->items[i].param], core->params[op->items[i].param].pushed);
    }
    for (size_t i = 0; op->closes > 0 && i < core->n_params; i++) {
        pd_param_record *record = &core->params[i];
        if (!record->pushing && record->pushed < op->closes) note_whole(record, op->closes);
    }
}

/* Returns whether the window has the last push of the parameter, and the last end of a step that named it. In a job
 * with open sets it then lacks nothing of what this process has seen since, however many steps these are: it has given
 * nothing to them, whether an answer to a push or to a pull has told of them. */
static bool has_last(const pd_core *core, const pd_param_record *record)
{
    return core->open_sets && record->kept_to >= record->pushed && record->kept_to >= core->progress.ended;
}

/* Returns whether this step of a parameter, or an earlier one, is under way. Then the window need not have all its
 * frames: those without an answer are in the queue. */
static bool is_under_way(const pd_core *core, const pd_param_record *record, uint64_t step)
{
    if (record->pushing && !record->preparing && record->pushed <= step && record->kept_to + 1 >= record->pushed)
        return true;
    return core->progress.closing > 0 && core->progress.closing <= step && record->pushed < core->progress.closing &&
           record->kept_to + 1 >= core->progress.closing;
}

void pd_window_changed(pd_core *core, uint64_t step)
{
    const pd_window_step *list = core->window.oldest;

    if (core->window.changed == step) return;
    core->window.changed = step;
    while (list != NULL && list->step != step) list = list->next;
    for (pd_sent_frame *sent = list != NULL ? list->first : NULL; sent != NULL; sent = sent->next)
        sent->comparable = false;
}

bool pd_window_may_change(const pd_core *core, const pd_sent_frame *sent)
{
    bool pushed = true;

    for (size_t i = 0; i < sent->n; i++) pushed = pushed && core->params[sent->pieces[i].param].pushed > sent->step;
    return core->window.changed > 0 && !pushed;
}

void pd_window_skip(const pd_core *core, pd_param_record *record, uint64_t step)
{
    if (has_last(core, record) && record->kept_to + 1 < step) record->kept_to = step - 1;
}

/* Returns the step for which the parameter's last push, or the end of the step that leaves it out, has ended with an
 * error, although the server has counted it since: it had closed the step of other parameters. The program goes on
 * with the next step then (pd_core_step), so nobody would send this one again. 0: there is none. Only in jobs with open
 * sets, where all parameters of a fragment have one step. */
static uint64_t given_up(const pd_core *core, const pd_param_record *record)
{
    uint64_t ended = core->progress.closing > 0 ? 0 : core->progress.ended;
    uint64_t step = record->pushed > ended ? record->pushed : ended;

    if (!core->open_sets || record->pushing || step <= record->kept_to ||
        step > pd_core_highest_step(core, record->fragment))
        return 0;
    return step;
}

bool pd_window_reaches(const pd_core *core, const pd_param_record *record, uint64_t *had, uint64_t *needed)
{
    uint64_t lost = given_up(core, record);

    *needed = record->step > record->server_step ? record->step - record->server_step : 0;
    *had = record->kept_to >= record->kept_from ? record->kept_to + 1 - record->kept_from : 0;
    if (lost > record->server_step && pd_has_elements(record)) {
        if (lost - record->server_step > *needed) *needed = lost - record->server_step;
        return false;
    }
    if (*needed == 0 || !pd_has_elements(record)) return true;
    if (core->window.steps == 0 || record->kept_from > record->server_step + 1) return false;
    return record->kept_to >= record->step || has_last(core, record) || is_under_way(core, record, record->step);
}
