"""The section *Health* of the map: its rows, and that every text is escaped."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

from bs4 import BeautifulSoup
from jinja2 import Environment, FileSystemLoader

from jupyterhub_gpuspawner.extensions.fleet import page
from jupyterhub_gpuspawner.extensions.fleet.health import FleetHealth, Grant, health
from jupyterhub_gpuspawner.extensions.fleet.node_record import merged
from jupyterhub_gpuspawner.extensions.fleet.page import health_section
from tests.extensions.fleet.nodes import DAY, record, seen_often, topology, view, with_gpu

TEMPLATES = Path(page.__file__).parent / "templates"
EVIL = "<script>alert(1)</script>"


def rendered(health: FleetHealth) -> BeautifulSoup:
    """The section alone."""
    jinja = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True)
    template = jinja.get_template("gpuspawner_health.html")
    section = health_section(health, 3 * DAY)
    tools = SimpleNamespace(static="{}{}".format)
    html = template.render(health=section, gpuspawner=tools, base_url="/hub/")
    return BeautifulSoup(html, "html.parser")


def rows(page: BeautifulSoup) -> list[tuple[bool, list[str]]]:
    """Of each node whether it stands out, and what its three parts say."""
    nodes = page.select("ul.gpuspawner-health > li")
    texts = ([div.get_text(" ", strip=True) for div in node.find_all("div", recursive=False)] for node in nodes)
    return [(node in page.select("li.ill"), parts) for node, parts in zip(nodes, texts, strict=True)]


def test_the_rows_of_a_fleet() -> None:
    """The node that differs first, each with its findings, its grants and what is not known."""
    nodes = [record("g2"), record("g3"), seen_often("g1", with_gpu(topology("g1"), 0, pcie_width=8))]
    page = rendered(health(nodes, [Grant("7", "g2", DAY, 1, aligned=True)]))

    assert rows(page)[:2] == [
        (
            True,
            [
                "g1 4 \N{MULTIPLICATION SIGN} v100, 2 siblings",
                "differs 4 of 4 GPUs seen, by 10 jobs that agree; last report 2 days ago",
                "0000:07:00.0: PCIe lanes 8; 2 siblings have 16. Grants: No jobs with GPUs yet.",
            ],
        ),
        (
            False,
            [
                "g2 4 \N{MULTIPLICATION SIGN} v100, 2 siblings",
                "as its siblings 4 of 4 GPUs seen, by 1 job; last report 2 days ago",
                "Grants: 1 job: none could have been placed better, as far as is known.",
            ],
        ),
    ]


def test_what_one_person_reports_alone_is_said_to_be_that() -> None:
    """The node comes after those that differ by the jobs of several people, and is not counted with them."""
    lost = with_gpu(topology("g1"), 0, fault="GPU is lost")
    node = merged(None, replace(view("g1", lost), user="ada"))
    page = rendered(health([record("g2"), record("g3"), node], []))

    is_ill, (name, state, findings) = rows(page)[0]
    assert (is_ill, name.split()[0], state.startswith("perhaps differs")) == (False, "g1", True)
    assert findings.startswith("0000:07:00.0: GPU is lost (by one person's jobs alone). Grants: ")
    assert "3 nodes known; none differs or contradicts Slurm's configuration." in page.get_text()


def test_texts_of_a_node_are_escaped() -> None:
    """A report is written by a user's job: names of GPUs, bus ids and drivers may be anything."""
    whole = topology("g1", driver=EVIL)
    nodes = [record("g2"), record("g3"), record("g1", with_gpu(whole, 0, name=EVIL))]
    page = rendered(health(nodes, []))

    assert page.find("script") is None
    assert EVIL in page.get_text()


def test_a_hub_that_knows_nothing_says_so() -> None:
    """And one whose Slurm is silent."""
    page = rendered(FleetHealth(slurm_asked=False)).get_text(" ", strip=True)
    assert "No server has reported from a node with GPUs yet." in page
    assert "Slurm is not responding; its configuration is that of the last reports." in page
