/* Tests the commands rounds and members of paramctl, with a job whose steps count a quorum of its workers. */
#include "test.h"
#include "daemon_process.h"
#include "paramd/client.h"

#define JOB "resnet50-imagenet-bf16-sweep-0017"

enum { WORLD = 3, SIDE = 16 };

static pd_client *join(const char *option, const char *second, uint32_t rank)
{
    static float weights[SIDE * SIDE];
    static const char *const rules[] = { "* sgd lr=0.1", NULL };
    pd_client_options options = { .urls = paramctl_server.url,
                                  .job = JOB,
                                  .rank = rank,
                                  .world_size = WORLD,
                                  .rules = rules,
                                  .options = (const char *const[]){ option, second, NULL },
                                  .label = "gpu-node-017.cluster.example.org:31337",
                                  .deadline = 20 };
    pd_client_param param = { .name = "w", .shape = { .rank = 2, .dim = { SIDE, SIDE } } };
    void *initial[] = { weights };
    pd_client *client;
    pd_error err = { 0 };

    if (pd_client_open(&client, &options, &err) != PD_OK || pd_client_declare(client, &param, 1, &err) != PD_OK ||
        (rank == 0 && pd_client_init(client, initial, &err) != PD_OK))
        fail_msg("%s", err.text);
    return client;
}

/* A job of three workers. */
typedef struct team {
    pd_client *rank[WORLD];
} team;

static team start(const char *option, const char *second)
{
    team t;

    for (uint32_t r = 0; r < WORLD; r++) t.rank[r] = join(option, second, r);
    return t;
}

static void push(team *t, uint32_t rank)
{
    static float gradient[WORLD][SIDE * SIDE];
    static pd_item items[WORLD];
    pd_ticket_id ticket;
    pd_error err = { 0 };

    items[rank] = (pd_item){ .param = 0, .gradient = gradient[rank] };
    if (pd_client_push(t->rank[rank], &items[rank], 1, NULL, &ticket, &err) != PD_OK) fail_msg("%s", err.text);
}

static void end(team *t)
{
    assert_int_equal(paramctl("drop " JOB), 0);
    for (uint32_t r = 0; r < WORLD; r++) pd_client_close(t->rank[r]);
}

/* Asks for the rounds until the output has a text. */
static void await_rounds(const char *text)
{
    double until = seconds_now() + patient(20);

    do {
        assert_int_equal(paramctl("rounds " JOB), 0);
        if (strstr(paramctl_output, text) != NULL) return;
        sleep_for(0.05);
    } while (seconds_now() < until);
    assert_says(text);
}

static json_t *first_of(const char *command, const char *list)
{
    json_t *answer, *entry;

    assert_int_equal(paramctl("%s --json", command), 0);
    answer = parsed();
    entry = json_incref(json_array_get(json_object_get(answer, list), 0));
    json_decref(answer);
    return entry;
}

TEST(rounds_show_whom_a_step_waits_for)
{
    team t = start("rounds=quorum", "quorum=2");
    json_t *round;

    push(&t, 1);
    await_rounds(" 1/3 ");
    assert_says(" open ");
    assert_says("0, 2");
    assert_lines_fit(100);
    round = first_of("rounds " JOB, "rounds");
    assert_string_equal(json_string_value(json_object_get(round, "missing")), "0,2");
    assert_int_equal(json_integer_value(json_object_get(round, "quorum")), 2);
    json_decref(round);
    end(&t);
}

TEST(rounds_show_how_long_the_grace_lasts)
{
    team t = start("quorum=2", "grace=300s");

    push(&t, 0);
    push(&t, 2);
    await_rounds("grace 4 min");
    assert_says(" 2/3 ");
    end(&t);
}

TEST(rounds_name_a_lost_worker)
{
    team t = start("quorum=3", "grace=1s");

    push(&t, 0);
    pd_client_close(t.rank[2]);
    t.rank[2] = NULL;
    await_rounds("2 (lost 0 s), 1");
    end(&t);
}

TEST(without_a_job_rounds_lists_all_jobs)
{
    team t = start("rounds=quorum", "quorum=2");

    assert_int_equal(paramctl("rounds"), 0);
    assert_says("\n" JOB "  ");
    assert_says(" idle ");
    end(&t);
}

TEST(a_daemon_without_jobs_has_no_rounds)
{
    assert_int_equal(paramctl("rounds"), 0);
    assert_says("no rounds");
}

TEST(members_show_how_often_each_counts)
{
    team t = start("rounds=quorum", "quorum=2");
    json_t *member;

    push(&t, 0);
    push(&t, 1);
    await_rounds("1: 0,1");
    assert_int_equal(paramctl("members " JOB), 0);
    for (const char *const *title = (const char *const[]){ "RANK  WORKER", " STATE", " STEP", " COUNTED", " SHARE",
                                                           " LATE", " AGE", " PATIENCE", NULL };
         *title != NULL; title++)
        assert_says(*title);
    assert_says(" 100 % ");
    assert_says(" 0 % ");
    assert_lines_fit(100);
    member = first_of("members " JOB, "members");
    assert_string_equal(json_string_value(json_object_get(member, "state")), "member");
    assert_int_equal(json_integer_value(json_object_get(member, "counted")), 1);
    assert_int_equal(json_integer_value(json_object_get(member, "next")), 2);
    json_decref(member);
    end(&t);
}

GROUP(paramctl_start_server, paramctl_stop_server);
