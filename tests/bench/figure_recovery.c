/* recovery: how long a job stands still when its daemon is killed and started again.
 *
 * One worker on the daemon's machine trains matrices with AdamW, whose weights and state take 1 GiB. It keeps a window.
 * A checkpoint is on the disk, and two more steps are taken; then the daemon is killed. The figure is the time from the
 * start of the new daemon until a step is done that is newer than all before, over the time to read the checkpoint's
 * bytes from the disk and to take these three steps. The files of the checkpoint are dropped from the page cache before
 * each reading. */
#include "figure.h"
#include "bench_team.h"

#include <dirent.h>
#include <fcntl.h>

enum { SIDE = 1000, PARAMS = 89, WINDOW = 8, CUT = 4, RESENT = 2, LOOK_US = 20000, PATIENCE_MS = 120000 };

static char folder[] = "/var/tmp/paramd-figure.XXXXXX", url[64];

/* Waits until the checkpoint of a step is on the disk. 0: that of the initial weights, which a slow disk may still be
 * writing when another one is due, so that the other one is left out. */
static void await_durable(uint64_t step)
{
    bool kept = false;

    for (double begun = figure_ms(); !kept; usleep(LOOK_US)) {
        pd_operator op;
        const Paramd__StatusReply *status = figure_status(url, &op);
        uint64_t durable = status->n_jobs > 0 ? status->jobs[0]->durable_step : 0;
        kept = status->n_jobs > 0 && status->jobs[0]->checkpoint_bytes > 0 && durable >= step;
        pd_operator_close(&op);
        if (figure_ms() > begun + PATIENCE_MS)
            figure_stop("step %llu is not durable, but %llu", (unsigned long long)step, (unsigned long long)durable);
    }
}

/* Reads how many seconds of CPU a process has used, and how many pages it has touched for the first time. */
static double cpu_seconds(pid_t pid, unsigned long *faults)
{
    unsigned long user, system;
    char path[64];
    FILE *file;

    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    if ((file = fopen(path, "re")) == NULL ||
        fscanf(file, "%*d %*s %*c %*d %*d %*d %*d %*d %*u %lu %*u %*u %*u %lu %lu", faults, &user, &system) != 3)
        figure_stop("%s cannot be read", path);
    fclose(file);
    return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

static double read_file(const char *path, void *into, size_t room, bool only_drop)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    double bytes = 0;
    ssize_t n = 0;

    if (fd < 0) figure_stop("%s: %s", path, strerror(errno));
    while (!only_drop && (n = read(fd, into, room)) > 0) bytes += (double)n;
    if (n < 0) figure_stop("%s: %s", path, strerror(errno));
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return bytes;
}

/* Reads all files of a folder and of its folders, or drops them from the page cache. Returns the bytes that were
 * read. */
static double walk(const char *path, void *into, size_t room, bool only_drop)
{
    DIR *dir = opendir(path);
    double bytes = 0;
    char below[4096];

    if (dir == NULL) figure_stop("%s: %s", path, strerror(errno));
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.') continue;
        snprintf(below, sizeof below, "%s/%s", path, entry->d_name);
        bytes += entry->d_type == DT_DIR ? walk(below, into, room, only_drop) : read_file(below, into, room, only_drop);
    }
    closedir(dir);
    return bytes;
}

static double read_ms(double *bytes)
{
    enum { ROOM = 4 << 20 };
    void *into = figure_alloc(ROOM);
    double begun;

    walk(folder, into, ROOM, true);
    begun = figure_ms();
    *bytes = walk(folder, into, ROOM, false);
    free(into);
    return figure_ms() - begun;
}

static team *start(void)
{
    static const char *const options[] = { "checkpoint_every=4", "checkpoint_keep=1", NULL };
    static int64_t elements[PARAMS];

    for (int i = 0; i < PARAMS; i++) elements[i] = (int64_t)SIDE * SIDE;
    return team_start(&(team_options){ .url = url,
                                       .job = "recovery",
                                       .workers = 1,
                                       .elements = elements,
                                       .n = PARAMS,
                                       .square = true,
                                       .rule = "* adamw lr=0.001",
                                       .options = options,
                                       .window = WINDOW });
}

int main(void)
{
    double step_ms[RESENT], took, reading, bytes, least, begun, cpu;
    unsigned long faults;
    team *t;
    pid_t daemon;

    figure_folder(folder);
    snprintf(url, sizeof url, "unix:///tmp/paramd-figure-%d.socket", (int)getpid());
    daemon = figure_spawn(url);
    t = start();
    await_durable(0);
    team_steps(t, CUT, NULL);
    await_durable(CUT);
    team_steps(t, RESENT, step_ms);
    figure_kill(daemon);
    reading = read_ms(&bytes); /* which also drops the files from the page cache again */
    begun = figure_ms();
    daemon = figure_spawn(url);
    team_steps(t, 1, NULL);
    took = figure_ms() - begun;
    cpu = cpu_seconds(daemon, &faults);
    least = reading + (RESENT + 1) * figure_quantile(step_ms, RESENT, 0.5);
    printf("%.3f\t%.0f ms; reading %.0f MB takes %.0f ms, a step %.0f ms, %d steps were sent again; the daemon used "
           "%.2f s of CPU and touched %lu pages\n",
           took / least, took, bytes / 1e6, reading, figure_quantile(step_ms, RESENT, 0.5), RESENT, cpu, faults);
    team_end(t);
    figure_kill(daemon);
    unlink(url + strlen("unix://"));
    figure_remove(folder);
    return 0;
}
