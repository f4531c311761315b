/* note_request.h - Note and Recall: a worker gives a note to one of its steps, and reads its note. Loop thread. */
#ifndef PD_NOTE_REQUEST_H
#define PD_NOTE_REQUEST_H

#include "conn.h"

/* Handle the frame of a Note, as prepare and finish of the table of methods do (methods.h). */
int pd_prepare_note(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
void pd_finish_note(pd_conn *conn);
/* Asks the store for this rank's note. PD_NO_MEMORY. */
int pd_run_recall(pd_conn *conn, const pd_prefix *prefix, void *message, pd_error *err);
/* Answers a Recall with the note that an effect (a message of the step thread) has brought. */
void pd_reply_recall(pd_conn *conn, pd_pending *pending, const pd_effect *effect);

#endif
