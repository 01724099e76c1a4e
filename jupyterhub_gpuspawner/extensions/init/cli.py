"""The command ``gpuspawner init``."""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import sys
from pathlib import Path

import click

from jupyterhub_gpuspawner.check.machine import is_own, own_address, sample
from jupyterhub_gpuspawner.errors import ConfigError
from jupyterhub_gpuspawner.extensions.init.ask import Cluster, OverSsh, ask
from jupyterhub_gpuspawner.extensions.init.plan import plan
from jupyterhub_gpuspawner.extensions.init.report import closed_text, cluster_text, next_text, profiles_text
from jupyterhub_gpuspawner.extensions.init.write import CONFIG, PROFILES, Machine, files_of, write
from jupyterhub_gpuspawner.site.config_files import SYSTEM_PATH
from jupyterhub_gpuspawner.slurm.commands import Installation
from jupyterhub_gpuspawner.slurm.job import own_account
from jupyterhub_gpuspawner.slurm.login_node import is_remote
from jupyterhub_gpuspawner.slurm.snapshot import ClusterSnapshot
from jupyterhub_gpuspawner.tasks import resolved
from jupyterhub_gpuspawner.words import counted

STANDARD_OUTPUT = "-"
_FOLDER = click.Path(file_okay=False)


@click.command()
@click.argument("folder", metavar="DIR")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    metavar="NAME",
    help="Make profiles for this partition, whoever may use it; may be repeated. Default: those open to everybody.",
)
@click.option("--cluster", default="", metavar="NAME", help="Another cluster of this machine's slurmdbd (--clusters).")
@click.option(
    "--login-node", default="", metavar="COMMAND", help='Ask Slurm by ssh on a login node, such as "ssh login".'
)
@click.option("--slurm-bin-dir", default="", metavar="DIR", help="Folder of Slurm's commands. Default: PATH has them.")
@click.option("--slurm-conf", default="", metavar="FILE", help="Path of slurm.conf. Default: that of SLURM_CONF.")
def init(
    *,
    folder: str,
    partitions: tuple[str, ...],
    cluster: str,
    login_node: str,
    slurm_bin_dir: str,
    slurm_conf: str,
) -> None:
    """Write a hub's first configuration and profiles into DIR, from what Slurm says of its cluster.

    Slurm is asked for its nodes, partitions and configuration, which any account may do; what it says is shown. Then
    jupyterhub_config.py and a folder of profiles are written: one for each kind of GPU, MIG device and shard, with the
    cores and memory that belong to one of it, and one without a GPU. Comments in them say why each value is as it is.

    With - for DIR the files are printed. No file is replaced. Run as root, it writes the configuration of a hub that is
    root; run as you, that of a hub for you alone.

    Exit code 1: a file is there already, or no partition is open to everybody; 3: Slurm does not answer.
    """
    prefix = _login_node(login_node)
    slurm: Installation = (
        OverSsh(prefix, bin_dir=slurm_bin_dir, cluster=cluster)
        if prefix
        else Installation(bin_dir=slurm_bin_dir, slurm_conf=slurm_conf, cluster=cluster)
    )
    described, machine = asyncio.run(_ask(slurm, login_node, cluster, slurm_bin_dir, slurm_conf))
    names = {partition.name for partition in described.snapshot.partitions}
    if unknown := [name for name in partitions if name not in names]:
        raise ConfigError(
            f"--partition: Slurm has no partition {unknown[0]}.", hint=f"Partitions are {', '.join(sorted(names))}."
        )
    planned = plan(described, partitions, for_oneself=not machine.as_root)
    printed = folder == STANDARD_OUTPUT
    click.echo(cluster_text(described, planned), err=printed)
    if not planned.profiles:
        raise ConfigError(
            f"no partition is open to {'everybody' if machine.as_root else 'you'}: {closed_text(planned.closed)}.",
            hint="Name one with --partition, whoever may use it.",
        )
    files = files_of(planned.profiles, machine, version=described.version, cluster_name=described.config.cluster_name)
    click.echo(f"\n{profiles_text(planned, [Path(name).name for name in files if name != CONFIG])}", err=printed)
    if printed:
        for name, text in files.items():
            click.echo(f"\n# ===== {name}\n\n{text}", nl=False)
        return
    path = Path(folder)
    write(path, files)
    profiles = counted(len(planned.profiles), "profile")
    click.echo(f"\nWrote {path / CONFIG}, and {profiles} in {path / PROFILES}.\n\n{next_text(path, machine)}")


def _login_node(command: str) -> tuple[str, ...]:
    """The words of the ssh command; raises BadParameter for one that is none."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise click.BadParameter(f"{command!r}: {error}.", param_hint="--login-node") from None
    if words and not is_remote(words):
        raise click.BadParameter(f'{command!r} must be an ssh command, such as "ssh login".', param_hint="--login-node")
    return words


async def _ask(
    slurm: Installation, login_node: str, req_cluster: str, bin_dir: str, conf: str
) -> tuple[Cluster, Machine]:
    """What Slurm says, and how this machine reaches it and its nodes."""
    described = await ask(slurm)
    is_node, address = await _way_to_nodes(described.snapshot)
    sinfo = shutil.which("sinfo", path=f"{bin_dir}:{os.environ.get('PATH', os.defpath)}") if not login_node else None
    outside = str(Path(sinfo).parent) if sinfo and str(Path(sinfo).parent) not in SYSTEM_PATH else ""
    programs, as_root = Path(sys.executable).parent, os.geteuid() == 0
    singleuser = programs / "jupyterhub-singleuser"
    # homes are on all nodes, or a person's jobs would not find theirs
    is_shared = is_node or (not as_root and singleuser.is_relative_to(Path.home()))
    search = f"{programs}:{os.environ.get('PATH', os.defpath)}"
    machine = Machine(
        as_root=as_root,
        user=own_account(),
        runuser=shutil.which("runuser", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin") or "runuser",
        hub_ip=address,
        is_node=is_node,
        singleuser=str(singleuser) if is_shared and singleuser.exists() else "",
        slurm_bin_dir=bin_dir or outside,
        slurm_conf=conf or ("" if login_node else os.environ.get("SLURM_CONF", "")),
        req_cluster=req_cluster or (described.config.cluster_name if described.siblings else ""),
        is_federated=bool(described.siblings),
        login_node=login_node,
        has_proxy=shutil.which("configurable-http-proxy", path=search) is not None,
    )
    return described, machine


async def _way_to_nodes(snapshot: ClusterSnapshot) -> tuple[bool, str]:
    """Whether all nodes are this machine, and its address on the way to one that is not; empty if not known."""
    all_own, address = False, ""
    for node in sample(snapshot):
        addresses = await resolved(node.address)
        if addresses and any(map(is_own, addresses)):
            all_own = True
        elif addresses:
            return False, own_address(addresses[0])
    return all_own, address
