/* paramd/version.h - the version of paramd. It stands here alone: CMakeLists.txt, pyproject.toml and the Python package
 * read this file. */
#ifndef PARAMD_VERSION_H
#define PARAMD_VERSION_H

#define PARAMD_VERSION_MAJOR 0
#define PARAMD_VERSION_MINOR 1
#define PARAMD_VERSION_PATCH 0

#define PARAMD_VERSION_WORD_(number) #number
#define PARAMD_VERSION_JOIN_(major, minor, patch)                                                                      \
    PARAMD_VERSION_WORD_(major) "." PARAMD_VERSION_WORD_(minor) "." PARAMD_VERSION_WORD_(patch)
/* "0.1.0" */
#define PARAMD_VERSION PARAMD_VERSION_JOIN_(PARAMD_VERSION_MAJOR, PARAMD_VERSION_MINOR, PARAMD_VERSION_PATCH)

#endif
