/* paramd_plot.c - draws training logs as an SVG picture that is legible on light and dark pages.
 *
 *     paramd-plot fashion.jsonl --out fashion.svg --panel 'Test accuracy=step:test_accuracy'
 *
 * A log has one JSON object on each line. A panel is given as TITLE=X:Y[,Y...], where X and Y are names of fields in
 * these objects. Each Y is drawn as a line with a label at its end. With --by FIELD the panel has one line for each
 * value of that field. */
#include <argp.h>
#include <errno.h>
#include <error.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Sizes of the picture and of its panels in pixels. The second enum has limits on numbers of panels, lines and
 * points. */
enum { COLUMNS = 2, WIDTH = 420, HEIGHT = 290, HEAD = 64, LEFT = 56, RIGHT = 138, TOP = 40, BOTTOM = 52, LABEL = 16 };
enum { MOST_PANELS = 8, MOST_LINES = 4, MANY = 400, FEW = 50 };

typedef struct point {
    double x, y;
} point;

typedef struct line {
    char label[80];
    double label_y;
    /* raw: the points as the log has them. at: the same points, smoothed if there are more than MANY. */
    point *raw, *at;
    size_t n;
} line;

typedef struct panel {
    char *title, *x, *y;
    bool logarithmic;
    line lines[MOST_LINES];
    int n;
    double x1, y0, y1;               /* range of the panel's axes: x from 0 to x1, y from y0 to y1 */
    double left, top, right, bottom; /* edges of the panel's plot area, in pixels of the picture */
} panel;

static const char *title = "Training", *note = "", *by, *path = "plot.svg", *log_path;
static int n_panels;
static panel panels[MOST_PANELS];
static json_t *rows;
static FILE *svg;

static void read_log(void)
{
    FILE *file = fopen(log_path, "r");
    char *text = NULL;
    size_t room = 0;

    if (file == NULL) error(1, errno, "%s", log_path);
    rows = json_array();
    for (int number = 1; getline(&text, &room, file) > 0; number++) {
        json_t *row = json_loads(text, 0, NULL);
        if (!json_is_object(row)) error(1, 0, "%s:%d: expected a JSON object", log_path, number);
        json_array_append_new(rows, row);
    }
    free(text);
    fclose(file);
}

/* Makes the name of a field of the log readable: replaces '_' by a space. */
static char *with_spaces(char *name)
{
    for (char *c = name; *c != '\0'; c++)
        if (*c == '_') *c = ' ';
    return name;
}

/* Smooths a line with more than MANY points: each y becomes the mean of the points around it. `raw` keeps the
 * values of the log. */
static void smooth(line *l)
{
    size_t reach = l->n > MANY ? l->n / 100 : 0;

    for (size_t i = 0; i < l->n; i++) {
        size_t from = i > reach ? i - reach : 0, end = i + reach < l->n ? i + reach + 1 : l->n;
        l->at[i] = l->raw[i];
        l->at[i].y = 0;
        for (size_t k = from; k < end; k++) l->at[i].y += l->raw[k].y / (double)(end - from);
    }
}

/* Fills a line of a panel with points: the numbers in the fields x and y of the log's objects. With a `group`, only
 * those objects count whose field `by` has this value. */
static void fill(line *l, const char *x, const char *y, const char *group)
{
    json_t *row;
    size_t i;

    l->raw = calloc(json_array_size(rows) + 1, sizeof *l->raw);
    l->at = calloc(json_array_size(rows) + 1, sizeof *l->at);
    if (l->raw == NULL || l->at == NULL) error(1, 0, "out of memory");
    json_array_foreach(rows, i, row)
    {
        json_t *xs = json_object_get(row, x), *ys = json_object_get(row, y);
        const char *own = group == NULL ? NULL : json_string_value(json_object_get(row, by));
        if (!json_is_number(xs) || !json_is_number(ys)) continue;
        if (group != NULL && (own == NULL || strcmp(own, group) != 0)) continue;
        l->raw[l->n++] = (point){ json_number_value(xs), json_number_value(ys) };
    }
    if (l->n == 0) error(1, 0, "%s: no object has numbers \"%s\" and \"%s\"", log_path, x, y);
    smooth(l);
}

/* Adds a line that shows the field y to a panel. Its label is the name of its group. Without groups, the label is
 * the last value, with the field's name before it if `named`. */
static void add_line(panel *p, const char *y, const char *group, bool named)
{
    line *l = &p->lines[p->n];

    if (p->n == MOST_LINES) error(1, 0, "%s: more than %d lines", p->title, MOST_LINES);
    fill(l, p->x, y, group);
    if (group != NULL)
        snprintf(l->label, sizeof l->label, "%s", group);
    else
        snprintf(l->label, sizeof l->label, "%s%s%.3g", named ? y : "", named ? " " : "", l->at[l->n - 1].y);
    if (group == NULL) with_spaces(l->label);
    if (p->n++ == 0) p->y0 = p->y1 = l->at[l->n - 1].y;
    p->x1 = fmax(p->x1, l->at[l->n - 1].x);
    /* The range of y ignores the first twelfth of the points: the steep start of a training would flatten the rest. */
    for (size_t i = l->n / 12; i < l->n; i++) {
        p->y0 = fmin(p->y0, l->raw[i].y);
        p->y1 = fmax(p->y1, l->raw[i].y);
    }
}

/* Adds to a panel one line of the field y for each value of the field `by`, in the order in which the values first
 * occur in the log. */
static void add_groups(panel *p, const char *y)
{
    json_t *row, *seen = json_object();
    size_t i;

    json_array_foreach(rows, i, row)
    {
        const char *group = json_string_value(json_object_get(row, by));
        if (group == NULL || json_object_get(seen, group) != NULL) continue;
        json_object_set_new(seen, group, json_true());
        add_line(p, y, group, false);
    }
    if (p->n == 0) error(1, 0, "%s: no object has a text \"%s\"", log_path, by);
    json_decref(seen);
}

/* Makes the lines of a panel, and sets its place in the picture and the range of y. */
static void prepare(panel *p, int place)
{
    bool named = strchr(p->y, ',') != NULL;

    for (char *rest, *y = strtok_r(p->y, ",", &rest); y != NULL; y = strtok_r(NULL, ",", &rest)) {
        if (by == NULL)
            add_line(p, y, NULL, named);
        else
            add_groups(p, y);
    }
    p->left = place % COLUMNS * WIDTH + LEFT;
    p->right = p->left + WIDTH - LEFT - RIGHT;
    p->top = HEAD + place / COLUMNS * HEIGHT + TOP;
    p->bottom = p->top + HEIGHT - TOP - BOTTOM;
    if (p->logarithmic) {
        p->y0 = fmax(p->y0, 1e-6) / 1.15;
        p->y1 = fmax(p->y1, 2 * p->y0) * 1.15;
    } else {
        double margin = fmax(0.08 * (p->y1 - p->y0), 1e-3 * fabs(p->y1) + 1e-9);
        p->y0 -= margin;
        p->y1 += margin;
    }
    if (p->x1 <= 0) p->x1 = 1;
}

static double x_of(const panel *p, double x)
{
    return p->left + (p->right - p->left) * x / p->x1;
}

static double y_of(const panel *p, double y)
{
    double part = p->logarithmic ? log(fmax(y, p->y0) / p->y0) / log(p->y1 / p->y0) : (y - p->y0) / (p->y1 - p->y0);
    return p->bottom - (p->bottom - p->top) * part;
}

static void put(const char *words)
{
    for (; *words != '\0'; words++) fprintf(svg, strchr("<>&", *words) != NULL ? "&#%d;" : "%c", *words);
}

static void put_text(double x, double y, const char *class, const char *words)
{
    fprintf(svg, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    put(words);
    fputs("</text>\n", svg);
}

static void put_tick(const panel *p, bool vertical, double value)
{
    char words[32];

    snprintf(words, sizeof words, "%g", value);
    if (vertical) {
        fprintf(svg, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>\n", p->left, y_of(p, value), p->right);
        put_text(p->left - 8, y_of(p, value) + 4, "faint end", words);
    } else {
        fprintf(svg, "<path class=\"axis\" d=\"M%.1f %.1fv5\"/>\n", x_of(p, value), p->bottom);
        put_text(x_of(p, value), p->bottom + 20, "faint middle", words);
    }
}

/* Draws about `wanted` marks on an axis between `from` and `to`, at multiples of 1, 2 or 5 times a power of ten. */
static void put_ticks(const panel *p, bool vertical, double from, double to, int wanted)
{
    double power = pow(10.0, floor(log10((to - from) / wanted))), lead = (to - from) / wanted / power;
    double each = power * (lead <= 1 ? 1 : lead <= 2 ? 2 : lead <= 5 ? 5 : 10);

    for (double i = ceil(from / each); i * each <= to; i++) put_tick(p, vertical, i * each);
}

/* Draws the marks of a logarithmic axis: at 1, 2 and 5 times each power of ten, or only at some powers of ten if
 * the axis spans many. */
static void put_logarithmic_ticks(const panel *p)
{
    double decades = log10(p->y1 / p->y0);
    int leads = decades < 4 ? 3 : 1, every = 1 + (int)(decades / 8);

    for (int power = (int)floor(log10(p->y0)); power <= log10(p->y1); power++)
        for (int i = 0; i < leads && power % every == 0; i++) {
            double value = pow(10.0, power) * (double[]){ 1, 2, 5 }[i];
            if (value >= p->y0 && value <= p->y1) put_tick(p, true, value);
        }
}

/* Draws a line through those of its points that lie in the plot area. If there are very many points, most are left
 * out. */
static void put_line(const panel *p, const point *at, size_t n, const char *class, int colour)
{
    size_t stride = n / (2 * MANY) + 1;

    fprintf(svg, "<polyline class=\"%s c%d\" points=\"", class, colour);
    for (size_t i = 0; i < n; i += stride)
        if (at[i].y <= p->y1) fprintf(svg, "%.1f,%.1f ", x_of(p, at[i].x), y_of(p, at[i].y));
    fprintf(svg, "%.1f,%.1f\"/>\n", x_of(p, at[n - 1].x), y_of(p, at[n - 1].y));
}

/* Chooses the height of the label of each line in a panel: at the end of its line, but moved apart where labels
 * would overlap. */
static void place_labels(panel *p)
{
    for (line *l = p->lines; l < p->lines + p->n; l++) l->label_y = y_of(p, l->at[l->n - 1].y) + 4;
    for (int pass = 0; pass < 100; pass++)
        for (line *a = p->lines; a < p->lines + p->n; a++)
            for (line *b = p->lines; b < p->lines + p->n; b++) {
                double gap = b->label_y - a->label_y;
                double apart = fabs(x_of(p, a->at[a->n - 1].x) - x_of(p, b->at[b->n - 1].x));
                if (a == b || gap < 0 || gap >= LABEL || apart > RIGHT || (gap <= 0 && a > b)) continue;
                a->label_y -= (LABEL - gap) / 2;
                b->label_y += (LABEL - gap) / 2;
            }
}

static void put_lines(panel *p)
{
    char class[24];

    for (int k = 0; k < p->n; k++) {
        const line *l = &p->lines[k];
        if (l->n > MANY) put_line(p, l->raw, l->n, "raw", k);
        put_line(p, l->at, l->n, "line", k);
        for (const point *at = l->at; at < l->at + l->n && l->n < FEW; at++)
            fprintf(svg, "<circle class=\"dot c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>\n", k, x_of(p, at->x),
                    y_of(p, at->y));
    }
    place_labels(p);
    for (int k = 0; k < p->n; k++) {
        const line *l = &p->lines[k];
        snprintf(class, sizeof class, "label c%d", k);
        put_text(x_of(p, l->at[l->n - 1].x) + 7, l->label_y, class, l->label);
    }
}

static void put_panel(panel *p)
{
    put_text(p->left - LEFT + 16, p->top - 16, "panel", p->title);
    if (p->logarithmic && p->y1 > 5 * p->y0)
        put_logarithmic_ticks(p);
    else
        put_ticks(p, true, p->y0, p->y1, 5);
    put_ticks(p, false, 0, p->x1, 5);
    fprintf(svg, "<path class=\"axis\" d=\"M%.1f %.1fV%.1fH%.1f\"/>\n", p->left, p->top, p->bottom, p->right);
    put_text((p->left + p->right) / 2, p->bottom + 40, "middle", with_spaces(p->x));
    put_lines(p);
}

static const char style[] =
    "text { font: 13px system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif; fill: #1f2328 }\n"
    ".title { font-size: 17px; font-weight: 600 } .panel { font-weight: 600 } .end { text-anchor: end }\n"
    ".middle { text-anchor: middle } .faint { fill: #59636e } .grid { stroke: #d1d9e0 }\n"
    ".axis { fill: none; stroke: #818b98 } .line { fill: none; stroke-width: 2; stroke-linejoin: round }\n"
    ".raw { fill: none; opacity: .3 } .label { font-weight: 600; stroke-width: 4; paint-order: stroke }\n"
    "text.label { stroke: #fff } .c0 { stroke: #0072b2 } .c1 { stroke: #b84e00 } .c2 { stroke: #007a5a }\n"
    ".c3 { stroke: #9a3b73 } .c0.label, .c0.dot { fill: #0072b2 } .c1.label, .c1.dot { fill: #b84e00 }\n"
    ".c2.label, .c2.dot { fill: #007a5a } .c3.label, .c3.dot { fill: #9a3b73 }\n"
    "@media (prefers-color-scheme: dark) {\n"
    "text { fill: #e6edf3 } .faint { fill: #9198a1 } .grid { stroke: #30363d } .axis { stroke: #6e7681 }\n"
    "text.label { stroke: #0d1117 } .c0 { stroke: #58b4f0 } .c1 { stroke: #ff9e4a } .c2 { stroke: #2fcf9f }\n"
    ".c3 { stroke: #e88fc4 } .c0.label, .c0.dot { fill: #58b4f0 } .c1.label, .c1.dot { fill: #ff9e4a }\n"
    ".c2.label, .c2.dot { fill: #2fcf9f } .c3.label, .c3.dot { fill: #e88fc4 }\n"
    "}\n";

/* Writes a description of the picture in words, for readers who cannot see it. */
static void put_description(void)
{
    fputs("<title>", svg);
    put(title);
    fputs("</title>\n<desc>", svg);
    put(note);
    for (const panel *p = panels; p < panels + n_panels; p++)
        for (const line *l = p->lines; l < p->lines + p->n; l++) {
            fputs(l > p->lines ? ", " : p > panels || *note != '\0' ? ". " : "", svg);
            if (l == p->lines) put(p->title), fputs(" at the end: ", svg);
            put(l->label);
            if (by != NULL) fprintf(svg, " %.3g", l->at[l->n - 1].y);
        }
    fputs(".</desc>\n", svg);
}

static void write_picture(void)
{
    int height = HEAD + (n_panels + COLUMNS - 1) / COLUMNS * HEIGHT;

    if ((svg = fopen(path, "w")) == NULL) error(1, errno, "%s", path);
    fprintf(svg, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" ", COLUMNS * WIDTH, height);
    fprintf(svg, "width=\"%d\" height=\"%d\" role=\"img\">\n", COLUMNS * WIDTH, height);
    put_description();
    fprintf(svg, "<style>\n%s</style>\n", style);
    put_text(16, 26, "title", title);
    put_text(16, 48, "faint", note);
    for (int i = 0; i < n_panels; i++) put_panel(&panels[i]);
    fputs("</svg>\n", svg);
    if (ferror(svg) != 0 || fclose(svg) != 0) error(1, errno, "%s", path);
}

enum { BY = 256, LOG_PANEL, NOTE, OUT, PANEL, TITLE };

static void add_panel(char *text, bool logarithmic, struct argp_state *state)
{
    char *equals = strchr(text, '='), *colon = equals == NULL ? NULL : strchr(equals, ':');

    if (colon == NULL) argp_error(state, "%s: expected TITLE=X:Y[,Y...]", text);
    if (n_panels == MOST_PANELS) argp_error(state, "more than %d panels", MOST_PANELS);
    *equals = *colon = '\0';
    panels[n_panels++] = (panel){ .title = text, .x = equals + 1, .y = colon + 1, .logarithmic = logarithmic };
}

static error_t on_option(int key, char *text, struct argp_state *state)
{
    switch (key) {
    case BY: by = text; break;
    case LOG_PANEL: add_panel(text, true, state); break;
    case NOTE: note = text; break;
    case OUT: path = text; break;
    case PANEL: add_panel(text, false, state); break;
    case TITLE: title = text; break;
    case ARGP_KEY_ARG: log_path = text; break;
    case ARGP_KEY_END:
        if (log_path == NULL || n_panels == 0) argp_error(state, "expected a log and at least one panel");
        break;
    default: return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct argp_option options[] = {
        { "by", BY, "FIELD", 0, "one line for each value of FIELD, which is a text", 0 },
        { "log-panel", LOG_PANEL, "TITLE=X:Y[,Y...]", 0, "add a panel whose y axis is logarithmic", 0 },
        { "note", NOTE, "TEXT", 0, "a line below the title", 0 },
        { "out", OUT, "FILE", 0, "the picture [plot.svg]", 0 },
        { "panel", PANEL, "TITLE=X:Y[,Y...]", 0, "add a panel", 0 },
        { "title", TITLE, "TEXT", 0, "the picture's title [Training]", 0 },
        { 0 },
    };
    static const struct argp argp = {
        options, on_option, "LOG.jsonl", "Draws training logs as SVG.", NULL, NULL, NULL
    };

    argp_parse(&argp, argc, argv, 0, NULL, NULL);
    read_log();
    for (int i = 0; i < n_panels; i++) prepare(&panels[i], i);
    write_picture();
    for (int i = 0; i < n_panels * MOST_LINES; i++) {
        free(panels[i / MOST_LINES].lines[i % MOST_LINES].raw);
        free(panels[i / MOST_LINES].lines[i % MOST_LINES].at);
    }
    json_decref(rows);
    return 0;
}
