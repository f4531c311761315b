/* version.c - returns the version of the library, so that a program can compare it with the header that it was
 * compiled with. */
#include "paramd/client.h"

const char *pd_version(void)
{
    return PARAMD_VERSION;
}
