/* option_copy.h - copies the options of a message into a request for the store. */
#ifndef PD_OPTION_COPY_H
#define PD_OPTION_COPY_H

#include "message.h"
#include "request.h"

/* Copies n options into new memory. PD_NO_MEMORY: the options that were copied before belong to the
 * caller. */
int pd_options_copy(pd_option **out, size_t *n_out, Paramd__Option *const *from, size_t n);

#endif
