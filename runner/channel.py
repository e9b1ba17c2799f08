"""What passes between the two sides: bounded JSON lines on a socket, and words of shared memory for the clock."""

import contextlib
import json
import mmap
import os
import select
import socket
import time
from typing import Any

from runner import plain_json

MAX_LINE_BYTES = 1 << 20
CONTROL_BYTES = 4096
GO, ACK = 0, 1
STATES = 8  # the acknowledgement word holds call × 8 + state
PREPARED, ARMED, DONE, DELIVERED = 1, 2, 3, 4
WAKE, FINISHED = b"!", b"."


class Gone(Exception):
    """The other side closed the channel or died."""


class Garbled(Exception):
    """The other side sent something that is no bounded JSON object."""


class Late(Exception):
    """Nothing came before the deadline."""


class Lines:
    """JSON objects, one a line, over a stream socket; neither side can make the other hold more than 1 MiB."""

    def __init__(self, sock: socket.socket):
        self.sock = sock
        self._rest = b""

    def send(self, message: dict[str, Any], fds: tuple[int, ...] = ()) -> None:
        data = json.dumps(message, allow_nan=True).encode() + b"\n"
        if len(data) > MAX_LINE_BYTES:
            raise Garbled(f"{len(data)} bytes in one message, {MAX_LINE_BYTES} are the limit")
        try:
            if fds:
                n_sent = socket.send_fds(self.sock, [data], list(fds))
                data = data[n_sent:]
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError) as fault:
            raise Gone(str(fault)) from None

    def receive(self, deadline: float | None = None, tick: Any = None) -> dict[str, Any]:
        """The next message; `tick()` is called a few times a second while waiting (to look after the other side).

        Raises:
            Late: `deadline` (on `time.monotonic`) has passed.
            Gone, Garbled: the other side left, or sent no JSON object.
        """
        while b"\n" not in self._rest:
            if len(self._rest) > MAX_LINE_BYTES:
                raise Garbled("a message longer than 1 MiB")
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise Late("no answer in time")
                if not select.select([self.sock], [], [], min(left, 0.2))[0]:
                    if tick:
                        tick()
                    continue
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError as fault:
                raise Gone(str(fault)) from None
            if not data:
                raise Gone("the channel was closed")
            self._rest += data
        line, self._rest = self._rest.split(b"\n", 1)
        try:
            message = plain_json.loads(line)
        except ValueError as fault:
            raise Garbled(str(fault)[:200]) from None
        if not isinstance(message, dict):
            raise Garbled("not a JSON object")
        return message

    def receive_byte(self, deadline: float, tick: Any) -> bytes:
        """The next single byte; what was sent before its time is garbled."""
        if self._rest:
            raise Garbled("more was sent than was asked for")
        while not select.select([self.sock], [], [], 0.2)[0]:
            if time.monotonic() > deadline:
                raise Late("no answer in time")
            tick()
        try:
            data = self.sock.recv(1)
        except ConnectionResetError as fault:
            raise Gone(str(fault)) from None
        if not data:
            raise Gone("the channel was closed")
        return data

    def receive_with_fds(self) -> tuple[dict[str, Any], list[int]]:
        """The next message with the file descriptors that came along (the child's side, before any hostile code)."""
        while b"\n" not in self._rest:
            data, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, 4)
            if not data:
                raise Gone("the channel was closed")
            self._rest += data
            if fds:
                self._fds = fds
        line, self._rest = self._rest.split(b"\n", 1)
        fds, self._fds = getattr(self, "_fds", []), []
        return json.loads(line), fds

    def close(self) -> None:
        self.sock.close()


class SharedMemory:
    """Anonymous memory that both sides map: the control words first, then bytes for inputs and outputs."""

    def __init__(self, n_bytes: int = 0, fd: int | None = None):
        if fd is None:
            fd = os.memfd_create("mkb-draw", os.MFD_CLOEXEC)
            os.ftruncate(fd, CONTROL_BYTES + max(n_bytes, 1))
        self.fd = fd
        self.n_bytes = os.fstat(fd).st_size
        self.map = mmap.mmap(fd, self.n_bytes)
        self.words = memoryview(self.map)[:CONTROL_BYTES].cast("Q")

    def close(self) -> None:
        self.words.release()
        with contextlib.suppress(BufferError):  # an array still looks at it; the mapping goes with the array
            self.map.close()
        os.close(self.fd)
