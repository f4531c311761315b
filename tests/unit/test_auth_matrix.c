/* Tests every method of the protocol in the hands of every kind of identity: who may call it, and how the others are
 * refused. Prints the results as a table, the figure auth_matrix. A new method fails here until it has a row. */
#include <sys/socket.h>

#include "test.h"
#include "handlers.h"
#include "request.h"
#include "scene.h"

typedef struct column {
    const char *name, *roles;
} column;

static const column columns[] = {
    { "no role", "token:x none *\n" }, { "other job", "token:x admin other*\n" }, { "read", "token:x read j\n" },
    { "push", "token:x push j\n" },    { "admin", "token:x admin j\n" },          { "admin of *", "token:x admin *\n" },
};
enum { COLUMNS = sizeof columns / sizeof *columns };

static void send_hello(scene *s, int fd)
{
    scene_hello(s, fd, "j", 0, 1);
}
static void send_declare(scene *s, int fd)
{
    scene_declare(s, fd, 1);
}
static void send_init(scene *s, int fd)
{
    scene_data(s, fd, PD_INIT, 0, 0);
}
static void send_push(scene *s, int fd)
{
    scene_data(s, fd, PD_PUSH, 0, 1);
}
static void send_push_pull(scene *s, int fd)
{
    scene_data(s, fd, PD_PUSH_PULL, 0, 1);
}

static void send_pull(scene *s, int fd)
{
    Paramd__PullRequest pull = PARAMD__PULL_REQUEST__INIT;
    Paramd__Want want = PARAMD__WANT__INIT, *wants[] = { &want };

    want.count = CHUNK;
    pull.wants = wants;
    pull.n_wants = 1;
    scene_send(s, fd, PD_PULL, &pull.base, 0);
}

static void send_barrier(scene *s, int fd)
{
    Paramd__BarrierRequest barrier = PARAMD__BARRIER_REQUEST__INIT;

    barrier.sequence = 1;
    scene_send(s, fd, PD_BARRIER, &barrier.base, 0);
}

static void send_heartbeat(scene *s, int fd)
{
    scene_say(s, fd, PD_HEARTBEAT);
}
static void send_leave(scene *s, int fd)
{
    scene_say(s, fd, PD_LEAVE);
}
static void send_status(scene *s, int fd)
{
    scene_say(s, fd, PD_STATUS);
}
static void send_recall(scene *s, int fd)
{
    scene_say(s, fd, PD_RECALL);
}
static void send_shutdown(scene *s, int fd)
{
    scene_say(s, fd, PD_SHUTDOWN);
}

static void send_list(scene *s, int fd)
{
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;

    list.what = PD_INFO_WORKERS;
    list.job = "j";
    scene_send(s, fd, PD_LIST, &list.base, 0);
}

static void send_optimizers(scene *s, int fd)
{
    Paramd__OptimizersRequest asked = PARAMD__OPTIMIZERS_REQUEST__INIT;

    scene_send(s, fd, PD_OPTIMIZERS, &asked.base, 0);
}

static void send_drop(scene *s, int fd)
{
    Paramd__DropRequest drop = PARAMD__DROP_REQUEST__INIT;

    drop.job = "j";
    scene_send(s, fd, PD_DROP, &drop.base, 0);
}

static void send_kick(scene *s, int fd)
{
    Paramd__KickRequest kick = PARAMD__KICK_REQUEST__INIT;

    kick.job = "j";
    scene_send(s, fd, PD_KICK, &kick.base, 0);
}

static void send_settle(scene *s, int fd)
{
    Paramd__SettleRequest settle = PARAMD__SETTLE_REQUEST__INIT;

    settle.step = 1;
    scene_send(s, fd, PD_SETTLE, &settle.base, 0);
}

static void send_go_back(scene *s, int fd)
{
    Paramd__GoBackRequest back = PARAMD__GO_BACK_REQUEST__INIT;

    back.job = "j";
    scene_send(s, fd, PD_GO_BACK, &back.base, 0);
}

static void send_drain(scene *s, int fd)
{
    Paramd__DrainRequest drain = PARAMD__DRAIN_REQUEST__INIT;

    scene_send(s, fd, PD_DRAIN, &drain.base, 0);
}

static void send_set(scene *s, int fd)
{
    Paramd__SetRequest set = PARAMD__SET_REQUEST__INIT;
    Paramd__Option option = PARAMD__OPTION__INIT, *options[] = { &option };

    option.name = "lr";
    option.value = "0.5";
    set.job = "j";
    set.pattern = "*";
    set.options = options;
    set.n_options = 1;
    scene_send(s, fd, PD_SET, &set.base, 0);
}

static void send_import(scene *s, int fd)
{
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;

    import.job = "j";
    import.act = PD_IMPORT_BEGIN;
    scene_send(s, fd, PD_IMPORT, &import.base, 0);
}

static void send_reset(scene *s, int fd)
{
    Paramd__ImportRequest import = PARAMD__IMPORT_REQUEST__INIT;

    import.job = "j";
    import.act = PD_IMPORT_RESET;
    import.param = "*";
    scene_send(s, fd, PD_IMPORT, &import.base, 0);
}

static void begin_export(scene *s, int fd, bool state, bool replace)
{
    Paramd__ExportRequest export = PARAMD__EXPORT_REQUEST__INIT;

    export.job = "j";
    export.act = PD_EXPORT_BEGIN;
    export.state = state;
    export.replace = replace;
    scene_send(s, fd, PD_EXPORT, &export.base, 0);
}

static void send_export(scene *s, int fd)
{
    begin_export(s, fd, false, false);
}
static void send_export_of_state(scene *s, int fd)
{
    begin_export(s, fd, true, false);
}
static void send_export_that_replaces(scene *s, int fd)
{
    begin_export(s, fd, false, true);
}

static void send_share(scene *s, int fd)
{
    Paramd__ShareRequest share = PARAMD__SHARE_REQUEST__INIT;

    share.bytes = 4096; /* without a descriptor, so a worker that may ask is told to send one */
    scene_send(s, fd, PD_SHARE, &share.base, 0);
}

static void send_shards(scene *s, int fd)
{
    scene_say(s, fd, PD_SHARDS);
}

static void send_release(scene *s, int fd)
{
    Paramd__ReleaseRequest release = PARAMD__RELEASE_REQUEST__INIT;

    scene_send(s, fd, PD_RELEASE, &release.base, 0); /* of no answers */
}

static void send_note(scene *s, int fd)
{
    Paramd__NoteRequest note = PARAMD__NOTE_REQUEST__INIT;

    note.step = 1;
    scene_send(s, fd, PD_NOTE, &note.base, 16);
}

static void ask_checkpoint(scene *s, int fd, const char *job)
{
    Paramd__CheckpointRequest asked = PARAMD__CHECKPOINT_REQUEST__INIT;

    asked.job = (char *)job;
    scene_send(s, fd, PD_CHECKPOINT, &asked.base, 0);
}

static void send_checkpoint(scene *s, int fd)
{
    ask_checkpoint(s, fd, "j");
}
static void send_own_checkpoint(scene *s, int fd)
{
    ask_checkpoint(s, fd, "");
}

typedef enum peer_kind { STRANGER, WORKER, BARE_WORKER, OPERATOR } peer_kind;

/* A request of one kind of peer, and its result for each role (column): "+" it is carried out; "?" the answer for a job
 * that does not exist; "-" permission denied. */
typedef struct row {
    unsigned method;
    const char *what;
    peer_kind kind; /* STRANGER: a connection that has said nothing. BARE_WORKER: one that has not declared */
    void (*send)(scene *s, int fd);
    const char *verdicts;
} row;

static const row rows[] = {
    { PD_HELLO, "of a worker", STRANGER, send_hello, "---+++" },
    { PD_DECLARE, "", BARE_WORKER, send_declare, "---+++" },
    { PD_INIT, "", WORKER, send_init, "---+++" },
    { PD_PUSH, "", WORKER, send_push, "---+++" },
    { PD_PULL, "", WORKER, send_pull, "---+++" },
    { PD_PUSH_PULL, "", WORKER, send_push_pull, "---+++" },
    { PD_BARRIER, "", WORKER, send_barrier, "---+++" },
    { PD_HEARTBEAT, "of a worker", WORKER, send_heartbeat, "---+++" },
    { PD_HEARTBEAT, "of an operator", OPERATOR, send_heartbeat, "-+++++" },
    { PD_LEAVE, "", WORKER, send_leave, "---+++" },
    { PD_STATUS, "", OPERATOR, send_status, "-+++++" },
    { PD_LIST, "", OPERATOR, send_list, "-?++++" },
    { PD_OPTIMIZERS, "", OPERATOR, send_optimizers, "-+++++" },
    { PD_DROP, "", OPERATOR, send_drop, "-?--++" },
    { PD_DRAIN, "", OPERATOR, send_drain, "-----+" },
    { PD_SHUTDOWN, "", OPERATOR, send_shutdown, "-----+" },
    { PD_SET, "", OPERATOR, send_set, "-?--++" },
    { PD_IMPORT, "", OPERATOR, send_import, "-?-+++" },
    { PD_IMPORT, "that resets", OPERATOR, send_reset, "-?--++" },
    { PD_EXPORT, "of weights", OPERATOR, send_export, "-?++++" },
    { PD_EXPORT, "with state", OPERATOR, send_export_of_state, "-?-+++" },
    { PD_EXPORT, "that ends another", OPERATOR, send_export_that_replaces, "-?--++" },
    { PD_SHARE, "", WORKER, send_share, "---+++" },
    { PD_RELEASE, "", WORKER, send_release, "---+++" },
    { PD_NOTE, "", WORKER, send_note, "---+++" },
    { PD_RECALL, "", WORKER, send_recall, "---+++" },
    { PD_CHECKPOINT, "of a job", OPERATOR, send_checkpoint, "-?--++" },
    { PD_CHECKPOINT, "of its own job", WORKER, send_own_checkpoint, "---+++" },
    { PD_KICK, "", OPERATOR, send_kick, "-?--++" },
    { PD_SETTLE, "", WORKER, send_settle, "---+++" },
    { PD_GO_BACK, "of a job", OPERATOR, send_go_back, "-?--++" },
    { PD_SHARDS, "of a worker", WORKER, send_shards, "---+++" },
    { PD_SHARDS, "of an operator", OPERATOR, send_shards, "-+++++" },
};
enum { ROWS = sizeof rows / sizeof *rows };

/* Connects the peer whose request is tested, while its identity may do everything. */
static int connect_peer(scene *s, peer_kind kind)
{
    int fd;

    if (kind == OPERATOR) return scene_operator(s);
    if (kind == WORKER) return scene_join(s, 0, 1, 1);
    fd = scene_connect(s);
    if (kind == STRANGER) return fd;
    scene_hello(s, fd, "j", 0, 1);
    scene_settle(s);
    scene_expect(s, fd, PD_HELLO);
    return fd;
}

/* Makes the job that operators ask about, by an identity of its own. Returns its worker's socket; -1: the peer itself
 * is the worker. */
static int make_job(scene *s, peer_kind kind)
{
    int fd;

    if (kind == WORKER || kind == BARE_WORKER) return -1;
    s->identity = "token:worker";
    fd = scene_join(s, 0, kind == STRANGER ? 2 : 1, 1);
    scene_initialise(s, fd, 1);
    s->identity = "token:x";
    return fd;
}

/* Reads the answer to a request, and tells how the request fared. `ran`: its handler was called. */
static char verdict_of(scene *s, int fd, bool ran)
{
    pd_error err = { 0 };

    if (scene_receive(s, fd) && (s->prefix.flags & PD_FLAG_ERROR) != 0)
        pd_message_error(s->arena, s->in, s->prefix.header_bytes, &err, NULL);
    if (err.code == PD_PERMISSION_DENIED && strstr(err.text, "server.roles") != NULL) return '-';
    if (err.code == PD_NOT_FOUND && strcmp(err.text, "there is no job j") == 0) return '?';
    return ran ? '+' : '!';
}

static char try_request(const row *r, const column *c)
{
    scene *s = scene_new(16, NULL);
    uint64_t calls;
    int peer, worker;
    char verdict;

    s->identity = "token:x";
    scene_roles(s, "* admin *\n");
    worker = make_job(s, r->kind);
    peer = connect_peer(s, r->kind);
    if (r->send == send_hello) s->identity = "token:x";
    scene_roles(s, c->roles);
    calls = s->daemon->counters.calls[r->method];
    r->send(s, peer);
    scene_settle(s);
    verdict = verdict_of(s, peer, s->daemon->counters.calls[r->method] == calls + 1);
    close(peer);
    if (worker >= 0) close(worker);
    scene_free(s);
    return verdict;
}

static void print_head(void)
{
    printf("%-28s", "auth_matrix");
    for (int c = 0; c < COLUMNS; c++) printf("  %s", columns[c].name);
    printf("\n");
}

static int check_row(const row *r)
{
    const char *name = pd_methods[r->method].name;
    int wrong = 0;

    printf("%-11s %-16s", name, r->what);
    for (int c = 0; c < COLUMNS; c++) {
        char verdict = try_request(r, &columns[c]);
        printf("  %*s%c", (int)strlen(columns[c].name) - 1, "", verdict);
        if (verdict == r->verdicts[c]) continue;
        printf("(expected %c)", r->verdicts[c]);
        wrong++;
    }
    printf("\n");
    return wrong;
}

TEST(every_method_is_refused_and_allowed_as_its_roles_say)
{
    int wrong = 0;

    print_head();
    for (int i = 0; i < ROWS; i++) wrong += check_row(&rows[i]);
    assert_int_equal(wrong, 0);
}

TEST(every_method_has_a_row)
{
    for (unsigned m = 0; m < PD_METHODS; m++) {
        bool found = false;
        for (int i = 0; i < ROWS; i++) found = found || rows[i].method == m;
        if (!found) fail_msg("%s has no row in the matrix", pd_methods[m].name);
    }
}

/* No role lets a peer send another request before its Hello. */
TEST(without_hello_nothing_is_run)
{
    for (int i = 0; i < ROWS; i++) {
        scene *s;
        int fd;
        if (rows[i].method == PD_HELLO) continue;
        s = scene_new(16, NULL);
        fd = scene_connect(s);
        rows[i].send(s, fd);
        scene_settle(s);
        scene_expect_error(s, fd, PD_FAILED_PRECONDITION, "expected Hello as the first request");
        close(fd);
        scene_free(s);
    }
}
