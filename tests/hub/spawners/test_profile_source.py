"""How a hub reads its folder of profiles: never in its event loop, and never for long."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from jupyterhub_gpuspawner.hub.spawners import shared_folder
from jupyterhub_gpuspawner.hub.spawners.offers import ProfileSource
from jupyterhub_gpuspawner.hub.spawners.shared_folder import SharedFolder
from tests.fixtures.hung import hung

GOING_ON = "the profiles last read from it are offered"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a folder with one profile."""
    path = tmp_path / "profiles"
    path.mkdir()
    (path / "a.yaml").write_text("display_name: A\n")
    return path


def slugs(folder: SharedFolder) -> list[str]:
    """Return the slugs of the offered profiles."""
    return [profile.slug for profile in folder.besides(())]


async def test_what_was_written_before_a_request_is_offered_in_its_answer(path: Path) -> None:
    """Also if other requests read the folder at the same time."""
    folder = SharedFolder(str(path))

    async def writer(number: int) -> bool:
        (path / f"n{number}.yaml").write_text(f"display_name: N{number}\n")
        await folder.refresh()
        return f"n{number}" in slugs(folder)

    assert await asyncio.gather(*map(writer, range(20))) == [True] * 20


async def test_a_folder_that_hangs_does_not_block_the_hub(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profiles last read are offered, with the fault; the folder is read again once it answers."""
    monkeypatch.setattr(shared_folder, "PATIENCE", 0.5)
    folder = SharedFolder(str(path))
    await folder.refresh()
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    ticking = asyncio.create_task(tick())
    fault = f"{path}: the folder is not responding; {GOING_ON}"
    with hung(path):
        for _ in range(3):
            await folder.refresh()
            assert (slugs(folder), [str(error) for error in folder.errors]) == (["a"], [fault])
    ticking.cancel()
    assert ticks > 5

    (path / "b.yaml").write_text("display_name: B\n")
    while slugs(folder) != ["a", "b"]:
        await folder.refresh()
        await asyncio.sleep(0.05)
    assert folder.errors == ()


def test_a_hub_starts_though_its_folder_hangs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the configured profiles, and the fault."""
    monkeypatch.setattr(shared_folder, "PATIENCE", 0.5)
    folder = SharedFolder(str(path))
    with hung(path):
        folder.first_reading()
        profiles = ProfileSource([{"display_name": "C"}], folder).profiles()
        faults = [str(error) for error in folder.errors]

    assert ([profile.slug for profile in profiles], folder.last.missing) == (["c"], False)
    assert faults == [f"{path}: the folder is not responding; {GOING_ON}"]


async def test_no_thread_can_be_started(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The profiles are still offered; the fault is reported until the next reading."""
    folder = SharedFolder(str(path))
    await folder.refresh()

    def refuse(_thread: object) -> None:
        raise RuntimeError("can't start new thread")

    fault = f"{path}: the folder cannot be read: this process has too many threads; {GOING_ON}"
    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", refuse)
        await folder.refresh()
        assert (slugs(folder), [str(error) for error in folder.errors]) == (
            ["a"],
            [fault],
        )
    await folder.refresh()
    assert (slugs(folder), folder.errors) == (["a"], ())


async def test_a_crowded_folder_is_not_looked_at_for_each_request(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading it takes processor time from the hub's loop."""
    folder = SharedFolder(str(path))
    for number in range(300):
        (path / f"n{number}.yaml").write_text(f"display_name: N{number}\n")
    await folder.refresh()
    before = slugs(folder)
    (path / "a.yaml").unlink()
    await folder.refresh()
    cached = slugs(folder)
    monkeypatch.setattr(shared_folder, "REST", 0.0)
    await folder.refresh()

    assert (len(before), cached == before, "a" in before, "a" in slugs(folder)) == (200, True, True, False)
