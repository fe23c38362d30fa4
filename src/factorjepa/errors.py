"""Errors that a user can act on.

Everything the command line is expected to report derives from `FactorJEPAError`; its message says what was wrong,
where, and what to do. Anything else is a bug and keeps its traceback.
"""


class FactorJEPAError(Exception):
    """Base of all errors whose message is meant for the user."""


class ConfigError(FactorJEPAError):
    """A configuration file, preset or override is not valid."""


class VideoError(FactorJEPAError):
    """A video cannot be read, or not as asked."""


class CorpusError(FactorJEPAError):
    """A manifest, split or clip store is broken or is used against its contract."""


class StorageError(FactorJEPAError):
    """Writing failed: no space, no permission, or a folder that must not be overwritten."""


class WorldError(FactorJEPAError):
    """The simulator was asked for something it cannot do."""


class BackboneError(FactorJEPAError):
    """A backbone's sizes, weights file, tokens or masks are not what they must be."""


class DetectorError(FactorJEPAError):
    """An ONNX detector cannot be opened, is of no known kind, or gives nonsense."""


class TeacherError(FactorJEPAError):
    """The teacher's features, regions or packets are not what they must be, or do not fit together."""


class TrainingError(FactorJEPAError):
    """A predictor, objective, method or run cannot be what it was asked to be."""


class DiagnosticsError(FactorJEPAError):
    """A run, split or clip cannot be evaluated as asked."""


class RenderingError(FactorJEPAError):
    """A decoder cannot be made, loaded or used as asked."""


class ScoresError(FactorJEPAError):
    """Scores are missing, damaged, not comparable, or too few for what was asked of them."""


class RegimeError(FactorJEPAError):
    """A corpus cannot be measured or compared on the five axes as asked, or annotations cannot be read."""


class ReportError(FactorJEPAError):
    """A figure or page cannot be made from what there is."""


def lacks_memory(error: BaseException) -> bool:
    """Whether it says that memory, of the machine or of a GPU, has run out: libraries say so in their own ways."""
    said = str(error).lower()
    words = ("out of memory", "can't allocate memory", "alloc_failed")
    return isinstance(error, MemoryError) or any(one in said for one in words)


class AlreadyReported(FactorJEPAError):
    """Another process of the same run has said what was wrong: this one ends without a word."""
