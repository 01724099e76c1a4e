"""``gpuspawner files``: what an admin installs beside a hub, with the paths of this installation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from jupyterhub_gpuspawner.cli.options import EXIT_CONFIG
from jupyterhub_gpuspawner.site.config_files import (
    GROUPS,
    Change,
    ConfigFile,
    HubInstallation,
    files_of,
    how_to_close,
    open_folders,
    this_installation,
)

_STEPS = {
    "sudoers": "install -o root -g root -m 440 {folder}/sudoers /etc/sudoers.d/jupyterhub && visudo -c",
    "ssh": 'Install the files of {folder}/ssh as the guide "Run the hub on a machine without Slurm" says, and the '
    "scripts in {wrapper_dir} of the login node.",
    "systemd": "install -m 644 {folder}/*.service /etc/systemd/system && systemctl daemon-reload",
    "webserver": 'Install one file of {folder}/webserver as the guide "Connect browsers, hub and nodes" says.',
    "profiles": "gpuspawner check -f {folder}/jupyterhub_config.py",
    "ansible": "ansible-playbook -i INVENTORY {folder}/ansible/hub.yml",
}
"""What is left to do, by option."""
_FOLDER = click.Path(path_type=Path, file_okay=False)


@click.command()
@click.argument("folder", metavar="DIR", type=_FOLDER)
@click.option("--wrappers", "groups", flag_value="wrappers", multiple=True, help="The scripts that sudo allows.")
@click.option("--sudoers", "groups", flag_value="sudoers", multiple=True, help="The rules for sudo.")
@click.option(
    "--ssh", "groups", flag_value="ssh", multiple=True, help="For a hub that reaches Slurm by ssh on a login node."
)
@click.option("--systemd", "groups", flag_value="systemd", multiple=True, help="Units for the hub and its proxy.")
@click.option("--webserver", "groups", flag_value="webserver", multiple=True, help="For nginx and for Apache.")
@click.option(
    "--profiles",
    "groups",
    flag_value="profiles",
    multiple=True,
    help="jupyterhub_config.py, with examples of profiles and of a course.",
)
@click.option(
    "--ansible", "groups", flag_value="ansible", multiple=True, help="A role that installs the hub, and its profiles."
)
@click.option("--account", default="", metavar="NAME", help="The hub's account. Default: jupyterhub.")
@click.option("--group", default="", metavar="NAME", help="Group of those who may use the hub. Default: notebookusers.")
@click.option("--hub-ip", default="", metavar="ADDRESS", help="The hub's address in the cluster's network.")
@click.option("--wrapper-dir", type=_FOLDER, help="Folder of the scripts for sudo. Default: DIR/wrappers.")
@click.option("--slurm-bin-dir", type=_FOLDER, help="Folder of Slurm's commands. Default: where sbatch is found.")
@click.option("--force", is_flag=True, help="Replace files that differ.")
def files(
    *,
    folder: Path,
    groups: tuple[str, ...],
    account: str,
    group: str,
    hub_ip: str,
    wrapper_dir: Path | None,
    slurm_bin_dir: Path | None,
    force: bool,
) -> None:
    """Write the files that an admin installs beside a hub into DIR, with the paths of this installation.

    Without an option for some of them, all are written. The scripts name Slurm's commands and SLURM_CONF as they are
    here, the services this Python environment, Node.js and configurable-http-proxy. What only you know is on lines
    marked SITE. A file that is there and differs is kept, and the command then ends with 1.
    """
    chosen = [name for name in GROUPS if name in groups] or [*GROUPS]
    installation = this_installation(
        folder, wrapper_dir=wrapper_dir, account=account, group=group, hub_ip=hub_ip, slurm_bin_dir=slurm_bin_dir
    )
    written = files_of(chosen, installation)
    changes = [_write(file, replace=force) for file in written]
    for path, status in _open_folders(chosen, installation).items():
        text = f"others than root{'' if os.geteuid() == 0 else ' and this account'} can replace what is below"
        fix = f"Run {how_to_close(path, status)}, or choose another folder."
        click.echo(
            f"gpuspawner: {path}: {text} (owner {status.st_uid}, mode {status.st_mode & 0o7777:04o}). {fix}", err=True
        )
    click.echo("\n".join(["Next:", *(f"- {step}" for step in _next_steps(chosen, installation, written))]))
    if Change.KEPT in changes:
        raise SystemExit(EXIT_CONFIG)


def _write(file: ConfigFile, *, replace: bool) -> Change:
    """Write a file and say so; raises ClickException."""
    try:
        change = file.write(replace=replace)
    except OSError as error:
        raise click.ClickException(f"{error.filename}: {error.strerror}") from None
    why = ": it differs; --force replaces it" if change is Change.KEPT else ""
    click.echo(f"{change.value} {file.path} (mode {file.mode:04o}){why}")
    return change


def _open_folders(groups: Sequence[str], installation: HubInstallation) -> dict[Path, os.stat_result]:
    """Those by which others can replace the files, or the scripts and programs that the files of these groups name."""
    programs: list[Path] = []
    if "wrappers" in groups or "ssh" in groups:
        programs += [installation.python, installation.slurm_bin_dir / "sbatch"]
    if "systemd" in groups:
        programs += [installation.bin_dir / "jupyterhub", installation.proxy, installation.node]
    folders = [installation.folder, installation.wrapper_dir]
    folders += [path.parent for program in programs for path in (program, Path(os.path.realpath(program)))]
    open_ones: dict[Path, os.stat_result] = {}
    for folder in dict.fromkeys(folders):
        open_ones |= open_folders(folder, (0, os.geteuid()))
    return open_ones


def _next_steps(groups: Sequence[str], installation: HubInstallation, written: Sequence[ConfigFile]) -> Iterator[str]:
    """Commands and sentences, one for each step."""
    folder, wrapper_dir = installation.folder, installation.wrapper_dir
    if any("SITE" in file.text for file in written):
        yield "Adapt the lines marked SITE in these files."
    if "wrappers" in groups:
        if os.geteuid() != 0:
            yield f"Let the scripts belong to root, who alone may change them: chown -R root:root {wrapper_dir}"
        for parent in _closed(wrapper_dir, *wrapper_dir.parents):
            yield f"Let every user enter the folder of the scripts: chmod a+x {parent}"
    if "systemd" in groups:
        for parent in _closed(*(parent for program in installation.programs_of_proxy for parent in program.parents)):
            yield (
                "Install Node.js and configurable-http-proxy where the proxy's service, which has an account of its "
                f"own, can run them, or let every user enter their folder: chmod a+x {parent}"
            )
    for group in groups:
        if group in _STEPS:
            yield _STEPS[group].format(folder=folder, wrapper_dir=wrapper_dir)


def _closed(*folders: Path) -> Iterator[Path]:
    """Those of them that not every user may enter."""
    for folder in dict.fromkeys(folders):
        if folder.is_dir() and not folder.stat().st_mode & 0o001:
            yield folder
