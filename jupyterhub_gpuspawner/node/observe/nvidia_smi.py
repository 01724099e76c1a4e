"""Read the GPUs from the output of ``nvidia-smi``, where NVML cannot be loaded.

Three calls: ``--query-gpu`` for the GPUs, ``-L`` for MIG devices, ``topo -m`` for the links, which takes longest.
"""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.node.observe.errors import UnavailableError
from jupyterhub_gpuspawner.placement import nvidia_smi_matrix
from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERY = ("index", "uuid", "pci.bus_id", "name", "memory.total", "driver_version", "pcie.link.gen.max")
_WHOLE = re.compile(r"GPU (?P<index>\d+): .*\(UUID: (?P<uuid>GPU-[0-9a-f-]+)\)")
_PART = re.compile(r"\s+MIG (?P<profile>\S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-\S+)\)")


def read() -> Iterator[NodeTopology]:
    """Every GPU that ``nvidia-smi`` shows, after each of its answers; raises :class:`UnavailableError` at the first."""
    query = _run(f"--query-gpu={','.join(QUERY)}", "--format=csv,noheader,nounits")
    if isinstance(query, Exception):
        raise UnavailableError(str(query))
    gpus, driver = parse_query(query)
    yield compose(gpus, "", "", driver=driver)
    answers, problems = {"-L": "", "topo -m": ""}, list[str]()
    for arguments in answers:
        answer = _run(*arguments.split())
        if isinstance(answer, str):
            answers[arguments] = answer
        else:
            problems.append(str(answer))
        yield compose(gpus, answers["topo -m"], answers["-L"], driver=driver, problems=tuple(problems))


def _run(*arguments: str) -> str | Exception:
    command = ["nvidia-smi", *arguments]
    try:
        # No time-out here: all of this runs in a child process with a deadline.
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace", check=False
        )
    except OSError as error:
        return UnavailableError(f"nvidia-smi: {error.strerror}")
    if done.returncode != 0:
        output = (done.stdout.strip() or done.stderr.strip()).splitlines()
        return UnavailableError(f"{' '.join(command)}: {output[0] if output else f'exit code {done.returncode}'}")
    return done.stdout


def parse_query(text: str) -> tuple[list[Gpu], str]:
    """Parse ``--query-gpu`` with the fields of :data:`QUERY` into GPUs and driver version; other lines are skipped."""
    gpus, driver = [], ""
    for line in text.splitlines():
        values = [value.strip() for value in line.split(",")]
        if len(values) != len(QUERY) or not values[0].isdigit():
            continue
        index, uuid, pci, name, memory, driver, generation = values
        gpus.append(
            Gpu(
                index=int(index),
                uuid=uuid if uuid.startswith("GPU-") else "",
                pci=_pci(pci),
                name="" if name.startswith("[") else name,
                memory_mib=_number(memory),
                pcie_generation=_number(generation),
            )
        )
    return gpus, driver


def parse_listing(text: str) -> dict[int, list[tuple[str, str]]]:
    """Profile and UUID of the MIG devices of each GPU in ``nvidia-smi -L``."""
    devices: dict[int, list[tuple[str, str]]] = {}
    index: int | None = None
    for line in text.splitlines():
        whole, part = _WHOLE.match(line), _PART.match(line)
        if whole:
            index = int(whole["index"])
        elif part and index is not None:
            devices.setdefault(index, []).append((part["profile"], part["uuid"]))
    return devices


def compose(
    gpus: list[Gpu], matrix: str, listing: str, *, driver: str = "", problems: tuple[str, ...] = ()
) -> NodeTopology:
    """Combine the three answers; if the matrix is damaged, or of other GPUs, the links stay unknown."""
    links: dict[tuple[int, int], str] = {}
    extra = NodeTopology()
    if matrix:
        try:
            extra = nvidia_smi_matrix.parse(matrix)
        except ValueError as error:
            problems = (*problems, f"nvidia-smi topo -m: {error}")
    drawn = {gpu.index: n for n, gpu in enumerate(extra.gpus)}
    for a, m in drawn.items():
        for b, n in drawn.items():
            links[a, b] = "PIX" if a == b else extra.link(m, n)
    parts = parse_listing(listing)
    whole: list[Gpu] = []
    for gpu in gpus:
        gpu_of_driver = extra.gpus[drawn[gpu.index]] if gpu.index in drawn else Gpu(gpu.index)
        listed = replace(
            gpu,
            numa_node=gpu_of_driver.numa_node,
            cpus=gpu_of_driver.cpus,
            numa_affinity=gpu_of_driver.numa_affinity,
            gpu_numa_id=gpu_of_driver.gpu_numa_id,
        )
        whole += [
            replace(listed, uuid=uuid, mig=profile, memory_mib=None, name=f"{gpu.name} MIG {profile}")
            for profile, uuid in parts.get(gpu.index, ())
        ] or [listed]
    complete = len(whole) == len(extra.gpus) and all(g.index in drawn for g in whole)
    return NodeTopology(
        gpus=tuple(whole),
        links=tuple(tuple("X" if a is b else links.get((a.index, b.index), "?") for b in whole) for a in whole)
        if links
        else (),
        nics=extra.nics if complete else (),
        nic_links=extra.nic_links if complete else (),
        nic_numa=extra.nic_numa if complete else (),
        source="nvidia-smi",
        driver=driver,
        problems=(*problems, *extra.problems),
    )


def _pci(text: str) -> str:
    domain, _, rest = text.lower().partition(":")
    try:
        return f"{int(domain, 16):04x}:{rest}" if rest else ""
    except ValueError:
        return ""


def _number(text: str) -> int | None:
    return int(text) if text.isdigit() else None
