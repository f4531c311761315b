#!/bin/bash
# Runs the mutants that pd_sim finds soon: each must be found. It shows that the simulator can fail. README.md
# tells of the others.
# mutants.sh PD_SIM
# NAME@SEED: the mutant is looked for from this seed on, since the seeds before do not find it.
set -u
status=0
for mutant in roots_largest_first@1301 leave_incoming request_zero close_counts_refused lost_wake_up lost_ack \
    budget_leak buffer_lost@101 version_back parked_forever duplicate_counted \
    image_forgets_outcome torn_export read_out_trained evaluates_in_passing@601 export_outlives_operator \
    loan_ends_with_connection loan_has_a_unit_more any_seals holes_lent refused_share_leaks release_one_more \
    place_of_another lent_unheld unreleased_stays sharing_outlives_connection any_run deferred_forever \
    flow_overtaken set_per_parameter early_sum_in_open_set kept_though_partial grace_from_opening \
    grace_not_shortened patience_forgotten late_told_as_stepped \
    age_told_as_none stepped_told_as_late late_frame_held feedback_commits_on_late@201 feedback_changed_by_resend@151 \
    q4_short_block \
    kept_slot_reset kept_slot_counted_twice filed_after_closed \
    damping_lost_for_single hyper_of_excluded@501 scalar_of_excluded weight_of_excluded_in_divisor last_not_in_image \
    welcome_waited_for removed_though_whole joiner_before_declared share_used_by_late share_lost_with_rank \
    lost_data_carried@2601 pushed_again_as_next \
    group_counts_in_part@351 kicked_comes_back@351 barrier_counts_removed \
    old_generation_pushes@251; do
    first=1
    [[ $mutant != *@* ]] || first=${mutant#*@}
    if "$1" --seeds "$first..$((first + 299))" --mutant "${mutant%@*}" > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds"
        status=1
    fi
done
# Those of checkpoints and WALs, in plans with crashes.
for mutant in fsync_left_out dir_sync_left_out rename_unsynced trusts_unsynced retention_takes_newest \
    old_removed_first failed_counts cut_without_rest worker_state_of_another_step counted_in_cut_and_again \
    window_forgets barriers_forgotten@201 barriers_of_others@459 image_forgets_roots record_durable_unwritten \
    recorded_aggregates_reused record_forgets_roots records_before_checkpoint change_not_counted@1701 \
    end_unsynced decisions_unread@334 resize_forgets_last resize_forgets_worker_states resize_undurable \
    repeated_given_up@6822 stalled_overtakes@301; do
    first=1
    [[ $mutant != *@* ]] || first=${mutant#*@}
    if "$1" --seeds "$first..$((first + 299))" --crashes --mutant "${mutant%@*}" > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds with crashes"
        status=1
    fi
done
# Those of jobs with open sets, in plans with crashes.
for mutant in replay_ignores_record@1 record_after_answer@301 record_without_age@400 course_unchanged@200; do
    first=${mutant#*@}
    if "$1" --seeds "$first..$((first + 299))" --crashes --sets --mutant "${mutant%@*}" > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds with crashes and open sets"
        status=1
    fi
done
# Those of clusters.
for mutant in verdict_of_step_before goback_ignores_life common_too_high@1501 tally_without_last_chunk \
    part_of_neighbour map_of_older_run private_rewind_resends_to_all undropped_continues@301 \
    abandons_unsynced@3301; do
    first=1
    [[ $mutant != *@* ]] || first=${mutant#*@}
    if "$1" --seeds "$first..$((first + 299))" --shards any --mutant "${mutant%@*}" > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds of clusters"
        status=1
    fi
done
# Those of takeovers.
for mutant in lower_tenure_taken owner_serves_on registers_after_another lease_ignored@1001 \
    creates_without_lease@5301; do
    first=1
    [[ $mutant != *@* ]] || first=${mutant#*@}
    if "$1" --seeds "$first..$((first + 299))" --spares --mutant "${mutant%@*}" > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds with spares"
        status=1
    fi
done
# Those of mirrors.
for mutant in mirror_unsynced@1 claims_after_another@1 ahead_is_progress@5501 common_ignores_mirror@701 \
    mirror_newest_first@1501; do
    first=${mutant#*@}
    if "$1" --seeds "$first..$((first + 299))" --mirrors --mutant "${mutant%@*}" > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds with mirrors"
        status=1
    fi
done
# Those of the HTTP listener.
for mutant in metric_one_more http_never_late http_without_limit; do
    if "$1" --seeds 1..300 --scrapes --mutant $mutant > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds with scrapes"
        status=1
    fi
done
# Those of movers.
for mutant in lent_buffer_returned lent_reply_freed lent_written; do
    if "$1" --seeds 1..300 --movers --mutant $mutant > /dev/null 2>&1; then
        echo "$mutant was not found within 300 seeds with movers"
        status=1
    fi
done
exit $status
