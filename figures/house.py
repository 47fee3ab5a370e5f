"""The house: which room of `otm` and of `analysis` imports which, read from the sources.

A *room* is a sub-package or a module of its own; the package's own `__init__`, which only exports,
is left out. A room stands one floor above the highest room that it imports, so an arrow can climb
only in a circle. Arrows that follow from others are left out of the picture; the rooms that ask the
overlap curve itself have an edge of its colour.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import itertools
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch
from matplotlib.textpath import TextPath

from figures.paths import ROOT
from figures.work import Work
from otm import drawing

PACKAGES = ("otm", "analysis")
CENTRE = "otm.overlap"

AXES = ("otm.drafts", "otm.verifiers")

_WORDS = {CENTRE: "overlap: H(t) = Σ min(q, tp)", "otm.drafts": "drafts: laws"}
_LEGEND = {
    "otm": "dark: the two axes; orange edge: asks the overlap curve itself",
    "analysis": "on real language models, on top of otm",
}
# inches: the house, a room, floor to floor, between rooms
_WIDTH, _HEIGHT, _STOREY, _GAP = (
    7.0,
    0.42,
    0.68,
    0.1,
)
_WIDEST, _PASSAGE, _CAPTION = 2.7, 0.16, 0.36
# points of a room's name, smaller where it would come nearer to the edges than these inches
_TYPE, _MARGIN = (
    10.5,
    0.09,
)
_ORANGE, _BLUE, _PALE, _INK = (
    drawing.PALETTE[1],
    drawing.PALETTE[0],
    {"otm": "#DCEBF5", "analysis": "#ECECEC"},
    "#222222",
)

Graph = dict[str, set[str]]


def compute(work: Work) -> dict[str, Any]:
    """Return each package's rooms with floor, files and statements, its arrows and its circles."""
    packages = {}
    for package in PACKAGES:
        files = imports(package)
        inside = {
            name: {other for other in found if other in files} for name, found in files.items()
        }
        rooms = rooms_of(files, package)
        floors = floors_of(rooms)
        sizes = [(room_of(name), statements(_path(name))) for name in files]
        packages[package] = {
            "rooms": [
                {
                    "name": room,
                    "floor": floors[room],
                    "files": sum(home == room for home, _ in sizes),
                    "statements": rounded(sum(size for home, size in sizes if home == room)),
                    "asks": CENTRE in rooms[room],
                }
                for room in sorted(rooms, key=lambda room: (floors[room], room))
            ],
            "arrows": sorted(
                [above, below] for above, found in reduced(rooms).items() for below in found
            ),
            "circles": {"files": circle(inside), "rooms": circle(rooms)},
        }
        work.tick()
    return {"packages": packages}


@functools.cache
def imports(folder: str) -> Graph:
    """Return what each module of a folder imports, at any depth of its code, by full names."""
    found: Graph = {}
    for path in sorted((ROOT.parent / folder).rglob("*.py")):
        parts = path.relative_to(ROOT.parent).with_suffix("").parts
        package = parts[:-1]
        names = found.setdefault(".".join(package if parts[-1] == "__init__" else parts), set())
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                base = package[: len(package) - node.level + 1] if node.level else ()
                name = ".".join((*base, *([node.module] if node.module else [])))
                inner = {f"{name}.{alias.name}" for alias in node.names}
                modules = {one for one in inner if _path(one).is_file()}
                names |= modules | ({name} if modules != inner else set())
    return found


def statements(path: Path) -> int:
    """Return the number of statements of a file, docstrings apart: a size that no
    layout changes.
    """
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return sum(isinstance(node, ast.stmt) and not _is_text(node) for node in nodes)


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def rounded(count: int) -> int:
    """Return a count to two significant digits, so that a small change leaves the picture true.

    >>> rounded(2784), rounded(96)
    (2800, 96)
    """
    return int(float(f"{count:.2g}"))


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
    return f"Every import of {len(rooms)} rooms points down"


def draw(data: dict[str, Any]) -> Figure:
    """Draw the packages one on the other, each floor by floor from bottom to top."""
    heights = {
        name: 1 + max(room["floor"] for room in package["rooms"])
        for name, package in data["packages"].items()
    }
    total = _STOREY * sum(heights.values()) + _CAPTION * len(heights) + 0.6
    canvas = Figure(figsize=(_WIDTH + 0.2, total))
    axes = canvas.add_axes((0.0, 0.0, 1.0, 1.0))
    axes.set(xlim=(-0.1, _WIDTH + 0.1), ylim=(0.0, total))
    axes.set_axis_off()
    axes.text(
        _WIDTH,
        total - 0.1,
        "an arrow: imports\nin a room: files · statements",
        fontsize=9.5,
        va="top",
        ha="right",
        color="#555555",
    )
    bottom = 0.1
    for name, package in data["packages"].items():
        _house(axes, name, package, bottom)
        bottom += _STOREY * heights[name] + _CAPTION
    return canvas


def _house(axes: Axes, name: str, package: dict[str, Any], bottom: float) -> None:
    rooms = {room["name"]: room for room in package["rooms"]}
    places = _places(rooms, package["arrows"])
    top = bottom + _STOREY * (1 + max(room["floor"] for room in rooms.values())) - 0.08
    axes.text(0.0, top, name, fontsize=13, weight="bold", color=_INK)
    axes.text(_WIDTH, top, _LEGEND[name], fontsize=9.5, ha="right", color="#555555")
    for above, *way in _ways(rooms, package["arrows"]):
        _arrow(axes, [places[point] for point in (above, *way)], bottom, special=way[-1] == CENTRE)
    for room, (x, floor, width) in places.items():
        if room in rooms:
            _room(axes, rooms[room], x, bottom + _STOREY * floor, width, name)


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


def _places(rooms: dict[str, Any], arrows: list[list[str]]) -> dict[str, Place]:
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
        places |= _floor(level, rooms, floor)
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
            places |= _floor(sorted(level, key=pull.__getitem__), rooms, floor)
    return places


def _floor(level: list[str], rooms: dict[str, Any], floor: dict[str, int]) -> dict[str, Place]:
    """Return the places of a floor's rooms and passages from left to right."""
    num_rooms = sum(point in rooms for point in level)
    free = _WIDTH - _PASSAGE * (len(level) - num_rooms) - _GAP * (len(level) - 1)
    width = min(_WIDEST, free / num_rooms)
    widths = [width if point in rooms else _PASSAGE for point in level]
    left = (_WIDTH - sum(widths) - _GAP * (len(level) - 1)) / 2
    placed: dict[str, Place] = {}
    for point, wide in zip(level, widths, strict=True):
        placed[point] = (left + wide / 2, floor[point], wide)
        left += wide + _GAP
    return placed


def _room(axes: Axes, room: dict[str, Any], x: float, y: float, width: float, package: str) -> None:
    name, centre = room["name"], room["name"] == CENTRE
    face = _ORANGE if centre else _BLUE if name in AXES else _PALE[package]
    edge, thick = (_ORANGE, 2.0) if room["asks"] or centre else ("#8A9BA8", 0.8)
    ink = "white" if centre or name in AXES else _INK
    box = FancyBboxPatch(
        (x - width / 2, y),
        width,
        _HEIGHT,
        boxstyle="round,pad=0,rounding_size=0.06",
        fc=face,
        ec=edge,
        lw=thick,
        zorder=3,
    )
    axes.add_patch(box)
    label = _WORDS.get(name, name.partition(".")[2].strip("_"))
    size = f"{room['files']} · {room['statements']:,}"
    long = (
        TextPath((0, 0), label, size=_TYPE, prop=FontProperties(weight="bold")).get_extents().width
        / 72
    )
    type_size = _TYPE * min(1.0, (width - 2 * _MARGIN) / long)
    axes.text(
        x,
        y + 0.265,
        label,
        fontsize=type_size,
        weight="bold",
        ha="center",
        va="center",
        color=ink,
        zorder=4,
    )
    axes.text(x, y + 0.1, size, fontsize=8.5, ha="center", va="center", color=ink, zorder=4)


def _arrow(axes: Axes, way: list[Place], bottom: float, *, special: bool) -> None:
    colour, thick = (_ORANGE, 2.0) if special else ("#66727C", 1.0)
    for number, (one, other) in enumerate(itertools.pairwise(way)):
        last = number == len(way) - 2
        start, end = _ends(one, other)
        high, low = bottom + _STOREY * one[1], bottom + _STOREY * other[1] + _HEIGHT
        if not last:  # through the passage of the floor between
            axes.plot([end, end], [low, low - _HEIGHT], color=colour, lw=thick, zorder=2)
        style = "-|>,head_length=4,head_width=2" if last else "-"
        axes.add_patch(
            FancyArrowPatch(
                (start, high),
                (end, low),
                arrowstyle=style,
                color=colour,
                lw=thick,
                shrinkA=0,
                shrinkB=0,
                zorder=2,
            )
        )


def _ends(one: Place, other: Place) -> tuple[float, float]:
    """Return where on two rooms' edges an arrow starts and ends, straight down if it can."""
    (low, high), (left, right) = (
        (x - max(0.0, wide / 2 - 0.12), x + max(0.0, wide / 2 - 0.12))
        for x, _, wide in (one, other)
    )
    if max(low, left) <= min(high, right):
        middle = (max(low, left) + min(high, right)) / 2
        return middle, middle
    return (high, left) if high < left else (low, right)
