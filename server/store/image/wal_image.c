/* wal_image.c - writes and reads the content of WAL records, except their aggregates, with one table of fields for both
 * directions. */
#include "wal_image.h"

#include "fragment_ranks.h"
#include "header_image.h"
#include "leases.h"
#include "override_command.h"
#include "ranks.h"
#include "worker_states.h"
#include "optimizer.h"
#include "param_image.h"
#include "step_group.h"
#include "mutant.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const pd_field input_fields[] = { PD_FIELD_IN(pd_step_input, outcome, 0, PD_REFUSED),
                                         PD_FIELD(pd_step_input, began),
                                         PD_FIELD_IN(pd_step_input, count, 0, INT64_MAX / 2),
                                         PD_FIELD(pd_step_input, hypers_mask),
                                         PD_FIELD(pd_step_input, hypers),
                                         { 0 } };
static const pd_table input_table = { "input", sizeof(pd_step_input), input_fields };

static const pd_field root_fields[] = {
    PD_FIELD(pd_taken_root, task), PD_FIELD(pd_taken_root, count), PD_FIELD(pd_taken_root, status), { 0 }
};
static const pd_table root_table = { "taken root", sizeof(pd_taken_root), root_fields };

static void visit_input(pd_archive *archive, const pd_param *param, pd_step_input *input, pd_taken_roots *taken)
{
    pd_archive_agree(archive, "parameter", param->name);
    pd_archive_fields(archive, &input_table, input);
    if (PD_MUTANT(record_forgets_roots) && !pd_archive_is_reading(archive)) taken->n = 0;
    pd_archive_count(archive, &taken->n, taken->room, 1);
    pd_archive_records(archive, &root_table, taken->at, taken->n);
}

/* Writes or reads which fragment has taken which step. Records of jobs with one fragment lack it: their number is that
 * of the step. */
static void visit_fragment(pd_archive *archive, pd_job *job, uint64_t number)
{
    pd_step_inputs *inputs = &job->steps.wal->inputs;
    bool reads = pd_archive_is_reading(archive), alone = job->steps.n_fragments == 1;
    uint32_t fragment = reads ? 0 : inputs->fragment->number;

    if (reads) inputs->step = number;
    if (!alone) {
        pd_archive_value(archive, &fragment);
        pd_archive_value(archive, &inputs->step);
    }
    if (pd_archive_status(archive) == PD_OK && fragment >= job->steps.n_fragments)
        pd_archive_fail(archive, PD_DATA_LOSS, "fragment %u of %u", fragment, job->steps.n_fragments);
    if (reads && pd_archive_status(archive) == PD_OK) inputs->fragment = &job->steps.fragments[fragment];
}

/* Writes or reads which atomic groups had a step that was refused on some shard. The other shards' tallies decide that,
 * so it does not follow from the aggregates. Only jobs whose steps are settled with other shards have it. */
static void visit_refusals(pd_archive *archive, const pd_steps *steps)
{
    for (size_t r = 0; steps->together.settle != NULL && r < steps->n_rules; r++) {
        pd_archive_value(archive, &steps->together.groups[r].refused);
        pd_archive_value(archive, &steps->together.groups[r].before_refusal);
    }
}

static bool is_of_record(const pd_job *job, uint32_t i)
{
    return job->steps.params[i].fragment == job->steps.wal->inputs.fragment;
}

void pd_wal_image_visit_inputs(pd_archive *archive, pd_job *job, uint64_t number)
{
    uint64_t there = number;

    pd_archive_enter(archive, "inputs");
    pd_archive_value(archive, &there);
    if (there != number)
        pd_archive_fail(archive, PD_DATA_LOSS, "the record is of step %" PRIu64 ", but its header of %" PRIu64, number,
                        there);
    visit_fragment(archive, job, number);
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++)
        if (is_of_record(job, i))
            visit_input(archive, &job->steps.params[i], &job->steps.wal->inputs.at[i],
                        &job->steps.wal->params[i].taken);
    if (pd_archive_status(archive) == PD_OK) visit_refusals(archive, &job->steps);
    pd_archive_leave(archive);
}

/* Counters of an optimizer after a step: `count` is the number of its steps, the others are those of pd_root_stats. A
 * replay compares them to check that the repeated step equals the original one. */
typedef struct course {
    int64_t count, due, adopted, failed, replaced, dropped;
} course;

static const pd_field course_fields[] = { PD_FIELD(course, count),
                                          PD_FIELD(course, due),
                                          PD_FIELD(course, adopted),
                                          PD_FIELD(course, failed),
                                          PD_FIELD(course, replaced),
                                          PD_FIELD(course, dropped),
                                          { 0 } };
static const pd_table course_table = { "course", sizeof(course), course_fields };

static void visit_course(pd_archive *archive, const pd_param *param)
{
    pd_root_stats stats = pd_optim_root_stats(param->optim);
    course
        here = { pd_optim_count(param->optim), stats.due, stats.adopted, stats.failed, stats.replaced, stats.dropped },
        there = here;

    pd_archive_fields(archive, &course_table, &there);
    if (pd_archive_status(archive) == PD_OK && memcmp(&here, &there, sizeof here) != 0)
        pd_archive_fail(archive, PD_DATA_LOSS,
                        "%.160s takes another course than it took: it has counted %lld steps and adopted %lld roots "
                        "(%lld failed), not %lld and %lld (%lld failed)",
                        param->name, (long long)here.count, (long long)here.adopted, (long long)here.failed,
                        (long long)there.count, (long long)there.adopted, (long long)there.failed);
}

/* Returns the rank's worker state for the record of step `step`: that of this step, or that of the step before, which
 * may have arrived too late for the record of its own step. NULL: there is none. */
static const pd_worker_state *note_for(const pd_rank *rank, uint64_t step)
{
    const pd_worker_state *note = pd_worker_states_find(rank, step);

    return note != NULL && note->step + 1 >= step ? note : NULL;
}

static void write_note(pd_archive *archive, const pd_rank *rank, uint64_t step)
{
    const pd_worker_state *note = note_for(rank, step);
    uint64_t of = note != NULL ? note->step : 0;
    size_t bytes = note != NULL ? note->bytes : 0;

    pd_archive_value(archive, &of);
    pd_archive_count(archive, &bytes, PD_WORKER_STATE_MAX, 1);
    if (bytes > 0) pd_archive_bytes(archive, note->at, bytes);
}

static void read_note(pd_archive *archive, pd_job *job, pd_rank *rank)
{
    uint64_t of = 0;
    size_t bytes = 0;
    uint8_t *at;
    pd_error err;

    pd_archive_value(archive, &of);
    pd_archive_count(archive, &bytes, PD_WORKER_STATE_MAX, 1);
    if (pd_archive_status(archive) != PD_OK || of == 0) return;
    if ((at = malloc(bytes + 1)) == NULL) {
        pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for a note of %zu bytes", bytes);
        return;
    }
    pd_archive_bytes(archive, at, bytes);
    if (pd_archive_status(archive) == PD_OK && pd_worker_states_put(job, rank, of, at, bytes, &err) != PD_OK)
        pd_archive_fail(archive, err.code, "%s", err.text);
    free(at);
}

static void visit_notes(pd_archive *archive, pd_job *job, uint64_t step)
{
    pd_archive_enter(archive, "notes");
    for (uint32_t r = 0; r < job->steps.members.ranks && pd_archive_status(archive) == PD_OK; r++) {
        if (pd_archive_is_reading(archive))
            read_note(archive, job, &job->ranks[r]);
        else
            write_note(archive, &job->ranks[r], step);
    }
    pd_archive_leave(archive);
}

void pd_wal_image_visit_rest(pd_archive *archive, pd_job *job)
{
    uint64_t step = job->steps.wal->inputs.step;

    pd_archive_enter(archive, "rest");
    for (uint32_t i = 0; i < job->steps.n_params && pd_archive_status(archive) == PD_OK; i++) {
        pd_param *param = &job->steps.params[i];
        if (!is_of_record(job, i)) continue;
        visit_course(archive, param);
        pd_param_image_visit_record(archive, &job->steps, param);
        if (pd_archive_status(archive) == PD_OK && param->saved.step != step)
            pd_archive_fail(archive, PD_DATA_LOSS, "%.160s is at step %" PRIu64 ", but the record is of step %" PRIu64,
                            param->name, param->saved.step, step);
    }
    if (pd_archive_is_reading(archive)) job->steps.progress.n_least = 0; /* the parameters have taken a step */
    if (pd_archive_status(archive) == PD_OK) pd_header_image_visit_state(archive, job);
    visit_notes(archive, job, step);
    pd_archive_leave(archive);
}

enum { MOST_DECISIONS = 1 << 24, MOST_COMMAND = 1 << 28 };

static const pd_field decision_fields[] = { PD_FIELD_IN(pd_decision, kind, 0, PD_DECISION_LEASE),
                                            PD_FIELD(pd_decision, param),
                                            PD_FIELD(pd_decision, step),
                                            { 0 } };
static const pd_table decision_table = { "decision", sizeof(pd_decision), decision_fields };

static const pd_field lease_fields[] = { PD_FIELD(pd_lease_change, number),
                                         PD_FIELD_IN(pd_lease_change, act, 0, PD_LEASE_END),
                                         PD_FIELD(pd_lease_change, rank),
                                         PD_FIELD(pd_lease_change, wants),
                                         { 0 } };
static const pd_table lease_table = { "lease change", sizeof(pd_lease_change), lease_fields };

static void write_decision(pd_archive *archive, pd_decision *decision, uint32_t ranks)
{
    size_t n_ranks = decision->counted != NULL ? ranks : 0;

    pd_archive_fields(archive, &decision_table, decision);
    pd_archive_count(archive, &decision->taken.n, MOST_DECISIONS, 1);
    pd_archive_records(archive, &root_table, decision->taken.at, decision->taken.n);
    pd_archive_count(archive, &n_ranks, PD_MAX_WORLD, 1);
    for (uint32_t r = 0; r < n_ranks; r++) {
        uint32_t counts = pd_counted_has(decision->counted, r) ? 1 + pd_counted_age(decision->counted, r) : 0;
        pd_archive_value(archive, &counts);
    }
    pd_archive_count(archive, &decision->command_bytes, MOST_COMMAND, 1);
    pd_archive_bytes(archive, decision->command, decision->command_bytes);
    if (decision->kind == PD_DECISION_LEASE) pd_archive_fields(archive, &lease_table, &decision->lease);
}

/* Writes the decisions of a list to the archive; if `archive` is NULL, only counts them. Returns their number. Leaves
 * out overrides that were read from records after a restart, because the checkpoint that the record follows has
 * them. */
static size_t write_list(pd_archive *archive, const pd_decision_list *list, uint32_t ranks)
{
    size_t n = 0;

    for (pd_decision *r = list->first; r != NULL; r = r->next) {
        if (r->override != NULL) continue;
        if (archive != NULL) write_decision(archive, r, ranks);
        n++;
    }
    return n;
}

static size_t write_all(pd_archive *archive, const pd_job *job)
{
    const pd_wal *wal = job->steps.wal;
    uint32_t ranks = job->steps.members.ranks;
    size_t n = write_list(archive, &wal->decisions.made, ranks);

    for (uint32_t i = 0; wal->decisions.renews && i < job->steps.n_params; i++)
        n += write_list(archive, &wal->params[i].read, ranks);
    return n;
}

/* What a record says of the ranks. */
typedef struct rank_news {
    uint32_t world, n; /* world: number of ranks of the job; n: number of those that have left or come back */
    uint64_t copied;   /* place of the last copy of the job's state before that */
    uint64_t barrier;  /* number of barriers that the job has passed */
} rank_news;

static const pd_field news_fields[] = {
    PD_FIELD(rank_news, world), PD_FIELD(rank_news, n), PD_FIELD(rank_news, copied), PD_FIELD(rank_news, barrier), { 0 }
};
static const pd_table news_table = { "ranks that have left", sizeof(rank_news), news_fields };

/* Writes which ranks have left, or have come back, since the last record. */
static void write_news(pd_archive *archive, const pd_job *job)
{
    rank_news news = { .world = job->steps.members.ranks,
                       .n = job->checkpointing.decisions.ranks,
                       .copied = job->checkpointing.decisions.copied,
                       .barrier = job->saved.barrier };

    pd_archive_fields(archive, &news_table, &news);
    for (uint32_t r = 0; r < news.world; r++) {
        bool left = job->ranks[r].saved.left;
        if (!job->ranks[r].news) continue;
        pd_archive_value(archive, &r);
        pd_archive_value(archive, &left);
    }
}

/* Reads what write_news has written. A state that was copied later has all of it, as has one of another number of
 * ranks. A rank that has left was past all barriers, so nobody waits for it at one of them. */
static void read_news(pd_archive *archive, pd_job *job)
{
    rank_news news = { 0 };
    bool holds;

    pd_archive_fields(archive, &news_table, &news);
    holds = news.world == job->steps.members.ranks && news.copied >= job->checkpointing.durable_place;
    for (uint32_t i = 0; i < news.n && pd_archive_status(archive) == PD_OK; i++) {
        uint32_t rank = 0;
        bool left = false;
        pd_archive_value(archive, &rank);
        pd_archive_value(archive, &left);
        if (rank >= news.world) pd_archive_fail(archive, PD_DATA_LOSS, "rank %u of %u has left", rank, news.world);
        if (holds && pd_archive_status(archive) == PD_OK) pd_rank_restore(job, rank, left);
    }
    if (holds && news.barrier > job->saved.barrier) job->saved.barrier = news.barrier;
}

void pd_wal_image_write_decisions(pd_archive *archive, const pd_job *job)
{
    bool news = job->checkpointing.decisions.ranks > 0;
    uint64_t floor = job->checkpointing.newest.step, of_course = job->saved.course;
    size_t n = write_all(NULL, job);

    pd_archive_enter(archive, "control");
    pd_archive_value(archive, &floor);
    pd_archive_count(archive, &n, MOST_DECISIONS, 1);
    (void)write_all(archive, job);
    if (of_course > 0 || news) pd_archive_value(archive, &of_course);
    if (news) write_news(archive, job);
    pd_archive_leave(archive);
}

static int read_ranks(pd_archive *archive, pd_decision *decision, size_t n, uint32_t ranks)
{
    if (n == 0) return PD_OK;
    if (n != ranks) return pd_archive_fail(archive, PD_DATA_LOSS, "a round of %zu ranks, but the job has %u", n, ranks);
    if ((decision->counted = pd_counted_new(ranks)) == NULL)
        return pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for the ranks of a round");
    for (uint32_t r = 0; r < ranks; r++) {
        uint32_t counts = 0; /* 1 + the age of the rank's contribution; 0: the rank does not count */
        pd_archive_value(archive, &counts);
        if (counts > 0) pd_counted_add(decision->counted, r, counts - 1);
    }
    return pd_archive_status(archive);
}

static int read_command(pd_archive *archive, pd_decision *decision, size_t n)
{
    if (n == 0) return PD_OK;
    if ((decision->command = malloc(n)) == NULL)
        return pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for a command");
    decision->command_bytes = n;
    pd_archive_bytes(archive, decision->command, n);
    return pd_archive_status(archive);
}

static int read_lease(pd_archive *archive, pd_decision *decision, uint32_t ranks)
{
    if (decision->kind != PD_DECISION_LEASE) return PD_OK;
    pd_archive_fields(archive, &lease_table, &decision->lease);
    if (pd_archive_status(archive) == PD_OK && (decision->lease.rank >= ranks || decision->param != 0))
        pd_archive_fail(archive, PD_DATA_LOSS, "leases of rank %u of %u, fragment %u", decision->lease.rank, ranks,
                        decision->param);
    return pd_archive_status(archive);
}

/* Reads the fields of a decision that follow its roots, and checks that the decision fits the job. */
static int read_rest(pd_archive *archive, pd_decision *decision, const pd_steps *steps)
{
    size_t n = 0;

    pd_archive_count(archive, &n, PD_MAX_WORLD, 1);
    if (pd_archive_status(archive) != PD_OK || read_ranks(archive, decision, n, steps->members.ranks) != PD_OK)
        return pd_archive_status(archive);
    pd_archive_count(archive, &n, MOST_COMMAND, 1);
    if (pd_archive_status(archive) != PD_OK || read_command(archive, decision, n) != PD_OK ||
        read_lease(archive, decision, steps->members.ranks) != PD_OK)
        return pd_archive_status(archive);
    if ((decision->kind == PD_DECISION_SET) == (decision->command != NULL) &&
        (decision->kind == PD_DECISION_ROUND) == (decision->counted != NULL) &&
        (decision->kind == PD_DECISION_ROOTS || decision->taken.n == 0))
        return PD_OK;
    return pd_archive_fail(archive, PD_DATA_LOSS, "a record of kind %d has parts of another kind", (int)decision->kind);
}

static int read_roots(pd_archive *archive, pd_decision **out, const pd_decision *head, const pd_steps *steps)
{
    size_t n = 0;

    pd_archive_count(archive, &n, MOST_DECISIONS, 1);
    if (pd_archive_status(archive) == PD_OK &&
        (head->param >= steps->n_params || n > pd_optim_most_taken(steps->params[head->param].optim)))
        pd_archive_fail(archive, PD_DATA_LOSS, "%zu roots of parameter %u of %u", n, head->param, steps->n_params);
    if (pd_archive_status(archive) != PD_OK) return pd_archive_status(archive);
    if ((*out = pd_decision_new(head->kind, head->param, head->step, n)) == NULL)
        return pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for a record");
    pd_archive_records(archive, &root_table, (*out)->taken.at, n);
    return pd_archive_status(archive);
}

/* Hands a decision from a record to the job. A command becomes one decision for each of its parameters. Takes ownership
 * of the decision. */
static int take_decision(pd_archive *archive, pd_job *job, pd_decision *decision)
{
    pd_error err;
    int rc;

    if (decision->kind != PD_DECISION_SET) {
        bool joins = decision->kind == PD_DECISION_LEASE && decision->lease.act == PD_LEASE_JOIN;
        pd_wal_add_read(&job->steps, decision);
        if (!joins || pd_leases_reserve(&job->steps) == PD_OK) return PD_OK;
        return pd_archive_fail(archive, PD_NO_MEMORY, "out of memory for the leases of a rank");
    }
    /* The restored state contains the effect of each command that came before its checkpoint. */
    rc = decision->step < job->checkpointing.durable_place
             ? PD_OK
             : pd_job_set_again(job, decision->command, decision->command_bytes, &err);
    pd_decision_free(decision);
    return rc == PD_OK ? rc : pd_archive_fail(archive, rc, "%s", err.text);
}

static int read_decision(pd_archive *archive, pd_job *job)
{
    pd_decision head = { 0 }, *decision = NULL;

    pd_archive_fields(archive, &decision_table, &head);
    if (pd_archive_status(archive) == PD_OK && read_roots(archive, &decision, &head, &job->steps) == PD_OK &&
        read_rest(archive, decision, &job->steps) == PD_OK)
        return take_decision(archive, job, decision);
    pd_decision_free(decision);
    return pd_archive_status(archive);
}

/* Reads the course that the job had when the record was made, and what the record says of ranks; records lack both if
 * the one is 0 and the other nothing. If the job has taken another course since, drops the decisions read so far, which
 * are all from before. */
static void read_end(pd_archive *archive, pd_job *job)
{
    uint64_t of_course = 0;

    if (pd_archive_status(archive) == PD_OK && pd_archive_has_more(archive)) pd_archive_value(archive, &of_course);
    if (of_course < job->saved.course) pd_wal_forget_course(&job->steps);
    if (pd_archive_status(archive) == PD_OK && pd_archive_has_more(archive)) read_news(archive, job);
}

void pd_wal_image_read_decisions(pd_archive *archive, pd_job *job)
{
    uint64_t floor = 0;
    size_t n = 0;

    pd_archive_enter(archive, "control");
    pd_archive_value(archive, &floor);
    pd_archive_count(archive, &n, MOST_DECISIONS, 1);
    if (pd_archive_status(archive) == PD_OK && floor > job->checkpointing.newest.step)
        pd_archive_fail(archive, PD_FAILED_PRECONDITION,
                        "decisions after the checkpoint of step %" PRIu64
                        ", but the job was restored from that of step "
                        "%" PRIu64,
                        floor, job->checkpointing.newest.step);
    for (size_t i = 0; i < n && pd_archive_status(archive) == PD_OK; i++) (void)read_decision(archive, job);
    read_end(archive, job);
    if (pd_archive_status(archive) == PD_OK) pd_leases_read(&job->steps);
    job->checkpointing.decisions.read += n;
    pd_archive_leave(archive);
}
