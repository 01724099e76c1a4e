"""Ten thousand hostile values and bodies at the doors, in this process: refused, or data."""

from __future__ import annotations

import json
import re
import shlex
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.batch import script
from jupyterhub_gpuspawner.batch.job import in_batchspawners_names
from jupyterhub_gpuspawner.batch.template import render_template
from jupyterhub_gpuspawner.errors import ConfigError, ReportError, RequestError
from jupyterhub_gpuspawner.hub.job.log import OF_ENDING, shown
from jupyterhub_gpuspawner.hub.report.server_report import parse_report
from jupyterhub_gpuspawner.profiles.option import SETTABLE
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import JobRequest, choice_from_form, resolve
from jupyterhub_gpuspawner.profiles.sections import ServerCommand
from jupyterhub_gpuspawner.slurm.commands import command_prefix, submission
from jupyterhub_gpuspawner.slurm.job import parse_tag
from jupyterhub_gpuspawner.slurm.job import tag as tag_of
from jupyterhub_gpuspawner.slurm.reason import node_reason
from jupyterhub_gpuspawner.slurm.scontrol import parse_nodes, parse_reservations
from jupyterhub_gpuspawner.slurm.text import SIGNATURE, value_or_empty
from jupyterhub_gpuspawner.wire.documents import LaunchPlan, NodeReport, PlacementDocument

# --- what is thrown ---------------------------------------------------------------------------------

PIECES = [
    *("\n#SBATCH --uid=0", "\r\n#SBATCH --wrap=id", "\n", "\r", "\0", "\t", "\x0b", "\x0c", "\x1b[2J", "\x7f", "\x85"),
    *("\u2028", "\u2029", "\u202e", "\u2066", "\u200b", "\ufeff", "\u00a0", "\uff11", "é", "\U0001f4a5", "\ud800"),
    *("{{ 7 * 7 }}", "{% raw %}", "{{cmd}}", "{cmd}", "{0.__class__}", "{", "}", "%j", "%(x)s", "${HOME}", "$(id)"),
    *("`id`", "; id", "& id", "| id", "> /x", "' ; id ; '", '" ; id ; "', "\\", "\\\n", "#", " # ", "--wrap=id", "-"),
    *("../../etc/passwd", "/etc/passwd", "~root/", "file:///x", "<script>alert(1)</script>", "'\"><b>", "&lt;", "="),
    *("'\n}\nid\n", "\n' )\nid\n", "unlisted-choice", "__class__", "NaN", "Infinity", "1e400", "-1", ","),
    *("gpu", "a100", "1", "2", "0", "4G", "8:00:00", "UNLIMITED", "train_1", "docker://x/y:1", "v1.2", "9" * 40, " "),
]
texts = st.lists(st.sampled_from(PIECES), max_size=5).map("".join) | st.text(max_size=30)
values = (
    texts
    | st.integers(-(10**20), 10**20)
    | st.floats()
    | st.none()
    | st.booleans()
    | st.lists(texts, max_size=2)
    | st.dictionaries(texts, texts, max_size=2)
)

# --- what it is thrown at ---------------------------------------------------------------------------

FIELDS = {path.replace("NAME", "COURSE"): path.replace("NAME", "COURSE").replace(".", "-") for path in SETTABLE}
"""Every field that a text may set, and the option that sets it: the most careless admin lets all of them be set."""
HARMLESS = {
    "slurm-partition": "gpu",
    "slurm-gpu_type": "a100",
    "slurm-account": "train",
    "slurm-qos": "normal",
    "slurm-reservation": "course",
    "slurm-constraint": "fast",
    "environment-conda": "course",
    "environment-venv": "/opt/course",
    "environment-container": "/opt/course.sif",
    "environment-variables-COURSE": "one",
    "default_url": "/lab",
}
ANYTHING = {
    "display_name": "Anything",
    "slug": "anything",
    "profile_options": {
        **{
            option: {"unlisted_choice": {"validation_regex": "(?s).*", "sets": path}} for path, option in FIELDS.items()
        },
        "hours": {"range": {"min": 1, "max": 8, "sets": "slurm.time", "unit": "hours"}},
        "kind": {"choices": {"one": {"slurm": {"cpus": 2}}, "two": {"slurm": {"cpus": 4}}}},
    },
}
PROFILES = parse_profiles([ANYTHING])
OPTIONS = [*FIELDS.values(), "hours", "kind"]
NOW = datetime(2026, 5, 4, 12).astimezone()
COMMAND = ["jupyterhub-singleuser", "--ServerApp.token="]
TEMPLATE = """#!/bin/bash
#SBATCH --partition={partition}
#SBATCH --time={runtime}
#SBATCH --mem={memory} --account={account}
#SBATCH --reservation={reservation} --qos={qos} --gres={gres}
#SBATCH {options}
echo "{username} in {homedir} on {partition}"
{cmd}
"""
JINJA = re.sub(r"\{(\w+)\}", r"{{ \1 }}", TEMPLATE)


def request_of(options: dict[str, Any], *, user: str = "ada", server: str = "") -> JobRequest:
    """What the hub makes of these user options."""
    return resolve(PROFILES, options, username=user, groups=(), server_name=server, now=NOW)


def script_of(request: JobRequest) -> str:
    """The batch script."""
    return script.render(
        request,
        launcher=b"launcher",
        plan=LaunchPlan(),
        command=ServerCommand(tuple(COMMAND)),
        tag=tag_of("hub", request.username, request.server_name),
        log_path="/home/ada/%j.log",
        job_name="jupyterhub",
        chdir="/home/ada",
    )


def templated(request: JobRequest, template: str) -> str:
    """The script of an admin's own template."""
    names = ("partition", "runtime", "memory", "nprocs", "account", "reservation", "qos", "gres", "options")
    variables = {**dict.fromkeys(names, ""), **in_batchspawners_names(request.resources)}
    variables.update(username=request.username, homedir="/home/ada")
    rendered = render_template(
        template,
        variables,
        launcher=b"launcher",
        plan=LaunchPlan(),
        command=ServerCommand(tuple(COMMAND)),
        tag=tag_of("hub", request.username, ""),
        environment=request.environment,
    )
    return rendered.script


def harmless(options: dict[str, Any], request: JobRequest) -> dict[str, Any]:
    """The same options with harmless values; a number keeps what it has become."""
    harmless_options = dict(options)
    for name, value in options.items():
        if name in HARMLESS:
            harmless_options[name] = HARMLESS[name] if value != "" else ""
        elif name.startswith("slurm-"):
            number = getattr(request.resources, name.removeprefix("slurm-"))
            harmless_options[name] = str(number)
    if "slurm-time" in harmless_options and harmless_options["slurm-time"] != "UNLIMITED":
        seconds = int(harmless_options["slurm-time"])
        harmless_options["slurm-time"] = f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return harmless_options


SPECIAL = '`$"\\;&|<>(){}#!*?~'


def same_lines(text: str, pattern: str) -> None:
    """``text`` has the lines of ``pattern``, and in each the words, and nothing a shell or sbatch would act on more."""
    lines, wanted = text.split("\n"), pattern.split("\n")
    assert len(lines) == len(wanted)
    assert text.splitlines() == lines[:-1], "a separator of lines that is not a line's end"
    for line, right in zip(lines, wanted, strict=True):
        if line == right:
            continue
        assert line.isprintable()
        if right.startswith("#SBATCH "):
            assert [word.partition("=")[0] for word in line.split(" ")] == [
                word.partition("=")[0] for word in right.split(" ")
            ]
            assert re.fullmatch(r"[^\"'\\#`$;]*", line.removeprefix("#SBATCH "))
            continue
        assert len(shlex.split(line)) == len(shlex.split(right))
        assert Counter(unquoted(line)) == Counter(unquoted(right))


def unquoted(line: str) -> str:
    """The characters outside of shlex.quote's quotes that mean something to a shell."""
    return "".join(c for c in re.sub(r"""'[^']*'|"'\"""", "", line) if c in SPECIAL)


# --- the gates --------------------------------------------------------------------------------------

RIGHT = {**dict.fromkeys(OPTIONS, "2"), **HARMLESS, "slurm-memory": "4G", "slurm-time": "1:00:00", "kind": "two"}
near = st.builds(
    lambda option, piece, first: (option[0], piece + option[1] if first else option[1] + piece),
    st.sampled_from(sorted(RIGHT.items())),
    st.sampled_from(["", *PIECES]),
    st.booleans(),
)
"""An option with a value that is all but right."""
choices = st.builds(
    lambda options, wild: {**dict(options), **wild},
    st.lists(near, min_size=1, max_size=2),
    st.just({})
    | st.dictionaries(
        st.sampled_from([*OPTIONS, *[f"{name}--unlisted-choice" for name in OPTIONS]]), values, max_size=1
    ),
)


def options_to_script(options: dict[str, Any]) -> bool:
    """A REST body: refused by name, or data in the lines where the same body with harmless values has it."""
    try:
        request = request_of(options)
    except RequestError:
        return False
    stored = {name: value for name, value in request.options.items() if name != "profile"}
    same_lines(script_of(request), script_of(request_of(harmless(stored, request))))
    return True


def options_to_template(options: dict[str, Any], template: str) -> bool:
    """The same in an admin's own template, of either kind: no value is a template, or a line."""
    try:
        request = request_of(options)
    except RequestError:
        return False
    stored = {name: value for name, value in request.options.items() if name != "profile"}
    same_lines(templated(request, template), templated(request_of(harmless(stored, request)), template))
    return True


def body_to_request(body: dict[str, Any]) -> bool:
    """Any table at all: refused with a sentence, or a request whose options are plain."""
    try:
        request = request_of(body)
    except RequestError:
        return False
    assert all(isinstance(value, (str, int, float)) for value in request.options.values())
    assert set(request.options) <= {"profile", *OPTIONS}
    return True


def form_to_options(form: dict[str, list[str]]) -> bool:
    """Any form: refused with a sentence, or flat options that are the same when they are sent over REST."""
    try:
        options = choice_from_form(form)
        request = request_of(options)
    except RequestError:
        return False
    assert request_of(dict(request.options)).options == request.options
    return True


def names_to_script(user: str, server: str) -> bool:
    """A user's name and a server's: percent-encoded in the tag, and nowhere else."""
    try:
        request = request_of({}, user=user, server=server)
        text = script_of(request)
    except (RequestError, UnicodeEncodeError):
        assert any(0xD800 <= ord(c) < 0xE000 for c in user + server)  # JupyterHub's database takes none either
        return False
    same_lines(text, script_of(request_of({}, server="x")))
    tag = re.search("--comment=(.*)", text)
    assert tag is not None
    assert parse_tag(tag[1]) == ("hub", user, server)
    return True


def user_to_command(user: str) -> bool:
    """A user's name in front of sbatch: one word, and no option."""
    try:
        words = command_prefix("sudo -n -u {username}", user)
    except ConfigError:
        return False
    assert words == ("sudo", "-n", "-u", user)
    assert not user.startswith("-")
    return True


def environment_to_input(environment: dict[str, str]) -> bool:
    """What ``submit`` reads back is what was meant: each variable once, and the script from its first byte."""
    try:
        data = submission("#!/bin/sh\n", environment).encode(errors="surrogateescape")
    except (ConfigError, UnicodeEncodeError):
        return False
    head, _, rest = data.partition(b"\n")
    length = int(head.removeprefix(b"environment "))
    variables = dict(item.split(b"=", 1) for item in rest[:length].split(b"\0")[:-1])
    assert {name.decode(): value.decode(errors="surrogateescape") for name, value in variables.items()} == environment
    assert rest[length:] == b"#!/bin/sh\n"
    return True


def body_to_report(body: bytes) -> bool:
    """Any body: refused, or a report of a port and printable texts."""
    try:
        report = parse_report(body)
    except ReportError:
        return False
    assert report.port == 0 or 1024 <= report.port <= 65535
    text = json.dumps([report.placement.to_json(), report.topology, report.door.addresses if report.door else ()])
    assert all(part.isprintable() for part in _strings(json.loads(text)))
    return True


def _strings(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [part for item in value.items() for member in item for part in _strings(member)]
    if isinstance(value, list):
        return [part for element in value for part in _strings(element)]
    return [value] if isinstance(value, str) else []


def reason_to_node(reason: str, comment: str) -> bool:
    """Any reason and comment of a node: its reason whole, and nothing else of the node is another."""
    reason, comment = " ".join(reason.split()), " ".join(comment.split())
    if SIGNED.search(comment):  # a signature that imitates the reason's
        return False
    record = "NodeName=g1 CPUTot=4 RealMemory=100 State=IDLE+DRAIN Reason={} [DOM\\john doe@1795905516]"
    (node,) = parse_nodes(f"{record.format(reason)} Comment={comment} New=1 ReservationName=x\n")
    (plain,) = parse_nodes(record.format("off"))
    assert node._replace(reason="") == plain._replace(reason="")
    assert node_reason(node.reason) == (reason, "DOM\\john doe", 1795905516.0)
    return True


def name_to_reservation(name: str) -> bool:
    """Any name of a reservation, and the same as its comment: its own, and whose it is."""
    name = " ".join(name.split())
    record = "ReservationName={} StartTime=1 EndTime=2 Nodes=g1 Flags=MAINT TRES=cpu=4 Users=root{}\n"
    if not name or "StartTime=" in name or value_or_empty(name) != name:
        return False
    (odd,) = parse_reservations(record.format(name, f" Comment={name}"))
    (plain,) = parse_reservations(record.format("x", ""))
    assert odd == replace(plain, name=name)
    return True


def log_to_page(text: str) -> bool:
    """Any log: some lines, of characters that print."""
    lines = shown(text).split("\n")
    assert len(lines) <= (OF_ENDING.lines or 0)
    assert all(line.replace("\t", "").isprintable() for line in lines)
    return True


REPORT = json.loads(NodeReport(41234, PlacementDocument(job_id="7", node="g1", cpus="0-3")).dumps())
jsons = st.recursive(values, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3))
reports = (
    st.builds(
        lambda field, value: json.dumps({**REPORT, "placement": {**REPORT["placement"], field: value}}).encode(),
        st.sampled_from([*PlacementDocument.__dataclass_fields__, "version", "__class__"]),
        jsons,
    )
    | st.builds(
        lambda field, value: json.dumps({**REPORT, field: value}).encode(),
        st.sampled_from(["version", "port", "placement", "topology", "door", "cmd", "ip", "__dict__"]),
        jsons,
    )
    | st.builds(
        lambda at, piece: (
            (whole := json.dumps(REPORT))[:at].encode() + piece.encode(errors="surrogatepass") + whole[at:].encode()
        ),
        st.integers(0, len(json.dumps(REPORT))),
        texts,
    )
    | jsons.map(lambda value: json.dumps(value).encode())
    | st.binary(max_size=200)
)
records = st.lists(
    st.sampled_from(
        [
            "xid=79",
            "State=IDLE",
            "Reason=x",
            "Comment=y",
            "OS=z",
            "Users=eve",
            "CoreIDs=0-3",
            "NodeName=g9",
            "[",
            "]",
            "[a@b]",
        ]
    )
    | texts,
    max_size=5,
).map(" ".join)
SIGNED = re.compile(SIGNATURE)
forms = st.dictionaries(
    st.sampled_from(
        ["profile", "_xsrf", *OPTIONS, *[f"profile-option-anything--{name}" for name in OPTIONS], "profile-option-x--y"]
    )
    | texts,
    st.lists(texts | st.just("anything"), max_size=2),
    max_size=4,
)
GATES: dict[str, tuple[Callable[..., bool], tuple[st.SearchStrategy[Any], ...], int]] = {
    "user options to a script": (options_to_script, (choices,), 3000),
    "user options to an admin's template": (options_to_template, (choices, st.sampled_from([TEMPLATE, JINJA])), 1500),
    "any REST body": (body_to_request, (st.dictionaries(texts | st.sampled_from(OPTIONS), values, max_size=4),), 1500),
    "any form or link": (form_to_options, (forms,), 1500),
    "names of users and servers": (names_to_script, (texts, texts), 500),
    "a user's name before a command": (user_to_command, (texts,), 500),
    "a job's environment": (environment_to_input, (st.dictionaries(texts | st.just("A"), texts, max_size=3),), 500),
    "a node's report": (body_to_report, (reports,), 2500),
    "a node's reason": (reason_to_node, (records, records), 1000),
    "a reservation's name": (name_to_reservation, (records,), 500),
    "a job's log": (log_to_page, (texts,), 500),
}
BRIEFLY_AND_AT_LENGTH = [
    pytest.param(10, id="a tenth of the examples"),
    pytest.param(1, id="all examples", marks=pytest.mark.nightly),
]
"""By how much the number of examples is divided."""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("part", BRIEFLY_AND_AT_LENGTH)
@pytest.mark.parametrize("name", GATES)
def test_what_is_hostile_is_refused_or_data(name: str, part: int) -> None:
    """At each gate as many examples as its line says, or a part of them; some of them are taken as data."""
    gate, strategies, wanted = GATES[name]
    wanted //= part
    count = Counter[bool]()

    @settings(max_examples=wanted, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(st.tuples(*strategies))
    def attack(thrown: tuple[Any, ...]) -> None:
        count[gate(*thrown)] += 1

    attack()

    assert count.total() >= wanted
    assert count[True] > 0
