/* wal_sample.c - entries of a log for tests, and a job that writes them, is stopped, and comes back. */
#include "wal_sample.h"

#include "test.h"

enum { PARTS = 3 };

/* Returns the number at a place in the entry of a step. */
static float number_at(uint64_t step, unsigned life, uint32_t part, int64_t i)
{
    return (float)(1000 * step + 100 * life + 10 * part) + (float)i / 64;
}

/* Returns how many elements an aggregate has. Every third step has a parameter without one. */
static int64_t elements_of(uint64_t step, uint32_t part)
{
    if (part == 1) return step % 3 == 0 ? 0 : 5;
    return part == 0 ? 3 : 200 + 700 * (int64_t)(step % 4);
}

static uint8_t head_byte(uint64_t step, unsigned life, size_t i)
{
    return (uint8_t)(step * 7 + life * 31 + i);
}

static pd_wal_record *new_entry(uint64_t step, uint64_t base, uint32_t parts, size_t floats)
{
    pd_wal_record *e = calloc(1, sizeof *e);

    if (e == NULL) return NULL;
    *e = (pd_wal_record){ .creator = LOG_CREATOR, .number = 9, .step = step, .base = base, .n_parts = parts };
    e->head_bytes = 20 + step % 5;
    e->job = strdup(LOG_JOB);
    e->head = malloc(e->head_bytes);
    e->parts = calloc(parts, sizeof *e->parts);
    e->memory = calloc(floats + 1, sizeof(float));
    if (e->job != NULL && e->head != NULL && e->parts != NULL && e->memory != NULL) return e;
    free(e->parts);
    e->parts = NULL;
    e->n_parts = 0;
    pd_wal_record_free(e);
    return NULL;
}

pd_wal_record *sample_logged(uint64_t step, uint64_t base, unsigned life)
{
    size_t floats = 0;
    pd_wal_record *e;
    float *at;

    for (uint32_t p = 0; p < PARTS; p++) floats += (size_t)elements_of(step, p);
    if ((e = new_entry(step, base, PARTS, floats)) == NULL) return NULL;
    for (size_t i = 0; i < e->head_bytes; i++) e->head[i] = head_byte(step, life, i);
    at = e->memory;
    for (uint32_t p = 0; p < PARTS; p++) {
        int64_t n = elements_of(step, p);
        e->parts[p] = (pd_wal_part){ .at = n > 0 ? at : NULL, .elements = n };
        for (int64_t i = 0; i < n; i++) *at++ = number_at(step, life, p, i);
    }
    return e;
}

pd_wal_record *sample_large_entry(uint64_t step, uint64_t base, size_t elements)
{
    pd_wal_record *e = new_entry(step, base, 1, elements);
    float *at;

    if (e == NULL) return NULL;
    memset(e->head, 0, e->head_bytes);
    at = e->memory;
    for (size_t i = 0; i < elements; i++) at[i] = (float)(i % 1000) + (float)step;
    e->parts[0] = (pd_wal_part){ .at = at, .elements = (int64_t)elements };
    return e;
}

void assert_logged(const pd_wal_record *record, uint64_t step, unsigned life)
{
    pd_wal_record *expected = sample_logged(step, record->base, life);

    assert_string_equal(record->job, LOG_JOB);
    assert_int_equal(record->creator, LOG_CREATOR);
    assert_int_equal(record->number, 0);
    assert_int_equal(record->step, step);
    assert_true(record->base < step);
    assert_int_equal(record->head_bytes, expected->head_bytes);
    assert_memory_equal(record->head, expected->head, expected->head_bytes);
    assert_int_equal(record->n_parts, expected->n_parts);
    for (uint32_t p = 0; p < expected->n_parts; p++) {
        assert_int_equal(record->parts[p].elements, expected->parts[p].elements);
        assert_true((record->parts[p].at == NULL) == (expected->parts[p].at == NULL));
        assert_true((uintptr_t)record->parts[p].at % 64 == 0);
        if (expected->parts[p].at != NULL)
            assert_memory_equal(record->parts[p].at, expected->parts[p].at,
                                sizeof(float) * (size_t)expected->parts[p].elements);
    }
    pd_wal_record_free(expected);
}

static void open_logs(log_course *c)
{
    assert_int_equal(pd_wal_writer_new(&c->logs, &c->disk, LOG_ROOT, LOG_SEGMENT_BYTES, NULL), PD_OK);
}

void course_new(log_course *c)
{
    *c = (log_course){ .memory = mem_disk_new(), .life = 1 };
    assert_non_null(c->memory);
    c->disk = mem_disk_table(c->memory);
    assert_int_equal(c->disk.make_dir(c->disk.arg, LOG_ROOT), 0);
    assert_int_equal(c->disk.make_dir(c->disk.arg, LOG_JOB_DIR), 0);
    assert_int_equal(c->disk.sync_dir(c->disk.arg, "/"), 0);
    assert_int_equal(c->disk.sync_dir(c->disk.arg, LOG_ROOT), 0);
    open_logs(c);
}

void course_free(log_course *c)
{
    course_stop(c);
    mem_disk_free(c->memory);
}

static void take_back(log_course *c, pd_wal_record *e)
{
    if (e->error.code == PD_OK) {
        assert_int_equal(e->bytes % PD_DISK_BLOCK, 0);
        assert_true(e->bytes > 0);
        c->durable = e->step;
    } else {
        c->error = e->error;
        c->refused++;
    }
    pd_wal_record_free(e);
}

void course_steps(log_course *c, unsigned n)
{
    pd_wal_record *entries[16];

    assert_true(n <= 16 && c->step + n < LOG_MOST_STEPS);
    for (unsigned i = 0; i < n; i++) {
        c->life_of[++c->step] = c->life;
        entries[i] = sample_logged(c->step, c->base, c->life);
        assert_non_null(entries[i]);
        entries[i]->stream = c->control ? PD_WAL_DECISIONS : PD_WAL_STEPS;
    }
    pd_wal_write(c->logs, entries, n);
    for (unsigned i = 0; i < n; i++) take_back(c, entries[i]);
}

void course_checkpoint(log_course *c, uint64_t step)
{
    assert_true(step > c->base && step <= c->step);
    c->base = step;
    if (c->durable < step) c->durable = step;
}

void course_stop(log_course *c)
{
    pd_wal_writer_free(c->logs);
    c->logs = NULL;
}

static int see(void *arg, const pd_wal_record *record, pd_error *err)
{
    log_course *c = arg;

    (void)err;
    if (c->control && c->step == 0) c->step = record->step - 1; /* the log says where it begins */
    assert_logged(record, ++c->step, c->life_of[record->step < LOG_MOST_STEPS ? record->step : 0]);
    return PD_OK;
}

/* As course_recover, of the stream of decisions. Records up to the base are not needed, so they need not be there. */
static int recover_control(log_course *c, pd_wal_about *about, pd_error *err)
{
    int rc;

    c->step = 0;
    rc = pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_DECISIONS, 0 }, see, c, about, err);
    if (rc != PD_OK) return rc;
    assert_true(about->entries == 0 || about->last == c->step);
    if (c->step < c->base) c->step = c->base;
    return pd_wal_truncate(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_DECISIONS, 0 }, about->last,
                           err);
}

int course_recover(log_course *c, pd_wal_about *about, pd_error *err)
{
    int rc;

    if (c->control) return recover_control(c, about, err);
    c->step = c->base;
    rc = pd_wal_read(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, c->base }, see, c, about, err);
    if (rc != PD_OK) return rc;
    assert_int_equal(about->last, c->step);
    assert_int_equal(about->entries, c->step - c->base);
    return pd_wal_truncate(&(pd_wal_source){ &c->disk, LOG_JOB_DIR, LOG_CREATOR, PD_WAL_STEPS, c->base }, c->step, err);
}

void course_return(log_course *c)
{
    pd_wal_about about;
    pd_error err = { 0 };

    if (course_recover(c, &about, &err) != PD_OK) fail_msg("%s", err.text);
    if (about.damage.code != PD_OK) fail_msg("%s", about.damage.text);
    if (c->step < c->durable)
        fail_msg("step %llu was durable, and the job is back at step %llu", (unsigned long long)c->durable,
                 (unsigned long long)c->step);
    c->durable = c->step; /* what is back was not reported, but stays */
    c->life++;
    open_logs(c);
}
