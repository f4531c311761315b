/* Tests paramctl plan as a program: its output and its exit status. No daemon runs. */
#include <sys/wait.h>
#include <jansson.h>

#include "test.h"

static char output[64 * 1024]; /* output of the last paramctl command: stdout and stderr */

/* Runs `paramctl plan OPTIONS FILE` on a file with this text. Returns its exit status. */
static int plan(const char *text, const char *options)
{
    char path[] = "/tmp/paramd_plan_XXXXXX", line[2048];
    int fd = mkstemp(path), status;
    FILE *pipe;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
    snprintf(line, sizeof line, "%s/paramctl --server tcp://127.0.0.1:1 plan %s %s 2>&1", getenv("PARAMD_BIN"), options,
             path);
    assert_non_null(pipe = popen(line, "r"));
    output[fread(output, 1, sizeof output - 1, pipe)] = '\0';
    status = pclose(pipe);
    unlink(path);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void assert_says(const char *part)
{
    if (strstr(output, part) == NULL) fail_msg("does not say \"%s\":\n%s", part, output);
}

TEST(a_plan_tells_what_a_model_costs_without_a_daemon)
{
    static const char expected[] = "PARAMETER          SHAPE       STORED   COUNT     BYTES\n"
                                   "embed.weight\n"
                                   "  sgd: state 250 KiB\n"
                                   "  weights          (1000, 64)  float32          250 KiB\n"
                                   "  momentum_buffer  (1000, 64)  float32          250 KiB\n"
                                   "layers.*.weight  x2\n"
                                   "out.weight\n"
                                   "  sgd: state 16.0 KiB each, 48.0 KiB of all 3\n"
                                   "  weights          (64, 64)    float32         16.0 KiB\n"
                                   "  momentum_buffer  (64, 64)    float32         16.0 KiB\n"
                                   "layers.*.bias  x2\n"
                                   "  sgd: state 0 B each, 0 B of all 2\n"
                                   "  weights          (64,)       float32            256 B\n"
                                   "\n"
                                   "PARAMS  ELEMENTS  WEIGHTS    STATE  RULE\n"
                                   "     2       128    512 B      0 B  *.bias sgd lr=0.1\n"
                                   "     4    76,288  298 KiB  298 KiB  * sgd momentum=0.9\n"
                                   "\n"
                                   "parameters   6 of 76,416 elements\n"
                                   "weights      298 KiB\n"
                                   "state        298 KiB, 1.00 of the weights\n"
                                   "largest      embed.weight: 250 KiB of weights, 250 KiB of state\n"
                                   "memory       1.2 MiB in the daemon: 1 worker, aggregate = mean, threads 1 + 1\n"
                                   "               597 KiB  weights, published and to come\n"
                                   "               298 KiB  sums of gradients\n"
                                   "               298 KiB  optimizer state\n";

    assert_int_equal(plan("# a small model\nembed.weight 1000 64\nlayers.0.weight 64 64\nlayers.0.bias "
                          "64\nlayers.1.weight 64 64\nlayers.1.bias 64\nout.weight 64 64\n",
                          "--rule '*.bias sgd lr=0.1' --rule '* sgd momentum=0.9'"),
                     0);
    strstr(output, "optimizer state\n")[strlen("optimizer state\n")] =
        '\0'; /* the output is compared up to here: the bytes in the lines that follow depend on the sizes of structs */
    assert_string_equal(output, expected);
}

TEST(who_plans_a_median_of_a_large_model_learns_what_it_holds)
{
    assert_int_equal(
        plan("w 65536 106496\nb 4096\n", "--workers 16 --option aggregate=median --rule '* adamw lr=1e-3'"), 0);
    assert_says("\n  adamw: state 52.0 GiB\n  median: holds 416 GiB\n");
    assert_says("memory       546 GiB in the daemon: 16 workers, aggregate = median, threads 1 + 1\n");
    assert_says("               416 GiB  contributions of all workers at once\n");
}

TEST(what_no_job_may_have_is_no_option)
{
    char options[65 * 24] = "";

    assert_int_equal(plan("w 3\n", "--option median"), 2);
    assert_says("--option median: expected KEY=VALUE");
    assert_int_equal(plan("w 3\n", "--workers some"), 2);
    assert_int_equal(plan("w 3\n", "--threads 0"), 2);
    for (int i = 0; i < 65; i++) strcat(options, "--option seed=1 ");
    assert_int_equal(plan("w 3\n", options), 2);
    assert_says("--option is given more than 64 times");
}

TEST(a_plan_in_json_is_for_machines)
{
    json_t *answer;

    assert_int_equal(plan("{\"w\": [3, 4]}", "--json --rule '* sgd momentum=0.9'"), 0);
    assert_non_null(answer = json_loads(output, 0, NULL));
    assert_int_equal(json_integer_value(json_object_get(json_object_get(answer, "total"), "state_bytes")), 48);
    json_decref(answer);
}

TEST(a_plan_says_which_line_is_bad)
{
    assert_int_equal(plan("w 3 4\nv three\n", ""), 1);
    assert_says(":2: v: expected a dimension");
    assert_int_equal(plan("w 3 4\n", "--rule '* marvel'"), 2);
    assert_says("there is no optimizer marvel");
}

TEST(more_rules_than_a_job_may_have_are_refused)
{
    char options[65 * 16] = "";

    for (int i = 0; i < 64; i++) strcat(options, "--rule '* sgd' ");
    assert_int_equal(plan("w 3\n", options), 0);
    strcat(options, "--rule '* sgd' ");
    assert_int_equal(plan("w 3\n", options), 2);
    assert_says("--rule is given more than 64 times");
}

TEST(a_plan_spreads_a_model_over_daemons)
{
    static const char text[] = "wte 50000 768\nhead 768 768\n";

    assert_int_equal(plan(text, "--shards 1,2,16 --rule '* adamw' --workers 4"), 0);
    assert_says("SHARDS");
    assert_says("refused: 6 portions are too few");
    assert_int_equal(plan(text, "--shards 1,2 --json"), 0);
    assert_says("\"shard_plans\"");
    assert_int_equal(plan(text, "--shards 0"), 2);
    assert_says("--shards 0: expected at most 16 numbers from 1 to ");
    assert_int_equal(plan(text, "--shards 4,"), 2);
    assert_int_equal(plan(text, "--shards 4x"), 2);
}
