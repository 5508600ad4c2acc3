"""Plans on disk, by the content of the module and the options: the second compile of a program is free and gets the same bytes.

A file a plan, written beside its place and renamed, so that two processes and a full disk leave whole files or none. Nothing here raises: a cache
that cannot be used is no cache.
"""

import hashlib
import json
import os
import pathlib
import tempfile
import zlib

from ._offc import __version__

#: Bytes of all files together; the oldest go first.
LIMIT = 1 << 30
#: Fields of ``HloModuleProto``: ``id``, ``stack_frame_index``.
_UNHEEDED = (5, 17)
_MAGIC = b"offc-plan-1\n"


def directory():
    """Where the plans are: ``OFFC_CACHE_DIR``, else ``offc/plans`` in the user's cache folder; ``None`` where it is switched off."""
    named = os.environ.get("OFFC_CACHE_DIR")
    if named is not None:
        return pathlib.Path(named) if named else None
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return pathlib.Path(base) / "offc" / "plans"


def _content(module):
    """An ``HloModuleProto`` without its ``id``, a number that XLA gives anew in every compile, and without the lines of source that led to it; any
    other bytes as they are."""

    def varint(at):
        value = shift = 0
        while True:
            byte = module[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value, at

    out, at = [], 0
    try:
        while at < len(module):
            begin = at
            tag, at = varint(at)
            if tag & 7 == 0:
                _, at = varint(at)
            elif tag & 7 == 2:
                size, at = varint(at)
                at += size
            else:
                at += {1: 8, 5: 4}[tag & 7]
            if tag >> 3 not in _UNHEEDED:
                out.append(module[begin:at])
    except (IndexError, KeyError):
        return module
    return b"".join(out) if at == len(module) else module


def key(module, options):
    """The name of a module's plan under options (JSON text)."""
    digest = hashlib.sha256()
    for part in (__version__.encode(), options.encode(), _content(module)):
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def load(name):
    """``(module or None, report text)`` as it was stored, or ``None``."""
    place = directory()
    if place is None:
        return None
    path = place / name
    try:
        data = path.read_bytes()
        if not data.startswith(_MAGIC):
            return None
        body = zlib.decompress(data[len(_MAGIC):])
        size = int.from_bytes(body[:8], "little")
        text = body[8 : 8 + size].decode()
        json.loads(text)
        module = body[8 + size :]
        os.utime(path)
        return (module or None), text
    except (OSError, ValueError, zlib.error):
        return None


def store(name, module, report):
    """Keeps a plan; says in a word why not, where it cannot."""
    place = directory()
    if place is None:
        return "switched off"
    text = report.encode()
    data = _MAGIC + zlib.compress(len(text).to_bytes(8, "little") + text + (module or b""), 1)
    temporary = None
    try:
        place.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=place, prefix=".new-", delete=False) as file:
            temporary = file.name
            file.write(data)
        os.replace(temporary, place / name)
        _shrink(place)
        return None
    except OSError as error:
        if temporary is not None:
            try:
                os.unlink(temporary)
            except OSError:
                pass
        return str(error)


def _shrink(place):
    files = []
    for entry in os.scandir(place):
        if entry.is_file():
            status = entry.stat()
            files.append((status.st_mtime_ns, status.st_size, entry.path))
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= LIMIT:
            break
        os.unlink(path)
        total -= size
