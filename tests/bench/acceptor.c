/* acceptor.c - a process that accepts connections and does nothing for them. */
#include "acceptor.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "figure.h"

enum { KEPT = 512, BACKLOG = 1024, EVENTS = 64 };

typedef struct acceptor {
    int listener, epoll, whole;
    int kept[KEPT]; /* connections that have sent all, a ring; 0: none */
    unsigned next;
} acceptor;

static void accept_all(const acceptor *a)
{
    int fd;

    while ((fd = accept4(a->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct epoll_event event = { .events = EPOLLIN, .data.fd = fd };
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &a->whole, sizeof a->whole);
        if (epoll_ctl(a->epoll, EPOLL_CTL_ADD, fd, &event) != 0) figure_stop("epoll: %s", strerror(errno));
    }
}

/* Keeps a connection that has sent all, in place of the oldest of these. Closes one whose peer has gone. */
static void take(acceptor *a, int fd)
{
    int here = 0;

    epoll_ctl(a->epoll, EPOLL_CTL_DEL, fd, NULL);
    if (ioctl(fd, FIONREAD, &here) != 0 || here < a->whole) {
        close(fd);
        return;
    }
    if (a->kept[a->next] > 0) close(a->kept[a->next]);
    a->kept[a->next] = fd;
    a->next = (a->next + 1) % KEPT;
}

static void serve(acceptor *a, pid_t parent)
{
    struct epoll_event events[EVENTS] = { { .events = EPOLLIN, .data.fd = a->listener } };

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent || (a->epoll = epoll_create1(EPOLL_CLOEXEC)) < 0 ||
        epoll_ctl(a->epoll, EPOLL_CTL_ADD, a->listener, &events[0]) != 0)
        _exit(1);
    for (;;) {
        int n = epoll_wait(a->epoll, events, EVENTS, -1);
        for (int i = 0; i < n; i++) {
            if (events[i].data.fd == a->listener)
                accept_all(a);
            else
                take(a, events[i].data.fd);
        }
    }
}

static int listen_anywhere(int *port)
{
    struct sockaddr_in address = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t size = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&address, size) != 0 || listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        figure_stop("no socket listens: %s", strerror(errno));
    *port = ntohs(address.sin_port);
    return fd;
}

pid_t acceptor_start(int *port, size_t whole)
{
    static acceptor a;
    pid_t parent = getpid(), pid;

    a.whole = (int)whole;
    a.listener = listen_anywhere(port);
    if ((pid = fork()) == 0) serve(&a, parent);
    if (pid < 0) figure_stop("no process: %s", strerror(errno));
    close(a.listener);
    return pid;
}

void acceptor_stop(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}
