import shutil

import pytest
import torch

from reported import SOURCES, TARGETS, changed, settings, write
from seqmixer.runs import train


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    (folder / "src").write_text("\n".join(SOURCES) + "\n")
    (folder / "tgt").write_text("\n".join(TARGETS) + "\n")
    return folder


@pytest.fixture(scope="session")
def trained(data, tmp_path_factory):
    """Two finished runs: plain, and mixer, whose sentences are nearer to the references."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("runs")
    mixer = {
        "name": "mixer",
        "samples": 2,
        "baseline": "leave-one-out",
        "xent_epochs": 1,
        "mixed_epochs": 1,
        "delta": 5,
    }
    train(settings(data, "plain"), out, ())
    train(settings(data, "mixer", algorithm=mixer, training={"epochs": 3, "batch_size": 20, "threads": 1, "device": "cpu"}), out, ())  # fmt: skip
    write(out / "plain", [changed(changed(text, i), i + 1) or "a" for i, text in enumerate(TARGETS)])
    write(out / "mixer", [changed(text, i) for i, text in enumerate(TARGETS)])
    return out


@pytest.fixture
def folder(trained, tmp_path):
    """A copy to change."""
    return shutil.copytree(trained, tmp_path / "runs")


@pytest.fixture(scope="module")  # while Playwright runs, an event loop does, and tests of others start their own
def chromium():
    """The system's Chromium, without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with playwright.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def visit(chromium):
    """visit(address, width=..., scheme=...): a page, which may complain of nothing and ask nobody else for anything."""
    complaints, contexts = [], []

    def call(address, width=1400, scheme="light"):
        context = chromium.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        contexts.append(context)

        def route(request):
            if not request.request.url.startswith(("http://127.0.0.1:", "file:", "data:")):
                complaints.append(f"asks {request.request.url}")
                request.abort()
            else:
                request.continue_()

        context.route("**/*", route)
        page = context.new_page()
        page.set_default_timeout(30_000)
        page.on(
            "console", lambda message: complaints.append(message.text) if message.type in ("error", "warning") else 0
        )
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: (complaints.append(dialog.message), dialog.dismiss()))
        page.goto(address)
        return page

    yield call
    for context in contexts:
        context.close()
    assert complaints == []
