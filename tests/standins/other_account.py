"""What another account of the machine tries against a demo: run as that account, it prints what it got as JSON.

Its standard input is JSON: ``url``, ``folder``, ``ports``, ``secrets``, ``sign_ins`` by name and ``links`` by name.
"""

from __future__ import annotations

import contextlib
import http.cookiejar
import json
import os
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path


def status(opener: urllib.request.OpenerDirector, url: str, form: Mapping[str, str] | None = None) -> int:
    """The status of an answer, 0 if there is none that is HTTP; that of a page to sign in is 403."""
    data = None if form is None else urllib.parse.urlencode(form).encode()
    try:
        with opener.open(url, data, timeout=30) as answer:
            return 403 if "/hub/login" in answer.url else int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except (OSError, ValueError):
        return 0


def send(page: str, form: Mapping[str, str]) -> int:
    """Send a form of a page of the hub, as a new browser."""
    cookies = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor(cookies))
    status(opener, page)
    xsrf = next((cookie.value or "" for cookie in cookies if cookie.name == "_xsrf"), "")
    return status(opener, page, {**form, "_xsrf": xsrf})


def readable(folder: str) -> Iterator[str]:
    """The files below a folder that this account can read."""
    for parent, _, names in os.walk(folder):
        for name in names:
            path = Path(parent, name)
            with contextlib.suppress(OSError), path.open("rb"):
                yield str(path)


def tell(secrets: Mapping[str, str]) -> Iterator[str]:
    """The secrets that a process's command line or environment tells."""
    for path in (path for folder in Path("/proc").glob("[0-9]*") for path in (folder / "cmdline", folder / "environ")):
        text = b""
        with contextlib.suppress(OSError):
            text = path.read_bytes()
        yield from (f"{name} in {path.name}" for name, secret in secrets.items() if secret.encode() in text)


def step(folder: str) -> str:
    """The output of a step of the demo's Slurm."""
    environment = {**os.environ, "SLURM_CONF": f"{folder}/slurm/slurm.conf"}
    command = ["timeout", "5", "srun", "--immediate=4", "id", "-un"]
    done = subprocess.run(command, env=environment, cwd="/", capture_output=True, text=True, check=False)
    return done.stdout.strip()


def main() -> None:
    """Try all."""
    told = json.load(sys.stdin)
    plain = urllib.request.build_opener()
    paths = ("/api/routes", "/hub/api/users", "/user/ada/api/contents", "/api/contents")
    print(
        json.dumps(
            {
                "signed in": [
                    name
                    for path, forms in (("/hub/login", told["sign_ins"]), ("/hub/demo", told["links"]))
                    for name, form in forms.items()
                    if send(told["url"] + path, form) == 200
                ],
                "answered by ports": [
                    f"{port}{path}"
                    for port in told["ports"]
                    for path in paths
                    if status(plain, f"http://127.0.0.1:{port}{path}") == 200
                ],
                "files": sorted(readable(told["folder"])),
                "secrets": sorted(set(tell(told["secrets"]))),
                "step": step(told["folder"]),
            }
        )
    )


if __name__ == "__main__":
    main()
