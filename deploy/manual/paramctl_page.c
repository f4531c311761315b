/* paramctl_page.c - writes the manual page of paramctl from its tables of commands. */
#include "paramctl_page.h"

#include "commands.h"
#include "programs.h"
#include "scdoc.h"

static const pd_command *const tables[] = { pd_commands, pd_programs, NULL };

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
    for (const pd_command *const *table = tables; *table != NULL; table++)
        for (const pd_command *command = *table; command->name != NULL; command++) write_command(out, command);
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
    fprintf(out, "# OPTIONS OF EVERY COMMAND\n\nThey may stand before or behind the command's name.\n\n");
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
