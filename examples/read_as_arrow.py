"""Revenue by country, from the topic `orders`, read as Arrow straight from a broker's data folder.

python examples/read_as_arrow.py [SOURCE]

Batch by batch: what is in memory does not depend on the size of the topic. Needs `pip install 'kafscale[arrow]'`.
"""

import json
import sys
from collections import defaultdict
from datetime import UTC, datetime, timedelta

import kafscale


def main() -> None:
    source = sys.argv[1] if len(sys.argv) > 1 else "kafscale-data"
    two_hours_ago = datetime.now(UTC) - timedelta(hours=2)
    revenue_eur: defaultdict[str, float] = defaultdict(float)
    records = 0
    for batch in kafscale.read(source, "orders", start=two_hours_ago, columns=["value"]):
        records += batch.num_rows
        for value in batch["value"].to_pylist():
            order = json.loads(value)
            revenue_eur[order["country"]] += order["amount_eur"]
    print(f"{records} orders of the last two hours")
    for country, amount_eur in sorted(revenue_eur.items(), key=lambda item: -item[1]):
        print(f"{country} {amount_eur:12,.2f} EUR")


if __name__ == "__main__":
    main()
