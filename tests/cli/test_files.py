"""``gpuspawner files`` writes what an admin installs, with the paths of this installation, and keeps what differs."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extension import Extension, Extensions
from jupyterhub_gpuspawner.site.config_files import (
    GROUPS,
    SHIPPED,
    ConfigFile,
    HubInstallation,
    files_of,
    files_of_extensions,
)

if TYPE_CHECKING:
    from tests.fixtures.commands import Call

SITE = HubInstallation(
    folder=Path("/srv/hub"),
    wrapper_dir=Path("/srv/hub/wrappers"),
    bin_dir=Path("/sw/hub/bin"),
    account="hub",
    group="people",
    hub_ip="192.0.2.7",
    python=Path("/sw/bin/python3.12"),
    proxy=Path("/sw/node/bin/configurable-http-proxy"),
    node=Path("/sw/node/bin/node"),
    slurm_bin_dir=Path("/opt/slurm/bin"),
    slurm_conf="/etc/slurm/own.conf",
)
"""An installation that has nothing where the examples have it."""
OF_SCRIPT = {"#!/sw/bin/python3.12 -I"}
OF_SLURM = OF_SCRIPT | {
    'ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "SLURM_CONF": "/etc/slurm/own.conf"}  # SITE: '
    "SLURM_CONF, if not the usual; SLURM_CLUSTERS for -M"
}
SCONTROL = {'SCONTROL = "/opt/slurm/bin/scontrol"  # SITE'}
SBATCH = {'SBATCH = "/opt/slurm/bin/sbatch"  # SITE'}
CHANGED = {
    "wrappers/submit": OF_SLURM | SBATCH,
    "wrappers/trial": OF_SLURM | SBATCH,
    "wrappers/cancel": OF_SLURM | {'SCANCEL = "/opt/slurm/bin/scancel"  # SITE'},
    "wrappers/log": OF_SLURM | SCONTROL,
    "wrappers/extend": OF_SLURM | SCONTROL,
    "wrappers/query": OF_SLURM | {'SLURM = "/opt/slurm/bin"  # SITE: the folder of Slurm\'s commands'},
    "wrappers/gate": OF_SCRIPT | {'SCRIPTS = "/srv/hub/wrappers"  # SITE: c.GPUSlurmSpawner.wrapper_dir'},
    "sudoers": {
        '#     c.GPUSlurmSpawner.wrapper_dir = "/srv/hub/wrappers"',
        "User_Alias  HUB = hub",
        "Runas_Alias NOTEBOOKUSERS = %people, !#0",
        'Cmnd_Alias  SUBMIT = /srv/hub/wrappers/submit ""',
        'Cmnd_Alias  TRIAL  = /srv/hub/wrappers/trial ""',
        'Cmnd_Alias  CANCEL = /srv/hub/wrappers/cancel ""',
        'Cmnd_Alias  JOBLOG = /srv/hub/wrappers/log ""',
        '#Cmnd_Alias EXTEND = /srv/hub/wrappers/extend ""',
    },
    "ssh/authorized_keys": {
        "# ~hub/.ssh/authorized_keys on the login node. SITE: the hub's address, and its public key.",
        'restrict,from="192.0.2.7",command="/srv/hub/wrappers/gate" ssh-ed25519 AAAA... hub@hub',
    },
    "ssh/ssh_config": {
        "# How the hub reaches a login node: /srv/hub/ssh/ssh_config, used by `ssh -F /srv/hub/ssh/ssh_config login`.",
        "    User hub",
        "    IdentityFile /srv/hub/ssh/id_ed25519",
        "    UserKnownHostsFile /srv/hub/ssh/known_hosts",
    },
    "ssh/sshd_config": {"Match User hub", "    ForceCommand /srv/hub/wrappers/gate"},
    "jupyterhub.service": {
        "User=hub",
        "Group=hub",
        "Environment=PATH=/sw/hub/bin:/sw/node/bin:/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin",
        "EnvironmentFile=-/srv/hub/proxy.env",
        "ExecStart=/sw/hub/bin/jupyterhub -f /srv/hub/jupyterhub_config.py",
    },
    "jupyterhub-proxy.service": {
        "EnvironmentFile=/srv/hub/proxy.env",
        "Environment=PATH=/sw/hub/bin:/sw/node/bin:/opt/slurm/bin:/usr/local/bin:/usr/bin:/bin",
        "ExecStart=/sw/node/bin/configurable-http-proxy \\",
        "    --error-target http://192.0.2.7:8081/hub/error",
    },
    "webserver/apache.conf": set[str](),
    "webserver/nginx.conf": set[str](),
    "jupyterhub_config.py": {
        'c.GPUProfilesSpawner.profiles_dir = "/srv/hub/profiles"  # SITE',
        'c.GPUProfilesSpawner.courses_dir = "/srv/hub/courses"  # SITE',
        'c.JupyterHub.hub_ip = "192.0.2.7"  # SITE',
        "# `gpuspawner files /srv/hub --wrappers --sudoers` writes the scripts and the file for sudo that allows "
        "exactly",
        'c.GPUSlurmSpawner.wrapper_dir = "/srv/hub/wrappers"',
        'c.GPUSlurmSpawner.slurm_bin_dir = "/opt/slurm/bin"  # SITE',
        'c.LocalAuthenticator.allowed_groups = {"people"}  # SITE',
    },
    "profiles/course.yaml": set[str](),
    "profiles/site.yaml": set[str](),
    "courses/deep-learning.yaml": set[str](),
}
"""For each file its lines that differ from those that are shipped."""
MODES = {"sudoers": 0o440, "ssh/authorized_keys": 0o600}


def shipped(name: str) -> str:
    return (SHIPPED / ("ssh/gate" if name == "wrappers/gate" else name)).read_text("utf-8")


def listing(folder: Path) -> dict[str, str]:
    """The mode of each file of a folder."""
    return {
        path.relative_to(folder).as_posix(): f"{stat.S_IMODE(path.stat().st_mode):04o}"
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.fixture
def _without_extensions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyterhub_gpuspawner.site.config_files.installed", Extensions)


@pytest.mark.usefixtures("_without_extensions")
def test_every_file_has_the_paths_of_the_installation() -> None:
    """What differs from the files as they are shipped, line by line; scripts can be run by every user."""
    files = {file.path.relative_to(SITE.folder).as_posix(): file for file in files_of(GROUPS, SITE)}
    own = {name: file for name, file in files.items() if not name.startswith("ansible/")}
    changed = {
        name: {
            line[2:]
            for line in difflib.ndiff(shipped(name).splitlines(), file.text.splitlines())
            if line.startswith("+ ")
        }
        for name, file in own.items()
    }

    assert changed == CHANGED
    assert {name: file.mode for name, file in own.items()} == {
        name: 0o755 if name.startswith("wrappers/") else MODES.get(name, 0o644) for name in CHANGED
    }


def test_the_ansible_role_is_written_as_it_is_and_names_this_version() -> None:
    """It runs this command on the hub's machine, whose paths are not those of the machine that runs Ansible."""
    for file in files_of(["ansible"], SITE):
        name = file.path.relative_to(SITE.folder).as_posix()
        assert (file.text, file.mode) == (shipped(name), 0o644)


@pytest.mark.usefixtures("_without_extensions")
@pytest.mark.parametrize("group", GROUPS)
def test_each_option_writes_its_group_alone(gpuspawner: Call, tmp_path: Path, group: str) -> None:
    """And each file that is written is one that is shipped."""
    result = gpuspawner("files", tmp_path, f"--{group}")
    expected = {
        f"wrappers/{path.name}" if path.name == "gate" else path.relative_to(SHIPPED).as_posix()
        for top in GROUPS[group]
        for path in ((SHIPPED / top).rglob("*") if (SHIPPED / top).is_dir() else [SHIPPED / top])
        if path.is_file()
    }

    assert (result.exit_code, set(listing(tmp_path))) == (0, expected)


@pytest.mark.usefixtures("_without_extensions")
def test_without_an_option_everything_is_written(gpuspawner: Call, tmp_path: Path) -> None:
    """All that is shipped."""
    gpuspawner("files", tmp_path)

    assert len(listing(tmp_path)) == len([path for path in SHIPPED.rglob("*") if path.is_file()])


def test_a_script_of_an_extension_is_one_that_the_gate_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Without sudo; it has the interpreter and the folders of the installation as the others have."""
    (tmp_path / "counts").mkdir()
    (tmp_path / "counts" / "__init__.py").write_text("")
    (tmp_path / "counts" / "script.py").write_text('#!/usr/bin/python3 -I\nPROGRAMS = "/usr/sbin"\n')
    monkeypatch.syspath_prepend(tmp_path)
    counts = Extension("counts", "Counts.", login_scripts={"count": "script.py"}, package="counts")
    monkeypatch.setattr("jupyterhub_gpuspawner.site.config_files.installed", lambda: Extensions((counts,)))
    files = {file.path.name: file for file in files_of(["wrappers", "ssh"], SITE)}

    assert files["count"] == ConfigFile(
        Path("/srv/hub/wrappers/count"),
        '#!/sw/bin/python3.12 -I\nPROGRAMS = "/opt/slurm/bin:/opt/slurm/sbin:/usr/sbin"\n',
        0o755,
    )
    assert 'OWN = ("query", "count")' in files["gate"].text


@pytest.mark.usefixtures("_without_extensions")
def test_it_says_what_it_wrote_and_what_to_do_next(
    gpuspawner: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line for each file and each step; a second time nothing is left to write."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    tmp_path.chmod(0o700)
    hub = tmp_path / "hub"
    names = ["sudoers", "wrappers/cancel", "wrappers/extend", "wrappers/log", "wrappers/query", "wrappers/submit"]
    names += ["wrappers/trial"]
    lines = [f"{hub}/{name} (mode {'0440' if name == 'sudoers' else '0755'})" for name in names]
    first = gpuspawner("files", hub, "--wrappers", "--sudoers").stdout.splitlines()
    second = gpuspawner("files", hub, "--wrappers", "--sudoers").stdout.splitlines()
    steps = first[len(names) :]

    assert first[: len(names)] == [f"wrote {line}" for line in lines]
    assert second == [*(f"unchanged {line}" for line in lines), *steps]
    assert [step for step in steps if "chmod a+x" not in step or step.endswith(f" {tmp_path}")] == [
        "Next:",
        "- Adapt the lines marked SITE in these files.",
        f"- Let the scripts belong to root, who alone may change them: chown -R root:root {hub}/wrappers",
        f"- Let every user enter the folder of the scripts: chmod a+x {tmp_path}",
        f"- install -o root -g root -m 440 {hub}/sudoers /etc/sudoers.d/jupyterhub && visudo -c",
    ]


def test_a_file_that_differs_is_kept_unless_it_is_to_be_replaced(gpuspawner: Call, tmp_path: Path) -> None:
    """The others are written, and the status says that something was kept."""
    gpuspawner("files", tmp_path, "--wrappers")
    own = tmp_path / "wrappers" / "extend"
    text = own.read_text()
    own.write_text(text.replace("LIMIT = 1440", "LIMIT = 60"))
    (tmp_path / "wrappers" / "log").unlink()
    unforced = gpuspawner("files", tmp_path, "--wrappers")
    unforced_text = own.read_text()
    forced = gpuspawner("files", tmp_path, "--wrappers", "--force")

    assert (unforced.exit_code, unforced_text) == (1, text.replace("LIMIT = 1440", "LIMIT = 60"))
    assert [line for line in unforced.stdout.splitlines() if re.match("(wrote|kept) ", line)] == [
        f"kept {own} (mode 0755): it differs; --force replaces it",
        f"wrote {tmp_path}/wrappers/log (mode 0755)",
    ]
    assert (forced.exit_code, own.read_text()) == (0, text)


def test_a_link_in_the_place_of_a_file_is_replaced_and_not_followed(gpuspawner: Call, tmp_path: Path) -> None:
    """As with any other content, only by ``--force``."""
    target = tmp_path / "target"
    target.write_text("its own")
    (tmp_path / "sudoers").symlink_to(target)
    result = gpuspawner("files", tmp_path, "--sudoers")
    gpuspawner("files", tmp_path, "--sudoers", "--force")

    assert (result.exit_code, target.read_text(), (tmp_path / "sudoers").is_symlink()) == (1, "its own", False)


def test_a_file_of_another_account_is_written_anew_as_roots(gpuspawner: Call, tmp_path: Path) -> None:
    """Its content is right, and its owner could change it after that."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    gpuspawner("files", tmp_path, "--wrappers")
    script = tmp_path / "wrappers" / "submit"
    os.chown(script, 65534, -1)
    result = gpuspawner("files", tmp_path, "--wrappers")

    assert [line for line in result.stdout.splitlines() if line.startswith("wrote")] == [f"wrote {script} (mode 0755)"]
    assert (result.exit_code, script.stat().st_uid) == (0, 0)


@pytest.mark.parametrize("words", [(), ("--force",)])
def test_a_folder_in_the_place_of_a_file_is_an_error(gpuspawner: Call, tmp_path: Path, words: tuple[str, ...]) -> None:
    """It stays, and nothing is left beside it."""
    (tmp_path / "sudoers").mkdir()
    result = gpuspawner("files", tmp_path, "--sudoers", *words)

    assert (result.exit_code, result.stderr) == (
        1,
        f"Error: {tmp_path}/sudoers: a folder is in this file's place; remove it\n",
    )
    assert [path.name for path in tmp_path.iterdir()] == ["sudoers"]


def test_what_was_written_before_an_error_is_listed(gpuspawner: Call, tmp_path: Path) -> None:
    """So that an admin knows what is there."""
    (tmp_path / "sudoers").mkdir()
    result = gpuspawner("files", tmp_path, "--wrappers", "--sudoers")

    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"wrote {path} (mode 0755)" for path in sorted(tmp_path.glob("wrappers/*"))]


def test_it_warns_of_folders_by_which_others_can_replace_the_files(
    gpuspawner: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that others can write to, unless sticky, or that they own; also on the way to a link. The caller may."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    everybodys, sticky, anothers = (tmp_path / name for name in ("everybodys", "everybodys/sticky", "anothers"))
    (sticky / "hub").mkdir(parents=True)
    anothers.mkdir()
    everybodys.chmod(0o777)
    sticky.chmod(0o1777)
    os.chown(anothers, 65534, -1)
    (anothers / "link").symlink_to(sticky / "hub")
    argv = ("files", anothers / "link", "--sudoers")
    of_root = gpuspawner(*argv).stderr.splitlines()
    monkeypatch.setattr(os, "geteuid", lambda: 65534)
    of_owner = gpuspawner(*argv).stderr.splitlines()

    assert of_root == [
        f"gpuspawner: {anothers}: others than root can replace what is below (owner 65534, mode 0755). Run chown "
        f"root:root {anothers}, or choose another folder.",
        f"gpuspawner: {everybodys}: others than root can replace what is below (owner 0, mode 0777). Run chmod go-w "
        f"{everybodys}, or choose another folder.",
    ]
    assert of_owner == [of_root[1].replace("than root", "than root and this account")]


@pytest.mark.parametrize(("option", "named"), [("--wrappers", True), ("--ssh", True), ("--sudoers", False)])
def test_it_warns_of_folders_by_which_others_can_replace_the_programs_of_a_script(
    option: str, named: bool, gpuspawner: Call, tmp_path: Path
) -> None:
    """The scripts run as every user; also where a link leads to the program. sudo's rules name no program."""
    everybodys, own = tmp_path / "everybodys", tmp_path / "own"
    (everybodys / "slurm").mkdir(parents=True)
    own.mkdir()
    (own / "sbatch").symlink_to(everybodys / "slurm" / "sbatch")
    everybodys.chmod(0o777)
    result = gpuspawner("files", tmp_path / "hub", option, "--slurm-bin-dir", own)

    assert (f"gpuspawner: {everybodys}: others than " in result.stderr) is named


@pytest.mark.parametrize(
    ("node", "proxy", "protection"),
    [
        ("/usr/bin/node", "/usr/local/bin/configurable-http-proxy", "yes"),
        ("/home/ada/node/bin/node", "/usr/local/bin/configurable-http-proxy", "read-only"),
        ("/usr/bin/node", "~root/npm/bin/configurable-http-proxy", "read-only"),
    ],
)
def test_the_proxys_unit_hides_homes_unless_its_programs_are_there(node: str, proxy: str, protection: str) -> None:
    """With ``yes`` the service would not find them (systemd.exec(5))."""
    texts = {
        file.path.name: file.text
        for file in files_of(["systemd"], replace(SITE, node=Path(node), proxy=Path(proxy).expanduser()))
    }

    assert re.findall(r"(?m)^ProtectHome=(.*)", texts["jupyterhub-proxy.service"]) == [protection]


def test_it_says_that_the_proxys_service_cannot_enter_the_folder_of_node(
    gpuspawner: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which may be behind a link."""
    for folder in ("bin", "closed"):
        (tmp_path / folder).mkdir(mode=0o700)
    (tmp_path / "bin").chmod(0o755)
    for name in ("configurable-http-proxy", "node"):
        (tmp_path / "closed" / name).write_text("#!/bin/sh\n")
        (tmp_path / "closed" / name).chmod(0o755)
        (tmp_path / "bin" / name).symlink_to(tmp_path / "closed" / name)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    steps = gpuspawner("files", tmp_path / "hub", "--systemd").stdout.splitlines()

    assert [step for step in steps if step.endswith(("/closed", "/bin"))] == [
        "- Install Node.js and configurable-http-proxy where the proxy's service, which has an account of its own, can "
        f"run them, or let every user enter their folder: chmod a+x {tmp_path}/closed"
    ]


def test_an_address_of_ipv6_is_in_brackets_in_a_url_alone() -> None:
    """The proxy's unit has the only URL; sshd and JupyterHub want the bare address."""
    of_extensions = {path.name for path in files_of_extensions().values()}
    all_files = {file.path.name: file.text for file in files_of(GROUPS, replace(SITE, hub_ip="fd00::10"))}
    files = {name: text for name, text in all_files.items() if name not in of_extensions}

    assert {name: re.findall(r"\S*fd00::10\S*", text) for name, text in files.items() if "fd00" in text} == {
        "authorized_keys": ['restrict,from="fd00::10",command="/srv/hub/wrappers/gate"'],
        "jupyterhub-proxy.service": ["http://[fd00::10]:8081/hub/error"],
        "jupyterhub_config.py": ['"fd00::10"'],
    }


def test_a_path_is_written_without_two_dots(gpuspawner: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the system would follow it, also after a link."""
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/deep")
    monkeypatch.chdir(tmp_path)
    gpuspawner("files", "link/../hub", "--sudoers", "--wrapper-dir", "link/../scripts")
    rules = (tmp_path / "real" / "hub" / "sudoers").read_text()

    assert re.findall(r"(\S+)/submit", rules) == [f"{tmp_path}/real/scripts"]


@pytest.mark.parametrize("name", ["folder", "wrapper_dir", "bin_dir", "python", "proxy", "node", "slurm_bin_dir"])
def test_an_installation_has_no_path_with_two_dots(name: str) -> None:
    """sudo and systemd would not take it apart as the shell does."""
    path: dict[str, Any] = {name: Path("/srv/../etc")}

    with pytest.raises(ConfigError, match=f"^{name}: '/srv/../etc' is not a path"):
        replace(SITE, **path)


def test_the_scripts_have_what_is_found_here(gpuspawner: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm's commands, slurm.conf, the proxy and this Python's folder."""
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sbatch", "configurable-http-proxy", "node"):
        (programs / name).write_text("#!/bin/sh\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("SLURM_CONF", "/srv/slurm.conf")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    gpuspawner("files", tmp_path, "--wrappers", "--systemd")
    unit = (tmp_path / "jupyterhub-proxy.service").read_text()

    assert f'"{programs}/sbatch"' in (tmp_path / "wrappers" / "submit").read_text()
    assert '"SLURM_CONF": "/srv/slurm.conf"}' in (tmp_path / "wrappers" / "submit").read_text()
    assert f"\nExecStart={programs}/configurable-http-proxy " in unit
    assert f"\nEnvironment=PATH={tmp_path}:{programs}:/usr/local/bin:/usr/bin:/bin\n" in unit


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (("--account", "a b"), "account: 'a b' is not a name of one"),
        (
            ("--account", "ALL"),
            "account: 'ALL' means every account in sudoers. Use an account whose name has a lower-case letter, such as "
            "jupyterhub.",
        ),
        (
            ("--account", "GPU_HUB1"),
            "account: 'GPU_HUB1' means an alias in sudoers. Use an account whose name has a lower-case letter, such as "
            "jupyterhub.",
        ),
        (("--group", "%wheel"), "group: '%wheel' is not a name of one"),
        *(
            (("--hub-ip", value), f"hub_ip: {value!r} is neither an address nor a host name")
            for value in ("10.0.0.10/8", "10.0.0.10:8081", "[fd00::10]", "fe80::1%eth0")
        ),
        (
            ("--wrapper-dir", "/srv/a b"),
            "wrapper_dir: '/srv/a b' is not a path for sudoers, systemd and scripts. Use an absolute path of letters, "
            "digits and . _ + - alone, without '..'.",
        ),
    ],
)
def test_what_sudo_or_systemd_would_read_otherwise_is_refused(
    gpuspawner: Call, tmp_path: Path, words: tuple[str, str], fault: str
) -> None:
    """Before anything is written."""
    result = gpuspawner("files", tmp_path, *words)

    assert (result.exit_code, result.stderr) == (1, f"gpuspawner: {fault}\n")
    assert listing(tmp_path) == {}


def test_sudo_understands_the_rules(tmp_path: Path) -> None:
    """Those of a site, with the lines for ``extend``, too."""
    visudo = shutil.which("visudo", path=f"{os.environ['PATH']}:/usr/sbin")
    if visudo is None:
        pytest.skip("sudo is not installed")
    (file,) = files_of(["sudoers"], SITE)
    rules = tmp_path / "sudoers"
    rules.write_text(re.sub(r"(?m)^#(Cmnd_Alias|Defaults|HUB)", r"\1", file.text))
    done = subprocess.run([visudo, "-cf", str(rules)], capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (0, f"{rules}: parsed OK\n")


@pytest.mark.parametrize("group", ["ALL", "GPU_USERS"])
def test_sudo_reads_a_group_of_upper_case_letters_as_a_group(tmp_path: Path, group: str) -> None:
    """Unlike an account's, its name cannot be taken for an alias."""
    cvtsudoers = shutil.which("cvtsudoers")
    if cvtsudoers is None:
        pytest.skip("sudo is not installed, or older than 1.8.24")
    (file,) = files_of(["sudoers"], replace(SITE, group=group))
    rules = tmp_path / "sudoers"
    rules.write_text(file.text)
    done = subprocess.run([cvtsudoers, "-f", "json", str(rules)], capture_output=True, text=True, check=True)
    read = json.loads(done.stdout)

    assert read["User_Aliases"] == {"HUB": [{"username": "hub"}]}
    assert read["Runas_Aliases"] == {"NOTEBOOKUSERS": [{"usergroup": group}, {"userid": 0, "negated": True}]}


def test_systemd_understands_the_units(gpuspawner: Call, tmp_path: Path) -> None:
    """Of this installation; a program that is not here has a stand-in."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    gpuspawner("files", tmp_path, "--systemd")
    units = sorted(tmp_path.glob("*.service"))
    for unit in units:
        unit.write_text(re.sub(r"(?m)^ExecStart=\S+", "ExecStart=/bin/true", unit.read_text()))
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)

    assert len(units) == 2
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_a_path_for_slurm_conf_is_one() -> None:
    """It stands in the scripts as text of Python."""
    with pytest.raises(ConfigError, match="SLURM_CONF"):
        HubInstallation(Path("/a"), Path("/b"), Path("/c"), slurm_conf='/etc/a"; b')
