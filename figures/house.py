"""The house: imports between the wings of `otm` and between the rooms of `analysis`, from sources.

A *room* is a sub-package or a module of its own; the package's own `__init__`, which only exports,
is left out. The rooms of `otm` form seven *wings*, which are drawn. A wing or a room stands one
floor above the highest that it imports, so an arrow can climb only in a circle. Arrows that follow
from others are left out of the picture.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import itertools
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.textpath import TextPath

from figures.paths import ROOT
from figures.work import Work

PACKAGES = ("otm", "analysis")

WINGS = {
    "ground": ("errors", "scheme", "_machine", "_display"),
    "input": ("pmf", "logits", "examples"),
    "one token": (
        "problem",
        "overlap",
        "drafts",
        "verifiers",
        "transport",
        "bounds",
        "lossy",
        "losses",
        "partial",
        "table",
        "continuous",
        "divergences",
        "races",
        "verbs",
        "results",
        "comparison",
    ),
    "engines": ("engines",),
    "several tokens": ("sequence", "trees"),
    "auditor": ("audit",),
    "commands": ("commands", "plot", "pytest_plugin", "__main__"),
}
"""The rooms of each wing of `otm`; the library is all but the auditor."""

_LEGEND = {
    "otm": "the library, the auditor and its commands",
    "analysis": "on real language models, on top of otm",
}
_WIDTH, _GAP = 7.0, 0.1  # inches, as all below: of the picture, and between boxes
_HEIGHT = {"otm": 0.62, "analysis": 0.42}  # of a box
_STOREY = {"otm": 0.86, "analysis": 0.68}  # from floor to floor
_WIDEST, _PASSAGE, _CAPTION = {"otm": 6.4, "analysis": 2.7}, 0.16, 0.36
_TYPE, _MARGIN = 10.5, 0.09  # points of a name, smaller where it would come nearer to the edges
_PALE, _INK = {"otm": "#DCEBF5", "analysis": "#ECECEC"}, "#222222"

Graph = dict[str, set[str]]


def compute(work: Work) -> dict[str, Any]:
    """Return each package's boxes with floors, its arrows, and the circles of files and rooms."""
    packages = {}
    for package in PACKAGES:
        files = imports(package)
        inside = {
            name: {other for other in found if other in files} for name, found in files.items()
        }
        rooms = rooms_of(files, package)
        boxes = wings_of(rooms) if package == "otm" else rooms
        floors = floors_of(boxes)
        packages[package] = {
            "boxes": [
                {"name": box, "floor": floors[box]}
                for box in sorted(boxes, key=lambda box: (floors[box], box))
            ],
            "arrows": sorted(
                [above, below] for above, found in reduced(boxes).items() for below in found
            ),
            "rooms": floors_of(rooms),
            "circles": {"files": circle(inside), "rooms": circle(rooms)},
        }
        work.tick()
    return {"packages": packages}


def wings_of(rooms: Graph) -> Graph:
    """Return the wings of `otm` that each wing imports."""
    wing_of = {f"otm.{room}": wing for wing, found in WINGS.items() for room in found}
    wings: Graph = {wing: set() for wing in WINGS}
    for room, found in rooms.items():
        wing = wing_of[room]
        wings[wing].update({wing_of[below] for below in found} - {wing})
    return wings


@functools.cache
def imports(folder: str) -> Graph:
    """Return what each module of a folder imports, at any depth of its code, by full names."""
    found: Graph = {}
    for path in sorted((ROOT.parent / folder).rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        package = parts[:-1]
        names = found.setdefault(".".join(package if parts[-1] == "__init__" else parts), set())
        for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                name = ".".join((*base, *([node.module] if node.module else [])))
                inner = {f"{name}.{alias.name}" for alias in node.names}
                modules = {one for one in inner if _path(one).is_file()}
                names |= modules | ({name} if modules != inner else set())
    return found


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node at any depth, without a look at expressions, which hold none.

    >>> [type(one).__name__ for one in statements(ast.parse("if x: import y"))]
    ['If', 'Import']
    """
    for field in ("body", "handlers", "orelse", "finalbody", "cases"):
        for inner in getattr(node, field, ()):
            yield inner
            yield from statements(inner)


def _path(module: str) -> Path:
    path = ROOT.parent.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def room_of(module: str) -> str:
    """Return the room in which a module stands: the first two parts of its name."""
    return ".".join(module.split(".")[:2])


def rooms_of(files: Graph, package: str) -> Graph:
    """Return which rooms each room of a package imports; the package's `__init__` is no room."""
    rooms: Graph = {}
    for name, found in files.items():
        if name != package:
            inside = {room_of(other) for other in found if other in files and other != package}
            rooms.setdefault(room_of(name), set()).update(inside - {room_of(name)})
    return rooms


def circle(graph: Graph) -> list[str]:
    """Return the nodes of one circle, or nothing."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def floors_of(rooms: Graph) -> dict[str, int]:
    """Return the length of the longest way down from each room."""
    floors: dict[str, int] = {}
    for room in graphlib.TopologicalSorter(rooms).static_order():
        floors[room] = 1 + max((floors[below] for below in rooms[room]), default=-1)
    return floors


def reduced(rooms: Graph) -> Graph:
    """Return the same order with no arrow that follows from others: its transitive reduction."""
    under: Graph = {}
    for room in graphlib.TopologicalSorter(rooms).static_order():
        under[room] = rooms[room].union(*(under[below] for below in rooms[room]))
    return {
        room: {one for one in found if not any(one in under[other] for other in found)}
        for room, found in rooms.items()
    }


def message(data: dict[str, Any]) -> str:
    """Return what the picture shows."""
    rooms = [room for package in data["packages"].values() for room in package["rooms"]]
    return f"Every import between {len(rooms)} rooms points down"


def draw(data: dict[str, Any]) -> Figure:
    """Draw the packages one on the other, each floor by floor from bottom to top."""
    heights = {
        name: 1 + max(box["floor"] for box in package["boxes"])
        for name, package in data["packages"].items()
    }
    total = sum(_STOREY[name] * floors for name, floors in heights.items())
    total += _CAPTION * len(heights) + 0.4
    canvas = Figure(figsize=(_WIDTH + 0.2, total))
    axes = canvas.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.1, _WIDTH + 0.1), ylim=(0.0, total))
    axes.set_axis_off()
    bottom = 0.1
    for name, package in data["packages"].items():
        _house(axes, name, package, bottom)
        bottom += _STOREY[name] * heights[name] + _CAPTION
    return canvas


def _house(axes: Axes, name: str, package: dict[str, Any], bottom: float) -> None:
    boxes = {box["name"]: box for box in package["boxes"]}
    places = _places(boxes, package["arrows"], _WIDEST[name])
    storey, height = _STOREY[name], _HEIGHT[name]
    top = bottom + storey * (1 + max(box["floor"] for box in boxes.values())) - 0.08
    axes.text(0.0, top, name, fontsize=13, weight="bold", color=_INK)
    axes.text(_WIDTH, top, _LEGEND[name], fontsize=9.5, ha="right", color="#555555")
    for above, *way in _ways(boxes, package["arrows"]):
        points = [
            (x, bottom + storey * floor, wide)
            for x, floor, wide in (places[point] for point in (above, *way))
        ]
        _arrow(axes, points, height)
    for box, (x, floor, width) in places.items():
        if box in boxes:
            _box(axes, box, (x, bottom + storey * floor), (width, height), name)


Place = tuple[float, int, float]


def _ways(rooms: dict[str, Any], arrows: list[list[str]]) -> list[list[str]]:
    """Return each arrow as the points that it passes: room, passages between, room."""
    floor = {name: room["floor"] for name, room in rooms.items()}
    return [
        [
            above,
            *(f"{above}>{below}@{level}" for level in range(floor[above] - 1, floor[below], -1)),
            below,
        ]
        for above, below in arrows
    ]


def _places(rooms: dict[str, Any], arrows: list[list[str]], widest: float) -> dict[str, Place]:
    """Return centre, floor and width of every room and passage, ordered for short arrows."""
    floor = {name: int(room["floor"]) for name, room in rooms.items()}
    near: Graph = {name: set() for name in rooms}
    for way in _ways(rooms, arrows):
        for point in way[1:-1]:
            floor[point] = int(point.rpartition("@")[2])
        for one, other in itertools.pairwise(way):
            near.setdefault(one, set()).add(other)
            near.setdefault(other, set()).add(one)
    levels = [
        [point for point in sorted(floor) if floor[point] == level]
        for level in range(1 + max(floor.values()))
    ]
    places: dict[str, Place] = {}
    for level in levels:
        places |= _floor(level, rooms, floor, widest)
    for number in range(12):  # sweeps up and down in turn; more change nothing
        for level in levels[:: 1 if number % 2 == 0 else -1]:
            before = -1 if number % 2 == 0 else 1
            pull = dict.fromkeys(level, 0.0)
            for point in level:
                ends = [
                    places[other][0]
                    for other in near[point]
                    if (floor[other] - floor[point]) * before > 0
                ]
                pull[point] = sum(ends) / len(ends) if ends else places[point][0]
            places |= _floor(sorted(level, key=pull.__getitem__), rooms, floor, widest)
    return places


def _floor(
    level: list[str], rooms: dict[str, Any], floor: dict[str, int], widest: float
) -> dict[str, Place]:
    """Return the places of a floor's rooms and passages from left to right."""
    num_rooms = sum(point in rooms for point in level)
    free = _WIDTH - _PASSAGE * (len(level) - num_rooms) - _GAP * (len(level) - 1)
    width = min(widest, free / num_rooms)
    widths = [width if point in rooms else _PASSAGE for point in level]
    left = (_WIDTH - sum(widths) - _GAP * (len(level) - 1)) / 2
    placed: dict[str, Place] = {}
    for point, wide in zip(level, widths, strict=True):
        placed[point] = (left + wide / 2, floor[point], wide)
        left += wide + _GAP
    return placed


def _box(
    axes: Axes, name: str, corner: tuple[float, float], size: tuple[float, float], package: str
) -> None:
    (x, y), (width, height) = corner, size
    box = FancyBboxPatch(
        (x - width / 2, y),
        width,
        height,
        boxstyle="round,pad=0,rounding_size=0.06",
        fc=_PALE[package],
        ec="#8A9BA8",
        lw=0.8,
        zorder=3,
    )
    axes.add_patch(box)
    label = name.rpartition(".")[2]
    long = (
        TextPath((0, 0), label, size=_TYPE, prop=FontProperties(weight="bold")).get_extents().width
        / 72
    )
    words: dict[str, Any] = {
        "fontsize": _TYPE * min(1.0, (width - 2 * _MARGIN) / long),
        "weight": "bold",
    }
    rooms = textwrap.wrap(
        ", ".join(room.strip("_") for room in WINGS.get(name, ()) if room != name), 88
    )
    centred: dict[str, Any] = {"ha": "center", "va": "center", "color": _INK, "zorder": 4}
    axes.text(x, y + height * (0.78 if rooms else 0.5), label, **words, **centred)
    axes.text(x, y + 0.36 * height, "\n".join(rooms), fontsize=9, linespacing=1.25, **centred)


def _arrow(axes: Axes, way: list[tuple[float, float, float]], height: float) -> None:
    """Draw an arrow through its points: centre, lower edge and width of boxes and passages."""
    colour = "#66727C"
    for number, (one, other) in enumerate(itertools.pairwise(way)):
        last = number == len(way) - 2
        start, end = _ends(one, other)
        high, low = one[1], other[1] + height
        if not last:  # through the passage of the floor between
            axes.plot([end, end], [low, low - height], color=colour, lw=1.0, zorder=2)
        style = "-|>,head_length=4,head_width=2" if last else "-"
        axes.add_patch(
            FancyArrowPatch(
                (start, high),
                (end, low),
                arrowstyle=style,
                color=colour,
                lw=1.0,
                shrinkA=0,
                shrinkB=0,
                zorder=2,
            )
        )


def _ends(
    one: tuple[float, float, float], other: tuple[float, float, float]
) -> tuple[float, float]:
    """Return where on two rooms' edges an arrow starts and ends, straight down if it can."""
    (low, high), (left, right) = (
        (x - max(0.0, wide / 2 - 0.12), x + max(0.0, wide / 2 - 0.12))
        for x, _, wide in (one, other)
    )
    if max(low, left) <= min(high, right):
        middle = (max(low, left) + min(high, right)) / 2
        return middle, middle
    return (high, left) if high < left else (low, right)
