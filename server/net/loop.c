/* loop.c - what the loop thread's files share: connections found by number, requests to the store, the clock, the
 * log. */
#include "loop.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* Bytes that all connections together should move in one turn of the loop, so that a turn stays short. */
#define TURN_BYTES (1024 * 1024)
#define LEAST_QUOTA (32 * 1024)
#define MOST_QUOTA (256 * 1024)

uint64_t pd_loop_now_ms(const pd_daemon *daemon)
{
    return daemon->platform.now_ms(daemon->platform.arg);
}
uint64_t pd_loop_clock_ns(const pd_daemon *daemon)
{
    return daemon->platform.clock_ns(daemon->platform.arg);
}

void pd_loop_log(const pd_daemon *daemon, int level, pd_log_facts facts, const char *format, ...)
{
    pd_log_entry entry;
    va_list args;

    va_start(args, format);
    pd_log_entry_make(&entry, level, facts, format, args);
    va_end(args);
    daemon->config.log(&entry);
}

void pd_loop_host(char *host, const char *peer)
{
    const char *colon = strrchr(peer, ':');
    size_t n = colon != NULL ? (size_t)(colon - peer) : strlen(peer);

    snprintf(host, PD_LOG_PEER, "%.*s", (int)n, peer);
}

void pd_loop_count_refusal(pd_daemon *daemon, int code)
{
    _Static_assert(PD_LOOP_CODES == 1 - PD_REWIND, "each error code has a counter");
    daemon->frames_refused++;
    if (code <= 0 && code > -PD_LOOP_CODES) daemon->refused_by[-code]++;
}

/* ---- connections by number: a connection's index in the table is number % capacity ---- */

struct pd_conn *pd_loop_find(pd_daemon *daemon, uint64_t number)
{
    size_t place = number % daemon->capacity;
    return daemon->numbers[place] == number ? daemon->conns[place] : NULL;
}

int pd_loop_place(pd_daemon *daemon, struct pd_conn *conn, uint64_t *number)
{
    size_t place = daemon->next_place;

    if (daemon->n_conns == daemon->capacity) return PD_RESOURCE_EXHAUSTED;
    while (daemon->conns[place] != NULL) place = (place + 1) % daemon->capacity;
    *number = daemon->numbers[place] = ++daemon->serial * daemon->capacity + place;
    daemon->conns[place] = conn;
    daemon->parties[place] = 0;
    daemon->n_conns++;
    daemon->next_place = (place + 1) % daemon->capacity;
    return PD_OK;
}

void pd_loop_set_party(pd_daemon *daemon, uint64_t number, uint64_t party)
{
    daemon->parties[number % daemon->capacity] = party;
}

void pd_loop_remove(pd_daemon *daemon, uint64_t number)
{
    daemon->conns[number % daemon->capacity] = NULL;
    daemon->n_conns--;
}

size_t pd_loop_quota(const pd_daemon *daemon)
{
    size_t quota = TURN_BYTES / (daemon->was_active > 0 ? daemon->was_active : 1);

    if (quota > MOST_QUOTA) return MOST_QUOTA;
    return quota < LEAST_QUOTA ? LEAST_QUOTA : quota;
}

/* ---- requests to the store ---- */

/* Notes which identity sends a request: that of its connection, which may be closed by now. The daemon's own requests
 * have no connection. */
static void sign(const pd_daemon *daemon, pd_request *request)
{
    size_t place = request->ticket.conn % daemon->capacity;

    if (daemon->numbers[place] == request->ticket.conn) request->party = daemon->parties[place];
}

void pd_loop_post(pd_daemon *daemon, pd_request *request)
{
    if (request->party == 0) sign(daemon, request);
    request->mail.next = NULL;
    if (daemon->post_first == NULL)
        daemon->post_first = &request->mail;
    else
        daemon->post_last->next = &request->mail;
    daemon->post_last = &request->mail;
}

void pd_loop_keep_notice(pd_daemon *daemon, pd_request *notice)
{
    sign(daemon, notice);
    notice->mail.next = daemon->notices != NULL ? &daemon->notices->mail : NULL;
    daemon->notices = notice;
}

pd_request *pd_loop_take_notice(pd_daemon *daemon, uint64_t number)
{
    pd_request *before = NULL, *notice = daemon->notices, *next;

    for (; notice != NULL && notice->ticket.conn != number; notice = (pd_request *)(void *)notice->mail.next)
        before = notice;
    if (notice == NULL) return NULL;
    next = (pd_request *)(void *)notice->mail.next;
    if (before == NULL)
        daemon->notices = next;
    else
        before->mail.next = notice->mail.next;
    return notice;
}

void pd_loop_post_released(pd_daemon *daemon)
{
    pd_request *request;

    if (daemon->released == NULL) return;
    request = pd_request_new(PD_REQ_RELEASED, (pd_ticket){ 0, 0 });
    /* out of memory: the published versions stay in the list for the next turn */
    if (request == NULL) return;
    request->u.released.first = daemon->released;
    daemon->released = NULL;
    pd_loop_post(daemon, request);
}

/* Posts all requests of a turn with one operation, so that the step thread is woken only once. */
void pd_loop_flush(pd_daemon *daemon)
{
    int rc;

    pd_loop_post_released(daemon);
    if (daemon->post_first == NULL) return;
    rc = pd_mailbox_post(daemon->requests, daemon->post_first, daemon->post_last);
    assert(rc == PD_OK); /* posting cannot fail, because the mailbox is closed only after the loop thread has ended */
    (void)rc;
    daemon->post_first = daemon->post_last = NULL;
}
