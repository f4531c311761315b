/* paramd_manual.c - the program paramd-manual, which the build runs. It prints a manual page in the language of scdoc
 * (man 5 scdoc), made from the tables of commands, flags and keys, or a completion script. */
#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "commands.h"
#include "completion.h"
#include "flags.h"
#include "programs.h"

enum { WIDTH = 70 };

/* Writes a text without newlines. Characters that mean something to scdoc are escaped. */
static void write_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("*_\\#[]|<>-.~`", *text) != NULL) fputc('\\', out);
        fputc(*text, out);
    }
}

/* Writes the beginning of a page: the line with name and section, "paramctl(1)", and the chapter NAME, "paramctl - asks
 * a daemon". */
static void begin_page(FILE *out, const char *name, int section, const char *about)
{
    fprintf(out, "%s(%d) \"paramd %s\" \"paramd\"\n\n# NAME\n\n%s - ", name, section, PD_VERSION, name);
    write_text(out, about);
    fprintf(out, "\n\n");
}

/* Returns the number of bytes of the word at `text`, up to a space, a newline or the end. */
static size_t word_bytes(const char *text)
{
    return strcspn(text, " \n");
}

/* Writes `text` as sentences: begins them with a capital letter, adds the full stop at the end, and breaks long lines.
 * A newline in the text ends a paragraph. `indent` begins each line: "" in a paragraph, a tab in the definition of a
 * term. */
static void write_sentence(FILE *out, const char *indent, const char *text)
{
    char word[256];
    size_t column = 0, last = '.';

    for (bool first = true; *text != '\0'; first = false) {
        size_t n = word_bytes(text);
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        if (first) word[0] = (char)toupper((unsigned char)word[0]);
        if (column > 0 && column + 1 + n > WIDTH) column = 0, fprintf(out, "\n");
        fprintf(out, "%s", column == 0 ? indent : " ");
        write_text(out, word);
        column += n + 1;
        if (n > 0) last = (unsigned char)text[n - 1];
        text += n;
        if (*text == '\n') column = 0, fprintf(out, "\n\n");
        text += *text != '\0';
    }
    fprintf(out, last == '.' ? "\n" : ".\n");
}

/* Writes the text with `mark` before and after it: "*" makes it bold, "_" underlined. */
static void write_marked(FILE *out, char mark, const char *text)
{
    fputc(mark, out);
    write_text(out, text);
    fputc(mark, out);
}

static const pd_command *const tables[] = { pd_commands, pd_programs, NULL };

static void write_option(FILE *out, const pd_command_option *option)
{
    if (option->letter != 0) fprintf(out, "*-%c*, ", option->letter);
    fprintf(out, "*--");
    write_text(out, option->name);
    fprintf(out, "*");
    if (option->value != NULL) {
        fprintf(out, option->alone != NULL ? "[=" : "=");
        write_marked(out, '_', option->value);
        if (option->alone != NULL) fprintf(out, "]");
    }
    fprintf(out, "\n");
    write_sentence(out, "\t", option->help);
    if (option->preset != NULL || option->alone != NULL) {
        fprintf(out, "\t%s ", option->preset != NULL ? "Default:" : "Without a value:");
        write_text(out, option->preset != NULL ? option->preset : option->alone);
        fprintf(out, ".\n");
    }
    fprintf(out, "\n");
}

static void write_options(FILE *out, const pd_command_option *options)
{
    for (; options != NULL && options->name != NULL; options++) write_option(out, options);
}

static void write_command(FILE *out, const pd_command *command)
{
    fprintf(out, "## paramctl %s%s%s\n\n", command->name, command->args[0] != '\0' ? " " : "", command->args);
    write_sentence(out, "", command->about);
    fprintf(out, "\n");
    if (command->details != NULL) {
        write_sentence(out, "", command->details);
        fprintf(out, "\n");
    }
    write_options(out, command->options);
}

static void write_commands(FILE *out)
{
    fprintf(out, "# COMMANDS\n\n");
    for (const pd_command *const *table = tables; *table != NULL; table++)
        for (const pd_command *command = *table; command->name != NULL; command++) write_command(out, command);
    fprintf(out, "## paramctl help [COMMAND]\n\nPrint the help of a command, or the list of commands.\n\n");
}

static void write_environment(FILE *out)
{
    fprintf(out, "# ENVIRONMENT\n\n");
    for (const pd_variable *variable = pd_variables; variable->name != NULL; variable++) {
        write_marked(out, '*', variable->name);
        fprintf(out, "\n");
        write_sentence(out, "\t", variable->help);
        fprintf(out, "\n");
    }
}

static void write_exit_statuses(FILE *out)
{
    fprintf(out, "# EXIT STATUS\n\n");
    for (int i = 0; pd_exit_texts[i] != NULL; i++) {
        fprintf(out, "*%d*\n", i);
        write_sentence(out, "\t", pd_exit_texts[i]);
        fprintf(out, "\n");
    }
}

static void write_paramctl(FILE *out)
{
    begin_page(out, "paramctl", 1, "ask and steer a paramd daemon");
    fprintf(out,
            "# SYNOPSIS\n\n*paramctl* [_OPTION_]... _COMMAND_ [_OPTION_]... [_ARGUMENT_]...\n\n"
            "# DESCRIPTION\n\nShows the jobs of a paramd daemon and changes them. Some commands need no daemon: they "
            "plan what a model costs, list optimizers, and prove a build against recorded runs.\n\n");
    write_commands(out);
    fprintf(out, "# OPTIONS OF EVERY COMMAND\n\nThey may be given before or after the command's name.\n\n");
    write_options(out, pd_common_options);
    write_environment(out);
    write_exit_statuses(out);
    fprintf(out,
            "# EXAMPLES\n\n*paramctl jobs --watch*\n\tShow all jobs, again every two seconds.\n\n"
            "*paramctl -s unix:///run/paramd/paramd.sock params lin*\n\tList the parameters of the job \"lin\".\n\n"
            "*paramctl set lin '\\*bias\\*' lr=0.05 --from 2000*\n"
            "\tGive all biases another learning rate, from step 2000 on.\n\n"
            "# SEE ALSO\n\n*paramd*(8), *paramd.conf*(5)\n");
}

/* Writes the name of a flag as people type it: "--check-config" for check_config. */
static void write_dashed(FILE *out, const char *name)
{
    fprintf(out, "*--");
    for (; *name != '\0'; name++) fprintf(out, *name == '_' ? "\\-" : "%c", *name);
    fprintf(out, "*");
}

static void write_own_flag(FILE *out, const pd_own_flag *flag)
{
    if (flag->letter != 0) fprintf(out, "*-%c*, ", flag->letter);
    write_dashed(out, flag->name);
    if (flag->value != NULL) {
        fprintf(out, "=");
        write_marked(out, '_', flag->value);
    }
    fprintf(out, "\n");
    write_sentence(out, "\t", flag->help);
    fprintf(out, "\n");
}

static void write_exits(FILE *out)
{
    static const struct {
        int number;
        const char *help;
    } exits[] = {
#define ROW(name, number, help) { number, help },
        PD_EXITS(ROW)
#undef ROW
    };

    fprintf(out, "# EXIT STATUS\n\n");
    for (size_t i = 0; i < sizeof exits / sizeof exits[0]; i++) {
        fprintf(out, "*%d*\n", exits[i].number);
        write_sentence(out, "\t", exits[i].help);
        fprintf(out, "\n");
    }
}

static void write_paramd(FILE *out)
{
    begin_page(out, "paramd", 8, "a parameter server for training jobs");
    fprintf(out, "# SYNOPSIS\n\n*paramd* [_FLAG_]...\n\n# DESCRIPTION\n\n");
    write_sentence(out, "",
                   "Workers of a training job push gradients to the daemon. It averages them, runs the optimizer "
                   "and serves the new weights. It listens on 127.0.0.1:7070 unless it is told otherwise.");
    fprintf(out, "\n# FLAGS\n\n");
    for (const pd_own_flag *flag = pd_own_flags; flag->name != NULL; flag++) write_own_flag(out, flag);
    fprintf(out, "*--KEY*=_VALUE_\n");
    write_sentence(out, "\t",
                   "sets a key of the configuration: --max-jobs=8, or --limits-max-jobs=8 in full. Of a key that is "
                   "yes or no the value may be left out (--insecure), and --no-insecure is --insecure=no. "
                   "paramd.conf(5) has all keys. Names are never abbreviated");
    fprintf(out, "\n# ENVIRONMENT\n\n*PARAMD_KEY*\n");
    write_sentence(out, "\t",
                   "sets a key, such as PARAMD_LISTEN, or PARAMD_SERVER_LISTEN in full. A flag takes precedence over "
                   "the environment, and the environment over the file");
    fprintf(out, "\n*OPENBLAS_CORETYPE*, *OMP_WAIT_POLICY*\n");
    write_sentence(out, "\t",
                   "are set by the daemon itself where they are not set, so that the kernels suit the processor and "
                   "waiting threads sleep");
    fprintf(out, "\n*LISTEN_FDS*, *LISTEN_PID*, *LISTEN_FDNAMES*\n");
    write_sentence(out, "\t",
                   "pass on sockets that systemd has opened, in place of the addresses of listen. Peers speak TLS at "
                   "a socket with FileDescriptorName=tls, and HTTP at one with FileDescriptorName=http, which takes "
                   "the place of the listen of section [http]");
    fprintf(out, "\n# SIGNALS\n\n*SIGTERM*, *SIGINT*\n");
    write_sentence(out, "\t",
                   "finish the rounds under way, for at most drain_timeout, and stop. A second one stops at once");
    fprintf(out, "\n*SIGHUP*\n");
    write_sentence(out, "\t",
                   "reads the configuration again. Keys that can change take effect; the log names the others, which "
                   "keep their values. After an error all keys keep their values");
    fprintf(out, "\n");
    write_exits(out);
    fprintf(out, "# EXAMPLES\n\n*paramd --port 7070*\n\tServe this machine.\n\n"
                 "*paramd --config /etc/paramd/paramd.conf --check-config*\n\tCheck a configuration.\n\n"
                 "# SEE ALSO\n\n*paramctl*(1), *paramd.conf*(5)\n");
}

static void write_key(FILE *out, const pd_config *config, const pd_key *key)
{
    write_marked(out, '*', key->name);
    fprintf(out, " = ");
    write_marked(out, '_', key->choices != NULL ? key->choices : key->preset[0] != '\0' ? key->preset : "text");
    fprintf(out, "\n");
    write_sentence(out, "\t", key->help);
    if (key->choices != NULL) {
        fprintf(out, "\tDefault: ");
        write_text(out, key->preset);
        fprintf(out, ".\n");
    }
    if (key->reload) fprintf(out, "\tSIGHUP changes it.\n");
    if (!pd_key_is_short(config, key)) {
        fprintf(out, "\tAs a flag and in the environment only with its section: ");
        write_text(out, key->long_name);
        fprintf(out, ".\n");
    }
    fprintf(out, "\n");
}

static void write_conf(FILE *out)
{
    pd_config *config = pd_config_new();
    const char *section = "";

    if (config == NULL) return;
    begin_page(out, "paramd.conf", 5, "configuration of the parameter server paramd");
    fprintf(out, "# DESCRIPTION\n\n");
    write_sentence(
        out, "",
        "The file has lines key = value in sections, and comments that begin with # or ; at the beginning of a line or "
        "after a blank. Keys that are not in the file have their defaults, which are shown here as values. paramd "
        "--print-config prints a whole file, and paramd --check-config checks one.\nSizes are written 4096, 64k, "
        "256MiB or 1G, durations 500ms, 30s, 5m, 1h or 1d. Where a default is auto, auto may be given");
    fprintf(out, "\n");
    for (size_t i = 0; i < config->n_keys; i++) {
        const pd_key *key = &config->keys[i];
        if (section[0] == '\0' || key->section != section) {
            fprintf(out, "# SECTION [%s]\n\n", key->section);
            write_sentence(out, "", pd_section_help(key->section));
            fprintf(out, "\n");
        }
        section = key->section;
        write_key(out, config, key);
    }
    fprintf(out,
            "# FILES\n\n_/etc/paramd/paramd.conf_\n\tThe file that the systemd unit and the container image read.\n\n"
            "# SEE ALSO\n\n*paramd*(8)\n");
    pd_config_free(config);
}

typedef struct page {
    const char *name;
    void (*write)(FILE *out);
} page;

static const page pages[] = { { "paramctl.1", write_paramctl },      { "paramd.8", write_paramd },
                              { "paramd.conf.5", write_conf },       { "paramctl.bash", pd_bash_completion },
                              { "paramctl.zsh", pd_zsh_completion }, { NULL, NULL } };

int main(int argc, char **argv)
{
    for (const page *p = pages; p->name != NULL && argc == 2; p++) {
        if (strcmp(p->name, argv[1]) != 0) continue;
        p->write(stdout);
        return fflush(stdout) == 0 ? 0 : 1;
    }
    fprintf(stderr, "usage: paramd-manual PAGE, where PAGE is one of:");
    for (const page *p = pages; p->name != NULL; p++) fprintf(stderr, " %s", p->name);
    fprintf(stderr, "\n");
    return 2;
}
