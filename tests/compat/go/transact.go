package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// call is one line of input; see tests/support/transactions/programs.py.
type call struct {
	Do, Name, Bootstrap, ID, Topic, Last, Isolation string
	TimeoutMs                                       int `json:"timeout_ms"`
	Partition                                       int32
	Values                                          []string
}

// transact plays transactional producers and readers, one line of JSON for each call and for each answer. Offsets in
// a transaction are etl's: kgo commits those of a member of a group.
func transact([]string) error {
	producers := map[string]*kgo.Client{}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var one call
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return err
		}
		answer, err := obeyCall(producers, one)
		if answer == nil {
			answer = event{}
		}
		if err != nil {
			answer["error"], answer["message"] = kindOf(err), err.Error()
		}
		say(answer)
	}
	return lines.Err()
}

func kindOf(err error) string {
	var known *kerr.Error
	if errors.As(err, &known) {
		return known.Message
	}
	return fmt.Sprintf("%T", err)
}

func obeyCall(producers map[string]*kgo.Client, one call) (event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	client := producers[one.Name]
	switch one.Do {
	case "open":
		client, err := newClient(one.Bootstrap, kgo.TransactionalID(one.ID), kgo.RequiredAcks(kgo.AllISRAcks()),
			kgo.RecordPartitioner(kgo.ManualPartitioner()),
			kgo.TransactionTimeout(time.Duration(one.TimeoutMs)*time.Millisecond))
		if err != nil {
			return nil, err
		}
		producers[one.Name] = client
		for {
			// While the transaction of the producer before it is being aborted; a producer's first send tries again.
			_, _, err = client.ProducerID(ctx)
			if !errors.Is(err, kerr.ConcurrentTransactions) || ctx.Err() != nil {
				return nil, err
			}
		}
	case "begin":
		return nil, client.BeginTransaction()
	case "send":
		records := make([]*kgo.Record, len(one.Values))
		for n, value := range one.Values {
			records[n] = &kgo.Record{Topic: one.Topic, Partition: one.Partition, Value: []byte(value)}
		}
		return nil, client.ProduceSync(ctx, records...).FirstErr()
	case "commit":
		return nil, client.EndTransaction(ctx, kgo.TryCommit)
	case "abort":
		return nil, client.EndTransaction(ctx, kgo.TryAbort)
	case "close":
		client.Close()
		delete(producers, one.Name)
		return nil, nil
	case "read":
		return read(ctx, one)
	}
	return nil, fmt.Errorf("unknown call %q", one.Do)
}

func read(ctx context.Context, one call) (event, error) {
	level := kgo.ReadCommitted()
	if one.Isolation == "read_uncommitted" {
		level = kgo.ReadUncommitted()
	}
	client, err := newClient(one.Bootstrap, kgo.FetchIsolationLevel(level), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{one.Topic: {0: kgo.NewOffset().At(0)}}))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	records := [][2]any{}
	for {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%w, with %v", err, records)
		}
		for iter := fetches.RecordIter(); !iter.Done(); {
			record := iter.Next()
			records = append(records, [2]any{record.Offset, string(record.Value)})
			if string(record.Value) == one.Last {
				return event{"records": records}, nil
			}
		}
	}
}
