"""Servers on nodes that the hub's machine cannot reach: by ssh over a login node, which can."""

from __future__ import annotations

from jupyterhub_gpuspawner.extension import Command, Extension

EXTENSION = Extension(
    name="tunnel",
    about="Reaches servers on nodes that the hub's machine cannot reach, by OpenSSH over a login node.",
    hub=".hub:HUB",
    spawner_settings=".settings:TunnelSettings",
    commands={
        "tunnel": Command(
            ".cli:tunnel",
            "Print the lines of sshd_config by which the hub's key reaches its servers, and nothing else.",
        )
    },
    checks=".checks",
    files={
        f"ssh/tunnel_{name}": f"./config/tunnel_{name}" for name in ("authorized_keys", "ssh_config", "sshd_config")
    },
)
