/* identity.c - who a peer is, as far as its connection proves it. */
#include "identity.h"

#include <stdio.h>
#include <string.h>

#include "text.h"

static const char *const kinds[] = {
    [PD_IDENTITY_USER] = "user", [PD_IDENTITY_TOKEN] = "token", [PD_IDENTITY_CERTIFICATE] = "certificate"
};

void pd_identity_set(pd_identity *identity, pd_identity_kind kind, const char *name)
{
    size_t n = kind != PD_IDENTITY_NONE ? strlen(name) : 0;

    memset(identity, 0, sizeof *identity);
    if (n > 0 && strlen(kinds[kind]) + 1 + n < sizeof identity->text && pd_text_printable(name, n) == n) {
        identity->kind = kind;
        snprintf(identity->text, sizeof identity->text, "%s:%s", kinds[kind], name);
    } else {
        strcpy(identity->text, "anyone");
    }
}
