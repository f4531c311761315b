/* Tests how a NUMA node is chosen, on made-up machines: folders like /sys/devices/system/node. */
#define _GNU_SOURCE /* CPU_SET, nftw */
#include <ftw.h>
#include <linux/mempolicy.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "test.h"
#include "host.h"

/* Reads a list. Returns how many numbers it has; -1: it is refused. */
static int count(const char *text)
{
    cpu_set_t set;

    return pd_numa_read_list(text, &set) ? CPU_COUNT(&set) : -1;
}

TEST(a_list_has_numbers_and_ranges)
{
    cpu_set_t set;

    assert_true(pd_numa_read_list("0-3,8,10-11\n", &set));
    for (int i = 0; i < CPU_SETSIZE; i++)
        assert_int_equal(CPU_ISSET(i, &set) != 0, i <= 3 || i == 8 || i == 10 || i == 11);
    assert_int_equal(count("0"), 1);
    assert_int_equal(count("0\n"), 1);
    assert_int_equal(count("1023"), 1);
    assert_int_equal(count("0-1023\n"), 1024);
    assert_int_equal(count("5,5-6,6\n"), 2);
}

TEST(a_list_may_be_empty)
{
    assert_int_equal(count(""), 0);
    assert_int_equal(count("\n"), 0);
}

TEST(garbage_is_no_list)
{
    static const char *const garbage[] = {
        ",",    "1,",      ",1",  "1,,2",    "-",       "1-",    "-1",
        "3-1",  "1-2-3",   "1 2", " 1",      "1 \n",    "1\n\n", "\n1",
        "a",    "1a",      "0x1", "1024",    "0-1024",  "+1",    "99999999999999999999",
        "1\n2", "0-3:1/2", "all", "0-3\r\n", "\xff\xfe"
    };

    for (size_t i = 0; i < sizeof garbage / sizeof garbage[0]; i++)
        if (count(garbage[i]) != -1) fail_msg("\"%s\" is read as a list", garbage[i]);
}

enum { MOST_NODES = 8 };

typedef struct machine {
    const char *online;
    const char *cpus[MOST_NODES]; /* list of each node; NULL: the node has no file */
} machine;

static void write_file(const char *folder, const char *name, const char *text)
{
    char path[600];
    FILE *file;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    if ((file = fopen(path, "w")) == NULL) fail_msg("%s: %s", path, strerror(errno));
    fputs(text, file);
    fclose(file);
}

static void write_machine(const char *folder, const machine *m)
{
    char path[600], name[64];

    if (m->online != NULL) write_file(folder, "online", m->online);
    for (int i = 0; i < MOST_NODES; i++) {
        if (m->cpus[i] == NULL) continue;
        snprintf(path, sizeof path, "%s/node%d", folder, i);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(name, sizeof name, "node%d/cpulist", i);
        write_file(folder, name, m->cpus[i]);
    }
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    return remove(path);
}

/* Chooses a node of a made-up machine, for a process that may use the processors in the list `allowed`. */
static pd_numa chosen(const machine *m, const char *allowed, int threads)
{
    char folder[] = "/tmp/paramd-numa-XXXXXX";
    cpu_set_t set;
    pd_numa numa;

    assert_true(pd_numa_read_list(allowed, &set));
    assert_non_null(mkdtemp(folder));
    write_machine(folder, m);
    pd_numa_choose(&numa, folder, &set, threads);
    assert_int_equal(nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
    return numa;
}

static void expect_mask(const pd_numa *numa, const char *list)
{
    cpu_set_t set;

    assert_true(pd_numa_read_list(list, &set));
    assert_true(CPU_EQUAL(&set, &numa->mask));
    assert_int_equal(numa->cpus, CPU_COUNT(&set));
}

static void expect_line(const pd_numa *numa, const char *line)
{
    char text[200];

    pd_numa_describe(numa, text, sizeof text);
    assert_string_equal(text, line);
}

static const machine one_node = { "0\n", { "0-7\n" } };
static const machine two_nodes = { "0-1\n", { "0-3,8-11\n", "4-7,12-15\n" } };

TEST(a_machine_of_one_node_is_left_alone)
{
    pd_numa numa = chosen(&one_node, "0-7", 8);

    assert_int_equal(numa.finding, PD_NUMA_ONE_NODE);
    expect_line(&numa, "numa: one node");
    numa = chosen(&one_node, "3", 64);
    assert_int_equal(numa.finding, PD_NUMA_ONE_NODE);
}

TEST(of_two_equal_nodes_the_lower_is_chosen)
{
    pd_numa numa = chosen(&two_nodes, "0-15", 8);

    assert_int_equal(numa.finding, PD_NUMA_CHOSEN);
    assert_int_equal(numa.node, 0);
    expect_mask(&numa, "0-3,8-11");
    expect_line(&numa, "numa: step threads on node 0 of 2, 8 CPUs");
}

TEST(the_node_with_most_of_the_allowed_processors_is_chosen)
{
    pd_numa numa = chosen(&two_nodes, "2-3,5-7,12", 4);

    assert_int_equal(numa.finding, PD_NUMA_CHOSEN);
    assert_int_equal(numa.node, 1);
    expect_mask(&numa, "5-7,12");
    expect_line(&numa, "numa: step threads on node 1 of 2, 4 CPUs");
}

TEST(processors_of_one_node_need_no_choice)
{
    pd_numa numa = chosen(&two_nodes, "4-7,12", 2);

    assert_int_equal(numa.finding, PD_NUMA_CONFINED);
    expect_line(&numa, "numa: all CPUs that this process may use are on node 1 of 2");
}

TEST(more_threads_than_a_node_has_processors_get_all_nodes)
{
    pd_numa numa = chosen(&two_nodes, "0-15", 9);

    assert_int_equal(numa.finding, PD_NUMA_CROWDED);
    expect_line(&numa, "numa: off, because 9 step threads do not fit on node 0 of 2, which has 8 CPUs");
    assert_int_equal(chosen(&two_nodes, "0-15", 8).finding, PD_NUMA_CHOSEN);
    assert_int_equal(chosen(&two_nodes, "0,4-6", 3).finding, PD_NUMA_CHOSEN);
    assert_int_equal(chosen(&two_nodes, "0,4-6", 4).finding, PD_NUMA_CROWDED);
}

TEST(automatic_threads_fit_on_any_node)
{
    pd_numa numa = chosen(&two_nodes, "0,4-6", 0);

    assert_int_equal(numa.finding, PD_NUMA_CHOSEN);
    assert_int_equal(numa.cpus, 3);
}

TEST(numbers_of_nodes_may_have_holes)
{
    static const machine holes = { "0,2,5\n", { "0-1\n", NULL, "2-5\n", NULL, NULL, "6-9\n" } };
    pd_numa numa = chosen(&holes, "0-9", 4);

    assert_int_equal(numa.finding, PD_NUMA_CHOSEN);
    assert_int_equal(numa.node, 2);
    expect_mask(&numa, "2-5");
    expect_line(&numa, "numa: step threads on node 2 of 3, 4 CPUs");
}

TEST(a_node_that_is_offline_is_not_looked_at)
{
    static const machine offline = { "0,2\n", { "0-1\n", "2-7\n", "8-9\n" } };
    pd_numa numa = chosen(&offline, "0-9", 1);

    assert_int_equal(numa.finding, PD_NUMA_CHOSEN);
    assert_int_equal(numa.node, 0);
    assert_int_equal(numa.nodes, 2);
}

TEST(a_node_of_memory_alone_does_not_count)
{
    static const machine expander = { "0-1\n", { "0-7\n", "\n" } }, expanded = { "0-2\n", { "\n", "0-3\n", "4-7\n" } };

    assert_int_equal(chosen(&expander, "0-7", 1).finding, PD_NUMA_ONE_NODE);
    pd_numa numa = chosen(&expanded, "0-7", 4);
    assert_int_equal(numa.node, 1);
    expect_line(&numa, "numa: step threads on node 1 of 2, 4 CPUs");
}

TEST(a_machine_whose_nodes_cannot_be_read_is_left_alone)
{
    static const machine machines[] = {
        { NULL, { NULL } },                       /* a kernel without NUMA has no such folder */
        { "", { "0-7\n" } },                      /* a file that cannot be read to the end */
        { "nodes\n", { "0-7\n" } },               /* garbage */
        { "0-1\n", { "0-3\n", NULL } },           /* a node without its list */
        { "0-1\n", { "0-3\n", "4-\n" } },         /* a list that is cut */
        { "0-1\n", { "0-3\n", "1024-2047\n" } },  /* more processors than a set has room for */
        { "\n", { NULL } },                       /* no node at all */
        { "0-1\n", { "100-103\n", "104-107\n" } } /* none of the processors that the process may use */
    };

    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        pd_numa numa = chosen(&machines[i], "0-7", 1);
        if (numa.finding != PD_NUMA_UNKNOWN) fail_msg("machine %zu: finding %d", i, (int)numa.finding);
        expect_line(&numa, "numa: off, because /sys/devices/system/node does not list the machine's nodes");
    }
}

TEST(off_is_off)
{
    cpu_set_t none = { 0 };
    pd_numa numa;

    pd_numa_find(&numa, true, &none, 1);
    assert_int_equal(numa.finding, PD_NUMA_OFF);
    expect_line(&numa, "numa: off");
    assert_int_equal(pd_numa_bind(&numa), 0);
    assert_int_equal(pd_numa_prefer(&numa), 0);
}

/* Runs a function in a child process, and fails if it returns another exit status than 0. */
static void in_child(int (*run)(void))
{
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) _exit(run());
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

static int first_of(const cpu_set_t *set)
{
    int cpu = 0;

    while (!CPU_ISSET(cpu, set)) cpu++;
    return cpu;
}

/* Stays on one processor, which is all of a made-up node. */
static int stay(void)
{
    pd_numa numa = { .finding = PD_NUMA_CHOSEN };
    cpu_set_t set;

    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    CPU_SET(first_of(&set), &numa.mask);
    if (pd_numa_bind(&numa) != 0 || sched_getaffinity(0, sizeof set, &set) != 0) return 2;
    if (!CPU_EQUAL(&set, &numa.mask) || pd_host_cores() != 1) return 3;
    numa.finding = PD_NUMA_ONE_NODE;
    CPU_ZERO(&numa.mask);
    return pd_numa_bind(&numa) == 0 ? 0 : 4;
}

HOLDS(the_calling_thread_stays_on_the_processors_of_the_node, in_child(stay));

static int bind_to_none(void)
{
    pd_numa numa = { .finding = PD_NUMA_CHOSEN };

    return pd_numa_bind(&numa) == EINVAL ? 0 : 1;
}

HOLDS(a_node_without_processors_is_refused_by_the_system, in_child(bind_to_none));

/* Prefers the memory of node 0, which every machine with memory policies has. Exits with 77 if a container forbids
 * it. */
static int prefer_first(void)
{
    pd_numa numa = { .finding = PD_NUMA_CHOSEN };
    int rc = pd_numa_prefer(&numa), policy = -1;
    unsigned long nodes[16] = { 0 };

    if (rc == EPERM || rc == ENOSYS) return 77;
    if (rc != 0 || syscall(SYS_get_mempolicy, &policy, nodes, 1025, NULL, 0) != 0) return 1;
    return policy == MPOL_PREFERRED && nodes[0] == 1 ? 0 : 2;
}

HOLDS(memory_is_taken_from_the_node_first, in_child(prefer_first));
