/* Plays any conversation of up to three connections with the daemon: the code of the loop thread on socket pairs, and a
 * real store in the same thread. The input is a sequence of choices. Each operation is a byte, modulo OPS, followed by
 * the connection and by the choices that the operation needs. With the top bit of the byte set, the daemon sees the
 * operation only together with the next one. Frames are well formed unless a choice damages them. Whatever is sent, the
 * daemon answers with well-formed frames, and in the end every buffer and every published version is freed. Started
 * with PARAMD_SEEDS, the program also checks that the seeds reach every handler. */
#define _GNU_SOURCE /* memfd_create, F_ADD_SEALS */
#include "daemon.h"
#include "loop.h"
#include "message.h"
#include "cluster_table.h"
#include "pieces.h"
#include "turn.h"

#include "lender.h"
#include "seed.h"
#include "small_daemon.h"

#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CONNS = 3, CHUNK = 64, MOST_PARAMS = 8, MOST_PIECES = 6, PAYLOAD = 8192, FRAME = 65536 + PAYLOAD };
enum { TALLY_SHARD = 4 }; /* offset of the number of the shard in a tally */
enum { RAW = PD_METHODS, CLOSE, TIME, SPOIL, CUT, TURN, DEAF, LEND, PASS, SCRIBBLE, KEPT, SPREAD, TABLE, OPS };

typedef struct peer {                              /* a connection, as seen by the peer of the daemon */
    int fd;                                        /* -1: not connected */
    uint64_t start[MOST_PARAMS], end[MOST_PARAMS]; /* declared range of each parameter handle */
    unsigned n_params;
    uint64_t last_id;
    bool deaf; /* the peer does not read for now */
    lender lends;
    uint64_t weights_bytes; /* length of the daemon's segment; 0: none came */
    pd_framer *framer;
} peer;

static struct {
    const uint8_t *at, *end; /* the rest of the input: choices that are not yet used */
    pd_daemon *daemon;
    pd_store *store;
    pd_turn turn; /* runs the store's requests and work, and forwards the store's effects to the daemon */
    pd_mailbox *requests;
    uint64_t now;
    peer peers[CONNS];
    unsigned spoil_at, spoil_with, cut_to; /* damage to the next frame */
    unsigned changed;                      /* number of the change by hand that was sent last */
    unsigned spread;                       /* which shard of a cluster the next Hello says that the daemon is */
    pd_cluster_table table;                /* what the daemon knows of the shards; n_shards 0: it has no engine */
    uint8_t follows;                       /* whether the next Hello follows its shard (top bit), and its tenure */
    bool lend;                             /* the payload of the next frame lies in shared memory, at unit lend_at */
    uint32_t lend_at;
    int pass;                              /* descriptor that goes with the next bytes; -1: none */
    pd_mail *checkpointing, *last_keeping; /* checkpoints and entries that the store has handed out, the oldest first */
    int first_free;                        /* lowest descriptor that was free when the conversation began */
    uint8_t tally[1024];                   /* the last tally that the daemon has given */
    size_t tally_bytes;
} world;

static uint64_t calls[PD_METHODS]; /* calls of each method in all conversations */
static uint8_t bin[PAYLOAD];

static uint8_t choice(void)
{
    return world.at < world.end ? *world.at++ : 0;
}

static void on_effects(void *arg, pd_mail *first, pd_mail *last)
{
    (void)arg;
    MUST(pd_mailbox_post(pd_conversation_effects(world.daemon), first, last) == PD_OK);
}

static void on_task(void *arg, pd_effect *effect)
{
    (void)arg, (void)effect;
    MUST(false); /* no rule of these jobs computes roots, so the store has no tasks for other threads */
}

static void on_forget(void *arg, uint32_t job)
{
    (void)arg, (void)job;
}

#include "checkpoints_out.h"

static uint64_t look(void *arg)
{
    (void)arg;
    return world.now;
}

static int lowest_free(void)
{
    int fd = dup(0);

    close(fd);
    return fd;
}

static const pd_cluster_table *tell_table(void *arg)
{
    (void)arg;
    return world.table.n_shards > 0 ? &world.table : NULL;
}

/* Changes the table of shards, and says what the next Hello knows of it. */
static void change_table(void)
{
    uint8_t how = choice();

    world.follows = choice();
    world.table.name = "fuzz";
    world.table.version++;
    world.table.n_shards = how & 3;
    world.table.own = (int)(how >> 2 & 3) - 1;
    world.table.tenure = how >> 4 & 7;
    world.table.n_spares = how >> 7;
    for (size_t i = 0; i < world.table.n_shards; i++) {
        memset(world.table.shards[i].url, 'u', how);
        world.table.shards[i].tenure = how >> i;
    }
    pd_conversation_tell_moved(world.daemon);
}

static void begin_world(void)
{
    pd_daemon_config config = small_daemon();
    pd_store_config store = { .max_jobs = 2,
                              .max_params = MOST_PARAMS,
                              .max_total_bytes = 1 << 20,
                              .ingest_bytes = 4 * PAYLOAD,
                              .chunk_elements = CHUNK,
                              .keeps = true,
                              .threads = 1,
                              .batch_ns = 5e7 };

    config.max_connections = CONNS;
    config.ingest_bytes = 4 * PAYLOAD;
    config.chunk_elements = CHUNK;
    config.max_payload = PAYLOAD / 2;
    config.max_pieces = 4;
    config.max_params = MOST_PARAMS;
    config.shared_memory = true;
    config.least_shared = 1;
    world.table = (pd_cluster_table){ .n_shards = 0, .owned_until_ms = UINT64_MAX };
    world.follows = 0;
    store.frame_bytes = config.max_payload;
    world.first_free = lowest_free();
    world.pass = -1;
    world.lend = false;
    MUST(pd_daemon_new(&world.daemon, &config, NULL) == PD_OK);
    world.daemon->platform.table = tell_table;
    MUST(pd_store_new(&world.store, &store, NULL) == PD_OK);
    world.turn = (pd_turn){ .store = world.store,
                            .user = { .now_ns = look,
                                      .effects = on_effects,
                                      .task = on_task,
                                      .forget = on_forget,
                                      .keep = on_keep,
                                      .log = on_keep } };
    MUST((world.requests = pd_mailbox_new(NULL, NULL)) != NULL);
    pd_daemon_begin(world.daemon, world.requests);
    world.now = 1000000000;
    for (int i = 0; i < CONNS; i++) world.peers[i] = (peer){ .fd = -1 };
}

static bool apply_requests(void)
{
    pd_mail *mail = pd_mailbox_take(world.requests);
    bool any = mail != NULL;

    pd_turn_add(&world.turn, mail);
    pd_turn_finish(&world.turn);
    return any;
}

/* Forwards the store's effects to the daemon. Returns whether there were any. */
static bool post_effects(void)
{
    uint64_t before = world.turn.effects;

    pd_turn_forward(&world.turn);
    return world.turn.effects > before;
}

static void run_store(void)
{
    while (pd_store_work(world.store, world.now)) continue;
    if (pd_store_next_tick(world.store) <= world.now) pd_store_tick(world.store, world.now);
}

static bool has_outcomes(unsigned method)
{
    return method == PD_PUSH || method == PD_PULL || method == PD_PUSH_PULL;
}

/* Checks that weights in shared memory lie in the daemon's segment. */
static void check_places(const peer *p, const pd_prefix *prefix, const Paramd__DataReply *reply)
{
    MUST(has_outcomes(prefix->method) && p->weights_bytes > 0);
    for (size_t i = 0; i < reply->n_outcomes; i++) MUST(reply->outcomes[i]->place < p->weights_bytes);
}

static void keep_tally(const Paramd__SettleReply *reply)
{
    if (reply->tally.len == 0 || reply->tally.len > sizeof world.tally) return;
    world.tally_bytes = reply->tally.len;
    memcpy(world.tally, reply->tally.data, reply->tally.len);
}

static int on_header(void *arg, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n)
{
    static struct iovec span;
    pd_arena *arena = pd_arena_new(PD_ARENA_BUDGET);
    bool shared = (prefix->flags & PD_FLAG_SHARED) != 0;
    peer *p = arg;
    void *message;
    pd_error err;

    MUST(arena != NULL);
    MUST((prefix->flags & PD_FLAG_REPLY) != 0);
    if ((prefix->flags & PD_FLAG_ERROR) != 0)
        MUST(pd_message_error(arena, header, prefix->header_bytes, &err, NULL) < 0 && err.text[0] != '\0');
    else
        MUST(pd_reply_unpack(arena, prefix->method, header, prefix->header_bytes, &message, &err) == PD_OK);
    if ((prefix->flags & PD_FLAG_ERROR) == 0 && prefix->method == PD_SHARE)
        p->weights_bytes = ((const Paramd__ShareReply *)message)->bytes;
    if ((prefix->flags & PD_FLAG_ERROR) == 0 && prefix->method == PD_SETTLE) keep_tally(message);
    if (shared) check_places(p, prefix, message);
    pd_arena_free(arena);
    span = (struct iovec){ NULL, prefix->payload_bytes };
    *spans = &span;
    *n = prefix->payload_bytes > 0 && !shared;
    return PD_OK;
}

static int on_frame(void *arg, const pd_prefix *prefix, const uint8_t *header)
{
    (void)arg, (void)prefix, (void)header;
    return PD_OK;
}

static void disconnect(peer *p)
{
    if (p->fd >= 0) close(p->fd);
    pd_framer_free(p->framer);
    lender_free(&p->lends);
    *p = (peer){ .fd = -1 };
}

static void listen_to(peer *p)
{
    while (p->fd >= 0 && !p->deaf) {
        struct iovec iov[4];
        int n = pd_framer_space(p->framer, iov, 4, 65536);
        ssize_t got = readv(p->fd, iov, n);
        if (got <= 0) {
            if (got == 0) disconnect(p);
            return;
        }
        MUST(pd_framer_fed(p->framer, (size_t)got) == PD_OK);
    }
}

/* Lets the daemon, the store and the peers work until none of them has anything left to do. */
static void pump(void)
{
    for (int quiet = 0, i = 0; quiet < 2 && i < 50; i++) {
        bool any;
        pd_daemon_turn(world.daemon);
        any = apply_requests();
        run_store();
        any |= post_effects();
        for (int k = 0; k < CONNS; k++) listen_to(&world.peers[k]);
        quiet = any ? 0 : quiet + 1;
    }
}

static void end_world(void)
{
    pd_request *drop = pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 });

    pump();
    for (int i = 0; i < CONNS; i++) disconnect(&world.peers[i]);
    pump();
    for (unsigned i = 0; i < PD_METHODS; i++) calls[i] += world.daemon->counters.calls[i];
    pd_store_apply(world.store, drop, world.now);
    post_effects();
    pump();
    pd_daemon_end(world.daemon);
    apply_requests();
    post_effects();
    while (world.checkpointing != NULL) give_back(false);
    MUST(pd_store_count_bytes(world.store).held == 0 && pd_store_count_bytes(world.store).published_list == 0);
    post_effects();
    pd_daemon_free(world.daemon); /* asserts that the memory of every payload is freed */
    pd_store_free(world.store);
    pd_mailbox_free(world.requests);
    if (world.pass >= 0) close(world.pass);
    MUST(lowest_free() == world.first_free); /* no descriptor is left open */
}

static void connect_peer(peer *p)
{
    const pd_framer_user user = { .arg = p, .header = on_header, .frame = on_frame };
    int pair[2];

    if (p->fd >= 0) return;
    MUST(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, pair) == 0);
    if (pd_daemon_adopt(world.daemon, pair[1]) != PD_OK) close(pair[1]);
    *p = (peer){ .fd = pair[0], .framer = pd_framer_new(&user, UINT64_MAX) };
    MUST(p->framer != NULL);
}

static void send_bytes(peer *p, const uint8_t *at, size_t n)
{
    connect_peer(p);
    lender_send(p->fd, at, n, world.pass);
    world.pass = -1;
}

/* Sends a frame with `payload` bytes of value `fill`, and with the damage that was chosen. */
static void send_frame(peer *p, unsigned method, const ProtobufCMessage *message, size_t payload, uint8_t fill)
{
    static uint8_t whole[FRAME];
    uint8_t *frame;
    size_t n;

    connect_peer(p);
    if (payload > PAYLOAD) payload = PAYLOAD;
    if (pd_frame_pack(&frame, &n, method, 0, ++p->last_id, message, NULL, 0, payload) != PD_OK) return;
    memcpy(whole, frame, n);
    free(frame);
    if (world.lend) {
        pd_prefix_share(whole, true, world.lend_at);
        lender_fill(&p->lends, world.lend_at, payload, fill);
    } else {
        memset(whole + n, fill, payload);
        n += payload;
    }
    world.lend = false;
    if (world.spoil_with != 0) whole[world.spoil_at % n] ^= (uint8_t)world.spoil_with;
    if (world.cut_to != 0 && world.cut_to < n) n = world.cut_to;
    world.spoil_with = world.cut_to = 0;
    send_bytes(p, whole, n);
}

static const char *const job_names[] = { "", "a", "b", "no such job" };

/* Adds options for the start of the job and for clipping. Each bit of `which` stands for one option. */
static size_t add_options(Paramd__Option **list, size_t n, Paramd__Option more[3], unsigned which)
{
    static const char *const names[] = { "start_step", "initial_weights", "clip_global_norm" }, *const values[] = {
        "1", "mean", "0.5"
    };

    for (int i = 0; i < 3; i++) {
        paramd__option__init(&more[i]);
        more[i].name = (char *)names[i];
        more[i].value = (char *)values[i];
        if ((which >> i & 1) != 0) list[n++] = &more[i];
    }
    return n;
}

/* Adds a job option that chooses an aggregate which collects all contributions. */
static size_t add_aggregate(Paramd__Option **options, size_t n, Paramd__Option more[2])
{
    static const char *const values[] = { "adasum", "adasum_vdot", "median", "trimmed_mean" };
    uint8_t how = choice();

    paramd__option__init(&more[0]);
    more[0].name = (char *)"aggregate";
    more[0].value = (char *)((how & 8) != 0 ? "radial_mean" : values[how & 3]);
    options[n++] = &more[0];
    if ((how & 4) == 0) return n;
    paramd__option__init(&more[1]);
    more[1].name = (char *)"adasum_fold";
    more[1].value = (char *)"yes";
    options[n++] = &more[1];
    return n;
}

static void say_hello(peer *p)
{
    static const char *const names[] = { "nonfinite", "aggregate", "colour", "" }, *const values[] = { "reject",
                                                                                                       "weighted_mean",
                                                                                                       "red", "\t" };
    static const char *const rules[] = {
        "* sgd lr=0.1 momentum=0.9", "b* sgd lr=1", "* nonesuch",
        "* shampoo precondition_frequency=1000000 grafting_config=SGD communication_dtype=BF16"
    };
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__Option option = PARAMD__OPTION__INIT, scope = PARAMD__OPTION__INIT, more[3], collects[2],
                   *options[7] = { &option, &scope };
    uint8_t who = choice(), how = choice();
    char *rule[] = { (char *)rules[how & 3], (char *)rules[how >> 2 & 3] };

    hello.protocol = (how & 0x80) != 0 ? 0 : 1;
    hello.job = (char *)job_names[who & 3];
    hello.rank = who >> 2 & 3;
    hello.world_size = 1 + (who >> 4 & 3);
    hello.nonce = choice();
    hello.shares = (hello.nonce & 8) == 0;
    hello.window = (hello.nonce & 4) != 0 ? 2 : 0; /* then a checkpoint is due at each step */
    hello.barriers = (hello.nonce & 7) == 7 ? UINT64_MAX : hello.nonce >> 2 & 1;
    hello.group = (hello.nonce & 0x11) == 0x11 ? (uint32_t)hello.nonce : 0;
    hello.generation = (hello.nonce & 0x22) == 0x22 ? hello.nonce >> 2 : 0;
    hello.course = (hello.nonce & 0x41) == 0x41;
    hello.label = (char *)"fuzz";
    hello.shard = world.spread & 3;
    hello.shards = world.spread >> 2 & 7;
    hello.cluster = world.spread >> 5;
    world.spread = 0;
    hello.follows = (world.follows & 0x80) != 0;
    hello.tenure = world.follows & 7;
    world.follows = 0;
    hello.rules = rule;
    hello.n_rules = 1 + (how >> 6 & 1);
    option.name = (char *)names[how >> 4 & 3];
    option.value = (char *)values[how >> 4 & 3];
    hello.options = options;
    hello.n_options = (how & 0x30) != 0x30;
    scope.name = (char *)"nonfinite_scope";
    scope.value = (char *)((who & 0x80) != 0 ? "job" : "parameter");
    if ((who & 0x40) != 0) options[hello.n_options++] = &scope;
    hello.n_options = add_options(options, hello.n_options, more, (unsigned)(hello.nonce >> 4 & 7));
    if ((hello.nonce & 0x80) != 0) hello.n_options = add_aggregate(options, hello.n_options, collects);
    p->n_params = 0;
    send_frame(p, PD_HELLO, &hello.base, 0, 0);
}

/* Gives the declared parameter a range of elements if `how` asks for it. Start and end are chosen in units of 1/128
 * of the parameter. The range may be invalid. */
static void choose_range(Paramd__Parameter *at, uint8_t how, uint64_t elements)
{
    if ((how & 0xe0) == 0) return;
    at->ranged = (how & 0x20) != 0;
    at->range_start = elements * choice() / 128;
    at->range_end = (how & 0x40) != 0 ? elements : elements * choice() / 128;
    if ((how & 0x80) != 0) at->range_end -= 1;
}

static void say_declare(peer *p)
{
    static const char *const names[] = { "w", "b", "bias", "deep/er.kernel", "", "\001", "w2", "w3" };
    static const char *const axes[] = { "", "layers,embed", ",", "one,2" };
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter at[4], *list[4];
    uint64_t shapes[4][2];
    uint8_t how = choice();

    for (unsigned i = 0; i < (how & 3u); i++) {
        uint8_t name = choice(), rows = choice(), columns = choice();
        paramd__parameter__init(&at[i]);
        at[i].name = (char *)names[name & 7];
        at[i].pull_dtype = name >> 3 & 3;
        at[i].update_dtype = name >> 6;
        at[i].axes = (char *)axes[how >> 3 & 3];
        at[i].model_state = (how & 0x20) != 0;
        at[i].shape = shapes[i];
        at[i].n_shape = 2;
        shapes[i][0] = rows == 255 ? UINT64_MAX : rows % 16;
        shapes[i][1] = columns == 255 ? (uint64_t)1 << 62 : columns % 32;
        choose_range(&at[i], name, shapes[i][0] * shapes[i][1]);
        if (p->n_params < MOST_PARAMS) {
            p->start[p->n_params] = at[i].ranged ? at[i].range_start : 0;
            p->end[p->n_params++] = at[i].ranged ? at[i].range_end : shapes[i][0] * shapes[i][1];
        }
        list[i] = &at[i];
        declare.n_parameters++;
    }
    declare.parameters = list;
    declare.last = (how & 4) == 0;
    send_frame(p, PD_DECLARE, &declare.base, 0, 0);
}

/* Makes a piece of a declared parameter, damaged if `how` asks for it. Returns the offset where the next piece may
 * begin. */
static uint64_t make_piece(const peer *p, Paramd__Piece *piece, uint64_t offset)
{
    uint8_t which = choice(), how = choice();
    uint64_t start, end, to_grid;

    paramd__piece__init(piece);
    piece->handle = which & 7;
    start = piece->handle < p->n_params ? p->start[piece->handle] : 0;
    end = piece->handle < p->n_params ? p->end[piece->handle] : 1;
    piece->absent = (how & 1) != 0;
    if (piece->absent) return offset;
    piece->dtype = 1 + (how >> 1 & 7);
    piece->first = (which >> 3 & 7) == 0 ? start : (start / CHUNK + (which >> 3 & 7)) * CHUNK;
    to_grid = CHUNK - piece->first % CHUNK;
    piece->count = end > piece->first ? (end - piece->first < to_grid ? end - piece->first : to_grid) : 0;
    piece->offset = offset;
    piece->holds = which >> 6;
    if ((how & 0xf0) == 0x10) piece->count++;
    if ((how & 0xf0) == 0x20) piece->offset += 4;
    if ((how & 0xf0) == 0x30) piece->first += 1;
    if ((how & 0xf0) == 0x40) piece->offset = UINT64_MAX - 63;
    piece->sparse = (how & 0xf0) == 0x50;
    return pd_piece_end(piece->offset, pd_dtype_bytes((pd_dtype)piece->dtype, piece->count));
}

typedef struct pieces {
    Paramd__Piece at[MOST_PIECES], *list[MOST_PIECES];
    size_t n;
    uint64_t bytes;
} pieces;

static void make_pieces(const peer *p, pieces *out)
{
    out->n = choice() % (MOST_PIECES + 1);
    out->bytes = 0;
    for (size_t i = 0; i < out->n; i++) {
        out->bytes = make_piece(p, &out->at[i], out->bytes);
        out->list[i] = &out->at[i];
    }
}

static void say_init(peer *p)
{
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    uint8_t fill = choice();
    pieces all;

    make_pieces(p, &all);
    init.pieces = all.list;
    init.n_pieces = all.n;
    if (fill >= 0x80 && fill < 0xff) { /* weights that were changed by hand */
        init.replaces = world.changed = fill & 3;
        init.step = fill >> 2 & 3;
        init.whole = fill >> 4 & 7;
    }
    send_frame(p, PD_INIT, &init.base, all.bytes, fill);
}

/* Makes scalars. The three highest bits of `fill` give their number, and the next two bits give the first name. The
 * names and values at the end of the list are invalid. */
static size_t make_scalars(Paramd__Scalar *at, Paramd__Scalar **list, uint8_t fill)
{
    static const char *const names[] = { "loss", "tokens", "accuracy", "\xc2\xb5", "loss", "", "a\tb", "s" };
    size_t n = fill == 255 ? 0 : fill >> 5;

    for (size_t i = 0; i < n; i++) {
        paramd__scalar__init(&at[i]);
        at[i].name = (char *)names[((fill >> 3 & 3) + i) & 7];
        at[i].value = i == 6 ? (double)NAN : fill & 7;
        list[i] = &at[i];
    }
    return n;
}

static void send_push(peer *p, unsigned method)
{
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Option lr = PARAMD__OPTION__INIT, *hypers[] = { &lr };
    Paramd__Scalar scalar[8], *scalars[8];
    uint8_t how = choice(), fill = choice();
    pieces all;

    make_pieces(p, &all);
    push.step = how & 3;
    push.last = (how & 4) != 0;
    push.weight = (how & 8) != 0 ? 2 : (how & 16) != 0 ? -1 : 0;
    push.zero_weight = (how & 32) != 0;
    push.presummed = (how & 64) != 0;
    if ((fill & 4) != 0) push.replaces = world.changed;
    push.patience_ms = (fill & 8) != 0 ? UINT32_MAX : 0;
    push.carried = (fill & 16) != 0;
    push.speed = (fill & 32) != 0 ? 2.5 : (fill & 64) != 0 ? -INFINITY : 0;
    push.wants = fill == 255 ? UINT32_MAX : fill & 3;
    push.common = (fill & 0x40) != 0 ? fill & 3 : 0;
    lr.name = (char *)"lr";
    lr.value = (char *)"0.5";
    push.hypers = hypers;
    push.n_hypers = how >> 7;
    push.scalars = scalars;
    push.n_scalars = make_scalars(scalar, scalars, fill);
    push.pieces = all.list;
    push.n_pieces = all.n;
    send_frame(p, method, &push.base, all.bytes, fill);
}

static void say_pull(peer *p)
{
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want at[MOST_PIECES], *list[MOST_PIECES];
    pieces all;
    const uint8_t how = choice();

    pull.min_step = how & 7;
    pull.form = how >> 6;
    make_pieces(p, &all);
    for (size_t i = 0; i < all.n; i++) {
        paramd__want__init(&at[i]);
        at[i].handle = all.at[i].handle;
        at[i].first = all.at[i].first;
        at[i].count = all.at[i].count;
        at[i].holds = all.at[i].holds;
        list[i] = &at[i];
    }
    pull.wants = list;
    pull.n_wants = all.n;
    send_frame(p, PD_PULL, &pull.base, 0, 0);
}

#include "operator_requests.h"

/* Sends a Share with a descriptor and a length, which may not fit each other. */
static void say_share(peer *p)
{
    static const uint64_t bytes[] = { LENT_BYTES, LENT_BYTES - PD_PAYLOAD_ALIGN, 1, 0, LENT_BYTES + 1, UINT64_MAX };
    Paramd__ShareRequest share = PARAMD__SHARE_REQUEST__INIT;
    uint8_t how = choice();

    if (world.pass >= 0) close(world.pass);
    world.pass = lender_descriptor(&p->lends, how & 7);
    share.bytes = bytes[(how >> 3) % 6];
    send_frame(p, PD_SHARE, &share.base, 0, 0);
}

static void say_release(peer *p)
{
    Paramd__ReleaseRequest release = PARAMD__RELEASE_REQUEST__INIT;
    uint8_t how = choice();

    release.answers = how == 255 ? UINT64_MAX : how;
    send_frame(p, PD_RELEASE, &release.base, 0, 0);
}

/* Sends one Settle: an ask, or a verdict whose tallies are the last one that the daemon has given, each as that of
 * another shard, maybe with a changed byte. */
static void say_settle(peer *p)
{
    Paramd__SettleRequest settle = PARAMD__SETTLE_REQUEST__INIT;
    ProtobufCBinaryData tallies[7];
    uint8_t bytes[7][sizeof world.tally], how = choice(), change = choice();

    settle.step = how & 3;
    settle.phase = how >> 2 & 3;
    settle.n_tallies = how >> 4 & 7;
    settle.tallies = tallies;
    for (uint8_t i = 0; i < settle.n_tallies; i++) {
        memcpy(bytes[i], world.tally, world.tally_bytes);
        tallies[i] = (ProtobufCBinaryData){ .len = world.tally_bytes, .data = bytes[i] };
        if (world.tally_bytes == 0) continue;
        bytes[i][TALLY_SHARD] = i;
        if ((how & 0x80) != 0) bytes[i][change % world.tally_bytes] ^= change;
    }
    send_frame(p, PD_SETTLE, &settle.base, 0, 0);
}

/* Sends one GoBack. Operators must name a job. Workers must not, and must name its life, which they cannot know
 * here. */
static void say_go_back(peer *p)
{
    Paramd__GoBackRequest back = PARAMD__GO_BACK_REQUEST__INIT;
    uint64_t tenures[] = { 1, UINT64_MAX };
    uint8_t how = choice();

    back.job = (char *)job_names[how & 3];
    back.step = (how & 0x80) != 0 ? UINT64_MAX : how >> 2 & 7;
    back.life = how >> 5 & 3;
    back.tenures = tenures;
    back.n_tenures = how >> 4 & 1;
    send_frame(p, PD_GO_BACK, &back.base, 0, 0);
}

static void say(peer *p, unsigned method)
{
    switch (method) {
    case PD_HELLO: say_hello(p); break;
    case PD_DECLARE: say_declare(p); break;
    case PD_INIT: say_init(p); break;
    case PD_PUSH:
    case PD_PUSH_PULL: send_push(p, method); break;
    case PD_PULL: say_pull(p); break;
    case PD_SET: say_set(p); break;
    case PD_IMPORT: say_import(p); break;
    case PD_EXPORT: say_export(p); break;
    case PD_SHARE: say_share(p); break;
    case PD_RELEASE: say_release(p); break;
    case PD_NOTE: say_note(p); break;
    case PD_CHECKPOINT: say_checkpoint(p); break;
    case PD_SETTLE: say_settle(p); break;
    case PD_GO_BACK: say_go_back(p); break;
    default: say_to_operators(p, method); break;
    }
}

static void send_raw(peer *p)
{
    size_t n = choice();

    if (n > (size_t)(world.end - world.at)) n = (size_t)(world.end - world.at);
    memcpy(bin, world.at, n);
    world.at += n;
    if (n > 0) send_bytes(p, bin, n);
}

static void operate(unsigned op, peer *p)
{
    switch (op) {
    case RAW: send_raw(p); break;
    case CLOSE: disconnect(p); break;
    case TIME: world.now += (uint64_t)choice() * 1000000000u; break;
    case SPOIL:
        world.spoil_at = choice();
        world.spoil_with = choice();
        break;
    case CUT: world.cut_to = choice(); break;
    case TURN: break;
    case DEAF: p->deaf = !p->deaf; break;
    case LEND:
        world.lend = true;
        world.lend_at = choice();
        if (world.lend_at == 255) world.lend_at = UINT32_MAX;
        break;
    case PASS: /* with any bytes, and maybe never taken */
        if (world.pass >= 0) close(world.pass);
        world.pass = lender_descriptor(&p->lends, choice() & 7);
        break;
    case SCRIBBLE:
        lender_make(&p->lends);
        memset(p->lends.at, choice(), LENT_BYTES);
        break;
    case KEPT: give_back((choice() & 1) != 0); break;
    case SPREAD: world.spread = choice(); break;
    case TABLE: change_table(); break;
    default: say(p, op); break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    world.at = data;
    world.end = data + (size < 2048 ? size : 2048);
    world.spoil_with = world.cut_to = world.changed = world.spread = 0;
    world.tally_bytes = 0;
    begin_world();
    while (world.at < world.end) {
        uint8_t op = choice();
        operate((op & 0x7f) % OPS, &world.peers[choice() % CONNS]);
        if ((op & 0x80) == 0) pump();
    }
    end_world();
    return 0;
}

#include "conversation_seeds.h"

static void make_seeds(const char *folder)
{
    static const struct {
        const char *name;
        const uint8_t *at;
        size_t n;
        /* clang-format off */
    } seeds[] = {
        { "training", training, sizeof training },    { "closing", closing, sizeof closing },
        { "replacing", replacing, sizeof replacing }, { "reporting", reporting, sizeof reporting },
        { "operating", operating, sizeof operating }, { "setting", setting, sizeof setting },
        { "importing", importing, sizeof importing }, { "exporting", exporting, sizeof exporting },
        { "updating", updating, sizeof updating },    { "troubles", troubles, sizeof troubles },
        { "shards", shards, sizeof shards },          { "collecting", collecting, sizeof collecting },
        { "alone", alone, sizeof alone },             { "merging", merging, sizeof merging },
        { "stating", stating, sizeof stating },       { "averaging", averaging, sizeof averaging },
        { "sharing", sharing, sizeof sharing },       { "keeping", checkpointing, sizeof checkpointing },
        { "settling", settling, sizeof settling },    { "returning", returning, sizeof returning },
        { "moving", moving, sizeof moving },
    };
    /* clang-format on */

    for (size_t i = 0; i < sizeof seeds / sizeof seeds[0]; i++) {
        write_seed(folder, seeds[i].name, seeds[i].at, seeds[i].n);
        LLVMFuzzerTestOneInput(seeds[i].at, seeds[i].n);
    }
    for (unsigned i = 0; i < PD_METHODS; i++) {
        if (calls[i] == 0) fprintf(stderr, "the seeds do not reach the handler of %s\n", pd_method_name(i));
        MUST(calls[i] > 0);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    return seed_if_asked(make_seeds);
}
