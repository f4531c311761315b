/* check_disk.c - measures how fast the disk of the directory for checkpoints makes data durable. */
#include "doctor.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "connection.h"
#include "format.h"

enum { PIECE = 4 << 20, MOST = 256 << 20, LINE = 4096, SMALL_WRITES = 5 };

#define SERVICE_FOLDER "/var/lib/paramd"
#define SECONDS 0.2
#define SLOW_RATE 50e6      /* bytes per second below which the disk is called slow */
#define SLOW_SYNC 0.05      /* seconds for a small write above which the disk is called slow */
#define LITTLE (1ull << 30) /* bytes of free space below which the disk is called nearly full */

/* The measured speed of the disk. */
typedef struct disk_rate {
    double bytes_per_second;
    double sync; /* seconds until a small write is durable: the median */
} disk_rate;

/* Finds the directory for checkpoints: the one that the user named, else that of the configuration, else that of the
 * systemd unit if it exists. Returns false if there is none. */
static bool find_folder(const pd_machine *machine, char *folder, size_t size)
{
    const char *given = getenv("STATE_DIRECTORY");

    if (machine->state != NULL) return snprintf(folder, size, "%s", machine->state) < (int)size;
    if (pd_machine_setting(machine, "state_dir", folder, size) && strcmp(folder, "auto") != 0) return folder[0] != '\0';
    if (given == NULL && access(SERVICE_FOLDER, X_OK) == 0) given = SERVICE_FOLDER;
    if (given == NULL) return false;
    snprintf(folder, size, "%.*s", (int)strcspn(given, ":"), given);
    return true;
}

/* Makes a file without a name in the directory, or a file whose name is removed at once. Returns its descriptor; -1:
 * errno says why not. */
static int open_scratch(const char *folder)
{
    char path[4096];
    int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

    if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
    snprintf(path, sizeof path, "%s/.doctor-XXXXXX", folder);
    fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0) unlink(path);
    return fd;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Writes LINE bytes several times, each write durable before the next, and stores the median time in out->sync. Returns
 * 0 or an errno. */
static int measure_sync(int fd, const char *piece, disk_rate *out)
{
    double times[SMALL_WRITES];

    for (int i = 0; i < SMALL_WRITES; i++) {
        double begun = pd_now_s();
        if (write(fd, piece, LINE) != LINE || fdatasync(fd) != 0) return errno != 0 ? errno : ENOSPC;
        times[i] = pd_now_s() - begun;
    }
    qsort(times, SMALL_WRITES, sizeof times[0], compare);
    out->sync = times[SMALL_WRITES / 2];
    return 0;
}

/* Writes PIECE bytes again and again for 0.2 s, at most MOST bytes, each write durable before the next, and stores the
 * speed in out->bytes_per_second. Returns 0 or an errno. */
static int measure_rate(int fd, const char *piece, disk_rate *out)
{
    double begun = pd_now_s(), spent = 0;
    size_t bytes = 0;

    while (spent < SECONDS && bytes < MOST) {
        if (write(fd, piece, PIECE) != PIECE || fdatasync(fd) != 0) return errno != 0 ? errno : ENOSPC;
        bytes += PIECE;
        spent = pd_now_s() - begun;
    }
    out->bytes_per_second = (double)bytes / spent;
    return 0;
}

static int measure(const char *folder, disk_rate *out)
{
    char *piece = malloc(PIECE);
    int fd, rc;

    if (piece == NULL) return ENOMEM;
    memset(piece, 0x5a, PIECE);
    errno = 0;
    fd = open_scratch(folder);
    rc = fd < 0 ? errno : measure_sync(fd, piece, out);
    if (rc == 0) rc = measure_rate(fd, piece, out);
    if (fd >= 0) close(fd);
    free(piece);
    return rc;
}

static void judge(const char *folder, const disk_rate *rate, pd_finding *out)
{
    char text[PD_CELL];
    struct statfs system = { 0 };
    uint64_t left = statfs(folder, &system) == 0 ? (uint64_t)system.f_bavail * (uint64_t)system.f_bsize : 0;

    pd_found(out, "%s: %s/s", folder, pd_bytes_text(text, (uint64_t)rate->bytes_per_second));
    pd_found(out, ", a small write is durable after %.1f ms, %s free", rate->sync * 1e3, pd_bytes_text(text, left));
    if (rate->bytes_per_second < SLOW_RATE || rate->sync > SLOW_SYNC)
        pd_advise(out, PD_HEALTH_WARN,
                  "Checkpoints will be late or left out: use a faster disk, or raise the job's checkpoint_every.");
    if (left < LITTLE) pd_advise(out, PD_HEALTH_WARN, "The disk is nearly full: free space, or lower checkpoint_keep.");
    if (system.f_type == TMPFS_MAGIC)
        pd_advise(out, PD_HEALTH_WARN, "This directory is in memory: a restart of the machine loses the checkpoints.");
}

void pd_check_disk(const pd_machine *machine, pd_finding *out)
{
    char folder[1024];
    disk_rate rate = { 0 };
    int rc;

    if (!find_folder(machine, folder, sizeof folder)) {
        pd_found(out, "no directory for checkpoints: jobs end with the daemon (server.state_dir)");
        return;
    }
    rc = measure(folder, &rate);
    if (rc == 0) {
        judge(folder, &rate, out);
        return;
    }
    pd_found(out, "%s: %s", folder, strerror(rc));
    if (rc == EACCES && machine->state == NULL)
        pd_advise(out, PD_HEALTH_WARN, "Run the doctor as the daemon's user: sudo -u paramd paramctl doctor");
    else
        pd_advise(out, PD_HEALTH_FAIL,
                  "The daemon cannot write checkpoints there: correct the directory, its owner and mode, or make room "
                  "on the disk.");
}
