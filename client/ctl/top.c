/* top.c - the command top: a screen that shows the jobs of a daemon while they change. If the output is no terminal,
 * it prints a table. */
#include "top.h"

#include <locale.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "result.h"
#include "top_sample.h"
#include "watch.h"

enum { ALARM = 1 }; /* number of the colour pair for ncurses: red on the terminal's background */

/* Seconds between the first two samples of the jobs, and between later ones. */
static const double first_s = 0.5, period_s = 2;

static pd_top_order order_of(const pd_line *line)
{
    const char *word = pd_line_text(line, "sort");
    pd_top_order order = PD_TOP_NAME;

    while (strcmp(pd_top_orders[order], word) != 0) order++;
    return order;
}

/* ---- output without a terminal ---- */

static json_t *as_json(const pd_top_sample *sample)
{
    json_t *jobs = json_array();

    for (size_t i = 0; i < sample->n; i++) {
        const pd_top_job *job = &sample->jobs[i];
        json_array_append_new(jobs,
                              json_pack("{s:s, s:I, s:f, s:o, s:s, s:I, s:I, s:I, s:f, s:f, s:I, s:I, s:s}", "name",
                                        job->name, "step", (json_int_t)job->step, "steps_per_second", job->speed,
                                        "loss", job->has_loss ? json_real(job->loss) : json_null(), "waits_for",
                                        job->waits_for, "roots_behind", (json_int_t)job->roots_behind, "roots_failing",
                                        (json_int_t)job->roots_failing, "committed_bytes", (json_int_t)job->memory,
                                        "bytes_in_per_second", job->in_per_s, "bytes_out_per_second", job->out_per_s,
                                        "durable_step", (json_int_t)job->durable_step, "checkpoint_age_ms",
                                        (json_int_t)job->checkpoint_age_ms, "checkpoint_error", job->keep_error));
    }
    return json_pack("{s:o}", "jobs", jobs);
}

static int print_once(const pd_line *line, pd_top_sample *sample)
{
    char headline[256];

    pd_top_sort(sample, order_of(line));
    if (line->json) return pd_result_json(as_json(sample));
    pd_top_headline(sample, headline, sizeof headline);
    printf("%s\n", headline);
    return pd_table_print(pd_top_table(sample, pd_table_default_limit()), stdout, "no jobs") == PD_OK ? PD_EXIT_OK
                                                                                                      : PD_EXIT_FAILED;
}

/* ---- the screen ---- */

/* Draws the first line of a text, cut to the width of the screen. Returns the length of the line in bytes. */
static int draw_line(int y, const char *text)
{
    int n = (int)strcspn(text, "\n"), shown = 0;

    for (int column = 0; shown < n; shown++) {
        bool begins = ((unsigned char)text[shown] & 0xC0) != 0x80; /* true for the first byte of a UTF-8 character */
        if (begins && column++ == COLS) break;
    }
    mvaddnstr(y, 0, text, shown);
    return n;
}

/* Returns the attributes of line `i` of the table: the titles (line 0) are bold, a job with failing matrix roots
 * or a failing checkpoint is red. */
static attr_t look_of(const pd_top_sample *sample, size_t i)
{
    if (i == 0) return A_BOLD;
    if (i > sample->n) return A_NORMAL;
    return sample->jobs[i - 1].roots_failing > 0 || sample->jobs[i - 1].keep_failing ? (attr_t)COLOR_PAIR(ALARM)
                                                                                     : A_NORMAL;
}

/* Draws the table of the sample's jobs from screen line `y` on. Lines beyond the screen are left out. */
static void draw_table(int y, const char *text, const pd_top_sample *sample)
{
    for (size_t i = 0; y < LINES && *text != '\0'; y++, i++) {
        attr_t look = look_of(sample, i);
        int n;
        attron(look);
        n = draw_line(y, text);
        attroff(look);
        text += n + (text[n] == '\n');
    }
}

static void draw(pd_top_sample *sample, pd_top_order order)
{
    char headline[256], *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return;
    pd_top_sort(sample, order);
    pd_table_print(pd_top_table(sample, COLS), out, "no jobs");
    fclose(out);
    pd_top_headline(sample, headline, sizeof headline);
    erase();
    draw_line(0, headline);
    snprintf(headline, sizeof headline, "sorted by %s; keys: q quits; n name, s speed, m memory, t traffic sort",
             pd_top_orders[order]);
    draw_line(1, headline);
    draw_table(3, text, sample);
    refresh();
    free(text);
}

/* Handles a key that the user pressed. Returns false if it ends the command. */
static bool take_key(int key, pd_top_order *order)
{
    switch (key) {
    case 'q':
    case 'Q': return false;
    case 'n': *order = PD_TOP_NAME; break;
    case 's': *order = PD_TOP_SPEED; break;
    case 'm': *order = PD_TOP_MEMORY; break;
    case 't': *order = PD_TOP_TRAFFIC; break;
    default: break;
    }
    return true;
}

/* Shows the jobs until the user ends it with a key. Fails if the terminal is gone (a closed window): getch() then
 * returns at once instead of waiting. */
static int follow(const pd_line *line, pd_operator *op, pd_top_sample *now, pd_error *err)
{
    pd_top_order order = order_of(line);
    double period = pd_line_has(line, "watch") ? pd_line_seconds(line, "watch") : period_s;
    int rc = PD_OK;

    for (;;) {
        pd_top_sample next;
        int key;
        draw(now, order);
        timeout((int)(period * 1000));
        key = getch();
        if (key != ERR && key != KEY_RESIZE) {
            if (!take_key(key, &order)) return PD_OK;
            continue;
        }
        if (isatty(STDIN_FILENO) == 0) return pd_fail(err, PD_UNAVAILABLE, "the terminal is gone");
        rc = pd_top_take(&next, op, now, err);
        pd_top_free(now);
        *now = next;
        if (rc != PD_OK) return rc;
    }
}

static int show_screen(const pd_line *line, pd_operator *op, pd_top_sample *sample, pd_error *err)
{
    int rc;

    setlocale(LC_ALL, "");
    if (newterm(NULL, stdout, stdin) == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "the terminal cannot show a screen (TERM); try `paramctl top | cat'");
    cbreak();
    noecho();
    curs_set(0);
    if (pd_shows_colour(stdout) && start_color() == OK && use_default_colors() == OK) init_pair(ALARM, COLOR_RED, -1);
    rc = follow(line, op, sample, err);
    endwin();
    return rc;
}

/* ---- the command ---- */

int pd_run_top(pd_line *line)
{
    bool screen = isatty(STDOUT_FILENO) != 0 && isatty(STDIN_FILENO) != 0 && !line->json;
    pd_top_sample first = { 0 }, sample = { 0 };
    pd_operator op;
    pd_error err = { 0 };
    int rc = pd_operator_open(&op, line->server, line->timeout, &err), status = PD_EXIT_OK;

    if (rc == PD_OK) rc = pd_top_take(&first, &op, NULL, &err);
    if (rc == PD_OK) {
        pd_watch_pause(first_s);
        rc = pd_top_take(&sample, &op, &first, &err);
    }
    if (rc == PD_OK && screen)
        rc = show_screen(line, &op, &sample, &err);
    else if (rc == PD_OK)
        status = print_once(line, &sample);
    if (rc != PD_OK) status = pd_result_fail(line->json, &err);
    pd_top_free(&first);
    pd_top_free(&sample);
    pd_operator_close(&op);
    return status;
}
