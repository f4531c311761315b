/* paramd_manual.c - the program paramd-manual, which the build runs. It prints a completion script, or a manual page in
 * the language of scdoc: those of the daemon are made here from its tables of flags and keys. */
#include "manual.h"

#include <string.h>

#include "flags.h"

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
        pd_scdoc_marked(out, '_', flag->value);
    }
    fprintf(out, "\n");
    pd_scdoc_sentence(out, "\t", flag->help);
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
        pd_scdoc_sentence(out, "\t", exits[i].help);
        fprintf(out, "\n");
    }
}

static void write_paramd(FILE *out)
{
    pd_scdoc_begin(out, "paramd", 8, "a parameter server for training jobs");
    fprintf(out, "# SYNOPSIS\n\n*paramd* [_FLAG_]...\n\n# DESCRIPTION\n\n");
    pd_scdoc_sentence(out, "",
                      "Workers of a training job push gradients to the daemon. It averages them, runs the optimizer "
                      "and serves the new weights. It listens on 127.0.0.1:7070 unless it is told otherwise.");
    fprintf(out, "\n# FLAGS\n\n");
    for (const pd_own_flag *flag = pd_own_flags; flag->name != NULL; flag++) write_own_flag(out, flag);
    fprintf(out, "*--KEY*=_VALUE_\n");
    pd_scdoc_sentence(out, "\t",
                      "sets a key of the configuration: --max-jobs=8, or --limits-max-jobs=8 in full. Of a key that is "
                      "yes or no the value may be left out (--insecure), and --no-insecure is --insecure=no. "
                      "paramd.conf(5) has all keys. Names are never abbreviated");
    fprintf(out, "\n# ENVIRONMENT\n\n*PARAMD_KEY*\n");
    pd_scdoc_sentence(out, "\t",
                      "sets a key, such as PARAMD_LISTEN, or PARAMD_SERVER_LISTEN in full. A flag takes precedence "
                      "over the environment, and the environment over the file");
    fprintf(out, "\n*OPENBLAS_CORETYPE*, *OMP_WAIT_POLICY*\n");
    pd_scdoc_sentence(out, "\t",
                      "are set by the daemon itself where they are not set, so that the kernels suit the processor and "
                      "waiting threads sleep");
    fprintf(out, "\n*LISTEN_FDS*, *LISTEN_PID*, *LISTEN_FDNAMES*\n");
    pd_scdoc_sentence(out, "\t",
                      "pass on sockets that systemd has opened, in place of the addresses of listen. Peers speak TLS "
                      "at a socket with FileDescriptorName=tls, and HTTP at one with FileDescriptorName=http, which "
                      "takes the place of the listen of section [http]");
    fprintf(out, "\n# SIGNALS\n\n*SIGTERM*, *SIGINT*\n");
    pd_scdoc_sentence(out, "\t",
                      "finish the rounds under way, for at most drain_timeout, and stop. A second one stops at once");
    fprintf(out, "\n*SIGHUP*\n");
    pd_scdoc_sentence(out, "\t",
                      "reads the configuration again. Keys that can change take effect; the log names the others, "
                      "which keep their values. After an error all keys keep their values");
    fprintf(out, "\n");
    write_exits(out);
    fprintf(out, "# EXAMPLES\n\n*paramd --port 7070*\n\tServe this machine.\n\n"
                 "*paramd --config /etc/paramd/paramd.conf --check-config*\n\tCheck a configuration.\n\n"
                 "# SEE ALSO\n\n*paramctl*(1), *paramd.conf*(5)\n");
}

static void write_key(FILE *out, const pd_config *config, const pd_key *key)
{
    pd_scdoc_marked(out, '*', key->name);
    fprintf(out, " = ");
    pd_scdoc_marked(out, '_', key->choices != NULL ? key->choices : key->preset[0] != '\0' ? key->preset : "text");
    fprintf(out, "\n");
    pd_scdoc_sentence(out, "\t", key->help);
    if (key->choices != NULL) {
        fprintf(out, "\tDefault: ");
        pd_scdoc_text(out, key->preset);
        fprintf(out, ".\n");
    }
    if (key->reload) fprintf(out, "\tSIGHUP changes it.\n");
    if (!pd_key_is_short(config, key)) {
        fprintf(out, "\tAs a flag and in the environment only with its section: ");
        pd_scdoc_text(out, key->long_name);
        fprintf(out, ".\n");
    }
    fprintf(out, "\n");
}

static void write_conf(FILE *out)
{
    pd_config *config = pd_config_new();
    const char *section = "";

    if (config == NULL) return;
    pd_scdoc_begin(out, "paramd.conf", 5, "configuration of the parameter server paramd");
    fprintf(out, "# DESCRIPTION\n\n");
    pd_scdoc_sentence(
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
            pd_scdoc_sentence(out, "", pd_section_help(key->section));
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

static const page pages[] = { { "paramctl.1", pd_paramctl_page },    { "paramd.8", write_paramd },
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
