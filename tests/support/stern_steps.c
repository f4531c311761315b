/* stern_steps.c - takes steps of the optimizer that refuses steps. */
#include "stern_steps.h"

#include "batch.h"
#include "test.h"

static const double no_stats[PD_MAX_MODEL_STATS];
static const char *const names[STERN_PARAMS] = { "a", "b", "c" };

int stern_set_up(void **state)
{
    *state = calloc(1, sizeof(stern_steps));
    return *state == NULL;
}

int stern_tear_down(void **state)
{
    free(*state);
    return 0;
}

pd_declaration stern_declare(int p, const char *const *options)
{
    pd_declaration declaration = { .name = names[p], .shape = { 1, { STERN_N } } };

    pd_hypers_init(&declaration.hypers, &stern_row);
    for (int o = 0; options[o] != NULL; o += 2)
        assert_int_equal(pd_hypers_set(&declaration.hypers, options[o], options[o + 1], NULL), PD_OK);
    return declaration;
}

void stern_make(stern_steps *f, const char *const *options)
{
    memset(f, 0, sizeof *f);
    for (int p = 0; p < STERN_PARAMS; p++) {
        pd_declaration declaration = stern_declare(p, options);
        assert_int_equal(pd_optim_new(&f->optim[p], &declaration, no_stats, NULL), PD_OK);
    }
}

void stern_finish(stern_steps *f)
{
    for (int p = 0; p < STERN_PARAMS; p++) pd_optim_free(f->optim[p]);
}

void stern_fill(stern_steps *f, int step)
{
    for (int p = 0; p < STERN_PARAMS; p++)
        for (int i = 0; i < STERN_N; i++) {
            f->gradient[p][i] = (float)(step + p) + (float)i / 16;
            f->after[p][i] = -77;
        }
}

void stern_begin(stern_steps *f, int p)
{
    assert_int_equal(
        pd_optim_begin(f->optim[p],
                       &(pd_step_io){ .gradient = f->gradient[p], .before = f->before[p], .after = f->after[p] }),
        PD_OK);
}

void stern_begin_bound(stern_steps *f)
{
    for (int p = 0; p < STERN_PARAMS; p++) stern_begin(f, p);
    pd_optim_bind(f->optim, STERN_PARAMS, &f->bond);
}

void stern_take_tasks(stern_steps *f)
{
    for (int p = 0; p < STERN_PARAMS; p++)
        for (pd_task *task; (task = pd_optim_capture(f->optim[p])) != NULL;) {
            assert_true(f->n_out < STERN_MOST);
            f->owner[f->n_out] = p;
            f->out[f->n_out++] = task;
        }
}

void stern_give_back(stern_steps *f, int p)
{
    for (int i = f->n_out - 1; i >= 0; i--) {
        if (p >= 0 && f->owner[i] != p) continue;
        pd_task_run(f->out[i]);
        pd_optim_deliver(f->optim[f->owner[i]], f->out[i]);
        f->n_out--;
        memmove(&f->out[i], &f->out[i + 1], (size_t)(f->n_out - i) * sizeof f->out[0]);
        memmove(&f->owner[i], &f->owner[i + 1], (size_t)(f->n_out - i) * sizeof f->owner[0]);
    }
}

bool stern_all_done(const stern_steps *f)
{
    for (int p = 0; p < STERN_PARAMS; p++)
        if (!pd_optim_done(f->optim[p])) return false;
    return true;
}

void stern_run_all(stern_steps *f, int threads)
{
    assert_int_equal(pd_batch_run(f->optim, STERN_PARAMS, threads), PD_OK);
}

void stern_keep_weights(stern_steps *f)
{
    for (int p = 0; p < STERN_PARAMS; p++)
        if (pd_optim_refused(f->optim[p]) == NULL) memcpy(f->before[p], f->after[p], sizeof f->before[p]);
}

void stern_step(stern_steps *f)
{
    stern_begin_bound(f);
    do {
        stern_run_all(f, 2);
        stern_take_tasks(f);
        stern_give_back(f, -1);
    } while (!stern_all_done(f));
    stern_keep_weights(f);
}

float stern_root_of(const stern_steps *f, int p, int block)
{
    return *pd_optim_slot(f->optim[p], (size_t)(STERN_FIRST_BLOCK + 2 * block + 1)).at;
}
float stern_noted(const stern_steps *f, int p, int block)
{
    return pd_optim_slot(f->optim[p], STERN_NOTED).at[block];
}
float stern_seen(const stern_steps *f, int p)
{
    return *pd_optim_slot(f->optim[p], STERN_SEEN).at;
}

float stern_sum_of_block(const stern_steps *f, int p, int block)
{
    double sum = 0;

    for (int i = 0; i < STERN_BLOCK; i++) sum += (double)f->gradient[p][block * STERN_BLOCK + i];
    return (float)(1 + sum);
}

void stern_assert_refused(const stern_steps *f, int p, int code, const char *text)
{
    const pd_error *why = pd_optim_refused(f->optim[p]);

    assert_non_null(why);
    assert_int_equal(why->code, code);
    assert_string_equal(why->text, text);
    for (int i = 0; i < STERN_N; i++) assert_true(f->after[p][i] == -77);
}
