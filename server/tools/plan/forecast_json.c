/* forecast_json.c - paramctl plan --json: prints all data of a forecast.
 *
 * Each entry of `params` names its entry in `kinds` by index. The bytes and operations in `kinds` are for one
 * parameter; those in `rules` and `total` are sums. */
#include "forecast.h"

static json_t *dims_json(const int64_t *dim, int rank)
{
    json_t *list = json_array();

    for (int d = 0; d < rank; d++) json_array_append_new(list, json_integer(dim[d]));
    return list;
}

static json_t *slot_json(const pd_slot_spec *spec)
{
    json_t *object = json_pack("{s:s, s:o, s:s, s:b, s:b, s:I}", "name", spec->name, "shape",
                               dims_json(spec->shape.dim, spec->shape.rank), "storage", pd_storage_name(spec->storage),
                               "diagonal_apart", spec->diagonal_apart, "temporary", spec->temporary, "bytes",
                               (json_int_t)pd_slot_bytes(spec));

    json_object_set_new(object, "follows", spec->follows_known ? json_array() : json_null());
    for (int d = 0; spec->follows_known && d < spec->shape.rank; d++)
        json_array_append_new(json_object_get(object, "follows"),
                              spec->follows[d] < 0 ? json_null() : json_integer(spec->follows[d]));
    if (spec->of_block) json_object_set_new(object, "block", json_integer(spec->block));
    if (spec->number >= 0) json_object_set_new(object, "number", json_integer(spec->number));
    return object;
}

/* Lists slots that a task reads or writes, by their index in the plan's list of slots. */
static json_t *indices_json(const int *slot, int n)
{
    json_t *list = json_array();

    for (int k = 0; k < n; k++) json_array_append_new(list, json_integer(slot[k]));
    return list;
}

static json_t *task_json(const pd_task_spec *spec)
{
    return json_pack("{s:o, s:o, s:f, s:f, s:I}", "inputs", indices_json(spec->input, spec->n_inputs), "outputs",
                     indices_json(spec->output, spec->n_outputs), "exponent", spec->exponent, "flops", spec->cost,
                     "scratch_bytes", (json_int_t)spec->scratch);
}

static json_t *due_json(const pd_kind *kind)
{
    json_t *steps = json_array(), *object;

    for (int i = 0; i < kind->n_due; i++) json_array_append_new(steps, json_integer(kind->due[i]));
    object = json_pack("{s:o, s:I, s:b}", "steps", steps, "interval", (json_int_t)pd_kind_interval(kind), "goes_on",
                       kind->goes_on);
    json_object_set_new(object, "root_delay",
                        kind->plan.root_delay == PD_ROOT_READY ? json_string("ready")
                                                               : json_integer(kind->plan.root_delay));
    return object;
}

/* Returns a number of bytes as JSON. JSON integers are signed here, so larger numbers become INT64_MAX. */
static json_t *bytes_json(uint64_t bytes)
{
    return json_integer(bytes > INT64_MAX ? INT64_MAX : (json_int_t)bytes);
}

/* Describes a kind: the plan, and the costs of one parameter. */
static json_t *kind_json(const pd_forecast *f, const pd_kind *kind)
{
    const pd_plan *plan = &kind->plan;
    char text[32];
    json_t *blocks = json_array(), *slots = json_array(), *tasks = json_array(), *object;

    for (size_t b = 0; b < plan->n_blocks; b++)
        json_array_append_new(blocks,
                              json_pack("{s:o, s:o}", "start", dims_json(plan->blocks[b].start, plan->shape.rank),
                                        "size", dims_json(plan->blocks[b].size, plan->shape.rank)));
    for (size_t s = 0; s < plan->n_slots; s++) json_array_append_new(slots, slot_json(&plan->slots[s]));
    for (size_t t = 0; t < plan->n_tasks; t++) json_array_append_new(tasks, task_json(&plan->tasks[t]));
    object = json_pack("{s:s, s:i, s:I, s:o, s:I, s:o, s:o, s:o, s:o}", "optimizer",
                       pd_optimizer_name(kind->rule->hypers.row), "rule", (int)(kind->rule - f->rules), "params",
                       (json_int_t)kind->params, "shape", dims_json(kind->shape.dim, kind->shape.rank), "elements",
                       (json_int_t)kind->elements, "merged", dims_json(plan->shape.dim, plan->shape.rank), "blocks",
                       blocks, "slots", slots, "tasks", tasks);
    if (object == NULL) return NULL;
    json_object_update_new(
        object, json_pack("{s:I, s:I, s:I, s:I, s:f, s:f}", "state_bytes", (json_int_t)kind->state_bytes, "step_bytes",
                          (json_int_t)kind->step_bytes, "thread_bytes", (json_int_t)kind->thread_bytes, "task_bytes",
                          (json_int_t)kind->task_bytes, "flops", plan->flops, "task_flops", kind->task_flops));
    json_object_set_new(object, "aggregate", json_string(pd_aggregation_text(kind->how, text, sizeof text)));
    json_object_set_new(object, "collect_bytes", bytes_json(kind->need.collected));
    if (plan->n_tasks > 0) json_object_set_new(object, "due", due_json(kind));
    if (kind->axes != NULL) json_object_set_new(object, "axes", json_string(kind->axes));
    if (plan->note[0] != '\0') json_object_set_new(object, "note", json_string(plan->note));
    return object;
}

/* Lists how many bytes the daemon counts for a job or parameter, by purpose. */
static json_t *need_json(const pd_footprint *need)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "weights", bytes_json(need->weights), "sums",
                     bytes_json(need->sums), "collected", bytes_json(need->collected), "state", bytes_json(need->state),
                     "roots", bytes_json(need->roots), "temporaries", bytes_json(need->step), "records",
                     bytes_json(need->records), "job", bytes_json(need->job), "checkpoint", bytes_json(need->kept),
                     "all", bytes_json(pd_footprint_sum(need)));
}

static json_t *sum_json(const pd_forecast_sum *sum)
{
    json_t *object =
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f}", "params", (json_int_t)sum->params,
                  "elements", (json_int_t)sum->elements, "weight_bytes", (json_int_t)sum->weight_bytes, "state_bytes",
                  (json_int_t)sum->state_bytes, "step_bytes", (json_int_t)sum->step_bytes, "thread_bytes",
                  (json_int_t)sum->thread_bytes, "task_bytes", (json_int_t)sum->task_bytes, "blocks",
                  (json_int_t)sum->blocks, "tasks", (json_int_t)sum->tasks, "flops", sum->flops, "task_flops",
                  sum->task_flops, "task_flops_per_step", sum->task_flops_per_step);

    json_object_set_new(object, "memory", need_json(&sum->need));
    return object;
}

static json_t *job_json(const pd_forecast *f)
{
    json_t *options = json_object();
    char text[32];

    for (int k = 0; k < PD_JOB_KEYS; k++)
        json_object_set_new(
            options, pd_job_keys[k].name,
            json_string(pd_job_values_text(&f->job.values, (enum pd_job_key_index)k, text, sizeof text)));
    return json_pack("{s:I, s:o, s:i, s:i}", "workers", (json_int_t)f->job.world, "options", options, "step_threads",
                     f->job.threads, "pool_threads", f->job.pool_threads);
}

static json_t *rule_json(const pd_forecast *f, size_t r)
{
    const pd_optimizer_ops *row = f->rules[r].hypers.row;
    json_t *stats = json_object(), *object = sum_json(&f->of_rule[r]);

    for (size_t k = 0; row->stats != NULL && row->stats[k].name != NULL; k++)
        json_object_set_new(stats, row->stats[k].name, json_real(f->stats[r][k]));
    json_object_set_new(object, "rule", json_string(f->rules[r].text));
    json_object_set_new(object, "facts", stats);
    return object;
}

json_t *pd_forecast_json(const pd_forecast *f)
{
    json_t *params = json_array(), *kinds = json_array(), *rules = json_array(), *total = sum_json(&f->all);

    for (size_t i = 0; i < f->shapes->n; i++)
        json_array_append_new(
            params, json_pack("{s:s, s:i}", "name", f->shapes->entries[i].name, "kind", (int)(f->kind[i] - f->kinds)));
    for (size_t k = 0; k < f->n_kinds; k++) json_array_append_new(kinds, kind_json(f, &f->kinds[k]));
    for (size_t r = 0; r < f->n_rules; r++) json_array_append_new(rules, rule_json(f, r));
    json_object_set_new(json_object_get(total, "memory"), "checkpoint_if_durable", bytes_json(f->if_durable));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:I}", "params", params, "kinds", kinds, "rules", rules, "total",
                     total, "job", job_json(f), "largest", f->shapes->entries[f->largest].name, "left_out",
                     (json_int_t)f->shapes->left_out);
}
