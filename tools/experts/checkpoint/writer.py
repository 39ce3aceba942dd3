"""Writes a safetensors file tensor by tensor, without holding it in memory."""

import json
import math
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from tools.experts.checkpoint import headers
from tools.files import atomic


class Writer:
    """A file that is there whole, safe on disk, after the block, or not at all.

    Args:
        path: the file; one that is there is replaced.
        tensors: name to dtype ("F8_E4M3") and shape, in the order in which they will lie.

    Raises OSError.
    """

    def __init__(self, path: Path, tensors: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        self._path, self._draft = path, path.with_name(f".{path.name}.partial")
        stated: dict[str, object] = {"__metadata__": {"format": "pt"}}
        end, self._places = 0, {}
        for name, (dtype, shape) in tensors.items():
            size = math.prod(shape) * headers.ITEM_BYTES[dtype]
            self._places[name] = (end, size)
            stated[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
            end += size
        header = json.dumps(stated, separators=(",", ":")).encode()
        # Readers want the data aligned.
        header += b" " * (-len(header) % 8)
        self._start, self._end, self._missing = 8 + len(header), 8 + len(header) + end, set(tensors)
        self._file = os.open(self._draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        self._write(len(header).to_bytes(8, "little") + header, 0)

    def __enter__(self) -> "Writer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                if self._missing:
                    raise ValueError(f"{self._path}: never put: {', '.join(sorted(self._missing)[:4])}")
                os.ftruncate(self._file, self._end)
                os.fsync(self._file)
                self._draft.rename(self._path)
                atomic.sync_folder(self._path.parent)
        finally:
            os.close(self._file)
            self._draft.unlink(missing_ok=True)

    def put(self, name: str, values: NDArray[np.generic]) -> None:
        """Writes a tensor's bytes, those of `values` in C order; from any thread.

        Raises ValueError when they are not as many as were stated, KeyError for a name that was not.
        """
        offset, size = self._places[name]
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        if data.size != size:
            raise ValueError(f"{name}: {data.size} bytes; stated {size}")
        self._write(data.data, self._start + offset)
        self._missing.discard(name)

    def _write(self, data: bytes | memoryview, offset: int) -> None:
        done = 0
        while done < len(data):
            done += os.pwrite(self._file, data[done:], offset + done)
