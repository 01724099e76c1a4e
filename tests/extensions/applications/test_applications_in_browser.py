"""Applications through the hub: opened as JupyterLab is, with their placement on the home page.

VS Code and Streamlit are skipped where PATH has no ``code-server``, or no ``streamlit`` with ``uvicorn`` beside it.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Page, expect

from jupyterhub_gpuspawner.demo.hub import HubProcess
from jupyterhub_gpuspawner.demo.slurm_cluster import PrivateSlurm
from tests.browser.seeing import sign_in
from tests.fixtures.browser import OpenPage
from tests.fixtures.hubs import StartHub
from tests.fixtures.slurm import processes_of

pytestmark = [pytest.mark.slurm, pytest.mark.hub, pytest.mark.browser, pytest.mark.nightly]

DASHBOARD = """
import os
import panel as pn
pn.extension()
button = pn.widgets.Button(name="Count")
pressed = pn.bind(lambda n: f"Pressed {n}", button.param.clicks)
pn.Column("# GPUs " + os.environ["CUDA_VISIBLE_DEVICES"], button, pressed).servable()
"""
IN_STREAMLIT = """
import os
import streamlit as st
st.title("GPUs " + os.environ["CUDA_VISIBLE_DEVICES"])
st.session_state.setdefault("pressed", 0)
if st.button("Count"):
    st.session_state.pressed += 1
st.write(f"Pressed {st.session_state.pressed}")
"""
SERVED = """
from pathlib import Path
import streamlit as st
app = st.App(Path(__file__).with_name("results.py"))
"""
PANEL = str(Path(sys.executable).parent / "panel")
STREAMLIT = shutil.which("streamlit")
UVICORN = STREAMLIT and shutil.which("uvicorn", path=Path(STREAMLIT).parent)
CODE_SERVER = shutil.which("code-server")
HINT = "is not installed"


@pytest.fixture(scope="module")
def hub(start_light_hub: StartHub, tmp_path_factory: pytest.TempPathFactory) -> HubProcess:
    """A hub with two dashboards and an editor."""
    folder = tmp_path_factory.mktemp("course")
    for name, text in {"gpus.py": DASHBOARD, "results.py": IN_STREAMLIT, "serve.py": SERVED}.items():
        (folder / name).write_text(text)
    slurm = '{partition: gpu, gpus: 2, gpu_type: k80, cpus: 2, memory: 1G, time: "0:30:00"}'
    profiles = f"""
- display_name: Dashboard
  slug: panel
  slurm: {slurm}
  app: {{kind: panel, command: [{PANEL}, serve], args: [{folder}/gpus.py]}}
- display_name: Dashboard in Streamlit
  slug: streamlit
  slurm: {slurm}
  app: {{kind: streamlit, command: [{UVICORN or "uvicorn"}], args: [--app-dir, {folder}, "serve:app"]}}
- display_name: Editor
  slug: code-server
  slurm: {slurm}
  environment: {{setup: 'PATH={Path(CODE_SERVER or "").parent}:$PATH'}}
  app: {{kind: code-server, args: [--disable-workspace-trust, {folder}]}}
"""
    return start_light_hub(profiles=profiles)


@pytest.fixture
def start(hub: HubProcess, page: Page) -> Iterator[Page]:
    """The page on which ada chooses a profile; her server is stopped in the end."""
    sign_in(page, hub, "ada")
    page.goto(f"{hub.url}/hub/spawn")
    yield page
    hub.end("ada")


def begin(page: Page, profile: str) -> None:
    """Start a server of this profile, and wait until its own page is shown; meanwhile a page offers home beside it."""
    page.check(f"#profile-{profile}")
    page.click("#spawn_form button[type=submit]")
    expect(page.locator("#gpuspawner-home-beside a")).to_have_attribute("target", "_blank")
    page.wait_for_url(re.compile("/user/ada/"), timeout=180_000)


def its_placement_is_at_home_and_it_is_for_ada_alone(
    hub: HubProcess, slurm: PrivateSlurm, page: Page, open_page: OpenPage
) -> None:
    """Its way home leads to a page with two GPUs, the time left and *Open*, in a new tab; the session has its end.

    bob gets 403; no process of it but the sign-in's has a TCP port.
    """
    page.goto(f"{hub.url}/user/ada/gpuspawner/home")
    assert page.url == f"{hub.url}/hub/home"
    servers = page.locator("#gpuspawner-servers")
    expect(servers.locator("[data-left]")).to_contain_text("min")
    assert page.request.get(f"{hub.url}/user/ada/gpuspawner/session").json()["ends_at"]
    shown = servers.locator('[data-fact="GPUs"]').text_content() or ""
    assert len(re.findall(r"GPU \d+:", shown)) == 2
    with page.context.expect_page() as opened:
        servers.get_by_role("link", name=re.compile("^Open in a new tab")).click()
    expect(opened.value).to_have_url(re.compile("/user/ada/"))
    opened.value.close()
    assert page.url == f"{hub.url}/hub/home"

    bobs = open_page()
    sign_in(bobs, hub, "bob")
    answer = bobs.goto(f"{hub.url}/user/ada/")
    assert answer is not None
    assert answer.status == 403

    job = hub.api("GET", "/gpuspawner/placement/ada").json()["job_id"]
    (gate,) = [process for process in processes_of(slurm, job) if _is_the_sign_in(process)]
    application = {child.pid for child in gate.children(recursive=True)}
    assert application
    listening = [
        connection.pid for connection in psutil.net_connections("tcp") if connection.status == psutil.CONN_LISTEN
    ]
    assert (gate.pid in listening, application & set(listening)) == (True, set())


def _is_the_sign_in(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return "import gpuspawner_gate" in " ".join(process.cmdline()[:3])
    return False


DASHBOARDS = [
    pytest.param("panel", "Panel", id="Panel"),
    pytest.param(
        "streamlit",
        "Streamlit",
        id="Streamlit",
        marks=pytest.mark.skipif(UVICORN is None, reason=f"Streamlit {HINT}"),
    ),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("profile", "name"), DASHBOARDS)
def test_a_dashboard_is_started_opened_and_used_as_jupyterlab_is(
    hub: HubProcess, slurm_cluster: PrivateSlurm, start: Page, open_page: OpenPage, profile: str, name: str
) -> None:
    """Its card names the application; it answers a click, by its WebSocket; the home page shows its GPUs."""
    page = start
    card = page.locator(".gs-choice").filter(has=page.locator(f"#profile-{profile}"))
    expect(card).to_contain_text(name)
    begin(page, profile)
    heading = page.get_by_role("heading", name=re.compile("^GPUs "))
    expect(heading).to_be_visible(timeout=120_000)
    page.get_by_role("button", name="Count").click()
    expect(page.get_by_text("Pressed 1")).to_be_visible()
    its_placement_is_at_home_and_it_is_for_ada_alone(hub, slurm_cluster, page, open_page)


@pytest.mark.timeout(600)
@pytest.mark.skipif(CODE_SERVER is None, reason=f"code-server {HINT}")
def test_vs_code_opens_a_file_and_a_terminal_that_has_the_gpus(
    hub: HubProcess, slurm_cluster: PrivateSlurm, start: Page, open_page: OpenPage
) -> None:
    """Files and terminals come over its WebSockets; the terminal writes what GPUs it sees into a file."""
    page = start
    begin(page, "code-server")
    page.get_by_role("treeitem", name="gpus.py").dblclick(timeout=120_000)
    expect(page.locator(".editor-instance .view-lines")).to_contain_text("pn.extension", timeout=60_000)
    page.keyboard.press("Control+Backquote")
    page.locator(".xterm-helper-textarea").wait_for(state="attached", timeout=60_000)
    page.keyboard.type("echo $CUDA_VISIBLE_DEVICES > seen.txt\n")
    page.get_by_role("treeitem", name="seen.txt").dblclick(timeout=60_000)
    expect(page.locator(".editor-instance .view-lines")).to_contain_text(re.compile(r"^(GPU-|\d)"), timeout=60_000)
    its_placement_is_at_home_and_it_is_for_ada_alone(hub, slurm_cluster, page, open_page)
