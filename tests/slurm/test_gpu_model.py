"""How GPUs are called on all pages."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.slurm.gpu_model import device_model, gpu_model

TYPES = {
    "k80": "K80, 12 GB",
    "a100": "A100",
    "p100": "P100",
    "V100s": "V100S, 32 GB",
    "nvidia_a100-sxm4-80gb": "A100, 80 GB",
    "nvidia_h100_80gb_hbm3": "H100, 80 GB",
    "tesla_v100-sxm2-16gb": "V100, 16 GB",
    "a100_40g": "A100, 40 GB",
    "nvidia_geforce_rtx_3090": "RTX 3090, 24 GB",
    "rtx_6000_ada": "RTX 6000 Ada",
    "nvidia_l40s": "L40S, 48 GB",
    "1g.10gb": "GPU slice, 10 GB",
    "nvidia_a100_1g.5gb": "A100 slice, 5 GB",
    "1g.10gb.me": "GPU slice, 10 GB",
    "a100l.2g.20gb": "A100L slice, 20 GB",
    "1c.3g.40gb": "GPU slice, 40 GB",
    "nvidia_h100_80gb_hbm3_1c.2g.20gb": "H100 slice, 20 GB",
    "1g.24gb-me": "GPU slice, 24 GB",
    "1g.24gb_me": "GPU slice, 24 GB",
    "1g.24gb+me.all": "GPU slice, 24 GB",
    "rtx_pro_6000_4g.96gb+gfx": "RTX Pro 6000 slice, 96 GB",
    "nvidia_gh200_480gb": "GH200, 96 GB",
    "nvidia_gh200_120gb": "GH200, 96 GB",
    "nvidia_gh200_144g_hbm3e": "GH200, 144 GB",
    "gh200": "GH200",
    "gh200_96gb": "GH200, 96 GB",
    "rtx_pro_6000": "RTX Pro 6000",
    "nvidia_rtx_pro_6000_blackwell_server_edition": "RTX Pro 6000 Blackwell Server Edition",
    "big": "big",
    "Gamer_cards": "Gamer_cards",
}


def test_a_type_in_words() -> None:
    """The model without vendor and form factor; memory where type or model determine it."""
    assert {gres_type: str(gpu_model(gres_type)) for gres_type in TYPES} == TYPES


BESIDE = {
    (): "GPU slice, 10 GB",
    ("a100", "1g.10gb", "2g.20gb"): "A100 slice, 10 GB",
    ("nvidia_h100_80gb_hbm3",): "H100 slice, 10 GB",
    ("a100", "nvidia_a100-sxm4-80gb"): "A100 slice, 10 GB",
    ("a100", "h100"): "GPU slice, 10 GB",
    ("big",): "big slice, 10 GB",
}


def test_a_slice_is_one_of_the_gpu_beside_it() -> None:
    """A MIG profile alone does not name the GPU; with different GPUs on the nodes it stays open."""
    assert {beside: str(gpu_model("1g.10gb", beside)) for beside in BESIDE} == BESIDE


DEVICES = {
    ("Tesla K80", None, 11441): "K80, 12 GB",
    ("NVIDIA A100-SXM4-80GB", "1g.10gb", 9728): "A100 slice, 10 GB",
    ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", "1g.10gb", 9728): "A100 slice, 10 GB",
    ("NVIDIA A100-SXM4-40GB", "3g.20gb", None): "A100 slice, 20 GB",
    ("NVIDIA GH200 480GB", None, 97871): "GH200, 96 GB",
    ("NVIDIA GH200 480GB", None, None): "GH200, 96 GB",
    ("NVIDIA GH200 480GB", "1g.12gb", 11008): "GH200 slice, 12 GB",
    ("NVIDIA GH200 144G HBM3e", None, 146831): "GH200, 144 GB",
    ("NVIDIA H100 80GB HBM3 MIG 1c.2g.20gb", "1c.2g.20gb", 20096): "H100 slice, 20 GB",
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb-me", None, None): (
        "RTX Pro 6000 Blackwell Server Edition slice, 24 GB"
    ),
    ("", "1g.5gb", 4864): "GPU slice, 5 GB",
    ("NVIDIA H100 PCIe", None, None): "H100",
    ("", None, None): "GPU",
}


def test_a_device_has_the_name_of_its_type() -> None:
    """What the driver reports of a device reads as Slurm's type does on the form."""
    assert {device: str(device_model(*device)) for device in DEVICES} == DEVICES


@pytest.mark.parametrize("gres_type", ["", "-", "gpu", "1g", "80gb", "nvidia"])
def test_an_odd_type_is_shown_as_it_is(gres_type: str) -> None:
    """Nothing is guessed."""
    assert gpu_model(gres_type).name == gres_type
