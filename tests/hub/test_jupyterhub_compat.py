"""What this package takes from JupyterHub beyond its documentation: a contract, for each supported version."""

from __future__ import annotations

import inspect
from asyncio import Future
from dataclasses import dataclass
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from jupyterhub import apihandlers, handlers, orm, scopes
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.apihandlers.users import SpawnProgressAPIHandler
from jupyterhub.app import JupyterHub
from jupyterhub.handlers.base import BaseHandler, UserUrlHandler
from jupyterhub.handlers.pages import SpawnHandler, SpawnPendingHandler
from jupyterhub.spawner import Spawner
from jupyterhub.user import User
from jupyterhub.utils import format_exception
from tornado import web
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub import jupyterhub_compat as compat
from jupyterhub_gpuspawner.hub import routes
from jupyterhub_gpuspawner.hub.pages.choose.page import ChoosePage
from jupyterhub_gpuspawner.hub.spawners.local import GPULocalSpawner
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.profiles.profile import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve

pytestmark = pytest.mark.oldest

NAMES = {
    "the spawn page's steps": (SpawnHandler, ["get", "post", "_post", "_render_form", "_wrap_spawn_single_user"]),
    "where a start is watched": (SpawnHandler, ["_get_pending_url", "get_next_url"]),
    "a page": (BaseHandler, ["render_template", "find_user", "stop_single_user"]),
    "an answer in JSON": (APIHandler, ["get_json_body", "write_error"]),
    "a spawner's start": (
        Spawner,
        ["_spawn_future", "_spawn_pending", "_check_pending", "_failed", "_log_name", "_deprecated_db_session"],
    ),
    "a server's state": (Spawner, ["pending", "ready", "active", "poll_and_notify", "apply_user_options"]),
    "a user's servers": (User, ["spawner", "get_spawner", "server_url"]),
    "the hub": (JupyterHub, ["_template_paths_default", "handlers", "template_paths", "template_vars"]),
    "the database": (orm.Spawner, ["name", "state", "user_options", "user_id"]),
    "scopes": (scopes, ["needs_scope", "Scope"]),
}


@pytest.mark.parametrize(("owner", "names"), NAMES.values(), ids=NAMES.keys())
def test_jupyterhub_has_what_is_taken_from_it(owner: object, names: list[str]) -> None:
    """By name; what is missing is named."""
    assert [name for name in names if not hasattr(owner, name)] == []


@pytest.mark.parametrize("name", ["get", "post", "_render_form"])
def test_the_choose_page_takes_what_the_spawn_page_is_called_with(name: str) -> None:
    """Tornado calls the page with the parts of its address, of which there are two in each version."""
    theirs = list(inspect.signature(getattr(SpawnHandler, name)).parameters)
    ours = inspect.signature(getattr(ChoosePage, name))

    ours.bind(*theirs[: 3 if name != "_render_form" else None])


def test_the_choose_page_takes_what_the_spawn_page_calls_itself_with() -> None:
    """``_post`` by names, and ``_wrap_spawn_single_user`` by position with the spawner somewhere in it."""
    by_name = {name: "" for name in inspect.signature(SpawnHandler._post).parameters if name != "self"}
    by_position = inspect.signature(SpawnHandler._wrap_spawn_single_user).parameters

    inspect.signature(ChoosePage._post).bind("self", **by_name)
    inspect.signature(ChoosePage._wrap_spawn_single_user).bind(*by_position)
    assert "spawner" in by_position


def test_each_page_that_is_taken_over_is_one_of_the_hubs() -> None:
    """With its address and its methods."""
    theirs = {handler for _, handler, *_ in (*handlers.default_handlers, *apihandlers.default_handlers)}

    taken = {SpawnHandler, SpawnPendingHandler, UserUrlHandler, SpawnProgressAPIHandler}
    assert set(routes.TAKEN_OVER) == taken
    assert taken <= theirs
    assert isinstance(apihandlers.default_handlers, list)


def test_a_page_keeps_only_the_parameters_that_the_hub_knows() -> None:
    """JupyterHub 5 takes ``display_name`` for an option of the user's."""
    kept = "display_name" in inspect.getsource(SpawnHandler._get)

    assert ("display_name" in compat.SPAWN_PAGE_PARAMETERS) is kept
    assert compat.HAS_DISPLAY_NAMES is hasattr(orm.Spawner, "display_name")


@dataclass
class Named:
    """As much of a spawner as has a name."""

    name: str
    display_name: str = ""


@pytest.mark.parametrize(
    ("spawner", "shown"),
    [
        (SimpleNamespace(name=""), ""),
        (SimpleNamespace(name="two"), "two"),
        (Named("two"), "two"),
        (Named("two", "The second"), "The second"),
        (Named("", "The first"), "The first"),
    ],
    ids=[
        "default, 5",
        "named, 5",
        "named, no other name",
        "named, with a name to show",
        "default, with a name to show",
    ],
)
def test_a_server_is_shown_by_its_name(spawner: object, shown: str) -> None:
    """The one to show where the version has it and it is set, else the one in the address."""
    assert compat.display_name(spawner) == shown


async def test_a_spawners_start_and_its_watchers() -> None:
    """A new spawner has neither; its start is what was set last, and a callback is one who watches."""
    spawner = Spawner()
    before = (compat.last_start(spawner), compat.is_polled(spawner))
    start: Future[None] = Future()
    compat.set_last_start(spawner, start)
    spawner.add_poll_callback(print)

    assert before == (None, False)
    assert (compat.last_start(spawner), compat.is_polled(spawner)) == (start, True)
    assert compat.last_start(orm.Spawner()) is None


def failure() -> web.HTTPError:
    """A start that failed, with lines of a log."""
    return compat.spawn_exception(
        "The job failed.", reason="job_ended", status_code=500, html="<p>The job failed.</p>", detail="100 % full"
    )


class Answer(APIHandler):  # type: ignore[misc]
    """JupyterHub's way from an exception to JSON, without a hub around it."""

    def __init__(self) -> None:
        self.written = ""

    def write(self, chunk: object) -> None:
        self.written += str(chunk)

    def set_header(self, name: str, value: object) -> None: ...

    def clear_header(self, name: str) -> None: ...


def test_rest_answers_with_the_whole_message() -> None:
    """With the log's lines; 5.4 looks for it in another place than 6."""
    answer, error = Answer(), failure()
    answer.write_error(500, exc_info=(type(error), error, None))

    assert answer.written == '{"status": 500, "message": "The job failed.\\n100 % full"}'


def test_pages_show_the_message_as_html() -> None:
    """And the one without markup for whoever asks."""
    assert format_exception(failure(), only_jupyterhub=True) == (
        "The job failed.\n100 % full",
        "<p>The job failed.</p>",
    )


def test_a_refusal_keeps_its_status_and_its_words_in_the_log() -> None:
    """A per cent sign in it is a character."""
    error = compat.spawn_exception("At most 50 %s of it.", reason="user_options", status_code=400, html="")

    assert error.status_code == 400
    assert "At most 50 %s of it." in str(error)


@pytest.mark.parametrize("sent", [[], ["gpu"], "", "gpu", 3, 0.5, True])
@pytest.mark.parametrize("spawner_class", [GPUProfilesSpawner, GPUSlurmSpawner, GPULocalSpawner])
def test_options_that_are_no_table_are_one_that_is_refused(spawner_class: Any, sent: object) -> None:
    """JupyterHub 5.4 stores a REST body as it comes: a spawner must be made from it all the same, and say no."""
    spawner = spawner_class(config=Config(), user_options=sent)

    assert spawner.user_options == {"user_options": sent}
    with pytest.raises(RequestError):
        resolve(
            parse_profiles([{"display_name": "One"}]),
            spawner.user_options,
            username="ann",
            groups=frozenset(),
            server_name="",
            now=datetime.now().astimezone(),
        )


@pytest.mark.parametrize("name", ["", "two", "zwei Gänge", "#2", "%20"])
def test_a_server_may_have_any_printable_name(name: str) -> None:
    """JupyterHub 5.4 lets all through; what stands in a script is quoted."""
    assert compat.checked_server_name(name) == name


@pytest.mark.parametrize("name", ["\0", "a\nb", "a\x1b[0m", "\u202e"])
def test_a_server_with_a_name_that_does_not_print_is_not_started(name: str) -> None:
    """An environment cannot hold a NUL, and a log should not hold the others."""
    with pytest.raises(RequestError, match="must be printable text"):
        compat.checked_server_name(name)
