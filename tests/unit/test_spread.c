/* Tests the maps of known models: their numbers, which must stay as they are, how even the loads of their shards are,
 * and that a map does not depend on the order of the declaration or on the parts in which it is made. */
#include "test.h"
#include "optimizer_ops.h"
#include "spread.h"
#include "rig.h"

enum { MOST = 512 };

typedef struct model {
    pd_param_decl decls[MOST];
    char names[MOST][64];
    size_t n;
    pd_rule *rules;
    size_t n_rules;
    pd_sizing sizing;
    bool apart; /* the parameters take their steps apart */
} model;

static void add(model *m, const char *name, int layer, int64_t rows, int64_t cols)
{
    pd_param_decl *decl = &m->decls[m->n];

    snprintf(m->names[m->n], sizeof m->names[0], name, layer);
    *decl = (pd_param_decl){ .name = m->names[m->n], .shape = { cols > 0 ? 2 : 1, { rows, cols } } };
    m->n++;
}

static void begin(model *m, const char *rules)
{
    char text[256], *save, *word, *list[8];
    pd_error err;
    size_t n = 0;

    *m =
        (model){ .sizing = { .world = 8, .chunk_elements = 1 << 18, .threads = 4, .pool_threads = 2, .fragments = 1 } };
    snprintf(text, sizeof text, "%s", rules);
    for (word = strtok_r(text, ";", &save); word != NULL; word = strtok_r(NULL, ";", &save)) list[n++] = word;
    pd_job_values_init(&m->sizing.values);
    if (pd_rules_of_job(&m->rules, &m->n_rules, list, n, pd_optimizer_table, &err) != PD_OK) fail_msg("%s", err.text);
}

static void match(model *m)
{
    for (size_t i = 0; i < m->n; i++) {
        pd_rule *rule = m->decls[i].model_state ? pd_rules_of_state(m->rules, m->n_rules)
                                                : pd_rules_match(m->rules, m->n_rules, m->decls[i].name, NULL);
        m->decls[i].rule = (uint16_t)(1 + (rule - m->rules));
    }
}

/* GPT-2 small: 124 million parameters. */
static void gpt2(model *m, const char *rules)
{
    begin(m, rules);
    add(m, "wte", 0, 50257, 768);
    add(m, "wpe", 0, 1024, 768);
    for (int l = 0; l < 12; l++) {
        add(m, "h.%d.ln_1.weight", l, 768, 0);
        add(m, "h.%d.ln_1.bias", l, 768, 0);
        add(m, "h.%d.attn.c_attn.weight", l, 768, 2304);
        add(m, "h.%d.attn.c_attn.bias", l, 2304, 0);
        add(m, "h.%d.attn.c_proj.weight", l, 768, 768);
        add(m, "h.%d.attn.c_proj.bias", l, 768, 0);
        add(m, "h.%d.ln_2.weight", l, 768, 0);
        add(m, "h.%d.ln_2.bias", l, 768, 0);
        add(m, "h.%d.mlp.c_fc.weight", l, 768, 3072);
        add(m, "h.%d.mlp.c_fc.bias", l, 3072, 0);
        add(m, "h.%d.mlp.c_proj.weight", l, 3072, 768);
        add(m, "h.%d.mlp.c_proj.bias", l, 768, 0);
    }
    add(m, "ln_f.weight", 0, 768, 0);
    add(m, "ln_f.bias", 0, 768, 0);
    match(m);
}

/* Llama 3.2 1B: 1.24 billion parameters. */
static void llama(model *m, const char *rules)
{
    begin(m, rules);
    add(m, "embed_tokens", 0, 128256, 2048);
    for (int l = 0; l < 16; l++) {
        add(m, "layers.%d.q_proj", l, 2048, 2048);
        add(m, "layers.%d.k_proj", l, 512, 2048);
        add(m, "layers.%d.v_proj", l, 512, 2048);
        add(m, "layers.%d.o_proj", l, 2048, 2048);
        add(m, "layers.%d.gate_proj", l, 8192, 2048);
        add(m, "layers.%d.up_proj", l, 8192, 2048);
        add(m, "layers.%d.down_proj", l, 2048, 8192);
        add(m, "layers.%d.input_layernorm", l, 2048, 0);
        add(m, "layers.%d.post_attention_layernorm", l, 2048, 0);
    }
    add(m, "norm", 0, 2048, 0);
    match(m);
}

static void end(model *m)
{
    pd_rules_free(m->rules, m->n_rules);
}

static pd_spread *begin_spread(const model *m, uint32_t shards)
{
    const pd_spread_job job = { .sizing = &m->sizing,
                                .rules = m->rules,
                                .n_rules = m->n_rules,
                                .decls = m->decls,
                                .n = m->n,
                                .shards = shards,
                                .whole = !m->apart,
                                .most = 65536 };

    return pd_spread_new(&job);
}

static pd_spread *spread(const model *m, uint32_t shards)
{
    pd_spread *s = begin_spread(m, shards);
    double budget_ns = INFINITY;
    pd_error err;
    int rc;

    assert_non_null(s);
    assert_true(pd_spread_some(s, &budget_ns, &rc, &err));
    if (rc != PD_OK) fail_msg("%s", err.text);
    return s;
}

static uint64_t number_of(const model *m, uint32_t shards, double *over_mean)
{
    pd_spread *s = spread(m, shards);
    pd_model_facts facts;
    pd_map map;

    if (over_mean != NULL) *over_mean = pd_spread_notes_of(s).skew.over_mean;
    pd_spread_take(s, &map, &facts);
    pd_spread_free(s);
    pd_model_facts_free(&facts);
    free(map.portions);
    return map.fingerprint;
}

#define SHAMPOO "* shampoo lr=1 precondition_frequency=50 root_delay=50 start_preconditioning_step=50"

static void assert_number(model *m, uint32_t shards, uint64_t number, double most)
{
    double over_mean;
    uint64_t found = number_of(m, shards, &over_mean);

    if (over_mean > most) fail_msg("the largest load is %.3f times the mean", over_mean);
    if (found != number) fail_msg("0x%016llx is the number of the map", (unsigned long long)found);
}

/* If a number changes, shards of this version do not work with those of the last one: PD_PLACEMENT_VERSION must change,
 * and CHANGELOG.md must say so. */
TEST(maps_of_known_models_stay_as_they_are)
{
    static model m;

    gpt2(&m, "* adamw lr=1");
    assert_number(&m, 4, 0x8a27710e405de78f, 1.02);
    assert_number(&m, 16, 0xe3288ebaa5c81b3a, 1.15);
    end(&m);
    gpt2(&m, SHAMPOO);
    assert_number(&m, 4, 0x6ba7cdc5763c0242, 1.05);
    end(&m);
    llama(&m, "* adamw lr=1");
    assert_number(&m, 16, 0x30c13a75d698815e, 1.05);
    end(&m);
    llama(&m, "*norm* adamw lr=1;" SHAMPOO);
    assert_number(&m, 16, 0x21f96b8be7ef7d39, 1.05);
    end(&m);
    gpt2(&m, "w* adamw lr=1;* kron learning_rate=1");
    m.apart = true;
    assert_number(&m, 3, 0x39baab84cdf8a47c, 1.3);
    end(&m);
}

TEST(a_map_does_not_depend_on_the_order_of_the_declaration)
{
    static model m;
    uint64_t state = 5, number;

    gpt2(&m, SHAMPOO);
    number = number_of(&m, 5, NULL);
    for (size_t i = m.n; i > 1; i--) {
        size_t k = rig_random(&state) % i;
        pd_param_decl swapped = m.decls[i - 1];
        m.decls[i - 1] = m.decls[k];
        m.decls[k] = swapped;
    }
    assert_true(number_of(&m, 5, NULL) == number);
    end(&m);
}

TEST(a_map_that_is_made_in_parts_is_the_map_at_once)
{
    static model m;
    uint64_t number;
    pd_model_facts facts;
    double budget_ns;
    pd_spread *s;
    pd_error err;
    pd_map map;
    int rc, parts = 0;

    gpt2(&m, "* adamw lr=1");
    number = number_of(&m, 7, NULL);
    s = begin_spread(&m, 7);
    for (budget_ns = 1000; !pd_spread_some(s, &budget_ns, &rc, &err); budget_ns = 1000) parts++;
    assert_int_equal(rc, PD_OK);
    assert_true(parts > 100);
    pd_spread_take(s, &map, &facts);
    assert_true(map.fingerprint == number);
    pd_spread_free(s);
    pd_model_facts_free(&facts);
    free(map.portions);
    end(&m);
}

TEST(portions_do_not_depend_on_the_number_of_shards)
{
    static model m;
    pd_model_facts facts;
    pd_map few, many;
    pd_spread *s;

    gpt2(&m, SHAMPOO);
    s = spread(&m, 2);
    pd_spread_take(s, &few, &facts);
    pd_spread_free(s);
    pd_model_facts_free(&facts);
    s = spread(&m, 16);
    pd_spread_take(s, &many, &facts);
    pd_spread_free(s);
    pd_model_facts_free(&facts);
    assert_int_equal(few.n, many.n);
    assert_true(few.n > m.n);
    for (size_t k = 0; k < few.n; k++) {
        assert_int_equal(few.portions[k].param, many.portions[k].param);
        assert_int_equal(few.portions[k].first, many.portions[k].first);
        assert_int_equal(few.portions[k].count, many.portions[k].count);
    }
    free(few.portions);
    free(many.portions);
    end(&m);
}

TEST(a_map_names_the_largest_parameter_that_cannot_be_cut)
{
    static model m;
    pd_spread_notes notes;
    pd_spread *s;

    gpt2(&m, "wte lamb lr=1;* adamw lr=1");
    s = spread(&m, 4);
    notes = pd_spread_notes_of(s);
    assert_string_equal(m.decls[notes.uncut].name, "wte");
    assert_int_equal(notes.why, PD_UNCUT_OPTIMIZER);
    assert_string_equal(notes.skew.most->name, "wte");
    assert_true(notes.skew.over_mean > 1.15);
    pd_spread_free(s);
    end(&m);
}

TEST(too_many_portions_are_refused)
{
    static model m;
    double budget_ns = INFINITY;
    pd_error err;
    int rc;

    gpt2(&m, "* adamw lr=1");
    m.sizing.values.at[PD_JOB_KEY_SPLIT_BYTES] = 1;
    pd_spread_job job = { .sizing = &m.sizing,
                          .rules = m.rules,
                          .n_rules = m.n_rules,
                          .decls = m.decls,
                          .n = m.n,
                          .shards = 2,
                          .whole = true,
                          .most = 200 };
    pd_spread *s = pd_spread_new(&job);
    assert_true(pd_spread_some(s, &budget_ns, &rc, &err));
    assert_int_equal(rc, PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(err.text, "raise the job's split_bytes"));
    pd_spread_free(s);
    end(&m);
}

static int attempt(const void *what)
{
    const model *m = what;
    pd_spread *s = begin_spread(m, 3);
    double budget_ns = INFINITY;
    pd_error err;
    int rc = PD_NO_MEMORY;

    if (s != NULL && !pd_spread_some(s, &budget_ns, &rc, &err)) rc = PD_ABORTED;
    pd_spread_free(s);
    return rc;
}

TEST(memory_that_is_short_is_an_error)
{
    static model m;

    begin(&m, "* shampoo lr=1");
    add(&m, "w", 0, 4096, 512);
    add(&m, "b", 0, 70, 0);
    add(&m, "c", 0, 70, 0);
    m.sizing.values.at[PD_JOB_KEY_SPLIT_BYTES] = 1 << 20;
    match(&m);
    assert_true(oom_each(attempt, &m) > 20);
    end(&m);
}
