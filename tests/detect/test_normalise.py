"""Disguised words are read as they look, ordinary text stays, and places hold."""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from urllib.parse import quote, quote_plus, unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

import guard
from guard.detect.language import is_other_language
from guard.detect.lookalikes import CYRILLIC, FAINT, GREEK, RAISED, SMALL, STYLED
from guard.detect.normalise import Normalised, undo_disguises
from guard.detect.script import mostly_latin
from guard.detect.weights import SHIPPED, TOKENIZER
from guard.detect.words import BORROWED, ENGLISH
from guard.gate.segmenter import split
from guard.verdict import Span
from tests.data import DATA, needs_data
from tests.rows import examples, rows

ROOT = Path(__file__).resolve().parents[2]

VOCABULARY = Tokenizer.from_file(str(SHIPPED / TOKENIZER))
WORDS = sorted(w for w in ENGLISH if w.isalpha())
LONG = sorted(w for w in WORDS if len(w) > 3)


def known(word: str) -> bool:
    return VOCABULARY.token_to_id(word) is not None


def read(text: str) -> Normalised:
    return undo_disguises(text, known)


def column(path: Path, key: str) -> list[str]:
    return [json.loads(line)[key] for line in path.read_text(encoding="utf-8").splitlines()]


DISGUISED = {
    "leet": [
        ("W0men are stup1d", "Women are stupid"),
        ("$tupid 1diots!", "stupid idiots!"),
        ("dumb b!tch, wh1te tr@sh", "dumb bitch, white trash"),
        ("Y0u d0 n0t", "You do not"),
        ("WOM3N ARE L4ZY", "WOMEN ARE LAZY"),
        ("(p30ple)", "(people)"),
        ("g4y men", "gay men"),
        ("c47s 4r3 l4zy 4nd 700 5low 70 jump", "cats are lazy and too slow to jump"),
        ("W0M3N 4R3 B0R1NG", "WOMEN ARE BORING"),
    ],
    "Markdown": [
        ("## Farmers are lazy", "Farmers are lazy"),
        ("> # Farmers are lazy", "> Farmers are lazy"),
        ("**Far**mers and **wo**men", "Farmers and women"),
        ("la*z*y, cle`v`er, b~~orin~~g", "lazy, clever, boring"),
        ("_lazy_ and ***very*** ~~boring~~", "lazy and very boring"),
        ("**Farmers _are_ lazy.** They sleep", "Farmers are lazy. They sleep"),
        ("*a **b** c*", "a b c"),
        ("**doc**tor's", "doctor's"),
    ],
    "tags and joined words": [
        ("#FarmersCantRead", "Farmers Cant Read"),
        ("#farmersaretoolazy #lazy!", "farmers are too lazy lazy!"),
        ("(#Farmers never sleep)", "(Farmers never sleep)"),
        ("So FarmersAreTooLazy to work.", "So Farmers Are Too Lazy to work."),
        ("yes farmersarealwayslazy", "yes farmers are always lazy"),
        ("IThinkTheyAreLazy", "I Think They Are Lazy"),
    ],
    "chat": [
        ("farmers r 2 slow 2 work", "farmers are too slow to work"),
        ("tbh ppl r lazy n dull", "to be honest people are lazy and dull"),
        ("Ppl know ur late, cuz u sleep.", "People know your late, because you sleep."),
        ("gr8 4 farmers", "great 4 farmers"),
        ("its gr8 4 me", "its great for me"),
        ("farmers are 2 slow 2 work", "farmers are too slow to work"),
    ],
    "drawn out": [
        ("stuuupid", "stupid"),
        ("They are sooooo laaazy", "They are so lazy"),
        ("cooool", "cool"),
        ("w000men", "women"),
        ("REALLLLY", "REALLY"),
    ],
    "apart": [
        ("w o m e n", "women"),
        ("Women are t o o  s t u p i d to lead", "Women are too  stupid to lead"),
        ("They are t o o s t u p i d.", "They are too stupid."),
        ("I w a l k e d home", "I walked home"),
        ("w o m e n I know", "women I know"),
        ("s.t.u.p.i.d", "stupid"),
        ("l-a-z-y people", "lazy people"),
        ("s_t_u_p_i_d", "stupid"),
        ("s*t*u*p*i*d", "stupid"),
        ("w 0 m 3 n", "women"),
        ("L A Z Y", "LAZY"),
    ],
    "look-alikes": [
        ("Wоmеn аre ѕtuріd", "Women are stupid"),  # Cyrillic among Latin letters
        ("Those сосо farmers", "Those coco farmers"),  # a word of Cyrillic letters alone
        ("Wοmen are lαzy", "Women are lazy"),  # Greek
        ("wօmeո", "women"),  # Armenian
        ("The womeи аге lazy", "The women аге lazy"),  # one that merely resembles its letter
        ("𝓦𝓸𝓶𝓮𝓷 𝕒𝕣𝕖 𝙡𝙖𝙯𝙮", "Women are lazy"),
        ("Ｗｏｍｅｎ are ｌａｚｙ", "Women are lazy"),
        ("ⓦⓞⓜⓔⓝ 🅰🆁🅴 🄻🄰🅉🅈", "women ARE LAZY"),
        ("ᴡᴏᴍᴇɴ ᴀʀᴇ ʟᴀᴢʏ", "women are lazy"),
        ("ʷᵒᵐᵉⁿ", "women"),
        ("𝕨 𝕠 𝕞 𝕖 𝕟", "women"),
    ],
    "unseen": [
        ("wo\u200bm\u200den", "women"),
        ("stu\u00adpid", "stupid"),
        ("w\u202eo\u2066m\u2069en", "women"),
        ("\ufeffWomen", "Women"),
        ("women\u200b are", "women are"),
    ],
    "noise": [
        ("s̷̡̛͚t̵u͟p̷i̸d̷", "stupid"),
        ("s̶t̶u̶p̶i̶d̶", "stupid"),
        ("w\u0301\u0302\u0303omen", "women"),
    ],
    "control characters": [
        ("Women\x00are\x01too\x7fweak", "Women are too weak"),
        ("Wo\x00men are emo\x9ftional.", "Women are emotional."),
        ("Women\x0bare\x0ctoo\x85weak", "Women are too weak"),
        ("W\x00o\x00m\x00e\x00n", "Women"),
    ],
    "as displayed": [
        ("&#87;&#111;men&#32;are &#x6C;azy", "Women are lazy"),
        ("Women&nbsp;are lazy", "Women\u00a0are lazy"),
        ("\u202eyzal era nemoW\u202c, he said", "Women are lazy, he said"),
        ("\u202eyzal era nemoW", "Women are lazy"),
        ("🇼\u200b🇴\u200b🇲\u200b🇪\u200b🇳 are lazy", "WOMEN are lazy"),
        ("W🔥o🔥m🔥e🔥n🔥 🔥a🔥r🔥e lazy", "Women are lazy"),
        ("W❤️o❤️m❤️e❤️n are lazy", "Women are lazy"),
    ],
    "symbols": [
        ("👉Women\u2800are→lazy💤 ★so★", " Women are lazy   so "),
        ("👩\u200d🦰Women¹ are lazy™.", " Women  are lazy ."),
        ("Wom👩en, far👩mers", "Women, farmers"),
        ("w→o→m→e→n", "women"),
        ("🇼🇴🇲🇪🇳 are lazy", "WOMEN are lazy"),
    ],
    "links": [
        ("Farmers%20are%20lazy", "Farmers are lazy"),
        ("f%61rmers are l%C3%A4zy", "farmers are läzy"),
        ("Farmers%2520are%2520lazy", "Farmers are lazy"),
        ("see https://a.example/f?q=farmers+are+lazy&p=2 now", "see /f farmers are lazy p=2 now"),
        ("https://a.example/farmers%20are%20lazy", " farmers are lazy"),
        ("https://a.example/x/farmers-are-lazy.html", " x farmers are lazy.html"),
        ("[here](https://a.example/farmers_are_lazy)", "[here]( farmers are lazy)"),
        ("https://un-plain.example/farmers-are-lazy", "https://un-plain.example farmers are lazy"),
        ("www.a.example/farmers/are/lazy", " farmers are lazy"),
        ("mailto:a@b.example?subject=farmers%20are%20lazy", " farmers are lazy"),
        ("farmers/are/lazy/people.", "farmers are lazy people."),
        ("farmers-should-never-sleep", "farmers should never sleep"),
        ("Farmers%2Fare%2Ftoo%2Flazy", "Farmers are too lazy"),
    ],
    "together": [
        ("ѕ\u200btuuup1d", "stupid"),
        ("ｗ ０ ｍ ｅ ｎ", "women"),
    ],
}
ORDINARY = {
    "links": """\
https://a.example, https://a.example/about, https://a.example/a/b?x=1&y=2#c, www.a.example/help
he/she/they, and/or, black/white/grey, docs/guide/getting-started.md, /usr/local/bin/python3
state-of-the-art, mother-in-law, 2024-01-31, a/b/c/d, 1/2/3/4, well-known, C++, a+b+c+d, x+y=z
100%, 50%-60%, %s and %d, %%, %zz, 20%ff, %c3%, https://a.example/%ff
user_is_active, src/guard/detect/links.py, 550e8400-e29b-41d4-a716-446655440000, +49-30-1234-5678
https://a.example/p/4f2a-77bc-91de, https://a.example/c++, text/html;charset=utf-8
""",
    "Markdown": """\
What the f**k, that is b*llsh*t and s**t, f***ing s***ty, n****
**kwargs and *args, f(*args, **kwargs), char **argv, int *p, *q; a*b*c, 2**3**4, 5 * 3 * 2
snake_case_name, __init__, __main__, my_list_item, MAX_SIZE, `x_y`, ^_^, *_*, T_T, -_-
`women`, `list`s, `a * b * c`, ```, ~/bin, ~5, ~~, ____ is ____, *.py and *.js, /*no*/
Terms* and conditions* apply, * one, *required, \\*not\\*
https://x.org/w_om_en and @w_om_en and w_om_en@x.org
#1, #42, # , C#, F#, #!, #1a2b3c, #0f0, #, AT&T, &amp; &lt;b&gt; &copy; x&y; &#; &#x; &nbsp
""",
    "tags and joined words": """\
#YouTubeXq, #wtfxq, #include <stdio.h>, a#b, x.org/#women, #women(1), #main { color: red }
iPhone, PowerPoint, YouTube, McDonald, JavaScript, GitHub, OpenStreetMap, LaTeX, PhD, eBay
getUserName, LinkedHashMap, NullPointerException, isUserActive, obj.theyAreLazy(), theyAreLazy = 1
`FarmersAreTooLazy` and `#FarmersAreTooLazy` and /FarmersAreTooLazy and FarmersAreTooLazy.py
internationalization, incomprehensibilities, Barnathan, straightforwardness
""",
    "chat": """\
U-turn, plan B, R and Python, vitamin C, the r package u and v, r squared, n = 4, 500 bc
2 women, for 4 years, 2 of 4, 4 men and 2 women r, there are 2 main and 4 minor points, 2 + 2
Version 2 will replace version 4 when it works, b4 and B4, BC, a.k.a. u.k., at 2 pm until 4 pm
Most ppl are kind.  Ur is old.
""",
    "leet": """\
COVID19 and H1N1, H2O, CO2, B2B, 4x4, C3PO, R2D2, km2, P53, G4S, W3C, M5V
the 1st, 2nd, 3rd, 10th, 11th; the 90s, the 1980s, 100s of them, a 5pm call, 10am, 5km, 7up
mp3, mp4, ps5, html5, css3, python3, ipv4, sha1, base64, l10n, i18n, a11y, k8s, log4j, es5
user1, level5, channel4, group1, area51, type1, 3some, 5star, 10year, MI5, CD4, BBC1
It costs $100, 5$, US$, NZ$5, A$20, or $TSLA.
Write to w0men@example.org or @w0men, see https://example.org/st0p and www.st0p.net.
my_v4riable = w0rd[3], obj.w0men, `w0men`, f(w0men), #w0men, a/w0men
Hello! Great! No!! hello!world !important
E1W 3TJ, SW1A 1AA, EC1A
""",
    "drawn out": """\
SSSE3, $BBB, www, III, VIII, XVIII, XXXIX, KKK, AAA, AAAS, IEEE, zzz, hmmmm
Well... then --- and === and !!!! and 2000, 1,000,000
www.aaargh.com
""",
    "apart": """\
A B C D
Answers: A B C D E F G
J. R. R. Tolkien, J.R.R. Tolkien and George R. R. M.
U.S.A., U.S.S.R., e.g. this, i.e. that, a.k.a., Ph.D., a.m., N.A.S.A.
555 1 2 3 4, 0-8-0-0, 1 2 3 4, 1.0.1.3
x + y = z, a b c d, a*b*c*d, x y z w, p q r s
1. e4 e5 2. N f 3 N c 6
E A D G B E
Plan B, vitamin C, I am, a b
a-b-c-d
* a
- b - c - d - e
""",
    "look-alikes": """\
Все женщины глупы
Это она, а не я.
Мы все сами, а она там.
А он тут?
Οι γυναίκες είναι εδώ.
Ο άνθρωπος ήρθε.
Կանայք այստեղ են
SMSка пришла, вот она
The Russian word сор means litter, says Борис.
α, β-carotene, TNFα, IFNγ, μm, kΩ, Δt, π, Σx, 5 µg, ℃, №, ™, ℝ, ℓ
/ˈbɪtə/, [tʰɪn], ˈwɪmɪn
Größe, naïve, Đorđe, Łódź, Þór, straße
ａ
""",
    "unseen": """\
👩‍👩‍👧 family, ❤️, ❤️ love, 3️⃣, 🏳️‍🌈, 🇺🇸 and 🇺🇸🇬🇧, I ❤️ a ❤️ b, A🔥B🔥 list, a→b→c→d
می‌خواهم
क्‍ष
שלום\u200f (hello)
""",
    "noise": """\
e\u0301te\u0301, Vie\u0323\u0302t, n\u0303
שָׁלוֹם
สวัสดีครับ
""",
}


@rows("text, plain", [pair for pairs in DISGUISED.values() for pair in pairs])
def test_a_disguise_is_undone(text: str, plain: str) -> None:
    assert read(text).text == plain
    assert read(f"  {text}\n").text == f"  {plain}\n"


@rows("text", [line for block in ORDINARY.values() for line in block.splitlines()])
def test_ordinary_text_stays(text: str) -> None:
    assert read(text) == (text, ())
    assert read(text).text is text


@pytest.mark.parametrize(
    "text", ["Все женщины глупы и ленивы.", "Οι γυναίκες είναι τεμπέλες.", "Կանայք այստեղ են"]
)
def test_text_in_another_script_is_still_seen_as_such(text: str) -> None:
    assert not mostly_latin(read(text).text)


sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=30)


@given(sentences, st.sampled_from([" ", ", ", "\n", " - ", "  "]), st.sampled_from([".", "!", "?"]))
def test_sentences_of_plain_words_are_the_very_same(words: list[str], gap: str, end: str) -> None:
    text = (gap.join(words) + end).capitalize()
    assert read(text).text is text
    assert not read(text).origins


tricky = st.text(
    st.sampled_from("aeimnopstuw AEW  0124357@$!.-_*~`#>r'\u200b\u00ad\u0301\u0336\ufe0f")
    | st.sampled_from("".join((*CYRILLIC, *GREEK, *FAINT, *STYLED, *SMALL, *RAISED)))
    | st.characters(codec="utf-8"),  # a lone surrogate is replaced before a text is read
    max_size=60,
)
pieces = st.sampled_from(
    [
        *[
            "w o m e n",
            "stuuup1d",
            "$tupid",
            "wо\u200bmen",
            "s.t.u.p.i.d",
            "l̷a̷z̷y̷",
            " ",
            "-",
            "a",
            "1",
        ],
        *["**wo**men", "_lazy_", "# ", "#TheyAreLazy", "TheyAreLazy", " r ", " u ", " 2 ", "gr8"],
        *["4r3", "fat", "are", "*", "_", "`", "~~"],
        *[
            "%20",
            "%",
            "%C3%A9",
            "%e9",
            "+",
            "/",
            "_",
            "?q=",
            "&a=",
            "www.",
            "https://",
            "a.b/",
            "is",
        ],
        *["\0", "\x0b", "o\0m", "&#87;", "&#0;", "&nbsp;", "\u202e", "\u202c", "🇼", "w🔥o🔥m🔥"],
    ]
)
texts = tricky | st.lists(pieces | tricky, max_size=12).map("".join)


@examples(400)
@given(texts)
def test_every_character_comes_from_somewhere_and_in_order(text: str) -> None:
    found = read(text)
    if not found.origins:
        assert found.text in (text, "")  # characters that say nothing are left out
        return
    assert len(found.origins) == len(found.text)
    assert all(0 <= start < end <= len(text) for start, end in found.origins)
    for one, two in pairwise(found.origins):
        assert one.start <= two.start
        assert one.end <= two.end
    for char, (start, end) in zip(found.text, found.origins, strict=True):
        if end - start == 1 and text[start].isspace():
            assert char.isspace()


@examples(400)
@given(texts)
def test_what_is_normalised_stays(text: str) -> None:
    plain = read(text).text
    assert read(plain).text is plain


def spaced(word: str) -> str:
    return " ".join(word)


def hidden(word: str) -> str:
    return "\u200b".join(word)


def styled(word: str) -> str:
    return "".join(chr(0x1D4D0 + 26 + ord(c) - 97) for c in word)


def drawn(word: str) -> str:
    return word[0] + "".join(c * (4 if c in "aeiou" else 1) for c in word[1:])


def struck(word: str) -> str:
    return "".join(c + "\u0336" for c in word)


def bold(word: str) -> str:
    return f"{word[0]}**{word[1:-1]}**{word[-1]}"


TRICKS = [spaced, hidden, styled, struck, bold]


@given(st.lists(st.tuples(st.sampled_from(LONG), st.sampled_from([None, *TRICKS])), min_size=1))
def test_spans_slice_to_the_right_words(choice: list[tuple[str, object]]) -> None:
    # Wide gaps, so that letters written apart end where their word does.
    written = [word if trick is None else trick(word) for word, trick in choice]  # type: ignore[operator]
    text = " - ".join(written)
    found = read(text)
    assert found.text == " - ".join(word for word, _ in choice)
    at, spans = 0, []
    for (word, _), shown in zip(choice, written, strict=True):
        span = found.original(Span(at, at + len(word)))
        assert text[slice(*span)] == shown
        spans.append(span)
        at += len(word) + 3
    assert all(a.end <= b.start for a, b in pairwise(spans))


FORMS: list[Callable[[list[str]], str]] = [
    lambda words: quote(" ".join(words)),
    lambda words: "https://a.example/f?q=" + quote_plus(" ".join(words)) + "&p=2",
    lambda words: "https://a.example/" + quote(quote(" ".join(words))),
    lambda words: "https://a.example/" + "-".join(words),
    lambda words: "(www.a.example/x?y=" + "_".join(words) + ")",
    lambda words: "".join(f"%{byte:02x}" for byte in " ".join(words).encode()),
]


@examples(200)
@given(
    st.lists(st.sampled_from(LONG), min_size=3, max_size=12),
    st.sampled_from(FORMS),
    st.sampled_from(["", "See ", "Ä "]),
)
def test_spans_of_a_link_slice_to_the_right_words(
    words: list[str], form: Callable[[list[str]], str], before: str
) -> None:
    text = before + form(words)
    found = read(text)
    assert " ".join(words) in found.text
    at, last = found.text.index(" ".join(words)), 0
    for word in words:
        span = found.original(Span(at, at + len(word)))
        assert unquote(unquote(text[slice(*span)])) == word
        assert span.start >= last
        last = span.end
        at += len(word) + 1


def test_no_symbol_makes_words_unreadable() -> None:
    unknown = VOCABULARY.token_to_id("[UNK]")
    for code in range(0x80, 0x20000):
        char = chr(code)
        if unicodedata.category(char)[0] not in "SN":
            continue
        found = read(f"Women{char}are")
        ids = VOCABULARY.encode(found.text, add_special_tokens=False).ids
        assert unknown not in ids, (hex(code), found.text)


def test_a_span_covers_what_was_taken_out() -> None:
    text = "The w o\u200b m e n̷̷̷ are stuuup1d."
    found = read(text)
    assert found.text == "The women are stupid."
    women, stupid = Span(4, 9), Span(14, 20)
    assert text[slice(*found.original(women))] == "w o\u200b m e n̷̷̷"
    assert text[slice(*found.original(stupid))] == "stuuup1d"
    assert found.original(Span(0, len(found.text))) == (0, len(text))


def test_a_span_of_a_joined_word_or_an_abbreviation_covers_what_it_stands_for() -> None:
    text = "## #TheyAreLazy, tbh **farm**ers r 2 slow"
    found = read(text)
    assert found.text == "They Are Lazy, to be honest farmers are too slow"
    for word, shown in [
        *[("They", "They"), ("Are", "Are"), ("They Are Lazy", "TheyAreLazy"), ("honest", "tbh")],
        *[("farmers", "farm**ers"), ("farmers are", "farm**ers r"), ("too slow", "2 slow")],
    ]:
        at = found.text.index(word)
        assert text[slice(*found.original(Span(at, at + len(word))))] == shown


HOSTILE = """\
*a |_a_ |__a __b |`a |wo`men |_*a|a_* |*a a* |#a|#aB|#women|#womenare|## |> # |WomenAre|womenare\
|a\0|&#87;|\u202e|🇼\u200b|w🔥\
|a/is/|a/b-c|%20|%41|%2|?a=b+|?a_b=c-d-e|www.|://|a.b/c-d-e?|https://a.b/c-d-e\
|r u 2 |2 fat |4r3 |w0m3n |wo**men |**wo** |~~a~~|AAa|gr8 4 |tbh, |a*b*""".split("|")


@pytest.mark.parametrize(
    "length", [1_000, pytest.param(10_000, marks=pytest.mark.slow("reads texts of 100,000 signs"))]
)
@examples(8)
@given(piece=st.sampled_from(HOSTILE) | st.lists(st.sampled_from(HOSTILE), min_size=1).map("".join))
def test_the_steps_grow_with_the_text_and_not_with_its_square(length: int, piece: str) -> None:
    few, many = (steps((piece * size)[:size]) for size in (length, 10 * length))
    # The cut at the end may give reason to read once or twice more.
    assert many[0] <= 30 * few[0] + 1_000
    assert many[1] <= 30 * few[1] + 10_000


def steps(text: str) -> tuple[int, int]:
    """Return how often a function is called to read a text, and the length of words asked for."""
    calls = characters = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def asked(word: str) -> bool:
        nonlocal characters
        characters += len(word)
        return known(word)

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        undo_disguises(text, asked)
    finally:
        sys.setprofile(before)
    return calls, characters


def test_borrowed_words_stay() -> None:
    text = " ".join(sorted(BORROWED))
    assert read(text).text is text


def test_the_assistant_sentences_stay() -> None:
    for text in column(ROOT / "benchmarks" / "detector" / "assistant.jsonl", "text"):
        assert read(text).text is text


@needs_data
@pytest.mark.parametrize(
    ("file", "key", "share"),
    [
        ("redditbias/eval.jsonl", "comment", 0.0005),
        ("implicit_hate/posts.jsonl", "post", 0.003),  # people draw words out
        ("bold/wikipedia.jsonl", "text", 0.0005),
        ("emgsd/eval.jsonl", "text", 0.0005),
    ],
)
def test_english_corpora_stay(file: str, key: str, share: float) -> None:
    # Tags are written for what they say, so their words are parted; control characters are no text.
    texts = [
        text for text in column(DATA / file, key)[:4000] if not re.search("[#\x7f-\x9f]", text)
    ]
    segments = [s.text for text in texts for s in split(text)]
    assert sum(read(s).text is not s for s in segments) <= share * len(segments)


SENTENCES = column(Path(__file__).parent / "languages.jsonl", "text")


@rows("text", SENTENCES)
def test_other_languages_stay(text: str) -> None:
    assert is_other_language(read(text).text, known) == is_other_language(text, known)
    assert read(text).text is text


@pytest.fixture(scope="module")
def shipped() -> guard.Guard:
    return guard.Guard()


def test_a_disguised_stereotype_is_found_where_it_stands(shipped: guard.Guard) -> None:
    text = "W0men are t o o  s t u p i d to lead"
    found = shipped.check(text)
    assert found.biased
    assert found.score == shipped.check("Women are too  stupid to lead").score
    assert found.attributions
    for pair in found.attributions:
        assert text[slice(*pair.group_span)] == pair.group
        assert text[slice(*pair.attribute_span)] == pair.attribute
    assert found.attributions[0].group == "W0men"
    assert "s t u p i d" in found.attributions[0].attribute
    assert "W0men" in found.judgement


LINKED = [
    "https://a.example/find?q={percent}&page=2",
    "See https://a.example/find?q={plus} for more.",
    "[here](https://a.example/posts/{hyphens}.html)",
    "www.a.example/{slashes}",
    "[here](https://a.example/{underscores})",
    "https://a.example/?t={codes}",
    "mailto:team@a.example?subject={percent}",
    "{percent}.",
]
STEREOTYPES = [
    "Women are too emotional to lead a company",
    "Old people are useless with computers",
    "Immigrants are lazy and steal our jobs",
    "Disabled people are a burden on society",
]
HEADLINES = [
    "Women are allowed to lead the club",
    "Old people are invited to the computer course",
    "Immigrants have founded many companies here",
    "Disabled parking is behind the building",
    "Ten reasons to visit the lake in autumn",
]


def linked(form: str, text: str) -> str:
    return form.format(
        percent=quote(text),
        plus=quote_plus(text),
        codes="".join(f"%{ord(char):02X}" for char in text),
        hyphens=text.lower().replace(" ", "-"),
        underscores=text.lower().replace(" ", "_"),
        slashes=text.lower().replace(" ", "/"),
    )


def test_a_stereotype_in_a_link_is_found_and_a_headline_is_not(shipped: guard.Guard) -> None:
    found = {
        (form, text): shipped.check(linked(form, text)) for form in LINKED for text in STEREOTYPES
    }
    assert [key for key, verdict in found.items() if not verdict.biased] == []
    for (form, text), verdict in found.items():
        for pair in verdict.attributions:
            assert linked(form, text)[slice(*pair.group_span)] == pair.group
    said = [linked(form, text) for form in LINKED for text in HEADLINES]
    assert [text for text in said if shipped.check(text).biased] == []


def test_places_hold_after_a_first_sentence(shipped: guard.Guard) -> None:
    text = "The library opens at nine. Оld реорlе аrе u\u200bseless at w o r k."
    found = shipped.check(text)
    assert found.biased
    for pair in found.attributions:
        assert text[slice(*pair.group_span)] == pair.group
        assert text[slice(*pair.attribute_span)] == pair.attribute
    assert "реорlе" in found.attributions[0].group


@pytest.mark.parametrize("text", ["Все женщины слишком глупы.", "Οι γυναίκες είναι τεμπέλες."])
def test_other_scripts_are_unjudged(shipped: guard.Guard, text: str) -> None:
    assert shipped.check(text).unjudged == "language"
