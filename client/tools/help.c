/* help.c - prints the help of paramctl's commands from the command tables. */
#include "help.h"

#include <string.h>

enum { WIDTH = 80, STATUS_COLUMN = 5, OPTION_COLUMN = 26, COMMAND_COLUMN = 36 };

/* Prints the words of one paragraph in lines of at most WIDTH characters. The first line begins at column `at`,
 * where the output is already; all other lines begin at column `indent`. */
static void fill(FILE *out, const char *text, size_t n, int indent, int at)
{
    const char *end = text + n;
    int column = at;

    if (column < indent) column += fprintf(out, "%*s", indent - column, "");
    while (text < end) {
        int length = (int)strcspn(text, " \n");
        if (length > end - text) length = (int)(end - text);
        if (column > indent && column + 1 + length > WIDTH) {
            fprintf(out, "\n%*s", indent, "");
            column = indent;
        } else if (column > indent) {
            column += fprintf(out, " ");
        }
        column += fprintf(out, "%.*s", length, text);
        text += length + (text + length < end);
    }
    fprintf(out, "\n");
}

static void fill_paragraphs(FILE *out, const char *text)
{
    for (size_t n; *text != '\0'; text += n + (text[n] == '\n')) {
        n = strcspn(text, "\n");
        fill(out, text, n, 0, 0);
    }
}

/* Prints the help of one option, such as " -o, --output text|wide|json Print ... (default text)". */
static void print_option(FILE *out, const pd_command_option *option)
{
    char text[600];
    int at = option->letter != 0 ? fprintf(out, "  -%c, --%s", option->letter, option->name)
                                 : fprintf(out, "      --%s", option->name);

    if (option->value != NULL) at += fprintf(out, option->alone != NULL ? "[=%s]" : " %s", option->value);
    if (at >= OPTION_COLUMN - 1) {
        fprintf(out, "\n");
        at = 0;
    }
    if (option->preset != NULL || option->alone != NULL)
        snprintf(text, sizeof text, "%s (%s %s)", option->help, option->alone != NULL ? "every" : "default",
                 option->alone != NULL ? option->alone : option->preset);
    else
        snprintf(text, sizeof text, "%s", option->help);
    fill(out, text, strlen(text), OPTION_COLUMN, at);
}

static void print_options(FILE *out, const char *title, const pd_command_option *options)
{
    if (options == NULL || options->name == NULL) return;
    fprintf(out, "\n%s:\n", title);
    for (; options->name != NULL; options++) print_option(out, options);
}

/* Prints the part of the help that is the same for all commands: common options, environment variables, exit
 * statuses. */
static void print_common(FILE *out)
{
    print_options(out, "Options of every command", pd_common_options);
    fprintf(out, "\nEnvironment:\n");
    for (const pd_variable *v = pd_variables; v->name != NULL; v++)
        fill(out, v->help, strlen(v->help), OPTION_COLUMN, fprintf(out, "  %s", v->name));
    fprintf(out, "\nExit status:\n");
    for (int i = 0; pd_exit_texts[i] != NULL; i++)
        fill(out, pd_exit_texts[i], strlen(pd_exit_texts[i]), STATUS_COLUMN, fprintf(out, "  %d", i));
}

void pd_help_command(FILE *out, const pd_command *command)
{
    char about[200];

    fprintf(out, "Usage: paramctl %s [OPTION]...%s%s\n", command->name, command->args[0] != '\0' ? " " : "",
            command->args);
    snprintf(about, sizeof about, "%s.", command->about);
    fill_paragraphs(out, about);
    if (command->details != NULL) {
        fprintf(out, "\n");
        fill_paragraphs(out, command->details);
    }
    print_options(out, "Options", command->options);
    print_common(out);
}

void pd_help_all(FILE *out, const pd_command *const *tables)
{
    fprintf(out, "Usage: paramctl [OPTION]... COMMAND [OPTION]... [ARGUMENT]...\n"
                 "Asks a paramd daemon, and plans, proves and measures without one.\n\nCommands:\n");
    for (; *tables != NULL; tables++)
        for (const pd_command *c = *tables; c->name != NULL; c++) {
            int at = fprintf(out, "  %s %s", c->name, c->args);
            fill(out, c->about, strlen(c->about), COMMAND_COLUMN, at);
        }
    fprintf(out, "  %-*sPrint the help of a command\n", COMMAND_COLUMN - 2, "help [COMMAND]");
    print_common(out);
    fprintf(out, "\n`paramctl help COMMAND' prints more about a command.\n");
}
