import base64
import hashlib
import json
import re

import pytest

from seqmixer.experiments.report.page import (
    TEMPLATES,
    Chapter,
    Curves,
    Drawing,
    History,
    Page,
    ReportTable,
    embedded,
    visible,
)

EVIL = "</script><script>alert(1)</script> <!-- & \u2028 \u202e \x1b \ud800"


def page(**values):
    table = ReportTable("A table", ["", EVIL], [["row, second", "**1.00 ± 0.50**"], [EVIL, "2.00"]], note=EVIL)
    figure = Drawing("drawn", "<svg><text>1</text></svg>", EVIL)
    curves = Curves(
        [History(EVIL, "var(--run-0)", [{"event": "epoch", "stage": EVIL, "train": {"loss": float("nan")}}])]
    )
    return Page(
        EVIL, EVIL, [Chapter(EVIL, [table, figure, EVIL, curves])], commands=[EVIL], facts=[(EVIL, EVIL)], **values
    )


def test_text_of_data_is_never_markup():
    html = page().html()
    assert html.count("<script") == 2  # the data and the page's own
    assert html.count("</script") == 2
    assert "<!--" not in html
    assert "[U+202E]" in html
    assert not re.search("[\u2028\u202e\x1b\ud800]", html)


def test_only_the_pages_own_script_may_run_and_nothing_may_be_loaded():
    html = page().html()
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', html)[1].replace("&#39;", "'")
    script = re.search(r"<script>(.*)</script>", html, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    rules = dict(rule.split(" ", 1) for rule in policy.split("; "))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    assert rules["script-src"] == f"'sha256-{digest}'"
    assert "'self'" in page(live=True).html().partition("<title>")[0].replace("&#39;", "'")


def test_embedded_values_come_back():
    value = {"text": "a < b & c", "number": 1 / 3, "whole": 12345678, "none": None, "flag": True, "list": [1, [2.5]]}
    assert json.loads(embedded(value)) == value | {"number": 0.333333}


def test_what_hides_is_spelled_and_emoji_stay():
    assert visible("\u200d👩\u200d👧 tab\t line\n") == "\u200d👩\u200d👧 tab\t line\n"
    for code in (0x00, 0x1B, 0x7F, 0x85, 0x200B, 0x200E, 0x2028, 0x202A, 0x202E, 0x2066, 0x2069, 0xFEFF, 0xD800):
        assert visible(f"a{chr(code)}b") == f"a[U+{code:04X}]b"


def test_markdown_has_tables_figures_and_text(tmp_path):
    table = ReportTable("Scores", ["", "bleu"], [["one", "**1.00**"]], note="A note.")
    figure = Drawing("gains", "<svg><text>1</text></svg>", "A caption.")
    found = Page(
        "Title", "Found.", [Chapter("Scores", [table, figure, "Text."])], commands=["seqmixer x"], facts=[("n", "1")]
    )
    path = found.markdown(tmp_path / "docs", "stem")
    assert path.read_text() == (
        "# Title\n\nFound.\n\n## Scores\n\n|  | bleu |\n| --- | ---: |\n| one | **1.00** |\n\nA note.\n\n"
        "![A caption.](stem-gains.svg)\n\nText.\n\n## How this was made\n\n- n: 1\n\n```\nseqmixer x\n```\n"
    )
    assert (tmp_path / "docs/stem-gains.svg").read_text().startswith("<svg><style>")


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_colours_can_be_told_from_the_page(theme):
    """WCAG 2.2: 4.5 for text, 3 for lines."""
    blocks = re.findall(r":root \{(.*?)\n\s*\}", page().html(), re.DOTALL)
    colours = dict(re.findall(r"--([\w-]+): (#\w+)", blocks[theme]))
    colours = {
        name: f"#{2 * value[1]}{2 * value[2]}{2 * value[3]}" if len(value) == 4 else value
        for name, value in colours.items()
    }
    for name in ("ink", "soft", "good", "bad"):
        assert contrast(colours[name], colours["page"]) >= 4.5, name
        assert contrast(colours[name], colours["tint"]) >= 4.5, name
    assert contrast(colours["ink"], colours["mark"]) >= 4.5
    for name in (*(f"run-{i}" for i in range(8)), "focus"):
        assert contrast(colours[name], colours["page"]) >= 3, name


def test_scripts_and_style_are_in_the_package():
    assert {path.suffix for path in TEMPLATES.iterdir()} >= {".js", ".css", ".html", ".md"}
    project = (TEMPLATES.parents[3] / "pyproject.toml").read_text()
    for pattern in ("experiments/**/*.html", "experiments/**/*.css", "experiments/**/*.js", "experiments/**/*.md"):
        assert f'"{pattern}"' in project
