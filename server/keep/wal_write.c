/* wal_write.c - the logs of all jobs of a daemon: writes entries in groups, each with one wait for the disk. */
#include "wal_files.h"

#include <stdlib.h>
#include <string.h>

#include "wal_stream_writer.h"

struct pd_wal_writer {
    const pd_disk *disk;
    char root[PD_KEEP_PATH];
    uint64_t segment_bytes;
    pd_file_writer writer;
    pd_wal_stream_writer **at; /* logs that are open */
    size_t n, room;
};

int pd_wal_writer_new(pd_wal_writer **out, const pd_disk *disk, const char *root, uint64_t segment_bytes, pd_error *err)
{
    pd_wal_writer *logs = calloc(1, sizeof *logs);
    int rc;

    if (logs == NULL) return pd_fail(err, PD_NO_MEMORY, "the logs of jobs: out of memory");
    logs->disk = disk;
    logs->segment_bytes = segment_bytes;
    memcpy(logs->root, root, strlen(root) + 1);
    if ((rc = pd_file_writer_init(&logs->writer, disk, err)) == PD_OK)
        *out = logs;
    else
        free(logs);
    return rc;
}

/* ---- the logs that are open ---- */

static void close_log(pd_wal_stream_writer *log)
{
    pd_wal_stream_writer_close(log);
    free(log);
}

static bool has_ended(const pd_wal_stream_writer *log)
{
    char path[PD_KEEP_PATH];
    int file;

    pd_keep_join(path, log->job_dir, PD_KEEP_ENDED);
    if (log->disk->open(log->disk->arg, path, &file) != 0) return false;
    log->disk->close(log->disk->arg, file);
    return true;
}

/* Removes the logs of jobs that have ended. */
static void sweep(pd_wal_writer *logs)
{
    char job_dir[PD_KEEP_PATH];
    bool control;
    size_t n = 0;

    for (size_t i = 0; i < logs->n; i++) {
        if (!has_ended(logs->at[i])) {
            logs->at[n++] = logs->at[i];
            continue;
        }
        memcpy(job_dir, logs->at[i]->job_dir, sizeof job_dir);
        control = logs->at[i]->control;
        close_log(logs->at[i]);
        (void)(control ? pd_control_remove : pd_wal_remove)(logs->disk, job_dir, NULL);
    }
    logs->n = n;
}

static bool is_of(const pd_wal_stream_writer *log, const pd_wal_record *entry)
{
    return log->control == entry->control && log->segment.creator == entry->creator &&
           strcmp(log->segment.job, entry->job) == 0;
}

static int open_log(pd_wal_writer *logs, const pd_wal_record *entry, pd_wal_stream_writer **out, pd_error *err)
{
    pd_wal_stream_writer **at = realloc(logs->at, (logs->n + 1) * sizeof(pd_wal_stream_writer *)),
                         *log = calloc(1, sizeof *log);
    int rc;

    if (at != NULL) logs->at = at;
    if (at == NULL || log == NULL) {
        free(log);
        return pd_fail(err, PD_NO_MEMORY, "the log of a job: out of memory");
    }
    rc = pd_wal_stream_writer_open(log, logs->disk, logs->root, logs->segment_bytes, &logs->writer, entry, err);
    if (rc == PD_OK)
        logs->at[logs->n++] = *out = log;
    else
        free(log);
    return rc;
}

static int find_log(pd_wal_writer *logs, const pd_wal_record *entry, pd_wal_stream_writer **out, pd_error *err)
{
    for (size_t i = 0; i < logs->n; i++) {
        if (!is_of(logs->at[i], entry)) continue;
        *out = logs->at[i];
        return PD_OK;
    }
    sweep(logs);
    return open_log(logs, entry, out, err);
}

/* ---- writing ---- */

/* Writes the entries of the job that the first of them belongs to. */
static void write_job(pd_wal_stream_writer *log, pd_wal_record *const *entries, size_t n)
{
    pd_error why = { 0 };
    size_t appended = 0;

    for (size_t i = 0; i < n; i++) {
        if (!is_of(log, entries[i])) continue;
        entries[i]->error = (pd_error){ 0 };
        if (pd_wal_stream_writer_append(log, entries[i], &entries[i]->error) == PD_OK)
            appended++;
        else if (why.code == PD_OK)
            why = entries[i]->error;
    }
    if (appended > 0) (void)pd_wal_stream_writer_sync(log, &why);
    for (size_t i = 0; i < n; i++)
        if (is_of(log, entries[i]) && entries[i]->error.code == PD_OK && entries[i]->step > log->durable)
            entries[i]->error = why;
}

static bool are_of_one_log(const pd_wal_record *a, const pd_wal_record *b)
{
    return a->control == b->control && a->creator == b->creator && strcmp(a->job, b->job) == 0;
}

static bool is_later(pd_wal_record *const *entries, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (are_of_one_log(entries[k], entries[i])) return true;
    return false;
}

void pd_wal_write(pd_wal_writer *logs, pd_wal_record *const *entries, size_t n)
{
    pd_error why;
    pd_wal_stream_writer *log = NULL;

    for (size_t i = 0; i < n; i++) {
        if (is_later(entries, i)) continue; /* it was written with the first of its job */
        if (find_log(logs, entries[i], &log, &why) == PD_OK)
            write_job(log, entries, n);
        else
            for (size_t k = i; k < n; k++)
                if (are_of_one_log(entries[k], entries[i])) entries[k]->error = why;
    }
}

void pd_wal_writer_free(pd_wal_writer *logs)
{
    if (logs == NULL) return;
    for (size_t i = 0; i < logs->n; i++) close_log(logs->at[i]);
    pd_file_writer_free(&logs->writer);
    free(logs->at);
    free(logs);
}
