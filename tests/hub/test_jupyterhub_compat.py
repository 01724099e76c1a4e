"""Contract tests, for each supported version, for the undocumented names of JupyterHub that this package uses."""

from __future__ import annotations

import ast
import asyncio
import inspect
import logging
import re
from asyncio import Future, sleep, wait_for
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import jupyterhub
import pytest
from jupyterhub import apihandlers, handlers, orm, roles, scopes
from jupyterhub.apihandlers.base import APIHandler
from jupyterhub.apihandlers.users import SpawnProgressAPIHandler, UserServerAPIHandler
from jupyterhub.app import JupyterHub
from jupyterhub.auth import Authenticator
from jupyterhub.handlers.base import BaseHandler, UserUrlHandler
from jupyterhub.handlers.pages import HomeHandler, SpawnHandler, SpawnPendingHandler
from jupyterhub.spawner import SimpleLocalProcessSpawner, Spawner
from jupyterhub.user import User, UserDict
from jupyterhub.utils import format_exception, maybe_future
from tornado import web
from traitlets import Float
from traitlets.config import Config

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub import jupyterhub_compat as compat
from jupyterhub_gpuspawner.hub import routes, spawner_bases
from jupyterhub_gpuspawner.hub.choose.page import ChoosePage
from jupyterhub_gpuspawner.hub.server.home import new_server_name
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.slurm import GPUSlurmSpawner
from jupyterhub_gpuspawner.hub.start.readiness import READY_PATH, ask_readiness_at
from jupyterhub_gpuspawner.profiles.parsing import parse_profiles
from jupyterhub_gpuspawner.profiles.resolve import resolve
from tests.fixtures.databases import hub_session

pytestmark = pytest.mark.oldest

NAMES = {
    "the spawn page's steps": (SpawnHandler, ["get", "post", "_post", "_render_form", "_wrap_spawn_single_user"]),
    "where a start is watched": (SpawnHandler, ["_get_pending_url", "get_next_url"]),
    "a page": (BaseHandler, ["render_template", "find_user", "stop_single_user", "allow_named_servers"]),
    "the home page": (HomeHandler, ["get", "get_current_user_named_server_limit"]),
    "an answer in JSON": (APIHandler, ["get_json_body", "write_error"]),
    "a spawner's start": (
        Spawner,
        ["_spawn_future", "_spawn_pending", "_check_pending", "_failed", "_log_name", *compat.CONSTRUCTOR_ARGUMENTS],
    ),
    "a server's stop": (Spawner, ["_stop_pending"]),
    "a group's overrides": (Spawner, ["apply_group_overrides", "_apply_overrides"]),
    "a server's state": (Spawner, ["pending", "ready", "active", "poll_and_notify", "apply_user_options"]),
    "a user's servers": (User, ["spawner", "get_spawner", "server_url", "all_spawners", "_delete_spawner"]),
    "the hub": (JupyterHub, ["_template_paths_default", "handlers", "template_paths"]),
    "the database": (orm.Spawner, ["name", "state", "user_options", "user_id"]),
    "scopes": (scopes, ["needs_scope", "Scope", "scope_definitions"]),
    "rights of a request": (BaseHandler, ["has_scope", "user_from_username"]),
    "groups": (orm.Group, ["name", "users", "roles", "properties"]),
    "who is in a group": (orm.user_group_map.c, ["group_id", "user_id"]),
    "a service": (orm.Service, ["name", "admin", "from_config", "new_api_token"]),
    "activity": (JupyterHub, ["update_last_activity"]),
    "the event log": (JupyterHub, ["init_eventlog"]),
    "a stop over REST": (UserServerAPIHandler, ["delete", "stop_single_user"]),
    "a user who asks": (orm.User, ["kind", "name"]),
    "a service that asks": (orm.Service, ["kind", "name"]),
    "who may sign in": (Authenticator, ["allow_all", "allow_existing_users", "allowed_users", "blocked_users"]),
}


@pytest.mark.parametrize(("owner", "names"), NAMES.values(), ids=NAMES.keys())
def test_jupyterhub_has_what_is_taken_from_it(owner: object, names: list[str]) -> None:
    """Each supported version has every name that this package uses; the failure lists the missing ones."""
    assert [name for name in names if not hasattr(owner, name)] == []


@pytest.mark.parametrize("name", ["get", "post", "_render_form"])
def test_the_choose_page_takes_what_the_spawn_page_is_called_with(name: str) -> None:
    """Tornado calls the page with the groups of its URL; there are two in every version."""
    theirs = list(inspect.signature(getattr(SpawnHandler, name)).parameters)
    ours = inspect.signature(getattr(ChoosePage, name))

    ours.bind(*theirs[: 3 if name != "_render_form" else None])


def test_the_choose_page_takes_what_the_spawn_page_calls_itself_with() -> None:
    """``_post`` is called by keyword; ``_wrap_spawn_single_user`` by position, with the spawner among its arguments."""
    by_name = {name: "" for name in inspect.signature(SpawnHandler._post).parameters if name != "self"}
    by_position = inspect.signature(SpawnHandler._wrap_spawn_single_user).parameters

    inspect.signature(ChoosePage._post).bind("self", **by_name)
    inspect.signature(ChoosePage._wrap_spawn_single_user).bind(*by_position)
    assert "spawner" in by_position


def test_each_page_that_is_taken_over_is_one_of_the_hubs() -> None:
    """The replaced handlers are among JupyterHub's own."""
    theirs = {handler for _, handler, *_ in (*handlers.default_handlers, *apihandlers.default_handlers)}

    pages = {HomeHandler, SpawnHandler, SpawnPendingHandler, UserUrlHandler}
    replaced = pages | {SpawnProgressAPIHandler, UserServerAPIHandler}
    assert set(routes.REPLACED) == replaced
    assert replaced <= theirs
    assert isinstance(apihandlers.default_handlers, list)


def test_a_page_keeps_only_the_parameters_that_the_hub_knows() -> None:
    """JupyterHub 5 treats ``display_name`` as a user option; later versions treat it as the server's display name."""
    has_display_name = "display_name" in inspect.getsource(SpawnHandler._get)

    assert ("display_name" in compat.SPAWN_PAGE_PARAMETERS) is has_display_name
    assert compat.HAS_DISPLAY_NAMES is hasattr(orm.Spawner, "display_name")


@pytest.mark.parametrize(
    ("spawner", "shown"),
    [
        ({"name": ""}, ""),
        ({"name": "two"}, "two"),
        ({"name": "two", "display_name": ""}, "two"),
        ({"name": "two", "display_name": "The second"}, "The second"),
        ({"name": "", "display_name": "The first"}, "The first"),
    ],
)
def test_a_server_is_shown_by_its_name(spawner: dict[str, str], shown: str) -> None:
    """The display name is used if the version has one and it is set, else the name in the URL."""
    assert compat.display_name(SimpleNamespace(**spawner)) == shown


NEW_NAMES = {
    "lab": ("lab", "lab"),
    "a-b": ("a-b", "a-b"),
    "  My   lab ": ("my-lab", "My lab"),
    "Übung 1": ("ubung-1", "Übung 1"),
    "2nd": ("x-2nd", "2nd"),
}


@pytest.mark.skipif(not compat.HAS_DISPLAY_NAMES, reason="JupyterHub 5: a server's name is what was typed")
@pytest.mark.parametrize(("typed", "names"), NEW_NAMES.items())
def test_a_new_servers_name_is_made_from_what_was_typed(typed: str, names: tuple[str, str]) -> None:
    """As JupyterHub's own home page makes it; JupyterHub accepts both names."""
    slugs = pytest.importorskip("jupyterhub.slugs")

    assert new_server_name(typed) == names
    assert slugs.is_valid_safe_slug(names[0])
    assert slugs.is_valid_display_name(names[1])


@pytest.mark.skipif(compat.HAS_DISPLAY_NAMES, reason="JupyterHub 6 makes a name of any text")
@pytest.mark.parametrize("typed", ["a/b", "..", "a?b", "a b", "-x"])
def test_a_new_servers_name_is_a_part_of_a_path(typed: str) -> None:
    """JupyterHub 5 puts the name into URLs as it is."""
    with pytest.raises(RequestError, match="can have letters, digits"):
        new_server_name(typed)


@pytest.mark.parametrize("typed", ["", "   ", "a\x07b", "x" * 256])
def test_a_new_servers_name_is_printable_text(typed: str) -> None:
    """Neither empty, nor longer than the database's column."""
    with pytest.raises(RequestError, match="1 to 255 printable characters"):
        new_server_name(typed)


async def test_a_spawners_start_and_its_watchers() -> None:
    """A new spawner has neither a start nor a poll callback; afterwards it has those that were set last."""
    spawner = Spawner()
    before = (compat.last_start(spawner), compat.is_polled(spawner))
    start: Future[None] = Future()
    compat.set_last_start(spawner, start)
    spawner.add_poll_callback(print)

    assert before == (None, False)
    assert (compat.last_start(spawner), compat.is_polled(spawner)) == (start, True)
    assert compat.last_start(orm.Spawner()) is None


class PatientSpawner(compat.OwnStartTimeout, SimpleLocalProcessSpawner):  # type: ignore[misc]
    """A spawner that knows itself how long a start may take; its start notes the setting."""

    start_timeout = Float()
    timeout_at_start = 0.0

    async def start(self) -> tuple[str, int]:
        self.timeout_at_start = self.start_timeout
        await sleep(0.2)
        return "127.0.0.1", 8888


class OfASite(PatientSpawner):
    """A subclass with more to do, as admins write them."""

    before: ClassVar = asyncio.Event()
    after: ClassVar = asyncio.Event()

    async def start(self) -> tuple[str, int]:
        await self.before.wait()
        where = await super().start()
        await self.after.wait()
        return where


class OfACluster(OfASite):
    """And another one of the same site."""

    async def start(self) -> tuple[str, int]:
        await sleep(0)
        return await super().start()


@pytest.fixture(autouse=True)
def _nothing_to_wait_for() -> None:
    OfASite.before, OfASite.after = asyncio.Event(), asyncio.Event()
    OfASite.before.set()
    OfASite.after.set()


@pytest.mark.parametrize("spawner_class", [OfASite, OfACluster])
@pytest.mark.parametrize("hangs", ["before", "after"])
async def test_what_a_site_adds_to_a_start_has_the_time_limit(spawner_class: type[OfASite], hangs: str) -> None:
    """As JupyterHub has it for every start; the exception is that of its own time-out."""
    getattr(OfASite, hangs).clear()
    spawner = spawner_class(start_timeout=0.05)

    with pytest.raises(asyncio.TimeoutError):
        await wait_for(maybe_future(spawner.start()), timeout=30)
    assert (spawner.start_timeout, spawner.sites_starts) == (0.05, ())


@pytest.mark.parametrize("spawner_class", [PatientSpawner, OfASite, OfACluster])
async def test_jupyterhub_does_not_end_a_start_that_watches_its_own_time(spawner_class: type[PatientSpawner]) -> None:
    """What JupyterHub reads after it has called start() is no limit; the start itself finds the admin's setting."""
    spawner = spawner_class(start_timeout=0.05)
    future = maybe_future(spawner.start())
    read = spawner.start_timeout
    where = await wait_for(future, timeout=read)

    assert read == compat.NO_TIME_LIMIT
    assert (where, spawner.timeout_at_start, spawner.start_timeout) == (("127.0.0.1", 8888), 0.05, 0.05)


async def test_the_setting_comes_back_when_a_start_is_cancelled_before_its_first_step() -> None:
    """A stop may come in the same moment."""
    spawner = PatientSpawner(start_timeout=7)
    maybe_future(spawner.start()).cancel()
    await sleep(0)

    assert (spawner.start_timeout, spawner.timeout_at_start) == (7, 0)


def test_jupyterhub_reads_the_time_out_before_a_start_takes_its_first_step() -> None:
    """There is no await between the call and the time-out."""
    source = inspect.getsource(User.spawn)
    between = source.partition("maybe_future(spawner.start())")[2].partition("timeout=spawner.start_timeout")[0]

    assert between.count("await") == between.count("always commit db changes before await") + 1
    assert between.rpartition("await")[2] == " asyncio.wait_for(f, "


def test_those_who_are_left_out_do_not_count_as_pending_starts() -> None:
    """They are still active, and other pending starts count; registering twice changes nothing."""
    spawners = {name: Spawner() for name in ("waits", "starts", "checks")}
    for name in ("waits", "starts"):
        spawners[name]._spawn_pending = True
    spawners["checks"]._check_pending = True
    users = UserDict(db_factory=lambda: None, settings={})
    dict.__setitem__(users, 1, SimpleNamespace(spawners=spawners))
    before = dict(users.count_active_users())
    for _ in range(2):
        compat.leave_out_of_spawn_limit(users, lambda spawner: spawner is spawners["waits"])
    after = dict(users.count_active_users())

    assert before == {"pending": 3, "spawn_pending": 2, "check_pending": 1, "active": 3}
    assert after == {**before, "spawn_pending": 1}
    assert "self.users.count_active_users()" in inspect.getsource(BaseHandler.spawn_single_user)


def test_a_hub_restores_its_servers_after_it_has_set_up_its_handlers() -> None:
    """What it has loaded by then is left out of garbage collections (:func:`begin_garbage`), and no server is."""
    steps = re.findall(r"self\.(init_handlers|init_spawners)\(\)", inspect.getsource(JupyterHub.initialize))

    assert steps == ["init_handlers", "init_spawners"]


def test_how_long_to_wait_after_the_refusal_of_a_limit() -> None:
    """JupyterHub says it for its limit of starts alone, in a header of the exception."""
    throttled, full, other = (web.HTTPError(status) for status in (429, 429, 503))
    for error in (throttled, other):
        vars(error)["headers"] = {"Retry-After": 40}
    source = inspect.getsource(BaseHandler.spawn_single_user)

    assert [compat.retry_after(exception) for exception in (throttled, full, other)] == [40, None, None]
    assert source.count("err.headers = {'Retry-After': retry_time}") == 1
    assert hasattr(BaseHandler, "active_server_limit")


class CachingSpawner(compat.LogName, SimpleLocalProcessSpawner):  # type: ignore[misc]
    """A spawner that caches its name for log messages."""


def test_the_name_in_the_log_is_read_once() -> None:
    """The name is read when the spawner is constructed, since the database may be unavailable later."""
    user = SimpleNamespace(name="ann", url="/")
    spawner = CachingSpawner(user=user, orm_spawner=SimpleNamespace(name="lab", server=None))
    user.name = "read anew"

    assert (compat.log_name(spawner), spawner._log_name) == ("ann:lab", "ann:lab")


async def test_a_start_that_is_taken_up_is_pending_until_it_is_over() -> None:
    """The start is shown like one by JupyterHub's own handler; a failed one is kept for the server's page."""
    spawner = Spawner()
    spawner._check_pending = True
    checked = (compat.is_first_check(spawner), compat.is_checked(spawner))
    start: Future[None] = Future()
    compat.begin_pending_start(spawner, start)
    pending = (spawner.pending, compat.is_first_check(spawner), compat.last_start(spawner))
    start.set_exception(ValueError())
    compat.end_pending_start(spawner)
    failed = (spawner.pending, compat.last_start(spawner))
    cancelled: Future[None] = Future()
    cancelled.cancel()
    compat.begin_pending_start(spawner, cancelled)
    compat.end_pending_start(spawner)

    assert checked == (True, True)
    assert pending == ("spawn", False, start)
    assert failed == ("check", start)
    assert (spawner.pending, compat.is_checked(spawner), compat.last_start(spawner)) == (None, False, None)


def test_a_spawners_row_leads_to_its_session() -> None:
    """Some spawners have no row, and some rows are not in the database."""
    with hub_session() as session:
        user = orm.User(name="ann")
        session.add(user)
        row = orm.Spawner(name="", user=user)
        session.add(row)
        session.commit()

        assert [compat.session_of(spawner) for spawner in (row, orm.Spawner(name=""), None)] == [session, None, None]


def test_a_spawner_reads_the_hubs_settings_through_its_user() -> None:
    """The names are those that the hub passes to its web application."""
    settings = {"proxy": object(), "cookie_secret": b"secret", "internal_ssl_key": "/key"}
    with hub_session() as session:
        row = orm.User(name="ann")
        session.add(row)
        session.commit()
        spawner = SimpleNamespace(user=User(row, settings, db=session))
        names = inspect.getsource(JupyterHub.init_tornado_settings)

        assert compat.proxy_of(spawner) is settings["proxy"]
        assert compat.cookie_secret(spawner) == b"secret"
        assert compat.internal_certificates(spawner) == ("/key", None, None)
        for name in (*settings, "internal_ssl_cert", "internal_ssl_ca"):
            assert f"{name}=" in names


async def test_a_start_after_a_failed_one_has_the_spawner_that_the_user_has() -> None:
    """JupyterHub replaces the failed one; what version 6 returns to its handlers is not the one that it starts."""
    with hub_session() as session:
        row = orm.User(name="ann")
        row._orm_spawners = [orm.Spawner(name="")]
        session.add(row)
        session.commit()
        user = User(row, {"config": Config(), "spawner_class": SimpleLocalProcessSpawner}, db=session)
        failed, start = user.spawners[""], Future[None]()
        start.set_exception(RuntimeError())
        compat.set_last_start(failed, start)

        used = compat.used_spawner(user, user.get_spawner("", replace_failed=True))

        assert used is user.spawners[""]
        assert used is not failed


def failure() -> web.HTTPError:
    """A failed start with lines from a log."""
    return compat.spawn_exception(
        "The job failed.", reason="job_ended", status_code=500, html="<p>The job failed.</p>", detail="100 % full"
    )


class Answer(APIHandler):  # type: ignore[misc]
    """A handler that turns an exception into JSON as JupyterHub does, but needs no hub."""

    def __init__(self) -> None:
        self.written = ""

    def write(self, chunk: object) -> None:
        self.written += str(chunk)

    def set_header(self, name: str, value: object) -> None: ...

    def clear_header(self, name: str) -> None: ...


def test_rest_answers_with_the_whole_message() -> None:
    """The answer includes the lines of the log; JupyterHub 5.4 and 6 read the message from different attributes."""
    answer, error = Answer(), failure()
    answer.write_error(500, exc_info=(type(error), error, None))

    assert answer.written == '{"status": 500, "message": "The job failed.\\n100 % full"}'


def test_pages_show_the_message_as_html() -> None:
    """A page shows HTML, and other clients get plain text."""
    assert format_exception(failure(), only_jupyterhub=True) == (
        "The job failed.\n100 % full",
        "<p>The job failed.</p>",
    )


def test_the_first_line_of_a_failure() -> None:
    """The first line excludes the lines of the log; other exceptions have no text for users."""
    assert (compat.first_line(failure()), compat.first_line(ValueError("x"))) == ("The job failed.", "")


def test_a_request_with_a_token_is_known() -> None:
    """A request with a token is recognized by the attribute that JupyterHub sets on the handler."""
    assert "self._token_authenticated = True" in inspect.getsource(BaseHandler)
    assert compat.came_with_token(SimpleNamespace(_token_authenticated=True))
    assert not compat.came_with_token(SimpleNamespace())


def test_a_refusal_keeps_its_status_and_its_words_in_the_log() -> None:
    """A per cent sign in the message is not a format specifier."""
    error = compat.spawn_exception("At most 50 %s of it.", reason="user_options", status_code=400, html="")

    assert error.status_code == 400
    assert "At most 50 %s of it." in str(error)


@pytest.mark.parametrize("sent", [[], ["gpu"], "", "gpu", 3, 0.5, True])
@pytest.mark.parametrize("spawner_class", [GPUProfilesSpawner, GPUSlurmSpawner])
def test_options_that_are_not_an_object_are_refused(spawner_class: Any, sent: object) -> None:
    """JupyterHub 5.4 stores any REST body, so a spawner must accept it when constructed and refuse it later."""
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
    """JupyterHub 5.4 accepts all of them; names are quoted in scripts."""
    assert compat.checked_server_name(name) == name


@pytest.mark.parametrize("name", ["\0", "a\nb", "a\x1b[0m", "\u202e"])
def test_a_server_with_a_name_that_does_not_print_is_not_started(name: str) -> None:
    """An environment variable cannot contain NUL, and a log should not contain the others."""
    with pytest.raises(RequestError, match="must be printable text"):
        compat.checked_server_name(name)


def test_the_body_of_a_start_is_taken_for_user_options() -> None:
    """JupyterHub 6 has a field for them, so that an option may be called display_name; 5 takes the whole body."""
    options = {"profile": "light", "display_name": "x"}

    assert compat.start_body(options) == ({"user_options": options} if compat.HAS_DISPLAY_NAMES else options)


def test_a_user_is_added_as_by_a_first_login() -> None:
    """With the default role, and once."""
    with hub_session() as session:
        for role in roles.get_default_roles():
            roles.create_role(session, role)

        user = compat.add_user(SimpleNamespace(db=session), "ada")

        assert (orm.User.find(session, "ada"), [role.name for role in user.roles]) == (user, ["user"])


async def test_jupyterhub_asks_at_an_applications_own_path_whether_it_is_ready() -> None:
    """Where it is not /api."""
    paths: list[str] = []

    async def wait_up(*, extra_path: str, **_named: object) -> SimpleNamespace:
        paths.append(extra_path)
        return SimpleNamespace(headers={"X-JupyterHub-Version": jupyterhub.__version__})

    server = SimpleNamespace(wait_up=wait_up, url="")
    spawner = SimpleNamespace(server=server, http_timeout=1)
    user: Any = SimpleNamespace(settings={}, log=logging.getLogger(), name="ada")
    for path in (READY_PATH, "healthz"):
        ask_readiness_at(spawner, path)
        await User._wait_up(user, spawner)

    assert paths == ["api", "healthz"]


class OfOneUser:
    """A user with one server, and the hub's proxy, whose answer is waited for."""

    def __init__(self) -> None:
        self.server = Spawner(orm_spawner=SimpleNamespace(name="lab", server=None))
        self.spawners = {"lab": self.server}
        self.stopped: list[str] = []
        self.answer = Future[None]()

    async def delete_user(self, _user: object, _name: str) -> None:
        await self.answer

    async def stop(self, name: str) -> None:
        self.stopped.append(name)


async def test_a_server_is_stopped_by_one_at_a_time() -> None:
    """It is pending while the proxy has not answered; after a fault it can be stopped again."""
    user = OfOneUser()
    first = asyncio.ensure_future(compat.stop_single_user(user, user, user.server))
    await sleep(0)
    pending, second = user.server.pending, await compat.stop_single_user(user, user, user.server)
    user.answer.set_exception(OSError("the proxy is away"))
    with pytest.raises(OSError, match="the proxy is away"):
        await first
    user.answer = Future()
    user.answer.set_result(None)
    third = await compat.stop_single_user(user, user, user.server)

    assert (pending, second, third, user.server.pending, user.stopped) == ("stop", False, True, None, ["lab"])


async def test_a_server_that_has_taken_the_place_of_another_is_not_stopped() -> None:
    """Its user was quicker."""
    user = OfOneUser()
    before, user.spawners["lab"] = user.server, Spawner(orm_spawner=SimpleNamespace(name="lab", server=None))

    assert await compat.stop_single_user(user, user, before) is False
    assert user.stopped == []


# --- the typed stand-ins for the classes of JupyterHub, batchspawner and wrapspawner --------------


CLASSES = {
    node.name: node
    for node in ast.walk(ast.parse(Path(spawner_bases.__file__).read_text()))
    if isinstance(node, ast.ClassDef)
}


def test_every_base_is_typed() -> None:
    """The stand-ins are exactly these classes."""
    assert sorted(CLASSES) == sorted(spawner_bases.__all__)


@pytest.mark.parametrize("name", spawner_bases.__all__)
def test_the_real_class_has_each_typed_attribute(name: str) -> None:
    """A missing name in a supported version would otherwise only show when it is used."""
    real = getattr(spawner_bases, name)
    typed = {ast.unparse(statement.target) for statement in CLASSES[name].body if isinstance(statement, ast.AnnAssign)}

    assert {attribute for attribute in typed if not hasattr(real, attribute)} == set()


@pytest.mark.parametrize("name", spawner_bases.__all__)
def test_the_real_method_takes_the_typed_arguments(name: str) -> None:
    """The real methods have the same argument names."""
    real = getattr(spawner_bases, name)
    typed = [
        statement for statement in CLASSES[name].body if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]

    for method in typed:
        names = [argument.arg for argument in method.args.args]
        parameters = inspect.signature(getattr(real, method.name)).parameters
        assert [argument_name for argument_name in names if argument_name not in parameters] == [], method.name
