/* dashboard.h - the page of the dashboard, which cmake makes an array of from dashboard.html (dashboard.cmake). */
#ifndef PD_DASHBOARD_H
#define PD_DASHBOARD_H

#include <stddef.h>

extern const unsigned char pd_dashboard[];
extern const size_t pd_dashboard_bytes;
/* SHA-256 of the text of the page's script and of its style, in hexadecimal. */
extern const char pd_dashboard_script_sha256[], pd_dashboard_style_sha256[];

#define PD_DASHBOARD_HASH 45 /* bytes of a hash in base64, with a final '\0' */

/* Writes a hash in base64, as a content security policy has it. */
void pd_dashboard_hash(char out[PD_DASHBOARD_HASH], const char *sha256);

#endif
