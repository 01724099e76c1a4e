"""Applications whose command, socket and readiness are known, by their names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET = "{socket}"
"""Replaced by the path of the application's unix socket."""

KINDS: Mapping[str, Mapping[str, Any]] = {
    "code-server": {
        "name": "VS Code",
        "icon": "code",
        "command": ("code-server", "--auth", "none", "--disable-telemetry", "--disable-update-check"),
        # its second socket would lie in the home folder, which nodes share
        "socket": ("--session-socket", "{socket_folder}/session.sock", "--socket", SOCKET),
        "ready": "/healthz",
    },
    "dash": {
        "name": "Dash",
        "icon": "dashboard",
        "command": ("gunicorn",),
        "socket": ("--bind", f"unix:{SOCKET}"),
    },
    "panel": {
        "name": "Panel",
        "icon": "dashboard",
        "command": ("panel", "serve"),
        "socket": ("--unix-socket", SOCKET, "--prefix", "{base_url}", "--allow-websocket-origin", "*"),
        "absolute_url": True,
    },
    "streamlit": {
        "name": "Streamlit",
        "icon": "dashboard",
        "command": ("uvicorn",),  # `streamlit run` has no unix sockets since it uses Starlette
        "socket": ("--uds", SOCKET),
        "ready": "/_stcore/health",
    },
}
"""What is known of well-known applications; a profile's own fields replace it."""
