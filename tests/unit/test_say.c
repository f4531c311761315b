/* Tests which lines of the store's log count as repetitions of the same line (have the same site). */
#include "test.h"
#include "effects.h"
#include "log.h"

/* Returns the site of the log line which says that a rank of `job` is lost. */
static uint64_t site_of(const char *job, int rank)
{
    pd_effects outbox = { NULL, NULL };
    pd_effect *effect;
    uint64_t site;

    pd_say(&outbox, PD_SAY_WARNING, (pd_log_facts){ .job = job }, "rank %d is lost", rank);
    effect = pd_effects_take(&outbox);
    assert_non_null(effect);
    site = effect->u.log.site;
    pd_effect_free(effect);
    return site;
}

HOLDS(a_job_that_repeats_itself_is_one_site, assert_true(site_of("a", 1) == site_of("a", 2)));

HOLDS(two_jobs_are_two_sites, assert_true(site_of("a", 1) != site_of("b", 1)));

TEST(two_formats_are_two_sites)
{
    pd_effects outbox = { NULL, NULL };
    pd_effect *effect;

    pd_say(&outbox, PD_SAY_WARNING, (pd_log_facts){ .job = "a" }, "something else");
    effect = pd_effects_take(&outbox);
    assert_true(effect->u.log.site != site_of("a", 1));
    pd_effect_free(effect);
}

TEST(a_line_about_no_job_has_the_site_of_its_format)
{
    pd_effects outbox = { NULL, NULL };
    pd_effect *effect;

    pd_say(&outbox, PD_SAY_INFO, (pd_log_facts){ 0 }, "draining for %d seconds", 5);
    effect = pd_effects_take(&outbox);
    assert_string_equal(effect->u.log.text, "draining for 5 seconds");
    pd_effect_free(effect);
}

TEST(many_short_jobs_do_not_silence_another_one)
{
    char name[32];
    unsigned missed;

    for (int i = 0; i < 2000; i++) {
        snprintf(name, sizeof name, "short-%d", i);
        pd_log_may_speak(site_of(name, 0), 5000, &missed);
    }
    assert_true(pd_log_may_speak(site_of("long", 0), 5000, &missed));
}
