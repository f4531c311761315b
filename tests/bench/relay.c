/* relay.c - a link between two network namespaces with a rate, a delay, jitter, loss and a queue, for measurements and
 * tests on kernels that lack netem.
 *
 *     pd_relay NAMESPACE NAMESPACE [rate=1e9] [delay=0.05] [jitter=0] [loss=0] [queue=0.1] [mtu=1500] [seed=1]
 *
 * Makes a network device "pd0" in each namespace, prints "ready", and forwards packets between the two until it is
 * killed; the devices end with it. In each direction:
 * - Packets leave one after the other at `rate` bits per second.
 * - A packet that would have to wait for longer than `queue` seconds is dropped, as a router with a full queue does.
 * - Every other packet is dropped with probability `loss`. The generator of random numbers begins with `seed`.
 * - A packet arrives `delay` seconds after it has left, and up to `jitter` seconds later. No packet overtakes another.
 * Needs root. */
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

enum { LONGEST = 65536, AT_ONCE = 64 };

/* The properties of the link: bits per second, seconds, bytes. */
typedef struct properties {
    double rate, delay, jitter, loss, queue, mtu, seed;
} properties;

static properties line = { .rate = 1e9, .delay = 0.05, .queue = 0.1, .mtu = 1500, .seed = 1 };

static const struct {
    const char *name;
    double *value;
} names[] = { { "rate", &line.rate },   { "delay", &line.delay }, { "jitter", &line.jitter }, { "loss", &line.loss },
              { "queue", &line.queue }, { "mtu", &line.mtu },     { "seed", &line.seed } };

typedef struct packet {
    struct packet *prev, *next;
    double due; /* when it arrives */
    size_t bytes;
    uint8_t data[];
} packet;

/* One direction of the line. */
typedef struct direction {
    int from, to;      /* devices */
    double left;       /* when the last packet has left */
    double arrives;    /* when the last packet arrives */
    packet *under_way; /* list, in the order of arrival (utlist) */
} direction;

static void die(const char *what)
{
    fprintf(stderr, "pd_relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Makes the device in a namespace, and returns it. This process is in that namespace afterwards. */
static int make_device(const char *namespace, int mtu)
{
    struct ifreq device = { .ifr_name = "pd0" };
    char path[256];
    int fd, any;

    snprintf(path, sizeof path, "/run/netns/%s", namespace);
    if ((fd = open(path, O_RDONLY | O_CLOEXEC)) < 0 || setns(fd, CLONE_NEWNET) != 0) die(path);
    close(fd);
    device.ifr_flags = IFF_TUN | IFF_NO_PI;
    if ((fd = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC)) < 0) die("/dev/net/tun");
    if (ioctl(fd, TUNSETIFF, &device) != 0) die("a device");
    device.ifr_mtu = mtu;
    if ((any = socket(AF_INET, SOCK_DGRAM, 0)) < 0 || ioctl(any, SIOCSIFMTU, &device) != 0) die("the MTU");
    close(any);
    return fd;
}

/* Accepts a packet: decides whether and when it arrives. */
static void accept_packet(direction *d, const uint8_t *data, size_t bytes, double now)
{
    double begins = d->left > now ? d->left : now;
    packet *p;

    if (begins - now > line.queue || drand48() < line.loss) return;
    d->left = begins + 8 * (double)bytes / line.rate;
    if ((p = malloc(sizeof *p + bytes)) == NULL) return;
    p->due = d->left + line.delay + line.jitter * drand48();
    if (p->due < d->arrives) p->due = d->arrives;
    d->arrives = p->due;
    p->bytes = bytes;
    memcpy(p->data, data, bytes);
    DL_APPEND(d->under_way, p);
}

static void read_packets(direction *d)
{
    static uint8_t data[LONGEST];
    ssize_t bytes;

    for (int i = 0; i < AT_ONCE && (bytes = read(d->from, data, sizeof data)) > 0; i++)
        accept_packet(d, data, (size_t)bytes, now_s());
}

/* Delivers the packets that have arrived. Returns how many seconds the next one needs. */
static double deliver(direction *d)
{
    double now = now_s();
    packet *p;

    while ((p = d->under_way) != NULL && p->due <= now) {
        if (write(d->to, p->data, p->bytes) < 0 && errno == EAGAIN) return 0;
        DL_DELETE(d->under_way, p);
        free(p);
    }
    return p != NULL ? p->due - now : 1;
}

_Noreturn static void forward(direction ways[2])
{
    struct pollfd polled[2] = { { .fd = ways[0].from, .events = POLLIN }, { .fd = ways[1].from, .events = POLLIN } };

    for (;;) {
        double wait = deliver(&ways[0]), other = deliver(&ways[1]);
        struct timespec time = { .tv_nsec = (long)(1e9 * (wait < other ? wait : other)) };

        if (time.tv_nsec > 999999999) time.tv_nsec = 999999999;
        if (ppoll(polled, 2, &time, NULL) < 0 && errno != EINTR) die("ppoll");
        for (int i = 0; i < 2; i++)
            if (polled[i].revents != 0) read_packets(&ways[i]);
    }
}

/* Reads an argument such as "rate=1e9". Returns false if it is none. */
static bool set_property(const char *text)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        size_t n = strlen(names[i].name);
        char *end;

        if (strncmp(text, names[i].name, n) != 0 || text[n] != '=') continue;
        *names[i].value = strtod(text + n + 1, &end);
        return end != text + n + 1 && *end == '\0' && *names[i].value >= 0;
    }
    return false;
}

int main(int argc, char **argv)
{
    direction ways[2] = { 0 };

    for (int i = 3; i < argc; i++) {
        if (set_property(argv[i])) continue;
        fprintf(stderr, "pd_relay: %s: expected rate, delay, jitter, loss, queue, mtu or seed = number\n", argv[i]);
        return 2;
    }
    if (argc < 3) {
        fprintf(stderr, "usage: pd_relay NAMESPACE NAMESPACE [NAME=VALUE]...\n");
        return 2;
    }
    srand48((long)line.seed);
    prctl(PR_SET_TIMERSLACK, 1UL);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    ways[0].from = ways[1].to = make_device(argv[1], (int)line.mtu);
    ways[1].from = ways[0].to = make_device(argv[2], (int)line.mtu);
    puts("ready");
    fflush(stdout);
    forward(ways);
}
