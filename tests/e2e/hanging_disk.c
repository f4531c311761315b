/* hanging_disk.c - runs a program whose fsync and fdatasync do not return while a file exists: a disk that hangs, also
 * for a program that makes system calls without the C library, such as etcd (failing_disk.c replaces those of libc).
 *
 *     hanging_disk FILE COMMAND...
 *
 * The kernel asks a second process about each of these calls (seccomp's user notification). That process lets the call
 * go on once FILE does not exist. Exits with 77 where the kernel does not offer that. */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { SKIPPED = 77, FAILED = 126 };

/* A message with one descriptor beside one byte. */
typedef struct parcel {
    char byte;
    struct iovec part;
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct msghdr message;
} parcel;

static void parcel_init(parcel *p)
{
    memset(p, 0, sizeof *p);
    p->part = (struct iovec){ &p->byte, 1 };
    p->message = (struct msghdr){
        .msg_iov = &p->part, .msg_iovlen = 1, .msg_control = p->control.bytes, .msg_controllen = sizeof p->control.bytes
    };
}

/* Returns whether the descriptor was sent. */
static int send_descriptor(int to, int fd)
{
    parcel p;
    struct cmsghdr *header;

    parcel_init(&p);
    header = CMSG_FIRSTHDR(&p.message);
    *header = (struct cmsghdr){ .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof fd) };
    memcpy(CMSG_DATA(header), &fd, sizeof fd);
    return sendmsg(to, &p.message, 0) == 1;
}

/* Returns the descriptor that comes; -1: none comes any more. */
static int receive_descriptor(int from)
{
    parcel p;
    int fd = -1;

    parcel_init(&p);
    if (recvmsg(from, &p.message, MSG_CMSG_CLOEXEC) == 1 && CMSG_FIRSTHDR(&p.message) != NULL)
        memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&p.message)), sizeof fd);
    return fd;
}

/* Answers the kernel's questions until the program has ended. Threads that call meanwhile wait in the kernel. */
static void watch(int listener, const char *file)
{
    const struct timespec moment = { .tv_nsec = 10000000 };
    struct pollfd asked = { .fd = listener, .events = POLLIN };

    for (;;) {
        struct seccomp_notif question = { 0 };
        struct seccomp_notif_resp answer = { .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
        if (poll(&asked, 1, -1) < 0 && errno == EINTR) continue;
        if ((asked.revents & POLLIN) == 0) return;
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &question) != 0) continue; /* the caller was killed */
        while (access(file, F_OK) == 0 && ioctl(listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &question.id) == 0)
            nanosleep(&moment, NULL);
        answer.id = question.id;
        (void)ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
}

/* Lets the kernel ask about fsync and fdatasync of this process and of programs that it becomes. Returns the descriptor
 * to answer at; -1: the kernel does not offer it. */
static int install_filter(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fsync, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fdatasync, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = { sizeof code / sizeof code[0], code };

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

int main(int argc, char **argv)
{
    int ends[2], listener;

    if (argc < 3) {
        fprintf(stderr, "hanging_disk FILE COMMAND...\n");
        return 2;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return FAILED;
    if (fork() == 0) {
        close(ends[0]);
        if ((listener = receive_descriptor(ends[1])) >= 0) watch(listener, argv[1]);
        return 0;
    }
    close(ends[1]);
    if ((listener = install_filter()) < 0 || !send_descriptor(ends[0], listener)) {
        fprintf(stderr, "hanging_disk: the kernel does not ask about system calls: %s\n", strerror(errno));
        return SKIPPED;
    }
    close(listener);
    execvp(argv[2], argv + 2);
    fprintf(stderr, "hanging_disk: %s: %s\n", argv[2], strerror(errno));
    return FAILED;
}
