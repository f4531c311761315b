/* tracer.h - writes the steps of one job to a trace file, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
 *
 * The step thread puts events into a ring of bounded size, and never waits. A thread of its own makes JSON of them and
 * writes the file. Events that find no room are lost and counted in the trace. The file is an array of events; it is
 * valid after an orderly end and when the file has its full size. If the daemon is killed, only the closing bracket is
 * missing, which these programs accept. */
#ifndef PD_TRACER_H
#define PD_TRACER_H

#include "paramd/error.h"
#include "stats.h"

typedef struct pd_tracer pd_tracer;

/* Creates the trace file and starts the thread that writes it. `to` is the value of the key server.trace_file: FILE, or
 * FILE:JOB for the job of that name; without a name the first job that has a step is traced. The file gets at most
 * `most_bytes` bytes. PD_UNAVAILABLE: the file cannot be created. PD_NO_MEMORY, PD_RESOURCE_EXHAUSTED. */
int pd_tracer_start(pd_tracer **out, const char *to, uint64_t most_bytes, pd_error *err);
/* Puts an event into the ring. Only events of the traced job are kept. `arg` is the pd_tracer. One thread. */
void pd_tracer_put(void *arg, const pd_traced *event);
/* Waits until all events are written, ends the array and closes the file. Accepts NULL. */
void pd_tracer_stop(pd_tracer *tracer);

#endif
