/* export_reading.h - reads what an export under way asks for. Step thread. */
#ifndef PD_EXPORT_READING_H
#define PD_EXPORT_READING_H

#include "job.h"

/* Reads elements of a tensor: of weights, a slot of optimizer state, or a pending root. Allocates out->at.
 * PD_NOT_FOUND, PD_INVALID_ARGUMENT, PD_FAILED_PRECONDITION: the export is of weights alone; PD_NO_MEMORY. */
int pd_export_read_piece(const pd_job *job, const pd_request *request, pd_exported *out, pd_error *err);
/* Reads a parameter's step count, and its number of pending roots (not used by a step yet). If the parameter belongs to
 * a step group, the count is read from the group: the parameter's optimizer gets
 * it only when its next step begins. PD_NOT_FOUND, PD_FAILED_PRECONDITION as above. */
int pd_export_read_count(const pd_job *job, const pd_request *request, pd_exported *out, pd_error *err);

#endif
