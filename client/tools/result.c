/* result.c - prints the result of a command: an error, or an answer as JSON. */
#include "result.h"

#include <stdlib.h>

#include "format.h"

static int exit_status(int code)
{
    if (code == PD_OK) return PD_EXIT_OK;
    return code == PD_UNAVAILABLE || code == PD_DEADLINE_EXCEEDED ? PD_EXIT_UNREACHABLE : PD_EXIT_FAILED;
}

int pd_result_fail_quietly(bool json, const pd_error *err)
{
    if (json) pd_result_json(json_pack("{s:{s:s, s:s}}", "error", "code", pd_code_name(err->code), "text", err->text));
    return exit_status(err->code);
}

int pd_result_fail(bool json, const pd_error *err)
{
    pd_print_line(stderr, "paramctl: %s", err->text[0] != '\0' ? err->text : pd_code_text(err->code));
    return pd_result_fail_quietly(json, err);
}

int pd_result_fail_reached(bool json, const pd_error *err)
{
    (void)pd_result_fail(json, err);
    return PD_EXIT_FAILED;
}

int pd_result_json(json_t *value)
{
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(2)) : NULL;

    json_decref(value);
    if (text == NULL) {
        fprintf(stderr, "paramctl: out of memory\n");
        return PD_EXIT_FAILED;
    }
    pd_print_json(stdout, text);
    fputc('\n', stdout);
    free(text);
    return PD_EXIT_OK;
}
