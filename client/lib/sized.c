/* sized.c - reads structs of programs that were compiled with an older header, whose structs have fewer fields. */
#include "sized.h"

#include <string.h>

#include "paramd/version.h"

int pd_sized_read(void *out, size_t known, size_t least, const void *from, size_t size, const char *name, pd_error *err)
{
    if (size < least || size > known)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "%s has %zu bytes: libparamd " PARAMD_VERSION " expects %zu to %zu. Pass sizeof(%s); a program "
                       "that was built with newer headers needs a newer library",
                       name, size, least, known, name);
    memset(out, 0, known);
    memcpy(out, from, size);
    return PD_OK;
}
