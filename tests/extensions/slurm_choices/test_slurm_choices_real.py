"""Two people with different accounts choose among their own, in a hub with a real slurmdbd."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import product, starmap
from pathlib import Path

import pytest
from bs4 import Tag
from playwright.sync_api import expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.extensions.slurm_choices.accounting import read_accounting
from jupyterhub_gpuspawner.extensions.slurm_choices.job_size import requested_by
from jupyterhub_gpuspawner.extensions.slurm_choices.rules import Combination, Person, Rules
from jupyterhub_gpuspawner.profiles.resources import Resources
from jupyterhub_gpuspawner.slurm.client import SlurmClient
from jupyterhub_gpuspawner.slurm.commands import Installation
from tests.browser.seeing import axe_faults, shoot, sign_in
from tests.fixtures.accounting import SMALL, AccountedSlurm, Accounting, slurmdbd
from tests.fixtures.browser import OpenPage
from tests.fixtures.hubs import start_hub
from tests.fixtures.site import AS_USERS
from tests.hub.servers import job_id
from tests.hub.visitor import Visitor
from tests.waiting import wait_until

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

ACCOUNTING = """
add qos long
add qos teaching
add account climate
add account physics
add account course
add user {a} account=climate qos=normal,long
modify account physics set maxwall=2:00:00 maxtres=cpu=2
modify qos long set maxwall=3:00:00
add user {a} account=physics qos=normal
modify user {a} where account=climate set defaultaccount=climate
add user {b} account=course qos=normal,teaching defaultqos=normal
"""
ASKS_OFTEN = """
from jupyterhub_gpuspawner.extensions.slurm_choices import hub as of_choices
of_choices.MAX_AGE = of_choices.AGE_AT_START = 1.0
"""
"""What sacctmgr is asked to do; ``{a}`` and ``{b}`` are the two users."""
PROFILE = """
- display_name: One core
  slug: one
  slurm: {{cpus: 1, memory: 100M, time: "0:10:00"}}
  command: {command}
  profile_options:
    account: {{display_name: Project, choices_from: {{slurm: accounts, except: "test-.*"}}}}
    partition: {{choices_from: {{slurm: partitions, default: batch, labels: {{gpu: With GPUs}}}}}}
    qos: {{choices_from: {{slurm: qos}}}}
    reservation: {{choices_from: {{slurm: reservations}}}}
"""


@dataclass(frozen=True)
class Site:
    """The hub with its cluster, its slurmdbd, and two users."""

    hub: HubProcess
    slurm: PrivateSlurm
    accounting: Accounting
    users: tuple[str, str]


@pytest.fixture(scope="module")
def site(
    needs_slurm: None,
    public_folder: Path,
    public_command: str,
    two_users: tuple[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Site]:
    """Associations, QOS and partitions are enforced; partition gpu is not for the account physics."""
    with ExitStack() as stack:
        accounting = stack.enter_context(slurmdbd(public_folder / "choices"))
        cluster = replace(SMALL, name="choices")
        slurm = stack.enter_context(
            AccountedSlurm(
                cluster,
                public_folder / "choices" / "slurm",
                accounting,
                "AccountingStorageEnforce=associations,limits,qos",
                "EnforcePartLimits=ALL",
                "PartitionName=denied Nodes=g1 Hidden=YES DenyAccounts=physics DenyQos=teaching State=UP",
            )
        )
        a, b = two_users
        for line in ACCOUNTING.strip().splitlines():
            slurm.run("sacctmgr", "-i", *line.format(a=a, b=b).split())
        slurm.run("scontrol", "update", "partitionname=gpu", "allowaccounts=climate,course", "allowqos=normal,long")
        slurm.run(
            *("scontrol", "create", "reservation", "reservationname=lesson", "starttime=now+3hours", "duration=120"),
            *("nodes=c1", f"users={a}", "accounts=climate"),
        )
        profile = PROFILE.format(command=public_command)
        hub = start_hub(
            stack, slurm, tmp_path_factory.mktemp("hub"), lines=f"{AS_USERS}\n{ASKS_OFTEN}", profiles=profile
        )
        for user in two_users:
            Visitor(hub, user)  # signed in, so that the hub knows them
        yield Site(hub, slurm, accounting, two_users)


@contextmanager
def stopped(accounting: Accounting) -> Iterator[None]:
    """slurmdbd hangs, as on a busy day."""
    os.kill(accounting.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(accounting.pid, signal.SIGCONT)


def shown(visitor: Visitor, option: str) -> dict[str, str]:
    """The choices of an option on the form, by their values; those that cannot be chosen begin with ``-``."""
    soup = visitor.look("/hub/spawn").soup
    return {
        str(choice["value"]): f"{'-' if choice.has_attr('disabled') else ''}{choice.get_text()}"
        for choice in soup.select(f"select[name=profile-option-one--{option}] option")
    }


def described(visitor: Visitor, option: str) -> str:
    """What the form says below an option."""
    text = visitor.look("/hub/spawn").soup.find(id=f"profile-option-one--{option}-help")
    return text.get_text() if isinstance(text, Tag) else ""


def test_each_is_offered_their_own_and_what_slurm_would_refuse_is_disabled_with_the_reason(site: Site) -> None:
    """The default account is selected, so that what is refused in it is disabled; an own reservation is there."""
    first, second = (Visitor(site.hub, name) for name in site.users)

    assert {option: list(shown(first, option)) for option in ("account", "partition", "qos", "reservation")} == {
        "account": ["climate", "physics"],
        "partition": ["gpu", "batch"],
        "qos": ["(none)", "long", "normal"],
        "reservation": ["(none)", "lesson"],
    }
    assert {option: list(shown(second, option)) for option in ("account", "partition", "qos", "reservation")} == {
        "account": ["course"],
        "partition": ["gpu", "batch"],
        "qos": ["(none)", "normal", "teaching"],
        "reservation": ["(none)"],
    }


def refused(site: Site, user: str, **options: str) -> dict[str, dict[str, str]]:
    """What the form's script is told of a choice."""
    body = {"user_options": {"profile": "one", **options}}
    return dict(site.hub.api("POST", f"/gpuspawner/choices/{user}", body).json()["refused"])


def test_the_reason_names_what_excludes_a_choice(site: Site) -> None:
    """An earlier option decides over a later one, so that no choice is a dead end."""
    user = site.users[0]

    assert refused(site, user, account="physics") == {
        "partition": {"gpu": 'partition "With GPUs" is not open to project physics'},
        "qos": {"long": "project physics does not have QOS long"},
        "reservation": {"lesson": "reservation lesson is not for project physics"},
    }
    assert refused(site, user, account="climate") == {}


NOT_OF_RULES = ("Requested node configuration is not available", "Invalid time specified")
"""What `sbatch --test-only` says of nodes and times, where sbatch takes the job."""


async def rules_of(site: Site, user: str) -> Rules:
    """The rules for a user, by what Slurm says now."""
    client = SlurmClient(Installation(bin_dir=site.slurm.bin_dir, slurm_conf=str(site.slurm.conf)))
    accounting, snapshot = await read_accounting(client), await client.snapshot()
    person = Person(user, accounting.associations[user], accounting.default_accounts.get(user, ""))
    return Rules(person, accounting, snapshot, time.time())


def test_the_rules_refuse_what_slurm_refuses_and_nothing_else(site: Site) -> None:
    """Every combination of what there is, by `sbatch --test-only` as each of the users.

    Without EnforcePartLimits Slurm takes a job that AllowAccounts or AllowQos keeps from starting for ever.
    """
    accounts, partitions = (None, "climate", "physics", "course"), (None, "gpu", "batch", "denied")
    qos, reservations = (None, "normal", "long", "teaching"), (None, "lesson")
    differences, judged = [], 0
    for user in site.users:
        rules = asyncio.run(rules_of(site, user))
        for job in starmap(Combination, product(accounts, partitions, qos, reservations)):
            options = [f"--{name}={value}" for name, value in job._asdict().items() if value]
            sbatch = (f"{site.slurm.bin_dir}/sbatch", "--test-only", *options, "--chdir=/", "--wrap=true")
            done = subprocess.run(
                ["runuser", "-u", user, "--", "env", f"SLURM_CONF={site.slurm.conf}", *sbatch],
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )
            if any(text in done.stderr for text in NOT_OF_RULES):
                continue
            judged += 1
            if bool(rules.refusal(job)) != bool(done.returncode):
                differences.append((user, *job, rules.refusal(job), done.stderr.strip()))

    assert differences == []
    assert judged > 100


BEYOND_A_LIMIT = ("AssocMaxWallDurationPerJobLimit", "AssocMaxCpuPerJobLimit", "QOSMaxWallDurationPerJobLimit")
"""Reasons of jobs that Slurm takes and never starts."""


def test_the_rules_refuse_a_job_beyond_a_limit_that_slurm_never_starts(site: Site) -> None:
    """By the reason with which Slurm has it wait; the account's limits are those of its users who have none."""
    user = site.users[0]
    rules = asyncio.run(rules_of(site, user))
    differences, judged = [], {True: 0, False: 0}
    for account, qos, hours, cpus in product(("climate", "physics"), ("normal", "long"), (1, 2, 3, 4), (2, 4)):
        job = Combination(account, "batch", qos)
        if rules.refusal(job):
            continue  # whatever it requests
        options = [f"--account={account}", f"--qos={qos}", f"--time={hours}:00:00", f"--cpus-per-task={cpus}"]
        sbatch = (f"{site.slurm.bin_dir}/sbatch", "--parsable", "--partition=batch", "--mem=10", *options)
        sbatch += ("--chdir=/", "--output=/dev/null", "--wrap=sleep 600")
        done = subprocess.run(
            ["runuser", "-u", user, "--", "env", f"SLURM_CONF={site.slurm.conf}", *sbatch],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        job_number = done.stdout.strip()
        requested = requested_by(Resources(cpus=cpus, memory=10, time=f"{hours}:00:00"))
        said = wait_until(partial(state_of_job, site, job_number), "the job runs, or has a reason")
        site.slurm.run("scancel", job_number)
        ours = replace(rules, requested=requested).refusal(job)
        judged[bool(ours)] += 1
        if bool(ours) != (said in BEYOND_A_LIMIT):
            differences.append((job, hours, cpus, ours, said))

    assert differences == []
    assert min(judged.values()) > 5


def state_of_job(site: Site, number: str) -> str:
    """RUNNING, or why Slurm does not start it; empty while that is not decided."""
    state, reason = site.slurm.run("squeue", "-h", "-j", number, "-o", "%T %r").split(maxsplit=1)
    return (
        ""
        if state == "PENDING" and reason.strip() in ("None", "Priority", "Resources")
        else (state if state != "PENDING" else reason.strip())
    )


def test_the_job_has_the_chosen_account(site: Site) -> None:
    """By Slurm's own word, with QOS and partition; the owner is the person."""
    user = site.users[0]
    site.hub.spawn(user, {"profile": "one", "account": "climate", "qos": "long", "partition": "batch"})
    job = site.slurm.run("scontrol", "show", "job", "-o", job_id(site.hub, user))
    site.hub.end(user)

    assert re.findall(r"UserId=([^(]+)\(|\b(?:Account|QOS|Partition)=(\S+)", job) == [
        (user, ""),
        ("", "climate"),
        ("", "long"),
        ("", "batch"),
    ]


@pytest.mark.parametrize(
    ("options", "field", "message"),
    [
        ({"account": "course"}, "account", "Project: 'course' is not allowed: it must be one of climate, physics."),
        (
            {"account": "physics", "partition": "gpu"},
            "partition",
            'Partition "With GPUs" is not open to project physics.',
        ),
        (
            {"account": "physics", "qos": "long"},
            "qos",
            "Project physics does not have QOS long.",
        ),
    ],
    ids=["an account of somebody else", "a combination of partition and account", "a QOS of another account"],
)
def test_a_forged_request_is_refused_by_name(site: Site, options: dict[str, str], field: str, message: str) -> None:
    """Over REST and on the form, and no job is there afterwards."""
    user = site.users[0]
    trial = site.hub.api("POST", f"/gpuspawner/trial/{user}", {"user_options": {"profile": "one", **options}})
    page = Visitor(site.hub, user).start({"profile": "one", **options})

    assert (trial.status_code, trial.json()["field"], trial.json()["message"]) == (400, field, message)
    assert (page.status, page.error) == (400, message)
    assert site.slurm.run("squeue", "-h", "-u", user) == ""


def test_rest_gives_each_their_own(site: Site) -> None:
    """The profile's schema has the choices of the person whose it is."""
    schemas = [
        site.hub.api("GET", f"/gpuspawner/profiles/{user}").json()["profiles"][0]["options_schema"]["properties"]
        for user in site.users
    ]

    assert [[choice["const"] for choice in schema["account"]["anyOf"]] for schema in schemas] == [
        ["climate", "physics"],
        ["course"],
    ]


def command(site: Site, *words: str) -> str:
    """What a command of ``gpuspawner`` prints for this hub."""
    program = Path(sys.executable).with_name("gpuspawner")
    argv = [str(program), *words, "--config", str(site.hub.write_configuration())]
    done = subprocess.run(argv, cwd=site.hub.folder, capture_output=True, text=True, check=False, timeout=120)
    return f"{done.stderr}{done.stdout}"


def test_show_prints_the_choices_of_the_user_and_the_script_with_one(site: Site) -> None:
    """What is not theirs is refused, as in the form."""
    first, second = site.users
    shown = command(site, "show", "one", "--user", first, "--option", "account=physics")

    assert "note: account can be climate, physics." in shown
    assert "#SBATCH --account=physics\n" in shown
    assert "must be one of course" in command(site, "show", "one", "--user", second, "--option", "account=physics")


def test_check_says_what_the_options_list(site: Site) -> None:
    """Of all users together."""
    found = command(site, "check")

    assert "profile_options.account.choices_from: it lists the accounts climate, course, physics, root" in found
    assert "profile_options.qos.choices_from: it lists the QOS long, normal, teaching" in found


def test_while_slurmdbd_is_silent_the_last_known_are_offered_and_said_to_be(site: Site) -> None:
    """Nobody is offered what is another's, and the start does not wait for slurmdbd."""
    first, second = (Visitor(site.hub, name) for name in site.users)
    before = [shown(visitor, "account") for visitor in (first, second)]
    with stopped(site.accounting):
        wait_until(
            lambda: "Slurm's accounting is not responding" in described(first, "account"), site.hub.log_end, seconds=90
        )
        during = [shown(visitor, "account") for visitor in (first, second)]

    assert during == before
    wait_until(lambda: not described(first, "account"), site.hub.log_end, seconds=90)


@pytest.mark.browser
def test_in_the_browser_a_choice_that_is_excluded_is_disabled_and_one_that_is_selected_is_a_fault(
    site: Site, open_page: OpenPage
) -> None:
    """The reason stands in the list and, where it is selected, at the field; screen readers are told both."""
    page = open_page()
    sign_in(page, site.hub, site.users[0])
    page.goto(f"{site.hub.url}/hub/spawn")
    project, partition = page.get_by_label("Project"), page.get_by_label("Partition")
    start = page.get_by_role("button", name="Start")
    expect(start).to_be_enabled()
    project.select_option("physics")
    expect(partition.locator("option[value=gpu]")).to_be_disabled()
    expect(partition.locator("option[value=gpu]")).to_have_text(
        'With GPUs (partition "With GPUs" is not open to project physics)'
    )
    faults = axe_faults(page)
    shoot(page, "choose-own")
    project.select_option("climate")
    expect(partition.locator("option[value=gpu]")).to_be_enabled()
    partition.select_option("gpu")
    project.select_option("physics")
    fault = 'Partition "With GPUs" is not open to project physics.'
    expect(page.get_by_role("alert").filter(has_text="project physics")).to_have_text(fault)
    expect(start).to_be_disabled()
    expect(partition).to_have_value("gpu")
    faults += axe_faults(page)
    shoot(page, "choose-own-refused")
    partition.select_option("batch")
    expect(start).to_be_enabled()

    assert faults == []
