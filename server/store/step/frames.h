/* frames.h - frames that are held because contributions wait in them: counted against the ingest budget, sent home
 * when the last contribution is summed. Step thread. */
#ifndef PD_FRAMES_H
#define PD_FRAMES_H

#include "steps.h"

/* Keeps a frame of which every piece was filed: its record stays as long as a piece of its buffer is held. Takes the
 * frame. */
void pd_frame_keep(pd_steps *steps, pd_request *frame);
/* Is done with one piece of a held frame. The last sends its buffer home and ends the record. */
void pd_frame_let_go(pd_steps *steps, pd_request *frame);
/* Ends a frame of which nothing is held (any more), and sends its buffer home. Takes the frame. */
void pd_frame_finish(pd_steps *steps, pd_request *frame);

#endif
