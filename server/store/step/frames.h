/* frames.h - frames (messages with tensors) whose contributions are not summed yet. They count against the ingest
 * budget. When a frame's last contribution is summed, its buffer goes back to its connection. Step thread. */
#ifndef PD_FRAMES_H
#define PD_FRAMES_H

#include "steps.h"

/* Keeps a frame as long as one of its contributions, which are all filed, still lies in its buffer. If none does, the
 * frame is finished at once. Takes ownership of the frame. */
void pd_frame_keep(pd_steps *steps, pd_request *frame);
/* Releases one contribution that lies in a frame's buffer. If it is the last one, the frame is freed and its buffer
 * goes back to the connection. */
void pd_frame_let_go(pd_steps *steps, pd_request *frame);
/* Frees a frame in whose buffer no contribution lies, and returns the buffer to the connection. Takes ownership of
 * the frame. */
void pd_frame_finish(pd_steps *steps, pd_request *frame);

#endif
