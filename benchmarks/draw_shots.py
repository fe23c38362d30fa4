"""The picture of docs/guide/data.md: a source video as a strip of frames, with the shots found and what became of each.

    python benchmarks/draw_shots.py CORPUS SOURCE_ID VIDEO OUT.jpg

CORPUS is an ingested corpus, SOURCE_ID one of its sources ("montreal/all/edited"), VIDEO the file it was read from.
"""

from __future__ import annotations

import argparse
from itertools import pairwise
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from factorjepa.corpus.manifest import Manifest
from factorjepa.corpus.preview import font
from factorjepa.corpus.rejected import read_rejected
from factorjepa.video import read_frames

WIDTH, WIDE, HIGH, BAND = 1152, 96, 72, 46  # px of the strip, of a frame, of what stands below
KEPT, LEFT_OUT, INK = "#00846a", "#c8501e", "#222222"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("source")
    parser.add_argument("video", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    parts = [
        (clip.shot, clip.t_start, clip.t_end, "clip", KEPT)
        for clip in Manifest.read(options.corpus)
        if clip.source == options.source
    ]
    parts += [
        (row.shot, row.t_start, row.t_end, row.reason, LEFT_OUT)
        for row in read_rejected(options.corpus)
        if row.source == options.source and row.t_start is not None and row.t_end is not None
    ]
    end = max(part[2] for part in parts)
    image = Image.new("RGB", (WIDTH, HIGH + BAND), "white")
    draw = ImageDraw.Draw(image)
    for shot, start, stop, word, colour in sorted(parts):
        left, right = round(start / end * WIDTH), round(stop / end * WIDTH) - 2
        edges = [*range(left, right, WIDE), right]  # the last frame of a part is cut off where its bar ends
        times = np.array([(a + b) / 2 for a, b in pairwise(edges)]) / WIDTH * end
        for (a, b), frame in zip(pairwise(edges), read_frames(options.video, times), strict=True):
            tile = Image.fromarray(frame).resize((WIDE, HIGH), Image.Resampling.LANCZOS)
            image.paste(tile.crop((0, 0, b - a, HIGH)), (a, 0))
        draw.rectangle((left, HIGH + 4, right, HIGH + 22), fill=colour)
        draw.text(((left + right) / 2, HIGH + 13), word, fill="white", font=font(12), anchor="mm")
        draw.text(((left + right) / 2, HIGH + 34), f"shot {shot}, {stop - start:.1f} s", INK, font(12), anchor="mm")
    image.save(options.out, quality=88)


if __name__ == "__main__":
    main()
