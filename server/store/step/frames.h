/* frames.h - frames whose contributions are not summed yet. They are counted against the ingest budget. When the
 * last contribution is summed, the buffer goes back to its connection. Step thread. */
#ifndef PD_FRAMES_H
#define PD_FRAMES_H

#include "steps.h"

/* Keeps a frame whose contributions are all filed, as long as a slot refers to its buffer. If no slot does, the
 * frame is finished at once. Takes ownership of the frame. */
void pd_frame_keep(pd_steps *steps, pd_request *frame);
/* Releases one contribution in a kept frame. With the last one the frame ends and its buffer goes back to the
 * connection. */
void pd_frame_let_go(pd_steps *steps, pd_request *frame);
/* Ends a frame that no slot refers to, and returns its buffer to the connection. Takes ownership of the frame. */
void pd_frame_finish(pd_steps *steps, pd_request *frame);

#endif
