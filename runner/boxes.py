"""Where one draw's inputs lie and its outputs are put: memory that the parent owns and the child only borrows."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from runner.arrays import Arrays, dtype_of, is_array
from runner.channel import CONTROL_BYTES, SharedMemory

ALIGN = 512
POISON = 0xFF  # NaN in every float type, -1 in every integer type: nothing that a right answer consists of
_H2D, _D2H, _D2D = 1, 2, 3


@dataclass(frozen=True)
class Slot:
    """One array in a box: shape, type name, and where its bytes begin."""

    shape: tuple[int, ...]
    dtype: str
    offset: int

    @property
    def n_bytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * dtype_of(self.dtype).itemsize

    def plain(self) -> list:
        return [list(self.shape), self.dtype, self.offset]


def slots_of(values: Any) -> tuple[list[Slot | None], int]:
    """Aligned slots for the arrays among `values` (None for plain numbers), and the bytes they need together."""
    slots: list[Slot | None] = []
    at = 0
    for value in values:
        if not is_array(value):
            slots.append(None)
            continue
        slots.append(Slot(tuple(value.shape), np.dtype(value.dtype).name, at))
        at += -(-max(value.nbytes, 1) // ALIGN) * ALIGN
    return slots, max(at, ALIGN)


class Boxes:
    """The parent's side: an inbox for the inputs and a mailbox for the outputs of one call.

    On the CPU both lie in shared memory. On the GPU they are plain `cudaMalloc` buffers that the child opens through
    CUDA IPC; where it cannot (`shared_by_ipc` is then set to False), it copies through the shared memory instead.
    """

    def __init__(self, arrays: Arrays, inputs: tuple, outputs: tuple):
        self.arrays = arrays
        self.inbox, self.n_inbox_bytes = slots_of(inputs)
        self.mailbox, self.n_mailbox_bytes = slots_of(outputs)
        self.memory = SharedMemory(self.n_inbox_bytes + self.n_mailbox_bytes)
        self.shared_by_ipc = arrays.device == "cuda"
        self._at: list[int] = []
        if arrays.device == "cuda":
            self._at = [arrays.runtime.malloc(n) for n in (self.n_inbox_bytes, self.n_mailbox_bytes)]

    def layout(self) -> dict[str, Any]:
        """What the child is told: slots, and on the GPU the handles."""
        layout = {
            "inbox": [slot and slot.plain() for slot in self.inbox],
            "n_inbox_bytes": self.n_inbox_bytes,
            "n_mailbox_bytes": self.n_mailbox_bytes,
            "mailbox": [slot.plain() for slot in self.mailbox],
        }
        # MKB_CUDA_IPC=0 takes the other way on purpose: copies through the host.
        if self._at and os.environ.get("MKB_CUDA_IPC", "1") != "0":
            try:
                layout["ipc"] = [self.arrays.runtime.ipcGetMemHandle(at).hex() for at in self._at]
            except Exception as fault:  # CUDA without IPC (some containers): the copies through the host take over
                layout["ipc_fault"] = str(fault)[:200]
        return layout

    def write(self, inputs: tuple) -> None:
        """Put one draw's arrays into the inbox."""
        for slot, value in zip(self.inbox, inputs, strict=False):
            if slot is None or not slot.n_bytes:
                continue
            value = self.arrays.xp.ascontiguousarray(value)
            if self.shared_by_ipc:
                self.arrays.runtime.memcpy(self._at[0] + slot.offset, value.data.ptr, slot.n_bytes, _D2D)
            else:
                self._host(slot, 0)[...] = self.arrays.to_host(value).reshape(slot.shape)

    def poison(self) -> None:
        """Fill the mailbox with what no right answer holds, so that only what the child delivers can pass."""
        if self.shared_by_ipc:
            self.arrays.runtime.memset(self._at[1], POISON, self.n_mailbox_bytes)
        else:
            start = CONTROL_BYTES + self.n_inbox_bytes
            np.frombuffer(self.memory.map, np.uint8, self.n_mailbox_bytes, start)[...] = POISON

    def read(self) -> tuple:
        """Copies of the delivered outputs, in memory that the child cannot reach."""
        return tuple(self._copy(slot) for slot in self.mailbox)

    def first_changed(self, inputs: tuple) -> int | None:
        """Index of the first input that no longer holds what was written, None if all do."""
        xp = self.arrays.xp
        for index, (slot, value) in enumerate(zip(self.inbox, inputs, strict=False)):
            if slot is None or not slot.n_bytes:
                continue
            value = xp.ascontiguousarray(value).reshape(-1).view(np.uint8)
            if self.shared_by_ipc:
                now = self._device(slot, 0).reshape(-1).view(np.uint8)
            else:
                now = self._host(slot, 0).reshape(-1).view(np.uint8)
                value = self.arrays.to_host(value)
            if bool((now != value).any()):
                return index
        return None

    def _copy(self, slot: Slot) -> Any:
        if self.shared_by_ipc:
            return self._device(slot, 1).copy()
        return self.arrays.xp.array(self._host(slot, self.n_inbox_bytes))

    def _host(self, slot: Slot, base: int) -> np.ndarray:
        return np.ndarray(slot.shape, dtype_of(slot.dtype), self.memory.map, CONTROL_BYTES + base + slot.offset)

    def _device(self, slot: Slot, box: int) -> Any:
        return device_array(self.arrays.xp, self._at[box] + slot.offset, slot)

    def close(self) -> None:
        for at in self._at:
            self.arrays.runtime.free(at)
        self._at = []
        self.memory.close()


def device_array(xp: Any, at: int, slot: Slot) -> Any:
    """A CuPy array over memory that someone else owns."""
    memory = xp.cuda.UnownedMemory(at, max(slot.n_bytes, 1), None, 0)
    return xp.ndarray(slot.shape, dtype_of(slot.dtype), xp.cuda.MemoryPointer(memory, 0))


class BorrowedBoxes:
    """The child's side of the same memory."""

    def __init__(self, arrays: Arrays, layout: dict[str, Any], memory: SharedMemory):
        self.arrays, self.layout, self.memory = arrays, layout, memory
        self.inbox = [Slot(tuple(s[0]), s[1], s[2]) if s else None for s in layout["inbox"]]
        self.mailbox = [Slot(tuple(s[0]), s[1], s[2]) for s in layout["mailbox"]]
        self.ipc, self.ipc_fault = False, layout.get("ipc_fault")
        self._at: list[int] = []
        if arrays.device == "cuda":
            self._open_device_memory()

    def _open_device_memory(self) -> None:
        runtime = self.arrays.runtime
        if "ipc" in self.layout:
            try:
                self._at = [runtime.ipcOpenMemHandle(bytes.fromhex(handle)) for handle in self.layout["ipc"]]
                self.ipc = True
                return
            except Exception as fault:  # not every sandbox lets two processes share device memory
                self.ipc_fault = str(fault)[:200]
        self._at = [runtime.malloc(self.layout["n_inbox_bytes"])]

    def arguments(self, scalars: dict[str, Any]) -> list[Any]:
        """What `solve` is called with: views of the inbox, and plain numbers in their places."""
        found: list[Any] = []
        for index, slot in enumerate(self.inbox):
            if slot is None:
                found.append(scalars[str(index)])
            elif self._at:
                found.append(device_array(self.arrays.xp, self._at[0] + slot.offset, slot))
            else:
                found.append(np.ndarray(slot.shape, dtype_of(slot.dtype), self.memory.map, CONTROL_BYTES + slot.offset))
        return found

    def fetch(self) -> None:
        """Bring the draw to the device where there is no IPC."""
        if self._at and not self.ipc:
            self.arrays.runtime.memcpy(self._at[0], self._host_at(0), self.layout["n_inbox_bytes"], _H2D)

    def blanks(self) -> tuple:
        """Outputs of nothing, for measuring what a delivery costs."""
        return tuple(self.arrays.xp.zeros(slot.shape, dtype_of(slot.dtype)) for slot in self.mailbox)

    def deliver(self, outputs: tuple) -> list[list]:
        """Copy the outputs into the mailbox; say type, shape and device of each (a claim that the parent checks)."""
        offsets = [slot.offset for slot in self.mailbox]
        limit = self.layout["n_mailbox_bytes"]
        claims = []
        for index, value in enumerate(outputs[:64]):
            plain = type(value) is self.arrays.xp.ndarray
            claims.append(
                [
                    f"{type(value).__module__}.{type(value).__name__}",
                    list(value.shape) if plain else None,
                    np.dtype(value.dtype).name if plain else None,
                ]
            )
            if not plain or index >= len(offsets) or not value.nbytes:
                continue
            room = (offsets[index + 1] if index + 1 < len(offsets) else limit) - offsets[index]
            if value.nbytes <= room:
                self._put(self.arrays.xp.ascontiguousarray(value), offsets[index])
        self.arrays.synchronise()
        return claims

    def _put(self, value: Any, offset: int) -> None:
        start = CONTROL_BYTES + self.layout["n_inbox_bytes"] + offset
        if self.ipc:
            self.arrays.runtime.memcpy(self._at[1] + offset, value.data.ptr, value.nbytes, _D2D)
        elif self._at:
            self.arrays.runtime.memcpy(
                self._host_at(self.layout["n_inbox_bytes"] + offset), value.data.ptr, value.nbytes, _D2H
            )
        else:
            np.ndarray((value.nbytes,), np.uint8, self.memory.map, start)[...] = value.reshape(-1).view(np.uint8)

    def _host_at(self, offset: int) -> int:
        return np.frombuffer(self.memory.map, np.uint8, 1, CONTROL_BYTES + offset).ctypes.data
