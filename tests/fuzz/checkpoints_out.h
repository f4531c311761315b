/* checkpoints_out.h - stands in for the two threads that write to the disk: keeps the checkpoints and entries of logs
 * that the store has handed out, until the conversation gives them back. fuzz_conversation.c includes this file after
 * the definition of `world`. */
/* Takes a checkpoint or an entry, as a disk thread does. It stays out until give_back. */
static void on_keep(void *arg, pd_effect *effect)
{
    (void)arg;
    MUST(effect->mail.next == NULL);
    if (world.checkpointing == NULL)
        world.checkpointing = &effect->mail;
    else
        world.last_keeping->next = &effect->mail;
    world.last_keeping = &effect->mail;
}

/* Gives back the oldest of these to the store: it is on the disk, or the disk has failed. */
static void give_back(bool failed)
{
    pd_effect *effect = (pd_effect *)(void *)world.checkpointing;
    pd_request *request;
    pd_error *error;

    if (effect == NULL) return;
    world.checkpointing = effect->mail.next;
    if (effect->kind == PD_EFF_WRITE_CHECKPOINT) {
        request = pd_effect_become_checkpointed(effect);
        request->u.checkpoint_image->bytes = 1000;
        error = &request->u.checkpoint_image->error;
    } else if (effect->kind == PD_EFF_GO_BACK) {
        request = pd_effect_become_went_back(effect);
        error = &request->u.go_back_order->error;
        failed = true; /* the disk has no checkpoint that could be read */
    } else {
        request = pd_effect_become_wal(effect);
        error = &request->u.wal->error;
    }
    error->code = PD_OK;
    if (failed) pd_fail(error, PD_UNAVAILABLE, "the disk has failed");
    pd_store_apply(world.store, request, world.now);
}
