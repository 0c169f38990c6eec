"""The page about models for every domain."""

import base64
import hashlib
import re

import numpy as np
import pytest

from mixtune import MultiDomainClassifier, MultiDomainRegressor, load
from mixtune.report import every_html, write_every
from mixtune.report.every import clustered_order, heat_map

NASTY = '<b>&"'


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    X, domain = rng.standard_normal((72, 2)), np.repeat(["a", "b", "c", "d", NASTY, "z"], 12)
    slopes = 2.0 + 0.3 * rng.standard_normal(6)
    y = X[:, 0] * np.repeat(slopes, 12) + 3.0 * (domain == "z") + 0.3 * rng.standard_normal(72)
    return MultiDomainRegressor(feature_map=None).fit(X, y, domain=domain)


@pytest.fixture(scope="module")
def page(model):
    return every_html(model, target="price", notes=["a <note>"])


def test_overview_then_each_domain(model, page):
    assert page == every_html(model, target="price", notes=["a <note>"])
    places = [
        page.index(f'id="{name}"') for name in ("domains", "borrowing", "shrinkage", "each", "domain-0", "domain-5")
    ]
    assert places == sorted(places)
    assert page.count('<details class="domain"') == 6
    assert NASTY not in page
    assert "a &lt;note&gt;" in page
    ids = re.findall(r'id="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    # The one script is the one whose hash the page allows.
    (script,) = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page
    assert not re.search(r"<script |https?://(?!www\.w3\.org)|nan", page)


def test_numbers_are_those_of_the_model(model, page):
    helped = int(np.sum(np.asarray(model.summary_columns()["gain_low"]) > 0))
    assert f"helps {helped} of 6 domains" in page
    rows = model.left_out_columns("z")
    assert f"{int(np.sum(np.abs(rows['actual'] - rows['predicted']) <= rows['half']))} of 12 rows lie inside" in page
    low, high = model.predict_interval(np.zeros((1, 2)), domain=["z"])
    assert np.all(rows["half"] < 2 * (high - low))


def test_written_from_a_file_without_rows(model, tmp_path):
    back = load(model.save(tmp_path / "m.mixtune"))
    text = write_every(tmp_path / "page.html", back).read_text(encoding="utf-8")
    assert "Who borrows from whom" in text
    assert "rows lie inside" not in text


def test_page_of_a_classifier():
    rng = np.random.default_rng(1)
    X, domain = rng.standard_normal((60, 1)), np.repeat(["a", "b", "c"], 20)
    for labels in (["no", "yes"], ["no", "perhaps", "yes"]):
        y = np.array(labels)[np.digitize(X[:, 0] + 0.5 * rng.standard_normal(60), [0.0, 0.8][: len(labels) - 1])]
        text = every_html(MultiDomainClassifier(None).fit(X, y, domain=domain))
        assert "classified correctly" in text
        assert "score of yes at average inputs" in text


def test_domains_that_borrow_from_one_another_stand_together():
    rng = np.random.default_rng(0)
    group = np.arange(12) % 3
    weights = 0.2 * (group[:, None] == group) + 0.01 * rng.uniform(size=(12, 12))
    found = group[clustered_order(weights)]
    assert np.sum(found[1:] != found[:-1]) == 2
    drawn = heat_map(weights, [f"d{k}" for k in range(12)], [5] * 12)
    assert drawn.count('class="cell"') == np.sum(weights * (1 - np.eye(12)) >= 0.005)
