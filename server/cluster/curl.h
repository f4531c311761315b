/* curl.h - the functions of libcurl, which is loaded only by a daemon with an engine (cluster.engine). */
#ifndef PD_CURL_H
#define PD_CURL_H

#define CURL_DISABLE_TYPECHECK 1 /* its macros would not see through the table of functions */
#include <curl/curl.h>

#include "paramd/error.h"

/* The functions that are called, as X(name). Their types are those of curl.h. */
#define PD_CURL_FUNCTIONS(X)                                                                                           \
    X(curl_global_init)                                                                                                \
    X(curl_easy_init)                                                                                                  \
    X(curl_easy_setopt)                                                                                                \
    X(curl_easy_getinfo)                                                                                               \
    X(curl_easy_cleanup)                                                                                               \
    X(curl_easy_strerror)                                                                                              \
    X(curl_slist_append)                                                                                               \
    X(curl_slist_free_all)                                                                                             \
    X(curl_multi_init)                                                                                                 \
    X(curl_multi_setopt)                                                                                               \
    X(curl_multi_add_handle)                                                                                           \
    X(curl_multi_remove_handle)                                                                                        \
    X(curl_multi_socket_action)                                                                                        \
    X(curl_multi_info_read)                                                                                            \
    X(curl_multi_cleanup)

typedef struct pd_curl {
#define PD_CURL_MEMBER(name) __typeof__(name) *name;
    PD_CURL_FUNCTIONS(PD_CURL_MEMBER)
#undef PD_CURL_MEMBER
} pd_curl;

/* Loads libcurl, once in a process. PD_UNIMPLEMENTED: it is not installed, or too old. */
int pd_curl_load(pd_curl *out, pd_error *err);

#endif
