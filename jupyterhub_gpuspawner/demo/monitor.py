"""A web application on a unix socket: the simulated GPUs of its own job, with the use that the hub's pages show.

``python monitor.py PATTERN SOCKET``; the pattern is a topology file's, with ``{node}``. It has no sign-in of its own.
"""

from __future__ import annotations

import asyncio
import html
import os
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from tornado import httpserver, netutil, web

from jupyterhub_gpuspawner.demo.simulated_use import simulated_use
from jupyterhub_gpuspawner.placement.topology import load

RELOAD_SECONDS = 5
"""Seconds after which the page is loaded again."""
VARIABLES = {"job": "SLURM_JOB_ID", "node": "SLURMD_NODENAME", "visible": "CUDA_VISIBLE_DEVICES"}
"""Names in the page, and the environment variables that they stand for."""
_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="refresh" content="{again}">
<title>GPU monitor</title>
<style>
:root {{ color-scheme: light dark; font: 1rem/1.5 system-ui, sans-serif; }}
body {{ max-width: 50rem; margin: 2rem auto; padding: 0 1rem; }}
section {{ border: 1px solid gray; border-radius: .5rem; padding: .5rem 1rem; margin: 1rem 0; }}
h2 {{ font-size: 1.1rem; margin: 0; }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: .5rem 0; }}
dd {{ margin: 0; }}
meter {{ width: 60%; height: 1.2rem; vertical-align: middle; }}
</style>
</head>
<body>
<h1>GPU monitor</h1>
<p><span id="left"></span> <a href="gpuspawner/home" target="_blank">More time, Stop: my servers</a></p>
<p>Job {job} on node {node}: CUDA_VISIBLE_DEVICES={visible}, {cores}.</p>
{gpus}
<p>The GPUs are simulated: nothing was measured. This page comes from a small program that the profile starts instead of
JupyterLab. The program has no sign-in of its own: JupyterHub's is required. The page is reloaded every {again}
seconds.</p>
<script>
(async () => {{
  const answer = await fetch("gpuspawner/session");
  if (answer.status !== 200) return;
  const {{ now, ends_at }} = await answer.json();
  if (!ends_at) return;
  const minutes = Math.max(0, Math.floor((Date.parse(ends_at) - Date.parse(now)) / 60_000));
  const until = new Date(ends_at).toLocaleTimeString([], {{ hour: "2-digit", minute: "2-digit" }});
  document.getElementById("left").textContent = `${{minutes}} min left, until ${{until}}.`;
}})();
</script>
</body>
</html>
"""
_GPU = """\
<section>
<h2>GPU {index}: {name}</h2>
<dl>
<dt>Utilization</dt><dd><meter max="100" value="{used}" aria-label="utilization of GPU {index}"></meter> {used} %</dd>
<dt>Memory</dt><dd><meter max="{total}" value="{memory}" aria-label="memory of GPU {index}"></meter> {memory} of {total}
MiB</dd>
<dt>Power</dt><dd>{power} W</dd>
</dl>
</section>
"""


def readings(environ: Mapping[str, str], pattern: str, now: float) -> Iterator[dict[str, object]]:
    """The GPUs of the job of this environment with their use now, by the names in the page."""
    topology = load(pattern.replace("{node}", Path(environ["SLURMD_NODENAME"]).name))
    positions = {gpu.uuid: position for position, gpu in enumerate(topology.gpus)}
    for name in filter(None, environ.get("CUDA_VISIBLE_DEVICES", "").split(",")):
        gpu = topology.gpus[int(name) if name.isdigit() else positions[name]]
        use = simulated_use(gpu.index, gpu.memory_mib, now, mig=gpu.mig is not None, uuid=gpu.uuid)
        yield {
            "index": gpu.index,
            "name": html.escape(gpu.name),
            "used": f"{use.utilization:g}",
            "memory": use.memory_used_mib,
            "total": use.memory_mib,
            "power": "N/A" if use.power_watts is None else f"{use.power_watts:g}",
        }


def page(environ: Mapping[str, str], pattern: str, now: float) -> str:
    """The page of the job of this environment."""
    quoted = {name: html.escape(environ.get(variable, "not set")) for name, variable in VARIABLES.items()}
    cores = len(os.sched_getaffinity(0))
    return _PAGE.format(
        **quoted,
        again=RELOAD_SECONDS,
        cores=f"{cores} core{'' if cores == 1 else 's'}",
        gpus="".join(_GPU.format(**gpu) for gpu in readings(environ, pattern, now)),
    )


class Page(web.RequestHandler):
    """The page."""

    def initialize(self, pattern: str) -> None:
        """``pattern`` is a topology file's."""
        self._pattern = pattern

    def get(self) -> None:
        """Show the use now."""
        self.write(page(os.environ, self._pattern, time.time()))


async def main(pattern: str, path: str) -> None:
    """Serve until it is ended."""
    server = httpserver.HTTPServer(web.Application([("/", Page, {"pattern": pattern})]))
    server.add_socket(netutil.bind_unix_socket(path))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2]))
