/* state_folder.c - the commands checkpoints, verify and restore, which work on a state directory without a daemon. */
#include "state_folder.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint_files.h"
#include "format.h"
#include "job_dir.h"
#include "result.h"
#include "state_dir.h"
#include "text_table.h"

/* ---- checkpoints ---- */

/* The list of checkpoints, while it is made. */
typedef struct listing {
    pd_table *table; /* NULL: it is made as JSON */
    json_t *json;
    uint64_t now_ms;
} listing;

/* Says in a word whether the next start of the daemon may load a checkpoint. */
static const char *state_of(const pd_checkpoint_entry *entry)
{
    if (entry->error.code != PD_OK) return "damaged";
    if (entry->aside) return "set aside";
    return entry->ended ? "job ended" : "valid";
}

static uint64_t age_ms(const listing *l, const pd_checkpoint_entry *entry)
{
    uint64_t written = entry->manifest->about.written_ms;

    return written != 0 && written < l->now_ms ? l->now_ms - written : 0;
}

static void add_row(listing *l, const pd_checkpoint_entry *entry)
{
    char text[PD_CELL];
    const char *slash = strrchr(entry->dir, '/');
    bool known = entry->manifest->job[0] != '\0';

    pd_table_cell(l->table, "%s", known ? entry->manifest->job : "?");
    pd_table_cell(l->table, "%" PRIu64, entry->step);
    pd_table_cell(l->table, "%s", known ? pd_bytes_text(text, pd_manifest_bytes(entry->manifest)) : "-");
    pd_table_cell(l->table, "%s", known ? pd_duration_text(text, age_ms(l, entry)) : "-");
    pd_table_cell(l->table, "%s", state_of(entry));
    if (entry->error.code != PD_OK) pd_table_alarm(l->table);
    pd_table_cell(l->table, "%s", slash != NULL ? slash + 1 : entry->dir);
}

static json_t *object_of(const listing *l, const pd_checkpoint_entry *entry)
{
    const pd_manifest *m = entry->manifest;
    char creator[17];

    snprintf(creator, sizeof creator, "%016" PRIx64, m->creator);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:s, s:s, s:s, s:s}", "job", m->job, "creator",
                     creator, "step", (json_int_t)entry->step, "bytes", (json_int_t)pd_manifest_bytes(m), "age_ms",
                     (json_int_t)age_ms(l, entry), "valid", entry->error.code == PD_OK, "ended", entry->ended, "aside",
                     entry->aside, "dir", entry->dir, "error", entry->error.text, "paramd", m->about.paramd, "blas",
                     m->about.blas, "cpu", m->about.cpu);
}

static void add_entry(void *arg, const pd_checkpoint_entry *entry)
{
    listing *l = arg;

    if (l->table != NULL)
        add_row(l, entry);
    else
        json_array_append_new(l->json, object_of(l, entry));
}

int pd_run_checkpoints(pd_line *line)
{
    listing l = { .now_ms = (uint64_t)time(NULL) * 1000 };
    pd_error err = { 0 };
    int rc;

    if (line->json)
        l.json = json_array();
    else
        l.table = pd_table_new("~JOB|>STEP|>SIZE|>AGE|STATE|~DIRECTORY");
    if (l.json == NULL && l.table == NULL)
        rc = pd_fail(&err, PD_NO_MEMORY, "out of memory");
    else
        rc = pd_checkpoint_list(&pd_disk_posix, line->args[0], add_entry, &l, &err);
    if (rc != PD_OK) {
        json_decref(l.json);
        pd_table_free(l.table);
        return pd_result_fail(line->json, &err);
    }
    if (line->json) return pd_result_json(json_pack("{s:o}", "checkpoints", l.json));
    pd_table_limit(l.table, line->wide ? 0 : pd_table_default_limit());
    return pd_table_print(l.table, stdout, "no checkpoints") == PD_OK ? PD_EXIT_OK : PD_EXIT_FAILED;
}

/* ---- verify ---- */

/* What is known while checkpoints are verified. */
typedef struct verifying {
    const pd_line *line;
    json_t *json; /* list of all files; NULL: they are printed as text */
    const char *dir;
    size_t checked, damaged; /* checkpoints */
} verifying;

static void tell_file(void *arg, const char *file, const pd_error *why)
{
    verifying *v = arg;
    bool ok = why->code == PD_OK;

    if (v->json != NULL)
        json_array_append_new(v->json, json_pack("{s:s, s:s, s:b, s:s}", "dir", v->dir, "file", file, "valid", ok,
                                                 "error", ok ? "" : why->text));
    else if (!ok)
        pd_print_line(stdout, "damaged: %s", why->text);
}

static void verify_one(verifying *v, const char *dir)
{
    pd_error err = { 0 };

    v->dir = dir;
    v->checked++;
    if (pd_checkpoint_verify(&pd_disk_posix, dir, tell_file, v, &err) != PD_OK)
        v->damaged++;
    else if (v->json == NULL)
        pd_print_line(stdout, "whole: %s", dir);
}

static void verify_entry(void *arg, const pd_checkpoint_entry *entry)
{
    verify_one(arg, entry->dir);
}

/* Tells whether a path is that of one checkpoint. */
static bool is_checkpoint(const char *path)
{
    const char *slash = strrchr(path, '/');
    uint64_t step;

    return pd_keep_step_parse(slash != NULL ? slash + 1 : path, &step) != PD_STEP_NONE;
}

/* Removes slashes from the end of a path. */
static void trim(char *path)
{
    size_t n = strlen(path);

    while (n > 1 && path[n - 1] == '/') path[--n] = '\0';
}

int pd_run_verify(pd_line *line)
{
    verifying v = { .line = line, .json = line->json ? json_array() : NULL };
    pd_error err = { 0 };
    int rc = PD_OK;

    trim(line->args[0]);
    if (is_checkpoint(line->args[0]))
        verify_one(&v, line->args[0]);
    else
        rc = pd_checkpoint_list(&pd_disk_posix, line->args[0], verify_entry, &v, &err);
    if (rc != PD_OK) {
        json_decref(v.json);
        return pd_result_fail(line->json, &err);
    }
    if (line->json)
        (void)pd_result_json(json_pack("{s:o, s:I}", "files", v.json, "damaged", (json_int_t)v.damaged));
    else
        pd_print_line(stdout, "%zu checkpoints, %zu damaged", v.checked, v.damaged);
    return v.damaged == 0 ? PD_EXIT_OK : PD_EXIT_FAILED;
}

/* ---- restore ---- */

/* Reads the option --creator: 0 if it was not given. */
static uint64_t creator_of(const pd_line *line)
{
    const char *text = pd_line_text(line, "creator");
    char *end = NULL;
    uint64_t value;

    if (text == NULL) return 0;
    value = strtoull(text, &end, 16);
    if (*text == '\0' || *end != '\0' || value == 0)
        pd_line_refuse(line, "--creator %s: expected 16 hexadecimal digits, as a job's directory has them at its end",
                       text);
    return value;
}

static int tell_restored(const pd_line *line, const char *job, uint64_t step, size_t n_aside)
{
    if (line->json)
        return pd_result_json(
            json_pack("{s:s, s:I, s:I}", "job", job, "step", (json_int_t)step, "aside", (json_int_t)n_aside));
    pd_print_line(stdout, "the next start brings %s back at step %" PRIu64 "; %zu newer checkpoints are set aside", job,
                  step, n_aside);
    return PD_EXIT_OK;
}

int pd_run_restore(pd_line *line)
{
    const char *job = pd_line_text(line, "job");
    uint64_t creator = creator_of(line), step;
    pd_state_dir dir;
    pd_error err = { 0 };
    size_t n_aside = 0;
    int rc;

    if (job == NULL || !pd_line_has(line, "step")) pd_line_refuse(line, "expected --job JOB and --step STEP");
    step = (uint64_t)pd_line_number(line, "step");
    trim(line->args[0]);
    if ((rc = pd_state_dir_open(&dir, line->args[0], false, &err)) == PD_OK) {
        rc = pd_checkpoint_restore(&pd_disk_posix, line->args[0], job, creator, step, &n_aside, &err);
        pd_state_dir_close(&dir);
    }
    if (rc == PD_OK) return tell_restored(line, job, step, n_aside);
    (void)pd_result_fail(line->json, &err);
    return PD_EXIT_FAILED; /* no daemon was asked, so none is unreachable */
}
