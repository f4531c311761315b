/* roles_file.h - reads the file of roles (server.roles). Blocks, so the loop thread never calls it. */
#ifndef PD_ROLES_FILE_H
#define PD_ROLES_FILE_H

#include "roles.h"

/* Reads roles from a file. Errors name the file, and a wrong line by its number:
 *
 *   PD_NOT_FOUND          the file cannot be read
 *   PD_PERMISSION_DENIED  others than its owner may write to it, or it is not a file; the error says what to do
 *
 * and those of pd_roles_parse. */
int pd_roles_file_read(pd_roles **out, const char *path, pd_error *err);

#endif
