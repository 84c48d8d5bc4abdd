"""What the dashboard, the alert rules and the reference name is what a gateway has, and all of it."""

import asyncio
import json
import re
from pathlib import Path

import yaml

from tests.support.gateway_process import running
from warmturn.gateway.config import DecisionLogPart, RoutingPart

ROOT = Path(__file__).parents[2]
DASHBOARD = ROOT / "deploy" / "grafana-dashboard.json"
ALERTS = ROOT / "deploy" / "prometheus-alerts.yml"
PAGE = ROOT / "docs" / "reference" / "gateway-metrics.md"
NAME = re.compile(r"\bwarmturn_\w+")


def exported(folder):
    """Names of all families of a gateway that has seen two turns, with their labels."""

    async def scenario():
        log = DecisionLogPart(file=folder / "log")
        async with running(2, routing=RoutingPart(shadow="affinity"), decision_log=log) as gateway:
            for _ in range(2):
                await gateway.chat("hello", headers={"x-session-id": "s"})
            await asyncio.sleep(0.2)  # capacity comes with a look at the replicas' metrics
            return {
                family.name + ("_total" if family.type == "counter" else ""): family
                for family in gateway.gateway.metrics.registry.collect()
            }

    return asyncio.run(scenario())


def base(name):
    return re.sub(r"_(bucket|sum|count)$", "", name)


def test_every_metric_of_dashboard_alerts_and_page_exists_and_all_are_described(tmp_path):
    there = exported(tmp_path)
    expressions = [
        target["expr"]
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for target in panel["targets"]
    ]
    rules = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
    expressions += [rule["expr"] for rule in rules]
    used = {base(name) for text in expressions for name in NAME.findall(text)}
    assert len(used) > 15
    assert used - there.keys() == set()
    rows = re.findall(r"^\| `(warmturn_\w+)` \|([^|]*)\|", PAGE.read_text(), re.MULTILINE)
    described = {
        name: {label.strip() for label in labels.split(",")} - {""} for name, labels in rows
    }
    events = {"warmturn_replica_events"}  # these replicas publish none
    assert described.keys() - events == there.keys()
    for name, family in there.items():
        labels = {label for sample in family.samples for label in sample.labels} - {"le"}
        assert labels <= described[name], name


def test_dashboard_panels_do_not_overlap_and_have_titles():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places = {(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in panels}
    assert len(places) == len(panels) == len({panel["title"] for panel in panels})
    assert all(panel["targets"] for panel in panels)


def test_every_alert_says_what_it_means():
    for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in {"info", "warning", "critical"}
        assert rule["annotations"]["summary"].endswith(".")
