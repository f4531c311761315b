"""A CUDA device of the worst kind, on the CPU: its streams run nothing until somebody waits for it.

So a test finds every place where the host reads what is not copied yet, or writes what is still to be copied: in real
life these depend on timing. Tensors of the device are OnDevice; `install` puts streams and events in place of torch's.
"""
from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import Any, Callable

import torch

DEVICE = torch.device("cuda", 0)


class Event:
    """What torch.cuda.Event promises. run: what was queued in front of it, in order."""

    def __init__(self, **_: Any) -> None:
        self.stream: Stream | None = None
        self.is_done = False

    def record(self, stream: Stream) -> None:
        self.stream = stream
        stream.queue.append(self._reach)

    def _reach(self) -> None:
        self.is_done = True

    def query(self) -> bool:
        return self.is_done or self.stream is None

    def synchronize(self) -> None:
        while not self.query():
            assert self.stream is not None
            self.stream.run_one()


class Stream:
    """What torch.cuda.Stream promises. queue: operations that did not run yet."""

    def __init__(self, _: Any = None) -> None:
        self.queue: deque[Callable[[], None]] = deque()

    def wait_stream(self, other: Stream) -> None:
        event = Event()
        event.record(other)
        self.queue.append(event.synchronize)

    def run_one(self) -> None:
        self.queue.popleft()()

    def synchronize(self) -> None:
        while self.queue:
            self.run_one()


class Cuda:
    """The device. current: the current stream; pinned: addresses of pinned memory; kept: tensors with record_stream."""

    def __init__(self) -> None:
        self.current = Stream()
        self.pinned: set[int] = set()
        self.kept: list[tuple[int, Stream]] = []

    @contextmanager
    def on(self, stream: Stream) -> Any:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    def kernel(self, function: Callable[[], None]) -> None:
        """Queues a computation on the current stream."""
        self.current.queue.append(function)

    def copy(self, to: Any, source: Any, non_blocking: bool = False, on_device: bool = False) -> Any:
        """Does copy_: between host and device, only pinned memory is copied without waiting."""
        host = source if isinstance(to, OnDevice) else to
        torch.autograd.graph.increment_version(to)      # as the call of a real copy does, which the kernel follows
        self.kernel(lambda: torch.Tensor.copy_(plain(to).data, plain(source)))
        if not on_device and not (non_blocking and host.data_ptr() in self.pinned):
            self.current.synchronize()
        return to


cuda = Cuda()


def plain(tensor: Any) -> Any:
    """Returns the same elements as a tensor of the CPU."""
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.detach().as_subclass(torch.Tensor)


_COMPUTED = (torch.Tensor.sum, torch.Tensor.ne, torch.stack)


class OnDevice(torch.Tensor):
    """A tensor of the device. Only what the staging memory does with tensors is done lazily."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func == torch.Tensor.device.__get__:     # a new object each time
            return DEVICE
        if func is torch.Tensor.copy_:
            return cuda.copy(*args, **kwargs)
        if func is torch.Tensor.clone:
            return cuda.copy(tensor(torch.full(args[0].shape, float("nan"))), args[0], on_device=True)
        if func is torch.Tensor.__float__:
            cuda.current.synchronize()
        if func is torch.Tensor.cpu:
            cuda.current.synchronize()
            return plain(args[0]).clone()
        if func is torch.Tensor.to:
            return args[0]
        if func in _COMPUTED:
            return cls._computed(func, *args, **kwargs)
        if func is torch.empty_like:
            return cls._host_memory(args[0], **kwargs)
        return super().__torch_function__(func, types, args, kwargs)

    @classmethod
    def _computed(cls, func: Any, *args: Any, **kwargs: Any) -> Any:
        """Queues a computation, and returns the tensor that will have its result."""
        def run() -> Any:
            return func(*[[plain(x) for x in one] if isinstance(one, list) else plain(one) for one in args], **kwargs)

        out = torch.zeros_like(run()).as_subclass(cls)
        cuda.kernel(lambda: torch.Tensor.copy_(plain(out), run()))
        return out

    def record_stream(self, stream: Any) -> None:
        cuda.kept.append((self.data_ptr(), stream))

    @staticmethod
    def _host_memory(like: Any, device: str, pin_memory: bool, memory_format: Any) -> Any:
        assert device == "cpu" and memory_format is torch.contiguous_format
        memory = torch.full(like.shape, float("nan"), dtype=like.dtype)
        if pin_memory:
            cuda.pinned.add(memory.data_ptr())
        return memory


def tensor(values: Any) -> Any:
    """Returns a tensor of the device with these values, which it has already."""
    return torch.as_tensor(values, dtype=torch.float32).clone().as_subclass(OnDevice)


def install(monkeypatch: Any) -> Cuda:
    """Puts the device in place of torch.cuda until the end of the test. Nothing is queued on it."""
    cuda.__init__()     # type: ignore[misc]
    for name, value in (("Stream", Stream), ("Event", Event), ("stream", cuda.on),
                        ("current_stream", lambda _: cuda.current)):
        monkeypatch.setattr(torch.cuda, name, value)
    return cuda
