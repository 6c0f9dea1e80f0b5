// franz-share is a member of a share group with franz-go until SIGTERM: then it leaves the group. It says what it
// does as one JSON object per line on standard output (tests/support/share_clients.py).
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"

	"github.com/twmb/franz-go/pkg/kgo"
)

var output sync.Mutex

func say(what map[string]any) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// statusOf is what the record itself asks for: its value begins with it.
func statusOf(record *kgo.Record) kgo.AckStatus {
	wish, _, _ := strings.Cut(string(record.Value), "-")
	switch {
	case wish == "poison", wish == "again" && record.DeliveryCount() == 1:
		return kgo.AckRelease
	case wish == "bad":
		return kgo.AckReject
	}
	return kgo.AckAccept
}

func acknowledged(_ *kgo.Client, results kgo.ShareAckResults) {
	for _, result := range results {
		message := ""
		if result.Err != nil {
			message = result.Err.Error()
		}
		say(map[string]any{"event": "acknowledged", "partition": result.Partition, "offsets": []int64{}, "error": message})
	}
}

func run() error {
	brokers := flag.String("bootstrap", "", "host:port")
	group := flag.String("group", "", "share group")
	topics := flag.String("topics", "", "topics, with commas between")
	mode := flag.String("mode", "explicit", "explicit, or implicit: what was polled is accepted by the next poll")
	hold := flag.Bool("hold", false, "acknowledge nothing of what is polled first, and poll no more")
	count := flag.Int("count", 100, "records in one poll at most")
	flag.Parse()

	client, err := kgo.NewClient(
		kgo.SeedBrokers(*brokers),
		kgo.ShareGroup(*group),
		kgo.ConsumeTopics(strings.Split(*topics, ",")...),
		kgo.ShareMaxRecords(int32(*count)),
		kgo.ShareAckCallback(acknowledged),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		fetches := client.PollRecords(ctx, *count)
		if ctx.Err() == nil {
			fetches.EachError(func(topic string, partition int32, err error) {
				say(map[string]any{"event": "error", "message": fmt.Sprintf("%s-%d: %v", topic, partition, err)})
			})
		}
		records := fetches.Records()
		for _, record := range records {
			say(map[string]any{
				"event": "record", "topic": record.Topic, "partition": record.Partition, "offset": record.Offset,
				"value": string(record.Value), "deliveries": record.DeliveryCount(),
			})
		}
		if len(records) == 0 {
			continue
		}
		if *hold {
			say(map[string]any{"event": "holding"})
			<-ctx.Done()
			break
		}
		if *mode == "explicit" {
			for _, record := range records {
				record.Ack(statusOf(record))
			}
			if err := client.FlushAcks(context.Background()); err != nil {
				return err
			}
		}
	}
	client.Close()
	say(map[string]any{"event": "ended"})
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "franz-share:", err)
		os.Exit(1)
	}
}
