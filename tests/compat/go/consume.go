package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var balancers = map[string]func() kgo.GroupBalancer{
	"range":              kgo.RangeBalancer,
	"roundrobin":         kgo.RoundRobinBalancer,
	"sticky":             kgo.StickyBalancer,
	"cooperative-sticky": kgo.CooperativeStickyBalancer,
}

// consume is a member of a group until SIGTERM: then it leaves the group, unless it is a static member.
// SIGUSR1 makes it commit what was polled so far.
func consume(arguments []string) error {
	flags := flag.NewFlagSet("consume", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	group := flags.String("group", "", "group")
	topics := flags.String("topics", "", "topics, with commas between")
	names := flags.String("balancers", "", "with commas between, the preferred first; the client's default if empty")
	instance := flags.String("instance", "", "group instance id of a static member")
	session := flags.Duration("session", 45*time.Second, "session timeout")
	rack := flags.String("rack", "", "where the client is, for brokers that know racks")
	count := flags.Int("count", 0, "end after that many records; 0: at SIGTERM")
	protocol := flags.String("protocol", "classic", "the group's protocol: classic or consumer (KIP-848)")
	autocommit := flags.Bool("autocommit", false, "commit what was polled every 100 ms and at the end")
	flags.Parse(arguments)

	options := []kgo.Opt{
		kgo.WithContext(groupProtocol(*protocol)),
		kgo.ConsumerGroup(*group),
		kgo.ConsumeTopics(strings.Split(*topics, ",")...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(*session),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(200 * time.Millisecond),
		kgo.OnPartitionsAssigned(tells("assigned")),
		kgo.OnPartitionsRevoked(func(ctx context.Context, client *kgo.Client, partitions map[string][]int32) {
			if *autocommit { // which a callback of one's own must do itself
				if err := client.CommitUncommittedOffsets(ctx); err != nil {
					say(event{"event": "error", "message": err.Error()})
				}
			}
			tells("revoked")(ctx, client, partitions)
		}),
		kgo.OnPartitionsLost(tells("lost")),
	}
	if *autocommit {
		options = append(options, kgo.AutoCommitInterval(100*time.Millisecond))
	} else {
		options = append(options, kgo.DisableAutoCommit())
	}
	if *instance != "" {
		options = append(options, kgo.InstanceID(*instance))
	}
	if *rack != "" {
		options = append(options, kgo.Rack(*rack))
	}
	if *names != "" {
		var chosen []kgo.GroupBalancer
		for _, name := range strings.Split(*names, ",") {
			balancer, known := balancers[name]
			if !known {
				return fmt.Errorf("balancer %q is not range, roundrobin, sticky or cooperative-sticky", name)
			}
			chosen = append(chosen, balancer())
		}
		options = append(options, kgo.Balancers(chosen...))
	}
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGUSR1, syscall.SIGTERM)
	client, err := newClient(*brokers, options...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go obey(ctx, cancel, client, signals)
	poll(ctx, client, *count)
	client.Close() // commits when it commits by itself, and leaves
	say(event{"event": "closed"})
	return nil
}

// groupProtocol is a context for the client: by a value in it, franz-go 1.20 opts in to the consumer protocol.
func groupProtocol(name string) context.Context {
	if name != "consumer" {
		return context.Background()
	}
	return context.WithValue(context.Background(), "opt_in_kafka_next_gen_balancer_beta", true)
}

// tells reports partitions that come or go, and the generation in which they do.
func tells(what string) func(context.Context, *kgo.Client, map[string][]int32) {
	return func(_ context.Context, client *kgo.Client, partitions map[string][]int32) {
		member, generation := client.GroupMetadata()
		say(event{"event": what, "partitions": partitions, "member": member, "generation": generation})
	}
}

// poll says every record, until the context ends or, with a count, it has said that many or met an error.
func poll(ctx context.Context, client *kgo.Client, count int) {
	said := 0
	for count == 0 || said < count {
		fetches := client.PollFetches(ctx)
		if ctx.Err() != nil {
			return
		}
		if err := fetches.Err(); err != nil && !errors.Is(err, context.Canceled) {
			say(event{"event": "error", "message": err.Error()})
			if count > 0 {
				return
			}
		}
		fetches.EachRecord(func(record *kgo.Record) {
			said++
			say(event{
				"event": "record", "topic": record.Topic, "partition": record.Partition,
				"offset": record.Offset, "value": string(record.Value), "key": string(record.Key),
			})
		})
	}
}

// obey commits or ends the polling, as the signals say.
func obey(ctx context.Context, cancel context.CancelFunc, client *kgo.Client, signals <-chan os.Signal) {
	defer cancel()
	for one := range signals {
		if one != syscall.SIGUSR1 {
			return
		}
		done := event{"event": "committed", "error": message(client.CommitUncommittedOffsets(ctx))}
		done["offsets"] = offsets(client.CommittedOffsets())
		say(done)
	}
}

func offsets(committed map[string]map[int32]kgo.EpochOffset) map[string]map[int32]int64 {
	found := map[string]map[int32]int64{}
	for topic, partitions := range committed {
		found[topic] = map[int32]int64{}
		for partition, one := range partitions {
			found[topic][partition] = one.Offset
		}
	}
	return found
}
