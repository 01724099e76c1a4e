"""The figures as a table in Markdown and a plot in SVG."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from .phases import Measured, Rate
from .systems import OURS, SYSTEMS

TITLES = {system.key: system.title for system in SYSTEMS}
FLOOR = "plain `sbatch` of our scripts"
COLOURS = {
    "ours": "#0b6e4f",
    "batchspawner": "#c1440e",
    "moss": "#7b5ea7",
    "form": "#b8860b",
    "floor": "#555555",
}


@dataclass(frozen=True)
class Results:
    """The results of one run."""

    measured: tuple[Measured, ...]
    floor: tuple[float, ...]
    """Seconds of plain sbatch, sorted; empty if it did not run."""
    about: str
    """The machine and the versions, in one line."""


def _of(results: Results, key: str) -> Measured | None:
    return next((measurement for measurement in results.measured if measurement.system == key), None)


# --- the table ----------------------------------------------------------------------------------


def table(results: Results) -> str:
    """The tables: one row for each system."""
    heads = [
        "",
        "ready: p50 / p95 / last, s",
        "commands",
        "RPCs",
        "hub: CPU s",
        "commands: CPU s",
        "hub: MiB",
        "event loop blocked by the spawner, ms",
        "of it processor time, ms",
    ]
    users = next((measurement.started.users for measurement in results.measured if measurement.started), 0)
    lines = [f"**{users} users click at once**", "", _row(heads), _row(["---"] + ["---:"] * (len(heads) - 1))]
    for measurement in results.measured:
        run = measurement.started
        if run is None:
            continue
        missing = users - len(run.ready)
        lines.append(
            _row(
                [
                    TITLES[measurement.system],
                    _ready(run.ready) + (f" ({missing} never)" if missing else ""),
                    _counts(run.commands),
                    str(sum(run.rpcs.values())),
                    f"{run.hub_cpu:.1f}",
                    f"{run.commands_cpu:.1f}",
                    f"{run.memory:.0f}",
                    f"{run.blocked:.0f}",
                    f"{run.blocked_cpu:.0f}",
                ]
            )
        )
    if results.floor:
        lines.append(_row([FLOOR, _ready(results.floor), f"{len(results.floor)} sbatch", "", "", "", "", "", ""]))
    parts = (lines, _rates(results, "waiting"), _rates(results, "rest"), _crowd(results))
    return "\n\n".join("\n".join(part) for part in map(list, parts) if part) + "\n"


def _crowd(results: Results) -> Iterator[str]:
    ours = _of(results, OURS.key)
    crowd = ours.crowd if ours else None
    if crowd is not None:
        yield f"**{crowd.users} users click at once on a full cluster**"
        yield ""
        yield _row(
            ["", "submitted", "all in the queue after, s", "hub: CPU s", "home page meanwhile: p50 / p95 / last, s"]
        )
        yield _row(["---", *["---:"] * 4])
        home = _ready(crowd.home, digits=2)
        yield _row([OURS.title, str(crowd.submitted), f"{crowd.seconds:.1f}", f"{crowd.hub_cpu:.1f}", home])
    streams = ours.streams if ours else None
    if streams is not None:
        yield ""
        yield f"**{streams.streams} open waiting pages**"
        yield ""
        yield _row(["", "hub: MiB", "hub: CPU s in a second", "RPCs per second", "without the pages"])
        yield _row(["---", *["---:"] * 4])
        rates = (f"{streams.rpcs_per_second:.2f}", f"{streams.rpcs_per_second_before:.2f}")
        yield _row([OURS.title, f"{streams.memory:.1f}", f"{streams.hub_cpu:.3f}", *rates])


def _ready(seconds: Sequence[float], *, digits: int = 1) -> str:
    """p50, p95 and maximum of sorted values."""
    if not seconds:
        return "-"
    return " / ".join(f"{seconds[round(part * (len(seconds) - 1))]:.{digits}f}" for part in (0.5, 0.95, 1.0))


def _rates(results: Results, what: str) -> Iterator[str]:
    rates_by_system = {
        measurement.system: {rate.users: rate for rate in getattr(measurement, what)}
        for measurement in results.measured
    }
    columns = sorted({users for rates in rates_by_system.values() for users in rates})
    if not columns:
        return
    if what == "waiting":
        yield "**RPCs per second while the cluster is full, by number of waiting users**"
    else:
        yield "**RPCs per hour, by number of idle servers**"
    yield ""
    yield _row(["", *map(str, columns)])
    yield _row(["---", *["---:"] * len(columns)])
    for key, rates in rates_by_system.items():
        if rates:
            yield _row([TITLES[key], *(_rate(rates.get(users), what) for users in columns)])


def _rate(rate: Rate | None, what: str) -> str:
    if rate is None:
        return "-"
    return f"{rate.per_second:.2f}" if what == "waiting" else f"{rate.per_second * 3600:,.0f}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _counts(commands: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in commands.items())


# --- the bars -----------------------------------------------------------------------------------


def bars(results: Results) -> Iterator[tuple[str, float, float]]:
    """Each limit of the project: what is limited, the limit, and the measured value."""
    ours, theirs = _of(results, OURS.key), _of(results, "batchspawner")
    if ours is None:
        return
    for rate in ours.waiting:
        yield f"RPC/s, {rate.users} waiting users", 1.0, rate.per_second
    for rate in ours.rest:
        yield f"RPC/h, {rate.users} idle servers", 400.0, rate.per_second * 3600
    mine = ours.started
    if mine is not None and mine.ready:
        if theirs is not None and theirs.started is not None and theirs.started.ready:
            yield "last server ready, relative to batchspawner", 0.2, mine.ready[-1] / theirs.started.ready[-1]
        if results.floor:
            yield "last server ready, relative to plain sbatch", 1.3, mine.ready[-1] / results.floor[-1]
    held = [mine.blocked] if mine is not None else []
    held += [rate.blocked for rate in (*ours.waiting, *ours.rest)]
    if held:
        yield "longest block of the event loop, ms", 50.0, max(held)
    if mine is not None:
        yield "longest block of the event loop, ms of processor time", 50.0, mine.blocked_cpu
    yield from _bars_of_crowd(ours)
    small, large = (min, max) if ours.rest else (None, None)
    if small is not None and large is not None and mine is not None and len(ours.rest) > 1:
        most = large(ours.rest, key=lambda rate: rate.users)
        least = small(ours.rest, key=lambda rate: rate.users)
        yield "memory per server, MiB", 1.0, (most.memory - least.memory) / (most.users - least.users)


def _bars_of_crowd(ours: Measured) -> Iterator[tuple[str, float, float]]:
    crowd, streams = ours.crowd, ours.streams
    if crowd is not None:
        yield f"starts of {crowd.users} clicks that were lost", 0.0, crowd.users - crowd.submitted + len(crowd.failures)
        yield "home page meanwhile, p95, s", 1.0, crowd.home[round(0.95 * (len(crowd.home) - 1))]
        yield "longest block meanwhile, ms of processor time", 50.0, crowd.blocked_cpu
    if streams is not None:
        yield f"memory of {streams.streams} waiting pages, MiB", 20.0, streams.memory
        more = streams.rpcs_per_second - streams.rpcs_per_second_before
        yield f"RPC/s because of {streams.streams} waiting pages", 0.1, more


def aims(results: Results) -> str:
    """The limits and the measured values as a table."""
    lines = ["**The project's own limits**", "", _row(["", "limit", "measured"]), _row(["---", "---:", "---:"])]
    for what, most, was in bars(results):
        lines.append(_row([what, f"{most:g}", f"{was:.2f}" if was <= most else f"{was:.2f}, MISSED"]))
    return "\n".join(lines) + "\n"


# --- the plot -----------------------------------------------------------------------------------

WIDTH, HEIGHT, TOP, BOTTOM = 860, 390, 46, 300
LEFT, MIDDLE, RIGHT_FROM, RIGHT_TO = 52, 470, 650, 830


def plot(results: Results) -> str:
    """Left: servers ready over time. Right: RPCs per second while users wait."""
    curves = {
        measurement.system: measurement.started.ready
        for measurement in results.measured
        if measurement.started and measurement.started.ready
    }
    if results.floor:
        curves["floor"] = list(results.floor)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="sans-serif" font-size="12">',
        "<title>Users ready over time, and load on slurmctld while users wait</title>",
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *_curves(curves),
        *_columns(results),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _text(x: float, y: float, words: str, *, anchor: str = "start", fill: str = "#222222", bold: bool = False) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{fill}"{weight}>{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, colour: str = "#dddddd") -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _curves(curves: dict[str, list[float]]) -> Iterator[str]:
    if not curves:
        return
    longest = max(ready[-1] for ready in curves.values())
    step = next(step for step in (1, 2, 5, 10, 20, 30, 60, 120, 300) if longest / step <= 8)
    until = step * math.ceil(longest / step)
    users = max(len(ready) for ready in curves.values())

    def x(seconds: float) -> float:
        return LEFT + (MIDDLE - LEFT) * seconds / until

    def y(count: float) -> float:
        return BOTTOM - (BOTTOM - TOP) * count / users

    yield _text(LEFT, 24, f"Servers ready, of {users}", bold=True)
    for count in sorted({0, users // 3, 2 * users // 3, users}):
        yield _line(LEFT, y(count), MIDDLE, y(count))
        yield _text(LEFT - 8, y(count) + 4, str(count), anchor="end")
    for seconds in range(0, until + 1, step):
        yield _text(x(seconds), BOTTOM + 18, f"{seconds} s", anchor="middle")
    for number, (key, ready) in enumerate(curves.items()):
        path = f"M{x(0):.1f} {y(0):.1f}" + "".join(
            f"H{x(seconds):.1f}V{y(count):.1f}" for count, seconds in enumerate(ready, 1)
        )
        dashes = ' stroke-dasharray="5 4"' if key == "floor" else ""
        yield f'<path d="{path}" fill="none" stroke="{COLOURS[key]}" stroke-width="2"{dashes}/>'
        across, down = LEFT + 210 * (number % 2), BOTTOM + 38 + 17 * (number // 2)
        yield f'<rect x="{across}" y="{down - 9}" width="10" height="10" fill="{COLOURS[key]}"/>'
        yield _text(across + 15, down, TITLES.get(key, FLOOR.replace("`", "")))


def _columns(results: Results) -> Iterator[str]:
    rates = [(measurement.system, rate) for measurement in results.measured for rate in measurement.waiting]
    if not rates:
        return
    most = max(rate.per_second for _, rate in rates)
    top = 10 ** math.ceil(math.log10(max(most, 10)))
    lowest = 0.1
    height = (BOTTOM - TOP) / len(rates)

    def x(value: float) -> float:
        share = math.log10(max(value, lowest) / lowest) / math.log10(top / lowest)
        return RIGHT_FROM + (RIGHT_TO - RIGHT_FROM) * share

    yield _text(RIGHT_FROM - 150, 24, "RPCs per second while users wait (log)", bold=True)
    mark = lowest
    while mark <= top * 1.01:
        yield _line(x(mark), TOP, x(mark), BOTTOM)
        yield _text(x(mark), BOTTOM + 18, f"{mark:g}", anchor="middle")
        mark *= 10
    for number, (key, rate) in enumerate(rates):
        up = TOP + height * number + height * 0.2
        width = max(1.0, x(rate.per_second) - RIGHT_FROM)
        shape = f'x="{RIGHT_FROM}" y="{up:.1f}" width="{width:.1f}" height="{height * 0.6:.1f}"'
        yield f'<rect {shape} fill="{COLOURS[key]}"/>'
        name = f"{TITLES[key].partition(' ')[0]}, {rate.users}"
        yield _text(RIGHT_FROM - 8, up + height * 0.3 + 4, name, anchor="end")
        yield _text(
            RIGHT_FROM + width + 5,
            up + height * 0.3 + 4,
            f"{rate.per_second:.2f}" if rate.per_second < 10 else f"{rate.per_second:.0f}",
        )
