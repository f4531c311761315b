/* Tests that the four examples of upstream's README are in server/optim/README.md as rules of a job, with the settings
 * of the recorded runs readme_* in meta_shampoo, but for the two changes that the guide names. The recorded runs
 * compute roots more often, so that they contain more of them. */
#include "test.h"
#include "golden.h"
#include "recipe.h"
#include "rule.h"
#include "shampoo_step.h"
#include "trace.h"

static const char *const examples[] = { "SGD", "Adam", "Adagrad", "AdamW" };
static const char *const traces[] = { "readme_sgd", "readme_adam", "readme_adagrad", "readme_adamw" };

/* Reads the rule in the first code block after the line that begins with the example's name. The rule may take several
 * lines. All lines but the first are indented. */
static void read_example(const char *name, char *rule, size_t size)
{
    char path[512], line[1024], start[32];
    FILE *file;
    int fences = -1; /* number of fences after the example's line; -1: before that line */

    snprintf(path, sizeof path, "%s/server/optim/README.md", PD_SOURCE_DIR);
    file = fopen(path, "r");
    assert_non_null(file);
    snprintf(start, sizeof start, "%s with lr ", name);
    rule[0] = '\0';
    while (fences < 2 && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, start, strlen(start)) == 0)
            fences = 0;
        else if (fences >= 0 && strncmp(line, "```", 3) == 0)
            fences++;
        else if (fences == 1)
            strncat(rule, line, size - strlen(rule) - 1);
    }
    fclose(file);
    if (rule[0] == '\0') fail_msg("server/optim/README.md has no example for %s", name);
}

static void read_trace(pd_recipe *recipe, const char *name)
{
    char file[128];
    pd_trace *trace;
    json_t *config;
    pd_error err = { 0 };

    snprintf(file, sizeof file, "meta_shampoo/%s.safetensors", name);
    if (pd_trace_open(&trace, golden_path(file), &err) != PD_OK) fail_msg("%s", err.text);
    config = json_loads(pd_trace_meta(trace, "config"), 0, NULL);
    if (pd_recipe_read(recipe, trace->system, config, &err) != PD_OK) fail_msg("%s", err.text);
    json_decref(config);
    pd_trace_close(trace);
}

/* Returns whether the guide names a change of this hyperparameter in the example: no merged dimensions, and SGD's own
 * rate. */
static bool is_changed(const char *example, const char *hyper)
{
    return strcmp(hyper, "use_merge_dims") == 0 || (strcmp(example, "SGD") == 0 && strcmp(hyper, "lr") == 0);
}

TEST(examples_in_the_guide_are_upstreams_but_for_what_it_names)
{
    for (int e = 0; e < 4; e++) {
        char text[1024], *list[] = { text };
        pd_recipe recipe = { 0 };
        pd_rule *rules;
        size_t n;
        pd_error err;
        read_example(examples[e], text, sizeof text);
        if (pd_rules_parse(&rules, &n, list, 1, pd_optimizer_table, &err) != PD_OK) fail_msg("%s: %s", text, err.text);
        read_trace(&recipe, traces[e]);
        assert_ptr_equal(rules[0].hypers.row, recipe.groups[0].row);
        assert_true(rules[0].hypers.value[FREQUENCY] == 100);
        for (int i = 0; recipe.groups[0].row->hypers[i].name != NULL; i++) {
            const char *hyper = recipe.groups[0].row->hypers[i].name;
            bool same = rules[0].hypers.value[i] == recipe.groups[0].value[i];
            if (i != FREQUENCY && same == is_changed(examples[e], hyper))
                fail_msg("%s: %s is %g, upstream has %g", text, hyper, rules[0].hypers.value[i],
                         recipe.groups[0].value[i]);
        }
        pd_rules_free(rules, n);
        pd_recipe_free(&recipe);
    }
}
