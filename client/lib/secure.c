/* secure.c - makes connections to tls:// addresses. */
#include "secure.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CERTIFICATE, KEY, CA, TOKEN, N_PATHS };

/* ---- the files ---- */

static pd_tls_files files_of(const pd_secure *secure)
{
    return (pd_tls_files){ .certificate = secure->paths[CERTIFICATE],
                           .key = secure->paths[KEY],
                           .ca = secure->paths[CA],
                           .tokens = secure->paths[TOKEN] };
}

static int copy_paths(pd_secure *out, const pd_tls_files *files, pd_error *err)
{
    const char *const paths[N_PATHS] = { files->certificate, files->key, files->ca, files->tokens };

    *out = (pd_secure){ .paths = { NULL } };
    for (int i = 0; i < N_PATHS; i++)
        if (paths[i] != NULL && (out->paths[i] = strdup(paths[i])) == NULL) {
            pd_secure_close(out);
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
        }
    return PD_OK;
}

static int check_files(const pd_secure *secure, pd_error *err)
{
    pd_tls_files files = files_of(secure);
    pd_tls_context *context;
    int rc = pd_tls_client(&context, &files, err);

    if (rc == PD_OK) pd_tls_unref(context);
    return rc;
}

int pd_secure_open(pd_secure *out, const pd_tls_files *files, const pd_address *urls, size_t n, pd_error *err)
{
    bool secure = false;
    int rc = copy_paths(out, files, err);

    for (size_t i = 0; i < n; i++) secure |= urls[i].secure;
    return rc == PD_OK && secure ? check_files(out, err) : rc;
}

void pd_secure_close(pd_secure *secure)
{
    for (int i = 0; i < N_PATHS; i++) free(secure->paths[i]);
    *secure = (pd_secure){ .paths = { NULL } };
}

/* ---- the handshake ---- */

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Waits until the socket is ready for the next step of the handshake. */
static int await(int fd, short events, int stop_fd, int64_t deadline, pd_error *err)
{
    struct pollfd wait[2] = { { .fd = fd, .events = events }, { .fd = stop_fd, .events = POLLIN } };
    int64_t left;
    int n;

    do {
        left = deadline - now_ms();
        n = poll(wait, 2, left > 0 ? (int)left : 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return pd_fail(err, PD_UNAVAILABLE, "waiting for the handshake: %s", strerror(errno));
    if (wait[1].revents != 0) return pd_fail(err, PD_CANCELLED, "told to stop");
    if (n == 0) return pd_fail(err, PD_DEADLINE_EXCEEDED, "the TLS handshake took too long: is there a daemon?");
    return PD_OK;
}

static int shake_hands(pd_tls_stream *stream, int fd, int stop_fd, int timeout_ms, pd_error *err)
{
    int64_t deadline = now_ms() + timeout_ms;
    int rc = PD_OK;

    while (rc == PD_OK) {
        pd_tls_step step = pd_tls_handshake(stream, err);
        if (step == PD_TLS_DONE) return PD_OK;
        if (step == PD_TLS_FAILED) return err->code;
        rc = await(fd, step == PD_TLS_READ ? POLLIN : POLLOUT, stop_fd, deadline, err);
    }
    return rc;
}

int pd_secure_connect(const pd_secure *secure, pd_tls_stream **out, int fd, const char *host, int stop_fd,
                      int timeout_ms, pd_error *err)
{
    pd_tls_files files = files_of(secure);
    pd_tls_context *context;
    int rc = pd_tls_client(&context, &files, err);

    if (rc != PD_OK) return rc;
    rc = pd_tls_stream_new(out, context, fd, host, err);
    pd_tls_unref(context); /* the stream shares it */
    if (rc != PD_OK) return rc;
    if ((rc = shake_hands(*out, fd, stop_fd, timeout_ms, err)) != PD_OK) pd_tls_stream_free(*out);
    return rc;
}
