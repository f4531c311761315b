/* curl.c - loads libcurl and looks up its functions. */
#include "curl.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#define FILE_NAME "libcurl.so.4"

static const struct {
    const char *name;
    size_t offset; /* offset of the function's pointer in pd_curl */
} functions[] = {
#define ENTRY(name) { #name, offsetof(pd_curl, name) },
    PD_CURL_FUNCTIONS(ENTRY)
#undef ENTRY
};

int pd_curl_load(pd_curl *out, pd_error *err)
{
    /* RTLD_NODELETE: libcurl and its TLS have registered functions that run when threads and the process end. */
    void *handle = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);

    if (handle == NULL)
        return pd_fail(err, PD_UNIMPLEMENTED, "cluster.engine needs libcurl, in Debian the package libcurl4: %s",
                       dlerror());
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++) {
        void *found = dlsym(handle, functions[i].name);
        if (found == NULL)
            return pd_fail(err, PD_UNIMPLEMENTED, FILE_NAME " has no function %s: install libcurl 7.85 or newer",
                           functions[i].name);
        memcpy((char *)out + functions[i].offset, &found, sizeof found);
    }
    if (out->curl_global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
        return pd_fail(err, PD_NO_MEMORY, "libcurl cannot begin");
    return PD_OK;
}
