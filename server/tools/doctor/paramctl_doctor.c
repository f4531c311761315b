/* paramctl_doctor.c - the program of `paramctl doctor': examines a machine with a table of checks, and prints a
 * report. It runs the daemon's program, and needs no daemon. */
#include "doctor.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "programs.h"
#include "result.h"
#include "text_table.h"

#define PACKAGED_CONFIG "/etc/paramd/paramd.conf"

enum { SETTINGS = 64 * 1024, PATH = 4096, MOST_FLAGS = 256 };

/* One check: its name, and the function that does it. */
typedef struct check {
    const char *name;
    void (*run)(const pd_machine *machine, pd_finding *out);
} check;

/* All checks, in the order of the report. The last row is empty. */
static const check checks[] = { { "program", pd_check_program },
                                { "blas", pd_check_blas },
                                { "libraries", pd_check_libraries },
                                { "tls", pd_check_tls },
                                { "configuration", pd_check_configuration },
                                { "processors", pd_check_processors },
                                { "numa", pd_check_numa },
                                { "memory", pd_check_memory },
                                { "huge pages", pd_check_huge_pages },
                                { "descriptors", pd_check_descriptors },
                                { "address space", pd_check_address_space },
                                { "clock", pd_check_clock },
                                { "disk", pd_check_disk },
                                { "loopback", pd_check_loopback },
                                { "network", pd_check_network },
                                { "daemon", pd_check_daemon },
                                { "cluster", pd_check_cluster },
                                { NULL, NULL } };

/* Finds a program on the PATH. Returns false if it is not there. */
static bool find_on_path(char *path, size_t size, const char *name)
{
    const char *at = getenv("PATH");

    while (at != NULL && *at != '\0') {
        size_t n = strcspn(at, ":");
        snprintf(path, size, "%.*s/%s", (int)n, at, name);
        if (n > 0 && access(path, X_OK) == 0) return true;
        at += n + (at[n] == ':');
    }
    return false;
}

/* Runs `paramd --print-config` with flags, one in each line, and without this shell's environment. Stores the output in
 * `text`. Changes `flags`. Returns the exit status, or an error of pd_run_program. */
static int print_flags(const pd_machine *machine, char *flags, char *text)
{
    char *argv[MOST_FLAGS + 5] = { "/usr/bin/env", "-i", (char *)machine->program, "--print-config" }, *state = NULL;
    size_t n = 4;

    for (char *flag = strtok_r(flags, "\n", &state); flag != NULL && n < MOST_FLAGS + 4; n++) {
        argv[n] = flag;
        flag = strtok_r(NULL, "\n", &state);
    }
    return pd_run_program(argv, NULL, PD_RUN_MS, text, SETTINGS);
}

/* Returns the settings that the checks use: those of the running daemon if it is on this machine, else those that a
 * daemon would start with; "" if the configuration is wrong, which pd_check_configuration reports. The caller frees
 * them. NULL: out of memory. */
static char *read_settings(const pd_machine *machine)
{
    char file[PATH], *text = calloc(1, SETTINGS), *flags;
    char *argv[] = { (char *)machine->program, "--print-config", file, NULL };

    if (text == NULL || machine->program == NULL) return text;
    if (machine->asked != NULL && machine->here && (flags = strdup(machine->asked)) != NULL) {
        int status = print_flags(machine, flags, text);
        free(flags);
        if (status == 0) return text;
    }
    snprintf(file, sizeof file, "--config=%s", machine->config != NULL ? machine->config : "");
    if (machine->config == NULL) argv[2] = NULL;
    if (pd_run_program(argv, NULL, PD_RUN_MS, text, SETTINGS) != 0) text[0] = '\0';
    return text;
}

static bool describe(pd_machine *out, const pd_line *line, char program[PATH])
{
    bool found = pd_sibling_path(program, PATH, "paramd", NULL) == PD_OK || find_on_path(program, PATH, "paramd");
    const char *root = pd_line_text(line, "root"), *url = getenv("PARAMD_URL");

    if (url != NULL && url[0] == '\0') url = NULL;
    if (line->asked->n_shards > 1) url = line->asked->shards[0];
    *out = (pd_machine){ .root = root != NULL ? root : "",
                         .program = found ? program : NULL,
                         .config = pd_line_text(line, "config"),
                         .state = pd_line_text(line, "state-dir"),
                         .server = line->server != NULL && line->asked->n_shards == 1 ? line->server : url,
                         .timeout = line->timeout,
                         .line = line };
    if (out->config == NULL && access(PACKAGED_CONFIG, R_OK) == 0) out->config = PACKAGED_CONFIG;
    if (pd_line_text(line, "config") == NULL) pd_ask_settings(out);
    out->settings = read_settings(out);
    return out->settings != NULL;
}

/* The report while it is made, as a table or as JSON. */
typedef struct report {
    pd_table *table; /* NULL: the report is JSON */
    json_t *json;
    int counts[3]; /* number of findings, by health */
} report;

static void add_json(report *r, const check *c, const pd_finding *finding)
{
    json_array_append_new(r->json,
                          json_pack("{s:s, s:s, s:s, s:s}", "name", c->name, "status", pd_health_name(finding->health),
                                    "found", finding->found, "advice", finding->advice));
}

static void add_row(report *r, const check *c, const pd_finding *finding)
{
    pd_table_cell(r->table, "%s", c->name);
    pd_table_cell(r->table, "%s", pd_health_name(finding->health));
    if (finding->health != PD_HEALTH_OK) pd_table_alarm(r->table);
    pd_table_cell(r->table, "%s%s%s", finding->found, finding->advice[0] != '\0' ? " -> " : "", finding->advice);
}

static void examine(report *r, const pd_machine *machine)
{
    for (const check *c = checks; c->name != NULL; c++) {
        pd_finding finding = { 0 };
        c->run(machine, &finding);
        r->counts[finding.health]++;
        if (r->table != NULL)
            add_row(r, c, &finding);
        else
            add_json(r, c, &finding);
    }
}

static int finish(report *r, bool json)
{
    int failed = r->counts[PD_HEALTH_FAIL], rc;

    if (json)
        rc = pd_result_json(json_pack("{s:o, s:i, s:i, s:i}", "checks", r->json, "ok", r->counts[PD_HEALTH_OK], "warn",
                                      r->counts[PD_HEALTH_WARN], "fail", failed));
    else {
        pd_table_limit(r->table, pd_table_default_limit());
        rc = pd_table_print(r->table, stdout, "no checks") == PD_OK ? PD_CTL_OK : PD_CTL_FAILED;
        printf("%d ok, %d warn, %d fail\n", r->counts[PD_HEALTH_OK], r->counts[PD_HEALTH_WARN], failed);
    }
    return rc == PD_CTL_OK && failed > 0 ? PD_CTL_FAILED : rc;
}

/* Runs the checks and prints a report. Returns PD_CTL_FAILED if a check failed. */
static int examine_machine(const pd_line *line)
{
    report r = { .json = line->json ? json_array() : NULL,
                 .table = line->json ? NULL : pd_table_new("CHECK|STATUS|&FOUND, AND WHAT TO DO") };
    char program[PATH];
    pd_machine machine;
    int status;

    if ((r.json == NULL && r.table == NULL) || !describe(&machine, line, program)) {
        json_decref(r.json);
        pd_table_free(r.table);
        return pd_result_fail(line->json, &(pd_error){ .code = PD_NO_MEMORY, .text = "out of memory" });
    }
    examine(&r, &machine);
    status = finish(&r, line->json);
    free(machine.settings);
    free(machine.asked);
    return status;
}

int main(int argc, char **argv)
{
    pd_line line = pd_line_new(&pd_programs[PD_PROGRAM_DOCTOR], argc, argv);

    pd_line_parse(&line);
    return examine_machine(&line);
}
