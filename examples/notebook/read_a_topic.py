# ---
# jupyter:
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Read a topic in a notebook
#
# A Kafka topic is a table that only grows. Kafscale keeps its records as files in a folder or a bucket, and `kafscale.read` gives them to you as [Arrow](https://arrow.apache.org): to DuckDB, Polars, pandas, and everything else that reads Arrow. You need no consumer, no consumer group, and not even a running broker.
#
# This notebook puts a day of orders of a small web shop into a topic, reads it, and finds out what went wrong on that day.
#
# To run it yourself:
#
# ```
# pip install 'kafscale[arrow]' jupyterlab matplotlib duckdb polars pandas
# jupyter lab read-a-topic.ipynb
# ```

# %%
import atexit
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import matplotlib.dates as mdates
import matplotlib.pyplot as plt
import numpy as np
import polars as pl
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

import kafscale
from kafscale.errors import UnknownTopicError

BLUE, ORANGE, GREEN, RED = "#0072b2", "#e69f00", "#009e73", "#d55e00"
plt.rcParams.update(
    {
        "figure.figsize": (9, 3.4),
        "figure.dpi": 100,
        "figure.facecolor": "white",
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.titlelocation": "left",
        "axes.titleweight": "bold",
        "grid.color": "#e6e6e6",
        "legend.frameon": False,
    }
)

# %% [markdown]
# ## A broker with a topic
#
# If you have a topic already, go on with [the next part](#Read-it): all you need is the folder or the bucket of its cluster.
#
# `kafscale serve` starts a broker. Its settings come from the environment: here the folder for its data, and ports that are free. In a terminal, `kafscale serve` alone does the same with `./kafscale-data` and port 9092.

# %%
folder = Path(tempfile.mkdtemp(prefix="kafscale-notebook-"))
data = folder / "data"

with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    address = probe.getsockname()
bootstrap = f"127.0.0.1:{address[1]}"

settings = {
    "KAFSCALE_DATA_DIR": str(data),
    "KAFSCALE_BROKER_ADDR": bootstrap,
    "KAFSCALE_METRICS_ADDR": "127.0.0.1:0",
}
with open(folder / "broker.log", "w") as log:
    broker = subprocess.Popen(
        [sys.executable, "-m", "kafscale", "serve"], env=os.environ | settings, stdout=log, stderr=log
    )
atexit.register(broker.kill)

is_listening = False
while broker.poll() is None and not is_listening:
    time.sleep(0.1)
    with socket.socket() as probe:
        is_listening = probe.connect_ex(address) == 0
print("the broker runs" if is_listening else (folder / "broker.log").read_text())

# %% [markdown]
# The topic has three partitions. Its records are never deleted (`retention.ms` is -1), because the day of our orders is long over.

# %%
admin = KafkaAdminClient(bootstrap_servers=bootstrap)
admin.create_topics([NewTopic("orders", 3, 1, topic_configs={"retention.ms": "-1"})])
admin.close()

# %% [markdown]
# Now the orders of one Monday, made up with a fixed seed. Each is a JSON text, with the customer as its key. It has two times: `placed_at`, when the customer pressed the button, and the record's timestamp, when the shop sent it to the topic. Usually a moment lies between them. On this day, though, the shop's sender hung for a quarter of an hour.

# %%
random = np.random.default_rng(seed=7)
midnight = np.datetime64("2026-03-02T00:00", "ms")

# Customers a minute: few at night, most at noon and in the evening.
minute = np.arange(24 * 60)
noon, evening = (
    np.exp(-(((minute - peak * 60) / width) ** 2)) for peak, width in ((12.5, 150), (19.75, 140))
)
placed_minute = np.repeat(minute, random.poisson(3 + 30 * noon + 44 * evening))
number = len(placed_minute)
placed_ms = np.sort(placed_minute * 60_000 + random.integers(0, 60_000, number))
sent_ms = placed_ms + random.lognormal(np.log(250), 0.8, number).astype(np.int64)

# From 14:10 to 14:26 nothing is sent; then the waiting orders leave, four times as fast as they came.
hangs, works_again = (14 * 60 + 10) * 60_000, (14 * 60 + 26) * 60_000
late = (sent_ms >= hangs) & (sent_ms < works_again + (works_again - hangs) // 3)
sent_ms[late] = np.maximum(sent_ms[late], works_again + (sent_ms[late] - hangs) // 4)

country = random.choice(["DE", "FR", "PL", "SE"], number, p=[0.45, 0.27, 0.18, 0.10])
typical = np.select([country == "DE", country == "FR", country == "PL"], [38.0, 46.0, 21.0], 64.0)
amount = np.round(typical * random.lognormal(0, 0.6, number), 2)
customer = random.zipf(1.3, number) % 5_000

producer = KafkaProducer(bootstrap_servers=bootstrap)
for at in np.argsort(sent_ms, kind="stable"):
    order = {
        "order": int(at),
        "country": str(country[at]),
        "amount_eur": float(amount[at]),
        "placed_at": f"{midnight + placed_ms[at]}Z",
    }
    producer.send(
        "orders",
        key=f"customer-{customer[at]}".encode(),
        value=json.dumps(order).encode(),
        timestamp_ms=int((midnight + sent_ms[at]).astype(np.int64)),
    )
producer.flush()
producer.close()
print(f"{number:,} orders are in the topic")

# %% [markdown]
# We stop the broker. Everything that follows reads the files.

# %%
broker.terminate()
print("exit status of the broker:", broker.wait())

# %% [markdown]
# ## Read it
#
# `kafscale.read` takes the place and the topic. The place is a folder here; of a cluster it is something like `s3://bucket/namespace`. The result is a `pyarrow.RecordBatchReader`: a stream of batches, with these columns.

# %%
reader = kafscale.read(data, "orders")
print(reader.schema)

# %% [markdown]
# (The very first read in an environment takes some seconds longer, because the decoder is compiled then.)
#
# DuckDB reads it by the variable's name. A reader can be used once, as any stream: for the next query, call `kafscale.read` again.

# %%
duckdb.sql("""
    SELECT "partition", count(*) AS records, min("offset") AS first, max("offset") AS last,
           min("timestamp")::TIMESTAMP AS earliest, max("timestamp")::TIMESTAMP AS latest
    FROM reader GROUP BY "partition" ORDER BY "partition"
""").show()

# %% [markdown]
# A record's value is bytes, as in Kafka. Here they are JSON, which Polars decodes into columns. `columns` names those that you need: the others are not even decoded.

# %%
fields = pl.Struct(
    {"order": pl.Int64, "country": pl.String, "amount_eur": pl.Float64, "placed_at": pl.String}
)
records = kafscale.to_polars(
    kafscale.read(data, "orders", columns=["partition", "offset", "timestamp", "value"])
)
orders = (
    records.with_columns(pl.col("value").cast(pl.String).str.json_decode(fields))
    .unnest("value")
    .with_columns(pl.col("placed_at").str.to_datetime(time_unit="us", time_zone="UTC"))
    .rename({"timestamp": "sent_at"})
    .sort("sent_at")
)
orders.head(5)

# %% [markdown]
# ## Orders a minute


# %%
def count_by_minute(column: str) -> pl.DataFrame:
    """Orders in each minute of the day, by one of their two times; a minute without any has 0."""
    day = pl.datetime_range(
        pl.datetime(2026, 3, 2),
        pl.datetime(2026, 3, 2, 23, 59),
        "1m",
        time_unit="us",
        time_zone="UTC",
        eager=True,
    )
    counted = orders.group_by(pl.col(column).dt.truncate("1m").alias("minute")).len("orders")
    return pl.DataFrame({"minute": day}).join(counted, on="minute", how="left").fill_null(0)


sent = count_by_minute("sent_at")

figure, axes = plt.subplots()
axes.fill_between(sent["minute"], sent["orders"], step="post", color=BLUE, alpha=0.25, linewidth=0)
axes.step(sent["minute"], sent["orders"], where="post", color=BLUE, linewidth=0.8)
axes.xaxis.set_major_locator(mdates.HourLocator(byhour=range(0, 24, 3)))
axes.xaxis.set_major_formatter(mdates.DateFormatter("%H:%M"))
axes.set(
    title="Orders that reached the topic", xlabel="time of day (UTC), 2 March 2026", ylabel="orders a minute"
)
axes.set_xlim(sent["minute"][0], sent["minute"][-1])
axes.set_ylim(0, 135)
axes.annotate(
    "nothing, and then\nfar more than usual",
    xy=(np.datetime64("2026-03-02T14:26"), 105),
    xytext=(np.datetime64("2026-03-02T16:00"), 120),
    va="center",
    color=RED,
    arrowprops={"arrowstyle": "-", "color": RED},
)
plt.show()

# %% [markdown]
# Few at night, a peak at noon, a higher one in the evening. And in the afternoon a hole with a spike behind it. We look at that [below](#A-hole-and-a-spike).

# %% [markdown]
# ## What orders are worth

# %%
figure, axes = plt.subplots()
bins = np.geomspace(3, 400, 50)
for name, color in zip(["DE", "FR", "PL", "SE"], [BLUE, ORANGE, GREEN, RED], strict=True):
    amounts = orders.filter(pl.col("country") == name)["amount_eur"]
    label = f"{name}: {len(amounts):,} orders, median {amounts.median():.0f} EUR"
    axes.hist(amounts, bins=bins, histtype="step", color=color, linewidth=1.6, label=label)
axes.set_xscale("log")
axes.set_xticks([3, 10, 30, 100, 300], ["3", "10", "30", "100", "300"])
axes.set_xlim(3, 400)
axes.minorticks_off()
axes.set(title="Amounts by country", xlabel="amount of an order (EUR, logarithmic)", ylabel="orders")
axes.legend(loc="upper left", fontsize=9)
plt.show()

# %% [markdown]
# ## A hole and a spike
#
# Were there no orders in the afternoon, or did they only arrive late? First the longest silences: the time between one record and the one before it.

# %%
duckdb.sql("""
    SELECT strftime(before, '%H:%M:%S') AS "from", strftime(sent_at, '%H:%M:%S') AS "to",
           round(epoch(sent_at - before)) AS seconds
    FROM (SELECT sent_at::TIMESTAMP AS sent_at, lag(sent_at) OVER (ORDER BY sent_at)::TIMESTAMP AS before FROM orders)
    WHERE before IS NOT NULL ORDER BY seconds DESC, sent_at LIMIT 4
""").show()

# %% [markdown]
# A minute or two without an order is nothing new at night. Sixteen minutes in the afternoon are. For a closer look we need that hour alone. `start` and `end` take times: the index finds the records, and only what lies between is read.

# %%
window = kafscale.read(
    data, "orders", start="2026-03-02T14:00:00Z", end="2026-03-02T15:00:00Z", columns=["timestamp", "value"]
)
hour = window.read_pandas()
print(f"{len(hour):,} records, from {hour.timestamp.min():%H:%M:%S} to {hour.timestamp.max():%H:%M:%S}")

# %%
hour["placed_at"] = [np.datetime64(json.loads(value)["placed_at"].rstrip("Z"), "us") for value in hour.value]
hour["placed_at"] = hour["placed_at"].dt.tz_localize("UTC")
hour["delay_sec"] = (hour.timestamp - hour.placed_at).dt.total_seconds()

figure, (above, below) = plt.subplots(2, 1, figsize=(9, 5.4), sharex=True, height_ratios=[1, 1])
lines = (("placed_at", "placed by customers", "#b0b0b0", 4.0), ("timestamp", "sent to the topic", BLUE, 1.4))
for column, label, color, width in lines:
    counts = hour.set_index(column).resample("1min").size()
    above.step(counts.index, counts, where="post", color=color, linewidth=width, label=label)
above.set(
    title="Orders by the time they were placed, and by the time they were sent", ylabel="orders a minute"
)
above.set_ylim(bottom=0)
above.legend(loc="upper left", fontsize=9)

below.scatter(hour.timestamp, hour.delay_sec, s=5, color=BLUE, alpha=0.4, linewidths=0)
below.set_yscale("log")
below.set_yticks([0.1, 1, 10, 60, 600], ["0.1 s", "1 s", "10 s", "1 min", "10 min"])
below.minorticks_off()
below.set_ylim(0.02, 3000)
below.set(title="Delay of each order", ylabel="placed to sent (logarithmic)", xlabel="time sent (UTC)")
below.xaxis.set_major_formatter(mdates.DateFormatter("%H:%M"))
for axes in (above, below):
    axes.axvspan(
        np.datetime64("2026-03-02T14:10"),
        np.datetime64("2026-03-02T14:26"),
        color=RED,
        alpha=0.1,
        linewidth=0,
    )
below.text(np.datetime64("2026-03-02T14:18"), 5, "nothing is sent", color=RED, ha="center")
figure.align_ylabels()
figure.tight_layout()
plt.show()

# %% [markdown]
# Customers ordered as always (grey). Nothing was lost: the sender hung from 14:10 on, and at 14:26 it began to send what had waited. An order was up to sixteen minutes late.

# %% [markdown]
# ## Larger than memory
#
# So far each result was in memory as a whole, which is fine for a topic of this size. A larger one is read batch by batch. What is in memory then does not depend on the size of the topic.

# %%
total_bytes = largest_bytes = batches = 0
revenue_eur = 0.0
for batch in kafscale.read(data, "orders", columns=["value"]):
    total_bytes += batch.nbytes
    largest_bytes = max(largest_bytes, batch.nbytes)
    batches += 1
    revenue_eur += sum(json.loads(value)["amount_eur"] for value in batch["value"].to_pylist())

print(f"{batches} batches with {total_bytes / 1e6:.1f} MB, the largest {largest_bytes / 1e6:.1f} MB")
print(f"revenue: {revenue_eur:,.2f} EUR")

# %% [markdown]
# DuckDB reads batch by batch, too, if you give it the reader and not a table. So a query that aggregates runs over a topic of any size:

# %%
stream = kafscale.read(data, "orders", columns=["value"])
duckdb.sql("""
    SELECT o->>'country' AS country, count(*) AS orders, round(sum((o->>'amount_eur')::DOUBLE)) AS revenue_eur
    FROM (SELECT decode(value)::JSON AS o FROM stream) GROUP BY country ORDER BY revenue_eur DESC
""").show()

# %% [markdown]
# ## Go on where you stopped
#
# A record has its place for good: a partition and an offset. If you keep the next offset of each partition, the next read takes only what is new. Here the morning comes first, and later the rest.

# %%
morning = kafscale.read(
    data, "orders", end="2026-03-02T12:00:00Z", columns=["partition", "offset"]
).read_all()
ends = duckdb.sql('SELECT "partition", max("offset") + 1 FROM morning GROUP BY ALL ORDER BY ALL').fetchall()
print("next offsets:", dict(ends))

rest = kafscale.read(data, "orders", start=dict(ends), columns=["offset"]).read_all()
print(f"{morning.num_rows:,} + {rest.num_rows:,} = {morning.num_rows + rest.num_rows:,} records")

# %% [markdown]
# ## When something is wrong
#
# Errors name what is wrong, and parameters are checked when you call `read`, before a long query begins.

# %%
try:
    kafscale.read(data, "order")
except UnknownTopicError as problem:
    print(problem)

# %% [markdown]
# ## Where to go on
#
# - All parameters, buckets, memory and errors: `docs/read-topics.md`
# - The same from the shell: `kafscale cat orders --source FOLDER --since 1h`
# - More examples: `examples/README.md`

# %%
shutil.rmtree(folder)
