"""A disk, rebuilt from a journal of what a broker did to it: what is on it for certain, and what may be.

The model is that of a journaling file system that gives no more than POSIX asks for:

* what is written to a file is certain once a sync of that file has returned that began after it; until then any
  part of it may be there;
* a name that was made, changed or taken away is certain once its directory was synced, not with a sync of the
  file. What happens to the names of one directory happens in order: a later change is never there without an
  earlier one. A rename is atomic. Names and contents are independent: a new name may stand for an empty file;
* a write within one sector (512 bytes) may be torn, but leaves other bytes alone that a sync has covered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from integration.io_shim import Call, Kind

Image = dict[str, bytes | None]
"""The files of a disk by their path, and None for a directory."""

NAMES = frozenset({Kind.OPEN, Kind.RENAME, Kind.UNLINK, Kind.MKDIR, Kind.LINK})
CHANGES = NAMES | {Kind.WRITE, Kind.TRUNCATE, Kind.SYNC}

PAGE_BYTES = 4096


@dataclass(slots=True)
class Change:
    """A write, or with `data` None a new length."""

    ended: int
    offset: int
    data: bytes | None

    def apply(self, content: bytearray) -> None:
        """Does it to the content of a file."""
        if self.data is None:
            del content[self.offset :]
            content.extend(bytes(self.offset - len(content)))
            return
        content.extend(bytes(max(0, self.offset - len(content))))
        content[self.offset : self.offset + len(self.data)] = self.data


@dataclass(slots=True)
class Step:
    """A change of the names in a directory: each of them stands for that from now on, or for nothing."""

    ended: int
    names: Mapping[str, Node | None]


@dataclass(slots=True, eq=False)
class Node:
    """A file, or with `is_directory` a directory."""

    is_directory: bool
    certain: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list)
    certain_names: dict[str, Node] = field(default_factory=dict)
    pending_names: list[Step] = field(default_factory=list)

    def sync(self, began: int) -> None:
        """Makes certain what had ended by then."""
        while self.pending and self.pending[0].ended < began:
            self.pending.pop(0).apply(self.certain)
        while self.pending_names and self.pending_names[0].ended < began:
            _step(self.certain_names, self.pending_names.pop(0))

    def content(self, count: int | None = None) -> bytearray:
        """What is certain, with so many of the changes after it; all of them if it is not said."""
        content = bytearray(self.certain)
        for change in self.pending[:count]:
            change.apply(content)
        return content

    def names(self, count: int | None = None) -> dict[str, Node]:
        """The same for a directory."""
        names = dict(self.certain_names)
        for step in self.pending_names[:count]:
            _step(names, step)
        return names


def _step(names: dict[str, Node], step: Step) -> None:
    for name, node in step.names.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


class Disk:
    """What is below a directory. Calls are told to it in the order in which they ended."""

    def __init__(self, base: Image | None = None) -> None:
        """`base`: what is there at first, all of it certain."""
        self.root = Node(is_directory=True)
        self.last: Node | None = None
        """What the last call changed the content of."""
        for path, content in sorted((base or {}).items()):
            directory, name = self._split(path)
            directory.certain_names[name] = Node(content is None, bytearray(content or b""))

    def apply(self, call: Call) -> None:
        """One call that has worked."""
        self.last = None
        if call.target.endswith(" (deleted)"):
            return
        act: Callable[[Call], None] = getattr(self, f"_{call.kind.name.lower()}")
        act(call)

    def _write(self, call: Call) -> None:
        if (node := self._find(call.target)) is not None:
            node.pending.append(Change(call.ended, call.offset, call.data))
            self.last = node

    def _truncate(self, call: Call) -> None:
        if (node := self._find(call.target)) is not None:
            node.pending.append(Change(call.ended, call.offset, None))
            self.last = node

    def _sync(self, call: Call) -> None:
        if (node := self._find(call.target)) is not None:
            node.sync(call.began)

    def _open(self, call: Call) -> None:
        directory, name = self._split(call.target)
        node = directory.names().get(name)
        if node is None:
            self._change(directory, call, {name: Node(is_directory=False)})
        elif call.offset:
            node.pending.append(Change(call.ended, 0, None))

    def _mkdir(self, call: Call) -> None:
        directory, name = self._split(call.target)
        self._change(directory, call, {name: Node(is_directory=True)})

    def _unlink(self, call: Call) -> None:
        directory, name = self._split(call.target)
        self._change(directory, call, {name: None})

    def _rename(self, call: Call) -> None:
        self._link(call, keep_old=False)

    def _link(self, call: Call, *, keep_old: bool = True) -> None:
        old, new = call.target.split("\n")
        directory, name = self._split(new)
        old_directory, old_name = self._split(old)
        node = old_directory.names().get(old_name)
        if node is None:
            return  # a file that the shim does not see: RocksDB's own log for people
        if keep_old:
            self._change(directory, call, {name: node})
        elif directory is old_directory:
            self._change(directory, call, {name: node, old_name: None})
        else:
            raise AssertionError(f"renamed from one directory to another: {call.target}")

    @staticmethod
    def _change(directory: Node, call: Call, names: Mapping[str, Node | None]) -> None:
        directory.pending_names.append(Step(call.ended, names))

    def _find(self, path: str) -> Node | None:
        if path == ".":
            return self.root
        directory, name = self._split(path)
        return directory.names().get(name)

    def _split(self, path: str) -> tuple[Node, str]:
        *above, name = [part for part in path.split("/") if part]
        node = self.root
        for part in above:
            node = node.names()[part]
        return node, name


# ------------------------------------------------------------------------------------------------ cutting

Content = Callable[[Node], bytes]
Names = Callable[[Node], Mapping[str, Node]]


def image(disk: Disk, content: Content, names: Names) -> Image:
    """What is left when each file has that content and each directory those names."""
    found: Image = {}

    def visit(node: Node, path: str) -> None:
        for name, below in sorted(names(node).items()):
            found[path + name] = None if below.is_directory else content(below)
            if below.is_directory:
                visit(below, f"{path}{name}/")

    visit(disk.root, "")
    return found


def cut_all(disk: Disk, random: Random) -> Image:
    """Everything is there: what a kill leaves."""
    return image(disk, _whole, Node.names)


def cut_least(disk: Disk, random: Random) -> Image:
    """Only what is certain."""
    return image(disk, _certain, _certain_names)


def cut_names(disk: Disk, random: Random) -> Image:
    """Every name, and of the contents what is certain: new files are empty."""
    return image(disk, _certain, Node.names)


def cut_contents(disk: Disk, random: Random) -> Image:
    """Every content, and of the names those that are certain."""
    return image(disk, _whole, _certain_names)


def cut_prefix(disk: Disk, random: Random) -> Image:
    """Of each file and each directory some of the first changes."""

    def content(node: Node) -> bytes:
        return bytes(node.content(random.randint(0, len(node.pending))))

    return image(disk, content, lambda node: node.names(random.randint(0, len(node.pending_names))))


def cut_torn(disk: Disk, random: Random) -> Image:
    """All that went before, and the last write in part, with what disks put behind it."""
    return image(disk, lambda node: _torn(node, random) if node is disk.last else _whole(node), Node.names)


def cut_tails(disk: Disk, random: Random) -> Image:
    """Each file ends somewhere within what is not certain, with what disks put behind it."""
    return image(disk, lambda node: _torn(node, random, random.randint(0, len(node.pending))), Node.names)


def cut_pages(disk: Disk, random: Random) -> Image:
    """Each page that is not certain was written or not; the files are as long as they were."""

    def content(node: Node) -> bytes:
        whole = node.content()
        old = bytes(node.certain).ljust(len(whole), b"\0")
        for page in {page for change in node.pending for page in _pages(change)}:
            if random.random() < 0.5:
                start = page * PAGE_BYTES
                whole[start : start + PAGE_BYTES] = old[start : start + PAGE_BYTES]
        return bytes(whole)

    return image(disk, content, Node.names)


CUTS: Mapping[str, Callable[[Disk, Random], Image]] = {
    "all": cut_all,
    "least": cut_least,
    "names": cut_names,
    "contents": cut_contents,
    "prefix": cut_prefix,
    "torn": cut_torn,
    "tails": cut_tails,
    "pages": cut_pages,
}
"""What the power may leave, from which a sweep chooses."""


def _whole(node: Node) -> bytes:
    return bytes(node.content())


def _certain(node: Node) -> bytes:
    return bytes(node.certain)


def _certain_names(node: Node) -> Mapping[str, Node]:
    return node.certain_names


def _torn(node: Node, random: Random, count: int | None = None) -> bytes:
    """The last of so many changes is there in part; then there is nothing, or zeros, or garbage."""
    changes = node.pending[:count]
    if not changes:
        return bytes(node.certain)
    *before, last = changes
    content = node.content(len(before))
    if last.data is None:
        return bytes(content)
    kept = random.randint(0, len(last.data))
    Change(0, last.offset, last.data[:kept]).apply(content)
    rest = len(last.data) - kept
    tail = random.choice([b"", bytes(rest), random.randbytes(rest)])
    Change(0, last.offset + kept, tail).apply(content)
    return bytes(content)


def _pages(change: Change) -> range:
    length = len(change.data or b"")
    return range(change.offset // PAGE_BYTES, -(-(change.offset + length) // PAGE_BYTES))


@dataclass(frozen=True, slots=True)
class Case:
    """A moment and what was left then."""

    moment: int
    """After so many changes of the disk."""
    cut: str
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.moment}:{self.cut}:{self.seed}"

    @classmethod
    def parse(cls, text: str) -> Case:
        """Reads what `str` wrote."""
        moment, cut, seed = text.split(":")
        return cls(int(moment), cut, int(seed))


def put(image: Image, directory: Path) -> None:
    """Makes the files of an image below a new directory."""
    directory.mkdir()
    for path, content in image.items():  # a directory comes before what is in it
        if content is None:
            (directory / path).mkdir()
        else:
            (directory / path).write_bytes(content)


def take(directory: Path) -> Image:
    """The image of what is below a directory."""
    return {
        str(path.relative_to(directory)): None if path.is_dir() else path.read_bytes()
        for path in sorted(directory.rglob("*"))
    }


def changes(calls: Sequence[Call]) -> list[Call]:
    """What changes a disk or makes it certain, in the order in which it ended."""
    return sorted((call for call in calls if call.kind in CHANGES and call.worked), key=lambda call: call.ended)
