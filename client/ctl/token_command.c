/* token_command.c - the paramctl command token, which makes keys for tls:// addresses. */
#include "token_command.h"

#include <string.h>
#include <unistd.h>

#include "result.h"
#include "token.h"

/* Tells a person where the line belongs. A program that reads the line gets it alone. */
static void explain(void)
{
    if (!isatty(STDOUT_FILENO) && !isatty(STDERR_FILENO)) return;
    fprintf(stderr,
            "Add the line to the daemon's file of tokens (tls.tokens), and reload the daemon. The worker's file\n"
            "(PARAMD_TOKEN_FILE) has the same line. Then: chmod 600 FILE\n");
}

int pd_run_token(pd_line *line)
{
    char text[PD_TOKEN_LINE];
    pd_error err;

    if (strcmp(line->args[0], "new") != 0) pd_line_refuse(line, "%.60s: expected token new ID", line->args[0]);
    if (pd_token_new(text, line->args[1], &err) != PD_OK) return pd_result_fail_reached(line->json, &err);
    if (line->json) return pd_result_json(json_pack("{s:s}", "token", text));
    explain();
    printf("%s\n", text);
    return PD_EXIT_OK;
}
