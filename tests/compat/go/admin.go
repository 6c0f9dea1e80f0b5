package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var questions = map[string]func(context.Context, *kadm.Client, []string) error{
	"list":           listGroups,
	"describe":       describeGroups,
	"lag":            lag,
	"offsets":        fetchOffsets,
	"commit":         commitOffsets,
	"delete":         deleteGroups,
	"delete-offsets": deleteOffsets,
	"remove":         removeMembers,
	"create":         createTopics,
}

// admin asks one question about groups, or creates topics: admin -brokers host:port -do list|describe|... name...
func admin(arguments []string) error {
	flags := flag.NewFlagSet("admin", flag.ExitOnError)
	brokers := flags.String("brokers", "", "host:port")
	question := flags.String("do", "list", strings.Join(slices.Sorted(maps.Keys(questions)), ", "))
	flags.Parse(arguments)
	ask := questions[*question]
	if ask == nil {
		return fmt.Errorf("-do %q is none of %v", *question, slices.Sorted(maps.Keys(questions)))
	}
	client, err := newClient(*brokers, kgo.RetryTimeout(commandTimeout))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := withTimeout()
	defer cancel()
	return ask(ctx, kadm.NewClient(client), flags.Args())
}

// listGroups takes states to filter by.
func listGroups(ctx context.Context, client *kadm.Client, states []string) error {
	groups, err := client.ListGroups(ctx, states...)
	if err != nil {
		return err
	}
	for _, one := range groups.Sorted() {
		say(event{"group": one.Group, "protocol_type": one.ProtocolType, "state": one.State})
	}
	return nil
}

func describeGroups(ctx context.Context, client *kadm.Client, groups []string) error {
	described, err := client.DescribeGroups(ctx, groups...)
	if err != nil {
		return err
	}
	for _, one := range described.Sorted() {
		members := []event{}
		for _, member := range one.Members {
			row := event{"member": member.MemberID, "client": member.ClientID, "host": member.ClientHost}
			if member.InstanceID != nil {
				row["instance"] = *member.InstanceID
			}
			if assigned, is := member.Assigned.AsConsumer(); is {
				partitions := map[string][]int32{}
				for _, topic := range assigned.Topics {
					partitions[topic.Topic] = topic.Partitions
				}
				row["partitions"] = partitions
			}
			if joined, is := member.Join.AsConsumer(); is {
				row["topics"] = joined.Topics
			}
			members = append(members, row)
		}
		say(event{
			"group": one.Group, "state": one.State, "protocol_type": one.ProtocolType, "protocol": one.Protocol,
			"coordinator": one.Coordinator.NodeID, "members": members, "error": message(one.Err),
		})
	}
	return nil
}

func lag(ctx context.Context, client *kadm.Client, groups []string) error {
	lags, err := client.Lag(ctx, groups...)
	if err != nil {
		return err
	}
	for _, group := range lags.Sorted() {
		for _, one := range group.Lag.Sorted() {
			row := event{
				"group": group.Group, "topic": one.Topic, "partition": one.Partition,
				"committed": one.Commit.At, "start": one.Start.Offset, "end": one.End.Offset, "lag": one.Lag,
				"error": message(one.Err),
			}
			if one.Member != nil {
				row["member"] = one.Member.MemberID
			}
			say(row)
		}
	}
	return nil
}

func fetchOffsets(ctx context.Context, client *kadm.Client, groups []string) error {
	for _, group := range groups {
		found, err := client.FetchOffsets(ctx, group)
		if err != nil {
			return err
		}
		for _, one := range found.Sorted() {
			say(event{
				"group": group, "topic": one.Topic, "partition": one.Partition, "committed": one.At,
				"metadata": one.Metadata, "error": message(one.Err),
			})
		}
	}
	return nil
}

// commitOffsets takes a group, a topic, and offsets of its partitions from 0 on.
func commitOffsets(ctx context.Context, client *kadm.Client, arguments []string) error {
	group, topic := arguments[0], arguments[1]
	var offsets kadm.Offsets
	for partition, text := range arguments[2:] {
		var offset int64
		if _, err := fmt.Sscan(text, &offset); err != nil {
			return fmt.Errorf("offset %q: %w", text, err)
		}
		offsets.Add(kadm.Offset{Topic: topic, Partition: int32(partition), At: offset, LeaderEpoch: -1})
	}
	return client.CommitAllOffsets(ctx, group, offsets)
}

func deleteGroups(ctx context.Context, client *kadm.Client, groups []string) error {
	deleted, err := client.DeleteGroups(ctx, groups...)
	if err != nil {
		return err
	}
	for _, one := range deleted.Sorted() {
		say(event{"group": one.Group, "error": message(one.Err)})
	}
	return nil
}

// deleteOffsets takes a group, and topics whose partition 0 loses its offset.
func deleteOffsets(ctx context.Context, client *kadm.Client, arguments []string) error {
	var set kadm.TopicsSet
	for _, topic := range arguments[1:] {
		set.Add(topic, 0)
	}
	deleted, err := client.DeleteOffsets(ctx, arguments[0], set)
	if err != nil {
		return err
	}
	deleted.EachError(func(topic string, partition int32, err error) {
		say(event{"topic": topic, "partition": partition, "error": message(err)})
	})
	return nil
}

// removeMembers takes a group, and the instance ids of static members.
func removeMembers(ctx context.Context, client *kadm.Client, arguments []string) error {
	left, err := client.LeaveGroup(ctx, kadm.LeaveGroup(arguments[0]).InstanceIDs(arguments[1:]...))
	if err != nil {
		return err
	}
	for _, one := range left.Sorted() {
		say(event{"instance": one.InstanceID, "error": message(one.Err)})
	}
	return nil
}

// createTopics takes their names; each has one partition.
func createTopics(ctx context.Context, client *kadm.Client, topics []string) error {
	created, err := client.CreateTopics(ctx, 1, -1, nil, topics...)
	if err != nil {
		return err
	}
	for _, one := range created.Sorted() {
		say(event{"topic": one.Topic, "error": message(one.Err)})
	}
	return nil
}

// message is the error's Kafka name where it has one, and empty when there is none.
func message(err error) string {
	var kafka *kerr.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &kafka):
		return kafka.Message
	default:
		return err.Error()
	}
}
