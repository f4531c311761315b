/* Tests the import of a root that is computed but not used yet: it is imported completely and valid, or not at all. */
#include "test.h"
#include "exporting.h"
#include "optimizer.h"
#include "save.h"

static const char rules[] = "* shampoo lr=0.1 max_preconditioner_dim=128 precondition_frequency=2 "
                            "start_preconditioning_step=2 grafting_config=SGD root_delay=2";
enum { FIRST_RESULT = 8 + PD_MAX_HYPERS };

/* Sets up a job after two steps. With root_delay 2, each parameter has a root of step 2 that will be used in step 4. */
static int set_up(void **state)
{
    exporting *f = exporting_start(NULL, rules);

    exporting_train(f, 2);
    *state = f;
    return 0;
}

static const pd_optim *optim_of(exporting *f)
{
    return exporting_param_of(f, 1)->optim;
}

/* Returns the pending root of parameter 1 as a list of *n numbers. The caller frees the list. */
static double *root_of(exporting *f, int64_t *n)
{
    double *root;

    assert_int_equal(pd_optim_tasks_left(optim_of(f)), 1);
    *n = pd_pending_root_length(optim_of(f), 0);
    assert_non_null(root = calloc((size_t)*n, sizeof *root));
    pd_pending_root_read(optim_of(f), 0, 0, *n, root);
    return root;
}

EACH_TEST(set_up, exporting_tear_down);

TEST(a_root_of_its_own_fits, exporting *f)
{
    int64_t n;
    double *root = root_of(f, &n);

    assert_int_equal(n, FIRST_RESULT + 70 * 70);
    assert_int_equal(n, pd_pending_root_most(pd_optim_plan(optim_of(f))));
    assert_int_equal(pd_pending_root_check(optim_of(f), root, n, 2, NULL), PD_OK);
    free(root);
}

TEST(pieces_of_a_root_are_those_of_the_whole, exporting *f)
{
    double piece[40];
    int64_t n;
    double *root = root_of(f, &n);

    for (int64_t first = 0; first + 40 <= n; first += 33) {
        pd_pending_root_read(optim_of(f), 0, first, 40, piece);
        assert_memory_equal(piece, root + first, sizeof piece);
    }
    free(root);
}

TEST(a_root_that_does_not_fit_is_refused, exporting *f)
{
    static const struct {
        int at;
        double value;
    } wrong[] = {
        { 0, 1 },    { 0, -1 },  { 0, 0.5 },  { 0, NAN }, { 1, 3 },  { 1, 0 },  { 1, INFINITY },           { 2, 1 },
        { 2, -100 }, { 2, NAN }, { 2, -1.5 }, { 3, 7 },   { 3, -1 }, { 7, 63 }, { FIRST_RESULT + 5, NAN }, { 2, -17 },
    };
    pd_error err;
    int64_t n;
    double *root = root_of(f, &n);

    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        double was = root[wrong[i].at];
        root[wrong[i].at] = wrong[i].value;
        if (pd_pending_root_check(optim_of(f), root, n, 2, &err) != PD_INVALID_ARGUMENT) fail_msg("%zu", i);
        root[wrong[i].at] = was;
    }
    assert_int_equal(pd_pending_root_check(optim_of(f), root, n - 1, 2, &err), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_pending_root_check(optim_of(f), root, 3, 2, &err), PD_INVALID_ARGUMENT);
    free(root);
}

static int import(exporting *f, pd_import_act act, int number, int64_t n, const double *values)
{
    pd_request *request = pd_request_new(PD_REQ_IMPORT, rig_ticket(&f->r, EXPORTING_OPERATOR));
    uint64_t answered = f->r.answered;

    request->u.import.act = act;
    request->u.import.job_name = strdup("j");
    request->u.import.param = strdup("p1");
    request->u.import.slot = strdup(PD_PENDING_ROOT);
    request->u.import.number = number;
    request->u.import.block = -1;
    request->u.import.wide = true;
    request->u.import.partial = true;
    request->u.import.shape = (pd_shape){ 1, { n } };
    request->u.import.count = values != NULL ? n : 0;
    if (values != NULL)
        memcpy(rig_payload(&f->r, EXPORTING_OPERATOR, (size_t)n * sizeof *values, &request->u.import.buffer), values,
               (size_t)n * sizeof *values);
    rig_apply(&f->r, request);
    rig_work(&f->r);
    assert_int_equal(f->r.answered, answered + 1);
    return f->r.error.code;
}

TEST(an_unsound_root_spoils_the_import_and_changes_nothing, void *given)
{
    exporting *f = given, *to = exporting_start("start_step=2", rules);
    int64_t n;
    double *root = root_of(f, &n);

    assert_int_equal(import(to, PD_IMPORT_BEGIN, -1, 0, NULL), PD_OK);
    assert_int_equal(import(to, PD_IMPORT_PIECE, -1, n, root), PD_INVALID_ARGUMENT);
    assert_int_equal(import(to, PD_IMPORT_PIECE, 4, n, root), PD_INVALID_ARGUMENT);
    root[1] = 77;
    assert_int_equal(import(to, PD_IMPORT_PIECE, 0, n, root), PD_OK);
    assert_int_equal(import(to, PD_IMPORT_COMMIT, -1, 0, NULL), PD_INVALID_ARGUMENT);
    assert_int_equal(pd_optim_tasks_left(optim_of(to)), 0);
    root[1] = 2;
    assert_int_equal(import(to, PD_IMPORT_BEGIN, -1, 0, NULL), PD_OK);
    assert_int_equal(import(to, PD_IMPORT_PIECE, 0, n, root), PD_OK);
    assert_int_equal(import(to, PD_IMPORT_COMMIT, -1, 0, NULL), PD_OK);
    assert_int_equal(pd_optim_tasks_left(optim_of(to)), 1);
    free(root);
    rig_free(&to->r);
    free(to);
}
