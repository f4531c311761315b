/* roles.c - reads roles and quotas from their text, and finds those that hold for an identity and a job. */
#include "roles.h"

#include "glob.h"
#include "text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A line of the text: a role or a quota. */
typedef struct line {
    unsigned number; /* number of the line in the text, from 1 */
    pd_glob *identity;
    pd_glob *job;           /* glob of the jobs for which the role holds; NULL: the line sets a quota */
    bool all_jobs;          /* the glob `job` is * */
    pd_role role;           /* the role, if this is a line with a role */
    pd_allowance allowance; /* the quota, if this is a line with a quota */
} line;

struct pd_roles {
    unsigned refs; /* number of references: one of each view, one of the owner of the roles */
    line *lines;
    size_t n;
};

static const char *const names[] = { "none", "read", "push", "admin" };
static const pd_allowance unlimited = { PD_UNLIMITED, PD_UNLIMITED, PD_UNLIMITED, PD_UNLIMITED, PD_UNLIMITED };

const char *pd_role_name(pd_role role)
{
    return names[role];
}

#define BLANKS " \t\r"
enum { MOST_WORDS = 8 };

/* The text of roles while it is being read. */
typedef struct reading {
    const char *name; /* what errors call the text */
    unsigned number;  /* number of the present line */
    pd_roles *roles;
    pd_error *err;
} reading;

static int wrong(const reading *r, const char *what, const char *word)
{
    return pd_fail(r->err, PD_INVALID_ARGUMENT, "%.200s:%u: %s%.100s", r->name, r->number, what, word);
}

/* Cuts a line of the text into words, up to a comment. Returns the number of words; MOST_WORDS + 1: there are
 * too many. */
static size_t cut(char *text, char *words[MOST_WORDS])
{
    char *rest = NULL;
    size_t n = 0;

    for (char *word = strtok_r(text, BLANKS, &rest); word != NULL && word[0] != '#';
         word = strtok_r(NULL, BLANKS, &rest)) {
        if (n == MOST_WORDS) return n + 1;
        words[n++] = word;
    }
    return n;
}

static int read_glob(const reading *r, pd_glob **to, const char *text)
{
    size_t n = strlen(text);

    if (n > PD_GLOB_MAX)
        return pd_fail(r->err, PD_INVALID_ARGUMENT, "%.200s:%u: expected a glob of at most %d bytes, got %zu: %.60s...",
                       r->name, r->number, PD_GLOB_MAX, n, text);
    if ((*to = pd_glob_new(text)) != NULL) return PD_OK;
    return pd_fail(r->err, PD_NO_MEMORY, "%.200s: out of memory for the roles", r->name);
}

static int read_role(const reading *r, line *to, char *const *words, size_t n)
{
    int rc;

    if (n != 3) return wrong(r, "expected IDENTITY-GLOB ROLE JOB-GLOB (a blank in a glob is written as ?)", "");
    if ((rc = read_glob(r, &to->identity, words[0])) != PD_OK || (rc = read_glob(r, &to->job, words[2])) != PD_OK)
        return rc;
    to->all_jobs = strcmp(words[2], "*") == 0;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        if (strcmp(words[1], names[i]) != 0) continue;
        to->role = (pd_role)i;
        return PD_OK;
    }
    return wrong(r, "expected one of the roles none, read, push and admin, got ", words[1]);
}

/* The limits of a quota: their names, and their offsets in pd_allowance. */
static const struct {
    const char *name;
    size_t at;
    bool bytes; /* the value is a size such as 10G, not a count */
} limits[] = { { "jobs", offsetof(pd_allowance, jobs), false },
               { "bytes", offsetof(pd_allowance, bytes), true },
               { "ingest", offsetof(pd_allowance, ingest), true },
               { "connections", offsetof(pd_allowance, connections), false },
               { "requests", offsetof(pd_allowance, requests), false } };

static bool read_number(const char *text, bool bytes, uint64_t *out)
{
    char *end;

    if (bytes) return pd_bytes_read(text, out);
    errno = 0;
    *out = strtoull(text, &end, 10);
    return text[0] >= '0' && text[0] <= '9' && *end == '\0' && errno == 0;
}

static int read_limit(const reading *r, pd_allowance *to, const char *word)
{
    const char *equals = strchr(word, '=');
    size_t length = equals != NULL ? (size_t)(equals - word) : 0;

    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        uint64_t *value = (uint64_t *)(void *)((char *)to + limits[i].at);
        if (strlen(limits[i].name) != length || strncmp(word, limits[i].name, length) != 0) continue;
        if (*value != PD_UNLIMITED) return wrong(r, "this limit is given twice: ", word);
        if (!read_number(equals + 1, limits[i].bytes, value) || *value == PD_UNLIMITED)
            return wrong(r, limits[i].bytes ? "expected a size like 512M or 10G, got " : "expected a number, got ",
                         word);
        return PD_OK;
    }
    return wrong(r, "expected jobs=, bytes=, ingest=, connections= or requests=, got ", word);
}

static int read_quota(const reading *r, line *to, char *const *words, size_t n)
{
    int rc;

    if (n < 3 || n > MOST_WORDS) return wrong(r, "expected quota IDENTITY-GLOB jobs=4 bytes=10G ...", "");
    if ((rc = read_glob(r, &to->identity, words[1])) != PD_OK) return rc;
    to->allowance = unlimited;
    for (size_t i = 2; i < n && rc == PD_OK; i++) rc = read_limit(r, &to->allowance, words[i]);
    return rc;
}

/* Returns whether all words of a line are printable UTF-8. */
static bool is_printable(const char *text)
{
    size_t n;

    for (text += strspn(text, BLANKS); *text != '\0'; text += n + strspn(text + n, BLANKS)) {
        n = strcspn(text, BLANKS);
        if (pd_text_printable(text, n) < n) return false;
    }
    return true;
}

static int read_line(const reading *r, char *text)
{
    line *to = &r->roles->lines[r->roles->n];
    char *words[MOST_WORDS];
    size_t n;

    if (!is_printable(text)) return wrong(r, "the line has a byte that is not printable UTF-8", "");
    n = cut(text, words);
    if (n == 0) return PD_OK;
    if (r->roles->n == PD_ROLES_LINES)
        return pd_fail(r->err, PD_RESOURCE_EXHAUSTED, "%.200s:%u: more than %d lines with roles and quotas", r->name,
                       r->number, PD_ROLES_LINES);
    to->number = r->number;
    r->roles->n++;
    return strcmp(words[0], "quota") == 0 ? read_quota(r, to, words, n) : read_role(r, to, words, n);
}

/* Reads all lines of a text of n bytes that ends with a '\0'. Replaces each newline in the text by a '\0'. */
static int read_lines(reading *r, char *text, size_t n)
{
    char *at = text, *end = at + n;
    int rc = PD_OK;

    for (; at < end && rc == PD_OK; r->number++) {
        char *newline = memchr(at, '\n', (size_t)(end - at));
        char *next = newline != NULL ? newline + 1 : end;
        if (newline != NULL) *newline = '\0';
        rc = read_line(r, at);
        at = next;
    }
    return rc;
}

/* Counts the lines of a text, up to PD_ROLES_LINES. */
static size_t count_lines(const char *text, size_t n)
{
    size_t lines = 1;

    for (size_t i = 0; i < n && lines < PD_ROLES_LINES; i++) lines += text[i] == '\n';
    return lines;
}

static pd_roles *new_roles(size_t lines)
{
    pd_roles *roles = calloc(1, sizeof *roles);

    if (roles == NULL || (roles->lines = calloc(lines, sizeof *roles->lines)) == NULL) {
        free(roles);
        return NULL;
    }
    roles->refs = 1;
    return roles;
}

int pd_roles_parse(pd_roles **out, const char *text, size_t n, const char *name, pd_error *err)
{
    reading r = { .name = name, .number = 1, .err = err };
    char *copy;
    int rc;

    if (n > PD_ROLES_BYTES)
        return pd_fail(err, PD_RESOURCE_EXHAUSTED, "%.200s: more than %u bytes of roles", name, PD_ROLES_BYTES);
    if (memchr(text, '\0', n) != NULL)
        return pd_fail(err, PD_INVALID_ARGUMENT, "%.200s: expected lines of text, got a zero byte", name);
    copy = strndup(text, n);
    r.roles = new_roles(count_lines(text, n));
    rc = copy != NULL && r.roles != NULL ? read_lines(&r, copy, n)
                                         : pd_fail(err, PD_NO_MEMORY, "%.200s: out of memory for the roles", name);
    free(copy);
    if (rc != PD_OK) {
        pd_roles_free(r.roles);
        return rc;
    }
    *out = r.roles;
    return PD_OK;
}

pd_roles *pd_roles_copy(const pd_roles *from)
{
    pd_roles *roles = new_roles(from->n + 1);

    for (; roles != NULL && roles->n < from->n; roles->n++) {
        const line *l = &from->lines[roles->n];
        line *to = &roles->lines[roles->n];
        *to = *l;
        to->identity = pd_glob_copy(l->identity);
        to->job = l->job != NULL ? pd_glob_copy(l->job) : NULL;
        if (to->identity != NULL && (to->job != NULL || l->job == NULL)) continue;
        roles->n++;
        pd_roles_free(roles);
        return NULL;
    }
    return roles;
}

void pd_roles_free(pd_roles *roles)
{
    if (roles == NULL || --roles->refs > 0) return;
    for (size_t i = 0; i < roles->n; i++) {
        pd_glob_free(roles->lines[i].identity);
        pd_glob_free(roles->lines[i].job);
    }
    free(roles->lines);
    free(roles);
}

static bool is_about(const line *l, const char *identity)
{
    return pd_glob_match(l->identity, identity);
}

static pd_role decide(const line *l, unsigned *line_number)
{
    if (line_number != NULL) *line_number = l != NULL ? l->number : 0;
    return l != NULL ? l->role : PD_ROLE_NONE;
}

pd_role pd_roles_of(const pd_roles *roles, const char *identity, const char *job, unsigned *line_number)
{
    const line *found = NULL;

    if (line_number != NULL) *line_number = 0;
    if (roles == NULL) return PD_ROLE_ADMIN;
    for (const line *l = roles->lines; l < roles->lines + roles->n && found == NULL; l++)
        if (l->job != NULL && pd_glob_match(l->job, job) && is_about(l, identity)) found = l;
    return decide(found, line_number);
}

pd_role pd_roles_of_server(const pd_roles *roles, const char *identity, unsigned *line_number)
{
    const line *found = NULL;

    if (line_number != NULL) *line_number = 0;
    if (roles == NULL) return PD_ROLE_ADMIN;
    for (const line *l = roles->lines; l < roles->lines + roles->n && found == NULL; l++)
        if (l->job != NULL && l->all_jobs && is_about(l, identity)) found = l;
    return decide(found, line_number);
}

bool pd_roles_know(const pd_roles *roles, const char *identity)
{
    if (roles == NULL) return true;
    for (const line *l = roles->lines; l < roles->lines + roles->n; l++) {
        if (l->job == NULL || !is_about(l, identity)) continue;
        if (l->role > PD_ROLE_NONE) return true;
        if (l->all_jobs) return false;
    }
    return false;
}

pd_allowance pd_roles_allowance(const pd_roles *roles, const char *identity, unsigned *line_number)
{
    if (line_number != NULL) *line_number = 0;
    if (roles == NULL) return unlimited;
    for (const line *l = roles->lines; l < roles->lines + roles->n; l++) {
        if (l->job != NULL || !is_about(l, identity)) continue;
        if (line_number != NULL) *line_number = l->number;
        return l->allowance;
    }
    return unlimited;
}

struct pd_roles_view {
    pd_roles *roles;
    size_t n;
    const line *lines[];
};

int pd_roles_view_new(pd_roles_view **out, pd_roles *roles, const char *identity, double *cost_ns)
{
    pd_roles_view *view;
    size_t length = strlen(identity);

    *out = NULL;
    if (roles == NULL) return PD_OK;
    if ((view = calloc(1, sizeof *view + roles->n * sizeof *view->lines)) == NULL) return PD_NO_MEMORY;
    view->roles = roles;
    roles->refs++;
    for (const line *l = roles->lines; l < roles->lines + roles->n; l++) {
        *cost_ns += pd_glob_ns(l->identity, length);
        if (l->job != NULL && is_about(l, identity)) view->lines[view->n++] = l;
    }
    *out = view;
    return PD_OK;
}

void pd_roles_view_free(pd_roles_view *view)
{
    if (view == NULL) return;
    pd_roles_free(view->roles);
    free(view);
}

bool pd_roles_view_has(const pd_roles_view *view, const char *job, double *cost_ns)
{
    size_t length = strlen(job);

    if (view == NULL) return true;
    for (size_t i = 0; i < view->n; i++) {
        *cost_ns += pd_glob_ns(view->lines[i]->job, length);
        if (pd_glob_match(view->lines[i]->job, job)) return view->lines[i]->role > PD_ROLE_NONE;
    }
    return false;
}
