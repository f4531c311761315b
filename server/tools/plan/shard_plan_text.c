/* shard_plan_text.c - prints how a model is spread over the daemons of a cluster, as text and as JSON. */
#include <inttypes.h>
#include <math.h>

#include "format.h"
#include "shard_plan.h"
#include "text_table.h"

static void add_row(pd_table *table, const pd_shard_plan *s)
{
    char text[PD_CELL];

    pd_table_cell(table, "%u", s->shards);
    pd_table_cell(table, "%s", pd_bytes_text(text, s->memory));
    pd_table_cell(table, "%s", pd_bytes_text(text, (uint64_t)s->traffic));
    pd_table_cell_if(table, s->step_flops > 0, "%s", pd_flops_text(text, s->step_flops));
    pd_table_cell_if(table, s->root_flops > 0, "%s", pd_flops_text(text, s->root_flops));
    pd_table_cell(table, "%s", pd_seconds_text(text, s->step_s));
    pd_table_cell(table, "%.2f", s->skew.over_mean);
    if (s->empty < s->shards)
        pd_table_cell(table,
                      s->fragments ? "refused: too few fragments (--fragments)" : "refused: %zu portions are too few",
                      s->portions);
    else if (s->shards == 1 || s->skew.over_mean < 1.005)
        pd_table_cell(table, "-");
    else
        pd_table_cell(table, "%s of %s", pd_load_name(s->skew.load), s->cause);
}

int pd_shard_plan_print(const pd_shard_plan *spreads, size_t n, const pd_shard_plan_uncut *uncut, const pd_forecast *f,
                        const pd_speeds *speeds, FILE *out, pd_error *err)
{
    pd_table *table = pd_table_new(">SHARDS|>MEMORY|>TRAFFIC|>STEP|>ROOTS|>TIME|>SKEW|&CAUSE");
    char a[PD_CELL];

    for (size_t i = 0; table != NULL && i < n; i++) add_row(table, &spreads[i]);
    pd_table_limit(table, pd_table_default_limit());
    if (pd_table_print(table, out, "no daemons") != PD_OK) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    fprintf(out,
            "Each row is the shard that has most; TRAFFIC is of %u worker%s in a step. TIME is that of traffic at %s "
            "MB/s,\nsteps and roots at %.0f Gflop/s a thread (%d + %d threads), one after the other.\n",
            f->job.world, f->job.world == 1 ? "" : "s", pd_count_text(a, (uint64_t)(speeds->payload / 1e6)),
            speeds->flops / 1e9, f->job.threads, f->job.pool_threads);
    if (uncut->name != NULL)
        pd_print_line(out, "%s (%s) is not cut: %s", uncut->name,
                      pd_bytes_text(a, (uint64_t)uncut->elements * sizeof(float)), pd_uncut_text(uncut->why));
    return PD_OK;
}

static json_t *one_json(const pd_shard_plan *s)
{
    char map[24];

    snprintf(map, sizeof map, "%016" PRIx64, s->map);
    return json_pack("{s:I, s:I, s:b, s:I, s:f, s:f, s:f, s:f, s:f, s:s, s:s, s:s}", "shards", (json_int_t)s->shards,
                     "portions", (json_int_t)s->portions, "refused", s->empty < s->shards, "memory",
                     (json_int_t)s->memory, "traffic", s->traffic, "step_flops", s->step_flops, "root_flops_per_step",
                     s->root_flops, "seconds", s->step_s, "skew", s->skew.over_mean, "skew_of",
                     pd_load_name(s->skew.load), "cause", s->cause, "map", map);
}

json_t *pd_shard_plan_json(const pd_shard_plan *spreads, size_t n, const pd_shard_plan_uncut *uncut)
{
    json_t *list = json_array();

    for (size_t i = 0; i < n; i++) json_array_append_new(list, one_json(&spreads[i]));
    return json_pack("{s:o, s:o}", "shard_plans", list, "uncut",
                     uncut->name != NULL
                         ? json_pack("{s:s, s:s}", "name", uncut->name, "why", pd_uncut_text(uncut->why))
                         : json_null());
}
