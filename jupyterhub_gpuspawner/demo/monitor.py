"""A web application on a unix socket: the GPUs and cores of its own job, as ``nvidia-smi`` reports them.

``python page.py SOCKET``. It has no sign-in of its own, and needs tornado alone.
"""

from __future__ import annotations

import asyncio
import csv
import html
import os
import shutil
import sys

from tornado import httpserver, netutil, web

FIELDS = {
    "index": "index",
    "name": "name",
    "used": "utilization.gpu",
    "memory": "memory.used",
    "total": "memory.total",
    "power": "power.draw",
}
"""Names in the page, and nvidia-smi's fields that they stand for: a number, or ``[N/A]``."""
RELOAD_SECONDS = 5
"""Seconds after which the page is loaded again."""
PATIENCE = 10.0
"""Seconds that nvidia-smi may take."""
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
<p>This page comes from a small program that the profile starts instead of JupyterLab. The program has no sign-in of its
own: JupyterHub's is required. The page is reloaded every {again} seconds.</p>
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


async def readings() -> list[dict[str, str]]:
    """What nvidia-smi reports of the job's GPUs, by the names in the page; nothing where it does not answer."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    argv = [command, f"--query-gpu={','.join(FIELDS.values())}", "--format=csv,noheader,nounits"]
    process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
    try:
        output, _ = await asyncio.wait_for(process.communicate(), PATIENCE)
    except asyncio.TimeoutError:
        process.kill()
        return []
    rows = csv.reader(output.decode(errors="replace").splitlines(), skipinitialspace=True)
    return [dict(zip(FIELDS, row, strict=True)) for row in rows if len(row) == len(FIELDS)]


def page(gpus: list[dict[str, str]]) -> str:
    """The page for these GPUs."""
    quoted = {name: html.escape(os.environ.get(variable, "not set")) for name, variable in VARIABLES.items()}
    cores = len(os.sched_getaffinity(0))
    sections = [_GPU.format(**{name: html.escape(value) for name, value in gpu.items()}) for gpu in gpus]
    return _PAGE.format(
        **quoted,
        again=RELOAD_SECONDS,
        cores=f"{cores} core{'' if cores == 1 else 's'}",
        gpus="".join(sections) or "<p>nvidia-smi reports no GPU.</p>",
    )


class Page(web.RequestHandler):
    """The page."""

    async def get(self) -> None:
        """Ask nvidia-smi, and show what it says."""
        self.write(page(await readings()))


async def main(path: str) -> None:
    """Serve until it is ended."""
    server = httpserver.HTTPServer(web.Application([("/", Page)]))
    server.add_socket(netutil.bind_unix_socket(path))
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
