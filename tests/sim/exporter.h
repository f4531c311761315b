/* exporter.h - operators who export jobs: all that an operator reads must be of one step, and the job must go on. */
#ifndef SIM_EXPORTER_H
#define SIM_EXPORTER_H

#include "sim.h"

/* Starts an operator who exports a job. The operator reads some or all of the job, ends the export or stops in the
 * middle, and disconnects at plan->calm_ns at the latest. */
void sim_exporter_start(sim *s, const sim_fault *fault);
/* Disconnects all exporting operators. */
void sim_exporters_leave(sim *s);
void sim_exporters_free(sim *s);

#endif
