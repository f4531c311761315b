/* Tests which course reports name that leave although the disk has failed. */
#include "test.h"
#include "withheld.h"

#include <stdlib.h>

enum { PASSING = 77 };

static pd_effect *report(uint64_t step)
{
    pd_effect *effect = calloc(1, sizeof *effect);

    effect->kind = PD_EFF_CLOSED;
    effect->u.closed.n = 1;
    effect->u.closed.at = calloc(1, sizeof *effect->u.closed.at);
    effect->u.closed.at[0] = (pd_closed){ .step = step, .outcome = PD_STEPPED };
    effect->u.closed.first = effect->u.closed.place = step;
    return effect;
}

static pd_effect *members(void)
{
    pd_effect *effect = calloc(1, sizeof *effect);

    effect->kind = PD_EFF_MEMBERS;
    return effect;
}

/* Takes the next effect from the outbox, and returns the course that it names. */
static uint64_t next_course(pd_effects *outbox)
{
    pd_effect *effect = outbox->first;
    uint64_t course;

    assert_non_null(effect);
    course = effect->kind == PD_EFF_CLOSED ? effect->u.closed.course : effect->u.members.course;
    outbox->first = (pd_effect *)(void *)effect->mail.next;
    if (outbox->first == NULL) outbox->last = NULL;
    pd_effect_free(effect);
    return course;
}

/* Withholds the report of step 5, whose set is in no record, and news of the members behind it. Then lets them go. */
static void give_up(pd_withheld *withheld, pd_effects *outbox)
{
    pd_withheld_begin(withheld);
    pd_withheld_fixed(withheld, 5, false);
    pd_withheld_send(withheld, outbox, report(5));
    pd_withheld_send(withheld, outbox, members());
    assert_null(outbox->first);
    pd_withheld_give_up(withheld, outbox, PASSING);
}

TEST(what_was_withheld_names_the_passing_course_when_the_disk_is_given_up)
{
    pd_withheld withheld = { 0 };
    pd_effects outbox = { 0 };

    give_up(&withheld, &outbox);
    assert_int_equal(next_course(&outbox), PASSING);
    assert_int_equal(next_course(&outbox), PASSING);
    assert_null(outbox.first);
}

TEST(the_passing_course_ends_when_the_disk_has_all_that_was_reported_without_it)
{
    pd_withheld withheld = { 0 };
    pd_effects outbox = { 0 };

    give_up(&withheld, &outbox);
    pd_withheld_send(&withheld, &outbox, report(6));
    for (int i = 0; i < 3; i++) assert_int_equal(next_course(&outbox), PASSING);
    assert_false(pd_withheld_durable(&withheld, 5, true));
    pd_withheld_begin(&withheld);
    pd_withheld_send(&withheld, &outbox, report(7));
    assert_int_equal(next_course(&outbox), PASSING);
    assert_true(pd_withheld_durable(&withheld, 6, true));
    pd_withheld_send(&withheld, &outbox, report(8));
    assert_int_equal(next_course(&outbox), 0);
}

TEST(records_of_steps_end_the_passing_course_too)
{
    pd_withheld withheld = { .logged = true };
    pd_effects outbox = { 0 };

    give_up(&withheld, &outbox);
    for (int i = 0; i < 2; i++) assert_int_equal(next_course(&outbox), PASSING);
    assert_false(pd_withheld_durable(&withheld, 4, true));
    assert_true(pd_withheld_durable(&withheld, 5, false));
}
