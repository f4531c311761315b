/* descriptors.c - looks at /proc/PID/fd, and sets the limit of open files. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "descriptors.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include "test.h"

static struct rlimit before; /* the limit that descriptors_forbid has changed */

/* Counts the descriptors of a process whose file's name has `part` in it. */
static int count(pid_t pid, const char *part)
{
    char path[64], name[512];
    int n = 0;
    DIR *dir;

    snprintf(path, sizeof path, pid != 0 ? "/proc/%d/fd" : "/proc/self/fd", (int)pid);
    assert_non_null(dir = opendir(path));
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        ssize_t bytes = entry->d_name[0] != '.' ? readlinkat(dirfd(dir), entry->d_name, name, sizeof name - 1) : -1;
        if (bytes < 0) continue;
        name[bytes] = '\0';
        n += strstr(name, part) != NULL;
    }
    closedir(dir);
    return n;
}

int descriptors_open(pid_t pid)
{
    return count(pid, "") - (pid == 0); /* less the one by which the folder was read */
}

int descriptors_of_segments(pid_t pid)
{
    return count(pid, "memfd:paramd");
}

void descriptors_forbid(void)
{
    int lowest = dup(0);
    struct rlimit none;

    assert_true(lowest >= 0);
    close(lowest);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = (rlim_t)lowest;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
}

void descriptors_allow(void)
{
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

int memfd_with(unsigned flags, uint64_t bytes, int seals)
{
    int fd = memfd_create("test", flags | MFD_CLOEXEC | MFD_ALLOW_SEALING);

    if (fd < 0) return -1;
    if (ftruncate(fd, (off_t)bytes) != 0 || (seals != 0 && fcntl(fd, F_ADD_SEALS, seals) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

int memfd_sealed(uint64_t bytes, uint8_t seed)
{
    int fd = memfd_with(0, bytes, F_SEAL_SHRINK | F_SEAL_GROW);
    uint8_t *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    assert_true(fd >= 0 && at != MAP_FAILED);
    for (uint64_t i = 0; i < bytes; i++) at[i] = (uint8_t)(i * 7 + seed);
    munmap(at, bytes);
    assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_FUTURE_WRITE), 0);
    return fd;
}

bool same_file(int a, int b)
{
    struct stat one, other;

    return fstat(a, &one) == 0 && fstat(b, &other) == 0 && one.st_ino == other.st_ino && one.st_dev == other.st_dev;
}
