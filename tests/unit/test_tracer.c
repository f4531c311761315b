/* Tests trace files: they are JSON, spans nest, all parameters have their parts of each step, and the size is bounded.
 * A store with a clock of the test makes the events. */
#include <jansson.h>

#include "test.h"
#include "rig.h"
#include "tracer.h"

WITH_THREADS();

enum { WORLD = 2, CONN = 10, STEPS = 5, MS = 1000000 };

static const int64_t sizes[] = { 7, 200, 30 };
enum { PARAMS = sizeof sizes / sizeof *sizes };

typedef struct scene {
    rig r;
    char path[64];
    pd_tracer *tracer;
} scene;

static rig *the_rig;

/* Goes on by some microseconds each time it is read. */
static uint64_t read_clock(void *arg)
{
    (void)arg;
    return the_rig->now += 50000;
}

static scene *begin(const char *job, uint64_t most_bytes)
{
    static scene s;
    pd_store_config config = rig_config();
    char to[128];
    pd_error err;
    int fd;

    strcpy(s.path, "/tmp/steps.XXXXXX");
    assert_true((fd = mkstemp(s.path)) >= 0);
    close(fd);
    snprintf(to, sizeof to, "%s%s", s.path, job);
    if (pd_tracer_start(&s.tracer, to, most_bytes, &err) != PD_OK) fail_msg("%s", err.text);
    config.clock_ns = read_clock;
    config.trace = pd_tracer_put;
    config.trace_arg = s.tracer;
    the_rig = &s.r;
    rig_new(&s.r, &config);
    return &s;
}

static void take_steps(rig *r, uint32_t job, uint32_t conn, uint64_t n)
{
    static float values[200];

    for (uint64_t step = 1; step <= n; step++) {
        for (uint32_t rank = 0; rank < WORLD; rank++)
            for (uint32_t p = 0; p < PARAMS; p++) {
                rig_frame *frame = rig_frame_new(r, PD_REQ_PUSH, job, rank, conn + rank, step);
                for (int64_t at = 0; at < sizes[p]; at += r->chunk)
                    rig_piece(frame, p, PD_F32, at, sizes[p] - at < r->chunk ? sizes[p] - at : r->chunk, values);
                r->now += MS;
                assert_int_equal(rig_send(r, frame), PD_OK);
            }
        rig_work(r);
    }
}

static json_t *read_trace(const scene *s)
{
    json_error_t err;
    json_t *events = json_load_file(s->path, 0, &err);

    if (events == NULL) fail_msg("line %d: %s", err.line, err.text);
    return events;
}

static void end(scene *s)
{
    rig_free(&s->r);
    unlink(s->path);
}

static const char *text_of(const json_t *event, const char *key)
{
    const char *text = json_string_value(json_object_get(event, key));

    return text != NULL ? text : "";
}

static double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static bool is_span(const json_t *event)
{
    return strcmp(text_of(event, "ph"), "X") == 0;
}

/* Returns whether two spans of a track are apart from each other, or one lies in the other. */
static bool nest(const json_t *a, const json_t *b)
{
    double a0 = number_of(a, "ts"), a1 = a0 + number_of(a, "dur"), b0 = number_of(b, "ts"),
           b1 = b0 + number_of(b, "dur"), e = 0.0015; /* sums of decimal fractions are not exact */
    bool apart = a1 <= b0 + e || b1 <= a0 + e, a_in_b = a0 >= b0 - e && a1 <= b1 + e,
         b_in_a = b0 >= a0 - e && b1 <= a1 + e;

    return apart || a_in_b || b_in_a;
}

static void assert_spans_nest(const json_t *events)
{
    for (size_t i = 0; i < json_array_size(events); i++)
        for (size_t k = 0; k < i; k++) {
            const json_t *a = json_array_get(events, i), *b = json_array_get(events, k);
            if (!is_span(a) || !is_span(b) || number_of(a, "tid") != number_of(b, "tid")) continue;
            if (!nest(a, b)) fail_msg("%s and %s overlap", text_of(a, "name"), text_of(b, "name"));
        }
}

static size_t count(const json_t *events, const char *phase, const char *name, double track)
{
    size_t n = 0;

    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        n += strcmp(text_of(event, "ph"), phase) == 0 && strcmp(text_of(event, "name"), name) == 0 &&
             (track == 0 || number_of(event, "tid") == track);
    }
    return n;
}

TEST(each_parameter_has_a_span_for_each_part_of_each_step)
{
    static const char *const parts[] = { "receive", "sum", "step", "publish" };
    scene *s = begin("", 1 << 20);
    uint32_t job = rig_start(&s->r, "job", WORLD, CONN, sizes, PARAMS, NULL, NULL);
    json_t *events;

    take_steps(&s->r, job, CONN, STEPS);
    pd_tracer_stop(s->tracer);
    events = read_trace(s);
    assert_string_equal(text_of(json_array_get(events, 0), "name"), "process_name");
    for (int p = 0; p < PARAMS; p++) {
        for (int i = 0; i < 4; i++) assert_int_equal(count(events, "X", parts[i], 100 + p), STEPS);
        assert_int_equal(count(events, "X", "round 3", 100 + p), 1);
    }
    assert_true(count(events, "X", "sum", 1) >= STEPS && count(events, "X", "publish", 1) >= STEPS);
    json_decref(events);
    end(s);
}

TEST(spans_of_a_track_nest)
{
    scene *s = begin("", 1 << 20);
    uint32_t job = rig_start(&s->r, "job", WORLD, CONN, sizes, PARAMS, NULL, NULL);
    json_t *events;

    take_steps(&s->r, job, CONN, STEPS);
    pd_tracer_stop(s->tracer);
    events = read_trace(s);
    assert_spans_nest(events);
    json_decref(events);
    end(s);
}

/* Fails the test if an asynchronous span has a number that is not the process's own: viewers show it elsewhere. */
static void assert_numbers_of_the_process(const json_t *events)
{
    for (size_t i = 0; i < json_array_size(events); i++) {
        const json_t *event = json_array_get(events, i);
        if (strcmp(text_of(event, "ph"), "b") != 0) continue;
        assert_null(json_object_get(event, "id"));
        assert_true(strlen(text_of(json_object_get(event, "id2"), "local")) > 0);
    }
}

TEST(roots_are_spans_of_their_own)
{
    scene *s = begin("", 1 << 20);
    uint32_t job = rig_start(&s->r, "job", WORLD, CONN, sizes, PARAMS, NULL, "p0 scalable_shampoo;* sgd lr=1");
    json_t *events;

    take_steps(&s->r, job, CONN, STEPS);
    pd_tracer_stop(s->tracer);
    events = read_trace(s);
    assert_true(count(events, "b", "roots of p0", 0) > 0);
    assert_int_equal(count(events, "b", "roots of p0", 0), count(events, "e", "roots of p0", 0));
    assert_numbers_of_the_process(events);
    json_decref(events);
    end(s);
}

TEST(only_the_named_job_is_traced)
{
    scene *s = begin(":second", 1 << 20);
    uint32_t first = rig_start(&s->r, "first", WORLD, CONN, sizes, PARAMS, NULL, NULL), second;
    json_t *events;

    take_steps(&s->r, first, CONN, 2);
    second = rig_start(&s->r, "second", WORLD, CONN + 20, sizes, PARAMS, NULL, NULL);
    take_steps(&s->r, second, CONN + 20, STEPS);
    pd_tracer_stop(s->tracer);
    events = read_trace(s);
    assert_int_equal(count(events, "X", "receive", 100), STEPS);
    json_decref(events);
    end(s);
}

TEST(a_full_file_is_still_json)
{
    enum { MOST = 4096 };
    scene *s = begin("", MOST);
    uint32_t job = rig_start(&s->r, "job", WORLD, CONN, sizes, PARAMS, NULL, NULL);
    json_t *events;
    FILE *file;

    take_steps(&s->r, job, CONN, 40);
    pd_tracer_stop(s->tracer);
    events = read_trace(s);
    json_decref(events);
    assert_non_null(file = fopen(s->path, "r"));
    fseek(file, 0, SEEK_END);
    assert_in_range(ftell(file), 1, MOST);
    fclose(file);
    end(s);
}

/* The text of the file so far, without the comma behind the last event and with a closing bracket. */
static char *closed_text(const scene *s)
{
    FILE *file = fopen(s->path, "r");
    char *text = calloc(1, 1 << 20);
    size_t n;

    assert_non_null(file);
    assert_non_null(text);
    n = fread(text, 1, (1 << 20) - 8, file);
    fclose(file);
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == ',')) n--;
    strcpy(text + n, "]");
    return text;
}

static bool has_last_step(void *arg)
{
    char *text = closed_text(arg);
    bool found = strstr(text, "\"round 5\"") != NULL;

    free(text);
    return found;
}

TEST(a_file_whose_writer_was_killed_lacks_only_its_end)
{
    scene *s = begin("", 1 << 20);
    uint32_t job = rig_start(&s->r, "job", WORLD, CONN, sizes, PARAMS, NULL, NULL);
    json_t *events;
    char *text;

    take_steps(&s->r, job, CONN, STEPS);
    assert_true(await(has_last_step, s, 10));
    text = closed_text(s);
    assert_non_null(events = json_loads(text, 0, NULL));
    json_decref(events);
    free(text);
    pd_tracer_stop(s->tracer);
    end(s);
}

TEST(a_file_that_cannot_be_made_is_an_error)
{
    pd_tracer *tracer;
    pd_error err;

    assert_int_equal(pd_tracer_start(&tracer, "/nowhere/steps.json", 1 << 20, &err), PD_UNAVAILABLE);
    assert_non_null(strstr(err.text, "server.trace_file: /nowhere/steps.json: "));
}
