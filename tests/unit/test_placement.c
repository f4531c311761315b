/* Tests the placement of parameters on shards: where parameters are cut, which shard each portion gets, and the number
 * of the map. */
#include "test.h"
#include "placement.h"
#include "plan_make.h"
#include "rig.h"

enum { MOST = 64, MODELS = 10000 };

/* A model of random portions, without plans. */
typedef struct model {
    size_t n;
    char names[MOST][16];
    pd_portion portions[MOST];
    pd_placed list[MOST];
    bool one_load;
} model;

static uint64_t below(uint64_t *state, uint64_t n)
{
    return rig_random(state) % n;
}

static void random_model(model *m, uint64_t seed)
{
    uint64_t state = seed + 1;

    m->n = 1 + below(&state, MOST);
    m->one_load = below(&state, 2) == 0;
    for (size_t i = 0; i < m->n; i++) {
        snprintf(m->names[i], sizeof m->names[i], "p%u", (unsigned)i / 3);
        m->portions[i] = (pd_portion){ .param = (uint32_t)i / 3, .first = (int64_t)(i % 3) * 100, .count = 100 };
        m->list[i] = (pd_placed){ .portion = &m->portions[i], .name = m->names[i], .together = UINT32_MAX };
        for (int r = 0; r < (m->one_load ? 1 : PD_LOADS); r++)
            m->list[i].cost.of[r] = below(&state, 4) == 0 ? 0 : below(&state, 1 << 20) << below(&state, 20);
    }
}

static void shuffle_list(model *m, uint64_t *state)
{
    for (size_t i = m->n; i > 1; i--) {
        size_t k = below(state, i);
        pd_placed swapped = m->list[i - 1];
        m->list[i - 1] = m->list[k];
        m->list[k] = swapped;
    }
}

static pd_placement *placed(model *m, uint32_t shards)
{
    pd_placement *p = pd_placement_new(m->list, m->n, shards);
    double budget_ns = INFINITY;

    assert_non_null(p);
    assert_true(pd_placement_some(p, &budget_ns));
    return p;
}

static uint64_t fingerprint_of(model *m, uint32_t shards)
{
    pd_placement *p = placed(m, shards);
    uint64_t number;

    assert_int_equal(pd_placement_fingerprint(p, 1 << 20, &number), PD_OK);
    assert_true(number != 0);
    pd_placement_free(p);
    return number;
}

TEST(one_map_comes_from_every_order_of_declaration)
{
    static model m;
    uint64_t state = 7;

    for (uint64_t seed = 0; seed < MODELS; seed++) {
        uint32_t shards = 1 + (uint32_t)(seed % 17);
        uint64_t first, again;
        random_model(&m, seed);
        first = fingerprint_of(&m, shards);
        shuffle_list(&m, &state);
        again = fingerprint_of(&m, shards);
        if (first != again) fail_msg("model %u: two orders, two maps", (unsigned)seed);
    }
}

TEST(no_load_is_above_the_bound_of_the_costliest_first)
{
    static model m;

    for (uint64_t seed = 0; seed < MODELS; seed++) {
        uint32_t shards = 1 + (uint32_t)(seed % 9);
        double total = 0, largest = 0, most = 0;
        pd_placement *p;
        random_model(&m, seed);
        if (!m.one_load) continue;
        p = placed(&m, shards);
        for (size_t i = 0; i < m.n; i++) {
            double cost = (double)m.list[i].cost.of[PD_LOAD_BYTES];
            total += cost;
            if (cost > largest) largest = cost;
        }
        for (uint32_t s = 0; s < shards; s++) most = fmax(most, (double)pd_placement_load(p, s, PD_LOAD_BYTES));
        /* Shares are rounded to 2^-30 of the total. */
        assert_true(most <= total / shards + (1 - 1.0 / shards) * largest + total * MOST * 0x1p-30);
        pd_placement_free(p);
    }
}

TEST(the_loads_are_the_sums_of_what_lies_on_a_shard)
{
    static model m;

    for (uint64_t seed = 0; seed < 200; seed++) {
        pd_placement *p;
        random_model(&m, seed);
        p = placed(&m, 5);
        for (uint32_t s = 0; s < 5; s++)
            for (int r = 0; r < PD_LOADS; r++) {
                uint64_t sum = 0;
                for (size_t i = 0; i < m.n; i++) sum += m.list[i].portion->shard == s ? m.list[i].cost.of[r] : 0;
                assert_true(sum == pd_placement_load(p, s, (pd_load_kind)r));
            }
        pd_placement_free(p);
    }
}

TEST(a_placement_in_parts_is_the_placement_at_once)
{
    static model m;
    uint32_t at_once[MOST];
    double budget_ns;
    pd_placement *p;
    int parts = 0;

    random_model(&m, 77);
    pd_placement_free(placed(&m, 8));
    for (size_t i = 0; i < m.n; i++) at_once[i] = m.portions[i].shard;
    p = pd_placement_new(m.list, m.n, 8);
    for (budget_ns = 1; !pd_placement_some(p, &budget_ns); budget_ns = 1) parts++;
    assert_true(parts > 3);
    for (size_t i = 0; i < m.n; i++) assert_int_equal(m.portions[i].shard, at_once[i]);
    pd_placement_free(p);
}

TEST(one_shard_gets_everything)
{
    static model m;
    pd_placement *p;

    random_model(&m, 5);
    p = placed(&m, 1);
    for (size_t i = 0; i < m.n; i++) assert_int_equal(m.portions[i].shard, 0);
    assert_true(pd_placement_skew(p).over_mean <= 1);
    assert_int_equal(pd_placement_empty(p), 1);
    pd_placement_free(p);
}

TEST(a_shard_without_a_portion_is_found)
{
    static model m;
    pd_placement *p;

    random_model(&m, 5);
    for (size_t i = 0; i < m.n; i++) m.list[i].cost.of[PD_LOAD_BYTES]++;
    p = placed(&m, (uint32_t)m.n + 1);
    assert_in_range(pd_placement_empty(p), 0, m.n);
    pd_placement_free(p);
    p = placed(&m, (uint32_t)m.n);
    assert_int_equal(pd_placement_empty(p), m.n);
    pd_placement_free(p);
}

TEST(a_group_lies_on_one_shard_and_group_0_on_shard_0)
{
    static model m;

    for (uint64_t seed = 0; seed < 200; seed++) {
        uint32_t of[4] = { 0, UINT32_MAX, UINT32_MAX, UINT32_MAX };
        random_model(&m, seed);
        for (size_t i = 0; i < m.n; i++) m.list[i].together = m.list[i].portion->param % 4;
        pd_placement_free(placed(&m, 3));
        for (size_t i = 0; i < m.n; i++) {
            uint32_t group = m.list[i].together;
            if (of[group] == UINT32_MAX) of[group] = m.list[i].portion->shard;
            assert_int_equal(m.list[i].portion->shard, of[group]);
        }
    }
}

TEST(the_skew_names_the_load_and_the_costliest_portion)
{
    static model m = { .n = 3 };
    pd_placement *p;
    pd_skew skew;

    for (size_t i = 0; i < 3; i++) {
        m.portions[i] = (pd_portion){ .param = (uint32_t)i, .count = 1 };
        m.list[i] = (pd_placed){ &m.portions[i], i == 0 ? "a" : i == 1 ? "b" : "c", { { 10, 0, 0, 10 } }, UINT32_MAX };
    }
    m.list[1].cost.of[PD_LOAD_ROOTS] = 1000;
    m.list[2].cost.of[PD_LOAD_ROOTS] = 10;
    p = placed(&m, 2);
    skew = pd_placement_skew(p);
    assert_int_equal(skew.load, PD_LOAD_ROOTS);
    assert_string_equal(skew.most->name, "b");
    assert_true(skew.over_mean > 1.9 && skew.over_mean < 2);
    pd_placement_free(p);
}

TEST(the_number_of_a_map_depends_on_all_of_it)
{
    static model m;
    uint64_t before, other;
    pd_placement *p;

    random_model(&m, 11);
    before = fingerprint_of(&m, 4);
    assert_true(fingerprint_of(&m, 5) != before);
    p = placed(&m, 4);
    assert_int_equal(pd_placement_fingerprint(p, 1 << 21, &other), PD_OK);
    assert_true(other != before);
    m.list[0].portion->shard ^= 1;
    assert_int_equal(pd_placement_fingerprint(p, 1 << 20, &other), PD_OK);
    assert_true(other != before);
    m.list[0].portion->shard ^= 1;
    m.list[0].portion->count++;
    assert_int_equal(pd_placement_fingerprint(p, 1 << 20, &other), PD_OK);
    assert_true(other != before);
    m.list[0].portion->count--;
    assert_int_equal(pd_placement_fingerprint(p, 1 << 20, &other), PD_OK);
    assert_true(other == before);
    pd_placement_free(p);
}

TEST(memory_that_is_short_is_an_error)
{
    static model m;

    random_model(&m, 3);
    for (int i = 0; i < 3; i++) {
        pd_placement *p;
        oom_arm(i);
        p = pd_placement_new(m.list, m.n, 3);
        assert_true(oom_disarm());
        assert_null(p);
    }
}

/* ---- cutting ---- */

typedef struct cut {
    pd_plan plan;
    pd_shape shape;
    int64_t rows;
    pd_uncut why;
} cut;

static pd_plan plan_of(const char *optimizer, const char *settings, const pd_shape *shape)
{
    static const double no_stats[PD_MAX_MODEL_STATS];
    pd_declaration declaration = { .name = "w", .shape = *shape };
    pd_error err;
    pd_plan plan;
    char text[256], *save, *word;

    snprintf(text, sizeof text, "%s", settings);
    pd_hypers_init(&declaration.hypers, pd_optim_find(optimizer));
    for (word = strtok_r(text, " ", &save); word != NULL; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        if (pd_hypers_set(&declaration.hypers, word, value, &err) != PD_OK) fail_msg("%s", err.text);
    }
    if (pd_plan_make(&plan, &declaration, no_stats, &err) != PD_OK) fail_msg("%s", err.text);
    pd_hypers_free(&declaration.hypers);
    return plan;
}

static cut cut_of(const char *optimizer, const char *settings, pd_shape shape, pd_cut_rule rule)
{
    cut c = { .shape = shape, .plan = plan_of(optimizer, settings, &shape) };

    c.why = pd_cut_rows(&c.rows, &rule, pd_optim_find(optimizer), &shape, &c.plan);
    pd_plan_free(&c.plan);
    return c;
}

#define WHOLE(bytes) ((pd_cut_rule){ .split_bytes = (bytes), .whole = true, .how = PD_MEAN })

TEST(portions_cover_a_parameter_and_keep_its_ranges)
{
    uint64_t state = 3;
    int cuts = 0;

    for (int i = 0; i < 4000; i++) {
        pd_shape shape = { 1 + (int)below(&state, 3),
                           { 1 + (int64_t)below(&state, 1 << (4 + below(&state, 14))),
                             1 + (int64_t)below(&state, 1 << (1 + below(&state, 10))),
                             1 + (int64_t)below(&state, 8) } };
        uint64_t split = 1 + below(&state, 1 << (12 + below(&state, 12)));
        cut c = cut_of("adamw", "", shape, WHOLE(split));
        int64_t n = pd_portions_count(&shape, c.rows), at = 0, elements, nominal;
        pd_shape_elements(&shape, &elements);
        assert_true((c.why == PD_IS_CUT) == (n > 1));
        cuts += n > 1;
        assert_in_range(n, 1, PD_MOST_PORTIONS);
        nominal = elements / shape.dim[0] * c.rows;
        for (int64_t k = 0; k < n; k++) {
            pd_portion portion = pd_portion_at(&shape, c.rows, k);
            pd_shape own = pd_portion_shape(&shape, &portion);
            int64_t count;
            pd_shape_elements(&own, &count);
            assert_int_equal(count, portion.count);
            assert_int_equal(portion.first, at);
            assert_int_equal(portion.first % PD_RANGE_ELEMENTS, 0);
            assert_true(n == 1 || 2 * portion.count >= nominal);
            assert_true(k + 1 < n ? portion.count == nominal : 2 * portion.count <= 3 * nominal);
            at += portion.count;
        }
        assert_int_equal(at, elements);
    }
    assert_true(cuts > 200);
}

TEST(portions_are_as_near_to_split_bytes_as_their_grain_allows)
{
    /* GPT-2's embedding: 50,257 rows of 768 elements; 65,536 elements are 256 rows / 3, so the grain is 256 rows. */
    cut c = cut_of("adamw", "", (pd_shape){ 2, { 50257, 768 } }, WHOLE(32 << 20));

    assert_int_equal(c.why, PD_IS_CUT);
    assert_int_equal(c.rows, 43 * 256);
    assert_int_equal(pd_portions_count(&c.shape, c.rows), 5);
}

static void assert_uncut(pd_uncut why, const char *optimizer, const char *settings, pd_shape shape, pd_cut_rule rule)
{
    cut c = cut_of(optimizer, settings, shape, rule);

    if (c.why != why) fail_msg("%s %s: %s, not %s", optimizer, settings, pd_uncut_text(c.why), pd_uncut_text(why));
    assert_int_equal(c.rows, shape.rank > 0 ? shape.dim[0] : 1);
    assert_int_equal(pd_portions_count(&shape, c.rows), 1);
}

TEST(what_a_cut_would_change_is_not_cut)
{
    const pd_shape large = { 2, { 2048, 512 } };
    pd_cut_rule apart = WHOLE(1 << 20), merged = WHOLE(1 << 20);

    apart.whole = false;
    merged.how = PD_ADASUM;
    assert_uncut(PD_UNCUT_SMALL, "adamw", "", large, WHOLE(4 << 20));
    assert_uncut(PD_UNCUT_SMALL, "adamw", "", large, WHOLE(0));
    assert_uncut(PD_UNCUT_APART, "adamw", "", large, apart);
    assert_uncut(PD_UNCUT_AGGREGATE, "adamw", "", large, merged);
    merged.how = PD_RADIAL_MEAN;
    assert_uncut(PD_UNCUT_AGGREGATE, "adamw", "", large, merged);
    assert_uncut(PD_UNCUT_OPTIMIZER, "lamb", "", large, WHOLE(1 << 20));
    assert_uncut(PD_UNCUT_OPTIMIZER, "adamw", "hyperball=yes", large, WHOLE(1 << 20));
    assert_uncut(PD_UNCUT_OPTIMIZER, "kron", "", large, WHOLE(1 << 20));
    assert_uncut(PD_UNCUT_OPTIMIZER, "adafactor", "learning_rate=1e-3", large, WHOLE(1 << 20));
    assert_uncut(PD_UNCUT_OPTIMIZER, "scalable_shampoo", "", large, WHOLE(1 << 20));
    assert_uncut(PD_UNCUT_ROWS, "adamw", "", (pd_shape){ 2, { 2, 1 << 20 } }, WHOLE(7 << 20));
    assert_uncut(PD_UNCUT_ROWS, "adamw", "", (pd_shape){ 2, { 1, 1 << 20 } }, WHOLE(1 << 20));
    assert_int_equal(cut_of("adamw", "", large, WHOLE(1 << 20)).why, PD_IS_CUT);
}

TEST(shampoo_is_cut_where_its_blocks_are)
{
    static const pd_shape large = { 2, { 4096, 512 } };
    cut c = cut_of("shampoo", "max_preconditioner_dim=384", large, WHOLE(1 << 20));

    assert_int_equal(c.why, PD_IS_CUT);
    assert_int_equal(c.rows % 384, 0);
    assert_int_equal(c.rows % 128, 0);
    assert_uncut(PD_UNCUT_ROWS, "shampoo", "max_preconditioner_dim=4096", large, WHOLE(1 << 20));
    /* The first two dimensions are merged: their blocks cross rows. */
    assert_uncut(PD_UNCUT_ROWS, "shampoo", "max_preconditioner_dim=4096", (pd_shape){ 3, { 1024, 4, 512 } },
                 WHOLE(1 << 20));
}

/* The two say by the plan whether they add up squares over all blocks, or merge dimensions. */
TEST(soap_is_cut_where_its_blocks_are_unless_they_share_a_length)
{
    static const char *const names[] = { "soap", "kl_shampoo" };
    static const pd_shape large = { 2, { 4096, 512 } };

    for (int i = 0; i < 2; i++) {
        cut c = cut_of(names[i], "block_size=384", large, WHOLE(1 << 20));
        assert_int_equal(c.why, PD_IS_CUT);
        assert_int_equal(c.rows % 384, 0);
        assert_uncut(PD_UNCUT_ROWS, names[i], "", large, WHOLE(1 << 20));
        assert_uncut(PD_UNCUT_ROWS, names[i], "block_size=384 normalize_grads=yes", large, WHOLE(1 << 20));
    }
    assert_uncut(PD_UNCUT_ROWS, "soap", "block_size=384 merge_dims=yes max_precond_dim=2048",
                 (pd_shape){ 3, { 4096, 4, 128 } }, WHOLE(1 << 20));
}

TEST(every_row_says_whether_it_may_be_cut)
{
    static const char *const whole[] = { "lamb", "scalable_shampoo", "adafactor", "kron", "mars", "muon" };

    for (size_t i = 0; pd_optimizer_table[i] != NULL; i++) {
        const pd_optimizer_ops *row = pd_optimizer_table[i];
        bool never = false, adds = false;
        for (size_t k = 0; k < sizeof whole / sizeof *whole; k++) never |= strcmp(row->name, whole[k]) == 0;
        for (int p = 0; p < PD_MAX_PHASES && row->phases[p].run != NULL; p++)
            adds |= row->phases[p].fold[0] != 0 || row->phases[p].kind == PD_STRIPES;
        assert_int_equal(row->grain == NULL, never);
        if (adds && row->grain != NULL && strcmp(row->name, "soap") != 0 && strcmp(row->name, "kl_shampoo") != 0)
            fail_msg("%s combines numbers of all units, so it must not be cut", row->name);
    }
}
