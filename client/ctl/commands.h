/* commands.h - the commands of paramctl that ask a daemon or read its files, and the table of them. */
#ifndef PD_COMMANDS_H
#define PD_COMMANDS_H

#include "command_line.h"
#include "message.h"

enum { PD_MOST_SETTINGS = 64 }; /* most NAME=VALUE arguments of one `paramctl set` */
/* Longest time that a daemon waits until no step is under way, and then for its disk, before it answers that it has put
 * state into a job or reset it. */
#define PD_IMPORT_SECONDS 70.0

/* The table: one command a row, then an empty row (command_table.c). */
extern const pd_command pd_commands[];

/* Run the command of the same name and return an exit status. A comment names the file of the functions from there
 * on. */
int pd_run_ping(pd_line *line); /* daemon_commands.c */
int pd_run_drain(pd_line *line);
int pd_run_shutdown(pd_line *line);
int pd_run_status(pd_line *line); /* lists.c */
int pd_run_list(pd_line *line);   /* jobs, workers or roots: the list that has the command's name */
int pd_run_jobs(pd_line *line);
int pd_run_params(pd_line *line);
int pd_run_shards(pd_line *line); /* shards_command.c */
int pd_run_rounds(pd_line *line); /* set_lists.c */
int pd_run_members(pd_line *line);
int pd_run_top(pd_line *line);  /* top.c */
int pd_run_drop(pd_line *line); /* job_commands.c */
int pd_run_kick(pd_line *line);
int pd_run_go_back(pd_line *line);
int pd_run_reset_state(pd_line *line);
int pd_run_checkpoint_command(pd_line *line);
int pd_run_set(pd_line *line);
int pd_run_settings(pd_line *line);
int pd_run_state(pd_line *line); /* state_list.c */
int pd_run_export_command(pd_line *line);
int pd_run_import_state(pd_line *line);
int pd_run_daemons(pd_line *line); /* local_commands.c */
int pd_run_dashboard(pd_line *line);
int pd_run_roles(pd_line *line); /* access_commands.c */
int pd_run_token(pd_line *line);
int pd_run_checkpoints(pd_line *line); /* state_folder.c */
int pd_run_verify(pd_line *line);
int pd_run_restore(pd_line *line);
int pd_run_mirror(pd_line *line); /* mirror_command.c */

#define PD_DURABLE_TEXT 128 /* size in bytes of the buffer for pd_durable_text */

/* Writes the step of a job's last checkpoint and its age, such as "40 (12.0 s)", or "40 (12.0 s, mirror 30)" with the
 * step that the daemon's mirror has; "none" if there is none yet; "-" if the job makes none. Returns whether the last
 * attempt at a checkpoint has failed; then the text says so. */
bool pd_durable_text(char text[PD_DURABLE_TEXT], const Paramd__JobInfo *job);

#endif
