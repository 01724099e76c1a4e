"""What handlers share: limits, and the server whose token a request has."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from jupyterhub_gpuspawner.hub.site.state import HubState
from jupyterhub_gpuspawner.hub.web.handlers import OpenStreams, RateLimit, reporting_server


def rate(at_once: int, each_minute: int) -> type[RateLimit]:
    """Requests of one kind."""

    class Rate(RateLimit):
        burst, per_minute = at_once, each_minute

    return Rate


class Two(OpenStreams):
    """Streams of which each reader has two."""

    limit = 2


def test_some_at_once_and_then_so_many_a_minute() -> None:
    """A refusal says when to try again, is not counted, and concerns that caller only."""
    now = [100.0]
    limit = rate(2, 6)(lambda: now[0])

    assert [limit.wait("ann") for _ in range(4)] == [0.0, 0.0, 10.0, 10.0]
    assert limit.wait("ben") == 0.0

    now[0] += 10.0

    assert [limit.wait("ann"), limit.wait("ann")] == [0.0, 10.0]

    now[0] += 3600.0

    assert [limit.wait("ann") for _ in range(3)] == [0.0, 0.0, 10.0]


def test_each_hub_counts_for_itself() -> None:
    """Users of two hubs may have one name."""
    one, other, a_minute = HubState(), HubState(), rate(1, 1)

    assert [hub.of(a_minute).wait("ann") > 0 for hub in (one, other, one)] == [False, False, True]


def test_a_caller_with_a_larger_burst_is_not_forgotten_before_it_is_back() -> None:
    """A server on many nodes may send many reports at once, and then no more than any other."""
    limit = rate(1, 60)(lambda: 0.0)
    allowed = [limit.wait("sixteen nodes", more=20) for _ in range(11)]
    for caller in range(1000):
        limit.wait(caller)
    allowed += [limit.wait("sixteen nodes", more=20) for _ in range(11)]

    assert allowed == [0.0] * 21 + [1.0]


def test_callers_who_have_all_of_it_back_are_forgotten() -> None:
    """Memory does not grow with the number of callers."""
    now = [0.0]
    limit = rate(1, 60)(lambda: now[0])
    for caller in range(5000):
        now[0] += 0.01
        limit.wait(caller)

    assert len(limit._left) <= 1000
    assert limit.wait(4999) > 0.0


async def test_beyond_the_cap_the_oldest_ends_and_only_the_readers_own() -> None:
    """A stream that has ended no longer counts."""
    streams = Two()
    with ExitStack() as stack:
        others = stack.enter_context(streams.one("ben"))
        first, second = stack.enter_context(streams.one("ann")), stack.enter_context(streams.one("ann"))
        with streams.one("ann"):
            ended = [future.done() for future in (first, second)]
        third = stack.enter_context(streams.one("ann"))

        assert ended == [True, False]
        assert [future.done() for future in (others, first, second, third)] == [False, True, False, False]


SCOPES = {
    "alice's default server": (["access:servers!server=alice/", "users:activity!user=alice"], "alice", ""),
    "alice's named server": (["access:servers!server=alice/gpu-2"], "alice", "gpu-2"),
    "alice's own token": (["self", "access:servers!user=alice", "read:users!user=alice"], "alice", None),
    "a service": (["access:servers", "admin:users"], "alice", None),
    "bob's server": (["access:servers!server=bob/"], "alice", None),
    "a token for two servers": (["access:servers!server=alice/", "access:servers!server=alice/x"], "alice", None),
}


@pytest.mark.parametrize(("scopes", "user", "server"), SCOPES.values(), ids=SCOPES.keys())
def test_a_report_is_for_the_one_server_whose_token_it_comes_with(
    scopes: list[str], user: str, server: str | None
) -> None:
    """Only a token with the access scope for exactly one server of its own user is accepted."""
    assert reporting_server(scopes, user) == server
