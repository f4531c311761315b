/* push.c - frames with data: what comes in a push is checked as a whole, then filed as a whole. */
#include "training.h"

#include "convert.h"
#include "kernels.h"
#include "plant.h"
#include "round_scalars.h"
#include "schedule.h"
#include "step_group.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

enum { SCAN_RANGE = 1 << 18 };
#define NS_PER_BYTE 0.25            /* to scan or to copy, of one core */

/* ---- buffers ---- */

static void hold(pd_job *job, const pd_request *frame)
{
    job->ranks[frame->rank].held += frame->u.data.buffer->charged;
    job->ranks[frame->rank].stalled = false;
    job->held += frame->u.data.buffer->charged;
    job->store->held += frame->u.data.buffer->charged;
    pd_reserve_settle(job, &job->ranks[frame->rank]);
}

static void send_home(pd_job *job, pd_request *frame)
{
    pd_buffer *buffer = frame->u.data.buffer;
    pd_effect *effect = pd_request_become(frame, PD_EFF_BUFFER, (pd_ticket){ buffer->conn, 0 }, job->number);

    effect->u.buffer = buffer;
    pd_effects_add(&job->store->outbox, effect);
}

void pd_job_let_go(pd_job *job, pd_request *frame)
{
    pd_buffer *buffer = frame->u.data.buffer;
    pd_rank *rank = &job->ranks[frame->rank];

    assert(buffer->refs > 0);
    if (--buffer->refs > 0) return;
    rank->held -= buffer->charged;
    if (rank->declared) buffer->conn = rank->conn;              /* the connection that has the rank now was told to count it */
    job->held -= buffer->charged;
    job->store->held -= buffer->charged;
    if (job->store->held <= job->store->config.ingest_bytes / 2) job->store->short_of_budget = false;
    pd_reserve_settle(job, rank);
    send_home(job, frame);
}

void pd_frame_finish(pd_job *job, pd_request *frame)
{
    if (frame->u.data.buffer != NULL) send_home(job, frame);
    else pd_request_free(frame);
}

void pd_job_keep(pd_job *job, pd_request *frame)
{
    job->look = true;
    if (frame->u.data.buffer != NULL && frame->u.data.buffer->refs > 0) {
        hold(job, frame);
        pd_request_slim(frame);
    } else {
        pd_frame_finish(job, frame);
    }
}

/* ---- hyperparameters sent with a push ---- */

const char *pd_fixed_hyper(const pd_row *row, uint64_t mask)
{
    size_t count;
    const pd_hyper *hypers = pd_row_hypers(row, &count);

    for (size_t i = 0; i < count; i++)
        if ((mask >> i & 1) != 0 && !hypers[i].per_step) return hypers[i].name;
    return NULL;
}

static int cannot_be_sent(const pd_row *row, const char *fixed, pd_error *err)
{
    return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s is fixed while the job runs: it cannot be sent with a push", fixed, pd_row_name(row));
}

static int read_hyper(pd_rule *rule, const pd_option *option, bool *known, pd_error *err)
{
    const pd_row *row = rule->hypers.row;
    const char *fixed;
    uint64_t mask = 0;
    pd_error why;
    int rc;

    if ((fixed = pd_fixed_hyper(row, pd_hypers_bits(row, option->name))) != NULL) return cannot_be_sent(row, fixed, err);
    if (pd_schedule_is_text(option->value))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%s of %s: a push brings a plain value, not a schedule: \"%.64s\"", option->name,
                       pd_row_name(row), option->value);
    rc = pd_hypers_set_which(&rule->pushed, option->name, option->value, &mask, &why);
    if (rc == PD_NOT_FOUND) return PD_OK;       /* another piece's row may have it */
    *known = true;
    if (rc != PD_OK) return pd_fail(err, PD_INVALID_ARGUMENT, "%.400s", why.text);
    if ((fixed = pd_fixed_hyper(row, mask)) != NULL) return cannot_be_sent(row, fixed, err);
    if ((rule->pushed_mask & mask) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.64s of %s stands twice in one push: give it one value", option->name, pd_row_name(row));
    rule->pushed_mask |= mask;
    return PD_OK;
}

/* Reads the frame's values for a rule, once a frame. known[i]: some row has hyperparameter i of the frame. */
static int read_hypers(pd_rule *rule, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err)
{
    if (rule->pushed_by == number) return PD_OK;
    rule->pushed_by = number;
    rule->pushed_mask = 0;
    rule->pushed = rule->hypers;
    for (size_t i = 0; i < frame->u.data.n_hypers; i++) {
        bool has = false;
        int rc = read_hyper(rule, &frame->u.data.hypers[i], &has, err);
        if (rc != PD_OK) return rc;
        if (has) *known |= (uint64_t)1 << i;
    }
    return PD_OK;
}

/* Against what others have sent for the same round. */
static int compare_hypers(const pd_param *param, uint32_t rank, pd_error *err)
{
    const pd_pushed *before = param->pushed;
    const pd_rule *rule = param->rule;
    size_t count;
    const pd_hyper *hypers = pd_row_hypers(rule->hypers.row, &count);
    uint64_t both = before->mask & rule->pushed_mask;
    char a[64], b[64];

    for (int h = 0; both != 0; h++, both >>= 1) {
        if ((both & 1) == 0 || before->hypers.value[h] == rule->pushed.value[h]) continue;
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: rank %u sent %s = %s for step %llu, rank %u sends %s: all ranks of a round "
                       "send the same", param->name,
                       before->rank[h], hypers[h].name, pd_hypers_text(&before->hypers, h, a, sizeof a),
                       (unsigned long long)param->step + 1, rank,
                       pd_hypers_text(&rule->pushed, h, b, sizeof b));
    }
    return PD_OK;
}

/* The values of the step to come: as declared or scheduled, with those sent for its round, and those of this frame. */
static pd_hypers merged_hypers(const pd_param *param)
{
    const pd_hypers *declared = &param->rule->hypers;
    pd_hypers merged = { .row = declared->row };

    pd_hypers_at(declared, pd_optim_count(param->optim), merged.value);
    for (int h = 0; h < PD_MAX_HYPERS; h++) {
        if (param->pushed->mask >> h & 1) merged.value[h] = param->pushed->hypers.value[h];
        if (param->rule->pushed_mask >> h & 1) merged.value[h] = param->rule->pushed.value[h];
    }
    return merged;
}

static int check_hypers(pd_param *param, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err)
{
    pd_error why;
    pd_hypers merged;
    int rc = read_hypers(param->rule, frame, number, known, err);

    if (rc != PD_OK || param->rule->pushed_mask == 0 || frame->u.data.step <= param->step) return rc;      /* closed: sent again */
    if (param->pushed == NULL && (param->pushed = calloc(1, sizeof *param->pushed)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "%.160s: out of memory for pushed hyperparameters", param->name);
    if ((rc = compare_hypers(param, frame->rank, err)) != PD_OK) return rc;
    merged = merged_hypers(param);
    pd_overrides_next(param, merged.value);              /* what an operator has set goes before it */
    if (pd_hypers_check_step(&param->rule->hypers, &merged, &why) != PD_OK) return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %.300s", param->name, why.text);
    return PD_OK;
}

static void keep_hypers(pd_param *param, uint32_t rank)
{
    uint64_t news = param->rule->pushed_mask;

    if (news == 0) return;
    param->pushed->hypers = merged_hypers(param);
    for (int h = 0; h < PD_MAX_HYPERS; h++)
        if ((news & ~param->pushed->mask) >> h & 1) param->pushed->rank[h] = rank;
    param->pushed->mask |= news;
}

static int all_known(const pd_request *frame, uint64_t known, pd_error *err)
{
    for (size_t i = 0; i < frame->u.data.n_hypers; i++)
        if ((known >> i & 1) == 0)
            return pd_fail(err, PD_INVALID_ARGUMENT, "no optimizer of this push's parameters has a hyperparameter %.64s",
                           frame->u.data.hypers[i].name);
    return PD_OK;
}

/* ---- checking a push ---- */

int pd_piece_check(const pd_param *param, const pd_piece *piece, const pd_request *frame, pd_error *err)
{
    pd_range range = pd_round_range(&param->round, frame->rank);
    int64_t chunk = param->round.chunk_elements;

    if (piece->count < 0 || piece->count != pd_range_piece(range.start, range.end, (uint64_t)chunk, (uint64_t)piece->first))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %lld elements from %lld on are not one piece: rank %u has elements %lld to %lld, cut at multiples of %lld",
                       param->name, (long long)piece->count, (long long)piece->first, frame->rank, (long long)range.start, (long long)range.end,
                       (long long)chunk);
    if (pd_dtype_size(piece->dtype) == 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: %d is no element type", param->name, (int)piece->dtype);
    if (piece->count > 0 && (piece->at == NULL || frame->u.data.buffer == NULL))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: the piece has no data", param->name);
    return PD_OK;
}

pd_param *pd_piece_param(const pd_job *job, const pd_piece *piece, pd_error *err)
{
    if (piece->param < job->n_params) return &job->params[piece->param];
    pd_fail(err, PD_INVALID_ARGUMENT, "job %.100s has %u parameters, there is no number %u", job->name, job->n_params, piece->param);
    return NULL;
}

pd_chunk *pd_piece_chunk(const pd_param *param, const pd_piece *piece)
{
    return &param->round.chunks[piece->first / param->round.chunk_elements];
}

int pd_piece_check_once(pd_param *param, const pd_piece *piece, uint64_t number, pd_error *err)
{
    bool named = param->mark == number;
    pd_chunk *chunk;

    if (named && (piece->absent || param->mark_absent))
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: a push says at most once that there is no gradient, and then brings none",
                       param->name);
    param->mark = number;
    param->mark_absent = piece->absent;
    if (piece->absent || (piece->count == 0 && !named)) return PD_OK;
    chunk = piece->count > 0 ? pd_piece_chunk(param, piece) : NULL;
    if (chunk == NULL || chunk->mark == number)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.160s: the piece at element %lld stands twice in one frame", param->name,
                       (long long)piece->first);
    chunk->mark = number;
    return PD_OK;
}

int pd_push_check_weights(const pd_job *job, const pd_param *param, pd_error *err)
{
    if (param->current != NULL) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s has no weights yet: %s with Init", param->name,
                   param->ranged ? "every rank sends those of its range" : pd_job_averages_init(job) ? "every rank sends them" : "rank 0 sends them");
}

int pd_push_check_step(const pd_job *job, const pd_param *param, uint64_t step, pd_error *err)
{
    if (step > param->step + 1)
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s: this push is for step %llu, expected step %llu: the rounds before are not "
                       "closed", param->name,
                       (unsigned long long)step, (unsigned long long)param->step + 1);
    if (step > job->drain_step)
        return pd_fail(err, PD_UNAVAILABLE, "%.160s: the server is draining and takes no contributions to step %llu any more", param->name,
                       (unsigned long long)step);
    return PD_OK;
}

/* What this rank has said of the open round before. */
static int check_earlier(const pd_param *param, const pd_piece *piece, uint32_t rank, pd_error *err)
{
    if (!param->round.open) return PD_OK;
    if (piece->absent && pd_round_has_given(&param->round, rank))
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s: rank %u has given a gradient for step %llu before and cannot be without one",
                       param->name, rank, (unsigned long long)param->step + 1);
    if (!piece->absent && pd_round_is_absent(&param->round, rank))
        return pd_fail(err, PD_FAILED_PRECONDITION, "%.160s: rank %u has said that it has no gradient for step %llu and cannot give one",
                       param->name, rank, (unsigned long long)param->step + 1);
    return PD_OK;
}

static int check_piece(const pd_job *job, const pd_piece *piece, const pd_request *frame, uint64_t number, uint64_t *known, pd_error *err)
{
    pd_param *param = pd_piece_param(job, piece, err);
    int rc;

    if (param == NULL) return PD_INVALID_ARGUMENT;
    if ((rc = pd_push_check_weights(job, param, err)) != PD_OK) return rc;
    if (!piece->absent && (rc = pd_piece_check(param, piece, frame, err)) != PD_OK) return rc;
    if ((rc = pd_piece_check_once(param, piece, number, err)) != PD_OK) return rc;
    if (frame->u.data.n_hypers > 0 && (rc = check_hypers(param, frame, number, known, err)) != PD_OK) return rc;
    if (frame->u.data.step <= param->step) return PD_OK;            /* closed: sent again */
    if ((rc = pd_push_check_step(job, param, frame->u.data.step, err)) != PD_OK) return rc;
    if ((rc = check_earlier(param, piece, frame->rank, err)) != PD_OK) return rc;
    return pd_weight_check(job, param, piece, frame, err);
}

/* `settled`: nothing that the rank has sent before is still to be looked at, so what it leaves out is known. */
static int check_push(pd_job *job, const pd_request *frame, bool settled, pd_error *err)
{
    uint64_t number = ++job->store->frames, known = 0;
    int rc;

    if (frame->u.data.step == 0) return pd_fail(err, PD_INVALID_ARGUMENT, "a push is for step 1 or later; rounds closed + 1");
    if (!(frame->u.data.weight >= 0 && isfinite(frame->u.data.weight)))
        return pd_fail(err, PD_INVALID_ARGUMENT, "a weight is a number of examples, 0 or more, not %g", frame->u.data.weight);
    if (frame->u.data.n_hypers > PD_MAX_OPTIONS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%zu hyperparameters in a push, at most %d are allowed", frame->u.data.n_hypers,
                       PD_MAX_OPTIONS);
    for (size_t i = 0; i < frame->u.data.n; i++) {
        rc = check_piece(job, &frame->u.data.pieces[i], frame, number, &known, err);
        if (rc != PD_OK) return rc;
    }
    if (frame->u.data.n > 0 && all_known(frame, known, err) != PD_OK) return PD_INVALID_ARGUMENT;
    if (frame->u.data.n_scalars > 0 && (rc = pd_scalars_admit(job, frame, err)) != PD_OK) return rc;
    return frame->u.data.close_step && settled ? pd_close_step_check(job, frame, number, err) : PD_OK;
}

/* ---- filing a push ---- */

static void list_chunk(pd_job *job, pd_chunk *chunk, bool complete)
{
    if (complete) {
        if (chunk->list == PD_CHUNK_PARTIAL) DL_DELETE(job->partial, chunk);
        DL_APPEND(job->complete, chunk);
        chunk->list = PD_CHUNK_COMPLETE;
    } else if (chunk->list == PD_CHUNK_NOWHERE && chunk->prefix > chunk->summed) {
        DL_APPEND(job->partial, chunk);
        chunk->list = PD_CHUNK_PARTIAL;
    }
}

/* Initial weights that are averaged can be taken back as long as a rank has not given all of its part (init.c). So chunks count as complete when the last
 * contribution to the parameter has come; before that only pressed ranks are summed. */
static void list_initial(pd_job *job, pd_param *param, pd_chunk *chunk)
{
    pd_round *round = &param->round;

    if (round->missing > 0) {
        list_chunk(job, chunk, false);
        return;
    }
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (round->chunks[c].summed < round->world) list_chunk(job, &round->chunks[c], true);
}

void pd_job_unlist_chunk(pd_job *job, pd_chunk *chunk)
{
    if (chunk->list == PD_CHUNK_PARTIAL) DL_DELETE(job->partial, chunk);
    if (chunk->list == PD_CHUNK_COMPLETE) DL_DELETE(job->complete, chunk);
    chunk->list = PD_CHUNK_NOWHERE;
}

/* Whether it is still missed by the deadline of its round. */
static void look_at_waiting(pd_job *job, pd_param *param)
{
    if (param->round.missing == 0 && !pd_param_may_be_held(job, param)) DL_DELETE2(job->waiting, param, prev_waiting, next_waiting);
}

void pd_job_file_slot(pd_job *job, pd_chunk *chunk, uint32_t rank, pd_slot slot, uint64_t now_ns)
{
    pd_param *param = chunk->param;
    pd_round *round = &param->round;
    bool complete;

    if (!round->open) {
        round->open = true;
        round->started_ns = now_ns;
        job->n_open++;
        DL_APPEND2(job->waiting, param, prev_waiting, next_waiting);
    }
    complete = pd_round_add(round, chunk, rank, slot);
    if (pd_is_collected(pd_param_how(param))) pd_collect_file(job, chunk);
    else if (param->current == NULL) list_initial(job, param, chunk);
    else list_chunk(job, chunk, complete);
    look_at_waiting(job, param);
}

void pd_job_list_chunks(pd_job *job, pd_param *param)
{
    pd_round *round = &param->round;
    bool was_complete = true;

    for (uint32_t c = 0; c < round->n_chunks; c++) {
        pd_chunk *chunk = &round->chunks[c];
        if (chunk->list == PD_CHUNK_COMPLETE || chunk->summed == round->world) continue;
        was_complete = false;
        list_chunk(job, chunk, chunk->came == round->world && (param->current != NULL || round->missing == 0));
    }
    if (!was_complete) look_at_waiting(job, param);
    job->look = true;
}

bool pd_push_file_absent(pd_job *job, pd_param *param, uint32_t rank, uint64_t now_ns)
{
    pd_round *round = &param->round;

    if (round->open && pd_round_is_absent(round, rank)) return false;
    for (uint32_t c = 0; c < round->n_chunks; c++)
        if (pd_chunk_heard(&round->chunks[c], rank) == PD_SLOT_EMPTY) pd_job_file_slot(job, &round->chunks[c], rank, (pd_slot){ .state = PD_SLOT_ABSENT }, now_ns);
    return true;
}

/* False: the rank has given it before. */
static bool file_gradient(pd_job *job, pd_param *param, const pd_piece *piece, pd_request *frame, uint64_t now_ns)
{
    pd_chunk *chunk = pd_piece_chunk(param, piece);

    if (pd_chunk_heard(chunk, frame->rank) != PD_SLOT_EMPTY) return false;
    frame->u.data.buffer->refs++;
    param->contributions++;
    job->contributions++;
    job->ranks[frame->rank].contributions++;
    pd_job_file_slot(job, chunk, frame->rank, (pd_slot){ .u.at = piece->at, .frame = frame, .state = PD_SLOT_HELD, .dtype = (uint8_t)piece->dtype }, now_ns);
    return true;
}

static void file_piece(pd_job *job, const pd_piece *piece, pd_request *frame, uint64_t now_ns)
{
    pd_param *param = &job->params[piece->param];
    bool news;

    if (pd_round_count_chunks(&param->round, frame->rank) == 0) return;         /* it has nothing of it, and is not waited for */
    news = (frame->u.data.step > param->step || PD_PLANTED(duplicate_counted)) &&
                (piece->absent ? pd_push_file_absent(job, param, frame->rank, now_ns) : file_gradient(job, param, piece, frame, now_ns));

    if (!news) job->duplicates++;
    else if (frame->u.data.n_hypers > 0) keep_hypers(param, frame->rank);
    if (frame->u.data.step > param->step) pd_weight_keep(job, param, piece, frame);
}

/* Takes the frame: its record stays as long as something of its buffer is held. */
static void file_push(pd_job *job, pd_request *frame, uint64_t now_ns)
{
    pd_rank *rank = &job->ranks[frame->rank];

    if (frame->u.data.buffer != NULL) frame->u.data.buffer->refs = 0;
    if (frame->u.data.step > rank->step) rank->step = frame->u.data.step;
    if (frame->u.data.n_scalars > 0) pd_scalars_file(job, frame);
    for (size_t i = 0; i < frame->u.data.n; i++) file_piece(job, &frame->u.data.pieces[i], frame, now_ns);
    if (frame->u.data.close_step) pd_close_step_file(job, frame, now_ns);
    pd_job_keep(job, frame);
    pd_store_touch(job->store, job, now_ns);
}

/* ---- the inbox ---- */

static void append_inbox(pd_job *job, pd_request *request)
{
    request->mail.next = NULL;
    if (job->inbox_last != NULL) job->inbox_last->mail.next = &request->mail;
    else job->inbox = request;
    job->inbox_last = request;
}

static pd_request *take_first(pd_job *job)
{
    pd_request *request = job->inbox;

    job->inbox = (pd_request *)(void *)request->mail.next;
    if (job->inbox == NULL) job->inbox_last = NULL;
    return request;
}

int pd_frame_may_come(pd_job *job, const pd_request *frame, pd_error *err)
{
    pd_rank *rank = pd_job_speaker(job, frame, err);

    if (rank == NULL) return err->code;
    if (!rank->declared)
        return pd_fail(err, PD_FAILED_PRECONDITION, "rank %u of job %.100s has not declared its parameters on this connection",
                       frame->rank, job->name);
    return PD_OK;
}

void pd_frame_refuse(pd_job *job, pd_request *frame, const pd_error *err)
{
    job->refused++;
    pd_store_refuse(job->store, frame, err);
}

/* Of a rank that may speak. */
static void refuse_push(pd_job *job, pd_request *frame, const pd_error *err)
{
    pd_close_step_note_refusal(job, frame);
    pd_frame_refuse(job, frame, err);
}

void pd_job_push(pd_job *job, pd_request *request, uint64_t now_ns)
{
    bool scanned = job->values.at[PD_JOB_KEY_NONFINITE] == PD_REJECT && (request->u.data.buffer != NULL || request->u.data.close_step);
    pd_error err;

    if (pd_frame_may_come(job, request, &err) != PD_OK) {
        pd_frame_refuse(job, request, &err);
    } else if (check_push(job, request, !scanned, &err) != PD_OK) {
        refuse_push(job, request, &err);
    } else if (scanned) {
        append_inbox(job, request);
        pd_store_touch(job->store, job, now_ns);
    } else {
        file_push(job, request, now_ns);
    }
}

/* ---- nonfinite = reject ---- */

static bool piece_finite(const pd_piece *piece, int threads)
{
    bool finite = true;
    (void)threads;
    #pragma omp parallel for schedule(dynamic) num_threads(threads) reduction(&&: finite) if(piece->count > SCAN_RANGE)
    for (int64_t first = 0; first < piece->count; first += SCAN_RANGE) {
        int64_t n = piece->count - first < SCAN_RANGE ? piece->count - first : SCAN_RANGE;
        const char *at = (const char *)piece->at + (size_t)first * pd_dtype_size(piece->dtype);
        finite = finite && pd_all_finite(at, piece->dtype, n);
    }
    return finite;
}

static int check_finite(const pd_job *job, const pd_request *frame, pd_error *err)
{
    for (size_t i = 0; i < frame->u.data.n; i++) {
        const pd_piece *piece = &frame->u.data.pieces[i];
        if (piece->absent || piece_finite(piece, job->store->config.threads)) continue;
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.100s: Encountered nan or inf values in the gradient, which job %.60s rejects (nonfinite = reject)! "
                       "To mitigate, check if nan inputs are being passed into the network or nan gradients are being passed to the optimizer; try a lower learning "
                       "rate, another schedule, a later start_preconditioning_step, clipping of gradients. Push again for step %llu",
                       job->params[piece->param].name, job->name, (unsigned long long)frame->u.data.step);
    }
    return PD_OK;
}

static void take_scanned(pd_job *job, pd_request *frame, uint64_t now_ns)
{
    pd_error err;

    if (pd_frame_may_come(job, frame, &err) != PD_OK) pd_frame_refuse(job, frame, &err);
    else if (check_finite(job, frame, &err) != PD_OK || check_push(job, frame, true, &err) != PD_OK) refuse_push(job, frame, &err);
    else file_push(job, frame, now_ns);
}

void pd_job_init(pd_job *job, pd_request *request, uint64_t now_ns)
{
    if (pd_job_averages_init(job)) pd_job_file_init(job, request, now_ns);
    else append_inbox(job, request);
    pd_store_touch(job->store, job, now_ns);
}

void pd_job_take_inbox(pd_job *job, uint64_t now_ns)
{
    double cost_ns = 0;

    while (job->inbox != NULL && cost_ns < job->store->config.batch_ns) {
        pd_request *request = take_first(job);
        cost_ns += request->u.data.buffer != NULL ? NS_PER_BYTE * (double)request->u.data.buffer->size : 0;
        if (request->kind == PD_REQ_INIT) job->init_ns = now_ns;
        if (request->kind == PD_REQ_INIT) pd_job_take_init(job, request);
        else take_scanned(job, request, now_ns);
    }
}
