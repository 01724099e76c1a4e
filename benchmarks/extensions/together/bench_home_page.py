"""The home page of a person with ten servers: bytes that an open page takes each minute, and the hub's work for them.

    python benchmarks/extensions/together/bench_home_page.py [--write]

It compares a page that fetches itself whole twice a minute with the stream. Each server has four GPUs, an hour of
summaries and a picture of its node, and sends a summary every five minutes, so two cards change each minute; the page
looks six times. Measured are the making of the cards, their versions and their HTML, in processor time of this
process; what the hub does to know the state of its servers is the same for each look, and not in it. Bytes are
uncompressed, without headers. ``--write`` writes ``docs/explanation/home-table.md``.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from types import SimpleNamespace

from jinja2 import ChoiceLoader, DictLoader, Environment, FileSystemLoader

from jupyterhub_gpuspawner.extension import installed
from jupyterhub_gpuspawner.extensions.live_pages.home import LATER, HomeSnapshot, LiveHome
from jupyterhub_gpuspawner.extensions.live_pages.streams import KEEPALIVE_SECONDS
from jupyterhub_gpuspawner.extensions.picture.card import picture_of
from jupyterhub_gpuspawner.extensions.usage.card import usage_card
from jupyterhub_gpuspawner.extensions.usage.node.summary import GpuUse, UsageSummary
from jupyterhub_gpuspawner.extensions.usage.use import Use
from jupyterhub_gpuspawner.hub.extension import Place, ServerPart
from jupyterhub_gpuspawner.hub.extensions import HubExtensions
from jupyterhub_gpuspawner.hub.routes import PageTools
from jupyterhub_gpuspawner.hub.server.card import server_cards
from jupyterhub_gpuspawner.hub.site.templates import TEMPLATES
from jupyterhub_gpuspawner.hub.spawners.server import Server
from jupyterhub_gpuspawner.placement.topology import load, to_document
from jupyterhub_gpuspawner.wire.documents import PlacedGpu, PlacementDocument

SERVERS, PAGES, ROUNDS = 10, 1000, 20
FETCHES, CHANGES = 2, SERVERS / 5
"""Each minute: times that a page fetched itself whole, and cards that change."""
ROOT = Path(__file__).parents[3]
MACHINE = ROOT / "jupyterhub_gpuspawner" / "demo" / "machines" / "dgx1.json"
TABLE = ROOT / "docs" / "explanation" / "home-table.md"
FRAME = "{% block stylesheet %}{% endblock %}{% block main %}{% endblock %}"


def server(number: int, now: float) -> Server:
    """One that runs, with what extensions show of it."""
    topology = load(str(MACHINE))
    own = topology.gpus[:4]
    placement = PlacementDocument(
        job_id=str(number),
        node=f"g{number}",
        partition="gpu",
        gpus=tuple(PlacedGpu(gpu.index, gpu.uuid, name=gpu.name, memory_mib=gpu.memory_mib) for gpu in own),
        cpus="0-19",
        memory_mib=65536,
        started_at=datetime.fromtimestamp(now - 3600, timezone.utc).isoformat(),
        ends_at=datetime.fromtimestamp(now + 7200, timezone.utc).isoformat(),
    )
    gpus = tuple(GpuUse(gpu.index, gpu.uuid, None, 83.0, 60.0, 99.0, 10, 16280, 8000, 9000, 2) for gpu in own)
    usage = [Use(now - 300 * n, UsageSummary(seconds=300, gpus=gpus, cores=5.2, memory_mib=4096)) for n in range(12)]
    shown = partial(usage_card, usage[::-1], now=now, placement=placement)
    document = to_document(topology)
    parts = (
        ServerPart("usage", Place.BESIDE, "usage_card.html", shown, version=now),
        ServerPart("usage_hour", Place.BELOW, "usage_hour.html", shown, version=now),
        ServerPart("picture", Place.NODE, "picture_card.html", partial(picture_of, placement, document)),
    )
    return Server(
        name=f"s{number}", ready=True, job_id=str(number), placement=placement, topology=document, parts=parts
    )


async def milliseconds(work: Callable[[], Awaitable[object]]) -> float:
    """Processor time of this work, the least of :data:`ROUNDS`."""
    times = []
    for _ in range(ROUNDS):
        began = time.process_time()
        await work()
        times.append(time.process_time() - began)
    return 1000 * min(times)


async def rows() -> list[tuple[str, float, float]]:
    """For each way its name, bytes each minute, and milliseconds each minute."""
    extensions = HubExtensions(installed())
    tools = PageTools(extensions)
    loaders = [DictLoader({"jupyterhub/home.html": FRAME}), FileSystemLoader([str(TEMPLATES), *extensions.templates])]
    environment = Environment(autoescape=True, enable_async=True, loader=ChoiceLoader(loaders))
    user = SimpleNamespace(name="ada", escaped_name="ada", server_url=lambda name: f"/user/ada/{name}")
    now = time.time()
    servers = [server(number, now) for number in range(SERVERS)]
    namespace = {"gpuspawner": tools, "base_url": "/hub/", "user": user, "xsrf_token": "x" * 60}
    handler = SimpleNamespace(current_user=user, template_namespace=namespace, get_template=environment.get_template)

    async def look() -> HomeSnapshot:
        return HomeSnapshot(server_cards(servers, now=now))

    async def whole() -> str:
        snapshot = await look()
        page = environment.get_template("home.html")
        return await page.render_async(**namespace, cards=snapshot.cards, version=snapshot.version)

    async def card() -> str:
        snapshot = await look()
        before = HomeSnapshot(snapshot.cards[1:])
        return await LiveHome(handler).event(snapshot, before)

    async def version() -> str:
        return (await look()).version

    fetched, changed = len((await whole()).encode()), len((await card()).encode())
    alive = 3 * 60 / KEEPALIVE_SECONDS
    looks = 60 / LATER
    return [
        ("fetched whole every 30 s", FETCHES * fetched, FETCHES * await milliseconds(whole)),
        (
            "by its stream",
            CHANGES * changed + alive,
            looks * await milliseconds(version) + CHANGES * await milliseconds(card),
        ),
    ]


def main() -> None:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help=f"write {TABLE.relative_to(ROOT)}")
    arguments = parser.parse_args()
    lines = [
        "# What an open home page costs",
        "",
        "A person with ten running servers, each of four GPUs, of which two cards change each minute. This page is",
        "written by `benchmarks/extensions/together/bench_home_page.py --write`, which says how it is measured.",
        "",
        f"| The page is | bytes each minute | processor time of the hub for {PAGES:,} open pages |",
        "| --- | ---: | ---: |",
    ]
    for name, size, work in asyncio.run(rows()):
        lines.append(f"| {name} | {size:,.0f} | {PAGES * work / 60_000:.2f} cores |")
    text = "\n".join(lines) + "\n"
    if arguments.write:
        TABLE.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
