/* adasum_tree.c - cuts a parameter's elements into sections, which the same ranks contribute, and computes the Adasum
 * of each section in passes. */
#include "adasum_tree.h"

#include "kernels.h"

#include <assert.h>
#include <stdlib.h>

/* A section: consecutive elements that the same ranks contribute. Their gradients are merged by an Adasum of their
 * own. */
typedef struct section {
    pd_range run;
    /* the gradients that the section merges; its arrays are `ends` and `at` below, which are freed with the section */
    pd_vectors vectors;
    int64_t *ends;
    pd_vector_run *at;
    pd_adasum *adasum;
    /* number of units that were handed out */
    int64_t given;
} section;

struct pd_adasum_tree {
    pd_adasum_form form;
    section *sections; /* the sections of which some rank has a gradient */
    /* number of sections; index of the first section (elements of the same ranks) whose pass may have units of work
     * left to hand out */
    size_t n, next;
    float **scratch; /* buffers for intermediate results, each of the parameter's size */
    size_t n_scratch;
    float largest; /* largest magnitude of the sections that are finished */
};

/* ---- which ranks take part in a section ---- */

static bool has_gradient(const pd_round *round, uint32_t rank, pd_range run)
{
    uint8_t state = round->chunks[run.first / round->chunk_elements].contributions[rank].state;

    return state == PD_CONTRIBUTION_HELD || state == PD_CONTRIBUTION_SPILLED;
}

/* Returns the number of ranks that have a gradient of the section. *all becomes the number of ranks that contribute the
 * section's elements, with those that have reported no gradient. */
static int count_given(const pd_round *round, pd_range run, int *all)
{
    int given = 0;

    *all = 0;
    for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++) {
        if (!pd_round_covers(round, rank, run)) continue;
        ++*all;
        given += has_gradient(round, rank, run);
    }
    return given;
}

/* Returns whether the rank is one of the vectors that the Adasum of a section merges. If it has no gradient it is one
 * (of zeros) only in the tree form, and only if at least two ranks have gradients. */
static bool has_place(const pd_adasum_tree *tree, const pd_round *round, uint32_t rank, pd_range run, int given)
{
    return pd_round_covers(round, rank, run) &&
           (has_gradient(round, rank, run) || (tree->form == PD_ADASUM_TREE && given > 1));
}

/* ---- sections ---- */

/* Returns where the rank's gradient of a chunk (section of a parameter) lies in memory, from element `first` of the
 * parameter on. If the rank has no gradient returns NULL, which stands for zeros. */
static pd_vector_run source_of(const pd_round *round, const pd_chunk *chunk, uint32_t rank, int64_t first)
{
    const pd_contribution *slot = &chunk->contributions[rank];
    int64_t skip = first - pd_round_chunk_range(round, chunk, rank).first;

    if (slot->state != PD_CONTRIBUTION_HELD && slot->state != PD_CONTRIBUTION_SPILLED)
        return (pd_vector_run){ NULL, PD_F32 };
    return (pd_vector_run){ (const char *)slot->u.at + (size_t)skip * pd_dtype_size((pd_dtype)slot->dtype),
                            (pd_dtype)slot->dtype };
}

static void fill_sources(const pd_adasum_tree *tree, section *s, const pd_round *round, int given)
{
    int64_t end = s->run.first + s->run.n, chunk_end;
    size_t at = 0;

    for (int64_t first = s->run.first; first < end; first = chunk_end) {
        const pd_chunk *chunk = &round->chunks[first / round->chunk_elements];
        chunk_end = chunk->first + chunk->n < end ? chunk->first + chunk->n : end;
        s->ends[s->vectors.n_runs++] = chunk_end - s->run.first;
        for (uint32_t rank = 0; rank < pd_round_ranks(round); rank++)
            if (has_place(tree, round, rank, s->run, given)) s->at[at++] = source_of(round, chunk, rank, first);
    }
    assert(at == s->vectors.n_runs * (size_t)s->vectors.k);
}

static int make_section(pd_adasum_tree *tree, const pd_round *round, pd_range run)
{
    section *s = &tree->sections[tree->n];
    int all, given = count_given(round, run, &all);
    size_t chunks = (size_t)((run.first + run.n - 1) / round->chunk_elements - run.first / round->chunk_elements + 1);

    if (given == 0) return PD_OK;
    s->run = run;
    s->vectors.k = tree->form == PD_ADASUM_TREE && given > 1 ? all : given;
    tree->n++;
    s->ends = malloc(chunks * sizeof *s->ends);
    s->at = malloc(chunks * (size_t)s->vectors.k * sizeof *s->at);
    if (s->ends == NULL || s->at == NULL) return PD_NO_MEMORY;
    s->vectors.ends = s->ends;
    s->vectors.at = s->at;
    fill_sources(tree, s, round, given);
    return PD_OK;
}

static size_t count_sections(const pd_round *round)
{
    size_t n = 0;

    for (pd_range run = { 0, 0 }; run.first + run.n < round->elements; n++)
        run = pd_round_common_range(round, run.first + run.n, round->elements);
    return n;
}

static int make_sections(pd_adasum_tree *tree, const pd_round *round)
{
    int rc = PD_OK;

    if ((tree->sections = calloc(count_sections(round), sizeof *tree->sections)) == NULL) return PD_NO_MEMORY;
    for (pd_range run = { 0, 0 }; rc == PD_OK && run.first + run.n < round->elements;) {
        run = pd_round_common_range(round, run.first + run.n, round->elements);
        rc = make_section(tree, round, run);
    }
    return rc;
}

/* ---- beginning and ending a round's Adasum ---- */

/* Takes buffers of the parameter's size for intermediate results: as many as the section with the most ranks needs. */
static int take_scratch(pd_adasum_tree *tree, pd_buffer_pool *pool)
{
    size_t most = 0;

    for (size_t i = 0; i < tree->n; i++) {
        size_t want = (size_t)pd_adasum_scratch_vectors(tree->form, tree->sections[i].vectors.k);
        if (want > most) most = want;
    }
    if ((tree->scratch = calloc(most + 1, sizeof *tree->scratch)) == NULL) return PD_NO_MEMORY;
    for (; tree->n_scratch < most; tree->n_scratch++)
        if ((tree->scratch[tree->n_scratch] = pd_buffer_pool_take(pool)) == NULL) return PD_NO_MEMORY;
    return PD_OK;
}

static int begin_sections(pd_adasum_tree *tree, float *to)
{
    float **scratch = malloc((tree->n_scratch + 1) * sizeof *scratch);
    int rc = scratch == NULL ? PD_NO_MEMORY : PD_OK;

    for (size_t i = 0; rc == PD_OK && i < tree->n; i++) {
        section *s = &tree->sections[i];
        for (size_t k = 0; k < tree->n_scratch; k++) scratch[k] = tree->scratch[k] + s->run.first;
        rc = pd_adasum_begin(&s->adasum, tree->form, &s->vectors, s->run.n, to + s->run.first, scratch);
    }
    free(scratch);
    return rc;
}

int pd_adasum_tree_begin(pd_adasum_tree **out, const pd_round *round, pd_adasum_form form, float **accumulator,
                         pd_buffer_pool *pool)
{
    pd_adasum_tree *tree = calloc(1, sizeof *tree);
    float *taken = NULL;
    int rc = PD_NO_MEMORY;

    if (tree == NULL) return PD_NO_MEMORY;
    tree->form = form;
    if (make_sections(tree, round) != PD_OK || take_scratch(tree, pool) != PD_OK) goto fail;
    if (tree->n > 0 && *accumulator == NULL && (*accumulator = taken = pd_buffer_pool_take(pool)) == NULL) goto fail;
    if ((rc = begin_sections(tree, *accumulator)) != PD_OK) goto fail;
    *out = tree;
    return PD_OK;

fail:
    if (taken != NULL) *accumulator = NULL;
    pd_buffer_pool_give(pool, taken);
    pd_adasum_tree_end(tree, pool);
    return rc;
}

void pd_adasum_tree_end(pd_adasum_tree *tree, pd_buffer_pool *pool)
{
    if (tree == NULL) return;
    for (size_t i = 0; i < tree->n; i++) {
        pd_adasum_end(tree->sections[i].adasum);
        free(tree->sections[i].ends);
        free(tree->sections[i].at);
    }
    for (size_t k = 0; k < tree->n_scratch; k++) pd_buffer_pool_give(pool, tree->scratch[k]);
    free(tree->scratch);
    free(tree->sections);
    free(tree);
}

/* ---- passes ---- */

bool pd_adasum_tree_next(pd_adasum_tree *tree, pd_adasum **adasum, int64_t *unit)
{
    for (; tree->next < tree->n; tree->next++) {
        section *s = &tree->sections[tree->next];
        if (s->given >= pd_adasum_units(s->adasum)) continue;
        *adasum = s->adasum;
        *unit = s->given++;
        return true;
    }
    return false;
}

bool pd_adasum_tree_turn(pd_adasum_tree *tree)
{
    bool done = true;

    for (size_t i = 0; i < tree->n; i++) {
        section *s = &tree->sections[i];
        int64_t units = pd_adasum_units(s->adasum);
        if (units > 0 && s->given == units) {
            pd_adasum_turn(s->adasum);
            s->given = 0;
            units = pd_adasum_units(s->adasum);
            if (units == 0) tree->largest = pd_larger(tree->largest, pd_adasum_largest(s->adasum));
        }
        done = done && units == 0;
    }
    tree->next = 0;
    return done;
}

float pd_adasum_tree_largest(const pd_adasum_tree *tree)
{
    return tree->largest;
}

uint64_t pd_adasum_tree_bytes(pd_adasum_form form, int64_t elements, uint64_t slots, uint32_t most)
{
    uint64_t vectors = (uint64_t)pd_adasum_scratch_vectors(form, (int)most), bytes, sources;

    if (__builtin_mul_overflow(vectors * sizeof(float), (uint64_t)elements, &bytes) ||
        __builtin_mul_overflow(slots, sizeof(pd_vector_run), &sources) ||
        __builtin_add_overflow(bytes, sources, &bytes))
        return UINT64_MAX;
    return bytes;
}
