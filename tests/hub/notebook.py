"""A user's JupyterLab behind the hub's proxy, as its pages talk to it: a notebook's cells, and a terminal."""

from __future__ import annotations

import json
import time
import uuid
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import requests
from websocket import WebSocket, create_connection

if TYPE_CHECKING:
    from jupyterhub_gpuspawner.demo.hub import HubProcess

WITHIN = 240.0
"""Seconds for a cell or a line of the terminal."""


@dataclass(frozen=True)
class Notebook:
    """A running JupyterLab."""

    hub: HubProcess
    user: str

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"token {self.hub.token}"}

    def _post(self, path: str) -> Any:
        answer = requests.post(f"{self.hub.url}/user/{self.user}/{path}", headers=self._headers, timeout=60)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def _connect(self, path: str) -> WebSocket:
        url = f"{self.hub.url.replace('http', 'ws', 1)}/user/{self.user}/{path}"
        return create_connection(url, header=self._headers, timeout=WITHIN)

    @cached_property
    def _kernel(self) -> str:
        return str(self._post("api/kernels")["id"])

    def start_cell(self, code: str) -> Cell:
        """Run a cell, without waiting for its end."""
        channels = self._connect(f"api/kernels/{self._kernel}/channels")
        number = uuid.uuid4().hex
        message = {
            "header": {
                "msg_id": number,
                "msg_type": "execute_request",
                "session": uuid.uuid4().hex,
                "username": self.user,
                "version": "5.3",
                "date": "",
            },
            "parent_header": {},
            "metadata": {},
            "content": {"code": code, "silent": False, "store_history": False, "allow_stdin": False},
            "channel": "shell",
        }
        channels.send(json.dumps(message))
        return Cell(channels, number)

    def cell(self, code: str) -> str:
        """Run a cell to its end; returns the text that it wrote."""
        with closing(self.start_cell(code)) as cell:
            return cell.output()

    def interrupt(self) -> None:
        """The button *Interrupt the kernel*."""
        self._post(f"api/kernels/{self._kernel}/interrupt")

    def terminal(self, line: str, end: str) -> str:
        """Type a line into a new terminal; returns what it shows until ``end`` has been shown."""
        with closing(self._connect(f"terminals/websocket/{self._post('api/terminals')['name']}")) as terminal:
            terminal.send(json.dumps(["set_size", 40, 400]))
            terminal.send(json.dumps(["stdin", f"{line}\r"]))
            shown = ""
            ends_at = time.monotonic() + WITHIN
            while end not in shown:
                assert time.monotonic() < ends_at, shown
                kind, *rest = json.loads(terminal.recv())
                shown += rest[0] if kind == "stdout" else ""
            return shown


@dataclass(frozen=True)
class Cell:
    """A cell that runs."""

    channels: WebSocket
    number: str

    def output(self, *, until: str | None = None) -> str:
        """What the cell writes from now to its end, or until ``until`` was written."""
        text, ends_at = "", time.monotonic() + WITHIN
        while time.monotonic() < ends_at:
            message = json.loads(self.channels.recv())
            if message["parent_header"].get("msg_id") == self.number:
                content = message["content"]
                text += content["text"] if message["msg_type"] == "stream" else ""
                if (until is not None and until in text) or content.get("execution_state") == "idle":
                    return text
        raise AssertionError(f"the cell has not ended: {text}")

    def close(self) -> None:
        """Stop listening."""
        self.channels.close()
