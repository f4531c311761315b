/* tracer.h - writes the steps of one job to a trace file, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
 *
 * The step thread puts events into a ring of bounded size, and never waits. A separate thread converts them to JSON and
 * writes the file. Events that do not fit into the ring are lost, and the trace says how many. The file contains one
 * JSON array of events. If the daemon is killed, the closing bracket is missing, which both programs accept. */
#ifndef PD_TRACER_H
#define PD_TRACER_H

#include "paramd/error.h"
#include "stats.h"

typedef struct pd_tracer pd_tracer;

/* Creates the trace file and starts the thread that writes it. `to` is the value of the key server.trace_file: FILE, or
 * FILE:JOB for the job of that name; without a name the first job that has a step is traced. The file gets at most
 * `most_bytes` bytes. PD_UNAVAILABLE: the file cannot be created. PD_RESOURCE_EXHAUSTED: the thread cannot be started.
 * PD_NO_MEMORY. */
int pd_tracer_start(pd_tracer **out, const char *to, uint64_t most_bytes, pd_error *err);
/* Puts an event into the ring; ignores events of other jobs than the traced one. `arg` is the pd_tracer. Step
 * thread. */
void pd_tracer_put(void *arg, const pd_traced *event);
/* Waits until all events are written, ends the array and closes the file. Accepts NULL. */
void pd_tracer_stop(pd_tracer *tracer);

#endif
