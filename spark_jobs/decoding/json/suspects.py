"""Finds the values of a block for which Arrow's reader would refuse all of it, by the type that is read."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import types as st

from spark_jobs.decoding.json import text_walk as walk
from spark_jobs.decoding.json.blocks import Rows, layout

_WHOLE_BITS: dict[type[st.DataType], int] = {
    st.ByteType: 8,
    st.ShortType: 16,
    st.IntegerType: 32,
    st.LongType: 64,
}
# The largest number of digits that any whole number may have for a float or double to hold it.
_EXACT_DIGITS: dict[type[st.DataType], int] = {st.FloatType: 7, st.DoubleType: 15}
_PLAIN: dict[type[st.DataType], int] = {
    st.BooleanType: walk.BOOLEAN,
    st.StringType: walk.TEXT,
    st.DateType: walk.DATE,
    st.TimestampType: walk.TIMESTAMP,
    st.TimestampNTZType: walk.TIMESTAMP_NTZ,
}


@dataclass(slots=True)
class _Table:
    """Nodes and fields as `text_walk` reads them; node 0 is that of fields beyond the type."""

    nodes: list[tuple[int, int, int, int]]
    fields: list[tuple[int, int, int, int]] = field(default_factory=list)
    names: bytearray = field(default_factory=bytearray)

    def add(self, data_type: st.DataType) -> int:
        """The number of the node of this type."""
        number = len(self.nodes)
        self.nodes.append((walk.ANYTHING, 0, 0, 0))
        self.nodes[number] = self._node(data_type)
        return number

    def _node(self, data_type: st.DataType) -> tuple[int, int, int, int]:
        match data_type:
            case st.StructType():
                return self._struct(data_type)
            case st.ArrayType():
                return walk.LIST, self.add(data_type.elementType), int(not data_type.containsNull), 0
            case st.DecimalType():
                return walk.DECIMAL, data_type.precision - data_type.scale, data_type.scale, 0
            case _ if type(data_type) in _WHOLE_BITS:
                limit = 1 << _WHOLE_BITS[type(data_type)] - 1
                return walk.WHOLE, -limit, limit - 1, 0
            case _ if type(data_type) in _EXACT_DIGITS:
                return walk.REAL, _EXACT_DIGITS[type(data_type)], 0, 0
            case _:
                return _PLAIN[type(data_type)], 0, 0, 0

    def _struct(self, data_type: st.StructType) -> tuple[int, int, int, int]:
        first, required = len(self.fields), 0
        self.fields += [(0, 0, 0, 0)] * len(data_type.fields)
        for place, one in enumerate(data_type.fields):
            name, start = one.name.encode(), len(self.names)
            self.names += name
            self.fields[first + place] = start, len(name), self.add(one.dataType), int(not one.nullable)
            if not one.nullable and place < walk.MASKED_FIELDS:
                required |= 1 << place
        return walk.STRUCT, first, len(data_type.fields), required


class Suspects:
    """Marks values that are not like the type. None for `data_type`: values that are no JSON.

    `keeps_unknown`: fields beyond the type are suspect unless they hold nothing.
    """

    def __init__(self, data_type: st.StructType | None, *, keeps_unknown: bool) -> None:
        table = _Table([(walk.NOTHING if keeps_unknown else walk.ANYTHING, 0, 0, 0)])
        if data_type is None:
            table.nodes.append((walk.ANYTHING, 0, 0, 0))
        else:
            table.add(data_type)
        self._nodes = np.array(table.nodes, np.int64)
        self._names = np.frombuffer(bytes(table.names) or b"\0", np.uint8)
        self._fields = np.array(table.fields or [(0, 0, 0, 0)], np.int64)
        self._fields[:, 0] += self._names.ctypes.data
        room = walk.MAX_LEVELS * walk.LEVEL_BYTES + walk.MAX_NAMES * walk.NAME_BYTES
        self._levels = np.empty(room // 8, np.int64)

    def among(self, column: pa.Array, rows: Rows) -> npt.NDArray[np.bool_]:
        """For each of these rows of a column of type binary: True if it is better decoded by itself."""
        offsets, data = layout(column)
        bounds = np.ascontiguousarray(np.stack([offsets[rows], offsets[rows + 1]], axis=1))
        marks = np.zeros(len(rows), np.bool_)
        walk.mark_suspects(
            data.ctypes.data,
            bounds.ctypes.data,
            len(rows),
            self._nodes.ctypes.data,
            self._fields.ctypes.data,
            self._levels.ctypes.data,
            marks.ctypes.data,
        )
        return marks
