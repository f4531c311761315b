/* top_detail.c - describes one job in the lines below the table of `paramctl top'. */
#include "top_detail.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

#include "format.h"
#include "text.h"

static void add(pd_top_detail *out, bool alarm, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void add(pd_top_detail *out, bool alarm, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(out->line[out->n], PD_TOP_LINE, format, args);
    va_end(args);
    pd_text_mend(out->line[out->n]);
    out->alarm[out->n++] = alarm;
}

static void add_head(pd_top_detail *out, const pd_top_job *job)
{
    add(out, false, "job %.60s: %.40s, %s, %u of %u workers, step %" PRIu64, job->name,
        job->optimizer[0] != '\0' ? job->optimizer : "no optimizer yet", job->state, job->connected, job->world_size,
        job->step);
}

static void add_progress(pd_top_detail *out, const pd_top_job *job)
{
    char loss[PD_CELL] = "none", norm[PD_CELL] = "unknown", speed[PD_CELL];

    if (job->has_loss) snprintf(loss, sizeof loss, "%.5g", job->loss);
    if (job->norm > 0) snprintf(norm, sizeof norm, "%.4g", job->norm);
    add(out, job->has_loss && !isfinite(job->loss),
        "progress    %s steps/s, loss %s, gradient norm %s, %" PRIu64 " steps clipped",
        pd_speed_text(speed, job->speed), loss, norm, job->clipped);
}

static void add_times(pd_top_detail *out, const pd_top_job *job)
{
    static const char *const names[PD_TOP_PHASES] = { "wait", "sum", "step", "publish" };
    char line[PD_TOP_LINE], text[PD_CELL];
    size_t used = 0;

    if (job->total.steps == 0) return;
    line[0] = '\0';
    for (int i = 0; i < PD_TOP_PHASES; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%s%s %s", i > 0 ? ", " : "", names[i],
                                 pd_seconds_text(text, job->phase[i]));
    add(out, false, "a step      %s", line);
}

static void add_waits(pd_top_detail *out, const pd_top_job *job)
{
    char since[PD_CELL];

    if (job->waits_for[0] == '\0')
        add(out, false, "waits for   nobody");
    else if (job->waits_ms == 0)
        add(out, false, "waits for   %.60s", job->waits_for);
    else
        add(out, false, "waits for   %.60s, %s after the first contribution", job->waits_for,
            pd_duration_text(since, job->waits_ms));
}

static void add_late(pd_top_detail *out, const pd_top_late *late, size_t n)
{
    char line[PD_TOP_LINE], text[PD_CELL];
    size_t used = 0;

    if (n == 0) return;
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(line + used, sizeof line - used, "%srank %u %.0f %% by %s", i > 0 ? ", " : "",
                                 late[i].rank, 100 * late[i].share, pd_seconds_text(text, late[i].by_s));
    add(out, false, "last        %s", line);
}

static void add_roots(pd_top_detail *out, const pd_top_job *job)
{
    if (!job->has_roots) return;
    add(out, job->roots_failing > 0,
        "roots       %" PRIu64 " at work, oldest %" PRIu64 " steps, %" PRIu64 " failing, %" PRIu64 " of %" PRIu64
        " failed, %" PRIu64 " waits",
        job->roots_behind, job->root_age, job->roots_failing, job->roots_failed, job->roots_due, job->root_waits);
}

static void add_memory(pd_top_detail *out, const pd_top_job *job)
{
    char all[PD_CELL], weights[PD_CELL], state[PD_CELL], held[PD_CELL];

    add(out, false, "memory      %s: weights %s, state %s, in flight %s", pd_bytes_text(all, job->memory),
        pd_bytes_text(weights, job->weights), pd_bytes_text(state, job->state_bytes), pd_bytes_text(held, job->held));
}

static void add_traffic(pd_top_detail *out, const pd_top_job *job)
{
    char in[PD_CELL], sent[PD_CELL];

    add(out, false, "traffic     %s/s in, %s/s out", pd_bytes_text(in, (uint64_t)job->in_per_s),
        pd_bytes_text(sent, (uint64_t)job->out_per_s));
}

static void add_checkpoint(pd_top_detail *out, const pd_top_job *job)
{
    char age[PD_CELL], bytes[PD_CELL];

    if (job->keep_failing)
        add(out, true, "checkpoint  failing: %.160s", job->keep_error);
    else if (job->durable_step == 0)
        add(out, false, "checkpoint  none");
    else
        add(out, false, "checkpoint  step %" PRIu64 ", %s ago, %s", job->durable_step,
            pd_duration_text(age, job->checkpoint_age_ms), pd_bytes_text(bytes, job->checkpoint_bytes));
}

void pd_top_describe(pd_top_detail *out, const pd_top_job *job, const pd_top_late *late, size_t n_late)
{
    out->n = 0;
    add_head(out, job);
    add_progress(out, job);
    add_times(out, job);
    add_waits(out, job);
    add_late(out, late, n_late);
    add_roots(out, job);
    add_memory(out, job);
    add_traffic(out, job);
    add_checkpoint(out, job);
}
