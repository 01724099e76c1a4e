"""The page on which a server is chosen: a link only fills in the form; nothing starts without a click."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any

from jinja2 import Environment, PackageLoader
from jupyterhub.handlers.pages import SpawnHandler
from jupyterhub.scopes import needs_scope
from jupyterhub.spawner import Spawner
from tornado import web
from tornado.httputil import url_concat

from jupyterhub_gpuspawner.errors import ConfigError, RequestError
from jupyterhub_gpuspawner.hub import times
from jupyterhub_gpuspawner.hub.choose import words
from jupyterhub_gpuspawner.hub.choose.offer import (
    FORM_REQUEST,
    FilledIn,
    FormRequest,
    Offer,
    ProfileStatus,
    as_typed,
    filled_in_with_fault,
    occasions_first,
    of_a_form,
    of_a_link,
    of_the_last_time,
    offers,
    statuses_of,
)
from jupyterhub_gpuspawner.hub.extension import Forecast
from jupyterhub_gpuspawner.hub.extensions import extensions_for
from jupyterhub_gpuspawner.hub.job.cause import start_failed
from jupyterhub_gpuspawner.hub.job.ending import Ending
from jupyterhub_gpuspawner.hub.job.ending_words import words_of
from jupyterhub_gpuspawner.hub.job.failed_start import ending_of, start_error
from jupyterhub_gpuspawner.hub.jupyterhub_compat import (
    SPAWN_PAGE_PARAMETERS,
    display_name,
    last_start,
    retry_after,
    used_spawner,
)
from jupyterhub_gpuspawner.hub.site.state import state_of
from jupyterhub_gpuspawner.hub.spawners.offers import chooses_freely, refusal_of_choice
from jupyterhub_gpuspawner.hub.spawners.profiles import GPUProfilesSpawner
from jupyterhub_gpuspawner.hub.spawners.server import contact_of, has_job, server_of, with_profiles
from jupyterhub_gpuspawner.hub.web.handlers import UNUSED_LINK, as_query
from jupyterhub_gpuspawner.profiles.offered import Offered
from jupyterhub_gpuspawner.profiles.profile import doubts_of
from jupyterhub_gpuspawner.profiles.sections import program_of
from jupyterhub_gpuspawner.slurm.reason import Words
from jupyterhub_gpuspawner.tasks import retrieve_failure
from jupyterhub_gpuspawner.words import duration


async def render_form(spawner: GPUProfilesSpawner) -> str:
    """The HTML of this user's form; every text in it is escaped."""
    await spawner.refresh_profiles()
    form_request = FORM_REQUEST.get() or FormRequest()
    offered: Sequence[Offered] = ()
    statuses: Sequence[ProfileStatus] = ()
    forecast = Forecast()
    form_request.filled_in = FilledIn()
    try:
        offered = spawner.offers()
        form_request.filled_in = _filled_in(spawner, form_request)
        forecast = await extensions_for(spawner).forecast(spawner, [offer.profile for offer in offered])
        choice = {"profile": form_request.filled_in.profile, **form_request.filled_in.values}
        statuses = statuses_of(spawner, [offer.profile for offer in offered], forecast, choice)
    except ConfigError as error:
        spawner.log.error("Profiles or their availability cannot be shown: %s", error)
    if form_request.posted is None:
        form_request.filled_in = filled_in_with_fault(
            statuses, form_request.filled_in, linked=bool(form_request.linked)
        )
    base_url = str(spawner.hub.base_url) if spawner.hub is not None else "/hub/"
    profile_offers = offers(statuses, form_request.filled_in, base_url=base_url)
    profile_offers = occasions_first(profile_offers, offered, form_request.filled_in)
    form_request.fault_at = fault_at(profile_offers, form_request.filled_in)
    form_request.closed = nothing_to_start(profile_offers, spawner.contact)
    reader = spawner.handler.current_user if spawner.handler is not None else None
    for_admin = reader is not None and bool(reader.admin)  # paths and fields are nobody else's business
    return form_html(
        profile_offers,
        now=time.time(),
        forecast=forecast,
        faults=[str(error) for error in spawner.profile_errors()] if for_admin else (),
        doubts=[str(doubt) for offer in offered for doubt in doubts_of(offer.profile)] if for_admin else (),
    )


def form_html(
    profile_offers: Sequence[Offer],
    *,
    now: float = 0.0,
    forecast: Forecast = Forecast(),  # noqa: B008 - it knows nothing
    faults: Sequence[str] = (),
    doubts: Sequence[str] = (),
) -> str:
    """The HTML of these offers; ``now`` in seconds since the epoch, ``faults`` and ``doubts`` for administrators."""
    template = _environment().get_template("options_form.html")
    taken = [offer.availability.taken_at for offer in profile_offers if offer.availability is not None]
    oldest = min((moment for moment in taken if moment is not None), default=None)
    html = template.render(
        offers=profile_offers, now=now, oldest=oldest, forecast=forecast, faults=faults, doubts=doubts
    )
    return re.sub(r"\s*\n\s*", "\n", html)  # the template's indentation is a third of it


async def render_question(spawner: GPUProfilesSpawner | None) -> str:
    """The HTML in place of a form where the admin wants none: what one click starts.

    ``spawner`` is None in a hub without profiles.
    """
    form_request = FORM_REQUEST.get() or FormRequest()
    choice: Mapping[str, object] = {}
    if form_request.linked and spawner is not None:
        await spawner.refresh_profiles()
        form_request.filled_in = FilledIn()
        with suppress(ConfigError):  # logged where the profiles are read
            form_request.filled_in = _filled_in(spawner, form_request)
        choice = {"profile": form_request.filled_in.profile, **form_request.filled_in.values}
    return _environment().get_template("question.html").render(choice=choice)


def nothing_to_start(profile_offers: Sequence[Offer], contact: str) -> str:
    """Why no server can be started, whatever is chosen; empty where one can, or could."""
    if not profile_offers:
        return words.NO_PROFILE.format(contact=contact)
    return words.ALL_CLOSED if all(offer.closed for offer in profile_offers) else ""


def fault_at(profile_offers: Sequence[Offer], filled_in: FilledIn) -> str:
    """The id of the field at which the error is shown; empty where it belongs to no field."""
    checked = next((offer for offer in profile_offers if offer.checked), None)
    if not filled_in.fault or checked is None:
        return ""
    return next((field.name for field in checked.fields if field.fault), checked.id if filled_in.field else "")


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("jupyterhub_gpuspawner.hub.web"), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals["say"] = words
    environment.globals["program_of"] = program_of
    environment.globals["gpuspawner"] = {"times": times}
    return environment


def _filled_in(spawner: GPUProfilesSpawner, form_request: FormRequest) -> FilledIn:
    """The choice to show; raises ConfigError."""
    if form_request.posted is not None:
        return of_a_form(form_request.posted, form_request.refusal)
    if form_request.linked:
        return of_a_link(form_request.linked, spawner.resolve)
    return of_the_last_time(spawner.user_options, spawner.resolve)


# Starts that are asked for at the same moment begin a few at a time, in the order of the clicks.
#
# Until its job is submitted a start computes in the hub's event loop: rows and tokens in the database, the profile,
# the batch script. If five hundred did so side by side, any other request would wait for a step of each of them, which
# took 17 seconds. Slurm gets the jobs at the same rate, since only some commands run at the same time anyway.

LIMIT = 8
"""Starts that begin at the same time."""
LONGEST = 2.0
"""Seconds that a turn lasts at most: a start without a job, or while Slurm is silent, must not keep others waiting."""
POLL_SECONDS = 0.05
"""Seconds between two looks whether a start has begun."""
DECIDED = 20.0
"""Seconds that a click waits at most until its choice is accepted or refused."""


class Turns:
    """Limits how many starts are between the click and the submission of their job."""

    def __init__(self, limit: int = LIMIT, longest: float = LONGEST) -> None:
        self._free = asyncio.Semaphore(limit)
        self._longest = longest

    async def begin(self, start: Callable[[], Awaitable[None]], begun: Callable[[], bool]) -> None:
        """Wait for a turn and then for ``start()``; the turn ends as soon as ``begun()``, or after some time."""
        async with self._free:
            running, until = asyncio.ensure_future(start()), time.monotonic() + self._longest
            try:
                while not (running.done() or begun() or time.monotonic() > until):
                    await asyncio.wait({running}, timeout=POLL_SECONDS)
            except BaseException:
                running.cancel()
                raise
        await running


OF_THE_HUB = ("next", "display_name")
"""Query parameters that are not options of a profile, in any supported version of JupyterHub."""


class ChoosePage(SpawnHandler):
    """JupyterHub's page, except that a GET starts nothing, an error is shown at its field, and a second click is fine.

    JupyterHub starts a server on a GET with ``opt-`` options, and on any GET where there is no form: a link in an
    e-mail could use up a person's GPU hours.
    """

    form_request: FormRequest
    _start: asyncio.Future[None] | None = None
    _redirects_later = False

    def get(self, user_name: str | None = None, server_name: str = "") -> Awaitable[None] | None:
        """The form, filled in from the query; a button alone where there is no form."""
        query = {name: _texts(values) for name, values in self.request.query_arguments.items()}
        self._begin(FormRequest(linked=_linked(query)))
        # JupyterHub would start a server with any other parameter
        self.request.query_arguments = _raw({name: query[name] for name in SPAWN_PAGE_PARAMETERS if name in query})
        answer: Awaitable[None] | None = super().get(user_name, server_name)
        return answer

    def post(self, user_name: str | None = None, server_name: str = "") -> Awaitable[None] | None:
        """Start a server, or show the form again with the reason and the values that were sent."""
        sent = {name: _texts(values) for name, values in self.request.body_arguments.items()}
        self.request.body_arguments = _raw(sent)
        self._begin(FormRequest(posted=sent))
        answer: Awaitable[None] | None = super().post(user_name, server_name)
        return answer

    @needs_scope("servers")
    async def _get(self, user_name: str, server_name: str, **named: str) -> None:
        """JupyterHub's, except that a link to another choice than the one that is there says so on the home page."""
        user: Any = self.find_user(user_name)
        spawner = user.spawners.get(server_name) if user is self.current_user else None
        wanted = as_typed(self.form_request.linked)
        if wanted.profile and spawner is not None and spawner.active and not await _asks_for_it(spawner, wanted):
            choice = as_query({"profile": wanted.profile, **wanted.values})
            query = {UNUSED_LINK: choice, "server": server_name, "next": self.get_query_argument("next", "")}
            self.redirect(url_concat(f"{self.hub.base_url}home", query), status=HTTPStatus.SEE_OTHER)
            return
        await super()._get(user_name=user_name, server_name=server_name, **named)

    @needs_scope("servers")
    async def _post(self, user_name: str, server_name: str, **named: str) -> None:
        """Start the server; a second click, also from another tab, leads to where the first one did.

        JupyterHub 6 passes a ``display_name``, too.
        """
        if not chooses_freely(self, user_name):
            raise web.HTTPError(HTTPStatus.FORBIDDEN, "%s", refusal_of_choice(self.settings))
        user = self.find_user(user_name)
        spawner = user.spawners[server_name] if user is not None and server_name in user.orm_spawners else None
        if spawner is not None and spawner.ready:
            self.redirect(self.get_next_url(user, default=user.server_url(server_name)))
        elif spawner is not None and spawner.active:
            self.redirect(self._get_pending_url(user, server_name))
        else:
            start = partial(super()._post, user_name=user_name, server_name=server_name, **named)
            await (
                state_of(self.settings)
                .of(Turns)
                .begin(start, lambda: user is not None and _is_submitted(user, server_name))
            )

    def _begin(self, form_request: FormRequest) -> None:
        self.form_request = form_request
        FORM_REQUEST.set(form_request)

    def append_query_parameters(self, url: str, exclude: list[str] | None = None) -> str:
        """JupyterHub's, without the form's token: it would stay in the address of the page that follows."""
        return str(super().append_query_parameters(url, exclude=[*(exclude or ["next"]), "_xsrf"]))

    async def _render_form(self, *arguments: Any, **options: Any) -> Any:
        """JupyterHub's form page, with status 400 after every refused POST; JupyterHub sends 200 for some."""
        if self.request.method == "POST" and self.get_status() == HTTPStatus.OK:
            self.set_status(HTTPStatus.BAD_REQUEST)
        return await super()._render_form(*arguments, **options)

    def spawn_single_user(self, *arguments: Any, **options: Any) -> asyncio.Future[None]:
        """JupyterHub's, as a task whose failure asyncio does not log beside ours.

        JupyterHub looks at how the start has ended for its first second only.
        """
        start: asyncio.Future[None] = asyncio.ensure_future(super().spawn_single_user(*arguments, **options))
        start.add_done_callback(retrieve_failure)
        self._start = start
        return start

    def redirect(self, url: str, *arguments: Any, **options: Any) -> None:
        """JupyterHub's, but not while :meth:`_wrap_spawn_single_user` of JupyterHub runs: it gives a start a second."""
        if not self._redirects_later:
            super().redirect(url, *arguments, **options)

    async def _wrap_spawn_single_user(self, user: Any, *rest: Any, **options: Any) -> None:
        spawner = next(argument for argument in rest if isinstance(argument, Spawner))
        if self.request.method != "POST":
            form = await spawner.get_options_form() or await render_question(with_profiles(spawner))
            self.finish(await self._render_form(for_user=user, spawner_options_form=form))
            return
        spawner = used_spawner(user, spawner)
        try:
            self._redirects_later = True
            try:
                await super()._wrap_spawn_single_user(user, *rest, **options)
                await self._choice_accepted(spawner)
            finally:
                self._redirects_later = False
        except Exception as error:
            self.form_request.refusal = self._in_our_words(error, spawner)
            ending = ending_of(self.form_request.refusal)
            self.form_request.hint = words_of(ending).hint if ending is not None else ""
            if self.form_request.refusal is error:
                raise
            raise self.form_request.refusal from error
        self.redirect(self._get_pending_url(user, spawner.name))

    async def _choice_accepted(self, spawner: Spawner) -> None:
        """Wait until the choice is accepted, or the start has ended; raises the HTTPError with which it was refused.

        JupyterHub shows the form again, with what was filled in, only if the start fails within a second, which on a
        busy machine may pass before the choice has been looked at.
        """
        profiles, until = with_profiles(spawner), time.monotonic() + DECIDED
        while profiles is not None and profiles.chosen is None and time.monotonic() < until:
            start = last_start(spawner) or self._start
            if start is None or start.done():
                error = None if start is None or start.cancelled() else start.exception()
                if isinstance(error, web.HTTPError):
                    raise error
                return
            await asyncio.wait({start}, timeout=POLL_SECONDS)

    def _in_our_words(self, error: Exception, spawner: Spawner) -> Exception:
        """The same refusal, in our words where it is that of a limit of JupyterHub's, with its status and headers.

        Where JupyterHub says "Unhandled error starting server", the words are those of what was raised.
        """
        start = last_start(spawner)
        if start is not None and start.done() and not start.cancelled() and ending_of(error) is None:
            unhandled = ending_of(start.exception())
            if unhandled is not None:
                return start_error(unhandled, HTTPStatus.INTERNAL_SERVER_ERROR, contact=contact_of(spawner))
        if not isinstance(error, web.HTTPError) or error.status_code != HTTPStatus.TOO_MANY_REQUESTS:
            return error
        seconds = retry_after(error)
        if seconds is not None:
            fault, text = "throttled", words.MANY_STARTS.format(time=duration(seconds))
        elif 0 < self.active_server_limit <= self.users.count_active_users()["active"]:
            fault, text = "too_many_users", words.MANY_SERVERS
        else:  # a hook's
            return error
        refusal = start_error(Ending(start_failed(fault), quoted=Words(text)), error.status_code)
        vars(refusal)["headers"] = vars(error).get("headers")
        return refusal

    def render_template(self, name: str, sync: bool = False, **namespace: Any) -> Any:
        """JupyterHub's, with what our ``spawn.html`` shows above the form."""
        if name == "spawn.html":
            server_name = self._name_shown(namespace.get("for_user"))
            profiles = with_profiles(namespace["spawner"])
            namespace["rescue"] = profiles and profiles.rescue(ending_of(self.form_request.refusal))
            namespace.update(form_request=self.form_request, server_name=server_name, url=self._own_address())
        return super().render_template(name, sync=sync, **namespace)

    def _name_shown(self, user: Any) -> str:
        """The server's display name; empty for the default server."""
        name: str = self.path_args[1] if len(self.path_args) > 1 and self.path_args[1] else ""
        return display_name(user.spawners[name]) if name and user is not None and name in user.spawners else name

    def _own_address(self) -> str:
        """The address to which the form is sent: this page without a link's choice, which is in the form by now."""
        parameters = [(name, value) for name in SPAWN_PAGE_PARAMETERS for value in self.get_query_arguments(name)]
        return str(url_concat(self.request.path, [*parameters, ("_xsrf", self.xsrf_token.decode("ascii"))]))


async def _asks_for_it(spawner: Any, wanted: FilledIn) -> bool:
    """Whether a link asks for the very choice with which a server was started."""
    profiles = with_profiles(spawner)
    if profiles is None:
        return server_of(spawner).profile == wanted.profile
    await profiles.refresh_profiles()
    try:
        requests = [
            profiles.resolve(choice) for choice in ({"profile": wanted.profile, **wanted.values}, spawner.user_options)
        ]
    except (RequestError, ConfigError):  # the home page says why it cannot be used
        return False
    return replace(requests[0], options={}) == replace(requests[1], options={})


def _is_submitted(user: Any, server_name: str) -> bool:
    spawner = user.spawners.get(server_name)
    return spawner is not None and has_job(spawner)


def _linked(query: Mapping[str, list[str]]) -> dict[str, list[str]]:
    prefixed = {name.removeprefix("opt-"): values for name, values in query.items() if name.startswith("opt-")}
    return prefixed or {name: values for name, values in query.items() if name not in (*OF_THE_HUB, "_xsrf")}


def _texts(values: Sequence[bytes]) -> list[str]:
    return [value.decode("utf8", "replace") for value in values]


def _raw(fields: Mapping[str, Sequence[str]]) -> dict[str, list[bytes]]:
    """In tornado's format, as valid UTF-8: JupyterHub responds to anything else with 500."""
    return {name: [value.encode() for value in values] for name, values in fields.items()}
