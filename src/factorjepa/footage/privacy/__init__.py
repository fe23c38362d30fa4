"""Privacy, on by default: faces and registration plates are found, followed and blurred before anything is written.

`build` makes the filter that ingest calls, `placed` decides its device; `notices` are the licences of the models it
uses, to be shown to the user.
"""

from .building import build, notices, placed
from .interface import Filtered, PrivacyFilter
from .settings import PrivacySettings

__all__ = ["Filtered", "PrivacyFilter", "PrivacySettings", "build", "notices", "placed"]
