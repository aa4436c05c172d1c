"""The files for operators: the page, the alert rules and the dashboard name only metrics that exist."""

import json
import re
import subprocess
from pathlib import Path

import yaml

from hookmill.metrics import HOST_METRICS, INSTALLATION_METRICS, PROCESS_METRICS, MetricDefinition, MetricKind
from scripts import monitoring
from tests.support.prometheus import program

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "monitoring.md"
RULES = ROOT / "deploy" / "prometheus" / "hookmill-alerts.yaml"
ALERT_TESTS = Path(__file__).with_name("alerts.yaml")
METRICS = {each.name: each for each in (*PROCESS_METRICS, *INSTALLATION_METRICS, *HOST_METRICS)}
PARTS_OF_HISTOGRAMS = ("_bucket", "_sum", "_count")


def rule_queries() -> dict[str, str]:
    """The queries of the alert rules, by the alert's name."""
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    return {rule["alert"]: rule["expr"] for rule in group["rules"]}


def dashboard_queries() -> list[str]:
    """The queries of the dashboard's panels, with values for its variables."""
    panels = json.loads(monitoring.DASHBOARD.read_text())["panels"]
    queries = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    values = {"$job": "hookmill", "$instance": ".*", "$__rate_interval": "5m"}
    for variable, value in values.items():
        queries = [query.replace(variable, value) for query in queries]
    return queries


def page_queries() -> list[str]:
    """The queries in the page's tables."""
    section = PAGE.read_text().partition("### Useful queries")[2].partition("\n### ")[0]
    return re.findall(r"\| `(.+)` \|$", section, re.MULTILINE)


def unknown_parts(query: str) -> list[str]:
    """The metrics and the labels in a query that don't exist."""
    unknown = []
    for name, selector in re.findall(r"\b(hookmill_\w+)(?:\{([^}]*)\})?", query):
        definition = definition_of(name)
        if definition is None:
            unknown.append(name)
            continue
        labels = {"job", "instance", "process", *definition.labels}
        unknown += [
            f"{name} {label}={value}"
            for label, _, value in re.findall(r"(\w+)(=~|=)\"([^\"]*)\"", selector)
            if label not in labels or (definition.labels.get(label) and value not in definition.labels[label])
        ]
    return unknown


def definition_of(series: str) -> MetricDefinition | None:
    if series in METRICS:
        # A histogram has no series with its own name.
        return METRICS[series] if METRICS[series].kind is not MetricKind.HISTOGRAM else None
    for part in PARTS_OF_HISTOGRAMS:
        definition = METRICS.get(series.removesuffix(part)) if series.endswith(part) else None
        if definition is not None and definition.kind is MetricKind.HISTOGRAM:
            return definition
    return None


def test_page_has_the_table_of_metrics():
    page = PAGE.read_text()

    assert page == monitoring.page(page), "write it again: python -m scripts.monitoring"
    assert [name for name in METRICS if f"\n| `{name}` |" not in page] == []


def test_dashboard_is_the_one_that_the_script_writes():
    assert monitoring.DASHBOARD.read_text() == monitoring.dashboard_text(), "write it again"


def test_every_query_uses_metrics_and_labels_that_exist():
    queries = [*rule_queries().values(), *dashboard_queries(), *page_queries()]

    assert len(queries) > 50
    assert [unknown for query in queries for unknown in unknown_parts(query)] == []


def test_dashboard_shows_every_metric_that_has_a_history():
    queries = "\n".join(dashboard_queries())
    without_panel = {"hookmill_build_info", "hookmill_database_up", "hookmill_disk_full"}

    assert {name for name in METRICS if name not in queries} == without_panel


def test_promtool_accepts_the_alert_rules():
    done = subprocess.run([program("promtool"), "check", "rules", RULES], capture_output=True, text=True)

    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_in_the_cases_that_they_are_for():
    done = subprocess.run(
        [program("promtool"), "test", "rules", ALERT_TESTS], cwd=ALERT_TESTS.parent, capture_output=True, text=True
    )

    assert done.returncode == 0, done.stdout + done.stderr
    tested = ALERT_TESTS.read_text()
    assert [name for name in rule_queries() if f'alertname="{name}"' not in tested] == []


def test_promtool_accepts_the_configuration_of_the_page(tmp_path):
    [configuration] = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "token").write_text("secret")
    (tmp_path / RULES.name).write_text(RULES.read_text())
    file = tmp_path / "prometheus.yaml"
    file.write_text(configuration.replace("/etc/prometheus/hookmill-token", "token"))

    done = subprocess.run([program("promtool"), "check", "config", file], capture_output=True, text=True)

    assert configuration.startswith("scrape_configs:")
    assert f"\nrule_files:\n  - {RULES.name}\n" in configuration
    assert done.returncode == 0, done.stdout + done.stderr
