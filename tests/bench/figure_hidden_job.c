/* hidden_job: whether somebody without a role for a job can tell from the time of an answer that the job exists. Asks
 * in turn about a job that exists and about one that does not, with names of the same length. The figure is the median
 * time of the first answers over that of the second: 1 means that nothing can be told. The note has both medians, and
 * how often the first of a pair took longer: half of the pairs, if nothing can be told.
 * Usage: figure_hidden_job list     by requests on one connection
 *        figure_hidden_job hello    by a Hello that wants to join the job, on a connection each */
#include "figure.h"
#include "wire.h"

#include <sys/socket.h>

#include "paramd/client.h"

enum { WARM = 200, PAIRS = 20000, PAIRS_OF_HELLOS = 5000 };

/* Who comes through the daemon's Unix socket makes the job; who comes over TCP is anyone, and may see other jobs. */
static const char roles[] = "user:* admin *\nanyone push mine-*\n";
static const char hidden[] = "other-1", absent[] = "other-2";

static void write_roles(const char *path)
{
    FILE *file = fopen(path, "we");

    if (file == NULL || fputs(roles, file) < 0 || fclose(file) != 0) figure_stop("%s cannot be written", path);
    setenv("PARAMD_ROLES", path, 1);
}

static pd_client *make_job(const char *url)
{
    pd_client_options options = {
        .urls = url, .job = hidden, .world_size = 1, .rules = (const char *[]){ "* sgd lr=1", NULL }, .quiet = true
    };
    pd_client_param param = { .name = "w", .shape = { 1, { 1 } } };
    pd_client *client;
    pd_error err;

    if (pd_client_open(&client, &options, &err) != PD_OK || pd_client_declare(client, &param, 1, &err) != PD_OK)
        figure_stop("%s", err.text);
    return client;
}

/* Reads an answer, which must be an error of this code. */
static void receive_error(int fd, int code)
{
    static pd_arena *arena;
    uint8_t bytes[PD_PREFIX_BYTES], header[PD_MAX_HEADER_BYTES];
    pd_prefix prefix;
    pd_error err = { 0 };

    if (arena == NULL && (arena = pd_arena_new(PD_ARENA_BUDGET)) == NULL) figure_stop("out of memory");
    if (recv(fd, bytes, sizeof bytes, MSG_WAITALL) != sizeof bytes) figure_stop("the daemon ended a connection");
    if (pd_prefix_read(&prefix, bytes, UINT64_MAX / 2, &err) != PD_OK) figure_stop("%s", err.text);
    if (recv(fd, header, prefix.header_bytes, MSG_WAITALL) != (ssize_t)prefix.header_bytes)
        figure_stop("the daemon ended a connection");
    pd_arena_reset(arena);
    pd_message_error(arena, header, prefix.header_bytes, &err, NULL);
    if ((prefix.flags & PD_FLAG_ERROR) == 0 || err.code != code)
        figure_stop("expected to be refused, got %s", err.text);
}

/* Returns how many microseconds the answer about a job takes. `fd`: a connection for requests; -1: by a Hello. */
static double ask(const char *url, int fd, const char *job)
{
    static uint64_t id = 1;
    Paramd__ListRequest list = PARAMD__LIST_REQUEST__INIT;
    double begun;

    list.what = PARAMD__LIST_KIND__LIST_PARAMS;
    list.job = (char *)job;
    if (fd >= 0) {
        begun = figure_ms();
        wire_ask(fd, PD_LIST, ++id, &list.base, 0);
        receive_error(fd, PD_NOT_FOUND);
        return 1e3 * (figure_ms() - begun);
    }
    fd = wire_connect(url);
    begun = figure_ms();
    wire_hello(fd, job, 0, 1, ++id);
    receive_error(fd, PD_PERMISSION_DENIED);
    begun = figure_ms() - begun;
    close(fd);
    return 1e3 * begun;
}

/* Measures pairs; every second one begins with the job that does not exist. Prints the figure. */
static void measure(const char *url, int fd, size_t pairs)
{
    double *there = figure_alloc(pairs * sizeof *there), *missing = figure_alloc(pairs * sizeof *missing), a, b;
    size_t longer = 0;

    for (size_t i = 0; i < WARM; i++) ask(url, fd, i % 2 == 0 ? hidden : absent);
    for (size_t i = 0; i < pairs; i++) {
        if (i % 2 == 0) there[i] = ask(url, fd, hidden);
        missing[i] = ask(url, fd, absent);
        if (i % 2 != 0) there[i] = ask(url, fd, hidden);
        longer += there[i] > missing[i];
    }
    a = figure_quantile(there, pairs, 0.5);
    b = figure_quantile(missing, pairs, 0.5);
    printf("%.4f\tmedians %.2f and %.2f microseconds of %zu pairs; the answer about the job that exists took longer in "
           "%.1f %% of them\n",
           a / b, a, b, pairs, 100.0 * (double)longer / (double)pairs);
    free(there);
    free(missing);
}

int main(int argc, char **argv)
{
    char folder[] = "/tmp/hidden_XXXXXX", path[64];
    bool by_hello = argc > 1 && strcmp(argv[1], "hello") == 0;
    pd_child daemon;
    pd_client *client;
    int fd = -1;

    figure_folder(folder);
    snprintf(path, sizeof path, "%s/roles", folder);
    write_roles(path);
    figure_daemon(&daemon);
    client = make_job(daemon.local);
    if (!by_hello) {
        fd = wire_connect(daemon.url);
        wire_hello(fd, "", 0, 0, 1);
        wire_receive(fd, NULL);
    }
    measure(daemon.url, fd, by_hello ? PAIRS_OF_HELLOS : PAIRS);
    if (fd >= 0) close(fd);
    pd_client_close(client);
    pd_child_stop(&daemon);
    figure_remove(folder);
    return 0;
}
