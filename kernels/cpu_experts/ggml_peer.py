"""The same experts through ggml's mul_mat of MXFP4, by a shared library of ggml that is not part of this repository.

The library has ggml and its CPU backend in one file, as ggml 0.25 with the switches of the CPU at hand makes it.
"""

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .layout import BLOCK, MATRICES, Record, unpack_expert
from .reference import Bytes, Floats

_MXFP4, _F32 = 39, 0
_MAX_THREADS = 512
_REPACKED = "_Z35ggml_backend_cpu_repack_buffer_typev"


class _InitParams(ctypes.Structure):
    _fields_ = (("mem_size", ctypes.c_size_t), ("mem_buffer", ctypes.c_void_p), ("no_alloc", ctypes.c_bool))


class _Plan(ctypes.Structure):
    _fields_ = (
        ("work_size", ctypes.c_size_t),
        ("work_data", ctypes.c_void_p),
        ("n_threads", ctypes.c_int),
        ("threadpool", ctypes.c_void_p),
        ("abort_callback", ctypes.c_void_p),
        ("abort_callback_data", ctypes.c_void_p),
        ("use_ref", ctypes.c_bool),
    )


class _PoolParams(ctypes.Structure):
    _fields_ = (
        ("cpumask", ctypes.c_bool * _MAX_THREADS),
        ("n_threads", ctypes.c_int),
        ("prio", ctypes.c_int),
        ("poll", ctypes.c_uint32),
        ("strict_cpu", ctypes.c_bool),
        ("paused", ctypes.c_bool),
    )


def blocks(codes: Bytes, scales: Bytes) -> NDArray[np.uint8]:
    """Matrices as ggml has MXFP4: for 32 inputs the scale, then 16 bytes with input j low and input j + 16 high."""
    rows, count = scales.shape
    nibbles = np.stack([codes & 15, codes >> 4], axis=2).reshape(rows, count, BLOCK)
    return np.concatenate([scales[:, :, None], nibbles[:, :, :16] | nibbles[:, :, 16:] << 4], axis=2)


class GgmlExperts:
    """As many experts as there are records, for one count of tokens, as one graph.

    repacked: the weights in the order that ggml's own kernels for several rows want. Raises OSError when the library
    does not load, and AttributeError when it has not the functions.
    """

    def __init__(
        self, library: Path, record: Record, flats: Sequence[Bytes], tokens: int, threads: int, limit: float,
        *, repacked: bool,
    ) -> None:  # fmt: skip
        self._lib = lib = ctypes.CDLL(str(library))
        pointer = ctypes.c_void_p
        for name in ("ggml_init", "ggml_new_tensor_2d", "ggml_mul_mat", "ggml_swiglu_clamp", "ggml_new_graph_custom",
                     "ggml_threadpool_new", "ggml_get_data", "ggml_backend_alloc_ctx_tensors_from_buft",
                     "ggml_backend_cpu_buffer_type", _REPACKED):  # fmt: skip
            getattr(lib, name).restype = pointer
        lib.ggml_graph_plan.restype = _Plan
        self._quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, pointer)(lambda *_: None)
        lib.ggml_log_set(self._quiet, None)
        lib.ggml_cpu_init()
        self._weights = lib.ggml_init(_InitParams(1 << 20, None, True))
        self._tensors: list[dict[str, int]] = []
        for _ in flats:
            made = {}
            for name in MATRICES:
                rows, inputs = record.shape(name)
                made[name] = lib.ggml_new_tensor_2d(
                    pointer(self._weights), _MXFP4, ctypes.c_int64(inputs), ctypes.c_int64(rows)
                )
            self._tensors.append(made)
        kind = getattr(lib, _REPACKED if repacked else "ggml_backend_cpu_buffer_type")()
        self._buffer = lib.ggml_backend_alloc_ctx_tensors_from_buft(pointer(self._weights), pointer(kind))
        known: dict[int, dict[str, NDArray[np.uint8]]] = {}
        for made, flat in zip(self._tensors, flats, strict=True):
            if id(flat) not in known:
                known[id(flat)] = {name: blocks(*pair) for name, pair in unpack_expert(record, flat).items()}
            for name, tensor in made.items():
                data = known[id(flat)][name]
                lib.ggml_backend_tensor_set(
                    pointer(tensor), pointer(data.ctypes.data), ctypes.c_size_t(0), ctypes.c_size_t(data.nbytes)
                )
        room = len(flats) * tokens * 4 * (3 * record.intermediate + record.hidden) + (16 << 20)
        self._context = lib.ggml_init(_InitParams(room, None, False))
        self._x = self._new(record.hidden, tokens)
        graph = lib.ggml_new_graph_custom(pointer(self._context), ctypes.c_size_t(4096), False)
        self._outs = []
        for made in self._tensors:
            gate, up = (self._times(made[name], self._x) for name in ("w1", "w3"))
            h = lib.ggml_swiglu_clamp(pointer(self._context), pointer(gate), pointer(up), ctypes.c_float(limit))
            self._outs.append(self._times(made["w2"], h))
            lib.ggml_build_forward_expand(pointer(graph), pointer(self._outs[-1]))
        self._graph, self._shape = graph, (tokens, record.hidden)
        params = _PoolParams()
        lib.ggml_threadpool_params_init(ctypes.byref(params), threads)
        params.poll = 100
        self._pool = lib.ggml_threadpool_new(ctypes.byref(params))
        self._plan = lib.ggml_graph_plan(pointer(graph), threads, pointer(self._pool))
        self._work = np.empty(max(self._plan.work_size, 1), np.uint8)
        self._plan.work_data = self._work.ctypes.data

    def _new(self, inputs: int, rows: int) -> int:
        made: int = self._lib.ggml_new_tensor_2d(
            ctypes.c_void_p(self._context), _F32, ctypes.c_int64(inputs), ctypes.c_int64(rows)
        )
        return made

    def _times(self, weights: int, x: int) -> int:
        pointers = (ctypes.c_void_p(value) for value in (self._context, weights, x))
        made: int = self._lib.ggml_mul_mat(*pointers)
        return made

    def set_x(self, x: Floats) -> None:
        """Activations, fp32 [tokens, hidden], for all experts."""
        given = np.ascontiguousarray(x, np.float32)
        if given.shape != self._shape:
            raise ValueError(f"x is {given.shape}; expected {self._shape}")
        ctypes.memmove(self._lib.ggml_get_data(ctypes.c_void_p(self._x)), given.ctypes.data, given.nbytes)

    def run(self) -> None:
        """Computes all experts."""
        status = self._lib.ggml_graph_compute(ctypes.c_void_p(self._graph), ctypes.byref(self._plan))
        if status:
            raise RuntimeError(f"ggml_graph_compute gave {status}")

    def out(self, expert: int) -> Floats:
        """What an expert made, fp32 [tokens, hidden]."""
        found = np.empty(self._shape, np.float32)
        data = self._lib.ggml_get_data(ctypes.c_void_p(self._outs[expert]))
        ctypes.memmove(found.ctypes.data, data, found.nbytes)
        return found

    def close(self) -> None:
        """Frees threads and memory."""
        calls: list[tuple[str, Any]] = [
            ("ggml_threadpool_free", self._pool),
            ("ggml_backend_buffer_free", self._buffer),
            ("ggml_free", self._context),
            ("ggml_free", self._weights),
        ]
        for name, value in calls:
            getattr(self._lib, name)(ctypes.c_void_p(value))
