/* names.c - name servers that do not answer, for tests. The linker leads calls of getaddrinfo here (CMakeLists.txt). */
#include "names.h"

#include <netdb.h>
#include <pthread.h>

#include "daemon_process.h"
#include "test.h"

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static bool hanging;
static int blocked;

int __real_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);
int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out);

int __wrap_getaddrinfo(const char *host, const char *port, const struct addrinfo *hints, struct addrinfo **out)
{
    bool number = hints != NULL && (hints->ai_flags & AI_NUMERICHOST) != 0;

    pthread_mutex_lock(&lock);
    if (!number) blocked++;
    while (hanging && !number) pthread_cond_wait(&changed, &lock);
    if (!number) blocked--;
    pthread_mutex_unlock(&lock);
    return __real_getaddrinfo(host, port, hints, out);
}

void names_hang(void)
{
    pthread_mutex_lock(&lock);
    hanging = true;
    pthread_mutex_unlock(&lock);
}

static bool are_blocked(void *arg)
{
    const int *wanted = arg;
    bool so;

    pthread_mutex_lock(&lock);
    so = blocked == *wanted;
    pthread_mutex_unlock(&lock);
    return so;
}

bool names_await_blocked(int lookups, double seconds)
{
    return await(are_blocked, &lookups, seconds);
}

void names_answer(void)
{
    pthread_mutex_lock(&lock);
    hanging = false;
    pthread_mutex_unlock(&lock);
    pthread_cond_broadcast(&changed);
    assert_true(names_await_blocked(0, patient(5)));
}
