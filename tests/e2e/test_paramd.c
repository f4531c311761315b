/* Tests the program paramd before it serves: configuration, exit codes, and the configuration file that is
 * installed. */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "test.h"
#include "blascore.h"
#include "cpu.h"

enum { MOST = 65536 };

/* Runs paramd with these arguments in a shell. `text` receives its output and errors. Returns its exit status. */
static int run(const char *arguments, char *text)
{
    char command[1024];
    const char *bin = getenv("PARAMD_BIN");
    FILE *pipe;
    size_t n;
    int status;

    assert_non_null(bin);
    snprintf(command, sizeof command, "%s/paramd %s 2>&1", bin, arguments);
    pipe = popen(command, "r");
    assert_non_null(pipe);
    n = fread(text, 1, MOST - 1, pipe);
    text[n] = '\0';
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void expect(const char *text, const char *part)
{
    if (strstr(text, part) == NULL) fail_msg("\"%s\" does not say \"%s\"", text, part);
}

/* The installed paramd.conf equals the output of --print-config, because the build generates it so
 * (deploy/CMakeLists.txt). */
TEST(the_shipped_file_is_what_the_daemon_prints)
{
    static char printed[MOST], shipped[MOST];
    char path[1024];
    FILE *file;

    snprintf(path, sizeof path, "%s/../deploy/paramd.conf", getenv("PARAMD_BIN"));
    file = fopen(path, "r");
    assert_non_null(file);
    shipped[fread(shipped, 1, MOST - 1, file)] = '\0';
    fclose(file);
    assert_int_equal(run("--print-config", printed), 0);
    assert_string_equal(printed, shipped);
}

TEST(the_shipped_file_is_valid)
{
    static char text[MOST];

    assert_int_equal(run("--check-config --config \"$PARAMD_BIN/../deploy/paramd.conf\"", text), 0);
    expect(text, "fine");
}

TEST(what_is_printed_with_flags_has_their_values)
{
    static char text[MOST];

    assert_int_equal(run("--print-config --listen '*:7070' --insecure", text), 0);
    expect(text, "\nlisten = *:7070\n");
    expect(text, "\ninsecure = yes\n");
}

TEST(a_faulty_file_ends_the_program_with_its_line)
{
    static char text[MOST];
    char path[] = "/tmp/config_XXXXXX", arguments[128];
    FILE *file = fdopen(mkstemp(path), "w");

    fputs("[server]\nlisten = 127.0.0.1:0\nmax_conections = 5\n", file);
    fclose(file);
    snprintf(arguments, sizeof arguments, "--config %s", path);
    assert_int_equal(run(arguments, text), 2);
    unlink(path);
    expect(text, ":3: ");
    expect(text, "max_connections");
}

TEST(refuses_to_listen_where_strangers_are)
{
    static char text[MOST];

    assert_int_equal(run("--listen 0.0.0.0:0", text), 2);
    expect(text, "refusing to listen on 0.0.0.0:0");
    expect(text, "server.insecure = yes");
    assert_int_equal(run("--listen '[::]:0'", text), 2);
    expect(text, "refusing to listen on");
}

TEST(a_wrong_command_line_exits_2_and_a_busy_address_1)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    char arguments[32];
    static char text[MOST];

    assert_int_equal(run("--lisen :0", text), 2);
    expect(text, "did you mean --listen?");
    assert_int_equal(run("--port 7411 --listen :0", text), 2);
    assert_int_equal(bind(fd, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(fd, 1), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&address, &size), 0);
    snprintf(arguments, sizeof arguments, "--port %d", ntohs(address.sin_port));
    assert_int_equal(run(arguments, text), 1);
    expect(text, "Address already in use");
    close(fd);
}

TEST(an_unknown_variable_ends_the_program)
{
    static char text[MOST];

    setenv("PARAMD_LISEN", ":0", 1);
    assert_int_equal(run("--check-config", text), 2);
    unsetenv("PARAMD_LISEN");
    expect(text, "PARAMD_LISEN: there is no such variable; the nearest is PARAMD_LISTEN");
}

TEST(check_config_refuses_what_the_start_refuses)
{
    static const char *const wrong[] = { "--listen 127.0.0.1:65536", "--listen localhost", "--listen '*:0'",
                                         "--chunk-bytes 8195",       "--max-payload 4k",   "--heartbeat-timeout 1s" };
    static char checked[MOST], started[MOST];
    char arguments[128];

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        snprintf(arguments, sizeof arguments, "--check-config %s", wrong[i]);
        assert_int_equal(run(arguments, checked), 2);
        assert_int_equal(run(wrong[i], started), 2);
        assert_string_equal(checked, started);
    }
}

TEST(says_what_it_is)
{
    static char text[MOST];

    assert_int_equal(run("--version", text), 0);
    expect(text, "paramd " PD_VERSION);
    expect(text, "protocol 1");
    expect(text, "BLAS core ");
}

TEST(output_that_cannot_be_written_is_a_failure)
{
    static const char *const modes[] = { "--print-config", "--help", "--version", "--check-config" };
    static char text[MOST];
    char arguments[64];

    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++) {
        snprintf(arguments, sizeof arguments, "%s > /dev/full", modes[i]);
        assert_int_equal(run(arguments, text), 1);
    }
}

TEST(help_lists_every_section)
{
    static char text[MOST];

    assert_int_equal(run("--help", text), 0);
    expect(text, "--server-listen");
    expect(text, "--limits-ingest-bytes");
    expect(text, "--threads-pool-threads");
    expect(text, "--log-format");
    expect(text, "--job-aggregate");
}

/* Lines with a flag may be longer: the flag and its list of values stay on one line, as for --aggregate. */
TEST(help_fits_a_narrow_terminal)
{
    static char text[MOST];

    assert_int_equal(run("--help", text), 0);
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
        if (strlen(line) > 80 && strstr(line, "--") == NULL) fail_msg("longer than 80 characters: %s", line);
}

TEST(chooses_good_blas_kernels_where_nobody_else_has_chosen)
{
    static char text[MOST];
    char core[64] = "", *before = getenv("OPENBLAS_CORETYPE");

    before = before != NULL ? strdup(before) : NULL;
    unsetenv("OPENBLAS_CORETYPE");
    assert_int_equal(run("--version", text), 0);
    if (before != NULL) setenv("OPENBLAS_CORETYPE", before, 1);
    free(before);
    assert_int_equal(sscanf(strstr(text, "BLAS core "), "BLAS core %63s", core), 1);
    assert_null(pd_blas_judge(core, pd_cpu_newest() >= PD_CPU_AVX2, pd_cpu_newest() == PD_CPU_AVX512));
}
