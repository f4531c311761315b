/* sharer.c - a worker without the client library that shares memory with the server. First it tries what the server
 * must refuse, then it trains a job of its own, reads lent weights late, and ends in a way of which the server must
 * think nothing. */
#define _GNU_SOURCE /* fallocate */
#include "sharer_state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static float gradient(uint64_t step, uint64_t i)
{
    return (float)(int)(sim_mix(step, i, 4, 4) % 9) - 4;
}

/* Checks that a chunk has the weights of its step: 0 minus all gradients so far. Lent weights are only those if the
 * connection is still open afterwards, which it is here: nothing else happens meanwhile. */
static void check_weights(const sim_sharer *h, const void *at, uint64_t step, uint64_t chunk, const char *when)
{
    uint64_t n = h->s->plan->chunk;

    if (h->local && !h->transport->ops->is_open(h->transport)) return;
    for (uint64_t i = 0; i < n && !h->spoilt; i++) {
        float expected = 0, came;
        for (uint64_t k = 1; k <= step; k++) expected -= gradient(k, chunk * n + i);
        memcpy(&came, (const uint8_t *)at + i * sizeof came, sizeof came);
        if (came != expected)
            sim_fail("consistency", "a sharer %s: element %llu of step %llu is %g, expected %g", when,
                     (unsigned long long)(chunk * n + i), (unsigned long long)step, (double)came, (double)expected);
    }
}

/* Returns the place of a payload in the segment: the chunks of a step lie in any order, each at a multiple of 64. The
 * last one ends where the segment ends. */
static uint64_t place_of(const sim_sharer *h, size_t slot)
{
    uint64_t unit = (sim_sharer_chunk_bytes(h) + PD_PAYLOAD_ALIGN - 1) / PD_PAYLOAD_ALIGN * PD_PAYLOAD_ALIGN;

    return h->own_bytes - (h->chunks - slot) * unit;
}

static void shuffle(sim_sharer *h)
{
    for (uint64_t c = 0; c < h->chunks; c++) h->chunk_of[c] = c;
    for (uint64_t c = h->chunks; c > 1; c--) {
        uint64_t k = sim_sharer_draw(h, c), swap = h->chunk_of[k];
        h->chunk_of[k] = h->chunk_of[c - 1];
        h->chunk_of[c - 1] = swap;
    }
}

/* Pushes `n` chunks of the next step. */
static void push_step(sim_sharer *h, uint64_t n)
{
    uint64_t count = h->s->plan->chunk;

    h->step++;
    h->first_id = h->last_id + 1;
    h->waits = n;
    shuffle(h);
    for (uint64_t k = 0; k < n; k++) {
        float *at = (float *)(void *)(h->own + place_of(h, k));
        for (uint64_t i = 0; i < count; i++) at[i] = gradient(h->step, h->chunk_of[k] * count + i);
        if (h->shared && sim_sharer_draw(h, 4) > 0)
            sim_sharer_add_push(h, h->chunk_of[k], NULL, (uint32_t)(place_of(h, k) / PD_PAYLOAD_ALIGN));
        else
            sim_sharer_add_push(h, h->chunk_of[k], at, 0);
    }
    sim_sharer_say(h, PD_OK);
}

/* Fills the worker's segment with what must not be summed. */
static void wipe(sim_sharer *h)
{
    for (uint64_t i = 0; i < h->own_bytes / sizeof(float); i++) ((float *)(void *)h->own)[i] = NAN;
    if (sim_sharer_draw(h, 4) > 0) return;
    if (fallocate(h->own_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)h->own_bytes) == 0)
        sim_fail("harness", "pages of a sealed segment have been freed");
    if (ftruncate(h->own_fd, 0) == 0 || fcntl(h->own_fd, F_ADD_SEALS, F_SEAL_WRITE) == 0)
        sim_fail("harness", "a sealed segment has been shortened, or got another seal");
}

static void scribble(sim *s, void *who, uint64_t what)
{
    sim_sharer *h = who;

    (void)what;
    if (h->transport == NULL || h->phase == OVER) return;
    h->spoilt = true;
    wipe(h);
    sim_after(s, sim_sharer_draw(h, SIM_MS), scribble, h, 0);
}

static void leave(sim_sharer *h)
{
    if (h->transport != NULL) h->transport->ops->close(h->transport);
    h->transport = NULL;
    if (h->to_send >= 0) close(h->to_send);
    h->to_send = -1;
    if (h->weights != NULL) munmap((void *)h->weights, h->weights_bytes);
    h->weights = NULL;
}

/* Sends a heartbeat every second, so that the server closes the worker for no other reason than what it keeps. */
static void beat(sim *s, void *who, uint64_t what)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;
    sim_sharer *h = who;

    (void)what;
    if (h->transport == NULL) return;
    sim_sharer_add(h, PD_HEARTBEAT, &empty.base, NULL, 0, 0);
    sim_sharer_say_more(h);
    sim_after(s, SIM_S, beat, h, 0);
}

static void come_to_end(sim_sharer *h)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    switch (h->ending) {
    case LEAVES:
        h->phase = LEAVE;
        sim_sharer_add(h, PD_LEAVE, &empty.base, NULL, 0, 0);
        sim_sharer_say(h, PD_OK);
        break;
    case DIES:
        push_step(h, 1 + sim_sharer_draw(h, h->chunks));
        leave(h);
        break;
    case KEEPS: /* the answers of the last step are never released */
        h->phase = OVER;
        h->asked_ns = h->s->now_ns;
        if (h->n_lent == 0)
            leave(h);
        else
            beat(h->s, h, 0);
        break;
    default: /* the worker ends its sending side, and waits for the answers of its last step */
        push_step(h, h->chunks);
        h->phase = OVER;
        h->transport->ops->shut(h->transport);
        break;
    }
}

static uint64_t requests_of(sim_sharer *h, phase p)
{
    switch (p) {
    case INIT: return h->chunks;
    case BAD_SHARE: return sim_sharer_draw(h, 4);
    case BAD_USE: return h->shared ? sim_sharer_draw(h, 4) : 0;
    default: return 1;
    }
}

static void next_step(sim_sharer *h)
{
    if (h->steps-- == 0) {
        come_to_end(h);
        return;
    }
    h->phase = STEP;
    push_step(h, h->chunks);
}

static void say_one(sim_sharer *h)
{
    switch (h->phase) {
    case HELLO: sim_sharer_hello(h); break;
    case DECLARE: sim_sharer_declare(h); break;
    case INIT: sim_sharer_init(h); break;
    case BAD_SHARE: sim_sharer_be_bad_first(h); break;
    case SHARE: sim_sharer_share(h, fcntl(h->own_fd, F_DUPFD_CLOEXEC, 0), h->own_bytes, PD_OK); break;
    case BAD_USE: sim_sharer_be_bad_then(h); break;
    default: next_step(h); break;
    }
}

/* Sends the next request, after the answer to the last one. */
static void next_request(sim_sharer *h)
{
    while (h->left == 0 && h->phase < STEP) h->left = requests_of(h, ++h->phase);
    if (h->left > 0) h->left--;
    say_one(h);
}

static void release_some(sim *s, void *who, uint64_t what)
{
    sim_sharer *h = who;
    uint64_t n;

    (void)s, (void)what;
    if (h->transport == NULL || h->phase != WAIT) return;
    for (size_t i = 0; i < h->n_lent; i++)
        check_weights(h, h->weights + h->lent[i].place, h->lent[i].step, h->lent[i].chunk, "reads before its Release");
    n = 1 + sim_sharer_draw(h, h->n_lent);
    h->n_lent -= n;
    memmove(h->lent, h->lent + n, h->n_lent * sizeof *h->lent);
    h->phase = RELEASE;
    sim_sharer_release(h, n, PD_OK);
}

/* Goes on after all answers of a step. Some answers stay lent for a while; those of the last step may stay for ever. */
static void after_step(sim_sharer *h)
{
    if (h->phase == OVER) return;
    if (!h->scribbles) wipe(h);
    if (h->n_lent == 0 || sim_sharer_draw(h, 2) == 0) {
        next_step(h);
        return;
    }
    h->phase = WAIT;
    sim_after(h->s, sim_sharer_draw(h, sim_sharer_draw(h, 4) == 0 ? SIM_S : 20 * SIM_MS), release_some, h, 0);
}

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    sim_sharer *h = arg;

    (void)header;
    if (prefix->payload_bytes == 0 || (prefix->flags & PD_FLAG_SHARED) != 0) return PD_OK;
    if (prefix->payload_bytes != sim_sharer_chunk_bytes(h))
        sim_fail("consistency", "a sharer gets %llu bytes of weights", (unsigned long long)prefix->payload_bytes);
    h->span = (struct iovec){ h->landing, prefix->payload_bytes };
    *spans = &h->span;
    *n = 1;
    return PD_OK;
}

/* Ends the worker after an error that the plan explains; any other error violates an invariant. */
static void be_refused(sim_sharer *h, const pd_error *err)
{
    bool full = err->code == PD_RESOURCE_EXHAUSTED && (h->phase == HELLO || h->phase == DECLARE);

    if (!full && sim_failed_allocations() == 0 && !sim_server_draining(h->s->server))
        sim_fail("sharing", "a sharer in phase %d expects %s and gets %s: %s", (int)h->phase, pd_code_name(h->expected),
                 pd_code_name(err->code), err->text);
    leave(h);
}

static void *unpack(sim_sharer *h, const pd_prefix *prefix, const uint8_t *header)
{
    void *reply;
    pd_error err;

    pd_arena_reset(h->arena);
    if (pd_reply_unpack(h->arena, prefix->method, header, prefix->header_bytes, &reply, &err) != PD_OK)
        sim_fail("consistency", "a sharer's answer is none: %s", err.text);
    return reply;
}

static void take_shared(sim_sharer *h, const Paramd__ShareReply *reply)
{
    int fd = h->transport->ops->take(h->transport);

    h->shared = true;
    if (reply->bytes == 0) return;
    h->weights_bytes = reply->bytes;
    h->weights = mmap(NULL, reply->bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (h->weights == MAP_FAILED) sim_fail("sharing", "a sharer cannot map descriptor %d of the server", fd);
    if (mmap(NULL, reply->bytes, PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0) != MAP_FAILED ||
        ftruncate(fd, 1) == 0 || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
        sim_fail("sharing", "a sharer can change the server's weights");
    close(fd);
}

static void take_weights(sim_sharer *h, const pd_prefix *prefix, const Paramd__DataReply *reply)
{
    uint64_t chunk = h->chunk_of[prefix->request - h->first_id];
    const Paramd__Outcome *outcome = reply->outcomes[0];

    if (!h->spoilt && (reply->n_outcomes != 1 || outcome->outcome != 1 || outcome->version != h->step))
        sim_fail("exactly once", "a sharer's step %llu ends with outcome %u and version %llu",
                 (unsigned long long)h->step, outcome->outcome, (unsigned long long)outcome->version);
    h->waits--;
    if ((prefix->flags & PD_FLAG_SHARED) == 0) {
        check_weights(h, h->landing, h->step, chunk, "gets over the socket");
        return;
    }
    if (h->weights == NULL || outcome->place % PD_PAYLOAD_ALIGN % sizeof(float) != 0 ||
        outcome->place > h->weights_bytes || sim_sharer_chunk_bytes(h) > h->weights_bytes - outcome->place)
        sim_fail("sharing", "a sharer is lent weights at place %llu, out of its reach",
                 (unsigned long long)outcome->place);
    check_weights(h, h->weights + outcome->place, h->step, chunk, "is lent");
    h->lent[h->n_lent++] = (lent){ outcome->place, h->step, chunk };
}

static void take_refusal(sim_sharer *h, const pd_prefix *prefix, const uint8_t *header)
{
    pd_error err;

    pd_arena_reset(h->arena);
    pd_message_error(h->arena, header, prefix->header_bytes, &err, NULL);
    if (err.code == h->expected || (h->phase == SHARE && err.code == PD_UNAVAILABLE && h->s->plan->share_fails > 0))
        next_request(h);
    else
        be_refused(h, &err);
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    sim_sharer *h = arg;
    bool pushes = h->waits > 0 && prefix->request >= h->first_id && prefix->request < h->first_id + h->chunks;

    if (h->transport == NULL || (prefix->request != 0 && prefix->request != h->last_id && !pushes)) return PD_OK;
    if ((h->phase == OVER && !pushes) || prefix->method == PD_HEARTBEAT) return PD_OK;
    if ((prefix->flags & PD_FLAG_ERROR) != 0) {
        take_refusal(h, prefix, header);
    } else if (pushes) {
        take_weights(h, prefix, unpack(h, prefix, header));
        if (h->waits == 0) after_step(h);
    } else if (h->expected != PD_OK) {
        sim_fail("sharing", "a sharer in phase %d expects %s and gets an answer", (int)h->phase,
                 pd_code_name(h->expected));
    } else {
        if (h->phase == SHARE) take_shared(h, unpack(h, prefix, header));
        if (h->phase == LEAVE)
            leave(h);
        else
            next_request(h);
    }
    return h->transport != NULL ? PD_OK : PD_CANCELLED;
}

/* Returns whether the end of the connection is explained: by what the worker did, or by the plan. */
static bool is_explained(const sim_sharer *h)
{
    bool any = h->phase == OVER || sim_failed_allocations() > 0 || sim_server_draining(h->s->server);

    for (uint32_t f = 0; f < h->s->plan->n_faults; f++) any = any || h->s->plan->faults[f].kind == SIM_RESTART;
    return any;
}

static void on_ready(void *arg, unsigned events)
{
    sim_sharer *h = arg;
    struct iovec iov[4];
    ssize_t n = 1;
    pd_error err;

    if (h->transport != NULL && (events & PD_ON_WRITE) != 0) sim_sharer_say_more(h);
    while (n > 0 && h->transport != NULL) {
        int spans = pd_framer_space(h->framer, iov, 4, 4096);
        if ((n = h->transport->ops->receive(h->transport, iov, spans, &err)) > 0 &&
            pd_framer_fed(h->framer, (size_t)n) != PD_OK && h->transport != NULL)
            sim_fail("consistency", "what a sharer reads is no stream: %s", pd_framer_error(h->framer)->text);
    }
    if (h->transport == NULL || n >= 0) return;
    if (!is_explained(h)) sim_fail("sharing", "a sharer in phase %d is disconnected", (int)h->phase);
    leave(h);
}

/* Ends the worker when the world becomes calm, since it takes memory of others. One that the server must close
 * stays. */
static void end_fault(sim *s, void *who, uint64_t what)
{
    sim_sharer *h = who;

    (void)s, (void)what;
    if (h->phase != OVER) leave(h);
}

static void make_segment(sim_sharer *h)
{
    h->chunks = 1 + sim_sharer_draw(h, CHUNKS);
    h->own_bytes = h->chunks * sim_sharer_chunk_bytes(h) + sim_sharer_draw(h, 3) * 4096;
    h->own_fd = sim_sharer_memfd(0, h->own_bytes, 0);
    h->own = mmap(NULL, h->own_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, h->own_fd, 0);
    if (h->own == MAP_FAILED) sim_fail("harness", "a segment cannot be made");
    memset(h->own, 0, h->own_bytes);
    if (fcntl(h->own_fd, F_ADD_SEALS, SEALS) != 0) sim_fail("harness", "a segment cannot be sealed");
}

void sim_sharer_start(sim *s, const sim_fault *fault)
{
    pd_framer_user user = { .header = on_header, .frame = on_frame };
    sim_sharer *h = sim_must(calloc(1, sizeof *h));
    sim_link *link;

    h->s = s;
    h->next = s->sharers;
    s->sharers = h;
    h->random = fault->amount;
    h->to_send = -1;
    user.arg = h;
    h->framer = sim_must(pd_framer_new(&user, 1 << 20));
    h->arena = sim_must(pd_arena_new(PD_ARENA_BUDGET));
    make_segment(h);
    h->ending = (ending)sim_sharer_draw(h, ENDINGS);
    h->scribbles = sim_sharer_draw(h, 4) == 0;
    h->steps = 1 + sim_sharer_draw(h, STEPS);
    h->local = sim_sharer_draw(h, 8) > 0;
    if ((h->transport = sim_server_connect(s->server, h->local, &link)) == NULL) return;
    h->transport->ready = on_ready;
    h->transport->arg = h;
    sim_sharer_hello(h);
    if (h->scribbles) sim_after(s, sim_sharer_draw(h, SIM_S), scribble, h, 0);
    sim_after(s, s->plan->calm_ns - s->now_ns, end_fault, h, 0);
}

void sim_sharers_check(sim *s)
{
    for (const sim_sharer *h = s->sharers; h != NULL; h = h->next) {
        uint64_t since = h->asked_ns > s->plan->calm_ns ? h->asked_ns : s->plan->calm_ns;
        if (h->transport == NULL || h->phase == WAIT || sim_server_draining(s->server)) continue;
        if (s->now_ns > since + 10 * SIM_S)
            sim_fail("liveness", "a sharer in phase %d waits, and is neither answered nor closed", (int)h->phase);
    }
}

void sim_sharers_leave(sim *s)
{
    for (sim_sharer *h = s->sharers; h != NULL; h = h->next)
        if (h->phase != OVER) leave(h);
}

void sim_sharers_free(sim *s)
{
    while (s->sharers != NULL) {
        sim_sharer *h = s->sharers;
        s->sharers = h->next;
        leave(h);
        munmap(h->own, h->own_bytes);
        close(h->own_fd);
        pd_framer_free(h->framer);
        pd_arena_free(h->arena);
        free(h->out);
        free(h);
    }
}
