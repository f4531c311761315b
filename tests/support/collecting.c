/* collecting.c - starts a small job whose aggregate needs all contributions at once. */
#include "collecting.h"

const char *const collecting[COLLECTING] = { "aggregate=adasum", "aggregate=adasum_vdot", "aggregate=median",
                                             "aggregate=trimmed_mean", "aggregate=radial_mean" };

void collecting_start(rig *r, const char *options, bool over_quota)
{
    static const int64_t one[] = { COLLECTING_N };
    pd_store_config config = rig_config();

    if (over_quota) config.ingest_bytes = COLLECTING_WORLD * 4096;
    rig_new(r, &config);
    r->job = rig_start(r, "job", COLLECTING_WORLD, COLLECTING_CONN, one, 1, options, NULL);
}
