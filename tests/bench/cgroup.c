/* cgroup.c - a control group with a limit of memory, by the files of cgroup v1 or v2. */
#include "cgroup.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The two versions of control groups: where they are mounted, and the files of a group. */
typedef struct version {
    const char *root, *limit, *usage, *swap;
} version;

static const version versions[] = {
    { "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "memory.memsw.limit_in_bytes" },
    { "/sys/fs/cgroup", "memory.max", "memory.current", "memory.swap.max" },
};

static bool write_file(const char *folder, const char *name, const char *text)
{
    char path[640];
    int fd;
    bool done;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if ((fd = open(path, O_WRONLY | O_CLOEXEC)) < 0) return false;
    done = write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return done;
}

/* Limits swap, too, where it is counted: v1 counts memory and swap together. */
static void limit_swap(const pd_cgroup *group, const version *v, const char *bytes)
{
    (void)write_file(group->folder, v->swap, v == versions ? bytes : "0");
}

/* Finds the group of this process in /proc/self/cgroup: a line of v1 names the hierarchy, "4:memory:/path", that of v2
 * begins with "0::". */
static void find_own(pd_cgroup *out, const version *v)
{
    const char *wanted = v == versions ? ":memory:" : "0::";
    FILE *file = fopen("/proc/self/cgroup", "r");
    char line[384];

    snprintf(out->before, sizeof out->before, "%s", v->root);
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *at = strstr(line, wanted);
        if (at == NULL || (v != versions && at != line)) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out->before, sizeof out->before, "%s%s", v->root, at + strlen(wanted));
    }
    if (file != NULL) fclose(file);
}

static bool make(pd_cgroup *out, const version *v, const char *bytes)
{
    snprintf(out->folder, sizeof out->folder, "%s/paramd-figure-%d", v->root, (int)getpid());
    if (v != versions) (void)write_file(v->root, "cgroup.subtree_control", "+memory");
    if (mkdir(out->folder, 0755) != 0) return false;
    if (write_file(out->folder, v->limit, bytes)) {
        limit_swap(out, v, bytes);
        find_own(out, v);
        return true;
    }
    rmdir(out->folder);
    return false;
}

int pd_cgroup_make(pd_cgroup *out, long long bytes, pd_error *err)
{
    char text[32];

    snprintf(text, sizeof text, "%lld", bytes);
    for (size_t i = 0; i < sizeof versions / sizeof *versions; i++)
        if (make(out, &versions[i], text)) return PD_OK;
    return pd_fail(err, PD_UNAVAILABLE, "no control group with a limit of memory can be made: %s", strerror(errno));
}

static int move(const char *folder, pid_t pid, pd_error *err)
{
    char text[16];

    snprintf(text, sizeof text, "%d", (int)pid);
    if (write_file(folder, "cgroup.procs", text)) return PD_OK;
    return pd_fail(err, PD_UNAVAILABLE, "%.200s/cgroup.procs: %s", folder, strerror(errno));
}

int pd_cgroup_enter(const pd_cgroup *group, pid_t pid, pd_error *err)
{
    return move(group->folder, pid, err);
}

int pd_cgroup_leave(const pd_cgroup *group, pid_t pid, pd_error *err)
{
    return move(group->before, pid, err);
}

long long pd_cgroup_bytes(const pd_cgroup *group)
{
    long long bytes = -1;

    for (size_t i = 0; i < sizeof versions / sizeof *versions && bytes < 0; i++) {
        char path[256];
        FILE *file;
        snprintf(path, sizeof path, "%s/%s", group->folder, versions[i].usage);
        if ((file = fopen(path, "r")) == NULL) continue;
        if (fscanf(file, "%lld", &bytes) != 1) bytes = -1;
        fclose(file);
    }
    return bytes;
}

void pd_cgroup_remove(const pd_cgroup *group)
{
    for (int i = 0; i < 100 && rmdir(group->folder) != 0 && errno == EBUSY; i++) usleep(20000);
}
