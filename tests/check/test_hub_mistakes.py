"""Mistakes in the hub's settings, files and rules, and what `gpuspawner check` says of each."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from jupyterhub_gpuspawner.check import hub, machine, run, run_as, settings, slurm
from jupyterhub_gpuspawner.check.finding import DEFAULTS, Check, Options, Severity
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from jupyterhub_gpuspawner.site.configuration import load_site
from jupyterhub_gpuspawner.slurm.job import hub_mark
from jupyterhub_gpuspawner.slurm.scontrol import parse_config
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot, NodeState, Partition, SlurmConfig
from tests.check.test_right_configurations import of_tutorial, of_workshop

CONFIG = Path(__file__).parents[2] / "config"
HERE = (
    settings.check_settings,
    settings.check_left_out,
    settings.check_names,
    hub.check_hub_settings,
    hub.check_sign_in,
    hub.check_servers,
    machine.check_environment,
    machine.check_secrets,
    machine.check_paths,
    machine.check_address,
    machine.check_timeouts,
    machine.check_hub_stop,
    slurm.check_config,
    run_as.check_wrappers,
    run_as.check_prefix,
)
"""The checks of this module, without the one that needs jobs."""
BASE = """
c.JupyterHub.spawner_class = "gpu-profiles"
c.GPUProfilesSpawner.profiles = [{"display_name": "GPU", "slurm": {"partition": "gpu", "gpus": 1}}]
c.GPUSlurmSpawner.exec_prefix = ""
c.GPUSlurmSpawner.dangerously_run_servers_as_root = True
c.GPUSlurmSpawner.slurm_bin_dir = "FOLDER/slurm"
c.JupyterHub.db_url = "sqlite:///FOLDER/hub.sqlite"
c.JupyterHub.cleanup_servers = False
c.Authenticator.allow_all = True
"""
ELSEWHERE = ClusterSnapshot(
    nodes=(NodeState("g1", address="192.0.2.11", states=frozenset({"IDLE"})),),
    partitions=(Partition("gpu", nodes=("g1",)),),
)
"""One node on another machine; 192.0.2.0/24 is for documentation (RFC 5737)."""
AT_HOME = ClusterSnapshot(
    nodes=(NodeState("g1", address="127.0.0.1", states=frozenset({"IDLE"})),),
    partitions=(Partition("gpu", nodes=("g1",)),),
)
"""One node on the hub's own machine, as in the demo."""
UNRESOLVED = ClusterSnapshot(nodes=(NodeState("g1", address="g1.invalid", states=frozenset({"IDLE"})),))
"""A node whose name no resolver knows (RFC 6761)."""
ASLEEP = ClusterSnapshot(
    nodes=(NodeState("g1", address="g1.invalid", states=frozenset({"IDLE", "POWERED_DOWN"})),),
    partitions=(Partition("gpu", nodes=("g1", "g2")),),
)
"""A node that is powered down, whose address is not known until it is on, and one of which Slurm says nothing."""
SCONTROL = """#!/bin/sh
# a stand-in for scontrol: slurmctld's time and the few settings that are read
echo "Configuration data as of $(($(date +%s) + AHEAD))"
echo "PrivateData = none"
echo "ResumeProgram = /usr/sbin/resume"
echo "ResumeTimeout = 600 sec"
echo
echo "Slurmctld(primary) at head is UP"
"""
SUDO = "c.GPUSlurmSpawner.exec_prefix = 'sudo -n -u {username}'\n"
SCRIPTS = "c.GPUSlurmSpawner.wrapper_dir = 'FOLDER/libexec'\n"


def commands(folder: Path, *, sudo: str = 'shift 3; exec "$@"', ahead: int = 0) -> None:
    """Stand-ins for Slurm's commands and for sudo, which by default runs what it is given."""
    for name in ("slurm", "bin", "libexec"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "slurm" / "scontrol").write_text(SCONTROL.replace("AHEAD", f"({ahead})"))
    answer = "echo 'sbatch: error: Batch script is empty!' >&2; exit 1"
    (folder / "slurm" / "sbatch").write_text(f"#!/bin/sh\n# a stand-in for sbatch\n{answer}\n")
    (folder / "slurm" / "scancel").write_text("#!/bin/sh\n# a stand-in for scancel\n")
    (folder / "bin" / "sudo").write_text(f"#!/bin/sh\n# a stand-in for sudo\n{sudo}\n")
    for file in (*(folder / "slurm").iterdir(), folder / "bin" / "sudo"):
        file.chmod(0o755)
    for script in (CONFIG / "wrappers").iterdir():
        copy = folder / "libexec" / script.name
        copy.write_text(script.read_text().replace("/usr/bin/s", f"{folder}/slurm/s"))
        copy.chmod(0o755)


def federated(folder: Path) -> None:
    """A Slurm in a federation, as ``scontrol show federation`` of 22.05 lists it."""
    commands(folder)
    scontrol = folder / "slurm" / "scontrol"
    others = """
echo "ClusterName = juniper"
echo "Federation: trees"
echo "Self:       juniper:127.0.0.1:27463 ID:1 FedState:ACTIVE Features:"
echo "Sibling:    cedar:127.0.0.1:28152 ID:2 FedState:ACTIVE Features: PersistConnSend/Recv:Yes/Yes Synced:Yes"
"""
    scontrol.write_text(scontrol.read_text() + others)


def refusing_sudo(line: str) -> Callable[[Path], None]:
    """A sudo that refuses."""
    return lambda folder: commands(folder, sudo=f"echo {line!r} >&2; exit 1")


def own_home_page(folder: Path) -> None:
    """A folder of templates with a home page that extends none."""
    (folder / "templates").mkdir()
    (folder / "templates" / "home.html").write_text("<html></html>")


def older(folder: Path) -> None:
    """A script of another version."""
    script = folder / "libexec" / "cancel"
    script.write_text(script.read_text().replace("{0,9}", "{0,8}"))


def below_a_folder_of_another_account(folder: Path) -> None:
    """The scripts are root's, as they should be."""
    (folder / "hub").mkdir()
    shutil.copytree(folder / "libexec", folder / "hub" / "wrappers")
    os.chown(folder / "hub", 65534, 65534)
    (folder / "hub").chmod(0o775)


def written(name: str, mode: int) -> Callable[[Path], None]:
    """A file with a secret."""

    def write(folder: Path) -> None:
        (folder / name).write_text("aa" * 32)
        (folder / name).chmod(mode)

    return write


@pytest.mark.parametrize(
    ("config", "codes"),
    [
        (SlurmConfig(accounting=True, parameters={"AccountingStoreFlags": "Job_Env,x"}), ["job-environment-stored"]),
        (SlurmConfig(accounting=True, parameters={"AccountingStoreFlags": "job_script"}), []),
        (SlurmConfig(accounting=False, parameters={"AccountingStoreFlags": "job_env"}), []),
        (parse_config("PrivateData = none\nProctrackType           = proctrack/pgid\n"), ["processes-left"]),
        (parse_config("PrivateData = none\nProctrackType           = proctrack/linuxproc\n"), []),
        (parse_config("PrivateData = none\nProctrackType           = proctrack/cgroup\n"), []),
        (parse_config("PrivateData = none\nSelectType              = select/linear\n"), ["whole-nodes"]),
        (parse_config("PrivateData = none\nSelectType              = select/cons_tres\n"), []),
    ],
)
def test_a_slurm_that_keeps_tokens_or_kernels_is_told(config: SlurmConfig, codes: list[str]) -> None:
    """A job's environment has a secret, its script none; a kernel leaves its server's process group."""
    assert [(finding.severity, finding.code) for finding in slurm.slurm_conf_findings(config)] == [
        (Severity.WARNING, code) for code in codes
    ]


@dataclass(frozen=True)
class HubMistake:
    """A mistake in the configuration of a hub or in what surrounds it, and the finding about it."""

    lines: str
    finding: str
    surroundings: Callable[[Path], Any] = lambda _folder: None
    snapshot: ClusterSnapshot = AT_HOME
    options: Options = DEFAULTS


MISTAKES = {
    "a hub in a federation does not name its cluster": HubMistake(
        "",
        "WRONG Slurm: juniper is in a federation with cedar, so a server's job may start there, where the hub does not "
        'look: its start fails. Set c.GPUSlurmSpawner.req_cluster = "juniper"; with wrapper_dir, SLURM_CLUSTERS in '
        "each script as well. [federation]",
        surroundings=federated,
    ),
    "a page template of the site's is a whole page": HubMistake(
        "c.JupyterHub.template_paths.append('FOLDER/templates')",
        "warn  c.JupyterHub.template_paths: FOLDER/templates/home.html: the home page does not show the cards of "
        'servers: it does not extend "templates/home.html" [template-replaces]',
        surroundings=own_home_page,
    ),
    "hub_ip is not set": HubMistake(
        "",
        "WRONG c.JupyterHub.hub_ip: nodes are told to reach the hub at http://127.0.0.1:8081/hub/api, which on g1 is "
        "g1 itself: no server could report to the hub. Set c.JupyterHub.hub_ip to the address of this machine in the "
        "cluster's network. [hub-address-loopback]",
        snapshot=ELSEWHERE,
    ),
    "hub_bind_url is this machine's own loopback": HubMistake(
        "c.JupyterHub.hub_bind_url = 'http://localhost:8099'",
        "WRONG c.JupyterHub.hub_bind_url: nodes are told to reach the hub at http://localhost:8099/hub/api, which on "
        "g1 is g1 itself: no server could report to the hub. Set c.JupyterHub.hub_ip to the address of this machine "
        "in the cluster's network. [hub-address-loopback]",
        snapshot=ELSEWHERE,
    ),
    "the spawner tells another address than the hub has": HubMistake(
        "c.JupyterHub.hub_ip = ''\nc.Spawner.hub_connect_url = 'http://127.0.0.1:8081'",
        "WRONG c.Spawner.hub_connect_url: nodes are told to reach the hub at http://127.0.0.1:8081/hub/api, which on "
        "g1 is g1 itself: no server could report to the hub. Set c.JupyterHub.hub_ip to the address of this machine "
        "in the cluster's network. [hub-address-loopback]",
        snapshot=ELSEWHERE,
    ),
    "hub_ip is another machine's": HubMistake(
        "c.JupyterHub.hub_ip = '192.0.2.10'",
        "warn  c.JupyterHub.hub_ip: the hub would listen on 192.0.2.10, which is not an address of this machine: a "
        "hub that is started here exits. Use an address that `ip address` lists, and hub_connect_ip if nodes reach "
        "the hub at another one. [hub-address-foreign]",
    ),
    "a node's address has no entry in DNS": HubMistake(
        "",
        "warn  node g1: this machine cannot resolve 'g1.invalid', the node's address in Slurm (NodeAddr). Add the "
        "name to DNS or to /etc/hosts of the hub's machine: the hub's proxy connects to it. [node-unresolved]",
        snapshot=UNRESOLVED,
    ),
    "hub_connect_ip is a URL": HubMistake(
        "c.JupyterHub.hub_connect_ip = 'https://hub.example.org:8081'",
        "WRONG c.JupyterHub.hub_connect_ip: https://hub.example.org:8081 is a URL, and this setting is an address, "
        "such as hub.example.org: nobody would find the hub there. Write 'hub.example.org', or set "
        "c.JupyterHub.hub_connect_url to the URL. [hub-address-url]",
    ),
    "https without a certificate": HubMistake(
        "c.JupyterHub.bind_url = 'https://:443'",
        "WRONG c.JupyterHub.bind_url: it is https, and there is no certificate: the proxy speaks http alone at that "
        "address. Set ssl_key and ssl_cert, or write http:// where a web server in front of the hub has the "
        "certificate. [certificate-missing]",
    ),
    "a group of nobody's may sign in": HubMistake(
        "c.JupyterHub.authenticator_class = 'pam'\nc.PAMAuthenticator.allowed_groups = {'no-such-group', 'root'}",
        "warn  c.PAMAuthenticator.allowed_groups: this machine has no group no-such-group, so nobody may sign in by "
        "it. Write the group's name as `getent group` prints it. [unix-group-missing]",
    ),
    "no setting allows anybody": HubMistake(
        "del c.Authenticator['allow_all']\nc.Authenticator.admin_users = {'ada'}",
        "WRONG c.Authenticator: nobody may sign in, not even admins: since version 5 JupyterHub lets in only whom a "
        "setting allows. Set c.Authenticator.allow_all = True for everyone who has an account, or allowed_users, or "
        "c.LocalAuthenticator.allowed_groups. [sign-in-nobody]",
    ),
    "a group of nobody's has the admins": HubMistake(
        "c.JupyterHub.authenticator_class = 'pam'\nc.PAMAuthenticator.admin_groups = {'no-such-group'}",
        "warn  c.PAMAuthenticator.admin_groups: this machine has no group no-such-group, so nobody is an admin by it. "
        "Write the group's name as `getent group` prints it. [unix-group-missing]",
    ),
    "batchspawner's program in the command": HubMistake(
        "c.Spawner.cmd = ['batchspawner-singleuser', 'jupyterhub-singleuser']",
        "WRONG c.Spawner.cmd: batchspawner-singleuser asks the hub for an address that does not exist, so no server "
        "starts. Write ['jupyterhub-singleuser']. [old-launcher]",
    ),
    "a limit of JupyterHub's": HubMistake(
        "c.Spawner.mem_limit = '8G'",
        "warn  c.Spawner.mem_limit: it limits no job: Slurm gives each job what its profile requests (slurm.memory). "
        "Set slurm.memory in the profiles. [limit-without-effect]",
    ),
    "servers have one port": HubMistake(
        "c.Spawner.args = ['--ServerApp.port=8888']",
        "WRONG c.Spawner.args: --ServerApp.port=8888 would have a server listen elsewhere than at the address that its "
        "job reports to the hub. Remove it; c.GPUSlurmSpawner.port_range says which ports jobs may use. "
        "[server-port-fixed]",
    ),
    "servers get a secret of the hub's": HubMistake(
        "c.Spawner.env_keep = ['JUPYTERHUB_CRYPT_KEY']",
        "WRONG c.Spawner.env_keep: JUPYTERHUB_CRYPT_KEY: every server, and so every user, gets the hub's own "
        "JUPYTERHUB_CRYPT_KEY. Remove it. [hub-variable-kept]",
    ),
    "servers get the path of the hub's machine": HubMistake(
        "c.Spawner.env_keep = ['LANG', 'PATH']",
        "warn  c.Spawner.env_keep: PATH: every server gets the value that this machine has, and its node may have "
        "others. Remove it, and set environment in the profiles. [hub-variable-kept]",
    ),
    "servers listen on their loopback": HubMistake(
        "c.JupyterHub.hub_ip = ''\nc.Spawner.ip = '127.0.0.1'",
        "WRONG c.Spawner.ip: servers listen on 127.0.0.1 alone, and g1 is another machine than the hub's. Remove it: "
        "by default they listen on all addresses. [hub-address-loopback]",
        snapshot=ELSEWHERE,
    ),
    "a misspelt setting": HubMistake(
        "c.GPUSlurmSpawner.port_rang = '20000-20999'",
        "WRONG c.GPUSlurmSpawner.port_rang: GPUSlurmSpawner has no setting port_rang, so this line has no effect. "
        "Write c.GPUSlurmSpawner.port_range. [setting-unknown]",
    ),
    "a misspelt setting of JupyterHub's": HubMistake(
        "c.Spawner.http_timout = 120",
        "WRONG c.Spawner.http_timout: Spawner has no setting http_timout, so this line has no effect. Write "
        "c.Spawner.http_timeout. [setting-unknown]",
    ),
    "a setting of the hub's with an unknown name": HubMistake(
        "c.JupyterHub.colour = 'blue'",
        "warn  c.JupyterHub.colour: JupyterHub has no setting colour, so this line has no effect. Remove it, or look "
        "for its present name in the settings' reference. [setting-unknown]",
    ),
    "a misspelt class": HubMistake(
        "c.GPUSlurmSpwaner.port_range = '20000-20999'",
        "WRONG c.GPUSlurmSpwaner: there is no class GPUSlurmSpwaner, so port_range has no effect. Write "
        "c.GPUSlurmSpawner.port_range. [class-unknown]",
    ),
    "an authenticator that is not installed": HubMistake(
        "c.JupyterHub.authenticator_class = 'no.such.Authenticator'",
        "WRONG c.JupyterHub.authenticator_class: The 'authenticator_class' trait of JupyterHub must be a type, but "
        "'no.such.Authenticator' could not be imported. [hub-setting-invalid]",
    ),
    "a setting of batchspawner's that does nothing here": HubMistake(
        "c.SlurmSpawner.batch_query_cmd = 'sudo squeue'",
        "warn  c.SlurmSpawner.batch_query_cmd: has no effect. The commands are fixed; set "
        "c.GPUSlurmSpawner.slurm_bin_dir to the folder of another Slurm's commands. [setting-ignored]",
    ),
    "sbatch is told to pass no variables": HubMistake(
        "c.Spawner.environment = {'SBATCH_EXPORT': 'NONE'}",
        "WRONG c.Spawner.environment: SBATCH_EXPORT: this variable keeps the hub's variables from every job, so that "
        "no server can sign in to the hub. Remove it. [slurm-variable]",
    ),
    "a partition is set in sbatch's environment": HubMistake(
        "c.Spawner.environment = {'SBATCH_PARTITION': 'debug'}",
        "WRONG c.Spawner.environment: SBATCH_PARTITION: this variable is read by sbatch, and overrides what profiles "
        "request. Remove it. [slurm-variable]",
    ),
    "wrapper_dir does not exist": HubMistake(
        f"{SUDO}c.GPUSlurmSpawner.wrapper_dir = '/no/such/folder'",
        "WRONG c.GPUSlurmSpawner.wrapper_dir: there is no folder /no/such/folder. As root, run "
        "`gpuspawner files /etc/jupyterhub --wrappers --wrapper-dir /no/such/folder`. [wrapper-missing]",
        refusing_sudo("sudo: a password is required"),
    ),
    "one script is not installed": HubMistake(
        SUDO + SCRIPTS,
        "WRONG c.GPUSlurmSpawner.wrapper_dir: there is no script FOLDER/libexec/trial. As root, run "
        "`gpuspawner files /etc/jupyterhub --wrappers --wrapper-dir FOLDER/libexec`. [wrapper-missing]",
        lambda folder: (folder / "libexec" / "trial").unlink(),
    ),
    "a script cannot be executed": HubMistake(
        SUDO + SCRIPTS,
        "WRONG c.GPUSlurmSpawner.wrapper_dir: FOLDER/libexec/submit cannot be run by every user (mode 0644). Run "
        "chmod 755 FOLDER/libexec/submit. [wrapper-missing]",
        lambda folder: (folder / "libexec" / "submit").chmod(0o644),
    ),
    "others may write to a script": HubMistake(
        SUDO + SCRIPTS,
        "WRONG c.GPUSlurmSpawner.wrapper_dir: FOLDER/libexec/submit can be changed by others than root (owner 0, "
        "mode 0757), who could run anything as every user of the hub. Run chmod go-w FOLDER/libexec/submit. "
        "[wrapper-writable]",
        lambda folder: (folder / "libexec" / "submit").chmod(0o757),
    ),
    "another account may rename a folder above the scripts": HubMistake(
        f"{SUDO}c.GPUSlurmSpawner.wrapper_dir = 'FOLDER/hub/wrappers'",
        "WRONG c.GPUSlurmSpawner.wrapper_dir: FOLDER/hub can be changed by others than root (owner 65534, mode 0775), "
        "who could run anything as every user of the hub. Run chown root:root FOLDER/hub and chmod go-w FOLDER/hub, or "
        "choose another folder for the scripts. [wrapper-writable]",
        below_a_folder_of_another_account,
    ),
    "a script is of another version": HubMistake(
        SUDO + SCRIPTS,
        "warn  c.GPUSlurmSpawner.wrapper_dir: FOLDER/libexec/cancel is not the script of this version, apart from "
        "its lines marked SITE. Remove it, unless you changed it on purpose, and as root run `gpuspawner files "
        "/etc/jupyterhub --wrappers --wrapper-dir FOLDER/libexec`. [wrapper-differs]",
        older,
    ),
    "the prefix names a command that is not there": HubMistake(
        "c.GPUSlurmSpawner.exec_prefix = 'doas-no-such -u {username}'",
        "WRONG c.GPUSlurmSpawner.exec_prefix: there is no command 'doas-no-such' on this machine, with which Slurm's "
        "commands are run as the user. Install it, or write its full path. [run-as-user-fails]",
    ),
    "the prefix names somebody instead of a field": HubMistake(
        "c.GPUSlurmSpawner.exec_prefix = 'sudo -E -u username'",
        "WRONG c.GPUSlurmSpawner.exec_prefix: there is no account 'username', as which Slurm's commands are run. "
        "Write {username} in its place, as in `sudo -n -u {username}`. [run-as-user-fails]",
    ),
    "the prefix has a variable of a shell": HubMistake(
        "c.GPUSlurmSpawner.exec_prefix = 'sudo -nu $USER'",
        "WRONG c.GPUSlurmSpawner.exec_prefix: there is no account '$USER', as which Slurm's commands are run. Write "
        "{username} in its place, as in `sudo -n -u {username}`. [run-as-user-fails]",
        options=Options(user="daemon"),
    ),
    "the prefix names nobody, to another program than sudo": HubMistake(
        "c.GPUSlurmSpawner.exec_prefix = 'setpriv --reuid=nobody-such --clear-groups --'",
        "WRONG c.GPUSlurmSpawner.exec_prefix: there is no account 'nobody-such', as which Slurm's commands are run. "
        "Write {username} in its place, as in `sudo -n -u {username}`. [run-as-user-fails]",
    ),
    "the prefix is the same for every user": HubMistake(
        "c.GPUSlurmSpawner.exec_prefix = 'sudo -n --user=daemon'",
        "warn  c.GPUSlurmSpawner.exec_prefix: it has no {username}, so every server runs under the same account, and "
        "users can read each other's files. Write {username} where the account's name belongs, as in `sudo -n -u "
        "{username}`. [one-account]",
    ),
    "sudo asks for a password": HubMistake(
        SUDO + SCRIPTS,
        "WRONG c.GPUSlurmSpawner.exec_prefix: submit was not run: sudo asks for a password (sudo: a password is "
        "required). The same for trial, cancel, log. Allow the hub's account to run Slurm's commands without one "
        "(NOPASSWD in sudoers, for a group with the user in it). [run-as-user-fails]",
        refusing_sudo("sudo: a password is required"),
        options=Options(user="daemon"),
    ),
    "sudo's rules name other commands": HubMistake(
        SUDO,
        "WRONG c.GPUSlurmSpawner.exec_prefix: sbatch was not run: sudo does not allow it (Sorry, user jupyterhub is "
        "not allowed to execute x). The same for scancel. Compare the command with the sudoers file. "
        "[run-as-user-fails]",
        refusing_sudo("Sorry, user jupyterhub is not allowed to execute x"),
        options=Options(user="daemon"),
    ),
    "a script behind sudo that answers something else": HubMistake(
        SUDO + SCRIPTS,
        "WRONG c.GPUSlurmSpawner.exec_prefix: log does not answer as it should: Traceback. Run the command by hand "
        "as the hub's account, and compare the script with that of this version, which `gpuspawner files DIR "
        "--wrappers` writes. [run-as-user-fails]",
        lambda folder: commands(
            folder,
            sudo="shift 3; case $1 in */log) echo Traceback >&2;; */trial) echo 'sbatch: error: ' >&2;; "
            '*) echo "${1##*/}: the input " >&2;; esac; exit 1',
        ),
        options=Options(user="daemon"),
    ),
    "start_timeout is shorter than the launcher": HubMistake(
        "c.Spawner.start_timeout = 10",
        "warn  c.Spawner.start_timeout: 10 s is less than the launcher may take on a node (23 s), without the "
        "modules or the environment of a profile. Use the default of 300, or more; time in the queue does not count. "
        "[start-timeout-short]",
    ),
    "Slurm hides nodes that are powered down": HubMistake(
        "",
        "warn  PrivateData: Slurm does not show nodes of partition gpu while they are powered down, so forms cannot "
        "say when a server starts there, and no seats of courses are counted. Add cloud to PrivateData in slurm.conf. "
        "[nodes-hidden]",
        snapshot=ASLEEP,
    ),
    "nobody has decided what becomes of servers when the hub is stopped": HubMistake(
        "del c.JupyterHub['cleanup_servers']",
        "warn  c.JupyterHub.cleanup_servers: it is not set, and True by default: a hub that is stopped or restarted "
        "cancels the jobs of all servers. Set c.JupyterHub.cleanup_servers = False, or True if that is what you want. "
        "[servers-end-with-hub]",
    ),
    "the key of the site's certificate is missing": HubMistake(
        "c.JupyterHub.ssl_key = 'FOLDER/key.pem'",
        "WRONG c.JupyterHub.ssl_key: there is no file FOLDER/key.pem. Give the full path of a file in PEM format. "
        "[tls-file]",
    ),
    "a folder of logs with a field that is not replaced": HubMistake(
        "c.GPUSlurmSpawner.log_dir = '/var/log/{user}'",
        "WRONG c.GPUSlurmSpawner.log_dir: {user} in '/var/log/{user}' is not replaced, so jobs would look for a "
        "folder that is called so. Write {homedir} or {username}, or the path itself. [path-not-replaced]",
    ),
    "a folder of logs with a variable of the shell": HubMistake(
        "c.GPUSlurmSpawner.log_dir = '$HOME/logs'",
        "WRONG c.GPUSlurmSpawner.log_dir: $HOME in '$HOME/logs' is not replaced, so jobs would look for a folder "
        "that is called so. Write {homedir} or {username}, or the path itself. [path-not-replaced]",
    ),
    "a home with ~": HubMistake(
        "c.GPUSlurmSpawner.req_homedir = '~{username}'",
        "WRONG c.GPUSlurmSpawner.req_homedir: ~ in '~{username}' is not replaced, so jobs would look for a folder "
        "that is called so. Write {username}, or the path itself. [path-not-replaced]",
    ),
    "a number as text": HubMistake(
        "c.JupyterHub.hub_port = '8081'",
        "WRONG c.JupyterHub.hub_port: The 'hub_port' trait of a JupyterHub instance expected an int, not the str "
        "'8081'. Write c.JupyterHub.hub_port = 8081. [hub-setting-invalid]",
    ),
    "one user as text": HubMistake(
        "c.Authenticator.admin_users = 'ada, bob'",
        "WRONG c.Authenticator.admin_users: The 'admin_users' trait of a PAMAuthenticator instance expected a set, "
        "not the str 'ada, bob'. Write c.Authenticator.admin_users = {'ada', 'bob'}. [hub-setting-invalid]",
    ),
    "a number of users": HubMistake(
        "c.Authenticator.allowed_users = 3",
        "WRONG c.Authenticator.allowed_users: The 'allowed_users' trait of a PAMAuthenticator instance expected a "
        "set, not the int 3. [hub-setting-invalid]",
    ),
    "a truth value as text": HubMistake(
        "c.PAMAuthenticator.open_sessions = 'no'",
        "WRONG c.PAMAuthenticator.open_sessions: The 'open_sessions' trait of a PAMAuthenticator instance expected a "
        "boolean, not the str 'no'. Write True or False, without quotes. [hub-setting-invalid]",
    ),
    "a password that is a number": HubMistake(
        "c.JupyterHub.authenticator_class = 'dummy'\nc.DummyAuthenticator.password = 1234",
        "WRONG c.DummyAuthenticator.password: the value must be a unicode string, and is of type int. "
        "[hub-setting-invalid]",
    ),
    "a list in the place of groups": HubMistake(
        "c.JupyterHub.load_groups = ['course']",
        "WRONG c.JupyterHub.load_groups: The 'load_groups' trait of a JupyterHub instance expected a dict, not the "
        "list ['course']. [hub-setting-invalid]",
    ),
    "a user is appended to a set": HubMistake(
        "c.Authenticator.admin_users.append('ada')",
        "WRONG c.Authenticator.admin_users: this setting is a set, to which append or extend adds nothing. Use "
        "c.Authenticator.admin_users.update. [addition-ignored]",
    ),
    "the server's command is one text": HubMistake(
        "c.Spawner.cmd = 'jupyterhub-singleuser --debug'",
        "WRONG c.Spawner.cmd: 'jupyterhub-singleuser --debug' is taken for the name of one program, which does not "
        "exist. Write c.Spawner.cmd = ['jupyterhub-singleuser', '--debug']. [command-not-list]",
    ),
    "the proxy's command has its options in its first word": HubMistake(
        "c.ConfigurableHTTPProxy.command = ['configurable-http-proxy --log-level debug', '--insecure']",
        "WRONG c.ConfigurableHTTPProxy.command: 'configurable-http-proxy --log-level debug' is taken for the name of "
        "one program, which does not exist. Write c.ConfigurableHTTPProxy.command = ['configurable-http-proxy', "
        "'--log-level', 'debug', '--insecure']. [command-not-list]",
    ),
    "slurmctld's clock is behind": HubMistake(
        "",
        "WRONG Slurm: slurmctld's clock is 2 min behind this machine's, so pages show wrong times and starts are "
        "given up too early or too late. Synchronise both with the same time server (`chronyc tracking`, "
        "`timedatectl`). [clock-differs]",
        lambda folder: commands(folder, ahead=-125),
    ),
}


async def alarms(
    folder: Path,
    text: str,
    snapshot: ClusterSnapshot = AT_HOME,
    options: Options = DEFAULTS,
    checks: tuple[Check, ...] = HERE,
) -> list[str]:
    """The lines about what is not in order in a configuration, without an address that is suggested."""
    config = folder / "jupyterhub_config.py"
    config.write_text(text.replace("FOLDER/", f"{folder}/"))
    context = await run.context_of(load_site(config), options)
    findings = await run.findings(replace(context, snapshot=snapshot, slurm_error=None), checks)
    lines = [
        run.line(finding).replace(str(folder), "FOLDER") for finding in findings if finding.severity is not Severity.OK
    ]
    return [re.sub(r", such as [0-9a-f.:]+\. \[", ". [", line) for line in lines]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with stand-ins for Slurm's commands and sudo, and copies of the scripts that admins install."""
    if os.geteuid() != 0:
        pytest.skip("scripts that are installed belong to root")
    commands(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:/usr/bin:/bin")
    monkeypatch.setattr("os.geteuid", lambda: 990)  # not root, whom sudo never refuses
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
async def test_a_mistake_is_found_where_it_was_made(site: Path, mistake: HubMistake) -> None:
    """One finding and no other: its severity and code, the file or setting, the fault, and what would be right."""
    mistake.surroundings(site)

    assert await alarms(site, BASE + mistake.lines, mistake.snapshot, mistake.options) == [mistake.finding]


@pytest.mark.parametrize(
    "name",
    [
        "wrapper_dir does not exist",
        "one script is not installed",
        "sudo asks for a password",
        "sudo's rules name other commands",
    ],
)
async def test_a_sudo_that_does_not_work_is_one_finding(site: Path, name: str) -> None:
    """With --user a job of each profile would fail for the same reason, which is not said again."""
    mistake = MISTAKES[name]
    works = '[ -x "$1" ] && { echo "${1##*/}: the input " >&2; exit 1; }'
    commands(site, sudo=f"shift 3; {works}; echo 'sudo: a password is required' >&2; exit 1")
    mistake.surroundings(site)
    checks = (*(check for check in run.checks_of(None) if check.__name__ == "check_trials"), *HERE)

    (line,) = await alarms(site, BASE + mistake.lines, mistake.snapshot, Options(user="daemon"), checks)
    assert line.partition(" [")[2] == mistake.finding.partition(" [")[2]


@pytest.mark.parametrize(
    ("folder_mode", "mode", "findings"),
    [
        (
            0o755,
            0o644,
            [
                "WRONG c.JupyterHub.ssl_key: every account can read FOLDER/key.pem (mode 0644). Run chmod 600 "
                "FOLDER/key.pem. [tls-file]"
            ],
        ),
        (0o755, 0o640, []),
        (0o700, 0o644, []),
        (0o750, 0o644, []),
    ],
    ids=["open to all", "open to a group, such as ssl-cert", "in a closed folder", "in the folder of a group"],
)
async def test_a_key_that_every_account_can_read_is_found(
    public_folder: Path, folder_mode: int, mode: int, findings: list[str]
) -> None:
    """A folder that others may not enter protects it, as it does the database."""
    folder = public_folder / f"key-{folder_mode:o}-{mode:o}"
    folder.mkdir()
    written("key.pem", mode)(folder)
    folder.chmod(folder_mode)

    lines = f"{BASE}c.JupyterHub.ssl_key = 'FOLDER/key.pem'"
    assert await alarms(folder, lines, checks=(machine.check_secrets,)) == findings


async def test_a_database_that_cannot_be_written_is_found(tmp_path: Path) -> None:
    """What it says, and where to look; the database stays as it is."""
    database = sqlite3.connect(tmp_path / "hub.sqlite", isolation_level=None)
    (tmp_path / "hub.sqlite").chmod(0o600)
    lines = f"{BASE}c.JupyterHub.db_kwargs = {{'connect_args': {{'timeout': 0}}}}"
    before = await alarms(tmp_path, lines, checks=(settings.check_settings,))
    database.execute("BEGIN EXCLUSIVE")

    assert before == []
    assert await alarms(tmp_path, lines, checks=(settings.check_settings,)) == [
        "WRONG database: it takes no changes ((sqlite3.OperationalError) database is locked), so nobody could sign in, "
        "and no server start. Look at FOLDER/hub.sqlite and its folder: owner and mode, `df FOLDER`, and a mount that "
        "is read-only. [database-read-only]"
    ]
    database.execute("ROLLBACK")
    assert database.execute("SELECT name FROM sqlite_master").fetchall() == []
    database.close()


@pytest.mark.parametrize("lines", [of_tutorial, of_workshop], ids=lambda lines: lines.__name__)
async def test_the_configurations_that_are_shown_are_in_order(site: Path, lines: Callable[[Path], str]) -> None:
    """Those of the tutorial and of the workshop name no setting that does not exist."""
    (site / "profiles").mkdir()
    text = lines(site / "profiles").replace("/no/such/folder", f"{site}/slurm")

    assert [line for line in await alarms(site, text) if "[setting-ignored]" not in line] == []


@pytest.mark.parametrize(
    "lines",
    [
        "c.Spawner.cmd = 'jupyterhub-singleuser'",
        "c.Spawner.cmd = ['bash', '-c', 'exec jupyterhub-singleuser \"$@\"']",
        "c.Spawner.args = '--debug'",
        "c.Authenticator.allowed_users = ['ada', 'bob']",
        "c.Authenticator.admin_users.add('ada')",
        "c.Authenticator.allow_all = 1",
        "c.JupyterHub.load_groups.update({'course': ['ada']})",
        "c.JupyterHub.allow_named_servers = True",
    ],
)
async def test_values_that_jupyterhub_accepts_raise_no_alarm(site: Path, lines: str) -> None:
    """Other spellings of a right value: traitlets makes a list of a text, a set of a list, a truth value of 1."""
    assert await alarms(site, BASE + lines, checks=(settings.check_names,)) == []


@pytest.mark.parametrize(
    "lines",
    [
        "c.ConfigurableHTTPProxy.should_start = False",
        "c.Proxy.should_start = False",
        "c.ConfigurableHTTPProxy.command = ['configurable-http-proxy', '--ssl-cert', '/etc/cert.pem']",
        "c.JupyterHub.proxy_class = 'traefik_file'",
        "c.JupyterHub.ssl_cert = '/etc/cert.pem'",
    ],
)
async def test_a_proxy_with_a_certificate_of_its_own_may_have_an_address_with_https(site: Path, lines: str) -> None:
    """The site starts it, or gives it the certificate by its command; or it is another proxy."""
    lines = f"{BASE}c.JupyterHub.bind_url = 'https://:443'\n{lines}"

    assert await alarms(site, lines, checks=(hub.check_hub_settings,)) == []


@pytest.mark.parametrize(
    ("words", "codes"),
    [
        ("timeout 9 sudo -n -u {username}", ["checked-as-root"]),
        ("env -u sudo", ["one-account"]),
    ],
)
async def test_a_check_as_root_says_that_sudo_refuses_it_nothing(
    site: Path, monkeypatch: pytest.MonkeyPatch, words: str, codes: list[str]
) -> None:
    """Where sudo is one of the programs of exec_prefix, and not where a value has its name."""
    monkeypatch.setattr("os.geteuid", lambda: 0)
    commands(site, sudo='shift 3; exec "$@"')
    lines = f"c.GPUSlurmSpawner.exec_prefix = {words!r}\n"
    messages = await alarms(site, BASE + lines, options=Options(user="daemon"), checks=(run_as.check_prefix,))

    assert [line.rpartition("[")[2] for line in messages] == [f"{code}]" for code in codes]


async def test_scripts_that_work_for_a_user_are_said_to(site: Path) -> None:
    """With --user, all scripts are tried behind a stand-in for sudo, which answers as they do."""
    answer = 'case $1 in */trial) echo "sbatch: error: " >&2;; *) echo "${1##*/}: the input " >&2;; esac; exit 1'
    commands(site, sudo=f"shift 3; {answer}")
    (site / "jupyterhub_config.py").write_text((BASE + SUDO + SCRIPTS).replace("FOLDER", str(site)))
    context = await run.context_of(load_site(site / "jupyterhub_config.py"), Options(user="daemon"))

    assert [
        run.line(finding) for finding in await run.findings(context, (run_as.check_wrappers, run_as.check_prefix))
    ] == ["ok    c.GPUSlurmSpawner.exec_prefix: 4 scripts run as daemon through `sudo -n -u daemon`."]


async def test_a_hub_without_the_one_line_uses_nothing_of_this_package(site: Path) -> None:
    """JupyterHub's own default starts every server on the hub's machine; a file that another one loads has no say."""
    assert await alarms(site, BASE.replace('c.JupyterHub.spawner_class = "gpu-profiles"', "")) == [
        "WRONG c.JupyterHub.spawner_class: it is not set, so the hub uses nothing of this package and starts every "
        "server on its own machine. Set it to 'gpu-profiles'; if another file that loads this one sets it "
        "(load_subconfig), check that file. [spawner-class-missing]"
    ]


async def test_nothing_is_run_as_a_user_whom_nobody_named(site: Path) -> None:
    """Users of the configuration are not those of --user: sudo's log would show what they never did."""
    commands(site, sudo=f'echo "$@" >> {site}/sudo.log; exit 1')
    lines = f"c.Authenticator.allowed_users = {{'daemon'}}\n{SUDO}{SCRIPTS}"

    assert await alarms(site, BASE + lines) == []
    assert not (site / "sudo.log").exists()


def test_a_sites_own_values_do_not_make_it_another_script() -> None:
    """The lines marked SITE are the admin's, in any form that Python takes."""
    script = (CONFIG / "wrappers" / "submit").read_text()
    values = {
        '"/usr/bin/sbatch"': '"/opt/slurm/bin/sbatch"',
        'ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}': (
            'ENVIRONMENT = {\n    "PATH": "/usr/bin:/bin",\n    "SLURM_CONF": "/etc/slurm.conf",\n}'
        ),
        "UMASK = 0o022": "UMASK = 0o027",
    }
    changed = script
    for shipped, own in values.items():
        changed = changed.replace(shipped, own)

    assert [own for own in values.values() if own not in changed] == []
    assert run_as.commands_of(changed) == run_as.commands_of(script)


@pytest.mark.slurm
async def test_another_hub_of_the_same_name_is_seen_by_its_jobs(tmp_path: Path, slurm_cluster: PrivateSlurm) -> None:
    """A pending job with this hub's name and another hub's mark is an error at hub_name; this hub's own job is not."""
    (tmp_path / "secret").write_text("ab" * 32)
    lines = (
        f"c.JupyterHub.cookie_secret_file = '{tmp_path}/secret'\nc.GPUSlurmSpawner.hub_name = 'twin'\n"
        f"c.GPUSlurmSpawner.slurm_bin_dir = {slurm_cluster.bin_dir!r}\n"
    )
    own = hub_mark(bytes.fromhex("ab" * 32))
    options = ("--parsable", "--hold", "--chdir=/", "--output=/dev/null", "--partition=batch", "--wrap=true")
    jobs = [
        slurm_cluster.run("sbatch", *options, f"--comment=jupyterhub-gpuspawner/twin/ada/#{mark}-1").strip()
        for mark in (own, "01234567")
    ]
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in slurm_cluster.environment.items():
                patch.setenv(name, value)
            messages = await alarms(tmp_path, BASE + lines, checks=(machine.check_same_name,))
    finally:
        slurm_cluster.run("scancel", *jobs)

    assert messages == [
        "WRONG c.GPUSlurmSpawner.hub_name: Slurm has 1 jobs of another hub, or of this one with an earlier cookie "
        f"secret under the name 'twin' (job {jobs[1]}). Give each hub of the cluster a hub_name of its own; after the "
        "loss of a cookie secret, cancel these jobs. [hub-name-shared]"
    ]
