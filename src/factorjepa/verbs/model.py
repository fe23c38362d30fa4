"""Verbs on models: `weights list | fetch | verify | convert` and `features`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import BackboneError
from ..terminal import counting, downloading, error_console

if TYPE_CHECKING:  # torch takes seconds to import: only the verbs that need it do
    from ..backbones import Backbone

weights_app = typer.Typer(
    name="weights",
    help="Released V-JEPA weights: list, fetch (resumable), verify, convert to safetensors.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

Folder = Annotated[Path | None, typer.Option(help="Where weights live (default: the cache folder)", show_default=False)]


@weights_app.command("list")
def list_weights(folder: Folder = None) -> None:
    """Names, sizes and addresses of the released weights, and which are here.

    Example:  [bold]factorjepa weights list[/bold]
    """
    from ..backbones import build
    from ..backbones.weights import CATALOGUE, weights_folder

    where = folder or weights_folder()
    typer.echo(f"{'name':<26}{'parameters':>10}  {'here':>9}  address")
    for release in CATALOGUE.values():
        parameters = sum(p.numel() for p in build(release.arch, device="meta").parameters())
        path = where / release.file
        here = f"{path.stat().st_size / 1e9:.1f} GB" if path.is_file() else "-"
        typer.echo(f"{release.arch:<26}{f'{parameters / 1e6:.0f} M':>10}  {here:>9}  {release.url}")
    typer.echo(
        f"\nFolder: {where}\n"
        "The publishers state neither file sizes nor checksums (files hold optimiser state too, and so are several "
        "times the weights):\nthe first complete download is trusted and its SHA-256 recorded beside it."
    )


@weights_app.command("fetch")
def fetch_weights(
    name: Annotated[str, typer.Argument(help="A name from `factorjepa weights list`")],
    folder: Folder = None,
    url: Annotated[str | None, typer.Option(help="A mirror of the file")] = None,
) -> None:
    """Download released weights; run it again after a break to continue.

    Example:  [bold]factorjepa weights fetch vjepa2_1_vit_giant_384[/bold]
    """
    from ..backbones.weights import fetch, release_of, weights_folder

    release = release_of(name)
    with downloading(release.file) as progress:
        checked = fetch(release, folder or weights_folder(), url=url, progress=progress)
    known = {
        "catalogue": "agrees with the catalogue",
        "record": "agrees with the one recorded at the first download",
        "first use": "recorded beside it: nobody publishes one to compare with, so this first download is trusted",
    }[checked.trust]
    typer.echo(f"{checked.path}\nSHA-256 {checked.sha256}: {known}")


@weights_app.command("verify")
def verify_weights(path: Annotated[Path, typer.Argument(help="A weights file")]) -> None:
    """Compare a file with its known or recorded SHA-256; exit code 1 when it differs.

    Example:  [bold]factorjepa weights verify vjepa2_1_vitg_384.pt[/bold]
    """
    from ..backbones.weights import verify

    checked = verify(path)
    if not checked.ok:
        typer.echo(f"{path}: SHA-256 {checked.sha256} DIFFERS from the {checked.trust}: damaged or changed", err=True)
        raise typer.Exit(1)
    verdict = "recorded now, for later checks" if checked.trust == "first use" else f"agrees with the {checked.trust}"
    typer.echo(f"{path}: SHA-256 {checked.sha256}: {verdict}")


@weights_app.command("convert")
def convert_weights(
    source: Annotated[Path, typer.Argument(help="An official .pt file")],
    out: Annotated[Path | None, typer.Option(help="The safetensors file (default: beside it)")] = None,
    arch: Annotated[str | None, typer.Option(help="Its architecture (default: by file name)")] = None,
) -> None:
    """Rewrite an official file as safetensors: averaged encoder and predictor, without the optimiser.

    Example:  [bold]factorjepa weights convert vjepa2_1_vitg_384.pt[/bold]
    """
    from ..backbones.weights import convert

    target = out or source.with_suffix(".safetensors")
    if target.exists():
        raise BackboneError(f"{target}: exists already; delete it or choose another --out")
    origin = convert(source, arch or _arch_of_file(source), target)
    typer.echo(f"{target}: {target.stat().st_size / 1e9:.2f} GB, from {origin}")


def features(
    video: Annotated[Path, typer.Argument(help="Any video file")],
    arch: Annotated[
        str | None,
        typer.Option(help="Backbone name (`factorjepa weights list`, or nano) (default: the file's, or nano)"),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="Weights file, .pt or .safetensors (default: as fetched; nano: random)")
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

    from ..backbones.features import principal_colours, video_features, write_features, write_pictures

    if not video.is_file():
        raise BackboneError(f"{video}: no such video file")
    out = out or Path(f"{video.stem}.features.safetensors")
    picture, film = out.with_suffix(".pca.png"), out.with_suffix(".pca.mp4")
    if not overwrite and (existing := next((path for path in (out, picture, film) if path.exists()), None)):
        raise BackboneError(f"{existing}: exists already; choose another --out or pass --overwrite")
    if out.suffix not in (".safetensors", ".npz"):
        raise BackboneError(f"{out}: features are written as .safetensors or .npz")
    backbone = _loaded(arch, weights)
    place = ("cuda" if torch.cuda.is_available() else "cpu") if device == "auto" else device
    if place.split(":")[0] not in ("cpu", "cuda") or (place != "cpu" and not torch.cuda.is_available()):
        raise BackboneError(
            f"device {place!r} is not available here: use cpu{', cuda' * torch.cuda.is_available()} or auto"
        )
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


def _loaded(arch: str | None, weights: Path | None) -> Backbone:
    """The backbone to use; only `nano` may go without weights, and then says so."""
    from ..backbones import build
    from ..backbones.checkpoint import load, spec_of
    from ..backbones.weights import CATALOGUE, weights_folder

    if weights is None and arch in CATALOGUE:
        weights = weights_folder() / CATALOGUE[arch].file
        if not weights.is_file():
            raise BackboneError(
                f"no weights for {arch}: pass --weights FILE, or fetch them with `factorjepa weights fetch {arch}`"
            )
    if weights is not None:
        return load(weights, arch or spec_of(weights) or _arch_of_file(weights))
    backbone = build(arch or "nano")
    error_console.print(
        f"[bold red]WARNING: {arch or 'nano'} has RANDOM weights (seed 0).[/] Its features show colours and edges, and "
        "mean nothing else. Pass --weights FILE for trained ones."
    )
    return backbone


def _arch_of_file(path: Path) -> str:
    from ..backbones.weights import CATALOGUE

    for release in CATALOGUE.values():
        if release.file == path.name:
            return release.arch
    raise BackboneError(f"{path}: not the name of a released file; say what it is with --arch")
