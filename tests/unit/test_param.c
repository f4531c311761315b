/* Tests parameters: valid sets of declarations, initial weights, and the element types that can be pulled. */
#include "test.h"
#include "convert.h"
#include "rig.h"

enum { N = 3 };
static const char *const names[N] = { "layers.0.weight", "layers.0.bias", "head/kernel" };
static const pd_shape shapes[N] = { { 2, { 10, 20 } }, { 1, { 10 } }, { 0, { 0 } } };

static int set_up(void **state)
{
    pd_store_config config = rig_config();

    config.max_params = 8;
    config.max_total_bytes = 1 << 20;
    return rig_set_up_with(state, &config);
}

static void join(rig *r, uint32_t world, const char *rules)
{
    for (uint32_t rank = 0; rank < world; rank++)
        assert_int_equal(rig_hello(r, "job", rank, world, rank + 1, 10 + rank, NULL, rules), PD_OK);
}

static int declare_one(rig *r, uint32_t rank, const char *name, pd_shape shape, pd_dtype pull)
{
    return rig_declare(r, r->job, rank, 10 + rank, &name, &shape, NULL, 1, pull);
}

EACH_TEST(set_up, rig_tear_down);

TEST(answers_in_the_order_of_the_caller, rig *r)
{
    static const uint32_t reversed[N] = { 2, 1, 0 };

    join(r, 2, NULL);
    assert_int_equal(rig_declare(r, r->job, 0, 10, names, shapes, NULL, N, PD_F32), PD_OK);
    assert_true(r->must_init);
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].state, "gathering");
    assert_int_equal(rig_declare(r, r->job, 1, 11, names, shapes, reversed, N, PD_F32), PD_OK);
    assert_false(r->must_init);
    for (uint32_t i = 0; i < N; i++) {
        assert_int_equal(r->handles[i], N - 1 - i);
        assert_false(r->initialised[i]);
    }
    assert_string_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].state, "running");
}

TEST(the_reserve_is_the_largest_frame_rounded_up, rig *r)
{
    join(r, 1, NULL);
    assert_int_equal(rig_declare(r, r->job, 0, 10, names, shapes, NULL, N, PD_F32), PD_OK);
    assert_int_equal(r->reserve, 4096); /* the largest frame holds one chunk of 64 elements; rounded up to 4096 bytes */
}

TEST(rules_go_by_the_first_match, rig *r)
{
    join(r, 1, "*.bias sgd lr=0.5;layers* sgd lr=0.25;* sgd lr=2");
    assert_int_equal(rig_declare(r, r->job, 0, 10, names, shapes, NULL, N, PD_F32), PD_OK);
    for (uint32_t p = 0; p < N; p++) {
        static const int64_t sizes[N] = { 200, 10, 1 };
        static const float lr[N] = { 0.25f, 0.5f, 2 };
        float values[200] = { 0 }, ones[200];
        for (int i = 0; i < 200; i++) ones[i] = 1;
        assert_int_equal(rig_init(r, r->job, 10, p, values, sizes[p]), PD_OK);
        assert_int_equal(rig_push(r, r->job, 0, 10, 1, p, ones, sizes[p]), PD_OK);
        rig_work(r);
        assert_true(rig_weights(r, r->job, p)[0] == -lr[p]);
    }
}

typedef struct bad {
    const char *name;
    pd_shape shape;
    int pull, code;
    const char *says;
} bad;
static char longest[300];
static const bad bads[] = {
    { "", { 1, { 4 } }, PD_F32, PD_INVALID_ARGUMENT, "name" },
    { "a\tb", { 1, { 4 } }, PD_F32, PD_INVALID_ARGUMENT, "control" },
    { longest, { 1, { 4 } }, PD_F32, PD_INVALID_ARGUMENT, "256" },
    { "other", { 1, { 4 } }, PD_F32, PD_INVALID_ARGUMENT, "none of the job's 1 rules" },
    { "w", { 2, { 4, 0 } }, PD_F32, PD_INVALID_ARGUMENT, "(4, 0) has no elements" },
    { "w", { 9, { 4 } }, PD_F32, PD_INVALID_ARGUMENT, "shape" },
    { "w", { 1, { -4 } }, PD_F32, PD_INVALID_ARGUMENT, "shape" },
    { "w", { 2, { INT64_MAX / 4, INT64_MAX / 4 } }, PD_F32, PD_INVALID_ARGUMENT, "64 bits" },
    { "w", { 1, { 4 } }, 7, PD_INVALID_ARGUMENT, "7 is not a supported pull dtype" },
    { "w", { 2, { 1024, 1024 } }, PD_F32, PD_RESOURCE_EXHAUSTED, "1048576 bytes" },
    { "w", { 1, { 80 * 1024 } }, PD_F32, PD_RESOURCE_EXHAUSTED, "max_total_bytes" },
};

TEST(refuses_a_declaration_and_creates_nothing, rig *r)
{
    memset(longest, 'w', sizeof longest - 1);
    join(r, 1, "w* sgd momentum=0.9");
    for (size_t i = 0; i < sizeof bads / sizeof bads[0]; i++) {
        const char *both[2] = { "w.good", bads[i].name };
        pd_shape two[2] = { { 1, { 4 } }, bads[i].shape };
        assert_int_equal(rig_declare(r, r->job, 0, 10, both, two, NULL, 2, (pd_dtype)bads[i].pull), bads[i].code);
        if (strstr(r->error.text, bads[i].says) == NULL) fail_msg("case %zu says: %s", i, r->error.text);
        assert_int_equal(rig_ask(r, PD_INFO_JOBS, NULL)->jobs[0].params, 0);
        assert_int_equal(pd_store_count_bytes(r->store).state, 0);
    }
    assert_int_equal(declare_one(r, 0, "w", (pd_shape){ 1, { 4 } }, PD_F32), PD_OK);
}

TEST(refuses_too_many_and_repeated_names, rig *r)
{
    static const char *const nine[9] = { "a", "b", "c", "d", "e", "f", "g", "h", "i" }, *const twice[2] = { "a", "a" };
    pd_shape nine_shapes[9];

    for (int i = 0; i < 9; i++) nine_shapes[i] = (pd_shape){ 1, { 2 } };
    join(r, 1, NULL);
    assert_int_equal(rig_declare(r, r->job, 0, 10, nine, nine_shapes, NULL, 9, PD_F32), PD_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(r->error.text, "9 parameters, at most 8"));
    assert_int_equal(rig_declare(r, r->job, 0, 10, twice, nine_shapes, NULL, 2, PD_F32), PD_INVALID_ARGUMENT);
    assert_non_null(strstr(r->error.text, "declared twice"));
    assert_int_equal(rig_declare(r, r->job, 0, 10, nine, nine_shapes, NULL, 0, PD_F32), PD_INVALID_ARGUMENT);
}

TEST(memory_of_all_jobs_counts_and_comes_back, rig *r)
{
    static const pd_shape half = { 1, { 22 * 1024 } };
    const char *w = "w";
    uint32_t first;

    join(r, 1, NULL);
    first = r->job;
    assert_int_equal(declare_one(r, 0, w, half, PD_F32), PD_OK);
    assert_int_equal(rig_hello(r, "two", 0, 1, 9, 20, NULL, NULL), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 20, &w, &half, NULL, 1, PD_F32), PD_OK);
    assert_int_equal(rig_hello(r, "three", 0, 1, 9, 30, NULL, NULL), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 30, &w, &half, NULL, 1, PD_F32), PD_OK);
    assert_int_equal(rig_hello(r, "four", 0, 1, 9, 40, NULL, NULL), PD_OK);
    assert_int_equal(rig_declare(r, r->job, 0, 40, &w, &half, NULL, 1, PD_F32), PD_RESOURCE_EXHAUSTED);
    pd_request *drop = pd_request_new(PD_REQ_DROP, rig_ticket(r, 1));
    drop->u.info.job_name = strdup("job");
    rig_apply(r, drop);
    assert_int_equal(r->gone_job, first);
    assert_int_equal(rig_declare(r, r->job, 0, 40, &w, &half, NULL, 1, PD_F32), PD_OK);
}

TEST(refuses_another_set_from_another_rank, rig *r)
{
    static const pd_shape other = { 2, { 20, 10 } };
    pd_shape wrong[N] = { other, shapes[1], shapes[2] };
    const char *more[N + 1] = { names[0], names[1], names[2], "extra" },
                         *repeated[N] = { names[0], names[1], names[1] };
    pd_shape more_shapes[N + 1] = { shapes[0], shapes[1], shapes[2], shapes[1] },
                             repeated_shapes[N] = { shapes[0], shapes[1], shapes[1] };

    join(r, 2, NULL);
    rig_declare(r, r->job, 0, 10, names, shapes, NULL, N, PD_F32);
    assert_int_equal(rig_declare(r, r->job, 1, 11, names, wrong, NULL, N, PD_F32), PD_FAILED_PRECONDITION);
    assert_non_null(
        strstr(r->error.text, "layers.0.weight: job job has it with shape (10, 20), this rank declares (20, 10)"));
    assert_int_equal(rig_declare(r, r->job, 1, 11, names, shapes, NULL, N - 1, PD_F32), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "head/kernel"));
    assert_int_equal(rig_declare(r, r->job, 1, 11, more, more_shapes, NULL, N + 1, PD_F32), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "extra"));
    assert_int_equal(rig_declare(r, r->job, 1, 11, repeated, repeated_shapes, NULL, N, PD_F32), PD_INVALID_ARGUMENT);
    assert_int_equal(rig_declare(r, r->job, 1, 11, names, shapes, NULL, N, PD_F32), PD_OK);
}

TEST(init_may_come_in_any_order_and_again_until_it_is_complete, rig *r)
{
    static const int64_t firsts[] = { 128, 0, 128, 192, 0, 64 };
    float values[200];

    join(r, 1, NULL);
    declare_one(r, 0, "w", (pd_shape){ 1, { 200 } }, PD_F32);
    rig_noise(3, values, 200);
    for (int i = 0; i < 6; i++) {
        rig_frame *frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, 10, 0);
        int64_t left = 200 - firsts[i];
        assert_true(r->versions[r->job] == NULL);
        rig_piece(frame, 0, PD_F32, firsts[i], left < 64 ? left : 64, values + firsts[i]);
        rig_send(r, frame);
        rig_work(r);
        assert_int_equal(r->answer, PD_EFF_OK);
    }
    assert_memory_equal(rig_weights(r, r->job, 0), values, sizeof values);
    assert_int_equal(r->versions[r->job][0].published->version, 0);
}

/* A client that lost the reply sends its initial weights again. The second Init is answered with OK and changes
 * nothing, even if the job has taken steps since. */
TEST(initial_weights_sent_again_count_once, rig *r)
{
    float values[200], others[200], stepped[200];

    join(r, 1, NULL);
    declare_one(r, 0, "w", (pd_shape){ 1, { 200 } }, PD_F32);
    rig_noise(3, values, 200);
    rig_noise(4, others, 200);
    assert_int_equal(rig_init(r, r->job, 10, 0, values, 200), PD_OK);
    assert_int_equal(rig_init(r, r->job, 10, 0, others, 200), PD_OK);
    assert_memory_equal(rig_weights(r, r->job, 0), values, sizeof values);
    assert_int_equal(rig_push(r, r->job, 0, 10, 1, 0, values, 200), PD_OK);
    rig_work(r);
    memcpy(stepped, rig_weights(r, r->job, 0), sizeof stepped);
    assert_memory_not_equal(stepped, values, sizeof stepped);
    assert_int_equal(rig_init(r, r->job, 10, 0, others, 200), PD_OK);
    assert_memory_equal(rig_weights(r, r->job, 0), stepped, sizeof stepped);
}

TEST_STATE(the_log_says_where_initial_weights_are_not_finite)
{
    static const char *const options[] = { "initial_weights=lowest", "initial_weights=mean" }, *const why[] = {
        "so they came", "those of a rank are not"
    };
    rig *r = *state;
    float values[200];

    rig_noise(3, values, 200);
    for (int i = 0; i < 2; i++) {
        if (i > 0) rig_tear_down(state), set_up(state);
        r = *state;
        assert_int_equal(rig_hello(r, "job", 0, 1, 1, 10, options[i], NULL), PD_OK);
        declare_one(r, 0, "w", (pd_shape){ 1, { 200 } }, PD_F32);
        values[150] = i == 0 ? INFINITY : NAN;
        assert_int_equal(rig_init(r, r->job, 10, 0, values, 200), PD_OK);
        rig_work(r);
        assert_int_equal(r->warnings, 1);
        assert_non_null(strstr(r->warning, "job job: the initial weights of w are not finite: "));
        assert_non_null(strstr(r->warning, why[i]));
        assert_memory_equal(rig_weights(r, r->job, 0), values, sizeof values);
    }
}

TEST(another_process_does_not_initialise_again, rig *r)
{
    float values[200];

    join(r, 1, NULL);
    declare_one(r, 0, "w", (pd_shape){ 1, { 200 } }, PD_F32);
    rig_noise(3, values, 200);
    assert_int_equal(rig_init(r, r->job, 10, 0, values, 200), PD_OK);
    assert_int_equal(rig_hello(r, "job", 0, 1, 77, 10, NULL, NULL), PD_OK);
    assert_int_equal(declare_one(r, 0, "w", (pd_shape){ 1, { 200 } }, PD_F32), PD_OK);
    assert_false(r->must_init);
    assert_int_equal(rig_init(r, r->job, 10, 0, values, 64), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "pull"));
}

TEST(a_crashed_initialiser_is_asked_again, rig *r)
{
    float values[200];
    rig_frame *frame;

    join(r, 2, NULL);
    declare_one(r, 0, "w", (pd_shape){ 1, { 200 } }, PD_F32);
    rig_noise(3, values, 200);
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, 10, 0);
    rig_piece(frame, 0, PD_F32, 0, 64, values);
    rig_send(r, frame);
    rig_work(r);
    assert_int_equal(rig_hello(r, "job", 0, 2, 77, 10, NULL, NULL), PD_OK);
    assert_int_equal(declare_one(r, 0, "w", (pd_shape){ 1, { 200 } }, PD_F32), PD_OK);
    assert_true(r->must_init);
    rig_noise(4, values, 200);
    assert_int_equal(rig_init(r, r->job, 10, 0, values, 200), PD_OK);
    assert_memory_equal(rig_weights(r, r->job, 0), values, sizeof values);
}

TEST(only_rank_0_initialises_and_nobody_pushes_before, rig *r)
{
    float values[10] = { 0 };
    rig_frame *frame;

    join(r, 2, NULL);
    declare_one(r, 0, "w", (pd_shape){ 1, { 10 } }, PD_F32);
    declare_one(r, 1, "w", (pd_shape){ 1, { 10 } }, PD_F32);
    assert_int_equal(rig_push(r, r->job, 0, 10, 1, 0, values, 10), PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "no weights yet"));
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 1, 11, 0);
    rig_piece(frame, 0, PD_F32, 0, 10, values);
    rig_send(r, frame);
    rig_work(r);
    assert_int_equal(r->error.code, PD_FAILED_PRECONDITION);
    assert_non_null(strstr(r->error.text, "rank 0"));
}

TEST(publishes_every_type_that_a_rank_pulls, rig *r)
{
    float values[10];
    uint16_t expected[10];
    const pd_published *published;

    join(r, 2, NULL);
    rig_noise(3, values, 10);
    declare_one(r, 0, "w", (pd_shape){ 1, { 10 } }, PD_BF16);
    rig_init(r, r->job, 10, 0, values, 10);
    published = r->versions[r->job][0].published;
    pd_convert(expected, PD_BF16, values, PD_F32, 10);
    assert_memory_equal(published->at[PD_BF16], expected, sizeof expected);
    assert_null(published->at[PD_F16]);
    assert_int_equal(declare_one(r, 1, "w", (pd_shape){ 1, { 10 } }, PD_F16), PD_OK); /* late: published again */
    published = r->versions[r->job][0].published;
    pd_convert(expected, PD_F16, values, PD_F32, 10);
    assert_memory_equal(published->at[PD_F16], expected, sizeof expected);
    assert_memory_equal(published->at[PD_F32], values, sizeof values);
    for (uint32_t rank = 0; rank < 2; rank++) rig_push(r, r->job, rank, 10 + rank, 1, 0, values, 10);
    rig_work(r);
    published = r->versions[r->job][0].published;
    assert_int_equal(published->version, 1);
    pd_convert(expected, PD_F16, published->at[PD_F32], PD_F32, 10);
    assert_memory_equal(published->at[PD_F16], expected, sizeof expected);
}

TEST(a_type_may_be_asked_for_while_initial_weights_come, rig *r)
{
    float values[100];
    uint16_t expected[100];
    rig_frame *frame;

    join(r, 2, NULL);
    rig_noise(3, values, 100);
    declare_one(r, 0, "w", (pd_shape){ 1, { 100 } }, PD_F32);
    frame = rig_frame_new(r, PD_REQ_INIT, r->job, 0, 10, 0);
    rig_piece(frame, 0, PD_F32, 64, 36, values + 64);
    rig_send(r, frame);
    rig_work(r);
    assert_int_equal(declare_one(r, 1, "w", (pd_shape){ 1, { 100 } }, PD_BF16), PD_OK);
    rig_init(r, r->job, 10, 0, values, 100);
    pd_convert(expected, PD_BF16, values, PD_F32, 100);
    assert_non_null(r->versions[r->job][0].published->at[PD_BF16]);
    assert_memory_equal(r->versions[r->job][0].published->at[PD_BF16], expected, sizeof expected);
}
