"""Types of Spark for Hypothesis, as JSON values may have them."""

from hypothesis import strategies as st
from pyspark.sql import types as spark

_SCALARS: list[spark.DataType] = [
    spark.BooleanType(),
    spark.ByteType(),
    spark.ShortType(),
    spark.IntegerType(),
    spark.LongType(),
    spark.FloatType(),
    spark.DoubleType(),
    spark.DecimalType(20, 0),
    spark.DecimalType(5, 2),
    spark.StringType(),
    spark.DateType(),
    spark.TimestampType(),
    spark.TimestampNTZType(),
    spark.BinaryType(),
]


def _struct(fields: dict[str, tuple[spark.DataType, bool]]) -> spark.StructType:
    return spark.StructType(
        [spark.StructField(name, data_type, nullable) for name, (data_type, nullable) in fields.items()]
    )


def _structs(inner: st.SearchStrategy[spark.DataType]) -> st.SearchStrategy[spark.StructType]:
    field = st.tuples(inner, st.sampled_from([True, True, True, False]))
    return st.dictionaries(st.sampled_from(["a", "b", "c", "de", "€"]), field, min_size=1, max_size=4).map(
        _struct
    )


TYPES: st.SearchStrategy[spark.DataType] = st.recursive(
    st.sampled_from(_SCALARS),
    lambda inner: st.one_of(
        st.builds(spark.ArrayType, inner, st.booleans()),
        st.builds(spark.MapType, st.just(spark.StringType()), inner, st.just(True)),
        _structs(inner),
    ),
    max_leaves=5,
)
STRUCTS = _structs(TYPES)
