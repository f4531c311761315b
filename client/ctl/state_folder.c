/* state_folder.c - the commands checkpoints, verify and restore, which work on a state directory without a daemon. */
#include "commands.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "checkpoint_files.h"
#include "format.h"
#include "state_dir.h"
#include "wal_files.h"
#include "result.h"
#include "text_table.h"

/* A search for the newest valid checkpoint of each job in a list. The next start loads it and replays the WAL after
 * it. */
typedef struct log_search {
    char job_dir[PD_KEEP_PATH]; /* directory of the last job whose checkpoint was found */
} log_search;

/* Returns whether the next start loads this checkpoint. If so, s->job_dir becomes the directory of its job. */
static bool is_newest(log_search *s, const pd_checkpoint_entry *entry)
{
    size_t n = (size_t)(strrchr(entry->dir, '/') - entry->dir);

    if (entry->error.code != PD_OK || entry->aside || entry->ended || n >= sizeof s->job_dir) return false;
    if (strncmp(s->job_dir, entry->dir, n) == 0 && s->job_dir[n] == '\0') return false;
    memcpy(s->job_dir, entry->dir, n);
    s->job_dir[n] = '\0';
    return true;
}

/* The list of checkpoints that the command prints, while it is made. */
typedef struct listing {
    pd_table *table; /* the list as a table; NULL: the list is made as JSON */
    json_t *json;
    uint64_t now_ms;
    log_search newest;
} listing;

/* Surveys the WAL that follows a checkpoint. Returns false if there is none. If it is damaged, about->damage says
 * how. */
static bool look_at_log(listing *l, const pd_checkpoint_entry *entry, pd_wal_about *about)
{
    pd_error err;

    *about = (pd_wal_about){ 0 };
    if (!is_newest(&l->newest, entry)) return false;
    if (pd_wal_survey(&(pd_wal_source){ &pd_disk_posix, l->newest.job_dir, entry->manifest->creator, PD_WAL_STEPS,
                                        entry->manifest->place },
                      about, &err) != PD_OK)
        about->damage = err;
    return about->files > 0 || about->damage.code != PD_OK;
}

static void add_log_cell(listing *l, const pd_checkpoint_entry *entry)
{
    pd_wal_about log;

    if (!look_at_log(l, entry, &log)) {
        pd_table_cell(l->table, "-");
    } else if (log.damage.code != PD_OK) {
        pd_table_alarm(l->table);
        pd_table_cell(l->table, "damaged");
    } else {
        pd_table_cell(l->table, "to step %" PRIu64, log.last);
    }
}

static json_t *log_object(listing *l, const pd_checkpoint_entry *entry)
{
    pd_wal_about log;

    if (!look_at_log(l, entry, &log)) return json_null();
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:s}", "entries", (json_int_t)log.entries, "last_step",
                     (json_int_t)log.last, "bytes", (json_int_t)log.bytes, "files", (json_int_t)log.files, "file_bytes",
                     (json_int_t)log.file_bytes, "error", log.damage.code != PD_OK ? log.damage.text : "");
}

/* Returns one word that says whether the next start of the daemon may load a checkpoint. */
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
    add_log_cell(l, entry);
    pd_table_cell(l->table, "%s", slash != NULL ? slash + 1 : entry->dir);
}

static json_t *object_of(listing *l, const pd_checkpoint_entry *entry)
{
    const pd_manifest *m = entry->manifest;
    char creator[17];

    snprintf(creator, sizeof creator, "%016" PRIx64, m->creator);
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:s, s:s, s:s, s:s, s:s, s:o}", "job", m->job, "creator",
                     creator, "step", (json_int_t)entry->step, "bytes", (json_int_t)pd_manifest_bytes(m), "age_ms",
                     (json_int_t)age_ms(l, entry), "valid", entry->error.code == PD_OK, "ended", entry->ended, "aside",
                     entry->aside, "dir", entry->dir, "error", entry->error.text, "paramd", m->about.paramd, "blas",
                     m->about.blas, "cpu", m->about.cpu, "log", log_object(l, entry));
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
        l.table = pd_table_new("~JOB|>STEP|>SIZE|>AGE|STATE|LOG|~DIRECTORY");
    if (l.json == NULL && l.table == NULL)
        rc = pd_fail(&err, PD_NO_MEMORY, "out of memory");
    else
        rc = pd_checkpoint_list(&pd_disk_posix, line->args[0], add_entry, &l, &err);
    if (rc != PD_OK) {
        json_decref(l.json);
        pd_table_free(l.table);
        return pd_result_fail_reached(line->json, &err);
    }
    if (line->json) return pd_result_json(json_pack("{s:o}", "checkpoints", l.json));
    return pd_result_table(line, l.table, "no checkpoints");
}

/* The results of `paramctl verify` so far. */
typedef struct verifying {
    const pd_line *line;
    json_t *json; /* list of all files; NULL: they are printed as text */
    const char *dir;
    size_t checked, logs, damaged; /* number of checkpoints; of WALs; of damaged ones of both */
    log_search newest;
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

/* Reads and checks a job's WAL that follows a checkpoint. */
static void verify_log(verifying *v, const pd_checkpoint_entry *entry)
{
    pd_wal_about log;
    pd_error err;

    if (pd_wal_read(&(pd_wal_source){ &pd_disk_posix, v->newest.job_dir, entry->manifest->creator, PD_WAL_STEPS,
                                      entry->manifest->place },
                    NULL, NULL, &log, &err) != PD_OK)
        log = (pd_wal_about){ .files = 1, .damage = err };
    if (log.files == 0) return;
    v->logs++;
    v->damaged += log.damage.code != PD_OK;
    v->dir = v->newest.job_dir;
    tell_file(v, PD_KEEP_STEPS, &log.damage);
    if (log.damage.code == PD_OK && v->json == NULL)
        pd_print_line(stdout, "whole: %s/%s: %" PRIu64 " steps, to step %" PRIu64 ", %" PRIu64 " bytes", v->dir,
                      PD_KEEP_STEPS, log.entries, log.last, log.bytes);
}

static void verify_entry(void *arg, const pd_checkpoint_entry *entry)
{
    verifying *v = arg;

    verify_one(v, entry->dir);
    if (is_newest(&v->newest, entry)) verify_log(v, entry);
}

/* Returns whether a path is that of one checkpoint. */
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
        return pd_result_fail_reached(line->json, &err);
    }
    if (line->json)
        (void)pd_result_json(json_pack("{s:o, s:I}", "files", v.json, "damaged", (json_int_t)v.damaged));
    else if (v.logs > 0)
        pd_print_line(stdout, "%zu checkpoints and %zu logs, %zu damaged", v.checked, v.logs, v.damaged);
    else
        pd_print_line(stdout, "%zu checkpoints, %zu damaged", v.checked, v.damaged);
    return v.damaged == 0 ? PD_CTL_OK : PD_CTL_FAILED;
}

/* Returns the value of the option --creator; 0: it was not given. */
static uint64_t creator_of(const pd_line *line)
{
    const char *text = pd_line_text(line, "creator");
    char *end = NULL;
    uint64_t value;

    if (text == NULL) return 0;
    value = strtoull(text, &end, 16);
    if (*text == '\0' || *end != '\0' || value == 0)
        pd_line_refuse(line, "--creator %s: expected 16 hexadecimal digits, the end of the job's directory name", text);
    return value;
}

static int tell_restored(const pd_line *line, const char *job, uint64_t step, size_t n_aside, bool log_aside)
{
    if (line->json)
        return pd_result_json(json_pack("{s:s, s:I, s:I, s:b}", "job", job, "step", (json_int_t)step, "aside",
                                        (json_int_t)n_aside, "log_aside", log_aside));
    pd_print_line(stdout, "the next start brings %s back at step %" PRIu64 "; %zu newer checkpoints%s are set aside",
                  job, step, n_aside, log_aside ? " and the log" : "");
    return PD_CTL_OK;
}

int pd_run_restore(pd_line *line)
{
    const char *job = pd_line_text(line, "job");
    uint64_t creator = creator_of(line), step;
    pd_state_dir dir;
    pd_error err = { 0 };
    size_t n_aside = 0;
    bool log_aside = false;
    int rc;

    if (job == NULL || !pd_line_has(line, "step")) pd_line_refuse(line, "expected --job JOB and --step STEP");
    step = (uint64_t)pd_line_number(line, "step");
    trim(line->args[0]);
    if ((rc = pd_state_dir_open(&dir, line->args[0], false, &err)) == PD_OK) {
        rc = pd_checkpoint_restore(&pd_disk_posix, line->args[0], job, creator, step, &n_aside, &log_aside, &err);
        pd_state_dir_close(&dir);
    }
    return rc == PD_OK ? tell_restored(line, job, step, n_aside, log_aside) : pd_result_fail_reached(line->json, &err);
}
