/* exporter.c - an operator who exports a job, piece by piece, and compares the exported weights with the published ones
 * of the same step. */
#include "exporter.h"

#include "message.h"
#include "server.h"
#include "sim_judge.h"
#include "sim_readouts.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 100 };

typedef struct sim_exporter {
    sim *s;
    const sim_job *job;
    pd_transport *transport; /* NULL: the operator has disconnected */
    pd_framer *framer;
    pd_arena *arena;
    uint8_t *out;
    size_t n_out, sent;
    struct iovec landing;
    float piece[PIECE]; /* receives the payload of the next answer */
    uint64_t last_id;
    bool state, evaluates; /* whether optimizer state is asked for; weights to evaluate with */
    uint64_t left;         /* requests that the operator still sends before it falls silent */
    uint64_t step;         /* step of the exported weights; UINT64_MAX: not known yet */
    uint32_t param;
    int64_t first, count;
    struct sim_exporter *next;
} sim_exporter;

static void say_more(sim_exporter *e)
{
    struct iovec span = { e->out + e->sent, e->n_out - e->sent };
    pd_error err;
    ssize_t n = 1;

    while (e->sent < e->n_out && n > 0) {
        n = e->transport->ops->send(e->transport, &span, 1, &err);
        if (n > 0) e->sent += (size_t)n;
        span = (struct iovec){ e->out + e->sent, e->n_out - e->sent };
    }
    e->transport->ops->watch(e->transport, PD_ON_READ | (e->sent < e->n_out ? PD_ON_WRITE : 0));
}

/* Sends one request. The operator sends the next request only after the answer to this one. */
static void say(sim_exporter *e, unsigned method, const ProtobufCMessage *message)
{
    free(e->out);
    e->sent = 0;
    if (pd_frame_pack(&e->out, &e->n_out, method, 0, ++e->last_id, message, NULL, 0, 0) != PD_OK)
        sim_fail("harness", "a frame cannot be packed");
    say_more(e);
}

static void say_export(sim_exporter *e, uint32_t act)
{
    Paramd__ExportRequest request = PARAMD__EXPORT_REQUEST__INIT;

    if (e->left-- == 0) return;
    request.job = (char *)e->job->name;
    request.act = act;
    request.state = e->state;
    request.form = e->evaluates ? PD_FORM_EVAL : PD_FORM_TRAIN;
    request.wait_ms = 1 + (uint32_t)sim_draw(e->s, 3000);
    request.param = (char *)e->job->params[e->param < e->job->n_params ? e->param : 0].name;
    request.number = request.block = -1;
    request.first = (uint64_t)e->first;
    request.count = (uint64_t)e->count;
    say(e, PD_EXPORT, &request.base);
}

static void ask_next(sim_exporter *e)
{
    const sim_param *param;

    if (e->param < e->job->n_params && e->first == e->job->params[e->param].n) {
        e->param++;
        e->first = 0;
    }
    if (e->param == e->job->n_params) {
        e->count = 0;
        say_export(e, 4);
        return;
    }
    param = &e->job->params[e->param];
    e->count = param->n - e->first < PIECE ? param->n - e->first : PIECE;
    say_export(e, 2);
}

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    sim_exporter *e = arg;

    (void)header;
    if (prefix->payload_bytes == 0) return PD_OK;
    if (prefix->payload_bytes > sizeof e->piece)
        sim_fail("consistency", "an export's answer has %llu bytes", (unsigned long long)prefix->payload_bytes);
    e->landing = (struct iovec){ e->piece, prefix->payload_bytes };
    *spans = &e->landing;
    *n = 1;
    return PD_OK;
}

/* Checks weights that were exported. Fragments are exported each at its own step, which is not known here. */
static void judge(const sim_exporter *e)
{
    if (!e->evaluates || !sim_averages(e->job))
        sim_judge_exported(e->s, e->job, e->param, e->step, e->piece, e->first, e->count);
    else if (e->job->fragments <= 1)
        sim_readouts_keep(e->s, e->job, 0, e->param, e->step, e->piece, e->first, e->count);
}

static void on_answer(sim_exporter *e, const pd_prefix *prefix, const Paramd__ExportReply *reply)
{
    if (e->count == 0 && e->step == UINT64_MAX) e->step = reply->step;
    if (reply->step != e->step)
        sim_fail("consistency", "an export of step %llu says step %llu", (unsigned long long)e->step,
                 (unsigned long long)reply->step);
    if (prefix->payload_bytes != (uint64_t)e->count * sizeof(float))
        sim_fail("consistency", "%lld exported elements have %llu bytes", (long long)e->count,
                 (unsigned long long)prefix->payload_bytes);
    if (e->count > 0) judge(e);
    e->first += e->count;
    if (e->param < e->job->n_params)
        ask_next(e);
    else
        sim_note(e->s, e->job->name, 0, "is exported", e->step, e->state);
}

/* Handles an answer. Errors are ignored, because an export may be refused or may end at any time. */
static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    sim_exporter *e = arg;
    void *reply;
    pd_error err;

    if (prefix->request == 0 || prefix->request != e->last_id || (prefix->flags & PD_FLAG_ERROR) != 0) return PD_OK;
    if (prefix->method == PD_HELLO) {
        say_export(e, 1);
        return PD_OK;
    }
    pd_arena_reset(e->arena);
    if (pd_reply_unpack(e->arena, prefix->method, header, prefix->header_bytes, &reply, &err) != PD_OK)
        sim_fail("consistency", "an export's answer is none: %s", err.text);
    on_answer(e, prefix, reply);
    return PD_OK;
}

static void leave(sim_exporter *e)
{
    if (e->transport != NULL) e->transport->ops->close(e->transport);
    e->transport = NULL;
}

static void on_ready(void *arg, unsigned events)
{
    sim_exporter *e = arg;
    struct iovec iov[4];
    ssize_t n = 1;
    pd_error err;

    if (e->transport == NULL) return;
    if ((events & PD_ON_WRITE) != 0) say_more(e);
    while (n > 0) {
        int spans = pd_framer_space(e->framer, iov, 4, 4096);
        if ((n = e->transport->ops->receive(e->transport, iov, spans, &err)) > 0 &&
            pd_framer_fed(e->framer, (size_t)n) != PD_OK)
            sim_fail("consistency", "what an exporter reads is no stream: %s", pd_framer_error(e->framer)->text);
    }
    if (n < 0) leave(e);
}

static void end_fault(sim *s, void *who, uint64_t what)
{
    (void)s, (void)what;
    leave(who);
}

void sim_exporter_start(sim *s, const sim_fault *fault)
{
    static const pd_framer_user frames = { .header = on_header, .frame = on_frame };
    sim_exporter *e = sim_must(calloc(1, sizeof *e));
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    pd_framer_user user = frames;
    sim_link *link;

    e->s = s;
    e->job = &s->plan->jobs[fault->job];
    e->next = s->exporters;
    s->exporters = e;
    e->state = fault->rank % 2 == 0;
    e->evaluates = !e->state && fault->amount % 4 != 0;
    e->left = sim_chance(s, 2) ? UINT64_MAX : 1 + sim_draw(s, 20);
    e->step = UINT64_MAX;
    user.arg = e;
    e->framer = sim_must(pd_framer_new(&user, 1 << 20));
    e->arena = sim_must(pd_arena_new(PD_ARENA_BUDGET));
    if ((e->transport = sim_server_connect(s->server, false, &link)) == NULL) return;
    e->transport->ready = on_ready;
    e->transport->arg = e;
    hello.protocol = 1;
    hello.job = "";
    say(e, PD_HELLO, &hello.base);
    sim_after(s, fault->amount < s->plan->calm_ns - s->now_ns ? fault->amount : s->plan->calm_ns - s->now_ns, end_fault,
              e, 0);
}

void sim_exporters_leave(sim *s)
{
    for (sim_exporter *e = s->exporters; e != NULL; e = e->next) leave(e);
}

void sim_exporters_free(sim *s)
{
    while (s->exporters != NULL) {
        sim_exporter *e = s->exporters;
        s->exporters = e->next;
        leave(e);
        pd_framer_free(e->framer);
        pd_arena_free(e->arena);
        free(e->out);
        free(e);
    }
}
