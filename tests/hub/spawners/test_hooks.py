"""Hooks of a site that raise: what its users read, and what the log says."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tornado import web

from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending, Repair
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.tasks import Ended
from tests.standins.hub_spawner import HubSpawner

HERE = re.escape(__file__)


def breaks(*_: Any) -> None:
    """As a hook that makes a home on a file system that is mounted read-only."""
    raise OSError(30, "Read-only file system", "/home/ada")


async def breaks_later(*_: Any) -> None:
    """The same in a coroutine."""
    breaks()


def refuses(*_: Any) -> None:
    """As a hook that knows why."""
    raise web.HTTPError(403, "%s has used %d%% of the project's hours.", "ada", 120)


def refuses_after_an_error(*_: Any) -> None:
    """As a hook that has asked somebody else."""
    try:
        breaks()
    except OSError as error:
        raise web.HTTPError(403, "Your quota is 100% used.") from error


def refuse_silently(*_: Any) -> None:
    """A refusal without words."""
    raise web.HTTPError(403)


async def failure_of(
    hook: str, run: Callable[..., Any], **settings: object
) -> tuple[BaseException, GPUProfilesSpawner]:
    """What JupyterHub gets of a hook."""
    facts: Any = {hook: run, **settings}
    spawner = HubSpawner(SimpleNamespace(name="ada", settings={}), contact="the help desk", **facts)
    runs: dict[str, Callable[[], Any]] = {
        "pre_spawn_hook": spawner.run_pre_spawn_hook,
        "auth_state_hook": lambda: spawner.run_auth_state_hook({}),
        "apply_user_options": lambda: spawner._run_apply_user_options({}),
    }
    with pytest.raises(Exception) as raised:
        await runs[hook]()
    return raised.value, spawner


@pytest.mark.parametrize("run", [breaks, breaks_later])
@pytest.mark.parametrize("hook", ["pre_spawn_hook", "auth_state_hook", "apply_user_options"])
async def test_a_hook_that_raises_is_one_sentence_and_its_line_is_in_the_log(
    hook: str, run: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """Whom to ask, and for administrators what was raised and where."""
    failure, spawner = await failure_of(hook, run)
    ending = spawner.ended.last
    assert ending is not None

    what = f"{hook} raised OSError: \\[Errno 30\\] Read-only file system: '/home/ada' \\({HERE}, line \\d+\\)"
    shown = words_of(ending, contact="the help desk")
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.ERROR]

    assert (shown.sentence, shown.advice) == (
        "The hub could not prepare your server.",
        "This was not caused by you: please tell the help desk.",
    )
    assert re.fullmatch(what, shown.hint)
    assert [line for line in lines if re.fullmatch(f"The start of ada failed: {what}", line)]
    assert (ending.cause, ending_of(failure)) == (start_failed("hook"), ending)


def exits(*_: Any) -> None:
    """As a hook that calls what was written as a program."""
    raise SystemExit("no such project")


def is_cancelled(*_: Any) -> None:
    """As a hook that awaits what somebody else has cancelled."""
    raise asyncio.CancelledError


def later(run: Callable[..., None]) -> Callable[..., Any]:
    """The same in a coroutine."""

    async def hook(*_: Any) -> None:
        await asyncio.sleep(0)
        run()

    return hook


async def hangs(*_: Any) -> None:
    """As a hook that asks a service which does not answer."""
    await asyncio.Event().wait()


NO_EXCEPTION: dict[str, tuple[Callable[..., Any], str]] = {
    "it exits": (exits, f"raised SystemExit: no such project \\({HERE}, line \\d+\\)"),
    "its coroutine exits": (later(exits), f"raised SystemExit: no such project \\({HERE}, line \\d+\\)"),
    "it is cancelled": (is_cancelled, f"raised CancelledError:  \\({HERE}, line \\d+\\)"),
    "its coroutine is cancelled": (later(is_cancelled), f"raised CancelledError:  \\({HERE}, line \\d+\\)"),
    "it hangs": (hangs, r"was given up: it took more than 1 s \(start_timeout\)"),
}


@pytest.mark.parametrize(("run", "what"), NO_EXCEPTION.values(), ids=NO_EXCEPTION.keys())
@pytest.mark.parametrize("hook", ["pre_spawn_hook", "auth_state_hook", "apply_user_options"])
async def test_a_hook_ends_its_start_alone_whatever_it_does(hook: str, run: Callable[..., Any], what: str) -> None:
    """Neither the hub nor the task of the start, which would be pending for ever."""
    failure, spawner = await failure_of(hook, run, start_timeout=1)

    assert spawner.ended.last is not None
    assert re.fullmatch(f"{hook} {what}", words_of(spawner.ended.last).hint)
    assert (spawner.ended.last.cause, ending_of(failure)) == (start_failed("hook"), spawner.ended.last)


@pytest.mark.parametrize("run", [exits, later(exits), is_cancelled, later(is_cancelled)])
async def test_a_hook_after_the_stop_ends_neither_the_hub_nor_the_stop(run: Callable[..., Any]) -> None:
    """JupyterHub goes on after an Exception, and names it in the log."""
    facts: Any = {"post_stop_hook": run}
    spawner = HubSpawner(SimpleNamespace(name="ada", settings={}), **facts)
    with pytest.raises(Ended):
        await spawner.run_post_stop_hook()


async def test_a_start_that_is_stopped_in_a_hook_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    """The hook ends with it."""
    ended = asyncio.Event()

    async def waits(*_: Any) -> None:
        try:
            await hangs()
        finally:
            ended.set()

    start = asyncio.ensure_future(failure_of("pre_spawn_hook", waits))
    await asyncio.sleep(0.05)
    start.cancel()
    await asyncio.wait({start})

    assert (start.cancelled(), ended.is_set(), caplog.records) == (True, True, [])


async def test_a_hook_that_refuses_speaks_for_itself() -> None:
    """Its message, without the words of HTTP; without one it is JupyterHub's to show."""
    failure, spawner = await failure_of("pre_spawn_hook", refuses)
    silent, _ = await failure_of("pre_spawn_hook", refuse_silently)

    assert spawner.ended.last is not None
    assert words_of(spawner.ended.last) == Words("ada has used 120% of the project's hours.")
    assert vars(failure)["status_code"] == 403
    assert (ending_of(silent), vars(silent)["status_code"]) == (None, 403)


@pytest.mark.parametrize(
    ("message", "sentence"),
    [
        ("Your home folder is full: 50 of 50 GB.", "Your home folder is full: 50 of 50 GB."),
        (None, "Your home folder is full."),
        (" \n", "Your home folder is full."),
    ],
)
async def test_a_hook_says_that_the_home_is_full_by_its_status(message: str | None, sentence: str) -> None:
    """Its user can do something about it, and JupyterHub does not count it among its own failures."""

    def finds_it_full(*_: Any) -> None:
        raise web.HTTPError(507, message)

    failure, spawner = await failure_of("pre_spawn_hook", finds_it_full)
    ending = spawner.ended.last

    assert ending is not None
    assert (ending.cause, ending.repair) == (start_failed("home_full"), Repair.YOU)
    assert words_of(ending).sentence == sentence
    assert vars(failure)["status_code"] == 403


@pytest.mark.parametrize(
    ("refusal", "sentence"),
    [
        (web.HTTPError(403, "Your folders:\n/a\r\n/b\x1b[2J"), "Your folders: /a  /b [2J"),
        (web.HTTPError(403, "No room for \udcff."), "No room for  ."),
        (web.HTTPError(403, "100% of %s are used", "/home"), "100% of %s are used"),
        (web.HTTPError(403, "%s of %s", "1"), "%s of %s"),
        (web.HTTPError(403, "%s of %s%%", 1, 2), "1 of 2%"),
    ],
)
async def test_whatever_a_refusal_has_in_its_message_is_one_line_that_a_page_can_show(
    refusal: web.HTTPError, sentence: str
) -> None:
    """And stays the hook's refusal: a name of a file may hold anything."""

    def refuse_so(*_: Any) -> None:
        raise refusal

    failure, spawner = await failure_of("pre_spawn_hook", refuse_so)

    assert spawner.ended.last is not None
    assert (words_of(spawner.ended.last), vars(failure)["status_code"]) == (Words(sentence), 403)


@pytest.mark.parametrize("hook", ["pre_spawn_hook", "auth_state_hook", "apply_user_options"])
async def test_a_refusal_that_follows_from_an_error_is_a_refusal(hook: str) -> None:
    """Its message is shown as it was written."""
    failure, spawner = await failure_of(hook, refuses_after_an_error)

    assert spawner.ended.last is not None
    assert words_of(spawner.ended.last) == Words("Your quota is 100% used.")
    assert vars(failure)["status_code"] == 403


def test_what_nobody_has_handled_is_no_fault_of_the_user() -> None:
    """As from an authenticator's pre_spawn_start; JupyterHub's own time-out and refusals have words already."""
    assert ending_of(RuntimeError("no vault")) == Ending(
        start_failed("hook"), quoted=Words(hint="RuntimeError: no vault")
    )
    assert [ending_of(error) for error in (TimeoutError(), web.HTTPError(429), None)] == [None, None, None]
