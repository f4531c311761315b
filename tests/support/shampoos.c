#include "shampoos.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static uint64_t state = 1;

static uint32_t draw(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

void shampoo_seed(uint64_t seed) { state = seed; }
int64_t shampoo_below(int64_t n) { return draw() % n; }

void shampoo_fill(float *at, int64_t n, float size)
{
    for (int64_t i = 0; i < n; i++) at[i] = size * ((float)draw() / 1073741824.0f - 1);
}

pd_hypers shampoo_hypers(const char *row, const char *list)
{
    pd_hypers hypers;
    char text[512], *rest = text, *word;
    pd_error err;

    pd_hypers_init(&hypers, pd_optim_find(row));
    snprintf(text, sizeof text, "%s", list);
    while ((word = strsep(&rest, " ")) != NULL) {
        char *value = strchr(word, '=');
        if (value == NULL) continue;
        *value++ = '\0';
        if (pd_hypers_set(&hypers, word, value, &err) != PD_OK) fail_msg("%s", err.text);
    }
    if (pd_hypers_check(&hypers, &err) != PD_OK) fail_msg("%s", err.text);
    return hypers;
}

pd_model *shampoo_model(const pd_declaration *params, size_t n, int threads)
{
    pd_model *model;
    pd_error err;

    if (pd_model_new(&model, params, n, threads, &err) != PD_OK) fail_msg("%s", err.text);
    return model;
}
