"""Choose GPUs from those granted, and their order; CPUs; and NUMA nodes for memory. Pure, standard library only.

Collective operations run in a ring, so a set of GPUs is as fast as the slowest link of its best ring: the Hamiltonian
cycle whose slowest link is fastest (for two GPUs, their link). Weights are integers, so sums and ties are exact.

GPUs of other models than was requested, and smaller ones such as a display adapter, are taken only where there are not
enough others. The criteria are then, in order: the slowest link of the best ring, the mean bandwidth of all pairs, the
distance from the granted CPUs, the fewest packages, the fewest NUMA nodes, the links that are left for the next job,
the lowest positions. For a single GPU the first two do not apply, so the CPUs decide. The search is deterministic, and
exact for up to eight granted GPUs.

GPUs are indices into ``topology.gpus``; NUMA nodes and CPUs are kernel numbers. CPUs are chosen near the GPUs; if a
GPU's NUMA node is not known, those that its driver reports as near are used instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from jupyterhub_gpuspawner.placement.topology import LOCAL, REMOTE, distance, gbps, gpu_name, is_rated, link_count

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from jupyterhub_gpuspawner.placement.topology import Gpu, NodeTopology

    Matrix = Sequence[Sequence[int]]


POLICIES = ("none", "best-effort", "restricted")
"""How GPUs and CPUs are chosen; the names are those of kubelet's Topology Manager."""
MEMORY_POLICIES = ("none", "preferred", "bind")
"""How memory is bound to NUMA nodes (set_mempolicy(2)), in :mod:`~jupyterhub_gpuspawner.node.placing`."""
SETS = 200
"""Up to this many sets of GPUs, all are looked at: with 8 GPUs these are at most 70, and of pairs of 20 GPUs 190."""

EXACT = 8
"""Up to this many members a ring is certain to be the best; with more it is the best that :data:`STEPS` steps find."""
STEPS = 500
"""Links that are tried for each slowest link, at most, in a ring of more members."""


def link_gbps(topology: NodeTopology, a: int, b: int) -> float:
    """Bandwidth between two GPUs in GB/s, one way."""
    return gbps(topology.link(a, b), **_generations(topology, a, b))


def _generations(topology: NodeTopology, a: int, b: int) -> dict[str, int | None]:
    """Those that two GPUs have in common."""
    pair = topology.gpus[a], topology.gpus[b]
    nvlink, pcie = ([gpu.nvlink_generation for gpu in pair], [gpu.pcie_generation for gpu in pair])
    return {
        "nvlink_generation": min(filter(None, nvlink), default=None),
        "pcie_generation": min(filter(None, pcie), default=None),
        "xgmi_gbps": pair[0].xgmi_gbps,
    }


@dataclass(frozen=True)
class Choice:
    """The GPUs of one server, in the order of ``CUDA_VISIBLE_DEVICES``, which is that of their best ring.

    Links and their bandwidths are those between whole GPUs; MIG devices have none, and a CUDA program uses one of them.
    """

    gpus: tuple[int, ...] = ()
    weakest_link: str | None = None
    """Link word of the ring's slowest link; None for fewer than two GPUs, or if it is not known."""
    ring_gbps: float | None = None
    """Bandwidth of that link in GB/s, one way; None without one, or if its generation is not known."""
    mean_gbps: float | None = None
    """Mean over all pairs; None without a ring, or if a link or its generation is not known."""
    numa_nodes: tuple[int, ...] = ()
    """NUMA nodes nearest to the GPUs, as far as known."""
    why: str = ""
    """The choice explained in one sentence."""


def choose(
    topology: NodeTopology,
    *,
    granted: Sequence[int],
    count: int,
    cpus: Iterable[int] = (),
    policy: str = "best-effort",
    gpu_type: str | None = None,
) -> Choice:
    """Choose the best ``count`` of the ``granted`` GPUs (positions); all of them if fewer are granted.

    ``cpus`` are the granted CPUs, empty if not known; ``gpu_type`` is Slurm's name of the type that was requested. The
    policy ``none`` keeps the order of ``granted``; ``restricted`` ranks few NUMA nodes, near to the CPUs, above
    bandwidth, and any other one, as of a newer hub, does not.
    """
    free = list(dict.fromkeys(granted))
    bound = frozenset(cpus)
    if not free or not count:
        return Choice(why="No GPU was requested." if not count else "No GPU was granted.")
    suitable = _suitable(topology, free, count, gpu_type or "")
    field = _Candidates(topology, sorted(suitable), bound)
    if policy == "none":
        gpus = suitable[:count]
        order = field.ring(sorted(field.positions.index(gpu) for gpu in gpus))
    else:
        order = gpus = field.best(min(count, len(suitable)), nodes_first=policy == "restricted")
    choice = field.measured(topology, gpus, order)
    among = f"{len(free)} granted" + (f", {len(suitable)} of them suitable" if len(suitable) < len(free) else "")
    if len(free) < count:
        how = f": all that were granted, of {count} requested"
    elif len(gpus) == len(free):
        how = ", as granted"
    elif policy == "none":
        how = f", the first of {among}"
    elif len(gpus) > 1:
        how = f": the best {len(gpus)} of {among}"
    elif len(set(field.far)) > 1:
        how = f": the nearest to the CPUs, of {among}"
    else:
        how = f": of {among}, it leaves the best links to other jobs"
    return replace(choice, why=_why(topology, choice, how))


def _suitable(topology: NodeTopology, free: list[int], count: int, gpu_type: str) -> list[int]:
    """The GPUs of ``free`` from which ``count`` are chosen: of the requested type, else those with most memory.

    They are of one model if there are enough of it.
    """
    kinds: dict[tuple[int, int, str], list[int]] = {}
    wanted = frozenset(_name_words(gpu_type))
    for position in free:
        gpu = topology.gpus[position]
        words = _name_words(f"{gpu.name} {gpu.mig or ''}")
        runs = {"".join(words[a:b]) for a in range(len(words)) for b in range(a, len(words) + 1)}
        kinds.setdefault((len(wanted & runs), _gib(gpu), gpu.name), []).append(position)
    ranked = sorted(kinds, reverse=True)
    alike = [kind for kind in ranked if len(kinds[kind]) >= count and kind[0] == ranked[0][0]]
    chosen: list[int] = []
    for kind in alike or ranked:
        if len(chosen) < count:
            chosen += kinds[kind]
    return [position for position in free if position in chosen]


def _name_words(name: str) -> list[str]:
    """The words in a name of a GPU or of its type: ``nvidia``, ``a100``, ``sxm4``, ``80gb``."""
    return "".join([c if c.isalnum() or c == "." else " " for c in name.lower()]).split()


def _gib(gpu: Gpu) -> int:
    return (gpu.memory_mib or 0) // 1024


class _Candidates:
    """The granted GPUs as integers: bandwidths in units of 10 MB/s, distances from the CPUs, NUMA nodes."""

    def __init__(self, topology: NodeTopology, positions: Sequence[int], cpus: frozenset[int]) -> None:
        self.positions = positions
        size = len(positions)
        self.weight = [[0] * size for _ in positions]
        self.nvlink = [[0] * size for _ in positions]
        for i, a in enumerate(positions):
            for j, b in enumerate(positions[:i]):
                weight = round(100 * link_gbps(topology, a, b))
                self.weight[i][j] = self.weight[j][i] = weight
                if link_count(topology.link(a, b)):
                    self.nvlink[i][j] = self.nvlink[j][i] = weight
        self.gib = [_gib(topology.gpus[position]) for position in positions]
        self.far = numa_costs(topology, positions, cpus)
        self.home = [home(topology, position) for position in positions]
        self.package = [_package(topology, topology.gpus[position].numa_node) for position in positions]

    def best(self, count: int, *, nodes_first: bool) -> list[int]:
        """The positions of the best ``count`` GPUs, in ring order."""
        size = len(self.positions)
        if count == size:
            return self.ring(range(size))
        if comb(size, count) <= SETS:
            return self.ring(self._best(combinations(range(size), count), nodes_first=nodes_first))
        grown = [self._grown(start, count, nodes_first=nodes_first) for start in range(size)]
        members = self._best(grown, nodes_first=nodes_first)
        while True:
            before = members
            members = self._best((before, *self._exchanged(before)), nodes_first=nodes_first)
            if members == before:
                return self.ring(members)

    def _best(self, sets: Iterable[tuple[int, ...]], *, nodes_first: bool) -> tuple[int, ...]:
        """The best one of some sets."""
        ranked = sorted([(self._bound(members, nodes_first=nodes_first), members) for members in sets], reverse=True)
        best: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
        for bound, members in ranked:
            if bound <= best[0]:
                break  # all that follow are at most as good
            best = max(best, (self._rank(bound, members, nodes_first=nodes_first), members))
        return best[1]

    def _bound(self, members: Sequence[int], *, nodes_first: bool) -> tuple[int, ...]:
        """What sets are ranked by, greater is better, with a bound in place of the slowest link of their best ring."""
        links = (slowest_at_most(self.weight, members), sum([self.weight[i][j] for i in members for j in members]))
        host = self._host(members)
        return (*host[::-1], *links, *self._tie(members)) if nodes_first else (*links, *host, *self._tie(members))

    def _rank(self, bound: tuple[int, ...], members: Sequence[int], *, nodes_first: bool) -> tuple[int, ...]:
        at = 2 if nodes_first else 0
        return (*bound[:at], best_ring(self.weight, members, members[0], any_order=True)[0], *bound[at + 1 :])

    def _grown(self, start: int, count: int, *, nodes_first: bool) -> tuple[int, ...]:
        """The GPU at ``start`` with the one that has the fastest links to those that are taken, again and again."""
        members = [start]
        for _ in range(1, count):
            homes = {self.home[j] for j in members} if nodes_first else ()
            links = {i: sum([self.weight[i][j] for j in members]) for i in range(len(self.home)) if i not in members}
            members.append(max(links, key=lambda i: (self.home[i] in homes, links[i], -self.far[i], -i)))
        return tuple(sorted(members))

    def _exchanged(self, members: Sequence[int]) -> Iterator[tuple[int, ...]]:
        """The sets with one other member."""
        for one in members:
            rest = [i for i in members if i != one]
            yield from (tuple(sorted([*rest, i])) for i in range(len(self.positions)) if i not in members)

    def ring(self, members: Sequence[int]) -> list[int]:
        """Their best ring as positions: first the GPU nearest to the CPUs, then its nearer neighbour.

        A GPU with less memory than others, perhaps for a display, is never the first, which programs use by default.
        """
        first = min(members, key=lambda i: (-self.gib[i], self.far[i], i))
        one = best_ring(self.weight, members, first)[1]
        other = (first, *one[:0:-1])
        nearest = min(one, other, key=lambda order: ([self.far[i] for i in order], order))
        return [self.positions[i] for i in nearest]

    def measured(self, topology: NodeTopology, gpus: Sequence[int], order: Sequence[int]) -> Choice:
        """Links and NUMA nodes of ``gpus``, whose best ring is ``order``."""
        nodes = {topology.gpus[gpu].numa_node for gpu in gpus}
        choice = Choice(tuple(gpus), numa_nodes=tuple(sorted([node for node in nodes if node is not None])))
        if len(gpus) < 2 or any(topology.gpus[gpu].mig for gpu in gpus):
            return choice
        inside = [self.positions.index(gpu) for gpu in order]
        slow, i, j = min([(self.weight[i][j], i, j) for i, j in zip(inside, inside[1:] + inside[:1])])
        pair = self.positions[i], self.positions[j]
        rated = {
            (a, b): is_rated(topology.link(a, b), **_generations(topology, a, b)) for a in gpus for b in gpus if a != b
        }
        sums = [self.weight[i][j] for i in inside for j in inside if i < j]
        return replace(
            choice,
            weakest_link=None if topology.link(*pair) == "?" else topology.link(*pair),
            ring_gbps=slow / 100 if rated[pair] else None,
            mean_gbps=round(sum(sums) / len(sums) / 100, 2) if all(rated.values()) else None,
        )

    def _host(self, members: Sequence[int]) -> tuple[int, int]:
        """How near the members are to the CPUs, and in how few packages, then NUMA nodes; greater is better."""
        spread = len({self.package[i] for i in members}) * len(self.home) + len({self.home[i] for i in members})
        return -sum([self.far[i] for i in members]), -spread

    def _tie(self, members: Sequence[int]) -> tuple[int, ...]:
        """A key by which sets with equal links are ranked, greater is better: what is left, low positions.

        What is left is the bandwidth between the GPUs not taken, NVLink first, so that a single GPU is not taken from a
        bridged pair if there is another.
        """
        bridged = left = 0
        for i in members:
            nvlink, weight = self.nvlink[i], self.weight[i]
            bridged += sum([nvlink[j] for j in members]) - 2 * sum(nvlink)
            left += sum([weight[j] for j in members]) - 2 * sum(weight)
        return (bridged, left, *[-i for i in members])


def _why(topology: NodeTopology, choice: Choice, how: str) -> str:
    """The choice, and ``how`` it was made, in one sentence."""
    gpus = [topology.gpus[gpu] for gpu in choice.gpus]
    names = [gpu_name(gpu.index, gpu.mig, topology.mig_device(index)) for index, gpu in zip(choice.gpus, gpus)]
    if len(names) > 1 and not any(gpu.mig for gpu in gpus):
        names = [f"GPUs {gpus[0].index}", *(str(gpu.index) for gpu in gpus[1:])]
    text = (names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}") + how
    if choice.weakest_link:
        text += f"; the slowest link of their ring is {choice.weakest_link}"
        text += f" (about {choice.ring_gbps:g} GB/s)" if choice.ring_gbps else ""
    elif len(gpus) > 1:
        is_sliced = any(gpu.mig for gpu in gpus)
        text += "; a CUDA program uses one of them" if is_sliced else "; the links between them are not known"
    return text + "."


def slowest_at_most(weight: Matrix, members: Sequence[int]) -> int:
    """A bound for the slowest link of each ring through ``members``: each needs two links, of a pair one."""
    needed = min(2, len(members) - 1)
    return min([sorted([weight[a][b] for b in members if b != a])[-needed] for a in members]) if needed else 0


def best_ring(
    weight: Matrix, members: Sequence[int], first: int, *, any_order: bool = False
) -> tuple[int, tuple[int, ...]]:
    """The ring through ``members``, from ``first``, with the best slowest link and, of those, the greatest sum.

    Returns the weight of that link, 0 for a single member, and the ring. ``any_order``: the sum does not matter, so
    that a ring is found sooner.
    """
    if len(members) < 3:
        return weight[members[0]][members[-1]], (first, *[a for a in members if a != first])
    bound = slowest_at_most(weight, members)
    for level in sorted({weight[a][b] for a in members for b in members if a < b}, reverse=True):
        order = level <= bound and _ring_without_slower(weight, members, first, level, any_order=any_order)
        if order:
            return level, order
    return 0, tuple(members)  # not reached: on the lowest level any order is a ring


def _ring_without_slower(
    weight: Matrix, members: Sequence[int], first: int, level: int, *, any_order: bool
) -> tuple[int, ...]:
    """The ring without a link slower than ``level`` whose sum of links is greatest; empty if none was found."""
    steps = {
        a: sorted([b for b in members if b != a and weight[a][b] >= level], key=lambda b, a=a: (-weight[a][b], b))  # type: ignore[misc]
        for a in members
    }
    reached, fresh = {first}, {first}
    while fresh:
        fresh = {b for a in fresh for b in steps[a]} - reached
        reached |= fresh
    if len(reached) < len(members) or min([len(links) for links in steps.values()]) < 2:
        return ()
    fast = {a: [weight[a][b] for b in links[:2]] for a, links in steps.items()}
    left = STEPS if len(members) > EXACT else -1
    best = -1
    order: tuple[int, ...] = ()

    def faster(member: int, used: int) -> int:
        """The fastest link of a member of which one link is used."""
        return fast[member][fast[member][0] == used]

    def walk(path: tuple[int, ...], total: int, most: int) -> None:
        """Go on from the end of ``path``; ``most`` is the sum of the two fastest links of each member not in it."""
        nonlocal left, best, order
        row = weight[path[-1]]
        if len(path) == len(members):
            if row[first] >= level and total + row[first] > best:
                best, order = total + row[first], path
                left = 0 if any_order else left
            return
        for step in steps[path[-1]]:
            if step in path:
                continue
            if left == 0:
                return
            left -= 1
            reached, rest = total + row[step], most - sum(fast[step])
            # a link that is to come counts half at each of its ends
            to_come = rest + faster(step, row[step]) + faster(first, weight[first][(*path, step)[1]])
            if 2 * reached + to_come > 2 * best:
                walk((*path, step), reached, rest)

    walk((first,), 0, sum([sum(two) for a, two in fast.items() if a != first]))
    return order


def home(topology: NodeTopology, gpu: int) -> object:
    """A key that GPUs near to the same NUMA node share, as far as known."""
    device = topology.gpus[gpu]
    return device.numa_node if device.numa_node is not None else (device.cpus or device.numa_affinity)


def numa_costs(topology: NodeTopology, gpus: Sequence[int], cpus: Iterable[int]) -> list[int]:
    """For each of ``gpus``, the sum of the NUMA distances from ``cpus`` to it."""
    bound = frozenset(cpus)
    share = {node.id: len(bound.intersection(node.cpus)) for node in topology.numa_nodes}
    paths = []
    for gpu in gpus:
        device = topology.gpus[gpu]
        if device.numa_node in share:
            paths.append(sum([n * distance(topology, node, device.numa_node) for node, n in share.items() if n]))
        else:
            local = len(bound.intersection(device.cpus))
            paths.append(local * LOCAL + (len(bound) - local) * REMOTE)
    return paths


def aligned(topology: NodeTopology, gpus: Sequence[int], cpus: Iterable[int]) -> bool | None:
    """Whether each CPU is near one of the GPUs, and each GPU near one of the CPUs.

    Near are NUMA nodes of one package: with NPS4 or SNC some of them have no GPU, and the others are hardly farther.
    CPUs of a package without GPUs count as near if the job has all that are nearer: there is no better choice. None if
    that is not known, or if there is no GPU or no CPU.
    """
    bound = frozenset(cpus)
    if not gpus or not bound:
        return None
    if len([node for node in topology.numa_nodes if node.cpus]) == 1:
        return True
    beside: set[int | None] = {topology.gpus[gpu].numa_node for gpu in gpus}
    under = {topology.numa_node_of_cpu(cpu) for cpu in bound}
    if beside <= {node.id for node in topology.numa_nodes} and None not in under:
        near = {node: _nodes_near(topology, node) for node in beside}
        all_near = frozenset().union(*near.values())
        if not under <= all_near:
            nearer = {cpu for node in topology.numa_nodes if node.id in all_near for cpu in node.cpus}
            others = frozenset().union(*[_nodes_near(topology, gpu.numa_node) for gpu in topology.gpus])
            return nearer <= bound and not (under - all_near) & others
        return all(under & nodes for nodes in near.values())
    local = [frozenset(topology.gpus[gpu].cpus) for gpu in gpus]
    # A cpuset clips the driver's list of near CPUs, so a common CPU proves nothing; having none in common does.
    return False if any(cpus and not cpus & bound for cpus in local) else None


def _nodes_near(topology: NodeTopology, number: int | None) -> frozenset[int]:
    """The NUMA nodes with CPUs that are near one: in its package, or by distance where that is not known.

    Near a node without CPUs are those that are nearest to it.
    """
    own = _package(topology, number)
    away = {node.id: distance(topology, node.id, number) for node in topology.numa_nodes if node.cpus}
    packages = {node: _package(topology, node) for node in away}
    limit = max(min(away.values(), default=0), REMOTE - 1)
    return frozenset(
        node
        for node, package in packages.items()
        if node == number or (package == own if None not in (package, own) else away[node] <= limit)
    )


def _package(topology: NodeTopology, number: int | None) -> int | None:
    """The package that has all CPUs of a NUMA node; None if it is not known, as in many virtual machines."""
    cpus = next((frozenset(node.cpus) for node in topology.numa_nodes if node.id == number), frozenset())
    return next((n for n, package in enumerate(topology.packages) if cpus and cpus.issubset(package)), None)


def choose_cpus(
    topology: NodeTopology, *, granted: Sequence[int], count: int | None, gpus: Sequence[int]
) -> tuple[int, ...]:
    """Choose ``count`` of the ``granted`` CPUs, sorted; all of them if ``count`` is None or not smaller.

    Each GPU in turn takes the nearest remaining core with all its granted siblings; whole cores come before cores of
    which the job has only a part. Without GPUs, the NUMA node with the most granted CPUs comes first.
    """
    free = sorted(set(granted))
    if count is None or count >= len(free):
        return tuple(free)
    cores = cores_of(topology, free)
    sizes = [(len(set(free) & set(node.cpus)), -node.id) for node in topology.numa_nodes]
    fullest = -max(sizes)[1] if sizes else None
    orders = [sorted(cores, key=partial(_core_rank, topology, gpu=gpu, fullest=fullest)) for gpu in gpus or (None,)]
    chosen: list[int] = []
    used: set[tuple[int, ...]] = set()
    turn = 0
    while len(chosen) < count:
        core = next(core for core, _ in orders[turn % len(orders)] if core not in used)
        used.add(core)
        chosen.extend(core[: count - len(chosen)])
        turn += 1
    return tuple(sorted(chosen))


_Core = tuple[tuple[int, ...], bool]
"""The granted CPUs of a core, and whether the job has only a part of it."""


def cores_of(topology: NodeTopology, granted: Iterable[int]) -> list[_Core]:
    """The cores to which the ``granted`` CPUs belong; without knowledge of cores, each CPU is one."""
    left = set(granted)
    cores: list[_Core] = []
    for group in topology.siblings:
        mine = tuple(sorted(left.intersection(group)))
        if mine:
            cores.append((mine, len(mine) < len(group)))
            left.difference_update(mine)
    return cores + [((cpu,), False) for cpu in sorted(left)]


def whole_cores(topology: NodeTopology, granted: Iterable[int], cpus: Iterable[int]) -> tuple[int, ...]:
    """These CPUs with all others of their cores that are granted, sorted."""
    chosen = frozenset(cpus)
    return tuple(sorted(cpu for core, _ in cores_of(topology, granted) if not chosen.isdisjoint(core) for cpu in core))


def _core_rank(topology: NodeTopology, core: _Core, gpu: int | None, fullest: int | None) -> tuple[int, ...]:
    """How far a core is from a GPU; without one, from the NUMA node with the most granted CPUs."""
    cpus, is_part = core
    node = topology.numa_node_of_cpu(cpus[0])
    beside = fullest if gpu is None else topology.gpus[gpu].numa_node
    if gpu is not None and (beside is None or node is None):
        level = LOCAL if cpus[0] in topology.gpus[gpu].cpus else REMOTE
    else:
        level = distance(topology, node, beside) if beside is not None else LOCAL
    is_far = gpu is not None and cpus[0] not in topology.gpus[gpu].cpus  # of two that share a NUMA node
    return (level, -1 if node is None else node, is_far, is_part, cpus[0])


def memory_nodes(topology: NodeTopology, cpus: Iterable[int], gpus: Sequence[int]) -> tuple[int, ...]:
    """NUMA nodes for the memory policy: those of the CPUs, most CPUs first, then those of the GPUs; empty if unknown.

    Nodes without CPUs are left out, since they may be a GPU's own memory. A node without memory is replaced by the
    nearest one that has some.
    """
    usable = [node for node in topology.numa_nodes if node.cpus and node.memory_mib != 0]
    bound = frozenset(cpus)
    shares = sorted([(-len(bound.intersection(node.cpus)), node.id) for node in topology.numa_nodes])
    wanted = [node for share, node in shares if share]
    wanted += [n for n in (topology.gpus[gpu].numa_node for gpu in gpus) if n is not None]
    nodes: list[int] = []
    for numa_node in wanted:
        distances = [(distance(topology, numa_node, node.id), node.id, node) for node in usable]
        nearest = min(distances)[2] if distances else None
        if nearest is not None and nearest.id not in nodes and numa_node in {node.id for node in topology.numa_nodes}:
            nodes.append(nearest.id)
    return tuple(nodes)
