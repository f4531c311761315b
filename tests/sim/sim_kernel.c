/* sim_kernel.c - lets calls of the kernel fail with which the server and its workers make, map and pass shared memory.
 * Hides the memory and processor time of the process. Counts what a run must not leave behind: descriptors and mapped
 * segments.
 *
 * The linker redirects the calls to this file (--wrap), as it does with those of sim_memory.c. */
#define _GNU_SOURCE /* memfd_create */
#include "sim.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>

static uint64_t failing_of, failing_random;

void sim_fail_sharing(uint64_t n, uint64_t random)
{
    failing_of = n;
    failing_random = random;
}

static bool costs_are_hidden;

void sim_hide_costs(bool hides)
{
    costs_are_hidden = hides;
}

int __real_getrusage(int who, struct rusage *usage);
int __wrap_getrusage(int who, struct rusage *usage);
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

int __wrap_getrusage(int who, struct rusage *usage)
{
    return costs_are_hidden ? -1 : __real_getrusage(who, usage);
}

int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    if (!costs_are_hidden || clock != CLOCK_THREAD_CPUTIME_ID) return __real_clock_gettime(clock, now);
    *now = (struct timespec){ .tv_nsec = 1 };
    return 0;
}

static bool fails(int error)
{
    sim_side side = sim_enter(SIM_HARNESS);

    sim_enter(side);
    if (failing_of == 0 || side == SIM_HARNESS || !sim_once_in(&failing_random, failing_of)) return false;
    errno = error;
    return true;
}

int __real_memfd_create(const char *name, unsigned flags);
int __real_ftruncate(int fd, off_t bytes);
int __real_fcntl(int fd, int command, ...);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __wrap_memfd_create(const char *name, unsigned flags);
int __wrap_ftruncate(int fd, off_t bytes);
int __wrap_fcntl(int fd, int command, ...);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);

int __wrap_memfd_create(const char *name, unsigned flags)
{
    return fails(EMFILE) ? -1 : __real_memfd_create(name, flags);
}

int __wrap_ftruncate(int fd, off_t bytes)
{
    return fails(ENOMEM) ? -1 : __real_ftruncate(fd, bytes);
}

int __wrap_fcntl(int fd, int command, ...)
{
    va_list args;
    int number;

    va_start(args, command);
    number = va_arg(args, int); /* unused by commands that have no argument */
    va_end(args);
    if ((command == F_DUPFD_CLOEXEC || command == F_ADD_SEALS) && fails(EMFILE)) return -1;
    return __real_fcntl(fd, command, number);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    if (fd >= 0 && fails(ENOMEM)) return MAP_FAILED;
    return __real_mmap(at, bytes, protection, flags, fd, offset);
}

unsigned sim_count_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    unsigned n = 0;

    if (all == NULL) return 0;
    while (readdir(all) != NULL) n++;
    closedir(all);
    return n;
}

unsigned sim_count_segments(void)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    unsigned n = 0;

    if (maps == NULL) return 0;
    while (fgets(line, sizeof line, maps) != NULL) n += strstr(line, "/memfd:") != NULL;
    fclose(maps);
    return n;
}
