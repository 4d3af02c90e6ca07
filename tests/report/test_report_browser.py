"""Opens report.html in headless Chromium: the charts are drawn, the console has no messages,
no text of the run becomes markup, nothing is fetched.

Needs Debian's chromium and the test_report program; the page is written by its sample
test. LFT_BUILD is the build folder (build).
"""

import html
import os
import pathlib
import re
import shutil
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("LFT_BUILD", ROOT / "build"))
HEADLESS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--hide-scrollbars",
    "--enable-logging=stderr",
    "--virtual-time-budget=5000",
]


def chromium(profile, page, *options):
    command = [
        shutil.which("chromium"),
        *HEADLESS,
        f"--user-data-dir={profile}",
        *options,
        page.as_uri(),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)


def sample(folder, test):
    path = folder / "report.html"
    subprocess.run(
        [BUILD / "tests" / "test_report", f"--gtest_filter=Report.{test}"],
        env={**os.environ, "LFT_SAMPLE_REPORT": str(path)},
        check=True,
    )
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return sample(tmp_path_factory.mktemp("report"), "PageStandsAlone")


@pytest.fixture(scope="module")
def opened(page, tmp_path_factory):
    return chromium(tmp_path_factory.mktemp("profile"), page, "--dump-dom")


def test_console_is_silent(opened):
    assert "CONSOLE" not in opened.stderr, opened.stderr


def test_charts_are_drawn(opened):
    assert 'data-charts="4"' in opened.stdout
    canvases = re.findall(
        r'<canvas id="chart-(\w+)"[^>]*width="(\d+)" height="(\d+)"', opened.stdout
    )
    assert [name for name, _, _ in canvases] == ["loss", "lr", "grad_norm", "speed"]
    assert all(int(width) > 300 and int(height) > 200 for _, width, height in canvases)


def test_layer_maps_are_drawn(opened):
    maps = re.findall(r'<canvas id="map-(\w+)"[^>]*width="(\d+)" height="(\d+)"', opened.stdout)
    assert [name for name, _, _ in maps] == ["layer_grad_norms", "layer_activation_norms"]
    assert all(int(width) > 300 and int(height) > 200 for _, width, height in maps)


def body_of(dom):
    return dom.split("<main>")[1].split("</main>")[0]


def test_the_page_starts_with_the_verdict_and_answers_come_before_the_curves(opened):
    body = body_of(opened.stdout)
    places = [
        body.index(part)
        for part in [
            '<span class="state finished" id="state">finished</span>',
            ", the held-out loss fell from 2.4 to 0.111.",
            "<dt>best figure</dt><dd>held-out loss 0.1111 (step 400)</dd>",
            "✓ match",
            'id="chart-loss"',
            "<h3>fp32 recovery</h3><span>step 240 of 400</span>",
            "<summary>9 events</summary>",
        ]
    ]
    assert places == sorted(places)
    assert "<details open" not in body


def test_events_and_answers_are_listed(opened):
    body = body_of(opened.stdout)
    events = body.split('id="event-list"')[1].split("</details>")[0]
    assert events.count("<tr") == 1 + 9
    assert "<h3>norm warning</h3>" in body and "divergence in progress" in body
    assert "Next: lower optim.lr" in body and "<p>non-finite loss in bf16</p>" in body
    assert body.count("✓ match") == 5 and body.count("✗ differs") == 2
    assert body.count("<img") == 6


def test_pairs_show_both_answers_with_their_margins_and_curves(tmp_path):
    path = sample(tmp_path, "PairsHaveBothAnswersAndTheirMargins")
    shown = chromium(tmp_path / "profile", path, "--dump-dom")
    body = body_of(shown.stdout)
    assert "Uncaught" not in shown.stderr
    assert "<h2>Pairs<small>the margin is above 0 in 1 of the 1 shown</small>" in body
    assert "✓ margin above 0" in body and "&lt;/script&gt;no" in body
    rows = body.split('class="pair"')[1].split("</table>")[0]
    cells = re.findall("<td>(.*?)</td>", rows)
    assert cells[:4] == ["before", "-5", "-6", "–"]
    assert cells[-4:] == ["after", "-3", "-7", "0.4"]
    for chart in ["margin", "accuracy", "rewards", "logps"]:
        assert f'id="chart-{chart}"' in body
    narrow = path.read_text().replace(
        "</body>",
        "<script>document.title = document.documentElement.scrollWidth</script></body>",
    )
    path.write_text(narrow)
    dom = chromium(tmp_path / "profile", path, "--window-size=500,900", "--dump-dom").stdout
    assert int(re.search(r"<title>(\d+)</title>", dom)[1]) <= 500


def test_a_page_of_a_run_in_progress_reloads_and_says_since_when_it_is_old(page, tmp_path):
    text = page.read_text()

    def shown(written):
        running = text.replace('"state":"finished"', '"state":"running"')
        live = re.sub(r'"written":[0-9.e+]+', f'"written":{written}', running)
        path = tmp_path / "live.html"
        path.write_text(live)
        return body_of(chromium(tmp_path / "profile", path, "--dump-dom").stdout)

    fresh = shown(int(time.time()))
    assert ">in progress</span>" in fresh and "s ago)" in fresh
    assert "the process may have been killed" not in fresh
    old = shown(int(time.time()) - 600)
    assert ">no longer written</span>" in old
    assert "(10 min ago): since then nothing was written, the process may have been killed" in old
    assert "location.reload()" in text and "state === 'running'" in text


def test_text_stays_text(opened):
    body = body_of(opened.stdout)
    assert '<h1>quickstart: digits &lt;b&gt;&amp;"&lt;/title&gt;</h1>' in body
    assert "<b>" not in body and "<script" not in body and "onerror=alert(1)>" not in body
    assert "Say </script><!-- <img src=x onerror=alert(1)>" in html.unescape(body)


def test_a_narrow_page_does_not_scroll_sideways(page, tmp_path):
    """A script that the test adds measures the width: the page's policy allows inline scripts."""
    probe = (
        "<script>document.title = document.documentElement.scrollWidth + ' of ' + "
        "document.documentElement.clientWidth</script></body>"
    )
    path = tmp_path / "narrow.html"
    path.write_text(page.read_text().replace("</body>", probe))
    dom = chromium(tmp_path / "profile", path, "--window-size=500,900", "--dump-dom").stdout
    widths = re.search(r"<title>(\d+) of (\d+)</title>", dom)
    assert int(widths[1]) <= int(widths[2])


@pytest.mark.parametrize("width", [1280, 640])
def test_picture_shows_the_curves(page, tmp_path, width):
    image_module = pytest.importorskip("PIL.Image")
    shot = pathlib.Path(os.environ.get("LFT_REPORT_SHOTS", tmp_path)) / f"report-{width}.png"
    chromium(tmp_path / "profile", page, f"--window-size={width},3600", f"--screenshot={shot}")
    picture = image_module.open(shot).convert("RGB")
    assert picture.width == width
    colours = {colour: n for n, colour in picture.getcolors(picture.width * picture.height)}
    # The pure colours of the smoothed loss, learning rate, gradient norm and throughput
    # (see :root in report.html).
    for colour in [(0x25, 0x63, 0xEB), (0x0F, 0x8A, 0x6A), (0x7C, 0x3A, 0xED), (0xB7, 0x79, 0x1F)]:
        assert colours.get(colour, 0) > 100, colour
    # Both ends of the layer maps' scale, and the one non-finite cell of each.
    for colour in [(0x44, 0x01, 0x54), (0xFD, 0xE7, 0x25), (0xC2, 0x25, 0x5C)]:
        assert colours.get(colour, 0) > 30, colour
