/* version.c - the version of the library, for programs that were compiled with another one. */
#include "paramd/client.h"

const char *pd_version(void)
{
    return PARAMD_VERSION;
}
