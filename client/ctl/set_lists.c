/* set_lists.c - runs the commands rounds and members: which step a job collects, whom it waits for, and how often each
 * worker counts. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "connection.h"
#include "format.h"
#include "list_table.h"
#include "result.h"

static void state_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RoundInfo *round = entry;
    char left[PD_CELL];

    (void)column;
    if (strcmp(round->state, "grace") != 0)
        pd_table_cell(table, "%s", round->state);
    else if (round->hasty > 0)
        pd_table_cell(table, "grace %s (rank %u)", pd_duration_text(left, round->left_ms), round->hasty - 1);
    else
        pd_table_cell(table, "grace %s", pd_duration_text(left, round->left_ms));
}

static void whole_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RoundInfo *round = entry;

    (void)column;
    pd_table_cell(table, "%u/%u", round->whole, round->expected);
}

static void since_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RoundInfo *round = entry;
    char since[PD_CELL];

    (void)column;
    pd_table_cell_if(table, round->since_ms > 0, "%s", pd_duration_text(since, round->since_ms));
}

/* Adds a cell with the members; with the fewest that steps need, if there are fewer. */
static void members_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RoundInfo *round = entry;

    (void)column;
    if (round->members >= round->least) {
        pd_table_cell(table, "%u", round->members);
        return;
    }
    pd_table_cell(table, "%u of %u", round->members, round->least);
    pd_table_alarm(table);
}

/* Adds a cell with the step whose ranks were decided last, and these ranks: "6: 0-2 (ages 1:1)". */
static void set_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__RoundInfo *round = entry;
    bool aged = round->ages[0] != '\0';

    (void)column;
    pd_table_cell_if(table, round->fixed > 0, "%" PRIu64 ": %s%s%s%s", round->fixed,
                     round->counted[0] != '\0' ? round->counted : "all", aged ? " (ages " : "", round->ages,
                     aged ? ")" : "");
}

static const pd_column round_columns[] = { { "~JOB", "job", pd_cell_text },
                                           { "+>FRAGMENT", "fragment", pd_cell_number },
                                           { ">STEP", "step", pd_cell_number },
                                           { "STATE", NULL, state_cell },
                                           { ">WHOLE", NULL, whole_cell },
                                           { ">QUORUM", "quorum", pd_cell_number },
                                           { "+>MEMBERS", NULL, members_cell },
                                           { ">OPEN FOR", NULL, since_cell },
                                           { "~WAITS FOR", "waits_for", pd_cell_text_or_dash },
                                           { "+>EPOCH", "epoch", pd_cell_number },
                                           { "+>GRACES", "grace_waits", pd_cell_count },
                                           { "~LAST SET", NULL, set_cell },
                                           { 0 } };

static const pd_list rounds_list = { PARAMD__LIST_KIND__LIST_ROUNDS, "rounds", "no rounds", round_columns,
                                     .placed = false };

static void member_state_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__MemberInfo *member = entry;
    char since[PD_CELL];

    (void)column;
    if (member->since_ms > 0)
        pd_table_cell(table, "%s %s", member->state, pd_duration_text(since, member->since_ms));
    else
        pd_table_cell(table, "%s", member->state);
    if (strcmp(member->state, "lost") == 0) pd_table_alarm(table);
}

/* Adds a cell with the step that the rank works on; with '+' if its contribution is whole and waits to be counted. */
static void next_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__MemberInfo *member = entry;

    (void)column;
    pd_table_cell(table, "%" PRIu64 "%s", member->next, member->whole ? "+" : "");
}

static void share_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__MemberInfo *member = entry;

    (void)column;
    pd_table_cell_if(table, member->steps > 0, "%.0f %%", 100 * member->share);
    if (member->missed >= 100) pd_table_alarm(table);
}

static void patience_cell(pd_table *table, const pd_column *column, const void *entry)
{
    const Paramd__MemberInfo *member = entry;
    char text[PD_CELL];

    (void)column;
    pd_table_cell_if(table, member->patience_ms > 0, "%s", pd_duration_text(text, member->patience_ms));
}

static const pd_column member_columns[] = { { ">RANK", "rank", pd_cell_number },
                                            { "~WORKER", "label", pd_cell_text_or_dash },
                                            { "STATE", NULL, member_state_cell },
                                            { "+>GROUP", "group", pd_cell_number },
                                            { "+>EPOCH", "epoch", pd_cell_number },
                                            { ">STEP", NULL, next_cell },
                                            { ">COUNTED", "counted", pd_cell_count },
                                            { ">SHARE", NULL, share_cell },
                                            { ">LATE", "late", pd_cell_count },
                                            { ">AGE", "mean_age", pd_cell_decimal },
                                            { ">PATIENCE", NULL, patience_cell },
                                            { "+>MISSED", "missed", pd_cell_count },
                                            { 0 } };

static const pd_list members_list = { PARAMD__LIST_KIND__LIST_MEMBERS, "members", "no members", member_columns,
                                      .placed = false };

int pd_run_members(pd_line *line)
{
    pd_list_output out = pd_list_begin(&members_list, line);
    pd_error err = { 0 };

    return pd_list_end(&out, pd_list_fetch(line, members_list.what, pd_list_add_page, &out, &err), &err);
}

/* The names of a daemon's jobs. */
typedef struct names {
    char **at;
    size_t n;
    bool failed; /* memory was missing */
} names;

static void add_names(void *arg, const Paramd__ListReply *page)
{
    names *to = arg;
    char **more = realloc(to->at, (to->n + page->n_jobs + 1) * sizeof *more);

    to->failed |= more == NULL;
    if (more == NULL) return;
    to->at = more;
    for (size_t i = 0; i < page->n_jobs; i++) {
        to->at[to->n] = strdup(page->jobs[i]->name);
        to->failed |= to->at[to->n] == NULL;
        to->n += to->at[to->n] != NULL;
    }
}

static int fetch_rounds(pd_cluster *cluster, const char *job, pd_list_output *out, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;

    request.what = PARAMD__LIST_KIND__LIST_ROUNDS;
    request.job = (char *)job;
    return pd_cluster_list(cluster, &request, pd_list_add_page, out, err);
}

/* Fetches the rounds of all jobs. A job that ends meanwhile is left out. */
static int fetch_all(pd_cluster *cluster, pd_list_output *out, pd_error *err)
{
    Paramd__ListRequest request = PARAMD__LIST_REQUEST__INIT;
    names jobs = { 0 };
    int rc;

    request.what = PARAMD__LIST_KIND__LIST_JOBS;
    cluster->tolerated[0] = PD_NOT_FOUND; /* a job may be on some daemons only */
    rc = pd_cluster_list(cluster, &request, add_names, &jobs, err);
    if (rc == PD_OK && jobs.failed) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (size_t i = 0; rc == PD_OK && i < jobs.n; i++) {
        rc = fetch_rounds(cluster, jobs.at[i], out, err);
        if (rc == PD_NOT_FOUND) rc = PD_OK;
    }
    for (size_t i = 0; i < jobs.n; i++) free(jobs.at[i]);
    free(jobs.at);
    return rc;
}

int pd_run_rounds(pd_line *line)
{
    pd_list_output out = pd_list_begin(&rounds_list, line);
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_open(&cluster, line, 0, &err);

    if (rc == PD_OK)
        rc = line->n_args > 0 ? fetch_rounds(&cluster, line->args[0], &out, &err) : fetch_all(&cluster, &out, &err);
    pd_cluster_close(&cluster);
    return pd_list_end(&out, rc, &err);
}
