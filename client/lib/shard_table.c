/* shard_table.c - keeps the newest owner of each shard, and says when a core must ask for newer ones. */
#include "shard_table.h"

#include "mutant.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>

/* Time from one ask to the next; most time by which the first one waits, so that the workers of a job do not ask at
 * once. */
#define INTERVAL_NS UINT64_C(1000000000)
#define JITTER_NS UINT64_C(500000000)
/* Time by which other cores let the core ask whose server has news, or any core that has not asked last. */
#define LATER_NS UINT64_C(250000000)

typedef struct owner {
    char *url;       /* addresses, separated by commas; NULL: the shard has had no owner, as far as is known */
    uint64_t tenure; /* of the newest owner that is known; 0: none */
    int wake, move;  /* event descriptors: wakes the shard's core; ends its attempt to connect. -1: none */
} owner;

struct pd_shard_table {
    pthread_mutex_t lock;
    uint32_t n; /* number of shards in the last answer */
    owner owners[PD_MAX_SHARDS];
    char *spares;             /* addresses of the spares in the last answer, separated by commas; NULL: none */
    uint64_t random, next_ns; /* next_ns: time before which nobody asks again */
    _Atomic uint64_t due_ns, changes;
    _Atomic int teller; /* shard whose server has told of a change that was not asked for yet; PD_NO_SHARD: none has */
    _Atomic int last;   /* shard whose core has asked last; PD_NO_SHARD: none has, or there is only one */
};

pd_shard_table *pd_shard_table_new(uint64_t random)
{
    pd_shard_table *table = calloc(1, sizeof *table);

    if (table == NULL) return NULL;
    pthread_mutex_init(&table->lock, NULL);
    table->random = random;
    atomic_init(&table->due_ns, UINT64_MAX);
    atomic_init(&table->changes, 0);
    atomic_init(&table->teller, PD_NO_SHARD);
    atomic_init(&table->last, PD_NO_SHARD);
    for (size_t i = 0; i < PD_MAX_SHARDS; i++) table->owners[i].wake = table->owners[i].move = -1;
    return table;
}

void pd_shard_table_free(pd_shard_table *table)
{
    if (table == NULL) return;
    for (size_t i = 0; i < PD_MAX_SHARDS; i++) free(table->owners[i].url);
    free(table->spares);
    pthread_mutex_destroy(&table->lock);
    free(table);
}

void pd_shard_table_wake(pd_shard_table *table, uint32_t shard, int wake_fd, int move_fd)
{
    pthread_mutex_lock(&table->lock);
    table->owners[shard].wake = wake_fd;
    table->owners[shard].move = move_fd;
    pthread_mutex_unlock(&table->lock);
}

static void wake_all(const pd_shard_table *table)
{
    for (size_t i = 0; i < PD_MAX_SHARDS; i++)
        if (table->owners[i].wake >= 0) (void)eventfd_write(table->owners[i].wake, 1);
}

static uint64_t draw(pd_shard_table *table, uint64_t below)
{
    table->random = table->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (table->random >> 32) % below;
}

void pd_shard_table_want(pd_shard_table *table, int teller, uint64_t now_ns, bool crowd)
{
    uint64_t due;

    pthread_mutex_lock(&table->lock);
    if (teller != PD_NO_SHARD) atomic_store(&table->teller, teller);
    if (atomic_load(&table->due_ns) == UINT64_MAX) {
        due = now_ns + (crowd ? draw(table, JITTER_NS) : 0);
        atomic_store(&table->due_ns, due > table->next_ns ? due : table->next_ns);
        wake_all(table);
    } else if (teller != PD_NO_SHARD) {
        wake_all(table); /* another core is the first to ask */
    }
    pthread_mutex_unlock(&table->lock);
}

uint64_t pd_shard_table_due(const pd_shard_table *table, uint32_t shard)
{
    uint64_t due = atomic_load_explicit(&table->due_ns, memory_order_relaxed);
    int teller = atomic_load_explicit(&table->teller, memory_order_relaxed);
    bool later = teller != PD_NO_SHARD ? teller != (int)shard
                                       : atomic_load_explicit(&table->last, memory_order_relaxed) == (int)shard;

    return due < UINT64_MAX && later ? due + LATER_NS : due;
}

bool pd_shard_table_take_turn(pd_shard_table *table, uint32_t shard, uint64_t now_ns)
{
    bool mine, told;

    pthread_mutex_lock(&table->lock);
    mine = now_ns >= pd_shard_table_due(table, shard);
    told = atomic_load(&table->teller) == (int)shard || atomic_load(&table->teller) == PD_NO_SHARD;
    if (mine) {
        table->next_ns = now_ns + INTERVAL_NS;
        atomic_store(&table->due_ns, told ? UINT64_MAX : table->next_ns); /* the core that was told asks as well */
        if (told) atomic_store(&table->teller, PD_NO_SHARD);
        atomic_store(&table->last, table->n > 1 ? (int)shard : PD_NO_SHARD);
    }
    pthread_mutex_unlock(&table->lock);
    return mine;
}

/* Takes over one entry of an answer. A server whose own copy of the table is behind answers with an earlier owner,
 * which must not replace a newer one. Returns whether the table has changed. */
static bool take(owner *known, const Paramd__ShardInfo *told)
{
    bool newer = told->tenure > known->tenure || PD_MUTANT(lower_tenure_taken);
    bool elsewhere = known->url == NULL || strcmp(known->url, told->url) != 0;
    char *url;

    if (told->url[0] == '\0' || (known->url != NULL && !newer)) return false;
    if ((url = strdup(told->url)) == NULL) return false;
    free(known->url);
    known->url = url;
    if (newer) known->tenure = told->tenure;
    /* Before the change is counted: whoever sees the count can clear the descriptor. */
    if (elsewhere && known->move >= 0) (void)eventfd_write(known->move, 1);
    return true;
}

/* Returns the addresses of the spares of an answer, separated by commas, in new memory. NULL: none, or out of memory.
 * */
static char *spares_of(const Paramd__ShardsReply *reply)
{
    size_t bytes = 1;
    char *text, *at;

    for (size_t i = 0; i < reply->n_spares; i++) bytes += strlen(reply->spares[i]->url) + 1;
    if (bytes == 1 + reply->n_spares || (text = at = malloc(bytes)) == NULL) return NULL;
    for (size_t i = 0; i < reply->n_spares; i++) {
        if (reply->spares[i]->url[0] == '\0') continue;
        if (at > text) *at++ = ',';
        at = stpcpy(at, reply->spares[i]->url);
    }
    return text;
}

/* Takes over the spares of an answer. Returns whether they have changed. */
static bool take_spares(pd_shard_table *table, const Paramd__ShardsReply *reply)
{
    char *spares = spares_of(reply);
    bool same = spares != NULL && table->spares != NULL ? strcmp(spares, table->spares) == 0 : spares == table->spares;

    free(same ? spares : table->spares);
    if (!same) table->spares = spares;
    return !same;
}

void pd_shard_table_learn(pd_shard_table *table, const Paramd__ShardsReply *reply)
{
    bool changed = false;

    pthread_mutex_lock(&table->lock);
    for (size_t i = 0; i < reply->n_shards; i++) {
        const Paramd__ShardInfo *told = reply->shards[i];
        if (told->shard >= PD_MAX_SHARDS) continue;
        if (told->shard >= table->n) table->n = told->shard + 1;
        changed = take(&table->owners[told->shard], told) || changed;
    }
    changed = take_spares(table, reply) || changed;
    if (changed) atomic_fetch_add(&table->changes, 1);
    if (changed) wake_all(table);
    pthread_mutex_unlock(&table->lock);
}

uint64_t pd_shard_table_changes(const pd_shard_table *table)
{
    return atomic_load_explicit(&table->changes, memory_order_acquire);
}

uint64_t pd_shard_table_find(pd_shard_table *table, uint32_t shard, char **url)
{
    uint64_t tenure;

    pthread_mutex_lock(&table->lock);
    tenure = table->owners[shard].tenure;
    *url = table->owners[shard].url != NULL ? strdup(table->owners[shard].url) : NULL;
    pthread_mutex_unlock(&table->lock);
    return tenure;
}

char *pd_shard_table_spares(pd_shard_table *table)
{
    char *spares;

    pthread_mutex_lock(&table->lock);
    spares = table->spares != NULL ? strdup(table->spares) : NULL;
    pthread_mutex_unlock(&table->lock);
    return spares;
}

/* Returns the addresses of all shards, separated by blanks, in new memory. NULL: out of memory. */
static char *join(const pd_shard_table *table)
{
    size_t bytes = 1;
    char *text, *at;

    for (size_t i = 0; i < table->n; i++) bytes += strlen(table->owners[i].url) + 1;
    if ((text = at = malloc(bytes)) == NULL) return NULL;
    *at = '\0';
    for (size_t i = 0; i < table->n; i++) {
        if (i > 0) *at++ = ' ';
        at = stpcpy(at, table->owners[i].url);
    }
    return text;
}

int pd_shard_table_list(pd_shard_table *table, pd_shard_list *out, pd_error *err)
{
    char *text = NULL;
    uint32_t known = 0;
    int rc;

    pthread_mutex_lock(&table->lock);
    while (known < table->n && table->owners[known].url != NULL) known++;
    if (known < table->n || table->n == 0)
        rc = pd_fail(err, PD_UNAVAILABLE, "shard %u of the cluster has had no owner yet", known);
    else if ((text = join(table)) == NULL)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    else
        rc = pd_shard_list_parse(out, text, err);
    if (rc == PD_OK && out->n != table->n) {
        pd_shard_list_free(out);
        rc = pd_fail(err, PD_INTERNAL, "the addresses of the cluster's %u shards are not one for each: %.300s",
                     table->n, text);
    }
    pthread_mutex_unlock(&table->lock);
    free(text);
    return rc;
}
