"""The report as a browser shows it: driven over the DevTools protocol."""

import json
import shutil
import subprocess
import threading
import time
import urllib.request
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_digits, load_wine

from diva import DIVA, DPMixture
from diva.data import ArraySource, LoadedData
from diva.report import write_report
from diva.runs.summarize import summarize

websocket = pytest.importorskip("websocket", reason="driving a browser needs websocket-client")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="neither Chromium nor Chrome is installed")


class Browser:
    """One page of a headless browser."""

    def __init__(self, profile):
        self.process = subprocess.Popen(
            [
                BROWSER,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--disable-dev-shm-usage",
                "--remote-debugging-port=0",
                "--remote-allow-origins=*",
                f"--user-data-dir={profile}",
                "about:blank",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            if "DevTools listening on" in line:
                port = line.split("127.0.0.1:")[1].split("/")[0]
                break
        else:
            raise RuntimeError("the browser did not start")
        self.reader = threading.Thread(target=self.process.stderr.read, daemon=True)  # a full pipe would stop it
        self.reader.start()
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            pages = [target for target in json.load(answer) if target["type"] == "page"]
        self.socket = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=60)
        self.number, self.errors, self.fetched = 0, [], []
        for domain in ("Runtime", "Log", "Page", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method, **params):
        self.number += 1
        self.socket.send(json.dumps({"id": self.number, "method": method, "params": params}))
        while True:
            message = json.loads(self.socket.recv())
            self._note(message)
            if message.get("id") == self.number:
                assert "error" not in message, message
                return message["result"]

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown" or (method == "Runtime.consoleAPICalled" and params["type"] == "error"):
            self.errors.append(params)
        if method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params)
        if method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(
            ("file:", "data:", "blob:", "about:")
        ):
            self.fetched.append(params["request"]["url"])

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def wait_for(self, script, seconds=30):
        end = time.monotonic() + seconds
        while not (value := self.run(script)):
            assert time.monotonic() < end, f"waited in vain for {script}"
            time.sleep(0.05)
        return value

    def open(self, path, width):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.call("Page.navigate", url=path.resolve().as_uri())
        self.wait_for("document.readyState === 'complete' && document.documentElement.dataset.state !== 'loading'")
        assert self.run("document.documentElement.dataset.state") == "ready"

    def point_at(self, x, y):
        for step in (3, 0):  # from a little aside, as a hand does
            self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x - step, y=y)

    def press(self, key):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def close(self):
        self.socket.close()
        self.process.terminate()
        self.process.wait(timeout=20)
        self.reader.join(timeout=5)
        self.process.stderr.close()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    page = Browser(tmp_path_factory.mktemp("profile"))
    yield page
    page.close()


def text_report(folder):
    """Counts of words of three kinds of texts, as tf-idf."""
    rng = np.random.default_rng(0)
    words = [f"{kind}{i}" for kind in ("sea", "hill", "town") for i in range(8)]
    kinds = np.arange(240) % 3
    rates = np.where(np.repeat(np.eye(3), 8, axis=1)[kinds] > 0, 3.0, 0.2)
    frame = pd.DataFrame(rng.poisson(rates), columns=words)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DIVA(tfidf=True, codes="features", n_epochs=1, random_state=0).fit(frame)
    return model.report(frame, folder / "text.html", y=kinds, name="<digits>", projection="pca")


def mixture_report(folder):
    wine = load_wine(as_frame=True)
    model = DPMixture(random_state=0).fit(wine.data).rename({0: "the <first>"})
    return model.report(wine.data, folder / "mixture.html", y=wine.target, name="<digits>", projection="pca")


@pytest.fixture(scope="module", params=["images", "table", "text", "mixture"])
def report(request, tmp_path_factory):
    run = tmp_path_factory.mktemp(request.param)
    if request.param == "text":
        return text_report(run)
    if request.param == "mixture":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return mixture_report(run)
    digits = load_digits()
    X = digits.images[:250].astype(np.uint8)
    X = X if request.param == "images" else X.reshape(250, 64).astype(np.float32)
    params = {} if request.param == "images" else {"preset": "features", "image_shape": None, "hidden_sizes": (32,)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = DIVA(run_dir=run, n_epochs=4, n_clusters=5, random_state=0, **params).fit(X)
    labels = digits.target[:250]
    summarize(model, LoadedData(ArraySource(X), labels, name="<digits>")).save(run)
    return write_report(run, projection="pca")


# Where a point of the map is on the screen.
POINT = """(() => {
    const box = document.getElementById("map"), frame = box.getBoundingClientRect();
    const trace = box.data.find((t) => t.x.length > 3);
    const {xaxis, yaxis} = box._fullLayout;
    const off = (axis, value) => Math.abs(axis.l2p(value) / axis._length - 0.5);
    const far = (i) => off(xaxis, trace.x[i]) + off(yaxis, trace.y[i]);
    const i = trace.x.map((_, i) => i).reduce((best, i) => (far(i) < far(best) ? i : best)); // away from the border
    return [frame.left + xaxis._offset + xaxis.l2p(trace.x[i]), frame.top + yaxis._offset + yaxis.l2p(trace.y[i])];
})()"""


@pytest.mark.parametrize("width", [1280, 390])
def test_every_panel_is_drawn_without_errors(browser, report, width):
    browser.errors.clear()
    browser.fetched.clear()
    browser.open(report, width)
    boxes = browser.run(
        "[...document.querySelectorAll('.plot')].filter((b) => !b.closest('[hidden]'))"
        ".map((b) => [b.id, b.querySelectorAll('svg, canvas').length, b.clientHeight])"
    )
    assert len(boxes) >= 5
    assert all(n_drawn > 0 and height > 100 for _, n_drawn, height in boxes), boxes
    assert browser.run("[...document.images].every((i) => i.complete && i.naturalWidth > 0)")
    assert browser.run("document.documentElement.scrollWidth <= window.innerWidth"), "the page scrolls sideways"
    assert browser.run("document.querySelectorAll('.modebar-btn').length") == 0
    assert browser.run("document.querySelector('h1').textContent") == "<digits>"
    assert browser.errors == []
    assert browser.fetched == []


def test_pointing_at_a_sample_shows_it(browser, report):
    browser.open(report, 1280)
    browser.run("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    browser.point_at(*browser.run(POINT))
    browser.wait_for("!document.getElementById('card').hidden")
    said = browser.run("document.getElementById('card').innerText")
    assert "Sample" in said
    assert "confidence" in said
    if "images" in str(report):
        assert browser.run("document.querySelector('#card .thumb').style.backgroundImage").startswith('url("data:image/')
    else:
        assert browser.run("document.querySelectorAll('#card td').length") > 4
    browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=2, y=2)
    browser.wait_for("document.getElementById('card').hidden")


def test_levels_and_samples_by_keyboard(browser, report):
    browser.errors.clear()
    browser.open(report, 1280)
    names = browser.run("document.getElementById('map').data.map((t) => t.name)")
    browser.run("document.querySelector('[data-level=class]').focus()")
    browser.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", text="\r", windowsVirtualKeyCode=13)
    browser.wait_for("document.getElementById('map').dataset.level === 'class'")
    assert browser.run("document.querySelector('[data-level=class]').getAttribute('aria-pressed')") == "true"
    assert browser.run("document.querySelectorAll('[data-level][aria-pressed=true]').length") == 1
    classes = [str(k) for k in range(3 if report.stem in ("text", "mixture") else 10)]
    assert browser.wait_for("document.getElementById('map').data.map((t) => t.name)") == classes
    assert names != classes or len(names) == len(classes)
    browser.run("document.getElementById('map').focus()")
    browser.press("ArrowRight")
    first = browser.wait_for("document.getElementById('card').dataset.sample")
    browser.press("ArrowRight")
    assert browser.wait_for("document.getElementById('card').dataset.sample") != first
    assert "confidence" in browser.run("document.getElementById('said').textContent")
    assert browser.errors == []


def test_it_can_be_printed(browser, report):
    browser.open(report, 1280)
    content = browser.call("Page.printToPDF", printBackground=True)["data"]
    assert len(content) > 50_000


def type_into_search(browser, text):
    browser.run(
        "(() => { const box = document.getElementById('search');"
        f"box.value = {json.dumps(text)}; box.dispatchEvent(new Event('input')); }})()"
    )


def test_clicking_searching_and_saving(browser, report):
    browser.errors.clear()
    browser.open(report, 1400)
    browser.run("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    n = browser.run("document.getElementById('map').data.reduce((n, t) => n + t.x.length, 0)")
    x, y = browser.run(POINT)
    browser.point_at(x, y)
    browser.wait_for("!document.getElementById('card').hidden")
    for kind in ("mousePressed", "mouseReleased"):
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
    browser.wait_for("document.getElementById('map').dataset.chosen")
    chosen = int(browser.run("document.getElementById('map').dataset.chosen"))
    assert chosen in browser.run("document.getElementById('map').data.map((t) => t.x.length)")
    assert "Chosen: cluster" in browser.run("document.getElementById('chosen-text').textContent")
    browser.run("document.getElementById('save').click()")
    saved = browser.run("document.documentElement.dataset.saved").split("\r\n")
    assert saved[0].split(",")[:2] == ["sample", "cluster"]
    assert len(saved) == chosen + 2
    assert len({line.split(",")[1] for line in saved[1:-1]}) == 1
    type_into_search(browser, "sample 7")
    browser.wait_for("document.getElementById('map').dataset.chosen === '1'")
    assert "Sample 7" in browser.wait_for("document.getElementById('card').innerText")
    type_into_search(browser, "class 1")
    browser.wait_for("Number(document.getElementById('map').dataset.chosen) > 1")
    browser.run("document.getElementById('clear').click()")
    browser.wait_for("document.getElementById('map').dataset.chosen === ''")
    assert browser.run("document.getElementById('search').value") == ""
    browser.run("document.getElementById('save').click()")
    assert len(browser.run("document.documentElement.dataset.saved").split("\r\n")) == n + 2
    assert browser.errors == []


def test_zoom_pan_and_lasso(browser, report):
    browser.errors.clear()
    browser.open(report, 1400)
    browser.run("document.getElementById('map').scrollIntoView({block: 'center', behavior: 'instant'})")
    span = "(() => { const r = document.getElementById('map')._fullLayout.xaxis.range; return r[1] - r[0]; })()"
    whole = browser.run(span)
    left, top = browser.run("(({left, top}) => [left, top])(document.getElementById('map').getBoundingClientRect())")

    def drag(points):
        browser.call(
            "Input.dispatchMouseEvent", type="mousePressed", x=points[0][0], y=points[0][1], button="left", clickCount=1
        )
        for x, y in points[1:]:
            browser.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y, button="left", buttons=1)
        browser.call("Input.dispatchMouseEvent", type="mouseReleased", x=points[-1][0], y=points[-1][1], button="left")

    drag([(left + 100, top + 60), (left + 200, top + 160), (left + 400, top + 360)])
    browser.wait_for(f"{span} < {0.7 * whole}")
    browser.run("document.querySelector('[data-tool=reset]').click()")
    browser.wait_for(f"Math.abs({span} - {whole}) < 1e-6 * {whole}")
    browser.run("document.querySelector('[data-tool=lasso]').click()")
    browser.wait_for("document.getElementById('map')._fullLayout.dragmode === 'lasso'")
    x, y = browser.run(POINT)  # around one sample, hence not around all
    drag([(x - 30, y - 30), (x + 30, y - 30), (x + 30, y + 30), (x - 30, y + 30), (x - 30, y - 25)])
    browser.wait_for("Number(document.getElementById('map').dataset.chosen) > 0")
    assert "by lasso" in browser.run("document.getElementById('chosen-text').textContent")
    browser.run("document.querySelector('[data-tool=pan]').click()")
    assert browser.run("document.querySelector('[data-tool=pan]').getAttribute('aria-pressed')") == "true"
    assert browser.errors == []


def test_a_layer_is_followed_by_map_gallery_sizes_and_tree(browser, report):
    browser.errors.clear()
    browser.open(report, 1400)
    values = browser.run("[...(document.getElementById('layer')?.options ?? [])].map((o) => o.value)")
    if len(values) < 2:
        pytest.skip("this tree has one layer only")
    browser.run(
        f"(() => {{ const box = document.getElementById('layer'); box.value = {json.dumps(values[-1])};"
        "box.dispatchEvent(new Event('change')); })()"
    )
    browser.wait_for(f"document.documentElement.dataset.shownLayer === {json.dumps(values[-1])}")
    assert browser.run("document.getElementById('map').dataset.level") == values[-1]
    shown = browser.run("[...document.querySelectorAll('[data-layer]')].filter((e) => !e.hidden).map((e) => e.dataset.layer)")
    assert set(shown) == {values[-1]}
    assert len(shown) == 3
    assert browser.run(f"document.querySelectorAll('#{values[-1]}-tree-plot svg').length") > 0
    assert browser.errors == []


def test_it_ends_with_what_to_check_next(browser, report):
    browser.open(report, 390)
    assert browser.run("[...document.querySelectorAll('section')].at(-1).id") == "checks"
    assert "Does it repeat?" in browser.run("document.getElementById('checks').innerText")
