/* paramctl_run.c - runs paramctl against the test's daemon. */
#include "paramctl_run.h"

#include <sys/wait.h>

#include "test.h"

pd_child paramctl_server;
char paramctl_output[256 * 1024];

int paramctl_start_server(void **state)
{
    pd_error err = { 0 };

    (void)state;
    if (pd_child_start(&paramctl_server, &err) == PD_OK) return 0;
    fprintf(stderr, "%s\n", err.text);
    return -1;
}

int paramctl_stop_server(void **state)
{
    (void)state;
    pd_child_stop(&paramctl_server);
    return 0;
}

void paramctl_ask(const char *url)
{
    snprintf(paramctl_server.url, sizeof paramctl_server.url, "%s", url);
}

static int run(const char *line)
{
    FILE *pipe = popen(line, "r");
    int status;

    assert_non_null(pipe);
    paramctl_output[fread(paramctl_output, 1, sizeof paramctl_output - 1, pipe)] = '\0';
    status = pclose(pipe);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

int paramctl(const char *format, ...)
{
    char arguments[1024], line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(arguments, sizeof arguments, format, args);
    va_end(args);
    snprintf(line, sizeof line, "PARAMD_URL=%s %s/paramctl %s%s", paramctl_server.url, getenv("PARAMD_BIN"), arguments,
             strstr(arguments, "json") != NULL ? " 2>/dev/null" : " 2>&1");
    return run(line);
}

int paramctl_shell(const char *format, ...)
{
    char command[1024], line[2048];
    va_list args;

    va_start(args, format);
    vsnprintf(command, sizeof command, format, args);
    va_end(args);
    snprintf(line, sizeof line, "export PARAMD_URL=%s paramctl=%s/paramctl; ( %s ) 2>&1", paramctl_server.url,
             getenv("PARAMD_BIN"), command);
    return run(line);
}

void assert_says(const char *part)
{
    if (strstr(paramctl_output, part) == NULL) fail_msg("does not say \"%s\":\n%s", part, paramctl_output);
}

void assert_lines_fit(int most)
{
    for (const char *line = paramctl_output; *line != '\0'; line += line[strcspn(line, "\n")] == '\n') {
        int width = 0;
        const char *begin = line;
        for (; *line != '\0' && *line != '\n'; line++) width += ((unsigned char)*line & 0xC0) != 0x80;
        if (width > most) fail_msg("%d characters: %.*s", width, (int)(line - begin), begin);
        if (*line == '\0') return;
    }
}

json_t *parsed(void)
{
    json_error_t why;
    json_t *value = json_loads(paramctl_output, 0, &why);

    if (value == NULL) fail_msg("%s in:\n%s", why.text, paramctl_output);
    return value;
}
