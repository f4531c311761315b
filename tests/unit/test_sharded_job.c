/* Tests a job whose ranks declare it to several shards: the portions on the shards become what the parameters become in
 * one store, to the bit; a shard that starts again has its portions; and Declares that do not fit are refused. */
#include "test.h"
#include "cluster.h"
#include "store_inside.h"
#include "whole.h"

enum { STEPS = 20 };

#define CUT " split_bytes=512KiB"

/* Makes the rig of one shard, to which nobody has said Hello. */
static rig *bare_shard(uint32_t shard, uint32_t shards)
{
    pd_store_config config = cluster_config();
    rig *r = calloc(1, sizeof *r);

    rig_new(r, &config);
    r->shard = shard;
    r->shards = shards;
    r->cluster = shard > 0 ? 77 : 0;
    return r;
}

static void take_steps(cluster *c, uint64_t from, uint64_t to)
{
    for (uint64_t step = from; step <= to; step++) cluster_step(c, step, 0, -1);
}

/* Trains on n shards and in one store. `cut`: on how many shards the large matrix must lie. */
static void train(uint32_t n, const cluster_model *model, const char *options, const char *rules, uint32_t cut)
{
    pd_store_config config = cluster_config();
    cluster c;

    cluster_start(&c, n, 2, &config, model, options, rules);
    assert_in_range(cluster_spread_of(&c, 0), cut, cut == 1 ? 1 : n);
    take_steps(&c, 1, STEPS);
    cluster_assert_same(&c, STEPS);
    cluster_free(&c);
}

TEST(momentum_has_the_bits_of_one_store)
{
    const char *rules = "* sgd lr=0.05 momentum=0.9 nesterov=true";

    train(2, cluster_small_model(), "nonfinite_scope=job" CUT, rules, 2);
    train(3, cluster_small_model(), "nonfinite_scope=job" CUT, rules, 2);
    train(2, cluster_small_model(), "nonfinite_scope=parameter" CUT, rules, 1);
}

TEST(adamw_has_the_bits_of_one_store)
{
    train(2, cluster_small_model(), "nonfinite_scope=job" CUT, "* adamw lr=0.01", 2);
    train(3, cluster_small_model(), "clip_global_norm=1 aggregate=weighted_mean" CUT, "* adamw lr=0.01", 2);
    train(3, cluster_small_model(), "nonfinite_scope=parameter" CUT, "* adamw lr=0.01", 1);
}

TEST(shampoo_has_the_bits_of_one_store)
{
    train(3, cluster_small_model(), "nonfinite_scope=job" CUT,
          "* shampoo lr=0.01 max_preconditioner_dim=128 precondition_frequency=8 start_preconditioning_step=8 "
          "grafting_config=Adam",
          2);
}

TEST(kron_and_adafactor_lie_whole_and_have_the_bits_of_one_store)
{
    train(2, cluster_small_model(), "nonfinite_scope=job" CUT,
          "wte adafactor learning_rate=0.01;* kron learning_rate=0.01", 1);
    train(3, cluster_small_model(), "nonfinite_scope=parameter" CUT,
          "wte kron learning_rate=0.01;* adafactor learning_rate=0.01", 1);
}

TEST(ranges_of_ranks_are_cut_with_the_parameter)
{
    cluster_model model = *cluster_small_model();

    model.ranged = true;
    train(3, &model, "nonfinite_scope=job" CUT, "* adamw lr=0.01", 2);
    train(2, &model, "clip_global_norm=0.5 aggregate=sum" CUT, "* sgd lr=0.05 momentum=0.9", 2);
    train(2, &model, "nonfinite_scope=parameter" CUT, "* adamw lr=0.01", 1);
}

/* ---- sets of ranks that are open ---- */

#define OPEN "min_workers=1 max_workers=2" CUT

/* A model in three fragments. */
static cluster_model in_fragments(void)
{
    cluster_model model = *cluster_small_model();

    for (size_t p = 0; p < model.n; p++) model.fragments[p] = (uint32_t)p % 3;
    return model;
}

TEST(fragments_of_open_sets_have_the_bits_of_one_store)
{
    cluster_model model = in_fragments();

    train(2, &model, OPEN, "* sgd lr=0.05 momentum=0.9 nesterov=true", 1);
    train(3, &model, OPEN, "* adamw lr=0.01", 1);
    train(3, &model, OPEN " aggregate=median", "* sgd lr=0.05", 1);
}

TEST(a_fragment_of_open_sets_lies_whole_on_one_shard_and_fragment_0_on_shard_0)
{
    cluster_model model = in_fragments();
    pd_store_config config = cluster_config();
    uint32_t of[3] = { 0, UINT32_MAX, UINT32_MAX };
    cluster c;

    cluster_start(&c, 2, 1, &config, &model, OPEN, "* adamw lr=0.01");
    assert_int_equal(c.shard[0]->n_places, model.n);
    for (size_t k = 0; k < model.n; k++) {
        uint32_t *shard = &of[model.fragments[c.shard[0]->places[k].param]];
        if (*shard == UINT32_MAX) *shard = c.shard[0]->places[k].shard;
        assert_int_equal(c.shard[0]->places[k].shard, *shard);
    }
    cluster_free(&c);
}

TEST(a_median_and_an_average_of_initial_weights_are_those_of_one_store)
{
    train(2, cluster_small_model(), "nonfinite_scope=job aggregate=median" CUT, "* sgd lr=0.05", 2);
    train(2, cluster_small_model(), "nonfinite_scope=job aggregate=adasum" CUT, "* sgd lr=0.05", 1);
}

TEST(a_step_that_one_shard_must_skip_is_skipped_by_all)
{
    pd_store_config config = cluster_config();
    cluster c;

    cluster_start(&c, 3, 2, &config, cluster_small_model(), "nonfinite_scope=job clip_global_norm=1" CUT,
                  "* adamw lr=0.01");
    take_steps(&c, 1, 3);
    cluster_step(&c, 4, 0, 0); /* the last portion of wte has the NaN */
    cluster_step(&c, 5, 1 << 0 | 1 << 2, -1);
    cluster_step(&c, 6, 0, 2);
    take_steps(&c, 7, 9);
    cluster_assert_same(&c, 9);
    cluster_free(&c);
}

TEST(a_declare_is_spread_in_parts_of_bounded_time)
{
    pd_store_config config = cluster_config();
    uint64_t map;
    cluster c;

    cluster_start(&c, 3, 1, &config, cluster_small_model(), "nonfinite_scope=job" CUT, "* adamw lr=0.01");
    map = c.shard[0]->map;
    cluster_free(&c);
    config.batch_ns = 1000;
    cluster_start(&c, 3, 1, &config, cluster_small_model(), "nonfinite_scope=job" CUT, "* adamw lr=0.01");
    assert_true(c.shard[0]->map == map);
    take_steps(&c, 1, 2);
    cluster_assert_same(&c, 2);
    cluster_free(&c);
}

static pd_request *declare_request(rig *r, const cluster_model *model)
{
    pd_request *request = pd_request_new(PD_REQ_DECLARE, rig_ticket(r, CLUSTER_CONN));

    request->job = r->job;
    request->u.declare.n = model->n;
    request->u.declare.params = calloc(model->n, sizeof(pd_param_decl));
    for (size_t p = 0; p < model->n; p++)
        request->u.declare.params[p] = (pd_param_decl){ .name = strdup(model->names[p]),
                                                        .shape = model->shapes[p],
                                                        .pull_dtype = PD_F32,
                                                        .model_state = model->states[p] };
    return request;
}

/* Makes a shard, and lets a rank declare, while the n-th allocation of the store fails. Returns whether there was
 * one. */
static bool declare_without_memory(int64_t n, int *refused)
{
    cluster c = { .n = 2,
                  .world = 1,
                  .model = cluster_small_model(),
                  .options = "nonfinite_scope=job" CUT,
                  .rules = "* adamw lr=0.01" };
    rig *r = bare_shard(1, 2);
    pd_request *request;
    bool failed;

    assert_int_equal(cluster_hello(&c, r, 0), PD_OK);
    request = declare_request(r, c.model);
    r->error.code = PD_OK;
    oom_arm(n);
    pd_store_apply(r->store, request, r->now);
    while (pd_store_work(r->store, r->now)) continue;
    failed = oom_disarm();
    rig_absorb(r);
    if (r->error.code != PD_OK) {
        assert_int_equal(r->error.code, PD_NO_MEMORY);
        assert_int_equal(inside_job(r->store, r->job)->steps.account.used, 0);
        assert_null(inside_job(r->store, r->job)->whole);
        assert_int_equal(cluster_declare(&c, r, 0), PD_OK);
        ++*refused;
    }
    assert_true(r->map != 0);
    rig_free(r);
    free(r);
    return failed;
}

TEST(a_declare_without_memory_leaves_nothing)
{
    int refused = 0;

    for (int64_t n = 0; declare_without_memory(n, &refused); n++) continue;
    assert_true(refused > 50);
}

/* ---- a shard starts again ---- */

static pd_store_config durable(void)
{
    pd_store_config config = cluster_config();

    config.keeps = true;
    return config;
}

/* Makes a checkpoint, and starts the store again from it. */
static void crash(rig *r, const pd_store_config *config)
{
    assert_int_equal(rig_checkpoint(r, "job", 1, 0, 30), PD_OK);
    rig_work(r);
    rig_crash(r, config);
}

static void return_ranks(cluster *c, rig *r)
{
    r->cluster = c->number;
    for (uint32_t rank = 0; rank < c->world; rank++)
        if (cluster_join(c, r, rank) != PD_OK) fail_msg("%s", r->error.text);
}

static void restart_shard(const cluster_model *model, const char *options, const char *rules)
{
    pd_store_config config = durable();
    uint64_t map, life, number;
    cluster c;

    cluster_start(&c, 3, 2, &config, model, options, rules);
    take_steps(&c, 1, 6);
    for (uint32_t i = 0; i < 3; i++) {
        map = c.shard[i]->map;
        life = c.shard[i]->life;
        number = c.shard[i]->in_cluster;
        crash(c.shard[i], &config);
        c.shard[i]->shard = i;
        c.shard[i]->shards = 3;
        return_ranks(&c, c.shard[i]);
        assert_true(c.shard[i]->map == map);
        assert_true(c.shard[i]->in_cluster == number);
        assert_true(c.shard[i]->life != life);
        assert_false(c.shard[i]->created);
        assert_false(c.shard[i]->must_init);
        cluster_forget(&c, i, 7);
    }
    take_steps(&c, 7, 12);
    cluster_assert_same(&c, 12);
    cluster_free(&c);
}

TEST(a_shard_that_starts_again_has_its_portions)
{
    restart_shard(cluster_small_model(), "nonfinite_scope=job durability=checkpoint checkpoint_every=0" CUT,
                  "* adamw lr=0.01");
}

TEST(a_shard_that_starts_again_has_its_ranges)
{
    cluster_model model = *cluster_small_model();

    model.ranged = true;
    restart_shard(&model, "nonfinite_scope=job durability=checkpoint checkpoint_every=0" CUT,
                  "b* kron learning_rate=0.01;* adamw lr=0.01");
}

TEST(a_shard_that_starts_again_has_its_fragments)
{
    cluster_model model = in_fragments();

    restart_shard(&model, OPEN " durability=checkpoint checkpoint_every=0", "* adamw lr=0.01");
}

TEST(a_restored_shard_keeps_its_map)
{
    pd_store_config config = durable();
    cluster c;
    pd_job *job;
    uint64_t map;
    uint32_t on;

    cluster_start(&c, 2, 1, &config, cluster_small_model(), "nonfinite_scope=job durability=checkpoint" CUT,
                  "* adamw lr=0.01");
    job = inside_job(c.shard[1]->store, c.shard[1]->job);
    /* Another version has made another map. */
    map = job->steps.map = job->whole->map.fingerprint ^ 1;
    job->whole->map.fingerprint = map;
    on = job->whole->map.portions[0].shard;
    take_steps(&c, 1, 2);
    crash(c.shard[1], &config);
    c.shard[1]->shard = 1;
    c.shard[1]->shards = 2;
    return_ranks(&c, c.shard[1]);
    assert_true(c.shard[1]->map == map);
    assert_int_equal(c.shard[1]->places[0].shard, on);
    cluster_free(&c);
}

static void continue_with_one_rank(const cluster_model *model)
{
    pd_store_config config = durable();
    cluster c;
    uint64_t map;

    cluster_start(&c, 2, 2, &config, model, "nonfinite_scope=job durability=checkpoint checkpoint_every=0" CUT,
                  "* adamw lr=0.01");
    take_steps(&c, 1, 4);
    map = c.shard[0]->map;
    for (uint32_t i = 0; i <= 2; i++) {
        rig *r = i < 2 ? c.shard[i] : c.whole;
        crash(r, &config);
        r->shard = i < 2 ? i : 0;
        r->shards = i < 2 ? 2 : 0;
        r->cluster = i < 2 ? c.number : 0;
    }
    c.world = 1;
    for (uint32_t i = 0; i <= 2; i++) {
        rig *r = i < 2 ? c.shard[i] : c.whole;
        assert_int_equal(rig_hello(r, "job", 0, 1, 77, CLUSTER_CONN, c.options, c.rules), PD_OK);
        assert_int_equal(cluster_declare(&c, r, 0), PD_OK);
        if (i < 2) assert_true(r->map == map);
        if (i < 2) cluster_forget(&c, i, 5);
    }
    take_steps(&c, 5, 8);
    cluster_assert_same(&c, 8);
    cluster_free(&c);
}

TEST(a_shard_continues_with_another_number_of_ranks)
{
    cluster_model ranged = *cluster_small_model();

    ranged.ranged = true;
    continue_with_one_rank(cluster_small_model());
    continue_with_one_rank(&ranged);
}

/* ---- names ---- */

TEST(names_of_portions_are_numbered_and_marked)
{
    pd_store_config config = cluster_config();
    uint32_t cut = 0, marked = 0;
    cluster c;

    cluster_start(&c, 2, 1, &config, cluster_small_model(), "nonfinite_scope=job" CUT, "* sgd lr=1");
    for (uint32_t i = 0; i < 2; i++) {
        const pd_job *job = inside_job(c.shard[i]->store, c.shard[i]->job);
        for (uint32_t p = 0; p < job->steps.n_params; p++) {
            const pd_param *param = &job->steps.params[p];
            cut += strncmp(param->name, "wte#", 4) == 0;
            marked += strcmp(param->name, "b##1") == 0;
            assert_string_equal(param->declared_name, c.model->names[param->declared]);
            assert_int_equal(param->cut, strncmp(param->name, "wte#", 4) == 0);
            assert_int_equal(param->portions, param->cut ? 3 : 1);
        }
    }
    assert_int_equal(cut, 3);
    assert_int_equal(marked, 1);
    cluster_free(&c);
}

TEST(a_pattern_for_a_parameter_means_its_portions)
{
    pd_store_config config = cluster_config();
    uint64_t changed = 0;
    cluster c;

    cluster_start(&c, 2, 1, &config, cluster_small_model(), "nonfinite_scope=job" CUT, "* sgd lr=1");
    for (uint32_t i = 0; i < 2; i++)
        if (rig_set(c.shard[i], "job", "wte", "lr=0.5", 3) == PD_OK) changed += c.shard[i]->set->params;
    assert_int_equal(rig_set(c.whole, "job", "wte", "lr=0.5", 3), PD_OK);
    assert_int_equal(changed, 3);
    take_steps(&c, 1, 5);
    cluster_assert_same(&c, 5);
    cluster_free(&c);
}

/* ---- refusals ---- */

static void assert_refused(const rig *r, int code, const char *words)
{
    assert_int_equal(r->error.code, code);
    if (strstr(r->error.text, words) == NULL) fail_msg("not \"%s\": %s", words, r->error.text);
}

static void refuse_model(const cluster_model *model, uint32_t shards, const char *options, const char *rules, int code,
                         const char *words)
{
    cluster c = { .n = shards, .world = 1, .model = model, .options = options, .rules = rules };
    rig *r = bare_shard(0, shards);

    assert_int_equal(cluster_hello(&c, r, 0), PD_OK);
    assert_int_equal(cluster_declare(&c, r, 0), code);
    assert_refused(r, code, words);
    c.options = "nonfinite_scope=job";
    rig_free(r);
    free(r);
}

static void refuse_first(uint32_t shards, const char *options, const char *rules, int code, const char *words)
{
    refuse_model(cluster_small_model(), shards, options, rules, code, words);
}

TEST(a_declare_that_shards_cannot_share_is_refused)
{
    refuse_first(20, "", "* sgd lr=1", PD_FAILED_PRECONDITION, "Use fewer shards");
    refuse_first(2, "quorum=1 max_workers=2", "* sgd lr=1", PD_FAILED_PRECONDITION, "not every rank counts");
    refuse_first(2, "", "* shampoo lr=1", PD_FAILED_PRECONDITION, "set nonfinite_scope = job");
}

TEST(a_job_with_open_sets_needs_fragments_that_fit)
{
    cluster_model model = in_fragments();
    const char *staleness = "quorum=1 staleness=2 on_stale=wait max_workers=2";

    refuse_model(&model, 4, OPEN, "* sgd lr=1", PD_FAILED_PRECONDITION, "it has 3 for 4 servers");
    refuse_model(&model, 3, OPEN, "* shampoo lr=1", PD_FAILED_PRECONDITION, "give one server alone");
    refuse_model(&model, 3, staleness, "* sgd lr=1", PD_INVALID_ARGUMENT, "3 fragments with a staleness");
    model.shapes[0] = (pd_shape){ 2, { 1 << 14, 1 << 14 } };
    refuse_model(&model, 3, OPEN, "* sgd lr=1", PD_RESOURCE_EXHAUSTED, "declare smaller ones, or give more servers");
}

TEST(shard_0_alone_leases_shares)
{
    cluster_model model = in_fragments();
    cluster c = { .n = 2, .world = 1, .model = &model, .options = OPEN, .rules = "* sgd lr=1" };

    for (uint32_t i = 0; i < 2; i++) {
        rig *r = bare_shard(i, 2);
        r->wants = 3;
        assert_int_equal(cluster_join(&c, r, 0), i == 0 ? PD_OK : PD_INVALID_ARGUMENT);
        if (i > 0) assert_refused(r, PD_INVALID_ARGUMENT, "shard 0 of a cluster leases the shares");
        r->wants = 0;
        assert_int_equal(cluster_declare(&c, r, 0), PD_OK);
        rig_free(r);
        free(r);
    }
}

TEST(after_a_refused_declare_the_same_process_may_declare_again)
{
    cluster c = {
        .n = 2, .world = 1, .model = cluster_small_model(), .options = "", .rules = "b sgd lr=1;w* sgd lr=1"
    };
    cluster_model whole = *cluster_small_model();
    rig *r = bare_shard(0, 2);

    assert_int_equal(cluster_hello(&c, r, 0), PD_OK);
    assert_int_equal(cluster_declare(&c, r, 0), PD_INVALID_ARGUMENT);
    assert_refused(r, PD_INVALID_ARGUMENT, "rules matches");
    whole.names[1] = whole.names[0];
    rig_free(r);
    free(r);
    r = bare_shard(0, 2);
    c.rules = "* sgd lr=1";
    c.model = &whole;
    assert_int_equal(cluster_hello(&c, r, 0), PD_OK);
    assert_int_equal(cluster_declare(&c, r, 0), PD_INVALID_ARGUMENT);
    assert_refused(r, PD_INVALID_ARGUMENT, "wte is declared twice");
    c.model = cluster_small_model();
    assert_int_equal(cluster_declare(&c, r, 0), PD_OK);
    rig_free(r);
    free(r);
}

TEST(every_rank_declares_the_same_in_the_same_order)
{
    cluster c = {
        .n = 2, .world = 2, .model = cluster_small_model(), .options = "nonfinite_scope=job" CUT, .rules = "* sgd lr=1"
    };
    cluster_model other;
    rig *r = bare_shard(1, 2);

    assert_int_equal(cluster_join(&c, r, 0), PD_OK);
    assert_int_equal(cluster_hello(&c, r, 1), PD_OK);
    other = *cluster_small_model();
    other.names[0] = "proj";
    other.names[2] = "wte";
    c.model = &other;
    assert_int_equal(cluster_declare(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "in the same order");
    other = *cluster_small_model();
    other.n--;
    assert_int_equal(cluster_declare(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "tail: job job has it");
    other = *cluster_small_model();
    other.shapes[0].dim[0] = 641;
    assert_int_equal(cluster_declare(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "(641, 512)");
    other = *cluster_small_model();
    other.names[6] = "unknown";
    assert_int_equal(cluster_declare(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "declared without it");
    other = *cluster_small_model();
    other.ranged = true;
    assert_int_equal(cluster_declare(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "a parameter is ranged on every rank or on none");
    c.model = cluster_small_model();
    assert_int_equal(cluster_declare(&c, r, 1), PD_OK);
    rig_free(r);
    free(r);
}

TEST(a_rank_keeps_its_ranges_of_portions)
{
    cluster_model model = *cluster_small_model();
    cluster c = { .n = 2, .world = 2, .model = &model, .options = "nonfinite_scope=job" CUT, .rules = "* sgd lr=1" };
    rig *r = bare_shard(1, 2);

    model.ranged = true;
    assert_int_equal(cluster_join(&c, r, 0), PD_OK);
    assert_int_equal(cluster_join(&c, r, 1), PD_OK);
    assert_int_equal(cluster_hello(&c, r, 0), PD_OK);
    c.world = 3; /* other ranges */
    assert_int_equal(cluster_declare(&c, r, 0), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "the range of a rank stays the same");
    rig_free(r);
    free(r);
}

/* A process died between the initial weights of two portions. The next one sends all portions. */
TEST(weights_of_a_portion_that_has_some_are_answered_and_not_used)
{
    pd_store_config config = cluster_config();
    const cluster_model *model = cluster_small_model();
    float *other = calloc(1 << 20, sizeof *other);
    cluster c;
    rig *r;
    int rc;

    cluster_start(&c, 2, 1, &config, model, "nonfinite_scope=job" CUT, "* sgd");
    r = c.shard[0];
    assert_int_equal(rig_hello(r, "job", 0, 1, 99, 99, c.options, c.rules), PD_OK);
    r->states = model->states;
    assert_int_equal(rig_declare(r, r->job, 0, 99, model->names, model->shapes, NULL, model->n, PD_F32), PD_OK);
    r->states = NULL;
    for (size_t k = 0; k < r->n_places; k++) {
        const pd_declared_place *place = &r->places[k];
        bool cut = k > 0 && r->places[k - 1].param == place->param;
        cut = cut || (k + 1 < r->n_places && r->places[k + 1].param == place->param);
        if (place->own == UINT32_MAX) continue;
        rc = rig_init(r, r->job, 99, r->handles[place->own], other, place->count);
        if (rc != (cut ? PD_OK : PD_FAILED_PRECONDITION))
            fail_msg("%d of %d: %s", (int)k, (int)place->param, r->error.text);
    }
    cluster_assert_same(&c, 0);
    cluster_free(&c);
    free(other);
}

TEST(a_hello_for_another_shard_or_cluster_is_refused)
{
    cluster c = { .n = 2, .world = 2, .model = cluster_small_model(), .options = "", .rules = "* sgd lr=1" };
    rig *r = bare_shard(1, 2);

    assert_int_equal(cluster_join(&c, r, 0), PD_OK);
    assert_true(r->in_cluster == 77 && r->life != 0);
    r->shard = 0;
    assert_int_equal(cluster_hello(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "as shard 1 of 2, this worker asks it as shard 0 of 2");
    r->shard = 1;
    r->shards = 3;
    assert_int_equal(cluster_hello(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "as shard 1 of 3");
    r->shards = r->shard = 0;
    assert_int_equal(cluster_hello(&c, r, 1), PD_FAILED_PRECONDITION);
    r->shard = 1;
    r->shards = 2;
    r->cluster = 78;
    assert_int_equal(cluster_hello(&c, r, 1), PD_FAILED_PRECONDITION);
    assert_refused(r, PD_FAILED_PRECONDITION, "is left from cluster 000000000000004d");
    assert_non_null(strstr(r->error.text, "drop job"));
    r->cluster = 77;
    assert_int_equal(cluster_hello(&c, r, 1), PD_OK);
    rig_free(r);
    free(r);
}

TEST(a_hello_with_a_rank_that_the_job_cannot_have_creates_no_job)
{
    cluster c = { .n = 2, .world = 2, .model = cluster_small_model(), .options = OPEN, .rules = "* sgd lr=1" };
    rig *r = bare_shard(1, 2);

    r->any_rank = true;
    assert_int_equal(cluster_hello(&c, r, 2), PD_INVALID_ARGUMENT);
    assert_refused(r, PD_INVALID_ARGUMENT, "has ranks 0 to 1, and shard 0 has chosen rank 2");
    assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->n, 0);
    assert_int_equal(cluster_hello(&c, r, 1), PD_OK);
    rig_free(r);
    free(r);
}

TEST(shard_0_draws_the_number_of_the_cluster)
{
    cluster c = { .n = 2, .world = 1, .model = cluster_small_model(), .options = "", .rules = "* sgd lr=1" };
    rig *r = bare_shard(0, 2), *alone = bare_shard(0, 0);

    assert_int_equal(cluster_hello(&c, r, 0), PD_OK);
    assert_true(r->in_cluster != 0 && r->in_cluster != r->creator);
    assert_int_equal(cluster_join(&c, alone, 0), PD_OK);
    assert_true(alone->in_cluster == 0 && alone->life != 0);
    assert_true(alone->map == 0 && alone->n_places == 0 && !alone->settles);
    rig_free(r);
    rig_free(alone);
    free(r);
    free(alone);
}

TEST(all_shards_make_the_same_map)
{
    pd_store_config config = cluster_config();
    cluster c;

    cluster_start(&c, 4, 1, &config, cluster_small_model(), "nonfinite_scope=job" CUT, "* adamw lr=0.01");
    for (uint32_t i = 1; i < 4; i++) {
        assert_true(c.shard[i]->map == c.shard[0]->map && c.shard[0]->map != 0);
        assert_int_equal(c.shard[i]->n_places, c.shard[0]->n_places);
        for (size_t k = 0; k < c.shard[0]->n_places; k++) {
            assert_int_equal(c.shard[i]->places[k].shard, c.shard[0]->places[k].shard);
            assert_int_equal(c.shard[i]->places[k].first, c.shard[0]->places[k].first);
            assert_int_equal(c.shard[i]->places[k].own < UINT32_MAX, c.shard[i]->places[k].shard == i);
        }
    }
    cluster_free(&c);
}

TEST(uneven_loads_are_told_once)
{
    static const cluster_model model = { .n = 3,
                                         .names = { "large", "a", "b" },
                                         .shapes = { { 2, { 512, 512 } }, { 1, { 10 } }, { 1, { 20 } } } };
    cluster c = {
        .n = 2, .world = 1, .model = &model, .options = "nonfinite_scope=job split_bytes=256KiB", .rules = "* lamb lr=1"
    };
    rig *r = bare_shard(0, 2), *other = bare_shard(1, 2);

    assert_int_equal(cluster_join(&c, r, 0), PD_OK);
    assert_true(r->warnings >= 2);
    assert_non_null(strstr(r->warning, "parameter large lies whole on one server: its optimizer looks at the whole"));
    assert_int_equal(cluster_join(&c, other, 0), PD_OK);
    assert_int_equal(other->warnings, 0);
    rig_free(r);
    rig_free(other);
    free(r);
    free(other);
}

/* Otherwise a restart would find the checkpoint and no record of its step, and begin a chain: no record would lead to
 * steps before it, to which all shards may have to go back. */
TEST(a_checkpoint_waits_until_the_disk_has_the_record_of_its_step)
{
    pd_store_config config = cluster_config();
    cluster c;
    rig *r;

    config.keeps = true;
    cluster_start(&c, 2, 2, &config, cluster_small_model(), "durability=log checkpoint_every=2 nonfinite_scope=job",
                  "* adam");
    r = c.shard[1];
    r->lazy_wal = true;
    take_steps(&c, 1, 2);
    assert_int_equal(c.shard[0]->disk->step, 2);
    assert_int_equal(r->disk->step, 0);
    rig_write_record(r);
    rig_work(r);
    assert_int_equal(r->disk->step, 0);
    rig_write_record(r);
    rig_work(r);
    assert_int_equal(r->disk->step, 2);
    take_steps(&c, 3, 4);
    r->wal_error = "no space left";
    rig_write_record(r);
    rig_work(r);
    assert_int_equal(r->disk->step, 4);
    cluster_free(&c);
}
