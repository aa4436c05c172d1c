"""The options of `hookmill automation create` and `change`, and the JSON fields that they set."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from hookmill.cli import inputs, options
from hookmill.domain.results import json_of_text
from hookmill.domain.run_options import RunOptions
from hookmill.domain.run_policy import Priority, WhenBusy
from hookmill.domain.schedule import CatchUp
from hookmill.domain.text import shown


def without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class PromptOptions:
    prompt: Annotated[str | None, typer.Option(metavar="TEXT", help="What a run should do.")] = None
    prompt_file: Annotated[
        str | None, typer.Option(metavar="FILE", help="A file with the prompt; - for standard input.")
    ] = None

    def read(self) -> str | None:
        inputs.require_at_most_one(prompt=self.prompt, prompt_file=self.prompt_file)
        return inputs.read_text(self.prompt_file, "The prompt file") if self.prompt_file is not None else self.prompt


@dataclass(frozen=True, kw_only=True)
class TriggerOptions:
    webhook: Annotated[
        list[str] | None,
        typer.Option(
            metavar="WEBHOOK",
            help="A webhook that starts it (name or uid). May be repeated, and replaces the previous ones.",
        ),
    ] = None
    filter_json: Annotated[
        str | None, typer.Option("--filter", metavar="JSON", help="Only deliveries whose payload matches this filter.")
    ] = None
    filter_file: options.FilterFile = None
    event: options.EventTypes = None
    schedule: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=CRON",
            help="A schedule that starts it, such as 'nightly=0 3 * * *', 'nightly=@daily' or 'poll=@every 30m'. May "
            "be repeated, and replaces the previous ones and their time zone.",
        ),
    ] = None
    timezone: Annotated[
        str | None,
        typer.Option(metavar="ZONE", help="The time zone of the schedules, such as Europe/Berlin. Default: UTC."),
    ] = None
    catch_up: Annotated[
        CatchUp | None,
        typer.Option(help="What happens to times that were missed: one run, or none. Default: once."),
    ] = None
    triggers_file: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A file with all triggers: the list that `automation show --json` prints."),
    ] = None

    def read_filter(self) -> Any:
        inputs.require_at_most_one(
            filter=self.filter_json, filter_file=self.filter_file, triggers_file=self.triggers_file
        )
        return inputs.read_filter(self.filter_json, self.filter_file)

    def read_triggers(self) -> Any:
        """The content of `--triggers-file`, which no other trigger may accompany; None without that option."""
        for name in ("webhook", "event", "schedule"):
            inputs.require_at_most_one(**{name: getattr(self, name)}, triggers_file=self.triggers_file)
        if self.triggers_file is None:
            return None
        label = "The triggers file"
        return inputs.parse_json(inputs.read_text(self.triggers_file, label), label)

    def schedule_triggers(self) -> list[dict[str, Any]]:
        """The triggers of the `--schedule` options."""
        if not self.schedule and (self.timezone is not None or self.catch_up is not None):
            raise typer.BadParameter("--timezone and --catch-up need --schedule")
        triggers = []
        for schedule in self.schedule or ():
            name, separator, cron = schedule.partition("=")
            if not separator:
                raise typer.BadParameter(
                    f"{shown(schedule[:100])!r} is not a schedule. Write NAME=CRON, such as 'nightly=0 3 * * *'",
                    param_hint="--schedule",
                )
            fields = {"name": name, "cron": cron, "timezone": self.timezone, "catch_up": self.catch_up}
            triggers.append({"provider": "schedule", "event": "cron_fired", "schedule": fields})
        return triggers


@dataclass(frozen=True, kw_only=True)
class TriggerChanges(TriggerOptions):
    no_filter: Annotated[bool, typer.Option("--no-filter", help="Remove the payload filter.")] = False
    any_event: Annotated[bool, typer.Option("--any-event", help="Remove the list of event types.")] = False
    no_schedule: Annotated[bool, typer.Option("--no-schedule", help="Remove all schedules.")] = False

    def refuse_contradictions(self) -> None:
        inputs.require_at_most_one(
            filter=self.filter_json,
            filter_file=self.filter_file,
            no_filter=self.no_filter,
            triggers_file=self.triggers_file,
        )
        inputs.require_at_most_one(event=self.event, any_event=self.any_event, triggers_file=self.triggers_file)
        inputs.require_at_most_one(
            schedule=self.schedule, no_schedule=self.no_schedule, triggers_file=self.triggers_file
        )


@dataclass(frozen=True, kw_only=True)
class PolicyOptions:
    concurrency_key: Annotated[
        list[str] | None,
        typer.Option(
            metavar="POINTER",
            help="A JSON pointer such as /pull_request/number: the limit applies to runs with equal values. May be "
            "repeated.",
        ),
    ] = None
    concurrency: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="At most N active runs, performed or ready to be; for each key if there is one."
        ),
    ] = None
    when_busy: Annotated[WhenBusy | None, typer.Option(help="What happens to a new run while N are active.")] = None
    debounce: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="Start the run of the newest delivery after this quiet time.")
    ] = None
    debounce_max: Annotated[
        int | None,
        typer.Option(
            metavar="SECONDS", help="The longest time after the first delivery. Default: ten times --debounce."
        ),
    ] = None
    retry: Annotated[int | None, typer.Option(metavar="N", help="Try a run again until N attempts have failed.")] = None
    retry_backoff: Annotated[
        int | None,
        typer.Option(metavar="SECONDS", help="The time before the second attempt. It doubles each time. Default: 30."),
    ] = None
    retry_max_backoff: Annotated[
        int | None, typer.Option(metavar="SECONDS", help="The longest time between two attempts. Default: 3600.")
    ] = None
    retry_exit_code: Annotated[
        list[int] | None, typer.Option(metavar="CODE", help="Only retry this exit code. May be repeated.")
    ] = None
    priority: Annotated[Priority | None, typer.Option(help="The order in which the factory's runs start.")] = None
    max_running: Annotated[
        int | None, typer.Option(metavar="N", help="Workers perform at most N of its runs at the same time.")
    ] = None
    pause_after_failures: Annotated[
        int | None, typer.Option(metavar="N", help="Disable it after N failed runs in a row.")
    ] = None

    def changes(self) -> dict[str, Any]:
        """A JSON merge patch of the automation. Omitted options keep the current values."""
        debounce = without_none({"seconds": self.debounce, "max_seconds": self.debounce_max})
        if self.debounce is not None:
            # A new time without its maximum gets the default maximum.
            debounce["max_seconds"] = self.debounce_max
        retry = {
            "attempts": self.retry,
            "backoff_seconds": self.retry_backoff,
            "max_backoff_seconds": self.retry_max_backoff,
            "exit_codes": self.retry_exit_code or None,
        }
        key = self.concurrency_key or None
        changes = {
            "concurrency": without_none({"key": key, "limit": self.concurrency, "when_busy": self.when_busy}),
            "debounce": debounce,
            "retry": without_none(retry),
            "priority": self.priority,
            "max_running": self.max_running,
            "pause_after_failures": self.pause_after_failures,
        }
        return {name: value for name, value in changes.items() if value not in (None, {})}


@dataclass(frozen=True, kw_only=True)
class RunOptionGroup(PolicyOptions):
    field: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=POINTER",
            help="A value of the payload for envelope.json, such as pr=/pull_request/number. May be repeated, and "
            "replaces the previous fields.",
        ),
    ] = None
    field_max: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=N",
            help="Cut the strings of this field after N characters instead of 200. May be repeated.",
        ),
    ] = None
    secret: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[VARIABLE=]NAME",
            help="A secret that its runs get as an environment variable, such as GH_TOKEN. May be repeated, and "
            "replaces the previous ones.",
        ),
    ] = None
    workspace: Annotated[
        str | None,
        typer.Option(metavar="REPOSITORY", help="Each run gets a checkout of this repository of the settings."),
    ] = None
    workspace_ref: Annotated[
        str | None,
        typer.Option(metavar="REF", help="The commit id, branch or tag of the checkout. Default: the default branch."),
    ] = None
    workspace_ref_from: Annotated[
        str | None,
        typer.Option(
            metavar="POINTER", help="The JSON pointer of the ref in the payload, such as /pull_request/head/sha."
        ),
    ] = None
    workspace_base: Annotated[
        str | None,
        typer.Option(metavar="REF", help="A commit id, branch or tag with which commands can compare the checkout."),
    ] = None
    workspace_base_from: Annotated[
        str | None,
        typer.Option(
            metavar="POINTER", help="The JSON pointer of the base in the payload, such as /pull_request/base/ref."
        ),
    ] = None
    workspace_depth: Annotated[
        str | None, typer.Option(metavar="N", help="How many commits of the history it has, or full. Default: 1.")
    ] = None
    result: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KIND=DESTINATION",
            help="What a worker delivers about each run, such as github_comment=github, or "
            "github_check=github=CONTEXT. May be repeated, and replaces the previous ones.",
        ),
    ] = None

    def changes(self) -> dict[str, Any]:
        changes = {
            "fields": self._fields(),
            "secrets": self.secret,
            "workspace": self._workspace(),
            "results": self._results(),
        }
        return super().changes() | {name: value for name, value in changes.items() if value}

    def _fields(self) -> dict[str, Any]:
        sources: dict[str, dict[str, Any]] = {}
        for field in self.field or ():
            name, separator, pointer = field.partition("=")
            if not separator or name in sources:
                raise typer.BadParameter(
                    f"{shown(field[:100])!r} is not a field, or its name is a duplicate. Write NAME=POINTER, such as "
                    "pr=/pull_request/number",
                    param_hint="--field",
                )
            sources[name] = {"pointer": pointer, "max_characters": None}
        for maximum in self.field_max or ():
            name, _, number = maximum.partition("=")
            if name not in sources or not _is_short_number(number):
                raise typer.BadParameter(
                    f"{shown(maximum[:100])!r} is not NAME=N with the name of a --field and a number, such as "
                    "title=500",
                    param_hint="--field-max",
                )
            sources[name]["max_characters"] = int(number)
        return sources

    def _workspace(self) -> dict[str, Any]:
        ref, ref_pointer, depth = self.workspace_ref, self.workspace_ref_from, self.workspace_depth
        base, base_pointer = self.workspace_base, self.workspace_base_from
        inputs.require_at_most_one(workspace_ref=ref, workspace_ref_from=ref_pointer)
        inputs.require_at_most_one(workspace_base=base, workspace_base_from=base_pointer)
        if self.workspace is None:
            if any(option is not None for option in (ref, ref_pointer, base, base_pointer, depth)):
                raise typer.BadParameter("The other options that begin with --workspace- need --workspace")
            return {}
        return {
            "repository": self.workspace,
            "ref": {"pointer": ref_pointer} if ref_pointer is not None else ref,
            "base": {"pointer": base_pointer} if base_pointer is not None else base,
            "depth": int(depth) if depth is not None and _is_short_number(depth) else depth,
        }

    def _results(self) -> list[dict[str, Any]]:
        declared = []
        for result in self.result or ():
            source = json_of_text(result)
            if source is None:
                raise typer.BadParameter(
                    f"{shown(result[:100])!r} is not a result. Write KIND=DESTINATION, such as github_comment=github",
                    param_hint="--result",
                )
            declared.append(source)
        return declared


@dataclass(frozen=True, kw_only=True)
class RunOptionChanges(RunOptionGroup):
    no_concurrency: Annotated[bool, typer.Option("--no-concurrency", help="Remove the limit of active runs.")] = False
    no_debounce: Annotated[bool, typer.Option("--no-debounce", help="Start runs immediately.")] = False
    no_retry: Annotated[
        bool, typer.Option("--no-retry", help="Remove the retry rule. If the runner has one, it applies.")
    ] = False
    no_max_running: Annotated[bool, typer.Option("--no-max-running", help="Remove the limit of --max-running.")] = False
    no_pause_after_failures: Annotated[
        bool, typer.Option("--no-pause-after-failures", help="Never disable it because of failures.")
    ] = False
    no_fields: Annotated[bool, typer.Option("--no-fields", help="Remove all fields.")] = False
    no_secrets: Annotated[bool, typer.Option("--no-secrets", help="Remove all secrets.")] = False
    no_workspace: Annotated[bool, typer.Option("--no-workspace", help="Runs get no checkout.")] = False
    no_results: Annotated[bool, typer.Option("--no-results", help="Deliver no results.")] = False

    def changes(self) -> dict[str, Any]:
        changes = super().changes()
        for name in RunOptions.__struct_fields__:
            if getattr(self, f"no_{name}", False):
                # The options of lists are in the singular.
                option = name if hasattr(self, name) else name.removesuffix("s")
                inputs.require_at_most_one(**{option: changes.get(name), f"no_{name}": True})
                changes[name] = None
        return changes


def _is_short_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10
