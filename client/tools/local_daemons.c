/* local_daemons.c - finds this user's local daemons by the sockets in the folder where they listen. */
#include "local_daemons.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define SOCKET ".sock"
#define LAST "/tmp"
enum {
    HASH = 9, /* length of the hash at the end of a daemon's name: "-" and eight hexadecimal digits */
    FOLDER_ROOM =
        107 - 38 /* most bytes of the folder's path with its zero: sockets' names, at most 38 bytes, must fit, too */
};

typedef struct found {
    pd_local_daemon *at;
    size_t n;
    bool no_memory;
} found;

int pd_local_connect(const char *base, const char *ending)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    int fd, n = snprintf(address.sun_path, sizeof address.sun_path, "%s%s", base, ending);

    errno = ENAMETOOLONG;
    if (n < 0 || (size_t)n >= sizeof address.sun_path) return -1;
    if ((fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)) < 0) return -1;
    if (connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) return fd;
    n = errno;
    close(fd);
    errno = n;
    return -1;
}

/* Returns the id of the process that listens on a daemon's socket; 0: no process listens. */
static pid_t listener(const char *base)
{
    struct ucred peer = { 0 };
    socklen_t size = sizeof peer;
    int fd = pd_local_connect(base, SOCKET);

    if (fd < 0) return 0;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) peer.pid = 0;
    close(fd);
    return peer.pid;
}

static void add(found *all, const char *folder, const char *file)
{
    size_t bytes = strlen(file), end = strlen(SOCKET);
    pd_local_daemon one = { 0 }, *grown;

    if (bytes <= end || strcmp(file + bytes - end, SOCKET) != 0 || bytes - end >= sizeof one.name) return;
    if (snprintf(one.base, sizeof one.base, "%s/%.*s", folder, (int)(bytes - end), file) >= (int)sizeof one.base)
        return;
    memcpy(one.name, file, bytes - end);
    if ((one.pid = listener(one.base)) == 0) return;
    if ((grown = realloc(all->at, (all->n + 1) * sizeof one)) == NULL) {
        all->no_memory = true;
        return;
    }
    all->at = grown;
    all->at[all->n++] = one;
}

/* Adds the daemons whose sockets are in a folder. Skips a folder that other users may read or change. */
static void look_into(found *all, const char *folder)
{
    struct stat status;
    DIR *open;

    if (lstat(folder, &status) != 0 || !S_ISDIR(status.st_mode) || status.st_uid != geteuid() ||
        (status.st_mode & 077) != 0 || (open = opendir(folder)) == NULL)
        return;
    for (const struct dirent *entry; (entry = readdir(open)) != NULL;) add(all, folder, entry->d_name);
    closedir(open);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const pd_local_daemon *)a)->name, ((const pd_local_daemon *)b)->name);
}

/* Returns whether XDG_RUNTIME_DIR is a folder of this user that others may not write to. */
static bool is_own(const char *runtime)
{
    struct stat status;

    return runtime != NULL && runtime[0] == '/' && stat(runtime, &status) == 0 && S_ISDIR(status.st_mode) &&
           status.st_uid == geteuid() && (status.st_mode & 022) == 0 && access(runtime, W_OK) == 0;
}

/* Returns the folder for temporary files, as Python's tempfile chooses it. */
static const char *temporary(void)
{
    static const char *const variables[] = { "TMPDIR", "TEMP", "TMP" };

    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) {
        const char *path = getenv(variables[i]);
        if (path != NULL && path[0] == '/' && access(path, W_OK | X_OK) == 0) return path;
    }
    return LAST;
}

/* Writes the path of the folder of this user's local daemons. The rule is that of client/python/paramd/run_folder.py:
 * the first folder whose path leaves room for the names of sockets. */
static void folder_of(char path[FOLDER_ROOM])
{
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *other = temporary();
    int n = strlen(other) > 1 && other[strlen(other) - 1] == '/' ? (int)strlen(other) - 1 : (int)strlen(other);

    if (is_own(runtime) && snprintf(path, FOLDER_ROOM, "%s/paramd", runtime) < FOLDER_ROOM) return;
    if (snprintf(path, FOLDER_ROOM, "%.*s/paramd-%u", n, other, geteuid()) < FOLDER_ROOM) return;
    snprintf(path, FOLDER_ROOM, LAST "/paramd-%u", geteuid());
}

int pd_local_daemons(pd_local_daemon **out, size_t *n, pd_error *err)
{
    char folder[FOLDER_ROOM];
    found all = { 0 };

    folder_of(folder);
    look_into(&all, folder);
    if (all.no_memory) {
        free(all.at);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    if (all.n > 1) qsort(all.at, all.n, sizeof *all.at, by_name);
    *out = all.at;
    *n = all.n;
    return PD_OK;
}

/* Returns whether a daemon has this name, with or without its hash. */
static bool is_named(const pd_local_daemon *daemon, const char *name)
{
    size_t bytes = strlen(daemon->name), n = strlen(name);

    if (strcmp(daemon->name, name) == 0) return true;
    if (bytes != n + HASH || strncmp(daemon->name, name, n) != 0 || daemon->name[n] != '-') return false;
    for (size_t i = n + 1; i < bytes; i++)
        if (!isxdigit((unsigned char)daemon->name[i])) return false;
    return true;
}

static int several(const pd_local_daemon *all, size_t n, const char *name, pd_error *err)
{
    char names[256] = "";

    for (size_t i = 0, used = 0; i < n && used < sizeof names; i++)
        if (name == NULL || is_named(&all[i], name))
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used > 0 ? ", " : "", all[i].name);
    return pd_fail(err, PD_INVALID_ARGUMENT, "several local daemons match: choose one with -s NAME, of %s", names);
}

int pd_local_daemon_find(pd_local_daemon *out, const char *name, pd_error *err)
{
    pd_local_daemon *all;
    size_t n, meant = 0;
    int rc = pd_local_daemons(&all, &n, err);

    if (rc != PD_OK) return rc;
    for (size_t i = 0; i < n; i++)
        if ((name == NULL || is_named(&all[i], name)) && meant++ == 0) *out = all[i];
    if (meant == 0)
        rc = pd_fail(err, PD_NOT_FOUND, "no local daemon%s%s (`paramctl daemons` lists those that run)",
                     name != NULL ? " " : "", name != NULL ? name : "");
    if (meant > 1) rc = several(all, n, name, err);
    free(all);
    return rc;
}
