/* finding.h - the result of one check of the doctor: what was found, whether it is well, and what to do. */
#ifndef PD_FINDING_H
#define PD_FINDING_H

typedef enum pd_health { PD_HEALTH_OK, PD_HEALTH_WARN, PD_HEALTH_FAIL } pd_health;

typedef struct pd_finding {
    pd_health health;
    char found[400];
    char advice[600]; /* sentences that say what to do; "": nothing */
} pd_finding;

/* Returns the word for a health: "ok", "warn" or "fail". */
const char *pd_health_name(pd_health health);
/* Adds to the text that says what was found. */
void pd_found(pd_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Adds a sentence of advice. The finding becomes at least as bad as `health`. */
void pd_advise(pd_finding *finding, pd_health health, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
