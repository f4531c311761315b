/* hostile_daemon.c - starts a daemon that is to be attacked. */
#include "hostile_daemon.h"

#include "figure.h"

static int port_in_log(const pd_child *child, const char *words)
{
    char text[4096];
    const char *at;
    ssize_t n = pread(child->log, text, sizeof text - 1, 0);

    text[n > 0 ? n : 0] = '\0';
    return (at = strstr(text, words)) != NULL ? atoi(at + strlen(words)) : 0;
}

void hostile_start(pd_child *child, duel_daemon *out, const char *folder, bool read_only)
{
    duel_environment(folder, read_only);
    figure_daemon(child);
    *out = (duel_daemon){ .url = child->url, .path = child->local + strlen("unix://"), .read_only = read_only };
    out->port = atoi(strrchr(child->url, ':') + 1);
    if ((out->http_port = port_in_log(child, "listening for HTTP on 127.0.0.1:")) == 0)
        figure_stop("the daemon does not listen for HTTP");
}
