/* shards_open.c - opens and closes the handles of a cluster's shards, and compares their welcomes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "hash.h"
#include "settle_box.h"
#include "shards.h"

/* Makes the handle of shard `number`. */
static int make_handle(pd_shards *shards, size_t number, pd_settings *settings, const pd_shard_list *list,
                       const pd_notices *notices, pd_error *err)
{
    size_t n = pd_shard_list_count(list, number);
    pd_client *client = calloc(1, sizeof *client);
    pd_address *urls = malloc(n * sizeof *urls);
    int rc;

    shards->at[number] = client;
    if (client == NULL || urls == NULL) {
        free(urls);
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    memcpy(urls, list->addresses + list->first[number], n * sizeof *urls);
    client->whole = shards;
    settings->core.shard = (uint32_t)number;
    rc = pd_handle_make(client, settings, urls, n, notices, err);
    if (rc == PD_OK) client->core->settling.box = shards->box;
    return rc;
}

/* Starts the I/O thread of a shard's handle, and lets the box wake it. */
static int start(pd_shards *shards, size_t number, pd_error *err)
{
    int rc = pd_handle_start(shards->at[number], err);

    if (rc == PD_OK) pd_settle_box_wake(shards->box, (uint32_t)number, shards->at[number]->io.wake_fd);
    return rc;
}

static int make_tables(pd_shards *shards, pd_error *err)
{
    bool enough = (shards->at = calloc(shards->n, sizeof *shards->at)) != NULL &&
                  (shards->noted = calloc(shards->n, sizeof *shards->noted)) != NULL &&
                  (shards->coupled = calloc(shards->n, sizeof *shards->coupled)) != NULL;

    for (size_t i = 0; i < PD_SHARDS_CALLS; i++)
        enough = (shards->over[i] = calloc(shards->n, sizeof *shards->over[i])) != NULL && enough;
    return enough ? PD_OK : pd_fail(err, PD_NO_MEMORY, "out of memory");
}

int pd_shards_open(pd_client *client, pd_settings *settings, const pd_shard_list *list, const pd_notices *notices,
                   pd_error *err)
{
    pd_shards *shards = calloc(1, sizeof *shards);
    int rc;

    if (shards == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    client->shards = shards;
    client->deadline = settings->deadline;
    client->slice = settings->slice;
    client->notices = *notices;
    shards->n = list->n;
    shards->done_fd = -1;
    shards->any_rank = settings->core.any_rank;
    pthread_mutex_init(&shards->lock, NULL);
    pd_bell_init(&shards->bell);
    settings->core.shards = (uint32_t)list->n;
    rc = make_tables(shards, err);
    if (rc == PD_OK) rc = pd_settle_box_new(&shards->box, (uint32_t)shards->n, settings->core.window, err);
    for (size_t i = 0; rc == PD_OK && i < shards->n; i++) rc = make_handle(shards, i, settings, list, notices, err);
    return rc == PD_OK ? start(shards, 0, err) : rc;
}

void pd_shards_stop(pd_shards *shards)
{
    /* While some I/O threads still run, the box must not write to descriptors that are closed. */
    for (size_t i = 0; shards->box != NULL && i < shards->n; i++) pd_settle_box_wake(shards->box, (uint32_t)i, -1);
    for (size_t i = 0; shards->at != NULL && i < shards->n; i++)
        if (shards->at[i] != NULL) pd_handle_stop(shards->at[i]);
}

void pd_shards_free(pd_shards *shards)
{
    pd_shards_forget_tickets(shards);
    for (size_t i = 0; i < shards->n_params; i++) free(shards->params[i].buffer);
    free(shards->params);
    free(shards->places);
    for (size_t i = 0; shards->at != NULL && i < shards->n; i++)
        if (shards->at[i] != NULL) pd_handle_dispose(shards->at[i]);
    pd_settle_box_free(shards->box);
    for (size_t i = 0; i < PD_SHARDS_CALLS; i++) free(shards->over[i]);
    free(shards->noted);
    free(shards->coupled);
    free(shards->at);
    if (shards->done_fd >= 0) close(shards->done_fd);
    pd_bell_free(&shards->bell);
    pthread_mutex_destroy(&shards->lock);
    free(shards);
}

/* Tells the cores of the other shards what shard 0 has told, and starts their I/O threads. */
static int start_others(pd_shards *shards, pd_error *err)
{
    const pd_core *lead = shards->at[0]->core;
    uint64_t cluster;
    uint32_t rank;
    int rc = PD_OK;

    pd_io_enter(&shards->at[0]->io);
    cluster = lead->setup.cluster;
    rank = lead->setup.rank;
    pd_io_leave(&shards->at[0]->io);
    for (size_t i = 1; rc == PD_OK && i < shards->n; i++) {
        pd_client *other = shards->at[i];
        if (other->running) continue;
        other->core->setup.cluster = cluster;
        other->core->setup.rank = rank;
        rc = start(shards, i, err);
    }
    return rc;
}

/* Returns what the welcome of a shard has that the one of shard 0 has not, in words; NULL: nothing that matters to the
 * bits of weights. */
static const char *find_difference(const pd_welcome *a, const pd_welcome *b, char *a_text, char *b_text, size_t room)
{
    const char *what = NULL;

    if (a->chunk_elements != b->chunk_elements) {
        what = "chunks";
        snprintf(a_text, room, "%" PRIu64 " elements", a->chunk_elements);
        snprintf(b_text, room, "%" PRIu64 " elements", b->chunk_elements);
    } else if (strcmp(a->blas_core, b->blas_core) != 0) {
        what = "kernels";
        snprintf(a_text, room, "%s", a->blas_core);
        snprintf(b_text, room, "%s", b->blas_core);
    } else if (strcmp(a->server, b->server) != 0) {
        what = "versions";
        snprintf(a_text, room, "%s", a->server);
        snprintf(b_text, room, "%s", b->server);
    }
    return what;
}

/* Tells the user if a shard computes otherwise than shard 0: then weights may differ from those of one server. */
static void warn_of_difference(const pd_client *client, size_t shard)
{
    char first[80], other[80], text[PD_ERROR_TEXT];
    const pd_welcome *a = &client->shards->at[0]->welcome, *b = &client->shards->at[shard]->welcome;
    const char *what = find_difference(a, b, first, other, sizeof first);

    if (what == NULL) return;
    snprintf(text, sizeof text,
             "shard %zu has other %s (%s) than shard 0 (%s): the weights may differ in their last bits from those of "
             "one server",
             shard, what, other, first);
    pd_notice_plain(&client->notices, text);
}

static int compare_seeds(const pd_shards *shards, pd_error *err)
{
    uint64_t seed = shards->at[0]->welcome.seed;

    for (size_t i = 1; i < shards->n; i++) {
        pd_error error;
        if (shards->at[i]->welcome.seed == seed) continue;
        pd_fail(&error, PD_FAILED_PRECONDITION,
                "its job has seed %" PRIu64 ", that of shard 0 has %" PRIu64
                ": give the option seed=, or the same job.seed in all configurations",
                shards->at[i]->welcome.seed, seed);
        pd_shards_name(shards, i, &error);
        if (err != NULL) *err = error;
        return error.code;
    }
    return PD_OK;
}

/* Makes the handle's welcome: that of shard 0, with the lowest step and the longest time to linger. */
static void join_welcomes(pd_client *client)
{
    const pd_shards *shards = client->shards;

    client->welcome = shards->at[0]->welcome;
    for (size_t i = 1; i < shards->n; i++) {
        const pd_welcome *other = &shards->at[i]->welcome;
        if (other->step < client->welcome.step) client->welcome.step = other->step;
        if (other->linger > client->welcome.linger) client->welcome.linger = other->linger;
        if (other->max_payload < client->welcome.max_payload) client->welcome.max_payload = other->max_payload;
    }
}

static int nothing_to_begin(pd_client *shard, size_t number, void *arg, pd_error *err)
{
    (void)shard, (void)number, (void)arg, (void)err;
    return PD_OK;
}

/* Waits until `end` for the welcome of shard 0. */
static int join_lead(pd_shards *shards, double end, pd_error *err)
{
    pd_error error = { .code = PD_OK };
    int rc = pd_handle_join(shards->at[0], end, &error);

    if (rc == PD_OK) return PD_OK;
    pd_shards_name(shards, 0, &error);
    if (err != NULL) *err = error;
    return rc;
}

int pd_shards_join(pd_client *client, double end, pd_error *err)
{
    pd_shards *shards = client->shards;
    int rc;

    if (pd_shards_are_joined(shards)) return PD_OK;
    rc = join_lead(shards, end, err);
    if (rc == PD_OK) rc = start_others(shards, err);
    if (rc == PD_OK)
        rc = pd_shards_carry_out(client, PD_CALL_JOIN, offsetof(pd_client, join), nothing_to_begin, NULL, end, err);
    if (rc != PD_OK) return rc;
    pd_shards_refresh(client);
    rc = compare_seeds(shards, err);
    for (size_t i = 1; rc == PD_OK && i < shards->n; i++) warn_of_difference(client, i);
    return rc;
}

void pd_shards_refresh(pd_client *client)
{
    for (size_t i = 0; i < client->shards->n; i++) {
        pd_client *shard = client->shards->at[i];
        pd_io_enter(&shard->io);
        shard->welcome = shard->core->welcome;
        pd_io_leave(&shard->io);
    }
    join_welcomes(client);
}

bool pd_shards_are_joined(const pd_shards *shards)
{
    for (size_t i = 0; i < shards->n; i++)
        if (!shards->at[i]->running || shards->at[i]->join != 0) return false;
    return true;
}

bool pd_shards_await_welcome(const pd_shards *shards, char text[PD_ERROR_TEXT])
{
    for (size_t i = 0; i < shards->n; i++) {
        pd_client *shard = shards->at[i];
        char own[PD_ERROR_TEXT];
        pd_error error;

        if (!shard->running || shard->join == 0) continue;
        pd_io_enter(&shard->io);
        pd_fail(&error, PD_UNAVAILABLE, "%.400s", pd_handle_reason(shard, own));
        pd_io_leave(&shard->io);
        pd_shards_name(shards, i, &error);
        snprintf(text, PD_ERROR_TEXT, "%s", error.text);
        return true;
    }
    return false;
}

bool pd_shards_is_new(pd_shards *shards, const char *remark)
{
    enum { RING = sizeof shards->told / sizeof *shards->told };
    uint64_t hash = XXH3_64bits(remark, strlen(remark));
    bool is_new = true;

    pthread_mutex_lock(&shards->lock);
    for (size_t i = 0; i < RING && i < shards->n_told; i++) is_new = is_new && shards->told[i] != hash;
    if (is_new) shards->told[shards->n_told++ % RING] = hash;
    pthread_mutex_unlock(&shards->lock);
    return is_new;
}

int pd_shards_name(const pd_shards *shards, size_t shard, pd_error *err)
{
    pd_address server = pd_handle_address(shards->at[shard], NULL);
    char address[PD_ADDRESS_TEXT], text[PD_ERROR_TEXT + PD_ADDRESS_TEXT + 64];
    const char *colon = strncmp(err->text, "waited ", 7) == 0 ? strstr(err->text, ": ") : NULL;
    int head = colon != NULL ? (int)(colon + 2 - err->text) : 0;

    pd_address_text(&server, address);
    snprintf(text, sizeof text, "%.*sshard %zu (%s): %s", head, err->text, shard, address, err->text + head);
    snprintf(err->text, sizeof err->text, "%.*s", PD_ERROR_TEXT - 1, text);
    return err->code;
}
