/* Tests how a machine's processors are divided among daemons, on made-up machines: folders like
 * /sys/devices/system/node. */
#define _GNU_SOURCE /* CPU_SET, nftw */
#include <ftw.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test.h"
#include "config.h"
#include "host.h"
#include "slice.h"

enum { MOST_NODES = 8 };

/* A made-up machine. */
typedef struct machine {
    const char *online;
    const char *cpus[MOST_NODES]; /* list of each node; NULL: the node has no folder */
    int threads;                  /* distance between the hyperthreads of a core; 0: a core has one */
} machine;

static void write_file(const char *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

static void write_file(const char *text, const char *format, ...)
{
    char path[600], *slash;
    va_list args;
    FILE *file;

    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    for (slash = strchr(path + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700);
        *slash = '/';
    }
    if ((file = fopen(path, "w")) == NULL) fail_msg("%s: %s", path, strerror(errno));
    fputs(text, file);
    fclose(file);
}

/* Writes which processors share a core with each processor of a node: those with the same remainder. */
static void write_cores(const char *folder, int node, const machine *m)
{
    cpu_set_t cpus;
    char text[32];

    assert_true(pd_numa_read_list(m->cpus[node], &cpus));
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, &cpus)) continue;
        snprintf(text, sizeof text, "%d,%d\n", cpu % m->threads, cpu % m->threads + m->threads);
        write_file(text, "%s/node%d/cpu%d/topology/thread_siblings_list", folder, node, cpu);
    }
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *ftw)
{
    (void)st, (void)kind, (void)ftw;
    return remove(path);
}

/* Chooses a slice of a machine for a process that may use the processors in the list `allowed`. */
static int choose(cpu_set_t *out, const machine *m, const char *allowed, int number, int of, pd_error *err)
{
    char folder[] = "/tmp/paramd-slice-XXXXXX";
    cpu_set_t set;
    int rc;

    assert_true(pd_numa_read_list(allowed, &set));
    assert_non_null(mkdtemp(folder));
    if (m->online != NULL) write_file(m->online, "%s/online", folder);
    for (int node = 0; node < MOST_NODES; node++) {
        if (m->cpus[node] == NULL) continue;
        write_file(m->cpus[node], "%s/node%d/cpulist", folder, node);
        if (m->threads > 0) write_cores(folder, node, m);
    }
    rc = pd_slice_choose(out, folder, &set, (pd_slice){ number, of }, err);
    assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    return rc;
}

static void expect(const machine *m, const char *allowed, int number, int of, const char *list)
{
    cpu_set_t got, want;
    pd_error err = { 0 };

    assert_true(pd_numa_read_list(list, &want));
    if (choose(&got, m, allowed, number, of, &err) != PD_OK) fail_msg("%d/%d: %s", number, of, err.text);
    if (!CPU_EQUAL(&got, &want)) fail_msg("slice %d/%d of %s is not %s", number, of, allowed, list);
}

static const machine one_node = { "0\n", { "0-7\n" }, 0 };
static const machine two_nodes = { "0-1\n", { "0-3,8-11\n", "4-7,12-15\n" }, 0 };
static const machine threaded = { "0-1\n", { "0-3,8-11\n", "4-7,12-15\n" }, 8 };

TEST(slices_are_disjoint_and_cover_all_allowed_processors)
{
    static const machine *const machines[] = { &one_node, &two_nodes, &threaded };

    for (size_t m = 0; m < 3; m++)
        for (int of = 1; of <= 8; of++) {
            cpu_set_t all, some, both;
            int most = 0, least = CPU_SETSIZE;
            pd_error err = { 0 };
            CPU_ZERO(&all);
            for (int number = 1; number <= of; number++) {
                assert_int_equal(choose(&some, machines[m], "0-7", number, of, &err), PD_OK);
                CPU_AND(&both, &all, &some);
                assert_int_equal(CPU_COUNT(&both), 0);
                CPU_OR(&all, &all, &some);
                most = CPU_COUNT(&some) > most ? CPU_COUNT(&some) : most;
                least = CPU_COUNT(&some) < least ? CPU_COUNT(&some) : least;
            }
            assert_int_equal(CPU_COUNT(&all), 8);
            assert_true(most - least <= 1);
        }
}

TEST(two_slices_of_two_nodes_are_the_nodes)
{
    expect(&two_nodes, "0-15", 1, 2, "0-3,8-11");
    expect(&two_nodes, "0-15", 2, 2, "4-7,12-15");
}

TEST(four_slices_of_two_nodes_stay_on_their_node)
{
    expect(&two_nodes, "0-15", 2, 4, "8-11");
    expect(&two_nodes, "0-15", 3, 4, "4-7");
}

TEST(the_hyperthreads_of_a_core_are_in_one_slice)
{
    expect(&threaded, "0-15", 1, 4, "0,1,8,9");
    expect(&threaded, "0-15", 4, 4, "6,7,14,15");
    expect(&threaded, "0-15", 3, 8, "2,10");
}

TEST(only_allowed_processors_are_divided)
{
    expect(&two_nodes, "2-5", 1, 2, "2-3");
    expect(&two_nodes, "2-5", 2, 2, "4-5");
}

TEST(a_machine_that_lists_no_nodes_is_divided_by_number)
{
    static const machine unknown = { 0 };

    expect(&unknown, "0-3", 1, 2, "0-1");
    expect(&unknown, "0-3", 2, 2, "2-3");
}

TEST(the_whole_machine_is_every_allowed_processor)
{
    expect(&two_nodes, "1,4", 0, 0, "1,4");
    expect(&two_nodes, "1,4", 1, 1, "1,4");
}

TEST(more_slices_than_processors_are_refused)
{
    cpu_set_t set;
    pd_error err = { 0 };

    assert_int_equal(choose(&set, &one_node, "0-1", 3, 3, &err), PD_INVALID_ARGUMENT);
    assert_string_equal(err.text, "server.slice = 3/3: this process may use 2 processors, so at most 2 slices can be "
                                  "made");
}

TEST(a_slice_is_a_number_and_a_total)
{
    static const char *const wrong[] = { "0/4", "5/4",   "1",    "1/",   "/4",     "1/0",
                                         "a/4", "1/4/4", "1/4 ", "-1/4", "2/1025", "99999999999/99999999999" };
    pd_slice slice;
    pd_error err = { 0 };

    assert_int_equal(pd_slice_read(&slice, "2/4", &err), PD_OK);
    assert_int_equal(slice.number, 2);
    assert_int_equal(slice.of, 4);
    assert_int_equal(pd_slice_read(&slice, "", &err), PD_OK);
    assert_int_equal(slice.of, 0);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (pd_slice_read(&slice, wrong[i], &err) != PD_INVALID_ARGUMENT) fail_msg("%s is taken", wrong[i]);
}

TEST(a_slice_has_its_share_of_the_memory)
{
    assert_int_equal(pd_slice_memory((pd_slice){ 2, 4 }), pd_host_memory() / 4);
    assert_int_equal(pd_slice_memory((pd_slice){ 0 }), pd_host_memory());
}

/* Binds the process to a slice of one processor, and chooses slices again, as a reload does. */
static int bind_and_choose_again(void)
{
    cpu_set_t set, again;
    pd_slice slice;
    pd_error err;
    int n;

    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    n = CPU_COUNT(&set);
    slice = (pd_slice){ n, n };
    if (pd_slice_processors(&set, slice, &err) != PD_OK || CPU_COUNT(&set) != 1) return 2;
    if (pd_slice_bind(slice, &err) != PD_OK) return 3;
    if (sched_getaffinity(0, sizeof again, &again) != 0 || !CPU_EQUAL(&set, &again)) return 4;
    if (pd_slice_processors(&again, slice, &err) != PD_OK || !CPU_EQUAL(&set, &again)) return 5;
    return pd_slice_cores(slice, &again) == 1 ? 0 : 6;
}

TEST(a_bound_process_chooses_the_same_slice_again)
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) _exit(bind_and_choose_again());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

TEST(automatic_values_of_a_daemon_are_those_of_its_slice)
{
    pd_config *whole = pd_config_new(), *half = pd_config_new();
    cpu_set_t set;
    pd_error err = { 0 };
    int n;

    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    if ((n = CPU_COUNT(&set)) < 2) skip();
    assert_int_equal(pd_config_set(half, "server", "slice", "1/2", &err), PD_OK);
    assert_int_equal(pd_config_check(whole, &err), PD_OK);
    assert_int_equal(pd_config_check(half, &err), PD_OK);
    assert_int_equal(half->limits.max_total_bytes, pd_host_memory() / 2 / 10 * 8);
    assert_int_equal(half->threads.step_threads, n / 2);
    assert_int_equal(pd_config_set(half, "server", "slice", "3/2", &err), PD_OK);
    assert_int_equal(pd_config_check(half, &err), PD_INVALID_ARGUMENT);
    pd_config_free(whole);
    pd_config_free(half);
}
