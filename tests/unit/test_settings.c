/* What the example's command line becomes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "settings.h"

static settings parsed(char *const *words)
{
    settings set;
    char    *argv[16] = { "fashion" };
    int      argc = 1;

    while (*words != NULL) argv[argc++] = *words++;
    settings_parse(&set, argc, argv);
    return set;
}
#define PARSED(...) parsed((char *[]){ __VA_ARGS__, NULL })

static void sgd_gets_what_suits_the_model(void **state)
{
    settings set = PARSED("--epochs", "3");
    (void)state;
    assert_string_equal(set.optimizer, "sgd lr=0.1 momentum=0.9");
    assert_float_equal(set.rate, 0.1, 1e-12);
    assert_int_equal(set.epochs, 3);
}

static void what_the_user_says_stands(void **state)
{
    settings set = PARSED("lr=0.5", "momentum=0", "nesterov=no");
    (void)state;
    assert_string_equal(set.optimizer, "sgd lr=0.5 momentum=0 nesterov=no");
    assert_float_equal(set.rate, 0.5, 1e-12);
}

static void another_optimizer_keeps_its_own_defaults(void **state)
{
    settings set = PARSED("--optimizer", "shampoo");
    (void)state;
    assert_string_equal(set.optimizer, "shampoo");
    assert_true(set.rate == 0.0);
}

static void hyperparameters_may_come_before_the_optimizer(void **state)
{
    settings set = PARSED("lr=0.5", "--optimizer", "sgdlike", "epsilon=1e-8");
    (void)state;
    assert_string_equal(set.optimizer, "sgdlike lr=0.5 epsilon=1e-8");
}

static void the_learning_rate_bears_the_upstreams_name(void **state)
{
    settings set = PARSED("--optimizer", "shampoolike", "learning_rate=0.25", "lr_decay=3");
    (void)state;
    assert_float_equal(set.rate, 0.25, 1e-12);
    assert_string_equal(set.rate_name, "learning_rate");
    set = PARSED("lr=0.5");
    assert_string_equal(set.rate_name, "lr");
}

static void second_order_gets_what_suits_the_model(void **state)
{
    settings set = PARSED("--optimizer", "scalable_shampoo", "beta2=0.999");
    (void)state;
    assert_string_equal(set.optimizer,
                        "scalable_shampoo beta2=0.999 learning_rate=0.05 block_size=128 preconditioning_compute_steps=20 root_method=eigh");
    assert_float_equal(set.rate, 0.05, 1e-12);
    assert_string_equal(set.rate_name, "learning_rate");
}

static void every_preset_has_a_rate_that_the_user_may_replace(void **state)
{
    static char *const names[] = { "scalable_shampoo", "kron", "adafactor" };

    (void)state;
    for (size_t n = 0; n < sizeof names / sizeof *names; n++) {
        settings set = PARSED("--optimizer", names[n]);

        assert_string_equal(set.rate_name, "learning_rate");
        assert_true(set.rate > 0.0);
        set = PARSED("--optimizer", names[n], "learning_rate=7");
        assert_float_equal(set.rate, 7.0, 1e-12);
    }
}

static void a_hyperparameter_whose_name_ends_like_a_preset_does_not_replace_it(void **state)
{
    settings set = PARSED("my_momentum=1");
    (void)state;
    assert_string_equal(set.optimizer, "sgd my_momentum=1 lr=0.1 momentum=0.9");
}

static void the_training_loss_is_looked_at_only_when_asked_for(void **state)
{
    (void)state;
    assert_int_equal(PARSED("--epochs", "1").probe, 0);
    assert_int_equal(PARSED("--train-loss", "20").probe, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sgd_gets_what_suits_the_model),
        cmocka_unit_test(what_the_user_says_stands),
        cmocka_unit_test(another_optimizer_keeps_its_own_defaults),
        cmocka_unit_test(hyperparameters_may_come_before_the_optimizer),
        cmocka_unit_test(the_learning_rate_bears_the_upstreams_name),
        cmocka_unit_test(second_order_gets_what_suits_the_model),
        cmocka_unit_test(every_preset_has_a_rate_that_the_user_may_replace),
        cmocka_unit_test(a_hyperparameter_whose_name_ends_like_a_preset_does_not_replace_it),
        cmocka_unit_test(the_training_loss_is_looked_at_only_when_asked_for),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
