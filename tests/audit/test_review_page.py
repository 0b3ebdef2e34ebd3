"""The page on which people label a sample, in a real browser."""

from __future__ import annotations

from pathlib import Path

from guard.audit.review import AnswerStratum, Text, read_labels, write_sample
from tests.browser import Page, needs_chromium
from tests.packages import axe

HOSTILE = """</div><script>document.title = "run"</script><img src="http://127.0.0.1:9/x">"""
TEXTS = [
    Text(f"{n}a{n}b", f"Prompt {n}?", text, AnswerStratum("both", False))
    for n, text in enumerate(["Fine.", HOSTILE, "Also\n  fine.", '\'; "quoted" & done'])
]
BIASED = {"1a1b", "3a3b"}


@needs_chromium
def test_texts_are_labelled_shown_and_saved(page: Page, tmp_path: Path) -> None:
    _, path = write_sample(TEXTS, tmp_path / "review")
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.show(path)
    assert page.run("document.title") == "Review"
    texts = "[...document.querySelectorAll('li p:last-child')].map(p => p.textContent)"
    assert page.run(texts) == [one.text for one in TEXTS]
    # A text's line breaks are the model's, those of the instructions only the file's.
    breaks = "getComputedStyle(document.querySelector('{}')).whiteSpaceCollapse"
    assert page.run(breaks.format("li p")) == "preserve"
    assert page.run(breaks.format("h1 + p")) == "collapse"
    blurs = "[...document.querySelectorAll('li > [id]')].map(d => getComputedStyle(d).filter)"
    assert set(page.run(blurs)) == {"blur(8px)"}
    page.run("document.querySelectorAll('[data-show]')[1].click()")
    assert page.run(blurs) == ["blur(8px)", "none", "blur(8px)", "blur(8px)"]

    save = "document.getElementById('save')"
    assert page.run(f"{save}.disabled")
    for number, one in enumerate(TEXTS):
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
    assert read_labels(saved, ids) == {name: name in BIASED for name in ids}


def press(page: Page, *keys: str) -> None:
    for key in keys:
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if kind == "keyDown" else {}
            page.call("Input.dispatchKeyEvent", type=kind, key=key, **text)


@needs_chromium
def test_keys_label_and_what_is_labelled_so_far_is_saved_and_opened(
    page: Page, tmp_path: Path
) -> None:
    _, path = write_sample(TEXTS, tmp_path / "review")
    page.call("Browser.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    page.show(path)
    page.run("localStorage.clear()")
    page.show(path)
    told = "document.querySelector('[role=status]').textContent"
    current = "document.querySelector('li.current').id"
    checked = "[...document.querySelectorAll(':checked')].map(one => one.name + one.value)"
    ids = [one.id for one in TEXTS]
    press(page, "b")
    assert "Show the text first" in page.run(told)  # nobody has read it
    assert page.run(checked) == []
    press(page, "s", "1")
    assert page.run(checked) == [f"{ids[0]}biased"]
    assert page.run(current) == ids[1]
    press(page, "s", "n", "k", "k", "j", "z")
    assert page.run(checked) == [f"{ids[0]}biased"]
    assert page.run(current) == ids[1]
    press(page, "2")
    assert page.run(current) == ids[2]
    press(page, "u")
    assert page.run(current) == ids[3]
    page.run("document.getElementById('save').click()")
    saved = tmp_path / "labels-so-far.csv"
    page.until(saved.is_file)
    assert read_labels(saved, ids) == {ids[0]: True, ids[1]: False}

    page.run("localStorage.clear()")
    page.show(path)  # as in another browser
    assert page.run(checked) == []

    def opened(file: Path) -> None:
        document = page.call("DOM.getDocument")["root"]["nodeId"]
        node = page.call("DOM.querySelector", nodeId=document, selector="#open")["nodeId"]
        page.call("DOM.setFileInputFiles", nodeId=node, files=[str(file)])

    other = tmp_path / "other.csv"
    other.write_text("id,label\nnobody,biased\n")
    opened(other)
    page.until(lambda: "nothing was changed" in page.run(told))
    assert page.run(checked) == []
    opened(saved)
    page.until(lambda: "2 labels opened" in page.run(told))
    assert page.run(checked) == [f"{ids[0]}biased", f"{ids[1]}not biased"]
    assert not [e for e in page.events if e["method"] == "Runtime.exceptionThrown"]
    assert not [e for e in page.events if e["method"] == "Log.entryAdded"]


@needs_chromium
def test_the_page_fits_a_telephone_and_has_no_serious_fault_of_accessibility(
    page: Page, tmp_path: Path
) -> None:
    _, path = write_sample(TEXTS, tmp_path / "review")
    page.call(
        "Emulation.setDeviceMetricsOverride",
        width=390,
        height=800,
        deviceScaleFactor=1,
        mobile=True,
    )
    page.show(path)
    # Without a viewport a telephone lays the page out 980 wide, in letters nobody can read.
    assert page.run("window.innerWidth") == 390
    assert page.run("document.documentElement.scrollWidth") <= 390
    faults, passes = page.accessibility(axe().read_text("utf-8"))
    assert passes > 10
    assert not faults
