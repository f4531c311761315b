/* reshard_header.c - fills in the header of a job on another number of shards, from those of the shards that it had. */
#include "reshard_header.h"

#include "global_clip.h"
#include "grow.h"
#include "header_image.h"
#include "most_shards.h"
#include "override.h"
#include "random.h"
#include "ranks.h"
#include "step_group.h"

#include <stdlib.h>
#include <string.h>

/* ---- numbers and counters ---- */

/* Sets the numbers of the new shard and of its cluster. They follow from those of the old shards, so that the same
 * command makes the same files; no other job has them. */
static void draw_numbers(pd_job *to, pd_job *const *from, uint32_t n, uint64_t step)
{
    enum { CLUSTER = PD_MAX_SHARDS };
    pd_random mixed = { { (uint32_t)from[0]->saved.creator, (uint32_t)(from[0]->saved.creator >> 32) } };

    for (uint32_t s = 1; s < n; s++) mixed = pd_random_fold(mixed, from[s]->saved.creator);
    mixed = pd_random_fold(pd_random_fold(mixed, step), to->steps.shards);
    to->saved.creator = pd_random_number(pd_random_fold(mixed, to->steps.shard));
    to->saved.cluster = to->steps.shards > 1 ? pd_random_number(pd_random_fold(mixed, CLUSTER)) : 0;
}

/* Fills in the counters. What operators see of a job is their sum over all shards, so shard 0 gets the sums. */
static void add_counters(pd_job *to, pd_job *const *from, uint32_t n)
{
    to->saved.barrier = from[0]->saved.barrier;
    to->steps.saved.skipped_whole = from[0]->steps.saved.skipped_whole;
    for (uint32_t s = 0; to->steps.shard == 0 && s < n; s++) {
        const pd_steps_saved *steps = &from[s]->steps.saved;
        to->saved.refused += from[s]->saved.refused;
        to->saved.duplicates += from[s]->saved.duplicates;
        to->steps.saved.contributions += steps->contributions;
        to->steps.saved.steps += steps->steps;
        to->steps.saved.skipped += steps->skipped;
        to->steps.saved.refused_steps += steps->refused_steps;
    }
}

/* Copies what is known of the workers: the owner, the launch, and which processes must not come back. As after a resize
 * the new ranks have no process, and workers begin as new processes. */
static int copy_workers(pd_job *to, const pd_job *from, pd_error *err)
{
    to->saved.generation = from->saved.generation;
    to->saved.n_kicked = from->saved.n_kicked;
    memcpy(to->saved.kicked, from->saved.kicked, sizeof to->saved.kicked);
    to->steps.epoch = from->steps.epoch + 1;
    if (from->owner_identity != NULL && (to->owner_identity = strdup(from->owner_identity)) == NULL)
        return pd_job_no_memory(to, err);
    if (from->run != NULL && (to->run = strdup(from->run)) == NULL) return pd_job_no_memory(to, err);
    for (uint32_t r = 0; r < to->steps.members.ranks && r < from->steps.members.ranks; r++)
        pd_rank_supersede(&to->ranks[r].saved, &from->ranks[r].saved);
    return PD_OK;
}

/* ---- step groups ---- */

/* Finds the step group of rule r on a shard that has members of it; NULL: no shard has. PD_DATA_LOSS: two shards have
 * counted different steps. */
static int find_group(const pd_step_group **out, pd_job *const *from, uint32_t n, size_t r, pd_error *err)
{
    *out = NULL;
    for (uint32_t s = 0; s < n; s++) {
        const pd_step_group *group = &from[s]->steps.together.groups[r];
        if (group->members == NULL) continue;
        if (*out != NULL &&
            (group->saved.missed != (*out)->saved.missed || group->saved.brought != (*out)->saved.brought))
            return pd_fail(
                err, PD_DATA_LOSS,
                "job %.100s: its shards have counted different steps of rule %.100s: the checkpoints are not "
                "of one training",
                from[s]->steps.name, from[s]->steps.rules[r].text);
        if (*out == NULL) *out = group;
    }
    return PD_OK;
}

static int copy_groups(pd_job *to, pd_job *const *from, uint32_t n, pd_error *err)
{
    for (size_t r = 0; r < to->steps.n_rules; r++) {
        const pd_step_group *group;
        int rc = find_group(&group, from, n, r, err);
        if (rc != PD_OK) return rc;
        if (group != NULL) to->steps.together.groups[r].saved = group->saved;
    }
    return PD_OK;
}

int pd_reshard_header(pd_job *to, pd_job *const *from, uint32_t n, uint64_t step, pd_error *err)
{
    pd_global_clip_saved *clip = pd_global_clip_saved_of(&to->steps);
    int rc = copy_workers(to, from[0], err);

    draw_numbers(to, from, n, step);
    add_counters(to, from, n);
    /* All shards have the same norms, since verdicts have those of the whole model. */
    if (clip != NULL) *clip = *pd_global_clip_saved_of(&from[0]->steps);
    return rc == PD_OK ? copy_groups(to, from, n, err) : rc;
}

/* ---- overrides ---- */

/* An override of the old shards. */
typedef struct pd_reshard_override {
    const pd_override *from; /* the one that was seen last with this image */
    uint8_t *image;
    size_t bytes;
    pd_override *made; /* in the shard that is being made; NULL: not yet. It has a reference of its own */
} entry;

/* Finds an override, or adds it. Sets *index. */
static int find(pd_reshard_overrides *all, const pd_job *from, const pd_param *own, const pd_override *override,
                size_t *index, pd_error *err)
{
    uint32_t rule = (uint32_t)(own->rule - from->steps.rules);
    uint8_t *image;
    size_t bytes;
    int rc;

    for (*index = 0; *index < all->n; ++*index)
        if (all->at[*index].from == override) return PD_OK;
    if ((rc = pd_override_image_write(&image, &bytes, override, rule, err)) != PD_OK) return rc;
    for (*index = 0; *index < all->n; ++*index) {
        entry *known = &all->at[*index];
        if (known->bytes != bytes || memcmp(known->image, image, bytes) != 0) continue;
        known->from = override;
        free(image);
        return PD_OK;
    }
    if (pd_grow((void **)&all->at, &all->room, all->n + 1, sizeof *all->at) != PD_OK) {
        free(image);
        return pd_job_no_memory(from, err);
    }
    all->at[all->n++] = (entry){ .from = override, .image = image, .bytes = bytes };
    return PD_OK;
}

static int add(pd_job *to, pd_param *param, entry *known, pd_override_entry added, pd_error *err)
{
    int rc = known->made != NULL ? PD_OK : pd_override_image_read(&known->made, to, known->image, known->bytes, err);

    if (rc != PD_OK || (rc = pd_overrides_reserve(param, err)) != PD_OK) return rc;
    known->made->refs++;
    added.override = known->made;
    param->overrides.n = pd_overrides_insert(param->overrides.at, param->overrides.n, added);
    return PD_OK;
}

static bool is_same(const pd_param *param, uint32_t k, const entry *known, pd_override_entry other)
{
    const pd_override_entry *own = &param->overrides.at[k];

    return k < param->overrides.n && own->override == known->made && own->from == other.from && own->mask == other.mask;
}

int pd_reshard_overrides_copy(pd_reshard_overrides *all, pd_job *to, pd_param *param, const pd_job *from,
                              const pd_param *own, bool again, pd_error *err)
{
    bool same = !again || param->overrides.n == own->overrides.n;

    for (uint32_t k = 0; same && k < own->overrides.n; k++) {
        pd_override_entry next = own->overrides.at[k];
        size_t index;
        int rc = find(all, from, own, next.override, &index, err);
        if (rc == PD_OK && again)
            same = is_same(param, k, &all->at[index], next);
        else if (rc == PD_OK)
            rc = add(to, param, &all->at[index], next, err);
        if (rc != PD_OK) return rc;
    }
    if (same) return PD_OK;
    return pd_fail(
        err, PD_FAILED_PRECONDITION,
        "the portions of %.160s have different settings, and become one parameter: set all of it alike first "
        "(paramctl set)",
        param->declared_name);
}

void pd_reshard_overrides_next(pd_reshard_overrides *all)
{
    for (size_t i = 0; i < all->n; i++) {
        pd_override_drop(all->at[i].made);
        all->at[i].made = NULL;
    }
}

void pd_reshard_overrides_free(pd_reshard_overrides *all)
{
    pd_reshard_overrides_next(all);
    for (size_t i = 0; i < all->n; i++) free(all->at[i].image);
    free(all->at);
}
