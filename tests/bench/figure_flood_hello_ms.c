/* flood_hello_ms: how long a client waits for the answer to its Hello while another client floods the daemon. The
 * figure is the 99th percentile of the time from connect to the answer. The other client sends 6,000 List and 4,000
 * Status at once, beside a job of 20,000 parameters. The flood is repeated until there are enough Hellos. */
#include "figure.h"
#include "flood.h"

enum { HELLOS = 1000, MOST_FLOODS = 20 };

int main(void)
{
    pd_child daemon;
    double *ms = figure_alloc(HELLOS * sizeof *ms), whole, longest = 0;
    size_t n = 0;
    int job, floods = 0;

    figure_daemon(&daemon);
    job = flood_job(daemon.url);
    for (; n < HELLOS && floods < MOST_FLOODS; floods++) {
        n += flood_run(daemon.url, ms + n, HELLOS - n, &whole);
        if (whole > longest) longest = whole;
    }
    double value = figure_quantile(ms, n, 0.99);
    printf("%.2f\tmedian %.2f, most %.2f ms of %zu Hellos during %d floods, the longest of which took %.0f ms\n", value,
           figure_quantile(ms, n, 0.5), figure_quantile(ms, n, 1), n, floods, longest);
    close(job);
    pd_child_stop(&daemon);
    free(ms);
    return 0;
}
