/* Tests that no request, of whatever text, takes the step thread for long: each method with text, with globs that are
 * hard to compare and names that nearly match, is applied in parts, and each part does little.
 *
 * How long a part takes depends on the machine, so the tests count parts: a request whose time is estimated at many
 * budgets must take about as many parts. BOUNDED_PARAMS=65536 prints the longest call of each request as well. */
#include <time.h>

#include "test.h"
#include "glob.h"
#include "rig.h"
#include "store_inside.h"

enum { NAME = 256 };

/* A store that is driven as the step thread drives it, with a clock around each call. */
typedef struct bench {
    pd_store *store;
    uint64_t now, id;
    double batch_ns;
    uint32_t n; /* number of parameters of a job */
    uint32_t job;
    uint64_t answered; /* id of the request that was answered last */
    pd_error error;
    pd_info *info;
    pd_set_result *set;
    double longest_ns; /* of the calls of this request */
    size_t calls;
} bench;

static double clock_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static char *copy(const char *text)
{
    char *to = strdup(text);

    assert_non_null(to);
    return to;
}

static void take_effects(bench *b)
{
    pd_effect *next;

    for (pd_effect *effect = pd_store_effects(b->store); effect != NULL; effect = next) {
        next = (pd_effect *)(void *)effect->mail.next;
        if (effect->ticket.id != 0) {
            b->answered = effect->ticket.id;
            b->error.code = PD_OK;
            if (effect->kind == PD_EFF_ERROR) b->error = effect->u.error;
        }
        if (effect->kind == PD_EFF_HELLO) b->job = effect->job;
        if (effect->kind == PD_EFF_INFO) {
            pd_info_free(b->info);
            b->info = effect->u.info;
            effect->u.info = NULL;
        }
        if (effect->kind == PD_EFF_SET) {
            pd_set_result_free(b->set);
            b->set = effect->u.set;
            effect->u.set = NULL;
        }
        pd_effect_free(effect);
    }
}

static void note_call(bench *b, double began_ns)
{
    double ns = clock_ns() - began_ns;

    b->calls++;
    if (ns > b->longest_ns) b->longest_ns = ns;
    take_effects(b);
}

/* Applies a request in parts of `part_ns`, with turns of the jobs between them. Returns the code of the answer. */
static int apply(bench *b, const char *what, pd_request *request, double part_ns)
{
    uint64_t id = request->ticket.id;
    bool done = false;

    b->longest_ns = 0;
    b->calls = 0;
    while (b->answered != id) {
        double began_ns = clock_ns();
        b->now += 1000000;
        if (!done) {
            done = pd_store_apply_some(b->store, request, part_ns, b->now);
            note_call(b, began_ns);
            began_ns = clock_ns();
        } else {
            assert_true(pd_store_has_work(b->store));
        }
        if (pd_store_work(b->store, b->now)) assert_false(b->answered == id && !done);
        note_call(b, began_ns);
    }
    if (getenv("BOUNDED_PARAMS") != NULL)
        printf("%-40s %6zu calls, longest %7.3f ms%s%.80s\n", what, b->calls, b->longest_ns / 1e6,
               b->error.code != PD_OK ? ": " : "", b->error.code != PD_OK ? b->error.text : "");
    return b->error.code;
}

/* Checks that the last request, which takes at least `ns` for each parameter, took as many calls as that makes. */
static void assert_calls(const bench *b, double ns, double part_ns)
{
    if ((double)b->calls < ns * b->n / part_ns) fail_msg("%zu calls of %g ns, %u parameters", b->calls, part_ns, b->n);
}

static void begin(bench *b)
{
    pd_store_config config = rig_config();
    const char *n = getenv("BOUNDED_PARAMS");
    pd_error err;

    b->n = n != NULL ? (uint32_t)strtoul(n, NULL, 10) : 2048;
    config.max_params = b->n;
    config.max_total_bytes = (uint64_t)64 << 30;
    config.ingest_bytes = (uint64_t)4 << 30;
    config.batch_ns = b->batch_ns = n != NULL ? 4e6 : 4e5;
    assert_int_equal(pd_store_new(&b->store, &config, &err), PD_OK);
}

static void end(bench *b)
{
    pd_request *drop = pd_request_new(PD_REQ_DROP, (pd_ticket){ 1, 0 });

    pd_store_apply(b->store, drop, b->now);
    take_effects(b);
    pd_store_free(b->store);
    pd_info_free(b->info);
    pd_set_result_free(b->set);
}

static pd_request *request_of(bench *b, pd_request_kind kind, uint64_t conn)
{
    pd_request *request = pd_request_new(kind, (pd_ticket){ conn, ++b->id });

    assert_non_null(request);
    return request;
}

/* Says Hello as rank `rank` of two, with rules that each are a glob and an optimizer. */
static pd_request *hello(bench *b, uint32_t rank, const char *const *rules, size_t n)
{
    pd_request *request = request_of(b, PD_REQ_HELLO, 1 + rank);

    request->rank = rank;
    request->u.hello.job_name = copy("j");
    request->u.hello.label = copy("w:1");
    request->u.hello.world_size = 2;
    request->u.hello.nonce = 1 + rank;
    request->u.hello.run = copy("launch");
    request->u.hello.rules = calloc(n + 1, sizeof(char *));
    for (size_t i = 0; i < n; i++) request->u.hello.rules[i] = copy(rules[i]);
    request->u.hello.n_rules = n;
    return request;
}

/* Writes the name of parameter i: 256 bytes, nearly all of them a. */
static void name_of(char name[NAME + 1], uint32_t i)
{
    memset(name, 'a', NAME);
    for (int k = 1; k <= 8; k++, i /= 10) name[NAME - k] = (char)(48 + i % 10);
    name[NAME] = '\0';
}

static pd_request *declare(bench *b, uint32_t rank)
{
    pd_request *request = request_of(b, PD_REQ_DECLARE, 1 + rank);
    char name[NAME + 1];

    request->job = b->job;
    request->rank = rank;
    request->u.declare.n = b->n;
    request->u.declare.params = calloc(b->n, sizeof *request->u.declare.params);
    for (uint32_t i = 0; i < b->n; i++) {
        name_of(name, i);
        request->u.declare.params[i] =
            (pd_param_decl){ .name = copy(name), .shape = { 1, { 2 } }, .pull_dtype = rank == 0 ? PD_F32 : PD_BF16 };
    }
    return request;
}

static pd_request *list(bench *b, pd_info_what what, const char *pattern, uint64_t start)
{
    pd_request *request = request_of(b, PD_REQ_INFO, 9);

    request->u.info.what = what;
    request->u.info.job_name = copy("j");
    request->u.info.pattern = pattern != NULL ? copy(pattern) : NULL;
    request->u.info.start = start;
    return request;
}

/* Sets hyperparameters: `options` is like "lr=0.5 momentum=0.9". */
static pd_request *set(bench *b, const char *pattern, const char *options)
{
    pd_request *request = request_of(b, PD_REQ_SET, 9);
    char *text = copy(options), *rest = NULL;

    request->u.set.job_name = copy("j");
    request->u.set.pattern = copy(pattern);
    request->u.set.by = copy("operator");
    request->u.set.options = calloc(PD_MAX_OPTIONS, sizeof(pd_option));
    for (char *word = strtok_r(text, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        *equals = '\0';
        request->u.set.options[request->u.set.n++] = (pd_option){ copy(word), copy(equals + 1) };
    }
    free(text);
    return request;
}

enum { HARD = 8 };

/* Writes glob number `kind`, of 256 bytes, which takes long to compare with the names, and matches none of them. */
static void hard_glob(char glob[PD_GLOB_MAX + 1], size_t kind)
{
    static const char *const units[HARD] = { "*a", "?", "[a]", "*[!b]", "*?", "a", "[", "\\a" };

    glob[0] = '*';
    for (size_t i = 1; i < PD_GLOB_MAX; i++) glob[i] = units[kind][(i - 1) % strlen(units[kind])];
    if (kind == 2) glob[PD_GLOB_MAX - 3] = 'a'; /* the last set is not cut off */
    memcpy(glob + PD_GLOB_MAX - 2, "*b", 3);
}

/* Declares a job whose first rule is a hard glob, as rank 0. */
static void start(bench *b)
{
    char glob[PD_GLOB_MAX + 1], rule[PD_GLOB_MAX + 32];
    const char *rules[] = { rule, "* adam" };

    hard_glob(glob, 0);
    snprintf(rule, sizeof rule, "%s sgd", glob);
    assert_int_equal(apply(b, "hello", hello(b, 0, rules, 2), 1e6), PD_OK);
    assert_int_equal(apply(b, "first declare", declare(b, 0), 1e6), PD_OK);
}

FIXTURE(bench, begin, end);

TEST(the_first_declare_is_worked_in_parts, bench *b)
{
    start(b);
    assert_calls(b, 5000, b->batch_ns);
}

TEST(a_declare_again_is_worked_in_parts, bench *b)
{
    const char *rules[2];
    char glob[PD_GLOB_MAX + 1], rule[PD_GLOB_MAX + 32];

    start(b);
    hard_glob(glob, 0);
    snprintf(rule, sizeof rule, "%s sgd", glob);
    rules[0] = rule;
    rules[1] = "* adam";
    assert_int_equal(apply(b, "hello again", hello(b, 1, rules, 2), 1e6), PD_OK);
    assert_int_equal(apply(b, "declare again", declare(b, 1), 1e6), PD_OK);
    assert_calls(b, 600, b->batch_ns / 2);
    assert_int_equal(apply(b, "hello of the same rank", hello(b, 1, rules, 2), 1e6), PD_OK);
    assert_int_equal(apply(b, "declare of the same rank", declare(b, 1), 1e6), PD_OK);
}

TEST(a_list_is_worked_in_parts_whatever_its_glob_is, bench *b)
{
    static const pd_info_what lists[] = { PD_INFO_PARAMS, PD_INFO_ROOTS, PD_INFO_SETTINGS, PD_INFO_STATE,
                                          PD_INFO_JOBS };
    char glob[PD_GLOB_MAX + 1], what[64];

    start(b);
    assert_int_equal(apply(b, "set", set(b, "*", "lr=0.5"), 1e6), PD_OK);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (size_t kind = 0; kind < HARD; kind++) {
            hard_glob(glob, kind);
            snprintf(what, sizeof what, "list %d, glob %.8s", lists[i], glob);
            assert_int_equal(apply(b, what, list(b, lists[i], glob, 0), 1e5), PD_OK);
            if (lists[i] == PD_INFO_SETTINGS || lists[i] == PD_INFO_STATE) {
                assert_int_equal(b->info->total, 0);
                assert_calls(b, 500, 1e5);
            }
        }
    assert_int_equal(apply(b, "list of state", list(b, PD_INFO_STATE, "*", b->n), 1e5), PD_OK);
    assert_int_equal(b->info->total, 2 * b->n);
    assert_int_equal(apply(b, "list of settings", list(b, PD_INFO_SETTINGS, "*", b->n / 2), 1e5), PD_OK);
    assert_int_equal(b->info->total, b->n);
}

TEST(a_setting_is_worked_in_parts_whatever_its_glob_is, bench *b)
{
    char glob[PD_GLOB_MAX + 1], what[64];

    start(b);
    for (size_t kind = 0; kind < HARD; kind++) {
        hard_glob(glob, kind);
        snprintf(what, sizeof what, "set nothing, glob %.8s", glob);
        assert_int_equal(apply(b, what, set(b, glob, "lr=0.5"), 1e5), PD_NOT_FOUND);
        assert_calls(b, 300, b->batch_ns / 2);
    }
    for (int i = 0; i < 3; i++) {
        assert_int_equal(apply(b, "set all", set(b, "*", "lr=0.5 eps=1e-7 weight_decay=0.1"), 1e5), PD_OK);
        assert_int_equal(b->set->params, b->n);
        assert_calls(b, 400, b->batch_ns / 2);
    }
    assert_int_equal(apply(b, "withdraw all", set(b, "*", "lr= eps= weight_decay="), 1e5), PD_OK);
    assert_int_equal(apply(b, "withdraw nothing", set(b, "*", "lr="), 1e5), PD_FAILED_PRECONDITION);
}

/* Writes a schedule of n points, "piecewise(0.1,1:0.1,...)", which is not far from its longest. */
static char *long_schedule(size_t n)
{
    char *text = malloc(32 + 16 * n), *at = text;

    assert_non_null(text);
    at += sprintf(at, "piecewise(0.1");
    for (size_t i = 1; i <= n; i++) at += sprintf(at, ",%zu:0.%zu", i, 1 + i % 9);
    strcpy(at, ")");
    return text;
}

TEST(schedules_are_as_long_as_frames_allow, bench *b)
{
    char *schedule = long_schedule(getenv("BOUNDED_PARAMS") != NULL ? 6000 : 400),
         *text = malloc(strlen(schedule) + 64);
    const char *rules[] = { text };

    sprintf(text, "* sgd momentum=0.9 lr=%s", schedule);
    assert_int_equal(apply(b, "hello with a schedule", hello(b, 0, rules, 1), 1e6), PD_OK);
    assert_int_equal(apply(b, "hello with another", hello(b, 1, (const char *[]){ "* sgd lr=1" }, 1), 1e6),
                     PD_FAILED_PRECONDITION);
    assert_int_equal(apply(b, "first declare", declare(b, 0), 1e6), PD_OK);
    sprintf(text, "momentum=%s", schedule);
    assert_int_equal(apply(b, "set a schedule", set(b, "*", text), 1e6), PD_OK);
    /* Parameters that follow each other have other values, so each is checked at all counts of the schedule. */
    assert_int_equal(apply(b, "set a few", set(b, "*0[02468]", "weight_decay=0.1"), 1e6), PD_OK);
    assert_int_equal(apply(b, "set of a few", set(b, "*0[0-9]", "dampening=0.2"), 1e6), PD_OK);
    assert_calls(b, 0.1 * 400 * 250, b->batch_ns / 2);
    assert_int_equal(apply(b, "list of settings", list(b, PD_INFO_SETTINGS, "*", 0), 1e5), PD_OK);
    free(text);
    free(schedule);
}
