/* scdoc.c - writes texts into a manual page in the language of scdoc (man 5 scdoc). */
#include "manual.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { WIDTH = 70 };

void pd_scdoc_text(FILE *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("*_\\#[]|<>-.~`", *text) != NULL) fputc('\\', out);
        fputc(*text, out);
    }
}

void pd_scdoc_begin(FILE *out, const char *name, int section, const char *about)
{
    fprintf(out, "%s(%d) \"paramd %s\" \"paramd\"\n\n# NAME\n\n%s - ", name, section, PD_VERSION, name);
    pd_scdoc_text(out, about);
    fprintf(out, "\n\n");
}

/* Returns the number of bytes of the word at `text`, up to a space, a newline or the end. */
static size_t word_bytes(const char *text)
{
    return strcspn(text, " \n");
}

void pd_scdoc_sentence(FILE *out, const char *indent, const char *text)
{
    char word[256];
    size_t column = 0, last = '.';

    for (bool first = true; *text != '\0'; first = false) {
        size_t n = word_bytes(text);
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        if (first) word[0] = (char)toupper((unsigned char)word[0]);
        if (column > 0 && column + 1 + n > WIDTH) column = 0, fprintf(out, "\n");
        fprintf(out, "%s", column == 0 ? indent : " ");
        pd_scdoc_text(out, word);
        column += n + 1;
        if (n > 0) last = (unsigned char)text[n - 1];
        text += n;
        if (*text == '\n') column = 0, fprintf(out, "\n\n");
        text += *text != '\0';
    }
    fprintf(out, last == '.' ? "\n" : ".\n");
}

void pd_scdoc_marked(FILE *out, char mark, const char *text)
{
    fputc(mark, out);
    pd_scdoc_text(out, text);
    fputc(mark, out);
}
