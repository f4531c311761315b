/* set_record.h - an operator's command that sets values (override_command.h) as bytes, for the control log of the
 * job. */
#ifndef PD_SET_RECORD_H
#define PD_SET_RECORD_H

#include "request.h"

/* A command, and for each parameter that it matches the first step that the parameter had not begun when it came. */
typedef struct pd_set_record {
    char *pattern, *by;
    pd_option *options;
    size_t n_options;
    uint64_t from_step; /* as in the command */
    uint64_t *next;     /* the steps of the parameters, in their order */
    size_t n_next;
} pd_set_record;

/* Writes a command; free() the bytes. PD_NO_MEMORY. */
int pd_set_record_write(const pd_set_record *record, uint8_t **bytes, size_t *n, pd_error *err);
/* Reads a command, every byte of which is checked; call pd_set_record_free, also after an error. */
int pd_set_record_read(pd_set_record *record, const uint8_t *bytes, size_t n, pd_error *err);
void pd_set_record_free(pd_set_record *record);

#endif
