/* Tests that a small job goes on stepping while another identity sends each method of the protocol at its largest, and
 * that the table of costs has each method. The attacks are those of tests/hostile. */
#include <ftw.h>

#include "test.h"
#include "daemon_process.h"
#include "duel.h"
#include "handlers.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { PARAMS = 1000, ALL_PARAMS = 1000 };
#else
enum { PARAMS = 4096, ALL_PARAMS = DUEL_ALL_PARAMS };
#endif
enum { SIDE = 128 };
static const double longest_ms = 2000, attack_s = 0.2;

/* These were worst before requests had bounds, and meet a job of the most parameters. */
static const char *const worst[] = { "declare_rules", "push_last" };

static uint32_t params_for(const attack *by)
{
    for (size_t i = 0; i < sizeof worst / sizeof *worst; i++)
        if (strcmp(worst[i], by->name) == 0) return ALL_PARAMS;
    return PARAMS;
}

static char *read_costs(void)
{
    FILE *file = fopen(PD_SOURCE_DIR "/server/COSTS.md", "r");
    char *text = calloc(1, 1 << 18);

    if (file == NULL || text == NULL) fail_msg("server/COSTS.md cannot be read");
    text[fread(text, 1, (1 << 18) - 1, file)] = '\0';
    fclose(file);
    return text;
}

/* Returns how many rows of the document's tables begin with a method's name. */
static int count_rows(const char *text, const char *name)
{
    char row[64];
    int n = 0;

    snprintf(row, sizeof row, "\n| %s |", name);
    for (const char *at = text; (at = strstr(at, row)) != NULL; at++) n++;
    return n;
}

TEST(each_method_has_a_row_in_both_tables_of_costs)
{
    char *text = read_costs();

    for (int m = 0; m < PD_METHODS; m++)
        if (count_rows(text, pd_methods[m].name) != 2)
            fail_msg("server/COSTS.md: expected a row of %s in both tables, found %d", pd_methods[m].name,
                     count_rows(text, pd_methods[m].name));
    free(text);
}

TEST(each_method_has_an_attack)
{
    for (unsigned m = 0; m < PD_METHODS; m++) {
        size_t i = 0;
        while (i < attacks_count() && attacks_at(i)->method != m) i++;
        if (i == attacks_count()) fail_msg("no attack of tests/hostile sends %s", pd_methods[m].name);
    }
}

typedef struct scene {
    char folder[40], path[64], listen[128];
    test_daemon *process;
    duel_daemon daemon;
} scene;

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *place)
{
    (void)about, (void)kind, (void)place;
    return remove(path);
}

static void start(scene *s, bool read_only)
{
    strcpy(s->folder, "/tmp/paramd-largest-XXXXXX");
    assert_non_null(mkdtemp(s->folder));
    snprintf(s->path, sizeof s->path, "%s/socket", s->folder);
    snprintf(s->listen, sizeof s->listen, "--listen=127.0.0.1:0,unix://%s", s->path);
    duel_environment(s->folder, read_only);
    s->process = daemon_start((const char *const[]){ s->listen, NULL });
    s->daemon =
        (duel_daemon){ .url = s->process->url, .path = s->path, .port = s->process->port, .read_only = read_only };
    s->daemon.http_port = daemon_port_of(s->process, "listening for HTTP on 127.0.0.1:");
}

static void end(scene *s)
{
    assert_int_equal(daemon_stop(s->process, patient(20)), 0);
    assert_int_equal(nftw(s->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Steps for some seconds beside an attack. Returns whether the attack has sent its method: a busy machine may need
 * longer to come that far. */
static bool duel_for(const attack *by, double seconds)
{
    bool read_only = by->role == ATTACK_READER_OF_OTHERS;
    scene s = { 0 };
    duel_job *job, *other = NULL;
    duel_attack *running;
    duel_times times;
    foe_count count;

    start(&s, read_only);
    job = duel_join(s.daemon.url, "small", SIDE, SIDE, "* sgd lr=0.01");
    if (read_only) other = duel_join(s.daemon.url, "large", SIDE, SIDE, "* sgd lr=0.01");
    running = duel_begin(by, &s.daemon, params_for(by), read_only ? "large" : NULL);
    if (!duel_is_prepared(running)) {
        duel_end(running, &count);
        fail_msg("the attack %s was not prepared: %s", by->name, count.error);
    }
    duel_go(running);
    duel_steps(job, patient(seconds), true, &times);
    duel_end(running, &count);
    if (times.longest > 1e3 * patient(longest_ms / 1e3))
        fail_msg("beside the attack %s a step of the small job took %.0f ms", by->name, times.longest);
    duel_leave(job);
    duel_leave(other);
    end(&s);
    return by->method >= PD_METHODS || count.sent[by->method] > 0;
}

static void duel(const attack *by)
{
    if (!duel_for(by, attack_s) && !duel_for(by, 20 * attack_s))
        fail_msg("the attack %s has sent no %s", by->name, pd_methods[by->method].name);
}

TEST(a_small_job_goes_on_beside_each_method_at_its_largest)
{
    for (size_t i = 0; i < attacks_count(); i++) duel(attacks_at(i));
}
