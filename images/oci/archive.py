"""Reading wheels fast: a zip file whose members ISA-L inflates, whole, at a multiple of zlib's speed."""

import io
import struct
import zipfile
from typing import IO, Any

from isal import isal_zlib

# Local file header (APPNOTE 4.3.7): its last two fields are the lengths of name and extra field.
_LOCAL_HEADER = struct.Struct("<26xHH")
_ENCRYPTED = 0x1


class Archive(zipfile.ZipFile):
    """A ZipFile whose `open` reads deflated members whole into memory and checks their size and CRC-32."""

    def open(self, name: str | zipfile.ZipInfo, mode: Any = "r", *rest: Any, **more: Any) -> IO[bytes]:
        """Opens a member; raises zipfile.BadZipFile when it is not what the directory says."""
        info = name if isinstance(name, zipfile.ZipInfo) else self.getinfo(name)
        if mode != "r" or info.compress_type != zipfile.ZIP_DEFLATED or info.flag_bits & _ENCRYPTED:
            return super().open(name, mode, *rest, **more)
        source = self.fp
        assert source is not None
        source.seek(info.header_offset)
        source.seek(sum(_LOCAL_HEADER.unpack(source.read(_LOCAL_HEADER.size))), io.SEEK_CUR)
        try:
            data = isal_zlib.decompress(source.read(info.compress_size), wbits=-15, bufsize=info.file_size)
        except isal_zlib.error as error:  # type: ignore[misc]
            raise zipfile.BadZipFile(f"{info.filename}: cannot be inflated: {error}") from error
        if len(data) != info.file_size or isal_zlib.crc32(data) != info.CRC:
            raise zipfile.BadZipFile(f"{info.filename}: size or CRC-32 is not what the wheel's directory says")
        return io.BytesIO(data)
