#include "report.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const double live_every = 0.2, plain_every = 2.0;        /* seconds between two progress lines */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int report_open(report *r, const char *prefix, uint64_t first, uint64_t steps, uint64_t per_epoch, int batch, pd_error *err)
{
    char path[512];

    *r = (report){ .live = isatty(STDOUT_FILENO), .batch = batch, .steps = steps, .per_epoch = per_epoch, .first = first, .seen = first };
    snprintf(r->picture, sizeof r->picture, "%s.svg", prefix);
    snprintf(path, sizeof path, "%s.jsonl", prefix);
    if ((r->log = fopen(path, first == 0 ? "w" : "a")) == NULL) return pd_fail(err, PD_UNAVAILABLE, "%s: %s", path, strerror(errno));
    r->began = r->shown = now();
    return PD_OK;
}

static void show_progress(report *r, uint64_t step, double at)
{
    double recent = (double)(step - r->seen) * r->batch / (at - r->shown);
    double left = (at - r->began) / (double)(step - r->first) * (double)(r->steps - step);

    r->speed = r->seen == r->first ? recent : 0.7 * r->speed + 0.3 * recent;
    r->seen = step;
    r->shown = at;
    printf("%sepoch %llu/%llu  step %llu/%llu  loss %.4f (rank 0's images)  %.0f images/s  %d:%02d left%s",
           r->live ? "\r\033[K" : "", (unsigned long long)((step - 1) / r->per_epoch + 1), (unsigned long long)(r->steps / r->per_epoch),
           (unsigned long long)step, (unsigned long long)r->steps, r->loss, r->speed, (int)left / 60, (int)left % 60, r->live ? "" : "\n");
    fflush(stdout);
}

/* JSON knows no NaN and no infinity. */
static const char *json(double value, char text[32])
{
    snprintf(text, 32, isfinite(value) ? "%.6g" : "null", value);
    return text;
}

/* A full disk or memory. */
static int check(const report *r, int rc, pd_error *err)
{
    if (rc != PD_OK) return pd_fail(err, rc, "training curve: %s", pd_code_text(rc));
    return ferror(r->log) ? pd_fail(err, PD_UNAVAILABLE, "training log: cannot write: %s", strerror(errno)) : PD_OK;
}

int report_step(report *r, uint64_t step, double loss, double rate, pd_error *err)
{
    double at = now();

    r->loss = step == r->first + 1 ? loss : 0.95 * r->loss + 0.05 * loss;
    fprintf(r->log, "{\"step\": %llu, \"loss\": %s, \"lr\": %s}\n", (unsigned long long)step, json(loss, (char[32]){ 0 }), json(rate, (char[32]){ 0 }));
    if (at - r->shown >= (r->live ? live_every : plain_every)) show_progress(r, step, at);
    return check(r, curve_add(&r->curve, CURVE_LOSS, (double)step, loss), err);
}

int report_epoch(report *r, uint64_t step, double test_loss, double accuracy, pd_error *err)
{
    unsigned long long epoch = step / r->per_epoch;
    double seconds = now() - r->began;
    int    rc = curve_add(&r->curve, CURVE_TEST_LOSS, (double)step, test_loss);

    r->accuracy = 100.0 * accuracy;
    printf("%sepoch %llu/%llu  test accuracy %.2f %%  test loss %.4f  after %.1f s\n", r->live ? "\r\033[K" : "", epoch,
           (unsigned long long)(r->steps / r->per_epoch), r->accuracy, test_loss, seconds);
    fflush(stdout);
    fprintf(r->log, "{\"step\": %llu, \"epoch\": %llu, \"test_loss\": %s, \"test_accuracy\": %.4f, \"seconds\": %.3f}\n",
            (unsigned long long)step, epoch, json(test_loss, (char[32]){ 0 }), accuracy, seconds);
    fflush(r->log);
    if (rc == PD_OK) rc = curve_add(&r->curve, CURVE_ACCURACY, (double)step, r->accuracy);
    return check(r, rc, err);
}

int report_train_loss(report *r, uint64_t step, double loss, pd_error *err)
{
    fprintf(r->log, "{\"step\": %llu, \"train_loss\": %s}\n", (unsigned long long)step, json(loss, (char[32]){ 0 }));
    return check(r, PD_OK, err);
}

int report_finish(report *r, const char *subtitle, pd_error *err)
{
    return curve_write(&r->curve, r->picture, "Fashion-MNIST: a 784-256-128-10 classifier trained through paramd", subtitle, err);
}

void report_close(report *r)
{
    if (r->log != NULL) fclose(r->log);
    curve_free(&r->curve);
    *r = (report){ 0 };
}
