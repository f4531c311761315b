/* tls_library.c - OpenSSL's functions, loaded when the first tls:// address needs them. */
#include "tls_library.h"

#include <dlfcn.h>
#include <string.h>

#define FILE_NAME "libssl.so.3"

static const struct {
    const char *name;
    size_t offset; /* of the function's pointer in pd_tls_library */
} functions[] = {
#define ENTRY(name) { #name, offsetof(pd_tls_library, name) },
    PD_TLS_FUNCTIONS(ENTRY)
#undef ENTRY
};
enum { N_FUNCTIONS = sizeof functions / sizeof functions[0] };

/* Looks all functions up. libssl's handle finds those of libcrypto as well, which it depends on. */
static int look_up(pd_tls_library *library, pd_error *err)
{
    for (size_t i = 0; i < N_FUNCTIONS; i++) {
        void *found = dlsym(library->handle, functions[i].name);
        if (found == NULL)
            return pd_fail(err, PD_UNIMPLEMENTED, FILE_NAME " has no function %s: install OpenSSL 3.0 or newer",
                           functions[i].name);
        memcpy((char *)library + functions[i].offset, &found, sizeof found);
    }
    return PD_OK;
}

int pd_tls_library_open(pd_tls_library *out, bool own, pd_error *err)
{
    int rc;

    /* RTLD_NODELETE: OpenSSL has registered functions for the end of threads and of the process. */
    if ((out->handle = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) == NULL)
        return pd_fail(err, PD_UNIMPLEMENTED, "tls:// needs OpenSSL 3, in Debian the package libssl3: %s", dlerror());
    rc = look_up(out, err);
    if (rc == PD_OK && own && (out->own = out->OSSL_LIB_CTX_new()) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (rc != PD_OK) pd_tls_library_close(out);
    return rc;
}

void pd_tls_library_close(pd_tls_library *library)
{
    if (library->own != NULL) library->OSSL_LIB_CTX_free(library->own);
    if (library->handle != NULL) dlclose(library->handle);
    memset(library, 0, sizeof *library);
}
