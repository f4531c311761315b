/* unreserved.h - divides the bytes of the ingest budget that are reserved for nobody among ranks (ingest.h). The loop
 * thread and the step thread both count by it. */
#ifndef PD_UNRESERVED_H
#define PD_UNRESERVED_H

#include <stdint.h>

#define PD_SPARE_MOST (UINT64_C(128) << 20) /* most bytes beyond its reserve that a rank may have in flight */

/* Returns the part of a rank in `unreserved` bytes. */
static inline uint64_t pd_spare_part(uint64_t unreserved, uint64_t ranks)
{
    uint64_t part = ranks > 0 ? unreserved / ranks : 0;

    return part < PD_SPARE_MOST ? part : PD_SPARE_MOST;
}

#endif
