"""The faults that the service tolerates: what happens, what must hold, and which tests show it.

Faults are not requirements: the requirements hold during each fault. Ids are never reused or renumbered. Tests verify
that the named tests exist, and that no test of a fault and no fault of the drill is without a row.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ToleratedFault:
    what: str
    """What happens, and what must hold."""
    tests: tuple[str, ...]
    """The node ids of the tests that show it, relative to `tests/`, without parameters."""
    not_shown: str = ""
    """What the tests do not show, and why."""
    in_drill: tuple[str, ...] = ()
    """The names of the faults in `tests/drill/faults.py` that are this fault. Each of those belongs to one row."""


_FAILPOINTS: Final = "faults/test_failpoints.py::test_delivery_can_be_retried_after_a_failure_at_any_admission_step"
_CALLS: Final = "faults/test_failing_calls.py::test_delivery_can_be_retried_after_any_failing_database_call"
_KILLED_CALLS: Final = (
    "faults/test_failing_calls.py::test_delivery_can_be_retried_after_a_kill_before_any_database_call"
)
_DRILL: Final = "drill/test_drill.py::test_random_faults_lose_and_double_no_delivery_or_run"
_DATABASE: Final = "faults/test_database_failures.py::"
_REPLACED: Final = "faults/test_replaced_files.py::"
_SESSIONS: Final = "store/test_sessions_of_postgresql.py::"
_TWO: Final = "faults/test_two_processes.py::"
_CRASHES: Final = "runs/test_crashes.py::"
_HOSTS: Final = "faults/test_two_hosts.py::"
_STOPPING: Final = "faults/test_stopping.py::"
_BACKUP: Final = "faults/test_backup.py::"
_ROTATION: Final = "faults/test_key_rotation.py::"
_MOVE: Final = "faults/test_move.py::"

FAULTS: Final[Mapping[str, ToleratedFault]] = {
    "F1": ToleratedFault(
        "The ingress is killed while a request arrives: nothing is recorded, and a retry is accepted.",
        (_STOPPING + "test_incomplete_request_is_not_recorded_if_the_ingress_is_killed", _KILLED_CALLS),
    ),
    "F2": ToleratedFault(
        "The writer is killed inside the transaction: it is rolled back as a whole, and no rate limit counts it.",
        (_FAILPOINTS, _KILLED_CALLS),
        in_drill=("writer killed",),
    ),
    "F3": ToleratedFault(
        "The writer is killed between COMMIT and 202: the retry is a Duplicate, and there is one run.",
        (
            _FAILPOINTS,
            _KILLED_CALLS,
            "store/test_group_commit.py::test_retry_after_a_lost_report_of_the_commit_is_a_duplicate",
        ),
    ),
    "F4": ToleratedFault(
        "Everything is killed after a 202, before its run begins: the next start performs the run once.",
        (
            _CRASHES + "test_interrupted_run_restarts_soon_after_the_next_worker_starts",
            "runs/test_dispatcher.py::test_runs_queued_before_the_start_are_performed",
            "runs/test_dispatcher.py::test_run_without_a_notification_is_found",
        ),
    ),
    "F5": ToleratedFault(
        "SQLite's disk is full: deliveries get a 503, reading works, and no acceptance is lost.",
        (
            _DATABASE + "test_full_disk_gives_503_and_loses_no_accepted_delivery",
            _DATABASE + "test_low_disk_space_blocks_deliveries_and_new_webhooks",
        ),
        in_drill=("disk full",),
    ),
    "F6": ToleratedFault(
        "PostgreSQL can't write its log, and crashes: senders get a 503, and no acceptance is lost.",
        (_DATABASE + "test_postgresql_that_cannot_write_its_log_loses_no_delivery",),
        "A limit on the size of files stands for the full disk.",
        in_drill=("database crashed, its log unwritable",),
    ),
    "F7": ToleratedFault(
        "A write or a sync fails at any call: this delivery gets no 202, and the next one is accepted.",
        (
            _CALLS,
            "faults/test_sync.py::test_delivery_is_not_answered_202_if_its_sync_fails",
            "faults/test_failpoints.py::test_transaction_error_fails_only_the_deliveries_of_its_batch",
            "faults/test_sync.py::test_log_is_synced_to_disk_before_every_202",
        ),
        in_drill=("writes fail",),
    ),
    "F8": ToleratedFault(
        "PostgreSQL restarts under load: nothing is lost or doubled, and connections are opened again.",
        (
            _DATABASE + "test_postgresql_restarts_under_load_lose_and_double_no_delivery",
            "runs/test_faults.py::test_restarts_of_the_database",
            _DATABASE + "test_requests_get_503_while_postgresql_is_down",
            _DATABASE + "test_log_has_one_line_per_component_while_postgresql_is_down",
        ),
        in_drill=(
            "database restarted (fast)",
            "database restarted (immediate)",
            "sessions ended by the server",
            "connections cut",
        ),
    ),
    "F9": ToleratedFault(
        "A failover leaves the service with a read-only PostgreSQL: deliveries get a 503, and it is not ready.",
        (_DATABASE + "test_deliveries_get_503_while_postgresql_is_read_only",),
        in_drill=("database read-only",),
    ),
    "F10": ToleratedFault(
        "PostgreSQL does not respond: senders get a 503 in time, and memory stays bounded.",
        (
            _DATABASE + "test_requests_get_503_while_postgresql_does_not_respond",
            _DATABASE + "test_memory_stays_bounded_while_postgresql_does_not_respond",
            _DATABASE + "test_database_connections_that_never_respond_are_replaced",
        ),
        in_drill=(
            "network silent",
            "connections that stay silent",
        ),
    ),
    "F11": ToleratedFault(
        "Another session holds a lock: senders get a 503 in time. On PostgreSQL, other webhooks don't wait.",
        (
            _DATABASE + "test_locked_webhook_delays_no_other_webhook",
            _DATABASE + "test_deliveries_get_503_while_another_process_locks_sqlite",
            "store/test_group_commit.py::test_locked_webhook_is_unavailable_and_delays_no_other",
        ),
        in_drill=(
            "database locked",
            "rows or tables locked",
        ),
    ),
    "F12": ToleratedFault(
        "Thousands of idle connections are open: deliveries are accepted without delay.",
        ("http/test_slow_clients.py::test_thousands_of_idle_connections_delay_no_delivery",),
        "The number of connections depends on how many files the machine lets the test open.",
    ),
    "F13": ToleratedFault(
        "Clients send or read slowly: they are dropped after a time limit, and others are served.",
        (
            "http/test_slow_clients.py::test_200_slow_clients_are_disconnected_while_others_are_served",
            "http/test_slow_clients.py::test_unauthenticated_client_that_never_reads_is_disconnected",
            "http/test_slow_clients.py::test_senders_that_read_no_answers_delay_no_delivery",
        ),
    ),
    "F14": ToleratedFault(
        "The clock jumps, or hosts disagree: no webhook stays blocked, no log row is lost, ids stay unique.",
        (
            "spec/test_limits.py::test_clock_jump_resets_the_rate_limit",
            "spec/test_limits.py::test_clock_jump_and_return_leave_no_webhook_blocked",
            "spec/test_limits.py::test_delivery_ids_stay_unique_across_clock_jumps",
            "test_maintenance.py::test_clock_that_is_wrong_for_an_hour_removes_nothing",
            "runs/test_heartbeats.py::test_clock_of_another_host_does_not_affect_death_detection",
            _DRILL,
        ),
        in_drill=("clock of a host wrong",),
    ),
    "F15": ToleratedFault(
        "The clock jumps during a request: the answer and the time limits stay the same.",
        (
            "spec/test_limits.py::test_clock_jump_while_a_body_arrives_changes_no_answer",
            "runs/test_schedules.py::test_idle_worker_follows_a_corrected_clock",
        ),
    ),
    "F16": ToleratedFault(
        "Copies of a delivery arrive simultaneously: one is Accepted, the others are Duplicates, all get a 202.",
        (
            "spec/test_identity.py::test_exactly_one_of_simultaneous_copies_is_accepted",
            "store/test_admission.py::test_only_the_first_copy_in_a_batch_is_accepted",
        ),
        in_drill=("copies at one instant",),
    ),
    "F17": ToleratedFault(
        "The copies arrive at two processes: the result is the same.",
        (
            _TWO + "test_one_of_16_simultaneous_copies_is_accepted",
            "spec/test_identity.py::test_exactly_one_copy_is_accepted_across_several_processes",
        ),
    ),
    "F18": ToleratedFault(
        "The process of the first copy is killed while the others wait: one of the others is Accepted.",
        ("faults/test_killed_winner.py::test_waiting_copy_is_accepted_if_the_process_of_the_first_is_killed",),
    ),
    "F19": ToleratedFault(
        "Senders exceed a rate limit through several processes: exactly the limit is accepted.",
        (
            _TWO + "test_60_of_200_attempts_in_ten_seconds_are_accepted",
            "spec/test_limits.py::test_60_of_200_simultaneous_deliveries_to_two_processes_are_accepted",
        ),
    ),
    "F20": ToleratedFault(
        "A secret is rotated during deliveries: every process then refuses the old one and accepts the new one.",
        (
            _TWO + "test_rotated_secret_is_rejected_immediately_in_all_processes",
            "faults/test_channels.py::test_change_in_any_channel_applies_immediately_in_another_service",
        ),
        in_drill=("secret rotated, webhook disabled",),
    ),
    "F21": ToleratedFault(
        "A webhook is disabled or deleted during deliveries: every process then answers 404, and starts no run.",
        (
            _TWO + "test_deleted_webhook_accepts_no_delivery_in_any_process",
            _TWO + "test_disabled_webhook_accepts_no_delivery_in_any_process",
        ),
    ),
    "F22": ToleratedFault(
        "A webhook is deleted before its run is performed: the run gets its payload and ends.",
        ("runs/test_perform.py::test_run_of_a_deleted_webhook_gets_its_payload",),
    ),
    "F23": ToleratedFault(
        "A webhook is enabled and disabled again and again: deliveries are recorded only while it is enabled.",
        (_TWO + "test_disabled_webhook_accepts_no_delivery_in_any_process",),
    ),
    "F24": ToleratedFault(
        "An automation is changed during deliveries: each run has the version whose filter matched.",
        (
            _TWO + "test_run_records_the_version_whose_filter_matched_its_delivery",
            _TWO + "test_disabled_automation_starts_no_run_in_any_process",
        ),
    ),
    "F25": ToleratedFault(
        "Retention removes rows while they are read or replayed: readers see a row whole or not at all.",
        (
            "management/test_log.py::test_delivery_is_read_with_its_payload_or_not_at_all_during_retention",
            "management/test_log.py::test_replays_during_retention_are_complete_or_refused",
            "store/test_deliveries.py::test_delivery_with_an_unfinished_run_is_kept_with_its_payload",
            "test_maintenance.py::test_deliveries_are_accepted_between_two_steps",
        ),
        in_drill=("retention during load",),
    ),
    "F26": ToleratedFault(
        "A delivery is sent again after retention removed its row: it is a Duplicate if the sender sent an id.",
        ("spec/test_identity.py::test_senders_id_is_remembered_for_30_days_without_its_log_row",),
    ),
    "F27": ToleratedFault(
        "A body has about the largest size: the limit is exact to the byte, however the body arrives.",
        ("spec/test_limits.py::test_body_of_up_to_262144_bytes_is_accepted_however_it_arrives",),
    ),
    "F28": ToleratedFault(
        "A worker is killed during a run: another attempt begins, and no attempt is performed twice.",
        (
            _CRASHES + "test_repeatedly_killed_worker_loses_and_doubles_no_run",
            "runs/test_faults.py::test_killed_workers_on_sqlite",
            "runs/test_faults.py::test_killed_workers_on_postgresql",
            _HOSTS + "test_host_that_is_cut_off_and_killed_loses_and_doubles_no_run",
            _CRASHES + "test_another_worker_performs_the_runs_of_a_killed_one",
            _CRASHES + "test_command_ends_when_its_worker_is_killed",
        ),
        in_drill=("worker killed",),
    ),
    "F29": ToleratedFault(
        "A worker is frozen until another one claims its run: what it writes afterwards has no effect.",
        (
            _CRASHES + "test_worker_paused_beyond_the_timeout_overwrites_no_result",
            "runs/test_faults.py::test_interrupted_workers",
            "store/test_runs.py::test_result_of_a_stale_worker_has_no_effect",
            _HOSTS + "test_host_that_was_cut_off_and_frozen_overwrites_no_result",
            _CRASHES + "test_runs_of_a_worker_frozen_in_a_transaction_are_requeued_soon",
            _CRASHES + "test_resumed_worker_does_not_end_the_next_attempt_on_its_host",
            _CRASHES + "test_worker_that_waits_for_its_commands_to_end_is_not_dead",
            _CRASHES + "test_worker_frozen_before_it_requeues_a_lost_run_takes_no_run",
        ),
        in_drill=("worker paused",),
    ),
    "F30": ToleratedFault(
        "Several workers claim runs: each run is performed once, and no factory waits for another.",
        (
            _CRASHES + "test_two_workers_share_runs_and_perform_each_once",
            "store/test_runs.py::test_workers_that_claim_at_the_same_time_claim_different_runs",
            _CRASHES + "test_run_cancelled_between_two_workers_leaves_no_process",
        ),
    ),
    "F31": ToleratedFault(
        "A run kills its worker each time: it is abandoned after some attempts, and the other runs are performed.",
        (_CRASHES + "test_run_that_kills_its_worker_is_interrupted_after_three_attempts",),
    ),
    "F32": ToleratedFault(
        "The service is stopped under load: requests that were read are answered, and it ends in time.",
        (
            _STOPPING + "test_request_that_was_read_before_the_stop_is_answered",
            _STOPPING + "test_stops_under_load_lose_and_double_no_delivery_or_run",
            _DRILL,
            _STOPPING + "test_sigterm_to_the_whole_process_group_stops_the_service",
            _CRASHES + "test_another_worker_performs_the_runs_of_a_stopped_one",
            _CRASHES + "test_stopping_worker_ends_a_stopped_guard_and_its_command",
            "faults/test_signals.py::test_sigterm_at_any_line_stops_the_server",
            "faults/test_signals.py::test_sigterm_at_any_line_stops_a_worker",
            "faults/test_signals.py::test_signal_of_a_terminal_stops_all_processes_without_an_error",
            "faults/test_signals.py::test_closed_terminal_stops_a_separate_worker",
            "faults/test_signals.py::test_service_with_nohup_survives_its_terminal",
        ),
        in_drill=(
            "service stopped and started",
            "worker stopped and started",
        ),
    ),
    "F33": ToleratedFault(
        "No further file or process can be opened: requests succeed or get a 503, and the service recovers.",
        (
            "faults/test_open_files.py::test_service_out_of_file_descriptors_answers_503_and_recovers",
            "test_fork_server.py::test_failed_start_of_the_fork_server_is_retried",
            "runs/test_health.py::test_failure_to_start_the_guard_is_a_host_fault",
            "faults/test_open_files.py::test_open_files_limit_is_raised_and_partly_reserved_for_the_store",
        ),
        "A process that the kernel kills for its memory is killed like any other: see F2 and F28.",
        in_drill=("ingress without open files",),
    ),
    "F34": ToleratedFault(
        "Migrations are killed, started twice, or meet another schema: one migrates, and another schema is refused.",
        (
            "store/test_migrate.py::test_killed_migration_changes_nothing_and_can_be_repeated",
            "store/test_migrate.py::test_only_one_of_simultaneous_migrations_changes_the_database",
            "store/test_migrate.py::test_database_of_an_older_or_newer_schema_is_refused_and_unchanged",
            "cli/test_starts.py::test_every_command_refuses_a_database_of_an_older_schema",
        ),
    ),
    "F35": ToleratedFault(
        "The database is lost, damaged or not writable at the start: the service says so, and creates no empty one.",
        (
            "cli/test_starts.py::test_lost_database_is_not_replaced_by_an_empty_one",
            "cli/test_starts.py::test_emptied_database_is_refused_like_a_lost_one",
            "store/test_migrate.py::test_truncated_database_is_unavailable",
            "store/test_migrate.py::test_database_in_a_missing_directory_is_unavailable",
        ),
        "If only the WAL was deleted, SQLite offers no way to notice it.",
    ),
    "F36": ToleratedFault(
        "A backup that was made under load is restored: it is consistent, and accepts later deliveries again once.",
        (_BACKUP + "test_restored_backup_is_consistent_and_accepts_retries_once",),
    ),
    "F37": ToleratedFault(
        "A sender closes the connection after its request: if this delivery was recorded, a retry is a Duplicate.",
        ("http/test_hostile_requests.py::test_delivery_can_be_retried_after_a_connection_reset",),
    ),
    "F38": ToleratedFault(
        "A proxy retries a request on its own: the second one is a Duplicate.",
        (_TWO + "test_one_of_16_simultaneous_copies_is_accepted", _DRILL),
    ),
    "F39": ToleratedFault(
        "The log has a million deliveries: pages and admission are as fast as with few.",
        ("store/test_pages_of_the_log.py::test_every_combination_of_filters_returns_the_same_rows_as_a_scan",),
        "The test shows what the pages contain. `make bench` measures them, as filling such a log takes minutes.",
    ),
    "F40": ToleratedFault(
        "Applying definition files is killed, or races with another apply: all or nothing, and uids stay.",
        (
            "definitions/test_applying.py::test_killed_apply_changes_nothing",
            "definitions/test_applying.py::test_concurrent_applies_are_serialized",
            "definitions/test_applying.py::test_webhook_keeps_its_uid_when_its_file_changes",
        ),
    ),
    "F41": ToleratedFault(
        "One of two hosts is cut off, then killed or frozen, and returns: the other one accepts its deliveries once,"
        " finishes its runs within 45 s, and both show the files of all runs.",
        (
            _HOSTS + "test_host_that_is_cut_off_and_killed_loses_and_doubles_no_run",
            _HOSTS + "test_host_that_was_cut_off_and_frozen_overwrites_no_result",
        ),
        "The hosts are Linux namespaces of one machine, so they share its clock and kernel.",
    ),
    "F42": ToleratedFault(
        "The object store for files of runs is down, frozen or refuses the credentials: runs go on, and their files "
        "are uploaded later.",
        (
            "runs/test_run_objects.py::test_files_are_uploaded_later_if_the_object_store_is_down",
            "runs/test_run_objects.py::test_wrong_credentials_are_reported_without_secrets",
            "runs/test_run_objects.py::test_upload_frozen_during_the_next_attempt_replaces_no_file",
        ),
    ),
    "F43": ToleratedFault(
        "`kill -9` of a backup at any step: no file has its name, and the next backup is complete.",
        (_BACKUP + "test_killed_backup_leaves_no_file_with_its_name",),
    ),
    "F44": ToleratedFault(
        "`kill -9` of a restore at any step: the database is empty, and the same command restores everything.",
        (
            _BACKUP + "test_killed_restore_leaves_an_empty_database_and_can_be_started_again",
            _BACKUP + "test_restore_that_is_interrupted_after_its_commit_keeps_everything",
            _BACKUP + "test_restore_whose_commit_is_not_answered_keeps_everything",
        ),
    ),
    "F45": ToleratedFault(
        "A backup was cut, or any byte of it was altered: it is refused, and nothing is changed.",
        (
            "cli/test_backup.py::test_backup_that_was_cut_anywhere_is_refused_and_changes_nothing",
            "cli/test_backup.py::test_backup_of_which_any_byte_was_altered_is_refused_and_changes_nothing",
        ),
    ),
    "F46": ToleratedFault(
        "`kill -9` after a message about an alarm was sent, and before this is recorded: it is sent again, with the "
        "same id.",
        ("notices/test_sender.py::test_message_that_was_sent_but_not_recorded_is_sent_again_with_the_same_id",),
    ),
    "F47": ToleratedFault(
        "A destination of alarms is down, slow, or never ends its answer: the message is retried, and given up after "
        "ten attempts; other destinations don't wait for it.",
        (
            "notices/test_outgoing.py::test_receiver_that_does_not_finish_its_answer_is_cut_off",
            "store/test_notices.py::test_failed_message_is_retried_with_growing_pauses_and_then_given_up",
            "store/test_notices.py::test_destination_that_is_down_does_not_delay_others",
        ),
        not_shown="A slow destination uses the only thread for up to 10 s. Messages to others are sent afterwards.",
    ),
    "F48": ToleratedFault(
        "`kill -9` of the worker after a run was handed to an agent platform: the run is handed over again, and only "
        "the report of the new attempt counts.",
        (
            "runs/test_platform.py::test_attempt_after_a_killed_worker_makes_the_first_one_outdated",
            "runs/test_platform.py::test_report_that_arrived_while_no_worker_was_alive_ends_the_run",
            "runs/test_accepted_reports.py::test_next_attempt_ends_with_the_report_even_after_the_last_attempt",
        ),
    ),
    "F49": ToleratedFault(
        "The disk is full while a backup is written: the error names the disk, and the previous backup stays.",
        (
            _BACKUP + "test_full_disk_ends_a_backup_and_keeps_the_previous_one",
            _BACKUP + "test_backup_says_when_its_output_is_full",
        ),
    ),
    "F50": ToleratedFault(
        "The disk is full during a restore: nothing is restored, and the same command succeeds later.",
        (
            _BACKUP + "test_restore_to_a_full_disk_changes_nothing_and_can_be_started_again",
            _BACKUP + "test_restore_while_the_disk_of_postgresql_is_full_can_be_started_again",
        ),
        "PostgreSQL's tables are on the full disk, but not its write-ahead log.",
    ),
    "F51": ToleratedFault(
        "A Git server does not answer while a workspace is made: the run is tried again, and does not fail.",
        (
            "runs/test_workspaces.py::test_unreachable_repository_is_tried_again_and_then_interrupts_the_run",
            "runs/test_checkouts.py::test_unreachable_server_does_not_cost_the_mirror",
        ),
    ),
    "F52": ToleratedFault(
        "`kill -9` of a worker or of Git while a workspace is made or used: the mirror is replaced if it is "
        "damaged, and the checkout is replaced or removed.",
        (
            "runs/test_checkouts.py::test_damaged_mirror_is_replaced",
            "runs/test_workspaces.py::test_next_attempt_replaces_the_workspace_of_a_dead_worker",
            "runs/test_workspaces.py::test_retention_removes_a_workspace_that_a_dead_worker_left",
        ),
        "The tests make the state that a killed process leaves.",
    ),
    "F53": ToleratedFault(
        "The disk is full while a workspace is made: the run returns to the queue without an attempt.",
        (
            "runs/test_checkouts.py::test_full_disk_is_a_fault_of_the_host",
            "runs/test_workspaces.py::test_full_disk_returns_the_run_to_the_queue",
            "runs/test_workspaces.py::test_run_is_not_failed_by_a_disk_that_is_nearly_full",
        ),
        "The tests let Git write to a full device, and use a directory that can't be created.",
    ),
    "F54": ToleratedFault(
        "A worker dies, a run is cancelled or replaced, or its automation is deleted: its status is not left pending.",
        (
            "results/test_outbox.py::test_no_end_of_a_run_leaves_its_status_pending",
            "results/test_outbox.py::test_replaced_run_does_not_leave_its_status_pending",
            "results/test_outbox.py::test_end_of_a_replaced_run_never_hides_the_status_of_the_newer_one",
            "results/test_github_app.py::test_destination_that_was_down_gets_the_completed_check_run",
        ),
    ),
    "F55": ToleratedFault(
        "The sender of a result dies before it knows the answer: the message is sent again, and marked.",
        (
            "results/test_outbox.py::test_message_of_a_sender_that_died_is_sent_again_and_marked",
            "results/test_outbox.py::test_released_message_of_a_dead_worker_is_sent_again_and_marked",
            "runs/test_dispatcher.py::test_messages_of_a_dead_worker_wait_for_the_next_one",
            "results/test_outbox.py::test_message_whose_senders_all_died_is_given_up",
            "results/test_delivery.py::test_message_of_a_sender_that_is_killed_is_sent_again_and_marked",
            "results/test_github_app.py::test_check_run_of_a_worker_that_is_killed_is_created_once_and_completed",
        ),
    ),
    "F56": ToleratedFault(
        "The answer to a new comment or check run is lost: it is found, and not created again.",
        (
            "results/test_delivery.py::test_comment_whose_answer_was_lost_is_found_and_not_repeated",
            "results/test_delivery.py::test_comment_is_not_repeated_while_earlier_ones_cannot_be_searched",
            "results/test_github_app.py::test_check_run_whose_answer_was_lost_is_found_and_completed",
        ),
        not_shown="Only the first 250 comments since the start of the run, or 500 check runs, are searched.",
    ),
    "F57": ToleratedFault(
        "A destination of results is down: messages are repeated with growing pauses, and others are not delayed.",
        (
            "results/test_outbox.py::test_message_is_given_up_after_its_last_attempt",
            "results/test_outbox.py::test_only_one_message_at_a_time_is_sent_to_a_destination",
        ),
    ),
    "F58": ToleratedFault(
        "bubblewrap is missing, or the kernel refuses namespaces: the service does not start, and later, runs with a "
        "sandbox stay queued.",
        (
            "runs/test_isolation.py::test_run_waits_if_the_host_creates_no_sandbox",
            "runs/test_isolation.py::test_sandbox_is_tried_out_before_the_first_run",
        ),
    ),
    "F59": ToleratedFault(
        "`kill -9` of the guard of a command in a sandbox: every process of the sandbox ends.",
        ("runs/test_isolation.py::test_sandbox_ends_with_its_guard",),
    ),
    "F60": ToleratedFault(
        "A command in a sandbox starts processes without end, or fills the memory or the disk: the kernel refuses "
        "more, or the sandbox is ended.",
        (
            "runs/test_isolation.py::test_hostile_run_reaches_what_the_page_of_isolation_says",
            "runs/test_isolation.py::test_package_that_grows_too_large_ends_its_sandbox",
        ),
    ),
    "F61": ToleratedFault(
        "The ingress, the worker or the fork server is killed: it is replaced, and deliveries are soon accepted again.",
        (
            _STOPPING + "test_deliveries_are_accepted_again_soon_after_a_process_was_killed",
            _STOPPING + "test_deliveries_are_accepted_while_the_worker_is_replaced",
            _STOPPING + "test_processes_are_replaced_after_their_fork_server_was_killed",
            _STOPPING + "test_repeated_kills_of_the_ingress_do_not_end_the_service",
        ),
        in_drill=("ingress killed", "fork server killed"),
    ),
    "F62": ToleratedFault(
        "The supervisor or the whole service is killed: all processes end, and the next start accepts deliveries soon.",
        (
            _STOPPING + "test_all_processes_end_after_their_supervisor_was_killed",
            _STOPPING + "test_all_processes_end_after_a_supervisor_was_killed_at_its_start",
            _STOPPING + "test_killed_service_accepts_deliveries_soon_after_its_next_start",
        ),
        in_drill=("service killed and started", "supervisor killed and started"),
    ),
    "F63": ToleratedFault(
        "Processes of all kinds are killed again and again under load: no delivery or run is lost or doubled.",
        (
            "faults/test_kill.py::test_kills_on_sqlite_lose_and_double_no_delivery_or_run",
            "faults/test_kill.py::test_kills_on_postgresql_lose_and_double_no_delivery_or_run",
        ),
    ),
    "F64": ToleratedFault(
        "The ingress or the writer is paused for seconds: no delivery or run is lost or doubled.",
        (_DRILL,),
        in_drill=("ingress paused", "writer paused"),
    ),
    "F65": ToleratedFault(
        "Master keys change under load, or their rotation is killed: no delivery is refused, and the next rotation "
        "completes it.",
        (
            _ROTATION + "test_key_rotation_under_load_refuses_no_delivery",
            _ROTATION + "test_next_rotation_completes_one_that_was_killed_at_any_step",
            _ROTATION + "test_rolling_restart_with_a_new_master_key_refuses_no_delivery",
        ),
    ),
    "F66": ToleratedFault(
        "A stored secret is damaged, or swapped with another one: only its webhook is unavailable, until its secret is "
        "rotated.",
        (
            _ROTATION + "test_only_webhooks_with_swapped_ciphertexts_become_unavailable",
            _ROTATION + "test_rotation_repairs_a_webhook_with_a_damaged_secret",
        ),
    ),
    "F67": ToleratedFault(
        "A move to PostgreSQL is killed or loses its connection: PostgreSQL has all rows or none, and no services use "
        "both databases.",
        (
            _MOVE + "test_move_that_was_killed_left_everything_to_the_next_one",
            _MOVE + "test_move_that_was_killed_after_its_end_is_complete",
            _MOVE + "test_running_move_blocks_the_service_and_other_moves",
            _MOVE + "test_interrupted_move_says_what_to_do",
        ),
    ),
    "F68": ToleratedFault(
        "The reader of a backup stalls, or keys are rotated meanwhile: the backup can be ended, and is not complete.",
        (
            _BACKUP + "test_backup_whose_reader_stalls_can_be_interrupted",
            _BACKUP + "test_rotation_ends_a_backup_before_any_row_is_written",
        ),
    ),
    "F69": ToleratedFault(
        "A worker is killed while several ones claim runs of the same key: the limit and the debounce of the key hold.",
        (
            "faults/test_run_policies.py::test_no_key_has_more_active_runs_than_its_limit",
            "faults/test_run_policies.py::test_debounced_deliveries_start_one_run_per_key",
        ),
    ),
    "F70": ToleratedFault(
        "The disk of one host is full, and deliveries are in PostgreSQL: the host is not ready, so a proxy leaves it "
        "out.",
        (_DATABASE + "test_host_without_disk_space_is_not_ready_if_postgresql_stores_the_deliveries",),
    ),
    "F71": ToleratedFault(
        "The evaluation of one automation, or the admission of one delivery, raises an unexpected exception: other "
        "runs and deliveries are not affected, and the run or the attempt has a visible outcome.",
        (
            "test_ingress.py::test_fault_in_one_automation_interrupts_only_its_run",
            "test_ingress.py::test_fault_in_one_trigger_leaves_the_others_of_its_automation",
            "test_ingress.py::test_unexpected_fault_is_answered_503_and_reported",
            "store/test_group_commit.py::test_faulty_plan_fails_no_other_plan_of_its_batch",
        ),
    ),
    "F72": ToleratedFault(
        "Files of SQLite are removed, replaced or overwritten under the service: senders get a 503, `/readyz` too, and "
        "every 202 is in the file that was in use. A WAL is not used with another database.",
        (
            _REPLACED + "test_no_delivery_is_accepted_after_older_content_was_copied_into_the_database",
            _REPLACED + "test_no_delivery_is_accepted_into_replaced_files",
            _REPLACED + "test_change_of_a_webhook_is_refused_while_the_database_is_replaced",
            _REPLACED + "test_killed_service_does_not_use_the_wal_of_a_replaced_database",
            _REPLACED + "test_command_does_not_open_a_database_whose_wal_was_removed",
        ),
        in_drill=("database moved away",),
    ),
    "F73": ToleratedFault(
        "The lock files of a running service are removed: a second service on the same directory is still refused.",
        (_REPLACED + "test_second_service_is_refused_although_the_lock_files_are_removed",),
    ),
    "F74": ToleratedFault(
        "PostgreSQL's role, database or URL, or the environment, changes settings of sessions: they have no effect.",
        (
            _SESSIONS + "test_session_has_our_settings_whatever_it_inherits",
            _SESSIONS + "test_role_whose_sessions_ignore_foreign_keys_is_refused",
        ),
    ),
    "F75": ToleratedFault(
        "A connection to PostgreSQL ends while it is idle: it is replaced before anybody gets a 503.",
        (
            _DATABASE + "test_idle_sessions_that_the_server_ends_are_replaced_before_their_use",
            _SESSIONS + "test_session_that_has_ended_while_idle_is_replaced_before_its_use",
            _SESSIONS + "test_connection_that_was_cut_without_a_message_is_replaced",
        ),
    ),
    "F76": ToleratedFault(
        "PostgreSQL rolls a batch of deliveries back because of a conflict: the batch is repeated.",
        (_DATABASE + "test_delivery_whose_transaction_conflicts_twice_is_accepted_once",),
    ),
    "F77": ToleratedFault(
        "Runs take the disk or the memory of the host: they are ended, deliveries get a 202, and other runs succeed.",
        (
            "faults/test_hostile_runs.py::test_hostile_runs_stop_neither_deliveries_nor_other_runs",
            "runs/test_reserve.py::test_run_that_fills_the_disk_is_ended_and_others_go_on",
            "runs/test_reserve.py::test_run_that_takes_the_memory_is_ended_and_others_go_on",
        ),
    ),
    "F78": ToleratedFault(
        "The disk of SQLite becomes read-only after an error, or has no free inodes: deliveries get a 503, and no "
        "acceptance is lost.",
        (_REPLACED + "test_no_delivery_is_accepted_into_replaced_files",),
    ),
}

NO_FAULTS: Final[Mapping[str, str]] = {
    _REPLACED + "test_only_a_migration_creates_a_database": "a command in the wrong directory",
    _MOVE + "test_service_continues_on_postgresql_where_it_stopped_on_sqlite": "a move without a fault",
    "faults/test_sync.py::test_trace_shows_a_store_that_does_not_sync": "verifies the test of F7",
    "faults/test_tls.py::test_tls_parameters_apply_to_every_connection": "settings",
    "faults/test_tls.py::test_wrong_tls_parameters_are_refused_without_showing_the_password": "settings",
}
"""The tests in the files of faults that show no fault, and what they are instead."""
