"""What the page says about people in its pictures follows from what the clips say of themselves."""

from __future__ import annotations

import pytest

from factorjepa.corpus.composition import compose
from factorjepa.corpus.manifest import Clip, Manifest
from factorjepa.corpus.splits import Split
from factorjepa.report.making import _privacy


def clip(number: int, privacy: str) -> Clip:
    attributes = {"privacy": privacy} if privacy else {}
    return Clip(
        f"pune/s1/{number}#0.0", "Pune", "s1", f"pune/s1/{number}", 0, "walk", 0.0, 8.0, 12.0, 64, 64, f"{number}.mp4",
        Split.TRAIN, attributes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (("on", "on"), "were blurred"), (("off", "off"), "NOT blurred"), (("on", "off"), "NOT blurred"),
        (("", ""), "does not say"), (("on", ""), "does not say"),
    ],
)  # fmt: skip
def test_the_page_says_whether_faces_were_blurred(said: tuple[str, ...], words: str) -> None:
    composition = compose(Manifest([clip(number, one) for number, one in enumerate(said)]))
    assert words in _privacy(composition)
