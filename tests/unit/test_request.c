/* Tests requests: each request has the memory for the effects that answer it. */
#include "test.h"
#include "effects.h"

static const pd_ticket ticket = { 3, 7 };

TEST(frees_what_it_owns)
{
    pd_request *request = pd_request_new(PD_REQ_HELLO, ticket);

    request->u.hello.job_name = strdup("job");
    request->u.hello.label = strdup("host:1");
    request->u.hello.options = calloc(1, sizeof(pd_option));
    request->u.hello.options[0] = (pd_option){ strdup("a"), strdup("b") };
    request->u.hello.n_options = 1;
    request->u.hello.rules = calloc(1, sizeof(char *));
    request->u.hello.rules[0] = strdup("* sgd");
    request->u.hello.n_rules = 1;
    pd_request_free(request);
    request = pd_request_new(PD_REQ_DECLARE, ticket);
    request->u.declare.params = calloc(1, sizeof(pd_param_decl));
    request->u.declare.params[0].name = strdup("w");
    request->u.declare.n = 1;
    pd_request_free(request);
    pd_request_free(NULL);
    pd_effect_free(NULL);
    pd_info_free(NULL);
}

TEST(answers_without_asking_for_memory)
{
    pd_request *request = pd_request_new(PD_REQ_PUSH, ticket);
    pd_effects effects = { NULL, NULL };
    pd_error err = { PD_ABORTED, "gone" };
    pd_effect *first, *second;
    int64_t before = oom_allocations();

    request->job = 5;
    pd_answer_error(&effects, request, &err);
    pd_effects_add(&effects, pd_request_become(request, PD_EFF_BUFFER, (pd_ticket){ 3, 0 }, 5));
    assert_int_equal(oom_allocations(), before);
    first = pd_effects_take(&effects);
    second = (pd_effect *)(void *)first->mail.next;
    assert_null(pd_effects_take(&effects));
    assert_int_equal(first->kind, PD_EFF_ERROR);
    assert_int_equal(first->ticket.id, 7);
    assert_int_equal(first->job, 5);
    assert_string_equal(first->u.error.text, "gone");
    assert_int_equal(second->kind, PD_EFF_BUFFER);
    assert_null(second->u.buffer);
    assert_null(second->mail.next);
    pd_effect_free(first);
    pd_effect_free(second);
}

TEST(says_nothing_where_nobody_waits)
{
    pd_request *request = pd_request_new(PD_REQ_LEAVE, (pd_ticket){ 3, 0 });
    pd_effects effects = { NULL, NULL };

    pd_answer_ok(&effects, request);
    assert_null(pd_effects_take(&effects));
    pd_request_free(request);
}

TEST(a_slim_frame_keeps_its_weight_and_buffer)
{
    pd_request *request = pd_request_new(PD_REQ_PUSH, ticket);
    pd_buffer buffer;

    request->u.data.pieces = calloc(3, sizeof(pd_piece));
    request->u.data.n = 3;
    request->u.data.scalars = calloc(2, sizeof(pd_scalar_value));
    request->u.data.n_scalars = 2;
    request->u.data.buffer = &buffer;
    request->u.data.weight = 2;
    pd_request_slim(request);
    assert_null(request->u.data.pieces);
    assert_null(request->u.data.scalars);
    assert_int_equal(request->u.data.n + request->u.data.n_scalars, 0);
    assert_ptr_equal(request->u.data.buffer, &buffer);
    assert_true(request->u.data.weight == 2);
    pd_request_free(request);
}

/* When the server stops, reports of closed rounds may be left that nobody has read. Freeing a report frees its texts
 * and its references to scalars. */
TEST(what_has_closed_frees_reasons_and_scalars_that_nobody_took)
{
    pd_effect *effect = pd_effect_new(PD_EFF_CLOSED, ticket, 1);
    pd_scalar_means *kept = calloc(1, sizeof *kept);

    kept->refs = 2;
    effect->u.closed.n = 2;
    effect->u.closed.at = calloc(2, sizeof *effect->u.closed.at);
    effect->u.closed.at[0].why = pd_reason_new("too large");
    effect->u.closed.at[0].scalars = kept;
    pd_effect_free(effect);
    assert_int_equal(kept->refs, 1);
    pd_scalar_means_unref(kept);
}

TEST(is_refused_when_memory_is_short)
{
    for (int64_t n = 0;; n++) {
        pd_request *request;
        bool failed;
        oom_arm(n);
        request = pd_request_new(PD_REQ_PUSH, ticket);
        failed = oom_disarm();
        assert_true(failed == (request == NULL));
        pd_request_free(request);
        if (!failed) break;
    }
}
