/* input.h - ends the daemon when its standard input ends. Loop thread. */
#ifndef PD_INPUT_H
#define PD_INPUT_H

#include "uvloop.h"

/* Watches the standard input if the settings say so (server.input_exit). PD_INVALID_ARGUMENT: the standard input is
 * neither a pipe nor a socket, so its end cannot be seen. */
int pd_input_watch(pd_uvloop *loop, pd_error *err);
/* Ends the watch. Does nothing if there is none. */
void pd_input_end(pd_uvloop *loop);

#endif
