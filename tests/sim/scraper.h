/* scraper.h - peers of the HTTP listener: they ask for metrics and pages, whole or in part, send what is no request, or
 * do not read. Numbers of jobs in the metrics must be those that the store has published. */
#ifndef SIM_SCRAPER_H
#define SIM_SCRAPER_H

#include "sim.h"
#include "stats.h"

/* Starts a peer of the HTTP listener. It opens one connection after the other until plan->calm_ns. The peer of rank
 * SIM_SCRAPE_FLOOD begins with more connections at once than the listener takes. */
void sim_scraper_start(sim *s, const sim_fault *fault);
/* Notes the figures of a job that the store hands to the loop thread. */
void sim_scrapers_published(sim *s, const pd_job_stats *stats);
/* Checks that no connection lasts longer than the listener allows. */
void sim_scrapers_check(sim *s);
/* Disconnects all peers of the HTTP listener. */
void sim_scrapers_leave(sim *s);
void sim_scrapers_free(sim *s);

#endif
