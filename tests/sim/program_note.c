/* program_note.c - what a process does in plans with crashes: it gives each step a note, recalls it, goes back with the
 * server, and waits for a durable last step before it leaves. */
#include "program.h"

#include "relaunch.h"
#include "recoveries.h"
#include "sim_judge.h"

#include <stdlib.h>
#include <string.h>

enum { SYNC_MS = 2000 }; /* most time that the server waits for a checkpoint */
enum { NOTES = 4 };      /* notes of a rank that the server keeps */

uint64_t sim_least_step(const sim_worker *w)
{
    uint64_t least = UINT64_MAX;

    for (uint32_t p = 0; p < w->job->n_params; p++) {
        uint64_t step = pd_core_step(w->core, p);
        if (step < least) least = step;
    }
    return least;
}

uint64_t sim_most_step(const sim_worker *w)
{
    uint64_t most = 0;

    for (uint32_t p = 0; p < w->job->n_params; p++) {
        uint64_t step = pd_core_step(w->core, p);
        if (step > most) most = step;
    }
    return most;
}

bool sim_program_take(sim_worker *w, pd_ticket_id ticket, int *rc, uint8_t **reply, size_t *bytes, pd_error *err)
{
    uint8_t *answer;
    size_t n;

    if (!pd_core_done(w->core, ticket)) return false;
    *rc = pd_core_finish(w->core, ticket, &answer, &n, err);
    if (reply != NULL) {
        *reply = answer;
        *bytes = n;
    } else {
        free(answer);
    }
    return true;
}

sim_program_note sim_note_of(const sim_worker *w, uint64_t step)
{
    sim_program_note note;

    memset(&note, 0, sizeof note);
    note.job = w->job->number;
    note.rank = w->rank;
    note.step = step;
    return note;
}

void sim_program_recall(sim_worker *w)
{
    pd_error err;

    if (pd_core_get_worker_state(w->core, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, RECALL);
}

/* Returns the last step up to `step` in which this rank pushed something. A step that it only closes has no note. */
static uint64_t noted_step(const sim_worker *w, uint64_t step)
{
    for (; step > 0; step--)
        for (uint32_t p = 0; p < w->job->n_params; p++)
            if (!sim_closes_step(w, step) || sim_has_gradient(w->job, w->rank, step, p)) return step;
    return 0;
}

/* Returns whether the rank may have no note of this step, but an older one (`got`; 0: none). Either the job has gone on
 * without the rank, or with it as a new rank, since. Or the parameters are so far apart, because steps were repeated,
 * that the server has room for the notes of the later steps alone, and for that of the checkpoint which it makes. */
static bool may_lack_note(const sim_worker *w, uint64_t step, uint64_t got)
{
    if (sim_most_step(w) - sim_least_step(w) + 1 >= NOTES) return true;
    return got == 0 && w->rank >= sim_least_world(w->s, w->job) && step <= sim_judge_changed(w->s, w->job);
}

/* Checks that the note is that of the step with which this process goes on. Returns false if it is newer: a round has
 * closed since this process got weights, with what an earlier process of the rank had pushed. */
static bool check_note(const sim_worker *w, const uint8_t *reply, size_t header)
{
    uint64_t least = noted_step(w, sim_least_step(w));
    sim_program_note expected = sim_note_of(w, least), got = { 0 };
    pd_arena *arena = sim_must(pd_arena_new(PD_ARENA_BUDGET));
    const Paramd__RecallReply *note;
    void *message;
    pd_error err;

    if (pd_reply_unpack(arena, PD_RECALL, reply, header, &message, &err) != PD_OK) sim_fail("harness", "%s", err.text);
    note = message;
    if (note->bytes == sizeof got) memcpy(&got, reply + header, sizeof got);
    if (note->step > least) {
        pd_arena_free(arena);
        return false;
    }
    /* Steps of a job with open sets go on without this rank: its last note may be of an earlier one. */
    if (note->step < least && (w->job->open.on || may_lack_note(w, least, note->step))) {
        pd_arena_free(arena);
        return true;
    }
    if (note->step != least || (least > 0 && memcmp(&got, &expected, sizeof got) != 0))
        sim_fail("durability",
                 "%s rank %u expects the note of step %llu, and gets the note of step %llu, in which it wrote that it "
                 "is of step %llu (%llu bytes)",
                 w->job->name, w->rank, (unsigned long long)least, (unsigned long long)note->step,
                 (unsigned long long)got.step, (unsigned long long)note->bytes);
    pd_arena_free(arena);
    return true;
}

void sim_program_on_recalled(sim_worker *w)
{
    uint8_t *reply;
    size_t header;
    pd_error err;
    int rc;

    if (!sim_program_take(w, w->ticket, &rc, &reply, &header, &err)) return;
    w->rank = w->core->setup.rank; /* another one if the process has connected again, and the server chooses ranks */
    if (rc == PD_OK && check_note(w, reply, header))
        sim_program_go_on(w, STEP);
    else if (rc == PD_OK)
        sim_program_rest(w, FETCH, "its note is newer than its weights");
    else if (rc == PD_RESOURCE_EXHAUSTED || rc == PD_NO_MEMORY || rc == PD_DEADLINE_EXCEEDED)
        sim_program_rest(w, RECALL, err.text);
    else
        sim_worker_end_refused(w, rc, err.text);
    free(reply);
}

/* Frees the tickets of all that was under way when the server went back. */
static void forget_calls(sim_worker *w)
{
    pd_error err;
    int rc;

    for (size_t c = 0; c < w->n_calls; c++)
        if (w->calls[c].ticket != 0) sim_program_take(w, w->calls[c].ticket, &rc, NULL, NULL, &err);
    if (w->ticket != 0) sim_program_take(w, w->ticket, &rc, NULL, NULL, &err);
    if (w->meeting != 0) sim_program_take(w, w->meeting, &rc, NULL, NULL, &err);
    if (w->meeting != 0) w->has_met = false;
    w->n_calls = 0;
    w->ticket = w->meeting = w->changed = 0;
    w->close_ns = w->alarm_ns = 0;
    w->finite = false;
}

void sim_program_go_back(sim_worker *w)
{
    pd_error err;

    sim_worker_trace(w, w->core->end.error.text, w->step, 0);
    w->rank = w->core->setup.rank;
    if (w->changed == w->step && sim_replaces(w->job, w->step - 1) != 0)
        w->began = w->step; /* the server may have lost changed weights that it had taken: no window has them */
    forget_calls(w);
    sim_rests_free(&w->rests);
    memset(w->versions, 0, sizeof w->versions);
    if (pd_core_rewind(w->core, &w->ticket, &err) != PD_OK) {
        sim_worker_end_refused(w, err.code, err.text);
        return;
    }
    w->reached = 0;
    sim_program_go_on(w, REWINDING);
}

/* Returns whether the server refuses a gradient of the worker's step at first, because it is infinite. The window lacks
 * it until the program has pushed a finite one. */
static bool has_refused_gradient(const sim_worker *w)
{
    bool infinite = false;

    for (uint32_t p = 0; p < w->job->n_params && w->job->rejects; p++)
        infinite = infinite || sim_gradient_is_infinite(w->job, w->rank, w->step, p);
    return infinite;
}

/* Checks that the server's step is out of reach of the window: otherwise the client should have sent its pushes again,
 * and the program should have seen nothing. */
static void check_window(const sim_worker *w)
{
    uint64_t least = sim_least_step(w);
    uint32_t window = w->job->window[w->place];

    if (window > 0 && !w->job->open.on && least >= w->began && w->step <= least + window && !has_refused_gradient(w))
        sim_fail(
            "durability",
            "%s rank %u must go back from step %llu to %llu, though it keeps its last %u pushes, from step %llu on",
            w->job->name, w->rank, (unsigned long long)w->step, (unsigned long long)least, window,
            (unsigned long long)w->began + 1);
}

void sim_program_on_rewound(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!sim_program_take(w, w->ticket, &rc, NULL, NULL, &err)) return;
    if (rc != PD_OK) {
        sim_worker_end_refused(w, rc, err.text);
        return;
    }
    check_window(w);
    w->began = UINT64_MAX;
    w->was_late = false;
    sim_worker_trace(w, "is back", sim_least_step(w), 0);
    sim_program_fetch(w);
}

void sim_program_sync(sim_worker *w)
{
    pd_error err;

    if (pd_core_checkpoint(w->core, w->job->steps, SYNC_MS, &w->ticket, &err) != PD_OK)
        sim_worker_end_refused(w, err.code, err.text);
    else
        sim_program_go_on(w, SYNC);
}

void sim_program_on_synced(sim_worker *w)
{
    pd_error err;
    int rc;

    if (!sim_program_take(w, w->ticket, &rc, NULL, NULL, &err)) return;
    if (rc == PD_OK)
        sim_program_leave(w);
    else if (rc == PD_UNAVAILABLE || rc == PD_DEADLINE_EXCEEDED || rc == PD_RESOURCE_EXHAUSTED)
        sim_program_rest(w, SYNC, err.text); /* the disk has failed */
    else
        sim_worker_end_refused(w, rc, err.text);
}
