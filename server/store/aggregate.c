#include "aggregate.h"

#include <stdlib.h>

enum { RANGE = 1 << 16 };           /* elements of a unit: large enough to stream, small enough to share among cores */
#define NS_PER_ELEMENT 0.25         /* of one core, for each addend read and the sum written */
#define WORTH_SHARING_NS 20000      /* waking another thread takes about as long */

void pd_sums_free(pd_sums *sums)
{
    free(sums->passes);
    free(sums->sums);
    free(sums->addends);
}

void pd_sums_clear(pd_sums *sums)
{
    sums->n_passes = sums->n_sums = sums->n_addends = 0;
    sums->cost_ns = 0;
}

static int grow(void **at, size_t *room, size_t want, size_t size)
{
    size_t larger = *room * 2 > want ? *room * 2 : want;
    void *moved;

    if (want <= *room) return PD_OK;
    if ((moved = realloc(*at, larger * size)) == NULL) return PD_NO_MEMORY;
    *at = moved;
    *room = larger;
    return PD_OK;
}

bool pd_slot_counts(const pd_slot *slot, pd_aggregation how)
{
    return slot->state == PD_SLOT_HELD && (how != PD_WEIGHTED_MEAN || slot->frame->u.data.weight > 0);
}

/* What a gradient is multiplied by: a mean over examples becomes their sum. */
static float factor(const pd_slot *slot, pd_aggregation how)
{
    return how == PD_WEIGHTED_MEAN && !slot->frame->u.data.presummed ? (float)slot->frame->u.data.weight : 1.0f;
}

typedef struct pd_count { uint32_t given; double weight; } pd_count;

/* Gradients, and their weights, in the sum once ranks up to `upto` are in it. */
static pd_count count_upto(const pd_chunk *chunk, uint32_t upto, pd_aggregation how)
{
    pd_count count = { chunk->given, chunk->weight };

    for (uint32_t rank = chunk->summed; rank < upto; rank++) {
        if (!pd_slot_counts(&chunk->slots[rank], how)) continue;
        count.given++;
        count.weight += chunk->slots[rank].frame->u.data.weight;
    }
    return count;
}

static float divisor_of(pd_count count, pd_aggregation how)
{
    return how == PD_MEAN ? (float)count.given : how == PD_WEIGHTED_MEAN ? (float)count.weight : 1.0f;
}

/* Elements [first, first + n) of the chunk. Room is there. */
static void plan_range(pd_sums *sums, const pd_chunk *chunk, uint32_t upto, pd_aggregation how, pd_sum *sum, int64_t first)
{
    sum->first_addend = sums->n_addends;
    for (uint32_t rank = chunk->summed; rank < upto; rank++) {
        const pd_slot *slot = &chunk->slots[rank];
        if (!pd_slot_counts(slot, how)) continue;
        sums->addends[sums->n_addends++] = (pd_addend){
            (const char *)slot->at + (size_t)first * pd_dtype_size((pd_dtype)slot->dtype), (pd_dtype)slot->dtype, factor(slot, how) };
    }
    sum->n_addends = (int)(sums->n_addends - sum->first_addend);
}

static int make_room(pd_sums *sums, size_t ranges, size_t k)
{
    if (grow((void **)&sums->passes, &sums->passes_room, sums->n_passes + 1, sizeof *sums->passes) != PD_OK ||
        grow((void **)&sums->sums, &sums->sums_room, sums->n_sums + ranges, sizeof *sums->sums) != PD_OK ||
        grow((void **)&sums->addends, &sums->addends_room, sums->n_addends + ranges * k, sizeof *sums->addends) != PD_OK)
        return PD_NO_MEMORY;
    return PD_OK;
}

int pd_sums_plan(pd_sums *sums, pd_round *round, pd_chunk *chunk, uint32_t upto, pd_aggregation how, float **accumulator, pd_shelf *shelf)
{
    pd_count count = count_upto(chunk, upto, how);
    size_t k = count.given - chunk->given, ranges = (size_t)((chunk->n + RANGE - 1) / RANGE);
    float divisor = upto == round->world && count.given > 0 ? divisor_of(count, how) : 1.0f;

    if (k == 0 && divisor == 1.0f) ranges = 0;              /* nothing to add, nothing to divide */
    if (make_room(sums, ranges, k) != PD_OK) return PD_NO_MEMORY;
    if (ranges > 0 && *accumulator == NULL && (*accumulator = pd_shelf_take(shelf)) == NULL) return PD_NO_MEMORY;
    sums->passes[sums->n_passes++] = (pd_pass){ round, chunk, upto, sums->n_sums, ranges };
    for (size_t r = 0; r < ranges; r++) {
        int64_t first = (int64_t)r * RANGE, n = chunk->n - first < RANGE ? chunk->n - first : RANGE;
        pd_sum *sum = &sums->sums[sums->n_sums++];
        *sum = (pd_sum){ .to = *accumulator + chunk->first + first, .n = n, .resume = chunk->given > 0, .divisor = divisor };
        plan_range(sums, chunk, upto, how, sum, first);
    }
    sums->cost_ns += NS_PER_ELEMENT * (double)chunk->n * (double)(k + 1);
    return PD_OK;
}

void pd_sums_run(pd_sums *sums, int threads)
{
    size_t grab = sums->n_sums / 64 + 1;        /* many small sums: taken by the handful */
    (void)threads, (void)grab;
    #pragma omp parallel for schedule(dynamic, grab) num_threads(threads) if(sums->cost_ns > WORTH_SHARING_NS)
    for (size_t i = 0; i < sums->n_sums; i++) {
        pd_sum *sum = &sums->sums[i];
        sum->finite = pd_accumulate(sum->to, sum->n, sum->resume, sums->addends + sum->first_addend, sum->n_addends, sum->divisor);
    }
}

static bool all_finite(const pd_sums *sums, const pd_pass *pass)
{
    for (size_t i = 0; i < pass->n_sums; i++)
        if (!sums->sums[pass->first_sum + i].finite) return false;
    return true;
}

void pd_sums_note(const pd_sums *sums, const pd_pass *pass, pd_aggregation how)
{
    pd_round *round = pass->round;
    pd_chunk *chunk = pass->chunk;
    pd_count count = count_upto(chunk, pass->upto, how);

    for (uint32_t rank = chunk->summed; rank < pass->upto; rank++)
        if (chunk->slots[rank].state == PD_SLOT_HELD) chunk->slots[rank].state = PD_SLOT_SUMMED;
    chunk->given = count.given;
    chunk->weight = count.weight;
    chunk->summed = pass->upto;
    if (!all_finite(sums, pass)) round->finite = false;
    if (pass->upto < round->world) return;
    round->unsummed--;
    if (count.given == 0) round->weightless = true;
}
