/* command_address.h - puts the server's address into commands that texts of the server name: only the client knows it.
 */
#ifndef PD_COMMAND_ADDRESS_H
#define PD_COMMAND_ADDRESS_H

#include <stddef.h>

#include "address.h"

/* Replaces "paramctl COMMAND" by "paramctl -s ADDRESS COMMAND" wherever a text names a command that asks a daemon. The
 * text has room for `room` bytes; where it would not fit, it stays as it was. */
void pd_command_address(char *text, size_t room, const pd_address *address);

#endif
