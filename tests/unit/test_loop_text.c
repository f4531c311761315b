/* Tests text that peers send through the daemon: labels, names, rules and options. */
#include "test.h"
#include "scene.h"

static void hello(scene *s, int fd, const char *job, const char *label, const char *rule, uint32_t rank, uint32_t world)
{
    Paramd__HelloRequest request = PARAMD__HELLO_REQUEST__INIT;
    char *rules[] = { (char *)rule };

    request.protocol = 1;
    request.job = (char *)job;
    request.label = (char *)label;
    request.rank = rank;
    request.world_size = world;
    request.nonce = rank + 1;
    request.rules = rules;
    request.n_rules = rule != NULL;
    scene_send(s, fd, PD_HELLO, &request.base, 0);
    scene_settle(s);
}

/* Checks that an operator sees the text `listed` for a worker that joined with this label. */
static void assert_label(const char *label, const char *listed)
{
    scene *s = scene_new(1, NULL);
    int fd = scene_connect(s);
    const Paramd__ListReply *reply;

    hello(s, fd, "j", label, NULL, 0, 1);
    reply = scene_list(s, 3, "j");
    assert_int_equal(reply->n_workers, 1);
    assert_string_equal(reply->workers[0]->label, listed);
    close(fd);
    scene_free(s);
}

TEST(a_label_that_is_too_long_is_cut_between_two_characters)
{
    char label[200], listed[200];

    for (int bytes = 125; bytes <= 127; bytes++) {
        memset(label, 'x', (size_t)bytes);
        strcpy(label + bytes, "\u20ac and more");
        snprintf(listed, sizeof listed, "%.*s", bytes, label);
        assert_label(label, listed);
    }
}

HOLDS(a_label_cannot_turn_the_direction_of_an_operators_line, assert_label("host\xe2\x80\xae"
                                                                           ":1\xc2\x9b"
                                                                           "31m\xe2\x80\xa8"
                                                                           "\u00e9",
                                                                           "host?:1?31m?\u00e9"));

static void assert_refused(const char *job, const char *rule, const char *part)
{
    scene *s = scene_new(1, NULL);
    int fd = scene_connect(s);

    hello(s, fd, job, "host:1", rule, 0, 1);
    scene_expect_error(s, fd, PD_INVALID_ARGUMENT, part);
    close(fd);
    scene_free(s);
}

TEST(a_name_that_cannot_be_printed_is_refused_with_its_place)
{
    assert_refused("job\xc2\x85", "* sgd", "job name has a control character at byte 3: U+0085");
    assert_refused("j\xe2\x81\xa9", "* sgd", "job name has a control character at byte 1: U+2069");
}

HOLDS(a_rule_that_cannot_be_printed_is_refused_before_another_worker_can_hear_of_it,
      assert_refused("j", "w\033[2J* sgd", "rule 0 has a control character at byte 1, U+001B: \"w?[2J* sgd\""));
