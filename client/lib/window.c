/* window.c - keeps the frames of this process's last steps. */
#include "window.h"

#include "pages.h"
#include "frame.h"
#include "hash.h"
#include "parts.h"

#include <stdlib.h>

/* ---- keeping a frame ---- */

/* Returns whether the window keeps a frame. A note is kept without a window, too, until its step is closed: a server
 * that was started anew has neither the step's push nor its note, and of the two only the push, which has no answer, is
 * sent again without the window. */
static bool is_kept(const pd_core *core, const pd_outgoing_frame *frame)
{
    return (core->window.steps > 0 || frame->method == PD_NOTE) && frame->op != NULL && frame->step > 0;
}

/* Returns the parameter of tensor or chunk number `i`. A note belongs to the first parameter of its push. */
static uint32_t param_of(const pd_outgoing_frame *frame, size_t i)
{
    size_t item = frame->method == PD_NOTE ? 0 : frame->parts[i].item;

    return (uint32_t)frame->op->items[item].param;
}

/* Bytes of spare memory beyond the most that the window has needed. So a full window has spare memory, too: the memory
 * of the last frames that have left it, which may be of several sizes. */
#define EXTRA (UINT64_C(8) << 20)

/* Lets the window, with `coming` more bytes, and the spare memory together have no more bytes than the window needed
 * once, and EXTRA. */
static void limit_spare(pd_window *window, uint64_t coming)
{
    uint64_t used = window->bytes + coming, most = window->most + EXTRA;

    pd_spare_shrink(&window->spare, used < most ? most - used : 0);
}

/* Gives the past memory for its payload. Returns false if out of memory. */
static bool make_room(pd_window *window, pd_sent_frame *past, uint64_t bytes)
{
    past->payload_bytes = bytes;
    if (bytes == 0) return true;
    if ((past->payload = pd_spare_take(&window->spare, bytes)) != NULL) return true;
    limit_spare(window, bytes);
    return (past->payload = malloc(bytes)) != NULL;
}

static void begin_to_keep(pd_core *core, const pd_outgoing_frame *frame)
{
    size_t n = frame->method == PD_NOTE ? 1 : frame->n_parts;
    pd_sent_frame *past;

    if (!is_kept(core, frame)) return;
    if ((past = pd_sent_frame_new(n, frame->head, frame->head_bytes)) == NULL) return;
    if (!make_room(&core->window, past, frame->payload_bytes)) {
        pd_sent_frame_drop(past);
        return;
    }
    past->id = frame->id;
    past->step = frame->step;
    past->mark = frame->mark;
    past->method = frame->method;
    past->closes = frame->op->closes > 0;
    for (size_t i = 0; i < n; i++) past->parts[i].param = param_of(frame, i);
    core->window.coming = past;
}

/* Begins the hash of the weights that an answer brings. A frame that is kept, or sent again, may be answered twice, and
 * the hashes of both answers are compared. Without memory for the hash the answers are not compared. */
static void begin_hash(pd_core *core, const pd_outgoing_frame *frame)
{
    pd_window *window = &core->window;

    if (frame->method != PD_PUSH_PULL || core->reply == NULL || (window->coming == NULL && frame->past == NULL)) return;
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

/* ---- the list of steps ---- */

/* Returns the list of a step; makes it if there is none. NULL: out of memory. */
static pd_window_step *list_of(pd_core *core, uint64_t step)
{
    pd_window_step *before = core->window.newest, *made;

    while (before != NULL && before->step > step) before = before->prev;
    if (before != NULL && before->step == step) return before;
    if ((made = calloc(1, sizeof *made)) == NULL) return NULL;
    *made =
        (pd_window_step){ .step = step, .prev = before, .next = before != NULL ? before->next : core->window.oldest };
    if (made->next != NULL)
        made->next->prev = made;
    else
        core->window.newest = made;
    if (before != NULL)
        before->next = made;
    else
        core->window.oldest = made;
    return made;
}

static void remove_list(pd_core *core, pd_window_step *list)
{
    if (list->prev != NULL)
        list->prev->next = list->next;
    else
        core->window.oldest = list->next;
    if (list->next != NULL)
        list->next->prev = list->prev;
    else
        core->window.newest = list->prev;
    free(list);
}

/* Inserts a frame in the order of ids. */
static void link_in(pd_window_step *list, pd_sent_frame *past)
{
    pd_sent_frame *before = list->last;

    while (before != NULL && before->id > past->id) before = before->prev;
    past->prev = before;
    past->next = before != NULL ? before->next : list->first;
    if (past->next != NULL)
        past->next->prev = past;
    else
        list->last = past;
    if (before != NULL)
        before->next = past;
    else
        list->first = past;
}

static void link_out(pd_window_step *list, pd_sent_frame *past)
{
    if (past->prev != NULL)
        past->prev->next = past->next;
    else
        list->first = past->next;
    if (past->next != NULL)
        past->next->prev = past->prev;
    else
        list->last = past->prev;
}

/* ---- dropping old steps ---- */

static bool has_elements(const pd_param_record *known)
{
    return known->start < known->end;
}

/* Returns the lowest step among the parameters of which this rank has elements. */
static uint64_t lowest_step(const pd_core *core)
{
    uint64_t step = UINT64_MAX;

    for (size_t i = 0; i < core->n_params; i++)
        if (has_elements(&core->params[i]) && core->params[i].step < step) step = core->params[i].step;
    return step;
}

/* Returns whether all parameters of a frame have taken so many steps since that the window is full. */
static bool is_old(const pd_core *core, const pd_sent_frame *past)
{
    uint64_t least = past->step + core->window.steps;

    for (size_t i = 0; i < past->n; i++)
        if (core->params[past->parts[i].param].step < least) return false;
    return !past->closes || lowest_step(core) >= least;
}

/* Notes in the parameters of a frame which leaves the window that the window no longer has this step. */
static void note_gone(pd_core *core, const pd_sent_frame *past)
{
    size_t n = past->closes ? core->n_params : past->n;

    for (size_t i = 0; i < n; i++) {
        pd_param_record *known = &core->params[past->closes ? i : past->parts[i].param];
        if (known->kept_from <= past->step) known->kept_from = past->step + 1;
    }
}

/* Drops a frame that has left the window, and keeps the memory of its payload for another one. */
static void drop(pd_window *window, pd_sent_frame *past)
{
    window->bytes -= past->payload_bytes;
    pd_spare_give(&window->spare, past->payload, past->payload_bytes);
    limit_spare(window, 0);
    past->payload = NULL;
    pd_sent_frame_drop(past);
}

/* Drops the frames of a list that are durable or old, and the list itself if it is empty then. */
static void trim_list(pd_core *core, pd_window_step *list)
{
    for (pd_sent_frame *past = list->first, *next; past != NULL; past = next) {
        next = past->next;
        if (past->again != NULL || (list->step > core->durable && !is_old(core, past))) continue;
        note_gone(core, past);
        link_out(list, past);
        drop(&core->window, past);
    }
    if (list->first == NULL) remove_list(core, list);
}

void pd_window_trim(pd_core *core)
{
    uint64_t newest = core->window.newest != NULL ? core->window.newest->step : 0;

    for (pd_window_step *list = core->window.oldest, *next; list != NULL; list = next) {
        next = list->next;
        if (list->step > core->durable && list->step + core->window.steps > newest) return;
        trim_list(core, list);
    }
}

void pd_window_clear(pd_core *core)
{
    pd_window_forget(core);
    while (core->window.oldest != NULL) {
        pd_window_step *list = core->window.oldest;

        while (list->first != NULL) {
            pd_sent_frame *past = list->first;
            link_out(list, past);
            pd_sent_frame_drop(past);
        }
        remove_list(core, list);
    }
    pd_spare_shrink(&core->window.spare, 0);
    core->window.bytes = core->window.most = 0;
}

/* ---- what the window has ---- */

/* Notes what the answer says about the frame. */
static void note_answer(const pd_core *core, const pd_outgoing_frame *frame, pd_sent_frame *past)
{
    past->comparable = pd_method_pushes(past->method);
    for (size_t i = 0; past->comparable && i < past->n; i++) {
        const Paramd__Outcome *outcome = core->reply->outcomes[i];
        pd_sent_frame_part *part = &past->parts[i];

        part->outcome = outcome->outcome;
        part->update = outcome->update;
        part->version = outcome->version;
        part->bytes = frame->parts[i].bytes;
        if (outcome->step != past->step) past->comparable = false;
    }
    past->hashed = core->window.hashed;
    past->hash = core->window.hash;
}

void pd_window_take(pd_core *core, const pd_outgoing_frame *frame)
{
    pd_sent_frame *past = core->window.coming;
    pd_window_step *list = past != NULL ? list_of(core, past->step) : NULL;

    if (!is_kept(core, frame)) return;
    if (list == NULL) {
        frame->op->gap = true;
        return;
    }
    core->window.coming = NULL;
    note_answer(core, frame, past);
    link_in(list, past);
    core->window.bytes += past->payload_bytes;
    if (core->window.bytes > core->window.most) core->window.most = core->window.bytes;
    pd_window_trim(core);
}

void pd_window_free(pd_core *core)
{
    pd_window_clear(core);
    XXH3_freeState(core->window.hasher);
}

void pd_window_begin(pd_param_record *known)
{
    known->kept_from = known->step + 1;
    known->kept_to = known->step;
}

/* Notes that the window has all of this step of a parameter. */
static void note_whole(pd_param_record *known, uint64_t step)
{
    if (step > known->kept_to + 1) known->kept_from = step;
    if (step > known->kept_to) known->kept_to = step;
}

void pd_window_note_done(pd_core *core, const pd_op *op)
{
    if (core->window.steps == 0 || op->gap || core->ended.code != PD_OK || !pd_method_pushes(op->method)) return;
    for (size_t i = 0; i < op->n; i++) {
        if (op->items[i].outcome < 0) continue; /* refused: the window lacks a frame of this parameter */
        pd_param_record *known = &core->params[op->items[i].param];
        note_whole(known, known->pushed);
    }
    for (size_t i = 0; op->closes > 0 && i < core->n_params; i++)
        if (!core->params[i].pushing && core->params[i].pushed < op->closes) note_whole(&core->params[i], op->closes);
}

/* Returns whether a step that the window does not have whole is under way: its frames without an answer are in the
 * queue. */
static bool is_under_way(const pd_core *core, const pd_param_record *known, uint64_t step)
{
    return (known->pushing && known->pushed == step) || (core->closing == step && known->pushed < step);
}

bool pd_window_reaches(const pd_core *core, const pd_param_record *known, uint64_t *had, uint64_t *needed)
{
    *needed = known->step > known->there ? known->step - known->there : 0;
    *had = known->kept_to + 1 - known->kept_from;
    if (*needed == 0 || !has_elements(known)) return true;
    if (core->window.steps == 0 || known->kept_from > known->there + 1) return false;
    return known->kept_to >= known->step ||
           (known->kept_to + 1 == known->step && is_under_way(core, known, known->step));
}
