/* Tests the doctor's checks on made-up machines: folders with proc and sys, and scripts in the place of paramd. */
#define _GNU_SOURCE /* mkdtemp, nftw */
#include <ftw.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "test.h"
#include "doctor.h"

WITH_THREADS();

/* A made-up machine. Its folder is removed at the end of the test. */
typedef struct fake {
    char folder[32], program[64];
    pd_machine machine;
} fake;

static fake fake_begin(void)
{
    return (fake){ .folder = "/tmp/paramd-doctor-XXXXXX", .machine = { .settings = (char *)"" } };
}

static int remove_one(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about, (void)kind, (void)where;
    return remove(path);
}

static void fake_end(fake *f)
{
    assert_int_equal(nftw(f->folder, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

/* Writes a file below the folder, and makes the folders on the way to it. */
static void put(fake *f, const char *name, const char *text)
{
    char path[512];
    FILE *file;

    if (f->machine.root == NULL) assert_non_null(mkdtemp(f->folder));
    f->machine.root = f->folder;
    snprintf(path, sizeof path, "%s%s", f->folder, name);
    for (char *slash = strchr(path + strlen(f->folder) + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(path, 0700) != 0) assert_int_equal(errno, EEXIST);
        *slash = '/';
    }
    if ((file = fopen(path, "w")) == NULL) fail_msg("%s: %s", path, strerror(errno));
    fputs(text, file);
    fclose(file);
}

/* Writes a script that the doctor takes for the daemon's program. */
static void put_program(fake *f, const char *commands)
{
    char text[1024];

    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", commands);
    put(f, "/paramd", text);
    snprintf(f->program, sizeof f->program, "%s/paramd", f->folder);
    assert_int_equal(chmod(f->program, 0700), 0);
    f->machine.program = f->program;
}

static void expect(const pd_finding *finding, pd_health health, const char *found, const char *advice)
{
    if (finding->health == health && strstr(finding->found, found) != NULL && strstr(finding->advice, advice) != NULL)
        return;
    fail_msg("%s: %s -> %s", pd_health_name(finding->health), finding->found, finding->advice);
}

/* Runs one check. It must find this, and advise that. */
static void check(fake *f, void (*run)(const pd_machine *, pd_finding *), pd_health health, const char *found,
                  const char *advice)
{
    pd_finding finding = { 0 };

    run(&f->machine, &finding);
    expect(&finding, health, found, advice);
    if (health == PD_HEALTH_OK) assert_string_equal(finding.advice, "");
}

TEST(a_grant_of_whole_processors_is_well)
{
    fake f = fake_begin();

    put(&f, "/proc/self/cgroup", "0::/system.slice/paramd.service\n");
    put(&f, "/sys/fs/cgroup/system.slice/paramd.service/cpu.max", "max 100000\n");
    put(&f, "/sys/fs/cgroup/system.slice/cpu.max", "200000 100000\n");
    check(&f, pd_check_processors, PD_HEALTH_OK, "control group grants 2.00", "");
    fake_end(&f);
}

TEST(a_grant_of_a_half_processor_is_warned_of)
{
    fake f = fake_begin();

    put(&f, "/proc/self/cgroup", "0::/\n");
    put(&f, "/sys/fs/cgroup/cpu.max", "50000 100000\n");
    check(&f, pd_check_processors, PD_HEALTH_WARN, "grants 0.50", "grant 1.");
    fake_end(&f);
}

TEST(a_group_that_was_stopped_is_warned_of)
{
    fake f = fake_begin();

    put(&f, "/proc/self/cgroup", "5:cpuset:/\n3:cpu,cpuacct:/box\n");
    put(&f, "/sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "400000\n");
    put(&f, "/sys/fs/cgroup/cpu/box/cpu.stat", "nr_periods 90\nnr_throttled 7\nthrottled_time 1\n");
    check(&f, pd_check_processors, PD_HEALTH_WARN, "grants 4.00, stopped in 7 periods", "CPUQuota=");
    fake_end(&f);
}

/* Writes a machine of two nodes, whose second one has no processor that we may use. */
static void put_nodes(fake *f, const char *first, const char *second)
{
    put(f, "/sys/devices/system/node/online", "0-1\n");
    put(f, "/sys/devices/system/node/node0/cpulist", first);
    put(f, "/sys/devices/system/node/node1/cpulist", second);
}

TEST(more_movers_than_processors_is_warned_of)
{
    fake f = fake_begin();

    put(&f, "/proc/self/cgroup", "0::/\n");
    f.machine.settings = (char *)"[threads]\nmovers = 64\n";
    check(&f, pd_check_processors, PD_HEALTH_WARN, "64 movers", "a quarter of the processors");
    f.machine.settings = (char *)"movers = 0\n";
    check(&f, pd_check_processors, PD_HEALTH_OK, ", 0 movers", "");
    fake_end(&f);
}

TEST(numa_off_on_a_machine_of_two_nodes_is_warned_of)
{
    fake f = fake_begin();
    char first[16], rest[32];
    cpu_set_t set;
    int cpu = 0;

    assert_int_equal(sched_getaffinity(0, sizeof set, &set), 0);
    if (CPU_COUNT(&set) < 2) skip();
    while (!CPU_ISSET(cpu, &set)) cpu++;
    snprintf(first, sizeof first, "%d\n", cpu);
    snprintf(rest, sizeof rest, "%d-1023\n", cpu + 1);
    put_nodes(&f, first, rest);
    check(&f, pd_check_numa, PD_HEALTH_OK, "of 2", "");
    f.machine.settings = (char *)"# numa\nnuma = off\n";
    check(&f, pd_check_numa, PD_HEALTH_WARN, "of 2", "threads.numa = auto");
    fake_end(&f);
}

TEST(enough_memory_is_well)
{
    fake f = fake_begin();

    put(&f, "/proc/self/cgroup", "0::/a/b\n");
    put(&f, "/proc/meminfo", "MemTotal:       16777216 kB\nMemFree: 1 kB\nMemAvailable:    8388608 kB\n");
    check(&f, pd_check_memory, PD_HEALTH_OK, "16.0 GiB, 8.0 GiB free", "");
    put(&f, "/sys/fs/cgroup/a/memory.max", "4294967296\n");
    check(&f, pd_check_memory, PD_HEALTH_OK, "control group allows 4.0 GiB", "");
    fake_end(&f);
}

TEST(a_small_limit_of_memory_is_warned_of)
{
    fake f = fake_begin();

    put(&f, "/proc/self/cgroup", "9:memory:/box\n");
    put(&f, "/proc/meminfo", "MemTotal:       16777216 kB\nMemAvailable:    8388608 kB\n");
    put(&f, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "536870912\n");
    check(&f, pd_check_memory, PD_HEALTH_WARN, "control group allows 512 MiB", "MemoryMax=");
    put(&f, "/sys/fs/cgroup/memory/box/memory.limit_in_bytes", "9223372036854771712\n");
    put(&f, "/proc/sys/vm/overcommit_memory", "2\n");
    check(&f, pd_check_memory, PD_HEALTH_WARN, "8.0 GiB free", "vm.overcommit_memory");
    fake_end(&f);
}

#define PAGES "/sys/kernel/mm/transparent_hugepage/"

TEST(huge_pages_that_never_come_are_warned_of)
{
    fake f = fake_begin();

    put(&f, PAGES "enabled", "always [madvise] never\n");
    put(&f, PAGES "shmem_enabled", "always within_size [advise] never deny force\n");
    check(&f, pd_check_huge_pages, PD_HEALTH_OK, "madvise; for shared memory advise", "");
    put(&f, PAGES "shmem_enabled", "always within_size advise [never] deny force\n");
    check(&f, pd_check_huge_pages, PD_HEALTH_WARN, "never", "echo advise");
    f.machine.settings = (char *)"shared_memory = no\n";
    check(&f, pd_check_huge_pages, PD_HEALTH_OK, "never", "");
    put(&f, PAGES "enabled", "always madvise [never]\n");
    check(&f, pd_check_huge_pages, PD_HEALTH_WARN, "never", "echo madvise");
    fake_end(&f);
}

TEST(few_descriptors_are_warned_of)
{
    fake f = fake_begin();
    struct rlimit before, few;

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){ .rlim_cur = 256, .rlim_max = before.rlim_max };
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    check(&f, pd_check_descriptors, PD_HEALTH_WARN, "256 for 4096 connections", "ulimit -n 4160");
    f.machine.settings = (char *)"max_connections = 100\n";
    check(&f, pd_check_descriptors, PD_HEALTH_OK, "256 for 100 connections", "");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(the_program_that_is_missing_is_a_failure)
{
    fake f = fake_begin();

    check(&f, pd_check_program, PD_HEALTH_FAIL, "no program paramd", "Install");
    check(&f, pd_check_configuration, PD_HEALTH_OK, "not checked", "");
}

TEST(a_program_of_this_version_is_well)
{
    fake f = fake_begin();

    put_program(&f, "printf 'paramd " PD_VERSION "\\nCPU avx2 (newest: avx2)\\n"
                    "BLAS core Haswell (OpenBLAS, OpenMP)\\n'");
    check(&f, pd_check_program, PD_HEALTH_OK, "paramd " PD_VERSION ", CPU avx2", "");
    check(&f, pd_check_blas, PD_HEALTH_OK, "Haswell (OpenBLAS, OpenMP)", "");
    fake_end(&f);
}

TEST(another_version_and_another_blas_are_warned_of)
{
    fake f = fake_begin();

    put_program(&f, "printf 'paramd 0.0.7\\nBLAS core Prescott (not the OpenMP flavour of OpenBLAS)\\n"
                    "BLAS warning: this CPU has AVX2\\n'");
    check(&f, pd_check_program, PD_HEALTH_WARN, "paramd 0.0.7", "paramctl is version " PD_VERSION);
    check(&f, pd_check_blas, PD_HEALTH_WARN, "Prescott", "this CPU has AVX2.");
    check(&f, pd_check_blas, PD_HEALTH_WARN, "Prescott", "libopenblas0-openmp");
    fake_end(&f);
}

TEST(a_program_that_cannot_run_is_a_failure)
{
    fake f = fake_begin();

    put_program(&f, "echo 'paramd: error while loading shared libraries: libuv.so.1'; exit 127");
    check(&f, pd_check_program, PD_HEALTH_FAIL, "libuv.so.1", "Run this command");
    fake_end(&f);
}

TEST(a_library_that_is_missing_is_a_failure)
{
    char text[] = "\tlinux-vdso.so.1 (0x7)\n\tlibuv.so.1 => not found\n\tlibc.so.6 => /lib/libc.so.6 (0x7)\n"
                  "\tlibsh.so => /bin/sh (0x7)\n\t/lib64/ld-linux-x86-64.so.2 (0x7)\n";
    pd_finding finding = { 0 };

    pd_libraries_read(text, &finding);
    expect(&finding, PD_HEALTH_FAIL, "libuv.so.1 is missing, ", "Install the package that has libuv.so.1.");
    assert_null(strstr(finding.found, "libc"));
    assert_null(strstr(finding.found, "vdso"));
}

TEST(a_wrong_configuration_is_a_failure_that_names_the_line)
{
    fake f = fake_begin();

    put_program(&f, "case $* in *wrong*) echo 'paramd: wrong.conf:3: no key lissten'; exit 2 ;; esac");
    check(&f, pd_check_configuration, PD_HEALTH_OK, "defaults apply", "");
    f.machine.config = "right.conf";
    check(&f, pd_check_configuration, PD_HEALTH_OK, "right.conf", "");
    f.machine.config = "wrong.conf";
    check(&f, pd_check_configuration, PD_HEALTH_FAIL, "wrong.conf:3", "--print-config");
    fake_end(&f);
}

TEST(output_that_finds_no_room_is_cut)
{
    char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)"yes | head -c 100000; exit 5", NULL }, text[11];
    char *nothing[] = { (char *)"/nothing", NULL };

    assert_int_equal(pd_run_program(argv, NULL, PD_RUN_MS, text, sizeof text), 5);
    assert_string_equal(text, "y\ny\ny\ny\ny\n");
    assert_int_equal(pd_run_program(nothing, NULL, PD_RUN_MS, text, sizeof text), PD_RUN_FAILED);
    assert_string_equal(text, "");
}

TEST(a_program_that_does_not_end_is_killed)
{
    static const char *const scripts[] = { "exec sleep 1000", "exec > /dev/null 2>&1; exec sleep 1000" };
    char text[16];

    for (int i = 0; i < 2; i++) {
        char *argv[] = { (char *)"/bin/sh", (char *)"-c", (char *)scripts[i], NULL };
        assert_int_equal(pd_run_program(argv, NULL, 50, text, sizeof text), PD_RUN_LATE);
        assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* nothing of it is left */
    }
}

TEST(the_disk_of_the_directory_is_measured)
{
    fake f = fake_begin();
    pd_finding finding = { 0 };

    put(&f, "/state/file", "");
    f.machine.state = f.folder;
    pd_check_disk(&f.machine, &finding);
    assert_int_not_equal(finding.health, PD_HEALTH_FAIL);
    assert_non_null(strstr(finding.found, "B/s, a small write is durable after"));
    f.machine.state = "/proc/nothing";
    check(&f, pd_check_disk, PD_HEALTH_FAIL, "/proc/nothing: No such file", "correct the directory");
    f.machine.state = NULL;
    f.machine.settings = (char *)"state_dir = \n";
    check(&f, pd_check_disk, PD_HEALTH_OK, "no directory for checkpoints", "");
    fake_end(&f);
}

TEST(the_loopback_interface_is_measured)
{
    fake f = fake_begin();
    pd_finding finding = { 0 };

    pd_check_loopback(&f.machine, &finding);
    assert_int_not_equal(finding.health, PD_HEALTH_FAIL);
    assert_non_null(strstr(finding.found, "B/s"));
    assert_true(strtod(finding.found, NULL) > 0);
}

static void judge(fake *f, double trip_s, pd_health health, const char *found, const char *advice)
{
    pd_finding finding = { 0 };

    pd_judge_network(&f->machine, trip_s, &finding);
    expect(&finding, health, found, advice);
    if (health == PD_HEALTH_OK) assert_string_equal(finding.advice, "");
}

TEST(buffers_that_are_small_for_the_distance_are_warned_of)
{
    fake f = fake_begin();

    put(&f, "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
    put(&f, "/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
    judge(&f, 0, PD_HEALTH_OK, "over a round trip of 50 ms: buffers let one connection carry about 336 Mbit/s", "");
    judge(&f, 0.05, PD_HEALTH_WARN, "round trip of 50 ms: buffers let one connection carry about 336 Mbit/s",
          "sysctl -w net.ipv4.tcp_rmem='4096 131072 134217728' net.ipv4.tcp_wmem='4096 16384 134217728'");
    judge(&f, 0.0002, PD_HEALTH_OK, "round trip of 0.2 ms", "");
    judge(&f, 10, PD_HEALTH_WARN, "(tcp_rmem 6.0 MiB, tcp_wmem 4.0 MiB)", "536870912");
    put(&f, "/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t134217728\n");
    judge(&f, 0.05, PD_HEALTH_WARN, "about 503 Mbit/s", "tcp_wmem");
    put(&f, "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t134217728\n");
    judge(&f, 0.05, PD_HEALTH_OK, "about 11 Gbit/s", "");
    fake_end(&f);
}

TEST(the_congestion_control_in_use_is_named)
{
    fake f = fake_begin();

    put(&f, "/proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t6291456\n");
    put(&f, "/proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
    put(&f, "/proc/sys/net/ipv4/tcp_congestion_control", "cubic\n");
    judge(&f, 0, PD_HEALTH_OK, "tcp_wmem 4.0 MiB), congestion control cubic", "");
    f.machine.settings = (char *)"tcp_congestion = bbr\n";
    judge(&f, 0, PD_HEALTH_OK, "congestion control bbr (server.tcp_congestion)", "");
    fake_end(&f);
}

TEST(an_openssl_that_encrypts_slowly_is_named_with_a_faster_one)
{
    pd_finding old = { 0 }, new = { 0 };

    pd_judge_tls(&(pd_tls_version){ 3, 0, 19 }, &old);
    expect(&old, PD_HEALTH_OK, "OpenSSL 3.0.19", "OpenSSL 3.5");
    pd_judge_tls(&(pd_tls_version){ 3, 5, 0 }, &new);
    expect(&new, PD_HEALTH_OK, "OpenSSL 3.5.0", "");
    assert_string_equal(new.advice, "");
}

TEST(buffers_of_unknown_size_are_no_failure)
{
    fake f = fake_begin();

    put(&f, "/proc/sys/net/ipv4/tcp_rmem", "nothing\n");
    judge(&f, 0.05, PD_HEALTH_OK, "unknown", "");
    fake_end(&f);
}

TEST(a_slow_clock_source_is_warned_of)
{
    fake f = fake_begin();

    put(&f, "/sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n");
    check(&f, pd_check_clock, PD_HEALTH_WARN, "hpet, resolution", "clock source tsc");
    fake_end(&f);
}

TEST(a_daemon_that_is_named_but_not_there_is_a_failure)
{
    fake f = fake_begin();

    check(&f, pd_check_daemon, PD_HEALTH_OK, "not asked", "");
    f.machine.server = "unix:///tmp/paramd-no-socket-here";
    f.machine.timeout = 0.2;
    check(&f, pd_check_daemon, PD_HEALTH_FAIL, "paramd-no-socket-here", "Start it");
}

static pd_finding compared(const pd_shard_facts *at, size_t n)
{
    pd_finding out = { 0 };

    pd_compare_shards(at, n, &out);
    return out;
}

TEST(daemons_of_one_kind_are_fine)
{
    const pd_shard_facts at[] = { { 0, "paramd 1", "avx2", "Haswell", "4096 KiB", 0.2 },
                                  { 1, "paramd 1", "avx2", "Haswell", "4096 KiB", -0.3 },
                                  { 2, "paramd 1", "avx2", "Haswell", "4096 KiB", NAN } };
    pd_finding found = compared(at, 3);

    assert_int_equal(found.health, PD_HEALTH_OK);
    assert_string_equal(found.found, "3 daemons of paramd 1, CPU avx2, BLAS core Haswell, chunks of 4096 KiB");
}

TEST(daemons_that_differ_are_named)
{
    const pd_shard_facts versions[] = { { 0, "paramd 1", "avx2", "Haswell", "4096 KiB", 0 },
                                        { 1, "paramd 2", "avx512", "SkylakeX", "4096 KiB", 0 } };
    const pd_shard_facts chunks[] = { { 0, "paramd 1", "avx2", "Haswell", "4096 KiB", 0 },
                                      { 3, "paramd 1", "avx2", "Haswell", "1024 KiB", 0 } };
    const pd_shard_facts clocks[] = { { 0, "paramd 1", "avx2", "Haswell", "4096 KiB", -2 },
                                      { 1, "paramd 1", "avx2", "Haswell", "4096 KiB", 2.5 } };
    pd_finding found = compared(versions, 2);

    assert_int_equal(found.health, PD_HEALTH_WARN);
    assert_string_equal(found.found,
                        "version: paramd 1 on shard 0, paramd 2 on shard 1; BLAS core: Haswell on shard 0, "
                        "SkylakeX on shard 1; CPU: avx2 on shard 0, avx512 on shard 1");
    found = compared(chunks, 2);
    assert_int_equal(found.health, PD_HEALTH_FAIL);
    assert_non_null(strstr(found.found, "chunk_bytes: 4096 KiB on shard 0, 1024 KiB on shard 3"));
    found = compared(clocks, 2);
    assert_int_equal(found.health, PD_HEALTH_WARN);
    assert_non_null(strstr(found.found, "the clock of shard 1 is 4.5 s ahead of that of shard 0"));
}
