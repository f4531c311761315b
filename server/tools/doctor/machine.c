/* machine.c - reads small files of the kernel, and the daemon's settings. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host.h"

bool pd_machine_text(const pd_machine *machine, const char *path, char *text, size_t size)
{
    char full[1024];

    snprintf(full, sizeof full, "%s%s", machine->root, path);
    return pd_host_read_text(full, text, size);
}

int64_t pd_machine_number(const pd_machine *machine, const char *path, int64_t otherwise)
{
    char text[64], *end;
    int64_t number;

    if (!pd_machine_text(machine, path, text, sizeof text)) return otherwise;
    number = strtoll(text, &end, 10);
    return end != text ? number : otherwise;
}

bool pd_machine_choice(const pd_machine *machine, const char *path, char *word, size_t size)
{
    char text[256], *first, *last;

    if (!pd_machine_text(machine, path, text, sizeof text)) return false;
    if ((first = strchr(text, '[')) == NULL || (last = strchr(first, ']')) == NULL) return false;
    snprintf(word, size, "%.*s", (int)(last - first - 1), first + 1);
    return true;
}

/* Returns the text behind a name at the beginning of a line; NULL: no line begins with it. */
static const char *behind(const char *text, const char *name)
{
    size_t n = strlen(name);

    for (const char *at = text; at != NULL && *at != '\0'; at = strchr(at, '\n'), at = at != NULL ? at + 1 : NULL)
        if (strncmp(at, name, n) == 0) return at + n;
    return NULL;
}

int64_t pd_number_after(const char *text, const char *name, int64_t otherwise)
{
    const char *at = behind(text, name);
    char *end;
    int64_t number;

    if (at == NULL) return otherwise;
    number = strtoll(at, &end, 10);
    return end != at ? number : otherwise;
}

bool pd_machine_setting(const pd_machine *machine, const char *key, char *value, size_t size)
{
    char name[64];
    const char *at;
    size_t n;

    snprintf(name, sizeof name, "%s =", key);
    if ((at = behind(machine->settings, name)) == NULL) return false;
    at += strspn(at, " ");
    n = strcspn(at, "\n");
    if (n >= size) return false;
    memcpy(value, at, n);
    value[n] = '\0';
    return true;
}
