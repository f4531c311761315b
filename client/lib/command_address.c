/* command_address.c - puts the server's address into commands that texts of the server name. */
#include "command_address.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define PROGRAM "paramctl "

/* Returns whether the command at the beginning of a text asks a daemon. */
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
