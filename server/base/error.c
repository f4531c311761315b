/* error.c - fills error structs, and gives the names of error codes. */
#include "paramd/error.h"

#include <stdarg.h>
#include <stdio.h>

#include "utf8.h"

int pd_fail(pd_error *err, int code, const char *format, ...)
{
    va_list args;

    if (err == NULL) return code;
    err->code = code;
    va_start(args, format);
    vsnprintf(err->text, sizeof err->text, format, args);
    va_end(args);
    pd_text_mend(err->text);
    return code;
}

const char *pd_code_name(int code)
{
    switch (code) {
#define NAME_CASE(name, value, text)                                                                                   \
    case value: return #name;
        PD_ERRORS(NAME_CASE)
#undef NAME_CASE
    default: return "UNKNOWN";
    }
}

const char *pd_code_text(int code)
{
    switch (code) {
#define TEXT_CASE(name, value, text)                                                                                   \
    case value: return text;
        PD_ERRORS(TEXT_CASE)
#undef TEXT_CASE
    default: return "unknown error";
    }
}
