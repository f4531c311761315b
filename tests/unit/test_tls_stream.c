/* Tests the bytes of TLS over a pair of sockets: both sides run on one thread, turn by turn. */
#define _GNU_SOURCE /* memmem */
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "test.h"
#include "pki.h"
#include "tls_inside.h"
#include "transport.h"

/* Cuts `n` bytes into spans of `slice` bytes. Returns the number of spans. */
static int cut(struct iovec *iov, int most, uint8_t *at, size_t n, size_t slice)
{
    int spans = 0;

    for (size_t done = 0; done < n && spans < most; done += slice, spans++)
        iov[spans] = (struct iovec){ at + done, n - done < slice ? n - done : slice };
    return spans;
}

/* Sends `bytes` bytes in spans of `out` bytes, and receives them in spans of `in` bytes. */
static void pass(size_t bytes, size_t out, size_t in)
{
    size_t sent = 0, got = 0;
    struct iovec iov[64];
    pd_error err;

    memset(tls_ends.got, 0, sizeof tls_ends.got);
    for (int turn = 0; got < bytes && turn < 100000; turn++) {
        ssize_t n =
            pd_tls_send(tls_ends.stream[TLS_CLIENT], iov, cut(iov, 64, tls_ends.sent + sent, bytes - sent, out), &err);
        assert_true(n >= 0);
        sent += (size_t)n;
        if (pd_tls_owes(tls_ends.stream[TLS_CLIENT])) pd_tls_flush(tls_ends.stream[TLS_CLIENT]);
        n = pd_tls_receive(tls_ends.stream[TLS_SERVER], iov, cut(iov, 64, tls_ends.got + got, bytes - got, in), &err);
        assert_true(n >= 0);
        got += (size_t)n;
    }
    assert_int_equal(got, bytes);
    assert_memory_equal(tls_ends.got, tls_ends.sent, bytes);
}

EACH_TEST(tls_ends_set_up, tls_ends_tear_down);

TEST(bytes_come_as_they_were_in_slices_of_every_size)
{
    static const size_t sizes[] = { 1,     2,     3,     7,     40,    64,    1000,  4096,     16383,
                                    16384, 16385, 20000, 32768, 49153, 65536, 99999, TLS_BYTES };

    tls_ends_with_token();
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++)
            pass(sizes[i] < 40 || sizes[j] < 40 ? 3000 : TLS_BYTES, sizes[i], sizes[j]);
}

TEST(small_slices_of_any_length_are_whole)
{
    tls_ends_with_token();
    for (size_t i = 1; i <= 300; i++) pass(3 * i + 1, i, 301 - i);
}

TEST(a_stream_of_another_thread_takes_spare_buffers_along_and_brings_them_back)
{
    const pd_tls_spares *spares;
    unsigned before, left;

    tls_ends_with_token();
    pass(TLS_BYTES, 50000, 50000); /* the context keeps the buffers that this has used */
    spares = &tls_ends.context[TLS_SERVER]->spares;
    before = spares->n;
    assert_true(before > 0);
    left = before > 2 ? before - 2 : 0;
    pd_tls_part(tls_ends.stream[TLS_SERVER]);
    assert_int_equal(spares->n, left);
    pass(TLS_BYTES, 50000, 50000);
    assert_int_equal(spares->n, left);
    pd_tls_join(tls_ends.stream[TLS_SERVER]);
    assert_int_equal(spares->n, before);
}

TEST(spans_without_bytes_do_no_harm)
{
    struct iovec iov[3] = { { tls_ends.sent, 0 }, { tls_ends.sent, 5 }, { tls_ends.sent, 0 } };
    pd_error err;

    tls_ends_with_token();
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], iov, 3, &err), 5);
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], iov, 1, &err), 0);
    iov[1] = (struct iovec){ tls_ends.got, 10 };
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], iov, 3, &err), 5);
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], iov, 3, &err), 0);
}

TEST(bytes_of_a_record_that_were_not_received_are_announced)
{
    struct iovec out = { tls_ends.sent, 100 }, in = { tls_ends.got, 60 };
    pd_error err;

    tls_ends_with_token();
    assert_false(pd_tls_has_more(tls_ends.stream[TLS_SERVER]));
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &out, 1, &err), 100);
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 60);
    assert_true(pd_tls_has_more(tls_ends.stream[TLS_SERVER]));
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 40);
    assert_false(pd_tls_has_more(tls_ends.stream[TLS_SERVER]));
}

TEST(a_part_of_a_record_is_not_announced)
{
    struct iovec in = { tls_ends.got, TLS_BYTES };
    uint8_t record[300];
    pd_error err;
    ssize_t n;

    tls_ends_with_token();
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &(struct iovec){ tls_ends.sent, 200 }, 1, &err), 200);
    n = recv(tls_ends.fd[TLS_SERVER], record, sizeof record, 0);
    assert_true(n > 200);
    for (ssize_t i = 0; i < n; i++) {
        assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 0);
        assert_false(pd_tls_has_more(tls_ends.stream[TLS_SERVER]));
        assert_int_equal(send(tls_ends.fd[TLS_CLIENT], record + i, 1, 0), 1);
    }
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 200);
}

TEST(records_that_came_with_others_are_announced)
{
    enum { SENT = 60000 };
    struct iovec out = { tls_ends.sent, SENT };
    size_t got = 0;
    int left = -1;
    pd_error err;

    tls_ends_with_token();
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &out, 1, &err), SENT);
    while (got < SENT) {
        ssize_t n = pd_tls_receive(tls_ends.stream[TLS_SERVER], &(struct iovec){ tls_ends.got + got, 5000 }, 1, &err);
        assert_int_equal(n, 5000);
        got += (size_t)n;
        assert_int_equal(pd_tls_has_more(tls_ends.stream[TLS_SERVER]), got < SENT);
        assert_int_equal(ioctl(tls_ends.fd[TLS_SERVER], FIONREAD, &left), 0);
        assert_int_equal(left, 0); /* the first call has received all records */
    }
    assert_memory_equal(tls_ends.got, tls_ends.sent, SENT);
}

TEST(a_record_that_came_in_part_with_others_is_not_announced)
{
    static uint8_t records[70000];
    struct iovec in = { tls_ends.got, TLS_BYTES };
    pd_error err;
    ssize_t n;

    tls_ends_with_token();
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &(struct iovec){ tls_ends.sent, 40000 }, 1, &err), 40000);
    n = recv(tls_ends.fd[TLS_SERVER], records, sizeof records, 0);
    assert_true(n > 40000 && n < 41000);
    assert_int_equal(send(tls_ends.fd[TLS_CLIENT], records, (size_t)n - 1, 0), n - 1);
    in.iov_len = 16384; /* the first record alone */
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 16384);
    assert_true(pd_tls_has_more(tls_ends.stream[TLS_SERVER]));
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 16384);
    assert_false(pd_tls_has_more(tls_ends.stream[TLS_SERVER]));
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 0);
    assert_int_equal(send(tls_ends.fd[TLS_CLIENT], records + n - 1, 1, 0), 1);
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), 40000 - 2 * 16384);
}

/* Fills the socket and the wire from one side. Returns the number of bytes that were taken. */
static size_t fill_socket(int side)
{
    size_t taken = 0;
    pd_error err;

    while (!pd_tls_owes(tls_ends.stream[side])) {
        struct iovec out[2] = { { tls_ends.sent, TLS_BYTES }, { tls_ends.sent, TLS_BYTES } };
        ssize_t n = pd_tls_send(tls_ends.stream[side], out, 2, &err);
        assert_true(n > 0);
        taken += (size_t)n;
    }
    return taken;
}

/* Receives all bytes that the other side has sent. Returns their number. */
static size_t receive_all(int side)
{
    struct iovec in = { tls_ends.got, TLS_BYTES };
    size_t got = 0;
    int left = 0;
    pd_error err;
    ssize_t n;

    do {
        pd_tls_flush(tls_ends.stream[!side]);
        if ((n = pd_tls_receive(tls_ends.stream[side], &in, 1, &err)) > 0) got += (size_t)n;
        ioctl(tls_ends.fd[side], FIONREAD, &left);
    } while (n > 0 || left > 0 || pd_tls_has_more(tls_ends.stream[side]));
    return got;
}

/* Sends 200 bytes in a record, receives them, and returns how many bytes that took on the socket. */
static int bytes_of_a_record(void)
{
    struct iovec in = { tls_ends.got, 200 };
    ssize_t got;
    int n = -1;
    pd_error err;

    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &(struct iovec){ tls_ends.sent, 200 }, 1, &err), 200);
    assert_int_equal(ioctl(tls_ends.fd[TLS_SERVER], FIONREAD, &n), 0);
    got = pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err);
    if (got == 0) got = pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err); /* the first one took a key change */
    assert_int_equal(got, 200);
    return n;
}

TEST(the_key_is_changed_when_enough_records_were_sent_with_it)
{
    enum { RECORDS = 5, KEY_UPDATE = 27 }; /* bytes of the record that announces another key */
    int plain;

    tls_ends_with_token();
    tls_ends.context[TLS_CLIENT]->key_records = RECORDS;
    plain = bytes_of_a_record();
    for (int sent = 1; sent < 4 * RECORDS; sent++)
        assert_int_equal(bytes_of_a_record(), plain + (sent % RECORDS == 0 ? KEY_UPDATE : 0));
}

enum { CHANGES = 500 };

/* Takes the place of SSL_write: changes the key many times, and then writes. */
static int write_after_changes(SSL *ssl, const void *at, int n)
{
    const pd_tls_library *lib = &tls_ends.context[TLS_SERVER]->library;

    for (int i = 0; i < CHANGES; i++) {
        assert_int_equal(lib->SSL_key_update(ssl, SSL_KEY_UPDATE_NOT_REQUESTED), 1);
        assert_int_equal(lib->SSL_do_handshake(ssl), 1);
    }
    return lib->SSL_write(ssl, at, n);
}

TEST(a_peer_that_only_changes_its_key_does_not_hold_the_receiver)
{
    struct iovec out = { tls_ends.sent, 200 }, in = { tls_ends.got, 200 };
    int turns = 0;
    pd_error err;

    tls_ends_with_token();
    tls_ends.context[TLS_CLIENT]->library.SSL_write = write_after_changes;
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &out, 1, &err), 200);
    while (pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err) == 0 && turns <= CHANGES) {
        assert_true(pd_tls_has_more(tls_ends.stream[TLS_SERVER]));
        turns++;
    }
    assert_int_equal(turns, CHANGES);
    assert_memory_equal(tls_ends.got, tls_ends.sent, 200);
}

enum { PIECES = 500, MOST_RECORDS = 256 };

/* Takes the place of SSL_write: writes each byte in a record of its own. */
static int write_single_bytes(SSL *ssl, const void *at, int n)
{
    const pd_tls_library *lib = &tls_ends.context[TLS_SERVER]->library;

    for (int i = 0; i < n; i++) assert_int_equal(lib->SSL_write(ssl, (const char *)at + i, 1), 1);
    return n;
}

TEST(a_peer_that_sends_single_bytes_does_not_hold_the_receiver)
{
    struct iovec out = { tls_ends.sent, PIECES };
    size_t got = 0;
    pd_error err;

    tls_ends_with_token();
    tls_ends.context[TLS_CLIENT]->library.SSL_write = write_single_bytes;
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &out, 1, &err), PIECES);
    while (got < PIECES) {
        struct iovec in = { tls_ends.got + got, TLS_BYTES - got };
        ssize_t n = pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err);
        assert_in_range(n, 1, MOST_RECORDS);
        got += (size_t)n;
        assert_int_equal(pd_tls_has_more(tls_ends.stream[TLS_SERVER]), got < PIECES);
    }
    assert_memory_equal(tls_ends.got, tls_ends.sent, PIECES);
}

TEST(bytes_are_whole_whenever_the_key_changes)
{
    size_t taken;

    tls_ends_with_token();
    for (int records = 1; records < 4; records++) {
        tls_ends.context[TLS_CLIENT]->key_records = (uint64_t)records;
        pass(TLS_BYTES, 50000, 70000);
        taken = fill_socket(TLS_CLIENT);
        assert_int_equal(receive_all(TLS_SERVER), taken);
    }
}

/* Takes the place of SSL_write: asks the peer twice to change its key, and then writes. OpenSSL answers the first
 * request when it reads the second one. */
static int write_after_requests(SSL *ssl, const void *at, int n)
{
    const pd_tls_library *lib = &tls_ends.context[TLS_SERVER]->library;

    for (int i = 0; i < 2; i++) {
        assert_int_equal(lib->SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(lib->SSL_do_handshake(ssl), 1);
    }
    return lib->SSL_write(ssl, at, n);
}

TEST(a_receiver_that_must_answer_first_waits_for_room)
{
    struct iovec out = { tls_ends.sent, 200 }, in = { tls_ends.got, 200 };
    pd_tls_stream *server;
    size_t taken;
    pd_error err;

    tls_ends_with_token();
    server = tls_ends.stream[TLS_SERVER];
    taken = fill_socket(TLS_SERVER);
    tls_ends.context[TLS_CLIENT]->library.SSL_write = write_after_requests;
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &out, 1, &err), 200);
    for (int i = 0; i < 10; i++) assert_int_equal(pd_tls_receive(server, &in, 1, &err), 0);
    assert_false(pd_tls_has_more(server)); /* its owner would try again and again */
    assert_int_equal(pd_tls_events(server, PD_ON_READ), PD_ON_WRITE);
    assert_int_equal(receive_all(TLS_CLIENT), taken);
    assert_int_equal(pd_tls_events(server, PD_ON_READ), PD_ON_READ);
    assert_true(pd_tls_has_more(server));
    assert_int_equal(receive_all(TLS_SERVER), 200);
    assert_memory_equal(tls_ends.got, tls_ends.sent, 200);
}

TEST(a_full_socket_takes_nothing_more_and_loses_nothing)
{
    struct iovec out = { tls_ends.sent, TLS_BYTES };
    size_t taken;
    pd_error err;

    tls_ends_with_token();
    taken = fill_socket(TLS_CLIENT);
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &out, 1, &err), 0);
    assert_in_range(pd_tls_held(tls_ends.stream[TLS_CLIENT]), 256 * 1024, 272 * 1024);
    /* the bytes still to be sent are a copy, so the caller may change its own */
    memset(tls_ends.sent, 0xee, sizeof tls_ends.sent);
    assert_int_equal(receive_all(TLS_SERVER), taken);
    assert_false(pd_tls_owes(tls_ends.stream[TLS_CLIENT]));
    assert_int_equal(pd_tls_held(tls_ends.stream[TLS_CLIENT]), 0);
    assert_int_equal(pd_tls_held(tls_ends.stream[TLS_SERVER]), 0);
}

/* Takes the place of SSL_shutdown, whose result it notes: 0 if the farewell was sent. */
static int farewell;

static int say_farewell(SSL *ssl)
{
    return farewell = tls_ends.context[TLS_SERVER]->library.SSL_shutdown(ssl);
}

TEST(the_end_comes_behind_all_bytes_that_were_sent)
{
    struct iovec in = { tls_ends.got, TLS_BYTES };
    size_t taken;
    pd_error err;

    tls_ends_with_token();
    taken = fill_socket(TLS_CLIENT);
    farewell = -1;
    tls_ends.context[TLS_CLIENT]->library.SSL_shutdown = say_farewell;
    pd_tls_shut(tls_ends.stream[TLS_CLIENT]);
    assert_int_equal(receive_all(TLS_SERVER), taken);
    assert_int_equal(farewell, 0);
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), PD_CANCELLED);
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_SERVER], &(struct iovec){ tls_ends.sent, 9 }, 1, &err), 9);
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_CLIENT], &in, 1, &err), 9); /* the other side goes on */
}

TEST(an_end_without_farewell_is_an_end)
{
    struct iovec in = { tls_ends.got, TLS_BYTES };
    pd_error err;

    tls_ends_with_token();
    shutdown(tls_ends.fd[TLS_CLIENT], SHUT_WR);
    assert_int_equal(pd_tls_receive(tls_ends.stream[TLS_SERVER], &in, 1, &err), PD_CANCELLED);
}

TEST(a_changed_byte_breaks_the_connection)
{
    uint8_t record[200];
    ssize_t n;
    pd_error err;

    tls_ends_with_token();
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_CLIENT], &(struct iovec){ tls_ends.sent, 50 }, 1, &err), 50);
    n = recv(tls_ends.fd[TLS_SERVER], record, sizeof record, 0);
    assert_true(n > 50);
    record[n - 20] ^= 1;
    assert_int_equal(send(tls_ends.fd[TLS_CLIENT], record, (size_t)n, 0), n);
    tls_ends_expect_receive_failure(TLS_SERVER, "TLS failed");
    tls_ends_expect_receive_failure(TLS_SERVER, "TLS failed"); /* and stays broken */
    assert_int_equal(pd_tls_send(tls_ends.stream[TLS_SERVER], &(struct iovec){ tls_ends.sent, 9 }, 1, &err),
                     PD_UNAVAILABLE);
    assert_false(pd_tls_owes(tls_ends.stream[TLS_SERVER])); /* nobody is to wait for a socket that can be written */
    tls_ends_expect_receive_failure(TLS_CLIENT, "bad record mac"); /* the alert has told the reason */
}

TEST(nothing_of_the_bytes_can_be_read_on_the_way)
{
    static const char secret[] = "layers.0.attention.weight";
    uint8_t seen[400];
    ssize_t n;
    pd_error err;

    tls_ends_with_token();
    pd_tls_send(tls_ends.stream[TLS_CLIENT], &(struct iovec){ (void *)secret, sizeof secret }, 1, &err);
    n = recv(tls_ends.fd[TLS_SERVER], seen, sizeof seen, 0);
    assert_true(n > (ssize_t)sizeof secret);
    assert_null(memmem(seen, (size_t)n, secret, 8));
}

static int try_connection(const void *unused)
{
    pd_tls_files files = { .tokens = tls_ends.tokens };
    pd_tls_context *context;
    pd_tls_stream *stream;
    pd_error err;
    int rc = pd_tls_server(&context, &files, NULL);
    (void)unused;

    if (rc != PD_OK) return rc;
    if ((rc = pd_tls_stream_new(&stream, context, tls_ends.fd[TLS_SERVER], NULL, NULL)) == PD_OK) {
        if (pd_tls_handshake(stream, &err) == PD_TLS_FAILED) rc = err.code;
        pd_tls_stream_free(stream);
    }
    pd_tls_unref(context);
    return rc;
}

HOLDS(says_that_memory_is_out, assert_true(oom_each(try_connection, NULL) >= 3));

TEST(bytes_that_cannot_be_kept_break_the_connection)
{
    struct iovec out = { tls_ends.sent, TLS_BYTES };
    ssize_t n = 1;
    pd_error err;

    tls_ends_with_token();
    oom_arm(0);
    while (n > 0) n = pd_tls_send(tls_ends.stream[TLS_CLIENT], &out, 1, &err);
    assert_true(oom_disarm());
    assert_int_equal(n, PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "out of memory"));
}
