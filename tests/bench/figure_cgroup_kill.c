/* cgroup_kill: the share of local_attacks.h after which the daemon is alive. Each meets a new daemon in a control group
 * of 400 MiB, as the user whose quota is 40 MB. As root; where no group can be made the figure is skipped.
 *
 * figure_cgroup_kill [NAME...]: these attacks alone. The note names those that have killed the daemon, and the most
 * memory that counted in the group. */
#include "cgroup.h"
#include "figure.h"
#include "local_attacks.h"

#include <signal.h>
#include <sys/wait.h>

enum { PATIENCE_MS = 60000, LOOK_MS = 5 };

typedef struct trial {
    const local_attack *attack;
    double most_mib; /* most memory of the group */
    bool alive;      /* the daemon, at the end */
} trial;

/* Writes a file of roles that lets this user do everything, within the quota. */
static void write_roles(char *path)
{
    int fd = mkstemp(path);

    if (fd < 0 || dprintf(fd, "* admin *\nquota * bytes=" ATTACK_QUOTA " jobs=100 connections=100 requests=1000\n") < 0)
        figure_stop("%s cannot be written", path);
    close(fd);
    setenv("PARAMD_SERVER_ROLES", path, 1);
}

static bool has_ended(pid_t pid, int *status)
{
    return waitpid(pid, status, WNOHANG) == pid;
}

/* Runs the attack in a process of its own, and looks at the group meanwhile. Returns why it could not be tried; NULL:
 * it was. */
static const char *watch(trial *t, pd_child *daemon, const pd_cgroup *group)
{
    pid_t pid = fork();
    double since = figure_ms();
    int status = 0;

    if (pid == 0) {
        t->attack->run(daemon->local);
        _exit(0);
    }
    if (pid < 0) return "no process could be started";
    while (t->alive && !has_ended(pid, &status)) {
        double mib = (double)pd_cgroup_bytes(group) / 1048576;
        if (mib > t->most_mib) t->most_mib = mib;
        t->alive = !has_ended(daemon->pid, NULL);
        if (figure_ms() - since > PATIENCE_MS) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            return "it does not end";
        }
        usleep(LOOK_MS * 1000);
    }
    if (t->alive) t->alive = !has_ended(daemon->pid, NULL);
    if (t->alive) return status != 0 ? "the daemon has answered with an unexpected error" : NULL;
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    daemon->pid = 0;
    return NULL;
}

/* Starts a daemon in the group: this process enters it and leaves it again. Then the daemon's limits that depend on the
 * memory that it may use follow that of the group. */
static void start_inside(pd_child *daemon, const pd_cgroup *group)
{
    pd_error err;

    if (pd_cgroup_enter(group, getpid(), &err) != PD_OK) figure_stop("%s", err.text);
    figure_daemon(daemon);
    if (pd_cgroup_leave(group, getpid(), &err) != PD_OK) figure_stop("%s", err.text);
}

static trial try(const local_attack *attack)
{
    trial t = { .attack = attack, .alive = true };
    const char *why;
    pd_cgroup group;
    pd_child daemon;
    pd_error err;

    if (pd_cgroup_make(&group, 400LL << 20, &err) != PD_OK) {
        fprintf(stderr, "cgroup_kill: %s\n", err.text);
        exit(77);
    }
    start_inside(&daemon, &group);
    why = watch(&t, &daemon, &group);
    pd_child_stop(&daemon);
    pd_cgroup_remove(&group);
    if (why != NULL) figure_stop("%s: %s", attack->name, why);
    return t;
}

static bool is_wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0) return true;
    return argc == 1;
}

int main(int argc, char **argv)
{
    char roles[] = "/tmp/paramd-roles-XXXXXX", note[400] = "";
    int n = 0, alive = 0;
    double most = 0;

    write_roles(roles);
    for (const local_attack *attack = local_attacks; attack->name != NULL; attack++) {
        trial t;
        if (!is_wanted(attack->name, argc, argv)) continue;
        t = try(attack);
        n++;
        alive += t.alive;
        if (t.most_mib > most) most = t.most_mib;
        if (!t.alive)
            snprintf(note + strlen(note), sizeof note - strlen(note), "%s%s", note[0] != '\0' ? ", " : "killed by ",
                     attack->name);
    }
    unlink(roles);
    printf("%.2f\t%d attacks, at most %.0f of 400 MiB%s%s\n", n > 0 ? (double)alive / n : 0, n, most,
           note[0] != '\0' ? "; " : "", note);
    return 0;
}
