"""Published weights files: which architecture, under which name, at which address."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import BackboneError

_META = "https://dl.fbaipublicfiles.com"
_OKAI = "https://huggingface.co/OK-AI/lejepa-{}-pretrain-in1k/resolve/main/model.safetensors"


@dataclass(frozen=True)
class Release:
    """One published file; the checksum is None where the publisher does not state it."""

    arch: str
    file: str  # its name here, and there too unless `address` says otherwise
    sha256: str | None = None
    folder: str = f"{_META}/vjepa2"
    address: str | None = None

    @property
    def url(self) -> str:
        return self.address or f"{self.folder}/{self.file}"


# Encoders with their predictors: what can be adapted.
CATALOGUE: dict[str, Release] = {
    release.arch: release
    for release in (
        Release("vjepa2_1_vit_base_384", "vjepa2_1_vitb_dist_vitG_384.pt"),
        Release("vjepa2_1_vit_large_384", "vjepa2_1_vitl_dist_vitG_384.pt"),
        Release("vjepa2_1_vit_giant_384", "vjepa2_1_vitg_384.pt"),
        Release("vjepa2_1_vit_gigantic_384", "vjepa2_1_vitG_384.pt"),
        Release("vjepa2_vit_large", "vitl.pt"),
        Release("vjepa2_vit_huge", "vith.pt"),
        Release("vjepa2_vit_giant", "vitg.pt"),
        Release("vjepa2_vit_giant_384", "vitg-384.pt"),
    )
}

# Encoders that are only looked through (`families`). LeJEPA ViT-S and ViT-B are reproductions by Open Knowledge AI; of
# the LeJEPA ViT-L of the paper's table (`lejepa_vitl16`) no address is known here.
ENCODERS: dict[str, Release] = {
    release.arch: release
    for release in (
        Release("vjepa1_vit_large", "vitl16.pth.tar", folder=f"{_META}/jepa/vitl16"),
        Release("vjepa1_vit_huge", "vith16.pth.tar", folder=f"{_META}/jepa/vith16"),
        Release("vjepa1_vit_huge_384", "vith16-384.pth.tar", folder=f"{_META}/jepa/vith16-384"),
        Release("ijepa_vith14_1k", "IN1K-vit.h.14-300e.pth.tar", folder=f"{_META}/ijepa"),
        Release("ijepa_vith14_22k", "IN22K-vit.h.14-900e.pth.tar", folder=f"{_META}/ijepa"),
        Release("ijepa_vith16_448_1k", "IN1K-vit.h.16-448px-300e.pth.tar", folder=f"{_META}/ijepa"),
        Release("ijepa_vitg16_22k", "IN22K-vit.g.16-600e.pth.tar", folder=f"{_META}/ijepa"),
        Release("lejepa_vits16", "lejepa_vits16_in1k.safetensors", address=_OKAI.format("vits16")),
        Release("lejepa_vitb16", "lejepa_vitb16_in1k.safetensors", address=_OKAI.format("vitb16")),
        *(
            Release(f"{size}{kind}", f"{size}{file}_pretrain.pth", folder=f"{_META}/dinov2/{size}")
            for size in ("dinov2_vits14", "dinov2_vitb14", "dinov2_vitl14", "dinov2_vitg14")
            for kind, file in (("", ""), ("_reg", "_reg4"))
        ),
    )
}

RELEASES = CATALOGUE | ENCODERS


def release_of(name: str) -> Release:
    if name in RELEASES:
        return RELEASES[name]
    raise BackboneError(f"no released weights are known for {name!r}; there are: {', '.join(RELEASES)}")
