/* checkpoints_out.h - the place of the keeper thread: checkpoints that the store has handed out, until the conversation
 * gives them back. fuzz_conversation.c includes this file after the definition of `world`. */
/* Takes a checkpoint, as the keeper thread does. It stays out until give_back. */
static void on_keep(void *arg, pd_effect *effect)
{
    (void)arg;
    MUST(effect->u.kept != NULL && effect->mail.next == NULL);
    if (world.keeping == NULL)
        world.keeping = &effect->mail;
    else
        world.last_keeping->next = &effect->mail;
    world.last_keeping = &effect->mail;
}

/* Gives the oldest checkpoint back to the store: it is on the disk, or the disk has failed. */
static void give_back(bool failed)
{
    pd_effect *effect = (pd_effect *)(void *)world.keeping;
    pd_request *request;

    if (effect == NULL) return;
    world.keeping = effect->mail.next;
    MUST((request = pd_request_new(PD_REQ_KEPT, (pd_ticket){ 0, 0 })) != NULL);
    request->job = effect->job;
    request->u.kept = effect->u.kept;
    request->u.kept->bytes = 1000;
    request->u.kept->error.code = PD_OK;
    if (failed) pd_fail(&request->u.kept->error, PD_UNAVAILABLE, "the disk has failed");
    pd_effect_free(effect);
    pd_store_apply(world.store, request, world.now);
}
