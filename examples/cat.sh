#!/bin/sh
# Questions to the topic `orders` from the shell, with no broker at hand: sh examples/cat.sh [SOURCE]
set -eu
source=${1:-kafscale-data}

echo "The first two orders, as JSON lines:"
kafscale cat orders --source "$source" --max-records 2

echo "One customer's orders, the last hour and a half:"
kafscale cat orders --source "$source" --since 90m --key customer-7 --format value | tail -n 3

echo "Customers with most orders from France:"
kafscale cat orders --source "$source" --grep '"country": "FR"' --format key=value |
    cut -d= -f1 | sort | uniq -c | sort -k1,1nr -k2 | head -n 3
