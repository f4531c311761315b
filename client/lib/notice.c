/* notice.c - gives the user texts: why a call waits, what the server warns of, and commands with the server's
 * address. */
#include "notice.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "follow.h"
#include "hash.h"

enum { NOTICE_BYTES = PD_ERROR_TEXT + 256 + 2 * PD_ADDRESS_TEXT };

static void print(void *arg, const char *text)
{
    (void)arg;
    fprintf(stderr, "paramd: %s\n", text);
}

pd_notices pd_notices_of(const pd_client_options *options)
{
    if (options->quiet || options->impatient) return (pd_notices){ 0 };
    if (options->notice == NULL) return (pd_notices){ print, NULL };
    return (pd_notices){ options->notice, options->notice_arg };
}

/* Gives a notice, a formatted text. Puts the address `server` into the commands that the notice names. */
static void give(const pd_notices *notices, const pd_address *server, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void give(const pd_notices *notices, const pd_address *server, const char *format, ...)
{
    char text[NOTICE_BYTES];
    va_list args;

    if (notices->give == NULL) return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    pd_command_address(text, sizeof text, server);
    notices->give(notices->arg, text);
}

void pd_notice_waiting(const pd_notices *notices, bool refused, const char *reason, double seconds_left)
{
    time_t end = time(NULL) + (time_t)ceil(seconds_left);
    struct tm clock = { 0 };

    localtime_r(&end, &clock);
    give(notices, NULL, "%s: %s; trying again until %02d:%02d:%02d, for another %.0f s",
         refused ? "the server does not admit this process to its job yet" : "no connection to the server", reason,
         clock.tm_hour, clock.tm_min, clock.tm_sec, ceil(seconds_left));
}

void pd_notice_left_over(const pd_notices *notices, const char *job, const pd_welcome *welcome,
                         const pd_address *server)
{
    if (welcome->created || welcome->linger <= 0 || welcome->step == 0) return;
    give(notices, server,
         "job %s is at step %" PRIu64
         " and lingers for another %.0f s: this process continues from that step. To begin "
         "anew, set PARAMD_RESUME=0, `paramctl drop %s`, or choose another name",
         job, welcome->step, ceil(welcome->linger), job);
}

void pd_notice_feedback(const pd_notices *notices, const char *job)
{
    give(notices, NULL,
         "job %s: the server has gone back, so what quantizing has left of this worker's gradients is lost; error "
         "feedback begins at 0",
         job);
}

void pd_notice_plain(const pd_notices *notices, const char *text)
{
    give(notices, NULL, "%s", text);
}

void pd_notice_remark(const pd_notices *notices, const char *job, const char *remark, const pd_address *server)
{
    give(notices, server, "warning of the server: job %s: %s", job, remark);
}

void pd_notice_late(const pd_notices *notices, const char *job, int in_row, uint64_t counted, uint64_t pushes)
{
    give(notices, NULL,
         "job %s: %d contributions of this worker in a row came too late to count; of %" PRIu64 " in all, %" PRIu64
         " have counted (%.0f %%). It is slower than the others: let it take fewer inner steps (dylu), or give the "
         "job a longer grace",
         job, in_row, pushes, counted, 100.0 * (double)counted / (double)pushes);
}

enum { WAITING = sizeof((pd_core_remarks *)0)->waiting / sizeof(char *), TOLD = 32 };

static bool was_told(const pd_core_remarks *remarks, uint64_t hash)
{
    for (size_t i = 0; i < TOLD && i < remarks->n_told; i++)
        if (remarks->told[i] == hash) return true;
    return false;
}

static void keep_remark(pd_core_remarks *remarks, const char *text)
{
    uint64_t hash = XXH3_64bits(text, strlen(text));
    char *copy = remarks->n < WAITING && !was_told(remarks, hash) ? strdup(text) : NULL;

    if (copy == NULL) return;
    remarks->waiting[remarks->n++] = copy;
    remarks->told[remarks->n_told++ % TOLD] = hash;
}

void pd_core_note_remarks(pd_core *core, const pd_prefix *prefix, const uint8_t *header)
{
    const Paramd__Ok *ok;
    void *message;

    if (prefix->header_bytes == 0) return;
    pd_arena_reset(core->arena);
    if (pd_reply_unpack(core->arena, PD_HEARTBEAT, header, prefix->header_bytes, &message, NULL) != PD_OK) return;
    ok = message;
    if (ok->moved != 0) pd_follow_moved(core);
    for (size_t i = 0; i < ok->n_remarks; i++) keep_remark(&core->remarks, ok->remarks[i]);
}

/* Returns whether the user reads the remarks. Older servers send them to every rank that reads them at all; in a job
 * whose ranks all count, rank 0 tells its user. Whether all count is known once the parameters are declared. */
static bool are_read(const pd_core *core)
{
    return core->setup.rank == 0 || (core->declared && core->open_sets);
}

char *pd_core_take_remark(pd_core *core)
{
    pd_core_remarks *remarks = &core->remarks;
    char *oldest = remarks->n > 0 && are_read(core) ? remarks->waiting[0] : NULL;

    if (oldest != NULL) memmove(remarks->waiting, remarks->waiting + 1, --remarks->n * sizeof *remarks->waiting);
    return oldest;
}

void pd_core_remarks_free(pd_core_remarks *remarks)
{
    while (remarks->n > 0) free(remarks->waiting[--remarks->n]);
}

#define PROGRAM "paramctl "

/* Returns whether the paramctl command at the beginning of `command` asks a daemon. */
static bool asks(const char *command)
{
    static const char *const alone[] = { "optimizers", "plan", "replay", "token", "verify", "checkpoints", "restore" };

    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++)
        if (strncmp(command, alone[i], strlen(alone[i])) == 0 && !isalpha((unsigned char)command[strlen(alone[i])]))
            return false;
    return islower((unsigned char)*command);
}

void pd_command_address(char *text, size_t room, const pd_address *address)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789:/._@%+=,-";
    char name[PD_ADDRESS_TEXT], option[PD_ADDRESS_TEXT + sizeof "-s '' "];
    const char *quote;
    size_t n;

    if (address == NULL) return;
    pd_address_text(address, name);
    quote = name[strspn(name, plain)] == '\0' ? "" : "'";
    n = (size_t)snprintf(option, sizeof option, "-s %s%s%s ", quote, name, quote);
    for (char *at = text; (at = strstr(at, PROGRAM)) != NULL;) {
        at += strlen(PROGRAM);
        if (!asks(at) || strlen(text) + n >= room) continue;
        memmove(at + n, at, strlen(at) + 1);
        memcpy(at, option, n);
    }
}
