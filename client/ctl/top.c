/* top.c - the command top: a screen that shows the jobs of a daemon while they change. If the output is no terminal,
 * it prints a table. */
#include "commands.h"

#include <locale.h>
#include <math.h>
#include <ncurses.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "result.h"
#include "top_sample.h"

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

/* Returns a number as JSON; null: it is not known, or NaN or infinite, which JSON does not have. */
static json_t *real_json(bool known, double value)
{
    return known && isfinite(value) ? json_real(value) : json_null();
}

static json_t *job_json(const pd_top_job *job)
{
    json_t *all =
        json_pack("{s:s, s:I, s:f, s:o, s:o, s:I, s:s, s:{s:f, s:f, s:f, s:f}}", "name", job->name, "step",
                  (json_int_t)job->step, "steps_per_second", job->speed, "loss", real_json(job->has_loss, job->loss),
                  "gradient_norm", real_json(job->norm != 0, job->norm), "clipped_steps", (json_int_t)job->clipped,
                  "waits_for", job->waits_for, "step_seconds", "waiting", job->phase[0], "summing", job->phase[1],
                  "stepping", job->phase[2], "publishing", job->phase[3]);

    json_object_update_new(all, json_pack("{s:I, s:I, s:I, s:I, s:I}", "roots_behind", (json_int_t)job->roots_behind,
                                          "roots_failing", (json_int_t)job->roots_failing, "roots_failed",
                                          (json_int_t)job->roots_failed, "root_age", (json_int_t)job->root_age,
                                          "root_waits", (json_int_t)job->root_waits));
    json_object_update_new(all,
                           json_pack("{s:I, s:I, s:I, s:I, s:f, s:f}", "committed_bytes", (json_int_t)job->memory,
                                     "weight_bytes", (json_int_t)job->weights, "state_bytes",
                                     (json_int_t)job->state_bytes, "held_bytes", (json_int_t)job->held,
                                     "bytes_in_per_second", job->in_per_s, "bytes_out_per_second", job->out_per_s));
    json_object_update_new(all,
                           json_pack("{s:I, s:I, s:I, s:s}", "durable_step", (json_int_t)job->durable_step,
                                     "checkpoint_age_ms", (json_int_t)job->checkpoint_age_ms, "checkpoint_bytes",
                                     (json_int_t)job->checkpoint_bytes, "checkpoint_error", job->checkpoint_error));
    return all;
}

static int print_json(const pd_top_sample *sample)
{
    json_t *jobs = json_array();

    for (size_t i = 0; i < sample->n; i++) json_array_append_new(jobs, job_json(&sample->jobs[i]));
    return pd_result_json(json_pack("{s:o}", "jobs", jobs));
}

static int print_once(const pd_line *line, pd_top_sample *sample)
{
    char headline[256];

    pd_top_sort(sample, order_of(line));
    if (line->json) return print_json(sample);
    pd_top_headline(sample, headline, sizeof headline);
    printf("%s\n", headline);
    return pd_table_print(pd_top_table(sample, pd_table_default_limit()), stdout, "no jobs") == PD_OK ? PD_CTL_OK
                                                                                                      : PD_CTL_FAILED;
}

/* TABLE_Y: first line of the table. DETAIL_LINES: most lines that the description of a job takes, with the empty line
 * before it. LEAST_TABLE: lines that the table needs at least; lower screens show no description. */
enum { TABLE_Y = 3, DETAIL_LINES = PD_TOP_LINES + 1, LEAST_TABLE = 3 };

/* What the screen of the command top shows. */
typedef struct view {
    pd_cluster *cluster;
    pd_top_sample *sample; /* the last sample, sorted by `order` */
    pd_top_order order;
    size_t selected; /* index of the job that is described below the table */
    pd_top_late late[PD_TOP_LATE];
    size_t n_late;
} view;

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

static void draw_with(attr_t look, int y, const char *text)
{
    attron(look);
    draw_line(y, text);
    attroff(look);
}

/* Returns the attributes of the line of job `i` in the table: red if matrix roots or checkpoints fail, reversed if the
 * job is selected. */
static attr_t look_of(const view *s, size_t i)
{
    const pd_top_job *job = &s->sample->jobs[i];
    attr_t look = job->roots_failing > 0 || job->checkpoint_failing ? (attr_t)COLOR_PAIR(ALARM) : A_NORMAL;

    return i == s->selected ? look | A_REVERSE : look;
}

static const char *next_line(const char *text)
{
    text += strcspn(text, "\n");
    return text + (*text == '\n');
}

/* Draws the table with at most `most` jobs of the sample, among them the selected job. Returns the first line of the
 * screen below the table. */
static int draw_table(const view *s, const char *text, size_t most)
{
    size_t first = s->selected >= most ? s->selected - most + 1 : 0, n = s->sample->n;
    int y = TABLE_Y;

    draw_with(A_BOLD, y++, text);
    text = next_line(text);
    if (n == 0) return y;
    for (size_t i = 0; i < n && i < first + most; i++, text = next_line(text))
        if (i >= first) draw_with(look_of(s, i), y++, text);
    return y;
}

static void draw_detail(const view *s, int y)
{
    pd_top_detail detail;

    pd_top_describe(&detail, &s->sample->jobs[s->selected], s->late, s->n_late);
    for (size_t i = 0; i < detail.n && y < LINES; i++)
        draw_with(i == 0 ? A_BOLD : detail.alarm[i] ? (attr_t)COLOR_PAIR(ALARM) : A_NORMAL, y++, detail.line[i]);
}

static void draw_jobs(const view *s, const char *table)
{
    bool describes = s->sample->n > 0 && LINES >= TABLE_Y + 1 + LEAST_TABLE + DETAIL_LINES;
    int most = LINES - TABLE_Y - 1 - (describes ? DETAIL_LINES : 0);
    int y = draw_table(s, table, most > 0 ? (size_t)most : 1);

    if (describes) draw_detail(s, y + 1);
}

static void draw(const view *s)
{
    char headline[256], *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);

    if (out == NULL) return;
    pd_table_print(pd_top_table(s->sample, COLS), out, "no jobs");
    fclose(out);
    pd_top_headline(s->sample, headline, sizeof headline);
    erase();
    draw_line(0, headline);
    snprintf(headline, sizeof headline, "sorted by %s; q quits, arrows select; n name, s speed, m memory, t traffic",
             pd_top_orders[s->order]);
    draw_line(1, headline);
    draw_jobs(s, text);
    refresh();
    free(text);
}

/* Asks which ranks the steps of the selected job waited for. */
static void ask_late(view *s)
{
    s->n_late = s->sample->n > 0 ? pd_top_take_late(s->late, s->cluster, s->sample->jobs[s->selected].name) : 0;
}

/* Sorts the jobs, and keeps the job named `selected` selected. If it has ended, selects the first job. */
static void sort(view *s, const char *selected)
{
    pd_top_sort(s->sample, s->order);
    s->selected = 0;
    for (size_t i = 0; i < s->sample->n; i++)
        if (strcmp(s->sample->jobs[i].name, selected) == 0) s->selected = i;
}

static void select_job(view *s, int by)
{
    if (by < 0 && s->selected > 0) s->selected--;
    if (by > 0 && s->selected + 1 < s->sample->n) s->selected++;
    ask_late(s);
}

static void selected_name(const view *s, char name[sizeof s->sample->jobs->name])
{
    snprintf(name, sizeof s->sample->jobs->name, "%s", s->sample->n > 0 ? s->sample->jobs[s->selected].name : "");
}

static void set_order(view *s, pd_top_order order)
{
    char selected[sizeof s->sample->jobs->name];

    selected_name(s, selected);
    s->order = order;
    sort(s, selected);
}

/* Handles a key that the user pressed. Returns false if it ends the command. */
static bool take_key(view *s, int key)
{
    switch (key) {
    case 'q':
    case 'Q': return false;
    case 'n': set_order(s, PD_TOP_NAME); break;
    case 's': set_order(s, PD_TOP_SPEED); break;
    case 'm': set_order(s, PD_TOP_MEMORY); break;
    case 't': set_order(s, PD_TOP_TRAFFIC); break;
    case KEY_UP:
    case 'k': select_job(s, -1); break;
    case KEY_DOWN:
    case 'j': select_job(s, 1); break;
    default: break;
    }
    return true;
}

/* Takes the next sample in place of the last one. */
static int take_next(view *s, pd_error *err)
{
    char selected[sizeof s->sample->jobs->name];
    pd_top_sample next;
    int rc = pd_top_take(&next, s->cluster, s->sample, err);

    selected_name(s, selected);
    pd_top_free(s->sample);
    *s->sample = next;
    sort(s, selected);
    if (rc == PD_OK) ask_late(s);
    return rc;
}

/* Shows the jobs until the user ends the command with a key. Fails if the terminal is gone (a closed window): getch()
 * then returns at once instead of waiting. */
static int follow(const pd_line *line, pd_cluster *cluster, pd_top_sample *now, pd_error *err)
{
    double period = pd_line_has(line, "watch") ? pd_line_seconds(line, "watch") : period_s;
    view s = { .cluster = cluster, .sample = now, .order = order_of(line) };
    int rc = PD_OK;

    sort(&s, "");
    ask_late(&s);
    while (rc == PD_OK) {
        int key;
        draw(&s);
        timeout((int)(period * 1000));
        key = getch();
        if (key != ERR && key != KEY_RESIZE) {
            if (!take_key(&s, key)) return PD_OK;
            continue;
        }
        if (isatty(STDIN_FILENO) == 0) return pd_fail(err, PD_UNAVAILABLE, "terminal closed");
        rc = take_next(&s, err);
    }
    return rc;
}

static int show_screen(const pd_line *line, pd_cluster *cluster, pd_top_sample *sample, pd_error *err)
{
    int rc;

    setlocale(LC_ALL, "");
    if (newterm(NULL, stdout, stdin) == NULL)
        return pd_fail(err, PD_FAILED_PRECONDITION,
                       "this terminal cannot show a screen (TERM): try `paramctl top | cat'");
    cbreak();
    noecho();
    keypad(stdscr, TRUE);
    curs_set(0);
    if (pd_shows_colour(stdout) && start_color() == OK && use_default_colors() == OK) init_pair(ALARM, COLOR_RED, -1);
    rc = follow(line, cluster, sample, err);
    endwin();
    return rc;
}

int pd_run_top(pd_line *line)
{
    bool screen = isatty(STDOUT_FILENO) != 0 && isatty(STDIN_FILENO) != 0 && !line->json;
    pd_top_sample first = { 0 }, sample = { 0 };
    pd_cluster cluster;
    pd_error err = { 0 };
    int rc = pd_cluster_open(&cluster, line, 0, &err), status = PD_CTL_OK;

    if (rc == PD_OK) rc = pd_top_take(&first, &cluster, NULL, &err);
    if (rc == PD_OK) {
        pd_pause_s(first_s);
        rc = pd_top_take(&sample, &cluster, &first, &err);
    }
    if (rc == PD_OK && screen)
        rc = show_screen(line, &cluster, &sample, &err);
    else if (rc == PD_OK)
        status = print_once(line, &sample);
    if (rc != PD_OK) status = pd_result_fail(line->json, &err);
    pd_top_free(&first);
    pd_top_free(&sample);
    pd_cluster_close(&cluster);
    return status;
}
