/* command_line.c - reads a command line and prints help, as the tables of commands and options describe them. */
#include "command_line.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "local_daemons.h"
#include "shard_list.h"
#include "text.h"
#include "sock.h"

const pd_command_option pd_common_options[] = {
    { "server", 's', PD_OPTION_TEXT, "ADDRESS",
      .help = "Daemon to talk to: tcp://host:port, tls://host:port, host:port, :port, [v6]:port, unix:///path, or the "
              "name of a local daemon (default: $PARAMD_URL, else tcp://127.0.0.1:7070); several daemons of a cluster "
              "are separated by blanks, host-{0..3}:port stands for four" },
    { "timeout", 't', PD_OPTION_SECONDS, "SECONDS", .help = "Give up after this time without an answer",
      .preset = "5" },
    { "output", 'o', PD_OPTION_CHOICE, "text|wide|json",
      .help = "Print text for people, text with all columns uncut, or JSON for programs", .preset = "text" },
    { "json", 'j', PD_OPTION_FLAG, NULL, .help = "The same as -o json" },
    { "help", 'h', PD_OPTION_FLAG, NULL, .help = "Print this help" },
    { "version", 'V', PD_OPTION_FLAG, NULL, .help = "Print the version" },
    { NULL }
};

const pd_variable pd_variables[] = {
    { "PARAMD_URL",
      "Daemon to talk to, if --server is not given; alternatives are separated by commas, the daemons of a "
      "cluster by blanks" },
    { "PARAMD_TOKEN_FILE",
      "File with the client's token, for a tls:// address; only its owner and group may have access" },
    { "PARAMD_CA_FILE", "File with the CA certificates that may sign the daemon's certificate, if there is no token" },
    { "PARAMD_CERT_FILE", "File with the client's certificate, for a daemon that asks for one" },
    { "PARAMD_KEY_FILE", "File with the key of the client's certificate" },
    { "PARAMD_TCP_CONGESTION", "Algorithm of TCP's congestion control, such as bbr; else the kernel's own" },
    { "NO_COLOR", "Print no colours on a terminal, if it is set and not empty" },
    { NULL, NULL }
};

const char *const pd_exit_texts[] = {
    [PD_CTL_OK] = "done",
    [PD_CTL_FAILED] = "failed: the daemon refused the request, nothing matches, or a check did not pass",
    [PD_CTL_USAGE] = "wrong usage: an unknown command or option, a missing argument, a wrong value or address",
    [PD_CTL_UNREACHABLE] = "the daemon cannot be reached, or did not answer in time",
    NULL
};

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
        } else if (column > indent)
            column += fprintf(out, " ");
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

/* Prints the section of the help that is the same for all commands: common options, environment variables, exit
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

#define MOST_SECONDS 1000000.0

_Noreturn void pd_line_refuse(const pd_line *line, const char *format, ...)
{
    const char *name = line->command != NULL ? line->command->name : "", *space = line->command != NULL ? " " : "";
    char text[512];
    va_list args;

    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pd_print_line(stderr, "paramctl%s%s: %s", space, name, text);
    fprintf(stderr, "Try `paramctl%s%s --help'.\n", space, name);
    exit(PD_CTL_USAGE);
}

static bool read_seconds(const char *text, double *seconds)
{
    return pd_duration_read(text, true, seconds) && *seconds > 0 && *seconds <= MOST_SECONDS;
}

static bool read_number(const pd_command_option *option, const char *text, int64_t *number)
{
    char *end;

    errno = 0;
    *number = strtoll(text, &end, 10);
    return end != text && *end == '\0' && errno == 0 && *number >= option->least && *number <= option->most;
}

/* Returns whether `text` is one of the words in a list such as "text|json". */
static bool is_among(const char *words, const char *text)
{
    for (size_t n; *words != '\0'; words += n + (words[n] == '|')) {
        n = strcspn(words, "|");
        if (strlen(text) == n && strncmp(words, text, n) == 0) return true;
    }
    return false;
}

static void check_value(const pd_line *line, const pd_command_option *option, const char *value)
{
    double seconds;
    int64_t number;

    if (option->kind == PD_OPTION_SECONDS && !read_seconds(value, &seconds))
        pd_line_refuse(line, "--%s %s: expected a time above 0 s and of at most %.0f s, such as 2, 500ms or 1m",
                       option->name, value, MOST_SECONDS);
    if (option->kind == PD_OPTION_NUMBER && !read_number(option, value, &number))
        pd_line_refuse(line, "--%s %s: expected a whole number from %lld to %lld", option->name, value,
                       (long long)option->least, (long long)option->most);
    if (option->kind == PD_OPTION_CHOICE && !is_among(option->value, value))
        pd_line_refuse(line, "--%s %s: expected one of %s", option->name, value, option->value);
}

static const pd_command_option *find_in(const pd_command_option *options, const char *name, size_t n, char letter)
{
    for (; options != NULL && options->name != NULL; options++)
        if (letter != 0 ? options->letter == letter
                        : strlen(options->name) == n && strncmp(options->name, name, n) == 0)
            return options;
    return NULL;
}

/* Finds an option by its name, or by its letter if `letter` is not 0. NULL: there is no such option. */
static const pd_command_option *find_option(const pd_line *line, const char *name, size_t n, char letter)
{
    const pd_command_option *found = line->command != NULL ? find_in(line->command->options, name, n, letter) : NULL;

    return found != NULL ? found : find_in(pd_common_options, name, n, letter);
}

static void refuse_unknown(const pd_line *line, const char *name, size_t n)
{
    pd_nearest near = pd_nearest_begin(name, n);

    if (line->command != NULL)
        for (const pd_command_option *o = line->command->options; o != NULL && o->name != NULL; o++)
            pd_nearest_offer(&near, o->name);
    for (const pd_command_option *o = pd_common_options; o->name != NULL; o++) pd_nearest_offer(&near, o->name);
    if (near.best != NULL) pd_line_refuse(line, "unknown option --%.*s; did you mean --%s?", (int)n, name, near.best);
    pd_line_refuse(line, "unknown option --%.*s", (int)n, name);
}

static void take(pd_line *line, const pd_command_option *option, const char *value)
{
    if (line->n_given == PD_MOST_GIVEN) pd_line_refuse(line, "more than %d options", PD_MOST_GIVEN);
    if (value != NULL) check_value(line, option, value);
    line->given[line->n_given++] = (pd_given){ option, value };
}

/* Returns the value of an option that is given without "=VALUE". NULL for a flag, which takes no value. An option
 * that may be given without a value has a value for this case (`alone`). For any other option the next word of the
 * command line is the value. */
static const char *next_value(pd_line *line, const pd_command_option *option, int *at)
{
    if (option->kind == PD_OPTION_FLAG) return NULL;
    if (option->alone != NULL) return option->alone;
    if (*at + 1 >= line->argc) pd_line_refuse(line, "--%s: %s is missing", option->name, option->value);
    return line->argv[++*at];
}

/* Reads an option in one of the forms "--name", "--name value" or "--name=value". */
static void read_long(pd_line *line, int *at)
{
    const char *name = line->argv[*at] + 2;
    size_t n = strcspn(name, "=");
    const pd_command_option *option = find_option(line, name, n, 0);

    if (option == NULL) refuse_unknown(line, name, n);
    if (name[n] != '=')
        take(line, option, next_value(line, option, at));
    else if (option->kind == PD_OPTION_FLAG)
        pd_line_refuse(line, "--%s takes no value", option->name);
    else
        take(line, option, name + n + 1);
}

/* Reads a word of the command line that has one-letter options, such as "-j", "-jv", "-ojson" or "-o json". */
static void read_letters(pd_line *line, int *at)
{
    const char *letter = line->argv[*at] + 1;

    for (; *letter != '\0'; letter++) {
        const pd_command_option *option = find_option(line, NULL, 0, *letter);
        if (option == NULL) pd_line_refuse(line, "unknown option -%c", *letter);
        if (option->kind != PD_OPTION_FLAG && letter[1] != '\0') {
            take(line, option, letter + 1 + (letter[1] == '='));
            return;
        }
        take(line, option, next_value(line, option, at));
    }
}

/* Reads the options of the command line and collects the arguments between them in line->args. If `first_only` is
 * set, stops at the first argument. Returns the index of the word at which reading stopped. */
static int read_words(pd_line *line, bool first_only)
{
    bool options = true;
    int at = 1;

    line->args = line->argv + 1;
    line->n_args = 0;
    for (; at < line->argc; at++) {
        char *word = line->argv[at];
        if (options && strcmp(word, "--") == 0)
            options = false;
        else if (options && strncmp(word, "--", 2) == 0)
            read_long(line, &at);
        else if (options && word[0] == '-' && word[1] != '\0')
            read_letters(line, &at);
        else if (first_only)
            return at;
        else
            line->args[line->n_args++] = word;
    }
    return at;
}

static const pd_given *last_given(const pd_line *line, const char *name)
{
    for (size_t i = line->n_given; i > 0; i--)
        if (strcmp(line->given[i - 1].option->name, name) == 0) return &line->given[i - 1];
    return NULL;
}

/* Returns the address that the value `text` of --server means: the text itself, or the address of the local daemon of
 * this name. Ends the program if several daemons have the name. */
static const char *address_of(pd_line *line, const char *text)
{
    pd_local_daemon daemon;
    pd_error err;
    int rc;

    if (text == NULL || text[0] == '\0' || text[strcspn(text, ":/,")] != '\0') return text;
    if ((rc = pd_local_daemon_find(&daemon, text, &err)) == PD_INVALID_ARGUMENT) pd_line_refuse(line, "%s", err.text);
    if (rc != PD_OK) return text;
    snprintf(line->local, sizeof line->local, "unix://%s.sock", daemon.base);
    return line->local;
}

/* Copies the values of the options that all commands have into fields of the pd_line. */
static void take_common(pd_line *line)
{
    const char *output = pd_line_text(line, "output");

    line->server = address_of(line, pd_line_text(line, "server"));
    line->timeout = pd_line_seconds(line, "timeout");
    line->json = pd_line_has(line, "json") || strcmp(output, "json") == 0;
    line->wide = strcmp(output, "wide") == 0;
}

/* Copies the addresses of each daemon of a cluster, which stay as long as the program lives. */
static void take_shards(const pd_line *line, const pd_shard_list *list)
{
    pd_asked *asked = line->asked;

    asked->n_shards = list->n;
    if (list->n == 1) return;
    asked->shards = calloc(list->n, sizeof *asked->shards);
    for (size_t i = 0; asked->shards != NULL && i < list->n; i++)
        if ((asked->shards[i] = pd_shard_list_text(list, i)) == NULL) pd_line_refuse(line, "out of memory");
    if (asked->shards == NULL) pd_line_refuse(line, "out of memory");
}

/* Reads the list of daemons before anything else is done, so that a wrong address is reported as wrong usage of the
 * command. */
static void read_servers(pd_line *line)
{
    static pd_asked asked;
    const char *from = line->server != NULL ? line->server : getenv("PARAMD_URL");
    static pd_shard_list list; /* static, because it is large */
    pd_error err;

    line->asked = &asked;
    asked.n_shards = 1;
    if (from == NULL || (from[0] == '\0' && line->server == NULL)) return;
    if (pd_shard_list_parse(&list, from, &err) != PD_OK) pd_line_refuse(line, "%s", err.text);
    take_shards(line, &list);
    pd_shard_list_free(&list);
}

pd_line pd_line_new(const pd_command *command, int argc, char **argv)
{
    return (pd_line){ .command = command, .argc = argc, .argv = argv };
}

static void print_version(void)
{
    printf("paramctl " PD_VERSION "\n");
    exit(PD_CTL_OK);
}

const char *pd_line_parse_common(pd_line *line)
{
    int at = read_words(line, true);

    line->argc -= at;
    line->argv += at;
    if (pd_line_has(line, "version")) print_version();
    return line->argc > 0 ? line->argv[0] : NULL;
}

void pd_line_parse(pd_line *line)
{
    read_words(line, false);
    if (pd_line_has(line, "help")) {
        pd_help_command(stdout, line->command);
        exit(PD_CTL_OK);
    }
    if (pd_line_has(line, "version")) print_version();
    take_common(line);
    if (line->n_args <
        line->command->least) { /* the missing argument is word n_args of `args`, such as "JOB PATTERN" */
        const char *word = line->command->args;
        for (int i = 0; i < line->n_args; i++) word += strcspn(word, " ") + 1;
        pd_line_refuse(line, "%.*s is missing", (int)strcspn(word, " "), word);
    }
    if (line->n_args > line->command->most)
        pd_line_refuse(line, "%s: unexpected argument", line->args[line->command->most]);
    read_servers(line);
}

bool pd_line_has(const pd_line *line, const char *name)
{
    return last_given(line, name) != NULL;
}

const char *pd_line_text(const pd_line *line, const char *name)
{
    const pd_given *given = last_given(line, name);
    const pd_command_option *option = given != NULL ? given->option : find_option(line, name, strlen(name), 0);

    assert(option != NULL);
    return given != NULL ? given->value : option->preset;
}

int64_t pd_line_number(const pd_line *line, const char *name)
{
    const char *text = pd_line_text(line, name);

    return text != NULL ? strtoll(text, NULL, 10) : 0;
}

double pd_line_seconds(const pd_line *line, const char *name)
{
    const char *text = pd_line_text(line, name);
    double seconds = 0;

    if (text != NULL) read_seconds(text, &seconds);
    return seconds;
}

size_t pd_line_texts(const pd_line *line, const char *name, char **values, size_t most)
{
    size_t n = 0;

    for (size_t i = 0; i < line->n_given; i++) {
        if (strcmp(line->given[i].option->name, name) != 0) continue;
        if (n == most) pd_line_refuse(line, "--%s is given more than %zu times", name, most);
        values[n++] = (char *)line->given[i].value;
    }
    return n;
}
