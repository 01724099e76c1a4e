"""Run JupyterHub's own tests of its REST API, named servers and pages with our handlers and templates in place.

Those that pass with JupyterHub alone and fail with ours are written, with the reason of each, to
docs/explanation/jupyterhub-suites.md. Exit status 1 where one has no reason yet. Takes a quarter of an hour.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import sys
import tempfile
from functools import wraps
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "jupyterhub-suites.md"
SUITES = {"test_api": "the REST API", "test_named_servers": "named servers", "test_pages": "pages"}
OPTIONS = (
    *("-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-c", os.devnull, "-o", "asyncio_mode=auto"),
    *("-o", "asyncio_default_fixture_loop_scope=module", "-o", "asyncio_default_test_loop_scope=module"),
)
"""As in JupyterHub's pyproject.toml, which its package does not contain."""
OUTCOMES, WITH_OURS = "GPUSPAWNER_SUITE_OUTCOMES", "GPUSPAWNER_SUITE_WITH_OURS"
LIMIT = 60.0
"""Seconds for one test."""

REASONS: dict[str, tuple[str, ...]] = {
    "They expect that a page that is opened by GET starts a server. Here it never does: a link could use up a person's "
    "GPU hours.": (
        "test_named_server_spawn_with_opts",
        "test_pre_spawn_start_exc_no_form",
        "test_root_auth",
        "test_spawn_fails_custom_message",
        "test_spawn_handler_access",
        "test_spawn_other_user",
        "test_spawn_page_falsy_callable",
        "test_spawn_redirect",
        "test_spawn_with_query_arguments",
        "test_spawn_with_query_arguments_error",
        "test_token_page",
        "test_user_redirect",
    ),
    "They look for sentences of JupyterHub's pages, which have other words here.": (
        "test_spawn_page_access",
        "test_spawn_pending",
    ),
    "They choose a server's options for somebody else without being an administrator: an option may be a path of which "
    "code is run.": ("test_spawn_form_other_user",),
    "It takes the variables of templates away, and with them the words of ours. A site's own variables are added to "
    "them, and its announcements are shown.": ("test_announcements",),
}
"""Why tests of JupyterHub's fail by design: a reason, and the names of the functions."""


# --- as a plugin of pytest, in the process that runs a suite --------------------------------------------------------

_outcomes: dict[str, bool] = {}


def pytest_configure() -> None:
    """Put ours in the place of JupyterHub's, as ``registration.register`` does for a hub that uses our spawner."""
    if not os.environ.get(WITH_OURS):
        return
    from jupyterhub import apihandlers, handlers
    from jupyterhub.tests.mocking import MockHub

    from jupyterhub_gpuspawner.hub.registration import register_handlers, register_templates

    register_handlers(apihandlers.default_handlers, handlers.default_handlers)
    init_tornado_settings = MockHub.init_tornado_settings

    def with_templates(hub: Any) -> None:
        register_templates(hub)
        init_tornado_settings(hub)

    MockHub.init_tornado_settings = with_templates


def pytest_collection_modifyitems(items: list[Any]) -> None:
    """End a test that waits for ever, as for a server that a GET does not start."""
    for item in items:
        if inspect.iscoroutinefunction(item.obj):
            item.obj = _limited(item.obj)


def _limited(test: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(test)
    async def limited(*arguments: Any, **named: Any) -> None:
        await asyncio.wait_for(test(*arguments, **named), LIMIT)

    return limited


def pytest_runtest_logreport(report: Any) -> None:
    """Collect whether each test passed, its fixtures included; skipped ones are left out."""
    if report.failed or (report.when == "call" and report.passed):
        name = report.nodeid.rpartition("::")[2]
        _outcomes[name] = _outcomes.get(name, True) and report.passed


def pytest_sessionfinish() -> None:
    """Write them for the parent process."""
    Path(os.environ[OUTCOMES]).write_text(json.dumps(_outcomes))


# --- the parent process -------------------------------------------------------------------------------------------


def outcomes(suite: str, *, with_ours: bool) -> dict[str, bool]:
    """Whether each test of a suite passes."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "outcomes.json"
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"  # configurable-http-proxy is there
        root = str(Path(__file__).resolve().parents[1])
        environment = {"PATH": path, "PYTHONPATH": root, OUTCOMES: str(file), WITH_OURS: "1" if with_ours else ""}
        command = (sys.executable, "-m", "pytest", *OPTIONS, "--rootdir", folder, "-p", "benchmarks.jupyterhub_suites")
        subprocess.run(
            (*command, "--pyargs", f"jupyterhub.tests.{suite}"),
            cwd=folder,
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        result: dict[str, bool] = json.loads(file.read_text())
        return result


def main() -> int:
    """Run the suites and write the page."""
    lines = [
        f"With JupyterHub {version('jupyterhub')}; written by `benchmarks/jupyterhub_suites.py`.",
        "",
        "| tests of | pass with JupyterHub alone | of these pass with this package |",
        "| --- | --- | --- |",
    ]
    failed: dict[str, list[str]] = {}
    for suite, what in SUITES.items():
        alone, ours = outcomes(suite, with_ours=False), outcomes(suite, with_ours=True)
        usual = [name for name, passed in alone.items() if passed]
        for name in usual:
            if not ours.get(name):
                failed.setdefault(name.partition("[")[0], []).append(name)
        passed = sum(bool(ours.get(name)) for name in usual)
        lines.append(f"| {what} (`{suite}`) | {len(usual)} of {len(alone)} | {passed} |")
    explained = {name for names in REASONS.values() for name in names}
    lines += ["", "| what fails, and with how many arguments | why that is right |", "| --- | --- |"]
    for reason, names in REASONS.items():
        failures = [f"`{name}` ({len(failed[name])})" for name in names if name in failed]
        if failures:
            lines.append(f"| {', '.join(failures)} | {reason} |")
    unexplained = sorted(set(failed) - explained)
    lines += [f"| `{name}` | not explained |" for name in unexplained]
    PAGE.write_text("# JupyterHub's own tests with this package\n\n" + "\n".join(lines) + "\n")
    print(PAGE.read_text())
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
