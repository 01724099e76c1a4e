"""A site with odd names: of accounts and their homes, of hosts, partitions, features, GPU types and the cluster."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

import pytest
import requests

from jupyterhub_gpuspawner.demo.slurm_cluster import ClusterDescription, SimulatedNode, SimulatedPartition, whole_gpus
from tests.fixtures.hubs import STAND_IN, offer, start_hub
from tests.fixtures.site import AS_USERS, PYTHON
from tests.fixtures.slurm import ChangedSlurm
from tests.hub.servers import environment, in_the_end, job_id
from tests.hub.visitor import Visitor
from tests.nightly.sites.main_job import CONFIG, MainJob, Site, granted, profiles

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.users]

GPU = "nvidia_a100-sxm4-80gb"
NODES = ("gpu-a001x", "gpu-b002x", "r1-n001", "r1-n002", "r2-n001", "r2-n002")
CLUSTER = ClusterDescription(
    nodes=tuple(
        SimulatedNode(
            name,
            machine="k80-2socket",
            sockets=2,
            cores_per_socket=12,
            memory_mib=64000,
            gpus=(whole_gpus(GPU, range(2), cores="0-11"), whole_gpus(GPU, range(2, 4), cores="12-23")),
            features=("cpu:zen-4", "ib_hdr.200", "x86-64-v3"),
        )
        for name in NODES
    ),
    partitions=(
        SimulatedPartition("gpu.a100-80gb", NODES[:2]),
        SimulatedPartition("gpu-multi.rack", NODES[2:], default=True),
    ),
    name="uni-hpc-2",
)
MARK = f"gpuspawner names {os.getpid()}"
FIRST_UID = 62000


@dataclass(frozen=True)
class OddAccount:
    """An entry of passwd(5)."""

    name: str
    home: str
    shell: str = "/bin/bash"


PEOPLE = {
    "main": OddAccount("gpus.b@c.org", "b@c.org"),
    "minute": OddAccount("gpus.b@c.org-minute", "b@c.org-minute"),
    "domain": OddAccount(r"gpusdom\user", "GPUSDOM/user"),
    "long": OddAccount("gpus" + 56 * "y", "long"),
    "umlaut": OddAccount("gpusmüller", "Jürgen Müller (Gäste)"),
    "shell": OddAccount("gpusshell", "it's $HOME", "/bin/bash --login"),
}


@contextmanager
def accounts(folder: Path) -> Iterator[None]:
    """The entries of these people in /etc/passwd, some of which useradd(8) would refuse, with their homes."""
    lines = [
        f"{person.name}:x:{FIRST_UID + n}:100:{MARK}:{folder}/{person.home}:{person.shell}\n"
        for n, person in enumerate(PEOPLE.values())
    ]
    (folder / "lines").write_text("".join(lines))
    _edit_accounts(f"cat {folder}/lines >>", folder)
    try:
        for n, person in enumerate(PEOPLE.values()):
            (folder / person.home).mkdir(mode=0o700, parents=True)
            os.chown(folder / person.home, FIRST_UID + n, 100)
        yield
    finally:
        _edit_accounts(f"sed -i '/:{MARK}:/d'", folder)


def _edit_accounts(command: str, folder: Path) -> None:
    editor = folder / "editor"
    editor.write_text(f'#!/bin/sh\n{command} "$1"\n')
    editor.chmod(0o755)
    subprocess.run(["vipw", "-q"], env={**os.environ, "EDITOR": str(editor), "VISUAL": str(editor)}, check=True)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder for homes that every user can enter."""
    if os.geteuid() != 0:
        pytest.skip("only root can make users and act as them")
    path = Path(tempfile.mkdtemp(prefix="gpus-", dir="/srv"))
    path.chmod(0o755)
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture(scope="module")
def site(
    needs_slurm: None, folder: Path, public_folder: Path, public_command: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Site]:
    """The hub runs as root and submits jobs as its users."""
    slurm_fields = f'partition: gpu.a100-80gb, gpus: 2, gpu_type: {GPU}, cpus: 4, constraint: "cpu:zen-4&ib_hdr.200"'
    lines = f"""
{AS_USERS}
{CONFIG}
c.Authenticator.username_map = {{"ada lovelace": {PEOPLE["umlaut"].name!r}}}
"""
    with ExitStack() as stack:
        stack.enter_context(accounts(folder))
        slurm = stack.enter_context(ChangedSlurm(CLUSTER, public_folder / "names", lambda conf: conf))
        hub = start_hub(
            stack,
            slurm,
            tmp_path_factory.mktemp("hub"),
            lines=lines,
            profiles=profiles(public_command, slurm=slurm_fields),
        )
        yield Site(hub, slurm, partition="gpu.a100-80gb", user=PEOPLE["main"].name)


class TestMainJob(MainJob):
    """The main job."""


@pytest.mark.parametrize("person", [name for name in PEOPLE if name not in ("main", "minute")])
def test_a_person_of_this_name_starts_a_server_in_the_home_and_reads_its_log(
    site: Site, folder: Path, person: str
) -> None:
    """The job is the person's, the launcher's and Slurm's files are in the home, and the server stops."""
    account = PEOPLE[person]
    path = quote(account.name, safe="@")
    user = Visitor(site.hub, account.name)
    site.hub.api("POST", f"/users/{path}/server", {"profile": "main"})
    site.hub.wait(path, ready=True)
    job = job_id(site.hub, path)
    process = requests.get(f"{site.hub.url}/user/{path}/process", timeout=10).json()
    log = user.look(f"/hub/gpuspawner/log/{path}")
    shown = site.hub.api("GET", f"/gpuspawner/placement/{path}").json()
    home = user.look("/hub/home")
    site.hub.end(path)

    uid = FIRST_UID + list(PEOPLE).index(person)
    assert process == {"uid": uid, "gid": 100, "folder": f"{folder}/{account.home}"}
    assert (log.status, job in log.soup.text) == (200, True)
    assert (shown["node"], job in home.text) == (granted(site.slurm, job)["node"], True)
    assert in_the_end(site.slurm, job) == "CANCELLED"


def test_who_signs_in_under_a_mapped_name_has_the_server_of_the_account(site: Site) -> None:
    """`username_map` leads to an account whose name has an umlaut."""
    name = quote(PEOPLE["umlaut"].name)
    user = Visitor(site.hub, "Ada Lovelace")
    page = user.look("/hub/spawn")
    user.send(page, {"profile": "main"})
    site.hub.wait(name, ready=True)
    job = job_id(site.hub, name)
    owner = site.slurm.run("squeue", "-h", "-j", job, "-o", "%u")
    site.hub.end(name)

    assert owner == PEOPLE["umlaut"].name


def test_the_map_has_every_node_by_its_name(site: Site) -> None:
    """Also where Slurm writes a list of nodes with two brackets, and where it cannot shorten it."""
    page = Visitor(site.hub, "admin").look("/hub/gpuspawner/cluster?part=map").soup.text
    nodes = site.slurm.run("scontrol", "show", "partition", "gpu-multi.rack", "-o")

    assert "Nodes=r1-n[001-002],r2-n[001-002]" in nodes
    assert [name for name in (*NODES, "gpu.a100-80gb", "gpu-multi.rack") if name not in page] == [], page


def test_a_server_on_four_nodes_names_each(site: Site, public_folder: Path) -> None:
    """Its placement is of all of them."""
    offer(
        site.hub,
        "nodes",
        f"""
- {{display_name: Four nodes, slug: four, command: [{PYTHON}, {public_folder / STAND_IN.name}],
   slurm: {{partition: gpu-multi.rack, nodes: 4, gpus: 1, gpu_type: {GPU}, cpus: 1, memory: 600M, time: "0:10:00"}}}}
""",
    )
    user = Visitor(site.hub, site.user)
    site.hub.spawn(site.user, {"profile": "four"})
    home = user.look("/hub/home").text
    site.hub.end(site.user)

    assert [name for name in NODES[2:] if name not in home] == [], home


def test_check_with_a_job_finds_nothing_wrong_for_a_home_with_blanks_and_umlauts(site: Site) -> None:
    """The job is that person's."""
    findings = site.check("--submit", "--user", PEOPLE["umlaut"].name, "--profile", "main")

    codes = [(finding["code"], finding["severity"]) for finding in findings if finding["code"].startswith("job-")]
    assert codes == [("job-placed", "ok"), ("job-ran", "ok")], findings


LOCALES = {"posix": "POSIX", "latin": "de_DE.ISO-8859-1", "missing": "xx_XX.UTF-8"}


@pytest.fixture(scope="module")
def latin(public_folder: Path) -> Path:
    """The folder of a locale whose letters are those of ISO 8859-1."""
    folder = public_folder / "locales"
    folder.mkdir()
    command = ["localedef", "--no-archive", "-i", "de_DE", "-f", "ISO-8859-1", f"{folder}/de_DE.ISO-8859-1"]
    if not shutil.which("localedef") or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("needs the package locales")
    return folder


@pytest.mark.parametrize(("locale", "encoding"), [("POSIX", ""), ("de_DE.ISO-8859-1", "iso8859-1")])
def test_a_hub_finds_accounts_with_umlauts_or_says_that_its_locale_does_not_have_them(
    site: Site, public_command: str, tmp_path: Path, latin: Path, locale: str, encoding: str
) -> None:
    """Under systemd a hub most often has no locale, and then Python takes UTF-8."""
    fields = f"partition: gpu.a100-80gb, gpus: 1, gpu_type: {GPU}, cpus: 1"
    name = quote(PEOPLE["umlaut"].name)
    variables = {"LANG": locale, "LC_ALL": locale, "LOCPATH": str(latin)}
    with ExitStack() as stack:
        offered = profiles(public_command, slurm=fields)
        hub = start_hub(stack, site.slurm, tmp_path, lines=f"{AS_USERS}\n{CONFIG}", profiles=offered, **variables)
        warned = re.findall(r"gpuspawner: the hub's locale has the encoding (\S+),", hub.log.read_text("latin-1"))
        hub.api("POST", f"/users/{name}")
        hub.api("POST", f"/users/{name}/server", {"profile": "main"})
        hub.wait(name, ready=not encoding)
        hub.end(name)

    assert warned == list(filter(None, [encoding]))


@pytest.fixture(scope="module")
def locales(site: Site, public_folder: Path, latin: Path) -> None:
    """A profile for each locale in which a job may run, one of which the node does not have."""
    command_line = f"{PYTHON}, {public_folder / STAND_IN.name}"
    offer(
        site.hub,
        "locales",
        "".join(
            f"""
- {{display_name: In {locale}, slug: {slug}, command: [{command_line}],
   slurm: {{partition: gpu.a100-80gb, gpus: 1, gpu_type: {GPU}, cpus: 1, memory: 600M, time: "0:10:00"}},
   environment: {{variables: {{LC_ALL: {locale}, LOCPATH: {latin}}}}}}}
"""
            for slug, locale in LOCALES.items()
        ),
    )


@pytest.mark.usefixtures("locales")
@pytest.mark.parametrize("slug", LOCALES)
def test_in_another_locale_a_server_is_placed_in_a_home_with_umlauts(site: Site, folder: Path, slug: str) -> None:
    """Names are bytes: the launcher reads and writes them whatever the node's locale is."""
    name = quote(PEOPLE["umlaut"].name)
    user = Visitor(site.hub, PEOPLE["umlaut"].name)
    site.hub.api("POST", f"/users/{name}/server", {"profile": slug})
    site.hub.wait(name, ready=True)
    shown = site.hub.api("GET", f"/gpuspawner/placement/{name}").json()
    process = requests.get(f"{site.hub.url}/user/{name}/process", timeout=10).json()
    variables = environment(site.hub, name)
    log = user.look(f"/hub/gpuspawner/log/{name}")
    job = job_id(site.hub, name)
    site.hub.end(name)

    home = f"{folder}/{PEOPLE['umlaut'].home}"
    assert variables["LC_ALL"] == LOCALES[slug]
    assert (shown["node"], len(shown["gpus"]), shown["problems"]) == ("gpu-a001x", 1, []), shown
    assert process["folder"] in (home, home.encode().decode("latin-1"))  # as the stand-in reads it
    assert (log.status, job in log.soup.text) == (200, True)
