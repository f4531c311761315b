/* log_journal.c - sends entries of the log to the systemd journal in the datagrams that systemd defines. */
#include "log_journal.h"

#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int fd = -1; /* socket to the journal; set before the first thread starts */

bool pd_log_journal_open(const char *path)
{
    struct sockaddr_un address = { .sun_family = AF_UNIX };

    pd_log_journal_close();
    if (strlen(path) >= sizeof address.sun_path) return false;
    strcpy(address.sun_path, path);
    if ((fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0) return false;
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0) pd_log_journal_close();
    return fd >= 0;
}

void pd_log_journal_close(void)
{
    if (fd >= 0) close(fd);
    fd = -1;
}

bool pd_log_journal_is_open(void)
{
    return fd >= 0;
}

bool pd_log_journal_send(const char *line, size_t n, bool waits)
{
    char datagram[PD_LOG_JOURNAL_LINE];

    if (n > sizeof datagram) return false;
    for (size_t i = 0; i < n; i++) datagram[i] = line[i] == PD_LOG_JOURNAL_NEXT ? '\n' : line[i];
    return send(fd, datagram, n, MSG_NOSIGNAL | (waits ? 0 : MSG_DONTWAIT)) == (ssize_t)n;
}

size_t pd_log_journal_plain(char out[PD_LOG_JOURNAL_LINE], const char *line, size_t n)
{
    static const char priority[] = "PRIORITY=", message[] = "MESSAGE=";
    size_t at = sizeof priority - 1, used = 0;

    out[used++] = '<';
    out[used++] = at < n ? line[at] : '6';
    out[used++] = '>';
    at += 1 + sizeof message; /* the digit, the separator, and the name of the second field */
    while (at < n && line[at] != PD_LOG_JOURNAL_NEXT && line[at] != '\n' && used + 1 < PD_LOG_JOURNAL_LINE)
        out[used++] = line[at++];
    out[used++] = '\n';
    return used;
}
