"""Many processes, one run: who they are, how their sums are shared, and how the model lies on them.

`torchrun` starts them and tells each its rank. Each holds an equal part of every batch's clips and the same weights
(`ddp`), or a slice of every weight (`fsdp`). Every process computes the loss of the whole batch from sums over all of
them (`Peers.sum`), so one process and many descend the same loss. Only the first writes and speaks.
"""

from __future__ import annotations

import contextlib
import datetime
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

from ..backbones.blocks import Block
from ..errors import AlreadyReported, FactorJEPAError, TrainingError
from ..peers import Peers

Parallel = Literal["auto", "single", "ddp", "fsdp"]
Loss = tuple[Tensor, dict[str, Tensor]]
T = TypeVar("T")

_WAIT = datetime.timedelta(minutes=30)  # for each other: the first may be writing a large checkpoint
# Seconds for gloo's own thread to let go of the last sum's tensors, for which it needs the interpreter's lock. Whoever
# ends holds the lock while it waits for that thread: on a busy machine both then wait for ever.
_LET_GO = 0.2


class _Sum(torch.autograd.Function):
    """all_reduce, forwards and backwards: what depends on a sum on any process is felt by every part of it.

    Every process computes the same loss, so the gradients are `world` times too large until they are averaged.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return _reduced(x)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _reduced(gradient)


def _reduced(x: Tensor) -> Tensor:
    total = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total)
    return total


class Processes(Peers):
    """This process among those of its run. `Processes()` is one alone; `started()` finds the others."""

    mode: Parallel = "single"

    def __init__(self, device: torch.device | None = None) -> None:
        self.device = device or torch.device("cpu")
        self._store: Store | None = None
        self._asked = 0

    @classmethod
    @contextlib.contextmanager
    def started(cls, device: str | None = None) -> Iterator[Processes]:
        """Connect with what torchrun has started, on `cuda:LOCAL_RANK` or the CPU; disconnect at the end."""
        world = int(os.environ.get("WORLD_SIZE", "1"))
        kind = device or ("cuda" if torch.cuda.is_available() else "cpu")
        if world == 1:
            yield cls(torch.device(kind))
            return
        local = int(os.environ.get("LOCAL_RANK", "0"))
        if kind.startswith("cuda"):
            if local >= torch.cuda.device_count():
                raise TrainingError(
                    f"process {local} of this machine has no GPU of its own (there are {torch.cuda.device_count()}): "
                    "lower --nproc-per-node, or train on the CPU with --device cpu"
                )
            torch.cuda.set_device(local)
        processes = cls(torch.device("cuda", local) if kind.startswith("cuda") else torch.device("cpu"))
        store, processes.rank, processes.world = next(rendezvous("env://", timeout=_WAIT))
        processes.mode, processes._store = "ddp", PrefixStore("factorjepa", store)
        backend = "nccl" if processes.device.type == "cuda" else "gloo"
        dist.init_process_group(
            backend, store=PrefixStore("collectives", store), rank=processes.rank, world_size=processes.world,
            timeout=_WAIT, device_id=processes.device if backend == "nccl" else None,
        )  # fmt: skip
        if not processes.first:
            logging.getLogger("factorjepa").setLevel(logging.ERROR)
        try:
            with processes._failing_together():
                yield processes
        finally:
            time.sleep(_LET_GO)
            dist.destroy_process_group()

    @property
    def first(self) -> bool:
        """Whether this one writes the run's folder, logs and prints."""
        return self.rank == 0

    def lay_out(self, wanted: Parallel) -> None:
        """Settle how the model lies on the processes."""
        if self.world > 1 and wanted == "single":
            raise TrainingError(f"parallel=single, but torchrun has started {self.world} processes: set parallel=auto")
        if self.world == 1 and wanted == "fsdp":
            raise TrainingError(
                "parallel=fsdp shares the weights among processes, and there is one: start several with `torchrun "
                "--nproc-per-node N -m factorjepa train ...`, or set parallel=auto"
            )
        self.mode = "single" if self.world == 1 else "fsdp" if wanted == "fsdp" else "ddp"

    def sum(self, x: Tensor) -> Tensor:
        return x if self.world == 1 else cast(Tensor, _Sum.apply(x))  # type: ignore[no-untyped-call]

    def any(self, flag: bool) -> bool:
        """Whether some process says so."""
        return flag if self.world == 1 else bool(self.sum(torch.tensor(float(flag), device=self.device)))

    def by_first(self, call: Callable[[], T]) -> T | None:
        """Let the first process do it while the others wait; they end quietly if it fails."""
        if self._store is None:
            return call()
        self._asked += 1
        key = f"by first {self._asked}"
        if not self.first:
            if self._store.get(key) != b"done":
                raise AlreadyReported
            return None
        try:
            done = call()
        except BaseException:
            self._store.set(key, "failed")
            raise
        self._store.set(key, "done")
        return done

    @contextlib.contextmanager
    def _failing_together(self) -> Iterator[None]:
        """One message for what happens to all; a lost process is an error that says what to do."""
        try:
            yield
        except AlreadyReported:
            raise
        except FactorJEPAError as error:
            if self._was_said(str(error)):
                raise AlreadyReported from None
            raise
        except RuntimeError as error:
            if not _is_lost_connection(error):
                raise
            text = (
                "another process of this run has ended, or the connection to it: this one cannot go on alone. The last "
                "checkpoint is sound: run the same command with --resume"
            )
            if self._was_said(text):
                raise AlreadyReported from None
            raise TrainingError(f"{text} ({str(error).splitlines()[0]})") from error

    def _was_said(self, text: str) -> bool:
        """Whether some process has already said this; if not, it is said now."""
        assert self._store is not None
        with contextlib.suppress(RuntimeError):  # whoever held the store may be the one that is gone
            return int(self._store.add(f"said {text}", 1)) > 1
        return False


def _is_lost_connection(error: RuntimeError) -> bool:
    return isinstance(error, dist.DistError) or "gloo" in str(error)  # gloo's own errors have no type


class Model(nn.Module):
    """The learner as the processes hold it. Alone: as it is."""

    def __init__(self, learner: nn.Module) -> None:
        super().__init__()
        self.learner = learner

    def forward(self, call: Callable[[], T]) -> T:
        """Do something with the learner where its weights are at hand."""
        return call()

    def descend(self, loss: Callable[[], Loss], share: float, last: bool) -> Loss:
        """One pass of an update: the loss, and `share` of its gradient. After the `last` one gradients are averaged."""
        total, parts = self(loss)
        (total * share).backward()
        return total.detach(), parts


class ReplicatedModel(Model):
    """DDP: every process has all weights; gradients are averaged as the backward pass of the last pass makes them."""

    def __init__(self, learner: nn.Module, trained: Iterable[nn.Parameter]) -> None:
        super().__init__(learner)
        # DDP looks once at what trains. A curriculum changes that from stage to stage, so it is shown all that ever
        # does; parameters that a stage leaves alone are found unused, and keep no gradient.
        before = [(parameter, parameter.requires_grad) for parameter in trained]
        for parameter, _ in before:
            parameter.requires_grad_(True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # 2.13 has another word for broadcast_buffers, 2.11 not yet
            ddp = DistributedDataParallel(
                Model(learner), broadcast_buffers=False, find_unused_parameters=True, gradient_as_bucket_view=True
            )
        for parameter, requires in before:
            parameter.requires_grad_(requires)
        self._ddp = (ddp,)  # in a tuple: the learner is not to be found twice

    def descend(self, loss: Callable[[], Loss], share: float, last: bool) -> Loss:
        ddp = self._ddp[0]
        with contextlib.nullcontext() if last else ddp.no_sync():
            total, parts = ddp(loss)
            (total * share).backward()
        return total.detach(), parts


class ShardedModel(Model):
    """FSDP: every process keeps a slice of each weight, and blocks are put together when they are needed."""

    def __init__(self, learner: nn.Module, processes: Processes) -> None:
        super().__init__(learner)
        mesh = init_device_mesh(processes.device.type, (processes.world,))
        blocks = [module for module in learner.modules() if isinstance(module, Block)]
        for block, shared in zip(blocks, _shared_with_earlier(blocks), strict=True):
            for name in shared:
                _own(block, name)
            fully_shard(block, mesh=mesh)
        fully_shard(self, mesh=mesh, reshard_after_forward=True)

    def descend(self, loss: Callable[[], Loss], share: float, last: bool) -> Loss:
        cast(Any, self).set_requires_gradient_sync(last)
        return super().descend(loss, share, last)


def _shared_with_earlier(blocks: Sequence[nn.Module]) -> list[list[str]]:
    """Names of each block's parameters that an earlier block has too: the momentum encoder shares what never trains."""
    known: set[int] = set()
    shared = []
    for block in blocks:
        named = dict(block.named_parameters())
        shared.append([name for name, parameter in named.items() if id(parameter) in known])
        known |= {id(parameter) for parameter in named.values()}
    return shared


def _own(block: nn.Module, name: str) -> None:
    """A copy instead of a shared parameter: a slice belongs to one block. Just before slicing, so it is short-lived."""
    owner, _, last = name.rpartition(".")
    copied = nn.Parameter(block.get_parameter(name).detach().clone(), requires_grad=False)
    setattr(block.get_submodule(owner), last, copied)


def whole(tree: Any, keep: bool = True) -> Any:
    """The same values with every sharded tensor put together, one after the other, in the memory of the machine.

    All processes must ask; those that do not `keep` get empty tensors.
    """
    if isinstance(tree, dict):
        return {key: whole(value, keep) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return type(tree)(whole(value, keep) for value in tree)
    if not isinstance(tree, DTensor):
        return tree
    together = tree.full_tensor()
    return together.cpu() if keep else together.new_empty(0)


def load_whole(optimiser: torch.optim.Optimizer, state: dict[str, Any]) -> None:
    """`load_state_dict` of whole tensors into an optimiser of sharded parameters."""
    parameters = [parameter for group in optimiser.param_groups for parameter in group["params"]]
    sharded = {
        number: {
            name: distribute_tensor(value, of.device_mesh, of.placements) if value.shape == of.shape else value
            for name, value in state["state"][number].items()
        }
        for number, of in enumerate(parameters)
        if number in state["state"]
    }
    optimiser.load_state_dict({**state, "state": sharded})


def clip_gradients(parameters: Iterable[Tensor], most: float) -> Tensor:
    """The norm of all gradients together, over all processes; they are scaled down to `most` where it is larger."""
    norm = torch.nn.utils.clip_grad_norm_([one for one in parameters if one.grad is not None], most)
    return norm.full_tensor() if isinstance(norm, DTensor) else norm
