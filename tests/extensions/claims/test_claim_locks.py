"""Claims of GPUs: real locks, real processes that race, real users who get in each other's way."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pwd
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from jupyterhub_gpuspawner.extensions.claims.node.claim import Claim, ClaimError, claim, job_mount

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

pytestmark = pytest.mark.usefixtures("own_descriptors")
ROOT = Path(__file__).parents[3]
GPUS = {n: f"g1-GPU-{n}" for n in range(8)}
CLAIM = """
import json, os, sys
from jupyterhub_gpuspawner.extensions.claims.node.claim import claim
folder, count, turn = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
os.umask(0o077)
print(flush=True)
sys.stdin.buffer.raw.read(1)
got = claim(folder, {n: f"g1-GPU-{n}" for n in range(8)}, lambda free: free[:count], turn=turn)
print(json.dumps([got.gpus, got.problems]), flush=True)
os.execvp("cat", ["cat"])
"""


class Claimer:
    """A process that claims when it is told to, becomes ``cat``, and lives until it is ended."""

    def __init__(self, folder: Path, count: int = 1, user: str | None = None, turn: float = 60) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", CLAIM, str(folder), str(count), str(turn)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            user=user,
            group=None if user is None else pwd.getpwnam(user).pw_gid,
            extra_groups=None if user is None else [],
        )

    def ready(self) -> None:
        assert self._out.readline() == b"\n"

    def go(self) -> None:
        self._in.write(b"x")
        self._in.flush()

    def answer(self) -> Any:
        """The GPUs, and what went wrong."""
        return json.loads(self._out.readline())

    def gpus(self) -> list[int]:
        gpus, problems = self.answer()
        assert problems == []
        return gpus  # type: ignore[no-any-return]

    def end(self) -> None:
        with suppress(BrokenPipeError):
            self._in.close()
        self.process.wait(10)
        self._out.close()

    @property
    def _in(self) -> Any:
        return self.process.stdin

    @property
    def _out(self) -> Any:
        return self.process.stdout


@pytest.fixture
def folder(public_folder: Path) -> Iterator[Path]:
    """Where every user of this host may claim, as in /var/tmp."""
    path = public_folder / f"claims-{time.monotonic_ns()}"
    path.mkdir()
    path.chmod(0o1777)
    yield path
    for file in path.iterdir():
        file.rmdir() if file.is_dir() and not file.is_symlink() else file.unlink()
    path.rmdir()


@pytest.fixture
def crowd() -> Iterator[ExitStack]:
    """Claimers that are ended with the test."""
    with ExitStack() as stack:
        yield stack


def claimers(
    stack: ExitStack, folder: Path, users: Sequence[str | None], count: int = 1, turn: float = 60
) -> list[Claimer]:
    """Processes that all claim at the same moment."""
    racers = []
    for user in users:
        racers.append(Claimer(folder, count, user, turn))
        stack.callback(racers[-1].end)
    for racer in racers:
        racer.ready()
    for racer in racers:
        racer.go()
    return racers


def first(count: int = 1) -> Any:
    return lambda free: free[:count]


@pytest.mark.parametrize(
    "attempt", [1, pytest.param(2, marks=pytest.mark.nightly), pytest.param(3, marks=pytest.mark.nightly)]
)
def test_forty_processes_race_for_eight_gpus(folder: Path, crowd: ExitStack, attempt: int) -> None:
    """Each GPU goes to exactly one of them, over exec; what ends gives its GPU back, and only that."""
    racers = claimers(crowd, folder, [None] * 40)
    won = {racer: racer.gpus() for racer in racers}
    winners = [racer for racer in racers if won[racer]]
    assert sorted(gpu for gpus in won.values() for gpu in gpus) == list(range(8))
    assert claim(str(folder), GPUS, first()) == Claim((), tuple(range(8)))

    for racer in winners[:3]:
        racer.process.kill()
        racer.process.wait(10)
    free = tuple(sorted(won[racer][0] for racer in winners[:3]))
    assert claim(str(folder), GPUS, first(8)).gpus == free


def test_no_gpu_goes_to_two_where_nobody_waits_for_their_turn(folder: Path, crowd: ExitStack) -> None:
    """The locks alone ensure that each GPU has at most one owner, not the order in which servers choose."""
    won = [racer.answer()[0] for racer in claimers(crowd, folder, [None] * 24, turn=0)]
    claimed = [gpu for gpus in won for gpu in gpus]
    assert sorted(claimed) == sorted(set(claimed))
    assert claimed


def test_several_gpus_go_together(folder: Path, crowd: ExitStack) -> None:
    """Twelve processes that want three GPUs each: no GPU is given twice, and none is left."""
    won = [racer.gpus() for racer in claimers(crowd, folder, [None] * 12, count=3)]
    assert sorted(gpu for gpus in won for gpu in gpus) == list(range(8))
    assert sorted(map(len, won))[-3:] == [2, 3, 3]


@pytest.mark.users
def test_users_race(folder: Path, crowd: ExitStack, two_users: tuple[str, str]) -> None:
    """Users have files of their own, which nobody else can remove; no GPU goes to two of them."""
    racers = claimers(crowd, folder, [*two_users, None] * 8)
    won = [racer.gpus() for racer in racers]
    assert sorted(gpu for gpus in won for gpu in gpus) == list(range(8))
    ada, bob = two_users
    for name in [path.name for path in folder.iterdir() if path.owner() == ada and "turn" not in path.name]:
        done = subprocess.run(["rm", "-f", str(folder / name)], user=bob, capture_output=True, check=False)
        assert (done.returncode, (folder / name).exists()) == (1, True)
    assert claim(str(folder), GPUS, first()) == Claim((), tuple(range(8)))


@pytest.mark.users
@pytest.mark.parametrize("kind", ["file", "locked file", "folder", "pipe", "link"])
def test_names_taken_by_another_user_cost_no_gpu(
    folder: Path, crowd: ExitStack, two_users: tuple[str, str], kind: str
) -> None:
    """What has our uid in its name belongs to whom it belongs; our claims are seen by all, and used again by us."""
    ada, bob = two_users
    uid, mallory = pwd.getpwnam(ada).pw_uid, pwd.getpwnam(bob).pw_uid
    for gpu in GPUS.values():
        squatted = folder / f"gpuspawner-claim.{gpu}.{uid}"
        if kind == "folder":
            squatted.mkdir()
        elif kind == "pipe":
            os.mkfifo(squatted)
        elif kind == "link":
            squatted.symlink_to("nowhere")
        else:
            squatted.touch()
        os.chown(squatted, mallory, -1, follow_symlinks=False)
        if kind == "locked file":
            fcntl.flock(crowd.enter_context(squatted.open("w")), fcntl.LOCK_EX)
    for _ in range(2):
        [one] = claimers(crowd, folder, [ada], count=5)
        assert one.gpus() == [0, 1, 2, 3, 4]
        [two] = claimers(crowd, folder, [ada], count=5)
        assert two.gpus() == [5, 6, 7]
        assert claim(str(folder), GPUS, first(8)) == Claim((), tuple(range(8)))
        one.end()
        two.end()
    assert len([path for path in folder.iterdir() if not path.is_symlink() and path.owner() == ada]) == 8 + 1 * (
        (folder / "gpuspawner-claim.turn").owner() == ada
    )


@pytest.mark.users
def test_a_claim_is_seen_by_other_users(folder: Path, crowd: ExitStack, two_users: tuple[str, str]) -> None:
    """One user's claim holds against the other and against root, until it ends."""
    ada, bob = two_users
    [one] = claimers(crowd, folder, [ada], count=5)
    assert one.gpus() == [0, 1, 2, 3, 4]
    [two] = claimers(crowd, folder, [bob], count=5)
    assert two.gpus() == [5, 6, 7]
    one.end()
    assert claim(str(folder), GPUS, first(8)).gpus == (0, 1, 2, 3, 4)


@pytest.mark.users
def test_files_that_nobody_else_may_read_claim_nothing_by_themselves(
    folder: Path, crowd: ExitStack, two_users: tuple[str, str]
) -> None:
    """Unreadable files in a neighbour's name take no GPU from others; a claim holds, whatever its file's mode."""
    ada, bob = two_users
    uid = pwd.getpwnam(bob).pw_uid
    [claimer] = claimers(crowd, folder, [bob], count=2)
    assert claimer.gpus() == [0, 1]
    for gpu in GPUS.values():
        file = folder / f"gpuspawner-claim.{gpu}.{uid}"
        file.touch()
        os.chown(file, uid, -1)
        file.chmod(0)

    [other] = claimers(crowd, folder, [ada], count=8)

    assert other.gpus() == [2, 3, 4, 5, 6, 7]


def test_a_symbolic_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    """A symbolic link in place of our lock file is not followed: its target is neither created nor changed."""
    target = tmp_path / "precious"
    (folder / f"gpuspawner-claim.g1-GPU-0.{os.geteuid()}").symlink_to(target)
    assert claim(str(folder), GPUS, first()) == Claim((0,))
    assert not target.exists()


def test_a_folder_in_which_no_file_can_be_made_costs_the_gpus(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is named, with the system's word for it."""
    opened = os.open

    def refuse(path: str, flags: int, *mode: int, **where: Any) -> int:
        if flags & os.O_CREAT and "g1-GPU-0" in path:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, flags, *mode, **where)

    monkeypatch.setattr(os, "open", refuse)

    got = claim(str(folder), GPUS, first())

    assert (got.gpus, got.problems) == ((1,), ("The lock of g1-GPU-0 cannot be used: No space left on device.",))


def test_what_is_no_claim_is_passed_over(folder: Path) -> None:
    """A pipe, a folder, a dangling link and a file of the wrong owner beside the own file do not count, nor hang."""
    os.mkfifo(folder / "gpuspawner-claim.g1-GPU-0.1")
    (folder / "gpuspawner-claim.g1-GPU-0.2").symlink_to("nowhere")
    with (folder / "gpuspawner-claim.g1-GPU-0.3").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert claim(str(folder), GPUS, first()) == Claim((0,))


def test_a_file_that_was_replaced_is_not_held(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock on a file that was removed meanwhile does not count: the GPU goes to the owner of the new file."""
    own = folder / f"gpuspawner-claim.g1-GPU-0.{os.geteuid()}"
    flock = fcntl.flock

    def replacing(descriptor: int, operation: int) -> None:
        flock(descriptor, operation)
        if own.exists() and os.fstat(descriptor).st_ino == own.stat().st_ino:
            own.rename(folder / "old")
            own.touch()

    monkeypatch.setattr(fcntl, "flock", replacing)
    assert claim(str(folder), {0: GPUS[0]}, first()) == Claim((), (0,))


def test_a_gpu_and_its_parts_exclude_each_other(folder: Path) -> None:
    """MIG devices are claimed one by one; the whole GPU can be claimed only if none of them is."""
    whole, parts = {0: "g1-0000:07:00.0"}, {n: f"g1-0000:07:00.0+MIG-{n}" for n in range(2)}
    assert claim(str(folder), parts, first()) == Claim((0,))
    assert claim(str(folder), whole, first()) == Claim((), (0,))
    assert claim(str(folder), parts, first(2)) == Claim((1,), (0,))
    assert claim(str(folder), {0: "g1-0000:08:00.0"}, first()) == Claim((0,))
    assert claim(str(folder), {0: "g1-0000:08:00.0+MIG-9"}, first()) == Claim((), (0,))


def test_who_waits_too_long_for_the_turn_chooses_all_the_same(folder: Path) -> None:
    """A server that never ends its turn delays the others by a limited time."""
    with (folder / "gpuspawner-claim.turn").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        got = claim(str(folder), GPUS, first(), turn=0.1)
    assert got == Claim((0,), (), ("Other servers took more than 0.1 s to choose GPUs; this one did not wait.",))


def test_the_choice_is_asked_again_where_another_was_faster(folder: Path) -> None:
    """A GPU lost between choice and lock is not offered again, and the other GPUs of that choice are released."""
    offered: list[tuple[int, ...]] = []

    def choose(free: Sequence[int]) -> Sequence[int]:
        offered.append(tuple(free))
        if len(offered) == 1:
            claim(str(folder), GPUS, lambda _: (1,), turn=0)
        return free[:2]

    got = claim(str(folder), GPUS, choose)
    assert (got, offered) == (Claim((0, 2), (1,)), [tuple(range(8)), (0, 2, 3, 4, 5, 6, 7)])


@pytest.mark.parametrize("mode", [0o777, 0o770])
def test_an_unsafe_folder_is_refused(folder: Path, mode: int) -> None:
    """If others can remove files, locks protect nothing."""
    folder.chmod(mode)
    with pytest.raises(ClaimError, match="lets others remove claims; it must have mode 1777"):
        claim(str(folder), GPUS, first())


ROOT_MOUNT = "45 44 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
MOUNTS = {
    "no mount": ("", ""),
    "a file system of its own": ("68 45 254:1 / /var/tmp rw,relatime - xfs /dev/vdb rw\n", ""),
    "the same folder for all jobs": ("68 45 254:0 /scratch/tmp /var/tmp rw,relatime - ext4 /dev/vda rw\n", ""),
    "a job_container/tmpfs, as Slurm 22.05 mounts it": (
        "68 45 254:0 /srv/private/g1/71/.71 /var/tmp rw,relatime - ext4 /dev/vda rw\n",
        "/srv/private/g1/71/.71",
    ),
    "a SPANK plugin": (
        "68 45 254:1 / /var rw - xfs /dev/vdb rw\n69 68 254:0 /scratch/slurm.71.0/var_tmp /var/tmp rw - ext4 x rw\n",
        "/scratch/slurm.71.0/var_tmp",
    ),
    "another number": ("68 45 254:0 /scratch/710/tmp /var/tmp rw,relatime - ext4 /dev/vda rw\n", ""),
    "another folder": ("68 45 254:0 /srv/private/g1/71/.71 /tmp rw,relatime - ext4 /dev/vda rw\n", ""),
}


@pytest.mark.parametrize(("lines", "source"), MOUNTS.values(), ids=MOUNTS.keys())
def test_a_folder_that_is_mounted_for_one_job_is_recognised(lines: str, source: str) -> None:
    """In it, no job sees the claims of another."""
    assert job_mount("/var/tmp", ROOT_MOUNT + lines, "71") == source


def test_a_link_to_a_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    """Whoever made the link could lead it elsewhere."""
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(ClaimError, match=f"the claims folder {tmp_path}/link: Not a directory"):
        claim(f"{tmp_path}/link", GPUS, first())


@pytest.mark.users
def test_a_folder_of_another_user_is_refused(folder: Path, two_users: tuple[str, str]) -> None:
    """The folder's owner could remove every claim in it."""
    uid = pwd.getpwnam(two_users[0]).pw_uid
    os.chown(folder, uid, -1)
    with pytest.raises(ClaimError, match=f"belongs to uid {uid}, who could remove claims; root must own it"):
        claim(str(folder), GPUS, first())
    os.chown(folder, 0, -1)
