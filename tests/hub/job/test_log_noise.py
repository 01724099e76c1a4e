"""Lines of a log that say nothing are left out; what may explain an ending stays."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.job.log import without_noise

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
