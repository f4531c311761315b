/* settle_relay.c - sends asks and verdicts of the box as frames of this connection, and takes their answers. */
#include "settle_relay.h"

#include "settle_box.h"
#include "most_shards.h"
#include "sharing.h"

void pd_relay_declared(pd_core *core, bool settles)
{
    uint64_t closed = UINT64_MAX;

    if (core->settling.box == NULL) return;
    for (size_t i = 0; i < core->n_params; i++)
        if (!core->params[i].elsewhere && core->params[i].server_step < closed) closed = core->params[i].server_step;
    core->settling.ask = core->settling.verdict = 0;
    core->settling.holds = !settles && core->settling.life != 0 && core->settling.life != core->life;
    core->settling.life = core->life;
    pd_settle_box_joined(core->settling.box, core->setup.shard, settles, closed < UINT64_MAX ? closed : 0);
}

bool pd_relay_holds(const pd_core *core)
{
    return core->settling.holds;
}

void pd_relay_down(pd_core *core)
{
    if (core->settling.box == NULL) return;
    core->settling.ask = core->settling.verdict = 0;
    core->settling.holds = false;
    pd_settle_box_gone(core->settling.box, core->setup.shard);
}

void pd_relay_left(pd_core *core)
{
    if (core->settling.box != NULL) pd_settle_box_left(core->settling.box, core->setup.shard);
}

/* Queues a frame of the box. Returns its request id; 0: it was not queued. */
static uint64_t post(pd_core *core, const pd_settle_frame *frame)
{
    Paramd__SettleRequest request = PARAMD__SETTLE_REQUEST__INIT;
    ProtobufCBinaryData tallies[PD_MAX_SHARDS];

    request.step = frame->step;
    request.phase = frame->phase;
    request.n_tallies = frame->n;
    request.tallies = tallies;
    for (size_t i = 0; i < frame->n; i++)
        tallies[i] = (ProtobufCBinaryData){ frame->tallies[i].n, (uint8_t *)(uintptr_t)frame->tallies[i].at };
    return pd_core_post(core, PD_SETTLE, &request.base, PD_QUEUE_CONNECTION, NULL) == PD_OK ? core->calls.last_id : 0;
}

void pd_relay_tick(pd_core *core)
{
    pd_settle_frame frame;

    if (core->settling.box == NULL || core->link.stage != STAGE_RUNNING) return;
    if (core->settling.holds && pd_settle_box_all_here(core->settling.box)) {
        core->settling.holds = false;
        core->out.open = !pd_sharing_begin(core);
    }
    if (pd_settle_box_next_ask(core->settling.box, core->setup.shard, &frame) &&
        (core->settling.ask = post(core, &frame)) == 0)
        pd_core_drop(core, "out of memory");
    if (core->settling.verdict == 0 && pd_settle_box_next_verdict(core->settling.box, core->setup.shard, &frame) &&
        (core->settling.verdict = post(core, &frame)) == 0)
        pd_core_drop(core, "out of memory");
}

/* Gives the box the tally in an answer. */
static int told(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal, pd_error *err)
{
    const Paramd__SettleReply *reply;
    void *message;
    int rc;

    if (refusal != NULL)
        return pd_settle_box_told(core->settling.box, core->setup.shard, 0, 0, (pd_tally_span){ NULL, 0 }, refusal,
                                  err);
    if ((rc = pd_reply_take(core, prefix, header, &message)) != PD_OK) return rc;
    reply = message;
    return pd_settle_box_told(core->settling.box, core->setup.shard, reply->step, reply->phase,
                              (pd_tally_span){ reply->tally.data, reply->tally.len }, NULL, err);
}

int pd_relay_answered(pd_core *core, const pd_prefix *prefix, const uint8_t *header, const pd_error *refusal)
{
    pd_error err = { .code = PD_OK };
    int rc = PD_OK;

    /* An answer to neither is to an ask that a later one has replaced. */
    if (prefix->request == core->settling.ask) {
        core->settling.ask = 0;
        rc = told(core, prefix, header, refusal, &err);
    } else if (prefix->request == core->settling.verdict) {
        core->settling.verdict = 0;
        rc = pd_settle_box_taken(core->settling.box, core->setup.shard, refusal, &err);
    }
    if (err.code != PD_OK) pd_core_end(core, &err);
    return rc == err.code ? PD_OK : rc;
}
