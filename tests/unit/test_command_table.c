/* Tests the tables of commands. Help, manual pages and shell completion are generated from them, so every row must be
 * complete. */
#include <ctype.h>

#include "test.h"
#include "commands.h"
#include "text.h"
#include "programs.h"

static const pd_command *const tables[] = { pd_commands, pd_programs, NULL };

/* Calls `check` for every command. */
static void for_all(void (*check)(const pd_command *command))
{
    for (const pd_command *const *table = tables; *table != NULL; table++)
        for (const pd_command *c = *table; c->name != NULL; c++) check(c);
}

/* Checks that a text is a sentence without a full stop. The help adds the full stop. */
static void assert_sentence(const char *owner, const char *text)
{
    if (text == NULL || (!isupper((unsigned char)text[0]) && text[0] != '"') || text[strlen(text) - 1] == '.')
        fail_msg("%s: %s", owner, text != NULL ? text : "no text");
}

static void check_option(const pd_command *command, const pd_command_option *option)
{
    bool flag = option->kind == PD_OPTION_FLAG;

    assert_sentence(option->name, option->help);
    if (flag != (option->value == NULL)) fail_msg("%s --%s: %s", command->name, option->name, option->value);
    if (option->kind == PD_OPTION_NUMBER) assert_true(option->most > option->least);
    for (const pd_command_option *o = pd_common_options; o != option && o->name != NULL; o++) {
        assert_string_not_equal(o->name, option->name);
        if (option->letter != 0) assert_int_not_equal(o->letter, option->letter);
    }
    for (const pd_command_option *o = command->options; o != NULL && o->name != NULL && o != option; o++) {
        assert_string_not_equal(o->name, option->name);
        if (option->letter != 0) assert_int_not_equal(o->letter, option->letter);
    }
}

static void check_command(const pd_command *command)
{
    assert_sentence(command->name, command->about);
    assert_non_null(command->args);
    assert_true(command->least <= command->most);
    assert_int_equal(command->args[0] == '\0', command->most == 0);
    for (const pd_command_option *o = command->options; o != NULL && o->name != NULL; o++) check_option(command, o);
}

TEST(every_row_is_complete)
{
    for_all(check_command);
}

/* Checks that the words of `args` without brackets are the arguments that the command requires. */
static void check_needed(const pd_command *command)
{
    int needed = 0;

    for (const char *at = command->args; *at != '\0'; at += strcspn(at, " ") + (strchr(at, ' ') != NULL))
        needed += *at != '[';
    if (needed != command->least) fail_msg("%s %s: %d", command->name, command->args, command->least);
}

TEST(required_arguments_are_shown_without_brackets)
{
    for_all(check_needed);
}

TEST(names_are_unique)
{
    for (const pd_command *a = pd_commands; a->name != NULL; a++) {
        for (const pd_command *b = pd_commands; b != a; b++) assert_string_not_equal(a->name, b->name);
        for (const pd_command *b = pd_programs; b->name != NULL; b++) assert_string_not_equal(a->name, b->name);
    }
}

TEST(exit_statuses_have_texts)
{
    for (int i = PD_CTL_OK; i <= PD_CTL_UNREACHABLE; i++) assert_non_null(pd_exit_texts[i]);
    assert_null(pd_exit_texts[PD_CTL_UNREACHABLE + 1]);
}

static const char *nearest_of(const char *word)
{
    pd_nearest search = pd_nearest_begin(word, strlen(word));

    for (const pd_command *c = pd_commands; c->name != NULL; c++) pd_nearest_offer(&search, c->name);
    return search.best;
}

TEST(a_mistyped_word_is_near_its_word)
{
    assert_string_equal(nearest_of("jbos"), "jobs");
    assert_string_equal(nearest_of("job"), "jobs");
    assert_string_equal(nearest_of("param"), "params");
    assert_string_equal(nearest_of("shut"), "shutdown");
    assert_string_equal(nearest_of("import"), "import-state");
}

TEST(an_unrelated_word_is_near_no_word)
{
    assert_null(nearest_of("elephant"));
    assert_null(nearest_of(""));
    assert_null(nearest_of("a-word-that-is-longer-than-all-the-words-of-the-tables"));
}
