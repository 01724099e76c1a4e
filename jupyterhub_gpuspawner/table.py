"""Many values of one class as columns, for the nodes and jobs of a large cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from operator import eq
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
P = TypeVar("P")
_BATCH = 500
"""Values that exist at the same time while a table is made."""


class Table(Sequence[T]):
    """Values of a NamedTuple class, kept as one list for each field; each value is made when it is asked for.

    Python's garbage collector visits every tuple and every object, but not the strings and numbers in a list: tens of
    thousands of nodes and jobs would hold the hub's event loop for hundreds of milliseconds at each full collection.
    """

    __slots__ = ("_columns", "_kind")

    def __init__(self, kind: type[T], columns: Sequence[Sequence[Any]]) -> None:
        """``columns`` in the order of the class's fields."""
        self._kind: Any = kind
        self._columns = list(columns)

    def __del__(self) -> None:
        columns = self._columns  # one after the other: other threads may run in between
        while columns:
            columns.pop()

    @classmethod
    def of(cls, kind: type[T], values: Iterable[T]) -> Table[T]:
        """The table of these values; a table is its own."""
        if isinstance(values, Table):
            return values
        fields: Sequence[str] = vars(kind)["_fields"]
        columns: list[list[Any]] = [[] for _ in fields]
        rows: Iterator[Any] = iter(values)
        while batch := list(islice(rows, _BATCH)):
            for column, more in zip(columns, zip(*batch, strict=True), strict=True):
                column.extend(more)
        return cls(kind, columns)

    def column(self, field: str) -> Sequence[Any]:
        """One field of all values."""
        at: int = self._kind._fields.index(field)
        return self._columns[at]

    def __len__(self) -> int:
        return len(self._columns[0])

    @overload
    def __getitem__(self, at: int) -> T: ...
    @overload
    def __getitem__(self, at: slice) -> Table[T]: ...
    def __getitem__(self, at: int | slice) -> T | Table[T]:
        if isinstance(at, slice):
            return Table(self._kind, [column[at] for column in self._columns])
        row: T = self._kind(*[column[at] for column in self._columns])
        return row

    def __iter__(self) -> Iterator[T]:
        return map(self._kind, *self._columns)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and len(self) == len(other) and all(map(eq, self, other))

    __hash__ = None  # type: ignore[assignment]


class Index(Mapping[str, T], Generic[P, T]):
    """Values by name, each made of its position, or its positions, when it is asked for."""

    __slots__ = ("_value", "positions")

    def __init__(self, positions: Mapping[str, P], value: Callable[[P], T]) -> None:
        self.positions = positions
        self._value = value

    def __getitem__(self, name: str) -> T:
        return self._value(self.positions[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.positions)

    def __len__(self) -> int:
        return len(self.positions)
