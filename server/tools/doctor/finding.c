/* finding.c - collects what one check of the doctor has found. */
#include "finding.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *pd_health_name(pd_health health)
{
    static const char *const names[] = { [PD_HEALTH_OK] = "ok", [PD_HEALTH_WARN] = "warn", [PD_HEALTH_FAIL] = "fail" };

    return names[health];
}

/* Appends formatted text, cut to the size of the buffer. */
static void append(char *text, size_t size, const char *format, va_list args)
{
    size_t used = strlen(text);

    vsnprintf(text + used, size - used, format, args);
}

void pd_found(pd_finding *finding, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    append(finding->found, sizeof finding->found, format, args);
    va_end(args);
}

void pd_advise(pd_finding *finding, pd_health health, const char *format, ...)
{
    size_t used = strlen(finding->advice);
    va_list args;

    if (health > finding->health) finding->health = health;
    snprintf(finding->advice + used, sizeof finding->advice - used, "%s", used > 0 ? " " : "");
    va_start(args, format);
    append(finding->advice, sizeof finding->advice, format, args);
    va_end(args);
}
