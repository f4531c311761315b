/* Tests checkpoints whose states and weights are read in any order, and those that are written while they are made. */
#include "test.h"
#include "checkpoint_sample.h"
#include "mem_disk.h"

#define ROOT "/state"
#define STEP_4 ROOT "/runs%2Fgpt%20%231-0123456789abcdef/step-00000000000000000004"

typedef struct fixture {
    mem_disk *memory;
    pd_disk disk;
    pd_checkpoint_image *kept; /* the checkpoint of step 4, which is on the disk */
} fixture;

static void set_up(fixture *f)
{
    f->memory = mem_disk_new();
    f->disk = mem_disk_table(f->memory);
    f->kept = sample_checkpoint(4, 1);
    assert_int_equal(f->disk.make_dir(f->disk.arg, ROOT), 0);
    assert_int_equal(pd_checkpoint_write(&f->disk, ROOT, f->kept, &sample_about, NULL), PD_OK);
}

static void tear_down(fixture *f)
{
    pd_checkpoint_image_free(f->kept);
    mem_disk_free(f->memory);
}

FIXTURE(fixture, set_up, tear_down);

TEST(states_and_ranges_of_weights_are_read_in_any_order, fixture *f)
{
    pd_checkpoint_picker *picker;
    pd_checkpoint_image *image;
    pd_manifest manifest;
    pd_error err = { 0 };

    assert_int_equal(pd_checkpoint_pick(&picker, &f->disk, STEP_4, &manifest, &err), PD_OK);
    image = pd_checkpoint_picked(picker);
    assert_int_equal(image->step, 4);
    assert_int_equal(image->n_worker_states, f->kept->n_worker_states);
    for (uint32_t round = 0; round < 2; round++)
        for (uint32_t k = 0; k < image->n_params; k++) {
            uint32_t i = round == 0 ? image->n_params - 1 - k : k;
            const pd_checkpoint_param *wanted = &f->kept->params[i];
            assert_int_equal(image->read_state(image->read_arg, i, &err), PD_OK);
            assert_int_equal(image->params[i].state_bytes, wanted->state_bytes);
            assert_memory_equal(image->params[i].state, wanted->state, wanted->state_bytes);
            for (int64_t first = 0; first < wanted->elements; first += 3) {
                float two[2];
                int64_t n = wanted->elements - first < 2 ? wanted->elements - first : 2;
                assert_int_equal(pd_checkpoint_pick_weights(image->read_arg, i, first, n, two, &err), PD_OK);
                assert_memory_equal(two, wanted->weights + first, (size_t)n * sizeof *two);
            }
        }
    pd_checkpoint_picker_free(picker);
}

TEST(any_byte_that_changes_is_found_before_something_is_read, fixture *f)
{
    static const char *const files[] = { "weights.safetensors", "state.bin", "notes.bin", "manifest.json" };
    pd_checkpoint_picker *picker;
    pd_manifest manifest;
    char path[512];
    size_t bytes;

    for (int i = 0; i < 4; i++) {
        uint8_t *at;
        snprintf(path, sizeof path, "%s/%s", STEP_4, files[i]);
        at = mem_disk_file(f->memory, path, &bytes);
        for (size_t b = 0; b < bytes; b += b < 300 ? 1 : 61) {
            pd_error err = { 0 };
            at[b] ^= 4;
            assert_int_equal(pd_checkpoint_pick(&picker, &f->disk, STEP_4, &manifest, &err), PD_DATA_LOSS);
            assert_non_null(strstr(err.text, STEP_4));
            at[b] ^= 4;
        }
    }
}

/* A disk of which one read fails. */
typedef struct failing {
    pd_disk_pass base;
    int64_t left; /* number of reads before it */
} failing;

static int read_or_fail(void *arg, int file, uint64_t offset, void *at, size_t bytes)
{
    failing *f = arg;

    return f->left-- == 0 ? EIO : f->base.below->read(f->base.below->arg, file, offset, at, bytes);
}

TEST(a_disk_that_fails_while_it_is_read_gives_an_error, fixture *f)
{
    pd_checkpoint_picker *picker;
    pd_manifest manifest;
    int refused = 0, rc = PD_UNAVAILABLE;
    failing disk;

    pd_disk_pass_init(&disk.base, &f->disk);
    disk.base.functions.read = read_or_fail;
    for (int64_t n = 0; rc != PD_OK; n++, refused++) {
        pd_error err = { 0 };
        disk.left = n;
        if ((rc = pd_checkpoint_pick(&picker, &disk.base.functions, STEP_4, &manifest, &err)) != PD_OK)
            assert_int_equal(rc, PD_UNAVAILABLE);
    }
    pd_checkpoint_picker_free(picker);
    assert_true(refused > 8);
}

/* A checkpoint that has one state and the weights of one parameter at a time. */
typedef struct lender {
    const pd_checkpoint_image *from;
    pd_checkpoint_image *to;
    uint32_t states, fails; /* number of states that were lent; at which one it fails */
} lender;

static int lend_state(void *arg, uint32_t i, pd_error *err)
{
    lender *l = arg;

    assert_int_equal(i, l->states);
    if (l->states++ == l->fails) return pd_fail(err, PD_NO_MEMORY, "no memory for state %u", i);
    if (i > 0) l->to->params[i - 1].state = NULL;
    l->to->params[i].state = l->from->params[i].state;
    l->to->params[i].state_bytes = l->from->params[i].state_bytes;
    return PD_OK;
}

static int lend_weights(void *arg, uint32_t i, pd_error *err)
{
    lender *l = arg;

    (void)err;
    for (uint32_t k = 0; k < l->to->n_params; k++) l->to->params[k].weights = NULL;
    l->to->params[i].weights = l->from->params[i].weights;
    return PD_OK;
}

/* Writes the checkpoint of step 5 while it is made. */
static int write_lent(const fixture *f, const pd_checkpoint_image *from, uint32_t fails, pd_error *err)
{
    pd_checkpoint_image *to = sample_checkpoint(5, 2);
    pd_checkpoint_param *params = malloc(to->n_params * sizeof *params);
    lender l = { .from = from, .to = to, .fails = fails };
    int rc;

    memcpy(params, to->params, to->n_params * sizeof *params);
    for (uint32_t i = 0; i < to->n_params; i++) {
        to->params[i].weights = NULL;
        to->params[i].state = NULL;
    }
    to->read_state = lend_state;
    to->lend_weights = lend_weights;
    to->read_arg = &l;
    rc = pd_checkpoint_write(&f->disk, ROOT, to, &sample_about, err);
    memcpy(to->params, params, to->n_params * sizeof *params);
    free(params);
    pd_checkpoint_image_free(to);
    return rc;
}

TEST(a_checkpoint_that_is_lent_is_written_as_one_in_memory, fixture *f)
{
    pd_checkpoint_image *from = sample_checkpoint(5, 1), *read;
    pd_manifest manifest;
    pd_error err = { 0 };

    if (write_lent(f, from, UINT32_MAX, &err) != PD_OK) fail_msg("%s", err.text);
    assert_int_equal(pd_checkpoint_load(&f->disk, ROOT "/runs%2Fgpt%20%231-0123456789abcdef/step-00000000000000000005",
                                        &read, &manifest, &err),
                     PD_OK);
    assert_checkpoints_same(read, from);
    pd_checkpoint_image_free(read);
    pd_checkpoint_image_free(from);
}

TEST(a_state_that_cannot_be_lent_leaves_no_checkpoint, fixture *f)
{
    pd_checkpoint_image *from = sample_checkpoint(5, 1);
    pd_error err = { 0 };

    assert_int_equal(write_lent(f, from, 2, &err), PD_NO_MEMORY);
    assert_non_null(strstr(err.text, "no memory for state 2"));
    assert_false(mem_disk_has(f->memory, ROOT "/runs%2Fgpt%20%231-0123456789abcdef/step-00000000000000000005"));
    pd_checkpoint_image_free(from);
}
