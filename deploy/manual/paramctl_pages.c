/* paramctl_pages.c - writes the manual page of paramctl, and completion scripts for bash and zsh, from its tables of
 * commands. */
#include "manual.h"

#include <string.h>

#include "commands.h"
#include "programs.h"

static const pd_command *const tables[] = { pd_commands, pd_programs, NULL };

/* Calls `write` for each command of paramctl. */
static void each_command(FILE *out, void (*write)(FILE *out, const pd_command *command))
{
    for (const pd_command *const *table = tables; *table != NULL; table++)
        for (const pd_command *command = *table; command->name != NULL; command++) write(out, command);
}

static void write_option(FILE *out, const pd_command_option *option)
{
    if (option->letter != 0) fprintf(out, "*-%c*, ", option->letter);
    fprintf(out, "*--");
    pd_scdoc_text(out, option->name);
    fprintf(out, "*");
    if (option->value != NULL) {
        fprintf(out, option->alone != NULL ? "[=" : "=");
        pd_scdoc_marked(out, '_', option->value);
        if (option->alone != NULL) fprintf(out, "]");
    }
    fprintf(out, "\n");
    pd_scdoc_sentence(out, "\t", option->help);
    if (option->preset != NULL || option->alone != NULL) {
        fprintf(out, "\t%s ", option->preset != NULL ? "Default:" : "Without a value:");
        pd_scdoc_text(out, option->preset != NULL ? option->preset : option->alone);
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
    pd_scdoc_sentence(out, "", command->about);
    fprintf(out, "\n");
    if (command->details != NULL) {
        pd_scdoc_sentence(out, "", command->details);
        fprintf(out, "\n");
    }
    write_options(out, command->options);
}

static void write_commands(FILE *out)
{
    fprintf(out, "# COMMANDS\n\n");
    each_command(out, write_command);
    fprintf(out, "## paramctl help [COMMAND]\n\nPrint the help of a command, or the list of commands.\n\n");
}

static void write_environment(FILE *out)
{
    fprintf(out, "# ENVIRONMENT\n\n");
    for (const pd_variable *variable = pd_variables; variable->name != NULL; variable++) {
        pd_scdoc_marked(out, '*', variable->name);
        fprintf(out, "\n");
        pd_scdoc_sentence(out, "\t", variable->help);
        fprintf(out, "\n");
    }
}

static void write_exit_statuses(FILE *out)
{
    fprintf(out, "# EXIT STATUS\n\n");
    for (int i = 0; pd_exit_texts[i] != NULL; i++) {
        fprintf(out, "*%d*\n", i);
        pd_scdoc_sentence(out, "\t", pd_exit_texts[i]);
        fprintf(out, "\n");
    }
}

void pd_paramctl_page(FILE *out)
{
    pd_scdoc_begin(out, "paramctl", 1, "ask and steer a paramd daemon");
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

/* The kind of word that a command of paramctl expects as its first argument. WORD: a text for which no completion
 * is offered. */
typedef enum subject { NOTHING, JOB, FILE_NAME, WORD } subject;

static subject subject_of(const pd_command *command)
{
    if (command->args[0] == '\0') return NOTHING;
    if (strncmp(command->args, "JOB", 3) == 0 || strncmp(command->args, "[JOB", 4) == 0) return JOB;
    return strstr(command->args, "FILE") != NULL || strstr(command->args, "FOLDER") != NULL ? FILE_NAME : WORD;
}

static void write_name(FILE *out, const pd_command *command)
{
    fprintf(out, " %s", command->name);
}

static void write_words(FILE *out, const pd_command_option *options)
{
    for (; options != NULL && options->name != NULL; options++) {
        fprintf(out, " --%s", options->name);
        if (options->letter != 0) fprintf(out, " -%c", options->letter);
    }
}

static void write_bash_options(FILE *out, const pd_command *command)
{
    if (command->options == NULL) return;
    fprintf(out, "    %s) options+='", command->name);
    write_words(out, command->options);
    fprintf(out, "' ;;\n");
}

/* Writes a case of the bash script for each option that needs a value. If the option is a choice, the case lists the
 * words that may be its value. `command` is the command that has these options, or "*" if every command has them. */
static void write_bash_values(FILE *out, const char *command, const pd_command_option *options)
{
    for (; options != NULL && options->name != NULL; options++) {
        if (options->value == NULL || options->alone != NULL) continue;
        fprintf(out, "    %s:--%s", command, options->name);
        if (options->letter != 0) fprintf(out, " | %s:-%c", command, options->letter);
        fprintf(out, ") takes=yes values='");
        for (const char *c = options->kind == PD_OPTION_CHOICE ? options->value : ""; *c != '\0'; c++)
            fputc(*c == '|' ? ' ' : *c, out);
        fprintf(out, "' ;;\n");
    }
}

static void write_bash_command_values(FILE *out, const pd_command *command)
{
    write_bash_values(out, command->name, command->options);
}

static void write_subject(FILE *out, const pd_command *command)
{
    static const char *const names[] = { [NOTHING] = "nothing", [JOB] = "job", [FILE_NAME] = "file", [WORD] = "word" };

    fprintf(out, "    %s) subject='%s' ;;\n", command->name, names[subject_of(command)]);
}

void pd_bash_completion(FILE *out)
{
    fprintf(out, "# Completion of paramctl for bash. Made by paramd-manual from paramctl's tables of commands.\n\n"
                 "_paramctl() {\n"
                 "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
                 "    local command='' subject='' options='' values='' takes=no i\n"
                 "    local commands='");
    each_command(out, write_name);
    fprintf(out, " help'\n"
                 "    for ((i = 1; i < COMP_CWORD; i++)); do\n"
                 "        case \" $commands \" in *\" ${COMP_WORDS[i]} \"*) command=${COMP_WORDS[i]}; break ;; esac\n"
                 "    done\n"
                 "    case $command:$before in\n");
    write_bash_values(out, "*", pd_common_options);
    each_command(out, write_bash_command_values);
    fprintf(out, "    esac\n"
                 "    if [ $takes = yes ]; then\n"
                 "        mapfile -t COMPREPLY < <(compgen -W \"$values\" -- \"$word\")\n"
                 "        return\n"
                 "    fi\n"
                 "    options='");
    write_words(out, pd_common_options);
    fprintf(out, "'\n    case $command in\n");
    each_command(out, write_bash_options);
    fprintf(out, "    esac\n    case $command in\n    '' | help) subject='command' ;;\n");
    each_command(out, write_subject);
    fprintf(out,
            "    esac\n"
            "    case $word in -*) subject='option' ;; esac\n"
            "    case $subject in\n"
            "    option) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$word\") ;;\n"
            "    command) mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$word\") ;;\n"
            "    job) mapfile -t COMPREPLY < <(compgen -W \"$(_paramctl_jobs)\" -- \"$word\") ;;\n"
            "    file) mapfile -t COMPREPLY < <(compgen -f -- \"$word\") ;;\n"
            "    esac\n"
            "}\n\n"
            "# Prints the names of the daemon's jobs, or nothing if it does not answer at once.\n"
            "_paramctl_jobs() {\n"
            "    paramctl --timeout 0.5 jobs -o json 2> /dev/null | sed -n 's/^ *\"name\": \"\\([^\"]*\\)\",*$/\\1/p'\n"
            "}\n\n"
            "complete -F _paramctl paramctl\n");
}

/* Writes a text within '...' and [...] of the zsh script. Characters that would end the quotes or brackets are
 * escaped. */
static void write_zsh_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fprintf(out, "'\\''");
        else
            fprintf(out, strchr("[]:\\", *text) != NULL ? "\\%c" : "%c", *text == '\n' ? ' ' : *text);
    }
}

static void write_zsh_option(FILE *out, const char *name, const pd_command_option *option)
{
    const char *shape = option->value == NULL ? "" : option->alone != NULL ? "=-" : name[1] == '-' ? "=" : "+";

    fprintf(out, "        '%s%s[", name, shape);
    write_zsh_text(out, option->help);
    fprintf(out, "]");
    if (option->value != NULL) {
        fprintf(out, option->alone != NULL ? "::" : ":");
        write_zsh_text(out, option->kind == PD_OPTION_CHOICE ? option->name : option->value);
        fprintf(out, ":");
        for (const char *c = option->kind == PD_OPTION_CHOICE ? option->value : ""; *c != '\0'; c++)
            fprintf(out, c == option->value ? "(%c" : "%c", *c == '|' ? ' ' : *c);
        if (option->kind == PD_OPTION_CHOICE) fprintf(out, ")");
    }
    fprintf(out, "'\n");
}

static void write_zsh_options(FILE *out, const pd_command_option *options)
{
    char name[64];

    for (; options != NULL && options->name != NULL; options++) {
        snprintf(name, sizeof name, "--%s", options->name);
        write_zsh_option(out, name, options);
        if (options->letter == 0) continue;
        snprintf(name, sizeof name, "-%c", options->letter);
        write_zsh_option(out, name, options);
    }
}

static void write_zsh_name(FILE *out, const pd_command *command)
{
    fprintf(out, "        '%s:", command->name);
    write_zsh_text(out, command->about);
    fprintf(out, "'\n");
}

static void write_zsh_command(FILE *out, const pd_command *command)
{
    static const char *const actions[] = {
        [NOTHING] = "", [JOB] = "'1:job:_paramctl_jobs'", [FILE_NAME] = "'*:file:_files'", [WORD] = ""
    };

    fprintf(out, "    %s) own=(\n", command->name);
    write_zsh_options(out, command->options);
    fprintf(out, "        %s\n    ) ;;\n", actions[subject_of(command)]);
}

void pd_zsh_completion(FILE *out)
{
    fprintf(out, "#compdef paramctl\n"
                 "# Completion of paramctl for zsh. Made by paramd-manual from paramctl's tables of commands.\n\n"
                 "_paramctl_jobs() {\n"
                 "    local -a jobs\n"
                 "    jobs=(${(f)\"$(paramctl --timeout 0.5 jobs -o json 2> /dev/null | sed -n 's/^ *\"name\": "
                 "\"\\([^\"]*\\)\",*$/\\1/p')\"})\n"
                 "    compadd -a jobs\n"
                 "}\n\n"
                 "_paramctl() {\n"
                 "    local -a commands common own\n"
                 "    local state line\n"
                 "    commands=(\n");
    each_command(out, write_zsh_name);
    fprintf(out, "        'help:Print the help of a command'\n    )\n    common=(\n");
    write_zsh_options(out, pd_common_options);
    fprintf(out, "    )\n"
                 "    _arguments -C $common '1:command:->command' '*::argument:->argument'\n"
                 "    if [[ $state == command ]]; then\n"
                 "        _describe command commands\n"
                 "        return\n"
                 "    fi\n"
                 "    case $words[1] in\n");
    each_command(out, write_zsh_command);
    fprintf(out, "    esac\n"
                 "    _arguments $common $own\n"
                 "}\n\n"
                 "_paramctl \"$@\"\n");
}
