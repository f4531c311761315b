/* stepped.c - times whole steps of one optimizer in this process. */
#include "stepped.h"

#include <string.h>

#include "batch.h"
#include "figure.h"
#include "survey.h"

pd_hypers stepped_hypers(const char *row, char **argument, int n)
{
    const pd_row *found = pd_optim_find(row);
    pd_hypers hypers;
    pd_error err;

    if (found == NULL) figure_stop("no optimizer %s", row);
    pd_hypers_init(&hypers, found);
    for (int i = 0; i < n; i++) {
        char *value = strchr(argument[i], '=');
        if (value == NULL) figure_stop("expected HYPER=VALUE, got %s", argument[i]);
        *value++ = '\0';
        if (pd_hypers_set(&hypers, argument[i], value, &err) != PD_OK) figure_stop("%s", err.text);
    }
    return hypers;
}

pd_optim *stepped_optim(const char *row, const char *hyper, const char *value, pd_shape shape)
{
    pd_declaration param = { .name = "w", .shape = shape };
    double fact[PD_MAX_FACTS];
    pd_optim *optim;
    pd_error err;

    pd_hypers_init(&param.hypers, pd_optim_find(row));
    if (hyper != NULL && pd_hypers_set(&param.hypers, hyper, value, &err) != PD_OK) figure_stop("%s", err.text);
    pd_optim_survey(param.hypers.row, &param, 1, fact);
    if (pd_optim_new(&optim, &param, fact, &err) != PD_OK) figure_stop("%s", err.text);
    return optim;
}

double stepped_ms(pd_optim *optim, const pd_step_io *io, int threads)
{
    double begin = figure_ms();

    if (pd_optim_begin(optim, io) != PD_OK || pd_batch_run(&optim, 1, threads) != PD_OK) figure_stop("out of memory");
    return figure_ms() - begin;
}
