/* scene.c - runs the loop thread's code on socket pairs, and the store in the same thread. */
#include "scene.h"

#include <fcntl.h>
#include <sys/socket.h>

#include "access.h"
#include "small_daemon.h"
#include "test.h"
#include "transport.h"
#include "uvloop.h"

static scene *listening; /* the scene that receives the daemon's log, whose callback has no argument */

static void keep_log(const pd_log_entry *entry)
{
    size_t used = strlen(listening->said);

    snprintf(listening->said + used, sizeof listening->said - used, "%s", entry->text);
}

static void post_effects(void *arg, pd_mail *first, pd_mail *last)
{
    scene *s = arg;
    assert_int_equal(pd_mailbox_post(pd_conversation_effects(s->daemon), first, last), PD_OK);
}

static void no_task(void *arg, pd_effect *effect)
{
    (void)arg, (void)effect;
    fail_msg("there are no roots here");
}

static void forget_tasks(void *arg, uint32_t job)
{
    (void)arg, (void)job;
}

static uint64_t loop_ms(void *arg)
{
    (void)arg;
    return listening->loop_ms;
}

enum { PAGE = 4096 }; /* least number of bytes that a frame is charged with */

static pd_daemon_config scene_config(uint32_t max_params, uint64_t chunk)
{
    pd_daemon_config config = small_daemon();

    config.max_connections = 8;
    config.max_payload = chunk * sizeof(float);
    config.ingest_bytes = 4 * (config.max_payload > PAGE ? config.max_payload : PAGE);
    config.shared_memory = true;
    config.chunk_elements = chunk;
    config.max_params = max_params;
    if (max_params > 16) config.max_header = 65536;
    config.hooks.log = keep_log;
    return config;
}

static scene *make(uint32_t max_params, const pd_optimizer_ops *const *rows, uint64_t chunk, uint64_t max_total_bytes)
{
    pd_daemon_config config = scene_config(max_params, chunk);
    pd_store_config store = { .max_jobs = 2,
                              .max_params = max_params,
                              .max_total_bytes = max_total_bytes,
                              .rows = rows,
                              .ingest_bytes = config.ingest_bytes,
                              .chunk_elements = chunk,
                              .frame_bytes = config.max_payload,
                              .threads = 1,
                              .batch_ns = 5e7,
                              .stats_ns = PD_STATS_NS };
    scene *s = listening = calloc(1, sizeof *s);

    assert_int_equal(pd_daemon_new(&s->daemon, &config, NULL), PD_OK);
    assert_int_equal(pd_store_new(&s->store, &store, NULL), PD_OK);
    s->turn.store = s->store;
    s->turn.user = (pd_turn_user){ .arg = s, .effects = post_effects, .task = no_task, .forget = forget_tasks };
    s->requests = pd_mailbox_new(NULL, NULL);
    s->arena = pd_arena_new(PD_ARENA_BUDGET);
    s->now = 1000000000;
    s->loop_ms = 1000;
    s->daemon->platform.now_ms = loop_ms;
    pd_daemon_begin(s->daemon, s->requests);
    s->rule = "* sgd lr=1";
    s->taken = -1;
    return s;
}

scene *scene_new(uint32_t max_params, const pd_optimizer_ops *const *rows)
{
    return make(max_params, rows, CHUNK, max_params > 16 ? 1 << 26 : 1 << 20);
}

scene *scene_new_chunks(uint64_t elements)
{
    return make(16, NULL, elements, 1 << 26);
}

void scene_turn(scene *s)
{
    /* On a busy machine a turn may use its time up and leave frames to later ones. */
    for (int i = 0; i < 4 || s->daemon->peers.pace.first != NULL; i++) pd_daemon_turn(s->daemon);
}

void scene_answer(scene *s)
{
    pd_mail *mail = pd_mailbox_take(s->requests);

    while (mail != NULL) {
        pd_request *request = (pd_request *)(void *)mail;
        mail = mail->next;
        request->mail.next = NULL;
        pd_store_apply(s->store, request, s->now);
    }
    while (pd_store_work(s->store, s->now)) continue;
    pd_turn_forward(&s->turn);
}

void scene_settle(scene *s)
{
    for (int i = 0; i < 6; i++) {
        scene_turn(s);
        scene_answer(s);
    }
    scene_turn(s);
}

void scene_sleep(scene *s, double seconds)
{
    s->now += (uint64_t)(seconds * 1e9);
    pd_store_tick(s->store, s->now);
    scene_settle(s);
}

void scene_pass(scene *s, uint64_t ms)
{
    s->loop_ms += ms;
    pd_conversation_tick(s->daemon);
}

void scene_free(scene *s)
{
    scene_settle(s);
    pd_store_apply(s->store, pd_request_new(PD_REQ_DROP, (pd_ticket){ 0, 0 }), s->now);
    scene_settle(s);
    pd_daemon_end(s->daemon);
    scene_answer(s);
    assert_int_equal(pd_store_count_bytes(s->store).held, 0);
    pd_daemon_free(s->daemon);
    pd_store_free(s->store);
    pd_mailbox_free(s->requests);
    pd_arena_free(s->arena);
    if (s->taken >= 0) close(s->taken);
    free(s);
}

void scene_roles(scene *s, const char *text)
{
    pd_roles *roles, *copy;

    assert_int_equal(pd_roles_parse(&roles, text, strlen(text), "roles", NULL), PD_OK);
    copy = pd_roles_copy(roles);
    assert_non_null(copy);
    assert_int_equal(pd_access_take(s->daemon, roles, copy), PD_OK);
    scene_settle(s);
}

static void tell_identity(const pd_transport *transport, pd_identity *identity)
{
    (void)transport;
    identity->kind = PD_IDENTITY_TOKEN;
    snprintf(identity->text, sizeof identity->text, "%s", listening->identity);
}

/* Adds a connection whose transport tells the identity that the scene has now. */
static int adopt_as(scene *s, int fd)
{
    static pd_transport_ops ops;
    pd_transport *transport = pd_socket_new(s->daemon->platform.arg, fd);

    assert_non_null(transport);
    fcntl(fd, F_SETFL, O_NONBLOCK);
    ops = *transport->ops;
    ops.identity = tell_identity;
    transport->ops = &ops;
    if (pd_conversation_accept(s->daemon, transport, "test") == PD_OK) return PD_OK;
    transport->ops->close(transport);
    return PD_RESOURCE_EXHAUSTED;
}

int scene_connect(scene *s)
{
    int pair[2], rc;

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    rc = s->identity != NULL ? adopt_as(s, pair[1]) : pd_daemon_adopt(s->daemon, pair[1]);
    if (rc == PD_OK) return pair[0];
    assert_non_null(s->identity);
    close(pair[0]);
    return -1;
}

void scene_send(scene *s, int fd, unsigned method, const ProtobufCMessage *message, size_t payload)
{
    static uint8_t zeros[SCENE_HEARD];
    uint8_t *frame;
    size_t bytes;

    assert_int_equal(pd_frame_pack(&frame, &bytes, method, 0, ++s->last_id, message, NULL, 0, payload), PD_OK);
    assert_int_equal(send(fd, frame, bytes, MSG_NOSIGNAL), bytes);
    if (payload > 0) assert_int_equal(send(fd, zeros, payload, MSG_NOSIGNAL), payload);
    free(frame);
}

/* Reads n bytes that have arrived, and keeps the descriptor that comes with them. Returns false if they are missing. */
static bool receive(scene *s, int fd, uint8_t *at, size_t n)
{
    uint8_t first;
    ssize_t got = 0;

    if (n == 0) return true;
    if (recv(fd, &first, 1, MSG_DONTWAIT | MSG_PEEK) != 1) return false;
    for (size_t all = 0; all < n; all += (size_t)got) {
        got = pd_descriptor_receive(fd, &(struct iovec){ at + all, n - all }, 1, &s->taken);
        if (got <= 0) return false;
    }
    return true;
}

bool scene_receive(scene *s, int fd)
{
    uint8_t prefix[PD_PREFIX_BYTES];
    uint64_t bytes;

    if (!receive(s, fd, prefix, sizeof prefix)) return false;
    assert_int_equal(pd_prefix_read(&s->prefix, prefix, SCENE_HEARD, NULL), PD_OK);
    bytes = s->prefix.header_bytes + ((s->prefix.flags & PD_FLAG_SHARED) != 0 ? 0 : s->prefix.payload_bytes);
    assert_true(bytes <= sizeof s->in);
    assert_true(receive(s, fd, s->in, bytes));
    return true;
}

void scene_expect(scene *s, int fd, unsigned method)
{
    if (!scene_receive(s, fd)) fail_msg("no answer to %s", pd_method_name(method));
    assert_int_equal(s->prefix.method, method);
    assert_int_equal(s->prefix.flags, PD_FLAG_REPLY);
}

void scene_expect_error(scene *s, int fd, int code, const char *part)
{
    pd_error err;

    assert_true(scene_receive(s, fd));
    assert_true((s->prefix.flags & PD_FLAG_ERROR) != 0);
    assert_int_equal(pd_message_error(s->arena, s->in, s->prefix.header_bytes, &err, NULL), code);
    if (strstr(err.text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", err.text, part);
}

void scene_hello(scene *s, int fd, const char *job, uint32_t rank, uint32_t world)
{
    Paramd__HelloRequest hello = PARAMD__HELLO_REQUEST__INIT;
    Paramd__Option option = PARAMD__OPTION__INIT, *options[] = { &option };
    char *rules[] = { (char *)s->rule };

    option.name = (char *)s->option;
    option.value = (char *)s->value;
    hello.options = options;
    hello.n_options = s->option != NULL;
    hello.protocol = 1;
    hello.job = (char *)job;
    hello.run = "launch";
    hello.rank = rank;
    hello.world_size = world;
    hello.nonce = rank + 1;
    hello.rules = rules;
    hello.n_rules = 1;
    hello.shares = s->shares;
    hello.shard = s->shard;
    hello.shards = s->shards;
    if (s->shards > 1) hello.cluster = 7;
    scene_send(s, fd, PD_HELLO, &hello.base, 0);
}

const Paramd__ListReply *scene_list(scene *s, uint32_t what, const char *job)
{
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    Paramd__ListReply *reply;
    int operator= scene_connect(s);

    scene_hello(s, operator, "", 0, 0);
    list.what = what;
    list.job = (char *)job;
    scene_send(s, operator, PD_LIST, &list.base, 0);
    scene_settle(s);
    scene_expect(s, operator, PD_HELLO);
    scene_expect(s, operator, PD_LIST);
    assert_int_equal(pd_reply_unpack(s->arena, PD_LIST, s->in, s->prefix.header_bytes, (void **)&reply, NULL), PD_OK);
    close(operator);
    return reply;
}

int scene_operator(scene *s)
{
    int fd = scene_connect(s);

    scene_hello(s, fd, "", 0, 0);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    return fd;
}

void scene_say(scene *s, int fd, unsigned method)
{
    Paramd__Empty empty = PARAMD__EMPTY__INIT;

    scene_send(s, fd, method, &empty.base, 0);
}

void scene_declare(scene *s, int fd, unsigned n)
{
    static char *const names[] = { "a", "b", "c", "d", "e", "f", "g", "h" };
    Paramd__DeclareRequest declare = PARAMD__DECLARE_REQUEST__INIT;
    Paramd__Parameter at[8], *list[8];
    uint64_t shape = CHUNK;

    for (unsigned i = 0; i < n; i++) {
        paramd__parameter__init(&at[i]);
        at[i].name = names[i];
        at[i].shape = &shape;
        at[i].n_shape = 1;
        list[i] = &at[i];
    }
    declare.parameters = list;
    declare.n_parameters = n;
    declare.last = true;
    scene_send(s, fd, PD_DECLARE, &declare.base, 0);
}

void scene_data(scene *s, int fd, unsigned method, uint32_t handle, uint64_t step)
{
    Paramd__InitRequest init = PARAMD__INIT_REQUEST__INIT;
    Paramd__PushRequest push = PARAMD__PUSH_REQUEST__INIT;
    Paramd__Piece piece = PARAMD__PIECE__INIT, *pieces[] = { &piece };

    piece.handle = handle;
    piece.dtype = PD_F32;
    piece.count = CHUNK;
    init.pieces = push.pieces = pieces;
    init.n_pieces = push.n_pieces = 1;
    push.step = step;
    push.speed = s->speed;
    scene_send(s, fd, method, method == PD_INIT ? &init.base : &push.base, CHUNK * sizeof(float));
}

int scene_join(scene *s, uint32_t rank, uint32_t world, unsigned n)
{
    int fd = scene_connect(s);

    scene_hello(s, fd, "j", rank, world);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    scene_declare(s, fd, n);
    scene_settle(s);
    scene_expect(s, fd, PD_DECLARE);
    return fd;
}

void scene_initialise(scene *s, int fd, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        scene_data(s, fd, PD_INIT, i, 0);
        scene_settle(s);
        scene_expect(s, fd, PD_INIT);
    }
}
