"""Hubs whose single-user servers are stand-ins: these tests cover how a server is started and ended."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.demo import hub as demo_hub
from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.fixtures.hubs import FILES_MAY_SAY_ALL, MAY_READ_METRICS, needs_proxy, slurm_environment

STAND_IN = Path(__file__).parents[1] / "standins" / "single_user.py"
COMMAND = f"[{sys.executable}, {STAND_IN}]"
LIGHT = f"""
- display_name: Light
  slug: light
  slurm: {{partition: batch, cpus: 1, memory: 100M, time: "0:10:00"}}
  command: {COMMAND}
  profile_options:
    cpus: {{display_name: Cores, range: {{min: 1, max: 4, default: 1, sets: slurm.cpus}}}}
- display_name: The K80 node
  slug: k80-node
  description: There is one such node, so the second one waits.
  slurm: {{partition: gpu, gpus: 4, gpu_type: k80, cpus: 24, memory: 4G, time: "0:10:00"}}
  command: {COMMAND}
"""
"""Profiles as YAML: one that starts in a second, and one that fills a node."""
AT_ONCE = 'c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}'
"""A line of configuration: REST answers a start at once, instead of after ten seconds while the server is not ready."""
IN_THE_END = 'c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 50}'
"""A line of configuration: REST answers with the result of a start that on a busy machine takes up to a minute."""


def start_hub(
    stack: ExitStack, slurm: PrivateSlurm, folder: Path, *, lines: str = "", profiles: str = LIGHT, **environment: str
) -> HubProcess:
    """Start a hub with the demo's configuration followed by ``lines``; it stops with ``stack``."""
    needs_proxy()
    hub = new_hub(slurm, folder, lines=lines, profiles=profiles, environment=environment)
    stack.callback(hub.stop)
    hub.start()
    return hub


def new_hub(
    slurm: PrivateSlurm,
    folder: Path,
    *,
    lines: str = "",
    profiles: str = LIGHT,
    port: int = 0,
    environment: Mapping[str, str] | None = None,
) -> HubProcess:
    """Return the same hub without starting it."""
    (folder / "profiles").mkdir(parents=True)
    (folder / "profiles" / "own.yaml").write_text(profiles)
    config = folder / "jupyterhub_config.py"
    config.write_text(f"load_subconfig({str(demo_hub.CONFIG)!r})\n{FILES_MAY_SAY_ALL}\n{MAY_READ_METRICS}\n{lines}\n")
    known = {**slurm_environment(slurm), **(environment or {})}
    return HubProcess(folder, config=config, environment=known, port=port)


StartHub = Callable[..., HubProcess]


@pytest.fixture(scope="module")
def start_light_hub(slurm_cluster: PrivateSlurm, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartHub]:
    """``start_light_hub(lines="...", profiles="...")``; a module may call it several times."""
    with ExitStack() as stack:

        def start(lines: str = "", profiles: str = LIGHT, **environment: str) -> HubProcess:
            folder = tmp_path_factory.mktemp("hub")
            return start_hub(stack, slurm_cluster, folder, lines=lines, profiles=profiles, **environment)

        yield start


@pytest.fixture(scope="module")
def light_hub(start_light_hub: StartHub) -> HubProcess:
    """One hub with light profiles for all tests of a module."""
    return start_light_hub()
