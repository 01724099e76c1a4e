"""The server that a report belongs to, read from the token's scopes."""

from __future__ import annotations

import pytest

from jupyterhub_gpuspawner.hub.web.handlers import reporting_server

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
