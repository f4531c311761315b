/* recipe.c - reads the optimizer and its hyperparameters from the configuration of a recorded run. */
#include "recipe.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "recipe_meta.h"
#include "recipe_values.h"

/* Writes the key of a pair as text for pd_pairs_read (axes.h): in single quotes, with each quote inside doubled. */
static void print_key(FILE *out, const char *key)
{
    fputc('\'', out);
    for (; *key != '\0'; key++) fprintf(out, *key == '\'' ? "''" : "%c", *key);
    fputs("':", out);
}

/* Writes the value of a pair as text: a list like ["BATCH", "ROW"], a word like "HEURISTIC", or a flag. null
 * becomes "none". */
static void print_rule(FILE *out, const json_t *rule)
{
    char number[40];
    const char *word = json_is_array(rule) ? NULL : pd_recipe_scalar(rule, number, sizeof number);

    if (json_is_array(rule))
        pd_recipe_print_list(out, rule);
    else
        fputs(word != NULL ? word : "none", out);
}

/* Writes a map that is a list of pairs, [["regular expression", rule], ...], as text for pd_pairs_read. */
static void print_rules(FILE *out, const json_t *rules)
{
    json_t *pair;
    size_t i;

    json_array_foreach(rules, i, pair)
    {
        const char *key = json_string_value(json_array_get(pair, 0));
        fputs(i > 0 ? "," : "[", out);
        print_key(out, key != NULL ? key : "");
        print_rule(out, json_array_get(pair, 1));
    }
    fputs(i > 0 ? "]" : "[]", out);
}

/* Writes a map from names of dimensions to rules, such as {"embed": "ROW", ...}, as text for pd_pairs_read. */
static void print_axis_rules(FILE *out, const json_t *rules)
{
    const char *key, *separator = "[";
    json_t *rule;

    json_object_foreach((json_t *)rules, key, rule)
    {
        fputs(separator, out);
        print_key(out, key);
        print_rule(out, rule);
        separator = ",";
    }
    fputs(*separator == '[' ? "[]" : "]", out);
}

/* Flattens a tree: adds its leaves to the object `out`. The key of a leaf is its path, `before` and the names on the
 * way to it, with slashes. Such a path is the name of a parameter, since the reference optimizer's masks are trees like
 * its parameters. A path that is too long is cut off, and then names no parameter. Fails only if out of memory. */
static int flatten(json_t *out, const char *before, const json_t *tree)
{
    const char *key;
    json_t *value;
    int rc = 0;

    json_object_foreach((json_t *)tree, key, value)
    {
        char name[300];
        snprintf(name, sizeof name, "%s%s%s", before, *before != '\0' ? "/" : "", key);
        if (rc == 0) rc = json_is_object(value) ? flatten(out, name, value) : json_object_set(out, name, value);
    }
    return rc;
}

/* Flattens a tree: returns {"encoder/w": true, "b": false} for {"encoder": {"w": true}, "b": false}. The caller
 * frees the result. NULL: out of memory. */
static json_t *leaves_of(const json_t *tree)
{
    json_t *out = json_object();

    if (out == NULL || flatten(out, "", tree) == 0) return out;
    json_decref(out);
    return NULL;
}

/* Returns a list with one group of parameters, {"params": [...], "weight_decay": 0}: those for which the mask, a tree
 * of flags, is not true. The caller frees it. NULL: out of memory. */
static json_t *masked_group(const json_t *mask)
{
    json_t *names = json_array(), *leaves = leaves_of(mask), *decays;
    const char *name;

    json_object_foreach(leaves, name, decays)
    {
        if (!json_is_true(decays)) json_array_append_new(names, json_string(name));
    }
    if (leaves != NULL) {
        json_decref(leaves);
        return json_pack("[{s:o, s:i}]", "params", names, "weight_decay", 0);
    }
    json_decref(names);
    return NULL;
}

/* Returns a copy of the configuration. If its `weight_decay_mask` is a dictionary, the copy has `groups`, with one
 * group that has no weight decay: the parameters whose flag is not true. The caller frees the copy. NULL: out of
 * memory. */
static json_t *with_groups(const json_t *config)
{
    const json_t *mask = json_object_get(config, "weight_decay_mask");
    json_t *own = json_copy((json_t *)config);

    if (own == NULL || !json_is_object(mask) || json_object_set_new(own, "groups", masked_group(mask)) == 0) return own;
    json_decref(own);
    return NULL;
}

/* Sets the hyperparameters that one key of a recorded configuration stands for. */
typedef int set_key(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err);
/* Sets hyperparameters that follow from the configuration as a whole. Called after `set_key` was called for all its
 * keys. */
typedef int finish_config(pd_hypers *hypers, const json_t *config, pd_error *err);
static set_key set_meta, set_t5x, set_kron, set_psgd, set_soap, set_keller, set_none;
static finish_config finish_nadam, finish_google, finish_meta_2026, finish_psgd, finish_hyperball, finish_keller,
    finish_average;

#define TORCH_EXECUTION                                                                                                \
    {                                                                                                                  \
        "optimizer", "foreach", "differentiable", "fused", "capturable", "lr_schedule", NULL                           \
    }

/* `compute` is float32 in all recorded runs, and `hyperball_eps` 1e-15. */
#define HYPERBALL_EXECUTION                                                                                            \
    {                                                                                                                  \
        "base", "hyperball_eps", "compute", "lr_schedule", NULL                                                        \
    }

/* Meta's Shampoo of 2026, all of whose classes are one optimizer here. */
#define META_2026                                                                                                      \
    .name = "shampoo", .rate = "lr", .set = pd_recipe_set_meta, .finish = finish_meta_2026,                            \
    .execution = { "lr_schedule" }

enum { MOST_GROUPS = 1000 };

/* The table of systems and optimizers whose recorded runs can be replayed. To replay runs of another reference
 * implementation, add a row. */
static const struct entry {
    const char *system;
    const char *optimizer; /* value of the configuration's key `optimizer`; NULL: the system has only one optimizer */
    const char *name;      /* paramd's name of the optimizer */
    const char *rate;
    set_key *set;
    finish_config *finish; /* NULL: no hyperparameter follows from the configuration as a whole */
    /* Keys of the configuration to ignore: they change how the reference optimizer computes, but not its results.
     * NULL at the end. */
    const char *execution[8];
} table[] = {
    { "torch_optim", "SGD", "sgd", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "Adam", "adam", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "AdamW", "adamw", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "Adagrad", "adagrad", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "RMSprop", "rmsprop", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "NAdam", "nadam", "lr", pd_recipe_set_value, finish_nadam, TORCH_EXECUTION },
    { "torch_optim", "RAdam", "radam", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "Adamax", "adamax", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "Adadelta", "adadelta", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "Rprop", "rprop", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "torch_optim", "ASGD", "asgd", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "delayed_nesterov", NULL, "delayed_nesterov", "lr", pd_recipe_set_value, NULL, { "lr_schedule" } },
    { "ademamix", NULL, "ademamix", "lr", pd_recipe_set_value, NULL, { "lr_schedule" } },
    { "mars", NULL, "mars", "lr", pd_recipe_set_value, NULL, { "lr_schedule", "is_approx" } },
    { "schedule_free", "AdamWScheduleFree", "schedule_free", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "schedule_free", "SGDScheduleFree", "schedule_free_sgd", "lr", pd_recipe_set_value, NULL, TORCH_EXECUTION },
    { "gpa", NULL, "gpa", "lr", pd_recipe_set_value, NULL, { "lr_schedule" } },
    { "hyperball", "SGD", "sgd", "lr", pd_recipe_set_value, finish_hyperball, HYPERBALL_EXECUTION },
    { "hyperball", "Adam", "adam", "lr", pd_recipe_set_value, finish_hyperball, HYPERBALL_EXECUTION },
    { "hyperball", "Muon", "muon", "lr", pd_recipe_set_value, finish_hyperball, HYPERBALL_EXECUTION },
    { "muon_torch", NULL, "muon", "lr", pd_recipe_set_value, NULL, { "lr_schedule" } },
    { "muon_keller", NULL, "muon", "lr", set_keller, finish_keller, { "lr_schedule" } },
    { "trax_average", NULL, "sgd", "lr", set_none, finish_average, { NULL } },
    { .system = "google_shampoo",
      .name = "scalable_shampoo",
      .rate = "learning_rate",
      .set = pd_recipe_set_value,
      .finish = finish_google,
      .execution = { "batch_axis_name", "num_devices_for_pjit", "replicas", "statistics_partition_spec",
                     "preconditioner_partition_spec" } },
    { .system = "meta_shampoo",
      .name = "shampoo",
      .rate = "lr",
      .set = set_meta,
      .execution = { "use_pytorch_compile", "pytorch_compile_backend", "lr_schedule" } },
    { .system = "meta_kl", META_2026 },
    { .system = "meta_soap", META_2026 },
    { .system = "meta_head", META_2026 },
    { .system = "t5x_adafactor",
      .name = "adafactor",
      .rate = "learning_rate",
      .set = set_t5x,
      .execution = { "param_axes", "start_step", "grad_dtype" } },
    { .system = "soap", .name = "soap", .rate = "lr", .set = set_soap, .execution = { "lr_schedule" } },
    { .system = "kl_methods",
      .name = "kl_shampoo",
      .rate = "lr",
      .set = pd_recipe_set_value,
      .execution = { "lr_schedule", "cast_dtype" } },
    { .system = "distributed_kron",
      .name = "kron",
      .rate = "learning_rate",
      .set = set_kron,
      .execution = { "params_partition_specs", "preconditioner_partition_spec", "scanned_layers", "normalize_grads" } },
    { .system = "psgd_torch",
      .name = "kron",
      .rate = "learning_rate",
      .set = set_psgd,
      .finish = finish_psgd,
      .execution = { "preconditioner_update_probability" } },
};

static bool contains(const char *const *list, const char *word)
{
    for (; *list != NULL; list++)
        if (strcmp(*list, word) == 0) return true;
    return false;
}

bool pd_recipe_knows(const char *system)
{
    for (const struct entry *e = table; e < table + sizeof table / sizeof *table; e++)
        if (strcmp(e->system, system) == 0) return true;
    return false;
}

static int no_entry(const char *system, const char *optimizer, pd_error *err)
{
    char name[64] = "";

    if (strcmp(system, "data") == 0) return pd_fail(err, PD_UNIMPLEMENTED, "contains data for other traces, no run");
    if (!pd_recipe_knows(system) || optimizer == NULL)
        return pd_fail(err, PD_UNIMPLEMENTED, "system %.64s is not implemented", system);
    for (size_t i = 0; optimizer[i] != '\0' && i + 1 < sizeof name; i++)
        name[i] = (char)tolower((unsigned char)optimizer[i]);
    return pd_fail(err, PD_UNIMPLEMENTED, "optimizer %s is not implemented", name);
}

static const struct entry *find_entry(const char *system, const char *optimizer)
{
    for (const struct entry *e = table; e < table + sizeof table / sizeof *table; e++) {
        if (strcmp(e->system, system) != 0) continue;
        if (e->optimizer == NULL || (optimizer != NULL && strcmp(e->optimizer, optimizer) == 0)) return e;
    }
    return NULL;
}

/* Sets the hyperparameters of an optimizer from a recorded configuration. A key with the value null is left out: it
 * switches an option off, and in paramd the option is off by default. Only T5X's Adafactor has options with a value
 * none, so its nulls are passed on. */
static int read_config(pd_hypers *hypers, const struct entry *entry, const json_t *config, pd_error *err)
{
    const char *key;
    json_t *value;

    json_object_foreach((json_t *)config, key, value)
    {
        int rc = PD_OK;
        if (!contains(entry->execution, key) && (!json_is_null(value) || entry->set == set_t5x))
            rc = entry->set(hypers, key, value, err);
        if (rc != PD_OK) return rc;
    }
    return entry->finish != NULL ? entry->finish(hypers, config, err) : PD_OK;
}

/* PyTorch up to 1.13, whose NAdam has no option `differentiable` yet, counts mu twice. A replay must repeat this
 * defect. */
static int finish_nadam(pd_hypers *hypers, const json_t *config, pd_error *err)
{
    if (json_object_get(config, "differentiable") != NULL) return PD_OK;
    return pd_hypers_set(hypers, "mu_counted_twice", "yes", err);
}

/* Does nothing: a trace of averages has no hyperparameters. */
static int set_none(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    (void)hypers, (void)key, (void)value, (void)err;
    return PD_OK;
}

/* Sets a hyperparameter of SOAP, but for data_format, which pd_recipe_read looks at. */
static int set_soap(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    return strcmp(key, "data_format") == 0 ? PD_OK : pd_recipe_set_value(hypers, key, value, err);
}

/* Sets lr to 1 for a trace of averages. One step of sgd then turns weights of 0 into minus the averaged gradient, so
 * the average can be read from the weights. */
static int finish_average(pd_hypers *hypers, const json_t *config, pd_error *err)
{
    (void)config;
    return pd_hypers_set(hypers, "lr", "1", err);
}

/* Sets two hyperparameters of paramd that are not in the configuration of Google's Shampoo, but follow from it:
 *   - Without batch_axis_name (a run on one device), Google's code stores only the momentum in reduced precision,
 *     not the statistics: memory_reduction_scope = momentum.
 *   - With shard_optimizer_states, a root that is NaN overwrites the last good root. A replay must repeat this
 *     defect: nan_roots_leak = yes. */
static int finish_google(pd_hypers *hypers, const json_t *config, pd_error *err)
{
    int rc = PD_OK;

    if (!json_is_string(json_object_get(config, "batch_axis_name")))
        rc = pd_hypers_set(hypers, "memory_reduction_scope", "momentum", err);
    if (rc == PD_OK && json_is_true(json_object_get(config, "shard_optimizer_states")))
        rc = pd_hypers_set(hypers, "nan_roots_leak", "yes", err);
    return rc;
}

static int set_meta(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    /* The keys to ignore in distributed_config: they say how work is distributed, which does not change results. Its
     * other keys matter, since they round values. */
    static const struct entry distribution = { .set = pd_recipe_set_value,
                                               .execution = { "type", "world_size", "num_trainers_per_group" } };

    if (strcmp(key, "distributed_config") == 0) return read_config(hypers, &distribution, value, err);
    if (json_is_object(value) && !json_is_string(json_object_get(value, "schedule")))
        return pd_recipe_set_members(hypers, key, value, err);
    return pd_recipe_set_value(hypers, key, value, err);
}

/* Returns true if the hyperparameter can be switched off with the word "none". */
static bool may_be_none(const pd_optimizer_ops *optimizer, const char *name)
{
    size_t n;
    const pd_hyper *hypers = pd_optimizer_hypers(optimizer, &n);
    int i = pd_hypers_find(optimizer, name);

    return i >= 0 && hypers[i].choices != NULL && strcmp(hypers[i].choices, "none") == 0;
}

static int set_t5x(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    if (json_is_null(value)) return may_be_none(hypers->row, key) ? pd_hypers_set(hypers, key, "none", err) : PD_OK;
    if (json_is_array(value)) return pd_recipe_set_printed(hypers, key, value, print_rules, err);
    if (strcmp(key, "logical_factor_rules") == 0 && json_is_object(value))
        return pd_recipe_set_printed(hypers, key, value, print_axis_rules, err);
    return pd_recipe_set_value(hypers, key, value, err);
}

/* Sets the probability with which factors are updated. If it changes with the step, its value is a schedule,
 * {"schedule": "anneal", ...}. paramd's schedule has the name of the reference optimizer's function,
 * precond_update_prob_schedule. */
static int set_probability(pd_hypers *hypers, const char *name, const json_t *value, pd_error *err)
{
    json_t *named = json_copy((json_t *)value);
    int rc;

    if (named == NULL || json_object_set_new(named, "schedule", json_string("precond_update_prob_schedule")) != 0)
        rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    else
        rc = pd_recipe_set_value(hypers, name, named, err);
    json_decref(named);
    return rc;
}

/* Sets a weight decay mask of the form "callable:ndim>=2". with_groups turns a mask that is a dictionary into groups of
 * parameters. */
static int set_mask(pd_hypers *hypers, const json_t *mask, pd_error *err)
{
    static const char ndim[] = "callable:ndim>=";
    const char *text = json_string_value(mask);

    if (json_is_object(mask)) return PD_OK;
    if (text != NULL && strncmp(text, ndim, strlen(ndim)) == 0)
        return pd_hypers_set(hypers, "weight_decay_min_ndim", text + strlen(ndim), err);
    return pd_fail(err, PD_UNIMPLEMENTED, "weight_decay_mask: expected names with true or false, or %sN", ndim);
}

static int set_kron(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    const char *schedule = json_string_value(json_object_get(value, "schedule"));

    if (strcmp(key, "weight_decay_mask") == 0) return set_mask(hypers, value, err);
    if (strcmp(key, "learning_rate") == 0 && schedule != NULL) return PD_OK;
    if (schedule != NULL && strcmp(schedule, "anneal") == 0) return set_probability(hypers, key, value, err);
    return pd_recipe_set_value(hypers, key, value, err);
}

/* Sets a hyperparameter of kron from one of psgd_torch, which has other names for some. Factors that are updated after
 * their use are those of the next step. */
static int set_psgd(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = { { "lr_params", "learning_rate" },
                  { "lr_preconditioner", "preconditioner_lr" },
                  { "momentum", "b1" },
                  { "preconditioner_max_size", "max_size_triangular" } };

    if (strcmp(key, "dQ") == 0 && json_is_string(value) && strcmp(json_string_value(value), "EQ") == 0)
        return pd_hypers_set(hypers, key, "EQ_psgd", err);
    if (strcmp(key, "update_preconditioner_first") == 0)
        return pd_hypers_set(hypers, "root_delay", json_is_true(value) ? "0" : "1", err);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(key, names[i].theirs) == 0) return pd_recipe_set_value(hypers, names[i].ours, value, err);
    return pd_recipe_set_value(hypers, key, value, err);
}

/* Switches off options of distributed_kron that psgd_torch has not. */
static int finish_psgd(pd_hypers *hypers, const json_t *config, pd_error *err)
{
    static const char *const off[][2] = { { "merge_small_dims", "no" },
                                          { "partition_grads_into_blocks", "no" },
                                          { "min_ndim_triangular", "0" } };
    int rc = PD_OK;

    (void)config;
    for (size_t i = 0; rc == PD_OK && i < sizeof off / sizeof *off; i++)
        rc = pd_hypers_set(hypers, off[i][0], off[i][1], err);
    return rc;
}

/* Sets hyperparameters of the auxiliary Adam of Keller Jordan's Muon from an object: NAME is adam_NAME here. */
static int set_keller(pd_hypers *hypers, const char *key, const json_t *value, pd_error *err)
{
    const char *name;
    json_t *member;
    int rc = PD_OK;

    if (strcmp(key, "adam") != 0) return pd_recipe_set_value(hypers, key, value, err);
    json_object_foreach((json_t *)value, name, member)
    {
        char own[80];
        snprintf(own, sizeof own, "adam_%.64s", name);
        if (rc == PD_OK) rc = pd_recipe_set_value(hypers, own, member, err);
    }
    return rc;
}

static int finish_meta_2026(pd_hypers *hypers, const json_t *config, pd_error *err)
{
    (void)config;
    return pd_hypers_set(hypers, "semantics", "2026", err);
}

static int finish_hyperball(pd_hypers *hypers, const json_t *config, pd_error *err)
{
    (void)config;
    return pd_hypers_set(hypers, "hyperball", "yes", err);
}

static int finish_keller(pd_hypers *hypers, const json_t *config, pd_error *err)
{
    (void)config;
    return pd_hypers_set(hypers, "form", "keller", err);
}

/* Reads start_step, and the names of dimensions. distributed_kron's key scanned_layers marks parameters whose first
 * dimension counts layers. */
static int read_declared(pd_recipe *recipe, const json_t *config, pd_error *err)
{
    const json_t *axes = json_object_get(config, "param_axes"), *scanned = json_object_get(config, "scanned_layers");

    recipe->start_step = json_integer_value(json_object_get(config, "start_step"));
    if (recipe->start_step < 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "config: start_step is %lld", (long long)recipe->start_step);
    if (axes != NULL && !json_is_null(axes) && !json_is_object(axes))
        return pd_fail(err, PD_INVALID_ARGUMENT, "config: param_axes is not an object");
    if (json_is_object(axes))
        recipe->axes = json_incref((json_t *)axes);
    else if (json_is_object(scanned) && (recipe->axes = leaves_of(scanned)) == NULL)
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    return PD_OK;
}

char *pd_recipe_axes(const pd_recipe *recipe, const char *name, int rank)
{
    const json_t *axes = json_object_get(recipe->axes, name);
    char *text = NULL;
    size_t size, i;
    json_t *axis;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return NULL;
    for (int d = 0; json_is_true(axes) && d < rank; d++) fputs(d == 0 ? "layers" : ",", out);
    json_array_foreach(axes, i, axis)
    {
        const char *word = json_string_value(axis);
        fprintf(out, "%s%s", i > 0 ? "," : "", word != NULL ? word : "");
    }
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

/* Adds the names of a group's parameters to recipe->members. PD_INVALID_ARGUMENT: a parameter is in two groups. */
static int add_members(pd_recipe *recipe, size_t group, const json_t *names, pd_error *err)
{
    json_t *name;
    size_t i;

    if (!json_is_array(names))
        return pd_fail(err, PD_INVALID_ARGUMENT, "config: group %zu has no list of params", group - 1);
    json_array_foreach(names, i, name)
    {
        const char *text = json_string_value(name);
        if (text == NULL)
            return pd_fail(err, PD_INVALID_ARGUMENT, "config: group %zu: a name in params is not a string", group - 1);
        if (json_object_get(recipe->members, text) != NULL)
            return pd_fail(err, PD_INVALID_ARGUMENT, "config: parameter %.128s is in two groups", text);
        if (json_object_set_new(recipe->members, text, json_integer((json_int_t)group)) != 0)
            return pd_fail(err, PD_NO_MEMORY, "out of memory");
    }
    return PD_OK;
}

/* Returns the configuration of a group of parameters: a copy of the whole configuration with the group's changes. Group
 * 0 has no changes. The caller frees the result. NULL: out of memory. */
static json_t *configuration_of(const json_t *config, const json_t *group)
{
    json_t *own = json_copy((json_t *)config);

    if (own == NULL) return NULL;
    json_object_del(own, "groups");
    if (group == NULL) return own;
    if (json_object_update(own, (json_t *)group) == 0) {
        json_object_del(own, "params");
        return own;
    }
    json_decref(own);
    return NULL;
}

static int read_group(pd_recipe *recipe, size_t group, const struct entry *entry, const json_t *config,
                      const json_t *differs, pd_error *err)
{
    json_t *own = configuration_of(config, differs);
    pd_hypers *hypers = &recipe->groups[group];
    int rc = own == NULL ? pd_fail(err, PD_NO_MEMORY, "out of memory") : read_config(hypers, entry, own, err);

    json_decref(own);
    if (rc == PD_OK) rc = pd_hypers_check(hypers, err);
    return rc == PD_OK && differs != NULL ? add_members(recipe, group, json_object_get(differs, "params"), err) : rc;
}

static int read_groups(pd_recipe *recipe, const struct entry *entry, const pd_optimizer_ops *row, const json_t *config,
                       pd_error *err)
{
    const json_t *list = json_object_get(config, "groups");
    size_t n = json_array_size(list);
    int rc = PD_OK;

    if (list != NULL && !json_is_array(list)) return pd_fail(err, PD_INVALID_ARGUMENT, "config: groups is not a list");
    if (n > MOST_GROUPS)
        return pd_fail(err, PD_INVALID_ARGUMENT, "config: %zu groups, at most %d are supported", n, MOST_GROUPS);
    recipe->groups = calloc(n + 1, sizeof *recipe->groups);
    if (list != NULL) recipe->members = json_object();
    if (recipe->groups == NULL || (list != NULL && recipe->members == NULL))
        return pd_fail(err, PD_NO_MEMORY, "out of memory");
    recipe->n_groups = n + 1;
    for (size_t i = 0; i <= n; i++) pd_hypers_init(&recipe->groups[i], row);
    for (size_t i = 0; rc == PD_OK && i <= n; i++) {
        const json_t *group = i > 0 ? json_array_get(list, i - 1) : NULL;
        if (i > 0 && !json_is_object(group))
            return pd_fail(err, PD_INVALID_ARGUMENT, "config: group %zu is not an object", i - 1);
        rc = read_group(recipe, i, entry, config, group, err);
    }
    return rc;
}

size_t pd_recipe_group(const pd_recipe *recipe, const char *name)
{
    return (size_t)json_integer_value(json_object_get(recipe->members, name));
}

static int read_rates(pd_recipe *recipe, const json_t *list, pd_error *err)
{
    json_t *rate;
    size_t i;

    if (list == NULL || json_is_null(list)) return PD_OK;
    if (!json_is_array(list)) return pd_fail(err, PD_INVALID_ARGUMENT, "config: lr_schedule is not a list");
    json_array_foreach(list, i, rate)
    {
        if (!json_is_number(rate))
            return pd_fail(err, PD_INVALID_ARGUMENT, "config: lr_schedule has no number for step %zu", i + 1);
    }
    recipe->rates = json_incref((json_t *)list);
    return PD_OK;
}

bool pd_recipe_rate(const pd_recipe *recipe, int64_t step, double *rate)
{
    const json_t *value = json_array_get(recipe->rates, (size_t)step - 1);

    if (value != NULL) *rate = json_number_value(value);
    return value != NULL;
}

int pd_recipe_declare_rate(pd_recipe *recipe, double rate, pd_error *err)
{
    char text[64];
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < recipe->n_groups; i++) {
        pd_hypers *hypers = &recipe->groups[i];
        int index = pd_hypers_find(hypers->row, recipe->rate);
        if (index < 0 || strcmp(pd_hypers_text(hypers, index, text, sizeof text), "none") != 0) continue;
        snprintf(text, sizeof text, "%.17g", rate);
        rc = pd_hypers_set(hypers, recipe->rate, text, err);
    }
    return rc;
}

int pd_recipe_declare(pd_recipe *recipe, const char *name, double value, pd_error *err)
{
    char text[64];
    int rc = PD_OK;

    snprintf(text, sizeof text, "%.17g", value);
    for (size_t i = 0; rc == PD_OK && i < recipe->n_groups; i++)
        rc = pd_hypers_set(&recipe->groups[i], name, text, err);
    return rc;
}

int pd_recipe_declare_updates(pd_recipe *recipe, const json_t *steps, int64_t n, pd_error *err)
{
    char *text = NULL;
    size_t size, i;
    FILE *out = open_memstream(&text, &size);
    json_t *value;
    int rc = PD_OK;

    if (out == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (int64_t step = 1; step <= n; step++) {
        bool updated = false;
        json_array_foreach(steps, i, value)
        {
            updated = updated || json_integer_value(value) == step;
        }
        fprintf(out, "%s%d", step == 1 ? "table(" : ",", updated);
    }
    if (fprintf(out, ")") < 0 || fclose(out) != 0) rc = pd_fail(err, PD_NO_MEMORY, "out of memory");
    for (i = 0; rc == PD_OK && i < recipe->n_groups; i++)
        rc = pd_hypers_set(&recipe->groups[i], "preconditioner_update_probability", text, err);
    free(text);
    return rc;
}

static bool is_of_meta_2026(const char *system)
{
    return strcmp(system, "meta_kl") == 0 || strcmp(system, "meta_soap") == 0 || strcmp(system, "meta_head") == 0;
}

/* Returns what paramd leaves out of a run; NULL: nothing. */
static const char *left_out(const char *system, const json_t *config)
{
    const char *format = json_string_value(json_object_get(config, "data_format"));

    if (is_of_meta_2026(system)) return pd_recipe_meta_left_out(config);
    if (format == NULL || strcmp(format, "channels_last") != 0 || !json_is_true(json_object_get(config, "merge_dims")))
        return NULL;
    return "merge_dims with data_format channels_last is left out: its averages lie in another order than the weights";
}

/* Translates the recorded word for a way of averaging to the value of the job's option `aggregate`. */
static int name_aggregate(pd_recipe *recipe, const json_t *config, pd_error *err)
{
    const char *variant = json_string_value(json_object_get(config, "variant"));

    if (variant == NULL) return pd_fail(err, PD_UNIMPLEMENTED, "records no averages of gradients");
    if (!json_is_true(json_object_get(config, "adasum")) && strncmp(variant, "mean", 4) == 0)
        recipe->aggregate = "mean";
    else if (strcmp(variant, "adasum_butterfly") == 0)
        recipe->aggregate = "adasum";
    else if (strcmp(variant, "adasum_vdot") == 0)
        recipe->aggregate = "adasum_vdot";
    else
        return pd_fail(err, PD_UNIMPLEMENTED, "aggregate %.64s is not implemented", variant);
    return PD_OK;
}

static int read_aggregate(pd_recipe *recipe, const json_t *config, pd_error *err)
{
    const json_t *split = json_object_get(config, "N_WEIGHTS_SHARDS");
    json_int_t devices = json_integer_value(json_object_get(config, "n_devices")),
               shards = split != NULL ? json_integer_value(split) : 1, n;
    int rc = name_aggregate(recipe, config, err);

    if (rc != PD_OK) return rc;
    if (devices < 1 || shards < 1 || shards > devices || devices % shards != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT,
                       "config: expected n_devices, a multiple of N_WEIGHTS_SHARDS; got %lld and %lld",
                       (long long)devices, (long long)shards);
    n = devices / shards;
    recipe->shards = (int)shards;
    if (strcmp(recipe->aggregate, "adasum") != 0) return PD_OK;
    if (shards > 1 && n > 1)
        recipe->defect = "adasum exchanges gradients of different shards of the weights";
    else if ((n & (n - 1)) != 0)
        return pd_fail(err, PD_INVALID_ARGUMENT, "adasum of %lld replicas: expected 1, 2, 4, 8 or another power of two",
                       (long long)n);
    return PD_OK;
}

int pd_recipe_read(pd_recipe *out, const char *system, const json_t *config, pd_error *err)
{
    const char *key = json_object_get(config, "base") != NULL ? "base" : "optimizer",
               *optimizer = json_string_value(json_object_get(config, key));
    const struct entry *entry = find_entry(system, optimizer);
    const json_t *cast = json_object_get(config, "cast_dtype");
    const pd_optimizer_ops *row;
    json_t *grouped;
    int rc;

    memset(out, 0, sizeof *out);
    if (entry == NULL) return no_entry(system, optimizer, err);
    if ((row = pd_optim_find(entry->name)) == NULL)
        return pd_fail(err, PD_UNIMPLEMENTED, "optimizer %s is not implemented", entry->name);
    out->rate = entry->rate;
    out->left_out = left_out(system, config);
    if (out->left_out != NULL) return PD_OK;
    out->weights_only =
        (json_is_string(cast) && strcmp(json_string_value(cast), "float32") != 0) || pd_recipe_meta_has_bases(config);
    out->zeros = entry->finish == finish_keller;
    if ((grouped = with_groups(config)) == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if (strcmp(system, "distributed_kron") == 0 && json_is_true(json_object_get(config, "normalize_grads")))
        out->defect = "normalize_grads is of release 0.1.0 alone, which does not clip by the RMS";
    rc = read_groups(out, entry, row, grouped, err);
    json_decref(grouped);
    if (rc == PD_OK && entry->finish == finish_average) rc = read_aggregate(out, config, err);
    if (rc == PD_OK) rc = read_declared(out, config, err);
    return rc == PD_OK && contains(entry->execution, "lr_schedule")
               ? read_rates(out, json_object_get(config, "lr_schedule"), err)
               : rc;
}

void pd_recipe_free(pd_recipe *recipe)
{
    for (size_t i = 0; i < recipe->n_groups; i++) pd_hypers_free(&recipe->groups[i]);
    free(recipe->groups);
    json_decref(recipe->members);
    json_decref(recipe->rates);
    json_decref(recipe->axes);
}

char *pd_recipe_rule(const pd_recipe *recipe, size_t group, const char *glob)
{
    const pd_hypers *hypers = &recipe->groups[group];
    size_t count, size;
    const pd_hyper *hyper = pd_optimizer_hypers(hypers->row, &count);
    char *text = NULL, value[64];
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return NULL;
    fprintf(out, "%s %s", glob, pd_optimizer_name(hypers->row));
    for (size_t i = 0; i < count; i++)
        if (hypers->value[i] != hyper[i].preset || (hypers->scheduled >> i & 1) != 0)
            fprintf(out, " %s=%s", hyper[i].name, pd_hypers_text(hypers, (int)i, value, sizeof value));
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

int pd_recipe_take_bases(pd_recipe *recipe, pd_error *err)
{
    int rc = PD_OK;

    for (size_t i = 0; rc == PD_OK && i < recipe->n_groups; i++)
        rc = pd_hypers_set(&recipe->groups[i], "precondition_frequency", "1000000000", err);
    return rc;
}
