/* sibling.c - finds a program in the folder of the running program, where both were installed. */
#include "sibling.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int pd_sibling_path(char *path, size_t size, const char *name, pd_error *err)
{
    ssize_t n = readlink("/proc/self/exe", path, size - strlen(name) - 1);

    if (n <= 0) return pd_fail(err, PD_UNAVAILABLE, "cannot tell where this program lies: %s", strerror(errno));
    path[n] = '\0';
    strcpy(strrchr(path, '/') + 1, name);
    if (access(path, X_OK) != 0) return pd_fail(err, PD_UNAVAILABLE, "%.400s: %s", path, strerror(errno));
    return PD_OK;
}
