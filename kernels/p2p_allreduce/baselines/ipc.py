"""Memory of a rank's card that all ranks map: cudaMalloc and CUDA IPC, by the runtime that torch has loaded."""

import ctypes

import torch

from kernels.p2p_allreduce.ranks import Rank

_HANDLE_BYTES = 64
_LAZY_ENABLE_PEER_ACCESS = 1


class _Handle(ctypes.Structure):
    """A cudaIpcMemHandle_t, which is passed by value."""

    _fields_ = (("words", ctypes.c_char * _HANDLE_BYTES),)


class SharedMemory:
    """One allocation a rank: `addresses` has where each is mapped in this process, in order of rank."""

    def __init__(self, me: Rank, size: int) -> None:
        """Allocates `size` bytes on this rank's card, and maps the others'. Raises RuntimeError where CUDA does."""
        self._runtime = ctypes.CDLL(f"libcudart.so.{str(torch.version.cuda).split('.')[0]}")
        self._me = me
        self.own = ctypes.c_void_p()
        handle = _Handle()
        self._call("cudaMalloc", ctypes.byref(self.own), ctypes.c_size_t(size))
        self._call("cudaIpcGetMemHandle", ctypes.byref(handle), self.own)
        handles = me.gather(bytes(handle))
        self.addresses = [
            int(self.own.value or 0) if rank == me.rank else self._opened(handle) for rank, handle in enumerate(handles)
        ]

    def close(self) -> None:
        """Unmaps the others' memory, waits until they have done so too, and frees this rank's."""
        for rank, address in enumerate(self.addresses):
            if rank != self._me.rank:
                self._call("cudaIpcCloseMemHandle", ctypes.c_void_p(address))
        self._me.gather(None)
        self._call("cudaFree", self.own)

    def _opened(self, handle: bytes) -> int:
        address = ctypes.c_void_p()
        flags = ctypes.c_uint(_LAZY_ENABLE_PEER_ACCESS)
        self._call("cudaIpcOpenMemHandle", ctypes.byref(address), _Handle.from_buffer_copy(handle), flags)
        return int(address.value or 0)

    def _call(self, name: str, *arguments: object) -> None:
        status = getattr(self._runtime, name)(*arguments)
        if status:
            self._runtime.cudaGetErrorString.restype = ctypes.c_char_p
            raise RuntimeError(f"{name}: {self._runtime.cudaGetErrorString(status).decode()}")
