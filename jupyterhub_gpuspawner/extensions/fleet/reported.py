"""What of a report's texts may stand on the administrators' pages: names that look like one, and faults in our words.

A report is made on the node by a process of its user, who may write anything into it.
"""

from __future__ import annotations

import re
from dataclasses import replace

from jupyterhub_gpuspawner.placement.topology import FAULTS, NO_NVML, Gpu, NodeTopology

OTHER_FAULT = "The driver reports a fault of it."
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII | re.IGNORECASE)
_UUID = re.compile(r"(GPU|MIG)-[0-9a-zA-Z/-]{1,80}", re.ASCII)
_MODEL = re.compile(r"[A-Za-z0-9()/+_ -]{1,64}", re.ASCII)
"""As in ``NVIDIA A100-SXM4-80GB MIG 1g.10gb``, whose profile is looked at apart: it alone has a point."""
_PROFILE = re.compile(r"(\d+c\.)?\d+g\.\d+gb([-_.+]\w+)*", re.ASCII)
_NIC = re.compile(r"[a-z0-9_-]{1,16}", re.ASCII | re.IGNORECASE)
_DRIVER = re.compile(r"[0-9a-z][0-9a-z.-]{0,23}", re.ASCII)


def plausible(topology: NodeTopology) -> NodeTopology:
    """The topology with the faults of its GPUs in our words, and without what stands for a name and is none.

    Names are PCI bus ids, UUIDs, models and MIG profiles of GPUs, those of NICs, and the driver's version.
    """
    nics = all(map(_NIC.fullmatch, topology.nics))
    return replace(
        topology,
        gpus=tuple(map(_plausible_gpu, topology.gpus)),
        devices=tuple(filter(_PCI.fullmatch, topology.devices)),
        driver=_if(_DRIVER, topology.driver),
        nics=topology.nics if nics else (),
        nic_links=topology.nic_links if nics else (),
        nic_numa=topology.nic_numa if nics else (),
    )


def _plausible_gpu(gpu: Gpu) -> Gpu:
    model, mig, profile = gpu.name.partition(" MIG ")
    is_name = _MODEL.fullmatch(model) and (not mig or _PROFILE.fullmatch(profile))
    return replace(
        gpu,
        pci=_if(_PCI, gpu.pci),
        uuid=_if(_UUID, gpu.uuid),
        name=gpu.name if is_name else "",
        mig=None if gpu.mig is None else _if(_PROFILE, gpu.mig),
        fault=_in_our_words(gpu.fault),
    )


def _if(pattern: re.Pattern[str], name: str) -> str:
    return name if pattern.fullmatch(name) else ""


def _in_our_words(fault: str) -> str:
    if fault.startswith(f"{NO_NVML}:"):
        return NO_NVML
    return fault if not fault or fault in FAULTS else OTHER_FAULT
