/* Tests that JSON written by Python is read. */
#include "test.h"
#include "trace.h"

static void assert_reads(const char *text, const char *standard)
{
    json_error_t why;
    json_t *json = pd_python_json(text, &why), *expected = json_loads(standard, 0, NULL);

    if (json == NULL) fail_msg("%s: %s", text, why.text);
    assert_non_null(expected);
    if (!json_equal(json, expected)) fail_msg("%s is not read as %s", text, standard);
    json_decref(json);
    json_decref(expected);
}

HOLDS(numbers_beyond_the_standard_are_null,
      assert_reads("{\"a\": NaN, \"b\": [Infinity, -Infinity, 1.5, -2], \"c\": true}",
                   "{\"a\": null, \"b\": [null, null, 1.5, -2], \"c\": true}"));

HOLDS(text_stays_as_it_is, assert_reads("{\"NaN\": \"Infinity \\\" NaN\", \"b\\\\\": \"-Infinity\", \"c\": NaN}",
                                        "{\"NaN\": \"Infinity \\\" NaN\", \"b\\\\\": \"-Infinity\", \"c\": null}"));

TEST(what_is_not_json_is_refused)
{
    static const char *const texts[] = { "", "{", "{\"a\": Nan}", "{\"a\": 1, \"a\": NaN}", "{\"a\": \"b\\" };
    json_error_t why;

    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (pd_python_json(texts[i], &why) != NULL) fail_msg("%s is read", texts[i]);
        assert_true(strlen(why.text) > 0);
    }
}
