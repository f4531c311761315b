/* shards_request.c - tells workers and operators where the shards of the cluster are, and keeps workers away from a
 * daemon that no longer owns its shard. Works with the table of shards that the engine gives the daemon. */
#include "handlers.h"

#include "conn.h"
#include "conversation.h"
#include "cluster_table.h"
#include "mutant.h"

#include <inttypes.h>

/* Returns the table of shards. NULL: the daemon has no engine. */
static const pd_cluster_table *table_of(const pd_daemon *daemon)
{
    return daemon->platform.table != NULL ? daemon->platform.table(daemon->platform.arg) : NULL;
}

bool pd_owner_is_sure(const pd_daemon *daemon)
{
    const pd_cluster_table *table = table_of(daemon);

    return table == NULL || PD_MUTANT(lease_ignored) || pd_loop_clock_ns(daemon) / 1000000 < table->owned_until_ms;
}

void pd_owner_fill(Paramd__HelloReply *reply, const pd_daemon *daemon)
{
    const pd_cluster_table *table = table_of(daemon);

    if (table == NULL) return;
    reply->tenure = table->tenure;
    reply->shards_known = table->n_shards;
}

/* Checks the tenure that a Hello brings. */
static int check_tenure(const pd_cluster_table *table, const Paramd__HelloRequest *hello, pd_error *err)
{
    if (table == NULL && hello->tenure > 0)
        return pd_fail(err, PD_UNAVAILABLE,
                       "Hello for the owner of shard %u with tenure %" PRIu64
                       ": this daemon owns no shard (cluster.engine): ask another shard where it is",
                       hello->shard, hello->tenure);
    if (table == NULL || hello->tenure <= table->tenure) return PD_OK;
    return pd_fail(err, PD_UNAVAILABLE,
                   "shard %u has a newer owner, with tenure %" PRIu64 ": that of this daemon is %" PRIu64
                   "; ask another shard where it is",
                   hello->shard, hello->tenure, table->tenure);
}

/* Checks that the worker means the shard that this daemon has. Who follows a shard comes here by an address that
 * another shard's owner has now, and looks elsewhere; otherwise the list is wrong. */
static int check_number(const pd_cluster_table *table, const Paramd__HelloRequest *hello, pd_error *err)
{
    if (table->own < 0 || hello->shards <= 1 || hello->shard == (uint32_t)table->own) return PD_OK;
    return pd_fail(
        err, hello->tenure > 0 ? PD_UNAVAILABLE : PD_FAILED_PRECONDITION,
        "Hello for shard %u of %u: this daemon has shard %d of cluster %s (cluster.shard): order the list as "
        "the shards are numbered, or name one daemon alone (PARAMD_URL)",
        hello->shard, hello->shards, table->own, table->name);
}

int pd_owner_check(const pd_conn *conn, const Paramd__HelloRequest *hello, bool *looks, pd_error *err)
{
    const pd_cluster_table *table = table_of(conn->daemon);
    int rc;

    if (hello->job[0] == '\0') return PD_OK;
    rc = check_tenure(table, hello, err);
    if (rc != PD_OK || table == NULL) return rc;
    /* A job of one daemon may be older than the cluster's other shards: its workers come back to it. */
    if (hello->shards > 1 || table->n_shards <= 1 || hello->rejoins) return check_number(table, hello, err);
    *looks = hello->follows;
    if (*looks) return PD_OK;
    return pd_fail(err, PD_FAILED_PRECONDITION,
                   "this daemon is one of the %u shards of cluster %s: name all of them in the worker's list "
                   "(PARAMD_URL), or use a client library that asks for them",
                   table->n_shards, table->name);
}

int pd_owner_check_tenures(const pd_conn *conn, const Paramd__GoBackRequest *asked, pd_error *err)
{
    const pd_cluster_table *table = table_of(conn->daemon);

    if (asked->n_tenures > PD_MAX_SHARDS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "GoBack with tenures of %zu shards: at most %d", asked->n_tenures,
                       PD_MAX_SHARDS);
    for (size_t i = 0; table != NULL && i < asked->n_tenures; i++) {
        uint64_t newest = table->shards[i].last_tenure;
        if (asked->tenures[i] == 0 || asked->tenures[i] >= newest || PD_MUTANT(goback_ignores_tenures)) continue;
        return pd_fail(err, PD_ABORTED,
                       "shard %zu has a newer owner, with tenure %" PRIu64 ", than the one with %" PRIu64
                       " that you have looked at: ask where the shards are, and look again",
                       i, newest, asked->tenures[i]);
    }
    return PD_OK;
}

/* The messages of an answer to Shards. */
typedef struct answer {
    Paramd__ShardsReply reply;
    Paramd__ShardInfo shard[PD_MAX_SHARDS], *shards[PD_MAX_SHARDS];
    Paramd__SpareInfo spare[PD_CLUSTER_SPARES], *spares[PD_CLUSTER_SPARES];
} answer;

static void fill_shards(answer *a, const pd_cluster_table *table)
{
    a->reply.shards = a->shards;
    a->reply.n_shards = table->n_shards;
    for (uint32_t i = 0; i < table->n_shards; i++) {
        const pd_cluster_shard *from = &table->shards[i];
        Paramd__ShardInfo *to = a->shards[i] = &a->shard[i];
        paramd__shard_info__init(to);
        to->shard = i;
        to->url = (char *)from->url;
        to->http = (char *)from->http;
        to->life = from->life;
        to->tenure = from->tenure;
        to->alive = from->alive;
        to->lease_ms = from->lease_ms;
    }
}

/* Leaves out what no worker needs while the answer is too long for a frame's header: HTTP addresses, then spares. */
static void shorten(answer *a)
{
    if (protobuf_c_message_get_packed_size(&a->reply.base) <= PD_MAX_HEADER_BYTES) return;
    for (size_t i = 0; i < a->reply.n_shards; i++) a->shard[i].http = (char *)protobuf_c_empty_string;
    for (size_t i = 0; i < a->reply.n_spares; i++) a->spare[i].http = (char *)protobuf_c_empty_string;
    if (protobuf_c_message_get_packed_size(&a->reply.base) > PD_MAX_HEADER_BYTES) a->reply.n_spares = 0;
}

int pd_answer_shards(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err)
{
    const pd_cluster_table *table = table_of(conn->daemon);
    answer a;

    (void)message;
    if (table == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "this daemon has no cluster.engine: name every shard in PARAMD_URL, or --server");
    paramd__shards_reply__init(&a.reply);
    a.reply.version = table->version;
    a.reply.cluster = (char *)table->name;
    fill_shards(&a, table);
    a.reply.spares = a.spares;
    a.reply.n_spares = table->n_spares;
    for (uint32_t i = 0; i < table->n_spares; i++) {
        a.spares[i] = &a.spare[i];
        paramd__spare_info__init(a.spares[i]);
        a.spares[i]->name = (char *)table->spares[i].name;
        a.spares[i]->http = (char *)table->spares[i].http;
        a.spares[i]->url = (char *)table->spares[i].url;
    }
    shorten(&a);
    pd_conn_reply(conn, prefix, &a.reply.base);
    return PD_OK;
}

void pd_conversation_tell_moved(pd_daemon *daemon)
{
    static const pd_prefix nobody = { .method = PD_HEARTBEAT };
    const pd_cluster_table *table = table_of(daemon);
    Paramd__Ok ok = PARAMD__OK__INIT;

    if (table == NULL) return;
    ok.moved = table->version;
    for (size_t i = 0; i < daemon->table.capacity; i++) {
        pd_conn *conn = daemon->table.at[i];
        if (conn == NULL || !conn->follows || conn->state != PD_OPEN) continue;
        /* A worker that reads nothing is closed soon, and asks when it comes back. */
        if (conn->output.held < PD_HIGH_WATER) pd_conn_reply(conn, &nobody, &ok.base);
    }
}
