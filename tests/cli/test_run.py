"""`hookmill run`."""

import os

import pytest
import time_machine

from hookmill.cli.run import LOG_BYTES_MAX
from hookmill.domain.ids import run_key
from hookmill.domain.platform_report import platform_report
from hookmill.domain.run import RunState
from hookmill.domain.run_outputs import LAST_MESSAGE
from hookmill.runs.package import CHUNK_BYTES, LISTED_ENTRIES_MAX
from tests.cli.conftest import START_US
from tests.cli.terminal import terminal_output


@pytest.fixture
def delivery(automation, webhook, log):
    """The id of an accepted delivery to `source`."""
    return log.add_delivery(webhook["uid"])


@pytest.fixture
def add_run(automation, webhook, log):
    """Adds a run of `triage` that a new delivery has started, and returns its id."""
    return lambda *state, **options: log.add_run(
        log.add_delivery(webhook["uid"]), automation["automation_id"], *state, **options
    )


def test_list_shows_runs_newest_first(add_run, hookmill):
    older = add_run(RunState.FAILED, attempt=1)
    newer = add_run(at=START_US + 1_000_000)

    assert hookmill("run", "list").out.splitlines() == [
        "CREATED (UTC)        RUN                                   STATE   AUTOMATION",
        f"2026-11-21 09:12:37  {newer}  queued  triage",
        f"2026-11-21 09:12:36  {older}  failed  triage",
    ]


@pytest.mark.parametrize(("hold", "reason"), [(1, "new"), (2, "busy"), (3, "debounce"), (4, "retry")])
def test_list_shows_why_a_queued_run_is_held(add_run, log, hookmill, hold, reason):
    add_run()
    log.execute("UPDATE runs SET hold = ?, due_at = ?", (hold, START_US))

    assert f"  queued ({reason})  triage" in hookmill("run", "list").out


def test_list_is_filtered_by_state(add_run, hookmill):
    add_run()
    interrupted = add_run(RunState.INTERRUPTED, attempt=3)

    (row,) = hookmill("run", "list", "--state", "interrupted", "--json").json["items"]

    assert row["run_id"] == interrupted


def test_list_is_filtered_by_automation(add_run, automation, hookmill):
    add_run()

    output = hookmill("run", "list", "--automation", "triage", "--limit", "1").out
    (row,) = hookmill("run", "list", "--automation", automation["automation_id"], "--json").json["items"]

    assert "run list --automation triage --limit 1 --before run_" in output
    assert row["automation"] == "triage"


def test_export_has_every_field_of_a_run(automation, delivery, log, hookmill, webhook):
    run = log.add_run(
        delivery, automation["automation_id"], RunState.FAILED, attempt=2, reason="Exit status 3.", exit_status=3
    )

    (row,) = hookmill("run", "export").json_lines

    assert row == {
        "run_id": run,
        "started_by": "delivery",
        "delivery_id": delivery,
        "webhook_uid": webhook["uid"],
        "schedule": None,
        "scheduled_at": None,
        "person": None,
        "automation": "triage",
        "automation_version": 1,
        "replay": 0,
        "runner": "package",
        "hold": None,
        "due_at": None,
        "replaced_by": None,
        "executor": None,
        "host": None,
        "state": "failed",
        "attempt": 2,
        "created_at": "2026-11-21T09:12:36.000000Z",
        "claimed_at": None,
        "started_at": "2026-11-21T09:12:36.000000Z",
        "finished_at": "2026-11-21T09:12:37.500000Z",
        "cancel_requested_at": None,
        "exit_status": 3,
        "reason": "Exit status 3.",
    }


def test_list_and_show_name_the_number_of_a_replay(automation, delivery, log, hookmill):
    log.add_run(delivery, automation["automation_id"], RunState.SUCCEEDED, attempt=1)
    with time_machine.travel(START_US / 1_000_000 + 60, tick=False):
        (replay,) = hookmill("delivery", "replay", delivery, "--json").json["runs"]

    newest, original = hookmill("run", "list").out.splitlines()[1:]

    assert newest.endswith("  queued     triage (replay 1)")
    assert original.endswith("  succeeded  triage")
    assert replay["replay"] == 1
    assert f"Delivery    {delivery} (replay 1 of it)\n" in hookmill("run", "show", replay["run_id"]).out


def test_full_page_prints_the_command_for_the_next_one(add_run, hookmill):
    run_ids = [add_run(at=START_US + n) for n in range(3)]

    command = hookmill("run", "list", "--webhook", "source", "--limit", "2").out.splitlines()[-1]
    next_page = hookmill("run", "list", *command.partition("run list ")[2].split(), "--json").json["items"]

    assert command.endswith(f"run list --webhook source --limit 2 --before {run_ids[1]}")
    assert [run["run_id"] for run in next_page] == run_ids[:1]


def test_export_has_every_run_oldest_first(add_run, hookmill):
    run_ids = [add_run(at=START_US + number) for number in range(30)]

    assert [row["run_id"] for row in hookmill("run", "export").json_lines] == run_ids


def test_show_names_the_package_and_its_files(add_run, hookmill, data_dir):
    run = add_run(RunState.SUCCEEDED, attempt=1)
    package = data_dir / "runs" / run
    package.mkdir(parents=True)
    (package / "event-payload.json").write_bytes(b"{}")
    (package / "a\x1b[31m").write_bytes(b"")

    output = hookmill("run", "show", run).out
    shown = hookmill("run", "show", run, "--json").json

    assert f"Package     {package}\n" in output
    assert "            event-payload.json (2 bytes)\n" in output
    assert "            a\\u001b[31m (0 bytes)\n" in output
    assert shown["package"] == str(package)
    assert {"name": "event-payload.json", "size": 2, "only_on_host": None} in shown["files"]


def test_show_names_the_worker_of_a_run(add_run, hookmill):
    run = add_run(RunState.SUCCEEDED, attempt=1, executor="worker-host-4711-0a1b")

    shown = hookmill("run", "show", run, "--json").json

    assert "Worker      worker-host, process 4711\n" in hookmill("run", "show", run).out
    assert (shown["executor"], shown["host"]) == ("worker-host-4711-0a1b", "worker-host")


@pytest.mark.parametrize(("exit_status", "lines"), [(3, ["Exit status  3"]), (0, ["Exit status  0"]), (-15, [])])
def test_show_has_the_exit_status_unless_a_signal_ended_the_command(add_run, exit_status, lines, hookmill):
    run = add_run(RunState.FAILED, attempt=1, exit_status=exit_status)

    printed = hookmill("run", "show", run).out.splitlines()

    assert [line for line in printed if "Exit status" in line] == lines
    assert hookmill("run", "show", run, "--json").json["exit_status"] == exit_status


def test_show_names_the_directory_of_a_package_that_does_not_exist(add_run, hookmill, data_dir):
    run = add_run()

    assert f"Package     {data_dir / 'runs' / run} (does not exist now)\n" in hookmill("run", "show", run).out


def test_log_writes_the_output_to_a_pipe_byte_for_byte(add_run, hookmill, data_dir):
    run = add_run(RunState.SUCCEEDED, attempt=1, output_tail="tail")
    (data_dir / "runs" / run).mkdir(parents=True)
    (data_dir / "runs" / run / "output.log").write_bytes(b"\x1b[32mok\x1b[0m\n\xff")

    assert hookmill("run", "log", run).out_bytes == b"\x1b[32mok\x1b[0m\n\xff"
    assert hookmill("run", "log", run, "--json").json["output"] == "\x1b[32mok\x1b[0m\n\\xff"


@pytest.fixture
def package(automation, delivery, log, data_dir):
    """The empty package directory of a run that has ended. The database has the output `tail`."""
    run = log.add_run(delivery, automation["automation_id"], RunState.SUCCEEDED, attempt=1, output_tail="tail")
    directory = data_dir / "runs" / run
    directory.mkdir(parents=True)
    return directory


@pytest.mark.parametrize("kind", ["link", "pipe", "directory", "link instead of the package"])
def test_log_reads_no_file_outside_the_package(package, hookmill, data_dir, kind):
    (data_dir / "secret").mkdir()
    (data_dir / "secret" / "output.log").write_text("out of reach")
    match kind:
        case "link":
            (package / "output.log").symlink_to(data_dir / "secret" / "output.log")
        case "pipe":
            os.mkfifo(package / "output.log")
        case "directory":
            (package / "output.log").mkdir()
        case _:
            package.rmdir()
            package.symlink_to(data_dir / "secret")

    assert hookmill("run", "log", package.name).out == "tail\n"
    assert hookmill("run", "log", package.name, "--json").json == {
        "run_id": package.name,
        "file": None,
        "output": "tail",
        "size": None,
        "is_cut": None,
    }
    shown = hookmill("run", "show", package.name, "--json").json
    assert (shown["files"], shown["more_files"]) == ([], False)
    assert "secret" not in hookmill("run", "show", package.name).out


def test_log_of_many_gigabytes_is_cut_in_json(package, hookmill):
    with (package / "output.log").open("wb") as output:
        output.truncate(3 * 1024**3)
        output.seek(0, os.SEEK_END)
        output.write("é the end\n".encode())

    shown = hookmill("run", "log", package.name, "--json").json

    assert shown["output"].endswith("é the end\n")
    assert len(shown["output"]) < LOG_BYTES_MAX
    assert (shown["size"], shown["is_cut"]) == (3 * 1024**3 + 11, True)


def test_log_of_one_line_is_shown_on_a_terminal_in_chunks(package):
    # A character of two bytes and one of four bytes cross the ends of chunks.
    line = "x" * (CHUNK_BYTES - 1) + "é" + "x" * (CHUNK_BYTES - 2) + "\U0001f600\x1b"
    (package / "output.log").write_bytes(line.encode() + b"\xff")

    assert terminal_output("run", "log", package.name) == line[:-1] + "\\u001b\\xff"


def test_show_lists_a_limited_number_of_files(package, hookmill):
    for name in (*(f"{number:04}" for number in range(LISTED_ENTRIES_MAX + 1)), "prompt.md", "envelope.json"):
        (package / name).touch()

    shown = hookmill("run", "show", package.name, "--json").json

    assert LISTED_ENTRIES_MAX - 10 < len(shown["files"]) <= LISTED_ENTRIES_MAX
    assert shown["more_files"] is True
    assert [file["name"] for file in shown["files"][:2]] == ["prompt.md", "envelope.json"]
    assert "and more than 977 more\n" in hookmill("run", "show", package.name).out


def test_log_without_a_file_is_the_stored_tail(add_run, hookmill):
    run = add_run(RunState.SUCCEEDED, attempt=1, output_tail="a\nb\x1b[31m")

    assert hookmill("run", "log", run).out == "a\nb\\u001b[31m\n"
    shown = hookmill("run", "log", run, "--json").json
    assert shown == {"run_id": run, "file": None, "output": "a\nb\x1b[31m", "size": None, "is_cut": None}


def test_log_of_a_run_without_output_says_so(add_run, hookmill):
    run = add_run(RunState.SUCCEEDED, attempt=1)

    result = hookmill("run", "log", run)

    assert (result.out, result.err) == ("", f"No output of run {run} is stored.\n")


def test_log_of_a_queued_run_says_that_it_has_not_started(add_run, hookmill):
    run = add_run()

    result = hookmill("run", "log", run)

    assert (result.out, result.err) == (
        "",
        f"Run {run} has not started. `hookmill run queue` shows why it waits.\n",
    )


def test_log_of_a_running_run_may_be_on_another_host(add_run, hookmill):
    run = add_run(RunState.RUNNING, attempt=1)

    result = hookmill("run", "log", run)

    assert (result.out, result.err) == (
        "",
        f"The output of run {run} is not on this host. Its end is stored when the attempt has ended.\n",
    )


def test_queued_run_is_cancelled_immediately(add_run, hookmill):
    run = add_run()

    assert hookmill("run", "cancel", run).out == f"Run {run} is cancelled.\n"
    assert hookmill("run", "show", run, "--json").json["state"] == "cancelled"


def test_running_run_is_asked_to_stop(add_run, hookmill):
    run = add_run(RunState.RUNNING, attempt=1)

    assert hookmill("run", "cancel", run).out.startswith(f"Run {run} is being cancelled.")
    assert "running, being cancelled" in hookmill("run", "list").out


def test_run_with_an_accepted_report_ends_with_it_when_it_is_cancelled(add_run, log, hookmill):
    run = add_run(attempt=1)
    log.execute(
        "INSERT INTO platform_attempts (run_id, attempt, token_digest, created_at, report) VALUES (?, 1, ?, 0, ?)",
        (bytes(run_key(run)), bytes(32), platform_report(succeeded=True).stored()),
    )

    expected = f"Run {run} has ended with the report of its platform. Its state is succeeded.\n"
    assert hookmill("run", "cancel", run).out == expected


def test_cancellation_of_a_finished_run_is_refused(add_run, hookmill):
    run = add_run(RunState.SUCCEEDED, attempt=1)

    assert hookmill("run", "cancel", run, exit_code=1).err == f"Run {run} has already ended. Its state is succeeded.\n"


# The queue


def test_queue_shows_waiting_runs_and_warns_if_there_is_no_worker(add_run, hookmill):
    run = add_run()

    with time_machine.travel(START_US / 1_000_000 + 60, tick=False):
        result = hookmill("run", "queue")

    assert result.out.splitlines() == [
        "Running  0",
        "Ready    1, the oldest for 1 min",
        "Held     new 0, busy 0, debounce 0, retry 0",
        "",
        "There are no workers.",
        "",
        "WAITING  RUN                                   PRIORITY  AUTOMATION  WHY",
        f"1 min    {run}  normal    triage      It waits for a free slot.",
    ]
    assert result.err.startswith("No worker is alive, so no run starts.")


def test_queue_shows_running_runs_and_their_workers(add_run, log, hookmill):
    run = add_run(RunState.RUNNING, attempt=1)
    log.execute("UPDATE runs SET executor = 'my-host-12-ab', claimed_at = 1")
    log.execute("INSERT INTO executors VALUES ('my-host-12-ab', ?, ?)", (START_US, START_US))

    with time_machine.travel(START_US / 1_000_000 + 20, tick=False):
        result = hookmill("run", "queue")
    with time_machine.travel(START_US / 1_000_000 + 60, tick=False):
        without_heartbeat = hookmill("run", "queue").out

    assert "my-host, process 12  alive  2026-11-21 09:12:36  1" in result.out
    assert f"2026-11-21 09:12:36  {run}  running        1  triage      package  my-host, process 12\n" in result.out
    assert result.err == ""
    assert "my-host, process 12 (no heartbeat)" in without_heartbeat


def test_long_queue_names_the_command_that_lists_all_runs(add_run, hookmill):
    for _ in range(3):
        add_run()

    output = hookmill("run", "queue", "--limit", "2").out
    queue = hookmill("run", "queue", "--limit", "2", "--json").json

    assert output.splitlines()[-1].endswith("run list --state queued")
    assert len(queue["waiting"]) == 2
    assert queue["counts"]["ready"] == {"count": 3, "is_capped": False}


# Cancellation of many runs


def test_cancellation_of_many_runs_asks_with_their_number(add_run, hookmill):
    for _ in range(2):
        add_run()
    add_run(RunState.SUCCEEDED, attempt=1)

    refused = hookmill("run", "cancel", "--automation", "triage", stdin=b"n\n", exit_code=1)
    cancelled = hookmill("run", "cancel", "--automation", "triage", stdin=b"y\n")
    again = hookmill("run", "cancel", "--all", "--yes")

    assert "Cancel 2 runs?" in refused.err
    assert cancelled.out.strip() == "2 cancelled, 0 being cancelled."
    assert again.out == "No unfinished runs match. Nothing was changed.\n"


@pytest.mark.parametrize("options", [("--state", "queued"), ("--webhook", "source"), ("--all",)])
def test_runs_are_cancelled_by_each_condition(add_run, hookmill, options):
    add_run()

    assert hookmill("run", "cancel", *options, "--yes", "--json").json == {"cancelled": 1, "stopping": 0}


@pytest.mark.parametrize(
    ("arguments", "problem", "exit_code"),
    [
        ((), "give a run, or at least one of --automation, --webhook, --state and --all", 2),
        (("run_0192f0c1aabbccddeeff001122334455", "--all"), "give a run or conditions, not both", 2),
        (("--all", "--json"), "give --yes as well", 2),
        (("--all", "--state", "queued", "--yes"), "Choose conditions or all runs, not both.", 1),
        (("--state", "failed"), "Invalid value for '--state': 'failed' is not one of 'queued', 'running'", 2),
    ],
)
def test_cancellation_without_clear_conditions_is_refused(automation, hookmill, arguments, problem, exit_code):
    assert problem in hookmill("run", "cancel", *arguments, exit_code=exit_code).err


def test_show_prints_the_values_of_fields(webhook, log, hookmill):
    automation = hookmill(
        *("automation", "create", "fields", "--prompt", "x", "--webhook", "source", "--json"),
        *("--field", "pr=/pr", "--field", "title=/title", "--field", "none=/none", "--field-max", "title=3"),
    ).json
    delivery = log.add_delivery(webhook["uid"], body=b'{"pr": 7, "title": "\\u001b[31mred"}')
    run = log.add_run(delivery, automation["automation_id"])

    shown = hookmill("run", "show", run)
    fields = hookmill("run", "show", run, "--json").json["fields"]

    assert fields["pr"] == {"type": "number", "value": 7, "cut": False}
    assert fields["title"] == {"type": "string", "value": "\x1b[3", "cut": True}
    assert fields["none"] == {"type": "missing", "value": None, "cut": False}
    assert "pr: 7" in shown.out
    assert "(cut)" in shown.out
    assert "none: missing" in shown.out
    assert "\x1b[3" not in shown.out


def test_show_has_the_summary(add_run, log, hookmill):
    run = add_run(RunState.SUCCEEDED, attempt=1)
    without = hookmill("run", "show", run, "--json").json
    assert (without["summary"], without["summary_source"]) == (None, None)
    log.execute("INSERT INTO run_outputs SELECT id, 'summary.md', ?, TRUE FROM runs", ("# Two bugs\nState  failed\n",))

    shown = hookmill("run", "show", run, "--json").json
    assert (shown["summary"], shown["summary_is_cut"]) == ("# Two bugs\nState  failed\n", True)
    assert shown["summary_source"] == "file"
    assert (
        "Summary     # Two bugs\n"
        "            State  failed\n"
        "            …\n"
    ) in hookmill("run", "show", run).out  # fmt: skip


def test_show_marks_a_summary_that_is_the_last_message(add_run, log, hookmill):
    run = add_run(RunState.SUCCEEDED, attempt=1)
    log.execute("INSERT INTO run_outputs SELECT id, ?, ?, FALSE FROM runs", (LAST_MESSAGE, "# Two bugs"))
    log.execute("INSERT INTO attempt_reports SELECT id, 1, '# Two bugs', FALSE, 1, 1, 1, NULL FROM runs")

    shown = hookmill("run", "show", run, "--json").json
    text = hookmill("run", "show", run).out

    assert (shown["summary"], shown["summary_source"]) == ("# Two bugs", "last_message")
    assert "Summary     the agent's last message, because it wrote no summary.md:\n            # Two bugs\n" in text
    assert text.count("Two bugs") == 1


def test_show_has_the_report_of_the_agent(add_run, log, hookmill):
    run = add_run(RunState.SUCCEEDED, attempt=1)
    log.execute(
        "INSERT INTO attempt_reports SELECT id, 1, ?, TRUE, 12300, 1500, 42, NULL FROM runs",
        ("Two bugs:\nState  succeeded \x1b[31m",),
    )

    assert hookmill("run", "show", run, "--json").json["agent_report"] == {
        "result": "Two bugs:\nState  succeeded \x1b[31m",
        "result_is_cut": True,
        "cost_usd": 0.0123,
        "input_tokens": 1500,
        "output_tokens": 42,
    }
    assert (
        "Used        $0.0123, 1,500 input tokens, 42 output tokens\n"
        "Result      Two bugs:\n"
        "            State  succeeded \\u001b[31m…\n"
    ) in hookmill("run", "show", run).out
