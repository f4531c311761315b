/* members_image.c - the members of a job in its image: epoch, generation, groups, and who may not come back. */
#include "members_image.h"

#include <string.h>

/* The job's own fields in the image. */
typedef struct job_record {
    uint64_t epoch, generation, kicked[PD_KICKED];
    uint32_t n_kicked;
    bool over;
} job_record;

static const pd_field job_fields[] = { PD_FIELD(job_record, epoch),  PD_FIELD(job_record, generation),
                                       PD_FIELD(job_record, kicked), PD_FIELD(job_record, n_kicked),
                                       PD_FIELD(job_record, over),   { 0 } };
static const pd_table job_table = { "members", sizeof(job_record), job_fields };

/* The fields of one rank in the image. */
typedef struct rank_record {
    bool member, grouped;
    uint32_t group, mates;
} rank_record;

static const pd_field rank_fields[] = { PD_FIELD(rank_record, member),
                                        PD_FIELD(rank_record, grouped),
                                        PD_FIELD(rank_record, group),
                                        PD_FIELD_IN(rank_record, mates, 0, PD_MAX_WORLD),
                                        { 0 } };
static const pd_table rank_table = { "member", sizeof(rank_record), rank_fields };

bool pd_members_image_has(const pd_job *job)
{
    return job->steps.sets.open || job->saved.generation != 0 || job->saved.n_kicked > 0;
}

static void visit_job(pd_archive *archive, pd_job *job)
{
    job_record r = { .epoch = job->steps.epoch,
                     .generation = job->saved.generation,
                     .n_kicked = job->saved.n_kicked,
                     .over = job->saved.over };

    memcpy(r.kicked, job->saved.kicked, sizeof r.kicked);
    pd_archive_fields(archive, &job_table, &r);
    job->steps.epoch = r.epoch;
    job->saved.generation = r.generation;
    job->saved.n_kicked = r.n_kicked;
    job->saved.over = r.over;
    memcpy(job->saved.kicked, r.kicked, sizeof r.kicked);
}

static void visit_rank(pd_archive *archive, pd_job *job, uint32_t rank)
{
    pd_rank_saved *saved = &job->ranks[rank].saved;
    rank_record r = { pd_is_member(job, rank), saved->grouped, saved->group, saved->mates };

    pd_archive_fields(archive, &rank_table, &r);
    saved->grouped = r.grouped;
    saved->group = r.group;
    saved->mates = r.mates;
    if (r.member || !job->steps.sets.open)
        pd_rank_set_add(&job->steps.members, rank);
    else
        pd_rank_set_remove(&job->steps.members, rank);
}

void pd_members_image_visit(pd_archive *archive, pd_job *job, uint32_t ranks)
{
    if (pd_archive_is_reading(archive) ? !pd_archive_has_more(archive) : !pd_members_image_has(job)) return;
    pd_archive_enter(archive, "members");
    visit_job(archive, job);
    for (uint32_t r = 0; r < ranks; r++) visit_rank(archive, job, r);
    pd_archive_leave(archive);
}
