/* watch.c - repeats a command with --watch and shows each answer in place of the last one. */
#include "watch.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#define CLEAR "\033[H\033[2J" /* terminal codes that move to the upper left corner and erase the screen */

void pd_watch_pause(double seconds)
{
    struct timespec left = { (time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9) };

    while (nanosleep(&left, &left) != 0 && errno == EINTR) {}
}

/* Returns whether the user gave --watch with a command that has this option. */
static bool watches(const pd_line *line)
{
    for (const pd_command_option *o = line->command->options; o != NULL && o->name != NULL; o++)
        if (strcmp(o->name, "watch") == 0) return pd_line_has(line, "watch");
    return false;
}

/* Returns how many bytes of a text fit on the terminal. The last line of the terminal stays free for the cursor. */
static size_t fitting(const char *text, size_t n)
{
    struct winsize size;
    const char *at = text;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2) return n;
    for (int row = 1; row < size.ws_row && *at != '\0'; row++) at += strcspn(at, "\n") + (strchr(at, '\n') != NULL);
    return (size_t)(at - text);
}

/* Runs the command with its output going to memory, then clears the terminal and shows as much of the output as
 * fits. After an error the terminal keeps the last answer, with the error below it. */
static int show(pd_line *line)
{
    FILE *terminal = stdout, *answer;
    char *text = NULL;
    size_t n;
    int status;

    if ((answer = open_memstream(&text, &n)) == NULL) return line->command->run(line);
    stdout = answer; /* glibc allows a program to assign to stdout */
    status = line->command->run(line);
    stdout = terminal;
    fclose(answer);
    if (status == PD_EXIT_OK) {
        fputs(CLEAR, stdout);
        n = fitting(text, n);
    }
    fwrite(text, 1, n, stdout);
    free(text);
    return status;
}

int pd_watch(pd_line *line)
{
    bool screen = isatty(STDOUT_FILENO) != 0;
    int status;

    if (!watches(line) || (screen && line->command->draws)) return line->command->run(line);
    for (bool first = true;; first = false) {
        if (!first && !screen) fputc('\n', stdout);
        status = screen ? show(line) : line->command->run(line);
        if (fflush(stdout) != 0 || status != PD_EXIT_OK) return status;
        pd_watch_pause(pd_line_seconds(line, "watch"));
    }
}
