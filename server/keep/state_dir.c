/* state_dir.c - opens and locks a state directory, makes and reads names in it, and lists and removes directories. */
#include "state_dir.h"

#include "disk.h"
#include "hash.h"
#include "grow.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_OF_NAME = 180, DIGITS = 20 };

const char *const pd_keep_files[PD_KEEP_FILES] = {
    [PD_KEEP_WEIGHTS] = "weights.safetensors",
    [PD_KEEP_STATE] = "state.bin",
    [PD_KEEP_NOTES] = "notes.bin",
};

static const struct {
    const char *prefix, *suffix;
} kinds[PD_STEP_NONE] = {
    [PD_STEP_CURRENT] = { "step-", "" },
    [PD_STEP_OLD] = { "step-", ".old" },
    [PD_STEP_TEMPORARY] = { "tmp-", "" },
    [PD_STEP_ASIDE] = { "aside-", "" },
};

static bool is_plain(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.';
}

/* Writes a name, with %XX for bytes that are not plain. Cuts it to at most `most` bytes. Returns the number of bytes
 * written. */
static size_t encode(char *out, size_t most, const char *name)
{
    size_t n = 0;

    for (; *name != '\0'; name++) {
        bool plain = is_plain(*name);
        if (n + (plain ? 1 : 3) > most) break;
        if (plain)
            out[n++] = *name;
        else
            n += (size_t)snprintf(out + n, 4, "%%%02X", (unsigned)(uint8_t)*name);
    }
    out[n] = '\0';
    return n;
}

void pd_keep_job_name(char out[PD_KEEP_NAME], const char *job, uint64_t creator)
{
    char plain[3 * PD_KEEP_NAME + 4];
    size_t n = encode(plain, sizeof plain - 4, job);

    if (n <= MOST_OF_NAME)
        snprintf(out, PD_KEEP_NAME, "%.180s-%016" PRIx64, plain, creator);
    else
        snprintf(out, PD_KEEP_NAME, "%.180s~%016" PRIx64 "-%016" PRIx64, plain, (uint64_t)XXH3_64bits(job, strlen(job)),
                 creator);
}

void pd_keep_step_name(char out[PD_KEEP_NAME], pd_step_kind kind, uint64_t step)
{
    snprintf(out, PD_KEEP_NAME, "%s%020" PRIu64 "%s", kinds[kind].prefix, step, kinds[kind].suffix);
}

/* Reads a number of 20 digits. Returns false if there are fewer digits, or if the number is not below 2^63. */
static bool parse_digits(const char *at, uint64_t *step)
{
    uint64_t value = 0;

    for (int i = 0; i < DIGITS; i++) {
        if (at[i] < '0' || at[i] > '9' || value > INT64_MAX / 10) return false;
        value = 10 * value + (uint64_t)(at[i] - '0');
    }
    *step = value;
    return value <= INT64_MAX;
}

void pd_keep_old_name(char out[PD_KEEP_NAME], uint64_t step, int number)
{
    pd_keep_step_name(out, PD_STEP_OLD, step);
    if (number > 1) snprintf(out + strlen(out), PD_KEEP_NAME - strlen(out), ".%d", number);
}

/* Returns whether the suffix is ".old.N", with N from 2 to PD_KEEP_OLDS. */
static bool is_another_old(const char *suffix)
{
    size_t n = strlen(kinds[PD_STEP_OLD].suffix);

    return strncmp(suffix, kinds[PD_STEP_OLD].suffix, n) == 0 && suffix[n] == '.' && suffix[n + 1] >= '2' &&
           suffix[n + 1] <= '0' + PD_KEEP_OLDS && suffix[n + 2] == '\0';
}

pd_step_kind pd_keep_step_parse(const char *name, uint64_t *step)
{
    for (pd_step_kind kind = 0; kind < PD_STEP_NONE; kind++) {
        size_t n = strlen(kinds[kind].prefix);
        if (strncmp(name, kinds[kind].prefix, n) != 0 || strlen(name) < n + DIGITS) continue;
        if (!parse_digits(name + n, step)) continue;
        if (strcmp(name + n + DIGITS, kinds[kind].suffix) == 0) return kind;
        if (kind == PD_STEP_ASIDE && name[n + DIGITS] == '.') return kind;
        if (kind == PD_STEP_OLD && is_another_old(name + n + DIGITS)) return kind;
    }
    return PD_STEP_NONE;
}

void pd_keep_segment_name(char out[PD_KEEP_NAME], pd_segment_kind kind, uint64_t number, uint64_t step)
{
    int n = snprintf(out, PD_KEEP_NAME, "segment-%020" PRIu64, number);

    if (kind == PD_SEGMENT_UP_TO) snprintf(out + n, PD_KEEP_NAME - (size_t)n, ".to-%020" PRIu64, step);
}

/* Returns the text after the prefix and 20 digits, and sets *value to these digits. Returns NULL if `text` does not
 * begin so. */
static const char *parse_part(const char *text, const char *prefix, uint64_t *value)
{
    size_t n = strlen(prefix);

    if (strncmp(text, prefix, n) != 0 || strlen(text) < n + DIGITS || !parse_digits(text + n, value)) return NULL;
    return text + n + DIGITS;
}

pd_segment_kind pd_keep_segment_parse(const char *name, uint64_t *number, uint64_t *step)
{
    const char *rest = parse_part(name, "segment-", number);

    *step = UINT64_MAX;
    if (rest == NULL) return PD_SEGMENT_NONE;
    if (rest[0] == '\0') return PD_SEGMENT_WHOLE;
    rest = parse_part(rest, ".to-", step);
    return rest != NULL && rest[0] == '\0' ? PD_SEGMENT_UP_TO : PD_SEGMENT_NONE;
}

void pd_keep_join(char out[PD_KEEP_PATH], const char *path, const char *name)
{
    int n = snprintf(out, PD_KEEP_PATH, "%s/%s", path, name);
    assert(n > 0 && n < PD_KEEP_PATH);
    (void)n;
}

int pd_keep_check_root(const char *root, pd_error *err)
{
    if (root[0] != '\0' && strlen(root) <= PD_KEEP_ROOT) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT, "state directory %.100s: expected a path of 1 to %d bytes", root,
                   PD_KEEP_ROOT);
}

/* ---- the checkpoints of a job ---- */

static void add_step(void *what, const char *name)
{
    pd_step_list *list = what;
    pd_step_entry entry;
    void *at = list->at;

    if (strcmp(name, PD_KEEP_ENDED) == 0) list->ended = true;
    entry.kind = pd_keep_step_parse(name, &entry.step);
    if (entry.kind == PD_STEP_NONE || strlen(name) >= sizeof entry.name) return;
    snprintf(entry.name, sizeof entry.name, "%s", name);
    if (pd_grow(&at, &list->room, list->n + 1, sizeof *list->at) != PD_OK) {
        list->no_memory = true;
        return;
    }
    list->at = at;
    list->at[list->n++] = entry;
}

static int compare_steps(const void *left, const void *right)
{
    const pd_step_entry *a = left, *b = right;

    if (a->step != b->step) return a->step > b->step ? -1 : 1;
    if (a->kind != b->kind) return a->kind < b->kind ? -1 : 1;
    /* of several old checkpoints of a step, the newest has the largest name; it must come first */
    return a->kind == PD_STEP_OLD ? strcmp(b->name, a->name) : strcmp(a->name, b->name);
}

int pd_step_list_read(pd_step_list *list, const pd_disk *disk, const char *job_dir, pd_error *err)
{
    int number, rc = PD_OK;

    *list = (pd_step_list){ 0 };
    number = disk->list(disk->arg, job_dir, add_step, list);
    if (number != 0 && number != ENOENT) rc = pd_disk_fail(err, number, "list", job_dir);
    if (list->no_memory) rc = pd_fail(err, PD_NO_MEMORY, "the list of checkpoints: out of memory");
    if (rc != PD_OK) pd_step_list_free(list);
    if (list->n > 0) qsort(list->at, list->n, sizeof *list->at, compare_steps);
    return rc;
}

void pd_step_list_free(pd_step_list *list)
{
    free(list->at);
    *list = (pd_step_list){ 0 };
}

bool pd_step_list_has(const pd_step_list *list, pd_step_kind kind, uint64_t step)
{
    for (size_t i = 0; i < list->n; i++)
        if (list->at[i].kind == kind && list->at[i].step == step) return true;
    return false;
}

/* ---- the jobs of a state directory, and names in any directory ---- */

static void add_name(void *what, const char *name)
{
    pd_job_dirs *jobs = what;
    void *at = jobs->at;

    if (strlen(name) >= PD_KEEP_NAME) return;
    if (pd_grow(&at, &jobs->room, jobs->n + 1, sizeof *jobs->at) == PD_OK) {
        jobs->at = at;
        if ((jobs->at[jobs->n] = strdup(name)) != NULL) {
            jobs->n++;
            return;
        }
    }
    jobs->no_memory = true;
}

static int compare_names(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static int list_names(pd_job_dirs *names, const pd_disk *disk, const char *path, pd_error *err)
{
    int number, rc = PD_OK;

    *names = (pd_job_dirs){ 0 };
    if ((number = disk->list(disk->arg, path, add_name, names)) != 0) rc = pd_disk_fail(err, number, "list", path);
    if (names->no_memory) rc = pd_fail(err, PD_NO_MEMORY, "the list of a directory: out of memory");
    if (rc != PD_OK) pd_job_dirs_free(names);
    if (names->n > 0) qsort(names->at, names->n, sizeof *names->at, compare_names);
    return rc;
}

/* Returns whether a name is that of a job's directory: it ends with '-' and 16 hexadecimal digits. */
static bool is_job(const char *name)
{
    size_t n = strlen(name);

    return n > 17 && name[n - 17] == '-' && strspn(name + n - 16, "0123456789abcdef") == 16;
}

int pd_job_dirs_read(pd_job_dirs *jobs, const pd_disk *disk, const char *root, pd_error *err)
{
    size_t n = 0;
    int rc = list_names(jobs, disk, root, err);

    for (size_t i = 0; rc == PD_OK && i < jobs->n; i++) {
        if (is_job(jobs->at[i]))
            jobs->at[n++] = jobs->at[i];
        else
            free(jobs->at[i]);
    }
    jobs->n = n;
    return rc;
}

void pd_job_dirs_free(pd_job_dirs *jobs)
{
    for (size_t i = 0; i < jobs->n; i++) free(jobs->at[i]);
    free(jobs->at);
    *jobs = (pd_job_dirs){ 0 };
}

/* ---- removing ---- */

int pd_keep_remove_dir(const pd_disk *disk, const char *path, pd_error *err)
{
    char file[PD_KEEP_PATH];
    pd_job_dirs names;
    int number, rc = list_names(&names, disk, path, err);

    if (rc != PD_OK) return rc == PD_NOT_FOUND ? PD_OK : rc;
    pd_keep_join(file, path, PD_KEEP_MANIFEST);
    number = disk->remove(disk->arg, file);
    if (number == ENOENT) number = 0;
    for (size_t i = 0; i < names.n && number == 0; i++) {
        if (strcmp(names.at[i], PD_KEEP_MANIFEST) == 0) continue;
        pd_keep_join(file, path, names.at[i]);
        number = disk->remove(disk->arg, file);
    }
    pd_job_dirs_free(&names);
    if (number == 0) number = disk->remove(disk->arg, path);
    return number == 0 ? PD_OK : pd_disk_fail(err, number, "remove", path);
}

/* Checks that only the owner can write into the directory, and that the owner is this user or root. If this process
 * runs as root, the owner may be any user: paramctl restore runs so. */
static int check_owner(const char *path, pd_error *err)
{
    struct stat about;

    if (stat(path, &about) != 0) return pd_disk_fail(err, errno, "look at the state directory", path);
    if (!S_ISDIR(about.st_mode)) return pd_fail(err, PD_FAILED_PRECONDITION, "%.300s: expected a directory", path);
    if (about.st_uid != geteuid() && about.st_uid != 0 && geteuid() != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s: it belongs to user %ld, expected %ld: chown it, or choose another state directory",
                       path, (long)about.st_uid, (long)geteuid());
    if ((about.st_mode & (S_IWGRP | S_IWOTH)) != 0)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "%.300s: other users may write in it (mode %04o): chmod it to 0700, since they could exchange "
                       "the state of jobs",
                       path, (unsigned)(about.st_mode & 07777));
    return PD_OK;
}

/* Writes the id of this process into the lock file, so that an error can name who has the lock. */
static void note_process(int lock)
{
    char text[32];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());

    if (ftruncate(lock, 0) == 0 && pwrite(lock, text, (size_t)n, 0) < 0) return; /* the lock works without it */
}

/* Fills *err with the id of the process that has the lock. */
static int held(int lock, const char *path, pd_error *err)
{
    char text[32] = "";
    ssize_t n = pread(lock, text, sizeof text - 1, 0);

    text[n > 0 ? strcspn(text, "\n") : 0] = '\0';
    return pd_fail(err, PD_UNAVAILABLE, "%.300s: in use by another process (%s): stop it, or choose another directory",
                   path, text[0] != '\0' ? text : "?");
}

int pd_state_dir_open(pd_state_dir *dir, const char *path, bool create, pd_error *err)
{
    char name[PD_KEEP_PATH];
    int rc = pd_keep_check_root(path, err), number;

    dir->lock = -1;
    if (rc != PD_OK) return rc;
    if (create && mkdir(path, 0700) != 0 && errno != EEXIST)
        return pd_disk_fail(err, errno, "make the state directory", path);
    if ((rc = check_owner(path, err)) != PD_OK) return rc;
    pd_keep_join(name, path, PD_KEEP_LOCK);
    dir->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (dir->lock < 0) return pd_disk_fail(err, errno, "open", name);
    if (flock(dir->lock, LOCK_EX | LOCK_NB) == 0) {
        note_process(dir->lock);
        return PD_OK;
    }
    number = errno;
    rc = number == EWOULDBLOCK ? held(dir->lock, path, err) : pd_disk_fail(err, number, "lock", name);
    pd_state_dir_close(dir);
    return rc;
}

void pd_state_dir_close(pd_state_dir *dir)
{
    if (dir->lock >= 0) close(dir->lock);
    dir->lock = -1;
}

enum { HEX_DIGITS = 16 };

int pd_keep_number_read(const pd_disk *disk, const char *path, uint64_t *number, pd_error *err)
{
    char text[HEX_DIGITS + 1] = "";
    int file, failed = disk->open(disk->arg, path, &file);

    *number = 0;
    if (failed == ENOENT) return PD_OK;
    if (failed != 0) return pd_disk_fail(err, failed, "open", path);
    failed = disk->read(disk->arg, file, 0, text, HEX_DIGITS);
    disk->close(disk->arg, file);
    if (failed != 0 && failed != ENODATA) return pd_disk_fail(err, failed, "read", path);
    if (failed == 0 && strspn(text, "0123456789abcdef") == HEX_DIGITS) *number = strtoull(text, NULL, 16);
    return *number != 0 ? PD_OK
                        : pd_fail(err, PD_DATA_LOSS, "%.300s: expected a number of %d hexadecimal digits", path,
                                  (int)HEX_DIGITS);
}

int pd_keep_number_write(const pd_disk *disk, const char *path, uint64_t number, pd_error *err)
{
    char text[HEX_DIGITS + 2];
    int file, failed = disk->remove(disk->arg, path);

    snprintf(text, sizeof text, "%016" PRIx64 "\n", number);
    if (failed != 0 && failed != ENOENT) return pd_disk_fail(err, failed, "remove", path);
    if ((failed = disk->create(disk->arg, path, strlen(text), &file)) != 0)
        return pd_disk_fail(err, failed, "create", path);
    if ((failed = disk->write(disk->arg, file, text, strlen(text))) == 0) failed = disk->sync_file(disk->arg, file);
    disk->close(disk->arg, file);
    return failed == 0 ? PD_OK : pd_disk_fail(err, failed, "write", path);
}

int pd_state_dir_life(const pd_disk *disk, const char *path, uint64_t *life, pd_error *err)
{
    char name[PD_KEEP_PATH];

    pd_keep_join(name, path, PD_KEEP_LIFE);
    return pd_keep_number_read(disk, name, life, err);
}

int pd_state_dir_set_life(const pd_disk *disk, const char *path, uint64_t life, pd_error *err)
{
    char name[PD_KEEP_PATH], fresh[PD_KEEP_PATH];
    int number, rc;

    pd_keep_join(name, path, PD_KEEP_LIFE);
    pd_keep_join(fresh, path, PD_KEEP_LIFE ".new");
    if ((rc = pd_keep_number_write(disk, fresh, life, err)) != PD_OK) return rc;
    if ((number = disk->rename(disk->arg, fresh, name)) != 0) return pd_disk_fail(err, number, "rename", fresh);
    return pd_disk_sync_dir(disk, path, err);
}
