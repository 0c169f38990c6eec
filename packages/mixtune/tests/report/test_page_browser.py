"""The page in a real browser: nothing fetched, no errors, nothing cut off, readable on a phone."""

import json
import os
import re
import shutil
import subprocess
import threading
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files

import numpy as np
import pytest

from mixtune.data import read_training
from mixtune.estimators import RegretOptimalClassifierCV, RegretOptimalRegressorCV, training_rows
from mixtune.report import report_html
from mixtune.report.every import heat_map

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed")

# A page around it measures: what sticks out sideways, words in charts that are cut
# off or lie on each other.
MEASURE = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body>
<iframe id="f" src="/report.html" width="WIDTH" height="5000"></iframe><pre id="found"></pre><script>
document.getElementById("f").onload = function () {
  const page = this.contentDocument;
  page.querySelectorAll("details").forEach(each => { each.open = true; });
  const found = {wide: page.documentElement.scrollWidth, cut: [], overlap: [], sticking: []};
  const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1
    && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
  const meets = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  for (const svg of page.querySelectorAll("svg")) {
    const box = svg.getBoundingClientRect(), words = [...svg.querySelectorAll("text")];
    const boxes = words.map(w => w.getBoundingClientRect());
    boxes.forEach((b, i) => {
      if (!inside(b, box)) found.cut.push(words[i].textContent);
      for (let j = 0; j < i; j++)
        if (meets(b, boxes[j])) found.overlap.push([words[i].textContent, words[j].textContent]);
    });
  }
  for (const e of page.querySelectorAll("main *:not(.unseen)")) {
    const b = e.getBoundingClientRect();
    if (b.width && b.right > WIDTH + 1) found.sticking.push(e.tagName + "." + e.getAttribute("class"));
  }
  found.sections = [...page.querySelectorAll("section")].map(s => s.id);
  found.background = getComputedStyle(page.body).backgroundColor;
  found.smallest = Math.min(...[...page.querySelectorAll("svg text")].map(t => t.getBoundingClientRect().height));
  document.getElementById("found").textContent = JSON.stringify(found);
};</script></body></html>"""


@pytest.fixture(scope="module")
def made():
    rng = np.random.default_rng(0)

    def draw(n, shift):
        X = rng.standard_normal((n, 3))
        y = X @ (np.array([1.0, -0.5, 0.3]) + shift) + X[:, 0] * X[:, 1] + 0.6 * rng.standard_normal(n)
        return X, 90_000 + 20_000 * y

    names = [
        "<script>alert(1)</script>",
        "y" * 200,
        *(f"a school with a rather long name, number {k}" for k in range(33)),
    ]
    X, y = draw(25, 0.0)
    sources = {name: draw(20, rng.uniform(-0.4, 0.4)) for name in names}
    model = RegretOptimalRegressorCV().fit(X, y, sources=sources)
    return model, X, report_html(model, X=X, y=y, sources=sources, target="price of a house in the old town")


@pytest.fixture(scope="module")
def fitted(made):
    return made[:2]


@pytest.fixture(scope="module")
def report(made):
    return made[2]


@pytest.fixture
def serve():
    """A server that says what it was asked for."""
    asked, pages = [], {}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            body = pages.get(self.path)
            self.send_response(200 if body is not None else 404)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.end_headers()
            self.wfile.write((body or "").encode())

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield pages, asked, f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    thread.join()
    server.server_close()


def browse(url, tmp_path, *options):
    """Run Chromium; return what it printed, and what its console said."""
    command = [
        *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr"),
        *("--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking", "--disable-extensions"),
        "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
        *(f"--user-data-dir={tmp_path / 'profile'}", *options, url),
    ]
    run = subprocess.run(
        command, capture_output=True, text=True, timeout=120, env={**os.environ, "HOME": str(tmp_path)}
    )
    assert run.returncode == 0, run.stderr[-2000:]
    return run.stdout, [line for line in run.stderr.splitlines() if "CONSOLE" in line]


def test_nothing_is_fetched_and_nothing_goes_wrong(report, serve, tmp_path):
    pages, asked, home = serve
    pages["/report.html"] = report
    dom, console = browse(f"{home}/report.html", tmp_path, "--dump-dom")
    assert console == []
    assert asked == ["/report.html"]
    for part in ("verdict", "effects", "what-if", "datasets", "comparison", "rows", "misses", "removal", "spreads"):
        assert f'id="{part}"' in dom
    for part in ("details", "path", "average", "settings", "words"):
        assert f'id="{part}"' in dom
    assert dom.count("<svg") == 6 + 3 + 3
    # The model, and the script of the page; names of datasets are text.
    assert dom.count("<script") == 2


def test_errors_and_fetches_would_be_seen(report, serve, tmp_path):
    pages, asked, home = serve
    broken = report.replace("<main>", '<main><img src="/a.png"><script>console.error("seen")</script>')
    # With its own policy the page refuses to load and to run, and the console tells.
    pages["/report.html"] = broken
    _, console = browse(f"{home}/report.html", tmp_path, "--dump-dom")
    assert len(console) >= 2
    assert asked == ["/report.html"]
    pages["/report.html"] = re.sub("<meta http-equiv[^>]*>", "", broken)
    _, console = browse(f"{home}/report.html", tmp_path, "--dump-dom")
    assert any("seen" in line for line in console)
    assert "/a.png" in asked


def measure(report, width, serve, tmp_path):
    pages, _, home = serve
    pages |= {"/report.html": report, "/measure.html": MEASURE.replace("WIDTH", str(width))}
    options = ("--dump-dom", "--virtual-time-budget=5000", "--window-size=1400,1000")
    dom, _ = browse(f"{home}/measure.html", tmp_path, *options)
    found = json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]))
    assert len(found["sections"]) == 12, "the page was not measured"
    return found


# Sets every control of the panel, row by row, and sorts a table with the keyboard's click.
USE = """<!DOCTYPE html><html><head><link rel="icon" href="data:,"></head><body>
<iframe id="f" src="/report.html" width="1000" height="5000"></iframe><pre id="found"></pre><script>
document.getElementById("f").onload = function () {
  const page = this.contentDocument, rows = ROWS, found = {values: [], outside: []};
  const boxes = [...page.querySelectorAll("#panel input[type=number], #panel select")];
  const read = () => JSON.parse(page.getElementById("prediction").dataset.value);
  found.first = read();
  for (const row of rows) {
    boxes.forEach((box, i) => {
      box.value = row[i];
      box.dispatchEvent(new Event(box.tagName === "SELECT" ? "change" : "input"));
    });
    found.values.push(read());
    found.outside.push(page.getElementById("outside").textContent);
  }
  const slider = page.querySelector("#panel input[type=range]");
  slider.focus();
  found.focused = page.activeElement === slider;
  const table = page.querySelector("#comparison table"), button = table.querySelectorAll("thead button")[1];
  const column = () => [...table.querySelectorAll("tbody tr")].map(r => r.cells[1].textContent);
  button.click(); found.down = column(); button.click(); found.up = column();
  found.sorted = table.querySelectorAll("thead th")[1].getAttribute("aria-sort");
  document.getElementById("found").textContent = JSON.stringify(found);
};</script></body></html>"""


def use(page, rows, serve, tmp_path):
    pages, _, home = serve
    pages |= {"/report.html": page, "/use.html": USE.replace("ROWS", json.dumps(rows))}
    dom, console = browse(f"{home}/use.html", tmp_path, "--dump-dom", "--virtual-time-budget=5000")
    assert console == []
    return json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]))


def test_the_page_predicts_as_python_does(fitted, report, serve, tmp_path):
    model, X = fitted
    # Within the rows and far outside.
    assert all(each.name.startswith(("kernel", "lines")) for each in model.maps_)
    rows = np.vstack([X[:10], X[:3] * 0.0, X.min(axis=0), X.max(axis=0), 30 * X[:2]])
    found = use(report, rows.tolist(), serve, tmp_path)
    expected = model.predict(rows)
    np.testing.assert_allclose(np.ravel(found["values"]), expected, rtol=1e-9, atol=1e-6)
    assert found["first"] == pytest.approx(model.predict(np.median(X, axis=0)[None]).tolist())
    assert found["outside"][0] == ""
    assert found["outside"][-1].startswith("Outside the range of the focal rows: x0")
    assert found["focused"]
    numbers = [float(text.replace(",", "")) for text in found["down"]]
    assert numbers == sorted(numbers, reverse=True)
    assert found["up"] == found["down"][::-1]
    assert found["sorted"] == "ascending"


def test_the_page_predicts_classes_of_categories(serve, tmp_path):
    rng = np.random.default_rng(0)
    size, colour = rng.uniform(1, 9, 120).round(2), rng.choice(["red", "green", "<b>"], 120)
    label = np.where(size + 3 * (colour == "green") + rng.standard_normal(120) > 5, "yes", "no")
    table = {"site": ["a"] * 40 + ["b"] * 80, "size": size, "colour": colour, "sold": label}
    read = read_training(table, target="sold", domain="site", focal="a")
    X, y, sources = training_rows(read)
    model = RegretOptimalClassifierCV().fit(X, y, sources=sources)
    page = report_html(model, X=X, y=y, sources=sources, target="sold", columns=read.encoder)
    assert "<b>" not in page.split('id="model"')[1].split("</script>")[0]
    levels = read.encoder.columns[1].levels
    rows = [[2.0, 0], [5.0, 1], [8.5, 2]]
    found = use(page, rows, serve, tmp_path)
    new = {"size": [row[0] for row in rows], "colour": [levels[row[1]] for row in rows]}
    np.testing.assert_allclose(found["values"], model.predict_proba(read.encoder.encode(new).X), atol=1e-9)


@pytest.mark.parametrize("width", [360, 768, 1200])
def test_words_fit(width, report, serve, tmp_path):
    found = measure(report, width, serve, tmp_path)
    assert found["wide"] <= width
    assert (found["cut"], found["overlap"], found["sticking"]) == ([], [], [])
    assert found["smallest"] >= 9


def test_words_that_do_not_fit_would_be_seen(report, serve, tmp_path):
    found = measure(report.replace("svg text { font-size: 12px", "svg text { font-size: 40px"), 360, serve, tmp_path)
    assert found["cut"]
    assert found["overlap"]
    wide = report.replace("<main>", '<main><div style="width:600px">wide</div>')
    found = measure(wide, 360, serve, tmp_path)
    assert found["wide"] > 360
    assert found["sticking"]


@pytest.mark.parametrize(("scheme", "paper"), [("1", "rgb(252, 251, 248)"), ("0", "rgb(20, 24, 26)")])
def test_light_and_dark(scheme, paper, report, serve, tmp_path):
    pages, _, home = serve
    pages |= {"/report.html": report, "/measure.html": MEASURE.replace("WIDTH", "900")}
    options = ("--dump-dom", "--virtual-time-budget=5000", f"--blink-settings=preferredColorScheme={scheme}")
    dom, _ = browse(f"{home}/measure.html", tmp_path, *options)
    assert paper in dom


def test_it_can_be_opened_from_disk_and_printed(report, tmp_path):
    (tmp_path / "report.html").write_text(report, encoding="utf-8")
    url = (tmp_path / "report.html").as_uri()
    _, console = browse(url, tmp_path, f"--screenshot={tmp_path / 'a.png'}", "--window-size=1200,2000")
    assert console == []
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "a.png").stat().st_size > 20_000
    browse(url, tmp_path, f"--print-to-pdf={tmp_path / 'a.pdf'}")
    assert (tmp_path / "a.pdf").read_bytes().startswith(b"%PDF")


ORDER = """<!doctype html><html><body><pre id="found"></pre><iframe id="page" src="/report.html"></iframe><script>
document.getElementById("page").onload = event => {
  const page = event.target.contentDocument, map = page.querySelector("[data-orders]");
  const height = each => +each.getAttribute("y");
  const lines = () => [...map.querySelectorAll("text[data-line]")].sort((a, b) => height(a) - height(b))
    .map(each => each.textContent);
  const cell = () => { const each = map.querySelector("rect[data-line]");
    return [each.querySelector("title").textContent, +each.getAttribute("x"), +each.getAttribute("y")]; };
  const select = map.querySelector("select"), found = {before: lines()};
  select.value = "by name"; select.dispatchEvent(new Event("change"));
  Object.assign(found, {after: lines(), cell: cell(), size: +map.dataset.size});
  document.getElementById("found").textContent = JSON.stringify(found);
};</script></body></html>"""


def test_the_reader_orders_the_map_of_who_borrows(serve, tmp_path):
    weights = np.random.default_rng(0).uniform(size=(9, 9)) / 9
    names = [f"town {k}" for k in (4, 7, 1, 0, 8, 2, 6, 3, 5)]
    script = files("mixtune.report").joinpath("page.js").read_text()
    pages, _, home = serve
    drawn = heat_map(weights, names, [5] * 9)
    pages |= {"/report.html": f"<body>{drawn}<script>{script}</script></body>", "/use.html": ORDER}
    dom, console = browse(f"{home}/use.html", tmp_path, "--dump-dom", "--virtual-time-budget=5000")
    assert console == []
    found = json.loads(unescape(re.search(r'<pre id="found">(.*?)</pre>', dom, re.DOTALL)[1]))
    assert sorted(found["before"]) == found["after"] == sorted(names)
    assert found["before"] != found["after"]
    tip, x, y = found["cell"]
    line, other = re.fullmatch(r"town (\d) borrows .* from town (\d)", tip).groups()
    assert (x, y) == pytest.approx((92 + found["size"] * int(other), 8 + found["size"] * int(line)), abs=1e-3)
