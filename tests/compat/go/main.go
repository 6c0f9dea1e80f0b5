// franz plays one franz-go client for the compatibility tests: a producer, a member of a group, an
// administrator, or one that works in transactions. It says what happens as one JSON object per line on standard output.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const commandTimeout = 30 * time.Second

var commands = map[string]func(arguments []string) error{
	"produce": produce,
	"consume": consume,
	"admin":   admin,
	"ping":    ping,

	"transact": transact,
	"etl":      etl,
}

func main() {
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: franz produce|consume|admin|ping|transact|etl [flags]; franz <command> -help lists its flags")
		os.Exit(2)
	}
	if err := commands[os.Args[1]](os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "franz:", err)
		os.Exit(1)
	}
}

// event is one line of output.
type event map[string]any

var output sync.Mutex

func say(what event) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	output.Lock()
	defer output.Unlock()
	os.Stdout.Write(append(line, '\n'))
}

// newClient logs to standard error, as far as it is worth a look when a test fails.
func newClient(brokers string, options ...kgo.Opt) (*kgo.Client, error) {
	common, err := commonOptions(brokers)
	if err != nil {
		return nil, err
	}
	return kgo.NewClient(append(common, options...)...)
}

func commonOptions(brokers string) ([]kgo.Opt, error) {
	secured, err := security()
	if err != nil {
		return nil, err
	}
	return append([]kgo.Opt{
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.ClientID("franz"),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelInfo, nil)),
	}, secured...), nil
}

func withTimeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), commandTimeout)
}
