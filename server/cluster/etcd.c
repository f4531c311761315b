/* etcd.c - the engine etcd: posts requests to the JSON gateway of its members, through libcurl's multi interface.
 *
 * A request is tried at one member after the other, each for a short time, beginning with the member that has answered
 * last. libcurl's sockets lie in an epoll set, whose descriptor the loop watches. With a user, a request that has no
 * token, or whose token is refused, first asks the member for one. */
#define _DEFAULT_SOURCE /* explicit_bzero */
#include "engine.h"

#include "address.h"
#include "curl.h"
#include "etcd_json.h"
#include "etcd_login.h"
#include "grow.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { MOST_MEMBERS = 16, MOST_REQUESTS = 8, MEMBER_URL = 384, EVENTS = 16 };

/* A call, and the try at one member that is under way. */
typedef struct request {
    struct etcd *etcd; /* NULL: this place is free */
    pd_engine_call *call;
    CURL *easy; /* NULL: the next try begins in the next turn */
    pd_etcd_kind kind;
    uint64_t lease, ttl_ms; /* REGISTER: the lease that was granted; 0: it was not */
    uint64_t heard_ms;      /* WATCH: when something was last received, or the try began */
    unsigned member, tries; /* member: which one is asked. tries: how many were asked for this body */
    bool begun;             /* WATCH: etcd has confirmed it */
    bool failed;            /* a try has ended without an answer that counts */
    bool logs_in;           /* the try asks for a token, before the request itself */
    bool refused;           /* this member has refused the token of an earlier try */
    uint64_t token;         /* number of the token with which the try was begun (pd_etcd_login) */
    struct curl_slist *headers;
    const char *path;
    char body[PD_ETCD_BODY], url[MEMBER_URL + 32];
    char *in; /* what was received and is not read yet */
    size_t n, room;
    pd_error why;
} request;

typedef struct etcd {
    pd_engine base; /* must be the first member */
    pd_etcd_config config;
    pd_curl curl;
    CURLM *multi;
    pd_etcd_login login;
    char member[MOST_MEMBERS][MEMBER_URL];
    unsigned n_members, current; /* current: the member that is asked first */
    request at[MOST_REQUESTS];
    pd_etcd_answer answer;        /* the answer that is read now */
    uint64_t now_ms, curl_due_ms; /* curl_due_ms: when libcurl wants a turn; UINT64_MAX: at no time */
} etcd;

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *known)
{
    etcd *e = arg;
    struct epoll_event event = { .data.fd = fd };

    (void)easy, (void)known;
    if (what & CURL_POLL_IN) event.events |= EPOLLIN;
    if (what & CURL_POLL_OUT) event.events |= EPOLLOUT;
    if (what == CURL_POLL_REMOVE)
        epoll_ctl(e->base.fd, EPOLL_CTL_DEL, fd, NULL);
    else if (epoll_ctl(e->base.fd, EPOLL_CTL_MOD, fd, &event) != 0)
        epoll_ctl(e->base.fd, EPOLL_CTL_ADD, fd, &event);
    return 0;
}

static int on_timeout(CURLM *multi, long ms, void *arg)
{
    etcd *e = arg;

    (void)multi;
    e->curl_due_ms = ms < 0 ? UINT64_MAX : e->now_ms + (uint64_t)ms;
    return 0;
}

/* Keeps received bytes. An answer that is too long ends the try. */
static size_t on_bytes(char *at, size_t size, size_t n, void *arg)
{
    request *r = arg;
    void *in = r->in;

    n *= size;
    if (r->n + n > PD_ETCD_ANSWER || pd_grow(&in, &r->room, r->n + n, 1) != PD_OK) {
        pd_fail(&r->why, PD_DATA_LOSS, "its answer has more than %d bytes", (int)PD_ETCD_ANSWER);
        return 0;
    }
    r->in = in;
    memcpy(r->in + r->n, at, n);
    r->n += n;
    r->heard_ms = r->etcd->now_ms;
    return n;
}

static struct curl_blob blob_of(const char *text)
{
    return (struct curl_blob){ .data = (void *)(uintptr_t)text, .len = strlen(text), .flags = CURL_BLOB_NOCOPY };
}

static void set_tls(const etcd *e, CURL *easy)
{
    struct curl_blob ca, cert, key;

    if (e->config.ca != NULL) {
        ca = blob_of(e->config.ca);
        e->curl.curl_easy_setopt(easy, CURLOPT_CAINFO_BLOB, &ca);
    }
    if (e->config.cert == NULL) return;
    cert = blob_of(e->config.cert);
    key = blob_of(e->config.key);
    e->curl.curl_easy_setopt(easy, CURLOPT_SSLCERT_BLOB, &cert);
    e->curl.curl_easy_setopt(easy, CURLOPT_SSLKEY_BLOB, &key);
}

/* Returns whether the try under way is a watch, whose answer has no end. */
static bool is_watch(const request *r)
{
    return r->kind == PD_ETCD_CHANGES && !r->logs_in;
}

/* Makes the headers of a try. Returns false if out of memory. */
static bool add_headers(const etcd *e, request *r)
{
    /* hasleader: a member that has lost the leader ends the watch, and does not stay silent. */
    struct curl_slist *more = e->curl.curl_slist_append(NULL, "Grpc-Metadata-hasleader: true");

    r->headers = more;
    if (more != NULL && e->login.header != NULL) more = e->curl.curl_slist_append(r->headers, e->login.header);
    r->token = e->login.number;
    return more != NULL;
}

/* Sets the options of a try. */
static void set_options(const etcd *e, request *r)
{
    const pd_curl *curl = &e->curl;

    snprintf(r->url, sizeof r->url, "%s%s", e->member[r->member], r->logs_in ? PD_ETCD_LOGIN : r->path);
    curl->curl_easy_setopt(r->easy, CURLOPT_URL, r->url);
    curl->curl_easy_setopt(r->easy, CURLOPT_POSTFIELDS, r->logs_in ? e->login.body : r->body);
    curl->curl_easy_setopt(r->easy, CURLOPT_HTTPHEADER, r->headers);
    curl->curl_easy_setopt(r->easy, CURLOPT_WRITEFUNCTION, on_bytes);
    curl->curl_easy_setopt(r->easy, CURLOPT_WRITEDATA, r);
    curl->curl_easy_setopt(r->easy, CURLOPT_PRIVATE, r);
    curl->curl_easy_setopt(r->easy, CURLOPT_NOSIGNAL, 1L);
    curl->curl_easy_setopt(r->easy, CURLOPT_PROXY, "");
    curl->curl_easy_setopt(r->easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl->curl_easy_setopt(r->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)e->config.try_ms);
    if (!is_watch(r)) curl->curl_easy_setopt(r->easy, CURLOPT_TIMEOUT_MS, (long)e->config.try_ms);
    set_tls(e, r->easy);
}

/* Begins a try at the request's member: the request itself, or that for a token. Returns false if out of memory. */
static bool begin_try(etcd *e, request *r)
{
    if ((r->easy = e->curl.curl_easy_init()) == NULL || !add_headers(e, r)) return false;
    r->logs_in = pd_etcd_login_is_due(&e->login);
    set_options(e, r);
    r->n = 0;
    r->begun = r->failed = false;
    r->heard_ms = e->now_ms;
    r->why = (pd_error){ 0 };
    return e->curl.curl_multi_add_handle(e->multi, r->easy) == CURLM_OK;
}

static void end_try(request *r)
{
    if (r->easy == NULL) return;
    r->etcd->curl.curl_multi_remove_handle(r->etcd->multi, r->easy);
    r->etcd->curl.curl_easy_cleanup(r->easy);
    r->etcd->curl.curl_slist_free_all(r->headers);
    r->easy = NULL;
    r->headers = NULL;
}

static void release(request *r)
{
    end_try(r);
    free(r->in);
    *r = (request){ 0 };
}

/* Ends a request with this answer. The caller of the engine may begin another call meanwhile. */
static void finish(request *r, const pd_engine_answer *answer)
{
    pd_engine_call *call = r->call;

    r->etcd->current = r->member;
    release(r);
    pd_engine_answered(call, answer);
}

static void fail(request *r)
{
    char why[PD_ERROR_TEXT];
    pd_engine_answer answer = { .result = PD_ENGINE_FAILED, .why = why };

    snprintf(why, sizeof why, "%s", r->why.text);
    r->member = (r->member + 1) % r->etcd->n_members;
    finish(r, &answer);
}

/* Handles a try that has ended without an answer that counts: the next member is asked, unless all were. */
static void try_next(request *r)
{
    char why[PD_ERROR_TEXT];

    snprintf(why, sizeof why, "%s", r->why.text);
    pd_fail(&r->why, PD_UNAVAILABLE, "%.200s: %.250s", r->etcd->member[r->member], why);
    end_try(r);
    if (++r->tries >= r->etcd->n_members) {
        fail(r);
        return;
    }
    r->member = (r->member + 1) % r->etcd->n_members;
    r->refused = false;
}

/* Handles a try that has failed with this code. If its token was refused, the same member is asked once more, with a
 * new token. */
static void handle_failure(request *r, int code)
{
    etcd *e = r->etcd;
    char why[PD_ERROR_TEXT];

    if (code == PD_UNAUTHENTICATED && e->login.body != NULL && !r->refused) {
        pd_etcd_login_refused(&e->login, r->token);
        r->refused = true;
        end_try(r);
        return;
    }
    if (code == PD_UNAUTHENTICATED && e->login.body == NULL) {
        snprintf(why, sizeof why, "%s", r->why.text);
        pd_fail(&r->why, code, "%.300s: cluster.user and cluster.password_file are not set", why);
    }
    try_next(r);
}

/* Handles the answer to a grant: the key is created under the new lease. */
static void create(request *r)
{
    r->lease = r->etcd->answer.answer.lease;
    r->ttl_ms = r->etcd->answer.answer.ttl_ms;
    end_try(r);
    r->kind = PD_ETCD_CREATED;
    r->refused = false;
    r->path = pd_etcd_create(r->body, r->call, r->lease);
    r->tries = 0;
}

/* Handles a whole answer with status 200. */
static void take_answer(request *r)
{
    pd_engine_answer *answer = &r->etcd->answer.answer;
    int rc = pd_etcd_parse(&r->etcd->answer, r->kind, r->in, r->n, &r->why);

    if (rc != PD_OK) {
        handle_failure(r, rc);
    } else if (r->kind == PD_ETCD_GRANTED) {
        create(r);
    } else {
        if (r->kind == PD_ETCD_CREATED) {
            answer->lease = r->lease;
            answer->ttl_ms = r->ttl_ms;
        }
        finish(r, answer);
    }
}

/* Handles the lines of a watch that are complete. Returns false if the request has ended. */
static bool take_lines(request *r)
{
    pd_engine_answer *answer = &r->etcd->answer.answer;
    const pd_engine_call *call = r->call;
    char *end;

    while (r->n > 0 && (end = memchr(r->in, '\n', r->n)) != NULL) {
        size_t line = (size_t)(end - r->in);
        int rc = pd_etcd_parse(&r->etcd->answer, PD_ETCD_CHANGES, r->in, line, &r->why);
        r->n -= line + 1;
        memmove(r->in, end + 1, r->n);
        if (rc != PD_OK) {
            handle_failure(r, rc);
            return false;
        }
        if (answer->result != PD_ENGINE_DONE) {
            finish(r, answer);
            return false;
        }
        r->begun = true;
        r->etcd->current = r->member;
        pd_engine_answered(r->call, answer);
        if (r->call != call) return false; /* the call was dropped */
    }
    return true;
}

/* Looks at a watch: reads what has come, and ends it if it is silent. A watch that no member confirms is tried at the
 * next one. */
static void look_at_watch(request *r)
{
    const etcd *e = r->etcd;
    pd_engine_answer ended = { .result = PD_ENGINE_ENDED, .why = "silent" };

    if (!take_lines(r)) return;
    if (!r->begun && e->now_ms - r->heard_ms >= e->config.try_ms) {
        pd_fail(&r->why, PD_DEADLINE_EXCEEDED, "no answer to a watch in %u ms", (unsigned)e->config.try_ms);
        try_next(r);
    } else if (r->begun && e->now_ms - r->heard_ms >= e->config.silent_ms) {
        finish(r, &ended);
    }
}

/* Finds out why a try has failed: returns the code, with the words of libcurl or etcd in r->why. */
static int find_failure(request *r, pd_etcd_kind kind, CURLcode code, long status)
{
    if (code != CURLE_OK)
        return r->why.code != PD_OK ? r->why.code
                                    : pd_fail(&r->why, PD_UNAVAILABLE, "%s", r->etcd->curl.curl_easy_strerror(code));
    if (status == 200) return pd_fail(&r->why, PD_UNAVAILABLE, "the watch has ended at once");
    switch (r->n > 0 ? pd_etcd_parse(&r->etcd->answer, kind, r->in, r->n, &r->why) : PD_OK) {
    case PD_UNAVAILABLE:
    case PD_UNAUTHENTICATED:
    case PD_FAILED_PRECONDITION: return r->why.code;
    default: return pd_fail(&r->why, PD_UNAVAILABLE, "HTTP status %ld", status);
    }
}

/* Handles the answer to the request for a token. The request itself is made in the next turn. */
static void on_token(request *r, CURLcode code, long status)
{
    etcd *e = r->etcd;
    char why[PD_ERROR_TEXT];
    int rc;

    if (code == CURLE_OK && status == 200)
        rc = pd_etcd_parse(&e->answer, PD_ETCD_LOGGED_IN, r->in, r->n, &r->why);
    else
        rc = find_failure(r, PD_ETCD_LOGGED_IN, code, status);
    if (rc == PD_OK || rc == PD_FAILED_PRECONDITION)
        rc = pd_etcd_login_take(&e->login, rc == PD_OK ? e->answer.token : NULL, &r->why);
    explicit_bzero(e->answer.token, sizeof e->answer.token);
    if (r->n > 0) explicit_bzero(r->in, r->n);
    if (rc == PD_OK) {
        end_try(r);
        return;
    }
    snprintf(why, sizeof why, "%s", r->why.text);
    pd_fail(&r->why, rc, "cluster.user = %s: %.250s", e->login.user, why);
    try_next(r);
}

/* Handles a try that libcurl has ended. */
static void on_ended(request *r, CURLcode code)
{
    const pd_curl *curl = &r->etcd->curl;
    pd_engine_answer ended = { .result = PD_ENGINE_ENDED, .why = "the connection has ended" };
    long status = 0;

    curl->curl_easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
    if (r->logs_in) {
        on_token(r, code, status);
        return;
    }
    if (code == CURLE_OK && status == 200 && r->kind != PD_ETCD_CHANGES) {
        take_answer(r);
        return;
    }
    if (status == 200 && r->kind == PD_ETCD_CHANGES) {
        if (!take_lines(r)) return;
        if (r->begun) {
            finish(r, &ended);
            return;
        }
    }
    handle_failure(r, find_failure(r, r->kind, code, status));
}

static void begin_tries(etcd *e)
{
    for (size_t i = 0; i < MOST_REQUESTS; i++) {
        request *r = &e->at[i];
        if (r->etcd == NULL || r->easy != NULL) continue;
        if (begin_try(e, r)) continue;
        pd_fail(&r->why, PD_NO_MEMORY, "out of memory");
        try_next(r);
    }
}

static void read_messages(etcd *e)
{
    CURLMsg *message;
    int left;

    while ((message = e->curl.curl_multi_info_read(e->multi, &left)) != NULL) {
        CURLcode code = message->data.result;
        char *found = NULL;
        if (message->msg != CURLMSG_DONE) continue;
        e->curl.curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &found);
        on_ended((request *)(void *)found, code);
    }
}

static void drive(etcd *e)
{
    struct epoll_event events[EVENTS];
    int running, n = epoll_wait(e->base.fd, events, EVENTS, 0);

    for (int i = 0; i < n; i++) {
        int what = (events[i].events & EPOLLIN ? CURL_CSELECT_IN : 0) |
                   (events[i].events & EPOLLOUT ? CURL_CSELECT_OUT : 0) |
                   (events[i].events & (EPOLLERR | EPOLLHUP) ? CURL_CSELECT_ERR : 0);
        e->curl.curl_multi_socket_action(e->multi, events[i].data.fd, what, &running);
    }
    if (e->curl_due_ms > e->now_ms) return;
    e->curl_due_ms = UINT64_MAX;
    e->curl.curl_multi_socket_action(e->multi, CURL_SOCKET_TIMEOUT, 0, &running);
}

/* Returns when the engine needs its next turn: for libcurl, a watch, or a try that has not begun. */
static uint64_t next_due(const etcd *e)
{
    uint64_t due = e->curl_due_ms;

    for (size_t i = 0; i < MOST_REQUESTS; i++) {
        const request *r = &e->at[i];
        uint64_t mine = UINT64_MAX;
        if (r->etcd == NULL) continue;
        if (r->easy == NULL)
            mine = e->now_ms;
        else if (is_watch(r))
            mine = r->heard_ms + (r->begun ? e->config.silent_ms : e->config.try_ms);
        if (mine < due) due = mine;
    }
    return due;
}

static uint64_t turn(pd_engine *engine, uint64_t now_ms)
{
    etcd *e = (etcd *)(void *)engine;

    e->now_ms = now_ms;
    begin_tries(e);
    drive(e);
    read_messages(e);
    for (size_t i = 0; i < MOST_REQUESTS; i++)
        if (e->at[i].easy != NULL && is_watch(&e->at[i])) look_at_watch(&e->at[i]);
    return next_due(e);
}

static request *find_place(etcd *e)
{
    for (size_t i = 0; i < MOST_REQUESTS; i++)
        if (e->at[i].etcd == NULL) return &e->at[i];
    return NULL;
}

static void ask(pd_engine *engine, pd_engine_call *call)
{
    etcd *e = (etcd *)(void *)engine;
    request *r = find_place(e);

    assert(r != NULL && !call->open);
    r->etcd = e;
    r->call = call;
    r->member = e->current;
    r->heard_ms = e->now_ms;
    call->open = true;
    switch (call->verb) {
    case PD_ENGINE_REGISTER:
        r->kind = PD_ETCD_GRANTED;
        r->path = pd_etcd_grant(r->body, call->ttl_ms);
        break;
    case PD_ENGINE_RENEW:
        r->kind = PD_ETCD_RENEWED;
        r->path = pd_etcd_renew(r->body, call->lease);
        break;
    case PD_ENGINE_READ:
        r->kind = PD_ETCD_LISTED;
        r->path = pd_etcd_read(r->body, call->key);
        break;
    case PD_ENGINE_WATCH:
        r->kind = PD_ETCD_CHANGES;
        r->path = pd_etcd_watch(r->body, call->key, call->revision);
        break;
    case PD_ENGINE_REMOVE:
        r->kind = PD_ETCD_REMOVED;
        r->path = pd_etcd_remove(r->body, call->key, call->tenure);
        break;
    }
}

static void drop(pd_engine *engine, pd_engine_call *call)
{
    etcd *e = (etcd *)(void *)engine;

    for (size_t i = 0; i < MOST_REQUESTS; i++)
        if (e->at[i].etcd != NULL && e->at[i].call == call) release(&e->at[i]);
    call->open = false;
}

static void free_etcd(pd_engine *engine)
{
    etcd *e = (etcd *)(void *)engine;

    for (size_t i = 0; i < MOST_REQUESTS; i++)
        if (e->at[i].etcd != NULL) release(&e->at[i]);
    if (e->multi != NULL) e->curl.curl_multi_cleanup(e->multi);
    if (e->base.fd >= 0) close(e->base.fd);
    pd_etcd_answer_free(&e->answer);
    pd_etcd_login_free(&e->login);
    free(e);
}

/* Reads one member's address: etcd://host:port or etcds://host:port. */
static int add_member(etcd *e, const char *text, size_t n, pd_error *err)
{
    static const char *const schemes[][2] = { { "etcd://", "http://" }, { "etcds://", "https://" } };
    pd_address *address;
    char plain[MEMBER_URL];
    const char *host;
    size_t count;
    int secure = strncmp(text, schemes[1][0], strlen(schemes[1][0])) == 0, rc;
    size_t scheme = strlen(schemes[secure][0]);

    if (n <= scheme || n >= MEMBER_URL || strncmp(text, schemes[secure][0], scheme) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "cluster.engine: \"%.*s\": expected etcd://host:port or etcds://host:port", (int)n, text);
    if (e->n_members == MOST_MEMBERS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "cluster.engine: expected at most %d members", MOST_MEMBERS);
    snprintf(plain, sizeof plain, "tcp://%.*s", (int)(n - scheme), text + scheme);
    if ((rc = pd_addresses_parse(&address, &count, plain, PD_TO_CONNECT, err)) != PD_OK) return rc;
    host = strchr(plain, ']') != NULL ? strchr(plain, ']') : plain + strlen("tcp://");
    snprintf(e->member[e->n_members++], MEMBER_URL, strchr(address->host, ':') != NULL ? "%s[%s]:%s" : "%s%s:%s",
             schemes[secure][1], address->host, strchr(host, ':') != NULL ? address->port : "2379");
    free(address);
    if (!secure || e->config.ca != NULL) return PD_OK;
    return pd_fail(err, PD_INVALID_ARGUMENT,
                   "cluster.ca: expected the file with the certificates that have signed those of etcd: cluster.engine "
                   "has an address with etcds://");
}

static int read_members(etcd *e, pd_error *err)
{
    const char *at = e->config.urls;
    int rc = PD_OK;

    while (rc == PD_OK) {
        size_t n = strcspn(at += strspn(at, " "), ",");
        size_t end = n;
        while (end > 0 && at[end - 1] == ' ') end--;
        rc = add_member(e, at, end, err);
        if (at[n] == '\0') break;
        at += n + 1;
    }
    return rc;
}

static int open_curl(etcd *e, pd_error *err)
{
    int rc = pd_curl_load(&e->curl, err);

    if (rc != PD_OK) return rc;
    e->multi = e->curl.curl_multi_init();
    e->base.fd = epoll_create1(EPOLL_CLOEXEC);
    if (e->multi == NULL || e->base.fd < 0 || pd_etcd_answer_init(&e->answer) != PD_OK)
        return pd_fail(err, PD_NO_MEMORY, "cluster.engine: out of memory or descriptors: %s", strerror(errno));
    e->curl.curl_multi_setopt(e->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    e->curl.curl_multi_setopt(e->multi, CURLMOPT_SOCKETDATA, e);
    e->curl.curl_multi_setopt(e->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    e->curl.curl_multi_setopt(e->multi, CURLMOPT_TIMERDATA, e);
    return PD_OK;
}

int pd_etcd_open(pd_engine **out, const pd_etcd_config *config, pd_error *err)
{
    etcd *e = calloc(1, sizeof *e);
    int rc;

    if (e == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    e->base = (pd_engine){ .ask = ask, .drop = drop, .turn = turn, .free = free_etcd, .fd = -1 };
    e->config = *config;
    e->curl_due_ms = UINT64_MAX;
    rc = read_members(e, err);
    if (rc == PD_OK && config->user != NULL) rc = pd_etcd_login_init(&e->login, config->user, config->password, err);
    if (rc == PD_OK) rc = open_curl(e, err);
    if (rc != PD_OK) {
        free_etcd(&e->base);
        return rc;
    }
    *out = &e->base;
    return PD_OK;
}
