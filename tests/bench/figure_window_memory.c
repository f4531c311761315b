/* window_memory: how much memory a worker with a window needs beyond the gradients of the window's steps. One worker
 * pushes and pulls a model of 256 MiB for three times as many steps as its window has. The figure is its peak resident
 * memory, less what it had before the first step, less the bytes of gradients of the window's steps, in MiB. */

#include "bench_team.h"
#include "figure.h"

enum { WINDOW = 4 };

/* Returns a number of /proc/self/status in bytes. */
static double status_bytes(const char *field)
{
    char line[256];
    double kib = -1;
    FILE *status = fopen("/proc/self/status", "r");

    if (status == NULL) figure_stop("/proc/self/status cannot be read");
    while (kib < 0 && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, field, strlen(field)) == 0) sscanf(line + strlen(field), ": %lf", &kib);
    fclose(status);
    if (kib < 0) figure_stop("/proc/self/status has no %s", field);
    return kib * 1024;
}

int main(void)
{
    pd_child daemon;
    team_options options = { .job = "window", .workers = 1, .window = WINDOW };
    double gradients = 0, before, peak;
    team *worker;

    figure_daemon(&daemon);
    options.url = daemon.url;
    options.elements = figure_model(&options.n);
    for (size_t i = 0; i < options.n; i++) gradients += 4.0 * (double)options.elements[i];
    worker = team_start(&options);
    before = status_bytes("VmRSS");
    team_steps(worker, 3 * WINDOW, NULL);
    peak = status_bytes("VmHWM");
    printf("%.1f\tbefore the first step %.0f MiB, peak %.0f MiB, %d x %.0f MiB of gradients\n",
           (peak - before - WINDOW * gradients) / 1048576, before / 1048576, peak / 1048576, WINDOW,
           gradients / 1048576);
    team_end(worker);
    pd_child_stop(&daemon);
    return 0;
}
