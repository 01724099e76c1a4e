"""The end of a job's log, as a page may show it."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyterhub_gpuspawner.hub.job import log as job_log
from jupyterhub_gpuspawner.hub.job.log import (
    OF_DOWNLOAD,
    OF_ENDING,
    OF_PAGE,
    JobLog,
    last_lines,
    moved,
    outgrew_memory,
    redacted,
    shown,
    without_noise,
)
from jupyterhub_gpuspawner.slurm.job import End, Job, Phase


async def test_a_log_that_its_job_could_not_move_is_found(tmp_path: Path) -> None:
    """In the home, where Slurm has opened it; the one in the folder of logs comes first."""
    own = Path(moved(f"{tmp_path}/jupyterhub-7.log"))
    (tmp_path / "jupyterhub-7.log").write_text("in the home\n")
    in_home = [await last_lines(str(own), prefix) for prefix in ((), ("env",))]
    own.parent.mkdir(parents=True)
    (tmp_path / "jupyterhub-7.log").rename(own)

    assert (str(own), in_home) == (f"{tmp_path}/.local/share/gpuspawner/logs/jupyterhub-7.log", ["in the home"] * 2)
    assert [await last_lines(str(own), prefix) for prefix in ((), ("env",))] == ["in the home"] * 2


async def test_the_last_lines_are_shown(tmp_path: Path) -> None:
    """A long log gives its last lines, whole."""
    log = tmp_path / "job.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))

    assert await last_lines(str(log)) == "\n".join(f"line {n}" for n in range(985, 1000))


async def test_control_characters_do_not_reach_the_page(tmp_path: Path) -> None:
    """An escape sequence in a log is replaced by a visible character."""
    log = tmp_path / "job.log"
    log.write_bytes(b"\x1b[31mred\xff\n")

    assert await last_lines(str(log)) == "�[31mred�"


async def test_what_is_no_plain_file_is_not_read(tmp_path: Path) -> None:
    """A missing file, a link and a pipe without a writer give no lines, and do not block."""
    (tmp_path / "target").write_text("secret\n")
    (tmp_path / "link").symlink_to(tmp_path / "target")
    os.mkfifo(tmp_path / "pipe")

    assert [await last_lines(str(tmp_path / name)) for name in ("missing", "link", "pipe")] == ["", "", ""]


async def test_the_log_of_somebody_else_is_read_as_its_owner(tmp_path: Path) -> None:
    """By a command with the owner's rights; a log that it cannot read has no lines."""
    log = tmp_path / "-n 1.log"
    log.write_text("".join(f"line {n}\n" for n in range(1000)))
    as_owner = ("env", "-C", "/")
    tried = [(str(log), as_owner), (str(tmp_path / "missing"), as_owner), (str(log), ("/no/such/command",))]

    assert [await last_lines(*arguments) for arguments in tried] == [
        "\n".join(f"line {n}" for n in range(985, 1000)),
        "",
        "",
    ]


async def test_of_a_long_log_the_end_alone_is_read(tmp_path: Path) -> None:
    """One line without an end is cut, not read whole."""
    log = tmp_path / "job.log"
    log.write_text("x" * 10_000_000)

    assert await last_lines(str(log)) == "x" * OF_ENDING.size


def test_a_page_shows_more_lines_than_an_ending_keeps_and_a_download_has_all() -> None:
    """The lines that say nothing are in the download alone."""
    noise = "[I 2026-11-22 09:10:11.803 ServerApp] Package notebook took 0.0000s to import"
    log = "\n".join([noise, *map(str, range(1000))])

    assert [len(shown(log, extent).splitlines()) for extent in (OF_ENDING, OF_PAGE, OF_DOWNLOAD)] == [15, 400, 1001]


async def test_a_download_is_bounded_and_without_secrets(tmp_path: Path) -> None:
    """Of a longer log the beginning is missing, with the first line if that was cut."""
    log = tmp_path / "job.log"
    log.write_text("a line of forty characters and no secret\n" * 100_000 + "API_TOKEN=0123\tx\n")

    lines = (await last_lines(str(log), extent=OF_DOWNLOAD)).splitlines()

    assert (lines[0], lines[-1]) == ("a line of forty characters and no secret", "API_TOKEN=(not shown)\tx")
    assert len("\n".join(lines)) <= OF_DOWNLOAD.size


class Wrapped:
    """A hub whose wrapper script ``log`` takes a job's id; Slurm has a job 7 with this log, or none."""

    wrapper_dir = "/etc/jupyterhub/wrappers"
    job_id = ""

    def __init__(self, path: str) -> None:
        self.path = path
        self.client = self.spawner = self

    def is_own(self, _: Job) -> bool:
        return False

    def as_user(self) -> tuple[str, ...]:
        return ("sudo", "-n", "-u", "ada")

    def connection(self, _settings: object = None) -> Any:
        return self

    async def job(self, job_id: str) -> Any:
        return SimpleNamespace(stdout_path=self.path) if self.path and job_id == "7" else None

    async def log_end(self, job_id: str, *, prefix: tuple[str, ...]) -> str:
        return f"job {job_id} as {prefix[-1]}"


@pytest.mark.parametrize(
    ("path", "lines"),
    [("/home/ada/7.log", "job 7 as ada"), ("/home/ada/other.log", ""), ("", "")],
    ids=["the same job", "another job has the id", "a job that Slurm has forgotten"],
)
async def test_a_wrapper_is_not_asked_for_the_log_of_another_job(path: str, lines: str) -> None:
    """Slurm gives ids again after it has lost its state."""
    reader: Any = Wrapped(path)
    log = JobLog(reader)

    assert await log.lines_of_ended("/home/ada/7.log", "7", OF_PAGE) == lines


KILLED = Job("7", Phase.ENDED, end=End.FAILED, exit_code="0:9")
SLURMD = "slurmstepd-g1: error: Step 7.4294967291 exceeded memory limit (245760 > 51200), being killed"
SLURMD_26_05 = (
    "[2026-11-22T17:59:59.022] error: StepId=7.batch exceeded memory limit (431042560 > 52428800), being killed"
)


@pytest.mark.parametrize(
    ("status", "lines", "memory"),
    [
        (KILLED, f"working\n{SLURMD}", True),
        (KILLED, f"working\n{SLURMD_26_05}", True),
        (KILLED, "working", False),
        (KILLED, f"I read that {SLURMD}", False),
        (replace(KILLED, exit_code="1:0"), SLURMD, False),
        (replace(KILLED, end=End.CANCELLED), SLURMD, False),
    ],
    ids=["slurmd says so", "slurmd 26.05 says so", "nobody says so", "quoted", "it ended by itself", "cancelled"],
)
def test_memory_is_named_where_slurmd_has_killed_for_it(status: Job, lines: str, memory: bool) -> None:
    """Signal 9 alone may have another reason."""
    assert outgrew_memory(status, lines) is memory


@pytest.mark.parametrize(
    ("silent", "shown"),
    [("Slurm", ("", "")), ("the file server", ("/home/ada/7.log", ""))],
)
async def test_a_file_server_that_hangs_is_not_taken_for_slurm(
    monkeypatch: pytest.MonkeyPatch, silent: str, shown: tuple[str, str]
) -> None:
    """The page says where the log is, and that it cannot be read, unless it is Slurm that does not respond."""
    monkeypatch.setattr(job_log, "TIMEOUT", 0.05)
    never, answered = asyncio.get_running_loop().create_future(), asyncio.get_running_loop().create_future()
    answered.set_result(SimpleNamespace(stdout_path="/home/ada/7.log"))
    client = SimpleNamespace(job=lambda _job_id: never if silent == "Slurm" else answered)
    spawner = SimpleNamespace(connection=lambda: SimpleNamespace(client=client), log_dir="", batch_script="")
    watch: Any = SimpleNamespace(job_id="7", spawner=spawner, is_own=lambda _job: True)
    reader = JobLog(watch)
    monkeypatch.setattr(reader, "last_lines", lambda *_: never)

    assert await reader.path_and_lines() == shown


async def test_a_cancellation_that_comes_with_the_answer_is_not_lost() -> None:
    """Whoever cancels it waits for that: asyncio.wait_for would return the answer before Python 3.12."""
    answer = asyncio.get_running_loop().create_future()
    client = SimpleNamespace(job=lambda _job_id: answer)
    spawner = SimpleNamespace(connection=lambda: SimpleNamespace(client=client))
    watch: Any = SimpleNamespace(job_id="7", spawner=spawner)
    lines = asyncio.ensure_future(JobLog(watch).path_and_lines())
    for _ in range(3):
        await asyncio.sleep(0)
    answer.set_result(None)
    lines.cancel()

    with pytest.raises(asyncio.CancelledError):
        await lines


# --- Lines of a log that say nothing are left out; what may explain an ending stays ---

AT = "2026-11-22 09:10:11.803"
NOISE = [
    f"[I {AT} ServerApp] jupyter_lsp | extension was successfully linked.",
    f"[I {AT} ServerApp] jupyterhub | extension was successfully loaded.",
    f"[I {AT} ServerApp] Package notebook took 0.0000s to import",
    f"[I {AT} ServerApp] Extension package jupyterlab took 0.5627s to import",
    f"[I {AT} LabApp] JupyterLab extension loaded from /opt/lab/jupyterlab",
    f"[I {AT} LabApp] JupyterLab application directory is /opt/lab/share/jupyter/lab",
    f"[I {AT} LabApp] Extension Manager is 'pypi'.",
    f"[I {AT} ServerApp] Skipped non-installed server(s): bash-language-server, pyright",
    f"[I {AT} ServerApp] Writing Jupyter server cookie secret to /home/ada/.local/share/jupyter/secret",
    f"[I {AT} ServerApp] Use Control-C to stop this server and shut down all kernels (twice to skip confirmation).",
    f"[I {AT} ServerApp] 200 GET /user/ada/api (@127.0.0.1) 1.03ms",
    f"[I {AT} ServerApp] Setting new xsrf cookie for b'dJdpNRWq:Hq0Cg4=' {{'path': '/user/ada/'}}",
    f"[W {AT} ServerApp] A `_jupyter_server_extension_points` function was not found in nbgitpuller. Instead, a ...",
    f"[W {AT} LabApp] 'extra_template_paths' was found in both NotebookApp and ServerApp.",
]
"""As JupyterLab 4 writes them."""
MESSAGES = [
    f"[W {AT} ServerApp] jupyter_lsp | extension failed loading with message: ModuleNotFoundError()",
    f"[E {AT} ServerApp] jupyter_lsp | extension was successfully linked.",
    f"[C {AT} ServerApp] received signal 15, stopping",
    f"[I {AT} ServerApp] Jupyter Server 2.21.1 is running at:",
    f"[I {AT} ServerApp] 500 GET /user/ada/api (@127.0.0.1) 1.03ms",
    f"I read: [I {AT} ServerApp] jupyter_lsp | extension was successfully linked.",
    "gpuspawner: /no/such/command: no such command; PATH is /usr/bin:/bin",
    "slurmstepd-g1: error: Step 7.4294967291 exceeded memory limit (245760 > 51200), being killed",
    "Terminated",
    "    indented",
]


@pytest.mark.parametrize("line", NOISE)
def test_a_line_that_says_nothing_is_left_out(line: str) -> None:
    """Messages of a typical start, below the level of an error."""
    assert without_noise(["before", line, "after"]) == ["before", "after"]


@pytest.mark.parametrize("line", MESSAGES)
def test_a_line_that_may_explain_an_ending_stays(line: str) -> None:
    """Errors, other messages, a quotation, other programs' lines."""
    assert without_noise(["before", line, "after"]) == ["before", line, "after"]


@pytest.mark.parametrize(
    ("lines", "remaining"),
    [
        (["a", "", "", " ", "b"], ["a", "", "b"]),
        (["", "", "a", "", ""], ["a"]),
        (["a", "", NOISE[0], "", "b"], ["a", "", "b"]),
        (["", NOISE[0], "", "", NOISE[1]], [NOISE[0], "", NOISE[1]]),
        (["", ""], []),
        ([], []),
    ],
    ids=["a run", "at both ends", "around noise", "nothing else", "blank lines alone", "an empty log"],
)
def test_blank_lines(lines: list[str], remaining: list[str]) -> None:
    """At most one in a row; a log that is noise alone is shown as it is."""
    assert without_noise(lines) == remaining


# --- Which parts of a log's lines are hidden as secrets ---

HIDDEN = {
    "a variable": ("JUPYTERHUB_API_TOKEN=0123 HOME=/home/ada", "JUPYTERHUB_API_TOKEN=(not shown) HOME=/home/ada"),
    "after another name": ("env: API_TOKEN=0123", "env: API_TOKEN=(not shown)"),
    "exported, in quotes, with blanks": (
        "export DB_PASSWORD='correct horse' HOME=/",
        "export DB_PASSWORD='(not shown)' HOME=/",
    ),
    "with a quote in it": (r'PASSWORD="a \" b" x', 'PASSWORD="(not shown)" x'),
    "a quote that does not close": ("PASSWORD='a b\nnext", "PASSWORD='(not shown)\nnext"),
    "a dict of Python": (
        "{'HOME': '/root', 'JUPYTERHUB_API_TOKEN': 'ab cd', 'LANG': 'C'}",
        "{'HOME': '/root', 'JUPYTERHUB_API_TOKEN': '(not shown)', 'LANG': 'C'}",
    ),
    "a dict of bytes": ("{b'X_TOKEN': b'0123'}", "{b'X_TOKEN': b'(not shown)'}"),
    "environ": ("environ({'X_TOKEN': '0123'})", "environ({'X_TOKEN': '(not shown)'})"),
    "a pair": ("[('X_TOKEN', '0123'), ('A', 'b')]", "[('X_TOKEN', '(not shown)'), ('A', 'b')]"),
    "an item": ("os.environ['X_TOKEN'] = '0123'", "os.environ['X_TOKEN'] = '(not shown)'"),
    "JSON": ('{"api_key":"0 1","n":3}', '{"api_key":"(not shown)","n":3}'),
    "JSON in JSON": (r"{\"password\": \"0 1\", \"n\": 3}", r"{\"password\": \"(not shown)\", \"n\": 3}"),
    "YAML": ("client_secret: 0123", "client_secret: (not shown)"),
    "traitlets": ("c.Thing.api_token = '0123'", "c.Thing.api_token = '(not shown)'"),
    "in colour": ("\x1b[32mTOKEN\x1b[0m=\x1b[31m0123", "\x1b[32mTOKEN\x1b[0m=\x1b[31m(not shown)"),
    "an option": ("run --token 0123 --password=0123 -v", "run --token (not shown) --password=(not shown) -v"),
    "an option in quotes": ("sh -c 'run --token 0123 x'", "sh -c 'run --token (not shown) x'"),
    "a header": ("Authorization: token 0123 and more", "Authorization: (not shown)"),
    "a header in quotes": (
        "curl -H 'Authorization: Bearer abc' http://hub",
        "curl -H 'Authorization: (not shown)' http://hub",
    ),
    "a header in a dict": (
        "{'Authorization': 'token abc', 'Accept': '*/*'}",
        "{'Authorization': '(not shown)', 'Accept': '*/*'}",
    ),
    "a header of bytes": ("(b'authorization', b'Bearer abc')", "(b'authorization', b'(not shown)')"),
    "cookies": ("Cookie: a=b; _xsrf=0123", "Cookie: (not shown)"),
    "a cookie that is set": ("Set-Cookie: jupyterhub-session-id=0123; Path=/", "Set-Cookie: (not shown)"),
    "a scheme alone": ("sent Bearer ab12cd34ef to it", "sent Bearer (not shown) to it"),
    "a scheme alone, JupyterHub's": ("sent token ab12cd34ef", "sent token (not shown)"),
    "a parameter": ("http://g1:8888/lab?token=abc&x=1", "http://g1:8888/lab?token=(not shown)&x=1"),
    "a parameter of OAuth": ("/oauth?code=abc&state=xyz", "/oauth?code=(not shown)&state=(not shown)"),
    "a signed address": ("s3?X-Amz-Signature=ab&x=1", "s3?X-Amz-Signature=(not shown)&x=1"),
    "an address's password": ("postgres://ada:pw@db/x", "postgres://ada:(not shown)@db/x"),
    "with an @ in it": ("http_proxy=http://ada:p@w@proxy:3128/", "http_proxy=http://ada:(not shown)@proxy:3128/"),
    "without a user": ("redis://:pw@db", "redis://:(not shown)@db"),
    "a token for a user": (f"https://{'x' * 40}@github.com/a", "https://(not shown)@github.com/a"),
    "by its form": (f"got hf_{'a' * 34}.", "got (not shown)."),
    "a web token": ("got eyJhbGciOiJI.eyJzdWIi.c2ln", "got (not shown)"),
}
READABLE = [
    "no token here",
    "SyntaxError: invalid token",
    "ValueError: too many tokens: 4097",
    "max_tokens=512 n_tokens: 3 tokens/s: 35.1 tokenizer=gpt2",
    "TOKENIZERS_PARALLELISM=false",
    "PWD=/home/ada OLDPWD=/tmp",
    "key: value; monkey=1",
    "basic training of bearer tokens has begun",
    "KeyError: 'HOME'",
    "http://g1:8888/lab?reset=1",
    "ssh://git@github.com/a/b",
    "user ada@example.org at 10:30:00",
    "--tokens 512 --verbose",
    "NVIDIA A100-SXM4-40GB, uuid GPU-5a1e9ad0-6a6b-4a2c-9d2e-6f1f5b7c0a11",
    "PASSWORD=",
    "",
]


@pytest.mark.parametrize(("line", "shown"), HIDDEN.values(), ids=HIDDEN.keys())
def test_a_secret_is_hidden_and_what_stands_around_it_is_not(line: str, shown: str) -> None:
    """Its name stays, its quotes too."""
    assert redacted(line) == shown
    assert redacted(f"before\n{line}\nafter") == f"before\n{shown}\nafter"


@pytest.mark.parametrize("line", READABLE)
def test_what_is_no_secret_stays_readable(line: str) -> None:
    """Words, counts, paths and addresses."""
    assert redacted(line) == line


MANY = 200_000
HOSTILE = {
    "one word": "a" * MANY,
    "one name": "token" * MANY,
    "names": "token-" * MANY,
    "blanks": "token" + " " * MANY + "x",
    "separators": "token" + "=" * MANY,
    "quotes": "token='" + "\\'" * MANY,
    "backslashes": "token=" + "\\" * MANY,
    "colours": "token" + "\x1b[0m" * MANY,
    "many colours": "a\x1b[0m " * MANY,
    "addresses": "://a:" * MANY,
    "at signs": "://a:" + "@" * MANY + "/",
    "no at sign": "://a:" + "b" * MANY,
    "options": "--token " * MANY,
    "parameters": "?code=" * MANY,
    "schemes": "bearer " * MANY,
    "dots": "eyJaaaaaaaaa." * MANY,
    "dashes": "sk-" * MANY,
    "pairs": "'token', " * MANY,
}


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE.keys())
def test_no_text_takes_long(text: str) -> None:
    """Quadratic time would be hours here, and exceed the test's time limit."""
    assert redacted(text).count("\n") == 0
