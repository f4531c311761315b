/* tls_wire.c - carries the TLS records of a connection between OpenSSL and the socket, many with one system call. */
#include "tls_inside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

/* HEAD: bytes at the beginning of a TLS record, which tell its length. RECORD: most bytes of a record: its head, 16 KiB
 * of data, one byte for their type, and a tag of 16 bytes. */
enum { HEAD = 5, RECORD = HEAD + 16 * 1024 + 1 + 16 };
/* SPACE: bytes for which a buffer has room. MOST_SPARE: most unused buffers that a context keeps. */
enum { SPACE = 16 * RECORD, MOST_SPARE = 4 };

struct pd_tls_buffer {
    pd_tls_buffer *next; /* next one in the context's list of spare buffers */
    size_t from, to;     /* the buffer has bytes at[from] up to, but not including, at[to] */
    uint8_t at[SPACE];
};

struct pd_tls_wire {
    pd_tls_context *context;
    pd_tls_spares own; /* spare buffers that the wire has taken along, while `parted` */
    bool parted;       /* another thread than the context's uses the wire */
    int fd;
    bool emptied;            /* the socket had no more bytes when it was last read */
    bool ended;              /* the peer has ended its side */
    bool sends;              /* OpenSSL writes into the wire, because the kernel does not encrypt */
    pd_tls_buffer *in, *out; /* received bytes for OpenSSL, bytes for the socket; NULL: none */
};

static _Thread_local pd_tls_wire *used;

void pd_tls_wire_use(pd_tls_wire *wire)
{
    used = wire;
}

/* Returns the spare buffers that the wire may use now. */
static pd_tls_spares *spares_of(pd_tls_wire *wire)
{
    return wire->parted ? &wire->own : &wire->context->spares;
}

/* Removes a spare buffer from the list. Returns NULL if there is none. */
static pd_tls_buffer *unlist(pd_tls_spares *spares)
{
    pd_tls_buffer *buffer = spares->first;

    if (buffer == NULL) return NULL;
    spares->first = buffer->next;
    spares->n--;
    return buffer;
}

/* Adds a buffer to the list, or frees it if the list has enough of them. Accepts NULL. */
static void list(pd_tls_spares *spares, pd_tls_buffer *buffer)
{
    if (buffer == NULL) return;
    if (spares->n == MOST_SPARE) {
        free(buffer);
        return;
    }
    buffer->next = spares->first;
    spares->first = buffer;
    spares->n++;
}

static pd_tls_buffer *take_buffer(pd_tls_wire *wire)
{
    pd_tls_buffer *buffer = unlist(spares_of(wire));

    if (buffer == NULL) buffer = malloc(sizeof *buffer);
    if (buffer != NULL) buffer->from = buffer->to = 0;
    return buffer;
}

/* Adds a buffer of the wire, or none, to its spare buffers. Sets *at to NULL. */
static void give_buffer(pd_tls_wire *wire, pd_tls_buffer **at)
{
    list(spares_of(wire), *at);
    *at = NULL;
}

void pd_tls_wire_part(pd_tls_wire *wire)
{
    for (int i = 0; i < 2; i++) list(&wire->own, unlist(&wire->context->spares));
    wire->parted = true;
}

void pd_tls_wire_join(pd_tls_wire *wire)
{
    wire->parted = false;
    while (wire->own.n > 0) list(&wire->context->spares, unlist(&wire->own));
}

/* Reads the n bytes that OpenSSL asks for to `to`, and the bytes that follow them into the receive buffer. Returns what
 * readv() would return for the n bytes alone. */
static ssize_t receive(pd_tls_wire *wire, void *to, size_t n)
{
    struct iovec iov[2] = { { to, n }, { wire->in->at, SPACE } };
    ssize_t got;

    do got = readv(wire->fd, iov, 2);
    while (got < 0 && errno == EINTR);
    wire->emptied = got < (ssize_t)(n + SPACE);
    wire->ended = got == 0;
    wire->in->from = 0;
    wire->in->to = got > (ssize_t)n ? (size_t)got - n : 0;
    return got > (ssize_t)n ? (ssize_t)n : got;
}

/* Moves at most n bytes from the buffer to `to`. Returns their number. */
static size_t copy_out(pd_tls_buffer *in, void *to, size_t n)
{
    size_t left = in->to - in->from;

    if (n > left) n = left;
    memcpy(to, in->at + in->from, n);
    in->from += n;
    return n;
}

/* Tells OpenSSL to call again later; `flag` says whether it wants to read or to write. Returns -1. */
static int later(const pd_tls_wire *wire, BIO *bio, int flag)
{
    wire->context->library.BIO_set_flags(bio, flag | BIO_FLAGS_SHOULD_RETRY);
    return -1;
}

/* OpenSSL calls this to read: returns at most n bytes from the peer. */
static int read_bytes(BIO *bio, char *to, int n)
{
    pd_tls_wire *wire = used;
    ssize_t got;

    wire->context->library.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (wire->in != NULL && wire->in->from < wire->in->to) return (int)copy_out(wire->in, to, (size_t)n);
    if (wire->emptied) return later(wire, bio, BIO_FLAGS_READ);
    if (wire->in == NULL && (wire->in = take_buffer(wire)) == NULL) {
        errno = ENOMEM;
        return -1;
    }
    got = receive(wire, to, (size_t)n);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return later(wire, bio, BIO_FLAGS_READ);
    return (int)got;
}

void pd_tls_wire_ask(pd_tls_wire *wire)
{
    wire->emptied = false;
}

void pd_tls_wire_rest(pd_tls_wire *wire)
{
    if (wire->in != NULL && wire->in->from == wire->in->to) give_buffer(wire, &wire->in);
}

bool pd_tls_wire_has_record(const pd_tls_wire *wire)
{
    const uint8_t *at;
    size_t n;

    if (wire->in == NULL) return false;
    at = wire->in->at + wire->in->from;
    n = wire->in->to - wire->in->from;
    return n >= HEAD && n >= HEAD + ((size_t)at[3] << 8 | at[4]);
}

int pd_tls_wire_flush(pd_tls_wire *wire)
{
    pd_tls_buffer *out = wire->out;
    ssize_t sent = 1;

    if (out == NULL) return 0;
    while (out->from < out->to && sent > 0) {
        do sent = send(wire->fd, out->at + out->from, out->to - out->from, MSG_NOSIGNAL | MSG_DONTWAIT);
        while (sent < 0 && errno == EINTR);
        if (sent > 0) out->from += (size_t)sent;
    }
    if (out->from == out->to) give_buffer(wire, &wire->out);
    return sent > 0 || errno == EAGAIN || errno == EWOULDBLOCK ? 0 : errno;
}

bool pd_tls_wire_has_room(pd_tls_wire *wire)
{
    if (wire->out != NULL && SPACE - wire->out->to < RECORD) pd_tls_wire_flush(wire);
    return wire->out == NULL || SPACE - wire->out->to >= RECORD;
}

bool pd_tls_wire_sends(const pd_tls_wire *wire)
{
    return wire->sends;
}

bool pd_tls_wire_owes(const pd_tls_wire *wire)
{
    return wire->out != NULL;
}

size_t pd_tls_wire_held(const pd_tls_wire *wire)
{
    return ((wire->in != NULL) + (wire->out != NULL)) * sizeof(pd_tls_buffer);
}

/* OpenSSL calls this to write: copies all n bytes for the peer to the send buffer, or none. */
static int write_bytes(BIO *bio, const char *from, int n)
{
    pd_tls_wire *wire = used;

    wire->context->library.BIO_clear_flags(bio, BIO_FLAGS_RWS | BIO_FLAGS_SHOULD_RETRY);
    if (!pd_tls_wire_has_room(wire)) return later(wire, bio, BIO_FLAGS_WRITE);
    if (wire->out == NULL && (wire->out = take_buffer(wire)) == NULL) {
        errno = ENOMEM;
        return -1;
    }
    memcpy(wire->out->at + wire->out->to, from, (size_t)n);
    wire->out->to += (size_t)n;
    return n;
}

/* OpenSSL calls this to ask whether the stream has ended, and to flush. Bytes in the send buffer count as flushed, as
 * those in the kernel's buffer do. */
static long control(BIO *bio, int what, long number, void *pointer)
{
    (void)bio, (void)number, (void)pointer;
    if (what == BIO_CTRL_EOF) return used->ended;
    return what == BIO_CTRL_FLUSH;
}

int pd_tls_wire_open(pd_tls_context *context, pd_error *err)
{
    const pd_tls_library *lib = &context->library;

    if ((context->method = lib->BIO_meth_new(BIO_TYPE_SOURCE_SINK, "paramd")) == NULL ||
        lib->BIO_meth_set_read(context->method, read_bytes) != 1 ||
        lib->BIO_meth_set_write(context->method, write_bytes) != 1 ||
        lib->BIO_meth_set_ctrl(context->method, control) != 1)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return PD_OK;
}

void pd_tls_wire_close(pd_tls_context *context)
{
    while (context->spares.n > 0) free(unlist(&context->spares));
    if (context->method != NULL) context->library.BIO_meth_free(context->method);
}

/* Makes OpenSSL read and write the wire instead of the socket, except in a direction in which the kernel encrypts
 * (kTLS). */
static void replace_socket(pd_tls_wire *wire, SSL *ssl, BIO *bio)
{
    const pd_tls_library *lib = &wire->context->library;

    if (lib->BIO_ctrl(lib->SSL_get_rbio(ssl), BIO_CTRL_GET_KTLS_RECV, 0, NULL) <= 0) {
        lib->BIO_up_ref(bio);
        lib->SSL_set0_rbio(ssl, bio);
    }
    if (lib->BIO_ctrl(lib->SSL_get_wbio(ssl), BIO_CTRL_GET_KTLS_SEND, 0, NULL) <= 0) {
        wire->sends = true;
        lib->BIO_up_ref(bio);
        lib->SSL_set0_wbio(ssl, bio);
    }
}

int pd_tls_wire_new(pd_tls_wire **out, pd_tls_context *context, SSL *ssl, int fd, pd_error *err)
{
    const pd_tls_library *lib = &context->library;
    pd_tls_wire *wire = calloc(1, sizeof *wire);
    BIO *bio = wire != NULL ? lib->BIO_new_ex(lib->own, context->method) : NULL;

    if (bio == NULL) {
        free(wire);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    wire->context = context;
    wire->fd = fd;
    lib->BIO_set_init(bio, 1);
    replace_socket(wire, ssl, bio);
    lib->BIO_free(bio);
    *out = wire;
    return PD_OK;
}

void pd_tls_wire_free(pd_tls_wire *wire)
{
    if (wire == NULL) return;
    give_buffer(wire, &wire->in);
    give_buffer(wire, &wire->out);
    free(wire);
}
