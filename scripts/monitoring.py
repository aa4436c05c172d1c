"""Writes what depends on the definitions of the metrics: `python -m scripts.monitoring`.

They are the table in docs/monitoring.md, and the Grafana dashboard in deploy/grafana.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any, Final

from hookmill.metrics import HOST_METRICS, INSTALLATION_METRICS, PROCESS_METRICS, MetricDefinition

ROOT: Final = Path(__file__).resolve().parent.parent
PAGE: Final = ROOT / "docs" / "monitoring.md"
DASHBOARD: Final = ROOT / "deploy" / "grafana" / "hookmill.json"

METRICS: Final = {"process": PROCESS_METRICS, "installation": INSTALLATION_METRICS, "host": HOST_METRICS}
"""The metrics in the table of the page, and what they are about."""
FIRST_MARK: Final = "<!-- This table is written by `python -m scripts.monitoring`. -->\n"
LAST_MARK: Final = "<!-- The table ends here. -->\n"

LISTED_VALUES_MAX: Final = 6
"""A table lists the values of a label if there are not more."""

PANEL_WIDTH: Final = 12
PANEL_HEIGHT: Final = 8
GRID_WIDTH: Final = 24


@dataclass(frozen=True, slots=True)
class Query:
    """A PromQL query, and the legend of its series. `SELECTED` in the query selects the job and the instances."""

    promql: str
    legend: str


@dataclass(frozen=True, slots=True)
class Panel:
    title: str
    unit: str
    """The id of the unit in Grafana."""
    queries: Sequence[Query]
    description: str = ""
    is_stacked: bool = field(default=False, kw_only=True)


SELECTED: Final = 'job="$job",instance=~"$instance"'
RATE: Final = "[$__rate_interval]"


def _quantiles(metric: str, by: str = "", legend: str = "") -> list[Query]:
    labels = f"{by}, le" if by else "le"
    rates = f"sum by ({labels}) (rate({metric}_bucket{{{SELECTED}}}{RATE}))"
    return [
        Query(f"histogram_quantile({share}, {rates})", f"{legend}{name}")
        for share, name in ((0.5, "median"), (0.9, "90 %"), (0.99, "99 %"))
    ]


def _by_kind_of_process(promql: str) -> str:
    return f'sum by (kind) (label_replace({promql}, "kind", "$1", "process", "([a-z]+)-.*"))'


ROWS: Final[dict[str, Sequence[Panel]]] = {
    "Deliveries": (
        Panel(
            "Deliveries by outcome",
            "reqps",
            [Query(f"sum by (outcome) (rate(hookmill_deliveries_total{{{SELECTED}}}{RATE}))", "{{outcome}}")],
            is_stacked=True,
        ),
        Panel(
            "Dropped attempts",
            "reqps",
            [Query(f"sum by (kind) (rate(hookmill_dropped_attempts_total{{{SELECTED}}}{RATE}))", "{{kind}}")],
            "Attempts without a row in the log.",
            is_stacked=True,
        ),
    ),
    "Latency": (
        Panel(
            "Time to the answer",
            "s",
            _quantiles("hookmill_delivery_seconds"),
            "Accepted and duplicate deliveries, with the time that the senders need for their bodies.",
        ),
        Panel(
            "Average time to the answer",
            "s",
            [
                Query(
                    f"sum by (instance) (rate(hookmill_delivery_seconds_sum{{{SELECTED}}}{RATE})) / "
                    f"sum by (instance) (rate(hookmill_delivery_seconds_count{{{SELECTED}}}{RATE}))",
                    "{{instance}}",
                )
            ],
        ),
    ),
    "Commits": (
        Panel("Duration of commits", "s", _quantiles("hookmill_commit_seconds")),
        Panel(
            "Deliveries per commit",
            "short",
            [
                Query(
                    f"sum(rate(hookmill_commit_deliveries_sum{{{SELECTED}}}{RATE})) / "
                    f"sum(rate(hookmill_commit_deliveries_count{{{SELECTED}}}{RATE}))",
                    "average",
                )
            ],
        ),
        Panel(
            "Commits",
            "ops",
            [
                Query(f"sum(rate(hookmill_commit_seconds_count{{{SELECTED}}}{RATE}))", "committed"),
                Query(f"sum(rate(hookmill_failed_commits_total{{{SELECTED}}}{RATE}))", "failed"),
                Query(f"sum(rate(hookmill_writer_restarts_total{{{SELECTED}}}{RATE}))", "restarts of the writer"),
            ],
        ),
        Panel(
            "Deliveries that wait for a commit",
            "short",
            [Query(f"sum by (instance) (hookmill_deliveries_waiting{{{SELECTED}}})", "{{instance}}")],
        ),
    ),
    "Queue": (
        Panel(
            "Unfinished runs",
            "short",
            [
                Query(f"max(hookmill_runs_running{{{SELECTED}}})", "running"),
                Query(f"max(hookmill_runs_ready{{{SELECTED}}})", "ready"),
                Query(f"max by (reason) (hookmill_runs_held{{{SELECTED}}})", "held: {{reason}}"),
            ],
            "At most 10,000 ready runs are counted, and as many held runs for each reason.",
            is_stacked=True,
        ),
        Panel(
            "Age of the oldest ready run",
            "s",
            [Query(f"max(hookmill_oldest_ready_run_age_seconds{{{SELECTED}}})", "age")],
        ),
        Panel(
            "Slots of workers",
            "short",
            [
                Query(f"sum(hookmill_run_slots{{{SELECTED}}})", "slots"),
                Query(f"sum(hookmill_runs_in_flight{{{SELECTED}}})", "in use"),
            ],
        ),
        Panel(
            "Workers and uploads",
            "short",
            [
                Query(f"max(hookmill_workers{{{SELECTED}}})", "workers"),
                Query(f"max(hookmill_pending_uploads{{{SELECTED}}})", "files to upload"),
            ],
        ),
        Panel(
            "Open alarms",
            "short",
            [Query(f"max by (kind) (hookmill_open_alarms{{{SELECTED}}})", "{{kind}}")],
        ),
    ),
    "Runs": (
        Panel(
            "Attempts by result",
            "ops",
            [Query(f"sum by (result) (rate(hookmill_attempts_total{{{SELECTED}}}{RATE}))", "{{result}}")],
            is_stacked=True,
        ),
        Panel(
            "Share of failed attempts",
            "percentunit",
            [
                Query(
                    f'sum by (runner) (rate(hookmill_attempts_total{{{SELECTED},result="failed"}}{RATE})) / '
                    f"sum by (runner) (rate(hookmill_attempts_total{{{SELECTED}}}{RATE}))",
                    "{{runner}}",
                )
            ],
        ),
        Panel("Duration of attempts", "s", _quantiles("hookmill_attempt_seconds", "runner", "{{runner}}, ")),
        Panel("Time from the creation to the first attempt", "s", _quantiles("hookmill_run_wait_seconds")),
    ),
    "Host": (
        Panel(
            "Processor time",
            "percentunit",
            [Query(_by_kind_of_process(f"rate(hookmill_process_cpu_seconds_total{{{SELECTED}}}{RATE})"), "{{kind}}")],
            "100 % is one core. Commands of runs are not included.",
            is_stacked=True,
        ),
        Panel(
            "Memory",
            "bytes",
            [Query(_by_kind_of_process(f"hookmill_process_resident_memory_bytes{{{SELECTED}}}"), "{{kind}}")],
            "Memory that processes share counts for each of them.",
            is_stacked=True,
        ),
        Panel(
            "Free disk space",
            "bytes",
            [
                Query(f"hookmill_disk_free_bytes{{{SELECTED}}}", "free: {{instance}}"),
                Query(f"hookmill_disk_free_bytes_min{{{SELECTED}}}", "minimum: {{instance}}"),
            ],
        ),
        Panel(
            "Free inodes",
            "short",
            [Query(f"hookmill_disk_free_inodes{{{SELECTED}}}", "{{instance}}")],
        ),
        Panel(
            "Size of the database",
            "bytes",
            [Query(f"max by (part) (hookmill_database_bytes{{{SELECTED}}})", "{{part}}")],
        ),
        Panel(
            "Deliveries that retention removes",
            "ops",
            [Query(f"sum(rate(hookmill_retention_removed_deliveries_total{{{SELECTED}}}{RATE}))", "removed")],
        ),
        Panel(
            "Faults",
            "ops",
            [Query(f"sum by (component) (rate(hookmill_faults_total{{{SELECTED}}}{RATE})) > 0", "{{component}}")],
            "The service's log has the reasons.",
            is_stacked=True,
        ),
        Panel(
            "Age of data",
            "s",
            [
                Query(f"hookmill_process_metrics_age_seconds{{{SELECTED}}}", "metrics: {{process}}"),
                Query(f"hookmill_snapshot_age_seconds{{{SELECTED}}}", "webhooks: {{process}}"),
                Query(
                    f"time() - max(hookmill_retention_last_pass_timestamp_seconds{{{SELECTED}}} > 0)",
                    "last pass of retention",
                ),
            ],
        ),
        Panel(
            "Spans of traces",
            "ops",
            [Query(f"sum by (result) (rate(hookmill_spans_total{{{SELECTED}}}{RATE}))", "{{result}}")],
        ),
        Panel(
            "Webhooks in memory",
            "short",
            [Query(f"max by (instance) (hookmill_snapshot_webhooks{{{SELECTED}}})", "{{instance}}")],
        ),
    ),
}
"""The panels of each row of the dashboard."""


def page(text: str) -> str:
    """The text of the page, with the present metrics in its table."""
    start, end = text.index(FIRST_MARK) + len(FIRST_MARK), text.index(LAST_MARK)
    rows = "".join(_row(subject, definition) for subject, definitions in METRICS.items() for definition in definitions)
    return f"{text[:start]}\n| Metric | Of | Type | Labels | Meaning |\n|---|---|---|---|---|\n{rows}\n{text[end:]}"


def _row(subject: str, definition: MetricDefinition) -> str:
    labels = "; ".join(_label(name, values) for name, values in definition.labels.items())
    return f"| `{definition.name}` | {subject} | {definition.kind} | {labels} | {definition.meaning} |\n"


def _label(name: str, values: Sequence[str]) -> str:
    """The label, and its values if they are few."""
    is_listed = 0 < len(values) <= LISTED_VALUES_MAX
    return f"`{name}`: {', '.join(f'`{value}`' for value in values)}" if is_listed else f"`{name}`"


def dashboard() -> dict[str, Any]:
    """The dashboard in Grafana's format."""
    return {
        "uid": "hookmill",
        "title": "Hookmill",
        "description": "Webhook deliveries and runs. Written by `python -m scripts.monitoring`.",
        "tags": ["hookmill"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timepicker": {},
        "annotations": {"list": []},
        "links": [],
        "templating": {
            "list": [
                {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
                _variable("job", "Job", "label_values(hookmill_build_info, job)", is_multiple=False),
                _variable("instance", "Instance", 'label_values(hookmill_build_info{job="$job"}, instance)'),
            ]
        },
        "panels": list(_panels()),
    }


def _variable(name: str, label: str, query: str, *, is_multiple: bool = True) -> dict[str, Any]:
    all_values = {"current": {"text": ["All"], "value": ["$__all"]}} if is_multiple else {}
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": is_multiple,
        "includeAll": is_multiple,
        **all_values,
    }


_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def _panels() -> Iterator[dict[str, Any]]:
    ids = count(1)
    y = 0
    for title, panels in ROWS.items():
        yield {
            "id": next(ids),
            "type": "row",
            "title": title,
            "collapsed": False,
            "gridPos": {"x": 0, "y": y, "w": GRID_WIDTH, "h": 1},
            "panels": [],
        }
        y += 1
        per_line = GRID_WIDTH // PANEL_WIDTH
        for position, panel in enumerate(panels):
            x = position % per_line * PANEL_WIDTH
            yield _panel(next(ids), panel, x, y + position // per_line * PANEL_HEIGHT)
        y += -(-len(panels) // per_line) * PANEL_HEIGHT


def _panel(number: int, panel: Panel, x: int, y: int) -> dict[str, Any]:
    stacking = {"mode": "normal", "group": "A"} if panel.is_stacked else {"mode": "none"}
    custom = {"fillOpacity": 30 if panel.is_stacked else 0, "lineWidth": 1, "showPoints": "never", "stacking": stacking}
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.description,
        "datasource": _DATASOURCE,
        "gridPos": {"x": x, "y": y, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + position),
                "datasource": _DATASOURCE,
                "editorMode": "code",
                "expr": query.promql,
                "legendFormat": query.legend,
                "range": True,
            }
            for position, query in enumerate(panel.queries)
        ],
    }


def dashboard_text() -> str:
    return json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
    DASHBOARD.write_text(dashboard_text())
    print(f"{PAGE.name} and {DASHBOARD.name} are written.")
