#include "gathering.h"

const char *const gathering[GATHERING] = { "aggregate=adasum", "aggregate=adasum_vdot", "aggregate=median", "aggregate=trimmed_mean" };

void gathering_start(rig *r, const char *options, bool pressed)
{
    static const int64_t one[] = { GATHERING_N };
    pd_store_config config = rig_config();

    if (pressed) config.ingest_bytes = GATHERING_WORLD * 4096;
    rig_new(r, &config);
    r->job = rig_start(r, "job", GATHERING_WORLD, GATHERING_CONN, one, 1, options, NULL);
}
