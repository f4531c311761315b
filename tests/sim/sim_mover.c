/* sim_mover.c - simulated movers: runs passes in events, and checks that nobody else changes the memory of a pass. */
#include "sim_mover.h"

#include "server.h"

#include <xxhash.h>

enum { MOST_TURNS = 3, MARK = 0xa5 };

struct sim_pass {
    sim_pass *next; /* in the list of all passes */
    sim *s;
    struct sim_server *server;
    pd_transport *end;
    sim_move move;
    uint32_t turns; /* number of turns in which it still moves bytes */
    uint64_t hash;  /* of the memory, after the last turn */
    bool back;      /* the loop thread may take it back */
    pd_moved moved;
    int at, n; /* iov[at..n) are left */
    int spans;
    struct iovec *iov, *memory; /* memory: all spans, of which `spans` are in use */
};

static sim_pass *all; /* all passes of this run */

static uint64_t hash_of(const sim_pass *pass)
{
    uint64_t hash = 0;

    for (int i = 0; i < pass->spans; i++)
        hash = XXH3_64bits_withSeed(pass->memory[i].iov_base, pass->memory[i].iov_len, hash);
    return hash;
}

static void advance(sim_pass *pass, size_t bytes)
{
    pass->moved.bytes += bytes;
    while (pass->at < pass->n && bytes >= pass->iov[pass->at].iov_len) bytes -= pass->iov[pass->at++].iov_len;
    if (bytes == 0) return;
    pass->iov[pass->at].iov_base = (char *)pass->iov[pass->at].iov_base + bytes;
    pass->iov[pass->at].iov_len -= bytes;
}

/* Moves bytes of the next span, or a drawn part of it. Returns whether there were any. */
static bool move_some(sim_pass *pass)
{
    struct iovec part = pass->iov[pass->at];
    ssize_t n;

    if (part.iov_len > 1 && sim_chance(pass->s, 2)) part.iov_len = 1 + (size_t)sim_draw(pass->s, part.iov_len);
    n = pass->move(pass->end, &part, 1, &pass->moved.err);
    if (n > 0) advance(pass, (size_t)n);
    if (n < 0) pass->moved.end = n;
    return n > 0;
}

/* Does a turn of the pass. Checks that the memory is as the pass has left it. */
static void turn(sim_pass *pass)
{
    sim_side before = sim_enter(SIM_HARNESS);
    bool moves = true;

    if (hash_of(pass) != pass->hash) sim_fail("movers", "memory of a lent direction was changed or freed");
    for (uint64_t n = 1 + sim_draw(pass->s, 4); n > 0 && moves && pass->at < pass->n; n--) moves = move_some(pass);
    pass->turns--;
    pass->back = pass->turns == 0 || !moves || pass->at == pass->n;
    pass->hash = hash_of(pass);
    sim_enter(before);
}

static void plan_turn(sim_pass *pass);

static void on_turn(sim *s, void *who, uint64_t what)
{
    sim_pass *pass = who;

    (void)s, (void)what;
    if (pass->back) return; /* it was finished at the end of the server's process */
    turn(pass);
    if (pass->back)
        sim_server_wake_loop(pass->server);
    else
        plan_turn(pass);
}

/* Plans the next turn. At times a mover is late. */
static void plan_turn(sim_pass *pass)
{
    sim *s = pass->s;
    uint64_t most = sim_chance(s, 32) ? 400 * SIM_MS : sim_chance(s, 4) ? 10 * SIM_MS : 200000;

    sim_after(s, sim_draw(s, most), on_turn, pass, 0);
}

static struct iovec *copy(const struct iovec *iov, int n)
{
    struct iovec *at = sim_must(malloc((size_t)n * sizeof *iov));

    memcpy(at, iov, (size_t)n * sizeof *iov);
    return at;
}

sim_pass *sim_pass_new(struct sim_server *server, sim *s, pd_transport *end, unsigned direction, sim_move move,
                       const struct iovec *iov, int n)
{
    sim_side before = sim_enter(SIM_HARNESS);
    sim_pass *pass = sim_must(calloc(1, sizeof *pass));

    pass->s = s;
    pass->server = server;
    pass->end = end;
    pass->move = move;
    pass->turns = 1 + (uint32_t)sim_draw(s, MOST_TURNS);
    pass->moved.direction = direction;
    pass->n = pass->spans = n;
    pass->iov = copy(iov, n);
    pass->memory = copy(iov, n);
    for (int i = 0; direction == PD_ON_READ && i < n; i++) memset(iov[i].iov_base, MARK, iov[i].iov_len);
    pass->hash = hash_of(pass);
    pass->next = all;
    all = pass;
    plan_turn(pass);
    sim_enter(before);
    return pass;
}

const pd_moved *sim_pass_result(const sim_pass *pass)
{
    return pass->back ? &pass->moved : NULL;
}

void sim_pass_finish(sim_pass *pass)
{
    while (!pass->back) turn(pass);
}

void sim_passes_free(void)
{
    while (all != NULL) {
        sim_pass *pass = all;
        all = pass->next;
        free(pass->iov);
        free(pass->memory);
        free(pass);
    }
}
