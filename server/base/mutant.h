/* mutant.h - lists the mutants. A run of the simulator with a mutant shows that the simulator finds bugs like it
 * (tests/sim/README.md).
 *
 * A mutant is one condition in the code, at the place where the bug once was or might be. The daemon is built without
 * PD_MUTANTS: PD_MUTANT(name) is then the constant false, and the compiler removes the code of the mutant. The
 * simulator builds the same sources with PD_MUTANTS, and switches on one mutant in each of its runs. */
#ifndef PD_MUTANT_H
#define PD_MUTANT_H

#include <stdbool.h>

/* The mutants. Each has a name and a text that says what goes wrong. */
#define PD_MUTANTS_TABLE(X)                                                                                            \
    X(roots_largest_first,                                                                                             \
      "the preconditioner pool takes the largest task first, across all jobs, so a small job's root never "            \
      "runs beside a large job's")                                                                                     \
    X(leave_incoming,                                                                                                  \
      "a Leave is answered while a push arrives, and the push goes on for a job that the connection has no more")      \
    X(wake_own_only, "memory that comes home wakes its own connection alone, not those that the whole budget stopped") \
    X(stalled_overtakes, "a note that a rank waits for memory overtakes the frames of the rank in the inbox")          \
    X(stale_look, "a rank is over its quota since another job declared or holds more, and nobody looks")               \
    X(importer_holds_quota,                                                                                            \
      "an operator who imports keeps a rank's share of the budget, of which the store does not know")                  \
    X(request_zero, "a request with id 0 is taken, and its answer goes to nobody")                                     \
    X(close_counts_refused,                                                                                            \
      "a step is closed although the loop thread has refused a push of it: its gradients count as absent")             \
    X(any_run, "a process of another run counts as one of the job's run")                                              \
    X(zombie_takes_rank, "a process that another one has superseded comes back and takes the rank again")              \
    X(lost_wake_up,                                                                                                    \
      "the loop thread runs out of time with the last effect of its backlog, and forgets mail that came meanwhile")    \
    X(lost_ack, "initial weights are taken, and nobody answers")                                                       \
    X(budget_leak, "memory of a connection that has gone stays charged to the budget")                                 \
    X(buffer_lost, "one payload buffer in a hundred does not go home")                                                 \
    X(torn_reply, "a chunk behind the first is sent from one element too early")                                       \
    X(version_back, "an answer names the version before the one that it brings")                                       \
    X(parked_forever, "a root comes back, and the step that waited for it does not go on")                             \
    X(duplicate_counted, "a push that comes again after its round has closed is counted in the next round")            \
    X(init_mixed, "initial weights of a parameter may come from two processes at a rank, one part from each")          \
    X(weight_per_chunk,                                                                                                \
      "chunks of one parameter that a rank pushes with unlike weights are each taken with their own")                  \
    X(records_uncounted, "max_total_bytes does not count what the server itself keeps of each parameter")              \
    X(image_forgets_roots, "an image leaves out the roots that are computed and not adopted yet")                      \
    X(image_forgets_outcome, "an image leaves out how the last round of a parameter ended")                            \
    X(image_forgets_superseded, "an image leaves out which processes have been superseded at a rank")                  \
    X(torn_export, "an export reads the latest weights of a parameter, not those of its step")                         \
    X(evaluates_in_passing,                                                                                            \
      "an export of weights to evaluate with does not stop the job: they follow from the state of a later step")       \
    X(read_out_trained, "a pull of weights to evaluate with gets those that are trained")                              \
    X(export_outlives_operator, "an operator is gone, and the job rests as long as its export may be silent")          \
    X(loan_ends_with_connection,                                                                                       \
      "the segment of a worker is unmapped when its connection ends, not when its last payload is summed")             \
    X(loan_has_a_unit_more, "a payload may end 64 bytes behind the worker's segment")                                  \
    X(any_seals, "a worker may share a segment that it can still shorten")                                             \
    X(holes_lent, "a worker may share a segment whose pages are not there, or can be freed")                           \
    X(refused_share_leaks, "the descriptor of a refused Share stays open")                                             \
    X(release_one_more, "a Release frees one answer more than the worker has read")                                    \
    X(place_of_another, "an answer in shared memory gives the place of the piece before")                              \
    X(lent_unheld, "lent weights are given back when their answer is sent, not when it is released")                   \
    X(lent_buffer_returned, "memory returns to its pool although a mover still receives into it")                      \
    X(lent_reply_freed, "an answer is freed although a mover still sends its weights")                                 \
    X(lent_written, "the loop thread sends in a direction that is lent to a mover")                                    \
    X(unreleased_stays, "a worker that never releases answers is not closed")                                          \
    X(end_unseen, "the client takes weights from shared memory although the connection had ended")                     \
    X(block_free_when_sent, "the place of a gradient in shared memory is free when its push is sent, not answered")    \
    X(given_up_block_free, "the place of a gradient is free when its push is given up, though the server may read it") \
    X(sharing_outlives_connection, "after a reconnect the client sends places in shared memory before it shares any")  \
    X(fsync_left_out, "the files of a checkpoint are not synced before it gets its name")                              \
    X(dir_sync_left_out, "no directory of a checkpoint is synced")                                                     \
    X(rename_unsynced, "a checkpoint counts as durable before the directory with its name is synced")                  \
    X(abandons_unsynced,                                                                                               \
      "a failed rewrite of a checkpoint is removed before the disk has the name of the earlier one again")             \
    X(failed_sync_repeated, "a sync that has failed is called again, and its success is believed")                     \
    X(trusts_unsynced, "the files of a checkpoint are not synced, and loaded without a look at their hashes")          \
    X(retention_takes_newest, "the newest checkpoint is removed, not the oldest")                                      \
    X(old_removed_first, "older checkpoints are removed before the new one is written")                                \
    X(failed_counts, "a checkpoint that could not be written counts as durable")                                       \
    X(cut_without_rest, "parameters take further steps while a checkpoint is made: their state is newer than their "   \
                        "weights")                                                                                     \
    X(worker_state_of_another_step, "a checkpoint has the worker states of the step after it")                         \
    X(counted_in_cut_and_again, "a restored job counts the contributions of the checkpoint's last step once more")     \
    X(window_forgets, "the client does not send the last push of a step in its window again")                          \
    X(barriers_forgotten, "a client that comes back does not say how many barriers it has passed")                     \
    X(record_durable_unwritten, "a record of the WAL counts as durable before it is written")                          \
    X(recorded_aggregates_reused, "the buffers of a record are used for the next step before they are written")        \
    X(record_forgets_roots, "a record leaves out which roots the step has taken")                                      \
    X(decisions_unread, "a restart does not read the decision records")                                                \
    X(decisions_base_early, "decision records are given up before the checkpoint that has them is durable")            \
    X(records_before_checkpoint, "records are written before the checkpoint that they follow is durable")              \
    X(change_not_counted, "weights that are replaced do not count as a change of the state besides steps")             \
    X(leave_unrecorded, "the disk does not have that a rank has left when its worker is told so")                      \
    X(undropped_continues, "a job that goes back continues although its WAL could not be dropped")                     \
    X(end_unsynced, "the mark that a job has ended counts as written before its directory is synced")                  \
    X(resize_forgets_last,                                                                                             \
      "a job that goes on with another number of workers loses the weights of its last parameter")                     \
    X(resize_forgets_worker_states,                                                                                    \
      "a job that goes on with another number of workers forgets the worker states of its ranks")                      \
    X(resize_undurable, "a job that goes on with another number of workers forgets which step is durable")             \
    X(repeated_given_up,                                                                                               \
      "a checkpoint that is cut while steps are repeated gives up the records of the steps after it")                  \
    X(barriers_of_others, "a new process passes the barriers that earlier processes of its rank have passed")          \
    X(metric_one_more, "counts of jobs in the metrics are one more than the store has published")                      \
    X(deferred_forever, "a frame that is held back because the loop's time is used up is not tried again")             \
    X(set_per_parameter,                                                                                               \
      "a parameter of which all of a rank has come counts it, although the rank does not count in other parameters")   \
    X(early_sum_in_open_set, "contributions of a rank over quota are summed before it is known which ranks count")     \
    X(welcome_waited_for, "a step that is open waits for a rank that has joined since")                                \
    X(joiner_before_declared, "a rank becomes a member with its Hello, before it has declared its parameters")         \
    X(removed_though_whole, "what a removed rank had given is released, although all of it had come")                  \
    X(kept_though_partial, "a push that was kept for the next step counts in it although not all of it has come")      \
    X(grace_from_opening, "the grace of a step begins when the step is opened, not when a quorum is whole")            \
    X(grace_not_shortened, "a rank that becomes whole during a grace that goes by patience does not shorten it")       \
    X(patience_forgotten, "the server forgets how long a rank can do without the answer to its push")                  \
    X(late_told_as_stepped, "a rank whose push came too late is told that it has counted")                             \
    X(age_told_as_none, "a rank whose push counted in a later step is told that it was not old")                       \
    X(stepped_told_as_late, "a rank whose push counted in a later step is told that it came too late")                 \
    X(record_after_answer, "workers are told of a step before the disk has the record of its set")                     \
    X(record_without_age, "the record of a set leaves out how old the contributions were")                             \
    X(course_unchanged, "the job takes another course, and its number stays: no worker goes back")                     \
    X(replay_ignores_record, "a restart repeats steps with other sets of ranks than those recorded")                   \
    X(last_not_in_image, "an image leaves out which pushes of each rank have counted last")                            \
    X(feedback_commits_on_late, "what quantizing has left over of a late push is taken for that of one that counted")  \
    X(feedback_changed_by_resend, "what quantizing has left over is lost when a push is sent again")                   \
    X(q4_short_block, "the last elements of a piece in int4 whose last block is short are sent as 0")                  \
    X(late_frame_held, "what a rank has given too late is not released")                                               \
    X(kept_slot_reset, "contributions that are kept for the next step are forgotten when the step closes")             \
    X(kept_slot_counted_twice, "a push that was kept counts in the next step, and in the one after it again")          \
    X(filed_after_closed, "a push that is one step too old is still filed")                                            \
    X(damping_lost_for_single, "an old contribution is not damped if it is the only one")                              \
    X(hyper_of_excluded, "a step takes hyperparameters of ranks that do not count in it")                              \
    X(scalar_of_excluded, "means of scalars have values of ranks that do not count")                                   \
    X(weight_of_excluded_in_divisor, "a mean is divided by the weights of ranks that do not count, too")               \
    X(share_used_by_late, "the shares of a rank whose push came too late count as used")                               \
    X(lost_data_carried, "a late worker carries data over although their shares are leased to others")                 \
    X(pushed_again_as_next, "a push that repeats one which has counted is for the next step")                          \
    X(share_lost_with_rank, "the shares of a removed rank count as used, and nobody gets them")                        \
    X(group_counts_in_part, "ranks count in a step although others of their group do not")                             \
    X(kicked_comes_back, "a process that an operator has removed may come back")                                       \
    X(barrier_counts_removed, "a barrier waits for ranks that are removed, too")                                       \
    X(old_generation_pushes, "a process of an earlier launch may come back after the job was formed again")            \
    X(verdict_of_step_before, "a shard decides a step by the verdict of the step before")                              \
    X(goback_ignores_life, "a shard goes back although it was loaded again since the worker has looked")               \
    X(mirror_newest_first, "the mirror of a shard copies the newest checkpoint first")                                 \
    X(common_ignores_mirror, "workers tell shards to remove checkpoints before steps that a mirror lacks")             \
    X(common_too_high, "workers tell shards to keep the checkpoints from a step on that not all shards have")          \
    X(left_records_replaced, "a shard's WAL begins anew although other shards may have to go back to its records")     \
    X(tally_without_last_chunk, "the sum of squares in a tally leaves out the end of each parameter")                  \
    X(part_of_neighbour, "a portion of a parameter gets the gradient of its first portion")                            \
    X(map_of_older_run, "a shard takes a worker of another cluster for one of its job's")                              \
    X(private_rewind_resends_to_all, "a worker that can send a shard its steps again goes back with all")              \
    X(http_never_late, "an HTTP request that does not come whole is not refused in time")                              \
    X(flow_overtaken, "a request to the step thread is served before those of its flow that came earlier")             \
    X(http_without_limit, "the number of HTTP connections has no limit")                                               \
    X(goback_ignores_tenures, "a shard goes back for a worker that has looked at an earlier owner of another shard")   \
    X(lower_tenure_taken, "a worker goes to an owner of a shard whose tenure is lower than one that it has seen")      \
    X(registers_after_another,                                                                                         \
      "an owner whose lease has ended registers again although another daemon has owned its shard meanwhile")          \
    X(claims_after_another,                                                                                            \
      "a spare takes a shard although its last owner has registered again since the spare has got the state")          \
    X(ahead_is_progress, "a worker goes on where a shard continues from a mirror that did not have a GoBack yet")      \
    X(mirror_unsynced, "the names of files in a mirror are not synced")                                                \
    X(lease_ignored, "an owner whose lease has ended tells of durable steps and creates jobs as if it had one")        \
    X(creates_without_lease, "an owner whose lease has ended begins a job anew that a newer owner has")                \
    X(owner_serves_on, "an owner goes on although it has learnt that another daemon has its shard")                    \
    X(late_error_hits_reused_id, "the store's answers are matched by the id on the wire, so a late error ends "        \
                                 "another request that uses the id again")

enum pd_mutant {
    PD_MUTANT_none,
#define PD_MUTANT_NUMBER(name, text) PD_MUTANT_##name,
    PD_MUTANTS_TABLE(PD_MUTANT_NUMBER)
#undef PD_MUTANT_NUMBER
        PD_MUTANT_END
};

#ifdef PD_MUTANTS
/* the mutant that is switched on; the simulator sets it before the first event of a run */
extern enum pd_mutant pd_mutant_on;
#define PD_MUTANT(name) (pd_mutant_on == PD_MUTANT_##name)
#else
#define PD_MUTANT(name) false
#endif

#endif
