"""A profile folder that others write to: a file can break only itself, and errors do not reveal its content."""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jupyterhub_gpuspawner.errors import RequestError
from jupyterhub_gpuspawner.hub.choose.offer import profile_statuses
from jupyterhub_gpuspawner.profiles.document import read_document
from jupyterhub_gpuspawner.profiles.files import EVERYTHING, FILES_LIMIT, ProfileFolder
from jupyterhub_gpuspawner.profiles.profile import Profile
from jupyterhub_gpuspawner.profiles.resolve import resolve
from tests.standins.hostile_profiles import ENTRIES, HARMLESS, SECRET, SECRETS, TEXTS, whole_profiles

NOW = datetime(2026, 5, 4, 12, tzinfo=timezone.utc)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with one good profile in it."""
    path = tmp_path / "profiles"
    path.mkdir()
    (path / "own.yaml").write_text("display_name: Good\n")
    return path


def offered(folder: ProfileFolder) -> tuple[tuple[Profile, ...], list[str]]:
    """The profiles that are offered, and the faults."""
    content = folder.read()
    return content.profiles, [str(error) for error in content.errors]


def slugs_and_faults(folder: ProfileFolder) -> tuple[list[str], list[str]]:
    """The slugs that are offered, and the faults."""
    profiles, faults = offered(folder)
    return [profile.slug for profile in profiles], faults


def wait_for_a_later_ctime(path: Path) -> None:
    """The kernel's file times advance in steps of a few milliseconds, in which many files can be made."""
    probe = path.with_name(".probe")
    probe.touch()
    while probe.stat().st_ctime_ns <= path.stat().st_ctime_ns:
        probe.touch()
    probe.unlink()


@pytest.mark.parametrize("content", TEXTS.values(), ids=TEXTS.keys())
def test_what_cannot_be_understood_is_one_files_fault(folder: Path, content: str | bytes) -> None:
    """One short sentence names the file; the other profiles are offered."""
    (folder / "odd.yaml").write_bytes(content if isinstance(content, bytes) else content.encode())
    slugs, faults = slugs_and_faults(ProfileFolder(folder, EVERYTHING))

    assert slugs == ["good"]
    assert [fault.split(":")[0] for fault in faults] == ["odd.yaml"]
    assert len(faults[0]) < 400


@pytest.mark.parametrize("make", ENTRIES.values(), ids=ENTRIES.keys())
def test_what_is_no_regular_file_is_not_read(folder: Path, tmp_path: Path, make: object) -> None:
    """It is reported, whatever its name, and never followed or waited for."""
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    assert callable(make)
    make(folder / "odd.yaml", secret)
    slugs, faults = slugs_and_faults(ProfileFolder(folder, EVERYTHING))

    assert slugs == ["good"]
    assert len(faults) == 1
    assert faults[0].isprintable()
    assert SECRET not in faults[0]


@pytest.mark.parametrize("content", SECRETS.values(), ids=SECRETS.keys())
def test_no_fault_quotes_what_a_file_holds(folder: Path, content: str) -> None:
    """A secret in a file, by mistake or on purpose, appears in no message."""
    (folder / "odd.yaml").write_text(content)
    slugs, faults = slugs_and_faults(ProfileFolder(folder, EVERYTHING))

    assert slugs == ["good"]
    assert len(faults) == 1
    assert SECRET not in faults[0]


@pytest.mark.parametrize("fields", HARMLESS.values(), ids=HARMLESS.keys())
def test_what_looks_odd_and_is_right_is_offered_and_starts(folder: Path, fields: str) -> None:
    """The last representable day means no end, in every time zone."""
    (folder / "odd.yaml").write_text(f"display_name: Odd\n{fields}\n")
    profiles = ProfileFolder(folder, EVERYTHING)

    assert slugs_and_faults(profiles) == (["odd", "good"], [])
    for hours in (-12, 0, 14):
        now = NOW.astimezone(timezone(timedelta(hours=hours)))
        statuses = profile_statuses(profiles.read().profiles, username="ada", groups=(), now=now)
        assert [status.refusal for status in statuses] == [None, None]
        resolve(profiles.read().profiles, {"profile": "odd"}, username="ada", groups=(), server_name="", now=now)


def test_a_users_text_is_matched_at_once_whatever_the_expression(folder: Path) -> None:
    """Python's own engine would take a minute for thirty characters, and far longer for these."""
    (folder / "odd.yaml").write_text(f"display_name: Odd\n{HARMLESS['an expression that goes back']}\n")
    profiles = ProfileFolder(folder).read().profiles

    with pytest.raises(RequestError, match="is not allowed"):
        resolve(
            profiles,
            {"profile": "odd", "a": "a" * 254 + "!"},
            username="ada",
            groups=(),
            server_name="",
            now=NOW,
        )


def test_a_file_with_a_fault_goes_on_with_its_last_good_version_whatever_it_becomes(folder: Path) -> None:
    """A link, a pipe, and no file at all."""
    path = folder / "own.yaml"
    profiles = ProfileFolder(folder)
    scans = [slugs_and_faults(profiles)]
    path.unlink()
    path.symlink_to("/etc/shadow")
    scans.append(slugs_and_faults(profiles))
    path.unlink()
    os.mkfifo(path)
    scans.append(slugs_and_faults(profiles))
    path.unlink()
    scans.append(slugs_and_faults(profiles))

    link = "own.yaml: the file is a symbolic link, which is not followed: use a copy of the file"
    pipe = "own.yaml: the file is a named pipe, not a file"
    assert scans == [(["good"], []), (["good"], [link]), (["good"], [pipe]), ([], [])]


def test_the_folder_itself_may_be_a_link_that_changes(tmp_path: Path) -> None:
    """Like ``..data`` of a ConfigMap: the files are regular and are replaced all at once."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.yaml").write_text(f"display_name: {name}\n")
    link = tmp_path / "..data"
    link.symlink_to("one")
    folder = ProfileFolder(link)
    before = slugs_and_faults(folder)
    (tmp_path / "new").symlink_to("two")
    (tmp_path / "new").replace(link)

    assert (before, slugs_and_faults(folder)) == ((["one"], []), (["two"], []))


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to become another user")
def test_a_file_repaired_by_chmod_is_read(folder: Path) -> None:
    """Its content and modification time are unchanged."""
    folder.parent.chmod(0o755)
    for parent in folder.parents:
        if parent.stat().st_uid == 0 and str(parent).startswith("/tmp/pytest"):
            parent.chmod(0o755)
    path = folder / "own.yaml"
    path.chmod(0)
    profiles = ProfileFolder(folder)
    os.seteuid(65534)
    try:
        before = slugs_and_faults(profiles)
        rescan = slugs_and_faults(profiles)
        os.seteuid(0)
        path.chmod(0o644)
        os.seteuid(65534)
        after = slugs_and_faults(profiles)
    finally:
        os.seteuid(0)

    fault = "own.yaml: the file cannot be read: Permission denied"
    assert (before, rescan, after) == (([], [fault]), ([], [fault]), (["good"], []))


def test_a_hundred_thousand_entries_take_no_profile_away(folder: Path) -> None:
    """Known files stay at every scan, and one sentence reports the rest."""
    profiles = ProfileFolder(folder)
    before = slugs_and_faults(profiles)
    wait_for_a_later_ctime(folder / "own.yaml")
    for number in range(100_000):
        os.close(os.open(folder / f"aaa{number}.yaml", os.O_CREAT | os.O_WRONLY))
    after, faults = slugs_and_faults(profiles)
    at_first, _ = slugs_and_faults(ProfileFolder(folder))

    assert (before, after, at_first) == ((["good"], []), ["good"], ["good"])
    assert profiles.read().crowded
    assert len(faults) <= FILES_LIMIT + 1
    assert faults[0] == (
        f"{folder}: the folder contains more than 200 profile files, or 200000 files of any kind; the newest ones are "
        "ignored"
    )


def test_many_files_together_are_bounded_too(folder: Path) -> None:
    """Each is valid by itself; those that would make every form slow are ignored and reported."""
    profiles = ProfileFolder(folder)
    profiles.read()
    for number in range(4):
        text = "".join(f"- display_name: P{number}x{n}\n" for n in range(200))
        (folder / f"a{number}.yaml").write_text(text)
    slugs, faults = slugs_and_faults(profiles)

    assert len(slugs) == 1 + 2 * 200
    assert "good" in slugs
    assert len(faults) == 2


def test_a_file_that_changes_while_it_is_read_is_never_read_in_part(folder: Path) -> None:
    """Each scan returns one complete version."""
    path = folder / "own.yaml"
    versions = [f"display_name: {letter}\n# {letter * 200_000}\n" for letter in "AB"]
    path.write_text(versions[0])
    profiles = ProfileFolder(folder)
    slugs = {tuple(slugs_and_faults(profiles)[0])}
    ended = threading.Event()

    def write() -> None:
        while not ended.is_set():
            for text in versions:
                path.write_text(text)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(200):
            slugs.add(tuple(slugs_and_faults(profiles)[0]))
    finally:
        ended.set()
        writer.join()

    assert slugs <= {("a",), ("b",)}
    path.write_text(versions[1])
    assert slugs_and_faults(profiles) == (["b"], [])


class Surprise(Exception):
    """An unforeseen error."""


@pytest.mark.parametrize("error", [RecursionError, MemoryError, OverflowError, UnicodeError, Surprise])
def test_an_unforeseen_error_is_one_files_fault(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[Exception]
) -> None:
    """The message has the error's type, not its text."""
    (folder / "odd.yaml").write_text("display_name: Odd\n")

    def failing(text: str, name: str) -> object:
        if "Odd" in text:
            raise error(SECRET)
        return read_document(text, name)

    monkeypatch.setattr("jupyterhub_gpuspawner.profiles.files.read_document", failing)

    assert slugs_and_faults(ProfileFolder(folder)) == (
        ["good"],
        [f"odd.yaml: the file cannot be understood ({error.__name__})"],
    )


def test_a_slug_belongs_to_the_file_that_had_it_first(folder: Path) -> None:
    """Neither an earlier name nor time stamps take a slug away; removing a file frees it."""
    profiles = ProfileFolder(folder)
    profiles.read()
    squatter = folder / "aaa.yaml"
    squatter.write_text("display_name: Good\ndescription: mine\n")
    os.utime(squatter, (0, 0))

    def descriptions() -> list[str]:
        return [profile.description for profile in profiles.read().profiles]

    fault = "aaa.yaml: 'good' is already a slug in own.yaml; this profile is ignored"
    assert (descriptions(), [str(error) for error in profiles.read().errors]) == ([""], [fault])
    (folder / "own.yaml").write_text("display_name: Good\ndescription: changed later\n")
    assert descriptions() == ["changed later"]
    (folder / "own.yaml").write_text("display_name: [\n")
    assert descriptions() == ["changed later"]
    # the other has no good version
    assert [profile.description for profile in ProfileFolder(folder).read().profiles] == ["mine"]
    (folder / "own.yaml").unlink()
    assert descriptions() == ["mine"]


def test_of_files_that_were_there_at_the_first_look_the_older_one_has_the_slug(folder: Path) -> None:
    """A restarted hub offers the same profiles, whatever the files are called."""
    squatter = folder / "aaa.yaml"
    squatter.write_text("display_name: Good\ndescription: mine\n")
    os.utime(squatter, (0, 0))
    while squatter.stat().st_ctime_ns == (folder / "own.yaml").stat().st_ctime_ns:
        squatter.chmod(0o600)

    assert [profile.description for profile in ProfileFolder(folder).read().profiles] == [""]


# --- any text at all --------------------------------------------------------------------------------

PIECES = [
    *("display_name: P\n", "slug: p\n", "slurm: ", "{", "}", "[", "]", ": ", ", ", "\n", "\n  ", "\n- ", "- ", "? "),
    *("&a ", "*a", "!!int ", "!!x ", "'", '"', "|\n", ">\n", "#", "%TAG ! x\n", "---\n", "...\n", "<<: ", "~", "\t"),
    *("gpus", "memory", "time", "reservation", "allow: ", "until: ", "9999-12-31", "0001-01-01", "%u", "1e30", ".nan"),
    *(
        "profile_options: ",
        "o: ",
        "range: ",
        "min: 1",
        "max: 4",
        "step: 1e-9",
        "sets: slurm.cpus",
        "choices: ",
        "9" * 30,
    ),
    *("unlisted_choice: ", "validation_regex: ", "(a+)+", "(?=x)", "environment: ", "variables: ", "x", "é", "\ufeff"),
]
yamls = st.lists(st.sampled_from(PIECES), max_size=25).map("".join) | st.text(max_size=60)


@pytest.mark.parametrize("wanted", [150, pytest.param(1500, marks=pytest.mark.nightly)])
def test_any_text_is_refused_in_a_sentence_or_can_be_offered_and_started(tmp_path: Path, wanted: int) -> None:
    """No accepted file makes a form or a start fail."""

    @settings(max_examples=wanted, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(yamls | whole_profiles, st.datetimes(timezones=st.timezones()))
    def refused_or_offered(text: str, now: datetime) -> None:
        (tmp_path / "p.yaml").write_bytes(text.encode(errors="surrogatepass"))
        profiles, faults = offered(ProfileFolder(tmp_path, EVERYTHING))
        assert all(fault.startswith("p.yaml") and fault.isprintable() for fault in faults)
        assert len(faults) == (0 if profiles else 1) or read_document(text).value in ([], {"profiles": []})
        profile_statuses(profiles, username="ada", groups=(), now=now)
        for profile in profiles:
            with suppress(RequestError):  # it is not for today
                resolve(profiles, {"profile": profile.slug}, username="ada", groups=(), server_name="", now=now)

    refused_or_offered()
