/* landing.h - decides where the payload of an answer lands, before it comes. */
#ifndef PD_LANDING_H
#define PD_LANDING_H

#include "core_state.h"

/* Takes the header of an answer, as a callback of pd_framer; `core` is the pd_core. Gives the places of the payload. */
int pd_core_header(void *core, const pd_prefix *prefix, const uint8_t *header, struct iovec **spans, size_t *n);

/* Returns whether answers of that method have outcomes. */
bool      pd_landing_has_outcomes(unsigned method);
/* Returns the parameter to which a part of a frame belongs. */
pd_known *pd_landing_known(const pd_core *core, const pd_outgoing_frame *frame, size_t part);
/* Returns the payload bytes of a part in the answer that is landing: of its weights, or of an update of them. */
size_t    pd_landing_bytes(const pd_core *core, const pd_outgoing_frame *frame, size_t part);

#endif
