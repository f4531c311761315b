/* Reads any bytes as a file of roles. They are refused with a reason, or every decision is the same for the roles, for
 * their copy and for a view, and lies within what the text can say. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "roles.h"
#include "seed.h"

static const char *const identities[] = { "anyone", "user:0", "token:alice", "certificate:w3.example.org", "" };
static const char *const jobs[] = { "j", "vision-1", "a/b", "*", "" };
enum { IDENTITIES = sizeof identities / sizeof *identities, JOBS = sizeof jobs / sizeof *jobs };

/* Counts the lines of a text, of which the last may have no end. */
static unsigned count_lines(const uint8_t *data, size_t size)
{
    unsigned n = size > 0;

    for (size_t i = 0; i < size; i++) n += data[i] == '\n';
    return n;
}

static void decide(const pd_roles *roles, pd_roles *copy, const char *identity, unsigned lines)
{
    pd_roles_view *view;
    pd_allowance quota = pd_roles_allowance(roles, identity, NULL), same = pd_roles_allowance(copy, identity, NULL);
    bool has_any = false;
    unsigned line, again;
    double cost_ns = 0;

    MUST(memcmp(&quota, &same, sizeof quota) == 0);
    MUST(pd_roles_view_new(&view, copy, identity, &cost_ns) == PD_OK);
    for (int j = 0; j < JOBS; j++) {
        pd_role role = pd_roles_of(roles, identity, jobs[j], &line);
        MUST(role == pd_roles_of(copy, identity, jobs[j], &again) && line == again && line <= lines);
        MUST(role == PD_ROLE_NONE || line > 0);
        MUST(pd_roles_view_has(view, jobs[j], &cost_ns) == (role > PD_ROLE_NONE));
        has_any = has_any || role > PD_ROLE_NONE;
    }
    MUST(!has_any || pd_roles_know(roles, identity));
    MUST(pd_roles_of_server(roles, identity, &line) <= PD_ROLE_ADMIN && line <= lines);
    pd_roles_view_free(view);
}

static void make_seeds(const char *folder)
{
    static const char *const seeds[] = {
        "# roles\ntoken:alice push vision-*\nuser:0 admin * # root\n* none *\n",
        "quota user:* jobs=4 bytes=10G ingest=1G connections=64 requests=1000\r\n\tuser:0 read\ta/b\n",
        "certificate:*.example.org read [a-z]*\nquota * jobs=0\nanyone none j\nanyone admin *",
    };

    write_texts(folder, "roles", seeds, sizeof seeds / sizeof *seeds);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    return seed_if_asked(make_seeds);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    pd_roles *roles = NULL, *copy;
    pd_error err = { 0 };

    if (pd_roles_parse(&roles, (const char *)data, size, "roles", &err) != PD_OK) {
        MUST(roles == NULL && err.text[0] != '\0');
        return 0;
    }
    copy = pd_roles_copy(roles);
    MUST(copy != NULL);
    for (int i = 0; i < IDENTITIES; i++) decide(roles, copy, identities[i], count_lines(data, size));
    pd_roles_free(copy);
    pd_roles_free(roles);
    return 0;
}
