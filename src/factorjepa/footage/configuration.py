"""The whole ingest configuration: what decides the clips, and the privacy filter.

Kept apart because the filter's settings name model files of this machine; a corpus remembers the filter's own statement
instead, which names them by hash.
"""

from __future__ import annotations

from .privacy import PrivacySettings
from .settings import IngestSettings


class IngestConfiguration(IngestSettings):
    """What `factorjepa ingest --set` and presets fill in."""

    privacy: PrivacySettings = PrivacySettings()

    @property
    def settings(self) -> IngestSettings:
        return IngestSettings.model_validate(self.model_dump(exclude={"privacy"}))
