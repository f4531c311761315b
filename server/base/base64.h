/* base64.h - encodes and decodes base64 (RFC 4648), as HTTP and etcd use it. Pure functions. */
#ifndef PD_BASE64_H
#define PD_BASE64_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes that the text of n bytes takes, with its terminating zero. */
#define PD_BASE64_TEXT(n) (((n) + 2) / 3 * 4 + 1)

/* Writes n bytes as text, with padding. `out` has PD_BASE64_TEXT(n) bytes. */
void pd_base64_encode(char *out, const void *from, size_t n);
/* Decodes a text of n bytes, with or without padding, into `out`, which has `size` bytes, and adds a '\0'. Sets *bytes
 * to the number of decoded bytes, unless `bytes` is NULL. Returns false if the text is not base64 or does not fit. */
bool pd_base64_decode(char *out, size_t size, size_t *bytes, const char *text, size_t n);

#endif
