/* outrun.c - compares what a job writes to the disk with the speed of the disk. */
#include "outrun.h"

#include "plan_bytes.h"
#include "speed.h"

#include <inttypes.h>

static const double MIB = 1048576;

/* Returns how many seconds the disk takes for so many bytes. */
static double seconds(const pd_job *job, uint64_t bytes)
{
    return (double)bytes / (double)job->steps.config->disk_speed;
}

uint64_t pd_outrun_bytes(const pd_plan *plan)
{
    int64_t image = pd_plan_image_bytes(plan);

    return (uint64_t)plan->elements * sizeof(float) + (image > 0 ? (uint64_t)image : 0);
}

void pd_outrun_begin(pd_job *job, uint64_t checkpoint_bytes, uint64_t entry_bytes)
{
    pd_log_facts facts = { .job = job->steps.name };
    double speed = (double)job->steps.config->disk_speed;

    if (!job->checkpointing.durable || job->steps.config->disk_speed == 0) return;
    job->checkpointing.size = checkpoint_bytes;
    pd_say(job->steps.outbox, PD_SAY_INFO, facts,
           "a checkpoint has %.1f MiB, which the disk writes in %.2f s (%.0f MiB/s)", (double)checkpoint_bytes / MIB,
           seconds(job, checkpoint_bytes), speed / MIB);
    if (!job->checkpointing.log.wanted) return;
    job->checkpointing.entry_size = entry_bytes;
    pd_say(job->steps.outbox, PD_SAY_INFO, facts,
           "an entry of its log has %.1f MiB, for which the disk takes %.3f s of each step", (double)entry_bytes / MIB,
           seconds(job, entry_bytes));
}

/* Logs a warning of checkpoints. Returns whether it did. */
static bool warn_of_checkpoints(pd_job *job, double steps_per_s)
{
    const pd_checkpoint_policy *checkpointing = &job->checkpointing;
    double steps = steps_per_s * seconds(job, checkpointing->size);

    if (checkpointing->every == 0 || steps <= (double)checkpointing->every) return false;
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name },
           "the job outruns the disk: a checkpoint of %.1f MiB takes it %.2f s, in which the job takes %.0f steps, but "
           "checkpoint_every is %" PRIu64 ": some checkpoints will be left out",
           (double)checkpointing->size / MIB, seconds(job, checkpointing->size), steps, checkpointing->every);
    return true;
}

static bool warn_of_entries(pd_job *job, double steps_per_s)
{
    double busy = steps_per_s * seconds(job, job->checkpointing.entry_size);

    if (busy <= 0.5) return false;
    pd_say(job->steps.outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job->steps.name },
           "the log takes %.0f %% of the disk: entries of %.1f MiB at %.1f steps a second. durability = checkpoint "
           "writes less",
           100 * busy, (double)job->checkpointing.entry_size / MIB, steps_per_s);
    return true;
}

void pd_outrun_look(pd_job *job, uint64_t now_ns)
{
    double speed = pd_speed_at(&job->speed, now_ns);

    if (job->checkpointing.outrun || job->checkpointing.size == 0 || speed <= 0) return;
    job->checkpointing.outrun = warn_of_checkpoints(job, speed);
    if (job->checkpointing.entry_size > 0) job->checkpointing.outrun |= warn_of_entries(job, speed);
}
