package main

import (
	"flag"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// produce sends records with the client's defaults (idempotent, acks=all), and says for each where it went.
func produce(arguments []string) error {
	flags := flag.NewFlagSet("produce", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	topic := flags.String("topic", "", "topic")
	count := flags.Int("count", 1, "number of records")
	prefix := flags.String("prefix", "value", "record n is <prefix>-<n>, and its key is <n>")
	codec := flags.String("codec", "", "none, gzip, snappy, lz4 or zstd; the client's default if empty")
	flags.Parse(arguments)

	options := []kgo.Opt{kgo.DefaultProduceTopic(*topic)}
	if *codec != "" {
		chosen, known := map[string]kgo.CompressionCodec{
			"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
			"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
		}[*codec]
		if !known {
			return fmt.Errorf("codec %q is not none, gzip, snappy, lz4 or zstd", *codec)
		}
		options = append(options, kgo.ProducerBatchCompression(chosen))
	}
	client, err := newClient(*brokers, options...)
	if err != nil {
		return err
	}
	defer client.Close()
	records := make([]*kgo.Record, *count)
	for n := range records {
		records[n] = &kgo.Record{
			Key:     fmt.Appendf(nil, "%d", n),
			Value:   fmt.Appendf(nil, "%s-%d", *prefix, n),
			Headers: []kgo.RecordHeader{{Key: "n", Value: fmt.Appendf(nil, "%d", n)}},
		}
	}
	ctx, cancel := withTimeout()
	defer cancel()
	results := client.ProduceSync(ctx, records...)
	if err := results.FirstErr(); err != nil {
		return err
	}
	for _, result := range results {
		say(event{
			"event": "produced", "partition": result.Record.Partition, "offset": result.Record.Offset,
			"value": string(result.Record.Value),
		})
	}
	id, epoch, err := client.ProducerID(ctx)
	if err != nil {
		return err
	}
	say(event{"event": "producer", "id": id, "epoch": epoch})
	return nil
}
