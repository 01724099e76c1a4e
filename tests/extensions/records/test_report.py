"""The report: its numbers, and that it needs nothing else and names nobody."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import replace
from datetime import timezone
from hashlib import sha256

from bs4 import BeautifulSoup

from jupyterhub_gpuspawner.extensions.records.record import SessionRecord
from jupyterhub_gpuspawner.extensions.records.report import quantile, report
from jupyterhub_gpuspawner.hub.job.cause import Cause, Kind, start_failed
from tests.extensions.records import a_record
from tests.standins.session_events import NOON

RECORD = replace(a_record.RECORD, promises=())
REFUSED = replace(
    RECORD,
    session="refused",
    username="ben",
    ready_at=None,
    gpus=None,
    gpu_seconds_measured=0.0,
    cause=start_failed("queue_timeout"),
)
OTHER = replace(
    RECORD, session="other", begun_at=NOON + 3600, ready_at=NOON + 3705, queue_seconds=90.0, ended_at=NOON + 3731
)
OTHER = replace(OTHER, allocated_at=NOON + 131, aligned=None, weakest_link="SYS", cause=Cause(Kind.CULLED))


def rows_of(*records: SessionRecord) -> list[list[str]]:
    """The rows of all tables of a report, and what its chart says in words."""
    page = BeautifulSoup(report(records, title="Sessions", created=NOON, zone=timezone.utc), "html.parser")
    rows = [[cell.get_text() for cell in row.select("th, td:not(.bar)")] for row in page.select("tbody tr")]
    return [*rows, *([text.get_text()] for text in page.select("svg desc"))]


def test_sessions_are_summed_up() -> None:
    """Waits, GPU-hours, alignment, links, causes and faults."""
    assert rows_of(RECORD, OTHER, REFUSED) == [
        ["two-k80", "45 s", "30 s", "1 min", "2"],
        ["two-k80", "2.3", "0.1", "25 %", "2.0"],
        ["Tesla K80", "2", "1", "0", "1"],
        ["PIX", "1"],
        ["SYS", "1"],
        ["Culled", "1", "33 %"],
        ["Start failed", "1", "33 %"],
        ["Time limit", "1", "33 %"],
        ["queue_timeout", "1"],
        ["12:00, 1 start: median 45 s, 9 of 10 45 s. 13:00, 1 start: median 1 min, 9 of 10 1 min."],
    ]


def test_the_style_of_a_report_is_the_one_that_its_policy_allows() -> None:
    """By its hash: nothing that a profile's name might bring is."""
    page = BeautifulSoup(report((RECORD,), title="Sessions", created=NOON), "html.parser")
    styles = [b64encode(sha256(style.encode_contents()).digest()).decode() for style in page.select("style")]
    policies = [str(meta["content"]) for meta in page.select("meta[http-equiv]")]

    assert policies == [f"default-src 'none'; style-src 'sha256-{styles[0]}'"]


def test_a_time_in_the_queue_that_is_not_known_is_not_zero() -> None:
    """As of a server whose start was resumed by another hub process."""
    assert rows_of(replace(RECORD, queue_seconds=None))[0] == ["two-k80", "45 s", "not known", "45 s", "1"]


def test_a_profile_is_summed_up_for_each_of_several_clusters() -> None:
    """Its waits and its use are those of the cluster; where all are on one, that has nothing to say."""
    juniper, cedar = (replace(record, cluster=name) for record, name in ((RECORD, "juniper"), (OTHER, "cedar")))
    profiles = [[row[0] for row in rows_of(*records) if "k80" in row[0]] for records in ((juniper, cedar), (cedar,))]

    assert profiles == [
        ["two-k80 on cedar", "two-k80 on juniper", "two-k80 on cedar", "two-k80 on juniper"],
        ["two-k80", "two-k80"],
    ]


def test_use_is_never_more_than_was_held() -> None:
    """Whoever owns a server may claim any use."""
    claimed = replace(RECORD, gpu_seconds_measured=1e9, gpu_seconds_busy=1e9)

    assert rows_of(claimed)[1] == ["two-k80", "0.3", "0.3", "100 %", "0.0"]


def test_expected_starts_are_compared_with_what_came() -> None:
    """By profile and by hour: one was to start now, and the other within a minute of the 30 seconds that it took."""
    text = report([a_record.RECORD], zone=timezone.utc, title="Sessions", created=NOON)
    sections = BeautifulSoup(text, "html.parser").select("section")
    (section,) = (section for section in sections if "Expected starts" in section.get_text())
    rows = [[cell.get_text() for cell in row.select("th, td.number")] for row in section.select("tbody tr")]

    assert "Of 1 that were to start now, 1 started within a minute." in section.get_text()
    assert rows == [["two-k80", "100 %", "30 s", "30 s", "2"], ["12:00", "100 %", "30 s", "30 s", "2"]]


def test_a_quantile_is_one_of_the_values() -> None:
    """Half of three are two, and nine of ten of them all."""
    assert [quantile([3.0, 1.0, 2.0], part) for part in (0.5, 0.9)] == [2.0, 3.0]


def test_a_report_is_one_file_without_names() -> None:
    """No script, nothing from elsewhere; each chart has its numbers as text."""
    hostile = replace(RECORD, session="x", profile="<script>alert(1)</script>")
    text = report([RECORD, OTHER, REFUSED, hostile], zone=timezone.utc, title="Course <dl>", created=NOON)
    page = BeautifulSoup(text, "html.parser")

    assert page.title is not None
    assert page.title.get_text() == "Course <dl>"
    assert page.select("script, link, img, iframe, [src], [href]") == []
    assert "ada" not in page.get_text().split()
    assert [heading.get_text() for heading in page.select("h2")] == [
        "Waits by profile",
        "Waits by hour of the day",
        "Expected starts",
        "Use of GPUs",
        "Alignment",
        "Ends by cause",
    ]
    assert all(table.caption is not None and table.select("th[scope=row]") for table in page.select("table"))
    (day,) = page.select("svg[role=img]")
    assert "12:00, 2 starts: median 45 s, 9 of 10 45 s." in day.get_text()
    assert all(svg.get("aria-hidden") == "true" for svg in page.select("svg") if svg is not day)


def test_a_report_of_nothing_says_so() -> None:
    """A hub that has just been set up, or a course that has not begun."""
    assert "There are no sessions that have ended." in report([], title="Sessions", created=NOON)
