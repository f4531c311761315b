/* utf8.c - reads characters of UTF-8, and makes any text printable. */
#include "utf8.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* ---- characters ---- */

/* The forms of a UTF-8 character of 1 to 4 bytes: mask and value of the first byte's marker bits, how many bytes
 * follow, and the smallest code point that needs this form. */
static const struct {
    uint8_t mask, lead, more;
    uint32_t least;
} forms[] = {
    { 0x80, 0x00, 0, 0x0 },
    { 0xe0, 0xc0, 1, 0x80 },
    { 0xf0, 0xe0, 2, 0x800 },
    { 0xf8, 0xf0, 3, 0x10000 },
};
enum { FORMS = sizeof forms / sizeof forms[0] };

size_t pd_utf8_next(const char *at, size_t n, uint32_t *point)
{
    const uint8_t *byte = (const uint8_t *)at;
    size_t form = 0;

    if (n == 0) return 0;
    while (form < FORMS && (byte[0] & forms[form].mask) != forms[form].lead) form++;
    if (form == FORMS || n <= forms[form].more) return 0;
    *point = byte[0] & (uint8_t)~forms[form].mask;
    for (size_t k = 1; k <= forms[form].more; k++) {
        if ((byte[k] & 0xc0) != 0x80) return 0;
        *point = *point << 6 | (byte[k] & 0x3f);
    }
    if (*point < forms[form].least || *point > 0x10ffff || (*point >= 0xd800 && *point < 0xe000)) return 0;
    return forms[form].more + 1u;
}

/* Ranges of code points that are not printable, in ascending order. */
static const struct {
    uint32_t first, last;
} hidden[] = {
    { 0x0, 0x1f },      { 0x7f, 0x9f },     { 0x61c, 0x61c },   { 0x200b, 0x200f },   { 0x2028, 0x202e },
    { 0x2060, 0x206f }, { 0xfeff, 0xfeff }, { 0xfff9, 0xfffb }, { 0xe0000, 0xe007f },
};
enum { HIDDEN = sizeof hidden / sizeof hidden[0] };

bool pd_point_printable(uint32_t point)
{
    for (int i = 0; i < HIDDEN && hidden[i].first <= point; i++)
        if (point <= hidden[i].last) return false;
    return true;
}

size_t pd_point_escape(char out[PD_ESCAPE], uint32_t point)
{
    unsigned rest = point - 0x10000;

    if (point < 0x10000) return (size_t)snprintf(out, PD_ESCAPE, "\\u%04x", (unsigned)point);
    return (size_t)snprintf(out, PD_ESCAPE, "\\u%04x\\u%04x", (0xd800 | rest >> 10) & 0xffff, 0xdc00 | (rest & 0x3ff));
}

/* ---- texts ---- */

/* Returns whether the text ends in the middle of a UTF-8 character, because it was cut there. `text` begins at that
 * character. */
static bool is_cut(const char *text, size_t left)
{
    size_t form = 1;

    while (form < FORMS && ((uint8_t)text[0] & forms[form].mask) != forms[form].lead) form++;
    if (form == FORMS || left > forms[form].more) return false;
    for (size_t k = 1; k < left; k++)
        if (((uint8_t)text[k] & 0xc0) != 0x80) return false;
    return true;
}

/* Copies whole characters as long as they fit into `out`, and writes '?' for those that are not printable. `out` may be
 * `text`, since no character becomes longer. */
static void print(char *out, size_t size, const char *text)
{
    size_t left = strlen(text), used = 0;

    while (left > 0) {
        uint32_t point;
        size_t bytes = pd_utf8_next(text, left, &point), taken = bytes > 0 ? bytes : 1;
        bool good = bytes > 0 && pd_point_printable(point);
        if (used + (good ? bytes : 1) >= size || (bytes == 0 && is_cut(text, left))) break;
        if (good)
            memmove(out + used, text, bytes);
        else
            out[used] = '?';
        used += good ? bytes : 1;
        text += taken;
        left -= taken;
    }
    out[used] = '\0';
}

char *pd_text_print(char *out, size_t size, const char *text)
{
    print(out, size, text);
    return out;
}

void pd_text_mend(char *text)
{
    print(text, strlen(text) + 1, text);
}
