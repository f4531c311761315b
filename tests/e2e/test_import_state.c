/* Tests the import of saved optimizer state into a job of the real daemon: training goes on as if the optimizer had run
 * there from the start. */
#include "test.h"
#include "daemon_process.h"
#include "optimizer.h"
#include "quantize.h"
#include "rule.h"
#include "statefile.h"
#include "team.h"

static const int64_t elements[] = { 20 * 12, 12, 4 * 3 * 5 };
static const pd_shape shapes[] = { { 2, { 20, 12 } }, { 1, { 12 } }, { 3, { 4, 3, 5 } } };
static const char *const names[] = { "layers.0.weight", "layers.0.bias", "conv.weight" };
static const char *const axes[] = { NULL, NULL, "layers,height,width" };
enum { PARAMS = 3, LAYERS = 4, BEFORE = 7, AFTER = 6 };

typedef struct local {
    pd_rule *rule;
    size_t n_rules;
    pd_declaration params[PARAMS];
    pd_model *model;
    float *weights[PARAMS], *gradient[PARAMS];
} local;

static void local_new(local *l, const char *text)
{
    char *const rules[] = { (char *)text };
    pd_error err = { 0 };

    if (pd_rules_parse(&l->rule, &l->n_rules, rules, 1, pd_optimizer_table, &err) != PD_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < PARAMS; i++) {
        l->params[i] =
            (pd_declaration){ .name = names[i], .shape = shapes[i], .axes = axes[i], .hypers = l->rule->hypers };
        l->weights[i] = calloc((size_t)elements[i], sizeof(float));
        l->gradient[i] = calloc((size_t)elements[i], sizeof(float));
        fill_gradient(l->weights[i], elements[i], 9, 1, i);
    }
    if (pd_model_new(&l->model, l->params, PARAMS, 1, &err) != PD_OK) fail_msg("%s", err.text);
}

static void local_step(local *l, uint64_t step)
{
    pd_step_io io[PARAMS] = { 0 };
    pd_error err = { 0 };

    for (size_t i = 0; i < PARAMS; i++) {
        fill_gradient(l->gradient[i], elements[i], 0, step, i);
        io[i] = (pd_step_io){ .gradient = l->gradient[i], .before = l->weights[i], .after = l->weights[i] };
    }
    if (pd_model_step(l->model, io, &err) != PD_OK) fail_msg("%s", err.text);
}

static void local_free(local *l)
{
    pd_model_free(l->model);
    for (size_t i = 0; i < PARAMS; i++) {
        free(l->weights[i]);
        free(l->gradient[i]);
    }
    pd_rules_free(l->rule, l->n_rules);
}

static void save_part(saved *s, const local *l, size_t param, const pd_plan *plan, const pd_slot_spec *spec, int block,
                      const char *name)
{
    pd_part part;
    int64_t n = 0;
    double *data;
    pd_error err = { 0 };

    assert_true(pd_plan_part(plan, spec->name, spec->number, block, &part));
    (void)pd_shape_elements(&part.shape, &n);
    assert_non_null(data = malloc((size_t)n * sizeof *data));
    if (pd_model_read_part(l->model, param, spec->name, spec->number, block, data, n, &err) != PD_OK)
        fail_msg("%s: %s", name, err.text);
    save_tensor(s, PD_ST_F64, &part.shape, data, name);
}

static void save_by_our_names(saved *s, const local *l, size_t param, const pd_plan *plan, const pd_slot_spec *spec)
{
    char name[512], slot[128];

    snprintf(name, sizeof name, "%s.%s", names[param], pd_slot_name(spec, slot, sizeof slot));
    save_part(s, l, param, plan, spec, spec->of_block ? spec->block : -1, name);
}

/* Saves a slot under the flat keys of Meta's Shampoo. A slot of a matrix belongs to one block. Any other slot is cut
 * into one tensor for each block. */
static void save_by_flat_keys(saved *s, const local *l, size_t param, const pd_plan *plan, const pd_slot_spec *spec)
{
    char name[512];
    const char *word = strcmp(spec->name, "grafting_second_moment") == 0 ? "adagrad" : spec->name;

    for (size_t b = 0; b < plan->n_blocks; b++) {
        if (spec->of_block && spec->block != (int)b) continue;
        if (spec->of_block)
            snprintf(name, sizeof name, "%s[\"block_%zu\", \"shampoo\", \"%s\", %d, \"quantized_values\"]",
                     names[param], b, spec->name, spec->number);
        else
            snprintf(name, sizeof name, "%s[\"block_%zu\", \"%s\", \"quantized_values\"]", names[param], b, word);
        save_part(s, l, param, plan, spec, (int)b, name);
    }
}

static float *read_floats(const local *l, size_t param, const pd_slot_spec *spec, int64_t *n)
{
    pd_error err = { 0 };
    double *wide;
    float *out;

    (void)pd_shape_elements(&spec->shape, n);
    wide = calloc((size_t)*n + 1, sizeof *wide);
    out = calloc((size_t)*n + 1, sizeof *out);
    if (pd_model_read_part(l->model, param, spec->name, spec->number, spec->of_block ? spec->block : -1, wide, *n,
                           &err) != PD_OK)
        fail_msg("%s", err.text);
    for (int64_t i = 0; i < *n; i++) out[i] = (float)wide[i];
    free(wide);
    return out;
}

/* Saves a slot as a QuantizedValue of Google's Shampoo: codes, a bucket size for each column, and the diagonal if it
 * is stored separately. */
static void save_codes(saved *s, const pd_slot_spec *spec, const float *values, int64_t n, const char *stem)
{
    int64_t rows = spec->shape.dim[0];
    void *memory = aligned_alloc(
        64, ((size_t)pd_quantized_room(spec->storage, spec->diagonal_apart, rows, n / rows) + 63) / 64 * 64);
    pd_quantized q = pd_quantized_at(memory, spec->storage, spec->diagonal_apart, rows, n / rows);
    pd_shape columns = { .rank = spec->shape.rank - 1 };

    for (int d = 1; d < spec->shape.rank; d++) columns.dim[d - 1] = spec->shape.dim[d];
    pd_quantize(&q, values);
    save_as(s, spec->storage == PD_STORE_INT8 ? PD_ST_I8 : PD_ST_I16, &spec->shape, q.codes, stem, "quantized");
    save_as(s, PD_ST_F32, &columns, q.bucket, stem, "bucket_size");
    if (spec->diagonal_apart) save_as(s, PD_ST_F32, &(pd_shape){ 1, { rows } }, q.diagonal, stem, "diagonal");
    free(memory);
}

/* Saves a member of scalable_shampoo's ParameterStats, under a path as jax's keystr() writes it or under a plain
 * path. */
static void save_member(saved *s, const pd_slot_spec *spec, const float *values, int64_t n, const char *param,
                        bool keystr)
{
    bool coded = spec->storage == PD_STORE_INT8 || spec->storage == PD_STORE_INT16;
    char stem[256];

    if (strcmp(spec->name, "inverse_pth_root_errors") == 0)
        snprintf(stem, sizeof stem, keystr ? "[0].stats['%s'].training_metrics.%s" : "stats/%s/training_metrics/%s",
                 param, spec->name);
    else if (spec->number >= 0)
        snprintf(stem, sizeof stem, keystr ? "[0].stats['%s'].%s[%d]%s" : "stats/%s/%s/%d%s", param, spec->name,
                 spec->number,
                 !coded   ? ""
                 : keystr ? "."
                          : "/");
    else
        snprintf(stem, sizeof stem, keystr ? "[0].stats['%s'].%s." : "stats/%s/%s/", param, spec->name);
    if (coded)
        save_codes(s, spec, values, n, stem);
    else
        save_as(s, PD_ST_F32, &spec->shape, values, stem,
                spec->number < 0 && strcmp(spec->name, "inverse_pth_root_errors") != 0 ? "quantized" : "");
}

/* Saves a Kronecker factor, stacked by layer and by block. Only the last parameter has several layers. Without
 * partition_grads_into_blocks there is no block dimension. */
static void save_factor(saved *s, const local *l, size_t param, const pd_slot_spec *spec, const float *values,
                        bool keystr)
{
    bool blocks = l->rule->hypers.value[pd_hypers_find(l->rule->hypers.row, "partition_grads_into_blocks")] != 0;
    int64_t layers = param == PARAMS - 1 ? LAYERS : 1;
    pd_shape stacked = { 0 };
    char stem[256];

    if (layers > 1) stacked.dim[stacked.rank++] = layers;
    if (blocks) stacked.dim[stacked.rank++] = spec->shape.dim[0] / layers;
    for (int d = 1; d < spec->shape.rank; d++) stacked.dim[stacked.rank++] = spec->shape.dim[d];
    snprintf(stem, sizeof stem, keystr ? "[0]['Qs_preconditioners']['%s'][%d]" : "Qs_preconditioners/%s/%d",
             names[param], spec->number);
    save_as(s, PD_ST_F32, &stacked, values, stem, "");
}

/* Saves a member of distributed_kron's state. All parameters have one common counter, which is saved with the last
 * parameter. */
static void save_kron(saved *s, const local *l, size_t param, const pd_slot_spec *spec, const float *values,
                      bool keystr)
{
    char stem[256];
    int32_t counter = (int32_t)values[0];

    if (strcmp(spec->name, "Q") == 0) {
        save_factor(s, l, param, spec, values, keystr);
    } else if (strcmp(spec->name, "mu") == 0) {
        snprintf(stem, sizeof stem, keystr ? "[0]['mu']['%s']" : "mu/%s", names[param]);
        save_as(s, PD_ST_F32, &spec->shape, values, stem, "");
    } else if (param == PARAMS - 1) {
        save_as(s, PD_ST_I32, &(pd_shape){ 0 }, &counter, keystr ? "[0]['update_counter']" : "update_counter", "");
    }
}

static bool is_of(const local *l, const char *optimizer)
{
    return strcmp(pd_optimizer_name(l->rule->hypers.row), optimizer) == 0;
}

static void save_by_paths(saved *s, const local *l, size_t param, const pd_slot_spec *spec, bool keystr)
{
    char stem[256];
    int64_t n;
    float *values = read_floats(l, param, spec, &n);

    snprintf(stem, sizeof stem, keystr ? ".param_states['%s']." : "state/param_states/%s/", names[param]);
    if (is_of(l, "kron"))
        save_kron(s, l, param, spec, values, keystr);
    else if (is_of(l, "adafactor"))
        save_as(s, PD_ST_F32, &spec->shape, values, stem, spec->name);
    else
        save_member(s, spec, values, n, names[param], keystr);
    free(values);
}

static bool has_slot(const pd_plan *plan, const char *name)
{
    for (size_t k = 0; k < plan->n_slots; k++)
        if (strcmp(plan->slots[k].name, name) == 0) return true;
    return false;
}

/* Saves one zero for each metric of scalable_shampoo and each field of adafactor that this state has no slot for.
 * The original optimizers save such zeros too. */
static void save_filling(saved *s, const local *l, const pd_plan *plan, const char *param, bool keystr)
{
    static const char *const fields[] = { "v_row", "v_col", "v", "m" };
    char stem[256];
    float zero = 0;

    snprintf(stem, sizeof stem, keystr ? "[0].stats['%s'].training_metrics." : "stats/%s/training_metrics/", param);
    if (is_of(l, "scalable_shampoo") && !has_slot(plan, "inverse_pth_root_errors"))
        save_as(s, PD_ST_F32, &(pd_shape){ 1, { 1 } }, &zero, stem, "inverse_pth_root_errors");
    snprintf(stem, sizeof stem, keystr ? ".param_states['%s']." : "state/param_states/%s/", param);
    for (int f = 0; f < 4 && is_of(l, "adafactor"); f++)
        if (!has_slot(plan, fields[f])) save_as(s, PD_ST_F32, &(pd_shape){ 1, { 1 } }, &zero, stem, fields[f]);
}

typedef enum spelling { OURS, FLAT, PATHS, KEYSTR, DICTS } spelling;

/* Rewrites paths as jax's keystr() writes those of nested dictionaries: "stats/NAME/momentum" becomes
 * "['stats']['NAME']['momentum']". */
static void respell(saved *s)
{
    for (size_t i = 0; i < s->n; i++) {
        char path[256], *rest = NULL;
        size_t used = 0;
        snprintf(path, sizeof path, "%s", s->name[i]);
        for (char *word = strtok_r(path, "/", &rest); word != NULL; word = strtok_r(NULL, "/", &rest))
            used += (size_t)snprintf(s->name[i] + used, sizeof s->name[i] - used, "['%s']", word);
    }
}

static void save_slot(saved *s, const local *l, size_t param, const pd_plan *plan, const pd_slot_spec *spec,
                      spelling how)
{
    if (how == OURS)
        save_by_our_names(s, l, param, plan, spec);
    else if (how == FLAT)
        save_by_flat_keys(s, l, param, plan, spec);
    else
        save_by_paths(s, l, param, spec, how == KEYSTR);
}

static void save_state(saved *s, const local *l, spelling how)
{
    for (size_t i = 0; i < PARAMS; i++) {
        double stats[PD_MAX_MODEL_STATS];
        pd_plan plan = { 0 };
        pd_error err = { 0 };
        pd_model_stats_of(l->rule->hypers.row, l->params, PARAMS, stats);
        if (pd_plan_make(&plan, &l->params[i], stats, &err) != PD_OK) fail_msg("%s", err.text);
        for (size_t k = 0; k < plan.n_slots; k++)
            if (!plan.slots[k].temporary) save_slot(s, l, i, &plan, &plan.slots[k], how);
        if (how == PATHS || how == KEYSTR) save_filling(s, l, &plan, names[i], how == KEYSTR);
        pd_plan_free(&plan);
    }
}

/* Saves the step counter, for each parameter or once for all. A file with keystr() paths may have it twice, because
 * two members of an optax chain count. */
static void save_counters(saved *s, const local *l, spelling how)
{
    const int64_t count = BEFORE;
    const int32_t narrow = BEFORE;
    bool t5x = is_of(l, "adafactor");

    for (size_t i = 0; i < PARAMS && (how == OURS || how == FLAT); i++)
        save_as(s, PD_ST_I64, &(pd_shape){ 0 }, &count, names[i], "[\"step\"]");
    if (how == PATHS) save_as(s, PD_ST_I32, &(pd_shape){ 0 }, &narrow, t5x ? "state/step" : "count", "");
    if (how == KEYSTR) save_as(s, PD_ST_I32, &(pd_shape){ 0 }, &narrow, t5x ? ".step" : "[0].count", "");
    if (how == KEYSTR && !t5x) save_as(s, PD_ST_I32, &(pd_shape){ 0 }, &narrow, "[1].count", "");
}

/* Writes the state to a file, imports the file into the job "moved", and frees the state. Returns the exit status of
 * paramctl. */
static int import(saved *s, const char *options)
{
    char path[] = "/tmp/paramd_import_XXXXXX";
    int fd = mkstemp(path), status;

    assert_true(fd >= 0);
    write_saved(s, path);
    status = paramctl("import-state %s moved %s", options, path);
    free(s);
    close(fd);
    unlink(path);
    return status;
}

typedef struct remote {
    test_daemon *daemon;
    pd_client *client;
    float *weights[PARAMS];
} remote;

static void remote_new(remote *r, const char *rule, float *const *weights)
{
    const char *const rules[] = { rule, NULL };
    pd_client_param params[PARAMS] = { 0 };
    void *buffers[PARAMS];
    pd_error err = { 0 };

    r->daemon = daemon_start(NULL);
    paramctl_ask(r->daemon->url);
    if (pd_client_open(&r->client,
                       &(pd_client_options){ .urls = r->daemon->url, .job = "moved", .world_size = 1, .rules = rules },
                       &err) != PD_OK)
        fail_msg("%s", err.text);
    for (size_t i = 0; i < PARAMS; i++) {
        params[i] = (pd_client_param){ .name = names[i], .shape = shapes[i], .axes = axes[i] };
        r->weights[i] = malloc((size_t)elements[i] * sizeof(float));
        memcpy(r->weights[i], weights[i], (size_t)elements[i] * sizeof(float));
        buffers[i] = r->weights[i];
    }
    if (pd_client_declare(r->client, params, PARAMS, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_client_init(r->client, buffers, &err) != PD_OK) fail_msg("%s", err.text);
}

static void remote_step(remote *r, uint64_t step)
{
    pd_item items[PARAMS];
    float *gradient[PARAMS];
    pd_ticket_id ticket;
    pd_error err = { 0 };

    for (size_t i = 0; i < PARAMS; i++) {
        gradient[i] = malloc((size_t)elements[i] * sizeof(float));
        fill_gradient(gradient[i], elements[i], 0, step, i);
        items[i] = (pd_item){ .param = i, .gradient = gradient[i], .weights = r->weights[i] };
    }
    if (pd_client_push_pull(r->client, items, PARAMS, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
    if (pd_client_wait(r->client, ticket, 0, &err) != PD_OK) fail_msg("%s", err.text);
    for (size_t i = 0; i < PARAMS; i++) free(gradient[i]);
}

static void remote_free(remote *r)
{
    pd_client_close(r->client);
    for (size_t i = 0; i < PARAMS; i++) free(r->weights[i]);
    assert_int_equal(daemon_stop(r->daemon, patient(10)), 0);
}

static void moves(const char *rule, spelling how)
{
    saved *s = calloc(1, sizeof *s);
    local l = { 0 };
    remote r = { 0 };

    local_new(&l, rule);
    for (uint64_t step = 1; step <= BEFORE; step++) local_step(&l, step);
    save_state(s, &l, how == DICTS ? PATHS : how);
    save_counters(s, &l, how == DICTS ? PATHS : how);
    if (how == DICTS) respell(s);
    remote_new(&r, rule, l.weights);
    if (import(s, "") != 0) fail_msg("%s: %s", rule, paramctl_output);
    assert_says("imported");
    assert_true(daemon_says(r.daemon, "job moved: import-state, by ", patient(5)));
    for (uint64_t step = BEFORE + 1; step <= BEFORE + AFTER; step++) {
        local_step(&l, step);
        remote_step(&r, step);
    }
    for (size_t i = 0; i < PARAMS; i++)
        assert_memory_equal(l.weights[i], r.weights[i], (size_t)elements[i] * sizeof(float));
    remote_free(&r);
    local_free(&l);
}

/* After a reset, a momentum of one step is the gradient: the daemon takes the step that a new optimizer would take. */
TEST(a_reset_begins_the_state_anew_and_leaves_the_weights)
{
    local l = { 0 };
    remote r = { 0 };

    local_new(&l, "* sgd lr=0.05 momentum=0.9");
    remote_new(&r, "* sgd lr=0.05 momentum=0.9", l.weights);
    remote_step(&r, 1);
    assert_int_equal(paramctl("reset-state moved 'no such*'"), 1);
    assert_int_equal(paramctl("reset-state moved '*'"), 0);
    assert_says("the optimizer state of * in job moved has its initial values");
    assert_true(daemon_says(r.daemon, "job moved: reset-state, by ", patient(5)));
    for (size_t i = 0; i < PARAMS; i++) memcpy(l.weights[i], r.weights[i], (size_t)elements[i] * sizeof(float));
    local_step(&l, 2);
    remote_step(&r, 2);
    for (size_t i = 0; i < PARAMS; i++)
        assert_memory_equal(l.weights[i], r.weights[i], (size_t)elements[i] * sizeof(float));
    remote_free(&r);
    local_free(&l);
}

TEST(training_goes_on_bit_for_bit_on_a_daemon_that_gets_the_state)
{
    moves("* sgd lr=0.05 momentum=0.9", OURS);
    moves("* scalable_shampoo learning_rate=0.05 block_size=8 graft_type=ADAGRAD start_preconditioning_step=3", OURS);
    moves("* adam lr=0.01 amsgrad=yes", OURS);
}

HOLDS(shampoos_state_moves_under_metas_flat_keys,
      moves("* shampoo lr=0.05 betas=0.9,0.99 epsilon=1e-4 max_preconditioner_dim=8 momentum=0.5 "
            "precondition_frequency=2 grafting_config=Adam",
            FLAT));

TEST(scalable_shampoos_state_moves_under_paths_into_upstreams)
{
    moves("* scalable_shampoo learning_rate=0.05 block_size=8 graft_type=RMSPROP start_preconditioning_step=3 "
          "preconditioning_compute_steps=2",
          PATHS);
    moves("* scalable_shampoo learning_rate=0.05 block_size=8 graft_type=SQRT_N start_preconditioning_step=3 "
          "skip_preconditioning_dim_size_gt=11",
          KEYSTR);
}

TEST(quantized_state_moves_as_codes_with_what_lies_beside_them)
{
    moves("* scalable_shampoo learning_rate=0.05 block_size=8 graft_type=ADAGRAD start_preconditioning_step=3 "
          "best_effort_memory_usage_reduction=yes",
          PATHS);
    moves("* scalable_shampoo learning_rate=0.05 block_size=8 start_preconditioning_step=3 "
          "best_effort_memory_usage_reduction=yes memory_reduction_scope=momentum",
          KEYSTR);
    moves("* scalable_shampoo learning_rate=0.05 block_size=8 start_preconditioning_step=3 "
          "best_effort_memory_usage_reduction=yes",
          DICTS);
}

TEST(adafactors_state_moves_with_a_zero_for_each_field_that_is_not_kept)
{
    moves("* adafactor learning_rate=0.01 min_dim_size_to_factor=8 beta1=0.9 "
          "factor_map=['conv':(BATCH,ROW,COLUMN),'.*':HEURISTIC]",
          PATHS);
    moves("* adafactor learning_rate=0.01 factored=no", KEYSTR);
}

TEST(krons_state_moves_with_its_factors_stacked_as_upstream_has_them)
{
    moves("* kron learning_rate=0.01 block_size=8 preconditioner_update_probability=0.5", PATHS);
    moves("* kron learning_rate=0.01 partition_grads_into_blocks=no merge_small_dims=no memory_save_mode=one_diag "
          "preconditioner_update_probability=0.3",
          KEYSTR);
    moves("* kron learning_rate=0.01 b1=0 block_size=4", KEYSTR);
}

/* Adds a counter of the parameter to the saved state, as paramctl export names it. */
static void save_zero_count(saved *s, const char *param)
{
    char name[300];

    snprintf(name, sizeof name, "%s.step", param);
    save_tensor(s, PD_ST_I64, &(pd_shape){ 0 }, calloc(1, sizeof(int64_t)), name);
}

TEST(a_parameter_without_a_gradient_yet_needs_its_counter_alone)
{
    saved *s = calloc(1, sizeof *s);
    local fresh = { 0 };
    remote r = { 0 };

    local_new(&fresh, "* adam");
    for (size_t i = 0; i < PARAMS; i++) save_zero_count(s, names[i]);
    remote_new(&r, "* adam", fresh.weights);
    if (import(s, "") != 0) fail_msg("%s", paramctl_output);
    assert_says("and 3 counters");
    for (uint64_t step = 1; step <= 2; step++) {
        local_step(&fresh, step);
        remote_step(&r, step);
    }
    for (size_t i = 0; i < PARAMS; i++)
        assert_memory_equal(fresh.weights[i], r.weights[i], (size_t)elements[i] * sizeof(float));
    remote_free(&r);
    local_free(&fresh);
}

TEST(what_is_unknown_or_missing_is_listed_and_nothing_is_loaded)
{
    static const char rule[] = "* sgd lr=0.05 momentum=0.9";
    saved *s = calloc(1, sizeof *s);
    local l = { 0 }, fresh = { 0 };
    remote r = { 0 };
    double *data = calloc(12, sizeof *data);

    local_new(&l, rule);
    local_new(&fresh, rule);
    local_step(&l, 1);
    save_state(s, &l, OURS);
    free(s->data[s->n - 1]);
    s->n--; /* removes the momentum of conv.weight from the saved state */
    save_tensor(s, PD_ST_F64, &shapes[1], data, "layers.1.bias.momentum_buffer");
    remote_new(&r, rule, fresh.weights);
    assert_int_equal(import(s, ""), 1);
    assert_says("unknown  layers.1.bias.momentum_buffer\n");
    assert_says("missing  conv.weight.momentum");
    assert_says("nothing imported");
    for (uint64_t step = 1; step <= 2; step++) {
        local_step(&fresh, step);
        remote_step(&r, step);
    }
    for (size_t i = 0; i < PARAMS; i++)
        assert_memory_equal(fresh.weights[i], r.weights[i], (size_t)elements[i] * sizeof(float));
    remote_free(&r);
    local_free(&l);
    local_free(&fresh);
}

/* Imports with --partial a file that has only the tensor `name`, and a second tensor `beside` unless that is NULL.
 * Returns the exit status of paramctl. */
static int import_one(pd_st_dtype dtype, pd_shape shape, const char *name, const void *beside)
{
    static const uint8_t zeros[4096];
    saved *s = calloc(1, sizeof *s);

    save_as(s, dtype, &shape, zeros, name, "");
    if (beside != NULL) save_as(s, PD_ST_F32, &(pd_shape){ 1, { 5 } }, zeros, beside, "");
    return import(s, "--partial");
}

static void assert_unknown(pd_st_dtype dtype, pd_shape shape, const char *name, const char *beside)
{
    char says[256];

    assert_int_equal(import_one(dtype, shape, name, beside), 1);
    snprintf(says, sizeof says, "unknown  %s", name);
    assert_says(says);
}

TEST(what_is_not_as_upstream_has_it_is_unknown)
{
    static const char rule[] = "* scalable_shampoo learning_rate=0.05 block_size=8 "
                               "best_effort_memory_usage_reduction=yes skip_preconditioning_dim_size_gt=11";
    local l = { 0 };
    remote r = { 0 };

    local_new(&l, rule);
    remote_new(&r, rule, l.weights);
    assert_unknown(PD_ST_I8, (pd_shape){ 2, { 20, 12 } }, "stats/layers.0.weight/momentum/quantized",
                   NULL); /* the file has codes without their bucket sizes */
    assert_unknown(PD_ST_I8, (pd_shape){ 2, { 20, 12 } }, "stats/layers.0.weight/momentum/quantized",
                   "stats/layers.0.weight/momentum/bucket_size");
    assert_unknown(PD_ST_I8, (pd_shape){ 0 }, "stats/layers.0.weight/momentum/quantized",
                   "stats/layers.0.weight/momentum/bucket_size");
    assert_unknown(PD_ST_I32, (pd_shape){ 2, { 20, 12 } }, "stats/layers.0.weight/momentum/quantized", NULL);
    assert_unknown(PD_ST_F32, (pd_shape){ 1, { 2 } }, "stats/layers.0.weight/training_metrics/inverse_pth_root_errors",
                   NULL);
    assert_unknown(PD_ST_I32, (pd_shape){ 1, { 2 } }, "count", NULL);
    assert_int_equal(import_one(PD_ST_F32, (pd_shape){ 3, { 2, 8, 8 } }, "stats/global_stats/statistics", NULL), 1);
    assert_says("unknown  stats/global_stats/statistics: stacked matrices of the sharded mode");
    remote_free(&r);
    local_free(&l);
}

TEST(counters_that_differ_are_not_loaded)
{
    static const char rule[] = "* sgd lr=0.05 momentum=0.9";
    saved *s = calloc(1, sizeof *s);
    const int32_t counts[] = { 7, 8 };
    local l = { 0 };
    remote r = { 0 };

    local_new(&l, rule);
    save_state(s, &l, OURS);
    for (int i = 0; i < 2; i++) save_as(s, PD_ST_I32, &(pd_shape){ 0 }, &counts[i], i == 0 ? "0/count" : "1/count", "");
    remote_new(&r, rule, l.weights);
    assert_int_equal(import(s, ""), 1);
    assert_says("/count");
    assert_says("nothing imported");
    remote_free(&r);
    local_free(&l);
}

TEST(factors_that_are_stacked_otherwise_are_refused)
{
    static const char rule[] = "* kron learning_rate=0.01 block_size=8 merge_small_dims=no";
    local l = { 0 };
    remote r = { 0 };

    local_new(&l, rule);
    remote_new(&r, rule, l.weights);
    assert_int_equal(import_one(PD_ST_F32, (pd_shape){ 3, { 8, 6, 8 } }, "Qs_preconditioners/layers.0.weight/0", NULL),
                     1);
    if (strstr(paramctl_output, "Q") == NULL || strstr(paramctl_output, "imported 1") != NULL)
        fail_msg("%s", paramctl_output);
    remote_free(&r);
    local_free(&l);
}

TEST(one_number_comes_as_a_scalar_or_as_a_list_of_one)
{
    static const char rule[] = "* nadam lr=0.01";
    local l = { 0 };
    remote r = { 0 };

    local_new(&l, rule);
    remote_new(&r, rule, l.weights);
    for (int rank = 0; rank < 2; rank++)
        if (import_one(PD_ST_F32, (pd_shape){ rank, { rank } }, "layers.0.bias.mu_product", NULL) != 0)
            fail_msg("%s", paramctl_output);
    remote_free(&r);
    local_free(&l);
}
