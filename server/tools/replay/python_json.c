/* python_json.c - reads JSON as Python's json module writes it. */
#include "python_json.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const beyond[] = { "NaN", "-Infinity", "Infinity" };

/* Returns the length of NaN, Infinity or -Infinity at the start of `text`; 0: the text begins with none of them. */
static size_t beyond_length(const char *text)
{
    for (size_t i = 0; i < sizeof beyond / sizeof *beyond; i++) {
        size_t n = strlen(beyond[i]);
        if (strncmp(text, beyond[i], n) == 0) return n;
    }
    return 0;
}

/* Copies JSON text, with null in place of each NaN and infinity outside of strings. Each null is at most one byte
 * longer than the number it replaces. */
static void replace(char *to, const char *text)
{
    bool inside = false;
    size_t n;

    while (*text != '\0') {
        if (inside && *text == '\\' && text[1] != '\0') {
            *to++ = *text++;
            *to++ = *text++;
        } else if (!inside && (n = beyond_length(text)) > 0) {
            to = stpcpy(to, "null");
            text += n;
        } else {
            inside ^= *text == '"';
            *to++ = *text++;
        }
    }
    *to = '\0';
}

json_t *pd_python_json(const char *text, json_error_t *why)
{
    char *standard = malloc(2 * strlen(text) + 1);
    json_t *json;

    if (standard == NULL) {
        snprintf(why->text, sizeof why->text, "out of memory");
        return NULL;
    }
    replace(standard, text);
    json = json_loads(standard, JSON_REJECT_DUPLICATES, why);
    free(standard);
    return json;
}
