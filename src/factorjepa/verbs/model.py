"""Verbs on models: `weights list | fetch | verify | convert` and `features`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BackboneError
from ..terminal import counting, downloading

if TYPE_CHECKING:  # torch takes seconds to import: only the verbs that need it do
    from ..backbones import BackboneSpec

weights_app = typer.Typer(
    name="weights",
    help="Released weights: list, fetch (resumable), verify, convert to safetensors.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Folder = Annotated[Path | None, typer.Option(help="Where weights live (default: the cache folder)", show_default=False)]
Sum = Annotated[str | None, typer.Option("--sha256", help="The SHA-256 that the file must have")]
_COMPARED = {"given": "one given", "catalogue": "catalogue's", "record": "recorded one"}


@weights_app.command("list")
def list_weights(folder: Folder = None) -> None:
    """Names, sizes and addresses of the released weights, and which are here.

    Example:  [bold]factorjepa weights list[/bold]
    """
    from ..backbones.families import parameters
    from ..backbones.packaged import packaged_weights
    from ..backbones.recognition import wanted
    from ..backbones.releases import CATALOGUE, ENCODERS, Release
    from ..backbones.spec import names, resolve
    from ..backbones.weights import weights_folder

    where = folder or weights_folder()

    def row(release: Release, count: int, converted: str = "") -> None:
        sizes = f"{f'{count / 1e6:.0f} M':>10}{converted:>11}"
        typer.echo(f"{release.arch:<26}{sizes}  {_here(where / release.file):>12}  {release.url}")

    typer.echo(f"{'name':<26}{'parameters':>10}{'converted':>11}  {'here':>12}  address")
    for release in CATALOGUE.values():
        count = sum(map(math.prod, wanted(resolve(release.arch), "both").values()))
        row(release, count, f"{count * 4 / 1e9:.2f} GB")
    typer.echo("\nEncoders to look through, read as they are published (`factorjepa scorecard`):")
    for release in ENCODERS.values():
        row(release, parameters(release.arch))
    typer.echo("\nOur own, released by nobody (`factorjepa pretrain OUT arch=NAME` makes them):")
    for arch in names():
        if arch not in CATALOGUE:
            count = sum(map(math.prod, wanted(resolve(arch), "both").values()))
            packaged = "in package" if packaged_weights(arch) else "-"
            typer.echo(f"{arch:<26}{f'{count / 1e6:.1f} M':>10}{f'{count * 4 / 1e9:.2f} GB':>11}  {packaged:>12}")
    typer.echo(
        f"\nFolder: {where}\n"
        "`converted` is the size as safetensors (fp32). The official files hold a second encoder and the optimiser's "
        "state beside it:\nexpect about four times as much. The publishers state neither file sizes nor checksums: the "
        "first complete download whose\nkeys fit is trusted and its SHA-256 recorded beside it; `--sha256` holds it to "
        "one that you know."
    )


def _here(path: Path) -> str:
    """How much of a release is in the folder."""
    from ..backbones.weights import partial_of

    for place, word in ((path, ""), (partial_of(path), "part: ")):
        if place.is_file():
            return f"{word}{place.stat().st_size / 1e9:.1f} GB"
    return "-"


@weights_app.command("fetch")
def fetch_weights(
    name: Annotated[str, typer.Argument(help="A name from `factorjepa weights list`")],
    folder: Folder = None,
    url: Annotated[str | None, typer.Option(help="A mirror of the file")] = None,
    sha256: Sum = None,
) -> None:
    """Download released weights; run it again after a break to continue.

    Example:  [bold]factorjepa weights fetch vjepa2_1_vit_giant_384[/bold]
    """
    from ..backbones.releases import release_of
    from ..backbones.weights import fetch, weights_folder

    release = release_of(name)
    with downloading(release.file) as progress:
        checked = fetch(release, folder or weights_folder(), url=url, sha256=sha256, progress=progress)
    known = {
        "given": "agrees with the one given",
        "catalogue": "agrees with the catalogue",
        "record": "agrees with the one recorded at the first download",
        "first use": "recorded beside it: nobody publishes one to compare with, so this first download is trusted",
    }[checked.trust]
    typer.echo(f"{checked.path}: {checked.holds}\nSHA-256 {checked.sha256}: {known}")


@weights_app.command("verify")
def verify_weights(path: Annotated[Path, typer.Argument(help="A weights file")], sha256: Sum = None) -> None:
    """Compare a file with its given, known or recorded SHA-256 and say what it holds; exit code 1 when it differs.

    Without a checksum to compare with, it is recorded, if the file holds whole weights of a known architecture.

    Example:  [bold]factorjepa weights verify vjepa2_1_vitg_384.pt[/bold]
    """
    from ..backbones.weights import verify

    with downloading(f"reading {path.name}") as progress:
        checked = verify(path, sha256=sha256, progress=progress)
    if not checked.ok:
        typer.echo(
            f"{path}: SHA-256 {checked.sha256} DIFFERS from the {_COMPARED[checked.trust]}: damaged or changed",
            err=True,
        )
        raise typer.Exit(1)
    compared = _COMPARED.get(checked.trust)
    verdict = f"agrees with the {compared}" if compared else "recorded now, for later checks"
    typer.echo(f"{path}: {checked.holds}\nSHA-256 {checked.sha256}: {verdict}")


@weights_app.command("convert")
def convert_weights(
    source: Annotated[Path, typer.Argument(help="An official .pt file")],
    out: Annotated[Path | None, typer.Option(help="The safetensors file (default: beside it)")] = None,
    arch: Annotated[str | None, typer.Option(help="Its architecture (default: what its name or keys say)")] = None,
    encoder_only: Annotated[bool, typer.Option("--encoder-only", help="Leave out the predictor")] = False,
) -> None:
    """Rewrite an official file as safetensors: averaged encoder and predictor, without the optimiser.

    Example:  [bold]factorjepa weights convert vjepa2_1_vitg_384.pt[/bold]
    """
    from ..backbones.weights import convert

    target = out or source.with_suffix(".safetensors")
    if target.exists():
        raise BackboneError(f"{target}: exists already; delete it or choose another --out")
    origin = convert(source, arch or _spec_of(source), target, "encoder" if encoder_only else "both")
    typer.echo(f"{target}: {target.stat().st_size / 1e9:.2f} GB, from {origin}")


def features(
    video: Annotated[Path, typer.Argument(help="Any video file")],
    arch: Annotated[
        str | None,
        typer.Option(
            help="Backbone name (`factorjepa weights list`, nano, small) (default: what the file is, or nano)"
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights file, .pt or .safetensors (default: as fetched; nano: in the package)")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Features file: .safetensors or .npz (default: VIDEO.features.safetensors here)")
    ] = None,
    fps: Annotated[float, typer.Option(help="Frames per second to sample; V-JEPA and the paper use 4")] = 4.0,
    start: Annotated[float, typer.Option(help="Seconds to skip")] = 0.0,
    seconds: Annotated[float | None, typer.Option(help="Seconds to encode (default: all)")] = None,
    released: Annotated[
        bool, typer.Option("--released-resize", help="Resize and crop as V-JEPA's own evaluation does")
    ] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda, or auto")] = "auto",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace existing files")] = False,
) -> None:
    """Patch features of a video to a file, with a PCA picture (.pca.png) and film (.pca.mp4) beside it.

    Example:  [bold]factorjepa features street.mp4 --arch vjepa2_1_vit_giant_384 --weights vjepa2_1_vitg_384.pt[/bold]

    Example:  [bold]factorjepa features street.mp4 --seconds 20 --out street.npz[/bold]
    """
    import torch

    from ..backbones import load
    from ..backbones.features import principal_colours, sample_times, video_features, write_features, write_pictures
    from ..backbones.spec import resolve

    if not video.is_file():
        raise BackboneError(f"{video}: no such video file")
    out = out or Path(f"{video.stem}.features.safetensors")
    if out.suffix not in (".safetensors", ".npz"):
        file = out / f"{video.stem}.safetensors" if out.is_dir() else f"{out}.safetensors"
        raise BackboneError(f"{out}: --out names a file, .safetensors or .npz, for example {file}")
    picture, film = out.with_suffix(".pca.png"), out.with_suffix(".pca.mp4")
    if not overwrite and (existing := next((path for path in (out, picture, film) if path.exists()), None)):
        raise BackboneError(f"{existing}: exists already; choose another --out or pass --overwrite")
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if place.split(":")[0] not in ("cpu", "cuda") or (place != "cpu" and not torch.cuda.is_available()):
        raise BackboneError(
            f"device {place!r} is not available here: use cpu{', cuda' * torch.cuda.is_available()} or auto"
        )
    weights = weights or _fetched(arch)
    spec = resolve(arch or _spec_of(weights))
    sample_times(video, spec, fps, start, seconds)  # what is wrong with the video is said before gigabytes are read
    backbone = load(weights, arch or spec, parts="encoder", dtype=torch.float32 if place == "cpu" else None)
    with counting(f"encoding {video.name}", "frame") as progress:
        found = video_features(
            video, backbone, fps=fps, start=start, seconds=seconds, device=place, progress=progress,
            resize="released" if released else "protocol",
        )  # fmt: skip
    write_features(found, out)
    write_pictures(found, principal_colours(found.tokens), picture, film, fps)
    typer.echo(f"weights: {backbone.origin}")
    shape = " x ".join(map(str, found.tokens.shape))
    typer.echo(f"{out}: {shape} (tubelets x rows x columns x width), fp16\n{picture}\n{film}")


def _fetched(arch: str | None) -> Path:
    """The file that comes with the package (`nano`), or where `weights fetch` put an architecture's."""
    from ..backbones.packaged import how_to_get, packaged_weights
    from ..backbones.releases import CATALOGUE
    from ..backbones.spec import resolve
    from ..backbones.weights import weights_folder

    arch = arch or "nano"
    resolve(arch)  # an unknown name is an error of its own
    packaged = packaged_weights(arch)
    if packaged is not None:
        return packaged
    path = weights_folder() / CATALOGUE[arch].file if arch in CATALOGUE else None
    if path is None or not path.is_file():
        raise BackboneError(f"no weights for {arch}: pass --weights FILE, or {how_to_get(arch)}")
    return path


def _spec_of(path: Path) -> str | BackboneSpec:
    """What a file is, by its released name or else by its keys, all of which must fit."""
    from ..backbones.recognition import recognise
    from ..backbones.releases import CATALOGUE

    for release in CATALOGUE.values():
        if release.file == path.name:
            return release.arch
    found = recognise(path)
    if len(found.names) > 1:
        raise BackboneError(
            f"{path}: could be {' or '.join(found.names)} (the same keys, other input sizes); say which with --arch"
        )
    return found.names[0] if found.names else found.spec
