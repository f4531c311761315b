/* connection.c - opens an operator's connection, and sends the requests that several programs need. */
#include "connection.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Writes the operator's label, by which the daemon says who gave a command, in the form "user@host:pid". */
static const char *operator_label(char *text, size_t size)
{
    char host[64] = "", room[4096];
    struct passwd entry, *user = NULL;

    gethostname(host, sizeof host - 1);
    if (getpwuid_r(geteuid(), &entry, room, sizeof room, &user) == 0 && user != NULL)
        snprintf(text, size, "%.40s@%s:%ld", user->pw_name, host, (long)getpid());
    else
        snprintf(text, size, "%ld@%s:%ld", (long)geteuid(), host, (long)getpid());
    return text;
}

/* Returns a hint to add to the error text that the daemon cannot be reached. */
static const char *hint(const char *url)
{
    const char *variable = getenv("PARAMD_URL");

    if (url == NULL && (variable == NULL || variable[0] == '\0'))
        return " (--server or PARAMD_URL names another daemon; `paramctl daemons` lists local ones)";
    if (url != NULL && url[strcspn(url, ":/,")] == '\0')
        return " (no local daemon has this name either: `paramctl daemons` lists them)";
    return "";
}

int pd_operator_open(pd_operator *out, const char *url, double timeout, pd_error *err)
{
    char label[128];
    pd_client_options options = {
        .urls = url, .job = "", .deadline = timeout, .impatient = true, .label = operator_label(label, sizeof label)
    };
    pd_error why = { 0 };
    int rc;

    *out = (pd_operator){ .arena = pd_arena_new(PD_ARENA_BUDGET) };
    if (out->arena == NULL) return pd_fail(err, PD_NO_MEMORY, "out of memory");
    if ((rc = pd_client_open(&out->client, &options, &why)) == PD_OK) return PD_OK;
    pd_operator_close(out);
    return pd_fail(err, rc, "%s%s", why.text, rc == PD_UNAVAILABLE ? hint(url) : "");
}

void pd_operator_close(pd_operator *op)
{
    pd_client_close(op->client);
    pd_arena_free(op->arena);
    *op = (pd_operator){ 0 };
}

int pd_operator_list(pd_operator *op, Paramd__ListRequest *request, pd_page_user *use, void *arg, pd_error *err)
{
    Paramd__ListReply *page = NULL;
    int rc;

    while ((rc = pd_client_call(op->client, PD_LIST, &request->base, op->arena, (void **)&page, err)) == PD_OK) {
        use(arg, page);
        if (page->next <= request->start) break; /* the daemon sends next = 0 with the last page of the list */
        request->start = page->next;
    }
    return rc;
}

void pd_operator_drop(const char *url, double timeout, const char *job)
{
    Paramd__DropRequest request = PARAMD__DROP_REQUEST__INIT;
    pd_operator op;

    request.job = (char *)job;
    if (pd_operator_open(&op, url, timeout, NULL) != PD_OK) return;
    pd_client_call(op.client, PD_DROP, &request.base, op.arena, NULL, NULL);
    pd_operator_close(&op);
}

int pd_operator_probe(const char *url, double timeout, pd_error *err)
{
    pd_operator op;
    int rc = pd_operator_open(&op, url, timeout, err);

    if (rc == PD_OK) pd_operator_close(&op);
    return rc;
}

double pd_now_s(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void pd_pause_s(double seconds)
{
    struct timespec left = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}
