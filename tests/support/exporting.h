/* exporting.h - requests of an operator who exports a job of the rig. */
#ifndef EXPORTING_H
#define EXPORTING_H

#include "param.h"
#include "rig.h"

/* Makes a request of an export, which the caller then applies. */
pd_request *export_request(rig *r, const char *job, uint64_t conn, pd_export_act act);
/* Apply one request of an export each, and return the code of its answer. The answer's data is in r->exported.
 * export_begin also returns PD_OK if the export waits for a step: r->answered shows whether it was answered. */
int export_begin(rig *r, const char *job, uint64_t conn, bool state, double wait_seconds);
int export_weights(rig *r, const char *job, uint64_t conn, const char *param, int64_t first, int64_t count);
int export_state(rig *r, const char *job, uint64_t conn, const char *param, const char *slot, int number, int block,
                 int64_t first, int64_t count);
int export_count(rig *r, const char *job, uint64_t conn, const char *param);
int export_end(rig *r, const char *job, uint64_t conn);
/* Notifies the store that the operator's connection is gone. */
void export_lost(rig *r, uint64_t conn);

/* A job "j" of two ranks and two parameters p0 and p1, and an operator who exports it. */

enum {
    EXPORTING_WORLD = 2,
    EXPORTING_CONN = 1,
    EXPORTING_OPERATOR = 99,
    EXPORTING_OTHER = 98,
    EXPORTING_PARAMS = 2,
    EXPORTING_MOST = 100
};

typedef struct exporting {
    rig r;
    uint32_t job;
} exporting;

exporting *exporting_start(const char *options, const char *rules);
int exporting_set_up(void **state); /* starts a job of sgd with momentum */
int exporting_tear_down(void **state);
pd_param *exporting_param_of(exporting *f, uint32_t param);
uint64_t exporting_step_of(exporting *f, uint32_t param);
void exporting_push(exporting *f, uint32_t rank, uint32_t param, uint64_t step);
void exporting_step_one(exporting *f, uint32_t param, uint64_t step);
void exporting_step_all(exporting *f, uint64_t step);
void exporting_train(exporting *f, uint64_t steps);
void exporting_copy_weights(exporting *f, uint32_t param, float *out);
/* Checks that an export reads these weights. */
void exporting_assert_weights(exporting *f, uint32_t param, const float *expected);
/* Returns whether the rig has had more than `before` answers, so that a waiting export was answered. */
bool exporting_is_answered(exporting *f, uint64_t before);
/* Begins an export, and checks that it is answered at once. */
void exporting_begin(exporting *f, bool state);

#endif
