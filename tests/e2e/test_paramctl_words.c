/* Tests how paramctl reads its command line: options, help, exit statuses; and the commands that need no daemon. */
#include "test.h"
#include "daemon_process.h"

TEST(exit_status_is_3_where_nobody_listens)
{
    static const char *const commands[] = { "ping",      "status",     "jobs",         "params x",   "workers x",
                                            "roots x",   "optimizers", "drop x",       "kick x 1",   "top",
                                            "drain",     "shutdown",   "set x y lr=1", "settings x", "replay x",
                                            "bench net", "rounds",     "rounds x",     "members x" };
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        assert_int_equal(paramctl("--server tcp://127.0.0.1:1 --timeout 0.2 %s", commands[i]), 3);
        assert_says("127.0.0.1:1");
    }
}

TEST(who_has_named_no_daemon_is_told_how)
{
    if (paramctl_shell("unset PARAMD_URL; $paramctl ping --timeout 2") == 0) skip(); /* a daemon at the default port */
    assert_says("--server or PARAMD_URL names another daemon");
    assert_int_equal(paramctl("ping --server tcp://127.0.0.1:1 --timeout 0.2"), 3);
    assert_null(strstr(paramctl_output, "PARAMD_URL"));
}

TEST(exit_status_is_2_for_what_cannot_be_meant)
{
    static const char *const lines[] = { "",
                                         "nonsense",
                                         "ping --loud",
                                         "params x --verb",
                                         "ping --serv tcp://127.0.0.1:1",
                                         "status --output yaml",
                                         "status --timeout 0",
                                         "status --json=yes",
                                         "status -x",
                                         "jobs --watch=never",
                                         "ping --server nowhere://x",
                                         "ping --server tcp://127.0.0.1:99999",
                                         "bench net --server nowhere://x",
                                         "replay --server nowhere://x y",
                                         "optimizers --server nowhere://x",
                                         "help nonsense",
                                         "params",
                                         "roots",
                                         "roots a b c",
                                         "rounds a b",
                                         "members",
                                         "members a b",
                                         "drop",
                                         "kick x",
                                         "kick x y",
                                         "kick x -1",
                                         "replay",
                                         "ping extra",
                                         "status --timeout never",
                                         "bench disk",
                                         "bench net --rounds 2",
                                         "plan",
                                         "plan a b",
                                         "replay --state x",
                                         "set",
                                         "set x",
                                         "set x y",
                                         "set x y lr",
                                         "set x y =1",
                                         "token",
                                         "token old x",
                                         "roles show x y z",
                                         "restore x",
                                         "restore x --job y --step 1 --creator z",
                                         "checkpoint",
                                         "checkpoint x y",
                                         "checkpoint x --step 0",
                                         "checkpoint x --wait soon",
                                         "set x y lr=1 --from soon",
                                         "settings",
                                         "settings x y z" };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (paramctl("%s", lines[i]) != 2) fail_msg("paramctl %s:\n%s", lines[i], paramctl_output);
    }
}

TEST(plan_takes_a_wrong_rule_for_wrong_usage_and_a_wrong_file_for_a_failure)
{
    assert_int_equal(paramctl_shell("echo w 4 | $paramctl plan --rule '* nonsense' -"), 2);
    assert_int_equal(paramctl_shell("echo w 4 | $paramctl plan --rule '* sgd lr=much' -"), 2);
    assert_int_equal(paramctl_shell("echo w 4 | $paramctl plan --option aggregate=nonsense -"), 2);
    assert_int_equal(paramctl_shell("echo w much | $paramctl plan -"), 1);
    assert_int_equal(paramctl_shell("echo w 4 | $paramctl plan -"), 0);
}

TEST(exit_status_is_1_when_the_server_says_no)
{
    static const char *const lines[] = { "params no_such_job",   "workers no_such_job",    "roots no_such_job",
                                         "drop no_such_job",     "optimizers no_such_row", "set no_such_job x lr=1",
                                         "settings no_such_job", "rounds no_such_job",     "members no_such_job" };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        assert_int_equal(paramctl("%s", lines[i]), 1);
        assert_says("no_such");
        assert_int_equal(paramctl("%s --json", lines[i]), 1);
        json_t *answer = parsed();
        assert_string_equal(json_string_value(json_object_get(json_object_get(answer, "error"), "code")), "NOT_FOUND");
        json_decref(answer);
    }
}

TEST(a_wrong_address_in_the_environment_is_an_error_of_usage)
{
    assert_int_equal(paramctl_shell("PARAMD_URL=nowhere://x $paramctl ping"), 2);
    assert_says("nowhere://x");
}

TEST(a_mistyped_word_gets_the_nearest_one)
{
    assert_int_equal(paramctl("jbos"), 2);
    assert_says("unknown command jbos; did you mean jobs?");
    assert_int_equal(paramctl("params x --verbos"), 2);
    assert_says("unknown option --verbos; did you mean --verbose?");
    assert_int_equal(paramctl("set x"), 2);
    assert_says("PATTERN is missing");
}

TEST(options_stand_before_and_behind_names_and_arguments)
{
    static const char *const lines[] = { "-j params no_such_job",
                                         "params --json no_such_job",
                                         "params no_such_job -o json",
                                         "params -ojson -- no_such_job",
                                         "-t2 params -jv no_such_job",
                                         "--timeout=500ms params no_such_job -o=json",
                                         "params no_such_job --output=json --timeout 1m" };

    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        if (paramctl_shell("$paramctl %s 2>/dev/null", lines[i]) != 1) fail_msg("paramctl %s", lines[i]);
        json_t *answer = parsed();
        assert_non_null(json_object_get(answer, "error"));
        json_decref(answer);
    }
}

static const char *const names[] = { "ping",    "status", "top",          "jobs",        "params",      "workers",
                                     "roots",   "state",  "export",       "checkpoint",  "checkpoints", "verify",
                                     "restore", "roles",  "import-state", "reset-state", "set",         "settings",
                                     "token",   "drop",   "drain",        "shutdown",    "plan",        "optimizers",
                                     "bench",   "replay", "doctor",       "rounds",      "members" };

TEST(help_lists_every_command)
{
    static const char *const lines[] = { "-h", "--help", "help", "help --json" };

    for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
        assert_int_equal(paramctl_shell("$paramctl %s", lines[k]), 0);
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) assert_says(names[i]);
        assert_lines_fit(80);
    }
    assert_int_equal(paramctl_shell("$paramctl"), 2);
    assert_says("Usage: paramctl");
}

TEST(every_command_has_help_with_options_and_exit_statuses)
{
    static const char *const lines[] = { "%s --help", "%s -h", "help %s", "-h %s" };
    char line[64];

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (size_t k = 0; k < sizeof lines / sizeof *lines; k++) {
            snprintf(line, sizeof line, lines[k], names[i]);
            if (paramctl("%s", line) != 0) fail_msg("%s:\n%s", line, paramctl_output);
            assert_says("--server");
            assert_says("  3  the daemon cannot be reached");
            assert_lines_fit(80);
            snprintf(line, sizeof line, "Usage: paramctl %s ", names[i]);
            assert_says(line);
        }
}

TEST(the_version_is_printed)
{
    assert_int_equal(paramctl("--version"), 0);
    assert_says("paramctl 0.");
    assert_int_equal(paramctl("plan -V"), 0);
    assert_says("paramctl 0.");
}

TEST(output_that_cannot_be_written_is_a_failure)
{
    assert_int_equal(paramctl_shell("$paramctl jobs > /dev/full"), 1);
    assert_says("cannot write the output");
}

TEST(optimizers_need_no_daemon)
{
    json_t *answer;

    assert_int_equal(paramctl_shell("PARAMD_URL=tcp://127.0.0.1:1 $paramctl optimizers"), 0);
    assert_says("scalable_shampoo");
    assert_lines_fit(100);
    assert_int_equal(paramctl_shell("PARAMD_URL=tcp://127.0.0.1:1 $paramctl optimizers -o wide"), 0);
    assert_says("nesterov");
    assert_int_equal(paramctl("optimizers --json"), 0);
    answer = parsed();
    assert_true(json_array_size(json_object_get(answer, "optimizers")) >= 17);
    json_decref(answer);
}

TEST(an_optimizer_shows_its_hyperparameters)
{
    json_t *answer;

    assert_int_equal(paramctl("optimizers sgd"), 0);
    assert_says("momentum");
    assert_says("nesterov");
    assert_int_equal(paramctl("optimizers kron"), 0);
    assert_lines_fit(100);
    assert_int_equal(paramctl("optimizers sgd --json"), 0);
    answer = parsed();
    assert_string_equal(json_string_value(json_object_get(answer, "name")), "sgd");
    assert_true(json_array_size(json_object_get(answer, "hypers")) >= 6);
    json_decref(answer);
}

TEST(a_daemon_of_this_release_lists_the_same_optimizers)
{
    static char own[sizeof paramctl_output];

    assert_int_equal(paramctl("optimizers -o wide"), 0);
    strcpy(own, paramctl_output);
    assert_int_equal(paramctl("optimizers -o wide --server %s", paramctl_server.url), 0);
    assert_string_equal(paramctl_output, own);
    assert_int_equal(paramctl("optimizers sgd --server %s", paramctl_server.url), 0);
    assert_says("nesterov");
}

TEST(plan_reads_standard_input_and_shapes_as_it_prints_them)
{
    assert_int_equal(paramctl_shell("printf 'wte (50257, 768) axes=vocab,embed\\nb (768,)\\ns ()\\n' | "
                                    "PARAMD_URL=tcp://127.0.0.1:1 $paramctl plan -"),
                     0);
    assert_says("weights  (50257, 768)");
    assert_says("axes vocab,embed");
    assert_says("weights  (768,)");
    assert_int_equal(paramctl_shell("printf 'wte (50257, 768\\n' | $paramctl plan -"), 1);
    assert_says("standard input:1: wte: missing ) after the shape");
    assert_int_equal(paramctl_shell("$paramctl plan - < /dev/null"), 1);
    assert_says("standard input: empty input");
}

GROUP(paramctl_start_server, paramctl_stop_server);
