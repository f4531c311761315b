/* check_clock.c - checks clocks: how fine and how cheap they are, and whether the time of day is right. */
#include <stdint.h>
#include <string.h>
#include <sys/timex.h>
#include <time.h>

#include "checks.h"

enum { READS = 2000 };

#define COSTLY_NS 1000 /* a read of the clock that takes longer enters the kernel, or even a device */

static int64_t ns_of(const struct timespec *t)
{
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

/* Returns the mean time of a read of the monotonic clock, in ns. */
static int64_t cost_of_read(void)
{
    struct timespec first, last;

    clock_gettime(CLOCK_MONOTONIC, &first);
    for (int i = 0; i < READS; i++) clock_gettime(CLOCK_MONOTONIC, &last);
    return (ns_of(&last) - ns_of(&first)) / READS;
}

/* Checks whether a daemon of the system sets the time of day by the network. */
static void check_time_of_day(pd_finding *out)
{
    struct timex state = { .modes = 0 };
    int rc = adjtimex(&state);

    if (rc < 0) {
        pd_found(out, ", synchronization unknown");
        return;
    }
    if (rc != TIME_ERROR && (state.status & STA_UNSYNC) == 0) {
        pd_found(out, ", synchronized");
        return;
    }
    pd_found(out, ", not synchronized");
    pd_advise(out, PD_HEALTH_WARN,
              "Certificates and the times in logs need the time of day: install "
              "systemd-timesyncd or chrony, or ignore this where the host sets the clock.");
}

void pd_check_clock(const pd_machine *machine, pd_finding *out)
{
    char source[64] = "unknown";
    struct timespec resolution = { .tv_nsec = 1 };
    int64_t cost = cost_of_read();

    clock_getres(CLOCK_MONOTONIC, &resolution);
    pd_machine_text(machine, "/sys/devices/system/clocksource/clocksource0/current_clocksource", source, sizeof source);
    source[strcspn(source, "\n")] = '\0';
    pd_found(out, "%s, resolution %lld ns, %lld ns a read", source, (long long)ns_of(&resolution), (long long)cost);
    if (ns_of(&resolution) > 1000)
        pd_advise(out, PD_HEALTH_WARN,
                  "The clock is coarse, so figures of steps are too: enable high resolution timers.");
    if (cost > COSTLY_NS || strcmp(source, "hpet") == 0 || strcmp(source, "acpi_pm") == 0)
        pd_advise(out, PD_HEALTH_WARN,
                  "Reading the clock is slow: choose the clock source tsc or kvm-clock (kernel "
                  "parameter clocksource=).");
    check_time_of_day(out);
}
