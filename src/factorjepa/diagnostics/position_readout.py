"""Position read-out: where agents will be when the window ends, read linearly from the predicted tokens around them.

Future-frame error hardly sees where an agent is (decision D17); this does. Truth is known of audit clips alone:
each source is answered by probes fitted on other sources.

Shapes: n agents, D width.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..corpus.manifest import Clip
from ..scores import CHANCE, DiagnosticInfo
from .asks import PLAIN, Answers, Ask
from .diagnostic import Diagnostic, Part
from .pooled import Pool
from .probes import Array, crossed
from .scene import Scene
from .settings import EvaluateSettings
from .truth import interacting_agents, seen_agents, true_frames, truth_of

_AROUND = 1  # tokens on every side of the agent's that are read as well


class PositionReadout(Diagnostic):
    """Distance between true and read displacement; mean over the agents of a clip.

    Beside it what needs no model: staying where one is (`still`), and going on at the true present velocity.
    """

    info = DiagnosticInfo(
        name="position_readout",
        title="Position read-out",
        formula="mean over agents of |W tokens around the agent - its displacement by the window's end|_2",
        direction="lower",
        unit="sides of the picture, clip",
        status="companion",
        evaluator="the simulator's ground truth; ridge probe",
        provenance="audit clips alone; each source is answered by probes fitted on other sources",
    )

    def __init__(self, settings: EvaluateSettings) -> None:
        super().__init__(settings)
        self._pool = Pool()
        self._steady: list[Array] = []  # displacements at constant velocity
        self._interacting: list[bool] = []

    def asks(self, part: Part) -> Iterable[Ask[Any]]:
        return (PLAIN,) if part.role == "measure" and part.truth else ()

    def see(self, part: Part, scene: Scene, answers: Answers) -> None:
        tokens_BtD = answers[PLAIN].tokens_BtD.float().cpu()
        for b, clip in enumerate(scene.clips):
            agents = _agents(scene, b)
            if not agents:
                self.absent("no agent is seen both now and when the window ends", [clip])
                continue
            involved = interacting_agents(scene, b)
            for agent, (place, displacement, steady) in agents.items():
                read = around(tokens_BtD[b], scene, place)
                self._pool.add([clip], read[None], displacement[None])
                self._steady.append(steady)
                self._interacting.append(agent in involved)

    def finish(self) -> None:
        pool = self._pool
        if not len(pool):
            return
        found = crossed(pool.x, pool.y, pool.sources, self.settings.probes.grid)
        if found is None:
            self.absent("fewer than three audit sources: none to fit a probe on", pool.clips)
            return
        self._put("pooled", found.read())
        self._put("interacting", found.read(), np.array(self._interacting))
        self._put(CHANCE, found.mean_nG * found.deviation_G)
        self._put("still", np.zeros_like(pool.y))
        self._put("constant_velocity", np.stack(self._steady))

    def _put(self, variant: str, read_n2: Array, chosen_n: NDArray[np.bool_] | None = None) -> None:
        """Mean distance over the (chosen) agents of each clip."""
        distance_n = np.linalg.norm(read_n2 - self._pool.y, axis=1)
        by_clip: dict[Clip, list[float]] = {clip: [] for clip in self._pool.clips}
        for number, (clip, distance) in enumerate(zip(self._pool.clips, distance_n.tolist(), strict=True)):
            if chosen_n is None or chosen_n[number]:
                by_clip[clip].append(distance)
        means = [float(np.mean(distances)) if distances else np.nan for distances in by_clip.values()]
        self.put(list(by_clip), variant, means, "none of the agents interacts")


def around(tokens_tD: Tensor, scene: Scene, place: Array) -> Tensor:
    """The token of the last horizon where the agent was last seen, and the mean of those around it: `[2 D]`."""
    _, rows, columns = scene.grid
    last_RCD = tokens_tD.reshape(-1, rows, columns, tokens_tD.shape[-1])[-1]
    column, row = (int(np.clip(place[k] * size, 0, size - 1)) for k, size in ((0, columns), (1, rows)))
    near = last_RCD[max(0, row - _AROUND) : row + _AROUND + 1, max(0, column - _AROUND) : column + _AROUND + 1]
    return torch.cat([last_RCD[row, column], near.mean((0, 1))])


def _agents(scene: Scene, b: int) -> dict[int, tuple[Array, Array, Array]]:
    """Agents seen at the context's end and in the picture at the window's: place, displacement, the same if steady.

    In sides of the picture. The last tubelet, which is read, shows the window's last frame.
    """
    truth, numbers = truth_of(scene, b), true_frames(scene, b)
    step = float(scene.times_BT[b, 1] - scene.times_BT[b, 0])
    now, later = scene.context - 1, len(numbers) - 1
    seen = seen_agents(scene, b)
    there = {}
    for number in (now, later):
        rows = truth.observations(numbers[number])
        there[number] = dict(zip(truth.agent_ids[truth.agent[rows]].tolist(), rows.tolist(), strict=True))
    found = {}
    for agent in sorted(seen.keys() & there[later].keys()):
        first, second = there[now][agent], there[later][agent]
        box = truth.box[[first, second]].astype(np.float64) / truth.size
        centre = (box[:, :2] + box[:, 2:]) / 2
        steady = truth.image_velocity[first].astype(np.float64) / truth.size * step * (later - now)
        found[agent] = (centre[0], centre[1] - centre[0], steady)
    return found
