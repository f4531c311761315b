/* race.c - runs jobs in lanes, and makes curves of the weights that their workers left. */
#include "race.h"

#include "figure.h"

/* One job. */
typedef struct runner {
    int method, seed, lane;
    char name[64];
    fleet *job; /* NULL: not started */
    bool over;
} runner;

static void start(const race *r, runner *it, warm *const warmed[RACE_SEEDS])
{
    const race_method *m = &r->methods[it->method];
    fleet_options options = r->options;

    snprintf(it->name, sizeof it->name, "method%d-seed%d", it->method, it->seed + 1);
    options.name = it->name;
    options.rule = m->rule;
    options.options = m->options;
    options.tells_patience = m->tells_patience;
    if (m->sync.every > 0) options.sync = m->sync;
    options.push = m->push;
    options.forgets = m->forgets;
    if (m->local_lr > 0) options.local_lr = m->local_lr;
    options.seed = (uint64_t)it->seed + 1;
    options.warm = warmed != NULL ? warmed[it->seed] : NULL;
    it->job = fleet_start(&options);
    fleet_go(it->job);
}

/* Looks after one job. Its workers are killed when it is over; the weights that they left stay. */
static void look_after(race *r, runner *it)
{
    race_curve *c = &r->curves[it->method][it->seed];

    if (!fleet_over(it->job)) return;
    c->end_seconds = fleet_ms(it->job) / 1e3;
    fleet_halt(it->job);
    it->over = true;
    fprintf(stderr, "%s: %s, seed %d: %.1f s, %d steps\n", program_invocation_short_name, r->methods[it->method].name,
            it->seed + 1, c->end_seconds, (int)atomic_load(&it->job->state->step));
}

/* Returns the most bytes that went in 100 ms. */
static int64_t find_peak(const fleet_state *s)
{
    enum { WINDOW = 100 / FLEET_SPAN_MS };
    int64_t sum = 0, most = 0;

    for (int i = 0; i < FLEET_SPANS; i++) {
        sum += atomic_load(&s->traffic[i]);
        if (i >= WINDOW) sum -= atomic_load(&s->traffic[i - WINDOW]);
        if (sum > most) most = sum;
    }
    return most;
}

static void make_curve(race_curve *c, const fleet_state *s)
{
    c->peak = find_peak(s);
    c->steps = (int64_t)atomic_load(&s->step);
    for (int rank = 0; rank < FLEET_WORKERS; rank++) {
        c->counted[rank] = atomic_load(&s->workers[rank].counted);
        c->late[rank] = atomic_load(&s->workers[rank].late);
        c->sent += atomic_load(&s->workers[rank].sent) / FLEET_WORKERS;
        c->received += atomic_load(&s->workers[rank].received) / FLEET_WORKERS;
    }
    for (int i = 0; i < FLEET_LOOKS; i++) {
        int smooth = c->n + 1 < RACE_SMOOTH ? c->n + 1 : RACE_SMOOTH;
        if (!atomic_load(&s->looks[i].there)) continue;
        c->seconds[c->n] = s->looks[i].ms / 1e3;
        c->loss[c->n] = fleet_loss(s->looks[i].value);
        for (int k = 0; k < smooth; k++) c->smooth[c->n] += c->loss[c->n - k] / smooth;
        c->n++;
    }
}

/* Returns whether this job's turn has come: all jobs before it in its lane are over. */
static bool is_next(const runner *all, const runner *it)
{
    for (const runner *other = all; other < it; other++)
        if (other->lane == it->lane && !other->over) return false;
    return true;
}

void race_run(race *r, warm *const warmed[RACE_SEEDS])
{
    static runner all[RACE_METHODS * RACE_SEEDS];
    int n = r->n * RACE_SEEDS, over = 0;

    for (int i = 0; i < n; i++) {
        runner *it = &all[i];
        *it = (runner){ .method = i % r->n, .seed = i / r->n };
        it->lane = r->methods[it->method].lane * RACE_SEEDS + (r->methods[it->method].seeds_at_once ? it->seed : 0);
    }
    for (; over < n; fleet_sleep_until(figure_ms() + 5)) {
        over = 0;
        for (int i = 0; i < n; i++) {
            if (!all[i].over && all[i].job == NULL && is_next(all, &all[i])) start(r, &all[i], warmed);
            if (!all[i].over && all[i].job != NULL) look_after(r, &all[i]);
            over += all[i].over;
        }
    }
    for (int i = 0; i < n; i++) {
        make_curve(&r->curves[all[i].method][all[i].seed], all[i].job->state);
        fleet_end(all[i].job);
    }
}

double race_final(const race_curve *c)
{
    return c->n > 0 && isfinite(c->smooth[c->n - 1]) ? c->smooth[c->n - 1] : INFINITY;
}

/* Between two looks the loss is taken to fall in a straight line. */
double race_reaches(const race_curve *c, double level)
{
    for (int i = 0; i < c->n; i++) {
        if (!(c->smooth[i] <= level)) continue;
        if (i == 0) return c->seconds[0];
        return c->seconds[i] -
               (c->seconds[i] - c->seconds[i - 1]) * (level - c->smooth[i]) / (c->smooth[i - 1] - c->smooth[i]);
    }
    return INFINITY;
}

double race_median(const double at[RACE_SEEDS])
{
    double copy[RACE_SEEDS];

    memcpy(copy, at, sizeof copy);
    return figure_quantile(copy, RACE_SEEDS, 0.5);
}

/* Writes one field of a look: its median, and the values of the seeds. Numbers that are not finite become 99. */
static void write_field(FILE *file, const char *name, const double at[RACE_SEEDS])
{
    double median = race_median(at);

    fprintf(file, ", \"%s\": %.6g, \"%s_by_seed\": [", name, isfinite(median) ? median : 99, name);
    for (int s = 0; s < RACE_SEEDS; s++) fprintf(file, "%s%.6g", s == 0 ? "" : ", ", isfinite(at[s]) ? at[s] : 99);
    fputc(']', file);
}

void race_write(const race *r, const char *path)
{
    FILE *file = fopen(path, "w");

    if (file == NULL) figure_stop("%s: %s", path, strerror(errno));
    for (int m = 0; m < r->n; m++) {
        const race_curve *curves = r->curves[m];
        int looks = curves[0].n < curves[1].n ? curves[0].n : curves[1].n;
        for (int i = 0; i < (looks < curves[2].n ? looks : curves[2].n); i++) {
            double seconds[RACE_SEEDS], loss[RACE_SEEDS], smooth[RACE_SEEDS];
            for (int s = 0; s < RACE_SEEDS; s++) {
                seconds[s] = curves[s].seconds[i];
                loss[s] = curves[s].loss[i];
                smooth[s] = curves[s].smooth[i];
            }
            fprintf(file, "{\"method\": \"%s\", \"examples\": %d", r->methods[m].name,
                    (int)(r->options.examples * (i + 1) / FLEET_LOOKS));
            write_field(file, "seconds", seconds);
            write_field(file, "test_loss", loss);
            write_field(file, "smooth_loss", smooth);
            fputs("}\n", file);
        }
    }
    if (fclose(file) != 0) figure_stop("%s: %s", path, strerror(errno));
}
