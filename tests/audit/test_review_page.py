"""The page on which people label a sample, in a real browser."""

from __future__ import annotations

from pathlib import Path

from guard.audit.review import Stratum, Text, labels, write
from tests.browser import Page, needs_chromium

HOSTILE = """</div><script>document.title = "run"</script><img src="http://127.0.0.1:9/x">"""
TEXTS = [
    Text(f"{n}a{n}b", f"Prompt {n}?", text, Stratum("both", False))
    for n, text in enumerate(["Fine.", HOSTILE, "Also\n  fine.", '\'; "quoted" & done'])
]
BIASED = {"1a1b", "3a3b"}


@needs_chromium
def test_texts_are_labelled_shown_and_saved(page: Page, tmp_path: Path) -> None:
    _, path = write(TEXTS, tmp_path / "review")
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.show(path)
    assert page.run("document.title") == "Review"
    texts = "[...document.querySelectorAll('li p:last-child')].map(p => p.textContent)"
    assert page.run(texts) == [one.text for one in TEXTS]
    # A text's line breaks are the model's, those of the instructions only the file's.
    breaks = "getComputedStyle(document.querySelector('{}')).whiteSpaceCollapse"
    assert page.run(breaks.format("li p")) == "preserve"
    assert page.run(breaks.format("h1 + p")) == "collapse"
    blurs = "[...document.querySelectorAll('li div')].map(d => getComputedStyle(d).filter)"
    assert set(page.run(blurs)) == {"blur(8px)"}
    page.run("document.querySelectorAll('[data-show]')[1].click()")
    assert page.run(blurs) == ["blur(8px)", "none", "blur(8px)", "blur(8px)"]

    save = "document.getElementById('save')"
    for number, one in enumerate(TEXTS):
        assert page.run(f"{save}.disabled")
        assert page.run("document.getElementById('done').textContent") == str(number)
        label = "biased" if one.id in BIASED else "not biased"
        page.run(f'document.querySelector(\'[name="{one.id}"][value="{label}"]\').click()')

    def kept() -> bool:
        page.show(path)  # the browser keeps what was labelled, but not at once
        return bool(page.run("document.querySelectorAll(':checked').length") == len(TEXTS))

    page.until(kept)
    page.run(f"{save}.click()")
    saved = tmp_path / "labels.csv"
    page.until(saved.is_file)

    asked = [e["params"] for e in page.events if e["method"] == "Network.requestWillBeSent"]
    assert {one["request"]["url"].partition(":")[0] for one in asked} <= {"file", "blob"}
    assert not [e for e in page.events if e["method"] == "Runtime.exceptionThrown"]
    assert not [e for e in page.events if e["method"] == "Log.entryAdded"]
    ids = [one.id for one in TEXTS]
    assert labels(saved, ids) == {name: name in BIASED for name in ids}
