/* etcd_process.h - a cluster of real etcd members for a test, on free ports of this machine, with its data in a
 * temporary folder. */
#ifndef ETCD_PROCESS_H
#define ETCD_PROCESS_H

#include <stdbool.h>
#include <sys/types.h>

enum { ETCDS = 3, ETCD_TOKEN = 2 };

typedef struct test_etcd {
    int n;
    pid_t pid[ETCDS]; /* 0: the member does not run */
    int port[ETCDS], peer_port[ETCDS];
    char folder[64];
    bool ends_tokens; /* its tokens, of users with passwords, end after ETCD_TOKEN seconds */
    bool secure; /* it speaks TLS, and clients need a certificate; the folder has ca.pem, client.pem and client.key */
    char engine[200]; /* for cluster.engine */
} test_etcd;

/* Returns whether etcd is installed, or the environment variable PARAMD_TEST_ETCD names its program. A test without it
 * calls skip(). */
bool etcd_is_there(void);
/* Starts 1 or 3 members, and waits until they have a leader. Fails the test otherwise. */
test_etcd *etcd_start(int n);
/* Starts one member that speaks TLS. Does not wait until it answers. */
test_etcd *etcd_start_secure(void);
/* Starts one member that asks for users and passwords. The user "paramd" may use keys that begin with /paramd/;
 * the file `password` in the folder has the password. */
test_etcd *etcd_start_with_users(void);
/* Kills all members with SIGKILL, and removes the folder. Accepts NULL. */
void etcd_end(test_etcd *etcd);
/* Kills a member with SIGKILL; starts it again with its data. */
void etcd_kill(test_etcd *etcd, int member);
void etcd_restart(test_etcd *etcd, int member);
/* Stops a member as a disk does that does not answer: it keeps its connections, and answers nothing. Lets it go on. */
void etcd_freeze(const test_etcd *etcd, int member);
void etcd_thaw(const test_etcd *etcd, int member);
/* Returns the member that leads; -1: none does. */
int etcd_leader(const test_etcd *etcd);

#endif
