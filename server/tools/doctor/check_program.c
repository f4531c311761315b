/* check_program.c - checks the daemon's program by running it: version, BLAS, libraries, configuration. */
#include "doctor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT = 8192 };

/* Runs the daemon's program with one argument, and with one more environment variable unless `variable` is NULL.
 * Returns whether it ends with status 0. If not, the finding says what is wrong. */
static bool ask_program(const pd_machine *machine, const char *argument, const char *variable, char text[TEXT],
                        pd_finding *out)
{
    char *argv[] = { (char *)machine->program, (char *)argument, NULL };
    int status;

    if (machine->program == NULL) {
        pd_found(out, "no program paramd beside paramctl or on the PATH");
        pd_advise(out, PD_HEALTH_FAIL, "Install the package paramd, or put paramd beside paramctl.");
        return false;
    }
    status = pd_run_program(argv, variable, PD_RUN_MS, text, TEXT);
    if (status == 0) return true;
    pd_found(out, "%s %s %s: %.*s", machine->program, argument,
             status == PD_RUN_LATE ? "does not end within 10 s" : "fails", (int)strcspn(text, "\n"), text);
    pd_advise(out, PD_HEALTH_FAIL, "Run this command to see why; libraries may be missing.");
    return false;
}

/* Returns the rest of the first line that begins with `word`; NULL: there is no such line. The caller frees it. */
static char *line_of(const char *text, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = text; at != NULL; at = strchr(at, '\n'), at = at != NULL ? at + 1 : NULL)
        if (strncmp(at, word, n) == 0) return strndup(at + n, strcspn(at + n, "\n"));
    return NULL;
}

void pd_check_program(const pd_machine *machine, pd_finding *out)
{
    char text[TEXT], *version, *cpu;

    if (!ask_program(machine, "--version", NULL, text, out)) return;
    version = line_of(text, "paramd ");
    cpu = line_of(text, "CPU ");
    pd_found(out, "paramd %s, CPU %s: %s", version != NULL ? version : "?", cpu != NULL ? cpu : "?", machine->program);
    if (version == NULL || strcmp(version, PD_VERSION) != 0)
        pd_advise(out, PD_HEALTH_WARN, "paramctl is version %s: install both from one version.", PD_VERSION);
    free(version);
    free(cpu);
}

void pd_check_blas(const pd_machine *machine, pd_finding *out)
{
    char text[TEXT], *core, *warning;

    if (!ask_program(machine, "--version", NULL, text, out)) return;
    core = line_of(text, "BLAS core ");
    warning = line_of(text, "BLAS warning: ");
    pd_found(out, "%s", core != NULL ? core : "paramd --version names no BLAS core");
    if (warning != NULL) pd_advise(out, PD_HEALTH_WARN, "%s.", warning);
    if (core == NULL || strstr(core, "OpenMP)") == NULL || strstr(core, "not the OpenMP") != NULL)
        pd_advise(out, PD_HEALTH_WARN,
                  "BLAS may start threads of its own, which slow each other down: install libopenblas0-openmp.");
    free(core);
    free(warning);
}

/* Adds the name of a library's file to the finding. `line` is from the dynamic linker, such as "libuv.so.1 =>
 * /usr/lib/libuv.so.1 (0x7f)". Libraries that every program has are left out. */
static void add_library(char *line, pd_finding *out)
{
    static const char *const every[] = { "libc.so", "libm.so", "ld-linux", "libpthread", "libdl", "librt" };
    char name[128] = "", path[1024] = "", real[PATH_MAX];

    if (sscanf(line, " %127s => %1023[^\n(]", name, path) != 2) return;
    path[strcspn(path, " ")] = '\0';
    for (size_t i = 0; i < sizeof every / sizeof every[0]; i++)
        if (strncmp(name, every[i], strlen(every[i])) == 0) return;
    if (strcmp(path, "not") == 0) {
        pd_found(out, "%s%s is missing", out->found[0] != '\0' ? ", " : "", name);
        pd_advise(out, PD_HEALTH_FAIL, "Install the package that has %s.", name);
        return;
    }
    if (realpath(path, real) == NULL) return;
    pd_found(out, "%s%s", out->found[0] != '\0' ? ", " : "", strrchr(real, '/') + 1);
}

void pd_libraries_read(char *text, pd_finding *out)
{
    char *state = NULL;

    for (char *line = strtok_r(text, "\n", &state); line != NULL; line = strtok_r(NULL, "\n", &state))
        add_library(line, out);
    if (out->found[0] == '\0') pd_found(out, "none besides those of the system");
}

void pd_check_libraries(const pd_machine *machine, pd_finding *out)
{
    char text[TEXT];

    if (ask_program(machine, "--version", "LD_TRACE_LOADED_OBJECTS=1", text, out)) pd_libraries_read(text, out);
}

#define FAST_MINOR 5 /* from OpenSSL 3.5 on, AES-GCM is two to three times as fast on CPUs with AVX-512 */

void pd_judge_tls(const pd_tls_version *version, pd_finding *out)
{
    pd_found(out, "OpenSSL %u.%u.%u", version->major, version->minor, version->patch);
    if (version->major < 3 || (version->major == 3 && version->minor < FAST_MINOR))
        pd_advise(out, PD_HEALTH_OK, "With OpenSSL 3.5, which Debian 13 has, tls:// is about a fifth faster.");
}

void pd_check_tls(const pd_machine *machine, pd_finding *out)
{
    pd_tls_version version;
    pd_error err;
    (void)machine;

    if (pd_tls_find_version(&version, &err) == PD_OK)
        pd_judge_tls(&version, out);
    else
        pd_found(out, "%.200s", err.text);
}

/* Lists the settings of the running daemon in the finding. They need no check, because that daemon has started with
 * them. */
static void tell_asked(const pd_machine *machine, pd_finding *out)
{
    const char *end;

    pd_found(out, "of the daemon at %s:", machine->server);
    for (const char *at = machine->asked; *at != '\0'; at = *end != '\0' ? end + 1 : end) {
        end = at + strcspn(at, "\n");
        pd_found(out, " %.*s", (int)(end - at), at);
    }
    if (!machine->here)
        pd_advise(out, PD_HEALTH_OK, "The checks of this machine, such as that of the disk, do not know it.");
}

void pd_check_configuration(const pd_machine *machine, pd_finding *out)
{
    char text[TEXT], file[PATH_MAX];
    int status;
    char *argv[] = { (char *)machine->program, "--check-config", file, NULL };

    if (machine->asked != NULL) {
        tell_asked(machine, out);
        return;
    }
    if (machine->program == NULL) {
        pd_found(out, "not checked: there is no program paramd");
        return;
    }
    snprintf(file, sizeof file, "--config=%s", machine->config != NULL ? machine->config : "");
    if (machine->config == NULL) argv[2] = NULL;
    status = pd_run_program(argv, NULL, PD_RUN_MS, text, sizeof text);
    pd_found(out, "%s%s", machine->config != NULL ? machine->config : "no file: defaults apply",
             machine->server != NULL ? " (not the daemon's, which was not asked, or shows it only to admins)" : "");
    if (status == 0) return;
    text[strcspn(text, "\n")] = '\0';
    pd_found(out, ": %s", text);
    pd_advise(out, PD_HEALTH_FAIL, "Correct it; `paramd --print-config' explains every key.");
}
