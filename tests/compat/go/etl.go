package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// etl copies a topic to the next, and that to the one after it, each by a group of workers that read and write in
// one transaction, as kgo's own TestTxnEtl does. Each worker ends a part of its transactions with an abort, at
// random; a part of the workers leaves after so many transactions, and others take over. It ends when the last topic
// has all records, and says each of them in the order of its partition.
func etl(arguments []string) error {
	flags := flag.NewFlagSet("etl", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	names := flags.String("topics", "", "topics in the order of the chain, with commas between")
	count := flags.Int("count", 1000, "number of records, which etl writes to the first topic")
	workers := flags.Int("workers", 3, "members of each group")
	aborts := flags.Float64("aborts", 0.3, "the part of transactions that are aborted")
	leaves := flags.Int("leaves", 5, "every other worker leaves after so many transactions")
	balancer := flags.String("balancer", "cooperative-sticky", "range, roundrobin, sticky or cooperative-sticky")
	limit := flags.Duration("limit", 2*time.Minute, "how long it may take")
	flags.Parse(arguments)
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()

	chain := strings.Split(*names, ",")
	if err := fill(ctx, *brokers, chain[0], *count); err != nil {
		return err
	}
	var wait sync.WaitGroup
	working, stop := context.WithCancel(ctx)
	defer stop()
	failures := make(chan error, len(chain)**workers)
	for n := range chain[1:] {
		for number := range *workers {
			wait.Add(1)
			go func() {
				defer wait.Done()
				one := worker{
					brokers: *brokers, from: chain[n], to: chain[n+1], balancer: balancers[*balancer],
					id: fmt.Sprintf("%s-%d", chain[n+1], number), aborts: *aborts,
				}
				for working.Err() == nil {
					if number%2 == 1 {
						one.leaves = *leaves
					}
					if err := one.work(working); err != nil {
						failures <- fmt.Errorf("worker %s: %w", one.id, err)
						stop()
					}
				}
			}()
		}
	}
	rows, err := collect(working, *brokers, chain[len(chain)-1], *count)
	stop()
	wait.Wait()
	select {
	case failure := <-failures:
		return failure
	default:
	}
	if err != nil {
		return err
	}
	for _, row := range rows {
		say(row)
	}
	return nil
}

// fill writes the records in transactions, of which every third is aborted and done again.
func fill(ctx context.Context, brokers, topic string, count int) error {
	client, err := newClient(brokers, kgo.TransactionalID(topic+"-fill"), kgo.DefaultProduceTopic(topic))
	if err != nil {
		return err
	}
	defer client.Close()
	const size = 100
	for round, from := 0, 0; from < count; round++ {
		to := min(from+size, count)
		records := make([]*kgo.Record, 0, size)
		for n := from; n < to; n++ {
			records = append(records, &kgo.Record{Key: fmt.Appendf(nil, "%d", n), Value: fmt.Appendf(nil, "%d", n)})
		}
		if err := client.BeginTransaction(); err != nil {
			return err
		}
		if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
			return err
		}
		end := kgo.TransactionEndTry(round%3 != 2)
		if err := client.EndTransaction(ctx, end); err != nil {
			return err
		}
		if end == kgo.TryCommit {
			from = to
		}
	}
	return nil
}

// worker is a member of the group that copies one topic to the next.
type worker struct {
	brokers, from, to, id string
	balancer              func() kgo.GroupBalancer
	aborts                float64
	leaves                int // after so many transactions; 0: never
}

func (one worker) work(ctx context.Context) error {
	common, err := commonOptions(one.brokers)
	if err != nil {
		return err
	}
	session, err := kgo.NewGroupTransactSession(append(common,
		kgo.TransactionalID(one.id),
		kgo.TransactionTimeout(time.Minute),
		kgo.ConsumerGroup(one.to+"-group"),
		kgo.ConsumeTopics(one.from),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.HeartbeatInterval(200*time.Millisecond),
		kgo.Balancers(one.balancer()),
		kgo.RequireStableFetchOffsets(),
		kgo.DefaultProduceTopic(one.to),
	)...)
	if err != nil {
		return err
	}
	defer session.Close()
	for done := 0; one.leaves == 0 || done < one.leaves; done++ {
		if stopped, err := one.transaction(ctx, session); stopped || err != nil {
			return err
		}
	}
	return nil
}

// transaction copies what one poll gives, and reports whether the work is over.
func (one worker) transaction(ctx context.Context, session *kgo.GroupTransactSession) (bool, error) {
	fetches := session.PollRecords(ctx, 50)
	if ctx.Err() != nil {
		return true, nil
	}
	if err := fetches.Err(); err != nil {
		return false, err
	}
	if err := session.Begin(); err != nil {
		return false, err
	}
	failed := make(chan error, fetches.NumRecords())
	fetches.EachRecord(func(record *kgo.Record) {
		copied := &kgo.Record{Key: slices.Clone(record.Key), Value: slices.Clone(record.Value)}
		session.Produce(context.WithoutCancel(ctx), copied, func(_ *kgo.Record, err error) {
			if err != nil && !errors.Is(err, kgo.ErrAborting) {
				failed <- err
			}
		})
	})
	end := kgo.TransactionEndTry(rand.Float64() >= one.aborts)
	_, err := session.End(context.WithoutCancel(ctx), end)
	select {
	case failure := <-failed:
		return false, failure
	default:
		return false, err
	}
}

// collect reads so many records.
func collect(ctx context.Context, brokers, topic string, count int) ([]event, error) {
	client, err := newClient(brokers, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var rows []event
	for len(rows) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%w, with %d of %d records", err, len(rows), count)
		}
		fetches.EachRecord(func(record *kgo.Record) {
			rows = append(rows, event{"event": "record", "partition": record.Partition, "offset": record.Offset,
				"value": string(record.Value)})
		})
	}
	return rows, nil
}
